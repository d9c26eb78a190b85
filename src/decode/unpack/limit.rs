//! How much may come out of a packed file.
//!
//! A small file that unpacks to gigabytes would take memory, disk and hours of whoever loads it.

use crate::change::{FileFault, ParkReason};

/// An unpacked file may have so many bytes.
const UNPACKED_BYTES_MAX: u64 = 8 << 30;

/// What unpacks to no more bytes may have any ratio.
const FREE_BYTES_MAX: u64 = 256 << 20;

/// How many times its own bytes a file may unpack to. Gzip, zlib, lz4 and Snappy never reach it. Records that can be told from
/// one another come to a few hundred times in any packing, and to 1,700 where each has thousands of empty fields; one line over
/// and over comes to 3,300 (bzip2), 6,700 (xz) and 12,000 times (zstd), and zeros to 830,000.
const RATIO_MAX: u64 = 4000;

/// How much may come out of one file.
#[derive(Clone, Copy, Debug)]
pub(in crate::decode) struct UnpackLimit {
    /// Bytes.
    pub(in crate::decode) bytes_max: u64,
    /// The bytes of the file, where these are what limits it.
    packed: Option<u64>,
}

impl UnpackLimit {
    /// For a file of so many bytes.
    pub(in crate::decode) fn of_file(packed: u64) -> Self {
        UnpackLimit::of_ratio(packed, FREE_BYTES_MAX)
    }

    /// Whatever the bytes of the file.
    pub(in crate::decode) fn of_bytes(bytes_max: u64) -> Self {
        UnpackLimit {
            bytes_max,
            packed: None,
        }
    }

    pub(super) fn of_ratio(packed: u64, free_bytes_max: u64) -> Self {
        let bytes_max = packed.saturating_mul(RATIO_MAX).max(free_bytes_max);
        if bytes_max >= UNPACKED_BYTES_MAX {
            return UnpackLimit::of_bytes(UNPACKED_BYTES_MAX);
        }
        UnpackLimit {
            bytes_max,
            packed: Some(packed),
        }
    }

    /// More came out.
    pub(in crate::decode) fn fault(self) -> FileFault {
        let bytes_max = self.bytes_max;
        let detail = match self.packed {
            None => format!("the file has more than {bytes_max} bytes when unpacked"),
            Some(packed) => format!(
                "the file has {packed} bytes and more than {bytes_max} when unpacked; beyond {FREE_BYTES_MAX} it may \
                 have {RATIO_MAX} times its own; if that is what it holds, drop it unpacked"
            ),
        };
        FileFault::new(ParkReason::TooLarge, detail)
    }
}
