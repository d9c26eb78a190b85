//! Counts the memory in use, so that an input that takes far more than its length allows is a finding.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Any input may take so much.
const FREE_BYTES: usize = 256 << 20;

/// And so much for each of its bytes.
const BYTES_PER_BYTE: usize = 16 << 10;

/// A request beyond this gets nothing, which ends the program unless the caller is prepared.
const HEAP_BYTES_MAX: usize = 2 << 30;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// The allocator of the system with a count.
pub(crate) struct Counted;

// SAFETY: every call goes on to the allocator of the system as it came, or gets nothing.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match take(layout.size()) {
            // SAFETY: as the caller promised.
            true => unsafe { System.alloc(layout) },
            false => std::ptr::null_mut(),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match take(layout.size()) {
            // SAFETY: as the caller promised.
            true => unsafe { System.alloc_zeroed(layout) },
            false => std::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !take(size) {
            return std::ptr::null_mut();
        }
        // SAFETY: as the caller promised.
        let moved = unsafe { System.realloc(memory, layout, size) };
        let given_back = if moved.is_null() { size } else { layout.size() };
        IN_USE.fetch_sub(given_back, Relaxed);
        moved
    }
}

fn take(size: usize) -> bool {
    let in_use = IN_USE.fetch_add(size, Relaxed).saturating_add(size);
    if in_use > HEAP_BYTES_MAX {
        IN_USE.fetch_sub(size, Relaxed);
        return false;
    }
    PEAK.fetch_max(in_use, Relaxed);
    true
}

/// Begins to watch; returns what is in use.
pub(crate) fn start() -> usize {
    let in_use = IN_USE.load(Relaxed);
    PEAK.store(in_use, Relaxed);
    in_use
}

/// The most that was in use at a time, beyond what was in use at the start, is in proportion to the input.
pub(crate) fn assert_bounded(start: usize, input_bytes: usize) {
    let used = PEAK.load(Relaxed).saturating_sub(start);
    let allowed = FREE_BYTES + BYTES_PER_BYTE * input_bytes;
    assert!(
        used <= allowed,
        "{input_bytes} bytes of input took {used} bytes of memory"
    );
}
