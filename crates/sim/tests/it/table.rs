//! The coverage table: what the swarm must meet, and what it must never meet.
//!
//! Every transition of the slice table that is not here is one that no code path takes: it is asserted never hit.
//!
//! One of those looks possible: a write from merging back to preparing. That way lies only what is declared lost, and a
//! write of less than a block never gets there with cells it cannot have: either the block that it merges with was
//! read, and then nothing of its row is known to be bad yet, or it was recovered, and then what recovered it tells all
//! other cells.

use crate::cover::deep;
use restripe_array::TaskKind;
use restripe_sim::swarm::{
    BLOCKS_CACHED, Coverage, HALTS, HOSTS_BACK, Hosting, Incident, PLACES_LINGERED, PLACES_NEEDED,
    Phase, STARTS_WITHOUT_SPACE, UNPLUGGED,
};
use std::collections::BTreeSet;

/// So often each cell must be hit.
fn hits_wanted() -> u64 {
    deep(1, 20)
}

const TASKS: [TaskKind; 5] = [
    TaskKind::Rebuild,
    TaskKind::Replace,
    TaskKind::Resync,
    TaskKind::Check,
    TaskKind::Repair,
];
const PHASES: [Phase; 3] = [Phase::Beginning, Phase::Middle, Phase::End];
const INCIDENTS: [Incident; 6] = [
    Incident::Crash,
    Incident::CrashInRecovery,
    Incident::MemberLoss,
    Incident::LatentError,
    Incident::LateWrite,
    Incident::Unplugged,
];

/// Deaths of the daemon alone are rarer than crashes, and drawn from a stream of their own.
fn hits_of_deaths() -> u64 {
    deep(1, 3)
}

const HOSTINGS: [Hosting; 3] = [Hosting::Filling, Hosting::Serving, Hosting::GoingHome];
fn hits_of_hosts() -> u64 {
    deep(1, 5)
}
const INCIDENTS_OF_HOSTS: [Incident; 6] = [
    Incident::Crash,
    Incident::CrashInRecovery,
    Incident::MemberLoss,
    Incident::HostLoss,
    Incident::LatentError,
    Incident::LateWrite,
];

const INCIDENTS_OF_GROWTHS: [Incident; 5] = [
    Incident::Crash,
    Incident::CrashInRecovery,
    Incident::MemberLoss,
    Incident::LatentError,
    Incident::LateWrite,
];

/// What only an array that grows has.
const MOVES: &[(&str, &str, &[&str])] = &[
    ("move", "queued", &["preparing"]),
    (
        "move",
        "preparing",
        &["preparing", "reading", "merging", "writing", "finished"],
    ),
    (
        "move",
        "reading",
        &["recovering", "combining", "merging", "finished"],
    ),
    ("move", "recovering", &["merging"]),
    ("move", "combining", &["merging"]),
    ("move", "merging", &["writing", "finished"]),
    ("move", "writing", &["preparing", "finished"]),
];

/// And one that keeps the plain layout.
const RESHAPES: &[(&str, &str, &[&str])] = &[
    ("reshape", "queued", &["preparing"]),
    ("reshape", "preparing", &["reading", "writing"]),
    (
        "reshape",
        "reading",
        &["reading", "recovering", "combining", "writing", "finished"],
    ),
    (
        "reshape",
        "recovering",
        &["reading", "combining", "writing"],
    ),
    ("reshape", "combining", &["writing"]),
    ("reshape", "writing", &["preparing", "finished"]),
];

/// And may have: scripts lose what is being moved.
const RARE_MOVES: &[(&str, &str, &[&str])] = &[
    ("move", "preparing", &["combining"]),
    ("move", "reading", &["preparing", "reading"]),
    ("move", "recovering", &["combining", "finished"]),
    ("move", "combining", &["writing", "finished"]),
    ("move", "merging", &["merging", "reading"]),
    ("reshape", "preparing", &["finished"]),
    ("reshape", "reading", &["preparing"]),
    ("reshape", "recovering", &["preparing", "finished"]),
];

/// And plots that must have come to their end so often.
const PLOTS: [&str; 3] = [HOSTS_BACK, PLACES_LINGERED, PLACES_NEEDED];

/// Kind, from, and where to: each must be hit.
const TRANSITIONS: &[(&str, &str, &[&str])] = &[
    ("write", "queued", &["preparing"]),
    (
        "write",
        "preparing",
        &[
            "queued",
            "preparing",
            "reading",
            "combining",
            "logging",
            "writing",
            "finished",
        ],
    ),
    (
        "write",
        "reading",
        &[
            "preparing",
            "reading",
            "recovering",
            "merging",
            "combining",
            "logging",
            "writing",
            "finished",
        ],
    ),
    ("write", "recovering", &["merging", "combining", "finished"]),
    (
        "write",
        "merging",
        &[
            "reading",
            "recovering",
            "combining",
            "logging",
            "writing",
            "finished",
        ],
    ),
    (
        "write",
        "combining",
        &[
            "preparing",
            "checksumming",
            "logging",
            "writing",
            "finished",
        ],
    ),
    (
        "write",
        "checksumming",
        &["preparing", "logging", "writing", "finished"],
    ),
    (
        "write",
        "logging",
        &["preparing", "logging", "writing", "finished"],
    ),
    ("write", "writing", &["preparing", "finished"]),
    ("read", "queued", &["preparing"]),
    ("read", "preparing", &["preparing", "reading", "finished"]),
    (
        "read",
        "reading",
        &[
            "preparing",
            "reading",
            "recovering",
            "delivering",
            "finished",
        ],
    ),
    ("read", "recovering", &["delivering"]),
    ("read", "writing", &["preparing", "finished"]),
    ("read", "delivering", &["preparing", "writing", "finished"]),
    ("fill", "queued", &["preparing"]),
    (
        "fill",
        "preparing",
        &["preparing", "reading", "combining", "finished"],
    ),
    (
        "fill",
        "reading",
        &["preparing", "reading", "recovering", "writing", "finished"],
    ),
    ("fill", "combining", &["writing"]),
    ("fill", "recovering", &["writing", "finished"]),
    ("fill", "writing", &["preparing", "finished"]),
    ("resync", "queued", &["preparing"]),
    (
        "resync",
        "preparing",
        &["preparing", "reading", "combining", "finished"],
    ),
    (
        "resync",
        "reading",
        &["preparing", "reading", "combining", "writing", "finished"],
    ),
    ("resync", "combining", &["writing", "comparing"]),
    ("resync", "comparing", &["writing"]),
    ("resync", "writing", &["preparing", "finished"]),
    ("scrub", "queued", &["preparing"]),
    ("scrub", "preparing", &["preparing", "reading", "finished"]),
    (
        "scrub",
        "reading",
        &[
            "preparing",
            "recovering",
            "combining",
            "comparing",
            "finished",
        ],
    ),
    ("scrub", "recovering", &["combining", "comparing"]),
    ("scrub", "combining", &["comparing"]),
    ("scrub", "writing", &["preparing", "finished"]),
    (
        "scrub",
        "comparing",
        &["preparing", "recovering", "writing", "finished"],
    ),
    ("replay", "queued", &["preparing"]),
    (
        "replay",
        "preparing",
        &["preparing", "reading", "combining", "finished"],
    ),
    (
        "replay",
        "reading",
        &["preparing", "reading", "combining", "checksumming"],
    ),
    ("replay", "combining", &["writing"]),
    ("replay", "checksumming", &["preparing"]),
    ("replay", "writing", &["preparing", "finished"]),
];

/// What may be met, and is so rarely that it need not be: a member that fails while a replay reads it, and what it had of
/// the row is told by no log.
const RARE: (&str, &str, &str) = ("replay", "reading", "finished");

/// What else must have happened so often.
const COUNTS: [&str; 4] = [HALTS, UNPLUGGED, STARTS_WITHOUT_SPACE, BLOCKS_CACHED];

/// What is missing from the table, and what is in it that should not be.
pub fn holes(coverage: &Coverage) -> Vec<String> {
    let mut holes = Vec::new();
    for task in TASKS {
        for phase in PHASES {
            for incident in INCIDENTS {
                let hits = coverage.met((task, phase), incident);
                if hits < hits_wanted() {
                    holes.push(format!("{task:?} {phase:?} x {incident:?}: {hits} hits"));
                }
            }
        }
    }
    for task in TASKS {
        for phase in PHASES {
            let hits = coverage.met((task, phase), Incident::Death);
            if hits < hits_of_deaths() {
                holes.push(format!("{task:?} {phase:?} x Death: {hits} hits"));
            }
        }
    }
    for what in COUNTS {
        let hits = coverage.total(what);
        if hits < hits_wanted() {
            holes.push(format!("{what}: {hits} hits"));
        }
    }
    holes.extend(slice_holes(coverage));
    holes
}

/// What arrays that grow have not met, by slices of this kind.
pub fn holes_of_growths(coverage: &Coverage, slices: &str) -> Vec<String> {
    let growths = MOVES.iter().chain(RESHAPES);
    let growths: Vec<_> = growths.filter(|row| row.0 == slices).collect();
    let mut holes = Vec::new();
    for phase in PHASES {
        for incident in INCIDENTS_OF_GROWTHS {
            let hits = coverage.met((TaskKind::Growth, phase), incident);
            if hits < hits_of_hosts() {
                holes.push(format!("growth {phase:?} x {incident:?}: {hits} hits"));
            }
        }
    }
    for (kind, from, tos) in &growths {
        for to in *tos {
            let hits = coverage.transition(kind, from, to);
            if hits == 0 {
                holes.push(format!("{kind}: {from} -> {to}: never"));
            }
        }
    }
    let listed = |kind, from, to| {
        let mut moves = growths.iter().copied().chain(RARE_MOVES);
        moves.any(|row| (row.0, row.1) == (kind, from) && row.2.contains(&to))
    };
    for (kind, from, to, hits) in coverage.transitions() {
        if kind == slices && hits > 0 && !listed(kind, from, to) {
            holes.push(format!(
                "{kind}: {from} -> {to} is not in the table: {hits} hits"
            ));
        }
    }
    holes
}

/// What skewed arrays with spare partitions have not met.
pub fn holes_of_hosts(coverage: &Coverage) -> Vec<String> {
    let mut holes = Vec::new();
    for hosting in HOSTINGS {
        for incident in INCIDENTS_OF_HOSTS {
            let hits = coverage.met_hosts(hosting, incident);
            if hits < hits_of_hosts() {
                holes.push(format!("hosts {hosting:?} x {incident:?}: {hits} hits"));
            }
        }
    }
    for what in PLOTS {
        let hits = coverage.total(what);
        if hits < hits_of_hosts() {
            holes.push(format!("{what}: {hits} hits"));
        }
    }
    holes
}

fn slice_holes(coverage: &Coverage) -> Vec<String> {
    let wanted: BTreeSet<_> = TRANSITIONS
        .iter()
        .flat_map(|(kind, from, tos)| tos.iter().map(move |to| (*kind, *from, *to)))
        .collect();
    let mut holes = Vec::new();
    for (kind, from, to) in &wanted {
        let hits = coverage.transition(kind, from, to);
        if hits < hits_wanted() {
            holes.push(format!("{kind}: {from} -> {to}: {hits} hits"));
        }
    }
    for (kind, from, to, hits) in coverage.transitions() {
        let known = (kind, from, to) == RARE || wanted.contains(&(kind, from, to));
        if hits > 0 && !known {
            holes.push(format!(
                "{kind}: {from} -> {to} is not in the table: {hits} hits"
            ));
        }
    }
    holes
}
