//! How fast a task may go: throttles by name, one of which paces each task.
//!
//! | name | above the minimum, while users are active | file |
//! |---|---|---|
//! | `restripe` | a batch of neighbouring windows at a time, the next when all of it is done | `own` |
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
use super::own::Own;
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
    /// So many bytes more of windows may be in flight, or the window that takes it beyond that.
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

    /// So many bytes of windows were issued.
    pub(crate) fn issued(&mut self, bytes: u64) {
        match &mut self.rule {
            Rule::Own(_) => {}
            Rule::Md(md) => md.issued(bytes),
            Rule::Goal(goal) => goal.issued(bytes),
        }
    }

    /// A read or write of a user took so long.
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

    /// Since the oldest mark, of a task that has moved so much.
    pub(crate) fn moved_lately(&self, moved: u64) -> Moved {
        let marks = match &self.rule {
            Rule::Own(own) => &own.marks,
            Rule::Md(md) => &md.marks,
            Rule::Goal(goal) => &goal.marks,
        };
        marks.moved_lately(moved)
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
}
