//! Transfers: data that a task reads of some rows goes to a log set in the same pass. The task passes its
//! buffers.
//!
//! A window of the task holds the locks of its rows until each buffer that it passed has been copied or
//! refused. So the main set cannot change the data between the read and the copy.

use crate::contract::BufRef;
use crate::runset::RunSet;
use alloc::collections::VecDeque;

/// Part of a row, in a buffer that stays as it is until it was copied or refused.
#[derive(Clone, Copy, Debug)]
pub struct Handed {
    pub slice: u32,
    pub lba: u64,
    pub buf: BufRef,
}

#[derive(Default)]
pub(crate) struct Transfers {
    /// Zones whose data are wanted.
    pub(crate) zones: RunSet,
    queue: VecDeque<Handed>,
}

impl Transfers {
    pub(super) fn add(&mut self, handed: Handed) {
        self.queue.push_back(handed);
    }

    pub(crate) fn next(&mut self) -> Option<Handed> {
        self.queue.pop_front()
    }
}
