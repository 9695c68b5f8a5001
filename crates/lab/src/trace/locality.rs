//! The locality of reads: the share that falls on the most popular zones, and the part that could be learned
//! beforehand.
//!
//! Shares in hindsight (*in-sample*) favour schemes that learn: zones are ranked by the same reads that are
//! scored. So the *learned* shares rank zones by the first half of the trace, by number of requests, and
//! score its second half.

use super::blocks::{BlockSet, blocks};
use super::summary::Refused;
use super::{Features, Op, Request};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Counted at this size and added up for the larger ones.
const FINEST: u64 = 384 << 10;
pub const ZONE_BYTES: [u64; 4] = [FINEST, 3 << 20, 12 << 20, 24 << 20];
/// A trace with more zones than this has addresses without sense.
const ZONES_MAX: usize = 1 << 24;
/// Parts of the trace that learn and score in turn, for the share without drift.
const TURNS: u64 = 20;

/// Reads of a zone, by where in the trace they are.
#[derive(Default, Clone, Copy)]
struct Count {
    /// In the first and the second half.
    half: [u64; 2],
    /// In the odd and the even twentieths.
    turn: [u64; 2],
}

impl Count {
    fn all(&self) -> u64 {
        self.half[0] + self.half[1]
    }
}

/// Gathers what [`Locality`] tells.
pub struct Gatherer {
    features: Features,
    total: u64,
    seen: u64,
    zones: BTreeMap<(u32, u64), Count>,
    moved: Moved,
    read: [BlockSet; 2],
    proactive: u64,
    reactive: u64,
}

/// Zones of 12 MiB that are moved in the second half at their second read there, until as many are moved as are a fifth of
/// those that the first half has read.
#[derive(Default)]
struct Moved {
    first: BTreeSet<(u32, u64)>,
    /// Read once so far, in the second half, and moved.
    once: BTreeSet<(u32, u64)>,
    moved: BTreeSet<(u32, u64)>,
    hits: u64,
}

impl Moved {
    const ZONE_BYTES: u64 = 12 << 20;

    fn add(&mut self, second: bool, device: u32, offset: u64) {
        let zone = (device, offset / Moved::ZONE_BYTES);
        if !second {
            self.first.insert(zone);
        } else if self.moved.contains(&zone) {
            self.hits += 1;
        } else if !self.once.insert(zone) && self.moved.len() < self.most() {
            self.moved.insert(zone);
        }
    }

    fn most(&self) -> usize {
        match self.first.len() {
            0 => 0,
            zones => part(zones, 20),
        }
    }
}

impl Gatherer {
    /// `total`: how many reads and writes will come.
    pub fn new(features: Features, total: u64) -> Gatherer {
        Gatherer {
            features,
            total,
            seen: 0,
            zones: BTreeMap::new(),
            moved: Moved::default(),
            read: [BlockSet::default(), BlockSet::default()],
            proactive: 0,
            reactive: 0,
        }
    }

    pub fn add(&mut self, request: &Request) -> Result<(), Refused> {
        let number = self.seen;
        self.seen += 1;
        if self.features.ops && request.op != Op::Read {
            return Ok(());
        }
        let half = usize::from(number >= self.total.div_ceil(2));
        let turn = number * TURNS / self.total.max(1) % 2;
        let zone = (request.device, request.offset / FINEST);
        let count = self.zones.entry(zone).or_default();
        count.half[half] += 1;
        count.turn[turn as usize] += 1;
        self.moved.add(half == 1, request.device, request.offset);
        if self.zones.len() > ZONES_MAX {
            return Err(Refused::Scattered);
        }
        let touched = blocks(request.offset, request.length);
        if half == 1 && self.read[0].contains(request.device, touched.clone()) {
            self.proactive += 1;
        }
        let length = touched.end - touched.start;
        let known = self.read[half].insert(request.device, touched)?;
        self.reactive += u64::from(half == 1 && known == length);
        Ok(())
    }

    pub fn finish(self) -> Locality {
        let zones = ZONE_BYTES.map(|bytes| {
            let mut sums: BTreeMap<(u32, u64), Count> = BTreeMap::new();
            for ((device, zone), count) in &self.zones {
                let sum = sums.entry((*device, zone / (bytes / FINEST))).or_default();
                for part in 0..2 {
                    sum.half[part] += count.half[part];
                    sum.turn[part] += count.turn[part];
                }
            }
            ByZone::of(bytes, sums.into_values().collect())
        });
        let scored = self.zones.values().map(|count| count.half[1]).sum();
        Locality {
            zones,
            scored_reads: scored,
            hot_zones: self.moved.most() as u64,
            reactive_as_many: percent(self.moved.hits, scored),
            request_proactive: percent(self.proactive, scored),
            request_reactive: percent(self.reactive, scored),
        }
    }
}

/// Locality of reads, in percent. Of a trace without operations every access counts.
#[derive(Clone, Debug, Serialize)]
pub struct Locality {
    pub zones: [ByZone; 4],
    /// Reads of the second half.
    pub scored_reads: u64,
    /// A fifth of the zones of 12 MiB that the first half has read.
    pub hot_zones: u64,
    /// Share of the second half's reads in zones that were moved there before, at their second read; so many are moved at most.
    pub reactive_as_many: Option<f64>,
    /// Share of the second half's reads all of whose blocks were read in the first half.
    pub request_proactive: Option<f64>,
    /// The same, read earlier in the second half.
    pub request_reactive: Option<f64>,
}

impl Locality {
    /// At zones of 12 MiB, which the papers use.
    pub fn of_12_mib(&self) -> &ByZone {
        &self.zones[2]
    }
}

/// Locality at one size of zones.
#[derive(Clone, Debug, Serialize)]
pub struct ByZone {
    pub zone_bytes: u64,
    /// Zones that were read at all.
    pub zones: u64,
    /// Share of all reads in the most read 10, 20, 30% of the zones.
    pub in_sample: [Option<f64>; 3],
    /// In-sample share of 20% if as many reads fell uniformly on these zones: what noise alone gives.
    pub null: Option<f64>,
    /// Zones ranked by the first half: share of the second half's reads in the top 10, 20, 30% of those zones.
    pub learned: [Option<f64>; 3],
    /// The same for all zones seen in the first half.
    pub learned_all: Option<f64>,
    /// Learned on the odd and scored on the even twentieths, 20%: as learned, but without time for drift.
    pub alternating: Option<f64>,
    /// Share of the second half's reads whose zone was read before within the second half.
    pub reactive: Option<f64>,
    /// Bytes of the most read zones that hold 50 and 80% of all reads.
    pub bytes_of_50: u64,
    pub bytes_of_80: u64,
    /// The exponent of Zipf's law over these zones that gives the in-sample share of 20%.
    pub theta: Option<f64>,
}

const SHARES: [u64; 3] = [10, 20, 30];

impl ByZone {
    fn of(zone_bytes: u64, counts: Vec<Count>) -> ByZone {
        let ranked = sorted(counts.iter().map(Count::all));
        let total: u64 = ranked.iter().sum();
        let top = |share| ranked[..part(ranked.len(), share)].iter().sum();
        let in_sample = SHARES.map(|share| percent(top(share), total));
        let halves: Vec<[u64; 2]> = counts.iter().map(|count| count.half).collect();
        let turns: Vec<[u64; 2]> = counts.iter().map(|count| count.turn).collect();
        let second: u64 = halves.iter().map(|half| half[1]).sum();
        let begun = halves.iter().filter(|half| half[1] > 0).count() as u64;
        ByZone {
            zone_bytes,
            zones: ranked.len() as u64,
            in_sample,
            null: null(ranked.len(), total),
            learned: SHARES.map(|share| learned(&halves, share)),
            learned_all: learned(&halves, 100),
            alternating: learned(&turns, 20),
            reactive: percent(second - begun, second),
            bytes_of_50: holding(&ranked, total.div_ceil(2)) * zone_bytes,
            bytes_of_80: holding(&ranked, (total * 4).div_ceil(5)) * zone_bytes,
            theta: in_sample[1].and_then(|share| theta(ranked.len(), share / 100.0)),
        }
    }
}

fn percent(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| (part * 100) as f64 / whole as f64)
}

fn sorted(counts: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut ranked: Vec<u64> = counts.filter(|count| *count > 0).collect();
    ranked.sort_unstable_by(|a, b| b.cmp(a));
    ranked
}

/// So many zones are this share of them: at least one of any.
fn part(zones: usize, share: u64) -> usize {
    let rounded = (zones as u64 * share + 50) / 100;
    (rounded.max(1) as usize).min(zones)
}

/// Ranks zones by the first number, and tells the share of the second ones in the top.
fn learned(counts: &[[u64; 2]], share: u64) -> Option<f64> {
    let mut seen: Vec<&[u64; 2]> = counts.iter().filter(|count| count[0] > 0).collect();
    seen.sort_by(|a, b| b[0].cmp(&a[0]));
    let hits = seen[..part(seen.len(), share)]
        .iter()
        .map(|count| count[1])
        .sum();
    percent(hits, counts.iter().map(|count| count[1]).sum())
}

/// How many of the most read zones hold this many reads.
fn holding(ranked: &[u64], reads: u64) -> u64 {
    let mut sum = 0;
    let mut zones = 0;
    for count in ranked {
        if sum >= reads {
            break;
        }
        sum += count;
        zones += 1;
    }
    zones
}

/// Beyond this many zones or reads neither noise nor an exponent are worth their time.
const WORTH: u64 = 1 << 23;

fn null(zones: usize, reads: u64) -> Option<f64> {
    if zones == 0 || reads > WORTH {
        return None;
    }
    let mut counts = vec![0; zones];
    let mut state = 0u64;
    for _ in 0..reads {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let zone = (u128::from(mixed(state)) * zones as u128) >> 64;
        counts[zone as usize] += 1;
    }
    counts.sort_unstable_by(|a: &u64, b| b.cmp(a));
    percent(counts[..part(zones, 20)].iter().sum(), reads)
}

/// SplitMix64 (Steele, Lea, Flood 2014).
fn mixed(state: u64) -> u64 {
    let mut z = state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The exponent for which the top fifth of the zones has this share; by halving an interval.
fn theta(zones: usize, share: f64) -> Option<f64> {
    if zones < 2 || zones as u64 > WORTH / 64 {
        return None;
    }
    let top = part(zones, 20);
    let share_of = |theta: f64| {
        let weight = |rank: usize| (rank as f64).powf(-theta);
        let head: f64 = (1..=top).map(weight).sum();
        let tail: f64 = (top + 1..=zones).map(weight).sum();
        head / (head + tail)
    };
    let (mut low, mut high) = (0.0, 8.0);
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        if share_of(middle) < share {
            low = middle;
        } else {
            high = middle;
        }
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(zones: &[u64]) -> Locality {
        let mut gatherer = Gatherer::new(Features::ALL, zones.len() as u64);
        for zone in zones {
            let request = Request::new(0, 0, Op::Read, zone * (24 << 20), 4096);
            gatherer.add(&request).unwrap();
        }
        gatherer.finish()
    }

    #[test]
    fn what_moves_is_seen_in_hindsight_but_not_learned() {
        let first = std::iter::repeat_n(0, 96).chain(1..5);
        let second = std::iter::repeat_n(9, 96).chain(1..5);
        let zones: Vec<u64> = first.chain(second).collect();
        let found = gathered(&zones).of_12_mib().clone();
        assert_eq!(found.zones, 6);
        assert_eq!(found.in_sample[1], Some(48.0));
        assert_eq!(found.learned[1], Some(0.0));
        assert_eq!(found.learned_all, Some(4.0));
        assert_eq!(found.reactive, Some(95.0));
    }

    #[test]
    fn what_stays_is_learned() {
        let zone = |index: u64| if index % 10 < 8 { 3 } else { index % 7 + 10 };
        let zones: Vec<u64> = (0..7000).map(zone).collect();
        let found = gathered(&zones).of_12_mib().clone();
        let close = |a: Option<f64>, b: Option<f64>| (a.unwrap() - b.unwrap()).abs() < 1.0;
        assert!(close(found.learned[1], found.in_sample[1]), "{found:?}");
        assert!(close(found.learned[1], found.alternating), "{found:?}");
        assert!(found.theta > Some(1.0), "{found:?}");
    }

    #[test]
    fn no_more_zones_are_moved_than_were_hot_before() {
        // Ten zones are read at first, so two are moved: zones 20 and 21, at their second read; zone 22 comes too late.
        let second = [20, 20, 20, 21, 21, 20, 22, 22, 22, 21];
        let zones: Vec<u64> = (0..10).chain(second).collect();
        let found = gathered(&zones);
        assert_eq!((found.hot_zones, found.reactive_as_many), (2, Some(30.0)));
    }

    #[test]
    fn no_reads_are_no_locality() {
        let found = gathered(&[]).of_12_mib().clone();
        assert_eq!(
            (found.in_sample[0], found.learned_all, found.theta),
            (None, None, None)
        );
    }
}
