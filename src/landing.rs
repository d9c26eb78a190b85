//! What a landing file is: its name, its size and times, its content hash.

/// A regular file below the landing folder, as a listing saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LandingFile {
    /// Relative to the landing folder, `/` between parts, in the reversible form of [`encode_name`].
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Microseconds since the epoch, UTC.
    pub modified_at: i64,
    /// Change time of the inode, microseconds since the epoch.
    pub changed_at: i64,
}
