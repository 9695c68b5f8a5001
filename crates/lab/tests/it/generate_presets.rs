//! Every preset's generated trace, measured as a recorded one is: within stated tolerances it shows its parameters.

use restripe_lab::generate::{Generator, Parameters, fit, preset};
use restripe_lab::trace::{Op, Request, Summary};

/// Reads that are enough to see popularity, within a number of requests that is soon made.
const READS: f64 = 60_000.0;
const REQUESTS: (f64, f64) = (100_000.0, 300_000.0);

fn measured(parameters: &Parameters) -> Summary {
    let requests = (READS / (1.0 - parameters.write_share)).clamp(REQUESTS.0, REQUESTS.1);
    fit::summary(parameters, requests as u64, 7).expect("presets are sound")
}

#[track_caller]
fn within(parameters: &Parameters, what: &str, found: f64, told: f64, tolerance: f64) {
    let name = &parameters.name;
    let off = (found - told).abs();
    assert!(
        off <= tolerance,
        "{name}: {what} is {found}, not {told} within {tolerance}"
    );
}

/// Rates 5%, shares 1 point, sizes 3%, variation of gaps 10%, the exponent 0.12.
#[test]
fn presets_show_their_parameters() {
    for mut parameters in preset::every() {
        // Popularity is measured where it stands still.
        parameters.drift = 0.0;
        let parameters = &parameters;
        let found = measured(parameters);
        let share = found.write_share().expect("requests") / 100.0;
        within(
            parameters,
            "the write share",
            share,
            parameters.write_share,
            0.01,
        );
        let rate = found.iops_mean.expect("it lasts");
        within(
            parameters,
            "the rate",
            rate,
            parameters.rate,
            0.05 * parameters.rate,
        );
        let cv = found.gap_cv.expect("it lasts");
        within(
            parameters,
            "the gaps' variation",
            cv,
            parameters.gap_cv,
            0.1 * parameters.gap_cv,
        );
        let reads = Parameters::mean_bytes(&parameters.read_sizes);
        within(
            parameters,
            "reads",
            found.mean_read_bytes().expect("reads"),
            reads,
            0.03 * reads,
        );
        if let Some(bytes) = found.mean_written_bytes() {
            let writes = Parameters::mean_bytes(&parameters.write_sizes);
            within(parameters, "writes", bytes, writes, 0.03 * writes);
        }
        if parameters.theta > 0.0 {
            let theta = found.locality.of_12_mib().theta.expect("zones");
            within(parameters, "theta", theta, parameters.theta, 0.12);
        }
    }
}

/// Requests that are the very same as one before, of one kind.
fn repeated(requests: &[Request], op: Op) -> f64 {
    let mut seen = std::collections::HashSet::new();
    let of_kind = requests.iter().filter(|request| request.op == op);
    let again = of_kind
        .clone()
        .filter(|r| !seen.insert((r.device, r.offset, r.length)));
    again.count() as f64 / of_kind.count().max(1) as f64
}

/// Never less than asked for, but for the first requests, which have little to repeat; and no more than 3 points more
/// where zones are not yet used up: what comes on top then comes by chance.
#[test]
fn presets_repeat_what_they_are_asked_to() {
    for parameters in preset::every() {
        let generator = Generator::new(&parameters, 3).expect("presets are sound");
        let requests: Vec<Request> = generator.take(100_000).collect();
        for (op, share, (near, _)) in [
            (
                Op::Read,
                parameters.reread_share,
                parameters.reread_distance,
            ),
            (
                Op::Write,
                parameters.rewrite_share,
                parameters.rewrite_distance,
            ),
        ] {
            let count = requests.iter().filter(|request| request.op == op).count();
            if count < 5_000 {
                continue;
            }
            // Before there are `near` different requests, there is nothing to repeat.
            let late = 1.0 - near as f64 / count as f64;
            let found = repeated(&requests, op);
            let name = format!("{} {}", parameters.name, op.name());
            assert!(found > share * late - 0.015, "{name}: {found}, not {share}");
            if parameters.theta <= 0.75 {
                assert!(found < share + 0.03, "{name}: {found}, not {share}");
            }
        }
    }
}

/// A hash of every preset's first requests. Another hash is another meaning of seeds that people have written down.
#[test]
fn a_seed_means_the_same_requests_for_ever() {
    let mut hash = 0u64;
    for parameters in preset::every() {
        let generator = Generator::new(&parameters, 1).expect("presets are sound");
        for request in generator.take(2_000) {
            let of_request = [
                request.time,
                u64::from(request.device),
                request.op as u64,
                request.offset,
                request.length,
            ];
            for word in of_request {
                hash = (hash ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
            }
        }
    }
    assert_eq!(hash, 0x6a12_3086_02ae_afe9, "{hash:#x}");
}

#[test]
fn noise_teaches_nothing_and_what_is_stable_everything() {
    let learned = |name: &str| {
        let parameters = preset::named(name).expect("a preset").expect("sound");
        let zones = measured(&parameters).locality.of_12_mib().clone();
        (
            zones.in_sample[1].expect("reads"),
            zones.learned[1].expect("reads"),
        )
    };
    let (in_sample, by_learning) = learned("noise");
    assert!(
        in_sample < 30.0 && (by_learning - 20.0).abs() < 2.0,
        "{in_sample} {by_learning}"
    );
    let (in_sample, by_learning) = learned("stable");
    assert!(
        in_sample > 80.0 && in_sample - by_learning < 3.0,
        "{in_sample} {by_learning}"
    );
}

#[test]
fn drift_is_seen_in_what_can_be_learned() {
    let learned = |drift: f64| {
        let mut parameters = preset::named("stable").expect("a preset").expect("sound");
        parameters.drift = drift;
        parameters.rate = 25.0;
        let found = measured(&parameters);
        let hours = found.duration_ns.expect("it lasts") as f64 / 3600e9;
        (hours, found.locality.of_12_mib().learned[1].expect("reads"))
    };
    let (hours, still) = learned(0.0);
    let (_, slow) = learned(0.1 / hours);
    let (_, fast) = learned(1.0 / hours);
    assert!(
        still > slow + 1.0 && slow > fast + 10.0,
        "{still} {slow} {fast}"
    );
}
