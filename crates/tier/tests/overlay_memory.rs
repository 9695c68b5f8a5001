//! The extent map takes its memory when it is made: at most 32 bytes an extent, as much as it says, and no more later.

use restripe_tier::overlay::{Extent, ExtentMap, Kind};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

// By thread: the harness has one of its own, which allocates when it likes.
thread_local! {
    static ALLOCATED_BYTES: Cell<usize> = const { Cell::new(0) };
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged; only counters are kept, which
// take no memory of their own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED_BYTES.set(ALLOCATED_BYTES.get() + layout.size());
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Of no place in the log that another continues.
fn any_extent(random: &mut Random, sectors: u64) -> Extent {
    Extent {
        home: random.below(sectors),
        sectors: 1 + random.below(16) as u32,
        at: random.below(1 << 40),
        sequence: random.below(4),
        kind: Kind::ALL[random.below(3) as usize],
    }
}

/// Inserts until nothing more fits that needs room; overwrites and removes what is there; fills it again.
fn churn(map: &mut ExtentMap, random: &mut Random) {
    let sectors = u64::from(map.capacity()) * 12;
    let (mut displaced, mut refused) = (0_u64, 0_u64);
    for _ in 0..3 {
        while map.extent_count() < map.capacity() {
            let extent = any_extent(random, sectors);
            let _ = map.insert(extent, |piece| displaced += u64::from(piece.sectors));
        }
        for _ in 0..map.capacity() {
            let extent = any_extent(random, sectors);
            let kept = map.insert(extent, |piece| displaced += u64::from(piece.sectors));
            refused += u64::from(kept.is_err());
        }
        for _ in 0..map.capacity() / 4 {
            let extent = any_extent(random, sectors);
            let home = extent.home..extent.end();
            let _ = map.remove_if(home, extent.sequence, |_| {});
        }
    }
    assert!(displaced > 0 && refused > 0, "it was full, and overwritten");
}

/// A map with what it has taken, which is what it says.
fn new_map(capacity: u32) -> (ExtentMap, usize) {
    let before = ALLOCATED_BYTES.get();
    let map = ExtentMap::new(capacity);
    let taken = ALLOCATED_BYTES.get() - before;
    assert_eq!(map.memory_bytes(), taken + size_of::<ExtentMap>());
    (map, taken)
}

#[test]
fn an_extent_takes_32_bytes_at_most_and_all_of_them_at_once() {
    for capacity in [16_384, 20_000, 100_000, 1_000_000, 8_000_000] {
        let bytes = new_map(capacity).0.memory_bytes();
        assert!(bytes <= 32 * capacity as usize, "{capacity}: {bytes} bytes");
    }
    for capacity in [1, 1000, 16_384, 50_000] {
        let (mut map, taken) = new_map(capacity);
        let bytes = map.memory_bytes();
        let allocations = ALLOCATIONS.get();
        churn(&mut map, &mut Random(u64::from(capacity)));
        assert_eq!(ALLOCATIONS.get(), allocations);
        assert_eq!(map.memory_bytes(), bytes);
        drop(map);
        assert!(taken < bytes);
    }
}
