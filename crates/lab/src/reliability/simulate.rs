//! Lives of single disks, from seeds: a disk has a lifetime, waits for its spare, is repaired, and fails
//! again.
//!
//! The simulation uses no state of a chain, and does not assume that exponential times have no memory: a
//! disk's lifetime is drawn once, and a repair is an amount of work that is done step by step. All
//! arithmetic is additions, multiplications and divisions in a fixed order, so a seed gives the same figures
//! on every build.

use super::conditions::{Conditions, Repair};
use super::model::Model;
use super::quantity::to_float;
use restripe_sim::rng::Rng;

/// What many lives came to.
#[derive(Clone, PartialEq, Debug)]
pub struct Lives {
    /// Hours until data was lost, seed by seed.
    pub hours: Vec<f64>,
    /// Failures of disks in all.
    pub failures: u64,
    /// Repairs in all.
    pub repairs: u64,
}

/// A mean and half the width of its interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    pub mean: f64,
    pub half_width: f64,
}

impl Estimate {
    pub fn contains(&self, value: f64) -> bool {
        (value - self.mean).abs() <= self.half_width
    }
}

/// Standard deviations of a normal distribution to either side that hold 95% of it.
pub const NORMAL_95: f64 = 1.959_964;

impl Lives {
    /// The mean time to data loss; `deviations` either side. Fewer than two lives have no interval.
    pub fn mean(&self, deviations: f64) -> Estimate {
        let count = self.hours.len() as f64;
        let mean = self.hours.iter().sum::<f64>() / count;
        let squares: f64 = self
            .hours
            .iter()
            .map(|hours| (hours - mean) * (hours - mean))
            .sum();
        let variance = squares / (count - 1.0);
        Estimate {
            mean,
            half_width: deviations * (variance / count).sqrt(),
        }
    }

    /// How many lives ended within `hours`.
    pub fn lost_by(&self, hours: f64) -> usize {
        self.hours.iter().filter(|end| **end <= hours).count()
    }

    /// The share of lives that ended within `hours`, in Wilson's interval, which holds for shares near 0 and 1 as well. Its middle is not the
    /// share that was seen: that is [`Lives::lost_by`] of all.
    pub fn lost_within(&self, hours: f64, deviations: f64) -> Estimate {
        let count = self.hours.len() as f64;
        let share = self.lost_by(hours) as f64 / count;
        let square = deviations * deviations;
        let scale = 1.0 + square / count;
        let spread = share * (1.0 - share) / count + square / (4.0 * count * count);
        Estimate {
            mean: (share + square / (2.0 * count)) / scale,
            half_width: deviations * spread.sqrt() / scale,
        }
    }
}

/// One life for each of `runs` seeds from `seed` on. None if that takes more than `events_max` failures, spares and repairs.
pub fn simulate(
    model: &Model,
    conditions: &Conditions,
    seed: u64,
    runs: u64,
    events_max: u64,
) -> Option<Lives> {
    let world = World::new(model, conditions);
    let mut lives = Lives {
        hours: Vec::new(),
        failures: 0,
        repairs: 0,
    };
    let mut left = events_max;
    for run in 0..runs {
        let mut life = Life::new(&world, Rng::new(seed.wrapping_add(run)));
        while !life.lost {
            left = left.checked_sub(1)?;
            life.step();
        }
        lives.hours.push(life.now);
        lives.failures += life.failures;
        lives.repairs += life.repairs;
    }
    Some(lives)
}

/// What all lives share.
struct World {
    /// By disk, the mean lifetime; infinite for one that cannot fail.
    lifetime: Vec<f64>,
    /// Of one that is awake.
    awake: f64,
    /// By disk, the one for whose rebuild it wakes.
    wakes_for: Vec<Option<usize>>,
    mttr: f64,
    spare_delay: f64,
    sector_loss: f64,
    repair: Repair,
    tolerates: Vec<usize>,
    /// By disk, its groups.
    member_of: Vec<Vec<usize>>,
}

impl World {
    fn new(model: &Model, conditions: &Conditions) -> World {
        let mttf = to_float(&conditions.mttf);
        let mut member_of = vec![Vec::new(); model.disks];
        for (number, group) in model.groups.iter().enumerate() {
            for disk in &group.disks {
                member_of[*disk].push(number);
            }
        }
        World {
            lifetime: model
                .wear
                .iter()
                .map(|wear| mttf / to_float(wear))
                .collect(),
            awake: mttf,
            wakes_for: model.wakes_for.clone(),
            mttr: to_float(&conditions.mttr),
            spare_delay: to_float(&conditions.spare_delay),
            sector_loss: to_float(&conditions.sector_loss),
            repair: conditions.repair,
            tolerates: model.groups.iter().map(|group| group.tolerates).collect(),
            member_of,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Disk {
    /// Of its life so much was left at `since`, in mean lifetimes of `mean`.
    Lives {
        since: f64,
        left: f64,
        mean: f64,
    },
    Waits {
        until: f64,
    },
    Repairs {
        work: f64,
    },
}

struct Life<'a> {
    world: &'a World,
    rng: Rng,
    now: f64,
    disks: Vec<Disk>,
    /// By group, disks that failed.
    failed: Vec<usize>,
    in_repair: usize,
    failures: u64,
    repairs: u64,
    lost: bool,
}

impl Life<'_> {
    fn new(world: &World, mut rng: Rng) -> Life<'_> {
        let lives = |mean: &f64| Disk::Lives {
            since: 0.0,
            left: exponential(&mut rng),
            mean: *mean,
        };
        Life {
            disks: world.lifetime.iter().map(lives).collect(),
            failed: vec![0; world.tolerates.len()],
            world,
            rng,
            now: 0.0,
            in_repair: 0,
            failures: 0,
            repairs: 0,
            lost: false,
        }
    }

    /// Goes to what happens next; of equal times the lowest disk comes first.
    fn step(&mut self) {
        let slowdown = match self.world.repair {
            Repair::All => 1.0,
            Repair::One => self.in_repair as f64,
        };
        let (mut disk, mut at) = (0, f64::INFINITY);
        for (index, state) in self.disks.iter().enumerate() {
            let time = match state {
                Disk::Lives { since, left, mean } => since + mean * left,
                Disk::Waits { until } => *until,
                Disk::Repairs { work } => self.now + work * slowdown,
            };
            if time < at {
                (disk, at) = (index, time);
            }
        }
        self.work((at - self.now) / slowdown);
        self.now = at;
        match self.disks[disk] {
            Disk::Lives { .. } => self.fail(disk),
            Disk::Waits { .. } => self.start_repair(disk),
            Disk::Repairs { .. } => self.end_repair(disk),
        }
    }

    fn work(&mut self, done: f64) {
        if self.in_repair == 0 {
            return;
        }
        for state in &mut self.disks {
            if let Disk::Repairs { work } = state {
                *work -= done;
            }
        }
    }

    fn fail(&mut self, disk: usize) {
        self.failures += 1;
        for group in &self.world.member_of[disk] {
            self.failed[*group] += 1;
            self.lost |= self.failed[*group] > self.world.tolerates[*group];
        }
        self.wake_mirrors(disk, true);
        if self.world.spare_delay > 0.0 {
            let until = self.now + self.world.spare_delay * exponential(&mut self.rng);
            self.disks[disk] = Disk::Waits { until };
        } else {
            self.start_repair(disk);
        }
    }

    fn start_repair(&mut self, disk: usize) {
        self.in_repair += 1;
        let work = self.world.mttr * exponential(&mut self.rng);
        self.disks[disk] = Disk::Repairs { work };
    }

    fn end_repair(&mut self, disk: usize) {
        self.repairs += 1;
        self.in_repair -= 1;
        let groups = &self.world.member_of[disk];
        let bare = groups
            .iter()
            .any(|group| self.failed[*group] == self.world.tolerates[*group]);
        if bare && self.world.sector_loss > 0.0 {
            self.lost |= unit(&mut self.rng) < self.world.sector_loss;
        }
        for group in groups {
            self.failed[*group] -= 1;
        }
        self.disks[disk] = Disk::Lives {
            since: self.now,
            left: exponential(&mut self.rng),
            mean: self.mean_of(disk),
        };
        self.wake_mirrors(disk, false);
    }

    fn mean_of(&self, disk: usize) -> f64 {
        let failed = |source: usize| !matches!(self.disks[source], Disk::Lives { .. });
        match self.world.wakes_for[disk] {
            Some(source) if failed(source) => self.world.awake,
            _ => self.world.lifetime[disk],
        }
    }

    /// Who is the source of a disk's rebuild lives as one that is awake from now on, or as it did before.
    fn wake_mirrors(&mut self, source: usize, awake: bool) {
        for index in 0..self.disks.len() {
            if self.world.wakes_for[index] != Some(source) {
                continue;
            }
            let asleep = self.world.lifetime[index];
            if let Disk::Lives { since, left, mean } = &mut self.disks[index] {
                *left -= (self.now - *since) / *mean;
                *since = self.now;
                *mean = if awake { self.world.awake } else { asleep };
            }
        }
    }
}

/// From 0 up to, but not, 1.
fn unit(rng: &mut Rng) -> f64 {
    (rng.word() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Exponentially distributed with mean 1, by comparisons alone (von Neumann, 1951): no logarithm, whose last digits
/// differ between platforms. A falling run of odd length, from its first number on, is a draw's fraction; each run of
/// even length adds one to its whole part. A draw is above zero.
fn exponential(rng: &mut Rng) -> f64 {
    let mut whole = 0.0;
    loop {
        let first = unit(rng);
        let (mut last, mut length) = (first, 1);
        loop {
            let next = unit(rng);
            if next >= last {
                break;
            }
            last = next;
            length += 1;
        }
        if length % 2 == 1 {
            return (whole + first).max(f64::EPSILON);
        }
        whole += 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_are_exponential() {
        let mut rng = Rng::new(7);
        let draws: Vec<f64> = (0..200_000).map(|_| exponential(&mut rng)).collect();
        let count = draws.len() as f64;
        let mean = draws.iter().sum::<f64>() / count;
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
        for at in [0.1, 0.5, 1.0, 2.0, 4.0] {
            let beyond = draws.iter().filter(|draw| **draw > at).count() as f64 / count;
            assert!((beyond - (-at).exp()).abs() < 0.004, "{at}: {beyond}");
        }
    }
}
