//! The values of the columns that may have a role, record by record.
//!
//! Values are numbered, so that comparing them costs nothing; a number says nothing about their order.

use super::columns::decode_columns;
use super::sample::Sample;
use super::words;
use crate::error::Result;
use crate::schema::TableSchema;
use crate::settings::SourceSettings;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef};
use std::collections::HashMap;
use xxhash_rust::xxh3::xxh3_64;

/// So many columns are looked at.
const COLUMNS_MAX: usize = 64;

/// The records of a sample.
#[derive(Debug, Default)]
pub(super) struct Records {
    pub(super) columns: Vec<Column>,
    /// A hash of all of each record; a repeated record has the same.
    pub(super) hashes: Vec<u64>,
}

/// One column.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) data_type: DataType,
    /// The place of each record's value in `texts`; `None` where it is NULL.
    pub(super) values: Vec<Option<u32>>,
    /// The distinct values.
    pub(super) texts: Vec<String>,
}

impl Column {
    /// How many records have no value.
    pub(super) fn nulls(&self) -> usize {
        self.values.iter().filter(|value| value.is_none()).count()
    }

    /// The value of a record, where it is a whole number or a time.
    pub(super) fn number(&self, record: usize) -> Option<i128> {
        self.text(record)?.parse().ok()
    }

    /// The value of a record; times are numbers.
    pub(super) fn text(&self, record: usize) -> Option<&str> {
        let place = self.values[record]?;
        Some(&self.texts[place as usize])
    }
}

/// Reads the columns that may have a role, those with a telling name first.
pub(super) fn read(
    sample: &Sample,
    settings: &SourceSettings,
    fields: &[FieldRef],
    table: &str,
) -> Result<Records> {
    let mut candidates: Vec<&FieldRef> = fields
        .iter()
        .filter(|field| is_plain(field.data_type()))
        .collect();
    candidates.sort_by_key(|field| !is_telling(field.name(), table));
    candidates.truncate(COLUMNS_MAX);
    let chosen = fields.iter().filter(|field| candidates.contains(field));
    let chosen = chosen.map(|field| field.as_ref().clone()).collect();
    let schema = TableSchema::new(chosen)?;
    let mut records = Growing::new(&schema);
    for decoded in decode_columns(sample, settings, &schema) {
        for (place, numbers) in records.columns.iter_mut().enumerate() {
            let texts = texts(decoded.rows.column(place))?;
            numbers.1.add(&mut numbers.0, &texts);
        }
        let rows = 0..decoded.positions.len();
        records
            .hashes
            .extend(rows.map(|row| xxh3_64(decoded.raw(row).as_bytes())));
    }
    Ok(records.finish())
}

fn texts(values: &ArrayRef) -> Result<ArrayRef> {
    let numbers = match values.data_type() {
        DataType::Timestamp(..) => &cast(values, &DataType::Int64)?,
        _ => values,
    };
    Ok(cast(numbers, &DataType::Utf8)?)
}

fn is_plain(data_type: &DataType) -> bool {
    data_type.is_integer()
        || matches!(
            data_type,
            DataType::Utf8
                | DataType::Boolean
                | DataType::Date32
                | DataType::Timestamp(..)
                | DataType::Decimal128(..)
        )
}

fn is_telling(name: &str, table: &str) -> bool {
    words::sequence_rank(name).is_some()
        || words::operation_name(name).is_some()
        || words::is_delete_flag(name)
        || words::key_score(name, table) <= words::KEY_SCORE_MAX
}

/// Records that still grow.
struct Growing {
    columns: Vec<(Column, Numbers)>,
    hashes: Vec<u64>,
}

/// The number of each value.
#[derive(Default)]
struct Numbers(HashMap<String, u32>);

impl Growing {
    fn new(schema: &TableSchema) -> Growing {
        let column = |field: &FieldRef| Column {
            name: field.name().clone(),
            data_type: field.data_type().clone(),
            values: Vec::new(),
            texts: Vec::new(),
        };
        let fields = schema.columns.fields().iter();
        Growing {
            columns: fields
                .map(|field| (column(field), Numbers::default()))
                .collect(),
            hashes: Vec::new(),
        }
    }

    fn finish(self) -> Records {
        Records {
            columns: self.columns.into_iter().map(|(column, _)| column).collect(),
            hashes: self.hashes,
        }
    }
}

impl Numbers {
    fn add(&mut self, column: &mut Column, texts: &dyn Array) {
        for text in texts.as_string::<i32>() {
            let number = text.map(|text| match self.0.get(text) {
                Some(number) => *number,
                None => {
                    let number =
                        u32::try_from(column.texts.len()).expect("a sample has few records");
                    column.texts.push(text.to_string());
                    self.0.insert(text.to_string(), number);
                    number
                }
            });
            column.values.push(number);
        }
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;

    /// Records from rows of texts, `-` for NULL; types are told by the names' DDL.
    pub(in super::super) fn records(ddl: &str, rows: &[&[&str]]) -> Records {
        let schema = TableSchema::from_hints(ddl).unwrap();
        let mut growing = Growing::new(&schema);
        for row in rows {
            for (place, (column, numbers)) in growing.columns.iter_mut().enumerate() {
                let value = (row[place] != "-").then_some(row[place]);
                numbers.add(column, &arrow::array::StringArray::from(vec![value]));
            }
            growing.hashes.push(xxh3_64(row.join("\n").as_bytes()));
        }
        growing.finish()
    }
}
