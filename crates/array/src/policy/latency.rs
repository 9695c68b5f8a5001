//! How long users' reads and writes take, from admission to reply: counts in buckets, over the last seconds.
//!
//! Two windows of ten seconds: the one in progress and the one before. A bucket is an eighth of a doubling wide, so what is
//! told is up to an eighth above the truth and never below it. Memory is fixed, and a request costs an addition. What a
//! shell holds back because the engine has no room is not admitted yet, and not counted.

use crate::units::Nanos;

const WINDOW: Nanos = Nanos::from_secs(10);
/// Buckets to a doubling.
const PARTS: u64 = 8;
const PARTS_BITS: u32 = PARTS.trailing_zeros();
/// A unit is 1,024 ns; what takes 2^31 of them, over half an hour, is as good as what takes longer.
const UNIT_BITS: u32 = 10;
const DOUBLINGS: u32 = 31;
const BUCKETS: usize = ((DOUBLINGS - PARTS_BITS + 1) << PARTS_BITS) as usize;

#[derive(Clone, Debug)]
struct Histogram([u32; BUCKETS]);

impl Histogram {
    const EMPTY: Histogram = Histogram([0; BUCKETS]);
}

#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    now: Histogram,
    before: Histogram,
    /// When the window in progress began.
    began: Nanos,
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies {
            now: Histogram::EMPTY,
            before: Histogram::EMPTY,
            began: Nanos::ZERO,
        }
    }
}

impl Latencies {
    pub(crate) fn note(&mut self, now: Nanos, latency: Nanos) {
        self.pass(now);
        let count = &mut self.now.0[bucket(latency)];
        *count = count.saturating_add(1);
    }

    /// What so many of a hundred do not exceed, over the last ten to twenty seconds. None if there were too few for as much
    /// as one to exceed it.
    pub(crate) fn percentile(&self, now: Nanos, percentile: u8) -> Option<Nanos> {
        let in_use: &[&Histogram] = match now.since(self.began).0 / WINDOW.0 {
            0 => &[&self.now, &self.before],
            1 => &[&self.now],
            _ => &[],
        };
        let counted = |at: usize| in_use.iter().map(|window| u64::from(window.0[at])).sum();
        let total: u64 = (0..BUCKETS).map(counted).sum();
        let above = total * u64::from(100 - percentile) / 100;
        if above == 0 {
            return None;
        }
        let mut left = total - above;
        let holds_it = |at: &usize| {
            let counted: u64 = counted(*at);
            let found = counted >= left;
            left = left.saturating_sub(counted);
            found
        };
        (0..BUCKETS).find(holds_it).map(upper_end)
    }

    fn pass(&mut self, now: Nanos) {
        match now.since(self.began).0 / WINDOW.0 {
            0 => return,
            1 => core::mem::swap(&mut self.now, &mut self.before),
            _ => self.before = Histogram::EMPTY,
        }
        self.now = Histogram::EMPTY;
        self.began = now;
    }
}

fn bucket(latency: Nanos) -> usize {
    let units = latency.0 >> UNIT_BITS;
    let doublings = units.max(1).ilog2();
    let at = match doublings.checked_sub(PARTS_BITS) {
        None => units,
        Some(above) => (u64::from(above) << PARTS_BITS) + (units >> above),
    };
    at.min(BUCKETS as u64 - 1) as usize
}

/// Above everything in a bucket.
fn upper_end(bucket: usize) -> Nanos {
    let next = bucket as u64 + 1;
    let units = match (next / PARTS).checked_sub(1) {
        None => next,
        Some(above) => (PARTS + next % PARTS) << above,
    };
    Nanos(units << UNIT_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = Nanos::from_secs(1);

    #[test]
    fn a_bucket_holds_what_lies_below_its_end_and_within_an_eighth() {
        let mut latency = 1_u64;
        while latency < 1 << 41 {
            let end = upper_end(bucket(Nanos(latency))).0;
            let slack = latency / 8 + (1 << UNIT_BITS);
            assert!((latency + 1..=latency + slack).contains(&end), "{latency}");
            latency += latency / 97 + 1;
        }
        let ends: alloc::vec::Vec<Nanos> = (0..BUCKETS).map(upper_end).collect();
        assert!(ends.is_sorted_by(|a, b| a < b));
        assert_eq!(bucket(Nanos(u64::MAX)), BUCKETS - 1);
    }

    #[test]
    fn one_of_a_hundred_may_exceed_it() {
        let mut latencies = Latencies::default();
        for request in 0..99 {
            latencies.note(SECOND, Nanos::from_millis(10));
            assert_eq!(latencies.percentile(SECOND, 99), None, "{request}");
        }
        latencies.note(SECOND, Nanos::from_millis(500));
        let told = latencies.percentile(SECOND, 99).expect("a hundred");
        assert!((10_000_000..11_300_000).contains(&told.0), "{told:?}");
        latencies.note(SECOND, Nanos::from_millis(500));
        let told = latencies.percentile(SECOND, 99).expect("some");
        assert!(told > Nanos::from_millis(500), "{told:?}");
        let half = latencies.percentile(SECOND, 50).expect("some");
        assert!(half < Nanos::from_millis(12), "{half:?}");
    }

    #[test]
    fn what_was_long_ago_does_not_count() {
        let mut latencies = Latencies::default();
        let note = |latencies: &mut Latencies, second: u64, latency| {
            for _ in 0..200 {
                latencies.note(Nanos::from_secs(second), latency);
            }
        };
        let told = |latencies: &Latencies, second: u64| {
            let told = latencies.percentile(Nanos::from_secs(second), 99);
            told.map(|told| told > Nanos::from_millis(100))
        };
        note(&mut latencies, 1, Nanos::from_millis(200));
        note(&mut latencies, 11, Nanos::from_millis(20));
        assert_eq!(told(&latencies, 15), Some(true));
        assert_eq!(told(&latencies, 22), Some(false));
        assert_eq!(told(&latencies, 31), None);
        note(&mut latencies, 60, Nanos::from_millis(20));
        assert_eq!(told(&latencies, 60), Some(false));
    }
}
