//! What the tests share: a pipeline in a temporary folder, a random history, the dull fold.
#![allow(dead_code, reason = "each test uses its part")]

pub(crate) mod history;
pub(crate) mod oracle;
pub(crate) mod rules;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Decimal128Type, Int64Type};
use landfall::bronze::BronzeTable;
use landfall::clock::ManualClock;
use landfall::crash::CrashSwitch;
use landfall::delta::Table;
use landfall::error::Result;
use landfall::load::LoadLimits;
use landfall::loader::{Loader, LoaderEvent, RunOptions, RunSummary, Stop};
use landfall::protocol::Pipeline;
use landfall::quarantine::QuarantineTable;
use landfall::settings::{PipelineSettings, Request, Settings};
use oracle::Row;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// 2026-01-01, in microseconds: no test depends on the present time.
const NOW: i64 = 1_767_225_600_000_000;

/// The columns of the orders that the tests load.
pub(crate) const HINTS: &str =
    "op STRING, order_id BIGINT, status STRING, amount DECIMAL(10,2), seq BIGINT";

/// So little memory that every row is written ahead of its commit, and every file in pieces.
pub(crate) const LITTLE_MEMORY: LoadLimits = LoadLimits {
    small_batch_bytes_max: 0,
    small_file_bytes_max: 0,
    joined_file_bytes_max: 0,
    joined_bytes: 0,
    streamed_bytes_min: 1,
    block_bytes: 100,
    part_records: 3,
    held_bytes_max: 0,
    waiting_bytes_max: 0,
    unwritten_bytes_max: 0,
};

/// One pipeline in a folder of its own.
pub(crate) struct TestLoader {
    folder: TempDir,
    pub settings: PipelineSettings,
    pub clock: ManualClock,
    pub limits: LoadLimits,
    runtime: Runtime,
}

impl TestLoader {
    /// With orders as JSON lines.
    pub(crate) fn orders() -> Self {
        TestLoader::with("", "")
    }

    /// Orders, with further settings of the source and of silver.
    pub(crate) fn with(source: &str, silver: &str) -> Self {
        let rules = "sequence_by = [\"seq\"]\n\
            operations = { column = \"op\", upsert = [\"I\", \"U\"], delete = [\"D\"] }\n\
            except_column_list = [\"op\"]";
        TestLoader::of_orders("json", HINTS, source, &format!("{rules}\n{silver}"))
    }

    /// Orders under `rules`, with further settings of the source and of silver.
    pub(crate) fn under(rules: &rules::Rules, source: &str, silver: &str) -> Self {
        let silver = format!("{}\n{silver}", rules.settings());
        TestLoader::of_orders("json", rules::Rules::HINTS, source, &silver)
    }

    /// Orders in files of this format.
    pub(crate) fn of_orders(format: &str, hints: &str, source: &str, silver: &str) -> Self {
        TestLoader::from_toml(&format!(
            r#"
[pipeline.orders]
checkpoint = "checkpoints/orders.db"
[pipeline.orders.source]
path = "landing"
format = "{format}"
settle = "0s"
schema_hints = "{hints}"
{source}
[pipeline.orders.bronze]
path = "lake/bronze"
[pipeline.orders.silver]
path = "lake/silver"
keys = ["order_id"]
{silver}
"#
        ))
    }

    /// With a whole settings file.
    pub(crate) fn from_toml(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("landing")).unwrap();
        fs::write(folder.path().join("landfall.toml"), text).unwrap();
        let settings = settings(folder.path());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        TestLoader {
            folder,
            settings,
            clock: ManualClock::at(NOW),
            limits: LoadLimits::default(),
            runtime,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn landing(&self, name: &str) -> PathBuf {
        self.settings.source.path.join(name)
    }

    /// Writes under a name that is never taken, then renames into place.
    pub(crate) fn drop_file(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let target = self.landing(name);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        let temporary = self.landing(".dropping.tmp");
        fs::write(&temporary, bytes).unwrap();
        fs::rename(temporary, target).unwrap();
    }

    /// Runs until idle.
    pub(crate) fn run(&self) -> RunSummary {
        self.try_run(&CrashSwitch::default()).unwrap()
    }

    /// Runs until idle, or until the switch stops it.
    pub(crate) fn try_run(&self, crash: &CrashSwitch) -> Result<RunSummary> {
        self.try_run_with(
            crash,
            RunOptions {
                available_now: true,
                batches_max: None,
            },
        )
    }

    pub(crate) fn try_run_with(
        &self,
        crash: &CrashSwitch,
        options: RunOptions,
    ) -> Result<RunSummary> {
        let mut ignore = |_: LoaderEvent| {};
        self.runtime.block_on(async {
            let opened = Pipeline::open(
                self.settings.clone(),
                Arc::new(self.clock.clone()),
                crash.clone(),
            )
            .await;
            let (mut pipeline, recovery) = opened?;
            pipeline.set_limits(self.limits);
            let mut loader =
                Loader::start(pipeline, recovery, Stop::default(), &mut ignore).await?;
            loader.run(options, &mut ignore).await
        })
    }

    /// Opens the pipeline for a look or a command.
    pub(crate) fn pipeline(&self) -> Pipeline {
        let opened = Pipeline::open(
            self.settings.clone(),
            Arc::new(self.clock.clone()),
            CrashSwitch::default(),
        );
        self.runtime.block_on(opened).unwrap().0
    }

    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    pub(crate) fn bronze(&self) -> Option<BronzeTable> {
        self.block_on(BronzeTable::open(&self.settings.bronze.path))
            .unwrap()
    }

    pub(crate) fn quarantine(&self) -> QuarantineTable {
        self.block_on(QuarantineTable::open(
            &self.settings.bronze.quarantine_path(),
        ))
        .unwrap()
    }

    pub(crate) fn silver(&self) -> Option<Table> {
        let silver = self.settings.silver.as_ref().unwrap();
        self.block_on(Table::open(&silver.path)).unwrap()
    }

    /// The same with little memory.
    pub(crate) fn with_little_memory(mut self) -> Self {
        self.limits = LITTLE_MEMORY;
        self
    }

    /// (file, row) of every row of bronze, sorted.
    pub(crate) fn bronze_places(&self) -> Vec<(String, i64)> {
        let Some(bronze) = self.bronze() else {
            return Vec::new();
        };
        let rows = all_rows(bronze.table(), &["_file_path", "_file_row"]);
        let place = |batch: &RecordBatch, row: usize| {
            let path = batch.column(0).as_string::<i32>().value(row).to_string();
            (path, batch.column(1).as_primitive::<Int64Type>().value(row))
        };
        let mut places: Vec<_> = rows
            .iter()
            .flat_map(|batch| (0..batch.num_rows()).map(|row| place(batch, row)))
            .collect();
        places.sort();
        places
    }

    /// Silver of the orders, by key.
    pub(crate) fn silver_rows(&self) -> Vec<Row> {
        let Some(table) = self.silver() else {
            return Vec::new();
        };
        let rows = all_rows(&table, &["order_id", "status", "amount", "seq", "deleted"]);
        let row = |batch: &RecordBatch, row: usize| -> Row {
            let status = batch.column(1).as_string::<i32>();
            let amount = batch.column(2).as_primitive::<Decimal128Type>();
            (
                batch.column(0).as_primitive::<Int64Type>().value(row),
                status.is_valid(row).then(|| status.value(row).to_string()),
                amount.is_valid(row).then(|| amount.value(row) as i64),
                batch.column(3).as_primitive::<Int64Type>().value(row),
                batch.column(4).as_boolean().value(row),
            )
        };
        let mut silver: Vec<Row> = rows
            .iter()
            .flat_map(|batch| (0..batch.num_rows()).map(|place| row(batch, place)))
            .collect();
        silver.sort();
        silver
    }

    /// The rows of silver as text, `name=value` for each of `columns`, sorted.
    pub(crate) fn silver_texts(&self, columns: &[&str]) -> Vec<String> {
        let Some(table) = self.silver() else {
            return Vec::new();
        };
        let mut texts: Vec<String> = all_rows(&table, columns)
            .iter()
            .flat_map(row_texts)
            .collect();
        texts.sort();
        texts
    }

    /// The rows that the change data feed of silver, played from its start, leaves; every image must fit.
    pub(crate) fn replayed_feed(&self, columns: &[&str]) -> Vec<String> {
        use landfall::feed::{ChangePoint, ChangeRange, changes};
        let Some(table) = self.silver() else {
            return Vec::new();
        };
        let range = ChangeRange {
            from: ChangePoint::Version(landfall::change::Version(0)),
            to: None,
        };
        let told: Vec<RecordBatch> = self.block_on(async {
            use futures::TryStreamExt;
            let rows = changes(table.root(), range, &[]).await.unwrap();
            rows.batches.try_collect().await.unwrap()
        });
        let mut steps: Vec<(i64, bool, String)> = Vec::new();
        for batch in &told {
            let kinds = batch.column_by_name("_change_type").unwrap();
            let versions = batch.column_by_name("_commit_version").unwrap();
            let places = columns
                .iter()
                .map(|name| batch.schema().index_of(name).unwrap());
            let texts = row_texts(&batch.project(&places.collect::<Vec<_>>()).unwrap());
            for (row, text) in texts.into_iter().enumerate() {
                let kind = kinds.as_string::<i32>().value(row);
                let is_new = !matches!(kind, "update_preimage" | "delete");
                let version = versions.as_primitive::<Int64Type>().value(row);
                steps.push((version, is_new, text));
            }
        }
        steps.sort();
        let mut rows = std::collections::BTreeSet::new();
        for (version, is_new, text) in steps {
            let fits = match is_new {
                true => rows.insert(text.clone()),
                false => rows.remove(&text),
            };
            assert!(fits, "version {version} of the feed does not fit: {text}");
        }
        rows.into_iter().collect()
    }

    /// (state, reason) of a file.
    pub(crate) fn file(&self, name: &str) -> (String, Option<String>) {
        let checkpoint =
            landfall::checkpoint::CheckpointStore::open_read_only(&self.settings.checkpoint);
        let file = checkpoint.unwrap().unwrap().file(name).unwrap();
        let file = file.unwrap_or_else(|| panic!("{name} is not in the checkpoint"));
        (file.state.to_string(), file.reason)
    }

    /// What the checkpoint tells the operator of a file.
    pub(crate) fn file_detail(&self, name: &str) -> Option<String> {
        let checkpoint =
            landfall::checkpoint::CheckpointStore::open_read_only(&self.settings.checkpoint);
        checkpoint.unwrap().unwrap().file(name).unwrap()?.detail
    }

    /// Versions of (bronze, silver, quarantine).
    pub(crate) fn versions(&self) -> [Option<i64>; 3] {
        let silver = self
            .settings
            .silver
            .is_some()
            .then(|| self.silver())
            .flatten();
        [
            self.bronze().map(|table| table.table().version().0),
            silver.map(|table| table.version().0),
            self.quarantine().table().map(|table| table.version().0),
        ]
    }
}

/// Loads the settings of the one pipeline in `folder`.
pub(crate) fn settings(folder: &Path) -> PipelineSettings {
    let request = Request {
        config: Some(folder.join("landfall.toml")),
        ..Request::in_folder(folder)
    };
    Settings::load(&request).unwrap().pipelines.remove(0)
}

fn row_texts(batch: &RecordBatch) -> Vec<String> {
    let options = arrow::util::display::FormatOptions::default().with_null("NULL");
    let schema = batch.schema();
    let cells = schema.fields().iter().zip(batch.columns());
    let cells: Vec<_> = cells
        .map(|(field, column)| {
            let formatter =
                arrow::util::display::ArrayFormatter::try_new(column.as_ref(), &options).unwrap();
            (field.name(), formatter)
        })
        .collect();
    let text = |row: usize| {
        let cells = cells
            .iter()
            .map(|(name, values)| format!("{name}={}", values.value(row)));
        cells.collect::<Vec<_>>().join(" ")
    };
    (0..batch.num_rows()).map(text).collect()
}

pub(crate) fn all_rows(table: &Table, columns: &[&str]) -> Vec<RecordBatch> {
    let columns: Vec<String> = columns.iter().map(|name| name.to_string()).collect();
    let scan = |file| {
        table
            .scan(file, &columns)
            .unwrap()
            .map(|scanned| scanned.unwrap().rows)
    };
    table.files().flat_map(scan).collect()
}
