//! What became of each event of one key: the fold of the law, told step by step. Pure.
//!
//! An event is accountable for what is there while a value of the row, its flag, or an end of a version comes from it. Which
//! of equal events counts is told by arrival: batch, then file and record; the rows do not depend on it.

use super::ledger::{Ledger, Outcome};
use crate::events::EventKind;
use crate::silver::fold::{Fold, FoldedRow};
use crate::silver::plan::SilverPlan;
use arrow::row::Row;

/// What became of an event; the words are listed in `docs/reading.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Something that the fold gives comes from it.
    Applied,
    /// The fold gives the same rows without it.
    NoChange,
    /// Nothing that it gave is left.
    Superseded,
    /// Another event of the same sequence has the same content.
    Repeated,
    /// Another event of the same sequence has other content and wins.
    Conflict,
    /// Silver skips its operation.
    Skipped,
    /// No rule of silver takes it.
    LeftOut,
    /// It is in quarantine.
    Refused,
}

impl Fate {
    /// The word in the output.
    pub fn as_str(self) -> &'static str {
        match self {
            Fate::Applied => "applied",
            Fate::NoChange => "no_change",
            Fate::Superseded => "superseded",
            Fate::Repeated => "repeated",
            Fate::Conflict => "conflict",
            Fate::Skipped => "skipped",
            Fate::LeftOut => "left_out",
            Fate::Refused => "refused",
        }
    }
}

/// What became of one event or truncate of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) fate: Fate,
    /// Why, without what there is to say about a tie beside it.
    pub(super) why: Why,
    /// The event of the same sequence and other content that it wins against.
    pub(super) wins_over: Option<u32>,
    /// The one that wins against it.
    pub(super) loses_to: Option<u32>,
}

/// Why an event has its fate; numbers are events of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// What the fold owes to it, in words.
    Gives(String),
    /// It says what that event says.
    Repeats(u32),
    /// The winner of its sequence.
    Loses(u32),
    /// The step after which nothing of it was left, and the version that it continued, from 1.
    NothingLeftAfter(u32, Option<usize>),
    /// What it met, in words.
    Met(String),
}

/// When a record came in: batch, file, record.
pub(super) type Arrival<'a> = (i64, &'a str, i64);

/// The events of one key and the truncates, as the fold takes them.
pub(super) struct Law<'a> {
    pub(super) fold: &'a Fold<'a>,
    pub(super) plan: &'a SilverPlan,
    /// The events of the key in order.
    pub(super) events: &'a [u32],
    /// When each event and truncate of the pool came in.
    pub(super) arrivals: &'a [Arrival<'a>],
}

/// What the fold gives, and what became of each event and truncate of the pool. A truncate below all events of the key
/// says nothing about it and is `None`.
pub(super) fn told(law: &Law<'_>, rows: &mut Vec<FoldedRow>) -> Vec<Option<Told>> {
    let count = law.arrivals.len();
    let mut ties = Ties::none(count);
    ties.find(law);
    let mut ledger = Ledger::new(law.fold, law.plan, &ties.original);
    law.fold.told(law.events, rows, |step, row, ended| {
        ledger.take(step, row, ended)
    });
    let outcomes = ledger.finish();
    let first = law.events.first().map(|&event| law.sequence(event));
    let is_met =
        |step: u32| !law.is_truncate(step) || first.is_some_and(|first| first < law.sequence(step));
    let steps = (0..count as u32).zip(outcomes);
    let told = steps.map(|(step, outcome)| {
        let (fate, why) = fate(step, outcome, &ties);
        is_met(step).then(|| Told {
            fate,
            why,
            wins_over: ties.wins_over[step as usize],
            loses_to: ties.loses_to[step as usize],
        })
    });
    told.collect()
}

fn fate(step: u32, outcome: Outcome, ties: &Ties) -> (Fate, Why) {
    let place = step as usize;
    let original = ties.original[place];
    if original != step {
        return (Fate::Repeated, Why::Repeats(original));
    }
    if !outcome.roles.is_empty() {
        return (Fate::Applied, Why::Gives(outcome.roles.join(", ")));
    }
    if let Some(winner) = ties.loses_to[place] {
        return (Fate::Conflict, Why::Loses(winner));
    }
    match (outcome.met, outcome.gone_after) {
        (None, Some(later)) => {
            let why = Why::NothingLeftAfter(later, outcome.goes_on_with);
            (Fate::Superseded, why)
        }
        (met, _) => (Fate::NoChange, Why::Met(met.unwrap_or_default())),
    }
}

/// Events of one sequence.
struct Ties {
    /// For each event the first to arrive of those beside it in the order that say the same; mostly itself.
    original: Vec<u32>,
    wins_over: Vec<Option<u32>>,
    loses_to: Vec<Option<u32>>,
}

impl Ties {
    fn none(count: usize) -> Ties {
        Ties {
            original: (0..count as u32).collect(),
            wins_over: vec![None; count],
            loses_to: vec![None; count],
        }
    }

    fn find(&mut self, law: &Law<'_>) {
        let has_one_sequence =
            |left: &u32, right: &u32| law.sequence(*left) == law.sequence(*right);
        for run in law.events.chunk_by(has_one_sequence) {
            let same: Vec<&[u32]> = run
                .chunk_by(|left, right| law.says_the_same(*left, *right))
                .collect();
            let originals: Vec<u32> = same
                .iter()
                .map(|events| law.first_to_arrive(events))
                .collect();
            for (events, &original) in same.iter().zip(&originals) {
                events
                    .iter()
                    .for_each(|&event| self.original[event as usize] = original);
            }
            if let [losers @ .., winner] = &originals[..] {
                for &loser in losers {
                    self.loses_to[loser as usize] = Some(*winner);
                }
                self.wins_over[*winner as usize] = losers.last().copied();
            }
        }
    }
}

impl<'a> Law<'a> {
    fn sequence(&self, step: u32) -> Row<'a> {
        self.fold.sequences.row(step as usize)
    }

    fn is_truncate(&self, step: u32) -> bool {
        self.fold.kinds[step as usize] == EventKind::Truncate
    }

    fn says_the_same(&self, left: u32, right: u32) -> bool {
        let fold = self.fold;
        let sends_the_same = |column: usize| {
            let sent = |event| fold.values.is_not_sent(column, event);
            sent(left) == sent(right)
        };
        fold.kinds[left as usize] == fold.kinds[right as usize]
            && fold.same.all(left, right)
            && (0..fold.values.columns.len()).all(sends_the_same)
    }

    fn first_to_arrive(&self, events: &[u32]) -> u32 {
        let first = events
            .iter()
            .min_by_key(|&&event| self.arrivals[event as usize]);
        *first.expect("a run of events is never empty")
    }
}
