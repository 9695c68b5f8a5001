//! Commands about members: to fail, remove, add and replace them.

use super::Commands;
use crate::contract::{Bug, CommandError, FailCause, MemberInfo, TaskKind};
use crate::facts::Waiter;
use crate::members::device::{Device, Health, Places};
use crate::roles::{Home, PartitionRoles};
use crate::runset::RunSet;
use crate::units::{Member, Slot, Uuid};
use alloc::vec::Vec;
use restripe_format::meta::superblock::{MEMBERS_MAX, MemberEntry, MemberRole, Placement};

impl Commands {
    fn known(&self, member: Member) -> Result<usize, CommandError> {
        let index = Some(usize::from(member.0)).filter(|index| *index < self.devices.len());
        index.ok_or(CommandError::NoSuchMember(member))
    }

    /// Whether a member may be failed by command.
    pub fn may_fail(&self, member: Member) -> Result<(), CommandError> {
        let index = self.known(member)?;
        if self.devices[index].health != Health::Good {
            return Err(CommandError::NoSuchMember(member));
        }
        if self.indispensable(member) || self.tells_alone(member) {
            return Err(CommandError::Indispensable(member));
        }
        Ok(())
    }

    pub(super) fn command_fail(&mut self, member: Member) -> Result<(), CommandError> {
        self.may_fail(member)?;
        self.fail_member(member, FailCause::Command);
        Ok(())
    }

    pub(super) fn command_remove(&mut self, member: Member) -> Result<(), CommandError> {
        let index = self.known(member)?;
        let Some(entry) = self.devices[index].entry else {
            return Err(CommandError::NoSuchMember(member));
        };
        if self.slot_of(member).is_some() {
            return Err(CommandError::Busy(
                "the member is in use: fail or replace it first",
            ));
        }
        self.devices[index].health = Health::Stranger;
        self.devices[index].entry = None;
        self.forget_dropped_target(entry);
        self.drop_entry(entry);
        self.writer.note_change();
        Ok(())
    }

    /// A former member goes back to its place; anything else becomes a spare.
    pub(super) fn command_add(&mut self, member: Member) -> Result<(), CommandError> {
        let index = self.known(member)?;
        if self.devices[index].health == Health::Good {
            return Err(CommandError::Busy("the member is in use"));
        }
        if self.ops.busy(member) {
            return Err(CommandError::Busy(
                "operations on the member are still outstanding",
            ));
        }
        self.fits(member)?;
        let entry = self.devices[index].entry;
        let former_place = entry.and_then(|entry| self.vacated_by(entry));
        match (self.role_of(member), former_place) {
            (Some(MemberRole::Failed { partial: true, .. }), Some((slot, partitions))) => {
                self.check_may_fill()?;
                self.devices[index].health = Health::Good;
                self.devices[index].full = false;
                let done = self.rows_not_owed();
                let places = self.places_on(member, partitions.into_iter());
                self.fill(slot.into(), &places, TaskKind::Rebuild, done);
            }
            _ => self.add_spare(member)?,
        }
        // What the member holds is not known to be durable.
        self.flush_for(Waiter::Join);
        self.writer.note_change();
        Ok(())
    }

    fn fits(&self, member: Member) -> Result<(), CommandError> {
        let info = &self.devices[member.0 as usize].info;
        let allowed = self.mode.volatile_members || self.planted(Bug::VolatileTakenIn);
        if info.volatile && !allowed {
            return Err(CommandError::Volatile(member));
        }
        let needs = self.needs_sectors();
        if info.sectors < needs {
            let has = info.sectors;
            return Err(CommandError::TooSmall { has, needs });
        }
        if info.logical_block > self.superblock.logical_block {
            let (member, array) = (info.logical_block, self.superblock.logical_block);
            return Err(CommandError::LogicalBlock { member, array });
        }
        Ok(())
    }

    /// The slot whose set data a former member held, and those of its partitions that no other member holds.
    fn vacated_by(&self, entry: u16) -> Option<(u16, Vec<u16>)> {
        let own = |line: &&Placement| line.member == Some(entry) && line.region == 0;
        let slot = self.superblock.placement.iter().find(own)?.slot;
        if self.roles.is_filled(slot.into()) {
            return None;
        }
        let was_its = |partition: &u16| {
            let line = self.superblock.placement_of(slot, *partition);
            let vacant = self.roles.at(Slot(slot), *partition).home.is_none();
            vacant && line.as_ref().is_some_and(own)
        };
        let partitions: Vec<u16> = (0..self.layout.partitions()).filter(was_its).collect();
        (!partitions.is_empty()).then_some((slot, partitions))
    }

    fn check_may_fill(&self) -> Result<(), CommandError> {
        if self.may_fill() {
            return Ok(());
        }
        Err(CommandError::Busy(
            "the maximum number of members is already being rebuilt: wait for one",
        ))
    }

    /// What a member that left holds still: the rows that it is not owed.
    fn rows_not_owed(&self) -> RunSet {
        let mut rows = RunSet::default();
        rows.insert(0, self.layout.rows());
        for region in 0..self.regions() {
            if self.intent.get(self.owed_bit(region)) {
                let each = self.superblock.intent_rows;
                let first = region * each;
                rows.remove(first, each.min(self.layout.rows() - first));
            }
        }
        rows
    }

    fn add_spare(&mut self, member: Member) -> Result<(), CommandError> {
        let index = member.0 as usize;
        if self.devices[index].entry.is_none() {
            if self.superblock.members.len() >= MEMBERS_MAX {
                return Err(CommandError::Busy(
                    "the member table is full: remove failed members first",
                ));
            }
            let uuid = self.fresh_uuid();
            self.superblock.members.push(MemberEntry {
                uuid,
                role: MemberRole::Spare,
                current_since: 0,
                log_floor: 0,
                read_errors: 0,
                left_at: 0,
                dropped_for: None,
            });
            self.devices[index].entry = Some((self.superblock.members.len() - 1) as u16);
            self.devices[index].regions = self.regions_within(self.devices[index].info.sectors);
            self.devices[index].places = Places::of(&self.devices[index].regions);
        }
        let entry = self.devices[index].entry.expect("given above");
        self.superblock.members[entry as usize].role = MemberRole::Spare;
        self.forget_dropped_target(entry);
        self.forget_former(entry);
        self.devices[index].health = Health::Good;
        self.devices[index].full = false;
        Ok(())
    }

    /// A member's identity, drawn from the array's and the moment, and like neither (RFC 9562, version 8).
    /// The engine has no chance at hand: the same events give the same identities.
    fn fresh_uuid(&self) -> Uuid {
        let array = u128::from_le_bytes(self.superblock.array.0);
        let moment = [
            self.now.0,
            self.superblock.sequence,
            self.superblock.generation,
        ];
        let draw = |drawn, word| scattered(drawn ^ u128::from(word));
        let drawn = moment.into_iter().fold(array, draw);
        let mut bytes = drawn.to_le_bytes();
        bytes[6] = (bytes[6] & 0x0f) | 0x80;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        while self.superblock.index_of(Uuid(bytes)).is_some() {
            bytes[15] = bytes[15].wrapping_add(1);
        }
        Uuid(bytes)
    }

    pub(super) fn command_replace(&mut self, old: Member, new: Member) -> Result<(), CommandError> {
        self.known(old)?;
        self.known(new)?;
        let Some(slot) = self.serving_slot(old) else {
            return Err(CommandError::NoSuchMember(old));
        };
        if self.roles.is_filled(slot) {
            return Err(CommandError::Busy("the member is being replaced already"));
        }
        let shares = |home: Home| home.is_own() && home.member != old;
        let of_slot = self.roles.of_slot(slot).iter();
        if of_slot.flat_map(PartitionRoles::homes).any(shares) {
            return Err(CommandError::Busy(
                "other members host partitions of the member's slot: wait for the copy-back",
            ));
        }
        if !self.roles.hosted_by(old).is_empty() {
            return Err(CommandError::Busy(
                "the member hosts partitions of other slots: add a spare, and wait for the copy-back",
            ));
        }
        self.check_may_fill()?;
        if !self.may_begin(new) {
            return Err(CommandError::Busy(
                "the new member is in use, or was removed from its slot a moment ago",
            ));
        }
        self.fits(new)?;
        self.add_spare(new)?;
        let places = self.places_on(new, 0..self.layout.partitions());
        self.fill(slot, &places, TaskKind::Replace, RunSet::default());
        Ok(())
    }

    /// The slot that a member serves: its own, if it has one.
    fn serving_slot(&self, member: Member) -> Option<usize> {
        let serves = self.roles.iter().any(|one| one.serves(member));
        self.slot_of(member).filter(|_| serves)
    }

    pub(crate) fn arrived(&mut self, info: MemberInfo) {
        self.devices.push(Device::new(info));
    }

    pub(crate) fn departed(&mut self, member: Member) {
        if (member.0 as usize) < self.devices.len() {
            self.fail_member(member, FailCause::Gone);
        }
    }
}

/// Another number for each number, every bit of which hangs on all bits: odd factors and shifted sums can be
/// undone, so no two become one. Four rounds.
fn scattered(number: u128) -> u128 {
    const ODD: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    (0..4u32).fold(number, |number, _| {
        let number = number.wrapping_add(1).wrapping_mul(ODD);
        number ^ (number >> 67)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_scattered_over_all_bits() {
        for base in [0u128, 1, u128::MAX, 0x1234_5678 << 64] {
            for bit in 0..128 {
                let differing = scattered(base) ^ scattered(base ^ (1 << bit));
                let ones = differing.count_ones();
                assert!((40..=88).contains(&ones), "{base:x} {bit}: {ones}");
            }
        }
    }
}
