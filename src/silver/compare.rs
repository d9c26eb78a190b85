//! Compares silver with the fold of all events in bronze, part by part, so that memory stays bounded.

use super::SilverTable;
use super::changes::{self, OldRows, RowChanges, RowPlace};
use super::merge;
use super::plan::SilverPlan;
use super::pool::Comparators;
use super::refold::{self, KeySet};
use super::truncates::Truncates;
use crate::bronze::BronzeTable;
use crate::delta::Table;
use crate::error::Result;
use crate::parallel::in_parallel;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

/// One part of the exact path over all keys holds about this many events.
const REFOLD_EVENTS_MAX: i64 = 4_000_000;

/// How silver differs from the fold of bronze.
#[derive(Clone, Debug, Default)]
pub struct SilverDifferences {
    /// Rows that silver lacks.
    pub missing: u64,
    /// Rows that differ.
    pub differing: u64,
    /// Rows that no event of bronze explains.
    pub surplus: u64,
    /// Rows of bronze that the rules of silver cannot take; no disagreement, but nothing to pass over either.
    pub left_out: u64,
    /// The first differing rows, as text.
    pub examples: Vec<String>,
}

impl SilverDifferences {
    /// Whether silver is the fold of bronze.
    pub fn is_empty(&self) -> bool {
        self.missing + self.differing + self.surplus == 0
    }
}

impl SilverTable {
    /// Compares silver with the fold of all events in bronze; writes nothing. At most `examples_max` differences are shown.
    pub fn compare(&self, bronze: &BronzeTable, examples_max: usize) -> Result<SilverDifferences> {
        let mut differences = SilverDifferences::default();
        let Some(plan) = self.plan(&bronze.table().schema())? else {
            return Ok(differences);
        };
        let schema = self.target_schema(&plan);
        let comparators = Comparators::new(&plan)?;
        let truncates = Truncates::in_bronze(bronze.table(), &plan, &comparators)?;
        for part in parts(bronze.table()) {
            let (changes, left_out) =
                self.part_changes(bronze.table(), &plan, &schema, &part, &truncates)?;
            differences.left_out += left_out;
            differences.missing += changes.inserted.num_rows() as u64;
            differences.differing += changes.updated.num_rows() as u64;
            differences.surplus += changes.removed.num_rows() as u64;
            let kinds = [
                ("missing", &changes.inserted),
                ("should be", &changes.updated),
                ("is", &changes.replaced),
                ("surplus", &changes.removed),
            ];
            for (kind, rows) in kinds {
                let room = examples_max.saturating_sub(differences.examples.len());
                differences.examples.extend(
                    row_texts(rows, room)?
                        .into_iter()
                        .map(|text| format!("{kind}: {text}")),
                );
            }
        }
        Ok(differences)
    }

    /// What makes the rows of one part of the keys the fold of bronze, and how many rows of bronze no rule takes.
    pub(super) fn part_changes(
        &self,
        bronze: &Table,
        plan: &SilverPlan,
        schema: &SchemaRef,
        part: &KeySet<'_>,
        truncates: &Truncates,
    ) -> Result<(RowChanges, u64)> {
        let comparators = Comparators::new(plan)?;
        let folded = merge::folded_part(bronze, plan, schema, part, truncates)?;
        let old = match &self.table {
            Some(table) => all_old_rows(table, plan, &comparators, schema, part)?,
            None => OldRows::none(schema),
        };
        let identities = merge::identities(plan, &comparators, &folded.rows)?;
        let changes = changes::difference(&folded.rows, &identities, &old)?;
        Ok((changes, folded.pool.left_out))
    }
}

/// The parts in which all keys are folded, so that memory stays bounded.
pub(super) fn parts(bronze: &Table) -> Vec<KeySet<'static>> {
    let of = u64::try_from(bronze.row_count() / REFOLD_EVENTS_MAX + 1).unwrap_or(1);
    (0..of).map(|part| KeySet::Part { part, of }).collect()
}

/// The rows of silver whose keys are in `part`.
fn all_old_rows(
    table: &Table,
    plan: &SilverPlan,
    comparators: &Comparators,
    schema: &SchemaRef,
    part: &KeySet<'_>,
) -> Result<OldRows> {
    let names: Vec<String> = table
        .schema()
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect();
    let files: Vec<_> = table.files().collect();
    let read = in_parallel(files.len(), |file| {
        let (mut kept, mut places) = (Vec::new(), Vec::new());
        for scanned in table.scan(files[file], &names)? {
            let scanned = scanned?;
            let holds = refold::holds(&scanned.rows, plan, comparators, part)?;
            let held = scanned
                .row_numbers
                .iter()
                .zip(holds.values())
                .filter(|(_, held)| *held);
            places.extend(held.map(|(&row, _)| RowPlace {
                file: files[file].path.clone(),
                row,
            }));
            kept.push(changes::widened(
                &arrow::compute::filter_record_batch(&scanned.rows, &holds)?,
                schema,
            )?);
        }
        Ok((kept, places))
    })?;
    let (rows, places): (Vec<_>, Vec<_>) = read.into_iter().unzip();
    let rows = arrow::compute::concat_batches(schema, rows.iter().flatten())?;
    let identities = merge::identities(plan, comparators, &rows)?;
    let places = places.into_iter().flatten().collect();
    Ok(OldRows::new(rows, places, &identities))
}

fn row_texts(rows: &RecordBatch, count: usize) -> Result<Vec<String>> {
    let options = arrow::util::display::FormatOptions::default().with_null("NULL");
    let schema = rows.schema();
    let text = |row: usize| -> Result<String> {
        let cell = |(field, column): (&arrow::datatypes::FieldRef, &arrow::array::ArrayRef)| -> Result<String> {
            let value = arrow::util::display::ArrayFormatter::try_new(column.as_ref(), &options)?.value(row).to_string();
            Ok(format!("{}={value}", field.name()))
        };
        Ok(schema
            .fields()
            .iter()
            .zip(rows.columns())
            .map(cell)
            .collect::<Result<Vec<_>>>()?
            .join(" "))
    };
    (0..rows.num_rows().min(count)).map(text).collect()
}
