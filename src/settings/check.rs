//! From the values of one pipeline to [`PipelineSettings`]: types, closed sets and defaults.
//!
//! Every default has its name here. What several settings say together is left to `rules`.

use super::reader::Reader;
use super::value;
use super::*;
use crate::change::{BEFORE, ENVELOPE, OP, PRESENT_COLUMNS, SEQUENCE, SNAPSHOT_VERSION};
use crate::envelope::Op;

const MAX_FILES_PER_TRIGGER: usize = 1000;
const MAX_BYTES_PER_TRIGGER: u64 = 1 << 30;
const LISTING_INTERVAL: Duration = Duration::from_secs(30);
const SETTLE: Duration = Duration::from_millis(500);
const MIN_NUM_FILES: usize = 50;
const MIN_FILE_SIZE: u64 = 32 << 20;
const TARGET_FILE_SIZE: u64 = 128 << 20;
/// Below a quarter, at which an apply writes the file again in its own commit.
const MAX_DELETED_ROWS_RATIO: f64 = 0.2;
const MAX_COMPACT_BYTES: u64 = 64 << 20;
const LOG_CHECKPOINT_INTERVAL: u64 = 100;
const LOG_RETENTION_DURATION: Duration = Duration::from_secs(30 * 24 * 3600);
const DELETED_FILE_RETENTION_DURATION: Duration = Duration::from_secs(7 * 24 * 3600);
const UNLIMITED: &str = "unlimited";

/// Reads all settings of a pipeline; `None` when one without a default is missing.
pub(super) fn pipeline(reader: &mut Reader<'_>) -> Option<PipelineSettings> {
    let checkpoint = required_path(reader, "checkpoint");
    let mut source = source(reader);
    let bronze = bronze(reader);
    let wants_silver = reader.has_table("silver");
    let snapshots = source
        .as_ref()
        .map_or(SnapshotVersion::None, |source| source.snapshot_version);
    let envelope = source
        .as_ref()
        .map_or(Envelope::None, |source| source.envelope);
    let mut silver = silver(reader, snapshots, envelope);
    if let (Some(silver), Some(source)) = (&mut silver, &mut source) {
        presence(reader, source, silver);
        source.keys = silver.keys.clone();
    }
    let maintenance = maintenance(reader);
    if wants_silver && silver.is_none() {
        return None;
    }
    Some(PipelineSettings {
        name: reader.pipeline.to_string(),
        checkpoint: checkpoint?,
        source: source?,
        bronze: bronze?,
        silver,
        maintenance,
    })
}

/// Where absent columns keep their values, the loader's own column lists the others.
fn presence(reader: &mut Reader<'_>, source: &SourceSettings, silver: &mut SilverSettings) {
    if source.envelope != Envelope::None {
        silver.columns_to_update = Some(PRESENT_COLUMNS.to_string());
        return;
    }
    if source.absent_columns == AbsentColumns::Null {
        return;
    }
    if silver.columns_to_update.is_some() {
        let name = reader.name("silver.columns_to_update");
        let message = format!("{name} and absent_columns = \"keep\" exclude each other");
        reader.refuse("silver.columns_to_update", message);
    }
    silver.columns_to_update = Some(PRESENT_COLUMNS.to_string());
}

fn required_path(reader: &mut Reader<'_>, key: &str) -> Option<PathBuf> {
    if !reader.has(key) {
        reader.missing(key, "");
    }
    reader.path(key)
}

fn source(reader: &mut Reader<'_>) -> Option<SourceSettings> {
    let path = required_path(reader, "source.path");
    let envelope = reader.choice("source.envelope", ENVELOPES, Envelope::None);
    let settings = SourceSettings {
        path: path.clone().unwrap_or_default(),
        format: reader.choice("source.format", FORMATS, Format::Auto),
        path_glob_filter: glob(reader),
        schema_hints: reader.text("source.schema_hints").unwrap_or_default(),
        infer_column_types: reader.boolean("source.infer_column_types", true),
        schema_evolution_mode: reader.choice(
            "source.schema_evolution_mode",
            SCHEMA_EVOLUTION_MODES,
            SchemaEvolutionMode::AddNewColumns,
        ),
        on_bad_record: reader.choice(
            "source.on_bad_record",
            &[
                ("quarantine", OnBadRecord::Quarantine),
                ("fail_file", OnBadRecord::FailFile),
                ("stop", OnBadRecord::Stop),
            ],
            OnBadRecord::Quarantine,
        ),
        on_type_mismatch: reader.choice(
            "source.on_type_mismatch",
            &[
                ("quarantine", OnTypeMismatch::Quarantine),
                ("rescue", OnTypeMismatch::Rescue),
            ],
            OnTypeMismatch::Quarantine,
        ),
        max_bad_records: reader.parsed(
            "source.max_bad_records",
            None,
            "a whole number or unlimited",
            |text| unlimited_or(text, value::count),
        ),
        max_bad_percent: reader.parsed(
            "source.max_bad_percent",
            None,
            "a share from 0 to 100 or unlimited",
            |text| unlimited_or(text, value::percent),
        ),
        include_existing_files: reader.boolean("source.include_existing_files", true),
        allow_overwrites: reader.choice(
            "source.allow_overwrites",
            &[
                ("park", AllowOverwrites::Park),
                ("ignore", AllowOverwrites::Ignore),
                ("replace", AllowOverwrites::Replace),
            ],
            AllowOverwrites::Park,
        ),
        duplicate_content: reader.choice(
            "source.duplicate_content",
            &[
                ("load", DuplicateContent::Load),
                ("skip", DuplicateContent::Skip),
            ],
            DuplicateContent::Load,
        ),
        max_files_per_trigger: reader.parsed(
            "source.max_files_per_trigger",
            MAX_FILES_PER_TRIGGER,
            "a whole number from 1",
            |text| {
                value::count(text)
                    .and_then(|count| usize::try_from(count).ok())
                    .filter(|count| *count > 0)
            },
        ),
        max_bytes_per_trigger: reader.parsed(
            "source.max_bytes_per_trigger",
            MAX_BYTES_PER_TRIGGER,
            "a size from 1 byte such as 64MB or 1 GiB",
            |text| value::size(text).filter(|bytes| *bytes > 0),
        ),
        discovery: reader.choice(
            "source.discovery",
            &[("auto", Discovery::Auto), ("list", Discovery::List)],
            Discovery::Auto,
        ),
        listing_interval: listing_interval(reader),
        settle: reader.duration("source.settle", SETTLE),
        clean_source: clean_source(reader),
        envelope,
        keys: Vec::new(),
        absent_columns: reader.choice(
            "source.absent_columns",
            &[("null", AbsentColumns::Null), ("keep", AbsentColumns::Keep)],
            AbsentColumns::Null,
        ),
        snapshot_version: reader.choice(
            "source.snapshot_version",
            &[
                ("none", SnapshotVersion::None),
                ("column", SnapshotVersion::Column),
                ("file_name", SnapshotVersion::FileName),
            ],
            SnapshotVersion::None,
        ),
        unavailable_value: reader
            .text("source.unavailable_value")
            .filter(|text| !text.is_empty()),
        csv: csv(reader, envelope),
        json: JsonSettings {
            multi_line: reader.boolean("source.json.multi_line", false),
            encoding: encoding(reader, "source.json.encoding"),
            timestamp_format: time_format(reader, "source.json.timestamp_format"),
            date_format: time_format(reader, "source.json.date_format"),
        },
    };
    path.map(|_| settings)
}

const FORMATS: &[(&str, Format)] = &[
    ("json", Format::Json),
    ("csv", Format::Csv),
    ("parquet", Format::Parquet),
    ("avro", Format::Avro),
    ("auto", Format::Auto),
];

const ENVELOPES: &[(&str, Envelope)] = &[
    ("none", Envelope::None),
    ("debezium", Envelope::Debezium),
    ("dms", Envelope::Dms),
    ("delta-cdf", Envelope::DeltaCdf),
    ("maxwell", Envelope::Maxwell),
    ("wal2json", Envelope::Wal2Json),
    ("sqlserver", Envelope::SqlServer),
    ("canal", Envelope::Canal),
    ("goldengate", Envelope::GoldenGate),
    ("qlik", Envelope::Qlik),
];

/// What DMS writes for NULL unless it is told otherwise.
const DMS_NULL: &str = "NULL";

const SCHEMA_EVOLUTION_MODES: &[(&str, SchemaEvolutionMode)] = &[
    ("add_new_columns", SchemaEvolutionMode::AddNewColumns),
    ("rescue", SchemaEvolutionMode::Rescue),
    ("fail_on_new_columns", SchemaEvolutionMode::FailOnNewColumns),
    ("none", SchemaEvolutionMode::None),
];

fn unlimited_or<T>(text: &str, read: impl Fn(&str) -> Option<T>) -> Option<Option<T>> {
    if text == UNLIMITED {
        Some(None)
    } else {
        read(text).map(Some)
    }
}

fn glob(reader: &mut Reader<'_>) -> Option<String> {
    reader.parsed(
        "source.path_glob_filter",
        None,
        "a glob pattern such as *.jsonl",
        |text| {
            let valid = !text.is_empty() && glob::Pattern::new(text).is_ok();
            valid.then(|| Some(text.to_string()))
        },
    )
}

fn listing_interval(reader: &mut Reader<'_>) -> Duration {
    let interval = reader.duration("source.listing_interval", LISTING_INTERVAL);
    if interval.is_zero() {
        reader.wrong("source.listing_interval", "longer than 0");
    }
    interval
}

fn clean_source(reader: &mut Reader<'_>) -> CleanSource {
    const KEY: &str = "source.clean_source";
    const DESTINATION: &str = "source.clean_source_move_destination";
    let destination = reader.path(DESTINATION);
    let words = [
        ("off", CleanSourceWord::Off),
        ("move", CleanSourceWord::Move),
        ("delete", CleanSourceWord::Delete),
    ];
    match (
        reader.choice(KEY, &words, CleanSourceWord::Off),
        destination,
    ) {
        (CleanSourceWord::Off, None) => CleanSource::Off,
        (CleanSourceWord::Delete, None) => CleanSource::Delete,
        (CleanSourceWord::Move, Some(folder)) => CleanSource::Move(folder),
        (CleanSourceWord::Move, None) => {
            reader.missing(DESTINATION, ", which clean_source = \"move\" needs");
            CleanSource::Off
        }
        (CleanSourceWord::Off | CleanSourceWord::Delete, Some(_)) => {
            let name = reader.name(DESTINATION);
            reader.refuse(DESTINATION, format!("{name} needs clean_source = \"move\""));
            CleanSource::Off
        }
    }
}

#[derive(Clone, Copy)]
enum CleanSourceWord {
    Off,
    Move,
    Delete,
}

fn csv(reader: &mut Reader<'_>, envelope: Envelope) -> CsvSettings {
    let null_value = match reader.text("source.csv.null_value") {
        None if envelope == Envelope::Dms => Some(DMS_NULL.to_string()),
        text => text.filter(|text| !text.is_empty()),
    };
    let default = CsvSettings::default();
    let delimiter = dialect(reader, "source.csv.delimiter", Some(default.delimiter));
    if delimiter.is_none() && !reader.is_refused("source.csv.delimiter") {
        reader.wrong("source.csv.delimiter", "one character");
    }
    CsvSettings {
        delimiter: delimiter.unwrap_or(default.delimiter),
        header: reader.boolean("source.csv.header", default.header),
        quote: dialect(reader, "source.csv.quote", default.quote),
        escape: dialect(reader, "source.csv.escape", default.escape),
        null_value,
        empty_value: reader
            .text("source.csv.empty_value")
            .filter(|text| !text.is_empty()),
        ignore_leading_white_space: reader.boolean("source.csv.ignore_leading_white_space", false),
        ignore_trailing_white_space: reader
            .boolean("source.csv.ignore_trailing_white_space", false),
        skip_rows: reader.parsed("source.csv.skip_rows", 0, "a whole number", value::count),
        line_sep: reader.parsed(
            "source.csv.line_sep",
            default.line_sep,
            "one ASCII character",
            value::line_end,
        ),
        encoding: encoding(reader, "source.csv.encoding"),
        multi_line: reader.boolean("source.csv.multi_line", default.multi_line),
        comment: dialect(reader, "source.csv.comment", default.comment),
        date_format: time_format(reader, "source.csv.date_format"),
        timestamp_format: time_format(reader, "source.csv.timestamp_format"),
    }
}

fn dialect(reader: &mut Reader<'_>, key: &str, default: Option<u8>) -> Option<u8> {
    reader.parsed(key, default, "one ASCII character", value::dialect_byte)
}

fn encoding(reader: &mut Reader<'_>, key: &str) -> TextEncoding {
    const ALLOWED: &str = "an encoding: UTF-8, UTF-16, UTF-16LE, UTF-16BE, US-ASCII, ISO-8859-1, windows-1252 \
                           or another of one byte a character";
    reader.parsed(key, TextEncoding::Utf8, ALLOWED, TextEncoding::of_name)
}

fn time_format(reader: &mut Reader<'_>, key: &str) -> Option<String> {
    reader.parsed(key, None, "a format such as %Y-%m-%d", |text| {
        let known = |item| !matches!(item, chrono::format::Item::Error);
        let valid = !text.is_empty() && chrono::format::StrftimeItems::new(text).all(known);
        valid.then(|| Some(text.to_string()))
    })
}

fn bronze(reader: &mut Reader<'_>) -> Option<BronzeSettings> {
    let path = required_path(reader, "bronze.path");
    let partition_by = reader.list("bronze.partition_by");
    Some(BronzeSettings {
        path: path?,
        partition_by,
    })
}

fn silver(
    reader: &mut Reader<'_>,
    snapshots: SnapshotVersion,
    envelope: Envelope,
) -> Option<SilverSettings> {
    if !reader.has_table("silver") {
        return None;
    }
    let path = required_path(reader, "silver.path");
    let keys = required_list(reader, "silver.keys");
    let sequence_by = match (snapshots, envelope) {
        (SnapshotVersion::FileName, _) => vec![SNAPSHOT_VERSION.to_string()],
        (SnapshotVersion::None | SnapshotVersion::Column, Envelope::None) => {
            required_list(reader, "silver.sequence_by")
        }
        _ if !reader.has("silver.sequence_by") => vec![SEQUENCE.to_string()],
        _ => required_list(reader, "silver.sequence_by"),
    };
    let scd_type = scd_type(reader);
    let settings = SilverSettings {
        path: path.clone().unwrap_or_default(),
        keys: keys.clone(),
        sequence_by: sequence_by.clone(),
        events: match envelope {
            Envelope::None => events(reader),
            _ => envelope_events(&scd_type),
        },
        snapshots: snapshots != SnapshotVersion::None,
        columns: match envelope {
            Envelope::None => columns(reader),
            _ => without_own_columns(columns(reader)),
        },
        ignore_null_updates: ignore_null_updates(reader),
        columns_to_update: reader
            .text("silver.columns_to_update")
            .filter(|text| !text.is_empty()),
        scd_type,
        deletes: reader.choice(
            "silver.deletes",
            &[("soft", Deletes::Soft), ("hard", Deletes::Hard)],
            Deletes::Soft,
        ),
        write_mode: reader.choice(
            "silver.write_mode",
            &[
                ("merge_on_read", WriteMode::MergeOnRead),
                ("copy_on_write", WriteMode::CopyOnWrite),
            ],
            WriteMode::MergeOnRead,
        ),
        key_index: reader.choice(
            "silver.key_index",
            &[
                ("auto", KeyIndexMode::Auto),
                ("on", KeyIndexMode::On),
                ("off", KeyIndexMode::Off),
            ],
            KeyIndexMode::Auto,
        ),
        partition_by: reader.list("silver.partition_by"),
        change_data_feed: reader.boolean("silver.change_data_feed", true),
    };
    let complete = path.is_some() && !keys.is_empty() && !sequence_by.is_empty();
    complete.then_some(settings)
}

fn maintenance(reader: &mut Reader<'_>) -> MaintenanceSettings {
    const SIZE: &str = "a size from 1 byte such as 64MB or 1 GiB";
    let size = |text: &str| value::size(text).filter(|bytes| *bytes > 0);
    let from = |least: u64| move |text: &str| value::count(text).filter(|count| *count >= least);
    MaintenanceSettings {
        auto: reader.boolean("maintenance.auto", true),
        min_num_files: reader.parsed(
            "maintenance.min_num_files",
            MIN_NUM_FILES,
            "a whole number from 2",
            |text| from(2)(text).and_then(|count| usize::try_from(count).ok()),
        ),
        min_file_size: reader.parsed("maintenance.min_file_size", MIN_FILE_SIZE, SIZE, size),
        target_file_size: reader.parsed(
            "maintenance.target_file_size",
            TARGET_FILE_SIZE,
            SIZE,
            size,
        ),
        max_deleted_rows_ratio: reader.parsed(
            "maintenance.max_deleted_rows_ratio",
            MAX_DELETED_ROWS_RATIO,
            "a share above 0 and up to 1",
            |text| {
                let ratio: f64 = text.trim().parse().ok()?;
                (ratio > 0.0 && ratio <= 1.0).then_some(ratio)
            },
        ),
        max_compact_bytes: reader.parsed(
            "maintenance.max_compact_bytes",
            MAX_COMPACT_BYTES,
            SIZE,
            size,
        ),
        log_checkpoint_interval: reader.parsed(
            "maintenance.log_checkpoint_interval",
            LOG_CHECKPOINT_INTERVAL,
            "a whole number from 1",
            from(1),
        ),
        log_retention_duration: reader
            .duration("maintenance.log_retention_duration", LOG_RETENTION_DURATION),
        deleted_file_retention_duration: reader.duration(
            "maintenance.deleted_file_retention_duration",
            DELETED_FILE_RETENTION_DURATION,
        ),
    }
}

fn required_list(reader: &mut Reader<'_>, key: &str) -> Vec<String> {
    let list = reader.list(key);
    if !reader.has(key) {
        reader.missing(key, ", which silver needs");
    } else if list.is_empty() && !reader.is_refused(key) {
        reader.wrong(key, "a list of at least one column");
    }
    list
}

fn events(reader: &mut Reader<'_>) -> EventRules {
    let mut predicate = |key| {
        let text = reader.text(key);
        text.filter(|text| !text.trim().is_empty())
    };
    let deletes = predicate("silver.apply_as_deletes");
    let truncates = predicate("silver.apply_as_truncates");
    if !reader.has_table("silver.operations") {
        return EventRules::Predicates { deletes, truncates };
    }
    let column = reader
        .text("silver.operations.column")
        .filter(|text| !text.is_empty());
    if column.is_none() && !reader.is_refused("silver.operations.column") {
        reader.missing("silver.operations.column", ", which operations needs");
    }
    EventRules::Operations {
        column: column.unwrap_or_default(),
        upsert: reader.list("silver.operations.upsert"),
        delete: reader.list("silver.operations.delete"),
        truncate: reader.list("silver.operations.truncate"),
        skip: reader.list("silver.operations.skip"),
    }
}

/// What the words of `_op` do. A history knows no truncates, so such a record is refused there.
fn envelope_events(scd_type: &ScdType) -> EventRules {
    let words = |ops: &[Op]| ops.iter().map(|op| op.as_str().to_string()).collect();
    EventRules::Operations {
        column: OP.to_string(),
        upsert: words(&[Op::Insert, Op::Update, Op::Snapshot]),
        delete: words(&[Op::Delete]),
        truncate: match scd_type {
            ScdType::One => words(&[Op::Truncate]),
            ScdType::Two { .. } => Vec::new(),
        },
        skip: words(&[Op::Before, Op::Control]),
    }
}

/// What the loader tells of a change stays in bronze; the sequence reaches silver where it is the sequence there.
fn without_own_columns(columns: ColumnSelection) -> ColumnSelection {
    match columns {
        ColumnSelection::AllExcept(mut list) => {
            list.extend([OP, SEQUENCE, BEFORE, ENVELOPE].map(str::to_string));
            ColumnSelection::AllExcept(list)
        }
        only @ ColumnSelection::Only(_) => only,
    }
}

fn scd_type(reader: &mut Reader<'_>) -> ScdType {
    const LIST: &str = "silver.track_history_column_list";
    const EXCEPT: &str = "silver.track_history_except_column_list";
    let is_two = reader.choice(
        "silver.stored_as_scd_type",
        &[("1", false), ("2", true)],
        false,
    );
    if !is_two {
        return ScdType::One;
    }
    let list = reader.list(LIST);
    // An empty list is the default: every column is tracked.
    let tracked = if list.is_empty() {
        ColumnSelection::AllExcept(reader.list(EXCEPT))
    } else {
        ColumnSelection::Only(list)
    };
    ScdType::Two { tracked }
}

fn columns(reader: &mut Reader<'_>) -> ColumnSelection {
    if reader.has("silver.column_list") {
        ColumnSelection::Only(reader.list("silver.column_list"))
    } else {
        ColumnSelection::AllExcept(reader.list("silver.except_column_list"))
    }
}

fn ignore_null_updates(reader: &mut Reader<'_>) -> IgnoreNullUpdates {
    let list = reader.list("silver.ignore_null_updates");
    match list.as_slice() {
        [] => IgnoreNullUpdates::Never,
        [word] if word == "true" => IgnoreNullUpdates::All,
        [word] if word == "false" => IgnoreNullUpdates::Never,
        _ => IgnoreNullUpdates::Columns(list),
    }
}
