//! Suites of seeds: a cover that is chosen once, and fresh seeds of each commit.
//!
//! A cover is a short list of seeds that hits each cell of a coverage table that the full suites hit, most
//! cells by several seeds. `covers/` has one file for each table. `RESTRIPE_BLESS=1` runs the full suites and
//! chooses their covers anew. `RESTRIPE_FRESH` is the first fresh seed: `.ci/test` takes it from the commit, so
//! each commit runs other seeds. `RESTRIPE_DEEP` runs long suites from seed 0 on instead of both.
//!
//! A failure prints the line that replays it with a binary of this crate.

use crate::queue::{blesses, lock, on_all_cores};
use restripe_sim::enumerate::Report;
use restripe_sim::{surrogate, swarm};
use std::collections::HashMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

pub fn is_deep() -> bool {
    std::env::var_os("RESTRIPE_DEEP").is_some()
}

/// The first of two in an ordinary run, the second in a deep one.
pub fn deep(ordinary: u64, deep: u64) -> u64 {
    if is_deep() { deep } else { ordinary }
}

/// The first fresh seed.
pub fn fresh() -> u64 {
    let text = std::env::var("RESTRIPE_FRESH").unwrap_or_default();
    match text.is_empty() {
        true => 0,
        false => text.parse().expect("RESTRIPE_FRESH is a number"),
    }
}

/// What seeds of a suite met.
pub trait Met: Default + Send {
    fn merge(&mut self, other: Self);
    /// The cells of its coverage tables, and how often each was hit.
    fn cells(&self) -> Vec<(String, u64)>;
    fn violation(&self) -> Option<String>;
}

impl Met for swarm::Outcome {
    fn merge(&mut self, other: Self) {
        self.coverage.merge(&other.coverage);
    }

    fn cells(&self) -> Vec<(String, u64)> {
        // As it prints: a line for each cell, and its hits at the end.
        let text = self.coverage.to_string();
        let cells = text.lines().filter_map(|line| line.rsplit_once(' '));
        let cell = |(what, hits): (&str, &str)| (what.trim().to_string(), hits.parse());
        let cells = cells.map(cell);
        cells
            .map(|(what, hits)| (what, hits.expect("a count")))
            .collect()
    }

    fn violation(&self) -> Option<String> {
        self.violations.first().map(ToString::to_string)
    }
}

impl Met for surrogate::Outcome {
    fn merge(&mut self, other: Self) {
        self.add(&other);
    }

    fn cells(&self) -> Vec<(String, u64)> {
        let met = self.met.iter();
        let met = met.map(|(what, times)| (what.to_string(), *times));
        let incidents = self.incidents.iter();
        let incidents =
            incidents.map(|((phase, incident), times)| (format!("{phase:?} {incident:?}"), *times));
        let events = self.events.iter();
        let events =
            events.map(|((moment, event), times)| (format!("{moment:?} {event:?}"), *times));
        met.chain(incidents).chain(events).collect()
    }

    fn violation(&self) -> Option<String> {
        self.violations.first().map(ToString::to_string)
    }
}

impl Met for Report {
    fn merge(&mut self, other: Self) {
        self.add(&other);
    }

    fn cells(&self) -> Vec<(String, u64)> {
        let phases = self.phases.iter();
        let phases = phases.map(|(phase, images)| (format!("{phase:?}"), *images));
        let moments = self.at.iter();
        let moments = moments.map(|(moment, images)| (format!("at {moment:?}"), *images));
        let buffers = [
            ("buffered".to_string(), self.buffered),
            ("unbuffered".to_string(), self.unbuffered),
        ];
        phases.chain(moments).chain(buffers).collect()
    }

    fn violation(&self) -> Option<String> {
        let broken = self.violation.as_ref();
        broken.map(|(image, violation)| format!("{violation} (--trace {image})"))
    }
}

/// Seeds of one kind.
pub struct Suite<M> {
    /// The command that runs one, without the seed.
    pub command: String,
    /// The cover is chosen from these.
    pub full: Range<u64>,
    /// As many seeds in a deep run.
    pub deep: u64,
    /// As many fresh seeds.
    pub fresh: u64,
    pub run: Box<dyn Fn(u64) -> M + Sync>,
}

impl<M> Suite<M> {
    fn fresh(&self) -> Range<u64> {
        fresh()..fresh() + self.fresh
    }
}

/// A seed, and the index of its suite.
type Seed = (usize, u64);

/// Runs the suites that fill one table. No seed may break a promise.
pub fn fill<M: Met>(table: &str, suites: &[Suite<M>]) -> M {
    if blesses() {
        choose(table, suites);
    }
    let seeds = match is_deep() {
        true => seeds_of(suites, |suite| 0..suite.deep),
        false => {
            let mut seeds = recorded(table, suites);
            println!("{table}: a cover of {} seeds", seeds.len());
            seeds.extend(seeds_of(suites, Suite::fresh));
            seeds
        }
    };
    let total = Mutex::new(M::default());
    run(suites, seeds, |_, met| lock(&total).merge(met));
    total.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn seeds_of<M>(suites: &[Suite<M>], of: impl Fn(&Suite<M>) -> Range<u64>) -> Vec<Seed> {
    let suites = suites.iter().enumerate();
    suites
        .flat_map(|(index, suite)| of(suite).map(move |seed| (index, seed)))
        .collect()
}

/// Runs seeds on all cores and gives what each met. Fails at the end if one broke a promise.
fn run<M: Met>(suites: &[Suite<M>], seeds: Vec<Seed>, each: impl Fn(Seed, M) + Sync) {
    let broken = Mutex::new(Vec::new());
    on_all_cores(seeds.into_iter(), |(index, seed)| {
        let suite = &suites[index];
        let met = catch_unwind(AssertUnwindSafe(|| (suite.run)(seed)));
        let violation = match &met {
            Ok(met) => met.violation(),
            Err(_) => Some("a panic".to_string()),
        };
        if let Some(violation) = violation {
            lock(&broken).push(format!("{} --seed {seed}: {violation}", suite.command));
        }
        if let Ok(met) = met {
            each((index, seed), met);
        }
        true
    });
    assert_none(&lock(&broken));
}

/// Fails if seeds broke a promise. Each has the line that replays it.
pub fn assert_none(broken: &[String]) {
    assert!(
        broken.is_empty(),
        "{} seeds failed, fresh ones from RESTRIPE_FRESH={} on:\n{}",
        broken.len(),
        fresh(),
        broken.join("\n")
    );
}

fn path(table: &str) -> PathBuf {
    let covers = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/covers");
    PathBuf::from(format!("{covers}/{table}.seeds"))
}

/// The cover on record: a line for each suite.
fn recorded<M>(table: &str, suites: &[Suite<M>]) -> Vec<Seed> {
    let path = path(table);
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let mut seeds = Vec::new();
    for (index, suite) in suites.iter().enumerate() {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&suite.command)?.strip_prefix(':'));
        let line = line.unwrap_or_else(|| {
            panic!(
                "{path:?} has no line for {}: RESTRIPE_BLESS=1",
                suite.command
            )
        });
        let of_suite = line.split_whitespace();
        seeds.extend(of_suite.map(|seed| (index, seed.parse().expect("seeds are numbers"))));
    }
    seeds
}

/// Chooses a cover and records it.
fn choose<M: Met>(table: &str, suites: &[Suite<M>]) {
    let seeds = seeds_of(suites, |suite| suite.full.clone());
    let runs = Mutex::new((HashMap::new(), Vec::new()));
    run(suites, seeds, |seed, met| {
        let (numbers, hits) = &mut *lock(&runs);
        let mut number = |(cell, _): (String, u64)| {
            let next = numbers.len();
            *numbers.entry(cell).or_insert(next)
        };
        let cells = met.cells().into_iter().filter(|(_, times)| *times > 0);
        hits.push((seed, cells.map(&mut number).collect()));
    });
    let (numbers, mut hits) = runs.into_inner().unwrap_or_else(PoisonError::into_inner);
    // By seed, whichever thread was first.
    hits.sort_unstable_by_key(|(seed, _)| *seed);
    let cover = greedy(&hits, numbers.len());
    let mut text = String::new();
    for (index, suite) in suites.iter().enumerate() {
        let of_suite = cover.iter().filter(|seed| seed.0 == index);
        let of_suite: Vec<String> = of_suite.map(|seed| seed.1.to_string()).collect();
        text += &format!("{}: {}\n", suite.command, of_suite.join(" "));
    }
    println!(
        "{table}: {} seeds cover {} cells",
        cover.len(),
        numbers.len()
    );
    let path = path(table);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("the tree is writable");
    std::fs::write(path, text).expect("the tree is writable");
}

/// As many seeds hit each cell, if there are: a change of some lives does not empty it.
const LEAST: usize = 3;

/// The cells that a seed hits, by number.
type Hits = (Seed, Vec<usize>);

/// Takes the seed that hits the most wanted cells, again and again, until no cell is wanted.
fn greedy(seeds: &[Hits], cells: usize) -> Vec<Seed> {
    let mut wanted = vec![0; cells];
    for cell in seeds.iter().flat_map(|(_, hits)| hits) {
        wanted[*cell] = LEAST.min(wanted[*cell] + 1);
    }
    let mut left: Vec<&Hits> = seeds.iter().collect();
    let mut cover = Vec::new();
    loop {
        let gain = |hits: &[usize]| hits.iter().filter(|cell| wanted[**cell] > 0).count();
        // Of equals the first.
        let gains = left.iter().map(|(_, hits)| gain(hits)).enumerate();
        let best = gains.rev().max_by_key(|(_, gain)| *gain);
        let Some((index, _)) = best.filter(|(_, gain)| *gain > 0) else {
            cover.sort_unstable();
            return cover;
        };
        let (seed, hits) = left.remove(index);
        cover.push(*seed);
        for cell in hits {
            wanted[*cell] = wanted[*cell].saturating_sub(1);
        }
    }
}

#[test]
fn a_cover_hits_each_cell_by_as_many_seeds_as_it_can() {
    let mut seeds = vec![
        ((0, 0), vec![0, 1]),
        ((0, 1), vec![0, 1, 2]),
        ((1, 0), vec![3]),
    ];
    seeds.extend((2..10).map(|seed| ((1, seed), vec![0])));
    let cover = greedy(&seeds, 4);
    assert_eq!(cover, [(0, 0), (0, 1), (1, 0), (1, 2)]);
}
