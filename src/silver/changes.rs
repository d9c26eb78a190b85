//! What an apply does to the rows of silver, before anything is written: new rows, old rows, and which replaces which.

use crate::change::{DELETED, END_AT, START_AT};
use crate::error::{Error, Result};
use crate::silver::fold::{FoldedRow, sources};
use crate::silver::locate::Located;
use crate::silver::plan::SilverPlan;
use crate::silver::pool::gather;
use arrow::array::{ArrayRef, BooleanArray, RecordBatch, UInt32Array, new_null_array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::row::{RowConverter, Rows, SortField};
use roaring::RoaringTreemap;
use std::collections::{BTreeMap, HashMap};

/// Where a row of silver stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowPlace {
    /// The data file.
    pub file: String,
    /// The physical row number in it.
    pub row: u64,
}

/// New and old rows of silver, all in one schema.
#[derive(Clone, Debug)]
pub struct RowChanges {
    /// Rows of keys that silver lacked.
    pub inserted: RecordBatch,
    /// New rows of keys that silver has; row i replaces row i of `replaced`.
    pub updated: RecordBatch,
    /// The rows before.
    pub replaced: RecordBatch,
    /// Where the rows before stand.
    pub replaced_at: Vec<RowPlace>,
    /// Rows of keys that have no event any more.
    pub removed: RecordBatch,
    /// Where they stand.
    pub removed_at: Vec<RowPlace>,
}

impl RowChanges {
    /// Changes nothing.
    pub fn none(schema: &SchemaRef) -> Self {
        let empty = || RecordBatch::new_empty(schema.clone());
        RowChanges {
            inserted: empty(),
            updated: empty(),
            replaced: empty(),
            replaced_at: Vec::new(),
            removed: empty(),
            removed_at: Vec::new(),
        }
    }

    /// Whether silver stays as it is.
    pub fn is_empty(&self) -> bool {
        self.inserted.num_rows() + self.updated.num_rows() + self.removed.num_rows() == 0
    }

    /// Both, one after the other; their keys are not the same.
    pub fn and(mut self, other: RowChanges) -> Result<RowChanges> {
        let join =
            |left: &RecordBatch, right: &RecordBatch| concat_batches(&left.schema(), [left, right]);
        self.inserted = join(&self.inserted, &other.inserted)?;
        self.updated = join(&self.updated, &other.updated)?;
        self.replaced = join(&self.replaced, &other.replaced)?;
        self.removed = join(&self.removed, &other.removed)?;
        self.replaced_at.extend(other.replaced_at);
        self.removed_at.extend(other.removed_at);
        Ok(self)
    }

    /// The physical rows that leave, by file.
    pub fn leaving(&self) -> BTreeMap<String, RoaringTreemap> {
        let mut leaving: BTreeMap<String, RoaringTreemap> = BTreeMap::new();
        for place in self.replaced_at.iter().chain(&self.removed_at) {
            leaving
                .entry(place.file.clone())
                .or_default()
                .insert(place.row);
        }
        leaving
    }
}

/// Rows of silver that are there.
pub struct OldRows {
    /// In the schema of the changes.
    pub rows: RecordBatch,
    /// Where each stands.
    pub places: Vec<RowPlace>,
    /// Which row has which identity: the key, and under SCD type 2 the start of the version.
    pub by_identity: HashMap<Box<[u8]>, u32>,
}

impl OldRows {
    /// There are none.
    pub fn none(schema: &SchemaRef) -> Self {
        OldRows {
            rows: RecordBatch::new_empty(schema.clone()),
            places: Vec::new(),
            by_identity: HashMap::new(),
        }
    }

    /// Rows and their places, in the same order; `identities` likewise.
    pub fn new(rows: RecordBatch, places: Vec<RowPlace>, identities: &Rows) -> Self {
        let by_identity = (0_u32..).zip(identities.iter());
        OldRows {
            by_identity: by_identity
                .map(|(row, identity)| (identity.data().into(), row))
                .collect(),
            rows,
            places,
        }
    }
}

/// What turns `old` into `wanted`; `identities` are those of the wanted rows. Rows that are equal do not appear.
pub fn difference(wanted: &RecordBatch, identities: &Rows, old: &OldRows) -> Result<RowChanges> {
    let (mut inserted, mut updated, mut replaced) = (Vec::new(), Vec::new(), Vec::new());
    let mut seen = vec![false; old.places.len()];
    let equal = row_equality(wanted, &old.rows)?;
    for (row, identity) in (0_u32..).zip(identities.iter()) {
        match old.by_identity.get(identity.data()) {
            None => inserted.push(row),
            Some(&before) => {
                seen[before as usize] = true;
                if !equal(row as usize, before as usize) {
                    updated.push(row);
                    replaced.push(before);
                }
            }
        }
    }
    let removed: Vec<u32> = (0_u32..)
        .zip(&seen)
        .filter(|(_, seen)| !**seen)
        .map(|(row, _)| row)
        .collect();
    let places = |rows: &[u32]| {
        rows.iter()
            .map(|&row| old.places[row as usize].clone())
            .collect()
    };
    Ok(RowChanges {
        replaced_at: places(&replaced),
        removed_at: places(&removed),
        inserted: pick(wanted, inserted)?,
        updated: pick(wanted, updated)?,
        replaced: pick(&old.rows, replaced)?,
        removed: pick(&old.rows, removed)?,
    })
}

/// Tells whether row i of `left` equals row j of `right` in all columns; NULL equals NULL.
pub fn row_equality<'a>(
    left: &RecordBatch,
    right: &RecordBatch,
) -> Result<Box<dyn Fn(usize, usize) -> bool + 'a>> {
    let fields: Vec<SortField> = left
        .schema()
        .fields()
        .iter()
        .map(|field| SortField::new(field.data_type().clone()))
        .collect();
    if !RowConverter::supports_fields(&fields) {
        // A map column has no order to compare by: taking rows as different is right, only slower.
        return Ok(Box::new(|_, _| false));
    }
    let converter = RowConverter::new(fields)?;
    let (left, right) = (
        converter.convert_columns(left.columns())?,
        converter.convert_columns(right.columns())?,
    );
    Ok(Box::new(move |i, j| left.row(i) == right.row(j)))
}

/// Rows by place.
pub fn pick(rows: &RecordBatch, places: Vec<u32>) -> Result<RecordBatch> {
    Ok(take_record_batch(rows, &UInt32Array::from(places))?)
}

/// Folded rows as rows of `schema`: `pool` has one array for each column of the plan, `spans` the sequence of each row of the
/// pool where silver has versions.
pub fn materialize(
    folded: &[FoldedRow],
    pool: &[ArrayRef],
    spans: Option<&ArrayRef>,
    plan: &SilverPlan,
    schema: &SchemaRef,
) -> Result<RecordBatch> {
    let deleted = || BooleanArray::from_iter(folded.iter().map(|row| Some(row.deleted)));
    let starts = || folded.iter().map(|row| Some(row.start)).collect();
    let ends = || folded.iter().map(|row| row.end).collect();
    let column = |field: &arrow::datatypes::FieldRef| -> Result<ArrayRef> {
        match (field.name().as_str(), spans) {
            (START_AT, Some(spans)) => return gather(spans, &starts()),
            (END_AT, Some(spans)) => return gather(spans, &ends()),
            (DELETED, None) => return Ok(std::sync::Arc::new(deleted())),
            _ => {}
        }
        let is_it = |column: &arrow::datatypes::FieldRef| column.name() == field.name();
        match plan.columns.iter().position(is_it) {
            Some(place) => gather(&pool[place], &sources(folded, place)),
            None => Ok(new_null_array(field.data_type(), folded.len())),
        }
    };
    let columns = schema
        .fields()
        .iter()
        .map(column)
        .collect::<Result<Vec<_>>>()?;
    let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(folded.len()));
    Ok(RecordBatch::try_new_with_options(
        schema.clone(),
        columns,
        &options,
    )?)
}

/// The same rows in a wider schema; new columns are NULL.
pub fn widened(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let column = |field: &arrow::datatypes::FieldRef| {
        super::pool::column_or_null(rows, field.name(), field.data_type())
    };
    let columns: Vec<ArrayRef> = schema.fields().iter().map(column).collect();
    let types_differ = |(column, field): (&ArrayRef, &arrow::datatypes::FieldRef)| {
        column.data_type() != field.data_type()
    };
    if let Some((column, field)) = columns
        .iter()
        .zip(schema.fields())
        .find(|pair| types_differ(*pair))
    {
        let (is, must) = (column.data_type(), field.data_type());
        return Err(Error::bug(format!(
            "column {} of silver is {is} where {must} is meant",
            field.name()
        )));
    }
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}

/// Where hits stand.
pub fn places(located: &Located, hits: &[super::locate::Hit]) -> Vec<RowPlace> {
    let place = |hit: &super::locate::Hit| RowPlace {
        file: located.files[hit.file as usize].clone(),
        row: hit.row,
    };
    hits.iter().map(place).collect()
}

/// Rows with the word that the change feed has for them.
pub fn change_rows(rows: &RecordBatch, change_type: &str) -> Result<RecordBatch> {
    let word = arrow::array::StringArray::from_iter_values(std::iter::repeat_n(
        change_type,
        rows.num_rows(),
    ));
    let field = arrow::datatypes::Field::new("_change_type", DataType::Utf8, true);
    let fields: Vec<_> = rows
        .schema()
        .fields()
        .iter()
        .cloned()
        .chain([std::sync::Arc::new(field)])
        .collect();
    let columns: Vec<ArrayRef> = rows
        .columns()
        .iter()
        .cloned()
        .chain([std::sync::Arc::new(word) as ArrayRef])
        .collect();
    Ok(RecordBatch::try_new(
        std::sync::Arc::new(arrow::datatypes::Schema::new(fields)),
        columns,
    )?)
}
