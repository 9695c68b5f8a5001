//! The intake: the floor above the rows. It cuts requests into parts; [`crate::clients`] admits them, and
//! replies when every part is done.
//!
//! Owns what has been cut and not started. Asks every floor below. Reads of healthy cells go straight to
//! their members (`reads`). Writes (`writes`), and reads that redundancy must answer, become slices. Two
//! queues, each first come first served, hold what could not be started yet.

mod reads;
mod writes;

use crate::clients::Copies;
use crate::config::Config;
use crate::contract::BAND_SECTORS_MAX;
use crate::layout::code::CellSet;
use crate::members::ops::ReadPart;
use crate::members::pool::Share;
use crate::slice::rows::Rows;
use crate::slice::table::{Band, BandKind, Fragment};
use crate::units::{Member, Row, SECTOR_BYTES};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

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
}

/// What has been cut from requests and not started. Kept empty but for what there was no room to start.
/// Neighbouring requests to one row are collected first, so that a stream of small writes becomes full rows.
/// A band is at most [`BAND_SECTORS_MAX`] high, unless it only discards.
#[derive(Default)]
struct Gather {
    /// Reads to be answered by redundancy, with the member whose medium erred.
    retries: VecDeque<(ReadPart, Option<Member>)>,
    bands: VecDeque<(Band, Range<usize>)>,
    fragments: Vec<Fragment>,
    pieces: Vec<Fragment>,
    cuts: Vec<u64>,
    /// Requests that were cut to the end in this turn.
    done: Vec<u32>,
}

impl Gather {
    /// For as many requests as there may be.
    fn new(requests: u32) -> Gather {
        Gather {
            done: Vec::with_capacity(requests as usize),
            ..Gather::default()
        }
    }

    /// Whether anything cut from requests found no room.
    fn waiting(&self) -> bool {
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
        let lowest = self
            .pieces
            .iter()
            .map(|piece| piece.start)
            .min()
            .unwrap_or(0);
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
        self.pieces
            .iter()
            .filter(within)
            .fold(CellSet::default(), |set, piece| set.with(piece.cell))
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
