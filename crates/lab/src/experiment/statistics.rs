//! Geometric means with 95% intervals, of values and of paired ratios, and tests of ratios.
//!
//! Student's t on logarithms, and Holm's correction for a family of tests. The t distribution is a finite sum
//! for whole degrees of freedom (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and
//! 26.7.4), which needs no crate.

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};

/// The level of a test, and what an interval leaves out.
pub(crate) const ALPHA: f64 = 0.05;

/// A geometric mean and its 95% interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    pub mean: f64,
    pub low: f64,
    pub high: f64,
    pub count: usize,
    /// The standard error of the mean logarithm; 0 of a single value.
    pub(crate) error: f64,
}

impl Estimate {
    /// Of one value, or of equal ones that are one: there is no interval.
    pub(crate) fn single(value: f64) -> Estimate {
        Estimate {
            mean: value,
            low: value,
            high: value,
            count: 1,
            error: 0.0,
        }
    }

    pub(crate) fn is_single(&self) -> bool {
        self.count < 2
    }

    /// The probability of a mean as low as this or lower if the ratio were `bound`, by a one-sided test: a
    /// small one is evidence that the ratio is below `bound`.
    pub(crate) fn p_below(&self, bound: f64) -> f64 {
        1.0 - self.p_above(bound)
    }

    /// The same of a mean as high as this or higher: evidence that the ratio is above `bound`.
    pub(crate) fn p_above(&self, bound: f64) -> f64 {
        let distance = self.mean.ln() - bound.ln();
        let sure = self.error == 0.0 || distance.is_infinite();
        match (sure, distance > 0.0) {
            (true, true) => 0.0,
            (true, false) if distance < 0.0 => 1.0,
            (true, false) => 0.5,
            (false, above) => {
                let tail = both_tails(distance / self.error, self.count - 1) / 2.0;
                if above { tail } else { 1.0 - tail }
            }
        }
    }
}

/// Of positive values, in their order; `None` of none, or if one is not positive. A single value has no
/// interval but itself.
pub fn geometric(values: &[f64]) -> Option<Estimate> {
    let sound = |value: &f64| *value > 0.0 && value.is_finite();
    if values.is_empty() || !values.iter().all(sound) {
        return None;
    }
    let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    let count = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / count;
    if logs.len() == 1 {
        return Some(Estimate::single(mean.exp()));
    }
    let squares: f64 = logs.iter().map(|log| (log - mean) * (log - mean)).sum();
    let error = (squares / (count - 1.0) / count).sqrt();
    let half = quantile(ALPHA, logs.len() - 1) * error;
    Some(Estimate {
        mean: mean.exp(),
        low: (mean - half).exp(),
        high: (mean + half).exp(),
        count: logs.len(),
        error,
    })
}

/// The ratio of pairs: of the first to the second.
pub fn ratio(pairs: &[(f64, f64)]) -> Option<Estimate> {
    let sound = |(of, to): &(f64, f64)| *of > 0.0 && *to > 0.0;
    if !pairs.iter().all(sound) {
        return None;
    }
    let ratios: Vec<f64> = pairs.iter().map(|(of, to)| of / to).collect();
    geometric(&ratios)
}

/// Holm's correction: the probability for each test at which it would be decided if all of the family are
/// to be right together with the same certainty. In the order of the tests.
pub(crate) fn holm(family: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..family.len()).collect();
    order.sort_by(|a, b| family[*a].total_cmp(&family[*b]));
    let mut corrected = vec![1.0; family.len()];
    let mut least: f64 = 0.0;
    for (rank, test) in order.into_iter().enumerate() {
        let left = (family.len() - rank) as f64;
        least = least.max((family[test] * left).min(1.0));
        corrected[test] = least;
    }
    corrected
}

/// The probability that Student's t is at least this far from 0, on either side.
fn both_tails(t: f64, degrees: usize) -> f64 {
    let angle = (t.abs() / (degrees as f64).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    // Factors of the sum: 1/2, 3/4, ... of even degrees, 2/3, 4/5, ... of odd ones.
    let odd = degrees % 2;
    let mut term = if odd == 1 { cosine } else { 1.0 };
    let mut sum = if degrees > 1 { term } else { 0.0 };
    let mut nth = 2 + odd;
    while nth < degrees {
        term *= cosine * cosine * (nth - 1) as f64 / nth as f64;
        sum += term;
        nth += 2;
    }
    let within = match odd {
        1 => FRAC_2_PI * (angle + sine * sum),
        _ => sine * sum,
    };
    (1.0 - within).clamp(0.0, 1.0)
}

/// The distance from 0 that Student's t exceeds with probability `p`, on either side together.
fn quantile(p: f64, degrees: usize) -> f64 {
    // By bisection of the angle, which has an end where t has none.
    let t_at = |angle: f64| angle.tan() * (degrees as f64).sqrt();
    let (mut low, mut high) = (0.0, FRAC_PI_2);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        match both_tails(t_at(middle), degrees) > p {
            true => low = middle,
            false => high = middle,
        }
    }
    t_at(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_tables() {
        // The two-sided 5% and 1% points of Student's t.
        for (degrees, five, one) in [
            (1, 12.706, 63.657),
            (2, 4.303, 9.925),
            (3, 3.182, 5.841),
            (4, 2.776, 4.604),
            (5, 2.571, 4.032),
            (9, 2.262, 3.250),
            (10, 2.228, 3.169),
            (29, 2.045, 2.756),
            (30, 2.042, 2.750),
            (59, 2.001, 2.662),
            (120, 1.980, 2.617),
        ] {
            assert!((quantile(0.05, degrees) - five).abs() < 6e-4, "{degrees}");
            assert!((quantile(0.01, degrees) - one).abs() < 6e-4, "{degrees}");
            assert!((both_tails(five, degrees) - 0.05).abs() < 6e-5, "{degrees}");
        }
    }

    #[test]
    fn the_mean_is_geometric_and_the_interval_students() {
        let found = geometric(&[1.0, 2.0, 4.0]).expect("positive");
        assert!((found.mean - 2.0).abs() < 1e-12);
        // The logs' standard deviation is ln 2; t of two degrees is 4.303.
        let half = 4.303 * 2f64.ln() / 3f64.sqrt();
        assert!((found.high.ln() - (2f64.ln() + half)).abs() < 1e-3);
        assert!(found.low < 1.0 && found.high > 1.0);
    }

    #[test]
    fn a_bound_is_tested_as_the_interval_says() {
        let found = geometric(&[1.0, 2.0, 4.0, 3.0]).expect("positive");
        // At the ends of a 95% interval each side has 2.5%.
        assert!((found.p_above(found.low) - ALPHA / 2.0).abs() < 1e-9);
        assert!((found.p_below(found.high) - ALPHA / 2.0).abs() < 1e-9);
        assert!((found.p_above(found.mean) - 0.5).abs() < 1e-9);
        assert_eq!(
            (found.p_above(0.0), found.p_below(f64::INFINITY)),
            (0.0, 0.0)
        );
        let sure = geometric(&[2.0, 2.0]).expect("positive");
        assert_eq!((sure.p_above(1.0), sure.p_below(1.0)), (0.0, 1.0));
        let level = geometric(&[1.0, 1.0]).expect("positive");
        assert_eq!((level.p_above(1.0), level.p_below(1.0)), (0.5, 0.5));
    }

    #[test]
    fn a_family_is_corrected_step_by_step() {
        let close = |got: Vec<f64>, wanted: &[f64]| {
            let pairs = got.iter().zip(wanted);
            got.len() == wanted.len() && pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-12)
        };
        // Holm (1979): 4 x 0.005, 3 x 0.01, and from there never less than before.
        assert!(close(
            holm(&[0.01, 0.04, 0.03, 0.005]),
            &[0.03, 0.06, 0.06, 0.02]
        ));
        assert!(close(holm(&[0.5, 0.9]), &[1.0, 1.0]));
        assert!(close(holm(&[0.05]), &[0.05]));
        assert!(holm(&[]).is_empty());
    }

    #[test]
    fn pairs_take_out_what_they_share() {
        let pairs: Vec<(f64, f64)> = (1..=10)
            .map(|n| (1.5 * f64::from(n), f64::from(n)))
            .collect();
        let found = ratio(&pairs).expect("positive");
        assert!((found.mean - 1.5).abs() < 1e-12 && found.low > 1.0);
        assert!(found.high - found.low < 1e-9);
    }

    #[test]
    fn there_is_no_mean_of_nothing_or_of_zero() {
        assert_eq!(geometric(&[]), None);
        assert_eq!(geometric(&[1.0, 0.0]), None);
        assert_eq!(ratio(&[(1.0, 0.0)]), None);
        let one = geometric(&[3.0]).expect("positive");
        assert!(one.is_single() && (one.low, one.high) == (one.mean, one.mean));
    }
}
