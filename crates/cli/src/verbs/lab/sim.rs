//! `sim`: the swarm by hand. A seed is a whole run: an array, its users, its faults; an oracle judges every byte.

use crate::failure::{Failure, Outcome, failed_at};
use crate::print::terminal::{Progress, outln, say};
use clap::Args;
use restripe_io::record::replay;
use restripe_sim::swarm::{self, Options};
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Args, Debug)]
#[command(
    after_help = "The seed determines the run: the same seed gives the same run on every machine."
)]
pub(crate) struct Sim {
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Number of seeds to run
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub count: u64,
    /// Replay the events that `serve --record` wrote
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "count"])]
    pub replay: Option<PathBuf>,
    /// Print every fact
    #[arg(long)]
    pub verbose: bool,
}

pub(crate) fn run(verb: &Sim) -> Outcome {
    match &verb.replay {
        Some(path) => replay_record(path, verb.verbose),
        None => run_seeds(verb),
    }
}

/// What a number of seeds came to.
#[derive(Default)]
struct Sum {
    requests: u64,
    ios: u64,
    failed: Vec<u64>,
}

/// The last seed. No seeds are no check, and would break no promise.
fn last_seed(verb: &Sim) -> Outcome<u64> {
    let (seed, count, max) = (verb.seed, verb.count, u64::MAX);
    let last = count.checked_sub(1).map(|more| seed.checked_add(more));
    let what = match last {
        Some(Some(last)) => return Ok(last),
        None => "--count 0 runs no seed".into(),
        Some(None) => format!("there are no {count} seeds from {seed} on: the last one is {max}"),
    };
    Err(Failure::usage(what).hint("--seed 0 --count 100 runs a hundred"))
}

fn run_seeds(verb: &Sim) -> Outcome {
    let last = last_seed(verb)?;
    let options = Options {
        trace: verb.verbose,
        ..Options::default()
    };
    let mut sum = Sum::default();
    let mut progress = Progress::new();
    let running = Arc::new(AtomicU64::new(verb.seed));
    name_seed_in_panics(verb.seed, Arc::clone(&running));
    for seed in verb.seed..=last {
        progress.show(&format!(
            "seed {seed}, {} member operations so far",
            sum.ios
        ));
        running.store(seed, Ordering::Relaxed);
        run_seed(seed, &options, &mut sum);
    }
    drop(progress);
    let (count, requests, ios) = (verb.count, sum.requests, sum.ios);
    outln!("{count} seeds: {requests} requests, {ios} member operations");
    let Some(seed) = sum.failed.first() else {
        outln!("no violation was found");
        return Ok(());
    };
    let what = format!("{} of {count} seeds have violations", sum.failed.len());
    Err(Failure::new(what).hint(replay_line(*seed)))
}

/// A panic of the engine is a finding like any other, but the last: the process ends with it. It says what replays it, and
/// that nothing but the sum is missing: seeds that broke a promise were told as they came.
fn name_seed_in_panics(first: u64, running: Arc<AtomicU64>) {
    let print_panic = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        print_panic(info);
        let seed = running.load(Ordering::Relaxed);
        say(format_args!(
            "seed {seed} panicked and is the last; {} before it ended, and their violations are listed above",
            seed - first
        ));
        say(format_args!(" hint: {}", replay_line(seed)));
    }));
}

fn replay_line(seed: u64) -> String {
    format!("replay it with: restripe sim --seed {seed} --verbose")
}

fn run_seed(seed: u64, options: &Options, sum: &mut Sum) {
    let outcome = swarm::run(seed, options);
    sum.requests += outcome.requests;
    sum.ios += outcome.ios;
    for violation in &outcome.violations {
        outln!("seed {seed}: {violation}");
    }
    if !outcome.violations.is_empty() {
        sum.failed.push(seed);
    }
}

fn replay_record(path: &Path, verbose: bool) -> Outcome {
    let record = std::fs::read(path).map_err(failed_at("the record cannot be read", path))?;
    let replayed = replay(&record, |step| {
        if verbose {
            outln!("{:>12} ns  {:?}", step.now.0, step.event);
            step.actions
                .iter()
                .for_each(|action| outln!("                 {action:?}"));
        }
    });
    let replayed = replayed.map_err(|error| Failure::new(error.to_string()).at(path.display()))?;
    if replayed.steps == 0 {
        return Err(Failure::new("the record contains no step to replay").at(path.display()));
    }
    let cut = if replayed.cut {
        "; the record ends within a step, as one whose daemon was killed does"
    } else {
        ""
    };
    outln!("{} steps replayed, all actions equal{cut}", replayed.steps);
    Ok(())
}
