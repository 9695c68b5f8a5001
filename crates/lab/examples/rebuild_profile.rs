//! Where the drives' time goes while an array with a surrogate is rebuilt, and where users wait.
//!
//! `cargo run --release -p restripe-lab --example rebuild_profile -- ido-combined`: some lines for each point of that scenario, or
//! of a file's, at its usual scale and seeds; `workload.source=user` and the like after it keep the points that have that value.
//!
//! Shares are of the time of the rebuild, the mean of the drives of a set: those that were left, the one that is filled, the
//! surrogate's. A drive is at work while an operation is, or its arm and its medium are for what its write cache took over: the
//! larger of both, so at least that. `without rest` is how long the rebuild would have taken had its work, and that on metadata,
//! gone on in all the time that users leave: what is to be had of whoever paces it while the work stays the same.

use restripe_lab::experiment::cell::{Cell, Contents, DURING, measure_capacity, run};
use restripe_lab::experiment::metric::metric;
use restripe_lab::experiment::scenario::{Point, Scenario, named, parse};
use restripe_lab::experiment::statistics::geometric;
use restripe_lab::replay::facts::{Labour, Phase};
use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;

type Capacities = BTreeMap<String, u64>;

fn main() -> Result<(), String> {
    let mut words = std::env::args().skip(1);
    let name = words.next().ok_or("which scenario?")?;
    let kept: Vec<String> = words.collect();
    let text = match named(&name) {
        Some(text) => text.to_string(),
        None => fs::read_to_string(&name).map_err(|error| format!("{name}: {error}"))?,
    };
    let scenario = parse(&text)?;
    let scale = scenario.usual_scale();
    let scenario = scenario.scaled(scale);
    let mut capacities = Capacities::new();
    for point in scenario.points() {
        if kept.iter().all(|wanted| has(&point, wanted)) {
            profile(&scenario, &point, &mut capacities)?;
        }
    }
    Ok(())
}

fn has(point: &Point, wanted: &str) -> bool {
    let Some((path, value)) = wanted.split_once('=') else {
        return false;
    };
    point.get(path).is_some_and(|is| is.to_string() == value)
}

fn profile(scenario: &Scenario, point: &Point, capacities: &mut Capacities) -> Result<(), String> {
    let (mut rebuilds, mut p95s, mut phases) = (Vec::new(), Vec::new(), Vec::new());
    for seed in 1..=scenario.seeds {
        let cell = Cell::new(point, seed, &mut Contents::default())?;
        let log = run(&cell, capacity(&cell, capacities)?)?;
        rebuilds.push(metric(&log, "rebuild_s").ok_or("a rebuild did not end")?);
        p95s.push(metric(&log, "during.p95_ms").ok_or("nobody asked")?);
        phases.push(log.phase(DURING).ok_or("nothing was rebuilt")?.clone());
    }
    let mean = |values: &[f64]| geometric(values).map_or(f64::NAN, |one| one.mean);
    let rebuild_s = mean(&rebuilds);
    for path in scenario.sweep.keys() {
        print!("{path} {}, ", point[path]);
    }
    println!("rebuild {rebuild_s:.1} s, p95 {:.0} ms", mean(&p95s));
    slowest(&phases);
    for (name, drives) in sets(point)? {
        drives_of(name, drives, &phases, rebuild_s);
    }
    Ok(())
}

fn capacity(cell: &Cell, known: &mut Capacities) -> Result<Option<u64>, String> {
    let Some(key) = cell.capacity_key() else {
        return Ok(None);
    };
    if !known.contains_key(&key) {
        known.insert(key.clone(), measure_capacity(cell)?);
    }
    Ok(known.get(&key).copied())
}

/// The sets of drives, by the numbers that a run gives them: the first failed, and the last was added.
fn sets(point: &Point) -> Result<[(&'static str, Range<usize>); 3], String> {
    let number = |path: &str| {
        let value = point.get(path).and_then(|value| value.number());
        value
            .map(|value| value as usize)
            .ok_or(format!("no {path}"))
    };
    let home = number("array.members")?;
    let all = home + number("array.surrogate")?;
    Ok([
        ("left", 1..home),
        ("filled", all..all + 1),
        ("surrogate", home..all),
    ])
}

/// Which of the slowest twentieth were at the surrogate, beside which of all.
fn slowest(phases: &[Phase]) {
    let count = |buckets: &[(u64, u64)], above: u64| {
        let slow = buckets.iter().filter(|(top, _)| *top > above);
        slow.map(|(_, count)| count).sum::<u64>() as f64
    };
    let share = |above: fn(&Phase) -> u64| {
        let of = |pick: fn(&Phase) -> &[(u64, u64)]| {
            let counts = phases.iter().map(|one| count(pick(one), above(one)));
            counts.sum::<f64>()
        };
        100.0 * of(|one| &one.moved_histogram) / of(|one| &one.histogram)
    };
    println!(
        "  at the surrogate: {:.0}% of the requests, {:.0}% of the slowest twentieth",
        share(|_| 0),
        share(|one| one.times.p95_ns)
    );
}

fn drives_of(name: &str, drives: Range<usize>, phases: &[Phase], rebuild_s: f64) {
    let mut all = Labour::default();
    let mut time_ns = 0;
    for phase in phases {
        for labour in phase.labour.get(drives.clone()).unwrap_or_default() {
            all = all.sum(labour);
            time_ns += phase.length_ns();
        }
    }
    let share = |ns: u64| 100.0 * ns as f64 / time_ns as f64;
    let [users, parity, task, metadata] = all.busy_ns.map(share);
    let [seeks, rotation, data] = [all.seek_ns, all.rotate_ns, all.transfer_ns].map(share);
    let at_work = (users + parity + task + metadata).max(seeks + rotation + data);
    let asked = users + parity;
    print!(
        "  {name:<9} at work {at_work:.0}%; users {users:.0}, parity {parity:.0}, rebuild {task:.0}, metadata {metadata:.0}; \
         seeks {seeks:.0}, rotation {rotation:.0}, data {data:.0}"
    );
    match task > 0.0 {
        true => println!(
            "; without rest {:.1} s",
            rebuild_s * (at_work - asked) / (100.0 - asked)
        ),
        false => println!(),
    }
}
