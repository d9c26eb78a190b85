//! The records that say something about one key: its rows of bronze, the truncates, the refused records, its rows of
//! silver.
//!
//! Files that cannot hold one are not read: they are told by the statistics of the keys.

use super::{ExplainedKey, truncates};
use crate::change::{BATCH_ID, FILE_PATH, FILE_ROW};
use crate::decode::{shows_columns, values_of_record};
use crate::delta::Table;
use crate::error::Result;
use crate::events::{EventClassifier, EventKind};
use crate::quarantine::{QuarantineTable, QuarantinedRecord};
use crate::settings::SourceSettings;
use crate::silver::plan::SilverPlan;
use crate::silver::pool::{Comparators, EventPool};
use crate::silver::refold::{self, KeySet};
use crate::silver::truncates::Truncates;
use crate::silver::{SilverTable, changes};
use arrow::array::{ArrayRef, AsArray, BooleanArray, RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, filter_record_batch, take_record_batch};
use arrow::datatypes::{Int64Type, Schema, SchemaRef};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Rows of bronze, each an event of the key or a truncate.
pub(super) struct Records {
    /// The source's columns, then the place and the batch.
    pub(super) rows: RecordBatch,
    /// What each is.
    pub(super) kinds: Vec<EventKind>,
    /// A truncate stands for a snapshot without the key.
    pub(super) snapshots: bool,
    /// The events of the key, ready to be folded.
    pub(super) pool: EventPool,
    /// Which row each event of the pool is.
    pub(super) row_of: Vec<usize>,
}

impl Records {
    /// Reads everything that bronze has. `known` are the truncates, where silver is known to know them all.
    pub(super) fn read(
        bronze: &Table,
        plan: &SilverPlan,
        comparators: &Comparators,
        key: &ExplainedKey,
        known: Option<&Truncates>,
    ) -> Result<Records> {
        let event_schema = refold::event_schema(bronze);
        let schema = with_batch(bronze, &event_schema);
        let columns = names(&schema);
        let keys = key.key_set(comparators)?;
        let of_key = refold::rows_of(bronze, plan, comparators, &keys.as_set(), &columns)?;
        let of_key = concat_batches(&schema, &of_key)?;
        let wanted = truncates::Wanted {
            bronze,
            plan,
            comparators,
            known,
            columns: &columns,
        };
        let truncates = wanted.rows(&of_key)?;
        let truncates = concat_batches(&schema, &truncates)?;
        Records::new(plan, comparators, &event_schema, &of_key, &truncates)
    }

    /// Makes them of the rows of the key and the rows of truncates, which have the columns of `event_schema` and the batch.
    pub(super) fn new(
        plan: &SilverPlan,
        comparators: &Comparators,
        event_schema: &SchemaRef,
        of_key: &RecordBatch,
        truncates: &RecordBatch,
    ) -> Result<Records> {
        let mut kinds = classify(plan, event_schema, of_key)?;
        // A truncate that names the key is among the truncates.
        let is_event: BooleanArray = kinds
            .iter()
            .map(|kind| Some(*kind != EventKind::Truncate))
            .collect();
        kinds.retain(|kind| *kind != EventKind::Truncate);
        kinds.resize(kinds.len() + truncates.num_rows(), EventKind::Truncate);
        let of_key = filter_record_batch(of_key, &is_event)?;
        let sequences = [project(truncates, event_schema)?];
        let sequences = Truncates::among(plan, comparators, event_schema, &sequences)?;
        let events = vec![project(&of_key, event_schema)?];
        let pool = EventPool::new(plan, comparators, event_schema, events, &sequences)?;
        let mut records = Records {
            rows: concat_batches(&of_key.schema(), [&of_key, truncates])?,
            kinds,
            snapshots: plan.snapshots,
            pool,
            row_of: Vec::new(),
        };
        records.row_of = records.rows_of_events();
        Ok(records)
    }

    /// File and record of a row.
    pub(super) fn place(&self, row: usize) -> (&str, i64) {
        let [files, numbers] = [FILE_PATH, FILE_ROW].map(|name| &self.rows[name]);
        let files = files.as_string::<i32>();
        let numbers = numbers.as_primitive::<Int64Type>();
        (files.value(row), numbers.value(row))
    }

    /// The batch that brought a row.
    pub(super) fn batch(&self, row: usize) -> i64 {
        self.rows[BATCH_ID].as_primitive::<Int64Type>().value(row)
    }

    /// Whether a row stands for a snapshot that lacks the key.
    pub(super) fn is_missing(&self, row: usize) -> bool {
        self.snapshots && self.kinds[row] == EventKind::Truncate
    }

    /// The pool leaves rows out and keeps the order of the others.
    fn rows_of_events(&self) -> Vec<usize> {
        let mut rows: HashMap<(&str, i64), VecDeque<usize>> = HashMap::new();
        for (row, kind) in self.kinds.iter().enumerate() {
            if matches!(kind, EventKind::Upsert | EventKind::Delete) {
                rows.entry(self.place(row)).or_default().push_back(row);
            }
        }
        let row = |event: u32| {
            let rows = rows.get_mut(&self.pool.place(event));
            rows.and_then(VecDeque::pop_front)
        };
        let row = (0..self.pool.file_rows.len() as u32).map(row);
        row.map(|row| row.expect("BUG: an event of the pool is a row of bronze"))
            .collect()
    }
}

/// The rows of silver, in the order of their versions.
pub(super) fn silver_rows(
    silver: &SilverTable,
    plan: &SilverPlan,
    comparators: &Comparators,
    key: &ExplainedKey,
    schema: &SchemaRef,
) -> Result<RecordBatch> {
    let Some(table) = silver.table() else {
        return Ok(RecordBatch::new_empty(schema.clone()));
    };
    let keys = key.key_set(comparators)?;
    let columns = names(&table.schema());
    let found = refold::rows_of(table, plan, comparators, &keys.as_set(), &columns)?;
    let widened = found.iter().map(|rows| changes::widened(rows, schema));
    let rows = concat_batches(schema, &widened.collect::<Result<Vec<_>>>()?)?;
    let identities = comparators.identity.rows(&plan.identity_columns(&rows))?;
    let mut order: Vec<u32> = (0..rows.num_rows() as u32).collect();
    order.sort_by_key(|&row| identities.row(row as usize));
    Ok(take_record_batch(&rows, &UInt32Array::from(order))?)
}

/// The refused records whose text shows the key.
pub(super) fn refused(
    quarantine: &QuarantineTable,
    source: &SourceSettings,
    comparators: &Comparators,
    key: &ExplainedKey,
) -> Result<Vec<QuarantinedRecord>> {
    let keys = key.key_set(comparators)?;
    let mut found = Vec::new();
    if !shows_columns(source) {
        return Ok(found);
    }
    quarantine.for_each(&mut |record| {
        if let Some(columns) = values_of_record(&record.raw, &key.fields, source)
            && keys.is_key(&comparators.keys.rows(&columns)?)
        {
            found.push(record);
        }
        Ok(())
    })?;
    found.sort_by(|a, b| (&a.file_path, a.file_row).cmp(&(&b.file_path, b.file_row)));
    Ok(found)
}

/// The key as rows are compared with it.
pub(super) struct ComparableKey {
    bytes: Box<[u8]>,
    columns: Vec<ArrayRef>,
}

impl ComparableKey {
    fn as_set(&self) -> KeySet<'_> {
        KeySet::Some {
            keys: HashSet::from([&self.bytes[..]]),
            columns: self.columns.clone(),
        }
    }

    fn is_key(&self, rows: &arrow::row::Rows) -> bool {
        rows.num_rows() == 1 && rows.row(0).data() == &self.bytes[..]
    }
}

impl ExplainedKey {
    fn key_set(&self, comparators: &Comparators) -> Result<ComparableKey> {
        let rows = comparators.keys.rows(&self.values)?;
        Ok(ComparableKey {
            bytes: rows.row(0).data().into(),
            columns: self.values.clone(),
        })
    }
}

/// What each row is.
pub(super) fn classify(
    plan: &SilverPlan,
    schema: &SchemaRef,
    rows: &RecordBatch,
) -> Result<Vec<EventKind>> {
    EventClassifier::new(&plan.rules, schema)?.classify(&project(rows, schema)?)
}

/// The columns of an event, and the batch that brought it.
fn with_batch(bronze: &Table, events: &SchemaRef) -> SchemaRef {
    let schema = bronze.schema();
    let fields = events.fields().iter().cloned();
    let batch = schema.fields().find(BATCH_ID).map(|(_, field)| field);
    Arc::new(Schema::new(
        fields.chain(batch.cloned()).collect::<Vec<_>>(),
    ))
}

fn project(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let present = rows.schema();
    let places = schema.fields().iter();
    let places = places.map(|field| present.index_of(field.name()));
    Ok(rows.project(&places.collect::<Result<Vec<_>, _>>()?)?)
}

pub(super) fn names(schema: &SchemaRef) -> Vec<String> {
    let names = schema.fields().iter().map(|field| field.name().clone());
    names.collect()
}
