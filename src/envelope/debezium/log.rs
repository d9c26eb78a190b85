//! Where a Debezium change stands in the log of its database, and what is special about MongoDB.

use crate::decode::{Member, RecordFault, Token, elements, json_text, members, one_value};
use crate::envelope::{ColumnValue, Op, malformed, place};
use chrono::{DateTime, SecondsFormat};
use std::borrow::Cow;

/// The place of a change by the fields of its `source`; a snapshot without one ranks below every change.
///
/// A snapshot ranks below a change at the same place, since it holds the effect of all changes up to there.
pub(super) fn sequence(op: Op, field: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let rank = if op == Op::Snapshot { 0 } else { 1 };
    match log_place(field) {
        Some(place) => Some(format!("{place}:{rank}")),
        None if op == Op::Snapshot => Some(String::new()),
        None => None,
    }
}

fn log_place(field: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    if let Some(commit) = field("commit_lsn") {
        return sql_server(&commit, field);
    }
    if let Some(lsn) = field("lsn") {
        return postgres(&lsn, field);
    }
    if let (Some(file), Some(offset)) = (field("file"), field("pos")) {
        let row = field("row").unwrap_or_else(|| "0".into());
        let binlog = place::binlog(&file, &offset)?;
        return Some(format!("{binlog}:{}", place::ordinal(&row)?));
    }
    if let Some(scn) = field("scn") {
        return oracle(&scn, field);
    }
    let (seconds, ordinal) = (field("ts_ms")?, field("ord")?);
    Some(format!(
        "{}:{}",
        place::number(&seconds)?,
        place::ordinal(&ordinal)?
    ))
}

/// Transactions interleave, so the commit counts first. Before the first commit is known, every change stands after all
/// commits up to its own place.
fn postgres(lsn: &str, field: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let commit = field("sequence").and_then(|sequence| last_commit(&sequence));
    let commit = commit.unwrap_or_else(|| lsn.to_string());
    Some(format!(
        "{}:{}",
        place::number(&commit)?,
        place::number(lsn)?
    ))
}

/// The first text of the array that `sequence` holds as a text.
fn last_commit(sequence: &str) -> Option<String> {
    let Ok(Token::Nested(array)) = one_value(sequence) else {
        return None;
    };
    match elements(array).ok()?.first()? {
        token @ (Token::Text { .. } | Token::Number(_)) => Some(token.text().into_owned()),
        Token::Null | Token::Bool(_) | Token::Nested(_) => None,
    }
}

fn sql_server(commit: &str, field: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let change = match field("change_lsn") {
        Some(change) => place::hex(&change)?,
        None => place::hex_zero(),
    };
    let serial = field("event_serial_no").unwrap_or_else(|| "0".into());
    Some(format!(
        "{}:{change}:{}",
        place::hex(commit)?,
        place::ordinal(&serial)?
    ))
}

fn oracle(scn: &str, field: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let commit = field("commit_scn").unwrap_or_else(|| scn.to_string());
    let record = match field("rs_id") {
        Some(record) => place::hex(&record.replace("0x", ""))?,
        None => place::hex_zero(),
    };
    let serial = field("ssn").unwrap_or_else(|| "0".into());
    Some(format!(
        "{}:{}:{record}:{}",
        place::number(&commit)?,
        place::number(scn)?,
        place::ordinal(&serial)?
    ))
}

/// The columns of a document of MongoDB, whose values may say their types in objects of one name.
pub(super) fn document(
    json: &str,
) -> Result<Vec<(Cow<'static, str>, ColumnValue<'static>)>, RecordFault> {
    let not_a_document = || malformed("the document is a text that is no JSON object");
    let Ok(Token::Nested(object)) = one_value(json) else {
        return Err(not_a_document());
    };
    let column = |(name, value): Member<'_>| {
        let value = ColumnValue::Made(plain_value(value));
        (Cow::Owned(name.into_owned()), value)
    };
    let row = members(object).map_err(|_| not_a_document())?;
    Ok(row.into_iter().map(column).collect())
}

/// The JSON of a value without its type, for the types that have a plain form.
fn plain_value(value: Token<'_>) -> String {
    let typed = match value {
        Token::Nested(json) if json.starts_with('{') => members(json).unwrap_or_default(),
        _ => return value.as_json().into_owned(),
    };
    match typed.as_slice() {
        [(name, inner @ (Token::Text { .. } | Token::Number(_)))] => match name.as_ref() {
            "$numberLong" | "$numberInt" | "$numberDouble" => inner.text().into_owned(),
            "$oid" | "$numberDecimal" => inner.as_json().into_owned(),
            "$date" => instant(&inner.text()).unwrap_or_else(|| inner.as_json().into_owned()),
            _ => value.as_json().into_owned(),
        },
        [(name, Token::Nested(inner))] if name == "$date" => {
            let millis = plain_value(Token::Nested(inner));
            instant(&millis).unwrap_or_else(|| value.as_json().into_owned())
        }
        _ => value.as_json().into_owned(),
    }
}

/// Milliseconds since the epoch as a JSON text.
fn instant(millis: &str) -> Option<String> {
    let instant = DateTime::from_timestamp_millis(millis.parse().ok()?)?;
    Some(json_text(
        &instant.to_rfc3339_opts(SecondsFormat::Millis, true),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(fields: &[(&str, &str)]) -> Option<String> {
        let field = |name: &str| {
            let found = fields.iter().find(|field| field.0 == name);
            found.map(|field| field.1.to_string())
        };
        sequence(Op::Update, &field)
    }

    #[test]
    fn clocks_and_broken_places_are_no_place() {
        assert_eq!(at(&[("ts_ms", "1767225600123")]), None);
        assert_eq!(at(&[("lsn", "abc")]), None);
        assert_eq!(at(&[("file", "mysql-bin.000007")]), None);
        assert_eq!(at(&[("commit_lsn", "xyz")]), None);
        assert_eq!(sequence(Op::Snapshot, &|_| None), Some(String::new()));
    }

    #[test]
    fn commits_of_postgres_count_before_places_in_the_log() {
        let event = |sequence: &str, lsn: &str| at(&[("sequence", sequence), ("lsn", lsn)]);
        // The transaction that began first commits last.
        assert!(event("[null,\"150\"]", "150") < event("[\"210\",\"100\"]", "100"));
        assert!(event("[\"90\",\"100\"]", "100") < event("[\"100\",\"1000\"]", "1000"));
        assert!(event("[\"100\",\"99\"]", "99") < event("[\"100\",\"100\"]", "100"));
        // Without the texts the place in the log counts alone.
        assert!(at(&[("lsn", "99")]) < at(&[("lsn", "100")]));
    }

    #[test]
    fn a_snapshot_ranks_below_a_change_at_its_place() {
        let field = |name: &str| (name == "lsn").then(|| "7".to_string());
        assert!(sequence(Op::Snapshot, &field) < sequence(Op::Insert, &field));
        let later = |name: &str| (name == "lsn").then(|| "8".to_string());
        assert!(sequence(Op::Insert, &field) < sequence(Op::Snapshot, &later));
    }

    #[test]
    fn logs_of_other_databases_are_ordered_by_all_their_parts() {
        let mysql =
            |file: &str, pos: &str, row: &str| at(&[("file", file), ("pos", pos), ("row", row)]);
        assert!(mysql("b.000009", "900", "0") < mysql("b.000010", "4", "0"));
        assert!(mysql("b.000009", "900", "9") < mysql("b.000009", "900", "10"));
        let server = |commit: &str, change: &str, serial: &str| {
            at(&[
                ("commit_lsn", commit),
                ("change_lsn", change),
                ("event_serial_no", serial),
            ])
        };
        let commit = "0000002a:000001b0:0003";
        assert!(
            server(commit, "0000002a:000001b0:0002", "1")
                < server(commit, "0000002a:000001b0:0002", "2")
        );
        assert!(at(&[("commit_lsn", commit)]) < server(commit, "0000002a:000001b0:0002", "1"));
        let oracle = |commit: &str, scn: &str| at(&[("commit_scn", commit), ("scn", scn)]);
        assert!(oracle("999", "998") < oracle("1000", "900"));
        assert!(at(&[("ts_ms", "5"), ("ord", "9")]) < at(&[("ts_ms", "5"), ("ord", "10")]));
    }

    #[test]
    fn documents_lose_the_types_that_have_a_plain_form() {
        let json = r#"{"_id":{"$oid":"65"},"n":{"$numberLong":"7"},"d":{"$numberDecimal":"1.50"},"at":{"$date":1767225600123},"o":{"a":1},"s":"x"}"#;
        let values: Vec<String> = document(json)
            .unwrap()
            .into_iter()
            .map(|(name, value)| match value {
                ColumnValue::Made(json) => format!("{name}={json}"),
                other => format!("{other:?}"),
            })
            .collect();
        assert_eq!(
            values,
            [
                "_id=\"65\"",
                "n=7",
                "d=\"1.50\"",
                "at=\"2026-01-01T00:00:00.123Z\"",
                "o={\"a\":1}",
                "s=\"x\""
            ]
        );
        assert!(document("[1]").is_err() && document("x").is_err());
    }
}
