//! Makes a row of a new shape out of the rows that hold its data so far (`task/reshape`).
//!
//! The slice has the row locked that it makes. Nobody writes to the rows that it reads: users wait, and no other task has a
//! window out. What cannot be read is recovered; what is lost for good moves as zeros, and stays on the lost list.

use super::gather::Source;
use super::{Extra, Kind, Need, Phase};
use crate::contract::{BAND_SECTORS_MAX, Buf, Class, IoOp, RequestError, Segment};
use crate::core::Core;
use crate::layout::{CellSet, RowMap};
use crate::members::ops::{Owner, SliceOp};
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
    cells: [Option<Buf>; CELLS_MAX],
    known: CellSet,
    /// Of those, what needs no buffer.
    zeros: CellSet,
    /// The row that is being read.
    source: Option<Row>,
}

impl Made {
    pub(super) fn drop_buffers(&mut self, buffers: &mut Buffers) {
        for held in &mut self.cells {
            if let Some(buf) = held.take() {
                buffers.give_back(buf);
            }
        }
    }

    fn know(&mut self, data: u8, content: Option<Buf>) {
        self.known = self.known.with(data);
        if content.is_none() {
            self.zeros = self.zeros.with(data);
        }
        self.cells[usize::from(data)] = content;
    }
}

/// Neighbouring data cells of a row of the new shape that one former row holds.
#[derive(Clone, Copy, Debug)]
struct Piece {
    data: u8,
    row: Row,
    /// The first of them there.
    cell: u8,
    count: u8,
}

impl Piece {
    fn cells(&self) -> CellSet {
        let cells = self.cell..self.cell + self.count;
        cells.fold(CellSet::EMPTY, CellSet::with)
    }
}

impl Core {
    /// Starts to make a row; false if there is no room for it now.
    pub(crate) fn start_reshaping_row(&mut self, row: Row, aim: Aim) -> bool {
        let chunk = self.layout.chunk_sectors();
        let need = Need {
            kind: Kind::Reshape(aim),
            row,
            start: 0,
            sectors: chunk,
            step: chunk.min(BAND_SECTORS_MAX),
            buffers: self.reshape_buffers(),
        };
        self.admit_slice(&need).is_some()
    }

    pub(super) fn step_reshape(&mut self, id: u32, aim: Aim) {
        match (self.slices.get(id).phase, aim) {
            (Phase::Preparing, _) => self.begin_row(id, aim),
            (Phase::Reading | Phase::Recovering, Aim::Settle) => self.plan_settling(id),
            (Phase::Reading | Phase::Recovering, _) => self.gather_row_data(id),
            (Phase::Combining, _) => self.write_row(id, aim),
            (Phase::Writing, _) => self.band_done(id),
            (other, _) => unreachable!("a row of a new shape is never {other:?}"),
        }
    }

    fn begin_row(&mut self, id: u32, aim: Aim) {
        let slice = self.slices.get(id);
        slice.made = Made::default();
        let row = slice.row;
        if aim == Aim::Settle {
            let map = self.layout.new_row(row);
            self.slices.get(id).map = map;
            return self.plan_settling(id);
        }
        self.gather_row_data(id);
    }

    // -------------------------------------------------------------------------------------------------- gathering

    fn gather_row_data(&mut self, id: u32) {
        if self.halted() || !self.complete() {
            return self.abandon_row(id);
        }
        while let Some(piece) = self.next_piece_of_row(id) {
            self.turn_to_source(id, piece.row);
            let slice = self.slices.get(id);
            let missing = piece.cells().minus(slice.have).minus(slice.zeroed);
            if missing.is_empty() {
                self.take_piece(id, &piece);
            } else if !self.fetch(id, missing) {
                return;
            }
        }
        self.combine_row(id);
    }

    /// Somebody is missing: what only he can tell is not lost for that.
    fn abandon_row(&mut self, id: u32) {
        self.slices.get(id).error = Some(RequestError::Unavailable);
        self.finish_slice(id);
    }

    /// What is to be known next. What was never written, or is new capacity, is zeros at once.
    fn next_piece_of_row(&mut self, id: u32) -> Option<Piece> {
        let cells = self.layout.data_cells() as u8; // at most CELLS_MAX
        let row = self.slices.get(id).row;
        loop {
            let known = self.slices.get(id).made.known;
            let data = (0..cells).find(|data| !known.contains(*data))?;
            match self.source_of(row, data) {
                Some((from, cell, in_row)) => {
                    return Some(Piece {
                        data,
                        row: from,
                        cell,
                        count: (in_row - cell).min(cells - data),
                    });
                }
                None => self.slices.get(id).made.know(data, None),
            }
        }
    }

    /// The former row and the cell there that holds a data cell of a new one, and how many data cells that row has.
    fn source_of(&self, row: Row, data: u8) -> Option<(Row, u8, u8)> {
        let (cells, _) = self.layout.former_shape().expect("a reshape is under way");
        let chunk = row.0 * self.layout.data_cells() + u64::from(data);
        let from = chunk / u64::from(cells);
        let cell = (chunk % u64::from(cells)) as u8; // below `cells`
        let there = from < self.layout.rows() && self.was_written(Row(from));
        there.then_some((Row(from), cell, cells))
    }

    fn turn_to_source(&mut self, id: u32, row: Row) {
        if self.slices.get(id).made.source == Some(row) {
            return;
        }
        let map = self.layout.former_row(row);
        let slice = self.slices.get(id);
        slice.made.source = Some(row);
        slice.map = map;
        (slice.have, slice.bad, slice.zeroed) = Default::default();
    }

    /// Reads cells of the source, or recovers them. True if what is lost became zeros without further ado.
    fn fetch(&mut self, id: u32, missing: CellSet) -> bool {
        let readable = self.readable(id);
        let at_hand = missing.intersection(readable);
        if !at_hand.is_empty() {
            self.read_cells(id, at_hand);
            return false;
        }
        let slice = self.slices.get(id);
        let (map, have) = (slice.map, slice.have);
        let trusted = self.layout.parity() && self.in_sync(map.row);
        let mut reads = CellSet::EMPTY;
        for cell in missing.iter() {
            let recipe = map.recover(cell, readable.union(have));
            match recipe.filter(|_| trusted) {
                Some(recipe) => reads = reads.union(recipe.set().minus(have)),
                None if self.narrow(id) => return false,
                None => {
                    self.lose_moving(id, self.layout.lba(map.row, cell, 0), cell);
                    return true;
                }
            }
        }
        if reads.is_empty() {
            assert!(self.recover_cells(id, missing), "every recipe is at hand");
        } else {
            self.read_cells(id, reads);
        }
        false
    }

    /// A block that nobody can tell becomes zeros. `chunk`: the first sector of its chunk.
    fn lose_moving(&mut self, id: u32, chunk: u64, cell: u8) {
        let slice = self.slices.get(id);
        slice.zeroed = slice.zeroed.with(cell);
        let (lba, sectors) = (chunk + slice.band, slice.band_sectors);
        let told = self.lost.extents.within(lba, sectors);
        if told.iter().map(|(_, count)| count).sum::<u64>() < sectors {
            self.lose(lba, sectors);
        }
    }

    fn take_piece(&mut self, id: u32, piece: &Piece) {
        let slice = self.slices.get(id);
        for nth in 0..piece.count {
            let (data, cell) = (piece.data + nth, piece.cell + nth);
            let content = match slice.zeroed.contains(cell) {
                true => None,
                false => slice.cells[usize::from(cell)].take(),
            };
            slice.made.know(data, content);
        }
        slice.made.source = None;
        let width = usize::from(slice.map.width);
        for held in &mut slice.cells[..width] {
            if let Some(buf) = held.take() {
                self.below.buffers.give_back(buf);
            }
        }
    }

    /// All data are known: they are cells of the new row from here on.
    fn combine_row(&mut self, id: u32) {
        let map = self.below.layout.new_row(self.slices.get(id).row);
        let slice = self.slices.get(id);
        slice.map = map;
        let made = core::mem::take(&mut slice.made);
        slice.cells[..usize::from(map.data)].copy_from_slice(&made.cells[..usize::from(map.data)]);
        (slice.have, slice.zeroed) = (made.known.minus(made.zeros), made.zeros);
        slice.bad = CellSet::EMPTY;
        self.compute_row(id, &map);
    }

    fn compute_row(&mut self, id: u32, map: &RowMap) {
        let zeros = self.slices.get(id).have.is_empty();
        if self.layout.parity() && !zeros {
            return self.compute_parity(id, map.parity_set());
        }
        let Kind::Reshape(aim) = self.slices.get(id).kind else {
            unreachable!("it makes a row")
        };
        self.write_row(id, aim);
    }

    // ---------------------------------------------------------------------------------------------------- writing

    fn write_row(&mut self, id: u32, aim: Aim) {
        self.set_phase(id, Phase::Writing);
        let map = self.slices.get(id).map;
        for cell in map.all().iter() {
            let source = self.made_cell(id, &map, cell);
            match aim {
                Aim::Place | Aim::Settle => self.write_cell(id, cell, source, None),
                Aim::Journal => {
                    if let Some(home) = self.journal_home(&map, cell) {
                        self.write_cell(id, cell, source, Some(home));
                    }
                }
            }
        }
        if self.slices.get(id).pending == 0 {
            self.slices.requeue(id);
        }
    }

    /// What a cell of the row is to hold. Parity that was computed goes before what the journal had.
    fn made_cell(&mut self, id: u32, map: &RowMap, cell: u8) -> Source {
        let slice = self.slices.get(id);
        let parity = map.parity_at(cell);
        let computed = parity.and_then(|parity| slice.extra_ref(Extra::New(parity)));
        match computed {
            Some(parity) => Source::Buf(parity),
            None if slice.have.contains(cell) => Source::Buf(slice.cell_ref(cell)),
            None => Source::Zero,
        }
    }

    // --------------------------------------------------------------------------------------------------- settling

    fn plan_settling(&mut self, id: u32) {
        if self.halted() {
            return self.abandon_row(id);
        }
        let slice = self.slices.get(id);
        let (map, have, zeroed, bad) = (slice.map, slice.have, slice.zeroed, slice.bad);
        let there = |cell: &u8| self.journal_home(&map, *cell).is_some();
        let there: CellSet = map.all().iter().filter(there).collect();
        let unread = there.minus(bad).minus(have);
        if !unread.is_empty() && zeroed.is_empty() {
            return self.read_journal(id, &map, unread);
        }
        if !zeroed.is_empty() {
            return self.compute_row(id, &map);
        }
        let missing = map.all().minus(have);
        let recipe = |cell: u8| map.recover(cell, have);
        if missing.iter().all(|cell| recipe(cell).is_some()) {
            return match missing.is_empty() {
                true => self.write_row(id, Aim::Settle),
                false => assert!(self.recover_cells(id, missing), "checked above"),
            };
        }
        if self.narrow(id) {
            return;
        }
        for cell in missing.intersection(map.data_set()).iter() {
            let chunk = self.layout.new_lba(map.row, cell);
            self.lose_moving(id, chunk, cell);
        }
        match self.slices.get(id).zeroed.is_empty() {
            true => self.compute_row(id, &map),
            false => self.plan_settling(id),
        }
    }

    fn read_journal(&mut self, id: u32, map: &RowMap, cells: CellSet) {
        self.set_phase(id, Phase::Reading);
        for cell in cells.iter() {
            let home = self.journal_home(map, cell).expect("checked by the caller");
            let target = self.cell_buffer(id, cell);
            let slice = self.slices.get(id);
            let (at, sectors) = (slice.band, slice.band_sectors);
            slice.have = slice.have.with(cell);
            slice.pending += 1;
            let at = home.at(map.cells[usize::from(cell)].at) + at;
            let what = SliceOp::Read { cell };
            let owner = Owner::Slice { slice: id, what };
            self.device_io(
                owner,
                home.member,
                IoOp::Read,
                at,
                sectors,
                Class::Task,
                |io| io.segments.push(Segment::Buf(target)),
            );
        }
    }
}
