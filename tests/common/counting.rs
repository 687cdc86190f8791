//! An allocator that counts, for test programs that are about allocations: a library that is loaded has another.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts what every thread of the process asks of the system's allocator.
struct Counting;

/// How often this program has asked for memory.
pub(crate) static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

/// Bytes that it has now, and the most that it has had since somebody last set this.
pub(crate) static LIVE: AtomicUsize = AtomicUsize::new(0);
pub(crate) static PEAK: AtomicUsize = AtomicUsize::new(0);

/// Whether `work` comes to allocate nothing, twenty times in a row. Which of a pool's threads takes part is left to chance:
/// on a busy machine a thread's first item, for which it allocates, may come late.
#[allow(dead_code, reason = "some programs count bytes instead")]
pub(crate) fn comes_to_allocate_nothing(mut work: impl FnMut()) -> bool {
    let mut quiet = 0;
    for _ in 0..1000 {
        let before = ALLOCATIONS.load(Ordering::SeqCst);
        work();
        quiet = if ALLOCATIONS.load(Ordering::SeqCst) == before { quiet + 1 } else { 0 };
        if quiet == 20 {
            return true;
        }
    }
    false
}

fn add(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed).wrapping_add(bytes);
    PEAK.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: everything is handed to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        add(layout.size());
        // SAFETY: as promised to this function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        add(layout.size());
        // SAFETY: as promised to this function.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as promised to this function.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        add(size);
        // SAFETY: as promised to this function.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
