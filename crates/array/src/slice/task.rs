//! What tasks do to a row: fill a cell for an incoming member, bring parity or copies in step.

use super::gather::Source;
use super::{Extra, Phase};
use crate::core::Core;
use crate::layout::{CellSet, Role, RowMap};
use crate::planted::Bug;
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
        // Who is filled gets nothing of what was moved away from the slot: after a crash nobody may look for it there.
        let stays_moved = self.durably_moved(row.0..row.0 + 1);
        if self.extent_in_motion(row) || !stays_moved || !self.losses_settled(id) {
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

    /// Whether it is on record what the slice has called lost, and the cells may become zeros where they stand.
    pub(super) fn losses_settled(&mut self, id: u32) -> bool {
        let slice = self.slices.get(id);
        let (map, zeroed) = (slice.map, slice.zeroed);
        zeroed.is_empty() || !self.lost.dirty() && self.may_change(&map, zeroed)
    }

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
        let source = if let Some(parity) = map.parity_at(cell) {
            slice.extra_ref(Extra::New(parity)).map(Source::Buf)
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

    pub(crate) fn step_resync(&mut self, id: u32, compares: bool) {
        match self.slices.get(id).phase {
            Phase::Preparing => self.begin_resync(id, compares),
            Phase::Reading if self.below.layout.parity() => self.plan_resync(id, compares),
            Phase::Reading => self.resync_copies(id),
            Phase::Combining => self.resync_computed(id),
            Phase::Comparing => self.resync_compared(id),
            Phase::Writing => self.band_done(id),
            other => unreachable!("a resync is never {other:?}"),
        }
    }

    fn begin_resync(&mut self, id: u32, compares: bool) {
        let row = self.slices.get(id).map.row;
        if self.extent_in_motion(row) || !self.losses_settled(id) {
            return self.await_metadata(id);
        }
        if !self.is_written(row) || self.in_sync(row) {
            return self.finish_slice(id);
        }
        if self.layout.parity() {
            self.plan_resync(id, compares)
        } else {
            self.resync_copies(id)
        }
    }

    /// Parity from the data, and as it is, if that is looked at. A data cell that is missing or unreadable is lost: its parity
    /// cannot be trusted.
    fn plan_resync(&mut self, id: u32, compares: bool) {
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
        let parity = match compares {
            true => self.comparable(id, &map),
            false => CellSet::EMPTY,
        };
        if parity.is_empty() {
            self.reset_band(id, &map)
        } else {
            self.read_cells(id, unreadable.union(parity))
        }
    }

    /// The parities that have not been read, and would say by themselves whether they are in step: one that is being filled elsewhere
    /// as well is written to both.
    fn comparable(&mut self, id: u32, map: &RowMap) -> CellSet {
        let slice = self.slices.get(id);
        if !slice.zeroed.is_empty() {
            return CellSet::EMPTY;
        }
        let unread = map.parity_set().minus(slice.have);
        let unread = unread.intersection(self.readable(id));
        let filled = |cell: &u8| {
            let slot = map.cells[usize::from(*cell)].slot;
            self.standing_at(slot, map.row).incoming.is_some()
        };
        unread.minus(unread.iter().filter(filled).collect())
    }

    fn resync_computed(&mut self, id: u32) {
        let map = self.slices.get(id).map;
        let read = self.slices.get(id).have.intersection(map.parity_set());
        if read.is_empty() {
            return self.write_reset(id, None);
        }
        self.set_phase(id, Phase::Comparing);
        self.compare_parity(id, &map, read);
    }

    /// What was read and agrees stays as it is.
    fn resync_compared(&mut self, id: u32) {
        let slice = self.slices.get(id);
        let (map, serial, differ) = (slice.map, slice.serial, slice.verdicts.differ);
        let read = slice.have.intersection(map.parity_set());
        let differ = if self.planted(Bug::ParityBelieved) {
            0
        } else {
            differ
        };
        let agrees = |(parity, cell): (u8, u8)| {
            (read.contains(cell) && differ & 1 << parity == 0).then_some(cell)
        };
        let in_step: CellSet = map.parities().filter_map(agrees).collect();
        if in_step != read {
            self.tasks.out_of_step(serial);
        }
        self.set_phase(id, Phase::Writing);
        let stale = self.live_cells(&map).minus(in_step);
        self.write_parity(id, &map, stale);
        self.hand_over(id);
        if self.slices.get(id).pending == 0 {
            self.slices.requeue(id);
        }
    }

    /// The first copy that can be read is copied over the others.
    fn resync_copies(&mut self, id: u32) {
        let map = self.slices.get(id).map;
        let held = self.slices.get(id).have.first();
        let Some(source) = held else {
            return match self.readable(id).first() {
                Some(cell) => self.read_cells(id, CellSet::only(cell)),
                None if self.narrow(id) => {}
                None => {
                    self.lose_first(id);
                    self.band_done(id);
                }
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

impl Core {
    /// A first copy that goes ahead of the others cannot be read: what they have instead is old.
    fn lose_first(&mut self, id: u32) {
        let slice = &self.slices.list[id as usize];
        if !self.first_alone(slice.row) {
            return;
        }
        let (map, band, sectors) = (slice.map, slice.band, slice.band_sectors);
        for cell in map.data_set().iter() {
            if self.layout.is_addressed(map.row, cell) {
                self.lose(self.layout.lba(map.row, cell, band), sectors);
            }
        }
    }
}

/// The data cell whose content a cell holds; a parity cell holds its own.
fn data_of(map: &RowMap, cell: u8) -> u8 {
    match map.cells[cell as usize].role {
        Role::Copy { of } => of,
        Role::Data(_) | Role::P | Role::Q | Role::Parity(_) => cell,
    }
}
