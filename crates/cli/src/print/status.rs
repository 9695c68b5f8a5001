//! An array on one screen, as `status` prints it.

use crate::print::journal::utc;
use crate::print::members::member_lines;
use crate::print::skew::skew_words;
use crate::print::terminal::{aim_line, pacing_line, task_line_at_slot};
use crate::print::{energy, leases, surrogate};
use crate::units::Size;
use restripe_array::layout::Skew;
use restripe_array::shown;
use restripe_io::control::{
    AttachedView, DroppedView, LastScrubView, LostView, MemberView, StatusView,
};
use std::fmt::Write;

/// The slots that no member serves, whether it is known or not.
pub(crate) fn vacant_slots(view: &StatusView) -> Vec<u16> {
    let served = |slot: &u16| {
        let here = |member: &MemberView| member.slot == Some(*slot) && member.state == "active";
        view.members.iter().any(here)
    };
    (0..view.slots).filter(|slot| !served(slot)).collect()
}

/// The screen.
pub(crate) fn text(view: &StatusView) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{}: {}", shown(&view.name), state(view));
    let _ = writeln!(out, "  {}", shape(view));
    let _ = writeln!(out, "  uuid {}, generation {}", view.uuid, view.generation);
    if let Some(attached) = &view.attached {
        let _ = writeln!(out, "  {}", attached_line(attached));
        if let Some(trouble) = &attached.trouble {
            let _ = writeln!(out, "    TROUBLE WITH THE DEVICE: {}", shown(trouble));
        }
    }
    if let Some(refusal) = &view.refuses_writes {
        let _ = writeln!(out, "  WRITES ARE REFUSED: {}", shown(&refusal.text));
        let _ = writeln!(out, "    {}", shown(&refusal.hint));
    }
    for task in &view.tasks {
        let _ = writeln!(out, "  {}", task_line_at_slot(task));
        let _ = writeln!(out, "    {}", pacing_line(task));
        if let Some(aim) = &task.aim {
            let _ = writeln!(out, "    {}", aim_line(aim));
        }
    }
    for dropped in &view.dropped_tasks {
        let _ = writeln!(out, "  {}", dropped_line(dropped, view));
    }
    if let Some(last) = &view.last_scrub {
        out.push_str(&scrub_lines(last));
    }
    if let Some(lends) = &view.lends {
        let _ = writeln!(out, "  {}", leases::line(lends));
    }
    if let Some(line) = reads_line(view) {
        let _ = writeln!(out, "  {line}");
    }
    for lost in &view.lost {
        let _ = writeln!(out, "  {}", lost_line(lost));
    }
    if view.in_doubt_bytes > 0 {
        let bytes = Size(view.in_doubt_bytes);
        let until = "are valid on one copy only, until the resync has passed them";
        let _ = writeln!(out, "  DIRTY: up to {bytes} {until}");
    }
    if view.volatile {
        let _ = writeln!(out, "  {}", volatile_line(view));
    }
    if let Some(surrogate) = &view.surrogate {
        out.push_str(&surrogate::text(surrogate));
    }
    out.push_str(&energy::text(view));
    out.push_str("  number  slot  state       read errors  member\n");
    for line in all_member_lines(view) {
        let _ = writeln!(out, "{line}");
    }
    out
}

/// The last scrub: when, how far, and what it found.
pub(crate) fn scrub_lines(last: &LastScrubView) -> String {
    let date = |date: Option<u64>| date.map_or("at an unknown date".into(), utc);
    let when = match (last.state.as_str(), last.ended_at) {
        ("running", _) => format!("started {}, not ended", date(last.began_at)),
        (_, None) => format!("started {}, ended at an unknown date", date(last.began_at)),
        (_, ended) => format!("started {}, ended {}", date(last.began_at), date(ended)),
    };
    let mut out = format!("  last scrub: {} {}, {when}\n", last.mode, last.state);
    for line in [last.text()].into_iter().chain(last.details()) {
        let _ = writeln!(out, "    {}", shown(&line));
    }
    out
}

/// The members for whose sake no flush is promised.
fn volatile_line(view: &StatusView) -> String {
    let volatile = |member: &&MemberView| {
        member.volatile && !matches!(&*member.state, "failed" | "replaced" | "foreign")
    };
    let members = view.all_members().filter(volatile);
    let paths: Vec<String> = members
        .map(|member| shown(&member.path).to_string())
        .collect();
    let paths = paths.join(", ");
    format!("VOLATILE: clients are offered neither FLUSH nor FUA: no write is durable on {paths}")
}

/// The array's, then its surrogate's, then its buffer's.
fn all_member_lines(view: &StatusView) -> Vec<String> {
    let mut lines = member_lines(&view.members, &view.missing_slots);
    let mut add = |members, missing, mark: &str| {
        let more = member_lines(members, missing).into_iter();
        lines.extend(more.map(|line| line + mark));
    };
    if let Some(set) = &view.surrogate {
        add(&set.members, &set.missing_slots, surrogate::MARK);
        if let Some(set) = &set.buffer {
            add(&set.members, &set.missing_slots, surrogate::BUFFER_MARK);
        }
    }
    lines
}

/// What reads cost the members, where it is not one for one: why a degraded array is slow, and what a cache spares it.
fn reads_line(view: &StatusView) -> Option<String> {
    let counters = &view.counters;
    let ratio = counters.requests_generation_ratio()?;
    (counters.blocks_fetched != counters.blocks_asked).then(|| {
        let cached = 100.0 * counters.blocks_cached as f64 / counters.blocks_asked as f64;
        format!("reads: {ratio:.2} blocks read from members per requested block (RGR), {cached:.1}% from the cache")
    })
}

/// The array's block device.
fn attached_line(attached: &AttachedView) -> String {
    let connections = match attached.connections {
        // With ublk there is one or none; what is wrong without it is said beneath.
        _ if attached.grace_seconds.is_none() => String::new(),
        1 => ", 1 connection".to_owned(),
        count => format!(", {count} connections"),
    };
    let mode = if attached.read_only {
        ", read-only"
    } else {
        ""
    };
    let AttachedView { device, link, .. } = attached;
    format!("attached as {device} ({link}){connections}{mode}")
}

/// A task that the start dropped, and what begins it anew.
fn dropped_line(dropped: &DroppedView, view: &StatusView) -> String {
    let (kind, slot, target) = (&dropped.kind, dropped.slot, &dropped.target);
    let (of, to) = match dropped.set.as_str() {
        "array" => (String::new(), String::new()),
        other => (format!(" of the {other}"), format!(" --to-{other}")),
    };
    let what = format!("{kind} of slot {slot}{of}");
    let name = shown(&view.name);
    if dropped.waits {
        return format!("NOT STARTED: {what}: its target, member {target}, is missing");
    }
    let anew = match kind.as_str() {
        "replace" => format!("restripe replace {name} OLD NEW"),
        _ => format!("restripe add {name} DEVICE{to}"),
    };
    format!(
        "DROPPED: {what}: its target, member {target}, was missing at a start; restart it with: {anew}"
    )
}

/// One part of the array that is lost, exactly.
pub(crate) fn lost_line(lost: &LostView) -> String {
    let (first, bytes) = (lost.offset_bytes, lost.bytes);
    let last = first + bytes.saturating_sub(1);
    format!("LOST: bytes {first} to {last} ({bytes} bytes)")
}

fn state(view: &StatusView) -> String {
    let troubles = view.surrogate.as_deref().map(surrogate::troubles);
    let troubles = troubles.unwrap_or_default();
    let mut words = vec![view.state.clone()];
    words.extend(troubles);
    if view.read_only && view.state != "read-only" {
        words.push("read-only".into());
    }
    if view.volatile {
        words.push("volatile".into());
    }
    if view.lost_bytes > 0 {
        words.push(format!("{} lost", Size(view.lost_bytes)));
    }
    if view.in_doubt_bytes > 0 {
        words.push(format!("{} dirty", Size(view.in_doubt_bytes)));
    }
    words.join(", ")
}

fn shape(view: &StatusView) -> String {
    let rotation = if view.rotation.is_empty() {
        String::new()
    } else {
        format!(" {}", view.rotation)
    };
    let chunk = Size(view.chunk_bytes);
    format!(
        "{}{rotation}, {} slots, {}chunk {chunk}, {} usable",
        view.level,
        view.slots,
        skew_words(view.slots, skew_of(view)),
        Size(view.size_bytes)
    )
}

fn skew_of(view: &StatusView) -> Option<Skew> {
    let (groups, partitions) = (view.groups?, view.partitions?);
    Some(Skew { groups, partitions })
}

#[cfg(test)]
mod tests {
    use super::*;
    use restripe_io::control::TaskView;

    #[test]
    fn a_status_fits_a_screen_and_says_what_is_wrong() {
        let member = |member, slot, state: &str| MemberView {
            volatile: false,
            full: false,
            member,
            path: format!("{member}.img"),
            uuid: String::new(),
            slot,
            hosts: Vec::new(),
            state: state.into(),
            read_errors: 0,
            lost_errors: 0,
            exposed_bytes: 0,
            spindle: None,
        };
        let task = TaskView {
            kind: "rebuild".into(),
            slot: Some(1),
            rows_done: 1,
            rows_total: 4,
            rate_bytes: Some(1 << 20),
            eta_seconds: Some(9),
            rate_min_bytes: 1000 << 10,
            rate_max_bytes: Some(200 << 20),
            throttle: "restripe".into(),
            order: "ido".into(),
            on_demand: true,
            ..TaskView::default()
        };
        let view = StatusView {
            name: "tank".into(),
            uuid: "u".into(),
            generation: 4,
            state: "degraded".into(),
            level: "raid5".into(),
            rotation: "left-symmetric".into(),
            slots: 3,
            chunk_bytes: 65536,
            size_bytes: 2 << 30,
            members: vec![
                member(1, None, "failed"),
                member(3, Some(1), "rebuilding"),
                MemberView {
                    read_errors: 7,
                    lost_errors: 5,
                    ..member(4, Some(0), "active")
                },
            ],
            attached: Some(AttachedView {
                device: "/dev/nbd0".into(),
                link: "/dev/restripe/tank".into(),
                connections: 2,
                read_only: true,
                block_bytes: 4096,
                timeout_seconds: Some(30),
                grace_seconds: Some(300),
                trouble: None,
            }),
            missing_slots: vec![2],
            tasks: vec![task],
            lost_bytes: 4096,
            lost: vec![LostView {
                offset_bytes: 8192,
                bytes: 4096,
            }],
            ..StatusView::default()
        };
        let expected = "\
tank: degraded, 4K lost
  raid5 left-symmetric, 3 slots, chunk 64K, 2G usable
  uuid u, generation 4
  attached as /dev/nbd0 (/dev/restripe/tank), 2 connections, read-only
  rebuild 25.0%, 1M/s, 9s left (slot 1)
    1000K/s at least, 200M/s at most; throttle restripe, order ido, on demand
  LOST: bytes 8192 to 12287 (4096 bytes)
  number  slot  state       read errors  member
       4     0  active                7  4.img, 5 read errors at lost sectors
       3     1  rebuilding            0  3.img
       -     2  missing               -  -
       1     -  failed                0  1.img
";
        assert_eq!(text(&view), expected);
    }
}
