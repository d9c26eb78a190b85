//! What only the fuzz targets call.

use super::unpack::UnpackLimit;
use crate::change::FileFault;
use bytes::Bytes;

/// Unpacks a file by its first bytes and its name, to at most so many bytes.
pub fn unpack(path: &str, bytes: Bytes, bytes_max: u64) -> Result<Bytes, FileFault> {
    super::unpack::unpack(path, bytes, UnpackLimit::of_bytes(bytes_max))
}
