//! Writes data files that the log does not name yet.
//!
//! Rows must have exactly the types of the schema; nothing is converted, cut or dropped on the way. Which rows, and when the
//! log names the files, is left to the callers.

use super::data_file::{FileLayout, ROW_GROUP_ROWS};
use super::files::{FilesWriter, TARGET_BYTES};
use super::state::library;
use super::{bloom, encoding, stats};
use crate::error::{Error, ErrorKind, Result};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::{cast, max, min};
use arrow::datatypes::{DataType, Date32Type, SchemaRef, TimeUnit, TimestampMicrosecondType};
use chrono::DateTime;
use delta_kernel::table_properties::DataSkippingNumIndexedCols;
use deltalake::datafile::writer::{DeltaWriter, WriterConfig};
use deltalake::kernel::{Add, AddCDCFile};
use object_store::ObjectStore;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;

/// Small pages make reading single rows cheap.
const PAGE_ROWS: usize = 2_000;
const WRITE_BATCH_ROWS: usize = 8_192;

/// Writes data files batch by batch.
pub struct RowWriter {
    root: PathBuf,
    schema: SchemaRef,
    partition_by: Vec<String>,
    /// How many there may be.
    rows_max: usize,
    writer: Writer,
}

/// Made when the first rows tell how each column is best encoded.
enum Writer {
    Waiting(Box<NotYet>),
    Whole(Box<FilesWriter>),
    /// Of the library, which cuts rows by their partitions.
    Partitioned(Box<DeltaWriter>),
}

struct NotYet {
    store: Arc<dyn ObjectStore>,
    indexed_columns: DataSkippingNumIndexedCols,
    bloom_columns: Vec<String>,
}

impl RowWriter {
    pub(super) fn new(
        root: PathBuf,
        store: Arc<dyn ObjectStore>,
        schema: SchemaRef,
        partition_by: &[String],
        indexed_columns: DataSkippingNumIndexedCols,
        bloom_columns: &[String],
    ) -> Result<RowWriter> {
        Ok(RowWriter {
            root,
            schema,
            partition_by: partition_by.to_vec(),
            rows_max: usize::MAX,
            writer: Writer::Waiting(Box::new(NotYet {
                store,
                indexed_columns,
                bloom_columns: bloom_columns.to_vec(),
            })),
        })
    }

    /// The same for no more than so many rows: what is made ready for many more costs time.
    pub fn of_rows(mut self, rows_max: usize) -> RowWriter {
        self.rows_max = rows_max;
        self
    }

    /// The writer, which encodes columns as suits the rows of `first` where it is made now.
    fn open(&mut self, first: &RecordBatch) -> Result<&mut Writer> {
        if let Writer::Waiting(waiting) = &self.writer {
            let (store, filtered) = (Arc::clone(&waiting.store), &waiting.bloom_columns);
            let properties = |rows: &RecordBatch| writer_properties(rows, self.rows_max, filtered);
            self.writer = if self.partition_by.is_empty() {
                let layout =
                    FileLayout::of(&self.schema, first, self.rows_max, filtered, properties)?;
                let writer =
                    FilesWriter::new(self.root.clone(), store, layout, waiting.indexed_columns);
                Writer::Whole(Box::new(writer))
            } else {
                let config = WriterConfig::new(
                    Arc::clone(&self.schema),
                    self.partition_by.clone(),
                    Some(properties(first)?),
                    NonZeroU64::new(TARGET_BYTES as u64),
                    Some(WRITE_BATCH_ROWS),
                    waiting.indexed_columns,
                    None,
                );
                Writer::Partitioned(Box::new(DeltaWriter::new(store, config)))
            };
        }
        Ok(&mut self.writer)
    }

    /// Takes rows of exactly the writer's columns and types.
    pub async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let batch = conform(batch, &self.schema)?;
        for column in &self.partition_by {
            refuse_empty_text(&batch, column)?;
        }
        if batch.num_rows() == 0 {
            return Ok(());
        }
        for (field, column) in self.schema.fields().iter().zip(batch.columns()) {
            refuse_far_times(field.name(), column)?;
        }
        match self.open(&batch)? {
            Writer::Whole(writer) => writer.write(&batch).await,
            Writer::Partitioned(writer) => {
                let written = writer.write(&batch).await;
                written.map_err(|error| library(&self.root, &error))
            }
            Writer::Waiting(_) => Err(Error::bug("a writer of rows was not made")),
        }
    }

    /// Finishes the files; they are on disk before a log entry of the table that is written later.
    pub async fn close(self) -> Result<Vec<Add>> {
        let writer = match self.writer {
            Writer::Waiting(_) => return Ok(Vec::new()),
            Writer::Whole(writer) => return writer.close().await,
            Writer::Partitioned(writer) => writer,
        };
        let mut adds = writer
            .close()
            .await
            .map_err(|error| library(&self.root, &error))?;
        for add in &mut adds {
            let exact = add
                .stats
                .as_deref()
                .and_then(|stats| stats::drop_inexact(stats, &self.schema));
            add.stats = exact.or(add.stats.take());
        }
        Ok(adds)
    }
}

fn writer_properties(
    first: &RecordBatch,
    rows_max: usize,
    bloom_columns: &[String],
) -> Result<WriterProperties> {
    let level = ZstdLevel::try_new(1).map_err(|error| Error::bug(format!("zstd: {error}")))?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(PAGE_ROWS.min(1024))
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_created_by(concat!("landfall ", env!("CARGO_PKG_VERSION")).to_owned());
    let properties = encoding::by_column(properties, first)?;
    let schema = first.schema();
    let names = schema.fields().iter().map(|field| field.name());
    let rows = rows_max.clamp(1, ROW_GROUP_ROWS);
    Ok(bloom::with_filters(properties, bloom_columns, rows, names).build())
}

/// Change data files as the log names them.
pub(super) fn change_files(adds: Vec<Add>, folder: &str) -> Vec<AddCDCFile> {
    adds.into_iter()
        .map(|add| AddCDCFile {
            path: format!("{folder}/{}", add.path),
            size: add.size,
            partition_values: add.partition_values,
            data_change: false,
            tags: None,
        })
        .collect()
}

/// The same rows under `schema`; an error if a column is missing, extra or of another type. Only the inner names of lists and maps may differ.
pub(super) fn conform(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    if batch.schema_ref() == schema {
        return Ok(batch.clone());
    }
    let given = batch.schema();
    if let Some(extra) = given
        .fields()
        .iter()
        .find(|field| schema.index_of(field.name()).is_err())
    {
        return Err(Error::bug(format!(
            "rows have a column that the table lacks: {}",
            extra.name()
        )));
    }
    let mut columns = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        let Some(column) = batch.column_by_name(field.name()) else {
            return Err(Error::bug(format!(
                "rows lack a column of the table: {}",
                field.name()
            )));
        };
        if !same_shape(column.data_type(), field.data_type()) {
            return Err(Error::bug(format!(
                "column {} is {} but its rows are {}",
                field.name(),
                field.data_type(),
                column.data_type()
            )));
        }
        columns.push(match column.data_type() == field.data_type() {
            true => Arc::clone(column),
            false => cast(column, field.data_type())?,
        });
    }
    RecordBatch::try_new(Arc::clone(schema), columns)
        .map_err(|error| Error::bug(format!("rows do not fit the table: {error}")))
}

/// Equal but for the inner names of lists and maps.
pub(crate) fn same_shape(a: &DataType, b: &DataType) -> bool {
    match (a, b) {
        (DataType::List(a), DataType::List(b)) => same_shape(a.data_type(), b.data_type()),
        (DataType::Map(a, _), DataType::Map(b, _)) => match (a.data_type(), b.data_type()) {
            (DataType::Struct(a), DataType::Struct(b)) => {
                a.len() == b.len()
                    && a.iter()
                        .zip(b)
                        .all(|(a, b)| same_shape(a.data_type(), b.data_type()))
            }
            _ => false,
        },
        (DataType::Struct(a), DataType::Struct(b)) => {
            a.len() == b.len()
                && a.iter()
                    .zip(b)
                    .all(|(a, b)| a.name() == b.name() && same_shape(a.data_type(), b.data_type()))
        }
        (a, b) => a == b,
    }
}

/// Times closer to 1970 are within the years that statistics can name.
const NEAR_MICROS: i64 = 1 << 62;

/// Dates and times beyond the years that statistics can name (about 262,000 either side) would stop the writer of the library.
fn refuse_far_times(name: &str, column: &ArrayRef) -> Result<()> {
    let range = match column.data_type() {
        DataType::Struct(_) => {
            return column
                .as_struct()
                .columns()
                .iter()
                .try_for_each(|inner| refuse_far_times(name, inner));
        }
        DataType::List(_) => return refuse_far_times(name, column.as_list::<i32>().values()),
        DataType::Map(_, _) => {
            let entries = column.as_map().entries();
            return entries
                .columns()
                .iter()
                .try_for_each(|inner| refuse_far_times(name, inner));
        }
        DataType::Date32 => {
            let days = column.as_primitive::<Date32Type>();
            let micros = |day: i32| i64::from(day).checked_mul(86_400_000_000);
            min(days)
                .zip(max(days))
                .map(|(from, to)| (micros(from), micros(to)))
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            let times = column.as_primitive::<TimestampMicrosecondType>();
            // Nearly always all are near, which is told at once by the highest bits that are set in any of them.
            let bits = |bits, time: &i64| bits | (time ^ (time >> (i64::BITS - 1)));
            if times.values().iter().fold(0, bits) < NEAR_MICROS {
                return Ok(());
            }
            min(times)
                .zip(max(times))
                .map(|(from, to)| (Some(from), Some(to)))
        }
        _ => None,
    };
    let near = |micros: Option<i64>| {
        micros.is_some_and(|micros| DateTime::from_timestamp_micros(micros).is_some())
    };
    match range {
        Some((from, to)) if !near(from) || !near(to) => Err(Error::new(
            ErrorKind::Input,
            format!("column {name}: a date or time is beyond what a table can hold"),
        )),
        _ => Ok(()),
    }
}

/// An empty text as partition value reads back as NULL, so it would be altered in silence.
fn refuse_empty_text(batch: &RecordBatch, column: &str) -> Result<()> {
    let Some(texts) = batch
        .column_by_name(column)
        .and_then(|column| column.as_string_opt::<i32>())
    else {
        return Ok(());
    };
    match (0..texts.len()).find(|row| texts.is_valid(*row) && texts.value(*row).is_empty()) {
        None => Ok(()),
        Some(row) => Err(Error::new(
            ErrorKind::Input,
            format!("partition column {column}, row {row}: an empty text cannot be told from NULL in a partition"),
        )
        .hint("leave the column out of partition_by")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int64Array, StringArray};
    use arrow::datatypes::{Field, Schema};

    fn schema(fields: Vec<Field>) -> SchemaRef {
        Arc::new(Schema::new(fields))
    }

    #[test]
    fn other_type_missing_and_extra_columns_are_refused() {
        let table = schema(vec![Field::new("a", DataType::Int64, true)]);
        let ints = Arc::new(Int64Array::from(vec![1]));
        let texts = Arc::new(StringArray::from(vec!["1"]));
        let text = RecordBatch::try_from_iter([("a", texts.clone() as _)]).unwrap();
        assert!(
            conform(&text, &table)
                .unwrap_err()
                .message()
                .contains("column a is Int64")
        );
        let extra =
            RecordBatch::try_from_iter([("a", ints.clone() as _), ("b", texts as _)]).unwrap();
        assert!(
            conform(&extra, &table)
                .unwrap_err()
                .message()
                .ends_with(": b")
        );
        let missing = RecordBatch::try_from_iter([("b", ints as _)]).unwrap();
        assert!(conform(&missing, &table).is_err());
    }

    #[test]
    fn null_in_a_column_that_forbids_it_is_refused() {
        let table = schema(vec![Field::new("a", DataType::Int64, false)]);
        let nulls = Int64Array::from(vec![None, Some(1)]);
        let batch =
            RecordBatch::try_from_iter_with_nullable([("a", Arc::new(nulls) as _, true)]).unwrap();
        assert!(conform(&batch, &table).is_err());
    }
}
