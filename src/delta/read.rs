//! Reads rows of one data file, straight from Parquet, without the log.
//!
//! Rows come in the types of the table and in file order, each with its physical number; deleted rows never come out of a
//! scan. It is synchronous, so that files can be read on plain threads. Which files to read is left to the callers.

use super::state::DataFile;
use crate::error::{Error, Result};
use crate::file_bytes::FileBytes;
use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, ListArray, RecordBatch, RecordBatchOptions,
    StringArray, StructArray, new_null_array,
};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{CastOptions, cast_with_options, concat_batches, filter_record_batch};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::util::display::FormatOptions;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder, RowSelection, RowSelector,
};
use parquet::basic::Encoding;
use parquet::errors::ParquetError;
use parquet::file::metadata::{PageIndexPolicy, RowGroupMetaData};
use roaring::RoaringTreemap;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

const BATCH_ROWS: usize = 8_192;
/// Where some rows are picked, more are looked at together: each batch costs, however few are left of it.
const PICKED_FROM_ROWS: usize = 32_768;

/// Live rows and where they stand in their file.
#[derive(Clone, Debug)]
pub struct ScannedRows {
    /// The asked columns in the asked order.
    pub rows: RecordBatch,
    /// The physical number of each row, from 0, ascending.
    pub row_numbers: Vec<u64>,
}

/// Which rows of a file are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of them.
    Whole,
    /// Those of one row group, by its place in the file.
    RowGroup(usize),
}

/// The live rows of one file, batch by batch.
pub struct FileScan {
    reader: ParquetRecordBatchReader,
    shape: Shape,
    numbers: LiveNumbers,
}

impl Iterator for FileScan {
    type Item = Result<ScannedRows>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = match self.reader.next()? {
            Ok(batch) => batch,
            Err(error) => return Some(Err(self.shape.damaged(&error))),
        };
        let row_numbers = self.numbers.next_rows(batch.num_rows());
        Some(
            self.shape
                .adapt(&batch)
                .map(|rows| ScannedRows { rows, row_numbers }),
        )
    }
}

/// Some of the live rows of one file, batch by batch.
pub struct KeptScan {
    reader: ParquetRecordBatchReader,
    shape: Shape,
    /// Of all live rows that are read.
    kept: BooleanBuffer,
    first: usize,
}

impl KeptScan {
    fn kept_of(&mut self, batch: &RecordBatch) -> Result<RecordBatch> {
        let count = batch.num_rows();
        if self.first + count > self.kept.len() {
            return Err(Error::bug("more rows were read than it was decided about"));
        }
        let kept = BooleanArray::new(self.kept.slice(self.first, count), None);
        self.first += count;
        // Before texts are made of their numbers.
        self.shape.adapt(&filter_record_batch(batch, &kept)?)
    }
}

impl Iterator for KeptScan {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.reader.next()? {
            Ok(batch) => Some(self.kept_of(&batch)),
            Err(error) => Some(Err(self.shape.damaged(&error))),
        }
    }
}

/// Counts physical rows, leaving deleted ones out.
struct LiveNumbers {
    next: u64,
    deleted: std::iter::Peekable<roaring::treemap::IntoIter>,
}

impl LiveNumbers {
    fn next_rows(&mut self, count: usize) -> Vec<u64> {
        if self.deleted.peek().is_none() {
            let first = self.next;
            self.next += count as u64;
            return (first..self.next).collect();
        }
        let mut numbers = Vec::with_capacity(count);
        while numbers.len() < count {
            if self.deleted.next_if_eq(&self.next).is_none() {
                numbers.push(self.next);
            }
            self.next += 1;
        }
        numbers
    }
}

/// From the columns of a file to the asked columns of the table.
pub(super) struct Shape {
    name: String,
    schema: SchemaRef,
    sources: Vec<Source>,
}

enum Source {
    /// A column of the file, by name.
    File(String),
    /// The same value in each row: a partition value, or NULL.
    Constant(ArrayRef),
}

impl Shape {
    fn damaged(&self, error: &dyn std::fmt::Display) -> Error {
        Error::disagreement(format!("data file {}: {error}", self.name))
    }

    fn adapt(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let mut columns = Vec::with_capacity(self.sources.len());
        for (source, field) in self.sources.iter().zip(self.schema.fields()) {
            columns.push(match source {
                Source::File(name) => {
                    let column = batch
                        .column_by_name(name)
                        .ok_or_else(|| self.damaged(&format!("column {name} was not read")))?;
                    adapt(column, field.data_type())
                        .map_err(|error| self.damaged(&format!("column {name}: {error}")))?
                }
                Source::Constant(value) => repeat(value, batch.num_rows())?,
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            .map_err(|error| self.damaged(&error))
    }
}

fn repeat(value: &ArrayRef, rows: usize) -> Result<ArrayRef> {
    if value.is_null(0) {
        return Ok(new_null_array(value.data_type(), rows));
    }
    let indices = arrow::array::UInt32Array::from(vec![0; rows]);
    Ok(arrow::compute::take(value, &indices, None)?)
}

/// The same values in the type of the table; inner fields that the file lacks are NULL.
fn adapt(column: &ArrayRef, to: &DataType) -> Result<ArrayRef> {
    if column.data_type() == to {
        return Ok(Arc::clone(column));
    }
    match (column.data_type(), to) {
        (DataType::Struct(_), DataType::Struct(fields)) => {
            let column = column.as_struct();
            let mut inner = Vec::with_capacity(fields.len());
            for field in fields {
                inner.push(match column.column_by_name(field.name()) {
                    Some(values) => adapt(values, field.data_type())?,
                    None => new_null_array(field.data_type(), column.len()),
                });
            }
            let nulls = column.nulls().cloned();
            Ok(Arc::new(StructArray::try_new_with_length(
                fields.clone(),
                inner,
                nulls,
                column.len(),
            )?))
        }
        (DataType::List(_), DataType::List(field)) => {
            let column = column.as_list::<i32>();
            let values = adapt(column.values(), field.data_type())?;
            let (offsets, nulls) = (column.offsets().clone(), column.nulls().cloned());
            Ok(Arc::new(ListArray::try_new(
                Arc::clone(field),
                offsets,
                values,
                nulls,
            )?))
        }
        _ => {
            let strict = CastOptions {
                safe: false,
                format_options: FormatOptions::default(),
            };
            Ok(cast_with_options(column, to, &strict)?)
        }
    }
}

/// How texts of a file are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Texts {
    /// Each where it stands.
    Whole,
    /// Where the file numbers them all, by their numbers.
    Numbered,
}

/// Which pages of the columns are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pages {
    /// Every one, so that they are read ahead and need no index.
    All,
    /// Those that hold some of the rows.
    Some,
}

/// The columns of a file, texts that are all numbered as dictionaries; `None` where there are none.
fn numbered(reader: &ArrowReaderMetadata) -> Option<SchemaRef> {
    let leaves = reader.parquet_schema();
    let is_numbered = |leaf: usize| {
        let mut groups = reader.metadata().row_groups().iter();
        groups.all(|group| {
            let encodings = group.column(leaf).page_encoding_stats_mask();
            encodings.is_some_and(|encodings| encodings.is_only(Encoding::RLE_DICTIONARY))
        })
    };
    let mut found = false;
    let mut fields = Vec::with_capacity(reader.schema().fields().len());
    for (place, field) in reader.schema().fields().iter().enumerate() {
        let leaf =
            (0..leaves.num_columns()).find(|leaf| leaves.get_column_root_idx(*leaf) == place);
        if *field.data_type() == DataType::Utf8 && leaf.is_some_and(is_numbered) {
            let texts = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
            fields.push(Arc::new(field.as_ref().clone().with_data_type(texts)));
            found = true;
        } else {
            fields.push(Arc::clone(field));
        }
    }
    let metadata = reader.schema().metadata().clone();
    found.then(|| Arc::new(Schema::new_with_metadata(fields, metadata)))
}

/// Opens a file for the asked columns.
pub(super) fn open(
    root: &Path,
    file: &DataFile,
    table: &Schema,
    partition_by: &[String],
    columns: &[String],
) -> Result<(ParquetRecordBatchReaderBuilder<FileBytes>, Shape)> {
    let (texts, pages) = (Texts::Whole, Pages::Some);
    open_with(root, file, table, partition_by, columns, texts, pages)
}

fn open_with(
    root: &Path,
    file: &DataFile,
    table: &Schema,
    partition_by: &[String],
    columns: &[String],
    texts: Texts,
    pages: Pages,
) -> Result<(ParquetRecordBatchReaderBuilder<FileBytes>, Shape)> {
    let name = root.join(&file.path).display().to_string();
    let opened = File::open(root.join(&file.path)).map_err(|error| {
        Error::unavailable(format!("data file {name}: {error}"))
            .hint("the table's log names this file; give it back from a backup")
    })?;
    let damaged = |error: ParquetError| Error::disagreement(format!("data file {name}: {error}"));
    let index = match pages {
        Pages::All => PageIndexPolicy::Skip,
        Pages::Some => PageIndexPolicy::Optional,
    };
    let options = ArrowReaderOptions::new().with_page_index_policy(index);
    let mut metadata = ArrowReaderMetadata::load(&opened, options).map_err(damaged)?;
    if texts == Texts::Numbered
        && let Some(schema) = numbered(&metadata)
    {
        let options = ArrowReaderOptions::new().with_schema(schema);
        let again = ArrowReaderMetadata::try_new(Arc::clone(metadata.metadata()), options);
        metadata = again.map_err(damaged)?;
    }
    let bytes = match pages {
        Pages::All => FileBytes::ahead(opened, metadata.metadata()),
        Pages::Some => FileBytes::asked(opened),
    };
    let bytes = bytes.map_err(|error| Error::unavailable(format!("data file {name}: {error}")))?;
    let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(bytes, metadata);
    let in_file = Arc::clone(builder.schema());
    let mut fields = Vec::with_capacity(columns.len());
    let (mut sources, mut roots) = (Vec::with_capacity(columns.len()), Vec::new());
    for column in columns {
        let field = table
            .field_with_name(column)
            .map_err(|_| Error::bug(format!("table {} has no column {column}", root.display())))?;
        fields.push(field.clone());
        sources.push(if partition_by.contains(column) {
            Source::Constant(partition_value(file, column, field.data_type())?)
        } else if let Ok(index) = in_file.index_of(column) {
            roots.push(index);
            Source::File(column.clone())
        } else {
            Source::Constant(new_null_array(field.data_type(), 1))
        });
    }
    let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
    let builder = builder.with_projection(mask).with_batch_size(BATCH_ROWS);
    Ok((
        builder,
        Shape {
            name,
            schema: Arc::new(Schema::new(fields)),
            sources,
        },
    ))
}

/// A partition value as one row; an empty text is NULL, as the protocol says.
fn partition_value(file: &DataFile, column: &str, data_type: &DataType) -> Result<ArrayRef> {
    let text = file
        .add
        .partition_values
        .get(column)
        .and_then(Option::as_deref);
    match text.filter(|text| !text.is_empty()) {
        None => Ok(new_null_array(data_type, 1)),
        Some(text) => {
            let value: ArrayRef = Arc::new(StringArray::from(vec![text]));
            adapt(&value, data_type).map_err(|error| {
                Error::disagreement(format!(
                    "data file {}: partition value of {column} does not read as {data_type}: {text}: {}",
                    file.path,
                    error.message()
                ))
            })
        }
    }
}

/// Where rows are and which of them are deleted.
pub(super) struct Scanned<'a> {
    pub(super) root: &'a Path,
    pub(super) file: &'a DataFile,
    pub(super) table: &'a Schema,
    pub(super) partition_by: &'a [String],
    pub(super) extent: Extent,
    pub(super) deleted: RoaringTreemap,
}

impl Scanned<'_> {
    /// Opens the rows; gives the physical number of the first beside them.
    fn open(
        &self,
        columns: &[String],
        texts: Texts,
    ) -> Result<(ParquetRecordBatchReader, Shape, u64)> {
        let pages = match self.deleted.is_empty() {
            true => Pages::All,
            false => Pages::Some,
        };
        let (mut builder, shape) = open_with(
            self.root,
            self.file,
            self.table,
            self.partition_by,
            columns,
            texts,
            pages,
        )?;
        check_rows(&builder, self.file, &shape)?;
        let rows_before = |group: usize| -> u64 {
            let groups = builder.metadata().row_groups().iter().take(group);
            groups.map(|group| group.num_rows().unsigned_abs()).sum()
        };
        let mut physical = 0..self.file.rows.unsigned_abs();
        if let Extent::RowGroup(group) = self.extent {
            physical = rows_before(group)..rows_before(group + 1);
            builder = builder.with_row_groups(vec![group]);
        }
        if !self.deleted.is_empty() {
            builder = builder.with_row_selection(live_selection(&self.deleted, physical.clone()));
        }
        if texts == Texts::Numbered {
            builder = builder.with_batch_size(PICKED_FROM_ROWS);
        }
        let reader = builder.build().map_err(|error| shape.damaged(&error))?;
        Ok((reader, shape, physical.start))
    }

    /// The rows that are not deleted.
    pub(super) fn live(self, columns: &[String]) -> Result<FileScan> {
        let (reader, shape, first) = self.open(columns, Texts::Whole)?;
        let mut deleted = self.deleted;
        deleted.remove_range(..first);
        let numbers = LiveNumbers {
            next: first,
            deleted: deleted.into_iter().peekable(),
        };
        Ok(FileScan {
            reader,
            shape,
            numbers,
        })
    }

    /// Those of the rows that are not deleted that are `kept`, which has a bit for each of them.
    pub(super) fn kept(&self, columns: &[String], kept: BooleanBuffer) -> Result<KeptScan> {
        let (reader, shape, _) = self.open(columns, Texts::Numbered)?;
        Ok(KeptScan {
            reader,
            shape,
            kept,
            first: 0,
        })
    }

    /// What can be read by itself, with the number of live rows of each; one after the other.
    pub(super) fn extents(&self) -> Result<Vec<(Extent, usize)>> {
        let (builder, shape) = open_with(
            self.root,
            self.file,
            self.table,
            self.partition_by,
            &[],
            Texts::Whole,
            Pages::All,
        )?;
        check_rows(&builder, self.file, &shape)?;
        let mut first = 0;
        let extent = |(place, group): (usize, &RowGroupMetaData)| {
            let rows = group.num_rows().unsigned_abs();
            let deleted = self.deleted.range_cardinality(first..first + rows);
            first += rows;
            (Extent::RowGroup(place), (rows - deleted) as usize)
        };
        let groups = builder.metadata().row_groups().iter().enumerate();
        Ok(groups.map(extent).collect())
    }
}

/// A file with another number of rows than the log says would shift every row number.
fn check_rows(
    builder: &ParquetRecordBatchReaderBuilder<FileBytes>,
    file: &DataFile,
    shape: &Shape,
) -> Result<()> {
    let rows = builder.metadata().file_metadata().num_rows();
    match rows == file.rows {
        true => Ok(()),
        false => Err(shape.damaged(&format!("it has {rows} rows, the log says {}", file.rows))),
    }
}

fn live_selection(deleted: &RoaringTreemap, rows: Range<u64>) -> RowSelection {
    let mut selectors = Vec::new();
    let mut next = rows.start;
    let deleted = deleted.iter().skip_while(|row| *row < rows.start);
    for row in deleted.take_while(|row| *row < rows.end) {
        push(&mut selectors, false, row - next);
        push(&mut selectors, true, 1);
        next = row + 1;
    }
    push(&mut selectors, false, rows.end - next);
    RowSelection::from(selectors)
}

/// Appends to the last selector where it can.
fn push(selectors: &mut Vec<RowSelector>, skip: bool, count: u64) {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    match selectors.last_mut() {
        _ if count == 0 => {}
        Some(last) if last.skip == skip => last.row_count += count,
        _ => selectors.push(RowSelector {
            row_count: count,
            skip,
        }),
    }
}

/// Reads rows by physical number, ascending.
pub(super) fn take(
    root: &Path,
    file: &DataFile,
    table: &Schema,
    partition_by: &[String],
    columns: &[String],
    rows: &[u64],
) -> Result<RecordBatch> {
    let (builder, shape) = open(root, file, table, partition_by, columns)?;
    check_rows(&builder, file, &shape)?;
    let mut selectors = Vec::new();
    let mut next = 0;
    for row in rows {
        if *row < next || *row >= file.rows.unsigned_abs() {
            return Err(Error::bug(format!(
                "data file {}: row {row} is out of order or beyond the end",
                shape.name
            )));
        }
        push(&mut selectors, true, row - next);
        push(&mut selectors, false, 1);
        next = row + 1;
    }
    if rows.is_empty() {
        return Ok(RecordBatch::new_empty(Arc::clone(&shape.schema)));
    }
    let reader = builder
        .with_row_selection(RowSelection::from(selectors))
        .with_batch_size(rows.len().min(BATCH_ROWS))
        .build()
        .map_err(|error| shape.damaged(&error))?;
    let mut batches = Vec::new();
    for batch in reader {
        batches.push(shape.adapt(&batch.map_err(|error| shape.damaged(&error))?)?);
    }
    let taken = concat_batches(&shape.schema, &batches)?;
    match taken.num_rows() == rows.len() {
        true => Ok(taken),
        false => Err(shape.damaged(&format!("{} of {} rows came", taken.num_rows(), rows.len()))),
    }
}
