//! Draws that the generator needs, from the simulator's source of chance.

use super::math::pow;
use restripe_sim::rng::Rng;

/// Above 0, up to 1.
pub fn unit(rng: &mut Rng) -> f64 {
    ((rng.word() >> 11) + 1) as f64 / (1u64 << 53) as f64
}

pub fn chance(rng: &mut Rng, probability: f64) -> bool {
    unit(rng) <= probability
}

/// From `near` to `far`, both included, every doubling as likely as any other.
pub fn by_doublings(rng: &mut Rng, near: u64, far: u64) -> u64 {
    let ratio = (far + 1) as f64 / near as f64;
    let drawn = near as f64 * pow(ratio, unit(rng));
    (drawn as u64).clamp(near, far)
}

/// Draws indices by their weights.
pub struct Weighted {
    /// Sums of the weights up to each, as whole numbers.
    sums: Vec<u64>,
}

impl Weighted {
    /// The weights are not negative, and one at least is above zero. Relative errors are below 2^-40.
    pub fn new(weights: impl Iterator<Item = f64> + Clone) -> Weighted {
        let whole: f64 = weights.clone().sum();
        let mut sum = 0.0;
        let sums = weights.map(|weight| {
            sum += weight;
            (sum / whole * (1u64 << 52) as f64) as u64
        });
        Weighted {
            sums: sums.collect(),
        }
    }

    pub fn draw(&self, rng: &mut Rng) -> usize {
        let total = self.sums.last().copied().unwrap_or(0).max(1);
        let drawn = rng.below(total);
        let index = self.sums.partition_point(|sum| *sum <= drawn);
        index.min(self.sums.len() - 1)
    }
}

/// Puts a list into any order.
pub fn shuffle<T>(rng: &mut Rng, list: &mut [T]) {
    for last in (1..list.len()).rev() {
        list.swap(last, rng.below(last as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_frequencies() {
        let weighted = Weighted::new([1.0, 0.0, 3.0].into_iter());
        let mut rng = Rng::new(1);
        let mut counts = [0u32; 3];
        for _ in 0..40_000 {
            counts[weighted.draw(&mut rng)] += 1;
        }
        assert_eq!(counts[1], 0);
        assert!(counts[0].abs_diff(10_000) < 400, "{counts:?}");
    }

    #[test]
    fn doublings_are_equally_likely_and_bounds_are_kept() {
        let mut rng = Rng::new(2);
        let mut octaves = [0u32; 4];
        for _ in 0..40_000 {
            let drawn = by_doublings(&mut rng, 4, 63);
            assert!((4..=63).contains(&drawn));
            octaves[(drawn / 4).ilog2() as usize] += 1;
        }
        for count in octaves {
            assert!(count.abs_diff(10_000) < 400, "{octaves:?}");
        }
        assert_eq!(by_doublings(&mut rng, 5, 5), 5);
    }

    #[test]
    fn a_shuffle_keeps_all() {
        let mut list: Vec<u32> = (0..100).collect();
        shuffle(&mut Rng::new(3), &mut list);
        assert_ne!(list, (0..100).collect::<Vec<u32>>());
        list.sort_unstable();
        assert_eq!(list, (0..100).collect::<Vec<u32>>());
    }
}
