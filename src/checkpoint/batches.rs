//! Micro-batches: freeze, record what decoding found, confirm what the tables hold.
//!
//! At most one batch is planned at a time, and its files do not change while it is. Ids only rise.

use super::files::{state_of, unsigned};
use super::outcomes::{confirm_files, insert_outcome, outcomes, totals};
use super::{
    ApplyCounters, BatchRecord, BatchState, CheckpointStore, FileEvent, FileOutcome, FileState,
    stored,
};
use crate::batch::{BatchId, BatchLimits, MicroBatch, PlannedFile};
use crate::change::Version;
use crate::clock::Micros;
use crate::error::{Error, Result};
use rusqlite::{Connection, OptionalExtension, Row, Transaction};
use std::collections::BTreeSet;
use std::ops::Range;

// `state <> 'loaded'` beside a state says nothing new: without it the index of the other files is not used.
const SELECT_PENDING: &str = "
    SELECT path, size, modified_at, replaces FROM files
    WHERE state = 'pending' AND state <> 'loaded' ORDER BY path";
const SELECT_RETRIES: &str = "
    SELECT path, size, modified_at, replaces FROM files
    WHERE state = 'parked' AND state <> 'loaded' AND next_try_at <= ?1 ORDER BY path";
const SELECT_NEXT_RETRY: &str = "
    SELECT min(next_try_at) FROM files WHERE state = 'parked' AND state <> 'loaded'";
const SELECT_PLANNED_FILES: &str = "
    SELECT path, size, modified_at, replaces FROM files
    WHERE state = 'planned' AND state <> 'loaded' AND batch_id = ?1 ORDER BY path";
const COUNT_PLANNED_FILES: &str = "
    SELECT count(*) FROM files WHERE state = 'planned' AND state <> 'loaded' AND batch_id = ?1";
const SELECT_PLANNED_BATCH: &str = "SELECT batch_id FROM batches WHERE state = 'planned'";
const SELECT_LAST_BATCH: &str = "
    SELECT batch_id, epoch, state, planned_at, bronze_version, silver_version, files, rows, rows_inserted, rows_updated,
        rows_deleted, rows_late, rows_repeated, conflicts, seconds
    FROM batches WHERE state IN ('loaded', 'applied') ORDER BY batch_id DESC LIMIT 1";

const UPDATE_NEXT_BATCH: &str = "
    UPDATE meta SET next_batch_id = next_batch_id + 1 WHERE next_batch_id = ?1";
const INSERT_BATCH: &str = "
    INSERT INTO batches (batch_id, epoch, state, planned_at, files)
    VALUES (?1, (SELECT epoch FROM meta), 'planned', ?2, ?3)";

const UPDATE_PLANNED: &str = "
    UPDATE files SET state = ?4, batch_id = ?5, attempts = attempts + 1, next_try_at = NULL
    WHERE state = ?3 AND state <> 'loaded' AND path BETWEEN ?1 AND ?2";
const UPDATE_RELEASED: &str = "
    UPDATE files SET state = ?2, batch_id = NULL, replaces = 1, reason = NULL, detail = NULL WHERE path = ?1";
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

const UPDATE_APPLIED_BACK_TO: &str = "UPDATE meta SET applied_up_to = ?1 WHERE applied_up_to > ?1";

impl CheckpointStore {
    /// Freezes the next batch, if there is one.
    pub fn plan(
        &mut self,
        settled: &dyn Fn(&str) -> bool,
        limits: BatchLimits,
        now: Micros,
    ) -> Result<Option<MicroBatch>> {
        let Some(next) = self.next_batch(settled, limits, now)? else {
            return Ok(None);
        };
        self.freeze(&next, now)?;
        Ok(Some(next.batch))
    }

    /// The next batch: settled pending files and parked ones whose next try is due, in path order, up to the limits. `None`
    /// when there is none. Nothing is written. Fails while another batch is planned.
    pub fn next_batch(
        &self,
        settled: &dyn Fn(&str) -> bool,
        limits: BatchLimits,
        now: Micros,
    ) -> Result<Option<NextBatch>> {
        if let Some(id) = self.read(planned_batch)? {
            return Err(Error::bug(format!("batch {id} is still planned")));
        }
        self.read(|connection| {
            let Taken { files, runs, .. } = due_files(connection, settled, limits, now)?;
            if files.is_empty() {
                return Ok(None);
            }
            let id = connection.query_row("SELECT next_batch_id FROM meta", [], |row| row.get(0));
            let id = BatchId(id?);
            Ok(Some(NextBatch {
                batch: MicroBatch { id, files },
                runs,
            }))
        })
    }

    /// Freezes a batch that [`CheckpointStore::next_batch`] gave, after which nothing else was written.
    ///
    /// If the program stops inside, either the batch is planned and its id used, or nothing happened. A power cut before
    /// [`CheckpointStore::prepare`] may take the plan back, when no table knows the batch yet.
    pub fn freeze(&mut self, next: &NextBatch, now: Micros) -> Result<()> {
        let NextBatch { batch, runs } = next;
        let id = batch.id.0;
        self.write_unsynced(|transaction| {
            let taken = transaction.execute(UPDATE_NEXT_BATCH, (id,))?;
            if taken != 1 {
                return Err(Error::bug(format!("batch {id} is not the next one")));
            }
            let count = stored(batch.files.len() as u64);
            transaction.execute(INSERT_BATCH, (id, now, count))?;
            for run in runs {
                let files = &batch.files[run.files.clone()];
                let (Some(first), Some(last)) = (files.first(), files.last()) else {
                    continue;
                };
                let planned = transaction.prepare_cached(UPDATE_PLANNED)?.execute((
                    &first.path,
                    &last.path,
                    run.state.as_str(),
                    run.state.next(FileEvent::Plan)?.as_str(),
                    id,
                ))?;
                if planned != files.len() {
                    return Err(Error::bug(format!(
                        "{} files are to be planned from {} to {}, but there are {planned}",
                        files.len(),
                        first.path,
                        last.path
                    )));
                }
            }
            Ok(())
        })
    }

    /// Whether some file waits for a batch.
    pub fn has_pending(&self) -> Result<bool> {
        self.read(|connection| Ok(connection.prepare_cached(SELECT_PENDING)?.exists([])?))
    }

    /// When the next parked file is due to be tried again by itself.
    pub fn next_retry_at(&self) -> Result<Option<Micros>> {
        self.read(|connection| {
            Ok(connection
                .prepare_cached(SELECT_NEXT_RETRY)?
                .query_row([], |row| row.get(0))?)
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
    /// If the program stops before, recovery finds the batch id in bronze and calls this. So it does after a power cut, which
    /// may take it back until the checkpoint is synced again, but not where bronze has nothing of the batch.
    pub fn confirm_loaded(
        &mut self,
        batch: BatchId,
        bronze_version: Option<Version>,
        now: Micros,
    ) -> Result<()> {
        let record = |transaction: &Transaction<'_>| {
            let planned = count_of_planned(transaction, batch)?;
            let totals = totals(transaction, batch)?;
            if totals.files != planned {
                return Err(Error::bug(format!(
                    "batch {batch} is confirmed but was not prepared"
                )));
            }
            let rows = totals.rows;
            if rows > 0 && bronze_version.is_none() {
                return Err(Error::bug(format!(
                    "batch {batch} has {rows} rows but no bronze version"
                )));
            }
            confirm_files(transaction, batch, &totals, bronze_version, now)?;
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
            // All of them are of this batch, and all at once they go without a look at each.
            transaction.execute("DELETE FROM outcomes", [])?;
            Ok(())
        };
        match bronze_version {
            Some(_) => self.write_unsynced(record),
            None => self.write(record),
        }
    }

    /// Marks every loaded batch up to `bronze_version` applied; the newest of them carries the counters. Without a silver
    /// table `silver_version` is `None`. Harmless when repeated.
    ///
    /// A power cut may take it back until the checkpoint is synced again; silver itself knows up to where it is applied.
    pub fn confirm_applied(
        &mut self,
        bronze_version: Version,
        silver_version: Option<Version>,
        counters: &ApplyCounters,
    ) -> Result<()> {
        self.write_unsynced(|transaction| {
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

    /// Silver is confirmed up to `bronze_version` and no further: later versions of bronze were lost with the end of its log.
    pub fn take_back_applied(&mut self, bronze_version: Version) -> Result<()> {
        self.write(|transaction| {
            transaction.execute(UPDATE_APPLIED_BACK_TO, (bronze_version.0,))?;
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
    check_planned(connection, batch)?;
    planned_files(connection, batch)
}

/// How many files of a batch are planned, which must be.
fn count_of_planned(connection: &Connection, batch: BatchId) -> Result<u64> {
    check_planned(connection, batch)?;
    let mut statement = connection.prepare_cached(COUNT_PLANNED_FILES)?;
    statement.query_row((batch.0,), |row| Ok(unsigned(row, 0)))?
}

fn check_planned(connection: &Connection, batch: BatchId) -> Result<()> {
    match planned_batch(connection)? == Some(batch) {
        true => Ok(()),
        false => Err(Error::bug(format!("batch {batch} is not planned"))),
    }
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
) -> Result<Taken> {
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
        runs: Vec::new(),
        goes_on: false,
        bytes: 0,
        limits,
    };
    let mut statement = connection.prepare_cached(SELECT_PENDING)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if !settled(row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?) {
            taken.goes_on = false;
            continue;
        }
        let file = planned_file(row)?;
        while let Some(retry) = retries.next_if(|retry| retry.path < file.path) {
            if !taken.take_retry(retry) {
                return Ok(taken);
            }
        }
        if !taken.take(file, FileState::Pending) {
            return Ok(taken);
        }
        taken.goes_on = true;
    }
    for retry in retries {
        if !taken.take_retry(retry) {
            break;
        }
    }
    Ok(taken)
}

/// A batch that is not frozen yet.
#[derive(Debug)]
pub struct NextBatch {
    /// What it will be.
    pub batch: MicroBatch,
    runs: Vec<Run>,
}

/// What a batch takes.
struct Taken {
    files: Vec<PlannedFile>,
    runs: Vec<Run>,
    /// Between the last file and the next pending one there is no other pending one.
    goes_on: bool,
    bytes: u64,
    limits: BatchLimits,
}

/// All files of one state in a stretch of the order of paths.
#[derive(Debug)]
struct Run {
    state: FileState,
    files: Range<usize>,
}

impl Taken {
    /// False when the file does not fit any more.
    fn take(&mut self, file: PlannedFile, state: FileState) -> bool {
        if !self.limits.admits(self.files.len(), self.bytes, file.size) {
            return false;
        }
        self.bytes = self.bytes.saturating_add(file.size);
        let place = self.files.len();
        self.files.push(file);
        match self.runs.last_mut() {
            Some(run) if self.goes_on => run.files.end = place + 1,
            _ => self.runs.push(Run {
                state,
                files: place..place + 1,
            }),
        }
        true
    }

    /// The same for a parked file.
    fn take_retry(&mut self, file: PlannedFile) -> bool {
        self.goes_on = false;
        self.take(file, FileState::Parked)
    }
}

/// Rejects of an earlier try of the batch may stand in quarantine, so whatever was once planned replaces.
pub(super) fn release_file(transaction: &Transaction<'_>, path: &str) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::super::fixture::*;
    use super::super::{FileState, OutcomeKind};
    use super::*;
    use crate::change::{FileFault, ParkReason};
    use crate::error::ErrorKind;

    fn unreadable(next_try_at: Option<Micros>) -> OutcomeKind {
        let fault = FileFault::new(ParkReason::Unreadable, "permission denied");
        OutcomeKind::Parked { fault, next_try_at }
    }

    #[test]
    fn second_batch_is_not_planned_while_one_is() {
        let mut bench = Bench::new();
        bench.see(&[("a", 1, 1)]);
        bench.plan(NOW).unwrap();
        bench.see(&[("a", 1, 1), ("b", 1, 1)]);
        assert_eq!(
            bench.store.plan(&|_| true, LIMITS, NOW).unwrap_err().kind(),
            ErrorKind::Bug
        );
        assert_eq!(bench.state("b"), FileState::Pending);
    }

    #[test]
    fn files_of_a_plan_that_a_power_cut_took_back_are_found_again() {
        let mut bench = Bench::new();
        bench.see(&[("a", 1, 1)]);
        bench.load();
        let files = ["", "-wal"].map(|end| bench.path().display().to_string() + end);
        let on_disk = files.clone().map(|file| std::fs::read(file).unwrap());
        bench.see(&[("a", 1, 1), ("b", 1, 1)]);
        let lost = bench.plan(NOW).unwrap();
        let Bench { folder, store } = bench;
        drop(store);
        for (file, bytes) in files.iter().zip(on_disk) {
            std::fs::write(file, bytes).unwrap();
        }
        let mut bench = Bench::open(folder);
        assert_eq!(bench.state("a"), FileState::Loaded);
        assert_eq!(bench.see(&[("a", 1, 1), ("b", 1, 1)]).new, 1);
        assert_eq!(bench.plan(NOW), Some(lost));
    }

    #[test]
    fn files_that_wait_are_found_without_a_look_at_those_that_are_loaded() {
        let bench = Bench::new();
        for sql in [
            SELECT_PENDING,
            SELECT_RETRIES,
            SELECT_NEXT_RETRY,
            SELECT_PLANNED_FILES,
            COUNT_PLANNED_FILES,
            UPDATE_PLANNED,
        ] {
            let plan = bench.store.read(|connection| {
                let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?;
                let unbound = vec![rusqlite::types::Null; statement.parameter_count()];
                let mut rows = statement.query(rusqlite::params_from_iter(unbound))?;
                let mut plan = String::new();
                while let Some(row) = rows.next()? {
                    plan += &row.get::<_, String>(3)?;
                }
                Ok(plan)
            });
            let plan = plan.unwrap();
            assert!(plan.contains("INDEX files_to_do (state=?"), "{sql}: {plan}");
        }
    }

    #[test]
    fn what_follows_a_plan_is_synced() {
        let mut bench = Bench::new();
        bench.see(&[("a", 1, 1)]);
        bench.see(&[("a", 1, 1), ("b", 1, 1)]);
        bench.plan(NOW).unwrap();
        let level: i64 = bench
            .store
            .read(|connection| {
                Ok(connection.pragma_query_value(None, "synchronous", |row| row.get(0))?)
            })
            .unwrap();
        assert_eq!(level, 2);
    }

    #[test]
    fn outcomes_that_leave_a_file_out_are_refused() {
        let mut bench = Bench::new();
        bench.see(&[("a", 1, 1), ("b", 1, 1)]);
        let batch = bench.plan(NOW).unwrap();
        let a = outcome("a", loaded(1, 0));
        for outcomes in [
            vec![a.clone()],
            vec![a.clone(), a.clone()],
            vec![a.clone(), outcome("c", loaded(1, 0))],
        ] {
            assert!(bench.store.prepare(batch.id, &outcomes).is_err());
        }
        assert!(bench.store.prepare(BatchId(7), &[a]).is_err());
        assert_eq!(bench.store.prepared(batch.id).unwrap(), None);
        assert!(
            bench
                .store
                .confirm_loaded(batch.id, Some(Version(1)), NOW)
                .is_err(),
            "not prepared"
        );
        assert_eq!(bench.state("a"), FileState::Planned);
    }

    #[test]
    fn rows_without_a_bronze_version_are_not_confirmed() {
        let mut bench = Bench::new();
        bench.see(&[("a", 1, 1)]);
        let batch = bench.plan(NOW).unwrap();
        bench
            .store
            .prepare(batch.id, &[outcome("a", loaded(1, 0))])
            .unwrap();
        assert!(bench.store.confirm_loaded(batch.id, None, NOW).is_err());
        assert_eq!(bench.state("a"), FileState::Planned);
        bench
            .store
            .confirm_loaded(batch.id, Some(Version(1)), NOW)
            .unwrap();
        assert!(
            bench
                .store
                .confirm_loaded(batch.id, Some(Version(1)), NOW)
                .is_err(),
            "only once"
        );
    }

    #[test]
    fn stop_after_plan_finds_the_same_frozen_batch_and_nothing_loaded() {
        let mut bench = Bench::new();
        bench.see(&[("a", 1, 1), ("b", 2, 2)]);
        let batch = bench.plan(NOW).unwrap();
        let mut bench = bench.reopen();
        assert_eq!(bench.store.planned().unwrap(), Some(batch.clone()));
        assert_eq!(bench.store.counts().unwrap().planned, 2);
        bench.see(&[("a", 9, 9), ("b", 2, 2)]);
        assert_eq!(
            bench.store.planned().unwrap(),
            Some(batch),
            "a listing does not touch it"
        );
    }

    #[test]
    fn stop_between_bronze_commit_and_confirm_is_confirmed_from_what_was_prepared() {
        let mut bench = Bench::new();
        let files = [
            ("a", 1, 1),
            ("b", 1, 1),
            ("c", 1, 1),
            ("d", 1, 1),
            ("e", 1, 1),
        ];
        bench.see(&files);
        let batch = bench.plan(NOW).unwrap();
        bench
            .store
            .prepare(
                batch.id,
                &[
                    outcome("a", loaded(9, 9)),
                    outcome("b", loaded(9, 9)),
                    outcome("c", loaded(9, 9)),
                    outcome("d", loaded(9, 9)),
                    outcome("e", loaded(9, 9)),
                ],
            )
            .unwrap();
        let outcomes = vec![
            outcome("a", loaded(3, 1)),
            outcome("b", OutcomeKind::Duplicate { of: "a".into() }),
            unread("c", unreadable(Some(NOW + SECOND))),
            unread("d", OutcomeKind::Again),
            unread("e", OutcomeKind::Vanished),
        ];
        bench.store.prepare(batch.id, &outcomes).unwrap();
        let mut bench = bench.reopen();
        assert_eq!(
            bench.store.prepared(batch.id).unwrap(),
            Some(outcomes),
            "the second call counts"
        );
        bench
            .store
            .confirm_loaded(batch.id, Some(Version(4)), NOW + 5)
            .unwrap();

        let a = bench.file("a");
        assert_eq!(
            (a.state, a.rows_loaded, a.rows_quarantined),
            (FileState::Loaded, 3, 1)
        );
        assert_eq!(
            (a.batch_id, a.bronze_version, a.loaded_at),
            (Some(batch.id), Some(Version(4)), Some(NOW + 5))
        );
        assert_eq!(a.content_hash, Some(hash_of("a")));
        let b = bench.file("b");
        assert_eq!(
            (b.state, b.rows_loaded, b.reason.as_deref()),
            (FileState::Loaded, 0, Some("duplicate_content"))
        );
        assert_eq!(bench.state("c"), FileState::Parked);
        assert_eq!(bench.state("d"), FileState::Pending);
        assert_eq!(bench.file("e").reason.as_deref(), Some("vanished"));
        assert!(["c", "d", "e"].iter().all(|path| bench.file(path).replaces));
        assert_eq!(bench.store.prepared(batch.id).unwrap(), None);
        assert_eq!(bench.store.planned().unwrap(), None);
    }

    #[test]
    fn released_batch_gives_back_its_files_and_never_its_id() {
        let mut bench = Bench::new();
        bench.see(&[("a", 1, 1)]);
        let first = bench.plan(NOW).unwrap();
        assert!(!first.files[0].replaces);
        bench
            .store
            .prepare(first.id, &[outcome("a", loaded(1, 0))])
            .unwrap();
        bench.store.release(first.id).unwrap();
        assert!(bench.store.release(first.id).is_err());
        assert_eq!(bench.store.prepared(first.id).unwrap(), None);
        let mut bench = bench.reopen();
        let second = bench.plan(NOW).unwrap();
        assert_eq!((first.id, second.id), (BatchId(1), BatchId(2)));
        assert!(
            second.files[0].replaces,
            "rejects of the first may stand in quarantine"
        );
        assert_eq!(bench.file("a").attempts, 2);
    }

    #[test]
    fn unreadable_file_is_tried_when_due_and_loads_beside_later_names() {
        let mut bench = Bench::new();
        bench.see(&[("a", 1, 1), ("b", 1, 1)]);
        let batch = bench.plan(NOW).unwrap();
        let due = NOW + 10 * SECOND;
        bench.confirm(
            &batch,
            &[
                unread("a", unreadable(Some(due))),
                outcome("b", loaded(1, 0)),
            ],
        );
        assert_eq!(bench.store.next_retry_at().unwrap(), Some(due));
        let seen = bench.see(&[("a", 1, 1), ("b", 1, 1), ("c", 1, 1)]);
        assert_eq!(seen.waiting.len(), 2, "a waits for its time");
        assert_eq!(paths(&bench.load()), ["c"]);
        assert_eq!(bench.plan(due - 1), None);
        bench.see(&[
            ("0", 1, 1),
            ("a", 1, 1),
            ("b", 1, 1),
            ("c", 1, 1),
            ("z", 1, 1),
        ]);
        let batch = bench.plan(due).unwrap();
        assert_eq!(paths(&batch), ["0", "a", "z"], "in path order");
        assert_eq!(bench.file("a").attempts, 2);
        assert_eq!(
            bench.file("a").reason.as_deref(),
            Some("unreadable"),
            "the failure stays visible"
        );
        bench.store.release(batch.id).unwrap();
        bench.load();
        assert_eq!(
            (bench.state("a"), bench.file("a").reason),
            (FileState::Loaded, None)
        );
    }

    #[test]
    fn unreadable_file_that_is_gone_is_no_longer_tried() {
        let mut bench = Bench::new();
        bench.see(&[("a", 1, 1)]);
        let batch = bench.plan(NOW).unwrap();
        bench.confirm(&batch, &[unread("a", unreadable(Some(NOW)))]);
        assert_eq!(bench.see(&[]).vanished, ["a"]);
        assert_eq!(bench.plan(NOW + SECOND), None);
    }

    #[test]
    fn unsettled_files_wait_and_limits_cut_in_path_order() {
        let mut bench = Bench::new();
        bench.see(&[
            ("a", 60, 1),
            ("b", 60, 1),
            ("c", 30, 1),
            ("d", 500, 1),
            ("e", 1, 1),
        ]);
        let limits = BatchLimits {
            files_max: 2,
            bytes_max: 100,
        };
        let mut batches = Vec::new();
        while let Some(batch) = bench.store.plan(&|path| path != "a", limits, NOW).unwrap() {
            let outcomes: Vec<_> = batch
                .files
                .iter()
                .map(|file| outcome(&file.path, loaded(1, 0)))
                .collect();
            bench.confirm(&batch, &outcomes);
            batches.push(paths(&batch).join(","));
        }
        assert_eq!(batches, ["b,c", "d", "e"]);
        assert_eq!(bench.state("a"), FileState::Pending);
    }

    #[test]
    fn batch_without_rows_counts_as_applied() {
        let mut bench = Bench::new();
        bench.see(&[("a", 0, 1)]);
        let batch = bench.plan(NOW).unwrap();
        bench
            .store
            .prepare(batch.id, &[outcome("a", loaded(0, 0))])
            .unwrap();
        bench.store.confirm_loaded(batch.id, None, NOW).unwrap();
        assert_eq!(
            bench.store.last_batch().unwrap().unwrap().state,
            BatchState::Applied
        );
    }

    #[test]
    fn apply_over_several_batches_marks_all_and_counts_once() {
        let mut bench = Bench::new();
        for path in ["a", "b", "c"] {
            bench.see(&[(path, 1, 1)]);
            bench.load();
        }
        let counters = ApplyCounters {
            rows_inserted: 5,
            conflicts: 1,
            seconds: 0.5,
            ..ApplyCounters::default()
        };
        bench
            .store
            .confirm_applied(Version(2), Some(Version(7)), &counters)
            .unwrap();
        assert_eq!(bench.store.applied_up_to().unwrap(), Some(Version(2)));
        let last = bench.store.last_batch().unwrap().unwrap();
        assert_eq!(
            (last.batch_id, last.state),
            (BatchId(3), BatchState::Loaded)
        );
        bench
            .store
            .confirm_applied(Version(2), Some(Version(7)), &ApplyCounters::default())
            .unwrap();
        bench
            .store
            .confirm_applied(Version(3), Some(Version(8)), &counters)
            .unwrap();
        bench
            .store
            .confirm_applied(Version(1), Some(Version(6)), &counters)
            .unwrap();
        assert_eq!(
            bench.store.applied_up_to().unwrap(),
            Some(Version(3)),
            "never goes back"
        );
        let last = bench.store.last_batch().unwrap().unwrap();
        assert_eq!(
            (last.state, last.silver_version, last.rows),
            (BatchState::Applied, Some(Version(8)), 2)
        );
        assert_eq!(last.counters, counters);
    }
}
