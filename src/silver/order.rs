//! The order of events that the law gives: by key, then by sequence, file and row (`docs/guarantees.md`).

use arrow::array::{ArrayRef, AsArray, StringArray};
use arrow::row::Rows;
use std::cmp::Ordering;
use std::ops::Range;

/// Events in the total order of the law.
pub(super) struct Ordered {
    /// Their places by (key, sequence, file, row).
    pub(super) order: Vec<u32>,
    /// One range of them for each key, in the order of the keys.
    pub(super) groups: Vec<Range<usize>>,
}

/// Sorts all events and groups them by key.
pub(super) fn order_of_events(
    keys: &Rows,
    sequences: &Rows,
    files: &ArrayRef,
    rows: &[i64],
) -> Ordered {
    let places = Places {
        keys,
        sequences,
        files: files.as_string::<i32>(),
        rows,
    };
    match (Prefix::of(keys), Prefix::of(sequences)) {
        (Prefix::Number, Prefix::Number) => match places.sorted_as_one() {
            Some(ordered) => ordered,
            None => places.sorted(number, number, [true; 2]),
        },
        (of_keys, of_sequences) => {
            let is_whole = |prefix| matches!(prefix, Prefix::Number | Prefix::Whole);
            places.sorted(prefix, prefix, [of_keys, of_sequences].map(is_whole))
        }
    }
}

/// What the first bytes of comparable rows tell.
#[derive(Clone, Copy)]
enum Prefix {
    /// All of them stand behind one byte that they share, and are eight at most: a number or time that is not NULL.
    Number,
    /// All of them are sixteen at most.
    Whole,
    Part,
}

impl Prefix {
    fn of(rows: &Rows) -> Prefix {
        let mut lengths = rows.iter().map(|row| row.data().len());
        let first = lengths.next().unwrap_or(0);
        if first > 16 || !lengths.all(|length| length == first) {
            return Prefix::Part;
        }
        let mut heads = rows.iter().map(|row| row.data().first().copied());
        let head = heads.next().flatten();
        match first <= 9 && heads.all(|other| other == head) {
            true => Prefix::Number,
            false => Prefix::Whole,
        }
    }
}

/// What tells the places of events.
struct Places<'a> {
    keys: &'a Rows,
    sequences: &'a Rows,
    files: &'a StringArray,
    rows: &'a [i64],
}

impl Places<'_> {
    /// Sorts by the beginnings of keys and sequences, and by what is behind them where they are not the whole.
    fn sorted<K: Ord + Copy>(
        &self,
        key: fn(&[u8]) -> K,
        sequence: fn(&[u8]) -> K,
        is_whole: [bool; 2],
    ) -> Ordered {
        let count = self.count();
        let entry = |event: u32| {
            let row = event as usize;
            let (keys, sequences) = (self.keys.row(row), self.sequences.row(row));
            (key(keys.data()), sequence(sequences.data()), event)
        };
        let mut entries: Vec<(K, K, u32)> = (0..count).map(entry).collect();
        let rest = |of: &Rows, is_whole: bool, left: u32, right: u32| match is_whole {
            true => Ordering::Equal,
            false => of.row(left as usize).cmp(&of.row(right as usize)),
        };
        let by_key = |left: &(K, K, u32), right: &(K, K, u32)| {
            let by_beginning = left.0.cmp(&right.0);
            by_beginning.then_with(|| rest(self.keys, is_whole[0], left.2, right.2))
        };
        entries.sort_unstable_by(|left, right| {
            by_key(left, right)
                .then_with(|| left.1.cmp(&right.1))
                .then_with(|| rest(self.sequences, is_whole[1], left.2, right.2))
                .then_with(|| self.by_place(left.2, right.2))
        });
        let groups = groups(entries.chunk_by(|left, right| by_key(left, right).is_eq()));
        let order = entries.into_iter().map(|(.., event)| event).collect();
        Ordered { order, groups }
    }

    /// Sorts by keys and sequences, both of them numbers, as one number each; `None` where they need more bits.
    fn sorted_as_one(&self) -> Option<Ordered> {
        let (least_key, key_bits) = range(self.keys);
        let (least_sequence, sequence_bits) = range(self.sequences);
        if key_bits + sequence_bits > u64::BITS {
            return None;
        }
        let entry = |event: u32| {
            let row = event as usize;
            let key = number(self.keys.row(row).data()) - least_key;
            let sequence = number(self.sequences.row(row).data()) - least_sequence;
            let key = key.checked_shl(sequence_bits).unwrap_or(0);
            (key | sequence, event)
        };
        let mut entries: Vec<(u64, u32)> = (0..self.count()).map(entry).collect();
        entries.sort_unstable_by(|left, right| {
            let by_number = left.0.cmp(&right.0);
            by_number.then_with(|| self.by_place(left.1, right.1))
        });
        let key = |entry: &(u64, u32)| entry.0.checked_shr(sequence_bits).unwrap_or(0);
        let groups = groups(entries.chunk_by(|left, right| key(left) == key(right)));
        let order = entries.into_iter().map(|(_, event)| event).collect();
        Some(Ordered { order, groups })
    }

    fn count(&self) -> u32 {
        let count = u32::try_from(self.rows.len());
        count.expect("one apply holds fewer than 4 billion events")
    }

    fn by_place(&self, left: u32, right: u32) -> Ordering {
        let (left, right) = (left as usize, right as usize);
        let by_file = self.files.value(left).cmp(self.files.value(right));
        by_file.then(self.rows[left].cmp(&self.rows[right]))
    }
}

/// Where sorted events of one key stand, for one key after the other.
fn groups<'e, T: 'e>(of_keys: impl Iterator<Item = &'e [T]>) -> Vec<Range<usize>> {
    let mut start = 0;
    let group = |of_key: &'e [T]| {
        let first = start;
        start += of_key.len();
        first..start
    };
    of_keys.map(group).collect()
}

/// The least of rows that are numbers, and how many bits all of them take above it.
fn range(of: &Rows) -> (u64, u32) {
    let (mut least, mut greatest) = (u64::MAX, 0);
    for row in of {
        let number = number(row.data());
        least = least.min(number);
        greatest = greatest.max(number);
    }
    let span = greatest.saturating_sub(least);
    (least, u64::BITS - span.leading_zeros())
}

/// The bytes behind the first one, at most eight, as a number that compares like them.
fn number(row: &[u8]) -> u64 {
    let bytes = row.get(1..).unwrap_or_default();
    match bytes.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => bytes
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte)),
    }
}

/// The first bytes of a comparable row as a number that compares like them.
pub(super) fn prefix(row: &[u8]) -> u128 {
    let mut bytes = [0; 16];
    let length = row.len().min(bytes.len());
    bytes[..length].copy_from_slice(&row[..length]);
    u128::from_be_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{BooleanArray, Int16Array, Int32Array, Int64Array};
    use arrow::row::{RowConverter, SortField};
    use std::sync::Arc;

    /// Orders events of these keys by what the library says of each pair, and checks that ours is the same.
    fn check_order(keys: &[ArrayRef], sequences: &ArrayRef) {
        let count = sequences.len();
        let files: Vec<String> = (0..count)
            .map(|event| format!("f{}", event * 3 % 4))
            .collect();
        let rows_of = |columns: &[ArrayRef]| {
            let field = |column: &ArrayRef| SortField::new(column.data_type().clone());
            let converter = RowConverter::new(columns.iter().map(field).collect()).unwrap();
            converter.convert_columns(columns).unwrap()
        };
        let (key_rows, sequence_rows) = (rows_of(keys), rows_of(std::slice::from_ref(sequences)));
        let file_column: ArrayRef = Arc::new(StringArray::from(files.clone()));
        let places: Vec<i64> = (0..count as i64).rev().collect();
        let ordered = order_of_events(&key_rows, &sequence_rows, &file_column, &places);
        let mut expected: Vec<u32> = (0..count as u32).collect();
        expected.sort_by(|left, right| {
            let (left, right) = (*left as usize, *right as usize);
            let by_key = key_rows.row(left).cmp(&key_rows.row(right));
            by_key
                .then(sequence_rows.row(left).cmp(&sequence_rows.row(right)))
                .then(files[left].cmp(&files[right]))
                .then(places[left].cmp(&places[right]))
        });
        assert_eq!(ordered.order, expected);
        let key = |event: &u32| key_rows.row(*event as usize);
        let groups = expected.chunk_by(|left, right| key(left) == key(right));
        let sizes: Vec<usize> = groups.map(<[u32]>::len).collect();
        let found: Vec<usize> = ordered.groups.iter().map(Range::len).collect();
        assert_eq!(found, sizes);
        assert_eq!(ordered.groups.last().unwrap().end, count);
    }

    #[test]
    fn events_are_ordered_by_whole_keys_whatever_their_first_bytes_tell() {
        const COUNT: usize = 200;
        let texts = [
            "",
            "a",
            "a\0",
            "the same first bytes, x",
            "the same first bytes, y",
        ];
        let number = |event: usize, of: usize| (event * 7 % of) as i64 - 2;
        let long = |of: usize| (0..COUNT).map(move |event| number(event, of));
        let text: ArrayRef = Arc::new(StringArray::from_iter_values(
            (0..COUNT).map(|event| texts[event * 7 % texts.len()]),
        ));
        let few: ArrayRef = Arc::new(Int64Array::from_iter_values(long(5)));
        let many: ArrayRef = Arc::new(Int64Array::from_iter_values(
            long(97).map(|number| number * (i64::MAX / 100)),
        ));
        let some = |number: i64| (number != 0).then_some(number);
        let with_null: ArrayRef = Arc::new(Int64Array::from_iter(long(5).map(some)));
        let short: ArrayRef = Arc::new(Int32Array::from_iter_values(long(5).map(|n| n as i32)));
        let tiny: ArrayRef = Arc::new(Int16Array::from_iter_values(long(3).map(|n| n as i16)));
        let truth: ArrayRef = Arc::new(BooleanArray::from_iter(long(2).map(|n| Some(n > -2))));
        let keys: [&[ArrayRef]; 7] = [
            std::slice::from_ref(&text),
            std::slice::from_ref(&few),
            std::slice::from_ref(&many),
            &[with_null],
            &[short.clone(), truth.clone()],
            &[short, tiny],
            &[truth, text.clone()],
        ];
        for keys in keys {
            for sequences in [&few, &many, &text] {
                check_order(keys, sequences);
            }
        }
    }
}
