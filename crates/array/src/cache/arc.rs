//! ARC (Megiddo and Modha, FAST 2003, figure 4): what the rule knows beyond the frames.
//!
//! Blocks asked for once lie on one list, those asked for again on another. Each list remembers the blocks that it let
//! go; a block that is missed and remembered says that its list was too short, and moves the target between the two.
//! How far it moves is a whole number here, the quotient rounded down. Which block of the list makes room is decided
//! elsewhere: the oldest, or with VDF the one whose age over penalty is most.

use super::frames::NONE;
use super::index::Index;

use alloc::vec::Vec;

/// Blocks asked for once since they came in: the paper's T1, remembered in B1.
pub(super) const RECENT: usize = 0;
/// Blocks asked for again: T2 and B2.
pub(super) const FREQUENT: usize = 1;

pub(super) struct Arc {
    capacity: u32,
    /// How long the recent list is to be: the paper's p.
    target: u32,
    /// Blocks held of each list.
    held: [u32; 2],
    ghosts: Ghosts,
}

/// What becomes of a block that is let in.
#[derive(Clone, Copy)]
pub(super) struct Arrival {
    /// Its list.
    pub(super) list: usize,
    /// The list that makes room, if room must be made.
    pub(super) from: Option<usize>,
    /// Whether who makes room is remembered.
    pub(super) remembered: bool,
}

impl Arc {
    pub(super) fn new(capacity: u32) -> Arc {
        Arc {
            capacity,
            target: 0,
            held: [0; 2],
            ghosts: Ghosts::new(capacity),
        }
    }

    /// A block was put on a list.
    pub(super) fn came(&mut self, list: usize) {
        self.held[list] += 1;
    }

    /// A block has left a list.
    pub(super) fn left(&mut self, list: usize) {
        self.held[list] -= 1;
    }

    /// A block went though none came in. It is remembered as if one had, where there is no room in place of the oldest.
    pub(super) fn dropped(&mut self, list: usize, block: u64) {
        if self.ghosts.full() && !self.ghosts.drop_oldest(list) {
            self.ghosts.drop_oldest(RECENT + FREQUENT - list);
        }
        self.ghosts.push(list, block);
    }

    /// A block that made room is remembered.
    pub(super) fn remember(&mut self, list: usize, block: u64) {
        self.ghosts.push(list, block);
    }

    /// A block is about to be let in.
    pub(super) fn arrive(&mut self, block: u64) -> Arrival {
        let Some(ghost) = self.ghosts.find(block) else {
            return self.arrive_new();
        };
        let of = self.ghosts.list_of(ghost);
        self.aim(of);
        self.ghosts.remove(ghost);
        Arrival {
            list: FREQUENT,
            from: self.makes_room(of == FREQUENT),
            remembered: true,
        }
    }

    /// Case IV: nothing is known of the block. The two lists with what they remember stay within their bounds.
    fn arrive_new(&mut self) -> Arrival {
        let [recent, frequent] = [RECENT, FREQUENT].map(|list| self.length(list));
        let mut remembered = true;
        if recent == u64::from(self.capacity) {
            remembered = self.ghosts.drop_oldest(RECENT);
        } else if recent + frequent == 2 * u64::from(self.capacity) {
            self.ghosts.drop_oldest(FREQUENT);
        }
        let from = self.makes_room(false);
        Arrival {
            list: RECENT,
            from: if remembered { from } else { Some(RECENT) },
            remembered,
        }
    }

    /// A list with what it remembers: the paper's L1, L2.
    fn length(&self, list: usize) -> u64 {
        u64::from(self.held[list]) + u64::from(self.ghosts.lists[list].count)
    }

    /// A block that this list remembers was missed: the list is to be longer.
    fn aim(&mut self, list: usize) {
        let [recent, frequent] = [RECENT, FREQUENT].map(|list| self.ghosts.lists[list].count);
        if list == RECENT {
            let step = (frequent / recent).max(1);
            self.target = self.target.saturating_add(step).min(self.capacity);
        } else {
            let step = (recent / frequent).max(1);
            self.target = self.target.saturating_sub(step);
        }
    }

    /// Which list makes room, if the cache is full.
    fn makes_room(&self, for_frequent_ghost: bool) -> Option<usize> {
        let [recent, frequent] = self.held;
        let full = recent + frequent == self.capacity;
        full.then(|| self.gives(for_frequent_ghost))
    }

    /// The paper's REPLACE: which list gives a block, of two that are not both empty.
    pub(super) fn gives(&self, for_frequent_ghost: bool) -> usize {
        let [recent, frequent] = self.held;
        let over = recent > self.target || for_frequent_ghost && recent == self.target;
        let of_recent = recent > 0 && over || frequent == 0;
        if of_recent { RECENT } else { FREQUENT }
    }
}

/// A block that is remembered, on a list from the newest to the oldest.
#[derive(Clone, Copy)]
struct Ghost {
    block: u64,
    newer: u32,
    /// Of a free place, the next free one.
    older: u32,
    list: u8,
}

#[derive(Clone, Copy)]
struct List {
    newest: u32,
    oldest: u32,
    count: u32,
}

/// At most as many as the cache has frames: a block is pushed when all frames are full, and all four lists together hold at
/// most twice that; or for one that is dropped.
struct Ghosts {
    places: Vec<Ghost>,
    free: u32,
    index: Index,
    lists: [List; 2],
}

impl Ghosts {
    fn new(capacity: u32) -> Ghosts {
        let place = |at: u32| Ghost {
            block: 0,
            newer: NONE,
            older: if at + 1 < capacity { at + 1 } else { NONE },
            list: 0,
        };
        let list = List {
            newest: NONE,
            oldest: NONE,
            count: 0,
        };
        Ghosts {
            places: (0..capacity).map(place).collect(),
            free: 0,
            index: Index::new(capacity),
            lists: [list; 2],
        }
    }

    fn find(&self, block: u64) -> Option<u32> {
        let holds = |place: u32| self.places[place as usize].block == block;
        self.index.find(block, holds)
    }

    fn list_of(&self, ghost: u32) -> usize {
        self.places[ghost as usize].list.into()
    }

    fn push(&mut self, list: usize, block: u64) {
        let place = self.free;
        assert!(place != NONE, "lists are kept within their bounds");
        self.free = self.places[place as usize].older;
        let of = &mut self.lists[list];
        let older = core::mem::replace(&mut of.newest, place);
        of.count += 1;
        if older == NONE {
            of.oldest = place;
        } else {
            self.places[older as usize].newer = place;
        }
        self.places[place as usize] = Ghost {
            block,
            newer: NONE,
            older,
            list: list as u8,
        };
        self.index.insert(block, place);
    }

    fn full(&self) -> bool {
        self.free == NONE
    }

    /// Whether there was one.
    fn drop_oldest(&mut self, list: usize) -> bool {
        let oldest = self.lists[list].oldest;
        if oldest != NONE {
            self.remove(oldest);
        }
        oldest != NONE
    }

    fn remove(&mut self, ghost: u32) {
        let Ghost {
            block,
            newer,
            older,
            list,
        } = self.places[ghost as usize];
        let of = &mut self.lists[usize::from(list)];
        of.count -= 1;
        if newer == NONE {
            of.newest = older;
        } else {
            self.places[newer as usize].older = older;
        }
        if older == NONE {
            self.lists[usize::from(list)].oldest = newer;
        } else {
            self.places[older as usize].newer = newer;
        }
        self.index.remove(block, ghost);
        self.places[ghost as usize].older = core::mem::replace(&mut self.free, ghost);
    }
}
