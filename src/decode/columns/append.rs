//! Arrow arrays of which every value fits a column as it is.

use super::{Column, Columns, Values};
use crate::decode::time;
use arrow::array::*;
use arrow::buffer::NullBuffer;
use arrow::datatypes::*;

impl Columns {
    /// Appends all values of an array to the column at a place; NULL where `outer` has one, too.
    ///
    /// `None` where not every value is surely taken as it is; then some of them may be there.
    pub(in crate::decode) fn append(
        &mut self,
        place: usize,
        array: &dyn Array,
        outer: Option<&NullBuffer>,
    ) -> Option<()> {
        let nulls = NullBuffer::union(outer, array.nulls());
        let Some(source) = array.as_any().downcast_ref::<StructArray>() else {
            return self.flat[place].append(array, nulls.as_ref());
        };
        if !self.is_struct(place) {
            return None;
        }
        let before = self.flat[place].len;
        for (field, inner) in source.fields().iter().zip(source.columns()) {
            let inside = self.field_of(place, field.name())?;
            if self.flat[inside].len != before {
                return None;
            }
            self.append(inside, inner.as_ref(), nulls.as_ref())?;
        }
        let column = &mut self.flat[place];
        column.append_nulls(array.len(), nulls.as_ref());
        Some(())
    }
}

impl Column {
    fn append(&mut self, array: &dyn Array, nulls: Option<&NullBuffer>) -> Option<()> {
        match (&mut self.values, array.data_type(), &self.data_type) {
            (Values::Bool(values), DataType::Boolean, _) => {
                values.append_buffer(get::<BooleanArray>(array)?.values());
            }
            (Values::Int(values), source, target) => {
                append_whole(values, array, nulls, source, target)?;
            }
            (Values::Float(values), DataType::Float64, DataType::Float64) => {
                values.extend_from_slice(get::<Float64Array>(array)?.values());
            }
            (Values::Float(values), DataType::Float32, _) => {
                let source = get::<Float32Array>(array)?.values();
                values.extend(source.iter().map(|value| f64::from(*value)));
            }
            (Values::Decimal(values), DataType::Decimal128(precision, _), target)
                if array.data_type() == target =>
            {
                let source = get::<Decimal128Array>(array)?.values();
                // A file may hold more digits than it says.
                let fits = |value| Decimal128Type::is_valid_decimal_precision(value, *precision);
                all_fit(source, nulls, fits)?;
                values.extend_from_slice(source);
            }
            (Values::Bytes { offsets, data }, DataType::Utf8, DataType::Utf8) => {
                let source = get::<StringArray>(array)?;
                append_bytes(offsets, data, source.value_offsets(), source.value_data())?;
            }
            (Values::Bytes { offsets, data }, DataType::Binary, DataType::Binary) => {
                let source = get::<BinaryArray>(array)?;
                append_bytes(offsets, data, source.value_offsets(), source.value_data())?;
            }
            _ => return None,
        }
        self.append_nulls(array.len(), nulls);
        Some(())
    }

    /// Ends so many rows, of which the values are there.
    fn append_nulls(&mut self, rows: usize, nulls: Option<&NullBuffer>) {
        if let Some(nulls) = nulls.filter(|nulls| nulls.null_count() > 0) {
            self.nulls.append_n_non_nulls(self.len - self.nulls.len());
            self.nulls.append_buffer(nulls);
        }
        self.len += rows;
    }
}

/// Appends whole numbers, dates or times that are in range.
fn append_whole(
    values: &mut Vec<i64>,
    array: &dyn Array,
    nulls: Option<&NullBuffer>,
    source: &DataType,
    target: &DataType,
) -> Option<()> {
    use DataType::{Date32, Int8, Int16, Int32, Int64, Timestamp};
    match (source, target) {
        (Int64, Int64) => values.extend_from_slice(get::<Int64Array>(array)?.values()),
        (Int32, Int32 | Int64) => extend(values, get::<Int32Array>(array)?.values()),
        (Int16, Int16 | Int32 | Int64) => extend(values, get::<Int16Array>(array)?.values()),
        (Int8, Int8 | Int16 | Int32 | Int64) => extend(values, get::<Int8Array>(array)?.values()),
        (Date32, Date32) => {
            let days = get::<Date32Array>(array)?.values();
            let micros = |day: i32| i64::from(day).saturating_mul(86_400_000_000);
            all_fit(days, nulls, |day| time::in_range(micros(day)).is_ok())?;
            extend(values, days);
        }
        (Timestamp(TimeUnit::Microsecond, source), Timestamp(_, target))
            if source.is_some() == target.is_some() =>
        {
            let micros = get::<TimestampMicrosecondArray>(array)?.values();
            all_fit(micros, nulls, |micros| time::in_range(micros).is_ok())?;
            values.extend_from_slice(micros);
        }
        _ => return None,
    }
    Some(())
}

fn extend<V: Copy + Into<i64>>(values: &mut Vec<i64>, source: &[V]) {
    values.extend(source.iter().map(|value| (*value).into()));
}

/// Whether every value that is not NULL fits.
fn all_fit<V: Copy>(
    values: &[V],
    nulls: Option<&NullBuffer>,
    fits: impl Fn(V) -> bool,
) -> Option<()> {
    let is_null = |row: usize| nulls.is_some_and(|nulls| nulls.is_null(row));
    let mut values = values.iter().enumerate();
    values
        .all(|(row, value)| fits(*value) || is_null(row))
        .then_some(())
}

/// Appends texts; `None` where they are beyond what Arrow addresses.
fn append_bytes(
    offsets: &mut Vec<i32>,
    data: &mut Vec<u8>,
    source: &[i32],
    bytes: &[u8],
) -> Option<()> {
    let place = |offset: &i32| usize::try_from(*offset).ok();
    let (first, last) = (place(source.first()?)?, place(source.last()?)?);
    let moved = i32::try_from(data.len()).ok()?;
    i32::try_from(data.len() + (last - first)).ok()?;
    data.extend_from_slice(bytes.get(first..last)?);
    let start = source[0];
    let behind = source[1..].iter().map(|offset| offset - start + moved);
    offsets.extend(behind);
    Some(())
}

fn get<T: Array + 'static>(array: &dyn Array) -> Option<&T> {
    array.as_any().downcast_ref::<T>()
}
