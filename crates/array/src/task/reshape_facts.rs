//! What a reshape under way makes of rows and requests: which of them wait, and what a row that was made
//! changes.

use super::reshaping::{Reshaping, Step, Window};
use crate::contract::{Bug, RequestError};
use crate::facts::{Facts, Wake};
use crate::units::Row;
use core::ops::Range;
use restripe_format::meta::Journal;

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
