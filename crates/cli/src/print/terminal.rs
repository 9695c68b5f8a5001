//! The terminal: words, questions before something is lost, and one line of progress while a person waits.
//!
//! A terminal closes, and who reads a pipe leaves, while arrays are served. `println!` and `eprintln!` panic then, which
//! ends the process as a crash does. So every verb speaks by [`say`], [`warn`] and [`print`] (or [`outln!`]) alone, and
//! the macros are denied to the whole command.
//!
//! Standard output is what a verb was asked for. What of it could not be written is remembered, and [`finish`] makes
//! a failure of it: `status >/dev/full` must not look like success. A reader that has left (`| head`) wants no more,
//! and is no failure.

use crate::failure::{Failure, Outcome};
use crate::print::journal::{self, Level, show};
use crate::units::{Rate, Size, seconds};
use restripe_array::{shown, shown_lines};
use restripe_io::control::{AimView, TaskView};
use restripe_io::signals::stdout_is_writable;
use std::fmt::Display;
use std::io::{self, BufRead, ErrorKind, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Why standard output could not be written, the first time.
static UNWRITTEN: Mutex<Option<io::Error>> = Mutex::new(None);

/// A line of standard output.
macro_rules! outln {
    () => { $crate::print::terminal::print("") };
    ($($part:tt)*) => { $crate::print::terminal::print(format_args!($($part)*)) };
}

/// A piece of standard output.
macro_rules! out {
    ($($part:tt)*) => { $crate::print::terminal::print_piece(format_args!($($part)*)) };
}

pub(crate) use {out, outln};

/// A line on standard error, if anybody is there to read it.
pub(crate) fn say(line: impl Display) {
    journal::line(Level::Info, line);
}

/// A warning on standard error.
pub(crate) fn warn(line: impl Display) {
    journal::line(Level::Warning, format_args!("warning: {line}"));
}

/// A failure on standard error: what, where and what to do, a line each.
pub(crate) fn say_failure(failure: &Failure) {
    if failure.is_silent() {
        return;
    }
    for line in format!("restripe: {failure}").lines() {
        journal::line(Level::Error, line);
    }
}

/// Lines on standard output. What is not the command's own in them is to be in one line (see [`shown`]); no character
/// that a terminal obeys passes.
pub(crate) fn print(lines: impl Display) {
    print_piece(format_args!("{lines}\n"));
}

/// The same, of a text that has its last line feed.
pub(crate) fn print_piece(text: impl Display) {
    let text = shown_lines(&text.to_string()).to_string();
    let mut output = io::stdout().lock();
    let written = stdout_is_writable().and_then(|()| output.write_all(text.as_bytes()));
    if let Err(error) = written.and_then(|()| output.flush()) {
        let mut unwritten = UNWRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
        unwritten.get_or_insert(error);
    }
}

/// A line on standard output of a verb that was asked for something else: a daemon serves also where its address is not
/// read.
pub(crate) fn print_aside(line: impl Display) {
    let mut output = io::stdout().lock();
    let _ = writeln!(output, "{}", shown(&line.to_string())).and_then(|()| output.flush());
}

/// A message of the daemon on standard output, which may name what is not the daemon's.
pub(crate) fn print_note(note: &str) {
    print(shown(note));
}

/// The exit status of a program that a closed pipe ends, as a shell has it.
const BY_THE_PIPE: u8 = 128 + 13;

/// Whether all that was printed has been written. Where a reader has left, the verb has done its work, and fails without a word.
pub(crate) fn finish() -> Outcome {
    let unwritten = UNWRITTEN
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    match unwritten {
        None => Ok(()),
        Some(error) if error.kind() == ErrorKind::BrokenPipe => Err(Failure::silent(BY_THE_PIPE)),
        Some(error) => {
            let what = format!("standard output cannot be written: {error}");
            Err(Failure::new(what).hint("the operation is done, but its output is incomplete"))
        }
    }
}

/// Something that will be gone.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    pub at: String,
    pub what: String,
}

/// Says what will be lost and asks, unless that was answered beforehand.
pub(crate) fn confirm(question: &str, losses: &[Lost], yes: bool) -> Outcome {
    say(question);
    for Lost { at, what } in losses {
        say(format_args!("  {at}: {what}"));
    }
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(
            Failure::new("confirmation is required, but there is no terminal")
                .hint("pass --yes to confirm"),
        );
    }
    show("Type yes to continue: ");
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    match read {
        Ok(_) if answer.trim() == "yes" => Ok(()),
        _ => Err(Failure::new("not confirmed; nothing was changed")),
    }
}

/// The same for a single thing.
pub(crate) fn confirm_one(question: &str, at: &str, what: String, yes: bool) -> Outcome {
    let at = at.into();
    confirm(question, &[Lost { at, what }], yes)
}

/// One line that is written over and over on a terminal, and now and then elsewhere.
pub(crate) struct Progress {
    terminal: bool,
    shown: String,
    /// When a line was last said that is no terminal's.
    said: Option<Instant>,
}

/// What takes no longer than this needs no progress, and how often a line without a terminal comes.
const SILENT_AT_FIRST: Duration = Duration::from_secs(2);
const SAY_EVERY: Duration = Duration::from_secs(10);

impl Progress {
    pub fn new() -> Progress {
        Progress {
            terminal: io::stderr().is_terminal(),
            shown: String::new(),
            said: None,
        }
    }

    pub fn show(&mut self, line: &str) {
        if !self.terminal || line == self.shown {
            return;
        }
        show(&format!("\r\x1b[K{}", shown(line)));
        self.shown = line.into();
    }

    /// How far something is that began then, once it has taken a while. Where there is no terminal, a line now and then.
    pub(crate) fn show_slow(&mut self, begun: Instant, doing: &str, done: u64, total: u64) {
        if begun.elapsed() < SILENT_AT_FIRST {
            return;
        }
        let line = format!("{doing}: {}", percent(done, total));
        if self.terminal {
            return self.show(&line);
        }
        if self.said.is_none_or(|said| said.elapsed() >= SAY_EVERY) {
            self.said = Some(Instant::now());
            say(&line);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if !self.shown.is_empty() {
            say("");
        }
    }
}

/// A task in one line: how far, how fast, how long still.
pub(crate) fn task_line(task: &TaskView) -> String {
    let mut line = format!("{} {}", task.kind, percent(task.rows_done, task.rows_total));
    match task.waits.as_str() {
        _ if task.paused => line.push_str(", paused"),
        "" => line.push_str(&speed(task)),
        "read-only" => line.push_str(", waits for a start that may write"),
        "members" => line.push_str(", waits until no member is missing"),
        "growth" => line.push_str(", filled by the growth"),
        _ => line.push_str(", waits for another task"),
    }
    if task.mismatches > 0 {
        line.push_str(&format!(", {} rows differ", task.mismatches));
    }
    line
}

/// The same, with the slot that it fills.
pub(crate) fn task_line_at_slot(task: &TaskView) -> String {
    let slot = task.slot.map(|slot| format!(" (slot {slot})"));
    task_line(task) + &slot.unwrap_or_default()
}

fn speed(task: &TaskView) -> String {
    let Some(rate) = task.rate_bytes else {
        return String::new();
    };
    let left = task.eta_seconds.map(seconds);
    let left = left.map_or(String::new(), |left| format!(", {left} left"));
    format!(", {}/s{left}", Size(rate))
}

/// What a task is told: `10M/s at least, 200M/s at most; throttle restripe, order pr, on demand`.
pub(crate) fn pacing_line(task: &TaskView) -> String {
    let rate = Rate {
        min: task.rate_min_bytes,
        max: task.rate_max_bytes.unwrap_or(u64::MAX),
    };
    let on_demand = if task.on_demand { ", on demand" } else { "" };
    let (throttle, order) = (&task.throttle, &task.order);
    format!("{rate}; throttle {throttle}, order {order}{on_demand}")
}

/// What its throttle aims at, and how it fares: `p99 is 18ms, 20ms at most; 12M/s beside users`.
pub(crate) fn aim_line(aim: &AimView) -> String {
    match *aim {
        AimView::Latency {
            percentile,
            at_most_us,
            is_us,
            rate_bytes,
            missed,
        } => {
            let at_most = short(at_most_us);
            let is = is_us.map_or("not known".into(), short);
            match missed {
                true => format!("p{percentile} is {is}, above {at_most} even at its minimum"),
                false => {
                    let rate = Size(rate_bytes);
                    format!("p{percentile} is {is}, {at_most} at most; {rate}/s under load")
                }
            }
        }
        AimView::Finish {
            within_seconds,
            needs_bytes,
            missed,
        } => {
            let (within, needs) = (seconds(within_seconds), Size(needs_bytes));
            match (missed, within_seconds) {
                (_, 0) => "the deadline has passed".into(),
                (true, _) => {
                    format!("it will not finish within {within}, which requires {needs}/s")
                }
                (false, _) => format!("to finish within {within}, which requires {needs}/s"),
            }
        }
    }
}

/// Microseconds as milliseconds from ten of these on.
fn short(microseconds: u64) -> String {
    match microseconds {
        0..10_000 => format!("{microseconds}us"),
        _ => format!("{}ms", microseconds.div_ceil(1000)),
    }
}

/// `41.7%`; 100 only when all is done.
pub(crate) fn percent(done: u64, total: u64) -> String {
    let thousandths = u128::from(done.min(total)) * 1000 / u128::from(total.max(1));
    format!("{}.{}%", thousandths / 10, thousandths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aim_is_one_line() {
        let latency = |is_us, missed| {
            aim_line(&AimView::Latency {
                percentile: 99,
                at_most_us: 20_000,
                is_us,
                rate_bytes: 12 << 20,
                missed,
            })
        };
        let finish = |within_seconds, missed| {
            aim_line(&AimView::Finish {
                within_seconds,
                needs_bytes: 14 << 20,
                missed,
            })
        };
        let unknown = "p99 is not known, 20ms at most; 12M/s under load";
        assert_eq!(latency(None, false), unknown);
        let kept = "p99 is 9200us, 20ms at most; 12M/s under load";
        assert_eq!(latency(Some(9_200), false), kept);
        let missed = "p99 is 31ms, above 20ms even at its minimum";
        assert_eq!(latency(Some(30_500), true), missed);
        let kept = "to finish within 1h 12m, which requires 14M/s";
        assert_eq!(finish(4320, false), kept);
        let missed = "it will not finish within 1m 01s, which requires 14M/s";
        assert_eq!(finish(61, true), missed);
        assert_eq!(finish(0, true), "the deadline has passed");
    }

    #[test]
    fn a_task_is_one_line() {
        let mut task = TaskView::default();
        (task.kind, task.rows_done, task.rows_total) = ("rebuild".into(), 5, 12);
        assert_eq!(task_line(&task), "rebuild 41.6%");
        task.rate_bytes = Some(48 << 20);
        task.eta_seconds = Some(75);
        assert_eq!(task_line(&task), "rebuild 41.6%, 48M/s, 1m 15s left");
        for (waits, line) in [
            ("read-only", "waits for a start that may write"),
            ("another-task", "waits for another task"),
            ("growth", "filled by the growth"),
        ] {
            task.waits = waits.into();
            assert_eq!(task_line(&task), format!("rebuild 41.6%, {line}"));
        }
        task.paused = true;
        task.mismatches = 2;
        assert_eq!(task_line(&task), "rebuild 41.6%, paused, 2 rows differ");
    }

    #[test]
    fn a_hundred_percent_is_the_end_and_not_before() {
        assert_eq!(percent(999_999, 1_000_000), "99.9%");
        assert_eq!(percent(3, 3), "100.0%");
        assert_eq!(percent(0, 0), "0.0%");
    }
}
