//! The refused records of a pipeline, with the names that they have outside the table.

use super::{Layer, Rows, ShowRequest, present, show};
use crate::error::Result;
use crate::settings::PipelineSettings;
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use futures::{StreamExt, stream};
use std::sync::Arc;

/// The records in quarantine by file and row; the columns are those of the table without the underscore.
///
/// A pipeline that never refused a record has no such table and no rows.
pub async fn refused_records(pipeline: &PipelineSettings) -> Result<Rows> {
    if present(Layer::Quarantine, pipeline)?.is_none() {
        return Ok(Rows {
            schema: columns(),
            batches: stream::empty().boxed(),
        });
    }
    let request = ShowRequest {
        layer: Layer::Quarantine,
        limit: None,
        include_deleted: true,
        version: None,
    };
    let rows = show(pipeline, request).await?;
    let schema = without_underscores(&rows.schema);
    let renamed = schema.clone();
    let batches = rows.batches.map(move |batch| {
        let columns = batch?.columns().to_vec();
        Ok(RecordBatch::try_new(renamed.clone(), columns)?)
    });
    Ok(Rows {
        schema,
        batches: batches.boxed(),
    })
}

/// The table of a pipeline that never refused a record.
pub(super) fn table_columns() -> SchemaRef {
    let named = columns();
    let fields = named.fields().iter().map(|field| {
        field
            .as_ref()
            .clone()
            .with_name(format!("_{}", field.name()))
    });
    Arc::new(Schema::new(fields.collect::<Vec<Field>>()))
}

/// No rows of it.
pub(super) fn no_rows() -> Rows {
    Rows {
        schema: table_columns(),
        batches: stream::empty().boxed(),
    }
}

fn without_underscores(schema: &SchemaRef) -> SchemaRef {
    let renamed = schema.fields().iter().map(|field| {
        let name = field.name().strip_prefix('_').unwrap_or(field.name());
        field.as_ref().clone().with_name(name)
    });
    Arc::new(Schema::new(renamed.collect::<Vec<Field>>()))
}

/// The columns of an answer without a table.
fn columns() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let columns = [
        ("file_path", DataType::Utf8),
        ("file_row", DataType::Int64),
        ("file_line", DataType::Int64),
        ("byte_offset", DataType::Int64),
        ("reason", DataType::Utf8),
        ("detail", DataType::Utf8),
        ("raw", DataType::Utf8),
        ("batch_id", DataType::Int64),
        ("quarantined_at", time),
    ];
    let fields = columns.map(|(name, data_type)| Field::new(name, data_type, true));
    Arc::new(Schema::new(fields.to_vec()))
}
