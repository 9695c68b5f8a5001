//! The swarm and the crash images, as far as a test run has time for them. `RESTRIPE_DEEP` makes it longer.
//!
//! A failure prints the line that replays it with the `swarm` or `crashes` binary of this crate.

use restripe_sim::enumerate::{Reach, enumerate};
use restripe_sim::swarm::{Coverage, Options, run};
use std::sync::atomic::{AtomicU64, Ordering};

fn deep(ordinary: u64, deep: u64) -> u64 {
    if std::env::var_os("RESTRIPE_DEEP").is_some() {
        deep
    } else {
        ordinary
    }
}

/// Runs `work` for every seed of a range, on all cores, and gathers what it gives.
fn on_all_cores<T: Send>(seeds: std::ops::Range<u64>, work: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let next = AtomicU64::new(seeds.start);
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let take = || {
        let mut done = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return done;
            }
            done.push(work(seed));
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(take)).collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("a seed that panics fails the test"))
            .collect()
    })
}

#[test]
fn no_seed_breaks_a_promise() {
    let outcomes = on_all_cores(0..deep(400, 20_000), |seed| {
        (seed, run(seed, &Options::default()))
    });
    let mut coverage = Coverage::default();
    let mut broken = Vec::new();
    for (seed, outcome) in &outcomes {
        coverage.merge(&outcome.coverage);
        broken.extend(
            outcome
                .violations
                .first()
                .map(|first| format!("swarm --seed {seed}: {first}")),
        );
    }
    assert!(
        broken.is_empty(),
        "{} seeds failed:\n{}",
        broken.len(),
        broken.join("\n")
    );
    assert!(coverage.total("runs to the end") > 300, "{coverage}");
}

#[test]
fn a_seed_is_a_run() {
    for seed in 0..20 {
        let (first, second) = (
            run(seed, &Options::default()),
            run(seed, &Options::default()),
        );
        assert_eq!(first, second, "swarm --seed {seed} --twice");
    }
}

/// A suite that cannot fail proves nothing: expecting what is not so must be found out.
#[test]
fn the_canary_dies() {
    let options = Options {
        canary: true,
        ..Options::default()
    };
    for seed in 0..10 {
        let outcome = run(seed, &options);
        let ended = outcome.coverage.total("runs beyond redundancy") > 0;
        assert!(
            ended || !outcome.violations.is_empty(),
            "swarm --seed {seed} --canary"
        );
    }
}

#[test]
fn crash_images_are_assembled() {
    let seeds = deep(12, 400);
    let reports = on_all_cores(0..seeds, |seed| {
        (seed, enumerate(seed, Reach::images(deep(150, 2000))))
    });
    let mut images = 0;
    for (seed, report) in reports {
        if let Some((image, violation)) = report.violation {
            panic!("{violation}\ncrashes --seed {seed} --trace {image}");
        }
        images += report.images;
    }
    assert!(images >= seeds * 100, "{images} different images");
}
