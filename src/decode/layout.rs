//! Reads JSON records that are laid out like earlier ones by comparing what stands between their values.
//!
//! The records of a feed have the same few texts between their values: names, colons, commas. They are learned from
//! records that the scanner took, and then only compared. A record that differs in anything, or holds a value that does not
//! fit its column, is left whole to the scanner, which alone says what is wrong with a record; so what is read here is what
//! the scanner would read.

use super::RECORD_BYTES_MAX;
use super::rows::Rows;
use super::token::{Member, Scanner, Token, value_places};
use super::value::Cell;
use arrow::datatypes::DataType;
use std::borrow::Cow;

/// So many records in a row are learned from at once; of later ones that differ, one of so many.
const LEARNED_AT_ONCE: u64 = 64;
/// So many texts are kept that may follow one value.
const STEPS_MAX: usize = 8;
/// So many names that no column takes are told apart.
const IGNORED_MAX: usize = 1_024;
/// The bytes of a gap that are compared at once.
const WORD: usize = 16;
/// Whole numbers of so many digits fit into 64 bits.
const DIGITS_MAX: usize = 18;

/// What follows the start of a record, or one of its values.
type State = usize;
/// The state before the first value.
const START: State = 0;

/// The layouts of the records of one source, as a graph: from each value to those that may follow.
pub(super) struct Layouts {
    /// For each state, what may follow.
    steps: Vec<Vec<Step>>,
    /// For each state, the last record that was in it: a name stands once in a record.
    visited: Vec<u64>,
    /// Records begun.
    record: u64,
    /// Names that no column takes, with the states behind their values.
    ignored: Vec<(String, State)>,
    /// For each column, how its values are mostly written.
    kinds: Vec<Kind>,
    differing: u64,
}

/// A text between two values, and what comes behind it.
struct Step {
    gap: Gap,
    to: Target,
}

#[derive(Clone, Copy)]
enum Target {
    Column(usize),
    /// A value that no column takes.
    Ignored(State),
    /// The record ends with the text.
    End,
}

#[derive(Clone, Copy)]
enum Kind {
    Text,
    /// A whole number of so many bits.
    Integer(u32),
    /// A decimal below so many of its last place, with so many places.
    Decimal(i64, usize),
    /// A time by ISO 8601: an instant, or on the wall.
    Time(bool),
    Other,
}

/// A text with its first bytes ready to be compared at once.
struct Gap {
    text: Box<[u8]>,
    head: u128,
    mask: u128,
}

impl Layouts {
    /// Knows nothing yet.
    pub(super) fn new(types: impl Iterator<Item = DataType>) -> Self {
        let kinds: Vec<Kind> = types.map(|data_type| Kind::of(&data_type)).collect();
        let states = 1 + kinds.len();
        Layouts {
            steps: (0..states).map(|_| Vec::new()).collect(),
            visited: vec![0; states],
            record: 0,
            ignored: Vec::new(),
            kinds,
            differing: 0,
        }
    }

    /// Reads the record at `at` into the slots of `rows` and gives the byte behind it, without its line end.
    ///
    /// `None` leaves no trace: the record is not laid out like earlier ones.
    pub(super) fn read<'a>(
        &mut self,
        text: &'a str,
        at: usize,
        rows: &mut Rows<'a>,
    ) -> Option<usize> {
        if self.steps[START].is_empty() {
            return None;
        }
        let end = self.values(text, at, rows);
        if end.is_none() {
            rows.forget();
        }
        end
    }

    fn values<'a>(&mut self, text: &'a str, start: usize, rows: &mut Rows<'a>) -> Option<usize> {
        let bytes = text.as_bytes();
        self.record += 1;
        let mut scanner = Scanner::at(text, start);
        let mut state = START;
        loop {
            let steps = &self.steps[state];
            let step = steps
                .iter()
                .find(|step| step.gap.stands_at(bytes, scanner.place()))?;
            scanner.skip(step.gap.text.len());
            state = match step.to {
                Target::Column(index) => {
                    let cell = self.kinds[index].cell(index, &mut scanner, rows)?;
                    rows.put(index, cell);
                    1 + index
                }
                Target::Ignored(state) => {
                    scanner.value(1).ok()?;
                    state
                }
                Target::End => {
                    let end = scanner.place();
                    let ends = matches!(bytes[end..], [] | [b'\n', ..] | [b'\r', b'\n', ..]);
                    return (ends && end - start <= RECORD_BYTES_MAX).then_some(end);
                }
            };
            if std::mem::replace(&mut self.visited[state], self.record) == self.record {
                return None;
            }
        }
    }

    /// Learns the layout of a record that the scanner took.
    pub(super) fn learn(&mut self, record: &str, members: &[Member<'_>], rows: &Rows<'_>) {
        self.differing += 1;
        if self.differing > LEARNED_AT_ONCE && !self.differing.is_multiple_of(LEARNED_AT_ONCE) {
            return;
        }
        // Behind another record the same carriage return would be a part of the line end.
        if record.ends_with('\r') {
            return;
        }
        let Ok(places) = value_places(record) else {
            return;
        };
        let (mut state, mut behind) = (START, 0);
        for ((name, _), place) in members.iter().zip(&places) {
            let Some(to) = self.target_of(name, rows) else {
                return;
            };
            self.add(state, &record[behind..place.start], to);
            behind = place.end;
            state = match to {
                Target::Column(index) => 1 + index,
                Target::Ignored(next) => next,
                Target::End => return,
            };
        }
        self.add(state, &record[behind..], Target::End);
    }

    fn target_of(&mut self, name: &str, rows: &Rows<'_>) -> Option<Target> {
        if let Some(index) = rows.index_of(name) {
            return Some(Target::Column(index));
        }
        if !rows.ignores_unknown() {
            return None;
        }
        if let Some((_, state)) = self.ignored.iter().find(|(known, _)| known == name) {
            return Some(Target::Ignored(*state));
        }
        if self.ignored.len() == IGNORED_MAX {
            return None;
        }
        let state = self.steps.len();
        self.steps.push(Vec::new());
        self.visited.push(0);
        self.ignored.push((name.to_string(), state));
        Some(Target::Ignored(state))
    }

    fn add(&mut self, state: State, text: &str, to: Target) {
        let steps = &mut self.steps[state];
        if steps.iter().any(|step| *step.gap.text == *text.as_bytes()) {
            return;
        }
        if steps.len() == STEPS_MAX {
            steps.pop();
        }
        let gap = Gap::new(text.as_bytes());
        steps.push(Step { gap, to });
    }
}

impl Kind {
    fn of(data_type: &DataType) -> Kind {
        match data_type {
            DataType::Utf8 => Kind::Text,
            DataType::Int8 => Kind::Integer(8),
            DataType::Int16 => Kind::Integer(16),
            DataType::Int32 => Kind::Integer(32),
            DataType::Int64 => Kind::Integer(64),
            DataType::Decimal128(digits, places) => {
                let bound = 10i64.checked_pow(u32::from(*digits)).unwrap_or(i64::MAX);
                usize::try_from(*places).map_or(Kind::Other, |places| Kind::Decimal(bound, places))
            }
            DataType::Timestamp(_, zone) => Kind::Time(zone.is_some()),
            _ => Kind::Other,
        }
    }

    /// The value at the place of the scanner for a column of this kind; `None` where it does not fit.
    fn cell<'a>(
        self,
        index: usize,
        scanner: &mut Scanner<'a>,
        rows: &mut Rows<'a>,
    ) -> Option<Cell<'a>> {
        match (self, scanner.peek()) {
            (Kind::Text, Some(b'"')) => {
                let (inner, has_escapes) = scanner.quoted().ok()?;
                let token = Token::Text { inner, has_escapes };
                Some(Cell::Text(match has_escapes {
                    false => Cow::Borrowed(inner),
                    true => token.text(),
                }))
            }
            (Kind::Integer(bits), Some(b'-' | b'0'..=b'9')) => match short_integer(scanner) {
                Some(value) => {
                    let spare = 64 - bits;
                    ((value << spare) >> spare == value).then_some(Cell::Int(value))
                }
                None => rows.cell(index, &scanner.value(1).ok()?),
            },
            (Kind::Decimal(bound, places), Some(b'-' | b'0'..=b'9')) => {
                match short_decimal(scanner, places) {
                    Some(value) => {
                        (value.abs() < bound).then_some(Cell::Decimal(i128::from(value)))
                    }
                    None => rows.cell(index, &scanner.value(1).ok()?),
                }
            }
            (Kind::Time(is_instant), Some(b'"')) if !rows.reader.formats.has_timestamp_format() => {
                let (inner, has_escapes) = scanner.quoted().ok()?;
                let stamp = rows.reader.formats.timestamp(inner).ok()?;
                (!has_escapes && stamp.has_offset == is_instant).then_some(Cell::Int(stamp.micros))
            }
            (
                Kind::Text | Kind::Integer(_) | Kind::Decimal(..) | Kind::Time(_) | Kind::Other,
                _,
            ) => rows.cell(index, &scanner.value(1).ok()?),
        }
    }
}

/// A whole number of few digits; leaves the scanner where it is for every other value.
///
/// What follows must be the text behind a value, so whether the number ends here is told by that.
fn short_integer(scanner: &mut Scanner<'_>) -> Option<i64> {
    let rest = scanner.rest();
    let negative = rest.first() == Some(&b'-');
    let digits = &rest[usize::from(negative)..];
    let (mut value, mut count) = (0i64, 0);
    while let Some(digit @ b'0'..=b'9') = digits.get(count)
        && count < DIGITS_MAX
    {
        value = value * 10 + i64::from(digit - b'0');
        count += 1;
    }
    let is_number = count > 0 && (count == 1 || digits[0] != b'0');
    let goes_on = matches!(digits.get(count), Some(b'0'..=b'9' | b'.' | b'e' | b'E'));
    if !is_number || goes_on {
        return None;
    }
    scanner.skip(usize::from(negative) + count);
    Some(if negative { -value } else { value })
}

/// A decimal of few digits as a whole number of its last place; leaves the scanner where it is for every other value.
fn short_decimal(scanner: &mut Scanner<'_>, places: usize) -> Option<i64> {
    let rest = scanner.rest();
    let negative = rest.first() == Some(&b'-');
    let digits = &rest[usize::from(negative)..];
    let (mut value, mut length, mut point) = (0i64, 0, None);
    while length < DIGITS_MAX {
        match digits.get(length) {
            Some(digit @ b'0'..=b'9') => value = value * 10 + i64::from(digit - b'0'),
            Some(b'.') if point.is_none() => point = Some(length),
            _ => break,
        }
        length += 1;
    }
    let whole = point.unwrap_or(length);
    let behind = point.map_or(0, |point| length - point - 1);
    let is_number =
        whole > 0 && (whole == 1 || digits[0] != b'0') && (point.is_none() || behind > 0);
    let goes_on = matches!(digits.get(length), Some(b'0'..=b'9' | b'.' | b'e' | b'E'));
    let missing = places.checked_sub(behind)?;
    if !is_number || goes_on || length + missing > DIGITS_MAX {
        return None;
    }
    let value = value * 10i64.pow(u32::try_from(missing).ok()?);
    scanner.skip(usize::from(negative) + length);
    Some(if negative { -value } else { value })
}

impl Gap {
    fn new(text: &[u8]) -> Gap {
        let mut head = [0; WORD];
        let mut mask = [0; WORD];
        for (place, byte) in text.iter().take(WORD).enumerate() {
            head[place] = *byte;
            mask[place] = 0xFF;
        }
        Gap {
            text: text.into(),
            head: u128::from_le_bytes(head),
            mask: u128::from_le_bytes(mask),
        }
    }

    #[inline]
    fn stands_at(&self, bytes: &[u8], at: usize) -> bool {
        let rest = &bytes[at..];
        match rest.first_chunk::<WORD>() {
            Some(word) => {
                (u128::from_le_bytes(*word) ^ self.head) & self.mask == 0
                    && (self.text.len() <= WORD || rest.starts_with(&self.text))
            }
            None => rest.starts_with(&self.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::decode::Decoded;
    use crate::decode::testing::*;
    use crate::settings::{AbsentColumns, SchemaEvolutionMode};

    const HINTS: &str = "op STRING, id BIGINT, small TINYINT, amount DECIMAL(10,2), at TIMESTAMP, \
                         day DATE, ok BOOLEAN, ratio DOUBLE, tags ARRAY<STRING>, who STRUCT<a: INT>";

    const LAYOUTS: [&str; 5] = [
        r#"{"id": 5, "amount": -0.05, "at": "2024-05-01 10:00:00.25+02:00", "op": "U", "small": -7}"#,
        r#"{"op": "I", "id": 17, "small": 7, "amount": 12.50, "at": "2024-05-01T10:00:00Z", "tags": ["x"], "who": {"a": 1}}"#,
        r#"{"op":"U","id":18,"amount":"3.1","day":"2024-02-29","ok":true,"ratio":0.5}"#,
        r#"  { "id" : 19 , "op" : "D" }  "#,
        r#"{"id":20,"op":"caf\u00e9 \"x\"","other":[1,{"b":null}],"small":null}"#,
    ];

    /// What stands in the only or last row, or why it was refused.
    fn last(decoded: &Decoded) -> String {
        let is_reject = decoded.rejects.last().is_some_and(|reject| {
            let row = decoded.positions.last();
            row.is_none_or(|row| row.file_row < reject.file_row)
        });
        if is_reject {
            let reject = &decoded.rejects[decoded.rejects.len() - 1];
            return format!("{:?} {} {}", reject.reason, reject.detail, reject.raw);
        }
        let row = decoded.positions.len() - 1;
        let names = decoded.rows.schema();
        let cells = names.fields().iter().map(|field| {
            let mut values = column(decoded, field.name());
            format!("{}={}", field.name(), values.swap_remove(row))
        });
        let cells: Vec<String> = cells.collect();
        format!("{} {}", cells.join(" "), decoded.raw(row))
    }

    #[test]
    fn a_carriage_return_before_the_line_end_is_no_part_of_later_records() {
        let text = "{\"a\":1}\r\r\n{\"a\":2}\r\n{\"a\":3}\r\r\n{\"a\":4}\r";
        let decoded = Case::json("a INT").read(text);
        let raw: Vec<String> = (0..4).map(|row| decoded.raw(row)).collect();
        assert_eq!(
            raw,
            ["{\"a\":1}\r", "{\"a\":2}", "{\"a\":3}\r", "{\"a\":4}"]
        );
    }

    fn cases() -> Vec<Case> {
        let mut all = Vec::new();
        for mode in [
            SchemaEvolutionMode::None,
            SchemaEvolutionMode::Rescue,
            SchemaEvolutionMode::AddNewColumns,
        ] {
            all.push(Case::json(HINTS).evolution(mode));
            all.push(Case::json(HINTS).evolution(mode).rescuing());
        }
        let mut keeping = Case::json(HINTS);
        keeping.settings.absent_columns = AbsentColumns::Keep;
        keeping.schema = keeping
            .schema
            .with_own_column("_present_columns", arrow::datatypes::DataType::Utf8);
        all.push(keeping);
        all
    }

    #[test]
    fn record_reads_the_same_behind_records_that_are_laid_out_alike() {
        const PIECES: [&str; 24] = [
            "\"",
            "\\",
            "\\u00e9",
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            " ",
            "0",
            "1",
            "-",
            ".",
            "e9",
            "null",
            "true",
            "x",
            "\u{e9}",
            "\r",
            "\t",
            "99999999999999999999",
            "\"id\":",
            "\"op\"",
        ];
        let mut next = numbers(11);
        let cases = cases();
        let behind = LAYOUTS.join("\n");
        for round in 0..3_000 {
            let case = &cases[round % cases.len()];
            let mut record = LAYOUTS[next(LAYOUTS.len())].to_string();
            for _ in 0..next(3) {
                let mut at = next(record.len() + 1);
                while !record.is_char_boundary(at) {
                    at -= 1;
                }
                let piece = PIECES[next(PIECES.len())];
                match next(3) {
                    0 => record.insert_str(at, piece),
                    1 => {
                        let mut end = (at + next(12)).min(record.len());
                        while !record.is_char_boundary(end) {
                            end -= 1;
                        }
                        record.replace_range(at..end.max(at), "");
                    }
                    _ => {
                        let mut end = (at + 1).min(record.len());
                        while !record.is_char_boundary(end) {
                            end += 1;
                        }
                        record.replace_range(at..end, piece);
                    }
                }
            }
            if record.trim_ascii().is_empty() {
                continue;
            }
            let alone = case.read(&record);
            let text = format!("{behind}\n{record}\n{behind}\n{record}");
            assert_eq!(last(&case.read(&text)), last(&alone), "{record}");
        }
    }

    #[test]
    fn line_ends_and_places_are_those_of_the_lines() {
        let text = "{\"id\":1}\r\n{\"id\":2}\n\n{\"id\":3} \n{\"id\":4}\r";
        let decoded = Case::json("id INT").read(text);
        assert_eq!(column(&decoded, "id"), ["1", "2", "3", "4"]);
        let lines: Vec<_> = decoded.positions.iter().map(|p| p.file_line).collect();
        assert_eq!(lines, [Some(1), Some(2), Some(4), Some(5)]);
        assert_eq!(decoded.raw(1), "{\"id\":2}");
        assert_eq!(decoded.raw(2), "{\"id\":3} ");
        assert_eq!(decoded.raw(3), "{\"id\":4}");
    }

    #[test]
    fn name_that_comes_twice_is_refused_though_each_step_is_known() {
        let text = "{\"a\":1,\"b\":2}\n{\"b\":1,\"a\":2}\n{\"a\":1,\"b\":2,\"a\":3}\n";
        let decoded = Case::json("a INT, b INT").read(text);
        assert_eq!(
            rejects(&decoded),
            [(3, crate::change::RejectReason::DuplicateKey)]
        );
        assert_eq!(column(&decoded, "a"), ["1", "2"]);
    }
}
