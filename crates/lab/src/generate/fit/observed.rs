//! What can be counted of a trace: sizes, devices, gaps, repeats, visits, scans.

use super::super::arrivals::burst_share_min;
use super::super::parameters::{Device, Parameters};
use super::super::stack::Stack;
use super::ZONE_BYTES;
use crate::trace::{Op, Request, Summary};
use std::collections::{BTreeMap, HashMap};

/// Repeats deeper than this are not seen.
const DEPTH: usize = 1 << 17;
/// Reads that follow each other so often are a scan.
const SCAN_FROM: u64 = 64;
/// Sequential reads of a device that are followed at a time.
const STREAMS: usize = 16;
/// Sizes that are told apart exactly; the rest is put together by powers of two.
const SIZES: usize = 48;
/// Part of the offsets that must fit an alignment.
const ALIGNED: f64 = 0.95;
const ALIGN_MAX: u64 = 4096;

#[derive(Default)]
pub struct Observed {
    requests: u64,
    sizes: [BTreeMap<u64, u64>; 2],
    /// Offsets by how many of their lowest bits are zero, 12 and more together.
    aligned: [u64; 13],
    devices: BTreeMap<u32, OnDevice>,
    gaps: Gaps,
    repeats: [Repeats; 2],
    visits: Visits,
    scans: Scans,
}

#[derive(Default)]
struct OnDevice {
    requests: u64,
    bytes: u64,
    streams: Vec<Stream>,
}

impl Observed {
    pub fn add(&mut self, request: &Request) {
        if !request.op.moves_data() {
            return;
        }
        self.requests += 1;
        let writes = usize::from(request.op == Op::Write);
        *self.sizes[writes].entry(request.length).or_default() += 1;
        self.aligned[request.offset.trailing_zeros().min(12) as usize] += 1;
        self.gaps.add(request.time);
        let again = self.repeats[writes].add(request);
        self.visits.add(request, again);
        let device = self.devices.entry(request.device).or_default();
        device.requests += 1;
        device.bytes = device.bytes.max(request.end());
        if request.op == Op::Read {
            self.scans.add(&mut device.streams, request, self.requests);
        }
    }

    pub fn parameters(mut self, name: &str, real: &Summary) -> Parameters {
        for stream in self.devices.values().flat_map(|device| &device.streams) {
            self.scans.close(stream);
        }
        let gaps = self.gaps.parameters();
        let (run_requests, sequential) = self.visits.parameters();
        let align_bytes = self.align();
        let scan_bytes = self.scans.mean_bytes(align_bytes);
        let mut parameters = Parameters {
            name: name.into(),
            summary: format!("Fitted to {} requests of {name}", self.requests),
            rate: real.iops_mean.unwrap_or(1.0),
            gap_cv: gaps.cv,
            burst_share: gaps.burst_share,
            burst_requests: gaps.burst_requests,
            write_share: real.writes as f64 / real.requests as f64,
            read_sizes: condensed(&self.sizes[0]),
            write_sizes: condensed(&self.sizes[1]),
            align_bytes,
            zone_bytes: ZONE_BYTES,
            active_share: 1.0,
            theta: 0.0,
            hot_share: 0.2,
            drift: 0.0,
            run_requests,
            sequential,
            reread_share: self.repeats[0].share(),
            reread_distance: self.repeats[0].distances(),
            rewrite_share: self.repeats[1].share(),
            rewrite_distance: self.repeats[1].distances(),
            scan_share: self.scans.requests as f64 / self.requests as f64,
            scan_requests: self.scans.mean_requests(),
            scan_weight: self.scans.weight(),
            scan_bytes,
            devices: self.devices(),
            sources: BTreeMap::new(),
        };
        parameters.scan_weight = parameters.scan_weight.max(parameters.scan_share);
        let touched = real.locality.of_12_mib().zones.max(1) as f64;
        parameters.active_share = (touched / parameters.zones().max(1) as f64).min(1.0);
        parameters
    }

    fn devices(&self) -> Vec<Device> {
        let whole = |bytes: u64| bytes.div_ceil(ZONE_BYTES).saturating_mul(ZONE_BYTES);
        let fitted = self.devices.values().map(|device| Device {
            share: device.requests as f64 / self.requests as f64,
            bytes: whole(device.bytes),
        });
        fitted.collect()
    }

    /// The largest power of two that nearly all offsets are multiples of.
    fn align(&self) -> u64 {
        let mut fitting = self.requests;
        let mut align = 1;
        for bits in 0..12 {
            fitting -= self.aligned[bits];
            if (fitting as f64) < ALIGNED * self.requests as f64 {
                break;
            }
            align *= 2;
        }
        align.min(ALIGN_MAX)
    }
}

/// The most frequent sizes, and the means of the others by powers of two.
fn condensed(sizes: &BTreeMap<u64, u64>) -> Vec<(u64, f64)> {
    let mut ranked: Vec<(u64, u64)> = sizes.iter().map(|(size, count)| (*size, *count)).collect();
    ranked.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let total: u64 = sizes.values().sum();
    let rest = ranked.split_off(ranked.len().min(SIZES));
    let mut groups: BTreeMap<u32, (u128, u64)> = BTreeMap::new();
    for (size, count) in rest {
        let group = groups.entry(size.ilog2()).or_default();
        group.0 += u128::from(size) * u128::from(count);
        group.1 += count;
    }
    ranked.extend(groups.values().map(|(sum, count)| {
        let mean = sum / u128::from(*count);
        (mean as u64, *count)
    }));
    // A direction that there is none of still needs a size, which is not used.
    if ranked.is_empty() {
        return vec![(4096, 1.0)];
    }
    ranked.sort_unstable();
    let share = |(size, count): (u64, u64)| (size.min(ZONE_BYTES), count as f64 / total as f64);
    ranked.into_iter().map(share).collect()
}

// -------------------------------------------------------------------------------------------------------------- gaps

#[derive(Default)]
struct Gaps {
    before: Option<u64>,
    count: f64,
    sum: f64,
    squares: f64,
    /// Products of neighbours.
    products: f64,
    last: Option<f64>,
}

struct Bursts {
    cv: f64,
    burst_share: f64,
    burst_requests: f64,
}

impl Gaps {
    fn add(&mut self, time: u64) {
        let Some(before) = self.before.replace(time) else {
            return;
        };
        let gap = time.saturating_sub(before) as f64;
        self.count += 1.0;
        self.sum += gap;
        self.squares += gap * gap;
        if let Some(last) = self.last.replace(gap) {
            self.products += last * gap;
        }
    }

    /// The states of `arrivals`, from variance and covariance of neighbouring gaps.
    fn parameters(&self) -> Bursts {
        let mean = self.sum / self.count.max(1.0);
        let variance = self.squares / self.count.max(1.0) - mean * mean;
        let covariance = self.products / (self.count - 1.0).max(1.0) - mean * mean;
        let cv = if mean > 0.0 {
            (variance.max(0.0).sqrt() / mean).clamp(1.0, 1000.0)
        } else {
            1.0
        };
        let least = burst_share_min(cv);
        let burst_share = (least + 0.2 * (1.0 - least)).max(0.5);
        let of_states = mean * mean * (cv * cv - 1.0) / 2.0;
        let persistence = if of_states > 0.0 {
            (covariance / of_states).clamp(0.0, 0.9999)
        } else {
            0.0
        };
        Bursts {
            cv,
            burst_share,
            burst_requests: 1.0 / ((1.0 - persistence) * (1.0 - burst_share)),
        }
    }
}

// ----------------------------------------------------------------------------------------------------------- repeats

type Key = (u32, u64, u64);

/// Requests that are the same as a recent one, and how deep that lay.
struct Repeats {
    stack: Stack<Key>,
    /// Only looked up, never gone through.
    slots: HashMap<Key, usize>,
    renumbered: u64,
    requests: u64,
    /// By powers of two.
    depths: [u64; 18],
}

impl Default for Repeats {
    fn default() -> Repeats {
        Repeats {
            stack: Stack::new(DEPTH),
            slots: HashMap::new(),
            renumbered: 0,
            requests: 0,
            depths: [0; 18],
        }
    }
}

impl Repeats {
    /// Whether the request is one of before.
    fn add(&mut self, request: &Request) -> bool {
        let key = (request.device, request.offset, request.length);
        self.requests += 1;
        let known = self.slots.remove(&key);
        if let Some(slot) = known {
            let depth = self.stack.depth(slot) as u64;
            self.depths[depth.ilog2().min(17) as usize] += 1;
            self.stack.take_slot(slot);
        }
        let (slot, forgotten) = self.stack.push(key);
        if let Some(forgotten) = forgotten {
            self.slots.remove(&forgotten);
        }
        self.slots.insert(key, slot);
        if self.stack.renumbered() != self.renumbered {
            self.renumbered = self.stack.renumbered();
            self.slots = self
                .stack
                .entries()
                .map(|(slot, key)| (key, slot))
                .collect();
        }
        known.is_some()
    }

    fn share(&self) -> f64 {
        let again: u64 = self.depths.iter().sum();
        again as f64 / self.requests.max(1) as f64
    }

    /// The depths between which nine tenths of the repeats lie, in powers of two.
    fn distances(&self) -> (u64, u64) {
        let all: u64 = self.depths.iter().sum();
        if all == 0 {
            return (1, 1000);
        }
        let reached = |part: u64| {
            let mut sum = 0;
            let upto = self.depths.iter().position(|count| {
                sum += count;
                sum * 20 >= all * part
            });
            upto.unwrap_or(0)
        };
        (1 << reached(1), (2u64 << reached(19)) - 1)
    }
}

// ------------------------------------------------------------------------------------------------------------ visits

/// Neighbouring requests of the same zone.
#[derive(Default)]
struct Visits {
    before: Option<Request>,
    pairs: u64,
    stays: u64,
    follows: u64,
    zones: BTreeMap<(u32, u64), u64>,
}

impl Visits {
    fn add(&mut self, request: &Request, again: bool) {
        let zone = |request: &Request| (request.device, request.offset / ZONE_BYTES);
        *self.zones.entry(zone(request)).or_default() += 1;
        if again {
            // A repeat ends the visit before it, and stands alone.
            self.pairs += u64::from(self.before.take().is_some());
            return;
        }
        if let Some(before) = self.before.replace(*request) {
            self.pairs += 1;
            self.stays += u64::from(zone(&before) == zone(request));
            let follows = before.device == request.device && before.end() == request.offset;
            self.follows += u64::from(follows);
        }
    }

    /// Mean requests of a visit, and the chance that one follows the other. Popular zones come after themselves by
    /// chance; that is taken off.
    fn parameters(&self) -> (f64, f64) {
        let total = self.zones.values().sum::<u64>().max(1) as f64;
        let by_chance: f64 = self
            .zones
            .values()
            .map(|n| (*n as f64 / total).powi(2))
            .sum();
        let pairs = self.pairs.max(1) as f64;
        let changes = 1.0 - self.stays as f64 / pairs;
        let run = ((1.0 - by_chance) / changes.max(1e-4)).clamp(1.0, 10_000.0);
        let stays = 1.0 - 1.0 / run;
        let follows = self.follows as f64 / pairs;
        if stays < 0.001 {
            return (run, 0.0);
        }
        (run, (follows / stays).min(1.0))
    }
}

// ------------------------------------------------------------------------------------------------------------- scans

/// A sequential read in progress, of a device.
struct Stream {
    end: u64,
    requests: u64,
    bytes: u64,
    /// Numbers of its first and last request, among all.
    first: u64,
    last: u64,
}

/// Long sequential reads, as they stand between whatever else the device does.
#[derive(Default)]
struct Scans {
    scans: u64,
    requests: u64,
    bytes: u64,
    /// Requests of all kinds from the first to the last of each.
    during: u64,
}

impl Scans {
    fn add(&mut self, streams: &mut Vec<Stream>, request: &Request, number: u64) {
        let continued = streams
            .iter_mut()
            .find(|stream| stream.end == request.offset);
        if let Some(stream) = continued {
            stream.end = request.end();
            stream.requests += 1;
            stream.bytes += request.length;
            stream.last = number;
            return;
        }
        if streams.len() == STREAMS {
            let oldest = (0..STREAMS).min_by_key(|index| streams[*index].last);
            let stream = streams.swap_remove(oldest.unwrap_or(0));
            self.close(&stream);
        }
        streams.push(Stream {
            end: request.end(),
            requests: 1,
            bytes: request.length,
            first: number,
            last: number,
        });
    }

    fn close(&mut self, stream: &Stream) {
        if stream.requests >= SCAN_FROM {
            self.scans += 1;
            self.requests += stream.requests;
            self.bytes += stream.bytes;
            self.during += stream.last - stream.first + 1;
        }
    }

    fn mean_requests(&self) -> f64 {
        match self.scans {
            0 => 1000.0,
            scans => self.requests as f64 / scans as f64,
        }
    }

    fn weight(&self) -> f64 {
        match self.scans {
            0 => 0.5,
            _ => self.requests as f64 / self.during as f64,
        }
    }

    /// A multiple of the alignment, so that a scan stays on it.
    fn mean_bytes(&self, align: u64) -> u64 {
        match self.requests {
            0 => 65_536,
            requests => (self.bytes / requests / align).max(1) * align,
        }
    }
}
