//! The records that delete keys which they do not name: truncates, and snapshots that lack a key.
//!
//! A silver that is up to date knows their sequences, so that only files that may hold one of these are read; else all of
//! bronze is. Which of them reach the key, and what they do, is left to the fold.

use super::records::{classify, names};
use crate::change::{BATCH_ID, FILE_PATH, FILE_ROW};
use crate::delta::{ColumnRange, DataFile, Table};
use crate::error::Result;
use crate::events::{EventKind, find_column};
use crate::parallel::in_parallel;
use crate::settings::EventRules;
use crate::silver::plan::SilverPlan;
use crate::silver::pool::Comparators;
use crate::silver::refold;
use crate::silver::truncates::Truncates;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::{FieldRef, Int64Type, Schema, SchemaRef};
use arrow::row::Row;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Where truncates are looked for.
pub(super) struct Wanted<'a> {
    pub(super) bronze: &'a Table,
    pub(super) plan: &'a SilverPlan,
    pub(super) comparators: &'a Comparators,
    /// All of them, where silver is known to know them all.
    pub(super) known: Option<&'a Truncates>,
    /// What is read of each.
    pub(super) columns: &'a [String],
}

impl Wanted<'_> {
    /// The rows of bronze that are truncates, or one row of each snapshot that may delete the key whose events are `of_key`.
    pub(super) fn rows(&self, of_key: &RecordBatch) -> Result<Vec<RecordBatch>> {
        if self.plan.snapshots {
            return self.snapshots(of_key);
        }
        let is_none = self.known.is_some_and(Truncates::is_empty);
        if is_none || !self.plan.has_truncates() {
            return Ok(Vec::new());
        }
        let range = self.known.and_then(|known| self.range(known.sequences()));
        self.hits_in(range, |file| self.truncates_in(file))
    }

    /// Reads the rows that `hits` finds in each file that may reach into `range`.
    fn hits_in(
        &self,
        range: Option<ColumnRange>,
        hits: impl Fn(&DataFile) -> Result<Vec<u64>> + Sync,
    ) -> Result<Vec<RecordBatch>> {
        let files = self.bronze.candidates(range.as_slice());
        let found = in_parallel(files.len(), |file| {
            let hits = hits(files[file])?;
            match hits.is_empty() {
                true => Ok(None),
                false => self.bronze.take(files[file], self.columns, &hits).map(Some),
            }
        })?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Where sequences lie in the most significant column.
    fn range(&self, sequences: &RecordBatch) -> Option<ColumnRange> {
        let name = self.plan.columns[self.plan.sequence[0]].name();
        ColumnRange::of(name, sequences.column(0))
    }

    /// A file is read only as far as the rules need it.
    fn truncates_in(&self, file: &DataFile) -> Result<Vec<u64>> {
        let plan = self.plan;
        let schema = rule_schema(plan, &refold::event_schema(self.bronze));
        let mut columns = names(&schema);
        let lacks = |name: &String| schema.index_of(name).is_err();
        columns.extend(plan.names(&plan.sequence).into_iter().filter(lacks));
        let mut hits = Vec::new();
        for scanned in self.bronze.scan(file, &columns)? {
            let scanned = scanned?;
            let kinds = classify(plan, &schema, &scanned.rows)?;
            let sequences = plan.sequence_columns(&scanned.rows);
            let is_one = |row: &usize| {
                kinds[*row] == EventKind::Truncate
                    && sequences.iter().all(|column| column.is_valid(*row))
            };
            let rows = (0..kinds.len()).filter(is_one);
            hits.extend(rows.map(|row| scanned.row_numbers[row]));
        }
        Ok(hits)
    }

    /// The snapshots that come first after events of the key without holding it: the ones behind them find it deleted.
    fn snapshots(&self, of_key: &RecordBatch) -> Result<Vec<RecordBatch>> {
        let all = match self.known {
            Some(known) => known.clone(),
            None => Truncates::in_bronze(self.bronze, self.plan, self.comparators)?,
        };
        let comparable = |columns: &[ArrayRef]| self.comparators.sequence.rows(columns);
        let snapshots = comparable(all.sequences().columns())?;
        let events = comparable(&self.plan.sequence_columns(of_key))?;
        let mut events: Vec<Row<'_>> = events.iter().collect();
        events.sort_unstable();
        events.dedup();
        let ascending: Vec<Row<'_>> = snapshots.iter().collect();
        let mut wanted = Vec::new();
        for (place, event) in events.iter().enumerate() {
            let next = ascending.partition_point(|snapshot| snapshot <= event);
            let is_before = |later: &Row<'_>| ascending[next] < *later;
            if next < ascending.len() && events.get(place + 1).is_none_or(is_before) {
                wanted.push(next as u32);
            }
        }
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let wanted = take_record_batch(all.sequences(), &UInt32Array::from(wanted))?;
        let rows = comparable(wanted.columns())?;
        let set: HashSet<&[u8]> = (0..rows.num_rows())
            .map(|row| rows.row(row).data())
            .collect();
        let found = self.hits_in(self.range(&wanted), |file| self.first_rows_in(file, &set))?;
        self.first_to_arrive(found)
    }

    /// The first row of each of some snapshots in one file.
    fn first_rows_in(&self, file: &DataFile, wanted: &HashSet<&[u8]>) -> Result<Vec<u64>> {
        let mut seen: HashSet<Box<[u8]>> = HashSet::new();
        let mut hits = Vec::new();
        for scanned in self
            .bronze
            .scan(file, &self.plan.names(&self.plan.sequence))?
        {
            let scanned = scanned?;
            let sequences = self.comparators.sequence.rows(scanned.rows.columns())?;
            for (row, &number) in scanned.row_numbers.iter().enumerate() {
                let sequence = sequences.row(row).data();
                if wanted.contains(sequence) && !seen.contains(sequence) {
                    seen.insert(sequence.into());
                    hits.push(number);
                }
            }
        }
        Ok(hits)
    }

    /// One row of each snapshot, of all files that are it.
    fn first_to_arrive(&self, found: Vec<RecordBatch>) -> Result<Vec<RecordBatch>> {
        let mut first: BTreeMap<Box<[u8]>, (Arrived, RecordBatch)> = BTreeMap::new();
        for rows in found {
            let sequences = self.plan.sequence_columns(&rows);
            let sequences = self.comparators.sequence.rows(&sequences)?;
            for row in 0..rows.num_rows() {
                let arrived = arrived(&rows, row);
                let sequence = sequences.row(row).data();
                if first
                    .get(sequence)
                    .is_none_or(|(before, _)| arrived < *before)
                {
                    first.insert(sequence.into(), (arrived, rows.slice(row, 1)));
                }
            }
        }
        Ok(first.into_values().map(|(_, row)| row).collect())
    }
}

/// Batch, file and record.
type Arrived = (i64, String, i64);

fn arrived(rows: &RecordBatch, row: usize) -> Arrived {
    let number = |name: &str| rows[name].as_primitive::<Int64Type>().value(row);
    let file = rows[FILE_PATH].as_string::<i32>().value(row);
    (number(BATCH_ID), file.to_string(), number(FILE_ROW))
}

/// The columns that tell what a row is: one for a closed set of operations; predicates may name any.
fn rule_schema(plan: &SilverPlan, events: &SchemaRef) -> SchemaRef {
    let EventRules::Operations { column, .. } = &plan.rules else {
        return events.clone();
    };
    let place = find_column(events, column);
    let field = place.map(|place| events.fields()[place].clone());
    Arc::new(Schema::new(field.into_iter().collect::<Vec<FieldRef>>()))
}
