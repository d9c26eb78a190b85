//! Tells by bloom filters that a data file holds none of some keys, without a look at its rows.
//!
//! Files get filters of the columns that [`Table::set_bloom_columns`] names. A filter can only say no, so a file without
//! one, or of a type that is not compared here, may hold anything.

use super::state::DataFile;
use super::{Table, read};
use crate::error::{Error, Result};
use crate::file_bytes::FileBytes;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int32Type, Int64Type};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Type;
use parquet::bloom_filter::Sbbf;
use parquet::file::properties::WriterPropertiesBuilder;
use parquet::schema::types::ColumnPath;

/// One of so many values that a file lacks may pass its filter; about ten bits for each value that it holds.
pub(super) const FALSE_POSITIVES: f64 = 0.01;

/// So many keys pass some filter by chance alone, so that asking costs more than it saves.
const KEYS_MAX: usize = 200;

impl Table {
    /// Gives data files that are written from now on bloom filters of these columns, which are found by name without regard
    /// to case.
    pub fn set_bloom_columns(&mut self, columns: &[String]) {
        self.bloom_columns = columns.iter().map(|name| name.to_lowercase()).collect();
    }

    /// Whether `file` may hold a row with one of some keys: `keys` has one column of values for each of `names`.
    ///
    /// Deleted rows count as held. Fails when the file cannot be read.
    pub fn may_hold(&self, file: &DataFile, names: &[String], keys: &[ArrayRef]) -> Result<bool> {
        if keys.first().is_none_or(|column| column.len() > KEYS_MAX) {
            return Ok(true);
        }
        let (reader, _) = read::open(
            &self.root,
            file,
            &self.state.schema,
            &self.state.partition_by,
            names,
        )?;
        for group in 0..reader.metadata().num_row_groups() {
            if group_may_hold(&reader, group, names, keys)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Adds filters of `columns`, in lower case, to the row groups of files of `names`, which have so many rows at most.
pub(super) fn with_filters<'a>(
    mut properties: WriterPropertiesBuilder,
    columns: &[String],
    rows_max: usize,
    names: impl Iterator<Item = &'a String>,
) -> WriterPropertiesBuilder {
    for name in names.filter(|name| columns.contains(&name.to_lowercase())) {
        let path = || ColumnPath::from(vec![name.clone()]);
        properties = properties
            .set_column_bloom_filter_enabled(path(), true)
            .set_column_bloom_filter_fpp(path(), FALSE_POSITIVES)
            .set_column_bloom_filter_max_ndv(path(), rows_max as u64);
    }
    properties
}

fn group_may_hold(
    reader: &ParquetRecordBatchReaderBuilder<FileBytes>,
    group: usize,
    names: &[String],
    keys: &[ArrayRef],
) -> Result<bool> {
    let count = keys.first().map_or(0, |column| column.len());
    let mut may_hold = vec![true; count];
    for (name, values) in names.iter().zip(keys) {
        let columns = reader.metadata().row_group(group).columns();
        let is_it = |path: &ColumnPath| matches!(path.parts(), [only] if only == name);
        let Some(place) = columns
            .iter()
            .position(|column| is_it(column.column_path()))
        else {
            continue;
        };
        let filter = reader
            .get_row_group_column_bloom_filter(group, place)
            .map_err(|error| Error::disagreement(format!("bloom filter of {name}: {error}")))?;
        let Some(filter) = filter else { continue };
        let physical = columns[place].column_type();
        for (key, may) in may_hold.iter_mut().enumerate().filter(|(_, may)| **may) {
            *may = passes(&filter, physical, values, key);
        }
    }
    Ok(may_hold.contains(&true))
}

/// Whether the filter lets a value pass. NULL is in no filter, and is no key.
fn passes(filter: &Sbbf, physical: Type, values: &ArrayRef, row: usize) -> bool {
    if values.is_null(row) {
        return false;
    }
    let value = values.slice(row, 1);
    match (values.data_type(), physical) {
        (DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Date32, Type::INT32) => {
            let number = cast(&value, &DataType::Int32);
            number.map_or(true, |number| {
                filter.check(&number.as_primitive::<Int32Type>().value(0))
            })
        }
        (DataType::Int64 | DataType::Timestamp(_, _), Type::INT64) => {
            let number = cast(&value, &DataType::Int64);
            number.map_or(true, |number| {
                filter.check(&number.as_primitive::<Int64Type>().value(0))
            })
        }
        (DataType::Utf8, Type::BYTE_ARRAY) => filter.check(value.as_string::<i32>().value(0)),
        (DataType::Binary, Type::BYTE_ARRAY) => filter.check(value.as_binary::<i32>().value(0)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delta::{CommitOutcome, Operation, TableCommit, TableSpec};
    use arrow::array::{Int64Array, RecordBatch, StringArray};
    use arrow::datatypes::{Field, Schema, TimeUnit};
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::sync::Arc;

    /// Every third number below 30,000.
    fn held() -> Int64Array {
        (0..10_000).map(|number| Some(number * 3)).collect()
    }

    fn of_type(numbers: Int64Array, data_type: &DataType) -> ArrayRef {
        match data_type {
            DataType::Utf8 => {
                let texts = numbers
                    .iter()
                    .map(|number| number.map(|number| format!("key {number}")));
                Arc::new(texts.collect::<StringArray>())
            }
            DataType::Binary => {
                let texts = of_type(numbers, &DataType::Utf8);
                cast(&texts, &DataType::Binary).unwrap()
            }
            _ => cast(&numbers, data_type).unwrap(),
        }
    }

    async fn table_of(root: &Path, data_type: &DataType, filtered: &[String]) -> Table {
        let schema = Schema::new(vec![Field::new("Key", data_type.clone(), true)]);
        let spec = TableSpec {
            schema: Arc::new(schema),
            partition_by: Vec::new(),
            change_data_feed: false,
            deletion_vectors: false,
            name: None,
            description: None,
            properties: BTreeMap::new(),
        };
        let mut table = Table::create(root, &spec).await.unwrap();
        table.set_bloom_columns(filtered);
        let rows = RecordBatch::try_new(table.schema(), vec![of_type(held(), data_type)]).unwrap();
        let mut commit = TableCommit::new(Operation::Write);
        commit.adds = table.write_rows(table.schema(), &[rows]).await.unwrap();
        let outcome = table.commit(commit).await.unwrap();
        assert!(matches!(outcome, CommitOutcome::Committed(_)));
        table
    }

    /// How many of 100 keys the file may hold, each asked alone: those it holds, and those it lacks.
    async fn passing(data_type: &DataType, filtered: &[String]) -> (usize, usize) {
        let folder = tempfile::tempdir().unwrap();
        let table = table_of(folder.path(), data_type, filtered).await;
        let file = table.files().next().unwrap();
        let passes = |number: i64| {
            let key = of_type(Int64Array::from(vec![number]), data_type);
            table.may_hold(file, &["Key".into()], &[key]).unwrap()
        };
        let count = |first: i64| (0..100).filter(|at| passes(first + at * 6)).count();
        (count(0), count(1))
    }

    #[tokio::test]
    async fn keys_of_every_filtered_type_that_a_file_lacks_are_told() {
        let types = [
            DataType::Int32,
            DataType::Int64,
            DataType::Date32,
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            DataType::Utf8,
            DataType::Binary,
        ];
        for data_type in types {
            let (held, lacked) = passing(&data_type, &["KEY".into()]).await;
            assert_eq!(held, 100, "{data_type}");
            assert!(lacked < 10, "{data_type}: {lacked} of 100 absent keys pass");
        }
    }

    #[tokio::test]
    async fn file_without_filter_and_type_that_is_not_compared_may_hold_anything() {
        assert_eq!(passing(&DataType::Int64, &[]).await, (100, 100));
        let decimal = DataType::Decimal128(20, 0);
        assert_eq!(passing(&decimal, &["key".into()]).await, (100, 100));
    }

    #[tokio::test]
    async fn many_keys_are_not_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let table = table_of(folder.path(), &DataType::Int64, &["key".into()]).await;
        let file = table.files().next().unwrap();
        let lacked: Int64Array = (0..=KEYS_MAX as i64).map(|at| Some(at * 3 + 1)).collect();
        assert!(
            table
                .may_hold(file, &["Key".into()], &[Arc::new(lacked)])
                .unwrap()
        );
    }
}
