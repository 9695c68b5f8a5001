//! The requests of a synthetic workload, one by one, from its parameters and a seed.
//!
//! A *phrase* is a visit of some new reads or new writes to a zone, one re-read, or one rewrite. Phrases are
//! drawn so that each kind gets its share of the requests. During a scan, some requests belong to the scan.
//! Memory is that of the zones and of the stacks of recent requests, whatever the number of requests.

use super::arrivals::Arrivals;
use super::parameters::{Invalid, Parameters};
use super::places::{Places, Zone};
use super::random::{Weighted, by_doublings, chance};
use super::stack::Stack;
use crate::trace::{Op, Request, Requests};
use restripe_sim::rng::Rng;

/// Makes requests without end: take as many as are wanted.
pub struct Generator {
    parameters: Parameters,
    rng: Rng,
    arrivals: Arrivals,
    places: Places,
    phrases: Weighted,
    sizes: [Sizes; 2],
    recent: [Stack<Extent>; 2],
    visit: Option<Visit>,
    scan: Option<Scan>,
    scan_begins: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Extent {
    device: u32,
    offset: u64,
    length: u64,
}

struct Sizes {
    bytes: Vec<u64>,
    weights: Weighted,
}

impl Sizes {
    fn new(sizes: &[(u64, f64)]) -> Sizes {
        Sizes {
            bytes: sizes.iter().map(|(bytes, _)| *bytes).collect(),
            weights: Weighted::new(sizes.iter().map(|(_, weight)| *weight)),
        }
    }
}

/// Requests of one kind that go to one zone after each other.
struct Visit {
    writes: bool,
    zone: Zone,
    end: u64,
}

/// A sequential read in progress.
struct Scan {
    device: u32,
    next: u64,
}

const PHRASES: [Phrase; 4] = [
    Phrase::Visit { writes: false },
    Phrase::Visit { writes: true },
    Phrase::Repeat { writes: false },
    Phrase::Repeat { writes: true },
];

#[derive(Clone, Copy)]
enum Phrase {
    Visit { writes: bool },
    Repeat { writes: bool },
}

impl Generator {
    pub fn new(parameters: &Parameters, seed: u64) -> Result<Generator, Invalid> {
        parameters.check()?;
        let mut rng = Rng::new(seed);
        let depth = |far: u64| usize::try_from(far).map_err(|_| Invalid("too deep".into()));
        Ok(Generator {
            arrivals: Arrivals::new(parameters, rng.fork(1)),
            places: Places::new(parameters, rng.fork(2))?,
            rng: rng.fork(3),
            phrases: Weighted::new(phrase_weights(parameters).into_iter()),
            sizes: [
                Sizes::new(&parameters.read_sizes),
                Sizes::new(&parameters.write_sizes),
            ],
            recent: [
                Stack::new(depth(parameters.reread_distance.1)?),
                Stack::new(depth(parameters.rewrite_distance.1)?),
            ],
            visit: None,
            scan: None,
            scan_begins: scan_begins(parameters),
            parameters: parameters.clone(),
        })
    }

    /// So many requests, as a trace.
    pub fn requests(self, count: u64) -> Requests {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        Box::new(self.take(count).map(Ok))
    }

    fn next_extent(&mut self) -> (Op, Extent) {
        if let Some(extent) = self.scanned() {
            return (Op::Read, extent);
        }
        let goes_on = 1.0 - 1.0 / self.parameters.run_requests;
        if let Some(visit) = self.visit.take()
            && chance(&mut self.rng, goes_on)
        {
            return self.continued(visit);
        }
        match PHRASES[self.phrases.draw(&mut self.rng)] {
            Phrase::Visit { writes } => self.begun(writes),
            Phrase::Repeat { writes } => self.repeated(writes),
        }
    }

    fn begun(&mut self, writes: bool) -> (Op, Extent) {
        let zone = self.places.zone();
        let length = self.size(writes);
        let start = self.places.place(zone, length);
        self.fresh(writes, zone, start, length)
    }

    fn continued(&mut self, visit: Visit) -> (Op, Extent) {
        let length = self.size(visit.writes);
        let bytes = self.parameters.zone_bytes;
        let zone_end = (u64::from(visit.zone.index) + 1) * bytes;
        let follows = visit.end + length <= zone_end;
        let start = match follows && chance(&mut self.rng, self.parameters.sequential) {
            true => visit.end,
            false => self.places.place(visit.zone, length),
        };
        self.fresh(visit.writes, visit.zone, start, length)
    }

    /// A request within a visit, which becomes the current one.
    fn fresh(&mut self, writes: bool, zone: Zone, offset: u64, length: u64) -> (Op, Extent) {
        let (device, end) = (zone.device, offset + length);
        self.visit = Some(Visit { writes, zone, end });
        let extent = Extent {
            device,
            offset,
            length,
        };
        self.remember(writes, extent)
    }

    /// Something of before, or a visit where there is nothing yet that is deep enough.
    fn repeated(&mut self, writes: bool) -> (Op, Extent) {
        let recent = &mut self.recent[usize::from(writes)];
        let (near, far) = match writes {
            true => self.parameters.rewrite_distance,
            false => self.parameters.reread_distance,
        };
        let far = far.min(recent.len() as u64);
        if near > far {
            return self.begun(writes);
        }
        let depth = by_doublings(&mut self.rng, near, far) as usize;
        match recent.take(depth) {
            Some(extent) => self.remember(writes, extent),
            None => self.begun(writes),
        }
    }

    fn remember(&mut self, writes: bool, extent: Extent) -> (Op, Extent) {
        self.recent[usize::from(writes)].push(extent);
        (if writes { Op::Write } else { Op::Read }, extent)
    }

    fn size(&mut self, writes: bool) -> u64 {
        let sizes = &self.sizes[usize::from(writes)];
        sizes.bytes[sizes.weights.draw(&mut self.rng)]
    }

    /// The next request of a scan, if it is the scan's turn.
    fn scanned(&mut self) -> Option<Extent> {
        if self.scan.is_none() && chance(&mut self.rng, self.scan_begins) {
            let zone = self.places.any_zone();
            let (device, index) = (zone.device, u64::from(zone.index));
            let next = index * self.parameters.zone_bytes;
            self.scan = Some(Scan { device, next });
        }
        let mut scan = self.scan.take()?;
        if !chance(&mut self.rng, self.parameters.scan_weight) {
            self.scan = Some(scan);
            return None;
        }
        let extent = self.scan_step(&mut scan);
        if !chance(&mut self.rng, 1.0 / self.parameters.scan_requests) {
            self.scan = Some(scan);
        }
        Some(extent)
    }

    /// A scan that comes to the end of its device goes on at its beginning.
    fn scan_step(&self, scan: &mut Scan) -> Extent {
        let length = self.parameters.scan_bytes;
        if scan.next + length > self.places.device_bytes(scan.device) {
            scan.next = 0;
        }
        let offset = scan.next;
        scan.next += length;
        Extent {
            device: scan.device,
            offset,
            length,
        }
    }
}

impl Iterator for Generator {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let time = self.arrivals.next_time();
        self.places.drift(time);
        let (op, extent) = self.next_extent();
        let (device, offset, length) = (extent.device, extent.offset, extent.length);
        Some(Request::new(time, device, op, offset, length))
    }
}

/// Weights of [`PHRASES`]: shares of requests by the mean number of requests of such a phrase. Scans are reads, so the
/// rest has fewer, to the same share of all.
fn phrase_weights(parameters: &Parameters) -> [f64; 4] {
    let writes = parameters.write_share;
    let reads = (1.0 - writes - parameters.scan_share).max(0.0);
    let (again, anew) = (parameters.reread_share, parameters.rewrite_share);
    let weights = [
        reads * (1.0 - again) / parameters.run_requests,
        writes * (1.0 - anew) / parameters.run_requests,
        reads * again,
        writes * anew,
    ];
    // Scans alone: nothing else is ever drawn but at its start.
    match weights.iter().sum::<f64>() > 0.0 {
        true => weights,
        false => [1.0, 0.0, 0.0, 0.0],
    }
}

/// The chance that a scan begins at a request that finds none, so that scans get their share: a scan of n requests is on
/// for n / weight of them, and off for as many as the share leaves.
fn scan_begins(parameters: &Parameters) -> f64 {
    let (share, weight) = (parameters.scan_share, parameters.scan_weight);
    if share <= 0.0 {
        return 0.0;
    }
    let off = parameters.scan_requests * (1.0 / share - 1.0 / weight);
    1.0 / off.max(1.0)
}

#[cfg(test)]
mod tests {
    use super::super::parameters::tests::plain;
    use super::*;
    use std::collections::BTreeSet;

    fn made(parameters: &Parameters, count: usize) -> Vec<Request> {
        Generator::new(parameters, 5).unwrap().take(count).collect()
    }

    fn share(requests: &[Request], is: impl Fn(&Request) -> bool) -> f64 {
        requests.iter().filter(|request| is(request)).count() as f64 / requests.len() as f64
    }

    #[test]
    fn a_seed_is_a_workload() {
        let parameters = plain();
        assert_eq!(made(&parameters, 1000), made(&parameters, 1000));
        let other = Generator::new(&parameters, 6).unwrap().take(1000);
        assert_ne!(made(&parameters, 1000), other.collect::<Vec<Request>>());
    }

    #[test]
    fn kinds_get_their_shares_whatever_the_length_of_visits() {
        for run_requests in [1.0, 8.0] {
            let mut parameters = Parameters {
                run_requests,
                sequential: 1.0,
                write_share: 0.3,
                reread_share: 0.4,
                zone_bytes: 12 << 20,
                ..plain()
            };
            parameters.devices[0].bytes = 12 << 30;
            let requests = made(&parameters, 200_000);
            let writes = share(&requests, |request| request.op == Op::Write);
            assert!((writes - 0.3).abs() < 0.01, "{writes}");
            let mut seen = BTreeSet::new();
            let reads = requests.iter().filter(|request| request.op == Op::Read);
            let again = reads.filter(|request| !seen.insert(request.offset));
            let again = again.count() as f64 / (200_000.0 * 0.7);
            assert!((again - 0.4).abs() < 0.02, "{again}");
        }
    }

    #[test]
    fn visits_are_as_long_and_as_sequential_as_asked_for() {
        let mut parameters = plain();
        (parameters.run_requests, parameters.sequential) = (5.0, 0.5);
        parameters.zone_bytes = 12 << 20;
        parameters.devices[0].bytes = 120 << 30;
        let requests = made(&parameters, 100_000);
        let pairs: Vec<(Request, Request)> = requests.windows(2).map(|p| (p[0], p[1])).collect();
        let follows = pairs.iter().filter(|(a, b)| a.end() == b.offset).count() as f64;
        let zone = |request: &Request| request.offset / (12 << 20);
        let stays = pairs.iter().filter(|(a, b)| zone(a) == zone(b)).count() as f64;
        assert!((stays / 1e5 - 0.8).abs() < 0.02, "{stays}");
        assert!((follows / 1e5 - 0.4).abs() < 0.02, "{follows}");
    }

    #[test]
    fn scans_get_their_share_and_are_sequential() {
        let parameters = Parameters {
            scan_share: 0.2,
            scan_weight: 0.5,
            scan_requests: 100.0,
            write_share: 0.5,
            ..plain()
        };
        let requests = made(&parameters, 400_000);
        let scans: Vec<&Request> = requests.iter().filter(|r| r.length == 65_536).collect();
        let found = scans.len() as f64 / requests.len() as f64;
        assert!((found - 0.2).abs() < 0.02, "{found}");
        let pairs = scans.windows(2);
        let follows = pairs.filter(|p| p[0].end() == p[1].offset).count();
        assert!(follows as f64 > 0.97 * scans.len() as f64);
        let writes = share(&requests, |request| request.op == Op::Write);
        assert!((writes - 0.5).abs() < 0.01, "{writes}");
    }

    #[test]
    fn nothing_but_scans_and_nothing_but_repeats_go_on_too() {
        let mut scans = plain();
        (scans.scan_share, scans.scan_weight) = (1.0, 1.0);
        scans.write_share = 0.0;
        assert_eq!(
            share(&made(&scans, 1000), |request| request.op == Op::Read),
            1.0
        );
        let mut repeats = plain();
        (repeats.reread_share, repeats.rewrite_share) = (1.0, 1.0);
        let found = made(&repeats, 1000);
        let places: BTreeSet<u64> = found.iter().map(|request| request.offset).collect();
        assert!(places.len() <= 2, "{}", places.len());
    }
}
