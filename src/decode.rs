//! Turns the bytes of one landing file into Arrow rows and rejects.
//!
//! Every record of a file becomes exactly one row or one reject, with its exact values or with the reason; a file
//! whose framing is lost gives neither. Nothing depends on time zone, locale or other files. Which rejects are too
//! many, and what keys and operations mean, is left to the caller.

mod arrow_rows;
mod arrow_text;
mod arrow_value;
mod avro;
mod blocks;
mod changes;
mod columns;
mod connect;
mod csv;
mod documents;
mod encoding;
mod escape;
mod format;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod head;
mod infer;
mod json;
mod layout;
mod leaf;
mod marks;
mod number;
mod own;
mod packing;
mod parquet;
mod rows;
mod stretches;
mod text;
mod time;
mod together;
mod token;
mod typed;
mod unpack;
mod value;

pub use crate::schema::{NewColumn, widen};
pub use blocks::{Block, Blocks, Framing};
pub use head::{HEAD_BYTES_MAX, HEAD_COLUMNS_MAX, HEAD_RECORDS_MAX, Head};
pub(crate) use rows::RecordFault;
pub use stretches::Stretches;
pub(crate) use text::{json_text, shorten};
pub use together::{Together, is_for_together};
pub(crate) use token::{Member, Token, elements, members, one_value};
pub(crate) use typed::{format_by_name, has_typed_values, rescued_column};
pub use typed::{shows_columns, value_of_text, values_of_record};
pub use unpack::stream::{Unpacked, fault_of};

use crate::change::{FileFault, ParkReason, Reject};
use crate::schema::TableSchema;
use crate::settings::{Envelope, SnapshotVersion, SourceSettings, TextEncoding};
use arrow::array::RecordBatch;
use arrow::datatypes::DataType;
use blocks::Content;
use bytes::Bytes;
use format::FileFormat;
use rows::{Before, Rows};
use std::collections::HashSet;
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
    /// Filled where the schema may take them; the caller merges them over the files of a batch, extends the schema and decodes again.
    /// Of a part or a block, the type is NULL where no value told it so far.
    pub new_columns: Vec<NewColumn>,
    /// Where the first value of each of them stands.
    pub new_column_places: Vec<String>,
    /// The unpacked bytes that `positions` point into; empty for formats without such places.
    pub text: Bytes,
    /// Unpacked bytes of the file before them.
    pub text_start: usize,
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
    read(path, bytes, settings, &|reader| {
        Rows::new(path, schema, settings, reader)
    })
}

/// The same in parts of `rows_max` records or a few more, of which `take` gets one after the other; each has the new columns
/// up to its end.
///
/// A fault means that no row of the file may load, those of the parts before it neither.
pub fn decode_in_parts(
    path: &str,
    bytes: Bytes,
    schema: &TableSchema,
    settings: &SourceSettings,
    rows_max: usize,
    take: &dyn Fn(Decoded),
) -> Result<(), FileFault> {
    let last = read(path, bytes, settings, &|reader| {
        Rows::new(path, schema, settings, reader).in_parts(rows_max, take)
    })?;
    take(last);
    Ok(())
}

/// Decodes a block of a file; what is wrong is named by its place in the file.
///
/// That a block brings new columns is no fault of it, whatever the settings say: the caller has all of them.
pub fn decode_block(
    path: &str,
    block: Block,
    schema: &TableSchema,
    settings: &SourceSettings,
) -> Result<Decoded, FileFault> {
    let header = match &block.content {
        Content::Lines | Content::Documents(_) => {
            return decode_json_block(path, &block, schema, settings);
        }
        Content::Batches(batches) => {
            let rows = Rows::new(path, schema, settings, reader(None, None)?);
            let mut rows = rows.behind(block.before);
            parquet::read(batches, &mut rows);
            return rows.finish_stretch();
        }
        Content::Separated(header) => header,
    };
    let text = encoding::Text::of_utf8(&block.bytes);
    let line = block.before.lines + 1;
    let before = Before {
        // Lines are counted from the beginning of the file already.
        lines: 0,
        ..block.before
    };
    let mut rows = Rows::new(path, schema, settings, csv_values(settings)?)
        .of_text(text.origin())
        .behind(before);
    match block.too_large {
        Some(length) => csv::refuse_record(line, length, &mut rows),
        None => csv::read_block(&text.bytes, line, header, &settings.csv, &mut rows)?,
    }
    rows.finish_stretch()
}

fn decode_json_block(
    path: &str,
    block: &Block,
    schema: &TableSchema,
    settings: &SourceSettings,
) -> Result<Decoded, FileFault> {
    let text = match block.before.bytes {
        0 => encoding::read(&block.bytes, settings.json.encoding)?,
        _ => encoding::Text::of_utf8(&block.bytes),
    };
    let mut rows = Rows::new(path, schema, settings, json_values(settings)?)
        .of_text(text.origin())
        .behind(block.before);
    match (block.too_large, &block.content) {
        (Some(length), _) => json::refuse_line(text.start, length, &mut rows),
        (None, Content::Documents(places)) => {
            json::read_places(&text.bytes, places, settings, &mut rows);
        }
        (None, Content::Lines | Content::Separated(_) | Content::Batches(_)) => {
            json::read_lines(&text.bytes, text.start, settings, &mut rows);
        }
    }
    rows.finish_stretch()
}

/// Whether a file can be read in blocks, told by its name and the settings; the first bytes of a text must be asked, too.
pub fn is_of_blocks(path: &str, settings: &SourceSettings) -> bool {
    format_of_blocks(path, settings).is_some()
}

/// Whether the blocks of a file that has some are those of [`Stretches`].
pub fn is_of_stretches(path: &str, settings: &SourceSettings) -> bool {
    format_of_blocks(path, settings) == Some(FileFormat::Parquet)
}

/// The format of a file that can be read in blocks: Parquet or a text in UTF-8, of which no record tells what another one does.
fn format_of_blocks(path: &str, settings: &SourceSettings) -> Option<FileFormat> {
    if settings.snapshot_version == SnapshotVersion::FileName {
        return None;
    }
    let has_changes_alone = matches!(settings.envelope, Envelope::None | Envelope::Dms);
    if format::is_parquet_name(path, settings) {
        return has_changes_alone.then_some(FileFormat::Parquet);
    }
    let format = format::of_text_name(path, settings)?;
    let (encoding, is_alone) = match format {
        FileFormat::Json => (settings.json.encoding, settings.envelope == Envelope::None),
        FileFormat::Csv { .. } => (settings.csv.encoding, has_changes_alone),
        FileFormat::Parquet | FileFormat::Avro => return None,
    };
    (encoding == TextEncoding::Utf8 && is_alone).then_some(format)
}

/// A file brings new columns and must not, each with the place of a value; the first place of each is told.
pub(crate) fn new_columns_fault<'c>(
    arrivals: impl Iterator<Item = (&'c str, &'c str)>,
) -> FileFault {
    let mut seen = HashSet::new();
    let firsts = arrivals.filter(|(name, _)| seen.insert(*name));
    let names: Vec<String> = firsts
        .map(|(name, first)| format!("{name} (first in {first})"))
        .collect();
    let detail = format!("new columns: {}", names.join(", "));
    FileFault::new(ParkReason::NewColumns, detail)
}

/// Whether the name of a file says that its bytes are the text of its records.
pub fn is_plain_text_name(path: &str) -> bool {
    let (stem, packing) = packing::split_packing(path);
    packing.is_none() && !["parquet", "avro"].contains(&format::extension_of(stem).as_str())
}

/// Whether the first bytes of a file, a few of them, show nothing else than a text.
pub fn begins_as_text(bytes: &[u8]) -> bool {
    !bytes.starts_with(parquet::MAGIC) && format::foreign(bytes).is_none()
}

/// Reads a whole file with the rows that `rows` makes, given the reader of their values.
fn read<'a>(
    path: &str,
    bytes: Bytes,
    settings: &SourceSettings,
    rows: &dyn Fn(ValueReader) -> Rows<'a>,
) -> Result<Decoded, FileFault> {
    let is_by_name = settings.snapshot_version == SnapshotVersion::FileName;
    if is_by_name && rows::snapshot_version(path).is_none() {
        let detail = format!(
            "the name {path} does not tell one number, date (2024-01-31) or time as the snapshot's version"
        );
        return Err(FileFault::new(ParkReason::NoSnapshotVersion, detail));
    }
    let (format, bytes) = format::open(path, bytes, settings)?;
    match format {
        FileFormat::Json => read_json(&bytes, settings, rows),
        FileFormat::Csv { delimiter } => read_csv(&bytes, settings, delimiter, rows),
        FileFormat::Avro => {
            let loaded = avro::load(&bytes)?;
            let mut rows = rows(reader(None, None)?);
            avro::read(&loaded, &mut rows);
            rows.finish()
        }
        FileFormat::Parquet => {
            let loaded = parquet::load(&bytes)?;
            let mut rows = rows(reader(None, None)?);
            parquet::read(&loaded, &mut rows);
            rows.finish()
        }
    }
}

/// The type that a new column of CSV gets from one field.
pub fn text_type(text: &str) -> DataType {
    infer::text_type(text, &ValueReader::new(TimeFormats::default()))
}

fn read_json<'a>(
    bytes: &Bytes,
    settings: &SourceSettings,
    rows: &dyn Fn(ValueReader) -> Rows<'a>,
) -> Result<Decoded, FileFault> {
    let dialect = &settings.json;
    let text = encoding::read(bytes, dialect.encoding)?;
    let mut rows = rows(json_values(settings)?).of_text(text.origin());
    if dialect.multi_line {
        json::read_documents(&text.bytes, text.start, settings, &mut rows)?;
    } else {
        json::read_lines(&text.bytes, text.start, settings, &mut rows);
    }
    rows.finish()
}

fn read_csv<'a>(
    bytes: &Bytes,
    settings: &SourceSettings,
    delimiter: u8,
    rows: &dyn Fn(ValueReader) -> Rows<'a>,
) -> Result<Decoded, FileFault> {
    let dialect = &settings.csv;
    let text = encoding::read(bytes, dialect.encoding)?;
    let mut rows = rows(csv_values(settings)?).of_text(text.origin());
    csv::read(&text.bytes, text.start, settings, delimiter, &mut rows)?;
    rows.finish()
}

fn json_values(settings: &SourceSettings) -> Result<ValueReader, FileFault> {
    let dialect = &settings.json;
    reader(
        dialect.date_format.as_deref(),
        dialect.timestamp_format.as_deref(),
    )
}

fn csv_values(settings: &SourceSettings) -> Result<ValueReader, FileFault> {
    let dialect = &settings.csv;
    reader(
        dialect.date_format.as_deref(),
        dialect.timestamp_format.as_deref(),
    )
}

fn reader(
    date_format: Option<&str>,
    timestamp_format: Option<&str>,
) -> Result<ValueReader, FileFault> {
    TimeFormats::new(date_format, timestamp_format).map(ValueReader::new)
}

impl Decoded {
    /// The names of the new columns, each with the place of its first value.
    pub(crate) fn arrivals(&self) -> impl Iterator<Item = (&str, &str)> {
        let names = self.new_columns.iter().map(|column| column.name.as_str());
        names.zip(self.new_column_places.iter().map(String::as_str))
    }

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
            .and_then(|offset| offset.checked_sub(self.text_start))
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
pub(crate) mod testing;
