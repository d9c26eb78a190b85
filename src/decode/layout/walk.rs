//! Finds the way from one value to the next where what stands between them is not known yet, and learns it.
//!
//! Here the rules of JSON for names, colons, commas and the brackets of STRUCT values are followed one by one. At anything
//! else than a sound text between two values the record is left to the scanner.

use super::gap::Gap;
use super::{Layouts, Opened, START, STEPS_MAX, State, Step, Target, Unknown, open};
use crate::decode::escape::unescape;
use crate::decode::rows::Rows;
use crate::decode::token::{NESTING_MAX, Scanner};
use std::borrow::Cow;

/// So many records in a row are learned from at once; of later ones that differ, one of so many.
const LEARNED_AT_ONCE: u64 = 64;
/// A text between two values that is longer is not kept.
const GAP_BYTES_MAX: usize = 4_096;
/// So many names that no column takes are told apart.
const UNKNOWN_MAX: usize = 1_024;

/// What a member of an object is for the columns.
enum Member {
    Value(Target),
    /// A STRUCT, whose fields have columns of their own.
    Struct(Opened),
}

impl Layouts {
    /// Goes to the value behind the state, or to the end of the record, and puts the STRUCTs on the way into their columns.
    ///
    /// `None` where only the scanner can say what is there; some of the STRUCTs may then be in their columns.
    #[inline(never)]
    pub(super) fn walk<'a>(
        &mut self,
        state: State,
        scanner: &mut Scanner<'a>,
        before: usize,
        rows: &mut Rows<'a>,
    ) -> Option<(Target, usize)> {
        let start = scanner.rest();
        let mut structs = Vec::new();
        let target = self.next_value(state, scanner, &mut structs, rows)?;
        for opened in &structs {
            open(opened, before, rows)?;
        }
        let (count, length) = (structs.len(), start.len() - scanner.rest().len());
        self.learn(state, &start[..length], structs, target);
        Some((target, count))
    }

    fn next_value(
        &mut self,
        state: State,
        scanner: &mut Scanner<'_>,
        structs: &mut Vec<Opened>,
        rows: &Rows<'_>,
    ) -> Option<Target> {
        let mut inside = self.inside(state);
        let mut is_behind_value = state != START;
        if !is_behind_value {
            scanner.skip_blanks();
            scanner.take(b'{').then_some(())?;
        }
        loop {
            scanner.skip_blanks();
            if scanner.take(b'}') {
                let Some(place) = inside else {
                    return Some(Target::End);
                };
                inside = self.parents[place];
                is_behind_value = true;
                continue;
            }
            if is_behind_value {
                scanner.take(b',').then_some(())?;
                scanner.skip_blanks();
            }
            let name = name(scanner)?;
            let opened = match self.member(&name, inside, rows)? {
                Member::Value(target) => return Some(target),
                Member::Struct(opened) => opened,
            };
            is_behind_value = !scanner.take(b'{');
            let is_null = is_behind_value && scanner.rest().starts_with(b"null");
            if is_null {
                scanner.skip("null".len());
            } else if is_behind_value {
                return None;
            } else {
                inside = Some(opened.place);
            }
            structs.push(Opened { is_null, ..opened });
        }
    }

    /// The STRUCT column that the value of a state is a field of.
    fn inside(&self, state: State) -> Option<usize> {
        match state.checked_sub(1 + self.leaves.len()) {
            Some(number) => self.unknown[number].inside,
            None => state.checked_sub(1).and_then(|place| self.parents[place]),
        }
    }

    /// How many objects a value has around it that is a field of a STRUCT column, or of the record.
    fn depth(&self, inside: Option<usize>) -> usize {
        let around = std::iter::successors(inside, |place| self.parents[*place]);
        1 + around.count()
    }

    fn member(&mut self, name: &str, inside: Option<usize>, rows: &Rows<'_>) -> Option<Member> {
        let (found, may_be_unknown) = match inside {
            None => {
                let index = rows.index_of(name);
                let place = index.map(|index| rows.columns.root(index));
                (place.map(|place| (place, index)), true)
            }
            Some(place) => {
                let field = rows.columns.field_of(place, name);
                let ignores = rows.ignores_unknown_fields();
                (field.map(|place| (place, None)), ignores)
            }
        };
        if let Some((place, index)) = found {
            if !rows.columns.is_struct(place) {
                return Some(Member::Value(Target::Column(place)));
            }
            let is_null = false;
            let opened = Opened {
                place,
                index,
                is_null,
            };
            return (self.depth(Some(place)) <= NESTING_MAX).then_some(Member::Struct(opened));
        }
        let number = self.unknown_number(name, inside, may_be_unknown)?;
        Some(Member::Value(Target::Unknown(number)))
    }

    fn unknown_number(
        &mut self,
        name: &str,
        inside: Option<usize>,
        may_be_unknown: bool,
    ) -> Option<usize> {
        let is_known = |known: &Unknown| known.inside == inside && known.name == name;
        let known = self.unknown.iter().position(is_known);
        if known.is_some() || !may_be_unknown || self.unknown.len() == UNKNOWN_MAX {
            return known;
        }
        self.unknown.push(Unknown {
            inside,
            name: name.to_string(),
            depth: self.depth(inside),
            seen: 0,
        });
        self.steps.push(Vec::new());
        Some(self.unknown.len() - 1)
    }

    /// Notes what stands between a value and the next one, or the end.
    fn learn(&mut self, state: State, text: &[u8], structs: Vec<Opened>, to: Target) {
        if self.differed_at != self.record {
            self.differed_at = self.record;
            self.differing += 1;
        }
        let is_passed = !self.differing.is_multiple_of(LEARNED_AT_ONCE);
        if (self.differing > LEARNED_AT_ONCE && is_passed) || text.len() > GAP_BYTES_MAX {
            return;
        }
        let steps = &mut self.steps[state];
        if steps.len() == STEPS_MAX {
            steps.pop();
        }
        steps.push(Step {
            gap: Gap::new(text),
            structs: structs.into(),
            to,
        });
    }
}

/// Reads a name with the colon behind it, up to its value.
fn name<'a>(scanner: &mut Scanner<'a>) -> Option<Cow<'a, str>> {
    if scanner.peek() != Some(b'"') {
        return None;
    }
    let name = match scanner.plain() {
        Some(name) => Cow::Borrowed(name),
        None => unescape(scanner.quoted().ok()?.0),
    };
    scanner.skip_blanks();
    scanner.take(b':').then_some(())?;
    scanner.skip_blanks();
    Some(name)
}
