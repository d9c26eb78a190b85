//! The bronze table: the rows of landing files as they came, one micro-batch in one commit.
//!
//! One record of one file is there exactly once. Rows must have exactly the types of the table; a batch that does not fit is
//! refused before anything is committed. Which files make a batch, and what the rows mean, is left to others.

mod rows;

use crate::change::{BatchId, Version};
use crate::clock::Micros;
use crate::crash::{CrashPoint, CrashSwitch};
use crate::delta::{
    self, AppTransaction, Append, AppendCommit, FileCount, RowWriter, Table, TableSpec,
    VersionFiles,
};
use crate::error::{Error, Result};
use crate::parallel::{cores, in_parallel};
use crate::schema::TableSchema;
use arrow::datatypes::{Field, Fields, Schema, SchemaRef};
use deltalake::kernel::Add;
pub use rows::{FileSpan, LoadedRows, STRETCH_ROWS};
use rows::{is_loader_column, loader_columns, stretches, with_loader_columns};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};

/// Rows of a batch that are written at once go into several files where each has so many.
const FILE_ROWS_MIN: usize = 100_000;

/// Proof that a batch is in bronze.
pub type BronzeCommit = AppendCommit;

/// Writes rows of a micro-batch into data files ahead of the commit, before which no log names them; those of a large batch
/// before all of it is decoded.
#[derive(Debug)]
pub struct RowsAhead<'b> {
    bronze: &'b BronzeTable,
    batch: BatchId,
    loaded_at: Micros,
}

/// Writes such rows.
pub struct AheadWriter {
    writer: RowWriter,
    schema: SchemaRef,
    batch: BatchId,
    loaded_at: Micros,
    /// Its own, since the one that the loader runs on waits for the batch.
    runtime: Runtime,
}

impl<'b> RowsAhead<'b> {
    /// For a batch of `bronze` that is loaded at this time.
    pub fn new(bronze: &'b BronzeTable, batch: BatchId, loaded_at: Micros) -> Self {
        RowsAhead {
            bronze,
            batch,
            loaded_at,
        }
    }

    /// Begins a data file for rows of `schema`, which holds all source columns of the table and perhaps more.
    pub fn writer(&self, schema: &TableSchema) -> Result<AheadWriter> {
        self.writer_of(schema, usize::MAX)
    }

    /// The same for no more than so many rows.
    fn writer_of(&self, schema: &TableSchema, rows_max: usize) -> Result<AheadWriter> {
        let schema = self.bronze.widened(schema)?;
        let runtime = Builder::new_current_thread().build().map_err(|error| {
            Error::unavailable(format!("rows cannot be written ahead: {error}"))
        })?;
        Ok(AheadWriter {
            writer: self
                .bronze
                .table
                .row_writer(Arc::clone(&schema))?
                .of_rows(rows_max),
            schema,
            batch: self.batch,
            loaded_at: self.loaded_at,
            runtime,
        })
    }

    /// Writes rows of landing files, each of which stands in them once, into data files.
    ///
    /// Must not be called where tokio runs.
    pub fn write(&self, schema: &TableSchema, loaded: Vec<LoadedRows>) -> Result<Vec<Add>> {
        let mut paths = BTreeSet::new();
        for file in loaded.iter().flat_map(|loaded| &loaded.files) {
            if !paths.insert(file.path.as_str()) {
                return Err(Error::bug(format!(
                    "file stands twice in batch {}: {}",
                    self.batch, file.path
                )));
            }
        }
        let rows: usize = loaded.iter().map(|loaded| loaded.file_rows.len()).sum();
        let stretches = stretches(loaded);
        let files = (rows / FILE_ROWS_MIN).clamp(1, cores());
        let per_file = stretches.len().div_ceil(files).max(1);
        let parts: Vec<_> = stretches.chunks(per_file).collect();
        let written = in_parallel(parts.len(), |part| self.write_file(schema, parts[part]))?;
        Ok(written.into_iter().flatten().collect())
    }

    /// Writes one data file, or more where its rows are for several partitions.
    fn write_file(&self, schema: &TableSchema, stretches: &[Vec<LoadedRows>]) -> Result<Vec<Add>> {
        let loaded = stretches.iter().flatten();
        let rows = loaded.map(|loaded| loaded.file_rows.len()).sum();
        let mut writer = self.writer_of(schema, rows)?;
        for stretch in stretches {
            if let Some(joined) = LoadedRows::joined(stretch.clone())? {
                writer.write(&joined)?;
            }
        }
        writer.close()
    }

    /// Takes data files away that no commit will name; one that stays is left to vacuum.
    pub fn discard(&self, adds: &[Add]) {
        for add in adds {
            let _ = std::fs::remove_file(self.bronze.table.root().join(&add.path));
        }
    }
}

impl AheadWriter {
    /// Takes rows of landing files. Must not be called where tokio runs.
    pub fn write(&mut self, loaded: &LoadedRows) -> Result<()> {
        let rows = with_loader_columns(loaded, &self.schema, self.batch, self.loaded_at)?;
        self.runtime.block_on(self.writer.write(&rows))
    }

    /// Finishes the data files; they are on disk before a log entry of the table that is written later.
    pub fn close(self) -> Result<Vec<Add>> {
        self.runtime.block_on(self.writer.close())
    }
}

/// The bronze table.
#[derive(Debug)]
pub struct BronzeTable {
    table: Table,
}

impl BronzeTable {
    /// Opens bronze; `None` if there is certainly no table. A table without the loader's columns is an error.
    pub async fn open(path: &Path) -> Result<Option<BronzeTable>> {
        let Some(table) = Table::open(path).await? else {
            return Ok(None);
        };
        let schema = table.schema();
        for column in loader_columns() {
            let there = schema.field_with_name(column.name());
            if !there.is_ok_and(|field| field.data_type() == column.data_type()) {
                return Err(Error::settings(format!(
                    "table {} is no bronze table: it has no column {} of type {}",
                    path.display(),
                    column.name(),
                    column.data_type()
                ))
                .hint("choose another bronze path"));
            }
        }
        Ok(Some(BronzeTable { table }))
    }

    /// Creates bronze; an existing table is an error.
    pub async fn create(
        path: &Path,
        schema: &TableSchema,
        partition_by: &[String],
    ) -> Result<BronzeTable> {
        let mut fields = Vec::new();
        for field in schema.columns.fields() {
            refuse_loader_name(field)?;
            fields.push(Arc::clone(field));
        }
        fields.extend(loader_columns().map(Arc::new));
        let spec = TableSpec {
            schema: Arc::new(Schema::new(fields)),
            partition_by: partition_by.to_vec(),
            change_data_feed: false,
            deletion_vectors: false,
            name: None,
            description: Some("Rows of landing files as they came.".into()),
            properties: BTreeMap::new(),
        };
        Ok(BronzeTable {
            table: Table::create(path, &spec).await?,
        })
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
        let schema = self.table.schema();
        let columns: Fields = schema
            .fields()
            .iter()
            .filter(|field| !is_loader_column(field.name()))
            .cloned()
            .collect();
        TableSchema {
            columns: Arc::new(Schema::new(columns)),
        }
    }

    /// Appends one batch exactly once, together with the new columns of `schema`; the earlier rows of `replaced` files leave in the same commit.
    ///
    /// `schema` holds all source columns of the table and perhaps more; `written` are the data files with the rows of the
    /// batch, see [`RowsAhead`]. If the program stops inside, the batch is there whole or not at all.
    pub async fn append(
        &mut self,
        batch: BatchId,
        txn: AppTransaction,
        schema: &TableSchema,
        written: Vec<Add>,
        replaced: &BTreeSet<String>,
        crash: &CrashSwitch,
    ) -> Result<BronzeCommit> {
        let append = Append {
            batch,
            txn: &txn,
            schema: self.widened(schema)?,
            rows: &[],
            written,
            replaced,
            before_commit: Some(CrashPoint::BeforeBronzeCommit),
        };
        delta::append_once(&mut self.table, &append, crash).await
    }

    /// The columns of the table, then those of `schema` that it lacks.
    fn widened(&self, schema: &TableSchema) -> Result<SchemaRef> {
        let table = self.table.schema();
        let mut fields: Vec<_> = table.fields().iter().cloned().collect();
        for field in schema.columns.fields() {
            refuse_loader_name(field)?;
            match table.field_with_name(field.name()) {
                Err(_) => fields.push(Arc::new(field.as_ref().clone().with_nullable(true))),
                Ok(known) if delta::same_shape(known.data_type(), field.data_type()) => {}
                Ok(known) => {
                    return Err(Error::bug(format!(
                        "column {} of bronze is {} but the batch says {}",
                        field.name(),
                        known.data_type(),
                        field.data_type()
                    )));
                }
            }
        }
        for field in table
            .fields()
            .iter()
            .filter(|field| !is_loader_column(field.name()))
        {
            if schema.columns.index_of(field.name()).is_err() {
                return Err(Error::bug(format!(
                    "schema of the batch lacks a column of bronze: {}",
                    field.name()
                )));
            }
        }
        Ok(Arc::new(Schema::new(fields)))
    }

    /// What bronze holds of each landing file, from all its rows.
    pub fn counts_by_file(&self) -> Result<BTreeMap<String, FileCount>> {
        delta::counts_by_file(&self.table)
    }

    /// No batch ever came.
    pub fn is_new(&self) -> bool {
        self.table.version() == Version(0)
    }

    /// The newest batch that brought rows which are still there.
    pub fn last_batch(&self) -> Result<Option<BatchId>> {
        delta::last_batch(&self.table)
    }

    /// The files that a version added (new rows), copied (rows that stayed) and removed; an error if its log entry is gone.
    pub async fn files_of_version(&self, version: Version) -> Result<VersionFiles> {
        delta::files_of_version(&self.table, version).await
    }
}

fn refuse_loader_name(field: &Field) -> Result<()> {
    match is_loader_column(field.name()) {
        false => Ok(()),
        true => Err(Error::settings(format!(
            "a source column has the name of a loader's column: {}",
            field.name()
        ))
        .hint("rename the column at its source")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::{BATCH_ID, FILE_PATH, FILE_ROW, RESCUED_DATA};
    use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
    use arrow::datatypes::{DataType, Int64Type};
    use std::hash::{DefaultHasher, Hash, Hasher};

    fn source(columns: &[(&str, DataType)]) -> TableSchema {
        let fields: Vec<Field> = columns
            .iter()
            .map(|(name, kind)| Field::new(*name, kind.clone(), true))
            .collect();
        TableSchema {
            columns: Arc::new(Schema::new(fields)),
        }
    }

    fn one_column() -> TableSchema {
        source(&[("id", DataType::Int64)])
    }

    fn file(path: &str, ids: std::ops::Range<i64>) -> LoadedRows {
        let rescued: ArrayRef = Arc::new(StringArray::new_null(ids.clone().count()));
        let file_rows = (1..=ids.clone().count() as i64).collect();
        let ids: ArrayRef = Arc::new(ids.collect::<Int64Array>());
        let rows = RecordBatch::try_from_iter_with_nullable([
            ("id", ids, true),
            (RESCUED_DATA, rescued, true),
        ]);
        LoadedRows::of_file(path, 5_000_000, rows.unwrap(), file_rows)
    }

    fn txn(batch: i64) -> AppTransaction {
        AppTransaction {
            app_id: "orders/1/bronze".into(),
            version: batch,
        }
    }

    /// Appends a batch in the way of the loader.
    async fn append(
        bronze: &mut BronzeTable,
        txn: AppTransaction,
        schema: &TableSchema,
        files: &[LoadedRows],
        replaced: &BTreeSet<String>,
        crash: &CrashSwitch,
    ) -> Result<BronzeCommit> {
        let batch = BatchId(txn.version);
        let ahead = RowsAhead::new(bronze, batch, 9_000_000);
        let written = std::thread::scope(|scope| {
            let write = scope.spawn(|| ahead.write(schema, files.to_vec()));
            write.join().unwrap()
        })?;
        bronze
            .append(batch, txn, schema, written, replaced, crash)
            .await
    }

    async fn load(
        bronze: &mut BronzeTable,
        batch: i64,
        files: &[LoadedRows],
        replaced: &[&str],
    ) -> Result<BronzeCommit> {
        let replaced = replaced.iter().map(|path| (*path).to_owned()).collect();
        let schema = bronze.source_schema();
        let crash = CrashSwitch::default();
        append(bronze, txn(batch), &schema, files, &replaced, &crash).await
    }

    async fn new_bronze(folder: &Path) -> BronzeTable {
        BronzeTable::create(&folder.join("bronze"), &one_column(), &[])
            .await
            .unwrap()
    }

    /// Hash over (file, row, id, batch) of the rows of one landing file, and their number.
    fn hash_of(bronze: &BronzeTable, path: &str) -> (u64, usize) {
        let columns = [FILE_PATH, FILE_ROW, "id", BATCH_ID].map(str::to_owned);
        let mut rows = Vec::new();
        for file in bronze.table().files() {
            for scanned in bronze.table().scan(file, &columns).unwrap() {
                let batch = scanned.unwrap().rows;
                let number = |column: usize, row: usize| {
                    batch.column(column).as_primitive::<Int64Type>().value(row)
                };
                for row in 0..batch.num_rows() {
                    if batch.column(0).as_string::<i32>().value(row) == path {
                        rows.push((number(1, row), number(2, row), number(3, row)));
                    }
                }
            }
        }
        rows.sort_unstable();
        let mut hasher = DefaultHasher::new();
        rows.hash(&mut hasher);
        (hasher.finish(), rows.len())
    }

    #[test]
    fn joined_rows_know_their_files_and_a_file_in_parts_is_one() {
        let parts = vec![file("a", 0..2), file("a", 2..3), file("b", 5..6)];
        let joined = LoadedRows::joined(parts).unwrap().unwrap();
        let span = |path: &str, rows| FileSpan {
            path: path.into(),
            modified_at: 5_000_000,
            rows,
        };
        assert_eq!(joined.files, [span("a", 3), span("b", 1)]);
        let schema = Arc::new(Schema::new(
            [
                one_column().columns.fields().to_vec(),
                loader_columns().map(Arc::new).to_vec(),
            ]
            .concat(),
        ));
        let rows = with_loader_columns(&joined, &schema, BatchId(7), 9).unwrap();
        let paths = rows.column_by_name(FILE_PATH).unwrap().as_string::<i32>();
        assert_eq!(paths.iter().flatten().collect::<String>(), "aaab");
        let ids = rows
            .column_by_name("id")
            .unwrap()
            .as_primitive::<Int64Type>();
        assert_eq!(ids.values(), &[0, 1, 2, 5]);
    }

    #[tokio::test]
    async fn stretches_of_small_files_lose_no_row() {
        let folder = tempfile::tempdir().unwrap();
        let mut bronze = new_bronze(folder.path()).await;
        let files: Vec<LoadedRows> = (0..7)
            .map(|place| file(&format!("f{place}"), 0..STRETCH_ROWS as i64 / 3 + place))
            .collect();
        let lengths = stretches(files.clone())
            .iter()
            .map(Vec::len)
            .collect::<Vec<_>>();
        assert_eq!(lengths, [3, 3, 1]);
        let _commit = load(&mut bronze, 1, &files, &[]).await.unwrap();
        for (place, file) in files.iter().enumerate() {
            let (_, rows) = hash_of(&bronze, &format!("f{place}"));
            assert_eq!(rows, file.rows.num_rows());
        }
    }

    #[tokio::test]
    async fn batch_of_another_type_or_with_an_extra_column_is_refused_before_any_commit() {
        let folder = tempfile::tempdir().unwrap();
        let mut bronze = new_bronze(folder.path()).await;
        let rescued: ArrayRef = Arc::new(StringArray::new_null(1));
        let text: ArrayRef = Arc::new(StringArray::from(vec!["1"]));
        let id: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let wrong = [
            vec![("id", text.clone()), (RESCUED_DATA, rescued.clone())],
            vec![
                ("id", id.clone()),
                ("extra", text),
                (RESCUED_DATA, rescued.clone()),
            ],
            vec![("id", id.clone())],
            vec![("id", id.clone()), (RESCUED_DATA, rescued), (BATCH_ID, id)],
        ];
        for columns in wrong {
            let rows = RecordBatch::try_from_iter(columns).unwrap();
            let bad = LoadedRows::of_file("a", 0, rows, vec![1]);
            assert!(load(&mut bronze, 1, &[bad], &[]).await.is_err());
        }
        let mut short = file("a", 0..2);
        short.file_rows.pop();
        assert!(load(&mut bronze, 1, &[short], &[]).await.is_err());
        assert!(
            load(&mut bronze, 1, &[file("a", 0..1), file("a", 1..2)], &[])
                .await
                .is_err()
        );
        let schema = source(&[("id", DataType::Utf8)]);
        let crash = CrashSwitch::default();
        let nothing = BTreeSet::new();
        let files = [file("a", 0..1)];
        let refused = append(&mut bronze, txn(1), &schema, &files, &nothing, &crash).await;
        assert!(
            refused
                .unwrap_err()
                .message()
                .contains("column id of bronze is Int64")
        );
        let _ = load(&mut bronze, 1, &[file("a", 0..1)], &[]).await.unwrap();
        let reopened = BronzeTable::open(&folder.path().join("bronze"))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            (reopened.table().version(), reopened.table().row_count()),
            (Version(1), 1)
        );
    }

    #[tokio::test]
    async fn same_batch_from_two_handles_is_there_once() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = new_bronze(folder.path()).await;
        let mut second = BronzeTable::open(&folder.path().join("bronze"))
            .await
            .unwrap()
            .unwrap();
        let files = [file("a", 0..10)];
        let done = load(&mut first, 1, &files, &[]).await.unwrap();
        assert!(!done.already_applied);
        let again = load(&mut second, 1, &files, &[]).await.unwrap();
        assert!(again.already_applied);
        assert_eq!(
            (again.version, again.rows, &again.added),
            (done.version, 10, &done.added)
        );
        assert!(
            load(&mut first, 1, &files, &[])
                .await
                .unwrap()
                .already_applied
        );
        assert_eq!(second.table().row_count(), 10);
        assert_eq!(second.table().version(), Version(1));
    }

    #[tokio::test]
    async fn foreign_commit_in_between_costs_a_retry_and_doubles_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut ours = new_bronze(folder.path()).await;
        let mut foreign = BronzeTable::open(&folder.path().join("bronze"))
            .await
            .unwrap()
            .unwrap();
        let _ = load(&mut ours, 1, &[file("a", 0..10), file("b", 10..20)], &[])
            .await
            .unwrap();
        foreign.table_mut().reload().await.unwrap();
        let other = AppTransaction {
            app_id: "other".into(),
            version: 9,
        };
        let schema = foreign.source_schema();
        let (files, nothing) = ([file("c", 20..30)], BTreeSet::new());
        let crash = CrashSwitch::default();
        let _ = append(&mut foreign, other, &schema, &files, &nothing, &crash)
            .await
            .unwrap();
        let done = load(&mut ours, 2, &[file("a", 100..105)], &["a"])
            .await
            .unwrap();
        assert_eq!(
            (done.version, done.rows, done.rows_replaced),
            (Version(3), 5, 10)
        );
        let counts = ours.counts_by_file().unwrap();
        let rows: Vec<i64> = counts.values().map(|count| count.rows).collect();
        assert_eq!(rows, [5, 10, 10]);
    }

    #[tokio::test]
    async fn crash_before_the_log_entry_leaves_the_table_and_the_batch_can_come_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut bronze = new_bronze(folder.path()).await;
        let _ = load(&mut bronze, 1, &[file("a", 0..10)], &[])
            .await
            .unwrap();
        let before = hash_of(&bronze, "a");
        let schema = bronze.source_schema();
        let replaced = BTreeSet::from(["a".to_owned()]);
        let crash = CrashSwitch::stop_at(0);
        let files = [file("a", 50..53)];
        let stopped = append(&mut bronze, txn(2), &schema, &files, &replaced, &crash).await;
        assert!(stopped.is_err());
        assert_eq!(crash.reached(), [CrashPoint::BeforeBronzeCommit]);
        let mut bronze = BronzeTable::open(&folder.path().join("bronze"))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(
            (bronze.table().version(), hash_of(&bronze, "a")),
            (Version(1), before)
        );
        let _ = load(&mut bronze, 2, &files, &["a"]).await.unwrap();
        assert_eq!(hash_of(&bronze, "a").1, 3);
    }

    #[tokio::test]
    async fn replacement_keeps_the_rows_of_other_files() {
        let folder = tempfile::tempdir().unwrap();
        let mut bronze = new_bronze(folder.path()).await;
        let _ = load(
            &mut bronze,
            1,
            &[file("a", 0..10_000), file("b", 0..20_000), file("c", 0..5)],
            &[],
        )
        .await
        .unwrap();
        let _ = load(&mut bronze, 2, &[file("d", 0..7)], &[]).await.unwrap();
        let others = ["a", "c", "d"].map(|path| hash_of(&bronze, path));
        let done = load(&mut bronze, 3, &[file("b", 7..9)], &["b", "absent"])
            .await
            .unwrap();
        assert_eq!(
            (done.rows, done.rows_replaced, done.removed.len()),
            (2, 20_000, 1)
        );
        assert_eq!(["a", "c", "d"].map(|path| hash_of(&bronze, path)), others);
        assert_eq!(hash_of(&bronze, "b").1, 2);
        let files = bronze.files_of_version(done.version).await.unwrap();
        assert_eq!(
            (files.added.len(), files.copied.len(), files.removed.len()),
            (1, 1, 1)
        );
        assert_eq!(files.added[0].path, done.added[0]);
        let counts = bronze.counts_by_file().unwrap();
        assert_eq!(
            counts["b"],
            FileCount {
                rows: 2,
                batch: BatchId(3),
                modified_at: 5_000_000,
                loaded_at: Some(9_000_000)
            }
        );
        assert_eq!(bronze.last_batch().unwrap(), Some(BatchId(3)));
    }

    #[tokio::test]
    async fn replacement_by_nothing_takes_all_rows_out() {
        let folder = tempfile::tempdir().unwrap();
        let mut bronze = new_bronze(folder.path()).await;
        let _ = load(&mut bronze, 1, &[file("a", 0..10)], &[])
            .await
            .unwrap();
        let done = load(&mut bronze, 2, &[], &["a"]).await.unwrap();
        assert_eq!((done.rows_replaced, bronze.table().row_count()), (10, 0));
        assert_eq!(
            (
                bronze.last_batch().unwrap(),
                bronze.table().transaction(&txn(2).app_id)
            ),
            (None, Some(2))
        );
    }

    #[tokio::test]
    async fn new_column_comes_with_the_batch_and_behind_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let mut bronze = new_bronze(folder.path()).await;
        let _ = load(&mut bronze, 1, &[file("a", 0..3)], &[]).await.unwrap();
        let wider = source(&[("id", DataType::Int64), ("note", DataType::Utf8)]);
        let new = file_with_note("b", StringArray::from(vec!["x"]));
        let crash = CrashSwitch::default();
        let replaced = BTreeSet::from(["a".to_owned()]);
        let files = [new, file_with_note("a", StringArray::new_null(1))];
        let _ = append(&mut bronze, txn(2), &wider, &files, &replaced, &crash)
            .await
            .unwrap();
        assert_eq!(bronze.source_schema(), wider);
        let reopened = BronzeTable::open(&folder.path().join("bronze"))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(reopened.source_schema(), wider);
        assert_eq!(reopened.table().row_count(), 2);
    }

    fn file_with_note(path: &str, note: StringArray) -> LoadedRows {
        let id: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let rescued: ArrayRef = Arc::new(StringArray::new_null(1));
        let rows = RecordBatch::try_from_iter_with_nullable([
            ("id", id, true),
            ("note", Arc::new(note), true),
            (RESCUED_DATA, rescued, true),
        ]);
        LoadedRows::of_file(path, 0, rows.unwrap(), vec![1])
    }

    #[tokio::test]
    async fn foreign_tables_and_reserved_names_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let clash = source(&[("_FILE_path", DataType::Utf8)]);
        assert!(
            BronzeTable::create(&folder.path().join("clash"), &clash, &[])
                .await
                .is_err()
        );
        let path = folder.path().join("other");
        let spec = TableSpec {
            schema: one_column().columns,
            partition_by: vec![],
            change_data_feed: false,
            deletion_vectors: false,
            name: None,
            description: None,
            properties: BTreeMap::new(),
        };
        Table::create(&path, &spec).await.unwrap();
        let error = BronzeTable::open(&path).await.unwrap_err();
        assert!(error.message().contains("no bronze table"), "{error}");
    }
}
