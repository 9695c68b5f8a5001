//! The stop of a tier. Its requests end, the log is flushed if that is needed, the sets get a session number
//! ([`super::start`]), and the sets stop, the main set first.
//!
//! Owns the stop in progress.

use super::children::{Owner, child_command, flush};
use super::facts::{Stage, Stopping};
use super::start::Start;
use crate::overlay::{Overlay, SealCause, Site};
use restripe_array::meta::superblock::BufferMark;
use restripe_array::parts::Bug;
use restripe_array::{Action, Command, CommandError, CommandTag, Event, Fact, RequestError};

/// A stop in progress.
struct Stop {
    /// The tag of the command.
    tag: CommandTag,
    /// The result of the sets that have stopped by now.
    result: Result<(), CommandError>,
}

pub(crate) struct Stops {
    pub(crate) below: Start,
    stop: Option<Stop>,
}

floor!(Stops over Start { stop });

impl Stops {
    pub(crate) fn begin_stop(&mut self, tag: CommandTag) {
        if !matches!(self.stage, Stage::Serving | Stage::MainOnly) {
            return self.answer_busy(tag, "the array is not serving");
        }
        self.stop = Some(Stop {
            tag,
            result: Ok(()),
        });
        self.stage = Stage::Stopping(Stopping::Draining);
        self.refuse_held();
        self.cancel_removal("the array is stopping");
        if let Some(overlay) = &mut self.overlay {
            overlay.rest();
        }
    }

    /// Continues a stop: the main set first, since after its stop the log may not be needed any more.
    pub(crate) fn advance_stop(&mut self) -> bool {
        match self.stage {
            Stage::Stopping(Stopping::Draining) => self.drain(),
            Stage::Stopping(Stopping::Numbering { session, last }) => self.number_on(session, last),
            _ => false,
        }
    }

    pub(crate) fn drain(&mut self) -> bool {
        let quiet = self.overlay.as_ref().is_none_or(Overlay::is_quiet);
        if let Some(overlay) = self.overlay.as_mut().filter(|one| one.is_idle()) {
            overlay.seal(SealCause::Stop);
        }
        let works = !self.works_idle()
            || !self.packs_idle()
            || !self.buffer.is_idle()
            || !self.read_parts.is_idle()
            || !self.clean_copies.is_empty();
        if !quiet || works || !self.children_idle() {
            return false;
        }
        self.forget_redirects();
        let overlay = self.overlay.as_ref();
        let empty = overlay.is_none_or(|one| one.holds_nothing_instead());
        // While secondary copies are brought in sync, writes still go to the primary copies first.
        if empty && self.home().records_primary_first() && self.home().sectors_in_doubt() == 0 {
            self.at_home(|core| {
                core.set_ahead(false);
                core.clean_by_and_by();
            });
        }
        if self.home().is_all_dirty() && self.knows_deferred() {
            self.record_deferred();
            self.number_stop();
            return true;
        }
        let buffered = self.buffer_mark() == BufferMark::Counts && !self.home().mode().read_only;
        match self.home().is_all_dirty() || buffered && self.overlay.is_some() {
            true => {
                self.stage = Stage::Stopping(Stopping::Flushing);
                self.ask(Site::Log, Owner::Stop, flush());
            }
            false => self.number_stop(),
        }
        true
    }

    /// The log has all sectors in which the main set's copies may differ, or is invalid. It also has all
    /// records of the NVRAM set.
    pub(crate) fn stop_flushed(&mut self, result: Result<(), RequestError>) {
        let primary_only = result.is_err() || self.home().records_primary_only();
        match (self.home().is_all_dirty(), primary_only) {
            (true, true) => self.at_home(|home| home.set_alone()),
            (true, false) => self.at_home(|home| home.clean_by_and_by()),
            (false, _) => {}
        }
        if result.is_ok() && self.buffer_mark() == BufferMark::Counts && !self.log_is_broken() {
            // The log's stop records the mark.
            let _ = self.mark_buffer(BufferMark::Idle);
        }
        self.number_stop();
    }

    /// Nothing is in flight any more. A stop gives the sets numbers as a start does, and then stops them.
    fn number_stop(&mut self) {
        if !self.numbers_stop() {
            return self.stop_set(Site::Home);
        }
        let session = self.next_session();
        let last = session + 1;
        self.stage = Stage::Stopping(Stopping::Numbering { session, last });
    }

    /// Whether a stop has two sets to number: not without a log, and not once the log set was removed.
    fn numbers_stop(&self) -> bool {
        let sets = [Site::Home, Site::Log];
        let tied = |site: &Site| {
            let set = &self.sets[*site];
            self.started[*site] && set.partner().is_some() && !set.halted()
        };
        let writes = !self.home().mode().read_only && !self.home().planted(Bug::StopWritesOnce);
        writes && self.overlay.is_some() && !self.is_logless() && sets.iter().all(tied)
    }

    /// False while a number is being recorded. If a set cannot be written, the sets stop as they are.
    fn number_on(&mut self, session: u32, last: u32) -> bool {
        match self.number_sets(session) {
            Ok(false) => return false,
            Ok(true) if session < last => {
                let session = session + 1;
                self.stage = Stage::Stopping(Stopping::Numbering { session, last });
            }
            Ok(true) | Err(_) => self.stop_set(Site::Home),
        }
        true
    }

    fn stop_set(&mut self, site: Site) {
        self.stage = Stage::Stopping(Stopping::Set(site));
        self.step_set(site, Event::Command(child_command(site), Command::Stop));
    }

    /// A set has answered a command of the tier's own. Errors name members by the tier's numbers.
    pub(crate) fn answered(&mut self, site: Site, result: Result<(), CommandError>) {
        match self.stage {
            Stage::Stopping(Stopping::Set(Site::Home)) if self.started[Site::Log] => {
                self.note_stop(result);
                self.stop_set(Site::Log);
            }
            Stage::Stopping(Stopping::Set(Site::Home | Site::Log)) if self.started[Site::Nvram] => {
                self.note_log_stop(site, result);
                self.stop_set(Site::Nvram);
            }
            Stage::Stopping(Stopping::Set(Site::Nvram)) => self.stopped(),
            Stage::Stopping(_) => {
                self.note_log_stop(site, result);
                self.stopped();
            }
            _ => self.set_answered(site, result),
        }
    }

    /// An error of an empty log set is ignored: its next start detects that it was not marked clean.
    fn note_log_stop(&mut self, site: Site, result: Result<(), CommandError>) {
        let holds = self.overlay.as_ref();
        if site == Site::Home || holds.is_some_and(|one| !one.holds_nothing_instead()) {
            self.note_stop(result);
        }
    }

    /// Stores the first error of the sets for the answer.
    fn note_stop(&mut self, result: Result<(), CommandError>) {
        let stop = self.stop.as_mut().expect("one is in progress");
        if stop.result.is_ok() {
            stop.result = result;
        }
    }

    fn stopped(&mut self) {
        self.stage = Stage::Stopped;
        let Stop { tag, result } = self.stop.take().expect("one is in progress");
        if result.is_ok() {
            self.out.push(Action::Fact(Fact::Stopped));
        }
        self.answer_command(tag, result);
    }
}
