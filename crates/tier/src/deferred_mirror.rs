//! GRAID and ERAID: first copies at home go ahead of the further ones, which sleep; a log elsewhere has what those lack, or nobody.
//!
//! | state     | cause                                                            | next      |
//! |-----------|------------------------------------------------------------------|-----------|
//! | believed  | the log fails, or there is none                                  | alone     |
//! | believed  | a member of home fails                                           | doubted   |
//! | doubted   | all copies are here and in step, and the log holds nothing       | believed  |
//!
//! While first copies are believed, a write goes to them and into the log, is read of them, and goes from them to the further
//! copies: so a log that fails costs nothing, since they go on with what it had. While they are doubted the log counts alone, as
//! after every start: so a first copy that fails costs nothing, since log and mirror have all. Then no further write goes into the
//! log but over what lies there, and that goes home at once. So it does before copies are compared, and as long as they are.
//! Until all is home every region stays in doubt: a crash takes what was not flushed of the log, and not of first copies.
//!
//! First copies that are alone are doubted no more: of what they alone had, exactly what lay on a member that is lost is lost with it.
//! A log that failed gets nothing more before the next start, or before an attempt to go on if it had no space ([`super::revive`]). That
//! it lacks something is on record before a user is answered so.
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
    /// What goes into records, and is not announced yet, on its way to first copies.
    pub(crate) besides: VecDeque<(u64, Request, Copies)>,
    /// Something did not reach first copies though they were believed.
    pub(crate) beside_failed: bool,
    /// What was told, and which superblock home had, when first copies were last looked through.
    pub(crate) firsts_seen: Option<(u64, u64)>,
    /// Commands that wait until the log holds nothing.
    commands_waiting: Vec<(CommandTag, Command)>,
}

floor!(DeferredMirror over Nvram { besides, beside_failed, firsts_seen, commands_waiting });

impl DeferredMirror {
    /// First copies are to get what goes into a record, or all copies.
    pub(crate) fn write_beside(&mut self, sequence: u64, request: Request, all: bool) {
        let copies = if all { Copies::All } else { Copies::First };
        self.besides.push_back((sequence, request, copies));
    }

    pub(crate) fn primaries_written(&mut self, sequence: u64, result: Result<(), RequestError>) {
        self.beside_failed |= result.is_err();
        self.overlay_mut().primaries_written(sequence, result);
    }

    pub(crate) fn next_beside(&mut self) -> bool {
        let Some((sequence, request, copies)) = self.besides.front().copied() else {
            return false;
        };
        let (lba, sectors) = (request.offset / SECTOR_BYTES, request.bytes / SECTOR_BYTES);
        let needless = copies == Copies::All || self.is_logless();
        let announced = needless || self.is_announced(lba, sectors);
        if !announced && !self.home().halted() {
            return false;
        }
        self.besides.pop_front();
        if announced {
            // What is lost is regained by all copies together, and where one is missing none goes ahead.
            let home = self.home();
            let copies = match home.complete() && home.lost_in(lba, sectors).is_none() {
                true => copies,
                false => Copies::All,
            };
            let owner = Owner::Beside(sequence);
            self.ask_copies(Site::Home, owner, request, copies);
        } else {
            let error = Err(self.home().refusal(RequestOp::Write));
            self.primaries_written(sequence, error);
        }
        true
    }

    /// Whether a write goes into the log, and to first copies.
    pub(crate) fn goes_ahead(&self) -> bool {
        let overlay = self.overlay();
        let home = self.home();
        let on_record = home.records_primary_first() && home.partner_durable();
        overlay.trusts() && on_record && !self.wants_log_empty()
    }

    /// Begins to believe first copies, or ceases to; false if nothing changes.
    pub(crate) fn settle_trust(&mut self) -> bool {
        let Some(overlay) = &self.overlay else {
            return false;
        };
        // A set that is told to stop is not healthy any more, and lacks nothing for it.
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
            && overlay.is_void();
        let (alone, void) = (overlay.is_alone(), overlay.is_void());
        let trusts = match trusted {
            true => whole && !self.beside_failed || alone,
            false => begins && self.all_called_dirty() && self.is_on_record(),
        };
        if void && !trusted && !begins {
            // Copies differ no more.
            self.sets[Site::Home].clean_by_and_by();
        }
        if trusts == trusted {
            return self.settle_lapse() || self.release_held();
        }
        self.beside_failed = false;
        if !trusts {
            self.at_home(|core| {
                core.set_ahead(false);
                // What was read of them is what the log has, but for what was being written.
                core.cache_forgets();
            });
        }
        let overlay = self.overlay_mut();
        overlay.trust(trusts);
        true
    }

    /// Records are told again when a start without the log would not believe first copies any more; in an array that puts nothing more
    /// on record they are refused.
    fn settle_lapse(&mut self) -> bool {
        let halted = self.home().halted();
        if self.settle_alone() {
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

    /// Whether all that first copies have and nobody else is on the map of an array that stops.
    pub(crate) fn knows_what_is_ahead(&self) -> bool {
        let trusted = |one: &Overlay| one.is_logless() && one.trusts() && !one.is_destaging();
        let home = self.home();
        let on_record = home.records_primary_first() && home.partner_durable();
        let in_step = home.copies_are_whole() && !home.owes_resync();
        self.overlay.as_ref().is_some_and(trusted) && on_record && in_step
    }

    pub(crate) fn leave_ahead(&mut self) {
        let overlay = self.overlay();
        let extents = overlay.map().extents_from(0);
        let extents: Vec<Range<u64>> = extents.map(|one| one.home..one.end()).collect();
        self.at_home(|core| core.leave_ahead(extents.into_iter()));
    }

    /// Puts on record what first copies alone are to be believed for; false if that is there.
    fn settle_alone(&mut self) -> bool {
        let overlay = self.overlay();
        let (alone, logless) = (overlay.is_alone(), overlay.is_logless());
        let (void, home) = (overlay.is_void() && !overlay.is_destaging(), self.home());
        let (ahead, whole) = (home.records_primary_first(), home.copies_are_whole());
        if !alone || home.halted() {
            return false;
        }
        if !logless && ahead && !home.records_primary_only() && !void {
            self.at_home(|home| home.set_alone());
            return true;
        }
        // With a first copy gone what further ones have is all there is, and nothing goes ahead of it.
        if ahead && void && !whole {
            self.at_home(|core| core.set_ahead(false));
            return true;
        }
        if !ahead && logless && whole {
            self.at_home(|core| core.set_ahead(true));
            return true;
        }
        false
    }

    /// Whether a crash would find every region in doubt: what reached first copies may not have reached the log.
    fn all_called_dirty(&mut self) -> bool {
        let home = &mut self.sets[Site::Home];
        let Noted { durable, in_turn } = home.announce_all_dirty();
        self.delivered |= in_turn;
        durable
    }

    /// Whether a start without the log would believe first copies.
    fn is_on_record(&mut self) -> bool {
        let home = self.home();
        if !home.records_primary_first() || home.records_primary_only() {
            self.at_home(|core| core.set_ahead(true));
        }
        self.home().partner_durable()
    }

    /// Whether there was a log, and nothing is missed with it: first copies are believed, or home has everything.
    pub(crate) fn goes_on_without_log(&self) -> bool {
        let Some(overlay) = &self.overlay else {
            return false;
        };
        let failed = overlay.is_broken() && !overlay.is_logless();
        let ahead = self.surrogate.redirect.goes_ahead();
        ahead && failed && (overlay.is_alone() || overlay.is_void())
    }

    /// What first copies alone had, and had on members that are gone, is lost: before anything could be rebuilt there from older
    /// copies.
    pub(crate) fn lose_firsts(&mut self) {
        if self.home().complete() {
            return;
        }
        let Some(overlay) = self.overlay.as_mut().filter(|one| one.is_alone()) else {
            return;
        };
        overlay.doubt_records();
        let seen = (overlay.acknowledged(), self.home().sequence());
        if self.firsts_seen.replace(seen) == Some(seen) {
            return;
        }
        for range in self.firsts_gone() {
            self.lose_for_good(range.start, range.end - range.start);
            self.overlay_mut().forget(range);
        }
    }

    /// What lies ahead on first copies whose members are gone.
    fn firsts_gone(&self) -> Vec<Range<u64>> {
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

    /// Whether what lies in the log is to go home for good.
    pub(crate) fn wants_log_empty(&self) -> bool {
        let overlay = self.overlay();
        let ahead = self.surrogate.redirect.goes_ahead();
        let compares = !self.commands_waiting.is_empty() || self.home().compares_copies();
        let fails = overlay.is_broken() && !overlay.is_logless() || !self.home().copies_are_whole();
        self.is_leaving() || ahead && (!overlay.trusts() || fails || compares)
    }

    /// An operator takes the log disk out: it may go while first copies have all that it has, as it may fail. False if it is not about
    /// that, or the log's own redundancy bears it.
    pub(crate) fn fails_log(&mut self, tag: CommandTag, command: &Command) -> bool {
        let Command::Fail(member) = *command else {
            return false;
        };
        let (site, member) = self.route.set_of(member);
        let ahead = self.stage == Stage::Serving && self.surrogate.redirect.goes_ahead();
        if site != Site::Log || !ahead || !self.log().indispensable(member) {
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

    /// A command that compares copies waits until they are the same; false if it need not.
    pub(crate) fn hold(&mut self, tag: CommandTag, command: &Command) -> bool {
        let ahead = self.stage == Stage::Serving && self.surrogate.redirect.goes_ahead();
        let holds = ahead && matches!(command, Command::Scrub(_));
        if holds {
            self.commands_waiting.push((tag, *command));
        }
        holds
    }

    /// They are the same, or will not be; false if nothing waited for it.
    fn release_held(&mut self) -> bool {
        let overlay = self.overlay();
        let over = overlay.is_void() || !overlay.trusts() || self.home().halted();
        if self.commands_waiting.is_empty() || !over {
            return false;
        }
        for (tag, command) in core::mem::take(&mut self.commands_waiting) {
            self.tell(Site::Home, Event::Command(tag, command));
        }
        true
    }

    /// The array stops: what waits is not begun any more.
    pub(crate) fn refuse_held(&mut self) {
        for (tag, _) in core::mem::take(&mut self.commands_waiting) {
            self.answer_busy(tag, "the array is stopping");
        }
    }
}
