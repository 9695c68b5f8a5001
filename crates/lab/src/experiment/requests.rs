//! The requests of a cell's workload: a generator's, a trace's over and over, or blocks in a simple course.

use super::cell::{Settings, WorkloadSettings};
use crate::generate::blocks::{Blocks, Course};
use crate::generate::{Generator, Parameters, preset};
use crate::replay::source::{Placed, Placing, Survey};
use crate::trace::{Options, Requests, TraceError, open, read_twice, shape};
use std::path::Path;

pub type Source = Box<dyn Iterator<Item = crate::trace::Item>>;

/// Requests, and how many a second there are by their own times; none where they wait for each other.
pub struct Offered {
    pub source: Source,
    pub per_s: Option<f64>,
}

/// The requests of a cell's workload, placed in an array of `size` bytes, at `rate` a second or the workload's own.
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
        let (requests, rate) = from_trace(Path::new(path), size, rate)?;
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

/// A workload on a part of an array: its devices in proportion, zones as popular as before, but fewer (or more) of them.
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
fn from_trace(path: &Path, size: u64, rate: Option<f64>) -> Result<(Placed, f64), String> {
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
    let repeated = shape::repeat(read, survey.period_ns());
    let requests: Requests = match rate {
        Some(rate) => shape::stretch(repeated, survey.start_ns, own / rate),
        None => repeated,
    };
    let placed = Placed::new(requests, placing, size);
    Ok((placed, rate.unwrap_or(own)))
}
