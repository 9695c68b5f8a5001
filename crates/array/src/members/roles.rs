//! Which member serves each partition of each slot, and which one is being filled for it: kept in the
//! superblock.

use super::Members;
use crate::layout::RowMap;
use crate::roles::{Home, Homes, PartitionRoles, Roles};
use crate::units::{Member, Row, Slot};
use alloc::vec::Vec;
use restripe_format::meta::log::DONE_SECTORS;
use restripe_format::meta::superblock::{MemberRole, PLACEMENTS_MAX, Placement};

impl Members {
    /// Where a partition of a slot would lie in this region of a member; nowhere if the member has no such
    /// region.
    pub(crate) fn home_on(&self, member: Member, region: u16, partition: u16) -> Option<Home> {
        let regions = &self.devices[member.0 as usize].regions;
        let (start, from) = self.superblock.place_in(regions, region, partition)?;
        Some(Home {
            member,
            region,
            start,
            from,
        })
    }

    /// Who can read and who must write a slot's part of a row.
    pub(crate) fn homes(&self, slot: Slot, row: Row) -> Homes {
        let roles = self.roles_at(slot, row);
        let filled = roles.incoming.filter(|_| self.tasks.filled(slot, row));
        let substitute = filled.filter(|_| self.tasks.reads_substitute(slot));
        let home = match self.is_torn(row) {
            true => self.slot_in_journal(slot, row),
            false => substitute.or(roles.home).or(filled),
        };
        Homes {
            read: home,
            write: [roles.home, filled],
        }
    }

    /// The cells of a row that have somewhere to be read from.
    pub(crate) fn live_cells(&self, map: &RowMap) -> crate::layout::code::CellSet {
        let lives = |cell: &u8| {
            let slot = map.cells[usize::from(*cell)].slot;
            self.homes(slot, map.row).read.is_some()
        };
        (0..map.width).filter(lives).collect()
    }

    /// Where a cell of the row lies in the journal: in the log of its own member, so that the journal bears
    /// as much as the row does. Without logs there is no redundancy, and any member will do that has room:
    /// the first that was added, at the end of its slot.
    pub(crate) fn journal_home(&self, map: &RowMap, cell: u8) -> Option<Home> {
        let place = map.cells[usize::from(cell)];
        if self.logged() {
            let home = self.roles_at(place.slot, map.row).home?;
            let log = self.devices[home.member.0 as usize].places.log;
            return Some(Home {
                start: log + DONE_SECTORS,
                from: place.at,
                ..home
            });
        }
        let (_, former) = self.layout.former_shape()?;
        let home = self.roles_at(Slot(former), map.row).home?;
        let row = self.layout.rows() - 1 - u64::from(cell);
        Some(Home {
            start: home.at(row * self.layout.chunk_sectors()),
            from: place.at,
            ..home
        })
    }

    /// Where a slot's cell of a row lies that is in the journal.
    pub(crate) fn slot_in_journal(&self, slot: Slot, row: Row) -> Option<Home> {
        let map = self.layout.new_row(row);
        self.journal_home(&map, map.cell_on(slot)?)
    }

    pub(crate) fn stand(&mut self) {
        let members = self.entry_members();
        self.roles = Roles::new(self.superblock.geometry.slots, self.layout.partitions());
        for slot in 0..self.superblock.geometry.slots {
            for partition in 0..self.layout.partitions() {
                let roles = self.current_roles(&members, slot, partition);
                let of_slot = self.roles.of_slot_mut(slot.into());
                of_slot[usize::from(partition)] = roles;
            }
        }
    }

    /// Who stands in a partition by the placement table, of the members that are here and as good as it says.
    pub(crate) fn current_roles(
        &self,
        members: &[Option<Member>],
        slot: u16,
        partition: u16,
    ) -> PartitionRoles {
        let Some(line) = self.superblock.placement_of(slot, partition) else {
            return PartitionRoles::default();
        };
        let home = |entry: Option<u16>, region, roles: &[MemberRole]| {
            let entry = usize::from(entry?);
            let fits = roles.contains(&self.superblock.members[entry].role);
            let member = members[entry].filter(|&member| fits && self.good(member))?;
            self.home_on(member, region, partition)
        };
        // Who hosts a partition of another's slot serves its own meanwhile.
        let filled = [MemberRole::Rebuilding, MemberRole::Active];
        PartitionRoles {
            home: home(line.member, line.region, &[MemberRole::Active]),
            incoming: home(line.incoming, line.incoming_region, &filled),
        }
    }

    pub(crate) fn role_of(&self, member: Member) -> Option<MemberRole> {
        let entry = self.devices[member.0 as usize].entry?;
        Some(self.superblock.members[entry as usize].role)
    }

    /// The placement table, from who stands where: a line for a slot whose partitions are all alike, else one
    /// for each.
    pub(crate) fn place_entries(&mut self) {
        if self.roles.is_empty() {
            return;
        }
        let mut lines = Vec::with_capacity(self.superblock.placement.len());
        for slot in 0..self.superblock.geometry.slots {
            let first = lines.len();
            let partitions = 0..self.layout.partitions();
            lines.extend(partitions.map(|partition| self.line_of(slot, partition)));
            let whole = lines[first];
            let alike = |line: &Placement| {
                Placement {
                    partition: 0,
                    ..*line
                } == whole
            };
            let hosted = whole.region > 0 || whole.incoming_region > 0;
            if !hosted && lines[first..].iter().all(alike) {
                lines.truncate(first + 1);
            }
        }
        assert!(lines.len() <= PLACEMENTS_MAX, "slots are split within room");
        self.superblock.placement = lines;
    }

    pub(crate) fn line_of(&self, slot: u16, partition: u16) -> Placement {
        let roles = self.roles.at(Slot(slot), partition);
        let placed = |home: Home| Some((self.devices[home.member.0 as usize].entry?, home.region));
        let incoming = roles.incoming.and_then(placed);
        // What is vacant remembers who was in it, until that one comes back or another takes its place.
        let held = self.superblock.placement_of(slot, partition);
        let former = held.and_then(|line| Some((line.member?, line.region)));
        let former = former.filter(|(entry, _)| incoming.is_none_or(|(other, _)| other != *entry));
        let home = roles.home.and_then(placed).or(former);
        Placement {
            slot,
            partition,
            member: home.map(|(entry, _)| entry),
            incoming: incoming.map(|(entry, _)| entry),
            region: home.map_or(0, |(_, region)| region),
            incoming_region: incoming.map_or(0, |(_, region)| region),
        }
    }

    pub(crate) fn take_office(&mut self, member: Member) {
        let entry = self.devices[member.0 as usize]
            .entry
            .expect("it is in the table");
        let line = &mut self.below.superblock.members[entry as usize];
        if line.role == MemberRole::Rebuilding {
            line.role = MemberRole::Active;
            line.current_since = self.below.superblock.generation;
        }
    }

    /// Takes a line out of the member table; those behind it move up.
    pub(crate) fn drop_entry(&mut self, entry: u16) {
        self.superblock.members.remove(entry as usize);
        for device in &mut self.devices {
            device.entry = device
                .entry
                .map(|other| if other > entry { other - 1 } else { other });
        }
        let moved = |held: Option<u16>| match held {
            Some(other) if other == entry => None,
            Some(other) if other > entry => Some(other - 1),
            other => other,
        };
        for placement in &mut self.superblock.placement {
            placement.member = moved(placement.member);
            placement.incoming = moved(placement.incoming);
        }
    }

    /// What this failed member lacks is not known.
    pub(crate) fn rebuild_in_full(&mut self, member: Member) {
        let entry = self.devices[member.0 as usize].entry;
        if let Some(line) = entry.map(|entry| &mut self.below.superblock.members[entry as usize])
            && let MemberRole::Failed { partial, .. } = &mut line.role
        {
            *partial = false;
        }
    }
}
