//! `status`: how an array is, on one screen.

use crate::command::Status;
use crate::create::skew_words_before;
use crate::energy;
use crate::failure::{Failure, Outcome};
use crate::journal::utc;
use crate::lease;
use crate::session::Session;
use crate::surrogate;
use crate::terminal::{aim_line, finish, out, outln, pacing_line, say_failure, task_line};
use crate::units::Size;
use restripe_array::layout::Skew;
use restripe_array::shown;
use restripe_io::control::{
    ClientError, DroppedView, HostedView, LastScrubView, LostView, MemberView, Reply, Request,
    StatusView, ask, running,
};
use std::fmt::Write;
use std::thread::{self, ScopedJoinHandle};

pub fn run(verb: &Status) -> Outcome {
    let (views, unanswered) = views(verb).map_err(|failure| match verb.exit_code {
        true => failure.with_code(NOT_KNOWN),
        false => failure,
    })?;
    if verb.json {
        let one = verb.name.is_some() || !verb.offline.is_empty();
        outln!("{}", as_json(&views, one)?);
    } else if views.is_empty() && unanswered.is_empty() {
        outln!("no array is served");
    } else {
        let texts: Vec<String> = views.iter().map(text).collect();
        out!("{}", texts.join("\n"));
    }
    unanswered.iter().for_each(say_failure);
    match (verb.exit_code, unanswered.is_empty()) {
        (true, all) => finish()
            .map_err(|failure| failure.with_code(NOT_KNOWN))
            .and_then(|()| worst(&views, all)),
        (false, true) => Ok(()),
        (false, false) => Err(Failure::silent(1)),
    }
}

/// How the arrays are, and why others do not answer.
fn views(verb: &Status) -> Outcome<(Vec<StatusView>, Vec<Failure>)> {
    let one = match &verb.name {
        name if !verb.offline.is_empty() => offline(name.as_deref(), &verb.offline)?,
        Some(name) => Session::open_to_look(name, &[])?.status()?,
        None => {
            let (views, failures): (Vec<_>, Vec<_>) =
                everything()?.into_iter().partition(Result::is_ok);
            let views = views.into_iter().flatten().collect();
            let failures = failures.into_iter().filter_map(Result::err).collect();
            return Ok((views, failures));
        }
    };
    Ok((vec![one], Vec::new()))
}

/// As an exit status, how the worst of these arrays is; `all`: none but these is served.
fn worst(views: &[StatusView], all: bool) -> Outcome {
    let grave = |view: &StatusView| match view.state.as_str() {
        "healthy" => 0,
        "failed" => FAILED,
        "starting" | "stopping" | "stopped" => NOT_KNOWN,
        _ => DEGRADED,
    };
    // Of an array that is not known less is known than of a failed one, but that one is worse.
    let order = |code: &u8| {
        [0, DEGRADED, NOT_KNOWN, FAILED]
            .iter()
            .position(|one| one == code)
    };
    match views
        .iter()
        .map(grave)
        .chain((!all).then_some(NOT_KNOWN))
        .max_by_key(order)
        .unwrap_or(NOT_KNOWN)
    {
        0 => Ok(()),
        code => Err(Failure::silent(code)),
    }
}

/// Exit status of `--exit-code`.
const DEGRADED: u8 = 1;
const FAILED: u8 = 2;
const NOT_KNOWN: u8 = 3;

/// The slots that no member serves, whether it is known or not.
pub fn vacant_slots(view: &StatusView) -> Vec<u16> {
    let served = |slot: &u16| {
        let here = |member: &MemberView| member.slot == Some(*slot) && member.state == "active";
        view.members.iter().any(here)
    };
    (0..view.slots).filter(|slot| !served(slot)).collect()
}

/// The array of these members, whatever it is called if no name is given.
fn offline(name: Option<&str>, members: &[String]) -> Outcome<StatusView> {
    Session::of_members_to_look(name, members)?.end_after(Session::status)
}

/// Every array that has a control socket. All are asked at once, so daemons that hang cost the time of one.
pub fn everything() -> Outcome<Vec<Outcome<StatusView>>> {
    let names = running()?;
    let views: Vec<_> = thread::scope(|scope| {
        let asked: Vec<_> = names
            .iter()
            .map(|name| scope.spawn(|| served(name)))
            .collect();
        let ended = asked.into_iter().map(ScopedJoinHandle::join);
        ended.map(|view| view.expect("it panics nowhere")).collect()
    });
    Ok(views.into_iter().flatten().collect())
}

/// The status of a served array. None where a killed daemon left its socket.
fn served(name: &str) -> Option<Outcome<StatusView>> {
    let view = match ask(name, &Request::Status) {
        Err(ClientError::NotRunning { .. }) => return None,
        Ok(Reply::Status(view)) => Ok(*view),
        Ok(_) => Err(Failure::new(
            "the daemon sent an unexpected reply to `status`",
        )),
        Err(error) => Err(Failure::from(error)),
    };
    Some(view.map_err(|failure| failure.at(name)))
}

/// One object for one array, a list for all.
fn as_json(views: &[StatusView], one: bool) -> Outcome<String> {
    let written = match views {
        [view] if one => serde_json::to_string(view),
        views => serde_json::to_string(views),
    };
    written.map_err(|error| Failure::new(error.to_string()))
}

/// The screen.
pub fn text(view: &StatusView) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{}: {}", shown(&view.name), state(view));
    let _ = writeln!(out, "  {}", shape(view));
    let _ = writeln!(out, "  uuid {}, generation {}", view.uuid, view.generation);
    if let Some(refusal) = &view.refuses_writes {
        let _ = writeln!(out, "  WRITES ARE REFUSED: {}", shown(&refusal.text));
        let _ = writeln!(out, "    {}", shown(&refusal.hint));
    }
    for task in &view.tasks {
        let slot = task
            .slot
            .map_or(String::new(), |slot| format!(" (slot {slot})"));
        let _ = writeln!(out, "  {}{slot}", task_line(task));
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
        let _ = writeln!(out, "  {}", lease::line(lends));
    }
    if let Some(line) = reads_line(view) {
        let _ = writeln!(out, "  {line}");
    }
    for lost in &view.lost {
        let _ = writeln!(out, "  {}", lost_line(lost));
    }
    if view.in_doubt_bytes > 0 {
        let bytes = Size(view.in_doubt_bytes);
        let _ = writeln!(
            out,
            "  DIRTY: up to {bytes} are valid on one copy only, until the resync has passed them"
        );
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
pub fn scrub_lines(last: &LastScrubView) -> String {
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
    format!(
        "VOLATILE: clients are offered neither FLUSH nor FUA: no write is durable on {}",
        paths.join(", ")
    )
}

/// The array's, then its surrogate's, then its buffer's.
fn all_member_lines(view: &StatusView) -> Vec<String> {
    let mut lines = member_lines(&view.members, &view.missing_slots);
    if let Some(surrogate) = &view.surrogate {
        let of_surrogate = member_lines(&surrogate.members, &surrogate.missing_slots);
        lines.extend(of_surrogate.into_iter().map(|line| line + surrogate::MARK));
        if let Some(buffer) = &surrogate.buffer {
            let of_buffer = member_lines(&buffer.members, &buffer.missing_slots);
            lines.extend(
                of_buffer
                    .into_iter()
                    .map(|line| line + surrogate::BUFFER_MARK),
            );
        }
    }
    lines
}

/// The partitions of other slots that a member has, as slot and partition.
fn hosts_text(hosts: &[HostedView]) -> String {
    if hosts.is_empty() {
        return String::new();
    }
    let parts = hosts
        .iter()
        .map(|one| format!(" {}/{}", one.slot, one.partition));
    parts.fold(" hosts".to_string(), |text, part| text + &part)
}

/// Members and empty slots in the order of the slots: members' numbers only say in which order they were named. Who
/// stands in no slot comes last.
pub fn member_lines(members: &[MemberView], missing_slots: &[u16]) -> Vec<String> {
    let members = members.iter().map(|member| {
        let slot = member.slot.map_or("-".to_string(), |slot| slot.to_string());
        let MemberView {
            member: number,
            state,
            read_errors,
            path,
            ..
        } = member;
        let (path, hosts) = (shown(path), hosts_text(&member.hosts));
        let full = if member.full { ", no space" } else { "" };
        let line = format!(
            "  {number:>6}  {slot:>4}  {state:<10}  {read_errors:>11}  {path}{hosts}{full}"
        );
        (member.slot, line)
    });
    let missing = missing_slots.iter().map(|slot| {
        let line = format!("  {:>6}  {slot:>4}  {:<10}  {:>11}  -", "-", "missing", "-");
        (Some(*slot), line)
    });
    let mut lines: Vec<_> = members.chain(missing).collect();
    lines.sort_by_key(|(slot, _)| slot.unwrap_or(u16::MAX));
    lines.into_iter().map(|(_, line)| line).collect()
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

/// A task that the start dropped, and what begins it anew.
fn dropped_line(dropped: &DroppedView, view: &StatusView) -> String {
    let DroppedView {
        kind,
        slot,
        target,
        set,
        waits,
    } = dropped;
    let (of, to) = match set.as_str() {
        "array" => (String::new(), String::new()),
        other => (format!(" of the {other}"), format!(" --to-{other}")),
    };
    let what = format!("{kind} of slot {slot}{of}");
    let name = shown(&view.name);
    if *waits {
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
pub fn lost_line(lost: &LostView) -> String {
    let LostView {
        offset_bytes,
        bytes,
    } = lost;
    let last = offset_bytes + bytes.saturating_sub(1);
    format!("LOST: bytes {offset_bytes} to {last} ({bytes} bytes)")
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
        skew_words_before(view.slots, skew_of(view)),
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
                member(4, Some(0), "active"),
            ],
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
  rebuild 25.0%, 1M/s, 9s left (slot 1)
    1000K/s at least, 200M/s at most; throttle restripe, order ido, on demand
  LOST: bytes 8192 to 12287 (4096 bytes)
  number  slot  state       read errors  member
       4     0  active                0  4.img
       3     1  rebuilding            0  3.img
       -     2  missing               -  -
       1     -  failed                0  1.img
";
        assert_eq!(text(&view), expected);
    }
}
