//! Records of the log that are gathered in memory (ECW): copies of users' bytes into them, reads of them, their way into the log.
//!
//! A record's memory is one large buffer: the page of its header, then its payload, as they will lie in the log. It is written by
//! whole grains, so a log that is written by whole rows never has to read for parity.
//!
//! | memory  | cause                                                      | next    |
//! |---------|------------------------------------------------------------|---------|
//! | filling | the overlay seals the record                               | sealed  |
//! | sealed  | announced at home; checksum taken, header put, all written | landed  |
//! | landed  | its memory is needed for another record, nobody reads it   | -       |
//!
//! A landed record is kept as long as memory is to spare: what was just written is read from there.

use super::jobs::{Job, child};
use super::{Pair, child::Owner};
use crate::overlay::format::{RecordHeader, record};
use crate::overlay::{Extent, Overlay, PackTag, PartTag, Site};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use restripe_array::parts::{Bug, Size};
use restripe_array::{
    Action, Buf, BufRef, ComputeOp, LARGE_BYTES, PAGE_SECTORS, RequestError, RequestOp,
    SECTOR_BYTES, SMALL_BYTES,
};

/// What the overlay said when it sealed a record.
#[derive(Clone, Debug)]
struct Sealed {
    extents: Vec<Extent>,
    payload_sectors: u32,
    durable: u64,
}

#[derive(Debug)]
struct Gathered {
    sequence: u64,
    /// Of its header, in the log.
    at: u64,
    buf: Buf,
    /// Copies out of it that are under way.
    readers: u32,
    sealed: Option<Sealed>,
    landed: bool,
    /// Another record took its place in the log.
    replaced: bool,
}

/// A copy into a record that waits for memory.
#[derive(Clone, Copy, Debug)]
struct Packing {
    tag: PackTag,
    extent: Extent,
    at: u64,
    source: Option<BufRef>,
}

#[derive(Default)]
pub(super) struct Clusters {
    /// The oldest first.
    records: Vec<Gathered>,
    waiting: VecDeque<Packing>,
    /// Sealed, and not yet announced at home: sequences, the oldest first.
    sealing: VecDeque<u64>,
}

impl Clusters {
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.sealing.is_empty()
    }

    /// Records whose place at home is being announced, before they are written.
    pub(super) fn announcing(&self) -> u32 {
        self.sealing.len() as u32
    }

    /// Its memory stays while it is read.
    pub(super) fn begin_reading(&mut self, sequence: u64) {
        self.of(sequence).readers += 1;
    }

    pub(super) fn end_reading(&mut self, sequence: u64) {
        self.of(sequence).readers -= 1;
    }

    /// Of its header, in the log.
    pub(super) fn place_of(&self, sequence: u64) -> u64 {
        self.records[self.index_of(sequence)].at
    }

    /// So much of its payload.
    pub(super) fn payload(&self, sequence: u64, sectors: u64) -> BufRef {
        let one = &self.records[self.index_of(sequence)];
        part_of(one, one.at + PAGE_SECTORS, sectors)
    }

    fn index_of(&self, sequence: u64) -> usize {
        let found = self.records.iter().position(|one| one.sequence == sequence);
        found.expect("it is in memory")
    }

    fn of(&mut self, sequence: u64) -> &mut Gathered {
        let index = self.index_of(sequence);
        &mut self.records[index]
    }

    /// What the overlay said of a record that it sealed.
    fn table_of(&mut self, sequence: u64) -> &mut Sealed {
        let sealed = self.of(sequence).sealed.as_mut();
        sealed.expect("it was sealed")
    }

    /// The record in memory that has these sectors of the log. One that is being filled has room for a payload of `room`.
    fn at(&mut self, sector: u64, sectors: u64, room: u64) -> Option<&mut Gathered> {
        let has = |one: &&mut Gathered| {
            let payload = match &one.sealed {
                Some(sealed) => PAGE_SECTORS + u64::from(sealed.payload_sectors),
                None => PAGE_SECTORS + room,
            };
            !one.replaced && one.at <= sector && sector + sectors <= one.at + payload
        };
        self.records.iter_mut().find(has)
    }
}

/// A table without its last entry, whose sectors the one before gets.
fn without_last(extents: &[Extent]) -> Vec<Extent> {
    let [rest @ .., before, last] = extents else {
        return extents.to_vec();
    };
    let mut longer = *before;
    longer.sectors += last.sectors;
    let meets = |one: &Extent| one.within(longer.home..longer.end()).is_some();
    match rest.iter().any(meets) {
        true => extents.to_vec(),
        false => [rest, &[longer]].concat(),
    }
}

/// The part of a record's memory that has these sectors of the log.
fn part_of(one: &Gathered, at: u64, sectors: u64) -> BufRef {
    let whole = BufRef::new(one.buf, 0, LARGE_BYTES);
    let offset = (at - one.at) * SECTOR_BYTES;
    whole.part(offset as u32, (sectors * SECTOR_BYTES) as u32)
}

impl Pair {
    pub(super) fn pack(&mut self, tag: PackTag, extent: Extent, at: u64, source: Option<BufRef>) {
        let packing = Packing {
            tag,
            extent,
            at,
            source,
        };
        self.clusters.waiting.push_back(packing);
        self.next_pack();
    }

    /// Starts copies into records that have memory; false if there are none.
    pub(super) fn next_pack(&mut self) -> bool {
        let mut any = false;
        while let Some(&Packing {
            tag,
            extent,
            at,
            source,
        }) = self.clusters.waiting.front()
        {
            if !self.remembers(extent.sequence, at) {
                break;
            }
            self.clusters.waiting.pop_front();
            let one = self.clusters.of(extent.sequence);
            let target = part_of(one, extent.at, u64::from(extent.sectors));
            let job = self.jobs.list.insert(Job::Pack(tag));
            let compute = self.compute(job, ComputeOp::Linear, source, Some(target), None);
            self.out.push(Action::Compute(compute));
            any = true;
        }
        any
    }

    /// Whether a record has memory; it is given some if there is any.
    fn remembers(&mut self, sequence: u64, at: u64) -> bool {
        if self
            .clusters
            .records
            .iter()
            .any(|one| one.sequence == sequence)
        {
            return true;
        }
        let buf = match self.buffers.take_free(Size::Large) {
            Some(buf) => buf,
            None => match self.forget_oldest() {
                Some(buf) => buf,
                None => return false,
            },
        };
        self.replace_at(at);
        self.clusters.records.push(Gathered {
            sequence,
            at,
            buf,
            readers: 0,
            sealed: None,
            landed: false,
            replaced: false,
        });
        true
    }

    /// A record is going to take a place in the log: those that had it are not read from memory any more.
    fn replace_at(&mut self, at: u64) {
        let room = self.overlay.as_ref().map_or(0, Overlay::record_sectors);
        let end = at + PAGE_SECTORS + u64::from(room);
        for one in &mut self.clusters.records {
            let sectors = one.sealed.as_ref().map_or(0, |one| one.payload_sectors);
            let behind = one.at + PAGE_SECTORS + u64::from(sectors);
            one.replaced |= one.landed && one.at < end && at < behind;
        }
    }

    /// The memory of the oldest record that lies in the log, and that nobody reads.
    fn forget_oldest(&mut self) -> Option<Buf> {
        let overlay = self.overlay.as_ref();
        let held = |one: &Gathered| overlay.is_some_and(|overlay| overlay.is_held(one.sequence));
        let idle = |one: &Gathered| one.landed && one.readers == 0 && !held(one);
        let index = self.clusters.records.iter().position(idle)?;
        Some(self.clusters.records.remove(index).buf)
    }

    /// Makes room for copies and pages if records that have landed take all of it.
    pub(super) fn large_buffer(&mut self) -> Option<Buf> {
        let free = self.buffers.take_free(Size::Large);
        free.or_else(|| self.forget_oldest())
    }

    /// The same for so many at once: they are promised, or none is.
    pub(super) fn reserve_large(&mut self, count: u32) -> bool {
        while !self.buffers.reserve(Size::Large, count) {
            let Some(buf) = self.forget_oldest() else {
                return false;
            };
            self.buffers.release(buf);
        }
        true
    }

    // -------------------------------------------------------------------------------------------------------- reads

    /// Reads of the log are answered from memory where that has them.
    pub(super) fn read_gathered(&mut self, part: PartTag, sector: u64, buf: BufRef) -> bool {
        if self.home().planted(Bug::BufferMissed) {
            return false;
        }
        let sectors = u64::from(buf.bytes) / SECTOR_BYTES;
        let room = self.overlay.as_ref().map_or(0, Overlay::record_sectors);
        let Some(one) = self.clusters.at(sector, sectors, room.into()) else {
            return false;
        };
        one.readers += 1;
        let (sequence, source) = (one.sequence, part_of(one, sector, sectors));
        let job = self.jobs.list.insert(Job::Gathered { part, sequence });
        let compute = self.compute(job, ComputeOp::Linear, Some(source), Some(buf), None);
        self.out.push(Action::Compute(compute));
        true
    }

    pub(super) fn gathered_read(&mut self, job: u32, part: PartTag, sequence: u64) {
        self.jobs.list.remove(job);
        self.clusters.of(sequence).readers -= 1;
        self.part_done(part, Ok(()));
    }

    // ------------------------------------------------------------------------------------------------------ sealing

    pub(super) fn seal(
        &mut self,
        sequence: u64,
        extents: Vec<Extent>,
        payload_sectors: u32,
        durable: u64,
    ) {
        self.clusters.of(sequence).sealed = Some(Sealed {
            extents,
            payload_sectors,
            durable,
        });
        self.clusters.sealing.push_back(sequence);
    }

    /// Starts to write the next record that is announced at home; false if there is none.
    pub(super) fn next_seal(&mut self) -> bool {
        let Some(&sequence) = self.clusters.sealing.front() else {
            return false;
        };
        let sealed = self.clusters.table_of(sequence);
        let payload = u64::from(sealed.payload_sectors);
        let extents = core::mem::take(&mut sealed.extents);
        let announced = self.announced(&extents);
        self.clusters.table_of(sequence).extents = extents;
        let Some(announced) = announced else {
            return false;
        };
        self.clusters.sealing.pop_front();
        if let Err(error) = announced {
            self.sealed(sequence, Err(error));
            return true;
        }
        let one = self.clusters.of(sequence);
        let source = part_of(one, one.at + PAGE_SECTORS, payload);
        let job = self.jobs.list.insert(Job::Seal(sequence));
        let compute = self.compute(job, ComputeOp::Checksum, Some(source), None, None);
        self.out.push(Action::Compute(compute));
        true
    }

    pub(super) fn put_sealed_header(&mut self, job: u32, sequence: u64, payload_crc: u32) {
        let one = self.clusters.of(sequence);
        let (at, buf) = (one.at, one.buf);
        let sealed = one.sealed.clone().expect("it was sealed");
        let header = RecordHeader {
            sequence,
            durable: sealed.durable,
            at,
            payload_sectors: sealed.payload_sectors,
            payload_crc,
        };
        let mut page = self.jobs.page();
        let extents = match self.home().planted(Bug::EntryLeftOut) {
            true => without_last(&sealed.extents),
            false => sealed.extents,
        };
        record::encode(self.jobs.table().owner(), &header, &extents, &mut page);
        let target = BufRef::new(buf, 0, SMALL_BYTES);
        let compute = self.compute(job, ComputeOp::PutPage, None, Some(target), Some(page));
        self.out.push(Action::Compute(compute));
    }

    pub(super) fn write_sealed(&mut self, job: u32, sequence: u64) {
        let layout = *self.jobs.table().layout();
        let one = self.clusters.of(sequence);
        let payload = one.sealed.as_ref().expect("it was sealed").payload_sectors;
        let sectors = u64::from(layout.footprint(payload));
        let source = part_of(one, one.at, sectors);
        let at = layout.sector(one.at);
        let request = child(RequestOp::Write, at, sectors, source, false);
        self.children.ask(Site::Log, Owner::Job(job), request);
    }

    /// A record was written, or could not be: then memory alone has it, and goes on to.
    pub(super) fn sealed(&mut self, sequence: u64, result: Result<(), RequestError>) {
        self.clusters.of(sequence).landed = result.is_ok();
        self.appended(sequence, result);
    }
}
