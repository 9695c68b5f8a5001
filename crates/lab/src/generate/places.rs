//! Addresses of requests: zones by popularity over devices, the drift of popularity, and addresses within a
//! zone.
//!
//! Popularity is Zipf's law over the ranks of all zones together. Each rank goes to the device that lacks
//! most of its share, so the law and the shares both hold as nearly as possible: a zone that is more popular
//! than its device's share cannot be split. The zone of the device is drawn.

use super::math::pow;
use super::parameters::{Invalid, Parameters};
use super::random::{Weighted, shuffle};
use restripe_sim::rng::Rng;

const HOUR_NS: f64 = 3600e9;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Zone {
    pub device: u32,
    /// From the start of its device.
    pub index: u32,
}

pub struct Places {
    rng: Rng,
    zone_bytes: u64,
    align_bytes: u64,
    /// Whole zones of each device, and those of all devices before it.
    device_zones: Vec<u32>,
    before: Vec<u32>,
    law: Weighted,
    /// The zone of each rank; those beyond the law are in nobody's use.
    zone_of_rank: Vec<Zone>,
    /// How often each zone was visited, which is the number of its next place.
    visits: Vec<u32>,
    /// Between two neighbouring numbers' places.
    stride: u64,
    drift: Drift,
}

/// Hot ranks change zones one by one, in an order that comes to each once before it comes to any twice.
struct Drift {
    rng: Rng,
    order: Vec<u32>,
    done: u64,
    /// Nanoseconds between changes, none where nothing drifts.
    every_ns: Option<f64>,
    /// Ranks of each device that are not hot.
    cold: Vec<Vec<u32>>,
}

impl Places {
    pub fn new(parameters: &Parameters, mut rng: Rng) -> Result<Places, Invalid> {
        let whole = |bytes: u64| u32::try_from(bytes / parameters.zone_bytes);
        let devices = parameters.devices.iter();
        let zones: Result<Vec<u32>, _> = devices.clone().map(|one| whole(one.bytes)).collect();
        let device_zones = zones.map_err(|_| Invalid("too many zones".into()))?;
        let sum = |sum: &mut u32, zones: &u32| {
            let before = *sum;
            *sum += zones;
            Some(before)
        };
        let before: Vec<u32> = device_zones.iter().scan(0, sum).collect();
        let total: u32 = device_zones.iter().sum();
        let active = (f64::from(total) * parameters.active_share).ceil().max(1.0) as u32;
        let weights = (1..=active.min(total)).map(|rank| pow(f64::from(rank), -parameters.theta));
        let shares: Vec<f64> = devices.map(|device| device.share).collect();
        let zone_of_rank = assign(&device_zones, &shares, weights.clone(), &mut rng.fork(1));
        let slots = parameters.zone_bytes / parameters.align_bytes;
        Ok(Places {
            drift: Drift::new(parameters, &zone_of_rank, active.min(total), rng.fork(2)),
            rng: rng.fork(3),
            zone_bytes: parameters.zone_bytes,
            align_bytes: parameters.align_bytes,
            visits: vec![0; total as usize],
            device_zones,
            before,
            law: Weighted::new(weights),
            zone_of_rank,
            stride: stride(slots),
        })
    }

    /// A zone by popularity.
    pub fn zone(&mut self) -> Zone {
        self.zone_of_rank[self.law.draw(&mut self.rng)]
    }

    /// Any zone, as likely as any other.
    pub fn any_zone(&mut self) -> Zone {
        let drawn = self.rng.below(self.zone_of_rank.len() as u64);
        self.zone_of_rank[drawn as usize]
    }

    /// The next place of a zone, so that `length` bytes fit its device. Places of a zone come in an order that goes to
    /// all of them before it comes to one again, each far from the last.
    pub fn place(&mut self, zone: Zone, length: u64) -> u64 {
        let number = (self.before[zone.device as usize] + zone.index) as usize;
        let visit = self.visits[number];
        self.visits[number] = visit.wrapping_add(1);
        let slots = self.zone_bytes / self.align_bytes;
        // A zone's own beginning, so that zones do not go in step.
        let first = restripe_sim::rng::mix(number as u64) % slots;
        let along = u128::from(visit) * u128::from(self.stride) % u128::from(slots);
        let slot = (first + along as u64) % slots;
        let start = u64::from(zone.index) * self.zone_bytes + slot * self.align_bytes;
        self.fitting(zone.device, start, length)
    }

    /// The start itself, or the last aligned one before it that leaves room up to the device's end.
    pub fn fitting(&self, device: u32, start: u64, length: u64) -> u64 {
        let end = self.device_bytes(device);
        let last = end.saturating_sub(length) / self.align_bytes * self.align_bytes;
        start.min(last)
    }

    pub fn device_bytes(&self, device: u32) -> u64 {
        u64::from(self.device_zones[device as usize]) * self.zone_bytes
    }

    /// Lets popularity wander up to a time.
    pub fn drift(&mut self, time: u64) {
        let Some(every) = self.drift.every_ns else {
            return;
        };
        let due = (time as f64 / every) as u64;
        // After two rounds nothing of before is left, so more would change nothing but the draw.
        let rounds = 2 * self.drift.order.len() as u64;
        self.drift.done = self.drift.done.max(due.saturating_sub(rounds));
        while self.drift.done < due {
            self.replace_one();
        }
    }

    /// A hot rank and a cold one of the same device exchange their zones.
    fn replace_one(&mut self) {
        let drift = &mut self.drift;
        let at = drift.done % drift.order.len() as u64;
        let hot = drift.order[at as usize] as usize;
        drift.done += 1;
        let cold = &drift.cold[self.zone_of_rank[hot].device as usize];
        if cold.is_empty() {
            return;
        }
        let other = cold[drift.rng.below(cold.len() as u64) as usize];
        self.zone_of_rank.swap(hot, other as usize);
    }
}

impl Drift {
    fn new(parameters: &Parameters, zones: &[Zone], active: u32, mut rng: Rng) -> Drift {
        let hot = (f64::from(active) * parameters.hot_share).round() as u32;
        let mut order: Vec<u32> = (0..hot).collect();
        shuffle(&mut rng, &mut order);
        let mut cold = vec![Vec::new(); parameters.devices.len()];
        for (rank, zone) in (0..).zip(zones).skip(hot as usize) {
            cold[zone.device as usize].push(rank);
        }
        let an_hour = f64::from(hot) * parameters.drift;
        Drift {
            rng,
            order,
            done: 0,
            every_ns: (an_hour > 0.0).then(|| HOUR_NS / an_hour),
            cold,
        }
    }
}

/// The zone of each rank: first those with weights, then all that are left.
fn assign<W>(device_zones: &[u32], shares: &[f64], weights: W, rng: &mut Rng) -> Vec<Zone>
where
    W: Iterator<Item = f64> + Clone,
{
    let mut shuffled = |zones: &u32| {
        let mut indices: Vec<u32> = (0..*zones).collect();
        shuffle(rng, &mut indices);
        indices
    };
    let mut left: Vec<Vec<u32>> = device_zones.iter().map(&mut shuffled).collect();
    let whole = weights.clone().sum::<f64>() / shares.iter().sum::<f64>();
    let due: Vec<f64> = shares.iter().map(|share| share * whole).collect();
    let mut given = vec![0.0; shares.len()];
    let mut zones = Vec::new();
    for weight in weights {
        let device = neediest(&due, &given, &left);
        given[device] += weight;
        let index = left[device].pop().expect("the neediest has a zone left");
        let device = device as u32;
        zones.push(Zone { device, index });
    }
    for (device, indices) in (0..).zip(left) {
        zones.extend(indices.into_iter().map(|index| Zone { device, index }));
    }
    zones
}

/// The device that was given least of what it is due, of those with zones left; there is one.
fn neediest(due: &[f64], given: &[f64], left: &[Vec<u32>]) -> usize {
    let served = |device: usize| match due[device] > 0.0 {
        true => given[device] / due[device],
        false => f64::INFINITY,
    };
    let with_room = (0..due.len()).filter(|device| !left[*device].is_empty());
    with_room
        .min_by(|a, b| served(*a).total_cmp(&served(*b)))
        .expect("there are no more ranks than zones")
}

/// Near the golden section of the places, and without a divisor in common with their number.
fn stride(slots: u64) -> u64 {
    let mut stride = (slots as f64 * 0.618_033_988_749_894_9) as u64;
    stride = stride.max(1);
    while common_divisor(stride, slots) != 1 {
        stride += 1;
    }
    stride
}

fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::super::parameters::Device;
    use super::super::parameters::tests::plain;
    use super::*;
    use std::collections::BTreeSet;

    fn places(parameters: &Parameters) -> Places {
        Places::new(parameters, Rng::new(11)).unwrap()
    }

    #[test]
    fn the_law_holds_over_all_zones_and_the_shares_over_devices() {
        let devices = [(3.0, 600 << 20), (1.0, 200 << 20)];
        let mut parameters = plain();
        parameters.theta = 0.8;
        parameters.devices = devices.map(|(share, bytes)| Device { share, bytes }).into();
        let mut places = places(&parameters);
        let mut counts = vec![[0u32; 600]; 2];
        for _ in 0..400_000 {
            let zone = places.zone();
            counts[zone.device as usize][zone.index as usize] += 1;
        }
        let of_second: u32 = counts[1].iter().sum();
        assert!(of_second.abs_diff(100_000) < 2_000, "{of_second}");
        let mut ranked: Vec<u32> = counts.concat();
        ranked.sort_unstable_by(|a, b| b.cmp(a));
        let sum: f64 = (1..=800).map(|rank| f64::from(rank).powf(-0.8)).sum();
        for rank in [1, 5, 50] {
            let expected = 400_000.0 * f64::from(rank).powf(-0.8) / sum;
            let found = f64::from(ranked[rank as usize - 1]);
            let near = (found / expected - 1.0).abs() < 0.1;
            assert!(near, "{rank}: {found} {expected}");
        }
    }

    #[test]
    fn a_zone_is_gone_through_before_a_place_repeats() {
        for (zone_bytes, align_bytes) in [(1 << 20, 4096), (12 << 20, 4096), (4096, 4096)] {
            let mut parameters = plain();
            (parameters.zone_bytes, parameters.align_bytes) = (zone_bytes, align_bytes);
            parameters.write_sizes = parameters.read_sizes.clone();
            let mut places = places(&parameters);
            let zone = places.zone();
            let slots = zone_bytes / align_bytes;
            let seen: BTreeSet<u64> = (0..slots).map(|_| places.place(zone, 4096)).collect();
            assert_eq!(seen.len() as u64, slots);
            let from = u64::from(zone.index) * zone_bytes;
            assert!(seen.iter().all(|at| (from..from + zone_bytes).contains(at)));
        }
    }

    #[test]
    fn nothing_leaves_its_device() {
        let mut parameters = plain();
        parameters.align_bytes = 512;
        let mut places = places(&parameters);
        let (device, index) = (0, 99);
        let last = Zone { device, index };
        for _ in 0..4096 {
            let start = places.place(last, 300_000);
            assert!(start + 300_000 <= 100 << 20);
        }
    }

    #[test]
    fn drift_replaces_so_much_of_the_hot_set_an_hour() {
        for (drift, kept) in [(0.0, 20), (0.5, 10), (1.0, 0)] {
            let parameters = Parameters { drift, ..plain() };
            let mut places = places(&parameters);
            let hot = |places: &Places| -> BTreeSet<u32> {
                let zones = places.zone_of_rank[..20].iter();
                zones.map(|zone| zone.index).collect()
            };
            let before = hot(&places);
            places.drift(HOUR_NS as u64 + 1);
            let found = hot(&places).intersection(&before).count();
            // A zone that became cold may be drawn again.
            assert!((kept..=kept + 4).contains(&found), "{drift}: {found}");
        }
    }

    #[test]
    fn zones_out_of_use_are_not_drawn() {
        let mut parameters = plain();
        parameters.active_share = 0.1;
        let mut places = places(&parameters);
        let seen: BTreeSet<u32> = (0..10_000).map(|_| places.zone().index).collect();
        assert_eq!(seen.len(), 10);
    }
}
