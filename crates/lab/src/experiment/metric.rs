//! Numbers of a run by name, as scenarios, tables and figures name them.
//!
//! Of the run:
//!
//! - `rebuild_s`, `rebuild_share`, `utilisation`, `offered_per_s`, `capacity_per_s`
//! - `energy_kj`, `standby_share`, `spin_ups`
//! - `estimate_kj`: the energy that `status` would print, by the drive's rating and the times that the
//!   engine knows
//! - `turning_kj`: the energy without standby and without spindles that start, which papers leave out
//! - `starts_a_day`: of the drive that started most often
//!
//! Where a second member fails before the first is rebuilt:
//!
//! - `second_s`: when, from the rebuild's beginning
//! - `redundant_s`: from then until nothing is missing; none where the array halts
//! - `lost_mib`, `lost_share`: array data that is lost, in whole chunks, and as a share of all
//!
//! Of an array with a surrogate:
//!
//! - `reclaim_s`: from the rebuild's end until the destage was complete
//! - `map_extents`, `map_kib`, `heat_kib`, `clean_mib`: the maximum of each
//!
//! Of a code cache:
//!
//! - `destages`, `destage_share`: the share of the samples of its state, one a step
//! - `home_writes`, `home_write_kib`: destage writes, and their mean size
//! - `clusters_read`, `clusters_reread`: clusters read, and those of them read again
//! - `cleanings`, `moved_mib`
//!
//! Of a phase, as in `during.mean_ms`:
//!
//! - `mean_ms`, `p50_ms`, `p95_ms`, `p99_ms`, `max_ms`, `read_mean_ms`, `write_mean_ms`
//! - `rgr`: blocks read from members for each block that a read requested
//! - `cached_share`, `requests`, `per_s`, `mb_s`, `failed`, `held_share`, `busy_share`
//! - `ios_user`, `ios_parity`, `ios_rebuild`, `ios_metadata`
//! - `redirected_share`: redirected writes, and reads that the surrogate served alone, over all requests
//! - `write_share`, and `hit_share`: reads that the surrogate served alone, over all reads
//!
//! The phase `common` is the same time for all schemes, from the rebuild's beginning.

use super::cell::{AFTER, COMMON, DURING, PHASES};
use crate::replay::facts::{CAUSES, Energy, Log, Moved, Phase, Rebuild, SecondLoss};
use crate::replay::histogram::{self, Times};
use restripe_array::SECTOR_BYTES;

/// A phase in which more than this part of the requests waited for room is saturated: its times say how long it lasted.
pub const SATURATED_SHARE: f64 = 0.01;

/// A number of a run, of what its surrogate did, or of a phase: its name, and how it is found.
type Metric<T> = (&'static str, fn(&T) -> Option<f64>);

const RUN: &[Metric<Log>] = &[
    ("rebuild_s", |log| {
        let rebuild = log.rebuild?;
        Some((rebuild.to_ns? - rebuild.from_ns) as f64 / 1e9)
    }),
    ("rebuild_share", |log| {
        let rebuild = log.rebuild?;
        Some(rebuild.rows_done as f64 / rebuild.rows_total.max(1) as f64)
    }),
    ("offered_per_s", |log| Some(log.offered_milli as f64 / 1e3)),
    ("capacity_per_s", |log| {
        (log.capacity_milli > 0).then_some(log.capacity_milli as f64 / 1e3)
    }),
    ("energy_kj", |log| {
        Some(energy(log, Energy::total_uj)? / 1e9)
    }),
    ("estimate_kj", |log| {
        let estimate = energy(log, |one| one.estimate_uj)?;
        (estimate > 0.0).then_some(estimate / 1e9)
    }),
    ("turning_kj", |log| {
        Some(energy(log, Energy::turning_uj)? / 1e9)
    }),
    ("spin_ups", |log| energy(log, |one| one.spin_ups)),
    ("starts_a_day", |log| {
        log.energy.iter().map(Energy::starts_a_day).reduce(f64::max)
    }),
    ("standby_share", |log| {
        Some(energy(log, |one| one.standby_ns)? / energy(log, |one| one.total_ns)?.max(1.0))
    }),
];

const TWICE: &[Metric<(SecondLoss, Rebuild)>] = &[
    ("second_s", |(second, rebuild)| {
        Some((second.from_ns - rebuild.from_ns) as f64 / 1e9)
    }),
    ("redundant_s", |(second, _)| {
        Some((second.whole_ns? - second.from_ns) as f64 / 1e9)
    }),
    ("lost_mib", |(second, _)| {
        Some(kib(second.lost_bytes) / 1024.0)
    }),
    ("lost_share", |(second, _)| {
        share(second.lost_bytes, second.size_bytes)
    }),
];

const SURROGATE: &[Metric<Moved>] = &[
    ("reclaim_s", |moved| {
        Some((moved.home_ns? - moved.whole_ns?) as f64 / 1e9)
    }),
    ("map_extents", |moved| Some(moved.extents as f64)),
    ("map_kib", |moved| {
        Some(kib(moved.extents * moved.extent_bytes))
    }),
    ("heat_kib", |moved| Some(kib(moved.heat_bytes))),
    ("clean_mib", |moved| Some(kib(moved.clean_bytes) / 1024.0)),
    ("destages", |moved| Some(moved.destages as f64)),
    ("cleanings", |moved| Some(moved.cleanings as f64)),
    ("moved_mib", |moved| {
        Some(kib(moved.moved_sectors * SECTOR_BYTES) / 1024.0)
    }),
    ("home_writes", |moved| Some(moved.home_writes as f64)),
    ("home_write_kib", |moved| {
        Some(kib(moved.home_sectors * SECTOR_BYTES) / moved.home_writes.max(1) as f64)
    }),
    ("clusters_read", |moved| Some(moved.clusters_read as f64)),
    ("clusters_reread", |moved| {
        Some(moved.clusters_reread as f64)
    }),
    ("destage_share", |moved| {
        Some(moved.looks_home as f64 / moved.looks.max(1) as f64)
    }),
];

const PHASE: &[Metric<Phase>] = &[
    ("mean_ms", |phase| {
        milliseconds(&phase.times, |times| times.mean_ns)
    }),
    ("p50_ms", |phase| {
        milliseconds(&phase.times, |times| times.p50_ns)
    }),
    ("p95_ms", |phase| {
        milliseconds(&phase.times, |times| times.p95_ns)
    }),
    ("p99_ms", |phase| {
        milliseconds(&phase.times, |times| times.p99_ns)
    }),
    ("max_ms", |phase| {
        milliseconds(&phase.times, |times| times.max_ns)
    }),
    ("read_mean_ms", |phase| {
        milliseconds(&phase.read_times, |times| times.mean_ns)
    }),
    ("write_mean_ms", |phase| {
        milliseconds(&phase.write_times, |times| times.mean_ns)
    }),
    ("requests", |phase| Some(phase.times.count as f64)),
    ("per_s", |phase| {
        Some(phase.times.count as f64 / seconds(phase))
    }),
    ("mb_s", |phase| {
        Some(phase.bytes as f64 / 1e6 / seconds(phase))
    }),
    ("failed", |phase| Some(phase.failed as f64)),
    ("rgr", |phase| per_block(phase, 2)),
    ("cached_share", |phase| per_block(phase, 1)),
    ("redirected_share", |phase| {
        share(phase.redirected.iter().sum(), phase.times.count)
    }),
    ("write_share", |phase| {
        share(phase.write_times.count, phase.times.count)
    }),
    ("hit_share", |phase| {
        share(phase.redirected[1], phase.read_times.count)
    }),
    ("held_share", |phase| Some(held_share(phase))),
    ("busy_share", |phase| {
        let busy: u64 = phase.busy_ns.iter().sum();
        let members = phase.busy_ns.len().max(1) as f64;
        Some(busy as f64 / 1e9 / seconds(phase) / members)
    }),
];

/// `None`: the run has no such number: nothing was asked, the rebuild did not end, no such phase, no such name.
pub fn metric(log: &Log, name: &str) -> Option<f64> {
    match name.split_once('.') {
        Some((COMMON, name)) => of_phase(&common(log)?, name),
        Some((phase, name)) => of_phase(log.phase(phase)?, name),
        None => of_run(log, name),
    }
}

fn of_run(log: &Log, name: &str) -> Option<f64> {
    if let Some(value) = found(RUN, name) {
        return value(log);
    }
    if let Some(value) = found(TWICE, name) {
        return value(&(log.second?, log.rebuild?));
    }
    found(SURROGATE, name)?(&log.moved?)
}

fn of_phase(phase: &Phase, name: &str) -> Option<f64> {
    match found(PHASE, name) {
        Some(value) => value(phase),
        None => Some(phase.ios[cause(name)?] as f64),
    }
}

/// Whether a number is of less than a whole rebuild, since the rebuild took longer than `phases.rebuild_s`, or
/// of another time than `phases.common_s`, since the rebuild took longer than that.
/// What ends at the same time for all schemes is whole, and so is what does not depend on the rebuild's end.
pub fn cut(log: &Log, name: &str) -> bool {
    match name.split_once('.') {
        Some((COMMON, _)) => log.common_ns > 0 && !ends_in_common(log),
        Some((phase, _)) => [DURING, AFTER].contains(&phase) && log.is_cut(DURING),
        None if ENDS.contains(&name) => metric(log, name).is_none() && log.is_cut(DURING),
        None if ANYHOW.contains(&name) => false,
        None => is_cut(log) && !ends_in_common(log),
    }
}

/// Whether any number of a run may be cut.
pub fn is_cut(log: &Log) -> bool {
    let rebuilt = log.phase(DURING).is_some();
    log.is_cut(DURING) || (rebuilt && log.common_ns > 0 && !ends_in_common(log))
}

/// Whether a run ended exactly `common_ns` after its rebuild began, as all runs of its experiment are to.
fn ends_in_common(log: &Log) -> bool {
    let ended = log.phase(DURING).zip(log.phase(AFTER));
    let took = ended.map(|(during, after)| after.to_ns.saturating_sub(during.from_ns));
    log.common_ns > 0 && took == Some(log.common_ns)
}

/// Times until something ended: where they are known they are whole, although the rebuild was cut.
const ENDS: [&str; 3] = ["rebuild_s", "redundant_s", "reclaim_s"];

/// Numbers of the run that are whole even where the rebuild is not.
const ANYHOW: [&str; 6] = [
    "rebuild_share",
    "offered_per_s",
    "capacity_per_s",
    "second_s",
    "lost_mib",
    "lost_share",
];

/// Whether a name can be asked for at all.
pub fn known(name: &str) -> bool {
    match name.split_once('.') {
        Some((phase, name)) => {
            PHASES.contains(&phase) && (found(PHASE, name).is_some() || cause(name).is_some())
        }
        None => {
            let of_surrogate = found(SURROGATE, name).is_some();
            found(RUN, name).is_some() || found(TWICE, name).is_some() || of_surrogate
        }
    }
}

/// The names of all metrics, those of a phase as of `during`.
#[cfg(test)]
pub(crate) fn names() -> Vec<String> {
    let own = RUN.iter().map(|(name, _)| name.to_string());
    let twice = TWICE.iter().map(|(name, _)| name.to_string());
    let own = own.chain(twice);
    let surrogate = SURROGATE.iter().map(|(name, _)| name.to_string());
    let phase = PHASE.iter().map(|(name, _)| format!("{DURING}.{name}"));
    let causes = CAUSES.iter().map(|cause| format!("{DURING}.ios_{cause}"));
    own.chain(surrogate).chain(phase).chain(causes).collect()
}

fn found<T>(table: &[Metric<T>], name: &str) -> Option<fn(&T) -> Option<f64>> {
    let found = table.iter().find(|(one, _)| *one == name);
    found.map(|(_, value)| *value)
}

/// The cause of operations in a name like `ios_user`.
fn cause(name: &str) -> Option<usize> {
    let cause = name.strip_prefix("ios_")?;
    CAUSES.iter().position(|one| *one == cause)
}

/// The sum of a value of all drives.
fn energy(log: &Log, value: fn(&Energy) -> u64) -> Option<f64> {
    let sum: u64 = log.energy.iter().map(value).sum();
    (!log.energy.is_empty()).then_some(sum as f64)
}

fn kib(bytes: u64) -> f64 {
    bytes as f64 / 1024.0
}

fn seconds(phase: &Phase) -> f64 {
    phase.length_ns().max(1) as f64 / 1e9
}

fn milliseconds(times: &Times, value: fn(&Times) -> u64) -> Option<f64> {
    (times.count > 0).then(|| value(times) as f64 / 1e6)
}

/// The rebuild and what came after it, as one phase; `None` where they are not of the time that all have in
/// common.
fn common(log: &Log) -> Option<Phase> {
    let (during, after) = (log.phase(DURING)?, log.phase(AFTER)?);
    if !ends_in_common(log) {
        return None;
    }
    let histogram = histogram::merged(&during.histogram, &after.histogram);
    let sum = |a: &[u64], b: &[u64]| a.iter().zip(b).map(|(a, b)| a + b).collect::<Vec<u64>>();
    let labour = during.labour.iter().zip(&after.labour);
    let labour = labour.map(|(during, after)| during.sum(after));
    Some(Phase {
        name: COMMON.into(),
        from_ns: during.from_ns,
        to_ns: after.to_ns,
        times: histogram::both(&during.times, &after.times, &histogram),
        read_times: histogram::both(&during.read_times, &after.read_times, &[]),
        write_times: histogram::both(&during.write_times, &after.write_times, &[]),
        bytes: during.bytes + after.bytes,
        failed: during.failed + after.failed,
        held: during.held + after.held,
        busy_ns: sum(&during.busy_ns, &after.busy_ns),
        redirected: std::array::from_fn(|i| during.redirected[i] + after.redirected[i]),
        ios: std::array::from_fn(|i| during.ios[i] + after.ios[i]),
        io_bytes: std::array::from_fn(|i| during.io_bytes[i] + after.io_bytes[i]),
        read_blocks: std::array::from_fn(|i| during.read_blocks[i] + after.read_blocks[i]),
        histogram,
        moved_histogram: histogram::merged(&during.moved_histogram, &after.moved_histogram),
        labour: labour.collect(),
    })
}

/// Whether a phase was offered more than it could serve.
pub fn saturated(phase: &Phase) -> bool {
    held_share(phase) > SATURATED_SHARE
}

fn held_share(phase: &Phase) -> f64 {
    phase.held as f64 / (phase.times.count + phase.failed).max(1) as f64
}

/// One of [`Phase::read_blocks`] for each block that reads asked for.
fn per_block(phase: &Phase, which: usize) -> Option<f64> {
    let asked = phase.read_blocks[0];
    (asked > 0).then(|| phase.read_blocks[which] as f64 / asked as f64)
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_a_part_of_a_rebuild_is_known() {
        let phase = |name: &str, from_ns, to_ns| Phase {
            name: name.into(),
            from_ns,
            to_ns,
            ..Phase::default()
        };
        let log = |to_ns, second, common_ns| Log {
            phases: [("degraded", 0, 10), (DURING, 10, 90), (AFTER, 90, 100)]
                .map(|(name, from, to)| phase(name, from, to))
                .into(),
            rebuild: Some(Rebuild {
                from_ns: 10,
                to_ns,
                rows_done: 5,
                rows_total: 9,
            }),
            second,
            common_ns,
            ..Log::default()
        };
        let loss = |whole_ns, halted| {
            Some(SecondLoss {
                from_ns: 50,
                whole_ns,
                halted,
                ..SecondLoss::default()
            })
        };
        let names = |log: &Log| {
            let names = ["rebuild_s", "during.mean_ms", "after.per_s", "energy_kj"];
            names.map(|name| cut(log, name))
        };
        assert_eq!(names(&log(None, None, 0)), [true; 4]);
        assert_eq!(names(&log(Some(90), None, 0)), [false; 4]);
        // It ended later, in the phase after: its time is known, and the phases are cut all the same.
        assert_eq!(names(&log(Some(95), None, 0)), [false, true, true, true]);
        // The run ends after 90 from the rebuild's beginning at 10.
        assert_eq!(names(&log(Some(95), None, 90)), [false, true, true, false]);
        // The whole array after two failures is what counts; one that halts has no rebuild to end.
        assert_eq!(
            names(&log(Some(40), loss(None, false), 0)),
            [false, true, true, true]
        );
        assert_eq!(names(&log(Some(90), loss(Some(90), false), 0)), [false; 4]);
        assert_eq!(names(&log(None, loss(None, true), 0)), [false; 4]);
        assert_eq!(names(&Log::default()), [false; 4]);
        let unfinished = log(None, None, 0);
        for name in [
            "before.mean_ms",
            "degraded.mean_ms",
            "common.mean_ms",
            "rebuild_share",
        ] {
            assert!(!cut(&unfinished, name), "{name}");
        }
        // What ended in the phase after has its true time; what never did has none.
        for (whole_ns, is_cut) in [(Some(95), false), (None, true)] {
            let late = log(Some(40), loss(whole_ns, false), 0);
            assert!(cut(&late, "during.mean_ms"));
            assert_eq!(cut(&late, "redundant_s"), is_cut);
            let moved = |home_ns| {
                let others = Moved::default();
                let whole_ns = Some(92);
                Some(Moved {
                    whole_ns,
                    home_ns,
                    ..others
                })
            };
            let moved = moved(whole_ns);
            let late = Log {
                moved,
                ..log(Some(92), None, 0)
            };
            assert!(cut(&late, "map_extents"));
            assert_eq!(cut(&late, "reclaim_s"), is_cut);
        }
        // A run that ends at any other moment is not of the time that all have in common, be its rebuild whole or not.
        for to_ns in [None, Some(90), Some(95)] {
            for (common_ns, elsewhere) in [(89, true), (90, false), (91, true)] {
                let log = log(to_ns, None, common_ns);
                for name in ["energy_kj", "spin_ups", "common.mean_ms", "common.per_s"] {
                    assert_eq!(cut(&log, name), elsewhere, "{name}, {to_ns:?}, {common_ns}");
                }
                assert_eq!(common(&log).is_none(), elsewhere);
                assert_eq!(is_cut(&log), elsewhere || to_ns != Some(90));
            }
        }
    }

    #[test]
    fn numbers_are_found_by_name() {
        let phase = Phase {
            name: "during".into(),
            to_ns: 2_000_000_000,
            times: Times {
                count: 10,
                mean_ns: 3_000_000,
                ..Times::default()
            },
            held: 1,
            busy_ns: vec![1_000_000_000, 500_000_000],
            ios: [4, 3, 2, 1],
            ..Phase::default()
        };
        assert!(saturated(&phase));
        let log = Log {
            phases: vec![phase],
            rebuild: Some(Rebuild {
                from_ns: 1_000_000_000,
                to_ns: Some(4_000_000_000),
                rows_done: 5,
                rows_total: 5,
            }),
            ..Log::default()
        };
        for (name, value) in [
            ("rebuild_s", 3.0),
            ("during.mean_ms", 3.0),
            ("during.per_s", 5.0),
            ("during.busy_share", 0.375),
        ] {
            assert_eq!(metric(&log, name), Some(value), "{name}");
        }
        assert_eq!(metric(&log, "during.ios_rebuild"), Some(2.0));
        assert_eq!(metric(&log, "before.mean_ms"), None);
        assert!(known("during.p95_ms") && !known("during.p94_ms") && !known("speed"));
        assert!(!known("durng.p95_ms") && !known(".p95_ms") && known("common.ios_user"));
    }
}
