//! The golden digests: for seeds of every suite, a hash of all engine actions, their times and their bytes.
//!
//! A change that is not meant to change behaviour leaves `golden.digests` as it is. A difference names the suite and
//! the block of seeds. `RESTRIPE_BLESS=1` writes the file anew after a change of behaviour that is meant. A new name of
//! a fact or of a refusal counts as one, a sentence in it does not.

use crate::queue::{blesses, lock, on_all_cores};
use restripe_sim::enumerate::{
    Reach, Report, enumerate, enumerate_gathering, enumerate_grown, enumerate_growth,
    enumerate_hosts, enumerate_pair, enumerate_reshape,
};
use restripe_sim::rng::mix;
use restripe_sim::swarm::{FAMILIES, Family};
use restripe_sim::{surrogate, swarm};
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// One line of the file.
struct Block {
    suite: String,
    kind: Kind,
    seeds: Range<u64>,
}

#[derive(Clone, Copy)]
enum Kind {
    Swarm(Option<Family>),
    Surrogate(surrogate::Options),
    /// Cuts power at one moment in so many.
    Images(Enumerate, u64),
}

type Enumerate = fn(u64, Reach) -> Report;

/// Crash images of a seed at most.
const IMAGES: u64 = 60;

/// The digest of a seed.
fn digest(kind: Kind, seed: u64) -> u64 {
    let words = match kind {
        Kind::Swarm(family) => {
            let options = swarm::Options {
                family,
                ..swarm::Options::default()
            };
            let outcome = swarm::run(seed, &options);
            let broken = outcome.violations.len() as u64;
            vec![outcome.digest, outcome.ios, outcome.requests, broken]
        }
        Kind::Surrogate(options) => {
            let outcome = surrogate::run(seed, options);
            vec![outcome.digest, outcome.violations.len() as u64]
        }
        Kind::Images(enumerate, stride) => {
            let reach = Reach {
                stride,
                ..Reach::images(IMAGES)
            };
            let report = enumerate(seed, reach);
            let counts = [report.images, report.moments, report.deaths, report.repeats];
            let broken = u64::from(report.violation.is_some());
            let all = report.hashes.into_iter().chain(counts).chain([broken]);
            all.collect()
        }
    };
    fold(words)
}

fn fold(words: impl IntoIterator<Item = u64>) -> u64 {
    words.into_iter().fold(0, |sum, word| mix(sum ^ word))
}

const SURROGATES: [fn(&mut surrogate::Options); 6] = [
    |_| {},
    |options| options.grows = true,
    |options| options.gathers = true,
    |options| (options.gathers, options.quests) = (true, true),
    |options| options.graid = true,
    |options| options.eraid = true,
];

const ENUMERATIONS: [(&str, Enumerate, u64); 7] = [
    ("crashes", enumerate, 1),
    ("crashes --grown", enumerate_grown, 1),
    ("crashes --growth", enumerate_growth, 1),
    ("crashes --reshape", enumerate_reshape, 1),
    ("crashes --hosts --stride 41", enumerate_hosts, 41),
    ("crashes --pair --stride 11", enumerate_pair, 11),
    ("crashes --gathers --stride 11", enumerate_gathering, 11),
];

fn blocks() -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut add = |suite: &str, kind: Kind, count: u64, size: u64| {
        for first in (0..count).step_by(size as usize) {
            let seeds = first..first + size;
            let suite = suite.to_string();
            blocks.push(Block { suite, kind, seeds });
        }
    };
    add("swarm", Kind::Swarm(None), 450, 50);
    for (name, family) in FAMILIES {
        let suite = format!("swarm --level {name}");
        add(&suite, Kind::Swarm(Some(family)), 50, 25);
    }
    for set in SURROGATES {
        let mut options = surrogate::Options::default();
        set(&mut options);
        let suite = format!("surrogates{}", options.family());
        add(&suite, Kind::Surrogate(options), 100, 25);
    }
    for (suite, enumerate, stride) in ENUMERATIONS {
        add(suite, Kind::Images(enumerate, stride), 8, 4);
    }
    blocks
}

/// The lines of the file, in its order, computed on all cores.
fn lines() -> Vec<String> {
    let blocks = blocks();
    let lines = Mutex::new(vec![String::new(); blocks.len()]);
    on_all_cores(blocks.into_iter().enumerate(), |(index, block)| {
        let Block { suite, kind, seeds } = block;
        let sum = fold(seeds.clone().map(|seed| digest(kind, seed)));
        let line = format!("{suite} --seeds {}..{}: {sum:016x}", seeds.start, seeds.end);
        lock(&lines)[index] = line;
        true
    });
    lines.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn the_engine_does_what_is_recorded_to_the_last_byte() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden.digests");
    let lines = lines();
    if blesses() {
        let text = lines.join("\n") + "\n";
        return std::fs::write(path, text).expect("the tree is writable");
    }
    let golden = std::fs::read_to_string(path).unwrap_or_default();
    let golden: Vec<&str> = golden.lines().collect();
    let differ: Vec<String> = lines
        .iter()
        .enumerate()
        .filter(|(index, line)| golden.get(*index) != Some(&line.as_str()))
        .map(|(index, line)| format!("{line}, not {}", golden.get(index).unwrap_or(&"recorded")))
        .collect();
    assert!(
        differ.is_empty() && golden.len() == lines.len(),
        "{} of {} blocks differ:\n{}\nif this change of behaviour is meant: RESTRIPE_BLESS=1 \
         cargo test -p restripe-sim golden",
        differ.len(),
        lines.len(),
        differ.join("\n"),
    );
}
