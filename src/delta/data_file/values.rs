//! The values of a column as Parquet stores them.

use super::bits::Width;
use crate::error::{Error, Result};
use arrow::array::{Array, ArrowPrimitiveType, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit,
    TimestampMicrosecondType,
};
use std::borrow::Cow;

/// What the values of a column are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnKind {
    /// Whole numbers, dates, times and short decimals.
    Number(Width),
    Text,
}

impl ColumnKind {
    /// The kind of a column of this type; `None` where the library encodes it.
    pub(super) fn of(data_type: &DataType) -> Option<ColumnKind> {
        match data_type {
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Date32 => {
                Some(ColumnKind::Number(Width::Bits32))
            }
            DataType::Int64 | DataType::Timestamp(TimeUnit::Microsecond, _) => {
                Some(ColumnKind::Number(Width::Bits64))
            }
            DataType::Decimal128(1..=9, _) => Some(ColumnKind::Number(Width::Bits32)),
            DataType::Decimal128(10..=18, _) => Some(ColumnKind::Number(Width::Bits64)),
            DataType::Utf8 => Some(ColumnKind::Text),
            _ => None,
        }
    }
}

/// The numbers of a column of such a kind that are not NULL.
pub(super) fn numbers(values: &dyn Array) -> Result<Cow<'_, [i64]>> {
    match values.data_type() {
        DataType::Int8 => Ok(widened::<Int8Type>(values)),
        DataType::Int16 => Ok(widened::<Int16Type>(values)),
        DataType::Int32 => Ok(widened::<Int32Type>(values)),
        DataType::Date32 => Ok(widened::<Date32Type>(values)),
        DataType::Int64 => Ok(present(values, values.as_primitive::<Int64Type>().values())),
        DataType::Timestamp(TimeUnit::Microsecond, _) => Ok(present(
            values,
            values.as_primitive::<TimestampMicrosecondType>().values(),
        )),
        DataType::Decimal128(_, _) => {
            let decimals = values.as_primitive::<Decimal128Type>();
            let short = |decimal: i128| {
                let short = i64::try_from(decimal).ok();
                short.ok_or_else(|| {
                    Error::bug(format!("decimal {decimal} is too long for its type"))
                })
            };
            match decimals.null_count() {
                0 => decimals.values().iter().copied().map(short).collect(),
                _ => decimals.iter().flatten().map(short).collect(),
            }
        }
        other => Err(Error::bug(format!("{other} are no whole numbers"))),
    }
}

fn widened<T: ArrowPrimitiveType<Native: Into<i64>>>(values: &dyn Array) -> Cow<'_, [i64]> {
    let values = values.as_primitive::<T>();
    match values.null_count() {
        0 => values
            .values()
            .iter()
            .map(|value| (*value).into())
            .collect(),
        _ => values.iter().flatten().map(Into::into).collect(),
    }
}

fn present<'v>(values: &dyn Array, numbers: &'v [i64]) -> Cow<'v, [i64]> {
    match values.nulls().filter(|nulls| nulls.null_count() > 0) {
        None => Cow::Borrowed(numbers),
        Some(nulls) => nulls.valid_indices().map(|place| numbers[place]).collect(),
    }
}

/// The texts of a column that are not NULL.
pub(super) fn texts(values: &dyn Array) -> Vec<&str> {
    let texts = values.as_string::<i32>();
    match texts.null_count() {
        0 => (0..texts.len()).map(|place| texts.value(place)).collect(),
        _ => texts.iter().flatten().collect(),
    }
}

/// The least and the greatest number.
pub(super) fn range_of_numbers(numbers: &[i64]) -> Option<(i64, i64)> {
    let first = *numbers.first()?;
    let wider = |(min, max): (i64, i64), number: &i64| (min.min(*number), max.max(*number));
    Some(numbers.iter().fold((first, first), wider))
}

/// The least and the greatest text.
pub(super) fn range_of_texts<'t>(
    texts: impl IntoIterator<Item = &'t str>,
) -> Option<(&'t str, &'t str)> {
    let mut texts = texts.into_iter().map(|text| (beginning(text), text));
    let first = texts.next()?;
    // Most differ in their beginnings.
    let range = texts.fold((first, first), |(min, max), text| {
        (min.min(text), max.max(text))
    });
    Some((range.0.1, range.1.1))
}

/// The first bytes of a text; in the order of the texts where they differ.
fn beginning(text: &str) -> u128 {
    let bytes = text.as_bytes();
    match bytes.first_chunk() {
        Some(first) => u128::from_be_bytes(*first),
        None => {
            let mut padded = [0; size_of::<u128>()];
            padded[..bytes.len()].copy_from_slice(bytes);
            u128::from_be_bytes(padded)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_compared_beyond_their_beginnings() {
        let long = "a".repeat(16);
        let (longer, longest) = (long.clone() + "b", long.clone() + "\0");
        let range = |texts: &[&str]| {
            let range = range_of_texts(texts.iter().copied());
            range.map(|(min, max)| (min.to_owned(), max.to_owned()))
        };
        assert_eq!(
            range(&[&longer, &longest, &long]),
            Some((long.clone(), longer))
        );
        let short = |text: &str| text.to_owned();
        assert_eq!(
            range(&["a\0", "a", "a\0\0"]),
            Some((short("a"), short("a\0\0")))
        );
        assert_eq!(range(&["", "é"]), Some((short(""), short("é"))));
        assert_eq!(range(&[]), None);
    }
}
