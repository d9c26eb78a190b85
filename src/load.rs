//! Turns the files of one micro-batch into rows for bronze and rejects for quarantine. Writes nothing.
//!
//! Every record of a file that loads is either a row or a reject. A file that cannot load, or that changed since its batch was
//! frozen, gives nothing. The same files, schema and settings give the same result, so a batch can be done again.

use crate::batch::{MicroBatch, PlannedFile};
use crate::bronze::LoadedFile;
use crate::change::{FileFault, OP, ParkReason, RESCUED_DATA, Reject, RejectReason, SEQUENCE};
use crate::checkpoint::{FileOutcome, OutcomeKind};
use crate::decode::{Decoded, decode};
use crate::envelope::Op;
use crate::error::{Error, ErrorKind, Result};
use crate::events::{EventClassifier, EventKind, find_column};
use crate::landing::{ReadFault, ReadFile, read};
use crate::parallel::in_parallel;
use crate::schema::{TableSchema, merge_new_columns};
use crate::settings::{
    OnBadRecord, PipelineSettings, SchemaEvolutionMode, SnapshotVersion, SourceSettings,
};
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, new_null_array};
use arrow::compute::filter_record_batch;
use arrow::datatypes::{DataType, Field, Schema};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The first pause before an unreadable file is tried again; it doubles.
const RETRY_PAUSE_MIN: Duration = Duration::from_secs(5);
/// The longest pause before an unreadable file is tried again.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(600);

/// The longest name of a folder that file systems take, in bytes.
const FOLDER_NAME_MAX: usize = 255;

/// What a micro-batch brings.
#[derive(Debug)]
pub struct LoadedBatch {
    /// One for each file of the batch, in its order.
    pub outcomes: Vec<FileOutcome>,
    /// The files that have rows.
    pub files: Vec<LoadedFile>,
    /// The rejects of the files that load.
    pub rejects: BTreeMap<String, Vec<Reject>>,
    /// The schema of the rows: the one given, wider where the files brought columns.
    pub schema: TableSchema,
}

/// What loading needs to know of the checkpoint.
pub struct LoadContext<'a> {
    /// The settings of the pipeline.
    pub settings: &'a PipelineSettings,
    /// The path of a loaded file with this content, asked only when duplicates are skipped.
    pub known_content: &'a dyn Fn(&str) -> Result<Option<String>>,
    /// There are neither a table nor hints: the columns of the first files make it, whatever the mode of evolution.
    pub is_first: bool,
    /// Why the rows of a file are of a snapshot that is older than one that silver has, if they are.
    pub late_snapshot: &'a dyn Fn(&RecordBatch) -> Result<Option<String>>,
    /// How often the file was tried.
    pub attempts: &'a dyn Fn(&str) -> Result<u32>,
    /// Microseconds since the epoch.
    pub now: i64,
}

/// Reads and decodes every file of `batch` against `schema`.
///
/// Fails only where the loader must stop: a wrong predicate, or a bad record under `on_bad_record = "stop"`.
pub fn load(
    batch: &MicroBatch,
    schema: &TableSchema,
    context: &LoadContext<'_>,
) -> Result<LoadedBatch> {
    let source = &first_source(context);
    let read_all = in_parallel(batch.files.len(), |place| {
        read_one(source, &batch.files[place])
    })?;
    let skipped = duplicates(batch, &read_all, context)?;
    let mut schema = schema.clone();
    let mut decoded = decode_all(batch, &read_all, &skipped, &schema, source)?;
    let found = decoded
        .iter()
        .flatten()
        .flatten()
        .map(|file| file.new_columns.as_slice());
    let new_columns = merge_new_columns(found);
    if !new_columns.is_empty() {
        schema = schema.extended(&new_columns);
        decode_again(batch, &read_all, &schema, source, &mut decoded)?;
    }
    let admission = Admission::new(context.settings, &schema)?;
    let mut loaded = LoadedBatch {
        outcomes: Vec::new(),
        files: Vec::new(),
        rejects: BTreeMap::new(),
        schema,
    };
    for (((file, read), decoded), duplicate_of) in
        batch.files.iter().zip(read_all).zip(decoded).zip(skipped)
    {
        let content_hash = read.as_ref().ok().map(|read| read.hash.clone());
        let result = match (read, decoded, duplicate_of) {
            (Err(fault), ..) => unread(fault, file, context)?,
            (Ok(_), _, Some(of)) => OutcomeKind::Duplicate { of },
            (Ok(_), Some(Err(fault)), None) => OutcomeKind::Parked {
                fault,
                next_try_at: None,
            },
            (Ok(_), Some(Ok(decoded)), None) => match late(file, &decoded, context)? {
                Some(fault) => OutcomeKind::Parked {
                    fault,
                    next_try_at: None,
                },
                None => loaded.admit(file, decoded, &admission, source)?,
            },
            (Ok(_), None, None) => {
                return Err(Error::bug(format!(
                    "landing file {} was not decoded",
                    file.path
                )));
            }
        };
        loaded.outcomes.push(FileOutcome {
            path: file.path.clone(),
            content_hash,
            result,
        });
    }
    Ok(loaded)
}

/// A snapshot that comes late says nothing about now; one that takes its own place again is not late.
fn late(
    file: &PlannedFile,
    decoded: &Decoded,
    context: &LoadContext<'_>,
) -> Result<Option<FileFault>> {
    if context.settings.source.snapshot_version == SnapshotVersion::None || file.replaces {
        return Ok(None);
    }
    let late = (context.late_snapshot)(&decoded.rows)?;
    Ok(late.map(|detail| FileFault::new(ParkReason::LateSnapshot, detail)))
}

impl LoadedBatch {
    /// Rows for bronze.
    pub fn row_count(&self) -> u64 {
        self.files
            .iter()
            .map(|file| file.file_rows.len() as u64)
            .sum()
    }

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

    /// Takes the rows that the settings admit; the others join the rejects.
    fn admit(
        &mut self,
        file: &PlannedFile,
        decoded: Decoded,
        admission: &Admission,
        source: &SourceSettings,
    ) -> Result<OutcomeKind> {
        let path = &file.path;
        let records = decoded.positions.len() + decoded.rejects.len();
        let rows = widened(&decoded.rows, &self.schema)?;
        let refusals = admission.refusals(&rows)?;
        let mut rejects = decoded.rejects.clone();
        rejects.extend(refusals.iter().enumerate().filter_map(|(row, refusal)| {
            let (reason, detail) = refusal.as_ref()?;
            Some(reject(&decoded, row, *reason, detail.clone()))
        }));
        rejects.sort_by_key(|reject| reject.file_row);
        if let Some(fault) = too_many(path, &rejects, records, source)? {
            return Ok(OutcomeKind::Parked {
                fault,
                next_try_at: None,
            });
        }
        let admitted: BooleanArray = refusals
            .iter()
            .map(|refusal| Some(refusal.is_none()))
            .collect();
        let rows = filter_record_batch(&rows, &admitted)?;
        let kept = decoded
            .positions
            .iter()
            .zip(&refusals)
            .filter(|(_, refusal)| refusal.is_none());
        let file_rows: Vec<i64> = kept.map(|(position, _)| position.file_row).collect();
        assert_eq!(
            file_rows.len() + rejects.len(),
            records,
            "BUG: a record of {path} is neither loaded nor refused"
        );
        let result = OutcomeKind::Loaded {
            rows: file_rows.len() as u64,
            quarantined: rejects.len() as u64,
        };
        if !file_rows.is_empty() {
            self.files.push(LoadedFile {
                path: path.clone(),
                modified_at: file.modified_at,
                rows,
                file_rows,
            });
        }
        if !rejects.is_empty() {
            self.rejects.insert(path.clone(), rejects);
        }
        Ok(result)
    }
}

/// Which decoded rows the settings of the tables refuse.
struct Admission {
    keys: Vec<(String, Option<usize>)>,
    sequence: Vec<(String, Option<usize>)>,
    operation: String,
    /// The column that lists the columns of its record.
    lists: Option<(String, usize)>,
    classifier: Option<EventClassifier>,
    bronze_partitions: Vec<(String, usize)>,
    silver_partitions: Vec<(String, usize)>,
}

impl Admission {
    fn new(settings: &PipelineSettings, schema: &TableSchema) -> Result<Self> {
        let bronze_partitions = text_columns(&settings.bronze.partition_by, schema);
        let Some(silver) = &settings.silver else {
            return Ok(Admission {
                keys: Vec::new(),
                sequence: Vec::new(),
                operation: String::new(),
                lists: None,
                classifier: None,
                bronze_partitions,
                silver_partitions: Vec::new(),
            });
        };
        let place = |name: &String| (name.clone(), find_column(&schema.columns, name));
        let operation = match &silver.events {
            crate::settings::EventRules::Operations { column, .. } => column.clone(),
            crate::settings::EventRules::Predicates { .. } => String::new(),
        };
        let rows = rows_schema(schema);
        Ok(Admission {
            keys: silver.keys.iter().map(place).collect(),
            sequence: silver.sequence_by.iter().map(place).collect(),
            operation,
            lists: text_columns(silver.columns_to_update.as_slice(), schema).pop(),
            classifier: Some(EventClassifier::new(&silver.events, &rows)?),
            bronze_partitions,
            silver_partitions: text_columns(&silver.partition_by, schema),
        })
    }

    /// For each row, why it is refused, if it is.
    fn refusals(&self, rows: &RecordBatch) -> Result<Vec<Option<(RejectReason, String)>>> {
        let kinds = match &self.classifier {
            Some(classifier) => classifier.classify(rows)?,
            None => vec![EventKind::Skip; rows.num_rows()],
        };
        let refusal = |(row, kind)| {
            self.refusal(rows, row, kind)
                .or_else(|| self.partition_refusal(rows, row, kind))
        };
        Ok(kinds.into_iter().enumerate().map(refusal).collect())
    }

    fn refusal(
        &self,
        rows: &RecordBatch,
        row: usize,
        kind: EventKind,
    ) -> Option<(RejectReason, String)> {
        match kind {
            EventKind::Skip => return None,
            EventKind::Unknown => {
                return Some(self.unknown_operation(rows, row));
            }
            EventKind::Upsert | EventKind::Delete | EventKind::Truncate => {}
        }
        let is_null = |(_, place): &&(String, Option<usize>)| {
            place.is_none_or(|place| rows.column(place).is_null(row))
        };
        // A truncate is of no key.
        let key_counts = kind != EventKind::Truncate;
        if let Some((name, _)) = self.keys.iter().find(is_null).filter(|_| key_counts) {
            return Some((
                RejectReason::NullKey,
                format!("key column {name} is NULL or absent"),
            ));
        }
        let Some((name, _)) = self.sequence.iter().find(is_null) else {
            return self.list_refusal(rows, row);
        };
        if name == SEQUENCE {
            let detail = "the record says nothing of its place in the order of the source; let the source write it, or set sequence_by";
            return Some((RejectReason::NullSequence, detail.into()));
        }
        Some((
            RejectReason::NullSequence,
            format!("sequence column {name} is NULL or absent"),
        ))
    }

    /// A list of columns that is cut or no list would drop values in silence.
    fn list_refusal(&self, rows: &RecordBatch, row: usize) -> Option<(RejectReason, String)> {
        let (name, place) = self.lists.as_ref()?;
        let texts = rows.column(*place).as_string_opt::<i32>()?;
        let text = texts.is_valid(row).then(|| texts.value(row).trim())?;
        let is_list = serde_json::from_str::<Vec<String>>(text).is_ok();
        (text.starts_with(['[', '{']) && !is_list).then(|| {
            let detail = format!("column {name}: {text:?} is no list of columns");
            (RejectReason::TypeMismatch, detail)
        })
    }

    /// A value that no table can have a partition for would stop every run, so its record is refused.
    fn partition_refusal(
        &self,
        rows: &RecordBatch,
        row: usize,
        kind: EventKind,
    ) -> Option<(RejectReason, String)> {
        let silver = match kind {
            EventKind::Skip | EventKind::Truncate => &[],
            EventKind::Unknown | EventKind::Upsert | EventKind::Delete => {
                self.silver_partitions.as_slice()
            }
        };
        self.bronze_partitions
            .iter()
            .chain(silver)
            .find_map(|(name, place)| {
                let texts = rows.column(*place).as_string_opt::<i32>()?;
                if texts.is_null(row) {
                    return None;
                }
                let text = texts.value(row);
                if text.is_empty() {
                    let detail = format!(
                        "partition column {name}: an empty text cannot be told from NULL in a partition"
                    );
                    return Some((RejectReason::InvalidPartitionValue, detail));
                }
                let length = encoded_length(name) + 1 + encoded_length(text);
                (length > FOLDER_NAME_MAX).then(|| {
                    let detail = format!(
                        "partition column {name}: the value makes a folder name of {length} bytes, {FOLDER_NAME_MAX} are possible"
                    );
                    (RejectReason::InvalidPartitionValue, detail)
                })
            })
    }

    fn unknown_operation(&self, rows: &RecordBatch, row: usize) -> (RejectReason, String) {
        if self.operation.is_empty() {
            let detail = "apply_as_deletes or apply_as_truncates cannot be evaluated on the values of this record";
            return (RejectReason::UnknownOp, detail.into());
        }
        let place = find_column(&rows.schema(), &self.operation);
        let value = place.and_then(|place| {
            let options = arrow::util::display::FormatOptions::default().with_null("NULL");
            let column = rows.column(place);
            let formatter =
                arrow::util::display::ArrayFormatter::try_new(column.as_ref(), &options).ok()?;
            Some(formatter.value(row).to_string())
        });
        // Every word of an envelope is in the settings but for this one, under SCD type 2.
        if self.operation == OP && value.as_deref() == Some(Op::Truncate.as_str()) {
            let detail = "a truncate cannot be applied to a silver with stored_as_scd_type = 2";
            return (RejectReason::UnsupportedOp, detail.into());
        }
        let detail = format!(
            "column {}: operation {} is not in the settings",
            self.operation,
            value.as_deref().unwrap_or("NULL")
        );
        (RejectReason::UnknownOp, detail)
    }
}

/// The columns of these names that hold text.
fn text_columns(names: &[String], schema: &TableSchema) -> Vec<(String, usize)> {
    let place = |name: &String| {
        let place = find_column(&schema.columns, name)?;
        (*schema.columns.field(place).data_type() == DataType::Utf8).then(|| (name.clone(), place))
    };
    names.iter().filter_map(place).collect()
}

/// How long a text is in the name of a partition's folder: other signs than these are written as `%XX`.
fn encoded_length(text: &str) -> usize {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if is_plain(byte) { 1 } else { 3 })
        .sum()
}

/// The settings of the source; for the first batch, ones that take the columns it brings.
fn first_source(context: &LoadContext<'_>) -> SourceSettings {
    let mut source = context.settings.source.clone();
    if context.is_first {
        source.schema_evolution_mode = SchemaEvolutionMode::AddNewColumns;
    }
    source
}

type ReadOutcome = Result<ReadFile, ReadFault>;

fn read_one(source: &SourceSettings, file: &PlannedFile) -> Result<ReadOutcome> {
    Ok(read(&source.path, file))
}

/// For each file, the name under which its content is loaded already.
fn duplicates(
    batch: &MicroBatch,
    read: &[ReadOutcome],
    context: &LoadContext<'_>,
) -> Result<Vec<Option<String>>> {
    let mut duplicates = vec![None; batch.files.len()];
    if context.settings.source.duplicate_content == crate::settings::DuplicateContent::Load {
        return Ok(duplicates);
    }
    let mut first_of: BTreeMap<&str, &str> = BTreeMap::new();
    for (place, (file, read)) in batch.files.iter().zip(read).enumerate() {
        let Ok(read) = read else { continue };
        let known = (context.known_content)(&read.hash)?.filter(|path| *path != file.path);
        duplicates[place] = known.or_else(|| {
            first_of
                .get(read.hash.as_str())
                .map(|path| path.to_string())
        });
        if duplicates[place].is_none() {
            first_of.insert(&read.hash, &file.path);
        }
    }
    Ok(duplicates)
}

type DecodeOutcome = Option<Result<Decoded, FileFault>>;

fn decode_all(
    batch: &MicroBatch,
    read: &[ReadOutcome],
    skipped: &[Option<String>],
    schema: &TableSchema,
    source: &SourceSettings,
) -> Result<Vec<DecodeOutcome>> {
    let bytes = |place: usize| -> Option<Bytes> {
        let read = read[place].as_ref().ok()?;
        skipped[place].is_none().then(|| read.bytes.clone())
    };
    let one = |place: usize| -> Result<DecodeOutcome> {
        Ok(bytes(place).map(|bytes| decode(&batch.files[place].path, bytes, schema, source)))
    };
    in_parallel(batch.files.len(), one)
}

/// Decodes the files that brought new columns once more, now that the schema has them.
fn decode_again(
    batch: &MicroBatch,
    read: &[ReadOutcome],
    schema: &TableSchema,
    source: &SourceSettings,
    decoded: &mut [DecodeOutcome],
) -> Result<()> {
    let brings =
        |file: &DecodeOutcome| matches!(file, Some(Ok(file)) if !file.new_columns.is_empty());
    let places: Vec<usize> = (0..decoded.len())
        .filter(|&place| brings(&decoded[place]))
        .collect();
    let one = |nth: usize| -> Result<DecodeOutcome> {
        let place = places[nth];
        let bytes = read[place].as_ref().ok().map(|read| read.bytes.clone());
        Ok(bytes.map(|bytes| decode(&batch.files[place].path, bytes, schema, source)))
    };
    for (place, file) in places.iter().zip(in_parallel(places.len(), one)?) {
        decoded[*place] = file;
    }
    Ok(())
}

fn unread(fault: ReadFault, file: &PlannedFile, context: &LoadContext<'_>) -> Result<OutcomeKind> {
    match fault {
        ReadFault::Vanished => Ok(OutcomeKind::Vanished),
        ReadFault::Changed => Ok(OutcomeKind::Again),
        ReadFault::Unreadable(fault) => {
            let doubled = RETRY_PAUSE_MIN.saturating_mul(
                1 << (context.attempts)(&file.path)?
                    .clamp(1, 16)
                    .saturating_sub(1),
            );
            let pause = doubled.min(RETRY_PAUSE_MAX);
            let next_try_at = context.now + i64::try_from(pause.as_micros()).unwrap_or(i64::MAX);
            Ok(OutcomeKind::Parked {
                fault,
                next_try_at: Some(next_try_at),
            })
        }
    }
}

/// What the settings make of the rejects of a file: nothing, a parked file, or the end of the run.
fn too_many(
    path: &str,
    rejects: &[Reject],
    records: usize,
    source: &SourceSettings,
) -> Result<Option<FileFault>> {
    let Some(first) = rejects.first() else {
        return Ok(None);
    };
    let place = first.file_line.map_or_else(
        || format!("row {}", first.file_row),
        |line| format!("line {line}"),
    );
    let example = format!("{place}: {}: {}", first.reason.as_str(), first.detail);
    match source.on_bad_record {
        OnBadRecord::Stop => {
            let message = format!("landing file {path}, {example}");
            return Err(Error::new(ErrorKind::Input, message)
                .hint("mend the file, or set on_bad_record = \"quarantine\""));
        }
        OnBadRecord::FailFile => {
            return Ok(Some(FileFault::new(ParkReason::TooManyBadRecords, example)));
        }
        OnBadRecord::Quarantine => {}
    }
    let count = rejects.len();
    let percent = 100.0 * count as f64 / records as f64;
    let over_count = source.max_bad_records.is_some_and(|max| count as u64 > max);
    let over_percent = source.max_bad_percent.is_some_and(|max| percent > max);
    if !over_count && !over_percent {
        return Ok(None);
    }
    let detail = format!("{count} of {records} records are refused, the first in {example}");
    Ok(Some(FileFault::new(ParkReason::TooManyBadRecords, detail)))
}

fn reject(decoded: &Decoded, row: usize, reason: RejectReason, detail: String) -> Reject {
    let position = decoded.positions[row];
    Reject {
        file_row: position.file_row,
        file_line: position.file_line,
        byte_offset: position.byte_offset,
        reason,
        detail,
        raw: decoded.raw(row),
    }
}

/// The schema of decoded rows: the source columns, then the rescued data.
fn rows_schema(schema: &TableSchema) -> arrow::datatypes::SchemaRef {
    let rescued = Arc::new(Field::new(RESCUED_DATA, DataType::Utf8, true));
    Arc::new(Schema::new(
        schema
            .columns
            .fields()
            .iter()
            .cloned()
            .chain([rescued])
            .collect::<Vec<_>>(),
    ))
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
