//! Records of the log that are packed in memory (ECW): copies of clients' bytes into them, reads from them,
//! and their writes into the log.
//!
//! A record's memory is one large buffer: the page of its header, then its payload, laid out as in the log.
//! It is written in whole grains, so a log that is written by whole rows never has to read for parity.
//!
//! | memory  | cause                                                          | next    |
//! |---------|----------------------------------------------------------------|---------|
//! | filling | the overlay seals the record                                   | sealed  |
//! | sealed  | its regions are marked; checksum taken, header put, all written | landed |
//! | landed  | its memory is needed for another record, and no read uses it   | -       |
//!
//! A landed record stays in memory while memory is free: recent writes are read from there.
//!
//! Owns the copies that wait for memory, and the sealed records that wait for a mark.

use super::append::Appends;
use super::children::Owner;
use super::works::{Job, MemoryRecord, Sealed, part_of};
use crate::overlay::format::{RecordHeader, record};
use crate::overlay::{Extent, PackTag, Site};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use restripe_array::parts::Bug;
use restripe_array::{BufRef, PAGE_SECTORS, RequestError};

pub(crate) struct Packs {
    pub(crate) below: Appends,
    /// Copies into records that wait for memory: tag, target, the place where the record begins, and source.
    packing: VecDeque<(PackTag, Extent, u64, Option<BufRef>)>,
    /// Sealed records whose regions are not marked yet: sequences, the oldest first.
    sealing: VecDeque<u64>,
}

floor!(Packs over Appends { packing, sealing });

/// The table without its last entry. The entry before it gets the sectors of the last one.
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

impl Packs {
    pub(crate) fn packs_idle(&self) -> bool {
        self.packing.is_empty() && self.sealing.is_empty()
    }

    /// The number of records that wait for a mark before they are written.
    pub(crate) fn waiting_for_marks(&self) -> u32 {
        self.sealing.len() as u32
    }

    pub(crate) fn pack(&mut self, tag: PackTag, extent: Extent, at: u64, source: Option<BufRef>) {
        self.packing.push_back((tag, extent, at, source));
        self.next_pack();
    }

    /// Starts copies into records that have memory. Returns false if there are none.
    pub(crate) fn next_pack(&mut self) -> bool {
        let mut any = false;
        while let Some(&(tag, extent, at, source)) = self.packing.front() {
            if !self.remembers(extent.sequence, at) {
                break;
            }
            self.packing.pop_front();
            let one = self.memory.of(extent.sequence);
            let target = part_of(one, extent.at, u64::from(extent.sectors));
            self.copy(Job::Pack(tag), source, target);
            any = true;
        }
        any
    }

    /// Whether a record has memory. It gets some if any is free.
    fn remembers(&mut self, sequence: u64, at: u64) -> bool {
        let mut records = self.memory.records.iter();
        if records.any(|one| one.sequence == sequence) {
            return true;
        }
        let Some(buf) = self.large_buffer() else {
            return false;
        };
        self.replace_at(at);
        self.memory.records.push(MemoryRecord {
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

    /// Another record takes this place in the log: its former records are not read from memory any more.
    fn replace_at(&mut self, at: u64) {
        let room = self.overlay.as_ref().map_or(0, |one| one.record_sectors());
        let end = at + PAGE_SECTORS + u64::from(room);
        for one in &mut self.memory.records {
            let sectors = one.sealed.as_ref().map_or(0, |one| one.payload_sectors);
            let behind = one.at + PAGE_SECTORS + u64::from(sectors);
            one.replaced |= one.landed && one.at < end && at < behind;
        }
    }

    pub(crate) fn seal(
        &mut self,
        sequence: u64,
        extents: Vec<Extent>,
        payload_sectors: u32,
        durable: u64,
    ) {
        self.memory.of(sequence).sealed = Some(Sealed {
            extents,
            payload_sectors,
            durable,
        });
        self.sealing.push_back(sequence);
    }

    /// Starts to write the next record whose regions are marked. False if there is none.
    pub(crate) fn next_seal(&mut self) -> bool {
        let Some(&sequence) = self.sealing.front() else {
            return false;
        };
        let sealed = self.memory.table_of(sequence);
        let payload = u64::from(sealed.payload_sectors);
        let extents = core::mem::take(&mut sealed.extents);
        let marked = self.marked(&extents);
        self.memory.table_of(sequence).extents = extents;
        let Some(marked) = marked else {
            return false;
        };
        self.sealing.pop_front();
        if let Err(error) = marked {
            self.sealed(sequence, Err(error));
            return true;
        }
        let one = self.memory.of(sequence);
        let source = part_of(one, one.at + PAGE_SECTORS, payload);
        let job = self.jobs.list.insert(Job::Seal(sequence));
        self.checksum(job, source);
        true
    }

    pub(crate) fn put_sealed_header(&mut self, job: u32, sequence: u64, payload_crc: u32) {
        let one = self.memory.of(sequence);
        let (at, buf) = (one.at, one.buf);
        let sealed = one.sealed.clone().expect("it was sealed");
        let header = RecordHeader {
            sequence,
            durable: sealed.durable,
            at,
            payload_sectors: sealed.payload_sectors,
            payload_crc,
        };
        let mut page = self.jobs.boxes.page();
        let extents = match self.home().planted(Bug::EntryLeftOut) {
            true => without_last(&sealed.extents),
            false => sealed.extents,
        };
        record::encode(self.table().owner(), &header, &extents, &mut page);
        self.put_page(job, page, buf);
    }

    pub(crate) fn write_sealed(&mut self, job: u32, sequence: u64) {
        let layout = *self.table().layout();
        let one = self.memory.of(sequence);
        let payload = one.sealed.as_ref().expect("it was sealed").payload_sectors;
        let sectors = u64::from(layout.footprint(payload));
        let source = part_of(one, one.at, sectors);
        let at = layout.sector(one.at);
        self.write(Site::Log, Owner::Job(job), at, source);
    }

    /// A record was written, or the write failed. Then only memory has the record, and retains it.
    pub(crate) fn sealed(&mut self, sequence: u64, result: Result<(), RequestError>) {
        self.memory.of(sequence).landed = result.is_ok();
        self.appended(sequence, result);
    }
}
