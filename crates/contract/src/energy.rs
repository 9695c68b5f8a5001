//! What a spindle was at, for how long, and what a drive of some rating draws for it: one arithmetic for simulated drives, whose
//! model knows, and for real ones, of which the engine knows what it asked of them.
//!
//! | phase    | the engine                                                                       |
//! |----------|----------------------------------------------------------------------------------|
//! | active   | has an operation under way on a member that turns                                |
//! | idle     | has none                                                                         |
//! | stopping | told it to stand still, and it has not done so                                   |
//! | standby  | was told that it stands                                                          |
//! | starting | asked something of it since, and nothing has ended                               |
//!
//! Energy is an estimate where nobody measures watts: a rating has one figure for all that an active drive does, and a start and a
//! stop cost what the rating says, however long they took.

use restripe_format::units::Nanos;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    Active,
    Idle,
    Standby,
    Starting,
    Stopping,
}

restripe_format::named! {
    Phase {
        Active = "active",
        Idle = "idle",
        Standby = "standby",
        Starting = "starting",
        Stopping = "stopping",
    }
}

/// How long a spindle was in each phase, and how often it stopped and started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Spent {
    ns: [u64; Phase::ALL.len()],
    pub starts: u64,
    pub stops: u64,
    /// What it is at, and since when that has not been added; none before anything was asked of it.
    now: Option<(Phase, Nanos)>,
}

impl Spent {
    /// From now on it is at this.
    pub fn turn(&mut self, now: Nanos, phase: Phase) {
        if self.now.is_none_or(|(before, _)| before != phase) {
            *self = self.until(now);
            self.now = Some((phase, now));
        }
    }

    /// With the phase that lasts, up to `now`.
    pub fn until(&self, now: Nanos) -> Spent {
        let mut spent = *self;
        if let Some((phase, since)) = &mut spent.now {
            spent.ns[*phase as usize] += now.since(*since).0;
            *since = now.max(*since);
        }
        spent
    }

    pub fn time(&self, phase: Phase) -> Nanos {
        Nanos(self.ns[phase as usize])
    }

    pub fn total(&self) -> Nanos {
        Nanos(self.ns.iter().sum())
    }

    /// Of two members on one spindle, which both were asked of: the one phase or the other, active for as long as both together
    /// at most. Exact where they were never active at once.
    pub fn beside(&self, other: &Spent) -> Spent {
        let (long, short) = match self.total() >= other.total() {
            true => (self, other),
            false => (other, self),
        };
        let mut both = *long;
        let idle = &mut both.ns[Phase::Idle as usize];
        let moved = short.time(Phase::Active).0.min(*idle);
        *idle -= moved;
        both.ns[Phase::Active as usize] += moved;
        both.starts = both.starts.max(short.starts);
        both.stops = both.stops.max(short.stops);
        both
    }

    /// Starts a day, in hundredths, over the time that was counted, but a day at least: the first start in an hour is one a day.
    pub fn starts_a_day_hundredths(&self) -> u64 {
        const DAY: u128 = 86_400 * 1_000_000_000;
        let counted = u128::from(self.total().0).max(DAY);
        let hundredths = u128::from(self.starts) * 100 * DAY / counted;
        u64::try_from(hundredths).unwrap_or(u64::MAX)
    }
}

/// What a drive draws, as its maker or somebody else has it: milliwatts, and millijoules of a start and of a stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rating {
    pub active_mw: u32,
    pub idle_mw: u32,
    pub standby_mw: u32,
    pub start_mj: u64,
    pub stop_mj: u64,
}

/// In nanojoules. Milliwatts for nanoseconds are picojoules; nothing is lost as long as times are added up before they are divided.
pub fn energy_nj(mw: u32, ns: u64) -> u128 {
    u128::from(mw) * u128::from(ns) / 1_000
}

/// The same of an energy in millijoules.
pub fn nanojoules(mj: u64) -> u128 {
    u128::from(mj) * 1_000_000
}

impl Rating {
    /// What such a drive drew, in nanojoules.
    pub fn energy_nj(&self, spent: &Spent) -> u128 {
        let drawn = |mw: u32, phase: Phase| energy_nj(mw, spent.time(phase).0);
        drawn(self.active_mw, Phase::Active)
            + drawn(self.idle_mw, Phase::Idle)
            + drawn(self.standby_mw, Phase::Standby)
            + u128::from(spent.starts) * nanojoules(self.start_mj)
            + u128::from(spent.stops) * nanojoules(self.stop_mj)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATING: Rating = Rating {
        active_mw: 8_000,
        idle_mw: 6_000,
        standby_mw: 1_000,
        start_mj: 160_000,
        stop_mj: 4_000,
    };

    fn at(seconds: u64) -> Nanos {
        Nanos::from_secs(seconds)
    }

    /// A second active, nine idle, two stopping, an hour standing, ten starting, and idle for ten.
    fn a_day_in_short() -> Spent {
        let mut spent = Spent::default();
        spent.turn(at(100), Phase::Active);
        spent.turn(at(101), Phase::Idle);
        spent.turn(at(105), Phase::Idle);
        spent.turn(at(110), Phase::Stopping);
        spent.turn(at(112), Phase::Standby);
        spent.stops += 1;
        spent.turn(at(3712), Phase::Starting);
        spent.starts += 1;
        spent.turn(at(3722), Phase::Idle);
        spent
    }

    #[test]
    fn every_second_is_in_one_phase_and_has_its_joules() {
        let spent = a_day_in_short().until(at(3732));
        let seconds = Phase::ALL.map(|phase| spent.time(phase).0 / 1_000_000_000);
        assert_eq!(seconds, [1, 19, 3600, 10, 2]);
        assert_eq!(spent.total(), at(3632));
        let joules = RATING.energy_nj(&spent) / 1_000_000_000;
        assert_eq!(joules, 8 + 19 * 6 + 3600 + 160 + 4);
    }

    #[test]
    fn looking_changes_nothing_and_time_does_not_go_back() {
        let spent = a_day_in_short();
        assert_eq!(spent.until(at(3725)).until(at(3732)), spent.until(at(3732)));
        assert_eq!(
            spent.until(at(3732)).until(at(1)).total(),
            spent.until(at(3732)).total()
        );
        assert_eq!(Spent::default().until(at(9)).total(), Nanos::ZERO);
    }

    #[test]
    fn starts_of_less_than_a_day_are_starts_of_a_day() {
        let mut spent = a_day_in_short();
        assert_eq!(spent.until(at(3732)).starts_a_day_hundredths(), 100);
        spent.starts = 30;
        let ten_days = at(100 + 10 * 86_400);
        assert_eq!(spent.until(ten_days).starts_a_day_hundredths(), 300);
    }

    #[test]
    fn two_members_of_one_spindle_are_one_drive() {
        let mut log = Spent::default();
        log.turn(at(200), Phase::Active);
        log.turn(at(205), Phase::Idle);
        let (home, log) = (a_day_in_short().until(at(3732)), log.until(at(3732)));
        let both = home.beside(&log);
        assert_eq!(both, log.beside(&home));
        assert_eq!(both.total(), home.total());
        assert_eq!(both.time(Phase::Active), at(6));
        assert_eq!(both.time(Phase::Idle), at(14));
        assert_eq!((both.starts, both.stops), (1, 1));
    }
}
