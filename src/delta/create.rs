//! Makes a new table: what it looks like, and version 0, put if absent.
//!
//! A folder in which a table may have been is never taken for an empty one. What the columns mean is left to the callers.

use super::{Table, absolute, commit, connect, durable_store, log, protocol, write_error};
use crate::error::{Error, Result};
use arrow::datatypes::{DataType, Fields, Schema, SchemaRef};
use deltalake::kernel::transaction::TransactionError;
use deltalake::logstore::CommitOrBytes;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use uuid::Uuid;

/// As many columns from the left have statistics.
const INDEXED_COLUMNS: u64 = 64;

/// What a new table looks like.
#[derive(Clone, Debug)]
pub struct TableSpec {
    /// The columns, partition columns included.
    pub schema: SchemaRef,
    /// Top-level columns, in the order of the folders.
    pub partition_by: Vec<String>,
    /// Whether readers can ask what changed (`delta.enableChangeDataFeed`).
    pub change_data_feed: bool,
    /// Whether rows may be deleted by vector (`delta.enableDeletionVectors`).
    pub deletion_vectors: bool,
    /// The name in the metadata.
    pub name: Option<String>,
    /// The description in the metadata.
    pub description: Option<String>,
    /// Further table properties.
    pub properties: BTreeMap<String, String>,
}

impl Table {
    /// Creates version 0 if it is absent; an existing table is an error, never overwritten.
    ///
    /// If the program stops inside, there is a table or none, and an empty folder at most.
    pub async fn create(root: &Path, spec: &TableSpec) -> Result<Table> {
        let root = absolute(root)?;
        let listing = log::list(&root)?;
        if !listing.entries.is_empty() || !listing.checkpoints.is_empty() {
            return Err(exists(&root));
        }
        log::certainly_no_table(&root)?;
        check_names(&spec.schema)?;
        check_partitions(spec)?;
        let protocol =
            protocol::for_new_table(&spec.schema, spec.change_data_feed, spec.deletion_vectors)?;
        let (name, description) = (spec.name.as_deref(), spec.description.as_deref());
        let actions = commit::creation(
            protocol,
            &spec.schema,
            &spec.partition_by,
            &properties(spec),
            name,
            description,
        )?;
        durable_store::create_folders(&root.join(log::LOG))
            .map_err(|error| log::unavailable(&root, &error))?;
        let (_, log_store) = connect(&root)?;
        let entry = CommitOrBytes::LogBytes(commit::to_bytes(&actions)?);
        match log_store.write_commit_entry(0, entry, Uuid::new_v4()).await {
            Ok(()) => {}
            Err(TransactionError::VersionAlreadyExists(_)) => return Err(exists(&root)),
            Err(error) => return Err(write_error(&root, &error)),
        }
        Table::open(&root).await?.ok_or_else(|| {
            Error::unavailable(format!(
                "table {}: it is gone right after it was made",
                root.display()
            ))
        })
    }
}

fn exists(root: &Path) -> Error {
    Error::disagreement(format!("there is a table already: {}", root.display()))
        .hint("open it, or choose another folder")
}

fn check_partitions(spec: &TableSpec) -> Result<()> {
    for column in &spec.partition_by {
        let field = spec.schema.field_with_name(column).map_err(|_| {
            Error::settings(format!(
                "partition_by names a column that the table lacks: {column}"
            ))
        })?;
        let kind = field.data_type();
        if kind.is_nested()
            || matches!(
                kind,
                DataType::Binary | DataType::Float32 | DataType::Float64
            )
        {
            return Err(Error::settings(format!(
                "partition column {column} cannot be of type {kind}"
            )));
        }
    }
    if spec.partition_by.len() >= spec.schema.fields().len() {
        return Err(Error::settings(
            "partition_by leaves no column for the data files",
        ));
    }
    Ok(())
}

fn properties(spec: &TableSpec) -> BTreeMap<String, String> {
    let mut properties = BTreeMap::from([
        ("delta.checkpointInterval".to_owned(), "100".to_owned()),
        (
            "delta.dataSkippingNumIndexedCols".to_owned(),
            INDEXED_COLUMNS.to_string(),
        ),
    ]);
    if spec.change_data_feed {
        properties.insert(protocol::CHANGE_DATA_FEED.into(), "true".into());
    }
    if spec.deletion_vectors {
        properties.insert(protocol::DELETION_VECTORS.into(), "true".into());
    }
    properties.extend(spec.properties.clone());
    properties
}

/// Characters that Delta takes in no column name.
const FORBIDDEN: &[char] = &[' ', ',', ';', '{', '}', '(', ')', '\n', '\t', '='];

/// Refuses names that would make the table unreadable for others: Delta compares names without case and forbids some characters.
pub(super) fn check_names(schema: &Schema) -> Result<()> {
    check_fields(schema.fields())
}

fn check_fields(fields: &Fields) -> Result<()> {
    let mut known = BTreeSet::new();
    for field in fields {
        let name = field.name();
        let refuse = |why: &str| {
            Err(Error::settings(format!("column name {why}: {name:?}")).hint("rename the column"))
        };
        if name.is_empty() || name.contains(FORBIDDEN) {
            return refuse("is empty or has a character that Delta does not take");
        }
        if !known.insert(name.to_lowercase()) {
            return refuse("stands twice, or differs from another in case only");
        }
        check_inner(field.data_type())?;
    }
    Ok(())
}

fn check_inner(data_type: &DataType) -> Result<()> {
    match data_type {
        DataType::Struct(fields) => check_fields(fields),
        DataType::List(field) | DataType::Map(field, _) => check_inner(field.data_type()),
        _ => Ok(()),
    }
}
