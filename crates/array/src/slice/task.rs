//! What tasks do to a row: fill a cell for an incoming member, bring parity or copies in step.

use super::gather::Source;
use super::{Extra, Phase};
use crate::core::Core;
use crate::layout::{CellSet, Role, RowMap};
use crate::standing::Home;
use crate::units::Slot;

impl Core {
    // ---------------------------------------------------------------------------------------------------- filling

    pub(crate) fn step_fill(&mut self, id: u32, slot: u16) {
        match self.slices.get(id).phase {
            Phase::Preparing => self.begin_fill(id, slot),
            Phase::Reading | Phase::Recovering => self.plan_fill(id, slot),
            Phase::Combining => self.write_reset(id, Some(slot)),
            Phase::Writing => self.band_done(id),
            other => unreachable!("a fill is never {other:?}"),
        }
    }

    fn begin_fill(&mut self, id: u32, slot: u16) {
        let row = self.slices.get(id).map.row;
        if self.extent_in_motion(row)
            || (!self.slices.get(id).zeroed.is_empty() && self.lost.dirty())
        {
            return self.await_metadata(id);
        }
        if !self.is_written(row) || self.standing_at(Slot(slot), row).incoming.is_none() {
            return self.finish_slice(id);
        }
        self.plan_fill(id, slot);
    }

    fn plan_fill(&mut self, id: u32, slot: u16) {
        let map = self.slices.get(id).map;
        let Some(target) = self.standing_at(Slot(slot), map.row).incoming else {
            return self.finish_slice(id);
        };
        let Some(cell) = map.cell_on(Slot(slot)) else {
            return self.finish_slice(id);
        };
        let have = self.slices.get(id).have;
        if have.contains(cell) {
            return self.write_fill(id, cell, target);
        }
        if !self.slices.get(id).zeroed.is_empty() {
            return self.reset_band(id, &map);
        }
        let readable = self.readable(id);
        if readable.contains(cell) {
            return self.read_cells(id, CellSet::only(cell));
        }
        let trusted = !self.layout.parity() || self.in_sync(map.row);
        match map
            .recover(cell, readable.union(have).without(cell))
            .filter(|_| trusted)
        {
            Some(recipe) if !recipe.set().within(have) => {
                self.read_cells(id, recipe.set().minus(have))
            }
            Some(_) => {
                self.recover_cells(id, CellSet::only(cell));
            }
            None => {
                if !self.narrow(id) {
                    let unreadable = map.data_set().minus(self.readable(id));
                    self.declare_lost(id, unreadable);
                }
            }
        }
    }

    fn write_fill(&mut self, id: u32, cell: u8, target: Home) {
        self.set_phase(id, Phase::Writing);
        let content = self.slices.get(id).cell_ref(cell);
        self.write_cell(id, cell, Source::Buf(content), Some(target));
        self.hand_over(id);
    }

    // ------------------------------------------------------------------------------------------------- resetting

    /// A block in which something is lost for good: the lost cells become zeros, and parity is made to fit.
    pub(super) fn reset_band(&mut self, id: u32, map: &RowMap) {
        let slice = self.slices.get(id);
        let wanted = map.data_set().minus(slice.zeroed).minus(slice.have);
        let readable = self.readable(id);
        if !wanted.within(readable) {
            let more = wanted.minus(readable);
            return self.declare_lost(id, more);
        }
        if wanted.is_empty() {
            self.compute_parity(id, map.parity_set())
        } else {
            self.read_cells(id, wanted)
        }
    }

    /// Writes what a reset decided: zeros and parity, to the serving members and to the one being filled.
    pub(super) fn write_reset(&mut self, id: u32, slot: Option<u16>) {
        let map = self.slices.get(id).map;
        let live = self.live_cells(&map);
        let zeroed = self.slices.get(id).zeroed;
        self.set_phase(id, Phase::Writing);
        for cell in live
            .iter()
            .filter(|&cell| zeroed.contains(data_of(&map, cell)))
        {
            self.write_cell(id, cell, Source::Zero, None);
        }
        self.write_parity(id, &map, live);
        self.hand_over(id);
        if let Some(slot) = slot.map(Slot)
            && let Some(target) = self.standing_at(slot, map.row).incoming
            && let Some(cell) = map.cell_on(slot)
        {
            self.write_reset_target(id, &map, cell, target);
        }
        if self.slices.get(id).pending == 0 {
            self.slices.requeue(id);
        }
    }

    fn write_reset_target(&mut self, id: u32, map: &RowMap, cell: u8, target: Home) {
        let slice = self.slices.get(id);
        let extra = if map.p() == Some(cell) {
            Extra::NewP
        } else {
            Extra::NewQ
        };
        let source = if map.parity_set().contains(cell) {
            slice.extra_ref(extra).map(Source::Buf)
        } else if slice.zeroed.contains(data_of(map, cell)) {
            Some(Source::Zero)
        } else {
            Some(Source::Buf(slice.cell_ref(cell)))
        };
        if let Some(source) = source {
            self.write_cell(id, cell, source, Some(target));
        }
    }

    // ------------------------------------------------------------------------------------------- resynchronising

    pub(crate) fn step_resync(&mut self, id: u32) {
        match self.slices.get(id).phase {
            Phase::Preparing => self.begin_resync(id),
            Phase::Reading if self.layout.parity() => self.plan_resync(id),
            Phase::Reading => self.resync_copies(id),
            Phase::Combining => self.write_reset(id, None),
            Phase::Writing => self.band_done(id),
            other => unreachable!("a resync is never {other:?}"),
        }
    }

    fn begin_resync(&mut self, id: u32) {
        let row = self.slices.get(id).map.row;
        if self.extent_in_motion(row)
            || (!self.slices.get(id).zeroed.is_empty() && self.lost.dirty())
        {
            return self.await_metadata(id);
        }
        if !self.is_written(row) || self.in_sync(row) {
            return self.finish_slice(id);
        }
        if self.layout.parity() {
            self.plan_resync(id)
        } else {
            self.resync_copies(id)
        }
    }

    /// Parity from the data. A data cell that is missing or unreadable is lost: its parity cannot be trusted.
    fn plan_resync(&mut self, id: u32) {
        let map = self.slices.get(id).map;
        let live = self.live_cells(&map);
        if live.intersection(map.parity_set()).is_empty() {
            return self.band_done(id);
        }
        let slice = self.slices.get(id);
        let unreadable = map.data_set().minus(slice.zeroed).minus(slice.have);
        let readable = self.readable(id);
        let absent = unreadable.minus(readable);
        if !absent.is_empty() {
            if !self.narrow(id) {
                self.declare_lost(id, absent);
            }
            return;
        }
        self.reset_band(id, &map);
    }

    /// The first copy that can be read is copied over the others.
    fn resync_copies(&mut self, id: u32) {
        let map = self.slices.get(id).map;
        let held = self.slices.get(id).have.first();
        let Some(source) = held else {
            return match self.readable(id).first() {
                Some(cell) => self.read_cells(id, CellSet::only(cell)),
                None if self.narrow(id) => {}
                None => self.band_done(id),
            };
        };
        self.set_phase(id, Phase::Writing);
        let content = self.slices.get(id).cell_ref(source);
        let others = self.live_cells(&map).without(source);
        for cell in others.iter() {
            self.write_cell(id, cell, Source::Buf(content), None);
        }
        self.hand_over(id);
        if self.slices.get(id).pending == 0 {
            self.slices.requeue(id);
        }
    }
}

/// The data cell whose content a cell holds; a parity cell holds its own.
fn data_of(map: &RowMap, cell: u8) -> u8 {
    match map.cells[cell as usize].role {
        Role::Copy { of } => of,
        Role::Data(_) | Role::P | Role::Q => cell,
    }
}
