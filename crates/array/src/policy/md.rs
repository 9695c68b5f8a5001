//! Linux md's throttles, from `md_do_sync` and `is_mddev_idle` of the kernels they are named after.
//!
//! Every 128 KiB that a task has issued it is tested: its speed in KiB/s, over ten marks three seconds apart, counted
//! in whole seconds as md does; and whether any member moved over 64 sectors of others' since it was last found busy.
//!
//! | state | cause | next |
//! |---|---|---|
//! | going | 128 KiB issued; at most the minimum, or idle and at most the maximum | going |
//! | going | 128 KiB issued; above the maximum, or (`md-2.6`) above the minimum and not idle | asleep |
//! | going | 128 KiB issued; above the minimum and not idle (`md-2025`: and its depth in flight) | draining |
//! | asleep | half a second has passed | tested again |
//! | draining | none of its own is in flight | going |
//!
//! Where we differ: md issues 4 KiB of each member at a time on parity levels, and we a window of a chunk, so a chunk
//! above 128 KiB is tested less often; the members' statistics are what the engine sends, not what has completed; and
//! since 2025 md also looks at what the array itself has in flight, which is not done here. Orders with a depth of their own
//! (`sor`, `dor`) have it in place of what md's buffers hold; tests, sleeps and drains are the same.

use super::order::Depth;
use super::throttle::{Decision, Limits, Marks, View};
use super::traffic::Traffic;
use crate::units::Nanos;

/// Ten spans: between eleven marks.
const MARKS: usize = 11;
const MARK_EVERY: Nanos = Nanos::from_secs(3);
const TEST_EVERY: u64 = 128 << 10;
const SLEEP: Nanos = Nanos::from_millis(500);
/// What may be in flight of each member at all: a stripe cache of 256 pages, and 32 operations of 64 KiB on copies.
const PARITY_MOST: u64 = 1 << 20;
const COPIES_MOST: u64 = 2 << 20;
/// `sync_io_depth` of 32: operations of a page on parity levels, of 64 KiB on copies.
const PARITY_DEPTH: u64 = 32 * 4096;
const COPIES_DEPTH: u64 = 32 * 65_536;

/// What a task above the minimum does while users are active.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Yielding {
    Sleeps,
    Drains,
    /// Drains, but only if this depth is in flight.
    KeepsDepth,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Going,
    Asleep(Nanos),
    Draining,
}

#[derive(Clone, Debug)]
pub(super) struct Md {
    yielding: Yielding,
    state: State,
    pub(super) marks: Marks,
    /// Issued since the last test.
    issued: u64,
}

impl Md {
    pub(super) fn new(yielding: Yielding, view: &View, traffic: &mut Traffic) -> Md {
        // What was moved before the task began does not count, but for what a member may move and still be idle.
        traffic.idle();
        Md {
            yielding,
            state: State::Going,
            marks: Marks::new(MARKS, MARK_EVERY, view.now, view.let_go()),
            issued: 0,
        }
    }

    pub(super) fn issued(&mut self, bytes: u64) {
        self.issued += bytes;
    }

    pub(super) fn decide(
        &mut self,
        limits: Limits,
        view: &View,
        traffic: &mut Traffic,
    ) -> Decision {
        match self.state {
            State::Asleep(until) if view.now < until => {}
            State::Draining if view.in_flight > 0 => {}
            // The kernel goes on after such a wait without another test.
            State::Draining => self.state = State::Going,
            State::Asleep(_) => self.test(limits, view, traffic),
            State::Going if self.issued >= TEST_EVERY => self.test(limits, view, traffic),
            State::Going => {}
        }
        match self.state {
            State::Asleep(until) => Decision::Wait(until),
            State::Draining if view.in_flight > 0 => Decision::Hold,
            State::Draining | State::Going => self.go(view),
        }
    }

    fn test(&mut self, limits: Limits, view: &View, traffic: &mut Traffic) {
        self.issued = 0;
        self.marks.pass(view.now, view.moved);
        let speed = self.speed(view);
        self.state = State::Going;
        if speed <= limits.min / 1024 {
            return;
        }
        if speed > limits.max / 1024 {
            self.state = State::Asleep(view.now.after(SLEEP));
        } else if !self.keeps_within(view) && !traffic.idle() {
            self.state = match self.yielding {
                Yielding::Sleeps => State::Asleep(view.now.after(SLEEP)),
                Yielding::Drains | Yielding::KeepsDepth => State::Draining,
            };
        }
    }

    /// KiB a second, in md's arithmetic.
    fn speed(&self, view: &View) -> u64 {
        let (since, bytes) = self.marks.oldest();
        let seconds = view.now.since(since).0 / 1_000_000_000;
        view.moved.saturating_sub(bytes) / 1024 / (seconds + 1) + 1
    }

    /// So little is in flight that users are not asked about.
    fn keeps_within(&self, view: &View) -> bool {
        let depth = match view.parity {
            true => PARITY_DEPTH,
            false => COPIES_DEPTH,
        };
        self.yielding == Yielding::KeepsDepth && view.in_flight < depth
    }

    /// As much as is left until the next test, if the array has room for it.
    fn go(&self, view: &View) -> Decision {
        let most = match (view.depth, view.parity) {
            (Depth::Row, _) => view.window,
            (Depth::Pipeline, true) => PARITY_MOST,
            (Depth::Pipeline, false) => COPIES_MOST,
            (Depth::Buffers, _) => u64::MAX,
        };
        let room = most.saturating_sub(view.in_flight);
        if view.in_flight > 0 && room < view.window {
            return Decision::Hold;
        }
        let until_test = TEST_EVERY.saturating_sub(self.issued);
        Decision::Issue(until_test.min(room).max(view.window))
    }
}

#[cfg(test)]
mod tests {
    use super::super::throttle::{DEFAULT, Pacer};
    use super::*;
    use crate::contract::{Class, Throttle};
    use crate::members::ops::Owner;
    use crate::units::Member;

    const WINDOW: u64 = View::BEGUN.window;
    const MILLISECOND: Nanos = Nanos::from_millis(1);

    /// One window after another at a millisecond each, all that is issued at once in flight together.
    struct Run {
        pacer: Pacer,
        traffic: Traffic,
        view: View,
        held: u64,
        slept: u64,
        most_in_flight: u64,
    }

    impl Run {
        fn new(throttle: Throttle, limits: Limits) -> Run {
            Run::at(Depth::Pipeline, throttle, limits)
        }

        fn at(depth: Depth, throttle: Throttle, limits: Limits) -> Run {
            let mut view = View::BEGUN;
            view.depth = depth;
            let mut traffic = Traffic::default();
            Run {
                pacer: Pacer::new(throttle, limits, &view, &mut traffic),
                traffic,
                view,
                held: 0,
                slept: 0,
                most_in_flight: 0,
            }
        }

        /// Clients move this number of sectors of a member every millisecond.
        fn until(&mut self, end: Nanos, user_sectors: u64) {
            while self.view.now < end {
                self.ask();
                self.view.now = self.view.now.after(MILLISECOND);
                if self.view.in_flight > 0 {
                    self.view.in_flight -= WINDOW;
                    self.view.moved += WINDOW;
                }
                let (member, class) = (Member(0), Class::User);
                self.traffic.note(member, Owner::Flush, class, user_sectors);
            }
        }

        /// Below the minimum users do not count, and as much is in flight as can be.
        fn past_the_minimum(&mut self) {
            self.until(Nanos::from_secs(1), 65);
            self.most_in_flight = 0;
        }

        fn ask(&mut self) {
            match self.pacer.decide(&self.view, &mut self.traffic) {
                Decision::Issue(bytes) => {
                    self.pacer.issued(bytes);
                    self.view.in_flight += bytes;
                    self.most_in_flight = self.most_in_flight.max(self.view.in_flight);
                }
                Decision::Hold => self.held += 1,
                Decision::Wait(until) => {
                    self.slept += 1;
                    assert!(until <= self.view.now.after(SLEEP));
                }
            }
        }

        fn kib_a_second(&self) -> u64 {
            self.view.moved * 1_000_000_000 / 1024 / self.view.now.0
        }
    }

    const MINUTE: Nanos = Nanos::from_secs(60);

    #[test]
    fn alone_all_go_at_the_members_speed() {
        for throttle in [Throttle::Md26, Throttle::Md61, Throttle::Md2025] {
            let mut run = Run::new(throttle, DEFAULT);
            run.until(MINUTE, 0);
            assert_eq!((run.slept, run.kib_a_second()), (0, 64_000), "{throttle:?}");
            assert!(run.most_in_flight <= PARITY_MOST);
        }
    }

    #[test]
    fn an_order_may_have_more_in_flight_or_one_window() {
        let most = |depth| {
            let mut run = Run::at(depth, Throttle::Md61, DEFAULT);
            run.until(MINUTE, 0);
            run.most_in_flight
        };
        assert_eq!(most(Depth::Row), WINDOW);
        assert!(most(Depth::Buffers) > 2 * PARITY_MOST);
    }

    #[test]
    fn under_steady_load_md_2_6_sinks_to_the_minimum() {
        let mut run = Run::new(Throttle::Md26, DEFAULT);
        run.until(Nanos::from_secs(600), 65);
        let rate = run.kib_a_second();
        assert!((1000..1150).contains(&rate), "{rate}");
        assert!(run.slept > 0);
    }

    #[test]
    fn under_steady_load_md_6_1_only_drains() {
        let mut run = Run::new(Throttle::Md61, DEFAULT);
        run.past_the_minimum();
        run.until(MINUTE, 65);
        assert_eq!((run.slept, run.most_in_flight), (0, TEST_EVERY));
        assert!(run.held > 1000 && run.kib_a_second() > 60_000);
    }

    #[test]
    fn under_steady_load_md_2025_keeps_its_depth() {
        let mut run = Run::new(Throttle::Md2025, DEFAULT);
        run.past_the_minimum();
        run.until(MINUTE, 65);
        assert_eq!(run.slept, 0);
        assert!(run.most_in_flight > TEST_EVERY);
        assert!(run.most_in_flight <= PARITY_DEPTH + TEST_EVERY);
    }

    #[test]
    fn the_maximum_holds() {
        let limits = Limits {
            min: 1 << 20,
            max: 10 << 20,
        };
        for throttle in [Throttle::Md26, Throttle::Md61, Throttle::Md2025] {
            let mut run = Run::new(throttle, limits);
            run.until(MINUTE, 0);
            let rate = run.kib_a_second();
            assert!((9000..11_500).contains(&rate), "{throttle:?}: {rate}");
        }
    }

    #[test]
    fn a_trickle_of_users_is_idleness() {
        let mut run = Run::new(Throttle::Md26, DEFAULT);
        run.until(Nanos::from_millis(32), 2);
        assert_eq!(run.slept, 0, "no more than 64 sectors");
        run.until(Nanos::from_millis(100), 2);
        assert!(run.slept > 0, "they add up");
    }
}
