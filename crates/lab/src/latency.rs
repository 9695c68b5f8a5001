//! Samples of a load, and what is computed from them: quantiles by phase, the course over time.
//!
//! Samples are kept whole and quantiles are exact: a demonstration of a minute has a million of them.

use std::fmt;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    Read,
    Write,
    Flush,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
        })
    }
}

/// One answered request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// When the answer came, in microseconds since the load began.
    pub at_us: u64,
    pub latency_us: u32,
    pub bytes: u32,
    pub op: Op,
}

/// A named part of the time, from `from_us` on and before `to_us`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Phase {
    pub name: String,
    pub from_us: u64,
    pub to_us: u64,
}

impl Phase {
    pub fn new(name: &str, from_us: u64, to_us: u64) -> Phase {
        Phase {
            name: name.into(),
            from_us,
            to_us,
        }
    }

    pub fn length_us(&self) -> u64 {
        self.to_us.saturating_sub(self.from_us)
    }
}

/// What a set of samples comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Summary {
    pub requests: u64,
    pub bytes: u64,
    pub p50_us: u32,
    pub p99_us: u32,
    pub max_us: u32,
}

impl Summary {
    /// Bytes a second over so many microseconds.
    pub fn rate(&self, length_us: u64) -> u64 {
        per_second(self.bytes, length_us)
    }

    /// Requests a second over so many microseconds.
    pub fn request_rate(&self, length_us: u64) -> u64 {
        per_second(self.requests, length_us)
    }
}

fn per_second(count: u64, length_us: u64) -> u64 {
    let rate = u128::from(count) * 1_000_000 / u128::from(length_us.max(1));
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// The part of samples, in order of time, that lies in a phase.
pub fn within<'a>(samples: &'a [Sample], phase: &Phase) -> &'a [Sample] {
    let from = samples.partition_point(|sample| sample.at_us < phase.from_us);
    let to = samples.partition_point(|sample| sample.at_us < phase.to_us);
    &samples[from..to.max(from)]
}

pub fn summarize(samples: &[Sample]) -> Summary {
    let mut latencies: Vec<u32> = samples.iter().map(|sample| sample.latency_us).collect();
    latencies.sort_unstable();
    Summary {
        requests: samples.len() as u64,
        bytes: samples.iter().map(|sample| u64::from(sample.bytes)).sum(),
        p50_us: quantile(&latencies, 50),
        p99_us: quantile(&latencies, 99),
        max_us: latencies.last().copied().unwrap_or(0),
    }
}

/// The smallest value that `percent` of a hundred of the sorted values do not exceed; 0 of none.
pub fn quantile(sorted: &[u32], percent: usize) -> u32 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

/// The samples of one step of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    pub from_us: u64,
    pub summary: Summary,
}

/// The course over time, in steps of equal length; a step without answers has zero requests.
pub fn course(samples: &[Sample], step_us: u64) -> Vec<Step> {
    assert!(step_us > 0, "time goes on");
    let last = samples.last();
    let end = last.map_or(0, |sample| sample.at_us / step_us + 1);
    let step = |number: u64| {
        let phase = Phase::new("", number * step_us, (number + 1) * step_us);
        let (from_us, summary) = (phase.from_us, summarize(within(samples, &phase)));
        Step { from_us, summary }
    };
    (0..end).map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(count: u64) -> Vec<Sample> {
        let sample = |n| Sample {
            at_us: n * 10,
            latency_us: n as u32,
            bytes: 4096,
            op: Op::Read,
        };
        (0..count).map(sample).collect()
    }

    #[test]
    fn quantiles_are_exact() {
        let hundred: Vec<u32> = (1..=100).collect();
        let of_hundred = [50, 99, 100].map(|percent| quantile(&hundred, percent));
        assert_eq!(of_hundred, [50, 99, 100]);
        assert_eq!([50, 99].map(|percent| quantile(&[7], percent)), [7, 7]);
        assert_eq!(quantile(&[], 50), 0);
    }

    #[test]
    fn phases_and_steps_part_the_samples() {
        let all = samples(100);
        let phase = Phase::new("middle", 100, 200);
        assert_eq!(within(&all, &phase).len(), 10);
        assert_eq!(within(&all, &Phase::new("empty", 5000, 6000)).len(), 0);
        let steps = course(&all, 300);
        let counts = steps.iter().map(|step| step.summary.requests);
        assert_eq!(counts.collect::<Vec<_>>(), [30, 30, 30, 10]);
    }

    #[test]
    fn rates_are_per_second() {
        let summary = summarize(&samples(100));
        assert_eq!(summary.request_rate(500_000), 200);
        assert_eq!(summary.rate(1_000_000), 409_600);
    }
}
