//! Roles: for each partition of each slot, the member that serves it and the one that is being filled for it.
//!
//! A slot of an unskewed layout is one partition. A partition mostly lies where the others of its slot do: in
//! the set data of one member.

use crate::units::{Member, Slot};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Where a partition lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Home {
    pub(crate) member: Member,
    /// Where on the member: 0 is its set data, a higher number one of its spare partitions, counted from 1.
    pub(crate) region: u16,
    /// The sector of the member at which sector `from` of the slot lies.
    pub(crate) start: u64,
    pub(crate) from: u64,
}

impl Home {
    /// Whether it lies in set data, where its member has its own slot, and not in a spare partition.
    pub(crate) fn is_own(&self) -> bool {
        self.region == 0
    }

    /// The sector of the member at which this sector of the slot lies.
    pub(crate) fn at(&self, slot_sector: u64) -> u64 {
        self.start + (slot_sector - self.from)
    }
}

/// The members of a partition of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct PartitionRoles {
    /// Where it is served.
    pub(crate) home: Option<Home>,
    /// Where it is being filled. Rows in the task's done-set are as good as at a serving home.
    pub(crate) incoming: Option<Home>,
}

impl PartitionRoles {
    pub(crate) fn serves(&self, member: Member) -> bool {
        self.home.is_some_and(|home| home.member == member)
    }

    pub(crate) fn takes(&self, member: Member) -> bool {
        self.incoming.is_some_and(|home| home.member == member)
    }

    /// Both, where it is served before where it is filled.
    pub(crate) fn homes(&self) -> impl Iterator<Item = Home> + use<> {
        [self.home, self.incoming].into_iter().flatten()
    }

    /// Both, who serves before who is filled.
    pub(crate) fn members(&self) -> impl Iterator<Item = Member> + use<> {
        self.homes().map(|home| home.member)
    }
}

/// Where a cell can be read and where it must be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Homes {
    pub(crate) read: Option<Home>,
    pub(crate) write: [Option<Home>; 2],
}

impl Homes {
    /// Who is read.
    pub(crate) fn reader(&self) -> Option<Member> {
        self.read.map(|home| home.member)
    }
}

/// All slots' partitions: slot by slot, each from its first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roles {
    list: Vec<PartitionRoles>,
    partitions: usize,
}

impl Roles {
    pub(crate) fn new(slots: u16, partitions: u16) -> Roles {
        Roles {
            list: vec![PartitionRoles::default(); usize::from(slots) * usize::from(partitions)],
            partitions: partitions.into(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Forgets everybody.
    pub(crate) fn clear(&mut self) {
        self.list.clear();
    }

    pub(crate) fn slots(&self) -> usize {
        self.list.len().checked_div(self.partitions).unwrap_or(0)
    }

    pub(crate) fn at(&self, slot: Slot, partition: u16) -> &PartitionRoles {
        &self.list[usize::from(slot.0) * self.partitions + usize::from(partition)]
    }

    /// A slot more, of a layout without partitions.
    pub(crate) fn add_slot(&mut self, roles: PartitionRoles) {
        assert!(self.partitions == 1, "slots are whole");
        self.list.push(roles);
    }

    fn range(&self, slot: usize) -> Range<usize> {
        slot * self.partitions..(slot + 1) * self.partitions
    }

    pub(crate) fn of_slot(&self, slot: usize) -> &[PartitionRoles] {
        &self.list[self.range(slot)]
    }

    pub(crate) fn of_slot_mut(&mut self, slot: usize) -> &mut [PartitionRoles] {
        let range = self.range(slot);
        &mut self.list[range]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &PartitionRoles> {
        self.list.iter()
    }

    /// Those who serve, each once.
    pub(crate) fn serving(&self) -> Vec<Member> {
        let homes = self.list.iter().filter_map(|roles| roles.home);
        distinct(homes.map(|home| home.member))
    }

    /// Those who serve or are being filled, each once.
    pub(crate) fn members(&self) -> Vec<Member> {
        distinct(self.list.iter().flat_map(PartitionRoles::members))
    }

    /// Whether some partition of a slot has no member that serves it.
    pub(crate) fn is_short(&self, slot: usize) -> bool {
        let mut roles = self.of_slot(slot).iter();
        roles.any(|roles| roles.home.is_none())
    }

    /// Whether some partition of a slot is being filled.
    pub(crate) fn is_filled(&self, slot: usize) -> bool {
        let mut roles = self.of_slot(slot).iter();
        roles.any(|roles| roles.incoming.is_some())
    }

    /// The slot whose data lie, or will lie, in a member's set data.
    pub(crate) fn own_slot(&self, member: Member) -> Option<usize> {
        let own = |home: Home| home.member == member && home.is_own();
        self.slot_where(|roles| roles.homes().any(own))
    }

    /// The slots and partitions that lie, or will lie, in a member's spare partitions.
    pub(crate) fn hosted_by(&self, member: Member) -> Vec<(u16, u16)> {
        let hosted = |home: Home| home.member == member && !home.is_own();
        let indices = 0..self.list.len();
        let there = indices.filter(|index| self.list[*index].homes().any(hosted));
        let place = |index| (index / self.partitions, index % self.partitions);
        let found = there.map(place);
        found
            .map(|(slot, part)| (slot as u16, part as u16))
            .collect()
    }

    /// The slots with a partition that no member serves.
    pub(crate) fn missing(&self) -> impl Iterator<Item = u16> + '_ {
        let short = (0..self.slots()).filter(|slot| self.is_short(*slot));
        short.map(|slot| slot as u16) // at most SLOTS_MAX
    }

    /// The first slot with a partition that is so.
    pub(crate) fn slot_where(&self, is_so: impl Fn(&PartitionRoles) -> bool) -> Option<usize> {
        (0..self.slots()).find(|slot| self.of_slot(*slot).iter().any(&is_so))
    }

    /// The slots with a partition that is so.
    pub(crate) fn slots_where(&self, is_so: impl Fn(&PartitionRoles) -> bool) -> Vec<usize> {
        let slots = (0..self.slots()).filter(|slot| self.of_slot(*slot).iter().any(&is_so));
        slots.collect()
    }
}

/// In the order in which they come first.
pub(crate) fn distinct(members: impl Iterator<Item = Member>) -> Vec<Member> {
    let mut known = Vec::new();
    for member in members {
        if !known.contains(&member) {
            known.push(member);
        }
    }
    known
}
