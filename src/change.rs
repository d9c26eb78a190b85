//! The vocabulary that all parts share: ids, the columns that the loader adds, why a record or a file is refused.

use std::fmt;

/// A micro-batch; only rises, even across a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub i64);

impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A version of a Delta table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub i64);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Fields of a good row that fit no column, as JSON.
pub const RESCUED_DATA: &str = "_rescued_data";
/// The columns that the record carried, as a JSON array, where a column that it does not carry is to keep its value.
pub const PRESENT_COLUMNS: &str = "_present_columns";
/// The version of the snapshot that the file is, told by its name.
pub const SNAPSHOT_VERSION: &str = "_snapshot_version";
/// What a change in an envelope does: one of the words of `envelope::Op`.
pub const OP: &str = "_op";
/// Where a change in an envelope stands in the order of its source, as a text that sorts so.
pub const SEQUENCE: &str = "_sequence";
/// The row before a change in an envelope, as JSON.
pub const BEFORE: &str = "_before";
/// What else an envelope says of a change, as JSON.
pub const ENVELOPE: &str = "_envelope";
/// The file of a row, relative to the landing folder.
pub const FILE_PATH: &str = "_file_path";
/// The number of a record in its file, from 1.
pub const FILE_ROW: &str = "_file_row";
/// The modification time of the file when it was read.
pub const FILE_MODIFIED_AT: &str = "_file_modified_at";
/// The micro-batch that brought a row.
pub const BATCH_ID: &str = "_batch_id";
/// When the micro-batch was loaded.
pub const LOADED_AT: &str = "_loaded_at";
/// The flag of a soft delete in silver.
pub const DELETED: &str = "deleted";
/// The sequence from which on a row of silver was current (SCD type 2).
pub const START_AT: &str = "__START_AT";
/// The sequence at which it was no more; NULL while it is current (SCD type 2).
pub const END_AT: &str = "__END_AT";

/// Why a record is refused to quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RejectReason {
    /// The text is not of the format.
    Malformed,
    /// A JSON line or an element of a document that is no object.
    NotAnObject,
    /// A value does not read as its column's type.
    TypeMismatch,
    /// A number is beyond its column's range.
    Overflow,
    /// A decimal has more digits behind the point than its column.
    DecimalScale,
    /// A time without offset in a TIMESTAMP column.
    AmbiguousTimestamp,
    /// A key column is NULL or absent.
    NullKey,
    /// A sequence column is NULL or absent.
    NullSequence,
    /// The operation is not in the closed set.
    UnknownOp,
    /// The operation is known and cannot be applied here.
    UnsupportedOp,
    /// Nested deeper than the limit.
    TooDeep,
    /// Larger than the limit.
    TooLarge,
    /// Not UTF-8, or not the encoding that is set.
    InvalidUtf8,
    /// A name stands twice in one object.
    DuplicateKey,
    /// A CSV record with more or fewer fields than its header.
    ColumnCount,
    /// A new column differs from a known one in case only.
    ColumnCaseConflict,
    /// A new column has a name that no table takes.
    InvalidColumnName,
    /// A partition column has a value that no partition can have.
    InvalidPartitionValue,
}

impl RejectReason {
    /// The word in the quarantine table.
    pub fn as_str(self) -> &'static str {
        match self {
            RejectReason::Malformed => "malformed",
            RejectReason::NotAnObject => "not_an_object",
            RejectReason::TypeMismatch => "type_mismatch",
            RejectReason::Overflow => "overflow",
            RejectReason::DecimalScale => "decimal_scale",
            RejectReason::AmbiguousTimestamp => "ambiguous_timestamp",
            RejectReason::NullKey => "null_key",
            RejectReason::NullSequence => "null_sequence",
            RejectReason::UnknownOp => "unknown_op",
            RejectReason::UnsupportedOp => "unsupported_op",
            RejectReason::TooDeep => "too_deep",
            RejectReason::TooLarge => "too_large",
            RejectReason::InvalidUtf8 => "invalid_utf8",
            RejectReason::DuplicateKey => "duplicate_key",
            RejectReason::ColumnCount => "column_count",
            RejectReason::ColumnCaseConflict => "column_case_conflict",
            RejectReason::InvalidColumnName => "invalid_column_name",
            RejectReason::InvalidPartitionValue => "invalid_partition_value",
        }
    }
}

/// Why a file is parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ParkReason {
    /// A loaded file has other bytes now.
    ChangedAfterLoad,
    /// The file cannot be opened or read.
    Unreadable,
    /// A compressed stream ends early or is damaged, or a JSON document is never closed.
    TruncatedStream,
    /// A CSV quote is never closed.
    UnclosedQuote,
    /// The bytes are not of the format.
    NotThisFormat,
    /// The text is in another encoding than the settings say.
    UnsupportedEncoding,
    /// More refused records than `max_bad_records`, `max_bad_percent` or `on_bad_record` allow.
    TooManyBadRecords,
    /// A new column under `fail_on_new_columns`.
    NewColumns,
    /// The file went away before it was loaded.
    Vanished,
    /// Unpacked it is larger than the limit.
    TooLarge,
    /// A snapshot, and a newer one is loaded.
    LateSnapshot,
    /// A snapshot whose name tells no version.
    NoSnapshotVersion,
}

impl ParkReason {
    /// Every reason, for parsing and for the docs.
    pub const ALL: [ParkReason; 12] = [
        ParkReason::ChangedAfterLoad,
        ParkReason::Unreadable,
        ParkReason::TruncatedStream,
        ParkReason::UnclosedQuote,
        ParkReason::NotThisFormat,
        ParkReason::UnsupportedEncoding,
        ParkReason::TooManyBadRecords,
        ParkReason::NewColumns,
        ParkReason::Vanished,
        ParkReason::TooLarge,
        ParkReason::LateSnapshot,
        ParkReason::NoSnapshotVersion,
    ];

    /// The word in the checkpoint.
    pub fn as_str(self) -> &'static str {
        match self {
            ParkReason::ChangedAfterLoad => "changed_after_load",
            ParkReason::Unreadable => "unreadable",
            ParkReason::TruncatedStream => "truncated_stream",
            ParkReason::UnclosedQuote => "unclosed_quote",
            ParkReason::NotThisFormat => "not_this_format",
            ParkReason::UnsupportedEncoding => "unsupported_encoding",
            ParkReason::TooManyBadRecords => "too_many_bad_records",
            ParkReason::NewColumns => "new_columns",
            ParkReason::Vanished => "vanished",
            ParkReason::TooLarge => "too_large",
            ParkReason::LateSnapshot => "late_snapshot",
            ParkReason::NoSnapshotVersion => "no_snapshot_version",
        }
    }
}

/// A file that cannot be loaded as it is, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFault {
    /// The kind.
    pub reason: ParkReason,
    /// One line for the operator, with line or offset where there is one.
    pub detail: String,
}

impl FileFault {
    /// Makes a fault.
    pub fn new(reason: ParkReason, detail: impl Into<String>) -> Self {
        FileFault {
            reason,
            detail: detail.into(),
        }
    }
}

/// One refused record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    /// From 1, counting every record of the file.
    pub file_row: i64,
    /// The physical line on which the record starts, from 1; `None` where the format has no lines.
    pub file_line: Option<i64>,
    /// Where the record starts in the (unpacked) file; `None` where the format has no such place.
    pub byte_offset: Option<i64>,
    /// The kind.
    pub reason: RejectReason,
    /// Names column and value.
    pub detail: String,
    /// The record as delivered; bytes that are not UTF-8 stand as `\xNN`.
    pub raw: String,
}

/// What a column makes of a value that was rescued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RescuedValue {
    /// It holds the value.
    Fits,
    /// It holds the value but for fields that a STRUCT of its type lacks.
    FitsInPart,
    /// It cannot hold the value; the words continue a sentence that begins with it.
    Unfit(String),
}
