//! Erasure-coding writes (ECW: RERAID, section 3.2): small writes are gathered in memory, and go into the log by whole clusters.
//!
//! A **cluster** is so many records in a row; each has a header, which is its part of the paper's log_table, and a payload of
//! one buffer. Users are told when their bytes are in memory, as by a drive with a volatile cache: what was told counts
//! durably once a flush has ended, or with FUA when it is replied to.
//!
//! | record  | cause                                                          | next    |
//! |---------|----------------------------------------------------------------|---------|
//! | filling | its payload or its table is full, or somebody flushes          | closed  |
//! | closed  | its cluster is complete, or somebody flushes; no copy under way | writing |
//! | writing | as any other record ([`super`])                                | landed  |
//!
//! The paper seals the least recently used of a few clusters. Here every write is new and goes to the newest record, so the
//! least recently used is the oldest, and clusters go into the log in the order of their sequences.
//! What is written again while it is still in the record being filled replaces the bytes there: a record has no sector of
//! home twice.

use super::beside::Beside;
use super::{Effect, Homeward, Overlay, Pending, Record, Teller, sectors_of, whole};
use crate::overlay::format::EXTENTS_MAX;
use crate::overlay::{Extent, Kind, Purpose};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;
use restripe_array::parts::Bug;
use restripe_array::{BufRef, PAGE_SECTORS, RequestError, RequestOp, SECTOR_BYTES};

/// Why nothing more came into a record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SealCause {
    /// Its payload or its table is full.
    Full,
    /// It was gathered long enough ago.
    Age,
    /// A flush: a user's, or one that makes room in the log.
    Flush,
    /// A write that was to be durable with its reply.
    Fua,
    /// Everything goes home.
    Destage,
    /// The array stops.
    Stop,
    /// The log failed: it is refused.
    Failed,
}

impl SealCause {
    pub const ALL: [SealCause; 7] = [
        SealCause::Full,
        SealCause::Age,
        SealCause::Flush,
        SealCause::Fua,
        SealCause::Destage,
        SealCause::Stop,
        SealCause::Failed,
    ];

    /// As `status` and the metrics have it.
    pub fn name(self) -> &'static str {
        match self {
            SealCause::Full => "full",
            SealCause::Age => "age",
            SealCause::Flush => "flush",
            SealCause::Fua => "fua",
            SealCause::Destage => "destage",
            SealCause::Stop => "stop",
            SealCause::Failed => "failed",
        }
    }
}

/// How writes are gathered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packing {
    /// Records of a cluster.
    pub records: u32,
    /// Records in memory at once: filling, closed, or being written.
    pub held: u32,
    pub homeward: Homeward,
}

/// Names a copy of a user's bytes into a record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PackTag(pub u64);

/// A record in memory.
struct Packed {
    sequence: u64,
    /// Of its header, in the log.
    at: u64,
    /// Sectors of its payload that are taken.
    used: u32,
    extents: Vec<Extent>,
    /// Copies into it that are under way.
    copies: u32,
    /// Some of it was moved from elsewhere in the log.
    moved: bool,
}

/// Where what is copied into a record comes from.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// Part of a request.
    Request(u32),
    /// What is moved to clean the log, by its reading.
    Move(u64),
}

/// A copy into a record that is under way.
struct Copying {
    extent: Extent,
    from: Source,
    /// The record had these sectors already.
    over: bool,
    done: bool,
}

/// What is being gathered.
pub(super) struct Pack {
    packing: Packing,
    /// Not yet handed out, the oldest first; the last one may be filling.
    records: VecDeque<Packed>,
    filling: bool,
    /// Records closed of the cluster that is being filled.
    closed: u32,
    /// Records below go out.
    due: u64,
    /// A record that begins a segment, until the log's anchor says that what lies there is void.
    begins: Option<u64>,
    copies: VecDeque<Copying>,
    first_copy: u64,
    /// A write waits for memory or for another copy: not for space.
    waits: bool,
}

impl Pack {
    pub(super) fn new(packing: Packing) -> Pack {
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

    pub(super) fn packing(&self) -> Packing {
        self.packing
    }

    pub(super) fn waits(&self) -> bool {
        self.waits
    }

    pub(super) fn fills(&self) -> bool {
        self.filling
    }

    pub(super) fn copies(&self) -> bool {
        !self.copies.is_empty()
    }

    /// Records that were not handed out yet.
    pub(super) fn held(&self) -> usize {
        self.records.len()
    }

    /// Whether a record waits until the segment that it begins is void.
    pub(super) fn begins_segment(&self) -> bool {
        self.begins.is_some()
    }

    /// The table of a record that was not handed out yet, sectors of its payload, and whether it is being filled.
    pub(super) fn gathered(&self, sequence: u64) -> Option<(&[Extent], u32, bool)> {
        let first = self.records.front()?.sequence;
        let index = sequence.checked_sub(first)? as usize;
        let record = self.records.get(index)?;
        let filling = self.filling && index + 1 == self.records.len();
        Some((&record.extents, record.used, filling))
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.records.is_empty() && self.copies.is_empty()
    }

    /// Whether a copy under way is of some of these sectors of home.
    pub(super) fn touches(&self, home: &Range<u64>) -> bool {
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

/// Copies under way at once.
const COPIES_MAX: usize = 64;

/// Where the next sectors of a write go.
pub(super) enum Spot {
    /// Over what the record being filled has of them.
    Over(Extent),
    /// Behind what it has, at most so many.
    Behind(u32),
    /// Nowhere: no record is being filled, or it is full.
    None,
}

impl Overlay {
    pub(super) fn packs(&mut self) -> &mut Pack {
        self.pack.as_mut().expect("writes are gathered")
    }

    /// Gathers the next piece of a write; false if there is no room for it now.
    pub(super) fn pack(&mut self, id: u32) -> bool {
        self.packs().waits = false;
        if self.space.in_reserve() {
            // That is cleaning's, and so is the record being filled.
            return false;
        }
        let Pending { request, cut, .. } = *self.pending(id);
        let home = sectors_of(&request).start + cut;
        let left = (whole(&request) - cut).min(u64::from(self.limits.record_sectors)) as u32;
        if !self.may_copy_in(&(home..home + u64::from(left))) {
            self.packs().waits = true;
            return false;
        }
        let copies = self.copies_under_way();
        if !self.map.room_for(copies + 1) {
            return false;
        }
        let (extent, over) = match self.spot(home, left) {
            Spot::Over(extent) => (extent, true),
            Spot::Behind(sectors) => (self.lay(home, sectors), false),
            Spot::None => {
                self.close_record(SealCause::Full);
                return self.open_for_users() && self.pack(id);
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
        let met = record
            .extents
            .iter()
            .filter(next)
            .min_by_key(|one| one.home);
        if let Some(over) = met
            .and_then(|one| one.within(home..end))
            .filter(|one| one.home == home)
        {
            return Spot::Over(over);
        }
        let before = met.map_or(left, |one| (one.home - home) as u32);
        let room = most - record.used;
        match record.extents.len() < EXTENTS_MAX && room > 0 {
            true => Spot::Behind(before.min(room)),
            false => Spot::None,
        }
    }

    /// Takes room behind what the record being filled has.
    pub(super) fn lay(&mut self, home: u64, sectors: u32) -> Extent {
        let record = self
            .packs()
            .records
            .back_mut()
            .expect("one is being filled");
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

    /// Whether these sectors of home may be copied into a record now: not while others are copied there, which are newer, and not while versions
    /// for a buffer are made of what records have.
    pub(super) fn may_copy_in(&mut self, home: &Range<u64>) -> bool {
        let newer = self.packs().touches(home) && !self.planted(Bug::PackedOver);
        let many = self.packs().copies.len() == COPIES_MAX;
        !(newer || many || self.is_versioning())
    }

    pub(super) fn copies_under_way(&mut self) -> u32 {
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
        self.effects.push_back(Effect::Pack {
            tag,
            extent,
            at,
            source,
        });
    }

    /// A copy into a record has ended. Copies count in the order in which they were begun.
    ///
    /// # Panics
    /// If it is not under way.
    pub fn packed(&mut self, tag: PackTag) {
        let pack = self.packs();
        let index = (tag.0 - pack.first_copy) as usize;
        pack.copies[index].done = true;
        while self.packs().copies.front().is_some_and(|copy| copy.done) {
            let copy = self.packs().copies.pop_front().expect("it was seen");
            self.packs().first_copy += 1;
            self.copied_in(&copy);
            match copy.from {
                Source::Request(id) => self.tell(Teller::Request(id), Ok(())),
                Source::Move(serial) => self.moved(serial),
            }
        }
        self.send_records();
        self.pump_reads();
        self.pump_writes();
        self.clean_more();
        self.begin_last();
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
        if copy.over {
            return;
        }
        let mut replaced = Vec::new();
        self.map
            .insert(extent, |piece| replaced.push(piece))
            .expect("its room was there before it was begun");
        self.space.mapped(&extent);
        for piece in replaced {
            self.retire(piece, extent.sequence + 1);
        }
    }

    // ------------------------------------------------------------------------------------------------------ records

    fn open_for_users(&mut self) -> bool {
        let opened = self.open_record(Purpose::Use);
        self.packs().waits = !opened && self.record_waits();
        opened
    }

    /// Whether a further record has to wait for memory, or until the segment of the last one is void.
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
            self.win_slots();
            return false;
        }
        let opened = self.space.opened();
        let Some(at) = self.space.take(reserved, purpose) else {
            return false;
        };
        let sequence = self.sequence;
        self.sequence += 1;
        self.counters.records += 1;
        self.records.push_back(Record {
            beside: Beside::Not,
            extent: Extent {
                home: 0,
                sectors: 0,
                at: at + PAGE_SECTORS,
                sequence,
                kind: Kind::Instead,
            },
            teller: Teller::Nobody,
            sealed: None,
            result: None,
        });
        self.packs().records.push_back(Packed {
            sequence,
            at,
            used: 0,
            extents: Vec::new(),
            copies: 0,
            moved: false,
        });
        self.packs().filling = true;
        self.hold(sequence);
        if self.space.opened() != opened {
            self.packs().begins = Some(sequence);
            self.reuse(at);
        }
        true
    }

    /// Nothing more comes into the record being filled: what it does not need of the log is given back.
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
            self.users_took(kept);
        }
        let first = self.records.front().expect("it is under way");
        let index = (sequence - first.extent.sequence) as usize;
        self.records[index].sealed = Some(cause);
        self.counters.seals[cause as usize] += 1;
        self.send_records();
    }

    /// What was gathered goes into the log now.
    pub fn seal(&mut self, cause: SealCause) {
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

    /// Whether something was gathered that is not on its way into the log.
    pub fn gathers(&self) -> bool {
        self.pack
            .as_ref()
            .is_some_and(|pack| !pack.records.is_empty())
    }

    /// Hands out what is due; of a log that failed nothing is.
    pub(super) fn send_records(&mut self) {
        let under_copy = self.planted(Bug::SealedUnderCopy);
        while let Some(record) = self.packs().next_due(under_copy) {
            if self.broken {
                self.appended(record.sequence, Err(RequestError::Unavailable));
                continue;
            }
            self.hold_sealed(record.sequence, &record.extents, record.used);
            self.effects.push_back(Effect::Seal {
                sequence: record.sequence,
                extents: record.extents,
                payload_sectors: record.used,
                durable: self.durable,
            });
        }
    }

    /// The segment that the held-back record begins may be written; or it may not, and the log has failed.
    pub(super) fn segment_begun(&mut self, failed: bool) {
        self.packs().begins = None;
        self.broken |= failed;
        self.send_records();
    }
}
