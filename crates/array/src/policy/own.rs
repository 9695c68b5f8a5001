//! The engine's own throttle.
//!
//! Above the maximum a task waits. Above the minimum, while users are active, it goes a batch of neighbouring windows at
//! a time, and the next when all of it is done: users wait for one seek and a transfer, and a seek is paid by a batch;
//! otherwise it keeps all its windows busy. Users are idle when they moved nothing since the last look, a tenth of a
//! second ago (md: at most 64 sectors, and a window at a time; then a slow trickle of users is never seen). Speed is
//! taken over marks a second apart, the last ten (md: ten marks, three seconds apart; ours are closer because arrays
//! here are often small). An order that has a depth of its own goes in no batches: `dor` fills all buffers and `sor` has
//! one row, whether users are active or not.

use super::marks::Marks;
use super::order::Depth;
use super::throttle::{Decision, Limits, View};
use crate::units::Nanos;

const MARKS: usize = 10;
const MARK_EVERY: Nanos = Nanos::from_secs(1);
const LOOK_EVERY: Nanos = Nanos::from_millis(100);
/// In flight at full speed on each member, if there is room for so much.
pub(super) const FULL_SPEED: u64 = 4 << 20;
/// At full speed so many windows are out, however large one is.
const WINDOWS_MIN: u64 = 4;
/// A low maximum is reached in steps so small: not all at once, with a long wait after it.
const STEPS_A_SECOND: u64 = 4;
/// A batch between users' requests: as much as a disk transfers in about a seek.
pub(super) const BATCH: u64 = 1 << 20;

#[derive(Clone, Debug)]
pub(super) struct Own {
    pub(super) marks: Marks,
    user_sectors: u64,
    looked: Nanos,
    busy: bool,
}

impl Own {
    pub(super) fn new(view: &View) -> Own {
        Own {
            marks: Marks::new(MARKS, MARK_EVERY, view.now, view.let_go()),
            user_sectors: view.user_sectors,
            looked: view.now,
            busy: true,
        }
    }

    pub(super) fn decide(&mut self, limits: Limits, view: &View) -> Decision {
        self.marks.pass(view.now, view.moved);
        self.look(view);
        let rate = self.marks.rate(view.now, view.moved);
        if rate > limits.max {
            return Decision::Wait(self.until_slow_enough(limits, view));
        }
        let batches = rate > limits.min && self.busy;
        let most = match view.depth {
            Depth::Row => view.window,
            Depth::Buffers => u64::MAX,
            Depth::Pipeline if !batches => FULL_SPEED.max(WINDOWS_MIN * view.window),
            Depth::Pipeline if view.in_flight > 0 => 0,
            Depth::Pipeline => BATCH,
        };
        let room = most
            .min(limits.max / STEPS_A_SECOND)
            .max(view.window)
            .saturating_sub(view.in_flight);
        // Half a window more is none.
        match room < view.window {
            true => Decision::Hold,
            false => Decision::Issue(room),
        }
    }

    /// Are users active? Asked anew a few times a second, since single completions say little.
    fn look(&mut self, view: &View) {
        if view.now.since(self.looked) >= LOOK_EVERY {
            self.busy = view.user_sectors > self.user_sectors;
            self.user_sectors = view.user_sectors;
            self.looked = view.now;
        }
    }

    /// When the speed over the marks will have sunk to the maximum.
    fn until_slow_enough(&self, limits: Limits, view: &View) -> Nanos {
        let (since, bytes) = self.marks.oldest();
        let moved = u128::from(view.moved.saturating_sub(bytes));
        let nanos = moved * 1_000_000_000 / u128::from(limits.max.max(1));
        since
            .after(Nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
            .max(view.now.after(Nanos::from_millis(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::throttle::DEFAULT;
    use super::*;

    const WINDOW: u64 = View::BEGUN.window;

    /// A minute in which a window takes a millisecond and none overlaps another.
    fn run(limits: Limits, user_sectors_a_step: u64) -> (u64, u64) {
        run_at(Depth::Pipeline, limits, user_sectors_a_step)
    }

    fn run_at(depth: Depth, limits: Limits, user_sectors_a_step: u64) -> (u64, u64) {
        let mut view = View {
            depth,
            ..View::BEGUN
        };
        let (mut own, mut issued) = (Own::new(&view), 0);
        while view.now < Nanos::from_secs(60) {
            match own.decide(limits, &view) {
                Decision::Issue(bytes) => {
                    issued = bytes;
                    view.moved += WINDOW;
                    view.now = view.now.after(Nanos::from_millis(1));
                }
                Decision::Wait(until) => view.now = until,
                Decision::Hold => unreachable!("nothing is in flight"),
            }
            view.user_sectors += user_sectors_a_step;
        }
        (view.moved / 60, issued)
    }

    #[test]
    fn the_maximum_holds() {
        let (rate, _) = run(
            Limits {
                min: 1 << 20,
                max: 10 << 20,
            },
            0,
        );
        assert!(rate <= 11 << 20, "{rate}");
        assert!(rate >= 9 << 20, "{rate}");
    }

    #[test]
    fn a_low_maximum_is_kept_in_small_steps() {
        let max = 256 << 10;
        let limits = Limits { min: 0, max };
        assert_eq!(run(limits, 0).1, WINDOW);
    }

    #[test]
    fn users_make_a_task_above_its_minimum_go_in_batches() {
        assert_eq!(run(DEFAULT, 1).1, BATCH);
        assert_eq!(run(DEFAULT, 0).1, FULL_SPEED);
    }

    #[test]
    fn an_orders_own_depth_holds_with_users_and_without() {
        for users in [0, 1] {
            assert_eq!(run_at(Depth::Row, DEFAULT, users).1, WINDOW);
            assert!(run_at(Depth::Buffers, DEFAULT, users).1 > FULL_SPEED);
        }
    }

    #[test]
    fn no_depth_goes_beyond_the_maximum() {
        let limits = Limits {
            min: 1 << 20,
            max: 10 << 20,
        };
        assert!(run_at(Depth::Buffers, limits, 0).0 <= 11 << 20);
    }
}
