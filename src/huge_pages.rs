//! Whether the system may back memory with huge pages.
//!
//! Of little memory, each takes and clears two megabytes where some kilobytes are used. Of much, they are cheap only where the
//! system has them at hand: a virtual machine whose host took idle memory back fetches all of each huge page again.

/// Memory that is used from now on has small pages.
#[cfg(target_os = "linux")]
pub fn refuse() {
    // SAFETY: sets a flag of the process. An error means that the system does not know it, and all stays as it was.
    unsafe {
        libc::prctl(libc::PR_SET_THP_DISABLE, libc::c_ulong::from(true), 0, 0, 0);
    }
}

/// Memory is left to the system.
#[cfg(not(target_os = "linux"))]
pub fn refuse() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn refusal_holds() {
        refuse();
        // SAFETY: reads a flag of the process.
        assert_eq!(
            unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) },
            1
        );
    }
}
