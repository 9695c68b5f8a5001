//! Who waits for a flush, and which one runs. `durability/flush.rs` has the table of states.

use alloc::vec::Vec;

/// Who waits for a flush.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waiter {
    /// A user's flush.
    Request(u32),
    /// A log that is full, or a write whose record would clash with an unflushed one.
    Log,
    /// A task's checkpoint.
    Checkpoint,
    /// The lazy clearing of intent bits.
    Intent,
    /// What a start found, and what its recovery wrote.
    Boot,
    /// A member that was added.
    Join,
    Stop,
}

#[derive(Default)]
pub(crate) struct Flusher {
    pub(crate) running: bool,
    /// All members have answered, and a failure that came with that is not on record yet.
    pub(crate) answered: bool,
    pub(crate) listing: bool,
    pub(crate) outstanding: u32,
    pub(crate) next: Vec<Waiter>,
    pub(crate) current: Vec<Waiter>,
    /// With the number of their flush: failures may hold up one while the next goes on.
    pub(crate) settling: Vec<(Waiter, u64)>,
    /// Counts flushes begun; what completed before flush `n` began is durable when it ends.
    pub(crate) begun: u64,
}

impl Flusher {
    /// Nobody waits any longer.
    pub(crate) fn forget_waiters(&mut self) {
        self.next.clear();
        self.current.clear();
        self.settling.clear();
    }

    /// Whether what a member held when it was added is being made durable.
    pub(crate) fn is_joining(&self) -> bool {
        let settling = self.settling.iter().map(|(waiter, _)| waiter);
        let waiting = self.next.iter().chain(&self.current).chain(settling);
        waiting.into_iter().any(|waiter| *waiter == Waiter::Join)
    }

    pub(crate) fn idle(&self) -> bool {
        !self.running && self.next.is_empty() && self.settling.is_empty()
    }
}
