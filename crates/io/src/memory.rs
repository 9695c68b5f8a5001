//! Memory for data: aligned blocks, the handles that name them, and the budget for clients' requests.
//!
//! The engine names memory by [`Buf`] handles. A handle is backed by a [`Memory`]: a reference-counted block
//! whose start is aligned for direct I/O. An operation in flight holds its own reference. So after a handle
//! gets a new block ([`restripe_array::Action::Detach`]), only the late operation uses the old one.
//!
//! Bytes are accessed through raw pointers, because the kernel and helper threads write them without the
//! compiler's knowledge. The engine guarantees that no range is read or written while an operation on it is
//! in flight (rules 5 and 6 of its contract). The functions here check bounds only.

use restripe_array::{Buf, BufRef, Pool};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::ptr::NonNull;
use std::sync::Arc;

/// Alignment of every block: the largest logical block we serve, and the page size.
pub const ALIGNMENT: usize = 4096;

/// Allocations from this size on come straight from the kernel: zero without being touched, and given back
/// at once.
const MAPPED_FROM: usize = 128 * 1024;

/// One aligned allocation. Several [`Memory`] references may share it.
struct Block {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a block is only an address range; who may touch which bytes when is ruled as the module's header
// says.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// For sizes of our own choice: that one of them cannot be had is nothing to go on from.
    fn new(bytes: usize) -> Block {
        Block::allocate(bytes).unwrap_or_else(|_| {
            handle_alloc_error(Layout::array::<u8>(bytes).unwrap_or(Layout::new::<u8>()))
        })
    }

    /// For sizes that somebody asked for.
    fn allocate(bytes: usize) -> io::Result<Block> {
        assert!(bytes > 0, "a block has room");
        let layout = Layout::from_size_align(bytes, ALIGNMENT).ok();
        let block = layout.and_then(Block::of_layout);
        block.ok_or_else(|| {
            let what = format!("{bytes} bytes of memory are not available");
            io::Error::new(ErrorKind::OutOfMemory, what)
        })
    }

    /// A block, if there is memory for it.
    fn of_layout(layout: Layout) -> Option<Block> {
        let start = if layout.size() >= MAPPED_FROM {
            map(layout.size())
        } else {
            // SAFETY: the layout's size is not zero.
            unsafe { alloc_zeroed(layout) }
        };
        NonNull::new(start).map(|start| Block { start, layout })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if self.layout.size() >= MAPPED_FROM {
            // SAFETY: mapped in `new` with this size, unmapped only here.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.layout.size()) };
        } else {
            // SAFETY: allocated in `new` with this layout, freed only here.
            unsafe { dealloc(self.start.as_ptr(), self.layout) }
        }
    }
}

/// Fresh pages of zeros, or null.
fn map(bytes: usize) -> *mut u8 {
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
    );
    // SAFETY: a new anonymous mapping touches nothing that exists.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if start == libc::MAP_FAILED {
        std::ptr::null_mut()
    } else {
        start.cast()
    }
}

/// A range of an aligned block, kept alive by this reference.
#[derive(Clone)]
pub struct Memory {
    block: Arc<Block>,
    offset: usize,
    bytes: usize,
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memory({} bytes)", self.bytes)
    }
}

impl Memory {
    /// A fresh block of zeros.
    pub fn new(bytes: usize) -> Memory {
        Memory {
            block: Arc::new(Block::new(bytes)),
            offset: 0,
            bytes,
        }
    }

    /// The same, of a size that somebody asked for: there may not be so much.
    pub fn of_size(bytes: usize) -> io::Result<Memory> {
        Ok(Memory {
            block: Arc::new(Block::allocate(bytes)?),
            offset: 0,
            bytes,
        })
    }

    /// One allocation cut into `count` pieces of `bytes` each.
    fn cut(count: usize, bytes: usize) -> io::Result<Vec<Memory>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let whole = Arc::new(Block::allocate(count * bytes)?);
        let pieces = (0..count).map(|i| Memory {
            block: whole.clone(),
            offset: i * bytes,
            bytes,
        });
        Ok(pieces.collect())
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The address of a part.
    pub fn at(&self, offset: usize, bytes: usize) -> *mut u8 {
        assert!(
            offset <= self.bytes && bytes <= self.bytes - offset,
            "a part lies within its memory"
        );
        // SAFETY: the offset lies within the block, by the assertion and because `offset + bytes` of a
        // reference does.
        unsafe { self.block.start.as_ptr().add(self.offset + offset) }
    }

    /// The bytes of a part, for as long as no operation writes to it.
    pub fn slice(&self, offset: usize, bytes: usize) -> &[u8] {
        let start = self.at(offset, bytes);
        // SAFETY: within the block, initialised (blocks begin as zeros), alive as long as `self`. No
        // operation writes the range during the borrow, by the rule in the module's header.
        unsafe { std::slice::from_raw_parts(start, bytes) }
    }

    /// The same, to be changed in place.
    pub(crate) fn slice_mut(&mut self, offset: usize, bytes: usize) -> &mut [u8] {
        let start = self.at(offset, bytes);
        // SAFETY: within the block, initialised, alive as long as `self`, borrowed from it alone; not used
        // otherwise meanwhile, by the module's rule.
        unsafe { std::slice::from_raw_parts_mut(start, bytes) }
    }

    /// Copies `source` into the memory.
    pub fn fill(&self, offset: usize, source: &[u8]) {
        let start = self.at(offset, source.len());
        // SAFETY: within the block. No other operation uses the range, by the module's rule. Source and range
        // may overlap: `ptr::copy` allows it.
        unsafe { std::ptr::copy(source.as_ptr(), start, source.len()) }
    }

    /// Sets a part to zeros.
    pub fn clear(&self, offset: usize, bytes: usize) {
        let start = self.at(offset, bytes);
        // SAFETY: as in `fill`.
        unsafe { std::ptr::write_bytes(start, 0, bytes) }
    }

    /// New memory with the same contents.
    pub fn duplicate(&self) -> Memory {
        let copy = Memory::new(self.bytes);
        let source = self.at(0, self.bytes);
        // SAFETY: both ranges are whole blocks of this length and differ. The source may be written by a late
        // operation meanwhile: then its contents do not matter to the engine, and only bytes are copied.
        unsafe { std::ptr::copy_nonoverlapping(source, copy.at(0, self.bytes), self.bytes) }
        copy
    }

    /// Whether this is the only reference to the block.
    pub fn alone(&self) -> bool {
        Arc::strong_count(&self.block) == 1
    }

    /// Whether both refer to the same block.
    pub fn same(&self, other: &Memory) -> bool {
        Arc::ptr_eq(&self.block, &other.block)
    }
}

/// Part of a memory, held by an operation in flight.
#[derive(Clone, Debug)]
pub struct Piece {
    pub memory: Memory,
    pub offset: u32,
    pub bytes: u32,
}

impl Piece {
    pub fn new(memory: Memory, offset: u32, bytes: u32) -> Piece {
        let end = offset as usize + bytes as usize;
        assert!(end <= memory.bytes(), "a piece lies within its memory");
        Piece {
            memory,
            offset,
            bytes,
        }
    }

    pub fn start(&self) -> *mut u8 {
        self.memory.at(self.offset as usize, self.bytes as usize)
    }

    pub fn slice(&self) -> &[u8] {
        self.memory.slice(self.offset as usize, self.bytes as usize)
    }
}

/// The bytes of all pieces together.
pub fn total_bytes(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|p| u64::from(p.bytes)).sum()
}

/// Drops the first `bytes` bytes of a list of pieces: what a short transfer has done.
pub fn advance(pieces: &mut Vec<Piece>, mut bytes: u64) {
    let mut whole = 0;
    for piece in pieces.iter_mut() {
        if bytes < u64::from(piece.bytes) {
            piece.offset += bytes as u32;
            piece.bytes -= bytes as u32;
            break;
        }
        bytes -= u64::from(piece.bytes);
        whole += 1;
    }
    pieces.drain(..whole);
}

// -------------------------------------------------------------------------------------------------
// engine's pool

/// The memory behind one engine's own handles.
pub struct PoolMemory {
    pool: Pool,
    blocks: Vec<Memory>,
}

impl PoolMemory {
    /// An error if there is not so much memory: a read cache may ask for much.
    pub fn new(pool: Pool) -> io::Result<PoolMemory> {
        let handles = pool.small + pool.large;
        assert!(handles <= Buf::USER, "pool handles lie below the users'");
        let (small, large) = (pool.small as usize, pool.large as usize);
        let mut blocks = Memory::cut(small, restripe_array::SMALL_BYTES as usize)?;
        blocks.extend(Memory::cut(large, restripe_array::LARGE_BYTES as usize)?);
        Ok(PoolMemory { pool, blocks })
    }

    pub fn pool(&self) -> Pool {
        self.pool
    }
}

// ---------------------------------------------------------------------------------------------------- user
// memory

/// Size classes of user memory: 4 KiB times powers of two, up to [`USER_BYTES_MAX`].
const CLASSES: usize = 14;

/// The largest user buffer.
pub const USER_BYTES_MAX: u32 = (ALIGNMENT as u32) << (CLASSES - 1);

fn class_of(bytes: u32) -> usize {
    let pages = bytes.div_ceil(ALIGNMENT as u32).max(1);
    pages.next_power_of_two().trailing_zeros() as usize
}

fn class_bytes(class: usize) -> u64 {
    (ALIGNMENT as u64) << class
}

/// Memory for users' requests: handles from [`Buf::USER`] on, within a budget.
///
/// A request that finds no room waits, and later requests wait behind it: the shell keeps the order. So small
/// requests do not starve a large one. They wait behind it until the memory that was lent before it is
/// back. That time has a bound: of requests in flight a member's
/// time-out, of requests and replies on the wire the shell's patience with a peer, which is short while
/// others wait for memory.
///
/// What one owner may hold has a bound as well ([`UserMemory::share_taken`]), and a part of the budget is
/// apart for those who hold little: so peers that hoard, and large requests that wait for them, do not keep
/// the modest waiting.
///
/// A borrower's requests, through a lease, have memory of their own beside all this, [`LEASE_BYTES`] for
/// each lease: neither users nor other borrowers can take it, and it is never lent to them.
pub struct UserMemory {
    budget: u64,
    /// Bytes of the budget that only modest owners get.
    apart: u64,
    /// Bytes of blocks in use or kept for reuse.
    held: u64,
    /// Bytes in use: of what is for all, and of what is apart.
    used: u64,
    used_apart: u64,
    used_lent: u64,
    /// Beside the budget: for borrowers.
    lent: u64,
    /// Bytes in use by owner. Entries stay when they are zero; there are no more than there may be
    /// connections.
    owned: BTreeMap<u32, u64>,
    slots: Vec<Option<Owned>>,
    free_slots: Vec<u32>,
    kept: [Vec<Memory>; CLASSES],
}

/// A buffer in use, and who answers for it.
struct Owned {
    memory: Memory,
    owner: u32,
    share: Share,
}

/// What a buffer was taken from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Share {
    All,
    /// What is apart for the modest.
    Modest,
    /// What is there for borrowers alone.
    Lent,
}

/// Owner of what nobody answers for any more, until the engine gives it back.
const NOBODY: u32 = u32::MAX - 1;
/// Whoever has no more than this, with what is asked for, is modest.
const MODEST_BYTES: u64 = 1 << 20;
/// What a borrower may hold: eight of the longest requests through a lease.
pub const LEASE_BYTES: u64 = 8 * LEASE_BLOCK_MAX as u64;
/// The longest read or write through a lease.
pub const LEASE_BLOCK_MAX: u32 = 1 << 20;
/// Parts of the budget: one is apart for the modest, and so much may one owner have before it must give back.
const APART_PARTS: u64 = 8;
const SHARE_PARTS: u64 = 16;

impl UserMemory {
    pub fn new(budget: u64) -> UserMemory {
        UserMemory {
            budget,
            // The largest request must fit into the rest.
            apart: (budget / APART_PARTS).min(budget.saturating_sub(u64::from(USER_BYTES_MAX))),
            held: 0,
            used: 0,
            used_apart: 0,
            used_lent: 0,
            lent: 0,
            owned: BTreeMap::new(),
            slots: Vec::new(),
            free_slots: Vec::new(),
            kept: Default::default(),
        }
    }

    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// Bytes handed out and kept for reuse.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Whether `owner` has its share: it must give back before it asks for more.
    pub fn share_taken(&self, owner: u32) -> bool {
        let owned = self.owned_bytes(owner);
        owned > 0 && owned >= self.budget / SHARE_PARTS
    }

    fn owned_bytes(&self, owner: u32) -> u64 {
        self.owned.get(&owner).copied().unwrap_or(0)
    }

    /// Memory of at least `bytes` for `owner`, or `None` when the budget does not allow it now.
    pub fn allocate(&mut self, bytes: u32, owner: u32) -> Option<BufRef> {
        let need = class_bytes(class_of(bytes));
        if self.used + need <= self.budget - self.apart {
            return self.take(bytes, owner, Share::All);
        }
        self.allocate_apart(bytes, owner)
    }

    /// The same of what is apart for the modest: also while others wait for what is for all.
    pub fn allocate_apart(&mut self, bytes: u32, owner: u32) -> Option<BufRef> {
        let need = class_bytes(class_of(bytes));
        let modest = self.owned_bytes(owner) + need <= MODEST_BYTES;
        if !modest || self.used_apart + need > self.apart {
            return None;
        }
        self.take(bytes, owner, Share::Modest)
    }

    /// The same of a borrower's own. Who waits here waits for nobody but himself.
    pub fn allocate_lent(&mut self, bytes: u32, owner: u32) -> Option<BufRef> {
        let need = class_bytes(class_of(bytes));
        let within = self.owned_bytes(owner) + need <= LEASE_BYTES;
        if !within || self.used_lent + need > self.lent {
            return None;
        }
        self.take(bytes, owner, Share::Lent)
    }

    /// So many leases have memory of their own from now on.
    pub fn lend_to(&mut self, leases: usize) {
        self.lent = LEASE_BYTES * leases as u64;
    }

    fn take(&mut self, bytes: u32, owner: u32, share: Share) -> Option<BufRef> {
        assert!(
            (1..=USER_BYTES_MAX).contains(&bytes),
            "a user buffer has 1 to {USER_BYTES_MAX} bytes, not {bytes}"
        );
        let class = class_of(bytes);
        let memory = match self.kept[class].pop() {
            Some(memory) => memory,
            None => self.grow(class)?,
        };
        *self.used_of(share) += class_bytes(class);
        *self.owned.entry(owner).or_default() += class_bytes(class);
        let slot = self.place(Owned {
            memory,
            owner,
            share,
        });
        Some(BufRef::new(Buf(Buf::USER + slot), 0, bytes))
    }

    fn used_of(&mut self, share: Share) -> &mut u64 {
        match share {
            Share::All => &mut self.used,
            Share::Modest => &mut self.used_apart,
            Share::Lent => &mut self.used_lent,
        }
    }

    fn place(&mut self, owned: Owned) -> u32 {
        if let Some(slot) = self.free_slots.pop() {
            self.slots[slot as usize] = Some(owned);
            return slot;
        }
        let slot = u32::try_from(self.slots.len());
        self.slots.push(Some(owned));
        slot.expect("the budget bounds the number of buffers")
    }

    fn grow(&mut self, class: usize) -> Option<Memory> {
        let need = class_bytes(class);
        self.make_room(need);
        if self.held + need > self.budget + self.lent {
            return None;
        }
        self.held += need;
        Some(Memory::new(need as usize))
    }

    /// Frees kept blocks, the largest first, until `need` more bytes fit.
    fn make_room(&mut self, need: u64) {
        for class in (0..CLASSES).rev() {
            while self.held + need > self.budget + self.lent && self.kept[class].pop().is_some() {
                self.held -= class_bytes(class);
            }
        }
    }

    /// Gives a buffer back. Its block is reused only when no operation holds it any more.
    pub fn release(&mut self, buf: BufRef) {
        let slot = buf.buf.0.checked_sub(Buf::USER).expect("a user handle");
        let Owned {
            memory,
            owner,
            share,
        } = self.slots[slot as usize].take().expect("released once");
        self.free_slots.push(slot);
        let class = class_of(memory.bytes() as u32);
        *self.used_of(share) -= class_bytes(class);
        *self.owned.entry(owner).or_default() -= class_bytes(class);
        if memory.alone() {
            self.kept[class].push(memory);
        } else {
            self.held -= class_bytes(class);
        }
    }

    pub fn memory(&self, buf: Buf) -> &Memory {
        let slot = self.slots[(buf.0 - Buf::USER) as usize].as_ref();
        &slot.expect("the handle is in use").memory
    }

    pub fn memory_mut(&mut self, buf: Buf) -> &mut Memory {
        let slot = self.slots[(buf.0 - Buf::USER) as usize].as_mut();
        &mut slot.expect("the handle is in use").memory
    }

    /// Buffers that `owner` still answers for.
    pub fn owned_by(&self, owner: u32) -> Vec<BufRef> {
        let slots = (Buf::USER..).zip(&self.slots);
        let owned =
            slots.filter(|(_, slot)| slot.as_ref().is_some_and(|owned| owned.owner == owner));
        owned.map(|(buf, _)| BufRef::new(Buf(buf), 0, 1)).collect()
    }

    /// `owner` is gone: what the engine still uses of it is not its next namesake's.
    pub fn disown(&mut self, owner: u32) {
        for owned in self.slots.iter_mut().flatten() {
            if owned.owner == owner {
                owned.owner = NOBODY;
            }
        }
        let bytes = self.owned.remove(&owner).unwrap_or(0);
        *self.owned.entry(NOBODY).or_default() += bytes;
    }

    fn renew(&mut self, buf: Buf) {
        let slot = &mut self.slots[(buf.0 - Buf::USER) as usize];
        if let Some(owned) = slot {
            owned.memory = owned.memory.duplicate();
        }
    }
}

/// Every handle that one engine may name: its own pool, and the users' memory.
pub struct Handles<'a> {
    pub pool: &'a mut PoolMemory,
    pub users: &'a mut UserMemory,
}

impl<'a> Handles<'a> {
    pub fn new(pool: &'a mut PoolMemory, users: &'a mut UserMemory) -> Handles<'a> {
        Handles { pool, users }
    }

    pub fn memory(&self, buf: Buf) -> &Memory {
        match buf.0 >= Buf::USER {
            true => self.users.memory(buf),
            false => &self.pool.blocks[buf.0 as usize],
        }
    }

    pub fn piece(&self, part: BufRef) -> Piece {
        Piece::new(self.memory(part.buf).clone(), part.offset, part.bytes)
    }

    pub fn slice(&self, part: BufRef) -> &[u8] {
        let memory = self.memory(part.buf);
        memory.slice(part.offset as usize, part.bytes as usize)
    }

    /// Backs a handle anew, with the same contents.
    pub fn renew(&mut self, buf: Buf) {
        if buf.0 >= Buf::USER {
            self.users.renew(buf);
        } else {
            let memory = &mut self.pool.blocks[buf.0 as usize];
            *memory = memory.duplicate();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> PoolMemory {
        PoolMemory::new(Pool { small: 2, large: 1 }).expect("memory")
    }

    #[test]
    fn blocks_are_aligned_and_zero() {
        for bytes in [1, 512, 4096, 65536, 1 << 20] {
            let memory = Memory::new(bytes);
            assert_eq!(memory.at(0, bytes) as usize % ALIGNMENT, 0);
            assert!(memory.slice(0, bytes).iter().all(|b| *b == 0));
        }
    }

    /// A read cache beyond the machine's memory ended the process.
    #[test]
    fn a_pool_that_does_not_fit_is_an_error() {
        let beyond_any_address = (1 << 30, 1 << 20);
        let (count, bytes) = beyond_any_address;
        let error = Memory::cut(count, bytes).expect_err("no machine has so much");
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    }

    #[test]
    fn renewing_a_handle_leaves_the_old_block_to_its_holder() {
        let (mut pool, mut users) = (pool(), UserMemory::new(1 << 20));
        let mut handles = Handles::new(&mut pool, &mut users);
        handles.memory(Buf(1)).fill(0, &[7; 4096]);
        let late = handles.piece(BufRef::new(Buf(1), 0, 4096));
        handles.renew(Buf(1));
        late.memory.fill(0, &[9; 4096]);
        assert_eq!(handles.slice(BufRef::new(Buf(1), 0, 4096)), [7; 4096]);
    }

    #[test]
    fn user_memory_stays_within_its_budget_and_is_reused() {
        let mut users = UserMemory::new(64 * 1024);
        let first = users.allocate(40_000, 0).expect("within the budget");
        // 40,000 bytes take 64 KiB.
        assert!(users.allocate(4096, 0).is_none());
        users.release(first);
        let small = [(); 16].map(|()| users.allocate(4096, 0).expect("room again"));
        assert!(users.allocate(1, 0).is_none());
        assert_eq!(users.held(), 64 * 1024);
        small.into_iter().for_each(|buf| users.release(buf));
        assert!(users.allocate(65_536, 0).is_some());
        assert!(UserMemory::new(4096).allocate(8192, 0).is_none());
    }

    #[test]
    fn the_modest_are_served_beside_those_who_hoard() {
        let mut users = UserMemory::new(256 << 20);
        let mut hoarded = Vec::new();
        while let Some(buf) = users.allocate(32 << 20, 0) {
            hoarded.push(buf);
        }
        assert_eq!(hoarded.len(), 7, "an eighth of the budget is apart");
        assert!(users.share_taken(0) && !users.share_taken(1));
        let hoards = users.allocate(4096, 0);
        assert!(hoards.is_none(), "who hoards is not modest");
        let mut apart = |owner| users.allocate(1 << 20, owner).expect("for the modest");
        let modest: Vec<_> = (1..=32).map(&mut apart).collect();
        assert!(users.allocate(4096, 33).is_none(), "that is all there is");
        users.release(modest[0]);
        assert!(users.allocate_apart(4096, 33).is_some());
        hoarded.into_iter().for_each(|buf| users.release(buf));
        assert!(!users.share_taken(0));
        let orphan = users.allocate(32 << 20, 0).expect("room");
        users.disown(0);
        assert!(!users.share_taken(0), "a namesake starts with nothing");
        users.release(orphan);
        assert!(UserMemory::new(32 << 20).allocate(32 << 20, 0).is_some());
    }

    #[test]
    fn borrowers_have_memory_of_their_own() {
        let mut users = UserMemory::new(64 << 20);
        users.lend_to(2);
        while users.allocate(4 << 20, 0).is_some() {}
        while users.allocate_apart(1 << 20, 1).is_some() {}
        let take = |users: &mut UserMemory, owner| {
            std::iter::from_fn(|| users.allocate_lent(LEASE_BLOCK_MAX, owner)).collect::<Vec<_>>()
        };
        let (first, second) = (take(&mut users, 10), take(&mut users, 11));
        assert_eq!((first.len(), second.len()), (8, 8), "each has its share");
        assert!(users.allocate_lent(4096, 12).is_none(), "there are two");
        assert!(users.allocate(4 << 20, 2).is_none(), "it is not for users");
        first.into_iter().for_each(|buf| users.release(buf));
        assert!(users.allocate(4 << 20, 2).is_none(), "nor when it is free");
        assert_eq!(take(&mut users, 10).len(), 8);
        assert!(UserMemory::new(64 << 20).allocate_lent(4096, 0).is_none());
    }

    #[test]
    fn a_block_still_held_by_an_operation_is_not_reused() {
        let mut users = UserMemory::new(8192);
        let buf = users.allocate(4096, 0).expect("room");
        let late = users.memory(buf.buf).clone();
        users.release(buf);
        let next = users.allocate(4096, 0).expect("room");
        assert_ne!(users.memory(next.buf).at(0, 1), late.at(0, 1));
    }

    #[test]
    fn advancing_drops_what_is_done() {
        let memory = Memory::new(4096);
        let mut pieces = [(0, 100), (100, 50)]
            .map(|(at, bytes)| Piece::new(memory.clone(), at, bytes))
            .to_vec();
        advance(&mut pieces, 120);
        assert_eq!(pieces.len(), 1);
        assert_eq!((pieces[0].offset, pieces[0].bytes), (120, 30));
        advance(&mut pieces, 30);
        assert!(pieces.is_empty());
    }
}
