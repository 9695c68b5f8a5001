//! The suites' teeth: for each bug that is planted in the engine, some seed of the swarm must break, and under a name
//! that fits. Only with the feature `planted`.
#![cfg(feature = "planted")]

use restripe_array::Bug;
use restripe_sim::enumerate::{
    Reach, enumerate, enumerate_growth, enumerate_pair, enumerate_reshape,
};
use restripe_sim::invariant::Invariant::{self, *};
use restripe_sim::surrogate;
use restripe_sim::swarm::{Family, Options, run};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

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
        Bug::OneTooManyRecorded => (
            None,
            &[NotWholeAgain, LossReportedWrongly, FlushedWriteLost],
        ),
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
        Bug::StopWritesOnce | Bug::NewerOverwritten => unreachable!("a sweep finds {bug:?}"),
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

/// The first seed that breaks one of `names` with the bug and nothing without it.
fn found(
    bug: Bug,
    family: Option<Family>,
    names: &[Invariant],
    seeds: Range<u64>,
) -> Option<(u64, Invariant)> {
    let clean = Options {
        family,
        ..Options::default()
    };
    let planted = Options {
        bug: Some(bug),
        ..clean
    };
    let first = |seed: u64, options: &Options| {
        let outcome = catch_unwind(AssertUnwindSafe(|| run(seed, options))).ok()?;
        outcome
            .violations
            .first()
            .map(|violation| violation.invariant)
    };
    let breaks = |seed: u64| {
        first(seed, &planted)
            .filter(|name| names.contains(name))
            .map(|name| (seed, name))
    };
    seeds
        .filter_map(breaks)
        .find(|(seed, _)| first(*seed, &clean).is_none())
}

#[test]
fn every_planted_bug_is_found_by_name() {
    find_all(&Bug::ALL);
}

/// Those that only arrays with spare partitions have.
#[test]
fn every_planted_bug_of_hosts_is_found_by_name() {
    find_all(&Bug::OF_HOSTS);
}

/// And those that only arrays that grow have.
#[test]
fn every_planted_bug_of_growths_is_found_by_name() {
    find_all(&Bug::OF_GROWTHS);
}

/// And those that only arrays that take another shape have.
#[test]
fn every_planted_bug_of_reshapes_is_found_by_name() {
    find_all(&Bug::OF_RESHAPES);
}

/// Where it is looked for.
const SEEDS: Range<u64> = 0..4_000;

fn find_all(bugs: &[Bug]) {
    let missed: Vec<&Bug> = bugs
        .iter()
        .filter(|bug| {
            let (family, names) = expected(**bug);
            let found = found(**bug, family, names, SEEDS);
            println!("{bug:?}: {found:?}");
            found.is_none()
        })
        .collect();
    assert!(missed.is_empty(), "not found: {missed:?}");
}

/// Of three parities and more it is the second one that has it.
#[test]
fn a_wrong_coefficient_beside_more_parities_is_found() {
    let family = Some(Family::ReedSolomon);
    let found = found(Bug::WrongQCoefficient, family, &[ParityMismatch], 0..400);
    println!("{found:?}");
    assert!(found.is_some(), "not found");
}

#[test]
fn every_planted_bug_of_a_surrogate_is_found_by_name() {
    let first = |seed: u64, bug: Option<Bug>| {
        let options = surrogate::Options {
            bug,
            ..surrogate::Options::default()
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| surrogate::run(seed, options))).ok()?;
        let violation = outcome.violations.first()?;
        Some(violation.invariant)
    };
    for bug in Bug::OF_SURROGATES {
        let names = expected_of_surrogate(bug);
        let breaks = |seed: &u64| first(*seed, Some(bug)).is_some_and(|name| names.contains(&name));
        let found = (0..2_000)
            .filter(breaks)
            .find(|seed| first(*seed, None).is_none());
        println!("{bug:?}: {found:?}");
        assert!(found.is_some(), "not found: {bug:?}");
    }
}

/// Seeds of one way to look for a bug of a code cache.
const SEEDS_OF_CODE_CACHES: u64 = 600;

/// By chance alone, or where each event is to meet each moment: by turns, until one seed of either finds it.
#[test]
fn every_planted_bug_of_a_code_cache_is_found_by_name() {
    let bugs = Bug::OF_CODE_CACHES.into_iter();
    find_in_code_caches(bugs.chain([Bug::VoidBeforeFlush]), &[true, false]);
}

/// What users' requests, crashes and sleep have to meet at a moment that quests are sent for.
#[test]
fn quests_find_by_themselves_what_they_are_sent_for() {
    let bugs = [
        Bug::EntryLeftOut,
        Bug::BufferMissed,
        Bug::FlushUnsealed,
        Bug::FuaUnsealed,
        Bug::SleepUnannounced,
        Bug::WakeNotAwaited,
    ];
    find_in_code_caches(bugs, &[true]);
}

/// Finds each by quests (true) or by chance (false), as `ways` says.
fn find_in_code_caches(bugs: impl IntoIterator<Item = Bug>, ways: &[bool]) {
    let mut missed = Vec::new();
    for bug in bugs {
        match found_in_code_cache(bug, ways) {
            Some((runs, seed, quests, name)) => {
                let how = if quests { "quests" } else { "chance" };
                println!("{bug:?}: {name:?} in run {runs}, seed {seed} by {how}");
            }
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

fn found_in_code_cache(bug: Bug, ways: &[bool]) -> Option<(u64, u64, bool, Invariant)> {
    // Seeds that follow each other set out for cells of the table that do, too.
    const STRIDE: u64 = 101;
    let first = |seed: u64, bug: Option<Bug>, quests: bool| {
        let options = surrogate::Options {
            gathers: true,
            quests,
            bug,
            ..surrogate::Options::default()
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| surrogate::run(seed, options))).ok()?;
        let violation = outcome.violations.first()?;
        Some(violation.invariant)
    };
    let names = expected_of_code_cache(bug);
    let seed_of = |turn: u64, quests: bool| if quests { turn * STRIDE } else { turn };
    let turns = 0..SEEDS_OF_CODE_CACHES;
    let tries = turns.flat_map(|turn| ways.iter().map(move |quests| (turn, *quests)));
    (1..).zip(tries).find_map(|(runs, (turn, quests))| {
        let seed = seed_of(turn, quests);
        let name = first(seed, Some(bug), quests)?;
        let told = names.contains(&name) && first(seed, None, quests).is_none();
        told.then_some((runs, seed, quests, name))
    })
}

/// Crash images find what only a crash shows.
#[test]
fn crash_images_find_a_log_that_is_void_too_early() {
    let reach = Reach {
        bug: Some(Bug::VoidBeforeFlush),
        stride: 7,
        ..Reach::images(2_000)
    };
    let broken = |seed: &u64| enumerate_pair(*seed, reach).violation.is_some();
    let found = (0..40).find(broken);
    println!("{found:?}");
    assert!(found.is_some(), "not found");
}

/// Of a daemon's death. A code cache writes and flushes its log as it starts, which hides it: lives find it there.
#[test]
fn crash_images_find_a_start_without_its_flush() {
    let reach = Reach {
        bug: Some(Bug::StartUnflushed),
        stride: 7,
        ..Reach::images(1_000)
    };
    for enumerate in [enumerate, enumerate_pair] {
        let lost = |seed: &u64| {
            let violation = enumerate(*seed, reach).violation;
            violation.is_some_and(|(_, violation)| violation.invariant == FlushedWriteLost)
        };
        let found = (0..40).find(lost);
        println!("{found:?}");
        assert!(found.is_some(), "not found");
    }
}

/// And in lives with a surrogate of each kind.
#[test]
fn lives_with_a_surrogate_find_a_start_without_its_flush() {
    let kinds = [
        surrogate::Options::default(),
        surrogate::Options {
            gathers: true,
            ..surrogate::Options::default()
        },
        surrogate::Options {
            graid: true,
            ..surrogate::Options::default()
        },
        surrogate::Options {
            eraid: true,
            ..surrogate::Options::default()
        },
    ];
    for kind in kinds {
        let planted = surrogate::Options {
            bug: Some(Bug::StartUnflushed),
            ..kind
        };
        let lost = |seed: &u64| {
            let outcome = surrogate::run(*seed, planted);
            let first = outcome.violations.first();
            first.is_some_and(|violation| violation.invariant == FlushedWriteLost)
        };
        let found = (0..400)
            .filter(lost)
            .find(|seed| surrogate::run(*seed, kind).violations.is_empty());
        println!("{kind:?}: {found:?}");
        assert!(found.is_some(), "not found: {kind:?}");
    }
}

#[test]
fn crash_images_find_a_move_that_is_not_on_record() {
    let reach = Reach {
        bug: Some(Bug::MoveNotOnRecord),
        ..Reach::images(2_000)
    };
    let broken = |seed: &u64| enumerate_growth(*seed, reach).violation.is_some();
    let found = (0..60).find(broken);
    println!("{found:?}");
    assert!(found.is_some(), "not found");
}

#[test]
fn crash_images_find_an_edge_that_runs_ahead() {
    for bug in [Bug::EdgeRunsAhead, Bug::RowOverItself] {
        let reach = Reach {
            bug: Some(bug),
            ..Reach::images(2_000)
        };
        let broken = |seed: &u64| enumerate_reshape(*seed, reach).violation.is_some();
        let found = (0..60).find(broken);
        println!("{found:?}");
        assert!(found.is_some(), "not found: {bug:?}");
    }
}
