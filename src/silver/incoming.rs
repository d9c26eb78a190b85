//! The rows that one version of bronze brought, cut into parts by ranges of keys so that an apply of any size fits in
//! memory. All events of a key are in one part.

use crate::delta::{DataFile, Table, VersionFiles};
use crate::error::Result;
use crate::parallel::in_parallel;
use crate::silver::plan::SilverPlan;
use crate::silver::pool::Comparators;
use crate::silver::refold;
use crate::silver::truncates::Truncates;
use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::row::OwnedRow;

/// About so many events are folded at once.
const PART_EVENTS_MAX: usize = 500_000;
/// Keys that are looked at for each part, to find where the ranges begin.
const SAMPLES_OF_PART: usize = 500;

/// The rows of one version of bronze.
pub(super) struct Incoming {
    /// Of all rows.
    pub(super) schema: SchemaRef,
    rows: Vec<RecordBatch>,
    /// The version took rows away: only all events of their keys can tell.
    pub(super) replaces: bool,
}

impl Incoming {
    /// Reads the files that a version added and removed.
    pub(super) fn read(bronze: &Table, files: &VersionFiles) -> Result<Incoming> {
        let schema = refold::event_schema(bronze);
        let columns: Vec<String> = schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect();
        let added = files.added.iter().map(|add| bronze.data_file(add.clone()));
        let removed = files
            .removed
            .iter()
            .map(|remove| bronze.removed_file(remove));
        let all: Vec<DataFile> = added.chain(removed).collect::<Result<_>>()?;
        let read = in_parallel(all.len(), |file| {
            let rows = bronze
                .scan(&all[file], &columns)?
                .map(|scanned| Ok(scanned?.rows));
            rows.collect::<Result<Vec<_>>>()
        })?;
        let rows = read.into_iter().flatten().collect();
        Ok(Incoming {
            schema,
            rows,
            replaces: !files.removed.is_empty(),
        })
    }

    /// All truncates that silver is to know, where it knows `known`.
    pub(super) fn truncates(
        &self,
        bronze: &Table,
        plan: &SilverPlan,
        comparators: &Comparators,
        known: &Truncates,
    ) -> Result<Truncates> {
        if self.replaces {
            // One may have gone with the rows that left.
            return Truncates::in_bronze(bronze, plan, comparators);
        }
        let found = Truncates::among(plan, comparators, &self.schema, &self.rows)?;
        known.and(plan, comparators, &found)
    }

    /// The rows in parts, in the order of their keys. At least one part, which may be empty.
    pub(super) fn into_parts(
        self,
        plan: &SilverPlan,
        comparators: &Comparators,
    ) -> Result<Vec<Vec<RecordBatch>>> {
        let count: usize = self.rows.iter().map(RecordBatch::num_rows).sum();
        let parts = part_count(count);
        if parts == 1 {
            return Ok(vec![self.rows]);
        }
        let bounds = bounds(&self.rows, plan, comparators, parts)?;
        let mut cut: Vec<Vec<RecordBatch>> = vec![Vec::new(); bounds.len() + 1];
        // Each batch goes when its rows are cut, so that the rows are not there twice.
        for rows in self.rows {
            let keys = comparators.keys.rows(&plan.key_columns(&rows))?;
            let mut places: Vec<Vec<u32>> = vec![Vec::new(); cut.len()];
            for row in 0..rows.num_rows() {
                let part = bounds.partition_point(|bound| bound.row() <= keys.row(row));
                places[part].push(row as u32);
            }
            for (part, places) in cut.iter_mut().zip(places) {
                if !places.is_empty() {
                    part.push(take_record_batch(&rows, &UInt32Array::from(places))?);
                }
            }
        }
        Ok(cut)
    }
}

/// A debug build cuts small applies too, so that tests cross the bound.
fn part_count(events: usize) -> usize {
    match events {
        9..100 if cfg!(debug_assertions) => 3,
        _ => events.div_ceil(PART_EVENTS_MAX).max(1),
    }
}

/// The first keys of all parts but the first, from a sample.
fn bounds(
    rows: &[RecordBatch],
    plan: &SilverPlan,
    comparators: &Comparators,
    parts: usize,
) -> Result<Vec<OwnedRow>> {
    let count: usize = rows.iter().map(RecordBatch::num_rows).sum();
    let step = (count / (parts * SAMPLES_OF_PART)).max(1);
    let mut sample: Vec<OwnedRow> = Vec::new();
    for rows in rows {
        let places: UInt32Array = (0..rows.num_rows() as u32).step_by(step).collect();
        let keys = comparators
            .keys
            .rows(&plan.key_columns(&take_record_batch(rows, &places)?))?;
        sample.extend(keys.iter().map(|key| key.owned()));
    }
    sample.sort_unstable();
    let mut bounds: Vec<OwnedRow> = (1..parts)
        .filter_map(|part| sample.get(part * sample.len() / parts).cloned())
        .collect();
    bounds.dedup();
    Ok(bounds)
}
