//! Fits a drive's parameters to a measured trace.
//!
//! The method is coordinate descent from the values in the drive's description. First the possible
//! behaviours of the cache are tried, one choice at a time. Then times are moved up and down by smaller and
//! smaller steps. The score is the distance of the modelled distribution of service times from the measured
//! one, for all requests, for reads and for writes, and to a small part the distance of each request from
//! its own measurement.
//!
//! Most traces do not show the angle of the platter: their think times are not exact to a turn. So a
//! candidate is judged by several replays with different angles. Otherwise the descent would fit the
//! accidents of one replay.

use super::score::{demerit, replay_from, request_error};
use super::source::Measured;
use restripe_sim::disk::mechanical::{Access, AheadTo, AheadWhen, Drive, OnWrite};
use restripe_sim::disk::seek::SeekCurve;

/// The share of a trace that may be fitted on; the rest is for scoring.
pub const TRAINING_PERCENT: usize = 60;

/// Replays a candidate is judged on.
const REPLAYS: u64 = 3;
const ROUNDS: usize = 3;
/// Steps of the descent, as shares of a knob's first step.
const SCALES: [f64; 4] = [1.0, 0.4, 0.15, 0.05];

type Knob = (&'static str, f64, fn(&mut Drive, f64));

/// The drive that fits the trace best, and what it costs.
pub struct Fitted {
    pub drive: Drive,
    pub cost: f64,
    /// Candidates that were played.
    pub tried: u64,
}

/// The part of a trace that a fit may see.
pub fn training(trace: &[Measured]) -> &[Measured] {
    &trace[..trace.len() * TRAINING_PERCENT / 100]
}

/// Fits `drive` to the whole of `trace`.
pub fn fit(drive: &Drive, trace: &[Measured]) -> Result<Fitted, String> {
    let requests = trace.len();
    if requests < 100 {
        return Err(format!("{requests} requests are too few to fit a drive to"));
    }
    let mut descent = Descent {
        trace,
        best: Fitted {
            drive: drive.clone(),
            cost: cost(drive, trace)?,
            tried: 1,
        },
    };
    descent.choose_bus()?;
    descent.choose()?;
    descent.turn_knobs(&SCALES[..2])?;
    for _ in 0..ROUNDS {
        let before = descent.best.cost;
        descent.choose()?;
        descent.turn_knobs(&SCALES)?;
        if descent.best.cost > before * 0.995 {
            break;
        }
    }
    Ok(descent.best)
}

struct Descent<'a> {
    trace: &'a [Measured],
    best: Fitted,
}

impl Descent<'_> {
    /// Whether the change made things better; it is kept then.
    fn attempt(&mut self, change: impl Fn(&mut Drive)) -> Result<bool, String> {
        let mut drive = self.best.drive.clone();
        change(&mut drive);
        if drive == self.best.drive {
            return Ok(false);
        }
        self.best.tried += 1;
        let cost = cost(&drive, self.trace)?;
        if cost >= self.best.cost {
            return Ok(false);
        }
        self.best.drive = drive;
        self.best.cost = cost;
        Ok(true)
    }

    /// The bus of a drive whose description does not say how fast it is: the choices that follow hang on it.
    fn choose_bus(&mut self) -> Result<(), String> {
        let bus = &self.best.drive.bus;
        if (bus.read_block_ns, bus.write_block_ns) != (0, 0) {
            return Ok(());
        }
        for block_ns in (1..=10).map(|step| step * 25_000) {
            self.attempt(|drive| drive.bus.read_block_ns = block_ns)?;
        }
        for block_ns in (1..=10).map(|step| step * 25_000) {
            self.attempt(|drive| drive.bus.write_block_ns = block_ns)?;
        }
        Ok(())
    }

    fn choose(&mut self) -> Result<(), String> {
        for choice in habits().into_iter().chain(sizes()) {
            self.attempt(choice)?;
        }
        Ok(())
    }

    fn turn_knobs(&mut self, scales: &[f64]) -> Result<(), String> {
        for scale in scales {
            for (_, step, turn) in knobs() {
                let step = step * scale;
                if !self.go(turn, step)? {
                    self.go(turn, -step)?;
                }
            }
        }
        Ok(())
    }

    /// Goes on in one direction while it helps.
    fn go(&mut self, turn: fn(&mut Drive, f64), step: f64) -> Result<bool, String> {
        let mut helped = false;
        for _ in 0..12 {
            if !self.attempt(|drive| turn(drive, step))? {
                break;
            }
            helped = true;
        }
        Ok(helped)
    }
}

/// What a candidate is judged by: shares of the measured mean.
fn cost(drive: &Drive, trace: &[Measured]) -> Result<f64, String> {
    let mut pooled = Vec::with_capacity(trace.len() * REPLAYS as usize);
    let mut error = 0.0;
    for number in 0..REPLAYS {
        let times = replay_from(drive, trace, number)?;
        if number == 0 {
            error = request_error(trace, &times);
        }
        pooled.extend(trace.iter().map(|one| one.command.access).zip(times));
    }
    let distance = |wanted: fn(Access) -> bool| {
        let measured = trace.iter().filter(|one| wanted(one.command.access));
        let measured: Vec<u64> = measured.map(|one| one.service_ns).collect();
        let modelled = pooled.iter().filter(|(access, _)| wanted(*access));
        let modelled: Vec<u64> = modelled.map(|(_, ns)| *ns).collect();
        match measured.is_empty() {
            true => 0.0,
            false => demerit(&measured, &modelled),
        }
    };
    let mean = trace.iter().map(|one| one.service_ns as f64).sum::<f64>() / trace.len() as f64;
    let all = distance(|_| true);
    let reads = distance(|access| access == Access::Read);
    let writes = distance(|access| access == Access::Write);
    Ok((all + 0.5 * reads + 0.5 * writes) / mean + 0.5 * error)
}

fn shift(time: &mut u64, by: f64) {
    *time = (*time as f64 + by).clamp(0.0, 1e9).round() as u64;
}

fn shift_both(times: &mut [u64; 2], by: f64) {
    times.iter_mut().for_each(|time| shift(time, by));
}

/// Steps are nanoseconds, but for shares and blocks.
fn knobs() -> Vec<Knob> {
    vec![
        ("read hit", 200e3, |d, by| {
            shift_both(&mut d.overheads.read_hit_ns, by)
        }),
        ("read hit after write", 100e3, |d, by| {
            shift(&mut d.overheads.read_hit_ns[1], by)
        }),
        ("read miss", 400e3, |d, by| {
            shift_both(&mut d.overheads.read_miss_ns, by)
        }),
        ("read miss after write", 200e3, |d, by| {
            shift(&mut d.overheads.read_miss_ns[1], by)
        }),
        ("cached write", 200e3, |d, by| {
            shift_both(&mut d.overheads.write_cached_ns, by)
        }),
        ("cached write after write", 100e3, |d, by| {
            shift(&mut d.overheads.write_cached_ns[1], by)
        }),
        ("write through", 400e3, |d, by| {
            shift_both(&mut d.overheads.write_through_ns, by)
        }),
        ("bus, read", 30e3, |d, by| {
            shift(&mut d.bus.read_block_ns, by)
        }),
        ("bus, write", 30e3, |d, by| {
            shift(&mut d.bus.write_block_ns, by)
        }),
        ("write settling", 200e3, |d, by| {
            let settle = &mut d.mechanism.write_settle_ns;
            *settle = (*settle as f64 + by).clamp(-1e7, 1e9).round() as i64;
        }),
        ("head switch", 200e3, |d, by| {
            shift(&mut d.mechanism.head_switch_ns, by)
        }),
        ("seek", 0.02, scale_seek),
        ("write delay", 2e6, |d, by| {
            shift(&mut d.cache.write_delay_ns, by)
        }),
    ]
}

fn scale_seek(drive: &mut Drive, by: f64) {
    match &mut drive.mechanism.seek {
        SeekCurve::Table(points) => points
            .iter_mut()
            .for_each(|(_, ns)| *ns = (*ns as f64 * (1.0 + by)).round() as u64),
        SeekCurve::RootLine {
            base_ns,
            root_ns,
            slope_ns,
            ..
        } => {
            [base_ns, root_ns, slope_ns]
                .into_iter()
                .for_each(|term| *term *= 1.0 + by);
        }
    }
}

/// Multiplies a count by `by`, and leaves at least one.
fn scale(count: &mut u32, by: f64) {
    *count = (f64::from(*count) * by).round().clamp(1.0, 65_536.0) as u32;
}

/// What a drive may do in one way or another: read ahead and how far, over what was asked for, on arrival;
/// write on segments; serve reads from written blocks; use the bus.
fn habits() -> Vec<fn(&mut Drive)> {
    vec![
        |d| d.cache.ahead.when = AheadWhen::Sequential,
        |d| d.cache.ahead.when = AheadWhen::Always,
        |d| d.cache.ahead.to = AheadTo::WholeTrack,
        |d| d.cache.ahead.to = AheadTo::TrackEnd,
        |d| d.cache.ahead.to = AheadTo::CylinderEnd,
        |d| d.cache.ahead.to = AheadTo::SegmentFull,
        |d| d.cache.ahead.over_requested = !d.cache.ahead.over_requested,
        |d| d.cache.ahead.follows_hits = !d.cache.ahead.follows_hits,
        |d| d.mechanism.zero_latency = !d.mechanism.zero_latency,
        |d| d.cache.on_write = OnWrite::DropAll,
        |d| d.cache.on_write = OnWrite::KeepFront,
        |d| d.cache.on_write = OnWrite::KeepTail,
        |d| d.cache.reads_hit_writes = !d.cache.reads_hit_writes,
        |d| d.bus.read_mark = 0,
        |d| d.bus.read_mark = 100,
        |d| d.bus.write_mark = 0,
        |d| d.bus.write_mark = 100,
    ]
}

/// How much of it there may be.
fn sizes() -> Vec<fn(&mut Drive)> {
    vec![
        |d| scale(&mut d.cache.ahead.blocks, 0.7),
        |d| scale(&mut d.cache.ahead.blocks, 1.4),
        |d| scale(&mut d.cache.ahead.blocks, 3.0),
        |d| scale(&mut d.cache.segment_blocks, 0.7),
        |d| scale(&mut d.cache.segment_blocks, 1.4),
        |d| scale(&mut d.cache.segment_blocks, 3.0),
        |d| {
            scale(&mut d.cache.segment_blocks, 4.0);
            scale(&mut d.cache.ahead.blocks, 4.0);
        },
        |d| d.cache.segments = d.cache.segments.saturating_sub(1).max(1),
        |d| d.cache.segments += 1,
        |d| scale(&mut d.cache.segments, 2.0),
        |d| scale(&mut d.cache.segments, 0.5),
        |d| d.cache.write_segments = d.cache.write_segments.saturating_sub(1).max(1),
        |d| d.cache.write_segments += 1,
        |d| d.cache.write_segments += 3,
    ]
}
