//! wal2json: a transaction with its changes (format 1), or a change a record (format 2).
//!
//! PostgreSQL locks the rows that a transaction changes, so for one key the places in the log are in the order of the
//! commits. An update leaves out what it did not read: those columns keep their values.

use super::key::{self, WithBefore};
use super::{
    Change, Op, Part, about, check_repeats, fault, find, find_object, find_text, malformed,
    objects, place, unknown_op,
};
use crate::change::RejectReason;
use crate::decode::{Member, RecordFault, Token, elements, json_text, members, shorten};
use std::borrow::Cow;
use std::collections::HashSet;

/// What a change of format 1 says of its row.
const ROW_1: [&str; 4] = ["columnnames", "columntypes", "columnvalues", "oldkeys"];
/// What a change of format 2 says of its row.
const ROW_2: [&str; 2] = ["columns", "identity"];

type Row<'a> = Vec<Member<'a>>;

/// The changes of a record.
pub(super) fn changes<'a>(text: &'a str, record: &[Member<'a>], keys: &[String]) -> Vec<Part<'a>> {
    if let Some(Token::Nested(array)) = find(record, "change") {
        return transaction(text, record, array, keys);
    }
    key::split(text, format_2(record), keys)
}

/// Format 1: every element of `change` is a change, with the place of the transaction and its number in it.
fn transaction<'a>(
    text: &'a str,
    record: &[Member<'a>],
    array: &'a str,
    keys: &[String],
) -> Vec<Part<'a>> {
    let whole = |change| vec![Part { text, change }];
    let transaction = about(record, &["change"]);
    let checked = objects(array, "change").and_then(|changes| {
        check_repeats(transaction.as_deref(), changes.len())?;
        Ok(changes)
    });
    let changes = match checked {
        Err(fault) => return whole(Err(fault)),
        Ok(changes) if changes.is_empty() => return whole(Ok(Change::control(transaction))),
        Ok(changes) => changes,
    };
    let commit = find_text(record, "nextlsn").and_then(|lsn| lsn_place(&lsn));
    let mut parts = Vec::with_capacity(changes.len());
    for (number, json) in changes.into_iter().enumerate() {
        let sequence = commit
            .as_ref()
            .and_then(|commit| Some(format!("{commit}:{}", place::ordinal(&number.to_string())?)));
        let change = format_1(json, sequence, transaction.as_deref());
        parts.extend(key::split(json, change, keys));
    }
    parts
}

fn format_1<'a>(
    json: &'a str,
    sequence: Option<String>,
    transaction: Option<&str>,
) -> Result<WithBefore<'a>, RecordFault> {
    let change = members(json).map_err(|fault| malformed(fault.what))?;
    let op = match find_text(&change, "kind").as_deref() {
        Some("insert") => Op::Insert,
        Some("update") => Op::Update,
        Some("delete") => Op::Delete,
        Some("truncate") => Op::Truncate,
        Some("message") => Op::Control,
        Some(kind) => return Err(unknown_op("kind", kind)),
        None => return Err(fault(RejectReason::UnknownOp, "the change has no kind")),
    };
    let row = zipped(&change, "columnnames", "columnvalues")?;
    let old = match find_object(&change, "oldkeys") {
        Some(old) => zipped(&old, "keynames", "keyvalues")?,
        None => Vec::new(),
    };
    let about = joined(transaction, about(&change, &ROW_1));
    Ok(with_before(op, sequence, about, row, old))
}

/// Names and values of a row from two arrays beside each other.
fn zipped<'a>(object: &[Member<'a>], names: &str, values: &str) -> Result<Row<'a>, RecordFault> {
    let array = |name: &str| match find(object, name) {
        None => Ok(Vec::new()),
        Some(Token::Nested(json)) => {
            elements(json).map_err(|_| malformed(format!("{name} is no array")))
        }
        Some(_) => Err(malformed(format!("{name} is no array"))),
    };
    let (found, given) = (array(names)?, array(values)?);
    if found.len() != given.len() {
        return Err(malformed(format!(
            "{names} has {} elements and {values} has {}",
            found.len(),
            given.len()
        )));
    }
    let row = found.iter().zip(given);
    distinct(row.map(|(name, value)| (name.text(), value)).collect())
}

/// A name that stands twice has two values, and nobody knows which.
fn distinct(row: Row<'_>) -> Result<Row<'_>, RecordFault> {
    let mut names = HashSet::new();
    match row.iter().find(|member| !names.insert(member.0.as_ref())) {
        None => Ok(row),
        Some((name, _)) => {
            let detail = format!("the column {:?} stands twice in one row", shorten(name));
            Err(fault(RejectReason::DuplicateKey, detail))
        }
    }
}

/// Format 2: the record is the change.
fn format_2<'a>(record: &[Member<'a>]) -> Result<WithBefore<'a>, RecordFault> {
    let op = match find_text(record, "action").as_deref() {
        Some("I") => Op::Insert,
        Some("U") => Op::Update,
        Some("D") => Op::Delete,
        Some("T") => Op::Truncate,
        Some("B" | "C" | "M") => Op::Control,
        Some(action) => return Err(unknown_op("action", action)),
        None => {
            let detail = "the record has neither change nor action; is this wal2json?";
            return Err(fault(RejectReason::UnknownOp, detail));
        }
    };
    let row = named(record, "columns")?;
    let old = named(record, "identity")?;
    let sequence = find_text(record, "lsn").and_then(|lsn| lsn_place(&lsn));
    Ok(with_before(op, sequence, about(record, &ROW_2), row, old))
}

/// A row from an array of objects with name and value.
fn named<'a>(record: &[Member<'a>], name: &str) -> Result<Row<'a>, RecordFault> {
    let unfit = || malformed(format!("{name} is no array of objects with name and value"));
    let columns = match find(record, name) {
        None => return Ok(Vec::new()),
        Some(Token::Nested(json)) => elements(json).map_err(|_| unfit())?,
        Some(_) => return Err(unfit()),
    };
    let column = |token: Token<'a>| {
        let Token::Nested(json) = token else {
            return Err(unfit());
        };
        let column = members(json).map_err(|_| unfit())?;
        let of = |name: &str| column.iter().find(|member| member.0 == name);
        let (Some((_, name)), Some((_, value))) = (of("name"), of("value")) else {
            return Err(unfit());
        };
        Ok((name.text(), *value))
    };
    let row: Result<Row<'a>, RecordFault> = columns.into_iter().map(column).collect();
    distinct(row?)
}

fn with_before<'a>(
    op: Op,
    sequence: Option<String>,
    about: Option<String>,
    row: Row<'a>,
    old: Row<'a>,
) -> WithBefore<'a> {
    if op == Op::Control {
        return WithBefore {
            change: Change::control(about),
            before: Vec::new(),
        };
    }
    let columns = match op {
        Op::Delete => old.clone(),
        _ => row,
    };
    let change = Change {
        sequence,
        before: object(&old).map(Cow::Owned),
        about,
        columns: key::plain(columns),
        is_partial: op == Op::Update,
        ..Change::new(op)
    };
    WithBefore {
        change,
        before: key::plain(old),
    }
}

/// A row as a JSON object; `None` without columns.
fn object(row: &Row<'_>) -> Option<String> {
    let columns = row.iter();
    let columns: Vec<String> = columns
        .map(|(name, value)| format!("{}:{}", json_text(name), value.as_json()))
        .collect();
    (!columns.is_empty()).then(|| format!("{{{}}}", columns.join(",")))
}

/// What the transaction says, with what the change says in it.
fn joined(transaction: Option<&str>, change: Option<String>) -> Option<String> {
    let Some(transaction) = transaction else {
        return change;
    };
    match change {
        None => Some(transaction.to_string()),
        Some(change) => {
            let head = transaction.strip_suffix('}').unwrap_or(transaction);
            Some(format!("{head},\"change\":{change}}}"))
        }
    }
}

/// `16/B374D848`: two halves without leading zeros.
fn lsn_place(lsn: &str) -> Option<String> {
    let (high, low) = lsn.split_once('/')?;
    let half = |text: &str| {
        let is_hex = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex
            .then(|| u32::from_str_radix(text, 16).ok())
            .flatten()
            .map(|half| format!("{half:08X}"))
    };
    Some(format!("{}{}", half(high)?, half(low)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_the_log_are_numbers_and_no_texts() {
        assert!(lsn_place("9/0") < lsn_place("16/B374D848"));
        assert!(lsn_place("16/FFFFFFFF") < lsn_place("17/0"));
        for text in ["", "16", "16/", "/1", "16/+1", "16/1FFFFFFFF", "x/1"] {
            assert_eq!(lsn_place(text), None, "{text:?}");
        }
    }
}
