//! One value of an Arrow array: what it means for a column.

use super::arrow_text::{shown, value_json, value_text};
use super::time;
use super::value::{Cell, FieldValue, Misfit, ValueReader, check_map_keys, map_types};
use crate::schema::delta_type;
use arrow::array::*;
use arrow::datatypes::*;
use std::borrow::Cow;
use std::ops::Range;

/// Doubles up to here hold every whole number.
const WHOLE_DOUBLE_MAX: f64 = 9_007_199_254_740_992.0;

/// A value in its array.
#[derive(Clone, Copy)]
pub(super) struct ArrowValue<'a> {
    pub(super) array: &'a dyn Array,
    pub(super) row: usize,
    /// Reading it cut off digits below the microsecond.
    pub(super) is_too_fine: bool,
}

impl<'a> FieldValue<'a> for ArrowValue<'a> {
    const IS_TYPED: bool = true;

    fn is_null(&self) -> bool {
        self.array.is_null(self.row) || *self.array.data_type() == DataType::Null
    }

    fn cell(&self, data_type: &DataType, reader: &mut ValueReader) -> Result<Cell<'a>, Misfit> {
        if self.is_too_fine {
            return Err(too_fine());
        }
        if *data_type == DataType::Utf8 && self.array.data_type().is_nested() {
            return Ok(Cell::Text(Cow::Owned(self.as_json())));
        }
        match self.array.data_type() {
            DataType::Boolean => self.boolean(data_type),
            DataType::Utf8 => reader.text(
                &Cow::Borrowed(get::<StringArray>(self.array)?.value(self.row)),
                data_type,
            ),
            DataType::Binary => {
                bytes_cell(get::<BinaryArray>(self.array)?.value(self.row), data_type)
            }
            DataType::FixedSizeBinary(_) => bytes_cell(
                get::<FixedSizeBinaryArray>(self.array)?.value(self.row),
                data_type,
            ),
            DataType::Date32 => self.date(data_type),
            DataType::Timestamp(unit, zone) => self.timestamp(*unit, zone.is_some(), data_type),
            DataType::Float16 | DataType::Float32 | DataType::Float64 => {
                self.float(data_type, reader)
            }
            DataType::List(_) => {
                let list = get::<ListArray>(self.array)?;
                let range = range_of(list.value_offsets(), self.row);
                self.list(list.values(), range, data_type, reader)
            }
            DataType::Struct(_) => self.structure(data_type, reader),
            DataType::Map(..) => self.map(data_type, reader),
            source if source.is_numeric() => self.number(data_type, reader),
            _ if *data_type == DataType::Utf8 => {
                Ok(Cell::Text(Cow::Owned(value_text(self.array, self.row)?)))
            }
            source => Err(kind_misfit(source)),
        }
    }

    fn written_text(&self) -> Option<Cow<'a, str>> {
        let texts = self.array.as_any().downcast_ref::<StringArray>()?;
        Some(Cow::Borrowed(texts.value(self.row)))
    }

    fn inferred(&self, _reader: &ValueReader) -> DataType {
        delta_type(self.array.data_type())
    }

    fn as_json(&self) -> String {
        value_json(self.array, self.row)
    }

    fn shown(&self) -> String {
        shown(self.array, self.row)
    }
}

impl<'a> ArrowValue<'a> {
    /// A value of which no digits were cut off.
    pub(super) fn at(array: &'a dyn Array, row: usize) -> Self {
        ArrowValue {
            array,
            row,
            is_too_fine: false,
        }
    }

    fn nested(
        array: &'a dyn Array,
        row: usize,
        data_type: &DataType,
        reader: &mut ValueReader,
    ) -> Result<Cell<'a>, Misfit> {
        let value = ArrowValue::at(array, row);
        if value.is_null() {
            Ok(Cell::Null)
        } else {
            value.cell(data_type, reader)
        }
    }

    fn boolean(&self, data_type: &DataType) -> Result<Cell<'a>, Misfit> {
        let value = get::<BooleanArray>(self.array)?.value(self.row);
        match data_type {
            DataType::Boolean => Ok(Cell::Bool(value)),
            DataType::Utf8 => Ok(Cell::Text(Cow::Borrowed(if value {
                "true"
            } else {
                "false"
            }))),
            _ => Err(kind_misfit(&DataType::Boolean)),
        }
    }

    /// Whole numbers and decimals go through their text, which is exact.
    fn number(&self, data_type: &DataType, reader: &mut ValueReader) -> Result<Cell<'a>, Misfit> {
        match (self.array.data_type(), data_type) {
            (DataType::Int64, DataType::Int64) => {
                Ok(Cell::Int(get::<Int64Array>(self.array)?.value(self.row)))
            }
            (DataType::Int32, DataType::Int32 | DataType::Int64) => Ok(Cell::Int(i64::from(
                get::<Int32Array>(self.array)?.value(self.row),
            ))),
            (source @ DataType::Decimal128(precision, _), target) if source == target => {
                let value = get::<Decimal128Array>(self.array)?.value(self.row);
                // A file may hold more digits than it says.
                match Decimal128Type::is_valid_decimal_precision(value, *precision) {
                    true => Ok(Cell::Decimal(value)),
                    false => Err(Misfit::overflow()),
                }
            }
            (_, target) if target.is_numeric() || *target == DataType::Utf8 => {
                reader.text(&Cow::Owned(value_text(self.array, self.row)?), target)
            }
            (source, _) => Err(kind_misfit(source)),
        }
    }

    fn float(&self, data_type: &DataType, reader: &mut ValueReader) -> Result<Cell<'a>, Misfit> {
        let (value, is_double) = match self.array.data_type() {
            DataType::Float16 => (
                get::<Float16Array>(self.array)?.value(self.row).to_f64(),
                false,
            ),
            DataType::Float32 => (
                f64::from(get::<Float32Array>(self.array)?.value(self.row)),
                false,
            ),
            _ => (get::<Float64Array>(self.array)?.value(self.row), true),
        };
        let fits_float = !is_double || value.is_nan() || f64::from(value as f32) == value;
        match data_type {
            DataType::Float64 => Ok(Cell::Float(value)),
            DataType::Float32 if fits_float => Ok(Cell::Float(value)),
            DataType::Float32 if (value as f32).is_infinite() => Err(Misfit::overflow()),
            DataType::Float32 => Err(Misfit::mismatch("has more digits than the type keeps")),
            DataType::Utf8 => Ok(Cell::Text(Cow::Owned(value_text(self.array, self.row)?))),
            target
                if target.is_numeric()
                    && value.fract() == 0.0
                    && value.abs() <= WHOLE_DOUBLE_MAX =>
            {
                reader.text(&Cow::Owned(format!("{value:.0}")), target)
            }
            target if target.is_numeric() => {
                Err(Misfit::mismatch("is a float and not a whole number"))
            }
            _ => Err(kind_misfit(self.array.data_type())),
        }
    }

    fn date(&self, data_type: &DataType) -> Result<Cell<'a>, Misfit> {
        let days = i64::from(get::<Date32Array>(self.array)?.value(self.row));
        match data_type {
            DataType::Date32 if time::in_range(days.saturating_mul(86_400_000_000)).is_ok() => {
                Ok(Cell::Int(days))
            }
            DataType::Date32 => Err(Misfit::overflow()),
            DataType::Utf8 => Ok(Cell::Text(Cow::Owned(value_text(self.array, self.row)?))),
            _ => Err(kind_misfit(&DataType::Date32)),
        }
    }

    fn timestamp(
        &self,
        unit: TimeUnit,
        is_instant: bool,
        data_type: &DataType,
    ) -> Result<Cell<'a>, Misfit> {
        match data_type {
            DataType::Utf8 => return Ok(Cell::Text(Cow::Owned(value_text(self.array, self.row)?))),
            DataType::Timestamp(_, zone) if zone.is_some() == is_instant => {}
            DataType::Timestamp(_, Some(_)) => return Err(Misfit::no_offset()),
            DataType::Timestamp(_, None) => {
                return Err(Misfit::mismatch("is an instant and not a time on the wall"));
            }
            _ => return Err(kind_misfit(self.array.data_type())),
        }
        let value = timestamp_value(self.array, self.row)?;
        let micros = match unit {
            TimeUnit::Second => value.checked_mul(1_000_000),
            TimeUnit::Millisecond => value.checked_mul(1000),
            TimeUnit::Microsecond => Some(value),
            TimeUnit::Nanosecond if value % 1000 != 0 => return Err(too_fine()),
            TimeUnit::Nanosecond => Some(value / 1000),
        };
        let micros = micros.and_then(|micros| time::in_range(micros).ok());
        micros.map(Cell::Int).ok_or_else(Misfit::overflow)
    }

    fn list(
        &self,
        values: &'a dyn Array,
        range: Range<usize>,
        data_type: &DataType,
        reader: &mut ValueReader,
    ) -> Result<Cell<'a>, Misfit> {
        let DataType::List(element) = data_type else {
            return Err(kind_misfit(self.array.data_type()));
        };
        let cells: Result<Vec<_>, _> = range
            .map(|row| ArrowValue::nested(values, row, element.data_type(), reader))
            .collect();
        cells.map(Cell::List)
    }

    fn structure(
        &self,
        data_type: &DataType,
        reader: &mut ValueReader,
    ) -> Result<Cell<'a>, Misfit> {
        let DataType::Struct(fields) = data_type else {
            return Err(kind_misfit(self.array.data_type()));
        };
        let source = get::<StructArray>(self.array)?;
        let mut cells = vec![Cell::Null; fields.len()];
        for (field, array) in source.fields().iter().zip(source.columns()) {
            match fields
                .iter()
                .position(|target| target.name() == field.name())
            {
                Some(index) => {
                    cells[index] = ArrowValue::nested(
                        array.as_ref(),
                        self.row,
                        fields[index].data_type(),
                        reader,
                    )?;
                }
                None => reader.has_unknown_field |= array.is_valid(self.row),
            }
        }
        Ok(Cell::Struct(cells))
    }

    fn map(&self, data_type: &DataType, reader: &mut ValueReader) -> Result<Cell<'a>, Misfit> {
        let source = get::<MapArray>(self.array)?;
        let types = match data_type {
            DataType::Map(entries, _) => map_types(entries),
            _ => None,
        };
        let Some((key_type, value_type)) = types else {
            return Err(kind_misfit(self.array.data_type()));
        };
        let mut pairs = Vec::new();
        for row in range_of(source.value_offsets(), self.row) {
            let key = ArrowValue::nested(source.keys().as_ref(), row, key_type, reader)?;
            if key == Cell::Null {
                return Err(Misfit::mismatch("holds a key that is NULL"));
            }
            pairs.push((
                key,
                ArrowValue::nested(source.values().as_ref(), row, value_type, reader)?,
            ));
        }
        check_map_keys(&pairs)?;
        Ok(Cell::Map(pairs))
    }
}

fn bytes_cell<'a>(bytes: &'a [u8], data_type: &DataType) -> Result<Cell<'a>, Misfit> {
    match data_type {
        DataType::Binary => Ok(Cell::Bytes(Cow::Borrowed(bytes))),
        // Old writers leave out the mark that bytes are text.
        DataType::Utf8 => match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Cell::Text(Cow::Borrowed(text))),
            Err(_) => Err(Misfit::mismatch("is not UTF-8")),
        },
        _ => Err(kind_misfit(&DataType::Binary)),
    }
}

fn too_fine() -> Misfit {
    Misfit::mismatch("has more than 6 digits behind the second")
}

fn kind_misfit(source: &DataType) -> Misfit {
    Misfit::mismatch(format!("is of the file's type {source}"))
}

/// The array as what its type says it is.
pub(super) fn get<T: Array + 'static>(array: &dyn Array) -> Result<&T, Misfit> {
    array
        .as_any()
        .downcast_ref::<T>()
        .ok_or_else(|| kind_misfit(array.data_type()))
}

pub(super) fn range_of(offsets: &[i32], row: usize) -> Range<usize> {
    let at = |index: usize| {
        offsets
            .get(index)
            .and_then(|offset| usize::try_from(*offset).ok())
            .unwrap_or(0)
    };
    at(row)..at(row + 1)
}

pub(super) fn timestamp_value(array: &dyn Array, row: usize) -> Result<i64, Misfit> {
    Ok(match array.data_type() {
        DataType::Timestamp(TimeUnit::Second, _) => get::<TimestampSecondArray>(array)?.value(row),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            get::<TimestampMillisecondArray>(array)?.value(row)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            get::<TimestampMicrosecondArray>(array)?.value(row)
        }
        _ => get::<TimestampNanosecondArray>(array)?.value(row),
    })
}
