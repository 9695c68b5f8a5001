//! Makes a row of a new shape out of the rows that hold its data so far (`task/reshape`).
//!
//! The slice locks the row that it makes. Nothing writes to the rows that it reads: requests wait, and no
//! other task has a window. Unreadable cells are recovered; lost cells move as zeros, and stay on the lost
//! list.

use super::rows::{Need, Rows};
use super::table::{Aim, Extra, Kind, Made, Phase, Source};
use crate::contract::{BAND_SECTORS_MAX, Class, IoOp, RequestError, Segment};
use crate::layout::{CellSet, RowMap};
use crate::members::ops::{Owner, SliceOp};
use crate::units::Row;

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

/// Starts to make a row; false if there is no room for it now.
pub(crate) fn start(rows: &mut Rows, row: Row, aim: Aim) -> bool {
    let chunk = rows.layout.chunk_sectors();
    let need = Need {
        kind: Kind::Reshape(aim),
        row,
        start: 0,
        sectors: chunk,
        step: chunk.min(BAND_SECTORS_MAX),
        buffers: rows.reshape_buffers(),
    };
    rows.admit_slice(&need).is_some()
}

pub(super) fn step(rows: &mut Rows, id: u32, aim: Aim) {
    match (rows.slices[id].phase, aim) {
        (Phase::Preparing, _) => begin(rows, id, aim),
        (Phase::Reading | Phase::Recovering, Aim::Settle) => plan_settling(rows, id),
        (Phase::Reading | Phase::Recovering, _) => gather(rows, id),
        (Phase::Combining, _) => write(rows, id, aim),
        (Phase::Writing, _) => rows.band_done(id),
        (other, _) => unreachable!("a row of a new shape is never {other:?}"),
    }
}

fn begin(rows: &mut Rows, id: u32, aim: Aim) {
    let slice = &mut rows.slices[id];
    slice.made = Made::default();
    let row = slice.row;
    if aim == Aim::Settle {
        let map = rows.layout.new_row(row);
        rows.slices[id].map = map;
        return plan_settling(rows, id);
    }
    gather(rows, id);
}

// ----------------------------------------------------------------------------------------------- gathering

fn gather(rows: &mut Rows, id: u32) {
    if rows.halted() || !rows.complete() {
        return abandon(rows, id);
    }
    while let Some(piece) = next_piece(rows, id) {
        turn_to_source(rows, id, piece.row);
        let slice = &mut rows.slices[id];
        let missing = piece.cells().minus(slice.have).minus(slice.zeroed);
        if missing.is_empty() {
            take_piece(rows, id, &piece);
        } else if !fetch(rows, id, missing) {
            return;
        }
    }
    combine(rows, id);
}

/// A member is missing: what only this member has is not lost yet.
fn abandon(rows: &mut Rows, id: u32) {
    rows.slices[id].error = Some(RequestError::Unavailable);
    rows.finish_slice(id);
}

/// What is to be known next. What was never written, or is new capacity, is zeros at once.
fn next_piece(rows: &mut Rows, id: u32) -> Option<Piece> {
    let cells = rows.layout.data_cells() as u8; // at most CELLS_MAX
    let row = rows.slices[id].row;
    loop {
        let known = rows.slices[id].made.known;
        let data = (0..cells).find(|data| !known.contains(*data))?;
        match source_of(rows, row, data) {
            Some((from, cell, in_row)) => {
                return Some(Piece {
                    data,
                    row: from,
                    cell,
                    count: (in_row - cell).min(cells - data),
                });
            }
            None => rows.slices[id].made.know(data, None),
        }
    }
}

/// The former row and its cell that hold a data cell of a new row, and how many data cells the former row
/// has.
fn source_of(rows: &Rows, row: Row, data: u8) -> Option<(Row, u8, u8)> {
    let (cells, _) = rows.layout.former_shape().expect("a reshape is under way");
    let chunk = row.0 * rows.layout.data_cells() + u64::from(data);
    let from = chunk / u64::from(cells);
    let cell = (chunk % u64::from(cells)) as u8; // below `cells`
    let there = from < rows.layout.rows() && rows.was_written(Row(from));
    there.then_some((Row(from), cell, cells))
}

fn turn_to_source(rows: &mut Rows, id: u32, row: Row) {
    if rows.slices[id].made.source == Some(row) {
        return;
    }
    rows.judge_errors(id);
    let map = rows.layout.former_row(row);
    let slice = &mut rows.slices[id];
    slice.made.source = Some(row);
    slice.map = map;
    (slice.have, slice.bad, slice.zeroed) = Default::default();
}

/// Reads cells of the source, or recovers them. True if what is lost became zeros without further ado.
fn fetch(rows: &mut Rows, id: u32, missing: CellSet) -> bool {
    let readable = rows.readable(id);
    let at_hand = missing.intersection(readable);
    if !at_hand.is_empty() {
        rows.read_cells(id, at_hand);
        return false;
    }
    let slice = &mut rows.slices[id];
    let (map, have) = (slice.map, slice.have);
    let trusted = rows.layout.parity() && rows.in_sync(map.row);
    let mut reads = CellSet::EMPTY;
    for cell in missing.iter() {
        let recipe = map.recover(cell, readable.union(have));
        match recipe.filter(|_| trusted) {
            Some(recipe) => reads = reads.union(recipe.set().minus(have)),
            None if rows.narrow(id) => return false,
            None => {
                lose_moving(rows, id, rows.layout.lba(map.row, cell, 0), cell);
                return true;
            }
        }
    }
    if reads.is_empty() {
        assert!(rows.recover_cells(id, missing), "every recipe is at hand");
    } else {
        rows.read_cells(id, reads);
    }
    false
}

/// A block that cannot be decoded becomes zeros. `chunk`: the first sector of its chunk.
fn lose_moving(rows: &mut Rows, id: u32, chunk: u64, cell: u8) {
    let slice = &mut rows.slices[id];
    slice.zeroed = slice.zeroed.with(cell);
    let (lba, sectors) = (chunk + slice.band, slice.band_sectors);
    let known = rows.lost.extents.within(lba, sectors);
    if known.iter().map(|(_, count)| count).sum::<u64>() < sectors {
        rows.lose(lba, sectors);
    }
}

fn take_piece(rows: &mut Rows, id: u32, piece: &Piece) {
    let slice = &mut rows.slices[id];
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
            rows.below.buffers.give_back(buf);
        }
    }
}

/// All data are known: they are cells of the new row from here on.
fn combine(rows: &mut Rows, id: u32) {
    rows.judge_errors(id);
    let map = rows.below.layout.new_row(rows.slices[id].row);
    let slice = &mut rows.slices[id];
    slice.map = map;
    let made = core::mem::take(&mut slice.made);
    slice.cells[..usize::from(map.data)].copy_from_slice(&made.cells[..usize::from(map.data)]);
    (slice.have, slice.zeroed) = (made.known.minus(made.zeros), made.zeros);
    slice.bad = CellSet::EMPTY;
    compute(rows, id, &map);
}

fn compute(rows: &mut Rows, id: u32, map: &RowMap) {
    let zeros = rows.slices[id].have.is_empty();
    if rows.layout.parity() && !zeros {
        return rows.compute_parity(id, map.parity_set());
    }
    let Kind::Reshape(aim) = rows.slices[id].kind else {
        unreachable!("it makes a row")
    };
    write(rows, id, aim);
}

// ------------------------------------------------------------------------------------------------- writing

fn write(rows: &mut Rows, id: u32, aim: Aim) {
    rows.slices.set_phase(id, Phase::Writing);
    let map = rows.slices[id].map;
    for cell in map.all().iter() {
        let source = made_cell(rows, id, &map, cell);
        match aim {
            Aim::Place | Aim::Settle => rows.write_cell(id, cell, source, None),
            Aim::Journal => {
                if let Some(home) = rows.journal_home(&map, cell) {
                    rows.write_cell(id, cell, source, Some(home));
                }
            }
        }
    }
    rows.slices.requeue_if_idle(id);
}

/// What a cell of the row is to hold. Parity that was computed goes before what the journal had.
fn made_cell(rows: &mut Rows, id: u32, map: &RowMap, cell: u8) -> Source {
    let slice = &rows.slices[id];
    let parity = map.parity_at(cell);
    let computed = parity.and_then(|parity| slice.extra_ref(Extra::New(parity)));
    match computed {
        Some(parity) => Source::Buf(parity),
        None if slice.have.contains(cell) => Source::Buf(slice.cell_ref(cell)),
        None => Source::Zero,
    }
}

// ------------------------------------------------------------------------------------------------ settling

fn plan_settling(rows: &mut Rows, id: u32) {
    if rows.halted() {
        return abandon(rows, id);
    }
    let slice = &mut rows.slices[id];
    let (map, have, zeroed, bad) = (slice.map, slice.have, slice.zeroed, slice.bad);
    let there = |cell: &u8| rows.journal_home(&map, *cell).is_some();
    let there: CellSet = map.all().iter().filter(there).collect();
    let unread = there.minus(bad).minus(have);
    if !unread.is_empty() && zeroed.is_empty() {
        return read_journal(rows, id, &map, unread);
    }
    if !zeroed.is_empty() {
        return compute(rows, id, &map);
    }
    let missing = map.all().minus(have);
    let recipe = |cell: u8| map.recover(cell, have);
    if missing.iter().all(|cell| recipe(cell).is_some()) {
        return match missing.is_empty() {
            true => write(rows, id, Aim::Settle),
            false => assert!(rows.recover_cells(id, missing), "checked above"),
        };
    }
    if rows.narrow(id) {
        return;
    }
    for cell in missing.intersection(map.data_set()).iter() {
        let chunk = rows.layout.new_lba(map.row, cell);
        lose_moving(rows, id, chunk, cell);
    }
    match rows.slices[id].zeroed.is_empty() {
        true => compute(rows, id, &map),
        false => plan_settling(rows, id),
    }
}

fn read_journal(rows: &mut Rows, id: u32, map: &RowMap, cells: CellSet) {
    rows.slices.set_phase(id, Phase::Reading);
    for cell in cells.iter() {
        let home = rows.journal_home(map, cell).expect("checked by the caller");
        let target = rows.cell_buffer(id, cell);
        let slice = &mut rows.slices[id];
        let (at, sectors) = (slice.band, slice.band_sectors);
        slice.have = slice.have.with(cell);
        slice.pending += 1;
        let at = home.at(map.cells[usize::from(cell)].at) + at;
        let (owner, member) = (Owner::Slice(id, SliceOp::Read(cell)), home.member);
        rows.device_io(owner, member, IoOp::Read, at, sectors, Class::Task, |io| {
            io.segments.push(Segment::Buf(target));
        });
    }
}
