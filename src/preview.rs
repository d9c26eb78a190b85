//! Shows what a run would load, without writing anything.

use crate::batch::{BatchLimits, MicroBatch, PlannedFile, cut};
use crate::bronze::BronzeTable;
use crate::change::{BatchId, FileFault};
use crate::checkpoint::{CheckpointStore, FileRecord, FileState, OutcomeKind};
use crate::error::Result;
use crate::landing::{LandingFile, list};
use crate::load::{LoadContext, LoadedBatch, load};
use crate::loader::filter_of;
use crate::protocol::with_hints;
use crate::schema::{TableSchema, ddl_type};
use crate::settings::{AllowOverwrites, PipelineSettings};
use crate::silver::distinct_keys;
use std::collections::{BTreeMap, HashSet};

/// What a run would do.
#[derive(Clone, Debug, Default)]
pub struct Preview {
    /// Files that would be taken, in order.
    pub files: Vec<PreviewFile>,
    /// Columns that bronze would gain, with their Spark type.
    pub new_columns: Vec<(String, String)>,
    /// Keys that the rows would touch.
    pub keys: u64,
    /// Loaded files that have other bytes now and would be parked.
    pub changed: Vec<String>,
}

/// What would become of one file.
#[derive(Clone, Debug)]
pub struct PreviewFile {
    /// The file.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Rows for bronze.
    pub rows: u64,
    /// Records for quarantine.
    pub rejects: u64,
    /// Why it would be parked.
    pub fault: Option<FileFault>,
}

/// Lists and decodes what waits, file by file in the order and the batches of a run. Settling is not waited for.
pub async fn preview(settings: &PipelineSettings, now: i64) -> Result<Preview> {
    let mut schema = TableSchema::from_hints(&settings.source.schema_hints)?;
    if let Some(bronze) = BronzeTable::open(&settings.bronze.path).await? {
        schema = with_hints(bronze.source_schema(), &schema);
    }
    let known = known_files(settings)?;
    let listing = list(&settings.source.path, &filter_of(settings)?)?;
    let mut preview = Preview {
        changed: changed(&listing.files, &known, settings),
        ..Preview::default()
    };
    let waiting: Vec<PlannedFile> = listing
        .files
        .iter()
        .filter(|file| waits(file, &known, settings))
        .map(planned)
        .collect();
    let limits = BatchLimits {
        files_max: settings.source.max_files_per_trigger,
        bytes_max: settings.source.max_bytes_per_trigger,
    };
    let mut keys: HashSet<Box<[u8]>> = HashSet::new();
    let mut rest = waiting.as_slice();
    while !rest.is_empty() {
        let (files, after) = rest.split_at(cut(rest, limits));
        rest = after;
        let batch = MicroBatch {
            id: BatchId(0),
            files: files.to_vec(),
        };
        let context = LoadContext {
            settings,
            known_content: &|_| Ok(None),
            attempts: &|_| Ok(0),
            now,
        };
        let loaded = load(&batch, &schema, &context)?;
        preview.add(files, &loaded, &schema);
        if let Some(silver) = &settings.silver {
            let rows = loaded.files.iter().map(|file| &file.rows);
            distinct_keys(silver, &loaded.schema.columns, rows, &mut keys)?;
        }
        schema = loaded.schema;
    }
    preview.keys = keys.len() as u64;
    Ok(preview)
}

impl Preview {
    fn add(&mut self, files: &[PlannedFile], loaded: &LoadedBatch, before: &TableSchema) {
        for (file, outcome) in files.iter().zip(&loaded.outcomes) {
            let (rows, rejects, fault) = match &outcome.result {
                OutcomeKind::Loaded { rows, quarantined } => (*rows, *quarantined, None),
                OutcomeKind::Parked { fault, .. } => (0, 0, Some(fault.clone())),
                OutcomeKind::Again | OutcomeKind::Vanished | OutcomeKind::Duplicate { .. } => {
                    (0, 0, None)
                }
            };
            self.files.push(PreviewFile {
                path: file.path.clone(),
                size: file.size,
                rows,
                rejects,
                fault,
            });
        }
        let fields = loaded.schema.columns.fields().iter();
        let new = fields.filter(|field| before.columns.field_with_name(field.name()).is_err());
        self.new_columns
            .extend(new.map(|field| (field.name().clone(), ddl_type(field.data_type()))));
    }
}

fn known_files(settings: &PipelineSettings) -> Result<BTreeMap<String, FileRecord>> {
    let mut known = BTreeMap::new();
    if let Some(checkpoint) = CheckpointStore::open_read_only(&settings.checkpoint)? {
        checkpoint.files(None, &mut |file| {
            known.insert(file.path.clone(), file);
        })?;
    }
    Ok(known)
}

fn waits(
    file: &LandingFile,
    known: &BTreeMap<String, FileRecord>,
    settings: &PipelineSettings,
) -> bool {
    let Some(record) = known.get(&file.path) else {
        return true;
    };
    let differs = record.size != file.size || record.modified_at != file.modified_at;
    match record.state {
        FileState::Pending | FileState::Planned => true,
        FileState::Parked => differs && record.loaded_size.is_none(),
        FileState::Loaded | FileState::Cleaned => {
            differs && settings.source.allow_overwrites == AllowOverwrites::Replace
        }
    }
}

fn changed(
    files: &[LandingFile],
    known: &BTreeMap<String, FileRecord>,
    settings: &PipelineSettings,
) -> Vec<String> {
    let is_changed = |file: &&LandingFile| {
        let record = known.get(&file.path);
        settings.source.allow_overwrites == AllowOverwrites::Park
            && record.is_some_and(|record| {
                matches!(record.state, FileState::Loaded | FileState::Cleaned)
                    && (record.size != file.size || record.modified_at != file.modified_at)
            })
    };
    files
        .iter()
        .filter(is_changed)
        .map(|file| file.path.clone())
        .collect()
}

fn planned(file: &LandingFile) -> PlannedFile {
    PlannedFile {
        path: file.path.clone(),
        size: file.size,
        modified_at: file.modified_at,
        replaces: false,
    }
}
