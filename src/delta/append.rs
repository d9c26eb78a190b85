//! Appends one micro-batch exactly once, in one commit that also takes the earlier rows of replaced landing files out.
//!
//! The application transaction in the commit says whether the batch is there; it is looked at before every attempt, so no
//! crash, second handle or foreign commit doubles a row. Replacement is copy on write: a data file that holds rows of a
//! replaced landing file leaves, its other rows come back in a new one. What the rows are is left to bronze and quarantine.

use super::state::DataFile;
use super::stats::StatValue;
use super::{AppTransaction, CommitOutcome, Operation, Table, TableCommit};
use crate::change::{BATCH_ID, BatchId, FILE_MODIFIED_AT, FILE_PATH, LOADED_AT, Version};
use crate::clock::Micros;
use crate::crash::{CrashPoint, CrashSwitch};
use crate::error::{Error, ErrorKind, Result};
use arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{Int64Type, SchemaRef, TimestampMicrosecondType};
use deltalake::kernel::{Action, Add, Remove};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// A commit that loses against foreign ones so often is given up.
const ATTEMPTS: u32 = 10;
/// The pause after the first lost attempt; it doubles.
const PAUSE: Duration = Duration::from_millis(20);
/// `commitInfo` names at most so many replaced landing files.
const NAMED_FILES_MAX: usize = 100;
/// Marks data files whose rows were in the table before.
const COPIED: &str = "landfall.copied";

/// One micro-batch for a table that names the landing file of each row in `_file_path`.
#[derive(Debug)]
pub struct Append<'a> {
    /// The batch.
    pub batch: BatchId,
    /// The transaction that says that the batch is there.
    pub txn: &'a AppTransaction,
    /// All columns: those of the table in their order, then new ones.
    pub schema: SchemaRef,
    /// Rows of exactly these columns.
    pub rows: &'a [RecordBatch],
    /// Data files with further rows, which no log entry names yet.
    pub written: Vec<Add>,
    /// Landing files whose earlier rows leave in this commit.
    pub replaced: &'a BTreeSet<String>,
    /// Reached when the data files are there and no log entry names them.
    pub before_commit: Option<CrashPoint>,
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
    /// Rows of the batch; 0 if it was there already and its log entry is gone.
    pub rows: u64,
    /// Rows of replaced files that left; 0 if the batch was there already.
    pub rows_replaced: u64,
    /// Data files that the batch brought, as in `DataFile::path`.
    pub added: Vec<String>,
    /// Data files that left, with rows of replaced files.
    pub removed: Vec<String>,
}

/// What one version did to the rows of a table.
#[derive(Clone, Debug, Default)]
pub struct VersionFiles {
    /// Files with new rows.
    pub added: Vec<Add>,
    /// Files with rows that were in removed files.
    pub copied: Vec<Add>,
    /// Files that left.
    pub removed: Vec<Remove>,
}

/// What a table holds of one landing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileCount {
    /// Rows.
    pub rows: i64,
    /// The newest batch that brought some.
    pub batch: BatchId,
    /// Microseconds since the epoch; 0 where the table does not keep it.
    pub modified_at: Micros,
    /// When that batch was loaded; `None` where the table does not keep it.
    pub loaded_at: Option<Micros>,
}

/// Rows that leave with replaced landing files, and what comes back of their data files.
#[derive(Default)]
struct Replacement {
    removes: Vec<Remove>,
    copies: Vec<Add>,
    rows_replaced: u64,
    rows_copied: u64,
}

/// Appends the batch unless it is there.
///
/// If the program stops inside, the batch is there whole or not at all; files without a log entry are left to vacuum.
pub async fn append_once(
    table: &mut Table,
    append: &Append<'_>,
    crash: &CrashSwitch,
) -> Result<AppendCommit> {
    let mut adds = None;
    let mut pause = PAUSE;
    for _ in 0..ATTEMPTS {
        if table
            .transaction(&append.txn.app_id)
            .is_some_and(|version| version >= append.txn.version)
        {
            return already_applied(table, append).await;
        }
        table.check_extends(&append.schema)?;
        let new = match &adds {
            Some(adds) => Vec::clone(adds),
            None => {
                let schema = Arc::clone(&append.schema);
                let mut new = append.written.clone();
                new.extend(table.write_rows(schema, append.rows).await?);
                adds.insert(new).clone()
            }
        };
        let replacement = replace(table, append.replaced).await?;
        if let Some(point) = append.before_commit {
            crash.reach(point)?;
        }
        let (commit, mut done) = plan(table, append, new, replacement);
        if let CommitOutcome::Committed(version) = table.commit(commit).await? {
            done.version = version;
            return Ok(done);
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
        table.reload().await?;
    }
    Err(Error::new(
        ErrorKind::Conflict,
        format!(
            "table {}: batch {} lost against other writers {ATTEMPTS} times",
            table.root().display(),
            append.batch
        ),
    )
    .hint("stop the other writers, then run again"))
}

async fn already_applied(table: &Table, append: &Append<'_>) -> Result<AppendCommit> {
    let mut done = AppendCommit {
        version: table.version(),
        batch: append.batch,
        already_applied: true,
        rows: 0,
        rows_replaced: 0,
        added: Vec::new(),
        removed: Vec::new(),
    };
    if let Some(version) = table.version_of_transaction(append.txn).await? {
        let files = files_of_version(table, version).await?;
        done.version = version;
        done.rows = files.added.iter().map(rows_of).sum();
        done.added = files.added.into_iter().map(|add| add.path).collect();
        done.removed = files
            .removed
            .into_iter()
            .map(|remove| remove.path)
            .collect();
    }
    Ok(done)
}

fn rows_of(add: &Add) -> u64 {
    let rows = add.stats.as_deref().and_then(super::stats::record_count);
    rows.and_then(|rows| u64::try_from(rows).ok()).unwrap_or(0)
}

fn plan(
    table: &Table,
    append: &Append<'_>,
    adds: Vec<Add>,
    replacement: Replacement,
) -> (TableCommit, AppendCommit) {
    let operation = match replacement.removes.is_empty() {
        true => Operation::Write,
        false => Operation::Merge,
    };
    let done = AppendCommit {
        version: table.version(),
        batch: append.batch,
        already_applied: false,
        rows: adds.iter().map(rows_of).sum(),
        rows_replaced: replacement.rows_replaced,
        added: adds.iter().map(|add| add.path.clone()).collect(),
        removed: replacement
            .removes
            .iter()
            .map(|remove| remove.path.clone())
            .collect(),
    };
    let mut commit = TableCommit::new(operation);
    commit.transaction = Some(append.txn.clone());
    if append.schema.fields().len() > table.schema().fields().len() {
        commit.schema = Some(Arc::clone(&append.schema));
    }
    let bytes: i64 = adds
        .iter()
        .chain(&replacement.copies)
        .map(|add| add.size)
        .sum();
    commit.metric("numFiles", adds.len() + replacement.copies.len());
    commit.metric("numOutputRows", done.rows + replacement.rows_copied);
    commit.metric("numOutputBytes", bytes);
    if !replacement.removes.is_empty() {
        commit.metric("numRemovedFiles", replacement.removes.len());
        commit.metric("numCopiedRows", replacement.rows_copied);
        commit.metric("numDeletedRows", replacement.rows_replaced);
    }
    commit
        .parameters
        .insert("batchId".into(), append.batch.to_string().into());
    if !replacement.removes.is_empty() {
        let names: Vec<&String> = append.replaced.iter().take(NAMED_FILES_MAX).collect();
        commit.parameters.insert(
            "replacedFiles".into(),
            serde_json::json!(names).to_string().into(),
        );
    }
    commit.adds = adds;
    commit.adds.extend(replacement.copies);
    commit.removes = replacement.removes;
    (commit, done)
}

/// Takes the rows of `replaced` landing files out and writes the other rows of their data files again.
async fn replace(table: &Table, replaced: &BTreeSet<String>) -> Result<Replacement> {
    let mut replacement = Replacement::default();
    if replaced.is_empty() {
        return Ok(replacement);
    }
    let mut writer = table.row_writer(table.schema())?;
    for file in table.files().filter(|file| may_hold(file, replaced)) {
        let gone = count_of(table, file, replaced)?;
        if gone == 0 {
            continue;
        }
        replacement.removes.push(table.remove_of(file, true));
        replacement.rows_replaced += gone;
        if gone == file.live_rows().unsigned_abs() {
            continue;
        }
        for scanned in table.scan(file, &column_names(&table.schema()))? {
            let kept = without(&scanned?.rows, replaced)?;
            replacement.rows_copied += kept.num_rows() as u64;
            writer.write(&kept).await?;
        }
    }
    let tags = HashMap::from([(COPIED.to_owned(), Some("true".to_owned()))]);
    let copies = writer.close().await?.into_iter();
    replacement.copies = copies
        .map(|add| Add {
            tags: Some(tags.clone()),
            ..add
        })
        .collect();
    Ok(replacement)
}

fn may_hold(file: &DataFile, paths: &BTreeSet<String>) -> bool {
    match file.range(FILE_PATH) {
        Some((StatValue::Text(min), StatValue::Text(max))) if min <= max => {
            paths.range(min.clone()..=max.clone()).next().is_some()
        }
        _ => true,
    }
}

fn count_of(table: &Table, file: &DataFile, paths: &BTreeSet<String>) -> Result<u64> {
    let mut count = 0;
    for scanned in table.scan(file, &[FILE_PATH.to_owned()])? {
        count += is_of(&scanned?.rows, paths)?.true_count() as u64;
    }
    Ok(count)
}

fn without(rows: &RecordBatch, paths: &BTreeSet<String>) -> Result<RecordBatch> {
    let gone = is_of(rows, paths)?;
    Ok(filter_record_batch(rows, &arrow::compute::not(&gone)?)?)
}

/// Which rows are of these landing files; neighbours are mostly of the same one.
fn is_of(rows: &RecordBatch, paths: &BTreeSet<String>) -> Result<BooleanArray> {
    let column = rows
        .column_by_name(FILE_PATH)
        .and_then(|column| column.as_string_opt::<i32>());
    let names = column.ok_or_else(|| Error::bug(format!("rows without {FILE_PATH}")))?;
    let mut last: Option<(&str, bool)> = None;
    let of = (0..names.len()).map(|row| {
        if names.is_null(row) {
            return false;
        }
        let name = names.value(row);
        match last {
            Some((before, answer)) if before == name => answer,
            _ => {
                let answer = paths.contains(name);
                last = Some((name, answer));
                answer
            }
        }
    });
    Ok(of.map(Some).collect())
}

/// The names of all columns.
pub(super) fn column_names(schema: &SchemaRef) -> Vec<String> {
    schema
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect()
}

/// The files that a version added and removed with a change of data; an error if its log entry is gone.
pub async fn files_of_version(table: &Table, version: Version) -> Result<VersionFiles> {
    let mut files = VersionFiles::default();
    for action in table.commit_actions(version).await? {
        match action {
            Action::Add(add) if add.data_change => {
                let copied = add
                    .tags
                    .as_ref()
                    .is_some_and(|tags| tags.contains_key(COPIED));
                match copied {
                    true => files.copied.push(add),
                    false => files.added.push(add),
                }
            }
            Action::Remove(remove) if remove.data_change => files.removed.push(remove),
            Action::Add(_)
            | Action::Remove(_)
            | Action::Metadata(_)
            | Action::Protocol(_)
            | Action::Cdc(_)
            | Action::Txn(_)
            | Action::CommitInfo(_)
            | Action::DomainMetadata(_) => {}
        }
    }
    Ok(files)
}

/// What the table holds of each landing file, from all its rows.
pub fn counts_by_file(table: &Table) -> Result<BTreeMap<String, FileCount>> {
    let mut columns = vec![FILE_PATH.to_owned(), BATCH_ID.to_owned()];
    if table.schema().index_of(FILE_MODIFIED_AT).is_ok() {
        columns.extend([FILE_MODIFIED_AT, LOADED_AT].map(str::to_owned));
    }
    let mut counts = BTreeMap::new();
    for file in table.files() {
        for scanned in table.scan(file, &columns)? {
            count_rows(&scanned?.rows, &mut counts).map_err(|error| error.context(&file.path))?;
        }
    }
    Ok(counts)
}

fn count_rows(rows: &RecordBatch, counts: &mut BTreeMap<String, FileCount>) -> Result<()> {
    let names = rows.column(0).as_string_opt::<i32>();
    let batches = rows.column(1).as_primitive_opt::<Int64Type>();
    let Some((names, batches)) = names.zip(batches) else {
        return Err(Error::disagreement(format!(
            "{FILE_PATH} or {BATCH_ID} is of another type"
        )));
    };
    let times_of = |column: usize| {
        let times = rows.columns().get(column)?;
        times.as_primitive_opt::<TimestampMicrosecondType>()
    };
    let (modified, loaded) = (times_of(2), times_of(3));
    if names.null_count() > 0 || batches.null_count() > 0 {
        return Err(Error::disagreement(format!(
            "a row has no {FILE_PATH} or no {BATCH_ID}"
        )));
    }
    let mut row = 0;
    while row < names.len() {
        // Rows of one landing file stand together.
        let same = |next: &usize| {
            names.value(*next) == names.value(row) && batches.value(*next) == batches.value(row)
        };
        let end = (row + 1..names.len())
            .take_while(same)
            .last()
            .map_or(row + 1, |last| last + 1);
        let batch = BatchId(batches.value(row));
        let modified_at = modified.map_or(0, |times| times.value(row));
        let loaded_at = loaded.map(|times| times.value(row));
        let run = (end - row) as i64;
        match counts.get_mut(names.value(row)) {
            Some(count) => {
                count.rows += run;
                if batch > count.batch {
                    (count.batch, count.modified_at) = (batch, modified_at);
                    count.loaded_at = loaded_at;
                }
            }
            None => {
                let count = FileCount {
                    rows: run,
                    batch,
                    modified_at,
                    loaded_at,
                };
                counts.insert(names.value(row).to_owned(), count);
            }
        }
        row = end;
    }
    Ok(())
}

/// The newest batch that brought rows which are still there.
pub fn last_batch(table: &Table) -> Result<Option<BatchId>> {
    let mut last = None;
    for file in table.files() {
        // Beside deleted rows the statistics are a bound only.
        let known = file.range(BATCH_ID).filter(|_| file.deleted == 0);
        let newest = match known {
            Some((_, StatValue::Int(newest))) => Some(*newest),
            _ => newest_by_scan(table, file)?,
        };
        last = last.max(newest);
    }
    Ok(last.map(BatchId))
}

fn newest_by_scan(table: &Table, file: &DataFile) -> Result<Option<i64>> {
    let mut newest = None;
    for scanned in table.scan(file, &[BATCH_ID.to_owned()])? {
        let rows = scanned?.rows;
        let batches = rows.column(0).as_primitive_opt::<Int64Type>();
        newest = newest.max(batches.and_then(arrow::compute::max));
    }
    Ok(newest)
}
