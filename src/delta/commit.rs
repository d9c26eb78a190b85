//! One commit: the log entry, put if absent.

use crate::change::Version;
use arrow::datatypes::SchemaRef;
use deltalake::kernel::{Add, AddCDCFile, Remove};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

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
