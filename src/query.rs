//! Reads the tables of the pipelines: `show` and SQL.
//!
//! Nothing here writes. Tables stand in the schemas `bronze`, `silver` and `quarantine` under the name of their
//! pipeline; names keep their case, keywords and functions do not mind theirs. How rows are printed is left to the caller.

mod columns;
mod function;
mod refused;

pub use columns::{ColumnReport, column_rows, columns};
pub use refused::refused_records;

use crate::change::{self, Version};
use crate::delta::Table;
use crate::error::{Error, ErrorKind, Result};
use crate::events::find_column;
use crate::settings::{PipelineSettings, Settings};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use deltalake::datafusion::catalog::{MemorySchemaProvider, SchemaProvider};
use deltalake::datafusion::common::{Column, DataFusionError};
use deltalake::datafusion::datasource::empty::EmptyTable;
use deltalake::datafusion::execution::context::SQLOptions;
use deltalake::datafusion::logical_expr::Expr;
use deltalake::datafusion::prelude::{DataFrame, SessionContext};
use deltalake::delta_datafusion::{DeltaSessionContext, create_session};
use deltalake::{DeltaTable, DeltaTableBuilder, DeltaTableError};
use function::TableChanges;
use futures::stream::{BoxStream, StreamExt};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The rows of an answer, read as they are asked for.
pub struct Rows {
    /// The columns, also when there are no rows.
    pub schema: SchemaRef,
    /// The rows.
    pub batches: BoxStream<'static, Result<RecordBatch>>,
}

/// Which table of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// The rows as they came.
    Bronze,
    /// The folded rows.
    Silver,
    /// The refused records.
    Quarantine,
}

impl Layer {
    /// Every layer, in the order of the flow.
    pub const ALL: [Layer; 3] = [Layer::Bronze, Layer::Silver, Layer::Quarantine];

    /// The word on the command line and the schema in SQL.
    pub fn as_str(self) -> &'static str {
        match self {
            Layer::Bronze => "bronze",
            Layer::Silver => "silver",
            Layer::Quarantine => "quarantine",
        }
    }

    /// Where the table of this layer is; `None` for silver in a pipeline of bronze only.
    pub fn path(self, pipeline: &PipelineSettings) -> Option<PathBuf> {
        match self {
            Layer::Bronze => Some(pipeline.bronze.path.clone()),
            Layer::Silver => pipeline.silver.as_ref().map(|silver| silver.path.clone()),
            Layer::Quarantine => Some(pipeline.bronze.quarantine_path()),
        }
    }
}

/// What `show` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShowRequest {
    /// The table.
    pub layer: Layer,
    /// The most rows; `None` is all.
    pub limit: Option<usize>,
    /// Also rows of silver with `deleted = true`.
    pub include_deleted: bool,
    /// The table as it was; `None` is now.
    pub version: Option<Version>,
}

/// The rows of one table, silver by its keys, bronze and quarantine by file and row.
pub async fn show(pipeline: &PipelineSettings, request: ShowRequest) -> Result<Rows> {
    let path = request
        .layer
        .path(pipeline)
        .ok_or_else(|| no_silver(pipeline))?;
    if request.layer == Layer::Quarantine && !is_table(&path)? {
        return Ok(refused::no_rows());
    }
    let table = open(&path, request.version).await?;
    let provider = table.table_provider().await.map_err(run_error)?;
    let schema = provider.schema();
    let mut frame = session().read_table(provider).map_err(plan_error)?;
    let hides = request.layer == Layer::Silver && !request.include_deleted;
    if hides && schema.index_of(change::DELETED).is_ok() {
        frame = frame
            .filter(column(change::DELETED).is_not_true())
            .map_err(plan_error)?;
    }
    let order = names_in(&schema, &order_of(pipeline, request.layer));
    let order = order.iter().map(|name| column(name).sort(true, false));
    frame = frame.sort(order.collect()).map_err(plan_error)?;
    if let Some(limit) = request.limit {
        frame = frame.limit(0, Some(limit)).map_err(plan_error)?;
    }
    rows(frame).await
}

/// The error of a command that needs silver on a pipeline without it.
pub fn no_silver(pipeline: &PipelineSettings) -> Error {
    Error::settings(format!("pipeline {} has no silver table", pipeline.name)).hint(format!(
        "add a table [pipeline.{}.silver] to the settings",
        pipeline.name
    ))
}

/// The names as the table spells them; the settings need not keep their case.
pub(crate) fn names_in(schema: &SchemaRef, names: &[String]) -> Vec<String> {
    let places = names.iter().filter_map(|name| find_column(schema, name));
    places
        .map(|place| schema.field(place).name().clone())
        .collect()
}

fn order_of(pipeline: &PipelineSettings, layer: Layer) -> Vec<String> {
    match (layer, &pipeline.silver) {
        (Layer::Silver, Some(silver)) => silver.row_columns(),
        _ => vec![change::FILE_PATH.to_string(), change::FILE_ROW.to_string()],
    }
}

/// The answer to one SQL statement over the tables of all pipelines.
///
/// Only statements that read are taken. Fails with the kind `Settings` when the statement is wrong.
pub async fn sql(settings: &Settings, statement: &str) -> Result<Rows> {
    let session = session_with_catalog()?;
    let tables = register(&session, settings, statement).await?;
    let changes = Arc::new(TableChanges::new(tables));
    // Table functions, unlike others, are looked up in the case in which they are written.
    for name in ["table_changes", "TABLE_CHANGES"] {
        session.register_udtf(name, changes.clone());
    }
    let only_reads = SQLOptions::new()
        .with_allow_ddl(false)
        .with_allow_dml(false)
        .with_allow_statements(false);
    let planned = session.sql_with_options(statement, only_reads).await;
    let frame =
        planned.map_err(|error| with_tables_hint(plan_error(error), settings, statement))?;
    rows(frame).await
}

/// Tells which of the tables that the statement may mean were never loaded.
fn with_tables_hint(error: Error, settings: &Settings, statement: &str) -> Error {
    let mut absent = Vec::new();
    for pipeline in &settings.pipelines {
        for layer in Layer::ALL {
            let name = format!("{}.{}", layer.as_str(), pipeline.name);
            // What cannot be read was reported when it was opened.
            let is_absent = matches!(present(layer, pipeline), Ok(None));
            if is_absent && statement.contains(&name) {
                absent.push(name);
            }
        }
    }
    if absent.is_empty() {
        return error;
    }
    error.hint(format!("not loaded yet: {}", absent.join(", ")))
}

/// Puts the tables that the statement may name into the session and returns them by `layer.pipeline`.
///
/// A table is opened when the name of its pipeline stands in the statement: opening costs time, missing none does.
async fn register(
    session: &SessionContext,
    settings: &Settings,
    statement: &str,
) -> Result<HashMap<String, DeltaTable>> {
    let catalog = session
        .catalog(&session.state().config_options().catalog.default_catalog)
        .ok_or_else(|| Error::bug("the session has no catalog"))?;
    let wants_all = asks_for_tables(statement);
    let mut tables = HashMap::new();
    for layer in Layer::ALL {
        let schema = Arc::new(MemorySchemaProvider::new());
        for pipeline in settings
            .pipelines
            .iter()
            .filter(|known| wants_all || statement.contains(&known.name))
        {
            let Some(path) = present(layer, pipeline)? else {
                if layer == Layer::Quarantine {
                    let nothing_refused = Arc::new(EmptyTable::new(refused::table_columns()));
                    schema
                        .register_table(pipeline.name.clone(), nothing_refused)
                        .map_err(plan_error)?;
                }
                continue;
            };
            let table = open(&path, None).await?;
            let provider = table.table_provider().await.map_err(run_error)?;
            schema
                .register_table(pipeline.name.clone(), provider)
                .map_err(plan_error)?;
            tables.insert(format!("{}.{}", layer.as_str(), pipeline.name), table);
        }
        catalog
            .register_schema(layer.as_str(), schema)
            .map_err(plan_error)?;
    }
    Ok(tables)
}

/// A session in which identifiers keep their case.
pub(crate) fn session() -> SessionContext {
    create_session().into_inner()
}

/// A session that also answers `SHOW TABLES` and `information_schema`.
fn session_with_catalog() -> Result<SessionContext> {
    let shown = (
        "datafusion.catalog.information_schema".to_string(),
        "true".to_string(),
    );
    let session = DeltaSessionContext::new_with_session_overrides(&HashMap::from([shown]));
    Ok(session.map_err(table_error)?.into_inner())
}

/// Whether the statement asks for the tables themselves.
fn asks_for_tables(statement: &str) -> bool {
    let words = statement.to_ascii_lowercase();
    words.contains("information_schema") || words.trim_start().starts_with("show ")
}

/// Where the table of this layer is, if it is there.
fn present(layer: Layer, pipeline: &PipelineSettings) -> Result<Option<PathBuf>> {
    let Some(path) = layer.path(pipeline) else {
        return Ok(None);
    };
    Ok(is_table(&path)?.then_some(path))
}

/// Whether there is a table; a folder that cannot be read is an error, not an absent table.
fn is_table(path: &Path) -> Result<bool> {
    let log = path.join("_delta_log");
    log.try_exists().map_err(|error| {
        Error::unavailable(format!("table {} cannot be read: {error}", path.display()))
    })
}

/// Opens the table at `path` as it is or was.
///
/// Fails with the kind `Unavailable` when there is no table, with `Settings` when there is no such version.
pub(crate) async fn open(path: &Path, version: Option<Version>) -> Result<DeltaTable> {
    if !is_table(path)? {
        return Err(
            Error::unavailable(format!("there is no Delta table yet: {}", path.display()))
                .hint("load files first: landfall run --available-now"),
        );
    }
    // The library takes an empty newest entry for a commit of nothing; our own look at the log tells the damage.
    Table::open(path).await?;
    let url = url::Url::from_directory_path(path).map_err(|()| {
        Error::bug(format!(
            "the path of a table is not absolute: {}",
            path.display()
        ))
    })?;
    let newest = DeltaTableBuilder::from_url(url)
        .map_err(table_error)?
        .load()
        .await
        .map_err(table_error)?;
    let Some(version) = version else {
        return Ok(newest);
    };
    let latest = newest.version().unwrap_or_default();
    let asked = u64::try_from(version.0).unwrap_or(u64::MAX);
    if asked > latest {
        return Err(
            Error::settings(format!("table {} has no version {version}", path.display()))
                .hint(format!("the newest version is {latest}")),
        );
    }
    let mut table = newest;
    table.load_version(asked).await.map_err(|error| {
        Error::unavailable(format!(
            "table {}, version {version}: {error}",
            path.display()
        ))
    })?;
    Ok(table)
}

/// Runs a frame; rows come as they are asked for.
pub(crate) async fn rows(frame: DataFrame) -> Result<Rows> {
    let stream = frame.execute_stream().await.map_err(run_error)?;
    let schema = stream.schema();
    let batches = stream.map(|batch| batch.map_err(run_error)).boxed();
    Ok(Rows { schema, batches })
}

fn column(name: &str) -> Expr {
    Expr::Column(Column::from_name(name))
}

/// A failure of the table library.
pub(crate) fn table_error(error: DeltaTableError) -> Error {
    Error::unavailable(format!("table: {error}"))
}

/// A statement that cannot be planned is the fault of the statement.
pub(crate) fn plan_error(error: DataFusionError) -> Error {
    query_error(error, ErrorKind::Settings)
}

/// A plan that cannot be run is the fault of the tables, but for errors of ours on the way.
fn run_error(error: DataFusionError) -> Error {
    query_error(error, ErrorKind::Unavailable)
}

fn query_error(error: DataFusionError, kind: ErrorKind) -> Error {
    if let DataFusionError::External(inner) = error.find_root()
        && let Some(ours) = inner.downcast_ref::<Error>()
    {
        let copy = Error::new(ours.kind(), ours.message());
        return match ours.hint_text() {
            Some(hint) => copy.hint(hint),
            None => copy,
        };
    }
    Error::new(kind, format!("query: {}", error.strip_backtrace()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feed::{self, ChangePoint, ChangeRange};
    use crate::settings::Request;
    use arrow::array::{BooleanArray, Int64Array, StringArray};
    use arrow::util::pretty::pretty_format_batches;
    use deltalake::kernel::{DataType, PrimitiveType, StructField};
    use futures::TryStreamExt;
    use tempfile::TempDir;

    struct Lake {
        folder: TempDir,
        settings: Settings,
    }

    impl Lake {
        /// Silver at version 3: feed off, feed on, two rows, one row more. Bronze does not exist.
        async fn new() -> Lake {
            let folder = tempfile::tempdir().unwrap();
            let text = "[pipeline.Orders]\ncheckpoint = \"c.db\"\nsource.path = \"in\"\nbronze.path = \"b\"\n\
                silver = { path = \"s\", keys = [\"Id\"], sequence_by = [\"seq\"] }\n";
            std::fs::write(folder.path().join("landfall.toml"), text).unwrap();
            let settings = Settings::load(&Request::in_folder(folder.path())).unwrap();
            let lake = Lake { folder, settings };
            lake.create().await;
            lake.append(&[(3, "late", true), (1, "new", false)]).await;
            lake.append(&[(2, "paid", false)]).await;
            lake
        }

        fn pipeline(&self) -> &PipelineSettings {
            &self.settings.pipelines[0]
        }

        fn silver(&self) -> PathBuf {
            self.folder.path().join("s")
        }

        async fn create(&self) {
            std::fs::create_dir(self.silver()).unwrap();
            let url = url::Url::from_directory_path(self.silver()).unwrap();
            let table = DeltaTable::try_from_url(url).await.unwrap();
            table
                .create()
                .with_column("Id", DataType::Primitive(PrimitiveType::Long), true, None)
                .with_column(
                    "status",
                    DataType::Primitive(PrimitiveType::String),
                    true,
                    None,
                )
                .with_column(
                    "deleted",
                    DataType::Primitive(PrimitiveType::Boolean),
                    true,
                    None,
                )
                .await
                .unwrap();
            self.enable(true).await;
        }

        /// Turns the change data feed of silver on or off.
        async fn enable(&self, on: bool) {
            let name = "delta.enableChangeDataFeed".to_string();
            let table = open(&self.silver(), None).await.unwrap();
            table
                .set_tbl_properties()
                .with_properties(HashMap::from([(name, on.to_string())]))
                .await
                .unwrap();
        }

        async fn append(&self, rows: &[(i64, &str, bool)]) {
            let ids = Int64Array::from_iter_values(rows.iter().map(|row| row.0));
            let statuses = StringArray::from_iter_values(rows.iter().map(|row| row.1));
            let deleted = BooleanArray::from_iter(rows.iter().map(|row| Some(row.2)));
            let batch = RecordBatch::try_from_iter([
                ("Id", Arc::new(ids) as _),
                ("status", Arc::new(statuses) as _),
                ("deleted", Arc::new(deleted) as _),
            ])
            .unwrap();
            open(&self.silver(), None)
                .await
                .unwrap()
                .write([batch])
                .await
                .unwrap();
        }

        async fn show(&self, request: ShowRequest) -> Result<String> {
            pretty(show(self.pipeline(), request).await?).await
        }

        async fn sql(&self, statement: &str) -> Result<String> {
            pretty(sql(&self.settings, statement).await?).await
        }

        async fn changes(&self, from: i64, to: Option<i64>) -> Result<String> {
            let point = |version| ChangePoint::Version(Version(version));
            let range = ChangeRange {
                from: point(from),
                to: to.map(point),
            };
            pretty(feed::changes(&self.silver(), range, &["Id".to_string()]).await?).await
        }
    }

    /// The cells of the answer, row by row.
    async fn pretty(rows: Rows) -> Result<String> {
        let batches: Vec<RecordBatch> = rows.batches.try_collect().await?;
        let text = pretty_format_batches(&batches)?.to_string();
        let lines = text.lines().filter(|line| line.starts_with('|'));
        let cells = |line: &str| {
            line.split('|')
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .collect::<Vec<_>>()
                .join(" ")
        };
        Ok(lines.skip(1).map(cells).collect::<Vec<_>>().join("; "))
    }

    const SILVER: ShowRequest = ShowRequest {
        layer: Layer::Silver,
        limit: None,
        include_deleted: false,
        version: None,
    };

    #[tokio::test]
    async fn missing_table_or_version_is_an_error() {
        let lake = Lake::new().await;
        let error = lake
            .show(ShowRequest {
                layer: Layer::Bronze,
                ..SILVER
            })
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(
            error.message().starts_with("there is no Delta table yet: "),
            "{error}"
        );
        let error = lake
            .show(ShowRequest {
                version: Some(Version(9)),
                ..SILVER
            })
            .await
            .unwrap_err();
        assert!(error.message().ends_with("has no version 9"), "{error}");
        assert_eq!(error.hint_text(), Some("the newest version is 3"));
    }

    #[tokio::test]
    async fn show_hides_deleted_rows_and_orders_by_key() {
        let lake = Lake::new().await;
        assert_eq!(
            lake.show(SILVER).await.unwrap(),
            "1 new false; 2 paid false"
        );
        let all = ShowRequest {
            include_deleted: true,
            ..SILVER
        };
        assert_eq!(
            lake.show(all).await.unwrap(),
            "1 new false; 2 paid false; 3 late true"
        );
        assert_eq!(
            lake.show(ShowRequest {
                limit: Some(1),
                ..SILVER
            })
            .await
            .unwrap(),
            "1 new false"
        );
        assert_eq!(
            lake.show(ShowRequest {
                version: Some(Version(2)),
                ..SILVER
            })
            .await
            .unwrap(),
            "1 new false"
        );
    }

    #[tokio::test]
    async fn table_that_was_never_loaded_is_named() {
        let lake = Lake::new().await;
        let error = lake
            .sql("SELECT * FROM bronze.Orders JOIN silver.Orders")
            .await
            .unwrap_err();
        assert_eq!(
            error.hint_text(),
            Some("not loaded yet: bronze.Orders"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn columns_know_since_when_they_are_there() {
        let lake = Lake::new().await;
        let table = open(&lake.silver(), None).await.unwrap();
        let note = StructField::new("note", DataType::Primitive(PrimitiveType::Date), true);
        table.add_columns().with_fields([note]).await.unwrap();
        let found = columns(lake.pipeline()).await.unwrap();
        let shown: Vec<_> = found
            .iter()
            .map(|column| {
                (
                    column.name.as_str(),
                    column.data_type.as_str(),
                    column.since_version,
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("Id", "long", Some(0)),
                ("status", "string", Some(0)),
                ("deleted", "boolean", Some(0)),
                ("note", "date", Some(4))
            ]
        );
        assert_eq!(found[0].since_file, None);
    }

    #[tokio::test]
    async fn bronze_column_names_the_first_file_that_brought_a_value() {
        let lake = Lake::new().await;
        let path = lake.folder.path().join("b");
        std::fs::create_dir(&path).unwrap();
        let batch = RecordBatch::try_from_iter([
            ("id", Arc::new(Int64Array::from(vec![1, 2, 3])) as _),
            (
                "odd \" name",
                Arc::new(StringArray::from(vec![None, Some("x"), Some("y")])) as _,
            ),
            (
                "_file_path",
                Arc::new(StringArray::from(vec!["z", "b", "a"])) as _,
            ),
            ("_batch_id", Arc::new(Int64Array::from(vec![1, 2, 3])) as _),
        ])
        .unwrap();
        let url = url::Url::from_directory_path(&path).unwrap();
        DeltaTable::try_from_url(url)
            .await
            .unwrap()
            .write([batch])
            .await
            .unwrap();
        let found = columns(lake.pipeline()).await.unwrap();
        let files: Vec<_> = found
            .iter()
            .take(3)
            .map(|column| column.since_file.as_deref())
            .collect();
        assert_eq!(files, [Some("z"), Some("b"), None]);
    }

    #[tokio::test]
    async fn refused_records_lose_their_underscores() {
        let lake = Lake::new().await;
        let none = refused_records(lake.pipeline()).await.unwrap();
        assert_eq!(none.schema.field(0).name(), "file_path");
        assert_eq!(pretty(none).await.unwrap(), "");
        let path = lake.folder.path().join("b_quarantine");
        std::fs::create_dir(&path).unwrap();
        let batch = RecordBatch::try_from_iter([
            (
                "_file_path",
                Arc::new(StringArray::from(vec!["b", "a", "a"])) as _,
            ),
            ("_file_row", Arc::new(Int64Array::from(vec![1, 10, 9])) as _),
        ])
        .unwrap();
        let url = url::Url::from_directory_path(&path).unwrap();
        DeltaTable::try_from_url(url)
            .await
            .unwrap()
            .write([batch])
            .await
            .unwrap();
        let some = refused_records(lake.pipeline()).await.unwrap();
        assert_eq!(some.schema.field(1).name(), "file_row");
        assert_eq!(pretty(some).await.unwrap(), "a 9; a 10; b 1");
    }

    #[tokio::test]
    async fn statement_that_writes_is_refused() {
        let lake = Lake::new().await;
        for statement in [
            "INSERT INTO silver.Orders VALUES (9, 'x', false)",
            "CREATE TABLE t AS SELECT 1",
            "COPY (SELECT 1) TO '/tmp/landfall-never.csv'",
            "SET datafusion.execution.batch_size = 1",
            "EXPLAIN INSERT INTO silver.Orders VALUES (9, 'x', false)",
            "DROP TABLE silver.Orders",
            "DELETE FROM silver.Orders",
            "SELECT 1; SELECT 2",
            "SELECT * FROM silver.nothing",
            "SELEC 1",
        ] {
            let error = lake.sql(statement).await.expect_err(statement);
            assert_eq!(error.exit_code(), 2, "{statement}: {error}");
        }
        assert_eq!(
            lake.sql("SELECT COUNT(*) FROM silver.Orders")
                .await
                .unwrap(),
            "3"
        );
    }

    #[tokio::test]
    async fn identifiers_keep_their_case_and_functions_do_not_mind() {
        let lake = Lake::new().await;
        let statement = "select Upper(status) as S from silver.Orders where Id = 2";
        assert_eq!(lake.sql(statement).await.unwrap(), "PAID");
        assert!(lake.sql("SELECT id FROM silver.Orders").await.is_err());
        assert!(
            lake.sql("SHOW TABLES")
                .await
                .unwrap()
                .contains("silver Orders")
        );
    }

    #[tokio::test]
    async fn range_that_the_feed_does_not_hold_names_the_one_it_holds() {
        let lake = Lake::new().await;
        for (from, to, expected) in [
            (0, None, "it is off at version 0"),
            (4, None, "the start is past the newest version: 4"),
            (1, Some(4), "the end is past the newest version: 4"),
            (3, Some(2), "the start 3 is after the end 2"),
        ] {
            let error = lake.changes(from, to).await.unwrap_err();
            assert!(error.message().ends_with(expected), "{error}");
            assert_eq!(error.hint_text(), Some("versions 1 to 3 can be read"));
            assert_eq!(error.exit_code(), 2);
        }
        let statement = "SELECT * FROM table_changes('silver.Orders', 0)";
        let error = lake.sql(statement).await.unwrap_err();
        assert_eq!(
            error.hint_text(),
            Some("versions 1 to 3 can be read"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn start_in_the_middle_of_the_time_before_the_feed_is_refused() {
        let lake = Lake::new().await;
        lake.enable(false).await;
        lake.append(&[(7, "unseen", false)]).await;
        let error = lake.changes(5, None).await.unwrap_err();
        assert_eq!(error.hint_text(), Some("versions 1 to 3 can be read"));
        assert!(lake.changes(1, Some(3)).await.is_ok());
        assert!(lake.changes(1, Some(4)).await.is_err());
        lake.enable(true).await;
        lake.append(&[(8, "seen", false)]).await;
        for (from, to) in [(3, None), (5, None), (1, Some(5))] {
            let error = lake.changes(from, to).await.unwrap_err();
            assert!(error.message().contains("it is off at version"), "{error}");
            assert_eq!(
                error.hint_text(),
                Some("versions 1 to 3 and versions 6 to 7 can be read")
            );
        }
        assert!(lake.changes(6, None).await.unwrap().starts_with("8 seen"));
    }

    #[tokio::test]
    async fn changes_come_in_the_order_of_commits_and_keys() {
        let lake = Lake::new().await;
        let statement = "SELECT Id, _change_type, _commit_version FROM TABLE_CHANGES('silver.Orders', 1, 2) ORDER BY Id";
        assert_eq!(lake.sql(statement).await.unwrap(), "1 insert 2; 3 insert 2");
        let text = lake.changes(2, None).await.unwrap();
        let ids: Vec<&str> = text.split("; ").map(|row| &row[..1]).collect();
        assert_eq!(ids, ["1", "3", "2"]);
        assert!(text.contains("Z"), "{text}");
    }

    #[tokio::test]
    async fn times_name_commits_and_a_gap_between_them_is_empty() {
        let lake = Lake::new().await;
        let past = "2001-01-01T00:00:00Z".parse().unwrap();
        let future = "2999-01-01T00:00:00Z".parse().unwrap();
        let range = |from, to| ChangeRange {
            from: ChangePoint::Timestamp(from),
            to: Some(ChangePoint::Timestamp(to)),
        };
        for gap in [range(future, future), range(past, past)] {
            let none = feed::changes(&lake.silver(), gap, &[]).await.unwrap();
            assert_eq!(pretty(none).await.unwrap(), "");
        }
        let late_start = ChangeRange {
            from: ChangePoint::Timestamp(future),
            to: None,
        };
        let early_end = ChangeRange {
            from: ChangePoint::Version(Version(1)),
            to: Some(ChangePoint::Timestamp(past)),
        };
        for wrong in [late_start, early_end] {
            let error = feed::changes(&lake.silver(), wrong, &[]).await.err();
            let error = error.unwrap();
            assert!(error.message().contains("no commit is at or"), "{error}");
        }
        let error = feed::changes(&lake.silver(), range(past, future), &[])
            .await
            .err()
            .unwrap();
        assert!(
            error.message().contains("it is off at version 0"),
            "{error}"
        );
        let backwards = feed::changes(&lake.silver(), range(future, past), &[]).await;
        let error = backwards.err().unwrap();
        assert!(error.message().contains("is after the end"), "{error}");
    }
}
