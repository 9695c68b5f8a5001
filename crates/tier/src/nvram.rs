//! A code cache's buffer in persistent memory: a third set beside home and log, with superblocks of its own, whose data space is
//! [slots](crate::overlay::format::slot).
//!
//! The log's superblock says whether what lies there may count ([`BufferMark`]): from before the first flush that it answers until a stop
//! has brought all into the log, or until it failed and all was sealed. While it may, no start goes on without the buffer.
//!
//! | version | cause                                                 | next    |
//! |---------|-------------------------------------------------------|---------|
//! | waiting | its place is announced at home; a page for its header | summed  |
//! | summed  | header put; header and payload written                | kept    |
//!
//! Owns the versions on their way into the buffer.

use super::children::Owner;
use super::pack::Packs;
use super::works::Job;
use crate::overlay::format::{RecordHeader, SlotLayout, Version, slot};
use crate::overlay::{NvramVersion, Site};
use alloc::collections::VecDeque;
use restripe_array::meta::superblock::{BufferMark, PartnerRole};
use restripe_array::parts::Size;
use restripe_array::report::ArrayState;
use restripe_array::{
    Action, Buf, BufRef, Fact, LARGE_BYTES, PAGE_SECTORS, RequestError, SECTOR_BYTES, SMALL_BYTES,
    Slab,
};

/// A version on its way into the buffer.
struct Keeping {
    version: Version,
    header: Buf,
    /// Writes under way.
    writes: u8,
    failed: Option<RequestError>,
}

#[derive(Default)]
pub(crate) struct Buffer {
    /// Flushes may go there.
    pub(crate) used: bool,
    /// Not announced yet, or without memory: the oldest first.
    waiting: VecDeque<Version>,
    under_way: Slab<Keeping>,
    /// It is being put on record that it does not count.
    forgoing: bool,
}

impl Buffer {
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_empty() && !self.forgoing
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

    /// Puts on record whether what lies in the buffer may count; true once it is.
    pub(crate) fn mark_buffer(&mut self, mark: BufferMark) -> Result<bool, RequestError> {
        if self.buffer_mark() != mark {
            self.at(Site::Log, |log| log.set_buffer_mark(mark));
            return Ok(false);
        }
        let durable = self.log().has_partner_durable();
        durable.map_err(|_| RequestError::Unavailable)
    }

    /// Whether the buffer that is here is the log's.
    pub(crate) fn has_own_buffer(&self) -> bool {
        let partner = self.buffer_set().partner();
        self.started[Site::Nvram]
            && partner.is_some_and(|partner| {
                let home = self.home().id();
                partner.role == PartnerRole::Buffer && partner.array == home
            })
    }

    /// It cannot be used any more: what was told goes into the log.
    pub(crate) fn watch_buffer(&mut self) -> bool {
        let failed = self.buffer_set().state() == ArrayState::Failed || self.buffer_set().halted();
        let overlay = self.overlay_mut();
        let fails = failed && overlay.uses_nvram();
        if fails {
            overlay.fail_nvram();
        }
        fails
    }

    /// A version is wanted in the buffer; its checksum is taken later.
    pub(crate) fn keep_version(&mut self, wanted: NvramVersion) {
        // Its memory stays until the version is written.
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

    /// Begins to write the next version that is announced at home; false if there is none.
    pub(crate) fn next_version(&mut self) -> bool {
        let Some(version) = self.buffer.waiting.pop_front() else {
            return false;
        };
        let announced = self.announced(&version.extents);
        if let Some(Err(error)) = announced {
            self.version_kept(version.header.sequence, Err(error));
            return true;
        }
        let header = announced.and_then(|_| self.buffers.take_free(Size::Small));
        let Some(header) = header else {
            self.buffer.waiting.push_front(version);
            return false;
        };
        let sequence = version.header.sequence;
        let sectors = u64::from(version.header.payload_sectors);
        let index = self.buffer.under_way.insert(Keeping {
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

    fn keeping(&mut self, index: u32) -> &mut Keeping {
        let found = self.buffer.under_way.get_mut(index);
        found.expect("it is under way")
    }

    pub(crate) fn put_version(&mut self, job: u32, index: u32, payload_crc: u32) {
        let mut page = self.jobs.boxes.page();
        let owner = *self.table().owner();
        let keeping = self.keeping(index);
        keeping.version.header.payload_crc = payload_crc;
        slot::encode(&owner, &keeping.version, &mut page);
        let header = keeping.header;
        self.put_page(job, page, header);
    }

    pub(crate) fn write_version(&mut self, job: u32, index: u32) {
        let slots = self.slots();
        let keeping = self.keeping(index);
        keeping.writes = 2;
        let header = BufRef::new(keeping.header, 0, SMALL_BYTES);
        let (record, version) = (keeping.version.header, keeping.version.version);
        // Whole pages: what is behind the payload in its memory does not change meanwhile.
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
        let keeping = self.keeping(index);
        keeping.writes -= 1;
        keeping.failed = keeping.failed.or(result.err());
        if keeping.writes > 0 {
            return;
        }
        self.jobs.list.remove(job);
        let over = self.buffer.under_way.remove(index).expect("just seen");
        self.buffers.release(over.header);
        let result = over.failed.map_or(Ok(()), Err);
        self.version_kept(over.version.header.sequence, result);
    }

    fn version_kept(&mut self, sequence: u64, result: Result<(), RequestError>) {
        self.memory.end_reading(sequence);
        self.overlay_mut().nvram_written(result);
    }

    pub(crate) fn forgo_buffer(&mut self) {
        self.buffer.forgoing = true;
        self.out.push(Action::Fact(Fact::BufferFailed));
    }

    /// Goes on to put on record that the buffer does not count; false if that has to wait.
    pub(crate) fn next_forgo(&mut self) -> bool {
        if !self.buffer.forgoing || self.lacks_room() {
            return false;
        }
        let forgone = match self.mark_buffer(BufferMark::Idle) {
            Ok(false) => return false,
            forgone => forgone,
        };
        self.buffer.forgoing = false;
        self.buffer.used = false;
        let overlay = self.overlay_mut();
        if forgone.is_err() {
            overlay.break_log();
        }
        overlay.nvram_disabled();
        true
    }

    /// Records that lie in the buffer, while flushes go there.
    pub(crate) fn records_in_buffer(&self) -> Option<u32> {
        let overlay = self.overlay.as_ref()?;
        overlay.uses_nvram().then(|| overlay.records_in_nvram())
    }
}
