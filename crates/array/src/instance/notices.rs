//! What the floors give notice of, and what follows from it: failures and halts, ended flushes, durable
//! metadata.

use super::Instance;
use crate::contract::{Action, CommandError, Fact, Halt, IoError, Rival, TaskKind};
use crate::facts::{Notice, Waiter};
use crate::members::ops::Owner;
use crate::units::Member;
use alloc::vec::Vec;

impl Instance {
    /// Does what the floors below have given notice of, in the order of the notices. What one of them leads
    /// to comes before the next.
    #[inline]
    pub(crate) fn attend(&mut self) {
        if self.attended < self.notices.len() {
            self.attend_to_new();
        }
    }

    fn attend_to_new(&mut self) {
        let (first, end) = (self.attended, self.notices.len());
        self.attended = end;
        for index in first..end {
            match self.notices[index] {
                Notice::MetadataMoved => self.metadata_moved(),
                Notice::Halted(why) => self.come_to_a_halt(why),
                Notice::MemberOut(member) => self.abandon(member),
                Notice::Flushed(waiter, flush) => self.flushed(waiter, flush),
                Notice::FlushEnded => self.slices.wake_waiting(),
                Notice::CarriedOut { tag, added } => self.answer_when_durable(tag, added),
                Notice::OwnerAwaited => self.boot_again(),
                Notice::Owned => self.boot_owned(),
                Notice::OwnerUnclear => {
                    self.boot_fail(CommandError::Metadata);
                }
                Notice::UnreadOut { goes_on } => self.boot_recover_without(goes_on),
                Notice::OwnedBy(by) => {
                    let rival = Rival::Claims;
                    self.boot_fail(CommandError::Owned { by, rival });
                }
            }
            self.attend();
        }
        self.notices.truncate(first);
        self.attended = first;
    }

    /// Something durable has changed: what waited for it looks again.
    pub(crate) fn metadata_moved(&mut self) {
        self.owing &= self.intent.dirty();
        self.inits_settle();
        self.slices.wake_waiting();
        self.flush_resume();
        self.attend();
        self.flusher_settle();
        self.attend();
        self.requests_settle();
    }

    /// The flush has ended that this waiter asked for.
    fn flushed(&mut self, waiter: Waiter, flush: u64) {
        match waiter {
            Waiter::Request(request) => self.request_part_done(request, Ok(())),
            Waiter::Log | Waiter::Intent | Waiter::Join => {}
            Waiter::Checkpoint => self.checkpoint_flushed(flush),
            Waiter::Boot => self.boot_flushed(),
            Waiter::Stop => self.stop_flushed(),
        }
    }

    /// Nothing is written any more, as if the power had gone: the next start recovers what was being written,
    /// and until then that is in doubt where parity would have to tell it. Copies of one cell may differ,
    /// too, as they may after a crash: what was being written is not acknowledged.
    ///
    /// - No space is left on members that serve, and redundancy does not tolerate all of them, or the array
    ///   is starting. They have not failed ([`crate::safety`]).
    /// - A member has failed that is one too many. Its failure is not put on record: the members that are
    ///   current by their superblocks have all that was acknowledged, and the array starts again when they
    ///   are back.
    pub(crate) fn come_to_a_halt(&mut self, why: Halt) {
        if self.starts() {
            self.flusher.forget_waiters();
            let error = self.halt_error(why);
            self.boot_fail(error);
            return;
        }
        let mut known = self.resynced_before();
        for row in self.slices.rows_at_work() {
            known.remove(row, 1);
        }
        for slot in self.standing.slots_where(|one| one.incoming.is_some()) {
            self.drop_incoming(slot, |_| true);
        }
        self.tasks.list.retain(|task| task.kind != TaskKind::Resync);
        if known.len() < self.layout.rows() {
            self.start_task(TaskKind::Resync, None, known);
        }
        self.inits_settle();
        self.requests.release_held();
        self.reshape_halts();
        self.slices.wake_waiting();
        self.flush_resume();
        self.attend();
        self.fact(Fact::Halted(why));
    }

    /// Ends everything outstanding on a member as if it had answered with an error.
    pub(crate) fn abandon(&mut self, member: Member) {
        let mut given_up = Vec::new();
        self.ops.abandon(member, &mut given_up);
        for tag in given_up.iter().filter_map(|(tag, _)| *tag) {
            self.out.push(Action::Detach(tag));
        }
        for (_, owner) in given_up {
            self.orphaned(owner, member);
        }
    }

    /// An operation that was given up on: its owner hears that the member is gone.
    pub(crate) fn orphaned(&mut self, owner: Owner, member: Member) {
        match owner {
            Owner::ReadPart(part) => self.retry_read(part, None),
            other => self.owner_done(other, member, Err(IoError::Gone)),
        }
    }
}
