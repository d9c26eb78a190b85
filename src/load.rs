//! Turns the files of one micro-batch into rows for bronze and rejects for quarantine. No log names anything of it yet.
//!
//! Every record of a file that loads is either a row or a reject. A file that cannot load, or that changed since its batch was
//! frozen, gives nothing. The same files, schema and settings give the same result, so a batch can be done again. Rows wait in
//! memory while they are few; those of large batches are written ahead of the commit, so that memory is bounded.

mod admission;
mod files;
mod pass;

use crate::batch::{MicroBatch, PlannedFile};
use crate::bronze::{LoadedRows, RowsAhead};
use crate::change::Reject;
use crate::checkpoint::{FileOutcome, OutcomeKind};
use crate::decode::is_plain_text_name;
use crate::error::{Error, Result};
use crate::landing::{ReadFault, hash_file};
use crate::parallel::in_parallel;
use crate::schema::{TableSchema, merge_new_columns};
use crate::settings::{DuplicateContent, PipelineSettings, SchemaEvolutionMode, SourceSettings};
use admission::{Admission, rows_schema};
use arrow::array::{ArrayRef, RecordBatch, new_null_array};
use arrow::datatypes::Field;
use deltalake::kernel::Add;
use files::{FileDone, FileEnd};
use pass::{Pass, PassResult};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// The first pause before an unreadable file is tried again; it doubles.
const RETRY_PAUSE_MIN: Duration = Duration::from_secs(5);
/// The longest pause before an unreadable file is tried again.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(600);
/// A packed file, or one that has no text, counts as so many times its bytes.
const UNPACKED_FACTOR: u64 = 8;

/// How much of a batch may be in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadLimits {
    /// The rows of batches of more bytes are written ahead of the commit.
    pub small_batch_bytes_max: u64,
    /// One file of no more bytes is decoded by itself, without another thread.
    pub small_file_bytes_max: u64,
    /// Files of no more bytes are decoded together where they can be.
    pub joined_file_bytes_max: u64,
    /// As soon as they have so many bytes in all.
    pub joined_bytes: usize,
    /// JSON, CSV and Parquet files of at least so many bytes, packed ones of fewer, are read in blocks.
    pub streamed_bytes_min: u64,
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Other files are decoded in parts of so many records.
    pub part_records: usize,
    /// Each core holds so many bytes of the rows of one file before it writes them, which it may have to take back.
    pub held_bytes_max: usize,
    /// Each core holds so many bytes of the rows of files that load before it writes them.
    pub waiting_bytes_max: usize,
    /// Where rows cannot be written ahead, each core holds so many bytes of them, and as many of one file: a batch of more,
    /// however small its files are, is read again when they can.
    pub unwritten_bytes_max: usize,
}

impl Default for LoadLimits {
    fn default() -> Self {
        LoadLimits {
            small_batch_bytes_max: 64 << 20,
            small_file_bytes_max: 1 << 20,
            joined_file_bytes_max: 64 << 10,
            joined_bytes: 1 << 20,
            streamed_bytes_min: 8 << 20,
            block_bytes: 4 << 20,
            part_records: 65_536,
            held_bytes_max: 32 << 20,
            waiting_bytes_max: 8 << 20,
            unwritten_bytes_max: 128 << 20,
        }
    }
}

/// What a micro-batch brings.
#[derive(Debug)]
pub struct LoadedBatch {
    /// One for each file of the batch, in its order.
    pub outcomes: Vec<FileOutcome>,
    /// The rows that are in memory.
    pub rows: Vec<LoadedRows>,
    /// The data files that hold the other rows.
    pub written: Vec<Add>,
    /// The rejects of the files that load.
    pub rejects: BTreeMap<String, Vec<Reject>>,
    /// The schema of the rows: the one given, wider where the files brought columns.
    pub schema: TableSchema,
}

/// What loading needs to know.
pub struct LoadContext<'a> {
    /// The settings of the pipeline.
    pub settings: &'a PipelineSettings,
    /// There are neither a table nor hints: the columns of the first files make it, whatever the mode of evolution.
    pub is_first: bool,
    /// Why the rows of a file are of a snapshot that is older than one that silver has, if they are.
    pub late_snapshot: &'a (dyn Fn(&RecordBatch) -> Result<Option<String>> + Sync),
    /// Microseconds since the epoch.
    pub now: i64,
    /// How much may be in memory.
    pub limits: LoadLimits,
}

/// Reads and decodes every file of `batch` against `schema`; all rows stay in memory, as the limits must allow. None of them was tried before.
///
/// Fails only where the loader must stop: a wrong predicate, or a bad record under `on_bad_record = "stop"`.
pub fn load(
    batch: &MicroBatch,
    schema: &TableSchema,
    skipped: Duplicates,
    context: &LoadContext<'_>,
) -> Result<LoadedBatch> {
    let first = FirstPass::read(batch, schema, skipped, context, None)?;
    let loaded = first.finish(context, &|_| Ok(0), None)?;
    loaded.ok_or_else(|| Error::bug("more rows are loaded than may be in memory"))
}

/// Whether the rows of a batch should be written ahead of its commit.
pub fn is_large(batch: &MicroBatch, limits: &LoadLimits) -> bool {
    let weights = batch.files.iter().map(weight);
    weights.fold(0, u64::saturating_add) > limits.small_batch_bytes_max
}

/// About how many bytes of text the records of a file have.
fn weight(file: &PlannedFile) -> u64 {
    match is_plain_text_name(&file.path) {
        true => file.size,
        false => file.size.saturating_mul(UNPACKED_FACTOR),
    }
}

/// A batch whose files were all decoded once, some of which brought columns.
pub struct FirstPass<'a> {
    batch: &'a MicroBatch,
    source: SourceSettings,
    /// The schema with the new columns.
    schema: TableSchema,
    skipped: Duplicates,
    results: PassResult,
    /// The files that are to be decoded again.
    again: Vec<usize>,
}

impl<'a> FirstPass<'a> {
    /// Decodes all files but those that are `skipped` against `schema`; rows of those that bring no column are written `ahead`
    /// where they are many.
    pub fn read(
        batch: &'a MicroBatch,
        schema: &TableSchema,
        skipped: Duplicates,
        context: &LoadContext<'_>,
        ahead: Option<&RowsAhead<'_>>,
    ) -> Result<Self> {
        let source = first_source(context);
        // A predicate may name a column that only the files bring.
        let admission = Admission::new(context.settings, schema).ok();
        let pass = Pass {
            batch,
            source: &source,
            schema,
            admission: admission.as_ref(),
            late_snapshot: context.late_snapshot,
            limits: &context.limits,
            ahead,
        };
        let places = (0..batch.files.len()).filter(|place| skipped[*place].is_none());
        let results = pass.run(places.collect())?;
        let new_columns = merge_new_columns(results.new_columns());
        let again = match admission {
            Some(_) => results.bringing_columns(),
            None => results.places(),
        };
        Ok(FirstPass {
            batch,
            schema: match new_columns.is_empty() {
                true => schema.clone(),
                false => schema.extended(&new_columns),
            },
            source,
            skipped,
            results,
            again,
        })
    }

    /// The schema of the rows, if some are still to be decoded with it.
    pub fn waits_for(&self) -> Option<&TableSchema> {
        (!self.again.is_empty()).then_some(&self.schema)
    }

    /// Decodes the files that brought columns once more, now that the schema has them, and says what became of each file.
    /// `attempts` tells how often a file was tried. `None` where more rows came than may be in memory and none could be written.
    pub fn finish(
        mut self,
        context: &LoadContext<'_>,
        attempts: &dyn Fn(&str) -> Result<u32>,
        ahead: Option<&RowsAhead<'_>>,
    ) -> Result<Option<LoadedBatch>> {
        let again = std::mem::take(&mut self.again);
        let results = self.run(again, context, ahead)?;
        self.results.replace(results);
        loop {
            let unfounded = self.unfounded();
            if unfounded.is_empty() || self.results.is_too_much {
                break;
            }
            let results = self.run(unfounded, context, ahead)?;
            self.results.replace(results);
        }
        if self.results.is_too_much {
            return Ok(None);
        }
        let mut loaded = LoadedBatch {
            outcomes: Vec::new(),
            rows: Vec::new(),
            written: std::mem::take(&mut self.results.written),
            rejects: BTreeMap::new(),
            schema: self.schema,
        };
        for rows in std::mem::take(&mut self.results.joined) {
            loaded.add(rows)?;
        }
        for (place, (file, duplicate_of)) in self.batch.files.iter().zip(self.skipped).enumerate() {
            let (content_hash, result) = match duplicate_of {
                Some((hash, of)) => (Some(hash), OutcomeKind::Duplicate { of }),
                None => {
                    let done = self.results.take(place)?;
                    let hash = done.content_hash.clone();
                    let kind = loaded.admit(file, done, attempts, context.now)?;
                    (hash, kind)
                }
            };
            loaded.outcomes.push(FileOutcome {
                path: file.path.clone(),
                content_hash,
                result,
            });
        }
        Ok(Some(loaded))
    }
}

impl FirstPass<'_> {
    /// Decodes the files at these places with the columns that are known now.
    fn run(
        &self,
        places: Vec<usize>,
        context: &LoadContext<'_>,
        ahead: Option<&RowsAhead<'_>>,
    ) -> Result<PassResult> {
        if places.is_empty() || self.results.is_too_much {
            return Ok(PassResult::default());
        }
        let admission = Admission::new(context.settings, &self.schema)?;
        let pass = Pass {
            batch: self.batch,
            source: &self.source,
            schema: &self.schema,
            admission: Some(&admission),
            late_snapshot: context.late_snapshot,
            limits: &context.limits,
            ahead,
        };
        pass.run(places)
    }

    /// Files that were taken for duplicates of others in the batch which do not load after all: of each content the first,
    /// which is no duplicate then, and the others may be its own.
    fn unfounded(&mut self) -> Vec<usize> {
        if self.skipped.iter().all(Option::is_none) {
            return Vec::new();
        }
        let files = self.batch.files.iter().enumerate();
        let place_of: HashMap<&str, usize> = files
            .map(|(place, file)| (file.path.as_str(), place))
            .collect();
        let is_unfounded = |(_, of): &(String, String)| {
            let original = place_of.get(of.as_str());
            original.is_some_and(|original| !self.results.loads(*original))
        };
        let mut first_of: BTreeMap<String, usize> = BTreeMap::new();
        for (place, skipped) in self.skipped.iter_mut().enumerate() {
            let Some(duplicate) = skipped.as_mut().filter(|skipped| is_unfounded(skipped)) else {
                continue;
            };
            match first_of.get(&duplicate.0) {
                Some(first) => duplicate.1.clone_from(&self.batch.files[*first].path),
                None => {
                    first_of.insert(duplicate.0.clone(), place);
                    *skipped = None;
                }
            }
        }
        first_of.into_values().collect()
    }
}

impl LoadedBatch {
    /// Paths of the files that load, with rows or without.
    pub fn loading(&self) -> impl Iterator<Item = &str> {
        let loads = |outcome: &&FileOutcome| match outcome.result {
            OutcomeKind::Loaded { .. } | OutcomeKind::Duplicate { .. } => true,
            OutcomeKind::Parked { .. } | OutcomeKind::Again | OutcomeKind::Vanished => false,
        };
        self.outcomes
            .iter()
            .filter(loads)
            .map(|outcome| outcome.path.as_str())
    }

    /// Takes rows of files that load.
    fn add(&mut self, loaded: LoadedRows) -> Result<()> {
        let rows = widened(&loaded.rows, &self.schema)?;
        self.rows.push(LoadedRows { rows, ..loaded });
        Ok(())
    }

    /// Takes what a file brings.
    fn admit(
        &mut self,
        file: &PlannedFile,
        done: FileDone,
        attempts: &dyn Fn(&str) -> Result<u32>,
        now: i64,
    ) -> Result<OutcomeKind> {
        match done.end {
            FileEnd::Unread(fault) => return Ok(unread(fault, attempts(&file.path)?, now)),
            FileEnd::Parked(fault) => {
                return Ok(OutcomeKind::Parked {
                    fault,
                    next_try_at: None,
                });
            }
            FileEnd::Stops(error) => return Err(error),
            FileEnd::Loads => {}
            // It has other bytes than when its columns were looked for.
            FileEnd::Brings(_) => return Ok(OutcomeKind::Again),
        }
        let result = OutcomeKind::Loaded {
            rows: done.rows,
            quarantined: done.rejects.len() as u64,
        };
        if let Some(loaded) = LoadedRows::joined(done.held)? {
            self.add(loaded)?;
        }
        if !done.rejects.is_empty() {
            self.rejects.insert(file.path.clone(), done.rejects);
        }
        Ok(result)
    }
}

/// The settings of the source; for the first batch, ones that take the columns it brings.
fn first_source(context: &LoadContext<'_>) -> SourceSettings {
    let mut source = context.settings.source.clone();
    if context.is_first {
        source.schema_evolution_mode = SchemaEvolutionMode::AddNewColumns;
    }
    source
}

/// For each file of a batch, its content hash and the name under which its content is loaded already.
pub type Duplicates = Vec<Option<(String, String)>>;

/// Finds the files that are to be skipped as duplicates. `known` gives the path of a loaded file with this content.
pub fn duplicates(
    batch: &MicroBatch,
    settings: &PipelineSettings,
    known: &dyn Fn(&str) -> Result<Option<String>>,
) -> Result<Duplicates> {
    let mut duplicates = vec![None; batch.files.len()];
    let source = &settings.source;
    if source.duplicate_content == DuplicateContent::Load {
        return Ok(duplicates);
    }
    // What cannot be read now is told when it is read to be decoded.
    let hash = |place: usize| Ok(hash_file(&source.path, &batch.files[place].path).unwrap_or(None));
    let hashes = in_parallel(batch.files.len(), hash)?;
    let mut first_of: BTreeMap<&str, &str> = BTreeMap::new();
    for (place, (file, hash)) in batch.files.iter().zip(&hashes).enumerate() {
        let Some(hash) = hash else { continue };
        let loaded = known(hash)?.filter(|path| *path != file.path);
        let loaded = loaded.or_else(|| first_of.get(hash.as_str()).map(|path| path.to_string()));
        match loaded {
            Some(of) => duplicates[place] = Some((hash.clone(), of)),
            None => {
                first_of.insert(hash, &file.path);
            }
        }
    }
    Ok(duplicates)
}

/// What becomes of a file that cannot be read now and was tried so often.
fn unread(fault: ReadFault, attempts: u32, now: i64) -> OutcomeKind {
    match fault {
        ReadFault::Vanished => OutcomeKind::Vanished,
        ReadFault::Changed => OutcomeKind::Again,
        ReadFault::Unreadable(fault) => {
            let doubled =
                RETRY_PAUSE_MIN.saturating_mul(1 << attempts.clamp(1, 16).saturating_sub(1));
            let pause = doubled.min(RETRY_PAUSE_MAX);
            let next_try_at = now + i64::try_from(pause.as_micros()).unwrap_or(i64::MAX);
            OutcomeKind::Parked {
                fault,
                next_try_at: Some(next_try_at),
            }
        }
    }
}

/// Rows that were decoded before a column was known, with NULL in it.
fn widened(rows: &RecordBatch, schema: &TableSchema) -> Result<RecordBatch> {
    let wide = rows_schema(schema);
    if rows.schema() == wide {
        return Ok(rows.clone());
    }
    let column = |field: &Arc<Field>| -> ArrayRef {
        let present = rows.column_by_name(field.name());
        present
            .cloned()
            .unwrap_or_else(|| new_null_array(field.data_type(), rows.num_rows()))
    };
    let columns = wide.fields().iter().map(column).collect();
    Ok(RecordBatch::try_new(wide, columns)?)
}
