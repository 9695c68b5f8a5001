//! How fast a task may go: md's minimum and maximum speed, and a rule of idleness.
//!
//! Above the maximum a task waits. Above the minimum, while users are active, it goes a batch of neighbouring windows at
//! a time, and the next when all of it is done: users wait for one seek and a transfer, and a seek is paid by a batch;
//! otherwise it keeps all its windows busy. Users are idle when they moved nothing since the last look, a tenth of a
//! second ago (md: at most 64 sectors, and a window at a time; then a slow trickle of users is never seen). Speed is
//! taken over marks a second apart, the last ten (md: ten marks, three seconds apart; ours are closer because arrays
//! here are often small).

use crate::units::Nanos;

/// Bytes a second of one member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Limits {
    pub(crate) min: u64,
    pub(crate) max: u64,
}

/// md's defaults, 1,000 and 200,000 KiB/s, but for a maximum that today's disks do not reach.
pub(crate) const DEFAULT: Limits = Limits {
    min: 1000 * 1024,
    max: 2_000_000 * 1024,
};

/// What the policy sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct View {
    pub(crate) now: Nanos,
    /// Bytes of one member done so far.
    pub(crate) done: u64,
    /// Sectors that users have moved since the start.
    pub(crate) user_sectors: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    /// Up to so many bytes of windows in flight on each member.
    Windows(u64),
    /// So many bytes of windows, once none is in flight.
    Batch(u64),
    Wait(Nanos),
}

const MARKS: usize = 10;
const MARK_EVERY: Nanos = Nanos::from_secs(1);
/// In flight at full speed on each member, if there is room for so much.
const FULL_SPEED: u64 = 4 << 20;
/// A batch between users' requests: as much as a disk transfers in about a seek.
const BATCH: u64 = 1 << 20;

#[derive(Clone, Debug)]
pub(crate) struct Throttle {
    pub(crate) limits: Limits,
    marks: [(Nanos, u64); MARKS],
    next: usize,
    user_sectors: u64,
    looked: Nanos,
    busy: bool,
}

impl Throttle {
    pub(crate) fn new(limits: Limits, view: View) -> Throttle {
        Throttle {
            limits,
            marks: [(view.now, view.done); MARKS],
            next: 0,
            user_sectors: view.user_sectors,
            looked: view.now,
            busy: true,
        }
    }

    /// Bytes a second over the marks.
    pub(crate) fn rate(&self, now: Nanos, done: u64) -> u64 {
        let (since, bytes) = self.marks[self.next];
        let nanos = now.since(since).0.max(1);
        let rate = u128::from(done.saturating_sub(bytes)) * 1_000_000_000 / u128::from(nanos);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }

    pub(crate) fn decide(&mut self, view: View) -> Decision {
        let newest = self.marks[(self.next + MARKS - 1) % MARKS].0;
        if view.now.since(newest) >= MARK_EVERY {
            self.marks[self.next] = (view.now, view.done);
            self.next = (self.next + 1) % MARKS;
        }
        self.look(view);
        let rate = self.rate(view.now, view.done);
        if rate > self.limits.max {
            return Decision::Wait(self.until_slow_enough(view));
        }
        if rate > self.limits.min && self.busy {
            Decision::Batch(BATCH)
        } else {
            Decision::Windows(FULL_SPEED)
        }
    }

    /// Are users active? Asked anew a few times a second, since single completions say little.
    fn look(&mut self, view: View) {
        if view.now.since(self.looked) >= Nanos::from_millis(100) {
            self.busy = view.user_sectors > self.user_sectors;
            self.user_sectors = view.user_sectors;
            self.looked = view.now;
        }
    }

    /// When the speed over the marks will have sunk to the maximum.
    fn until_slow_enough(&self, view: View) -> Nanos {
        let (since, bytes) = self.marks[self.next];
        let moved = u128::from(view.done.saturating_sub(bytes));
        let nanos = moved * 1_000_000_000 / u128::from(self.limits.max.max(1));
        since
            .after(Nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
            .max(view.now.after(Nanos::from_millis(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(limits: Limits, user_sectors_a_step: u64) -> (u64, u64) {
        let start = View {
            now: Nanos::ZERO,
            done: 0,
            user_sectors: 0,
        };
        let mut throttle = Throttle::new(limits, start);
        let (mut now, mut done, mut users, mut windows) = (Nanos::ZERO, 0, 0, 0);
        while now < Nanos::from_secs(60) {
            match throttle.decide(View {
                now,
                done,
                user_sectors: users,
            }) {
                Decision::Windows(count) | Decision::Batch(count) => {
                    windows = count;
                    done += 65_536;
                    now = now.after(Nanos::from_millis(1));
                }
                Decision::Wait(until) => now = until,
            }
            users += user_sectors_a_step;
        }
        (done / 60, windows)
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
    fn users_make_a_task_above_its_minimum_go_in_batches() {
        assert_eq!(run(DEFAULT, 1).1, BATCH);
        assert_eq!(run(DEFAULT, 0).1, FULL_SPEED);
    }
}
