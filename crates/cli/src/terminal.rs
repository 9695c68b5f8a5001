//! The terminal: words, questions before something is lost, and one line of progress while a person waits.
//!
//! A terminal closes, and who reads a pipe leaves, while arrays are served. `println!` and `eprintln!` panic then, which
//! ends the process as a crash does. So whoever has an engine at work, or may have, speaks by [`say`] and [`print`]
//! alone, and has the macros denied.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use crate::failure::{Failure, Outcome};
use crate::units::{Rate, Size, seconds};
use restripe_io::control::{AimView, TaskView};
use std::fmt::Display;
use std::io::{self, BufRead, IsTerminal, Write};

/// A line on standard error, if anybody is there to read it.
pub fn say(line: impl Display) {
    // In one piece, so that the lines of two threads do not mix.
    show(&format!("{line}\n"));
}

/// A line on standard output, if anybody is there to read it.
pub fn print(line: impl Display) {
    let mut output = io::stdout().lock();
    let _ = writeln!(output, "{line}").and_then(|()| output.flush());
}

/// What cannot be shown is not missed.
fn show(text: &str) {
    let mut error = io::stderr().lock();
    let _ = error
        .write_all(text.as_bytes())
        .and_then(|()| error.flush());
}

/// Something that will be gone.
#[derive(Debug, PartialEq, Eq)]
pub struct Lost {
    pub at: String,
    pub what: String,
}

/// Says what will be lost and asks, unless that was answered beforehand.
pub fn confirm(question: &str, losses: &[Lost], yes: bool) -> Outcome {
    say(question);
    for Lost { at, what } in losses {
        say(format_args!("  {at}: {what}"));
    }
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(
            Failure::new("nobody is there to be asked").hint("say --yes if this is what you want")
        );
    }
    show("Type yes to go on: ");
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    match read {
        Ok(_) if answer.trim() == "yes" => Ok(()),
        _ => Err(Failure::new("not confirmed; nothing was changed")),
    }
}

/// One line that is written over and over on a terminal, and now and then elsewhere.
pub struct Progress {
    terminal: bool,
    shown: String,
}

impl Progress {
    pub fn new() -> Progress {
        Progress {
            terminal: io::stderr().is_terminal(),
            shown: String::new(),
        }
    }

    pub fn show(&mut self, line: &str) {
        if !self.terminal || line == self.shown {
            return;
        }
        show(&format!("\r\x1b[K{line}"));
        self.shown = line.into();
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
pub fn task_line(task: &TaskView) -> String {
    let mut line = format!("{} {}", task.kind, percent(task.rows_done, task.rows_total));
    match task.waits.as_str() {
        _ if task.paused => line.push_str(", paused"),
        "" => line.push_str(&speed(task)),
        "read-only" => line.push_str(", waits for a start that writes"),
        "members" => line.push_str(", waits until no member is missing"),
        _ => line.push_str(", waits until another task is done"),
    }
    if task.mismatches > 0 {
        line.push_str(&format!(", {} rows differ", task.mismatches));
    }
    line
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
pub fn pacing_line(task: &TaskView) -> String {
    let rate = Rate {
        min: task.rate_min_bytes,
        max: task.rate_max_bytes.unwrap_or(u64::MAX),
    };
    let on_demand = if task.on_demand { ", on demand" } else { "" };
    let (throttle, order) = (&task.throttle, &task.order);
    format!("{rate}; throttle {throttle}, order {order}{on_demand}")
}

/// What its throttle aims at, and how it fares: `p99 is 18ms, 20ms at most; 12M/s beside users`.
pub fn aim_line(aim: &AimView) -> String {
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
                    format!("p{percentile} is {is}, {at_most} at most; {rate}/s beside users")
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
                (_, 0) => "it was to be done by now".into(),
                (true, _) => format!("it will not be done in {within}, which takes {needs}/s"),
                (false, _) => format!("to be done in {within}, which takes {needs}/s"),
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
pub fn percent(done: u64, total: u64) -> String {
    let thousandths = u128::from(done.min(total)) * 1000 / u128::from(total.max(1));
    format!("{}.{}%", thousandths / 10, thousandths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aim_is_one_line() {
        let latency = |is_us, missed| AimView::Latency {
            percentile: 99,
            at_most_us: 20_000,
            is_us,
            rate_bytes: 12 << 20,
            missed,
        };
        let finish = |within_seconds, missed| AimView::Finish {
            within_seconds,
            needs_bytes: 14 << 20,
            missed,
        };
        for (aim, line) in [
            (
                latency(None, false),
                "p99 is not known, 20ms at most; 12M/s beside users",
            ),
            (
                latency(Some(9_200), false),
                "p99 is 9200us, 20ms at most; 12M/s beside users",
            ),
            (
                latency(Some(30_500), true),
                "p99 is 31ms, above 20ms even at its minimum",
            ),
            (
                finish(4320, false),
                "to be done in 1h 12m, which takes 14M/s",
            ),
            (
                finish(61, true),
                "it will not be done in 1m 01s, which takes 14M/s",
            ),
            (finish(0, true), "it was to be done by now"),
        ] {
            assert_eq!(aim_line(&aim), line);
        }
    }

    #[test]
    fn a_task_is_one_line() {
        let mut task = TaskView {
            kind: "rebuild".into(),
            rows_done: 5,
            rows_total: 12,
            ..TaskView::default()
        };
        assert_eq!(task_line(&task), "rebuild 41.6%");
        task.rate_bytes = Some(48 << 20);
        task.eta_seconds = Some(75);
        assert_eq!(task_line(&task), "rebuild 41.6%, 48M/s, 1m 15s left");
        for (waits, told) in [
            ("read-only", "rebuild 41.6%, waits for a start that writes"),
            (
                "another-task",
                "rebuild 41.6%, waits until another task is done",
            ),
        ] {
            task.waits = waits.into();
            assert_eq!(task_line(&task), told);
        }
        task.paused = true;
        task.mismatches = 2;
        assert_eq!(task_line(&task), "rebuild 41.6%, paused, 2 rows differ");
    }

    #[test]
    fn a_hundred_percent_is_the_end_and_not_before() {
        assert_eq!(percent(999_999, 1_000_000), "99.9%");
        assert_eq!(
            (percent(3, 3), percent(0, 0)),
            ("100.0%".into(), "0.0%".into())
        );
    }
}
