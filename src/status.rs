//! Reports what a pipeline has done, without a lock and without changing anything.

use crate::bronze::BronzeTable;
use crate::change::Version;
use crate::checkpoint::{BatchRecord, CheckpointStore, Counts, Holder, holder};
use crate::delta::Table;
use crate::error::Result;
use crate::quarantine::QuarantineTable;
use crate::settings::PipelineSettings;
use crate::silver::SilverTable;

/// The state of one pipeline.
#[derive(Clone, Debug)]
pub struct StatusReport {
    /// The pipeline.
    pub pipeline: String,
    /// The loader that holds the checkpoint now.
    pub running: Option<Holder>,
    /// Numbers of the ledger.
    pub counts: Counts,
    /// How long the oldest pending file waits.
    pub oldest_pending_seconds: Option<f64>,
    /// Version and rows of bronze.
    pub bronze: Option<(Version, u64)>,
    /// The files of bronze.
    pub bronze_upkeep: Option<TableUpkeep>,
    /// The files of the quarantine table.
    pub quarantine_upkeep: Option<TableUpkeep>,
    /// Silver.
    pub silver: Option<SilverStatus>,
    /// The newest batch.
    pub last_batch: Option<BatchRecord>,
    /// What ended the last run.
    pub last_error: Option<String>,
}

/// What upkeep looks at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TableUpkeep {
    /// Data files.
    pub files: usize,
    /// Deleted rows as a share of all rows in the files, 0 to 1.
    pub deleted_rows_ratio: f64,
    /// Entries that a reader replays behind the newest log checkpoint.
    pub log_entries_since_checkpoint: u64,
}

impl TableUpkeep {
    fn of(table: &Table) -> Self {
        TableUpkeep {
            files: table.file_count(),
            deleted_rows_ratio: table.deleted_rows_ratio(),
            log_entries_since_checkpoint: table.log_entries_since_checkpoint(),
        }
    }
}

/// The state of silver.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SilverStatus {
    /// The version.
    pub version: Version,
    /// Rows, deleted ones included.
    pub rows: u64,
    /// Rows whose flag says deleted.
    pub deleted: u64,
    /// The last version of bronze that it holds.
    pub applied_up_to_bronze_version: Option<Version>,
    /// Its files.
    pub upkeep: TableUpkeep,
}

/// Reads the state of one pipeline; `now` is in microseconds since the epoch.
pub async fn status(settings: &PipelineSettings, now: i64) -> Result<StatusReport> {
    let checkpoint = CheckpointStore::open_read_only(&settings.checkpoint)?;
    let counts = checkpoint
        .as_ref()
        .map_or(Ok(Counts::default()), CheckpointStore::counts)?;
    let bronze = BronzeTable::open(&settings.bronze.path).await?;
    let quarantine = QuarantineTable::open(&settings.bronze.quarantine_path()).await?;
    let rows = |bronze: &BronzeTable| bronze.table().row_count().unsigned_abs();
    let pipeline_id = checkpoint
        .as_ref()
        .map_or(settings.name.as_str(), CheckpointStore::pipeline_id);
    let silver = match &settings.silver {
        Some(silver) => {
            silver_status(&SilverTable::open_unchecked(silver, None, pipeline_id).await?)?
        }
        None => None,
    };
    Ok(StatusReport {
        pipeline: settings.name.clone(),
        running: holder(&settings.checkpoint)?,
        oldest_pending_seconds: counts
            .oldest_pending_at
            .map(|since| (now - since) as f64 / 1e6),
        counts,
        bronze: bronze
            .as_ref()
            .map(|bronze| (bronze.table().version(), rows(bronze))),
        bronze_upkeep: bronze
            .as_ref()
            .map(|bronze| TableUpkeep::of(bronze.table())),
        quarantine_upkeep: quarantine.table().map(TableUpkeep::of),
        silver,
        last_batch: checkpoint
            .as_ref()
            .map_or(Ok(None), CheckpointStore::last_batch)?,
        last_error: checkpoint
            .as_ref()
            .map_or(Ok(None), CheckpointStore::last_error)?,
    })
}

fn silver_status(silver: &SilverTable) -> Result<Option<SilverStatus>> {
    let Some(table) = silver.table() else {
        return Ok(None);
    };
    Ok(Some(SilverStatus {
        version: table.version(),
        rows: table.row_count().unsigned_abs(),
        deleted: silver.deleted_rows()?,
        applied_up_to_bronze_version: silver.applied_up_to(),
        upkeep: TableUpkeep::of(table),
    }))
}
