//! What a reshape under way has in memory. [`super::reshape`] goes on with it.

use crate::units::{Nanos, Row};
use core::ops::Range;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Kind {
    /// Nothing is written there.
    #[default]
    Passed,
    /// The window's rows are dead: nothing is needed where they are made.
    Moved,
    /// One row, and what lies where it is made is still needed.
    Journaled,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Step {
    #[default]
    Draining,
    Quiet,
    Emptying,
    Opening {
        version: u64,
    },
    Copying,
    Copied,
    Filling {
        version: u64,
    },
    Making,
    Made,
    Recording {
        version: u64,
    },
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    pub(crate) rows: Range<u64>,
    pub(crate) kind: Kind,
    pub(crate) step: Step,
    /// Sectors of the array, by their former places, whose users wait.
    pub(crate) zone: Range<u64>,
    /// The next row to be made, and how many are being made.
    pub(crate) next: u64,
    pub(crate) out: u32,
    /// A row could not be written; how often that happened to one that is in the journal.
    pub(crate) failed: bool,
    pub(crate) no_space: bool,
    pub(crate) tries: u32,
    /// Records below this are of the former shape.
    pub(crate) barrier: u64,
    /// A flush that began after so many.
    pub(crate) asked: Option<u64>,
    pub(crate) flushed: bool,
}

/// What becomes of the journal when no row needs it any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Closing {
    Zeroing { outstanding: u32 },
    Recording { version: u64 },
}

/// A reshape under way.
#[derive(Default)]
pub(crate) struct Reshaping {
    pub(crate) window: Option<Window>,
    pub(crate) closing: Option<Closing>,
    /// Logs hold the journal, so no write runs.
    pub(crate) writes_wait: bool,
    /// No extent is made real: the bits of the written map are on their way.
    pub(crate) extents_wait: bool,
    pub(crate) not_before: Nanos,
    /// Of an array that does not write: the row that the journal has, and its place not.
    pub(crate) torn: Option<Row>,
}

impl Reshaping {
    /// Whether a user has to wait who wants this sector.
    pub(crate) fn holds(&self, lba: u64, changes: bool) -> bool {
        let zone = self.window.as_ref().map(|window| &window.zone);
        changes && self.writes_wait || zone.is_some_and(|zone| zone.contains(&lba))
    }

    /// Whether users may have to wait for it.
    pub(crate) fn is_open(&self) -> bool {
        self.window.is_some() || self.closing.is_some() || self.writes_wait
    }
}
