//! Brings truncates that come after everything silver has to the keys that have no new event; writes nothing.

use crate::change::{DELETED, END_AT};
use crate::delta::DataFile;
use crate::error::Result;
use crate::silver::changes::{self, RowChanges, RowPlace};
use crate::silver::fold::{FoldedRow, Shape};
use crate::silver::merge::Merge;
use crate::silver::pool;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::{concat_batches, filter_record_batch};
use std::collections::HashSet;

/// Comparable keys.
pub(super) type Keys = HashSet<Box<[u8]>>;

impl Merge<'_> {
    /// What the new truncates do to the rows of one file of silver whose keys are not in `seen`. The pool has no events.
    pub(super) fn sweep(&self, file: &DataFile, seen: &Keys) -> Result<RowChanges> {
        let (rows, places) = self.swept(file, seen)?;
        if places.is_empty() {
            return Ok(RowChanges::none(&self.schema));
        }
        let old = self.plan.columns.iter();
        let old: Vec<ArrayRef> = old
            .map(|field| pool::column_or_null(&rows, field.name(), field.data_type()))
            .collect();
        let columns = pool::joined(&self.pool.columns, &old)?;
        let not_sent = self.pool.not_sent(self.plan, &columns)?;
        let fold = self.pool.fold(self.plan, &columns, &not_sent);
        let first_old = u32::try_from(self.pool.kinds.len()).expect("fewer than 4 billion events");
        let flags = rows
            .column_by_name(DELETED)
            .and_then(|column| column.as_boolean_opt());
        let (mut updated, mut replaced, mut removed) = (Vec::new(), Vec::new(), Vec::new());
        for row in 0..places.len() as u32 {
            let place = row as usize;
            let deleted = flags.is_some_and(|flags| flags.is_valid(place) && flags.value(place));
            let mut after = Vec::with_capacity(1);
            fold.onto(FoldedRow::old(first_old + row, deleted), &[], &mut after);
            match after.pop() {
                Some(row_after) => {
                    updated.push(row_after);
                    replaced.push(row);
                }
                None => removed.push(row),
            }
        }
        let spans = match self.plan.shape {
            Shape::History => Some(self.spans(&rows)?),
            Shape::Flagged | Shape::Bare => None,
        };
        let place_of = |&row: &u32| places[row as usize].clone();
        Ok(RowChanges {
            updated: changes::materialize(
                &updated,
                &columns,
                spans.as_ref(),
                self.plan,
                &self.schema,
            )?,
            replaced_at: replaced.iter().map(place_of).collect(),
            replaced: changes::pick(&rows, replaced)?,
            removed_at: removed.iter().map(place_of).collect(),
            removed: changes::pick(&rows, removed)?,
            ..RowChanges::none(&self.schema)
        })
    }

    /// The rows of a file that a truncate can change, and where they stand.
    fn swept(&self, file: &DataFile, seen: &Keys) -> Result<(RecordBatch, Vec<RowPlace>)> {
        let schema = self.silver.schema();
        let names = schema.fields().iter().map(|field| field.name().clone());
        let names: Vec<String> = names.collect();
        let (mut kept, mut places) = (Vec::new(), Vec::new());
        for scanned in self.silver.scan(file, &names)? {
            let scanned = scanned?;
            let keys = self
                .comparators
                .keys
                .rows(&self.plan.key_columns(&scanned.rows))?;
            let can_change = self.can_change(&scanned.rows);
            let is_swept = |row: usize| can_change(row) && !seen.contains(keys.row(row).data());
            let swept: BooleanArray = (0..scanned.rows.num_rows())
                .map(|row| Some(is_swept(row)))
                .collect();
            let numbers = scanned.row_numbers.iter().zip(swept.values());
            places.extend(
                numbers
                    .filter(|(_, swept)| *swept)
                    .map(|(&row, _)| RowPlace {
                        file: file.path.clone(),
                        row,
                    }),
            );
            let rows = filter_record_batch(&scanned.rows, &swept)?;
            kept.push(changes::widened(&rows, &self.schema)?);
        }
        Ok((concat_batches(&self.schema, &kept)?, places))
    }

    /// A version that has ended is done with, and a snapshot deletes a key once.
    fn can_change<'r>(&self, rows: &'r RecordBatch) -> Box<dyn Fn(usize) -> bool + 'r> {
        let column = |name| rows.column_by_name(name);
        match (self.plan.shape, column(END_AT), column(DELETED)) {
            (Shape::History, Some(ends), _) => Box::new(|row| ends.is_null(row)),
            (Shape::Flagged, _, Some(flags)) if self.plan.snapshots => {
                let flags = flags.as_boolean();
                Box::new(|row| flags.is_null(row) || !flags.value(row))
            }
            _ => Box::new(|_| true),
        }
    }
}
