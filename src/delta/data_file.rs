//! Encodes rows as a Parquet file.
//!
//! Whole numbers, times, short decimals and texts at the top of a row, which are most of what changes consist of, are encoded
//! here, column by column; everything else by the library. Where the bytes go is left to the caller.

mod bits;
mod bounds;
mod chunk;
mod dictionary;
mod filter;
mod fronts;
mod pages;
mod values;

use super::{bloom, encoding};
use crate::error::{Error, Result};
use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::{FieldRef, SchemaRef};
use chunk::{ChunkWriter, PAGE_ROWS};
use filter::Filter;
use pages::Packer;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use std::sync::Arc;
use values::ColumnKind;

/// Filters of the keys of so many rows stay in the cache of a core while they are filled. A debug build has fewer, so that tests
/// write files of several groups.
pub(super) const ROW_GROUP_ROWS: usize = if cfg!(debug_assertions) {
    1 << 14
} else {
    1 << 19
};
/// Fewer rows wait for others: pages are cut from the rows that are there.
const ENCODED_ROWS_MIN: usize = 4 * PAGE_ROWS;
/// Unless they have so many bytes.
const WAITING_BYTES_MAX: usize = 8 << 20;

/// How the columns of a file are encoded.
pub(super) struct FileLayout {
    schema: SchemaRef,
    columns: Vec<ColumnLayout>,
    properties: WriterProperties,
    /// A filter is for no more rows.
    filter_rows: usize,
}

struct ColumnLayout {
    /// `None` where the library encodes it.
    kind: Option<ColumnKind>,
    repeats: bool,
    has_filter: bool,
}

impl FileLayout {
    /// Of the rows.
    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// For rows of `schema` like those of `first`, no more than `rows_max`, with filters of `bloom_columns`, in lower case.
    /// `properties` is given the columns that the library encodes.
    pub(super) fn of(
        schema: &SchemaRef,
        first: &RecordBatch,
        rows_max: usize,
        bloom_columns: &[String],
        properties: impl FnOnce(&RecordBatch) -> Result<WriterProperties>,
    ) -> Result<FileLayout> {
        let kinds: Vec<Option<ColumnKind>> = schema
            .fields()
            .iter()
            .map(|field| ColumnKind::of(field.data_type()))
            .collect();
        let (own, of_library): (Vec<usize>, Vec<usize>) =
            (0..kinds.len()).partition(|place| kinds[*place].is_some());
        let properties = properties(&first.project(&of_library)?)?;
        let mut repeating = vec![false; kinds.len()];
        if let Some(sample) = encoding::sample(&first.project(&own)?)? {
            for (place, values) in own.into_iter().zip(sample.columns()) {
                repeating[place] = encoding::repeats(values)?;
            }
        }
        let columns = schema.fields().iter().zip(kinds).zip(repeating);
        let columns = columns.map(|((field, kind), repeats)| ColumnLayout {
            kind,
            repeats,
            has_filter: bloom_columns.contains(&field.name().to_lowercase()),
        });
        Ok(FileLayout {
            schema: Arc::clone(schema),
            columns: columns.collect(),
            properties,
            filter_rows: rows_max.min(ROW_GROUP_ROWS),
        })
    }
}

/// Encodes rows; their bytes are taken piece by piece.
pub(super) struct FileEncoder {
    layout: Arc<FileLayout>,
    file: SerializedFileWriter<Vec<u8>>,
    columns: ArrowRowGroupWriterFactory,
    packer: Packer,
    group: Option<RowGroup>,
    /// The columns whose later groups have a filter: where one group has none, the file may hold any value.
    filtered: Vec<bool>,
    /// Rows that are too few to be encoded.
    waiting: Vec<RecordBatch>,
    waiting_rows: usize,
    waiting_bytes: usize,
}

struct RowGroup {
    columns: Vec<ColumnWriter>,
    rows: usize,
}

enum ColumnWriter {
    Own(Box<ChunkWriter>),
    /// Of each leaf below the column.
    Library(Vec<ArrowColumnWriter>),
}

impl ColumnWriter {
    /// How many bytes of the file are in memory, about.
    fn bytes(&self) -> usize {
        match self {
            ColumnWriter::Own(chunk) => chunk.bytes(),
            ColumnWriter::Library(leaves) => {
                let bytes = leaves.iter();
                bytes
                    .map(ArrowColumnWriter::get_estimated_total_bytes)
                    .sum()
            }
        }
    }

    /// How many bytes it adds to the file, about.
    fn bytes_at_end(&self) -> usize {
        match self {
            ColumnWriter::Own(chunk) => chunk.bytes() + chunk.filter_bytes_max(),
            ColumnWriter::Library(_) => self.bytes(),
        }
    }
}

impl FileEncoder {
    pub(super) fn new(layout: Arc<FileLayout>) -> Result<FileEncoder> {
        let (schema, properties) = (Arc::clone(&layout.schema), layout.properties.clone());
        let writer = ArrowWriter::try_new(Vec::new(), schema, Some(properties));
        let writer = writer.and_then(ArrowWriter::into_serialized_writer);
        let (file, columns) = writer.map_err(unwritable)?;
        let filtered = layout.columns.iter().map(|column| column.has_filter);
        Ok(FileEncoder {
            filtered: filtered.collect(),
            layout,
            file,
            columns,
            packer: Packer::new()?,
            group: None,
            waiting: Vec::new(),
            waiting_rows: 0,
            waiting_bytes: 0,
        })
    }

    /// Takes rows of the schema of the file.
    pub(super) fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        self.waiting.push(rows.clone());
        self.waiting_rows += rows.num_rows();
        let bytes = rows.columns().iter().map(bytes_of);
        self.waiting_bytes += bytes.sum::<usize>();
        match self.waiting_rows >= ENCODED_ROWS_MIN || self.waiting_bytes >= WAITING_BYTES_MAX {
            true => self.encode_waiting(),
            false => Ok(()),
        }
    }

    /// Bytes of the file, about.
    pub(super) fn bytes(&self) -> usize {
        let columns = self.group.iter().flat_map(|group| &group.columns);
        self.file.bytes_written() + columns.map(ColumnWriter::bytes).sum::<usize>()
    }

    /// The bytes of row groups that are complete; what is taken does not come again.
    pub(super) fn take_bytes(&mut self) -> Vec<u8> {
        std::mem::take(self.file.inner_mut())
    }

    /// Ends the file; gives the bytes that were not taken.
    pub(super) fn finish(mut self) -> Result<(Vec<u8>, ParquetMetaData)> {
        self.encode_waiting()?;
        self.end_group()?;
        let metadata = self.file.finish().map_err(unwritable)?;
        Ok((self.take_bytes(), metadata))
    }

    fn encode_waiting(&mut self) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        (self.waiting_rows, self.waiting_bytes) = (0, 0);
        match waiting.as_slice() {
            [] => Ok(()),
            [rows] => self.encode(rows),
            several => self.encode(&concat_batches(&self.layout.schema, several)?),
        }
    }

    fn encode(&mut self, rows: &RecordBatch) -> Result<()> {
        let mut start = 0;
        while start < rows.num_rows() {
            let group = match &mut self.group {
                Some(group) => group,
                none => none.insert(new_group(
                    &self.layout,
                    &self.filtered,
                    &self.file,
                    &self.columns,
                )?),
            };
            let length = (ROW_GROUP_ROWS - group.rows).min(rows.num_rows() - start);
            group.write(
                &self.layout.schema,
                &rows.slice(start, length),
                &mut self.packer,
            )?;
            start += length;
            if group.rows >= ROW_GROUP_ROWS {
                self.end_group()?;
            }
        }
        Ok(())
    }

    fn end_group(&mut self) -> Result<()> {
        let Some(group) = self.group.take() else {
            return Ok(());
        };
        // The group is copied behind the bytes that are there; they are not to be moved for that.
        let room = group.columns.iter().map(ColumnWriter::bytes_at_end).sum();
        self.file.inner_mut().reserve(room);
        let mut writer = self.file.next_row_group().map_err(unwritable)?;
        for (column, is_filtered) in group.columns.into_iter().zip(&mut self.filtered) {
            match column {
                ColumnWriter::Own(chunk) => {
                    let (bytes, closed) = chunk.close(&mut self.packer)?;
                    *is_filtered = closed.bloom_filter.is_some();
                    writer.append_column(&bytes, closed).map_err(unwritable)?;
                }
                ColumnWriter::Library(leaves) => {
                    for leaf in leaves {
                        let chunk = leaf.close().map_err(unwritable)?;
                        chunk.append_to_row_group(&mut writer).map_err(unwritable)?;
                    }
                }
            }
        }
        writer.close().map(|_| ()).map_err(unwritable)
    }
}

/// What the values of a column take, not the memory that they share with others.
fn bytes_of(column: &ArrayRef) -> usize {
    let sliced = column.to_data().get_slice_memory_size();
    sliced.unwrap_or_else(|_| column.get_array_memory_size())
}

fn new_group(
    layout: &FileLayout,
    filtered: &[bool],
    file: &SerializedFileWriter<Vec<u8>>,
    columns: &ArrowRowGroupWriterFactory,
) -> Result<RowGroup> {
    let number = file.flushed_row_groups().len();
    let mut of_library = columns
        .create_column_writers(number)
        .map_err(unwritable)?
        .into_iter();
    let leaves = file.schema_descr();
    let mut leaf = 0;
    let mut columns = Vec::with_capacity(layout.columns.len());
    for (place, column) in layout.columns.iter().enumerate() {
        let is_below = |leaf: &usize| leaves.get_column_root_idx(*leaf) == place;
        let first = leaf;
        let count = (first..leaves.num_columns()).take_while(is_below).count();
        leaf += count;
        let writers: Vec<_> = of_library.by_ref().take(count).collect();
        columns.push(match column.kind {
            None => ColumnWriter::Library(writers),
            Some(kind) => {
                let filter = || Filter::new(bloom::FALSE_POSITIVES, layout.filter_rows);
                let filter = filtered[place].then(filter);
                let chunk = ChunkWriter::new(leaves.column(first), kind, column.repeats, filter);
                ColumnWriter::Own(Box::new(chunk))
            }
        });
    }
    Ok(RowGroup { columns, rows: 0 })
}

impl RowGroup {
    fn write(&mut self, schema: &SchemaRef, rows: &RecordBatch, packer: &mut Packer) -> Result<()> {
        let fields = schema.fields().iter().zip(rows.columns());
        for (writer, (field, values)) in self.columns.iter_mut().zip(fields) {
            match writer {
                ColumnWriter::Own(chunk) => chunk.write(values, packer)?,
                ColumnWriter::Library(leaves) => write_leaves(leaves, field, values)?,
            }
        }
        self.rows += rows.num_rows();
        Ok(())
    }
}

fn write_leaves(
    leaves: &mut [ArrowColumnWriter],
    field: &FieldRef,
    values: &ArrayRef,
) -> Result<()> {
    let columns = compute_leaves(field, values).map_err(unwritable)?;
    for (writer, column) in leaves.iter_mut().zip(columns) {
        writer.write(&column).map_err(unwritable)?;
    }
    Ok(())
}

fn unwritable(error: ParquetError) -> Error {
    Error::bug(format!("rows cannot be encoded as Parquet: {error}"))
}

#[cfg(test)]
mod tests;
