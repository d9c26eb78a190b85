//! AWS DMS in S3: a full load in files called `LOAD...`, then changes with the operation in the first column.
//!
//! DMS orders changes by a number that a transformation adds as a column, by the commit time where that is a column, or
//! only by its files, which are named by their time, and the records in them. All files of changes must be alike.

use super::flat::{FlatChange, Header};
use super::{Op, fault, place, unknown_op};
use crate::change::RejectReason;
use crate::decode::RecordFault;

/// The column of the operation, always the first one.
pub(crate) const OP_COLUMN: &str = "Op";

/// Columns that hold the number of a change, `$AR_H_CHANGE_SEQ`.
const SEQUENCE_COLUMNS: [&str; 3] = ["ar_h_change_seq", "change_seq", "transact_id"];

/// Columns that hold the time of a commit.
const TIME_COLUMNS: [&str; 4] = [
    "ar_h_timestamp",
    "commit_timestamp",
    "cdc_timestamp",
    "dms_timestamp",
];

/// What the name of every other column of a change begins with.
const PREFIX: &str = "ar_h_";

/// Whether a column is one of the envelope.
pub(super) fn is_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.eq_ignore_ascii_case(OP_COLUMN)
        || name.starts_with(PREFIX)
        || SEQUENCE_COLUMNS.contains(&name.as_str())
        || TIME_COLUMNS.contains(&name.as_str())
}

/// Whether the first record of a CSV file names its columns, where DMS may or may not have written names.
pub(crate) fn names_columns(fields: &[String], keys: &[String], hints: &[String]) -> bool {
    let has = |name: &String| fields.iter().any(|field| field.eq_ignore_ascii_case(name));
    let begins_with_op = fields
        .first()
        .is_some_and(|field| field.eq_ignore_ascii_case(OP_COLUMN));
    let known = if keys.is_empty() { hints } else { keys };
    let is_op = |name: &&String| name.eq_ignore_ascii_case(OP_COLUMN);
    begins_with_op || known.iter().filter(|name| !is_op(name)).all(has)
}

/// The names of the fields of a file without names, given those of the hints: with the operation before them or not.
pub(crate) fn field_names(mut hints: Vec<String>, field_count: usize) -> Vec<String> {
    let has_op = hints
        .first()
        .is_some_and(|name| name.eq_ignore_ascii_case(OP_COLUMN));
    if has_op && field_count + 1 == hints.len() {
        hints.remove(0);
    } else if !has_op && field_count == hints.len() + 1 {
        hints.insert(0, OP_COLUMN.to_string());
    }
    hints
}

/// What a record does.
pub(super) fn change(header: &Header<'_>) -> Result<FlatChange, RecordFault> {
    let stem = stem(header.path);
    let is_load = is_load(stem);
    if !header.has(OP_COLUMN) {
        let sequence = change_number(header).flatten().filter(|_| !is_load);
        return Ok(match sequence {
            Some(sequence) => FlatChange::new(Op::Insert, Some(sequence)),
            None => FlatChange::new(Op::Snapshot, Some(String::new())),
        });
    }
    let op = match header.get(OP_COLUMN) {
        Some("I") if is_load => return Ok(FlatChange::new(Op::Snapshot, Some(String::new()))),
        Some("I") => Op::Insert,
        Some("U") => Op::Update,
        Some("D") => Op::Delete,
        Some(code) => return Err(unknown_op(OP_COLUMN, code)),
        None => {
            return Err(fault(
                RejectReason::UnknownOp,
                "column Op is NULL; it says I, U or D",
            ));
        }
    };
    Ok(FlatChange::new(op, sequence(header, stem)))
}

fn sequence(header: &Header<'_>, stem: &str) -> Option<String> {
    if let Some(number) = change_number(header) {
        return number;
    }
    let file = file_time(stem);
    let record = place::ordinal(&header.record.to_string())?;
    match TIME_COLUMNS.iter().find(|name| header.has(name)) {
        Some(name) => {
            let time = commit_time(header.get(name)?)?;
            let file = file.unwrap_or_else(|| "0".repeat(place::DECIMAL_WIDTH));
            Some(format!("{time}:{file}:{record}"))
        }
        None => Some(format!("{}:{record}", file?)),
    }
}

/// The number of a change: `None` without a column for it, and nothing where it does not read as one.
fn change_number(header: &Header<'_>) -> Option<Option<String>> {
    let name = SEQUENCE_COLUMNS.iter().find(|name| header.has(name))?;
    Some(header.get(name).and_then(place::long_number))
}

/// The name of a file without folders and endings.
fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.split('.').next().unwrap_or(name)
}

/// `LOAD00000001`, counted in hexadecimal digits.
fn is_load(stem: &str) -> bool {
    let number = stem
        .get(..4)
        .filter(|start| start.eq_ignore_ascii_case("LOAD"));
    number.is_some() && stem.len() > 4 && stem[4..].bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// `20141029-1134010000`: the day, then the time to its fractions.
fn file_time(stem: &str) -> Option<String> {
    let (day, time) = stem.split_once('-')?;
    let are_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let fits = day.len() == 8 && (6..=12).contains(&time.len());
    (fits && are_digits(day) && are_digits(time)).then(|| format!("{day}{time:0<12}"))
}

/// A time as its digits down to nanoseconds; all of a feed are in one zone.
fn commit_time(text: &str) -> Option<String> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let fraction = fraction.trim_end_matches('Z');
    let digits: String = seconds
        .bytes()
        .filter(u8::is_ascii_digit)
        .map(char::from)
        .collect();
    let are_separators = seconds
        .bytes()
        .all(|byte| byte.is_ascii_digit() || b"-: TZ".contains(&byte));
    let is_fraction = fraction.len() <= 9 && fraction.bytes().all(|byte| byte.is_ascii_digit());
    (are_separators && digits.len() == 14 && is_fraction).then(|| format!("{digits}{fraction:0<9}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(
        path: &str,
        columns: &[(&str, Option<&str>)],
    ) -> Result<(Op, Option<String>), RejectReason> {
        let columns: Vec<_> = columns
            .iter()
            .map(|(name, value)| (name.to_string(), value.map(str::to_string)))
            .collect();
        let header = Header {
            columns: &columns,
            path,
            record: 3,
        };
        let change = change(&header).map_err(|fault| fault.reason)?;
        Ok((change.op, change.sequence))
    }

    #[test]
    fn operations_and_places_that_do_not_read_are_refused_or_none() {
        for code in [Some("X"), Some("i"), Some(""), None] {
            assert_eq!(
                flat("a.csv", &[("Op", code)]),
                Err(RejectReason::UnknownOp),
                "{code:?}"
            );
        }
        for (name, value) in [
            ("AR_H_CHANGE_SEQ", None),
            ("AR_H_CHANGE_SEQ", Some("")),
            ("transact_id", Some("abc")),
            ("commit_timestamp", Some("yesterday")),
            ("commit_timestamp", Some("2026-01-01")),
            ("other", Some("5")),
        ] {
            let found = flat("x.csv", &[("Op", Some("U")), (name, value)]);
            assert_eq!(found, Ok((Op::Update, None)), "{name} {value:?}");
        }
    }

    #[test]
    fn a_full_load_ranks_below_every_change() {
        let load = Ok((Op::Snapshot, Some(String::new())));
        let seq = ("AR_H_CHANGE_SEQ", None);
        assert_eq!(flat("s/t/LOAD0000000A.csv.gz", &[seq]), load);
        assert_eq!(
            flat("LOAD00000001.parquet", &[("Op", Some("I")), seq]),
            load
        );
        assert_eq!(flat("any.csv", &[]), load);
        // Files of inserts only have no column for the operation.
        let insert = flat("20260101-000000000.csv", &[("AR_H_CHANGE_SEQ", Some("7"))]).unwrap();
        assert!(insert.0 == Op::Insert && insert.1 > Some(String::new()));
    }

    #[test]
    fn changes_are_ordered_by_number_by_time_or_by_file() {
        let at = |path: &str, name: &str, value: &str| {
            flat(path, &[("Op", Some("U")), (name, Some(value))])
                .unwrap()
                .1
                .unwrap()
        };
        let number = |value| at("b.csv", "transact_id", value);
        assert!(number("9") < number("20260101000000120000000000000000005"));
        let time = |path, value| at(path, "dms_timestamp", value);
        assert!(time("z.csv", "2026-01-01 00:00:01") < time("a.csv", "2026-01-01T00:00:01.5Z"));
        let later = "20260101-000001000.csv";
        assert!(
            time("20260101-000000999.csv", "2026-01-01 00:00:01")
                < time(later, "2026-01-01 00:00:01")
        );
        let file = |path| at(path, "x", "");
        assert!(file("t/20251231-2359599999.csv.gz") < file(later));
    }

    #[test]
    fn names_of_fields_are_found_with_and_without_the_operation() {
        let names = |list: &[&str]| list.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let hints = names(&["id", "status"]);
        assert_eq!(
            field_names(hints.clone(), 3),
            names(&["Op", "id", "status"])
        );
        assert_eq!(field_names(hints.clone(), 2), hints);
        assert_eq!(field_names(hints.clone(), 4), hints);
        assert_eq!(field_names(names(&["op", "id", "status"]), 2), hints);
        let keys = names(&["id"]);
        assert!(names_columns(&names(&["Op", "x"]), &keys, &hints));
        assert!(names_columns(&names(&["ID", "new"]), &keys, &hints));
        assert!(!names_columns(&names(&["U", "7"]), &keys, &hints));
        assert!(!names_columns(&names(&["7", "status"]), &[], &hints));
    }
}
