//! Once warm, the engine allocates nothing for a request: not for reads, writes, degraded reads or degraded writes.

mod shell;

use restripe_array::RequestOp;
use restripe_array::layout::{Level, Rotation};
use shell::{Shell, mixed};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged; only a counter is added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Half a million requests healthy, half a million degraded, flushes among them.
#[test]
fn a_million_mixed_requests_allocate_nothing() {
    for level in [
        Level::Raid5(Rotation::LeftSymmetric),
        Level::Raid6(Rotation::LeftSymmetric),
    ] {
        let mut shell = Shell::new(level, 6, 65_536);
        for degraded in [false, true] {
            if degraded {
                shell.fail(2);
            }
            warm(&mut shell);
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            for _ in 0..250 {
                mixed(&mut shell, 1000, 32, 96);
                shell.request(RequestOp::Flush, 0, 0);
                shell.drain();
            }
            let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
            assert_eq!(allocations, 0, "{level:?}, degraded: {degraded}");
        }
        assert_eq!(shell.refused, 0);
        assert!(
            shell.engine.idle(),
            "everything ended, every buffer is back"
        );
    }
}

/// Each list reaches the size that it keeps.
fn warm(shell: &mut Shell) {
    for _ in 0..30 {
        mixed(shell, 1000, 64, 128);
        shell.request(RequestOp::Flush, 0, 0);
        shell.drain();
    }
}
