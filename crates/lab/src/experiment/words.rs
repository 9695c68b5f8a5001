//! What metrics and parameters are called in figures and pages: words and units, one table for each.

use super::cell::{AFTER, BEFORE, COMMON, DEGRADED, DURING, WARM_UP};
use super::value::Value;

/// A name, its words, and its unit; a unit of `%` means that the number is a share, times 100.
type Word = (&'static str, &'static str, &'static str);

/// Of a run, as [`super::metric`] names them; `{task}` is the rebuild, the resync, the growth.
const RUN: &[Word] = &[
    ("rebuild_s", "{task} time", "s"),
    ("rebuild_share", "share of the {task} that was done", "%"),
    ("offered_per_s", "offered load", "requests/s"),
    (
        "capacity_per_s",
        "capacity of the degraded array",
        "requests/s",
    ),
    ("energy_kj", "energy of all drives", "kJ"),
    (
        "estimate_kj",
        "energy of all drives, estimated as `status` does",
        "kJ",
    ),
    (
        "turning_kj",
        "energy without standby and spindle starts",
        "kJ",
    ),
    ("spin_ups", "spindle starts", ""),
    (
        "starts_a_day",
        "spindle starts a day, of the drive with the most",
        "",
    ),
    ("standby_share", "share of time in standby", "%"),
    (
        "reclaim_s",
        "time from the end of the {task} to the end of the destage",
        "s",
    ),
    (
        "second_s",
        "time from the start of the rebuild to the second failure",
        "s",
    ),
    (
        "redundant_s",
        "time from the second failure until nothing is missing",
        "s",
    ),
    ("lost_mib", "data lost by the second failure", "MiB"),
    (
        "lost_share",
        "share of data lost by the second failure",
        "%",
    ),
    ("map_extents", "most extents in the surrogate's map", ""),
    ("map_kib", "most memory of the surrogate's map", "KiB"),
    ("heat_kib", "memory of the read counts", "KiB"),
    ("clean_mib", "most clean copies on the surrogate", "MiB"),
    ("destages", "destages of the log", ""),
    ("cleanings", "cleanings of the log", ""),
    ("moved_mib", "data moved by cleaning", "MiB"),
    ("home_writes", "destage writes", ""),
    ("home_write_kib", "mean size of a destage write", "KiB"),
    ("clusters_read", "clusters read by the destage", ""),
    ("clusters_reread", "clusters read again by the destage", ""),
    ("destage_share", "share of time in a destage", "%"),
];

/// Of a phase.
const PHASE: &[Word] = &[
    ("mean_ms", "mean response", "ms"),
    ("p50_ms", "median response", "ms"),
    ("p95_ms", "95th percentile of response", "ms"),
    ("p99_ms", "99th percentile of response", "ms"),
    ("max_ms", "longest response", "ms"),
    ("read_mean_ms", "mean response of reads", "ms"),
    ("write_mean_ms", "mean response of writes", "ms"),
    ("requests", "requests", ""),
    ("per_s", "request rate", "requests/s"),
    ("mb_s", "throughput", "MB/s"),
    ("failed", "failed requests", ""),
    ("rgr", "member blocks read for each block requested", ""),
    (
        "cached_share",
        "share of blocks served by the read cache",
        "%",
    ),
    (
        "redirected_share",
        "share of requests moved to the surrogate",
        "%",
    ),
    ("write_share", "share of writes", "%"),
    (
        "hit_share",
        "share of reads served by the surrogate alone",
        "%",
    ),
    ("held_share", "share of requests that waited for room", "%"),
    ("busy_share", "time that members were busy", "%"),
    ("ios_user", "member operations for clients", ""),
    ("ios_parity", "member operations for parity", ""),
    ("ios_rebuild", "member operations for the {task}", ""),
    ("ios_metadata", "member operations for metadata", ""),
];

const PARAMETERS: &[Word] = &[
    ("array.level", "RAID level", ""),
    ("array.members", "number of members", ""),
    ("array.groups", "groups of the skewed array", ""),
    ("array.partitions", "partitions of each member", ""),
    (
        "array.spare_partitions",
        "spare partitions on each member",
        "",
    ),
    ("array.skew", "form of the array", ""),
    ("array.grown", "members as they were added", ""),
    ("array.copies", "copies of each chunk", ""),
    ("array.chunk_kib", "chunk size", "KiB"),
    ("array.member_mib", "size used of each member", "MiB"),
    ("array.write_hole", "protection against the write hole", ""),
    ("array.region_rows", "rows of a region", ""),
    (
        "array.regions",
        "number of regions, whatever the size (0: by rows)",
        "",
    ),
    ("array.drive", "drive model", ""),
    ("array.spares", "spares from the start", ""),
    ("array.spare_drive", "drive model of the spare", ""),
    ("array.schedule", "order of commands in a drive", ""),
    ("array.write_cache", "write cache of the drives", ""),
    (
        "array.standby_s",
        "time without commands before standby",
        "s",
    ),
    ("array.cache_mib", "size of the read cache", "MiB"),
    ("array.cache_policy", "eviction rule of the read cache", ""),
    ("array.surrogate", "drives of the surrogate", ""),
    ("array.surrogate_level", "level of the surrogate", ""),
    (
        "array.surrogate_link_mb_s",
        "rate of the link to the surrogate (0: local)",
        "MB/s",
    ),
    (
        "array.surrogate_round_trip_us",
        "round trip to the surrogate",
        "µs",
    ),
    (
        "array.code_cache_mib",
        "size of the code cache on each drive",
        "MiB",
    ),
    (
        "array.sleep_s",
        "time without commands before secondary copies spin down",
        "s",
    ),
    (
        "array.code_cache_memory_mib",
        "memory of the code cache",
        "MiB",
    ),
    (
        "array.code_cache_chunk_kib",
        "chunk size of the code cache (0: default)",
        "KiB",
    ),
    ("array.clean_log", "log cleaning", ""),
    ("array.destage_order", "order of the destage", ""),
    ("array.destage_memory_mib", "memory of the destage", "MiB"),
    ("workload.source", "workload", ""),
    ("workload.replicate", "what a seed changes of a trace", ""),
    ("workload.block_kib", "block size", "KiB"),
    (
        "workload.load",
        "offered load as a share of the degraded array's capacity",
        "%",
    ),
    ("workload.rate", "request rate", "requests/s"),
    (
        "workload.depth",
        "requests outstanding (0: at their own times)",
        "",
    ),
    (
        "workload.fill",
        "share of the array that the workload covers",
        "%",
    ),
    (
        "workload.fill_mib",
        "size of what the workload covers",
        "MiB",
    ),
    ("workload.write_share", "share of writes", "%"),
    ("rebuild.task", "task", ""),
    ("rebuild.throttle", "throttle of the rebuild", ""),
    ("rebuild.order", "order of the rebuild", ""),
    ("rebuild.redirect", "redirection to the surrogate", ""),
    ("rebuild.scheme", "rebuild scheme", ""),
    ("rebuild.second_member", "second member that fails", ""),
    (
        "rebuild.second_failure_share",
        "share rebuilt at the second failure",
        "%",
    ),
    ("rebuild.on_demand", "rebuild on demand", ""),
    ("rebuild.moves", "technique of the growth", ""),
    ("rebuild.zone_mib", "size of a zone", "MiB"),
    (
        "rebuild.epoch_s",
        "time after which read counts are halved",
        "s",
    ),
    ("rebuild.min_mb_s", "minimum rebuild rate", "MB/s"),
    ("rebuild.max_mb_s", "maximum rebuild rate", "MB/s"),
    ("rebuild.per_stream", "rates are for each stream", ""),
    ("phases.warm_up_s", "length of the warm-up", "s"),
    ("phases.before_s", "time before the failure", "s"),
    (
        "phases.degraded_s",
        "time between the failure and the rebuild",
        "s",
    ),
    (
        "phases.rebuild_s",
        "longest rebuild that is waited for",
        "s",
    ),
    ("phases.after_s", "time after the rebuild", "s"),
    ("phases.step_s", "step of a course over time", "s"),
    (
        "phases.common_s",
        "time from the start of the rebuild that all runs last",
        "s",
    ),
    (
        "capacity.depth",
        "requests outstanding while the capacity is measured",
        "",
    ),
    (
        "capacity.warm_up_s",
        "warm-up of the measurement of capacity",
        "s",
    ),
    (
        "capacity.measure_s",
        "length of the measurement of capacity",
        "s",
    ),
];

/// Values of parameters that have names of their own; the others stand for themselves.
const VALUES: &[(&str, &[(&str, &str)])] = &[
    ("workload.load", &[("-1", "own rate"), ("-1.0", "own rate")]),
    ("workload.rate", &[("0", "own rate"), ("0.0", "own rate")]),
    (
        "rebuild.scheme",
        &[
            ("pr", "PR"),
            ("pr-wide", "PR, wide array"),
            ("sor", "SOR"),
            ("dor", "DOR"),
            ("pro", "PRO"),
            ("ido-order", "IDO's order"),
            ("ido", "IDO"),
            ("workout", "WorkOut"),
            ("vdf", "VDF"),
        ],
    ),
    (
        "rebuild.order",
        &[
            ("pr", "PR"),
            ("sor", "SOR"),
            ("dor", "DOR"),
            ("pro", "PRO"),
            ("ido", "IDO"),
        ],
    ),
    (
        "rebuild.redirect",
        &[
            ("workout", "WorkOut"),
            ("vdf", "VDF"),
            ("ido", "IDO"),
            ("reraid", "RERAID"),
            ("graid", "GRAID"),
            ("eraid", "ERAID"),
        ],
    ),
    (
        "array.level",
        &[
            ("raid0", "RAID-0"),
            ("raid1", "RAID-1"),
            ("raid4", "RAID-4"),
            ("raid5", "RAID-5"),
            ("raid6", "RAID-6"),
            ("raid10", "RAID-10"),
        ],
    ),
    (
        "array.write_hole",
        &[
            ("ppl", "partial parity log"),
            ("bitmap", "write-intent bitmap"),
        ],
    ),
    ("array.standby_s", &[("0", "never")]),
    ("array.sleep_s", &[("-1", "never")]),
    ("workload.load", &[("-1", "by the request rate")]),
    ("workload.rate", &[("0", "the workload's own")]),
    ("workload.write_share", &[("-1", "the workload's own")]),
    ("array.skew", &[("flat", "not skewed")]),
];

/// What a number is called, and how it is shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Words {
    pub words: String,
    pub unit: &'static str,
}

impl Words {
    /// Of a metric; its own name if it has no words. `task` is what restores redundancy, as `rebuild.task`
    /// has it.
    pub(crate) fn of_metric(name: &str, task: &str) -> Words {
        let (phase, metric, table) = match name.split_once('.') {
            Some((phase, metric)) => (phase, metric, PHASE),
            None => ("", name, RUN),
        };
        let Some((_, words, unit)) = found(table, metric) else {
            return Words::bare(name);
        };
        let words = words.replace("{task}", task);
        Words {
            words: format!("{words}{}", when(phase, task)),
            unit,
        }
    }

    /// Of a parameter; its own name if it has no words.
    pub(crate) fn of_parameter(path: &str) -> Words {
        match found(PARAMETERS, path) {
            Some((_, words, unit)) => Words {
                words: (*words).into(),
                unit,
            },
            None => Words::bare(path),
        }
    }

    fn bare(name: &str) -> Words {
        Words {
            words: name.into(),
            unit: "",
        }
    }

    /// With the unit, as an axis or a column has it.
    pub(crate) fn with_unit(&self) -> String {
        match self.unit {
            "" => self.words.clone(),
            unit => format!("{}, {unit}", self.words),
        }
    }

    /// By how much a number of it is multiplied to be shown.
    pub(crate) fn factor(&self) -> f64 {
        if self.unit == "%" { 100.0 } else { 1.0 }
    }
}

fn found(table: &'static [Word], name: &str) -> Option<&'static Word> {
    table.iter().find(|(one, ..)| *one == name)
}

/// When a phase is, behind a metric's words.
fn when(phase: &str, task: &str) -> String {
    match phase {
        "" => String::new(),
        WARM_UP => " during the warm-up".into(),
        BEFORE if task == "rebuild" => " before the failure".into(),
        BEFORE => format!(" before the {task}"),
        DEGRADED => " while degraded".into(),
        DURING => format!(" during the {task}"),
        AFTER => format!(" after the {task}"),
        COMMON => " over the common time".into(),
        other => format!(" in the phase {other}"),
    }
}

/// A phase by itself, as a key has it.
pub(crate) fn phase(name: &str, task: &str) -> String {
    match name {
        WARM_UP | BEFORE | DEGRADED | DURING | AFTER | COMMON => {
            when(name, task).trim_start().into()
        }
        other => other.into(),
    }
}

/// What a table shows, times the factor of its unit: `0.5236 sat.` of a share is `52.36 sat.`.
pub(crate) fn scaled(shown: &str, words: &Words) -> String {
    let (number, rest) = shown.split_once(' ').unwrap_or((shown, ""));
    match number.parse::<f64>() {
        Ok(value) if words.factor() != 1.0 => {
            let value = super::outcome::short(value * words.factor());
            format!("{value} {rest}").trim_end().to_string()
        }
        _ => shown.to_string(),
    }
}

/// A parameter and its value, as short as can be understood.
pub(crate) fn at(path: &str, of: &Value) -> String {
    let words = Words::of_parameter(path).words;
    let words = words.split(" as a share").next().unwrap_or_default();
    let words = words.split(" (").next().unwrap_or_default();
    format!("{words} {}", value(path, of))
}

/// A parameter's value with its unit, as a key has it.
pub(crate) fn value(path: &str, value: &Value) -> String {
    match Words::of_parameter(path).unit {
        "" => bare_value(path, value),
        _ if named(path, value).is_some() => bare_value(path, value),
        "%" => format!("{}%", bare_value(path, value)),
        unit => format!("{} {unit}", bare_value(path, value)),
    }
}

/// A parameter's value without its unit, as below an axis that has it.
pub(crate) fn bare_value(path: &str, value: &Value) -> String {
    if let Some(name) = named(path, value) {
        return name.into();
    }
    match (value, value.number()) {
        (Value::Flag(true), _) => "yes".into(),
        (Value::Flag(false), _) => "no".into(),
        (_, Some(number)) => {
            let factor = Words::of_parameter(path).factor();
            crate::plot::scale::number(number * factor)
        }
        _ => value.to_string(),
    }
}

fn named(path: &str, value: &Value) -> Option<&'static str> {
    let (_, names) = VALUES.iter().find(|(one, _)| *one == path)?;
    let value = value.to_string();
    let found = names.iter().find(|(one, _)| *one == value);
    found.map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::super::cell::Settings;
    use super::super::metric;
    use super::super::parameters::Grouped;
    use super::*;

    #[test]
    fn every_metric_and_every_parameter_has_words() {
        for name in metric::names() {
            let words = Words::of_metric(&name, "rebuild");
            assert!(words.words != name, "{name} has no words in this file");
        }
        for path in Settings::all() {
            let words = Words::of_parameter(&path);
            assert!(words.words != path, "{path} has no words in this file");
        }
        let tables = [RUN, PHASE, PARAMETERS];
        for (name, words, _) in tables.into_iter().flatten() {
            let known = metric::known(name) || metric::known(&format!("during.{name}"));
            assert!(
                known || Settings::all().contains(&(*name).to_string()),
                "{name}"
            );
            assert!(!words.contains('_'), "{words}");
        }
    }

    #[test]
    fn words_say_when_and_of_what() {
        let words = |name| Words::of_metric(name, "rebuild").with_unit();
        assert_eq!(
            words("during.redirected_share"),
            "share of requests moved to the surrogate during the rebuild, %"
        );
        assert_eq!(
            words("before.p99_ms"),
            "99th percentile of response before the failure, ms"
        );
        assert_eq!(
            Words::of_metric("rebuild_s", "growth").with_unit(),
            "growth time, s"
        );
        let rate = Words::of_parameter("rebuild.min_mb_s");
        assert_eq!(rate.with_unit(), "minimum rebuild rate, MB/s");
    }

    #[test]
    fn values_have_units_and_names() {
        assert_eq!(
            value("rebuild.scheme", &Value::Text("workout".into())),
            "WorkOut"
        );
        assert_eq!(value("rebuild.min_mb_s", &Value::Whole(50)), "50 MB/s");
        assert_eq!(value("workload.load", &Value::Real(0.5)), "50%");
        assert_eq!(value("array.standby_s", &Value::Whole(0)), "never");
        assert_eq!(
            value("workload.source", &Value::Text("fin1".into())),
            "fin1"
        );
        assert_eq!(bare_value("workload.load", &Value::Real(0.3)), "30");
        assert_eq!(at("workload.load", &Value::Real(0.3)), "offered load 30%");
    }
}
