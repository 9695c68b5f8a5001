//! What the read cache answers, takes up and forgets as requests, repairs and failures go by.
//!
//! Where a tier stands between users and the set, it asks and fills the cache, and reports the changes. What
//! the tier asks of the set passes by the cache.

use super::read_cache::{BLOCK_SECTORS, ReadCache, blocks_in, price, touched, whole_blocks};
use super::{Clients, Pending};
use crate::contract::{BufRef, Bug, SMALL_BYTES};
use crate::layout::{Geometry, Level};
use crate::members::ops::{BlockCopy, Owner};
use crate::units::{CELLS_MAX, Row, SECTOR_BYTES, Slot};
use alloc::vec::Vec;

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

    // ---------------------------------------------------------------------------------------------- requests

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
        let (offset, left) = pending.uncut();
        let block = offset / u64::from(SMALL_BYTES);
        let memory = cache.held(block)?;
        cache.cache.ask(block);
        let within = offset % u64::from(SMALL_BYTES);
        let bytes = left.min(u64::from(SMALL_BYTES) - within);
        let target = pending.buffer(bytes);
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

    /// Part of a read has been read: keeps its whole blocks, if nothing changed there since the request was
    /// admitted.
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
        // A cell that a growth added and that was never written has no place in the set yet: a log may have it.
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
        let owner = Owner::CacheCopy(request, memory, way);
        self.copy(owner, Some(source), target);
    }

    pub(crate) fn block_copied(&mut self, request: u32, memory: u32, way: BlockCopy) {
        self.cached_used(memory, way);
        self.request_part_done(request, Ok(()));
    }

    // ----------------------------------------------------------------------- where an overlay stands between

    /// The cache's clock, if there is a cache, and its users are those of an overlay above.
    pub fn cache_above(&self) -> Option<u64> {
        let cache = self.read_cache.as_ref().filter(|_| self.ties.cached_above);
        cache.map(|cache| cache.clock)
    }

    /// How many of these sectors are alike from the first on: of one block that is held, with its memory, or
    /// not held.
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

    /// Finds memory for the whole blocks of what was read, which is going to be copied there: what, and
    /// where.
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

    // ------------------------------------------------------------------------------------- what a miss costs

    /// Gives the cache the cost of misses for the members that serve now. A block that a rebuild restores
    /// changes its cost by itself.
    pub(crate) fn price_misses(&mut self) {
        let Some(cache) = &mut self.read_cache else {
            return;
        };
        price(&mut cache.cache, &self.below.layout, &self.below.roles);
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

    // ----------------------------------------------------------------------------------------------- repairs

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

    /// A member that served is gone. While copies may differ, others may read otherwise than what was read
    /// from it.
    pub(crate) fn cache_loses_copies(&mut self) {
        let differ = !self.layout.parity() && self.tasks.resync_owes().is_some();
        let sectors = self.layout.size_sectors();
        if let Some(cache) = self.read_cache.as_mut().filter(|_| differ) {
            cache.changed(0, sectors);
        }
    }
}
