//! Finds the events of a large version of bronze that cannot show in silver, so that only the others are read whole.
//!
//! An upsert sets every column, unless the settings say otherwise, and nothing below it shows above it. So of the events of a
//! key those count that stand at the sequence of its last such event or above. Those of equal sequence are kept too, wherever
//! they stand: they are counted. Keys, sequences and operations alone are read for that.
//!
//! What became of the hidden events is to be counted where silver has a row of their key: none of them is late if the lowest
//! stands above that row, and otherwise all events of the key are read after all.

mod packing;

use crate::delta::{DataFile, Table};
use crate::error::Result;
use crate::events::{EventClassifier, EventKind};
use crate::parallel::in_parallel;
use crate::silver::fold::Shape;
use crate::silver::plan::SilverPlan;
use arrow::buffer::{BooleanBuffer, Buffer};
use arrow::datatypes::SchemaRef;
use packing::{Number, Packing};
use std::cmp::{Ordering, Reverse};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering as Access};

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
/// The place of an event in a version is known by so many bits for the file, so many for the row, and one more.
const FILES_MAX: usize = 1 << 24;
const ROWS_MAX: usize = 1 << 39;

/// For each file, which of its live rows are to be read, in their order.
pub(super) type KeptRows = Vec<BooleanBuffer>;

/// Which events of a version are to be read whole.
pub(super) struct Sifted {
    pub(super) kept: KeptRows,
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
    /// Whether there is one of this key at this sequence or below. Both are rows of a comparator.
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
    present: Present,
) -> Result<Option<Sifted>> {
    let rows: Vec<usize> = files.iter().map(row_count).collect();
    let is_sifted = plan.shape != Shape::History && !plan.snapshots && !plan.is_partial();
    let fits = files.len() < FILES_MAX && rows.iter().all(|&rows| rows < ROWS_MAX);
    if !is_sifted || !fits || rows.iter().sum::<usize>() < SIFTED_EVENTS_MIN {
        return Ok(None);
    }
    let packing = |places: &[usize]| {
        let types = places.iter().map(|&place| plan.columns[place].data_type());
        Packing::of(types)
    };
    let (Some(key), Some(sequence)) = (packing(&plan.keys), packing(&plan.sequence)) else {
        return Ok(None);
    };
    let sift = Sift {
        bronze,
        plan,
        files,
        columns: columns_read(plan, schema)?,
        key,
        sequence,
        counts: present == Present::Rows,
        kept: rows.iter().map(|&rows| all_of(rows)).collect(),
    };
    let is_short = |packing: &Packing| packing.bits <= 64;
    let lowest = match (is_short(&sift.key), is_short(&sift.sequence)) {
        (true, true) => sift.run::<u64, u64>(&rows)?,
        (true, false) => sift.run::<u64, u128>(&rows)?,
        (false, true) => sift.run::<u128, u64>(&rows)?,
        (false, false) => sift.run::<u128, u128>(&rows)?,
    };
    let kept = sift.kept.into_iter().zip(rows);
    Ok(Some(Sifted {
        kept: kept.map(|(words, rows)| bits(words, rows)).collect(),
        hidden: (present == Present::Rows).then_some(Hidden {
            key: sift.key,
            sequence: sift.sequence,
            lowest,
        }),
    }))
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
    let newer: usize = files.iter().filter(is_newer).map(row_count).sum();
    newer * 2 >= files.iter().map(row_count).sum()
}

fn row_count(file: &DataFile) -> usize {
    usize::try_from(file.live_rows()).unwrap_or(usize::MAX)
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
    columns: Vec<String>,
    key: Packing,
    sequence: Packing,
    /// The lowest hidden sequence of each key is wanted.
    counts: bool,
    /// For each file one bit for each live row.
    kept: Vec<Box<[AtomicU64]>>,
}

/// An event by what decides about it.
#[derive(Clone, Copy)]
struct Entry<K, S> {
    key: K,
    sequence: S,
    /// The file, the row, and whether nothing below shows above.
    place: u64,
}

impl<K: Number, S: Number> Entry<K, S> {
    fn new(key: u128, sequence: u128, file: usize, row: usize, overwrites: bool) -> Self {
        Entry {
            key: K::from_wide(key),
            sequence: S::from_wide(sequence),
            place: (file as u64) << 40 | (row as u64) << 1 | u64::from(overwrites),
        }
    }

    fn file(&self) -> usize {
        (self.place >> 40) as usize
    }

    fn row(&self) -> usize {
        (self.place & ((1 << 40) - 1)) as usize >> 1
    }

    fn overwrites(&self) -> bool {
        self.place & 1 == 1
    }
}

/// The entries of some buckets.
type Buckets<K, S> = Vec<Vec<Entry<K, S>>>;

impl Sift<'_> {
    /// Takes the bits of rows that cannot show out of `kept`; gives the lowest of them for each key, by buckets, if it counts.
    fn run<K: Number, S: Number>(&self, rows: &[usize]) -> Result<Vec<Vec<(u128, u128)>>> {
        let bytes = rows.iter().sum::<usize>() * size_of::<Entry<K, S>>();
        let passes = bytes.div_ceil(ENTRY_BYTES_MAX).clamp(1, BUCKETS);
        let mut lowest = vec![Vec::new(); BUCKETS];
        for pass in 0..passes {
            let files = in_parallel(self.files.len(), |file| {
                self.entries::<K, S>(file, pass, passes)
            })?;
            let of_pass = in_parallel(BUCKETS.div_ceil(passes), |bucket| {
                let of_files = files.iter().filter_map(|buckets| buckets.get(bucket));
                let mut entries: Vec<Entry<K, S>> = of_files.flatten().copied().collect();
                let mut lowest: Vec<(u128, u128)> = Vec::new();
                drop_hidden(&mut entries, |entry| {
                    self.drop_row(entry);
                    if !self.counts {
                        return;
                    }
                    let (key, sequence) = (entry.key.wide(), entry.sequence.wide());
                    // Those of a key come in falling order.
                    match lowest.last_mut() {
                        Some(last) if last.0 == key => last.1 = sequence,
                        _ => lowest.push((key, sequence)),
                    }
                });
                Ok(lowest)
            })?;
            for (place, of_bucket) in of_pass.into_iter().enumerate() {
                if let Some(bucket) = lowest.get_mut(place * passes + pass) {
                    *bucket = of_bucket;
                }
            }
        }
        Ok(lowest)
    }

    /// The entries of one file, in every `passes`th bucket from `pass` on.
    fn entries<K: Number, S: Number>(
        &self,
        file: usize,
        pass: usize,
        passes: usize,
    ) -> Result<Buckets<K, S>> {
        let share = row_count(&self.files[file]) / BUCKETS;
        // Keys are spread evenly but for chance, or for a few that have many events.
        let of_share = |_| Vec::with_capacity(share + share / 8);
        let mut buckets: Buckets<K, S> = (0..BUCKETS.div_ceil(passes)).map(of_share).collect();
        let mut classifier = None;
        let mut first = 0;
        for scanned in self.bronze.scan(&self.files[file], &self.columns)? {
            let rows = scanned?.rows;
            let classifier = match &mut classifier {
                Some(classifier) => classifier,
                none => none.insert(EventClassifier::new(&self.plan.rules, &rows.schema())?),
            };
            let kinds = classifier.classify(&rows)?;
            let (keys, all_keys) = self.key.pack(&self.plan.key_columns(&rows));
            let (sequences, all_sequences) = self.sequence.pack(&self.plan.sequence_columns(&rows));
            for (row, kind) in kinds.into_iter().enumerate() {
                let overwrites = match kind {
                    EventKind::Upsert => true,
                    EventKind::Delete => self.plan.shape == Shape::Bare,
                    EventKind::Truncate | EventKind::Skip | EventKind::Unknown => continue,
                };
                let bucket = bucket_of(keys[row]);
                let is_event = all_keys.value(row) && all_sequences.value(row);
                if is_event && bucket % passes == pass {
                    let entry =
                        Entry::new(keys[row], sequences[row], file, first + row, overwrites);
                    buckets[bucket / passes].push(entry);
                }
            }
            first += rows.num_rows();
        }
        Ok(buckets)
    }

    fn drop_row<K: Number, S: Number>(&self, entry: &Entry<K, S>) {
        let (word, bit) = (entry.row() / 64, entry.row() % 64);
        self.kept[entry.file()][word].fetch_and(!(1 << bit), Access::Relaxed);
    }
}

/// Calls `hide` for each entry that cannot show and has no equal.
fn drop_hidden<K: Number, S: Number>(
    entries: &mut [Entry<K, S>],
    mut hide: impl FnMut(&Entry<K, S>),
) {
    entries.sort_unstable_by_key(|entry| (entry.key, Reverse(entry.sequence)));
    for key in entries.chunk_by(|left, right| left.key == right.key) {
        let mut is_hidden = false;
        for equals in key.chunk_by(|left, right| left.sequence == right.sequence) {
            match equals {
                [one] if is_hidden => hide(one),
                _ => is_hidden |= equals.iter().any(Entry::overwrites),
            }
        }
    }
}

fn bucket_of(key: u128) -> usize {
    let folded = (key as u64) ^ ((key >> 64) as u64);
    // The high bits of the product depend on all bits of the key.
    (folded.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - BUCKETS.ilog2())) as usize
}

fn all_of(rows: usize) -> Box<[AtomicU64]> {
    (0..rows.div_ceil(64))
        .map(|_| AtomicU64::new(u64::MAX))
        .collect()
}

fn bits(words: Box<[AtomicU64]>, rows: usize) -> BooleanBuffer {
    let words: Vec<u64> = words.into_iter().map(AtomicU64::into_inner).collect();
    BooleanBuffer::new(Buffer::from_vec(words), 0, rows)
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
        let entry = |(row, &(key, sequence, overwrites)): (usize, &(u64, u64, bool))| {
            Entry::<u64, u64>::new(key.into(), sequence.into(), 3, row, overwrites)
        };
        let mut entries: Vec<_> = events.iter().enumerate().map(entry).collect();
        let mut hidden = BTreeSet::new();
        drop_hidden(&mut entries, |entry| {
            assert_eq!(entry.file(), 3);
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
        let narrow = || Packing::of([&DataType::Int64]).unwrap();
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
    }
}
