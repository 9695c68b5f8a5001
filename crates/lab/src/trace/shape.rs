//! Changes to a trace before its replay: cut, stretched in time, folded onto one device, fitted to a
//! capacity.

use super::{Item, Request, Requests, TraceError};
use std::collections::BTreeMap;

/// Lays every device behind the one before it, so that a trace of several becomes one of a single address space.
///
/// Each begins at a multiple of `align`, with room up to its furthest request.
pub fn fold(requests: Requests, extents: &BTreeMap<u32, u64>, align: u64) -> Requests {
    let mut starts = BTreeMap::new();
    let mut next = 0u64;
    for (device, extent) in extents {
        starts.insert(*device, next);
        next = next.saturating_add(extent.div_ceil(align.max(1)).saturating_mul(align.max(1)));
    }
    each(requests, move |request| {
        let start = starts.get(&request.device).copied().unwrap_or(0);
        request.offset = start.saturating_add(request.offset);
        request.device = 0;
    })
}

/// How addresses beyond a capacity come to lie within it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// Modulo the capacity: distances between near addresses stay, far ones fall onto each other.
    Wrap,
    /// In proportion: everything moves together, so zones get smaller and runs overlap.
    Shrink,
}

/// Blocks of this size stay whole when addresses are shrunk.
const GRAIN: u64 = 4096;

/// Puts all requests within `capacity` bytes of their device. Those that would cross its end are moved before it; those
/// longer than it are cut.
pub fn fit(requests: Requests, extent: u64, capacity: u64, how: Fit) -> Requests {
    each(requests, move |request| {
        request.length = request.length.min(capacity);
        request.offset = match how {
            Fit::Wrap => request.offset % capacity.max(1),
            Fit::Shrink if extent > capacity => shrunk(request.offset, extent, capacity),
            Fit::Shrink => request.offset,
        };
        request.offset = request.offset.min(capacity - request.length);
    })
}

/// The place within a block of 4 KiB stays, so that alignment does.
fn shrunk(offset: u64, extent: u64, capacity: u64) -> u64 {
    let block = u128::from(offset / GRAIN);
    let moved = block * u128::from(capacity) / u128::from(extent);
    moved as u64 * GRAIN + offset % GRAIN
}

/// Times since `start`, multiplied by `factor`: below one the trace runs faster.
pub fn stretch(requests: Requests, start: u64, factor: f64) -> Requests {
    each(requests, move |request| {
        let since = request.time.saturating_sub(start);
        request.time = (since as f64 * factor).round() as u64;
    })
}

/// Times since `start`.
pub fn rebase(requests: Requests, start: u64) -> Requests {
    each(requests, move |request| {
        request.time = request.time.saturating_sub(start)
    })
}

/// A trace over and over: it is opened anew at each end, `period` later than the time before. It ends only after an error
/// or a round without a request.
pub fn repeat<O>(open: O, period: u64) -> Requests
where
    O: FnMut() -> Result<Requests, TraceError> + Send + 'static,
{
    Box::new(Repeat {
        open,
        period,
        later: 0,
        rounds: 0,
        current: Box::new(std::iter::empty()),
        empty: false,
    })
}

struct Repeat<O> {
    open: O,
    period: u64,
    /// How much later this round is than the first.
    later: u64,
    rounds: u64,
    current: Requests,
    /// Nothing came yet in this round.
    empty: bool,
}

impl<O: FnMut() -> Result<Requests, TraceError>> Iterator for Repeat<O> {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        loop {
            match self.current.next() {
                Some(Ok(request)) => {
                    self.empty = false;
                    let time = request.time.saturating_add(self.later);
                    return Some(Ok(Request { time, ..request }));
                }
                Some(Err(error)) => return Some(Err(self.end(error))),
                None if self.empty => return None,
                None => {}
            }
            self.later = self.period.saturating_mul(self.rounds);
            self.rounds += 1;
            self.empty = true;
            match (self.open)() {
                Ok(requests) => self.current = requests,
                Err(error) => return Some(Err(self.end(error))),
            }
        }
    }
}

impl<O> Repeat<O> {
    fn end(&mut self, error: TraceError) -> TraceError {
        self.current = Box::new(std::iter::empty());
        self.empty = true;
        error
    }
}

/// Which requests stay. Bounds are from (inclusive) and to (exclusive).
#[derive(Clone, Debug, Default)]
pub struct Cut {
    /// Nanoseconds since the trace's start.
    pub from: Option<u64>,
    pub to: Option<u64>,
    /// By number, from 0.
    pub first: u64,
    pub count: Option<u64>,
    pub device: Option<u32>,
}

/// Keeps what lies within the cut. Numbers count what times and device let through.
pub fn cut(requests: Requests, start: u64, cut: Cut) -> Requests {
    let (first, count) = (cut.first, cut.count);
    let within = requests.filter(move |item: &Item| {
        let Ok(request) = item else {
            return true;
        };
        let since = request.time.saturating_sub(start);
        since >= cut.from.unwrap_or(0)
            && cut.to.is_none_or(|to| since < to)
            && cut.device.is_none_or(|device| request.device == device)
    });
    let first = usize::try_from(first).unwrap_or(usize::MAX);
    let count = count.map_or(usize::MAX, |count| {
        usize::try_from(count).unwrap_or(usize::MAX)
    });
    Box::new(within.skip(first).take(count))
}

fn each(requests: Requests, mut change: impl FnMut(&mut Request) + Send + 'static) -> Requests {
    Box::new(requests.map(move |item| {
        item.map(|mut request| {
            change(&mut request);
            request
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::super::Op;
    use super::*;

    fn made(requests: &[(u64, u32, u64, u64)]) -> Requests {
        let read = |(time, device, offset, length)| {
            Ok(Request::new(time, device, Op::Read, offset, length))
        };
        let requests: Vec<Item> = requests.iter().copied().map(read).collect();
        Box::new(requests.into_iter())
    }

    fn seen(requests: Requests) -> Vec<(u64, u32, u64, u64)> {
        let all = requests.map(|item| item.unwrap());
        all.map(|r| (r.time, r.device, r.offset, r.length))
            .collect()
    }

    fn times(requests: Requests) -> Vec<u64> {
        requests.map(|item| item.unwrap().time).collect()
    }

    #[test]
    fn devices_are_laid_end_to_end() {
        let extents = BTreeMap::from([(3, 5000), (7, 100)]);
        let folded = fold(made(&[(0, 3, 10, 1), (1, 7, 10, 1)]), &extents, 4096);
        assert_eq!(seen(folded), [(0, 0, 10, 1), (1, 0, 8202, 1)]);
    }

    #[test]
    fn a_trace_repeats_after_its_period_and_nothing_repeats_never() {
        let pair = [(10, 0, 0, 1), (30, 0, 8, 1)];
        let mut endless = repeat(move || Ok(made(&pair)), 40);
        let mut times = || endless.next().unwrap().unwrap().time;
        let found: Vec<u64> = (0..5).map(|_| times()).collect();
        assert_eq!(found, [10, 30, 50, 70, 90]);
        assert!(repeat(|| Ok(made(&[])), 40).next().is_none());
    }

    #[test]
    fn whatever_is_fitted_lies_within() {
        let extents = [(0, 4096), (99_000, 4096), (50_512, 1_000_000)];
        let requests = extents.map(|(offset, length)| (0, 0, offset, length));
        for how in [Fit::Wrap, Fit::Shrink] {
            for (_, _, offset, length) in seen(fit(made(&requests), 1 << 20, 65_536, how)) {
                assert!(offset + length <= 65_536, "{how:?}");
            }
        }
        let one = made(&[(0, 0, 81_920 + 512, 512)]);
        let shrunk = seen(fit(one, 163_840, 81_920, Fit::Shrink));
        assert_eq!(shrunk, [(0, 0, 40_960 + 512, 512)]);
    }

    #[test]
    fn cuts_and_stretches_count_from_the_start() {
        let requests = [(10, 0, 0, 1), (20, 1, 0, 1), (30, 0, 0, 1), (40, 0, 0, 1)];
        let only = |change: fn(&mut Cut)| {
            let mut only = Cut::default();
            change(&mut only);
            times(cut(made(&requests), 10, only))
        };
        assert_eq!(only(|c| (c.from, c.to) = (Some(10), Some(30))), [20, 30]);
        assert_eq!(only(|c| (c.first, c.count) = (1, Some(2))), [20, 30]);
        assert_eq!(only(|c| (c.first, c.device) = (1, Some(0))), [30, 40]);
        let stretched = stretch(made(&requests), 10, 0.5);
        assert_eq!(times(stretched), [0, 5, 10, 15]);
    }
}
