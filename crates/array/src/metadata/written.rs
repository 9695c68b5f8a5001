//! The written map: which extents, and which generations of them, are real.
//!
//! [`crate::safety`] makes an extent real, and says what that means.

use super::Metadata;
use crate::layout::{Place, RowMap};
use crate::units::Row;
use core::ops::Range;

impl Metadata {
    pub(crate) fn has_generation(&self, extent: u64, generation: u8) -> bool {
        let all = generation == 0 && self.superblock.written_all;
        all || self.written.get(self.written_bit(extent, generation))
    }

    pub(crate) fn has_durably(&self, extent: u64, generation: u8) -> bool {
        let all = generation == 0 && self.superblock.written_all;
        all || self
            .written
            .is_durable(self.written_bit(extent, generation))
    }

    /// How many generations of data cells are part of a row, from the first on.
    pub(crate) fn generations_of(&self, row: Row) -> u8 {
        let extent = self.extent_of(row);
        let written =
            (0..self.layout.generations()).take_while(|nth| self.has_generation(extent, *nth));
        written.count() as u8 // at most CELLS_MAX
    }

    /// Whether anything of a row was ever written.
    pub(crate) fn is_written(&self, row: Row) -> bool {
        let there = self.has_generation(self.extent_of(row), 0) || self.is_made(row);
        there && !self.layout.is_dead(row)
    }

    /// Whether anything of a row was ever written that is still in the former shape.
    pub(crate) fn was_written(&self, row: Row) -> bool {
        self.has_generation(self.extent_of(row), 0)
    }

    /// Whether the cell at a place is part of its row.
    pub(crate) fn is_written_at(&self, place: Place) -> bool {
        if self.layout.is_reshaping() {
            return self.is_written(place.row);
        }
        let last = self.layout.generation_of(place.data);
        let extent = self.extent_of(place.row);
        (0..=last).all(|nth| self.has_generation(extent, nth))
    }

    /// The cells of a row, of those that are part of it by now. Of a row in which nothing is written: all
    /// there will be.
    pub(crate) fn row_map(&self, row: Row) -> RowMap {
        if self.layout.rows_are_runs() {
            return self.layout.row(row);
        }
        match self.generations_of(row) {
            0 => self.row_with(row, self.layout.generations()),
            generations => self.row_with(row, generations),
        }
    }

    /// What the bit of an extent says, and is to say of its rows in the new shape.
    pub(crate) fn put_extent(&mut self, extent: u64, written: bool) {
        self.written.put(extent, written);
    }

    /// Whether the members' maps say of these extents what ours does.
    pub(crate) fn extents_durable(&self, extents: Range<u64>) -> bool {
        self.written.on_record(extents)
    }

    /// Every extent has a bit of its own.
    pub(crate) fn put_all_extents(&mut self) {
        for extent in 0..self.extents() {
            self.written.put(extent, true);
        }
    }

    /// Bits of a generation that tell of cells whose earlier generations count for nothing: a crash came
    /// between two pages of the map. Nobody has written there, and who was rebuilt since does not have the
    /// zeros. And bits of a generation that is not there yet: what lay in the map before.
    pub(crate) fn forget_unfinished(&mut self) {
        for extent in 0..self.extents() {
            let generations = 0..self.layout.generations();
            let real = generations.take_while(|nth| self.has_generation(extent, *nth));
            for generation in real.count() as u8..self.layout.generations_to_come() {
                let bit = self.written_bit(extent, generation);
                self.written.put(bit, false);
            }
        }
    }

    /// While a member is missing, a whole extent that becomes real is something it lacks: that is on record
    /// first.
    pub(crate) fn extent_announced(&mut self, extent: u64) -> bool {
        self.layout.tolerance() == 0 || self.complete() || self.owe_extent(extent)
    }

    pub(crate) fn owe_extent(&mut self, extent: u64) -> bool {
        let first = extent * self.superblock.extent_rows;
        let last = (first + self.superblock.extent_rows).min(self.layout.rows()) - 1;
        self.owe_rows(Row(first), Row(last))
    }

    /// These generations are real in an extent from this row of it on.
    pub(crate) fn made_real(&mut self, extent: u64, first: u64, generations: Range<u8>) {
        let from = generations.start;
        for generation in generations {
            let bit = self.written_bit(extent, generation);
            self.written.put(bit, true);
        }
        if from == 0 {
            let end = (extent + 1) * self.superblock.extent_rows;
            self.tasks.note_in_step(first, end - first);
        }
    }
}
