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

use super::Pair;
use super::jobs::Job;
use crate::overlay::{Kind, PartTag, Site};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use restripe_array::parts::BlockCopy;
use restripe_array::{Action, BufRef, ComputeOp, RequestError, SECTOR_BYTES};

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

#[derive(Default)]
pub(super) struct Cached {
    reads: BTreeMap<PartTag, Read>,
}

impl Pair {
    /// Reads sectors into a user's buffer: from the cache, and what that has not from where it lies.
    pub(super) fn read_cached(
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
        let read = Read {
            begun,
            left: (held.len() + missing.len()) as u32,
            result: Ok(()),
            missing: missing.clone(),
        };
        self.cached.reads.insert(part, read);
        for (lba, memory, here) in held {
            let cached = &mut self.sets[Site::Home];
            let source = cached.use_cached(lba, memory, BlockCopy::Out, here.bytes);
            self.copy_cached(part, source, here, memory, BlockCopy::Out);
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

    /// A copy between a user's buffer and a block's memory.
    fn copy_cached(
        &mut self,
        part: PartTag,
        source: BufRef,
        target: BufRef,
        memory: u32,
        way: BlockCopy,
    ) {
        let job = self.jobs.list.insert(Job::Cached { part, memory, way });
        let compute = self.compute(job, ComputeOp::Linear, Some(source), Some(target), None);
        self.out.push(Action::Compute(compute));
    }

    pub(super) fn cached_copied(&mut self, job: u32, part: PartTag, memory: u32, way: BlockCopy) {
        self.jobs.list.remove(job);
        self.sets[Site::Home].cached_used(memory, way);
        self.part_done(part, Ok(()));
    }

    /// Something of a part has ended. What the overlay is told, if that was all.
    pub(super) fn part_over(
        &mut self,
        part: PartTag,
        result: Result<(), RequestError>,
    ) -> Option<Result<(), RequestError>> {
        let Some(read) = self.cached.reads.get_mut(&part) else {
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
        let read = self.cached.reads.remove(&part);
        read.map(|read| read.result)
    }

    /// Begins to copy what was read into the cache; false if nothing of it is to be kept.
    fn keep_missing(&mut self, part: PartTag) -> bool {
        let read = self.cached.reads.get_mut(&part).expect("it has ended");
        let (begun, missing) = (read.begun, core::mem::take(&mut read.missing));
        let mut copies = Vec::new();
        for (lba, buf) in missing {
            self.sets[Site::Home].admit_blocks(lba, buf, begun, &mut copies);
        }
        let read = self.cached.reads.get_mut(&part).expect("it has ended");
        read.left = copies.len() as u32;
        let any = !copies.is_empty();
        for (source, memory, target) in copies {
            self.copy_cached(part, source, target, memory, BlockCopy::In);
        }
        any
    }
}
