//! Writes a record into the log: computes the payload's checksum, puts its header into a buffer, writes both.
//!
//! Owns the records that wait. The regions of a record are *marked* once the main set's members record
//! durably that the log set may have sectors of them, so no start continues without the log. A clean copy
//! needs no mark: the main set has the same data.
//!
//! Also owns the rounds in which changed **anchors** are written. An anchor is a page that says from which
//! sequence on the records of a segment are valid. A round puts every changed anchor into a buffer and writes
//! it durably. A change during a round waits for the next one.

use super::children::{Owner, child};
use super::reads::Reads;
use super::works::{AnchorPage, Append, Job};
use crate::overlay::format::{RecordHeader, record};
use crate::overlay::{Extent, Kind, PartTag, Site};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use restripe_array::meta::crc::crc32c_of_zeros;
use restripe_array::parts::{Bug, Noted, Size};
use restripe_array::{BufRef, PAGE_SECTORS, RequestError, RequestOp, SECTOR_BYTES, SMALL_BYTES};

/// Anchors are written in rounds: a change during a round waits for the next one.
#[derive(Default)]
pub(crate) struct Rounds {
    /// The parts of the overlay that wait for the next round, and those that wait for the current one.
    next: Vec<PartTag>,
    now: Vec<PartTag>,
    /// Pages in flight.
    pages: u32,
    running: bool,
    /// An anchor could not be written. Which version the log has is unknown, so no further anchor is written.
    failed: Option<RequestError>,
}

impl Rounds {
    pub(crate) fn is_running(&self) -> bool {
        self.running
    }
}

pub(crate) struct Appends {
    pub(crate) below: Reads,
    /// Records whose regions are not marked yet, or that lack a buffer: the oldest first.
    appends: VecDeque<Append>,
    pub(crate) rounds: Rounds,
}

floor!(Appends over Reads { appends, rounds });

impl Appends {
    /// Queues a record for the log.
    pub(crate) fn append(&mut self, extent: Extent, payload: Option<BufRef>, durable: u64) {
        self.appends.push_back(Append {
            extent,
            payload,
            durable,
            header: None,
            writes: 0,
            failed: None,
        });
    }

    pub(crate) fn appends_idle(&self) -> bool {
        self.appends.is_empty() && !self.rounds.is_running()
    }

    pub(crate) fn next_append(&mut self) -> bool {
        let Some(append) = self.appends.front().copied() else {
            return false;
        };
        let extent = append.extent;
        let marked = match extent.kind {
            Kind::Clean => Some(Ok(())),
            Kind::Instead | Kind::Also => self.marked(&[extent]),
        };
        match marked {
            None => return false,
            Some(Err(error)) => {
                self.appends.pop_front();
                self.appended(extent.sequence, Err(error));
                return true;
            }
            Some(Ok(())) => {}
        }
        let Some(header) = self.buffers.take_free(Size::Small) else {
            return false;
        };
        self.appends.pop_front();
        let job = self.jobs.list.insert(Job::Append(Append {
            header: Some(header),
            ..append
        }));
        match append.payload {
            Some(payload) => self.checksum(job, payload),
            None => self.put_header(job, crc32c_of_zeros(u64::from(extent.sectors))),
        }
        true
    }

    /// Whether the main set has durably marked that the log set may have these sectors. If not, that starts.
    pub(crate) fn is_marked(&mut self, lba: u64, sectors: u64) -> bool {
        let home = &mut self.sets[Site::Home];
        let Noted { durable, in_turn } = home.announce_redirect(lba, sectors);
        // A write that is in progress ends without an event of its own.
        self.delivered |= in_turn;
        durable || self.home().planted(Bug::RedirectNotAnnounced)
    }

    /// Marks the regions of all these extents, also of the last ones if the first has to wait: marks that are
    /// set together become durable together. `None` until they are; an error if they never will be.
    pub(crate) fn marked(&mut self, extents: &[Extent]) -> Option<Result<(), RequestError>> {
        let mut all = true;
        for extent in extents {
            all &= self.is_marked(extent.home, u64::from(extent.sectors));
        }
        match (all, self.home().halted()) {
            (true, _) => Some(Ok(())),
            (false, true) if self.lacks_room() => None,
            (false, true) => Some(Err(self.home().refusal(RequestOp::Write))),
            (false, false) => None,
        }
    }

    pub(crate) fn put_header(&mut self, job: u32, payload_crc: u32) {
        let append = *self.appending(job);
        let extent = append.extent;
        let header = RecordHeader {
            sequence: extent.sequence,
            durable: append.durable,
            at: extent.at - PAGE_SECTORS,
            payload_sectors: extent.sectors,
            payload_crc,
        };
        let mut page = self.jobs.boxes.page();
        record::encode(self.table().owner(), &header, &[extent], &mut page);
        let buf = append.header.expect("it was taken");
        self.put_page(job, page, buf);
    }

    pub(crate) fn write_record(&mut self, job: u32) {
        let append = self.appending(job);
        append.writes = 2;
        let append = *append;
        let at = self.log_sector(append.extent.at - PAGE_SECTORS);
        let header = BufRef::new(append.header.expect("it was taken"), 0, SMALL_BYTES);
        let sectors = u64::from(append.extent.sectors);
        let (op, buf) = match append.payload {
            Some(payload) => (RequestOp::Write, payload),
            None => (RequestOp::WriteZeroes { fast: false }, header.part(0, 0)),
        };
        for request in [
            child(RequestOp::Write, at, PAGE_SECTORS, header, false),
            child(op, at + PAGE_SECTORS, sectors, buf, false),
        ] {
            self.ask(Site::Log, Owner::Job(job), request);
        }
    }

    fn appending(&mut self, job: u32) -> &mut Append {
        match self.jobs.list.get_mut(job) {
            Some(Job::Append(append)) => append,
            other => unreachable!("{other:?} is no append"),
        }
    }

    pub(crate) fn append_written(&mut self, job: u32, result: Result<(), RequestError>) {
        let append = self.appending(job);
        append.writes -= 1;
        if let Err(error) = result {
            append.failed.get_or_insert(error);
        }
        let append = *append;
        if append.writes > 0 {
            return;
        }
        self.buffers.release(append.header.expect("it was taken"));
        self.jobs.list.remove(job);
        self.appended(append.extent.sequence, append.failed.map_or(Ok(()), Err));
    }

    pub(crate) fn appended(&mut self, sequence: u64, result: Result<(), RequestError>) {
        // Clients address the main set: an error must not name places in the log.
        let result = result.map_err(|error| match error {
            RequestError::NoSpace => RequestError::NoSpace,
            _ => RequestError::Unavailable,
        });
        self.overlay_mut().appended(sequence, result);
    }

    // ----------------------------------------------------------------------------------------------- anchors

    /// The page of an anchor is in its buffer: it is written into the log.
    pub(crate) fn put_anchor(&mut self, job: u32, page: AnchorPage) {
        let sectors = u64::from(self.table().layout().grain());
        let source = BufRef::new(page.buf, 0, (sectors * SECTOR_BYTES) as u32);
        let request = child(RequestOp::Write, page.at, sectors, source, true);
        self.ask(Site::Log, Owner::Job(job), request);
    }

    /// Makes the records below a sequence obsolete, in one segment or in all.
    pub(crate) fn make_obsolete(&mut self, part: PartTag, segment: Option<u32>, below: u64) {
        let table = self.table();
        table.flushed(below);
        match segment {
            Some(segment) => table.make_obsolete(segment, below),
            None => table.make_all_obsolete(below),
        }
        self.rounds.next.push(part);
    }

    /// Starts a round of anchors if a part waits for one, continues the current round, or ends it.
    pub(crate) fn next_anchors(&mut self) -> bool {
        if !self.rounds.running {
            // Sectors that a destage lost are recorded as lost before the log records them as destaged.
            if self.rounds.next.is_empty() || self.home().writes_lost_list() {
                return false;
            }
            let rounds = &mut self.rounds;
            rounds.running = true;
            rounds.now = core::mem::take(&mut rounds.next);
        }
        let mut any = false;
        while self.write_anchor() {
            any = true;
        }
        let left = self.rounds.failed.is_none() && self.table().changed().is_some();
        if any || left || self.writes_anchors() {
            return any;
        }
        self.end_round();
        true
    }

    fn end_round(&mut self) {
        let rounds = &mut self.rounds;
        rounds.running = false;
        let result = rounds.failed.map_or(Ok(()), Err);
        for part in core::mem::take(&mut rounds.now) {
            self.part_done(part, result);
        }
    }

    /// Starts to write a changed anchor. Returns false if there is none, or no buffer.
    pub(crate) fn write_anchor(&mut self) -> bool {
        if self.rounds.failed.is_some() {
            return false;
        }
        let Some(index) = self.table().changed() else {
            return false;
        };
        let buf = match self.log().whole_rows() {
            true => self.large_buffer(),
            false => self.buffers.take_free(Size::Small),
        };
        let Some(buf) = buf else {
            return false;
        };
        let mut page = self.jobs.boxes.page();
        let at = self.table().encode(index, &mut page);
        self.rounds.pages += 1;
        let job = self
            .jobs
            .list
            .insert(Job::Anchor(AnchorPage { index, at, buf }));
        self.put_page(job, page, buf);
        true
    }

    /// The result of all pages, if this was the last one in flight.
    pub(crate) fn anchor_written(
        &mut self,
        job: u32,
        page: AnchorPage,
        result: Result<(), RequestError>,
    ) -> Option<Result<(), RequestError>> {
        self.buffers.release(page.buf);
        self.jobs.list.remove(job);
        self.rounds.pages -= 1;
        match result {
            Ok(()) => self.table().written(page.index),
            Err(_) => self.rounds.failed = Some(RequestError::Unavailable),
        }
        match self.rounds.pages {
            0 => Some(self.rounds.failed.map_or(Ok(()), Err)),
            _ => None,
        }
    }

    /// Whether anchors are being written.
    pub(crate) fn writes_anchors(&self) -> bool {
        self.rounds.pages > 0
    }
}
