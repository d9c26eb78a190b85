//! The state of one version in memory: schema, properties, files, application transactions.
//!
//! It is read once from the log through the library and then follows this process's own commits. A table that uses a feature
//! which the direct reader and writer here do not know is refused by name.

use super::log::unavailable;
use super::protocol;
use super::stats::{self, StatValue};
use crate::error::{Error, Result};
use arrow::array::{Array, AsArray, StructArray};
use arrow::datatypes::{Int64Type, SchemaRef};
use delta_kernel::engine::arrow_conversion::TryIntoArrow;
use delta_kernel::engine::arrow_data::EngineDataArrowExt;
use delta_kernel::schema::{DataType as KernelType, StructField, StructType};
use deltalake::kernel::{Action, Add, Metadata, Protocol, Remove};
use deltalake::logstore::LogStoreRef;
use deltalake::{DeltaTable, DeltaTableError};
use futures::TryStreamExt;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use roaring::RoaringTreemap;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use url::Url;

type Ranges = BTreeMap<String, (StatValue, StatValue)>;

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
    schema: SchemaRef,
    ranges: OnceLock<Arc<Ranges>>,
    /// Read once: an apply asks for it when it looks rows up and when it takes rows out.
    pub(super) deleted_rows: OnceLock<Arc<RoaringTreemap>>,
}

impl DataFile {
    pub(super) fn new(root: &Path, add: Add, schema: &SchemaRef) -> Result<DataFile> {
        if add.path.starts_with('/') || add.path.contains("://") {
            return Err(Error::disagreement(format!(
                "table {}: data file is outside of the table: {}",
                root.display(),
                add.path
            )));
        }
        let rows = match add.stats.as_deref().and_then(stats::record_count) {
            Some(rows) => rows,
            None => rows_in_footer(&root.join(&add.path))?,
        };
        Ok(DataFile {
            path: add.path.clone(),
            size: add.size,
            rows,
            deleted: add
                .deletion_vector
                .as_ref()
                .map_or(0, |vector| vector.cardinality),
            add,
            schema: Arc::clone(schema),
            ranges: OnceLock::new(),
            deleted_rows: OnceLock::new(),
        })
    }

    /// Rows that are not deleted.
    pub fn live_rows(&self) -> i64 {
        self.rows - self.deleted
    }

    /// The least and the greatest value of a top-level column, or bounds of them; `None` if they are not known (or all values are NULL).
    pub fn range(&self, column: &str) -> Option<&(StatValue, StatValue)> {
        let ranges = self.ranges.get_or_init(|| {
            let stats = self.add.stats.as_deref().unwrap_or_default();
            Arc::new(stats::parse_ranges(stats, &self.schema))
        });
        ranges.get(column)
    }
}

fn rows_in_footer(path: &Path) -> Result<i64> {
    let file = File::open(path).map_err(|error| unavailable(path, &error))?;
    let reader = ParquetRecordBatchReaderBuilder::try_new(file)
        .map_err(|error| Error::disagreement(format!("data file {}: {error}", path.display())))?;
    Ok(reader.metadata().file_metadata().num_rows())
}

/// Everything that one version says.
#[derive(Clone, Debug)]
pub(super) struct TableState {
    pub(super) version: i64,
    pub(super) protocol: Protocol,
    pub(super) metadata: Metadata,
    pub(super) schema: SchemaRef,
    pub(super) partition_by: Vec<String>,
    pub(super) files: BTreeMap<String, DataFile>,
    pub(super) transactions: BTreeMap<String, i64>,
}

impl TableState {
    /// Reads the newest version of a log that was found whole.
    ///
    /// `whole_log` says that every entry from version 0 on is there, and no log checkpoint is needed.
    pub(super) async fn load(
        root: &Path,
        log_store: &LogStoreRef,
        whole_log: bool,
    ) -> Result<TableState> {
        let mut table = DeltaTable::new(Arc::clone(log_store));
        table.load().await.map_err(|error| library(root, &error))?;
        let snapshot = table
            .snapshot()
            .map_err(|error| library(root, &error))?
            .snapshot();
        let version = i64::try_from(snapshot.version())
            .map_err(|_| Error::bug(format!("version too large: {}", snapshot.version())))?;
        let (protocol, metadata) = (snapshot.protocol().clone(), snapshot.metadata().clone());
        let transactions = match whole_log {
            true => transactions_of_entries(root, snapshot.version())?,
            false => transactions(root, log_store, snapshot.version()).await?,
        };
        let mut state = TableState::empty(root, version, protocol, metadata, transactions)?;
        let mut views = snapshot.file_views(log_store.as_ref(), None);
        while let Some(view) = views
            .try_next()
            .await
            .map_err(|error| library(root, &error))?
        {
            #[expect(deprecated, reason = "the one way to a whole action")]
            state.insert(root, view.add_action())?;
        }
        drop(views);
        Ok(state)
    }

    fn empty(
        root: &Path,
        version: i64,
        protocol: Protocol,
        metadata: Metadata,
        transactions: BTreeMap<String, i64>,
    ) -> Result<TableState> {
        let kernel = metadata
            .parse_schema()
            .map_err(|error| Error::disagreement(format!("table {}: {error}", root.display())))?;
        protocol::check(root, &protocol, &metadata, &kernel)?;
        let schema = arrow_schema(root, &kernel)?;
        let partition_by = metadata.partition_columns().to_vec();
        let files = BTreeMap::new();
        Ok(TableState {
            version,
            protocol,
            metadata,
            schema,
            partition_by,
            files,
            transactions,
        })
    }

    fn insert(&mut self, root: &Path, add: Add) -> Result<()> {
        let file = DataFile::new(root, add, &self.schema)?;
        match self.files.insert(file.path.clone(), file) {
            None => Ok(()),
            Some(twice) => Err(Error::disagreement(format!(
                "table {}: data file stands twice in one version: {}",
                root.display(),
                twice.path
            ))),
        }
    }

    /// Fails if a commit of these actions could not be applied.
    pub(super) fn check_apply(&self, root: &Path, actions: &[Action]) -> Result<()> {
        let mut removed = BTreeSet::new();
        for action in actions {
            match action {
                Action::Remove(remove) => {
                    self.check_remove(root, remove)?;
                    removed.insert(remove.path.as_str());
                }
                Action::Metadata(metadata) => {
                    let protocol = self.protocol.clone();
                    TableState::empty(
                        root,
                        self.version,
                        protocol,
                        metadata.clone(),
                        BTreeMap::new(),
                    )?;
                }
                Action::Add(_)
                | Action::Protocol(_)
                | Action::Cdc(_)
                | Action::Txn(_)
                | Action::CommitInfo(_)
                | Action::DomainMetadata(_) => {}
            }
        }
        let mut added = BTreeSet::new();
        for action in actions {
            let Action::Add(add) = action else { continue };
            let path = add.path.as_str();
            let there = self.files.contains_key(path) && !removed.contains(path);
            if there || !added.insert(path) {
                return Err(Error::bug(format!(
                    "table {}: file is added twice: {path}",
                    root.display()
                )));
            }
        }
        Ok(())
    }

    /// The state after a commit of these actions.
    pub(super) fn apply(&mut self, root: &Path, version: i64, actions: Vec<Action>) -> Result<()> {
        let mut adds = Vec::new();
        for action in actions {
            match action {
                Action::Remove(remove) => {
                    self.files.remove(&remove.path);
                }
                Action::Add(add) => adds.push(add),
                Action::Txn(txn) => {
                    self.transactions.insert(txn.app_id, txn.version);
                }
                Action::Protocol(protocol) => self.protocol = protocol,
                Action::Metadata(metadata) => self.set_metadata(root, metadata)?,
                Action::Cdc(_) | Action::CommitInfo(_) | Action::DomainMetadata(_) => {}
            }
        }
        for add in adds {
            self.insert(root, add)?;
        }
        self.version = version;
        Ok(())
    }

    fn set_metadata(&mut self, root: &Path, metadata: Metadata) -> Result<()> {
        let protocol = self.protocol.clone();
        let new = TableState::empty(root, self.version, protocol, metadata, BTreeMap::new())?;
        (self.metadata, self.schema, self.partition_by) =
            (new.metadata, new.schema, new.partition_by);
        for file in self.files.values_mut() {
            file.schema = Arc::clone(&self.schema);
            file.ranges = OnceLock::new();
        }
        Ok(())
    }

    fn check_remove(&self, root: &Path, remove: &Remove) -> Result<()> {
        match self.files.get(&remove.path) {
            Some(file) if file.add.deletion_vector == remove.deletion_vector => Ok(()),
            _ => Err(Error::bug(format!(
                "table {}: removed file is not in version {}: {}",
                root.display(),
                self.version,
                remove.path
            ))),
        }
    }
}

/// The Arrow schema of a Delta schema, as all rows here have it.
pub(super) fn arrow_schema(root: &Path, kernel: &StructType) -> Result<SchemaRef> {
    let schema: arrow::datatypes::Schema = kernel
        .try_into_arrow()
        .map_err(|error| Error::disagreement(format!("table {}: {error}", root.display())))?;
    Ok(Arc::new(schema))
}

/// The newest version of every application, in one replay.
/// Of entries alone: a search for one word in each, which costs a tenth of a replay.
fn transactions_of_entries(root: &Path, version: u64) -> Result<BTreeMap<String, i64>> {
    let mut found = BTreeMap::new();
    for version in 0..=version {
        let path = root
            .join(super::log::LOG)
            .join(format!("{version:020}.json"));
        let text = std::fs::read_to_string(&path).map_err(|error| unavailable(&path, &error))?;
        for line in text.lines().filter(|line| line.contains("\"txn\"")) {
            let action: serde_json::Value = serde_json::from_str(line).map_err(|error| {
                Error::disagreement(format!("log entry {}: {error}", path.display()))
            })?;
            let txn = &action["txn"];
            if let (Some(app_id), Some(version)) = (txn["appId"].as_str(), txn["version"].as_i64())
            {
                found.insert(app_id.to_string(), version);
            }
        }
    }
    Ok(found)
}

async fn transactions(
    root: &Path,
    log_store: &LogStoreRef,
    version: u64,
) -> Result<BTreeMap<String, i64>> {
    let engine = log_store.engine(None);
    let url = Url::from_directory_path(root)
        .map_err(|()| Error::bug(format!("path is not absolute: {}", root.display())))?;
    let found = tokio::task::spawn_blocking(move || -> Result<_, delta_kernel::Error> {
        let snapshot = delta_kernel::Snapshot::builder_for(url)
            .at_version(version)
            .build(engine.as_ref())?;
        let txn = StructType::try_new([
            StructField::nullable("appId", KernelType::STRING),
            StructField::nullable("version", KernelType::LONG),
        ])?;
        let schema = Arc::new(StructType::try_new([StructField::nullable("txn", txn)])?);
        let mut found = BTreeMap::new();
        for batch in snapshot
            .log_segment()
            .read_actions(engine.as_ref(), schema)?
        {
            let batch = batch?.actions.try_into_record_batch()?;
            if let Some(column) = batch
                .column_by_name("txn")
                .and_then(|column| column.as_struct_opt())
            {
                collect_transactions(column, &mut found);
            }
        }
        Ok(found)
    })
    .await
    .map_err(|error| Error::bug(format!("table {}: {error}", root.display())))?;
    found.map_err(|error| Error::disagreement(format!("table {}: {error}", root.display())))
}

/// Batches come newest first, rows within one entry in its order (an application stands once in an entry).
fn collect_transactions(column: &StructArray, found: &mut BTreeMap<String, i64>) {
    let names = column
        .column_by_name("appId")
        .and_then(|names| names.as_string_opt::<i32>());
    let versions = column
        .column_by_name("version")
        .and_then(|versions| versions.as_primitive_opt::<Int64Type>());
    let Some((names, versions)) = names.zip(versions) else {
        return;
    };
    for row in 0..column.len() {
        if column.is_valid(row) && names.is_valid(row) && versions.is_valid(row) {
            found
                .entry(names.value(row).to_owned())
                .or_insert(versions.value(row));
        }
    }
}

/// An error of the library, told apart by what can be done about it.
pub(super) fn library(root: &Path, error: &DeltaTableError) -> Error {
    let said = match error {
        // What it says besides is of the log, whatever file could not be written.
        DeltaTableError::Io { source } => with_causes(source),
        error => with_causes(error),
    };
    let message = format!("table {}: {said}", root.display());
    match error {
        DeltaTableError::ObjectStore { .. } | DeltaTableError::Io { .. } => {
            Error::unavailable(message)
        }
        _ => Error::disagreement(message),
    }
}

/// What an error says, and what its causes say besides: some name what was done and leave the reason to their cause.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use std::io;

    #[test]
    fn error_of_the_library_says_why() {
        let full = || io::Error::new(io::ErrorKind::StorageFull, "no space left");
        let of_store = object_store::Error::Generic {
            store: "local disk",
            source: full().into(),
        };
        let errors = [full().into(), io::Error::other(of_store).into()];
        let said = errors.map(|error| {
            let error = library(Path::new("/t"), &error);
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            error.message().to_string()
        });
        assert_eq!(said[0], "table /t: no space left");
        assert!(said[1].ends_with("no space left"), "{}", said[1]);
        assert!(!said[1].contains("log record"), "{}", said[1]);
    }
}
