//! How fast a task goes: what it had moved at moments in the past, and the speed since the oldest of them.

use crate::report::Moved;
use crate::units::Nanos;

/// The most marks that any throttle keeps.
const MOST: usize = 11;

#[derive(Clone, Debug)]
pub(crate) struct Marks {
    /// When, and how many bytes of one member had been moved by then. The first `count` are in use.
    ring: [(Nanos, u64); MOST],
    count: usize,
    /// The oldest, which the next mark replaces.
    next: usize,
    every: Nanos,
}

impl Marks {
    pub(crate) fn new(count: usize, every: Nanos, now: Nanos, moved: u64) -> Marks {
        assert!((1..=MOST).contains(&count), "as many as there is room for");
        Marks {
            ring: [(now, moved); MOST],
            count,
            next: 0,
            every,
        }
    }

    /// Makes a mark if it is time.
    pub(crate) fn pass(&mut self, now: Nanos, moved: u64) {
        let newest = self.ring[(self.next + self.count - 1) % self.count].0;
        if now.since(newest) >= self.every {
            self.ring[self.next] = (now, moved);
            self.next = (self.next + 1) % self.count;
        }
    }

    pub(crate) fn oldest(&self) -> (Nanos, u64) {
        self.ring[self.next]
    }

    /// Since the oldest, when so much had been moved in all. What was in flight at the first mark is not counted.
    pub(crate) fn moved_lately(&self, moved: u64) -> Moved {
        let (since, before) = self.oldest();
        let bytes = moved.saturating_sub(before);
        Moved { since, bytes }
    }

    /// Bytes a second since the oldest.
    pub(crate) fn rate(&self, now: Nanos, moved: u64) -> u64 {
        self.moved_lately(moved).rate(now)
    }
}
