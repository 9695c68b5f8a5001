//! Memory and computations.
//!
//! Owns the buffers that no set has, the records in memory, the jobs in flight, and the table of anchors. A
//! **job** is a computation or a child request of the tier's own; its number is the tag of both.

use super::children::Children;
use super::facts::Facts;
use super::route;
use crate::config::{Config, SurrogateConfig};
use crate::overlay::format::AnchorTable;
use crate::overlay::{CopyTag, Extent, PackTag, PartTag};
use alloc::vec::Vec;
use restripe_array::parts::{BlockCopy, Boxes, Buffers, Bug, Size};
use restripe_array::{
    Action, Buf, BufRef, ComputeOp, LARGE_BYTES, LinearOutput, PAGE_SECTORS, Page, RequestError,
    RequestTag, SECTOR_BYTES, SMALL_BYTES, Slab,
};

pub(crate) struct Works {
    pub(crate) below: Children,
    pub(crate) jobs: Jobs,
    pub(crate) buffers: Buffers,
    pub(crate) memory: Memory,
    /// The anchors, once the log is known.
    pub(crate) table: Option<AnchorTable>,
}

floor!(Works over Children);

impl Works {
    pub(crate) fn new(config: Config, surrogate: SurrogateConfig) -> Works {
        let (facts, buffers) = Facts::new(config, surrogate);
        Works {
            below: Children::new(facts),
            jobs: Jobs::default(),
            buffers,
            memory: Memory::default(),
            table: None,
        }
    }

    pub(crate) fn table(&mut self) -> &mut AnchorTable {
        self.table.as_mut().expect("the log is known")
    }

    /// Converts a sector of the log's data space into a sector of the log set.
    pub(crate) fn log_sector(&mut self, at: u64) -> u64 {
        self.table().layout().sector(at)
    }

    pub(crate) fn compute(
        &mut self,
        owner: u32,
        op: ComputeOp,
        source: Option<BufRef>,
        target: Option<BufRef>,
        page: Option<Page>,
    ) {
        let boxes = &mut self.jobs.boxes;
        let mut compute = boxes.compute(route::own_tag(owner), op);
        compute.page = page;
        compute.sources.extend(source);
        if let Some(target) = target {
            let mut coefficients = boxes.coefficient_list();
            coefficients.extend(source.map(|_| 1));
            compute.outputs.push(LinearOutput {
                target,
                coefficients,
            });
        }
        self.out.push(Action::Compute(compute));
    }

    /// Copies bytes from a buffer to another, or zeros.
    pub(crate) fn copy(&mut self, job: Job, source: Option<BufRef>, target: BufRef) {
        let job = self.jobs.list.insert(job);
        self.compute(job, ComputeOp::Linear, source, Some(target), None);
    }

    pub(crate) fn checksum(&mut self, job: u32, source: BufRef) {
        self.compute(job, ComputeOp::Checksum, Some(source), None, None);
    }

    pub(crate) fn put_page(&mut self, job: u32, page: Page, buf: Buf) {
        let target = BufRef::new(buf, 0, SMALL_BYTES);
        self.compute(job, ComputeOp::PutPage, None, Some(target), Some(page));
    }

    /// Takes a buffer for copies and pages; if none is free, that of a record which has landed.
    pub(crate) fn large_buffer(&mut self) -> Option<Buf> {
        let free = self.buffers.take_free(Size::Large);
        free.or_else(|| self.forget_oldest())
    }

    /// Reserves this many buffers at once, or none.
    pub(crate) fn reserve_large(&mut self, count: u32) -> bool {
        while !self.buffers.reserve(Size::Large, count) {
            let Some(buf) = self.forget_oldest() else {
                return false;
            };
            self.buffers.release(buf);
        }
        true
    }

    /// The memory of the oldest record that is in the log and that no read uses.
    pub(crate) fn forget_oldest(&mut self) -> Option<Buf> {
        let overlay = self.overlay.as_ref();
        let held =
            |one: &MemoryRecord| overlay.is_some_and(|overlay| overlay.is_held(one.sequence));
        let idle = |one: &MemoryRecord| one.landed && one.readers == 0 && !held(one);
        let index = self.memory.records.iter().position(idle)?;
        Some(self.memory.records.remove(index).buf)
    }

    /// Serves a read of the log from memory, if the record is there.
    pub(crate) fn read_from_memory(&mut self, part: PartTag, sector: u64, buf: BufRef) -> bool {
        if self.home().planted(Bug::BufferMissed) {
            return false;
        }
        let sectors = u64::from(buf.bytes) / SECTOR_BYTES;
        let room = self.overlay.as_ref().map_or(0, |one| one.record_sectors());
        let Some(one) = self.memory.at(sector, sectors, room.into()) else {
            return false;
        };
        one.readers += 1;
        let (sequence, source) = (one.sequence, part_of(one, sector, sectors));
        self.copy(Job::ReadMemory { part, sequence }, Some(source), buf);
        true
    }
}

// ------------------------------------------------------------------------------------------------------ jobs

#[derive(Clone, Copy, Debug)]
pub(crate) struct AnchorPage {
    pub(crate) index: u32,
    pub(crate) at: u64,
    pub(crate) buf: Buf,
}

/// A record that is being written into the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Append {
    pub(crate) extent: Extent,
    /// `None`: zeros.
    pub(crate) payload: Option<BufRef>,
    pub(crate) durable: u64,
    /// The buffer of its header, once it has one.
    pub(crate) header: Option<Buf>,
    /// Writes in flight.
    pub(crate) writes: u8,
    pub(crate) failed: Option<RequestError>,
}

/// Bytes of a read that are copied out of its memory, for a clean copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CopyOut {
    pub(crate) copy: CopyTag,
    pub(crate) home: u64,
    pub(crate) target: BufRef,
    pub(crate) read: RequestTag,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Job {
    /// A copy into a record in memory.
    Pack(PackTag),
    /// A read of a record in memory.
    ReadMemory {
        part: PartTag,
        sequence: u64,
    },
    /// A sealed record that is being written into the log.
    Seal(u64),
    /// A version that is being written to the NVRAM set, by its number in [`super::nvram`].
    Version(u32),
    /// A half of a slot that a start reads, or writes into the log.
    Slot,
    /// A read of part of the log for a destage, and a copy out of it into staged pages: by the load's number.
    Load(u32),
    Stage(u32),
    /// A copy between a client's buffer and the read cache.
    Cached {
        part: PartTag,
        memory: u32,
        way: BlockCopy,
    },
    Append(Append),
    /// By its number in [`super::destage`].
    DestageCopy(u32),
    Anchor(AnchorPage),
    CopyOut(CopyOut),
    /// Part of the log that is read to be moved.
    Move {
        part: PartTag,
        buf: BufRef,
    },
}

#[derive(Default)]
pub(crate) struct Jobs {
    pub(crate) list: Slab<Job>,
    pub(crate) boxes: Boxes,
}

// ----------------------------------------------------------------------------------------- records in memory

/// The overlay's description of a sealed record.
#[derive(Clone, Debug)]
pub(crate) struct Sealed {
    pub(crate) extents: Vec<Extent>,
    pub(crate) payload_sectors: u32,
    pub(crate) durable: u64,
}

#[derive(Debug)]
pub(crate) struct MemoryRecord {
    pub(crate) sequence: u64,
    /// The place of its header in the log.
    pub(crate) at: u64,
    pub(crate) buf: Buf,
    /// Copies out of its memory that are in flight.
    pub(crate) readers: u32,
    pub(crate) sealed: Option<Sealed>,
    pub(crate) landed: bool,
    /// Another record took its place in the log.
    pub(crate) replaced: bool,
}

#[derive(Default)]
pub(crate) struct Memory {
    /// The oldest first.
    pub(crate) records: Vec<MemoryRecord>,
}

impl Memory {
    /// The record's memory stays while it is read.
    pub(crate) fn begin_reading(&mut self, sequence: u64) {
        self.of(sequence).readers += 1;
    }

    pub(crate) fn end_reading(&mut self, sequence: u64) {
        self.of(sequence).readers -= 1;
    }

    /// The place of its header in the log.
    pub(crate) fn place_of(&self, sequence: u64) -> u64 {
        self.records[self.index_of(sequence)].at
    }

    /// The first sectors of its payload.
    pub(crate) fn payload(&self, sequence: u64, sectors: u64) -> BufRef {
        let one = &self.records[self.index_of(sequence)];
        part_of(one, one.at + PAGE_SECTORS, sectors)
    }

    fn index_of(&self, sequence: u64) -> usize {
        let found = self.records.iter().position(|one| one.sequence == sequence);
        found.expect("it is in memory")
    }

    pub(crate) fn of(&mut self, sequence: u64) -> &mut MemoryRecord {
        let index = self.index_of(sequence);
        &mut self.records[index]
    }

    /// The overlay's description of a record that it sealed.
    pub(crate) fn table_of(&mut self, sequence: u64) -> &mut Sealed {
        let sealed = self.of(sequence).sealed.as_mut();
        sealed.expect("it was sealed")
    }

    /// The record in memory that has these sectors of the log. One being filled has room for a payload of
    /// `room`.
    pub(crate) fn at(&mut self, sector: u64, sectors: u64, room: u64) -> Option<&mut MemoryRecord> {
        let has = |one: &&mut MemoryRecord| {
            let payload = match &one.sealed {
                Some(sealed) => PAGE_SECTORS + u64::from(sealed.payload_sectors),
                None => PAGE_SECTORS + room,
            };
            !one.replaced && one.at <= sector && sector + sectors <= one.at + payload
        };
        self.records.iter_mut().find(has)
    }
}

/// The part of a record's memory that has these sectors of the log.
pub(crate) fn part_of(one: &MemoryRecord, at: u64, sectors: u64) -> BufRef {
    let whole = BufRef::new(one.buf, 0, LARGE_BYTES);
    let offset = (at - one.at) * SECTOR_BYTES;
    whole.part(offset as u32, (sectors * SECTOR_BYTES) as u32)
}
