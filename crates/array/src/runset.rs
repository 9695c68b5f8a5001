//! A set of numbers kept as runs: what a task has done, which rows are in sync.

use alloc::vec::Vec;

/// Sorted, disjoint, non-adjacent runs `(first, count)`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RunSet {
    runs: Vec<(u64, u64)>,
}

impl RunSet {
    pub fn from_runs(runs: &[(u64, u64)]) -> RunSet {
        let mut set = RunSet::default();
        for &(first, count) in runs {
            set.insert(first, count);
        }
        set
    }

    pub fn runs(&self) -> &[(u64, u64)] {
        &self.runs
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// How many numbers are in the set.
    pub(crate) fn len(&self) -> u64 {
        self.runs.iter().map(|run| run.1).sum()
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        let after = self.runs.partition_point(|run| run.0 <= number);
        after > 0 && number - self.runs[after - 1].0 < self.runs[after - 1].1
    }

    /// The first number at or after `from` that is not in the set.
    pub(crate) fn first_gap(&self, from: u64) -> u64 {
        let after = self.runs.partition_point(|run| run.0 <= from);
        match after.checked_sub(1).map(|i| self.runs[i]) {
            Some((first, count)) if from - first < count => first + count,
            _ => from,
        }
    }

    /// The first number after `from`, not before it, that is in the set.
    pub(crate) fn next_member(&self, from: u64) -> Option<u64> {
        if self.contains(from) {
            return Some(from);
        }
        self.runs
            .get(self.runs.partition_point(|run| run.0 <= from))
            .map(|run| run.0)
    }

    pub fn insert(&mut self, first: u64, count: u64) {
        if count == 0 {
            return;
        }
        let (mut start, mut end) = (first, first + count);
        let from = self.runs.partition_point(|run| run.0 + run.1 < start);
        let to = self.runs.partition_point(|run| run.0 <= end);
        if from < to {
            start = start.min(self.runs[from].0);
            end = end.max(self.runs[to - 1].0 + self.runs[to - 1].1);
        }
        self.replace(from, to, Some((start, end - start)), None);
    }

    /// The runs, cut to `first..first + count`.
    pub fn within(&self, first: u64, count: u64) -> Vec<(u64, u64)> {
        let end = first.saturating_add(count);
        let cut = |&(from, len): &(u64, u64)| {
            let (from, to) = (from.max(first), (from + len).min(end));
            (from < to).then(|| (from, to - from))
        };
        self.runs.iter().filter_map(cut).collect()
    }

    pub fn remove(&mut self, first: u64, count: u64) {
        let end = first + count;
        let from = self.runs.partition_point(|run| run.0 + run.1 <= first);
        let to = self.runs.partition_point(|run| run.0 < end);
        if from >= to || count == 0 {
            return;
        }
        let (head, tail) = (self.runs[from], self.runs[to - 1]);
        let before = (head.0 < first).then(|| (head.0, first - head.0));
        let after = (tail.0 + tail.1 > end).then(|| (end, tail.0 + tail.1 - end));
        self.replace(from, to, before, after);
    }

    /// At most so many of the runs: those that meet `kept` before others, then the first.
    pub(crate) fn at_most(&self, most: usize, kept: &RunSet) -> RunSet {
        let meets = |&(first, count): &(u64, u64)| {
            kept.next_member(first)
                .is_some_and(|member| member - first < count)
        };
        let (mut runs, others): (Vec<_>, Vec<_>) = self.runs.iter().partition(|run| meets(run));
        runs.extend(others);
        runs.truncate(most);
        runs.sort_unstable();
        RunSet { runs }
    }

    /// Puts up to two runs in the place of the runs `from..to`.
    fn replace(&mut self, from: usize, to: usize, a: Option<(u64, u64)>, b: Option<(u64, u64)>) {
        match (a, b) {
            (Some(only), None) if to - from == 1 => self.runs[from] = only,
            _ => drop(self.runs.splice(from..to, [a, b].into_iter().flatten())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_cuts_the_runs_at_its_ends() {
        let set = RunSet::from_runs(&[(0, 4), (10, 4), (20, 4)]);
        assert_eq!(set.within(2, 20), [(2, 2), (10, 4), (20, 2)]);
        assert_eq!(set.within(4, 6), []);
    }

    #[test]
    fn of_too_many_runs_those_that_were_kept_stay() {
        let set = RunSet::from_runs(&[(0, 4), (10, 4), (20, 4), (30, 9)]);
        let kept = RunSet::from_runs(&[(11, 1), (32, 2)]);
        assert_eq!(set.at_most(3, &kept).runs(), [(0, 4), (10, 4), (30, 9)]);
        assert_eq!(set.at_most(2, &kept).runs(), [(10, 4), (30, 9)]);
        assert_eq!(set.at_most(4, &kept), set);
    }

    #[test]
    fn agrees_with_a_bit_vector_on_random_edits() {
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed % below
        };
        let mut set = RunSet::default();
        let mut bits = [false; 200];
        for _ in 0..20_000 {
            let first = random(180);
            let count = random(20);
            let insert = random(2) == 0;
            if insert {
                set.insert(first, count)
            } else {
                set.remove(first, count)
            }
            bits[first as usize..(first + count) as usize].fill(insert);
            let probe = random(200);
            assert_eq!(set.contains(probe), bits[probe as usize]);
            let gap = (probe..).find(|&i| !bits.get(i as usize).copied().unwrap_or(false));
            assert_eq!(Some(set.first_gap(probe)), gap);
            assert_eq!(
                set.next_member(probe),
                (probe..200).find(|&i| bits[i as usize])
            );
            assert_eq!(set.len(), bits.iter().filter(|&&bit| bit).count() as u64);
            assert!(
                set.runs
                    .windows(2)
                    .all(|pair| pair[0].0 + pair[0].1 < pair[1].0)
            );
        }
    }
}
