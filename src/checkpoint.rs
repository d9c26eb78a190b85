//! Stores the state of every landing file and every micro-batch durably; holds the one-loader lock.
//!
//! The tables are the truth, this is the plan and the ledger of files. A state moves forward only after the Delta commit
//! that makes it true, so an older state of the database is safe: recovery reads the tables' transactions again. A read
//! that fails is an error, never "nothing there". All calls block; keep them off async threads.
//!
//! Every call that writes is one transaction, synced before it returns: if the program stops inside, all or nothing of it
//! has survived.

mod batches;
mod files;
#[cfg(test)]
mod fixture;
mod lock;
mod open;
mod reconcile;
pub mod record;
pub mod state;

pub use lock::{Holder, holder};
pub use record::{
    ApplyCounters, BatchRecord, BatchState, Counts, FileOutcome, FileRecord, OutcomeKind,
    Reconciled, Selector,
};
pub use state::{FileEvent, FileState};

use crate::batch::BatchId;
use crate::change::Version;
use crate::clock::Micros;
use crate::error::{Error, ErrorKind, Result};
use crate::landing::encode_name;
use lock::Lock;
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
            let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
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
