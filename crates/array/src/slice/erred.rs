//! Media errors that a slice has met and not counted yet. A read and a scrub count theirs at the end: only
//! then is it known whether something recovers what could not be read.

use crate::layout::CellSet;
use crate::units::Member;
use alloc::vec::Vec;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Erred {
    /// Where, and whose medium it was.
    list: Vec<(u8, Member)>,
    /// Of a scrub: cells of which a block was found that nothing recovers, and those of which one was found
    /// that something does.
    lost: CellSet,
    recoverable: CellSet,
}

impl Erred {
    pub(super) fn clear(&mut self) {
        self.list.clear();
        (self.lost, self.recoverable) = (CellSet::EMPTY, CellSet::EMPTY);
    }

    pub(super) fn add(&mut self, cell: u8, member: Member) {
        self.list.push((cell, member));
    }

    /// A scrub knows this much of a block of a cell that cannot be read.
    pub(super) fn judge(&mut self, cell: u8, recoverable: bool) {
        let known = match recoverable {
            true => &mut self.recoverable,
            false => &mut self.lost,
        };
        *known = known.with(cell);
    }

    /// All errors, and whether they are of cells of which nothing was found but what is lost.
    pub(super) fn take(&mut self) -> impl Iterator<Item = (Member, bool)> + use<> {
        let taken = core::mem::take(self);
        let lost = taken.lost.minus(taken.recoverable);
        let errors = taken.list.into_iter();
        errors.map(move |(cell, member)| (member, lost.contains(cell)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_lost_if_all_that_is_known_of_it_is() {
        let mut erred = Erred::default();
        for cell in 0..4 {
            erred.add(cell, Member(cell.into()));
        }
        erred.judge(1, false);
        erred.judge(2, true);
        erred.judge(3, false);
        erred.judge(3, true);
        let lost: Vec<bool> = erred.take().map(|(_, lost)| lost).collect();
        assert_eq!(lost, [false, true, false, false]);
        assert_eq!(erred, Erred::default());
    }
}
