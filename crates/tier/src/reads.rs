//! Parts of clients' requests that read or flush: from the read cache, the main set, the log set, or memory.
//!
//! The read cache is above the overlay: a block is held by its place in the main set, wherever its current
//! copy is, and stays held when it is destaged. The main set owns the cache and knows the cost of a miss.
//! While the tier serves, only clients' requests change the cache. A part of a read has held and missing
//! blocks:
//!
//! | part    | cause                                                              | next    |
//! |---------|--------------------------------------------------------------------|---------|
//! | reading | the held blocks were copied to the client's buffer, and the rest was read | keeping |
//! | keeping | its whole blocks were copied into the cache, unless something changed there since it began | - |

use super::children::{Owner, flush};
use super::works::{Job, Works};
use crate::overlay::{Kind, PartTag, Site, is_logged};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use restripe_array::parts::{BlockCopy, Bug, Copies};
use restripe_array::report::ArrayState;
use restripe_array::{BufRef, RequestError, SECTOR_BYTES};

/// A part of a client's read.
struct Read {
    /// The cache's count of changes when the part began.
    begun: u64,
    /// Reads and copies in flight.
    left: u32,
    result: Result<(), RequestError>,
    /// The parts that the cache lacks, by their sector in the main set.
    missing: Vec<(u64, BufRef)>,
}

pub(crate) struct Reads {
    pub(crate) below: Works,
    cached: BTreeMap<PartTag, Read>,
}

floor!(Reads over Works { cached });

/// Sectors that are lost in the log are lost in the main set: no other copy is current.
pub(crate) fn lost_of_home(error: RequestError, home: u64, sectors: u64) -> RequestError {
    match error {
        RequestError::Lost { .. } => RequestError::Lost { lba: home, sectors },
        other => other,
    }
}

impl Reads {
    /// Reads sectors into a client's buffer: from the cache, and the missing ones from their current copy.
    pub(crate) fn read_cached(
        &mut self,
        part: PartTag,
        home: u64,
        copy: Option<(Kind, u64)>,
        buf: BufRef,
    ) {
        let sectors = u64::from(buf.bytes) / SECTOR_BYTES;
        let Some(begun) = self.home().cache_above() else {
            return self.read_overlaid(part, home, copy, buf);
        };
        let (mut held, mut missing, mut done) = (Vec::new(), Vec::new(), 0);
        while done < sectors {
            let (run, memory) = self.home().cached_run(home + done, sectors - done);
            let here = buf.part((done * SECTOR_BYTES) as u32, (run * SECTOR_BYTES) as u32);
            match memory {
                Some(memory) => held.push((home + done, memory, here)),
                None => missing.push((home + done, here)),
            }
            done += run;
        }
        let left = (held.len() + missing.len()) as u32;
        self.begin_cached(part, begun, left, missing.clone());
        for (lba, memory, here) in held {
            let (home, way) = (&mut self.sets[Site::Home], BlockCopy::Out);
            let source = home.use_cached(lba, memory, way, here.bytes);
            self.copy(Job::Cached { part, memory, way }, Some(source), here);
        }
        for (lba, here) in missing {
            let copy = copy.map(|(kind, at)| (kind, at + (lba - home)));
            if copy.is_some_and(|(kind, _)| kind != Kind::Also) {
                let sectors = u64::from(here.bytes) / SECTOR_BYTES;
                self.sets[Site::Home].count_elsewhere(lba, sectors);
            }
            self.read_overlaid(part, lba, copy, here);
        }
    }

    pub(crate) fn read_overlaid(
        &mut self,
        part: PartTag,
        home: u64,
        copy: Option<(Kind, u64)>,
        buf: BufRef,
    ) {
        match copy {
            None => self.read_part(Owner::Part(part), Site::Home, home, buf),
            Some((Kind::Also, at)) => {
                let owner = Owner::PrimaryPart {
                    part,
                    home,
                    at,
                    buf,
                };
                self.read_copies(Site::Home, owner, home, buf, Copies::First);
            }
            // Only the primary copies had it, and they are not trusted any more.
            Some((_, at)) if !is_logged(at) => {
                self.part_done(part, Err(RequestError::Unavailable));
            }
            Some((kind, at)) if !self.read_from_memory(part, at, buf) => {
                let owner = Owner::LogPart {
                    part,
                    home,
                    clean: kind == Kind::Clean,
                    buf,
                };
                self.read_part(owner, Site::Log, at, buf);
            }
            Some(_) => {}
        }
    }

    pub(crate) fn flush_set(&mut self, part: PartTag, site: Site) {
        let destages = self.overlay.as_ref().is_some_and(|one| one.is_destaging());
        if site == Site::Home && destages && self.home().planted(Bug::VoidBeforeFlush) {
            return self.part_done(part, Ok(()));
        }
        let owner = match site {
            Site::Nvram => Owner::NvramFlush(part),
            Site::Home | Site::Log => Owner::Part(part),
        };
        self.ask(site, owner, flush());
    }

    fn read_part(&mut self, owner: Owner, site: Site, sector: u64, buf: BufRef) {
        let at = match site {
            Site::Log => self.log_sector(sector),
            Site::Home | Site::Nvram => sector,
        };
        self.read(site, owner, at, buf);
    }

    /// A primary copy was read. If the read failed, or the copies are not trusted any more, the log has the
    /// data. If the log set was removed, all copies have it.
    pub(crate) fn primary_read(
        &mut self,
        part: PartTag,
        home: u64,
        at: u64,
        buf: BufRef,
        result: Result<(), RequestError>,
    ) {
        let overlay = self.overlay();
        if overlay.trusts() && (result.is_ok() || overlay.is_broken()) {
            return self.part_done(part, result);
        }
        if self.is_gone() {
            return match result {
                Ok(()) => self.part_done(part, result),
                Err(_) => self.read_overlaid(part, home, None, buf),
            };
        }
        self.read_overlaid(part, home, Some((Kind::Instead, at)), buf);
    }

    /// Sectors that a log reports as lost for want of members may be back when the members are.
    pub(crate) fn of_log(&self, error: RequestError) -> RequestError {
        match error {
            RequestError::Lost { .. } if self.log().state() == ArrayState::Failed => {
                RequestError::Unavailable
            }
            error => error,
        }
    }

    // ---------------------------------------------------------------------------------------- read cache

    /// A part of a read begins that the cache has in part, with this many reads and copies.
    pub(crate) fn begin_cached(
        &mut self,
        part: PartTag,
        begun: u64,
        left: u32,
        missing: Vec<(u64, BufRef)>,
    ) {
        let read = Read {
            begun,
            left,
            result: Ok(()),
            missing,
        };
        self.cached.insert(part, read);
    }

    pub(crate) fn cached_copied(&mut self, job: u32, part: PartTag, memory: u32, way: BlockCopy) {
        self.jobs.list.remove(job);
        self.sets[Site::Home].cached_used(memory, way);
        self.part_done(part, Ok(()));
    }

    /// A read or copy of a part has ended. Returns the part's result if it was the last one.
    pub(crate) fn part_over(
        &mut self,
        part: PartTag,
        result: Result<(), RequestError>,
    ) -> Option<Result<(), RequestError>> {
        let Some(read) = self.cached.get_mut(&part) else {
            return Some(result);
        };
        read.left -= 1;
        if result.is_err() && read.result.is_ok() {
            read.result = result;
        }
        if read.left > 0 {
            return None;
        }
        if read.result.is_ok() && self.admit_missing(part) {
            return None;
        }
        let read = self.cached.remove(&part);
        read.map(|read| read.result)
    }

    /// Starts to copy the missing blocks into the cache. Returns false if none are admitted.
    fn admit_missing(&mut self, part: PartTag) -> bool {
        let read = self.cached.get_mut(&part).expect("it has ended");
        let (begun, missing) = (read.begun, core::mem::take(&mut read.missing));
        let mut copies = Vec::new();
        for (lba, buf) in missing {
            self.sets[Site::Home].admit_blocks(lba, buf, begun, &mut copies);
        }
        let read = self.cached.get_mut(&part).expect("it has ended");
        read.left = copies.len() as u32;
        let any = !copies.is_empty();
        for (source, memory, target) in copies {
            let way = BlockCopy::In;
            self.copy(Job::Cached { part, memory, way }, Some(source), target);
        }
        any
    }

    pub(crate) fn memory_read(&mut self, job: u32, part: PartTag, sequence: u64) {
        self.jobs.list.remove(job);
        self.memory.end_reading(sequence);
        self.part_done(part, Ok(()));
    }

    pub(crate) fn part_done(&mut self, part: PartTag, result: Result<(), RequestError>) {
        if let Some(result) = self.part_over(part, result) {
            self.overlay_mut().part_done(part, result);
        }
    }
}
