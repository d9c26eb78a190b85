//! What becomes of the files of a batch: recorded before the Delta commits, carried out after them.

use super::batches::release_file;
use super::files::{state_of, unsigned};
use super::record::REMARK_DUPLICATE_CONTENT;
use super::{FileEvent, FileOutcome, FileState, OutcomeKind, stored};
use crate::batch::BatchId;
use crate::change::{FileFault, ParkReason, Version};
use crate::clock::Micros;
use crate::error::{Error, Result};
use rusqlite::{Connection, Row, Transaction};

const SELECT_OUTCOMES: &str = "
    SELECT path, kind, content_hash, rows, quarantined, reason, detail, next_try_at
    FROM outcomes WHERE batch_id = ?1 ORDER BY path";
/// Of files that do not load.
const SELECT_OTHERS: &str = "
    SELECT path, kind, content_hash, rows, quarantined, reason, detail, next_try_at
    FROM outcomes WHERE batch_id = ?1 AND kind NOT IN ('loaded', 'duplicate') ORDER BY path";
const SELECT_TOTALS: &str = "
    SELECT count(*), coalesce(sum(kind IN ('loaded', 'duplicate')), 0), coalesce(sum(rows), 0)
    FROM outcomes WHERE batch_id = ?1";

const INSERT_OUTCOME: &str = "
    INSERT INTO outcomes (batch_id, path, kind, content_hash, rows, quarantined, reason, detail, next_try_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";

const UPDATE_PARKED: &str = "
    UPDATE files SET state = ?2, replaces = 1, reason = ?3, detail = ?4, next_try_at = ?5 WHERE path = ?1";

/// All files of a batch that load, by themselves or as duplicates.
const UPDATE_LOADED: &str = "
    UPDATE files
    SET state = ?3, content_hash = outcome.content_hash, rows_loaded = outcome.rows,
        rows_quarantined = outcome.quarantined, bronze_version = ?4, loaded_at = ?5,
        reason = iif(outcome.kind = 'duplicate', ?6, NULL),
        detail = iif(outcome.kind = 'duplicate', ?7 || outcome.detail, NULL),
        next_try_at = NULL, replaces = 0, loaded_size = size, loaded_modified_at = modified_at
    FROM outcomes AS outcome
    WHERE outcome.batch_id = ?1 AND outcome.kind IN ('loaded', 'duplicate') AND files.path = outcome.path
        AND files.state = ?2";

/// Files that were forgotten together with the file whose bytes they repeat, and whose source was gone by then; each with the
/// file of the batch that brings these bytes again.
const SELECT_REPEATED: &str = "
    SELECT file.path, min(outcome.path)
    FROM files AS file JOIN outcomes AS outcome ON outcome.content_hash = file.content_hash
    WHERE file.state = 'parked' AND file.state <> 'loaded' AND file.reason = 'vanished'
        AND file.rows_loaded = 0 AND file.rows_quarantined = 0
        AND outcome.batch_id = ?1 AND outcome.kind = 'loaded' AND outcome.rows + outcome.quarantined > 0
    GROUP BY file.path";
const UPDATE_REPEATED_AGAIN: &str = "
    UPDATE files SET state = ?2, reason = ?3, detail = ?4 WHERE path = ?1";
/// What is said before the name of the file whose bytes another one repeats.
const REPEATS: &str = "the same bytes are loaded as ";

/// Records one outcome of a planned batch.
pub(super) fn insert_outcome(
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

/// The recorded outcomes of a batch, in path order.
pub(super) fn outcomes(connection: &Connection, batch: BatchId) -> Result<Vec<FileOutcome>> {
    selected(connection, SELECT_OUTCOMES, batch)
}

fn selected(connection: &Connection, sql: &str, batch: BatchId) -> Result<Vec<FileOutcome>> {
    let mut statement = connection.prepare_cached(sql)?;
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

/// What is recorded of a batch, in numbers.
pub(super) struct Totals {
    /// All outcomes.
    pub(super) files: u64,
    /// Files that load, by themselves or as duplicates.
    loading: u64,
    /// Rows that stand in bronze once the batch is committed.
    pub(super) rows: u64,
}

pub(super) fn totals(connection: &Connection, batch: BatchId) -> Result<Totals> {
    let mut statement = connection.prepare_cached(SELECT_TOTALS)?;
    statement.query_row((batch.0,), |row| {
        Ok(unsigned(row, 0).and_then(|files| {
            Ok(Totals {
                files,
                loading: unsigned(row, 1)?,
                rows: unsigned(row, 2)?,
            })
        }))
    })?
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

/// Moves the files of the batch to where their outcomes say, which are recorded and have these `totals`.
pub(super) fn confirm_files(
    transaction: &Transaction<'_>,
    batch: BatchId,
    totals: &Totals,
    bronze_version: Option<Version>,
    now: Micros,
) -> Result<()> {
    for outcome in selected(transaction, SELECT_OTHERS, batch)? {
        match &outcome.result {
            OutcomeKind::Loaded { .. } | OutcomeKind::Duplicate { .. } => {}
            OutcomeKind::Parked { fault, next_try_at } => {
                park_file(transaction, &outcome.path, fault, *next_try_at)?;
            }
            OutcomeKind::Again => release_file(transaction, &outcome.path)?,
            OutcomeKind::Vanished => {
                let fault = FileFault::new(
                    ParkReason::Vanished,
                    "the file went away before it was read",
                );
                park_file(transaction, &outcome.path, &fault, None)?;
            }
        }
    }
    let state = FileState::Planned.next(FileEvent::Load)?;
    let loaded = transaction.prepare_cached(UPDATE_LOADED)?.execute((
        batch.0,
        FileState::Planned.as_str(),
        state.as_str(),
        bronze_version.map(|version| version.0),
        now,
        REMARK_DUPLICATE_CONTENT,
        REPEATS,
    ))?;
    if loaded as u64 != totals.loading {
        return Err(Error::bug(format!(
            "{} files of batch {batch} load, but {loaded} were planned",
            totals.loading
        )));
    }
    repeat_again(transaction, batch)
}

/// Files that wait for nothing but the bytes of a file that is loaded now are its duplicates again.
fn repeat_again(transaction: &Transaction<'_>, batch: BatchId) -> Result<()> {
    let mut statement = transaction.prepare_cached(SELECT_REPEATED)?;
    let repeated = statement
        .query_map((batch.0,), |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<Vec<(String, String)>>>()?;
    let state = FileState::Parked.next(FileEvent::Restore)?;
    for (path, original) in repeated {
        transaction
            .prepare_cached(UPDATE_REPEATED_AGAIN)?
            .execute((
                path,
                state.as_str(),
                REMARK_DUPLICATE_CONTENT,
                format!("{REPEATS}{original}"),
            ))?;
    }
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
