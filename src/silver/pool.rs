//! Rows of bronze as events: columns, key, sequence and order, ready to be folded.

use crate::change::{FILE_PATH, FILE_ROW};
use crate::error::{Error, Result};
use crate::events::{EventClassifier, EventKind};
use crate::silver::carried;
use crate::silver::fold::{ContentEquality, Fold, Shape, Values};
use crate::silver::order::{Ordered, order_of_events};
use crate::silver::plan::SilverPlan;
use crate::silver::truncates::Truncates;
use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, UInt32Array, new_null_array,
};
use arrow::compute::kernels::cmp::eq;
use arrow::compute::{concat, concat_batches, filter_record_batch, take};
use arrow::datatypes::{DataType, Int64Type, SchemaRef};
use arrow::row::{RowConverter, Rows, SortField};
use std::collections::HashMap;

/// Turns the key or sequence columns of any batch into bytes that compare like the columns, left to right.
pub struct Comparable {
    converter: RowConverter,
}

impl Comparable {
    /// For columns of these types.
    ///
    /// Fails with a settings error for a type that has no order.
    pub fn new(types: &[DataType]) -> Result<Self> {
        let fields = types.iter().cloned().map(SortField::new).collect();
        let converter = RowConverter::new(fields).map_err(|error| {
            Error::settings(format!(
                "keys and sequence columns need types that can be compared: {error}"
            ))
        })?;
        Ok(Comparable { converter })
    }

    /// One comparable row for each row of the columns.
    pub fn rows(&self, columns: &[ArrayRef]) -> Result<Rows> {
        Ok(self.converter.convert_columns(columns)?)
    }
}

/// The comparators of one plan; rows made by the same comparator can be compared with one another.
pub struct Comparators {
    /// Of the keys.
    pub keys: Comparable,
    /// Of the sequence.
    pub sequence: Comparable,
    /// Of what tells one row of silver from another.
    pub identity: Comparable,
}

impl Comparators {
    /// For the types of `plan`.
    pub fn new(plan: &SilverPlan) -> Result<Self> {
        let types = |places: &[usize]| -> Vec<DataType> {
            places
                .iter()
                .map(|&place| plan.columns[place].data_type().clone())
                .collect()
        };
        Ok(Comparators {
            keys: Comparable::new(&types(&plan.keys))?,
            sequence: Comparable::new(&types(&plan.sequence))?,
            identity: Comparable::new(&plan.identity_types())?,
        })
    }
}

/// Events of bronze that change silver, grouped by key and in the order of the law.
pub struct EventPool {
    /// One array for each column of the plan, over all events and the truncates behind them.
    pub columns: Vec<ArrayRef>,
    /// What each event is: upserts, deletes, and the truncates at the end.
    pub kinds: Vec<EventKind>,
    /// The key of each event.
    pub keys: Rows,
    /// The sequence of each event and truncate.
    pub sequences: Rows,
    /// The file of each event.
    pub files: ArrayRef,
    /// The record of the file.
    pub file_rows: Vec<i64>,
    /// The truncates, in the order of their sequences.
    pub truncates: Vec<u32>,
    /// So many of the first ones are in the rows of silver already.
    known_truncates: usize,
    /// For each column, where an event says that it does not carry it.
    not_carried: Option<Vec<BooleanArray>>,
    /// Events by (key, sequence, file, row).
    pub order: Vec<u32>,
    /// Rows that are neither events nor skipped by the rules.
    pub left_out: u64,
    /// One range of `order` for each key, in the order of the keys.
    pub groups: Vec<std::ops::Range<usize>>,
}

impl EventPool {
    /// Makes events of rows of bronze, all of one schema. Rows that silver does not take are left out.
    pub fn new(
        plan: &SilverPlan,
        comparators: &Comparators,
        schema: &SchemaRef,
        rows: Vec<RecordBatch>,
        truncates: &Truncates,
    ) -> Result<Self> {
        let all = concat_batches(schema, &rows)?;
        drop(rows);
        let kinds = EventClassifier::new(&plan.rules, schema)?.classify(&all)?;
        let taken = takes_part(plan, &all, &kinds);
        let is_skipped = |kind: &&EventKind| matches!(kind, EventKind::Skip | EventKind::Truncate);
        let skipped = kinds.iter().filter(is_skipped).count();
        let left_out = (all.num_rows() - taken.true_count() - skipped) as u64;
        let mut kinds: Vec<EventKind> = kinds
            .into_iter()
            .zip(taken.values())
            .filter(|(_, taken)| *taken)
            .map(|(kind, _)| kind)
            .collect();
        let all = match taken.true_count() == all.num_rows() {
            true => all,
            false => filter_record_batch(&all, &taken)?,
        };
        let not_carried = carried::not_carried(plan, &all)?;
        let columns = plan.columns.iter().enumerate().map(|(place, field)| {
            let events = column_or_null(&all, field.name(), field.data_type());
            truncates.behind(plan, place, events)
        });
        let columns: Vec<ArrayRef> = columns.collect::<Result<_>>()?;
        let events = kinds.len() as u32;
        kinds.resize(kinds.len() + truncates.len(), EventKind::Truncate);
        let pick = |places: &[usize]| -> Vec<ArrayRef> {
            places.iter().map(|&place| columns[place].clone()).collect()
        };
        let keys = comparators.keys.rows(&pick(&plan.keys))?;
        let sequences = comparators.sequence.rows(&pick(&plan.sequence))?;
        let files = column_or_null(&all, FILE_PATH, &DataType::Utf8);
        let file_rows = column_or_null(&all, FILE_ROW, &DataType::Int64);
        let file_rows = file_rows.as_primitive::<Int64Type>().values().to_vec();
        let Ordered { order, groups } = order_of_events(&keys, &sequences, &files, &file_rows);
        Ok(EventPool {
            files,
            file_rows,
            truncates: (events..kinds.len() as u32).collect(),
            known_truncates: truncates.known(),
            not_carried,
            columns,
            kinds,
            keys,
            sequences,
            order,
            left_out,
            groups,
        })
    }

    /// The events of group `group`, in order.
    pub fn events(&self, group: usize) -> &[u32] {
        &self.order[self.groups[group].clone()]
    }

    /// Where an event stands: its file and the record of it.
    pub fn place(&self, event: u32) -> (&str, i64) {
        let files = self.files.as_string::<i32>();
        (files.value(event as usize), self.file_rows[event as usize])
    }

    /// The sequence of each event as one column, where silver has versions.
    pub fn spans(&self, plan: &SilverPlan) -> Result<Option<ArrayRef>> {
        match plan.shape {
            Shape::History => Ok(Some(plan.spans(&self.columns)?)),
            Shape::Flagged | Shape::Bare => Ok(None),
        }
    }

    /// The key of group `group`.
    pub fn key(&self, group: usize) -> &[u8] {
        self.keys.row(self.events(group)[0] as usize).data()
    }

    /// The fold of `plan` over `columns`, which are those of this pool, and old rows behind them; `not_sent` is
    /// [`EventPool::not_sent`] of the same.
    pub fn fold<'a>(
        &'a self,
        plan: &'a SilverPlan,
        columns: &'a [ArrayRef],
        not_sent: &'a [Option<BooleanArray>],
    ) -> Fold<'a> {
        Fold {
            shape: plan.shape,
            kinds: &self.kinds,
            values: Values {
                columns,
                ignore_null: &plan.ignore_null,
                not_sent,
            },
            truncates: &self.truncates,
            known_truncates: self.known_truncates,
            snapshots: plan.snapshots,
            sequences: &self.sequences,
            sequence_columns: &plan.sequence,
            tracked: &plan.tracked,
            same: ContentEquality::new(columns),
        }
    }

    /// For each column, where its value was not sent: the text is the word for that, or the event does not carry it.
    pub fn not_sent(
        &self,
        plan: &SilverPlan,
        columns: &[ArrayRef],
    ) -> Result<Vec<Option<BooleanArray>>> {
        let masks = unavailable_masks(plan, columns)?;
        let Some(not_carried) = &self.not_carried else {
            return Ok(masks);
        };
        let join = |(place, mask): (usize, Option<BooleanArray>)| {
            let rows = columns[place].len();
            let lacks =
                |row: usize| row < not_carried[place].len() && not_carried[place].value(row);
            let is_word = |row: usize| mask.as_ref().is_some_and(|mask| mask.value(row));
            let joined = (0..rows).map(|row| Some(lacks(row) || is_word(row)));
            Some(joined.collect::<BooleanArray>())
        };
        Ok(masks.into_iter().enumerate().map(join).collect())
    }

    /// Finds the group of a key.
    pub fn key_index(&self) -> HashMap<&[u8], u32> {
        (0..self.groups.len())
            .map(|group| (self.key(group), group as u32))
            .collect()
    }
}

/// The column of this name, or NULLs where the batch was written before the column came.
pub fn column_or_null(batch: &RecordBatch, name: &str, data_type: &DataType) -> ArrayRef {
    match batch.column_by_name(name) {
        Some(column) => column.clone(),
        None => new_null_array(data_type, batch.num_rows()),
    }
}

/// For each column, where its text is the word for "value not sent".
fn unavailable_masks(plan: &SilverPlan, columns: &[ArrayRef]) -> Result<Vec<Option<BooleanArray>>> {
    let mask = |column: &ArrayRef| -> Result<Option<BooleanArray>> {
        match (&plan.unavailable_value, column.data_type()) {
            (Some(word), DataType::Utf8) => {
                let equal = eq(
                    column.as_string::<i32>(),
                    &arrow::array::StringArray::new_scalar(word),
                )?;
                Ok(Some(BooleanArray::from_iter(
                    (0..equal.len()).map(|row| Some(equal.is_valid(row) && equal.value(row))),
                )))
            }
            _ => Ok(None),
        }
    };
    columns.iter().map(mask).collect()
}

/// Two pools as one: the rows of `left` first.
pub fn joined(left: &[ArrayRef], right: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
    if right.iter().all(|column| column.is_empty()) {
        return Ok(left.to_vec());
    }
    let join =
        |(left, right): (&ArrayRef, &ArrayRef)| Ok(concat(&[left.as_ref(), right.as_ref()])?);
    left.iter().zip(right).map(join).collect()
}

/// Rows of a pool by place; NULL places give NULL.
pub fn gather(column: &ArrayRef, places: &UInt32Array) -> Result<ArrayRef> {
    Ok(take(column.as_ref(), places, None)?)
}

fn takes_part(plan: &SilverPlan, rows: &RecordBatch, kinds: &[EventKind]) -> BooleanArray {
    let named = plan
        .keys
        .iter()
        .chain(&plan.sequence)
        .map(|&place| &plan.columns[place]);
    let must: Vec<ArrayRef> = named
        .map(|field| column_or_null(rows, field.name(), field.data_type()))
        .collect();
    let takes = |row: usize| match kinds[row] {
        EventKind::Upsert | EventKind::Delete => must.iter().all(|column| column.is_valid(row)),
        // Truncates are of no key and come apart.
        EventKind::Truncate | EventKind::Skip | EventKind::Unknown => false,
    };
    BooleanArray::from_iter((0..rows.num_rows()).map(|row| Some(takes(row))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Request, Settings};
    use crate::silver::fold::FoldedRow;
    use arrow::array::{Int64Array, StringArray};
    use std::sync::Arc;

    /// User, name, city, operation, sequence.
    type Event = (
        i64,
        Option<&'static str>,
        Option<&'static str>,
        &'static str,
        i64,
    );

    /// Changes of four users, two of them delivered after newer ones.
    const EVENTS: [Event; 8] = [
        (124, Some("Raul"), Some("Oaxaca"), "I", 1),
        (123, Some("Isabel"), Some("Monterrey"), "I", 1),
        (125, Some("Mercedes"), Some("Tijuana"), "I", 2),
        (126, Some("Lily"), Some("Cancun"), "I", 2),
        (123, None, None, "D", 6),
        (125, Some("Mercedes"), Some("Guadalajara"), "U", 6),
        (125, Some("Mercedes"), Some("Mexicali"), "U", 5),
        (123, Some("Isabel"), Some("Chihuahua"), "U", 5),
    ];

    /// The events as rows of one file, in this order of arrival.
    fn arrived(order: &[usize; 8]) -> RecordBatch {
        let events = || order.iter().map(|&event| EVENTS[event]);
        let text = |values: Vec<Option<&str>>| Arc::new(StringArray::from(values)) as ArrayRef;
        let number = |values: Vec<i64>| Arc::new(Int64Array::from(values)) as ArrayRef;
        RecordBatch::try_from_iter_with_nullable([
            ("id", number(events().map(|event| event.0).collect()), true),
            ("name", text(events().map(|event| event.1).collect()), true),
            ("city", text(events().map(|event| event.2).collect()), true),
            (
                "op",
                text(events().map(|event| Some(event.3)).collect()),
                true,
            ),
            ("n", number(events().map(|event| event.4).collect()), true),
            (FILE_PATH, text(vec![Some("f"); 8]), true),
            (FILE_ROW, number((1..=8).collect()), true),
        ])
        .unwrap()
    }

    fn plan(schema: &SchemaRef) -> SilverPlan {
        let folder = tempfile::tempdir().unwrap();
        let text = "[pipeline.p]\ncheckpoint = \"c\"\nsource.path = \"in\"\nbronze.path = \"b\"\n\
            [pipeline.p.silver]\npath = \"s\"\nkeys = [\"id\"]\nsequence_by = [\"n\"]\n\
            except_column_list = [\"op\"]\n\
            operations = { column = \"op\", upsert = [\"I\", \"U\"], delete = [\"D\"] }\n";
        std::fs::write(folder.path().join("landfall.toml"), text).unwrap();
        let settings = Settings::load(&Request::in_folder(folder.path())).unwrap();
        let silver = settings.pipelines[0].silver.clone().unwrap();
        SilverPlan::resolve(&silver, None, schema).unwrap().unwrap()
    }

    /// Each row as the events that give its values, its start and its end.
    fn rows_of(pool: &EventPool, fold: &Fold<'_>, order: &[usize; 8]) -> Vec<[Option<usize>; 5]> {
        let mut rows: Vec<FoldedRow> = Vec::new();
        for group in 0..pool.groups.len() {
            fold.all(pool.events(group), &mut rows);
        }
        let event = |place: Option<u32>| place.map(|place| order[place as usize]);
        let is_history = fold.shape == Shape::History;
        let told = |row: &FoldedRow| {
            [
                event(row.source(0)),
                event(row.source(1)),
                event(row.source(2)),
                event(is_history.then_some(row.start)),
                event(row.end),
            ]
        };
        rows.iter().map(told).collect()
    }

    /// Calls `each` with every order of eight things (Heap's algorithm).
    fn permutations(count: usize, order: &mut [usize; 8], each: &mut dyn FnMut(&[usize; 8])) {
        if count == 1 {
            return each(order);
        }
        for place in 0..count {
            permutations(count - 1, order, each);
            let other = if count.is_multiple_of(2) { place } else { 0 };
            if place + 1 < count {
                order.swap(other, count - 1);
            }
        }
    }

    #[test]
    fn every_order_of_arrival_folds_to_the_same_rows() {
        let mut order = [0, 1, 2, 3, 4, 5, 6, 7];
        let schema = arrived(&order).schema();
        let plan = plan(&schema);
        let comparators = Comparators::new(&plan).unwrap();
        let (none, all) = (Truncates::none(&plan), [true; 4]);
        let tracked: [&[usize]; 2] = [&[1, 2], &[1]];
        let settings = [
            (Shape::Flagged, 0, false),
            (Shape::Bare, 0, true),
            (Shape::History, 0, false),
            (Shape::History, 1, true),
        ];
        let mut expected: Vec<Vec<[Option<usize>; 5]>> = Vec::new();
        let mut count = 0;
        permutations(8, &mut order, &mut |order| {
            let rows = vec![arrived(order)];
            let pool = EventPool::new(&plan, &comparators, &schema, rows, &none).unwrap();
            let not_sent = pool.not_sent(&plan, &pool.columns).unwrap();
            let told = settings.map(|(shape, columns, ignores)| {
                let mut fold = pool.fold(&plan, &pool.columns, &not_sent);
                (fold.shape, fold.tracked) = (shape, tracked[columns]);
                if ignores {
                    fold.values.ignore_null = &all;
                }
                rows_of(&pool, &fold, order)
            });
            if count == 0 {
                expected = told.to_vec();
            }
            assert_eq!(told[..], expected, "{order:?}");
            count += 1;
        });
        assert_eq!(count, 40_320);
        let rows: Vec<usize> = expected.iter().map(Vec::len).collect();
        assert_eq!(rows, [4, 3, 7, 4]);
    }
}
