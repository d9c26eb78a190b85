//! Who is accountable for what, while the events of one key are folded.
//!
//! The fold says which event each value comes from. Where a step changes nothing, what is there stays with those who
//! brought it; so an event that only repeats or confirms takes nothing over from another.

use crate::silver::fold::{Fold, FoldedRow, Shape};
use crate::silver::plan::SilverPlan;
use std::collections::BTreeSet;

/// What the ledger says about one event or truncate at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// What is there owing to it, in words.
    pub(super) roles: Vec<String>,
    /// The step after which nothing of it was left.
    pub(super) gone_after: Option<u32>,
    /// Where it changed nothing: what it met, in words.
    pub(super) met: Option<String>,
    /// The version that it continued with other values, from 1.
    pub(super) goes_on_with: Option<usize>,
}

/// The row or open version, and who brought what.
struct State {
    row: FoldedRow,
    /// For each stored column.
    gives: Vec<Option<u32>>,
    opened_by: u32,
}

/// Takes the steps of a fold one after the other.
pub(super) struct Ledger<'a> {
    fold: &'a Fold<'a>,
    plan: &'a SilverPlan,
    /// Who counts in the place of a step that repeats another.
    original: &'a [u32],
    state: Option<State>,
    /// Took the row away, and nothing came since.
    removed_by: Option<u32>,
    /// Who ended each version so far.
    ended_by: Vec<u32>,
    /// Whether a step of it changed anything.
    has_changed: Vec<bool>,
    outcomes: Vec<Outcome>,
}

impl<'a> Ledger<'a> {
    pub(super) fn new(fold: &'a Fold<'a>, plan: &'a SilverPlan, original: &'a [u32]) -> Self {
        Ledger {
            fold,
            plan,
            original,
            state: None,
            removed_by: None,
            ended_by: Vec::new(),
            has_changed: vec![false; original.len()],
            outcomes: vec![Outcome::default(); original.len()],
        }
    }

    /// Takes the row after one more step and the versions that ended so far.
    pub(super) fn take(&mut self, step: u32, row: Option<&FoldedRow>, ended: &[FoldedRow]) {
        let by = self.original[step as usize];
        let before = self.state.take();
        if self.is_as_before(before.as_ref().map(|state| &state.row), row) {
            self.note_met(by, before.is_some());
            self.state = before.zip(row).map(|(state, row)| State {
                row: row.clone(),
                ..state
            });
            return;
        }
        self.has_changed[by as usize] = true;
        let next = row.map(|row| self.state_after(before.as_ref(), row, step));
        if let Some(removed_by) = self.removed_by.take() {
            self.outcomes[removed_by as usize].gone_after = Some(by);
        }
        match before {
            Some(before) if ended.len() > self.ended_by.len() => {
                self.enter_roles(&before);
                self.ended_by.push(by);
            }
            Some(before) => self.note_gone(by, &before, next.as_ref()),
            None => {}
        }
        self.outcomes[by as usize].goes_on_with = next
            .as_ref()
            .filter(|next| self.has_versions() && next.row.start != step)
            .map(|_| self.ended_by.len() + 1);
        self.state = next;
    }

    /// One outcome for each event and truncate.
    pub(super) fn finish(mut self) -> Vec<Outcome> {
        if let Some(state) = self.state.take() {
            self.enter_roles(&state);
        }
        if let Some(removed_by) = self.removed_by {
            self.add_role(removed_by, "takes the row away".into());
        }
        for (number, &by) in (1..).zip(&self.ended_by) {
            let role = format!("ends version {number}");
            self.outcomes[by as usize].roles.insert(0, role);
        }
        for (outcome, has_changed) in self.outcomes.iter_mut().zip(self.has_changed) {
            outcome.met = outcome.met.take().filter(|_| !has_changed);
        }
        self.outcomes
    }

    fn is_as_before(&self, before: Option<&FoldedRow>, after: Option<&FoldedRow>) -> bool {
        let (before, after) = match (before, after) {
            (None, None) => return true,
            (Some(before), Some(after)) => (before, after),
            (None, Some(_)) | (Some(_), None) => return false,
        };
        let same = |column: usize| {
            let (before, after) = (before.source(column), after.source(column));
            self.fold.same.sources(column, before, after)
        };
        let is_one_version = !self.has_versions() || before.start == after.start;
        is_one_version && before.deleted == after.deleted && (0..self.plan.stored()).all(same)
    }

    /// Values that the step keeps stay with those who brought them.
    fn state_after(&self, before: Option<&State>, row: &FoldedRow, step: u32) -> State {
        let gives = |column: usize| match row.source(column) {
            Some(source) if source == step => Some(self.original[step as usize]),
            Some(_) => before.and_then(|before| before.gives[column]),
            None => None,
        };
        State {
            gives: (0..self.plan.stored()).map(gives).collect(),
            opened_by: self.original[row.start as usize],
            row: row.clone(),
        }
    }

    /// A row or version is no more as it was, and nothing keeps what it was.
    fn note_gone(&mut self, by: u32, before: &State, after: Option<&State>) {
        let left = after
            .map(|after| self.accountable(after))
            .unwrap_or_default();
        for event in self.accountable(before) {
            if !left.contains(&event) && event != by {
                self.outcomes[event as usize].gone_after = Some(by);
            }
        }
        match (after, self.has_versions()) {
            (None, true) => self.add_role(by, "takes away what its own sequence opened".into()),
            (None, false) => self.removed_by = Some(by),
            (Some(_), _) => {}
        }
        // A version without width vanishes, and what it ended ends all the same.
        if let Some(last) = self.ended_by.last_mut()
            && *last == before.opened_by
            && after.is_none_or(|after| after.opened_by != before.opened_by)
        {
            *last = by;
        }
    }

    /// All that something of `state` comes from. Every event has the key, so nobody is accountable for it.
    fn accountable(&self, state: &State) -> BTreeSet<u32> {
        let gives = self
            .value_columns()
            .filter_map(|column| state.gives[column]);
        let opened = self.has_versions().then_some(state.opened_by);
        gives.chain(opened).collect()
    }

    fn enter_roles(&mut self, state: &State) {
        for event in self.accountable(state) {
            let role = self.role(event, state);
            self.add_role(event, role);
        }
    }

    fn role(&self, event: u32, state: &State) -> String {
        let given = self
            .value_columns()
            .filter(|column| state.gives[*column].is_some());
        let own = given
            .clone()
            .filter(|column| state.gives[*column] == Some(event));
        let own: Vec<usize> = own.collect();
        let what = |columns: &[usize]| match own.len() == given.clone().count() {
            true => "all values".to_string(),
            false => self.plan.names(columns).join(", "),
        };
        if self.has_versions() {
            let number = self.ended_by.len() + 1;
            return match event == state.opened_by {
                true => format!("opens version {number}"),
                false => format!("goes on with version {number} and gives {}", what(&own)),
            };
        }
        if !(state.row.deleted && self.gives_sequence(event, state)) {
            return format!("gives {} of the row", what(&own));
        }
        let is_plain = |column: &usize| !self.plan.sequence.contains(column);
        let plain: Vec<usize> = own.iter().copied().filter(is_plain).collect();
        match plain.is_empty() {
            true => "deletes the row".into(),
            false => format!("deletes the row and gives {}", what(&plain)),
        }
    }

    /// The last step gives the sequence and the flag.
    fn gives_sequence(&self, event: u32, state: &State) -> bool {
        let mut places = self.plan.sequence.iter();
        places.all(|&place| state.gives.get(place) == Some(&Some(event)))
    }

    fn note_met(&mut self, by: u32, has_row: bool) {
        let text = match (has_row, self.fold.shape) {
            (true, Shape::History) => {
                let number = self.ended_by.len() + 1;
                format!("version {number} goes on with the same values")
            }
            (true, Shape::Flagged | Shape::Bare) => "the row says so already".into(),
            (false, Shape::History) => "there is no version to end".into(),
            (false, Shape::Flagged | Shape::Bare) => "there is no row to delete".into(),
        };
        self.outcomes[by as usize].met = Some(text);
    }

    fn add_role(&mut self, event: u32, role: String) {
        self.outcomes[event as usize].roles.push(role);
    }

    fn has_versions(&self) -> bool {
        self.fold.shape == Shape::History
    }

    /// The stored columns but the keys.
    fn value_columns(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        (0..self.plan.stored()).filter(|column| !self.plan.keys.contains(column))
    }
}
