//! Reads the change data feed of a Delta table.
//!
//! A range is checked against the table before anything is read, so a range that the feed cannot answer is an error
//! that names the range it can answer, never an empty or a wrong result. How rows are printed is left to the caller.

use crate::change::Version;
use crate::error::Result;
use crate::query::Rows;
use chrono::{DateTime, Utc};
use std::path::Path;

/// One end of a range of commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangePoint {
    /// This commit.
    Version(Version),
    /// The first commit at or after this time as a start, the last one at or before it as an end.
    Timestamp(DateTime<Utc>),
}

/// The commits whose changes are read; both ends count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeRange {
    /// The first commit.
    pub from: ChangePoint,
    /// The last commit; `None` is the newest.
    pub to: Option<ChangePoint>,
}

/// The changes of the table at `path` in `range`, in the order of the commits and inside a commit by `order_by`.
///
/// The columns are those of the table and `_change_type`, `_commit_version`, `_commit_timestamp`.
pub async fn changes(path: &Path, range: ChangeRange, order_by: &[String]) -> Result<Rows> {
    let _ = (path, range, order_by);
    todo!()
}
