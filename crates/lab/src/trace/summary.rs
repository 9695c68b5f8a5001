//! The properties of a trace: rates, sizes, footprint, sequentiality, reuse, burstiness, locality, and its
//! busy addresses and times.
//!
//! There are two passes. The first finds the numbers that the second needs: requests, duration, highest
//! address. Only reads and writes count; discards and flushes have counts of their own.

use super::blocks::{BlockSet, TooLarge, blocks};
use super::locality::{Gatherer, Locality};
use super::{Features, Op, Request, Requests, TraceError};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

const SECOND: u64 = 1_000_000_000;
/// A trace shorter than this has no busiest second worth the name.
const PEAK_FROM: u64 = 2 * SECOND;
/// More devices than any trace has.
const DEVICES_MAX: usize = 65_536;
/// Sizes told apart; whatever comes later is counted together.
const SIZES_MAX: usize = 65_536;

pub const HEAT_ROWS: usize = 16;
pub const HEAT_COLUMNS: usize = 64;

/// Why a trace is not summed up: its addresses make no sense.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    Scattered,
    Devices,
}

impl From<TooLarge> for Refused {
    fn from(_: TooLarge) -> Refused {
        Refused::Scattered
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Scattered => {
                "its addresses are scattered beyond what can be counted: is this its format?"
            }
            Refused::Devices => "it has more than 65,536 devices: is this its format?",
        })
    }
}

impl From<Refused> for TraceError {
    fn from(refused: Refused) -> TraceError {
        TraceError::of_file("the trace", refused.to_string())
    }
}

/// The order in which a pass wants its requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    AsRecorded,
    ByTime,
}

#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Reads and writes.
    pub requests: u64,
    pub reads: u64,
    pub writes: u64,
    pub discards: u64,
    pub flushes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// From the first request to the last.
    pub duration_ns: Option<u64>,
    /// The time of the first request, as recorded.
    pub start_ns: Option<u64>,
    pub iops_mean: Option<f64>,
    /// Requests of the busiest second of the trace's own clock.
    pub iops_peak: Option<u64>,
    /// The longest time without a request.
    pub gap_max_ns: Option<u64>,
    /// Coefficient of variation of the times between requests; 1 for Poisson arrivals.
    pub gap_cv: Option<f64>,
    /// Variance over mean of the requests of each second; 1 for Poisson arrivals.
    pub dispersion: Option<f64>,
    /// Requests recorded after one of a later time. Statistics are of the trace in the order of time.
    pub disordered: u64,
    /// Different blocks of 4 KiB touched, partly covered ones too.
    pub footprint_blocks: u64,
    /// Percent of requests that start where the one before on the same device ended.
    pub sequential: Option<f64>,
    /// Percent of written blocks that were written before.
    pub rewrite: Option<f64>,
    /// Percent of accessed blocks that were accessed before.
    pub reuse: Option<f64>,
    /// The devices that appear, and the end of the furthest request on each.
    pub devices: BTreeMap<u32, u64>,
    /// How many requests have each size in bytes.
    pub sizes: BTreeMap<u64, u64>,
    pub locality: Locality,
    pub heat: Heat,
}

impl Summary {
    /// Percent of the requests that write.
    pub fn write_share(&self) -> Option<f64> {
        ratio(self.writes * 100, self.requests)
    }

    pub fn mean_bytes(&self) -> Option<f64> {
        ratio(self.read_bytes + self.written_bytes, self.requests)
    }

    pub fn mean_read_bytes(&self) -> Option<f64> {
        ratio(self.read_bytes, self.reads)
    }

    pub fn mean_written_bytes(&self) -> Option<f64> {
        ratio(self.written_bytes, self.writes)
    }

    /// The most frequent sizes with their percentages, the most frequent first.
    pub fn top_sizes(&self, count: usize) -> Vec<(u64, f64)> {
        let mut sizes: Vec<(u64, u64)> = self.sizes.iter().map(|(size, n)| (*size, *n)).collect();
        sizes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let share = |n: u64| (n * 100) as f64 / self.requests as f64;
        sizes
            .into_iter()
            .take(count)
            .map(|(size, n)| (size, share(n)))
            .collect()
    }

    /// Measures a trace. `open` gives its requests anew for each pass, in the order asked for.
    pub fn measure(
        features: Features,
        mut open: impl FnMut(Order) -> Result<Requests, TraceError>,
    ) -> Result<Summary, TraceError> {
        let mut survey = Survey::default();
        for request in open(Order::AsRecorded)? {
            survey.add(&request?)?;
        }
        let order = match survey.disordered {
            0 => Order::AsRecorded,
            _ => Order::ByTime,
        };
        let mut count = Counting::new(features, &survey);
        for request in open(order)? {
            count.add(&request?)?;
        }
        Ok(count.finish(survey))
    }
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// What the first pass finds.
#[derive(Default)]
struct Survey {
    requests: u64,
    disordered: u64,
    first: Option<u64>,
    last: u64,
    before: u64,
    devices: BTreeMap<u32, u64>,
}

impl Survey {
    fn add(&mut self, request: &Request) -> Result<(), Refused> {
        if !request.op.moves_data() {
            return Ok(());
        }
        self.requests += 1;
        self.disordered += u64::from(request.time < self.before);
        self.before = request.time;
        self.first = Some(self.first.unwrap_or(u64::MAX).min(request.time));
        self.last = self.last.max(request.time);
        let end = self.devices.entry(request.device).or_default();
        *end = request.end().max(*end);
        if self.devices.len() > DEVICES_MAX {
            return Err(Refused::Devices);
        }
        Ok(())
    }
}

/// The second pass.
struct Counting {
    features: Features,
    requests: [u64; 4],
    bytes: [u64; 2],
    sizes: BTreeMap<u64, u64>,
    touched: BlockSet,
    written: BlockSet,
    /// Block accesses, those that hit, block writes, those that hit.
    accesses: u64,
    reused: u64,
    block_writes: u64,
    rewritten: u64,
    ends: BTreeMap<u32, u64>,
    sequential: u64,
    arrivals: Arrivals,
    locality: Gatherer,
    heat: Heat,
}

impl Counting {
    fn new(features: Features, survey: &Survey) -> Counting {
        Counting {
            features,
            requests: [0; 4],
            bytes: [0; 2],
            sizes: BTreeMap::new(),
            touched: BlockSet::default(),
            written: BlockSet::default(),
            accesses: 0,
            reused: 0,
            block_writes: 0,
            rewritten: 0,
            ends: BTreeMap::new(),
            sequential: 0,
            arrivals: Arrivals::default(),
            locality: Gatherer::new(features, survey.requests),
            heat: Heat::new(features, survey),
        }
    }

    fn add(&mut self, request: &Request) -> Result<(), Refused> {
        self.requests[request.op as usize] += 1;
        if !request.op.moves_data() {
            return Ok(());
        }
        self.bytes[request.op as usize] += request.length;
        if self.sizes.len() < SIZES_MAX || self.sizes.contains_key(&request.length) {
            *self.sizes.entry(request.length).or_default() += 1;
        }
        let before = self.ends.insert(request.device, request.end());
        self.sequential += u64::from(before == Some(request.offset));
        self.add_blocks(request)?;
        self.arrivals.add(request.time);
        self.heat.add(request);
        self.locality.add(request)
    }

    fn add_blocks(&mut self, request: &Request) -> Result<(), Refused> {
        let range = blocks(request.offset, request.length);
        let count = range.end - range.start;
        self.accesses += count;
        self.reused += self.touched.insert(request.device, range.clone())?;
        if request.op == Op::Write {
            self.block_writes += count;
            self.rewritten += self.written.insert(request.device, range)?;
        }
        Ok(())
    }

    fn finish(self, survey: Survey) -> Summary {
        let [reads, writes, discards, flushes] = self.requests;
        let percent = |part: u64, whole| ratio(part * 100, whole);
        let timed = self.features.times && survey.first.is_some();
        let duration = timed.then(|| survey.last - survey.first.unwrap_or(0));
        let arrivals = self.arrivals.finish();
        let lasting = duration.filter(|duration| *duration > 0);
        Summary {
            requests: reads + writes,
            reads,
            writes,
            discards,
            flushes,
            read_bytes: self.bytes[0],
            written_bytes: self.bytes[1],
            duration_ns: duration,
            start_ns: survey.first.filter(|_| timed),
            iops_mean: lasting.map(|ns| (reads + writes) as f64 * 1e9 / ns as f64),
            iops_peak: lasting.filter(|ns| *ns >= PEAK_FROM).map(|_| arrivals.peak),
            gap_max_ns: lasting.map(|_| arrivals.gap_max),
            gap_cv: lasting.and(arrivals.gap_cv),
            dispersion: lasting
                .filter(|ns| *ns >= PEAK_FROM)
                .and(arrivals.dispersion),
            disordered: if timed { survey.disordered } else { 0 },
            footprint_blocks: self.touched.len(),
            sequential: percent(self.sequential, reads + writes),
            rewrite: percent(self.rewritten, self.block_writes),
            reuse: percent(self.reused, self.accesses),
            devices: survey.devices,
            sizes: self.sizes,
            locality: self.locality.finish(),
            heat: self.heat,
        }
    }
}

/// Times of requests in order: gaps, and counts of each second.
#[derive(Default)]
struct Arrivals {
    first: Option<u64>,
    before: u64,
    gaps: u64,
    gap_mean: f64,
    /// Sum of squared differences from the mean (Welford 1962).
    gap_squares: f64,
    gap_max: u64,
    second: u64,
    in_second: u64,
    peak: u64,
    squares: f64,
    requests: u64,
}

struct Arrived {
    peak: u64,
    gap_max: u64,
    gap_cv: Option<f64>,
    dispersion: Option<f64>,
}

impl Arrivals {
    fn add(&mut self, time: u64) {
        self.requests += 1;
        if self.first.is_none() {
            (self.first, self.before, self.in_second) = (Some(time), time, 1);
            self.second = time / SECOND;
            return;
        }
        let gap = time.saturating_sub(self.before);
        self.before = time;
        self.gaps += 1;
        self.gap_max = self.gap_max.max(gap);
        let off = gap as f64 - self.gap_mean;
        self.gap_mean += off / self.gaps as f64;
        self.gap_squares += off * (gap as f64 - self.gap_mean);
        let second = time / SECOND;
        if second > self.second {
            self.close_second();
            self.second = second;
        }
        self.in_second += 1;
    }

    fn close_second(&mut self) {
        self.peak = self.peak.max(self.in_second);
        self.squares += (self.in_second as f64).powi(2);
        self.in_second = 0;
    }

    fn finish(mut self) -> Arrived {
        self.close_second();
        let spread = self.gap_squares / self.gaps as f64;
        let gap_cv = (self.gap_mean > 0.0).then(|| spread.sqrt() / self.gap_mean);
        let first = self.first.unwrap_or(0) / SECOND;
        let seconds = (self.second - first + 1) as f64;
        let mean = self.requests as f64 / seconds;
        let variance = self.squares / seconds - mean * mean;
        Arrived {
            peak: self.peak,
            gap_max: self.gap_max,
            gap_cv,
            dispersion: (mean > 0.0).then(|| variance / mean),
        }
    }
}

/// Requests by address (rows, devices laid end to end) and time (columns; by number where there are no times).
#[derive(Clone, Debug, Serialize)]
pub struct Heat {
    pub cells: Vec<Vec<u64>>,
    #[serde(skip)]
    starts: BTreeMap<u32, u64>,
    #[serde(skip)]
    extent: u64,
    #[serde(skip)]
    by_time: bool,
    #[serde(skip)]
    from: u64,
    #[serde(skip)]
    span: u64,
    #[serde(skip)]
    seen: u64,
}

impl Heat {
    fn new(features: Features, survey: &Survey) -> Heat {
        let mut extent = 0u64;
        let mut starts = BTreeMap::new();
        for (device, end) in &survey.devices {
            starts.insert(*device, extent);
            extent = extent.saturating_add(*end);
        }
        let from = survey.first.unwrap_or(0);
        let by_time = features.times && survey.last > from;
        Heat {
            cells: vec![vec![0; HEAT_COLUMNS]; HEAT_ROWS],
            starts,
            extent,
            by_time,
            from: if by_time { from } else { 0 },
            span: if by_time {
                survey.last - from
            } else {
                survey.requests
            },
            seen: 0,
        }
    }

    fn add(&mut self, request: &Request) {
        let start = self.starts.get(&request.device).copied().unwrap_or(0);
        let row = scaled(start.saturating_add(request.offset), self.extent, HEAT_ROWS);
        let when = if self.by_time {
            request.time
        } else {
            self.seen
        };
        let column = scaled(when.saturating_sub(self.from), self.span, HEAT_COLUMNS);
        self.cells[row][column] += 1;
        self.seen += 1;
    }
}

/// The bin of a value below `span`.
fn scaled(value: u64, span: u64, bins: usize) -> usize {
    let bin = u128::from(value) * bins as u128 / u128::from(span.max(1));
    (bin as usize).min(bins - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(time: u64, op: Op, offset: u64, length: u64) -> Request {
        Request::new(time, 0, op, offset, length)
    }

    fn measured(features: Features, requests: &[Request]) -> Summary {
        let open = |order| {
            let mut requests = requests.to_vec();
            if order == Order::ByTime {
                requests.sort_by_key(|request| request.time);
            }
            Ok(Box::new(requests.into_iter().map(Ok)) as Requests)
        };
        Summary::measure(features, open).unwrap()
    }

    #[test]
    fn a_few_requests_by_hand() {
        let requests = [
            request(SECOND, Op::Write, 0, 8192),
            request(2 * SECOND, Op::Read, 8192, 512),
            request(2 * SECOND, Op::Flush, 0, 0),
            request(5 * SECOND, Op::Write, 4096, 4096),
        ];
        let found = measured(Features::ALL, &requests);
        assert_eq!((found.requests, found.flushes), (3, 1));
        assert_eq!(found.duration_ns, Some(4 * SECOND));
        assert_eq!(found.iops_mean, Some(0.75));
        assert_eq!(found.iops_peak, Some(1));
        assert_eq!(found.gap_max_ns, Some(3 * SECOND));
        assert_eq!(found.footprint_blocks, 3);
        assert_eq!(found.sequential, Some(100.0 / 3.0));
        assert_eq!(found.rewrite, Some(100.0 / 3.0));
        assert_eq!(found.reuse, Some(25.0));
        assert_eq!(found.gap_cv, Some(0.5));
    }

    #[test]
    fn disorder_is_counted_and_does_not_change_the_numbers() {
        let read = |index| request(index * SECOND, Op::Read, index * 4096, 4096);
        let mut requests: Vec<Request> = (0..100).map(read).collect();
        let ordered = measured(Features::ALL, &requests);
        requests.swap(20, 60);
        let found = measured(Features::ALL, &requests);
        assert_eq!(found.disordered, 2);
        assert_eq!(found.sequential, ordered.sequential);
        assert_eq!(found.dispersion, Some(0.0));
    }

    #[test]
    fn addresses_alone_have_no_rates() {
        let requests = [request(0, Op::Read, 0, 4096), request(0, Op::Read, 0, 4096)];
        let found = measured(Features::ADDRESSES, &requests);
        assert_eq!((found.duration_ns, found.gap_cv), (None, None));
        assert_eq!(found.iops_mean, None);
        assert_eq!(found.reuse, Some(50.0));
        let nothing = measured(Features::ALL, &[]);
        assert_eq!((nothing.write_share(), nothing.duration_ns), (None, None));
    }
}
