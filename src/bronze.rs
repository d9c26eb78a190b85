//! Appends one micro-batch to bronze in one commit; reads what a version brought.

use crate::change::{BatchId, Version};
use crate::clock::Micros;
use crate::crash::CrashSwitch;
use crate::delta::{AppTransaction, Table};
use crate::error::Result;
use crate::schema::TableSchema;
use arrow::array::RecordBatch;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The rows of one landing file.
#[derive(Clone, Debug)]
pub struct LoadedFile {
    /// Relative to the landing folder.
    pub path: String,
    /// Microseconds since the epoch.
    pub modified_at: Micros,
    /// The source columns of the schema in their order, then `_rescued_data`.
    pub rows: RecordBatch,
    /// The record number of each row, from 1.
    pub file_rows: Vec<i64>,
}

/// Proof that a batch is in a table.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendCommit {
    /// The version that holds the batch. If the batch was there already and its log entry is gone: the newest version.
    pub version: Version,
    /// The batch.
    pub batch: BatchId,
    /// The batch was there before this call.
    pub already_applied: bool,
    /// Rows of the batch (0 if it was there already).
    pub rows: u64,
    /// Rows of replaced files that left (0 if the batch was there already).
    pub rows_replaced: u64,
    /// Data files that the batch brought, as in `DataFile::path`.
    pub added: Vec<String>,
    /// Data files that left.
    pub removed: Vec<String>,
}

/// Proof that a batch is in bronze.
pub type BronzeCommit = AppendCommit;

/// What a table holds of one landing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileCount {
    /// Rows.
    pub rows: i64,
    /// The newest batch that brought some.
    pub batch: BatchId,
    /// Microseconds since the epoch; 0 where the table does not keep it.
    pub modified_at: Micros,
}

/// The bronze table.
#[derive(Debug)]
pub struct BronzeTable {
    table: Table,
}

impl BronzeTable {
    /// Opens bronze; `None` if there is certainly no table.
    pub async fn open(path: &Path) -> Result<Option<BronzeTable>> {
        todo!()
    }
    /// Creates bronze; an existing table is an error.
    pub async fn create(
        path: &Path,
        schema: &TableSchema,
        partition_by: &[String],
    ) -> Result<BronzeTable> {
        todo!()
    }
    /// The table below.
    pub fn table(&self) -> &Table {
        &self.table
    }
    /// The table below, for upkeep.
    pub fn table_mut(&mut self) -> &mut Table {
        &mut self.table
    }
    /// All columns but the loader's.
    pub fn source_schema(&self) -> TableSchema {
        todo!()
    }
    /// Appends one batch exactly once.
    #[allow(clippy::too_many_arguments)]
    pub async fn append(
        &mut self,
        batch: BatchId,
        txn: AppTransaction,
        schema: &TableSchema,
        files: &[LoadedFile],
        replaced: &BTreeSet<String>,
        loaded_at: Micros,
        crash: &CrashSwitch,
    ) -> Result<BronzeCommit> {
        todo!()
    }
    /// What bronze holds of each landing file.
    pub fn counts_by_file(&self) -> Result<BTreeMap<String, FileCount>> {
        todo!()
    }
    /// The newest batch that brought rows.
    pub fn last_batch(&self) -> Result<Option<BatchId>> {
        todo!()
    }
    /// The paths of the data files that a version added and removed (with data change).
    pub async fn files_of_version(&self, version: Version) -> Result<(Vec<String>, Vec<String>)> {
        todo!()
    }
}
