//! The result of a replay in sentences: the duration of the rebuild, and its effect on clients.

use super::facts::{Log, Phase};
use crate::experiment::metric::saturated;

/// The phase that the others are compared with.
const BEFORE: &str = "before";

/// `member_bytes` of set data were rebuilt, where there was a rebuild.
pub fn sentences(log: &Log, member_bytes: u64) -> Vec<String> {
    let mut all = Vec::new();
    all.extend(rebuild(log, member_bytes));
    all.extend(response(log, "Mean response", |phase| phase.times.mean_ns));
    all.extend(response(
        log,
        "One request in a hundred took over",
        |phase| phase.times.p99_ns,
    ));
    all.extend(log.phases.iter().filter_map(overrun));
    all.extend(silences(log));
    all
}

fn rebuild(log: &Log, member_bytes: u64) -> Option<String> {
    let rebuild = log.rebuild?;
    let seconds = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9;
    let Some(end) = rebuild.to_ns else {
        let last = log.phases.last();
        let last = last.map_or(rebuild.from_ns, |phase| phase.to_ns);
        let share = 100.0 * rebuild.rows_done as f64 / rebuild.rows_total.max(1) as f64;
        let after = seconds(rebuild.from_ns, last);
        return Some(format!(
            "The rebuild was at {share:.0}% after {after:.1} s, when the replay ended."
        ));
    };
    let took = seconds(rebuild.from_ns, end);
    let rate = member_bytes as f64 / 1e6 / took.max(1e-9);
    let speed = format!(
        "{} MiB of the new member at {rate:.1} MB/s",
        member_bytes >> 20
    );
    Some(format!("The rebuild took {took:.1} s: {speed}."))
}

/// A time by phase, and how many times that of the phase before the failure it is.
fn response(log: &Log, what: &str, of: fn(&Phase) -> u64) -> Option<String> {
    let asked = |phase: &&Phase| phase.times.count > 0;
    let first = log.phase(BEFORE).filter(asked).map(of);
    let told = |phase: &Phase| {
        let ms = of(phase) as f64 / 1e6;
        let times = first.filter(|_| phase.name != BEFORE);
        let times = times.map(|first| format!(" ({:.2} times)", ms * 1e6 / first.max(1) as f64));
        let (when, times) = (when(&phase.name), times.unwrap_or_default());
        format!("{ms:.2} ms {when}{times}")
    };
    let phases: Vec<String> = log.phases.iter().filter(asked).map(told).collect();
    (!phases.is_empty()).then(|| format!("{what}: {}.", phases.join(", ")))
}

fn when(phase: &str) -> String {
    match phase {
        "all" => "throughout".into(),
        "during" => "during the rebuild".into(),
        other => other.into(),
    }
}

fn overrun(phase: &Phase) -> Option<String> {
    let (when, held, count) = (when(&phase.name), phase.held, phase.times.count);
    let said = format!(
        "More was asked for than the array can do, {when}: {held} of {count} requests found no room at once, so times there \
         say how long it lasted."
    );
    saturated(phase).then_some(said)
}

/// Phases in which nothing was answered: lulls, or what the trace is too short for.
fn silences(log: &Log) -> Vec<String> {
    let silent = |phase: &Phase| phase.times.count + phase.failed == 0;
    let last = log.phases.iter().rposition(|phase| !silent(phase));
    let told = |(index, phase): (usize, &Phase)| {
        let why = match last.is_some_and(|last| index < last) {
            true => "",
            false => ": the trace is too short for it",
        };
        let when = when(&phase.name);
        silent(phase).then(|| format!("Nobody asked for anything {when}{why}."))
    };
    log.phases.iter().enumerate().filter_map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::super::facts::Rebuild;
    use super::super::histogram::Times;
    use super::*;

    fn phase(name: &str, count: u64, ms: u64) -> Phase {
        Phase {
            name: name.into(),
            times: Times {
                count,
                mean_ns: ms * 1_000_000,
                p99_ns: ms * 4_000_000,
                ..Times::default()
            },
            to_ns: 9_000_000_000,
            ..Phase::default()
        }
    }

    #[test]
    fn a_rebuild_and_what_it_did_are_told() {
        let mut log = Log {
            phases: vec![phase("before", 9, 10), phase("during", 9, 25)],
            rebuild: Some(Rebuild {
                from_ns: 1_000_000_000,
                to_ns: Some(5_000_000_000),
                rows_done: 8,
                rows_total: 8,
            }),
            ..Log::default()
        };
        assert_eq!(
            sentences(&log, 100 << 20),
            [
                "The rebuild took 4.0 s: 100 MiB of the new member at 26.2 MB/s.",
                "Mean response: 10.00 ms before, 25.00 ms during the rebuild (2.50 times).",
                "One request in a hundred took over: 40.00 ms before, 100.00 ms during the rebuild (2.50 times).",
            ]
        );
        log.phases[1].held = 5;
        log.phases.push(phase("after", 0, 0));
        log.rebuild.as_mut().expect("it is there").to_ns = None;
        let all = sentences(&log, 100 << 20);
        assert!(all[0].contains("at 100% after 8.0 s"), "{all:?}");
        assert!(all[3].starts_with("More was asked for"), "{all:?}");
        let silent = all[4].starts_with("Nobody asked for anything after: the trace");
        assert!(silent, "{all:?}");
        log.phases.push(phase("later", 1, 1));
        let all = sentences(&log, 100 << 20);
        assert_eq!(all[4], "Nobody asked for anything after.");
    }

    #[test]
    fn without_phases_only_what_is_known_is_told() {
        let log = Log {
            phases: vec![phase("all", 9, 10)],
            ..Log::default()
        };
        let all = sentences(&log, 0);
        assert_eq!(all[0], "Mean response: 10.00 ms throughout.");
        assert_eq!(all.len(), 2);
    }
}
