//! Moves chunks of a row to the slots that a growth gives them (`task/growth`).
//!
//! The row is locked as a whole. What cannot be read is recovered; what is lost for good becomes zeros where it stands, with
//! parity made to fit, and is moved then like the rest.
//!
//! Rows of a region go together: what is read is written when nothing more is being read for others of them, so that what lies
//! side by side on a member is read, and written, at once (`coalesce`).

use super::gather::Source;
use super::{Extra, Kind, Phase, Slice};
use crate::contract::Moves;
use crate::core::Core;
use crate::layout::{CellSet, RowMap};
use crate::units::Row;
use alloc::vec::Vec;

impl Core {
    pub(super) fn step_move(&mut self, id: u32) {
        let slice = self.slices.get(id);
        let (row, resets) = (slice.map.row, !slice.zeroed.is_empty());
        match slice.phase {
            Phase::Preparing => self.begin_move(id),
            Phase::Combining if resets => self.write_reset(id, None),
            Phase::Reading | Phase::Recovering | Phase::Combining | Phase::Merging => {
                self.plan_move(id)
            }
            Phase::Writing => self.band_moved(id),
            other => unreachable!("a move is never {other:?}"),
        }
        self.tasks.moved_now = true;
        self.release_batch(row);
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
        let wanted = self
            .wanted_of_move(&map, moving)
            .minus(self.slices.get(id).have);
        if wanted.is_empty() {
            if self.wants_parity(id, &map, moving) {
                return self.compute_parity(id, map.parity_set());
            }
            return match self.batch_reads(map.row) {
                true => self.set_phase(id, Phase::Merging),
                false => self.write_moved(id, moving, &after),
            };
        }
        let readable = self.readable(id);
        let at_hand = wanted.intersection(readable);
        if !at_hand.is_empty() {
            return self.read_cells(id, at_hand);
        }
        self.recover_moving(id, &map, wanted, readable);
    }

    /// What has to be at hand: what moves, and what a comparison has parity made of.
    fn wanted_of_move(&self, map: &RowMap, moving: CellSet) -> CellSet {
        match self.tasks.moves {
            _ if moving.is_empty() => moving,
            Moves::ParityInPlace => moving.union(map.parity_set()),
            Moves::ParityRecomputed => map.data_set(),
            Moves::Best | Moves::Chunkwise | Moves::Recorded => moving,
        }
    }

    /// Whether parity is yet to be made of the data, for a comparison.
    fn wants_parity(&mut self, id: u32, map: &RowMap, moving: CellSet) -> bool {
        let recomputed = self.tasks.moves == Moves::ParityRecomputed;
        let made = self.slices.get(id).extra_ref(Extra::New(0)).is_some();
        recomputed && !made && map.p().is_some() && !moving.is_empty()
    }

    /// Whether something is still being read or computed for rows that are moved together with this one. Who waits for its row, or for
    /// metadata, is not waited for.
    fn batch_reads(&self, row: Row) -> bool {
        self.batch_of(row).any(|(_, slice)| {
            matches!(
                slice.phase,
                Phase::Reading | Phase::Recovering | Phase::Combining
            )
        })
    }

    /// Rows that wait to be written with others are, as soon as nothing is read for those.
    fn release_batch(&mut self, row: Row) {
        if self.batch_reads(row) {
            return;
        }
        let read = self.batch_of(row);
        let read = read.filter(|(_, slice)| slice.phase == Phase::Merging);
        let read: Vec<u32> = read.map(|(id, _)| id).collect();
        read.into_iter().for_each(|id| self.slices.requeue(id));
    }

    /// From now on other rows may go together: who waits for others looks again.
    pub(crate) fn set_moves(&mut self, moves: Moves) {
        self.tasks.moves = moves;
        let slices = (0..).zip(&self.slices.list);
        let waits = |slice: &Slice| slice.live && slice.kind == Kind::Move;
        let waiting = slices.filter(|(_, slice)| waits(slice) && slice.phase == Phase::Merging);
        let waiting: Vec<u32> = waiting.map(|(id, _)| id).collect();
        waiting.into_iter().for_each(|id| self.slices.requeue(id));
    }

    fn batch_of(&self, row: Row) -> impl Iterator<Item = (u32, &Slice)> {
        let rows = self.batch_rows();
        let batch = row.0 / rows;
        let slices = (0..).zip(&self.slices.list);
        slices.filter(move |(_, slice)| {
            slice.live && slice.kind == Kind::Move && slice.map.row.0 / rows == batch
        })
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
        if self.tasks.moves.writes_parity() && !moving.is_empty() {
            self.rewrite_parity(id, after);
        }
        if self.slices.get(id).pending == 0 {
            self.slices.requeue(id);
        }
    }

    /// Parity is what it was, wherever its data stand: only the time that this takes is of interest.
    fn rewrite_parity(&mut self, id: u32, after: &RowMap) {
        for cell in after.parity_set().iter() {
            let slice = self.slices.get(id);
            let made = slice.extra_ref(Extra::New(0));
            let content = made.unwrap_or_else(|| slice.cell_ref(cell));
            self.write_cell(id, cell, Source::Buf(content), None);
        }
    }

    fn band_moved(&mut self, id: u32) {
        if self.slices.get(id).error.take().is_some() {
            let now = self.now;
            self.tasks.move_later(now);
            return self.leave_row(id);
        }
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
