//! One commit: what a log entry says, as lines of JSON.
//!
//! Every entry carries its own id and number of lines, so that an unclear outcome and a torn entry can be told. When it is
//! written is left to `Table::commit`.

use super::log::LINES;
use super::protocol;
use super::state::TableState;
use crate::change::Version;
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result};
use arrow::datatypes::{Schema, SchemaRef};
use bytes::Bytes;
use delta_kernel::engine::arrow_conversion::TryIntoKernel;
use delta_kernel::schema::StructType;
use deltalake::kernel::{
    Action, Add, AddCDCFile, CommitInfo, IsolationLevel, MetadataExt, Protocol, Remove,
    Transaction, new_metadata,
};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};

/// An application transaction: how far `app_id` has come, in the same commit as its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppTransaction {
    /// The application.
    pub app_id: String,
    /// Only rises.
    pub version: i64,
}

/// What a commit does, in Delta's own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Appends rows; removes nothing.
    Write,
    /// Replaces rows.
    Merge,
    /// Deletes rows.
    Delete,
    /// Writes the same rows in other files.
    Optimize,
    /// Sets table properties and touches no row.
    SetProperties,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Operation::Write => "WRITE",
            Operation::Merge => "MERGE",
            Operation::Delete => "DELETE",
            Operation::Optimize => "OPTIMIZE",
            Operation::SetProperties => "SET TBLPROPERTIES",
        }
    }

    /// The parameters that readers of the history look for; values are texts.
    fn parameters(self, partition_by: &[String]) -> Map<String, Value> {
        let parameters = match self {
            Operation::Write => {
                json!({"mode": "Append", "partitionBy": json!(partition_by).to_string()})
            }
            Operation::Merge => json!({
                "predicate": "[]", "matchedPredicates": "[]", "notMatchedPredicates": "[]",
                "notMatchedBySourcePredicates": "[]",
            }),
            Operation::Delete | Operation::Optimize => json!({"predicate": "[]"}),
            Operation::SetProperties => json!({}),
        };
        match parameters {
            Value::Object(parameters) => parameters,
            _ => Map::new(),
        }
    }
}

/// Everything that one log entry says. All files are on disk before.
#[derive(Clone, Debug)]
pub struct TableCommit {
    /// What it does.
    pub operation: Operation,
    /// Files that join the table.
    pub adds: Vec<Add>,
    /// Files that leave the table.
    pub removes: Vec<Remove>,
    /// Change data files.
    pub changes: Vec<AddCDCFile>,
    /// How far the application has come.
    pub transaction: Option<AppTransaction>,
    /// The new schema; `None` leaves it.
    pub schema: Option<SchemaRef>,
    /// Table properties to set.
    pub properties: BTreeMap<String, String>,
    /// `operationMetrics`; values are texts, as Spark writes them.
    pub metrics: Map<String, Value>,
    /// Joins `operationParameters`.
    pub parameters: Map<String, Value>,
}

impl TableCommit {
    /// A commit of nothing yet.
    pub fn new(operation: Operation) -> Self {
        TableCommit {
            operation,
            adds: Vec::new(),
            removes: Vec::new(),
            changes: Vec::new(),
            transaction: None,
            schema: None,
            properties: BTreeMap::new(),
            metrics: Map::new(),
            parameters: Map::new(),
        }
    }

    /// Adds one operation metric.
    pub fn metric(&mut self, name: &str, value: impl std::fmt::Display) {
        self.metrics
            .insert(name.to_owned(), Value::String(value.to_string()));
    }
}

/// How a commit ended.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitOutcome {
    /// The entry is durable and applied to the state in memory.
    Committed(Version),
    /// The version was taken by a foreign commit: nothing was written; reload and recompute.
    Conflict,
}

/// All actions of a commit on `state`, `commitInfo` first.
pub(super) fn actions(state: &TableState, commit: TableCommit) -> Result<Vec<Action>> {
    let info = commit_info(state, &commit);
    let mut actions = Vec::new();
    let protocol = protocol::for_change(
        &state.protocol,
        commit.schema.as_deref(),
        &commit.properties,
    )?;
    actions.extend(protocol.map(Action::Protocol));
    actions.extend(metadata(state, &commit)?.map(Action::Metadata));
    actions.extend(
        commit
            .transaction
            .map(|txn| Action::Txn(Transaction::new(txn.app_id, txn.version))),
    );
    actions.extend(commit.removes.into_iter().map(Action::Remove));
    actions.extend(commit.adds.into_iter().map(Action::Add));
    actions.extend(commit.changes.into_iter().map(Action::Cdc));
    Ok(with_info(info, actions))
}

/// The actions of version 0.
pub(super) fn creation(
    protocol: Protocol,
    schema: &Schema,
    partition_by: &[String],
    properties: &BTreeMap<String, String>,
    name: Option<&str>,
    description: Option<&str>,
) -> Result<Vec<Action>> {
    let bug = |error| Error::bug(format!("metadata of a new table: {error}"));
    let mut metadata =
        new_metadata(&delta_schema(schema)?, partition_by, properties.clone()).map_err(bug)?;
    if let Some(name) = name {
        metadata = metadata.with_name(name.to_owned()).map_err(bug)?;
    }
    if let Some(description) = description {
        metadata = metadata
            .with_description(description.to_owned())
            .map_err(bug)?;
    }
    let parameters = HashMap::from([
        (
            "partitionBy".to_owned(),
            Value::String(json!(partition_by).to_string()),
        ),
        (
            "properties".to_owned(),
            Value::String(json!(properties).to_string()),
        ),
        ("isManaged".to_owned(), Value::String("false".into())),
    ]);
    let info = CommitInfo {
        operation: Some("CREATE TABLE".into()),
        operation_parameters: Some(parameters),
        is_blind_append: Some(true),
        ..new_info(Map::new())
    };
    Ok(with_info(
        info,
        vec![Action::Protocol(protocol), Action::Metadata(metadata)],
    ))
}

/// The Delta schema of Arrow columns.
pub(super) fn delta_schema(schema: &Schema) -> Result<StructType> {
    let schema: std::result::Result<StructType, _> = schema.try_into_kernel();
    schema
        .map_err(|error| Error::settings(format!("a column has a type that Delta lacks: {error}")))
}

fn metadata(
    state: &TableState,
    commit: &TableCommit,
) -> Result<Option<deltalake::kernel::Metadata>> {
    let bug = |error| Error::bug(format!("new metadata: {error}"));
    let mut metadata = None;
    if let Some(schema) = &commit.schema {
        let new = state
            .metadata
            .clone()
            .with_schema(&delta_schema(schema)?)
            .map_err(bug)?;
        metadata = Some(new);
    }
    for (name, value) in &commit.properties {
        let present = metadata.unwrap_or_else(|| state.metadata.clone());
        metadata = Some(
            present
                .add_config_key(name.clone(), value.clone())
                .map_err(bug)?,
        );
    }
    Ok(metadata)
}

fn new_info(metrics: Map<String, Value>) -> CommitInfo {
    let mut info = HashMap::from([(
        "txnId".to_owned(),
        Value::String(uuid::Uuid::new_v4().to_string()),
    )]);
    if !metrics.is_empty() {
        info.insert("operationMetrics".to_owned(), Value::Object(metrics));
    }
    CommitInfo {
        timestamp: Some(SystemClock.now() / 1000),
        engine_info: Some(concat!("landfall/", env!("CARGO_PKG_VERSION")).to_owned()),
        info,
        ..CommitInfo::default()
    }
}

fn commit_info(state: &TableState, commit: &TableCommit) -> CommitInfo {
    let mut parameters = commit.operation.parameters(&state.partition_by);
    if commit.operation == Operation::SetProperties {
        let properties = json!(commit.properties).to_string();
        parameters.insert("properties".to_owned(), Value::String(properties));
    }
    parameters.extend(commit.parameters.clone());
    let blind = commit.operation == Operation::Write && commit.removes.is_empty();
    CommitInfo {
        operation: Some(commit.operation.name().into()),
        operation_parameters: Some(parameters.into_iter().collect()),
        read_version: u64::try_from(state.version).ok(),
        isolation_level: Some(IsolationLevel::Serializable),
        is_blind_append: Some(blind),
        ..new_info(commit.metrics.clone())
    }
}

fn with_info(mut info: CommitInfo, mut actions: Vec<Action>) -> Vec<Action> {
    info.info
        .insert(LINES.to_owned(), Value::from(actions.len() + 1));
    actions.insert(0, Action::CommitInfo(info));
    actions
}

/// The bytes of a log entry.
pub(super) fn to_bytes(actions: &[Action]) -> Result<Bytes> {
    let mut text = String::new();
    for action in actions {
        let line = serde_json::to_string(action)
            .map_err(|error| Error::bug(format!("a log action does not serialize: {error}")))?;
        text.push_str(&line);
        text.push('\n');
    }
    Ok(Bytes::from(text))
}

/// The actions of a log entry; kinds of action that are not known here are skipped.
pub(super) fn from_bytes(bytes: &[u8]) -> std::result::Result<Vec<Action>, String> {
    const KNOWN: [&str; 7] = [
        "commitInfo",
        "protocol",
        "metaData",
        "txn",
        "add",
        "remove",
        "cdc",
    ];
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let mut actions = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let value: Map<String, Value> =
            serde_json::from_str(line).map_err(|error| error.to_string())?;
        if value.keys().any(|key| KNOWN.contains(&key.as_str())) {
            let action =
                serde_json::from_value(Value::Object(value)).map_err(|error| error.to_string())?;
            actions.push(action);
        }
    }
    Ok(actions)
}
