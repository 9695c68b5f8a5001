//! Removal of the log set while the array serves: [`Command::LogSet`] with `None`.
//!
//! | state    | cause                                                        | next     |
//! |----------|--------------------------------------------------------------|----------|
//! | attached | the command                                                  | emptying |
//! | emptying | the log is empty, and nothing is on its way there            | gone     |
//! | emptying | the array stops, or the log cannot be destaged               | attached |
//! | emptying | the main set halts: its answer says why                      | attached |
//!
//! A tier that does not serve, or has no log set any more, leaves the answer to the main set.
//!
//! During the removal a write goes into the log only if it overlaps data there. Clean copies do not go there,
//! and mirrors stay spun up. The log is destaged at once. The second destage is the last one: writes that
//! arrive meanwhile wait for it. So requests in flight at the command are waited for, and no write can reach
//! the log after the last check.
//!
//! Once the log set is removed, nothing goes there any more. Only then the main set records that it has no
//! log set. A crash before that record finds the log needed or empty; a later one finds no trace of it.
//!
//! Owns no state: every floor may read [`Leaving`].

use super::destage::Destaging;
use super::facts::{Leaving, Stage};
use crate::overlay::Site;
use restripe_array::parts::Bug;
use restripe_array::{Command, CommandTag, Event};

pub(crate) struct Removal {
    pub(crate) below: Destaging,
}

floor!(Removal over Destaging {});

pub(crate) const NOT_DESTAGED: &str = "the surrogate's log could not be destaged";

impl Removal {
    /// Starts the removal that a command requested.
    pub(crate) fn begin_leaving(&mut self, tag: CommandTag) {
        let emptying = matches!(self.leaving, Leaving::Emptying { .. });
        if self.stage == Stage::Serving && emptying {
            return self.answer_busy(tag, "a removal of its surrogate is already running");
        }
        let served = self.stage == Stage::Serving && !self.is_logless();
        if served && self.leaving == Leaving::Attached && !self.home().mode().read_only {
            self.leaving = Leaving::Emptying {
                tag,
                destaged_once: false,
            };
        } else {
            self.let_home_answer(tag);
        }
    }

    /// The main set decides whether the removal may be recorded, and answers.
    fn let_home_answer(&mut self, tag: CommandTag) {
        let command = Command::LogSet(None);
        self.step_set(Site::Home, Event::Command(tag, command));
    }

    /// Continues the removal. Returns false if it has to wait.
    pub(crate) fn go_on_leaving(&mut self) -> bool {
        let Leaving::Emptying { tag, .. } = self.leaving else {
            return false;
        };
        let overlay = self.overlay();
        if self.home().halted() {
            self.leaving = Leaving::Attached;
            self.let_home_answer(tag);
        } else if overlay.is_stuck() && !overlay.is_drained() {
            self.cancel_removal(NOT_DESTAGED);
        } else if self.has_emptied() {
            self.take_leave(tag);
        } else {
            return false;
        }
        true
    }

    /// Whether the log is empty, and nothing is on its way there.
    fn has_emptied(&self) -> bool {
        let overlay = self.overlay();
        let hasty = self.home().planted(Bug::RemovedUnderWay) && overlay.extents_instead() == 0;
        // Secondary copies are being brought in sync from the primary copies, which stay trusted until then.
        let in_sync = self.home().sectors_in_doubt() == 0;
        in_sync && (overlay.is_empty() || hasty)
    }

    /// Only the main set is valid from now on. It records the removal and answers.
    fn take_leave(&mut self, tag: CommandTag) {
        self.leaving = Leaving::Gone;
        let overlay = self.overlay_mut();
        if overlay.trusts() {
            overlay.trust(false);
        }
        self.at_home(|home| {
            home.redirects_home();
            if home.records_primary_first() {
                home.set_ahead(false);
            }
            home.ties_mut().primaries_first = false;
        });
        self.let_home_answer(tag);
    }

    /// A destage has ended. It may have been cut short, by an error or a loss of trust in primary copies.
    pub(crate) fn removal_destage_ended(&mut self) {
        if self.overlay.as_ref().is_some_and(|one| one.fell_short()) {
            self.cancel_removal(NOT_DESTAGED);
        }
        if let Leaving::Emptying { destaged_once, .. } = &mut self.leaving {
            *destaged_once = true;
        }
    }

    /// Cancels the removal: the log set stays in use.
    pub(crate) fn cancel_removal(&mut self, why: &'static str) {
        if let Leaving::Emptying { tag, .. } = self.leaving {
            self.leaving = Leaving::Attached;
            self.answer_busy(tag, why);
        }
    }
}
