//! Keys and sequences of whole numbers, dates and times as one number each, which compares like them.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit,
    TimestampMicrosecondType,
};

/// A key or a sequence as a number.
pub(super) trait Number: Copy + Ord + Send + Sync {
    fn from_wide(wide: u128) -> Self;
    fn wide(self) -> u128;
}

impl Number for u64 {
    fn from_wide(wide: u128) -> u64 {
        wide as u64
    }
    fn wide(self) -> u128 {
        self.into()
    }
}

impl Number for u128 {
    fn from_wide(wide: u128) -> u128 {
        wide
    }
    fn wide(self) -> u128 {
        self
    }
}

/// How columns of whole numbers and times make one number that compares like them, left to right.
pub(super) struct Packing {
    widths: Vec<u32>,
    /// How many bits of the number are used.
    pub(super) bits: u32,
}

impl Packing {
    /// For columns of these types; `None` where their values do not fit.
    pub(super) fn of<'t>(types: impl IntoIterator<Item = &'t DataType>) -> Option<Packing> {
        let widths: Vec<u32> = types.into_iter().map(width).collect::<Option<_>>()?;
        let bits = widths.iter().sum();
        (bits <= 128).then_some(Packing { widths, bits })
    }

    /// One number for each row, and where all columns have a value.
    pub(super) fn pack(&self, columns: &[ArrayRef]) -> (Vec<u128>, BooleanBuffer) {
        let rows = columns[0].len();
        let mut packed = vec![0; rows];
        let mut valid = BooleanBuffer::new_set(rows);
        for (column, &width) in columns.iter().zip(&self.widths) {
            let shift = |packed: u128| packed.checked_shl(width).unwrap_or(0);
            each_number(column, |row, number| {
                // From the smallest number up, so that negative ones come first.
                let from_least = (number as u128).wrapping_add(1 << (width - 1));
                let kept = u128::MAX >> (128 - width);
                packed[row] = shift(packed[row]) | (from_least & kept);
            });
            if let Some(nulls) = column.nulls() {
                valid = &valid & nulls.inner();
            }
        }
        (packed, valid)
    }

    /// The same number from a row of a comparator, in which each column has one byte before its own, highest first.
    pub(super) fn of_row(&self, row: &[u8]) -> u128 {
        let mut rest = row;
        let mut packed: u128 = 0;
        for &width in &self.widths {
            let (value, behind) = rest[1..].split_at(width as usize / 8);
            for byte in value {
                packed = packed << 8 | u128::from(*byte);
            }
            rest = behind;
        }
        packed
    }
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

fn each_number(column: &ArrayRef, mut take: impl FnMut(usize, i128)) {
    macro_rules! each {
        ($type:ty) => {
            for (row, value) in column.as_primitive::<$type>().values().iter().enumerate() {
                take(row, i128::from(*value));
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
        DataType::Decimal128(..) => each!(Decimal128Type),
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
        Packing::of(columns.iter().map(|column| column.data_type())).unwrap()
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
            let (packed, _) = packing.pack(columns);
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
        assert!(Packing::of([&DataType::Utf8]).is_none());
        assert!(Packing::of([&DataType::Float64]).is_none());
        assert!(Packing::of([&DataType::Int64, &DataType::Int64]).is_some());
        assert!(Packing::of([&DataType::Int64, &DataType::Int64, &DataType::Int8]).is_none());
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
        let (packed, valid) = packing.pack(&columns);
        assert!(packed[0] < packed[1] && packed[1] < packed[2]);
        let (packed_again, _) = packing.pack(&[
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
            let (packed, _) = packing(&columns).pack(&columns);
            assert!(packed.is_sorted_by(|left, right| left < right));
            packed
        };
        packed(decimals);
        let packed = packed(times);
        assert_eq!(packed.last(), Some(&u128::from(u64::MAX)));
    }
}
