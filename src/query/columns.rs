//! Which columns the tables have, and since which version and file each is there.

use super::{Layer, Rows, open, plan_error, rows, run_error, session, table_error};
use crate::change;
use crate::error::{Error, Result};
use crate::settings::PipelineSettings;
use arrow::array::{AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::Int64Type;
use deltalake::DeltaTable;
use deltalake::datafusion::prelude::SessionContext;
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// One column of one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnReport {
    /// The table.
    pub layer: Layer,
    /// As in the table.
    pub name: String,
    /// The Delta type, such as `decimal(10,2)`; nested types as JSON.
    pub data_type: String,
    /// The first version that has the column; `None` when that part of the log was cleaned up.
    pub since_version: Option<i64>,
    /// The first file (by batch, then path) that brought a value; `None` when none did or the loader adds the column.
    pub since_file: Option<String>,
}

/// The columns of bronze and silver. A table that is not there yet has none.
pub async fn columns(pipeline: &PipelineSettings) -> Result<Vec<ColumnReport>> {
    let mut reports = Vec::new();
    let mut files = HashMap::new();
    for layer in [Layer::Bronze, Layer::Silver] {
        let Some(path) = super::present(layer, pipeline)? else {
            continue;
        };
        let table = open(&path, None).await?;
        let found = since_versions(&table).await?;
        if layer == Layer::Bronze {
            let names = found.iter().map(|column| column.name.as_str());
            files = first_files(&table, &names.collect::<Vec<_>>()).await?;
        }
        reports.extend(found.into_iter().map(|column| ColumnReport {
            layer,
            since_file: files.get(&column.name).cloned(),
            name: column.name,
            data_type: column.data_type,
            since_version: column.since,
        }));
    }
    if reports.is_empty() {
        // The error of the missing table says what to do.
        open(&pipeline.bronze.path, None).await?;
    }
    Ok(reports)
}

/// The reports as rows to print.
pub fn column_rows(columns: &[ColumnReport]) -> Result<Rows> {
    let texts = |read: fn(&ColumnReport) -> Option<&str>| {
        Arc::new(columns.iter().map(read).collect::<StringArray>())
    };
    let versions: Int64Array = columns.iter().map(|column| column.since_version).collect();
    let batch = RecordBatch::try_from_iter([
        ("table", texts(|column| Some(column.layer.as_str())) as _),
        ("column", texts(|column| Some(&column.name)) as _),
        ("type", texts(|column| Some(&column.data_type)) as _),
        ("since_version", Arc::new(versions) as _),
        (
            "since_file",
            texts(|column| column.since_file.as_deref()) as _,
        ),
    ])?;
    Ok(Rows {
        schema: batch.schema(),
        batches: stream::iter([Ok(batch)]).boxed(),
    })
}

struct Since {
    name: String,
    data_type: String,
    since: Option<i64>,
}

/// The columns of the newest version, with the first version in which the log shows each.
async fn since_versions(table: &DeltaTable) -> Result<Vec<Since>> {
    let latest = table
        .version()
        .ok_or_else(|| Error::bug("an opened table has no version"))?;
    let schema = table.snapshot().map_err(table_error)?.schema();
    let mut downward: Vec<(u64, Vec<String>)> = Vec::new();
    let mut earliest = latest;
    for version in (0..=latest).rev() {
        let entry = table
            .log_store()
            .read_commit_entry(version)
            .await
            .map_err(table_error)?;
        let Some(bytes) = entry else { break };
        earliest = version;
        if let Some(names) = metadata_columns(version, &bytes)? {
            downward.push((version, names));
        }
    }
    let since = first_versions(downward, earliest == 0);
    let columns = schema.fields().map(|field| Since {
        name: field.name().clone(),
        data_type: type_name(field.data_type()),
        since: since
            .get(field.name())
            .and_then(|version| i64::try_from(*version).ok()),
    });
    Ok(columns.collect())
}

/// The oldest version that has each column, of the metadata from the newest version to the oldest.
///
/// Where the log does not reach back to the beginning, the columns of its oldest metadata may be older, so they have none.
fn first_versions(downward: Vec<(u64, Vec<String>)>, is_whole: bool) -> HashMap<String, u64> {
    let mut since = HashMap::new();
    let oldest = downward.last().map(|(_, names)| names.clone());
    for (version, names) in downward {
        since.extend(names.into_iter().map(|name| (name, version)));
    }
    if !is_whole {
        since.retain(|name, _| !oldest.as_ref().is_some_and(|names| names.contains(name)));
    }
    since
}

fn type_name(data_type: &impl serde::Serialize) -> String {
    match serde_json::to_value(data_type) {
        Ok(Value::String(name)) => name,
        Ok(nested) => nested.to_string(),
        Err(error) => format!("unknown: {error}"),
    }
}

/// The column names of the metadata in a commit; `None` when it has none.
fn metadata_columns(version: u64, bytes: &[u8]) -> Result<Option<Vec<String>>> {
    let damaged = |error: serde_json::Error| {
        Error::unavailable(format!("version {version} of the log is damaged: {error}"))
    };
    for line in bytes.split(|byte| *byte == b'\n') {
        if memchr::memmem::find(line, b"\"metaData\"").is_none() {
            continue;
        }
        let action: Value = serde_json::from_slice(line).map_err(damaged)?;
        let Some(text) = action
            .pointer("/metaData/schemaString")
            .and_then(Value::as_str)
        else {
            continue;
        };
        let schema: Value = serde_json::from_str(text).map_err(damaged)?;
        let fields = schema
            .get("fields")
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        let names = fields
            .iter()
            .filter_map(|field| field.get("name").and_then(Value::as_str));
        return Ok(Some(names.map(str::to_string).collect()));
    }
    Ok(None)
}

/// The first file of bronze that has a value in each of the source columns.
async fn first_files(table: &DeltaTable, columns: &[&str]) -> Result<HashMap<String, String>> {
    let source: Vec<&str> = columns
        .iter()
        .copied()
        .filter(|name| !ADDED.contains(name))
        .collect();
    let mut files = HashMap::new();
    if source.is_empty()
        || !columns.contains(&change::BATCH_ID)
        || !columns.contains(&change::FILE_PATH)
    {
        return Ok(files);
    }
    let session = session();
    let provider = table.table_provider().await.map_err(run_error)?;
    session
        .register_table("bronze", provider)
        .map_err(plan_error)?;
    let minima = source.iter().enumerate().map(|(index, name)| {
        format!(
            "min(\"{}\") FILTER (WHERE {} IS NOT NULL) AS b{index}",
            change::BATCH_ID,
            quoted(name)
        )
    });
    let minima = minima.collect::<Vec<_>>().join(", ");
    let Some(batch) = first_row(&session, &format!("SELECT {minima} FROM bronze")).await? else {
        return Ok(files);
    };
    for (index, name) in source.iter().enumerate() {
        let batches = batch.column(index).as_primitive::<Int64Type>();
        let Some(first) = batches.iter().next().flatten() else {
            continue;
        };
        let statement = format!(
            "SELECT CAST(min(\"{}\") AS VARCHAR) FROM bronze WHERE \"{}\" = {first} AND {} IS NOT NULL",
            change::FILE_PATH,
            change::BATCH_ID,
            quoted(name)
        );
        let Some(row) = first_row(&session, &statement).await? else {
            continue;
        };
        let text = arrow::compute::cast(row.column(0), &arrow::datatypes::DataType::Utf8)?;
        if let Some(file) = text.as_string::<i32>().iter().next().flatten() {
            files.insert((*name).to_string(), file.to_string());
        }
    }
    Ok(files)
}

/// The columns of bronze that do not come from files.
const ADDED: &[&str] = &[
    change::RESCUED_DATA,
    change::PRESENT_COLUMNS,
    change::SNAPSHOT_VERSION,
    change::FILE_PATH,
    change::FILE_ROW,
    change::FILE_MODIFIED_AT,
    change::BATCH_ID,
    change::LOADED_AT,
];

/// A name as an SQL identifier, whatever stands in it.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

async fn first_row(session: &SessionContext, statement: &str) -> Result<Option<RecordBatch>> {
    let frame = session.sql(statement).await.map_err(plan_error)?;
    let mut batches = rows(frame).await?.batches;
    while let Some(batch) = batches.try_next().await? {
        if batch.num_rows() > 0 {
            return Ok(Some(batch));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn since(metadata: &[(u64, &str)], is_whole: bool) -> Vec<(String, u64)> {
        let names = |names: &str| names.split(' ').map(str::to_string).collect();
        let downward = metadata
            .iter()
            .map(|(version, text)| (*version, names(text)));
        let mut since: Vec<_> = first_versions(downward.collect(), is_whole)
            .into_iter()
            .collect();
        since.sort();
        since
    }

    #[test]
    fn columns_of_a_log_that_was_cleaned_are_as_old_as_the_log_or_older() {
        assert_eq!(since(&[], false), []);
        assert_eq!(since(&[(40, "a b")], false), []);
        assert_eq!(
            since(&[(50, "a b c"), (40, "a b")], false),
            [("c".to_string(), 50)]
        );
    }

    #[test]
    fn column_is_there_since_the_oldest_version_that_has_it() {
        let expected = [("a".to_string(), 0), ("b".to_string(), 3)];
        assert_eq!(since(&[(9, "a b"), (3, "a b"), (0, "a")], true), expected);
    }
}
