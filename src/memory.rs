//! The allocator of the program.

use libmimalloc_sys::{mi_option_get, mi_option_set, mi_option_t};
use std::ffi::c_long;

/// Decoding and writing on all cores makes many short-lived buffers.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long freed memory is kept before the system has it back, in milliseconds. The crate has no name for this option.
const PURGE_DELAY: mi_option_t = 15;
/// The purge delay of the allocator itself.
const PURGE_DELAY_DEFAULT: c_long = 1_000;
/// A batch takes again and again what it gave back, and the system clears each page first.
const PURGE_DELAY_KEPT: c_long = 10_000;

/// Of the allocator of C libraries: zstd takes a megabyte for each column of a file, and gives it back.
#[cfg(target_env = "gnu")]
const KEPT_BY_C: [(libc::c_int, libc::c_int); 2] = [
    (libc::M_MMAP_THRESHOLD, 16 << 20),
    (libc::M_TRIM_THRESHOLD, 64 << 20),
];

/// Keeps freed memory for longer than the allocators do by themselves, unless an environment variable says how long.
///
/// To be called first in `main`: options must not be set while other threads run.
pub(crate) fn keep_freed() {
    // SAFETY: no other thread runs yet, and a number that stands for no option of this default is left alone.
    unsafe {
        if mi_option_get(PURGE_DELAY) == PURGE_DELAY_DEFAULT {
            mi_option_set(PURGE_DELAY, PURGE_DELAY_KEPT);
        }
    }
    #[cfg(target_env = "gnu")]
    for (option, bytes) in KEPT_BY_C {
        // SAFETY: sets a threshold; one that is refused stays as it is.
        unsafe { libc::mallopt(option, bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_the_option_is_that_of_the_purge_delay() {
        // SAFETY: reads an option.
        let delay = unsafe { mi_option_get(PURGE_DELAY) };
        assert_eq!(delay, PURGE_DELAY_DEFAULT);
    }
}
