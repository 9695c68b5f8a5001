//! The log: the lowest floor of the overlay. Owns the extent map, the log's space, and the places that the
//! map has let go but that are still needed.
//!
//! A place that a newer record replaces is needed until that record is durable, and until reads that began
//! before have ended. Only then [`LogSpace`] gets it back.

use super::effect::Effect;
use super::limits::{FoundInLog, OverlayCounters, OverlayLimits};
use super::{Extent, ExtentMap, Kind, LogShape, LogSpace, Piece, Pressure, Refusal, is_logged};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;
use restripe_array::parts::Bug;
use restripe_array::{PAGE_SECTORS, PLANTED};

/// A piece that the map let go, whose place may still be needed.
#[derive(Clone, Copy, Debug)]
struct Retired {
    piece: Extent,
    /// Reads that began before this serial may still read it.
    serial: u64,
    /// It is free when all records below are durable: then its replacement is.
    until: u64,
}

pub struct Log {
    pub(super) limits: OverlayLimits,
    pub(super) map: ExtentMap,
    pub(super) space: LogSpace,
    /// The sequence of the next record.
    pub(super) sequence: u64,
    /// Every record below is durable.
    pub(super) durable: u64,
    /// Serials of the reads in flight, the oldest first, and whether each has ended.
    reading: VecDeque<(u64, bool)>,
    serial: u64,
    retired: VecDeque<Retired>,
    /// The log has failed, or there is none.
    pub(super) broken: bool,
    /// The primary copies are trusted to have what was deferred.
    pub(super) trusts: bool,
    pub(super) counters: OverlayCounters,
    effects: VecDeque<Effect>,
    bug: Option<Bug>,
}

impl Log {
    pub(super) fn new(
        limits: OverlayLimits,
        shape: LogShape,
        found: &FoundInLog,
    ) -> Result<Log, Refusal> {
        let mut log = Log {
            limits,
            map: ExtentMap::new(limits.extents),
            space: LogSpace::new(shape, &found.segments),
            sequence: found.sequence,
            durable: found.sequence,
            reading: VecDeque::with_capacity(limits.parts() as usize),
            serial: 0,
            retired: VecDeque::new(),
            broken: limits.logless,
            trusts: false,
            counters: OverlayCounters::default(),
            effects: VecDeque::new(),
            bug: None,
        };
        assert!(
            log.footprint(limits.record_sectors) <= shape.segment_sectors,
            "a record lies within a segment"
        );
        for extent in &found.extents {
            log.restore(*extent)?;
        }
        for &segment in &found.segments {
            let start = log.space.segment_range(segment).start;
            log.space.landed(start);
        }
        Ok(log)
    }

    fn restore(&mut self, extent: Extent) -> Result<(), Refusal> {
        let mut replaced = Vec::new();
        self.map.insert(extent, |piece| replaced.push(piece))?;
        self.space.mapped(&extent);
        for piece in replaced {
            self.space.unmapped(&piece);
        }
        Ok(())
    }

    /// Plants a bug.
    pub(crate) fn plant(&mut self, bug: Option<Bug>) {
        self.bug = bug;
    }

    pub(super) fn planted(&self, bug: Bug) -> bool {
        PLANTED && self.bug == Some(bug)
    }

    /// The next action that the overlay requests.
    pub fn effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    pub(super) fn emit(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    pub(super) fn has_effects(&self) -> bool {
        !self.effects.is_empty()
    }

    // ---------------------------------------------------------------------------------------------- queries

    pub fn map(&self) -> &ExtentMap {
        &self.map
    }

    pub fn counters(&self) -> OverlayCounters {
        self.counters
    }

    /// The sequence of the next record: a destage below it takes everything.
    pub fn next_sequence(&self) -> u64 {
        self.sequence
    }

    /// How short the log's space is.
    pub(crate) fn pressure(&self) -> Pressure {
        self.space.pressure()
    }

    /// Whether the log failed: writes to it are refused, and its data cannot be read.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Whether the primary copies are trusted to have what was deferred.
    pub fn trusts(&self) -> bool {
        self.trusts
    }

    /// Whether nothing can be destaged.
    pub(crate) fn is_stuck(&self) -> bool {
        self.broken && !self.trusts
    }

    /// Whether only the primary copies have what was deferred: the log failed, or there never was one.
    pub(crate) fn is_primary_only(&self) -> bool {
        self.broken && self.trusts
    }

    /// Whether there is no log, and never was one.
    pub(crate) fn is_logless(&self) -> bool {
        self.limits.logless
    }

    /// Whether a write of sectors that are not mapped may be redirected.
    pub(super) fn takes_writes(&self) -> bool {
        !self.broken || self.is_logless() && self.trusts
    }

    /// Sectors of a record's payload at most.
    pub fn record_sectors(&self) -> u32 {
        self.limits.record_sectors
    }

    /// Sectors of the log.
    pub fn log_sectors(&self) -> u64 {
        self.space.sectors()
    }

    /// Sectors that a record takes of the log: its header, and its payload, in whole grains.
    pub(super) fn footprint(&self, payload: u32) -> u32 {
        (PAGE_SECTORS as u32 + payload).next_multiple_of(self.limits.grain)
    }

    /// The kind of a copy, as far as primary copies are trusted.
    pub(super) fn kind_now(&self, extent: &Extent) -> Kind {
        match extent.kind {
            Kind::Also if !self.trusts => Kind::Instead,
            kind => kind,
        }
    }

    /// Extents whose only current copy is in the log.
    pub(crate) fn extents_instead(&self) -> u64 {
        self.map.total(Kind::Instead).extents + self.map.total(Kind::Also).extents
    }

    /// Sectors whose only current copy is in the log.
    pub(crate) fn sectors_instead(&self) -> u64 {
        self.map.total(Kind::Instead).sectors + self.map.total(Kind::Also).sectors
    }

    /// Whether the map has any extent, which can be destaged or dropped.
    pub(crate) fn holds_anything(&self) -> bool {
        let any = |kind: &Kind| self.map.total(*kind).extents > 0;
        Kind::ALL.iter().any(any)
    }

    /// The parts of a range whose current copy is in the main set: (lba, sectors).
    pub(crate) fn not_instead(&self, range: Range<u64>) -> Vec<(u64, u64)> {
        let mut left = Vec::new();
        for piece in self.map.lookup(range) {
            match piece {
                Piece::Hole { home, sectors } => left.push((home, sectors)),
                Piece::Mapped(copy) if copy.kind == Kind::Clean => {
                    left.push((copy.home, u64::from(copy.sectors)));
                }
                Piece::Mapped(_) => {}
            }
        }
        left
    }

    /// The parts of a range that the log does not have, in pieces that fit a record.
    pub(crate) fn holes(&self, range: Range<u64>) -> Vec<(u64, u32)> {
        let longest = self.record_sectors();
        let mut holes = Vec::new();
        for piece in self.map.lookup(range) {
            let Piece::Hole { home, sectors } = piece else {
                continue;
            };
            for lba in (home..home + sectors).step_by(longest as usize) {
                let left = home + sectors - lba;
                holes.push((lba, left.min(u64::from(longest)) as u32));
            }
        }
        holes
    }

    // ----------------------------------------------------------------------------------------------- places

    pub(super) fn begin_reading(&mut self) -> u64 {
        self.serial += 1;
        self.reading.push_back((self.serial, false));
        self.serial
    }

    pub(super) fn end_reading(&mut self, serial: u64) {
        let first = self.reading.front().expect("it is in flight").0;
        self.reading[(serial - first) as usize].1 = true;
        while self.reading.front().is_some_and(|(_, ended)| *ended) {
            self.reading.pop_front();
        }
        self.settle_retired();
    }

    /// Maps an extent of a record, and retires what it replaces.
    pub(super) fn put_on_map(&mut self, extent: Extent) {
        let mut replaced = Vec::new();
        self.map
            .insert(extent, |piece| replaced.push(piece))
            .expect("its room was there before it was begun");
        if is_logged(extent.at) {
            self.space.mapped(&extent);
        }
        for piece in replaced {
            self.retire(piece, extent.sequence + 1);
        }
    }

    /// The map let a piece go: its place is needed until all records below are durable, and its reads have
    /// ended.
    fn retire(&mut self, piece: Extent, until: u64) {
        if !is_logged(piece.at) {
            return;
        }
        self.retired.push_back(Retired {
            piece,
            serial: self.serial,
            until,
        });
    }

    /// Pieces left the map, and nothing replaced them.
    pub(super) fn retire_all(&mut self, pieces: Vec<Extent>) {
        pieces.into_iter().for_each(|piece| self.retire(piece, 0));
        self.settle_retired();
    }

    /// Gives back places that nothing needs any more.
    pub(super) fn settle_retired(&mut self) {
        let oldest = self.reading.front().map(|(serial, _)| *serial);
        let durable = self.durable;
        let free = |retired: &&Retired| {
            retired.until <= durable && oldest.is_none_or(|oldest| oldest > retired.serial)
        };
        while let Some(retired) = self.retired.front().filter(free).copied() {
            self.retired.pop_front();
            self.space.unmapped(&retired.piece);
        }
    }

    pub(super) fn has_retired(&self) -> bool {
        !self.retired.is_empty()
    }

    /// Whether a flush of the log would let places go.
    pub(super) fn retires_with_flush(&self) -> bool {
        let durable = self.durable;
        self.retired.iter().any(|retired| retired.until > durable)
    }

    /// Neither copies nor log have these sectors any more.
    ///
    /// # Panics
    /// If the log is in use: its data is not lost.
    pub fn forget(&mut self, home: Range<u64>) {
        assert!(self.broken, "only the primary copies had it");
        let mapped = |piece| match piece {
            Piece::Mapped(extent) => Some(extent),
            Piece::Hole { .. } => None,
        };
        let gone: Vec<Extent> = self.map.lookup(home).filter_map(mapped).collect();
        let mut taken = Vec::new();
        for extent in gone {
            let cut = extent.home..extent.end();
            // In a map too full to cut an extent in two it stays: it reads as lost all the same.
            let _ = self
                .map
                .remove_if(cut, extent.sequence, |piece| taken.push(piece));
        }
        self.retire_all(taken);
    }

    // ----------------------------------------------------------------------------------------- clean copies

    /// Drops the clean copies of the oldest segment with any, reporting each piece; false if there are none.
    pub fn drop_clean(&mut self, dropped: impl FnMut(&Extent)) -> bool {
        match self.space.oldest_clean() {
            Some(segment) => self.drop_clean_of(segment, dropped),
            None => false,
        }
    }

    /// The segment of the first clean copy of a range.
    pub(crate) fn clean_segment(&self, home: Range<u64>) -> Option<u32> {
        let clean = |piece| match piece {
            Piece::Mapped(extent) if extent.kind == Kind::Clean => Some(extent.at),
            _ => None,
        };
        let at = self.map.lookup(home).find_map(clean)?;
        Some(self.space.segment_of(at))
    }

    /// Drops the clean copies of a segment.
    pub(crate) fn drop_clean_of(&mut self, segment: u32, dropped: impl FnMut(&Extent)) -> bool {
        let log = self.space.segment_range(segment);
        let clean = |extent: &Extent| extent.kind == Kind::Clean;
        let copies: Vec<Extent> = self.map.in_log(log, 0).filter(clean).collect();
        let mut gone = Vec::new();
        for copy in &copies {
            // In a map too full to cut an extent in two it stays.
            let home = copy.home..copy.end();
            let _ = self.map.drop_clean(home, |piece| gone.push(piece));
        }
        let any = !gone.is_empty();
        gone.iter().for_each(dropped);
        self.retire_all(gone);
        any
    }
}
