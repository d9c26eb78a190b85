//! Which decoded rows the settings of the tables refuse, and why.

use crate::change::{OP, RESCUED_DATA, RejectReason, SEQUENCE};
use crate::envelope::Op;
use crate::error::Result;
use crate::events::{EventClassifier, EventKind, find_column};
use crate::schema::TableSchema;
use crate::settings::{EventRules, PipelineSettings};
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use std::sync::Arc;

/// The longest name of a folder that file systems take, in bytes.
const FOLDER_NAME_MAX: usize = 255;

/// A row that is refused.
pub(super) struct Refusal {
    pub(super) row: usize,
    pub(super) reason: RejectReason,
    /// For people.
    pub(super) detail: String,
}

/// Which decoded rows the settings of the tables refuse.
pub(super) struct Admission {
    keys: Vec<(String, Option<usize>)>,
    sequence: Vec<(String, Option<usize>)>,
    operation: String,
    /// The column that lists the columns of its record.
    lists: Option<(String, usize)>,
    classifier: Option<EventClassifier>,
    bronze_partitions: Vec<(String, usize)>,
    silver_partitions: Vec<(String, usize)>,
}

impl Admission {
    /// For rows of `schema`.
    pub(super) fn new(settings: &PipelineSettings, schema: &TableSchema) -> Result<Self> {
        let bronze_partitions = text_columns(&settings.bronze.partition_by, schema);
        let Some(silver) = &settings.silver else {
            return Ok(Admission {
                keys: Vec::new(),
                sequence: Vec::new(),
                operation: String::new(),
                lists: None,
                classifier: None,
                bronze_partitions,
                silver_partitions: Vec::new(),
            });
        };
        let place = |name: &String| (name.clone(), find_column(&schema.columns, name));
        let operation = match &silver.events {
            EventRules::Operations { column, .. } => column.clone(),
            EventRules::Predicates { .. } => String::new(),
        };
        let rows = rows_schema(schema);
        Ok(Admission {
            keys: silver.keys.iter().map(place).collect(),
            sequence: silver.sequence_by.iter().map(place).collect(),
            operation,
            lists: text_columns(silver.columns_to_update.as_slice(), schema).pop(),
            classifier: Some(EventClassifier::new(&silver.events, &rows)?),
            bronze_partitions,
            silver_partitions: text_columns(&silver.partition_by, schema),
        })
    }

    /// The rows that are refused, in their order, and why.
    pub(super) fn refusals(&self, rows: &RecordBatch) -> Result<Vec<Refusal>> {
        let kinds = match &self.classifier {
            Some(classifier) => classifier.classify(rows)?,
            None => vec![EventKind::Skip; rows.num_rows()],
        };
        if self.admits_all(rows, &kinds) {
            return Ok(Vec::new());
        }
        let refusal = |(row, kind)| {
            let why = self
                .refusal(rows, row, kind)
                .or_else(|| self.partition_refusal(rows, row, kind));
            why.map(|(reason, detail)| Refusal {
                row,
                reason,
                detail,
            })
        };
        Ok(kinds.into_iter().enumerate().filter_map(refusal).collect())
    }

    /// Whether no row can be refused, told without a look at each.
    fn admits_all(&self, rows: &RecordBatch, kinds: &[EventKind]) -> bool {
        let is_complete = |(_, place): &(String, Option<usize>)| {
            place.is_some_and(|place| rows.column(place).null_count() == 0)
        };
        self.lists.is_none()
            && self.bronze_partitions.is_empty()
            && self.silver_partitions.is_empty()
            && self.keys.iter().chain(&self.sequence).all(is_complete)
            && !kinds.contains(&EventKind::Unknown)
    }

    fn refusal(
        &self,
        rows: &RecordBatch,
        row: usize,
        kind: EventKind,
    ) -> Option<(RejectReason, String)> {
        match kind {
            EventKind::Skip => return None,
            EventKind::Unknown => {
                return Some(self.unknown_operation(rows, row));
            }
            EventKind::Upsert | EventKind::Delete | EventKind::Truncate => {}
        }
        let is_null = |(_, place): &&(String, Option<usize>)| {
            place.is_none_or(|place| rows.column(place).is_null(row))
        };
        // A truncate is of no key.
        let key_counts = kind != EventKind::Truncate;
        if let Some((name, _)) = self.keys.iter().find(is_null).filter(|_| key_counts) {
            return Some((
                RejectReason::NullKey,
                format!("key column {name} is NULL or absent"),
            ));
        }
        let Some((name, _)) = self.sequence.iter().find(is_null) else {
            return self.list_refusal(rows, row);
        };
        if name == SEQUENCE {
            let detail = "the record says nothing of its place in the order of the source; let the source write it, or set sequence_by";
            return Some((RejectReason::NullSequence, detail.into()));
        }
        Some((
            RejectReason::NullSequence,
            format!("sequence column {name} is NULL or absent"),
        ))
    }

    /// A list of columns that is cut or no list would drop values in silence.
    fn list_refusal(&self, rows: &RecordBatch, row: usize) -> Option<(RejectReason, String)> {
        let (name, place) = self.lists.as_ref()?;
        let texts = rows.column(*place).as_string_opt::<i32>()?;
        let text = texts.is_valid(row).then(|| texts.value(row).trim())?;
        let is_list = serde_json::from_str::<Vec<String>>(text).is_ok();
        (text.starts_with(['[', '{']) && !is_list).then(|| {
            let detail = format!("column {name}: {text:?} is no list of columns");
            (RejectReason::TypeMismatch, detail)
        })
    }

    /// A value that no table can have a partition for would stop every run, so its record is refused.
    fn partition_refusal(
        &self,
        rows: &RecordBatch,
        row: usize,
        kind: EventKind,
    ) -> Option<(RejectReason, String)> {
        let silver = match kind {
            EventKind::Skip | EventKind::Truncate => &[],
            EventKind::Unknown | EventKind::Upsert | EventKind::Delete => {
                self.silver_partitions.as_slice()
            }
        };
        self.bronze_partitions
            .iter()
            .chain(silver)
            .find_map(|(name, place)| {
                let texts = rows.column(*place).as_string_opt::<i32>()?;
                if texts.is_null(row) {
                    return None;
                }
                let text = texts.value(row);
                if text.is_empty() {
                    let detail = format!(
                        "partition column {name}: an empty text cannot be told from NULL in a partition"
                    );
                    return Some((RejectReason::InvalidPartitionValue, detail));
                }
                let length = encoded_length(name) + 1 + encoded_length(text);
                (length > FOLDER_NAME_MAX).then(|| {
                    let detail = format!(
                        "partition column {name}: the value makes a folder name of {length} bytes, {FOLDER_NAME_MAX} are possible"
                    );
                    (RejectReason::InvalidPartitionValue, detail)
                })
            })
    }

    fn unknown_operation(&self, rows: &RecordBatch, row: usize) -> (RejectReason, String) {
        if self.operation.is_empty() {
            let detail = "apply_as_deletes or apply_as_truncates cannot be evaluated on the values of this record";
            return (RejectReason::UnknownOp, detail.into());
        }
        let place = find_column(&rows.schema(), &self.operation);
        let value = place.and_then(|place| {
            let options = arrow::util::display::FormatOptions::default().with_null("NULL");
            let column = rows.column(place);
            let formatter =
                arrow::util::display::ArrayFormatter::try_new(column.as_ref(), &options).ok()?;
            Some(formatter.value(row).to_string())
        });
        // Every word of an envelope is in the settings but for this one, under SCD type 2.
        if self.operation == OP && value.as_deref() == Some(Op::Truncate.as_str()) {
            let detail = "a truncate cannot be applied to a silver with stored_as_scd_type = 2";
            return (RejectReason::UnsupportedOp, detail.into());
        }
        let detail = format!(
            "column {}: operation {} is not in the settings",
            self.operation,
            value.as_deref().unwrap_or("NULL")
        );
        (RejectReason::UnknownOp, detail)
    }
}

/// The columns of these names that hold text.
fn text_columns(names: &[String], schema: &TableSchema) -> Vec<(String, usize)> {
    let place = |name: &String| {
        let place = find_column(&schema.columns, name)?;
        (*schema.columns.field(place).data_type() == DataType::Utf8).then(|| (name.clone(), place))
    };
    names.iter().filter_map(place).collect()
}

/// How long a text is in the name of a partition's folder: other signs than these are written as `%XX`.
fn encoded_length(text: &str) -> usize {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if is_plain(byte) { 1 } else { 3 })
        .sum()
}

/// The schema of decoded rows: the source columns, then the rescued data.
pub(super) fn rows_schema(schema: &TableSchema) -> SchemaRef {
    let rescued = Arc::new(Field::new(RESCUED_DATA, DataType::Utf8, true));
    Arc::new(Schema::new(
        schema
            .columns
            .fields()
            .iter()
            .cloned()
            .chain([rescued])
            .collect::<Vec<_>>(),
    ))
}
