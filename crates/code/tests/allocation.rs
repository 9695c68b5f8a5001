//! The promise of `linear` to callers of every I/O: no memory is taken for up to 32 sources.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use restripe_code::{Kernels, gf};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: the system's allocator does the work; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_call_takes_no_memory() {
    let bytes = [[0x5a_u8; 100]; 32];
    let sources: Vec<&[u8]> = bytes.iter().map(|source| &source[..]).collect();
    let ones = [1; 32];
    let ascending: [u8; 32] = std::array::from_fn(|index| gf::pow2(index as u32));
    let descending: [u8; 32] = std::array::from_fn(|index| gf::pow2(31 - index as u32));
    let general: [u8; 32] = std::array::from_fn(|index| index as u8 * 7 + 2);
    let mut single = [0; 32];
    single[31] = 1;
    let shapes: [[&[u8]; 4]; 3] = [
        [&ones, &ascending, &general, &single],
        [&general, &general, &general, &general],
        [&single, &ones, &general, &ones],
    ];
    let mut targets = [[0; 100]; 4];
    let mut targets = targets.each_mut().map(|target| &mut target[..]);
    for kernels in Kernels::available() {
        let before = ALLOCATIONS.get();
        for rows in &shapes {
            kernels.linear(&sources, rows, &mut targets);
        }
        kernels.linear(&sources, &[&ones, &ascending], &mut targets[..2]);
        kernels.linear(&sources, &[&ones, &descending], &mut targets[..2]);
        assert_eq!(ALLOCATIONS.get(), before, "{}", kernels.name());
    }
}
