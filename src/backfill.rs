//! Moves values from the rescued data of bronze into the columns that can hold them now.
//!
//! A value moves where its column is NULL and the rules of the loader read it exactly: the row is then as if its file were
//! loaded now. All rows that change go into one commit of bronze, which silver folds again like rows that were replaced. No
//! plan of it is kept: the tables tell what is left to do, so that a repeat does the rest, and nothing where all is done.

mod fill;
mod original;
mod tally;

pub use tally::{FilledColumn, LeftField};

use crate::bronze::BronzeTable;
use crate::change::{FILE_PATH, FILE_ROW, RESCUED_DATA, Version};
use crate::crash::CrashPoint;
use crate::delta::{self, CommitOutcome, DataFile, Table};
use crate::error::{Error, ErrorKind, Result};
use crate::parallel::in_parallel;
use crate::protocol::{BatchReport, Pipeline, with_hints};
use crate::settings::PipelineSettings;
use arrow::datatypes::{Schema, SchemaRef};
use fill::Filler;
use original::Originals;
use std::sync::Arc;
use tally::Tally;

/// How often a commit that lost against a foreign writer is computed again.
const COMMIT_ATTEMPTS_MAX: u32 = 10;

/// What a back-fill does.
#[derive(Clone, Debug, Default)]
pub struct BackfillPlan {
    /// Columns that gain values, by name.
    pub columns: Vec<FilledColumn>,
    /// Fields that keep values in the rescued data, and why.
    pub left: Vec<LeftField>,
    /// Values of further fields that stay.
    pub left_of_others: u64,
    /// Rows that change.
    pub rows: u64,
    /// Data files of bronze with such rows.
    pub data_files: Vec<String>,
    /// Rows with rescued data before.
    pub rescued_rows: u64,
}

/// What a back-fill did.
#[derive(Clone, Debug, Default)]
pub struct BackfillReport {
    /// As it was carried out.
    pub plan: BackfillPlan,
    /// The version of bronze; `None` where nothing changed.
    pub bronze_version: Option<Version>,
    /// What silver made of it.
    pub silver: BatchReport,
}

impl Pipeline {
    /// What [`Pipeline::backfill`] would do; writes nothing.
    pub fn plan_backfill(&self) -> Result<BackfillPlan> {
        let bronze = self.bronze.as_ref();
        let bronze = bronze.ok_or_else(|| no_bronze(&self.settings))?;
        let filler = Filler::new(self.backfill_schema(bronze), &self.settings);
        let originals = Originals::of(&self.checkpoint, self.schema(), &self.settings.source)?;
        let table = bronze.table();
        let files: Vec<&DataFile> = table.files().collect();
        let tallies = in_parallel(files.len(), |file| {
            tally_of(table, files[file], &filler, &originals)
        })?;
        let (mut whole, mut data_files) = (Tally::default(), Vec::new());
        for (file, tally) in files.iter().zip(tallies) {
            if tally.rows > 0 {
                data_files.push(file.path.clone());
            }
            whole.add(tally);
        }
        Ok(whole.into_plan(data_files, &table.schema()))
    }

    /// Moves rescued values of bronze into their columns, in one commit together with columns of `schema_hints` that bronze
    /// lacks, and folds silver. Goes after [`Pipeline::recover`].
    ///
    /// If the process stops inside, bronze has all of the values or none, and the next start or a repeat brings silver up.
    pub async fn backfill(&mut self) -> Result<BackfillReport> {
        for _ in 0..COMMIT_ATTEMPTS_MAX {
            let mut report = BackfillReport {
                plan: self.plan_backfill()?,
                ..BackfillReport::default()
            };
            if !report.plan.data_files.is_empty() {
                match self.rewrite(&report.plan.data_files).await? {
                    CommitOutcome::Committed(version) => report.bronze_version = Some(version),
                    CommitOutcome::Conflict => continue,
                }
                self.crash.reach(CrashPoint::AfterBronzeCommit)?;
            }
            report.silver = self.apply_pending(BatchReport::default()).await?;
            return Ok(report);
        }
        let path = self.settings.bronze.path.display();
        let message = format!("bronze {path} is written by others all the time");
        Err(Error::new(ErrorKind::Conflict, message).hint("stop the other writer, then run again"))
    }

    async fn rewrite(&mut self, data_files: &[String]) -> Result<CommitOutcome> {
        let bronze = self.bronze.as_ref();
        let bronze = bronze.ok_or_else(|| no_bronze(&self.settings))?;
        let schema = self.backfill_schema(bronze);
        let filler = Filler::new(schema.clone(), &self.settings);
        let originals = Originals::of(&self.checkpoint, self.schema(), &self.settings.source)?;
        let mut originals = originals.reader();
        let bronze = self.bronze.as_mut();
        let table = bronze.ok_or_else(|| no_bronze(&self.settings))?.table_mut();
        let mut filled = |rows: &_| filler.filled(rows, &mut originals);
        let outcome = delta::rewrite(table, &schema, data_files, &mut filled, &self.crash).await?;
        if outcome == CommitOutcome::Conflict {
            table.reload().await?;
        }
        Ok(outcome)
    }

    /// The columns of bronze, then those of the hints that it lacks.
    fn backfill_schema(&self, bronze: &BronzeTable) -> SchemaRef {
        let mut fields = bronze.table().schema().fields().to_vec();
        let wanted = with_hints(bronze.source_schema(), &self.hints);
        let present = bronze.table().schema();
        let is_new = |name: &str| present.field_with_name(name).is_err();
        let new = wanted.columns.fields().iter();
        fields.extend(new.filter(|field| is_new(field.name())).cloned());
        Arc::new(Schema::new(fields))
    }
}

/// What becomes of the rescued data of one data file. Only the columns that it names are read.
fn tally_of(
    table: &Table,
    file: &DataFile,
    filler: &Filler<'_>,
    originals: &Originals,
) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut columns = vec![
        RESCUED_DATA.to_owned(),
        FILE_PATH.to_owned(),
        FILE_ROW.to_owned(),
    ];
    let mut is_rescued = false;
    for scanned in table.scan(file, &columns[..1])? {
        let rescued = scanned?.rows;
        is_rescued |= rescued.column(0).null_count() < rescued.num_rows();
        for name in filler.named_in(&rescued)? {
            if !columns.contains(&name) && table.schema().index_of(&name).is_ok() {
                columns.push(name);
            }
        }
    }
    let mut originals = originals.reader();
    if is_rescued {
        for scanned in table.scan(file, &columns)? {
            filler.count(&scanned?.rows, &mut originals, &mut tally)?;
        }
    }
    Ok(tally)
}

fn no_bronze(settings: &PipelineSettings) -> Error {
    let path = settings.bronze.path.display();
    Error::disagreement(format!("there is no bronze table at {path}")).hint(format!(
        "load files first: landfall run {} --available-now",
        settings.name
    ))
}
