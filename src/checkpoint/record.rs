//! What the checkpoint tells: files, batches, outcomes, numbers.

use super::FileState;
use crate::batch::BatchId;
use crate::change::{FileFault, Version};
use crate::clock::Micros;
use crate::landing::LandingFile;

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
    /// Why it is parked (`ParkReason`), or a remark on a loaded file: `clean_failed`, `duplicate_content`, `existed_before`,
    /// `overwrite_ignored`.
    pub reason: Option<String>,
    /// One line for the operator.
    pub detail: Option<String>,
    /// Rows of it may stand in bronze or quarantine from an earlier batch.
    pub replaces: bool,
    /// Size of the loaded content.
    pub loaded_size: Option<u64>,
    /// Modification time of the loaded content.
    pub loaded_modified_at: Option<Micros>,
    /// Change time of the inode as last looked at; `None` is not known, and then not compared.
    pub changed_at: Option<Micros>,
}

impl FileRecord {
    /// Bytes, as last seen; `None` for a file of a rebuilt checkpoint that is gone or is another one now.
    pub fn known_size(&self) -> Option<u64> {
        let is_loaded = matches!(self.state, FileState::Loaded | FileState::Cleaned);
        let is_unknown = is_loaded
            && self.size == 0
            && self.loaded_size.is_none()
            && self.content_hash.is_none();
        (!is_unknown).then_some(self.size)
    }

    /// Whether bronze or quarantine holds records of it.
    pub fn holds_records(&self) -> bool {
        self.rows_loaded > 0 || self.rows_quarantined > 0
    }
}

/// The whole ledger at one moment.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// Above the id of every batch that was planned by then.
    pub next_batch_id: BatchId,
    /// Every file, in path order.
    pub files: Vec<FileRecord>,
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
    /// Loaded files with another size or time, also of the inode: hash them, then `confirm_touched` or `confirm_changed`.
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
    /// The one file of this path, as `files` prints it; if there is none, by pattern: without `/` on the file name, with
    /// `/` on the relative path.
    Glob(String),
    /// Every parked file.
    Failed,
    /// Every file.
    All,
}

impl BatchState {
    /// The word in the checkpoint.
    pub fn as_str(self) -> &'static str {
        match self {
            BatchState::Planned => "planned",
            BatchState::Loaded => "loaded",
            BatchState::Applied => "applied",
            BatchState::Abandoned => "abandoned",
        }
    }
}

/// The remark on a file that existed before the first start and is not loaded.
pub const REMARK_EXISTED_BEFORE: &str = "existed_before";
/// The remark on a file with the bytes of another loaded file.
pub const REMARK_DUPLICATE_CONTENT: &str = "duplicate_content";
/// The remark on a loaded file whose present bytes may be others that were never loaded; such a source is never cleaned.
pub const REMARK_OVERWRITE_IGNORED: &str = "overwrite_ignored";
/// The remark on a loaded file whose source could not be moved or deleted.
pub const REMARK_CLEAN_FAILED: &str = "clean_failed";
