//! Keys and sequences of whole numbers, dates and times as one number each, which compares like them.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit,
    TimestampMicrosecondType,
};
use std::cmp::Reverse;

/// A key or a sequence as a number.
pub(super) trait Number: Copy + Ord + Default {
    fn from_wide(wide: u128) -> Self;
    fn wide(self) -> u128;
    /// The number with `value`, which has so many bits, behind its own.
    fn then(self, value: Self, bits: u32) -> Self;
}

/// What events are sorted by: by keys, and those of a key from the highest sequence down.
pub(super) trait Rank: Copy + Ord + Send + Sync {
    type Number: Number;
    /// `sequence` has no more than so many bits, and leaves room for the key.
    fn new(key: Self::Number, sequence: Self::Number, sequence_bits: u32) -> Self;
    fn key(self, sequence_bits: u32) -> Self::Number;
    fn sequence(self, sequence_bits: u32) -> Self::Number;
}

macro_rules! number_and_rank {
    ($type:ty) => {
        impl Number for $type {
            fn from_wide(wide: u128) -> Self {
                wide as Self
            }

            fn wide(self) -> u128 {
                self.into()
            }

            fn then(self, value: Self, bits: u32) -> Self {
                self.checked_shl(bits).unwrap_or(0) | value
            }
        }

        impl Rank for $type {
            type Number = Self;

            fn new(key: Self, sequence: Self, sequence_bits: u32) -> Self {
                key.then(lowest_bits::<Self>(sequence_bits) - sequence, sequence_bits)
            }

            fn key(self, sequence_bits: u32) -> Self {
                self.checked_shr(sequence_bits).unwrap_or(0)
            }

            fn sequence(self, sequence_bits: u32) -> Self {
                let mask = lowest_bits::<Self>(sequence_bits);
                mask - (self & mask)
            }
        }
    };
}

number_and_rank!(u64);
number_and_rank!(u128);

/// Of a key and a sequence that do not fit into one number.
impl Rank for (u128, Reverse<u128>) {
    type Number = u128;

    fn new(key: u128, sequence: u128, _: u32) -> Self {
        (key, Reverse(sequence))
    }

    fn key(self, _: u32) -> u128 {
        self.0
    }

    fn sequence(self, _: u32) -> u128 {
        self.1.0
    }
}

/// How columns of whole numbers and times make one number that compares like them, left to right.
pub(super) struct Packing {
    columns: Vec<PackedColumn>,
    /// How many bits of the number are used.
    pub(super) bits: u32,
}

struct PackedColumn {
    /// The bits of the type.
    width: u32,
    /// The least value, and how far above it the greatest may stand.
    least: u128,
    span: u128,
    /// The bits of `span`.
    bits: u32,
}

impl PackedColumn {
    fn new(data_type: &DataType, range: Option<(i128, i128)>) -> Option<PackedColumn> {
        let width = width(data_type)?;
        let (least, span) = match range {
            Some((min, max)) if min <= max => {
                let least = above_least(min, width);
                (least, above_least(max, width) - least)
            }
            _ => (0, lowest_bits(width)),
        };
        Some(PackedColumn {
            width,
            least,
            span,
            bits: u128::BITS - span.leading_zeros(),
        })
    }

    /// The least value of a type that has no more than 64 bits.
    fn least_number(&self) -> i64 {
        (self.least as i64).wrapping_sub(1 << (self.width - 1))
    }
}

impl Packing {
    /// For columns of these types, with values between these; `None` where they do not fit.
    pub(super) fn of<'t>(
        columns: impl IntoIterator<Item = (&'t DataType, Option<(i128, i128)>)>,
    ) -> Option<Packing> {
        let columns = columns.into_iter();
        let columns: Vec<PackedColumn> = columns
            .map(|(data_type, range)| PackedColumn::new(data_type, range))
            .collect::<Option<_>>()?;
        let bits = columns.iter().map(|column| column.bits).sum();
        (bits <= u128::BITS).then_some(Packing { columns, bits })
    }

    /// One number for each row, and where all columns have a value that fits.
    pub(super) fn pack<N: Number>(&self, columns: &[ArrayRef]) -> (Vec<N>, BooleanBuffer) {
        let rows = columns[0].len();
        let mut packed = vec![N::default(); rows];
        let mut valid = BooleanBuffer::new_set(rows);
        let mut outside = Vec::new();
        for (values, column) in columns.iter().zip(&self.columns) {
            let mut put = |row: usize, value: u128| match value <= column.span {
                true => packed[row] = packed[row].then(N::from_wide(value), column.bits),
                false => outside.push(row),
            };
            match values.as_primitive_opt::<Decimal128Type>() {
                Some(decimals) => {
                    for (row, number) in decimals.values().iter().enumerate() {
                        let value = above_least(*number, column.width);
                        put(row, value.wrapping_sub(column.least));
                    }
                }
                None => {
                    let least = column.least_number();
                    each_number(values, |row, number| {
                        put(row, u128::from(number.wrapping_sub(least) as u64));
                    });
                }
            }
            if let Some(nulls) = values.nulls() {
                valid = &valid & nulls.inner();
            }
        }
        if !outside.is_empty() {
            let mut fits = vec![true; rows];
            outside.into_iter().for_each(|row| fits[row] = false);
            valid = &valid & &BooleanBuffer::from(fits);
        }
        (packed, valid)
    }

    /// The same number from a row of a comparator, in which each column has one byte before its own, highest first. Of a row
    /// that does not fit it is the nearest that may.
    pub(super) fn of_row(&self, row: &[u8]) -> u128 {
        let mut rest = row;
        let mut packed: u128 = 0;
        let mut bits_behind = self.bits;
        for column in &self.columns {
            let (bytes, behind) = rest[1..].split_at(column.width as usize / 8);
            let value = bytes
                .iter()
                .fold(0, |value: u128, byte| value << 8 | u128::from(*byte));
            bits_behind -= column.bits;
            let greatest = lowest_bits::<u128>(bits_behind);
            match value.checked_sub(column.least) {
                None => {
                    return packed.then(0, column.bits).then(0, bits_behind);
                }
                Some(value) if value > column.span => {
                    return packed
                        .then(column.span, column.bits)
                        .then(greatest, bits_behind);
                }
                Some(value) => packed = packed.then(value, column.bits),
            }
            rest = behind;
        }
        packed
    }
}

/// How far a number of a type of so many bits stands above the least of it: like that, negative ones come first.
fn above_least(number: i128, width: u32) -> u128 {
    (number as u128).wrapping_add(1 << (width - 1)) & lowest_bits::<u128>(width)
}

/// So many bits, all of them set.
fn lowest_bits<N: Number>(bits: u32) -> N {
    N::from_wide(u128::MAX.checked_shr(u128::BITS - bits).unwrap_or(0))
}

/// The bits of a type of whole numbers or times.
fn width(data_type: &DataType) -> Option<u32> {
    match data_type {
        DataType::Int8 => Some(8),
        DataType::Int16 => Some(16),
        DataType::Int32 | DataType::Date32 => Some(32),
        DataType::Int64 | DataType::Timestamp(TimeUnit::Microsecond, _) => Some(64),
        DataType::Decimal128(..) => Some(128),
        _ => None,
    }
}

/// Gives the numbers of a column whose type has no more than 64 bits.
fn each_number(column: &ArrayRef, mut take: impl FnMut(usize, i64)) {
    macro_rules! each {
        ($type:ty) => {
            for (row, value) in column.as_primitive::<$type>().values().iter().enumerate() {
                take(row, i64::from(*value));
            }
        };
    }
    match column.data_type() {
        DataType::Int8 => each!(Int8Type),
        DataType::Int16 => each!(Int16Type),
        DataType::Int32 => each!(Int32Type),
        DataType::Date32 => each!(Date32Type),
        DataType::Int64 => each!(Int64Type),
        DataType::Timestamp(..) => each!(TimestampMicrosecondType),
        other => unreachable!("BUG: {other} has no width"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::silver::pool::Comparable;
    use arrow::array::{
        Date32Array, Decimal128Array, Int8Array, Int16Array, Int32Array, Int64Array,
        TimestampMicrosecondArray,
    };
    use std::sync::Arc;

    fn packing(columns: &[ArrayRef]) -> Packing {
        of_types(columns.iter().map(|column| column.data_type())).unwrap()
    }

    fn of_types<'t>(types: impl IntoIterator<Item = &'t DataType>) -> Option<Packing> {
        Packing::of(types.into_iter().map(|data_type| (data_type, None)))
    }

    #[test]
    fn rows_of_a_comparator_make_the_same_numbers() {
        let columns: [ArrayRef; 7] = [
            Arc::new(Int8Array::from(vec![-128, -1, 0, 127])),
            Arc::new(Int16Array::from(vec![-3, 5, 0, i16::MAX])),
            Arc::new(Int32Array::from(vec![i32::MIN, 5, 0, -9])),
            Arc::new(Date32Array::from(vec![-1, 20_000, 0, 9])),
            Arc::new(Int64Array::from(vec![i64::MIN, 7, -7, i64::MAX])),
            Arc::new(TimestampMicrosecondArray::from(vec![-5, 0, 1, i64::MAX])),
            Arc::new(Decimal128Array::from(vec![i128::MIN, -1, 0, i128::MAX])),
        ];
        let check = |columns: &[ArrayRef]| {
            let types: Vec<DataType> = columns
                .iter()
                .map(|column| column.data_type().clone())
                .collect();
            let packing = packing(columns);
            let rows = Comparable::new(&types).unwrap().rows(columns).unwrap();
            let (packed, _) = packing.pack::<u128>(columns);
            for (row, packed) in packed.into_iter().enumerate() {
                assert_eq!(packing.of_row(rows.row(row).data()), packed, "{types:?}");
            }
        };
        columns.chunks(1).for_each(check);
        check(&columns[..4]);
        check(&[columns[4].clone(), columns[5].clone()]);
    }

    #[test]
    fn texts_and_columns_that_are_too_wide_together_make_no_number() {
        assert!(of_types([&DataType::Utf8]).is_none());
        assert!(of_types([&DataType::Float64]).is_none());
        assert!(of_types([&DataType::Int64, &DataType::Int64]).is_some());
        assert!(of_types([&DataType::Int64, &DataType::Int64, &DataType::Int8]).is_none());
    }

    #[test]
    fn numbers_compare_like_their_columns() {
        let small: ArrayRef = Arc::new(Int16Array::from(vec![
            Some(-1),
            Some(0),
            Some(i16::MAX),
            None,
        ]));
        let large: ArrayRef = Arc::new(Int64Array::from(vec![5, i64::MIN, -7, 0]));
        let columns = [small, large];
        let packing = packing(&columns);
        let (packed, valid) = packing.pack::<u128>(&columns);
        assert!(packed[0] < packed[1] && packed[1] < packed[2]);
        let (packed_again, _) = packing.pack::<u128>(&[
            Arc::new(Int16Array::from(vec![-1, -1])),
            Arc::new(Int64Array::from(vec![4, 5])),
        ]);
        assert!(packed_again[0] < packed[0] && packed_again[1] == packed[0]);
        assert_eq!(valid.iter().collect::<Vec<_>>(), [true, true, true, false]);
    }

    #[test]
    fn widest_numbers_and_times_keep_their_order() {
        let decimals: ArrayRef = Arc::new(Decimal128Array::from(vec![i128::MIN, -1, 0, i128::MAX]));
        let times = vec![i64::MIN, -1, 0, 1, i64::MAX];
        let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from(times));
        let packed = |column: ArrayRef| {
            let columns = [column];
            let (packed, _) = packing(&columns).pack::<u128>(&columns);
            assert!(packed.is_sorted_by(|left, right| left < right));
            packed
        };
        packed(decimals);
        let packed = packed(times);
        assert_eq!(packed.last(), Some(&u128::from(u64::MAX)));
    }

    #[test]
    fn columns_with_known_ranges_take_the_bits_of_these() {
        let small = (&DataType::Int64, Some((-3, 4)));
        let one = (&DataType::Int16, Some((7, 7)));
        let packing = Packing::of([small, one]).unwrap();
        assert_eq!(packing.bits, 3);
        let large: ArrayRef = Arc::new(Int64Array::from(vec![-3, -4, 0, 4, 5, i64::MIN]));
        let of_one: ArrayRef = Arc::new(Int16Array::from(vec![7, 7, 7, 7, 7, 6]));
        let columns = [large, of_one];
        let (packed, fits) = packing.pack::<u64>(&columns);
        let fits: Vec<bool> = fits.iter().collect();
        assert_eq!(fits, [true, false, true, true, false, false]);
        assert_eq!([packed[0], packed[2], packed[3]], [0, 3, 7]);
        let types = [DataType::Int64, DataType::Int16];
        let rows = Comparable::new(&types).unwrap().rows(&columns).unwrap();
        let of_rows: Vec<u128> = (0..6)
            .map(|row| packing.of_row(rows.row(row).data()))
            .collect();
        assert_eq!(of_rows, [0, 0, 3, 7, 7, 0]);
    }

    #[test]
    fn rows_outside_of_ranges_are_those_next_to_them() {
        let range = |least, most| (&DataType::Int8, Some((least, most)));
        let packing = Packing::of([range(0, 2), range(10, 13)]).unwrap();
        let of_row = |left: i8, right: i8| {
            let columns =
                [left, right].map(|value| Arc::new(Int8Array::from(vec![value])) as ArrayRef);
            let comparator = Comparable::new(&[DataType::Int8, DataType::Int8]).unwrap();
            packing.of_row(comparator.rows(&columns).unwrap().row(0).data())
        };
        let all: Vec<u128> = [(1, 9), (1, 10), (1, 13), (1, 14), (-1, 12), (3, 11)]
            .map(|(left, right)| of_row(left, right))
            .to_vec();
        assert_eq!(all, [0b0100, 0b0100, 0b0111, 0b0111, 0, 0b1011]);
    }

    #[test]
    fn ranks_sort_by_key_and_from_the_highest_sequence_down() {
        fn check<R: Rank + std::fmt::Debug>(bits: u32) {
            let greatest = lowest_bits::<u128>(bits);
            let events = [(0, greatest), (0, 1), (0, 0), (1, greatest), (1, 7), (2, 0)];
            let ranks = events.map(|(key, sequence)| {
                let number = <R::Number as Number>::from_wide;
                let rank = R::new(number(key), number(sequence), bits);
                assert_eq!(
                    (rank.key(bits).wide(), rank.sequence(bits).wide()),
                    (key, sequence)
                );
                rank
            });
            assert!(ranks.is_sorted_by(|left, right| left < right), "{ranks:?}");
        }
        check::<u64>(4);
        check::<u64>(62);
        check::<u128>(64);
        check::<u128>(126);
        check::<(u128, Reverse<u128>)>(128);
        let rank = <u64 as Rank>::new(0, 5, 64);
        assert_eq!((Rank::key(rank, 64), Rank::sequence(rank, 64)), (0, 5));
        let rank = <u64 as Rank>::new(5, 0, 0);
        assert_eq!((Rank::key(rank, 0), Rank::sequence(rank, 0)), (5, 0));
    }
}
