//! The NVRAM set of a code cache: a third set in persistent memory, next to the main set and the log set. It
//! has its own superblocks, and its data space is [slots](crate::overlay::format::slot).
//!
//! The log's superblock records whether the NVRAM set may hold valid data ([`BufferMark`]). The mark is set
//! before the first flush that the NVRAM set acknowledges. It is removed when a stop has brought all data
//! into the log, or when the NVRAM set failed and all records were sealed. While the mark is set, no start
//! continues without the NVRAM set.
//!
//! | version | cause                                                         | next    |
//! |---------|---------------------------------------------------------------|---------|
//! | waiting | its place is marked in the main set; a page for its header    | summed  |
//! | summed  | header put; header and payload written                        | written |
//!
//! Owns the versions that are being written to the NVRAM set.

use super::children::Owner;
use super::pack::Packs;
use super::works::Job;
use crate::overlay::format::{RecordHeader, SlotLayout, Version, slot};
use crate::overlay::{NvramVersion, PartTag, Site};
use alloc::collections::VecDeque;
use restripe_array::meta::superblock::{BufferMark, PartnerRole};
use restripe_array::parts::Size;
use restripe_array::report::ArrayState;
use restripe_array::{
    Action, Buf, BufRef, Fact, LARGE_BYTES, PAGE_SECTORS, RequestError, SECTOR_BYTES, SMALL_BYTES,
    Slab,
};

/// A version that is being written to the NVRAM set.
struct VersionWrite {
    version: Version,
    header: Buf,
    /// Writes in flight.
    writes: u8,
    failed: Option<RequestError>,
}

#[derive(Default)]
pub(crate) struct Buffer {
    /// Flushes may go to the NVRAM set.
    pub(crate) used: bool,
    /// Versions whose places are not marked yet, or that lack memory: the oldest first.
    waiting: VecDeque<Version>,
    under_way: Slab<VersionWrite>,
    /// The log is recording that the NVRAM set holds nothing valid.
    disabling: bool,
    /// The generation of the NVRAM set when it got its session.
    pub(crate) numbered: u64,
    /// A flush of the NVRAM set that has ended, and the session that the sets record before it counts.
    pub(crate) unnumbered: Option<(PartTag, u32)>,
}

impl Buffer {
    pub(crate) fn is_idle(&self) -> bool {
        let writes = !self.waiting.is_empty() || !self.under_way.is_empty();
        !writes && !self.disabling && self.unnumbered.is_none()
    }
}

/// A half fits a buffer.
const _: () = assert!(slot::HALF_SECTORS * SECTOR_BYTES == LARGE_BYTES as u64);

pub(crate) struct Nvram {
    pub(crate) below: Packs,
    pub(crate) buffer: Buffer,
}

floor!(Nvram over Packs { buffer });

impl Nvram {
    pub(crate) fn slots(&self) -> SlotLayout {
        SlotLayout::of(self.buffer_set().layout().size_sectors())
    }

    pub(crate) fn buffer_mark(&self) -> BufferMark {
        self.log().buffer_mark()
    }

    /// Records whether the NVRAM set may hold valid data. True once the record is durable.
    pub(crate) fn mark_buffer(&mut self, mark: BufferMark) -> Result<bool, RequestError> {
        if self.buffer_mark() != mark {
            self.at(Site::Log, |log| log.set_buffer_mark(mark));
            return Ok(false);
        }
        let durable = self.log().has_partner_durable();
        durable.map_err(|_| RequestError::Unavailable)
    }

    /// Whether the NVRAM set that is present belongs to this log.
    pub(crate) fn has_own_buffer(&self) -> bool {
        let partner = self.buffer_set().partner();
        self.started[Site::Nvram]
            && partner.is_some_and(|partner| {
                let home = self.home().id();
                partner.role == PartnerRole::Buffer && partner.array == home
            })
    }

    /// Handles an NVRAM set that can no longer be used: the acknowledged data goes into the log.
    pub(crate) fn watch_buffer(&mut self) -> bool {
        let failed = self.buffer_set().state() == ArrayState::Failed || self.buffer_set().halted();
        let overlay = self.overlay_mut();
        let fails = failed && overlay.uses_nvram();
        if fails {
            overlay.fail_nvram();
        }
        fails
    }

    /// Queues a version for the NVRAM set; its checksum is computed later.
    pub(crate) fn queue_version(&mut self, wanted: NvramVersion) {
        // The record's memory stays until the version is written.
        self.memory.begin_reading(wanted.sequence);
        let header = RecordHeader {
            sequence: wanted.sequence,
            durable: wanted.durable,
            at: self.memory.place_of(wanted.sequence),
            payload_sectors: wanted.payload_sectors,
            payload_crc: 0,
        };
        self.buffer.waiting.push_back(Version {
            header,
            version: wanted.version,
            closed: wanted.closed,
            extents: wanted.extents,
        });
    }

    /// Starts to write the next version whose place is marked in the main set. False if there is none.
    pub(crate) fn next_version(&mut self) -> bool {
        let Some(version) = self.buffer.waiting.pop_front() else {
            return false;
        };
        let marked = self.marked(&version.extents);
        if let Some(Err(error)) = marked {
            self.version_ended(version.header.sequence, Err(error));
            return true;
        }
        let header = marked.and_then(|_| self.buffers.take_free(Size::Small));
        let Some(header) = header else {
            self.buffer.waiting.push_front(version);
            return false;
        };
        let sequence = version.header.sequence;
        let sectors = u64::from(version.header.payload_sectors);
        let index = self.buffer.under_way.insert(VersionWrite {
            version,
            header,
            writes: 0,
            failed: None,
        });
        let job = self.jobs.list.insert(Job::Version(index));
        let source = self.memory.payload(sequence, sectors);
        self.checksum(job, source);
        true
    }

    fn version_write(&mut self, index: u32) -> &mut VersionWrite {
        let found = self.buffer.under_way.get_mut(index);
        found.expect("it is in flight")
    }

    pub(crate) fn put_version(&mut self, job: u32, index: u32, payload_crc: u32) {
        let mut page = self.jobs.boxes.page();
        let owner = *self.table().owner();
        let write = self.version_write(index);
        write.version.header.payload_crc = payload_crc;
        slot::encode(&owner, &write.version, &mut page);
        let header = write.header;
        self.put_page(job, page, header);
    }

    pub(crate) fn write_version(&mut self, job: u32, index: u32) {
        let slots = self.slots();
        let write = self.version_write(index);
        write.writes = 2;
        let header = BufRef::new(write.header, 0, SMALL_BYTES);
        let (record, version) = (write.version.header, write.version.version);
        // Whole pages: the memory behind the payload does not change meanwhile.
        let sectors = u64::from(record.payload_sectors).next_multiple_of(PAGE_SECTORS);
        let payload = self.memory.payload(record.sequence, sectors);
        let at = slots.half_at(slots.half_of(record.sequence, version));
        for (at, source) in [(at, header), (at + PAGE_SECTORS, payload)] {
            self.write(Site::Nvram, Owner::Job(job), at, source);
        }
    }

    pub(crate) fn version_written(
        &mut self,
        job: u32,
        index: u32,
        result: Result<(), RequestError>,
    ) {
        let write = self.version_write(index);
        write.writes -= 1;
        write.failed = write.failed.or(result.err());
        if write.writes > 0 {
            return;
        }
        self.jobs.list.remove(job);
        let over = self.buffer.under_way.remove(index).expect("just seen");
        self.buffers.release(over.header);
        let result = over.failed.map_or(Ok(()), Err);
        self.version_ended(over.version.header.sequence, result);
    }

    fn version_ended(&mut self, sequence: u64, result: Result<(), RequestError>) {
        self.memory.end_reading(sequence);
        self.overlay_mut().nvram_written(result);
    }

    pub(crate) fn disable_buffer(&mut self) {
        self.buffer.disabling = true;
        self.out.push(Action::Fact(Fact::BufferFailed));
    }

    /// Continues to record that the NVRAM set holds nothing valid. False if that has to wait.
    pub(crate) fn advance_disable(&mut self) -> bool {
        if !self.buffer.disabling || self.lacks_room() {
            return false;
        }
        let recorded = match self.mark_buffer(BufferMark::Idle) {
            Ok(false) => return false,
            recorded => recorded,
        };
        self.buffer.disabling = false;
        self.buffer.used = false;
        let overlay = self.overlay_mut();
        if recorded.is_err() {
            overlay.break_log();
        }
        overlay.nvram_disabled();
        true
    }

    /// The number of records in the NVRAM set, while flushes go there.
    pub(crate) fn records_in_buffer(&self) -> Option<u32> {
        let overlay = self.overlay.as_ref()?;
        overlay.uses_nvram().then(|| overlay.records_in_nvram())
    }
}
