//! Moves chunks of a row to the slots that a growth gives them (`task/growth`).
//!
//! The row is locked as a whole. What cannot be read is recovered; what is lost for good becomes zeros where it stands, with
//! parity made to fit, and is moved then like the rest.

use super::Phase;
use super::gather::Source;
use crate::core::Core;
use crate::layout::{CellSet, RowMap};

impl Core {
    pub(super) fn step_move(&mut self, id: u32) {
        match self.slices.get(id).phase {
            Phase::Preparing => self.begin_move(id),
            Phase::Reading | Phase::Recovering => self.plan_move(id),
            Phase::Combining => self.write_reset(id, None),
            Phase::Writing => self.band_moved(id),
            other => unreachable!("a move is never {other:?}"),
        }
    }

    fn begin_move(&mut self, id: u32) {
        let row = self.slices.get(id).map.row;
        if self.extent_in_motion(row) || !self.losses_settled(id) {
            return self.await_metadata(id);
        }
        if !self.complete() {
            return self.leave_row(id);
        }
        if !self.is_written(row) || self.tasks.is_moved(row) {
            return self.finish_slice(id);
        }
        self.plan_move(id);
    }

    /// Somebody is missing: the row stays as it is until the array is whole again.
    fn leave_row(&mut self, id: u32) {
        self.slices.get(id).skipped = true;
        self.finish_slice(id);
    }

    fn plan_move(&mut self, id: u32) {
        let map = self.slices.get(id).map;
        if !self.slices.get(id).zeroed.is_empty() {
            return self.reset_moving(id, &map);
        }
        if !self.complete() {
            return self.leave_row(id);
        }
        let (moving, after) = self.moving_cells(&map);
        let wanted = moving.minus(self.slices.get(id).have);
        if wanted.is_empty() {
            return self.write_moved(id, moving, &after);
        }
        let readable = self.readable(id);
        let at_hand = wanted.intersection(readable);
        if !at_hand.is_empty() {
            return self.read_cells(id, at_hand);
        }
        self.recover_moving(id, &map, wanted, readable);
    }

    fn recover_moving(&mut self, id: u32, map: &RowMap, wanted: CellSet, readable: CellSet) {
        let have = self.slices.get(id).have;
        let trusted = self.layout.parity() && self.in_sync(map.row);
        let recipe = |cell| map.recover(cell, readable.union(have)).filter(|_| trusted);
        let mut missing = CellSet::EMPTY;
        for cell in wanted.iter() {
            match recipe(cell) {
                Some(recipe) => missing = missing.union(recipe.set().minus(have)),
                None if self.narrow(id) => return,
                None => return self.declare_lost(id, CellSet::only(cell)),
            }
        }
        if missing.is_empty() {
            assert!(self.recover_cells(id, wanted), "every recipe is at hand");
        } else {
            self.read_cells(id, missing);
        }
    }

    /// What is lost becomes zeros where it is; then the band begins anew.
    fn reset_moving(&mut self, id: u32, map: &RowMap) {
        match self.layout.parity() {
            true => self.reset_band(id, map),
            false => self.write_reset(id, None),
        }
    }

    fn write_moved(&mut self, id: u32, moving: CellSet, after: &RowMap) {
        self.set_phase(id, Phase::Writing);
        for cell in moving.iter() {
            let content = self.slices.get(id).cell_ref(cell);
            let slot = after.cells[usize::from(cell)].slot;
            for home in self.homes(slot, after.row).write.into_iter().flatten() {
                self.write_cell(id, cell, Source::Buf(content), Some(home));
            }
        }
        if self.slices.get(id).pending == 0 {
            self.slices.requeue(id);
        }
    }

    fn band_moved(&mut self, id: u32) {
        if !self.slices.get(id).zeroed.is_empty() {
            return self.begin_band_again(id);
        }
        // Who failed meanwhile may have been written to.
        if !self.complete() {
            return self.leave_row(id);
        }
        self.band_done(id);
    }
}
