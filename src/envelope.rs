//! What the records of change data capture say: operation, place in the order of the source, row before and after.
//!
//! One record gives one or more changes, each with what stands in it and nothing else; where a change cannot be told
//! for certain, it is refused. The order of the sequences, compared as bytes, is the order of the source. What a value
//! means for a column is left to `decode`, what a change does to a row to `silver`.

mod canal;
pub(crate) mod connect;
mod debezium;
mod delta_cdf;
pub(crate) mod dms;
pub(crate) mod flat;
mod goldengate;
mod key;
mod maxwell;
mod place;
mod qlik;
mod sqlserver;
mod wal2json;

use crate::change::RejectReason;
use crate::decode::{Member, RecordFault, Token, json_text};
use crate::settings::{Envelope, Format};
use connect::ConnectType;
use std::borrow::Cow;

/// What a change does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// A new row.
    Insert,
    /// Other values of a row.
    Update,
    /// A row goes.
    Delete,
    /// All rows go.
    Truncate,
    /// A row as a full load found it.
    Snapshot,
    /// The row before an update, in a record of its own.
    Before,
    /// Nothing happens to a row.
    Control,
}

impl Op {
    /// The word in the column `_op`.
    pub fn as_str(self) -> &'static str {
        match self {
            Op::Insert => "insert",
            Op::Update => "update",
            Op::Delete => "delete",
            Op::Truncate => "truncate",
            Op::Snapshot => "snapshot",
            Op::Before => "before",
            Op::Control => "control",
        }
    }
}

/// One change, as its record tells it.
#[derive(Clone, Debug)]
pub(crate) struct Change<'a> {
    pub(crate) op: Op,
    /// `None` where the record says nothing of its place.
    pub(crate) sequence: Option<String>,
    /// The row before, as JSON.
    pub(crate) before: Option<Cow<'a, str>>,
    /// What else the record says, as JSON.
    pub(crate) about: Option<String>,
    pub(crate) columns: Vec<(Cow<'a, str>, ColumnValue<'a>)>,
    /// A column that is not among `columns` keeps its value.
    pub(crate) is_partial: bool,
}

/// A value of a change.
#[derive(Clone, Debug)]
pub(crate) enum ColumnValue<'a> {
    /// As in plain JSON.
    Json(Token<'a>),
    /// As Kafka Connect writes a value of this type.
    Connect(Token<'a>, ConnectType),
    /// JSON text that does not stand in the record as such.
    Made(String),
}

/// One change with its own text.
pub(crate) struct Part<'a> {
    /// A slice of the record.
    pub(crate) text: &'a str,
    pub(crate) change: Result<Change<'a>, RecordFault>,
}

impl Envelope {
    /// Records hold their columns in objects of their own, so that only JSON has them.
    pub fn is_json_only(self) -> bool {
        match self {
            Envelope::None
            | Envelope::Debezium
            | Envelope::Dms
            | Envelope::DeltaCdf
            | Envelope::SqlServer
            | Envelope::Qlik => false,
            Envelope::Canal | Envelope::GoldenGate | Envelope::Maxwell | Envelope::Wal2Json => true,
        }
    }

    /// Whether a hint of this name gives a type to a column of the envelope, so that bronze has no such column.
    pub(crate) fn hides_hint(self, format: Format, name: &str) -> bool {
        let is_flat = !self.has_nested_json() || !matches!(format, Format::Json | Format::Auto);
        is_flat && flat::is_header(self, name)
    }

    /// Whether a JSON record is read by [`RecordReader`]; the records of the others are flat.
    pub(crate) fn has_nested_json(self) -> bool {
        self.is_json_only() || self == Envelope::Debezium
    }
}

/// What a record says besides its rows may be so long in all of them together.
const ABOUT_BYTES_MAX: usize = 64 << 20;

/// Reads the records of one file.
pub(crate) struct RecordReader<'a> {
    envelope: Envelope,
    keys: Vec<String>,
    debezium: debezium::Reader<'a>,
}

impl<'a> RecordReader<'a> {
    /// With the keys of silver, and a text of the settings that means "not sent".
    pub(crate) fn new(envelope: Envelope, keys: &[String], unavailable: Option<&str>) -> Self {
        RecordReader {
            envelope,
            keys: keys.to_vec(),
            debezium: debezium::Reader::new(unavailable),
        }
    }

    /// The changes of a record that is an object with these members; at least one.
    pub(crate) fn changes(&mut self, text: &'a str, members: &[Member<'a>]) -> Vec<Part<'a>> {
        match self.envelope {
            Envelope::Debezium => {
                let change = self.debezium.change(members);
                key::split(text, change, &self.keys)
            }
            Envelope::Maxwell => key::split(text, maxwell::change(members), &self.keys),
            Envelope::Canal => canal::changes(text, members, &self.keys),
            Envelope::GoldenGate => key::split(text, goldengate::change(members), &self.keys),
            Envelope::Wal2Json => wal2json::changes(text, members, &self.keys),
            Envelope::None
            | Envelope::Dms
            | Envelope::DeltaCdf
            | Envelope::SqlServer
            | Envelope::Qlik => Vec::new(),
        }
    }

    /// The change of a record that is `null`.
    pub(crate) fn tombstone(&self, text: &'a str) -> Part<'a> {
        Part {
            text,
            change: Ok(Change::control(None)),
        }
    }
}

impl<'a> Change<'a> {
    /// Without columns.
    fn new(op: Op) -> Self {
        Change {
            op,
            sequence: None,
            before: None,
            about: None,
            columns: Vec::new(),
            is_partial: false,
        }
    }

    /// Nothing happens to a row.
    fn control(about: Option<String>) -> Self {
        Change {
            about,
            ..Change::new(Op::Control)
        }
    }
}

/// The value of this name; NULL and absent are one.
fn find<'a>(members: &[Member<'a>], name: &str) -> Option<Token<'a>> {
    let found = members.iter().find(|member| member.0 == name);
    found
        .map(|member| member.1)
        .filter(|token| *token != Token::Null)
}

/// The text of this name; numbers as written.
fn find_text(members: &[Member<'_>], name: &str) -> Option<String> {
    match find(members, name)? {
        token @ (Token::Text { .. } | Token::Number(_)) => Some(token.text().into_owned()),
        Token::Null | Token::Bool(_) | Token::Nested(_) => None,
    }
}

/// The members of the object of this name.
fn find_object<'a>(members: &[Member<'a>], name: &str) -> Option<Vec<Member<'a>>> {
    match find(members, name)? {
        Token::Nested(json) if json.starts_with('{') => crate::decode::members(json).ok(),
        _ => None,
    }
}

/// The members but for these, as one JSON object.
fn about(members: &[Member<'_>], but: &[&str]) -> Option<String> {
    let others = members
        .iter()
        .filter(|(name, _)| !but.contains(&name.as_ref()));
    let others: Vec<String> = others
        .map(|(name, value)| format!("{}:{}", json_text(name), value.as_json()))
        .collect();
    (!others.is_empty()).then(|| format!("{{{}}}", others.join(",")))
}

/// The objects of an array; anything else in it refuses the record as a whole.
fn objects<'a>(array: &'a str, name: &str) -> Result<Vec<&'a str>, RecordFault> {
    let elements =
        crate::decode::elements(array).map_err(|_| malformed(format!("{name} is no array")))?;
    let object = |token| match token {
        Token::Nested(json) if json.starts_with('{') => Ok(json),
        _ => Err(malformed(format!("an element of {name} is no object"))),
    };
    elements.into_iter().map(object).collect()
}

/// What a record says besides its rows is told with each of them, so that it must not be long and they many.
fn check_repeats(about: Option<&str>, rows: usize) -> Result<(), RecordFault> {
    let length = about.map_or(0, str::len);
    if length.saturating_mul(rows) <= ABOUT_BYTES_MAX {
        return Ok(());
    }
    let detail = format!(
        "the record has {rows} rows and says {length} bytes besides them, which is too much to tell with each"
    );
    Err(fault(RejectReason::TooLarge, detail))
}

fn fault(reason: RejectReason, detail: impl Into<String>) -> RecordFault {
    RecordFault::new(reason, detail)
}

fn malformed(detail: impl Into<String>) -> RecordFault {
    fault(RejectReason::Malformed, detail)
}

fn unknown_op(name: &str, code: &str) -> RecordFault {
    let code = crate::decode::shorten(code);
    fault(
        RejectReason::UnknownOp,
        format!("{name} {code:?} is no operation of this envelope"),
    )
}
