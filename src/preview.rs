//! Shows what a run would load, without writing anything.

use crate::batch::{BatchLimits, MicroBatch, PlannedFile, cut};
use crate::bronze::BronzeTable;
use crate::change::{BatchId, FileFault};
use crate::checkpoint::record::REMARK_EXISTED_BEFORE;
use crate::checkpoint::{CheckpointStore, FileOutcome, FileRecord, FileState, OutcomeKind};
use crate::error::Result;
use crate::landing::{LandingFile, hash_file, list};
use crate::load::{LoadContext, LoadLimits, LoadedBatch, duplicates, load};
use crate::loader::filter_of;
use crate::protocol::{hints_of, with_hints, with_own_columns};
use crate::schema::{TableSchema, ddl_type};
use crate::settings::{AllowOverwrites, PipelineSettings};
use crate::silver::SilverTable;
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
    let mut schema = hints_of(settings)?;
    let bronze = BronzeTable::open(&settings.bronze.path).await?;
    let is_new = bronze.as_ref().is_none_or(BronzeTable::is_new);
    let is_first = is_new && schema.columns.fields().is_empty();
    if let Some(bronze) = bronze {
        schema = with_hints(bronze.source_schema(), &schema);
    }
    schema = with_own_columns(schema, settings);
    let listing = list(&settings.source.path, &filter_of(settings)?)?;
    let mut preview = Preview::default();
    let known = match known_files(settings)? {
        Some(known) => known,
        None if settings.source.include_existing_files => BTreeMap::new(),
        None => return Ok(preview),
    };
    let mut waiting: Vec<PlannedFile> = Vec::new();
    for file in &listing.files {
        match fate(file, known.get(&file.path), settings)? {
            Fate::Waits => waiting.push(planned(file)),
            Fate::Changed => preview.changed.push(file.path.clone()),
            Fate::Stays => {}
        }
    }
    let limits = BatchLimits {
        files_max: settings.source.max_files_per_trigger,
        bytes_max: settings.source.max_bytes_per_trigger,
    };
    let mut keys: HashSet<Box<[u8]>> = HashSet::new();
    let mut contents = loaded_contents(&known);
    let silver = match &settings.silver {
        // Looked at only: what its transactions are called does not matter.
        Some(silver) => Some(SilverTable::open_unchecked(silver, None, "").await?),
        None => None,
    };
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
            late_snapshot: &|rows| match &silver {
                Some(silver) => silver.late_snapshot(rows),
                None => Ok(None),
            },
            is_first: is_first && preview.files.is_empty(),
            now,
            limits: LoadLimits {
                unwritten_bytes_max: usize::MAX,
                ..LoadLimits::default()
            },
        };
        let known = |hash: &str| Ok(contents.get(hash).cloned());
        let skipped = duplicates(&batch, settings, &known)?;
        let loaded = load(&batch, &schema, skipped, &context)?;
        preview.add(files, &loaded, &schema);
        let loads = |outcome: &&FileOutcome| matches!(outcome.result, OutcomeKind::Loaded { .. });
        for outcome in loaded.outcomes.iter().filter(loads) {
            if let Some(hash) = &outcome.content_hash {
                contents.insert(hash.clone(), outcome.path.clone());
            }
        }
        if let Some(silver) = &settings.silver {
            let rows = loaded.rows.iter().map(|part| &part.rows);
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

/// `None` before the first start.
fn known_files(settings: &PipelineSettings) -> Result<Option<BTreeMap<String, FileRecord>>> {
    let Some(checkpoint) = CheckpointStore::open_read_only(&settings.checkpoint)? else {
        return Ok(None);
    };
    let mut known = BTreeMap::new();
    checkpoint.files(None, &mut |file| {
        known.insert(file.path.clone(), file);
    })?;
    Ok(Some(known))
}

/// The files that brought the contents that are loaded, by hash.
fn loaded_contents(known: &BTreeMap<String, FileRecord>) -> BTreeMap<String, String> {
    let brought = |file: &&FileRecord| {
        let holds = file.rows_loaded > 0 || file.rows_quarantined > 0;
        holds && matches!(file.state, FileState::Loaded | FileState::Cleaned)
    };
    let pair = |file: &FileRecord| Some((file.content_hash.clone()?, file.path.clone()));
    known.values().filter(brought).filter_map(pair).collect()
}

/// What a run would do with a listed file.
enum Fate {
    /// It would be taken.
    Waits,
    /// It would be parked as changed.
    Changed,
    /// Nothing.
    Stays,
}

fn fate(
    file: &LandingFile,
    record: Option<&FileRecord>,
    settings: &PipelineSettings,
) -> Result<Fate> {
    let Some(record) = record else {
        return Ok(Fate::Waits);
    };
    let differs = record.size != file.size || record.modified_at != file.modified_at;
    let same_inode = record.changed_at.is_none_or(|at| at == file.changed_at);
    match record.state {
        FileState::Pending | FileState::Planned => Ok(Fate::Waits),
        FileState::Parked if differs && record.loaded_size.is_none() => Ok(Fate::Waits),
        FileState::Parked => Ok(Fate::Stays),
        FileState::Loaded | FileState::Cleaned if !differs && same_inode => Ok(Fate::Stays),
        FileState::Loaded if record.reason.as_deref() == Some(REMARK_EXISTED_BEFORE) => {
            Ok(if differs { Fate::Waits } else { Fate::Stays })
        }
        FileState::Loaded | FileState::Cleaned => {
            let hash = hash_file(&settings.source.path, &file.path)?;
            let policy = settings.source.allow_overwrites;
            Ok(match policy {
                _ if hash == record.content_hash => Fate::Stays,
                AllowOverwrites::Park => Fate::Changed,
                AllowOverwrites::Ignore => Fate::Stays,
                AllowOverwrites::Replace => Fate::Waits,
            })
        }
    }
}

fn planned(file: &LandingFile) -> PlannedFile {
    PlannedFile {
        path: file.path.clone(),
        size: file.size,
        modified_at: file.modified_at,
        replaces: false,
    }
}
