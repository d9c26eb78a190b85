//! The net changes of a range: what the first and the last change of each key make together.
//!
//! The rows come sorted by key, commit and kind, so a key is done when the next one begins; no more than one batch and the
//! ends of one key are in memory.

use super::{CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION};
use crate::error::{Error, Result};
use crate::query::Rows;
use arrow::array::{ArrayRef, AsArray, RecordBatch, StringArray, UInt64Array};
use arrow::compute::{cast, concat_batches, partition, take_record_batch};
use arrow::datatypes::{DataType, FieldRef, SchemaRef};
use futures::stream::{self, BoxStream, StreamExt};
use std::ops::Range;
use std::sync::Arc;

/// The net changes of `rows`, which are sorted by `keys`, commit and kind.
pub(super) fn of(rows: Rows, keys: Vec<String>) -> Rows {
    let schema = rows.schema.clone();
    let state = Some(Net {
        keys,
        rest: RecordBatch::new_empty(schema.clone()),
        batches: rows.batches,
    });
    let batches = stream::unfold(state, |state| async {
        let mut net = state?;
        match net.next().await {
            Ok((batch, false)) => Some((Ok(batch), Some(net))),
            Ok((batch, true)) => Some((Ok(batch), None)),
            Err(error) => Some((Err(error), None)),
        }
    });
    Rows {
        schema,
        batches: batches.boxed(),
    }
}

struct Net {
    keys: Vec<String>,
    /// The ends of the key that may go on: no row, one or two.
    rest: RecordBatch,
    batches: BoxStream<'static, Result<RecordBatch>>,
}

impl Net {
    /// The changes of the keys that are done with the next batch; whether it was the last.
    async fn next(&mut self) -> Result<(RecordBatch, bool)> {
        let batch = self.batches.next().await.transpose()?;
        let is_last = batch.is_none();
        let rows = match batch {
            Some(batch) => concat_batches(&self.rest.schema(), [&self.rest, &batch])?,
            None => self.rest.clone(),
        };
        let mut groups = self.groups(&rows)?;
        if !is_last {
            let ends = groups.pop().map_or(Vec::new(), |open| ends(&open));
            self.rest = take(&rows, &ends)?;
        }
        Ok((net_rows(&rows, &groups)?, is_last))
    }

    /// The rows of each key.
    fn groups(&self, rows: &RecordBatch) -> Result<Vec<Range<usize>>> {
        if rows.num_rows() == 0 {
            return Ok(Vec::new());
        }
        let keys: Result<Vec<ArrayRef>> = self
            .keys
            .iter()
            .map(|name| column(rows, name).cloned())
            .collect();
        Ok(partition(&keys?)?.ranges())
    }
}

/// The first and the last row of a key.
fn ends(group: &Range<usize>) -> Vec<u64> {
    let (first, last) = (group.start as u64, group.end as u64 - 1);
    match first == last {
        true => vec![first],
        false => vec![first, last],
    }
}

/// The changes that are left of each group, with the words for them.
fn net_rows(rows: &RecordBatch, groups: &[Range<usize>]) -> Result<RecordBatch> {
    let kinds = cast(column(rows, CHANGE_TYPE)?, &DataType::Utf8)?;
    let kinds = kinds.as_string::<i32>();
    let images = images(&rows.schema());
    let mut told = Told::default();
    for group in groups {
        let (first, last) = (group.start, group.end - 1);
        let was_there = matches!(kinds.value(first), "delete" | "update_preimage");
        let is_there = matches!(kinds.value(last), "insert" | "update_postimage");
        let mut tell = |place: usize, word| {
            told.images.push(place as u64);
            told.commits.push(last as u64);
            told.words.push(word);
        };
        match (was_there, is_there) {
            (false, false) => {}
            (false, true) => tell(last, "insert"),
            (true, false) => tell(first, "delete"),
            (true, true) if is_same(rows, &images, first, last) => {}
            (true, true) => {
                tell(first, "update_preimage");
                tell(last, "update_postimage");
            }
        }
    }
    told.rows(rows)
}

/// Net changes: where their parts stand.
#[derive(Default)]
struct Told {
    /// The rows with the columns of the table.
    images: Vec<u64>,
    /// The rows with the last commit of the key.
    commits: Vec<u64>,
    words: Vec<&'static str>,
}

impl Told {
    fn rows(self, rows: &RecordBatch) -> Result<RecordBatch> {
        let (images, commits) = (take(rows, &self.images)?, take(rows, &self.commits)?);
        let words: ArrayRef = Arc::new(StringArray::from(self.words));
        let schema = rows.schema();
        let column = |(place, field): (usize, &FieldRef)| match field.name().as_str() {
            CHANGE_TYPE => cast(&words, field.data_type()),
            COMMIT_VERSION | COMMIT_TIMESTAMP => Ok(commits.column(place).clone()),
            _ => Ok(images.column(place).clone()),
        };
        let fields = schema.fields().iter().enumerate();
        let columns = fields
            .map(column)
            .collect::<std::result::Result<Vec<ArrayRef>, _>>()?;
        Ok(RecordBatch::try_new(schema, columns)?)
    }
}

/// The places of the columns of the table.
fn images(schema: &SchemaRef) -> Vec<usize> {
    let added = [CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP];
    let fields = schema.fields().iter().enumerate();
    fields
        .filter(|(_, field)| !added.contains(&field.name().as_str()))
        .map(|(place, _)| place)
        .collect()
}

fn is_same(rows: &RecordBatch, images: &[usize], first: usize, last: usize) -> bool {
    images.iter().all(|place| {
        let column = rows.column(*place);
        column.slice(first, 1).as_ref() == column.slice(last, 1).as_ref()
    })
}

fn take(rows: &RecordBatch, places: &[u64]) -> Result<RecordBatch> {
    Ok(take_record_batch(
        rows,
        &UInt64Array::from(places.to_vec()),
    )?)
}

fn column<'a>(rows: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef> {
    rows.column_by_name(name)
        .ok_or_else(|| Error::bug(format!("the change data feed has no column {name}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::Int64Array;
    use futures::TryStreamExt;

    /// Changes of (key, value, kind, commit), sorted as the feed is.
    type Change = (i64, Option<i64>, &'static str, i64);

    fn batch(changes: &[Change]) -> RecordBatch {
        let kinds = StringArray::from_iter_values(changes.iter().map(|change| change.2));
        let number = |of: fn(&Change) -> Option<i64>| {
            Arc::new(changes.iter().map(of).collect::<Int64Array>()) as ArrayRef
        };
        RecordBatch::try_from_iter_with_nullable([
            ("key", number(|change| Some(change.0)), true),
            ("value", number(|change| change.1), true),
            (CHANGE_TYPE, Arc::new(kinds) as ArrayRef, true),
            (COMMIT_VERSION, number(|change| Some(change.3)), true),
        ])
        .unwrap()
    }

    /// The net changes, whatever the cut into batches.
    async fn net(changes: &[Change]) -> Vec<(i64, Option<i64>, String, i64)> {
        let mut answers = Vec::new();
        for size in 1..=changes.len() {
            let parts: Vec<Result<RecordBatch>> =
                changes.chunks(size).map(|part| Ok(batch(part))).collect();
            let rows = Rows {
                schema: batch(&[]).schema(),
                batches: stream::iter(parts).boxed(),
            };
            let net = of(rows, vec!["key".into()]);
            let parts: Vec<RecordBatch> = net.batches.try_collect().await.unwrap();
            let all = concat_batches(&net.schema, &parts).unwrap();
            let number = |column: usize| {
                let numbers: Vec<Option<i64>> = all
                    .column(column)
                    .as_primitive::<arrow::datatypes::Int64Type>()
                    .iter()
                    .collect();
                numbers
            };
            let (keys, values, versions) = (number(0), number(1), number(3));
            let kinds = all.column(2).as_string::<i32>();
            let answer: Vec<_> = (0..all.num_rows())
                .map(|row| {
                    let kind = kinds.value(row).to_string();
                    (
                        keys[row].unwrap(),
                        values[row],
                        kind,
                        versions[row].unwrap(),
                    )
                })
                .collect();
            answers.push(answer);
        }
        answers.dedup();
        assert_eq!(answers.len(), 1, "{answers:?}");
        answers.remove(0)
    }

    #[tokio::test]
    async fn first_and_last_change_of_a_key_make_one() {
        let (pre, post) = ("update_preimage", "update_postimage");
        let changes = [
            // Inserted and updated.
            (1, None, "insert", 1),
            (1, None, pre, 2),
            (1, Some(7), post, 2),
            // Updated twice.
            (2, Some(1), pre, 2),
            (2, Some(2), post, 2),
            (2, Some(2), pre, 3),
            (2, None, post, 3),
            // Inserted and deleted.
            (3, Some(1), "insert", 1),
            (3, Some(1), "delete", 4),
            // Deleted and inserted again, with another value and with the same.
            (4, Some(1), "delete", 2),
            (4, Some(5), "insert", 3),
            (5, None, "delete", 2),
            (5, None, "insert", 2),
            // There and back.
            (6, Some(1), pre, 1),
            (6, Some(2), post, 1),
            (6, Some(2), pre, 2),
            (6, Some(1), post, 2),
            // Updated and deleted.
            (7, Some(1), pre, 1),
            (7, Some(2), post, 1),
            (7, Some(2), "delete", 2),
            // One change alone.
            (8, Some(1), "insert", 9),
        ];
        let expected: Vec<(i64, Option<i64>, String, i64)> = [
            (1, Some(7), "insert", 2),
            (2, Some(1), pre, 3),
            (2, None, post, 3),
            (4, Some(1), pre, 3),
            (4, Some(5), post, 3),
            (7, Some(1), "delete", 2),
            (8, Some(1), "insert", 9),
        ]
        .map(|(key, value, kind, version)| (key, value, kind.to_string(), version))
        .to_vec();
        assert_eq!(net(&changes).await, expected);
    }
}
