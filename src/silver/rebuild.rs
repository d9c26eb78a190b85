//! Makes silver anew from all events in bronze, in one commit, part by part so that memory stays bounded.

use super::compare::parts;
use super::made_with::SETTINGS_PROPERTY;
use super::merge;
use super::plan::SilverPlan;
use super::pool::Comparators;
use super::scd1::Fates;
use super::truncates::{self, Truncates};
use super::write::{Draft, Replacement};
use super::{ApplyCounters, SilverCommit, SilverTable, no_table};
use crate::bronze::BronzeTable;
use crate::crash::CrashSwitch;
use crate::delta::{CommitOutcome, Table};
use crate::error::{Error, ErrorKind, Result};
use std::collections::BTreeMap;

impl SilverTable {
    /// Makes silver the fold of all events in bronze, in one commit: only rows that differ are written. After a change of
    /// settings every row is.
    ///
    /// If the process stops inside, silver is as before.
    pub async fn rebuild(
        &mut self,
        bronze: &BronzeTable,
        crash: &CrashSwitch,
    ) -> Result<SilverCommit> {
        let version = bronze.table().version();
        let Some(plan) = self.plan(&bronze.table().schema())? else {
            return Ok(self.nothing(version));
        };
        self.ensure_table(&plan).await?;
        let comparators = Comparators::new(&plan)?;
        let truncates = Truncates::in_bronze(bronze.table(), &plan, &comparators)?;
        let mut properties =
            BTreeMap::from([(SETTINGS_PROPERTY.to_string(), self.settings_text())]);
        if truncates != self.known_truncates(&plan, &comparators)? {
            properties.insert(truncates::PROPERTY.to_string(), truncates.to_text()?);
        }
        let (outcome, counters) = if self.check_settings().is_err() || self.lacks_files() {
            self.replace_rows(bronze.table(), &plan, &truncates, properties, crash)
                .await?
        } else {
            self.mend_rows(bronze.table(), &plan, &truncates, properties, crash)
                .await?
        };
        match outcome {
            CommitOutcome::Committed(silver) => Ok(SilverCommit {
                version: silver,
                bronze_version: version,
                counters,
            }),
            CommitOutcome::Conflict => {
                self.table.as_mut().ok_or_else(no_table)?.reload().await?;
                Err(Error::new(
                    ErrorKind::Conflict,
                    "silver was written by others during the rebuild",
                )
                .hint("run it again"))
            }
        }
    }

    /// Writes all rows beside the old ones, and takes those away in the same commit.
    async fn replace_rows(
        &mut self,
        bronze: &Table,
        plan: &SilverPlan,
        truncates: &Truncates,
        properties: BTreeMap<String, String>,
        crash: &CrashSwitch,
    ) -> Result<(CommitOutcome, ApplyCounters)> {
        let schema = plan.schema();
        let transaction = self.transaction(bronze.version());
        let table = self.table.as_mut().ok_or_else(no_table)?;
        let mut replacement = Replacement::new(table, schema.clone(), transaction, properties);
        let mut counters = ApplyCounters::default();
        for part in parts(bronze) {
            let folded = merge::folded_part(bronze, plan, &schema, &part, truncates)?;
            counters.rows_left_out += folded.pool.left_out;
            drop(folded.pool);
            counters.rows_inserted += folded.rows.num_rows() as u64;
            replacement.add(table, folded.rows).await?;
        }
        let outcome = replacement.commit(table, &counters, crash).await?;
        Ok((outcome, counters))
    }

    /// Writes the rows that differ.
    async fn mend_rows(
        &mut self,
        bronze: &Table,
        plan: &SilverPlan,
        truncates: &Truncates,
        properties: BTreeMap<String, String>,
        crash: &CrashSwitch,
    ) -> Result<(CommitOutcome, ApplyCounters)> {
        let schema = self.target_schema(plan);
        let parts = parts(bronze);
        let mut draft = Draft::new(self.transaction(bronze.version()), parts.len());
        let table = self.table.as_ref().ok_or_else(no_table)?;
        for (name, value) in properties {
            if table.property(&name) != Some(value.as_str()) {
                draft.set_property(&name, value);
            }
        }
        let mut counters = ApplyCounters::default();
        for part in parts {
            let (changes, left_out) = self.part_changes(bronze, plan, &schema, &part, truncates)?;
            counters.rows_left_out += left_out;
            counters.add(&merge::counted(&changes, Fates::default()));
            draft.add(table, &[changes]).await?;
        }
        let mode = self.settings.write_mode;
        let table = self.table.as_mut().ok_or_else(no_table)?;
        let written = draft.commit(table, &counters, mode, crash).await?;
        Ok((written.outcome, counters))
    }
}
