//! JSON, as lines and as documents, against an independent reader and against each record read alone.

use crate::input::Input;
use crate::laws::{assert_same_row, bytes_of, decoded, plain};
use crate::oracle::{Expected, Json, Verdict, assert_value, expected, verdict};
use crate::source::{EVOLUTIONS, HINTS, Source};
use arrow::array::{Array, AsArray};
use landfall::change::{ParkReason, Reject, RejectReason};
use landfall::decode::Decoded;
use landfall::schema::merge_new_columns;
use landfall::settings::{Format, OnTypeMismatch, SchemaEvolutionMode};

const PATH: &str = "a.jsonl";

fn source(input: &mut Input<'_>) -> Source {
    let hints = input.one_of(&HINTS);
    let evolution = input.one_of(&EVOLUTIONS);
    Source::new(Format::Json, PATH, hints).in_modes(evolution, input.flag())
}

/// One record of a decoded file, in its order.
enum Outcome<'d> {
    Row(usize),
    Reject(&'d Reject),
}

fn outcomes(decoded: &Decoded) -> Vec<Outcome<'_>> {
    let rows = decoded.positions.iter().enumerate();
    let rows = rows.map(|(row, position)| (position.file_row, Outcome::Row(row)));
    let rejects = decoded.rejects.iter();
    let rejects = rejects.map(|reject| (reject.file_row, Outcome::Reject(reject)));
    let mut all: Vec<_> = rows.chain(rejects).collect();
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, outcome)| outcome).collect()
}

/// Lines: every line is one record at its place, is what serde_json sees, and is the same when it stands alone.
pub(super) fn lines(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let source = source(&mut input);
    let text = input.text();
    let file = match decoded(&source, &text) {
        Ok(file) => file,
        Err(fault) => {
            let may = match source.settings.schema_evolution_mode {
                SchemaEvolutionMode::FailOnNewColumns => fault.reason == ParkReason::NewColumns,
                _ => false,
            };
            return assert!(may || !may_be_utf8_lines(&text), "{fault:?}");
        }
    };
    let start = if text.starts_with(b"\xef\xbb\xbf") {
        3
    } else {
        0
    };
    let outcomes = outcomes(&file);
    let mut records = 0;
    let mut new_columns = Vec::new();
    for (place, line, number) in records_of(&text, start) {
        let outcome = outcomes.get(records).expect("every line is a record");
        match outcome {
            Outcome::Row(row) => {
                let position = &file.positions[*row];
                assert_eq!(position.byte_offset, Some(place as i64));
                assert_eq!(position.byte_length, line.len() as i64);
                assert_eq!(position.file_line, Some(number));
            }
            Outcome::Reject(reject) => {
                assert_eq!(reject.byte_offset, Some(place as i64));
                assert_eq!(reject.file_line, Some(number));
            }
        }
        assert_as_seen(&source, &file, outcome, line);
        // Behind a blank line, where the first bytes of the line betray nothing of the file.
        let Ok(alone) = plain(&source, &[b"\n", line, b"\r\n"].concat()) else {
            return;
        };
        assert_alone(&file, outcome, &alone);
        new_columns.push(alone.new_columns);
        records += 1;
    }
    assert_eq!(records, outcomes.len());
    let mut merged = merge_new_columns(new_columns.iter().map(Vec::as_slice));
    let mut found = file.new_columns.clone();
    merged.sort_by(|one, other| one.name.cmp(&other.name));
    found.sort_by(|one, other| one.name.cmp(&other.name));
    assert_eq!(found, merged, "new columns are those of the lines");
}

/// Whether nothing at the beginning of a text can be taken for another encoding or format.
fn may_be_utf8_lines(text: &[u8]) -> bool {
    matches!(text.first(), None | Some(b'{' | b' ' | b'\n' | b'"')) && !text.contains(&0)
}

/// Place, bytes and number of all lines that are not blank.
fn records_of(text: &[u8], start: usize) -> Vec<(usize, &[u8], i64)> {
    let mut records = Vec::new();
    let mut place = start;
    for (number, line) in (1..).zip(text[start..].split(|byte| *byte == b'\n')) {
        let plain = line.strip_suffix(b"\r").unwrap_or(line);
        if !plain.iter().all(|byte| b" \t\r".contains(byte)) {
            records.push((place, plain, number));
        }
        place += line.len() + 1;
    }
    records
}

fn assert_alone(file: &Decoded, outcome: &Outcome<'_>, alone: &Decoded) {
    match outcome {
        Outcome::Row(row) => {
            assert_eq!(alone.rejects, [], "a row of the file is one alone");
            assert_same_row(&file.rows, *row, &alone.rows, 0);
        }
        Outcome::Reject(reject) => {
            let [only] = alone.rejects.as_slice() else {
                panic!("a reject of the file is one alone: {reject:?}");
            };
            assert_eq!(
                (only.reason, &only.detail, &only.raw),
                (reject.reason, &reject.detail, &reject.raw)
            );
        }
    }
}

/// The record is what serde_json sees.
fn assert_as_seen(source: &Source, file: &Decoded, outcome: &Outcome<'_>, record: &[u8]) {
    let reason = match outcome {
        Outcome::Row(_) => None,
        Outcome::Reject(reject) => Some(reject.reason),
    };
    match verdict(record) {
        Verdict::NotText => assert_eq!(reason, Some(RejectReason::InvalidUtf8)),
        Verdict::Malformed => assert!(
            matches!(
                reason,
                Some(
                    RejectReason::Malformed
                        | RejectReason::NotAnObject
                        | RejectReason::TooDeep
                        | RejectReason::DuplicateKey
                )
            ),
            "no JSON, and {reason:?}"
        ),
        Verdict::NotAnObject => assert!(
            matches!(
                reason,
                Some(
                    RejectReason::NotAnObject | RejectReason::TooDeep | RejectReason::DuplicateKey
                )
            ),
            "no object, and {reason:?}"
        ),
        Verdict::Unfit { is_deep, has_twins } => assert!(
            (is_deep && reason == Some(RejectReason::TooDeep))
                || (has_twins && reason == Some(RejectReason::DuplicateKey)),
            "deep {is_deep}, a name twice {has_twins}, and {reason:?}"
        ),
        Verdict::Object(members) => assert_members(source, file, outcome, &members),
    }
}

fn assert_members(
    source: &Source,
    file: &Decoded,
    outcome: &Outcome<'_>,
    members: &[(String, Json)],
) {
    let fields = source.schema.columns.fields();
    let rescues = source.settings.on_type_mismatch == OnTypeMismatch::Rescue;
    let mode = source.settings.schema_evolution_mode;
    let mut has_misfit = false;
    let mut is_certain = true;
    let mut rescued = Vec::new();
    for (name, value) in members {
        match fields.iter().position(|field| field.name() == name) {
            Some(column) => match expected(value, fields[column].data_type()) {
                Expected::Refused => {
                    has_misfit = true;
                    rescued.push((name, value));
                }
                Expected::Open => is_certain = false,
                Expected::Null | Expected::Value => {}
            },
            None if *value == Json::Null => {}
            None if mode == SchemaEvolutionMode::Rescue && name == "_file_path" => {
                is_certain = false
            }
            None if mode == SchemaEvolutionMode::Rescue => rescued.push((name, value)),
            // The name may be one that no table takes.
            None if mode == SchemaEvolutionMode::AddNewColumns => is_certain = false,
            None => {}
        }
    }
    let row = match outcome {
        Outcome::Row(row) => *row,
        Outcome::Reject(reject) => {
            assert!(
                !is_certain || (has_misfit && !rescues),
                "every value fits: {reject:?}"
            );
            return;
        }
    };
    assert!(
        rescues || !has_misfit,
        "a value does not fit, and there is a row"
    );
    for (column, field) in fields.iter().enumerate() {
        let value = members.iter().find(|(name, _)| name == field.name());
        let value = value.map_or(&Json::Null, |(_, value)| value);
        let is_rescued = rescues
            && match expected(value, field.data_type()) {
                Expected::Refused => true,
                Expected::Open => file.rows.column(column).is_null(row),
                Expected::Null | Expected::Value => false,
            };
        match is_rescued {
            true => assert!(file.rows.column(column).is_null(row)),
            false => assert_value(&file.rows, column, row, value),
        }
    }
    if is_certain {
        assert_rescued(file, row, &rescued);
    }
}

/// What is rescued stands in `_rescued_data` as it was written.
fn assert_rescued(file: &Decoded, row: usize, rescued: &[(&String, &Json)]) {
    let column = file.rows.columns().last().expect("it is the last column");
    if rescued.is_empty() {
        return assert!(column.is_null(row), "nothing is to be rescued");
    }
    let text = column.as_string::<i32>().value(row);
    let Verdict::Object(found) = verdict(text.as_bytes()) else {
        panic!("rescued data is an object: {text}");
    };
    let path = Json::Text {
        raw: PATH.into(),
        text: PATH.into(),
    };
    let expected = rescued
        .iter()
        .map(|(name, value)| ((*name).clone(), (*value).clone()));
    let expected: Vec<(String, Json)> = expected.chain([("_file_path".into(), path)]).collect();
    let written = |members: &[(String, Json)]| -> Vec<(String, String)> {
        members
            .iter()
            .map(|(name, value)| (name.clone(), value.written()))
            .collect()
    };
    assert_eq!(written(&found), written(&expected));
}

/// Documents: what serde_json takes for a row of objects and arrays has as many records; each is what it sees, and the same
/// when it stands alone, on lines where it fits on one.
pub(super) fn documents(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut source = source(&mut input);
    source.settings.json.multi_line = true;
    let text = input.text();
    let file = decoded(&source, &text);
    let start = if text.starts_with(b"\xef\xbb\xbf") {
        3
    } else {
        0
    };
    let expected = documents_of(&text[start..]);
    let file = match file {
        Ok(file) => file,
        Err(fault) => {
            let of_framing = matches!(
                fault.reason,
                ParkReason::TruncatedStream | ParkReason::NotThisFormat
            );
            assert!(
                !of_framing || expected.is_none() || !may_be_utf8_lines(&text),
                "{fault:?}"
            );
            return;
        }
    };
    let outcomes = outcomes(&file);
    if let Some(expected) = expected {
        assert_eq!(outcomes.len(), expected.len());
        for (outcome, record) in outcomes.iter().zip(&expected) {
            assert_as_seen(&source, &file, outcome, record.as_bytes());
        }
    }
    for row in 0..file.positions.len() {
        let record = bytes_of(&file, row);
        assert_as_seen(&source, &file, &Outcome::Row(row), record);
        let alone = plain(&source, record).expect("a row is a document");
        assert_alone(&file, &Outcome::Row(row), &alone);
        if !record.contains(&b'\n') {
            let mut lines = source.clone();
            lines.settings.json.multi_line = false;
            let alone = plain(&lines, record).expect("a row is a line");
            assert_alone(&file, &Outcome::Row(row), &alone);
        }
    }
}

/// The records of a text that is JSON throughout.
fn documents_of(text: &[u8]) -> Option<Vec<String>> {
    let text = std::str::from_utf8(text).ok()?;
    let mut records = Vec::new();
    for value in
        serde_json::Deserializer::from_str(text).into_iter::<&serde_json::value::RawValue>()
    {
        let raw = value.ok()?.get();
        if raw.starts_with('[') {
            let elements: Vec<&serde_json::value::RawValue> = serde_json::from_str(raw).ok()?;
            records.extend(elements.iter().map(|element| element.get().to_string()));
        } else {
            records.push(raw.to_string());
        }
    }
    Some(records)
}
