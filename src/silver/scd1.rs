//! Folds the events of a key into its row, and decides what new events do to a row that is there. Pure.
//!
//! Rows are never copied while folding: a row is named by its place in a pool (events first, old rows behind them) and
//! a folded row says for each column which pool row gives its value. The order of the events of one key is
//! (sequence, file, row), see the law in `docs/guarantees.md`.

use crate::events::EventKind;
use arrow::array::{Array, ArrayRef, BooleanArray, UInt32Array};
use arrow::row::Rows;

/// The pool row that gives NULL.
const NOTHING: u32 = u32::MAX;

/// The columns of the events, seen by the fold: which values keep what was there.
pub struct Values<'a> {
    /// One array for each silver column, over all pool rows.
    pub columns: &'a [ArrayRef],
    /// Columns in which a NULL of an upsert keeps the value so far.
    pub ignore_null: &'a [bool],
    /// Where a value was not sent, if the source has a word for it.
    pub unavailable: &'a [Option<BooleanArray>],
}

impl Values<'_> {
    /// Whether every upsert sets every column, so that an event below a live row cannot matter.
    fn whole_rows(&self) -> bool {
        !self.ignore_null.contains(&true) && self.unavailable.iter().all(Option::is_none)
    }

    fn is_unavailable(&self, column: usize, row: u32) -> bool {
        self.unavailable[column]
            .as_ref()
            .is_some_and(|mask| mask.value(row as usize))
    }

    fn is_null(&self, column: usize, row: u32) -> bool {
        self.columns[column].is_null(row as usize)
    }

    /// Whether the event leaves this column as it is.
    pub fn keeps(&self, column: usize, row: u32, kind: EventKind) -> bool {
        let null_keeps = kind == EventKind::Delete || self.ignore_null[column];
        (null_keeps && self.is_null(column, row)) || self.is_unavailable(column, row)
    }
}

/// A row of silver in terms of pool rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldedRow {
    columns: Columns,
    /// The pool row that gives the sequence.
    pub sequence: u32,
    /// The last event was a delete.
    pub deleted: bool,
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
            sequence: row,
            deleted,
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

/// Continues `state` with one more event.
pub fn fold(
    state: Option<FoldedRow>,
    event: u32,
    kind: EventKind,
    values: &Values<'_>,
) -> FoldedRow {
    let deleted = kind == EventKind::Delete;
    let columns = values.columns.len();
    if !(0..columns).any(|column| values.keeps(column, event, kind)) {
        return FoldedRow {
            columns: Columns::Row(event),
            sequence: event,
            deleted,
        };
    }
    let source = |column| {
        if values.keeps(column, event, kind) {
            state
                .as_ref()
                .and_then(|state| state.source(column))
                .unwrap_or(NOTHING)
        } else {
            event
        }
    };
    FoldedRow {
        columns: Columns::Each((0..columns).map(source).collect()),
        sequence: event,
        deleted,
    }
}

/// Folds events that are in order, from nothing. Skipped events leave no trace.
pub fn fold_all(events: &[u32], kinds: &[EventKind], values: &Values<'_>) -> Option<FoldedRow> {
    let mut state = None;
    for &event in events {
        match kinds[event as usize] {
            kind @ (EventKind::Upsert | EventKind::Delete) => {
                state = Some(fold(state, event, kind, values))
            }
            EventKind::Skip | EventKind::Unknown => {}
        }
    }
    state
}

/// What new events do to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The row stands.
    Keep,
    /// The key gets this row.
    Write(FoldedRow),
    /// Only all events of the key can tell.
    Refold,
}

/// The row of silver that new events meet.
#[derive(Clone, Copy)]
pub struct OldRow {
    /// Its place in the pool; `None` while only its sequence and flag were read.
    pub row: Option<u32>,
    /// Its flag.
    pub deleted: bool,
}

/// How many events met which fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fates {
    /// Older than the row.
    pub late: u64,
    /// Equal to the row in sequence and content, or to the event before it.
    pub repeated: u64,
    /// Equal in sequence, other content.
    pub conflicts: u64,
}

/// Where one event stands against the row that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A smaller sequence.
    Below,
    /// The same sequence.
    Equal,
    /// A larger sequence.
    Above,
}

/// Decides for one key. `events` are its new events in order, `standing` compares each with the row, `same` tells whether
/// an event of equal sequence would change nothing in the row.
///
/// The decision is exact: it is [`Decision::Refold`] wherever the events that made the row could matter.
pub fn decide(
    events: &[u32],
    kinds: &[EventKind],
    old: OldRow,
    values: &Values<'_>,
    standing: &dyn Fn(u32) -> Standing,
    same: &dyn Fn(u32) -> bool,
    fates: &mut Fates,
) -> Decision {
    let mut below = 0;
    let mut differing = 0;
    let mut above = Vec::new();
    for &event in events
        .iter()
        .filter(|&&event| is_change(kinds[event as usize]))
    {
        match standing(event) {
            Standing::Below => below += 1,
            Standing::Equal if same(event) => fates.repeated += 1,
            Standing::Equal => differing += 1,
            Standing::Above => above.push(event),
        }
    }
    fates.late += below;
    fates.conflicts += differing;
    let overwritten = values.whole_rows()
        && above
            .iter()
            .any(|&event| kinds[event as usize] == EventKind::Upsert);
    let late_matters = below > 0 && (old.deleted || !values.whole_rows());
    if !overwritten && (late_matters || differing > 0) {
        return Decision::Refold;
    }
    let mut state = match old.row {
        Some(row) => FoldedRow::old(row, old.deleted),
        None if above.is_empty() => return Decision::Keep,
        None => unreachable!("BUG: a row with newer events was not read"),
    };
    for &event in &above {
        state = fold(Some(state), event, kinds[event as usize], values);
    }
    if above.is_empty() {
        Decision::Keep
    } else {
        Decision::Write(state)
    }
}

fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Upsert | EventKind::Delete => true,
        EventKind::Skip | EventKind::Unknown => false,
    }
}

/// The places of all events sorted by (key, sequence, file, row): the total order of the law, grouped by key.
pub fn order_of_events(keys: &Rows, sequences: &Rows, files: &ArrayRef, rows: &[i64]) -> Vec<u32> {
    use arrow::array::AsArray;
    let files = files.as_string::<i32>();
    let count = u32::try_from(rows.len()).expect("one apply holds fewer than 4 billion events");
    let mut order: Vec<u32> = (0..count).collect();
    order.sort_unstable_by(|&left, &right| {
        let (l, r) = (left as usize, right as usize);
        let by_key = keys.row(l).cmp(&keys.row(r));
        by_key
            .then_with(|| sequences.row(l).cmp(&sequences.row(r)))
            .then_with(|| files.value(l).cmp(files.value(r)))
            .then_with(|| rows[l].cmp(&rows[r]))
    });
    order
}

/// For column `column`, the pool row of each folded row; NULL where nothing gives a value.
pub fn sources(rows: &[FoldedRow], column: usize) -> UInt32Array {
    rows.iter().map(|row| row.source(column)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use EventKind::{Delete, Skip, Upsert};
    use arrow::array::{Int64Array, StringArray};
    use std::sync::Arc;

    /// Two columns; the row that gives each value is told by the value itself.
    fn columns() -> [ArrayRef; 2] {
        let status = StringArray::from(vec![Some("s0"), Some("s1"), None, Some("s3")]);
        let amount = Int64Array::from(vec![Some(0), None, None, Some(3)]);
        [Arc::new(status), Arc::new(amount)]
    }

    fn values<'a>(columns: &'a [ArrayRef], ignore_null: &'a [bool]) -> Values<'a> {
        Values {
            columns,
            ignore_null,
            unavailable: &[None, None],
        }
    }

    fn sources_of(row: &FoldedRow) -> [Option<u32>; 2] {
        [row.source(0), row.source(1)]
    }

    #[test]
    fn delete_before_any_upsert_is_a_row_with_its_own_values() {
        let columns = columns();
        let row = fold_all(&[1], &[Upsert, Delete], &values(&columns, &[false; 2])).unwrap();
        assert_eq!((sources_of(&row), row.deleted), ([Some(1), None], true));
    }

    #[test]
    fn delete_takes_its_own_values_and_keeps_the_rest() {
        let columns = columns();
        let kinds = [Upsert, Delete, Delete, Upsert];
        let values = values(&columns, &[false; 2]);
        let row = fold_all(&[0, 1], &kinds, &values).unwrap();
        assert_eq!((sources_of(&row), row.deleted), ([Some(1), Some(0)], true));
        let row = fold_all(&[0, 1, 2], &kinds, &values).unwrap();
        assert_eq!((sources_of(&row), row.sequence), ([Some(1), Some(0)], 2));
        let row = fold_all(&[0, 1, 2, 3], &kinds, &values).unwrap();
        assert_eq!((sources_of(&row), row.deleted), ([Some(3), Some(3)], false));
    }

    #[test]
    fn null_overwrites_unless_it_is_ignored_in_its_column() {
        let columns = columns();
        let kinds = [Upsert; 4];
        let row = fold_all(&[0, 1], &kinds, &values(&columns, &[false, false])).unwrap();
        assert!(columns[1].is_null(row.source(1).unwrap() as usize));
        let row = fold_all(&[0, 1], &kinds, &values(&columns, &[false, true])).unwrap();
        assert_eq!(sources_of(&row), [Some(1), Some(0)]);
    }

    #[test]
    fn value_that_was_not_sent_keeps_what_was_there() {
        let columns = columns();
        let masks = [
            Some(BooleanArray::from(vec![false, true, false, false])),
            None,
        ];
        let values = Values {
            columns: &columns,
            ignore_null: &[false; 2],
            unavailable: &masks,
        };
        let row = fold_all(&[0, 1], &[Upsert; 4], &values).unwrap();
        assert_eq!(row.source(0), Some(0));
    }

    #[test]
    fn skipped_events_leave_no_row() {
        let columns = columns();
        assert_eq!(
            fold_all(&[0], &[Skip; 4], &values(&columns, &[false; 2])),
            None
        );
    }

    /// Decides for events whose standing is given; the old row is pool row 3.
    fn decided(
        standings: &[Standing],
        kinds: [EventKind; 4],
        deleted: bool,
        ignore_null: bool,
    ) -> (Decision, Fates) {
        let columns = columns();
        let ignore_null = [ignore_null; 2];
        let values = values(&columns, &ignore_null);
        let events: Vec<u32> = (0..standings.len() as u32).collect();
        let mut fates = Fates::default();
        let old = OldRow {
            row: Some(3),
            deleted,
        };
        let standing = |event: u32| standings[event as usize];
        let decision = decide(
            &events,
            &kinds,
            old,
            &values,
            &standing,
            &|_| false,
            &mut fates,
        );
        (decision, fates)
    }

    #[test]
    fn late_event_below_a_live_row_changes_nothing() {
        let (decision, fates) = decided(&[Standing::Below], [Upsert; 4], false, false);
        assert_eq!((decision, fates.late), (Decision::Keep, 1));
    }

    #[test]
    fn late_event_needs_all_events_below_a_delete_and_under_partial_updates() {
        assert_eq!(
            decided(&[Standing::Below], [Upsert; 4], true, false).0,
            Decision::Refold
        );
        assert_eq!(
            decided(&[Standing::Below], [Upsert; 4], false, true).0,
            Decision::Refold
        );
    }

    #[test]
    fn equal_sequence_with_other_content_is_a_conflict_for_all_events() {
        let (decision, fates) = decided(&[Standing::Equal], [Upsert; 4], false, false);
        assert_eq!((decision, fates.conflicts), (Decision::Refold, 1));
    }

    #[test]
    fn newer_upsert_of_whole_rows_decides_whatever_came_late() {
        let standings = [Standing::Below, Standing::Equal, Standing::Above];
        let (decision, _) = decided(&standings, [Upsert; 4], true, false);
        let Decision::Write(row) = decision else {
            panic!("{decision:?}")
        };
        assert_eq!((row.sequence, row.deleted), (2, false));
    }

    #[test]
    fn newer_delete_alone_does_not_hide_what_came_late() {
        let standings = [Standing::Below, Standing::Above];
        let kinds = [Upsert, Delete, Upsert, Upsert];
        assert_eq!(decided(&standings, kinds, true, false).0, Decision::Refold);
        let Decision::Write(row) = decided(&standings, kinds, false, false).0 else {
            panic!("a live row takes the delete")
        };
        assert_eq!((sources_of(&row), row.deleted), ([Some(1), Some(3)], true));
    }
}
