//! How each column of a data file is encoded, told by its first rows.
//!
//! A dictionary pays where values repeat; elsewhere it is built in vain and given up. Whole numbers and times that do not
//! repeat are close to one another, so their differences are packed; and so are those of numbers that are all alike, which
//! costs less than to look each up.

use crate::error::Result;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
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

/// Some rows, spread over `rows`; `None` of too few, and of no columns, which tell nothing.
pub(super) fn sample(rows: &RecordBatch) -> Result<Option<RecordBatch>> {
    if rows.num_rows() < SAMPLE_ROWS_MIN || rows.num_columns() == 0 {
        return Ok(None);
    }
    let step = rows.num_rows().div_ceil(SAMPLE_ROWS);
    let places: UInt32Array = (0..rows.num_rows() as u32).step_by(step).collect();
    Ok(Some(take_record_batch(rows, &places)?))
}

/// Settings for the columns of `rows` and the fields of their structs; those in lists and maps stay as they are.
pub(super) fn by_column(
    mut properties: WriterPropertiesBuilder,
    rows: &RecordBatch,
) -> Result<WriterPropertiesBuilder> {
    let Some(sample) = sample(rows)? else {
        return Ok(properties);
    };
    for (field, column) in rows.schema().fields().iter().zip(sample.columns()) {
        properties = by_leaf(properties, vec![field.name().clone()], column)?;
    }
    Ok(properties)
}

/// Settings for the values at `path`, of which `sample` has some.
fn by_leaf(
    mut properties: WriterPropertiesBuilder,
    path: Vec<String>,
    sample: &ArrayRef,
) -> Result<WriterPropertiesBuilder> {
    if let Some(parts) = sample.as_struct_opt() {
        for (field, part) in parts.fields().iter().zip(parts.columns()) {
            let path = [path.as_slice(), &[field.name().clone()]].concat();
            properties = by_leaf(properties, path, part)?;
        }
        return Ok(properties);
    }
    if sample.data_type().is_nested() {
        return Ok(properties);
    }
    if repeats(sample)? {
        return Ok(properties);
    }
    let path = ColumnPath::from(path);
    properties = properties.set_column_dictionary_enabled(path.clone(), false);
    if is_whole_number(sample.data_type()) {
        properties = properties.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    Ok(properties)
}

/// Whether a dictionary pays for values like those of `sample`.
pub(super) fn repeats(sample: &ArrayRef) -> Result<bool> {
    let distinct = distinct(sample)?;
    let is_constant = distinct == 1 && is_whole_number(sample.data_type());
    Ok(distinct * DISTINCT_SHARE <= sample.len() && !is_constant)
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

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int64Array, StringArray, StructArray};
    use arrow::datatypes::Field;
    use parquet::file::properties::WriterProperties;
    use std::sync::Arc;

    fn columns(rows: i64) -> [(&'static str, ArrayRef); 3] {
        let numbers = (0..rows).map(|row| row * 7_919).collect::<Int64Array>();
        let words = (0..rows).map(|row| Some(["new", "paid"][(row % 2) as usize]));
        let texts = (0..rows).map(|row| Some(format!("text {row}")));
        [
            ("number", Arc::new(numbers)),
            ("word", Arc::new(words.collect::<StringArray>())),
            ("text", Arc::new(texts.collect::<StringArray>())),
        ]
    }

    #[test]
    fn fields_of_structs_are_encoded_like_columns() {
        let part = |(name, column): (&str, ArrayRef)| {
            let field = Field::new(name, column.data_type().clone(), true);
            (Arc::new(field), column)
        };
        let inner = StructArray::from(columns(1_000).map(part).to_vec());
        let outer = StructArray::from(vec![part(("inner", Arc::new(inner)))]);
        let mut all = columns(1_000).to_vec();
        all.push(("outer", Arc::new(outer)));
        let rows = RecordBatch::try_from_iter(all).unwrap();
        let properties = by_column(WriterProperties::builder(), &rows)
            .unwrap()
            .build();
        for prefix in [&[][..], &["outer", "inner"]] {
            let told = |name: &str| {
                let path: Vec<String> = prefix
                    .iter()
                    .chain(&[name])
                    .map(|part| part.to_string())
                    .collect();
                let path = ColumnPath::from(path);
                (
                    properties.dictionary_enabled(&path),
                    properties.encoding(&path),
                )
            };
            assert_eq!(told("number"), (false, Some(Encoding::DELTA_BINARY_PACKED)));
            assert_eq!(told("word"), (true, None));
            assert_eq!(told("text"), (false, None));
        }
    }

    #[test]
    fn numbers_that_are_all_alike_need_no_dictionary() {
        let alike: ArrayRef = Arc::new(Int64Array::from(vec![5; 200]));
        let rows = RecordBatch::try_from_iter([("n", alike)]).unwrap();
        let properties = by_column(WriterProperties::builder(), &rows)
            .unwrap()
            .build();
        assert!(!properties.dictionary_enabled(&ColumnPath::from("n")));
    }
}
