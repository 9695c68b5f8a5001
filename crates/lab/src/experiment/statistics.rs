//! Geometric means with 95% intervals, of values and of paired ratios. Student's t on logarithms.

/// A geometric mean and its 95% interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    pub mean: f64,
    pub low: f64,
    pub high: f64,
    pub count: usize,
}

impl Estimate {
    /// Whether the interval leaves out 1: what is said of a ratio then has a sign.
    pub fn excludes_one(&self) -> bool {
        self.low > 1.0 || self.high < 1.0
    }
}

/// Of positive values, in their order; `None` of none, or if one is not positive. A single value has no interval but itself.
pub fn geometric(values: &[f64]) -> Option<Estimate> {
    if values.is_empty()
        || values
            .iter()
            .any(|value| *value <= 0.0 || !value.is_finite())
    {
        return None;
    }
    let logs: Vec<f64> = values.iter().map(|value| value.ln()).collect();
    let count = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / count;
    let squares: f64 = logs.iter().map(|log| (log - mean) * (log - mean)).sum();
    let half = match logs.len() {
        1 => 0.0,
        n => t_95(n - 1) * (squares / (count - 1.0) / count).sqrt(),
    };
    Some(Estimate {
        mean: mean.exp(),
        low: (mean - half).exp(),
        high: (mean + half).exp(),
        count: logs.len(),
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

/// The two-sided 95% point of Student's t, from tables; the normal's beyond 120 degrees.
fn t_95(degrees: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    match degrees {
        0 => f64::INFINITY,
        1..=30 => TABLE[degrees - 1],
        // The next smaller number of degrees in the tables: an interval a little too wide.
        31..=59 => 2.042,
        60..=119 => 2.000,
        _ => 1.980,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_geometric_and_the_interval_students() {
        let found = geometric(&[1.0, 2.0, 4.0]).expect("positive");
        assert!((found.mean - 2.0).abs() < 1e-12);
        // The logs' standard deviation is ln 2; t of two degrees is 4.303.
        let half = 4.303 * 2f64.ln() / 3f64.sqrt();
        assert!((found.high.ln() - (2f64.ln() + half)).abs() < 1e-9);
        assert!(!found.excludes_one());
    }

    #[test]
    fn pairs_take_out_what_they_share() {
        let pairs: Vec<(f64, f64)> = (1..=10)
            .map(|n| (1.5 * f64::from(n), f64::from(n)))
            .collect();
        let found = ratio(&pairs).expect("positive");
        assert!((found.mean - 1.5).abs() < 1e-12 && found.excludes_one());
        assert!(found.high - found.low < 1e-9);
    }

    #[test]
    fn there_is_no_mean_of_nothing_or_of_zero() {
        assert_eq!(geometric(&[]), None);
        assert_eq!(geometric(&[1.0, 0.0]), None);
        assert_eq!(ratio(&[(1.0, 0.0)]), None);
        let one = geometric(&[3.0]).expect("positive");
        assert_eq!((one.low, one.high), (one.mean, one.mean));
    }
}
