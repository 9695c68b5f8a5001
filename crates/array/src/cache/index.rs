//! From a block's number to its place in a table: a frame, or a block that is remembered.
//!
//! Open addressing, at most half full, with the upper half of the hash beside each place: a search looks at one line of
//! memory, and at the table itself only to be sure. What goes leaves no mark: those behind it move up.

use super::frames::NONE;
use alloc::vec;
use alloc::vec::Vec;

#[derive(Clone, Copy)]
struct Entry {
    /// The upper half of the block's hash; its first bits say where a search begins.
    tag: u32,
    place: u32,
}

const EMPTY: Entry = Entry {
    tag: 0,
    place: NONE,
};

pub(super) struct Index {
    entries: Vec<Entry>,
    shift: u32,
}

/// 2^64 over the golden ratio: spreads neighbouring numbers over the upper bits.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;

impl Index {
    /// Of at most `places` blocks, which are no more than 2^31.
    pub(super) fn new(places: u32) -> Index {
        let entries = (u64::from(places) * 2).next_power_of_two().max(4);
        Index {
            entries: vec![EMPTY; entries as usize],
            shift: 32 - entries.trailing_zeros(),
        }
    }

    /// The place of a block, of which `holds` says whether it is that block's.
    pub(super) fn find(&self, block: u64, holds: impl Fn(u32) -> bool) -> Option<u32> {
        let tag = tag(block);
        let mut at = self.home(tag);
        loop {
            let entry = self.entries[at];
            if entry.place == NONE {
                return None;
            }
            if entry.tag == tag && holds(entry.place) {
                return Some(entry.place);
            }
            at = self.after(at);
        }
    }

    /// A block that is not in the index.
    pub(super) fn insert(&mut self, block: u64, place: u32) {
        let tag = tag(block);
        let mut at = self.home(tag);
        while self.entries[at].place != NONE {
            at = self.after(at);
        }
        self.entries[at] = Entry { tag, place };
    }

    /// A block that is in the index, with its place.
    pub(super) fn remove(&mut self, block: u64, place: u32) {
        let mut hole = self.home(tag(block));
        while self.entries[hole].place != place {
            hole = self.after(hole);
        }
        let mut next = self.after(hole);
        while self.entries[next].place != NONE {
            // It may fill the hole unless its search begins behind that.
            let home = self.home(self.entries[next].tag);
            if self.distance(home, next) >= self.distance(hole, next) {
                self.entries[hole] = self.entries[next];
                hole = next;
            }
            next = self.after(next);
        }
        self.entries[hole] = EMPTY;
    }

    fn home(&self, tag: u32) -> usize {
        (tag >> self.shift) as usize
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.entries.len() - 1)
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.entries.len() - 1)
    }
}

fn tag(block: u64) -> u32 {
    (block.wrapping_mul(SPREAD) >> 32) as u32
}
