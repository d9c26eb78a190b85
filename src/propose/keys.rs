//! Searches for keys and sequence: the smallest set of columns under which the events of the sample make sense.
//!
//! They do when no two different records share key and sequence, and no key is inserted twice without a delete between. A
//! sample can refute a key, never prove it; so names decide between those that are left. How it is told is left to `roles`.

use super::operations::Events;
use super::records::{Column, Records};
use super::words::{self, Act};
use arrow::datatypes::DataType;
use std::collections::{HashMap, HashSet};

/// So many columns are tried together as keys.
const PARTS_MAX: usize = 8;
/// So many columns are tried as sequences, and pairs of them.
const SEQUENCES_MAX: usize = 4;
/// A key of more columns is not looked for.
const KEY_COLUMNS_MAX: usize = 3;
/// A key with the best name may be refuted by so many of a hundred records where nothing else fits.
const REFUTED_MAX: usize = 25;

/// The records that silver takes, and the columns that may have a role in it.
pub(super) struct Search<'a> {
    records: &'a Records,
    /// The records that are no repeats and have an operation that is known.
    distinct: Vec<usize>,
    acts: &'a [Option<Act>],
    /// Columns that may be keys, the best first, with their score.
    keys: Vec<(usize, u8)>,
    /// Columns that may be sequences, the best first, with their rank.
    sequences: Vec<(usize, usize)>,
    /// Columns that are called like keys or sequences and have NULLs.
    pub(super) with_nulls: Vec<&'a str>,
}

/// A set of columns that fits; `sequence` is empty where none was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) keys: Vec<usize>,
    pub(super) sequence: Vec<usize>,
    /// Records that speak against it.
    pub(super) refuting: usize,
}

/// The place of an insert or delete in the sequence, and by how much it changes the number of rows.
type Step = (Vec<Option<i128>>, i64);

impl<'a> Search<'a> {
    /// Sorts the columns of the table of this name by what they may be.
    pub(super) fn new(records: &'a Records, events: &'a Events, table: &str) -> Self {
        let is_taken = |record: &usize| match events.acts.get(*record) {
            Some(act) => matches!(act, Some(Act::Insert | Act::Upsert | Act::Delete)),
            None => true,
        };
        let mut seen = HashSet::new();
        let mut search = Search {
            records,
            distinct: (0..records.hashes.len())
                .filter(is_taken)
                .filter(|record| seen.insert(records.hashes[*record]))
                .collect(),
            acts: &events.acts,
            keys: Vec::new(),
            sequences: Vec::new(),
            with_nulls: Vec::new(),
        };
        for (place, column) in records.columns.iter().enumerate() {
            if events.column.as_ref() != Some(&column.name) {
                search.sort_in(place, column, table);
            }
        }
        search.sequences.sort_by_key(|(_, rank)| *rank);
        search.sequences.truncate(SEQUENCES_MAX);
        search.keys.sort_by_key(|(_, score)| *score);
        search
    }

    fn sort_in(&mut self, place: usize, column: &'a Column, table: &str) {
        let score = words::key_score(&column.name, table);
        let rank = words::sequence_rank(&column.name);
        let has_nulls = self
            .distinct
            .iter()
            .any(|record| column.values[*record].is_none());
        match rank {
            Some(_) if has_nulls => self.with_nulls.push(&column.name),
            Some(rank) if is_ordered(&column.data_type) => self.sequences.push((place, rank)),
            Some(_) => {}
            None if !is_comparable(&column.data_type) || is_reserved(&column.name) => {}
            None if !has_nulls => self.keys.push((place, score)),
            None if score <= words::LONE_KEY_SCORE_MAX => self.with_nulls.push(&column.name),
            None => {}
        }
    }

    /// The names of columns.
    pub(super) fn names(&self, columns: &[usize]) -> Vec<&'a str> {
        columns.iter().map(|column| self.name(*column)).collect()
    }

    /// The name of a column.
    pub(super) fn name(&self, column: usize) -> &'a str {
        &self.records.columns[column].name
    }

    /// The first choice that fits: keys by name, then sets of parts, then any column whose values stand once.
    pub(super) fn best(&self) -> Option<Found> {
        if self.distinct.is_empty() {
            return None;
        }
        let named: Vec<usize> = self.keys_up_to(words::LONE_KEY_SCORE_MAX);
        let mut parts: Vec<usize> = self.keys_up_to(words::KEY_SCORE_MAX);
        parts.truncate(PARTS_MAX);
        let lone = named.iter().map(|key| vec![*key]);
        let sets = (2..=KEY_COLUMNS_MAX).flat_map(|size| sets_of(&parts, size));
        let single = parts.iter().map(|key| vec![*key]);
        let named = lone
            .chain(sets)
            .chain(single)
            .find_map(|keys| self.with_sequence(keys));
        named
            .or_else(|| self.any_unique())
            .or_else(|| self.least_refuted())
    }

    /// Where no name is that of a key, the first column whose values stand once.
    fn any_unique(&self) -> Option<Found> {
        let is_named = self
            .keys
            .first()
            .is_some_and(|(_, score)| *score <= words::LONE_KEY_SCORE_MAX);
        if is_named || self.distinct.len() < 2 {
            return None;
        }
        let mut keys = self.keys.iter().map(|(key, _)| *key);
        keys.find(|key| self.is_unambiguous(&[*key], &[]))
            .and_then(|key| self.with_sequence(vec![key]))
    }

    /// Columns whose name has this score as a key, or a better one.
    pub(super) fn keys_up_to(&self, score_max: u8) -> Vec<usize> {
        let good = self.keys.iter().filter(|(_, score)| *score <= score_max);
        good.map(|(key, _)| *key).collect()
    }

    /// The keys with the first sequence that fits; without one when no column could be a sequence.
    fn with_sequence(&self, keys: Vec<usize>) -> Option<Found> {
        let sequences: Vec<usize> = self.sequences.iter().map(|(column, _)| *column).collect();
        let pairs = sets_of(&sequences, 2);
        let mut choices = sequences.iter().map(|column| vec![*column]).chain(pairs);
        let fits = choices.find(|sequence| self.fits(&keys, sequence));
        match fits {
            Some(sequence) => Some(Found {
                keys,
                sequence,
                refuting: 0,
            }),
            // Without operations and without a sequence nothing but uniqueness speaks for a key.
            None if self.sequences.is_empty() => {
                let is_key = match self.acts {
                    [] => self.is_unambiguous(&keys, &[]),
                    _ => self.inserts_fit(&keys, &[]),
                };
                is_key.then_some(Found {
                    keys,
                    ..Found::default()
                })
            }
            None => None,
        }
    }

    /// Whether nothing in the sample speaks against these keys and this sequence.
    pub(super) fn fits(&self, keys: &[usize], sequence: &[usize]) -> bool {
        self.is_unambiguous(keys, sequence) && self.inserts_fit(keys, sequence)
    }

    /// No two different records have the same values in all of these columns.
    fn is_unambiguous(&self, keys: &[usize], sequence: &[usize]) -> bool {
        let mut seen = HashSet::new();
        let all: Vec<usize> = keys.iter().chain(sequence).copied().collect();
        self.distinct
            .iter()
            .all(|record| seen.insert(self.values(*record, &all)))
    }

    fn values(&self, record: usize, columns: &[usize]) -> Vec<Option<u32>> {
        columns
            .iter()
            .map(|column| self.records.columns[*column].values[record])
            .collect()
    }

    /// No key is inserted while it is there already, as far as inserts and deletes tell, in the order of the sequence.
    ///
    /// Without a sequence no key has more inserts than deletes and one.
    fn inserts_fit(&self, keys: &[usize], sequence: &[usize]) -> bool {
        let mut events: HashMap<Vec<Option<u32>>, Vec<Step>> = HashMap::new();
        for record in &self.distinct {
            let change = match self.acts.get(*record) {
                Some(Some(Act::Insert)) => 1,
                Some(Some(Act::Delete)) => -1,
                Some(Some(Act::Upsert | Act::Truncate | Act::Skip) | None) | None => continue,
            };
            let number = |column: &usize| self.records.columns[*column].number(*record);
            let place = sequence.iter().map(number).collect();
            events
                .entry(self.values(*record, keys))
                .or_default()
                .push((place, change));
        }
        events.into_values().all(|mut events| match sequence {
            [] => events.iter().map(|(_, change)| change).sum::<i64>() <= 1,
            _ => {
                events.sort();
                events.windows(2).all(|pair| pair[0].1 < 0 || pair[1].1 < 0)
            }
        })
    }

    /// The key and the sequence of the best names where few records speak against them: ties are allowed, and win by file.
    fn least_refuted(&self) -> Option<Found> {
        let (key, score) = self.keys.first()?;
        let (sequence, _) = self.sequences.first()?;
        let refuting = self.distinct.len() - self.count_of(&[*key, *sequence]);
        let is_few = refuting * 100 <= self.distinct.len() * REFUTED_MAX;
        (*score == 0 && is_few).then(|| Found {
            keys: vec![*key],
            sequence: vec![*sequence],
            refuting,
        })
    }

    /// The candidates for sequences, the best first.
    pub(super) fn sequences(&self) -> Vec<usize> {
        self.sequences.iter().map(|(column, _)| *column).collect()
    }

    /// The score of the worst name in a key.
    pub(super) fn score_of(&self, keys: &[usize]) -> u8 {
        let scores = self
            .keys
            .iter()
            .filter(|(key, _)| keys.contains(key))
            .map(|(_, score)| *score);
        scores.max().unwrap_or(u8::MAX)
    }

    /// Whether the column is called a sequence and nothing else.
    pub(super) fn is_plain_sequence(&self, column: usize) -> bool {
        let rank = self.sequences.iter().find(|(known, _)| *known == column);
        rank.is_some_and(|(_, rank)| words::is_plain_sequence(*rank))
    }

    /// How many records are no repeats.
    pub(super) fn record_count(&self) -> usize {
        self.distinct.len()
    }

    /// How many different values these columns have together.
    pub(super) fn count_of(&self, columns: &[usize]) -> usize {
        let values = self
            .distinct
            .iter()
            .map(|record| self.values(*record, columns));
        values.collect::<HashSet<_>>().len()
    }

    /// Whether the operations could have refuted a key: there are inserts, and keys that have further events.
    pub(super) fn is_tested(&self, keys: &[usize]) -> bool {
        self.acts.contains(&Some(Act::Insert)) && self.count_of(keys) < self.distinct.len()
    }
}

/// Whole numbers and times.
fn is_ordered(data_type: &DataType) -> bool {
    data_type.is_integer()
        || matches!(
            data_type,
            DataType::Timestamp(..) | DataType::Decimal128(_, 0)
        )
}

fn is_comparable(data_type: &DataType) -> bool {
    data_type.is_integer()
        || matches!(
            data_type,
            DataType::Utf8 | DataType::Date32 | DataType::Decimal128(..)
        )
}

/// Silver adds columns of these names itself.
fn is_reserved(name: &str) -> bool {
    ["deleted", "__START_AT", "__END_AT"]
        .iter()
        .any(|reserved| reserved.eq_ignore_ascii_case(name))
}

/// All sets of `size` of the columns, those of the first columns first.
fn sets_of(columns: &[usize], size: usize) -> Vec<Vec<usize>> {
    if size == 0 {
        return vec![Vec::new()];
    }
    let mut sets = Vec::new();
    for (place, first) in columns.iter().enumerate() {
        for mut rest in sets_of(&columns[place + 1..], size - 1) {
            rest.insert(0, *first);
            sets.push(rest);
        }
    }
    sets
}

#[cfg(test)]
mod tests {
    use super::super::operations;
    use super::super::records::testing::records;
    use super::*;

    /// Names of keys and sequence that were chosen.
    fn chosen(table: &str, ddl: &str, rows: &[&[&str]]) -> Option<(Vec<String>, Vec<String>)> {
        let records = records(ddl, rows);
        let events = operations::tell(&records);
        let search = Search::new(&records, &events, table);
        let owned = |names: Vec<&str>| names.into_iter().map(str::to_string).collect();
        search.best().map(|found| {
            (
                owned(search.names(&found.keys)),
                owned(search.names(&found.sequence)),
            )
        })
    }

    fn names(keys: &[&str], sequence: &[&str]) -> Option<(Vec<String>, Vec<String>)> {
        let owned = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        Some((owned(keys), owned(sequence)))
    }

    const LINES: &str = "op STRING, order_id BIGINT, line_no BIGINT, seq BIGINT";

    #[test]
    fn columns_with_nulls_are_neither_keys_nor_sequences() {
        let rows: [&[&str]; 2] = [&["-", "1", "-"], &["2", "2", "5"]];
        assert_eq!(
            chosen("t", "id BIGINT, code BIGINT, seq BIGINT", &rows),
            names(&["code"], &[])
        );
        assert_eq!(chosen("t", "id BIGINT", &[&["-"]]), None);
        assert_eq!(chosen("t", "id BIGINT", &[]), None);
    }

    #[test]
    fn records_that_share_key_and_sequence_refute_them() {
        let rows: [&[&str]; 2] = [&["1", "5", "x"], &["1", "5", "y"]];
        assert_eq!(chosen("t", "id BIGINT, seq BIGINT, v STRING", &rows), None);
    }

    #[test]
    fn key_of_the_table_stands_against_a_few_ties() {
        let of = |ties: usize| {
            let rows: Vec<[String; 3]> = (0..20)
                .map(|row| [row.max(ties).to_string(), "1".to_string(), row.to_string()])
                .collect();
            let rows: Vec<Vec<&str>> = rows
                .iter()
                .map(|row| row.iter().map(String::as_str).collect())
                .collect();
            let rows: Vec<&[&str]> = rows.iter().map(Vec::as_slice).collect();
            let records = records("id BIGINT, seq BIGINT, v STRING", &rows);
            let events = operations::tell(&records);
            Search::new(&records, &events, "t")
                .best()
                .map(|found| found.refuting)
        };
        assert_eq!((of(0), of(5), of(6)), (Some(0), Some(5), None));
    }

    #[test]
    fn records_of_an_unknown_operation_have_no_say() {
        let rows: [&[&str]; 3] = [
            &["T", "-", "-", "3"],
            &["I", "1", "1", "1"],
            &["U", "1", "1", "2"],
        ];
        assert_eq!(
            chosen("orders", LINES, &rows),
            names(&["order_id"], &["seq"])
        );
    }

    #[test]
    fn repeated_record_refutes_nothing() {
        let rows: [&[&str]; 3] = [&["1", "5"], &["1", "6"], &["1", "5"]];
        assert_eq!(
            chosen("t", "id BIGINT, seq BIGINT", &rows),
            names(&["id"], &["seq"])
        );
    }

    #[test]
    fn key_that_is_inserted_twice_needs_another_part() {
        let rows: [&[&str]; 4] = [
            &["I", "1", "1", "1"],
            &["I", "1", "2", "2"],
            &["I", "2", "1", "3"],
            &["U", "1", "2", "4"],
        ];
        assert_eq!(
            chosen("order_lines", LINES, &rows),
            names(&["order_id", "line_no"], &["seq"])
        );
        let rows: [&[&str]; 3] = [
            &["I", "1", "1", "10"],
            &["I", "1", "2", "9"],
            &["D", "1", "2", "11"],
        ];
        assert_eq!(
            chosen("order_lines", LINES, &rows),
            names(&["order_id", "line_no"], &["seq"])
        );
        let rows: [&[&str]; 3] = [
            &["I", "1", "1", "1"],
            &["D", "1", "1", "2"],
            &["I", "1", "1", "3"],
        ];
        assert_eq!(
            chosen("orders", LINES, &rows),
            names(&["order_id"], &["seq"])
        );
    }

    #[test]
    fn key_of_the_table_wins_over_other_keys() {
        let ddl = "customer_id BIGINT, order_id BIGINT, seq BIGINT";
        let rows: [&[&str]; 2] = [&["1", "1", "1"], &["1", "1", "2"]];
        assert_eq!(chosen("orders", ddl, &rows), names(&["order_id"], &["seq"]));
        assert_eq!(
            chosen("customers", ddl, &rows),
            names(&["customer_id"], &["seq"])
        );
    }

    #[test]
    fn sequence_of_two_columns_is_tried_last() {
        let rows: [&[&str]; 2] = [
            &["1", "1", "2026-01-01T00:00:00Z"],
            &["1", "1", "2026-01-02T00:00:00Z"],
        ];
        let ddl = "id BIGINT, version BIGINT, at_ts TIMESTAMP";
        assert_eq!(chosen("t", ddl, &rows), names(&["id"], &["at_ts"]));
        let rows: [&[&str]; 3] = [&["1", "1", "1"], &["1", "1", "2"], &["1", "2", "1"]];
        assert_eq!(
            chosen("t", "id BIGINT, lsn BIGINT, version BIGINT", &rows),
            names(&["id"], &["lsn", "version"])
        );
    }

    #[test]
    fn column_of_any_name_is_a_key_where_its_values_stand_once() {
        let ddl = "city STRING, mayor STRING, version BIGINT";
        let rows: [&[&str]; 2] = [&["A", "x", "1"], &["B", "x", "1"]];
        assert_eq!(chosen("t", ddl, &rows), names(&["city"], &["version"]));
    }

    #[test]
    fn texts_and_fractions_are_no_sequences() {
        let rows: [&[&str]; 1] = [&["1", "a"]];
        assert_eq!(
            chosen("t", "id BIGINT, seq STRING", &rows),
            names(&["id"], &[])
        );
        assert_eq!(
            chosen("t", "id BIGINT, seq DATE", &rows),
            names(&["id"], &[])
        );
    }
}
