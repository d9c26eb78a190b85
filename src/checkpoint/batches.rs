//! Micro-batches: freeze, record what decoding found, confirm what the tables hold.
//!
//! At most one batch is planned at a time, and its files do not change while it is. Ids only rise.

use super::files::{state_of, unsigned};
use super::record::REMARK_DUPLICATE_CONTENT;
use super::{
    ApplyCounters, BatchRecord, BatchState, CheckpointStore, FileEvent, FileOutcome, OutcomeKind,
    stored,
};
use crate::batch::{BatchId, BatchLimits, MicroBatch, PlannedFile};
use crate::change::{FileFault, ParkReason, Version};
use crate::clock::Micros;
use crate::error::{Error, Result};
use rusqlite::{Connection, OptionalExtension, Row, Transaction};
use std::collections::BTreeSet;

const SELECT_PENDING: &str = "
    SELECT path, size, modified_at, replaces FROM files WHERE state = 'pending' ORDER BY path";
const SELECT_RETRIES: &str = "
    SELECT path, size, modified_at, replaces FROM files
    WHERE state = 'parked' AND next_try_at <= ?1 ORDER BY path";
const SELECT_PLANNED_FILES: &str = "
    SELECT path, size, modified_at, replaces FROM files WHERE state = 'planned' AND batch_id = ?1 ORDER BY path";
const SELECT_PLANNED_BATCH: &str = "SELECT batch_id FROM batches WHERE state = 'planned'";
const SELECT_OUTCOMES: &str = "
    SELECT path, kind, content_hash, rows, quarantined, reason, detail, next_try_at
    FROM outcomes WHERE batch_id = ?1 ORDER BY path";
const SELECT_LAST_BATCH: &str = "
    SELECT batch_id, epoch, state, planned_at, bronze_version, silver_version, files, rows, rows_inserted, rows_updated,
        rows_deleted, rows_late, rows_repeated, conflicts, seconds
    FROM batches WHERE state IN ('loaded', 'applied') ORDER BY batch_id DESC LIMIT 1";

const INSERT_BATCH: &str = "
    INSERT INTO batches (batch_id, epoch, state, planned_at, files)
    VALUES (?1, (SELECT epoch FROM meta), 'planned', ?2, ?3)";
const INSERT_OUTCOME: &str = "
    INSERT INTO outcomes (batch_id, path, kind, content_hash, rows, quarantined, reason, detail, next_try_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";

const UPDATE_PLANNED: &str = "
    UPDATE files SET state = ?2, batch_id = ?3, attempts = attempts + 1, next_try_at = NULL WHERE path = ?1";
/// Rejects of an earlier try of the batch may stand in quarantine, so whatever was once planned replaces.
const UPDATE_RELEASED: &str = "
    UPDATE files SET state = ?2, batch_id = NULL, replaces = 1, reason = NULL, detail = NULL WHERE path = ?1";
const UPDATE_PARKED: &str = "
    UPDATE files SET state = ?2, replaces = 1, reason = ?3, detail = ?4, next_try_at = ?5 WHERE path = ?1";
const UPDATE_LOADED: &str = "
    UPDATE files
    SET state = ?2, content_hash = ?3, rows_loaded = ?4, rows_quarantined = ?5, bronze_version = ?6, loaded_at = ?7,
        reason = ?8, detail = ?9, next_try_at = NULL, replaces = 0, loaded_size = size, loaded_modified_at = modified_at
    WHERE path = ?1";
const UPDATE_BATCH_LOADED: &str = "
    UPDATE batches SET state = ?2, bronze_version = ?3, rows = ?4 WHERE batch_id = ?1";
const UPDATE_COUNTERS: &str = "
    UPDATE batches
    SET rows_inserted = ?2, rows_updated = ?3, rows_deleted = ?4, rows_late = ?5, rows_repeated = ?6, conflicts = ?7,
        seconds = ?8
    WHERE batch_id = (SELECT max(batch_id) FROM batches WHERE state = 'loaded' AND bronze_version <= ?1)";
const UPDATE_APPLIED: &str = "
    UPDATE batches SET state = 'applied', silver_version = ?2
    WHERE state = 'loaded' AND (bronze_version IS NULL OR bronze_version <= ?1)";
const UPDATE_APPLIED_UP_TO: &str = "
    UPDATE meta SET applied_up_to = max(coalesce(applied_up_to, 0), ?1)";

impl CheckpointStore {
    /// Freezes the next batch: settled pending files and parked ones whose next try is due, in path order, up to the
    /// limits. `None` when there is none, and then nothing is written. Fails while another batch is planned.
    ///
    /// If the program stops inside, either the batch is planned and its id used, or nothing happened.
    pub fn plan(
        &mut self,
        settled: &dyn Fn(&str) -> bool,
        limits: BatchLimits,
        now: Micros,
    ) -> Result<Option<MicroBatch>> {
        if let Some(id) = self.read(planned_batch)? {
            return Err(Error::bug(format!("batch {id} is still planned")));
        }
        let files = self.read(|connection| due_files(connection, settled, limits, now))?;
        if files.is_empty() {
            return Ok(None);
        }
        self.write(|transaction| {
            let id: i64 =
                transaction.query_row("SELECT next_batch_id FROM meta", [], |row| row.get(0))?;
            transaction.execute("UPDATE meta SET next_batch_id = next_batch_id + 1", [])?;
            transaction.execute(INSERT_BATCH, (id, now, stored(files.len() as u64)))?;
            for file in &files {
                let state = state_of(transaction, &file.path)?.next(FileEvent::Plan)?;
                transaction.prepare_cached(UPDATE_PLANNED)?.execute((
                    &file.path,
                    state.as_str(),
                    id,
                ))?;
            }
            Ok(Some(MicroBatch {
                id: BatchId(id),
                files,
            }))
        })
    }

    /// The batch that is frozen and not confirmed; recovery confirms, redoes or releases it.
    pub fn planned(&self) -> Result<Option<MicroBatch>> {
        self.read(|connection| {
            let Some(id) = planned_batch(connection)? else {
                return Ok(None);
            };
            let files = planned_files(connection, id)?;
            if files.is_empty() {
                return Err(Error::disagreement(format!(
                    "batch {id} is planned but names no files"
                )));
            }
            Ok(Some(MicroBatch { id, files }))
        })
    }

    /// Gives the planned batch up: its files are pending again, its id is not. Only for a batch that bronze does not hold.
    pub fn release(&mut self, batch: BatchId) -> Result<()> {
        self.write(|transaction| {
            for file in must_be_planned(transaction, batch)? {
                release_file(transaction, &file.path)?;
            }
            transaction.execute("DELETE FROM outcomes WHERE batch_id = ?1", (batch.0,))?;
            transaction.execute(
                "UPDATE batches SET state = 'abandoned' WHERE batch_id = ?1",
                (batch.0,),
            )?;
            Ok(())
        })
    }

    /// Records what decoding found, before the Delta commits, so that a restart can confirm without decoding again.
    /// Names each file of the batch once. A second call takes the place of the first.
    pub fn prepare(&mut self, batch: BatchId, outcomes: &[FileOutcome]) -> Result<()> {
        self.write(|transaction| {
            let files = must_be_planned(transaction, batch)?;
            let planned: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
            let named: BTreeSet<&str> = outcomes
                .iter()
                .map(|outcome| outcome.path.as_str())
                .collect();
            if planned != named || named.len() != outcomes.len() {
                return Err(Error::bug(format!(
                    "the outcomes of batch {batch} do not name each of its files once"
                )));
            }
            transaction.execute("DELETE FROM outcomes WHERE batch_id = ?1", (batch.0,))?;
            outcomes
                .iter()
                .try_for_each(|outcome| insert_outcome(transaction, batch, outcome))
        })
    }

    /// What [`CheckpointStore::prepare`] recorded, in path order; `None` when it was not called for this batch.
    pub fn prepared(&self, batch: BatchId) -> Result<Option<Vec<FileOutcome>>> {
        let outcomes = self.read(|connection| outcomes(connection, batch))?;
        Ok((!outcomes.is_empty()).then_some(outcomes))
    }

    /// Applies the prepared outcomes, after the bronze commit. `bronze_version` is `None` when nothing was committed
    /// because no file of the batch is loaded with rows; such a batch counts as applied.
    ///
    /// If the program stops before, recovery finds the batch id in bronze and calls this.
    pub fn confirm_loaded(
        &mut self,
        batch: BatchId,
        bronze_version: Option<Version>,
        now: Micros,
    ) -> Result<()> {
        self.write(|transaction| {
            let planned = must_be_planned(transaction, batch)?;
            let outcomes = outcomes(transaction, batch)?;
            if outcomes.len() != planned.len() {
                return Err(Error::bug(format!(
                    "batch {batch} is confirmed but was not prepared"
                )));
            }
            let rows: u64 = outcomes.iter().map(rows_for_bronze).sum();
            if rows > 0 && bronze_version.is_none() {
                return Err(Error::bug(format!(
                    "batch {batch} has {rows} rows but no bronze version"
                )));
            }
            for outcome in &outcomes {
                confirm_file(transaction, outcome, bronze_version, now)?;
            }
            let state = if bronze_version.is_some() {
                BatchState::Loaded
            } else {
                BatchState::Applied
            };
            transaction.execute(
                UPDATE_BATCH_LOADED,
                (
                    batch.0,
                    state.as_str(),
                    bronze_version.map(|version| version.0),
                    stored(rows),
                ),
            )?;
            transaction.execute("DELETE FROM outcomes WHERE batch_id = ?1", (batch.0,))?;
            Ok(())
        })
    }

    /// Marks every loaded batch up to `bronze_version` applied; the newest of them carries the counters. Without a silver
    /// table `silver_version` is `None`. Harmless when repeated.
    pub fn confirm_applied(
        &mut self,
        bronze_version: Version,
        silver_version: Option<Version>,
        counters: &ApplyCounters,
    ) -> Result<()> {
        self.write(|transaction| {
            transaction.execute(
                UPDATE_COUNTERS,
                rusqlite::params![
                    bronze_version.0,
                    stored(counters.rows_inserted),
                    stored(counters.rows_updated),
                    stored(counters.rows_deleted),
                    stored(counters.rows_late),
                    stored(counters.rows_repeated),
                    stored(counters.conflicts),
                    counters.seconds.max(0.0),
                ],
            )?;
            transaction.execute(
                UPDATE_APPLIED,
                (bronze_version.0, silver_version.map(|version| version.0)),
            )?;
            transaction.execute(UPDATE_APPLIED_UP_TO, (bronze_version.0,))?;
            Ok(())
        })
    }

    /// The newest batch that is in bronze.
    pub fn last_batch(&self) -> Result<Option<BatchRecord>> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(SELECT_LAST_BATCH)?;
            let mut rows = statement.query([])?;
            rows.next()?.map(batch_record).transpose()
        })
    }
}

fn planned_batch(connection: &Connection) -> Result<Option<BatchId>> {
    let mut statement = connection.prepare_cached(SELECT_PLANNED_BATCH)?;
    Ok(statement
        .query_row([], |row| row.get(0))
        .optional()?
        .map(BatchId))
}

fn planned_files(connection: &Connection, batch: BatchId) -> Result<Vec<PlannedFile>> {
    let mut statement = connection.prepare_cached(SELECT_PLANNED_FILES)?;
    let mut rows = statement.query((batch.0,))?;
    let mut files = Vec::new();
    while let Some(row) = rows.next()? {
        files.push(planned_file(row)?);
    }
    Ok(files)
}

fn must_be_planned(connection: &Connection, batch: BatchId) -> Result<Vec<PlannedFile>> {
    if planned_batch(connection)? != Some(batch) {
        return Err(Error::bug(format!("batch {batch} is not planned")));
    }
    planned_files(connection, batch)
}

fn planned_file(row: &Row<'_>) -> Result<PlannedFile> {
    Ok(PlannedFile {
        path: row.get(0)?,
        size: unsigned(row, 1)?,
        modified_at: row.get(2)?,
        replaces: row.get(3)?,
    })
}

/// Merges retries, which are few, into the pending files and stops at the limits.
fn due_files(
    connection: &Connection,
    settled: &dyn Fn(&str) -> bool,
    limits: BatchLimits,
    now: Micros,
) -> Result<Vec<PlannedFile>> {
    let mut retries = Vec::new();
    let mut statement = connection.prepare_cached(SELECT_RETRIES)?;
    let mut rows = statement.query((now,))?;
    while let Some(row) = rows.next()? {
        retries.push(planned_file(row)?);
    }
    let mut retries = retries
        .into_iter()
        .filter(|file| settled(&file.path))
        .peekable();

    let mut taken = Taken {
        files: Vec::new(),
        bytes: 0,
        limits,
    };
    let mut statement = connection.prepare_cached(SELECT_PENDING)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if !settled(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?) {
            continue;
        }
        let file = planned_file(row)?;
        while let Some(retry) = retries.next_if(|retry| retry.path < file.path) {
            if !taken.take(retry) {
                return Ok(taken.files);
            }
        }
        if !taken.take(file) {
            return Ok(taken.files);
        }
    }
    for retry in retries {
        if !taken.take(retry) {
            break;
        }
    }
    Ok(taken.files)
}

struct Taken {
    files: Vec<PlannedFile>,
    bytes: u64,
    limits: BatchLimits,
}

impl Taken {
    /// False when the file does not fit any more.
    fn take(&mut self, file: PlannedFile) -> bool {
        if !self.limits.admits(self.files.len(), self.bytes, file.size) {
            return false;
        }
        self.bytes = self.bytes.saturating_add(file.size);
        self.files.push(file);
        true
    }
}

fn insert_outcome(
    transaction: &Transaction<'_>,
    batch: BatchId,
    outcome: &FileOutcome,
) -> Result<()> {
    let (kind, rows, quarantined, reason, detail, next_try_at) = match &outcome.result {
        OutcomeKind::Loaded { rows, quarantined } => {
            ("loaded", *rows, *quarantined, None, None, None)
        }
        OutcomeKind::Parked { fault, next_try_at } => (
            "parked",
            0,
            0,
            Some(fault.reason.as_str()),
            Some(fault.detail.as_str()),
            *next_try_at,
        ),
        OutcomeKind::Again => ("again", 0, 0, None, None, None),
        OutcomeKind::Vanished => ("vanished", 0, 0, None, None, None),
        OutcomeKind::Duplicate { of } => ("duplicate", 0, 0, None, Some(of.as_str()), None),
    };
    transaction.prepare_cached(INSERT_OUTCOME)?.execute((
        batch.0,
        &outcome.path,
        kind,
        &outcome.content_hash,
        stored(rows),
        stored(quarantined),
        reason,
        detail,
        next_try_at,
    ))?;
    Ok(())
}

fn outcomes(connection: &Connection, batch: BatchId) -> Result<Vec<FileOutcome>> {
    let mut statement = connection.prepare_cached(SELECT_OUTCOMES)?;
    let mut rows = statement.query((batch.0,))?;
    let mut outcomes = Vec::new();
    while let Some(row) = rows.next()? {
        outcomes.push(FileOutcome {
            path: row.get(0)?,
            content_hash: row.get(2)?,
            result: outcome_kind(row)?,
        });
    }
    Ok(outcomes)
}

fn outcome_kind(row: &Row<'_>) -> Result<OutcomeKind> {
    let kind: String = row.get(1)?;
    let detail: Option<String> = row.get(6)?;
    Ok(match kind.as_str() {
        "loaded" => OutcomeKind::Loaded {
            rows: unsigned(row, 3)?,
            quarantined: unsigned(row, 4)?,
        },
        "parked" => {
            let reason = park_reason(&row.get::<_, String>(5)?)?;
            let fault = FileFault::new(reason, detail.unwrap_or_default());
            OutcomeKind::Parked {
                fault,
                next_try_at: row.get(7)?,
            }
        }
        "again" => OutcomeKind::Again,
        "vanished" => OutcomeKind::Vanished,
        "duplicate" => OutcomeKind::Duplicate {
            of: detail.unwrap_or_default(),
        },
        other => return Err(Error::disagreement(format!("unknown outcome: {other}"))),
    })
}

fn park_reason(word: &str) -> Result<ParkReason> {
    ParkReason::ALL
        .into_iter()
        .find(|reason| reason.as_str() == word)
        .ok_or_else(|| Error::disagreement(format!("unknown reason of a parked file: {word}")))
}

fn rows_for_bronze(outcome: &FileOutcome) -> u64 {
    match outcome.result {
        OutcomeKind::Loaded { rows, .. } => rows,
        OutcomeKind::Parked { .. }
        | OutcomeKind::Again
        | OutcomeKind::Vanished
        | OutcomeKind::Duplicate { .. } => 0,
    }
}

fn confirm_file(
    transaction: &Transaction<'_>,
    outcome: &FileOutcome,
    bronze_version: Option<Version>,
    now: Micros,
) -> Result<()> {
    match &outcome.result {
        OutcomeKind::Loaded { rows, quarantined } => load_file(
            transaction,
            outcome,
            (*rows, *quarantined),
            None,
            bronze_version,
            now,
        ),
        OutcomeKind::Duplicate { of } => {
            load_file(transaction, outcome, (0, 0), Some(of), bronze_version, now)
        }
        OutcomeKind::Parked { fault, next_try_at } => {
            park_file(transaction, &outcome.path, fault, *next_try_at)
        }
        OutcomeKind::Again => release_file(transaction, &outcome.path),
        OutcomeKind::Vanished => {
            let fault = FileFault::new(
                ParkReason::Vanished,
                "the file went away before it was read",
            );
            park_file(transaction, &outcome.path, &fault, None)
        }
    }
}

fn load_file(
    transaction: &Transaction<'_>,
    outcome: &FileOutcome,
    (rows, quarantined): (u64, u64),
    duplicate_of: Option<&String>,
    bronze_version: Option<Version>,
    now: Micros,
) -> Result<()> {
    let state = state_of(transaction, &outcome.path)?.next(FileEvent::Load)?;
    transaction.prepare_cached(UPDATE_LOADED)?.execute((
        &outcome.path,
        state.as_str(),
        &outcome.content_hash,
        stored(rows),
        stored(quarantined),
        bronze_version.map(|version| version.0),
        now,
        duplicate_of.map(|_| REMARK_DUPLICATE_CONTENT),
        duplicate_of.map(|other| format!("the same bytes are loaded as {other}")),
    ))?;
    Ok(())
}

fn park_file(
    transaction: &Transaction<'_>,
    path: &str,
    fault: &FileFault,
    next_try_at: Option<Micros>,
) -> Result<()> {
    let state = state_of(transaction, path)?.next(FileEvent::Park)?;
    transaction.prepare_cached(UPDATE_PARKED)?.execute((
        path,
        state.as_str(),
        fault.reason.as_str(),
        &fault.detail,
        next_try_at,
    ))?;
    Ok(())
}

fn release_file(transaction: &Transaction<'_>, path: &str) -> Result<()> {
    let state = state_of(transaction, path)?.next(FileEvent::Release)?;
    transaction
        .prepare_cached(UPDATE_RELEASED)?
        .execute((path, state.as_str()))?;
    Ok(())
}

fn batch_record(row: &Row<'_>) -> Result<BatchRecord> {
    let word: String = row.get(2)?;
    let state = [
        BatchState::Planned,
        BatchState::Loaded,
        BatchState::Applied,
        BatchState::Abandoned,
    ]
    .into_iter()
    .find(|state| state.as_str() == word)
    .ok_or_else(|| Error::disagreement(format!("unknown batch state: {word}")))?;
    Ok(BatchRecord {
        batch_id: BatchId(row.get(0)?),
        epoch: row.get(1)?,
        state,
        planned_at: row.get(3)?,
        bronze_version: row.get::<_, Option<i64>>(4)?.map(Version),
        silver_version: row.get::<_, Option<i64>>(5)?.map(Version),
        files: unsigned(row, 6)?,
        rows: unsigned(row, 7)?,
        counters: ApplyCounters {
            rows_inserted: unsigned(row, 8)?,
            rows_updated: unsigned(row, 9)?,
            rows_deleted: unsigned(row, 10)?,
            rows_late: unsigned(row, 11)?,
            rows_repeated: unsigned(row, 12)?,
            conflicts: unsigned(row, 13)?,
            seconds: row.get(14)?,
        },
    })
}
