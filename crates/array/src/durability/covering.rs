//! Versions of the superblock that cover what was written lately: a member that leaves is owed little more
//! than what it misses ([`crate::metadata::recent`]).
//!
//! | state | cause                                          | next                           |
//! |-------|------------------------------------------------|--------------------------------|
//! | still | something is written                           | armed                          |
//! | armed | [`VERSION_EVERY`], and something is recent     | a flush, then a version; armed |
//! | armed | [`VERSION_EVERY`], nothing is, or a mirror rests | still                        |

use super::Durability;
use crate::facts::{NEVER, Waiter, Wake};
use crate::units::{Nanos, Row};

/// From a write to the version that covers it, and from that to the next one.
const VERSION_EVERY: Nanos = Nanos::from_secs(60);

impl Durability {
    /// Members may hold other bytes in a region than before.
    pub(super) fn region_written(&mut self, region: usize) {
        let begun = self.flusher.begun;
        self.below.intent_users[region].finished_at = begun;
        self.recent.note_write(begun);
        if self.wake[Wake::Version as usize] == NEVER && self.writes_covering_versions() {
            self.wake_after(Wake::Version, VERSION_EVERY);
        }
    }

    pub(crate) fn row_rewritten(&mut self, row: Row) {
        self.region_written(self.intent_region(row) as usize);
    }

    /// An extent was zeroed.
    pub(crate) fn extent_rewritten(&mut self, extent: u64) {
        let first = extent * self.superblock.extent_rows;
        let last = (first + self.superblock.extent_rows).min(self.layout.rows()) - 1;
        for region in self.intent_region(Row(first))..=self.intent_region(Row(last)) {
            self.region_written(region as usize);
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
