//! Finds the events of a large version of bronze that cannot show in silver, so that only the others are read whole.
//!
//! An upsert sets every column, unless the settings say otherwise, and nothing below it shows above it. So of the events of a
//! key those count that stand at the sequence of its last such event or above. Those of equal sequence are kept too, wherever
//! they stand: they are counted. Keys, sequences and operations alone are read for that.
//!
//! What became of the hidden events is to be counted where silver has a row of their key: none of them is late if the lowest
//! stands above that row, and otherwise all events of the key are read after all.

mod packing;

use crate::delta::{DataFile, StatValue, Table};
use crate::error::Result;
use crate::events::{EventClassifier, EventKind};
use crate::parallel::{in_parallel, lock};
use crate::silver::fold::Shape;
use crate::silver::pieces::Piece;
use crate::silver::plan::SilverPlan;
use arrow::buffer::{BooleanBuffer, Buffer};
use arrow::datatypes::SchemaRef;
use packing::{Number, Packing, Rank};
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Smaller versions are folded whole.
const SIFTED_EVENTS_MIN: usize = if cfg!(debug_assertions) { 4 } else { 200_000 };
/// So many bytes of keys and sequences are in memory at once.
const ENTRY_BYTES_MAX: usize = if cfg!(debug_assertions) {
    1_024
} else {
    400 << 20
};
/// Events are sorted in so many buckets by their keys.
const BUCKETS: usize = 256;
/// Those of a bucket stand in cells of so many, about, so that few are sorted at once.
const CELL_ENTRIES: usize = 8;
const CELLS_MAX: usize = 1 << 14;
/// The place of an event among all rows of a version has one bit less than a number of 32.
const ROWS_MAX: usize = 1 << 31;

/// Which events of a version are to be read whole.
pub(super) struct Sifted {
    /// One bit for each live row of the version.
    pub(super) kept: BooleanBuffer,
    /// The others, where something is to be counted of them.
    pub(super) hidden: Option<Hidden>,
}

/// What silver has when a version is sifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Present {
    /// No row, so that no event is late.
    Nothing,
    Rows,
}

/// The events that are not.
pub(super) struct Hidden {
    key: Packing,
    sequence: Packing,
    /// Of each bucket the keys that have some, ascending, with the lowest of their sequences.
    lowest: Vec<Vec<(u128, u128)>>,
}

impl Hidden {
    /// Whether there is one of this key at this sequence or below. Both are rows of a comparator. For a key outside of the range
    /// of the version it may say so wrongly; then all events of the key are read.
    pub(super) fn reaches(&self, key: &[u8], sequence: &[u8]) -> bool {
        let key = self.key.of_row(key);
        let bucket = &self.lowest[bucket_of(key)];
        bucket
            .binary_search_by_key(&key, |(key, _)| *key)
            .is_ok_and(|place| bucket[place].1 <= self.sequence.of_row(sequence))
    }
}

/// The rows of `files`, which a version added, that silver must see; `None` where all of them are to be seen.
pub(super) fn sift(
    bronze: &Table,
    plan: &SilverPlan,
    schema: &SchemaRef,
    files: &[DataFile],
    pieces: &[Piece],
    present: Present,
) -> Result<Option<Sifted>> {
    let rows = pieces.last().map_or(0, |piece| piece.rows.end);
    let is_sifted = plan.shape != Shape::History && !plan.snapshots && !plan.is_partial();
    if !is_sifted || !(SIFTED_EVENTS_MIN..ROWS_MAX).contains(&rows) {
        return Ok(None);
    }
    let packing = |places: &[usize]| {
        let columns = places.iter().map(|&place| &plan.columns[place]);
        Packing::of(columns.map(|column| (column.data_type(), range_in(files, column.name()))))
    };
    let (Some(key), Some(sequence)) = (packing(&plan.keys), packing(&plan.sequence)) else {
        return Ok(None);
    };
    let bits = key.bits + sequence.bits;
    let sift = Sift {
        bronze,
        plan,
        files,
        pieces,
        columns: columns_read(plan, schema)?,
        key,
        sequence,
        counts: present == Present::Rows,
        kept: Mutex::default(),
        rows,
    };
    let lowest = match bits {
        ..=64 => sift.run::<u64>()?,
        65..=128 => sift.run::<u128>()?,
        _ => sift.run::<(u128, Reverse<u128>)>()?,
    };
    Ok(Some(Sifted {
        kept: in_all(
            sift.kept
                .into_inner()
                .unwrap_or_else(PoisonError::into_inner),
            rows,
        ),
        hidden: (present == Present::Rows).then_some(Hidden {
            key: sift.key,
            sequence: sift.sequence,
            lowest,
        }),
    }))
}

/// The least and the greatest number that `files` have in a column, if all of them tell.
fn range_in(files: &[DataFile], column: &str) -> Option<(i128, i128)> {
    let number = |value: &StatValue| match value {
        StatValue::Int(number) => Some(i128::from(*number)),
        StatValue::Decimal(number) => Some(*number),
        StatValue::Text(_) | StatValue::Bool(_) => None,
    };
    let ranges = files.iter().map(|file| {
        let (least, greatest) = file.range(column)?;
        Some((number(least)?, number(greatest)?))
    });
    let ranges: Vec<(i128, i128)> = ranges.collect::<Option<_>>()?;
    let least = ranges.iter().map(|(least, _)| *least).min()?;
    let greatest = ranges.iter().map(|(_, greatest)| *greatest).max()?;
    Some((least, greatest))
}

/// Whether most rows of `files` are in files that reach beyond all of silver: else many events are late, and each is to be
/// looked at.
pub(super) fn brings_newer(silver: &Table, plan: &SilverPlan, files: &[DataFile]) -> bool {
    let name = plan.columns[plan.sequence[0]].name();
    let is_newer = |file: &&DataFile| {
        let Some((_, newest)) = file.range(name) else {
            return false;
        };
        silver.files().all(|of_silver| {
            let known = of_silver.range(name);
            known.is_some_and(|(_, known)| known.compare(newest) == Some(Ordering::Less))
        })
    };
    let newer: i64 = files.iter().filter(is_newer).map(DataFile::live_rows).sum();
    newer * 2 >= files.iter().map(DataFile::live_rows).sum()
}

/// The columns that tell keys, sequences and operations.
fn columns_read(plan: &SilverPlan, schema: &SchemaRef) -> Result<Vec<String>> {
    let classifier = EventClassifier::new(&plan.rules, schema)?;
    let mut names: BTreeSet<String> = plan.names(&plan.keys).into_iter().collect();
    names.extend(plan.names(&plan.sequence));
    let told_by = classifier.columns().into_iter();
    names.extend(told_by.map(|place| schema.field(place).name().clone()));
    Ok(names.into_iter().collect())
}

struct Sift<'a> {
    bronze: &'a Table,
    plan: &'a SilverPlan,
    files: &'a [DataFile],
    pieces: &'a [Piece],
    columns: Vec<String>,
    key: Packing,
    sequence: Packing,
    /// The lowest hidden sequence of each key is wanted.
    counts: bool,
    /// Of each core that works, one bit for each live row that it did not drop.
    kept: Mutex<Vec<Vec<u64>>>,
    /// How many live rows there are.
    rows: usize,
}

/// An event by what decides about it. There are many of them.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
struct Entry<R> {
    rank: R,
    /// The row of the version, and whether nothing below shows above.
    place: u32,
}

impl<R> Entry<R> {
    fn new(rank: R, row: usize, overwrites: bool) -> Self {
        Entry {
            rank,
            place: (row as u32) << 1 | u32::from(overwrites),
        }
    }

    fn row(&self) -> usize {
        self.place as usize >> 1
    }

    fn overwrites(&self) -> bool {
        self.place & 1 == 1
    }
}

/// The entries of some buckets.
type Buckets<R> = Vec<Vec<Entry<R>>>;

impl Sift<'_> {
    /// Takes the bits of rows that cannot show out of `kept`; gives the lowest of them for each key, by buckets, if it counts.
    fn run<R: Rank>(&self) -> Result<Vec<Vec<(u128, u128)>>> {
        let passes = (self.rows * size_of::<Entry<R>>()).div_ceil(ENTRY_BYTES_MAX);
        let passes = passes.clamp(1, BUCKETS);
        let mut lowest = vec![Vec::new(); BUCKETS];
        for pass in 0..passes {
            let pieces = in_parallel(self.pieces.len(), |piece| {
                self.entries::<R>(&self.pieces[piece], pass, passes)
            })?;
            let of_pass = in_parallel(BUCKETS.div_ceil(passes), |bucket| {
                let of_pieces = pieces.iter().filter_map(|buckets| buckets.get(bucket));
                Ok(self.drop_hidden(&of_pieces.map(Vec::as_slice).collect::<Vec<_>>()))
            })?;
            for (place, of_bucket) in of_pass.into_iter().enumerate() {
                if let Some(bucket) = lowest.get_mut(place * passes + pass) {
                    *bucket = of_bucket;
                }
            }
        }
        Ok(lowest)
    }

    /// Takes the bits of the rows of one bucket that cannot show; gives the lowest of each key, by keys, if it counts. Each piece has
    /// some entries of the bucket.
    fn drop_hidden<R: Rank>(&self, of_pieces: &[&[Entry<R>]]) -> Vec<(u128, u128)> {
        let bits = self.sequence.bits;
        let spare = lock(&self.kept).pop();
        let mut kept = spare.unwrap_or_else(|| vec![u64::MAX; self.rows.div_ceil(64)]);
        let mut lowest: Vec<(u128, u128)> = Vec::new();
        Cells::of(of_pieces, bits).each(|entries| {
            drop_hidden(entries, bits, |entry| {
                let row = entry.row();
                kept[row / 64] &= !(1 << (row % 64));
                if !self.counts {
                    return;
                }
                let rank = entry.rank;
                let (key, sequence) = (rank.key(bits).wide(), rank.sequence(bits).wide());
                // Those of a key come in falling order.
                match lowest.last_mut() {
                    Some(last) if last.0 == key => last.1 = sequence,
                    _ => lowest.push((key, sequence)),
                }
            });
        });
        lock(&self.kept).push(kept);
        lowest.sort_unstable();
        lowest
    }

    /// The entries of one piece, in every `passes`th bucket from `pass` on.
    fn entries<R: Rank>(&self, piece: &Piece, pass: usize, passes: usize) -> Result<Buckets<R>> {
        let share = piece.rows.len() / BUCKETS;
        // Keys are spread evenly but for chance, or for a few that have many events.
        let of_share = |_| Vec::with_capacity(share + share / 8);
        let mut buckets: Buckets<R> = (0..BUCKETS.div_ceil(passes)).map(of_share).collect();
        let place_of = |bucket: usize| (bucket % passes == pass).then_some((bucket / passes) as u8);
        let places: Vec<Option<u8>> = (0..BUCKETS).map(place_of).collect();
        let mut classifier = None;
        let mut first = piece.rows.start;
        let file = &self.files[piece.file];
        let scan = self.bronze.scan_extent(file, piece.extent, &self.columns)?;
        for scanned in scan {
            let rows = scanned?.rows;
            let classifier = match &mut classifier {
                Some(classifier) => classifier,
                none => none.insert(EventClassifier::new(&self.plan.rules, &rows.schema())?),
            };
            let kinds = classifier.classify(&rows)?;
            let (keys, keys_fit) = self.key.pack::<R::Number>(&self.plan.key_columns(&rows));
            let sequences = self.plan.sequence_columns(&rows);
            let (sequences, sequences_fit) = self.sequence.pack::<R::Number>(&sequences);
            let fit = &keys_fit & &sequences_fit;
            for (row, kind) in kinds.into_iter().enumerate() {
                let overwrites = match kind {
                    EventKind::Upsert => true,
                    EventKind::Delete => self.plan.shape == Shape::Bare,
                    EventKind::Truncate | EventKind::Skip | EventKind::Unknown => continue,
                };
                let place = places[bucket_of(keys[row].wide())];
                if let Some(place) = place.filter(|_| fit.value(row)) {
                    let rank = R::new(keys[row], sequences[row], self.sequence.bits);
                    buckets[usize::from(place)].push(Entry::new(rank, first + row, overwrites));
                }
            }
            first += rows.num_rows();
        }
        Ok(buckets)
    }
}

/// The entries of a bucket, those of a key in the same cell.
struct Cells<R> {
    entries: Vec<Entry<R>>,
    /// Where each cell begins.
    starts: Vec<u32>,
}

impl<R: Rank> Cells<R> {
    /// Each of `pieces` has some of them, and sequences so many bits. Those that stand last come first: most feeds bring
    /// newer events later, so that they are in order then.
    fn of(pieces: &[&[Entry<R>]], sequence_bits: u32) -> Cells<R> {
        let all = || pieces.iter().copied().flatten();
        let count: usize = pieces.iter().map(|piece| piece.len()).sum();
        let Some(first) = all().next() else {
            return Cells {
                entries: Vec::new(),
                starts: Vec::new(),
            };
        };
        let cells = (count / CELL_ENTRIES).next_power_of_two().min(CELLS_MAX);
        let cell = |entry: &Entry<R>| {
            let rank = entry.rank;
            let behind_bucket = hash(rank.key(sequence_bits).wide()) << BUCKETS.ilog2();
            (behind_bucket >> 1 >> (u64::BITS - 1 - cells.ilog2())) as usize
        };
        let mut starts = vec![0_u32; cells];
        all().for_each(|entry| starts[cell(entry)] += 1);
        let mut end = 0;
        for start in &mut starts {
            end += *start;
            *start = end;
        }
        let mut entries = vec![*first; count];
        for entry in all() {
            let start = &mut starts[cell(entry)];
            *start -= 1;
            entries[*start as usize] = *entry;
        }
        Cells { entries, starts }
    }

    /// The entries of one cell after the other.
    fn each(mut self, mut take: impl FnMut(&mut [Entry<R>])) {
        let mut rest = self.entries.as_mut_slice();
        for start in self.starts.into_iter().rev() {
            let (before, of_cell) = rest.split_at_mut(start as usize);
            take(of_cell);
            rest = before;
        }
    }
}

/// Calls `hide` for each entry that cannot show and has no equal; sequences have so many bits of ranks.
fn drop_hidden<R: Rank>(
    entries: &mut [Entry<R>],
    sequence_bits: u32,
    mut hide: impl FnMut(&Entry<R>),
) {
    entries.sort_unstable_by_key(|entry| entry.rank);
    let key = |entry: &Entry<R>| {
        let rank = entry.rank;
        rank.key(sequence_bits)
    };
    for of_key in entries.chunk_by(|left, right| key(left) == key(right)) {
        let mut is_hidden = false;
        for equals in of_key.chunk_by(|left, right| {
            let (left, right) = (left.rank, right.rank);
            left == right
        }) {
            match equals {
                [one] if is_hidden => hide(one),
                _ => is_hidden |= equals.iter().any(Entry::overwrites),
            }
        }
    }
}

fn bucket_of(key: u128) -> usize {
    (hash(key) >> (u64::BITS - BUCKETS.ilog2())) as usize
}

/// Its high bits depend on all bits of the key.
fn hash(key: u128) -> u64 {
    let folded = (key as u64) ^ ((key >> 64) as u64);
    folded.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// The bits that are set in all of `bits`, so many each.
fn in_all(bits: Vec<Vec<u64>>, count: usize) -> BooleanBuffer {
    let both = |mut left: Vec<u64>, right: Vec<u64>| {
        left.iter_mut()
            .zip(right)
            .for_each(|(left, right)| *left &= right);
        left
    };
    let words = bits.into_iter().reduce(both);
    let words = words.unwrap_or_else(|| vec![u64::MAX; count.div_ceil(64)]);
    BooleanBuffer::new(Buffer::from_vec(words), 0, count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::silver::pool::Comparable;
    use arrow::array::{ArrayRef, Int64Array};
    use arrow::datatypes::DataType;
    use std::sync::Arc;

    /// The rows of one file that are hidden, by what [`drop_hidden`] says of events (key, sequence, whether it overwrites).
    fn hidden(events: &[(u64, u64, bool)]) -> BTreeSet<usize> {
        const BITS: u32 = 9;
        let entry = |(row, &(key, sequence, overwrites)): (usize, &(u64, u64, bool))| {
            Entry::new(<u64 as Rank>::new(key, sequence, BITS), row, overwrites)
        };
        let mut entries: Vec<_> = events.iter().enumerate().map(entry).collect();
        let mut hidden = BTreeSet::new();
        drop_hidden(&mut entries, BITS, |entry| {
            assert!(hidden.insert(entry.row()));
        });
        hidden
    }

    #[test]
    fn events_below_one_that_overwrites_are_hidden() {
        let events = [(1, 10, true), (1, 20, true), (1, 15, false), (2, 1, true)];
        assert_eq!(hidden(&events), BTreeSet::from([0, 2]));
    }

    #[test]
    fn deletes_that_keep_values_show_what_is_below_them_down_to_an_upsert() {
        let events = [(1, 1, true), (1, 2, true), (1, 3, false), (1, 4, false)];
        assert_eq!(hidden(&events), BTreeSet::from([0]));
        assert_eq!(hidden(&[(1, 3, false), (1, 4, false)]), BTreeSet::new());
    }

    #[test]
    fn equal_sequences_are_kept_wherever_they_stand() {
        let events = [
            (1, 1, true),
            (1, 1, true),
            (1, 2, true),
            (1, 9, false),
            (1, 9, true),
        ];
        assert_eq!(hidden(&events), BTreeSet::from([2]));
    }

    #[test]
    fn cells_have_each_event_once_and_all_of_a_key_the_last_first() {
        const BITS: u32 = 9;
        for count in [0_usize, 1, 7, 8, 40, 3_000] {
            let entry = |row: usize| {
                let rank = <u64 as Rank>::new(row as u64 * 7 % 400, row as u64 % 5, BITS);
                Entry::new(rank, row, true)
            };
            let entries: Vec<Entry<u64>> = (0..count).map(entry).collect();
            let (left, right) = entries.split_at(count / 3);
            let mut keys = BTreeSet::new();
            let mut rows = Vec::new();
            Cells::of(&[left, &[], right], BITS).each(|entries| {
                assert!(entries.is_sorted_by(|left, right| left.row() > right.row()));
                rows.extend(entries.iter().map(Entry::row));
                let of_cell: BTreeSet<u64> =
                    entries.iter().map(|entry| entry.rank >> BITS).collect();
                for key in of_cell {
                    assert!(keys.insert(key), "key {key} is in two cells");
                }
            });
            rows.sort_unstable();
            assert!(rows.into_iter().eq(0..count));
        }
    }

    #[test]
    fn what_is_hidden_is_what_the_rule_says() {
        let mut seed = 7_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..2_000 {
            let count = next(12);
            let events: Vec<(u64, u64, bool)> = (0..count)
                .map(|_| (next(3), next(6), next(3) > 0))
                .collect();
            let is_hidden = |&row: &usize| {
                let (key, sequence, _) = events[row];
                let of_key = |event: &&(u64, u64, bool)| event.0 == key;
                let equals = events
                    .iter()
                    .filter(of_key)
                    .filter(|event| event.1 == sequence);
                let mut above = events
                    .iter()
                    .filter(of_key)
                    .filter(|event| event.1 > sequence);
                equals.count() == 1 && above.any(|event| event.2)
            };
            let expected: BTreeSet<usize> = (0..events.len()).filter(is_hidden).collect();
            assert_eq!(hidden(&events), expected, "{events:?}");
        }
    }

    #[test]
    fn hidden_events_reach_what_stands_at_the_lowest_or_above() {
        let narrow = || Packing::of([(&DataType::Int64, Some((-9, 99)))]).unwrap();
        let comparator = Comparable::new(&[DataType::Int64]).unwrap();
        let row = |number: i64| {
            let column: ArrayRef = Arc::new(Int64Array::from(vec![number]));
            let rows = comparator.rows(&[column]).unwrap();
            rows.row(0).owned()
        };
        let packed = |number: i64| narrow().of_row(row(number).row().data());
        let mut lowest = vec![Vec::new(); BUCKETS];
        lowest[bucket_of(packed(-4))].push((packed(-4), packed(10)));
        let hidden = Hidden {
            key: narrow(),
            sequence: narrow(),
            lowest,
        };
        let reaches = |key: i64, sequence: i64| {
            hidden.reaches(row(key).row().data(), row(sequence).row().data())
        };
        assert!(reaches(-4, 10) && reaches(-4, 11));
        assert!(!reaches(-4, 9) && !reaches(4, 10));
        // Sequences that no event of the version has.
        assert!(reaches(-4, 100) && !reaches(-4, -10));
    }
}
