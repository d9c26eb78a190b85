//! What the tests of the checkpoint share.

use super::{CheckpointStore, FileOutcome, FileRecord, FileState, OutcomeKind, Reconciled};
use crate::batch::{BatchId, BatchLimits, MicroBatch};
use crate::change::Version;
use crate::landing::{LandingFile, Listing};
use crate::settings::AllowOverwrites;
use rusqlite::trace::{TraceEvent, TraceEventCodes};
use std::cell::Cell;
use std::path::PathBuf;

pub(super) const NOW: i64 = 1_700_000_000_000_000;
pub(super) const SECOND: i64 = 1_000_000;
pub(super) const LIMITS: BatchLimits = BatchLimits {
    files_max: 1_000,
    bytes_max: u64::MAX,
};

/// A checkpoint in a folder of its own.
pub(super) struct Bench {
    pub(super) folder: tempfile::TempDir,
    pub(super) store: CheckpointStore,
}

impl Bench {
    pub(super) fn new() -> Bench {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("landing")).unwrap();
        let store = CheckpointStore::open(
            &folder.path().join("c/orders.db"),
            "orders",
            &folder.path().join("landing"),
            NOW,
        )
        .unwrap();
        Bench { folder, store }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("c/orders.db")
    }

    /// Closes and opens again, as a restart does.
    pub(super) fn reopen(self) -> Bench {
        let Bench { folder, store } = self;
        drop(store);
        Bench::open(folder)
    }

    pub(super) fn open(folder: tempfile::TempDir) -> Bench {
        let path = folder.path().join("c/orders.db");
        let store =
            CheckpointStore::open(&path, "orders", &folder.path().join("landing"), NOW).unwrap();
        Bench { folder, store }
    }

    pub(super) fn see(&mut self, files: &[(&str, u64, i64)]) -> Reconciled {
        self.store
            .reconcile(&listing(files), AllowOverwrites::Park, true, NOW)
            .unwrap()
    }

    pub(super) fn plan(&mut self, now: i64) -> Option<MicroBatch> {
        self.store.plan(&|_| true, LIMITS, now).unwrap()
    }

    /// Plans everything that is due and loads it with two rows a file at bronze version = batch id.
    pub(super) fn load(&mut self) -> MicroBatch {
        let batch = self.plan(NOW).unwrap();
        let outcomes: Vec<FileOutcome> = batch
            .files
            .iter()
            .map(|file| outcome(&file.path, loaded(2, 0)))
            .collect();
        self.confirm(&batch, &outcomes);
        batch
    }

    pub(super) fn confirm(&mut self, batch: &MicroBatch, outcomes: &[FileOutcome]) {
        self.store.prepare(batch.id, outcomes).unwrap();
        self.store
            .confirm_loaded(batch.id, Some(Version(batch.id.0)), NOW)
            .unwrap();
    }

    pub(super) fn file(&self, path: &str) -> FileRecord {
        self.store.file(path).unwrap().unwrap()
    }

    pub(super) fn state(&self, path: &str) -> FileState {
        self.file(path).state
    }

    pub(super) fn writes(&self) -> u64 {
        self.store.connection.total_changes()
    }

    /// How many statements SQLite runs for `work`.
    pub(super) fn statements(&mut self, work: impl FnOnce(&mut CheckpointStore)) -> u64 {
        thread_local! {
            static COUNT: Cell<u64> = const { Cell::new(0) };
        }
        COUNT.set(0);
        let count: fn(TraceEvent<'_>) = |_| COUNT.set(COUNT.get() + 1);
        let mask = TraceEventCodes::SQLITE_TRACE_STMT;
        self.store.connection.trace_v2(mask, Some(count));
        work(&mut self.store);
        self.store.connection.trace_v2(mask, None);
        COUNT.get()
    }
}

pub(super) fn landing_file(path: &str, size: u64, modified_at: i64) -> LandingFile {
    LandingFile {
        path: path.into(),
        size,
        modified_at,
        changed_at: modified_at,
    }
}

pub(super) fn listing(files: &[(&str, u64, i64)]) -> Listing {
    let files = files
        .iter()
        .map(|(path, size, at)| landing_file(path, *size, *at))
        .collect();
    Listing {
        files,
        ..Listing::default()
    }
}

pub(super) fn hash_of(path: &str) -> String {
    blake3::hash(path.as_bytes()).to_hex().to_string()
}

pub(super) fn outcome(path: &str, result: OutcomeKind) -> FileOutcome {
    FileOutcome {
        path: path.into(),
        content_hash: Some(hash_of(path)),
        result,
    }
}

pub(super) fn unread(path: &str, result: OutcomeKind) -> FileOutcome {
    FileOutcome {
        path: path.into(),
        content_hash: None,
        result,
    }
}

pub(super) fn loaded(rows: u64, quarantined: u64) -> OutcomeKind {
    OutcomeKind::Loaded { rows, quarantined }
}

pub(super) fn paths(batch: &MicroBatch) -> Vec<&str> {
    batch.files.iter().map(|file| file.path.as_str()).collect()
}

pub(super) fn id(number: i64) -> BatchId {
    BatchId(number)
}
