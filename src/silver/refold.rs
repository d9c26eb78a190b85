//! The exact path: folds all events of some keys again from bronze.
//!
//! It is used where new events alone cannot tell what a row becomes, and over all keys by verify and rebuild.

use crate::change::{FILE_PATH, FILE_ROW};
use crate::delta::{ColumnRange, DataFile, Table};
use crate::error::Result;
use crate::parallel::in_parallel;
use crate::silver::plan::SilverPlan;
use crate::silver::pool::{Comparators, EventPool};
use crate::silver::truncates::Truncates;
use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, Scalar};
use arrow::compute::kernels::cmp::eq;
use arrow::compute::{and, filter_record_batch, or, prep_null_mask_filter};
use arrow::datatypes::{Schema, SchemaRef};
use std::collections::HashSet;
use std::sync::Arc;

/// Up to so many keys are compared one by one.
const COMPARED_KEYS_MAX: usize = 16;

/// Which keys to fold again.
pub enum KeySet<'a> {
    /// These, with the key columns to prune files by.
    Some {
        /// Comparable keys.
        keys: HashSet<&'a [u8]>,
        /// The key columns that hold them, one row for each key.
        columns: Vec<ArrayRef>,
    },
    /// One of `of` parts of all keys, by hash.
    Part {
        /// From 0.
        part: u64,
        /// How many parts.
        of: u64,
    },
}

impl KeySet<'_> {
    fn holds(&self, key: &[u8]) -> bool {
        match self {
            KeySet::Some { keys, .. } => keys.contains(key),
            KeySet::Part { of: 1, .. } => true,
            KeySet::Part { part, of } => hash(key) % of == *part,
        }
    }
}

/// All events of `keys` that bronze holds, and `truncates`.
pub fn events_of(
    bronze: &Table,
    plan: &SilverPlan,
    comparators: &Comparators,
    keys: &KeySet<'_>,
    truncates: &Truncates,
) -> Result<EventPool> {
    let schema = event_schema(bronze);
    let columns: Vec<String> = schema
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect();
    let rows = rows_of(bronze, plan, comparators, keys, &columns)?;
    EventPool::new(plan, comparators, &schema, rows, truncates)
}

/// All rows of `keys` that a table has, bronze or silver, in these columns. Files without one by their statistics are not
/// read.
pub fn rows_of(
    table: &Table,
    plan: &SilverPlan,
    comparators: &Comparators,
    keys: &KeySet<'_>,
    columns: &[String],
) -> Result<Vec<RecordBatch>> {
    let files = candidates(table, plan, keys);
    rows_of_files(table, &files, plan, comparators, keys, columns)
}

/// The same of some files alone.
pub fn rows_of_files(
    table: &Table,
    files: &[&DataFile],
    plan: &SilverPlan,
    comparators: &Comparators,
    keys: &KeySet<'_>,
    columns: &[String],
) -> Result<Vec<RecordBatch>> {
    let parts = in_parallel(files.len(), |file| {
        rows_in(table, files[file], plan, comparators, keys, columns)
    })?;
    Ok(parts.into_iter().flatten().collect())
}

/// The rows of one file. For some keys the key columns alone are scanned, and the rows that hit are read whole.
fn rows_in(
    table: &Table,
    file: &DataFile,
    plan: &SilverPlan,
    comparators: &Comparators,
    keys: &KeySet<'_>,
    columns: &[String],
) -> Result<Vec<RecordBatch>> {
    let (mut kept, mut hits) = (Vec::new(), Vec::new());
    if let KeySet::Some { columns, .. } = keys
        && !table.may_hold(file, &plan.names(&plan.keys), columns)?
    {
        return Ok(kept);
    }
    let is_some = matches!(keys, KeySet::Some { .. });
    let key_columns = plan.names(&plan.keys);
    let scanned_columns = if is_some { &key_columns[..] } else { columns };
    for scanned in table.scan(file, scanned_columns)? {
        let scanned = scanned?;
        let holds = holds(&scanned.rows, plan, comparators, keys)?;
        if is_some {
            let held = scanned.row_numbers.iter().zip(holds.values());
            hits.extend(held.filter(|(_, held)| *held).map(|(row, _)| *row));
        } else {
            kept.push(filter_record_batch(&scanned.rows, &holds)?);
        }
    }
    if !hits.is_empty() {
        kept.push(table.take(file, columns, &hits)?);
    }
    Ok(kept)
}

/// The columns of bronze that an event is made of: the source's, and its place.
pub fn event_schema(bronze: &Table) -> SchemaRef {
    let wanted =
        |name: &str| !super::plan::is_own_column(name) || [FILE_PATH, FILE_ROW].contains(&name);
    let fields: Vec<_> = bronze
        .schema()
        .fields()
        .iter()
        .filter(|field| wanted(field.name()))
        .cloned()
        .collect();
    Arc::new(Schema::new(fields))
}

/// For each row, whether its key is in `keys`.
pub fn holds(
    rows: &RecordBatch,
    plan: &SilverPlan,
    comparators: &Comparators,
    keys: &KeySet<'_>,
) -> Result<BooleanArray> {
    if matches!(keys, KeySet::Part { of: 1, .. }) {
        return Ok(BooleanArray::from(vec![true; rows.num_rows()]));
    }
    let key_columns = plan.key_columns(rows);
    if let KeySet::Some { columns, .. } = keys
        && let Some(holds) = equals_one_of(&key_columns, columns)
    {
        return Ok(holds);
    }
    let comparable = comparators.keys.rows(&key_columns)?;
    Ok((0..rows.num_rows())
        .map(|row| Some(keys.holds(comparable.row(row).data())))
        .collect())
}

/// Compares whole columns with each of few keys, which is much faster than making every key comparable; `None` for many
/// keys, and for types without such a comparison.
fn equals_one_of(columns: &[ArrayRef], keys: &[ArrayRef]) -> Option<BooleanArray> {
    let count = keys.first()?.len();
    if count > COMPARED_KEYS_MAX {
        return None;
    }
    let mut holds = BooleanArray::from(vec![false; columns.first()?.len()]);
    for key in 0..count {
        let mut equal: Option<BooleanArray> = None;
        for (column, keys) in columns.iter().zip(keys) {
            let scalar = Scalar::new(keys.slice(key, 1));
            let same = eq(&column.as_ref(), &scalar).ok()?;
            // A NULL key equals none.
            let same = match same.null_count() {
                0 => same,
                _ => prep_null_mask_filter(&same),
            };
            equal = Some(match equal {
                Some(equal) => and(&equal, &same).ok()?,
                None => same,
            });
        }
        holds = or(&holds, &equal?).ok()?;
    }
    Some(holds)
}

/// The files that may hold rows of `keys`, as their statistics tell.
pub fn candidates<'a>(table: &'a Table, plan: &SilverPlan, keys: &KeySet<'_>) -> Vec<&'a DataFile> {
    let ranges: Vec<ColumnRange> = match keys {
        KeySet::Some { columns, .. } => {
            let named = plan.keys.iter().zip(columns);
            named
                .filter_map(|(&place, column)| ColumnRange::of(plan.columns[place].name(), column))
                .collect()
        }
        KeySet::Part { .. } => Vec::new(),
    };
    table.candidates(&ranges)
}

fn hash(key: &[u8]) -> u64 {
    // FNV-1a: any stable hash that spreads keys over parts will do.
    key.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
