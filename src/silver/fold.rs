//! Folds the events of a key into its rows. Pure.
//!
//! Rows are never copied while folding: a row is named by its place in a pool (events first, truncates and old rows behind
//! them) and a folded row says for each column which pool row gives its value. The order of the events of one key is
//! (sequence, file, row), see the law in `docs/guarantees.md`.

use crate::events::EventKind;
use arrow::array::{Array, ArrayRef, BooleanArray, DynComparator, UInt32Array, make_comparator};
use arrow::compute::SortOptions;
use arrow::row::Rows;

/// The pool row that gives NULL.
const NOTHING: u32 = u32::MAX;

/// Which rows of a key silver has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One row; a delete flags it (SCD type 1, soft deletes).
    Flagged,
    /// One row; a delete takes it away (SCD type 1, hard deletes).
    Bare,
    /// One row for each version; a delete ends the last one (SCD type 2).
    History,
}

/// The columns of the events, seen by the fold: which values keep what was there.
pub struct Values<'a> {
    /// One array for each silver column, over all pool rows.
    pub columns: &'a [ArrayRef],
    /// Columns in which a NULL of an upsert keeps the value so far.
    pub ignore_null: &'a [bool],
    /// Where a value was not sent, if the source can say so.
    pub not_sent: &'a [Option<BooleanArray>],
}

impl Values<'_> {
    /// Whether every upsert sets every column, so that an event below a live row cannot matter.
    pub fn whole_rows(&self) -> bool {
        !self.ignore_null.contains(&true) && self.not_sent.iter().all(Option::is_none)
    }

    /// Whether the event says that it does not send this column.
    pub fn is_not_sent(&self, column: usize, row: u32) -> bool {
        self.not_sent[column]
            .as_ref()
            .is_some_and(|mask| mask.value(row as usize))
    }

    fn is_null(&self, column: usize, row: u32) -> bool {
        self.columns[column].is_null(row as usize)
    }

    /// Whether the event leaves this column as it is.
    pub fn keeps(&self, column: usize, row: u32, kind: EventKind) -> bool {
        let null_keeps = kind == EventKind::Delete || self.ignore_null[column];
        (null_keeps && self.is_null(column, row)) || self.is_not_sent(column, row)
    }
}

/// Compares values of two pool rows; NULL equals NULL.
pub struct ContentEquality<'a> {
    columns: Vec<(&'a ArrayRef, Option<DynComparator>)>,
}

impl<'a> ContentEquality<'a> {
    /// Over the columns of a pool.
    pub fn new(columns: &'a [ArrayRef]) -> Self {
        let with_comparator = |column: &'a ArrayRef| {
            let options = SortOptions::default();
            let comparator = make_comparator(column.as_ref(), column.as_ref(), options).ok();
            (column, comparator)
        };
        ContentEquality {
            columns: columns.iter().map(with_comparator).collect(),
        }
    }

    /// Whether two pool rows agree in a column.
    pub fn column(&self, column: usize, left: u32, right: u32) -> bool {
        let (values, compare) = &self.columns[column];
        let (left, right) = (left as usize, right as usize);
        match compare {
            Some(compare) => compare(left, right).is_eq(),
            // A type without an order has equality all the same.
            None => values.slice(left, 1) == values.slice(right, 1),
        }
    }

    /// Whether two pool rows agree in all columns.
    pub fn all(&self, left: u32, right: u32) -> bool {
        (0..self.columns.len()).all(|column| self.column(column, left, right))
    }

    /// The same where a row may lack a value.
    pub fn sources(&self, column: usize, left: Option<u32>, right: Option<u32>) -> bool {
        match (left, right) {
            (None, None) => true,
            (Some(row), None) | (None, Some(row)) => self.columns[column].0.is_null(row as usize),
            (Some(left), Some(right)) => left == right || self.column(column, left, right),
        }
    }
}

/// A row of silver in terms of pool rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldedRow {
    columns: Columns,
    /// The last event was a delete.
    pub deleted: bool,
    /// The pool row whose sequence opened the version.
    pub start: u32,
    /// The pool row whose sequence ended the version, if one did.
    pub end: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Columns {
    /// All from one pool row.
    Row(u32),
    /// One pool row for each column.
    Each(Vec<u32>),
}

impl FoldedRow {
    /// A row of silver as it stands.
    pub fn old(row: u32, deleted: bool) -> Self {
        FoldedRow {
            columns: Columns::Row(row),
            deleted,
            start: row,
            end: None,
        }
    }

    /// The pool row that gives column `column`; `None` gives NULL.
    pub fn source(&self, column: usize) -> Option<u32> {
        let row = match &self.columns {
            Columns::Row(row) => *row,
            Columns::Each(rows) => rows[column],
        };
        (row != NOTHING).then_some(row)
    }
}

/// The rules of one silver over one pool.
pub struct Fold<'a> {
    /// Which rows a key has.
    pub shape: Shape,
    /// What each event of the pool is.
    pub kinds: &'a [EventKind],
    /// The values of the pool.
    pub values: Values<'a>,
    /// The truncates of the pool, in the order of their sequences.
    pub truncates: &'a [u32],
    /// So many of the first ones are in the rows of silver already.
    pub known_truncates: usize,
    /// A truncate is a snapshot, which spares the keys that have an event of its sequence.
    pub snapshots: bool,
    /// The sequence of each event and truncate.
    pub sequences: &'a Rows,
    /// The columns that hold the sequence.
    pub sequence_columns: &'a [usize],
    /// The columns whose change opens a new version.
    pub tracked: &'a [usize],
    /// Compares the values.
    pub same: ContentEquality<'a>,
}

impl Fold<'_> {
    /// Folds events that are in order, from nothing; the rows are added to `rows`. Skipped events leave no trace.
    pub fn all(&self, events: &[u32], rows: &mut Vec<FoldedRow>) {
        self.go_on(None, events, self.truncates, rows, |_, _, _| {});
    }

    /// Folds the same and shows each step: the event or truncate, the row after it, and the versions that ended so far.
    pub fn told(
        &self,
        events: &[u32],
        rows: &mut Vec<FoldedRow>,
        seen: impl FnMut(u32, Option<&FoldedRow>, &[FoldedRow]),
    ) {
        self.go_on(None, events, self.truncates, rows, seen);
    }

    /// Continues `old`, a row of silver that is live or flagged, with events that come after it.
    ///
    /// No truncate that silver knows comes after it: the row would be deleted by it.
    pub fn onto(&self, old: FoldedRow, events: &[u32], rows: &mut Vec<FoldedRow>) {
        let new = &self.truncates[self.known_truncates..];
        self.go_on(Some(old), events, new, rows, |_, _, _| {});
    }

    /// Whether there are truncates that no row of silver has seen.
    pub fn has_new_truncates(&self) -> bool {
        self.known_truncates < self.truncates.len()
    }

    fn go_on(
        &self,
        mut state: Option<FoldedRow>,
        events: &[u32],
        mut truncates: &[u32],
        rows: &mut Vec<FoldedRow>,
        mut seen: impl FnMut(u32, Option<&FoldedRow>, &[FoldedRow]),
    ) {
        for &event in events {
            while let Some((&truncate, later)) = truncates.split_first()
                && self.is_not_after(truncate, event)
            {
                if !self.snapshots || !self.is_equal(truncate, event) {
                    state = self.truncated(state, truncate, rows);
                    seen(truncate, state.as_ref(), rows);
                }
                truncates = later;
            }
            state = self.step(state, event, rows);
            seen(event, state.as_ref(), rows);
        }
        for &truncate in truncates {
            state = self.truncated(state, truncate, rows);
            seen(truncate, state.as_ref(), rows);
        }
        rows.extend(state);
    }

    /// The row after one more event; a version that ends is added to `rows`.
    fn step(
        &self,
        state: Option<FoldedRow>,
        event: u32,
        rows: &mut Vec<FoldedRow>,
    ) -> Option<FoldedRow> {
        match (self.kinds[event as usize], self.shape) {
            (kind @ EventKind::Upsert, Shape::Flagged | Shape::Bare)
            | (kind @ EventKind::Delete, Shape::Flagged) => {
                Some(self.with_values(state.as_ref(), event, kind))
            }
            (EventKind::Delete, Shape::Bare) => None,
            (kind @ EventKind::Upsert, Shape::History) => {
                let mut next = self.with_values(state.as_ref(), event, kind);
                match state {
                    Some(open) if self.is_one_run(&open, &next) => next.start = open.start,
                    Some(open) => self.end(open, event, rows),
                    None => {}
                }
                Some(next)
            }
            (EventKind::Delete, Shape::History) => {
                if let Some(open) = state {
                    self.end(open, event, rows);
                }
                None
            }
            (EventKind::Skip | EventKind::Unknown | EventKind::Truncate, _) => state,
        }
    }

    /// The values of `event`, and those of `state` where the event keeps them.
    fn with_values(&self, state: Option<&FoldedRow>, event: u32, kind: EventKind) -> FoldedRow {
        let columns = self.values.columns.len();
        let keeps = |column| self.values.keeps(column, event, kind);
        let kept = |column| state.and_then(|state| state.source(column));
        let columns = if (0..columns).any(keeps) {
            let source = |column| match keeps(column) {
                true => kept(column).unwrap_or(NOTHING),
                false => event,
            };
            Columns::Each((0..columns).map(source).collect())
        } else {
            Columns::Row(event)
        };
        FoldedRow {
            columns,
            deleted: kind == EventKind::Delete,
            start: event,
            end: None,
        }
    }

    /// A truncate deletes what an event below it made; its own values are of no key.
    fn truncated(
        &self,
        state: Option<FoldedRow>,
        truncate: u32,
        rows: &mut Vec<FoldedRow>,
    ) -> Option<FoldedRow> {
        let state = state?;
        match self.shape {
            Shape::Flagged if self.snapshots && state.deleted => return Some(state),
            Shape::Flagged => {}
            Shape::Bare => return None,
            Shape::History => {
                self.end(state, truncate, rows);
                return None;
            }
        }
        let source = |column| match self.sequence_columns.contains(&column) {
            true => truncate,
            false => state.source(column).unwrap_or(NOTHING),
        };
        Some(FoldedRow {
            columns: Columns::Each((0..self.values.columns.len()).map(source).collect()),
            deleted: true,
            ..state
        })
    }

    fn is_one_run(&self, open: &FoldedRow, next: &FoldedRow) -> bool {
        let same = |&column: &usize| {
            self.same
                .sources(column, open.source(column), next.source(column))
        };
        self.tracked.iter().all(same)
    }

    /// Ends a version at the sequence of `event`. One of no width vanishes.
    fn end(&self, mut open: FoldedRow, event: u32, rows: &mut Vec<FoldedRow>) {
        let is_event = (open.start as usize) < self.kinds.len();
        let has_width = !is_event || !self.is_equal(open.start, event);
        if has_width {
            open.end = Some(event);
            rows.push(open);
        }
    }

    fn is_equal(&self, left: u32, right: u32) -> bool {
        self.sequences.row(left as usize) == self.sequences.row(right as usize)
    }

    fn is_not_after(&self, left: u32, right: u32) -> bool {
        self.sequences.row(left as usize) <= self.sequences.row(right as usize)
    }
}

/// For column `column`, the pool row of each folded row; NULL where nothing gives a value.
pub fn sources(rows: &[FoldedRow], column: usize) -> UInt32Array {
    rows.iter().map(|row| row.source(column)).collect()
}

#[cfg(test)]
pub(super) mod fixture {
    use super::*;
    use EventKind::Upsert;
    use arrow::array::{Int64Array, StringArray};
    use arrow::datatypes::DataType;
    use arrow::row::{RowConverter, SortField};
    use std::sync::Arc;

    /// Two columns, `status` and `amount`; the pool row that gives each value is told by the value itself.
    pub(in super::super) fn columns() -> [ArrayRef; 2] {
        let status = StringArray::from(vec![Some("s0"), Some("s1"), None, Some("s3")]);
        let amount = Int64Array::from(vec![Some(0), None, None, Some(3)]);
        [Arc::new(status), Arc::new(amount)]
    }

    /// One row for each number.
    pub(in super::super) fn sequences(numbers: &[i64]) -> Rows {
        let converter = RowConverter::new(vec![SortField::new(DataType::Int64)]).unwrap();
        let numbers: ArrayRef = Arc::new(Int64Array::from(numbers.to_vec()));
        converter.convert_columns(&[numbers]).unwrap()
    }

    /// Four upserts of sequence 0 to 3, flagged deletes, NULL overwrites.
    pub(in super::super) fn fold<'a>(columns: &'a [ArrayRef], sequences: &'a Rows) -> Fold<'a> {
        Fold {
            shape: Shape::Flagged,
            kinds: &[Upsert; 4],
            values: Values {
                columns,
                ignore_null: &[false; 2],
                not_sent: &[None, None],
            },
            truncates: &[],
            known_truncates: 0,
            snapshots: false,
            sequences,
            sequence_columns: &[],
            tracked: &[0],
            same: ContentEquality::new(columns),
        }
    }

    pub(in super::super) fn sources_of(row: &FoldedRow) -> [Option<u32>; 2] {
        [row.source(0), row.source(1)]
    }
}

#[cfg(test)]
mod tests {
    use super::fixture::{columns, fold, sequences, sources_of};
    use super::*;
    use EventKind::{Delete, Skip, Truncate, Upsert};

    fn folded(fold: &Fold<'_>, events: &[u32]) -> Vec<FoldedRow> {
        let mut rows = Vec::new();
        fold.all(events, &mut rows);
        rows
    }

    /// Start and end of each version, as pool rows.
    fn spans(rows: &[FoldedRow]) -> Vec<(u32, Option<u32>)> {
        rows.iter().map(|row| (row.start, row.end)).collect()
    }

    #[test]
    fn delete_before_any_upsert_is_a_row_with_its_own_values() {
        let (columns, sequences) = (columns(), sequences(&[0, 1, 2, 3]));
        let kinds = [Upsert, Delete, Upsert, Upsert];
        let mut fold = fold(&columns, &sequences);
        fold.kinds = &kinds;
        let rows = folded(&fold, &[1]);
        assert_eq!(
            (sources_of(&rows[0]), rows[0].deleted),
            ([Some(1), None], true)
        );
        fold.shape = Shape::Bare;
        assert_eq!(folded(&fold, &[1]), []);
        fold.shape = Shape::History;
        assert_eq!(folded(&fold, &[1]), []);
    }

    #[test]
    fn flagged_delete_takes_its_own_values_and_keeps_the_rest() {
        let (columns, sequences) = (columns(), sequences(&[0, 1, 2, 3]));
        let kinds = [Upsert, Delete, Delete, Upsert];
        let mut fold = fold(&columns, &sequences);
        fold.kinds = &kinds;
        let row = &folded(&fold, &[0, 1])[0];
        assert_eq!((sources_of(row), row.deleted), ([Some(1), Some(0)], true));
        let row = &folded(&fold, &[0, 1, 2])[0];
        assert_eq!((sources_of(row), row.deleted), ([Some(1), Some(0)], true));
        let row = &folded(&fold, &[0, 1, 2, 3])[0];
        assert_eq!((sources_of(row), row.deleted), ([Some(3), Some(3)], false));
    }

    #[test]
    fn null_overwrites_unless_it_is_ignored_in_its_column() {
        let (columns, sequences) = (columns(), sequences(&[0, 1, 2, 3]));
        let mut fold = fold(&columns, &sequences);
        let row = &folded(&fold, &[0, 1])[0];
        assert!(columns[1].is_null(row.source(1).unwrap() as usize));
        fold.values.ignore_null = &[false, true];
        let row = &folded(&fold, &[0, 1])[0];
        assert_eq!(sources_of(row), [Some(1), Some(0)]);
    }

    #[test]
    fn value_that_was_not_sent_keeps_what_was_there() {
        let (columns, sequences) = (columns(), sequences(&[0, 1, 2, 3]));
        let masks = [
            Some(BooleanArray::from(vec![false, true, false, false])),
            None,
        ];
        let mut fold = fold(&columns, &sequences);
        fold.values.not_sent = &masks;
        assert_eq!(folded(&fold, &[0, 1])[0].source(0), Some(0));
    }

    #[test]
    fn skipped_events_leave_no_row() {
        let (columns, sequences) = (columns(), sequences(&[0, 1, 2, 3]));
        let mut fold = fold(&columns, &sequences);
        fold.kinds = &[Skip; 4];
        assert_eq!(folded(&fold, &[0]), []);
    }

    #[test]
    fn after_a_delete_that_leaves_nothing_the_next_upsert_starts_from_null() {
        let (columns, sequences) = (columns(), sequences(&[0, 1, 2, 3]));
        let kinds = [Upsert, Delete, Upsert, Upsert];
        let mut fold = fold(&columns, &sequences);
        fold.kinds = &kinds;
        fold.values.ignore_null = &[true, true];
        for shape in [Shape::Bare, Shape::History] {
            fold.shape = shape;
            let rows = folded(&fold, &[0, 1, 2]);
            assert_eq!(sources_of(rows.last().unwrap()), [None, None], "{shape:?}");
        }
    }

    #[test]
    fn truncate_deletes_what_is_below_it_and_spares_its_own_sequence() {
        let (columns, sequences) = (columns(), sequences(&[0, 5, 3, 5]));
        let kinds = [Upsert, Upsert, Truncate, Truncate];
        let mut fold = fold(&columns, &sequences);
        fold.kinds = &kinds;
        fold.truncates = &[2, 3];
        fold.sequence_columns = &[1];
        let row = &folded(&fold, &[0])[0];
        assert_eq!((sources_of(row), row.deleted), ([Some(0), Some(3)], true));
        assert!(!folded(&fold, &[1])[0].deleted);
        fold.shape = Shape::Bare;
        assert_eq!(folded(&fold, &[0]), []);
        assert_eq!(folded(&fold, &[0, 1]).len(), 1);
    }

    #[test]
    fn equal_tracked_values_are_one_version_with_the_newest_others() {
        let columns: [ArrayRef; 2] = [
            std::sync::Arc::new(arrow::array::StringArray::from(vec!["a", "a", "b", "a"])),
            columns()[1].clone(),
        ];
        let sequences = sequences(&[5, 10, 12, 15]);
        let mut fold = fold(&columns, &sequences);
        fold.shape = Shape::History;
        let rows = folded(&fold, &[0, 1, 2, 3]);
        assert_eq!(spans(&rows), [(0, Some(2)), (2, Some(3)), (3, None)]);
        assert_eq!(sources_of(&rows[0]), [Some(1), Some(1)]);
    }

    #[test]
    fn version_of_no_width_vanishes_and_a_delete_ends_the_run() {
        let columns: [ArrayRef; 2] = [
            std::sync::Arc::new(arrow::array::StringArray::from(vec!["w", "x", "x", "w"])),
            columns()[1].clone(),
        ];
        let sequences = sequences(&[3, 7, 7, 9]);
        let kinds = [Upsert, Upsert, Delete, Upsert];
        let mut fold = fold(&columns, &sequences);
        fold.shape = Shape::History;
        fold.kinds = &kinds;
        assert_eq!(spans(&folded(&fold, &[0, 1, 2])), [(0, Some(1))]);
        let back = spans(&folded(&fold, &[0, 2, 3]));
        assert_eq!(back, [(0, Some(2)), (3, None)]);
    }

    #[test]
    fn no_tracked_column_makes_one_version_of_all_upserts() {
        let (columns, sequences) = (columns(), sequences(&[0, 1, 2, 3]));
        let mut fold = fold(&columns, &sequences);
        fold.shape = Shape::History;
        fold.tracked = &[];
        assert_eq!(spans(&folded(&fold, &[0, 1, 3])), [(0, None)]);
    }
}
