//! The coverage table of a code cache: each event meets it at each moment, or cannot, and then never does. A failure prints the
//! seed; `surrogates --gathers --quests --seed N --trace` replays it.

use restripe_array::BAND_SECTORS_MAX;
use restripe_sim::surrogate::{Event, Moment, Options, Outcome, run, seeds_for, why_not};
use restripe_tier::overlay::format::EXTENTS_MAX;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// No record is ever sealed because its table is full: each entry of it is of a sector of its payload or more. So the table
/// has no such moment.
const _: () = assert!(EXTENTS_MAX as u64 >= BAND_SECTORS_MAX);

/// Seeds of each cell that is not met yet, at most, after those that all cells have.
const MORE: usize = 12;

#[derive(Default)]
struct Met {
    broken: Vec<String>,
    events: BTreeMap<(Moment, Event), u64>,
}

impl Met {
    fn add(&mut self, seed: u64, outcome: Option<Outcome>) {
        let replay = format!("surrogates --gathers --quests --seed {seed}");
        let Some(outcome) = outcome else {
            return self.broken.push(format!("{replay}: a panic"));
        };
        let first = outcome.violations.first();
        self.broken
            .extend(first.map(|first| format!("{replay}: {first}")));
        for (cell, times) in outcome.events {
            *self.events.entry(cell).or_default() += times;
        }
    }

    fn times(&self, moment: Moment, event: Event) -> u64 {
        self.events.get(&(moment, event)).copied().unwrap_or(0)
    }
}

/// What these seeds meet, too, on half of the cores.
fn lives(met: Met, seeds: &[u64]) -> Met {
    let (met, next) = (Mutex::new(met), AtomicUsize::new(0));
    let options = Options {
        gathers: true,
        quests: true,
        ..Options::default()
    };
    let work = || {
        loop {
            let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)).copied() else {
                return;
            };
            let outcome = catch_unwind(AssertUnwindSafe(|| run(seed, options))).ok();
            met.lock()
                .expect("no thread panics with it")
                .add(seed, outcome);
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    std::thread::scope(|scope| {
        for _ in 0..cores.div_ceil(2) {
            scope.spawn(work);
        }
    });
    met.into_inner().expect("no thread panicked with it")
}

#[test]
fn each_event_meets_a_code_cache_at_each_moment() {
    let deep = std::env::var_os("RESTRIPE_DEEP").is_some();
    let (each, least) = if deep { (40, 8) } else { (1, 1) };
    let cells = || {
        Event::ALL
            .into_iter()
            .flat_map(|event| Moment::ALL.map(|moment| (moment, event)))
    };
    let all: Vec<u64> = cells()
        .flat_map(|(moment, event)| seeds_for(moment, event).take(each))
        .collect();
    let mut met = lives(Met::default(), &all);
    // Where a cell's own seeds did not meet it, nor others by the way, further ones set out for it.
    for turn in each..each + MORE {
        let missed = cells().filter(|(moment, event)| met.times(*moment, *event) < least);
        let more: Vec<u64> = missed
            .filter_map(|(moment, event)| seeds_for(moment, event).nth(turn))
            .collect();
        if more.is_empty() {
            break;
        }
        println!("{} cells have a further seed each", more.len());
        met = lives(met, &more);
    }
    assert!(met.broken.is_empty(), "{}", met.broken.join("\n"));
    let wrong = cells_missed(&met, least);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Of cells that can be met, those that were not so often; of others, those that were.
fn cells_missed(met: &Met, least: u64) -> Vec<String> {
    let mut wrong = Vec::new();
    for (moment, event) in Event::ALL
        .into_iter()
        .flat_map(|event| Moment::ALL.map(|moment| (moment, event)))
    {
        let times = met.times(moment, event);
        match why_not(moment, event) {
            None if times < least => {
                wrong.push(format!("{event:?}, {moment}: {times} times, not {least}"));
            }
            Some(why) if times > 0 => {
                wrong.push(format!("{event:?}, {moment}: {times} times, but {why}"));
            }
            _ => {}
        }
    }
    wrong
}

/// The same seed gives the same life.
#[test]
fn a_seed_says_it_all() {
    let options = Options {
        gathers: true,
        quests: true,
        ..Options::default()
    };
    for seed in 0..10 {
        assert_eq!(run(seed, options), run(seed, options));
    }
}
