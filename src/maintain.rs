//! Upkeep of the tables of one pipeline: compaction, log checkpoints with log clean-up, vacuum. Always under the lock of the
//! checkpoint.
//!
//! The loop does one bounded piece at a time between batches, when the state in memory says that it is due; the command does
//! all of it. No row changes, and what silver has yet to read of bronze stays: its log entries and the files that they name.

use crate::change::{FILE_PATH, FILE_ROW, Version};
use crate::delta::{
    CompactLimits, CompactReport, LogCleanReport, Table, VacuumReport, checkpoint_log, compact,
    compaction_is_due, log_checkpoint_is_due, vacuum,
};
use crate::error::Result;
use crate::protocol::Pipeline;
use crate::settings::MaintenanceSettings;

/// The command reads no more than this in one commit.
const COMMAND_BYTES_MAX: u64 = 2 << 30;

/// Whether batches wait; upkeep that can wait does so until twice as much has gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Nothing waits.
    Idle,
    /// Batches follow each other.
    Busy,
}

/// What was done to one table.
#[derive(Clone, Debug)]
pub struct MaintainReport {
    /// `bronze`, `quarantine` or `silver`.
    pub table: &'static str,
    /// The compaction; nothing if none was due.
    pub compacted: CompactReport,
    /// The log clean-up, if a log checkpoint was written.
    pub log_cleaned: Option<LogCleanReport>,
    /// The vacuum, if one was asked for.
    pub vacuumed: Option<VacuumReport>,
}

impl MaintainReport {
    fn of(table: &'static str) -> Self {
        MaintainReport {
            table,
            compacted: CompactReport::default(),
            log_cleaned: None,
            vacuumed: None,
        }
    }
}

/// A table, the columns that order its rows, and the first version whose entry others have yet to read.
struct Kept<'a> {
    name: &'static str,
    table: &'a mut Table,
    order_by: Vec<String>,
    keep_from: Option<Version>,
}

/// The tables that are there, silver first: its files and vectors are read by every batch.
fn tables(pipeline: &mut Pipeline) -> Vec<Kept<'_>> {
    let silver = pipeline.silver.as_mut();
    let unapplied = silver.as_ref().map(|silver| {
        let applied = silver.applied_up_to();
        Version(applied.map_or(0, |version| version.0 + 1))
    });
    let keys = silver.as_ref().map(|silver| silver.keys().to_vec());
    // Rows of one landing file stay together, in their order.
    let places = || vec![FILE_PATH.to_owned(), FILE_ROW.to_owned()];
    let kept = |name, table, order_by, keep_from| Kept {
        name,
        table,
        order_by,
        keep_from,
    };
    let silver = silver.and_then(|silver| silver.table_mut());
    let bronze = pipeline.bronze.as_mut().map(|bronze| bronze.table_mut());
    let quarantine = pipeline.quarantine.table_mut();
    let tables = [
        silver.map(|table| kept("silver", table, keys.unwrap_or_default(), None)),
        bronze.map(|table| kept("bronze", table, places(), unapplied)),
        quarantine.map(|table| kept("quarantine", table, places(), None)),
    ];
    tables.into_iter().flatten().collect()
}

impl Pipeline {
    /// Does one piece of the upkeep that is due, if any: a compaction of bounded bytes, or a log checkpoint with clean-up.
    ///
    /// What is due is told without reading. If the process stops inside, the table is as before or as after one commit.
    pub async fn keep_up(&mut self, load: Load) -> Result<Option<MaintainReport>> {
        let settings = self.settings.maintenance.clone();
        if !settings.auto {
            return Ok(None);
        }
        let (now, crash) = (self.clock.now(), self.crash.clone());
        let limits = loop_limits(&settings, load);
        let interval = settings
            .log_checkpoint_interval
            .saturating_mul(weight(load));
        for kept in tables(self) {
            let mut report = MaintainReport::of(kept.name);
            if compaction_is_due(kept.table, &limits) {
                report.compacted = compact(kept.table, &kept.order_by, &limits, &crash).await?;
                return Ok(Some(report));
            }
            if log_checkpoint_is_due(kept.table, interval) {
                let retention = settings.log_retention_duration;
                let cleaned =
                    checkpoint_log(kept.table, retention, now, kept.keep_from, &crash).await?;
                report.log_cleaned = Some(cleaned);
                return Ok(Some(report));
            }
        }
        Ok(None)
    }
}

fn weight(load: Load) -> u64 {
    match load {
        Load::Idle => 1,
        Load::Busy => 2,
    }
}

fn loop_limits(settings: &MaintenanceSettings, load: Load) -> CompactLimits {
    let files = settings.min_num_files as u64;
    let small_files_min = files.saturating_mul(weight(load));
    CompactLimits {
        small_file_bytes: settings.min_file_size,
        target_file_bytes: settings.target_file_size,
        small_files_min: usize::try_from(small_files_min).unwrap_or(usize::MAX),
        deleted_share_min: settings.max_deleted_rows_ratio,
        bytes_max: settings.max_compact_bytes,
        in_tiers: true,
    }
}

/// Compacts and checkpoints the logs of all tables; with `remove_old`, removes files that no version within the retention needs.
///
/// If the process stops inside, every table is as before or as after one of its commits; rows never change.
pub async fn maintain(pipeline: &mut Pipeline, remove_old: bool) -> Result<Vec<MaintainReport>> {
    let settings = pipeline.settings.maintenance.clone();
    let (now, crash) = (pipeline.clock.now(), pipeline.crash.clone());
    let limits = CompactLimits {
        small_files_min: 2,
        bytes_max: COMMAND_BYTES_MAX,
        in_tiers: false,
        ..loop_limits(&settings, Load::Idle)
    };
    let mut reports = Vec::new();
    for kept in tables(pipeline) {
        let mut report = MaintainReport::of(kept.name);
        report.compacted = compact(kept.table, &kept.order_by, &limits, &crash).await?;
        let retention = settings.log_retention_duration;
        let cleaned = checkpoint_log(kept.table, retention, now, kept.keep_from, &crash).await?;
        report.log_cleaned = Some(cleaned);
        if remove_old {
            let retention = settings.deleted_file_retention_duration;
            let removed = vacuum(kept.table, retention, now, kept.keep_from, false).await?;
            report.vacuumed = Some(removed);
        }
        reports.push(report);
    }
    Ok(reports)
}
