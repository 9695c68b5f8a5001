//! Letting the surrogate go while the array serves: [`Command::Surrogate`] with `None`.
//!
//! | state    | cause                                                        | next     |
//! |----------|--------------------------------------------------------------|----------|
//! | kept     | the command                                                  | emptying |
//! | emptying | nothing lies in the log, nor is on its way there             | gone     |
//! | emptying | the array stops; what lies there cannot be brought home      | kept     |
//! | emptying | home halts: it answers why                                   | kept     |
//!
//! A pair that does not serve, or has no surrogate any more, leaves the answer to home.
//!
//! While it empties no write goes into the log but over what lies there, no clean copy does, and mirrors stay awake; what lies there goes
//! home at once; the second way home is the last, whatever users write meanwhile, who wait for it. So what users have under way when the command comes is waited for, and nothing can get there behind the last look.
//! When it is gone nothing ever goes there again, and only then home has it on record that it has no surrogate: a crash before finds the
//! log needed or void, one behind that finds an array that never had one.

use super::policy::LAST_EXTENTS;
use super::{Pair, Stage};
use crate::overlay::{Overlay, Site};
use restripe_array::parts::Bug;
use restripe_array::{Action, Command, CommandError, CommandTag, Event};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Leaving {
    #[default]
    Kept,
    /// Who asked for it waits.
    Emptying {
        tag: CommandTag,
        /// A way home has ended since.
        came_home: bool,
    },
    Gone,
}

/// What is seen of a surrogate that is being emptied.
enum Look {
    Waits,
    HomeHalted,
    /// What lies there cannot go home.
    Stuck,
    Empty,
}

impl Pair {
    /// Whether nothing more is to go into the log.
    pub(super) fn is_leaving(&self) -> bool {
        self.policy.leaving != Leaving::Kept
    }

    /// Whether nothing lies in the log for ever, and all copies are the same.
    pub(super) fn is_gone(&self) -> bool {
        self.policy.leaving == Leaving::Gone
    }

    /// Whether the next way home is the last one. Writes wait for that, so it is to be short; but what users write over and over
    /// would never let it begin.
    pub(super) fn goes_home_for_good(&self) -> bool {
        let overlay = self.overlay.as_ref().expect("a serving pair has one");
        let pressed =
            matches!(self.policy.leaving, Leaving::Emptying { came_home, .. } if came_home);
        pressed || overlay.extents_instead() <= LAST_EXTENTS
    }

    /// An operator takes the surrogate away.
    pub(super) fn begin_leaving(&mut self, tag: CommandTag) {
        let emptying = matches!(self.policy.leaving, Leaving::Emptying { .. });
        if self.stage == Stage::Serving && emptying {
            let error = CommandError::Busy("a removal of its surrogate is already running");
            return self.out.push(Action::CommandReply(tag, Err(error)));
        }
        let served = self.stage == Stage::Serving && !self.is_logless();
        if served && self.policy.leaving == Leaving::Kept && !self.home().mode().read_only {
            self.policy.leaving = Leaving::Emptying {
                tag,
                came_home: false,
            };
        } else {
            self.let_home_answer(tag);
        }
    }

    /// Home knows what may be on record, and why not.
    fn let_home_answer(&mut self, tag: CommandTag) {
        let command = Command::Surrogate(None);
        self.tell(Site::Home, Event::Command(tag, command));
    }

    /// Goes on with letting the surrogate go; false if it has to wait.
    pub(super) fn go_on_leaving(&mut self) -> bool {
        let Leaving::Emptying { tag, .. } = self.policy.leaving else {
            return false;
        };
        match self.look_at_leaving() {
            Look::Waits => return false,
            Look::HomeHalted => {
                self.policy.leaving = Leaving::Kept;
                self.let_home_answer(tag);
            }
            Look::Stuck => self.keep_surrogate(NOT_HOME),
            Look::Empty => self.take_leave(tag),
        }
        true
    }

    fn look_at_leaving(&self) -> Look {
        let overlay = self.overlay.as_ref().expect("a serving pair has one");
        if self.home().halted() {
            return Look::HomeHalted;
        }
        if overlay.is_stuck() && !overlay.is_void() {
            return Look::Stuck;
        }
        let hasty = self.home().planted(Bug::RemovedUnderWay) && overlay.extents_instead() == 0;
        // Others are being brought in step with first copies, which go on to be believed until they are.
        let in_step = self.home().sectors_in_doubt() == 0;
        match in_step && (overlay.is_empty() || hasty) {
            true => Look::Empty,
            false => Look::Waits,
        }
    }

    /// Nothing is to be believed but home, which puts it on record and answers.
    fn take_leave(&mut self, tag: CommandTag) {
        self.policy.leaving = Leaving::Gone;
        let overlay = self.overlay.as_mut().expect("a serving pair has one");
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
    pub(super) fn leaving_came_home(&mut self) {
        if self.overlay.as_ref().is_some_and(Overlay::fell_short) {
            self.keep_surrogate(NOT_HOME);
        }
        if let Leaving::Emptying { came_home, .. } = &mut self.policy.leaving {
            *came_home = true;
        }
    }

    /// It stays, as if nobody had asked.
    pub(super) fn keep_surrogate(&mut self, why: &'static str) {
        if let Leaving::Emptying { tag, .. } = self.policy.leaving {
            self.policy.leaving = Leaving::Kept;
            let error = CommandError::Busy(why);
            self.out.push(Action::CommandReply(tag, Err(error)));
        }
    }
}

pub(super) const NOT_HOME: &str = "the surrogate's log could not be destaged";
