//! Metrics in the Prometheus text format (version 0.0.4), computed from a status and the heat of clients'
//! reads.
//!
//! Names follow the convention: `restripe_` first, the unit last, `_total` for counters. Every series has
//! the array's name. A state is one series for each value, with 0 or 1, so that alerts need no regular
//! expressions. Each table has the metrics of one part of the status, in the order of the text.

use crate::control::{
    BufferView, CountersView, EnergyView, HeatView, LastScrubView, LendingView, MemberView,
    OverlayView, SpindleView, StatusView, SurrogateView, TaskView,
};
use restripe_array::report::WhyRefused;
use restripe_array::shown;
use std::fmt::{Display, Write};

const STATES: &str = "starting healthy degraded failed read-only stopping stopped";
const MEMBER_STATES: &str = "active rebuilding spare failed replaced foreign";
const SURROGATE_STATES: &str = "starting healthy degraded failed stopping stopped absent none";
/// The order of the engine's counters by cause.
const CLASSES: [&str; 4] = ["user", "parity", "task", "metadata"];

/// The text of all metrics of one array.
pub fn render(status: &StatusView, heat: &HeatView) -> String {
    let mut text = Text {
        out: String::new(),
        array: escape(&status.name),
    };
    let surrogate = status.surrogate.as_deref();
    let overlay = surrogate.and_then(|one| one.overlay.as_ref());
    // With every write redirected, at all times, mirrors may sleep.
    let sleeps = |one: &&OverlayView| ["reraid", "graid", "eraid"].contains(&&*one.redirect);
    text.all(ARRAY, Some(status));
    text.all(COUNTERS, Some(&status.counters));
    text.all(MEMBERS, Some(status));
    text.all(MEMBERS_ENERGY, status.energy.is_some().then_some(status));
    text.all(ENERGY, status.energy.as_ref());
    text.all(TASKS, Some(status));
    text.all(LAST_SCRUB, status.last_scrub.as_ref());
    text.all(HEAT, Some(heat));
    text.all(SURROGATE, surrogate);
    text.all(BUFFER, surrogate.and_then(|one| one.buffer.as_ref()));
    text.all(OVERLAY, overlay);
    text.all(STANDBY, overlay.filter(sleeps));
    text.all(CODE_CACHE, overlay.filter(|one| !one.seals.is_empty()));
    text.all(LENDING, status.lends.as_ref());
    text.out
}

/// A metric of a part of the status.
struct Family<T> {
    name: &'static str,
    help: &'static str,
    samples: fn(&T, &mut Samples<'_>),
}

/// A table of metrics of a part of the status: name, help, samples. A field in parentheses is the sample.
macro_rules! metrics {
    ($table:ident: $part:ty { $($name:ident $(($field:ident))? $help:literal $(= $samples:expr)?;)+ }) => {
        const $table: &[Family<$part>] = &[$(Family {
            name: stringify!($name), help: $help, samples: metrics!($($field)? $(= $samples)?),
        }),+];
    };
    ($field:ident) => { |part, to| to.one(part.$field) };
    (= $samples:expr) => { $samples };
}

metrics! { ARRAY: StatusView {
    restripe_state "1 for the current state of the array."
        = |s, to| to.states(&[], STATES, &s.state);
    restripe_writes_refused "1 for the reason why writes are refused."
        = |s, to| to.each("reason", WhyRefused::ALL.map(WhyRefused::name).map(|reason| {
            let refusal = s.refuses_writes.as_ref();
            (reason, u8::from(refusal.is_some_and(|one| one.reason == reason)))
        }));
    restripe_writes_refused_by "1 for each member that causes refused writes."
        = |s, to| if let Some(refusal) = &s.refuses_writes {
            for member in &refusal.members {
                to.put(&[("reason", &refusal.reason), ("member", member)], 1);
            }
        };
    restripe_volatile
        "1 while a current member makes no write durable, and clients are offered neither FLUSH nor FUA."
        = |s, to| to.flag(s.volatile);
    restripe_size_bytes(size_bytes) "Usable bytes of the array.";
    restripe_generation(generation) "Generation of the metadata.";
    restripe_lost_bytes(lost_bytes) "Bytes that could not be recovered from redundancy.";
    restripe_dirty_region_bytes
        "Upper bound of the bytes that are valid on primary copies only, until a resync has passed them."
        = |s, to| to.one(s.in_doubt_bytes);
}}

metrics! { COUNTERS: CountersView {
    restripe_requests_total "User requests; large trims and writes of zeros count once per piece."
        = |c, to| to.each("op", [
            ("read", c.reads), ("write", c.writes), ("flush", c.flushes), ("trim", c.trims),
        ]);
    restripe_request_bytes_total "Bytes that users read and wrote."
        = |c, to| to.each("op", [("read", c.read_bytes), ("write", c.written_bytes)]);
    restripe_member_ios_total "Operations on members, by cause."
        = |c, to| to.each("class", CLASSES.into_iter().zip(c.ios));
    restripe_member_io_bytes_total "Bytes moved to and from members, by cause."
        = |c, to| to.each("class", CLASSES.into_iter().zip(c.io_bytes));
    restripe_parity_writes_total "Writes to rows with parity, by method."
        = |c, to| to.each("way", [
            ("full-row", c.full_row_writes),
            ("read-modify", c.read_modify_writes),
            ("reconstruct", c.reconstruct_writes),
        ]);
    // What the requests generation ratio is made of; a ratio of rates tells why a degraded array is slow.
    restripe_read_blocks_asked_total "Blocks of 4 KiB requested by reads, in written extents."
        = |c, to| to.one(c.blocks_asked);
    restripe_read_blocks_cached_total(blocks_cached) "Requested blocks that were in the read cache.";
    restripe_read_blocks_fetched_total "Blocks read from members for the others; divided by the requested blocks, the requests generation ratio (RGR)."
        = |c, to| to.one(c.blocks_fetched);
    restripe_degraded_reads_total(degraded_reads) "Reads reconstructed from redundancy.";
    restripe_repaired_sectors_total(repaired_sectors) "Sectors repaired from redundancy and rewritten.";
}}

metrics! { MEMBERS: StatusView {
    restripe_member_state "1 for the current state of a member."
        = |s, to| for member in s.all_members() {
            to.states(&[("member", &member.path)], MEMBER_STATES, &member.state);
        };
    restripe_member_volatile
        "1 for a member that makes no write durable: it supports neither FLUSH nor FUA."
        = |s, to| to.each("member", of_members(s, |one| u8::from(one.volatile)));
    restripe_member_full "1 for a member whose last write found no space."
        = |s, to| to.each("member", of_members(s, |one| u8::from(one.full)));
    restripe_member_read_errors_total "Read errors of a member."
        = |s, to| to.each("member", of_members(s, |one| one.read_errors));
    restripe_member_lost_errors_total
        "Read errors of a member at what no other member recovers, since the start: they never fail it."
        = |s, to| to.each("member", of_members(s, |one| one.lost_errors));
    restripe_member_phase_seconds_total "Time of a member's spindle in each phase."
        = |s, to| for (member, spindle) in spindles(s) {
            for (phase, ms) in spindle.phases() {
                let seconds = format!("{}.{:03}", ms / 1000, ms % 1000);
                to.put(&[("member", member), ("phase", phase)], seconds);
            }
        };
    restripe_member_starts_total "Starts of a member's spindle."
        = |s, to| to.each("member", spindles(s).map(|(member, one)| (member, one.starts)));
}}

metrics! { MEMBERS_ENERGY: StatusView {
    restripe_member_joules_total "Energy of a member, estimated from its rating."
        = |s, to| to.each("member", spindles(s).map(|(member, one)| (member, one.joules.unwrap_or(0))));
}}

metrics! { ENERGY: EnergyView {
    restripe_joules_total(joules) "Energy of all drives, each counted once, estimated from the rating.";
}}

metrics! { TASKS: StatusView {
    restripe_task_done_ratio "Progress of a running task, 0 to 1."
        = |s, to| to.each("task", of_tasks(s, |task| Some(ratio(task.rows_done, task.rows_total))));
    restripe_task_rate_bytes "Speed of a running task in bytes per second of one member."
        = |s, to| to.each("task", of_tasks(s, |task| task.rate_bytes));
    restripe_task_mismatched_rows
        "Rows in which the running scrub found cells that disagree or cannot be read."
        = |s, to| to.each("task", of_tasks(s, |task| Some(task.mismatches)));
    restripe_tasks_dropped
        "Rebuilds and replaces that were dropped at the start because their targets were missing."
        = |s, to| to.one(s.dropped_tasks.len());
}}

// The scrub that runs or the last one: its result stays when it has ended, and over restarts.
metrics! { LAST_SCRUB: LastScrubView {
    restripe_last_scrub_state "1 for the mode and state of the last scrub."
        = |l, to| to.states(&[("mode", &l.mode)], "running completed cancelled", &l.state);
    restripe_last_scrub_rows "All rows, by result of the last scrub."
        = |l, to| to.each("result", [
            ("compared", l.rows_compared),
            ("unwritten", l.rows_unwritten),
            ("not_compared", l.rows_not_compared),
            ("pending", l.rows_total.saturating_sub(l.rows_done)),
        ]);
    restripe_last_scrub_mismatched_rows
        "Rows that the last scrub found wrong or unreadable, by outcome."
        = |l, to| to.each("outcome", [
            ("repaired", l.rows_repaired),
            ("in_sync_unverified", l.rows_in_sync_unverified),
            ("left", l.rows_left),
        ]);
    restripe_last_scrub_wrong_rows(rows_wrong) "Rows whose cells disagreed in the last scrub.";
    restripe_last_scrub_unreadable_rows "Rows with a read error on a member in the last scrub."
        = |l, to| to.one(l.rows_unreadable);
    restripe_last_scrub_mismatched_bytes "Bytes that the last scrub found wrong or unreadable."
        = |l, to| to.one(l.mismatched_bytes);
    restripe_last_scrub_began_timestamp_seconds "Start of the last scrub, in seconds since 1970."
        = |l, to| to.maybe(l.began_at);
    restripe_last_scrub_ended_timestamp_seconds "End of the last scrub, in seconds since 1970."
        = |l, to| to.maybe(l.ended_at);
    restripe_last_scrub_member_rows "Rows of the last scrub with a finding on a member."
        = |l, to| for member in &l.members {
            let path = member.path.as_deref().unwrap_or_default();
            let results = [("wrong", member.rows_wrong), ("unreadable", member.rows_unreadable)];
            for (result, rows) in results {
                to.put(&[("member", path), ("uuid", &member.uuid), ("result", result)], rows);
            }
        };
}}

metrics! { HEAT: HeatView {
    restripe_heat_zones(zones) "Zones in which reads are counted.";
    restripe_heat_read_zones(zones_read) "Zones with reads.";
    restripe_heat_hot_share_ratio
        "Share of the reads in the hottest fifth of all zones; counts are halved after each epoch."
        = |h, to| to.one(h.hot_share);
}}

metrics! { SURROGATE: SurrogateView {
    restripe_surrogate_state "1 for the current state of the surrogate."
        = |s, to| to.states(&[], SURROGATE_STATES, &s.state);
    restripe_surrogate_repaired_sectors_total
        "Sectors of the surrogate that were unreadable or wrong and were rewritten."
        = |s, to| to.one(s.repaired_sectors);
}}

metrics! { BUFFER: BufferView {
    restripe_code_cache_nvram_used "1 while flushes write to the code cache's NVRAM buffer."
        = |b, to| to.flag(b.used);
    restripe_code_cache_nvram_records
        "Records in the NVRAM buffer that are not yet durable in the log."
        = |b, to| to.one(b.records);
    restripe_code_cache_nvram_versions_total
        "Versions of records that were written to the NVRAM buffer."
        = |b, to| to.one(b.versions);
}}

metrics! { OVERLAY: OverlayView {
    restripe_surrogate_redirected_bytes(away_bytes) "Bytes whose only current copy is in the surrogate.";
    restripe_surrogate_deferred_bytes
        "Bytes that are current on primary copies and not on secondary copies."
        = |o, to| to.one(o.ahead_bytes);
    restripe_surrogate_unprotected_bytes(exposed_bytes) "Bytes whose only current copy is a primary copy.";
    restripe_surrogate_cached_bytes
        "Bytes of cached copies in the surrogate, which may be dropped."
        = |o, to| to.one(o.clean_bytes);
    restripe_surrogate_log_bytes(log_bytes) "Size of the surrogate's log in bytes.";
    restripe_surrogate_extents(extents) "Extents in the map from the array to the log.";
    restripe_surrogate_extents_max(extents_max) "Maximum number of extents in this map.";
    restripe_surrogate_destaging "1 while a destage runs." = |o, to| to.flag(o.going_home);
    restripe_surrogate_log_failed "1 if the log failed." = |o, to| to.flag(o.broken);
    restripe_surrogate_redirected_writes_total "User writes that were redirected to the surrogate."
        = |o, to| to.one(o.redirected_writes);
    restripe_surrogate_log_reads_total(log_reads) "User reads served from the surrogate only.";
    restripe_surrogate_split_reads_total "User reads served from the surrogate and the main set."
        = |o, to| to.one(o.split_reads);
    restripe_surrogate_destaged_bytes_total(home_bytes) "Bytes that were destaged to the main set.";
    restripe_surrogate_cached_copies_total "Cached copies that were made of data in the main set."
        = |o, to| to.one(o.clean_copies);
}}

metrics! { STANDBY: OverlayView {
    restripe_code_cache_mirrors_standby(mirrors_asleep) "Mirrors in standby.";
    restripe_code_cache_spin_downs_per_day_max "Maximum spin-downs of mirrors per day."
        = |o, to| to.maybe(o.starts_a_day_max);
    restripe_code_cache_spin_downs_left "Spin-downs that are left in this budget now."
        = |o, to| to.maybe(o.starts_left);
    restripe_code_cache_spin_downs_total(rests) "Spin-downs of mirrors.";
    restripe_code_cache_destages_total(destages) "Destages that completed.";
}}

metrics! { CODE_CACHE: OverlayView {
    restripe_code_cache_cleanings_total
        "Cleanings of the oldest segments of the log, which avoid a destage."
        = |o, to| to.one(o.cleanings);
    restripe_code_cache_cleaned_bytes_total(moved_bytes) "Bytes that were moved by log cleaning.";
    restripe_code_cache_seals_total "Records that were packed in memory and sealed, by cause."
        = |o, to| to.each("cause", &o.seals);
}}

metrics! { LENDING: LendingView {
    restripe_lent_bytes(bytes) "Bytes reserved for leases.";
    restripe_lent_free_bytes(free_bytes) "Bytes reserved for leases that are not lent.";
    restripe_lease_bytes "Bytes of a lease."
        = |l, to| to.each("lease", l.leases.iter().map(|one| (&one.name, one.bytes)));
    restripe_lease_in_use "1 if a client has the lease attached."
        = |l, to| to.each("lease", l.leases.iter().map(|one| (&one.name, u8::from(one.in_use))));
}}

fn of_members<V>(
    status: &StatusView,
    value: fn(&MemberView) -> V,
) -> impl Iterator<Item = (&str, V)> {
    let members = status.all_members();
    members.map(move |member| (member.path.as_str(), value(member)))
}

fn of_tasks<V>(
    status: &StatusView,
    value: fn(&TaskView) -> Option<V>,
) -> impl Iterator<Item = (&str, V)> {
    let tasks = status.tasks.iter();
    tasks.filter_map(move |task| Some((task.kind.as_str(), value(task)?)))
}

/// What spindles were at, by member.
fn spindles(status: &StatusView) -> impl Iterator<Item = (&str, &SpindleView)> {
    let disks = status.disks();
    disks.filter_map(|one| Some((one.path.as_str(), one.spindle.as_ref()?)))
}

/// Six decimals, by integers: the same text on every machine.
fn ratio(done: u64, total: u64) -> String {
    let millionths = u128::from(done.min(total)) * 1_000_000 / u128::from(total.max(1));
    format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000)
}

struct Text {
    out: String,
    array: String,
}

impl Text {
    /// The metrics of a part, if the array has it.
    fn all<T>(&mut self, families: &[Family<T>], part: Option<&T>) {
        let Some(part) = part else { return };
        for family in families {
            let (name, help) = (family.name, family.help);
            let kind = match name.ends_with("_total") {
                true => "counter",
                false => "gauge",
            };
            let before = self.out.len();
            // Writing to a string cannot fail.
            let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
            let mut to = Samples {
                text: self,
                name,
                absent: false,
            };
            (family.samples)(part, &mut to);
            if to.absent {
                self.out.truncate(before);
            }
        }
    }
}

/// The samples of one metric.
struct Samples<'a> {
    text: &'a mut Text,
    name: &'static str,
    /// The array has no such value.
    absent: bool,
}

impl Samples<'_> {
    fn put(&mut self, labels: &[(&str, &str)], value: impl Display) {
        let Text { out, array } = self.text;
        let _ = write!(out, "{}{{array=\"{array}\"", self.name);
        for (label, text) in labels {
            let _ = write!(out, ",{label}=\"{}\"", escape(text));
        }
        let _ = writeln!(out, "}} {value}");
    }

    fn one(&mut self, value: impl Display) {
        self.put(&[], value);
    }

    fn flag(&mut self, value: bool) {
        self.one(u8::from(value));
    }

    /// Without a value the metric is left out.
    fn maybe(&mut self, value: Option<impl Display>) {
        match value {
            Some(value) => self.one(value),
            None => self.absent = true,
        }
    }

    fn each<K: AsRef<str>, V: Display>(
        &mut self,
        label: &str,
        values: impl IntoIterator<Item = (K, V)>,
    ) {
        for (text, value) in values {
            self.put(&[(label, text.as_ref())], value);
        }
    }

    /// One sample for each of these states, which is 1 for the present one.
    fn states(&mut self, labels: &[(&str, &str)], states: &str, present: &str) {
        for state in states.split(' ') {
            let labels = labels.iter().copied().chain([("state", state)]);
            let labels: Vec<_> = labels.collect();
            self.put(&labels, u8::from(state == present));
        }
    }
}

/// A label's value: what it shows has backslash and quote escaped, and has no line feed any more.
fn escape(text: &str) -> String {
    let shown = shown(text).to_string();
    shown.replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{EnergyView, LeaseView, SpindleView};

    fn status() -> StatusView {
        let mut status = StatusView {
            name: "tank".into(),
            state: "degraded".into(),
            ..StatusView::default()
        };
        status.counters.reads = 3;
        status.counters.ios = [1, 2, 3, 4];
        status.members.push(MemberView {
            volatile: true,
            full: false,
            path: "a \"b\"\\".into(),
            state: "active".into(),
            spindle: Some(SpindleView {
                standby_ms: 61_005,
                starts: 3,
                joules: Some(700),
                ..SpindleView::default()
            }),
            ..MemberView::default()
        });
        status.energy = Some(EnergyView {
            joules: 701,
            ..EnergyView::default()
        });
        let task = TaskView {
            kind: "rebuild".into(),
            rows_done: 1,
            rows_total: 3,
            ..TaskView::default()
        };
        status.tasks.push(task);
        status.surrogate = Some(Box::new(SurrogateView {
            state: "healthy".into(),
            overlay: Some(OverlayView {
                redirect: "reraid".into(),
                away_bytes: 4096,
                redirected_writes: 7,
                rests: 2,
                cleanings: 3,
                moved_bytes: 8192,
                starts_left: Some(25),
                seals: [("flush".into(), 5)].into(),
                ..OverlayView::default()
            }),
            ..SurrogateView::default()
        }));
        status.lends = Some(LendingView {
            bytes: 64,
            free_bytes: 16,
            leases: vec![LeaseView {
                name: "log".into(),
                bytes: 48,
                borrower_unknown: false,
                in_use: true,
                ..LeaseView::default()
            }],
            ..LendingView::default()
        });
        status
    }

    fn heat() -> HeatView {
        HeatView {
            zones: 10,
            zones_read: 4,
            hot_share: 0.75,
            ..HeatView::default()
        }
    }

    #[test]
    fn every_sample_has_its_family_and_its_array() {
        let text = render(&status(), &heat());
        let mut family = "";
        for line in text.lines() {
            match line.strip_prefix("# TYPE ") {
                Some(rest) => family = rest.split(' ').next().expect("a name"),
                None if line.starts_with('#') => {}
                None => {
                    let begin = format!("{family}{{array=\"tank\"");
                    assert!(line.starts_with(&begin), "{line}");
                }
            }
        }
    }

    #[test]
    fn values_are_where_they_belong() {
        let text = render(&status(), &heat());
        for line in [
            "restripe_state{array=\"tank\",state=\"degraded\"} 1",
            "restripe_state{array=\"tank\",state=\"healthy\"} 0",
            "restripe_requests_total{array=\"tank\",op=\"read\"} 3",
            "restripe_member_ios_total{array=\"tank\",class=\"metadata\"} 4",
            "restripe_member_state{array=\"tank\",member=\"a \\\"b\\\"\\\\\",state=\"active\"} 1",
            "restripe_member_volatile{array=\"tank\",member=\"a \\\"b\\\"\\\\\"} 1",
            "restripe_task_done_ratio{array=\"tank\",task=\"rebuild\"} 0.333333",
            "restripe_surrogate_state{array=\"tank\",state=\"healthy\"} 1",
            "restripe_surrogate_redirected_bytes{array=\"tank\"} 4096",
            "restripe_member_phase_seconds_total{array=\"tank\",member=\"a \\\"b\\\"\\\\\",phase=\"standby\"} 61.005",
            "restripe_member_starts_total{array=\"tank\",member=\"a \\\"b\\\"\\\\\"} 3",
            "restripe_member_joules_total{array=\"tank\",member=\"a \\\"b\\\"\\\\\"} 700",
            "restripe_joules_total{array=\"tank\"} 701",
            "restripe_code_cache_spin_downs_left{array=\"tank\"} 25",
            "restripe_surrogate_redirected_writes_total{array=\"tank\"} 7",
            "restripe_code_cache_spin_downs_total{array=\"tank\"} 2",
            "restripe_code_cache_seals_total{array=\"tank\",cause=\"flush\"} 5",
            "restripe_code_cache_cleanings_total{array=\"tank\"} 3",
            "restripe_code_cache_cleaned_bytes_total{array=\"tank\"} 8192",
            "restripe_lent_free_bytes{array=\"tank\"} 16",
            "restripe_lease_bytes{array=\"tank\",lease=\"log\"} 48",
            "restripe_lease_in_use{array=\"tank\",lease=\"log\"} 1",
            "restripe_heat_read_zones{array=\"tank\"} 4",
            "restripe_heat_hot_share_ratio{array=\"tank\"} 0.75",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
    }

    /// Mirrors sleep beside a log disk, and beside nothing, too; they have no records to seal, and others nothing of it all.
    #[test]
    fn whoever_redirects_every_write_tells_of_sleep() {
        let text = |redirect: &str| {
            let mut status = status();
            let surrogate = status.surrogate.as_mut().expect("it has one");
            surrogate.state = "none".into();
            let overlay = surrogate.overlay.as_mut().expect("it is served with it");
            overlay.redirect = redirect.into();
            overlay.seals.clear();
            render(&status, &heat())
        };
        for redirect in ["graid", "eraid"] {
            let text = text(redirect);
            for line in [
                "restripe_code_cache_spin_downs_total{array=\"tank\"} 2",
                "restripe_code_cache_mirrors_standby{array=\"tank\"} 0",
                "restripe_code_cache_destages_total{array=\"tank\"} 0",
                "restripe_surrogate_state{array=\"tank\",state=\"none\"} 1",
            ] {
                assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
            }
            assert!(!text.contains("seals_total"), "{text}");
        }
        assert!(!text("ido").contains("code_cache"));
    }
}
