//! How fast a task may go: throttles by name, one of which paces each task.
//!
//! | name | above the minimum, while clients are active | file |
//! |---|---|---|
//! | `restripe` | a batch of neighbouring windows at a time, the next when all of it is done | this one, `Own` |
//! | `md-2.6` | sleeps half a second and looks again: under steady load it sinks to the minimum | `md` |
//! | `md-6.1` | waits until none of its own operations is in flight | `md` |
//! | `md-2025` | waits only while more than a small depth of its own is in flight | `md` |
//! | `p99:20ms` | so fast that 99 of a hundred requests of users take 20 ms at most; any of 1 to 99, any time | `goal` |
//! | `finish:2h` | so fast that it is done two hours after it began | `goal` |
//!
//! All keep to the minimum and maximum of [`Limits`]; md's also differ from ours in what idle means. How much is in flight
//! is theirs to say only for orders that leave it to them ([`Depth`]).

use super::goal::Goal;
use super::latency::Latencies;
use super::md::{Md, Yielding};
use super::order::Depth;
use super::traffic::Traffic;
use crate::contract::Throttle;
use crate::report::{Aim, Moved};
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

/// What a throttle sees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct View {
    pub(crate) now: Nanos,
    /// Bytes of one member that the task has moved so far.
    pub(crate) moved: u64,
    /// Bytes of one member in flight for the task.
    pub(crate) in_flight: u64,
    /// Bytes of a window.
    pub(crate) window: u64,
    /// Sectors that users have moved since the start.
    pub(crate) user_sectors: u64,
    /// The rows have parity; else they are copies.
    pub(crate) parity: bool,
    /// What the task's order says to what is in flight.
    pub(crate) depth: Depth,
    /// Bytes of one member that are not done.
    pub(crate) left: u64,
    /// When the task began.
    pub(crate) begun: Nanos,
}

impl View {
    /// Of a task of parity rows that begins and never ends, for tests.
    #[cfg(test)]
    pub(super) const BEGUN: View = View {
        now: Nanos::ZERO,
        moved: 0,
        in_flight: 0,
        window: 65_536,
        user_sectors: 0,
        parity: true,
        depth: Depth::Pipeline,
        left: u64::MAX,
        begun: Nanos::ZERO,
    };

    /// Bytes of one member that were let go before now, and do not count against what is let go from now on.
    pub(super) fn let_go(&self) -> u64 {
        self.moved + self.in_flight
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    /// This number of bytes more may be in flight in windows, or the window that exceeds it.
    Issue(u64),
    /// Nothing now; ask again when something of the task has completed.
    Hold,
    Wait(Nanos),
}

#[derive(Clone, Debug)]
enum Rule {
    Own(Own),
    Md(Md),
    Goal(Goal),
}

/// What paces one task.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    limits: Limits,
    rule: Rule,
}

impl Pacer {
    pub(crate) fn new(
        throttle: Throttle,
        limits: Limits,
        view: &View,
        traffic: &mut Traffic,
    ) -> Pacer {
        let mut md = |yielding| Rule::Md(Md::new(yielding, view, traffic));
        let rule = match throttle {
            Throttle::Restripe => Rule::Own(Own::new(view)),
            Throttle::Md26 => md(Yielding::Sleeps),
            Throttle::Md61 => md(Yielding::Drains),
            Throttle::Md2025 => md(Yielding::KeepsDepth),
            Throttle::Latency(goal) => Rule::Goal(Goal::latency(goal, limits, view)),
            Throttle::Finish(within) => Rule::Goal(Goal::finish(within, limits, view)),
        };
        Pacer { limits, rule }
    }

    pub(crate) fn decide(&mut self, view: &View, traffic: &mut Traffic) -> Decision {
        let decision = match &mut self.rule {
            Rule::Own(own) => own.decide(self.limits, view),
            Rule::Md(md) => md.decide(self.limits, view, traffic),
            Rule::Goal(goal) => goal.decide(view),
        };
        debug_assert!(
            decision != Decision::Hold || view.in_flight > 0,
            "something completes"
        );
        decision
    }

    /// Windows of this number of bytes were issued.
    pub(crate) fn issued(&mut self, bytes: u64) {
        match &mut self.rule {
            Rule::Own(_) => {}
            Rule::Md(md) => md.issued(bytes),
            Rule::Goal(goal) => goal.issued(bytes),
        }
    }

    /// A client's read or write has ended, after this time.
    pub(crate) fn note_latency(&mut self, latency: Nanos) {
        if let Rule::Goal(goal) = &mut self.rule {
            goal.note_latency(latency);
        }
    }

    /// What it aims at, if at anything, and how it fares.
    pub(crate) fn aim(&self, view: &View, latencies: &Latencies) -> Option<Aim> {
        let Rule::Goal(goal) = &self.rule else {
            return None;
        };
        Some(goal.aim(view, |percentile| {
            latencies.percentile(view.now, percentile)
        }))
    }

    /// What a task that has moved `moved` bytes in all moved since the oldest mark.
    pub(crate) fn moved_lately(&self, moved: u64) -> Moved {
        let marks = match &self.rule {
            Rule::Own(own) => &own.marks,
            Rule::Md(md) => &md.marks,
            Rule::Goal(goal) => &goal.marks,
        };
        marks.moved_lately(moved)
    }
}

/// The most marks that any throttle keeps.
const MOST: usize = 11;

/// How fast a task goes: what it had moved at moments in the past, and the speed since the oldest of them.
#[derive(Clone, Debug)]
pub(crate) struct Marks {
    /// When, and how many bytes of one member had been moved by then. The first `count` are in use.
    ring: [(Nanos, u64); MOST],
    count: usize,
    /// The oldest, which the next mark replaces.
    next: usize,
    every: Nanos,
}

impl Marks {
    pub(crate) fn new(count: usize, every: Nanos, now: Nanos, moved: u64) -> Marks {
        assert!((1..=MOST).contains(&count), "as many as there is room for");
        Marks {
            ring: [(now, moved); MOST],
            count,
            next: 0,
            every,
        }
    }

    /// Makes a mark if it is time.
    pub(crate) fn pass(&mut self, now: Nanos, moved: u64) {
        let newest = self.ring[(self.next + self.count - 1) % self.count].0;
        if now.since(newest) >= self.every {
            self.ring[self.next] = (now, moved);
            self.next = (self.next + 1) % self.count;
        }
    }

    pub(crate) fn oldest(&self) -> (Nanos, u64) {
        self.ring[self.next]
    }

    /// What was moved since the oldest mark, if `moved` bytes were moved in all. Bytes that were in flight at
    /// that mark are not counted.
    pub(crate) fn moved_lately(&self, moved: u64) -> Moved {
        let (since, before) = self.oldest();
        let bytes = moved.saturating_sub(before);
        Moved { since, bytes }
    }

    /// Bytes a second since the oldest.
    pub(crate) fn rate(&self, now: Nanos, moved: u64) -> u64 {
        self.moved_lately(moved).rate(now)
    }
}

const MARKS: usize = 10;
const MARK_EVERY: Nanos = Nanos::from_secs(1);
const LOOK_EVERY: Nanos = Nanos::from_millis(100);
/// Bytes in flight on each member at full speed, if buffers allow.
pub(super) const FULL_SPEED: u64 = 4 << 20;
/// Windows in flight at full speed, at least, whatever their size.
const WINDOWS_MIN: u64 = 4;
/// A low maximum is reached in steps so small: not all at once, with a long wait after it.
const STEPS_A_SECOND: u64 = 4;
/// A batch between users' requests: as much as a disk transfers in about a seek.
pub(super) const BATCH: u64 = 1 << 20;

/// The engine's own throttle.
///
/// Above the maximum a task waits. Above the minimum, while users are active, it goes a batch of neighbouring
/// windows at a time, and the next when all of it is done: users wait for one seek and a transfer, and a seek
/// is paid by a batch; otherwise it keeps all its windows busy. Users are idle when they moved nothing since
/// the last look, a tenth of a second ago (md: at most 64 sectors, and a window at a time; then a slow
/// trickle of users is never seen). Speed is taken over marks a second apart, the last ten (md: ten marks,
/// three seconds apart; ours are closer because arrays here are often small). An order that has a depth of
/// its own goes in no batches: `dor` fills all buffers and `sor` has one row, whether users are active or
/// not.
#[derive(Clone, Debug)]
struct Own {
    marks: Marks,
    user_sectors: u64,
    looked: Nanos,
    busy: bool,
}

impl Own {
    fn new(view: &View) -> Own {
        Own {
            marks: Marks::new(MARKS, MARK_EVERY, view.now, view.let_go()),
            user_sectors: view.user_sectors,
            looked: view.now,
            busy: true,
        }
    }

    fn decide(&mut self, limits: Limits, view: &View) -> Decision {
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
        let most = most.min(limits.max / STEPS_A_SECOND).max(view.window);
        let room = most.saturating_sub(view.in_flight);
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
    use super::*;

    #[test]
    fn names_lead_back() {
        let hours = Throttle::Finish(Nanos::from_secs(7200));
        let goal = Throttle::latency(95, Nanos::from_millis(20)).expect("a share");
        for throttle in Throttle::PLAIN.into_iter().chain([hours, goal]) {
            let name = alloc::format!("{throttle}");
            assert_eq!(Throttle::named(&name), Some(throttle), "{name}");
        }
        assert_eq!(alloc::format!("{goal} {hours}"), "p95:20ms finish:2h");
        for name in [
            "md",
            "p99",
            "p0:1s",
            "p100:1s",
            "p:1s",
            "p99:",
            "finish",
            "finish:0s",
        ] {
            assert_eq!(Throttle::named(name), None, "{name}");
        }
    }

    const WINDOW: u64 = View::BEGUN.window;
    const LIMITS: Limits = Limits {
        min: 1 << 20,
        max: 10 << 20,
    };

    /// A minute in which a window takes a millisecond and none overlaps another.
    fn run(limits: Limits, user_sectors_a_step: u64) -> (u64, u64) {
        run_at(Depth::Pipeline, limits, user_sectors_a_step)
    }

    fn run_at(depth: Depth, limits: Limits, user_sectors_a_step: u64) -> (u64, u64) {
        let mut view = View::BEGUN;
        view.depth = depth;
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
        let (rate, _) = run(LIMITS, 0);
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
        assert!(run_at(Depth::Buffers, LIMITS, 0).0 <= 11 << 20);
    }
}
