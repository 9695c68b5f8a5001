//! Media errors that a slice has met and not counted yet. It counts them at its end: only then is it known
//! whether something recovers what could not be read.

use crate::units::{Member, Row};
use alloc::vec::Vec;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Erred {
    list: Vec<Error>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Error {
    /// Where: a row of a new shape is made of several, and their cells are numbered alike.
    row: Row,
    cell: u8,
    /// Whose medium it was.
    member: Member,
    /// Whether the rest of the row was seen to recover a block of the cell; none if no block was looked at.
    recovered: Option<bool>,
}

impl Erred {
    pub(super) fn clear(&mut self) {
        self.list.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn add(&mut self, row: Row, cell: u8, member: Member) {
        self.list.push(Error {
            row,
            cell,
            member,
            recovered: None,
        });
    }

    /// The slice knows this much of a block of a cell that cannot be read.
    pub(super) fn judge(&mut self, row: Row, cell: u8, recoverable: bool) {
        let here = |error: &&mut Error| (error.row, error.cell) == (row, cell);
        for error in self.list.iter_mut().filter(here) {
            error.recovered = Some(recoverable || error.recovered == Some(true));
        }
    }

    /// All errors, and whether nothing recovers what is there. `complete`: the slice has been through all its
    /// bands, so that what it has not judged could be read after all. Otherwise that is not known to be
    /// recovered, either.
    pub(super) fn take(&mut self, complete: bool) -> impl Iterator<Item = (Member, bool)> + use<> {
        let errors = core::mem::take(&mut self.list).into_iter();
        errors.map(move |error| (error.member, !error.recovered.unwrap_or(complete)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(complete: bool) -> Vec<bool> {
        let mut erred = Erred::default();
        for cell in 0..4 {
            erred.add(Row(7), cell, Member(cell.into()));
        }
        erred.judge(Row(7), 1, false);
        erred.judge(Row(7), 2, true);
        erred.judge(Row(7), 3, false);
        erred.judge(Row(7), 3, true);
        erred.judge(Row(7), 3, false);
        // The same cell of another row.
        erred.judge(Row(8), 1, true);
        let lost = erred.take(complete).map(|(_, lost)| lost).collect();
        assert!(erred.is_empty());
        lost
    }

    #[test]
    fn a_cell_is_lost_if_all_that_is_known_of_it_is() {
        assert_eq!(lost(true), [false, true, false, false]);
    }

    #[test]
    fn what_was_not_looked_at_again_is_not_known_to_be_recovered() {
        assert_eq!(lost(false), [true, true, false, false]);
    }
}
