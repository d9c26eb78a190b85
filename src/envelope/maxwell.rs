//! Maxwell: one change a record, `data` after it (for a delete the last row) and in `old` what an update altered.
//!
//! The order is the place of the transaction in the binlog, then the number of the change in it. The last change of a
//! transaction has no number; it says `commit` instead.

use super::key::{self, WithBefore};
use super::{Change, Op, about, fault, find, find_object, find_text, malformed, place, unknown_op};
use crate::change::RejectReason;
use crate::decode::{Member, RecordFault, Token};
use std::borrow::Cow;

/// The rows, which are not told again in `_envelope`.
const IMAGES: [&str; 2] = ["data", "old"];

/// The number of the last change of a transaction.
const LAST: u32 = u32::MAX;

/// What the types of records begin with that change no row.
const CONTROL: [&str; 5] = [
    "bootstrap-start",
    "bootstrap-complete",
    "table-",
    "database-",
    "heartbeat",
];

/// The change of a record.
pub(super) fn change<'a>(record: &[Member<'a>]) -> Result<WithBefore<'a>, RecordFault> {
    let word = find_text(record, "type").unwrap_or_default();
    let (op, sequence) = match word.as_str() {
        "insert" => (Op::Insert, sequence(record)),
        "update" => (Op::Update, sequence(record)),
        "delete" => (Op::Delete, sequence(record)),
        // The place of these is that of the bootstrap and not of the row.
        "bootstrap-insert" => (Op::Snapshot, Some(String::new())),
        word if CONTROL.iter().any(|control| word.starts_with(control)) => {
            return Ok(WithBefore {
                change: Change::control(about(record, &[])),
                before: Vec::new(),
            });
        }
        "" => {
            return Err(fault(
                RejectReason::UnknownOp,
                "the record has no type; is this Maxwell?",
            ));
        }
        word => return Err(unknown_op("type", word)),
    };
    let row = find_object(record, "data")
        .ok_or_else(|| malformed("data is no object; it holds the row"))?;
    let old = match find(record, "old") {
        None => None,
        Some(Token::Nested(json)) => Some(json),
        Some(_) => return Err(malformed("old is neither an object nor null")),
    };
    let before = match op {
        Op::Update => key::put_back(&row, &find_object(record, "old").unwrap_or_default()),
        _ => Vec::new(),
    };
    let change = Change {
        sequence,
        before: old.map(Cow::Borrowed),
        about: about(record, &IMAGES),
        columns: key::plain(row),
        ..Change::new(op)
    };
    Ok(WithBefore {
        change,
        before: key::plain(before),
    })
}

fn sequence(record: &[Member<'_>]) -> Option<String> {
    let position = find_text(record, "position")?;
    let (file, offset) = position.rsplit_once(':')?;
    let number = match find_text(record, "xoffset") {
        Some(number) => place::ordinal(&number)?,
        None => place::ordinal(&LAST.to_string())?,
    };
    Some(format!("{}:{number}", place::binlog(file, offset)?))
}
