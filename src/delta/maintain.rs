//! Upkeep: compaction, vacuum.

use super::Table;
use crate::clock::Micros;
use crate::crash::CrashSwitch;
use crate::error::Result;
use std::time::Duration;

/// When a file is worth rewriting.
#[derive(Clone, Debug)]
pub struct CompactLimits {
    /// Files below this size are small, bytes.
    pub small_file_bytes: u64,
    /// Files aim at this size, bytes.
    pub target_file_bytes: u64,
    /// At least this many small files of a partition make a rewrite worth it.
    pub small_files_min: usize,
    /// A file with at least this share of deleted rows (0 to 1) is rewritten.
    pub deleted_share_min: f64,
    /// At most this many bytes are read in one call.
    pub bytes_max: u64,
}

/// What a compaction did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactReport {
    /// Files that left.
    pub files_removed: usize,
    /// Files that came.
    pub files_added: usize,
    /// Bytes that left.
    pub bytes_removed: u64,
    /// Bytes that came.
    pub bytes_added: u64,
    /// Live rows written again.
    pub rows: u64,
}

/// What a vacuum deleted, or would.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VacuumReport {
    /// Relative to the table, sorted.
    pub files: Vec<String>,
    /// Their bytes.
    pub bytes: u64,
}

/// Rewrites small and vector-heavy files, rows ordered by `order_by`, in one commit that changes no data.
pub async fn compact(
    table: &mut Table,
    order_by: &[String],
    limits: &CompactLimits,
    crash: &CrashSwitch,
) -> Result<CompactReport> {
    todo!()
}

/// Deletes files that no version within `retention` names; with `dry_run` only lists them.
pub async fn vacuum(
    table: &Table,
    retention: Duration,
    now: Micros,
    dry_run: bool,
) -> Result<VacuumReport> {
    todo!()
}
