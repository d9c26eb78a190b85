//! Fills columns of rows from their rescued data, without a look at any other row.

use super::original::{Found, OriginalReader};
use super::tally::{Place, Tally};
use crate::change::{FILE_PATH, FILE_ROW, RESCUED_DATA, RescuedValue};
use crate::decode::{
    Member, Token, format_by_name, json_text, members, one_value, rescued_column, shorten,
    text_type,
};
use crate::error::{Error, Result};
use crate::protocol::with_own_columns;
use crate::schema::{Lookup, TableSchema, check_column_name};
use crate::settings::{Format, PipelineSettings, SourceSettings};
use crate::silver::plan::is_own_column;
use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch, StringArray, new_null_array,
};
use arrow::compute::kernels::zip::zip;
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type, Schema, SchemaRef};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Why a value stays: the field has no column.
const NO_COLUMN: &str = "is of no column";
/// Why a value stays: its column has one.
const IS_FILLED: &str = "stands beside a value in its column";
/// Why a value stays although its column holds the rest of it.
const LACKS_FIELDS: &str = "has fields that its column lacks";
/// Why a value stays.
const EMPTY_PARTITION: &str =
    "is an empty text, which cannot be told from NULL in a partition column";

/// Knows the columns that values may move to.
pub(super) struct Filler<'a> {
    schema: TableSchema,
    /// Columns that the loader fills by the settings.
    own: Vec<String>,
    partition_by: &'a [String],
    source: &'a SourceSettings,
}

/// Rows with what was rescued of them.
struct Rows<'a> {
    batch: &'a RecordBatch,
    rescued: &'a StringArray,
    paths: &'a StringArray,
    numbers: &'a Int64Array,
    /// The fields of each row's rescued data; none where it has none that can be read.
    fields: Vec<Vec<Member<'a>>>,
    found: Found,
}

/// The values that each row has for one column.
pub(super) type Values<'a> = Vec<Option<(Format, Token<'a>)>>;

/// What changes in each row.
struct Moves {
    /// The columns whose fields leave the rescued data.
    gone: Vec<Vec<usize>>,
    changed: Vec<bool>,
}

impl<'a> Filler<'a> {
    /// For bronze with all columns of `schema`.
    pub(super) fn new(schema: SchemaRef, settings: &'a PipelineSettings) -> Self {
        let none = TableSchema {
            columns: Schema::empty().into(),
        };
        let own = with_own_columns(none, settings);
        let own = own.columns.fields().iter().map(|field| field.name());
        Filler {
            schema: TableSchema { columns: schema },
            own: own.cloned().collect(),
            partition_by: &settings.bronze.partition_by,
            source: &settings.source,
        }
    }

    /// The columns that values of the rescued data, the one column of `rescued`, may move to.
    pub(super) fn named_in(&self, rescued: &RecordBatch) -> Result<BTreeSet<String>> {
        let texts = texts(rescued, RESCUED_DATA)?;
        let mut named = BTreeSet::new();
        for text in texts.iter().flatten() {
            for (name, _) in fields_of(text).unwrap_or_default() {
                if !named.contains(name.as_ref()) && self.column_for(&name).is_ok() {
                    named.insert(name.into_owned());
                }
            }
        }
        Ok(named)
    }

    /// All columns of the rows, filled.
    pub(super) fn filled(
        &self,
        rows: &RecordBatch,
        originals: &mut OriginalReader<'_>,
    ) -> Result<RecordBatch> {
        let mut filled = self.fill_columns(rows, originals, &mut Tally::default())?;
        let fields = self.schema.columns.fields();
        let column = |(index, field): (usize, &FieldRef)| match filled.remove(&index) {
            Some(column) => column,
            None => column_or_null(rows, field),
        };
        let columns = fields.iter().enumerate().map(column).collect();
        Ok(RecordBatch::try_new(self.schema.columns.clone(), columns)?)
    }

    /// Counts what becomes of the rescued data of rows, which have the columns that it names.
    pub(super) fn count(
        &self,
        rows: &RecordBatch,
        originals: &mut OriginalReader<'_>,
        tally: &mut Tally,
    ) -> Result<()> {
        self.fill_columns(rows, originals, tally).map(|_| ())
    }

    /// The columns that change, by their place, and what becomes of each value.
    fn fill_columns(
        &self,
        batch: &RecordBatch,
        originals: &mut OriginalReader<'_>,
        tally: &mut Tally,
    ) -> Result<BTreeMap<usize, ArrayRef>> {
        let mut rows = Rows::of(batch, tally)?;
        let with_fields = rows.fields.iter().enumerate().map(|(row, fields)| {
            let place = rows.place(row);
            let has_column = || fields.iter().any(|(name, _)| self.column_for(name).is_ok());
            has_column().then_some((place.file_path, place.file_row))
        });
        rows.found = originals.find(with_fields);
        let count = batch.num_rows();
        let mut moves = Moves {
            gone: vec![Vec::new(); count],
            changed: vec![false; count],
        };
        let mut filled = BTreeMap::new();
        for (column, values) in self.values(&rows, tally) {
            let array = self.fill_column(column, &values, &rows, &mut moves, tally)?;
            filled.extend(array.map(|array| (column, array)));
        }
        let changed = moves.changed.iter().filter(|changed| **changed);
        tally.rows += changed.count() as u64;
        if moves.gone.iter().any(|gone| !gone.is_empty()) {
            let text = |row: usize| match moves.gone[row].as_slice() {
                [] => rows
                    .rescued
                    .is_valid(row)
                    .then(|| rows.rescued.value(row).into()),
                gone => self.rest_of(&rows.fields[row], gone),
            };
            let texts: StringArray = (0..count).map(text).collect::<Vec<Option<String>>>().into();
            filled.insert(self.schema.columns.index_of(RESCUED_DATA)?, Arc::new(texts));
        }
        Ok(filled)
    }

    /// The values of each column that takes some; the others stay.
    fn values<'r>(&self, rows: &Rows<'r>, tally: &mut Tally) -> BTreeMap<usize, Values<'r>> {
        let mut values: BTreeMap<usize, Values<'r>> = BTreeMap::new();
        for (row, fields) in rows.fields.iter().enumerate() {
            let place = rows.place(row);
            let format = format_by_name(place.file_path, self.source);
            for (name, token) in fields.iter().filter(|(name, _)| name != FILE_PATH) {
                match self.column_for(name) {
                    Ok(column) => {
                        let none = || vec![None; rows.fields.len()];
                        values.entry(column).or_insert_with(none)[row] = Some((format, *token));
                    }
                    Err(why) => {
                        let fitting = (why == NO_COLUMN).then(|| fitting_type(format, token));
                        tally.leave(name, &why, &shown(token), fitting, place);
                    }
                }
            }
        }
        values
    }

    /// One column with the values that fit where it is NULL; nothing where it gains none.
    fn fill_column(
        &self,
        column: usize,
        values: &Values<'_>,
        rows: &Rows<'_>,
        moves: &mut Moves,
        tally: &mut Tally,
    ) -> Result<Option<ArrayRef>> {
        let field = &self.schema.columns.fields()[column];
        let name = field.name();
        let old = column_or_null(rows.batch, field);
        let (new, mut became) = rescued_column(field.data_type(), values, self.source)?;
        let new = rows.found.correct(name, values, new, &mut became)?;
        let mut gains = vec![false; values.len()];
        for (row, (value, became)) in values.iter().zip(became).enumerate() {
            let (Some((_, token)), Some(became)) = (value, became) else {
                continue;
            };
            let is_free = old.is_null(row);
            let why = match became {
                RescuedValue::Unfit(why) => Some(why),
                RescuedValue::FitsInPart => Some(LACKS_FIELDS.into()),
                RescuedValue::Fits if !is_free => Some(IS_FILLED.into()),
                RescuedValue::Fits if self.is_empty_partition(name, &new, row) => {
                    Some(EMPTY_PARTITION.into())
                }
                RescuedValue::Fits => None,
            };
            match &why {
                Some(why) => tally.leave(name, why, &shown(token), None, rows.place(row)),
                None => moves.gone[row].push(column),
            }
            let is_held = why.is_none() || why.as_deref() == Some(LACKS_FIELDS);
            gains[row] = is_held && is_free && new.is_valid(row);
            moves.changed[row] |= gains[row] || why.is_none();
            if gains[row] {
                tally.gain(name, field.data_type(), rows.place(row));
            }
        }
        match gains.contains(&true) {
            true => Ok(Some(zip(&BooleanArray::from(gains), &new, &old)?)),
            false => Ok(None),
        }
    }

    fn is_empty_partition(&self, name: &str, column: &ArrayRef, row: usize) -> bool {
        let is_partition = || self.partition_by.iter().any(|by| by == name);
        let texts = column.as_string_opt::<i32>();
        texts.is_some_and(|texts| {
            texts.is_valid(row) && texts.value(row).is_empty() && is_partition()
        })
    }

    /// The column that takes the values of a field, or why none does.
    fn column_for(&self, name: &str) -> Result<usize, String> {
        match self.schema.lookup(name) {
            Lookup::Exact(_) if is_own_column(name) || self.own.iter().any(|own| own == name) => {
                Err("has the name of a column that the loader fills".into())
            }
            Lookup::Exact(column) => Ok(column),
            Lookup::OtherCase(column) => {
                let known = self.schema.columns.field(column).name();
                Err(format!(
                    "is of no column, and the name differs from column {known} in upper and lower case only"
                ))
            }
            Lookup::Absent => Err(match check_column_name(name) {
                Ok(()) => NO_COLUMN.into(),
                Err(error) => format!("can have no column: {}", error.message()),
            }),
        }
    }

    /// The rescued data without the fields of these columns; nothing where only the file is left.
    fn rest_of(&self, fields: &[Member<'_>], gone: &[usize]) -> Option<String> {
        let stays = |name: &str| {
            !self
                .column_for(name)
                .is_ok_and(|column| gone.contains(&column))
        };
        let rest: Vec<_> = fields.iter().filter(|(name, _)| stays(name)).collect();
        if rest.iter().all(|(name, _)| name == FILE_PATH) {
            return None;
        }
        let text = |(name, token): &&Member<'_>| format!("{}:{}", json_text(name), token.as_json());
        let texts: Vec<String> = rest.iter().map(text).collect();
        Some(format!("{{{}}}", texts.join(",")))
    }
}

impl<'a> Rows<'a> {
    fn of(batch: &'a RecordBatch, tally: &mut Tally) -> Result<Self> {
        let numbers = batch
            .column_by_name(FILE_ROW)
            .and_then(|column| column.as_primitive_opt::<Int64Type>());
        let mut rows = Rows {
            batch,
            rescued: texts(batch, RESCUED_DATA)?,
            paths: texts(batch, FILE_PATH)?,
            numbers: numbers.ok_or_else(|| lacks(FILE_ROW))?,
            fields: Vec::with_capacity(batch.num_rows()),
            found: Found::default(),
        };
        tally.rescued_rows += (batch.num_rows() - rows.rescued.null_count()) as u64;
        for row in 0..batch.num_rows() {
            let text = rows.rescued.is_valid(row).then(|| rows.rescued.value(row));
            let fields = text.and_then(fields_of);
            if let (Some(text), None) = (text, &fields) {
                let why = "is no JSON object";
                tally.leave(RESCUED_DATA, why, &shorten(text), None, rows.place(row));
            }
            rows.fields.push(fields.unwrap_or_default());
        }
        Ok(rows)
    }

    fn place(&self, row: usize) -> Place<'a> {
        Place {
            file_path: self.paths.value(row),
            file_row: self.numbers.value(row),
        }
    }
}

/// The fields of rescued data; nothing where it is no JSON object.
pub(super) fn fields_of(text: &str) -> Option<Vec<Member<'_>>> {
    match one_value(text) {
        Ok(Token::Nested(object)) if object.starts_with('{') => members(object).ok(),
        Ok(_) | Err(_) => None,
    }
}

/// The type that a new column would get from this value.
fn fitting_type(format: Format, token: &Token<'_>) -> DataType {
    match token {
        Token::Bool(_) => DataType::Boolean,
        Token::Number(text) => text_type(text),
        Token::Text { .. } if format == Format::Csv => text_type(&token.text()),
        Token::Null | Token::Text { .. } | Token::Nested(_) => DataType::Utf8,
    }
}

fn shown(token: &Token<'_>) -> String {
    shorten(&token.text())
}

fn column_or_null(rows: &RecordBatch, field: &Field) -> ArrayRef {
    match rows.column_by_name(field.name()) {
        Some(column) => column.clone(),
        None => new_null_array(field.data_type(), rows.num_rows()),
    }
}

fn texts<'a>(rows: &'a RecordBatch, name: &str) -> Result<&'a StringArray> {
    let column = rows.column_by_name(name);
    let texts = column.and_then(|column| column.as_string_opt::<i32>());
    texts.ok_or_else(|| lacks(name))
}

fn lacks(name: &str) -> Error {
    Error::bug(format!("rows of bronze without {name}"))
}
