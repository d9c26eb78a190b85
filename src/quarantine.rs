//! The quarantine table beside bronze: refused records with their reason and position.
//!
//! A reject is there exactly once, by the same rules as a row in bronze; the table is made when the first reject comes.
//! What is refused, and what happens then, is left to others.

use crate::change::{BATCH_ID, BatchId, FILE_PATH, FILE_ROW, Reject};
use crate::clock::Micros;
use crate::crash::CrashSwitch;
use crate::delta::{
    self, AppTransaction, Append, AppendCommit, ColumnRange, FileCount, Table, TableSpec,
};
use crate::error::{Error, Result};
use arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{
    DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType,
};
use deltalake::kernel::Add;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const COLUMNS: [&str; 9] = [
    FILE_PATH,
    FILE_ROW,
    "_file_line",
    "_byte_offset",
    "_reason",
    "_detail",
    "_raw",
    BATCH_ID,
    "_quarantined_at",
];

/// Texts of rejects that become rows at once.
const STRETCH_BYTES: usize = 64 << 20;

/// One row of quarantine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantinedRecord {
    /// Relative to the landing folder.
    pub file_path: String,
    /// From 1.
    pub file_row: i64,
    /// The physical line, from 1.
    pub file_line: Option<i64>,
    /// Where the record starts in the unpacked file.
    pub byte_offset: Option<i64>,
    /// A word of `RejectReason`.
    pub reason: String,
    /// Names column and value.
    pub detail: String,
    /// The record as delivered.
    pub raw: String,
    /// The batch that refused it.
    pub batch_id: i64,
    /// Microseconds since the epoch.
    pub quarantined_at: Micros,
}

/// The quarantine table; made when the first reject comes.
#[derive(Debug)]
pub struct QuarantineTable {
    path: PathBuf,
    table: Option<Table>,
}

impl QuarantineTable {
    /// Opens the table if it is there; makes nothing.
    pub async fn open(path: &Path) -> Result<QuarantineTable> {
        let table = Table::open(path).await?;
        if let Some(table) = table.as_ref().filter(|table| table.schema() != schema()) {
            return Err(Error::settings(format!(
                "table {} is no quarantine table: it has other columns",
                table.root().display()
            )));
        }
        Ok(QuarantineTable {
            path: path.to_path_buf(),
            table,
        })
    }

    /// The table below, if it was made.
    pub fn table(&self) -> Option<&Table> {
        self.table.as_ref()
    }

    /// The table below, for upkeep.
    pub fn table_mut(&mut self) -> Option<&mut Table> {
        self.table.as_mut()
    }

    /// Appends the rejects of one batch exactly once; the earlier ones of `replaced` files leave in the same commit. `None` if there is nothing to do.
    ///
    /// If the program stops inside, the rejects are there all or none.
    pub async fn append(
        &mut self,
        batch: BatchId,
        txn: AppTransaction,
        rejects: &BTreeMap<String, Vec<Reject>>,
        replaced: &BTreeSet<String>,
        now: Micros,
    ) -> Result<Option<AppendCommit>> {
        let nothing_new = rejects.values().all(Vec::is_empty);
        if nothing_new && (replaced.is_empty() || self.table.is_none()) {
            return Ok(None);
        }
        let table = match &mut self.table {
            Some(table) => table,
            none => none.insert(create(&self.path).await?),
        };
        let held = table.transaction(&txn.app_id);
        let written = match held.is_some_and(|version| version >= txn.version) {
            true => Vec::new(),
            false => write(table, batch, rejects, now).await?,
        };
        let append = Append {
            batch,
            txn: &txn,
            schema: schema(),
            rows: &[],
            written,
            replaced,
            before_commit: None,
        };
        delta::append_once(table, &append, &CrashSwitch::default())
            .await
            .map(Some)
    }

    /// Refused records in the order of (file, row), of one file or of all, at most `limit`.
    pub fn rows(
        &self,
        file_path: Option<&str>,
        limit: Option<usize>,
    ) -> Result<Vec<QuarantinedRecord>> {
        let mut records = Vec::new();
        let Some(table) = &self.table else {
            return Ok(records);
        };
        let columns: Vec<String> = COLUMNS.map(str::to_owned).to_vec();
        let paths = file_path.map(|path| StringArray::from(vec![path]));
        let range: Vec<ColumnRange> = paths
            .iter()
            .filter_map(|paths| ColumnRange::of(FILE_PATH, paths))
            .collect();
        for file in table.candidates(&range) {
            for scanned in table.scan(file, &columns)? {
                let read = from_rows(&scanned?.rows)?;
                records.extend(
                    read.into_iter()
                        .filter(|record| file_path.is_none_or(|path| record.file_path == path)),
                );
                keep_first(&mut records, limit, 2);
            }
        }
        keep_first(&mut records, limit, 1);
        Ok(records)
    }

    /// Hands every refused record on, in no order, one after the other.
    pub fn for_each(&self, taken: &mut dyn FnMut(QuarantinedRecord) -> Result<()>) -> Result<()> {
        let Some(table) = &self.table else {
            return Ok(());
        };
        let columns: Vec<String> = COLUMNS.map(str::to_owned).to_vec();
        for file in table.files() {
            for scanned in table.scan(file, &columns)? {
                from_rows(&scanned?.rows)?
                    .into_iter()
                    .try_for_each(&mut *taken)?;
            }
        }
        Ok(())
    }

    /// What the table holds of each landing file.
    pub fn counts_by_file(&self) -> Result<BTreeMap<String, FileCount>> {
        self.table
            .as_ref()
            .map_or_else(|| Ok(BTreeMap::new()), delta::counts_by_file)
    }
}

/// Sorts and cuts once there are more than `slack` times as many records as wanted.
fn keep_first(records: &mut Vec<QuarantinedRecord>, limit: Option<usize>, slack: usize) {
    let limit = limit.unwrap_or(usize::MAX);
    if slack == 1 || records.len() > limit.saturating_mul(slack) {
        records.sort_by(|a, b| (&a.file_path, a.file_row).cmp(&(&b.file_path, b.file_row)));
        records.truncate(limit);
    }
}

fn schema() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let kinds = [
        DataType::Utf8,
        DataType::Int64,
        DataType::Int64,
        DataType::Int64,
        DataType::Utf8,
        DataType::Utf8,
        DataType::Utf8,
        DataType::Int64,
        time,
    ];
    let fields: Vec<Field> = COLUMNS
        .iter()
        .zip(kinds)
        .map(|(name, kind)| Field::new(*name, kind, true))
        .collect();
    Arc::new(Schema::new(fields))
}

async fn create(path: &Path) -> Result<Table> {
    let spec = TableSpec {
        schema: schema(),
        partition_by: Vec::new(),
        change_data_feed: false,
        deletion_vectors: false,
        name: None,
        description: Some("Records of landing files that were refused, and why.".into()),
        properties: BTreeMap::new(),
    };
    Table::create(path, &spec).await
}

/// Writes rejects into data files that no log entry names yet, some at a time: an array cannot hold the texts of any number.
async fn write(
    table: &Table,
    batch: BatchId,
    rejects: &BTreeMap<String, Vec<Reject>>,
    now: Micros,
) -> Result<Vec<Add>> {
    let all: Vec<(&str, &Reject)> = rejects
        .iter()
        .flat_map(|(path, rejects)| rejects.iter().map(|reject| (path.as_str(), reject)))
        .collect();
    let mut writer = table.row_writer(schema())?.of_rows(all.len());
    for some in stretches(&all, STRETCH_BYTES) {
        writer.write(&to_rows(batch, some, now)?).await?;
    }
    writer.close().await
}

/// Cuts rejects behind each with which their texts come to so many bytes.
fn stretches<'r>(
    all: &'r [(&'r str, &'r Reject)],
    bytes: usize,
) -> impl Iterator<Item = &'r [(&'r str, &'r Reject)]> {
    let mut held = 0;
    all.split_inclusive(move |(path, reject)| {
        held += path.len() + reject.detail.len() + reject.raw.len();
        let is_much = held >= bytes;
        if is_much {
            held = 0;
        }
        is_much
    })
}

fn to_rows(batch: BatchId, all: &[(&str, &Reject)], now: Micros) -> Result<RecordBatch> {
    let numbers = |of: fn(&Reject) -> Option<i64>| -> ArrayRef {
        Arc::new(
            all.iter()
                .map(|(_, reject)| of(reject))
                .collect::<Int64Array>(),
        )
    };
    let texts = |of: fn(&Reject) -> &str| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(
            all.iter().map(|(_, reject)| of(reject)),
        ))
    };
    let paths = StringArray::from_iter_values(all.iter().map(|(path, _)| path));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(paths),
        numbers(|reject| Some(reject.file_row)),
        numbers(|reject| reject.file_line),
        numbers(|reject| reject.byte_offset),
        texts(|reject| reject.reason.as_str()),
        texts(|reject| &reject.detail),
        texts(|reject| &reject.raw),
        Arc::new(Int64Array::from_value(batch.0, all.len())),
        Arc::new(TimestampMicrosecondArray::from_value(now, all.len()).with_timezone("UTC")),
    ];
    Ok(RecordBatch::try_new(schema(), columns)?)
}

fn from_rows(rows: &RecordBatch) -> Result<Vec<QuarantinedRecord>> {
    let text = |column: usize, row: usize| {
        let column = rows.column(column).as_string::<i32>();
        if column.is_valid(row) {
            column.value(row).to_owned()
        } else {
            String::new()
        }
    };
    let number = |column: usize, row: usize| {
        let column = rows.column(column).as_primitive::<Int64Type>();
        column.is_valid(row).then(|| column.value(row))
    };
    let required = |column: usize, row: usize| {
        number(column, row).ok_or_else(|| {
            Error::disagreement(format!("quarantine: a row has no {}", COLUMNS[column]))
        })
    };
    let times = rows.column(8).as_primitive::<TimestampMicrosecondType>();
    (0..rows.num_rows())
        .map(|row| {
            Ok(QuarantinedRecord {
                file_path: text(0, row),
                file_row: required(1, row)?,
                file_line: number(2, row),
                byte_offset: number(3, row),
                reason: text(4, row),
                detail: text(5, row),
                raw: text(6, row),
                batch_id: required(7, row)?,
                quarantined_at: times.value(row),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::{RejectReason, Version};

    fn reject(file_row: i64) -> Reject {
        Reject {
            file_row,
            file_line: Some(file_row * 2),
            byte_offset: None,
            reason: RejectReason::Malformed,
            detail: format!("column 3: row {file_row}"),
            raw: "{\"a\":".into(),
        }
    }

    fn rejects(files: &[(&str, std::ops::Range<i64>)]) -> BTreeMap<String, Vec<Reject>> {
        files
            .iter()
            .map(|(path, rows)| ((*path).to_owned(), rows.clone().map(reject).collect()))
            .collect()
    }

    fn txn(batch: i64) -> AppTransaction {
        AppTransaction {
            app_id: "orders/1/quarantine".into(),
            version: batch,
        }
    }

    async fn refuse(
        table: &mut QuarantineTable,
        batch: i64,
        files: &[(&str, std::ops::Range<i64>)],
        replaced: &[&str],
    ) -> Option<AppendCommit> {
        let replaced = replaced.iter().map(|path| (*path).to_owned()).collect();
        table
            .append(BatchId(batch), txn(batch), &rejects(files), &replaced, 77)
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn table_is_made_by_the_first_reject_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("q");
        let mut table = QuarantineTable::open(&path).await.unwrap();
        assert_eq!(refuse(&mut table, 1, &[], &["a"]).await, None);
        assert!(!path.exists() && table.rows(None, None).unwrap().is_empty());
        assert!(refuse(&mut table, 2, &[("a", 1..3)], &[]).await.is_some());
        assert_eq!(
            QuarantineTable::open(&path)
                .await
                .unwrap()
                .rows(None, None)
                .unwrap()
                .len(),
            2
        );
    }

    #[tokio::test]
    async fn same_batch_twice_is_there_once_and_a_replaced_file_leaves() {
        let folder = tempfile::tempdir().unwrap();
        let mut table = QuarantineTable::open(&folder.path().join("q"))
            .await
            .unwrap();
        let first = refuse(&mut table, 1, &[("a", 1..4), ("b", 1..3)], &[])
            .await
            .unwrap();
        let again = refuse(&mut table, 1, &[("a", 1..4), ("b", 1..3)], &[])
            .await
            .unwrap();
        assert!(!first.already_applied && again.already_applied);
        assert_eq!(table.table().unwrap().version(), Version(1));
        let _ = refuse(&mut table, 2, &[("a", 9..10)], &["a"]).await;
        let rows: Vec<(String, i64)> = table
            .rows(None, None)
            .unwrap()
            .into_iter()
            .map(|row| (row.file_path, row.file_row))
            .collect();
        assert_eq!(
            rows,
            [
                ("a".to_owned(), 9),
                ("b".to_owned(), 1),
                ("b".to_owned(), 2)
            ]
        );
        assert_eq!(table.counts_by_file().unwrap()["b"].rows, 2);
    }

    #[test]
    fn rejects_are_written_some_at_a_time() {
        let of_raw = |length: usize| Reject {
            detail: String::new(),
            raw: "x".repeat(length),
            ..reject(1)
        };
        let rejects = [of_raw(4), of_raw(0), of_raw(5), of_raw(30), of_raw(1)];
        let all: Vec<_> = rejects.iter().map(|reject| ("a", reject)).collect();
        let cut = |bytes: usize| stretches(&all, bytes).map(<[_]>::len).collect::<Vec<_>>();
        assert_eq!(cut(10), [3, 1, 1]);
        assert_eq!(cut(1), [1, 1, 1, 1, 1]);
        assert_eq!(cut(usize::MAX), [5]);
        assert!(stretches(&[], 10).next().is_none());
    }

    #[tokio::test]
    async fn rows_come_back_in_order_and_limited() {
        let folder = tempfile::tempdir().unwrap();
        let mut table = QuarantineTable::open(&folder.path().join("q"))
            .await
            .unwrap();
        let _ = refuse(&mut table, 1, &[("b", 1..50)], &[]).await;
        let _ = refuse(&mut table, 2, &[("a", 1..50)], &[]).await;
        let rows = table.rows(None, Some(3)).unwrap();
        assert_eq!(
            rows.iter().map(|row| row.file_row).collect::<Vec<_>>(),
            [1, 2, 3]
        );
        assert!(rows.iter().all(|row| row.file_path == "a"));
        let expected = QuarantinedRecord {
            file_path: "b".into(),
            file_row: 1,
            file_line: Some(2),
            byte_offset: None,
            reason: "malformed".into(),
            detail: "column 3: row 1".into(),
            raw: "{\"a\":".into(),
            batch_id: 1,
            quarantined_at: 77,
        };
        assert_eq!(table.rows(Some("b"), Some(1)).unwrap(), [expected]);
    }
}
