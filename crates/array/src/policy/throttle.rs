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

use super::goal::{Goal, Lasting, LatencyGoal};
use super::latency::Latencies;
use super::md::{Md, Yielding};
use super::order::Depth;
use super::own::Own;
use super::traffic::Traffic;
use crate::report::{Aim, Moved};
use crate::units::Nanos;
use core::fmt;

/// A throttle by name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub enum Throttle {
    /// The engine's own.
    #[default]
    Restripe,
    /// Linux md as of the 2.6 kernels.
    Md26,
    /// Linux md as of kernel 6.1.
    Md61,
    /// Linux md since 2025, with a depth of resynchronisation that users do not stop.
    Md2025,
    /// As fast as users' latency lets.
    Latency(LatencyGoal),
    /// To be done so long after it began.
    Finish(Nanos),
}

impl Throttle {
    /// Those that are a name and nothing else. Records of runs tell one by its place in here.
    pub const PLAIN: [Throttle; 4] = [
        Throttle::Restripe,
        Throttle::Md26,
        Throttle::Md61,
        Throttle::Md2025,
    ];

    /// How each is written, for messages.
    pub const FORMS: [&str; 6] = [
        "restripe",
        "md-2.6",
        "md-6.1",
        "md-2025",
        "p99:TIME",
        "finish:TIME",
    ];

    pub fn named(name: &str) -> Option<Throttle> {
        let plain = |(form, throttle)| (form == name).then_some(throttle);
        let mut all = Throttle::FORMS.into_iter().zip(Throttle::PLAIN);
        all.find_map(plain).or_else(|| Throttle::with_goal(name))
    }

    fn with_goal(name: &str) -> Option<Throttle> {
        let (goal, time) = name.split_once(':')?;
        let time = Lasting::named(time)?;
        if goal == "finish" {
            return Some(Throttle::Finish(time));
        }
        let percentile = goal.strip_prefix('p')?.parse().ok()?;
        Throttle::latency(percentile, time)
    }

    /// Users' latency as the goal: 1 to 99 of a hundred requests.
    pub fn latency(percentile: u8, at_most: Nanos) -> Option<Throttle> {
        let goal = LatencyGoal {
            percentile,
            at_most,
        };
        (1..=99)
            .contains(&percentile)
            .then_some(Throttle::Latency(goal))
    }
}

/// The name, which leads back to it.
impl fmt::Display for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Throttle::Restripe => f.write_str(Throttle::FORMS[0]),
            Throttle::Md26 => f.write_str(Throttle::FORMS[1]),
            Throttle::Md61 => f.write_str(Throttle::FORMS[2]),
            Throttle::Md2025 => f.write_str(Throttle::FORMS[3]),
            Throttle::Latency(goal) => write!(f, "{goal}"),
            Throttle::Finish(within) => write!(f, "finish:{}", Lasting(*within)),
        }
    }
}

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
        match &self.rule {
            Rule::Own(own) => own.marks().moved_lately(moved),
            Rule::Md(md) => md.marks().moved_lately(moved),
            Rule::Goal(goal) => goal.marks().moved_lately(moved),
        }
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
