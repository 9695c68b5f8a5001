//! Anchors of the log set: pages that say from which sequence on the records of a segment count.
//!
//! Owns the rounds in which changed anchors are written. A round puts every changed anchor into a buffer and
//! writes it durably; a change meanwhile waits for the next round.

use crate::overlay::{PartTag, Site};
use crate::pair::children::{Owner, child};
use crate::pair::jobs::{AnchorPage, Job};
use crate::pair::reads::Reads;
use alloc::vec::Vec;
use restripe_array::parts::Size;
use restripe_array::{BufRef, RequestError, RequestOp, SECTOR_BYTES};

/// Anchors are written in rounds: what changes during one waits for the next.
#[derive(Default)]
pub(crate) struct Rounds {
    /// The overlay waits for a round that has yet to begin, and for the one under way.
    next: Vec<PartTag>,
    now: Vec<PartTag>,
    /// Pages under way.
    pages: u32,
    running: bool,
    /// One could not be written: which version lies there nobody knows, and none is written any more.
    failed: Option<RequestError>,
}

impl Rounds {
    pub(crate) fn is_running(&self) -> bool {
        self.running
    }
}

pub(crate) struct Anchors {
    pub(crate) below: Reads,
    pub(crate) rounds: Rounds,
}

floor!(Anchors over Reads { rounds });

impl Anchors {
    /// The page of an anchor lies in its buffer: it is written into the log.
    pub(crate) fn put_anchor(&mut self, job: u32, page: AnchorPage) {
        let sectors = u64::from(self.table().layout().grain());
        let source = BufRef::new(page.buf, 0, (sectors * SECTOR_BYTES) as u32);
        let request = child(RequestOp::Write, page.at, sectors, source, true);
        self.ask(Site::Log, Owner::Job(job), request);
    }

    /// Calls records below void, of one segment or of all.
    pub(crate) fn void(&mut self, part: PartTag, segment: Option<u32>, below: u64) {
        let table = self.table();
        table.flushed(below);
        match segment {
            Some(segment) => table.void(segment, below),
            None => table.void_all(below),
        }
        self.rounds.next.push(part);
    }

    /// Begins a round of anchors if somebody waits for one, goes on with the one under way, or ends it.
    pub(crate) fn next_anchors(&mut self) -> bool {
        if !self.rounds.running {
            // What was lost on the way home is on record before the log says that it is home.
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

    /// Begins to write an anchor that changed; false if there is none, or no buffer.
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

    /// The outcome of all pages, if this was the last one under way.
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

    /// Whether anchors are on their way.
    pub(crate) fn writes_anchors(&self) -> bool {
        self.rounds.pages > 0
    }
}
