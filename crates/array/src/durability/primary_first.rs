//! Primary copies first: while mirrors are in standby, some writes reach the primary copy of a chunk only,
//! and the secondary copies get them later (GRAID: Mao et al., MASCOTS 2008).
//!
//! The tier asks for it. It knows these sectors, reads them from primary copies only, and does not use the
//! secondary copies. The set keeps to the copies that a request names
//! ([`Copies`](crate::clients::Copies)) and repairs no primary copy from a secondary one meanwhile.
//! Before, it marks every region dirty. So a crash is followed by a resync of the secondary copies, and no
//! map has to be written while mirrors are in standby.

use super::Durability;
use crate::contract::TaskKind;
use crate::facts::Facts;
use crate::report::ArrayState;
use crate::units::Row;
use core::ops::Range;

impl Facts {
    /// Whether further copies may lack what first ones have, and no log has it.
    pub(crate) fn is_ahead(&self) -> bool {
        self.superblock.ahead && !self.log_counts
    }

    /// Whether only the primary copies of this row are current: its secondary copies are not in sync yet.
    pub(crate) fn first_alone(&self, row: Row) -> bool {
        self.is_ahead() && !self.in_sync(row)
    }

    /// Whether regions that the intent map calls clean are in sync although primary copies are written first.
    /// This holds after a clean stop, and not after a crash. With a log set the map has no say, since the log
    /// has all data.
    pub(crate) fn left_ahead(&self) -> bool {
        self.superblock.clean && self.superblock.alone
    }
}

impl Durability {
    /// Puts on record that first copies may have what further ones lack, or that they do not. Nothing is
    /// redirected before that is durable.
    pub fn set_ahead(&mut self, ahead: bool) {
        self.superblock.ahead = ahead;
        self.superblock.alone = false;
        self.log_counts = false;
        self.writer.note_partner();
    }

    /// Puts on record that the log lacks what first copies have from now on: a start that finds it again does
    /// not count it.
    pub fn set_alone(&mut self) {
        self.superblock.alone = self.superblock.ahead;
        self.writer.note_partner();
    }

    /// How many of users' sectors that is true of, at most: also of such as nobody ever wrote.
    pub fn sectors_in_doubt(&self) -> u64 {
        let owed = self.tasks.resync_owes().filter(|_| self.is_ahead());
        let rows: u64 = owed.into_iter().flatten().map(|(_, count)| count).sum();
        let row = self.layout.size_sectors() / self.layout.rows().max(1);
        rows.saturating_mul(row)
    }

    /// First copies are left ahead of the others at a clean stop, and no log has what they have: that is on
    /// record, and these sectors at most are in doubt, so that the next start brings their regions in step
    /// and no others.
    pub fn leave_ahead(&mut self, extents: impl Iterator<Item = Range<u64>>) {
        self.set_alone();
        extents.for_each(|sectors| self.foresee_writes(sectors, true));
        self.clean_by_and_by();
    }

    /// Copies are in step, and nobody lets first ones go ahead any more.
    pub(crate) fn settle_ahead(&mut self) {
        // While the log is looked at that counts: if it is refused, first copies still have all.
        let over = self.is_ahead()
            && !self.ties.primaries_first
            && self.serving()
            && !self.mode.read_only
            && !self.halted()
            && self.tasks.resync_owes().is_none();
        if over {
            self.set_ahead(false);
        }
    }

    /// Whether all copies are here: what first copies were given they have.
    pub fn copies_are_whole(&self) -> bool {
        self.state == ArrayState::Healthy && self.complete() && !self.halted()
    }

    /// Whether copies are being compared, which have to be the same then.
    pub fn compares_copies(&self) -> bool {
        let compares = |kind| matches!(kind, TaskKind::Check | TaskKind::Repair | TaskKind::Resync);
        self.tasks.list.iter().any(|task| compares(task.kind))
    }
}
