//! Replications of a recorded trace by seed: what else could have been recorded.
//!
//! A trace exists once, so its runs have no seeds of their own, and a difference of two schemes may hang on
//! where in the trace the rebuild begins. A replication of a trace that is repeated starts elsewhere, runs a
//! little faster or slower, or consists of its blocks in another order.

use super::{Item, Request, Requests};
use restripe_sim::rng::Rng;
use serde::Deserialize;

/// What seeds change of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Replicate {
    /// Nothing: all seeds are one run.
    #[default]
    None,
    /// It starts at a seeded time, and wraps.
    Offset,
    /// The same, and its rate is multiplied by a seeded factor of 0.97 to 1.03.
    Jitter,
    /// Blocks of [`BLOCK`] consecutive requests are drawn with replacement, with the gaps within them. Of a
    /// trace of fewer than ten blocks, blocks are a tenth of it.
    Bootstrap,
}

/// Requests of a block that [`Replicate::Bootstrap`] draws.
pub(crate) const BLOCK: usize = 1000;
/// By how many thousandths [`Replicate::Jitter`] changes the rate at most.
const JITTER_MILLI: u64 = 30;

/// The factor of a seed, with which the rate is multiplied.
pub(crate) fn rate_factor(seed: u64) -> f64 {
    let milli = Rng::new(seed).between(1000 - JITTER_MILLI, 1000 + JITTER_MILLI);
    milli as f64 / 1000.0
}

/// A repeated trace from a seeded time within its first `period` on, which becomes the time of `start`.
pub(crate) fn offset(repeated: Requests, start: u64, period: u64, seed: u64) -> Requests {
    // Not the draw of the rate's factor.
    let skipped = Rng::new(seed).fork(1).below(period.max(1));
    let since = start.saturating_add(skipped);
    let early = move |item: &Item| matches!(item, Ok(request) if request.time < since);
    let moved = move |item: Item| {
        item.map(|request| Request {
            time: request.time - skipped,
            ..request
        })
    };
    Box::new(repeated.skip_while(early).map(moved))
}

/// Endless blocks of a trace, drawn with a seed. The trace is held in memory: 40 bytes a request.
pub(crate) struct Bootstrap {
    requests: Vec<Request>,
    mean_gap: u64,
    block: usize,
    rng: Rng,
    next: usize,
    /// Requests left of this block.
    left: usize,
    time: u64,
}

impl Bootstrap {
    /// Of requests by time, with the mean gap between two, which is the first's to the one before it.
    pub(crate) fn new(requests: Vec<Request>, mean_gap: u64, seed: u64) -> Bootstrap {
        Bootstrap {
            block: (requests.len() / 10).clamp(1, BLOCK),
            time: requests.first().map_or(0, |first| first.time),
            requests,
            mean_gap,
            rng: Rng::new(seed),
            next: 0,
            left: 0,
        }
    }
}

impl Iterator for Bootstrap {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        if self.left == 0 {
            let count = u64::try_from(self.requests.len()).ok()?;
            self.next = usize::try_from(self.rng.below(count.max(1))).ok()?;
            self.left = self.block;
        }
        let at = self.next;
        let request = *self.requests.get(at)?;
        let before = at.checked_sub(1).map(|before| self.requests[before].time);
        let gap = before.map_or(self.mean_gap, |before| request.time.saturating_sub(before));
        self.time = self.time.saturating_add(gap);
        self.next = (at + 1) % self.requests.len();
        self.left -= 1;
        Some(Ok(Request {
            time: self.time,
            ..request
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Op, shape};
    use super::*;

    /// A request every ten, from 500 on: the address names its place.
    fn trace(count: u64) -> Vec<Request> {
        let one = |n| Request::new(500 + 10 * n, 0, Op::Read, n * 4096, 4096);
        (0..count).map(one).collect()
    }

    fn repeated(count: u64) -> Requests {
        let open = move || Ok(Box::new(trace(count).into_iter().map(Ok)) as Requests);
        shape::repeat(open, 10 * count)
    }

    fn shown(requests: impl Iterator<Item = Item>, count: usize) -> Vec<(u64, u64)> {
        let sound = requests.take(count).map(|item| item.expect("sound"));
        sound
            .map(|request| (request.time, request.offset / 4096))
            .collect()
    }

    #[test]
    fn an_offset_wraps_and_hangs_on_the_seed() {
        let of = |seed| shown(offset(repeated(100), 500, 1000, seed), 100);
        let (one, other) = (of(1), of(2));
        assert_eq!(one, of(1));
        assert_ne!(one, other);
        for all in [one, other] {
            let mut places: Vec<u64> = all.iter().map(|(_, place)| *place).collect();
            assert!(all[0].0 - 500 < 10, "{:?}", all[0]);
            assert!(all.windows(2).all(|two| two[1].0 - two[0].0 == 10));
            assert!(all.windows(2).all(|two| two[1].1 == (two[0].1 + 1) % 100));
            places.sort_unstable();
            assert!(places.into_iter().eq(0..100));
        }
    }

    #[test]
    fn a_rate_is_changed_by_three_hundredths_at_most() {
        let factors: Vec<f64> = (1..200).map(rate_factor).collect();
        assert!(factors.iter().all(|factor| (0.97..=1.03).contains(factor)));
        let below = factors.iter().filter(|factor| **factor < 1.0).count();
        assert!((60..140).contains(&below), "{below}");
    }

    #[test]
    fn blocks_are_consecutive_and_keep_their_gaps() {
        let of = |seed| shown(Bootstrap::new(trace(100), 10, seed), 500);
        let all = of(3);
        assert_eq!(all, of(3));
        assert_ne!(all, of(4));
        // Blocks of ten, of a hundred.
        for block in all.chunks(10) {
            assert!(block.windows(2).all(|two| two[1].1 == (two[0].1 + 1) % 100));
        }
        assert!(all.windows(2).all(|two| two[1].0 - two[0].0 == 10));
        let starts: std::collections::BTreeSet<u64> =
            all.chunks(10).map(|block| block[0].1).collect();
        assert!(starts.len() > 20, "{starts:?}");
        assert_eq!(Bootstrap::new(Vec::new(), 10, 1).next(), None);
    }
}
