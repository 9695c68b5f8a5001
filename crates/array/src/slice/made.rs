//! The data of a row of a new shape, while a reshape makes it.

use crate::contract::Buf;
use crate::layout::CellSet;
use crate::members::pool::Buffers;
use crate::units::{CELLS_MAX, Row};

/// Where a row is made, and of what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Aim {
    /// In its place, of the former rows.
    Place,
    /// In the journal, of the former rows: in its place are some of these.
    Journal,
    /// In its place, of the journal.
    Settle,
}

/// Data cells of a row of a new shape, as far as they are known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Made {
    pub(super) cells: [Option<Buf>; CELLS_MAX],
    pub(super) known: CellSet,
    /// Of those, what needs no buffer.
    pub(super) zeros: CellSet,
    /// The row that is being read.
    pub(super) source: Option<Row>,
}

impl Made {
    pub(super) fn drop_buffers(&mut self, buffers: &mut Buffers) {
        for held in &mut self.cells {
            if let Some(buf) = held.take() {
                buffers.give_back(buf);
            }
        }
    }

    pub(super) fn know(&mut self, data: u8, content: Option<Buf>) {
        self.known = self.known.with(data);
        if content.is_none() {
            self.zeros = self.zeros.with(data);
        }
        self.cells[usize::from(data)] = content;
    }
}
