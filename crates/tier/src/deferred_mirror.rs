//! GRAID and ERAID: a write reaches the primary copies in the main set first. The secondary copies get it
//! later, so their members may be in standby. A log set has a second copy (GRAID), or no member has (ERAID).
//!
//! | state     | cause                                                            | next         |
//! |-----------|------------------------------------------------------------------|--------------|
//! | trusted   | the log fails, or there is none                                  | primary only |
//! | trusted   | a member of the main set fails                                   | untrusted    |
//! | untrusted | all copies are present and in sync, and the log is empty         | trusted      |
//!
//! While the primary copies are trusted, a write goes to them and into the log. Reads use the primary copies,
//! as does the destage to the others. So a log that fails costs nothing: the primary copies have its data.
//!
//! While they are untrusted, only the log is valid, as after every start. So a primary copy that fails costs
//! nothing: the log and the mirror have all data. Then a new write goes into the log only if it overlaps data
//! there, and the log is destaged at once. The same is done before copies are compared, and during the
//! comparison. Until the destage is complete every region stays dirty: a crash takes unflushed data from the
//! log, and not from the primary copies.
//!
//! In the state *primary only* the primary copies stay trusted. If a member is lost, exactly the sectors are
//! lost that only this member had. A log that failed gets no more writes before the next start, or before an
//! attempt to continue if it had no space ([`super::revive`]). That the log lacks a write is recorded before
//! the write is acknowledged.
//!
//! Owns the writes to primary copies that wait, and the commands that wait until all copies are the same.

use super::children::Owner;
use super::facts::{Stage, Stopping};
use super::nvram::Nvram;
use crate::overlay::{Overlay, Site};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;
use restripe_array::parts::{Copies, Noted};
use restripe_array::{
    Command, CommandError, CommandTag, Event, FailCause, Request, RequestError, RequestOp,
    SECTOR_BYTES,
};

pub(crate) struct DeferredMirror {
    pub(crate) below: Nvram,
    /// Writes to primary copies, of data that goes into records, whose regions are not marked yet.
    pub(crate) primary_writes: VecDeque<(u64, Request, Copies)>,
    /// A write to the primary copies failed while they were trusted.
    pub(crate) primary_write_failed: bool,
    /// The acknowledged sequence and the superblock version of the main set at the last check of the primary
    /// copies.
    pub(crate) primaries_checked: Option<(u64, u64)>,
    /// Commands that wait until the log is empty.
    commands_waiting: Vec<(CommandTag, Command)>,
}

floor!(DeferredMirror over Nvram { primary_writes, primary_write_failed, primaries_checked, commands_waiting });

impl DeferredMirror {
    /// Queues a write of a record's data to the primary copies, or to all copies.
    pub(crate) fn queue_primary_write(&mut self, sequence: u64, request: Request, all: bool) {
        let copies = if all { Copies::All } else { Copies::First };
        self.primary_writes.push_back((sequence, request, copies));
    }

    pub(crate) fn primaries_written(&mut self, sequence: u64, result: Result<(), RequestError>) {
        self.primary_write_failed |= result.is_err();
        self.overlay_mut().primaries_written(sequence, result);
    }

    pub(crate) fn next_primary_write(&mut self) -> bool {
        let Some((sequence, request, copies)) = self.primary_writes.front().copied() else {
            return false;
        };
        let (lba, sectors) = (request.offset / SECTOR_BYTES, request.bytes / SECTOR_BYTES);
        let needless = copies == Copies::All || self.is_logless();
        let marked = needless || self.is_marked(lba, sectors);
        if !marked && !self.home().halted() {
            return false;
        }
        self.primary_writes.pop_front();
        if marked {
            // A lost sector is rewritten on all copies together. With a member missing, no copy is first.
            let home = self.home();
            let copies = match home.complete() && home.lost_in(lba, sectors).is_none() {
                true => copies,
                false => Copies::All,
            };
            let owner = Owner::Primaries(sequence);
            self.ask_copies(Site::Home, owner, request, copies);
        } else {
            let error = Err(self.home().refusal(RequestOp::Write));
            self.primaries_written(sequence, error);
        }
        true
    }

    /// Whether a write goes into the log, and to the primary copies.
    pub(crate) fn defers_writes(&self) -> bool {
        let overlay = self.overlay();
        let home = self.home();
        let on_record = home.records_primary_first() && home.partner_durable();
        overlay.trusts() && on_record && !self.wants_log_empty()
    }

    /// Starts or stops to trust the primary copies. Returns false if nothing changes.
    pub(crate) fn settle_trust(&mut self) -> bool {
        let Some(overlay) = &self.overlay else {
            return false;
        };
        // A set that is stopping is no longer healthy, and needs no more action.
        let over = matches!(
            self.stage,
            Stage::Stopping(Stopping::Set(_)) | Stage::Stopped
        );
        if !self.surrogate.redirect.goes_ahead() || over {
            return false;
        }
        let (whole, trusted) = (self.home().copies_are_whole(), overlay.trusts());
        let begins = whole
            && self.stage == Stage::Serving
            && !self.is_leaving()
            && (!overlay.is_broken() || overlay.is_logless())
            && !overlay.is_destaging()
            && !self.home().compares_copies()
            && overlay.is_drained();
        let (primary_only, drained) = (overlay.is_primary_only(), overlay.is_drained());
        let trusts = match trusted {
            true => whole && !self.primary_write_failed || primary_only,
            false => begins && self.all_called_dirty() && self.is_on_record(),
        };
        if drained && !trusted && !begins {
            // The copies do not differ any more.
            self.sets[Site::Home].clean_by_and_by();
        }
        if trusts == trusted {
            return self.settle_lapse() || self.release_held();
        }
        self.primary_write_failed = false;
        if !trusts {
            self.at_home(|core| {
                core.set_ahead(false);
                // Blocks read from the primary copies equal the log's, except those that were being written.
                core.cache_forgets();
            });
        }
        let overlay = self.overlay_mut();
        overlay.trust(trusts);
        true
    }

    /// Acknowledges records again once a start without the log would not trust the primary copies any more.
    /// If the array records nothing more, the records are refused.
    fn settle_lapse(&mut self) -> bool {
        let halted = self.home().halted();
        if self.settle_primary_only() {
            return true;
        }
        let durable = !halted && self.home().partner_durable();
        let overlay = self.overlay_mut();
        if !overlay.is_lapsing() || !(halted || durable) {
            return false;
        }
        if !durable {
            overlay.break_log();
        }
        overlay.lapsed();
        true
    }

    /// Whether the map of a stopping array has all data that only the primary copies have.
    pub(crate) fn knows_deferred(&self) -> bool {
        let trusted = |one: &Overlay| one.is_logless() && one.trusts() && !one.is_destaging();
        let home = self.home();
        let on_record = home.records_primary_first() && home.partner_durable();
        let in_sync = home.copies_are_whole() && !home.owes_resync();
        self.overlay.as_ref().is_some_and(trusted) && on_record && in_sync
    }

    pub(crate) fn record_deferred(&mut self) {
        let overlay = self.overlay();
        let extents = overlay.map().extents_from(0);
        let extents: Vec<Range<u64>> = extents.map(|one| one.home..one.end()).collect();
        self.at_home(|core| core.leave_ahead(extents.into_iter()));
    }

    /// Records that only the primary copies are to be trusted. Returns false if that is recorded.
    fn settle_primary_only(&mut self) -> bool {
        let overlay = self.overlay();
        let (primary_only, logless) = (overlay.is_primary_only(), overlay.is_logless());
        let (drained, home) = (overlay.is_drained() && !overlay.is_destaging(), self.home());
        let (primary_first, whole) = (home.records_primary_first(), home.copies_are_whole());
        if !primary_only || home.halted() {
            return false;
        }
        if !logless && primary_first && !home.records_primary_only() && !drained {
            self.at_home(|home| home.set_alone());
            return true;
        }
        // With a primary copy lost, only secondary copies are left, and no write may go to primaries first.
        if primary_first && drained && !whole {
            self.at_home(|core| core.set_ahead(false));
            return true;
        }
        if !primary_first && logless && whole {
            self.at_home(|core| core.set_ahead(true));
            return true;
        }
        false
    }

    /// Whether a crash would find every region dirty: the log may lack data that reached the primary copies.
    fn all_called_dirty(&mut self) -> bool {
        let home = &mut self.sets[Site::Home];
        let Noted { durable, in_turn } = home.announce_all_dirty();
        self.delivered |= in_turn;
        durable
    }

    /// Whether a start without the log would trust the primary copies.
    fn is_on_record(&mut self) -> bool {
        let home = self.home();
        if !home.records_primary_first() || home.records_primary_only() {
            self.at_home(|core| core.set_ahead(true));
        }
        self.home().partner_durable()
    }

    /// Whether a log failed that is not missed: the primary copies are trusted, or the main set has all data.
    pub(crate) fn goes_on_without_log(&self) -> bool {
        let Some(overlay) = &self.overlay else {
            return false;
        };
        let failed = overlay.is_broken() && !overlay.is_logless();
        let defers = self.surrogate.redirect.goes_ahead();
        defers && failed && (overlay.is_primary_only() || overlay.is_drained())
    }

    /// Declares lost the data of primary copies on lost members, before older copies could be rebuilt there.
    pub(crate) fn lose_primaries(&mut self) {
        if self.home().complete() {
            return;
        }
        let Some(overlay) = self.overlay.as_mut().filter(|one| one.is_primary_only()) else {
            return;
        };
        overlay.doubt_records();
        let seen = (overlay.acknowledged(), self.home().sequence());
        if self.primaries_checked.replace(seen) == Some(seen) {
            return;
        }
        for range in self.lost_primaries() {
            self.lose_everywhere(range.start, range.end - range.start);
            self.overlay_mut().forget(range);
        }
    }

    /// The data that only primary copies on lost members have.
    fn lost_primaries(&self) -> Vec<Range<u64>> {
        let overlay = self.overlay();
        let chunk = self.home().layout().chunk_sectors();
        let mut gone = Vec::new();
        for extent in overlay.map().extents_from(0) {
            let mut from = extent.home;
            while from < extent.end() {
                let end = extent.end().min((from / chunk + 1) * chunk);
                if !self.home().has_first(from) {
                    gone.push(from..end);
                }
                from = end;
            }
        }
        gone
    }

    /// Whether the log is to be destaged permanently.
    pub(crate) fn wants_log_empty(&self) -> bool {
        let overlay = self.overlay();
        let defers = self.surrogate.redirect.goes_ahead();
        let compares = !self.commands_waiting.is_empty() || self.home().compares_copies();
        let fails = overlay.is_broken() && !overlay.is_logless() || !self.home().copies_are_whole();
        self.is_leaving() || defers && (!overlay.trusts() || fails || compares)
    }

    /// A command fails the log disk. It is allowed while the primary copies have all of the log's data.
    /// Returns false for any other command, or if the log set's own redundancy tolerates it.
    pub(crate) fn fails_log(&mut self, tag: CommandTag, command: &Command) -> bool {
        let Command::Fail(member) = *command else {
            return false;
        };
        let (site, member) = self.route.set_of(member);
        let defers = self.stage == Stage::Serving && self.surrogate.redirect.goes_ahead();
        if site != Site::Log || !defers || !self.log().indispensable(member) {
            return false;
        }
        let overlay = self.overlay();
        let trusted = overlay.trusts() && self.home().copies_are_whole();
        let result = match trusted || self.is_gone() {
            true => {
                self.at(Site::Log, |log| log.fail_member(member, FailCause::Command));
                Ok(())
            }
            false => Err(CommandError::Busy(
                "the log is the only valid copy until it is destaged (`restripe surrogate destage`)",
            )),
        };
        self.answer_command(tag, result);
        true
    }

    /// Holds a command that compares copies until they are the same. Returns false if it need not wait.
    pub(crate) fn hold(&mut self, tag: CommandTag, command: &Command) -> bool {
        let defers = self.stage == Stage::Serving && self.surrogate.redirect.goes_ahead();
        let holds = defers && matches!(command, Command::Scrub(_));
        if holds {
            self.commands_waiting.push((tag, *command));
        }
        holds
    }

    /// Releases the commands once the copies are the same, or will not be. Returns false if none waits.
    fn release_held(&mut self) -> bool {
        let overlay = self.overlay();
        let over = overlay.is_drained() || !overlay.trusts() || self.home().halted();
        if self.commands_waiting.is_empty() || !over {
            return false;
        }
        for (tag, command) in core::mem::take(&mut self.commands_waiting) {
            self.step_set(Site::Home, Event::Command(tag, command));
        }
        true
    }

    /// The array stops: waiting commands are refused.
    pub(crate) fn refuse_held(&mut self) {
        for (tag, _) in core::mem::take(&mut self.commands_waiting) {
            self.answer_busy(tag, "the array is stopping");
        }
    }
}
