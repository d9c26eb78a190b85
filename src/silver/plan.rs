//! Which columns silver has, and what the settings mean for the columns of bronze.

use crate::change::{
    BATCH_ID, DELETED, FILE_MODIFIED_AT, FILE_PATH, FILE_ROW, LOADED_AT, RESCUED_DATA,
};
use crate::error::{Error, Result};
use crate::events::find_column;
use crate::settings::{ColumnSelection, EventRules, IgnoreNullUpdates, SilverSettings};
use crate::silver::pool::column_or_null;
use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use std::sync::Arc;

/// The settings of silver, resolved against the columns that bronze has now.
#[derive(Clone, Debug)]
pub struct SilverPlan {
    /// Keys, chosen columns and sequence columns, as fields of bronze; the order in a new silver.
    pub columns: Vec<FieldRef>,
    /// Where the keys stand in `columns`.
    pub keys: Vec<usize>,
    /// Where the sequence columns stand in `columns`, most significant first.
    pub sequence: Vec<usize>,
    /// For each of `columns`, whether a NULL of an upsert keeps the value so far.
    pub ignore_null: Vec<bool>,
    /// A text that means "value not sent".
    pub unavailable_value: Option<String>,
    /// What each event is.
    pub rules: EventRules,
}

impl SilverPlan {
    /// Resolves `settings` against the schema of bronze.
    ///
    /// `None` while bronze lacks a key or a sequence column: then no record can have both, and there is nothing to fold.
    pub fn resolve(
        settings: &SilverSettings,
        unavailable_value: Option<String>,
        bronze: &Schema,
    ) -> Result<Option<SilverPlan>> {
        let places = |names: &[String]| -> Option<Vec<usize>> {
            names.iter().map(|name| find_column(bronze, name)).collect()
        };
        let (Some(keys), Some(sequence)) = (places(&settings.keys), places(&settings.sequence_by))
        else {
            return Ok(None);
        };
        let chosen = |place: &usize| is_chosen(settings, bronze.field(*place).name());
        let is_plain = |place: &usize| !keys.contains(place) && !sequence.contains(place);
        let values = (0..bronze.fields().len()).filter(is_plain).filter(chosen);
        let order: Vec<usize> = keys
            .iter()
            .copied()
            .chain(values)
            .chain(sequence.iter().copied())
            .collect();
        let columns: Vec<FieldRef> = order
            .iter()
            .map(|&place| bronze.fields()[place].clone())
            .collect();
        let ignore_null = columns
            .iter()
            .map(|field| ignores_null(&settings.ignore_null_updates, field))
            .collect();
        if let Some(field) = columns
            .iter()
            .find(|field| field.name().eq_ignore_ascii_case(DELETED))
        {
            let message = format!(
                "{:?} is silver's own flag and can be no key or sequence",
                field.name()
            );
            return Err(Error::settings(message));
        }
        let in_order = |place: &usize| order.iter().position(|other| other == place);
        Ok(Some(SilverPlan {
            keys: keys.iter().filter_map(in_order).collect(),
            sequence: sequence.iter().filter_map(in_order).collect(),
            columns,
            ignore_null,
            unavailable_value,
            rules: settings.events.clone(),
        }))
    }

    /// The schema of a new silver.
    pub fn schema(&self) -> SchemaRef {
        let flag = Arc::new(Field::new(DELETED, DataType::Boolean, true));
        Arc::new(Schema::new(
            self.columns
                .iter()
                .cloned()
                .chain([flag])
                .collect::<Vec<_>>(),
        ))
    }

    /// The schema of a silver that had `present`: new columns come last.
    pub fn evolved(&self, present: &SchemaRef) -> SchemaRef {
        let is_new = |field: &&FieldRef| present.field_with_name(field.name()).is_err();
        let new = self.columns.iter().filter(is_new).cloned();
        Arc::new(Schema::new(
            present
                .fields()
                .iter()
                .cloned()
                .chain(new)
                .collect::<Vec<_>>(),
        ))
    }

    /// The key columns of rows of bronze or silver.
    pub fn key_columns(&self, rows: &RecordBatch) -> Vec<ArrayRef> {
        self.columns_at(rows, &self.keys)
    }

    /// The sequence columns of rows of bronze or silver.
    pub fn sequence_columns(&self, rows: &RecordBatch) -> Vec<ArrayRef> {
        self.columns_at(rows, &self.sequence)
    }

    fn columns_at(&self, rows: &RecordBatch, places: &[usize]) -> Vec<ArrayRef> {
        let field = |&place: &usize| &self.columns[place];
        let fields = places.iter().map(field);
        fields
            .map(|field| column_or_null(rows, field.name(), field.data_type()))
            .collect()
    }

    /// The names of `places`, which count in [`SilverPlan::columns`].
    pub fn names(&self, places: &[usize]) -> Vec<String> {
        places
            .iter()
            .map(|&place| self.columns[place].name().clone())
            .collect()
    }
}

/// Whether the loader, not the source, makes this column of bronze.
pub fn is_own_column(name: &str) -> bool {
    [
        FILE_PATH,
        FILE_ROW,
        FILE_MODIFIED_AT,
        BATCH_ID,
        LOADED_AT,
        RESCUED_DATA,
    ]
    .contains(&name)
}

fn is_chosen(settings: &SilverSettings, name: &str) -> bool {
    let named = |list: &[String]| {
        list.iter()
            .any(|entry| entry.to_lowercase() == name.to_lowercase())
    };
    // Silver's own flag has this name; a source column of it stays in bronze.
    if name.eq_ignore_ascii_case(DELETED) {
        return false;
    }
    match &settings.columns {
        ColumnSelection::AllExcept(list) => !is_own_column(name) && !named(list),
        ColumnSelection::Only(list) => named(list),
    }
}

fn ignores_null(setting: &IgnoreNullUpdates, field: &Field) -> bool {
    match setting {
        IgnoreNullUpdates::Never => false,
        IgnoreNullUpdates::All => true,
        IgnoreNullUpdates::Columns(list) => list
            .iter()
            .any(|name| name.to_lowercase() == field.name().to_lowercase()),
    }
}
