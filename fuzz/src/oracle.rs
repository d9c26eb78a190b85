//! What an independent reader of JSON (serde_json) sees in a record, and what a value must become in a column.
//!
//! Numbers stay text. They are compared as (sign, digits, power of ten), so that nothing is rounded.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{
    DataType, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::collections::HashSet;

/// What a text is.
#[derive(Debug)]
pub(crate) enum Verdict {
    NotText,
    /// No JSON.
    Malformed,
    /// JSON and no object.
    NotAnObject,
    /// An object that nests too deep, or has a name twice somewhere, or both.
    Unfit {
        is_deep: bool,
        has_twins: bool,
    },
    Object(Vec<(String, Json)>),
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Json {
    Null,
    Bool(bool),
    /// As written.
    Number(String),
    Text {
        raw: String,
        text: String,
    },
    /// As written.
    Nested(String),
}

const DEPTH_MAX: usize = 64;

/// Looks at a text that should be one object.
pub(crate) fn verdict(bytes: &[u8]) -> Verdict {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Verdict::NotText;
    };
    let mut walk = Walk::default();
    let Some(members) = serde_json::from_str::<&RawValue>(text)
        .ok()
        .and_then(|raw| walk.value(raw.get(), 0))
    else {
        return Verdict::Malformed;
    };
    match members {
        Found::Object(_) if walk.is_deep || walk.has_twins => Verdict::Unfit {
            is_deep: walk.is_deep,
            has_twins: walk.has_twins,
        },
        Found::Object(members) => Verdict::Object(members),
        Found::Other => Verdict::NotAnObject,
    }
}

enum Found {
    Object(Vec<(String, Json)>),
    Other,
}

#[derive(Default)]
struct Walk {
    is_deep: bool,
    has_twins: bool,
}

impl Walk {
    /// `None` where a text has an escape that is no character.
    fn value(&mut self, raw: &str, depth: usize) -> Option<Found> {
        // Far deeper is only told, so that this needs no deep stack.
        if depth > 2 * DEPTH_MAX {
            return Some(Found::Other);
        }
        match raw.as_bytes().first()? {
            b'{' => {
                self.is_deep |= depth + 1 > DEPTH_MAX;
                let members: Members = serde_json::from_str(raw).ok()?;
                let mut names = HashSet::new();
                let mut found = Vec::new();
                for (name, value) in members.0 {
                    self.has_twins |= !names.insert(name.clone());
                    self.value(value.get(), depth + 1)?;
                    found.push((name, json(value.get())?));
                }
                Some(Found::Object(found))
            }
            b'[' => {
                self.is_deep |= depth + 1 > DEPTH_MAX;
                let elements: Vec<Box<RawValue>> = serde_json::from_str(raw).ok()?;
                for element in elements {
                    self.value(element.get(), depth + 1)?;
                }
                Some(Found::Other)
            }
            _ => json(raw).map(|_| Found::Other),
        }
    }
}

/// One checked value.
pub(crate) fn json(raw: &str) -> Option<Json> {
    Some(match raw.as_bytes().first()? {
        b'n' => Json::Null,
        b't' => Json::Bool(true),
        b'f' => Json::Bool(false),
        b'"' => Json::Text {
            raw: raw[1..raw.len() - 1].to_string(),
            text: serde_json::from_str(raw).ok()?,
        },
        b'{' | b'[' => Json::Nested(raw.to_string()),
        _ => Json::Number(raw.to_string()),
    })
}

impl Json {
    /// As JSON text.
    pub(crate) fn written(&self) -> String {
        match self {
            Json::Null => "null".into(),
            Json::Bool(value) => value.to_string(),
            Json::Number(raw) | Json::Nested(raw) => raw.clone(),
            Json::Text { raw, .. } => format!("\"{raw}\""),
        }
    }
}

struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Members;
            fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

/// What a column must make of a value.
#[derive(Debug, PartialEq)]
pub(crate) enum Expected {
    Null,
    /// The value of the column is this, however it is shown.
    Value,
    Refused,
    /// Not said here; but if it is taken, it is the right one.
    Open,
}

/// What becomes of a JSON value in a column of this type.
pub(crate) fn expected(value: &Json, data_type: &DataType) -> Expected {
    match (value, data_type) {
        (Json::Null, _) => Expected::Null,
        (_, DataType::Utf8) => Expected::Value,
        (Json::Nested(_), DataType::List(_) | DataType::Struct(_) | DataType::Map(..)) => {
            Expected::Open
        }
        (Json::Text { .. }, DataType::List(_) | DataType::Struct(_) | DataType::Map(..)) => {
            Expected::Refused
        }
        (Json::Nested(_), _) => Expected::Refused,
        (Json::Bool(_), DataType::Boolean) => Expected::Value,
        (Json::Bool(_), _) => Expected::Refused,
        (Json::Number(_), DataType::Boolean | DataType::Binary) => Expected::Refused,
        (Json::Number(_), DataType::Date32 | DataType::Timestamp(..)) => Expected::Refused,
        (Json::Number(_), DataType::List(_) | DataType::Struct(_) | DataType::Map(..)) => {
            Expected::Refused
        }
        (Json::Text { text, .. }, DataType::Boolean) => match text.to_ascii_lowercase().as_str() {
            "true" | "false" => Expected::Value,
            _ => Expected::Refused,
        },
        (Json::Number(text) | Json::Text { text, .. }, data_type) => match limits(data_type) {
            Some((scale, most)) => match Number::of(text) {
                Some(number) if number.fits(scale, most) => Expected::Value,
                _ => Expected::Refused,
            },
            None => match (data_type, text.parse::<f64>()) {
                // What a program writes for a float comes back.
                (DataType::Float64, Ok(float))
                    if format!("{float:?}") == *text && text.contains('.') =>
                {
                    Expected::Value
                }
                (DataType::Float64 | DataType::Float32, Err(_)) => Expected::Refused,
                _ => Expected::Open,
            },
        },
    }
}

/// The places behind the point, and the largest whole number of the last place with its sign turned.
fn limits(data_type: &DataType) -> Option<(i64, (i128, i128))> {
    let bits = |bits: u32| Some((0, (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)));
    match data_type {
        DataType::Int8 => bits(8),
        DataType::Int16 => bits(16),
        DataType::Int32 => bits(32),
        DataType::Int64 => bits(64),
        DataType::Decimal128(precision, scale) => {
            let most = 10i128.pow(u32::from(*precision)) - 1;
            Some((i64::from(*scale), (-most, most)))
        }
        _ => None,
    }
}

/// A number in its one form: no zero at either end of the digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Number {
    negative: bool,
    digits: String,
    /// Of ten, of the last digit.
    power: i64,
}

impl Number {
    /// Reads `[+-] digits [. digits] [e [+-] digits]`, with a digit before or behind the point.
    pub(crate) fn of(text: &str) -> Option<Number> {
        let (negative, unsigned) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
            Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
            None => (unsigned, None),
        };
        let exponent: i128 = match exponent {
            None => 0,
            Some(text) => {
                let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
                if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
                    return None;
                }
                let size: i128 = digits
                    .parse()
                    .unwrap_or(i128::from(u64::MAX))
                    .min(i128::from(u64::MAX));
                if text.starts_with('-') { -size } else { size }
            }
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        let significant = digits.trim_start_matches('0');
        let trimmed = significant.trim_end_matches('0');
        if trimmed.is_empty() {
            return Some(Number {
                negative: false,
                digits: String::new(),
                power: 0,
            });
        }
        let power = exponent - fraction.len() as i128 + (significant.len() - trimmed.len()) as i128;
        Some(Number {
            negative,
            digits: trimmed.to_string(),
            power: i64::try_from(power).unwrap_or(if power < 0 { i64::MIN } else { i64::MAX }),
        })
    }

    /// Times `10^scale` it is a whole number between these.
    fn fits(&self, scale: i64, (least, most): (i128, i128)) -> bool {
        let zeros = self.power.saturating_add(scale);
        if self.digits.is_empty() {
            return true;
        }
        if !(0..=38).contains(&zeros) || self.digits.len() as i64 + zeros > 39 {
            return false;
        }
        let sign = if self.negative { "-" } else { "" };
        let text = format!("{sign}{}{}", self.digits, "0".repeat(zeros as usize));
        text.parse::<i128>()
            .is_ok_and(|value| (least..=most).contains(&value))
    }
}

/// Asserts that the cell is this value and no other.
pub(crate) fn assert_value(rows: &RecordBatch, column: usize, row: usize, value: &Json) {
    let array = rows.column(column);
    let name = rows.schema_ref().field(column).name().clone();
    let text = match value {
        Json::Null => return assert!(array.is_null(row), "column {name} holds a value for null"),
        Json::Bool(value) => value.to_string(),
        Json::Number(raw) | Json::Nested(raw) => raw.clone(),
        Json::Text { text, .. } => text.clone(),
    };
    assert!(!array.is_null(row), "column {name} is NULL for {text}");
    let whole = |value: i128, scale: i8| {
        let stored = Number::of(&format!("{value}e-{scale}")).expect("it is a number");
        assert_eq!(Some(stored), Number::of(&text), "column {name} of {text}");
    };
    match array.data_type() {
        DataType::Utf8 => assert_eq!(array.as_string::<i32>().value(row), text, "column {name}"),
        DataType::Boolean => {
            assert_eq!(
                array.as_boolean().value(row).to_string(),
                text.to_ascii_lowercase()
            );
        }
        DataType::Int8 => whole(array.as_primitive::<Int8Type>().value(row).into(), 0),
        DataType::Int16 => whole(array.as_primitive::<Int16Type>().value(row).into(), 0),
        DataType::Int32 => whole(array.as_primitive::<Int32Type>().value(row).into(), 0),
        DataType::Int64 => whole(array.as_primitive::<Int64Type>().value(row).into(), 0),
        DataType::Decimal128(_, scale) => {
            whole(array.as_primitive::<Decimal128Type>().value(row), *scale)
        }
        DataType::Float64 => {
            let stored = array.as_primitive::<Float64Type>().value(row);
            let nearest: f64 = text.parse().expect("it was taken");
            assert!(
                stored == nearest || (stored.is_nan() && text == "NaN"),
                "column {name} of {text}: {stored}"
            );
        }
        DataType::Float32 => {
            let stored = array.as_primitive::<Float32Type>().value(row);
            let nearest: f32 = text.parse().expect("it was taken");
            assert!(
                stored == nearest || (stored.is_nan() && text == "NaN"),
                "column {name} of {text}: {stored}"
            );
        }
        _ => {}
    }
}
