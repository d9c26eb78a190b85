//! Apache Parquet: the types of the file, taken into the types of the columns exactly.
//!
//! The Arrow types that a writer may have left in the file are not looked at; what the Parquet types say is the same
//! for every writer. What one value becomes is left to `arrow_value`.

use super::arrow_value::{ArrowValue, row_json};
use super::rows::{Place, RecordFault, Rows};
use crate::change::{FileFault, ParkReason};
use crate::schema::timestamp_type;
use arrow::array::{Array, RecordBatch, TimestampMicrosecondArray, TimestampNanosecondArray};
use arrow::datatypes::{Field, Schema};
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder,
};
use parquet::basic::Type as PhysicalType;
use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Display;
use std::sync::Arc;

/// Stands at both ends of a Parquet file.
pub(super) const MAGIC: &[u8] = b"PAR1";

/// Rows read at once.
const BATCH_ROWS: usize = 8192;

/// The rows of a file in memory.
pub(super) struct Loaded {
    batches: Vec<RecordBatch>,
    /// For each batch, the columns of INT96 and which of their values are finer than microseconds.
    too_fine: Vec<Vec<(usize, Vec<bool>)>>,
}

/// Reads the whole file; nothing is taken when any of it cannot be read.
pub(super) fn load(bytes: &Bytes) -> Result<Loaded, FileFault> {
    if bytes.len() < 12 || !bytes.starts_with(MAGIC) || !bytes.ends_with(MAGIC) {
        let detail =
            "the file does not begin and end with PAR1; it is no Parquet file or not all of it";
        return Err(FileFault::new(ParkReason::NotThisFormat, detail));
    }
    let options = || ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let metadata = ArrowReaderMetadata::load(bytes, options()).map_err(not_parquet)?;
    check_names(metadata.schema())?;
    let nanos_columns = int96_columns(&metadata)?;
    let micros_schema = with_micros(metadata.schema(), &nanos_columns);
    let micros = ArrowReaderMetadata::try_new(
        metadata.metadata().clone(),
        options().with_schema(micros_schema),
    )
    .map_err(not_parquet)?;
    let batches = read_batches(bytes, micros, ProjectionMask::all())?;
    let too_fine = if nanos_columns.is_empty() {
        vec![Vec::new(); batches.len()]
    } else {
        let mask = ProjectionMask::roots(metadata.parquet_schema(), nanos_columns.iter().copied());
        let nanos = read_batches(bytes, metadata, mask)?;
        batches
            .iter()
            .zip(&nanos)
            .map(|(micros, nanos)| finer_than_micros(micros, nanos, &nanos_columns))
            .collect()
    };
    Ok(Loaded { batches, too_fine })
}

fn read_batches(
    bytes: &Bytes,
    metadata: ArrowReaderMetadata,
    mask: ProjectionMask,
) -> Result<Vec<RecordBatch>, FileFault> {
    let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(bytes.clone(), metadata);
    let reader = builder
        .with_batch_size(BATCH_ROWS)
        .with_projection(mask)
        .build()
        .map_err(unreadable)?;
    reader.map(|batch| batch.map_err(unreadable)).collect()
}

fn not_parquet(error: impl Display) -> FileFault {
    FileFault::new(
        ParkReason::NotThisFormat,
        format!("the Parquet footer cannot be read: {error}"),
    )
}

fn unreadable(error: impl Display) -> FileFault {
    FileFault::new(
        ParkReason::Unreadable,
        format!("the Parquet data cannot be read: {error}"),
    )
}

fn check_names(schema: &Schema) -> Result<(), FileFault> {
    let mut seen = HashSet::new();
    match schema
        .fields()
        .iter()
        .find(|field| !seen.insert(field.name()))
    {
        Some(field) => Err(FileFault::new(
            ParkReason::NotThisFormat,
            format!("column {} stands twice", field.name()),
        )),
        None => Ok(()),
    }
}

/// The columns of INT96, an old form of instants.
fn int96_columns(metadata: &ArrowReaderMetadata) -> Result<Vec<usize>, FileFault> {
    let descriptor = metadata.parquet_schema();
    let mut roots = Vec::new();
    for (leaf, column) in descriptor.columns().iter().enumerate() {
        if column.physical_type() != PhysicalType::INT96 {
            continue;
        }
        let root = descriptor.get_column_root_idx(leaf);
        if !descriptor.get_column_root(leaf).is_primitive() {
            let detail = format!(
                "column {}: INT96 inside of a nested type is not supported",
                column.path().string()
            );
            return Err(FileFault::new(ParkReason::Unreadable, detail));
        }
        roots.push(root);
    }
    Ok(roots)
}

/// INT96 reaches further than nanoseconds in 64 bits do, so it is read as microseconds.
fn with_micros(schema: &Schema, columns: &[usize]) -> Arc<Schema> {
    let fields = schema.fields().iter().enumerate().map(|(index, field)| {
        if columns.contains(&index) {
            Arc::new(
                Field::new(field.name(), timestamp_type(), field.is_nullable())
                    .with_metadata(field.metadata().clone()),
            )
        } else {
            field.clone()
        }
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The library cuts off what is finer than a microsecond; the same values as nanoseconds show where.
fn finer_than_micros(
    micros: &RecordBatch,
    nanos: &RecordBatch,
    columns: &[usize],
) -> Vec<(usize, Vec<bool>)> {
    let compare = |(place, column): (usize, &usize)| {
        let micros = micros
            .column(*column)
            .as_any()
            .downcast_ref::<TimestampMicrosecondArray>();
        let nanos = nanos
            .column(place)
            .as_any()
            .downcast_ref::<TimestampNanosecondArray>();
        let finer = match (micros, nanos) {
            // Nanoseconds wrap around, and so does the product; equality holds all the same.
            (Some(micros), Some(nanos)) => {
                let pairs = micros.values().iter().zip(nanos.values());
                pairs
                    .map(|(micros, nanos)| micros.wrapping_mul(1000) != *nanos)
                    .collect()
            }
            _ => vec![true; nanos.map_or(0, |array| array.len())],
        };
        (*column, finer)
    };
    columns.iter().enumerate().map(compare).collect()
}

/// Puts the rows of a loaded file where they belong.
pub(super) fn read<'a>(loaded: &'a Loaded, rows: &mut Rows<'a>) {
    for (batch, too_fine) in loaded.batches.iter().zip(&loaded.too_fine) {
        let schema = batch.schema_ref();
        let targets: Vec<_> = schema
            .fields()
            .iter()
            .map(|field| rows.index_of(field.name()))
            .collect();
        for row in 0..batch.num_rows() {
            match read_row(batch, too_fine, &targets, row, rows) {
                Ok(()) => rows.take(Place::default()),
                Err(fault) => rows.refuse(Place::default(), fault, row_json(batch, row)),
            }
        }
    }
}

fn read_row<'a>(
    batch: &'a RecordBatch,
    too_fine: &[(usize, Vec<bool>)],
    targets: &[Option<usize>],
    row: usize,
    rows: &mut Rows<'a>,
) -> Result<(), RecordFault> {
    for (column, (array, target)) in batch.columns().iter().zip(targets).enumerate() {
        let is_too_fine = too_fine
            .iter()
            .any(|(index, rows)| *index == column && rows.get(row) == Some(&true));
        let value = ArrowValue {
            array: array.as_ref(),
            row,
            is_too_fine,
        };
        match target {
            Some(index) => rows.set(*index, &value)?,
            None => {
                let name = batch.schema_ref().field(column).name();
                rows.set_unknown(&Cow::Borrowed(name.as_str()), &value)?;
            }
        }
    }
    Ok(())
}
