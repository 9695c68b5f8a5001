//! A record into the log: its payload's checksum is computed, its header is put into a buffer, and both are
//! written.
//!
//! Owns the records that wait. An append is *announced* when the main set's members record durably that the
//! log set has something of these rows, so no start goes on without it. A clean copy needs no announcement:
//! the main set has the same.

pub(crate) mod anchors;

use super::children::{Owner, child};
use super::jobs::{Append, Job};
use crate::overlay::format::{RecordHeader, record};
use crate::overlay::{Extent, Kind, Site};
use alloc::collections::VecDeque;
use anchors::Anchors;
use restripe_array::meta::crc::crc32c_of_zeros;
use restripe_array::parts::{Bug, Noted, Size};
use restripe_array::{BufRef, PAGE_SECTORS, RequestError, RequestOp, SMALL_BYTES};

pub(crate) struct Appends {
    pub(crate) below: Anchors,
    /// Not announced yet, or without a buffer: the oldest first.
    appends: VecDeque<Append>,
}

floor!(Appends over Anchors { appends });

impl Appends {
    /// A record is to go into the log.
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
        let announced = match extent.kind {
            Kind::Clean => Some(Ok(())),
            Kind::Instead | Kind::Also => self.announced(&[extent]),
        };
        match announced {
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

    /// Whether home knows durably that the surrogate may have these sectors. It is told otherwise.
    pub(crate) fn is_announced(&mut self, lba: u64, sectors: u64) -> bool {
        let home = &mut self.sets[Site::Home];
        let Noted { durable, in_turn } = home.announce_redirect(lba, sectors);
        // What is being written comes back by itself.
        self.delivered |= in_turn;
        durable || self.home().planted(Bug::RedirectNotAnnounced)
    }

    /// Announces all of these, the last one as well where the first has to wait: what is announced together
    /// becomes durable together. `None` until it is; an error if it never will be.
    pub(crate) fn announced(&mut self, extents: &[Extent]) -> Option<Result<(), RequestError>> {
        let mut all = true;
        for extent in extents {
            all &= self.is_announced(extent.home, u64::from(extent.sectors));
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
        // Users ask home, and know nothing of the log's places.
        let result = result.map_err(|error| match error {
            RequestError::NoSpace => RequestError::NoSpace,
            _ => RequestError::Unavailable,
        });
        self.overlay_mut().appended(sequence, result);
    }
}
