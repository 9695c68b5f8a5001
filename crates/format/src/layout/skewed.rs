//! S2-RAID: sub-arrays skewed over groups of slots, so that what rebuilds a lost slot is read from disjoint slots, in
//! as many streams as a slot has partitions (Wan et al., "S2-RAID: A New RAID Architecture for Fast Data Recovery",
//! section 2).
//!
//! The slots are `groups` groups of `size`, and every slot is cut into `partitions`. Sub-array (j, c) takes, of each group
//! i, partition j of the slot at position `(c + i * j) mod size`: the closed form of the paper's shift matrices. It is a
//! RAID-5, a RAID-6 or a mirror over `groups` cells. S2-RAID10 is the same with mirrors over two groups: the copy of
//! partition j of slot d stands at position `(d + j) mod size` of the second.
//!
//! Rows are dealt to the `size` sub-arrays of the first partition in turn until it is full, then to those of the second, and
//! so on (section 2.2): users see as wide a stripe as without sub-arrays.
//!
//! Two sub-arrays of different partitions share at most one slot exactly when no `1 <= a < groups` and
//! `1 <= b < partitions` have `a * b = 0 mod size`: they stand together in group i when `i * (j' - j) = c - c' mod size`,
//! and in two groups when the difference `a` of those does that for `b = j' - j`. So the sub-arrays of a lost slot share
//! no other. The paper asks for a prime `size`, with at most as many groups and partitions; some others do as well.

use super::{Cell, GeometryError, Level, RowMap};
use crate::units::{CELLS_MAX, Row, SLOTS_MAX, Slot};

/// How slots are grouped and cut.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Skew {
    /// Cells of a row: each group has one of them.
    pub groups: u16,
    /// Partitions of a slot, and so the rebuild streams of a lost one.
    pub partitions: u16,
}

impl Skew {
    /// The most partitions without a collision for so many groups of this size: 1 says that nothing is gained. One group
    /// bears any number, since its sub-arrays have no other cell.
    pub fn partitions_max(groups: u16, size: u16) -> u16 {
        let widest = (1..groups).map(|a| greatest_common_divisor(a, size)).max();
        widest.map_or(u16::MAX, |widest| size / widest)
    }

    /// Groups of so many slots with the most partitions. Two where only one would do: that is refused, with what works, and
    /// who wants groups that rebuild in one stream has to say one.
    pub fn with_most_partitions(groups: u16, slots: u16) -> Skew {
        let size = slots.checked_div(groups).unwrap_or(0);
        let partitions = Skew::partitions_max(groups, size).max(2);
        Skew { groups, partitions }
    }

    /// Whether the streams of any lost slot read disjoint slots.
    pub fn is_free_of_conflict(&self, size: u16) -> bool {
        self.partitions <= Skew::partitions_max(self.groups, size)
    }

    /// In which slot the sub-array (`partition`, `column`) has its cell of this group.
    pub fn slot(&self, size: u16, group: u16, partition: u16, column: u16) -> Slot {
        let shift = u32::from(group) * u32::from(partition);
        let position = (u32::from(column) + shift) % u32::from(size);
        Slot(group * size + position as u16) // below `size`
    }

    /// Which sub-array of a partition has its cell in this slot: the inverse of [`Skew::slot`].
    pub fn column(&self, size: u16, partition: u16, slot: Slot) -> u16 {
        let (group, position) = (slot.0 / size, slot.0 % size);
        let size = u32::from(size);
        let shift = u32::from(group) * u32::from(partition) % size;
        ((u32::from(position) + size - shift) % size) as u16 // below `size`
    }

    pub(super) fn check(&self, level: Level, slots: u16) -> Result<(), GeometryError> {
        let Skew { groups, partitions } = *self;
        if !Skew::has_groups(level, groups) {
            return Err(GeometryError::NotSkewed {
                level,
                groups,
                slots,
            });
        }
        if groups == 0 || slots == 0 || !slots.is_multiple_of(groups) {
            return Err(GeometryError::UnevenGroups { slots, groups });
        }
        let size = slots / groups;
        if partitions == 0 || !self.is_free_of_conflict(size) {
            return Err(GeometryError::Colliding {
                level,
                skew: *self,
                size,
            });
        }
        Ok(())
    }

    /// Groupings of so many slots with two streams or more, of about so many groups, the nearest first.
    pub fn of_slots(level: Level, groups: u16, slots: u16) -> impl Iterator<Item = Skew> {
        let most = slots.max(groups);
        let around = (0..=most).flat_map(move |off| {
            let above = groups.checked_add(off).filter(|_| off > 0);
            [groups.checked_sub(off), above]
        });
        let whole = around.flatten().filter(move |&groups| {
            let some = (1..=CELLS_MAX as u16).contains(&groups) && usize::from(slots) <= SLOTS_MAX;
            some && slots.is_multiple_of(groups) && Skew::has_groups(level, groups)
        });
        whole.filter_map(move |groups| {
            let partitions = Skew::partitions_max(groups, slots / groups);
            (partitions > 1 && slots / groups > 1).then_some(Skew { groups, partitions })
        })
    }

    /// Whether a level may have so many groups: a row has a cell in each.
    fn has_groups(level: Level, groups: u16) -> bool {
        match level {
            Level::Raid5(_) | Level::Raid6(_) => groups >= level.slots_min(),
            Level::Raid10 { copies } => groups == u16::from(copies),
            Level::Raid0 | Level::Raid1 | Level::Raid4 | Level::ReedSolomon { .. } => false,
        }
    }

    /// Groupings with two streams or more for about so many slots, the nearest first, of the smaller numbers first.
    pub fn nearest(groups: u16, slots: u16) -> impl Iterator<Item = (u16, Skew)> {
        let most = SLOTS_MAX as u16;
        let around = (0..most).flat_map(move |off| {
            let above = slots.checked_add(off).filter(|_| off > 0);
            [slots.checked_sub(off), above]
        });
        let whole = around.flatten().filter(move |slots| {
            (1..=most).contains(slots) && groups > 0 && slots.is_multiple_of(groups)
        });
        whole.filter_map(move |slots| {
            let partitions = Skew::partitions_max(groups, slots / groups);
            (partitions > 1).then_some((slots, Skew { groups, partitions }))
        })
    }
}

pub(super) fn greatest_common_divisor(a: u16, b: u16) -> u16 {
    if b == 0 {
        a
    } else {
        greatest_common_divisor(b, a % b)
    }
}

/// A skew over slots of one size: where a row's cells stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Skewed {
    skew: Skew,
    /// Slots of a group.
    size: u16,
    /// Stripes of a sub-array: the chunks of a partition.
    stripes: u64,
    chunk_shift: u32,
}

/// Which stripe of which sub-array a row is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Site {
    pub partition: u16,
    column: u16,
    pub stripe: u64,
}

impl Skewed {
    /// Of a checked geometry. What is left of a slot's chunks behind the last partition belongs to no row.
    pub fn new(skew: Skew, slots: u16, slot_chunks: u64, chunk_shift: u32) -> Skewed {
        Skewed {
            skew,
            size: slots / skew.groups,
            stripes: slot_chunks / u64::from(skew.partitions),
            chunk_shift,
        }
    }

    pub fn rows(&self) -> u64 {
        self.partition_rows() * u64::from(self.skew.partitions)
    }

    /// Rows of one partition's sub-arrays.
    pub fn partition_rows(&self) -> u64 {
        self.stripes * u64::from(self.size)
    }

    pub fn site(&self, row: Row) -> Site {
        let partition = row.0 / self.partition_rows();
        let within = row.0 - partition * self.partition_rows();
        let size = u64::from(self.size);
        Site {
            partition: partition as u16,    // below `partitions`
            column: (within % size) as u16, // below `size`
            stripe: within / size,
        }
    }

    /// The row that has this chunk of a slot.
    pub fn row_at(&self, slot: Slot, chunk: u64) -> Option<Row> {
        let partition = chunk / self.stripes;
        if partition >= u64::from(self.skew.partitions) {
            return None;
        }
        let column = self.skew.column(self.size, partition as u16, slot); // below `partitions`
        let stripe = chunk - partition * self.stripes;
        let within = stripe * u64::from(self.size) + u64::from(column);
        Some(Row(partition * self.partition_rows() + within))
    }

    /// A cell of the sub-array's stripe, which counts groups for slots, where it stands.
    pub fn stand(&self, site: Site, cell: &mut Cell) {
        let Site {
            partition, column, ..
        } = site;
        cell.slot = self.skew.slot(self.size, cell.slot.0, partition, column);
        cell.at += (u64::from(partition) * self.stripes) << self.chunk_shift;
    }

    /// One row of every sub-array and every turn of its parity: all others repeat them.
    pub fn turn(&self) -> impl Iterator<Item = Row> + use<> {
        let (size, partition_rows) = (u64::from(self.size), self.partition_rows());
        let turn = size * u64::from(self.skew.groups).min(self.stripes);
        let firsts = (0..u64::from(self.skew.partitions)).map(move |one| one * partition_rows);
        firsts.flat_map(move |first| (first..first + turn).map(Row))
    }

    pub fn stand_all(&self, site: Site, map: &mut RowMap) {
        let width = usize::from(map.width);
        for cell in &mut map.cells[..width] {
            self.stand(site, cell);
        }
    }
}
