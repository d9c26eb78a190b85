//! Writes the files of one apply and commits them: new rows, vectors or rewritten files, change rows, transaction.

use crate::crash::{CrashPoint, CrashSwitch};
use crate::delta::{AppTransaction, CommitOutcome, DataFile, Operation, Table, TableCommit};
use crate::error::{Error, Result};
use crate::settings::WriteMode;
use crate::silver::ApplyCounters;
use crate::silver::changes::{RowChanges, change_rows, widened};
use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::SchemaRef;
use deltalake::kernel::{Add, Remove};
use roaring::RoaringTreemap;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A file whose share of deleted rows would pass this is rewritten without them.
const DELETED_SHARE_MAX: f64 = 0.25;

/// Writes and commits `changes`; nothing but the transaction if there are none.
///
/// If the process stops before the log entry, files that no version names stay behind and silver is as before.
pub(super) async fn commit(
    table: &mut Table,
    changes: RowChanges,
    counters: &ApplyCounters,
    transaction: AppTransaction,
    mode: WriteMode,
    crash: &CrashSwitch,
) -> Result<Written> {
    let mut commit = TableCommit::new(Operation::Merge);
    commit.transaction = Some(transaction);
    let mut fresh = None;
    if !changes.is_empty() {
        let schema = changes.inserted.schema();
        if schema.fields() != table.schema().fields() {
            commit.schema = Some(schema.clone());
        }
        commit.adds = table
            .write_rows(
                schema.clone(),
                &[changes.inserted.clone(), changes.updated.clone()],
            )
            .await?;
        if let [add] = commit.adds.as_slice() {
            let rows = concat_batches(&schema, [&changes.inserted, &changes.updated])?;
            fresh = Some((add.path.clone(), rows));
        }
        let (removes, adds) = take_out(table, &schema, changes.leaving(), mode).await?;
        commit.removes = removes;
        commit.adds.extend(adds);
        commit.changes = table
            .write_change_rows(&feed_rows(table, &changes)?)
            .await?;
    }
    commit.metrics = metrics(counters, &changes, &commit);
    crash.reach(CrashPoint::BeforeSilverCommit)?;
    let outcome = table.commit(commit).await?;
    Ok(Written { outcome, fresh })
}

/// What was written.
pub(super) struct Written {
    /// How the commit ended.
    pub(super) outcome: CommitOutcome,
    fresh: Option<(String, RecordBatch)>,
}

impl Written {
    /// The data file of the new rows and all its rows in their order, where all went into one.
    pub(super) fn fresh(&self) -> Option<(&str, &RecordBatch)> {
        self.fresh
            .as_ref()
            .map(|(path, rows)| (path.as_str(), rows))
    }
}

/// Replaces every row of silver by the inserted rows of `changes`, in one commit.
pub(super) async fn replace(
    table: &mut Table,
    changes: RowChanges,
    counters: &ApplyCounters,
    transaction: AppTransaction,
    properties: BTreeMap<String, String>,
    crash: &CrashSwitch,
) -> Result<CommitOutcome> {
    let mut commit = TableCommit::new(Operation::Merge);
    commit.transaction = Some(transaction);
    commit.properties = properties;
    let schema = changes.inserted.schema();
    commit.schema = Some(schema.clone());
    commit.adds = table
        .write_rows(schema, std::slice::from_ref(&changes.inserted))
        .await?;
    commit.removes = table
        .files()
        .map(|file| table.remove_of(file, true))
        .collect();
    commit.metrics = metrics(counters, &changes, &commit);
    crash.reach(CrashPoint::BeforeSilverCommit)?;
    table.commit(commit).await
}

/// Takes rows out of their files: by vector, or by writing what stays of a file again.
async fn take_out(
    table: &Table,
    schema: &SchemaRef,
    leaving: BTreeMap<String, RoaringTreemap>,
    mode: WriteMode,
) -> Result<(Vec<Remove>, Vec<Add>)> {
    let (mut by_vector, mut removes, mut adds) = (BTreeMap::new(), Vec::new(), Vec::new());
    for (path, rows) in leaving {
        let file = table
            .file(&path)
            .ok_or_else(|| Error::bug(format!("file {path} left silver during an apply")))?;
        if mode == WriteMode::MergeOnRead && !is_mostly_gone(file, rows.len()) {
            by_vector.insert(path, rows);
            continue;
        }
        let staying = staying(table, file, &rows, schema)?;
        removes.push(table.remove_of(file, true));
        adds.extend(table.write_rows(schema.clone(), &staying).await?);
    }
    if !by_vector.is_empty() {
        let (vector_removes, vector_adds) = table.delete_rows(&by_vector).await?;
        removes.extend(vector_removes);
        adds.extend(vector_adds);
    }
    Ok((removes, adds))
}

fn is_mostly_gone(file: &DataFile, leaving: u64) -> bool {
    let deleted = file.deleted as f64 + leaving as f64;
    deleted > DELETED_SHARE_MAX * file.rows as f64
}

/// The live rows of a file that are not in `leaving`.
fn staying(
    table: &Table,
    file: &DataFile,
    leaving: &RoaringTreemap,
    schema: &SchemaRef,
) -> Result<Vec<RecordBatch>> {
    let names: Vec<String> = table
        .schema()
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect();
    let mut kept = Vec::new();
    for scanned in table.scan(file, &names)? {
        let scanned = scanned?;
        let stays = scanned
            .row_numbers
            .iter()
            .map(|&row| Some(!leaving.contains(row)));
        let rows = filter_record_batch(&scanned.rows, &BooleanArray::from_iter(stays))?;
        kept.push(widened(&rows, schema)?);
    }
    Ok(kept)
}

/// The rows of the change data feed. A commit that only inserts needs none: its data files are the feed.
fn feed_rows(table: &Table, changes: &RowChanges) -> Result<Vec<RecordBatch>> {
    let is_on = table.property("delta.enableChangeDataFeed") == Some("true");
    if !is_on || changes.replaced_at.is_empty() && changes.removed_at.is_empty() {
        return Ok(Vec::new());
    }
    let kinds = [
        ("insert", &changes.inserted),
        ("update_preimage", &changes.replaced),
        ("update_postimage", &changes.updated),
        ("delete", &changes.removed),
    ];
    let some = kinds.into_iter().filter(|(_, rows)| rows.num_rows() > 0);
    some.map(|(kind, rows)| change_rows(rows, kind)).collect()
}

fn metrics(
    counters: &ApplyCounters,
    changes: &RowChanges,
    commit: &TableCommit,
) -> Map<String, Value> {
    let bytes: i64 = commit.adds.iter().map(|add| add.size).sum();
    let numbers = [
        ("numTargetRowsInserted", changes.inserted.num_rows() as u64),
        ("numTargetRowsUpdated", changes.updated.num_rows() as u64),
        ("numTargetRowsDeleted", changes.removed.num_rows() as u64),
        (
            "numOutputRows",
            (changes.inserted.num_rows() + changes.updated.num_rows()) as u64,
        ),
        ("numTargetFilesAdded", commit.adds.len() as u64),
        ("numTargetFilesRemoved", commit.removes.len() as u64),
        ("numTargetChangeFilesAdded", commit.changes.len() as u64),
        ("numTargetBytesAdded", bytes.unsigned_abs()),
        ("landfallRowsLate", counters.rows_late),
        ("landfallRowsRepeated", counters.rows_repeated),
        ("landfallConflicts", counters.conflicts),
    ];
    numbers
        .into_iter()
        .map(|(name, number)| (name.to_string(), Value::from(number.to_string())))
        .collect()
}
