//! Canal: a message with the rows that one statement changed, in `data`, and what an update altered of each, in `old`.
//!
//! A message says no more of its place than the time of its statement; changes of one time are ordered by their files and
//! records. The number of a message begins again with every start of Canal, so it is none.

use super::key::{self, WithBefore};
use super::{
    Change, Op, Part, about, check_repeats, fault, find, find_text, malformed, objects, place,
    unknown_op,
};
use crate::change::RejectReason;
use crate::decode::{Member, RecordFault, Token, elements, members};
use std::borrow::Cow;

/// The rows, which are not told again in `_envelope`.
const IMAGES: [&str; 2] = ["data", "old"];

/// Types of messages that change no row.
const CONTROL: [&str; 10] = [
    "CREATE",
    "ALTER",
    "ERASE",
    "RENAME",
    "QUERY",
    "CINDEX",
    "DINDEX",
    "GTID",
    "XACOMMIT",
    "XAROLLBACK",
];

/// The changes of a message.
pub(super) fn changes<'a>(text: &'a str, record: &[Member<'a>], keys: &[String]) -> Vec<Part<'a>> {
    let whole = |change| vec![Part { text, change }];
    let word = find_text(record, "type").unwrap_or_default();
    let op = match word.as_str() {
        "INSERT" => Op::Insert,
        "UPDATE" => Op::Update,
        "DELETE" => Op::Delete,
        "TRUNCATE" => {
            return whole(Ok(Change {
                sequence: sequence(record),
                about: about(record, &IMAGES),
                ..Change::new(Op::Truncate)
            }));
        }
        word if CONTROL.contains(&word) || find(record, "isDdl") == Some(Token::Bool(true)) => {
            return whole(Ok(Change::control(about(record, &[]))));
        }
        "" => {
            let detail = "the record has no type; is this Canal?";
            return whole(Err(fault(RejectReason::UnknownOp, detail)));
        }
        word => return whole(Err(unknown_op("type", word))),
    };
    let about = about(record, &IMAGES);
    let checked = rows(record).and_then(|rows| {
        check_repeats(about.as_deref(), rows.len())?;
        Ok(rows)
    });
    match checked {
        Err(fault) => whole(Err(fault)),
        Ok(rows) if rows.is_empty() => whole(Ok(Change::control(about))),
        Ok(rows) => {
            let message = Message {
                op,
                sequence: sequence(record),
                about,
            };
            let row = |(json, old)| key::split(json, message.change(json, old), keys);
            rows.into_iter().flat_map(row).collect()
        }
    }
}

/// What the rows of a message share.
struct Message {
    op: Op,
    sequence: Option<String>,
    about: Option<String>,
}

impl Message {
    fn change<'a>(
        &self,
        json: &'a str,
        old: Option<Token<'a>>,
    ) -> Result<WithBefore<'a>, RecordFault> {
        let row = object(json)?;
        let altered = match old {
            None | Some(Token::Null) => None,
            Some(Token::Nested(old)) => Some((old, object(old)?)),
            Some(_) => return Err(malformed("an element of old is neither an object nor null")),
        };
        let before = match &altered {
            Some((_, altered)) => key::put_back(&row, altered),
            None => Vec::new(),
        };
        let change = Change {
            sequence: self.sequence.clone(),
            before: altered.map(|(old, _)| Cow::Borrowed(old)),
            about: self.about.clone(),
            columns: key::plain(row),
            ..Change::new(self.op)
        };
        Ok(WithBefore {
            change,
            before: key::plain(before),
        })
    }
}

/// Each row with what was altered of it.
fn rows<'a>(record: &[Member<'a>]) -> Result<Vec<(&'a str, Option<Token<'a>>)>, RecordFault> {
    let array = |name: &str| match find(record, name) {
        None => Ok(None),
        Some(Token::Nested(json)) => Ok(Some(json)),
        Some(_) => Err(malformed(format!("{name} is no array"))),
    };
    let data = array("data")?.ok_or_else(|| malformed("data is no array; it holds the rows"))?;
    let data = objects(data, "data")?;
    let Some(old) = array("old")? else {
        return Ok(data.into_iter().map(|row| (row, None)).collect());
    };
    let old = elements(old).map_err(|_| malformed("old is no array"))?;
    if old.len() != data.len() {
        return Err(malformed(format!(
            "data has {} elements and old has {}",
            data.len(),
            old.len()
        )));
    }
    Ok(data.into_iter().zip(old.into_iter().map(Some)).collect())
}

fn object(json: &str) -> Result<Vec<Member<'_>>, RecordFault> {
    match json.starts_with('{') {
        true => members(json).map_err(|fault| malformed(fault.what)),
        false => Err(malformed("an element of old is no object")),
    }
}

fn sequence(record: &[Member<'_>]) -> Option<String> {
    place::number(&find_text(record, "es")?)
}
