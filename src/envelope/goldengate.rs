//! GoldenGate: a change a record, with the rows in `before` and `after`, or with the columns beside those of the envelope.
//!
//! An update need not carry all columns; those it leaves out keep their values. Where the handler leaves out NULL, too,
//! nobody can tell the two apart.

use super::key::{self, WithBefore};
use super::{Change, Op, about, fault, find, find_object, find_text, malformed, place, unknown_op};
use crate::change::RejectReason;
use crate::decode::{Member, RecordFault, Token};
use std::borrow::Cow;
use std::collections::HashSet;

/// The members of the envelope where the columns stand beside them.
const HEADER: [&str; 7] = [
    "table",
    "op_type",
    "op_ts",
    "current_ts",
    "pos",
    "primary_keys",
    "tokens",
];

/// The rows, which are not told again in `_envelope`.
const IMAGES: [&str; 2] = ["before", "after"];

/// Behind the name of a column: whether it is missing.
const MISSING: &str = "_isMissing";

/// The change of a record.
pub(super) fn change<'a>(record: &[Member<'a>]) -> Result<WithBefore<'a>, RecordFault> {
    let op = match find_text(record, "op_type").as_deref() {
        Some("I") => Op::Insert,
        Some("U") => Op::Update,
        Some("D") => Op::Delete,
        Some("T") => Op::Truncate,
        Some(code) => return Err(unknown_op("op_type", code)),
        None => {
            let detail = "the record has no op_type; is this GoldenGate?";
            return Err(fault(RejectReason::UnknownOp, detail));
        }
    };
    let has_images = record
        .iter()
        .any(|member| IMAGES.contains(&member.0.as_ref()));
    let sequence = find_text(record, "pos").and_then(|pos| place::long_number(&pos));
    if !has_images {
        return Ok(beside_each_other(op, sequence, record));
    }
    let (before, after) = (image(record, "before")?, image(record, "after")?);
    let row = match op {
        Op::Truncate => Image::default(),
        Op::Delete => before.clone().or(after).unwrap_or_default(),
        _ => after.ok_or_else(|| malformed(format!("the {} has no after", op.as_str())))?,
    };
    let change = Change {
        sequence,
        before: find(record, "before").map(|before| Cow::Borrowed(before.written())),
        about: about(record, &IMAGES),
        columns: key::plain(row.columns),
        is_partial: op == Op::Update || row.lacks_some,
        ..Change::new(op)
    };
    Ok(WithBefore {
        change,
        before: key::plain(before.unwrap_or_default().columns),
    })
}

/// The columns that an image holds.
#[derive(Clone, Default)]
struct Image<'a> {
    columns: Vec<Member<'a>>,
    /// It says so of a column.
    lacks_some: bool,
}

fn image<'a>(record: &[Member<'a>], name: &str) -> Result<Option<Image<'a>>, RecordFault> {
    match find(record, name) {
        None => Ok(None),
        Some(_) => match find_object(record, name) {
            Some(row) => Ok(Some(present(row))),
            None => Err(malformed(format!("{name} is neither an object nor null"))),
        },
    }
}

fn beside_each_other<'a>(
    op: Op,
    sequence: Option<String>,
    record: &[Member<'a>],
) -> WithBefore<'a> {
    let is_header = |member: &Member<'_>| HEADER.contains(&member.0.as_ref());
    let (header, row): (Vec<Member<'_>>, Vec<Member<'_>>) =
        record.iter().cloned().partition(is_header);
    let row = present(row);
    let change = Change {
        sequence,
        about: about(&header, &[]),
        columns: key::plain(row.columns),
        is_partial: op == Op::Update || row.lacks_some,
        ..Change::new(op)
    };
    WithBefore {
        change,
        before: Vec::new(),
    }
}

/// Takes the columns that are missing out, and what says so.
fn present(row: Vec<Member<'_>>) -> Image<'_> {
    let missing: HashSet<String> = row
        .iter()
        .filter_map(flag)
        .filter_map(|(name, is_missing)| is_missing.then_some(name))
        .collect();
    let lacks_some = !missing.is_empty();
    let columns = row
        .into_iter()
        .filter(|member| flag(member).is_none() && !missing.contains(member.0.as_ref()));
    Image {
        columns: columns.collect(),
        lacks_some,
    }
}

/// The column that a member speaks of, and whether it is missing.
fn flag((name, value): &Member<'_>) -> Option<(String, bool)> {
    let column = name.strip_suffix(MISSING)?;
    match value {
        Token::Bool(is_missing) => Some((column.to_string(), *is_missing)),
        Token::Null | Token::Number(_) | Token::Text { .. } | Token::Nested(_) => None,
    }
}
