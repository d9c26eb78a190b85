//! Rows of landing files on their way into bronze, and the columns that the loader adds to them.

use crate::change::{
    BATCH_ID, BatchId, FILE_MODIFIED_AT, FILE_PATH, FILE_ROW, LOADED_AT, RESCUED_DATA,
};
use crate::clock::Micros;
use crate::error::{Error, Result};
use arrow::array::{
    ArrayRef, Int64Array, RecordBatch, StringArray, StringBuilder, TimestampMicrosecondArray,
};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use std::sync::Arc;

/// Rows of small files are joined into stretches of so many: each has its price.
pub const STRETCH_ROWS: usize = 16_384;

/// Rows of landing files, one file after the other.
#[derive(Clone, Debug)]
pub struct LoadedRows {
    /// Whose rows they are.
    pub files: Vec<FileSpan>,
    /// The source columns of the schema, and `_rescued_data`.
    pub rows: RecordBatch,
    /// The number of each row's record in its file, from 1.
    pub file_rows: Vec<i64>,
}

/// So many rows in a row that come from one landing file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSpan {
    /// Relative to the landing folder.
    pub path: String,
    /// Microseconds since the epoch.
    pub modified_at: Micros,
    /// How many rows.
    pub rows: usize,
}

impl LoadedRows {
    /// Rows of one file.
    pub fn of_file(
        path: &str,
        modified_at: Micros,
        rows: RecordBatch,
        file_rows: Vec<i64>,
    ) -> Self {
        let span = FileSpan {
            path: path.to_owned(),
            modified_at,
            rows: file_rows.len(),
        };
        LoadedRows {
            files: vec![span],
            rows,
            file_rows,
        }
    }

    /// All of `parts` in their order, which have the same columns; `None` of none.
    pub fn joined(mut parts: Vec<LoadedRows>) -> Result<Option<LoadedRows>> {
        if parts.len() < 2 {
            return Ok(parts.pop());
        }
        let rows = concat_batches(&parts[0].rows.schema(), parts.iter().map(|part| &part.rows))?;
        let mut joined = LoadedRows {
            files: Vec::with_capacity(parts.len()),
            rows,
            file_rows: Vec::new(),
        };
        for part in parts {
            joined.file_rows.extend(part.file_rows);
            for span in part.files {
                match joined.files.last_mut() {
                    Some(last) if last.path == span.path => last.rows += span.rows,
                    _ => joined.files.push(span),
                }
            }
        }
        Ok(Some(joined))
    }
}

/// The columns that the loader adds, in their order.
pub(super) fn loader_columns() -> [Field; 6] {
    let time = || DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    [
        Field::new(RESCUED_DATA, DataType::Utf8, true),
        Field::new(FILE_PATH, DataType::Utf8, true),
        Field::new(FILE_ROW, DataType::Int64, true),
        Field::new(FILE_MODIFIED_AT, time(), true),
        Field::new(BATCH_ID, DataType::Int64, true),
        Field::new(LOADED_AT, time(), true),
    ]
}

pub(super) fn is_loader_column(name: &str) -> bool {
    loader_columns()
        .iter()
        .any(|column| column.name().eq_ignore_ascii_case(name))
}

/// `loaded` in stretches of about [`STRETCH_ROWS`] rows each.
pub(super) fn stretches(loaded: Vec<LoadedRows>) -> Vec<Vec<LoadedRows>> {
    let mut stretches = Vec::new();
    let (mut stretch, mut rows) = (Vec::new(), 0);
    for part in loaded {
        rows += part.rows.num_rows();
        stretch.push(part);
        if rows >= STRETCH_ROWS {
            stretches.push(std::mem::take(&mut stretch));
            rows = 0;
        }
    }
    if !stretch.is_empty() {
        stretches.push(stretch);
    }
    stretches
}

fn paths_of_rows(files: &[FileSpan]) -> StringArray {
    let rows = files.iter().map(|file| file.rows).sum();
    let bytes = files.iter().map(|file| file.rows * file.path.len()).sum();
    let mut paths = StringBuilder::with_capacity(rows, bytes);
    for file in files {
        (0..file.rows).for_each(|_| paths.append_value(&file.path));
    }
    paths.finish()
}

/// The rows in the columns of the table.
pub(super) fn with_loader_columns(
    loaded: &LoadedRows,
    schema: &SchemaRef,
    batch: BatchId,
    loaded_at: Micros,
) -> Result<RecordBatch> {
    let count = loaded.rows.num_rows();
    let in_files: usize = loaded.files.iter().map(|file| file.rows).sum();
    if loaded.file_rows.len() != count || in_files != count {
        return Err(Error::bug(format!(
            "{count} rows but {} row numbers, and {in_files} rows of files",
            loaded.file_rows.len()
        )));
    }
    let given = loaded.rows.schema();
    let unknown = |name: &&String| {
        let ours = is_loader_column(name) && name.as_str() != RESCUED_DATA;
        ours || schema.index_of(name).is_err()
    };
    if let Some(extra) = given
        .fields()
        .iter()
        .map(|field| field.name())
        .find(unknown)
    {
        return Err(Error::bug(format!(
            "rows have a column that bronze lacks: {extra}"
        )));
    }
    let time =
        |times: TimestampMicrosecondArray| -> ArrayRef { Arc::new(times.with_timezone("UTC")) };
    let of_files = || {
        let files = loaded.files.iter();
        files.flat_map(|file| std::iter::repeat_n(file, file.rows))
    };
    let mut columns = Vec::with_capacity(schema.fields().len());
    let mut fields = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        let column: ArrayRef = match field.name().as_str() {
            FILE_PATH => Arc::new(paths_of_rows(&loaded.files)),
            FILE_ROW => Arc::new(Int64Array::from(loaded.file_rows.clone())),
            FILE_MODIFIED_AT => time(
                of_files()
                    .map(|file| file.modified_at)
                    .collect::<Vec<_>>()
                    .into(),
            ),
            BATCH_ID => Arc::new(Int64Array::from_value(batch.0, count)),
            LOADED_AT => time(TimestampMicrosecondArray::from_value(loaded_at, count)),
            name => loaded
                .rows
                .column_by_name(name)
                .cloned()
                .ok_or_else(|| Error::bug(format!("rows lack a column of bronze: {name}")))?,
        };
        fields.push(Field::new(field.name(), column.data_type().clone(), true));
        columns.push(column);
    }
    // The types are checked against the table when the rows are written.
    Ok(RecordBatch::try_new(
        Arc::new(Schema::new(fields)),
        columns,
    )?)
}
