//! Pieces: what a write, a trim or a write of zeros is next, and what it costs the members.

use super::Intake;
use crate::contract::{IoOp, Request, RequestOp, Work};
use crate::layout::Place;
use crate::layout::code::CellSet;
use crate::units::{Row, SECTOR_BYTES};

/// The cost of a piece, in bytes written: about what members do in some milliseconds.
const PIECE_COST: u64 = 1 << 20;
/// A row costs this much, even when nothing is to be done about it.
const ROW_COST: u64 = 1024;
/// Zeroing or trimming without writing costs one such part of writing.
const FAST_PARTS: u64 = 4;

/// What the next bytes of a queued write are.
pub(super) enum Piece {
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

impl Intake {
    pub(super) fn next_piece(&self, id: u32) -> (Piece, u64) {
        let pending = self.requests.get(id);
        let block = u64::from(self.superblock.logical_block);
        let offset = pending.request.offset + pending.cut;
        let left = pending.request.bytes - pending.cut;
        if left == 0 {
            return (Piece::Nothing, 0);
        }
        let op = pending.request.op;
        if !offset.is_multiple_of(block) || left < block {
            let bytes = left.min(block - offset % block);
            let skip = (offset % block) as u32;
            let merge = Piece::Merge {
                lba: offset / block * block / SECTOR_BYTES,
                skip,
            };
            return (
                if op == RequestOp::Trim {
                    Piece::Nothing
                } else {
                    merge
                },
                bytes,
            );
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
