//! What a delivered value means for a column: exactly its value, or why it does not fit.
//!
//! The rules are the same for every format: a text that reads exactly as the type is taken, anything inexact is not.

use super::escape;
use super::number::{self, Unfit};
use super::time::{TimeFault, TimeFormats};
use super::token::{self, Token};
use crate::change::RejectReason;
use arrow::datatypes::{DataType, Field, Fields};
use base64::Engine;
use std::borrow::Cow;
use std::sync::Arc;

/// One value in the form of its column: dates as days, times as microseconds, decimals as whole numbers of their last
/// place.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Decimal(i128),
    Text(Cow<'a, str>),
    Bytes(Cow<'a, [u8]>),
    List(Vec<Cell<'a>>),
    Struct(Vec<Cell<'a>>),
    Map(Vec<(Cell<'a>, Cell<'a>)>),
}

impl Cell<'_> {
    pub(super) fn into_owned(self) -> Cell<'static> {
        match self {
            Cell::Null => Cell::Null,
            Cell::Bool(value) => Cell::Bool(value),
            Cell::Int(value) => Cell::Int(value),
            Cell::Float(value) => Cell::Float(value),
            Cell::Decimal(value) => Cell::Decimal(value),
            Cell::Text(text) => Cell::Text(Cow::Owned(text.into_owned())),
            Cell::Bytes(bytes) => Cell::Bytes(Cow::Owned(bytes.into_owned())),
            Cell::List(cells) => Cell::List(cells.into_iter().map(Cell::into_owned).collect()),
            Cell::Struct(cells) => Cell::Struct(cells.into_iter().map(Cell::into_owned).collect()),
            Cell::Map(pairs) => Cell::Map(
                pairs
                    .into_iter()
                    .map(|(key, value)| (key.into_owned(), value.into_owned()))
                    .collect(),
            ),
        }
    }
}

/// Why a value does not fit its column.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Misfit {
    pub(super) reason: RejectReason,
    /// Continues a sentence that begins with the value.
    pub(super) why: Cow<'static, str>,
}

impl Misfit {
    /// The value is of another kind.
    pub(super) fn mismatch(why: impl Into<Cow<'static, str>>) -> Self {
        Misfit {
            reason: RejectReason::TypeMismatch,
            why: why.into(),
        }
    }

    /// The value is beyond the range of the type.
    pub(super) fn overflow() -> Self {
        Misfit {
            reason: RejectReason::Overflow,
            why: "is out of range".into(),
        }
    }

    /// The value is a time on the wall, the column holds instants.
    pub(super) fn no_offset() -> Self {
        Misfit {
            reason: RejectReason::AmbiguousTimestamp,
            why: "has no offset from UTC".into(),
        }
    }
}

/// A field of a record before its column is looked at.
pub(super) trait FieldValue<'a> {
    /// The format gives values their types, so that inference is not needed.
    const IS_TYPED: bool;
    /// No value was sent.
    fn is_null(&self) -> bool;
    /// The value in the form of a column of this type.
    fn cell(&self, data_type: &DataType, reader: &mut ValueReader) -> Result<Cell<'a>, Misfit>;
    /// The value as text, where it came as one that may have another meaning than its column.
    fn written_text(&self) -> Option<Cow<'a, str>>;
    /// The narrowest type that a new column needs for this value.
    fn inferred(&self, reader: &ValueReader) -> DataType;
    /// The value as JSON text.
    fn as_json(&self) -> String;
    /// The value for a message.
    fn shown(&self) -> String;
}

/// Reads values with the formats of the settings.
#[derive(Debug)]
pub(super) struct ValueReader {
    /// Formats of dates and times.
    pub(super) formats: TimeFormats,
    /// Set when a STRUCT value holds a field that its column lacks; whoever reads it resets it.
    pub(super) has_unknown_field: bool,
}

impl ValueReader {
    pub(super) fn new(formats: TimeFormats) -> Self {
        ValueReader {
            formats,
            has_unknown_field: false,
        }
    }

    /// Reads a text. Blanks at its ends are part of it.
    pub(super) fn text<'a>(
        &mut self,
        text: &Cow<'a, str>,
        data_type: &DataType,
    ) -> Result<Cell<'a>, Misfit> {
        match data_type {
            DataType::Utf8 => Ok(Cell::Text(text.clone())),
            DataType::Boolean if text.eq_ignore_ascii_case("true") => Ok(Cell::Bool(true)),
            DataType::Boolean if text.eq_ignore_ascii_case("false") => Ok(Cell::Bool(false)),
            DataType::Boolean => Err(Misfit::mismatch("is neither true nor false")),
            DataType::Date32 => match self.formats.date(text) {
                Ok(days) => Ok(Cell::Int(i64::from(days))),
                Err(fault) => Err(time_misfit(fault, "is not a date")),
            },
            DataType::Timestamp(_, zone) => self.timestamp(text, zone.is_some()),
            DataType::Binary => {
                match base64::engine::general_purpose::STANDARD.decode(text.as_bytes()) {
                    Ok(bytes) => Ok(Cell::Bytes(Cow::Owned(bytes))),
                    Err(_) => Err(Misfit::mismatch("is not base64")),
                }
            }
            DataType::List(_) | DataType::Struct(_) | DataType::Map(..) => {
                self.nested_text(text, data_type)
            }
            _ => float_word(text, data_type).map_or_else(|| number_cell(text, data_type), Ok),
        }
    }

    fn timestamp(&self, text: &str, is_instant: bool) -> Result<Cell<'static>, Misfit> {
        let stamp = self
            .formats
            .timestamp(text)
            .map_err(|fault| time_misfit(fault, "is not a time"))?;
        match (is_instant, stamp.has_offset) {
            (true, false) => Err(Misfit::no_offset()),
            (false, true) => Err(Misfit::mismatch("has an offset from UTC")),
            _ => Ok(Cell::Int(stamp.micros)),
        }
    }

    fn nested_text<'a>(
        &mut self,
        text: &Cow<'a, str>,
        data_type: &DataType,
    ) -> Result<Cell<'a>, Misfit> {
        let not_json = |_| Misfit::mismatch("is not JSON");
        match text {
            Cow::Borrowed(text) => self.json(&token::one_value(text).map_err(not_json)?, data_type),
            Cow::Owned(text) => {
                let token = token::one_value(text).map_err(not_json)?;
                self.json(&token, data_type).map(Cell::into_owned)
            }
        }
    }

    /// Reads a JSON value. A STRING takes every value as its JSON text; other types take a text that reads as them.
    pub(super) fn json<'a>(
        &mut self,
        token: &Token<'a>,
        data_type: &DataType,
    ) -> Result<Cell<'a>, Misfit> {
        match (token, data_type) {
            (Token::Null, _) => Ok(Cell::Null),
            (Token::Bool(value), DataType::Boolean) => Ok(Cell::Bool(*value)),
            (Token::Nested(json), DataType::List(_) | DataType::Struct(_) | DataType::Map(..)) => {
                self.nested(json, data_type)
            }
            (_, DataType::List(_) | DataType::Struct(_) | DataType::Map(..)) => {
                Err(Misfit::mismatch("is neither an object nor an array"))
            }
            (
                Token::Text {
                    inner,
                    has_escapes: true,
                },
                _,
            ) => self.text(&escape::unescape(inner), data_type),
            (Token::Text { inner, .. }, _) => self.text(&Cow::Borrowed(*inner), data_type),
            (_, DataType::Utf8) => Ok(Cell::Text(Cow::Borrowed(token.written()))),
            (Token::Number(_), DataType::Date32) if !self.formats.has_date_format() => {
                Err(Misfit::mismatch("is a number and not a date"))
            }
            (Token::Number(_), DataType::Timestamp(..)) if !self.formats.has_timestamp_format() => {
                Err(Misfit::mismatch("is a number and not a time"))
            }
            (Token::Number(_), DataType::Boolean | DataType::Binary) => {
                Err(Misfit::mismatch("is a number"))
            }
            (Token::Number(text), _) => self.text(&Cow::Borrowed(*text), data_type),
            (Token::Bool(_), _) => Err(Misfit::mismatch("is a boolean")),
            (Token::Nested(_), _) => Err(Misfit::mismatch("is an object or an array")),
        }
    }

    fn nested<'a>(&mut self, json: &'a str, data_type: &DataType) -> Result<Cell<'a>, Misfit> {
        let is_object = json.starts_with('{');
        match data_type {
            DataType::List(element) if !is_object => self.list(json, element),
            DataType::Struct(fields) if is_object => self.structure(json, fields),
            DataType::Map(entries, _) if is_object => self.map(json, entries),
            DataType::List(_) => Err(Misfit::mismatch("is an object and not an array")),
            _ => Err(Misfit::mismatch("is an array and not an object")),
        }
    }

    fn list<'a>(&mut self, json: &'a str, element: &Arc<Field>) -> Result<Cell<'a>, Misfit> {
        let tokens = token::elements(json).map_err(|fault| Misfit::mismatch(fault.what))?;
        let cells: Result<Vec<_>, _> = tokens
            .iter()
            .map(|token| self.json(token, element.data_type()))
            .collect();
        cells.map(Cell::List)
    }

    fn structure<'a>(&mut self, json: &'a str, fields: &Fields) -> Result<Cell<'a>, Misfit> {
        let mut cells = vec![Cell::Null; fields.len()];
        let mut expected = 0;
        for (name, token) in token::members(json).map_err(|fault| Misfit::mismatch(fault.what))? {
            // Members mostly come in the order of the fields.
            let is_named = |index: &usize| *fields[*index].name() == name;
            let is_next = Some(expected).filter(|next| *next < fields.len() && is_named(next));
            match is_next.or_else(|| (0..fields.len()).find(is_named)) {
                Some(index) => {
                    cells[index] = self.json(&token, fields[index].data_type())?;
                    expected = index + 1;
                }
                None => self.has_unknown_field |= token != Token::Null,
            }
        }
        Ok(Cell::Struct(cells))
    }

    fn map<'a>(&mut self, json: &'a str, entries: &Arc<Field>) -> Result<Cell<'a>, Misfit> {
        let Some((key_type, value_type)) = map_types(entries) else {
            return Err(Misfit::mismatch("does not fit this map"));
        };
        let mut pairs = Vec::new();
        for (name, token) in token::members(json).map_err(|fault| Misfit::mismatch(fault.what))? {
            pairs.push((self.text(&name, key_type)?, self.json(&token, value_type)?));
        }
        check_map_keys(&pairs)?;
        Ok(Cell::Map(pairs))
    }
}

/// Names that differ as text may be one key ("1" and "01" in a MAP of BIGINT).
pub(super) fn check_map_keys(pairs: &[(Cell<'_>, Cell<'_>)]) -> Result<(), Misfit> {
    let mut keys: Vec<String> = pairs.iter().map(|(key, _)| format!("{key:?}")).collect();
    keys.sort_unstable();
    match keys.windows(2).any(|pair| pair[0] == pair[1]) {
        true => Err(Misfit::mismatch("holds a key twice")),
        false => Ok(()),
    }
}

/// Key and value type of the entries of a MAP.
pub(super) fn map_types(entries: &Field) -> Option<(&DataType, &DataType)> {
    match entries.data_type() {
        DataType::Struct(pair) if pair.len() == 2 => {
            Some((pair[0].data_type(), pair[1].data_type()))
        }
        _ => None,
    }
}

/// The values of floats that have no digits; they are words, never JSON numbers.
fn float_word(text: &str, data_type: &DataType) -> Option<Cell<'static>> {
    if !data_type.is_floating() {
        return None;
    }
    match text {
        "NaN" => Some(Cell::Float(f64::NAN)),
        "Infinity" => Some(Cell::Float(f64::INFINITY)),
        "-Infinity" => Some(Cell::Float(f64::NEG_INFINITY)),
        _ => None,
    }
}

fn number_cell(text: &str, data_type: &DataType) -> Result<Cell<'static>, Misfit> {
    let cell = match data_type {
        DataType::Int8 => number::integer(text, 8).map(Cell::Int),
        DataType::Int16 => number::integer(text, 16).map(Cell::Int),
        DataType::Int32 => number::integer(text, 32).map(Cell::Int),
        DataType::Int64 => number::integer(text, 64).map(Cell::Int),
        DataType::Float32 => number::float::<f32>(text).map(|value| Cell::Float(f64::from(value))),
        DataType::Float64 => number::float::<f64>(text).map(Cell::Float),
        DataType::Decimal128(precision, scale) => {
            number::decimal(text, *precision, *scale).map(Cell::Decimal)
        }
        _ => return Err(Misfit::mismatch("is of a type that no column has")),
    };
    cell.map_err(|unfit| match (unfit, data_type) {
        (Unfit::NotANumber, _) => Misfit::mismatch("is not a number"),
        (Unfit::OutOfRange, _) => Misfit::overflow(),
        (Unfit::Inexact, _) => Misfit::mismatch("has more digits than the type keeps"),
        (Unfit::Surplus, DataType::Decimal128(_, scale)) => {
            let why = format!("has more than {scale} decimal places").into();
            Misfit {
                reason: RejectReason::DecimalScale,
                why,
            }
        }
        (Unfit::Surplus, _) => Misfit::mismatch("is not a whole number"),
    })
}

fn time_misfit(fault: TimeFault, why: &'static str) -> Misfit {
    match fault {
        TimeFault::NotATime => Misfit::mismatch(why),
        TimeFault::Surplus => Misfit::mismatch("has more than 6 digits behind the second"),
        TimeFault::OutOfRange => Misfit {
            reason: RejectReason::Overflow,
            why: "is outside of the years 1 to 9999".into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::parse_ddl;

    fn reader() -> ValueReader {
        ValueReader::new(TimeFormats::default())
    }

    fn type_of(ddl: &str) -> DataType {
        parse_ddl(&format!("c {ddl}")).unwrap()[0]
            .data_type()
            .clone()
    }

    fn read(json: &'static str, ddl: &str) -> Result<Cell<'static>, RejectReason> {
        let token = token::one_value(json).unwrap();
        reader()
            .json(&token, &type_of(ddl))
            .map_err(|misfit| misfit.reason)
    }

    #[test]
    fn values_that_are_not_exactly_of_the_type_are_refused() {
        use RejectReason::*;
        for (json, ddl, reason) in [
            ("5.25", "BIGINT", TypeMismatch),
            ("300", "TINYINT", Overflow),
            ("\"abc\"", "BIGINT", TypeMismatch),
            ("\" 5\"", "BIGINT", TypeMismatch),
            ("\"\"", "BIGINT", TypeMismatch),
            ("true", "BIGINT", TypeMismatch),
            ("{}", "BIGINT", TypeMismatch),
            ("12.345", "DECIMAL(10,2)", DecimalScale),
            ("100000000.00", "DECIMAL(10,2)", Overflow),
            ("1", "BOOLEAN", TypeMismatch),
            ("\"yes\"", "BOOLEAN", TypeMismatch),
            ("\"nan\"", "DOUBLE", TypeMismatch),
            ("9007199254740993", "DOUBLE", TypeMismatch),
            ("\"2024-03-31T02:30:00\"", "TIMESTAMP", AmbiguousTimestamp),
            ("\"2024-03-31T02:30:00Z\"", "TIMESTAMP_NTZ", TypeMismatch),
            ("1711843800", "TIMESTAMP", TypeMismatch),
            ("20240331", "DATE", TypeMismatch),
            ("\"2023-02-29\"", "DATE", TypeMismatch),
            ("\"?\"", "BINARY", TypeMismatch),
            ("1", "BINARY", TypeMismatch),
            ("{}", "ARRAY<INT>", TypeMismatch),
            ("[]", "MAP<STRING, INT>", TypeMismatch),
            ("\"[1]\"", "ARRAY<INT>", TypeMismatch),
            ("[1, 2.5]", "ARRAY<INT>", TypeMismatch),
            ("{\"a\": 300}", "STRUCT<a: TINYINT>", Overflow),
            ("{\"1\": 1, \"01\": 2}", "MAP<INT, INT>", TypeMismatch),
        ] {
            assert_eq!(read(json, ddl), Err(reason), "{json} {ddl}");
        }
    }

    #[test]
    fn values_that_read_exactly_as_the_type_are_taken() {
        let text = |text: &'static str| Cell::Text(text.into());
        for (json, ddl, cell) in [
            ("null", "BIGINT", Cell::Null),
            ("5.0", "BIGINT", Cell::Int(5)),
            ("\"123\"", "BIGINT", Cell::Int(123)),
            ("\"25.50\"", "DECIMAL(10,2)", Cell::Decimal(2550)),
            ("\"true\"", "BOOLEAN", Cell::Bool(true)),
            ("1.5", "FLOAT", Cell::Float(1.5)),
            ("\"-Infinity\"", "DOUBLE", Cell::Float(f64::NEG_INFINITY)),
            ("\"007\"", "STRING", text("007")),
            ("\"a\\u0000b\"", "STRING", text("a\0b")),
            ("1.10", "STRING", text("1.10")),
            ("true", "STRING", text("true")),
            ("{\"a\": [1, 2]}", "STRING", text("{\"a\": [1, 2]}")),
            ("\"null\"", "STRING", text("null")),
            ("\"  padded \"", "STRING", text("  padded ")),
            ("\"1970-01-02\"", "DATE", Cell::Int(1)),
            (
                "\"1970-01-01T00:00:01\"",
                "TIMESTAMP_NTZ",
                Cell::Int(1_000_000),
            ),
            ("\"AQI=\"", "BINARY", Cell::Bytes(vec![1, 2].into())),
            (
                "[1, null]",
                "ARRAY<INT>",
                Cell::List(vec![Cell::Int(1), Cell::Null]),
            ),
            (
                "{\"b\": \"x\"}",
                "STRUCT<a: INT, b: STRING>",
                Cell::Struct(vec![Cell::Null, text("x")]),
            ),
            (
                "{\"k\": 1}",
                "MAP<STRING, INT>",
                Cell::Map(vec![(text("k"), Cell::Int(1))]),
            ),
        ] {
            assert_eq!(read(json, ddl), Ok(cell), "{json} {ddl}");
        }
    }

    #[test]
    fn fields_that_a_struct_lacks_are_reported() {
        let mut reader = reader();
        let data_type = type_of("ARRAY<STRUCT<a: INT>>");
        reader
            .json(
                &token::one_value("[{\"a\": 1, \"b\": null}]").unwrap(),
                &data_type,
            )
            .unwrap();
        assert!(!reader.has_unknown_field);
        reader
            .json(
                &token::one_value("[{\"a\": 1, \"b\": 2}]").unwrap(),
                &data_type,
            )
            .unwrap();
        assert!(reader.has_unknown_field);
    }

    #[test]
    fn text_in_a_nested_column_is_read_as_json() {
        let mut reader = reader();
        let owned = Cow::<str>::Owned("[\"x\"]".into());
        let list = Ok(Cell::List(vec![Cell::Text("x".into())]));
        assert_eq!(reader.text(&owned, &type_of("ARRAY<STRING>")), list);
        assert!(
            reader
                .text(&Cow::Borrowed("[x"), &type_of("ARRAY<STRING>"))
                .is_err()
        );
    }
}
