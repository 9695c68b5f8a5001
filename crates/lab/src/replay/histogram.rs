//! Times in a histogram of fixed size: any number of samples, quantiles within one part in 128, whole
//! numbers only.
//!
//! The buckets are those of an HDR histogram: a power of two is cut into 128 equal parts. Memory is that of
//! the buckets (58 KiB), whatever the number of samples; the order in which samples come does not matter.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Parts of a power of two, as a power of two.
const PART_BITS: u32 = 7;
const PARTS: u64 = 1 << PART_BITS;
const BUCKETS: usize = ((64 - PART_BITS as usize) + 1) << PART_BITS;

#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: u128,
    max: u64,
}

/// What a set of times comes to, in nanoseconds. All zero of none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Times {
    pub count: u64,
    /// Rounded down.
    pub mean_ns: u64,
    pub p50_ns: u64,
    pub p95_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            counts: vec![0; BUCKETS],
            count: 0,
            sum: 0,
            max: 0,
        }
    }
}

impl Histogram {
    pub fn add(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.count += 1;
        self.sum += u128::from(ns);
        self.max = self.max.max(ns);
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn clear(&mut self) {
        if self.count > 0 {
            self.counts.fill(0);
            (self.count, self.sum, self.max) = (0, 0, 0);
        }
    }

    /// The largest value of the bucket that holds the sample of this rank, but no more than the largest sample.
    /// `permille` of a thousand of the samples do not exceed it.
    pub fn quantile(&self, permille: u64) -> u64 {
        let rank = (u128::from(self.count) * u128::from(permille)).div_ceil(1000);
        let mut seen = 0u128;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += u128::from(*count);
            if seen >= rank && seen > 0 {
                return top(bucket).min(self.max);
            }
        }
        0
    }

    pub fn times(&self) -> Times {
        Times::of(self.count, self.sum, self.max, |permille| {
            self.quantile(permille)
        })
    }

    /// Largest value and count of each bucket that holds anything, in order.
    pub fn buckets(&self) -> Vec<(u64, u64)> {
        let counts = self.counts.iter().enumerate();
        let filled = counts.filter(|(_, count)| **count > 0);
        filled
            .map(|(bucket, count)| (top(bucket), *count))
            .collect()
    }
}

impl Times {
    fn of(count: u64, sum: u128, max_ns: u64, quantile: impl Fn(u64) -> u64) -> Times {
        let mean = sum.checked_div(u128::from(count)).unwrap_or(0);
        Times {
            count,
            mean_ns: u64::try_from(mean).unwrap_or(u64::MAX),
            p50_ns: quantile(500),
            p95_ns: quantile(950),
            p99_ns: quantile(990),
            max_ns,
        }
    }
}

/// What two sets of buckets come to together.
pub fn merged(one: &[(u64, u64)], other: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut counts = BTreeMap::new();
    for (top, count) in one.iter().chain(other) {
        *counts.entry(*top).or_insert(0) += count;
    }
    counts.into_iter().collect()
}

/// The times of two sets as those of one, whose buckets these are; without buckets there are no quantiles.
pub fn both(one: &Times, other: &Times, buckets: &[(u64, u64)]) -> Times {
    let count = one.count + other.count;
    let sum = |times: &Times| u128::from(times.count) * u128::from(times.mean_ns);
    let max_ns = one.max_ns.max(other.max_ns);
    let quantile = |permille: u64| {
        let rank = (u128::from(count) * u128::from(permille)).div_ceil(1000);
        let mut seen = 0u128;
        let reached = buckets.iter().find(|(_, count)| {
            seen += u128::from(*count);
            seen >= rank
        });
        reached.map_or(0, |(top, _)| *top.min(&max_ns))
    };
    Times::of(count, sum(one) + sum(other), max_ns, quantile)
}

fn bucket(value: u64) -> usize {
    if value < PARTS {
        return value as usize;
    }
    let shift = value.ilog2() - PART_BITS;
    ((u64::from(shift) << PART_BITS) + (value >> shift)) as usize
}

/// The largest value of a bucket.
fn top(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * PARTS {
        return bucket;
    }
    let shift = (bucket >> PART_BITS) - 1;
    let part = u128::from(bucket - (shift << PART_BITS)) + 1;
    u64::try_from((part << shift) - 1).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sets_together_are_as_one() {
        let [mut one, mut other, mut all] = [(); 3].map(|()| Histogram::default());
        for ns in (0..5000).map(|i: u64| i * i * 997 % 1_000_003) {
            let part = if ns % 3 == 0 { &mut one } else { &mut other };
            part.add(ns);
            all.add(ns);
        }
        let buckets = merged(&one.buckets(), &other.buckets());
        assert_eq!(buckets, all.buckets());
        let together = both(&one.times(), &other.times(), &buckets);
        // Each mean was rounded down.
        let mut whole = all.times();
        assert!(whole.mean_ns - together.mean_ns <= 1);
        whole.mean_ns = together.mean_ns;
        assert_eq!(together, whole);
        let none = Times::default();
        assert_eq!(both(&none, &none, &[]), none);
    }

    #[test]
    fn a_bucket_holds_its_values_and_no_others() {
        for value in [0, 1, 127, 128, 255, 256, 1000, 1_000_000_007, u64::MAX] {
            let place = bucket(value);
            assert!(place < BUCKETS);
            assert!(top(place) >= value, "{value}");
            assert!(top(place) - value <= value / 128, "{value}");
            assert!(place == 0 || top(place - 1) < value, "{value}");
        }
    }

    #[test]
    fn quantiles_are_those_of_the_samples() {
        let mut histogram = Histogram::default();
        (1..=100).for_each(|ns| histogram.add(ns));
        let times = histogram.times();
        assert_eq!((times.p50_ns, times.p95_ns, times.p99_ns), (50, 95, 99));
        assert_eq!((times.count, times.mean_ns, times.max_ns), (100, 50, 100));
        histogram.clear();
        assert_eq!(histogram.times(), Times::default());
    }

    #[test]
    fn the_largest_sample_bounds_every_quantile() {
        let mut histogram = Histogram::default();
        histogram.add(1_000_001);
        assert_eq!(histogram.quantile(500), 1_000_001);
        assert_eq!(histogram.buckets().len(), 1);
    }
}
