//! What paces a task, in which order it goes through the array, and how a growth moves, by name.

use core::fmt;
use restripe_format::units::Nanos;

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

/// How long users may take.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct LatencyGoal {
    /// Of a hundred reads and writes, so many: 1 to 99.
    pub percentile: u8,
    pub at_most: Nanos,
}

impl fmt::Display for LatencyGoal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}:{}", self.percentile, Lasting(self.at_most))
    }
}

/// A time as a person writes it: in the largest unit of which it is a whole number.
struct Lasting(Nanos);

const UNITS: [(&str, u64); 5] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
];

impl fmt::Display for Lasting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |(_, nanos): &&(&str, u64)| self.0.0.is_multiple_of(*nanos);
        match UNITS.iter().find(whole) {
            Some((unit, nanos)) => write!(f, "{}{unit}", self.0.0 / nanos),
            None => write!(f, "{}ns", self.0.0),
        }
    }
}

impl Lasting {
    /// `20ms`, `2h`: a whole number above zero, and its unit.
    fn named(text: &str) -> Option<Nanos> {
        let split = text.find(|letter: char| !letter.is_ascii_digit())?;
        let (digits, unit) = text.split_at(split);
        let (_, nanos) = UNITS.iter().find(|(name, _)| *name == unit)?;
        let nanos = digits.parse::<u64>().ok()?.checked_mul(*nanos)?;
        (nanos > 0).then_some(Nanos(nanos))
    }
}

/// An order by name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub enum Order {
    /// By address.
    #[default]
    Pr,
    /// By what users read meanwhile.
    Pro,
    /// By what users read before.
    Ido,
    /// By address, a row at a time.
    Sor,
    /// By address, no member waiting for another.
    Dor,
}

restripe_format::named! {
    /// Records of runs contain an order as its place in here.
    Order {
        Pr = "pr",
        Pro = "pro",
        Ido = "ido",
        Sor = "sor",
        Dor = "dor",
    }
}

/// How a growth by the least moves goes about them: the best way, McPod's own, and the best way less one of
/// McPod's techniques each, to be measured only.
///
/// | name | what a region takes | source |
/// |---|---|---|
/// | `best` | a read of each old member and a write of each new one; nothing of parity; on record from time to time | McPod, 3.2 and 3.5; not 3.3 and 3.4, which no row needs here |
/// | `chunkwise` | a read and a write for each chunk that moves | McPod without coalesced accesses (3.2) |
/// | `recorded` | as `best`, and on record before the next region | McPod without delayed metadata (3.5) |
/// | `parity-in-place` | as `best`, and parity read and written | McPod without a surrogate for parity (3.4) |
/// | `parity-recomputed` | as `best`, and all data read and parity written | and without piggybacking (3.3) |
/// | `parity-outsourced` | as `best`, and parity read on its member and written on a surrogate disk, which becomes parity's member | McPod with all of 3.1 to 3.5 |
///
/// Its fifth technique, moving the least (3.1), is the task itself: without it there is `Command::Reshape`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub enum Moves {
    #[default]
    Best,
    Chunkwise,
    Recorded,
    ParityInPlace,
    ParityRecomputed,
    ParityOutsourced,
}

restripe_format::named! {
    /// Records of runs contain a way of moving as its place in here.
    Moves {
        Best = "best",
        Chunkwise = "chunkwise",
        Recorded = "recorded",
        ParityInPlace = "parity-in-place",
        ParityRecomputed = "parity-recomputed",
        ParityOutsourced = "parity-outsourced",
    }
}

impl Moves {
    /// Those for arrays in service. At every moment each tolerates what the best way does.
    pub const SERVED: [Moves; 2] = [Moves::Best, Moves::ParityOutsourced];

    /// Those that need no drive but those that the array grows by.
    pub const WITHOUT_SURROGATE: [Moves; 5] = [
        Moves::Best,
        Moves::Chunkwise,
        Moves::Recorded,
        Moves::ParityInPlace,
        Moves::ParityRecomputed,
    ];

    /// Rows of a region go together, and neighbours on a member as one operation.
    pub const fn coalesces(self) -> bool {
        !matches!(self, Moves::Chunkwise)
    }

    pub const fn writes_parity(self) -> bool {
        matches!(self, Moves::ParityInPlace | Moves::ParityRecomputed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_lead_back() {
        for text in ["20ms", "500us", "2h", "90m", "61s", "1500ms"] {
            let time = Lasting::named(text).expect("a time");
            assert_eq!(alloc::format!("{}", Lasting(time)), text);
        }
        for text in [
            "",
            "20",
            "ms",
            "0ms",
            "-1s",
            "2 h",
            "2d",
            "99999999999999999h",
        ] {
            assert_eq!(Lasting::named(text), None, "{text}");
        }
    }
}
