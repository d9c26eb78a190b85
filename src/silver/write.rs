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
use deltalake::kernel::{Add, AddCDCFile, Remove};
use roaring::RoaringTreemap;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A file whose share of deleted rows would pass this is rewritten without them.
const DELETED_SHARE_MAX: f64 = 0.25;

/// A commit of silver in the making: the files written so far, the rows that leave.
///
/// If the process stops before the log entry, files that no version names stay behind and silver is as before.
pub(super) struct Draft {
    commit: TableCommit,
    leaving: BTreeMap<String, RoaringTreemap>,
    fresh: Option<(String, RecordBatch)>,
    schema: Option<SchemaRef>,
    rows: RowCounts,
    parts: usize,
}

/// The files of one part of an apply, which nothing names yet.
#[derive(Default)]
pub(super) struct WrittenPart {
    adds: Vec<Add>,
    changes: Vec<AddCDCFile>,
    leaving: BTreeMap<String, RoaringTreemap>,
    fresh: Option<(String, RecordBatch)>,
    schema: Option<SchemaRef>,
    rows: RowCounts,
}

#[derive(Default)]
struct RowCounts {
    inserted: u64,
    updated: u64,
    removed: u64,
}

impl RowCounts {
    fn add(&mut self, other: &RowCounts) {
        self.inserted += other.inserted;
        self.updated += other.updated;
        self.removed += other.removed;
    }
}

/// Adds rows that leave to others, by file.
fn add_leaving(all: &mut BTreeMap<String, RoaringTreemap>, more: BTreeMap<String, RoaringTreemap>) {
    for (file, rows) in more {
        *all.entry(file).or_default() |= rows;
    }
}

impl Draft {
    /// A commit of so many parts, which carries `transaction`.
    pub(super) fn new(transaction: AppTransaction, parts: usize) -> Self {
        let mut commit = TableCommit::new(Operation::Merge);
        commit.transaction = Some(transaction);
        Draft {
            commit,
            leaving: BTreeMap::new(),
            fresh: None,
            schema: None,
            rows: RowCounts::default(),
            parts,
        }
    }

    /// The same, in another number of parts; none was added yet.
    pub(super) fn in_parts(self, parts: usize) -> Self {
        Draft { parts, ..self }
    }

    /// Sets a table property in the same commit.
    pub(super) fn set_property(&mut self, name: &str, value: String) {
        self.commit.properties.insert(name.to_string(), value);
    }

    /// Writes the new rows and the change rows of one part, in pieces; its keys are in no other part.
    pub(super) async fn add(&mut self, table: &Table, changes: &[RowChanges]) -> Result<()> {
        let written = self.write(table, changes).await?;
        self.take(written);
        Ok(())
    }

    /// The same, without adding it yet.
    pub(super) async fn write(&self, table: &Table, changes: &[RowChanges]) -> Result<WrittenPart> {
        let mut written = WrittenPart::default();
        let changes = changes.iter().filter(|changes| !changes.is_empty());
        let changes: Vec<&RowChanges> = changes.collect();
        let Some(first) = changes.first() else {
            return Ok(written);
        };
        let schema = first.inserted.schema();
        let new_rows = changes
            .iter()
            .flat_map(|changes| [changes.inserted.clone(), changes.updated.clone()]);
        let new_rows: Vec<RecordBatch> = new_rows.collect();
        written.adds = table.write_rows(schema.clone(), &new_rows).await?;
        if let ([add], 1) = (written.adds.as_slice(), self.parts) {
            written.fresh = Some((add.path.clone(), concat_batches(&schema, &new_rows)?));
        }
        // Whether a later part updates rows is not known yet, and the feed tells of all parts or of none.
        let tell_all = self.parts > 1 && table.file_count() > 0;
        let feed = feed_rows(table, &changes, tell_all)?;
        written.changes = table.write_change_rows(&feed).await?;
        for changes in changes {
            written.rows.add(&RowCounts {
                inserted: changes.inserted.num_rows() as u64,
                updated: changes.updated.num_rows() as u64,
                removed: changes.removed.num_rows() as u64,
            });
            add_leaving(&mut written.leaving, changes.leaving());
        }
        written.schema = Some(schema);
        Ok(written)
    }

    /// Adds a part that was written.
    pub(super) fn take(&mut self, written: WrittenPart) {
        self.fresh = written.fresh.or(self.fresh.take());
        self.commit.adds.extend(written.adds);
        self.commit.changes.extend(written.changes);
        self.rows.add(&written.rows);
        add_leaving(&mut self.leaving, written.leaving);
        self.schema = written.schema.or(self.schema.take());
    }

    /// Takes the leaving rows out of their files and commits; nothing but the transaction if no part changed a row.
    pub(super) async fn commit(
        mut self,
        table: &mut Table,
        counters: &ApplyCounters,
        mode: WriteMode,
        crash: &CrashSwitch,
    ) -> Result<Written> {
        if let Some(schema) = self.schema.take() {
            let (removes, adds) = take_out(table, &schema, self.leaving, mode).await?;
            self.commit.removes = removes;
            self.commit.adds.extend(adds);
            if schema.fields() != table.schema().fields() {
                self.commit.schema = Some(schema);
            }
        }
        self.commit.metrics = metrics(counters, &self.rows, &self.commit);
        crash.reach(CrashPoint::BeforeSilverCommit)?;
        let outcome = table.commit(self.commit).await?;
        Ok(Written {
            outcome,
            fresh: self.fresh,
        })
    }
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

/// A commit in the making that replaces every row of silver.
///
/// If the process stops before the log entry, files that no version names stay behind and silver is as before.
pub(super) struct Replacement {
    commit: TableCommit,
    schema: SchemaRef,
    rows: u64,
    /// The data files are not the change data feed, so the changes are written too.
    tells: bool,
}

impl Replacement {
    /// No row yet, and no old one gone.
    pub(super) fn new(
        table: &Table,
        schema: SchemaRef,
        transaction: AppTransaction,
        properties: BTreeMap<String, String>,
    ) -> Self {
        let mut commit = TableCommit::new(Operation::Merge);
        commit.transaction = Some(transaction);
        commit.properties = properties;
        commit.schema = Some(schema.clone());
        Replacement {
            commit,
            schema,
            rows: 0,
            tells: needs_change_rows(table),
        }
    }

    /// Writes some of the new rows.
    pub(super) async fn add(&mut self, table: &Table, rows: RecordBatch) -> Result<()> {
        if rows.num_rows() == 0 {
            return Ok(());
        }
        self.rows += rows.num_rows() as u64;
        if self.tells {
            let told = [change_rows(&rows, "insert")?];
            self.commit
                .changes
                .extend(table.write_change_rows_of(&self.schema, &told).await?);
        }
        let adds = table.write_rows(self.schema.clone(), &[rows]).await?;
        self.commit.adds.extend(adds);
        Ok(())
    }

    /// Takes all old rows away and commits.
    pub(super) async fn commit(
        mut self,
        table: &mut Table,
        counters: &ApplyCounters,
        crash: &CrashSwitch,
    ) -> Result<CommitOutcome> {
        for file in table.files() {
            if self.tells {
                let leaving = staying(table, file, &RoaringTreemap::new(), &self.schema)?;
                let told = leaving.iter().map(|rows| change_rows(rows, "delete"));
                let told: Vec<RecordBatch> = told.collect::<Result<_>>()?;
                self.commit
                    .changes
                    .extend(table.write_change_rows_of(&self.schema, &told).await?);
            }
            self.commit.removes.push(table.remove_of(file, true));
        }
        let rows = RowCounts {
            inserted: self.rows,
            ..RowCounts::default()
        };
        self.commit.metrics = metrics(counters, &rows, &self.commit);
        crash.reach(CrashPoint::BeforeSilverCommit)?;
        table.commit(self.commit).await
    }
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
fn feed_rows(table: &Table, changes: &[&RowChanges], tell_all: bool) -> Result<Vec<RecordBatch>> {
    let is_on = table.has_change_data_feed();
    let inserts =
        |changes: &&RowChanges| changes.replaced_at.is_empty() && changes.removed_at.is_empty();
    if !is_on || !tell_all && changes.iter().all(inserts) {
        return Ok(Vec::new());
    }
    let kinds = changes.iter().flat_map(|changes| {
        [
            ("insert", &changes.inserted),
            ("update_preimage", &changes.replaced),
            ("update_postimage", &changes.updated),
            ("delete", &changes.removed),
        ]
    });
    let some = kinds.filter(|(_, rows)| rows.num_rows() > 0);
    some.map(|(kind, rows)| change_rows(rows, kind)).collect()
}

/// Whether the data files of a replacement are not the change data feed.
///
/// Without change files the library takes the deleted rows of a removed file for the ones that leave, not the live ones. A
/// lost file has no rows to tell of; a reader of that version is then told that it is lost.
fn needs_change_rows(table: &Table) -> bool {
    let has_vectors = table.files().any(|file| file.deleted > 0);
    let is_lost = |file: &DataFile| !table.root().join(&file.path).exists();
    table.has_change_data_feed() && has_vectors && !table.files().any(is_lost)
}

fn metrics(counters: &ApplyCounters, rows: &RowCounts, commit: &TableCommit) -> Map<String, Value> {
    let bytes: i64 = commit.adds.iter().map(|add| add.size).sum();
    let numbers = [
        ("numTargetRowsInserted", rows.inserted),
        ("numTargetRowsUpdated", rows.updated),
        ("numTargetRowsDeleted", rows.removed),
        ("numOutputRows", rows.inserted + rows.updated),
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
