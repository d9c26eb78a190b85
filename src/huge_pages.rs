//! Whether the system may back memory with huge pages.
//!
//! They make much memory cheap. Of little, each takes and clears two megabytes where some kilobytes are used.

/// Memory that is used from now on has small pages. For a program that begins, and may never need much.
pub fn refuse() {
    set(true);
}

/// Memory that is used from now on may have huge pages.
pub fn allow() {
    set(false);
}

#[cfg(target_os = "linux")]
fn set(refused: bool) {
    // SAFETY: sets a flag of the process. An error means that the system does not know it, and all stays as it was.
    unsafe {
        libc::prctl(
            libc::PR_SET_THP_DISABLE,
            libc::c_ulong::from(refused),
            0,
            0,
            0,
        );
    }
}

#[cfg(not(target_os = "linux"))]
fn set(_refused: bool) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn refusal_holds_until_it_is_taken_back() {
        // SAFETY: reads a flag of the process.
        let is_refused = || unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) } == 1;
        refuse();
        assert!(is_refused());
        allow();
        assert!(!is_refused());
    }
}
