//! The catalogue of settings: every key that a pipeline may have, with the flag of the same meaning.
//!
//! Unknown keys are found, and the nearest known one named, by this list alone. What a value means is left to `check`.

/// One setting: its key below `[pipeline.P]` and its flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettingKey {
    /// The dotted key below the pipeline, such as `source.settle`.
    pub key: &'static str,
    /// The long flag without dashes, such as `settle`.
    pub flag: &'static str,
    /// One line for `--help`.
    pub help: &'static str,
}

const fn key(key: &'static str, flag: &'static str, help: &'static str) -> SettingKey {
    SettingKey { key, flag, help }
}

/// Every setting of a pipeline.
pub const SETTING_KEYS: &[SettingKey] = &[
    key(
        "checkpoint",
        "checkpoint",
        "SQLite file that records what was loaded",
    ),
    key("source.path", "landing", "Folder in which files arrive"),
    key(
        "source.format",
        "format",
        "json, csv, parquet, avro or auto [default: auto]",
    ),
    key(
        "source.path_glob_filter",
        "path-glob-filter",
        "Names of the files to take [default: by format]",
    ),
    key(
        "source.envelope",
        "envelope",
        "Shape of the records: none, debezium, dms, delta-cdf, maxwell, wal2json, sqlserver, canal, goldengate, qlik [default: none]",
    ),
    key(
        "source.schema_hints",
        "schema-hints",
        "Types of columns as Spark DDL, such as \"amount DECIMAL(10,2)\"",
    ),
    key(
        "source.infer_column_types",
        "infer-column-types",
        "Find the types of columns without a hint: true or false [default: true]",
    ),
    key(
        "source.schema_evolution_mode",
        "schema-evolution-mode",
        "add_new_columns, rescue, fail_on_new_columns or none [default: add_new_columns]",
    ),
    key(
        "source.on_bad_record",
        "on-bad-record",
        "quarantine, fail_file or stop [default: quarantine]",
    ),
    key(
        "source.on_type_mismatch",
        "on-type-mismatch",
        "quarantine or rescue [default: quarantine]",
    ),
    key(
        "source.max_bad_records",
        "max-bad-records",
        "Refused records past which a file is parked: number or unlimited [default: unlimited]",
    ),
    key(
        "source.max_bad_percent",
        "max-bad-percent",
        "Share of refused records past which a file is parked: 0 to 100 or unlimited [default: unlimited]",
    ),
    key(
        "source.include_existing_files",
        "include-existing-files",
        "Load files that are there at the first start: true or false [default: true]",
    ),
    key(
        "source.allow_overwrites",
        "allow-overwrites",
        "What a changed file of a known name means: park, ignore or replace [default: park]",
    ),
    key(
        "source.duplicate_content",
        "duplicate-content",
        "What the same bytes under another name mean: load or skip [default: load]",
    ),
    key(
        "source.max_files_per_trigger",
        "max-files-per-trigger",
        "Most files in one micro-batch [default: 1000]",
    ),
    key(
        "source.max_bytes_per_trigger",
        "max-bytes-per-trigger",
        "Most bytes in one micro-batch, such as \"64 MiB\" [default: 1 GiB]",
    ),
    key(
        "source.discovery",
        "discovery",
        "auto (events and listing) or list [default: auto]",
    ),
    key(
        "source.listing_interval",
        "listing-interval",
        "Longest time between two listings [default: 30s]",
    ),
    key(
        "source.settle",
        "settle",
        "How long a file must be unchanged [default: 500ms]",
    ),
    key(
        "source.clean_source",
        "clean-source",
        "off, move or delete, once the rows are safe [default: off]",
    ),
    key(
        "source.clean_source_move_destination",
        "clean-source-move-destination",
        "Folder for loaded files with clean_source = move",
    ),
    key(
        "source.absent_columns",
        "absent-columns",
        "What a column that a record does not carry means: null, or keep the value so far [default: null]",
    ),
    key(
        "source.snapshot_version",
        "snapshot-version",
        "Files are whole tables; their version: none, column or file_name [default: none]",
    ),
    key(
        "source.unavailable_value",
        "unavailable-value",
        "Text that means: value not sent, keep the stored one",
    ),
    key(
        "source.csv.delimiter",
        "csv-delimiter",
        "Character between fields [default: ,]",
    ),
    key(
        "source.csv.header",
        "csv-header",
        "First record names the columns: true or false [default: true]",
    ),
    key(
        "source.csv.quote",
        "csv-quote",
        "Character around fields, empty for none [default: \"]",
    ),
    key(
        "source.csv.escape",
        "csv-escape",
        "Character before a quote in a quoted field [default: the quote]",
    ),
    key(
        "source.csv.null_value",
        "csv-null-value",
        "Text of an unquoted field that means NULL, besides the empty one",
    ),
    key(
        "source.csv.empty_value",
        "csv-empty-value",
        "Text that a quoted empty field stands for [default: the empty text]",
    ),
    key(
        "source.csv.ignore_leading_white_space",
        "csv-ignore-leading-white-space",
        "Blanks before a field are no part of it: true or false [default: false]",
    ),
    key(
        "source.csv.ignore_trailing_white_space",
        "csv-ignore-trailing-white-space",
        "Blanks behind a field are no part of it: true or false [default: false]",
    ),
    key(
        "source.csv.skip_rows",
        "csv-skip-rows",
        "Lines to leave out before the header or the first record [default: 0]",
    ),
    key(
        "source.csv.line_sep",
        "csv-line-sep",
        "Character that ends a line [default: LF or CRLF]",
    ),
    key(
        "source.csv.encoding",
        "csv-encoding",
        "Encoding of the text, such as UTF-16 or windows-1252 [default: UTF-8]",
    ),
    key(
        "source.csv.multi_line",
        "csv-multi-line",
        "Quoted fields may hold line breaks: true or false [default: true]",
    ),
    key(
        "source.csv.comment",
        "csv-comment",
        "Character that starts a comment line",
    ),
    key(
        "source.csv.date_format",
        "csv-date-format",
        "Format of dates, such as %d.%m.%Y or dd.MM.yyyy [default: ISO 8601]",
    ),
    key(
        "source.csv.timestamp_format",
        "csv-timestamp-format",
        "Format of timestamps, such as %Y%m%d%H%M%S or yyyyMMddHHmmss [default: ISO 8601]",
    ),
    key(
        "source.json.multi_line",
        "json-multi-line",
        "Documents over several lines instead of one object a line: true or false [default: false]",
    ),
    key(
        "source.json.encoding",
        "json-encoding",
        "Encoding of the text, such as UTF-16 or windows-1252 [default: UTF-8]",
    ),
    key(
        "source.json.date_format",
        "json-date-format",
        "Format of dates, such as %d.%m.%Y or dd.MM.yyyy [default: ISO 8601]",
    ),
    key(
        "source.json.timestamp_format",
        "json-timestamp-format",
        "Format of timestamps, such as %Y%m%d%H%M%S or yyyyMMddHHmmss [default: ISO 8601]",
    ),
    key(
        "bronze.path",
        "bronze",
        "Delta table of the rows as they came",
    ),
    key(
        "bronze.partition_by",
        "bronze-partition-by",
        "Partition columns of bronze",
    ),
    key("silver.path", "silver", "Delta table of the folded rows"),
    key("silver.keys", "keys", "Columns that name a row"),
    key(
        "silver.sequence_by",
        "sequence-by",
        "Columns that order the events of a key, the larger wins",
    ),
    key(
        "silver.apply_as_deletes",
        "apply-as-deletes",
        "SQL predicate of events that delete",
    ),
    key(
        "silver.apply_as_truncates",
        "apply-as-truncates",
        "SQL predicate of events that empty the table",
    ),
    key(
        "silver.operations.column",
        "operations-column",
        "Column that tells what an event is",
    ),
    key(
        "silver.operations.upsert",
        "operations-upsert",
        "Values that insert or update",
    ),
    key(
        "silver.operations.delete",
        "operations-delete",
        "Values that delete",
    ),
    key(
        "silver.operations.truncate",
        "operations-truncate",
        "Values that empty the table",
    ),
    key(
        "silver.operations.skip",
        "operations-skip",
        "Values that stay in bronze and out of silver",
    ),
    key(
        "silver.except_column_list",
        "except-column-list",
        "Columns that stay out of silver",
    ),
    key(
        "silver.column_list",
        "column-list",
        "Only columns that reach silver",
    ),
    key(
        "silver.ignore_null_updates",
        "ignore-null-updates",
        "NULL keeps the value so far: true, false or columns [default: false]",
    ),
    key(
        "silver.columns_to_update",
        "columns-to-update",
        "Column that lists the columns which its event carries",
    ),
    key(
        "silver.stored_as_scd_type",
        "stored-as-scd-type",
        "1 (one row for each key) or 2 (its history) [default: 1]",
    ),
    key(
        "silver.deletes",
        "deletes",
        "What a delete leaves: soft (a flagged row) or hard (none) [default: soft]",
    ),
    key(
        "silver.track_history_column_list",
        "track-history-column-list",
        "Columns whose changes open a new row (SCD type 2)",
    ),
    key(
        "silver.track_history_except_column_list",
        "track-history-except-column-list",
        "Columns whose changes open no new row (SCD type 2)",
    ),
    key(
        "silver.write_mode",
        "write-mode",
        "merge_on_read or copy_on_write [default: merge_on_read]",
    ),
    key(
        "silver.key_index",
        "key-index",
        "auto, on or off: keep a key index beside the checkpoint [default: auto]",
    ),
    key(
        "silver.partition_by",
        "silver-partition-by",
        "Partition columns of silver",
    ),
    key(
        "silver.change_data_feed",
        "change-data-feed",
        "Tell readers what changed: true or false [default: true]",
    ),
    key(
        "maintenance.auto",
        "maintenance-auto",
        "Compact and write log checkpoints between batches: true or false [default: true]",
    ),
    key(
        "maintenance.min_num_files",
        "min-num-files",
        "Small files of a partition that make a compaction worth it [default: 50]",
    ),
    key(
        "maintenance.min_file_size",
        "min-file-size",
        "Files below this size are small [default: 32 MiB]",
    ),
    key(
        "maintenance.target_file_size",
        "target-file-size",
        "Joined files aim at this size [default: 128 MiB]",
    ),
    key(
        "maintenance.max_deleted_rows_ratio",
        "max-deleted-rows-ratio",
        "Share of deleted rows at which a file is written again: 0 to 1 [default: 0.2]",
    ),
    key(
        "maintenance.max_compact_bytes",
        "max-compact-bytes",
        "Most bytes that one compaction between batches reads [default: 64 MiB]",
    ),
    key(
        "maintenance.log_checkpoint_interval",
        "log-checkpoint-interval",
        "Commits between two log checkpoints [default: 100]",
    ),
    key(
        "maintenance.log_retention_duration",
        "log-retention-duration",
        "Log entries younger than this stay [default: 30d]",
    ),
    key(
        "maintenance.deleted_file_retention_duration",
        "deleted-file-retention-duration",
        "How long files that left a table stay for its readers [default: 7d]",
    ),
];

/// Whether `key` is a setting itself.
pub(super) fn is_setting(key: &str) -> bool {
    SETTING_KEYS.iter().any(|known| known.key == key)
}

/// Whether `key` is a table that holds settings, such as `source.csv`.
pub(super) fn is_table(key: &str) -> bool {
    SETTING_KEYS.iter().any(|known| {
        known
            .key
            .strip_prefix(key)
            .is_some_and(|rest| rest.starts_with('.'))
    })
}

/// The known key that `unknown` most likely means: the nearest name, preferably in the same table.
pub(super) fn nearest(unknown: &str) -> String {
    const SAME_TABLE: f64 = 0.1;
    let (table, name) = unknown.rsplit_once('.').unwrap_or(("", unknown));
    let name = snake_case(name);
    let likeness = |key: &str| strsim::jaro_winkler(last_part(key), &name);
    let near = siblings(table)
        .into_iter()
        .map(|key| (likeness(&key) + SAME_TABLE, key));
    let far = SETTING_KEYS
        .iter()
        .map(|known| (likeness(known.key), known.key.to_string()));
    let best = near
        .chain(far)
        .max_by(|left, right| left.0.total_cmp(&right.0));
    best.map_or_else(String::new, |(_, key)| key)
}

/// The name in `known` that is nearest to `word`.
pub(super) fn nearest_word<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    known.into_iter().max_by(|left, right| {
        strsim::jaro_winkler(left, word).total_cmp(&strsim::jaro_winkler(right, word))
    })
}

/// The settings and tables directly in `table`.
fn siblings(table: &str) -> Vec<String> {
    let prefix = if table.is_empty() {
        String::new()
    } else {
        format!("{table}.")
    };
    let mut found: Vec<String> = Vec::new();
    for known in SETTING_KEYS {
        let Some(rest) = known.key.strip_prefix(&prefix) else {
            continue;
        };
        let child = rest.split('.').next().unwrap_or(rest);
        let full = format!("{prefix}{child}");
        if !found.contains(&full) {
            found.push(full);
        }
    }
    found
}

fn last_part(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

/// `nullValue` and `null-value` as `null_value`.
fn snake_case(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            if !out.is_empty() && !out.ends_with('_') {
                out.push('_');
            }
            out.push(letter.to_ascii_lowercase());
        } else if letter == '-' {
            out.push('_');
        } else {
            out.push(letter);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelt_key_finds_its_sibling() {
        assert_eq!(nearest("source.setle"), "source.settle");
        assert_eq!(nearest("sorce"), "source");
    }

    #[test]
    fn camel_case_name_finds_the_snake_case_key() {
        assert_eq!(nearest("source.csv.nullValue"), "source.csv.null_value");
    }

    #[test]
    fn key_in_the_wrong_table_finds_the_right_one() {
        assert_eq!(nearest("keys"), "silver.keys");
        assert_eq!(nearest("source.sequence_by"), "silver.sequence_by");
        assert_eq!(nearest("kees"), "silver.keys");
    }

    #[test]
    fn keys_and_flags_are_unique() {
        for (index, left) in SETTING_KEYS.iter().enumerate() {
            for right in &SETTING_KEYS[index + 1..] {
                assert_ne!(left.key, right.key);
                assert_ne!(left.flag, right.flag);
            }
        }
    }
}
