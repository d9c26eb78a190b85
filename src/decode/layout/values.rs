//! Reads values by the way in which those of their column are mostly written, straight into the column.
//!
//! A value that is written in another way is read as the scanner reads it, or not at all. Only the text behind a value says
//! whether it ends there, so that is left to whoever compares that text.

use crate::decode::columns::Column;
use crate::decode::escape::unescape;
use crate::decode::rows::Rows;
use crate::decode::token::Scanner;
use crate::decode::value::Cell;
use arrow::datatypes::{DataType, Field};

/// Whole numbers of so many digits fit into 64 bits.
const DIGITS_MAX: usize = 18;
/// Up to this a DOUBLE holds every whole number.
const DOUBLE_DIGITS: u64 = 1 << 53;
/// A FLOAT keeps so many digits of every number, and every whole number of so many.
const FLOAT_DIGITS: usize = 6;
/// The powers of ten that a DOUBLE holds exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];
/// Those that a FLOAT holds exactly.
const SHORT_POWERS: [f32; 11] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10];

/// A column that takes values, and where it stands.
pub(super) struct Leaf {
    kind: Kind,
    /// The place of the column.
    place: usize,
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

    /// Reads the value at the place of the scanner into the column; `None` where it does not fit.
    #[inline]
    pub(super) fn read<'a>(&self, scanner: &mut Scanner<'a>, rows: &mut Rows<'a>) -> Option<()> {
        let column = rows.columns.at(self.place);
        let found = match (self.kind, scanner.peek()?) {
            (Kind::Text, b'"') => return text(column, scanner),
            (Kind::Integer(bits), b'-' | b'0'..=b'9') => match short_integer(scanner) {
                Some(value) => {
                    let spare = 64 - bits;
                    let fits = (value << spare) >> spare == value;
                    return fits.then(|| column.push_int(value))?;
                }
                None => None,
            },
            (Kind::Double, b'-' | b'0'..=b'9') => {
                short_float(scanner, Digits::double).and_then(|value| column.push_float(value))
            }
            (Kind::Float, b'-' | b'0'..=b'9') => {
                short_float(scanner, Digits::float).and_then(|value| column.push_float(value))
            }
            (Kind::Decimal(bound, places), b'-' | b'0'..=b'9') => {
                match short_decimal(scanner, places) {
                    Some(value) => {
                        let fits = value.abs() < bound;
                        return fits.then(|| column.push_decimal(i128::from(value)))?;
                    }
                    None => None,
                }
            }
            (Kind::Time(is_instant), b'"') => {
                let (inner, has_escapes) = scanner.quoted().ok()?;
                let stamp = rows.reader.formats.timestamp(inner).ok()?;
                let fits = !has_escapes && stamp.has_offset == is_instant;
                return fits.then(|| column.push_int(stamp.micros))?;
            }
            (Kind::Date, b'"') => {
                let (inner, has_escapes) = scanner.quoted().ok()?;
                let days = rows.reader.formats.date(inner).ok()?;
                return (!has_escapes).then(|| column.push_int(i64::from(days)))?;
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

    /// Reads a value that is written in another way.
    #[inline(never)]
    fn read_any<'a>(&self, scanner: &mut Scanner<'a>, rows: &mut Rows<'a>) -> Option<()> {
        let token = scanner.value(self.depth).ok()?;
        rows.push(self.place, self.index, &token)
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

fn text(column: &mut Column, scanner: &mut Scanner<'_>) -> Option<()> {
    let (inner, has_escapes) = scanner.quoted().ok()?;
    if has_escapes {
        return column.push_text(&unescape(inner));
    }
    column.push_text(inner)
}

/// Goes behind a word; leaves the scanner where it is for every other value.
fn word(scanner: &mut Scanner<'_>, word: &[u8]) -> Option<()> {
    scanner
        .rest()
        .starts_with(word)
        .then(|| scanner.skip(word.len()))
}

/// A whole number of few digits; leaves the scanner where it is for every other value.
fn short_integer(scanner: &mut Scanner<'_>) -> Option<i64> {
    let rest = scanner.rest();
    let negative = rest.first() == Some(&b'-');
    let digits = &rest[usize::from(negative)..];
    let (mut value, mut count) = (0i64, 0);
    while let Some(digit @ b'0'..=b'9') = digits.get(count)
        && count < DIGITS_MAX
    {
        value = value * 10 + i64::from(digit - b'0');
        count += 1;
    }
    let is_number = count > 0 && (count == 1 || digits[0] != b'0');
    let goes_on = matches!(digits.get(count), Some(b'0'..=b'9' | b'.' | b'e' | b'E'));
    if !is_number || goes_on {
        return None;
    }
    scanner.skip(usize::from(negative) + count);
    Some(if negative { -value } else { value })
}

/// A decimal of few digits as a whole number of its last place; leaves the scanner where it is for every other value.
fn short_decimal(scanner: &mut Scanner<'_>, places: usize) -> Option<i64> {
    let digits = Digits::at(scanner)?;
    let missing = places.checked_sub(digits.behind)?;
    if digits.count + missing > DIGITS_MAX {
        return None;
    }
    let value = i64::try_from(digits.value).ok()? * 10i64.pow(u32::try_from(missing).ok()?);
    scanner.skip(digits.length);
    Some(if digits.negative { -value } else { value })
}

/// A float that `nearest` gives for its digits; leaves the scanner where it is for every other value.
#[inline]
fn short_float(scanner: &mut Scanner<'_>, nearest: impl Fn(&Digits) -> Option<f64>) -> Option<f64> {
    let digits = Digits::at(scanner)?;
    let value = nearest(&digits)?;
    scanner.skip(digits.length);
    Some(value)
}

/// A number of few digits without exponent.
struct Digits {
    negative: bool,
    /// All digits as one whole number.
    value: u64,
    count: usize,
    /// Those behind the point.
    behind: usize,
    has_point: bool,
    /// Bytes of the text.
    length: usize,
}

impl Digits {
    /// The number at the place of the scanner; `None` for every value that is none, or is written in another way.
    #[inline]
    fn at(scanner: &Scanner<'_>) -> Option<Digits> {
        let rest = scanner.rest();
        let negative = rest.first() == Some(&b'-');
        let digits = &rest[usize::from(negative)..];
        let (mut value, mut length, mut point) = (0u64, 0, None);
        // The point may be one of them.
        while length <= DIGITS_MAX {
            match digits.get(length) {
                Some(digit @ b'0'..=b'9') => value = value * 10 + u64::from(digit - b'0'),
                Some(b'.') if point.is_none() => point = Some(length),
                _ => break,
            }
            length += 1;
        }
        let whole = point.unwrap_or(length);
        let behind = point.map_or(0, |point| length - point - 1);
        let is_number =
            whole > 0 && (whole == 1 || digits[0] != b'0') && (point.is_none() || behind > 0);
        let goes_on = matches!(digits.get(length), Some(b'0'..=b'9' | b'.' | b'e' | b'E'));
        (is_number && !goes_on).then_some(Digits {
            negative,
            value,
            count: whole + behind,
            behind,
            has_point: point.is_some(),
            length: usize::from(negative) + length,
        })
    }

    /// The nearest DOUBLE, if it surely keeps the digits.
    ///
    /// Behind a point it does if two of them that follow each other are less apart than two numbers of so many digits.
    #[inline]
    fn double(&self) -> Option<f64> {
        let keeps = match self.has_point {
            true => self.value < DOUBLE_DIGITS / 2,
            false => self.value <= DOUBLE_DIGITS,
        };
        let power = POWERS.get(self.behind).filter(|_| keeps)?;
        // Both are exact, so the quotient is the nearest.
        let value = self.value as f64 / power;
        Some(if self.negative { -value } else { value })
    }

    /// The nearest FLOAT, if it surely keeps the digits.
    #[inline]
    fn float(&self) -> Option<f64> {
        let power = SHORT_POWERS.get(self.behind)?;
        if self.count > FLOAT_DIGITS {
            return None;
        }
        let value = self.value as f32 / power;
        Some(f64::from(if self.negative { -value } else { value }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::number;
    use crate::decode::testing::numbers;

    #[test]
    fn floats_of_few_digits_are_those_of_the_scanner() {
        let mut next = numbers(7);
        let (mut doubles, mut floats) = (0, 0);
        for round in 0..200_000 {
            let mut text = String::from(if next(2) == 0 { "-" } else { "" });
            if next(4) == 0 {
                text.push_str("0.");
            }
            let count = 1 + next(19);
            for place in 0..count {
                if place > 0 && !text.contains('.') && next(count) == 0 {
                    text.push('.');
                }
                let digit = if round % 3 == 0 {
                    [0, 9][next(2)]
                } else {
                    next(10)
                };
                text.push_str(&digit.to_string());
            }
            let double = short_float(&mut Scanner::at(&text, 0), Digits::double);
            if let Some(double) = double {
                let exact = number::float::<f64>(&text).map(f64::to_bits);
                assert_eq!(exact, Ok(double.to_bits()), "{text}");
                doubles += 1;
            }
            let float = short_float(&mut Scanner::at(&text, 0), Digits::float);
            if let Some(float) = float {
                let exact = number::float::<f32>(&text).map(f32::to_bits);
                assert_eq!(exact, Ok((float as f32).to_bits()), "{text}");
                floats += 1;
            }
        }
        assert!(doubles > 50_000 && floats > 20_000, "{doubles} {floats}");
    }

    #[test]
    fn what_is_no_plain_number_of_few_digits_is_left_where_it_is() {
        for text in [
            "",
            "-",
            "01",
            "-00.5",
            "1.",
            ".5",
            "1e5",
            "1.5E1",
            "12345678901234567890",
        ] {
            let mut scanner = Scanner::at(text, 0);
            assert!(Digits::at(&scanner).is_none(), "{text}");
            assert_eq!(short_integer(&mut scanner), None, "{text}");
            assert_eq!(short_decimal(&mut scanner, 3), None, "{text}");
            assert_eq!(scanner.place(), 0, "{text}");
        }
        assert_eq!(short_decimal(&mut Scanner::at("1.2345", 0), 3), None);
        assert_eq!(
            short_decimal(&mut Scanner::at("-1.25,", 0), 3),
            Some(-1_250)
        );
    }
}
