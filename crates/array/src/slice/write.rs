//! Writes: full rows without reads, other rows by the path with fewer reads, degraded rows in logged steps.
//!
//! Passes: the cells of a band whose members are on record are written in one pass. Each other cell, whose
//! data only parity has after a crash, is written in a pass of its own. So after a crash either one cell was
//! in flight, which is then old or new, or all cells in flight can be read.

use super::record::Next;
use super::rows::{Need, Rows};
use super::table::{Band, BandKind, Fragment, Kind, Phase, Slice, Source};
use super::{combine, record};
use crate::clients::Copies;
use crate::contract::{BAND_SECTORS_MAX, Bug, IoOp, RequestError, RequestOp};
use crate::facts::Waiter;
use crate::layout::{CellSet, RowMap};

/// How the new parity of a pass is had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Path {
    /// From all other data, some of it perhaps recovered first.
    Reconstruct { reads: CellSet, recovers: CellSet },
    /// From the old data and the old parity.
    Modify { reads: CellSet },
    /// There is no parity to keep.
    Plain,
    /// These cells would be needed and cannot be recovered.
    Undecodable { cells: CellSet },
}

/// Starts a write of a band; false when there is no room.
pub(crate) fn start(rows: &mut Rows, band: &Band, fragments: &[Fragment]) -> bool {
    let buffers = match (band.kind, rows.layout.parity()) {
        // Parities as they were and as they will be, partial ones, and a block put together.
        (_, true) => rows.layout.data_cells() as u32 + 2 * rows.parity_buffers() + 3,
        (BandKind::Merge { .. }, false) => u32::from(rows.layout.width()) + 1,
        (_, false) => 0,
    };
    let need = Need {
        kind: Kind::Write(band.kind),
        row: band.row,
        start: band.start,
        sectors: band.sectors,
        step: band.sectors.min(BAND_SECTORS_MAX),
        buffers,
    };
    let Some(id) = rows.admit_slice(&need) else {
        return false;
    };
    let slice = &mut rows.slices[id];
    (slice.durable, slice.copies) = (band.durable, band.copies);
    slice.fragments.extend_from_slice(fragments);
    if matches!(band.kind, BandKind::Discard(_)) {
        slice.step = band.sectors;
        slice.begin_band(band.start);
    }
    true
}

pub(super) fn step(rows: &mut Rows, id: u32, kind: BandKind) {
    if rows.halted() {
        rows.slices[id].error = Some(rows.refusal(RequestOp::Write));
    }
    if rows.slices[id].error.is_some() {
        return aborted(rows, id);
    }
    let unlogged = rows.slices[id].record.is_none();
    match rows.slices[id].phase {
        Phase::Preparing => prepare(rows, id, kind),
        Phase::Reading | Phase::Recovering => plan(rows, id, kind),
        Phase::Merging => {
            rows.slices[id].merged = true;
            plan(rows, id, kind);
        }
        Phase::Combining => {
            if !combine::checksum_partials(rows, id) {
                log_pass(rows, id);
            }
        }
        Phase::Checksumming => log_pass(rows, id),
        Phase::Logging if unlogged => log_pass(rows, id),
        Phase::Logging => {
            let next = record::recorded(rows, id);
            go_on(rows, id, next);
        }
        Phase::Writing => pass_done(rows, id, kind),
        other => unreachable!("a write is never {other:?}"),
    }
}

fn prepare(rows: &mut Rows, id: u32, kind: BandKind) {
    let slice = &mut rows.slices[id];
    let (row, last) = (slice.map.row, slice.last_cell());
    if !core::mem::replace(&mut slice.intent_held, true) {
        rows.intent_acquire(row);
    }
    if behind_extent(rows, id, row, last) {
        return;
    }
    let extent = rows.extent_ready(row, last);
    let intent = rows.intent_ready(row);
    let lost = rows.losses_settled(id);
    let whole_row = rows.layout.parity();
    let slice = &mut rows.slices[id];
    let map = slice.map;
    let cells = match slice.discard() {
        Some(_) if whole_row => map.data_set(),
        _ => slice.band_cells(),
    };
    if !(extent && intent && lost && rows.may_change(&map, cells)) {
        return rows.slices.await_metadata(id);
    }
    if behind_resync(rows, id, row) {
        return;
    }
    let slice = &mut rows.slices[id];
    if slice.todo.is_empty() {
        slice.todo = slice.band_cells();
    }
    match kind {
        BandKind::Discard(op) => plan_discard(rows, id, op),
        _ => plan(rows, id, kind),
    }
}

/// Before a first write makes a missing member's cell part of rows that a resync owes, these are resynced.
fn behind_extent(rows: &mut Rows, id: u32, row: crate::Row, last: u8) -> bool {
    let owed = rows.in_doubt_before_growing(row, last);
    if owed.contains(&row) {
        return behind_resync(rows, id, row);
    }
    let waits = !owed.is_empty();
    if waits {
        // Where there is no room for all of them, those that end make some.
        let _ = owed.into_iter().all(|row| rows.resync_row(row));
        rows.slices.await_metadata(id);
    }
    waits
}

/// Before anything is written into a row that a resync owes, its parity is made to fit, so that it can
/// recover the new data if a member fails. (A cell that is missing already is lost, since this parity never
/// fitted it.)
fn behind_resync(rows: &mut Rows, id: u32, row: crate::Row) -> bool {
    if rows.in_sync(row) || !rows.layout.parity() {
        return false;
    }
    if rows.resync_row(row) {
        rows.slices.back_of_row(id);
        rows.slices.set_phase(id, Phase::Queued);
        rows.slices.requeue(id);
    } else {
        rows.slices.await_metadata(id);
    }
    true
}

// ------------------------------------------------------------------------------------------------ discards

/// Whole cells at once, or, on a row that has lost a cell meanwhile: nothing for a trim, data for zeros.
fn plan_discard(rows: &mut Rows, id: u32, op: IoOp) {
    let map = rows.slices[id].map;
    // A growth may have begun since the request was cut.
    let whole = rows.layout.is_whole(&map) || !rows.layout.parity();
    if rows.firm_cells(&map) == map.all() && whole {
        let parity = rows.layout.parity();
        let slice = &mut rows.slices[id];
        slice.pass = if parity { map.data_set() } else { slice.todo };
        log_pass(rows, id);
    } else if op == IoOp::Trim {
        rows.slices[id].skipped = true;
        rows.finish_slice(id);
    } else {
        zero_as_data(rows, id, &map);
    }
}

fn zero_as_data(rows: &mut Rows, id: u32, map: &RowMap) {
    let (parity, first_cells) = (rows.layout.parity(), rows.layout.cells_through(1));
    let slice = &mut rows.slices[id];
    let (start, sectors) = (slice.start, slice.sectors);
    let request = slice.fragments[0].request;
    if parity {
        slice.fragments.clear();
        for cell in 0..first_cells.min(map.data) {
            slice.fragments.push(Fragment {
                cell,
                start,
                sectors,
                source: Source::Zero,
                request,
            });
        }
    }
    slice.kind = Kind::Write(BandKind::Data);
    slice.step = BAND_SECTORS_MAX;
    slice.begin_band(start);
    slice.todo = slice.band_cells();
    // The request waits for one part for each fragment.
    for _ in 1..slice.fragments.len() {
        rows.below.requests.begin_part(request);
    }
    plan(rows, id, BandKind::Data);
}

// ------------------------------------------------------------------------------------------------ planning

fn plan(rows: &mut Rows, id: u32, kind: BandKind) {
    let map = rows.slices[id].map;
    if !choose_pass(rows, id, &map) {
        return fail(rows, id, RequestError::ReadOnly);
    }
    if let BandKind::Merge { skip, bytes } = kind
        && !rows.slices[id].merged
    {
        if let Err(error) = combine::merge(rows, id, skip, bytes) {
            fail(rows, id, error);
        }
        return;
    }
    if !rows.layout.parity() {
        return write_pass(rows, id);
    }
    match choose_path(rows, id, &map) {
        Path::Plain => log_pass(rows, id),
        Path::Reconstruct { reads, .. } | Path::Modify { reads } if !reads.is_empty() => {
            rows.read_cells(id, reads)
        }
        Path::Reconstruct { recovers, .. } if !recovers.is_empty() => {
            assert!(rows.recover_cells(id, recovers), "the path was checked");
        }
        Path::Reconstruct { .. } => {
            count_path(rows, id, &map);
            combine::combine(rows, id, false);
        }
        Path::Modify { .. } => {
            rows.counters.read_modify_writes += 1;
            combine::combine(rows, id, true);
        }
        Path::Undecodable { cells } => {
            if !rows.narrow(id) {
                rows.declare_lost(id, cells);
            }
        }
    }
}

fn count_path(rows: &mut Rows, id: u32, map: &RowMap) {
    if rows.slices[id].pass == map.data_set() {
        rows.counters.full_row_writes += 1;
    } else {
        rows.counters.reconstruct_writes += 1;
    }
}

/// The cells of this pass: all firm ones first, then each other one alone. False if a cell has nowhere to go.
fn choose_pass(rows: &mut Rows, id: u32, map: &RowMap) -> bool {
    let live = rows.live_cells(map);
    let todo = rows.slices[id].todo;
    if !rows.layout.parity() {
        rows.slices[id].pass = todo;
        return is_kept(rows, id, map, todo);
    }
    if !map.decodable(live) {
        return false;
    }
    let whole = rows.whole_rows() && todo == map.data_set();
    let here = match whole || rows.planted(Bug::DegradedInOneStep) {
        true => todo,
        false => todo.intersection(rows.firm_cells(map)),
    };
    let pass = match todo.first() {
        Some(first) if here.is_empty() => CellSet::only(first),
        _ => here,
    };
    rows.slices[id].pass = pass;
    true
}

fn choose_path(rows: &mut Rows, id: u32, map: &RowMap) -> Path {
    let live = rows.live_cells(map);
    let parities = map.parity_set().intersection(live);
    if parities.is_empty() {
        return Path::Plain;
    }
    let in_sync = rows.in_sync(map.row);
    let slice = &rows.slices[id];
    let (have, pass, zeroed) = (slice.have, slice.pass, slice.zeroed);
    let readable = live.minus(slice.bad).union(have);
    let others = map.data_set().minus(pass).minus(zeroed);
    let modify = pass.union(parities);
    let modify =
        (in_sync && zeroed.is_empty() && modify.within(readable)).then(|| modify.minus(have));
    let reconstruct = reconstruct(map, others, readable.union(zeroed), zeroed, in_sync);
    match (reconstruct, modify) {
        (Ok((reads, recovers)), modify)
            if modify.is_none_or(|m| reads.minus(have).len() <= m.len()) =>
        {
            Path::Reconstruct {
                reads: reads.minus(have),
                recovers: recovers.minus(have),
            }
        }
        (_, Some(reads)) => Path::Modify { reads },
        (Err(cells), None) => Path::Undecodable { cells },
        (Ok(_), None) => unreachable!("taken by the first arm"),
    }
}

// ------------------------------------------------------------------------------------------------- writing

fn log_pass(rows: &mut Rows, id: u32) {
    let next = record::log_pass(rows, id);
    go_on(rows, id, next);
}

fn go_on(rows: &mut Rows, id: u32, next: Next) {
    match next {
        Next::Wait => {}
        Next::Write => write_pass(rows, id),
        Next::Plan => plan_anew(rows, id),
    }
}

fn plan_anew(rows: &mut Rows, id: u32) {
    rows.drop_buffers(id);
    let slice = &mut rows.slices[id];
    slice.zeroed = CellSet::EMPTY;
    let Kind::Write(kind) = slice.kind else {
        unreachable!("only writes are logged")
    };
    rows.slices.set_phase(id, Phase::Preparing);
    prepare(rows, id, kind);
}

/// Data, copies and parity, all at once.
fn write_pass(rows: &mut Rows, id: u32) {
    rows.slices.set_phase(id, Phase::Writing);
    let map = rows.slices[id].map;
    let live = rows.live_cells(&map);
    let zeroed = record::pass_with_zeroed(rows, id).1;
    let slice = &rows.slices[id];
    let (pass, discard) = (slice.pass, slice.discard());
    let op = discard.unwrap_or(IoOp::Write);
    let cells = match discard.is_some() && rows.layout.parity() {
        true => map.all(),
        false => pass,
    };
    for cell in cells.iter() {
        write_copies(rows, id, &map, cell, op);
    }
    for cell in zeroed.iter() {
        rows.write_cell(id, cell, Source::Zero, None);
    }
    if discard.is_none() {
        rows.write_parity(id, &map, live);
        write_repairs(rows, id, live);
    }
    rows.slices.requeue_if_idle(id);
}

fn write_copies(rows: &mut Rows, id: u32, map: &RowMap, cell: u8, op: IoOp) {
    let slice = &mut rows.slices[id];
    let mut fragments = core::mem::take(&mut slice.fragments);
    let (from, to) = cell_range(&fragments, cell);
    for copy in copies_written(rows, id, map, cell).iter() {
        rows.write_fragments(id, copy, &fragments[from..to], op, None);
    }
    core::mem::swap(&mut rows.slices[id].fragments, &mut fragments);
}

/// Cells that could not be read and were recovered on the way are written back.
fn write_repairs(rows: &mut Rows, id: u32, live: CellSet) {
    let slice = &mut rows.slices[id];
    let recovered = slice.bad.intersection(slice.have).minus(slice.pass);
    let repairs = recovered.intersection(live.intersection(slice.map.data_set()));
    for cell in repairs.iter() {
        let content = rows.slices[id].cell_ref(cell);
        rows.write_cell(id, cell, Source::Buf(content), None);
        rows.note_repair(id, cell);
    }
}

fn pass_done(rows: &mut Rows, id: u32, kind: BandKind) {
    record::end(rows, id);
    if !pass_kept(rows, id) {
        return fail(rows, id, RequestError::ReadOnly);
    }
    let slice = &mut rows.slices[id];
    slice.todo = slice.todo.minus(slice.pass);
    if slice.todo.is_empty() || slice.discard().is_some() {
        return rows.band_done(id);
    }
    rows.judge_errors(id);
    rows.drop_buffers(id);
    let slice = &mut rows.slices[id];
    // What could not be read may have been written since; what was not will say so again.
    slice.bad = CellSet::EMPTY;
    slice.zeroed = CellSet::EMPTY;
    rows.slices.set_phase(id, Phase::Preparing);
    prepare(rows, id, kind);
}

/// Whether what was written is anywhere: members may have failed one after the other while it was.
fn pass_kept(rows: &mut Rows, id: u32) -> bool {
    let slice = &rows.slices[id];
    let (map, pass) = (slice.map, slice.pass);
    let live = rows.live_cells(&map);
    match rows.layout.parity() {
        true => map.decodable(live),
        false => is_kept(rows, id, &map, pass),
    }
}

/// Whether each of these cells has a member to be written on, of those that the slice is about. A write to
/// first copies goes on when further copies are gone: they will be owed what the first has.
fn is_kept(rows: &mut Rows, id: u32, map: &RowMap, cells: CellSet) -> bool {
    let live = rows.live_cells(map);
    let first = rows.slices[id].copies == Copies::First;
    let kept = |cell: u8| match first {
        true => live.contains(cell),
        false => !map.copies_of(cell).intersection(live).is_empty(),
    };
    cells.iter().all(kept)
}

/// The cells that a write of a data cell goes to, but for parity.
fn copies_written(rows: &mut Rows, id: u32, map: &RowMap, cell: u8) -> CellSet {
    if !map.parity_set().is_empty() {
        return CellSet::only(cell);
    }
    let copies = map.copies_of(cell);
    match rows.slices[id].copies {
        Copies::All | Copies::Without(_) => copies,
        Copies::First => CellSet::only(cell),
        Copies::Further => copies.without(cell),
    }
}

fn fail(rows: &mut Rows, id: u32, error: RequestError) {
    rows.slices[id].error = Some(error);
    aborted(rows, id);
}

fn aborted(rows: &mut Rows, id: u32) {
    record::end(rows, id);
    rows.finish_slice(id);
}

/// Every request with a part in the slice hears of it. What was lost and is written anew is lost no more.
pub(crate) fn end(rows: &mut Rows, id: u32, result: Result<(), RequestError>) {
    let slice = &mut rows.slices[id];
    let (row, whole_row, several) = (slice.map.row, slice.discard().is_some(), slice.several);
    let copies = slice.copies;
    let written = result.is_ok() && !slice.skipped;
    let mut fragments = core::mem::take(&mut slice.fragments);
    for fragment in fragments.drain(..) {
        let mut regained = false;
        // Some copies alone may have got what is older than what was lost.
        if written && copies == Copies::All {
            let lba = rows.layout.lba(row, fragment.cell, fragment.start);
            let sectors = if whole_row && rows.layout.parity() {
                rows.layout
                    .run_sectors(rows.layout.place(lba), crate::Row(row.0 + 1))
            } else {
                fragment.sectors
            };
            regained = rows.lost.rewritten(lba, sectors);
            if regained {
                rows.fit_lost(Some((lba, sectors)));
            }
        }
        if (several || regained) && result.is_ok() {
            rows.flush_for(Waiter::Request(fragment.request));
        } else {
            rows.request_part_done(fragment.request, result);
        }
    }
    rows.slices[id].fragments = fragments;
}

/// The reads, and the recoveries, that make all of `others` known; or the cells that cannot be.
fn reconstruct(
    map: &RowMap,
    others: CellSet,
    readable: CellSet,
    zeroed: CellSet,
    in_sync: bool,
) -> Result<(CellSet, CellSet), CellSet> {
    let missing = others.minus(readable);
    let mut reads = others.intersection(readable);
    let mut undecodable = CellSet::EMPTY;
    for cell in missing.iter() {
        match map.recover(cell, readable).filter(|_| in_sync) {
            Some(recipe) => reads = reads.union(recipe.set().minus(zeroed)),
            None => undecodable = undecodable.with(cell),
        }
    }
    match undecodable.is_empty() {
        true => Ok((reads, missing)),
        false => Err(undecodable),
    }
}

impl Slice {
    /// The data cells that the band's fragments write.
    fn band_cells(&self) -> CellSet {
        let end = self.band + self.band_sectors;
        let within = |fragment: &&Fragment| fragment.start < end && self.band < fragment.end();
        let held = self.fragments.iter().filter(within);
        held.map(|fragment| fragment.cell).collect()
    }

    /// The last data cell that it writes.
    fn last_cell(&self) -> u8 {
        let cells = self.fragments.iter().map(|fragment| fragment.cell);
        cells.max().unwrap_or(0)
    }

    fn discard(&self) -> Option<IoOp> {
        match self.kind {
            Kind::Write(BandKind::Discard(op)) => Some(op),
            _ => None,
        }
    }
}

/// The fragments of a cell, which are neighbours.
fn cell_range(fragments: &[Fragment], cell: u8) -> (usize, usize) {
    let of_cell = |fragment: &Fragment| fragment.cell == cell;
    let from = fragments.iter().position(of_cell).unwrap_or(0);
    let run = fragments[from..].iter().take_while(|one| of_cell(one));
    (from, from + run.count())
}
