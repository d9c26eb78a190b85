//! Stores the state of every landing file and every micro-batch durably; holds the one-loader lock.
//!
//! The tables are the truth, this is the plan and the ledger of files. A state moves forward only after the Delta commit
//! that makes it true, so an older state of the database is safe: recovery reads the tables' transactions again. A read
//! that fails is an error, never "nothing there". All calls block; keep them off async threads.

pub mod state;

pub use state::{FileEvent, FileState};

use crate::batch::{BatchId, BatchLimits, MicroBatch};
use crate::change::{FileFault, Version};
use crate::clock::Micros;
use crate::error::Result;
use crate::landing::{LandingFile, Listing};
use crate::settings::AllowOverwrites;
use std::path::{Path, PathBuf};

/// One row of the ledger: everything known about a file ever seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileRecord {
    /// See `landing::encode_name`.
    pub path: String,
    /// Where it stands.
    pub state: FileState,
    /// Bytes, as last seen.
    pub size: u64,
    /// Microseconds since the epoch, as last seen.
    pub modified_at: Micros,
    /// blake3 hex of the content that was loaded; `None` while nothing of it is loaded, or when it is not known.
    pub content_hash: Option<String>,
    /// Rows in bronze.
    pub rows_loaded: u64,
    /// Rows in quarantine.
    pub rows_quarantined: u64,
    /// The batch that holds or loaded it.
    pub batch_id: Option<BatchId>,
    /// The bronze version that holds its rows.
    pub bronze_version: Option<Version>,
    /// When a listing first named it.
    pub discovered_at: Micros,
    /// When it was loaded.
    pub loaded_at: Option<Micros>,
    /// In how many batches it was since it was last discovered, changed or reset.
    pub attempts: u32,
    /// When a parked file is tried again by itself, or a failed clean-up is; `None` is never.
    pub next_try_at: Option<Micros>,
    /// Why it is parked (`ParkReason`), or a remark on a loaded file: `clean_failed`, `duplicate_content`, `existed_before`.
    pub reason: Option<String>,
    /// One line for the operator.
    pub detail: Option<String>,
    /// Rows of it may stand in bronze or quarantine from an earlier batch.
    pub replaces: bool,
    /// Size of the loaded content.
    pub loaded_size: Option<u64>,
    /// Modification time of the loaded content.
    pub loaded_modified_at: Option<Micros>,
}

/// What decoding found for one file of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOutcome {
    /// The file.
    pub path: String,
    /// blake3 hex of the bytes that were read; `None` when none were.
    pub content_hash: Option<String>,
    /// What becomes of it when the batch is confirmed.
    pub result: OutcomeKind,
}

/// What becomes of a file when its batch is confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutcomeKind {
    /// Its rows go to bronze, its rejects to quarantine.
    Loaded {
        /// Rows for bronze.
        rows: u64,
        /// Rejects for quarantine.
        quarantined: u64,
    },
    /// None of its rows load.
    Parked {
        /// Why.
        fault: FileFault,
        /// When to try again by itself; `None` waits for new bytes or a reset.
        next_try_at: Option<Micros>,
    },
    /// It changed while it was read: back to pending.
    Again,
    /// It is gone: parked as `vanished`, pending when it is back.
    Vanished,
    /// The same bytes are loaded under another name: loaded with no rows.
    Duplicate {
        /// The other name.
        of: String,
    },
}

/// What one apply to silver did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ApplyCounters {
    /// Keys that are new.
    pub rows_inserted: u64,
    /// Rows with new values.
    pub rows_updated: u64,
    /// Rows deleted or flagged.
    pub rows_deleted: u64,
    /// Events below the sequence of their row.
    pub rows_late: u64,
    /// Events that were known.
    pub rows_repeated: u64,
    /// Events of equal sequence and different content.
    pub conflicts: u64,
    /// Wall time from plan to apply.
    pub seconds: f64,
}

/// How far a batch came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchState {
    /// Frozen, not confirmed.
    Planned,
    /// In bronze.
    Loaded,
    /// In silver, or nothing of it is to be applied.
    Applied,
    /// Given up; its id is never used again.
    Abandoned,
}

/// One row of the batches.
#[derive(Clone, Debug, PartialEq)]
pub struct BatchRecord {
    /// The batch.
    pub batch_id: BatchId,
    /// The epoch it was planned in.
    pub epoch: i64,
    /// How far it came.
    pub state: BatchState,
    /// When it was frozen.
    pub planned_at: Micros,
    /// The bronze version that holds it.
    pub bronze_version: Option<Version>,
    /// The silver version that holds it.
    pub silver_version: Option<Version>,
    /// Files that were planned.
    pub files: u64,
    /// Rows that went to bronze.
    pub rows: u64,
    /// What the apply did; of several batches in one apply the last one carries the sums.
    pub counters: ApplyCounters,
}

/// What a reconcile changed, and what is left for the caller to do.
#[derive(Clone, Debug, Default)]
pub struct Reconciled {
    /// Files never seen before.
    pub new: u64,
    /// Pending or parked files with new bytes, pending now.
    pub changed: Vec<String>,
    /// Vanished files that are back, pending now.
    pub returned: Vec<String>,
    /// Files that went away before they were loaded, parked now.
    pub vanished: Vec<String>,
    /// Loaded files with another size or time: hash them, then `confirm_touched` or `confirm_changed`.
    pub to_rehash: Vec<LandingFile>,
    /// Listed files that wait for a batch, in path order; for `Settler::look`.
    pub waiting: Vec<LandingFile>,
}

/// Numbers over the whole ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Files by state.
    pub pending: u64,
    /// Files by state.
    pub planned: u64,
    /// Files by state.
    pub loaded: u64,
    /// Files by state.
    pub parked: u64,
    /// Files by state.
    pub cleaned: u64,
    /// Bytes of the pending files.
    pub bytes_pending: u64,
    /// When the oldest pending file was discovered.
    pub oldest_pending_at: Option<Micros>,
    /// Rows in bronze.
    pub rows_loaded: u64,
    /// Rows in quarantine.
    pub rows_quarantined: u64,
}

/// Which files a reset takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// By pattern: without `/` on the file name, with `/` on the relative path.
    Glob(String),
    /// Every parked file.
    Failed,
    /// Every file.
    All,
}

/// Who holds a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Process id; `None` when the lock file does not say.
    pub pid: Option<u32>,
    /// ISO 8601, UTC; empty when the lock file does not say.
    pub since: String,
}

/// Who holds the checkpoint now; `None` when nobody does.
pub fn holder(checkpoint: &Path) -> Result<Option<Holder>> {
    let _ = checkpoint;
    todo!()
}

/// The open checkpoint of one pipeline.
#[derive(Debug)]
pub struct CheckpointStore {}

#[allow(unused_variables)]
impl CheckpointStore {
    /// Takes the one-loader lock, then opens or creates the database.
    pub fn open(path: &Path, pipeline: &str, source_path: &Path, now: Micros) -> Result<Self> {
        todo!()
    }
    /// Like `open` on an empty database: a file that is there is moved aside and its new name returned (rebuild).
    pub fn open_afresh(
        path: &Path,
        pipeline: &str,
        source_path: &Path,
        now: Micros,
    ) -> Result<(Self, Option<PathBuf>)> {
        todo!()
    }
    /// Opens without lock, for reports while a loader may run; `None` when there is no checkpoint.
    pub fn open_read_only(path: &Path) -> Result<Option<Self>> {
        todo!()
    }
    /// No batch was ever planned and no file recorded: with a non-empty bronze the checkpoint was lost.
    pub fn is_new(&self) -> bool {
        todo!()
    }
    /// The name at creation; part of the app ids of Delta transactions.
    pub fn pipeline_id(&self) -> &str {
        todo!()
    }
    /// One line when the journal is not WAL because of the file system.
    pub fn journal_note(&self) -> Option<&str> {
        todo!()
    }
    pub fn epoch(&self) -> Result<i64> {
        todo!()
    }
    pub fn next_batch_id(&self) -> Result<BatchId> {
        todo!()
    }
    /// The bronze version up to which silver is confirmed.
    pub fn applied_up_to(&self) -> Result<Option<Version>> {
        todo!()
    }
    pub fn reconcile(
        &mut self,
        listing: &Listing,
        allow_overwrites: AllowOverwrites,
        include_existing_files: bool,
        now: Micros,
    ) -> Result<Reconciled> {
        todo!()
    }
    pub fn confirm_touched(&mut self, file: &LandingFile) -> Result<()> {
        todo!()
    }
    pub fn confirm_changed(
        &mut self,
        file: &LandingFile,
        allow_overwrites: AllowOverwrites,
    ) -> Result<FileState> {
        todo!()
    }
    pub fn plan(
        &mut self,
        settled: &dyn Fn(&str) -> bool,
        limits: BatchLimits,
        now: Micros,
    ) -> Result<Option<MicroBatch>> {
        todo!()
    }
    pub fn planned(&self) -> Result<Option<MicroBatch>> {
        todo!()
    }
    pub fn release(&mut self, batch: BatchId) -> Result<()> {
        todo!()
    }
    pub fn prepare(&mut self, batch: BatchId, outcomes: &[FileOutcome]) -> Result<()> {
        todo!()
    }
    pub fn prepared(&self, batch: BatchId) -> Result<Option<Vec<FileOutcome>>> {
        todo!()
    }
    /// Applies the prepared outcomes. `bronze_version` is `None` when nothing was committed.
    pub fn confirm_loaded(
        &mut self,
        batch: BatchId,
        bronze_version: Option<Version>,
        now: Micros,
    ) -> Result<()> {
        todo!()
    }
    /// All loaded batches up to `bronze_version` are applied; the newest carries the counters. Without silver `silver_version` is `None`.
    pub fn confirm_applied(
        &mut self,
        bronze_version: Version,
        silver_version: Option<Version>,
        counters: &ApplyCounters,
    ) -> Result<()> {
        todo!()
    }
    /// The path of a loaded file with this content.
    pub fn known_content(&self, hash: &str) -> Result<Option<String>> {
        todo!()
    }
    /// Loaded files of applied batches whose source is not cleaned; failed ones when their next try is due.
    pub fn to_clean(&self, now: Micros) -> Result<Vec<FileRecord>> {
        todo!()
    }
    pub fn confirm_cleaned(&mut self, path: &str) -> Result<()> {
        todo!()
    }
    pub fn clean_failed(&mut self, path: &str, detail: &str, next_try_at: Micros) -> Result<()> {
        todo!()
    }
    pub fn reset_candidates(&self, selector: &Selector) -> Result<Vec<FileRecord>> {
        todo!()
    }
    /// Starts a new epoch and makes the files pending; returns the epoch.
    pub fn reset(&mut self, paths: &[String]) -> Result<i64> {
        todo!()
    }
    pub fn files(&self, state: Option<FileState>, each: &mut dyn FnMut(FileRecord)) -> Result<()> {
        todo!()
    }
    pub fn file(&self, path: &str) -> Result<Option<FileRecord>> {
        todo!()
    }
    pub fn counts(&self) -> Result<Counts> {
        todo!()
    }
    pub fn last_batch(&self) -> Result<Option<BatchRecord>> {
        todo!()
    }
    pub fn set_last_error(&mut self, message: Option<&str>) -> Result<()> {
        todo!()
    }
    pub fn last_error(&self) -> Result<Option<String>> {
        todo!()
    }
    /// Fills a new checkpoint from what the tables say.
    pub fn rebuild_from(
        &mut self,
        records: Vec<FileRecord>,
        next_batch: BatchId,
        epoch: i64,
        now: Micros,
    ) -> Result<()> {
        todo!()
    }
}
