//! Reads the tables of the pipelines: `show` and SQL.
//!
//! Nothing here writes. Tables stand in the schemas `bronze`, `silver` and `quarantine` under the name of their
//! pipeline; names keep their case. How rows are printed is left to the caller.

use crate::change::Version;
use crate::error::Result;
use crate::settings::{PipelineSettings, Settings};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::stream::BoxStream;

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
    let _ = (pipeline, request);
    todo!()
}

/// The answer to one SQL statement over the tables of all pipelines.
///
/// Only statements that read are taken. Fails with the kind `Settings` when the statement is wrong.
pub async fn sql(settings: &Settings, statement: &str) -> Result<Rows> {
    let _ = (settings, statement);
    todo!()
}
