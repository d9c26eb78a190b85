//! Settings and columns of the sources that the targets read.

use landfall::change::{PRESENT_COLUMNS, SNAPSHOT_VERSION};
use landfall::schema::TableSchema;
use landfall::settings::{
    AbsentColumns, Envelope, Format, OnTypeMismatch, Request, SchemaEvolutionMode, Settings,
    SnapshotVersion, SourceSettings,
};
use std::path::Path;
use std::sync::OnceLock;

/// A source, with its columns and the path of its only file.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) schema: TableSchema,
    pub(crate) settings: SourceSettings,
}

impl Source {
    /// With the defaults of everything.
    pub(crate) fn new(format: Format, path: &str, hints: &str) -> Source {
        let mut settings = defaults();
        settings.format = format;
        settings.schema_hints = hints.to_string();
        Source {
            path: path.to_string(),
            schema: TableSchema::from_hints(hints).expect("the hints of a target are sound"),
            settings,
        }
    }

    /// In these modes of evolution and of values that do not fit.
    pub(crate) fn in_modes(mut self, evolution: SchemaEvolutionMode, rescues: bool) -> Source {
        self.settings.schema_evolution_mode = evolution;
        if rescues {
            self.settings.on_type_mismatch = OnTypeMismatch::Rescue;
        }
        self
    }

    /// With the columns that the loader would add for these settings.
    pub(crate) fn with_own_columns(mut self) -> Source {
        let (settings, text) = (&self.settings, arrow::datatypes::DataType::Utf8);
        if settings.envelope != Envelope::None {
            self.schema = self.schema.with_envelope_columns();
        } else if settings.absent_columns == AbsentColumns::Keep {
            self.schema = self.schema.with_own_column(PRESENT_COLUMNS, text);
        }
        if settings.snapshot_version == SnapshotVersion::FileName {
            let number = arrow::datatypes::DataType::Int64;
            self.schema = self.schema.with_own_column(SNAPSHOT_VERSION, number);
        }
        self
    }
}

/// All modes of evolution.
pub(crate) const EVOLUTIONS: [SchemaEvolutionMode; 4] = [
    SchemaEvolutionMode::AddNewColumns,
    SchemaEvolutionMode::Rescue,
    SchemaEvolutionMode::FailOnNewColumns,
    SchemaEvolutionMode::None,
];

/// Columns of many types.
pub(crate) const HINTS: [&str; 5] = [
    "a STRING, b STRING, c STRING, id STRING",
    "op STRING, id BIGINT, status STRING, amount DECIMAL(10,2), seq BIGINT",
    "a TINYINT, b DOUBLE, c DECIMAL(38,10), d DATE, e TIMESTAMP, f TIMESTAMP_NTZ, g BOOLEAN, h BINARY, i FLOAT, id INT",
    "a ARRAY<INT>, b STRUCT<a: INT, b: STRING>, c MAP<STRING, BIGINT>, d ARRAY<STRUCT<x: DOUBLE, y: DATE>>, id SMALLINT",
    "",
];

fn defaults() -> SourceSettings {
    static DEFAULTS: OnceLock<SourceSettings> = OnceLock::new();
    let make = || {
        let text = "[pipeline.a]\ncheckpoint = \"c\"\n[pipeline.a.source]\npath = \"l\"\n[pipeline.a.bronze]\npath = \"b\"\n";
        let request = Request::in_folder(Path::new("/"));
        let settings = Settings::load_text(&request, text.to_string()).expect("they are sound");
        settings.pipelines[0].source.clone()
    };
    DEFAULTS.get_or_init(make).clone()
}
