//! Cleaning of a log in which writes are packed: when it starts, and the reads of the data that moves.
//! [`crate::overlay`] has the order of the steps.
//!
//! Where mirrors may be in standby, a log that runs short is cleaned instead of destaged, as long as that
//! pays ([`cleaning`]). A destage that is due for another reason (a command, the time, a map that is nearly
//! full, a lost disk) is not delayed, and ends a running cleaning at once.
//!
//! Owns the parts of the log that wait for a buffer.

use super::children::Owner;
use super::facts::Stage;
use super::redirect::hot_zones::HotZones;
use super::works::Job;
use crate::overlay::{Oldest, Overlay, PartTag, Site};
use crate::policy::cleaning::{self, Fill};
use alloc::collections::VecDeque;
use restripe_array::{BufRef, RequestError, SECTOR_BYTES};

pub(crate) struct Cleaning {
    pub(crate) below: HotZones,
    /// Parts of the log that are to be moved, and wait for a buffer.
    pub(crate) moves: VecDeque<(PartTag, u64, u32)>,
}

floor!(Cleaning over HotZones { moves });

fn pays(overlay: &Overlay, oldest: &Oldest) -> bool {
    cleaning::pays(&Fill {
        live: overlay.sectors_instead(),
        log: overlay.log_sectors(),
        oldest_live: oldest.live,
        oldest: oldest.sectors,
    })
}

impl Cleaning {
    /// Starts to clean a log that is short. Returns false if it has to be destaged.
    pub(crate) fn begin_cleaning(&mut self) -> bool {
        let may = self.surrogate.destage.cleans() && self.stage == Stage::Serving;
        let overlay = self.overlay_mut();
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

    /// Reads the next part of the log that is to be moved. Returns false if there is none, or no memory.
    pub(crate) fn next_move(&mut self) -> bool {
        let Some((part, at, sectors)) = self.moves.front().copied() else {
            return false;
        };
        let Some(buf) = self.large_buffer() else {
            return false;
        };
        self.moves.pop_front();
        let bytes = (u64::from(sectors) * SECTOR_BYTES) as u32;
        let buf = BufRef::new(buf, 0, bytes);
        let job = self.jobs.list.insert(Job::Move { part, buf });
        let at = self.log_sector(at);
        self.read(Site::Log, Owner::Job(job), at, buf);
        true
    }

    pub(crate) fn move_read(
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
        self.overlay_mut().moved_in(part, result.map(|()| buf));
    }

    /// The data that was read is in records, or is no longer needed.
    pub(crate) fn release_moved(&mut self, buf: BufRef) {
        self.buffers.release(buf.buf);
    }
}
