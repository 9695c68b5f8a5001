//! Plays a measured trace against a model, and says how far the two are apart.

use super::source::Measured;
use restripe_sim::disk::mechanical::{Drive, Mechanical};
use restripe_sim::rng::Rng;

/// Steps of the percentile in the demerit.
const STEPS: u64 = 10_000;

/// How a model compares with a measurement.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Score {
    pub requests: u64,
    pub measured_mean_ns: f64,
    pub model_mean_ns: f64,
    /// Root mean square horizontal distance of the two distributions, as a share of the measured mean (Ruemmler and
    /// Wilkes 1994, section 4).
    pub demerit: f64,
    /// Root mean square difference request by request, as a share of the measured mean.
    pub request_error: f64,
}

/// Service times of the trace on a model: each request is sent when the one before has ended and the host has thought.
pub fn replay(drive: &Drive, trace: &[Measured]) -> Result<Vec<u64>, String> {
    replay_from(drive, trace, 0)
}

/// The same with the platter elsewhere at each request, in another way for each `variant` but 0.
pub fn replay_from(drive: &Drive, trace: &[Measured], variant: u64) -> Result<Vec<u64>, String> {
    let mut rng = Rng::new(variant);
    let mut model = Mechanical::new(drive.clone())?;
    let blocks = model.geometry().blocks();
    if let Some(beyond) = trace
        .iter()
        .find(|one| one.command.block + u64::from(one.command.blocks) > blocks)
    {
        return Err(format!(
            "block {} is beyond the drive's {blocks}",
            beyond.command.block
        ));
    }
    let mut now = 0;
    let mut times = Vec::with_capacity(trace.len());
    for one in trace {
        let done = model.service(now, one.command);
        times.push(done - now);
        let elsewhere = if variant == 0 {
            0
        } else {
            rng.below(drive.layout.turn_ns)
        };
        now = done + one.think_ns + elsewhere;
    }
    Ok(times)
}

/// Compares service times with what was measured, request by request in the same order.
pub fn score(trace: &[Measured], times: &[u64]) -> Score {
    assert_eq!(trace.len(), times.len(), "one time a request");
    assert!(!trace.is_empty(), "nothing to compare");
    let measured: Vec<u64> = trace.iter().map(|one| one.service_ns).collect();
    let mean = |times: &[u64]| times.iter().map(|ns| *ns as f64).sum::<f64>() / times.len() as f64;
    let measured_mean = mean(&measured);
    Score {
        requests: trace.len() as u64,
        measured_mean_ns: measured_mean,
        model_mean_ns: mean(times),
        demerit: demerit(&measured, times) / measured_mean,
        request_error: request_error(trace, times),
    }
}

/// Root mean square difference request by request, as a share of the measured mean.
pub fn request_error(trace: &[Measured], times: &[u64]) -> f64 {
    let count = trace.len() as f64;
    let pairs = trace.iter().zip(times);
    let squares: f64 = pairs
        .map(|(one, ns)| (one.service_ns as f64 - *ns as f64).powi(2))
        .sum();
    let mean = trace.iter().map(|one| one.service_ns as f64).sum::<f64>() / count;
    (squares / count).sqrt() / mean
}

/// Root mean square distance of the two distributions' percentiles, in nanoseconds.
pub fn demerit(one: &[u64], other: &[u64]) -> f64 {
    let sorted = |times: &[u64]| {
        let mut times = times.to_vec();
        times.sort_unstable();
        times
    };
    let (one, other) = (sorted(one), sorted(other));
    let squares: f64 = (0..STEPS)
        .map(|step| (percentile(&one, step) - percentile(&other, step)).powi(2))
        .sum();
    (squares / STEPS as f64).sqrt()
}

/// The value at the middle of a step, between the neighbours.
fn percentile(sorted: &[u64], step: u64) -> f64 {
    let at = (step as f64 + 0.5) / STEPS as f64 * (sorted.len() - 1) as f64;
    let left = at.floor() as usize;
    let right = (left + 1).min(sorted.len() - 1);
    sorted[left] as f64 + (at - at.floor()) * (sorted[right] as f64 - sorted[left] as f64)
}
