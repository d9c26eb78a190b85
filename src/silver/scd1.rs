//! Decides what new events do to the one row of their key that is there (SCD type 1). Pure.

use crate::events::EventKind;
use crate::silver::fold::{Fold, FoldedRow, Shape};

/// What new events do to a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The row stands.
    Keep,
    /// The key gets this row.
    Write(FoldedRow),
    /// The row goes.
    Remove,
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

impl Fates {
    /// Adds others.
    pub fn add(&mut self, other: Fates) {
        self.late += other.late;
        self.repeated += other.repeated;
        self.conflicts += other.conflicts;
    }
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
    fold: &Fold<'_>,
    events: &[u32],
    old: OldRow,
    standing: &dyn Fn(u32) -> Standing,
    same: &dyn Fn(u32) -> bool,
    fates: &mut Fates,
) -> Decision {
    let mut below = 0;
    let mut differing = 0;
    let mut above = Vec::new();
    for &event in events {
        match standing(event) {
            Standing::Below => below += 1,
            Standing::Equal if same(event) => fates.repeated += 1,
            Standing::Equal => differing += 1,
            Standing::Above => above.push(event),
        }
    }
    fates.late += below;
    fates.conflicts += differing;
    // Nothing below such an event shows above it.
    let overwrites = |event: &u32| match fold.kinds[*event as usize] {
        EventKind::Upsert => fold.values.whole_rows(),
        EventKind::Delete => fold.shape == Shape::Bare,
        EventKind::Truncate | EventKind::Skip | EventKind::Unknown => false,
    };
    let late_matters =
        below > 0 && (old.deleted || !fold.values.whole_rows() || fold.has_new_truncates());
    if !above.iter().any(overwrites) && (late_matters || differing > 0) {
        return Decision::Refold;
    }
    if above.is_empty() && !fold.has_new_truncates() {
        return Decision::Keep;
    }
    let row = old.row.expect("BUG: a row with newer events was not read");
    let mut rows = Vec::with_capacity(1);
    fold.onto(FoldedRow::old(row, old.deleted), &above, &mut rows);
    match rows.pop() {
        Some(row) => Decision::Write(row),
        None => Decision::Remove,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::silver::fold::fixture::{columns, fold, sequences, sources_of};
    use EventKind::{Delete, Upsert};

    /// Decides for events whose standing is given; the old row is pool row 3.
    fn decided(
        standings: &[Standing],
        kinds: [EventKind; 4],
        deleted: bool,
        ignore_null: bool,
        shape: Shape,
    ) -> (Decision, Fates) {
        let (columns, sequences) = (columns(), sequences(&[0, 1, 2, 3]));
        let ignore_null = [ignore_null; 2];
        let mut fold = fold(&columns, &sequences);
        fold.shape = shape;
        fold.kinds = &kinds;
        fold.values.ignore_null = &ignore_null;
        let events: Vec<u32> = (0..standings.len() as u32).collect();
        let mut fates = Fates::default();
        let old = OldRow {
            row: Some(3),
            deleted,
        };
        let standing = |event: u32| standings[event as usize];
        let decision = decide(&fold, &events, old, &standing, &|_| false, &mut fates);
        (decision, fates)
    }

    #[test]
    fn late_event_below_a_live_row_changes_nothing() {
        for shape in [Shape::Flagged, Shape::Bare] {
            let (decision, fates) = decided(&[Standing::Below], [Upsert; 4], false, false, shape);
            assert_eq!((decision, fates.late), (Decision::Keep, 1));
        }
    }

    #[test]
    fn late_event_needs_all_events_below_a_delete_and_under_partial_updates() {
        let decided = |deleted, partial| {
            decided(
                &[Standing::Below],
                [Upsert; 4],
                deleted,
                partial,
                Shape::Flagged,
            )
            .0
        };
        assert_eq!(decided(true, false), Decision::Refold);
        assert_eq!(decided(false, true), Decision::Refold);
    }

    #[test]
    fn equal_sequence_with_other_content_is_a_conflict_for_all_events() {
        let (decision, fates) = decided(
            &[Standing::Equal],
            [Upsert; 4],
            false,
            false,
            Shape::Flagged,
        );
        assert_eq!((decision, fates.conflicts), (Decision::Refold, 1));
    }

    #[test]
    fn newer_upsert_of_whole_rows_decides_whatever_came_late() {
        let standings = [Standing::Below, Standing::Equal, Standing::Above];
        let (decision, _) = decided(&standings, [Upsert; 4], true, false, Shape::Flagged);
        let Decision::Write(row) = decision else {
            panic!("{decision:?}")
        };
        assert_eq!((row.start, row.deleted), (2, false));
    }

    #[test]
    fn newer_flagging_delete_alone_does_not_hide_what_came_late() {
        let standings = [Standing::Below, Standing::Above];
        let kinds = [Upsert, Delete, Upsert, Upsert];
        let decided = |deleted| decided(&standings, kinds, deleted, false, Shape::Flagged).0;
        assert_eq!(decided(true), Decision::Refold);
        let Decision::Write(row) = decided(false) else {
            panic!("a live row takes the delete")
        };
        assert_eq!((sources_of(&row), row.deleted), ([Some(1), Some(3)], true));
    }

    #[test]
    fn newer_delete_that_leaves_nothing_hides_whatever_came_late() {
        let standings = [Standing::Below, Standing::Equal, Standing::Above];
        let kinds = [Upsert, Upsert, Delete, Upsert];
        let (decision, fates) = decided(&standings, kinds, false, true, Shape::Bare);
        assert_eq!(decision, Decision::Remove);
        assert_eq!((fates.late, fates.conflicts), (1, 1));
    }
}
