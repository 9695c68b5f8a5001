//! What a reshape under way has in memory, and whom it makes wait. [`super::reshape`] goes on with it.

use crate::contract::RequestError;
use crate::facts::{Facts, Wake};
use crate::planted::Bug;
use crate::units::{Nanos, Row};
use core::ops::Range;
use restripe_format::meta::Journal;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Nothing is written there.
    Passed,
    /// The window's rows are dead: nothing is needed where they are made.
    Moved,
    /// One row, and what lies where it is made is still needed.
    Journaled,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Draining,
    Quiet,
    Emptying,
    Opening { version: u64 },
    Copying,
    Copied,
    Filling { version: u64 },
    Making,
    Made,
    Recording { version: u64 },
}

#[derive(Clone, Debug)]
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
    /// Logs are no logs: nobody writes.
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

impl Facts {
    pub(crate) fn journal(&self) -> Journal {
        let reshape = self.superblock.reshape;
        reshape.map_or(Journal::Closed, |reshape| reshape.journal)
    }

    /// Logs hold what is no record.
    pub(crate) fn logs_are_journal(&self) -> bool {
        self.logged() && self.journal() != Journal::Closed
    }

    /// The row that nobody who is missing has, unless it is owed.
    pub(crate) fn row_in_journal(&self) -> Option<Row> {
        let filled = self.reshape.is_some() && self.journal() == Journal::Filled;
        filled.then(|| self.layout.edge())
    }

    /// Whether a request has to wait with this sector.
    pub(crate) fn is_held(&self, lba: u64, changes: bool) -> bool {
        let reshape = self.reshape.as_ref();
        let held = reshape.is_some_and(|reshape| reshape.holds(lba, changes));
        held && !self.planted(Bug::WindowLeftOpen)
    }

    /// Whether this row is read from the journal: the array does not write, and its place may have some of
    /// it.
    pub(crate) fn is_torn(&self, row: Row) -> bool {
        let torn = self.reshape.as_ref().and_then(|reshape| reshape.torn);
        torn == Some(row)
    }

    /// Whether an extent may be made real now.
    pub(crate) fn may_init(&self, extent: u64) -> bool {
        let Some(reshape) = &self.reshape else {
            return true;
        };
        let window = reshape.window.as_ref();
        let taken = window.filter(|window| window.step != Step::Draining);
        !reshape.extents_wait
            && taken.is_none_or(|window| !self.extents_of(window).contains(&extent))
    }

    /// The extents that a window's rows lie in, made and read.
    pub(crate) fn extents_of(&self, window: &Window) -> Range<u64> {
        let each = self.superblock.extent_rows;
        let end = self.sources_of(&window.rows).end.max(window.rows.end);
        window.rows.start / each..end.div_ceil(each)
    }

    /// The former rows that rows of the new shape take.
    pub(crate) fn sources_of(&self, rows: &Range<u64>) -> Range<u64> {
        let (former, _) = self.layout.former_shape().expect("one is under way");
        let (former, data) = (u64::from(former), self.layout.data_cells());
        let last = self.layout.rows();
        let start = (rows.start * data / former).min(last);
        start..(rows.end * data).div_ceil(former).min(last)
    }

    /// Whether the reshape leaves the array as a stop may find it.
    pub(crate) fn reshape_rests(&self) -> bool {
        let open = self.reshape.as_ref().is_some_and(|one| one.is_open());
        !open && !self.logs_are_journal() || self.reshape.is_none() || self.mode.read_only
    }

    /// Whether a growth takes rows to another shape.
    pub(crate) fn is_reshaping(&self) -> bool {
        self.reshape.is_some()
    }

    pub(super) fn reshaping(&mut self) -> &mut Reshaping {
        self.reshape.as_mut().expect("one is under way")
    }

    pub(super) fn window(&mut self) -> &mut Window {
        let window = &mut self.reshaping().window;
        window.as_mut().expect("a window is open")
    }

    pub(super) fn note_rows_out(&mut self) {
        let out = self.window().out;
        if let Some(task) = self.tasks.growth_mut() {
            task.in_flight = out;
        }
    }

    /// A slice that made a row has ended.
    pub(crate) fn reshaped_row(&mut self, result: Result<(), RequestError>) {
        if self.reshape.as_ref().is_none_or(|one| one.window.is_none()) {
            return;
        }
        let window = self.window();
        window.out -= 1;
        window.failed |= result.is_err();
        window.no_space |= result == Err(RequestError::NoSpace);
        self.note_rows_out();
        self.wake_now(Wake::Task);
    }
}
