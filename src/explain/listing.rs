//! The events of one key as a list, in the order of the law, each with its fate in words.

use super::fate::{self, Arrival, Fate, Law, Told, Why};
use super::records::Records;
use super::{ExplainedEvent, Place};
use crate::error::Result;
use crate::events::EventKind;
use crate::silver::fold::{FoldedRow, Shape};
use crate::silver::plan::SilverPlan;
use crate::silver::pool::Comparators;
use arrow::row::Rows;

/// The events, which row of `records` each is, and what the fold gives.
pub(super) struct Listing {
    pub(super) events: Vec<ExplainedEvent>,
    pub(super) rows: Vec<u32>,
    pub(super) folded: Vec<FoldedRow>,
}

/// Folds the events of `records` and tells what became of each.
pub(super) fn listing(
    records: &Records,
    plan: &SilverPlan,
    comparators: &Comparators,
) -> Result<Listing> {
    let sequences = comparators
        .sequence
        .rows(&plan.sequence_columns(&records.rows))?;
    let steps = Steps::new(records, &sequences);
    let pool = &records.pool;
    let not_sent = pool.not_sent(plan, &pool.columns)?;
    let fold = pool.fold(plan, &pool.columns, &not_sent);
    let arrivals: Vec<Arrival<'_>> = steps
        .row_of
        .iter()
        .map(|&row| arrival(records, row))
        .collect();
    let law = Law {
        fold: &fold,
        plan,
        events: &pool.order,
        arrivals: &arrivals,
    };
    let mut folded = Vec::new();
    let told = fate::told(&law, &mut folded);
    let late_after = late_after(records, &steps, &sequences);
    let teller = Teller {
        records,
        late_after: &late_after,
        steps: &steps,
        told: &told,
        shape: plan.shape,
    };
    let (mut events, mut rows) = (Vec::new(), Vec::new());
    for row in in_order(records, &sequences) {
        if let Some(event) = teller.event(row) {
            events.push(event);
            rows.push(row as u32);
        }
    }
    Ok(Listing {
        events,
        rows,
        folded,
    })
}

/// All rows by (sequence, file, record); truncates come before other events of their sequence.
fn in_order(records: &Records, sequences: &Rows) -> Vec<usize> {
    let mut rows: Vec<usize> = (0..records.kinds.len()).collect();
    rows.sort_by_key(|&row| {
        let is_event = records.kinds[row] != EventKind::Truncate;
        (sequences.row(row), is_event, records.place(row))
    });
    rows
}

fn arrival(records: &Records, row: usize) -> Arrival<'_> {
    let (file, number) = records.place(row);
    (records.batch(row), file, number)
}

/// Which event or truncate of the pool each row is.
struct Steps {
    /// `None` for a row that the fold does not see.
    of_row: Vec<Option<u32>>,
    /// Of truncates of one sequence, the first that arrived.
    row_of: Vec<usize>,
}

impl Steps {
    fn new(records: &Records, sequences: &Rows) -> Steps {
        let pool = &records.pool;
        let mut of_row = vec![None; records.kinds.len()];
        for (step, &row) in (0_u32..).zip(&records.row_of) {
            of_row[row] = Some(step);
        }
        let mut of_truncate: Vec<Option<usize>> = vec![None; pool.truncates.len()];
        for (row, _) in records.kinds.iter().enumerate().filter(is_truncate) {
            let is_before = |&step: &u32| pool.sequences.row(step as usize) < sequences.row(row);
            let place = pool.truncates.partition_point(is_before);
            of_row[row] = pool.truncates.get(place).copied();
            let first = of_truncate[place]
                .into_iter()
                .chain([row])
                .min_by_key(|&row| arrival(records, row));
            of_truncate[place] = first;
        }
        let rows = records.row_of.iter().copied();
        Steps {
            row_of: rows.chain(of_truncate.into_iter().flatten()).collect(),
            of_row,
        }
    }
}

/// For each row that the fold sees, the one of the largest sequence that arrived before it, if that is larger than its own.
fn late_after(records: &Records, steps: &Steps, sequences: &Rows) -> Vec<Option<usize>> {
    let mut late_after = vec![None; records.kinds.len()];
    // Snapshots come in order, whatever of their records is named.
    let is_seen = |row: &usize| steps.of_row[*row].is_some() && !records.is_missing(*row);
    let mut by_arrival: Vec<usize> = (0..records.kinds.len()).filter(is_seen).collect();
    by_arrival.sort_by_key(|&row| arrival(records, row));
    let mut largest: Option<usize> = None;
    for row in by_arrival {
        let is_larger = |largest: &usize| sequences.row(*largest) > sequences.row(row);
        late_after[row] = largest.filter(is_larger);
        // Of equal sequences the first to arrive is named.
        let grows = largest.is_none_or(|largest| sequences.row(row) > sequences.row(largest));
        largest = if grows { Some(row) } else { largest };
    }
    late_after
}

fn is_truncate((_, kind): &(usize, &EventKind)) -> bool {
    **kind == EventKind::Truncate
}

/// Puts what became of an event into words.
struct Teller<'a> {
    records: &'a Records,
    steps: &'a Steps,
    told: &'a [Option<Told>],
    late_after: &'a [Option<usize>],
    shape: Shape,
}

impl Teller<'_> {
    /// `None` for a truncate that says nothing about the key.
    fn event(&self, row: usize) -> Option<ExplainedEvent> {
        let Some(step) = self.steps.of_row[row] else {
            return Some(self.unseen(row));
        };
        let told = self.told[step as usize].as_ref()?;
        // A snapshot that lacks a key which is deleted already says nothing.
        if self.records.is_missing(row) && told.fate == Fate::NoChange {
            return None;
        }
        let original = self.steps.row_of[step as usize];
        let (fate, other, why) = match original == row {
            true => (told.fate, self.other(told), self.why(told, step)),
            false => {
                let original = self.place(original);
                (
                    Fate::Repeated,
                    Some(original.clone()),
                    format!("says what {original} says"),
                )
            }
        };
        let late_after = self.late_after[row].map(|after| self.place(after));
        let reason = match self.tie_note(told) {
            Some(note) => format!("{why}; {note}"),
            None => why,
        };
        Some(ExplainedEvent {
            is_in_order: Some(late_after.is_none()),
            late_after,
            fate,
            other,
            reason,
            ..self.plain(row)
        })
    }

    /// A row that the fold does not see.
    fn unseen(&self, row: usize) -> ExplainedEvent {
        let (fate, reason) = match self.records.kinds[row] {
            EventKind::Skip => (Fate::Skipped, "silver skips its operation"),
            EventKind::Unknown => (Fate::LeftOut, "no rule of silver takes its operation"),
            EventKind::Upsert | EventKind::Delete | EventKind::Truncate => {
                (Fate::LeftOut, "its sequence is NULL")
            }
        };
        ExplainedEvent {
            fate,
            reason: reason.into(),
            ..self.plain(row)
        }
    }

    fn plain(&self, row: usize) -> ExplainedEvent {
        ExplainedEvent {
            place: self.place(row),
            batch_id: self.records.batch(row),
            kind: Some(kind_text(self.records, row)),
            is_in_order: None,
            late_after: None,
            fate: Fate::NoChange,
            other: None,
            reason: String::new(),
        }
    }

    fn other(&self, told: &Told) -> Option<Place> {
        match told.why {
            Why::Repeats(other) | Why::Loses(other) | Why::NothingLeftAfter(other, _) => {
                Some(self.place_of(other))
            }
            Why::Gives(_) | Why::Met(_) => None,
        }
    }

    fn why(&self, told: &Told, step: u32) -> String {
        match &told.why {
            Why::Gives(text) | Why::Met(text) => text.clone(),
            Why::Repeats(other) => format!("says what {} says", self.place_of(*other)),
            Why::Loses(other) => {
                format!("{} wins the tie: later file or row", self.place_of(*other))
            }
            Why::NothingLeftAfter(later, Some(version)) => {
                let place = self.place_of(*later);
                format!("goes on with version {version}; set anew by {place}")
            }
            Why::NothingLeftAfter(later, None) => {
                let place = self.place_of(*later);
                let deletes =
                    |step| matches!(self.kind(step), EventKind::Delete | EventKind::Truncate);
                match (deletes(step), deletes(*later), self.shape) {
                    (true, false, _) => format!("{place} brings the row back"),
                    (_, true, Shape::Bare) => format!("taken away by {place}"),
                    _ => format!("set anew by {place}"),
                }
            }
        }
    }

    /// What there is to say about a tie beside the fate.
    fn tie_note(&self, told: &Told) -> Option<String> {
        if let Some(other) = told.wins_over {
            return Some(format!("wins the tie with {}", self.place_of(other)));
        }
        let winner = told.loses_to.filter(|_| told.fate == Fate::Applied)?;
        Some(format!("the tie goes to {}", self.place_of(winner)))
    }

    fn kind(&self, step: u32) -> EventKind {
        self.records.kinds[self.steps.row_of[step as usize]]
    }

    fn place_of(&self, step: u32) -> Place {
        self.place(self.steps.row_of[step as usize])
    }

    fn place(&self, row: usize) -> Place {
        let (file, number) = self.records.place(row);
        Place {
            file_path: file.to_string(),
            file_row: (!self.records.is_missing(row)).then_some(number),
        }
    }
}

fn kind_text(records: &Records, row: usize) -> &'static str {
    match records.kinds[row] {
        EventKind::Truncate if records.is_missing(row) => "missing",
        EventKind::Upsert => "upsert",
        EventKind::Delete => "delete",
        EventKind::Truncate => "truncate",
        EventKind::Skip => "skip",
        EventKind::Unknown => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::BATCH_ID;
    use crate::settings::{Request, Settings};
    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use arrow::datatypes::Schema;
    use std::sync::Arc;

    /// Operation, sequence, status, amount; NULL where there is none.
    type Event = (&'static str, i64, Option<&'static str>, Option<i64>);

    /// An event with the number of its batch and its record.
    type Placed<'a> = (usize, usize, &'a Event);

    const ROWS: [&str; 2] = ["", "stored_as_scd_type = 1\ndeletes = \"hard\"\n"];
    const HISTORY: &str = "stored_as_scd_type = 2\nexcept_column_list = [\"op\", \"seq\"]\n";

    fn plan(silver: &str, schema: &Schema) -> SilverPlan {
        let folder = tempfile::tempdir().unwrap();
        let truncate = match silver.contains("scd_type = 2") {
            true => "",
            false => "\"T\"",
        };
        let except = match silver.contains("except_column_list") {
            true => "",
            false => "except_column_list = [\"op\"]\n",
        };
        let text = format!(
            "[pipeline.p]\ncheckpoint = \"c\"\nsource.path = \"in\"\nbronze.path = \"b\"\n\
             [pipeline.p.silver]\npath = \"s\"\nkeys = [\"id\"]\nsequence_by = [\"seq\"]\n\
             operations = {{ column = \"op\", upsert = [\"U\"], delete = [\"D\"], \
             truncate = [{truncate}], skip = [\"S\"] }}\n{except}{silver}"
        );
        std::fs::write(folder.path().join("landfall.toml"), text).unwrap();
        let settings = Settings::load(&Request::in_folder(folder.path())).unwrap();
        let silver = settings.pipelines[0].silver.clone().unwrap();
        SilverPlan::resolve(&silver, None, schema).unwrap().unwrap()
    }

    fn batch(batches: &[&[Event]]) -> RecordBatch {
        let all: Vec<Placed<'_>> = batches
            .iter()
            .enumerate()
            .flat_map(|(batch, events)| {
                let events = events.iter().enumerate();
                events.map(move |(row, event)| (batch + 1, row + 1, event))
            })
            .collect();
        let numbers = |number: &dyn Fn(&Placed<'_>) -> Option<i64>| -> ArrayRef {
            Arc::new(all.iter().map(number).collect::<Int64Array>())
        };
        let texts = |text: &dyn Fn(&Placed<'_>) -> Option<String>| -> ArrayRef {
            Arc::new(all.iter().map(text).collect::<StringArray>())
        };
        RecordBatch::try_from_iter_with_nullable([
            ("id", numbers(&|_| Some(1)), true),
            ("op", texts(&|(_, _, event)| Some(event.0.into())), true),
            ("seq", numbers(&|(_, _, event)| Some(event.1)), true),
            (
                "status",
                texts(&|(_, _, event)| event.2.map(String::from)),
                true,
            ),
            ("amount", numbers(&|(_, _, event)| event.3), true),
            (
                "_file_path",
                texts(&|(batch, _, _)| Some(format!("f{batch}"))),
                true,
            ),
            ("_file_row", numbers(&|(_, row, _)| Some(*row as i64)), true),
            (
                BATCH_ID,
                numbers(&|(batch, _, _)| Some(*batch as i64)),
                true,
            ),
        ])
        .unwrap()
    }

    /// Each batch is one file. The events with place, `late` and fate, and why.
    fn told(silver: &str, batches: &[&[Event]]) -> Vec<(String, String)> {
        let all = batch(batches);
        let event_schema = Arc::new(Schema::new(all.schema().fields()[..7].to_vec()));
        let plan = plan(silver, &event_schema);
        let comparators = Comparators::new(&plan).unwrap();
        let is_truncate = |row: &usize| {
            let ops = arrow::array::AsArray::as_string::<i32>(all.column(1));
            ops.value(*row) == "T"
        };
        let truncates: Vec<RecordBatch> = (0..all.num_rows())
            .filter(is_truncate)
            .map(|row| all.slice(row, 1))
            .collect();
        let truncates = arrow::compute::concat_batches(&all.schema(), &truncates).unwrap();
        let records = Records::new(&plan, &comparators, &event_schema, &all, &truncates).unwrap();
        let listing = listing(&records, &plan, &comparators).unwrap();
        let told = |event: ExplainedEvent| {
            let late = match event.is_in_order {
                Some(false) => "late ",
                Some(true) | None => "",
            };
            let fate = format!("{} {late}{}", event.place, event.fate.as_str());
            (fate, event.reason)
        };
        listing.events.into_iter().map(told).collect()
    }

    fn check(silver: &str, batches: &[&[Event]], expected: &[(&str, &str)]) {
        let told = told(silver, batches);
        let told: Vec<(&str, &str)> = told
            .iter()
            .map(|(fate, why)| (fate.as_str(), why.as_str()))
            .collect();
        assert_eq!(told, expected, "{silver}");
    }

    #[test]
    fn late_event_below_a_whole_row_is_superseded_by_the_next_one() {
        let batches: [&[Event]; 2] = [
            &[("U", 1, Some("a"), Some(1)), ("U", 5, Some("b"), Some(1))],
            &[("U", 3, Some("c"), Some(1))],
        ];
        for silver in ROWS {
            check(
                silver,
                &batches,
                &[
                    ("f1:1 superseded", "set anew by f2:1"),
                    ("f2:1 late superseded", "set anew by f1:2"),
                    ("f1:2 applied", "gives all values of the row"),
                ],
            );
        }
    }

    #[test]
    fn late_event_under_partial_updates_gives_what_was_kept() {
        let batches: [&[Event]; 2] = [
            &[("U", 1, Some("a"), Some(1)), ("U", 5, None, Some(2))],
            &[("U", 3, Some("c"), None)],
        ];
        check(
            "ignore_null_updates = true",
            &batches,
            &[
                ("f1:1 superseded", "set anew by f1:2"),
                ("f2:1 late applied", "gives status of the row"),
                ("f1:2 applied", "gives amount, seq of the row"),
            ],
        );
    }

    #[test]
    fn repeat_is_the_one_that_arrived_later_wherever_it_stands() {
        let batches: [&[Event]; 2] = [
            &[("U", 2, Some("b"), None), ("U", 1, Some("a"), None)],
            &[("U", 2, Some("b"), None)],
        ];
        let mut told = told("", &batches);
        told.sort();
        let late = ("f1:2 late superseded".into(), "set anew by f1:1".into());
        let original = ("f1:1 applied".into(), "gives all values of the row".into());
        let repeat = ("f2:1 repeated".into(), "says what f1:1 says".into());
        assert_eq!(told, [original, late, repeat]);
    }

    #[test]
    fn tie_with_other_content_goes_to_the_later_place_also_below_a_newer_event() {
        let batches: [&[Event]; 1] = [&[
            ("U", 1, Some("a"), None),
            ("U", 1, Some("b"), None),
            ("U", 1, Some("b"), None),
            ("U", 2, Some("c"), None),
        ]];
        check(
            "",
            &batches,
            &[
                ("f1:1 conflict", "f1:2 wins the tie: later file or row"),
                (
                    "f1:2 superseded",
                    "set anew by f1:4; wins the tie with f1:1",
                ),
                ("f1:3 repeated", "says what f1:2 says"),
                ("f1:4 applied", "gives all values of the row"),
            ],
        );
    }

    #[test]
    fn content_that_comes_again_after_another_of_its_sequence_is_no_repeat() {
        let batches: [&[Event]; 1] = [&[
            ("U", 1, Some("a"), None),
            ("U", 1, Some("b"), None),
            ("U", 1, Some("a"), None),
        ]];
        check(
            "",
            &batches,
            &[
                ("f1:1 conflict", "f1:3 wins the tie: later file or row"),
                ("f1:2 conflict", "f1:3 wins the tie: later file or row"),
                (
                    "f1:3 applied",
                    "gives all values of the row; wins the tie with f1:2",
                ),
            ],
        );
    }

    #[test]
    fn deletes_flag_the_row_or_take_it_away_and_an_upsert_brings_it_back() {
        let deleted: &[Event] = &[
            ("U", 1, Some("a"), Some(1)),
            ("D", 2, None, Some(7)),
            ("D", 3, None, None),
        ];
        let back: &[Event] = &[("U", 4, Some("b"), None)];
        check(
            ROWS[0],
            &[deleted],
            &[
                ("f1:1 applied", "gives status of the row"),
                ("f1:2 applied", "gives amount of the row"),
                ("f1:3 applied", "deletes the row"),
            ],
        );
        check(
            ROWS[1],
            &[deleted],
            &[
                ("f1:1 superseded", "taken away by f1:2"),
                ("f1:2 applied", "takes the row away"),
                ("f1:3 no_change", "there is no row to delete"),
            ],
        );
        check(
            ROWS[1],
            &[deleted, back],
            &[
                ("f1:1 superseded", "taken away by f1:2"),
                ("f1:2 superseded", "f2:1 brings the row back"),
                ("f1:3 no_change", "there is no row to delete"),
                ("f2:1 applied", "gives all values of the row"),
            ],
        );
    }

    #[test]
    fn truncate_stands_where_it_reaches_the_key_and_nowhere_else() {
        let batches: [&[Event]; 2] = [
            &[
                ("T", 0, None, None),
                ("U", 1, Some("a"), None),
                ("T", 3, None, None),
            ],
            &[
                ("U", 2, Some("b"), None),
                ("T", 3, None, None),
                ("S", 9, None, None),
            ],
        ];
        let middle = ("f2:2 repeated", "says what f1:3 says");
        let last = ("f2:3 skipped", "silver skips its operation");
        check(
            ROWS[0],
            &batches,
            &[
                ("f1:2 superseded", "set anew by f2:1"),
                ("f2:1 late applied", "gives status, amount of the row"),
                ("f1:3 applied", "deletes the row"),
                middle,
                last,
            ],
        );
        check(
            ROWS[1],
            &batches,
            &[
                ("f1:2 superseded", "set anew by f2:1"),
                ("f2:1 late superseded", "taken away by f1:3"),
                ("f1:3 applied", "takes the row away"),
                middle,
                last,
            ],
        );
    }

    #[test]
    fn events_that_no_rule_takes_are_left_out() {
        check(
            "",
            &[&[("X", 1, None, None)]],
            &[("f1:1 left_out", "no rule of silver takes its operation")],
        );
    }

    #[test]
    fn late_event_splits_a_version_and_unchanged_values_open_none() {
        let batches: [&[Event]; 2] = [
            &[
                ("U", 1, Some("a"), Some(1)),
                ("U", 5, Some("a"), Some(1)),
                ("U", 7, Some("a"), Some(1)),
                ("D", 8, None, None),
                ("D", 9, None, None),
            ],
            &[("U", 3, Some("b"), Some(1))],
        ];
        check(
            HISTORY,
            &batches[..1],
            &[
                ("f1:1 applied", "opens version 1"),
                ("f1:2 no_change", "version 1 goes on with the same values"),
                ("f1:3 no_change", "version 1 goes on with the same values"),
                ("f1:4 applied", "ends version 1"),
                ("f1:5 no_change", "there is no version to end"),
            ],
        );
        check(
            HISTORY,
            &batches,
            &[
                ("f1:1 applied", "opens version 1"),
                ("f2:1 late applied", "ends version 1, opens version 2"),
                ("f1:2 applied", "ends version 2, opens version 3"),
                ("f1:3 no_change", "version 3 goes on with the same values"),
                ("f1:4 applied", "ends version 3"),
                ("f1:5 no_change", "there is no version to end"),
            ],
        );
    }

    #[test]
    fn untracked_values_go_on_with_the_version() {
        let silver = format!("{HISTORY}track_history_column_list = [\"status\"]");
        let batches: [&[Event]; 1] = [&[
            ("U", 1, Some("a"), Some(1)),
            ("U", 2, Some("a"), Some(2)),
            ("U", 3, Some("a"), Some(3)),
        ]];
        check(
            &silver,
            &batches,
            &[
                ("f1:1 applied", "opens version 1"),
                (
                    "f1:2 superseded",
                    "goes on with version 1; set anew by f1:3",
                ),
                (
                    "f1:3 applied",
                    "goes on with version 1 and gives all values",
                ),
            ],
        );
    }

    #[test]
    fn version_without_width_loses_the_tie_and_what_it_ended_ends() {
        let batches: [&[Event]; 1] = [&[
            ("U", 1, Some("a"), None),
            ("U", 2, Some("b"), None),
            ("U", 2, Some("c"), None),
            ("U", 4, Some("d"), None),
            ("D", 4, None, None),
        ]];
        check(
            HISTORY,
            &batches,
            &[
                ("f1:1 applied", "opens version 1"),
                ("f1:2 conflict", "f1:3 wins the tie: later file or row"),
                (
                    "f1:3 applied",
                    "ends version 1, opens version 2; wins the tie with f1:2",
                ),
                ("f1:4 conflict", "f1:5 wins the tie: later file or row"),
                (
                    "f1:5 applied",
                    "ends version 2, takes away what its own sequence opened; wins the tie with f1:4",
                ),
            ],
        );
    }

    /// The rows that the fold gives, as text.
    fn rows_of(silver: &str, events: &[Event]) -> String {
        let all = batch(&[events]);
        let event_schema = Arc::new(Schema::new(all.schema().fields()[..7].to_vec()));
        let plan = plan(silver, &event_schema);
        let comparators = Comparators::new(&plan).unwrap();
        let none = RecordBatch::new_empty(all.schema());
        let records = Records::new(&plan, &comparators, &event_schema, &all, &none).unwrap();
        let folded = listing(&records, &plan, &comparators).unwrap().folded;
        let spans = records.pool.spans(&plan).unwrap();
        let columns = &records.pool.columns;
        let schema = plan.schema();
        let rows =
            crate::silver::changes::materialize(&folded, columns, spans.as_ref(), &plan, &schema);
        format!("{:?}", rows.unwrap().columns())
    }

    #[test]
    fn events_that_are_said_to_have_no_effect_can_be_dropped() {
        let shapes = [ROWS[0], ROWS[1], HISTORY, "ignore_null_updates = true"];
        let mut random = 7_u64;
        let mut next = |below: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % below
        };
        let mut dropped = 0;
        for round in 0..120 {
            let silver = shapes[round % shapes.len()];
            let mut event = || -> Event {
                let op = ["U", "U", "U", "D", "S"][next(5) as usize];
                let status = [Some("a"), Some("b"), None][next(3) as usize];
                (
                    op,
                    next(6) as i64,
                    status,
                    [Some(1), None][next(2) as usize],
                )
            };
            let events: Vec<Event> = (0..6).map(|_| event()).collect();
            let rows = rows_of(silver, &events);
            for (fate, why) in told(silver, &[&events]) {
                let (at, fate) = fate.split_once(' ').unwrap();
                if ["applied", "conflict"].contains(&fate.trim_start_matches("late ")) {
                    continue;
                }
                let mut rest = events.clone();
                rest.remove(at.trim_start_matches("f1:").parse::<usize>().unwrap() - 1);
                assert_eq!(
                    rows_of(silver, &rest),
                    rows,
                    "{silver} {events:?} {at} {fate} {why}"
                );
                dropped += 1;
            }
        }
        assert!(dropped > 100, "{dropped}");
    }
}
