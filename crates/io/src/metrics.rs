//! Metrics in the Prometheus text format (version 0.0.4), as a function of a status and of what users read.
//!
//! Names follow the convention: `restripe_` first, the unit last, `_total` for what only grows. Every series carries
//! the array's name; states are one series a state with the value 0 or 1, so that alerts need no regular expressions.

use crate::control::{
    BufferView, CountersView, HeatView, LastScrubView, LendingView, MemberView, OverlayView,
    ScrubbedMemberView, StatusView, SurrogateView, TaskView, reason_word,
};
use restripe_array::report::WhyRefused;
use restripe_array::shown;
use std::fmt::{Display, Write};

const STATES: &[&str] = &[
    "starting",
    "healthy",
    "degraded",
    "failed",
    "read-only",
    "stopping",
    "stopped",
];
const MEMBER_STATES: &[&str] = &[
    "active",
    "rebuilding",
    "spare",
    "failed",
    "replaced",
    "foreign",
];
/// The order of the engine's counters by cause.
const CLASSES: &[&str] = &["user", "parity", "task", "metadata"];

/// The text of all metrics of one array.
pub fn render(status: &StatusView, heat: &HeatView) -> String {
    let mut text = Text {
        out: String::new(),
        array: escape(&status.name),
    };
    array(&mut text, status);
    requests(&mut text, status);
    device_operations(&mut text, status);
    paths(&mut text, status);
    members(&mut text, status);
    spindles(&mut text, status);
    tasks(&mut text, &status.tasks);
    text.gauge(
        "restripe_tasks_dropped",
        "Rebuilds and replaces that were dropped at the start because their targets were missing.",
        status.dropped_tasks.len(),
    );
    if let Some(last) = &status.last_scrub {
        last_scrub(&mut text, last);
    }
    zones(&mut text, heat);
    if let Some(surrogate) = &status.surrogate {
        of_surrogate(&mut text, surrogate);
    }
    if let Some(lends) = &status.lends {
        lent(&mut text, lends);
    }
    text.out
}

struct Text {
    out: String,
    array: String,
}

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.out, "{name}{{array=\"{}\"", self.array);
        for (label, text) in labels {
            let _ = write!(self.out, ",{label}=\"{}\"", escape(text));
        }
        let _ = writeln!(self.out, "}} {value}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
    }

    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "counter", help);
        self.sample(name, &[], value);
    }
}

/// A label's value: what it shows has backslash and quote escaped, and has no line feed any more.
fn escape(text: &str) -> String {
    let shown = shown(text).to_string();
    shown.replace('\\', "\\\\").replace('"', "\\\"")
}

fn array(text: &mut Text, status: &StatusView) {
    text.family(
        "restripe_state",
        "gauge",
        "1 for the current state of the array.",
    );
    for state in STATES {
        text.sample(
            "restripe_state",
            &[("state", state)],
            u8::from(status.state == *state),
        );
    }
    refusals(text, status);
    text.gauge(
        "restripe_volatile",
        "1 while a current member makes no write durable, and clients are offered neither FLUSH nor FUA.",
        u8::from(status.volatile),
    );
    text.gauge(
        "restripe_size_bytes",
        "Usable bytes of the array.",
        status.size_bytes,
    );
    text.gauge(
        "restripe_generation",
        "Generation of the metadata.",
        status.generation,
    );
    text.gauge(
        "restripe_lost_bytes",
        "Bytes that could not be recovered from redundancy.",
        status.lost_bytes,
    );
    text.gauge(
        "restripe_in_doubt_bytes",
        "Upper bound of the bytes that are valid on primary copies only, until a resync has passed them.",
        status.in_doubt_bytes,
    );
}

/// Why writes are refused, and by which members.
fn refusals(text: &mut Text, status: &StatusView) {
    let refusal = status.refuses_writes.as_ref();
    let name = "restripe_writes_refused";
    text.family(name, "gauge", "1 for the reason why writes are refused.");
    for why in WhyRefused::ALL {
        let reason = reason_word(why);
        let is = refusal.is_some_and(|one| one.reason == reason);
        text.sample(name, &[("reason", reason)], u8::from(is));
    }
    let name = "restripe_writes_refused_by";
    text.family(
        name,
        "gauge",
        "1 for each member that causes refused writes.",
    );
    if let Some(refusal) = refusal {
        for member in &refusal.members {
            let labels = [("reason", refusal.reason.as_str()), ("member", member)];
            text.sample(name, &labels, 1);
        }
    }
}

fn requests(text: &mut Text, status: &StatusView) {
    let c = &status.counters;
    text.family(
        "restripe_requests_total",
        "counter",
        "User requests; large trims and writes of zeros count once per piece.",
    );
    for (op, count) in [
        ("read", c.reads),
        ("write", c.writes),
        ("flush", c.flushes),
        ("trim", c.trims),
    ] {
        text.sample("restripe_requests_total", &[("op", op)], count);
    }
    text.family(
        "restripe_request_bytes_total",
        "counter",
        "Bytes that users read and wrote.",
    );
    for (op, bytes) in [("read", c.read_bytes), ("write", c.written_bytes)] {
        text.sample("restripe_request_bytes_total", &[("op", op)], bytes);
    }
}

fn device_operations(text: &mut Text, status: &StatusView) {
    text.family(
        "restripe_member_ios_total",
        "counter",
        "Operations on members, by cause.",
    );
    for (class, count) in CLASSES.iter().zip(status.counters.ios) {
        text.sample("restripe_member_ios_total", &[("class", class)], count);
    }
    text.family(
        "restripe_member_io_bytes_total",
        "counter",
        "Bytes moved to and from members, by cause.",
    );
    for (class, bytes) in CLASSES.iter().zip(status.counters.io_bytes) {
        text.sample("restripe_member_io_bytes_total", &[("class", class)], bytes);
    }
}

fn paths(text: &mut Text, status: &StatusView) {
    let c = &status.counters;
    let ways = [
        ("full-row", c.full_row_writes),
        ("read-modify", c.read_modify_writes),
        ("reconstruct", c.reconstruct_writes),
    ];
    text.family(
        "restripe_parity_writes_total",
        "counter",
        "Writes to rows with parity, by method.",
    );
    for (way, count) in ways {
        text.sample("restripe_parity_writes_total", &[("way", way)], count);
    }
    read_blocks(text, c);
    text.counter(
        "restripe_degraded_reads_total",
        "Reads reconstructed from redundancy.",
        c.degraded_reads,
    );
    text.counter(
        "restripe_repaired_sectors_total",
        "Sectors repaired from redundancy and rewritten.",
        c.repaired_sectors,
    );
}

/// What the requests generation ratio is made of; as a ratio of rates it answers why a degraded array is slow.
fn read_blocks(text: &mut Text, c: &CountersView) {
    let blocks = [
        (
            "restripe_read_blocks_asked_total",
            "Blocks of 4 KiB requested by reads, in written extents.",
            c.blocks_asked,
        ),
        (
            "restripe_read_blocks_cached_total",
            "Requested blocks that were in the read cache.",
            c.blocks_cached,
        ),
        (
            "restripe_read_blocks_fetched_total",
            "Blocks read from members for the others; divided by the requested blocks, the requests generation ratio (RGR).",
            c.blocks_fetched,
        ),
    ];
    for (name, help, value) in blocks {
        text.counter(name, help, value);
    }
}

fn members(text: &mut Text, status: &StatusView) {
    let members: Vec<_> = status.all_members().collect();
    text.family(
        "restripe_member_state",
        "gauge",
        "1 for the current state of a member.",
    );
    for member in &members {
        for state in MEMBER_STATES {
            let labels = [("member", member.path.as_str()), ("state", state)];
            text.sample(
                "restripe_member_state",
                &labels,
                u8::from(member.state == *state),
            );
        }
    }
    let mut mark = |name: &str, help: &str, is_marked: fn(&MemberView) -> bool| {
        text.family(name, "gauge", help);
        for member in &members {
            let marked = u8::from(is_marked(member));
            text.sample(name, &[("member", &member.path)], marked);
        }
    };
    mark(
        "restripe_member_volatile",
        "1 for a member that makes no write durable: it supports neither FLUSH nor FUA.",
        |member| member.volatile,
    );
    mark(
        "restripe_member_full",
        "1 for a member whose last write found no space.",
        |member| member.full,
    );
    text.family(
        "restripe_member_read_errors_total",
        "counter",
        "Read errors of a member.",
    );
    for member in &members {
        text.sample(
            "restripe_member_read_errors_total",
            &[("member", &member.path)],
            member.read_errors,
        );
    }
}

/// What spindles were at, and where there is a rating what that may have drawn.
fn spindles(text: &mut Text, status: &StatusView) {
    let told = status.disks().flat_map(|one| {
        let path = one.path.as_str();
        one.spindle.iter().map(move |spindle| (path, spindle))
    });
    let told: Vec<_> = told.collect();
    let name = "restripe_member_phase_seconds_total";
    text.family(name, "counter", "Time of a member's spindle in each phase.");
    for (member, spindle) in &told {
        for (phase, ms) in spindle.phases() {
            let seconds = format!("{}.{:03}", ms / 1000, ms % 1000);
            text.sample(name, &[("member", member), ("phase", phase)], seconds);
        }
    }
    let name = "restripe_member_starts_total";
    text.family(name, "counter", "Starts of a member's spindle.");
    for (member, spindle) in &told {
        text.sample(name, &[("member", member)], spindle.starts);
    }
    let Some(energy) = &status.energy else { return };
    let name = "restripe_member_joules_total";
    text.family(
        name,
        "counter",
        "Energy of a member, estimated from its rating.",
    );
    for (member, spindle) in &told {
        let joules = spindle.joules.unwrap_or(0);
        text.sample(name, &[("member", member)], joules);
    }
    text.counter(
        "restripe_joules_total",
        "Energy of all drives, each counted once, estimated from the rating.",
        energy.joules,
    );
}

fn tasks(text: &mut Text, tasks: &[TaskView]) {
    text.family(
        "restripe_task_done_ratio",
        "gauge",
        "Progress of a running task, 0 to 1.",
    );
    for task in tasks {
        text.sample(
            "restripe_task_done_ratio",
            &[("task", &task.kind)],
            ratio(task.rows_done, task.rows_total),
        );
    }
    text.family(
        "restripe_task_rate_bytes",
        "gauge",
        "Speed of a running task in bytes per second of one member.",
    );
    let told = tasks
        .iter()
        .filter_map(|task| Some((task, task.rate_bytes?)));
    for (task, rate) in told {
        text.sample("restripe_task_rate_bytes", &[("task", &task.kind)], rate);
    }
    text.family(
        "restripe_task_mismatched_rows",
        "gauge",
        "Rows in which the running scrub found cells that disagree or cannot be read.",
    );
    for task in tasks {
        text.sample(
            "restripe_task_mismatched_rows",
            &[("task", &task.kind)],
            task.mismatches,
        );
    }
}

/// The result of the scrub that runs or of the last one: it stays when the scrub has ended, and over restarts.
fn last_scrub(text: &mut Text, last: &LastScrubView) {
    let name = "restripe_last_scrub_state";
    text.family(name, "gauge", "1 for the mode and state of the last scrub.");
    for state in ["running", "completed", "cancelled"] {
        let labels = [("mode", last.mode.as_str()), ("state", state)];
        text.sample(name, &labels, u8::from(last.state == state));
    }
    let name = "restripe_last_scrub_rows";
    text.family(name, "gauge", "All rows, by result of the last scrub.");
    for (result, rows) in [
        ("compared", last.rows_compared),
        ("unwritten", last.rows_unwritten),
        ("not_compared", last.rows_not_compared),
        ("pending", last.rows_total.saturating_sub(last.rows_done)),
    ] {
        text.sample(name, &[("result", result)], rows);
    }
    let name = "restripe_last_scrub_mismatched_rows";
    let help = "Rows that the last scrub found wrong or unreadable, by outcome.";
    text.family(name, "gauge", help);
    for (outcome, rows) in [
        ("repaired", last.rows_repaired),
        ("in_sync_unverified", last.rows_in_sync_unverified),
        ("left", last.rows_left),
    ] {
        text.sample(name, &[("outcome", outcome)], rows);
    }
    for (name, help, count) in [
        (
            "restripe_last_scrub_wrong_rows",
            "Rows whose cells disagreed in the last scrub.",
            last.rows_wrong,
        ),
        (
            "restripe_last_scrub_unreadable_rows",
            "Rows with a read error on a member in the last scrub.",
            last.rows_unreadable,
        ),
        (
            "restripe_last_scrub_mismatched_bytes",
            "Bytes that the last scrub found wrong or unreadable.",
            last.mismatched_bytes,
        ),
    ] {
        text.gauge(name, help, count);
    }
    last_scrub_dates(text, last);
    last_scrub_members(text, &last.members);
}

fn last_scrub_dates(text: &mut Text, last: &LastScrubView) {
    let dates = [
        (
            "restripe_last_scrub_began_timestamp_seconds",
            "Start of the last scrub, in seconds since 1970.",
            last.began_at,
        ),
        (
            "restripe_last_scrub_ended_timestamp_seconds",
            "End of the last scrub, in seconds since 1970.",
            last.ended_at,
        ),
    ];
    for (name, help, date) in dates {
        if let Some(date) = date {
            text.gauge(name, help, date);
        }
    }
}

fn last_scrub_members(text: &mut Text, members: &[ScrubbedMemberView]) {
    let name = "restripe_last_scrub_member_rows";
    text.family(
        name,
        "gauge",
        "Rows of the last scrub with a finding on a member.",
    );
    for member in members {
        let results = [
            ("wrong", member.rows_wrong),
            ("unreadable", member.rows_unreadable),
        ];
        for (result, rows) in results {
            let labels = [
                ("member", member.path.as_deref().unwrap_or_default()),
                ("uuid", &member.uuid),
                ("result", result),
            ];
            text.sample(name, &labels, rows);
        }
    }
}

fn zones(text: &mut Text, heat: &HeatView) {
    text.gauge(
        "restripe_heat_zones",
        "Zones in which reads are counted.",
        heat.zones,
    );
    text.gauge(
        "restripe_heat_read_zones",
        "Zones with reads.",
        heat.zones_read,
    );
    text.gauge(
        "restripe_heat_hot_share_ratio",
        "Share of the reads in the hottest fifth of all zones; counts are halved after each epoch.",
        heat.hot_share,
    );
}

fn lent(text: &mut Text, lends: &LendingView) {
    text.gauge(
        "restripe_lent_bytes",
        "Bytes reserved for leases.",
        lends.bytes,
    );
    text.gauge(
        "restripe_lent_free_bytes",
        "Bytes reserved for leases that are not lent.",
        lends.free_bytes,
    );
    text.family("restripe_lease_bytes", "gauge", "Bytes of a lease.");
    for lease in &lends.leases {
        text.sample(
            "restripe_lease_bytes",
            &[("lease", &lease.name)],
            lease.bytes,
        );
    }
    let help = "1 if a client has the lease attached.";
    text.family("restripe_lease_in_use", "gauge", help);
    for lease in &lends.leases {
        let in_use = u8::from(lease.in_use);
        text.sample("restripe_lease_in_use", &[("lease", &lease.name)], in_use);
    }
}

const SURROGATE_STATES: &[&str] = &[
    "starting", "healthy", "degraded", "failed", "stopping", "stopped", "absent", "none",
];

fn of_surrogate(text: &mut Text, surrogate: &SurrogateView) {
    text.family(
        "restripe_surrogate_state",
        "gauge",
        "1 for the current state of the surrogate.",
    );
    for state in SURROGATE_STATES {
        let is = u8::from(surrogate.state == *state);
        text.sample("restripe_surrogate_state", &[("state", state)], is);
    }
    text.counter(
        "restripe_surrogate_repaired_sectors_total",
        "Sectors of the surrogate that were unreadable or wrong and were rewritten.",
        surrogate.repaired_sectors,
    );
    if let Some(buffer) = &surrogate.buffer {
        of_buffer(text, buffer);
    }
    if let Some(overlay) = &surrogate.overlay {
        away(text, overlay);
        redirected(text, overlay);
        slept(text, overlay);
        gathered(text, overlay);
    }
}

fn of_buffer(text: &mut Text, buffer: &BufferView) {
    text.gauge(
        "restripe_code_cache_buffer_used",
        "1 while flushes write to the code cache's NVRAM buffer.",
        u8::from(buffer.used),
    );
    text.gauge(
        "restripe_code_cache_buffer_records",
        "Records in the NVRAM buffer that are not yet durable in the log.",
        buffer.records,
    );
    text.counter(
        "restripe_code_cache_buffer_versions_total",
        "Versions of records that were written to the NVRAM buffer.",
        buffer.versions,
    );
}

fn away(text: &mut Text, overlay: &OverlayView) {
    text.gauge(
        "restripe_surrogate_away_bytes",
        "Bytes whose only current copy is in the surrogate.",
        overlay.away_bytes,
    );
    text.gauge(
        "restripe_surrogate_ahead_bytes",
        "Bytes that are current on primary copies and not on secondary copies.",
        overlay.ahead_bytes,
    );
    text.gauge(
        "restripe_surrogate_exposed_bytes",
        "Bytes whose only current copy is a primary copy.",
        overlay.exposed_bytes,
    );
    text.gauge(
        "restripe_surrogate_clean_bytes",
        "Bytes of cached copies in the surrogate, which may be dropped.",
        overlay.clean_bytes,
    );
    text.gauge(
        "restripe_surrogate_log_bytes",
        "Size of the surrogate's log in bytes.",
        overlay.log_bytes,
    );
    text.gauge(
        "restripe_surrogate_extents",
        "Extents in the map from the array to the log.",
        overlay.extents,
    );
    text.gauge(
        "restripe_surrogate_extents_max",
        "Maximum number of extents in this map.",
        overlay.extents_max,
    );
    text.gauge(
        "restripe_surrogate_going_home",
        "1 while a destage runs.",
        u8::from(overlay.going_home),
    );
    text.gauge(
        "restripe_surrogate_broken",
        "1 if the log failed.",
        u8::from(overlay.broken),
    );
}

fn redirected(text: &mut Text, overlay: &OverlayView) {
    let counters = [
        (
            "restripe_surrogate_redirected_writes_total",
            "User writes that were redirected to the surrogate.",
            overlay.redirected_writes,
        ),
        (
            "restripe_surrogate_log_reads_total",
            "User reads served from the surrogate only.",
            overlay.log_reads,
        ),
        (
            "restripe_surrogate_split_reads_total",
            "User reads served from the surrogate and the main set.",
            overlay.split_reads,
        ),
        (
            "restripe_surrogate_home_bytes_total",
            "Bytes that were destaged to the main set.",
            overlay.home_bytes,
        ),
        (
            "restripe_surrogate_clean_copies_total",
            "Cached copies that were made of data in the main set.",
            overlay.clean_copies,
        ),
    ];
    for (name, help, value) in counters {
        text.counter(name, help, value);
    }
}

/// What only an array has whose every write is redirected, at all times, so that mirrors may sleep.
fn slept(text: &mut Text, overlay: &OverlayView) {
    if !["reraid", "graid", "eraid"].contains(&overlay.redirect.as_str()) {
        return;
    }
    text.gauge(
        "restripe_code_cache_mirrors_asleep",
        "Mirrors in standby.",
        overlay.mirrors_asleep,
    );
    let budget = [
        (
            "restripe_code_cache_starts_a_day_max",
            "Maximum spin-downs of mirrors per day.",
            overlay.starts_a_day_max,
        ),
        (
            "restripe_code_cache_starts_left",
            "Spin-downs that are left in this budget now.",
            overlay.starts_left,
        ),
    ];
    for (name, help, value) in budget {
        if let Some(value) = value {
            text.gauge(name, help, value);
        }
    }
    let counters = [
        (
            "restripe_code_cache_rests_total",
            "Spin-downs of mirrors.",
            overlay.rests,
        ),
        (
            "restripe_code_cache_destages_total",
            "Destages that completed.",
            overlay.destages,
        ),
    ];
    for (name, help, value) in counters {
        text.counter(name, help, value);
    }
}

/// What only an array with a code cache has.
fn gathered(text: &mut Text, overlay: &OverlayView) {
    if overlay.seals.is_empty() {
        return;
    }
    text.counter(
        "restripe_code_cache_cleanings_total",
        "Cleanings of the oldest segments of the log, which avoid a destage.",
        overlay.cleanings,
    );
    text.counter(
        "restripe_code_cache_moved_bytes_total",
        "Bytes that were moved by log cleaning.",
        overlay.moved_bytes,
    );
    let name = "restripe_code_cache_seals_total";
    text.family(
        name,
        "counter",
        "Records that were packed in memory and sealed, by cause.",
    );
    for (cause, count) in &overlay.seals {
        text.sample(name, &[("cause", cause)], count);
    }
}

/// Six decimals, by integers: the same text on every machine.
fn ratio(done: u64, total: u64) -> String {
    let millionths = u128::from(done.min(total)) * 1_000_000 / u128::from(total.max(1));
    format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000)
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
                None => assert!(
                    line.starts_with(&format!("{family}{{array=\"tank\"")),
                    "{line}"
                ),
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
            "restripe_surrogate_away_bytes{array=\"tank\"} 4096",
            "restripe_member_phase_seconds_total{array=\"tank\",member=\"a \\\"b\\\"\\\\\",phase=\"standby\"} 61.005",
            "restripe_member_starts_total{array=\"tank\",member=\"a \\\"b\\\"\\\\\"} 3",
            "restripe_member_joules_total{array=\"tank\",member=\"a \\\"b\\\"\\\\\"} 700",
            "restripe_joules_total{array=\"tank\"} 701",
            "restripe_code_cache_starts_left{array=\"tank\"} 25",
            "restripe_surrogate_redirected_writes_total{array=\"tank\"} 7",
            "restripe_code_cache_rests_total{array=\"tank\"} 2",
            "restripe_code_cache_seals_total{array=\"tank\",cause=\"flush\"} 5",
            "restripe_code_cache_cleanings_total{array=\"tank\"} 3",
            "restripe_code_cache_moved_bytes_total{array=\"tank\"} 8192",
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
                "restripe_code_cache_rests_total{array=\"tank\"} 2",
                "restripe_code_cache_mirrors_asleep{array=\"tank\"} 0",
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
