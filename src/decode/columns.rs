//! Builds Arrow columns from cells that were checked before.
//!
//! A column takes a cell of its own type or NULL and nothing else; it remembers when it grew past what Arrow can
//! address, so that the whole file is refused then. Rows at the end can be taken back.

mod append;
mod flat;

pub(super) use flat::{Columns, fields_of};

use super::value::{Cell, map_types};
use crate::change::{FileFault, ParkReason};
use crate::schema::ddl_type;
use arrow::array::*;
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::*;
use arrow::error::ArrowError;
use std::sync::Arc;

/// Bytes of a short text.
const SHORT: usize = 16;

/// One column that grows by a cell a row.
#[derive(Debug)]
pub(super) struct Column {
    data_type: DataType,
    /// Rows.
    len: usize,
    /// Which rows up to the last NULL have a value.
    nulls: NullBufferBuilder,
    values: Values,
    /// The first row whose offset did not fit; the contents are of no use any more.
    too_large_at: Option<usize>,
}

#[derive(Debug)]
enum Values {
    Bool(BooleanBufferBuilder),
    Int(Vec<i64>),
    Float(Vec<f64>),
    Decimal(Vec<i128>),
    Bytes {
        offsets: Vec<i32>,
        data: Vec<u8>,
    },
    List {
        offsets: Vec<i32>,
        element: Box<Column>,
    },
    Struct(Vec<Column>),
    Map {
        offsets: Vec<i32>,
        key: Box<Column>,
        value: Box<Column>,
    },
}

impl Column {
    /// An empty column. Types that no table has become STRING columns, which take no cell but text.
    pub(super) fn new(data_type: &DataType) -> Self {
        let values = match data_type {
            DataType::Boolean => Values::Bool(BooleanBufferBuilder::new(0)),
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
                Values::Int(Vec::new())
            }
            DataType::Date32 | DataType::Timestamp(..) => Values::Int(Vec::new()),
            DataType::Time32(TimeUnit::Millisecond) | DataType::Time64(TimeUnit::Microsecond) => {
                Values::Int(Vec::new())
            }
            DataType::Float32 | DataType::Float64 => Values::Float(Vec::new()),
            DataType::Decimal128(..) => Values::Decimal(Vec::new()),
            DataType::List(element) => Values::List {
                offsets: vec![0],
                element: Box::new(Column::new(element.data_type())),
            },
            DataType::Struct(fields) => Values::Struct(
                fields
                    .iter()
                    .map(|field| Column::new(field.data_type()))
                    .collect(),
            ),
            DataType::Map(entries, _) => {
                let (key, value) = map_types(entries).unwrap_or((&DataType::Utf8, &DataType::Utf8));
                let (key, value) = (Box::new(Column::new(key)), Box::new(Column::new(value)));
                Values::Map {
                    offsets: vec![0],
                    key,
                    value,
                }
            }
            _ => Values::Bytes {
                offsets: vec![0],
                data: Vec::new(),
            },
        };
        Column {
            data_type: data_type.clone(),
            len: 0,
            nulls: NullBufferBuilder::new(0),
            values,
            too_large_at: None,
        }
    }

    /// Makes room for so many more rows, but not for their texts.
    fn reserve(&mut self, rows: usize) {
        match &mut self.values {
            Values::Int(values) => values.reserve(rows),
            Values::Float(values) => values.reserve(rows),
            Values::Decimal(values) => values.reserve(rows),
            Values::Bytes { offsets, .. } => offsets.reserve(rows),
            Values::Bool(_) | Values::List { .. } | Values::Struct(_) | Values::Map { .. } => {}
        }
    }

    /// Makes room for as many rows again as there are, `times` over, as long as those are.
    pub(super) fn reserve_alike(&mut self, times: usize) {
        self.reserve(self.len * times);
        if let Values::Bytes { data, .. } = &mut self.values {
            data.reserve(data.len() * times);
        }
    }

    /// Rows.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The type of its values.
    pub(super) fn data_type(&self) -> &DataType {
        &self.data_type
    }

    /// Appends one row.
    pub(super) fn push(&mut self, cell: Cell<'_>) {
        if cell == Cell::Null {
            return self.push_null();
        }
        self.len += 1;
        match (&mut self.values, cell) {
            (Values::Bool(values), Cell::Bool(value)) => values.append(value),
            (Values::Bool(values), _) => values.append(false),
            (Values::Int(values), Cell::Int(value)) => values.push(value),
            (Values::Int(values), _) => values.push(0),
            (Values::Float(values), Cell::Float(value)) => values.push(value),
            (Values::Float(values), _) => values.push(0.0),
            (Values::Decimal(values), Cell::Decimal(value)) => values.push(value),
            (Values::Decimal(values), _) => values.push(0),
            (Values::Bytes { data, .. }, cell) => {
                let added = match &cell {
                    Cell::Text(text) => text.as_bytes(),
                    Cell::Bytes(bytes) => bytes,
                    _ => &[],
                };
                let fits = data.len() + added.len() <= i32::MAX as usize;
                if fits {
                    data.extend_from_slice(added);
                }
                self.push_offset(fits);
            }
            (Values::List { element, .. }, cell) => {
                if let Cell::List(cells) = cell {
                    cells.into_iter().for_each(|cell| element.push(cell));
                }
                self.push_offset(true);
            }
            (Values::Struct(columns), Cell::Struct(cells)) => {
                columns
                    .iter_mut()
                    .zip(cells)
                    .for_each(|(column, cell)| column.push(cell));
            }
            (Values::Struct(columns), _) => columns.iter_mut().for_each(Column::push_null),
            (Values::Map { key, value, .. }, cell) => {
                if let Cell::Map(pairs) = cell {
                    for (key_cell, value_cell) in pairs {
                        key.push(key_cell);
                        value.push(value_cell);
                    }
                }
                self.push_offset(true);
            }
        }
    }

    /// Appends one row without a value.
    pub(super) fn push_null(&mut self) {
        self.nulls.append_n_non_nulls(self.len - self.nulls.len());
        self.nulls.append_null();
        self.len += 1;
        match &mut self.values {
            Values::Bool(values) => values.append(false),
            Values::Int(values) => values.push(0),
            Values::Float(values) => values.push(0.0),
            Values::Decimal(values) => values.push(0),
            Values::Bytes { .. } | Values::List { .. } | Values::Map { .. } => {
                self.push_offset(true);
            }
            Values::Struct(columns) => columns.iter_mut().for_each(Column::push_null),
        }
    }

    /// Appends rows without a value until there are so many.
    pub(super) fn pad(&mut self, rows: usize) {
        if let Values::Bytes { offsets, data } = &mut self.values
            && let Ok(end) = i32::try_from(data.len())
            && self.len < rows
        {
            self.nulls.append_n_non_nulls(self.len - self.nulls.len());
            self.nulls.append_n_nulls(rows - self.len);
            offsets.resize(rows + 1, end);
            self.len = rows;
        }
        for _ in self.len..rows {
            self.push_null();
        }
    }

    /// Appends a row of a column of whole numbers, dates or times; `None` for any other column.
    #[inline]
    pub(super) fn push_int(&mut self, value: i64) -> Option<()> {
        let Values::Int(values) = &mut self.values else {
            return None;
        };
        values.push(value);
        self.len += 1;
        Some(())
    }

    /// The same for floats.
    #[inline]
    pub(super) fn push_float(&mut self, value: f64) -> Option<()> {
        let Values::Float(values) = &mut self.values else {
            return None;
        };
        values.push(value);
        self.len += 1;
        Some(())
    }

    /// The same for decimals.
    #[inline]
    pub(super) fn push_decimal(&mut self, value: i128) -> Option<()> {
        let Values::Decimal(values) = &mut self.values else {
            return None;
        };
        values.push(value);
        self.len += 1;
        Some(())
    }

    /// The same for booleans.
    #[inline]
    pub(super) fn push_bool(&mut self, value: bool) -> Option<()> {
        let Values::Bool(values) = &mut self.values else {
            return None;
        };
        values.append(value);
        self.len += 1;
        Some(())
    }

    /// The same for texts; `None` also where the text is beyond what Arrow addresses.
    #[inline]
    pub(super) fn push_text(&mut self, text: &str) -> Option<()> {
        let Values::Bytes { offsets, data } = &mut self.values else {
            return None;
        };
        let offset = i32::try_from(data.len() + text.len()).ok()?;
        data.extend_from_slice(text.as_bytes());
        offsets.push(offset);
        self.len += 1;
        Some(())
    }

    /// The same for a text that is the first `length` bytes of `rest`.
    #[inline]
    pub(super) fn push_beginning(&mut self, rest: &[u8], length: usize) -> Option<()> {
        let Values::Bytes { offsets, data } = &mut self.values else {
            return None;
        };
        let end = data.len() + length;
        let offset = i32::try_from(end).ok()?;
        // Most texts are short, and so many bytes are moved faster than fewer that must be counted.
        match rest.first_chunk::<SHORT>() {
            Some(short) if length <= SHORT => {
                data.extend_from_slice(short);
                data.truncate(end);
            }
            _ => data.extend_from_slice(rest.get(..length)?),
        }
        offsets.push(offset);
        self.len += 1;
        Some(())
    }

    /// The same for STRUCTs of which only this is told here; their fields are columns of their own.
    #[inline]
    pub(super) fn push_struct(&mut self) -> Option<()> {
        let Values::Struct(inside) = &self.values else {
            return None;
        };
        self.len += 1;
        inside.is_empty().then_some(())
    }

    /// Takes back all rows but the first `rows`.
    pub(super) fn truncate(&mut self, rows: usize) {
        if self.len <= rows {
            return;
        }
        self.len = rows;
        self.nulls.truncate(rows);
        self.too_large_at = self.too_large_at.filter(|row| *row < rows);
        let cut = |offsets: &mut Vec<i32>| {
            offsets.truncate(rows + 1);
            let end = offsets.last().copied().unwrap_or(0);
            usize::try_from(end).expect("offsets begin at zero and rise")
        };
        match &mut self.values {
            Values::Bool(values) => values.truncate(rows),
            Values::Int(values) => values.truncate(rows),
            Values::Float(values) => values.truncate(rows),
            Values::Decimal(values) => values.truncate(rows),
            Values::Bytes { offsets, data } => data.truncate(cut(offsets)),
            Values::List { offsets, element } => element.truncate(cut(offsets)),
            Values::Struct(columns) => columns.iter_mut().for_each(|column| column.truncate(rows)),
            Values::Map {
                offsets,
                key,
                value,
            } => {
                let end = cut(offsets);
                key.truncate(end);
                value.truncate(end);
            }
        }
    }

    /// Ends the last row of a column with offsets; what it holds may not have fit.
    fn push_offset(&mut self, fits: bool) {
        let (offsets, length) = match &mut self.values {
            Values::Bytes { offsets, data } => (offsets, data.len()),
            Values::List { offsets, element } => (offsets, element.len),
            Values::Map { offsets, key, .. } => (offsets, key.len),
            Values::Bool(_)
            | Values::Int(_)
            | Values::Float(_)
            | Values::Decimal(_)
            | Values::Struct(_) => return,
        };
        let offset = i32::try_from(length).ok().filter(|_| fits);
        if offset.is_none() {
            self.too_large_at.get_or_insert(self.len - 1);
        }
        offsets.push(offset.unwrap_or_else(|| offsets.last().copied().unwrap_or(0)));
    }

    fn is_too_large(&self) -> bool {
        self.too_large_at.is_some()
            || match &self.values {
                Values::List { element, .. } => element.is_too_large(),
                Values::Struct(columns) => columns.iter().any(Column::is_too_large),
                Values::Map { key, value, .. } => key.is_too_large() || value.is_too_large(),
                _ => false,
            }
    }

    /// The Arrow column; a fault when it holds more than Arrow addresses.
    pub(super) fn finish(self, name: &str) -> Result<ArrayRef, FileFault> {
        if self.is_too_large() {
            let detail = format!("column {name} holds more than 2 GiB; split the file");
            return Err(FileFault::new(ParkReason::TooLarge, detail));
        }
        let shown = ddl_type(&self.data_type);
        self.build().map_err(|error| {
            FileFault::new(
                ParkReason::Unreadable,
                format!("BUG: column {name} ({shown}) cannot be built: {error}"),
            )
        })
    }

    fn build(mut self) -> Result<ArrayRef, ArrowError> {
        self.nulls.append_n_non_nulls(self.len - self.nulls.len());
        let nulls = self.nulls.finish();
        Ok(match self.values {
            Values::Bool(mut values) => Arc::new(BooleanArray::new(values.finish(), nulls)),
            Values::Int(values) => integers(&self.data_type, values, nulls),
            Values::Float(values) if self.data_type == DataType::Float32 => {
                primitive::<Float32Type>(values.iter().map(|value| *value as f32).collect(), nulls)
            }
            Values::Float(values) => primitive::<Float64Type>(values, nulls),
            Values::Decimal(values) => {
                Arc::new(Decimal128Array::new(values.into(), nulls).with_data_type(self.data_type))
            }
            Values::Bytes { offsets, data } => {
                let offsets = OffsetBuffer::new(offsets.into());
                let data = Buffer::from_vec(data);
                if self.data_type == DataType::Binary {
                    Arc::new(BinaryArray::try_new(offsets, data, nulls)?)
                } else {
                    Arc::new(StringArray::try_new(offsets, data, nulls)?)
                }
            }
            Values::List { offsets, element } => {
                let DataType::List(field) = self.data_type else {
                    return Err(wrong_type());
                };
                Arc::new(ListArray::try_new(
                    field,
                    OffsetBuffer::new(offsets.into()),
                    element.build()?,
                    nulls,
                )?)
            }
            Values::Struct(columns) => {
                let DataType::Struct(fields) = self.data_type else {
                    return Err(wrong_type());
                };
                let arrays: Result<Vec<_>, _> = columns.into_iter().map(Column::build).collect();
                Arc::new(StructArray::try_new_with_length(
                    fields, arrays?, nulls, self.len,
                )?)
            }
            Values::Map {
                offsets,
                key,
                value,
            } => {
                let DataType::Map(field, is_sorted) = self.data_type else {
                    return Err(wrong_type());
                };
                let DataType::Struct(pair) = field.data_type() else {
                    return Err(wrong_type());
                };
                let entries =
                    StructArray::try_new(pair.clone(), vec![key.build()?, value.build()?], None)?;
                let offsets = OffsetBuffer::new(offsets.into());
                Arc::new(MapArray::try_new(
                    field, offsets, entries, nulls, is_sorted,
                )?)
            }
        })
    }
}

fn wrong_type() -> ArrowError {
    ArrowError::SchemaError("the builder is of another type".into())
}

fn integers(data_type: &DataType, values: Vec<i64>, nulls: Option<NullBuffer>) -> ArrayRef {
    match data_type {
        DataType::Int8 => {
            primitive::<Int8Type>(values.iter().map(|value| *value as i8).collect(), nulls)
        }
        DataType::Int16 => {
            primitive::<Int16Type>(values.iter().map(|value| *value as i16).collect(), nulls)
        }
        DataType::Int32 => {
            primitive::<Int32Type>(values.iter().map(|value| *value as i32).collect(), nulls)
        }
        DataType::Date32 => {
            primitive::<Date32Type>(values.iter().map(|value| *value as i32).collect(), nulls)
        }
        DataType::Timestamp(unit, zone) => timestamps(*unit, zone.clone(), values.into(), nulls),
        DataType::Time32(_) => primitive::<Time32MillisecondType>(
            values.iter().map(|value| *value as i32).collect(),
            nulls,
        ),
        DataType::Time64(_) => primitive::<Time64MicrosecondType>(values, nulls),
        _ => primitive::<Int64Type>(values, nulls),
    }
}

fn timestamps(
    unit: TimeUnit,
    zone: Option<Arc<str>>,
    values: ScalarBuffer<i64>,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    match unit {
        TimeUnit::Second => {
            Arc::new(TimestampSecondArray::new(values, nulls).with_timezone_opt(zone))
        }
        TimeUnit::Millisecond => {
            Arc::new(TimestampMillisecondArray::new(values, nulls).with_timezone_opt(zone))
        }
        TimeUnit::Microsecond => {
            Arc::new(TimestampMicrosecondArray::new(values, nulls).with_timezone_opt(zone))
        }
        TimeUnit::Nanosecond => {
            Arc::new(TimestampNanosecondArray::new(values, nulls).with_timezone_opt(zone))
        }
    }
}

fn primitive<T: ArrowPrimitiveType>(values: Vec<T::Native>, nulls: Option<NullBuffer>) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(values), nulls))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::parse_ddl;

    #[test]
    fn every_type_builds_a_column_of_that_type_with_its_nulls() {
        let map = Cell::Map(vec![(Cell::Text("k".into()), Cell::Null)]);
        for (ddl, cell) in [
            ("BOOLEAN", Cell::Bool(true)),
            ("TINYINT", Cell::Int(-128)),
            ("SMALLINT", Cell::Int(-32768)),
            ("INT", Cell::Int(7)),
            ("BIGINT", Cell::Int(i64::MIN)),
            ("FLOAT", Cell::Float(0.5)),
            ("DOUBLE", Cell::Float(f64::NAN)),
            ("DECIMAL(38,2)", Cell::Decimal(-5)),
            ("STRING", Cell::Text("x".into())),
            ("BINARY", Cell::Bytes(vec![255].into())),
            ("DATE", Cell::Int(1)),
            ("TIMESTAMP", Cell::Int(1)),
            ("TIMESTAMP_NTZ", Cell::Int(1)),
            ("ARRAY<INT>", Cell::List(vec![Cell::Int(1), Cell::Null])),
            (
                "STRUCT<a: INT, b: ARRAY<STRING>>",
                Cell::Struct(vec![Cell::Int(1), Cell::List(vec![])]),
            ),
            ("MAP<STRING, INT>", map),
        ] {
            let data_type = parse_ddl(&format!("c {ddl}")).unwrap()[0]
                .data_type()
                .clone();
            let mut column = Column::new(&data_type);
            column.push(Cell::Null);
            column.push(cell.clone());
            column.push(cell);
            let array = column.finish("c").unwrap();
            assert_eq!(array.data_type(), &data_type);
            assert_eq!(
                (array.len(), array.null_count(), array.is_null(0)),
                (3, 1, true),
                "{ddl}"
            );
            assert_eq!(
                array.slice(1, 1).to_data(),
                array.slice(2, 1).to_data(),
                "{ddl}"
            );
            assert!(Column::new(&data_type).finish("c").unwrap().is_empty());
        }
    }
}
