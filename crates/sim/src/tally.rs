//! Counts by key, and their sums over many runs.

use std::collections::BTreeMap;

/// How often each key was counted.
pub type Tally<K> = BTreeMap<K, u64>;

/// Adds the counts of `more`.
pub fn add<K: Ord + Copy>(sums: &mut Tally<K>, more: &Tally<K>) {
    for (key, times) in more {
        *sums.entry(*key).or_default() += times;
    }
}
