//! RERAID and GRAID: every write goes into the log. A destage starts if the log is nearly full, or if clients
//! have been idle for a given time.
//!
//! | stage   | cause                                                        | next    |
//! |---------|--------------------------------------------------------------|---------|
//! | logging | the log runs short; clients were idle for the time; a command requests it | sealing |
//! | logging | the log runs short, and cleaning it pays ([`super::clean`])   | logging |
//! | sealing | all packed writes have reached the log                       | home    |
//! | home    | the destage has ended, completely or not                     | logging |
//!
//! While the stage is logging, mirrors may be in standby (`power` of the set): their copies in the main set
//! are not written then. Before they go into standby, the main set records that the log may have the only
//! current copy of any sector. So nothing has to be recorded while they are in standby.
//!
//! Owns the times of all this. [`copies`] writes into the main set, [`staging`] reads the log for it.

pub(crate) mod copies;
pub(crate) mod staging;

use crate::overlay::{SealCause, Site};
use copies::Copies;
use restripe_array::parts::{Bug, Noted, Power};
use restripe_array::{CommandError, Nanos};

/// Whether a destage is due now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Due {
    No,
    /// The log is short of room: cleaning may make some.
    Short,
    Yes,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Stage {
    #[default]
    Logging,
    /// Waits until the log has all records below this sequence.
    Sealing(u64),
    Home,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct State {
    stage: Stage,
    /// The arrival of the oldest packed write that is not sealed.
    packed_since: Option<Nanos>,
    /// The end of the last destage, or the start of the array.
    last: Nanos,
    /// A command requested a destage.
    asked: bool,
    /// The number of destages that were started.
    pub(crate) begun: u64,
    rest: Rest,
}

impl State {
    /// The state for a new overlay. A destage for a command stays due. The mirrors retain their budget.
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

/// Whether a map with this many extents requires a destage, so that it is never full.
fn nearly_full(held: u32, most: u32) -> bool {
    held > most / 8 * 7
}

pub(crate) struct Destaging {
    pub(crate) below: Copies,
    timing: State,
    /// No destage starts before this time.
    pub(crate) not_before: Nanos,
    pub(crate) going: bool,
}

floor!(Destaging over Copies { timing, not_before, going });

impl Destaging {
    /// Resets the state of the destage for a new overlay.
    pub(crate) fn begin_destaging_anew(&mut self) {
        self.going = false;
        self.timing = self.timing.anew();
        self.chosen = false;
        self.primary_write_failed = false;
        self.primaries_checked = None;
    }

    /// Whether no work for the overlay is in flight or waits.
    pub(crate) fn works_idle(&self) -> bool {
        self.jobs.list.is_empty()
            && self.appends_idle()
            && self.primary_writes.is_empty()
            && self.copies_idle()
            && self.moves.is_empty()
    }

    /// Whether a destage runs, or is about to.
    pub(crate) fn is_destaging(&self) -> bool {
        self.timing.stage != Stage::Logging
    }

    /// A client writes into a record in memory.
    pub(crate) fn note_packed(&mut self) {
        let now = self.now;
        self.timing.packed_since.get_or_insert(now);
    }

    /// Requests a destage, however full the log is.
    pub(crate) fn ask_destage(&mut self) -> Result<(), CommandError> {
        if !self.surrogate.redirect.is_constant() {
            return Err(CommandError::Unsuited(
                "the log of this surrogate is destaged automatically",
            ));
        }
        self.timing.asked = true;
        Ok(())
    }

    /// Starts the work that is due by time or space. Returns false if there is none now.
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
            self.timing.packed_since = None;
            return;
        }
        let now = self.now;
        let since = *self.timing.packed_since.get_or_insert(now);
        let due = since.after(self.surrogate.destage.seal);
        if self.now < due {
            return self.route.wake_own(due);
        }
        self.timing.packed_since = None;
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

    /// Writes the records in memory into the log first, so that the destage covers all data.
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

    /// Puts mirrors in standby that were not needed for the given time.
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
        let fit = !self.surrogate.redirect.goes_ahead() || self.defers_writes();
        let unmarked = self.home().planted(Bug::SleepUnannounced);
        if !fit || !self.home().may_rest() || !(unmarked || self.all_marked()) {
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

    /// Whether the main set has recorded durably that the log may have any of its sectors.
    fn all_marked(&mut self) -> bool {
        if self.is_logless() {
            return true;
        }
        let sectors = self.home().layout().size_sectors();
        let home = &mut self.sets[Site::Home];
        let Noted { durable, in_turn } = home.announce_redirect(0, sectors);
        self.delivered |= in_turn;
        durable
    }

    /// The budget of starts, where mirrors may go into standby.
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
        let last = self.wants_log_empty() && self.is_last_destage();
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

/// The rest of the budget of starts, at any time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    pub starts_a_day: u32,
    /// The part of a day that starts had used at `looked` and that had not yet grown back.
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

    /// The number of times that mirrors may go into standby at once.
    pub fn left(&self, now: Nanos) -> u32 {
        let left = DAY.since(self.spent_at(now)).0 / self.price().0.max(1);
        u32::try_from(left).unwrap_or(u32::MAX)
    }
}

/// The standby state of the mirrors, and their budget.
#[derive(Clone, Copy, Default)]
pub(crate) struct Rest {
    /// Some mirrors are in standby.
    pub(crate) asleep: bool,
    /// The time since when all mirrors are spun up.
    pub(crate) since: Nanos,
    /// The spent part of the budget at `looked`: it shrinks with time, and is a day at most.
    spent: Nanos,
    looked: Nanos,
}

impl Rest {
    /// The time at which the budget allows another start. If that is now, the start is spent.
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
    fn a_map_is_destaged_before_it_is_full() {
        let cases = [(7 << 15, false), ((7 << 15) + 1, true), (1 << 18, true)];
        assert_eq!(
            cases.map(|(held, _)| nearly_full(held, 1 << 18)),
            cases.map(|case| case.1)
        );
        assert!(!nearly_full(0, 1) && nearly_full(1, 1));
    }

    #[test]
    fn new_overlay_retains_a_requested_destage_and_the_budget() {
        let begin = Nanos::from_secs(5);
        let mut state = State {
            begun: 3,
            last: begin,
            packed_since: Some(begin),
            stage: Stage::Sealing(7),
            ..State::default()
        };
        state.rest.allowed(begin, 2);
        let anew = state.anew();
        assert!(anew.asked && anew.stage == Stage::Logging && anew.packed_since.is_none());
        assert_eq!((anew.begun, anew.last), (3, begin));
        assert_eq!(anew.rest.budget(2).left(begin), 1);
        let home = State {
            stage: Stage::Home,
            ..state
        };
        assert!(!home.anew().asked);
    }

    /// The reported rest may be used at once; the price of a start grows back in its part of a day.
    #[test]
    fn the_reported_budget_is_the_one_that_applies() {
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
