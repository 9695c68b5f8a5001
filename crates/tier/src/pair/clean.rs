//! Cleaning a log in which writes are gathered: when it is begun, and the reads of what moves ([`crate::overlay`] has the order of things).
//!
//! A log that runs short is cleaned rather than brought home where mirrors may sleep, as long as that pays ([`cleaning`]). What wants all
//! at home (a command, the time, a map that is nearly full, a lost disk) is not put off by it, and ends one that is under way at once.

use super::child::Owner;
use super::jobs::{Job, child};
use super::{Destage, Pair, Stage};
use crate::overlay::{Oldest, Overlay, PartTag, Site};
use crate::policy::cleaning::{self, Standing};
use restripe_array::{BufRef, RequestError, RequestOp, SECTOR_BYTES};

impl Destage {
    /// Whether a log in which writes are gathered is cleaned.
    pub(super) fn cleans(&self) -> bool {
        self.clean && self.sleep.is_some()
    }
}

impl Pair {
    /// Begins to clean a log that is short; false if it has to go home.
    pub(super) fn begin_cleaning(&mut self) -> bool {
        let overlay = self.overlay.as_mut().expect("a serving pair has one");
        let may = self.surrogate.destage.cleans() && self.stage == Stage::Serving;
        if !may || overlay.cleaned_in_vain() {
            return false;
        }
        let oldest = overlay.oldest();
        let Some(oldest) = oldest.filter(|oldest| pays(overlay, oldest)) else {
            return false;
        };
        overlay.clean(oldest);
        true
    }

    /// Reads the next part of the log that is to be moved; false if there is none, or no memory.
    pub(super) fn next_move(&mut self) -> bool {
        let Some((part, at, sectors)) = self.jobs.moves.front().copied() else {
            return false;
        };
        let Some(buf) = self.large_buffer() else {
            return false;
        };
        self.jobs.moves.pop_front();
        let bytes = (u64::from(sectors) * SECTOR_BYTES) as u32;
        let buf = BufRef::new(buf, 0, bytes);
        let job = self.jobs.list.insert(Job::Move { part, buf });
        let at = self.log_sector(at);
        let request = child(RequestOp::Read, at, u64::from(sectors), buf, false);
        self.children.ask(Site::Log, Owner::Job(job), request);
        true
    }

    pub(super) fn move_read(
        &mut self,
        job: u32,
        part: PartTag,
        buf: BufRef,
        result: Result<(), RequestError>,
    ) {
        self.jobs.list.remove(job);
        if result.is_err() {
            self.release_moved(buf);
        }
        let overlay = self.overlay.as_mut().expect("it is being cleaned");
        overlay.moved_in(part, result.map(|()| buf));
    }

    /// What was read is in records, or needed no more.
    pub(super) fn release_moved(&mut self, buf: BufRef) {
        self.buffers.release(buf.buf);
    }
}

fn pays(overlay: &Overlay, oldest: &Oldest) -> bool {
    cleaning::pays(&Standing {
        live: overlay.sectors_instead(),
        log: overlay.log_sectors(),
        oldest_live: oldest.live,
        oldest: oldest.sectors,
    })
}
