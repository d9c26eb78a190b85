//! Stores the state of every landing file and every micro-batch durably; holds the one-loader lock.
//!
//! The tables are the truth, this is the plan and the ledger of files. A state moves forward only after the Delta commit
//! that makes it true, so an older state of the database is safe: recovery reads the tables' transactions again. A read
//! that fails is an error, never "nothing there". All calls block; keep them off async threads.
//!
//! Every call that writes is one transaction: if the program stops inside, all or nothing of it has survived. It is synced
//! before it returns, but where it says that a power cut may take it back.

mod batches;
mod files;
#[cfg(test)]
mod fixture;
mod lock;
mod open;
mod outcomes;
mod reconcile;
pub mod record;
pub mod state;
#[cfg(test)]
mod walk;

pub use batches::NextBatch;
pub use lock::{Holder, Lock, holder};
pub use reconcile::Compared;
pub use record::{
    ApplyCounters, BatchRecord, BatchState, Counts, FileOutcome, FileRecord, Ledger, OutcomeKind,
    Reconciled, Selector,
};
pub use state::{FileEvent, FileState};

use crate::batch::BatchId;
use crate::change::Version;
use crate::clock::Micros;
use crate::error::{Error, ErrorKind, Result};
use crate::landing::encode_name;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::path::{Path, PathBuf};

/// The open checkpoint of one pipeline.
#[derive(Debug)]
pub struct CheckpointStore {
    path: PathBuf,
    connection: Connection,
    pipeline_id: String,
    journal_note: Option<String>,
    /// Last, so that the database is closed before another loader may open it; `None` when opened for reading.
    lock: Option<Lock>,
}

const SELECT_IDENTITY: &str = "SELECT pipeline_id, source_path FROM meta";
const INSERT_META: &str = "
    INSERT INTO meta (one, pipeline_id, source_path, epoch, next_batch_id, first_listing_done, created_at)
    VALUES (1, ?1, ?2, 1, 1, 0, ?3)";

impl CheckpointStore {
    /// Takes the one-loader lock, then opens the database or makes a new one.
    ///
    /// Fails with `Held` when another loader has it, `Settings` when it belongs to another landing folder, `Unavailable`
    /// when it is damaged or not usable; nothing is changed then.
    pub fn open(path: &Path, pipeline: &str, source_path: &Path, now: Micros) -> Result<Self> {
        open::make_folder(path)?;
        let lock = Lock::take(path, now)?;
        CheckpointStore::open_locked(lock, path, pipeline, source_path, now)
    }

    /// Like [`CheckpointStore::open`] on a new database: one that is there, damaged or not, is moved aside, and its new
    /// name is returned.
    pub fn open_afresh(
        path: &Path,
        pipeline: &str,
        source_path: &Path,
        now: Micros,
    ) -> Result<(Self, Option<PathBuf>)> {
        open::make_folder(path)?;
        let lock = Lock::take(path, now)?;
        let kept = open::move_aside(path, &lock::iso(now).replace([':', '-'], ""))?;
        Ok((
            CheckpointStore::open_locked(lock, path, pipeline, source_path, now)?,
            kept,
        ))
    }

    /// Opens without the lock, for reports while a loader may run; every write fails. `None` when there is no checkpoint.
    pub fn open_read_only(path: &Path) -> Result<Option<Self>> {
        let Some(connection) = open::open_for_reading(path)? else {
            return Ok(None);
        };
        let identity =
            identity(&connection).map_err(|error| open::explain(path, "PIPELINE", error))?;
        let Some((pipeline_id, _)) = identity else {
            return Ok(None);
        };
        Ok(Some(CheckpointStore {
            path: path.to_owned(),
            connection,
            pipeline_id,
            journal_note: None,
            lock: None,
        }))
    }

    fn open_locked(
        lock: Lock,
        path: &Path,
        pipeline: &str,
        source_path: &Path,
        now: Micros,
    ) -> Result<Self> {
        let opened = open::open_database(path, pipeline)?;
        let mut store = CheckpointStore {
            path: path.to_owned(),
            connection: opened.connection,
            pipeline_id: pipeline.to_owned(),
            journal_note: opened.journal_note,
            lock: Some(lock),
        };
        let source = resolved(source_path);
        match store.read(identity)? {
            Some((pipeline_id, known_source)) => {
                store.accept_source(pipeline, &known_source, &source)?;
                store.pipeline_id = pipeline_id;
            }
            None => store.initialize(pipeline, &source, now)?,
        }
        Ok(store)
    }

    fn initialize(&mut self, pipeline: &str, source: &str, now: Micros) -> Result<()> {
        self.write(|transaction| {
            transaction.execute(INSERT_META, (pipeline, source, now))?;
            Ok(())
        })?;
        // The identity must be in the database file itself, so that it outlives a lost `-wal` file.
        self.read(|connection| {
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
            Ok(())
        })
    }

    fn accept_source(&self, pipeline: &str, known: &str, present: &str) -> Result<()> {
        if known == present {
            return Ok(());
        }
        Err(Error::settings(format!(
            "checkpoint {} belongs to the landing folder {known}, but the settings say {present}",
            self.path.display()
        ))
        .hint(format!(
            "name another checkpoint, move the folder back, or accept the new place with `landfall rebuild {pipeline} checkpoint`"
        )))
    }

    /// No batch was ever planned here: beside a bronze table that holds rows, the checkpoint was lost.
    pub fn is_new(&self) -> Result<bool> {
        Ok(self.next_batch_id()? == BatchId(1))
    }

    /// The name of the pipeline when the checkpoint was made; part of the app ids of its Delta transactions.
    pub fn pipeline_id(&self) -> &str {
        &self.pipeline_id
    }

    /// One line when the journal is not WAL, because of the file system.
    pub fn journal_note(&self) -> Option<&str> {
        self.journal_note.as_deref()
    }

    /// Rises with every reset; part of the app ids of Delta transactions.
    pub fn epoch(&self) -> Result<i64> {
        self.read(|connection| {
            Ok(connection.query_row("SELECT epoch FROM meta", [], |row| row.get(0))?)
        })
    }

    /// The id of the next batch. Above every id used here; a table that holds this id or a higher one, in whatever
    /// epoch, proves that the checkpoint is older than the table.
    pub fn next_batch_id(&self) -> Result<BatchId> {
        let id = |connection: &Connection| {
            Ok(connection.query_row("SELECT next_batch_id FROM meta", [], |row| row.get(0))?)
        };
        Ok(BatchId(self.read(id)?))
    }

    /// The bronze version up to which silver is confirmed.
    pub fn applied_up_to(&self) -> Result<Option<Version>> {
        let version = |connection: &Connection| {
            Ok(
                connection.query_row("SELECT applied_up_to FROM meta", [], |row| {
                    row.get::<_, Option<i64>>(0)
                })?,
            )
        };
        Ok(self.read(version)?.map(Version))
    }

    /// Keeps one line about the last failure for `status`; `None` clears it.
    pub fn set_last_error(&mut self, message: Option<&str>) -> Result<()> {
        self.write(|transaction| {
            transaction.execute(
                "UPDATE meta SET last_error = ?1 WHERE last_error IS NOT ?1",
                (message,),
            )?;
            Ok(())
        })
    }

    /// What [`CheckpointStore::set_last_error`] kept.
    pub fn last_error(&self) -> Result<Option<String>> {
        self.read(|connection| {
            Ok(connection.query_row("SELECT last_error FROM meta", [], |row| row.get(0))?)
        })
    }

    /// Whether this is the one loader's store.
    fn is_writable(&self) -> bool {
        self.lock.is_some()
    }

    /// Reads; an error names the checkpoint.
    fn read<T>(&self, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        work(&self.connection).map_err(|error| self.explain(error))
    }

    /// Does `work` in one transaction; nothing of it survives an error.
    fn write<T>(&mut self, work: impl FnOnce(&Transaction<'_>) -> Result<T>) -> Result<T> {
        let result = (|| {
            let transaction = self
                .connection
                .transaction_with_behavior(TransactionBehavior::Immediate)?;
            let value = work(&transaction)?;
            transaction.commit()?;
            Ok(value)
        })();
        result.map_err(|error| self.explain(error))
    }

    /// As [`CheckpointStore::write`], without a wait for the disk: a power cut may take it back, up to the next
    /// [`CheckpointStore::write`], a kill of the program cannot. For what a listing finds again.
    fn write_unsynced<T>(&mut self, work: impl FnOnce(&Transaction<'_>) -> Result<T>) -> Result<T> {
        if !self.is_wal() {
            // Without the write-ahead log such a commit could damage the database.
            return self.write(work);
        }
        self.set_synchronous("NORMAL")?;
        let result = self.write(work);
        self.set_synchronous("FULL")?;
        result
    }

    fn set_synchronous(&self, level: &str) -> Result<()> {
        self.read(|connection| Ok(connection.pragma_update(None, "synchronous", level)?))
    }

    /// Every other journal has a note.
    fn is_wal(&self) -> bool {
        self.journal_note.is_none()
    }

    fn explain(&self, error: Error) -> Error {
        match error.kind() {
            ErrorKind::Bug | ErrorKind::Settings => error,
            _ => open::explain(&self.path, &self.pipeline_id, error),
        }
    }
}

fn identity(connection: &Connection) -> Result<Option<(String, String)>> {
    let mut statement = connection.prepare(SELECT_IDENTITY)?;
    let mut rows = statement.query([])?;
    match rows.next()? {
        Some(row) => Ok(Some((row.get(0)?, row.get(1)?))),
        None => Ok(None),
    }
}

/// The landing folder without links as far as it exists, as text that leads back to it.
fn resolved(source_path: &Path) -> String {
    for ancestor in source_path.ancestors() {
        let Ok(canonical) = std::fs::canonicalize(ancestor) else {
            continue;
        };
        let rest = source_path.strip_prefix(ancestor).unwrap_or(Path::new(""));
        return encode_name(canonical.join(rest).as_os_str())
            .trim_end_matches('/')
            .to_owned();
    }
    encode_name(source_path.as_os_str())
}

/// A count or size as the database stores it; no file or table reaches the limit.
fn stored(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::fixture::*;
    use super::*;
    use std::time::Duration;

    fn open(path: &Path, source: &Path) -> Result<CheckpointStore> {
        CheckpointStore::open(path, "orders", source, NOW)
    }

    /// A checkpoint with loaded files, closed, and large enough for damage in the middle.
    fn closed() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let mut bench = Bench::new();
        let names: Vec<String> = (0..500).map(|index| format!("{index:04}.jsonl")).collect();
        let files: Vec<(&str, u64, i64)> = names.iter().map(|name| (name.as_str(), 1, 1)).collect();
        bench.see(&files);
        bench.load();
        let path = bench.path();
        let Bench { folder, store } = bench;
        drop(store);
        let landing = folder.path().join("landing");
        (folder, path, landing)
    }

    #[test]
    fn damaged_database_is_refused_and_kept() {
        let (_folder, path, landing) = closed();
        let mut bytes = std::fs::read(&path).unwrap();
        assert!(bytes.len() > 5 * 4096);
        // The page of a table; one in the middle may be free.
        bytes[4096..2 * 4096].fill(0xa5);
        std::fs::write(&path, &bytes).unwrap();
        let error = open(&path, &landing).unwrap_err();
        assert_eq!(
            (error.kind(), error.exit_code()),
            (ErrorKind::Unavailable, 1)
        );
        assert!(error.message().contains("orders.db: is damaged"), "{error}");
        assert!(
            error
                .hint_text()
                .unwrap()
                .contains("landfall rebuild orders checkpoint"),
            "{error}"
        );
        assert_eq!(std::fs::read(&path).unwrap(), bytes);

        std::fs::write(
            &path,
            "this is no database, but long enough to look at: ".repeat(100),
        )
        .unwrap();
        assert!(
            open(&path, &landing)
                .unwrap_err()
                .message()
                .contains("is damaged")
        );
        assert!(CheckpointStore::open_read_only(&path).is_err());
    }

    #[test]
    fn damage_can_be_moved_aside_and_nothing_of_it_is_lost() {
        let (_folder, path, landing) = closed();
        std::fs::write(&path, "torn").unwrap();
        let (store, kept) = CheckpointStore::open_afresh(&path, "orders", &landing, NOW).unwrap();
        assert!(store.is_new().unwrap());
        assert_eq!(std::fs::read_to_string(kept.unwrap()).unwrap(), "torn");
    }

    #[test]
    fn empty_or_missing_file_is_a_new_checkpoint_that_says_so() {
        let (_folder, path, landing) = closed();
        assert!(!open(&path, &landing).unwrap().is_new().unwrap());
        std::fs::write(&path, "").unwrap();
        assert!(CheckpointStore::open_read_only(&path).unwrap().is_none());
        assert!(open(&path, &landing).unwrap().is_new().unwrap());
        std::fs::remove_file(&path).unwrap();
        assert!(CheckpointStore::open_read_only(&path).unwrap().is_none());
        let mut store = open(&path, &landing).unwrap();
        let listed = listing(&[("a", 1, 1)]);
        store
            .reconcile(&listed, crate::settings::AllowOverwrites::Park, true, NOW)
            .unwrap();
        assert!(
            store.is_new().unwrap(),
            "what a listing found proves nothing"
        );
        store.plan(&|_| true, LIMITS, NOW).unwrap().unwrap();
        assert!(!store.is_new().unwrap());
    }

    #[test]
    fn database_without_its_wal_is_an_older_state_and_not_a_wrong_one() {
        let mut bench = Bench::new();
        bench.see(&[("a", 1, 1)]);
        bench.load();
        // What a killed process leaves, minus the `-wal` file.
        let copy = bench.folder.path().join("copy.db");
        std::fs::copy(bench.path(), &copy).unwrap();
        let store = open(&copy, &bench.folder.path().join("landing")).unwrap();
        assert_eq!(store.pipeline_id(), "orders");
        assert!(store.next_batch_id().unwrap() <= bench.store.next_batch_id().unwrap());
        assert!(
            store
                .file("a")
                .unwrap()
                .is_none_or(|file| file.state != FileState::Loaded)
        );
    }

    #[test]
    fn another_landing_folder_is_refused_with_both_names() {
        let (folder, path, landing) = closed();
        let other = folder.path().join("other");
        std::fs::create_dir(&other).unwrap();
        let error = open(&path, &other).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Settings);
        let message = error.message();
        assert!(
            message.contains(landing.to_str().unwrap())
                && message.contains(other.to_str().unwrap()),
            "{error}"
        );
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&landing, &link).unwrap();
        open(&path, &link).expect("another way to the same folder");
        std::fs::remove_dir(&landing).unwrap();
        open(&path, &landing).expect("a folder that is missing for now");
    }

    #[test]
    fn second_loader_is_refused_while_reports_still_read() {
        let mut bench = Bench::new();
        bench.see(&[("a", 1, 1)]);
        let landing = bench.folder.path().join("landing");
        let error = open(&bench.path(), &landing).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Held);
        let mut report = CheckpointStore::open_read_only(&bench.path())
            .unwrap()
            .unwrap();
        assert_eq!(report.counts().unwrap().pending, 1);
        assert_eq!(report.known_content(&hash_of("a")).unwrap(), None);
        assert_eq!(
            holder(&bench.path()).unwrap().unwrap().pid,
            Some(std::process::id())
        );
        assert!(
            report.plan(&|_| true, LIMITS, NOW).is_err(),
            "a report cannot write"
        );
        assert_eq!(bench.state("a"), FileState::Pending);
        let path = bench.path();
        let Bench {
            folder: _folder,
            store,
        } = bench;
        drop(store);
        open(&path, &landing).unwrap();
    }

    #[test]
    fn database_locked_by_another_program_stops_the_plan() {
        let mut bench = Bench::new();
        bench.see(&[("a", 1, 1)]);
        bench
            .store
            .connection
            .busy_timeout(Duration::from_millis(20))
            .unwrap();
        let other = Connection::open(bench.path()).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let error = bench.store.plan(&|_| true, LIMITS, NOW).unwrap_err();
        assert_eq!(
            (error.kind(), error.exit_code()),
            (ErrorKind::Unavailable, 1)
        );
        assert!(
            error.message().contains("locked by another program"),
            "{error}"
        );
        other.execute_batch("ROLLBACK").unwrap();
        assert_eq!(
            bench.plan(NOW).unwrap().id,
            id(1),
            "the failed plan used nothing"
        );
    }

    #[test]
    fn last_error_is_kept_over_a_restart() {
        let mut bench = Bench::new();
        bench.store.set_last_error(Some("disk is full")).unwrap();
        let mut bench = bench.reopen();
        assert_eq!(
            bench.store.last_error().unwrap().as_deref(),
            Some("disk is full")
        );
        bench.store.set_last_error(None).unwrap();
        assert_eq!(bench.store.last_error().unwrap(), None);
    }

    #[test]
    fn store_and_watch_can_move_to_another_thread() {
        fn moves<T: Send>() {}
        moves::<CheckpointStore>();
        moves::<crate::landing::Watch>();
        moves::<crate::landing::Waker>();
    }

    #[test]
    fn name_of_the_pipeline_is_that_of_its_creation() {
        let (_folder, path, landing) = closed();
        let store = CheckpointStore::open(&path, "renamed", &landing, NOW).unwrap();
        assert_eq!(store.pipeline_id(), "orders");
    }
}
