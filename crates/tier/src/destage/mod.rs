//! RERAID and GRAID: every write goes into the log, and home when the log is nearly full, or when users have been idle for long.
//!
//! | stage   | cause                                                        | next    |
//! |---------|--------------------------------------------------------------|---------|
//! | logging | the log runs short; users were idle for so long; somebody asks | sealing |
//! | logging | the log runs short, and cleaning it pays ([`super::clean`])   | logging |
//! | sealing | all that was gathered has landed in the log                  | home    |
//! | home    | the way home has ended, well or not                          | logging |
//!
//! While it is logging, mirrors may sleep (`power` of the set): their part of home is not written then. Before they do, home has it on record that
//! any of its sectors may be current in the log alone, so that nothing has to be written down while they sleep.
//!
//! Owns the times of all this. [`copies`] writes into the main set, [`staging`] reads the log ahead for it.

pub(crate) mod copies;
pub(crate) mod staging;

use crate::overlay::{SealCause, Site};
use copies::Copies;
use restripe_array::parts::{Bug, Noted, Power};
use restripe_array::{CommandError, Nanos};

/// Whether all is to go home now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Due {
    No,
    /// For want of room in the log: cleaning may make some.
    Short,
    Yes,
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
pub(crate) struct State {
    stage: Stage,
    /// When the oldest of what is gathered came.
    gathered: Option<Nanos>,
    /// When the last way home ended, or the array began to serve.
    last: Nanos,
    /// Somebody asked for a way home.
    asked: bool,
    /// Ways home that were begun.
    pub(crate) begun: u64,
    rest: Rest,
}

impl State {
    /// The state for a new overlay. A destage that a command waits for stays due. The mirrors keep their budget of starts.
    pub(crate) fn anew(self) -> State {
        State {
            asked: self.asked || matches!(self.stage, Stage::Sealing(_)),
            last: self.last,
            begun: self.begun,
            rest: self.rest,
            ..State::default()
        }
    }
}

/// Whether a map of so many extents asks for a way home, so that it is never full.
fn nearly_full(held: u32, most: u32) -> bool {
    held > most / 8 * 7
}

pub(crate) struct Destaging {
    pub(crate) below: Copies,
    timing: State,
    /// No way home is begun before.
    pub(crate) not_before: Nanos,
    pub(crate) going: bool,
}

floor!(Destaging over Copies { timing, not_before, going });

impl Destaging {
    /// The overlay is a new one.
    pub(crate) fn begin_destaging_anew(&mut self) {
        self.going = false;
        self.timing = self.timing.anew();
        self.chosen = false;
        self.beside_failed = false;
        self.firsts_seen = None;
    }

    /// Whether no work for the overlay is under way or waits.
    pub(crate) fn works_idle(&self) -> bool {
        self.jobs.list.is_empty()
            && self.appends_idle()
            && self.besides.is_empty()
            && self.copies_idle()
            && self.moves.is_empty()
    }

    /// Whether everything is on its way home, or is going to be.
    pub(crate) fn is_destaging(&self) -> bool {
        self.timing.stage != Stage::Logging
    }

    /// A user writes into a record in memory.
    pub(crate) fn note_gathered(&mut self) {
        let now = self.now;
        self.timing.gathered.get_or_insert(now);
    }

    /// A way home is wanted, whatever the log holds.
    pub(crate) fn ask_destage(&mut self) -> Result<(), CommandError> {
        if !self.surrogate.redirect.is_constant() {
            return Err(CommandError::Unsuited(
                "the log of this surrogate is destaged automatically",
            ));
        }
        self.timing.asked = true;
        Ok(())
    }

    /// Begins what time and space ask for; false if nothing is to be done now.
    pub(crate) fn drive_destage(&mut self, short: bool) -> bool {
        self.seal_in_time();
        let overlay = self.overlay();
        if overlay.is_destaging() || overlay.is_stuck() {
            return false;
        }
        let cleans = overlay.cleans().is_some();
        match self.timing.stage {
            Stage::Logging => match self.destage_is_due(short) {
                Due::Yes => self.begin_destage(),
                Due::Short if !cleans => self.begin_cleaning() || self.begin_destage(),
                Due::Short | Due::No => self.rest_in_time(),
            },
            Stage::Sealing(below) => self.destage(below),
            Stage::Home => {
                let now = self.now;
                let state = &mut self.timing;
                state.stage = Stage::Logging;
                state.last = now;
                state.rest.since = now;
                true
            }
        }
    }

    fn seal_in_time(&mut self) {
        if !self.overlay().has_packed() {
            self.timing.gathered = None;
            return;
        }
        let now = self.now;
        let since = *self.timing.gathered.get_or_insert(now);
        let due = since.after(self.surrogate.destage.seal);
        if self.now < due {
            return self.route.wake_own(due);
        }
        self.timing.gathered = None;
        self.overlay_mut().seal(SealCause::Age);
    }

    fn destage_is_due(&mut self, short: bool) -> Due {
        let overlay = self.overlay();
        if overlay.holds_nothing_instead() {
            self.timing.asked = false;
            return Due::No;
        }
        if self.now < self.not_before {
            let at = self.not_before;
            self.route.wake_own(at);
            return Due::No;
        }
        let times = self.surrogate.destage;
        let idle = times.idle.map(|idle| self.last_request.after(idle));
        let set = times.every.map(|every| self.timing.last.after(every));
        let next = [idle, set].into_iter().flatten().min();
        let now = self.now;
        if let Some(next) = next.filter(|next| *next > now) {
            self.route.wake_own(next);
        }
        let wanted = self.map_is_short()
            || self.timing.asked
            || self.wants_log_empty()
            || next.is_some_and(|next| next <= now);
        match (wanted, short) {
            (true, _) => Due::Yes,
            (false, true) => Due::Short,
            (false, false) => Due::No,
        }
    }

    /// Whether writes may soon wait for room in the map alone: each takes two extents at most.
    fn map_is_short(&self) -> bool {
        let overlay = self.overlay();
        let (held, most) = (overlay.map().extent_count(), overlay.map().capacity());
        nearly_full(held, most)
    }

    /// What is in memory goes into the log first: then the way home takes all there is.
    fn begin_destage(&mut self) -> bool {
        let overlay = self.overlay_mut();
        overlay.stop_cleaning();
        overlay.seal(SealCause::Destage);
        let below = overlay.next_sequence();
        let state = &mut self.timing;
        state.asked = false;
        state.stage = Stage::Sealing(below);
        state.rest.asleep = false;
        self.at_home(|home| home.wake_mirrors());
        true
    }

    /// Lets mirrors sleep that were not needed for long enough.
    fn rest_in_time(&mut self) -> bool {
        let Some(sleep) = self.surrogate.destage.sleep else {
            return false;
        };
        if self.is_leaving() {
            return false;
        }
        let (now, asleep) = (self.now, !self.home().mirrors_up());
        let rest = &mut self.timing.rest;
        if asleep {
            rest.asleep = true;
            return false;
        }
        if core::mem::take(&mut rest.asleep) {
            rest.since = now;
        }
        let due = rest.since.after(sleep.after);
        if now < due {
            self.route.wake_own(due);
            return false;
        }
        if self.surrogate.redirect.goes_ahead() && self.flush_mirrors() {
            return true;
        }
        let ahead = !self.surrogate.redirect.goes_ahead() || self.goes_ahead();
        let unannounced = self.home().planted(Bug::SleepUnannounced);
        if !ahead || !self.home().may_rest() || !(unannounced || self.all_announced()) {
            return false;
        }
        let allowed = self.timing.rest.allowed(now, sleep.starts_a_day);
        if now < allowed {
            self.route.wake_own(allowed);
            return false;
        }
        self.at_home(|home| home.rest_mirrors());
        true
    }

    fn flush_mirrors(&mut self) -> bool {
        let home = &mut self.sets[Site::Home];
        let begun = home.flush_mirrors();
        self.delivered |= begun;
        begun
    }

    /// Whether home knows durably that the log may have any of its sectors.
    fn all_announced(&mut self) -> bool {
        if self.is_logless() {
            return true;
        }
        let sectors = self.home().layout().size_sectors();
        let home = &mut self.sets[Site::Home];
        let Noted { durable, in_turn } = home.announce_redirect(0, sectors);
        self.delivered |= in_turn;
        durable
    }

    /// Where mirrors may sleep.
    pub(crate) fn budget(&self) -> Option<Budget> {
        let sleep = self.surrogate.destage.sleep?;
        Some(self.timing.rest.budget(sleep.starts_a_day))
    }

    pub(crate) fn rests(&self) -> (u16, u64, u64) {
        let state = &self.timing;
        (
            self.home().mirrors_in(Power::Asleep),
            self.home().standbys(),
            state.begun,
        )
    }

    pub(crate) fn destage(&mut self, below: u64) -> bool {
        let overlay = self.overlay();
        let awake = self.home().mirrors_up() || self.home().planted(Bug::WakeNotAwaited);
        if overlay.acknowledged() < below || !awake {
            return false;
        }
        self.timing.stage = Stage::Home;
        self.timing.begun += 1;
        let last = self.wants_log_empty() && self.destages_for_good();
        let overlay = self.overlay_mut();
        match last {
            true => overlay.destage_for_good(),
            false => overlay.destage(below),
        }
        self.going = overlay.is_destaging();
        true
    }
}

// ------------------------------------------------------------------------------- how often mirrors may sleep

const DAY: Nanos = Nanos::from_secs(24 * 60 * 60);

/// What is left of the budget of starts, at any time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    pub starts_a_day: u32,
    /// Of a day, what starts took that had not grown again when it was looked at.
    spent: Nanos,
    looked: Nanos,
}

impl Budget {
    fn price(&self) -> Nanos {
        Nanos(DAY.0 / u64::from(self.starts_a_day.max(1)))
    }

    fn spent_at(&self, now: Nanos) -> Nanos {
        self.spent.since(now.since(self.looked))
    }

    /// How often mirrors may sleep at once.
    pub fn left(&self, now: Nanos) -> u32 {
        let left = DAY.since(self.spent_at(now)).0 / self.price().0.max(1);
        u32::try_from(left).unwrap_or(u32::MAX)
    }
}

/// What mirrors did, and may do.
#[derive(Clone, Copy, Default)]
pub(crate) struct Rest {
    /// Some of them sleep.
    pub(crate) asleep: bool,
    /// Since when they are awake.
    pub(crate) since: Nanos,
    /// The time that the budget had grown for when it was looked at last, a day at most, less what was spent.
    spent: Nanos,
    looked: Nanos,
}

impl Rest {
    /// When the budget allows another start; it is spent if that is now.
    pub(crate) fn allowed(&mut self, now: Nanos, starts_a_day: u32) -> Nanos {
        let budget = self.budget(starts_a_day);
        let price = budget.price();
        self.spent = budget.spent_at(now);
        self.looked = now;
        let over = (self.spent.0 + price.0).saturating_sub(DAY.0);
        if over == 0 {
            self.spent = self.spent.after(price);
        }
        now.after(Nanos(over))
    }

    pub(crate) fn budget(&self, starts_a_day: u32) -> Budget {
        Budget {
            starts_a_day,
            spent: self.spent,
            looked: self.looked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_goes_home_before_it_is_full() {
        let cases = [(7 << 15, false), ((7 << 15) + 1, true), (1 << 18, true)];
        assert_eq!(
            cases.map(|(held, _)| nearly_full(held, 1 << 18)),
            cases.map(|case| case.1)
        );
        assert!(!nearly_full(0, 1) && nearly_full(1, 1));
    }

    #[test]
    fn new_overlay_keeps_what_was_asked_for_and_the_budget() {
        let begin = Nanos::from_secs(5);
        let mut state = State {
            begun: 3,
            last: begin,
            gathered: Some(begin),
            stage: Stage::Sealing(7),
            ..State::default()
        };
        state.rest.allowed(begin, 2);
        let anew = state.anew();
        assert!(anew.asked && anew.stage == Stage::Logging && anew.gathered.is_none());
        assert_eq!((anew.begun, anew.last), (3, begin));
        assert_eq!(anew.rest.budget(2).left(begin), 1);
        let home = State {
            stage: Stage::Home,
            ..state
        };
        assert!(!home.anew().asked);
    }

    /// What is told to be left is what may be had at once; a start's price grows again in its part of a day.
    #[test]
    fn the_budget_that_is_told_is_the_one_that_is_kept() {
        let mut rest = Rest::default();
        let (a_day, begin) = (24, Nanos::from_secs(1_000_000));
        for left in (1..=a_day).rev() {
            assert_eq!(rest.budget(a_day).left(begin), left);
            assert_eq!(rest.allowed(begin, a_day), begin);
        }
        let hour = begin.after(Nanos::from_secs(3600));
        assert_eq!(rest.budget(a_day).left(begin), 0);
        assert_eq!(rest.budget(a_day).left(hour), 1);
        assert_eq!(rest.allowed(begin, a_day), hour);
        assert_eq!(rest.budget(a_day).left(begin.after(DAY)), 24);
    }
}
