//! The files and the log of one Delta table on a local disk.
//!
//! A [`Table`] keeps the state of one version in memory (files with statistics and deletion vectors, application
//! transactions), fed once from the log and then from its own commits. A commit is one put-if-absent of the next log entry,
//! after everything that it names is synced to disk; if the version is taken, nothing is rebased: the caller reloads and
//! recomputes. What rows mean is left to bronze, quarantine and silver.

mod append;
mod commit;
mod deletion_vector;
mod durable_store;
mod log;
mod maintain;
mod protocol;
mod read;
mod state;
mod stats;
mod write;

pub use append::{
    Append, AppendCommit, FileCount, VersionFiles, append_once, counts_by_file, files_of_version,
    last_batch,
};
pub use commit::{AppTransaction, CommitOutcome, Operation, TableCommit};
pub use log::{TailRepair, repair_tail};
pub use maintain::{
    CompactLimits, CompactReport, VacuumReport, checkpoint_if_due, compact, vacuum,
};
pub use read::{FileScan, ScannedRows};
pub use state::DataFile;
pub use stats::{ColumnRange, StatValue};
pub use write::RowWriter;
pub(crate) use write::same_shape;

use crate::change::Version;
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result};
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use delta_kernel::table_properties::DataSkippingNumIndexedCols;
use deltalake::kernel::transaction::TransactionError;
use deltalake::kernel::{Action, Add, AddCDCFile, Remove};
use deltalake::logstore::{CommitOrBytes, LogStoreRef};
use deltalake::{DeltaTable, DeltaTableBuilder, DeltaTableError};
use durable_store::DurableStore;
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreExt};
use roaring::RoaringTreemap;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use url::Url;
use uuid::Uuid;

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
    store: DurableStore,
    log_store: LogStoreRef,
    state: state::TableState,
}

/// Change data files stand in this folder.
const CHANGE_FOLDER: &str = "_change_data";
/// As many columns from the left have statistics.
const INDEXED_COLUMNS: u64 = 64;

impl Table {
    /// Opens the newest version; `None` only if the folder certainly holds no table.
    ///
    /// A damaged newest log entry is an error that [`repair_tail`] can mend. Damaged log checkpoints are left out as long as the
    /// entries suffice. A table with features that are not implemented here is refused by name.
    pub async fn open(root: &Path) -> Result<Option<Table>> {
        let root = absolute(root)?;
        let listing = log::list(&root)?;
        if listing.entries.is_empty() && listing.checkpoints.is_empty() {
            log::certainly_no_table(&root)?;
            return Ok(None);
        }
        let usable = log::inspect(&root, &listing)?;
        let (store, log_store) = connect(&root)?;
        store.hide(usable.hide);
        let state = state::TableState::load(&root, &log_store).await?;
        Ok(Some(Table {
            root,
            store,
            log_store,
            state,
        }))
    }

    /// Creates version 0 if it is absent; an existing table is an error, never overwritten.
    ///
    /// If the program stops inside, there is a table or none, and an empty folder at most.
    pub async fn create(root: &Path, spec: &TableSpec) -> Result<Table> {
        let root = absolute(root)?;
        let listing = log::list(&root)?;
        if !listing.entries.is_empty() || !listing.checkpoints.is_empty() {
            return Err(exists(&root));
        }
        log::certainly_no_table(&root)?;
        check_partitions(spec)?;
        let protocol =
            protocol::for_new_table(&spec.schema, spec.change_data_feed, spec.deletion_vectors)?;
        let (name, description) = (spec.name.as_deref(), spec.description.as_deref());
        let actions = commit::creation(
            protocol,
            &spec.schema,
            &spec.partition_by,
            &properties(spec),
            name,
            description,
        )?;
        durable_store::create_folders(&root.join(log::LOG))
            .map_err(|error| log::unavailable(&root, &error))?;
        let (_, log_store) = connect(&root)?;
        let entry = CommitOrBytes::LogBytes(commit::to_bytes(&actions)?);
        match log_store.write_commit_entry(0, entry, Uuid::new_v4()).await {
            Ok(()) => {}
            Err(TransactionError::VersionAlreadyExists(_)) => return Err(exists(&root)),
            Err(error) => return Err(write_error(&root, &error)),
        }
        Table::open(&root).await?.ok_or_else(|| {
            Error::unavailable(format!(
                "table {}: it is gone right after it was made",
                root.display()
            ))
        })
    }

    /// Reads the newest version again, after a foreign commit.
    pub async fn reload(&mut self) -> Result<()> {
        match Table::open(&self.root).await? {
            Some(table) if table.state.version >= self.state.version => {
                *self = table;
                Ok(())
            }
            Some(table) => Err(Error::disagreement(format!(
                "table {} was at version {} and is at version {} now",
                self.root.display(),
                self.state.version,
                table.state.version
            ))),
            None => Err(Error::disagreement(format!(
                "table {} is gone",
                self.root.display()
            ))),
        }
    }

    /// Whether the version after this one exists.
    pub async fn has_foreign_commit(&self) -> Result<bool> {
        let path = self
            .root
            .join(log::LOG)
            .join(format!("{:020}.json", self.state.version + 1));
        path.try_exists()
            .map_err(|error| log::unavailable(&path, &error))
    }

    /// The absolute path of the table.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The version of this state.
    pub fn version(&self) -> Version {
        Version(self.state.version)
    }

    /// All columns, partition columns included, in the types in which rows are read and written.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.state.schema)
    }

    /// The partition columns.
    pub fn partition_by(&self) -> &[String] {
        &self.state.partition_by
    }

    /// A table property as it stands in the metadata.
    pub fn property(&self, name: &str) -> Option<&str> {
        self.state
            .metadata
            .configuration()
            .get(name)
            .map(String::as_str)
    }

    /// The id that the table was created with; a table made again has another one.
    pub fn id(&self) -> &str {
        self.state.metadata.id()
    }

    /// The files of this version, ordered by path.
    pub fn files(&self) -> impl Iterator<Item = &DataFile> {
        self.state.files.values()
    }

    /// One file of this version.
    pub fn file(&self, path: &str) -> Option<&DataFile> {
        self.state.files.get(path)
    }

    /// How many files this version has.
    pub fn file_count(&self) -> usize {
        self.state.files.len()
    }

    /// Live rows: physical rows less deleted ones.
    pub fn row_count(&self) -> i64 {
        self.files().map(DataFile::live_rows).sum()
    }

    /// The newest version that `app_id` committed.
    pub fn transaction(&self, app_id: &str) -> Option<i64> {
        self.state.transactions.get(app_id).copied()
    }

    /// The newest version of every application.
    pub fn transactions(&self) -> &BTreeMap<String, i64> {
        &self.state.transactions
    }

    /// Files that may hold a row inside all of `ranges`; a file without statistics of a column is one.
    pub fn candidates(&self, ranges: &[ColumnRange]) -> Vec<&DataFile> {
        let may_hold = |file: &&DataFile| {
            ranges.iter().all(|range| {
                file.range(&range.column)
                    .is_none_or(|known| range.meets(known))
            })
        };
        self.files().filter(may_hold).collect()
    }

    /// Reads the live rows of `file` in batches: `columns` in that order, in the types of the table; a column that the file lacks is NULL.
    pub fn scan(&self, file: &DataFile, columns: &[String]) -> Result<FileScan> {
        let deleted = self.deleted_rows(file)?;
        read::scan(
            &self.root,
            file,
            &self.state.schema,
            &self.state.partition_by,
            columns,
            deleted,
        )
    }

    /// Reads rows by physical number (ascending, from 0), deleted or not; same columns as [`Table::scan`].
    pub fn take(&self, file: &DataFile, columns: &[String], rows: &[u64]) -> Result<RecordBatch> {
        read::take(
            &self.root,
            file,
            &self.state.schema,
            &self.state.partition_by,
            columns,
            rows,
        )
    }

    /// The physical numbers of the deleted rows of `file`.
    pub fn deleted_rows(&self, file: &DataFile) -> Result<RoaringTreemap> {
        match &file.add.deletion_vector {
            None => Ok(RoaringTreemap::new()),
            Some(vector) => deletion_vector::read(&self.root, vector),
        }
    }

    /// Writes data files of `schema` (the table's, or a wider one that the same commit sets) that no log entry names yet; split by partition.
    ///
    /// If the program stops inside, nothing names the files and vacuum takes them.
    pub async fn write_rows(&self, schema: SchemaRef, batches: &[RecordBatch]) -> Result<Vec<Add>> {
        let mut writer = self.row_writer(schema)?;
        for batch in batches {
            writer.write(batch).await?;
        }
        writer.close().await
    }

    /// The same, fed batch by batch.
    pub fn row_writer(&self, schema: SchemaRef) -> Result<RowWriter> {
        let schema = self.as_stored(&schema)?;
        self.writer(self.log_store.object_store(None), schema)
    }

    /// Writes change data files: the table's columns and `_change_type STRING` at the end.
    pub async fn write_change_rows(&self, batches: &[RecordBatch]) -> Result<Vec<AddCDCFile>> {
        let mut fields: Vec<_> = self.state.schema.fields().iter().cloned().collect();
        fields.push(Arc::new(Field::new("_change_type", DataType::Utf8, true)));
        let store = PrefixStore::new(self.log_store.object_store(None), CHANGE_FOLDER);
        let mut writer = self.writer(Arc::new(store), Arc::new(Schema::new(fields)))?;
        for batch in batches {
            writer.write(batch).await?;
        }
        Ok(write::change_files(writer.close().await?, CHANGE_FOLDER))
    }

    fn writer(&self, store: Arc<dyn ObjectStore>, schema: SchemaRef) -> Result<RowWriter> {
        let indexed = self
            .property("delta.dataSkippingNumIndexedCols")
            .and_then(|text| text.parse().ok());
        let indexed = match indexed {
            Some(-1) => DataSkippingNumIndexedCols::AllColumns,
            Some(count) => {
                DataSkippingNumIndexedCols::NumColumns(u64::try_from(count).unwrap_or(32))
            }
            None => DataSkippingNumIndexedCols::NumColumns(32),
        };
        RowWriter::new(
            self.root.clone(),
            store,
            schema,
            &self.state.partition_by,
            indexed,
        )
    }

    /// The schema as it will read back: through Delta's own types.
    fn as_stored(&self, schema: &SchemaRef) -> Result<SchemaRef> {
        match *schema == self.state.schema {
            true => Ok(Arc::clone(schema)),
            false => state::arrow_schema(&self.root, &commit::delta_schema(schema)?),
        }
    }

    /// The actions that delete physical rows (path -> row numbers), one new vector file for all. A file that loses its last row gets only its `Remove`.
    ///
    /// Rows that are deleted already are left out; a file with no other is not touched.
    pub async fn delete_rows(
        &self,
        deleted: &BTreeMap<String, RoaringTreemap>,
    ) -> Result<(Vec<Remove>, Vec<Add>)> {
        let (mut removes, mut kept, mut vectors) = (Vec::new(), Vec::new(), Vec::new());
        for (path, rows) in deleted {
            let file = self
                .file(path)
                .ok_or_else(|| self.bug(format!("no such file: {path}")))?;
            let old = self.deleted_rows(file)?;
            let all = &old | rows;
            if all.len() == old.len() {
                continue;
            }
            if all.max().is_some_and(|row| row >= file.rows.unsigned_abs()) {
                return Err(self.bug(format!("row beyond the end of {path}")));
            }
            removes.push(self.remove_of(file, true));
            if all.len() < file.rows.unsigned_abs() {
                kept.push(file);
                vectors.push(all);
            }
        }
        if vectors.is_empty() {
            return Ok((removes, Vec::new()));
        }
        if self.property("delta.enableDeletionVectors") != Some("true") {
            return Err(self.bug("deletion vectors are off".into()));
        }
        let encoded = deletion_vector::encode(&vectors)?;
        self.put(&encoded.name, encoded.bytes).await?;
        let adds = kept
            .into_iter()
            .zip(encoded.vectors)
            .map(|(file, vector)| Add {
                stats: Some(stats::with_wide_bounds(
                    file.add.stats.as_deref(),
                    file.rows,
                )),
                deletion_vector: Some(vector),
                data_change: true,
                ..file.add.clone()
            });
        Ok((removes, adds.collect()))
    }

    /// The action that takes a whole file out of the table.
    pub fn remove_of(&self, file: &DataFile, data_change: bool) -> Remove {
        Remove {
            path: file.path.clone(),
            data_change,
            deletion_timestamp: Some(SystemClock.now() / 1000),
            extended_file_metadata: Some(true),
            partition_values: Some(file.add.partition_values.clone()),
            size: Some(file.size),
            tags: file.add.tags.clone(),
            deletion_vector: file.add.deletion_vector.clone(),
            base_row_id: None,
            default_row_commit_version: None,
        }
    }

    async fn put(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        let path = object_store::path::Path::from(name);
        let stored = self
            .log_store
            .object_store(None)
            .put(&path, bytes.into())
            .await;
        stored.map(|_| ()).map_err(|error| {
            Error::unavailable(format!("table {}: {name}: {error}", self.root.display()))
        })
    }

    /// Writes the next log entry and applies it to this state.
    ///
    /// All files that it names must be on disk. If the program stops inside, the entry is there whole or not at all. An error means
    /// that nothing was committed, unless it says that the outcome is unclear: then open the table again and look at its transaction.
    pub async fn commit(&mut self, commit: TableCommit) -> Result<CommitOutcome> {
        self.check_append_only(&commit)?;
        let actions = commit::actions(&self.state, commit)?;
        let bytes = commit::to_bytes(&actions)?;
        // What cannot be applied must not be written.
        let version = self.state.version + 1;
        self.state.check_apply(&self.root, &actions)?;
        let next = u64::try_from(version).map_err(|_| self.bug("version below 0".into()))?;
        let entry = CommitOrBytes::LogBytes(bytes.clone());
        if let Err(error) = self
            .log_store
            .write_commit_entry(next, entry, Uuid::new_v4())
            .await
        {
            match self.entry_at(next).await {
                Ok(Some(found)) if found == bytes => self.sync_log()?,
                Ok(Some(_)) => return Ok(CommitOutcome::Conflict),
                Ok(None) => return Err(write_error(&self.root, &error)),
                Err(again) => {
                    return Err(write_error(&self.root, &error)
                        .context(format!("outcome unclear ({})", again.message())));
                }
            }
        }
        self.state.apply(&self.root, version, actions)?;
        Ok(CommitOutcome::Committed(Version(version)))
    }

    fn check_append_only(&self, commit: &TableCommit) -> Result<()> {
        let append_only = self.property("delta.appendOnly") == Some("true");
        match commit
            .removes
            .iter()
            .find(|remove| append_only && remove.data_change)
        {
            None => Ok(()),
            Some(_) => Err(Error::settings(format!(
                "table {} has delta.appendOnly set, so no row of it can be replaced",
                self.root.display()
            ))),
        }
    }

    fn sync_log(&self) -> Result<()> {
        let folder = self.root.join(log::LOG);
        durable_store::sync_folder(&folder).map_err(|error| log::unavailable(&folder, &error))
    }

    async fn entry_at(&self, version: u64) -> Result<Option<bytes::Bytes>> {
        let entry = self.log_store.read_commit_entry(version).await;
        entry.map_err(|error| state::library(&self.root, &error))
    }

    /// The actions of one log entry; an error if it is gone.
    pub async fn commit_actions(&self, version: Version) -> Result<Vec<Action>> {
        let number = u64::try_from(version.0)
            .map_err(|_| self.bug(format!("no such version: {version}")))?;
        let bytes = self.entry_at(number).await?.ok_or_else(|| {
            Error::disagreement(format!(
                "table {}: log entry of version {version} is gone",
                self.root.display()
            ))
            .hint("it was cleaned up or never was; rebuild what depends on it")
        })?;
        commit::from_bytes(&bytes).map_err(|error| {
            Error::disagreement(format!(
                "table {}: log entry of version {version} cannot be read: {error}",
                self.root.display()
            ))
        })
    }

    /// The newest version whose entry carries this transaction; `None` if no entry that is still there does.
    pub async fn version_of_transaction(&self, txn: &AppTransaction) -> Result<Option<Version>> {
        for version in (0..=self.state.version).rev() {
            let number = u64::try_from(version).map_err(|_| self.bug("version below 0".into()))?;
            let Some(bytes) = self.entry_at(number).await? else {
                return Ok(None);
            };
            let actions = commit::from_bytes(&bytes).map_err(|error| self.bug(error))?;
            let carries = |action: &Action| matches!(action, Action::Txn(found) if found.app_id == txn.app_id && found.version == txn.version);
            if actions.iter().any(carries) {
                return Ok(Some(Version(version)));
            }
        }
        Ok(None)
    }

    /// Writes a log checkpoint of this version and cleans old log entries up by the table's retention; off the hot path.
    ///
    /// If the program stops inside, the log reads as before. Damaged checkpoints are put aside first.
    pub async fn checkpoint_log(&self) -> Result<()> {
        log::set_aside(&self.store.hidden())?;
        self.store.hide([]);
        let fail = |error: DeltaTableError| state::library(&self.root, &error);
        let number =
            u64::try_from(self.state.version).map_err(|_| self.bug("version below 0".into()))?;
        let mut table = DeltaTable::new(Arc::clone(&self.log_store));
        table.load_version(number).await.map_err(fail)?;
        deltalake::checkpoints::create_checkpoint(&table, None)
            .await
            .map_err(fail)?;
        deltalake::checkpoints::cleanup_metadata(&table, None)
            .await
            .map_err(fail)?;
        Ok(())
    }

    fn bug(&self, message: String) -> Error {
        Error::bug(format!("table {}: {message}", self.root.display()))
    }
}

fn absolute(root: &Path) -> Result<PathBuf> {
    std::path::absolute(root).map_err(|error| log::unavailable(root, &error))
}

fn exists(root: &Path) -> Error {
    Error::disagreement(format!("there is a table already: {}", root.display()))
        .hint("open it, or choose another folder")
}

fn write_error(root: &Path, error: &TransactionError) -> Error {
    Error::unavailable(format!(
        "table {}: log entry was not written: {error}",
        root.display()
    ))
    .hint("the disk must be writable and know hard links")
}

fn connect(root: &Path) -> Result<(DurableStore, LogStoreRef)> {
    let url = Url::from_directory_path(root)
        .map_err(|()| Error::bug(format!("path is not absolute: {}", root.display())))?;
    let store = DurableStore::new(root);
    let log_store = DeltaTableBuilder::from_url(url.clone())
        .and_then(|builder| {
            builder
                .with_storage_backend(Arc::new(store.clone()), url)
                .build_storage()
        })
        .map_err(|error| state::library(root, &error))?;
    Ok((store, log_store))
}

fn check_partitions(spec: &TableSpec) -> Result<()> {
    for column in &spec.partition_by {
        let field = spec.schema.field_with_name(column).map_err(|_| {
            Error::settings(format!(
                "partition_by names a column that the table lacks: {column}"
            ))
        })?;
        let kind = field.data_type();
        if kind.is_nested()
            || matches!(
                kind,
                DataType::Binary | DataType::Float32 | DataType::Float64
            )
        {
            return Err(Error::settings(format!(
                "partition column {column} cannot be of type {kind}"
            )));
        }
    }
    if spec.partition_by.len() >= spec.schema.fields().len() {
        return Err(Error::settings(
            "partition_by leaves no column for the data files",
        ));
    }
    Ok(())
}

fn properties(spec: &TableSpec) -> BTreeMap<String, String> {
    let mut properties = BTreeMap::from([
        ("delta.checkpointInterval".to_owned(), "100".to_owned()),
        (
            "delta.dataSkippingNumIndexedCols".to_owned(),
            INDEXED_COLUMNS.to_string(),
        ),
    ]);
    if spec.change_data_feed {
        properties.insert("delta.enableChangeDataFeed".into(), "true".into());
    }
    if spec.deletion_vectors {
        properties.insert("delta.enableDeletionVectors".into(), "true".into());
    }
    properties.extend(spec.properties.clone());
    properties
}

#[cfg(test)]
#[path = "delta/tests.rs"]
mod tests;
