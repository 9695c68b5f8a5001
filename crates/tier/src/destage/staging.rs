//! Pieces of the log that are staged in memory for a destage, and the reads that fetch them.
//!
//! | fetch   | cause                                                        | next    |
//! |---------|--------------------------------------------------------------|---------|
//! | waiting | buffers for the whole range from its first to its last piece | reading |
//! | reading | the range was read: its pieces are copied into staged pages  | copying |
//! | copying | all copies have ended                                        | -       |
//!
//! Memory is divided into pages, so that a page which one stripe no longer needs is free for another at once,
//! whichever clusters their pieces came from. A piece that could not be read with others, or found no page,
//! is not staged: the destage reads it separately.

use crate::children::Owner;
use crate::clean::Cleaning;
use crate::overlay::{Extent, PartTag, Site};
use crate::works::Job;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;
use restripe_array::parts::{Bug, Size};
use restripe_array::{
    BAND_SECTORS_MAX, Buf, BufRef, LARGE_BYTES, PAGE_SECTORS, RequestError, SECTOR_BYTES, Slab,
};

/// Pages of a buffer.
pub(crate) const PAGES: u64 = BAND_SECTORS_MAX / PAGE_SECTORS;

const PAGE_BYTES: u32 = (PAGE_SECTORS * SECTOR_BYTES) as u32;

/// A piece in memory.
struct Piece {
    /// The place in the log.
    at: u64,
    sectors: u32,
    pages: Vec<BufRef>,
}

struct Load {
    part: PartTag,
    pieces: Vec<Extent>,
    /// The place of the first buffer in the log.
    from: u64,
    bufs: Vec<Buf>,
    under_way: u32,
    failed: bool,
}

#[derive(Default)]
pub(crate) struct Staged {
    /// The staged pieces, by their place in the main set.
    pieces: BTreeMap<u64, Piece>,
    bufs: Vec<Buf>,
    free: Vec<BufRef>,
    waiting: VecDeque<(PartTag, Vec<Extent>)>,
    loads: Slab<Load>,
    /// The number of buffers of the loads.
    loading: u32,
}

impl Staged {
    /// Adds a buffer for pages.
    fn add(&mut self, buf: Buf) {
        self.bufs.push(buf);
        let whole = BufRef::new(buf, 0, LARGE_BYTES);
        let pages = (0..PAGES as u32).rev();
        self.free
            .extend(pages.map(|page| whole.part(page * PAGE_BYTES, PAGE_BYTES)));
    }

    /// The longest first part of an extent that has one source: its sectors, and its memory if staged.
    fn first_of(&self, extent: &Extent, stale: bool) -> (u32, Option<BufRef>) {
        let before = self.pieces.range(..=extent.home).next_back();
        let here = before.and_then(|(home, piece)| {
            let skip = extent.home - home;
            let same = (stale || piece.at + skip == extent.at) && skip < u64::from(piece.sectors);
            same.then_some((skip as u32, piece))
        });
        match here {
            Some((skip, piece)) => {
                let wanted = extent.sectors.min(piece.sectors - skip);
                let bytes = |sectors: u32| sectors * SECTOR_BYTES as u32;
                let run = run_of(&piece.pages, bytes(skip), bytes(wanted));
                (run.bytes / SECTOR_BYTES as u32, Some(run))
            }
            None => {
                let next = self.pieces.range(extent.home..).next();
                let until = next.map_or(u64::MAX, |(home, _)| *home - extent.home);
                (u64::from(extent.sectors).min(until.max(1)) as u32, None)
            }
        }
    }
}

/// The longest contiguous memory of these bytes, which are stored in pages.
fn run_of(pages: &[BufRef], from: u32, bytes: u32) -> BufRef {
    let (first, skip) = ((from / PAGE_BYTES) as usize, from % PAGE_BYTES);
    let mut run = pages[first].part(skip, PAGE_BYTES - skip);
    for page in &pages[first + 1..] {
        if run.bytes >= bytes || (page.buf, page.offset) != (run.buf, run.offset + run.bytes) {
            break;
        }
        run.bytes += page.bytes;
    }
    run.bytes = run.bytes.min(bytes);
    run
}

pub(crate) struct Staging {
    pub(crate) below: Cleaning,
    staged: Staged,
}

floor!(Staging over Cleaning { staged });

impl Staging {
    pub(crate) fn fetch(&mut self, part: PartTag, pieces: Vec<Extent>) {
        self.staged.waiting.push_back((part, pieces));
    }

    /// Starts the next fetch. Returns false if there is none, or if it has to wait.
    pub(crate) fn next_fetch(&mut self) -> bool {
        let Some((_, pieces)) = self.staged.waiting.front() else {
            return false;
        };
        let from = pieces.iter().map(|piece| piece.at).min().unwrap_or(0);
        let end = pieces.iter().map(Extent::log_end).max().unwrap_or(0);
        let count = (end - from).div_ceil(BAND_SECTORS_MAX) as u32;
        let most = self.surrogate.limits.load_buffers();
        let fits = 0 < count && count <= most;
        if fits && (self.staged.loading + count > most || !self.reserve_large(count)) {
            return false;
        }
        let (part, pieces) = self.staged.waiting.pop_front().expect("it was seen");
        if !fits {
            self.part_done(part, Ok(()));
            return true;
        }
        let bufs = (0..count).map(|_| self.buffers.take(Size::Large)).collect();
        self.staged.loading += count;
        let load = self.staged.loads.insert(Load {
            part,
            pieces,
            from,
            bufs,
            under_way: count,
            failed: false,
        });
        self.read_load(load, from..end);
        true
    }

    fn read_load(&mut self, load: u32, log: Range<u64>) {
        let bufs = self.load_of(load).bufs.clone();
        for (buf, at) in bufs
            .into_iter()
            .zip((log.start..).step_by(BAND_SECTORS_MAX as usize))
        {
            let sectors = BAND_SECTORS_MAX.min(log.end - at);
            let target = BufRef::new(buf, 0, (sectors * SECTOR_BYTES) as u32);
            let sector = self.log_sector(at);
            let job = self.jobs.list.insert(Job::Load(load));
            self.read(Site::Log, Owner::Job(job), sector, target);
        }
    }

    fn load_of(&mut self, load: u32) -> &mut Load {
        self.staged.loads.get_mut(load).expect("it is in flight")
    }

    pub(crate) fn load_read(&mut self, job: u32, load: u32, result: Result<(), RequestError>) {
        self.jobs.list.remove(job);
        let found = self.load_of(load);
        found.failed |= result.is_err();
        found.under_way -= 1;
        if found.under_way > 0 {
            return;
        }
        if !found.failed {
            for piece in core::mem::take(&mut found.pieces) {
                self.stage_piece(load, &piece);
            }
        }
        self.load_over(load);
    }

    /// Pages for this many sectors; none if there are too few.
    fn pages_for(&mut self, sectors: u32) -> Option<Vec<BufRef>> {
        let wanted = u64::from(sectors).div_ceil(PAGE_SECTORS) as usize;
        while self.staged.free.len() < wanted {
            if self.staged.bufs.len() as u32 >= self.surrogate.limits.parts_home {
                return None;
            }
            let buf = self.large_buffer()?;
            self.staged.add(buf);
        }
        let free = &mut self.staged.free;
        let pages = free.drain(free.len() - wanted..);
        Some(pages.rev().collect())
    }

    /// Copies a piece out of the range that was read, if there is memory for it.
    fn stage_piece(&mut self, load: u32, extent: &Extent) {
        let Some(pages) = self.pages_for(extent.sectors) else {
            return;
        };
        let bytes = extent.sectors * SECTOR_BYTES as u32;
        let (from, mut done) = (self.load_of(load).from, 0);
        while done < bytes {
            let target = run_of(&pages, done, bytes - done);
            let at = (extent.at - from) * SECTOR_BYTES + u64::from(done);
            let (index, skip) = (at / u64::from(LARGE_BYTES), at % u64::from(LARGE_BYTES));
            let buf = self.load_of(load).bufs[index as usize];
            let here = target.bytes.min(LARGE_BYTES - skip as u32);
            let source = BufRef::new(buf, skip as u32, here);
            self.load_of(load).under_way += 1;
            self.copy(Job::Stage(load), Some(source), target.part(0, here));
            done += here;
        }
        let piece = Piece {
            at: extent.at,
            sectors: extent.sectors,
            pages,
        };
        if let Some(old) = self.staged.pieces.insert(extent.home, piece) {
            self.staged.free.extend(old.pages);
        }
    }

    pub(crate) fn piece_staged(&mut self, job: u32, load: u32) {
        self.jobs.list.remove(job);
        self.load_of(load).under_way -= 1;
        self.load_over(load);
    }

    fn load_over(&mut self, load: u32) {
        if self.load_of(load).under_way > 0 {
            return;
        }
        let over = self.staged.loads.remove(load).expect("it was in flight");
        self.staged.loading -= over.bufs.len() as u32;
        for buf in over.bufs {
            self.buffers.release(buf);
        }
        self.part_done(over.part, Ok(()));
    }

    /// Frees the memory of pieces that are no longer needed.
    pub(crate) fn forget_staged(&mut self, home: Range<u64>, log: &Range<u64>) {
        if self.home().planted(Bug::StalePieceKept) {
            return;
        }
        let found = self.staged.pieces.range(home);
        let gone = found.filter(|(_, piece)| log.contains(&piece.at));
        let gone: Vec<u64> = gone.map(|(home, _)| *home).collect();
        for home in gone {
            let piece = self.staged.pieces.remove(&home).expect("it was seen");
            self.staged.free.extend(piece.pages);
        }
        if self.staged.pieces.is_empty() && self.staged.loads.is_empty() {
            self.staged.free.clear();
            for buf in core::mem::take(&mut self.staged.bufs) {
                self.buffers.release(buf);
            }
        }
    }

    /// Divides an extent into the parts that are in memory, and the parts that are not.
    pub(crate) fn sources_of(&self, extent: Extent) -> Vec<(Extent, Option<BufRef>)> {
        let stale = self.home().planted(Bug::StalePieceKept);
        let mut sources = Vec::new();
        let mut from = extent.home;
        while let Some(rest) = extent.within(from..extent.end()) {
            let (sectors, source) = self.staged.first_of(&rest, stale);
            from += u64::from(sectors);
            let part = rest.within(rest.home..from).expect("a sector or more");
            sources.push((part, source));
        }
        sources
    }
}
