//! The requests of a cell's workload: a generator's, a trace's over and over, or blocks in a simple course.

use super::cell::{Settings, WorkloadSettings};
use crate::generate::blocks::{Blocks, Course};
use crate::generate::{Generator, Parameters, preset};
use crate::replay::source::{Placed, Placing, Survey};
use crate::trace::replicate::{self, Bootstrap, Replicate};
use crate::trace::{Options, Request, Requests, TraceError, open, read_twice, shape};
use std::path::Path;

pub type Source = Box<dyn Iterator<Item = crate::trace::Item>>;

/// Requests, and how many a second there are by their own times; none where they wait for each other.
pub struct Offered {
    pub source: Source,
    pub per_s: Option<f64>,
}

/// The requests of a cell's workload, placed in an array of `size` bytes, at `rate` a second or the
/// workload's own.
pub fn requests(
    settings: &Settings,
    size: u64,
    seed: u64,
    rate: Option<f64>,
) -> Result<Offered, String> {
    let workload = &settings.workload;
    let (source, own): (Source, _) = if workload.source == "none" || workload.load == 0.0 {
        (Box::new(std::iter::empty()), None)
    } else if let Some(path) = workload.source.strip_prefix("trace:") {
        let (requests, rate) =
            from_trace(Path::new(path), size, rate, replication(workload, seed))?;
        (Box::new(requests), Some(rate))
    } else if let Some(course) = Course::named(&workload.source) {
        (blocks(course, workload, size, seed)?, None)
    } else {
        let scaled = scaled(named(&workload.source)?, workload, size, rate)?;
        let requests = generated(&scaled, size, seed)?;
        (Box::new(requests), Some(scaled.rate))
    };
    let per_s = own.filter(|_| workload.depth == 0);
    Ok(Offered { source, per_s })
}

/// Whether seeds change what a workload asks for.
pub(crate) fn is_random(workload: &WorkloadSettings) -> bool {
    let asks = workload.source != "none" && workload.load != 0.0;
    let recorded = workload.source.starts_with("trace:");
    asks && (!recorded || workload.replicate != Replicate::None)
}

/// What a seed changes of a trace. Seed 0, with which capacities are measured, has the trace as it was
/// recorded.
fn replication(workload: &WorkloadSettings, seed: u64) -> (Replicate, u64) {
    match seed {
        0 => (Replicate::None, 0),
        seed => (workload.replicate, seed),
    }
}

fn blocks(
    course: Course,
    workload: &WorkloadSettings,
    size: u64,
    seed: u64,
) -> Result<Source, String> {
    if workload.depth == 0 {
        return Err("blocks are asked for workload.depth at a time, which is 0".into());
    }
    let range = (size as f64 * fill(workload, size)) as u64;
    let block = workload.block_kib.saturating_mul(1024);
    let writes = workload.write_share.max(0.0);
    let blocks = Blocks::new(course, block, range, writes, seed)
        .ok_or_else(|| format!("no block of {} KiB fits", workload.block_kib))?;
    let placing = Placing::of_devices([range].into_iter(), size);
    let placing = placing.map_err(|error| error.to_string())?;
    Ok(Box::new(Placed::new(Box::new(blocks), placing, size)))
}

/// The part of an array of `size` bytes that a workload covers.
fn fill(workload: &WorkloadSettings, size: u64) -> f64 {
    match workload.fill_mib {
        0 => workload.fill,
        mib => ((mib << 20) as f64 / size as f64).min(1.0),
    }
}

fn named(name: &str) -> Result<Parameters, String> {
    let found = preset::named(name).ok_or_else(|| preset::unknown(name))?;
    found.map_err(|error| error.to_string())
}

/// Endless requests of a generator, its devices end to end.
pub fn generated(parameters: &Parameters, size: u64, seed: u64) -> Result<Placed, String> {
    let generator = Generator::new(parameters, seed).map_err(|error| error.to_string())?;
    let bytes = parameters.devices.iter().map(|device| device.bytes);
    let placing = Placing::of_devices(bytes, size).map_err(|error| error.to_string())?;
    let requests: Requests = Box::new(generator.map(Ok));
    Ok(Placed::new(requests, placing, size))
}

/// A preset's parameters at another rate and write ratio, its devices on a part of the array.
fn scaled(
    mut parameters: Parameters,
    workload: &WorkloadSettings,
    size: u64,
    rate: Option<f64>,
) -> Result<Parameters, String> {
    if let Some(rate) = rate {
        parameters.rate = rate;
    }
    if workload.write_share >= 0.0 {
        parameters.write_share = workload.write_share;
    }
    onto(parameters, size, fill(workload, size))
}

/// A workload on a part of an array: its devices in proportion, zones as popular as before, but fewer (or
/// more) of them.
pub fn onto(mut parameters: Parameters, size: u64, fill: f64) -> Result<Parameters, String> {
    let zone = parameters.zone_bytes;
    let devices = parameters.devices.iter();
    let whole: f64 = devices.map(|device| device.bytes as f64).sum();
    let room = (size as f64 * fill) as u64 / zone;
    for device in &mut parameters.devices {
        let zones = (device.bytes as f64 / whole * room as f64) as u64;
        device.bytes = zones.max(1) * zone;
    }
    let needed: u64 = parameters.devices.iter().map(|device| device.bytes).sum();
    if needed > size {
        let (count, zone, size) = (parameters.devices.len(), zone >> 20, size >> 20);
        return Err(format!(
            "{count} devices of a zone of {zone} MiB each do not fit an array of {size} MiB"
        ));
    }
    parameters.check().map_err(|error| error.to_string())?;
    Ok(parameters)
}

/// A trace, over and over, and how many requests it has a second: phases do not depend on its length.
fn from_trace(
    path: &Path,
    size: u64,
    rate: Option<f64>,
    (replicate, seed): (Replicate, u64),
) -> Result<(Placed, f64), String> {
    let path = path.to_path_buf();
    let options = Options {
        sort: true,
        ..Options::default()
    };
    read_twice(&path).map_err(|error| error.to_string())?;
    let read = move || -> Result<Requests, TraceError> {
        let all = open(&path, &options)?;
        if !all.features.times {
            return Err(TraceError::timeless(&path));
        }
        // What asks for nothing is no request; a round of nothing else ends the trace.
        Ok(Box::new(all.filter(
            |item| !matches!(item, Ok(request) if request.is_void()),
        )))
    };
    let survey = read().and_then(Survey::of);
    let survey = survey.map_err(|error| error.to_string())?;
    let placing = survey.placed(size).map_err(|error| error.to_string())?;
    let length = match survey.end_ns - survey.start_ns {
        0 => survey.period_ns(),
        length => length,
    };
    let own = survey.requests as f64 * 1e9 / length as f64;
    let (start, period) = (survey.start_ns, survey.period_ns());
    let repeated = match replicate {
        Replicate::None => shape::repeat(read, period),
        Replicate::Offset | Replicate::Jitter => {
            replicate::offset(shape::repeat(read, period), start, period, seed)
        }
        Replicate::Bootstrap => {
            let all = read().and_then(Iterator::collect);
            let all: Vec<Request> = all.map_err(|error| error.to_string())?;
            let mean_gap = period / survey.requests.max(1);
            Box::new(Bootstrap::new(all, mean_gap, seed))
        }
    };
    let factor = match replicate {
        Replicate::Jitter => replicate::rate_factor(seed),
        _ => 1.0,
    };
    let wanted = rate.unwrap_or(own) * factor;
    let requests: Requests = match rate.is_none() && factor == 1.0 {
        true => repeated,
        false => shape::stretch(repeated, start, own / wanted),
    };
    let placed = Placed::new(requests, placing, size);
    Ok((placed, wanted))
}

#[cfg(test)]
mod tests {
    use super::super::scenario::{self, Point, Value, parse};
    use super::*;

    fn settings(values: &[(&str, Value)]) -> Settings {
        let scenario = parse(scenario::named("rebuild-cost").expect("built in"));
        let mut point: Point = scenario.expect("sound").shortened().points().remove(0);
        let values = values.iter().cloned();
        point.extend(values.map(|(path, value)| (path.to_string(), value)));
        Settings::of(&point).expect("sound")
    }

    fn text(text: impl Into<String>) -> Value {
        Value::Text(text.into())
    }

    #[test]
    fn seeds_count_where_something_is_random() {
        for (source, load, replicate, random) in [
            ("fin1", 0.5, "none", true),
            ("fin1", 0.0, "none", false),
            ("none", 0.5, "none", false),
            ("trace:x", 0.5, "none", false),
            ("trace:x", 0.5, "offset", true),
            ("trace:x", -1.0, "bootstrap", true),
        ] {
            let settings = settings(&[
                ("workload.source", text(source)),
                ("workload.load", Value::Real(load)),
                ("workload.replicate", text(replicate)),
            ]);
            assert_eq!(
                is_random(&settings.workload),
                random,
                "{source} {replicate}"
            );
        }
    }

    #[test]
    fn a_seed_replicates_a_trace_and_seed_0_does_not() {
        let path =
            std::env::temp_dir().join(format!("restripe-requests-{}.csv", std::process::id()));
        // A request a millisecond, in the form of the MSR traces: times in steps of 100 ns.
        let line = |n: u64| format!("{},hm,0,Read,{},4096,1\n", 1_000_000 + n * 10_000, n * 4096);
        std::fs::write(&path, (0..500).map(line).collect::<String>()).expect("a temporary file");
        let asked = |replicate: &str, seed, rate| {
            let settings = settings(&[
                ("workload.source", text(format!("trace:{}", path.display()))),
                ("workload.load", Value::Real(-1.0)),
                ("workload.replicate", text(replicate)),
            ]);
            let Offered { source, per_s } =
                requests(&settings, 64 << 20, seed, rate).expect("it is read");
            let all: Vec<(u64, u64)> = source
                .take(700)
                .map(|item| item.expect("sound"))
                .map(|request| (request.time, request.offset))
                .collect();
            (all, per_s.expect("open loop"))
        };
        let plain = asked("none", 1, None);
        assert_eq!(plain, asked("none", 2, None));
        for replicate in ["offset", "jitter", "bootstrap"] {
            assert_eq!(plain, asked(replicate, 0, None), "{replicate}");
            assert_eq!(asked(replicate, 1, None), asked(replicate, 1, None));
            assert_ne!(asked(replicate, 1, None).0, asked(replicate, 2, None).0);
            let (all, per_s) = asked(replicate, 3, Some(50.0));
            assert!((per_s / 50.0 - 1.0).abs() < 0.031, "{per_s}");
            let took = (all[699].0 - all[0].0) as f64 / 1e9;
            assert!(
                (699.0 / took / per_s - 1.0).abs() < 0.02,
                "{took} s at {per_s}"
            );
        }
        std::fs::remove_file(&path).expect("ours");
    }
}
