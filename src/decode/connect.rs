//! Values of changes in an envelope: plain JSON, and what Kafka Connect makes of decimals, dates and times.
//!
//! A number that stands for a time is taken by the type that the record's schema gives it. Without a schema it is taken
//! only where all types agree: a number in a DATE column counts days.

use super::infer;
use super::time;
use super::token::{self, Token};
use super::value::{Cell, FieldValue, Misfit, ValueReader};
use crate::change::RejectReason;
use crate::envelope::ColumnValue;
use crate::envelope::connect::{ConnectType, Unit};
use crate::schema::{DECIMAL_PRECISION_MAX, timestamp_type};
use arrow::datatypes::{DataType, TimeUnit};
use base64::Engine;
use chrono::{DateTime, NaiveTime};
use std::borrow::Cow;

const MICROS_PER_DAY: i64 = 86_400_000_000;

impl<'a> FieldValue<'a> for ColumnValue<'a> {
    const IS_TYPED: bool = false;

    fn is_null(&self) -> bool {
        match self {
            ColumnValue::Json(token) | ColumnValue::Connect(token, _) => *token == Token::Null,
            ColumnValue::Made(json) => json == "null",
        }
    }

    fn cell(&self, data_type: &DataType, reader: &mut ValueReader) -> Result<Cell<'a>, Misfit> {
        match self {
            ColumnValue::Json(token) => reader.json(token, data_type),
            ColumnValue::Connect(token, connect) => {
                connect_cell(token, *connect, data_type, reader)
            }
            ColumnValue::Made(json) => {
                let token = token::one_value(json).map_err(|_| Misfit::mismatch("is not JSON"))?;
                reader.json(&token, data_type).map(Cell::into_owned)
            }
        }
    }

    fn written_text(&self) -> Option<Cow<'a, str>> {
        match self {
            ColumnValue::Json(token) => token.written_text(),
            ColumnValue::Connect(..) | ColumnValue::Made(_) => None,
        }
    }

    fn inferred(&self, _reader: &ValueReader) -> DataType {
        match self {
            ColumnValue::Json(token) => infer::json_type(token),
            ColumnValue::Connect(token, connect) => connect_data_type(token, *connect),
            ColumnValue::Made(json) => {
                token::one_value(json).map_or(DataType::Utf8, |token| infer::json_type(&token))
            }
        }
    }

    fn as_json(&self) -> String {
        match self {
            ColumnValue::Json(token) | ColumnValue::Connect(token, _) => {
                token.as_json().into_owned()
            }
            ColumnValue::Made(json) => json.clone(),
        }
    }

    fn shown(&self) -> String {
        match self {
            ColumnValue::Json(token) | ColumnValue::Connect(token, _) => {
                token.written().to_string()
            }
            ColumnValue::Made(json) => json.clone(),
        }
    }
}

fn connect_cell<'a>(
    token: &Token<'a>,
    connect: ConnectType,
    data_type: &DataType,
    reader: &mut ValueReader,
) -> Result<Cell<'a>, Misfit> {
    match (connect, token) {
        (ConnectType::Decimal { scale, .. }, Token::Text { .. }) if !is_bytes(data_type) => {
            decimal_cell(&token.text(), scale, data_type, reader)
        }
        (ConnectType::VariableDecimal, Token::Nested(json)) => {
            let (scale, digits) = scale_and_digits(json)?;
            decimal_cell(&digits, scale, data_type, reader)
        }
        (ConnectType::Date, Token::Number(days)) => date_cell(days, token, data_type, reader),
        (ConnectType::Time(unit), Token::Number(count)) if *data_type == DataType::Utf8 => {
            time_text(count, unit)
        }
        (ConnectType::Timestamp(unit), Token::Number(count)) => {
            timestamp_cell(count, unit, token, data_type, reader)
        }
        (ConnectType::Unknown, Token::Number(days))
            if *data_type == DataType::Date32 && !reader.formats.has_date_format() =>
        {
            date_cell(days, token, data_type, reader)
        }
        (ConnectType::Unknown, Token::Number(_))
            if matches!(data_type, DataType::Timestamp(..))
                && !reader.formats.has_timestamp_format() =>
        {
            Err(Misfit {
                reason: RejectReason::AmbiguousTimestamp,
                why: "is a number, and the record has no schema that says what it counts".into(),
            })
        }
        _ => reader.json(token, data_type),
    }
}

fn connect_data_type(token: &Token<'_>, connect: ConnectType) -> DataType {
    match (connect, token) {
        (_, Token::Null) => DataType::Null,
        (ConnectType::Decimal { precision, scale }, Token::Text { .. }) => {
            let precision = precision.unwrap_or(DECIMAL_PRECISION_MAX);
            let fits = scale >= 0 && precision <= DECIMAL_PRECISION_MAX;
            match fits && scale.unsigned_abs() <= precision {
                true => DataType::Decimal128(precision, scale),
                false => DataType::Utf8,
            }
        }
        (ConnectType::VariableDecimal, _) => DataType::Utf8,
        (ConnectType::Bytes, Token::Text { .. }) => DataType::Binary,
        (ConnectType::Date, Token::Number(_)) => DataType::Date32,
        (ConnectType::Time(_), _) => DataType::Utf8,
        (ConnectType::Timestamp(_), Token::Number(_)) => {
            DataType::Timestamp(TimeUnit::Microsecond, None)
        }
        (ConnectType::ZonedTimestamp, Token::Text { .. }) => timestamp_type(),
        _ => infer::json_type(token),
    }
}

fn is_bytes(data_type: &DataType) -> bool {
    *data_type == DataType::Binary
}

/// A whole number in base64, big-endian with two's complement, over a power of ten.
fn decimal_cell<'a>(
    digits: &str,
    scale: i8,
    data_type: &DataType,
    reader: &mut ValueReader,
) -> Result<Cell<'a>, Misfit> {
    let not_a_decimal = || Misfit::mismatch("is no decimal in base64, as its schema says");
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(digits)
        .map_err(|_| not_a_decimal())?;
    let first = bytes.first().ok_or_else(not_a_decimal)?;
    let sign = if *first >= 0x80 { 0xFF } else { 0 };
    let surplus = bytes.len().saturating_sub(16);
    let (lead, kept) = bytes.split_at(surplus);
    let is_kept = lead.iter().all(|byte| *byte == sign)
        && (lead.is_empty() || (kept[0] >= 0x80) == (sign == 0xFF));
    if !is_kept {
        return Err(Misfit::overflow());
    }
    let mut wide = [sign; 16];
    wide[16 - kept.len()..].copy_from_slice(kept);
    let text = decimal_text(i128::from_be_bytes(wide), scale);
    reader.text(&Cow::Owned(text), data_type)
}

/// The digits with their point; as many zeros behind them as a negative scale says.
fn decimal_text(unscaled: i128, scale: i8) -> String {
    let sign = if unscaled < 0 { "-" } else { "" };
    let digits = unscaled.unsigned_abs().to_string();
    let places = usize::from(scale.unsigned_abs());
    if scale <= 0 {
        return format!("{sign}{digits}{}", "0".repeat(places));
    }
    let digits = format!("{digits:0>width$}", width = places + 1);
    let (whole, fraction) = digits.split_at(digits.len() - places);
    format!("{sign}{whole}.{fraction}")
}

fn scale_and_digits(json: &str) -> Result<(i8, String), Misfit> {
    let unfit = || Misfit::mismatch("is no decimal with its scale, as its schema says");
    let members = token::members(json).map_err(|_| unfit())?;
    let find = |name: &str| members.iter().find(|member| member.0 == name);
    match (find("scale"), find("value")) {
        (Some((_, Token::Number(scale))), Some((_, value @ Token::Text { .. }))) => {
            let scale = scale.parse().map_err(|_| unfit())?;
            Ok((scale, value.text().into_owned()))
        }
        _ => Err(unfit()),
    }
}

fn count(text: &str) -> Result<i64, Misfit> {
    text.parse()
        .map_err(|_| Misfit::mismatch("is not a whole number, as its schema says"))
}

fn in_range(micros: Option<i64>) -> Result<i64, Misfit> {
    micros
        .and_then(|micros| time::in_range(micros).ok())
        .ok_or_else(Misfit::overflow)
}

fn date_cell<'a>(
    days: &str,
    token: &Token<'a>,
    data_type: &DataType,
    reader: &mut ValueReader,
) -> Result<Cell<'a>, Misfit> {
    if !matches!(data_type, DataType::Date32 | DataType::Utf8) {
        return reader.json(token, data_type);
    }
    let days = count(days)?;
    let micros = in_range(days.checked_mul(MICROS_PER_DAY))?;
    match data_type {
        DataType::Date32 => Ok(Cell::Int(days)),
        _ => written(micros, "%Y-%m-%d"),
    }
}

fn timestamp_cell<'a>(
    text: &str,
    unit: Unit,
    token: &Token<'a>,
    data_type: &DataType,
    reader: &mut ValueReader,
) -> Result<Cell<'a>, Misfit> {
    if !matches!(data_type, DataType::Timestamp(..) | DataType::Utf8) {
        return reader.json(token, data_type);
    }
    let micros = in_range(micros(count(text)?, unit)?)?;
    match data_type {
        DataType::Timestamp(..) => Ok(Cell::Int(micros)),
        _ => written(micros, "%Y-%m-%dT%H:%M:%S%.6f"),
    }
}

/// Microseconds; `None` beyond all times.
fn micros(count: i64, unit: Unit) -> Result<Option<i64>, Misfit> {
    match unit {
        Unit::Millis => Ok(count.checked_mul(1000)),
        Unit::Micros => Ok(Some(count)),
        Unit::Nanos if count % 1000 == 0 => Ok(Some(count / 1000)),
        Unit::Nanos => Err(Misfit::mismatch("has more than 6 digits behind the second")),
    }
}

fn written(micros: i64, format: &str) -> Result<Cell<'static>, Misfit> {
    let instant = DateTime::from_timestamp_micros(micros).ok_or_else(Misfit::overflow)?;
    Ok(Cell::Text(instant.format(format).to_string().into()))
}

/// A time of the day, with all its digits.
fn time_text(text: &str, unit: Unit) -> Result<Cell<'static>, Misfit> {
    let per_second = match unit {
        Unit::Millis => 1000,
        Unit::Micros => 1_000_000,
        Unit::Nanos => 1_000_000_000,
    };
    let count = count(text)?;
    let nanos = (count.rem_euclid(per_second) * (1_000_000_000 / per_second)) as u32;
    let time = u32::try_from(count.div_euclid(per_second))
        .ok()
        .and_then(|seconds| NaiveTime::from_num_seconds_from_midnight_opt(seconds, nanos))
        .ok_or_else(Misfit::overflow)?;
    Ok(Cell::Text(time.format("%H:%M:%S%.f").to_string().into()))
}
