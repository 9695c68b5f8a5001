//! Arrival times of requests: a chain of two states, burst and calm, each with exponential gaps.
//!
//! A share of all requests belongs to bursts. The mean and the coefficient of variation of all gaps then fix
//! the mean gap of either state (a hyperexponential law of two phases). The mean number of requests of a
//! burst fixes the frequency of changes of state, that is, the length of bursts, and affects neither mean.

use super::math::ln;
use super::parameters::Parameters;
use super::random::{chance, unit};
use restripe_sim::rng::Rng;

/// By number in the arrays below.
const BURST: usize = 0;
const CALM: usize = 1;

pub struct Arrivals {
    rng: Rng,
    time: u64,
    state: usize,
    mean_gap_ns: [f64; 2],
    /// Chance that the state ends with a request.
    ends: [f64; 2],
}

/// The least share of requests in bursts that a coefficient of variation allows: with less, gaps within bursts would
/// be negative.
pub fn burst_share_min(gap_cv: f64) -> f64 {
    let square = gap_cv * gap_cv;
    (square - 1.0) / (square + 1.0)
}

impl Arrivals {
    pub fn new(parameters: &Parameters, mut rng: Rng) -> Arrivals {
        let mean = 1e9 / parameters.rate;
        let (share, cv) = (parameters.burst_share, parameters.gap_cv);
        let between = ((cv * cv - 1.0) / (2.0 * share * (1.0 - share))).sqrt();
        let ends_burst = 1.0 / parameters.burst_requests;
        let state = if chance(&mut rng, share) { BURST } else { CALM };
        Arrivals {
            rng,
            time: 0,
            state,
            mean_gap_ns: [
                mean * (1.0 - (1.0 - share) * between),
                mean * (1.0 + share * between),
            ],
            ends: [ends_burst, ends_burst * share / (1.0 - share)],
        }
    }

    /// Nanoseconds since the start.
    pub fn next_time(&mut self) -> u64 {
        if chance(&mut self.rng, self.ends[self.state]) {
            self.state = if self.state == BURST { CALM } else { BURST };
        }
        let gap = -ln(unit(&mut self.rng)) * self.mean_gap_ns[self.state];
        self.time = self.time.saturating_add((gap + 0.5).floor() as u64);
        self.time
    }
}

#[cfg(test)]
mod tests {
    use super::super::parameters::tests::plain;
    use super::*;

    fn gaps(parameters: &Parameters) -> Vec<f64> {
        let mut arrivals = Arrivals::new(parameters, Rng::new(3));
        let mut before = 0;
        (0..400_000)
            .map(|_| {
                let time = arrivals.next_time();
                let gap = (time - before) as f64;
                before = time;
                gap
            })
            .collect()
    }

    #[test]
    fn mean_variation_and_persistence_are_those_asked_for() {
        for (cv, share) in [(1.0, 0.5), (1.4, 0.5), (3.5, 0.9)] {
            let parameters = Parameters {
                gap_cv: cv,
                burst_share: share,
                burst_requests: 40.0,
                rate: 100.0,
                ..plain()
            };
            let gaps = gaps(&parameters);
            let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
            let square = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>();
            let variance = square / gaps.len() as f64;
            assert!((mean / 1e7 - 1.0).abs() < 0.05, "mean {mean}");
            assert!((variance.sqrt() / mean / cv - 1.0).abs() < 0.05, "cv {cv}");
            let pairs = gaps
                .windows(2)
                .map(|pair| (pair[0] - mean) * (pair[1] - mean));
            let persistence = pairs.sum::<f64>() / square;
            let states = 1.0 - 1.0 / 40.0 / (1.0 - share);
            let expected = states * (cv * cv - 1.0) / 2.0 / (cv * cv);
            assert!(
                (persistence - expected).abs() < 0.03,
                "{persistence} {expected}"
            );
        }
    }
}
