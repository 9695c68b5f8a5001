//! The read cache of a served array: blocks that were read lately, answered from memory.
//!
//! What it holds is what the array's address space reads as, not what a member holds, so a failure or a rebuild changes
//! only what a miss would cost. It is clean: whatever changes bytes forgets the blocks first, and a block that is read
//! while something changes around it is not kept. Whether anything did is counted for each chunk.
//!
//! Where an overlay stands between users and the array (`pair`), the cache stands above that: it is asked, filled and told of
//! changes there, and what the overlay asks of the array passes by it.
//!
//! Which block makes room is the affair of [`crate::cache`]; here frames have memory. A frame that makes room while its
//! memory is still being copied from leaves that memory behind, and takes a spare.

use super::Clients;
use super::requests::Pending;
use crate::cache::{Cache, CacheConfig, Ties};
use crate::config::CacheLimits;
use crate::contract::Bug;
use crate::contract::{Buf, BufRef, SMALL_BYTES};
use crate::layout::{Geometry, Layout, Level};
use crate::members::ops::{BlockCopy, Owner};
use crate::standing::Standings;
use crate::units::{CELLS_MAX, Row, SECTOR_BYTES, Slot};
use alloc::vec;
use alloc::vec::Vec;

/// Sectors of a block: what is held or not held as a whole.
const BLOCK_SECTORS: u64 = SMALL_BYTES as u64 / SECTOR_BYTES;
/// Chunks are told apart by their number modulo this.
const CHUNKS: usize = 1024;

/// One piece of memory.
#[derive(Clone, Copy, Debug)]
struct Memory {
    buf: Buf,
    /// Copies under way, into it or out of it.
    users: u32,
    /// The frame whose block it is for; none for a spare, or for one left behind.
    frame: Option<u32>,
    /// The block's bytes are there.
    filled: bool,
}

/// What goes on in the chunks of one number modulo [`CHUNKS`].
#[derive(Clone, Copy, Debug, Default)]
struct Chunk {
    /// Requests that change it, from admission to reply.
    writers: u32,
    /// When the last of these, or of the repairs, began or ended.
    changed: u64,
}

pub(crate) struct ReadCache {
    cache: Cache,
    memory: Vec<Memory>,
    /// The memory of each frame.
    of_frame: Vec<u32>,
    spare: Vec<u32>,
    chunks: Vec<Chunk>,
    chunk_sectors: u64,
    /// Counts changes.
    clock: u64,
}

impl ReadCache {
    fn new(limits: CacheLimits, slots: u16, chunk_sectors: u64, buffers: Vec<Buf>) -> ReadCache {
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
    fn held(&self, block: u64) -> Option<u32> {
        let memory = self.of_frame[self.cache.find(block)? as usize];
        self.memory[memory as usize].filled.then_some(memory)
    }

    /// Sectors from `lba` on, of at most so many, up to the next block that is held.
    fn missing(&self, lba: u64, sectors: u64) -> u64 {
        let blocks = lba / BLOCK_SECTORS + 1..(lba + sectors).div_ceil(BLOCK_SECTORS);
        let next = blocks.into_iter().find(|&block| self.held(block).is_some());
        next.map_or(sectors, |block| block * BLOCK_SECTORS - lba)
    }

    /// Gives a block a frame, and memory that nobody uses; `None` if there is none, or if it has them already.
    fn admit(&mut self, block: u64, slot: Slot) -> Option<u32> {
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
    fn release(&mut self, memory: u32, way: BlockCopy) {
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
    fn each_chunk(&mut self, lba: u64, sectors: u64, mut change: impl FnMut(&mut Chunk)) {
        let first = lba / self.chunk_sectors;
        let count = (lba + sectors).div_ceil(self.chunk_sectors) - first;
        for chunk in 0..count.min(CHUNKS as u64) {
            change(&mut self.chunks[(first + chunk) as usize % CHUNKS]);
        }
    }

    /// The bytes of a range change: what is held of it is forgotten, and reads that were asked for before keep nothing.
    fn changed(&mut self, lba: u64, sectors: u64) {
        self.forget(lba, sectors);
        self.stamp(lba, sectors);
    }

    /// Reads that were asked for before keep nothing of a range.
    fn stamp(&mut self, lba: u64, sectors: u64) {
        self.clock += 1;
        let now = self.clock;
        self.each_chunk(lba, sectors, |chunk| chunk.changed = now);
    }

    /// Whether nothing has changed the chunk of `lba` since a request that was admitted at `begun`.
    fn unchanged(&self, lba: u64, begun: u64) -> bool {
        let chunk = self.chunks[(lba / self.chunk_sectors) as usize % CHUNKS];
        chunk.writers == 0 && chunk.changed <= begun
    }
}

/// Blocks that have sectors of a range.
pub(crate) fn blocks_in(lba: u64, sectors: u64) -> u64 {
    (lba + sectors).div_ceil(BLOCK_SECTORS) - lba / BLOCK_SECTORS
}

/// The first sectors of the blocks that lie wholly in what was read from a sector on.
fn whole_blocks(lba: u64, read: BufRef) -> impl Iterator<Item = u64> {
    let end = lba + u64::from(read.bytes) / SECTOR_BYTES;
    let blocks = lba.div_ceil(BLOCK_SECTORS)..end / BLOCK_SECTORS;
    blocks.map(|block| block * BLOCK_SECTORS)
}

/// The sectors that a range of bytes touches.
fn touched(offset: u64, bytes: u64) -> (u64, u64) {
    let lba = offset / SECTOR_BYTES;
    (lba, (offset + bytes).div_ceil(SECTOR_BYTES) - lba)
}

/// Sets what a miss of each slot's blocks costs.
pub(crate) fn price(cache: &mut Cache, layout: &Layout, standing: &Standings) {
    let gone = |slot: Slot, partition| standing.at(slot, partition).home.is_none();
    for slot in (0..standing.slots() as u16).map(Slot) {
        // Data that cannot be had at all, and a slot without data, are not dear.
        let reads = layout.reads_without_parts(slot, gone).unwrap_or(1);
        cache.set_penalty(slot.0, reads);
    }
}

impl Clients {
    /// Takes the memory for the cache, if there is to be one: the array's geometry is known by now.
    pub(crate) fn open_cache(&mut self) {
        // What is dealt anew changes its places under a cache.
        let Some(limits) = self.config.limits.cache.filter(|_| !self.is_reshaping()) else {
            return;
        };
        let buffers = self.buffers.lend(limits.buffers());
        let Geometry { level, slots, .. } = self.superblock.geometry;
        let slots = match level {
            // It may grow.
            Level::Raid0 | Level::Raid4 => CELLS_MAX as u16,
            _ => slots,
        };
        let chunk_sectors = self.layout.chunk_sectors();
        self.read_cache = Some(ReadCache::new(limits, slots, chunk_sectors, buffers));
    }

    /// What the changes so far are known by, for [`Clients::keep_blocks`].
    pub(crate) fn cache_clock(&self) -> u64 {
        self.read_cache.as_ref().map_or(0, |cache| cache.clock)
    }

    // -------------------------------------------------------------------------------------------------- requests

    /// A request that changes bytes is admitted.
    pub fn cache_change_begins(&mut self, offset: u64, bytes: u64) {
        let skipped = self.planted(Bug::CacheKeepsOverwritten);
        if let Some(cache) = self.read_cache.as_mut().filter(|_| !skipped) {
            let (lba, sectors) = touched(offset, bytes);
            cache.changed(lba, sectors);
            cache.each_chunk(lba, sectors, |chunk| chunk.writers += 1);
        }
    }

    /// And is about to be replied to.
    pub fn cache_change_ends(&mut self, offset: u64, bytes: u64) {
        let skipped = self.planted(Bug::CacheKeepsOverwritten);
        if let Some(cache) = self.read_cache.as_mut().filter(|_| !skipped) {
            let (lba, sectors) = touched(offset, bytes);
            // Nothing of it was kept meanwhile: there was a writer.
            cache.stamp(lba, sectors);
            cache.each_chunk(lba, sectors, |chunk| chunk.writers -= 1);
        }
    }

    /// Answers the next bytes of a read from memory, as far as one block goes. Returns their number.
    pub(crate) fn start_cached_part(&mut self, id: u32, pending: &Pending) -> Option<u64> {
        let above = self.ties.cached_above;
        let cache = self.read_cache.as_mut().filter(|_| !above)?;
        let offset = pending.request.offset + pending.cut;
        let block = offset / u64::from(SMALL_BYTES);
        let memory = cache.held(block)?;
        cache.cache.ask(block);
        let within = offset % u64::from(SMALL_BYTES);
        let left = pending.request.bytes - pending.cut;
        let bytes = left.min(u64::from(SMALL_BYTES) - within);
        let target = pending.request.buf.part(pending.cut as u32, bytes as u32);
        self.counters.blocks_asked += 1;
        self.counters.blocks_cached += 1;
        self.copy_block(id, memory, BlockCopy::Out, within as u32, target);
        Some(bytes)
    }

    /// How much of a read's next part, whose first block is not held, is not held either.
    pub(crate) fn uncached(&self, lba: u64, sectors: u64) -> u64 {
        let cache = self.read_cache.as_ref().filter(|_| !self.ties.cached_above);
        cache.map_or(sectors, |cache| cache.missing(lba, sectors))
    }

    /// Part of a read has been read: keeps its whole blocks, if nothing changed there since the request was admitted.
    pub(crate) fn keep_blocks(&mut self, request: u32, lba: u64, target: BufRef) {
        if self.read_cache.is_none() || self.ties.cached_above {
            return;
        }
        let begun = self.requests.get(request).begun;
        for first in whole_blocks(lba, target) {
            if !self.ops.has_spare() {
                return;
            }
            if let Some(memory) = self.admit_block(first, begun) {
                let read = target.part(((first - lba) * SECTOR_BYTES) as u32, SMALL_BYTES);
                self.copy_block(request, memory, BlockCopy::In, 0, read);
            }
        }
    }

    /// Memory for the block that begins at a sector, if nothing changed there since.
    fn admit_block(&mut self, first: u64, begun: u64) -> Option<u32> {
        let place = self.layout.place(first);
        let map = self.row_map(place.row);
        // What a growth added and nobody wrote stands nowhere yet: a log may have it.
        let cell = Some(usize::from(place.data)).filter(|data| *data < usize::from(map.data))?;
        let slot = map.cells[cell].slot;
        let rebuilt = self.tasks.filled(slot, place.row);
        let cache = self.read_cache.as_mut()?;
        if !cache.unchanged(first, begun) {
            return None;
        }
        let block = first / BLOCK_SECTORS;
        let memory = cache.admit(block, slot)?;
        if rebuilt {
            cache.cache.rebuilt(block);
        }
        Some(memory)
    }

    /// One more part of a request: a copy between its buffer and the bytes of a block from `within` on.
    fn copy_block(&mut self, request: u32, memory: u32, way: BlockCopy, within: u32, user: BufRef) {
        self.requests.begin_part(request);
        let cache = self.read_cache.as_mut().expect("its memory is copied");
        let entry = &mut cache.memory[memory as usize];
        entry.users += 1;
        let held = BufRef::new(entry.buf, within, user.bytes);
        let (source, target) = match way {
            BlockCopy::Out => (held, user),
            BlockCopy::In => (user, held),
        };
        let owner = Owner::CacheCopy {
            request,
            memory,
            way,
        };
        self.copy(owner, Some(source), target);
    }

    pub(crate) fn block_copied(&mut self, request: u32, memory: u32, way: BlockCopy) {
        self.cached_used(memory, way);
        self.request_part_done(request, Ok(()));
    }

    // ------------------------------------------------------------------------------- where an overlay stands between

    /// The cache's clock, if there is a cache, and its users are those of an overlay above.
    pub fn cache_above(&self) -> Option<u64> {
        let cache = self.read_cache.as_ref().filter(|_| self.ties.cached_above);
        cache.map(|cache| cache.clock)
    }

    /// How many of these sectors are alike from the first on: of one block that is held, with its memory, or not held.
    pub fn cached_run(&self, lba: u64, sectors: u64) -> (u64, Option<u32>) {
        let Some(cache) = self.read_cache.as_ref() else {
            return (sectors, None);
        };
        match cache.held(lba / BLOCK_SECTORS) {
            Some(memory) => (
                sectors.min(BLOCK_SECTORS - lba % BLOCK_SECTORS),
                Some(memory),
            ),
            None => (cache.missing(lba, sectors), None),
        }
    }

    /// The memory of a sector and those behind it, which is going to be copied from or to.
    pub fn use_cached(&mut self, lba: u64, memory: u32, way: BlockCopy, bytes: u32) -> BufRef {
        let cache = self.read_cache.as_mut().expect("its memory is copied");
        if way == BlockCopy::Out {
            cache.cache.ask(lba / BLOCK_SECTORS);
            self.below.counters.blocks_asked += 1;
            self.below.counters.blocks_cached += 1;
        }
        let entry = &mut cache.memory[memory as usize];
        entry.users += 1;
        let within = (lba % BLOCK_SECTORS * SECTOR_BYTES) as u32;
        BufRef::new(entry.buf, within, bytes)
    }

    pub fn cached_used(&mut self, memory: u32, way: BlockCopy) {
        let cache = self.read_cache.as_mut().expect("its memory was copied");
        cache.release(memory, way);
    }

    /// Finds memory for the whole blocks of what was read, which is going to be copied there: what, and where.
    pub fn admit_blocks(
        &mut self,
        lba: u64,
        read: BufRef,
        begun: u64,
        into: &mut Vec<(BufRef, u32, BufRef)>,
    ) {
        for first in whole_blocks(lba, read) {
            if let Some(memory) = self.admit_block(first, begun) {
                let at = ((first - lba) * SECTOR_BYTES) as u32;
                // A block that makes room for the next one leaves it its memory, unless that is in use.
                let held = self.use_cached(first, memory, BlockCopy::In, SMALL_BYTES);
                into.push((read.part(at, SMALL_BYTES), memory, held));
            }
        }
    }

    /// Users' sectors are going to be read that the cache has not, and not here: nobody else counts them.
    pub fn count_elsewhere(&mut self, lba: u64, sectors: u64) {
        let blocks = blocks_in(lba, sectors);
        self.counters.blocks_asked += blocks;
        self.counters.blocks_fetched += blocks;
    }

    // ------------------------------------------------------------------------------------------ what a miss costs

    /// Tells the cache what misses cost now that another member stands somewhere, or none. What a rebuild has done is
    /// told block by block.
    pub(crate) fn price_misses(&mut self) {
        let Some(cache) = &mut self.read_cache else {
            return;
        };
        price(&mut cache.cache, &self.below.layout, &self.below.standing);
    }

    /// A row's cell was rebuilt: misses of its blocks cost one read again.
    pub(crate) fn cache_rebuilt(&mut self, slot: Slot, row: Row) {
        let map = self.row_map(row);
        // The member may have failed while its row was being filled.
        let filled = self.read_cache.is_some() && self.homes(slot, row).write[1].is_some();
        let Some(data) = map.cell_on(slot).filter(|&cell| filled && cell < map.data) else {
            return;
        };
        let first = self.layout.lba(row, data, 0) / BLOCK_SECTORS;
        let blocks = self.layout.chunk_sectors() / BLOCK_SECTORS;
        if let Some(cache) = &mut self.read_cache {
            (first..first + blocks).for_each(|block| cache.cache.rebuilt(block));
        }
    }

    /// What was rebuilt of a slot is gone again.
    pub(crate) fn cache_unrebuilt(&mut self, slot: usize) {
        if let Some(cache) = &mut self.read_cache {
            cache.cache.settle(slot as u16);
        }
    }

    // --------------------------------------------------------------------------------------------------- repairs

    /// Sectors are lost: they read as errors from now on, also those that are held.
    pub(crate) fn cache_lost(&mut self, lba: u64, sectors: u64) {
        if let Some(cache) = &mut self.read_cache {
            cache.changed(lba, sectors);
        }
    }

    /// What was read so far may read otherwise.
    pub fn cache_forgets(&mut self) {
        let sectors = self.layout.size_sectors();
        self.cache_lost(0, sectors);
    }

    /// A member that served is gone. While copies may differ, others may read otherwise than what was read from it.
    pub(crate) fn cache_loses_copies(&mut self) {
        let differ = !self.layout.parity() && self.tasks.resync_owes().is_some();
        let sectors = self.layout.size_sectors();
        if let Some(cache) = self.read_cache.as_mut().filter(|_| differ) {
            cache.changed(0, sectors);
        }
    }
}
