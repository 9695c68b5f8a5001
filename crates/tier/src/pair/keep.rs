//! What users read from home while redundancy is being restored is kept in the surrogate: WorkOut keeps what is read again,
//! VDF keeps whatever is read.
//!
//! Who asked waits a moment longer for such a read: its bytes are copied out of the request's memory before the reply.

use super::{Pair, Redirect};
use crate::overlay::{CopyTag, Overlay, Piece, Pressure, Site};
use alloc::vec::Vec;
use core::ops::Range;
use restripe_array::cache::{Cache, CacheConfig, Rule, Ties};
use restripe_array::{
    BufRef, Halt, PAGE_SECTORS, Request, RequestError, RequestOp, RequestTag, SECTOR_BYTES,
};

/// WorkOut: blocks that were read lately, of which a second read makes popular.
const READ_LATELY: u32 = 1 << 16;
/// VDF: blocks that are held at most.
const HELD_MAX: u32 = 1 << 22;

/// Part of a read that is to be kept: a copy was begun.
#[derive(Clone, Copy, Debug)]
struct Part {
    copy: CopyTag,
    home: u64,
    /// In the request's memory.
    buf: BufRef,
}

struct Read {
    tag: RequestTag,
    parts: Vec<Part>,
    /// Copies out of its memory that are under way.
    copying: u32,
}

#[derive(Default)]
pub(super) struct Keeping {
    reads: Vec<Read>,
    /// WorkOut: what was read lately. VDF: what is held.
    blocks: Option<Cache>,
}

impl Keeping {
    pub(super) fn is_idle(&self) -> bool {
        self.reads.is_empty()
    }
}

fn blocks_of(lba: u64, sectors: u64) -> Range<u64> {
    lba / PAGE_SECTORS..(lba + sectors).div_ceil(PAGE_SECTORS)
}

impl Pair {
    /// Begins with a task, and ends with it.
    pub(super) fn choose_keeping(&mut self, restoring: bool) {
        let overlay = self.overlay.as_ref().expect("a serving pair has one");
        let home = &self.sets[Site::Home];
        let held = (overlay.log_sectors() / PAGE_SECTORS).clamp(1, u64::from(HELD_MAX));
        let config = |frames, rule| CacheConfig {
            frames,
            stacks: home.geometry().slots,
            rule,
            ties: Ties::Newest,
        };
        self.keeping.blocks = match self.policy.redirect() {
            Redirect::WorkOut if restoring => Some(Cache::new(config(READ_LATELY, Rule::Lru))),
            Redirect::Vdf if restoring => {
                let mut cache = Cache::new(config(held as u32, Rule::VdfLru));
                home.price_cache(&mut cache);
                Some(cache)
            }
            _ => None,
        };
    }

    /// A user's read is going to begin: copies are begun of what is to be kept of it.
    pub(super) fn begin_keeping(&mut self, request: &Request) {
        let (lba, sectors) = (request.offset / SECTOR_BYTES, request.bytes / SECTOR_BYTES);
        let keeps = match (&mut self.keeping.blocks, self.policy.redirect()) {
            (Some(seen), Redirect::WorkOut) => is_popular(seen, blocks_of(lba, sectors)),
            (Some(held), Redirect::Vdf) => {
                for block in blocks_of(lba, sectors) {
                    held.ask(block);
                }
                true
            }
            _ => false,
        };
        let overlay = self.overlay.as_mut().expect("a serving pair has one");
        if !keeps || overlay.pressure() >= Pressure::Reclaim {
            return;
        }
        let mut parts = Vec::new();
        for (home, sectors) in overlay.holes(lba..lba + sectors) {
            if let Some(copy) = overlay.begin_copy(home, sectors) {
                let offset = ((home - lba) * SECTOR_BYTES) as u32;
                let buf = request.buf.part(offset, sectors * SECTOR_BYTES as u32);
                parts.push(Part { copy, home, buf });
            }
        }
        if !parts.is_empty() {
            self.keeping.reads.push(Read {
                tag: request.tag,
                parts,
                copying: 0,
            });
        }
    }

    /// The overlay has answered a user.
    pub(super) fn overlaid(&mut self, tag: RequestTag, result: Result<(), RequestError>) {
        let reads = &mut self.keeping.reads;
        let Some(index) = reads.iter().position(|read| read.tag == tag) else {
            return self.answer(tag, result);
        };
        for part in core::mem::take(&mut reads[index].parts) {
            if result.is_ok() && self.copy_out(part.copy, part.home, part.buf, tag) {
                self.keeping.reads[index].copying += 1;
            } else {
                let overlay = self.overlay.as_mut().expect("it answers");
                overlay.abandon_copy(part.copy);
            }
        }
        if self.keeping.reads[index].copying == 0 {
            self.keeping.reads.swap_remove(index);
            self.answer(tag, result);
        }
    }

    /// Bytes of a read were copied out of its memory: after the last ones it is answered.
    pub(super) fn copied_out(&mut self, tag: RequestTag) {
        let reads = &mut self.keeping.reads;
        let found = reads.iter().position(|read| read.tag == tag);
        let index = found.expect("a read waits for its copies");
        reads[index].copying -= 1;
        if reads[index].copying == 0 {
            reads.swap_remove(index);
            self.answer(tag, Ok(()));
        }
    }

    /// Answers a user whose request went through the overlay.
    fn answer(&mut self, tag: RequestTag, result: Result<(), RequestError>) {
        let user = self.users.end(tag);
        self.revive.refused_write |= user.op != RequestOp::Read
            && self.log_has_no_space()
            && matches!(
                result,
                Err(RequestError::Unavailable | RequestError::NoSpace)
            );
        let home = &mut self.sets[Site::Home];
        home.note_latency(user.op, self.now.since(user.begun));
        if user.op.changes() {
            home.cache_change_ends(user.offset, user.bytes);
        }
        self.reply(
            user.tag,
            result.map_err(|error| self.as_writer(user.op, error)),
        );
    }

    /// A write that fails because the log has no space gets that error.
    fn as_writer(&self, op: RequestOp, error: RequestError) -> RequestError {
        match error {
            RequestError::Unavailable if op != RequestOp::Read && self.log_has_no_space() => {
                RequestError::NoSpace
            }
            error => error,
        }
    }

    pub(super) fn log_has_no_space(&self) -> bool {
        let broken = self.overlay.as_ref().is_some_and(Overlay::is_broken);
        let full = self.log().full_members().next().is_some();
        let no_space = self.log().halt() == Some(Halt::NoSpace) || !self.log().halted() && full;
        (broken || self.lacks_room()) && no_space
    }

    /// The log has a copy of what was read there.
    pub(super) fn kept(&mut self, lba: u64, sectors: u64) {
        if self.policy.redirect() != Redirect::Vdf {
            return;
        }
        let home = &self.sets[Site::Home];
        let Some(held) = &mut self.keeping.blocks else {
            return;
        };
        for block in blocks_of(lba, sectors) {
            if held.find(block).is_none() {
                held.admit(block, home.slot_at(block * PAGE_SECTORS).0);
            }
        }
    }

    /// Makes room among the clean copies, a segment at a time; false if there are none. VDF chooses by the block that its
    /// rule gives up: what lies in one segment goes together.
    pub(super) fn drop_clean(&mut self) -> bool {
        let overlay = self.overlay.as_mut().expect("a serving pair has one");
        if self.policy.redirect() == Redirect::Vdf
            && let Some(held) = &mut self.keeping.blocks
        {
            while let Some(block) = held.evict() {
                if drop_around(overlay, held, block * PAGE_SECTORS) {
                    return true;
                }
            }
        }
        overlay.drop_clean(|_| {})
    }
}

fn is_popular(seen: &mut Cache, blocks: Range<u64>) -> bool {
    let mut popular = true;
    for block in blocks {
        if seen.ask(block).is_none() {
            seen.admit(block, 0);
            popular = false;
        }
    }
    popular
}

/// Drops what lies in one segment with the clean copy of a sector of home.
fn drop_around(overlay: &mut Overlay, held: &mut Cache, lba: u64) -> bool {
    let Some(segment) = overlay.clean_segment(lba..lba + PAGE_SECTORS) else {
        return false;
    };
    overlay.drop_clean_of(segment, |piece| {
        held.forget_all(blocks_of(piece.home, u64::from(piece.sectors)));
    })
}

impl Overlay {
    /// What the log does not have of a range, in pieces that fit a record.
    pub(super) fn holes(&self, range: Range<u64>) -> Vec<(u64, u32)> {
        let longest = self.record_sectors();
        let mut holes = Vec::new();
        for piece in self.map().lookup(range) {
            let Piece::Hole { home, sectors } = piece else {
                continue;
            };
            for lba in (home..home + sectors).step_by(longest as usize) {
                let left = home + sectors - lba;
                holes.push((lba, left.min(u64::from(longest)) as u32));
            }
        }
        holes
    }
}
