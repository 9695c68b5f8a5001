//! The write-intent map: which regions may differ between members.
//!
//! Set, durably, before a write that could leave members different: always for mirrors and for `bitmap` arrays, and
//! for every redundant array while a member is missing, so that it can come back without a full rebuild. Cleared
//! lazily, a while after the last write was flushed, and never while a member is missing.

use crate::core::{Core, NEVER, Wake};
use crate::flush::Waiter;
use crate::meta::superblock::WriteHole;
use crate::units::{Nanos, Row};
use alloc::vec::Vec;

/// How long a region stays marked after its last write (md's default).
const LAZY: Nanos = Nanos::from_secs(5);

/// The writes that an intent region has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct IntentUsers {
    /// In flight.
    writes: u16,
    /// How many flushes had begun when the last one ended.
    finished_at: u64,
}

impl Core {
    /// Whether a write to this row must be announced in the intent map.
    fn intent_needed(&self) -> bool {
        if self.layout.tolerance() == 0 {
            return false;
        }
        let announced = !self.layout.parity() || self.superblock.write_hole == WriteHole::Bitmap;
        announced || !self.complete()
    }

    /// Announces a write; true once the announcement is durable. Every `true` is paired with [`Core::intent_release`].
    pub(crate) fn intent_ready(&mut self, row: Row) -> bool {
        if !self.intent_needed() {
            return true;
        }
        let region = self.intent_region(row);
        self.intent.put(region, true);
        self.intent.is_durable(region)
    }

    pub(crate) fn intent_acquire(&mut self, row: Row) {
        let region = self.intent_region(row) as usize;
        self.intent_users[region].writes += 1;
    }

    pub(crate) fn intent_release(&mut self, row: Row) {
        let region = self.intent_region(row) as usize;
        let users = &mut self.intent_users[region];
        users.writes -= 1;
        users.finished_at = self.flusher.begun;
        if self.intent.get(region as u64) && self.wake[Wake::Lazy as usize] == NEVER {
            self.wake_at(Wake::Lazy, self.now.after(LAZY));
        }
    }

    /// A member is gone from now on: every row whose last writes were not flushed counts as different.
    pub(crate) fn mark_unflushed_rows(&mut self) {
        if self.layout.tolerance() == 0 {
            return;
        }
        let mut rows = Vec::new();
        self.logs.live_rows(&mut rows);
        for row in rows {
            let region = self.intent_region(row);
            self.intent.put(region, true);
        }
        for region in 0..self.intent_users.len() {
            if self.intent_users[region].writes > 0 {
                self.intent.put(region as u64, true);
            }
        }
    }

    pub(crate) fn lazy_timer(&mut self) {
        if self.complete() && self.intent.any() {
            self.flush_for(Waiter::Intent);
        }
    }

    /// A flush ended: regions without writers are the same on all members, if all are here and in step.
    pub(crate) fn intent_flushed(&mut self, ended: u64) {
        if !self.complete() || self.tasks.resync_owes().is_some() || !self.intent.any() {
            return;
        }
        let mut left = false;
        for region in 0..self.intent.len() {
            if self.intent.get(region) {
                let users = self.intent_users[region as usize];
                if users.writes == 0 && users.finished_at < ended {
                    self.intent.put(region, false);
                } else {
                    left = true;
                }
            }
        }
        if left {
            self.wake_at(Wake::Lazy, self.now.after(LAZY));
        }
    }
}
