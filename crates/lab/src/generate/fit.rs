//! Parameters from a trace, so that the generated requests are like it.
//!
//! Most numbers are counted in one pass (`observed`). Popularity, zones in use and drift are not: their
//! values in a trace depend on its length and on all other parameters. They are searched until a generated
//! trace shows the values of the real one. So a theta that was found by search is not the one that
//! `trace info` prints, which takes noise for popularity.

mod observed;

use super::arrivals::Arrivals;
use super::generator::Generator;
use super::parameters::{Invalid, Parameters};
use crate::trace::locality::{ByZone, Gatherer};
use crate::trace::{Features, Order, Requests, Summary, TraceError};
use observed::Observed;
use restripe_sim::rng::Rng;
use std::fmt;

/// The zones of the papers.
pub const ZONE_BYTES: u64 = 12 << 20;
/// Fewer requests say nothing.
const REQUESTS_MIN: u64 = 100;
/// A generated trace of the search has at most so many requests.
const SEARCH_REQUESTS: u64 = 200_000;
/// The generated trace that is shown has at most so many.
const SHOWN_REQUESTS: u64 = 2_000_000;
const ROUNDS: usize = 2;
const HALVINGS: usize = 7;
const SEED: u64 = 1;
const THETA_MAX: f64 = 4.0;
/// How often the hot zones may be replaced within the trace.
const TURNOVERS: (f64, f64) = (0.02, 20.0);

/// Why there are no parameters.
#[derive(Clone, PartialEq, Debug)]
pub enum Unfit {
    Trace(TraceError),
    Parameters(Invalid),
    /// What the trace lacks.
    Lacks(String),
}

impl From<TraceError> for Unfit {
    fn from(error: TraceError) -> Unfit {
        Unfit::Trace(error)
    }
}

impl From<Invalid> for Unfit {
    fn from(invalid: Invalid) -> Unfit {
        Unfit::Parameters(invalid)
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::Trace(error) => error.fmt(f),
            Unfit::Parameters(invalid) => write!(f, "the model cannot hold it: {invalid}"),
            Unfit::Lacks(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Unfit {}

/// Parameters, with what the trace and a generated one show.
pub struct Fitted {
    pub parameters: Parameters,
    pub real: Summary,
    /// Of as many requests as the trace has, up to two million.
    pub made: Summary,
    pub seed: u64,
}

/// Fits parameters to a trace, which `open` gives anew for each pass.
pub fn fit<O>(name: &str, features: Features, mut open: O) -> Result<Fitted, Unfit>
where
    O: FnMut(Order) -> Result<Requests, TraceError>,
{
    let real = Summary::measure(features, &mut open)?;
    let lacks = |what: &str| Err(Unfit::Lacks(what.to_string()));
    if !features.times || !features.ops {
        return lacks("the trace has no times or operations, which a workload needs");
    }
    if real.requests < REQUESTS_MIN {
        return lacks("the trace has fewer than 100 reads and writes");
    }
    if real.duration_ns.is_none_or(|duration| duration == 0) {
        return lacks("all requests of the trace have the same time");
    }
    let mut observed = Observed::default();
    for request in open(Order::ByTime)? {
        observed.add(&request?);
    }
    let mut parameters = observed.parameters(name, &real);
    search_bursts(&mut parameters, &real);
    parameters.check()?;
    Search::new(&real).run(&mut parameters)?;
    let made = summary(&parameters, real.requests.min(SHOWN_REQUESTS), SEED)?;
    Ok(Fitted {
        parameters,
        real,
        made,
        seed: SEED,
    })
}

/// What a workload is like.
pub fn summary(parameters: &Parameters, requests: u64, seed: u64) -> Result<Summary, Unfit> {
    // Refused parameters are told as such; the passes below then cannot fail for them.
    Generator::new(parameters, seed)?;
    let open = |_| {
        let generator = Generator::new(parameters, seed).expect("they were accepted above");
        Ok(generator.requests(requests))
    };
    Ok(Summary::measure(Features::ALL, open)?)
}

/// Fewer bursts than this in the whole trace, and it is chance what it shows.
const BURSTS_MIN: f64 = 20.0;
/// Traces whose dispersions are averaged.
const DRAWS: u64 = 4;

/// Looks for the length of bursts with which arrivals are as dispersed as the real ones, second by second. Where they are more
/// dispersed than bursts can make them (by phases of a day, say), bursts are as long as the trace allows.
fn search_bursts(parameters: &mut Parameters, real: &Summary) {
    let Some(target) = real.dispersion else {
        return;
    };
    let requests = real.requests.min(SEARCH_REQUESTS);
    // No burst is shorter than its state would last by chance.
    let least = 1.0 / (1.0 - parameters.burst_share);
    let most = requests as f64 * parameters.burst_share / BURSTS_MIN;
    let (mut low, mut high) = (least, most.max(least));
    for _ in 0..=HALVINGS {
        parameters.burst_requests = (low * high).sqrt();
        if dispersion(parameters, requests) < target {
            low = parameters.burst_requests;
        } else {
            high = parameters.burst_requests;
        }
    }
}

/// The mean, over some draws, of the variance over the mean of the requests of each whole second.
fn dispersion(parameters: &Parameters, requests: u64) -> f64 {
    let draw = |seed| {
        let mut arrivals = Arrivals::new(parameters, Rng::new(seed));
        let (mut counts, mut second) = ((0.0, 0.0, 0.0), 0);
        let mut here = 0.0f64;
        for _ in 0..requests {
            let at = arrivals.next_time() / 1_000_000_000;
            if at > second {
                let seconds = (at - second) as f64;
                counts = (counts.0 + seconds, counts.1 + here, counts.2 + here * here);
                (second, here) = (at, 0.0);
            }
            here += 1.0;
        }
        let (seconds, sum, squares) = counts;
        match sum > 0.0 {
            true => squares / sum - sum / seconds,
            false => 0.0,
        }
    };
    (1..=DRAWS).map(draw).sum::<f64>() / DRAWS as f64
}

/// Looks for theta, zones in use and drift, in turn, by what generated traces show.
struct Search {
    target: ByZone,
    requests: u64,
    hours: f64,
}

impl Search {
    fn new(real: &Summary) -> Search {
        let nanoseconds = real.duration_ns.unwrap_or(0);
        Search {
            target: real.locality.of_12_mib().clone(),
            requests: real.requests.min(SEARCH_REQUESTS),
            hours: nanoseconds as f64 / 3600e9,
        }
    }

    fn run(&self, parameters: &mut Parameters) -> Result<(), Unfit> {
        let (Some(in_sample), Some(learned)) = (self.target.in_sample[1], self.target.learned[1])
        else {
            // Nothing is read, in one of the halves at least: there is no locality to fit to.
            return Ok(());
        };
        for _ in 0..ROUNDS {
            self.search_theta(parameters, in_sample)?;
            self.search_zones(parameters)?;
            self.search_drift(parameters, learned)?;
        }
        self.search_theta(parameters, in_sample)
    }

    /// More theta, more in the hottest fifth.
    fn search_theta(&self, parameters: &mut Parameters, target: f64) -> Result<(), Unfit> {
        let (mut low, mut high) = (0.0, THETA_MAX);
        for _ in 0..HALVINGS + 1 {
            parameters.theta = (low + high) / 2.0;
            let shown = self.shown(parameters)?.in_sample[1];
            if shown.unwrap_or(0.0) < target {
                low = parameters.theta;
            } else {
                high = parameters.theta;
            }
        }
        Ok(())
    }

    /// As many zones in use as make the trace touch as many as the real one.
    fn search_zones(&self, parameters: &mut Parameters) -> Result<(), Unfit> {
        for _ in 0..3 {
            let shown = self.shown(parameters)?.zones.max(1);
            let ratio = self.target.zones as f64 / shown as f64;
            let least = 1.0 / parameters.zones() as f64;
            parameters.active_share = (parameters.active_share * ratio).clamp(least, 1.0);
        }
        Ok(())
    }

    /// More drift, less that the first half teaches about the second.
    fn search_drift(&self, parameters: &mut Parameters, target: f64) -> Result<(), Unfit> {
        parameters.drift = 0.0;
        if self.learned(parameters)? <= target {
            return Ok(());
        }
        // Geometric halving: the square root of two products.
        let (mut low, mut high) = TURNOVERS;
        for _ in 0..HALVINGS {
            let turnovers = (low * high).sqrt();
            parameters.drift = (turnovers / self.hours).min(1e6);
            if self.learned(parameters)? > target {
                low = turnovers;
            } else {
                high = turnovers;
            }
        }
        Ok(())
    }

    fn learned(&self, parameters: &Parameters) -> Result<f64, Unfit> {
        Ok(self.shown(parameters)?.learned[1].unwrap_or(0.0))
    }

    fn shown(&self, parameters: &Parameters) -> Result<ByZone, Unfit> {
        let mut gatherer = Gatherer::new(Features::ALL, self.requests);
        let count = usize::try_from(self.requests).unwrap_or(usize::MAX);
        for request in Generator::new(parameters, SEED)?.take(count) {
            gatherer.add(&request).map_err(TraceError::from)?;
        }
        Ok(gatherer.finish().of_12_mib().clone())
    }
}

#[cfg(test)]
mod tests {
    use super::super::parameters::Device;
    use super::super::parameters::tests::plain;
    use super::*;

    fn refitted(parameters: &Parameters, requests: u64) -> Fitted {
        let generator = || Generator::new(parameters, 9).unwrap();
        fit("again", Features::ALL, |_| {
            Ok(generator().requests(requests))
        })
        .unwrap()
    }

    fn device((share, zones): (f64, u64)) -> Device {
        let bytes = zones * ZONE_BYTES;
        Device { share, bytes }
    }

    fn near(name: &str, found: f64, expected: f64, tolerance: f64) {
        let off = (found - expected).abs();
        assert!(off <= tolerance, "{name}: {found}, not {expected}");
    }

    #[test]
    fn a_generated_trace_gives_its_parameters_back() {
        let parameters = Parameters {
            rate: 200.0,
            gap_cv: 3.5,
            burst_share: 0.9,
            burst_requests: 50.0,
            write_share: 0.4,
            read_sizes: vec![(4096, 3.0), (16_384, 1.0)],
            write_sizes: vec![(8192, 1.0)],
            zone_bytes: ZONE_BYTES,
            theta: 0.8,
            run_requests: 3.0,
            sequential: 0.5,
            reread_share: 0.3,
            reread_distance: (1, 4096),
            rewrite_share: 0.2,
            devices: [(3.0, 1500), (1.0, 500)].map(device).to_vec(),
            ..plain()
        };
        let fitted = refitted(&parameters, 60_000);
        let found = &fitted.parameters;
        near("writes", found.write_share, 0.4, 0.02);
        near("rate", found.rate, 200.0, 20.0);
        near("cv", found.gap_cv, 3.5, 0.5);
        near("burst", found.burst_requests.ln(), 50f64.ln(), 0.7);
        let dispersions = [&fitted.real, &fitted.made].map(|one| one.dispersion.unwrap().ln());
        near("dispersion", dispersions[1], dispersions[0], 0.4);
        let mean = Parameters::mean_bytes;
        near("reads", mean(&found.read_sizes), 7168.0, 150.0);
        assert_eq!(found.write_sizes, [(8192, 1.0)]);
        near("theta", found.theta, 0.8, 0.15);
        near("run", found.run_requests, 3.0, 0.6);
        near("sequential", found.sequential, 0.5, 0.1);
        near("rereads", found.reread_share, 0.3, 0.05);
        near("rewrites", found.rewrite_share, 0.2, 0.05);
        near("share", found.devices[1].share, 0.25, 0.02);
        assert_eq!(found.align_bytes, 4096);
        // Of the five minutes that the trace lasts: next to nothing of the hot set.
        near("drift", found.drift * 300.0 / 3600.0, 0.0, 0.1);
    }

    #[test]
    fn drift_and_scans_are_found() {
        let parameters = Parameters {
            zone_bytes: ZONE_BYTES,
            theta: 1.0,
            // The trace lasts 1000 seconds: the hot zones are replaced twice.
            drift: 7.2,
            scan_share: 0.1,
            scan_requests: 300.0,
            devices: vec![device((1.0, 2000))],
            rate: 60.0,
            ..plain()
        };
        let fitted = refitted(&parameters, 60_000);
        near("drift", (fitted.parameters.drift / 7.2).ln(), 0.0, 1.0);
        near("scans", fitted.parameters.scan_share, 0.1, 0.04);
        let [real, made] = [&fitted.real, &fitted.made].map(|one| one.locality.of_12_mib().clone());
        let [found, expected] = [&made, &real].map(|one| one.in_sample[1].unwrap());
        near("in-sample", found, expected, 3.0);
        let [found, expected] = [&made, &real].map(|one| one.learned[1].unwrap());
        near("learned", found, expected, 5.0);
    }

    #[test]
    fn what_has_no_times_or_nothing_in_it_is_refused() {
        let generator = || Generator::new(&plain(), 1).unwrap();
        let of = |features, count| fit("x", features, |_| Ok(generator().requests(count)));
        for (features, count) in [(Features::ADDRESSES, 1000), (Features::ALL, 50)] {
            assert!(
                matches!(of(features, count), Err(Unfit::Lacks(_))),
                "{count}"
            );
        }
        assert!(of(Features::ALL, 1000).is_ok());
    }
}
