//! How a trace is read: what a caller may choose.

use super::format::Format;

/// How to read a trace. The default takes everything from the file.
#[derive(Clone, Debug)]
pub struct Options {
    /// Read it as this, whatever it looks like.
    pub format: Option<&'static Format>,
    /// The event that stands for a request, for blktrace and blkparse.
    pub action: Option<Action>,
    /// Bytes of a block, for address lists.
    pub block_bytes: u64,
    /// Count records that cannot be read, rather than stop at the first.
    pub skip_bad: bool,
    /// Put requests into the order of time; blktrace and blkparse always are.
    pub sort: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            format: None,
            action: None,
            block_bytes: 4096,
            skip_bad: false,
            sort: false,
        }
    }
}

/// The event that stands for a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Q: as the file system or process asked, before merging. What a replay wants.
    Queued,
    /// I: as it entered the scheduler.
    Inserted,
    /// D: as the driver got it, merged and in its order.
    Issued,
    /// C: when it was done.
    Completed,
}

impl Action {
    /// The letter of blkparse.
    pub fn letter(self) -> char {
        match self {
            Action::Queued => 'Q',
            Action::Inserted => 'I',
            Action::Issued => 'D',
            Action::Completed => 'C',
        }
    }

    pub fn of_letter(letter: char) -> Option<Action> {
        use Action::{Completed, Inserted, Issued, Queued};
        [Queued, Inserted, Issued, Completed]
            .into_iter()
            .find(|action| action.letter() == letter.to_ascii_uppercase())
    }

    /// What to take from a text that begins like this: queue events if it has any, else those of the driver.
    pub fn guess(start: &str) -> Action {
        let has = |letter| {
            let mut actions = start
                .lines()
                .filter_map(|line| line.split_ascii_whitespace().nth(5));
            actions.any(|action| action == letter)
        };
        if has("Q") || !has("D") {
            Action::Queued
        } else {
            Action::Issued
        }
    }
}
