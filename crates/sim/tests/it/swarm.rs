//! The swarm, as far as a test run has time for it. A failure prints the line that replays it with the `swarm` binary.

use crate::cover::{Suite, deep, fill, is_deep};
use crate::table;
use restripe_sim::swarm::{
    Coverage, FAMILIES, Family, Options, Outcome, RUINS, RUINS_IN_VAIN, run,
};

/// Seeds of a family, or of the plain ones: this many for the cover to be chosen from, in a deep run, and fresh.
fn suite(family: Option<Family>, full: u64, deep: u64, fresh: u64) -> Suite<Outcome> {
    let name = FAMILIES.iter().find(|line| Some(line.1) == family);
    let options = Options {
        family,
        ..Options::default()
    };
    Suite {
        command: name.map_or("swarm".into(), |(name, _)| format!("swarm --level {name}")),
        full: 0..full,
        deep,
        fresh,
        run: Box::new(move |seed| run(seed, &options)),
    }
}

/// The same of each family with such a name.
fn suites(name: &str, full: u64, deep: u64, fresh: u64) -> Vec<Suite<Outcome>> {
    let families = FAMILIES.into_iter();
    let families = families.filter(|(other, _)| other.starts_with(name));
    families
        .map(|(_, family)| suite(Some(family), full, deep, fresh))
        .collect()
}

const WENT_WRONG: [(Option<Family>, u64); 21] = [
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
    // A copy of a member with the version under which that failed was taken for it.
    (None, 70_120),
    // The simulator met capacity of one reshape when the next had begun, and took it for a growth.
    (Some(Family::Reshape0), 706_391_642_892_083_397),
    // The simulator forbade the loss of zeros that a first write had bound to a code which could not be read any more.
    (Some(Family::Grows4), 52_002_745),
    // A sector that nothing recovers was read until its member failed, which took what else that had alone.
    (Some(Family::Grows4), 761_302_213),
    // The simulator held members that went after a stop against that.
    (Some(Family::Reshape4), 770_004_512),
    // The simulator took another member while one that hung had just been made current, and nothing had that on record.
    (Some(Family::S2Raid5), 203_982_136_013_613_913),
    // A start that was cut short made an old copy look like the member that was being filled.
    (Some(Family::Reshape6), 312_803_899_956_503_891),
    // A first write made a missing member's zeros part of a row whose parity was in doubt.
    (Some(Family::Grown4), 50_001_943),
    // A parity with one unreadable sector was left out of step with the other one in all that a replay had at once.
    (Some(Family::Raid6), 911_002_719),
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

/// No seed breaks a promise, and together they leave nothing of the coverage table empty. Few lives have a member fail
/// while the checksum of a log record is computed: most of them are lives of RAID-5.
#[test]
fn the_swarm_keeps_every_promise_and_fills_the_table() {
    let plain = suite(None, 13_000, 30_000, 1_500);
    let raid5 = suite(Some(Family::Raid5), 2_500, 2_500, 300);
    let coverage = fill("swarm", &[plain, raid5]).coverage;
    println!("{coverage}");
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
    fill("grown", &suites("grown", 500, 10_000, 200));
}

/// Nor does one of the arrays with three parities and more, whose scrubs and repairs have something to do.
#[test]
fn arrays_of_many_parities_keep_every_promise() {
    let suites = [suite(Some(Family::ReedSolomon), 1_000, 20_000, 300)];
    let coverage = fill("rs", &suites).coverage;
    for (what, ordinary, of_deep) in [
        ("sectors rotten", 8, 40),
        ("repairs", 8, 100),
        ("tasks done", 300, 1000),
    ] {
        let (times, least) = (coverage.total(what), deep(ordinary, of_deep));
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
    let suites = suites(name, 2_000, 10_000, 300);
    let coverage = fill(name, &suites).coverage;
    let holes = table::holes_of_growths(&coverage, slices);
    assert!(holes.is_empty(), "{}", holes.join("\n"));
}

/// Nor does one of the skewed arrays, which meet everything while partitions of a lost member lie on others.
#[test]
fn partitions_are_hosted_through_everything() {
    let coverage = fill("s2", &suites("s2", 1_000, 10_000, 300)).coverage;
    let holes = table::holes_of_hosts(&coverage);
    assert!(holes.is_empty(), "{coverage}\n{}", holes.join("\n"));
}

/// A run that means to ruin an array and finds nothing to lose proves nothing.
fn ruins_are_many_and_ruinous(coverage: &Coverage) {
    let (ruins, in_vain) = (coverage.total(RUINS), coverage.total(RUINS_IN_VAIN));
    // About a fifth is in vain. The few fresh seeds of an ordinary run scatter around that.
    let (least, share) = if is_deep() { (1_300, 4) } else { (100, 2) };
    assert!(
        ruins >= least && in_vain * share <= ruins,
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
