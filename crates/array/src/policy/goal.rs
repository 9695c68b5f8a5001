//! Throttles with a goal: users' latency, or an end in time. Each decides a rate within the task's limits.
//!
//! **Latency** (`p99:20ms`: 99 of a hundred reads and writes take 20 ms at most). An integral controller on the logarithm of
//! the rate, fed by every reply. A request that took too long takes a sixteenth off the rate; one that did not adds so
//! much that both balance where three quarters of the allowed share take too long (for p99: 0.75 of a hundred). While the
//! rate stays off its limits, the sum of all steps is bounded, so the share of those that took too long tends to that,
//! whatever the drives and the load are like: nothing is assumed of how latency follows from rate. The quarter
//! is room for the way there. The rate begins at the minimum, and until the first request takes too long each adds a sixty-fourth:
//! at 200 requests a second it doubles in a quarter of a second, and from then on, for p99, in eight seconds. It
//! rises only while it is what holds the task back: what drives cannot give says nothing about users.
//!
//! **Finish** (`finish:2h`: done two hours after it began): what is left over the time that is left, but for its last
//! thirty-second, in which what is still left goes at the maximum. A task begins anew when the array is started again.
//!
//! | state | cause | next |
//! |---|---|---|
//! | alone | users move something | beside users |
//! | beside users | they moved nothing for ten seconds | alone |
//!
//! Beside users windows go evenly, sixteen steps a second if the rate is high enough, a window at a time if not: to users a
//! step is a disturbance, and long ones make the tail. So no step is above a batch of [`super::throttle`], nor is more in flight: a
//! higher rate is more steps a second, and where drives are too slow for it, users do not queue behind it. Alone a task goes as fast as its maximum lets. Ten seconds, since
//! users who ask for little would otherwise meet full speed with each request.

use super::order::Depth;
use super::throttle::{BATCH, Decision, FULL_SPEED, Limits, Marks, View};
use crate::contract::LatencyGoal;
use crate::report::Aim;
use crate::units::Nanos;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Latency(LatencyGoal),
    Finish(Nanos),
}

#[derive(Clone, Debug)]
pub(super) struct Goal {
    kind: Kind,
    limits: Limits,
    /// Bytes of one member a second beside users.
    rate: u64,
    /// No request has taken too long yet.
    probing: bool,
    pub(super) marks: Marks,
    users: Users,
    steady: Steady,
}

/// A minimum of nothing is this: a rate that only multiplies could not leave zero.
const RATE_LEAST: u64 = 64 << 10;
/// A request that took too long takes this part off.
const PART: u64 = 16;
/// Before the first of these, one that did not adds this part.
const PROBING_PART: u64 = 64;
/// A task is to be done this part of its time before it is up: flushes follow, and what it goes by is a speed that it
/// reaches only nearly.
const EARLY_PART: u64 = 32;
const MARKS: usize = 5;
const MARK_EVERY: Nanos = Nanos::from_secs(1);

impl Goal {
    pub(super) fn latency(goal: LatencyGoal, limits: Limits, view: &View) -> Goal {
        Goal::new(Kind::Latency(goal), limits, view)
    }

    pub(super) fn finish(within: Nanos, limits: Limits, view: &View) -> Goal {
        Goal::new(Kind::Finish(within), limits, view)
    }

    fn new(kind: Kind, limits: Limits, view: &View) -> Goal {
        let limits = Limits {
            min: limits.min.max(RATE_LEAST).min(limits.max),
            ..limits
        };
        Goal {
            kind,
            limits,
            rate: limits.min,
            probing: true,
            marks: Marks::new(MARKS, MARK_EVERY, view.now, view.let_go()),
            users: Users::new(view),
            steady: Steady::new(view),
        }
    }

    pub(super) fn decide(&mut self, view: &View) -> Decision {
        self.marks.pass(view.now, view.moved);
        if let Kind::Finish(within) = self.kind {
            let early = Nanos(within.0 - within.0 / EARLY_PART);
            let needs = needed(view.begun.after(early), view.now, view.left);
            self.rate = needs.clamp(self.limits.min, self.limits.max);
        }
        match self.users.active(view) {
            true => {
                let step = BATCH.min(self.rate / STEPS_A_SECOND);
                self.steady.decide(self.rate, step, view)
            }
            false => self.steady.decide(self.limits.max, FULL_SPEED, view),
        }
    }

    pub(super) fn issued(&mut self, bytes: u64) {
        self.steady.issued(bytes);
    }

    /// A client's read or write has ended, after this time.
    pub(super) fn note_latency(&mut self, latency: Nanos) {
        let Kind::Latency(goal) = self.kind else {
            return;
        };
        let late = latency > goal.at_most;
        self.probing &= !late;
        let rate = match (late, self.probing) {
            (true, _) => self.rate - self.rate / PART,
            (false, _) if self.steady.lags => self.rate,
            (false, true) => self.rate.saturating_add(self.rate / PROBING_PART),
            (false, false) => self.rate.saturating_add(gain(self.rate, goal.percentile)),
        };
        self.rate = rate.clamp(self.limits.min, self.limits.max);
    }

    /// `percentile`: what users meet.
    pub(super) fn aim(&self, view: &View, percentile: impl FnOnce(u8) -> Option<Nanos>) -> Aim {
        let rate = self.rate;
        match self.kind {
            Kind::Latency(LatencyGoal {
                percentile: of,
                at_most,
            }) => {
                let is = percentile(of);
                let missed = rate == self.limits.min && is.is_some_and(|is| is > at_most);
                Aim::Latency {
                    percentile: of,
                    at_most,
                    is,
                    rate,
                    missed,
                }
            }
            Kind::Finish(within) => {
                let by = view.begun.after(within);
                let needs = needed(by, view.now, view.left);
                let speed = self.marks.rate(view.now, view.moved);
                let measured = view.now.since(self.marks.oldest().0) >= MARK_EVERY;
                // Off by a quarter: steps and marks never meet exactly.
                let missed = needs > self.limits.max || measured && speed < needs - needs / 4;
                Aim::Finish { by, needs, missed }
            }
        }
    }
}

/// What a request in time adds.
fn gain(rate: u64, percentile: u8) -> u64 {
    // Three quarters of the allowed share, over the rest, in four hundredths.
    let share = 3 * u64::from(100 - percentile);
    let part = u128::from(rate) * u128::from(share) / u128::from(PART * (400 - share));
    u64::try_from(part).unwrap_or(u64::MAX).max(1)
}

/// Bytes a second, to be done by that moment.
fn needed(by: Nanos, now: Nanos, left: u64) -> u64 {
    let time = u128::from(by.since(now).0);
    let rate = (u128::from(left) * 1_000_000_000).checked_div(time);
    match rate {
        _ if left == 0 => 0,
        None => u64::MAX,
        Some(rate) => u64::try_from(rate).unwrap_or(u64::MAX),
    }
}

// ------------------------------------------------------------------------------------------------------------ users

/// Whether anybody is there.
#[derive(Clone, Debug)]
struct Users {
    sectors: u64,
    last: Nanos,
}

const GONE_AFTER: Nanos = Nanos::from_secs(10);

impl Users {
    fn new(view: &View) -> Users {
        Users {
            sectors: view.user_sectors,
            last: view.now,
        }
    }

    fn active(&mut self, view: &View) -> bool {
        if view.user_sectors != self.sectors {
            (self.sectors, self.last) = (view.user_sectors, view.now);
        }
        view.now.since(self.last) < GONE_AFTER
    }
}

// ------------------------------------------------------------------------------------------------------------ steps

const STEPS_A_SECOND: u64 = 16;
const STEP: Nanos = Nanos(1_000_000_000 / STEPS_A_SECOND);

/// Lets windows go evenly.
#[derive(Clone, Debug)]
struct Steady {
    rate: u64,
    now: Nanos,
    /// When the next may go. What could have gone and did not is made up for by one step.
    due: Nanos,
    /// More than a step could have gone and did not: it is not the rate that holds the task back.
    lags: bool,
}

impl Steady {
    fn new(view: &View) -> Steady {
        Steady {
            rate: 0,
            now: view.now,
            due: view.now,
            lags: false,
        }
    }

    fn decide(&mut self, rate: u64, step: u64, view: &View) -> Decision {
        (self.rate, self.now) = (rate, view.now);
        let earliest = Nanos(view.now.0.saturating_sub(STEP.0));
        self.lags = self.due < earliest;
        self.due = self.due.max(earliest);
        if view.now < self.due {
            return Decision::Wait(self.due);
        }
        let step = step.max(view.window);
        let most = match view.depth {
            Depth::Row => view.window,
            Depth::Pipeline => step,
            Depth::Buffers => u64::MAX,
        };
        match most.saturating_sub(view.in_flight).min(step) {
            room if room < view.window => Decision::Hold,
            room => Decision::Issue(room),
        }
    }

    fn issued(&mut self, bytes: u64) {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate.max(1));
        let time = Nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.due = self.due.after(time);
    }
}

#[cfg(test)]
mod tests {
    use super::super::throttle::DEFAULT;
    use super::*;

    const WINDOW: u64 = View::BEGUN.window;
    const MILLISECOND: Nanos = Nanos::from_millis(1);
    const SECOND: Nanos = Nanos::from_secs(1);
    const GOAL: LatencyGoal = LatencyGoal {
        percentile: 99,
        at_most: Nanos::from_millis(20),
    };

    /// A member that moves a window a millisecond, and users whose requests take longer the faster it goes.
    struct Plant {
        goal: Goal,
        view: View,
        seed: u64,
        requests: u64,
        late: u64,
        most_in_flight: u64,
    }

    impl Plant {
        fn new(left: u64, goal: impl FnOnce(&View) -> Goal) -> Plant {
            let mut view = View::BEGUN;
            view.left = left;
            Plant {
                goal: goal(&view),
                view,
                seed: 1,
                requests: 0,
                late: 0,
                most_in_flight: 0,
            }
        }

        fn drawn(&mut self, below: u64) -> u64 {
            let product = self.seed.wrapping_mul(6_364_136_223_846_793_005);
            self.seed = product.wrapping_add(1_442_695_040_888_963_407);
            (self.seed >> 33) % below
        }

        /// A request every five milliseconds. At `breaks` bytes a second one of a hundred is late, at twice that four.
        fn until(&mut self, end: Nanos, breaks: Option<u64>) {
            while self.view.now < end && self.view.left > 0 {
                match self.goal.decide(&self.view) {
                    Decision::Issue(bytes) => {
                        let windows = bytes / WINDOW;
                        (0..windows).for_each(|_| self.goal.issued(WINDOW));
                        self.view.in_flight += windows * WINDOW;
                        self.most_in_flight = self.most_in_flight.max(self.view.in_flight);
                    }
                    Decision::Hold => assert!(self.view.in_flight > 0),
                    Decision::Wait(until) => assert!(until > self.view.now),
                }
                self.pass();
                let asks = self.view.now.0.is_multiple_of(5 * MILLISECOND.0);
                if let Some(breaks) = breaks.filter(|_| asks) {
                    self.request(breaks);
                }
            }
        }

        fn pass(&mut self) {
            self.view.now = self.view.now.after(MILLISECOND);
            if self.view.in_flight > 0 {
                self.view.in_flight -= WINDOW;
                self.view.moved += WINDOW;
                self.view.left = self.view.left.saturating_sub(WINDOW);
            }
        }

        fn request(&mut self, breaks: u64) {
            self.view.user_sectors += 8;
            let speed = self.goal.marks.rate(self.view.now, self.view.moved);
            let percent = speed * 100 / breaks;
            let late = self.drawn(1_000_000) < percent * percent;
            let latency = if late { 50 } else { 5 };
            self.goal.note_latency(Nanos::from_millis(latency));
            self.requests += 1;
            self.late += u64::from(late);
        }

        fn late_of_10_000(&self) -> u64 {
            self.late * 10_000 / self.requests
        }
    }

    const LONG: u64 = 1 << 50;

    #[test]
    fn the_share_of_late_requests_is_what_is_allowed_whatever_the_plant() {
        for breaks in [3 << 20, 10 << 20, 30 << 20] {
            let mut plant = Plant::new(LONG, |view| Goal::latency(GOAL, DEFAULT, view));
            plant.until(Nanos::from_secs(120), Some(breaks));
            (plant.requests, plant.late) = (0, 0);
            let (moved, began) = (plant.view.moved, plant.view.now);
            plant.until(Nanos::from_secs(720), Some(breaks));
            let late = plant.late_of_10_000();
            assert!((50..=100).contains(&late), "{late} of 10,000 at {breaks}");
            let speed = (plant.view.moved - moved) / (plant.view.now.since(began).0 / SECOND.0);
            assert!(speed > breaks / 2, "{speed} where {breaks} would do");
        }
    }

    #[test]
    fn the_rate_stays_within_its_limits() {
        let limits = Limits {
            min: 2 << 20,
            max: 5 << 20,
        };
        for (breaks, rate) in [(1 << 18, limits.min), (1 << 40, limits.max)] {
            let mut plant = Plant::new(LONG, |view| Goal::latency(GOAL, limits, view));
            plant.until(Nanos::from_secs(300), Some(breaks));
            let per_second = plant.view.moved / 300;
            let near = rate * 8 / 10..=rate * 11 / 10;
            assert!(near.contains(&per_second), "{per_second}");
        }
    }

    #[test]
    fn until_somebody_waits_too_long_the_rate_rises_fast() {
        let mut plant = Plant::new(LONG, |view| Goal::latency(GOAL, DEFAULT, view));
        plant.until(Nanos::from_secs(2), Some(1 << 40));
        assert!(plant.goal.rate > 32 * DEFAULT.min, "{}", plant.goal.rate);
        let mut plant = Plant::new(LONG, |view| Goal::latency(GOAL, DEFAULT, view));
        plant.goal.note_latency(GOAL.at_most.after(MILLISECOND));
        plant.until(Nanos::from_secs(2), Some(1 << 40));
        assert!(plant.goal.rate < 2 * DEFAULT.min, "{}", plant.goal.rate);
    }

    #[test]
    fn what_members_cannot_give_neither_raises_the_rate_nor_fills_their_queues() {
        let mut plant = Plant::new(LONG, |view| Goal::latency(GOAL, DEFAULT, view));
        plant.goal.note_latency(GOAL.at_most.after(MILLISECOND));
        plant.until(Nanos::from_secs(120), Some(1 << 40));
        let members = WINDOW * 1000;
        assert!(plant.goal.rate < members * 5 / 4, "{}", plant.goal.rate);
        assert!(plant.view.moved > 60 * members, "{}", plant.view.moved);
        assert_eq!(plant.most_in_flight, BATCH);
    }

    #[test]
    fn what_cannot_be_kept_is_told() {
        let mut plant = Plant::new(LONG, |view| Goal::latency(GOAL, DEFAULT, view));
        plant.until(Nanos::from_secs(60), Some(1 << 17));
        let above = Some(Nanos::from_millis(50));
        let aim = plant.goal.aim(&plant.view, |percentile| {
            assert_eq!(percentile, 99);
            above
        });
        let at_most = GOAL.at_most;
        let rate = DEFAULT.min;
        assert_eq!(
            aim,
            Aim::Latency {
                percentile: 99,
                at_most,
                is: above,
                rate,
                missed: true
            }
        );
    }

    #[test]
    fn alone_it_goes_at_full_speed_and_not_at_once() {
        let mut plant = Plant::new(LONG, |view| Goal::latency(GOAL, DEFAULT, view));
        plant.until(Nanos::from_secs(9), None);
        assert!(plant.view.moved <= 10 * DEFAULT.min);
        let moved = plant.view.moved;
        plant.until(Nanos::from_secs(20), None);
        assert!(plant.view.moved - moved > 9 * 60_000_000);
    }

    #[test]
    fn it_finishes_by_its_time() {
        for seconds in [100, 1000] {
            let within = Nanos::from_secs(seconds);
            let mut plant = Plant::new(2 << 30, |view| Goal::finish(within, DEFAULT, view));
            plant.until(Nanos::from_secs(2000), Some(1 << 30));
            let done = plant.view.now;
            let in_time = done <= within && done.0 > within.0 * 9 / 10;
            assert!(in_time, "{done:?} of {within:?}");
        }
    }

    #[test]
    fn an_end_that_is_out_of_reach_is_told() {
        let limits = Limits {
            min: 1 << 20,
            max: 4 << 20,
        };
        let cases = [
            (limits, 100, true),
            (DEFAULT, 10, true),
            (DEFAULT, 100, false),
        ];
        for (limits, seconds, missed) in cases {
            let within = Nanos::from_secs(seconds);
            let mut plant = Plant::new(1 << 30, |view| Goal::finish(within, limits, view));
            plant.until(Nanos::from_secs(8), Some(1 << 30));
            match plant.goal.aim(&plant.view, |_| None) {
                Aim::Finish { by, missed: is, .. } => {
                    assert_eq!((by, is), (within, missed), "{seconds}");
                }
                other => unreachable!("it is to finish: {other:?}"),
            }
        }
    }
}
