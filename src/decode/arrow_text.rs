//! Values of Arrow arrays as text and as JSON, for STRING columns, rescued data, quarantine and messages.

use super::arrow_value::{get, range_of, timestamp_value};
use super::text::json_text;
use super::value::Misfit;
use arrow::array::*;
use arrow::datatypes::*;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use base64::Engine;
use chrono::{DateTime, SecondsFormat};

/// A value as text without quotes; what has no text form does not fit.
pub(super) fn value_text(array: &dyn Array, row: usize) -> Result<String, Misfit> {
    match array.data_type() {
        DataType::Timestamp(unit, zone) => {
            let value = timestamp_value(array, row)?;
            timestamp_text(value, *unit, zone.is_some()).ok_or_else(Misfit::overflow)
        }
        DataType::Utf8 => Ok(get::<StringArray>(array)?.value(row).to_string()),
        DataType::Binary => Ok(base64_text(get::<BinaryArray>(array)?.value(row))),
        DataType::FixedSizeBinary(_) => {
            Ok(base64_text(get::<FixedSizeBinaryArray>(array)?.value(row)))
        }
        // Formatting with the precision of the type would cut off what is beyond it.
        DataType::Decimal128(_, scale) => {
            let value = get::<Decimal128Array>(array)?.value(row);
            Ok(Decimal128Type::format_decimal(value, u8::MAX, *scale))
        }
        DataType::Decimal256(_, scale) => {
            let value = get::<Decimal256Array>(array)?.value(row);
            Ok(Decimal256Type::format_decimal(value, u8::MAX, *scale))
        }
        DataType::Float64 => Ok(float_text(get::<Float64Array>(array)?.value(row))),
        DataType::Float32 => Ok(float_text(get::<Float32Array>(array)?.value(row))),
        data_type if data_type.is_nested() => Ok(value_json(array, row)),
        _ => formatted(array, row),
    }
}

/// A value for a message.
pub(super) fn shown(array: &dyn Array, row: usize) -> String {
    value_text(array, row).unwrap_or_else(|misfit| misfit.why.into_owned())
}

fn formatted(array: &dyn Array, row: usize) -> Result<String, Misfit> {
    let options = FormatOptions::default().with_display_error(false);
    ArrayFormatter::try_new(array, &options)
        .and_then(|formatter| formatter.value(row).try_to_string())
        .map_err(|_| Misfit::mismatch("cannot be written as text"))
}

/// The fewest digits that name the value, as in JSON and Java.
fn float_text(value: impl std::fmt::Debug) -> String {
    match format!("{value:?}").as_str() {
        "inf" => "Infinity".into(),
        "-inf" => "-Infinity".into(),
        text => text.into(),
    }
}

/// ISO 8601, with `Z` for instants; `None` beyond the calendar.
fn timestamp_text(value: i64, unit: TimeUnit, is_instant: bool) -> Option<String> {
    let per_second = match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    };
    let nanos = u32::try_from(value.rem_euclid(per_second) * (1_000_000_000 / per_second)).ok()?;
    let instant = DateTime::from_timestamp(value.div_euclid(per_second), nanos)?;
    let text = instant.to_rfc3339_opts(SecondsFormat::AutoSi, true);
    Some(if is_instant {
        text
    } else {
        text.trim_end_matches('Z').to_string()
    })
}

/// A row as a JSON object; NULLs stand as `null`.
pub(super) fn row_json(batch: &RecordBatch, row: usize) -> String {
    let schema = batch.schema_ref();
    let members = schema.fields().iter().zip(batch.columns());
    let members = members
        .map(|(field, array)| format!("{}:{}", json_text(field.name()), value_json(array, row)));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

/// A value as JSON: numbers as they are, bytes as base64, everything else that is not nested as text.
pub(super) fn value_json(array: &dyn Array, row: usize) -> String {
    if array.is_null(row) || *array.data_type() == DataType::Null {
        return "null".into();
    }
    let shown = match array.data_type() {
        DataType::Utf8 => get::<StringArray>(array).map(|array| json_text(array.value(row))),
        DataType::Binary => {
            get::<BinaryArray>(array).map(|array| json_text(&base64_text(array.value(row))))
        }
        DataType::FixedSizeBinary(_) => get::<FixedSizeBinaryArray>(array)
            .map(|array| json_text(&base64_text(array.value(row)))),
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
                let key = shown(map.keys().as_ref(), row);
                format!("{}:{}", json_text(&key), value_json(map.values(), row))
            });
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }),
        DataType::Boolean => formatted(array, row),
        data_type if data_type.is_numeric() => {
            let text = shown(array, row);
            let is_word = text.ends_with(|c: char| c.is_ascii_alphabetic());
            Ok(if is_word { json_text(&text) } else { text })
        }
        _ => Ok(json_text(&shown(array, row))),
    };
    shown.unwrap_or_else(|misfit| json_text(&misfit.why))
}

fn base64_text(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
