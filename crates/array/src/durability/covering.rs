//! Versions of the superblock that cover what was written lately: a member that leaves is owed little more
//! than what it misses ([`crate::metadata::recent`]).
//!
//! | state    | cause                                                            | next               |
//! |----------|------------------------------------------------------------------|--------------------|
//! | still    | something is written, and the run writes such versions           | armed              |
//! | still    | something is written, and it does not                            | still              |
//! | armed    | something is written                                             | armed, no later    |
//! | armed    | [`VERSION_EVERY`], and something is recent                       | flushing           |
//! | armed    | [`VERSION_EVERY`], nothing is recent                             | still              |
//! | armed    | [`VERSION_EVERY`], a mirror rests, halted, not serving           | still              |
//! | flushing | something is written: the version to come may not cover it       | flushing and armed |
//! | flushing | the flush ended, also by the failure of members                  | armed; a version   |
//! | flushing | the flush ended, halted or not serving by then                   | still, or as armed |
//!
//! Armed is the timer [`Wake::Version`], flushing a flush for [`Waiter::Version`]. In still, what is recent
//! is so until something is written again: it costs a longer rebuild, no data.

use super::Durability;
use crate::facts::{NEVER, Waiter, Wake};
use crate::units::{Nanos, Row};

/// From a write to the version that covers it, and from that to the next one.
const VERSION_EVERY: Nanos = Nanos::from_secs(60);

impl Durability {
    /// Members may hold other bytes in a region than before.
    pub(super) fn note_region_written(&mut self, region: usize) {
        let begun = self.flusher.begun;
        self.below.intent_users[region].finished_at = begun;
        self.recent.note_write(begun);
        if self.wake[Wake::Version as usize] == NEVER && self.writes_covering_versions() {
            self.wake_after(Wake::Version, VERSION_EVERY);
        }
    }

    /// A row was written without announcement.
    pub(crate) fn note_row_written(&mut self, row: Row) {
        self.note_region_written(self.intent_region(row) as usize);
    }

    /// An extent was zeroed.
    pub(crate) fn note_extent_written(&mut self, extent: u64) {
        let first = extent * self.superblock.extent_rows;
        let last = (first + self.superblock.extent_rows).min(self.layout.rows()) - 1;
        for region in self.intent_region(Row(first))..=self.intent_region(Row(last)) {
            self.note_region_written(region as usize);
        }
    }

    /// Only a daemon, which records itself as the owner, writes these versions. The laboratory does not.
    fn writes_covering_versions(&self) -> bool {
        let redundant = self.layout.tolerance() > 0;
        redundant && self.mode.owner.is_some() && !self.mode.read_only
    }

    /// No member is woken for it.
    pub(crate) fn version_timer(&mut self) {
        let all_up = self.devices.iter().all(|device| device.power.is_up());
        if self.serving() && !self.halted() && all_up && self.recent.is_any() {
            self.flush_for(Waiter::Version);
        }
    }

    /// The flush for it has ended.
    pub(crate) fn write_covering_version(&mut self) {
        if self.serving() && !self.halted() {
            self.writer.note_change();
            self.wake_after(Wake::Version, VERSION_EVERY);
        }
    }
}
