//! The intent map: which regions may differ between members, and which a missing member lacks.
//!
//! Two bits a region. *Dirty* is set, durably, before a write that a crash could leave different on different
//! members (mirrors, and parity without a log), and cleared a while after the last such write was flushed.
//! *Owed* is set before a write that a missing member misses, so that it can come back without a full
//! rebuild, and before a scrub repairs, since a member may leave before that is flushed; it is cleared when
//! nobody is missing any more and all is flushed. Kept apart, since after a crash what is dirty is in doubt
//! and what is owed is not.
//!
//! Where rows are written whole (`WriteHole::WholeRows`) *dirty* does not call codes in doubt after a
//! crash: it only tells what a member that leaves may lack.
//!
//! An array that guards against nothing (`WriteHole::None`) keeps only what is owed: every region is in
//! doubt.

use super::Metadata;
use crate::contract::Bug;
use crate::facts::Wake;
use crate::units::{Nanos, Row};

/// How long a region stays dirty after its last write (md's default).
pub(crate) const LAZY: Nanos = Nanos::from_secs(5);

/// What has been written in an intent region: by clients, and by tasks that change what members hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct IntentUsers {
    /// In flight, or foreseen.
    pub(crate) writes: u32,
    /// How many flushes had begun when the last write ended.
    pub(crate) finished_at: u64,
}

impl Metadata {
    /// Whether members may differ in a region after a crash, or after one of them left.
    pub(crate) fn in_doubt(&self, region: u64) -> bool {
        self.unguarded() || self.intent.get(self.dirty_bit(region))
    }

    /// Whether a device that has one of the last two versions of the superblock may lack what was written
    /// in a region ([`super::recent`]).
    pub(crate) fn written_lately(&self, region: u64) -> bool {
        let users = self.intent_users[region as usize];
        let recent = self.recent.may_lack(users.finished_at);
        users.writes > 0 || recent && !self.planted(Bug::CopyNotOwed)
    }

    /// Announces a write to a row; true once every announcement that it needs is durable.
    pub(crate) fn intent_ready(&mut self, row: Row) -> bool {
        if self.layout.tolerance() == 0 {
            return true;
        }
        let region = self.intent_region(row);
        let mut ready = true;
        if !self.logged() && !self.unguarded() {
            ready &= self.announce(self.dirty_bit(region));
        }
        if !self.complete() {
            ready &= self.announce(self.owed_bit(region));
        }
        ready
    }

    /// Calls every region dirty until further notice: true once that is durable.
    pub(crate) fn dirty_all(&mut self) -> bool {
        let needed = self.layout.tolerance() > 0 && !self.logged() && !self.unguarded();
        self.all_dirty = true;
        let mut durable = true;
        for region in (0..self.regions()).filter(|_| needed) {
            durable &= self.announce(self.dirty_bit(region));
        }
        durable
    }

    /// The notice: regions without writes become clean with time.
    pub fn clean_by_and_by(&mut self) {
        if core::mem::take(&mut self.all_dirty) && self.intent.any() {
            self.wake_after(Wake::Lazy, LAZY);
        }
    }

    fn announce(&mut self, bit: u64) -> bool {
        self.intent.put(bit, true);
        self.intent.is_durable(bit) || self.planted(Bug::IntentNotDurable)
    }

    /// A missing member lacks what is about to be written here; true once that is durable.
    pub(crate) fn owe_rows(&mut self, first: Row, last: Row) -> bool {
        let mut durable = true;
        for region in self.intent_region(first)..=self.intent_region(last) {
            durable &= self.announce(self.owed_bit(region));
        }
        durable
    }

    /// A missing member may lack what is in a region.
    pub(crate) fn owe_region(&mut self, region: u64) {
        let bit = self.owed_bit(region);
        self.intent.put(bit, true);
    }

    pub(crate) fn intent_acquire(&mut self, row: Row) {
        let region = self.intent_region(row) as usize;
        self.intent_users[region].writes += 1;
    }

    /// A missing member lacks what a resynchronisation writes from now on, and what it wrote there that no
    /// checkpoint's flush has covered.
    pub(crate) fn owe_task_rows(&mut self) {
        for (first, count) in self.tasks.not_durable() {
            self.owe_rows(Row(first), Row(first + count - 1));
        }
    }

    /// A flush ended: regions without writers are the same on all current members; with nobody missing,
    /// nothing is owed there.
    pub(crate) fn intent_flushed(&mut self, ended: u64) {
        self.recent.flush_ended(ended);
        if self.starts() || !self.intent.any() || self.all_dirty {
            return;
        }
        let in_step = self.tasks.resync_owes().is_none();
        let (complete, mut left) = (self.complete(), false);
        for region in 0..self.regions() {
            let users = self.intent_users[region as usize];
            let quiet = users.writes == 0 && users.finished_at < ended;
            let over = [
                (self.dirty_bit(region), in_step),
                (self.owed_bit(region), complete),
            ];
            for (bit, over) in over {
                if over && self.intent.get(bit) {
                    if quiet {
                        self.intent.put(bit, false);
                    }
                    left |= !quiet;
                }
            }
        }
        if left {
            self.wake_after(Wake::Lazy, LAZY);
        }
    }
}
