//! The state of one version in memory.

use super::stats::StatValue;
use crate::change::Version;
use crate::error::Result;
use deltalake::kernel::Add;
use std::path::{Path, PathBuf};

/// One file of a version.
#[derive(Clone, Debug)]
pub struct DataFile {
    /// As in `Add.path`, decoded: below the table's folder.
    pub path: String,
    /// Bytes.
    pub size: i64,
    /// Physical rows.
    pub rows: i64,
    /// Rows that the deletion vector takes away.
    pub deleted: i64,
    /// The action as it stands in the log.
    pub add: Add,
}

impl DataFile {
    /// Live rows.
    pub fn live_rows(&self) -> i64 {
        self.rows - self.deleted
    }
    /// The least and the greatest value of a top-level column; `None` if they are not known (or all values are NULL).
    pub fn range(&self, column: &str) -> Option<(StatValue, StatValue)> {
        todo!()
    }
}

#[derive(Debug)]
pub(super) struct TableState {}

/// What was done about a damaged newest log entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TailRepair {
    /// The version whose entry was damaged; the table is at the one before now.
    pub removed: Version,
    /// Where the damaged entry is kept.
    pub kept_as: PathBuf,
    /// What was wrong with it.
    pub damage: String,
}

/// Takes a damaged newest log entry (empty or torn by a power cut, never confirmed) out of the log; `None` if it is whole.
///
/// The caller holds the lock on the table. Damage anywhere else is an error.
pub fn repair_tail(root: &Path) -> Result<Option<TailRepair>> {
    todo!()
}
