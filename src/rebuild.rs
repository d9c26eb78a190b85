//! Makes silver again from bronze, and the checkpoint again from what the tables hold.

use crate::agreement::{newest_batch, newest_epoch};
use crate::bronze::BronzeTable;
use crate::change::{BatchId, Version};
use crate::checkpoint::{CheckpointStore, FileRecord, FileState};
use crate::clock::Clock;
use crate::crash::CrashSwitch;
use crate::delta::FileCount;
use crate::error::{Error, Result};
use crate::landing::decode_name;
use crate::quarantine::QuarantineTable;
use crate::settings::PipelineSettings;
use crate::silver::{SilverCommit, SilverTable};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// What a rebuilt checkpoint knows.
#[derive(Clone, Debug, Default)]
pub struct RebuiltCheckpoint {
    /// Files that bronze or quarantine holds records of.
    pub files: u64,
    /// The number of the next batch.
    pub next_batch: Option<BatchId>,
    /// Where the checkpoint that was there is kept.
    pub kept_as: Option<PathBuf>,
}

/// Folds all of bronze into silver again, under the lock of the checkpoint.
///
/// If the process stops inside, silver is as before.
pub async fn rebuild_silver(
    settings: &PipelineSettings,
    clock: &dyn Clock,
    crash: &CrashSwitch,
) -> Result<SilverCommit> {
    let Some(silver) = &settings.silver else {
        return Err(Error::settings(format!(
            "pipeline {} has no silver",
            settings.name
        )));
    };
    let checkpoint = CheckpointStore::open(
        &settings.checkpoint,
        &settings.name,
        &settings.source.path,
        clock.now(),
    )?;
    let bronze = BronzeTable::open(&settings.bronze.path)
        .await?
        .ok_or_else(|| no_bronze(settings))?;
    let word = settings.source.unavailable_value.clone();
    let mut silver = SilverTable::open_unchecked(silver, word, checkpoint.pipeline_id()).await?;
    silver.rebuild(&bronze, crash).await
}

/// Makes a new checkpoint from the rows of bronze and quarantine; one that is there is kept beside it.
///
/// If the process stops inside, the checkpoint is new or half made, and the next run asks for a rebuild again.
pub async fn rebuild_checkpoint(
    settings: &PipelineSettings,
    clock: &dyn Clock,
) -> Result<RebuiltCheckpoint> {
    let bronze = BronzeTable::open(&settings.bronze.path).await?;
    let quarantine = QuarantineTable::open(&settings.bronze.quarantine_path()).await?;
    let (mut checkpoint, kept_as) = CheckpointStore::open_afresh(
        &settings.checkpoint,
        &settings.name,
        &settings.source.path,
        clock.now(),
    )?;
    let mut records: BTreeMap<String, FileRecord> = BTreeMap::new();
    if let Some(bronze) = &bronze {
        for (path, count) in bronze.counts_by_file()? {
            let record = loaded_record(
                settings,
                &path,
                &count,
                bronze.table().version(),
                clock.now(),
            );
            records.insert(path, record);
        }
    }
    for (path, count) in quarantine.counts_by_file()? {
        let version = bronze
            .as_ref()
            .map_or(Version(0), |bronze| bronze.table().version());
        let fresh = || {
            loaded_record(
                settings,
                &path,
                &FileCount { rows: 0, ..count },
                version,
                clock.now(),
            )
        };
        let record = records.entry(path.clone()).or_insert_with(fresh);
        record.rows_quarantined = count.rows.unsigned_abs();
        record.batch_id = record.batch_id.max(Some(count.batch));
    }
    let newest = bronze
        .as_ref()
        .and_then(|bronze| newest_batch(bronze, &settings.name));
    let of_rows = records.values().filter_map(|record| record.batch_id).max();
    let next_batch = BatchId(newest.max(of_rows).map_or(1, |batch| batch.0 + 1));
    let epoch = bronze
        .as_ref()
        .map_or(0, |bronze| newest_epoch(bronze, &settings.name))
        + 1;
    let files = records.len() as u64;
    checkpoint.rebuild_from(
        records.into_values().collect(),
        next_batch,
        epoch,
        clock.now(),
    )?;
    Ok(RebuiltCheckpoint {
        files,
        next_batch: Some(next_batch),
        kept_as,
    })
}

/// A file that the tables hold records of. Its present size counts only if its time is the one that was loaded: any other
/// file of the name is compared, and parked, by the next listing.
fn loaded_record(
    settings: &PipelineSettings,
    path: &str,
    count: &FileCount,
    version: Version,
    now: i64,
) -> FileRecord {
    let source = settings.source.path.join(decode_name(path));
    let metadata = fs::symlink_metadata(source).ok();
    let stat = metadata.map(|metadata| {
        (
            metadata.len(),
            metadata.mtime() * 1_000_000 + metadata.mtime_nsec() / 1_000,
        )
    });
    let unchanged =
        stat.filter(|(_, modified_at)| count.modified_at == 0 || *modified_at == count.modified_at);
    let (size, modified_at) = unchanged.unwrap_or((0, count.modified_at));
    FileRecord {
        path: path.to_string(),
        state: FileState::Loaded,
        size,
        modified_at,
        content_hash: None,
        rows_loaded: count.rows.unsigned_abs(),
        rows_quarantined: 0,
        batch_id: Some(count.batch),
        bronze_version: Some(version),
        discovered_at: now,
        loaded_at: Some(count.loaded_at.unwrap_or(now)),
        attempts: 1,
        next_try_at: None,
        reason: None,
        detail: None,
        replaces: true,
        loaded_size: unchanged.map(|(size, _)| size),
        loaded_modified_at: Some(modified_at),
        changed_at: None,
    }
}

fn no_bronze(settings: &PipelineSettings) -> Error {
    Error::disagreement(format!(
        "there is no bronze table at {}",
        settings.bronze.path.display()
    ))
    .hint("load files first: landfall run --available-now")
}
