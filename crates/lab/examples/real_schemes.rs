//! Do the schemes come out in one order on real arrays and in the simulator? A RAID-5 of four drives of `sim-disk`, with a
//! pair of the same for a surrogate, is read and written over NBD, loses a member, and rebuilds onto a blank drive: in real
//! time, by the reactor. Beside each figure stands what the laboratory has for the same settings and the same requests, with
//! the failure and the drive at the same times. The schemes of a seed go side by side, so whatever else the machine does meets all.
//!
//! `cargo run --release -p restripe-lab --example real_schemes`: three quarters of an hour, most of it waiting;
//! `-- proj 6 10` for one workload, and the seeds from 6 to 10.

mod realtime;

use realtime::late;
use realtime::rig::{Figures, Rig, Times};
use restripe_lab::experiment::cell::{Cell, Contents, measure_capacity, run};
use restripe_lab::experiment::metric::metric;
use restripe_lab::experiment::requests::requests;
use restripe_lab::experiment::scenario::{Point, Value, named, parse};
use restripe_lab::experiment::statistics::{Estimate, geometric, ratio};
use restripe_lab::replay::stage::size_bytes;
use std::ops::RangeInclusive;
use std::thread;
use std::time::Duration;

const WORKLOADS: [&str; 2] = ["fin2", "proj"];
/// What the others are held to is the last.
const SCHEMES: [&str; 4] = ["pr", "workout", "vdf", "ido"];
const SEEDS: [u64; 2] = [1, 5];
const WARM_UP_S: i64 = 1;
const LEARN_S: i64 = 120;
const DEGRADED_S: i64 = 1;
/// Of the scenario `ido`, so small that a rebuild at the least rate takes two hundred seconds, and at a load at which the laboratory
/// tells the schemes apart at that size (24 seeds).
const SHORTENED: [(&str, Value); 8] = [
    ("array.member_mib", Value::Whole(192)),
    ("workload.load", Value::Real(0.4)),
    ("phases.warm_up_s", Value::Whole(WARM_UP_S)),
    ("phases.before_s", Value::Whole(LEARN_S)),
    ("phases.degraded_s", Value::Whole(DEGRADED_S)),
    ("phases.rebuild_s", Value::Whole(250)),
    ("phases.after_s", Value::Whole(1)),
    ("phases.common_s", Value::Whole(0)),
];

/// In the laboratory, and on a real array.
type Pair = [Figures; 2];

fn main() -> Result<(), String> {
    let mut words = std::env::args().skip(1);
    let workload = words.next();
    let mut seed = |default: u64| words.next().map_or(Ok(default), |word| word.parse());
    let (first, last) = (seed(SEEDS[0]), seed(SEEDS[1]));
    let (Ok(first), Ok(last)) = (first, last) else {
        return Err("a workload, the first seed, the last".into());
    };
    for known in WORKLOADS {
        if workload.as_deref().is_none_or(|asked| asked == known) {
            compare(known, first..=last)?;
        }
    }
    Ok(())
}

fn compare(workload: &str, seeds: RangeInclusive<u64>) -> Result<(), String> {
    println!(
        "workload  scheme   seed  rebuild lab s  real s  mean lab ms  real ms  moved lab  real"
    );
    let mut all: Vec<Vec<Pair>> = Vec::new();
    for seed in seeds {
        let (pairs, late) = late::watched(|| side_by_side(workload, seed));
        let pairs = pairs?;
        for (scheme, pair) in SCHEMES.iter().zip(&pairs) {
            told(workload, scheme, &seed.to_string(), *pair);
        }
        println!("{workload:<9} {late}");
        all.push(pairs);
    }
    for (index, scheme) in SCHEMES.iter().enumerate() {
        let of_scheme: Vec<Pair> = all.iter().map(|pairs| pairs[index]).collect();
        let mean = [0, 1].map(|world| mean(of_scheme.iter().map(|pair| pair[world])));
        told(workload, scheme, "mean", mean);
    }
    for index in 0..SCHEMES.len() - 1 {
        judge(workload, index, &all);
    }
    Ok(())
}

fn told(workload: &str, scheme: &str, seed: &str, [lab, real]: Pair) {
    println!(
        "{workload:<9} {scheme:<8} {seed:>4} {:>14.1} {:>7.1} {:>12.1} {:>8.1} {:>10.3} {:>5.3}",
        lab.rebuild_s, real.rebuild_s, lab.mean_ms, real.mean_ms, lab.moved, real.moved
    );
}

/// How the scheme of this number stands to the last, in both worlds.
fn judge(workload: &str, index: usize, all: &[Vec<Pair>]) {
    let last = SCHEMES.len() - 1;
    for (name, pick) in [
        ("rebuild", (|one| one.rebuild_s) as fn(&Figures) -> f64),
        ("response", |one| one.mean_ms),
    ] {
        let of = |world: usize| {
            let both = |pairs: &Vec<Pair>| (pick(&pairs[index][world]), pick(&pairs[last][world]));
            ratio(&all.iter().map(both).collect::<Vec<_>>())
        };
        println!(
            "{workload:<9} {name:<8} of {:<8} to {}: laboratory {}, real {}",
            SCHEMES[index],
            SCHEMES[last],
            interval(of(0)),
            interval(of(1))
        );
    }
}

fn interval(estimate: Option<Estimate>) -> String {
    estimate.map_or("-".into(), |one| {
        format!("{:.2} ({:.2} to {:.2})", one.mean, one.low, one.high)
    })
}

/// Geometric, but for the share.
fn mean(all: impl Iterator<Item = Figures> + Clone) -> Figures {
    let of = |pick: fn(Figures) -> f64| all.clone().map(pick).collect::<Vec<f64>>();
    let geometric = |values: Vec<f64>| geometric(&values).map_or(f64::NAN, |one| one.mean);
    let moved = of(|one| one.moved);
    Figures {
        rebuild_s: geometric(of(|one| one.rebuild_s)),
        mean_ms: geometric(of(|one| one.mean_ms)),
        moved: moved.iter().sum::<f64>() / moved.len() as f64,
    }
}

fn point(workload: &str, scheme: &str) -> Result<Point, String> {
    let scenario = parse(named("ido").ok_or("there is no such scenario")?)?;
    let mut point = scenario.points().remove(0);
    point.insert("workload.source".into(), Value::Text(workload.into()));
    point.insert("rebuild.scheme".into(), Value::Text(scheme.into()));
    for (path, value) in SHORTENED {
        point.insert(path.into(), value);
    }
    Ok(point)
}

/// All schemes: one after another in the laboratory, then together in real time.
fn side_by_side(workload: &str, seed: u64) -> Result<Vec<Pair>, String> {
    let cells: Result<Vec<Simulated>, String> = SCHEMES
        .iter()
        .map(|scheme| simulated(workload, scheme, seed))
        .collect();
    thread::scope(|scope| {
        let running: Vec<_> = cells?
            .into_iter()
            .zip(SCHEMES)
            .map(|(cell, scheme)| scope.spawn(move || Ok([cell.figures, real(&cell, scheme)?])))
            .collect();
        let ended = running.into_iter().map(|one| one.join());
        ended
            .map(|one| one.map_err(|_| "a run panicked".to_string())?)
            .collect()
    })
}

/// A run in the laboratory, and what is to be repeated of it.
struct Simulated {
    cell: Cell,
    capacity: u64,
    figures: Figures,
}

fn simulated(workload: &str, scheme: &str, seed: u64) -> Result<Simulated, String> {
    let cell = Cell::new(&point(workload, scheme)?, seed, &mut Contents::default())?;
    let capacity = measure_capacity(&cell)?;
    let log = run(&cell, Some(capacity))?;
    let number = |name: &str| metric(&log, name).ok_or(format!("{name} was not measured"));
    Ok(Simulated {
        figures: Figures {
            rebuild_s: number("rebuild_s")?,
            mean_ms: number("during.mean_ms")?,
            moved: number("during.redirected_share")?,
        },
        cell,
        capacity,
    })
}

fn real(simulated: &Simulated, scheme: &str) -> Result<Figures, String> {
    let settings = &simulated.cell.settings;
    let plan = settings.plan()?;
    let rate = settings.workload.load * simulated.capacity as f64 / 1000.0;
    let seed = simulated.cell.seed;
    let asked = requests(settings, size_bytes(&plan)?, seed, Some(rate))?.source;
    let rig = Rig::start(&plan, scheme)?;
    let seconds = |whole: i64| Duration::from_secs(whole.unsigned_abs());
    let times = Times {
        healthy: seconds(WARM_UP_S + LEARN_S),
        degraded: seconds(DEGRADED_S),
    };
    let figures = rig.rebuild(asked, times)?;
    rig.end()?;
    Ok(figures)
}
