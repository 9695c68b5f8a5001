//! The read cache of a served array: blocks that were read lately, answered from memory.
//!
//! What it holds is what the array's address space reads as, not what a member holds, so a failure or a
//! rebuild changes only what a miss would cost. It is clean: whatever changes bytes forgets the blocks first,
//! and a block that is read while something changes around it is not kept. Whether anything did is counted
//! for each chunk.
//!
//! Which block makes room is the affair of [`crate::cache`]; here frames have memory. A frame that makes room
//! while its memory is still being copied from leaves that memory behind, and takes a spare.

use crate::cache::{Cache, CacheConfig, Ties};
use crate::config::CacheLimits;
use crate::contract::{Buf, BufRef, SMALL_BYTES};
use crate::layout::Layout;
use crate::members::ops::BlockCopy;
use crate::roles::Roles;
use crate::units::{SECTOR_BYTES, Slot};
use alloc::vec;
use alloc::vec::Vec;

/// Sectors of a block: what is held or not held as a whole.
pub(super) const BLOCK_SECTORS: u64 = SMALL_BYTES as u64 / SECTOR_BYTES;
/// Entries of the table of chunks. Chunks whose numbers are equal modulo this share an entry.
const CHUNKS: usize = 1024;

/// One piece of memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    pub(super) buf: Buf,
    /// Copies under way, into it or out of it.
    pub(super) users: u32,
    /// The frame whose block it is for; none for a spare, or for one left behind.
    frame: Option<u32>,
    /// The block's bytes are there.
    pub(super) filled: bool,
}

/// What goes on in the chunks of one number modulo [`CHUNKS`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chunk {
    /// Requests that change it, from admission to reply.
    pub(super) writers: u32,
    /// When the last of these, or of the repairs, began or ended.
    changed: u64,
}

pub(crate) struct ReadCache {
    pub(super) cache: Cache,
    pub(super) memory: Vec<Memory>,
    /// The memory of each frame.
    of_frame: Vec<u32>,
    spare: Vec<u32>,
    chunks: Vec<Chunk>,
    chunk_sectors: u64,
    /// Counts changes.
    pub(super) clock: u64,
}

impl ReadCache {
    pub(super) fn new(
        limits: CacheLimits,
        slots: u16,
        chunk_sectors: u64,
        buffers: Vec<Buf>,
    ) -> ReadCache {
        let frames = limits.blocks;
        let memory = (0..).zip(buffers).map(|(index, buf)| Memory {
            buf,
            users: 0,
            frame: (index < frames).then_some(index),
            filled: false,
        });
        ReadCache {
            cache: Cache::new(CacheConfig {
                frames,
                stacks: slots,
                rule: limits.rule,
                ties: Ties::Oldest,
            }),
            memory: memory.collect(),
            of_frame: (0..frames).collect(),
            spare: (frames..limits.buffers()).collect(),
            chunks: vec![Chunk::default(); CHUNKS],
            chunk_sectors,
            clock: 0,
        }
    }

    /// The memory with a block's bytes.
    pub(super) fn held(&self, block: u64) -> Option<u32> {
        let memory = self.of_frame[self.cache.find(block)? as usize];
        self.memory[memory as usize].filled.then_some(memory)
    }

    /// The number of sectors from `lba` to the next cached block, at most `sectors`.
    pub(super) fn missing(&self, lba: u64, sectors: u64) -> u64 {
        let blocks = lba / BLOCK_SECTORS + 1..(lba + sectors).div_ceil(BLOCK_SECTORS);
        let next = blocks.into_iter().find(|&block| self.held(block).is_some());
        next.map_or(sectors, |block| block * BLOCK_SECTORS - lba)
    }

    /// Gives a block a frame and unused memory. `None`: no memory is unused, or the block has them already.
    pub(super) fn admit(&mut self, block: u64, slot: Slot) -> Option<u32> {
        // Spares end only with dozens of copies under way out of blocks that have made room meanwhile.
        if self.spare.is_empty() || self.cache.find(block).is_some() {
            return None;
        }
        let frame = self.cache.admit(block, slot.0).frame;
        let before = self.of_frame[frame as usize];
        if self.memory[before as usize].users > 0 {
            let spare = self.spare.pop().expect("checked above");
            self.memory[before as usize].frame = None;
            self.memory[spare as usize].frame = Some(frame);
            self.of_frame[frame as usize] = spare;
        }
        let memory = self.of_frame[frame as usize];
        self.memory[memory as usize].filled = false;
        Some(memory)
    }

    /// One copy from or into this memory has ended.
    pub(super) fn release(&mut self, memory: u32, way: BlockCopy) {
        let entry = &mut self.memory[memory as usize];
        entry.users -= 1;
        entry.filled |= way == BlockCopy::In;
        if entry.users == 0 && entry.frame.is_none() {
            self.spare.push(memory);
        }
    }

    fn forget(&mut self, lba: u64, sectors: u64) {
        let blocks = lba / BLOCK_SECTORS..(lba + sectors).div_ceil(BLOCK_SECTORS);
        self.cache.forget_all(blocks);
    }

    /// Does something to every chunk that has sectors of a range.
    pub(super) fn each_chunk(
        &mut self,
        lba: u64,
        sectors: u64,
        mut change: impl FnMut(&mut Chunk),
    ) {
        let first = lba / self.chunk_sectors;
        let count = (lba + sectors).div_ceil(self.chunk_sectors) - first;
        for chunk in 0..count.min(CHUNKS as u64) {
            change(&mut self.chunks[(first + chunk) as usize % CHUNKS]);
        }
    }

    /// The bytes of a range change: what is held of it is forgotten, and reads that were asked for before
    /// keep nothing.
    pub(super) fn changed(&mut self, lba: u64, sectors: u64) {
        self.forget(lba, sectors);
        self.stamp(lba, sectors);
    }

    /// Reads that were asked for before keep nothing of a range.
    pub(super) fn stamp(&mut self, lba: u64, sectors: u64) {
        self.clock += 1;
        let now = self.clock;
        self.each_chunk(lba, sectors, |chunk| chunk.changed = now);
    }

    /// Whether nothing has changed the chunk of `lba` since a request that was admitted at `begun`.
    pub(super) fn unchanged(&self, lba: u64, begun: u64) -> bool {
        let chunk = self.chunks[(lba / self.chunk_sectors) as usize % CHUNKS];
        chunk.writers == 0 && chunk.changed <= begun
    }
}

/// Blocks that have sectors of a range.
pub(crate) fn blocks_in(lba: u64, sectors: u64) -> u64 {
    (lba + sectors).div_ceil(BLOCK_SECTORS) - lba / BLOCK_SECTORS
}

/// The first sectors of the blocks that lie wholly in what was read from a sector on.
pub(super) fn whole_blocks(lba: u64, read: BufRef) -> impl Iterator<Item = u64> {
    let end = lba + u64::from(read.bytes) / SECTOR_BYTES;
    let blocks = lba.div_ceil(BLOCK_SECTORS)..end / BLOCK_SECTORS;
    blocks.map(|block| block * BLOCK_SECTORS)
}

/// The sectors that a range of bytes touches.
pub(super) fn touched(offset: u64, bytes: u64) -> (u64, u64) {
    let lba = offset / SECTOR_BYTES;
    (lba, (offset + bytes).div_ceil(SECTOR_BYTES) - lba)
}

/// Sets what a miss of each slot's blocks costs.
pub(crate) fn price(cache: &mut Cache, layout: &Layout, roles: &Roles) {
    let gone = |slot: Slot, partition| roles.at(slot, partition).home.is_none();
    for slot in (0..roles.slots() as u16).map(Slot) {
        // Data that cannot be had at all, and a slot without data, are not dear.
        let reads = layout.reads_without_parts(slot, gone).unwrap_or(1);
        cache.set_penalty(slot.0, reads);
    }
}
