//! Turns the bytes of one landing file into Arrow rows and rejects.
//!
//! Every record of a file becomes exactly one row or one reject, with its exact values or with the reason; a file
//! whose framing is lost gives neither. Nothing depends on time zone, locale or other files. Which rejects are too
//! many, and what keys and operations mean, is left to the caller.

mod arrow_text;
mod arrow_value;
mod avro;
mod changes;
mod columns;
mod connect;
mod csv;
mod documents;
mod encoding;
mod escape;
mod format;
mod head;
mod infer;
mod json;
mod number;
mod own;
mod packing;
mod parquet;
mod rows;
mod text;
mod time;
mod token;
mod typed;
mod unpack;
mod value;

pub use crate::schema::{NewColumn, widen};
pub use head::{HEAD_BYTES_MAX, HEAD_COLUMNS_MAX, HEAD_RECORDS_MAX, Head};
pub(crate) use rows::RecordFault;
pub(crate) use text::{json_text, shorten};
pub(crate) use token::{Member, Token, elements, members, one_value};
pub use typed::{shows_columns, value_of_text, values_of_record};

use crate::change::{FileFault, ParkReason, Reject};
use crate::schema::TableSchema;
use crate::settings::{SnapshotVersion, SourceSettings, TextEncoding};
use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use bytes::Bytes;
use format::FileFormat;
use rows::Rows;
use time::TimeFormats;
use value::ValueReader;

/// A record of JSON or CSV may have so many bytes.
pub const RECORD_BYTES_MAX: usize = 16 << 20;

/// Where one decoded row stands in its file, so that a later refusal can name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowPosition {
    /// From 1, counting every record of the file, refused ones too.
    pub file_row: i64,
    /// The physical line, from 1; `None` where the format has no lines.
    pub file_line: Option<i64>,
    /// First byte of the record in the unpacked file, whatever its encoding; `None` where the format has no such place.
    pub byte_offset: Option<i64>,
    /// Length of the record in bytes of the file, without its line end.
    pub byte_length: i64,
}

/// What one file holds.
#[derive(Debug)]
pub struct Decoded {
    /// The columns of the schema in their order, then `_rescued_data STRING`.
    pub rows: RecordBatch,
    /// One for each row of `rows`.
    pub positions: Vec<RowPosition>,
    /// The refused records; records = rows + rejects.
    pub rejects: Vec<Reject>,
    /// Columns that the schema lacks and that hold a value, with the narrowest type that holds all their values.
    /// Filled only under `add_new_columns`; the caller merges them over the files of a batch, extends the schema and decodes again.
    pub new_columns: Vec<NewColumn>,
    /// The unpacked bytes that `positions` point into; empty for formats without such places.
    pub text: Bytes,
    /// How they are to be read.
    pub encoding: TextEncoding,
}

/// Decodes one whole file. Nothing is written anywhere.
///
/// A fault means that no row of the file may load.
pub fn decode(
    path: &str,
    bytes: Bytes,
    schema: &TableSchema,
    settings: &SourceSettings,
) -> Result<Decoded, FileFault> {
    let is_by_name = settings.snapshot_version == SnapshotVersion::FileName;
    if is_by_name && rows::snapshot_version(path).is_none() {
        let detail = format!(
            "the name {path} does not tell one number, date (2024-01-31) or time as the snapshot's version"
        );
        return Err(FileFault::new(ParkReason::NoSnapshotVersion, detail));
    }
    let (format, bytes) = format::open(path, bytes, settings)?;
    let decoded = match format {
        FileFormat::Json => decode_json(path, &bytes, schema, settings)?,
        FileFormat::Csv { delimiter } => decode_csv(path, &bytes, schema, settings, delimiter)?,
        FileFormat::Avro => {
            let loaded = avro::load(&bytes)?;
            let mut rows = Rows::new(path, schema, settings, reader(None, None)?);
            avro::read(&loaded, &mut rows);
            rows.finish(Bytes::new())?
        }
        FileFormat::Parquet => {
            let loaded = parquet::load(&bytes)?;
            let mut rows = Rows::new(path, schema, settings, reader(None, None)?);
            parquet::read(&loaded, &mut rows);
            rows.finish(Bytes::new())?
        }
    };
    assert_numbered(&decoded);
    Ok(decoded)
}

/// The type that a new column of CSV gets from one field.
pub fn text_type(text: &str) -> DataType {
    infer::text_type(text, &ValueReader::new(TimeFormats::default()))
}

fn decode_json(
    path: &str,
    bytes: &Bytes,
    schema: &TableSchema,
    settings: &SourceSettings,
) -> Result<Decoded, FileFault> {
    let dialect = &settings.json;
    let text = encoding::read(bytes, dialect.encoding)?;
    let values = reader(
        dialect.date_format.as_deref(),
        dialect.timestamp_format.as_deref(),
    )?;
    let mut rows = Rows::new(path, schema, settings, values).of_text(text.origin());
    if dialect.multi_line {
        json::read_documents(&text.bytes, text.start, settings, &mut rows)?;
    } else {
        json::read_lines(&text.bytes, text.start, settings, &mut rows);
    }
    rows.finish(bytes.clone())
}

fn decode_csv(
    path: &str,
    bytes: &Bytes,
    schema: &TableSchema,
    settings: &SourceSettings,
    delimiter: u8,
) -> Result<Decoded, FileFault> {
    let dialect = &settings.csv;
    let text = encoding::read(bytes, dialect.encoding)?;
    let values = reader(
        dialect.date_format.as_deref(),
        dialect.timestamp_format.as_deref(),
    )?;
    let mut rows = Rows::new(path, schema, settings, values).of_text(text.origin());
    csv::read(&text.bytes, text.start, settings, delimiter, &mut rows)?;
    rows.finish(bytes.clone())
}

fn reader(
    date_format: Option<&str>,
    timestamp_format: Option<&str>,
) -> Result<ValueReader, FileFault> {
    TimeFormats::new(date_format, timestamp_format).map(ValueReader::new)
}

/// Every record is one row or one reject, and the numbers leave nothing out.
fn assert_numbered(decoded: &Decoded) {
    assert_eq!(
        decoded.rows.num_rows(),
        decoded.positions.len(),
        "BUG: every row has its position"
    );
    let records = decoded.positions.len() + decoded.rejects.len();
    let last_row = decoded
        .positions
        .last()
        .map_or(0, |position| position.file_row);
    let last_reject = decoded.rejects.last().map_or(0, |reject| reject.file_row);
    assert_eq!(
        i64::try_from(records).ok(),
        Some(last_row.max(last_reject)),
        "BUG: rows and rejects are all records"
    );
}

impl Decoded {
    /// The raw text of row `index`, for a refusal after decoding (null key, unknown operation).
    ///
    /// A row of a format without text is given as JSON, as it was decoded; an index beyond the rows gives nothing.
    pub fn raw(&self, index: usize) -> String {
        let Some(position) = self.positions.get(index) else {
            return String::new();
        };
        let Some(start) = position
            .byte_offset
            .and_then(|offset| usize::try_from(offset).ok())
        else {
            return arrow_text::row_json(&self.rows, index);
        };
        let length = usize::try_from(position.byte_length).unwrap_or(0);
        let bytes = self
            .text
            .get(start..start.saturating_add(length))
            .unwrap_or_default();
        encoding::lossless(bytes, self.encoding)
    }
}

#[cfg(test)]
mod testing;
