//! Parts of users' requests that read or flush: from the read cache, the main set, the log set, or memory.
//!
//! The read cache stands above the overlay: a block is held by its place in the main set wherever its current
//! copy lies, and stays held when that is destaged. The main set has the cache, and knows what misses cost;
//! while the tier serves, users' requests are all that it hears of from here. A part of a read is cut into
//! what is held and what is not:
//!
//! | part    | cause                                                              | next    |
//! |---------|--------------------------------------------------------------------|---------|
//! | reading | what is held was copied to its user, and the rest read             | keeping |
//! | keeping | its whole blocks were copied into the cache, unless something changed there since it began | - |

use super::children::{Owner, flush};
use super::works::{Job, Works};
use crate::overlay::{Kind, PartTag, Site, is_logged};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use restripe_array::parts::{BlockCopy, Bug, Copies};
use restripe_array::report::ArrayState;
use restripe_array::{BufRef, RequestError, SECTOR_BYTES};

/// A part of a user's read.
struct Read {
    /// What had changed when it began, as the cache counts.
    begun: u64,
    /// Reads and copies under way.
    left: u32,
    result: Result<(), RequestError>,
    /// What the cache had not: from which sector of home on.
    missing: Vec<(u64, BufRef)>,
}

pub(crate) struct Reads {
    pub(crate) below: Works,
    cached: BTreeMap<PartTag, Read>,
}

floor!(Reads over Works { cached });

/// What is lost in the log is lost at home: nothing else has it.
pub(crate) fn lost_of_home(error: RequestError, home: u64, sectors: u64) -> RequestError {
    match error {
        RequestError::Lost { .. } => RequestError::Lost { lba: home, sectors },
        other => other,
    }
}

impl Reads {
    /// Reads sectors into a user's buffer: from the cache, and what that has not from where it lies.
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
                let owner = Owner::FirstPart {
                    part,
                    home,
                    at,
                    buf,
                };
                self.read_copies(Site::Home, owner, home, buf, Copies::First);
            }
            // First copies alone had it, and are believed no more.
            Some((_, at)) if !is_logged(at) => {
                self.part_done(part, Err(RequestError::Unavailable));
            }
            Some((kind, at)) if !self.read_gathered(part, at, buf) => {
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
        self.ask(site, Owner::Part(part), flush());
    }

    fn read_part(&mut self, owner: Owner, site: Site, sector: u64, buf: BufRef) {
        let at = match site {
            Site::Log => self.log_sector(sector),
            Site::Home | Site::Nvram => sector,
        };
        self.read(site, owner, at, buf);
    }

    /// A first copy was read. What cannot be had there, or not be believed any more, the log has; all copies, if it was let go.
    pub(crate) fn first_read(
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

    /// What a log without enough members calls lost may be there again when they are.
    pub(crate) fn of_log(&self, error: RequestError) -> RequestError {
        match error {
            RequestError::Lost { .. } if self.log().state() == ArrayState::Failed => {
                RequestError::Unavailable
            }
            error => error,
        }
    }

    // ---------------------------------------------------------------------------------------- read cache

    /// A part of a read begins, of which the cache has some: so many reads and copies are begun of it.
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

    /// Something of a part has ended. What the overlay is told, if that was all.
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
        if read.result.is_ok() && self.keep_missing(part) {
            return None;
        }
        let read = self.cached.remove(&part);
        read.map(|read| read.result)
    }

    /// Begins to copy what was read into the cache; false if nothing of it is to be kept.
    fn keep_missing(&mut self, part: PartTag) -> bool {
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

    pub(crate) fn gathered_read(&mut self, job: u32, part: PartTag, sequence: u64) {
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
