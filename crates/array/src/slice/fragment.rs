//! New data of a write: fragments of cells, and the bands that are made of them.

use crate::clients::Copies;
use crate::contract::{BufRef, IoOp, Segment};
use crate::units::{Row, SECTOR_BYTES};

/// Where new data comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    Buf(BufRef),
    Zero,
}

impl Source {
    pub(crate) fn part(self, offset_sectors: u64, sectors: u64) -> Source {
        match self {
            Source::Buf(buf) => Source::Buf(buf.part(
                (offset_sectors * SECTOR_BYTES) as u32,
                (sectors * SECTOR_BYTES) as u32,
            )),
            Source::Zero => Source::Zero,
        }
    }
}

/// New data for part of one cell, on behalf of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fragment {
    pub(crate) cell: u8,
    /// Sectors from the start of the chunk.
    pub(crate) start: u64,
    pub(crate) sectors: u64,
    pub(crate) source: Source,
    pub(crate) request: u32,
}

impl Fragment {
    pub(crate) fn end(&self) -> u64 {
        self.start + self.sectors
    }

    /// The part of the fragment that lies in `start..end` of its chunk.
    pub(crate) fn segment(&self, start: u64, end: u64) -> Option<Segment> {
        let (from, to) = (self.start.max(start), self.end().min(end));
        (from < to).then(
            || match self.source.part(from.saturating_sub(self.start), to - from) {
                Source::Buf(buf) => Segment::Buf(buf),
                Source::Zero => Segment::Zero(((to - from) * SECTOR_BYTES) as u32),
            },
        )
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BandKind {
    Data,
    /// Trim or zero whole cells, all that the code binds.
    Discard(IoOp),
    /// Less than a block: the old block is read and the new bytes put over it.
    Merge {
        skip: u32,
        bytes: u32,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Band {
    pub(crate) row: Row,
    pub(crate) start: u64,
    pub(crate) sectors: u64,
    pub(crate) kind: BandKind,
    pub(crate) durable: bool,
    pub(crate) copies: Copies,
}
