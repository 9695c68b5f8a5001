//! Letting the surrogate go while the array serves: [`Command::LogSet`] with `None`.
//!
//! | state    | cause                                                        | next     |
//! |----------|--------------------------------------------------------------|----------|
//! | kept     | the command                                                  | emptying |
//! | emptying | nothing lies in the log, nor is on its way there             | gone     |
//! | emptying | the array stops; what lies there cannot be brought home      | kept     |
//! | emptying | home halts: it answers why                                   | kept     |
//!
//! A tier that does not serve, or has no surrogate any more, leaves the answer to home.
//!
//! While it empties no write goes into the log but over what lies there, no clean copy does, and mirrors stay awake; what lies there goes
//! home at once; the second way home is the last, whatever users write meanwhile, who wait for it. So what users have under way when the command comes is waited for, and nothing can get there behind the last look.
//! When it is gone nothing ever goes there again, and only then home has it on record that it has no surrogate: a crash before finds the
//! log needed or void, one behind that finds an array that never had one.
//!
//! Owns no state: every floor may ask for [`Leaving`].

use super::destage::Destaging;
use super::facts::{Leaving, Stage};
use crate::overlay::Site;
use restripe_array::parts::Bug;
use restripe_array::{Command, CommandTag, Event};

pub(crate) struct Removal {
    pub(crate) below: Destaging,
}

floor!(Removal over Destaging {});

pub(crate) const NOT_HOME: &str = "the surrogate's log could not be destaged";

impl Removal {
    /// An operator takes the surrogate away.
    pub(crate) fn begin_leaving(&mut self, tag: CommandTag) {
        let emptying = matches!(self.leaving, Leaving::Emptying { .. });
        if self.stage == Stage::Serving && emptying {
            return self.answer_busy(tag, "a removal of its surrogate is already running");
        }
        let served = self.stage == Stage::Serving && !self.is_logless();
        if served && self.leaving == Leaving::Kept && !self.home().mode().read_only {
            self.leaving = Leaving::Emptying {
                tag,
                came_home: false,
            };
        } else {
            self.let_home_answer(tag);
        }
    }

    /// Home knows what may be on record, and why not.
    fn let_home_answer(&mut self, tag: CommandTag) {
        let command = Command::LogSet(None);
        self.tell(Site::Home, Event::Command(tag, command));
    }

    /// Goes on with letting the surrogate go; false if it has to wait.
    pub(crate) fn go_on_leaving(&mut self) -> bool {
        let Leaving::Emptying { tag, .. } = self.leaving else {
            return false;
        };
        let overlay = self.overlay();
        if self.home().halted() {
            self.leaving = Leaving::Kept;
            self.let_home_answer(tag);
        } else if overlay.is_stuck() && !overlay.is_void() {
            self.keep_surrogate(NOT_HOME);
        } else if self.has_emptied() {
            self.take_leave(tag);
        } else {
            return false;
        }
        true
    }

    /// Whether nothing lies in the log, nor is on its way there.
    fn has_emptied(&self) -> bool {
        let overlay = self.overlay();
        let hasty = self.home().planted(Bug::RemovedUnderWay) && overlay.extents_instead() == 0;
        // Others are being brought in step with first copies, which go on to be believed until they are.
        let in_step = self.home().sectors_in_doubt() == 0;
        in_step && (overlay.is_empty() || hasty)
    }

    /// Nothing is to be believed but home, which puts it on record and answers.
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

    /// A way home has ended. It may have been cut short: by an error, or since first copies are believed no more.
    pub(crate) fn leaving_came_home(&mut self) {
        if self.overlay.as_ref().is_some_and(|one| one.fell_short()) {
            self.keep_surrogate(NOT_HOME);
        }
        if let Leaving::Emptying { came_home, .. } = &mut self.leaving {
            *came_home = true;
        }
    }

    /// It stays, as if nobody had asked.
    pub(crate) fn keep_surrogate(&mut self, why: &'static str) {
        if let Leaving::Emptying { tag, .. } = self.leaving {
            self.leaving = Leaving::Kept;
            self.answer_busy(tag, why);
        }
    }
}
