//! Copies into the main set. Data that is adjacent there is collected from memory and log, and written at
//! once.
//!
//! Owns the copies that wait or are in flight. While clients are busy, copies go at a minimum rate.

use super::staging::Staging;
use crate::children::Owner;
use crate::facts::Stage;
use crate::overlay::{Extent, Kind, PartTag, Pressure, Site, is_logged};
use crate::works::Job;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use restripe_array::parts;
use restripe_array::{Buf, BufRef, LARGE_BYTES, Nanos, RequestError, SECTOR_BYTES, Slab};

/// The least speed of a destage in bytes a second, however busy clients are (like md's tasks).
const HOME_RATE_MIN: u64 = 1 << 20;
/// Clients count as idle at this time after their last request.
const IDLE: Nanos = Nanos::from_millis(20);

/// A copy into the main set, of extents that are adjacent there.
#[derive(Clone, Debug)]
pub(crate) struct DestageCopy {
    part: PartTag,
    extents: Vec<Extent>,
    buf: Buf,
    /// Sectors that are written, and sectors that move at once: all, or one where some are lost in the log.
    done: u32,
    step: u32,
    /// The number of reads and computations in flight that collect the data; afterwards, the writes.
    under_way: u32,
    writing: bool,
    failed: Option<RequestError>,
}

impl DestageCopy {
    pub(crate) fn sectors(&self) -> u32 {
        self.extents.iter().map(|extent| extent.sectors).sum()
    }

    /// The first sector in the main set that moves now.
    pub(crate) fn home(&self) -> u64 {
        self.extents[0].home + u64::from(self.done)
    }

    /// Whether the primary copies have the data.
    fn is_primary(&self) -> bool {
        self.extents[0].kind == Kind::Also
    }

    fn is_logged(&self) -> bool {
        self.extents.iter().all(|extent| is_logged(extent.at))
    }

    fn use_log_copy(&mut self) {
        for extent in &mut self.extents {
            extent.kind = Kind::Instead;
        }
    }

    /// The extents that move now.
    fn pieces(&self) -> Vec<Extent> {
        let moves = self.home()..self.home() + u64::from(self.step);
        let pieces = self.extents.iter();
        pieces
            .filter_map(|extent| extent.within(moves.clone()))
            .collect()
    }
}

/// The part of a buffer that this many sectors fill.
fn copy_of(sectors: u32, buf: Buf) -> BufRef {
    let bytes = (u64::from(sectors) * SECTOR_BYTES) as u32;
    assert!(bytes <= LARGE_BYTES, "a copy fits a buffer");
    BufRef::new(buf, 0, bytes)
}

pub(crate) struct Copies {
    pub(crate) below: Staging,
    /// The earliest time of the next copy while clients are busy.
    next_copy: Nanos,
    /// Copies that wait for their time, or for a buffer.
    copies_waiting: VecDeque<(PartTag, Vec<Extent>)>,
    destage_copies: Slab<DestageCopy>,
}

floor!(Copies over Staging { next_copy, copies_waiting, destage_copies });

impl Copies {
    /// Whether no copy is in flight or waits.
    pub(crate) fn copies_idle(&self) -> bool {
        self.copies_waiting.is_empty() && self.destage_copies.is_empty()
    }

    /// Queues a copy of adjacent extents to the main set.
    pub(crate) fn queue_copy(&mut self, part: PartTag, extents: Vec<Extent>) {
        self.copies_waiting.push_back((part, extents));
    }

    pub(crate) fn next_copy(&mut self) -> bool {
        let Some((_, extents)) = self.copies_waiting.front() else {
            return false;
        };
        let sectors = extents.iter().map(|extent| extent.sectors).sum();
        if !self.may_copy(sectors) {
            return false;
        }
        let Some(buf) = self.large_buffer() else {
            return false;
        };
        let (part, extents) = self.copies_waiting.pop_front().expect("it was seen");
        let copy = self.destage_copies.insert(DestageCopy {
            part,
            extents,
            buf,
            done: 0,
            step: sectors,
            under_way: 0,
            writing: false,
            failed: None,
        });
        self.gather_copy(copy);
        true
    }

    fn destage_copy(&mut self, copy: u32) -> &mut DestageCopy {
        let found = self.destage_copies.get_mut(copy);
        found.expect("its copy is in flight")
    }

    /// Collects the data that moves now: from memory if it is there, from the log, or from primary copies.
    fn gather_copy(&mut self, copy: u32) {
        let found = self.destage_copy(copy);
        found.writing = false;
        if found.is_primary() {
            return self.read_primaries(copy);
        }
        let (pieces, home) = (found.pieces(), found.home());
        let whole = copy_of(found.step, found.buf);
        let parts: Vec<(Extent, Option<BufRef>)> = pieces
            .into_iter()
            .flat_map(|piece| self.sources_of(piece))
            .collect();
        self.destage_copy(copy).under_way = parts.len() as u32; // a sector each at least
        for (piece, source) in parts {
            let bytes = (u64::from(piece.sectors) * SECTOR_BYTES) as u32;
            let offset = ((piece.home - home) * SECTOR_BYTES) as u32;
            let target = whole.part(offset, bytes);
            match source {
                Some(_) => self.copy(Job::DestageCopy(copy), source, target),
                None => {
                    let job = self.jobs.list.insert(Job::DestageCopy(copy));
                    let at = self.log_sector(piece.at);
                    self.read(Site::Log, Owner::Job(job), at, target);
                }
            }
        }
    }

    /// Reads from the primary copies, for the secondary copies.
    fn read_primaries(&mut self, copy: u32) {
        let found = self.destage_copy(copy);
        found.under_way = 1;
        let (home, target) = (found.home(), copy_of(found.step, found.buf));
        let owner = Owner::Job(self.jobs.list.insert(Job::DestageCopy(copy)));
        self.read_copies(Site::Home, owner, home, target, parts::Copies::First);
    }

    pub(crate) fn copy_moved(&mut self, job: u32, copy: u32, result: Result<(), RequestError>) {
        self.jobs.list.remove(job);
        let found = self.destage_copy(copy);
        found.under_way -= 1;
        if let Err(error) = result {
            // An error that may pass is no loss: it takes precedence.
            if matches!(found.failed, None | Some(RequestError::Lost { .. })) {
                found.failed = Some(error);
            }
        }
        if found.under_way > 0 {
            return;
        }
        let again = found.is_primary() && !found.writing && found.is_logged();
        let (failed, writing) = (found.failed.take(), found.writing);
        if failed.is_some() && again && !self.log_is_broken() {
            // The log has the data, too. Then all copies are written from there.
            self.destage_copy(copy).use_log_copy();
            return self.gather_copy(copy);
        }
        let found = self.destage_copy(copy);
        match (failed, writing) {
            (None, false) => self.write_copy(copy),
            (None, true) => self.piece_done(copy),
            (Some(RequestError::Lost { .. }), false) if found.step > 1 => {
                // Sector by sector, so that no sector is lost that could be read.
                found.step = 1;
                self.gather_copy(copy);
            }
            (Some(RequestError::Lost { .. }), false) => {
                let home = found.home();
                self.lose_everywhere(home, 1);
                self.piece_done(copy);
            }
            (Some(error), _) => self.end_copy(copy, Err(error)),
        }
    }

    fn write_copy(&mut self, copy: u32) {
        let found = self.destage_copy(copy);
        (found.writing, found.under_way) = (true, 1);
        let (home, source) = (found.home(), copy_of(found.step, found.buf));
        let copies = match found.is_primary() {
            true => parts::Copies::Further,
            false => parts::Copies::All,
        };
        let owner = Owner::Job(self.jobs.list.insert(Job::DestageCopy(copy)));
        self.write_copies(Site::Home, owner, home, source, copies);
    }

    /// The data that moved is in the main set, or lost.
    fn piece_done(&mut self, copy: u32) {
        let found = self.destage_copy(copy);
        found.done += found.step;
        if found.done < found.sectors() {
            self.gather_copy(copy);
        } else {
            self.end_copy(copy, Ok(()));
        }
    }

    fn end_copy(&mut self, copy: u32, result: Result<(), RequestError>) {
        let over = self.destage_copies.remove(copy);
        let over = over.expect("its copy is in flight");
        self.buffers.release(over.buf);
        self.part_done(over.part, result);
    }

    /// Whether a job reads the primary copies.
    pub(crate) fn reads_primary(&self, job: u32) -> bool {
        match self.jobs.list.get(job) {
            Some(Job::DestageCopy(copy)) => {
                let copy = self.destage_copies.get(*copy);
                copy.is_some_and(|copy| copy.is_primary() && !copy.writing)
            }
            _ => false,
        }
    }

    /// Whether a copy of this many sectors may start now: if clients are idle, if they wait for room, or if
    /// the minimum rate makes it due.
    fn may_copy(&mut self, sectors: u32) -> bool {
        let overlay = self.overlay();
        let short =
            overlay.is_starved() || overlay.is_closing() || overlay.pressure() >= Pressure::Reclaim;
        // The mirrors are spun up for the destage, so it should end soon.
        let short = short || self.surrogate.redirect.is_constant() || self.is_leaving();
        let idle_from = self.last_request.after(IDLE);
        let stopping = self.stage != Stage::Serving;
        if short || stopping || overlay.is_idle() && self.now >= idle_from {
            return true;
        }
        if self.now < self.next_copy {
            let from = match overlay.is_idle() {
                true => idle_from.min(self.next_copy),
                false => self.next_copy,
            };
            self.route.wake_own(from);
            return false;
        }
        let bytes = u64::from(sectors) * SECTOR_BYTES;
        let lasts = Nanos(bytes * 1_000_000_000 / HOME_RATE_MIN);
        self.next_copy = self.now.after(lasts);
        true
    }
}
