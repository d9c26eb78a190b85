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
use std::collections::HashMap;

const SELECT_OUTCOMES: &str = "
    SELECT path, kind, content_hash, rows, quarantined, reason, detail, next_try_at
    FROM outcomes WHERE batch_id = ?1 ORDER BY path";

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

/// Files that were forgotten together with the file whose bytes they repeat, and whose source was gone by then.
const SELECT_REPEATED: &str = "
    SELECT path, content_hash FROM files
    WHERE state = 'parked' AND state <> 'loaded' AND reason = 'vanished' AND content_hash IS NOT NULL
        AND rows_loaded = 0 AND rows_quarantined = 0";
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

/// How many rows of the file stand in bronze once the batch is committed.
pub(super) fn rows_for_bronze(outcome: &FileOutcome) -> u64 {
    match outcome.result {
        OutcomeKind::Loaded { rows, .. } => rows,
        OutcomeKind::Parked { .. }
        | OutcomeKind::Again
        | OutcomeKind::Vanished
        | OutcomeKind::Duplicate { .. } => 0,
    }
}

/// Moves the files of the batch to where their outcomes say, which are recorded.
pub(super) fn confirm_files(
    transaction: &Transaction<'_>,
    batch: BatchId,
    outcomes: &[FileOutcome],
    bronze_version: Option<Version>,
    now: Micros,
) -> Result<()> {
    let mut loading = 0;
    let mut with_records: HashMap<&str, &str> = HashMap::new();
    for outcome in outcomes {
        match &outcome.result {
            OutcomeKind::Loaded { rows, quarantined } => {
                loading += 1;
                if let Some(hash) = outcome
                    .content_hash
                    .as_deref()
                    .filter(|_| rows + quarantined > 0)
                {
                    with_records.entry(hash).or_insert(&outcome.path);
                }
            }
            OutcomeKind::Duplicate { .. } => loading += 1,
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
    if loaded != loading {
        return Err(Error::bug(format!(
            "{loading} files of batch {batch} load, but {loaded} were planned"
        )));
    }
    repeat_again(transaction, &with_records)
}

/// Files that wait for nothing but the bytes of a file that is loaded now are its duplicates again.
fn repeat_again(transaction: &Transaction<'_>, loaded: &HashMap<&str, &str>) -> Result<()> {
    let mut statement = transaction.prepare_cached(SELECT_REPEATED)?;
    let mut rows = statement.query([])?;
    let mut repeated: Vec<(String, String)> = Vec::new();
    while let Some(row) = rows.next()? {
        let hash: String = row.get(1)?;
        if let Some(path) = loaded.get(hash.as_str()) {
            repeated.push((row.get(0)?, format!("{REPEATS}{path}")));
        }
    }
    let state = FileState::Parked.next(FileEvent::Restore)?;
    for (path, detail) in repeated {
        transaction
            .prepare_cached(UPDATE_REPEATED_AGAIN)?
            .execute((path, state.as_str(), REMARK_DUPLICATE_CONTENT, detail))?;
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
