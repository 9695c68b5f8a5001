//! The intake: the floor above the rows. It cuts requests into parts; [`crate::clients`] admits them, and
//! replies when every part is done.
//!
//! Owns what has been cut and not started. Asks every floor below. Reads of healthy cells go straight to
//! their members (`reads`). Writes, and reads that redundancy must answer, become slices. Two queues, each
//! first come first served, hold what could not be started yet.
//!
//! Writes are cut into bands: a range of a row in which the same cells are written from top to bottom. Trims
//! and writes of zeros go piece by piece, each with what it costs the members.

mod reads;

use crate::clients::{Copies, Pending};
use crate::config::Config;
use crate::contract::{BAND_SECTORS_MAX, IoOp, Request, RequestOp, Work};
use crate::layout::Place;
use crate::layout::code::CellSet;
use crate::members::ops::ReadPart;
use crate::members::pool::Share;
use crate::slice::rows::Rows;
use crate::slice::table::{Band, BandKind, Fragment, Source};
use crate::slice::{read, write};
use crate::units::{Member, Row, SECTOR_BYTES};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

/// The cost of a piece, in bytes written: about what members do in some milliseconds.
const PIECE_COST: u64 = 1 << 20;
/// A row costs this much, even when nothing is to be done about it.
const ROW_COST: u64 = 1024;
/// Zeroing or trimming without writing costs one such part of writing.
const FAST_PARTS: u64 = 4;

/// What the next bytes of a queued write are.
enum Piece {
    /// Nothing to do: zeros where zeros are.
    Nothing,
    /// New data within one row.
    Data {
        row: Row,
        offset: u64,
        sectors: u64,
    },
    Discard {
        row: Row,
        offset: u64,
        sectors: u64,
        op: IoOp,
    },
    Merge {
        lba: u64,
        skip: u32,
    },
}

pub struct Intake {
    below: Rows,
    gather: Gather,
}

floor!(Intake, Rows);

impl Intake {
    pub(crate) fn new(config: Config, share: Share) -> Intake {
        Intake {
            gather: Gather::new(config.limits.requests),
            below: Rows::new(config, share),
        }
    }

    /// Whether any request has parts that found no room yet.
    pub(crate) fn requests_wait(&self) -> bool {
        self.requests.waiting() || self.gather.waiting()
    }

    /// Whether a reshape has what a request wants next.
    fn waits_for_reshape(&self, id: u32) -> bool {
        let pending = self.requests.get(id);
        let (offset, left) = pending.uncut();
        left > 0 && self.is_held(offset / SECTOR_BYTES, pending.request.op.changes())
    }

    /// Starts retried reads, then bands, and cuts more from the queue as long as there is room. True if it
    /// stopped for notices.
    pub(crate) fn pump_writes(&mut self) -> bool {
        while let Some(&(part, bad)) = self.gather.retries.front() {
            if !read::start(self, part, 0, bad) {
                return false;
            }
            self.gather.retries.pop_front();
            self.request_part_done(part.request, Ok(()));
            if self.has_notices() {
                return true;
            }
        }
        loop {
            while let Some((band, fragments)) = self.gather.next() {
                if !write::start(&mut self.below, band, fragments) {
                    return false;
                }
                self.gather.started();
            }
            if !self.gather_row() {
                return false;
            }
        }
    }

    /// Gathers the front of the queue as far as it stays in one row. False when the queue is empty.
    fn gather_row(&mut self) -> bool {
        self.gather.pieces.clear();
        let mut gathering: Option<(Row, Copies)> = None;
        let mut durable = false;
        let mut cut_any = false;
        while let Some(&id) = self.requests.writes.front() {
            if self.is_reshaping() && self.waits_for_reshape(id) {
                self.requests.writes.pop_front();
                self.requests.hold(id);
                continue;
            }
            let (piece, bytes) = self.next_piece(id);
            let copies = self.requests.get(id).copies;
            match piece {
                Piece::Data {
                    row,
                    offset,
                    sectors,
                } if gathering.is_none_or(|held| held == (row, copies))
                    && !self.clashes(offset, sectors) =>
                {
                    gathering = Some((row, copies));
                    durable |= self.requests.get(id).request.fua;
                    self.gather_data(id, offset, sectors);
                }
                Piece::Nothing => {}
                Piece::Discard {
                    row,
                    offset,
                    sectors,
                    op,
                } if gathering.is_none() => {
                    self.push_discard(id, row, offset, sectors, op);
                }
                Piece::Merge { lba, skip } if gathering.is_none() => {
                    self.push_merge(id, lba, skip, bytes as u32)
                }
                _ => break,
            }
            cut_any = true;
            self.advance_cut(id, bytes);
        }
        if let Some((row, copies)) = gathering {
            self.cut_collected(row, durable, copies);
        }
        self.close_cut();
        cut_any
    }

    fn advance_cut(&mut self, id: u32, bytes: u64) {
        let pending = self.requests.get_mut(id);
        pending.cut += bytes;
        if pending.cut == pending.request.bytes {
            self.requests.writes.pop_front();
            // Parts of a collected row are begun when it is cut; until then one stands for them.
            self.requests.begin_part(id);
            self.gather.done.push(id);
        }
    }

    fn cut_collected(&mut self, row: Row, durable: bool, copies: Copies) {
        let first = self.gather.fragments.len();
        self.gather.cut(row, durable, copies);
        for index in first..self.gather.fragments.len() {
            let request = self.gather.fragments[index].request;
            self.requests.begin_part(request);
        }
    }

    /// Requests that were cut to the end: all their parts are begun now.
    fn close_cut(&mut self) {
        while let Some(id) = self.gather.done.pop() {
            self.requests.get_mut(id).cut_all();
            self.request_part_done(id, Ok(()));
        }
    }

    fn clashes(&self, offset: u64, sectors: u64) -> bool {
        !self.gather.pieces.is_empty()
            && self
                .cells_of(offset, sectors)
                .any(|(cell, start, count, _)| self.gather.overlaps(cell, start, start + count))
    }

    /// The data cells that a range of a row covers: (cell, start in the chunk, sectors, sectors before it).
    fn cells_of(
        &self,
        offset: u64,
        sectors: u64,
    ) -> impl Iterator<Item = (u8, u64, u64, u64)> + use<> {
        let chunk = self.layout.chunk_sectors();
        let mut done = 0;
        core::iter::from_fn(move || {
            let at = offset + done;
            let count = (chunk - at % chunk).min(sectors - done);
            let part = ((at / chunk) as u8, at % chunk, count, done);
            done += count;
            (count > 0).then_some(part)
        })
    }

    fn gather_data(&mut self, id: u32, offset: u64, sectors: u64) {
        let source = source(self.requests.get(id), sectors * SECTOR_BYTES);
        for (cell, start, count, before) in self.cells_of(offset, sectors) {
            let source = source.part(before, count);
            let piece = Fragment {
                cell,
                start,
                sectors: count,
                source,
                request: id,
            };
            self.gather.pieces.push(piece);
        }
    }

    /// A band of one fragment, which lies in one cell.
    fn push_single(&mut self, row: Row, kind: BandKind, fragment: Fragment) {
        let pending = self.requests.get(fragment.request);
        let band = Band {
            row,
            start: fragment.start,
            sectors: fragment.sectors,
            kind,
            durable: pending.request.fua,
            copies: pending.copies,
        };
        let first = self.gather.fragments.len();
        self.gather.fragments.push(fragment);
        self.gather.push(band, first);
        self.requests.begin_part(fragment.request);
    }

    /// A whole row, or part of a row whose cells are bound by nothing but their copies.
    fn push_discard(&mut self, id: u32, row: Row, offset: u64, sectors: u64, op: IoOp) {
        let zeros = |cell: u8, start: u64, sectors: u64| Fragment {
            cell,
            start,
            sectors,
            source: Source::Zero,
            request: id,
        };
        if self.layout.parity() {
            let whole = zeros(0, 0, self.layout.chunk_sectors());
            return self.push_single(row, BandKind::Discard(op), whole);
        }
        for (cell, start, count, _) in self.cells_of(offset, sectors) {
            self.push_single(row, BandKind::Discard(op), zeros(cell, start, count));
        }
    }

    fn push_merge(&mut self, id: u32, lba: u64, skip: u32, bytes: u32) {
        let source = source(self.requests.get(id), bytes.into());
        let place = self.layout.place(lba);
        let fragment = Fragment {
            cell: place.data,
            start: place.offset,
            sectors: u64::from(self.superblock.logical_block) / SECTOR_BYTES,
            source,
            request: id,
        };
        self.push_single(place.row, BandKind::Merge { skip, bytes }, fragment);
    }

    fn next_piece(&self, id: u32) -> (Piece, u64) {
        let pending = self.requests.get(id);
        let block = u64::from(self.superblock.logical_block);
        let (offset, left) = pending.uncut();
        if left == 0 {
            return (Piece::Nothing, 0);
        }
        let op = pending.request.op;
        if !offset.is_multiple_of(block) || left < block {
            let bytes = left.min(block - offset % block);
            let (lba, skip) = (
                offset / block * block / SECTOR_BYTES,
                (offset % block) as u32,
            );
            return match op {
                RequestOp::Trim => (Piece::Nothing, bytes),
                _ => (Piece::Merge { lba, skip }, bytes),
            };
        }
        let lba = offset / SECTOR_BYTES;
        let place = self.layout.place(lba);
        let in_row = u64::from(place.data) * self.layout.chunk_sectors() + place.offset;
        let run = self.layout.run_sectors(place, Row(place.row.0 + 1));
        let sectors = run.min(left / block * block / SECTOR_BYTES);
        let data = Piece::Data {
            row: place.row,
            offset: in_row,
            sectors,
        };
        let piece = match op {
            RequestOp::Write => data,
            _ => self.discard_piece(op, place, sectors, data),
        };
        (piece, sectors * SECTOR_BYTES)
    }

    /// How a trim or a write of zeros to part of a row is done.
    fn discard_piece(&self, op: RequestOp, place: Place, sectors: u64, data: Piece) -> Piece {
        let row = place.row;
        let offset = u64::from(place.data) * self.layout.chunk_sectors() + place.offset;
        if !self.is_written_at(place) && !self.extent_in_motion(row) {
            // Zeros are there already, but where a sector is called lost until it is written.
            let first = self.layout.lba(row, place.data, place.offset);
            let lost = self.lost.first_in(first, sectors).is_some();
            return match op {
                RequestOp::WriteZeroes { .. } if lost => data,
                _ => Piece::Nothing,
            };
        }
        let whole = !self.layout.parity() || sectors == self.layout.sectors_of(row);
        let map = self.row_map(row);
        let complete = self.live_cells(&map) == CellSet::all(map.width);
        match op {
            RequestOp::Trim if whole && complete && self.trim_reads_zero() => Piece::Discard {
                row,
                offset,
                sectors,
                op: IoOp::Trim,
            },
            RequestOp::Trim => Piece::Nothing,
            _ if whole && complete => Piece::Discard {
                row,
                offset,
                sectors,
                op: IoOp::Zero,
            },
            _ => data,
        }
    }

    /// The first piece of a trim or a write of zeros: whole rows, until they are enough work for one turn.
    /// `fast`: members zero without writing, where they can.
    pub fn piece(&self, request: &Request, fast: bool) -> Work {
        let whole = Work {
            bytes: request.bytes,
            cost: 0,
        };
        if self.admit(request).is_err() {
            return whole;
        }
        let fast = fast && self.zeroes_fast();
        let mut piece = Work { bytes: 0, cost: 0 };
        while piece.bytes < request.bytes && piece.cost < PIECE_COST {
            let row = self.row_work(request, piece.bytes, fast);
            piece.bytes += row.bytes;
            piece.cost += row.cost;
        }
        piece
    }

    /// What is left of a row `done` bytes into a trim or a write of zeros, and what it costs the members.
    fn row_work(&self, request: &Request, done: u64, fast: bool) -> Work {
        let offset = request.offset + done;
        let place = self.layout.place(offset / SECTOR_BYTES);
        let run = self.layout.run_sectors(place, Row(place.row.0 + 1));
        let left = (request.bytes - done).min(run * SECTOR_BYTES - offset % SECTOR_BYTES);
        let sectors = (left / SECTOR_BYTES).max(1);
        let data = Piece::Data {
            row: place.row,
            offset: place.offset,
            sectors,
        };
        let cost = match self.discard_piece(request.op, place, sectors, data) {
            Piece::Nothing => ROW_COST,
            Piece::Discard { op: IoOp::Trim, .. } => left / FAST_PARTS,
            Piece::Discard { .. } if fast => left / FAST_PARTS,
            Piece::Discard { .. } | Piece::Data { .. } | Piece::Merge { .. } => left,
        };
        Work {
            bytes: left,
            cost: cost.max(ROW_COST),
        }
    }
}

/// The new data of a request's next bytes.
fn source(pending: &Pending, bytes: u64) -> Source {
    match pending.request.op {
        RequestOp::Write => Source::Buf(pending.buffer(bytes)),
        _ => Source::Zero,
    }
}

/// What has been cut from requests and not started. Kept empty but for what there was no room to start.
/// Neighbouring requests to one row are collected first, so that a stream of small writes becomes full rows.
/// A band is at most [`BAND_SECTORS_MAX`] high, unless it only discards.
#[derive(Default)]
pub(super) struct Gather {
    /// Reads to be answered by redundancy, with the member whose medium erred.
    pub(super) retries: VecDeque<(ReadPart, Option<Member>)>,
    bands: VecDeque<(Band, Range<usize>)>,
    fragments: Vec<Fragment>,
    pieces: Vec<Fragment>,
    cuts: Vec<u64>,
    /// Requests that were cut to the end in this turn.
    done: Vec<u32>,
}

impl Gather {
    /// For as many requests as there may be.
    pub(super) fn new(requests: u32) -> Gather {
        Gather {
            done: Vec::with_capacity(requests as usize),
            ..Gather::default()
        }
    }

    /// Whether anything cut from requests found no room.
    pub(super) fn waiting(&self) -> bool {
        !self.retries.is_empty() || !self.bands.is_empty()
    }

    /// The next band to be started, with its fragments.
    fn next(&self) -> Option<(&Band, &[Fragment])> {
        let (band, fragments) = self.bands.front()?;
        Some((band, &self.fragments[fragments.clone()]))
    }

    /// The next band was started.
    fn started(&mut self) {
        self.bands.pop_front();
        if self.bands.is_empty() {
            self.fragments.clear();
        }
    }

    /// Adds a band of the fragments from the `first` on.
    fn push(&mut self, band: Band, first: usize) {
        self.bands.push_back((band, first..self.fragments.len()));
    }

    fn overlaps(&self, cell: u8, start: u64, end: u64) -> bool {
        self.pieces
            .iter()
            .any(|piece| piece.cell == cell && piece.start < end && start < piece.end())
    }

    /// Cuts the collected pieces of a row into bands.
    fn cut(&mut self, row: Row, durable: bool, copies: Copies) {
        self.cuts.clear();
        self.pieces
            .sort_unstable_by_key(|piece| (piece.cell, piece.start));
        let lowest = self.pieces.iter().map(|piece| piece.start).min();
        let lowest = lowest.unwrap_or(0);
        let highest = self.pieces.iter().map(Fragment::end).max().unwrap_or(0);
        for piece in &self.pieces {
            self.cuts.push(piece.start);
            self.cuts.push(piece.end());
        }
        if highest - lowest > BAND_SECTORS_MAX {
            let mut at = lowest.next_multiple_of(BAND_SECTORS_MAX);
            while at < highest {
                self.cuts.push(at);
                at += BAND_SECTORS_MAX;
            }
        }
        self.cuts.sort_unstable();
        self.cuts.dedup();
        let mut open: Option<(u64, u64, CellSet)> = None;
        for index in 1..self.cuts.len() {
            let (start, end) = (self.cuts[index - 1], self.cuts[index]);
            let cells = self.cells_in(start, end);
            open = match open {
                Some((from, to, held))
                    if held == cells && to == start && end - from <= BAND_SECTORS_MAX =>
                {
                    Some((from, end, held))
                }
                other => {
                    if let Some((from, to, _)) = other {
                        self.push_band(row, from..to, durable, copies);
                    }
                    (!cells.is_empty()).then_some((start, end, cells))
                }
            };
        }
        if let Some((from, to, _)) = open {
            self.push_band(row, from..to, durable, copies);
        }
    }

    fn cells_in(&self, start: u64, end: u64) -> CellSet {
        let within = |piece: &&Fragment| piece.start < end && start < piece.end();
        let pieces = self.pieces.iter().filter(within);
        pieces.map(|piece| piece.cell).collect()
    }

    fn push_band(&mut self, row: Row, range: Range<u64>, durable: bool, copies: Copies) {
        let Range { start, end } = range;
        let first = self.fragments.len();
        for piece in &self.pieces {
            let (from, to) = (piece.start.max(start), piece.end().min(end));
            if from < to {
                let source = piece.source.part(from - piece.start, to - from);
                self.fragments.push(Fragment {
                    start: from,
                    sectors: to - from,
                    source,
                    ..*piece
                });
            }
        }
        let band = Band {
            row,
            start,
            sectors: end - start,
            kind: BandKind::Data,
            durable,
            copies,
        };
        self.push(band, first);
    }
}
