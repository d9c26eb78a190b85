//! Upkeep of the tables of one pipeline: compaction, log checkpoints, vacuum. Always under the lock of the checkpoint.

use crate::delta::{CompactLimits, CompactReport, Table, VacuumReport, compact, vacuum};
use crate::error::Result;
use crate::protocol::Pipeline;
use std::time::Duration;

/// Versions younger than this stay readable, and so does their change data feed.
pub const VACUUM_RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);

/// What was done to one table.
#[derive(Clone, Debug)]
pub struct MaintainReport {
    /// `bronze`, `quarantine` or `silver`.
    pub table: &'static str,
    /// The compaction.
    pub compacted: CompactReport,
    /// The vacuum, if one was asked for.
    pub vacuumed: Option<VacuumReport>,
}

/// Compacts and checkpoints the logs of all tables; with `remove_old`, removes files that no version within the retention needs.
///
/// If the process stops inside, every table is as before or as after one of its commits; rows never change.
pub async fn maintain(pipeline: &mut Pipeline, remove_old: bool) -> Result<Vec<MaintainReport>> {
    let now = pipeline.clock.now();
    let crash = pipeline.crash.clone();
    let keys = pipeline
        .silver
        .as_ref()
        .map(|silver| silver.keys().to_vec())
        .unwrap_or_default();
    let mut tables: Vec<(&'static str, &mut Table, &[String])> = Vec::new();
    if let Some(bronze) = &mut pipeline.bronze {
        tables.push(("bronze", bronze.table_mut(), &[]));
    }
    if let Some(table) = pipeline.quarantine.table_mut() {
        tables.push(("quarantine", table, &[]));
    }
    if let Some(table) = pipeline
        .silver
        .as_mut()
        .and_then(|silver| silver.table_mut())
    {
        tables.push(("silver", table, keys.as_slice()));
    }
    let mut reports = Vec::new();
    for (name, table, order_by) in tables {
        let compacted = compact(table, order_by, &CompactLimits::default(), &crash).await?;
        table.checkpoint_log().await?;
        crash.reach(crate::crash::CrashPoint::AfterLogCheckpoint)?;
        let vacuumed = if remove_old {
            Some(vacuum(table, VACUUM_RETENTION, now, false).await?)
        } else {
            None
        };
        reports.push(MaintainReport {
            table: name,
            compacted,
            vacuumed,
        });
    }
    Ok(reports)
}
