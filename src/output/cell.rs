//! One value as text or JSON, exactly.
//!
//! Decimals are texts in JSON, since many readers take JSON numbers for floating point. Times have their zone: `Z` for
//! TIMESTAMP, none for TIMESTAMP_NTZ. Bytes are hexadecimal.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::*;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use chrono::{DateTime, SecondsFormat};
use serde_json::{Number, Value};

/// The value as text; `None` is NULL. Nested values are JSON.
pub(crate) fn text(column: &ArrayRef, row: usize) -> Option<String> {
    if column.is_null(row) {
        return None;
    }
    match scalar(column, row) {
        Some(Value::String(text)) => Some(text),
        Some(Value::Null) => None,
        Some(other) => Some(other.to_string()),
        None => Some(json(column, row)),
    }
}

/// The value as a JSON text; members of a struct keep their order.
pub(crate) fn json(column: &ArrayRef, row: usize) -> String {
    if column.is_null(row) {
        return "null".to_string();
    }
    if let Some(value) = scalar(column, row) {
        return value.to_string();
    }
    match column.data_type() {
        DataType::Struct(fields) => {
            let members = fields.iter().zip(column.as_struct().columns());
            object(members.map(|(field, member)| (field.name().as_str(), json(member, row))))
        }
        DataType::List(_) => list(&column.as_list::<i32>().value(row)),
        DataType::LargeList(_) => list(&column.as_list::<i64>().value(row)),
        DataType::FixedSizeList(_, _) => list(&column.as_fixed_size_list().value(row)),
        DataType::Map(_, _) => map(column, row),
        DataType::Dictionary(_, value) => match cast(&column.slice(row, 1), value) {
            Ok(plain) => json(&plain, 0),
            Err(_) => displayed(column, row).to_string(),
        },
        _ => displayed(column, row).to_string(),
    }
}

/// A JSON object whose members keep their order; the values are JSON texts.
pub(crate) fn object<'a>(members: impl Iterator<Item = (&'a str, String)>) -> String {
    let members: Vec<String> = members
        .map(|(name, value)| format!("{}:{value}", Value::from(name)))
        .collect();
    format!("{{{}}}", members.join(","))
}

/// The value where it is not nested.
fn scalar(column: &ArrayRef, row: usize) -> Option<Value> {
    Some(match column.data_type() {
        DataType::Null => Value::Null,
        DataType::Boolean => column.as_boolean().value(row).into(),
        DataType::Int8 => column.as_primitive::<Int8Type>().value(row).into(),
        DataType::Int16 => column.as_primitive::<Int16Type>().value(row).into(),
        DataType::Int32 => column.as_primitive::<Int32Type>().value(row).into(),
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).into(),
        DataType::UInt8 => column.as_primitive::<UInt8Type>().value(row).into(),
        DataType::UInt16 => column.as_primitive::<UInt16Type>().value(row).into(),
        DataType::UInt32 => column.as_primitive::<UInt32Type>().value(row).into(),
        DataType::UInt64 => column.as_primitive::<UInt64Type>().value(row).into(),
        DataType::Float32 => float32(column.as_primitive::<Float32Type>().value(row)),
        DataType::Float64 => float64(column.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8 => column.as_string::<i32>().value(row).into(),
        DataType::LargeUtf8 => column.as_string::<i64>().value(row).into(),
        DataType::Utf8View => column.as_string_view().value(row).into(),
        DataType::Timestamp(unit, zone) => timestamp(column, row, *unit, zone.is_some()),
        DataType::Struct(_)
        | DataType::List(_)
        | DataType::LargeList(_)
        | DataType::FixedSizeList(_, _)
        | DataType::Map(_, _) => return None,
        // Readers keep partition values and the like once for many rows.
        DataType::Dictionary(_, value_type) => {
            let value = cast(&column.slice(row, 1), value_type).ok()?;
            return scalar(&value, 0);
        }
        _ => displayed(column, row),
    })
}

/// Decimals, dates, bytes and the like have a text form of their own.
fn displayed(column: &ArrayRef, row: usize) -> Value {
    let options = FormatOptions::default().with_display_error(true);
    match ArrayFormatter::try_new(column, &options) {
        Ok(formatter) => formatter.value(row).to_string().into(),
        Err(error) => format!("ERROR: {error}").into(),
    }
}

/// The shortest text that reads as the same float.
fn float32(value: f32) -> Value {
    match value
        .to_string()
        .parse::<f64>()
        .ok()
        .and_then(Number::from_f64)
    {
        Some(number) => Value::Number(number),
        None => value.to_string().into(),
    }
}

/// JSON has no NaN and no infinity; they are texts.
fn float64(value: f64) -> Value {
    Number::from_f64(value).map_or_else(|| value.to_string().into(), Value::Number)
}

fn timestamp(column: &ArrayRef, row: usize, unit: TimeUnit, zoned: bool) -> Value {
    let (time, format) = match unit {
        TimeUnit::Second => (
            DateTime::from_timestamp(column.as_primitive::<TimestampSecondType>().value(row), 0),
            SecondsFormat::Micros,
        ),
        TimeUnit::Millisecond => (
            DateTime::from_timestamp_millis(
                column.as_primitive::<TimestampMillisecondType>().value(row),
            ),
            SecondsFormat::Micros,
        ),
        TimeUnit::Microsecond => (
            DateTime::from_timestamp_micros(
                column.as_primitive::<TimestampMicrosecondType>().value(row),
            ),
            SecondsFormat::Micros,
        ),
        TimeUnit::Nanosecond => {
            let nanos = column.as_primitive::<TimestampNanosecondType>().value(row);
            (
                Some(DateTime::from_timestamp_nanos(nanos)),
                SecondsFormat::Nanos,
            )
        }
    };
    let Some(time) = time else {
        return displayed(column, row);
    };
    let text = time.to_rfc3339_opts(format, true);
    let text = if zoned {
        text.as_str()
    } else {
        text.trim_end_matches('Z')
    };
    text.into()
}

fn list(values: &ArrayRef) -> String {
    let items: Vec<String> = (0..values.len()).map(|index| json(values, index)).collect();
    format!("[{}]", items.join(","))
}

/// An object when the keys are texts, else a list of `{key, value}`.
fn map(column: &ArrayRef, row: usize) -> String {
    let entries = column.as_map().value(row);
    let (keys, values) = (entries.column(0), entries.column(1));
    let has_text_keys = matches!(
        keys.data_type(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
    );
    if has_text_keys {
        let names: Vec<String> = (0..entries.len())
            .map(|index| text(keys, index).unwrap_or_default())
            .collect();
        return object(
            names
                .iter()
                .enumerate()
                .map(|(index, name)| (name.as_str(), json(values, index))),
        );
    }
    let pair =
        |index| object([("key", json(keys, index)), ("value", json(values, index))].into_iter());
    format!(
        "[{}]",
        (0..entries.len()).map(pair).collect::<Vec<_>>().join(",")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        BinaryArray, Date32Array, Float32Array, Float64Array, Int64Array, ListArray, StructArray,
        TimestampMicrosecondArray,
    };
    use std::sync::Arc;

    fn shown(column: impl Array + 'static) -> String {
        let column: ArrayRef = Arc::new(column);
        json(&column, 0)
    }

    #[test]
    fn values_that_json_has_no_number_for_are_texts() {
        assert_eq!(shown(Float64Array::from(vec![f64::NAN])), "\"NaN\"");
        assert_eq!(
            shown(Float64Array::from(vec![f64::NEG_INFINITY])),
            "\"-inf\""
        );
        assert_eq!(shown(BinaryArray::from_vec(vec![b"\x01\xff"])), "\"01ff\"");
    }

    #[test]
    fn numbers_keep_all_their_digits() {
        assert_eq!(shown(Float32Array::from(vec![0.1])), "0.1");
        assert_eq!(
            shown(Int64Array::from(vec![i64::MIN])),
            "-9223372036854775808"
        );
    }

    #[test]
    fn times_have_a_zone_only_where_the_type_has_one() {
        let times = TimestampMicrosecondArray::from(vec![1]);
        assert_eq!(shown(times.clone()), "\"1970-01-01T00:00:00.000001\"");
        assert_eq!(
            shown(times.with_timezone("UTC")),
            "\"1970-01-01T00:00:00.000001Z\""
        );
        assert_eq!(shown(Date32Array::from(vec![-1])), "\"1969-12-31\"");
    }

    #[test]
    fn members_of_a_struct_keep_their_order() {
        let number: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let fields = |name: &str| Arc::new(Field::new(name, DataType::Int64, true));
        let columns = StructArray::from(vec![
            (fields("z \""), number.clone()),
            (fields("a"), number),
        ]);
        assert_eq!(shown(columns), r#"{"z \"":1,"a":1}"#);
    }

    #[test]
    fn lists_are_arrays() {
        let list = ListArray::from_iter_primitive::<Int64Type, _, _>([Some([Some(1), None])]);
        assert_eq!(shown(list), "[1,null]");
    }
}
