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
            match decimals.null_count() {
                0 => shortened(decimals.values().iter().copied()),
                _ => shortened(decimals.iter().flatten()),
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

fn shortened<'v>(decimals: impl Iterator<Item = i128>) -> Result<Cow<'v, [i64]>> {
    // What is told of all at once costs less than to ask of each.
    let mut lost = 0;
    let short = |decimal: i128| {
        let short = decimal as i64;
        lost |= i128::from(short) ^ decimal;
        short
    };
    let numbers = decimals.map(short).collect();
    match lost {
        0 => Ok(numbers),
        _ => Err(Error::bug("a decimal is too long for its type")),
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

/// The number that all of them are, if all are alike.
pub(super) fn alike(numbers: &[i64]) -> Option<i64> {
    let (first, behind) = numbers.split_first()?;
    (behind == &numbers[..behind.len()]).then_some(*first)
}

/// The least and the greatest number.
pub(super) fn range_of_numbers(numbers: &[i64]) -> Option<(i64, i64)> {
    /// Of so many numbers none waits for another.
    const AT_ONCE: usize = 8;
    let first = *numbers.first()?;
    let (mut mins, mut maxes) = ([first; AT_ONCE], [first; AT_ONCE]);
    let (groups, rest) = numbers.as_chunks::<AT_ONCE>();
    for group in groups {
        for place in 0..AT_ONCE {
            mins[place] = mins[place].min(group[place]);
            maxes[place] = maxes[place].max(group[place]);
        }
    }
    let all = |of_groups: [i64; AT_ONCE]| of_groups.into_iter().chain(rest.iter().copied());
    Some((all(mins).min()?, all(maxes).max()?))
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
    if let Some(first) = bytes.first_chunk() {
        return u128::from_be_bytes(*first);
    }
    let bits = |length: usize| 8 * length as u32;
    if let (Some(first), Some(last)) = (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
        // The last bytes of a text of fewer than sixteen begin with some of the first ones, which are shifted out.
        let behind = u64::from_be_bytes(*last).checked_shl(bits(16 - bytes.len()));
        let beginning = u128::from(u64::from_be_bytes(*first)) << 64;
        return beginning | u128::from(behind.unwrap_or(0));
    }
    let short = bytes
        .iter()
        .fold(0, |all, byte| all << 8 | u128::from(*byte));
    short.checked_shl(bits(16 - bytes.len())).unwrap_or(0)
}

/// The text that all of them are, if all are alike and none is NULL; told by comparing them all at once.
pub(super) fn alike_texts(values: &dyn Array) -> Option<&str> {
    let texts = values.as_string::<i32>();
    let offsets = texts.value_offsets();
    let (first, last) = (*offsets.first()?, *offsets.last()?);
    if texts.is_empty() || texts.null_count() > 0 {
        return None;
    }
    let length = texts.value_length(0);
    let is_even = offsets.windows(2).all(|pair| pair[1] - pair[0] == length);
    let bytes = &texts.value_data()[first as usize..last as usize];
    let (ahead, behind) = (bytes.get(length as usize..)?, bytes.len() - length as usize);
    (is_even && ahead == &bytes[..behind]).then(|| texts.value(0))
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

    #[test]
    fn beginnings_are_in_the_order_of_texts_of_every_length() {
        let text = "abcdefghijklmnopqrst";
        let padded = |length: usize| {
            let mut bytes = [0; 16];
            let length = length.min(16);
            bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
            u128::from_be_bytes(bytes)
        };
        for length in 0..=text.len() {
            assert_eq!(beginning(&text[..length]), padded(length), "{length}");
        }
    }

    #[test]
    fn texts_are_alike_only_if_each_is() {
        let told = |texts: &[Option<&str>]| {
            let texts = arrow::array::StringArray::from(texts.to_vec());
            alike_texts(&texts).map(str::to_owned)
        };
        assert_eq!(told(&[Some("ab"); 3]), Some("ab".into()));
        assert_eq!(told(&[Some(""); 3]), Some(String::new()));
        assert_eq!(told(&[Some("ab")]), Some("ab".into()));
        assert_eq!(told(&[]), None);
        assert_eq!(told(&[Some("ab"), None]), None);
        assert_eq!(told(&[Some("ab"), Some("ab"), Some("ac")]), None);
        // Repeated bytes, but not in the same pieces.
        assert_eq!(told(&[Some("aa"), Some("a"), Some("aaa")]), None);
        let cut = arrow::array::StringArray::from(vec!["x", "ab", "ab", "y"]).slice(1, 2);
        assert_eq!(alike_texts(&cut), Some("ab"));
    }

    #[test]
    fn numbers_are_alike_only_if_each_is() {
        assert_eq!(alike(&[]), None);
        assert_eq!(alike(&[5]), Some(5));
        assert_eq!(alike(&[5; 9]), Some(5));
        for other in 0..9 {
            let mut numbers = [5; 9];
            numbers[other] = 6;
            assert_eq!(alike(&numbers), None, "{other}");
        }
    }

    #[test]
    fn decimal_that_is_too_long_is_refused() {
        let all = |decimals: &[i128]| shortened(decimals.iter().copied()).map(Cow::into_owned);
        let bounds = [i64::MIN.into(), -1, 0, i64::MAX.into()];
        assert_eq!(all(&bounds).unwrap(), [i64::MIN, -1, 0, i64::MAX]);
        assert!(all(&[0, i128::from(i64::MAX) + 1, 0]).is_err());
        assert!(all(&[i128::from(i64::MIN) - 1]).is_err());
    }

    #[test]
    fn range_of_numbers_has_all_of_them() {
        for count in [1, 7, 8, 9, 17] {
            for extreme in 0..count {
                let mut numbers = vec![5; count];
                numbers[extreme] = i64::MIN;
                assert_eq!(range_of_numbers(&numbers).unwrap().0, i64::MIN);
                numbers[extreme] = i64::MAX;
                assert_eq!(range_of_numbers(&numbers).unwrap().1, i64::MAX);
            }
        }
        assert_eq!(range_of_numbers(&[]), None);
    }
}
