//! Operations of slices that fail: what the slice notes, and whether the member fails with them.

use super::made::Aim;
use super::rows::Rows;
use super::table::Kind;
use crate::clients::Copies;
use crate::contract::{Fact, FailCause, IoError, RequestError, ScrubMode, Verdict};
use crate::layout::RowMap;
use crate::members::ops::SliceOp;
use crate::units::{Member, Slot};

/// More read errors than this and a member is failed, if it can be spared (md's default is 20).
const READ_ERRORS_MAX: u32 = 20;

impl Rows {
    /// An operation of a slice has failed. If its member fails with it, the operation ends after all that
    /// this leads to.
    pub(crate) fn slice_op_failed(
        &mut self,
        id: u32,
        what: SliceOp,
        member: Member,
        error: IoError,
    ) {
        match what {
            SliceOp::Read { cell } => {
                let slice = &mut self.slices[id];
                slice.have = slice.have.without(cell);
                if error == IoError::Media {
                    slice.bad = slice.bad.with(cell);
                }
                let mode = ScrubMode::Check;
                let check = slice.kind == Kind::Scrub { mode };
                // A narrowed slice reads the same sectors again, block by block. And a read without suspects
                // reads one place many times, and repairs only what is theirs.
                let counted = !slice.narrowed && !matches!(slice.copies, Copies::Without(_));
                if error != IoError::Media || counted && !check {
                    self.read_failed(member, error);
                } else if counted {
                    self.check_failed(member);
                }
            }
            SliceOp::Write { cell } => self.write_failed(id, cell, member, error),
            SliceOp::Log { .. } => self.log_failed(id, member, error),
            _ => {}
        }
    }

    /// A member could not be read. Media errors are counted, and the slice repairs them. Any other error
    /// fails the member.
    pub(crate) fn read_failed(&mut self, member: Member, error: IoError) {
        if error != IoError::Media {
            let cause = if error == IoError::Gone {
                FailCause::Gone
            } else {
                FailCause::ReadErrors
            };
            self.fail_member(member, cause);
            return;
        }
        let Some(entry) = self.devices[member.0 as usize].entry else {
            return;
        };
        let count = &mut self.superblock.members[entry as usize].read_errors;
        *count = count.saturating_add(1);
        if *count > READ_ERRORS_MAX && !self.indispensable(member) {
            self.fail_member(member, FailCause::ReadErrors);
        }
    }

    /// A check cannot read a sector. It repairs nothing, so each check that runs would count the same sector
    /// again: each has a count of its own.
    fn check_failed(&mut self, member: Member) {
        let errors = &mut self.devices[member.0 as usize].check_errors;
        *errors += 1;
        if *errors > READ_ERRORS_MAX && !self.indispensable(member) {
            self.fail_member(member, FailCause::ReadErrors);
        }
    }

    fn write_failed(&mut self, id: u32, cell: u8, member: Member, error: IoError) {
        let slice = &self.slices[id];
        let (kind, row) = (slice.kind, slice.map.row);
        let serves = |slot| {
            let home = self.standing_at(slot, row).home;
            home.is_none_or(|serving| serving.member == member)
        };
        let journals = kind == Kind::Reshape(Aim::Journal);
        if !journals && !self.slots_written(id, cell).any(serves) {
            // It was being filled: the member that serves has the bytes as well.
            return self.fail_member(member, FailCause::WriteError(error));
        }
        if self.layout.tolerance() > 0 {
            return self.fail_member(member, FailCause::WriteError(error));
        }
        let reported = match error {
            IoError::NoSpace => {
                self.note_full(member);
                RequestError::NoSpace
            }
            _ => RequestError::ReadOnly,
        };
        self.slices[id].error.get_or_insert(reported);
        match kind {
            _ if error == IoError::Gone => self.fail_member(member, FailCause::WriteError(error)),
            Kind::Move | Kind::Reshape(_) => {
                let why = error;
                self.fact(Fact::MoveFailed { member, why });
            }
            _ => {}
        }
    }

    /// The slots that a cell of a slice is written to: what moves, where it was or where it will be.
    fn slots_written(&self, id: u32, cell: u8) -> impl Iterator<Item = Slot> + use<> {
        let slice = &self.slices[id];
        let slot = |map: &RowMap| map.cells[usize::from(cell)].slot;
        let moved = (slice.kind == Kind::Move).then(|| slot(&self.moving_cells(&slice.map).1));
        [Some(slot(&slice.map)), moved].into_iter().flatten()
    }

    fn log_failed(&mut self, id: u32, member: Member, error: IoError) {
        if let Kind::Replay { .. } = self.slices[id].kind {
            self.slices[id].verdicts.note(0, Verdict::Differ);
            return;
        }
        self.fail_member(member, FailCause::WriteError(error));
    }
}
