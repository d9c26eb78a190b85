//! One value of an Arrow array: what it means for a column, and how it reads as JSON.

use super::rows::json_text;
use super::time;
use super::value::{Cell, FieldValue, Misfit, ValueReader, check_map_keys, map_types};
use crate::schema::delta_type;
use arrow::array::*;
use arrow::datatypes::*;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use base64::Engine;
use chrono::{DateTime, SecondsFormat};
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
            _ if *data_type == DataType::Utf8 => Ok(Cell::Text(Cow::Owned(self.display()))),
            source => Err(kind_misfit(source)),
        }
    }

    fn inferred(&self, _reader: &ValueReader) -> DataType {
        delta_type(self.array.data_type())
    }

    fn as_json(&self) -> String {
        value_json(self.array, self.row)
    }

    fn shown(&self) -> String {
        if self.array.data_type().is_nested() {
            self.as_json()
        } else {
            self.display()
        }
    }
}

impl<'a> ArrowValue<'a> {
    fn at(array: &'a dyn Array, row: usize) -> Self {
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
            (source @ DataType::Decimal128(..), target) if source == target => Ok(Cell::Decimal(
                get::<Decimal128Array>(self.array)?.value(self.row),
            )),
            (_, target) if target.is_numeric() || *target == DataType::Utf8 => {
                reader.text(&Cow::Owned(self.display()), target)
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
            DataType::Utf8 => Ok(Cell::Text(Cow::Owned(self.display()))),
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
            DataType::Utf8 => Ok(Cell::Text(Cow::Owned(self.display()))),
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
            DataType::Utf8 => return Ok(Cell::Text(Cow::Owned(self.display()))),
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

    /// The value as text, without quotes.
    fn display(&self) -> String {
        match self.array.data_type() {
            DataType::Timestamp(..) => timestamp_text(self.array, self.row),
            DataType::Binary | DataType::FixedSizeBinary(_) => {
                let json = self.as_json();
                json.trim_matches('"').to_string()
            }
            DataType::Float64 => match get::<Float64Array>(self.array) {
                Ok(array) => float_text(array.value(self.row)),
                Err(misfit) => misfit.why.into_owned(),
            },
            DataType::Float32 => match get::<Float32Array>(self.array) {
                Ok(array) => float_text(array.value(self.row)),
                Err(misfit) => misfit.why.into_owned(),
            },
            _ => formatted(self.array, self.row),
        }
    }
}

fn float_text(value: impl std::fmt::Debug) -> String {
    match format!("{value:?}").as_str() {
        "inf" => "Infinity".into(),
        "-inf" => "-Infinity".into(),
        text => text.into(),
    }
}

fn formatted(array: &dyn Array, row: usize) -> String {
    let options = FormatOptions::default();
    let shown = ArrayFormatter::try_new(array, &options)
        .and_then(|formatter| formatter.value(row).try_to_string());
    shown.unwrap_or_else(|error| error.to_string())
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
fn get<T: Array + 'static>(array: &dyn Array) -> Result<&T, Misfit> {
    array
        .as_any()
        .downcast_ref::<T>()
        .ok_or_else(|| kind_misfit(array.data_type()))
}

fn range_of(offsets: &[i32], row: usize) -> Range<usize> {
    let at = |index: usize| {
        offsets
            .get(index)
            .and_then(|offset| usize::try_from(*offset).ok())
            .unwrap_or(0)
    };
    at(row)..at(row + 1)
}

fn timestamp_value(array: &dyn Array, row: usize) -> Result<i64, Misfit> {
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

/// ISO 8601, with `Z` for instants.
fn timestamp_text(array: &dyn Array, row: usize) -> String {
    let (per_second, is_instant) = match array.data_type() {
        DataType::Timestamp(TimeUnit::Second, zone) => (1, zone.is_some()),
        DataType::Timestamp(TimeUnit::Millisecond, zone) => (1000, zone.is_some()),
        DataType::Timestamp(TimeUnit::Microsecond, zone) => (1_000_000, zone.is_some()),
        DataType::Timestamp(TimeUnit::Nanosecond, zone) => (1_000_000_000, zone.is_some()),
        _ => (1, false),
    };
    let value = timestamp_value(array, row).unwrap_or_default();
    let nanos = u32::try_from(value.rem_euclid(per_second) * (1_000_000_000 / per_second))
        .unwrap_or_default();
    match DateTime::from_timestamp(value.div_euclid(per_second), nanos) {
        None => value.to_string(),
        Some(instant) if is_instant => instant.to_rfc3339_opts(SecondsFormat::AutoSi, true),
        Some(wall) => wall
            .to_rfc3339_opts(SecondsFormat::AutoSi, true)
            .trim_end_matches('Z')
            .to_string(),
    }
}

/// A row as a JSON object; NULLs stand as `null`.
pub(super) fn row_json(batch: &RecordBatch, row: usize) -> String {
    let schema = batch.schema_ref();
    let members = schema.fields().iter().zip(batch.columns());
    let members = members
        .map(|(field, array)| format!("{}:{}", json_text(field.name()), value_json(array, row)));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

fn value_json(array: &dyn Array, row: usize) -> String {
    let value = ArrowValue::at(array, row);
    if value.is_null() {
        return "null".into();
    }
    let shown = match array.data_type() {
        DataType::Utf8 => get::<StringArray>(array).map(|array| json_text(array.value(row))),
        DataType::Binary => get::<BinaryArray>(array).map(|array| base64_json(array.value(row))),
        DataType::FixedSizeBinary(_) => {
            get::<FixedSizeBinaryArray>(array).map(|array| base64_json(array.value(row)))
        }
        DataType::List(_) => get::<ListArray>(array).map(|list| {
            let range = range_of(list.value_offsets(), row);
            let elements: Vec<_> = range.map(|row| value_json(list.values(), row)).collect();
            format!("[{}]", elements.join(","))
        }),
        DataType::Struct(_) => get::<StructArray>(array).map(|array| {
            let members = array.fields().iter().zip(array.columns());
            let members = members.map(|(field, array)| {
                format!("{}:{}", json_text(field.name()), value_json(array, row))
            });
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }),
        DataType::Map(..) => get::<MapArray>(array).map(|map| {
            let members = range_of(map.value_offsets(), row).map(|row| {
                let key = ArrowValue::at(map.keys().as_ref(), row).shown();
                format!("{}:{}", json_text(&key), value_json(map.values(), row))
            });
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }),
        DataType::Boolean => Ok(formatted(array, row)),
        data_type if data_type.is_numeric() => {
            let text = value.display();
            let is_word = text.ends_with(|c: char| c.is_ascii_alphabetic());
            Ok(if is_word { json_text(&text) } else { text })
        }
        _ => Ok(json_text(&value.display())),
    };
    shown.unwrap_or_else(|misfit| json_text(&misfit.why))
}

fn base64_json(bytes: &[u8]) -> String {
    json_text(&base64::engine::general_purpose::STANDARD.encode(bytes))
}
