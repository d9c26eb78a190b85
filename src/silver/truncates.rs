//! The truncates of a pipeline: sequences at which every key that has an event below is deleted.
//!
//! A snapshot is a truncate that spares the keys which it has: where the source is snapshots, each sequence is one.
//!
//! They are few and matter for ever, since an event below may come late. Silver keeps them in a table property, so that
//! an apply need not look for them in bronze; each commit that learns of one writes it there.

use crate::delta::Table;
use crate::error::{Error, Result};
use crate::events::{EventClassifier, EventKind};
use crate::parallel::in_parallel;
use crate::silver::plan::SilverPlan;
use crate::silver::pool::Comparators;
use crate::silver::refold::event_schema;
use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt32Array, new_null_array};
use arrow::compute::{concat, concat_batches, filter_record_batch, take_record_batch};
use arrow::datatypes::{Schema, SchemaRef};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use std::io::Cursor;
use std::sync::Arc;

/// The table property that keeps them, one JSON object a line.
pub(super) const PROPERTY: &str = "landfall.truncates";

/// Sequences of truncates, ascending, each once.
#[derive(Clone, Debug)]
pub struct Truncates {
    /// The sequence columns.
    sequences: RecordBatch,
    /// So many of the first ones are in the rows of silver already.
    known: usize,
}

impl PartialEq for Truncates {
    fn eq(&self, other: &Truncates) -> bool {
        self.sequences == other.sequences
    }
}

impl Truncates {
    /// There are none.
    pub fn none(plan: &SilverPlan) -> Truncates {
        Truncates {
            sequences: RecordBatch::new_empty(schema(plan)),
            known: 0,
        }
    }

    /// These, of which silver knows `known`. `None` where the new ones do not all come after those.
    pub fn after(mut self, known: &Truncates) -> Option<Truncates> {
        let count = known.len();
        let begins_alike = count <= self.len() && self.sequences.slice(0, count) == known.sequences;
        self.known = count;
        begins_alike.then_some(self)
    }

    /// That the first of these comes before the last of `known`, in words.
    pub fn first_before(
        &self,
        known: &Truncates,
        comparators: &Comparators,
    ) -> Result<Option<String>> {
        if self.is_empty() || known.is_empty() {
            return Ok(None);
        }
        let first = self.sequences.slice(0, 1);
        let last = known.sequences.slice(known.len() - 1, 1);
        let rows = [&first, &last].map(|row| comparators.sequence.rows(row.columns()));
        let [first_row, last_row] = rows;
        if first_row?.row(0) >= last_row?.row(0) {
            return Ok(None);
        }
        let (first, last) = (shown(&first)?, shown(&last)?);
        Ok(Some(format!(
            "snapshot {first} comes after the newer snapshot {last} was loaded"
        )))
    }

    /// How many of the first ones are in the rows of silver already.
    pub fn known(&self) -> usize {
        self.known
    }

    /// Whether there are others.
    pub fn has_new(&self) -> bool {
        self.known < self.len()
    }

    /// The most significant sequence column of the first new one.
    pub fn first_new(&self) -> ArrayRef {
        self.sequences.column(0).slice(self.known, 1)
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.sequences.num_rows()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The truncates among rows of bronze, all of schema `rows_schema`.
    pub fn among<'a>(
        plan: &SilverPlan,
        comparators: &Comparators,
        rows_schema: &SchemaRef,
        rows: impl IntoIterator<Item = &'a RecordBatch>,
    ) -> Result<Truncates> {
        if !plan.has_truncates() {
            return Ok(Truncates::none(plan));
        }
        let classifier = EventClassifier::new(&plan.rules, rows_schema)?;
        let mut found = Vec::new();
        for rows in rows {
            let columns = plan.sequence_columns(rows);
            let is_valid = |row: usize| columns.iter().all(|column| column.is_valid(row));
            let is_one: Box<dyn Fn(usize) -> bool> = if plan.snapshots {
                let sequences = comparators.sequence.rows(&columns)?;
                // The rows of a snapshot stand together, so most are like the one before.
                Box::new(move |row| row == 0 || sequences.row(row) != sequences.row(row - 1))
            } else {
                let kinds = classifier.classify(rows)?;
                Box::new(move |row| kinds[row] == EventKind::Truncate)
            };
            let is_one = |row: usize| is_valid(row) && is_one(row);
            let taken: BooleanArray = (0..rows.num_rows()).map(|row| Some(is_one(row))).collect();
            if taken.true_count() > 0 {
                let sequences = RecordBatch::try_new(schema(plan), columns)?;
                found.push(filter_record_batch(&sequences, &taken)?);
            }
        }
        Truncates::sorted(plan, comparators, &found)
    }

    /// All truncates that bronze holds.
    pub fn in_bronze(
        bronze: &Table,
        plan: &SilverPlan,
        comparators: &Comparators,
    ) -> Result<Truncates> {
        let mut all = Truncates::none(plan);
        if !plan.has_truncates() {
            return Ok(all);
        }
        let rows_schema = event_schema(bronze);
        let names = rows_schema
            .fields()
            .iter()
            .map(|field| field.name().clone());
        let names: Vec<String> = names.collect();
        let files: Vec<_> = bronze.files().collect();
        let found = in_parallel(files.len(), |file| {
            let mut found = Truncates::none(plan);
            for scanned in bronze.scan(files[file], &names)? {
                let rows = [scanned?.rows];
                let more = Truncates::among(plan, comparators, &rows_schema, &rows)?;
                found = found.and(plan, comparators, &more)?;
            }
            Ok(found)
        })?;
        for found in &found {
            all = all.and(plan, comparators, found)?;
        }
        Ok(all)
    }

    /// Both together.
    pub fn and(
        &self,
        plan: &SilverPlan,
        comparators: &Comparators,
        other: &Truncates,
    ) -> Result<Truncates> {
        if other.is_empty() {
            return Ok(self.clone());
        }
        let both = [self.sequences.clone(), other.sequences.clone()];
        Truncates::sorted(plan, comparators, &both)
    }

    /// Column `place` of the plan with the truncates behind `events`: they have a sequence and nothing else.
    pub fn behind(&self, plan: &SilverPlan, place: usize, events: ArrayRef) -> Result<ArrayRef> {
        if self.is_empty() {
            return Ok(events);
        }
        let own = match plan.sequence.iter().position(|other| *other == place) {
            Some(column) => self.sequences.column(column).clone(),
            None => new_null_array(events.data_type(), self.len()),
        };
        Ok(concat(&[events.as_ref(), own.as_ref()])?)
    }

    /// The sequence columns, ascending.
    pub fn sequences(&self) -> &RecordBatch {
        &self.sequences
    }

    /// As the text of the table property.
    pub fn to_text(&self) -> Result<String> {
        let mut writer = arrow::json::LineDelimitedWriter::new(Vec::new());
        writer.write(&self.sequences)?;
        writer.finish()?;
        let text = String::from_utf8(writer.into_inner());
        text.map_err(|error| Error::bug(format!("truncates are no text: {error}")))
    }

    /// What [`Truncates::to_text`] wrote.
    pub fn of_text(plan: &SilverPlan, comparators: &Comparators, text: &str) -> Result<Truncates> {
        let wrong = |error: arrow::error::ArrowError| {
            Error::disagreement(format!(
                "property {PROPERTY} of silver does not read: {error}"
            ))
            .hint("run: landfall rebuild PIPELINE silver")
        };
        let reader = arrow::json::ReaderBuilder::new(schema(plan))
            .build(Cursor::new(text))
            .map_err(wrong)?;
        let read: Vec<RecordBatch> = reader.collect::<Result<_, _>>().map_err(wrong)?;
        Truncates::sorted(plan, comparators, &read)
    }

    fn sorted(
        plan: &SilverPlan,
        comparators: &Comparators,
        found: &[RecordBatch],
    ) -> Result<Truncates> {
        let all = concat_batches(&schema(plan), found)?;
        let rows = comparators.sequence.rows(all.columns())?;
        let mut order: Vec<u32> = (0..all.num_rows() as u32).collect();
        order.sort_unstable_by(|&left, &right| {
            rows.row(left as usize).cmp(&rows.row(right as usize))
        });
        order.dedup_by(|left, right| rows.row(*left as usize) == rows.row(*right as usize));
        let sequences = take_record_batch(&all, &UInt32Array::from(order))?;
        Ok(Truncates {
            known: sequences.num_rows(),
            sequences,
        })
    }
}

fn shown(sequence: &RecordBatch) -> Result<String> {
    let options = FormatOptions::default().with_null("NULL");
    let text = |column: &ArrayRef| -> Result<String> {
        let formatter = ArrayFormatter::try_new(column.as_ref(), &options)?;
        Ok(formatter.value(0).to_string())
    };
    let texts = sequence.columns().iter().map(text);
    Ok(texts.collect::<Result<Vec<_>>>()?.join(", "))
}

/// The sequence columns as they are named in bronze.
fn schema(plan: &SilverPlan) -> SchemaRef {
    let field = |&place: &usize| plan.columns[place].clone();
    let fields: Vec<_> = plan.sequence.iter().map(field).collect();
    Arc::new(Schema::new(fields))
}
