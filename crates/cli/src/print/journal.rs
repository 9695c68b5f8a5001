//! The log of a daemon, and what other verbs say on standard error.
//!
//! A verb writes its lines as they come. A daemon must go on, and end, also while the reader of its log does not read:
//! a full pipe or a stopped terminal blocks the writer for ever. So a daemon's lines go through a bounded queue to a
//! thread of their own ([`begin`]). Lines that do not fit are counted, and the count is logged as soon as there is
//! room.
//!
//! A line of a daemon has a time and a priority: `2026-11-26T14:48:00Z warning restripe: ...`. Where standard error is
//! systemd's journal, which has the time, every line has the prefix that the journal reads its priority from: `<4>`.
//!
//! | thread of the log | a line comes | queue full |
//! |---|---|---|
//! | not begun | written by whoever has it | |
//! | begun | queued; [`settle`] waits until it is written | counted as lost |
//! | its reader is stuck | queued; one [`settle`] waits in vain, the others do not | counted as lost; [`end`] waits for [`LAST_WORDS`] and gives up |

use restripe_array::shown;
use std::fmt::Display;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Lines that wait for the log's reader, at most.
const QUEUED_MAX: usize = 4096;
/// How long a daemon that ends waits for its last lines to be read.
pub(crate) const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long the answer to a verb waits for the lines about it to be read.
const SETTLED: Duration = Duration::from_secs(1);

/// How grave a line is, as syslog counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Level {
    Error = 3,
    Warning = 4,
    Info = 6,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Info => "info",
        }
    }
}

enum Entry {
    Line(String),
    /// Answered when all before it is written.
    Mark(SyncSender<()>),
}

struct Queue {
    entries: SyncSender<Entry>,
    lost: AtomicU64,
    /// Entries that the thread has dealt with.
    written: AtomicU64,
    /// How many there were when an answer waited in vain.
    stuck_at: AtomicU64,
}

static QUEUE: OnceLock<Queue> = OnceLock::new();

/// From here on this process is a daemon: its lines have a time, and none of them can block it.
pub(crate) fn begin() -> io::Result<()> {
    let (entries, receiver) = sync_channel(QUEUED_MAX);
    let queue = Queue {
        entries,
        lost: AtomicU64::new(0),
        written: AtomicU64::new(0),
        stuck_at: AtomicU64::new(u64::MAX),
    };
    if QUEUE.set(queue).is_err() {
        return Ok(());
    }
    std::panic::set_hook(Box::new(|panic| {
        line(Level::Error, format_args!("restripe: {panic}"));
        end(LAST_WORDS);
    }));
    let write = move || write_all(&receiver);
    let thread = thread::Builder::new().name("log".into()).spawn(write);
    thread.map(|_| ())
}

/// Logs one line; what it holds of others is shown, not obeyed.
pub(crate) fn line(level: Level, text: impl Display) {
    let text = shown(&text.to_string()).to_string();
    let Some(queue) = QUEUE.get() else {
        let prefix = if to_system() {
            prefix(level)
        } else {
            String::new()
        };
        return show(&format!("{prefix}{text}\n"));
    };
    let entry = Entry::Line(format!("{}{text}\n", stamp(level)));
    if queue.entries.try_send(entry).is_err() {
        queue.lost.fetch_add(1, Ordering::Relaxed);
    }
}

/// Waits until all lines are written, but not for longer than this.
pub(crate) fn end(within: Duration) {
    if let Some(queue) = QUEUE.get() {
        all_written(queue, within);
    }
}

/// Waits at most `SETTLED` until all lines are written. Does not wait again until the reader that was stuck has read a
/// line.
pub(crate) fn settle() {
    let Some(queue) = QUEUE.get() else { return };
    let stuck = queue.stuck_at.load(Ordering::Relaxed) == queue.written.load(Ordering::Relaxed);
    if !stuck && !all_written(queue, SETTLED) {
        let written = queue.written.load(Ordering::Relaxed);
        queue.stuck_at.store(written, Ordering::Relaxed);
    }
}

fn all_written(queue: &Queue, within: Duration) -> bool {
    let deadline = Instant::now() + within;
    let (mark, written) = sync_channel(1);
    while queue.entries.try_send(Entry::Mark(mark.clone())).is_err() {
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    let left = deadline.saturating_duration_since(Instant::now());
    written.recv_timeout(left).is_ok()
}

fn write_all(entries: &Receiver<Entry>) {
    let Some(queue) = QUEUE.get() else { return };
    for entry in entries {
        let lost = queue.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let what = format!(
                "restripe: {lost} lines of this log are missing: the reader was too slow\n"
            );
            show(&format!("{}{what}", stamp(Level::Warning)));
        }
        match entry {
            Entry::Line(line) => show(&line),
            Entry::Mark(written) => {
                let _ = written.try_send(());
            }
        }
        queue.written.fetch_add(1, Ordering::Relaxed);
    }
}

/// Writes to standard error in one piece, so that lines of two processes do not mix. What cannot be shown is not missed.
pub(crate) fn show(text: &str) {
    let mut error = io::stderr().lock();
    let _ = error
        .write_all(text.as_bytes())
        .and_then(|()| error.flush());
}

fn stamp(level: Level) -> String {
    match to_system() {
        true => prefix(level),
        false => format!("{} {} ", time(SystemTime::now()), level.word()),
    }
}

fn prefix(level: Level) -> String {
    format!("<{}>", level as u8)
}

/// Whether standard error is the socket that systemd says leads to its journal.
fn to_system() -> bool {
    static TO_SYSTEM: OnceLock<bool> = OnceLock::new();
    *TO_SYSTEM.get_or_init(|| {
        let named = std::env::var("JOURNAL_STREAM").unwrap_or_default();
        let own = io::stderr().as_fd().try_clone_to_owned();
        let found = own.and_then(|own| std::fs::File::from(own).metadata());
        found.is_ok_and(|found| named == format!("{}:{}", found.dev(), found.ino()))
    })
}

/// A time in UTC, as RFC 3339 has it.
fn time(now: SystemTime) -> String {
    utc(now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
}

/// A time that is given in seconds since 1970-01-01 UTC, as RFC 3339 has it.
pub(crate) fn utc(since: u64) -> String {
    let (days, second) = (since / 86_400, since % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The day that is this many after the first of 1970. Years are counted from March here, so that a leap day ends one.
fn date(days: u64) -> (u64, u64, u64) {
    let from_march = days + 719_468;
    let (era, day_of_era) = (from_march / 146_097, from_march % 146_097);
    let leaps = day_of_era / 1460 + day_of_era / 146_096;
    let year = (day_of_era + day_of_era / 36_524 - leaps) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_077_926_399, "2004-02-27T23:59:59Z"),
            (1_795_704_480, "2026-11-26T14:48:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(time(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn a_priority_is_the_systems_number() {
        let numbers = [Level::Error, Level::Warning, Level::Info].map(prefix);
        assert_eq!(numbers, ["<3>", "<4>", "<6>"]);
    }
}
