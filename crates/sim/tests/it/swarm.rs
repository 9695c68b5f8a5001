//! The swarm and the crash images, as far as a test run has time for them. `RESTRIPE_DEEP` makes it longer.
//!
//! A failure prints the line that replays it with the `swarm` or `crashes` binary of this crate.

use crate::table;
use restripe_sim::enumerate::{
    Reach, Report, enumerate, enumerate_grown, enumerate_growth, enumerate_hosts, enumerate_reshape,
};
use restripe_sim::swarm::{
    Coverage, FAMILIES, Family, Hosting, Options, Outcome, RUINS, RUINS_IN_VAIN, run,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

fn deep(ordinary: u64, deep: u64) -> u64 {
    if std::env::var_os("RESTRIPE_DEEP").is_some() {
        deep
    } else {
        ordinary
    }
}

/// Gives every seed of a range to `work` until that says that it is enough. Half of the cores: the two long suites run
/// side by side.
fn on_half_the_cores(seeds: Range<u64>, work: impl Fn(u64) -> bool + Sync) {
    let (next, enough) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let take = || {
        while !enough.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            if !work(seed) {
                enough.store(true, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..cores.div_ceil(2) {
            scope.spawn(take);
        }
    });
}

/// What all threads of a suite gather.
#[derive(Default)]
struct Gathered {
    coverage: Coverage,
    broken: Vec<String>,
    images: BTreeSet<u64>,
    /// Images by how spare partitions were in use.
    hosting: BTreeMap<Hosting, u64>,
}

impl Gathered {
    /// Adds a seed's outcome; an engine that panicked has broken everything.
    fn add(&mut self, seed: u64, outcome: Option<Outcome>) {
        let Some(outcome) = outcome else {
            self.broken.push(format!("swarm --seed {seed}: a panic"));
            return;
        };
        self.coverage.merge(&outcome.coverage);
        let first = outcome.violations.first();
        self.broken
            .extend(first.map(|first| format!("swarm --seed {seed}: {first}")));
    }

    /// Adds the crash images of a seed; `options` and the seed replay them.
    fn add_images(&mut self, options: &str, seed: u64, report: Option<Report>) {
        let Some(report) = report else {
            let replay = format!("crashes{options} --seed {seed}: a panic");
            return self.broken.push(replay);
        };
        let broken = report.violation.map(|(image, violation)| {
            format!("crashes{options} --seed {seed} --trace {image}: {violation}")
        });
        self.broken.extend(broken);
        self.images.extend(report.hashes);
        for (hosting, images) in report.hosting {
            *self.hosting.entry(hosting).or_default() += images;
        }
    }
}

/// What so many seeds of a family, or of all, come to.
fn gather(seeds: u64, family: Option<Family>) -> Gathered {
    gather_of(seeds, [family])
}

/// The same of several families together.
fn gather_of(seeds: u64, families: impl IntoIterator<Item = Option<Family>>) -> Gathered {
    let gathered = Mutex::new(Gathered::default());
    for family in families {
        let options = Options {
            family,
            ..Options::default()
        };
        on_half_the_cores(0..seeds, |seed| {
            let outcome = catch_unwind(AssertUnwindSafe(|| run(seed, &options))).ok();
            let mut gathered = gathered.lock().unwrap_or_else(PoisonError::into_inner);
            gathered.add(seed, outcome);
            true
        });
    }
    gathered
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
}

const WENT_WRONG: [(Option<Family>, u64); 12] = [
    // A record that was on one of its two logs only told a RAID-6 its parity, as two of the row's cells could not be read.
    (None, 23_098),
    // A member that failed with chunks in its cache that a growth had moved to it was not owed them.
    (Some(Family::Grows4), 2667),
    // A slot was filled without what had been moved away from it, which a crash then looked for there.
    (Some(Family::Grows0), 4079),
    // Heat was written by a start that was refused then.
    (Some(Family::Grows4), 15_979),
    // Rows that were to be moved together waited for ever for others that went another way by then.
    (Some(Family::Grows0), 9921),
    // An array without space that tried to go on reported bytes lost that were only in doubt until the writes went on.
    (Some(Family::Grown4), 467),
    // The same attempt asked a failed member that hangs, was refused, and waited for it.
    (Some(Family::Raid4), 1070),
    (Some(Family::Raid5), 130),
    // A start that was refused went on with a row, and waited for a record that it could not write.
    (Some(Family::Grown4), 2214),
    // A member whose rebuild had begun in a version that reached no other was taken for one that had gone on alone.
    (Some(Family::Raid6), 1269),
    // A half that was left behind took in, and overwrote, a spare that had become active without it.
    (None, 1097),
    // A read under way when another was answered and flushed is no loss.
    (Some(Family::Grown4), 449),
];

#[test]
fn what_once_went_wrong_does_not() {
    for (family, seed) in WENT_WRONG {
        let options = Options {
            family,
            ..Options::default()
        };
        let outcome = run(seed, &options);
        assert_eq!(outcome.violations, [], "{family:?}, swarm --seed {seed}");
    }
}

/// No seed breaks a promise, and together they leave nothing of the coverage table empty.
const ORDINARY_SEEDS: u64 = 13_000;
/// Few lives have a member fail while the checksum of a log record is computed: most of them are lives of RAID-5.
const RAID5_SEEDS: u64 = 2_500;

#[test]
fn the_swarm_keeps_every_promise_and_fills_the_table() {
    let Gathered {
        mut coverage,
        mut broken,
        ..
    } = gather(deep(ORDINARY_SEEDS, 30_000), None);
    let of_raid5 = gather(RAID5_SEEDS, Some(Family::Raid5));
    coverage.merge(&of_raid5.coverage);
    let replays = of_raid5.broken.iter();
    broken.extend(replays.map(|line| line.replace("swarm ", "swarm --level raid5 ")));
    println!("{coverage}");
    assert!(
        broken.is_empty(),
        "{} seeds failed:\n{}",
        broken.len(),
        broken.join("\n")
    );
    let holes = table::holes(&coverage);
    assert!(
        holes.is_empty(),
        "the coverage table:\n{}",
        holes.join("\n")
    );
    ruins_are_many_and_ruinous(&coverage);
}

/// Nor does one of the arrays that have grown.
#[test]
fn arrays_made_with_a_history_keep_every_promise() {
    for (name, family) in FAMILIES
        .into_iter()
        .filter(|(name, _)| name.starts_with("grown"))
    {
        let Gathered { broken, .. } = gather(deep(500, 10_000), Some(family));
        assert!(broken.is_empty(), "--level {name}:\n{}", broken.join("\n"));
    }
}

/// Nor does one of the arrays with three parities and more, whose scrubs and repairs have something to do.
#[test]
fn arrays_of_many_parities_keep_every_promise() {
    let Gathered {
        broken, coverage, ..
    } = gather(deep(1_000, 20_000), Some(Family::ReedSolomon));
    assert!(broken.is_empty(), "--level rs:\n{}", broken.join("\n"));
    for (what, least) in [
        ("sectors rotten", 40),
        ("repairs", 100),
        ("tasks done", 1000),
    ] {
        let times = coverage.total(what);
        assert!(times >= least, "{what}: {times} times, not {least}");
    }
}

/// Nor does one of those that grow, which meet everything while chunks move.
#[test]
fn arrays_grow_through_everything() {
    grow_through_everything("grows", "move");
}

/// Nor does one of those that keep the plain layout as they grow.
#[test]
fn arrays_are_reshaped_through_everything() {
    grow_through_everything("reshape", "reshape");
}

/// Of all families with such a name; `slices`: what moves their chunks.
fn grow_through_everything(name: &str, slices: &str) {
    let families = FAMILIES
        .into_iter()
        .filter(|(other, _)| other.starts_with(name));
    let families = families.map(|(_, family)| Some(family));
    let Gathered {
        broken, coverage, ..
    } = gather_of(deep(2_000, 10_000), families);
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    let holes = table::holes_of_growths(&coverage, slices);
    assert!(holes.is_empty(), "{}", holes.join("\n"));
}

/// Nor does one of the skewed arrays, which meet everything while partitions of a lost member lie on others.
#[test]
fn partitions_are_hosted_through_everything() {
    let mut coverage = Coverage::default();
    for (name, family) in FAMILIES
        .into_iter()
        .filter(|(name, _)| name.starts_with("s2"))
    {
        let gathered = gather(deep(1_000, 10_000), Some(family));
        assert!(
            gathered.broken.is_empty(),
            "--level {name}:\n{}",
            gathered.broken.join("\n")
        );
        coverage.merge(&gathered.coverage);
    }
    let holes = table::holes_of_hosts(&coverage);
    assert!(holes.is_empty(), "{coverage}\n{}", holes.join("\n"));
}

/// A run that means to ruin an array and finds nothing to lose proves nothing.
fn ruins_are_many_and_ruinous(coverage: &Coverage) {
    let (ruins, in_vain) = (coverage.total(RUINS), coverage.total(RUINS_IN_VAIN));
    assert!(
        ruins >= ORDINARY_SEEDS / 10 && in_vain * 4 <= ruins,
        "{in_vain} of {ruins} ruins were of nothing written"
    );
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

/// Crash images, distinct by what they hold and by what was promised, each assembled by the real engine.
#[test]
fn crash_images_are_assembled() {
    let wanted = deep(100_000, 1_000_000) as usize;
    // A slow machine shall end its long run, too.
    let (begun, longest) = (Instant::now(), Duration::from_secs(3600));
    let gathered = Mutex::new(Gathered::default());
    on_half_the_cores(0..deep(1_000, 10_000), |seed| {
        let report = catch_unwind(|| enumerate(seed, Reach::images(deep(500, 2000)))).ok();
        let mut gathered = gathered.lock().unwrap_or_else(PoisonError::into_inner);
        gathered.add_images("", seed, report);
        gathered.images.len() < wanted && begun.elapsed() < longest
    });
    let Gathered { broken, images, .. } = gathered
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    println!("{} different images", images.len());
    assert!(
        broken.is_empty(),
        "{} seeds failed:\n{}",
        broken.len(),
        broken.join("\n")
    );
    let late = begun.elapsed() >= longest;
    assert!(images.len() >= wanted || late, "{}", images.len());
}

/// The same while partitions of a lost member are rebuilt onto others, served there and brought home.
#[test]
fn crash_images_of_hosts_are_assembled() {
    let wanted = deep(8_000, 400_000) as usize;
    let gathered = Mutex::new(Gathered::default());
    on_half_the_cores(0..deep(1_000, 20_000), |seed| {
        let reach = Reach {
            stride: STRIDE_OF_HOSTS,
            ..Reach::images(deep(250, 1_000))
        };
        let report = catch_unwind(|| enumerate_hosts(seed, reach)).ok();
        let mut gathered = gathered.lock().unwrap_or_else(PoisonError::into_inner);
        let options = format!(" --hosts --stride {STRIDE_OF_HOSTS}");
        gathered.add_images(&options, seed, report);
        gathered.images.len() < wanted
    });
    let Gathered {
        broken,
        images,
        hosting,
        ..
    } = gathered
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    println!("{} different images, {hosting:?}", images.len());
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(images.len() >= wanted, "{}", images.len());
    for met in [Hosting::Filling, Hosting::Serving, Hosting::GoingHome] {
        let count = hosting.get(&met).copied().unwrap_or(0);
        assert!(count as usize * 20 >= wanted, "{met:?}: {count}");
    }
}

/// The same of arrays that have grown.
#[test]
fn crash_images_of_grown_arrays_are_assembled() {
    let wanted = deep(10_000, 200_000) as usize;
    let gathered = Mutex::new(Gathered::default());
    on_half_the_cores(0..deep(1_000, 10_000), |seed| {
        let report = catch_unwind(|| enumerate_grown(seed, Reach::images(deep(500, 2000)))).ok();
        let mut gathered = gathered.lock().unwrap_or_else(PoisonError::into_inner);
        gathered.add_images(" --grown", seed, report);
        gathered.images.len() < wanted
    });
    let Gathered { broken, images, .. } = gathered
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(images.len() >= wanted, "{}", images.len());
}

/// The same while an array grows: what a start finds goes on to the end, and its new capacity is zeros but where users wrote.
#[test]
fn crash_images_of_growths_are_assembled() {
    assemble_growths(" --growth", enumerate_growth);
}

/// And while it keeps the plain layout.
#[test]
fn crash_images_of_reshapes_are_assembled() {
    assemble_growths(" --reshape", enumerate_reshape);
}

fn assemble_growths(kind: &str, enumerate: fn(u64, Reach) -> Report) {
    let wanted = deep(10_000, 400_000) as usize;
    let gathered = Mutex::new(Gathered::default());
    on_half_the_cores(0..deep(1_000, 20_000), |seed| {
        let report = catch_unwind(|| enumerate(seed, Reach::images(deep(500, 2000)))).ok();
        let mut gathered = gathered.lock().unwrap_or_else(PoisonError::into_inner);
        gathered.add_images(kind, seed, report);
        gathered.images.len() < wanted
    });
    let Gathered { broken, images, .. } = gathered
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(images.len() >= wanted, "{}", images.len());
}

/// Power is cut at one step in so many, and more often after something has happened to the members.
const STRIDE_OF_HOSTS: u64 = 80;
