//! Parts of users' requests that read or flush: from the main set, the log set, or memory.

pub(crate) mod cached;

use super::children::{Owner, flush};
use super::jobs::Job;
use crate::overlay::{Kind, PartTag, Site, is_logged};
use alloc::vec::Vec;
use cached::CachedReads;
use restripe_array::parts::{BlockCopy, Bug, Copies};
use restripe_array::report::ArrayState;
use restripe_array::{BufRef, RequestError, SECTOR_BYTES};

pub(crate) struct Reads {
    pub(crate) below: CachedReads,
}

floor!(Reads over CachedReads {});

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
}
