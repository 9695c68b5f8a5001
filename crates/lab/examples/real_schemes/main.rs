//! Do the schemes come out in one order on real arrays and in the simulator? A RAID-5 of four drives of `sim-disk`, with a
//! pair of the same for a surrogate, is read and written over NBD, loses a member, and rebuilds onto a spare: in real time, by
//! the reactor. Beside each figure stands what the laboratory has for the same settings and the same requests.
//!
//! `cargo run --release -p restripe-lab --example real_schemes`: half an hour, most of it waiting.

mod rig;

use restripe_lab::experiment::cell::{Cell, Contents, measure_capacity, requests, run};
use restripe_lab::experiment::metric::metric;
use restripe_lab::experiment::scenario::{Point, Value, named, parse};
use restripe_lab::replay::stage::size_bytes;
use rig::Rig;
use std::time::Duration;

const WORKLOADS: [&str; 2] = ["fin2", "proj"];
const SCHEMES: [&str; 4] = ["pr", "workout", "vdf", "ido"];
const SEEDS: u64 = 3;
const LEARN_S: i64 = 40;
/// Of the scenario `ido`, but so small that a rebuild at the least rate takes fifty seconds.
const SHORTENED: [(&str, Value); 8] = [
    ("array.member_mib", Value::Whole(96)),
    ("rebuild.min_mb_s", Value::Whole(2)),
    ("rebuild.zone_mib", Value::Real(3.0)),
    ("phases.warm_up_s", Value::Whole(1)),
    ("phases.before_s", Value::Whole(LEARN_S)),
    ("phases.degraded_s", Value::Whole(1)),
    ("phases.rebuild_s", Value::Whole(90)),
    ("phases.common_s", Value::Whole(0)),
];

/// What came of a rebuild.
#[derive(Clone, Copy)]
pub struct Figures {
    pub rebuild_s: f64,
    /// Of requests answered during the rebuild.
    pub mean_ms: f64,
    /// Share of requests that the surrogate took or served alone.
    pub moved: f64,
}

fn main() -> Result<(), String> {
    println!(
        "{:<9} {:<9} {:>4} {:>14} {:>14} {:>12} {:>12} {:>8} {:>8}",
        "workload",
        "scheme",
        "seed",
        "rebuild lab s",
        "real s",
        "mean lab ms",
        "real ms",
        "moved",
        "real"
    );
    for workload in WORKLOADS {
        let mut both: Vec<[Vec<Figures>; 2]> = vec![Default::default(); SCHEMES.len()];
        for seed in 1..=SEEDS {
            for (scheme, both) in SCHEMES.iter().zip(&mut both) {
                let pair = figures(workload, scheme, seed)?;
                told(workload, scheme, &seed.to_string(), pair);
                both.iter_mut()
                    .zip(pair)
                    .for_each(|(all, one)| all.push(one));
            }
        }
        for (scheme, both) in SCHEMES.iter().zip(&both) {
            told(workload, scheme, "mean", [mean(&both[0]), mean(&both[1])]);
        }
    }
    Ok(())
}

fn told(workload: &str, scheme: &str, seed: &str, [lab, real]: [Figures; 2]) {
    println!(
        "{workload:<9} {scheme:<9} {seed:>4} {:>14.1} {:>14.1} {:>12.1} {:>12.1} {:>8.3} {:>8.3}",
        lab.rebuild_s, real.rebuild_s, lab.mean_ms, real.mean_ms, lab.moved, real.moved
    );
}

/// Geometric, but for the share.
fn mean(all: &[Figures]) -> Figures {
    let count = all.len() as f64;
    let of = |pick: fn(&Figures) -> f64| {
        let logarithms: f64 = all.iter().map(|one| pick(one).ln()).sum();
        (logarithms / count).exp()
    };
    Figures {
        rebuild_s: of(|one| one.rebuild_s),
        mean_ms: of(|one| one.mean_ms),
        moved: all.iter().map(|one| one.moved).sum::<f64>() / count,
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

/// In the laboratory, and on a real array.
fn figures(workload: &str, scheme: &str, seed: u64) -> Result<[Figures; 2], String> {
    let cell = Cell::new(&point(workload, scheme)?, seed, &mut Contents::default())?;
    let capacity = measure_capacity(&cell)?;
    let log = run(&cell, Some(capacity))?;
    let number = |name: &str| metric(&log, name).ok_or(format!("{name} was not measured"));
    let lab = Figures {
        rebuild_s: number("rebuild_s")?,
        mean_ms: number("during.mean_ms")?,
        moved: number("during.redirected_share")?,
    };
    let settings = &cell.settings;
    let plan = settings.plan()?;
    let rate = settings.workload.load * capacity as f64 / 1000.0;
    let asked = requests(settings, size_bytes(&plan)?, seed, Some(rate))?;
    let rig = Rig::start(&plan)?;
    let learn = Duration::from_secs(LEARN_S.unsigned_abs());
    let real = rig.rebuild(asked, learn)?;
    rig.end()?;
    Ok([lab, real])
}
