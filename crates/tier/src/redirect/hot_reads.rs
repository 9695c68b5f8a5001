//! Puts data that clients read from the main set into the log set while redundancy is being restored: WorkOut
//! puts data there that is read again, VDF all data that is read.
//!
//! Such a read takes a moment longer: its bytes are copied out of the request's memory before the reply.

use super::Redirects;
use crate::config::Redirect;
use crate::overlay::{CopyTag, Overlay, Pressure, Site};
use crate::works::{CopyOut, Job};
use alloc::vec::Vec;
use core::ops::Range;
use restripe_array::cache::{Cache, CacheConfig, Rule, Ties};
use restripe_array::parts::Size;
use restripe_array::{Buf, BufRef, PAGE_SECTORS, Request, RequestError, RequestTag, SECTOR_BYTES};

/// WorkOut: the number of recently read blocks that are recorded. A second read makes a block popular.
const READ_LATELY: u32 = 1 << 16;
/// VDF: the largest number of blocks that the log set holds.
const HELD_MAX: u32 = 1 << 22;

/// A part of a read that goes into the log set: its clean copy has begun.
#[derive(Clone, Copy, Debug)]
struct Part {
    copy: CopyTag,
    home: u64,
    /// The bytes in the request's memory.
    buf: BufRef,
}

struct Read {
    tag: RequestTag,
    parts: Vec<Part>,
    /// Copies out of the request's memory that are in flight.
    copying: u32,
}

#[derive(Default)]
pub(crate) struct ReadCopies {
    reads: Vec<Read>,
    /// WorkOut: the blocks that were read recently. VDF: the blocks that the log set holds.
    blocks: Option<Cache>,
}

impl ReadCopies {
    pub(crate) fn is_idle(&self) -> bool {
        self.reads.is_empty()
    }
}

fn blocks_of(lba: u64, sectors: u64) -> Range<u64> {
    lba / PAGE_SECTORS..(lba + sectors).div_ceil(PAGE_SECTORS)
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

/// Drops the clean copies of the segment that has this sector of the main set.
fn drop_around(overlay: &mut Overlay, held: &mut Cache, lba: u64) -> bool {
    let Some(segment) = overlay.clean_segment(lba..lba + PAGE_SECTORS) else {
        return false;
    };
    overlay.drop_clean_of(segment, |piece| {
        held.forget_all(blocks_of(piece.home, u64::from(piece.sectors)));
    })
}

/// The source of a clean copy's bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// A window of a task.
    Window(u32),
    /// The result of a client's read of these sectors of the main set, in a buffer of the tier.
    Read { buf: Buf, lba: u64, sectors: u64 },
}

pub(crate) struct HotReads {
    pub(crate) below: Redirects,
    /// Clean copies that are being written into the log.
    pub(crate) clean_copies: Vec<(CopyTag, Source)>,
    pub(crate) read_parts: ReadCopies,
}

floor!(HotReads over Redirects { clean_copies, read_parts });

impl HotReads {
    /// Starts when a task starts, and ends when it ends.
    pub(crate) fn choose_read_copies(&mut self, restoring: bool) {
        let overlay = self.overlay();
        let home = &self.sets[Site::Home];
        let held = (overlay.log_sectors() / PAGE_SECTORS).clamp(1, u64::from(HELD_MAX));
        let config = |frames, rule| CacheConfig {
            frames,
            stacks: home.geometry().slots,
            rule,
            ties: Ties::Newest,
        };
        self.read_parts.blocks = match self.surrogate.redirect {
            Redirect::WorkOut if restoring => Some(Cache::new(config(READ_LATELY, Rule::Lru))),
            Redirect::Vdf if restoring => {
                let mut cache = Cache::new(config(held as u32, Rule::VdfLru));
                home.price_cache(&mut cache);
                Some(cache)
            }
            _ => None,
        };
    }

    /// A client's read is about to start: begins clean copies of its parts that go into the log set.
    pub(crate) fn begin_read_copies(&mut self, request: &Request) {
        let (lba, sectors) = (request.offset / SECTOR_BYTES, request.bytes / SECTOR_BYTES);
        let redirect = self.surrogate.redirect;
        let copies = match (&mut self.read_parts.blocks, redirect) {
            (Some(seen), Redirect::WorkOut) => is_popular(seen, blocks_of(lba, sectors)),
            (Some(held), Redirect::Vdf) => {
                for block in blocks_of(lba, sectors) {
                    held.ask(block);
                }
                true
            }
            _ => false,
        };
        let overlay = self.overlay_mut();
        if !copies || overlay.pressure() >= Pressure::Reclaim {
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
            self.read_parts.reads.push(Read {
                tag: request.tag,
                parts,
                copying: 0,
            });
        }
    }

    /// The overlay has answered a request. A read whose parts go into the log set is answered after they were
    /// copied. Returns false if the request may be answered now.
    pub(crate) fn holds_reply(
        &mut self,
        tag: RequestTag,
        result: Result<(), RequestError>,
    ) -> bool {
        let reads = &mut self.read_parts.reads;
        let Some(index) = reads.iter().position(|read| read.tag == tag) else {
            return false;
        };
        for part in core::mem::take(&mut reads[index].parts) {
            if result.is_ok() && self.copy_out(part.copy, part.home, part.buf, tag) {
                self.read_parts.reads[index].copying += 1;
            } else {
                self.overlay_mut().abandon_copy(part.copy);
            }
        }
        let waits = self.read_parts.reads[index].copying > 0;
        if !waits {
            self.read_parts.reads.swap_remove(index);
        }
        waits
    }

    /// Bytes of a read were copied out of its memory. The read is answered after the last of them.
    fn copied_out(&mut self, tag: RequestTag) {
        let reads = &mut self.read_parts.reads;
        let found = reads.iter().position(|read| read.tag == tag);
        let index = found.expect("a read waits for its copies");
        reads[index].copying -= 1;
        if reads[index].copying == 0 {
            reads.swap_remove(index);
            self.answer(tag, Ok(()));
        }
    }

    /// The log has a clean copy of these sectors.
    pub(crate) fn note_copied(&mut self, lba: u64, sectors: u64) {
        if self.surrogate.redirect != Redirect::Vdf {
            return;
        }
        let HotReads {
            below, read_parts, ..
        } = self;
        let Some(held) = &mut read_parts.blocks else {
            return;
        };
        for block in blocks_of(lba, sectors) {
            if held.find(block).is_none() {
                held.admit(block, below.home().slot_at(block * PAGE_SECTORS).0);
            }
        }
    }

    /// Makes room among the clean copies, a segment at a time. Returns false if there are none. VDF evicts a
    /// block, and drops all clean copies of its segment.
    pub(crate) fn drop_clean(&mut self) -> bool {
        let HotReads {
            below, read_parts, ..
        } = self;
        let redirect = below.surrogate.redirect;
        let overlay = below.overlay_mut();
        if redirect == Redirect::Vdf
            && let Some(held) = &mut read_parts.blocks
        {
            while let Some(block) = held.evict() {
                if drop_around(overlay, held, block * PAGE_SECTORS) {
                    return true;
                }
            }
        }
        overlay.drop_clean(|_| {})
    }

    /// Copies a part of a read out of the request's memory. Returns false if there is no buffer.
    fn copy_out(&mut self, copy: CopyTag, home: u64, source: BufRef, read: RequestTag) -> bool {
        let Some(buf) = self.buffers.take_free(Size::Large) else {
            return false;
        };
        let target = BufRef::new(buf, 0, source.bytes);
        let out = CopyOut {
            copy,
            home,
            target,
            read,
        };
        self.copy(Job::CopyOut(out), Some(source), target);
        true
    }

    pub(crate) fn append_read(&mut self, job: u32, out: CopyOut) {
        self.jobs.list.remove(job);
        let sectors = u64::from(out.target.bytes) / SECTOR_BYTES;
        let source = Source::Read {
            buf: out.target.buf,
            lba: out.home,
            sectors,
        };
        self.clean_copies.push((out.copy, source));
        let overlay = self.overlay_mut();
        overlay.append_copy(out.copy, out.target);
        self.copied_out(out.read);
    }
}
