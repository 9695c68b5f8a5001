//! Writes: full rows without reads, otherwise by the path with the fewer reads; degraded ones in logged steps.
//!
//! Passes: the firm cells of a band are written in one pass; each other cell, whose data a crash would leave to parity
//! alone, in a pass of its own. So a crash finds either one cell in flight, which is then old or new, or cells that are
//! all here.

use super::gather::{BandKind, Fragment, Source};
use super::{Extra, Kind, Need, Phase};
use crate::clients::requests::Copies;
use crate::contract::{BAND_SECTORS_MAX, IoOp, RequestError, RequestOp};
use crate::core::Core;
use crate::durability::flusher::Waiter;
use crate::layout::{CellSet, RowMap};
use crate::planted::Bug;

/// How the new parity of a pass is had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Path {
    /// From all other data, some of it perhaps recovered first.
    Reconstruct { reads: CellSet, recovers: CellSet },
    /// From the old data and the old parity.
    Modify { reads: CellSet },
    /// There is no parity to keep.
    Plain,
    /// These cells stand in the way and cannot be recovered.
    Undecodable { cells: CellSet },
}

impl Core {
    pub(crate) fn start_write_slice(&mut self, band: &super::gather::Band) -> bool {
        let parity = self.layout.parity();
        let step = match band.kind {
            BandKind::Discard(_) => band.sectors,
            _ => band.sectors.min(BAND_SECTORS_MAX),
        };
        let buffers = match (band.kind, parity) {
            // Parities as they were and as they will be, partial ones, and a block put together.
            (_, true) => self.layout.data_cells() as u32 + 2 * self.parity_buffers() + 3,
            (BandKind::Merge { .. }, false) => u32::from(self.layout.width()) + 1,
            (_, false) => 0,
        };
        let need = Need {
            kind: Kind::Write(band.kind),
            row: band.row,
            start: band.start,
            sectors: band.sectors,
            step,
            buffers,
        };
        let need = Need {
            step: need.step.min(BAND_SECTORS_MAX),
            ..need
        };
        let Some(id) = self.admit_slice(&need) else {
            return false;
        };
        let slice = &mut self.slices.list[id as usize];
        (slice.durable, slice.copies) = (band.durable, band.copies);
        slice
            .fragments
            .extend_from_slice(self.gather.fragments(band));
        if matches!(band.kind, BandKind::Discard(_)) {
            slice.step = step;
            slice.begin_band(band.start);
        }
        true
    }

    pub(crate) fn step_write(&mut self, id: u32, kind: BandKind) {
        if self.halted() {
            self.slices.get(id).error = Some(self.refusal(RequestOp::Write));
        }
        if self.slices.get(id).error.is_some() {
            self.write_aborted(id);
            return;
        }
        let unlogged = self.slices.get(id).record.is_none();
        match self.slices.get(id).phase {
            Phase::Preparing => self.prepare_write(id, kind),
            Phase::Reading | Phase::Recovering => self.plan_write(id, kind),
            Phase::Merging => {
                self.slices.get(id).merged = true;
                self.plan_write(id, kind);
            }
            Phase::Combining => self.checksum_partials(id),
            Phase::Checksumming => self.log_pass(id),
            Phase::Logging if unlogged => self.log_pass(id),
            Phase::Logging => self.pass_recorded(id),
            Phase::Writing => self.pass_done(id, kind),
            other => unreachable!("a write is never {other:?}"),
        }
    }

    pub(super) fn prepare_write(&mut self, id: u32, kind: BandKind) {
        let row = self.slices.get(id).map.row;
        if !self.slices.get(id).intent_held {
            self.intent_acquire(row);
            self.slices.get(id).intent_held = true;
        }
        let last = self.slices.get(id).last_cell();
        let extent = self.extent_ready(row, last);
        let intent = self.intent_ready(row);
        let lost = self.losses_settled(id);
        let whole_row = self.layout.parity();
        let slice = self.slices.get(id);
        let map = slice.map;
        let cells = match slice.discard() {
            Some(_) if whole_row => map.data_set(),
            _ => slice.band_cells(),
        };
        if !(extent && intent && lost && self.may_change(&map, cells)) {
            self.await_metadata(id);
            return;
        }
        if self.behind_resync(id, row) {
            return;
        }
        let slice = self.slices.get(id);
        if slice.todo.is_empty() {
            slice.todo = slice.band_cells();
        }
        match kind {
            BandKind::Discard(op) => self.plan_discard(id, op),
            _ => self.plan_write(id, kind),
        }
    }

    /// Before anything is written into a row that a resynchronisation owes, its parity is brought in step, so that it
    /// tells what is written if a member fails. (What it does not tell of a cell that is missing already is lost.)
    fn behind_resync(&mut self, id: u32, row: crate::Row) -> bool {
        if self.in_sync(row) || !self.layout.parity() {
            return false;
        }
        if self.resync_row(row) {
            self.slices.back_of_row(id);
            self.set_phase(id, Phase::Queued);
            self.slices.requeue(id);
        } else {
            self.await_metadata(id);
        }
        true
    }

    // ------------------------------------------------------------------------------------------------- discards

    /// Whole cells at once, or, on a row that has lost a cell meanwhile: nothing for a trim, data for zeros.
    fn plan_discard(&mut self, id: u32, op: IoOp) {
        let map = self.slices.get(id).map;
        // A growth may have begun since the request was cut.
        let whole = self.layout.is_whole(&map) || !self.layout.parity();
        if self.firm_cells(&map) == map.all() && whole {
            self.slices.get(id).pass = if self.layout.parity() {
                map.data_set()
            } else {
                self.slices.get(id).todo
            };
            self.log_pass(id);
        } else if op == IoOp::Trim {
            self.slices.get(id).skipped = true;
            self.finish_slice(id);
        } else {
            self.zero_as_data(id, &map);
        }
    }

    fn zero_as_data(&mut self, id: u32, map: &RowMap) {
        let (parity, first_cells) = (self.layout.parity(), self.layout.cells_through(1));
        let slice = self.slices.get(id);
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
        self.spread_parts(id, request);
        self.plan_write(id, BandKind::Data);
    }

    /// A request waits for one part for each fragment: makes the count right after fragments were added.
    fn spread_parts(&mut self, id: u32, request: u32) {
        for _ in 1..self.slices.get(id).fragments.len() {
            self.requests.begin_part(request);
        }
    }

    // --------------------------------------------------------------------------------------------------- planning

    fn plan_write(&mut self, id: u32, kind: BandKind) {
        let map = self.slices.get(id).map;
        if !self.choose_pass(id, &map) {
            self.slices.get(id).error = Some(RequestError::ReadOnly);
            self.write_aborted(id);
            return;
        }
        if let BandKind::Merge { skip, bytes } = kind
            && !self.slices.get(id).merged
        {
            self.merge(id, skip, bytes);
            return;
        }
        if !self.layout.parity() {
            self.write_pass(id);
            return;
        }
        match self.choose_path(id, &map) {
            Path::Plain => self.log_pass(id),
            Path::Reconstruct { reads, .. } | Path::Modify { reads } if !reads.is_empty() => {
                self.read_cells(id, reads)
            }
            Path::Reconstruct { recovers, .. } if !recovers.is_empty() => {
                assert!(self.recover_cells(id, recovers), "the path was checked");
            }
            Path::Reconstruct { .. } => {
                self.count_path(id, &map);
                self.combine(id, false);
            }
            Path::Modify { .. } => {
                self.counters.read_modify_writes += 1;
                self.combine(id, true);
            }
            Path::Undecodable { cells } => {
                if !self.narrow(id) {
                    self.declare_lost(id, cells);
                }
            }
        }
    }

    fn count_path(&mut self, id: u32, map: &RowMap) {
        if self.slices.get(id).pass == map.data_set() {
            self.counters.full_row_writes += 1;
        } else {
            self.counters.reconstruct_writes += 1;
        }
    }

    /// The cells of this pass: all firm ones first, then each other one alone. False if a cell has nowhere to go.
    fn choose_pass(&mut self, id: u32, map: &RowMap) -> bool {
        let live = self.live_cells(map);
        let todo = self.slices.get(id).todo;
        if !self.layout.parity() {
            self.slices.get(id).pass = todo;
            return self.is_kept(id, map, todo);
        }
        if !map.decodable(live) {
            return false;
        }
        let whole = self.whole_rows() && todo == map.data_set();
        let here = if whole || self.planted(Bug::DegradedInOneStep) {
            todo
        } else {
            todo.intersection(self.firm_cells(map))
        };
        let pass = match todo.first() {
            Some(first) if here.is_empty() => CellSet::only(first),
            _ => here,
        };
        self.slices.get(id).pass = pass;
        true
    }

    fn choose_path(&mut self, id: u32, map: &RowMap) -> Path {
        let live = self.live_cells(map);
        let parities = map.parity_set().intersection(live);
        if parities.is_empty() {
            return Path::Plain;
        }
        let in_sync = self.in_sync(map.row);
        let slice = &self.slices.list[id as usize];
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

    // -------------------------------------------------------------------------------------------------- writing

    /// The cells whose content this pass changes: as a bit set for the log, and those of them that are zeroed.
    pub(super) fn pass_with_zeroed(&mut self, id: u32) -> (u32, CellSet) {
        let map = self.slices.get(id).map;
        let live = self.live_cells(&map);
        let slice = self.slices.get(id);
        let zeroed = slice.zeroed.intersection(live).minus(slice.pass);
        (slice.pass.union(zeroed).0, zeroed)
    }

    /// Data, copies and parity, all at once.
    pub(super) fn write_pass(&mut self, id: u32) {
        self.set_phase(id, Phase::Writing);
        let map = self.slices.get(id).map;
        let live = self.live_cells(&map);
        let zeroed = self.pass_with_zeroed(id).1;
        let slice = &self.slices.list[id as usize];
        let (pass, discard) = (slice.pass, slice.discard());
        let op = discard.unwrap_or(IoOp::Write);
        let cells = if discard.is_some() && self.layout.parity() {
            map.all()
        } else {
            pass
        };
        for cell in cells.iter() {
            self.write_copies(id, &map, cell, op);
        }
        for cell in zeroed.iter() {
            self.write_cell(id, cell, Source::Zero, None);
        }
        if discard.is_none() {
            self.write_parity(id, &map, live);
            self.write_repairs(id, live);
        }
        if self.slices.get(id).pending == 0 {
            self.slices.runnable.push_back(id);
        }
    }

    fn write_copies(&mut self, id: u32, map: &RowMap, cell: u8, op: IoOp) {
        let slice = self.slices.get(id);
        let mut fragments = core::mem::take(&mut slice.fragments);
        let (from, to) = slice.band_range_of(&fragments, cell);
        for copy in self.copies_written(id, map, cell).iter() {
            self.write_fragments(id, copy, &fragments[from..to], op, None);
        }
        core::mem::swap(&mut self.slices.get(id).fragments, &mut fragments);
    }

    pub(crate) fn write_parity(&mut self, id: u32, map: &RowMap, live: CellSet) {
        for (parity, cell) in map.parities().filter(|(_, cell)| live.contains(*cell)) {
            if let Some(new) = self.slices.get(id).extra_ref(Extra::New(parity)) {
                self.write_cell(id, cell, Source::Buf(new), None);
            }
        }
    }

    /// Cells that could not be read and were recovered on the way are written back.
    fn write_repairs(&mut self, id: u32, live: CellSet) {
        let slice = self.slices.get(id);
        let data = slice.map.data_set();
        let repairs = slice
            .bad
            .intersection(slice.have)
            .intersection(live)
            .intersection(data)
            .minus(slice.pass);
        for cell in repairs.iter() {
            let content = self.slices.get(id).cell_ref(cell);
            self.write_cell(id, cell, Source::Buf(content), None);
            self.note_repair(id, cell);
        }
    }

    fn pass_done(&mut self, id: u32, kind: BandKind) {
        self.end_record(id);
        if !self.pass_kept(id) {
            return self.fail_write(id, RequestError::ReadOnly);
        }
        let slice = self.slices.get(id);
        slice.todo = slice.todo.minus(slice.pass);
        if slice.todo.is_empty() || slice.discard().is_some() {
            self.band_done(id);
            return;
        }
        self.drop_buffers(id);
        let slice = self.slices.get(id);
        // What could not be read may have been written since; what was not will say so again.
        slice.bad = CellSet::EMPTY;
        slice.zeroed = CellSet::EMPTY;
        self.set_phase(id, Phase::Preparing);
        self.prepare_write(id, kind);
    }

    /// Whether what was written is anywhere: members may have failed one after the other while it was.
    fn pass_kept(&mut self, id: u32) -> bool {
        let slice = self.slices.get(id);
        let (map, pass) = (slice.map, slice.pass);
        let live = self.live_cells(&map);
        match self.layout.parity() {
            true => map.decodable(live),
            false => self.is_kept(id, &map, pass),
        }
    }

    /// Whether each of these cells has a member to be written on, of those that the slice is about. That further copies are gone is
    /// no reason not to write: they will be owed what the first has.
    fn is_kept(&mut self, id: u32, map: &RowMap, cells: CellSet) -> bool {
        let live = self.live_cells(map);
        let first = self.slices.get(id).copies == Copies::First;
        let kept = |cell: u8| match first {
            true => live.contains(cell),
            false => !map.copies_of(cell).intersection(live).is_empty(),
        };
        cells.iter().all(kept)
    }

    /// The cells that a write of a data cell goes to, but for parity.
    fn copies_written(&mut self, id: u32, map: &RowMap, cell: u8) -> CellSet {
        if !map.parity_set().is_empty() {
            return CellSet::only(cell);
        }
        let copies = map.copies_of(cell);
        match self.slices.get(id).copies {
            Copies::All | Copies::Without(_) => copies,
            Copies::First => CellSet::only(cell),
            Copies::Further => copies.without(cell),
        }
    }

    pub(super) fn end_record(&mut self, id: u32) {
        if let Some(sequence) = self.slices.get(id).record.take() {
            let flushes = self.flusher.begun;
            self.logs.finished(sequence, flushes);
            if self.planted(Bug::LogReusedEarly) {
                self.logs.flushed(flushes + 1);
            }
        }
    }

    pub(super) fn fail_write(&mut self, id: u32, error: RequestError) {
        self.slices.get(id).error = Some(error);
        self.write_aborted(id);
    }

    fn write_aborted(&mut self, id: u32) {
        self.end_record(id);
        self.finish_slice(id);
    }

    /// Every request with a part in the slice hears of it. What was lost and is written anew is lost no more.
    pub(crate) fn end_write(&mut self, id: u32, result: Result<(), RequestError>) {
        let slice = self.slices.get(id);
        let (row, whole_row, several) = (slice.map.row, slice.discard().is_some(), slice.several);
        let copies = slice.copies;
        let written = result.is_ok() && !slice.skipped;
        let mut fragments = core::mem::take(&mut slice.fragments);
        for fragment in fragments.drain(..) {
            let mut regained = false;
            // Some copies alone may have got what is older than what was lost.
            if written && copies == Copies::All {
                let lba = self.layout.lba(row, fragment.cell, fragment.start);
                let sectors = if whole_row && self.layout.parity() {
                    self.layout
                        .run_sectors(self.layout.place(lba), crate::Row(row.0 + 1))
                } else {
                    fragment.sectors
                };
                regained = self.lost.rewritten(lba, sectors);
                if regained {
                    self.fit_lost(Some((lba, sectors)));
                }
            }
            if (several || regained) && result.is_ok() {
                self.flush_for(Waiter::Request(fragment.request));
            } else {
                self.request_part_done(fragment.request, result);
            }
        }
        self.slices.get(id).fragments = fragments;
    }
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
    if undecodable.is_empty() {
        Ok((reads, missing))
    } else {
        Err(undecodable)
    }
}

impl super::Slice {
    /// The data cells that the band's fragments write.
    fn band_cells(&self) -> CellSet {
        let end = self.band + self.band_sectors;
        let within = |fragment: &&Fragment| fragment.start < end && self.band < fragment.end();
        self.fragments
            .iter()
            .filter(within)
            .fold(CellSet::EMPTY, |set, fragment| set.with(fragment.cell))
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

    /// The fragments of a cell, which stand together, in order.
    fn band_range_of(&self, fragments: &[Fragment], cell: u8) -> (usize, usize) {
        let from = fragments
            .iter()
            .position(|fragment| fragment.cell == cell)
            .unwrap_or(0);
        let count = fragments[from..]
            .iter()
            .take_while(|fragment| fragment.cell == cell)
            .count();
        (from, from + count)
    }
}
