//! Names the points where a test may stop the program; they cost nothing in a release.
//!
//! A stop is an error that unwinds to the test, which then drops everything and opens the same folders again. What a
//! real kill adds to that (open files, unflushed output) is covered by the test that kills the real process.

use crate::error::{Error, Result};
use std::sync::{Arc, Mutex};

/// A place between two durable writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CrashPoint {
    /// The checkpoint knows the listing, nothing is planned.
    AfterReconcile,
    /// The batch is frozen in the checkpoint.
    AfterPlan,
    /// The files are decoded, many rows are in data files that no log entry names, and nothing is recorded.
    AfterDecode,
    /// The rejects of the batch are in the quarantine table.
    AfterQuarantineCommit,
    /// The data files of bronze exist, no log entry names them.
    BeforeBronzeCommit,
    /// The rows are in bronze, the checkpoint does not know.
    AfterBronzeCommit,
    /// The checkpoint says loaded, silver is behind.
    AfterConfirmLoaded,
    /// The data files of silver exist, no log entry names them.
    BeforeSilverCommit,
    /// Silver holds the batch, the checkpoint does not know.
    AfterSilverCommit,
    /// Everything is confirmed, source files are still there.
    AfterConfirmApplied,
    /// A source file was moved or deleted, the checkpoint does not know.
    AfterCleanSource,
    /// The files of a reset are forgotten, nothing is loaded again.
    AfterReset,
    /// The new files of a compaction exist, no log entry names them.
    BeforeCompactionCommit,
    /// A compaction is committed.
    AfterCompactionCommit,
    /// A log checkpoint was written.
    AfterLogCheckpoint,
}

impl CrashPoint {
    /// Every point, in the order of a run.
    pub const ALL: [CrashPoint; 15] = [
        CrashPoint::AfterReconcile,
        CrashPoint::AfterPlan,
        CrashPoint::AfterDecode,
        CrashPoint::AfterQuarantineCommit,
        CrashPoint::BeforeBronzeCommit,
        CrashPoint::AfterBronzeCommit,
        CrashPoint::AfterConfirmLoaded,
        CrashPoint::BeforeSilverCommit,
        CrashPoint::AfterSilverCommit,
        CrashPoint::AfterConfirmApplied,
        CrashPoint::AfterCleanSource,
        CrashPoint::AfterReset,
        CrashPoint::BeforeCompactionCommit,
        CrashPoint::AfterCompactionCommit,
        CrashPoint::AfterLogCheckpoint,
    ];
}

/// Counts the crash points that are reached and stops at a chosen one. The default never stops.
#[derive(Clone, Debug, Default)]
pub struct CrashSwitch(Option<Arc<Mutex<Plan>>>);

#[derive(Debug)]
struct Plan {
    reached: Vec<CrashPoint>,
    stop_at: Option<usize>,
}

impl CrashSwitch {
    /// Counts only.
    pub fn counting() -> Self {
        CrashSwitch(Some(Arc::new(Mutex::new(Plan {
            reached: Vec::new(),
            stop_at: None,
        }))))
    }

    /// Stops when the `nth` point (from 0) is reached.
    pub fn stop_at(nth: usize) -> Self {
        CrashSwitch(Some(Arc::new(Mutex::new(Plan {
            reached: Vec::new(),
            stop_at: Some(nth),
        }))))
    }

    /// The points reached so far.
    pub fn reached(&self) -> Vec<CrashPoint> {
        match &self.0 {
            Some(plan) => plan
                .lock()
                .map(|plan| plan.reached.clone())
                .unwrap_or_default(),
            None => Vec::new(),
        }
    }

    /// Called by the program between two durable writes.
    pub fn reach(&self, point: CrashPoint) -> Result<()> {
        let Some(plan) = &self.0 else { return Ok(()) };
        let Ok(mut plan) = plan.lock() else {
            return Ok(());
        };
        plan.reached.push(point);
        if plan.stop_at == Some(plan.reached.len() - 1) {
            return Err(Error::bug(format!("simulated crash at {point:?}")));
        }
        Ok(())
    }
}
