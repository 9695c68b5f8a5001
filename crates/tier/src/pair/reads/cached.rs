//! Users' reads through the read cache: it stands above the overlay, so a block is held by its place at home wherever its current
//! copy lies, and stays held when that goes home.
//!
//! Home's engine has the cache, and knows what misses cost; while the pair serves, users' requests are all that it hears of
//! from here. A part of a read that the overlay wants is cut into what is held and what is not:
//!
//! | part    | cause                                                              | next    |
//! |---------|--------------------------------------------------------------------|---------|
//! | reading | what is held was copied to its user, and the rest read             | keeping |
//! | keeping | its whole blocks were copied into the cache, unless something changed there since it began | - |

use crate::overlay::{PartTag, Site};
use crate::pair::jobs::Job;
use crate::pair::works::Works;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use restripe_array::parts::BlockCopy;
use restripe_array::{BufRef, RequestError};

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

pub(crate) struct CachedReads {
    pub(crate) below: Works,
    cached: BTreeMap<PartTag, Read>,
}

floor!(CachedReads over Works { cached });

impl CachedReads {
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
        self.memory.of(sequence).readers -= 1;
        self.part_done(part, Ok(()));
    }

    pub(crate) fn part_done(&mut self, part: PartTag, result: Result<(), RequestError>) {
        if let Some(result) = self.part_over(part, result) {
            self.overlay_mut().part_done(part, result);
        }
    }
}
