//! The order of durable writes, and recovery from every gap in it.
//!
//! ```text
//! plan      SQLite   batch N = these files; meanwhile a small batch of many files is decoded
//! decode    disk     data files of bronze with the rows of a large batch, which no log names
//! prepare   SQLite   what decoding found in each; meanwhile the data files with the rows of a small batch
//! rejects   Delta    quarantine, with txn (pipeline/epoch/quarantine, N)
//! rows      Delta    bronze, with txn (pipeline/epoch/bronze, N)
//! confirm   SQLite   files loaded
//! merge     Delta    silver, with txn (pipeline/silver, version of bronze)
//! confirm   SQLite   applied
//! clean     disk     move or delete the source files
//! ```
//!
//! A table is asked for its transaction before anything is done again, so each step may be cut off and repeated. Delta's
//! logs are the truth; the checkpoint is the plan and the ledger of files.

use crate::agreement::repair_tables;
use crate::batch::MicroBatch;
use crate::bronze::{BronzeTable, RowsAhead};
use crate::change::{BatchId, FileFault, PRESENT_COLUMNS, SNAPSHOT_VERSION, Version};
use crate::checkpoint::{CheckpointStore, FileOutcome, Lock, NextBatch, OutcomeKind};
use crate::clock::Clock;
use crate::crash::{CrashPoint, CrashSwitch};
use crate::delta::AppTransaction;
use crate::error::{Error, Result};
use crate::events::check_rules;
use crate::load::{FirstPass, LoadContext, LoadLimits, LoadedBatch, duplicates, is_large};
use crate::parallel::beside;
use crate::quarantine::QuarantineTable;
use crate::schema::TableSchema;
use crate::settings::{AbsentColumns, Envelope, KeyIndexMode, PipelineSettings, SnapshotVersion};
use crate::silver::{ApplyCounters, SilverTable};
use arrow::datatypes::{DataType, Field, Schema};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::Builder;

/// What the checkpoint is told of fewer files takes less time than it takes to begin another thread.
const BESIDE_CHECKPOINT_MIN: usize = if cfg!(debug_assertions) { 2 } else { 500 };

/// One pipeline, opened for loading: it holds the lock on its checkpoint.
pub struct Pipeline {
    pub(crate) settings: PipelineSettings,
    pub(crate) checkpoint: CheckpointStore,
    pub(crate) bronze: Option<BronzeTable>,
    pub(crate) quarantine: QuarantineTable,
    pub(crate) silver: Option<SilverTable>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) crash: CrashSwitch,
    pub(crate) hints: TableSchema,
    /// When the work on the present batch began.
    started_at: i64,
    /// Held as long as the pipeline is open: another checkpoint may name the same table.
    table_lock: Option<Lock>,
    limits: LoadLimits,
}

/// What one micro-batch did.
#[derive(Clone, Debug, Default)]
pub struct BatchReport {
    /// The batch; `None` when only earlier versions of bronze were applied to silver.
    pub batch_id: Option<BatchId>,
    /// Files that loaded.
    pub files: u64,
    /// Rows that bronze gained.
    pub rows: u64,
    /// Records that went to quarantine.
    pub quarantined: u64,
    /// Files that are parked now, and why.
    pub parked: Vec<(String, FileFault)>,
    /// Columns that bronze gained.
    pub new_columns: Vec<String>,
    /// The version of bronze after it.
    pub bronze_version: Option<Version>,
    /// The version of silver after it.
    pub silver_version: Option<Version>,
    /// What silver took.
    pub counters: ApplyCounters,
    /// Wall time.
    pub seconds: f64,
}

/// What a start found and mended.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    /// One line each, for the operator.
    pub notes: Vec<String>,
    /// A batch that was cut off, and is done now.
    pub batch: Option<BatchReport>,
}

impl Pipeline {
    /// Takes the lock, opens the tables and checks that they agree with the checkpoint.
    ///
    /// Mends what a power cut left at the end of a log. Fails with a disagreement, and changes nothing, where tables and
    /// checkpoint tell different stories; with `Held` where another loader runs.
    pub async fn open(
        settings: PipelineSettings,
        clock: Arc<dyn Clock>,
        crash: CrashSwitch,
    ) -> Result<(Pipeline, Recovery)> {
        let hints = hints_of(&settings)?;
        let rules = settings.silver.as_ref().map(|silver| &silver.events);
        if let Some((_, error)) = rules.and_then(|rules| check_rules(rules).pop()) {
            return Err(error);
        }
        let checkpoint = CheckpointStore::open(
            &settings.checkpoint,
            &settings.name,
            &settings.source.path,
            clock.now(),
        )?;
        let mut recovery = Recovery::default();
        recovery
            .notes
            .extend(checkpoint.journal_note().map(str::to_string));
        let table_lock = match settings.bronze.path.exists() {
            true => Some(Lock::take_of_table(&settings.bronze.path, clock.now())?),
            false => None,
        };
        let repairs = repair_tables(&settings)?;
        let mut bronze = BronzeTable::open(&settings.bronze.path).await?;
        if let Some(bronze) = &mut bronze {
            bronze.table_mut().set_bloom_columns(key_columns(&settings));
        }
        let quarantine = QuarantineTable::open(&settings.bronze.quarantine_path()).await?;
        let silver = match &settings.silver {
            Some(silver) => {
                let word = settings.source.unavailable_value.clone();
                let table = SilverTable::open(silver, word, checkpoint.pipeline_id()).await?;
                match silver.key_index {
                    KeyIndexMode::Off => Some(table),
                    KeyIndexMode::Auto | KeyIndexMode::On => {
                        Some(table.with_index(index_folder(&settings.checkpoint)))
                    }
                }
            }
            None => None,
        };
        let mut pipeline = Pipeline {
            settings,
            checkpoint,
            bronze,
            quarantine,
            silver,
            started_at: clock.now(),
            table_lock,
            limits: LoadLimits::default(),
            clock,
            crash,
            hints,
        };
        pipeline.check_hints()?;
        pipeline.check_agreement()?;
        if !repairs.is_empty() {
            recovery.notes.extend(repairs);
            recovery
                .notes
                .extend(pipeline.take_back_lost_files().await?);
        }
        pipeline.check_versions()?;
        Ok((pipeline, recovery))
    }

    /// Confirms or redoes what the last run left unfinished. Called once, after [`Pipeline::open`].
    pub async fn recover(&mut self) -> Result<Option<BatchReport>> {
        self.started_at = self.clock.now();
        if let Some(batch) = self.checkpoint.planned()? {
            return Ok(Some(self.finish(batch).await?));
        }
        let report = self.apply_pending(BatchReport::default()).await?;
        Ok((report.counters != ApplyCounters::default()).then_some(report))
    }

    /// Gives silver the change data feed and the deletion vectors that the settings ask for; a note if it lacked them.
    ///
    /// Goes before [`Pipeline::recover`], so that the feed tells all that is applied from now on.
    pub async fn follow_settings(&mut self) -> Result<Option<String>> {
        match &mut self.silver {
            Some(silver) => silver.follow_settings(&self.crash).await,
            None => Ok(None),
        }
    }

    /// Sets how much of a batch may be in memory; what is loaded does not depend on it.
    pub fn set_limits(&mut self, limits: LoadLimits) {
        self.limits = limits;
    }

    /// The settings.
    pub fn settings(&self) -> &PipelineSettings {
        &self.settings
    }

    /// The schema that the next files are decoded with.
    pub fn schema(&self) -> TableSchema {
        let schema = match &self.bronze {
            Some(bronze) => with_hints(bronze.source_schema(), &self.hints),
            None => self.hints.clone(),
        };
        with_own_columns(schema, &self.settings)
    }

    /// Freezes a batch, loads it into bronze and applies it to silver.
    ///
    /// If the process stops inside, [`Pipeline::recover`] finds the batch in the checkpoint, if it came so far, and asks the
    /// tables how far it came there.
    pub async fn load_batch(&mut self, next: NextBatch) -> Result<BatchReport> {
        self.started_at = self.clock.now();
        let batch = &next.batch;
        let loaded = self.load(batch, Some(&next)).await?;
        let report = self.append(batch, loaded).await?;
        self.apply_pending(report).await
    }

    /// Applies every version of bronze that silver lacks, adding to `report`.
    pub async fn apply_pending(&mut self, mut report: BatchReport) -> Result<BatchReport> {
        let Some(bronze) = &self.bronze else {
            return Ok(report);
        };
        let newest = bronze.table().version();
        if let Some(silver) = &mut self.silver {
            let first = silver.applied_up_to().map_or(0, |version| version.0 + 1);
            for version in (first..=newest.0).map(Version) {
                let Ok(files) = bronze.files_of_version(version).await else {
                    // Its log entry was cleaned away, as any writer may after a log checkpoint: the rows are there all the same.
                    let commit = silver.rebuild(bronze, &self.crash).await?;
                    report.counters.add(&commit.counters);
                    break;
                };
                if files.added.is_empty() && files.removed.is_empty() {
                    continue;
                }
                let commit = silver.apply(bronze, version, &files, &self.crash).await?;
                self.crash.reach(CrashPoint::AfterSilverCommit)?;
                report.counters.add(&commit.counters);
            }
            report.silver_version = silver.table().map(|table| table.version());
        }
        report.seconds = (self.clock.now() - self.started_at) as f64 / 1e6;
        if self.checkpoint.applied_up_to()? != Some(newest) {
            let counters = crate::checkpoint::ApplyCounters::from(&report);
            self.checkpoint
                .confirm_applied(newest, report.silver_version, &counters)?;
            self.crash.reach(CrashPoint::AfterConfirmApplied)?;
        }
        Ok(report)
    }

    /// Makes the key index of silver where that pays: for tables of at least `rows_min` rows.
    pub fn build_index(&mut self, rows_min: i64) -> Result<bool> {
        let silver = self.settings.silver.as_ref();
        let always = silver.is_some_and(|silver| silver.key_index == KeyIndexMode::On);
        let rows_min = if always { 0 } else { rows_min };
        match (&self.bronze, &mut self.silver) {
            (Some(bronze), Some(silver)) => silver.build_index(bronze, rows_min),
            _ => Ok(false),
        }
    }

    /// Decodes the files of a batch, which is frozen first if it is the `next` one. Rows of a large one are written ahead,
    /// which no log names yet; for that, bronze is made if it is not there.
    ///
    /// To freeze many files takes a while, in which they are decoded: what that makes is lost with the plan.
    async fn load(
        &mut self,
        batch: &MicroBatch,
        mut next: Option<&NextBatch>,
    ) -> Result<LoadedBatch> {
        let is_long = batch.files.len() >= BESIDE_CHECKPOINT_MIN;
        let mut limits = self.limits;
        let mut is_large = is_large(batch, &limits);
        loop {
            if is_large || !is_long {
                let (checkpoint, reading) = self.apart(limits);
                freeze(checkpoint, next.take(), &reading)?;
            }
            if let Some(loaded) = self.load_once(batch, next.take(), is_large, limits).await? {
                self.crash.reach(CrashPoint::AfterDecode)?;
                return Ok(loaded);
            }
            // Its files are small, and their rows are many.
            is_large = true;
            limits.unwritten_bytes_max = usize::MAX;
        }
    }

    /// The same; `None` where a batch turns out to have more rows than may be in memory.
    async fn load_once(
        &mut self,
        batch: &MicroBatch,
        next: Option<&NextBatch>,
        is_large: bool,
        limits: LoadLimits,
    ) -> Result<Option<LoadedBatch>> {
        let schema = self.schema();
        if is_large && !self.is_first() {
            self.make_bronze(&schema).await?;
        }
        let (checkpoint, reading) = self.apart(limits);
        let known_content = |hash: &str| checkpoint.known_content(hash);
        let skipped = duplicates(batch, reading.settings, &known_content)?;
        let (frozen, first) = beside(
            next.is_some(),
            || freeze(checkpoint, next, &reading),
            || {
                reading.run(batch, |context, ahead| {
                    FirstPass::read(batch, &schema, skipped, context, ahead)
                })
            },
        );
        frozen?;
        let first = first?;
        if let Some(schema) = first.waits_for().filter(|_| is_large) {
            self.make_bronze(schema).await?;
        }
        let (checkpoint, reading) = self.apart(limits);
        let attempts = |path: &str| Ok(checkpoint.file(path)?.map_or(0, |file| file.attempts));
        reading.run(batch, |context, ahead| {
            first.finish(context, &attempts, ahead)
        })
    }

    /// There are neither rows nor hints.
    fn is_first(&self) -> bool {
        let is_new = self.bronze.as_ref().is_none_or(BronzeTable::is_new);
        is_new && self.hints.columns.fields().is_empty()
    }

    /// The checkpoint, and what reads files without it.
    fn apart(&mut self, limits: LoadLimits) -> (&mut CheckpointStore, Reading<'_>) {
        let reading = Reading {
            is_first: self.is_first(),
            settings: &self.settings,
            bronze: self.bronze.as_ref(),
            silver: self.silver.as_ref(),
            now: self.clock.now(),
            started_at: self.started_at,
            limits,
            crash: &self.crash,
        };
        (&mut self.checkpoint, reading)
    }

    /// The batch that was planned when the last run stopped: confirm it if bronze has it, else do it again, or give it up
    /// if its files are not what they were.
    async fn finish(&mut self, batch: MicroBatch) -> Result<BatchReport> {
        let transaction = self.transaction("bronze", batch.id)?;
        let committed = self
            .bronze
            .as_ref()
            .and_then(|bronze| bronze.table().transaction(&transaction.app_id));
        if committed >= Some(batch.id.0) {
            let outcomes = self.checkpoint.prepared(batch.id)?.ok_or_else(|| {
                Error::disagreement(format!(
                    "bronze holds batch {} that the checkpoint never prepared",
                    batch.id
                ))
                .hint("run rebuild PIPELINE checkpoint")
            })?;
            let bronze = self.bronze.as_ref().ok_or_else(no_bronze)?;
            let version = bronze.table().version_of_transaction(&transaction).await?;
            let version = version.unwrap_or_else(|| bronze.table().version());
            self.checkpoint
                .confirm_loaded(batch.id, Some(version), self.clock.now())?;
            return self
                .apply_pending(report_of(batch.id, &outcomes, Some(version)))
                .await;
        }
        let loaded = self.load(&batch, None).await?;
        if let Some(outcomes) = self.checkpoint.prepared(batch.id)?
            && !same_content(&outcomes, &loaded.outcomes)
        {
            self.checkpoint.release(batch.id)?;
            self.take_back_rejects(&batch).await?;
            return self.apply_pending(BatchReport::default()).await;
        }
        let report = self.append(&batch, loaded).await?;
        self.apply_pending(report).await
    }

    /// Rejects of a batch that was given up go again, where their files were never loaded: such a file may never come back.
    async fn take_back_rejects(&mut self, batch: &MicroBatch) -> Result<()> {
        let transaction = self.transaction("quarantine", batch.id)?;
        let held = self.quarantine.table();
        let held = held.and_then(|table| table.transaction(&transaction.app_id));
        if held < Some(batch.id.0) {
            return Ok(());
        }
        let mut never_loaded = BTreeSet::new();
        for file in &batch.files {
            let record = self.checkpoint.file(&file.path)?;
            if record.is_some_and(|record| record.loaded_at.is_none()) {
                never_loaded.insert(file.path.clone());
            }
        }
        let released = self.transaction("quarantine-released", batch.id)?;
        let now = self.clock.now();
        let rejects = BTreeMap::new();
        let _commit = self
            .quarantine
            .append(batch.id, released, &rejects, &never_loaded, now)
            .await?;
        Ok(())
    }

    /// Prepare, quarantine, bronze, confirm.
    async fn append(&mut self, batch: &MicroBatch, mut loaded: LoadedBatch) -> Result<BatchReport> {
        let now = self.started_at;
        let before = self.schema();
        self.prepare(batch.id, &mut loaded).await?;
        let loading: BTreeSet<&str> = loaded.loading().collect();
        let replaces = |path: &str| loading.contains(path);
        let replaced: BTreeSet<String> = batch
            .files
            .iter()
            .filter(|file| file.replaces && replaces(&file.path))
            .map(|file| file.path.clone())
            .collect();
        let transaction = self.transaction("quarantine", batch.id)?;
        let quarantined = self
            .quarantine
            .append(batch.id, transaction, &loaded.rejects, &replaced, now)
            .await?;
        if quarantined.is_some() {
            self.crash.reach(CrashPoint::AfterQuarantineCommit)?;
        }
        let version = self.append_rows(batch.id, &mut loaded, &replaced).await?;
        let counters = self.confirm_loaded(batch, version).await?;
        let mut report = report_of(batch.id, &loaded.outcomes, version);
        report.counters.add(&counters);
        let is_new = |name: &&String| before.columns.field_with_name(name).is_err();
        let names: Vec<String> = loaded
            .schema
            .columns
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect();
        report.new_columns = names.iter().filter(is_new).cloned().collect();
        Ok(report)
    }

    /// Confirms a batch that bronze holds, if it brought rows. Of many files this takes a while, in which silver takes what
    /// they brought, if it lacks nothing else; gives what that changed.
    ///
    /// Either may be there without the other if the process stops inside: recovery asks both tables how far they came.
    async fn confirm_loaded(
        &mut self,
        batch: &MicroBatch,
        version: Option<Version>,
    ) -> Result<ApplyCounters> {
        let now = self.started_at;
        let is_long = batch.files.len() >= BESIDE_CHECKPOINT_MIN;
        let is_next = |silver: &&mut SilverTable| {
            let next = silver.applied_up_to().map_or(1, |version| version.0 + 1);
            is_long && version == Some(Version(next))
        };
        let silver = self.silver.as_mut().filter(is_next);
        let (Some(version), Some(bronze), Some(silver)) = (version, &self.bronze, silver) else {
            return self.confirm_first(batch, version);
        };
        // Another writer may have cleaned the log; then silver is made from the rows that are there.
        let Ok(files) = bronze.files_of_version(version).await else {
            return self.confirm_first(batch, Some(version));
        };
        let (checkpoint, crash) = (&mut self.checkpoint, &self.crash);
        let (confirmed, applied) = beside(
            true,
            || checkpoint.confirm_loaded(batch.id, Some(version), now),
            || {
                // The runtime of the loader waits for this.
                let runtime = Builder::new_current_thread().enable_time().build();
                let runtime = runtime.map_err(|error| {
                    Error::unavailable(format!("silver cannot be written aside: {error}"))
                })?;
                runtime.block_on(silver.apply(bronze, version, &files, crash))
            },
        );
        confirmed?;
        self.crash.reach(CrashPoint::AfterConfirmLoaded)?;
        let commit = applied?;
        self.crash.reach(CrashPoint::AfterSilverCommit)?;
        Ok(commit.counters)
    }

    /// Confirms a batch before silver takes what it brought.
    fn confirm_first(
        &mut self,
        batch: &MicroBatch,
        version: Option<Version>,
    ) -> Result<ApplyCounters> {
        self.checkpoint
            .confirm_loaded(batch.id, version, self.started_at)?;
        self.crash.reach(CrashPoint::AfterConfirmLoaded)?;
        Ok(ApplyCounters::default())
    }

    /// Records what decoding found, and meanwhile writes the rows that are in memory into data files.
    async fn prepare(&mut self, batch: BatchId, loaded: &mut LoadedBatch) -> Result<()> {
        let rows = std::mem::take(&mut loaded.rows);
        if rows.is_empty() {
            return self.checkpoint.prepare(batch, &loaded.outcomes);
        }
        self.make_bronze(&loaded.schema).await?;
        let bronze = self.bronze.as_ref().ok_or_else(no_bronze)?;
        let ahead = RowsAhead::new(bronze, batch, self.started_at);
        let checkpoint = &mut self.checkpoint;
        let (prepared, written) = beside(
            true,
            || checkpoint.prepare(batch, &loaded.outcomes),
            || ahead.write(&loaded.schema, rows),
        );
        let written = written?;
        if prepared.is_err() {
            ahead.discard(&written);
        }
        loaded.written.extend(written);
        prepared
    }

    /// The rows of a batch, in one commit; none where there is nothing to add and nothing to replace.
    async fn append_rows(
        &mut self,
        batch: BatchId,
        loaded: &mut LoadedBatch,
        replaced: &BTreeSet<String>,
    ) -> Result<Option<Version>> {
        if loaded.written.is_empty() && (replaced.is_empty() || self.bronze.is_none()) {
            return Ok(None);
        }
        let transaction = self.transaction("bronze", batch)?;
        self.make_bronze(&loaded.schema).await?;
        let bronze = self.bronze.as_mut().ok_or_else(no_bronze)?;
        let commit = bronze
            .append(
                batch,
                transaction,
                &loaded.schema,
                std::mem::take(&mut loaded.written),
                replaced,
                &self.crash,
            )
            .await?;
        if commit.already_applied {
            return Err(Error::disagreement(format!(
                "bronze holds a batch {batch} that is not this one: another loader wrote it with a copy of the checkpoint"
            ))
            .hint(format!(
                "stop the other loader, then run landfall rebuild {} checkpoint",
                self.settings.name
            )));
        }
        self.crash.reach(CrashPoint::AfterBronzeCommit)?;
        Ok(Some(commit.version))
    }

    /// Makes bronze if it is not there.
    async fn make_bronze(&mut self, schema: &TableSchema) -> Result<()> {
        if self.bronze.is_some() {
            return Ok(());
        }
        let settings = &self.settings.bronze;
        if let Some(folder) = settings.path.parent() {
            std::fs::create_dir_all(folder)
                .map_err(|error| Error::unavailable(format!("{}: {error}", folder.display())))?;
        }
        // A folder without a table, as a stop in the middle of its making leaves it, was locked at the start.
        if self.table_lock.is_none() {
            let lock = Lock::take_of_table(&settings.path, self.clock.now())?;
            self.table_lock = Some(lock);
        }
        let mut created =
            BronzeTable::create(&settings.path, schema, &settings.partition_by).await?;
        let keys = key_columns(&self.settings);
        created.table_mut().set_bloom_columns(keys);
        self.bronze = Some(created);
        Ok(())
    }

    /// The application transaction of a batch in one of the tables that batches go to.
    pub(crate) fn transaction(&self, table: &str, batch: BatchId) -> Result<AppTransaction> {
        let app_id = format!(
            "{}/{}/{table}",
            self.checkpoint.pipeline_id(),
            self.checkpoint.epoch()?
        );
        Ok(AppTransaction {
            app_id,
            version: batch.0,
        })
    }
}

/// What files are read with, the checkpoint aside.
struct Reading<'a> {
    settings: &'a PipelineSettings,
    bronze: Option<&'a BronzeTable>,
    silver: Option<&'a SilverTable>,
    is_first: bool,
    now: i64,
    started_at: i64,
    limits: LoadLimits,
    crash: &'a CrashSwitch,
}

impl Reading<'_> {
    fn run<T>(
        &self,
        batch: &MicroBatch,
        work: impl FnOnce(&LoadContext<'_>, Option<&RowsAhead<'_>>) -> Result<T>,
    ) -> Result<T> {
        let context = LoadContext {
            settings: self.settings,
            late_snapshot: &|rows| match self.silver {
                Some(silver) => silver.late_snapshot(rows),
                None => Ok(None),
            },
            is_first: self.is_first,
            now: self.now,
            limits: self.limits,
        };
        let ahead = |bronze| RowsAhead::new(bronze, batch.id, self.started_at);
        work(&context, self.bronze.map(ahead).as_ref())
    }
}

/// Freezes a batch, if it is not yet.
fn freeze(
    checkpoint: &mut CheckpointStore,
    next: Option<&NextBatch>,
    reading: &Reading<'_>,
) -> Result<()> {
    let Some(next) = next else {
        return Ok(());
    };
    checkpoint.freeze(next, reading.started_at)?;
    reading.crash.reach(CrashPoint::AfterPlan)
}

impl ApplyCounters {
    /// Adds what another apply did.
    pub fn add(&mut self, other: &ApplyCounters) {
        self.rows_inserted += other.rows_inserted;
        self.rows_updated += other.rows_updated;
        self.rows_deleted += other.rows_deleted;
        self.rows_late += other.rows_late;
        self.rows_left_out += other.rows_left_out;
        self.rows_repeated += other.rows_repeated;
        self.conflicts += other.conflicts;
    }
}

impl From<&BatchReport> for crate::checkpoint::ApplyCounters {
    fn from(report: &BatchReport) -> Self {
        let counters = &report.counters;
        crate::checkpoint::ApplyCounters {
            rows_inserted: counters.rows_inserted,
            rows_updated: counters.rows_updated,
            rows_deleted: counters.rows_deleted,
            rows_late: counters.rows_late,
            rows_repeated: counters.rows_repeated,
            conflicts: counters.conflicts,
            seconds: report.seconds,
        }
    }
}

/// The key index stands beside the checkpoint and is as easily lost.
fn index_folder(checkpoint: &Path) -> PathBuf {
    let mut name = checkpoint.file_name().unwrap_or_default().to_os_string();
    name.push(".keys");
    checkpoint.with_file_name(name)
}

/// The columns that the hints give to bronze.
pub(crate) fn hints_of(settings: &PipelineSettings) -> Result<TableSchema> {
    let source = &settings.source;
    let hints = TableSchema::from_hints(&source.schema_hints)?;
    let of_row = |field: &&Arc<Field>| !source.envelope.hides_hint(source.format, field.name());
    let fields = hints.columns.fields().iter().filter(of_row).cloned();
    Ok(TableSchema {
        columns: Arc::new(Schema::new(fields.collect::<Vec<_>>())),
    })
}

/// Columns of hints that bronze does not have yet join its schema.
pub(crate) fn with_hints(bronze: TableSchema, hints: &TableSchema) -> TableSchema {
    let new: Vec<crate::decode::NewColumn> = hints
        .columns
        .fields()
        .iter()
        .filter(|field| bronze.columns.field_with_name(field.name()).is_err())
        .map(|field| crate::decode::NewColumn {
            name: field.name().clone(),
            data_type: field.data_type().clone(),
        })
        .collect();
    bronze.extended(&new)
}

/// The columns of bronze by which the events of a key are found.
fn key_columns(settings: &PipelineSettings) -> &[String] {
    let silver = settings.silver.as_ref();
    silver.map_or(&[], |silver| &silver.keys)
}

/// The columns that the loader fills by the settings, beside those of every bronze.
pub(crate) fn with_own_columns(schema: TableSchema, settings: &PipelineSettings) -> TableSchema {
    let schema = match (settings.source.envelope, settings.source.absent_columns) {
        (Envelope::None, AbsentColumns::Null) => schema,
        (Envelope::None, AbsentColumns::Keep) => {
            schema.with_own_column(PRESENT_COLUMNS, DataType::Utf8)
        }
        _ => schema.with_envelope_columns(),
    };
    match settings.source.snapshot_version {
        SnapshotVersion::FileName => schema.with_own_column(SNAPSHOT_VERSION, DataType::Int64),
        SnapshotVersion::None | SnapshotVersion::Column => schema,
    }
}

fn report_of(batch: BatchId, outcomes: &[FileOutcome], version: Option<Version>) -> BatchReport {
    let mut report = BatchReport {
        batch_id: Some(batch),
        bronze_version: version,
        ..BatchReport::default()
    };
    for outcome in outcomes {
        match &outcome.result {
            OutcomeKind::Loaded { rows, quarantined } => {
                report.files += 1;
                report.rows += rows;
                report.quarantined += quarantined;
            }
            OutcomeKind::Duplicate { .. } => report.files += 1,
            OutcomeKind::Parked { fault, .. } => {
                report.parked.push((outcome.path.clone(), fault.clone()))
            }
            OutcomeKind::Again | OutcomeKind::Vanished => {}
        }
    }
    report
}

/// Whether two decodings of the same files saw the same bytes.
fn same_content(before: &[FileOutcome], now: &[FileOutcome]) -> bool {
    let same = |(before, now): (&FileOutcome, &FileOutcome)| {
        before.path == now.path
            && before.content_hash == now.content_hash
            && before.result == now.result
    };
    before.len() == now.len() && before.iter().zip(now).all(same)
}

fn no_bronze() -> Error {
    Error::bug("bronze has a transaction but is not open")
}
