//! Learns how a record is laid out that the scanner took.

use super::gap::Gap;
use super::{Ignored, Layouts, Opened, START, STEPS_MAX, State, Step, Target};
use crate::decode::escape::unescape;
use crate::decode::rows::Rows;
use crate::decode::token::Scanner;
use std::borrow::Cow;

/// So many records in a row are learned from at once; of later ones that differ, one of so many.
const LEARNED_AT_ONCE: u64 = 64;
/// So many names that no column takes are told apart.
const IGNORED_MAX: usize = 1_024;

/// What a member of an object is for the columns.
enum Member {
    Value(Target),
    /// A STRUCT, whose fields have columns of their own.
    Struct(Opened),
}

/// A way through a record.
struct Walk<'r> {
    record: &'r str,
    scanner: Scanner<'r>,
    state: State,
    /// Where the value of the state ends.
    behind: usize,
    /// The STRUCTs that were met since.
    structs: Vec<Opened>,
}

impl Layouts {
    /// Learns the layout of a record that the scanner took.
    pub(in crate::decode) fn learn(&mut self, record: &str, rows: &Rows<'_>) {
        self.differing += 1;
        if self.differing > LEARNED_AT_ONCE && !self.differing.is_multiple_of(LEARNED_AT_ONCE) {
            return;
        }
        // Behind another record the same carriage return would be a part of the line end.
        if record.ends_with('\r') {
            return;
        }
        let mut walk = Walk {
            record,
            scanner: Scanner::at(record, 0),
            state: START,
            behind: 0,
            structs: Vec::new(),
        };
        walk.scanner.skip_blanks();
        if self.object(&mut walk, None, 1, rows).is_some() {
            self.add(&mut walk, record.len(), Target::End);
        }
    }

    /// Goes through an object: the record, or the value of a STRUCT column.
    ///
    /// `None` at a member that only the scanner can read; what was learned before it holds.
    fn object(
        &mut self,
        walk: &mut Walk<'_>,
        inside: Option<usize>,
        depth: usize,
        rows: &Rows<'_>,
    ) -> Option<()> {
        walk.scanner.open(b'{', depth).ok()?;
        while walk.scanner.peek() == Some(b'"') {
            let (inner, has_escapes) = walk.scanner.quoted().ok()?;
            let name = match has_escapes {
                true => unescape(inner),
                false => Cow::Borrowed(inner),
            };
            walk.scanner.skip_blanks();
            walk.scanner.take(b':');
            walk.scanner.skip_blanks();
            match self.member(&name, inside, depth, rows)? {
                Member::Value(target) => {
                    self.add(walk, walk.scanner.place(), target);
                    walk.scanner.value(depth).ok()?;
                    walk.behind = walk.scanner.place();
                    walk.state = self.state_behind(target)?;
                }
                Member::Struct(opened) if walk.scanner.peek() == Some(b'{') => {
                    walk.structs.push(opened);
                    self.object(walk, Some(opened.place), depth + 1, rows)?;
                }
                Member::Struct(opened) if walk.scanner.rest().starts_with(b"null") => {
                    walk.scanner.value(depth).ok()?;
                    let is_null = true;
                    walk.structs.push(Opened { is_null, ..opened });
                }
                Member::Struct(_) => return None,
            }
            walk.scanner.skip_blanks();
            walk.scanner.take(b',');
            walk.scanner.skip_blanks();
        }
        walk.scanner.take(b'}');
        Some(())
    }

    fn state_behind(&self, target: Target) -> Option<State> {
        match target {
            Target::Column(place) => Some(1 + place),
            Target::Ignored(number) => Some(self.ignored[number].state),
            Target::End => None,
        }
    }

    fn member(
        &mut self,
        name: &str,
        inside: Option<usize>,
        depth: usize,
        rows: &Rows<'_>,
    ) -> Option<Member> {
        let (found, ignores) = match inside {
            None => {
                let index = rows.index_of(name);
                let place = index.map(|index| rows.columns.root(index));
                (place.map(|place| (place, index)), rows.ignores_unknown())
            }
            Some(place) => {
                let field = rows.columns.field_of(place, name);
                (
                    field.map(|place| (place, None)),
                    rows.ignores_unknown_fields(),
                )
            }
        };
        if let Some((place, index)) = found {
            return Some(match rows.columns.is_struct(place) {
                false => Member::Value(Target::Column(place)),
                true => Member::Struct(Opened {
                    place,
                    index,
                    is_null: false,
                }),
            });
        }
        let number = ignores
            .then(|| self.ignored_number(name, inside, depth))
            .flatten()?;
        Some(Member::Value(Target::Ignored(number)))
    }

    fn ignored_number(&mut self, name: &str, inside: Option<usize>, depth: usize) -> Option<usize> {
        let is_known = |known: &Ignored| known.inside == inside && known.name == name;
        if let Some(number) = self.ignored.iter().position(is_known) {
            return Some(number);
        }
        if self.ignored.len() == IGNORED_MAX {
            return None;
        }
        self.ignored.push(Ignored {
            inside,
            name: name.to_string(),
            depth,
            state: self.steps.len(),
            seen: 0,
        });
        self.steps.push(Vec::new());
        Some(self.ignored.len() - 1)
    }

    /// Notes what stands between the last value and the place `end`, where `to` begins.
    fn add(&mut self, walk: &mut Walk<'_>, end: usize, to: Target) {
        let structs = std::mem::take(&mut walk.structs).into();
        let text = walk.record[walk.behind..end].as_bytes();
        let steps = &mut self.steps[walk.state];
        if steps.iter().any(|step| step.gap.text() == text) {
            return;
        }
        if steps.len() == STEPS_MAX {
            steps.pop();
        }
        steps.push(Step {
            gap: Gap::new(text),
            structs,
            to,
        });
    }
}
