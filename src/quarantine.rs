//! Keeps refused records with their reason and position, in a Delta table beside bronze.

use crate::bronze::{AppendCommit, FileCount};
use crate::change::{BatchId, Reject};
use crate::clock::Micros;
use crate::delta::{AppTransaction, Table};
use crate::error::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// One row of quarantine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantinedRecord {
    pub file_path: String,
    pub file_row: i64,
    pub file_line: Option<i64>,
    pub byte_offset: Option<i64>,
    /// A word of `RejectReason`.
    pub reason: String,
    pub detail: String,
    pub raw: String,
    pub batch_id: i64,
    pub quarantined_at: Micros,
}

/// The quarantine table; made when the first reject comes.
#[derive(Debug)]
pub struct QuarantineTable {
    table: Option<Table>,
}

impl QuarantineTable {
    /// Opens the table if it is there; makes nothing.
    pub async fn open(path: &Path) -> Result<QuarantineTable> {
        todo!()
    }
    /// The table below, if it was made.
    pub fn table(&self) -> Option<&Table> {
        self.table.as_ref()
    }
    /// The table below, for upkeep.
    pub fn table_mut(&mut self) -> Option<&mut Table> {
        self.table.as_mut()
    }
    /// Appends the rejects of one batch exactly once; `None` if there is nothing to do and no table yet.
    pub async fn append(
        &mut self,
        batch: BatchId,
        txn: AppTransaction,
        rejects: &BTreeMap<String, Vec<Reject>>,
        replaced: &BTreeSet<String>,
        now: Micros,
    ) -> Result<Option<AppendCommit>> {
        todo!()
    }
    /// Refused records in the order of (file, row), of one file or of all, at most `limit`.
    pub fn rows(
        &self,
        file_path: Option<&str>,
        limit: Option<usize>,
    ) -> Result<Vec<QuarantinedRecord>> {
        todo!()
    }
    /// What the table holds of each landing file.
    pub fn counts_by_file(&self) -> Result<BTreeMap<String, FileCount>> {
        todo!()
    }
}
