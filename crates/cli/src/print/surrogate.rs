//! A surrogate in words: its part of every status, and the details that `surrogate status` adds.

use crate::print::members::member_lines;
use crate::print::terminal::{task_line, task_line_at_slot};
use crate::units::Size;
use restripe_array::SECTOR_BYTES;
use restripe_io::control::{BufferView, OverlayView, SurrogateView};
use std::fmt::Write;

/// Behind each of the surrogate's members in an array's list.
pub(crate) const MARK: &str = "  (surrogate)";
/// And behind each of its buffer's.
pub(crate) const BUFFER_MARK: &str = "  (NVRAM buffer)";

/// Its lines in the status of its array.
pub(crate) fn text(view: &SurrogateView) -> String {
    let mut out = String::new();
    let (name, level, size) = (&view.name, &view.level, Size(view.size_bytes));
    // Writing to a string cannot fail.
    let _ = match view.state.as_str() {
        // Nothing is known of one that is not there, not even its name.
        "none" => writeln!(out, "  no surrogate: new writes are on primary copies only"),
        "absent" => writeln!(out, "  surrogate: absent"),
        state => writeln!(out, "  surrogate {name}: {state}, {level}, {size} usable"),
    };
    for task in &view.tasks {
        let _ = writeln!(out, "    {}", task_line_at_slot(task));
    }
    if view.repaired_sectors > 0 {
        let bytes = Size(view.repaired_sectors * SECTOR_BYTES);
        let were = "on its members were wrong or unreadable, and are rewritten";
        let _ = writeln!(out, "    {bytes} {were}");
    }
    if let Some(overlay) = &view.overlay {
        let _ = writeln!(out, "    {}", away_line(overlay));
        let _ = writeln!(out, "    {}", done_line(overlay));
    }
    if let Some(buffer) = &view.buffer {
        out.push_str(&buffer_text(buffer));
    }
    out
}

/// A code cache's buffer: `buffer tank-buffer: healthy, raid1; flushes go there; 3 records in it, 40 written since the start`.
fn buffer_text(view: &BufferView) -> String {
    let mut out = String::new();
    let what = match view.state.as_str() {
        "absent" => "NVRAM buffer: absent".to_string(),
        state => format!("NVRAM buffer {}: {state}, {}", view.name, view.level),
    };
    let (records, versions) = (view.records, view.versions);
    let counts = format!("{records} records in it, {versions} written since the start");
    let use_of_it = match view.used {
        true => format!("flushes write to it; {counts}"),
        false => "not in use: flushes seal records early".into(),
    };
    // Writing to a string cannot fail.
    let _ = writeln!(out, "    {what}; {use_of_it}");
    for task in &view.tasks {
        let _ = writeln!(out, "      {}", task_line(task));
    }
    out
}

/// What lies there now: `redirect ido; 12M in log, destaging; 3M of cached copies; map 40 of 262144 extents`.
fn away_line(overlay: &OverlayView) -> String {
    let mut parts = vec![format!("redirect {}", overlay.redirect)];
    let going = if overlay.going_home {
        ", destaging"
    } else {
        ""
    };
    parts.push(match overlay.away_bytes {
        0 if overlay.ahead_bytes > 0 => "no sole copies in log".into(),
        0 if overlay.redirect == "eraid" || overlay.clean_bytes > 0 => "nothing to destage".into(),
        0 => "log empty".into(),
        away => format!("{} in log{going}", Size(away)),
    });
    if overlay.ahead_bytes > overlay.exposed_bytes {
        let primary = Size(overlay.ahead_bytes);
        parts.push(format!("{primary} on primary copies only{going}"));
    }
    if overlay.exposed_bytes > 0 {
        let exposed = Size(overlay.exposed_bytes);
        parts.push(format!("{exposed} EXPOSED, in a single copy{going}"));
    }
    if overlay.clean_bytes > 0 {
        parts.push(format!("{} of cached copies", Size(overlay.clean_bytes)));
    }
    let (extents, most) = (overlay.extents, overlay.extents_max);
    parts.push(format!("map {extents} of {most} extents"));
    if overlay.mirrors_asleep > 0 {
        parts.push(format!("{} mirrors in standby", overlay.mirrors_asleep));
    }
    if overlay.mirrors_restless > 0 {
        let count = overlay.mirrors_restless;
        parts.push(format!(
            "{count} mirrors cannot enter standby (see serve --power)"
        ));
    }
    parts.extend(trouble_of_log(overlay).map(|(what, then)| format!("the log {what}: {then}")));
    parts.join("; ")
}

/// What follows where first copies have all that a log disk had that failed.
pub(crate) const WITHOUT_LOG: &str =
    "writes continue without it, and mirrors stay active until a start with a log";

/// That the log takes no more, and what follows from that.
fn trouble_of_log(overlay: &OverlayView) -> Option<(&'static str, &'static str)> {
    let what = match (overlay.full, overlay.broken) {
        (true, true) => "has NO SPACE",
        (false, true) => "FAILED",
        (true, false) => return Some(("is FULL", "it cannot be destaged")),
        (false, false) => return None,
    };
    let then = match overlay.without_log {
        true if overlay.full => {
            "writes continue without it, and mirrors stay active until it has space"
        }
        true => WITHOUT_LOG,
        false => "writes that need it are refused",
    };
    Some((what, then))
}

/// What is wrong with a surrogate, in the first words of the array: `surrogate degraded`, `the log has NO SPACE`.
pub(crate) fn troubles(surrogate: &SurrogateView) -> Vec<String> {
    let mut words = Vec::new();
    if surrogate.is_degraded() {
        words.push(format!("surrogate {}", surrogate.state));
    }
    let log = surrogate.overlay.as_ref().and_then(trouble_of_log);
    words.extend(log.map(|(what, _)| format!("the log {what}")));
    let buffer = surrogate.buffer.as_ref();
    let trouble = buffer.filter(|buffer| buffer.is_degraded());
    words.extend(trouble.map(|buffer| format!("NVRAM buffer {}", buffer.state)));
    words
}

/// What it has done since the start.
fn done_line(overlay: &OverlayView) -> String {
    let reads = overlay.log_reads + overlay.split_reads;
    let mut line = format!(
        "since the start: {} writes redirected, {reads} reads from the log, {} destaged",
        overlay.redirected_writes,
        Size(overlay.home_bytes)
    );
    if overlay.destages + overlay.rests > 0 {
        let of = |count: u64, word: &str| match count {
            1 => format!("1 {word}"),
            _ => format!("{count} {word}s"),
        };
        let destages = of(overlay.destages, "destage");
        let rests = of(overlay.rests, "spin-down");
        let _ = write!(line, " in {destages}; {rests} of mirrors");
    }
    if overlay.cleanings > 0 {
        let times = match overlay.cleanings {
            1 => "once".into(),
            count => format!("{count} times"),
        };
        let moved = Size(overlay.moved_bytes);
        let _ = write!(line, "; log cleaned {times}, {moved} moved");
    }
    line
}

/// Why records that were gathered in memory went into the log: `records sealed, by cause: 3 flush, 12 full`.
fn seals_line(overlay: &OverlayView) -> Option<String> {
    let some = overlay.seals.iter().filter(|(_, count)| **count > 0);
    let causes: Vec<String> = some
        .map(|(cause, count)| format!("{count} {cause}"))
        .collect();
    (!causes.is_empty()).then(|| format!("records sealed, by cause: {}", causes.join(", ")))
}

/// What only `surrogate status` has room for.
pub(crate) fn details(view: &SurrogateView) -> String {
    let mut out = String::new();
    if let Some(overlay) = &view.overlay {
        let _ = writeln!(
            out,
            "    log of {}; {} of its reads also from the main set; {} cached copies made",
            Size(overlay.log_bytes),
            overlay.split_reads,
            overlay.clean_copies
        );
        if let Some(line) = seals_line(overlay) {
            let _ = writeln!(out, "    {line}");
        }
    }
    let _ = writeln!(out, "    uuid {}", view.uuid);
    out.push_str("  number  slot  state       read errors  member\n");
    for line in member_lines(&view.members, &view.missing_slots) {
        let _ = writeln!(out, "{line}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> SurrogateView {
        SurrogateView {
            name: "tank-surrogate".into(),
            state: "healthy".into(),
            level: "raid1".into(),
            size_bytes: 63 << 20,
            overlay: Some(OverlayView {
                redirect: "ido".into(),
                extents: 40,
                extents_max: 1000,
                away_bytes: 12 << 20,
                clean_bytes: 3 << 20,
                going_home: true,
                redirected_writes: 7,
                log_reads: 2,
                split_reads: 1,
                home_bytes: 1 << 20,
                ..OverlayView::default()
            }),
            ..SurrogateView::default()
        }
    }

    #[test]
    fn a_status_tells_what_is_away_and_what_was_done() {
        let expected = "  surrogate tank-surrogate: healthy, raid1, 63M usable
    redirect ido; 12M in log, destaging; 3M of cached copies; map 40 of 1000 extents
    since the start: 7 writes redirected, 3 reads from the log, 1M destaged
";
        assert_eq!(text(&view()), expected);
    }

    #[test]
    fn a_log_with_cached_copies_is_not_empty() {
        let line = |clean_bytes| {
            away_line(&OverlayView {
                clean_bytes,
                ..OverlayView::default()
            })
        };
        assert!(line(0).contains("; log empty; map "));
        assert!(line(3 << 20).contains("; nothing to destage; 3M of cached copies; map "));
    }

    #[test]
    fn one_is_one_and_two_are_several() {
        let line = |destages, rests| {
            done_line(&OverlayView {
                destages,
                rests,
                ..OverlayView::default()
            })
        };
        assert!(line(1, 2).ends_with("in 1 destage; 2 spin-downs of mirrors"));
        assert!(line(2, 1).ends_with("in 2 destages; 1 spin-down of mirrors"));
    }

    #[test]
    fn cleaning_is_told_where_there_was_any() {
        let line = |cleanings| {
            done_line(&OverlayView {
                cleanings,
                moved_bytes: 3 << 20,
                ..OverlayView::default()
            })
        };
        assert!(!line(0).contains("cleaned"));
        assert!(line(1).ends_with("; log cleaned once, 3M moved"));
        assert!(line(2).ends_with("; log cleaned 2 times, 3M moved"));
    }

    #[test]
    fn seals_are_told_by_cause_and_only_where_there_were_any() {
        let seals = [("full", 12), ("flush", 3), ("age", 0)];
        let mut overlay = OverlayView {
            seals: seals.map(|(cause, count)| (cause.into(), count)).into(),
            ..OverlayView::default()
        };
        let line = seals_line(&overlay);
        let wanted = "records sealed, by cause: 3 flush, 12 full";
        assert_eq!(line.as_deref(), Some(wanted));
        overlay.seals.values_mut().for_each(|count| *count = 0);
        assert_eq!(seals_line(&overlay), None);
    }

    #[test]
    fn an_absent_surrogate_is_one_line() {
        let absent = SurrogateView {
            name: String::new(),
            state: "absent".into(),
            overlay: None,
            ..view()
        };
        assert_eq!(text(&absent), "  surrogate: absent\n");
    }
}
