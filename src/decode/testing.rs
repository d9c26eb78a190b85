//! What the tests of the formats share.

use super::{Decoded, decode};
use crate::change::{FileFault, ParkReason, RejectReason};
use crate::schema::TableSchema;
use crate::settings::*;
use arrow::array::Array;
use arrow::util::display::array_value_to_string;
use bytes::Bytes;
use std::time::Duration;

/// The columns of the shop orders.
pub(super) const ORDERS: &str =
    "op STRING, order_id BIGINT, status STRING, amount DECIMAL(10,2), seq BIGINT";

/// Settings of a source with their defaults.
pub(crate) fn settings(format: Format) -> SourceSettings {
    SourceSettings {
        path: "landing".into(),
        format,
        path_glob_filter: None,
        schema_hints: String::new(),
        infer_column_types: true,
        schema_evolution_mode: SchemaEvolutionMode::AddNewColumns,
        on_bad_record: OnBadRecord::Quarantine,
        on_type_mismatch: OnTypeMismatch::Quarantine,
        max_bad_records: None,
        max_bad_percent: None,
        include_existing_files: true,
        allow_overwrites: AllowOverwrites::Park,
        duplicate_content: DuplicateContent::Load,
        max_files_per_trigger: 1000,
        max_bytes_per_trigger: 1 << 30,
        discovery: Discovery::Auto,
        listing_interval: Duration::from_secs(30),
        settle: Duration::ZERO,
        clean_source: CleanSource::Off,
        envelope: Envelope::None,
        keys: Vec::new(),
        absent_columns: AbsentColumns::Null,
        snapshot_version: SnapshotVersion::None,
        unavailable_value: None,
        csv: CsvSettings::default(),
        json: JsonSettings::default(),
    }
}

/// A decoder with its settings and columns.
pub(super) struct Case {
    pub(super) settings: SourceSettings,
    pub(super) schema: TableSchema,
    pub(super) path: &'static str,
}

impl Case {
    pub(super) fn json(ddl: &str) -> Case {
        Case::new(Format::Json, "orders.jsonl", ddl)
    }

    pub(super) fn csv(ddl: &str) -> Case {
        Case::new(Format::Csv, "orders.csv", ddl)
    }

    pub(super) fn new(format: Format, path: &'static str, ddl: &str) -> Case {
        let mut settings = settings(format);
        settings.schema_hints = ddl.to_string();
        Case {
            settings,
            schema: TableSchema::from_hints(ddl).unwrap(),
            path,
        }
    }

    /// Records of this envelope, of a silver with these keys.
    pub(super) fn of(mut self, envelope: Envelope, keys: &[&str]) -> Case {
        self.settings.envelope = envelope;
        self.settings.keys = keys.iter().map(|key| key.to_string()).collect();
        self.schema = self.schema.with_envelope_columns();
        self
    }

    pub(super) fn evolution(mut self, mode: SchemaEvolutionMode) -> Case {
        self.settings.schema_evolution_mode = mode;
        self
    }

    pub(super) fn rescuing(mut self) -> Case {
        self.settings.on_type_mismatch = OnTypeMismatch::Rescue;
        self
    }

    pub(super) fn try_read(&self, bytes: impl AsRef<[u8]>) -> Result<Decoded, FileFault> {
        decode(
            self.path,
            Bytes::copy_from_slice(bytes.as_ref()),
            &self.schema,
            &self.settings,
        )
    }

    pub(super) fn read(&self, bytes: impl AsRef<[u8]>) -> Decoded {
        self.try_read(bytes).unwrap()
    }

    pub(super) fn fault(&self, bytes: impl AsRef<[u8]>) -> (ParkReason, String) {
        let fault = self.try_read(bytes).unwrap_err();
        (fault.reason, fault.detail)
    }
}

/// The values of a column as text, NULL as `-`.
pub(super) fn column(decoded: &Decoded, name: &str) -> Vec<String> {
    let array = decoded.rows.column_by_name(name).unwrap();
    let show = |row| {
        if array.is_null(row) {
            "-".to_string()
        } else {
            array_value_to_string(array, row).unwrap()
        }
    };
    (0..array.len()).map(show).collect()
}

/// The refused records as (row, reason).
pub(super) fn rejects(decoded: &Decoded) -> Vec<(i64, RejectReason)> {
    decoded
        .rejects
        .iter()
        .map(|reject| (reject.file_row, reject.reason))
        .collect()
}

/// The new columns as (name, type in DDL).
pub(super) fn new_columns(decoded: &Decoded) -> Vec<(String, String)> {
    let show = |column: &super::NewColumn| {
        (
            column.name.clone(),
            crate::schema::ddl_type(&column.data_type),
        )
    };
    decoded.new_columns.iter().map(show).collect()
}

/// Numbers below the bounds that are asked for, the same for the same seed.
pub(super) fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |bound| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    }
}
