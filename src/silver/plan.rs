//! Which columns silver has, and what the settings mean for the columns of bronze.

use crate::change::{
    BATCH_ID, DELETED, END_AT, FILE_MODIFIED_AT, FILE_PATH, FILE_ROW, LOADED_AT, PRESENT_COLUMNS,
    RESCUED_DATA, SNAPSHOT_VERSION, START_AT,
};
use crate::error::{Error, Result};
use crate::events::find_column;
use crate::settings::{
    ColumnSelection, Deletes, EventRules, IgnoreNullUpdates, ScdType, SilverSettings,
};
use crate::silver::fold::Shape;
use crate::silver::pool::column_or_null;
use arrow::array::{ArrayRef, AsArray, RecordBatch, StructArray};
use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use std::sync::Arc;

/// The settings of silver, resolved against the columns that bronze has now.
#[derive(Clone, Debug)]
pub struct SilverPlan {
    /// Keys, chosen columns and sequence columns, as fields of bronze; the order in a new silver.
    pub columns: Vec<FieldRef>,
    /// Which rows of a key silver has.
    pub shape: Shape,
    /// Each sequence is a snapshot: a key without an event at it is deleted.
    pub snapshots: bool,
    /// How many of `columns` silver has: under SCD type 2 a sequence column only if it is chosen. The others come last.
    stored: usize,
    /// Where the columns stand in `columns` whose change opens a new version.
    pub tracked: Vec<usize>,
    /// The column of bronze that lists the columns which an event carries.
    pub columns_to_update: Option<String>,
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
        let has_history = matches!(settings.scd_type, ScdType::Two { .. });
        // A history has the sequence in its own columns, so that it is stored as it is only if it is chosen.
        let (stored, not_stored): (Vec<usize>, Vec<usize>) = sequence
            .iter()
            .partition(|place| !has_history || chosen(place));
        let mut order: Vec<usize> = keys.iter().copied().chain(values).chain(stored).collect();
        let stored = order.len();
        order.extend(not_stored);
        let columns: Vec<FieldRef> = order
            .iter()
            .map(|&place| bronze.fields()[place].clone())
            .collect();
        let ignore_null = columns
            .iter()
            .map(|field| ignores_null(&settings.ignore_null_updates, field))
            .collect();
        if let Some(field) = columns.iter().find(|field| is_own(field.name())) {
            let message = format!(
                "{:?} is silver's own column and can be no key or sequence",
                field.name()
            );
            return Err(Error::settings(message));
        }
        let in_order = |place: &usize| order.iter().position(|other| other == place);
        let keys: Vec<usize> = keys.iter().filter_map(in_order).collect();
        let sequence: Vec<usize> = sequence.iter().filter_map(in_order).collect();
        let tracked = match &settings.scd_type {
            ScdType::One => Vec::new(),
            ScdType::Two { tracked } => {
                let is_value = |place: &usize| !keys.contains(place) && !sequence.contains(place);
                let is_tracked = |place: &usize| tracked.takes(columns[*place].name());
                (0..stored).filter(is_value).filter(is_tracked).collect()
            }
        };
        Ok(Some(SilverPlan {
            keys,
            sequence,
            shape: shape(settings),
            snapshots: settings.snapshots,
            stored,
            tracked,
            columns_to_update: settings.columns_to_update.clone(),
            columns,
            ignore_null,
            unavailable_value,
            rules: settings.events.clone(),
        }))
    }

    /// The schema of a new silver.
    pub fn schema(&self) -> SchemaRef {
        let stored = self.columns[..self.stored].iter().cloned();
        let own = match self.shape {
            Shape::Flagged => vec![Field::new(DELETED, DataType::Boolean, true)],
            Shape::Bare => Vec::new(),
            Shape::History => [START_AT, END_AT]
                .map(|name| Field::new(name, self.span_type(), true))
                .to_vec(),
        };
        let own = own.into_iter().map(Arc::new);
        Arc::new(Schema::new(stored.chain(own).collect::<Vec<_>>()))
    }

    /// The type of `__START_AT` and `__END_AT`: that of the sequence, a struct for several columns.
    fn span_type(&self) -> DataType {
        match self.sequence.as_slice() {
            [place] => self.columns[*place].data_type().clone(),
            _ => DataType::Struct(self.span_fields()),
        }
    }

    fn span_fields(&self) -> Fields {
        let field = |&place: &usize| self.columns[place].clone();
        self.sequence.iter().map(field).collect()
    }

    /// The sequence columns of a pool as one array of the type of `__START_AT`.
    pub fn spans(&self, columns: &[ArrayRef]) -> Result<ArrayRef> {
        let pick = |&place: &usize| columns[place].clone();
        let mut parts: Vec<ArrayRef> = self.sequence.iter().map(pick).collect();
        match parts.len() {
            1 => Ok(parts.remove(0)),
            _ => Ok(Arc::new(StructArray::try_new(
                self.span_fields(),
                parts,
                None,
            )?)),
        }
    }

    /// A column of the type of `__START_AT` as sequence columns.
    pub fn sequence_of_span(&self, span: &ArrayRef) -> Vec<ArrayRef> {
        match span.as_struct_opt() {
            Some(parts) if self.sequence.len() > 1 => parts.columns().to_vec(),
            _ => vec![span.clone()],
        }
    }

    /// The columns that tell one row of silver from another.
    pub fn identity_columns(&self, rows: &RecordBatch) -> Vec<ArrayRef> {
        let mut columns = self.key_columns(rows);
        if self.shape == Shape::History {
            columns.push(column_or_null(rows, START_AT, &self.span_type()));
        }
        columns
    }

    /// The types of [`SilverPlan::identity_columns`].
    pub fn identity_types(&self) -> Vec<DataType> {
        let key_type = |&place: &usize| self.columns[place].data_type().clone();
        let mut types: Vec<DataType> = self.keys.iter().map(key_type).collect();
        if self.shape == Shape::History {
            types.push(self.span_type());
        }
        types
    }

    /// The schema of a silver that had `present`: new columns come last.
    pub fn evolved(&self, present: &SchemaRef) -> SchemaRef {
        let is_new = |field: &&FieldRef| present.field_with_name(field.name()).is_err();
        let new = self.columns[..self.stored].iter().filter(is_new).cloned();
        Arc::new(Schema::new(
            present
                .fields()
                .iter()
                .cloned()
                .chain(new)
                .collect::<Vec<_>>(),
        ))
    }

    /// Whether something can delete keys that it does not name.
    pub fn has_truncates(&self) -> bool {
        self.snapshots || self.rules.has_truncates()
    }

    /// How many of [`SilverPlan::columns`] silver has; they come first.
    pub fn stored(&self) -> usize {
        self.stored
    }

    /// Whether an upsert may leave a column as it is.
    pub fn is_partial(&self) -> bool {
        self.unavailable_value.is_some()
            || self.columns_to_update.is_some()
            || self.ignore_null.contains(&true)
    }

    /// The key columns of rows of bronze or silver.
    pub fn key_columns(&self, rows: &RecordBatch) -> Vec<ArrayRef> {
        self.columns_at(rows, &self.keys)
    }

    /// The names of the key columns that `schema` has.
    pub fn key_names(&self, schema: &Schema) -> Vec<String> {
        let names = self.keys.iter().map(|&place| self.columns[place].name());
        names
            .filter(|name| schema.index_of(name).is_ok())
            .cloned()
            .collect()
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

fn shape(settings: &SilverSettings) -> Shape {
    match (&settings.scd_type, settings.deletes) {
        (ScdType::Two { .. }, _) => Shape::History,
        (ScdType::One, Deletes::Soft) => Shape::Flagged,
        (ScdType::One, Deletes::Hard) => Shape::Bare,
    }
}

/// Whether silver may have a column of its own of this name; a source column of it stays in bronze.
fn is_own(name: &str) -> bool {
    [DELETED, START_AT, END_AT]
        .iter()
        .any(|own| name.eq_ignore_ascii_case(own))
}

fn is_chosen(settings: &SilverSettings, name: &str) -> bool {
    let lists_columns = settings.columns_to_update.as_ref();
    let lists = lists_columns.is_some_and(|list| list.eq_ignore_ascii_case(name));
    if is_own(name) || lists || [PRESENT_COLUMNS, SNAPSHOT_VERSION].contains(&name) {
        return false;
    }
    match &settings.columns {
        ColumnSelection::AllExcept(_) => !is_own_column(name) && settings.columns.takes(name),
        ColumnSelection::Only(_) => settings.columns.takes(name),
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
