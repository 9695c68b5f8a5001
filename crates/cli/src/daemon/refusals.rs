//! Peers that are refused, in the log: few lines, however many they are.

use crate::print::journal::{self, Level};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Between two lines about refused clients.
const REFUSALS_EVERY: Duration = Duration::from_secs(1);
/// Between two lines about a full table.
const FULL_EVERY: Duration = Duration::from_secs(10);

/// Why clients were refused. The first is logged at once, and those that follow soon are counted.
#[derive(Clone, Default)]
pub(crate) struct Refusals(Arc<Mutex<Noted>>);

#[derive(Default)]
struct Noted {
    last: Option<Instant>,
    /// Refused since the last line, and why the last of them.
    more: u64,
    why: String,
}

impl Noted {
    /// The line that is due after one more refusal, for this reason, or without.
    fn line(&mut self, why: Option<&str>, now: Instant) -> Option<String> {
        if let Some(why) = why {
            self.more += 1;
            why.clone_into(&mut self.why);
        }
        let soon = |last: Instant| now.duration_since(last) < REFUSALS_EVERY;
        if self.more == 0 || self.last.is_some_and(soon) {
            return None;
        }
        self.last = Some(now);
        let why = &self.why;
        Some(match std::mem::take(&mut self.more) {
            1 => format!("a client was refused: {why}"),
            count => format!("{count} clients were refused, the last: {why}"),
        })
    }
}

impl Refusals {
    pub fn note(&self, why: &str) {
        self.log(Some(why));
    }

    /// Logs what was counted, if it is time.
    pub fn look(&self) {
        self.log(None);
    }

    fn log(&self, why: Option<&str>) {
        let Ok(mut noted) = self.0.lock() else { return };
        if let Some(line) = noted.line(why, Instant::now()) {
            journal::line(Level::Warning, line);
        }
    }
}

/// Peers that found no place among the connections, or lost it before they had finished their handshake.
#[derive(Default)]
pub(crate) struct TurnedAway {
    logged: u64,
    last: Option<Instant>,
}

impl TurnedAway {
    /// `all`: how many there were since the daemon began.
    pub fn look(&mut self, all: u64) {
        let soon = self.last.is_some_and(|last| last.elapsed() < FULL_EVERY);
        if all == self.logged || soon {
            return;
        }
        let count = all - self.logged;
        (self.logged, self.last) = (all, Some(Instant::now()));
        journal::line(
            Level::Warning,
            format_args!(
                "no place for all connections: {count} were closed that had not finished their handshake or login"
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_refusals_are_few_lines_and_none_is_lost() {
        let begun = Instant::now();
        let after = |millis| begun + Duration::from_millis(millis);
        let mut noted = Noted::default();
        let mut lines = Vec::new();
        for millis in 0..2500 {
            lines.extend(noted.line(Some(&format!("no. {millis}")), after(millis)));
        }
        assert_eq!(noted.line(None, after(2900)), None, "not yet");
        lines.extend(noted.line(None, after(3100)));
        assert_eq!(noted.line(None, after(9000)), None);
        let expected = [
            "a client was refused: no. 0",
            "1000 clients were refused, the last: no. 1000",
            "1000 clients were refused, the last: no. 2000",
            "499 clients were refused, the last: no. 2499",
        ];
        assert_eq!(lines, expected);
    }
}
