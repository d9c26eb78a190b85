//! Tells what became of every event of one key: the same fold as everywhere, event by event. Writes nothing.
//!
//! The events come from bronze in the order of the law, with the truncates that reach the key; behind them the refused
//! records that show it. What they give is compared with what silver holds. A loader may run meanwhile: where the two
//! differ while the tables change, they are looked at again. How it is printed is left to the caller.

mod fate;
mod key;
mod ledger;
mod listing;
mod records;
mod truncates;

pub use fate::Fate;

use crate::bronze::BronzeTable;
use crate::change::{FILE_PATH, FILE_ROW, Version};
use crate::checkpoint::{CheckpointStore, holder};
use crate::delta::Table;
use crate::error::{Error, Result};
use crate::quarantine::{QuarantineTable, QuarantinedRecord};
use crate::query::no_silver;
use crate::settings::{PipelineSettings, SilverSettings};
use crate::silver::fold::ContentEquality;
use crate::silver::plan::SilverPlan;
use crate::silver::pool::{self, Comparators};
use crate::silver::{SilverTable, changes, refold};
use arrow::array::{ArrayRef, RecordBatch, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::datatypes::FieldRef;
use records::Records;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// How often tables that change meanwhile are looked at.
const LOOKS_MAX: u32 = 5;
/// The pause before the second look; it doubles.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

/// The key that was asked for.
#[derive(Clone, Debug)]
pub struct ExplainedKey {
    /// The key columns, as in bronze.
    pub fields: Vec<FieldRef>,
    /// One row each.
    pub values: Vec<ArrayRef>,
}

/// A record of a landing file, shown as `path:record`, or a whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Relative to the landing folder.
    pub file_path: String,
    /// From 1; `None` where the file as a whole is meant.
    pub file_row: Option<i64>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.file_row {
            Some(row) => write!(f, "{}:{row}", self.file_path),
            None => f.write_str(&self.file_path),
        }
    }
}

/// One event, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedEvent {
    /// Where it stands.
    pub place: Place,
    /// The batch that brought it.
    pub batch_id: i64,
    /// What it does: `upsert`, `delete`, `truncate`, `missing` for a snapshot without the key, `skip`, `unknown`; `None` for a
    /// refused record, which is no event.
    pub kind: Option<&'static str>,
    /// Whether every event of a larger sequence arrived after it; `None` for what is not folded.
    pub is_in_order: Option<bool>,
    /// Of the events that make it late, the one of the largest sequence.
    pub late_after: Option<Place>,
    /// What became of it.
    pub fate: Fate,
    /// The event that it repeats, loses against, or is superseded by.
    pub other: Option<Place>,
    /// Why, in words.
    pub reason: String,
}

/// Whether silver holds what the events give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// It does.
    Agrees,
    /// It does not.
    Differs,
    /// It does not, and lacks versions of bronze.
    Behind,
    /// It does not, and the tables changed at every look; the text says why.
    Unsettled(String),
}

/// Everything about one key.
#[derive(Debug)]
pub struct Explanation {
    /// The key.
    pub key: ExplainedKey,
    /// The events in the order of the law, then the refused records by file and row.
    pub events: Vec<ExplainedEvent>,
    /// The sequence of each event; none for refused records, which come last.
    pub sequences: RecordBatch,
    /// The values of each event as bronze has them, likewise.
    pub values: RecordBatch,
    /// The rows of silver that the events give.
    pub folded: RecordBatch,
    /// The rows that silver has.
    pub silver: RecordBatch,
    /// Whether these are the same.
    pub agreement: Agreement,
}

/// Explains the key `given`, one `COLUMN=VALUE` for each key column of the pipeline.
///
/// Fails with a settings error where the key is not given whole or does not read as its type, where there is no silver, and
/// where silver was made with other settings; with an unavailable one where bronze is not there yet.
pub async fn explain(settings: &PipelineSettings, given: &[String]) -> Result<Explanation> {
    let silver = settings
        .silver
        .as_ref()
        .ok_or_else(|| no_silver(settings))?;
    let values = key::given_values(&settings.name, &silver.keys, given)?;
    let mut pause = LOOK_PAUSE;
    for _ in 1..LOOKS_MAX {
        let look = look_once(settings, silver, &values).await?;
        if !look.is_moving {
            return Ok(look.explanation);
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
    let look = look_once(settings, silver, &values).await?;
    let mut explanation = look.explanation;
    if look.is_moving {
        let who = match holder(&settings.checkpoint)? {
            Some(_) => "a loader is running",
            None => "the tables are being written",
        };
        explanation.agreement = Agreement::Unsettled(format!(
            "{who}: silver could not be compared; explain again when nothing waits to be loaded"
        ));
    }
    Ok(explanation)
}

/// One explanation, and whether what it says of silver may be due to a writer at work.
struct Look {
    explanation: Explanation,
    is_moving: bool,
}

async fn look_once(
    settings: &PipelineSettings,
    silver_settings: &SilverSettings,
    values: &[&str],
) -> Result<Look> {
    let checkpoint = CheckpointStore::open_read_only(&settings.checkpoint)?;
    let pipeline_id = checkpoint
        .as_ref()
        .map_or(settings.name.as_str(), CheckpointStore::pipeline_id);
    let bronze = BronzeTable::open(&settings.bronze.path).await?;
    let bronze = bronze.ok_or_else(|| no_bronze(settings))?;
    let word = settings.source.unavailable_value.clone();
    let silver = SilverTable::open(silver_settings, word.clone(), pipeline_id).await?;
    let plan = SilverPlan::resolve(silver_settings, word, &bronze.table().schema())?;
    let plan = plan.ok_or_else(|| no_key_yet(settings))?;
    let fields: Vec<FieldRef> = plan
        .keys
        .iter()
        .map(|&place| plan.columns[place].clone())
        .collect();
    let key = ExplainedKey {
        values: key::typed_values(&fields, values, &settings.source)?,
        fields,
    };
    let is_behind = is_behind(&bronze, &silver).await?;
    let tables = Tables {
        bronze: &bronze,
        silver: &silver,
        is_behind,
    };
    let mut explanation = tables.explain(&plan, key)?;
    let quarantine = QuarantineTable::open(&settings.bronze.quarantine_path()).await?;
    explanation.add_refused(&quarantine, settings, &plan)?;
    let is_moving = explanation.agreement != Agreement::Agrees
        && (version_at(&settings.bronze.path).await? != Some(bronze.table().version())
            || version_at(&silver_settings.path).await? != silver.table().map(Table::version)
            // It may be about to apply what silver lacks.
            || is_behind && holder(&settings.checkpoint)?.is_some());
    Ok(Look {
        explanation,
        is_moving,
    })
}

/// What one look reads.
struct Tables<'a> {
    bronze: &'a BronzeTable,
    silver: &'a SilverTable,
    is_behind: bool,
}

impl Tables<'_> {
    /// Everything but the refused records.
    fn explain(&self, plan: &SilverPlan, key: ExplainedKey) -> Result<Explanation> {
        let comparators = Comparators::new(plan)?;
        // A silver that is up to date knows where truncates are, so that bronze need not be searched.
        let known = match self.is_behind {
            false => Some(self.silver.known_truncates(plan, &comparators)?),
            true => None,
        };
        let bronze = self.bronze.table();
        let records = Records::read(bronze, plan, &comparators, &key, known.as_ref())?;
        let listing = listing::listing(&records, plan, &comparators)?;
        let schema = self.silver.target_schema(plan);
        let pool = &records.pool;
        let spans = pool.spans(plan)?;
        let folded = changes::materialize(
            &listing.folded,
            &pool.columns,
            spans.as_ref(),
            plan,
            &schema,
        )?;
        let silver = records::silver_rows(self.silver, plan, &comparators, &key, &schema)?;
        let agreement = match (are_equal(&folded, &silver)?, self.is_behind) {
            (true, _) => Agreement::Agrees,
            (false, true) => Agreement::Behind,
            (false, false) => Agreement::Differs,
        };
        let rows = take_record_batch(&records.rows, &UInt32Array::from(listing.rows))?;
        Ok(Explanation {
            key,
            sequences: sequences(&rows, plan)?,
            values: values(&rows, bronze)?,
            events: listing.events,
            folded,
            silver,
            agreement,
        })
    }
}

impl Explanation {
    fn add_refused(
        &mut self,
        quarantine: &QuarantineTable,
        settings: &PipelineSettings,
        plan: &SilverPlan,
    ) -> Result<()> {
        let comparators = Comparators::new(plan)?;
        let refused = records::refused(quarantine, &settings.source, &comparators, &self.key)?;
        self.events.extend(refused.into_iter().map(refused_event));
        Ok(())
    }
}

fn refused_event(record: QuarantinedRecord) -> ExplainedEvent {
    ExplainedEvent {
        place: Place {
            file_path: record.file_path,
            file_row: Some(record.file_row),
        },
        batch_id: record.batch_id,
        kind: None,
        is_in_order: None,
        late_after: None,
        fate: Fate::Refused,
        other: None,
        reason: format!("{}: {}", record.reason, record.detail),
    }
}

/// The sequence columns, in their order.
fn sequences(rows: &RecordBatch, plan: &SilverPlan) -> Result<RecordBatch> {
    let names = plan.names(&plan.sequence);
    let columns = plan.sequence_columns(rows);
    Ok(RecordBatch::try_from_iter_with_nullable(
        names
            .iter()
            .zip(columns)
            .map(|(name, column)| (name, column, true)),
    )?)
}

/// The columns of the source.
fn values(rows: &RecordBatch, bronze: &Table) -> Result<RecordBatch> {
    let schema = refold::event_schema(bronze);
    let is_place = |name: &str| [FILE_PATH, FILE_ROW].contains(&name);
    let names = schema.fields().iter().map(|field| field.name());
    let places = names
        .filter(|name| !is_place(name))
        .map(|name| rows.schema_ref().index_of(name));
    Ok(rows.project(&places.collect::<Result<Vec<_>, _>>()?)?)
}

/// Whether two batches of one schema have the same rows in the same order; NULL equals NULL.
fn are_equal(left: &RecordBatch, right: &RecordBatch) -> Result<bool> {
    if left.num_rows() != right.num_rows() {
        return Ok(false);
    }
    let both = pool::joined(left.columns(), right.columns())?;
    let same = ContentEquality::new(&both);
    let count = left.num_rows() as u32;
    Ok((0..count).all(|row| same.all(row, count + row)))
}

/// Whether bronze has versions that silver lacks; those that changed no row do not count.
async fn is_behind(bronze: &BronzeTable, silver: &SilverTable) -> Result<bool> {
    let Some(table) = silver.table() else {
        return Ok(true);
    };
    let Some(applied) = silver.applied_up_to() else {
        // Where the checkpoint is lost, the name that silver was written under may be another one.
        return Ok(table.transactions().is_empty());
    };
    for version in applied.0 + 1..=bronze.table().version().0 {
        match bronze.files_of_version(Version(version)).await {
            Ok(files) if files.added.is_empty() && files.removed.is_empty() => {}
            // A log entry that is gone may have changed rows.
            Ok(_) | Err(_) => return Ok(true),
        }
    }
    Ok(false)
}

async fn version_at(path: &Path) -> Result<Option<Version>> {
    Ok(Table::open(path).await?.map(|table| table.version()))
}

fn no_bronze(settings: &PipelineSettings) -> Error {
    let path = settings.bronze.path.display();
    Error::unavailable(format!("there is no Delta table yet: {path}"))
        .hint("load files first: landfall run --available-now")
}

fn no_key_yet(settings: &PipelineSettings) -> Error {
    Error::unavailable(format!(
        "bronze of {} has no key or sequence column yet: no record brought one",
        settings.name
    ))
    .hint("landfall schema shows the columns that are there")
}
