//! How each column of a data file is encoded, told by its first rows.
//!
//! A dictionary pays where values repeat; elsewhere it is built in vain and given up. Whole numbers and times that do not
//! repeat are close to one another, so their differences are packed; and so are those of numbers that are all alike, which
//! costs less than to look each up.

use crate::error::Result;
use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, SortField};
use parquet::basic::Encoding;
use parquet::file::properties::WriterPropertiesBuilder;
use parquet::schema::types::ColumnPath;
use std::collections::HashSet;

/// So many rows are looked at, spread over the first batch.
const SAMPLE_ROWS: usize = 1_024;
/// Fewer rows tell nothing.
const SAMPLE_ROWS_MIN: usize = 64;
/// A dictionary pays where no more than one of so many values is new.
const DISTINCT_SHARE: usize = 4;

/// Settings for the top-level columns of `rows` that are not nested; the others stay as they are.
pub(super) fn by_column(
    mut properties: WriterPropertiesBuilder,
    rows: &RecordBatch,
) -> Result<WriterPropertiesBuilder> {
    if rows.num_rows() < SAMPLE_ROWS_MIN {
        return Ok(properties);
    }
    let step = rows.num_rows().div_ceil(SAMPLE_ROWS);
    let places: UInt32Array = (0..rows.num_rows() as u32).step_by(step).collect();
    for (field, column) in rows.schema().fields().iter().zip(rows.columns()) {
        if field.data_type().is_nested() {
            continue;
        }
        let distinct = distinct(&take(column, &places, None)?)?;
        let is_constant = distinct == 1 && is_whole_number(field.data_type());
        if distinct * DISTINCT_SHARE <= places.len() && !is_constant {
            continue;
        }
        let path = ColumnPath::from(vec![field.name().clone()]);
        properties = properties.set_column_dictionary_enabled(path.clone(), false);
        if is_whole_number(field.data_type()) {
            properties = properties.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
        }
    }
    Ok(properties)
}

/// How many values there are, NULL among them.
fn distinct(sample: &ArrayRef) -> Result<usize> {
    let converter = RowConverter::new(vec![SortField::new(sample.data_type().clone())])?;
    let rows = converter.convert_columns(std::slice::from_ref(sample))?;
    let distinct: HashSet<&[u8]> = rows.iter().map(|row| row.data()).collect();
    Ok(distinct.len())
}

/// Types that Parquet stores as INT32 or INT64.
fn is_whole_number(data_type: &DataType) -> bool {
    match data_type {
        DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Date32
        | DataType::Timestamp(_, _) => true,
        DataType::Decimal128(digits, _) => *digits <= 18,
        _ => false,
    }
}
