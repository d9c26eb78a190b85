//! The ledger of files: look at it, reset, clean, rebuild. What a listing means for it is in `reconcile`.

use super::record::{REMARK_CLEAN_FAILED, REMARK_OVERWRITE_IGNORED};
use super::{CheckpointStore, Counts, FileEvent, FileRecord, FileState, Ledger, Selector, stored};
use crate::batch::BatchId;
use crate::change::Version;
use crate::clock::Micros;
use crate::error::{Error, Result};
use crate::landing::pattern::matcher;
use rusqlite::{Connection, OptionalExtension, Row, Transaction};
use std::collections::{BTreeMap, BTreeSet};

const COLUMNS: &str = "path, state, size, modified_at, content_hash, rows_loaded, rows_quarantined, batch_id, \
    bronze_version, discovered_at, loaded_at, attempts, next_try_at, reason, detail, replaces, loaded_size, \
    loaded_modified_at, changed_at";

const SELECT_CLEAN_FAILED: &str = "
    SELECT count(*) FROM files WHERE state = 'loaded' AND reason = ?1";

/// Files of the same content that are loaded with no records, since those of this one stand for theirs. Not by their
/// remark: another one may have taken its place.
const SELECT_DUPLICATES: &str = "
    SELECT path FROM files
    WHERE content_hash IS NOT NULL AND rows_loaded = 0 AND rows_quarantined = 0
        AND content_hash = (
            SELECT content_hash FROM files WHERE path = ?1 AND (rows_loaded > 0 OR rows_quarantined > 0))
        AND state IN ('loaded', 'cleaned')
    ORDER BY path";

const SELECT_COUNTS: &str = "
    SELECT state, count(*), sum(size), min(discovered_at), sum(rows_loaded), sum(rows_quarantined)
    FROM files GROUP BY state";

const CREATE_CONTENT_INDEX: &str = "
    CREATE INDEX IF NOT EXISTS files_by_content ON files (content_hash) WHERE content_hash IS NOT NULL";

const SELECT_CONTENT: &str = "
    SELECT path FROM files
    WHERE content_hash = ?1 AND (rows_loaded > 0 OR rows_quarantined > 0)
        AND (state IN ('loaded', 'cleaned') OR reason = 'changed_after_load')
    ORDER BY path LIMIT 1";

const UPDATE_CLEANED: &str = "
    UPDATE files SET state = ?2, reason = NULL, detail = NULL, next_try_at = NULL WHERE path = ?1";

const UPDATE_CLEAN_FAILED: &str = "
    UPDATE files SET reason = ?2, detail = ?3, next_try_at = ?4 WHERE path = ?1 AND state = 'loaded'";

/// Earlier rows stay in the record until others take their place.
const UPDATE_RESET: &str = "
    UPDATE files
    SET state = ?2, replaces = 1, attempts = 0, next_try_at = NULL, reason = NULL, detail = NULL
    WHERE path = ?1";

const INSERT_FILE: &str = "
    INSERT INTO files (path, state, size, modified_at, content_hash, rows_loaded, rows_quarantined, batch_id,
        bronze_version, discovered_at, loaded_at, attempts, next_try_at, reason, detail, replaces, loaded_size,
        loaded_modified_at, changed_at)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19)";

const INSERT_KNOWN_BATCH: &str = "
    INSERT INTO batches (batch_id, epoch, state, planned_at, bronze_version, files, rows)
    VALUES (?1, ?2, 'loaded', ?3, ?4, ?5, ?6)";

impl CheckpointStore {
    /// Hands every file, or those of one state, to `each`, in path order.
    pub fn files(&self, state: Option<FileState>, each: &mut dyn FnMut(FileRecord)) -> Result<()> {
        self.read(|connection| match state {
            Some(state) => {
                let filter = format!("WHERE state = '{state}' ORDER BY path");
                for_each_file(connection, &filter, &mut |record| {
                    each(record);
                    Ok(())
                })
            }
            None => for_each_file(connection, "ORDER BY path", &mut |record| {
                each(record);
                Ok(())
            }),
        })
    }

    /// Every file, and the id of the next batch, as they stood at one moment, also while a loader runs.
    pub fn ledger(&self) -> Result<Ledger> {
        self.read(|connection| {
            // The first read fixes what the others see.
            let snapshot = connection.unchecked_transaction()?;
            let next =
                snapshot.query_row("SELECT next_batch_id FROM meta", [], |row| row.get(0))?;
            let mut files = Vec::new();
            for_each_file(&snapshot, "ORDER BY path", &mut |record| {
                files.push(record);
                Ok(())
            })?;
            Ok(Ledger {
                next_batch_id: BatchId(next),
                files,
            })
        })
    }

    /// What is known about one file; `None` when no listing ever named it.
    pub fn file(&self, path: &str) -> Result<Option<FileRecord>> {
        self.read(|connection| {
            let sql = format!("SELECT {COLUMNS} FROM files WHERE path = ?1");
            let mut statement = connection.prepare_cached(&sql)?;
            let mut rows = statement.query((path,))?;
            rows.next()?.map(record).transpose()
        })
    }

    /// Numbers over the whole ledger; one pass over it.
    pub fn counts(&self) -> Result<Counts> {
        self.read(|connection| {
            let mut counts = Counts::default();
            let mut statement = connection.prepare_cached(SELECT_COUNTS)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let files = unsigned(row, 1)?;
                counts.rows_loaded += unsigned(row, 4)?;
                counts.rows_quarantined += unsigned(row, 5)?;
                match FileState::parse(&row.get::<_, String>(0)?)? {
                    FileState::Pending => {
                        counts.pending = files;
                        counts.bytes_pending = unsigned(row, 2)?;
                        counts.oldest_pending_at = row.get(3)?;
                    }
                    FileState::Planned => counts.planned = files,
                    FileState::Loaded => counts.loaded = files,
                    FileState::Parked => counts.parked = files,
                    FileState::Cleaned => counts.cleaned = files,
                }
            }
            Ok(counts)
        })
    }

    /// The path of a file that holds this content and whose rows are in bronze (`duplicate_content = "skip"`).
    ///
    /// The first call makes the index that it needs: its entries are spread at random, so it costs every load, and a
    /// loader that never asks does without.
    pub fn known_content(&self, hash: &str) -> Result<Option<String>> {
        self.read(|connection| {
            if self.is_writable() {
                connection
                    .prepare_cached(CREATE_CONTENT_INDEX)?
                    .execute([])?;
            }
            let mut statement = connection.prepare_cached(SELECT_CONTENT)?;
            Ok(statement.query_row((hash,), |row| row.get(0)).optional()?)
        })
    }

    /// Loaded files whose batch is applied and whose source is not cleaned, in path order; one whose cleaning failed when
    /// its next try is due. Before the caller moves or deletes a source it compares the content with the record: a file
    /// that changed since is not the one that was loaded.
    pub fn to_clean(&self, now: Micros) -> Result<Vec<FileRecord>> {
        let filter = format!(
            "WHERE state = 'loaded' AND reason IS NOT '{REMARK_OVERWRITE_IGNORED}'
             AND (next_try_at IS NULL OR next_try_at <= {now})
             AND batch_id IN (SELECT batch_id FROM batches WHERE state = 'applied') ORDER BY path"
        );
        self.read(|connection| {
            let mut records = Vec::new();
            for_each_file(connection, &filter, &mut |record| {
                records.push(record);
                Ok(())
            })?;
            Ok(records)
        })
    }

    /// The source file was moved or deleted, or was gone already.
    pub fn confirm_cleaned(&mut self, path: &str) -> Result<()> {
        self.write(|transaction| {
            let state = state_of(transaction, path)?.next(FileEvent::Clean)?;
            transaction
                .prepare_cached(UPDATE_CLEANED)?
                .execute((path, state.as_str()))?;
            Ok(())
        })
    }

    /// The source file could not be moved or deleted: it stays loaded, with the remark `clean_failed`.
    pub fn clean_failed(&mut self, path: &str, detail: &str, next_try_at: Micros) -> Result<()> {
        self.write(|transaction| {
            state_of(transaction, path)?.next(FileEvent::Clean)?;
            transaction.prepare_cached(UPDATE_CLEAN_FAILED)?.execute((
                path,
                REMARK_CLEAN_FAILED,
                detail,
                next_try_at,
            ))?;
            Ok(())
        })
    }

    /// Files whose source could not be moved or deleted and is still there to be cleaned.
    pub fn clean_failed_count(&self) -> Result<u64> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(SELECT_CLEAN_FAILED)?;
            statement.query_row((REMARK_CLEAN_FAILED,), |row| Ok(unsigned(row, 0)))?
        })
    }

    /// The files that were skipped because one of these holds their content, in path order, without those of `files`: when
    /// the rows of the original leave, they are to be loaded themselves.
    pub fn duplicates_of(&self, files: &[FileRecord]) -> Result<Vec<FileRecord>> {
        let mut paths = BTreeSet::new();
        self.read(|connection| {
            for file in files {
                paths.extend(duplicates_of(connection, &file.path)?);
            }
            Ok(())
        })?;
        for file in files {
            paths.remove(&file.path);
        }
        let mut records = Vec::new();
        for path in paths {
            records.extend(self.file(&path)?);
        }
        Ok(records)
    }

    /// The files that a reset would take, in path order. The caller leaves out those that are no longer there.
    pub fn reset_candidates(&self, selector: &Selector) -> Result<Vec<FileRecord>> {
        if let Selector::Glob(path) = selector
            && let Some(record) = self.file(path)?
        {
            return Ok(vec![record]);
        }
        let takes: Box<dyn Fn(&FileRecord) -> bool> = match selector {
            Selector::All => Box::new(|_| true),
            Selector::Failed => Box::new(|record| record.state == FileState::Parked),
            Selector::Glob(pattern) => {
                let matcher = matcher(pattern)?;
                Box::new(move |record| matcher.matches(&record.path))
            }
        };
        let mut records = Vec::new();
        self.files(None, &mut |record| {
            if takes(&record) {
                records.push(record);
            }
        })?;
        Ok(records)
    }

    /// Starts a new epoch and makes these files pending, to be loaded in the place of their earlier rows, together with
    /// the files that were skipped as their duplicates; returns the epoch. Fails, and changes nothing, while a batch is
    /// planned or when a path is not known.
    pub fn reset(&mut self, paths: &[String]) -> Result<i64> {
        self.write(|transaction| {
            for path in paths {
                free_duplicates(transaction, path)?;
            }
            for path in paths {
                let state = state_of(transaction, path)?.next(FileEvent::Retry)?;
                transaction
                    .prepare_cached(UPDATE_RESET)?
                    .execute((path, state.as_str()))?;
            }
            transaction.execute("UPDATE meta SET epoch = epoch + 1", [])?;
            Ok(transaction.query_row("SELECT epoch FROM meta", [], |row| row.get(0))?)
        })
    }

    /// Fills a new checkpoint from what the tables say. `next_batch` is above every batch id in the tables, `epoch` not
    /// below any epoch in them. The batches count as loaded; `confirm_applied` says what silver holds of them.
    ///
    /// No record is planned, and a loaded one says when it was loaded.
    pub fn rebuild_from(
        &mut self,
        records: Vec<FileRecord>,
        next_batch: BatchId,
        epoch: i64,
        now: Micros,
    ) -> Result<()> {
        self.write(|transaction| {
            let files: i64 =
                transaction.query_row("SELECT count(*) FROM files", [], |row| row.get(0))?;
            if files > 0 {
                return Err(Error::bug(
                    "a checkpoint that holds files cannot be rebuilt in place",
                ));
            }
            insert_known_batches(transaction, &records, epoch, now)?;
            for record in &records {
                if record.state == FileState::Planned {
                    return Err(Error::bug(format!(
                        "file {} cannot be planned by a rebuild",
                        record.path
                    )));
                }
                if record.batch_id.is_some_and(|batch| batch >= next_batch) {
                    return Err(Error::bug(format!(
                        "file {} is in a batch of the future",
                        record.path
                    )));
                }
                insert_record(transaction, record)?;
            }
            transaction.execute(
                "UPDATE meta SET next_batch_id = ?1, epoch = ?2, first_listing_done = 1",
                (next_batch.0, epoch),
            )?;
            Ok(())
        })
    }
}

/// The state of a file that must be known.
pub(super) fn state_of(connection: &Connection, path: &str) -> Result<FileState> {
    let mut statement = connection.prepare_cached("SELECT state FROM files WHERE path = ?1")?;
    let word: Option<String> = statement.query_row((path,), |row| row.get(0)).optional()?;
    match word {
        Some(word) => FileState::parse(&word),
        None => Err(Error::bug(format!("file {path} is not in the checkpoint"))),
    }
}

/// Makes the files pending that were skipped as duplicates of one whose rows are about to leave.
pub(super) fn free_duplicates(transaction: &Transaction<'_>, original: &str) -> Result<()> {
    for path in duplicates_of(transaction, original)? {
        let state = state_of(transaction, &path)?.next(FileEvent::Retry)?;
        transaction
            .prepare_cached(UPDATE_RESET)?
            .execute((path, state.as_str()))?;
    }
    Ok(())
}

fn duplicates_of(connection: &Connection, original: &str) -> Result<Vec<String>> {
    let mut statement = connection.prepare_cached(SELECT_DUPLICATES)?;
    let mut rows = statement.query((original,))?;
    let mut paths = Vec::new();
    while let Some(row) = rows.next()? {
        paths.push(row.get(0)?);
    }
    Ok(paths)
}

/// A count of the database, which its checks keep from being negative.
pub(super) fn unsigned(row: &Row<'_>, index: usize) -> Result<u64> {
    let number: Option<i64> = row.get(index)?;
    let number = number.unwrap_or(0);
    Ok(u64::try_from(number)
        .map_err(|_| rusqlite::Error::IntegralValueOutOfRange(index, number))?)
}

fn for_each_file(
    connection: &Connection,
    filter: &str,
    each: &mut dyn FnMut(FileRecord) -> Result<()>,
) -> Result<()> {
    let mut statement = connection.prepare(&format!("SELECT {COLUMNS} FROM files {filter}"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        each(record(row)?)?;
    }
    Ok(())
}

fn record(row: &Row<'_>) -> Result<FileRecord> {
    Ok(FileRecord {
        path: row.get(0)?,
        state: FileState::parse(row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?)?,
        size: unsigned(row, 2)?,
        modified_at: row.get(3)?,
        content_hash: row.get(4)?,
        rows_loaded: unsigned(row, 5)?,
        rows_quarantined: unsigned(row, 6)?,
        batch_id: row.get::<_, Option<i64>>(7)?.map(BatchId),
        bronze_version: row.get::<_, Option<i64>>(8)?.map(Version),
        discovered_at: row.get(9)?,
        loaded_at: row.get(10)?,
        attempts: row.get(11)?,
        next_try_at: row.get(12)?,
        reason: row.get(13)?,
        detail: row.get(14)?,
        replaces: row.get(15)?,
        loaded_size: row
            .get::<_, Option<i64>>(16)?
            .map(|_| unsigned(row, 16))
            .transpose()?,
        loaded_modified_at: row.get(17)?,
        changed_at: row.get(18)?,
    })
}

fn insert_record(transaction: &Transaction<'_>, record: &FileRecord) -> Result<()> {
    transaction
        .prepare_cached(INSERT_FILE)?
        .execute(rusqlite::params![
            record.path,
            record.state.as_str(),
            stored(record.size),
            record.modified_at,
            record.content_hash,
            stored(record.rows_loaded),
            stored(record.rows_quarantined),
            record.batch_id.map(|batch| batch.0),
            record.bronze_version.map(|version| version.0),
            record.discovered_at,
            record.loaded_at,
            record.attempts,
            record.next_try_at,
            record.reason,
            record.detail,
            record.replaces,
            record.loaded_size.map(stored),
            record.loaded_modified_at,
            record.changed_at,
        ])?;
    Ok(())
}

#[derive(Default)]
struct KnownBatch {
    bronze_version: Option<Version>,
    files: u64,
    rows: u64,
}

fn insert_known_batches(
    transaction: &Transaction<'_>,
    records: &[FileRecord],
    epoch: i64,
    now: Micros,
) -> Result<()> {
    let mut batches: BTreeMap<BatchId, KnownBatch> = BTreeMap::new();
    for record in records {
        let Some(id) = record.batch_id else { continue };
        let batch = batches.entry(id).or_default();
        batch.bronze_version = batch.bronze_version.max(record.bronze_version);
        batch.files += 1;
        batch.rows += record.rows_loaded;
    }
    for (id, batch) in batches {
        transaction.prepare_cached(INSERT_KNOWN_BATCH)?.execute((
            id.0,
            epoch,
            now,
            batch.bronze_version.map(|version| version.0),
            stored(batch.files),
            stored(batch.rows),
        ))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::fixture::*;
    use super::super::{ApplyCounters, BatchState, CheckpointStore, FileOutcome, OutcomeKind};
    use super::*;

    fn names(records: Vec<FileRecord>) -> Vec<String> {
        records.into_iter().map(|record| record.path).collect()
    }

    #[test]
    fn reset_of_an_unknown_or_planned_file_changes_nothing() {
        let mut bench = Bench::new();
        bench.see(&[("a", 1, 1), ("b", 1, 1)]);
        bench.load();
        assert!(bench.store.reset(&["a".into(), "no such".into()]).is_err());
        assert_eq!(
            (bench.state("a"), bench.store.epoch().unwrap()),
            (FileState::Loaded, 1)
        );
        bench.see(&[("a", 1, 1), ("b", 1, 1), ("c", 1, 1)]);
        bench.plan(NOW).unwrap();
        assert!(bench.store.reset(&["c".into()]).is_err());
    }

    #[test]
    fn reset_starts_an_epoch_and_loads_in_the_place_of_earlier_rows() {
        let mut bench = Bench::new();
        bench.see(&[("a", 1, 1), ("b", 1, 1)]);
        bench.load();
        assert_eq!(bench.store.reset(&["a".into()]).unwrap(), 2);
        let a = bench.file("a");
        assert_eq!(
            (a.state, a.attempts, a.rows_loaded),
            (FileState::Pending, 0, 2)
        );
        let batch = bench.load();
        assert_eq!(
            (batch.id, batch.files.len(), batch.files[0].replaces),
            (id(2), 1, true)
        );
        assert_eq!(bench.store.last_batch().unwrap().unwrap().epoch, 2);
    }

    #[test]
    fn reset_takes_a_file_that_changed_after_load_with_its_present_bytes() {
        let mut bench = Bench::new();
        bench.see(&[("a", 1, 1)]);
        bench.load();
        let seen = bench.see(&[("a", 5, 5)]);
        let park = crate::settings::AllowOverwrites::Park;
        bench
            .store
            .confirm_changed(&seen.to_rehash[0], park)
            .unwrap();
        bench.store.reset(&["a".into()]).unwrap();
        assert_eq!(bench.see(&[("a", 5, 5)]).waiting.len(), 1);
        let batch = bench.load();
        assert_eq!((batch.files[0].size, batch.files[0].replaces), (5, true));
        assert!(bench.see(&[("a", 5, 5)]).to_rehash.is_empty());
    }

    #[test]
    fn candidates_are_chosen_by_pattern_on_the_real_name() {
        let mut bench = Bench::new();
        bench.see(&[
            ("a\\x0Ab.json", 1, 1),
            ("a\\xFF.json", 1, 1),
            ("day/a.json", 1, 1),
            ("x.csv", 1, 1),
        ]);
        let glob = |pattern: &str| {
            names(
                bench
                    .store
                    .reset_candidates(&Selector::Glob(pattern.into()))
                    .unwrap(),
            )
        };
        assert_eq!(
            glob("a*.json"),
            ["a\\x0Ab.json", "a\\xFF.json", "day/a.json"]
        );
        assert_eq!(glob("day/*"), ["day/a.json"]);
        assert_eq!(glob("a\nb.json"), ["a\\x0Ab.json"]);
        assert!(
            bench
                .store
                .reset_candidates(&Selector::Glob("[".into()))
                .is_err()
        );
        assert_eq!(
            bench.store.reset_candidates(&Selector::All).unwrap().len(),
            4
        );
        assert!(
            bench
                .store
                .reset_candidates(&Selector::Failed)
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn source_is_cleaned_only_when_its_batch_is_applied() {
        let mut bench = Bench::new();
        bench.see(&[("a", 1, 1), ("b", 1, 1)]);
        assert!(bench.store.confirm_cleaned("a").is_err(), "not loaded");
        bench.load();
        assert!(bench.store.to_clean(NOW).unwrap().is_empty());
        bench
            .store
            .confirm_applied(Version(1), None, &ApplyCounters::default())
            .unwrap();
        assert_eq!(names(bench.store.to_clean(NOW).unwrap()), ["a", "b"]);
        bench.store.confirm_cleaned("a").unwrap();
        bench
            .store
            .clean_failed("b", "read-only folder", NOW + SECOND)
            .unwrap();
        assert!(bench.store.to_clean(NOW).unwrap().is_empty());
        let mut bench = bench.reopen();
        let b = bench.file("b");
        assert_eq!(
            (b.state, b.reason.as_deref()),
            (FileState::Loaded, Some("clean_failed"))
        );
        assert!(
            bench.see(&[("b", 1, 1)]).waiting.is_empty(),
            "never loaded again"
        );
        assert_eq!(names(bench.store.to_clean(NOW + SECOND).unwrap()), ["b"]);
    }

    #[test]
    fn known_content_names_a_file_that_brought_rows() {
        let mut bench = Bench::new();
        bench.see(&[("a", 1, 1), ("b", 1, 1)]);
        assert_eq!(bench.store.known_content(&hash_of("b")).unwrap(), None);
        let batch = bench.plan(NOW).unwrap();
        let mut copy = outcome("a", OutcomeKind::Duplicate { of: "b".into() });
        copy.content_hash = Some(hash_of("b"));
        bench.confirm(&batch, &[copy, outcome("b", loaded(1, 0))]);
        assert_eq!(
            bench.store.known_content(&hash_of("b")).unwrap().as_deref(),
            Some("b")
        );
        bench.store.reset(&["b".into()]).unwrap();
        assert_eq!(
            bench.store.known_content(&hash_of("b")).unwrap(),
            None,
            "its rows are about to be replaced"
        );
    }

    /// `a` holds the content, `b` and `c` repeat it.
    fn repeated() -> Bench {
        let mut bench = Bench::new();
        bench.see(&[("a", 1, 1), ("b", 1, 1), ("c", 1, 1)]);
        let batch = bench.plan(NOW).unwrap();
        let copy = |path: &str| FileOutcome {
            content_hash: Some(hash_of("a")),
            ..outcome(path, OutcomeKind::Duplicate { of: "a".into() })
        };
        bench.confirm(&batch, &[outcome("a", loaded(2, 1)), copy("b"), copy("c")]);
        bench
            .store
            .confirm_applied(Version(1), None, &ApplyCounters::default())
            .unwrap();
        // Other remarks take the place of the first one.
        bench.store.clean_failed("b", "busy", NOW).unwrap();
        bench.store.confirm_cleaned("c").unwrap();
        bench
    }

    #[test]
    fn duplicates_are_forgotten_with_the_file_that_holds_their_content() {
        let mut bench = repeated();
        let of = |bench: &Bench, path: &str| {
            let file = bench.file(path);
            names(bench.store.duplicates_of(&[file]).unwrap())
        };
        assert_eq!(
            (of(&bench, "a"), of(&bench, "b").len()),
            (vec!["b".into(), "c".into()], 0)
        );
        bench.store.reset(&["b".into()]).unwrap();
        assert_eq!(bench.state("a"), FileState::Loaded);
        bench.store.reset(&["a".into()]).unwrap();
        for path in ["a", "b", "c"] {
            assert_eq!(bench.state(path), FileState::Pending, "{path}");
        }
    }

    #[test]
    fn duplicates_are_loaded_themselves_when_their_original_is_replaced() {
        let mut bench = repeated();
        let replace = crate::settings::AllowOverwrites::Replace;
        let changed = landing_file("a", 5, 5);
        bench.store.confirm_changed(&changed, replace).unwrap();
        assert_eq!(
            (bench.state("b"), bench.state("c")),
            (FileState::Pending, FileState::Pending)
        );
    }

    #[test]
    fn duplicate_that_is_gone_is_one_again_when_its_content_is_back() {
        let mut bench = repeated();
        bench.store.reset(&["a".into()]).unwrap();
        assert_eq!(bench.see(&[("a", 1, 1), ("b", 1, 1)]).vanished, ["c"]);
        let batch = bench.plan(NOW).unwrap();
        let mut other = outcome("b", loaded(3, 0));
        bench.confirm(&batch, &[outcome("a", loaded(2, 1)), other.clone()]);
        let c = bench.file("c");
        assert_eq!(
            (c.state, c.reason.as_deref(), c.detail.as_deref()),
            (
                FileState::Loaded,
                Some("duplicate_content"),
                Some("the same bytes are loaded as a")
            )
        );
        // Nothing has its content any more.
        bench.store.reset(&["a".into()]).unwrap();
        bench.see(&[("a", 1, 1), ("b", 1, 1)]);
        let batch = bench.plan(NOW).unwrap();
        other.path = "a".into();
        bench.confirm(&batch, &[other]);
        assert_eq!(
            (bench.state("c"), bench.file("c").reason.as_deref()),
            (FileState::Parked, Some("vanished"))
        );
    }

    #[test]
    fn failed_clean_ups_are_counted_until_they_succeed() {
        let mut bench = repeated();
        assert_eq!(bench.store.clean_failed_count().unwrap(), 1);
        bench.store.clean_failed("a", "busy", NOW).unwrap();
        let mut bench = bench.reopen();
        assert_eq!(bench.store.clean_failed_count().unwrap(), 2);
        for path in ["a", "b"] {
            bench.store.confirm_cleaned(path).unwrap();
        }
        assert_eq!(bench.store.clean_failed_count().unwrap(), 0);
    }

    #[test]
    fn text_that_is_a_path_means_that_file() {
        let mut bench = Bench::new();
        let paths = [
            r"a[1.json",
            r"a\\b",
            r"a\xFF",
            "day/x1.json",
            "day/x[1].json",
        ];
        let files: Vec<(&str, u64, i64)> = paths.iter().map(|path| (*path, 1, 1)).collect();
        bench.see(&files);
        let chosen = |text: &str| {
            let selector = Selector::Glob(text.into());
            bench.store.reset_candidates(&selector).map(names)
        };
        for path in paths {
            assert_eq!(chosen(path).unwrap(), [path]);
        }
        assert_eq!(chosen("x[1].json").unwrap(), ["day/x1.json"]);
        assert!(chosen("b[1.json").is_err());
    }

    #[test]
    fn counts_and_lists_follow_the_states() {
        let mut bench = Bench::new();
        bench.see(&[("a", 1, 1)]);
        bench.load();
        bench.see(&[("a", 1, 1), ("b", 20, 1), ("c", 30, 1)]);
        let counts = bench.store.counts().unwrap();
        assert_eq!(
            (
                counts.loaded,
                counts.pending,
                counts.bytes_pending,
                counts.rows_loaded
            ),
            (1, 2, 50, 2)
        );
        assert_eq!(counts.oldest_pending_at, Some(NOW));
        let mut seen = Vec::new();
        bench
            .store
            .files(Some(FileState::Pending), &mut |record| {
                seen.push(record.path)
            })
            .unwrap();
        assert_eq!(seen, ["b", "c"]);
        assert_eq!(bench.store.file("no such").unwrap(), None);
    }

    #[test]
    fn rebuild_takes_up_where_the_tables_are() {
        let mut bench = Bench::new();
        bench.see(&[("a", 1, 1), ("b", 1, 1)]);
        bench.load();
        let mut records = Vec::new();
        bench
            .store
            .files(None, &mut |record| records.push(record))
            .unwrap();
        assert!(
            bench
                .store
                .rebuild_from(records.clone(), id(9), 3, NOW)
                .is_err(),
            "not in place"
        );

        let path = bench.path();
        let Bench { folder, store } = bench;
        drop(store);
        let landing = folder.path().join("landing");
        let (mut store, kept) =
            CheckpointStore::open_afresh(&path, "orders", &landing, NOW).unwrap();
        assert!(kept.unwrap().exists());
        assert!(store.is_new().unwrap());
        assert!(
            store.rebuild_from(records.clone(), id(1), 3, NOW).is_err(),
            "a batch of the future"
        );
        store.rebuild_from(records.clone(), id(9), 3, NOW).unwrap();
        assert_eq!(
            (store.next_batch_id().unwrap(), store.epoch().unwrap()),
            (id(9), 3)
        );
        let mut bench = Bench { folder, store };
        assert_eq!(bench.see(&[("a", 1, 1), ("b", 1, 1), ("c", 1, 1)]).new, 1);
        assert_eq!(bench.file("a"), records[0]);
        assert_eq!(
            bench.store.last_batch().unwrap().unwrap().state,
            BatchState::Loaded
        );
        assert_eq!(bench.load().id, id(9));
    }
}
