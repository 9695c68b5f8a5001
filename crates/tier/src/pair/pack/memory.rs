//! Records of the log in memory: being filled, being written, or landed and kept for reads.

use crate::overlay::Extent;
use alloc::vec::Vec;
use restripe_array::{Buf, BufRef, LARGE_BYTES, PAGE_SECTORS, SECTOR_BYTES};

/// What the overlay said when it sealed a record.
#[derive(Clone, Debug)]
pub(crate) struct Sealed {
    pub(crate) extents: Vec<Extent>,
    pub(crate) payload_sectors: u32,
    pub(crate) durable: u64,
}

#[derive(Debug)]
pub(crate) struct Gathered {
    pub(crate) sequence: u64,
    /// Of its header, in the log.
    pub(crate) at: u64,
    pub(crate) buf: Buf,
    /// Copies out of it that are under way.
    pub(crate) readers: u32,
    pub(crate) sealed: Option<Sealed>,
    pub(crate) landed: bool,
    /// Another record took its place in the log.
    pub(crate) replaced: bool,
}

#[derive(Default)]
pub(crate) struct Memory {
    /// The oldest first.
    pub(crate) records: Vec<Gathered>,
}

impl Memory {
    /// Its memory stays while it is read.
    pub(crate) fn begin_reading(&mut self, sequence: u64) {
        self.of(sequence).readers += 1;
    }

    pub(crate) fn end_reading(&mut self, sequence: u64) {
        self.of(sequence).readers -= 1;
    }

    /// Of its header, in the log.
    pub(crate) fn place_of(&self, sequence: u64) -> u64 {
        self.records[self.index_of(sequence)].at
    }

    /// So much of its payload.
    pub(crate) fn payload(&self, sequence: u64, sectors: u64) -> BufRef {
        let one = &self.records[self.index_of(sequence)];
        part_of(one, one.at + PAGE_SECTORS, sectors)
    }

    fn index_of(&self, sequence: u64) -> usize {
        let found = self.records.iter().position(|one| one.sequence == sequence);
        found.expect("it is in memory")
    }

    pub(crate) fn of(&mut self, sequence: u64) -> &mut Gathered {
        let index = self.index_of(sequence);
        &mut self.records[index]
    }

    /// What the overlay said of a record that it sealed.
    pub(crate) fn table_of(&mut self, sequence: u64) -> &mut Sealed {
        let sealed = self.of(sequence).sealed.as_mut();
        sealed.expect("it was sealed")
    }

    /// The record in memory that has these sectors of the log. One that is being filled has room for a payload of `room`.
    pub(crate) fn at(&mut self, sector: u64, sectors: u64, room: u64) -> Option<&mut Gathered> {
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

/// The part of a record's memory that has these sectors of the log.
pub(crate) fn part_of(one: &Gathered, at: u64, sectors: u64) -> BufRef {
    let whole = BufRef::new(one.buf, 0, LARGE_BYTES);
    let offset = (at - one.at) * SECTOR_BYTES;
    whole.part(offset as u32, (sectors * SECTOR_BYTES) as u32)
}
