//! What settings must not say together, in one pipeline and between pipelines.
//!
//! Paths are compared as the places they lead to, so that two spellings of one table are one table.

use super::reader::{Problems, Reader};
use super::*;
use crate::change;
use crate::events::check_rules;
use crate::schema::{TableSchema, check_time_format, parse_ddl};
use std::path::Path;

/// Names that the loader, silver or the change feed gives to columns of its own.
const RESERVED: &[&str] = &[
    change::RESCUED_DATA,
    change::PRESENT_COLUMNS,
    change::SNAPSHOT_VERSION,
    change::FILE_PATH,
    change::FILE_ROW,
    change::FILE_MODIFIED_AT,
    change::BATCH_ID,
    change::LOADED_AT,
    change::DELETED,
    change::START_AT,
    change::END_AT,
    "_change_type",
    "_commit_version",
    "_commit_timestamp",
];

/// Checks a complete pipeline.
pub(super) fn check_pipeline(reader: &mut Reader<'_>, pipeline: &PipelineSettings) {
    csv_dialect(reader, &pipeline.source.csv);
    source_texts(reader, &pipeline.source);
    if let Some(silver) = &pipeline.silver {
        for (key, error) in check_rules(&silver.events) {
            reader.refuse(&format!("silver.{key}"), error.to_string());
        }
        history(reader, silver);
        snapshots(reader, silver, pipeline.source.snapshot_version);
    }
    envelope(reader, pipeline);
    places(reader, pipeline);
    maintenance(reader, &pipeline.maintenance);
}

/// A snapshot has every key and every column as it is, so nothing of a change goes with it.
fn snapshots(reader: &mut Reader<'_>, silver: &SilverSettings, version: SnapshotVersion) {
    if !silver.snapshots {
        return;
    }
    let mut keys = vec![
        "source.envelope",
        "source.absent_columns",
        "silver.apply_as_deletes",
        "silver.apply_as_truncates",
        "silver.columns_to_update",
        "silver.operations.column",
        "silver.ignore_null_updates",
    ];
    if version == SnapshotVersion::FileName {
        keys.push("silver.sequence_by");
    }
    for key in keys {
        let is_off = match key {
            "source.envelope" => reader.list(key) == ["none"],
            "source.absent_columns" => reader.list(key) == ["null"],
            "silver.ignore_null_updates" => silver.ignore_null_updates == IgnoreNullUpdates::Never,
            _ => reader.list(key).iter().all(String::is_empty),
        };
        if reader.has(key) && !is_off {
            refuse_both(reader, key, "source.snapshot_version");
        }
    }
}

/// An envelope brings its own rules of events, and columns of its own.
fn envelope(reader: &mut Reader<'_>, pipeline: &PipelineSettings) {
    let source = &pipeline.source;
    if source.envelope == Envelope::None {
        return;
    }
    for key in [
        "silver.apply_as_deletes",
        "silver.apply_as_truncates",
        "silver.columns_to_update",
    ] {
        if reader.has(key) {
            refuse_both(reader, key, "source.envelope");
        }
    }
    if reader.has_table("silver.operations") {
        let key = ["column", "upsert", "delete", "truncate", "skip"]
            .map(|list| format!("silver.operations.{list}"))
            .into_iter()
            .find(|key| reader.has(key));
        let message = "silver.operations and source.envelope exclude each other";
        let message = format!("pipeline.{}.{message}", reader.pipeline);
        reader.refuse(&key.unwrap_or_default(), message);
    }
    if source.envelope.is_json_only() && !matches!(source.format, Format::Json | Format::Auto) {
        let name = reader.name("source.envelope");
        reader.refuse(
            "source.envelope",
            format!("{name}: this envelope is read from JSON only; set format = \"json\""),
        );
    }
    own_columns(reader, source);
}

/// The columns that an envelope fills are named nowhere but in `sequence_by`.
fn own_columns(reader: &mut Reader<'_>, source: &SourceSettings) {
    let own = [
        change::OP,
        change::SEQUENCE,
        change::BEFORE,
        change::ENVELOPE,
    ];
    let is_own = |name: &str| own.iter().any(|own| own.eq_ignore_ascii_case(name));
    let hints = parse_ddl(&source.schema_hints).unwrap_or_default();
    let mut named: Vec<(&str, String)> = hints
        .iter()
        .map(|hint| ("source.schema_hints", hint.name().clone()))
        .collect();
    for key in [
        "silver.keys",
        "silver.column_list",
        "silver.partition_by",
        "silver.sequence_by",
    ] {
        named.extend(reader.list(key).into_iter().map(|name| (key, name)));
    }
    named.retain(|(key, name)| {
        let is_sequence = *key == "silver.sequence_by" && name == change::SEQUENCE;
        is_own(name) && !is_sequence
    });
    for (key, name) in named {
        let message = format!(
            "{} names a column that the loader adds itself: {name}",
            reader.name(key)
        );
        reader.refuse(key, message);
    }
}

/// What goes with one SCD type only.
fn history(reader: &mut Reader<'_>, silver: &SilverSettings) {
    const LIST: &str = "silver.track_history_column_list";
    const EXCEPT: &str = "silver.track_history_except_column_list";
    match silver.scd_type {
        ScdType::One => {
            for key in [LIST, EXCEPT] {
                if !reader.list(key).is_empty() {
                    let name = reader.name(key);
                    reader.refuse(key, format!("{name} needs stored_as_scd_type = 2"));
                }
            }
        }
        ScdType::Two { .. } => {
            if !reader.list(LIST).is_empty() && !reader.list(EXCEPT).is_empty() {
                refuse_both(reader, LIST, EXCEPT);
            }
            if silver.events.has_truncates() {
                let key = match silver.events {
                    EventRules::Predicates { .. } => "silver.apply_as_truncates",
                    EventRules::Operations { .. } => "silver.operations.truncate",
                };
                let name = reader.name(key);
                reader.refuse(key, format!("{name} needs stored_as_scd_type = 1"));
            }
        }
    }
    if reader.has("silver.columns_to_update")
        && silver.ignore_null_updates != IgnoreNullUpdates::Never
    {
        refuse_both(
            reader,
            "silver.columns_to_update",
            "silver.ignore_null_updates",
        );
    }
}

/// Types, time formats and columns that are written as text.
fn source_texts(reader: &mut Reader<'_>, source: &SourceSettings) {
    if let Err(error) = TableSchema::from_hints(&source.schema_hints) {
        reader.refuse("source.schema_hints", error.to_string());
    }
    if !source.csv.header && source.schema_hints.trim().is_empty() {
        let message = "without a header the columns must stand in schema_hints";
        reader.refuse("source.csv.header", message.to_string());
    }
    let formats = [
        ("source.csv.date_format", &source.csv.date_format),
        ("source.csv.timestamp_format", &source.csv.timestamp_format),
        ("source.json.date_format", &source.json.date_format),
        (
            "source.json.timestamp_format",
            &source.json.timestamp_format,
        ),
    ];
    for (key, format) in formats {
        let Some(format) = format else { continue };
        if let Err(error) = check_time_format(format) {
            reader.refuse(key, error.to_string());
        }
    }
}

/// Two small files must make one file, and a vacuum reads the log entries of its whole retention.
fn maintenance(reader: &mut Reader<'_>, settings: &MaintenanceSettings) {
    const LOG: &str = "maintenance.log_retention_duration";
    const FILES: &str = "maintenance.deleted_file_retention_duration";
    const TARGET: &str = "maintenance.target_file_size";
    const SMALL: &str = "maintenance.min_file_size";
    let mut refuse = |at: &str, or: &str, message: String| {
        let key = if reader.has(at) { at } else { or };
        reader.refuse(key, message);
    };
    if settings.target_file_size / 2 < settings.min_file_size {
        let message = format!("{TARGET} must be at least twice {SMALL}");
        refuse(TARGET, SMALL, message);
    }
    if settings.log_retention_duration < settings.deleted_file_retention_duration {
        let message = format!("{LOG} must not be shorter than {FILES}");
        refuse(LOG, FILES, message);
    }
}

/// Checks the lists of columns and operations, also where something else of the pipeline is wrong.
pub(super) fn check_lists(reader: &mut Reader<'_>) {
    let partitions = reader.list("bronze.partition_by");
    columns_are_distinct(reader, "bronze.partition_by", &partitions);
    for key in [
        "silver.keys",
        "silver.sequence_by",
        "silver.partition_by",
        "silver.column_list",
    ] {
        let list = reader.list(key);
        columns_are_distinct(reader, key, &list);
    }
    let keys = reader.list("silver.keys");
    refuse_shared(reader, "silver.sequence_by", "silver.keys", &keys);
    refuse_shared(reader, "silver.except_column_list", "silver.keys", &keys);
    let excepted = reader.list("silver.except_column_list");
    refuse_shared(
        reader,
        "silver.partition_by",
        "silver.except_column_list",
        &excepted,
    );
    refuse_both(reader, "silver.column_list", "silver.except_column_list");
    for key in [
        "silver.track_history_column_list",
        "silver.track_history_except_column_list",
        "silver.columns_to_update",
    ] {
        let list = reader.list(key);
        columns_are_distinct(reader, key, &list);
    }
    refuse_shared(reader, "silver.columns_to_update", "silver.keys", &keys);
    event_rules(reader);
}

/// No column twice and none of the loader's own.
fn columns_are_distinct(reader: &mut Reader<'_>, key: &str, columns: &[String]) {
    let name = reader.name(key);
    for (index, column) in columns.iter().enumerate() {
        if column.is_empty() {
            reader.refuse(key, format!("{name} names a column without a name"));
        } else if RESERVED
            .iter()
            .any(|reserved| reserved.eq_ignore_ascii_case(column))
        {
            reader.refuse(
                key,
                format!("{name} names a column that the loader adds itself: {column}"),
            );
        } else if contains(&columns[..index], column) {
            reader.refuse(key, format!("{name} names a column twice: {column}"));
        }
    }
}

fn refuse_shared(reader: &mut Reader<'_>, key: &str, other: &str, others: &[String]) {
    for column in reader.list(key) {
        if contains(others, &column) {
            let message = format!(
                "{} and {} share a column: {column}",
                reader.name(key),
                reader.name(other)
            );
            reader.refuse(key, message);
        }
    }
}

/// Delta does not tell columns apart by case.
fn contains(columns: &[String], column: &str) -> bool {
    columns
        .iter()
        .any(|known| known.to_lowercase() == column.to_lowercase())
}

fn refuse_both(reader: &mut Reader<'_>, key: &str, other: &str) {
    if reader.has(key) && reader.has(other) {
        let message = format!(
            "{} and {} exclude each other",
            reader.name(key),
            reader.name(other)
        );
        reader.refuse(key, message);
    }
}

fn event_rules(reader: &mut Reader<'_>) {
    const OPERATIONS: &str = "silver.operations";
    if !reader.has_table(OPERATIONS) {
        return;
    }
    for key in ["silver.apply_as_deletes", "silver.apply_as_truncates"] {
        if reader.has(key) {
            let name = reader.name(key);
            reader.refuse(key, format!("{name} and operations exclude each other"));
        }
    }
    let mut seen: Vec<(String, &str)> = Vec::new();
    for list in ["upsert", "delete", "truncate", "skip"] {
        for value in reader.list(&format!("{OPERATIONS}.{list}")) {
            if let Some((_, first)) = seen.iter().find(|(known, _)| *known == value) {
                let message = format!(
                    "pipeline.{}.{OPERATIONS} has a value in {first} and in {list}: {value}",
                    reader.pipeline
                );
                reader.refuse(&format!("{OPERATIONS}.{list}"), message);
            }
            seen.push((value, list));
        }
    }
    if seen.is_empty() {
        let message = format!(
            "pipeline.{}.{OPERATIONS} must name at least one value",
            reader.pipeline
        );
        reader.refuse("silver.operations.column", message);
    }
}

fn csv_dialect(reader: &mut Reader<'_>, csv: &CsvSettings) {
    let taken = [
        ("source.csv.delimiter", Some(csv.delimiter)),
        ("source.csv.line_sep", csv.line_sep),
        ("source.csv.quote", csv.quote),
        ("source.csv.comment", csv.comment),
    ];
    for (index, (key, byte)) in taken.iter().enumerate() {
        let clash = taken[..index]
            .iter()
            .find(|(_, other)| byte.is_some() && other == byte);
        if let Some((other, _)) = clash {
            let message = format!(
                "{} and {} are the same character",
                reader.name(key),
                reader.name(other)
            );
            reader.refuse(key, message);
        }
    }
    if csv.escape.is_some() && csv.escape == Some(csv.delimiter) {
        let message = format!("{} is the delimiter", reader.name("source.csv.escape"));
        reader.refuse("source.csv.escape", message);
    }
}

/// No two of a pipeline's places may hold each other.
fn places(reader: &mut Reader<'_>, pipeline: &PipelineSettings) {
    let places = places_of(pipeline);
    for (index, right) in places.iter().enumerate() {
        for left in &places[..index] {
            // Nothing of ours may stand in the landing folder, and no table in a table.
            if let Some(how) = overlap(&left.path, &right.path) {
                let name = reader.name(right.key);
                let message = format!(
                    "{name} {how} {}: {}",
                    reader.name(left.key),
                    right.path.display()
                );
                reader.refuse(right.key, message);
            }
        }
    }
}

struct Place {
    key: &'static str,
    path: PathBuf,
}

fn places_of(pipeline: &PipelineSettings) -> Vec<Place> {
    let mut places = vec![
        Place {
            key: "source.path",
            path: resolved(&pipeline.source.path),
        },
        Place {
            key: "bronze.path",
            path: resolved(&pipeline.bronze.path),
        },
        Place {
            key: "bronze.path",
            path: resolved(&pipeline.bronze.quarantine_path()),
        },
    ];
    if let Some(silver) = &pipeline.silver {
        places.push(Place {
            key: "silver.path",
            path: resolved(&silver.path),
        });
    }
    places.push(Place {
        key: "checkpoint",
        path: resolved(&pipeline.checkpoint),
    });
    if let CleanSource::Move(folder) = &pipeline.source.clean_source {
        places.push(Place {
            key: "source.clean_source_move_destination",
            path: resolved(folder),
        });
    }
    places
}

fn overlap(left: &Path, right: &Path) -> Option<&'static str> {
    if left == right {
        Some("is the same place as")
    } else if right.starts_with(left) {
        Some("lies inside")
    } else if left.starts_with(right) {
        Some("holds")
    } else {
        None
    }
}

/// Two pipelines may share a landing folder and nothing else.
pub(super) fn check_together(pipelines: &[PipelineSettings], problems: &mut Problems) {
    for (index, right) in pipelines.iter().enumerate() {
        for left in &pipelines[..index] {
            for mine in places_of(right)
                .iter()
                .filter(|place| place.key != "source.path")
            {
                for theirs in places_of(left) {
                    let Some(how) = overlap(&theirs.path, &mine.path) else {
                        continue;
                    };
                    let place = mine.path.display();
                    problems.add(
                        None,
                        format!(
                            "pipeline.{}.{} {how} pipeline.{}.{}: {place}",
                            right.name, mine.key, left.name, theirs.key
                        ),
                    );
                }
            }
            sources_of_tables(left, right, problems);
        }
    }
}

/// A landing folder must not lie where another pipeline writes.
fn sources_of_tables(left: &PipelineSettings, right: &PipelineSettings, problems: &mut Problems) {
    let source = resolved(&right.source.path);
    for theirs in places_of(left)
        .iter()
        .filter(|place| place.key != "source.path")
    {
        if let Some(how) = overlap(&theirs.path, &source) {
            let place = source.display();
            problems.add(
                None,
                format!(
                    "pipeline.{}.source.path {how} pipeline.{}.{}: {place}",
                    right.name, left.name, theirs.key
                ),
            );
        }
    }
}

/// Where a path leads: links of the part that exists followed, `.` and `..` of the rest taken out.
fn resolved(path: &Path) -> PathBuf {
    for ancestor in path.ancestors() {
        let Ok(real) = ancestor.canonicalize() else {
            continue;
        };
        let rest = path.strip_prefix(ancestor).unwrap_or(Path::new(""));
        return rest.components().fold(real, |mut folder, part| {
            match part {
                std::path::Component::ParentDir => {
                    folder.pop();
                }
                part => folder.push(part),
            }
            folder
        });
    }
    path.to_path_buf()
}
