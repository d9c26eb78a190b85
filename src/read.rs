//! The commands that only read tables: `show`, `sql`, `changes`, `schema`, `quarantine`.

use crate::cli::checked::{Changes, Quarantine, Schema, Show, Sql};
use crate::cli::{JsonMode, RowFormat};
use crate::output;
use landfall::error::Result;
use landfall::query::{self, ColumnReport};
use landfall::{feed, query::no_silver};
use serde::Serialize;

/// Prints the rows of a table.
pub(crate) async fn show(show: Show) -> Result<()> {
    output::print_rows(
        query::show(&show.pipeline, show.request).await?,
        show.format,
    )
    .await
}

/// Prints the answer to a statement.
pub(crate) async fn sql(sql: Sql) -> Result<()> {
    output::print_rows(query::sql(&sql.settings, &sql.statement).await?, sql.format).await
}

/// Prints the changes of silver.
pub(crate) async fn changes(changes: Changes) -> Result<()> {
    let silver = changes
        .pipeline
        .silver
        .as_ref()
        .ok_or_else(|| no_silver(&changes.pipeline))?;
    let rows = match changes.net {
        true => feed::net_changes(&silver.path, changes.range, &silver.row_columns()).await?,
        false => feed::changes(&silver.path, changes.range, &silver.row_columns()).await?,
    };
    output::print_rows(rows, changes.format).await
}

/// Prints the refused records.
pub(crate) async fn quarantine(quarantine: Quarantine) -> Result<()> {
    let format = match quarantine.json {
        None => RowFormat::Table,
        Some(JsonMode::Document) => RowFormat::Json,
        Some(JsonMode::Lines) => RowFormat::Jsonl,
    };
    output::print_rows(query::refused_records(&quarantine.pipeline).await?, format).await
}

/// Prints the columns of bronze and silver.
pub(crate) async fn schema(schema: Schema) -> Result<()> {
    let columns = query::columns(&schema.pipeline).await?;
    if let Some(mode) = schema.json {
        let columns: Vec<ColumnJson<'_>> = columns.iter().map(column_json).collect();
        return output::print_json_list(&columns, mode);
    }
    output::print_rows(query::column_rows(&columns)?, RowFormat::Table).await
}

/// One column in `schema --json`.
#[derive(Serialize)]
struct ColumnJson<'a> {
    table: &'a str,
    column: &'a str,
    #[serde(rename = "type")]
    data_type: &'a str,
    since_version: Option<i64>,
    since_file: Option<&'a str>,
}

fn column_json(column: &ColumnReport) -> ColumnJson<'_> {
    ColumnJson {
        table: column.layer.as_str(),
        column: &column.name,
        data_type: &column.data_type,
        since_version: column.since_version,
        since_file: column.since_file.as_deref(),
    }
}
