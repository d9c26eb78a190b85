//! Reads values by the way in which those of their column are mostly written, straight into the column.
//!
//! A value that is written in another way is read as any value is, or not at all, and then its record is left whole to those
//! who say what is wrong with a record. Only the text behind a JSON value says whether it ends there, so that is left to
//! whoever compares that text.

mod digits;

use super::columns::Column;
use super::csv::CsvValue;
use super::escape::unescape;
use super::marks::plain_length;
use super::rows::Rows;
use super::token::Scanner;
use super::value::Cell;
use arrow::datatypes::{DataType, Field};
use digits::{Digits, short_decimal, short_float, short_integer};
use std::ops::Range;

/// A column that takes values, and where it stands.
pub(super) struct Leaf {
    kind: Kind,
    /// The place of the column.
    pub(super) place: usize,
    /// The column of the schema, where it is in no STRUCT.
    pub(super) index: Option<usize>,
    /// The objects around a value.
    depth: usize,
}

/// How the values of a column are mostly written.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Text,
    /// A whole number of so many bits.
    Integer(u32),
    /// A decimal below so many of its last place, with so many places.
    Decimal(i64, usize),
    Double,
    Float,
    Bool,
    Date,
    /// A time: an instant, or on the wall.
    Time(bool),
    Other,
}

impl Leaf {
    /// The column of a field with so many STRUCTs around it.
    pub(super) fn new(place: usize, index: Option<usize>, field: &Field, depth: usize) -> Leaf {
        Leaf {
            kind: Kind::of(field.data_type()),
            place,
            index,
            depth: depth + 1,
        }
    }

    /// Reads the JSON value at the place of the scanner into the column; `None` where it does not fit.
    #[inline]
    pub(super) fn read<'a>(&self, scanner: &mut Scanner<'a>, rows: &mut Rows<'a>) -> Option<()> {
        let column = rows.columns.at(self.place);
        let found = match (self.kind, scanner.peek()?) {
            (Kind::Text, b'"') => return quoted_text(column, scanner),
            (_, b'-' | b'0'..=b'9') => number(self.kind, column, scanner),
            (Kind::Time(is_instant), b'"') => {
                let text = &scanner.rest()[1..];
                if is_instant
                    && let Some((micros, length)) = rows.reader.formats.usual_instant(text)
                    && text.get(length) == Some(&b'"')
                {
                    scanner.skip(length + 2);
                    return column.push_int(micros);
                }
                let stamp = rows.reader.formats.timestamp(scanner.plain()?).ok()?;
                return (stamp.has_offset == is_instant).then(|| column.push_int(stamp.micros))?;
            }
            (Kind::Date, b'"') => {
                let days = rows.reader.formats.date(scanner.plain()?).ok()?;
                return column.push_int(i64::from(days));
            }
            (Kind::Bool, b't') => word(scanner, b"true").and_then(|()| column.push_bool(true)),
            (Kind::Bool, b'f') => word(scanner, b"false").and_then(|()| column.push_bool(false)),
            (_, b'n') => word(scanner, b"null").map(|()| rows.columns.push(self.place, Cell::Null)),
            _ => None,
        };
        match found {
            Some(()) => Some(()),
            None => self.read_any(scanner, rows),
        }
    }

    /// Reads a JSON value that is written in another way.
    #[inline(never)]
    fn read_any<'a>(&self, scanner: &mut Scanner<'a>, rows: &mut Rows<'a>) -> Option<()> {
        let token = scanner.value(self.depth).ok()?;
        rows.push(self.place, self.index, &token)
    }

    /// Reads a value that is a piece of a text, without quotes, into the column; `None` where it does not fit.
    #[inline]
    pub(super) fn read_text<'a>(
        &self,
        text: &'a str,
        piece: Range<usize>,
        rows: &mut Rows<'a>,
    ) -> Option<()> {
        let value = text.get(piece.clone())?;
        let column = rows.columns.at(self.place);
        match self.kind {
            Kind::Text => column.push_beginning(text.as_bytes().get(piece.start..)?, value.len()),
            Kind::Time(is_instant) if !value.is_empty() => {
                let stamp = rows.reader.formats.timestamp(value).ok()?;
                (stamp.has_offset == is_instant).then(|| column.push_int(stamp.micros))?
            }
            Kind::Date if !value.is_empty() => {
                let days = rows.reader.formats.date(value).ok()?;
                column.push_int(i64::from(days))
            }
            // No number would keep the sign of this zero.
            _ if value != "-0" => {
                let before = column.len();
                let mut scanner = Scanner::at(text, piece.start);
                if number(self.kind, column, &mut scanner).is_some() && scanner.place() == piece.end
                {
                    return Some(());
                }
                column.truncate(before);
                rows.push(self.place, self.index, &CsvValue::of(value))
            }
            _ => rows.push(self.place, self.index, &CsvValue::of(value)),
        }
    }

    /// Puts NULL into the column.
    pub(super) fn put_null(&self, rows: &mut Rows<'_>) {
        rows.columns.push(self.place, Cell::Null);
    }
}

impl Kind {
    fn of(data_type: &DataType) -> Kind {
        match data_type {
            DataType::Utf8 => Kind::Text,
            DataType::Int8 => Kind::Integer(8),
            DataType::Int16 => Kind::Integer(16),
            DataType::Int32 => Kind::Integer(32),
            DataType::Int64 => Kind::Integer(64),
            DataType::Decimal128(digits, places) => {
                let bound = 10i64.checked_pow(u32::from(*digits)).unwrap_or(i64::MAX);
                usize::try_from(*places).map_or(Kind::Other, |places| Kind::Decimal(bound, places))
            }
            DataType::Float64 => Kind::Double,
            DataType::Float32 => Kind::Float,
            DataType::Boolean => Kind::Bool,
            DataType::Date32 => Kind::Date,
            DataType::Timestamp(_, zone) => Kind::Time(zone.is_some()),
            _ => Kind::Other,
        }
    }
}

/// Reads a number without exponent and of few digits; leaves the scanner where it is for any other value.
#[inline(always)]
fn number(kind: Kind, column: &mut Column, scanner: &mut Scanner<'_>) -> Option<()> {
    match kind {
        Kind::Integer(bits) => column.push_int(short_integer(scanner, bits)?),
        Kind::Decimal(bound, places) => {
            let value = short_decimal(scanner, bound, places)?;
            column.push_decimal(i128::from(value))
        }
        Kind::Double => column.push_float(short_float(scanner, Digits::double)?),
        Kind::Float => column.push_float(short_float(scanner, Digits::float)?),
        Kind::Text | Kind::Bool | Kind::Date | Kind::Time(_) | Kind::Other => None,
    }
}

#[inline]
fn quoted_text(column: &mut Column, scanner: &mut Scanner<'_>) -> Option<()> {
    let behind_quote = &scanner.rest()[1..];
    let length = plain_length(behind_quote);
    if behind_quote.get(length) == Some(&b'"') {
        scanner.skip(length + 2);
        return column.push_beginning(behind_quote, length);
    }
    let (inner, has_escapes) = scanner.quoted().ok()?;
    match has_escapes {
        true => column.push_text(&unescape(inner)),
        false => column.push_text(inner),
    }
}

/// Goes behind a word; leaves the scanner where it is for every other value.
fn word(scanner: &mut Scanner<'_>, word: &[u8]) -> Option<()> {
    scanner
        .rest()
        .starts_with(word)
        .then(|| scanner.skip(word.len()))
}
