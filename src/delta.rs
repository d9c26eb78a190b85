//! The files and the log of one Delta table on a local disk.
//!
//! A [`Table`] keeps the state of one version in memory (files with statistics and deletion vectors, application
//! transactions), fed once from the log and then from its own commits. A commit is one put-if-absent of the next log entry,
//! after everything that it names is synced to disk; if the version is taken, nothing is rebased: the caller reloads and
//! recomputes. What rows mean is left to bronze, quarantine and silver.

mod append;
mod bloom;
mod changes;
mod commit;
mod create;
mod data_file;
mod deletion_vector;
mod durable_store;
mod encoding;
mod files;
mod log;
mod maintain;
mod protocol;
mod read;
mod rewrite;
mod state;
mod stats;
mod write;

pub use append::{
    Append, AppendCommit, FileCount, VersionFiles, append_once, counts_by_file, files_of_version,
    last_batch,
};
pub use commit::{AppTransaction, CommitOutcome, Operation, TableCommit};
pub use create::TableSpec;
pub use log::{TailRepair, repair_tail};
pub use maintain::{
    CompactLimits, CompactReport, LogCleanReport, VacuumReport, checkpoint_log, compact,
    compaction_is_due, log_checkpoint_is_due, vacuum,
};
use read::Scanned;
pub use read::{Extent, FileScan, KeptScan, ScannedRows};
pub use rewrite::rewrite;
pub use state::DataFile;
pub use stats::{ColumnRange, StatValue};
pub use write::RowWriter;
pub(crate) use write::same_shape;

use crate::change::Version;
use crate::error::{Error, Result};
use arrow::array::RecordBatch;
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{Field, SchemaRef};
use deltalake::kernel::transaction::TransactionError;
use deltalake::kernel::{Action, Add, Remove};
use deltalake::logstore::{CommitOrBytes, LogStoreRef};
use deltalake::{DeltaTable, DeltaTableBuilder, DeltaTableError};
use durable_store::DurableStore;
use roaring::RoaringTreemap;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use url::Url;
use uuid::Uuid;

/// One Delta table at one version, in memory. Reading is synchronous and may be done from many threads.
#[derive(Debug)]
pub struct Table {
    root: PathBuf,
    store: DurableStore,
    log_store: LogStoreRef,
    state: state::TableState,
    /// The version of the newest usable log checkpoint, as far as this process knows.
    log_checkpoint: Option<i64>,
    /// In lower case, see [`Table::set_bloom_columns`].
    bloom_columns: Vec<String>,
}

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
        let log_checkpoint = usable.checkpoint;
        store.hide(usable.hide);
        let whole_log = listing.reaches_back_to_the_start();
        let state = state::TableState::load(&root, &log_store, whole_log).await?;
        Ok(Some(Table {
            root,
            store,
            log_store,
            state,
            log_checkpoint,
            bloom_columns: Vec::new(),
        }))
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

    /// Whether the table tells its readers what changed.
    pub fn has_change_data_feed(&self) -> bool {
        self.is_on(protocol::CHANGE_DATA_FEED)
    }

    /// Whether rows may be deleted by vector.
    pub fn has_deletion_vectors(&self) -> bool {
        self.is_on(protocol::DELETION_VECTORS)
    }

    fn is_on(&self, property: &str) -> bool {
        self.property(property)
            .is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// Turns the change data feed on or off and deletion vectors on, from this commit on; nothing else changes.
    pub async fn set_features(
        &mut self,
        change_data_feed: bool,
        deletion_vectors: bool,
    ) -> Result<CommitOutcome> {
        let mut commit = TableCommit::new(Operation::SetProperties);
        let mut set = |name: &str, on: bool| {
            commit.properties.insert(name.to_owned(), on.to_string());
        };
        if self.has_change_data_feed() != change_data_feed {
            set(protocol::CHANGE_DATA_FEED, change_data_feed);
        }
        // Turned off it would still be a feature that readers must know.
        if deletion_vectors && !self.has_deletion_vectors() {
            set(protocol::DELETION_VECTORS, true);
        }
        self.commit(commit).await
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

    /// A file as a log entry names it, for reading it although another version may have taken it out.
    pub fn data_file(&self, add: Add) -> Result<DataFile> {
        DataFile::new(&self.root, add, &self.state.schema)
    }

    /// A file as a log entry removed it, for reading the rows that left; an error if vacuum took it.
    pub fn removed_file(&self, remove: &Remove) -> Result<DataFile> {
        self.data_file(Add {
            path: remove.path.clone(),
            partition_values: remove.partition_values.clone().unwrap_or_default(),
            size: remove.size.unwrap_or_default(),
            deletion_vector: remove.deletion_vector.clone(),
            ..Add::default()
        })
    }

    /// How many files this version has.
    pub fn file_count(&self) -> usize {
        self.state.files.len()
    }

    /// Live rows: physical rows less deleted ones.
    pub fn row_count(&self) -> i64 {
        self.files().map(DataFile::live_rows).sum()
    }

    /// Deleted rows as a share of all rows in the files, 0 to 1.
    pub fn deleted_rows_ratio(&self) -> f64 {
        let (deleted, rows) = self.files().fold((0, 0), |(deleted, rows), file| {
            (deleted + file.deleted, rows + file.rows)
        });
        deleted as f64 / (rows as f64).max(1.0)
    }

    /// How many log entries a reader replays behind the newest log checkpoint.
    pub fn log_entries_since_checkpoint(&self) -> u64 {
        let last = self.log_checkpoint.unwrap_or(-1);
        u64::try_from(self.state.version - last).unwrap_or(0)
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
        self.scan_extent(file, Extent::Whole, columns)
    }

    /// Reads the live rows of a part of `file`, like [`Table::scan`].
    pub fn scan_extent(
        &self,
        file: &DataFile,
        extent: Extent,
        columns: &[String],
    ) -> Result<FileScan> {
        self.scanned(file, extent)?.live(columns)
    }

    /// Reads those of the live rows of a part of `file` that are `kept`, which has a bit for each of them; same columns as
    /// [`Table::scan`].
    pub fn scan_kept(
        &self,
        file: &DataFile,
        extent: Extent,
        columns: &[String],
        kept: BooleanBuffer,
    ) -> Result<KeptScan> {
        self.scanned(file, extent)?.kept(columns, kept)
    }

    /// The parts of `file` that can be read by themselves, in order, each with the number of its live rows. A file of one row
    /// group is one part, and is not looked into.
    pub fn extents(&self, file: &DataFile) -> Result<Vec<(Extent, usize)>> {
        match usize::try_from(file.rows) {
            Ok(rows) if rows > data_file::ROW_GROUP_ROWS => {
                self.scanned(file, Extent::Whole)?.extents()
            }
            _ => Ok(vec![(Extent::Whole, file.live_rows().max(0) as usize)]),
        }
    }

    fn scanned<'a>(&'a self, file: &'a DataFile, extent: Extent) -> Result<Scanned<'a>> {
        Ok(Scanned {
            root: &self.root,
            file,
            table: &self.state.schema,
            partition_by: &self.state.partition_by,
            extent,
            deleted: self.deleted_rows(file)?,
        })
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
            Some(vector) => {
                if let Some(rows) = file.deleted_rows.get() {
                    return Ok(RoaringTreemap::clone(rows));
                }
                let rows = Arc::new(deletion_vector::read(&self.root, vector)?);
                Ok(RoaringTreemap::clone(
                    file.deleted_rows.get_or_init(|| rows),
                ))
            }
        }
    }

    /// Writes the next log entry and applies it to this state.
    ///
    /// All files that it names must be written, through this table or to the disk. If the program stops inside, the entry is there whole or not at all. An error means
    /// that nothing was committed, unless it says that the outcome is unclear: then open the table again and look at its transaction.
    pub async fn commit(&mut self, commit: TableCommit) -> Result<CommitOutcome> {
        self.check_append_only(&commit)?;
        if let Some(schema) = &commit.schema {
            if !self.replaces_all(&commit) {
                self.check_extends(schema)?;
            }
            create::check_names(schema)?;
        }
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

    /// Whether no row that is there stays, so that the new ones may have any columns.
    fn replaces_all(&self, commit: &TableCommit) -> bool {
        let removed = commit.removes.iter().map(|remove| remove.path.as_str());
        let removed: std::collections::HashSet<&str> = removed.collect();
        self.files()
            .all(|file| removed.contains(file.path.as_str()))
    }

    /// The columns of the table must stand first and unchanged, and old rows must be able to lack the others.
    fn check_extends(&self, schema: &SchemaRef) -> Result<()> {
        let known = &self.state.schema;
        let refuse = |field: &Field, why: &str| {
            Err(Error::disagreement(format!(
                "table {}: column {} ({}) {why} in the new schema",
                self.root.display(),
                field.name(),
                field.data_type()
            )))
        };
        for (index, field) in known.fields().iter().enumerate() {
            let fits = schema.fields().get(index).is_some_and(|new| {
                new.name() == field.name() && same_shape(new.data_type(), field.data_type())
            });
            if !fits {
                return refuse(field, "does not stand in its place");
            }
        }
        match schema
            .fields()
            .iter()
            .skip(known.fields().len())
            .find(|new| !new.is_nullable())
        {
            Some(new) => refuse(new, "is new and must be nullable"),
            None => Ok(()),
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

    /// Writes a log checkpoint of this version.
    ///
    /// If the program stops inside, the log reads as before. Damaged checkpoints are put aside first.
    pub async fn checkpoint_log(&mut self) -> Result<()> {
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
        self.log_checkpoint = Some(self.state.version);
        Ok(())
    }

    fn bug(&self, message: String) -> Error {
        Error::bug(format!("table {}: {message}", self.root.display()))
    }
}

/// The path without links, so that one table has one name; what does not exist yet is taken as typed.
fn absolute(root: &Path) -> Result<PathBuf> {
    let root = std::path::absolute(root).map_err(|error| log::unavailable(root, &error))?;
    let mut missing = Vec::new();
    let mut there = root.as_path();
    loop {
        match std::fs::canonicalize(there) {
            Ok(path) => {
                return Ok(missing
                    .iter()
                    .rev()
                    .fold(path, |path, name| path.join(name)));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(log::unavailable(&root, &error)),
        }
        let (Some(above), Some(name)) = (there.parent(), there.file_name()) else {
            return Err(Error::settings(format!(
                "no such folder: {}",
                root.display()
            )));
        };
        missing.push(name);
        there = above;
    }
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

#[cfg(test)]
#[path = "delta/tests.rs"]
mod tests;
