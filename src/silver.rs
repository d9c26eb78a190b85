//! Folds bronze into silver: one sequence-guarded merge for each version of bronze, exactly once.
//!
//! Two paths compute a row and must agree. The fast path takes the new events of a version and the rows that are there; the
//! exact path folds all events of a key again from bronze and is taken wherever new events alone cannot tell. Each commit
//! carries the bronze version in its application transaction, so applying a version twice is harmless. [`SilverTable::apply`]
//! is the seam where another engine can stand.

mod apply;
mod carried;
pub mod changes;
mod compare;
pub mod fold;
mod history;
mod incoming;
pub mod index;
pub mod locate;
mod made_with;
mod merge;
mod newer;
mod order;
mod pieces;
pub mod plan;
pub mod pool;
mod rebuild;
pub mod refold;
pub mod scd1;
mod sift;
mod sweep;
pub mod truncates;
mod write;

use crate::bronze::BronzeTable;
use crate::change::{DELETED, Version};
use crate::crash::{CrashPoint, CrashSwitch};
use crate::delta::{AppTransaction, CommitOutcome, Table, TableSpec};
use crate::error::{Error, ErrorKind, Result};
use crate::parallel::in_parallel;
use crate::settings::{ScdType, SilverSettings, WriteMode};
use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::SchemaRef;
pub use compare::SilverDifferences;
use index::KeyIndex;
use made_with::SETTINGS_PROPERTY;
use plan::SilverPlan;
use pool::Comparators;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// How often a commit that lost against a foreign writer is computed again.
const COMMIT_ATTEMPTS_MAX: u32 = 10;

/// What one apply did, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApplyCounters {
    /// Rows of new keys.
    pub rows_inserted: u64,
    /// Rows that changed and stay live (or come back to life).
    pub rows_updated: u64,
    /// Rows that became deleted.
    pub rows_deleted: u64,
    /// Events older than the row of their key.
    pub rows_late: u64,
    /// Events that say what is known.
    pub rows_repeated: u64,
    /// Events of equal sequence and other content.
    pub conflicts: u64,
    /// Rows of bronze that the rules of silver cannot take: an operation outside the set, a NULL key or sequence. They were
    /// loaded under other rules.
    pub rows_left_out: u64,
}

/// Proof that silver holds a version of bronze.
#[must_use]
#[derive(Clone, Debug)]
pub struct SilverCommit {
    /// The version of silver.
    pub version: Version,
    /// The version of bronze.
    pub bronze_version: Version,
    /// What was done; zero if silver had the version before.
    pub counters: ApplyCounters,
}

/// The silver table, or the place where it will be.
pub struct SilverTable {
    settings: SilverSettings,
    unavailable_value: Option<String>,
    app_id: String,
    table: Option<Table>,
    index: IndexState,
}

/// The key index of a silver table, if one is kept.
enum IndexState {
    /// None is kept.
    Off,
    /// One may be in this folder.
    Closed(PathBuf),
    /// One is open; it may lag behind.
    Open(PathBuf, Box<KeyIndex>),
    /// There is none that fits the table; one can be made here.
    Missing(PathBuf),
}

impl SilverTable {
    /// Opens silver; it need not exist yet. `pipeline` names the application of its transactions.
    ///
    /// Fails with a settings error when silver was made with other keys, sequence, columns or rules.
    pub async fn open(
        settings: &SilverSettings,
        unavailable_value: Option<String>,
        pipeline: &str,
    ) -> Result<SilverTable> {
        let silver = SilverTable::open_unchecked(settings, unavailable_value, pipeline).await?;
        silver.check_settings()?;
        Ok(silver)
    }

    /// The same without a look at the settings it was made with; for a rebuild.
    pub async fn open_unchecked(
        settings: &SilverSettings,
        unavailable_value: Option<String>,
        pipeline: &str,
    ) -> Result<SilverTable> {
        Ok(SilverTable {
            table: Table::open(&settings.path).await?,
            settings: settings.clone(),
            unavailable_value,
            app_id: format!("{pipeline}/silver"),
            index: IndexState::Off,
        })
    }

    /// Keeps a key index in `folder`, a cache that may be deleted at any time.
    ///
    /// A silver that keeps versions has several rows of a key, which the index does not know.
    pub fn with_index(mut self, folder: PathBuf) -> Self {
        self.index = match self.settings.scd_type {
            ScdType::One => IndexState::Closed(folder),
            ScdType::Two { .. } => IndexState::Off,
        };
        self
    }

    /// The table below, if it was made.
    pub fn table(&self) -> Option<&Table> {
        self.table.as_ref()
    }

    /// The table below, for upkeep.
    pub fn table_mut(&mut self) -> Option<&mut Table> {
        self.table.as_mut()
    }

    /// The columns that keep equal keys together, for upkeep.
    pub fn keys(&self) -> &[String] {
        &self.settings.keys
    }

    /// The last version of bronze that silver holds.
    pub fn applied_up_to(&self) -> Option<Version> {
        self.table.as_ref()?.transaction(&self.app_id).map(Version)
    }

    /// Rows whose flag says deleted.
    pub fn deleted_rows(&self) -> Result<u64> {
        let Some(table) = &self.table else {
            return Ok(0);
        };
        if table.schema().field_with_name(DELETED).is_err() {
            return Ok(0);
        }
        let files: Vec<_> = table.files().collect();
        let counts = in_parallel(files.len(), |file| {
            let mut deleted = 0;
            for scanned in table.scan(files[file], &[DELETED.into()])? {
                deleted += scanned?.rows.column(0).as_boolean().true_count() as u64;
            }
            Ok(deleted)
        })?;
        Ok(counts.into_iter().sum())
    }

    /// Turns the change data feed on or off, and deletion vectors on, where the table differs from the settings; what was
    /// done, if anything.
    ///
    /// If the process stops inside, it is done or not at all.
    pub async fn follow_settings(&mut self, crash: &CrashSwitch) -> Result<Option<String>> {
        let feed = self.settings.change_data_feed;
        let vectors = self.settings.write_mode == WriteMode::MergeOnRead;
        let Some(table) = &mut self.table else {
            return Ok(None);
        };
        for _ in 0..COMMIT_ATTEMPTS_MAX {
            let mut done = Vec::new();
            if table.has_change_data_feed() != feed {
                let word = if feed { "on" } else { "off" };
                done.push(format!("the change data feed of silver is {word}"));
            }
            if vectors && !table.has_deletion_vectors() {
                done.push("silver may have deletion vectors".to_string());
            }
            if done.is_empty() {
                return Ok(None);
            }
            crash.reach(CrashPoint::BeforeSilverCommit)?;
            match table.set_features(feed, vectors).await? {
                CommitOutcome::Committed(version) => {
                    let done = done.join(" and ");
                    return Ok(Some(format!("{done} from version {version} on")));
                }
                CommitOutcome::Conflict => table.reload().await?,
            }
        }
        Err(self.always_written())
    }

    /// Makes the key index anew where one is kept, none fits, and silver has at least `rows_min` rows. `true` if it did.
    ///
    /// If the process stops inside, there is no index, and nothing else is touched.
    pub fn build_index(&mut self, bronze: &BronzeTable, rows_min: i64) -> Result<bool> {
        let Some(table) = self
            .table
            .as_ref()
            .filter(|table| table.row_count() >= rows_min)
        else {
            return Ok(false);
        };
        let folder = match &self.index {
            IndexState::Missing(folder) => folder.clone(),
            IndexState::Open(folder, index) if index.is_overgrown() => folder.clone(),
            IndexState::Off | IndexState::Closed(_) | IndexState::Open(..) => return Ok(false),
        };
        let Some(plan) = self.plan(&bronze.table().schema())? else {
            return Ok(false);
        };
        let comparators = Comparators::new(&plan)?;
        let built = KeyIndex::build(&folder, table, &plan, &comparators)?;
        let made = built.is_some();
        self.index = match built {
            Some(index) => IndexState::Open(folder, Box::new(index)),
            None => IndexState::Off,
        };
        Ok(made)
    }

    /// Brings the index to the version of the table, if that is cheap. An index that cannot follow is given up: everything
    /// works without it.
    async fn refresh_index(&mut self, plan: &SilverPlan, fresh: Option<(&str, &RecordBatch)>) {
        let Some(table) = &self.table else { return };
        let state = std::mem::replace(&mut self.index, IndexState::Off);
        self.index = match state {
            IndexState::Off => IndexState::Off,
            IndexState::Missing(folder) => IndexState::Missing(folder),
            IndexState::Closed(folder) => match KeyIndex::open(&folder, table, plan) {
                Ok(Some(index)) => follow(folder, Box::new(index), table, plan, fresh).await,
                Ok(None) | Err(_) => IndexState::Missing(folder),
            },
            IndexState::Open(folder, index) => follow(folder, index, table, plan, fresh).await,
        };
    }

    fn plan(&self, bronze: &SchemaRef) -> Result<Option<SilverPlan>> {
        SilverPlan::resolve(&self.settings, self.unavailable_value.clone(), bronze)
    }

    /// Whether a data file of silver is gone, so that its rows can only be written anew.
    fn lacks_files(&self) -> bool {
        let Some(table) = &self.table else {
            return false;
        };
        table
            .files()
            .any(|file| !table.root().join(&file.path).exists())
    }

    fn always_written(&self) -> Error {
        let path = self.settings.path.display();
        let message = format!("silver {path} is written by others all the time");
        Error::new(ErrorKind::Conflict, message).hint("stop the other writer, then run again")
    }

    fn transaction(&self, version: Version) -> AppTransaction {
        AppTransaction {
            app_id: self.app_id.clone(),
            version: version.0,
        }
    }

    fn nothing(&self, bronze_version: Version) -> SilverCommit {
        let version = self.table.as_ref().map_or(Version(-1), Table::version);
        SilverCommit {
            version,
            bronze_version,
            counters: ApplyCounters::default(),
        }
    }

    async fn ensure_table(&mut self, plan: &SilverPlan) -> Result<()> {
        if self.table.is_none() {
            let spec = TableSpec {
                schema: plan.schema(),
                partition_by: self.settings.partition_by.clone(),
                change_data_feed: self.settings.change_data_feed,
                deletion_vectors: self.settings.write_mode == WriteMode::MergeOnRead,
                name: None,
                description: None,
                properties: BTreeMap::from([(SETTINGS_PROPERTY.to_string(), self.settings_text())]),
            };
            self.table = Some(Table::create(&self.settings.path, &spec).await?);
        }
        Ok(())
    }

    /// The columns that silver has, or would have after the next apply.
    pub(crate) fn target_schema(&self, plan: &SilverPlan) -> SchemaRef {
        self.table
            .as_ref()
            .map_or_else(|| plan.schema(), |table| plan.evolved(&table.schema()))
    }
}

async fn follow(
    folder: PathBuf,
    mut index: Box<KeyIndex>,
    table: &Table,
    plan: &SilverPlan,
    fresh: Option<(&str, &RecordBatch)>,
) -> IndexState {
    if index.version() == table.version() {
        return IndexState::Open(folder, index);
    }
    let Ok(comparators) = Comparators::new(plan) else {
        return IndexState::Missing(folder);
    };
    match index.catch_up(table, plan, &comparators, fresh).await {
        Ok(true) => IndexState::Open(folder, index),
        Ok(false) | Err(_) => IndexState::Missing(folder),
    }
}

fn no_table() -> Error {
    Error::bug("silver is used before it is made")
}

/// Adds the keys of rows of `schema` to `keys`; nothing while a key column is missing.
pub fn distinct_keys<'a>(
    settings: &SilverSettings,
    schema: &SchemaRef,
    rows: impl Iterator<Item = &'a RecordBatch>,
    keys: &mut std::collections::HashSet<Box<[u8]>>,
) -> Result<()> {
    let Some(plan) = SilverPlan::resolve(settings, None, schema)? else {
        return Ok(());
    };
    let comparators = Comparators::new(&plan)?;
    for rows in rows {
        let comparable = comparators.keys.rows(&plan.key_columns(rows))?;
        keys.extend(comparable.iter().map(|key| Box::from(key.data())));
    }
    Ok(())
}
