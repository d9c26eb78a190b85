//! The files and the log of one Delta table on a local disk.
//!
//! A [`Table`] keeps the state of one version in memory (files with statistics and deletion vectors, application
//! transactions), fed once from the log and then from its own commits. A commit is one put-if-absent of the next log entry,
//! after everything that it names is synced to disk; if the version is taken, nothing is rebased: the caller reloads and
//! recomputes. What rows mean is left to bronze, quarantine and silver.

mod commit;
mod deletion_vector;
mod durable_store;
mod maintain;
mod read;
mod state;
mod stats;
mod write;

pub use commit::{AppTransaction, CommitOutcome, Operation, TableCommit};
pub use maintain::{CompactLimits, CompactReport, VacuumReport, compact, vacuum};
pub use read::{FileScan, ScannedRows};
pub use state::{DataFile, TailRepair, repair_tail};
pub use stats::{ColumnRange, StatValue};
pub use write::RowWriter;

use crate::change::Version;
use crate::error::{Error, Result};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use deltalake::kernel::{Action, Add, AddCDCFile, Remove};
use deltalake::logstore::LogStoreRef;
use roaring::RoaringTreemap;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a new table looks like.
#[derive(Clone, Debug)]
pub struct TableSpec {
    /// The columns, partition columns included.
    pub schema: SchemaRef,
    /// Top-level columns, in the order of the folders.
    pub partition_by: Vec<String>,
    /// Whether readers can ask what changed (`delta.enableChangeDataFeed`).
    pub change_data_feed: bool,
    /// Whether rows may be deleted by vector (`delta.enableDeletionVectors`).
    pub deletion_vectors: bool,
    /// The name in the metadata.
    pub name: Option<String>,
    /// The description in the metadata.
    pub description: Option<String>,
    /// Further table properties.
    pub properties: BTreeMap<String, String>,
}

/// One Delta table at one version, in memory. Reading is synchronous and may be done from many threads.
#[derive(Debug)]
pub struct Table {
    root: PathBuf,
    log_store: LogStoreRef,
    state: state::TableState,
}
impl Table {
    /// Opens the newest version; `None` only if the folder certainly holds no table.
    pub async fn open(root: &Path) -> Result<Option<Table>> {
        todo!()
    }
    /// Creates version 0 if it is absent; an existing table is an error, never overwritten.
    pub async fn create(root: &Path, spec: &TableSpec) -> Result<Table> {
        todo!()
    }
    /// Reads the newest version again, after a foreign commit.
    pub async fn reload(&mut self) -> Result<()> {
        todo!()
    }
    /// Whether the version after this one exists.
    pub async fn has_foreign_commit(&self) -> Result<bool> {
        todo!()
    }
    pub fn root(&self) -> &Path {
        &self.root
    }
    pub fn version(&self) -> Version {
        todo!()
    }
    pub fn schema(&self) -> SchemaRef {
        todo!()
    }
    pub fn partition_by(&self) -> &[String] {
        todo!()
    }
    pub fn property(&self, name: &str) -> Option<&str> {
        todo!()
    }
    /// The files of this version, ordered by path.
    pub fn files(&self) -> impl Iterator<Item = &DataFile> {
        std::iter::empty()
    }
    pub fn file(&self, path: &str) -> Option<&DataFile> {
        todo!()
    }
    pub fn file_count(&self) -> usize {
        todo!()
    }
    /// Live rows: physical rows less deleted ones.
    pub fn row_count(&self) -> i64 {
        todo!()
    }
    /// The newest version that `app_id` committed.
    pub fn transaction(&self, app_id: &str) -> Option<i64> {
        todo!()
    }
    pub fn transactions(&self) -> &BTreeMap<String, i64> {
        todo!()
    }
    /// Files that may hold a row inside all of `ranges`; a file without statistics of a column is one.
    pub fn candidates(&self, ranges: &[ColumnRange]) -> Vec<&DataFile> {
        todo!()
    }
    /// Reads the live rows of `file` in batches: `columns` in that order, in the types of the table; a column that the file lacks is NULL.
    pub fn scan(&self, file: &DataFile, columns: &[String]) -> Result<FileScan> {
        todo!()
    }
    /// Reads rows by physical number (ascending, from 0), deleted or not; same columns as [`Table::scan`].
    pub fn take(&self, file: &DataFile, columns: &[String], rows: &[u64]) -> Result<RecordBatch> {
        todo!()
    }
    /// The physical numbers of the deleted rows of `file`.
    pub fn deleted_rows(&self, file: &DataFile) -> Result<RoaringTreemap> {
        todo!()
    }
    /// Writes data files of `schema` (the table's, or a wider one that the same commit sets) that no log entry names yet; split by partition.
    pub async fn write_rows(&self, schema: SchemaRef, batches: &[RecordBatch]) -> Result<Vec<Add>> {
        todo!()
    }
    /// The same, fed batch by batch.
    pub fn row_writer(&self, schema: SchemaRef) -> Result<RowWriter> {
        todo!()
    }
    /// Writes change data files: the table's columns and `_change_type STRING` at the end.
    pub async fn write_change_rows(&self, batches: &[RecordBatch]) -> Result<Vec<AddCDCFile>> {
        todo!()
    }
    /// The actions that delete physical rows (path -> row numbers), one new vector file for all. A file that loses its last row gets only its `Remove`.
    pub async fn delete_rows(
        &self,
        deleted: &BTreeMap<String, RoaringTreemap>,
    ) -> Result<(Vec<Remove>, Vec<Add>)> {
        todo!()
    }
    /// The action that takes a whole file out of the table (`data_change` as given).
    pub fn remove_of(&self, file: &DataFile, data_change: bool) -> Remove {
        todo!()
    }
    /// Writes the next log entry and applies it to this state.
    pub async fn commit(&mut self, commit: TableCommit) -> Result<CommitOutcome> {
        todo!()
    }
    /// The actions of one log entry; an error if it is gone.
    pub async fn commit_actions(&self, version: Version) -> Result<Vec<Action>> {
        todo!()
    }
    /// The newest version whose entry carries this transaction; `None` if no entry that is still there does.
    pub async fn version_of_transaction(&self, txn: &AppTransaction) -> Result<Option<Version>> {
        todo!()
    }
    /// Writes a log checkpoint of this version and cleans old log entries up; off the hot path.
    pub async fn checkpoint_log(&self) -> Result<()> {
        todo!()
    }
}
