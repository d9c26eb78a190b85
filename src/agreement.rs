//! Whether checkpoint, bronze and silver tell one story, looked at before anything is written.
//!
//! What a power cut can leave behind is mended; everything else stops with the way on.

use crate::bronze::BronzeTable;
use crate::change::BatchId;
use crate::checkpoint::FileState;
use crate::delta::repair_tail;
use crate::error::{Error, Result};
use crate::plural::counted;
use crate::protocol::Pipeline;
use crate::schema::ddl_type;
use crate::settings::PipelineSettings;
use crate::silver::SilverTable;
use std::path::Path;

impl Pipeline {
    /// Stops where a hint and the table give a column two types: a column never changes its type.
    pub(crate) fn check_hints(&self) -> Result<()> {
        let Some(bronze) = &self.bronze else {
            return Ok(());
        };
        let present = bronze.source_schema();
        for hint in self.hints.columns.fields() {
            let Ok(column) = present.columns.field_with_name(hint.name()) else {
                continue;
            };
            let (says, has) = (ddl_type(hint.data_type()), ddl_type(column.data_type()));
            if says != has {
                let name = hint.name();
                return Err(Error::settings(format!(
                    "schema_hints says {name} {says}, but bronze has {name} {has}"
                ))
                .hint("put the hint back: a column keeps its type; another type needs another bronze path"));
            }
        }
        Ok(())
    }

    /// Stops where the tables hold what the checkpoint does not know of, or the other way round.
    pub(crate) fn check_agreement(&self) -> Result<()> {
        let name = &self.settings.name;
        let lost = |message: String| {
            Err(Error::disagreement(message).hint(format!(
                "landfall rebuild {name} checkpoint makes the checkpoint again from what bronze holds"
            )))
        };
        let bronze_path = self.settings.bronze.path.display();
        let Some(bronze) = &self.bronze else {
            if self.loaded_rows()? > 0 {
                return lost(format!(
                    "the checkpoint says that files are loaded, but there is no bronze table at {bronze_path}"
                ));
            }
            if self
                .silver
                .as_ref()
                .is_some_and(|silver| silver.applied_up_to().is_some())
            {
                return Err(Error::disagreement(format!(
                    "silver holds rows, but there is no bronze table at {bronze_path}"
                ))
                .hint("bring bronze back, or name another silver path"));
            }
            return Ok(());
        };
        if self.checkpoint.is_new()? && bronze.table().row_count() > 0 {
            return lost(format!(
                "the checkpoint is new, but bronze at {bronze_path} holds rows: the checkpoint was lost"
            ));
        }
        let newest = newest_batch(bronze, self.checkpoint.pipeline_id());
        let next = self.checkpoint.next_batch_id()?;
        match newest {
            Some(newest) if newest >= next => lost(format!(
                "bronze is at batch {newest}, but the checkpoint expects {next} next: it is older than bronze"
            )),
            _ => Ok(()),
        }
    }

    /// Stops where versions that were confirmed are gone.
    pub(crate) fn check_versions(&self) -> Result<()> {
        let Some(bronze) = &self.bronze else {
            return Ok(());
        };
        let version = bronze.table().version();
        let name = &self.settings.name;
        if let Some(confirmed) = self.checkpoint.applied_up_to()?
            && confirmed > version
        {
            return Err(Error::disagreement(format!("bronze is at version {version}, but version {confirmed} was confirmed: bronze is older than the checkpoint"))
                .hint(format!("bring the newer bronze back, or run landfall rebuild {name} checkpoint and then rebuild {name} silver")));
        }
        let applied = self.silver.as_ref().and_then(SilverTable::applied_up_to);
        if applied > Some(version) {
            let applied = applied.map_or(0, |version| version.0);
            return Err(Error::disagreement(format!(
                "silver is applied up to version {applied} of bronze, which is at {version}"
            ))
            .hint(format!("run landfall rebuild {name} silver")));
        }
        Ok(())
    }

    fn loaded_rows(&self) -> Result<u64> {
        let mut rows = 0;
        for state in [FileState::Loaded, FileState::Cleaned] {
            self.checkpoint
                .files(Some(state), &mut |file| rows += file.rows_loaded)?;
        }
        Ok(rows)
    }

    /// After a log entry was lost to a power cut: files whose rows are not in the tables are loaded again.
    pub(crate) async fn take_back_lost_files(&mut self) -> Result<Vec<String>> {
        let audit =
            crate::verify::audit_files(&self.checkpoint, self.bronze.as_ref(), &self.quarantine)?;
        let lost: Vec<String> = audit
            .disagreeing
            .iter()
            .map(|file| file.path.clone())
            .collect();
        let mut notes = Vec::new();
        if !lost.is_empty() {
            self.checkpoint.reset(&lost)?;
            notes.push(format!(
                "{} whose rows were in the damaged entry to be loaded again",
                counted(lost.len() as u64, "file")
            ));
        }
        let (Some(bronze), Some(silver)) = (&self.bronze, &mut self.silver) else {
            return Ok(notes);
        };
        let version = bronze.table().version();
        if silver.applied_up_to() > Some(version) {
            let _rebuilt = silver.rebuild(bronze, &self.crash).await?;
            notes.push("silver was ahead of bronze and is folded again".into());
        }
        if self.checkpoint.applied_up_to()? > Some(version) {
            self.checkpoint.take_back_applied(version)?;
        }
        Ok(notes)
    }
}

/// The newest batch that any epoch of a pipeline committed to bronze.
pub(crate) fn newest_batch(bronze: &BronzeTable, pipeline: &str) -> Option<BatchId> {
    let of_pipeline = |app_id: &str| {
        app_id
            .strip_prefix(pipeline)
            .is_some_and(|rest| rest.starts_with('/') && rest.ends_with("/bronze"))
    };
    let transactions = bronze.table().transactions().iter();
    transactions
        .filter(|(app_id, _)| of_pipeline(app_id))
        .map(|(_, batch)| BatchId(*batch))
        .max()
}

/// The epochs that any table of a pipeline knows, and the newest.
pub(crate) fn newest_epoch(bronze: &BronzeTable, pipeline: &str) -> i64 {
    let epoch = |app_id: &String| {
        app_id
            .strip_prefix(pipeline)?
            .strip_prefix('/')?
            .split('/')
            .next()?
            .parse::<i64>()
            .ok()
    };
    bronze
        .table()
        .transactions()
        .keys()
        .filter_map(epoch)
        .max()
        .unwrap_or(0)
}

/// Mends what a power cut left at the end of the logs; one line for each.
pub(crate) fn repair_tables(settings: &PipelineSettings) -> Result<Vec<String>> {
    let quarantine = settings.bronze.quarantine_path();
    let silver = settings.silver.as_ref().map(|silver| silver.path.as_path());
    let tables: Vec<&Path> = [
        Some(settings.bronze.path.as_path()),
        Some(quarantine.as_path()),
        silver,
    ]
    .into_iter()
    .flatten()
    .collect();
    let mut notes = Vec::new();
    for table in tables {
        if let Some(repair) = repair_tail(table)? {
            notes.push(format!(
                "{}: log entry {} was damaged ({}), as after a power cut; it is set aside as {}",
                table.display(),
                repair.removed,
                repair.damage,
                repair.kept_as.display()
            ));
        }
    }
    Ok(notes)
}
