//! Extents that were never written read as zeros and cost nothing; the first write makes one real.
//!
//! | state      | cause                             | next       |
//! |------------|-----------------------------------|------------|
//! | unwritten  | a write wants the extent          | zeroing    |
//! | zeroing    | zeros durable on all live cells   | marking    |
//! | marking    | its bit durable on all members    | written    |
//!
//! Zeros satisfy every code, so the extent's rows are in step from the moment they are theirs.
//!
//! In an array that has grown, each generation of data cells has bits of its own. Cells of a generation that
//! is not written in an extent are no part of its rows: what lies there, perhaps copies that a growth left
//! behind, counts for nothing, and neither the code binds it nor does anybody read it. A generation is never
//! written without those before it: the first write to one zeroes its cells, and theirs.
//!
//! While rows are taken to another shape (`task/reshape`), the bit of an extent is of its rows in the new one
//! if all are in that, else of those in the former. Of an extent with both, those in the new shape are
//! written: it would have been passed as a whole.

use super::{Generations, Init, Safety};
use crate::contract::{Bug, Class, IoOp};
use crate::layout::RowMap;
use crate::members::ops::{METADATA_OPS, Owner};
use crate::units::{Row, Slot};
use alloc::vec::Vec;
use core::ops::Range;

/// As many operations may make one extent real: those of two partitions of every slot, each where it is
/// served and where it is filled.
const INIT_OPS: u32 = 4 * crate::SLOTS_MAX as u32;
/// And all that are made real at a time.
const INITS_OPS: u32 = 12 * INIT_OPS;
/// Rows at a time where slots have some of the cells only: these lie in no more runs than there are rows and
/// slots.
const ROWS_AT_A_TIME: u64 = 32;

/// Sectors of one partition of a slot.
pub(crate) struct Part {
    pub(crate) slot: Slot,
    pub(crate) partition: u16,
    from: u64,
    to: u64,
}

impl Part {
    /// Takes in a chunk if it lies beside what is there.
    fn covers(&mut self, at: u64, chunk: u64) -> bool {
        let beside = at <= self.to && self.from <= at + chunk;
        if beside {
            self.from = self.from.min(at);
            self.to = self.to.max(at + chunk);
        }
        beside
    }
}

impl Safety {
    /// Room for what every admitted slice, the metadata and the direct reads may have outstanding.
    pub(crate) fn size_ops(&mut self) {
        let width = u32::from(self.layout.width());
        let limits = self.config.limits;
        let reserve = limits.slices * (4 * width + 8) + METADATA_OPS + INITS_OPS;
        self.ops.reserve = reserve;
        self.ops.grow(reserve + limits.ios);
    }

    /// Whether cells of a row, up to this data cell, can be written; starts to make them real if need be.
    /// False: wait for metadata to move. `moves`: whether a growth is just moving some of these rows.
    pub(crate) fn make_ready(
        &mut self,
        row: Row,
        last: u8,
        moves: impl Fn(Range<u64>) -> bool,
    ) -> bool {
        let last = self.layout.generation_of(last);
        let extent = self.extent_of(row);
        if (0..=last).all(|nth| self.has_durably(extent, nth)) || self.is_made(row) {
            return true;
        }
        let real = (0..=last).all(|nth| self.has_generation(extent, nth));
        let wanted = self.inits.find(extent).is_none() && !real && self.may_init(extent);
        if wanted
            && self.stands_still(extent, moves)
            && self.ops.available() > METADATA_OPS + INIT_OPS
            && self.extent_announced(extent)
        {
            self.begin_init(row, last);
        }
        false
    }

    /// Of the rows of an extent that is real, those in doubt, if a write up to this data cell makes cells
    /// part of them that a growth added, and a member is missing. Its cell is zeros, which only the row's
    /// parity would show: a resync has to come first, while the cell is no part of the row.
    pub(crate) fn in_doubt_before_growing(&self, row: Row, last: u8) -> Vec<Row> {
        let last = self.layout.generation_of(last);
        let extent = self.extent_of(row);
        let has = |nth| self.has_generation(extent, nth);
        let grows = last > 0 && has(0) && !(1..=last).all(has);
        if !grows || !self.layout.parity() || self.complete() || self.tasks.resync().is_none() {
            return Vec::new();
        }
        let first = extent * self.superblock.extent_rows;
        let end = (first + self.superblock.extent_rows).min(self.layout.rows());
        let rows = (first..end).map(Row);
        rows.filter(|row| !self.in_sync(*row)).collect()
    }

    /// Whether no row of an extent is just being moved by a growth, with the cells that it has and no more,
    /// and a crash would find none on the places that it was moved from.
    fn stands_still(&mut self, extent: u64, moves: impl Fn(Range<u64>) -> bool) -> bool {
        let first = extent * self.superblock.extent_rows;
        let end = (first + self.superblock.extent_rows).min(self.layout.rows());
        let moves = self.layout.is_growing() && moves(first..end);
        !moves && self.durably_moved(first..end)
    }

    /// Whether no extent is just becoming real.
    pub(crate) fn makes_no_extents(&self) -> bool {
        self.inits.is_empty()
    }

    /// Whether any of these extents is just becoming real.
    pub(crate) fn makes_any_of(&self, extents: &Range<u64>) -> bool {
        self.inits.any_of(extents)
    }

    /// A member failed: extents that are just becoming real may be real without it.
    pub(crate) fn owe_inits(&mut self) {
        for index in 0..self.inits.list.len() {
            if let Some(init) = self.inits.list[index] {
                self.owe_extent(init.extent);
            }
        }
    }

    /// Whether a task must wait with a row because some of it is just being made real.
    pub(crate) fn extent_in_motion(&self, row: Row) -> bool {
        if self.superblock.written_all && self.layout.generations() == 1 {
            return false;
        }
        let extent = self.extent_of(row);
        let moves = |nth: u8| self.has_generation(extent, nth) != self.has_durably(extent, nth);
        self.inits.find(extent).is_some() || (0..self.layout.generations()).any(moves)
    }

    fn begin_init(&mut self, row: Row, last: u8) {
        let extent = self.extent_of(row);
        let first = extent * self.superblock.extent_rows;
        // What lies in front of rows of a former shape is dead, or in the new one.
        let first = match row < self.layout.edge() {
            true => first,
            false => first.max(self.layout.live_from().0),
        };
        let generations = Generations {
            from: self.generations_of(Row(first)),
            to: last + 1,
        };
        let index = self.inits.add(Init {
            extent,
            first,
            generations,
            next: first,
            outstanding: 0,
            zeroed: false,
        });
        self.go_on_with_init(index);
    }

    /// Zeroes what becomes real in the next rows of an extent, or in all of them.
    fn go_on_with_init(&mut self, index: usize) {
        let Init {
            extent,
            generations,
            next,
            ..
        } = *self.init_mut(index);
        let end = (extent + 1) * self.superblock.extent_rows;
        let end = end.min(self.layout.rows());
        let to = match self.layout.rows_are_runs() {
            true => end,
            false => end.min(next + ROWS_AT_A_TIME),
        };
        let from = self.layout.cells_through(generations.from);
        let data = from..self.layout.cells_through(generations.to);
        let redundancy = generations.from == 0;
        let wanted = |map: &RowMap, cell| data.contains(&cell) || redundancy && cell >= map.data;
        let parts = self.parts(next, to, wanted);
        self.init_mut(index).next = to;
        let started = self.zero_parts(index, &parts);
        self.init_mut(index).outstanding = started;
        if started == 0 {
            self.init_zeroed(index);
        }
    }

    fn zero_parts(&mut self, index: usize, parts: &[Part]) -> u32 {
        let mut started = 0;
        let added = self.init_mut(index).generations.from > 0;
        let forgotten = added && self.planted(Bug::AddedNotZeroed);
        let zeroes = !forgotten && !self.planted(Bug::ExtentNotZeroed);
        for part in parts.iter().filter(|_| zeroes) {
            let homes = self.extent_homes(part.slot, part.partition);
            for home in homes.into_iter().flatten() {
                let (owner, class) = (Owner::ExtentInit(index as u32), Class::Metadata);
                let (member, at, sectors) = (home.member, home.at(part.from), part.to - part.from);
                self.device_io(owner, member, IoOp::Zero, at, sectors, class, |io| {
                    io.durable = true;
                });
                started += 1;
            }
        }
        started
    }

    /// What some cells of rows `first..end` cover of each slot's partitions.
    fn parts(&self, first: u64, end: u64, wanted: impl Fn(&RowMap, u8) -> bool) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        let chunk = self.layout.chunk_sectors();
        for row in (first..end).map(Row) {
            let map = self.row_with(row, self.layout.generations());
            let partition = self.layout.partition_of(row);
            let cells = (0..).zip(map.cells());
            for (_, cell) in cells.filter(|(index, _)| wanted(&map, *index)) {
                let same = |part: &Part| (part.slot, part.partition) == (cell.slot, partition);
                let mut known = parts.iter_mut().filter(|part| same(part));
                if !known.any(|part| part.covers(cell.at, chunk)) {
                    parts.push(Part {
                        slot: cell.slot,
                        partition,
                        from: cell.at,
                        to: cell.at + chunk,
                    });
                }
            }
        }
        parts
    }

    fn init_mut(&mut self, index: usize) -> &mut Init {
        let init = self.inits.list[index].as_mut();
        init.expect("an init lives until its bit is durable")
    }

    pub(crate) fn extent_zeroed(&mut self, init: u32) {
        let state = self.init_mut(init as usize);
        state.outstanding -= 1;
        if state.outstanding == 0 {
            self.init_zeroed(init as usize);
        }
    }

    /// The extent counts as written once it is on record who was not there to be zeroed.
    fn init_zeroed(&mut self, index: usize) {
        let Init { extent, next, .. } = *self.init_mut(index);
        let end = (extent + 1) * self.superblock.extent_rows;
        if next < end.min(self.layout.rows()) && !self.halted() {
            return self.go_on_with_init(index);
        }
        self.init_mut(index).zeroed = true;
        self.inits_settle();
    }

    pub(crate) fn inits_settle(&mut self) {
        for index in 0..self.inits.list.len() {
            if self.halted() {
                // Its zeros are nowhere but in its being unwritten.
                self.inits.list[index] = self.inits.list[index].filter(|init| !init.zeroed);
            }
            if let Some(init) = self.inits.list[index].filter(|init| init.zeroed)
                && self.settled()
                && self.extent_announced(init.extent)
            {
                self.inits.list[index] = None;
                let Generations { from, to } = init.generations;
                self.made_real(init.extent, init.first, from..to);
                self.note_extent_written(init.extent);
            }
        }
    }
}
