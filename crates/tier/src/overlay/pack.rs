//! Packing (ECW in RERAID, section 3.2): small writes are collected in memory, and go into the log by whole
//! clusters. A floor above the records.
//!
//! A **cluster** is a number of records in a row; each has a header, which is its part of the paper's
//! log_table, and a payload of one buffer. A write is acknowledged when memory has its bytes, as by a drive
//! with a volatile cache: it is durable after a flush, or with FUA when it is acknowledged.
//!
//! | record  | cause                                                          | next    |
//! |---------|----------------------------------------------------------------|---------|
//! | filling | its payload or its table is full, or a client flushes          | closed  |
//! | closed  | its cluster is complete, or a client flushes; no copy in flight | writing |
//! | writing | as any other record ([`super::records`])                       | landed  |
//!
//! The paper seals the least recently used of a few clusters. Here every write goes to the newest record, so
//! the least recently used is the oldest, and clusters go into the log in the order of their sequences. A
//! write of sectors that the record being filled has replaces its bytes: no record has a sector twice.

use super::effect::{Effect, PackTag};
use super::format::EXTENTS_MAX;
use super::limits::{Packing, SealCause};
use super::nvram::slots::NvramSlots;
use super::records::{AckTarget, Record};
use super::requests::{Owner, Pending, whole};
use super::{Extent, Kind, Piece, Purpose};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;
use restripe_array::parts::Bug;
use restripe_array::{BufRef, PAGE_SECTORS, RequestError, RequestOp, SECTOR_BYTES};

/// What is being packed, and on its way into the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PackState {
    /// A record is being filled.
    pub filling: bool,
    /// Copies into records are in flight.
    pub copying: bool,
    /// Records that are sealed and not yet in the log, by [`SealCause`].
    pub sealed: [u32; SealCause::ALL.len()],
    /// Those of them that are being written: the others wait for their cluster, or a copy into them.
    pub in_flight: u32,
    /// A record waits until the old records of the segment that it begins are obsolete.
    pub reusing: bool,
}

/// A record in memory.
struct Packed {
    sequence: u64,
    /// The place of its header in the log.
    at: u64,
    /// Sectors of its payload that are taken.
    used: u32,
    extents: Vec<Extent>,
    /// Copies into it that are in flight.
    copies: u32,
    /// Some of it was moved from elsewhere in the log.
    moved: bool,
}

/// Where a copy into a record comes from.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// Part of a request.
    Request(u32),
    /// What cleaning moves, by its reading.
    Move(u64),
}

/// A copy into a record that is in flight.
struct Copying {
    extent: Extent,
    from: Source,
    /// The record had these sectors already.
    over: bool,
    done: bool,
}

/// Records in memory.
pub(super) struct Pack {
    pub(super) packing: Packing,
    /// Not yet handed out, the oldest first; the last one may be filling.
    records: VecDeque<Packed>,
    pub(super) filling: bool,
    /// Records closed of the cluster that is being filled.
    closed: u32,
    /// Records below go out.
    due: u64,
    /// A record that begins a segment, until the log's anchor makes its old records obsolete.
    begins: Option<u64>,
    copies: VecDeque<Copying>,
    first_copy: u64,
    /// A write waits for memory or for another copy: not for space.
    waits: bool,
}

impl Pack {
    fn new(packing: Packing) -> Pack {
        assert!(packing.records > 0 && packing.held >= packing.records);
        Pack {
            packing,
            records: VecDeque::with_capacity(packing.held as usize),
            filling: false,
            closed: 0,
            due: 0,
            begins: None,
            copies: VecDeque::new(),
            first_copy: 0,
            waits: false,
        }
    }

    pub(super) fn copies(&self) -> bool {
        !self.copies.is_empty()
    }

    /// Whether a record waits until the old records of its segment are obsolete.
    pub(super) fn begins_segment(&self) -> bool {
        self.begins.is_some()
    }

    /// The table of a record that is not being written yet, its payload's sectors, and whether it is filling.
    pub(super) fn packed(&self, sequence: u64) -> Option<(&[Extent], u32, bool)> {
        let first = self.records.front()?.sequence;
        let index = sequence.checked_sub(first)? as usize;
        let record = self.records.get(index)?;
        let filling = self.filling && index + 1 == self.records.len();
        Some((&record.extents, record.used, filling))
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.records.is_empty() && self.copies.is_empty()
    }

    /// Whether a copy in flight has some of these sectors.
    fn touches(&self, home: &Range<u64>) -> bool {
        let within = |copy: &Copying| copy.extent.within(home.clone()).is_some();
        self.copies.iter().any(within)
    }

    /// Takes the next record that goes out now.
    fn next_due(&mut self, under_copy: bool) -> Option<Packed> {
        let open = self.filling && self.records.len() == 1;
        let (due, begins) = (self.due, self.begins.unwrap_or(u64::MAX));
        let ready = |record: &&Packed| {
            (record.copies == 0 || under_copy) && record.sequence < due.min(begins)
        };
        self.records.front().filter(ready).filter(|_| !open)?;
        self.records.pop_front()
    }
}

/// Copies in flight at once.
const COPIES_MAX: usize = 64;

/// Where the next sectors of a write go.
pub(super) enum Spot {
    /// Over those that the record being filled has.
    Over(Extent),
    /// Behind those that it has, at most this number.
    Behind(u32),
    /// Nowhere: no record is being filled, or it is full.
    None,
}

pub struct Packer {
    pub(super) below: NvramSlots,
    pub(super) pack: Option<Pack>,
    /// Sectors of closed records that have only writes of clients.
    pub(super) clients_took: u64,
    /// Records were refused, because the log has failed, and have not landed.
    refused: bool,
}

floor!(Packer over NvramSlots);

impl Packer {
    pub(super) fn new(below: NvramSlots) -> Packer {
        Packer {
            pack: below.limits.packing.map(Pack::new),
            below,
            clients_took: 0,
            refused: false,
        }
    }

    fn packs(&mut self) -> &mut Pack {
        self.pack.as_mut().expect("writes are packed")
    }

    /// The records that are being packed; `None` where none ever are.
    pub(crate) fn pack_state(&self) -> Option<PackState> {
        let pack = self.pack.as_ref()?;
        let mut sealed = [0; SealCause::ALL.len()];
        for cause in self.records.iter().filter_map(|record| record.sealed) {
            sealed[cause as usize] += 1;
        }
        Some(PackState {
            filling: pack.filling,
            copying: pack.copies(),
            sealed,
            in_flight: (self.records.len() - pack.records.len()) as u32,
            reusing: pack.begins_segment(),
        })
    }

    /// Whether memory has records that are not on their way into the log.
    pub(crate) fn has_packed(&self) -> bool {
        let holds = |pack: &Pack| !pack.records.is_empty();
        self.pack.as_ref().is_some_and(holds)
    }

    /// Whether a write waits for memory or a copy, not for space.
    pub(super) fn waits_for_memory(&self) -> bool {
        self.pack.as_ref().is_some_and(|pack| pack.waits)
    }

    /// Whether any of these sectors is mapped, or is in a record in flight.
    pub(super) fn is_in_log(&self, sectors: Range<u64>) -> bool {
        let mapped = |piece: Piece| matches!(piece, Piece::Mapped(_));
        let packs = |pack: &Pack| pack.touches(&sectors);
        self.pack.as_ref().is_some_and(packs)
            || self.is_in_records(&sectors)
            || self.map.lookup(sectors).any(mapped)
    }

    /// Packs the next piece of a write; false if there is no room for it now.
    pub(super) fn pack(&mut self, id: u32) -> bool {
        self.packs().waits = false;
        if self.space.in_reserve() {
            // The reserve is cleaning's, and so is the record being filled.
            return false;
        }
        let Pending { request, cut, .. } = *self.pending(id);
        let home = request.sectors().start + cut;
        let left = (whole(&request) - cut).min(u64::from(self.limits.record_sectors)) as u32;
        if !self.may_copy_in(&(home..home + u64::from(left))) {
            self.packs().waits = true;
            return false;
        }
        let copies = self.copies_in_flight();
        if !self.map.room_for(copies + 1) {
            return false;
        }
        let (extent, over) = match self.spot(home, left) {
            Spot::Over(extent) => (extent, true),
            Spot::Behind(sectors) => (self.lay(home, sectors), false),
            Spot::None => {
                self.close_record(SealCause::Full);
                return self.open_for_clients() && self.pack(id);
            }
        };
        let bytes = (u64::from(extent.sectors) * SECTOR_BYTES) as u32;
        let offset = (cut * SECTOR_BYTES) as u32;
        let source = (request.op == RequestOp::Write).then(|| request.buf.part(offset, bytes));
        let pending = self.pending(id);
        pending.cut += u64::from(extent.sectors);
        pending.parts += 1;
        self.copy_in(Source::Request(id), extent, over, source);
        true
    }

    pub(super) fn spot(&mut self, home: u64, left: u32) -> Spot {
        let most = self.limits.record_sectors;
        let pack = self.packs();
        let Some(record) = pack.records.back().filter(|_| pack.filling) else {
            return Spot::None;
        };
        let end = home + u64::from(left);
        let next = |extent: &&Extent| extent.end() > home && extent.home < end;
        let extents = record.extents.iter();
        let met = extents.filter(next).min_by_key(|one| one.home);
        let over = met.and_then(|one| one.within(home..end));
        if let Some(over) = over.filter(|one| one.home == home) {
            return Spot::Over(over);
        }
        let before = met.map_or(left, |one| (one.home - home) as u32);
        let room = most - record.used;
        match record.extents.len() < EXTENTS_MAX && room > 0 {
            true => Spot::Behind(before.min(room)),
            false => Spot::None,
        }
    }

    /// Takes room at the end of the record being filled.
    pub(super) fn lay(&mut self, home: u64, sectors: u32) -> Extent {
        let record = self.packs().records.back_mut();
        let record = record.expect("one is being filled");
        let extent = Extent {
            home,
            sectors,
            at: record.at + PAGE_SECTORS + u64::from(record.used),
            sequence: record.sequence,
            kind: Kind::Instead,
        };
        record.used += sectors;
        match record.extents.last_mut().filter(|last| last.joins(&extent)) {
            Some(last) => last.sectors += sectors,
            None => record.extents.push(extent),
        }
        extent
    }

    /// Whether these sectors may be copied into a record now: not while a copy in flight has some of them,
    /// which is newer, and not while versions of records are made for NVRAM.
    pub(super) fn may_copy_in(&mut self, home: &Range<u64>) -> bool {
        let newer = self.packs().touches(home) && !self.planted(Bug::PackedOver);
        let many = self.packs().copies.len() == COPIES_MAX;
        !(newer || many || self.is_versioning())
    }

    pub(super) fn copies_in_flight(&mut self) -> u32 {
        self.packs().copies.len() as u32 // COPIES_MAX at most
    }

    pub(super) fn copy_in(
        &mut self,
        from: Source,
        extent: Extent,
        over: bool,
        source: Option<BufRef>,
    ) {
        let pack = self.packs();
        let tag = PackTag(pack.first_copy + pack.copies.len() as u64);
        pack.copies.push_back(Copying {
            extent,
            from,
            over,
            done: false,
        });
        let record = pack.records.back_mut();
        let record = record.expect("one is being filled");
        record.copies += 1;
        record.moved |= matches!(from, Source::Move(_));
        let at = record.at;
        self.emit(Effect::Pack {
            tag,
            extent,
            at,
            source,
        });
    }

    /// A copy into a record has ended.
    ///
    /// # Panics
    /// If it is not in flight.
    pub(super) fn copy_ended(&mut self, tag: PackTag) {
        let pack = self.packs();
        let index = (tag.0 - pack.first_copy) as usize;
        pack.copies[index].done = true;
    }

    /// Enters the next copy that has ended in the map, and says where it came from. Copies are entered in the
    /// order in which they were begun.
    pub(super) fn next_copied(&mut self) -> Option<Source> {
        let pack = self.packs();
        let copy = pack.copies.pop_front_if(|copy| copy.done)?;
        pack.first_copy += 1;
        self.copied_in(&copy);
        Some(copy.from)
    }

    fn copied_in(&mut self, copy: &Copying) {
        let extent = copy.extent;
        self.freshen(extent.sequence);
        let mut records = self.packs().records.iter_mut();
        let record = records.find(|record| record.sequence == extent.sequence);
        match record {
            Some(record) => record.copies -= 1,
            None => assert!(
                self.planted(Bug::SealedUnderCopy),
                "it waits for its copies"
            ),
        }
        if !copy.over {
            self.put_on_map(extent);
        }
    }

    // ---------------------------------------------------------------------------------------------- records

    fn open_for_clients(&mut self) -> bool {
        let opened = self.open_record(Purpose::Use);
        self.packs().waits = !opened && self.record_waits();
        opened
    }

    /// Whether a further record has to wait for memory, or until the segment of the last one may be written.
    pub(super) fn record_waits(&mut self) -> bool {
        let held = self.packs().packing.held as usize;
        self.records.len() >= held || self.packs().begins.is_some() || self.lacks_slot()
    }

    /// False if it has to wait, or if there is no space.
    pub(super) fn open_record(&mut self, purpose: Purpose) -> bool {
        let reserved = self.footprint(self.limits.record_sectors);
        if self.record_waits() {
            self.packs().due = self.sequence;
            self.send_records();
            self.free_slots();
            return false;
        }
        let opened = self.space.opened();
        let Some(at) = self.space.take(reserved, purpose) else {
            return false;
        };
        let sequence = self.sequence;
        self.sequence += 1;
        self.counters.records += 1;
        let extent = Extent {
            home: 0,
            sectors: 0,
            at: at + PAGE_SECTORS,
            sequence,
            kind: Kind::Instead,
        };
        self.push_record(Record::new(extent, AckTarget::None));
        let pack = self.packs();
        pack.records.push_back(Packed {
            sequence,
            at,
            used: 0,
            extents: Vec::new(),
            copies: 0,
            moved: false,
        });
        pack.filling = true;
        self.hold(sequence);
        if self.space.opened() != opened {
            self.packs().begins = Some(sequence);
            self.reuse(at);
        }
        true
    }

    /// Nothing more comes into the record being filled: room in the log that it does not need is given back.
    pub(super) fn close_record(&mut self, cause: SealCause) {
        let reserved = self.footprint(self.limits.record_sectors);
        let pack = self.packs();
        if !core::mem::take(&mut pack.filling) {
            return;
        }
        pack.closed += 1;
        let record = pack.records.back().expect("one was filled");
        let (used, sequence, moved) = (record.used, record.sequence, record.moved);
        if pack.closed == pack.packing.records {
            pack.closed = 0;
            pack.due = sequence + 1;
        }
        let kept = self.footprint(used);
        self.space.give_back(reserved - kept);
        if !moved {
            self.clients_took += u64::from(kept);
        }
        self.record_mut(sequence).sealed = Some(cause);
        self.counters.seals[cause as usize] += 1;
        self.send_records();
    }

    /// All records in memory go into the log now.
    pub(super) fn seal_records(&mut self, cause: SealCause) {
        if self.pack.is_none() {
            return;
        }
        self.close_record(cause);
        let sequence = self.sequence;
        let pack = self.packs();
        pack.closed = 0;
        pack.due = sequence;
        self.send_records();
    }

    /// Hands out the records that are due. If the log has failed they are refused: see
    /// [`Packer::take_refused`].
    pub(super) fn send_records(&mut self) {
        let under_copy = self.planted(Bug::SealedUnderCopy);
        while let Some(record) = self.packs().next_due(under_copy) {
            if self.broken {
                self.record_mut(record.sequence).result = Some(Err(RequestError::Unavailable));
                self.refused = true;
                continue;
            }
            self.hold_sealed(record.sequence, &record.extents, record.used);
            let durable = self.durable;
            self.emit(Effect::Seal {
                sequence: record.sequence,
                extents: record.extents,
                payload_sectors: record.used,
                durable,
            });
        }
    }

    /// Whether records were refused, since this was called last.
    pub(super) fn take_refused(&mut self) -> bool {
        core::mem::take(&mut self.refused)
    }

    /// The segment that the held-back record begins may be written; or it may not, and the log has failed.
    pub(super) fn segment_begun(&mut self, failed: bool) {
        self.packs().begins = None;
        self.broken |= failed;
        self.send_records();
    }

    /// Flushes the log, when it has all that was acknowledged.
    pub(super) fn flush_log(&mut self, owner: Owner, cause: SealCause) {
        let part = self.begin_part(owner);
        self.flush_sealed(part, cause);
    }

    pub(super) fn flush_sealed(&mut self, part: super::PartTag, cause: SealCause) {
        let until = match self.pack {
            Some(_) => self.sequence,
            None => self.acknowledged(),
        };
        self.flushes.push_back((until, part));
        self.seal_records(cause);
        self.begin_flushes();
    }
}
