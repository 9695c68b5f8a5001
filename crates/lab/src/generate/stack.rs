//! A stack of the most recently used entries: the last one used is on top, and any entry can be removed by
//! its depth.
//!
//! Mattson et al. 1970: a cache of n entries with least-recently-used replacement hits exactly the entries
//! at depth n or less. Entries are in slots in the order of use. A binary indexed tree (Fenwick 1994) counts
//! the slots in use, so that depth to slot and slot to depth take logarithmic time.

pub struct Stack<T> {
    slots: Vec<Option<T>>,
    /// Counts of used slots, of the tree's intervals.
    tree: Vec<u32>,
    /// The next slot that is used.
    next: usize,
    /// No used slot lies before this.
    bottom: usize,
    used: usize,
    depth_max: usize,
    /// How often the slots were numbered anew.
    renumbered: u64,
}

impl<T: Copy> Stack<T> {
    /// What sinks below `depth_max` is forgotten.
    pub fn new(depth_max: usize) -> Stack<T> {
        let slots = (2 * depth_max.max(1)).next_power_of_two();
        Stack {
            slots: vec![None; slots],
            tree: vec![0; slots + 1],
            next: 0,
            bottom: 0,
            used: 0,
            depth_max: depth_max.max(1),
            renumbered: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.used
    }

    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Changes whenever slots get other numbers.
    pub fn renumbered(&self) -> u64 {
        self.renumbered
    }

    /// Puts an entry on top. Returns its slot, and what was forgotten for it.
    pub fn push(&mut self, entry: T) -> (usize, Option<T>) {
        let forgotten = (self.used == self.depth_max).then(|| self.forget());
        if self.next == self.slots.len() {
            self.renumber();
        }
        let slot = self.next;
        self.slots[slot] = Some(entry);
        self.next += 1;
        self.used += 1;
        self.count(slot, 1);
        (slot, forgotten)
    }

    /// Takes out what lies at a depth; 1 is the top.
    pub fn take(&mut self, depth: usize) -> Option<T> {
        if depth == 0 || depth > self.used {
            return None;
        }
        let slot = self.find(self.used - depth + 1);
        Some(self.take_slot(slot))
    }

    /// Takes out what lies in a slot that is in use.
    pub fn take_slot(&mut self, slot: usize) -> T {
        let entry = self.slots[slot].take().expect("the slot is in use");
        self.used -= 1;
        self.count(slot, u32::MAX);
        entry
    }

    /// The depth of a slot in use.
    pub fn depth(&self, slot: usize) -> usize {
        let mut before = 0;
        let mut at = slot;
        while at > 0 {
            before += self.tree[at] as usize;
            at &= at - 1;
        }
        self.used - before
    }

    /// All entries with their slots, the deepest first.
    pub fn entries(&self) -> impl Iterator<Item = (usize, T)> + '_ {
        let numbered = self.slots.iter().enumerate();
        numbered.filter_map(|(slot, entry)| entry.map(|entry| (slot, entry)))
    }

    fn forget(&mut self) -> T {
        while self.slots[self.bottom].is_none() {
            self.bottom += 1;
        }
        self.take_slot(self.bottom)
    }

    /// Adds to a slot's count; `u32::MAX` takes one off.
    fn count(&mut self, slot: usize, change: u32) {
        let mut at = slot + 1;
        while at < self.tree.len() {
            self.tree[at] = self.tree[at].wrapping_add(change);
            at += at & at.wrapping_neg();
        }
    }

    /// The slot of the n-th used one, from the bottom and from 1.
    fn find(&self, nth: usize) -> usize {
        let mut left = nth;
        let mut at = 0;
        let mut step = self.slots.len();
        while step > 0 {
            if at + step < self.tree.len() && (self.tree[at + step] as usize) < left {
                at += step;
                left -= self.tree[at] as usize;
            }
            step /= 2;
        }
        at
    }

    fn renumber(&mut self) {
        let entries: Vec<T> = self.slots.iter().flatten().copied().collect();
        self.slots.fill(None);
        self.tree.fill(0);
        (self.next, self.bottom, self.used) = (0, 0, 0);
        self.renumbered += 1;
        for entry in entries {
            self.slots[self.next] = Some(entry);
            self.count(self.next, 1);
            self.next += 1;
            self.used += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use restripe_sim::rng::Rng;

    #[test]
    fn it_is_a_list_with_a_length() {
        let mut rng = Rng::new(7);
        let mut stack = Stack::new(50);
        // The top is the last.
        let mut list: Vec<u64> = Vec::new();
        for value in 0..5000 {
            if rng.below(3) == 0 && !list.is_empty() {
                let depth = 1 + rng.below(list.len() as u64) as usize;
                let expected = list.remove(list.len() - depth);
                assert_eq!(stack.take(depth), Some(expected));
            }
            let (slot, forgotten) = stack.push(value);
            let expected = (list.len() == 50).then(|| list.remove(0));
            list.push(value);
            assert_eq!(forgotten, expected);
            assert_eq!(stack.depth(slot), 1);
            assert_eq!(stack.len(), list.len());
        }
        let entries: Vec<(usize, u64)> = stack.entries().collect();
        for (index, (slot, entry)) in entries.iter().enumerate() {
            assert_eq!(*entry, list[index]);
            assert_eq!(stack.depth(*slot), list.len() - index);
        }
        assert!(stack.renumbered() > 10);
        assert_eq!((stack.take(0), stack.take(51)), (None, None));
    }
}
