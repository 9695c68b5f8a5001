//! RERAID: every write goes into the log, and home when the log is nearly full, or when users have been idle for long.
//!
//! | stage   | cause                                                        | next    |
//! |---------|--------------------------------------------------------------|---------|
//! | logging | the log runs short; users were idle for so long; somebody asks | sealing |
//! | sealing | all that was gathered has landed in the log                  | home    |
//! | home    | the way home has ended, well or not                          | logging |

use super::{Pair, Redirect};
use crate::contract::CommandError;
use crate::overlay::Overlay;
use crate::units::Nanos;

/// When what lies in the log goes home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Destage {
    /// When users have asked for nothing for so long.
    pub idle: Option<Nanos>,
    /// So long after the last time, whatever the log holds.
    pub every: Option<Nanos>,
    /// What was gathered in memory goes into the log so long after it came, though nobody flushes.
    pub seal: Nanos,
}

impl Default for Destage {
    fn default() -> Destage {
        Destage {
            idle: None,
            every: None,
            seal: Nanos::from_secs(5),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stage {
    #[default]
    Logging,
    /// Up to this sequence.
    Sealing(u64),
    Home,
}

#[derive(Clone, Copy, Default)]
pub(super) struct State {
    stage: Stage,
    /// When the oldest of what is gathered came.
    gathered: Option<Nanos>,
    /// When the last way home ended, or the array began to serve.
    last: Nanos,
    /// Somebody asked for a way home.
    asked: bool,
    /// Ways home that were begun.
    pub(super) begun: u64,
}

impl Pair {
    /// A user writes into a record in memory.
    pub(super) fn note_gathered(&mut self) {
        let now = self.now;
        self.policy.destage.gathered.get_or_insert(now);
    }

    /// A way home is wanted, whatever the log holds.
    pub(super) fn ask_destage(&mut self) -> Result<(), CommandError> {
        if self.policy.redirect() != Redirect::Reraid {
            return Err(CommandError::Unsuited(
                "what lies in the log goes home by itself",
            ));
        }
        self.policy.destage.asked = true;
        Ok(())
    }

    /// Begins what time and space ask for; false if nothing is to be done now.
    pub(super) fn drive_destage(&mut self, short: bool) -> bool {
        self.seal_in_time();
        let overlay = self.overlay.as_ref().expect("a serving pair has one");
        if overlay.is_going_home() || overlay.is_broken() {
            return false;
        }
        let stage = self.policy.destage.stage;
        match stage {
            Stage::Logging => self.destage_is_due(short) && self.begin_destage(),
            Stage::Sealing(below) => self.go_home(below),
            Stage::Home => {
                let now = self.now;
                let state = &mut self.policy.destage;
                state.stage = Stage::Logging;
                state.last = now;
                true
            }
        }
    }

    fn seal_in_time(&mut self) {
        let overlay = self.overlay.as_mut().expect("a serving pair has one");
        if !overlay.gathers() {
            self.policy.destage.gathered = None;
            return;
        }
        let since = *self.policy.destage.gathered.get_or_insert(self.now);
        let due = since.after(self.surrogate.destage.seal);
        if self.now < due {
            return self.route.wake_own(due);
        }
        self.policy.destage.gathered = None;
        overlay.seal();
    }

    fn destage_is_due(&mut self, short: bool) -> bool {
        let overlay = self.overlay.as_ref().expect("a serving pair has one");
        if !overlay.holds_something_instead() {
            self.policy.destage.asked = false;
            return false;
        }
        if self.now < self.policy.not_before {
            self.route.wake_own(self.policy.not_before);
            return false;
        }
        let times = self.surrogate.destage;
        let idle = times.idle.map(|idle| self.policy.last_request.after(idle));
        let set = times
            .every
            .map(|every| self.policy.destage.last.after(every));
        let next = [idle, set].into_iter().flatten().min();
        let now = self.now;
        if let Some(next) = next.filter(|next| *next > now) {
            self.route.wake_own(next);
        }
        short || self.policy.destage.asked || next.is_some_and(|next| next <= now)
    }

    /// What is in memory goes into the log first: then the way home takes all there is.
    fn begin_destage(&mut self) -> bool {
        let overlay = self.overlay.as_mut().expect("a serving pair has one");
        overlay.seal();
        let below = overlay.next_sequence();
        let state = &mut self.policy.destage;
        state.asked = false;
        state.stage = Stage::Sealing(below);
        true
    }

    fn go_home(&mut self, below: u64) -> bool {
        let overlay = self.overlay.as_mut().expect("a serving pair has one");
        if overlay.told() < below {
            return false;
        }
        self.policy.destage.stage = Stage::Home;
        self.policy.destage.begun += 1;
        overlay.go_home(below);
        self.policy.going = overlay.is_going_home();
        true
    }
}

impl Overlay {
    fn holds_something_instead(&self) -> bool {
        !self.holds_nothing_instead()
    }
}
