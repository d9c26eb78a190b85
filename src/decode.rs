//! Turns the bytes of one landing file into Arrow rows and rejects.

mod columns;
mod number;
mod time;
mod token;
mod value;

use crate::change::{FileFault, Reject};
use crate::schema::TableSchema;
pub use crate::schema::{NewColumn, widen};
use crate::settings::SourceSettings;
use arrow::array::RecordBatch;
use bytes::Bytes;

/// Where one decoded row stands in its file, so that a later refusal can name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowPosition {
    /// From 1, counting every record of the file, refused ones too.
    pub file_row: i64,
    /// The physical line, from 1; `None` where the format has no lines.
    pub file_line: Option<i64>,
    /// First byte of the record in the unpacked file; `None` where the format has no such place.
    pub byte_offset: Option<i64>,
    /// Length of the record in bytes, without its line end.
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
    let _ = (path, bytes, schema, settings);
    todo!()
}

impl Decoded {
    /// The raw text of row `index`, for a refusal after decoding (null key, unknown operation).
    pub fn raw(&self, index: usize) -> String {
        let _ = index;
        todo!()
    }
}
