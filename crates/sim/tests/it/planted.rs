//! The suites' teeth: each bug that is planted in the engine breaks a seed, under an invariant that fits.
//!
//! `planted.seeds` has a line for each bug and suite: the seed that finds the bug, and the invariant that it breaks. A
//! test runs that seed with the bug and without. Where the seed does not find the bug any more, the suite is searched
//! from seed 0 on, and the failure has the line to record. `RESTRIPE_BLESS=1` records it. With `RESTRIPE_DEEP` each
//! suite is searched, whatever is on record.

use crate::cover::is_deep;
use crate::queue::{blesses, lock, on_all_cores};
use restripe_array::Bug;
use restripe_sim::enumerate::{
    Reach, Report, enumerate, enumerate_growth, enumerate_pair, enumerate_reshape,
};
use restripe_sim::invariant::Invariant::{self, *};
use restripe_sim::surrogate;
use restripe_sim::swarm::{self, FAMILIES, Family};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

/// How a bug must show itself: the family in which it is looked for, and the invariants that may name it.
fn expected(bug: Bug) -> (Option<Family>, &'static [Invariant]) {
    match bug {
        Bug::FlushSkipsMember => (None, &[FlushedWriteLost, MadeUpBytes]),
        Bug::StartUnflushed => (None, &[FlushedWriteLost]),
        Bug::WrongQCoefficient => (Some(Family::Raid6), &[ParityMismatch]),
        Bug::StaleMemberAccepted => (None, &[FlushedWriteLost, MadeUpBytes]),
        Bug::IntentNotDurable | Bug::ParityBelieved => (None, &[ParityMismatch]),
        Bug::OverlapOrderLost => (None, &[OverlappingMemberWrites]),
        Bug::LogReusedEarly => (None, &[ParityMismatch, MadeUpBytes, FlushedWriteLost]),
        Bug::ExtentNotZeroed => (None, &[MadeUpBytes]),
        Bug::FailureNotRecorded => (None, &[FlushedWriteLost, MadeUpBytes]),
        // An array that records the failure does not halt: its reads report as lost what only missing members hold.
        Bug::OneTooManyRecorded => (None, &[NotWholeAgain, LossReportedWrongly]),
        Bug::LossForgotten => (None, &[StuckRequest, FlushedWriteLost, MadeUpBytes]),
        Bug::RebuildRunsAhead => (
            None,
            &[
                FlushedWriteLost,
                AckedWriteLost,
                MadeUpBytes,
                ParityMismatch,
            ],
        ),
        Bug::DegradedInOneStep => (None, &[LossReportedWrongly, MadeUpBytes, FlushedWriteLost]),
        Bug::CacheKeepsOverwritten => (None, &[AckedWriteLost, StaleRead, FlushedWriteLost]),
        Bug::CopiesShownApart => (Some(Family::Raid10), &[UnstableRead]),
        Bug::RedirectNotAnnounced | Bug::VoidBeforeFlush | Bug::RemovedUnderWay => {
            unreachable!("{bug:?} needs a surrogate")
        }
        Bug::EntryLeftOut
        | Bug::BufferMissed
        | Bug::PackedOver
        | Bug::SealedUnderCopy
        | Bug::FlushUnsealed
        | Bug::FuaUnsealed
        | Bug::BufferNotFlushed
        | Bug::SlotReusedEarly
        | Bug::SleepUnannounced
        | Bug::WakeNotAwaited
        | Bug::RotBelieved
        | Bug::MovedNotAwaited
        | Bug::StalePieceKept => unreachable!("{bug:?} needs a code cache"),
        Bug::RowOnOneMember => (Some(Family::S2Raid5), &[Invariant::RowOnOneMember]),
        Bug::FormerHostBelieved => (
            Some(Family::S2Raid5),
            &[MadeUpBytes, FlushedWriteLost, AckedWriteLost],
        ),
        Bug::MoveNotOnRecord => (
            Some(Family::Grows4),
            &[MadeUpBytes, FlushedWriteLost, AckedWriteLost],
        ),
        Bug::EdgeRunsAhead | Bug::RowOverItself | Bug::WindowLeftOpen => (
            Some(Family::Reshape5),
            &[
                MadeUpBytes,
                ParityMismatch,
                FlushedWriteLost,
                AckedWriteLost,
                StaleRead,
            ],
        ),
        Bug::AddedNotZeroed | Bug::RowSeenOnce => (
            Some(Family::Grows4),
            &[
                MadeUpBytes,
                ParityMismatch,
                FlushedWriteLost,
                AckedWriteLost,
            ],
        ),
        Bug::StopWritesOnce | Bug::NewerOverwritten | Bug::CopyNotOwed => {
            unreachable!("a sweep finds {bug:?}")
        }
        Bug::PlaceTakenEarly
        | Bug::PlaceTakenInUse
        | Bug::FormerHostHeard
        | Bug::VolatileTakenIn
        | Bug::OtherOwnerIgnored => {
            unreachable!("a script finds {bug:?}")
        }
        Bug::SuperblockInPlace => (
            None,
            &[
                LossReportedWrongly,
                MadeUpBytes,
                StartRefused,
                RequestRefused,
            ],
        ),
    }
}

/// How a bug of an array with a surrogate must show itself.
fn expected_of_surrogate(bug: Bug) -> &'static [Invariant] {
    match bug {
        Bug::RedirectNotAnnounced => &[FlushedWriteLost, MadeUpBytes],
        Bug::VoidBeforeFlush => &[FlushedWriteLost, MadeUpBytes],
        Bug::RemovedUnderWay => &[RemovedWritten, RequestRefused],
        other => unreachable!("{other:?} needs no surrogate"),
    }
}

/// How a bug of an array with a code cache must show itself.
fn expected_of_code_cache(bug: Bug) -> &'static [Invariant] {
    match bug {
        Bug::EntryLeftOut => &[FlushedWriteLost, MadeUpBytes],
        // Of two headers in a row nobody misses the first.
        Bug::RotBelieved => &[FlushedWriteLost],
        Bug::FlushUnsealed | Bug::FuaUnsealed => &[FlushedWriteLost],
        Bug::VoidBeforeFlush | Bug::MovedNotAwaited => &[FlushedWriteLost],
        Bug::BufferNotFlushed | Bug::SlotReusedEarly => &[FlushedWriteLost],
        Bug::BufferMissed => &[AckedWriteLost, MadeUpBytes, StaleRead],
        Bug::PackedOver => &[OverlappingComputes],
        Bug::SealedUnderCopy => &[FlushedWriteLost, AckedWriteLost, BufferChangedInFlight],
        Bug::StalePieceKept => &[AckedWriteLost, StaleRead, FlushedWriteLost],
        Bug::SleepUnannounced | Bug::WakeNotAwaited => &[SleeperWritten],
        other => unreachable!("{other:?} needs no code cache"),
    }
}

/// What runs a seed.
#[derive(Clone, Copy)]
enum Suite {
    Swarm(Option<Family>),
    Surrogates(surrogate::Options),
    Images(&'static str, Enumerate, Reach),
}

type Enumerate = fn(u64, Reach) -> Report;

impl Suite {
    /// The command that replays a seed, without the seed and the bug.
    fn command(&self) -> String {
        match self {
            Suite::Swarm(None) => "swarm".into(),
            Suite::Swarm(Some(family)) => {
                let mut names = FAMILIES.iter().filter(|line| line.1 == *family);
                format!("swarm --level {}", names.next().expect("each has a name").0)
            }
            Suite::Surrogates(options) => format!("surrogates{}", options.family()),
            Suite::Images(command, ..) => command.to_string(),
        }
    }

    /// The first invariant that a seed breaks; none if it panics.
    fn broken(&self, seed: u64, bug: Option<Bug>) -> Option<Invariant> {
        let run = || match *self {
            Suite::Swarm(family) => {
                let options = swarm::Options {
                    family,
                    bug,
                    ..swarm::Options::default()
                };
                let outcome = swarm::run(seed, &options);
                outcome.violations.first().map(|first| first.invariant)
            }
            Suite::Surrogates(options) => {
                let outcome = surrogate::run(seed, surrogate::Options { bug, ..options });
                outcome.violations.first().map(|first| first.invariant)
            }
            Suite::Images(_, enumerate, reach) => {
                let report = enumerate(seed, Reach { bug, ..reach });
                report.violation.map(|(_, first)| first.invariant)
            }
        };
        catch_unwind(AssertUnwindSafe(run)).ok()?
    }
}

/// A bug to find in one of some suites, by turns in each.
struct Hunt {
    bug: Bug,
    suites: Vec<Suite>,
    names: &'static [Invariant],
    seeds: u64,
}

/// A line of `planted.seeds`.
struct Line {
    suite: Suite,
    seed: u64,
    name: Invariant,
}

impl Hunt {
    fn new(bug: Bug, suite: Suite, names: &'static [Invariant], seeds: u64) -> Hunt {
        let suites = vec![suite];
        Hunt {
            bug,
            suites,
            names,
            seeds,
        }
    }

    /// Whether a seed breaks one of the invariants with the bug, and none without.
    fn finds(&self, suite: Suite, seed: u64) -> Option<Line> {
        let name = suite.broken(seed, Some(self.bug))?;
        let found = self.names.contains(&name) && suite.broken(seed, None).is_none();
        found.then_some(Line { suite, seed, name })
    }

    /// The beginning of its line for a suite.
    fn key(&self, suite: Suite) -> String {
        format!("{:?}: {} --seed ", self.bug, suite.command())
    }

    fn line(&self, line: &Line) -> String {
        format!("{}{}: {:?}", self.key(line.suite), line.seed, line.name)
    }

    /// The seed on record finds the bug.
    fn remembered(&self, text: &str) -> Option<Line> {
        self.suites.iter().find_map(|suite| {
            let rest = text
                .lines()
                .find_map(|line| line.strip_prefix(&self.key(*suite)))?;
            let seed = rest.split(':').next()?.parse().ok()?;
            self.finds(*suite, seed)
        })
    }

    fn search(&self) -> Option<Line> {
        (0..self.seeds).find_map(|turn| {
            let mut suites = self.suites.iter();
            suites.find_map(|suite| self.finds(*suite, stride(*suite) * turn))
        })
    }
}

/// Seeds of quests that follow each other set out for cells of the table that do, too.
fn stride(suite: Suite) -> u64 {
    match suite {
        Suite::Surrogates(surrogate::Options { quests: true, .. }) => 101,
        _ => 1,
    }
}

/// In the seeds of a swarm.
const SEEDS: u64 = 4_000;
const SEEDS_OF_SURROGATES: u64 = 2_000;
const SEEDS_OF_CODE_CACHES: u64 = 600;

fn hunts() -> Vec<Hunt> {
    let mut hunts = hunts_in_swarms();
    hunts.extend(hunts_in_surrogates());
    hunts.extend(hunts_in_images());
    hunts
}

fn hunts_in_swarms() -> Vec<Hunt> {
    let bugs = Bug::ALL.into_iter().chain(Bug::OF_HOSTS);
    let bugs = bugs.chain(Bug::OF_GROWTHS).chain(Bug::OF_RESHAPES);
    let hunts = bugs.map(|bug| {
        let (family, names) = expected(bug);
        Hunt::new(bug, Suite::Swarm(family), names, SEEDS)
    });
    // Of three parities and more it is the second one that has it.
    let parities = Hunt::new(
        Bug::WrongQCoefficient,
        Suite::Swarm(Some(Family::ReedSolomon)),
        &[ParityMismatch],
        400,
    );
    hunts.chain([parities]).collect()
}

fn hunts_in_surrogates() -> Vec<Hunt> {
    let plain = surrogate::Options::default();
    let with = |gathers, quests, graid, eraid| {
        Suite::Surrogates(surrogate::Options {
            gathers,
            quests,
            graid,
            eraid,
            ..plain
        })
    };
    let gathers = with(true, false, false, false);
    let quests = with(true, true, false, false);
    let of_surrogates = Bug::OF_SURROGATES.into_iter().map(|bug| {
        let names = expected_of_surrogate(bug);
        Hunt::new(bug, Suite::Surrogates(plain), names, SEEDS_OF_SURROGATES)
    });
    let of_code_caches = Bug::OF_CODE_CACHES
        .into_iter()
        .chain([Bug::VoidBeforeFlush]);
    let of_code_caches = of_code_caches.map(|bug| Hunt {
        bug,
        suites: match BY_QUESTS.contains(&bug) {
            true => vec![quests],
            false => vec![quests, gathers],
        },
        names: expected_of_code_cache(bug),
        seeds: SEEDS_OF_CODE_CACHES,
    });
    // A start without its flush, in lives with a surrogate of each kind.
    let kinds = [
        Suite::Surrogates(plain),
        gathers,
        with(false, false, true, false),
        with(false, false, false, true),
    ];
    let starts = kinds.map(|kind| Hunt::new(Bug::StartUnflushed, kind, &[FlushedWriteLost], 400));
    of_surrogates.chain(of_code_caches).chain(starts).collect()
}

/// Bugs that users' requests, crashes and sleep have to meet at a moment that quests are sent for: quests find them.
const BY_QUESTS: [Bug; 6] = [
    Bug::EntryLeftOut,
    Bug::BufferMissed,
    Bug::FlushUnsealed,
    Bug::FuaUnsealed,
    Bug::SleepUnannounced,
    Bug::WakeNotAwaited,
];

/// What a crash shows of bytes.
const OF_CRASHES: &[Invariant] = &[
    MadeUpBytes,
    FlushedWriteLost,
    AckedWriteLost,
    StaleRead,
    ParityMismatch,
    LossReportedWrongly,
];

/// Crash images find what only a crash shows.
fn hunts_in_images() -> Vec<Hunt> {
    let reach = |stride, images| Reach {
        stride,
        ..Reach::images(images)
    };
    let pair = Suite::Images("crashes --pair --stride 7", enumerate_pair, reach(7, 2_000));
    // Of a daemon's death. A code cache writes and flushes its log as it starts, which hides it: lives find it there.
    let plain = Suite::Images("crashes --stride 7", enumerate, reach(7, 1_000));
    let growth = Suite::Images("crashes --growth", enumerate_growth, reach(1, 2_000));
    let reshape = Suite::Images("crashes --reshape", enumerate_reshape, reach(1, 2_000));
    vec![
        Hunt::new(Bug::VoidBeforeFlush, pair, OF_CRASHES, 40),
        Hunt::new(Bug::StartUnflushed, plain, &[FlushedWriteLost], 40),
        Hunt::new(Bug::StartUnflushed, pair, &[FlushedWriteLost], 40),
        Hunt::new(Bug::MoveNotOnRecord, growth, OF_CRASHES, 60),
        Hunt::new(Bug::EdgeRunsAhead, reshape, OF_CRASHES, 60),
        Hunt::new(Bug::RowOverItself, reshape, OF_CRASHES, 60),
    ]
}

#[test]
fn each_planted_bug_is_found_by_the_seed_on_record() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/planted.seeds");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let hunts = hunts();
    let lines = Mutex::new(vec![None; hunts.len()]);
    on_all_cores(hunts.iter().enumerate(), |(index, hunt)| {
        let remembered = (!is_deep()).then(|| hunt.remembered(&text)).flatten();
        let line = remembered.or_else(|| hunt.search());
        lock(&lines)[index] = line.map(|line| hunt.line(&line));
        true
    });
    let lines = lock(&lines);
    let found = hunts.iter().zip(lines.iter());
    let missed = found.filter(|(_, line)| line.is_none());
    let missed: Vec<Bug> = missed.map(|(hunt, _)| hunt.bug).collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
    let lines: Vec<&str> = lines.iter().flatten().map(String::as_str).collect();
    if blesses() {
        return std::fs::write(path, lines.join("\n") + "\n").expect("the tree is writable");
    }
    if is_deep() {
        return;
    }
    let recorded: Vec<&str> = text.lines().collect();
    let without = |all: &[&str], known: &[&str]| {
        let others = all.iter().filter(|line| !known.contains(line));
        let others: Vec<&str> = others.copied().collect();
        others.join("\n")
    };
    let (new, stale) = (without(&lines, &recorded), without(&recorded, &lines));
    assert!(
        new.is_empty() && stale.is_empty(),
        "lines on record that find no bug, or not theirs:\n{stale}\nlines that do (RESTRIPE_BLESS=1 records \
         them):\n{new}"
    );
}
