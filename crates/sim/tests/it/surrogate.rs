//! Arrays with a surrogate, through whole lives from seeds. A failure prints the seed; `surrogates --seed N --trace`
//! replays it.

use crate::cover::{Suite, deep, fill, is_deep};
use restripe_sim::enumerate::{Reach, Report, enumerate_gathering, enumerate_pair};
use restripe_sim::surrogate::{Incident, Moment, Options, Outcome, Phase, run};

/// Each of these is met so often at least.
const MET: [(&str, u64); 13] = [
    ("runs to the end", 100),
    ("writes redirected", 1000),
    ("reads of the log", 200),
    ("reads of both", 50),
    ("sectors home", 1000),
    ("clean copies", 150),
    ("members come back", 50),
    ("starts without a lost surrogate", 10),
    ("tasks of the surrogate", 20),
    ("scrubs", 100),
    ("surrogates taken away", 30),
    ("disks taken away at once", 10),
    ("removals refused", 5),
];

/// Where users' data are when something happens: each with each of the incidents.
const PHASES: [Phase; 4] = [Phase::AtHome, Phase::Before, Phase::Away, Phase::GoingHome];
/// So, but rarer.
const RARE: [Phase; 3] = [Phase::Copied, Phase::MakingRoom, Phase::Waiting];

const INCIDENTS: [Incident; 8] = [
    Incident::Crash,
    Incident::Death,
    Incident::SecondLoss,
    Incident::LogLoss,
    Incident::SurrogateLoss,
    Incident::Cut,
    Incident::WholeCut,
    Incident::HomeCut,
];

/// Lives of one kind: this many for the cover to be chosen from, in a deep run, and fresh.
fn suite(options: Options, full: u64, deep: u64, fresh: u64) -> Suite<Outcome> {
    Suite {
        command: format!("surrogates{}", options.family()),
        full: 0..full,
        deep,
        fresh,
        run: Box::new(move |seed| run(seed, options)),
    }
}

/// Each is met as often as that in a deep run, and in an ordinary one at all.
fn expect(outcome: &Outcome, all: &[(&str, u64)]) {
    for (what, least) in all {
        let least = deep(1, *least);
        let times = outcome.met.get(what).copied().unwrap_or(0);
        let all = &outcome.met;
        assert!(
            times >= least,
            "{what}: {times} times, not {least}: {all:?}"
        );
    }
}

fn expect_incidents(outcome: &Outcome, phases: &[Phase], incidents: &[Incident]) {
    for phase in phases {
        for incident in incidents {
            assert!(
                outcome.incidents.contains_key(&(*phase, *incident)),
                "{phase:?}: {incident} was never met: {:#?}",
                outcome.incidents
            );
        }
    }
}

#[test]
fn nothing_is_lost_on_the_way_away_and_home() {
    let lives = suite(Options::default(), 1_800, 20_000, 300);
    let outcome = fill("surrogates", &[lives]);
    expect(&outcome, &MET);
    expect_incidents(&outcome, &PHASES, &INCIDENTS);
    if is_deep() {
        expect_incidents(&outcome, &RARE, &INCIDENTS);
    }
}

/// Home grows while users' writes are in the surrogate, and comes to its end with what the surrogate brings.
#[test]
fn nothing_is_lost_while_home_grows() {
    let options = Options {
        grows: true,
        ..Options::default()
    };
    let outcome = fill("growth", &[suite(options, 300, 12_000, 100)]);
    let least = [
        ("growths of home", 100),
        ("writes redirected", 1000),
        ("sectors home", 5000),
    ];
    expect(&outcome, &least);
}

/// Every write goes into a log of clusters, at all times, and mirrors sleep.
#[test]
fn nothing_is_lost_while_writes_are_gathered() {
    let options = Options {
        gathers: true,
        ..Options::default()
    };
    let outcome = fill("gathers", &[suite(options, 800, 20_000, 200)]);
    let least = [
        ("writes redirected", 10_000),
        ("reads of the log", 2000),
        ("sectors home", 20_000),
        ("rests of mirrors", 300),
        ("destages", 300),
        ("cleanings", 100),
        ("sectors moved", 2000),
        ("sleeps spoilt", 200),
        ("disks lost with both", 60),
        ("further losses of the surrogate", 80),
        ("surrogates taken away", 6),
        ("disks taken away at once", 2),
        ("blocks from the read cache", 1000),
    ];
    expect(&outcome, &least);
    // Mirrors bear no second loss of one chunk.
    let mirrors: Vec<Incident> = INCIDENTS
        .into_iter()
        .filter(|one| *one != Incident::SecondLoss)
        .collect();
    expect_incidents(&outcome, &[Phase::GoingHome, Phase::Waiting], &mirrors);
    // Rows that a crash left out of step: a place half replaced, a record that a rebuild brought back from parity.
    // And a member that failed in its sleep, for which a stop waited. And two blocks that were kept in the memory of one.
    // And an anchor that two members had lost alike. And a member of the buffer that failed before the other, and was started alone.
    for seed in [2527, 3052, 3688, 980, 3045, 90_158] {
        let outcome = run(seed, options);
        assert_eq!(outcome.violations, [], "surrogates --gathers --seed {seed}");
    }
}

/// Lives that once broke a promise: zeros in place of what a lost surrogate took with it, sectors called lost for want of
/// members that came back, a log that was begun anew and looked damaged, records in flight that took the whole log along,
/// writes that waited for room in the log of an array that had halted.
#[test]
fn what_once_went_wrong_does_not() {
    for seed in [
        103, 1839, 4063, 6393, 7270, 10_178, 13_645, 13_810, 16_747, 16_938, 17_141, 17_472,
    ] {
        let outcome = run(seed, Options::default());
        assert_eq!(outcome.violations, [], "surrogates --seed {seed}");
    }
    // Beside a log disk: what a crash took of the log was on first copies alone, and no region was in doubt any more.
    let graid = Options {
        graid: true,
        ..Options::default()
    };
    let outcome = run(4112, graid);
    assert_eq!(outcome.violations, [], "surrogates --graid --seed 4112");
    // The source of a replace was started alone after its successor was lost, and its old log counted.
    let growth = Options {
        grows: true,
        ..Options::default()
    };
    let outcome = run(833_410_781_738_033_702, growth);
    let replay = "surrogates --growth --seed 833410781738033702";
    assert_eq!(outcome.violations, [], "{replay}");
    // Headers of a code cache: one that two members had lost alike, one that only parities had of a row that a crash tore, and one
    // beside a sector that could not be read. And parities that look like headers were spoilt where a further member was lost.
    let quests = Options {
        gathers: true,
        quests: true,
        ..Options::default()
    };
    for seed in [2830, 542, 3400, 8069] {
        let outcome = run(seed, quests);
        let replay = format!("surrogates --gathers --quests --seed {seed}");
        assert_eq!(outcome.violations, [], "{replay}");
    }
}

/// Power is cut at every write (in a short run at one moment in eleven) of lives through the loss of a member, and what is
/// left is assembled and read.
#[test]
fn crash_images_of_a_pair_are_assembled() {
    let images = assembled("pair", enumerate_pair).phases;
    for phase in PHASES.iter().chain(&RARE[..2]) {
        let count = images.get(phase).copied().unwrap_or(0);
        assert!(
            count >= deep(1, 50),
            "{phase:?}: {count} images: {images:?}"
        );
    }
}

/// The same of mirrors that sleep beside a code cache, at each of its moments: but not in a start, and its mirrors wake in time.
#[test]
fn crash_images_of_a_code_cache_are_assembled() {
    let report = assembled("gathers", enumerate_gathering);
    let not = [Moment::Starting, Moment::WakesLate, Moment::WakesNever];
    for moment in Moment::ALL {
        let count = report.at.get(&moment).copied().unwrap_or(0);
        match not.contains(&moment) {
            true => assert_eq!(count, 0, "{moment} is cut after all"),
            false => assert!(
                count >= deep(1, 10),
                "{moment}: {count} images: {:?}",
                report.at
            ),
        }
    }
    let buffer = (report.buffered, report.unbuffered);
    let least = deep(1, 10);
    assert!(buffer.0 >= least && buffer.1 >= least, "{buffer:?}");
}

/// Images by where users' data were and what a code cache was at.
fn assembled(kind: &str, enumerate: fn(u64, Reach) -> Report) -> Report {
    let stride = deep(11, 1);
    let reach = Reach {
        stride,
        ..Reach::images(2_000)
    };
    let suite = Suite {
        command: format!("crashes --{kind} --stride {stride}"),
        full: 0..24,
        deep: 60,
        fresh: 2,
        run: Box::new(move |seed| enumerate(seed, reach)),
    };
    let images = fill(&format!("images-{kind}"), &[suite]);
    let buffer = (images.buffered, images.unbuffered);
    println!("{:?} {:?} {buffer:?}", images.phases, images.at);
    images
}

/// The same seed gives the same actions.
#[test]
fn a_seed_says_it_all() {
    for seed in 0..20 {
        assert_eq!(run(seed, Options::default()), run(seed, Options::default()));
    }
}
