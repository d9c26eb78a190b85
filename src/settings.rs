//! Validated settings and their named defaults.
//!
//! What is typed (a settings file, flags) becomes [`Settings`] before anything in the world is touched.

mod check;
mod encoding;
mod file;
mod keys;
mod load;
mod reader;
mod rules;
mod unsupported;
mod value;

pub use encoding::TextEncoding;
pub use keys::{SETTING_KEYS, SettingKey};
pub(crate) use load::as_name;
pub use load::{FlagValue, Request};

use crate::change::START_AT;
use std::path::PathBuf;
use std::time::Duration;

/// The settings of every pipeline that one call may run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// In the order of the file.
    pub pipelines: Vec<PipelineSettings>,
}

/// One landing folder, its checkpoint and its tables. Paths are absolute.
#[derive(Clone, Debug)]
pub struct PipelineSettings {
    /// The name in `[pipeline.NAME]`.
    pub name: String,
    /// The SQLite checkpoint.
    pub checkpoint: PathBuf,
    /// Where files come from.
    pub source: SourceSettings,
    /// Where rows go as they came.
    pub bronze: BronzeSettings,
    /// Where changes are folded; `None` loads bronze only.
    pub silver: Option<SilverSettings>,
    /// How the tables are kept up.
    pub maintenance: MaintenanceSettings,
}

/// `[pipeline.P.source]`.
#[derive(Clone, Debug)]
pub struct SourceSettings {
    /// The landing folder.
    pub path: PathBuf,
    /// How files are read.
    pub format: Format,
    /// Which files; `None` means the default of the format.
    pub path_glob_filter: Option<String>,
    /// Spark DDL, not yet parsed.
    pub schema_hints: String,
    /// Columns without a hint get a type from their values; otherwise STRING.
    pub infer_column_types: bool,
    /// The files are snapshots, and what tells the version of each.
    pub snapshot_version: SnapshotVersion,
    /// What a column that the table does not have means.
    pub schema_evolution_mode: SchemaEvolutionMode,
    /// What a record that cannot be read means.
    pub on_bad_record: OnBadRecord,
    /// What a value that does not fit its column means.
    pub on_type_mismatch: OnTypeMismatch,
    /// Past this many refused records a file is parked; `None` is unlimited.
    pub max_bad_records: Option<u64>,
    /// Past this share of refused records (0 to 100) a file is parked; `None` is unlimited.
    pub max_bad_percent: Option<f64>,
    /// Files that are there at the first start are loaded.
    pub include_existing_files: bool,
    /// What a changed file of a known name means.
    pub allow_overwrites: AllowOverwrites,
    /// What the same bytes under another name mean.
    pub duplicate_content: DuplicateContent,
    /// The most files in one micro-batch.
    pub max_files_per_trigger: usize,
    /// The most bytes in one micro-batch; a single larger file is a batch of its own.
    pub max_bytes_per_trigger: u64,
    /// Whether events wake the loop.
    pub discovery: Discovery,
    /// A full listing at least this often.
    pub listing_interval: Duration,
    /// How long a file must be unchanged.
    pub settle: Duration,
    /// What happens to a source file when silver holds its rows.
    pub clean_source: CleanSource,
    /// The shape of the records.
    pub envelope: Envelope,
    /// The keys of silver, where there is one: a change in an envelope that alters them is two changes.
    pub keys: Vec<String>,
    /// A column that a record does not carry.
    pub absent_columns: AbsentColumns,
    /// A text that means "value not sent"; `None` when not set.
    pub unavailable_value: Option<String>,
    /// `[pipeline.P.source.csv]`.
    pub csv: CsvSettings,
    /// `[pipeline.P.source.json]`.
    pub json: JsonSettings,
}

/// `[pipeline.P.source.csv]`.
#[derive(Clone, Debug)]
pub struct CsvSettings {
    /// One byte between fields.
    pub delimiter: u8,
    /// The first record names the columns; otherwise the order of `schema_hints` does.
    pub header: bool,
    /// `None` switches quoting off.
    pub quote: Option<u8>,
    /// The byte before a quote inside a quoted field; the default is the quote itself.
    pub escape: Option<u8>,
    /// An unquoted field of this text is NULL; the empty field always is.
    pub null_value: Option<String>,
    /// A quoted empty field stands for this text; `None` is the empty one.
    pub empty_value: Option<String>,
    /// Blanks before a field are no part of it.
    pub ignore_leading_white_space: bool,
    /// Blanks behind a field are no part of it.
    pub ignore_trailing_white_space: bool,
    /// Lines before the header or the first record that are left out.
    pub skip_rows: u64,
    /// The byte that ends a line; `None` is LF or CRLF.
    pub line_sep: Option<u8>,
    /// How characters are written as bytes.
    pub encoding: TextEncoding,
    /// A quoted field may hold line breaks.
    pub multi_line: bool,
    /// Lines that start with this byte are no records.
    pub comment: Option<u8>,
    /// chrono format or Spark pattern of dates; `None` is ISO 8601.
    pub date_format: Option<String>,
    /// chrono format or Spark pattern of timestamps; `None` is ISO 8601.
    pub timestamp_format: Option<String>,
}

impl Default for CsvSettings {
    fn default() -> Self {
        CsvSettings {
            delimiter: b',',
            header: true,
            quote: Some(b'"'),
            escape: None,
            null_value: None,
            empty_value: None,
            ignore_leading_white_space: false,
            ignore_trailing_white_space: false,
            skip_rows: 0,
            line_sep: None,
            encoding: TextEncoding::Utf8,
            multi_line: true,
            comment: None,
            date_format: None,
            timestamp_format: None,
        }
    }
}

/// `[pipeline.P.source.json]`.
#[derive(Clone, Debug, Default)]
pub struct JsonSettings {
    /// A file holds documents, each an object or an array of objects; otherwise one object a line.
    pub multi_line: bool,
    /// How characters are written as bytes.
    pub encoding: TextEncoding,
    /// chrono format or Spark pattern of timestamps; `None` is ISO 8601.
    pub timestamp_format: Option<String>,
    /// chrono format or Spark pattern of dates; `None` is ISO 8601.
    pub date_format: Option<String>,
}

/// `[pipeline.P.bronze]`.
#[derive(Clone, Debug)]
pub struct BronzeSettings {
    /// The Delta table; the quarantine table is beside it, with `_quarantine` behind the name.
    pub path: PathBuf,
    /// Partition columns.
    pub partition_by: Vec<String>,
}

impl BronzeSettings {
    /// The quarantine table beside bronze.
    pub fn quarantine_path(&self) -> PathBuf {
        let mut name = self.path.file_name().unwrap_or_default().to_os_string();
        name.push("_quarantine");
        self.path.with_file_name(name)
    }
}

/// `[pipeline.P.silver]`.
#[derive(Clone, Debug)]
pub struct SilverSettings {
    /// The Delta table.
    pub path: PathBuf,
    /// The columns that name a row; never empty.
    pub keys: Vec<String>,
    /// The source's order, compared left to right; never empty.
    pub sequence_by: Vec<String>,
    /// What each event is.
    pub events: EventRules,
    /// The files are snapshots: each sequence is the whole table.
    pub snapshots: bool,
    /// Which columns reach silver beside keys and sequence.
    pub columns: ColumnSelection,
    /// Whether a NULL in an upsert keeps the value so far.
    pub ignore_null_updates: IgnoreNullUpdates,
    /// A column of bronze that lists the columns which its event carries; the others keep the value so far. Under
    /// `absent_columns = "keep"` it is the loader's own.
    pub columns_to_update: Option<String>,
    /// One row for each key, or its history.
    pub scd_type: ScdType,
    /// What a delete leaves behind in a silver of SCD type 1.
    pub deletes: Deletes,
    /// How rows that change are replaced.
    pub write_mode: WriteMode,
    /// Whether a key index is kept.
    pub key_index: KeyIndexMode,
    /// Partition columns.
    pub partition_by: Vec<String>,
    /// Whether the table tells its readers what changed.
    pub change_data_feed: bool,
}

impl SilverSettings {
    /// The columns that tell one row of the table from another: the keys, and the start of a version.
    pub fn row_columns(&self) -> Vec<String> {
        let mut columns = self.keys.clone();
        if matches!(self.scd_type, ScdType::Two { .. }) {
            columns.push(START_AT.to_string());
        }
        columns
    }
}

/// `[pipeline.P.maintenance]`.
#[derive(Clone, Debug)]
pub struct MaintenanceSettings {
    /// The loop compacts and writes log checkpoints by itself, between batches.
    pub auto: bool,
    /// So many small files of a partition make a compaction worth it.
    pub min_num_files: usize,
    /// Files below this size are small, bytes.
    pub min_file_size: u64,
    /// Joined files aim at this size, bytes.
    pub target_file_size: u64,
    /// A file with this share of deleted rows (0 to 1) is written again without them.
    pub max_deleted_rows_ratio: f64,
    /// One compaction of the loop reads no more than this, bytes.
    pub max_compact_bytes: u64,
    /// Commits between two log checkpoints.
    pub log_checkpoint_interval: u64,
    /// Log entries younger than this stay.
    pub log_retention_duration: Duration,
    /// Files that left a table stay so long, and so does its change data.
    pub deleted_file_retention_duration: Duration,
}

/// How an event is told to be an upsert, a delete or a truncate.
#[derive(Clone, Debug)]
pub enum EventRules {
    /// SQL predicates; every other event is an upsert.
    Predicates {
        /// `apply_as_deletes`; `None` means no deletes.
        deletes: Option<String>,
        /// `apply_as_truncates`; `None` means no truncates. An event that is both is a truncate.
        truncates: Option<String>,
    },
    /// A closed set of values of one column.
    Operations {
        /// The column.
        column: String,
        /// Values that upsert.
        upsert: Vec<String>,
        /// Values that delete.
        delete: Vec<String>,
        /// Values that empty the table.
        truncate: Vec<String>,
        /// Values that stay in bronze and out of silver.
        skip: Vec<String>,
    },
}

/// `column_list` or `except_column_list`, and the same of `track_history`.
#[derive(Clone, Debug)]
pub enum ColumnSelection {
    /// All columns but these.
    AllExcept(Vec<String>),
    /// Only these.
    Only(Vec<String>),
}

impl ColumnSelection {
    /// Whether it takes a column of this name, without regard to case.
    pub fn takes(&self, name: &str) -> bool {
        let named = |list: &[String]| {
            list.iter()
                .any(|entry| entry.to_lowercase() == name.to_lowercase())
        };
        match self {
            ColumnSelection::AllExcept(list) => !named(list),
            ColumnSelection::Only(list) => named(list),
        }
    }
}

/// `ignore_null_updates`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IgnoreNullUpdates {
    /// NULL overwrites.
    Never,
    /// NULL keeps the value so far, in all columns.
    All,
    /// NULL keeps the value so far in these columns.
    Columns(Vec<String>),
}

/// `format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// JSON lines or documents.
    Json,
    /// Separated values.
    Csv,
    /// Apache Parquet.
    Parquet,
    /// Apache Avro object files.
    Avro,
    /// Each file by its name and first bytes.
    Auto,
}

/// Endings of names that tell how a file is packed; the default filters take each behind the ending of the format.
pub const PACKED_ENDINGS: [&str; 11] = [
    "gz", "zst", "zstd", "bz2", "xz", "sz", "snappy", "lz4", "zz", "zlib", "deflate",
];

/// `schema_evolution_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaEvolutionMode {
    /// New columns are added at the end of the table.
    AddNewColumns,
    /// New columns go to `_rescued_data`.
    Rescue,
    /// A file with a new column is parked.
    FailOnNewColumns,
    /// New columns are ignored.
    None,
}

/// `on_bad_record`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnBadRecord {
    /// The record goes to quarantine, the others load.
    Quarantine,
    /// The file is parked, none of its rows load.
    FailFile,
    /// The loader stops with an error.
    Stop,
}

/// `on_type_mismatch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnTypeMismatch {
    /// The record goes to quarantine.
    Quarantine,
    /// The value goes to `_rescued_data`, its column is NULL.
    Rescue,
}

/// `allow_overwrites`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllowOverwrites {
    /// The file is parked as `changed_after_load`.
    Park,
    /// The change is not looked at.
    Ignore,
    /// The file's rows are replaced.
    Replace,
}

/// `duplicate_content`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateContent {
    /// The path alone is the identity.
    Load,
    /// The second file is loaded with no rows.
    Skip,
}

/// `discovery`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// Events and listing.
    Auto,
    /// Listing alone.
    List,
}

/// `clean_source`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CleanSource {
    /// Files stay.
    Off,
    /// Files move to this folder, with their path below the landing folder.
    Move(PathBuf),
    /// Files are deleted.
    Delete,
}

/// `envelope`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Envelope {
    /// A record is a row.
    None,
    /// Debezium, with `before` and `after` or unwrapped.
    Debezium,
    /// AWS DMS in S3.
    Dms,
    /// The change data feed of a Delta table.
    DeltaCdf,
    /// Maxwell.
    Maxwell,
    /// wal2json, in both its formats.
    Wal2Json,
    /// Rows of change tables of SQL Server.
    SqlServer,
    /// Canal.
    Canal,
    /// GoldenGate, with before and after or with flat rows.
    GoldenGate,
    /// Rows of change tables of Qlik Replicate.
    Qlik,
}

/// `absent_columns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbsentColumns {
    /// Absent is NULL.
    Null,
    /// Absent keeps the value so far.
    Keep,
}

/// `snapshot_version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotVersion {
    /// The files are changes, not snapshots.
    None,
    /// The columns of `sequence_by`.
    Column,
    /// The last number of the file's name.
    FileName,
}

/// `deletes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletes {
    /// The row stays with `deleted = true`.
    Soft,
    /// The row goes.
    Hard,
}

/// `stored_as_scd_type`.
#[derive(Clone, Debug)]
pub enum ScdType {
    /// One row for each key.
    One,
    /// One row for each version of a key, with the sequences between which it was current.
    Two {
        /// Columns whose changes open a new version; the others take the newest value in it. Keys and sequence open none.
        tracked: ColumnSelection,
    },
}

impl EventRules {
    /// Whether an event can be a truncate.
    pub fn has_truncates(&self) -> bool {
        match self {
            EventRules::Predicates { truncates, .. } => truncates.is_some(),
            EventRules::Operations { truncate, .. } => !truncate.is_empty(),
        }
    }
}

/// `key_index`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyIndexMode {
    /// For large tables, made when nothing waits.
    Auto,
    /// For tables of any size.
    On,
    /// Never.
    Off,
}

/// `write_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// Deletion vectors.
    MergeOnRead,
    /// Touched files are rewritten.
    CopyOnWrite,
}
