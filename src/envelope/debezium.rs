//! Debezium: `before`, `after`, `op` and `source`, bare or as the payload of a record with its schema; or unwrapped, with
//! the fields of the envelope as columns that begin with two underscores.
//!
//! The order is that of the database's log, never that of a clock. A value that the log did not hold is not sent: it is
//! left out of the change.

mod log;
mod unavailable;

use super::connect::{ColumnTypes, ConnectType, column_types};
use super::flat::{FlatChange, Header};
use super::key::WithBefore;
use super::{
    Change, ColumnValue, Op, about, fault, find, find_object, find_text, malformed, unknown_op,
};
use crate::change::RejectReason;
use crate::decode::{Member, RecordFault, Token, members};
use std::borrow::Cow;
use std::rc::Rc;
use unavailable::Placeholders;

/// The images of a row with the schema of the record, which are not told again in `_envelope`.
const IMAGES: [&str; 3] = ["before", "after", "schema"];

/// Reads the records of one file; the last schema is remembered, since the records of a feed are alike.
pub(super) struct Reader<'a> {
    schema: Option<&'a str>,
    types: Rc<ColumnTypes>,
    placeholders: Placeholders,
}

type Columns<'a> = Vec<(Cow<'a, str>, ColumnValue<'a>)>;

impl<'a> Reader<'a> {
    pub(super) fn new(unavailable: Option<&str>) -> Self {
        Reader {
            schema: None,
            types: Rc::default(),
            placeholders: Placeholders::new(unavailable),
        }
    }

    /// The change of a record.
    pub(super) fn change(&mut self, record: &[Member<'a>]) -> Result<WithBefore<'a>, RecordFault> {
        let has = |name: &str| record.iter().any(|member| member.0 == name);
        if has("key") && has("value") && record.len() == 2 {
            return match object_or_null(record, "value")? {
                Some(value) => self.payload(&value),
                None => Ok(only(Change::control(about(record, &[])))),
            };
        }
        self.payload(record)
    }

    fn payload(&mut self, record: &[Member<'a>]) -> Result<WithBefore<'a>, RecordFault> {
        let has = |name: &str| record.iter().any(|member| member.0 == name);
        if !(has("schema") && has("payload")) {
            return self.bare(record, None);
        }
        let types = match find(record, "schema") {
            Some(Token::Nested(schema)) => Some(self.types_of(schema)),
            _ => None,
        };
        match object_or_null(record, "payload")? {
            Some(payload) => self.bare(&payload, types),
            None => Ok(only(Change::control(None))),
        }
    }

    fn types_of(&mut self, schema: &'a str) -> Rc<ColumnTypes> {
        if self.schema != Some(schema) {
            self.types = Rc::new(column_types(schema));
            self.schema = Some(schema);
        }
        self.types.clone()
    }

    fn bare(
        &self,
        record: &[Member<'a>],
        types: Option<Rc<ColumnTypes>>,
    ) -> Result<WithBefore<'a>, RecordFault> {
        let has = |name: &str| record.iter().any(|member| member.0 == name);
        let is_wrapped = has("op") && (has("after") || has("before") || has("source"));
        if is_wrapped {
            self.wrapped(record, types.as_deref())
        } else if record.iter().any(|member| is_header(&member.0)) {
            self.unwrapped(record, types.as_deref()).map(only)
        } else if is_control(record) {
            Ok(only(Change::control(about(record, &[]))))
        } else {
            Err(malformed(
                "the record is no Debezium change: it has neither op with before, after or source, nor __op or __deleted",
            ))
        }
    }

    fn wrapped(
        &self,
        record: &[Member<'a>],
        types: Option<&ColumnTypes>,
    ) -> Result<WithBefore<'a>, RecordFault> {
        let code = find_text(record, "op").unwrap_or_default();
        let op = op_of(&code).ok_or_else(|| unknown_op("op", &code))?;
        let about = about(record, &IMAGES);
        if op == Op::Control {
            return Ok(only(Change::control(about)));
        }
        let source = find_object(record, "source").unwrap_or_default();
        let sequence = log::sequence(op, &|name| find_text(&source, name));
        let mut is_partial = false;
        let before = self.image(record, "before", types, &mut false)?;
        let columns = match op {
            Op::Truncate => Vec::new(),
            Op::Delete => before.clone().unwrap_or_default(),
            _ => self
                .image(record, "after", types, &mut is_partial)?
                .ok_or_else(|| without_after(op, record))?,
        };
        let change = Change {
            op,
            sequence,
            before: find(record, "before").map(|token| Cow::Owned(token.text().into_owned())),
            about,
            columns,
            is_partial,
        };
        Ok(WithBefore {
            change,
            before: before.unwrap_or_default(),
        })
    }

    /// The columns of an image of a row; `None` where there is none.
    fn image(
        &self,
        record: &[Member<'a>],
        name: &str,
        types: Option<&ColumnTypes>,
        is_partial: &mut bool,
    ) -> Result<Option<Columns<'a>>, RecordFault> {
        match find(record, name) {
            None => Ok(None),
            Some(Token::Nested(json)) if json.starts_with('{') => {
                let row = members(json).map_err(|fault| malformed(fault.what))?;
                Ok(Some(self.columns(row, types, is_partial)))
            }
            // MongoDB gives a document as a text of JSON.
            Some(token @ Token::Text { .. }) => log::document(&token.text()).map(Some),
            Some(_) => Err(malformed(format!("{name} is neither an object nor null"))),
        }
    }

    /// The values that were sent.
    fn columns(
        &self,
        row: Vec<Member<'a>>,
        types: Option<&ColumnTypes>,
        is_partial: &mut bool,
    ) -> Columns<'a> {
        let mut columns = Vec::with_capacity(row.len());
        for (name, value) in row {
            if self.placeholders.contains(value) {
                *is_partial = true;
                continue;
            }
            let connect_type = match types {
                Some(types) => types.get(name.as_ref()).copied(),
                None => Some(ConnectType::Unknown),
            };
            let value = match connect_type {
                None | Some(ConnectType::Plain) => ColumnValue::Json(value),
                Some(connect_type) => ColumnValue::Connect(value, connect_type),
            };
            columns.push((name, value));
        }
        columns
    }

    fn unwrapped(
        &self,
        record: &[Member<'a>],
        types: Option<&ColumnTypes>,
    ) -> Result<Change<'a>, RecordFault> {
        let (header, row): (Vec<Member<'_>>, Vec<Member<'_>>) = record
            .iter()
            .cloned()
            .partition(|member| is_header(&member.0));
        let text = |(name, value): &Member<'_>| {
            let text = (*value != Token::Null).then(|| value.text().into_owned());
            (name.to_string(), text)
        };
        let columns: Vec<_> = header.iter().map(text).collect();
        let flat = flat_change(&Header {
            columns: &columns,
            path: "",
            record: 0,
        })?;
        let mut is_partial = false;
        Ok(Change {
            op: flat.op,
            sequence: flat.sequence,
            before: None,
            about: about(&header, &[]),
            columns: self.columns(row, types, &mut is_partial),
            is_partial,
        })
    }
}

/// Whether a column of an unwrapped record is one of the envelope.
pub(super) fn is_header(name: &str) -> bool {
    name.starts_with("__")
}

/// What an unwrapped record does.
pub(super) fn flat_change(header: &Header<'_>) -> Result<FlatChange, RecordFault> {
    let is_deleted = match header.get("__deleted") {
        None => false,
        Some(word) if word.eq_ignore_ascii_case("true") => true,
        Some(word) if word.eq_ignore_ascii_case("false") => false,
        Some(word) => return Err(unknown_op("__deleted", word)),
    };
    let op = match header.get("__op") {
        Some(code) => op_of(code).ok_or_else(|| unknown_op("__op", code))?,
        None if is_deleted => Op::Delete,
        None if header.columns.is_empty() => {
            let detail =
                "the record has neither __op nor __deleted, so it cannot be told what it does";
            return Err(fault(RejectReason::UnknownOp, detail));
        }
        None => Op::Update,
    };
    let op = if is_deleted { Op::Delete } else { op };
    let field = |name: &str| {
        let field = header.get(&format!("__source_{name}"));
        field
            .or_else(|| header.get(&format!("__{name}")))
            .map(str::to_string)
    };
    Ok(FlatChange::new(op, log::sequence(op, &field)))
}

fn op_of(code: &str) -> Option<Op> {
    match code {
        "c" => Some(Op::Insert),
        "u" => Some(Op::Update),
        "d" => Some(Op::Delete),
        "r" => Some(Op::Snapshot),
        "t" => Some(Op::Truncate),
        "m" => Some(Op::Control),
        _ => None,
    }
}

/// Changes of the schema, heartbeats, begin and end of transactions.
fn is_control(record: &[Member<'_>]) -> bool {
    let has = |name: &str| record.iter().any(|member| member.0 == name);
    let is_heartbeat = has("ts_ms") && record.iter().all(|member| member.0.starts_with("ts_"));
    let is_transaction = has("id")
        && matches!(
            find_text(record, "status").as_deref(),
            Some("BEGIN" | "END")
        );
    let is_schema_change = (has("ddl") || has("tableChanges")) && has("source");
    is_heartbeat || is_transaction || is_schema_change
}

fn without_after(op: Op, record: &[Member<'_>]) -> RecordFault {
    if op == Op::Update && find(record, "updateDescription").is_some() {
        let detail = "the update has no whole document; let the connector capture full documents";
        return fault(RejectReason::UnsupportedOp, detail);
    }
    malformed(format!("the {} has no after", op.as_str()))
}

/// A member that must be an object, or NULL.
fn object_or_null<'a>(
    record: &[Member<'a>],
    name: &str,
) -> Result<Option<Vec<Member<'a>>>, RecordFault> {
    match find(record, name) {
        None => Ok(None),
        Some(_) => match find_object(record, name) {
            Some(object) => Ok(Some(object)),
            None => Err(malformed(format!("{name} is neither an object nor null"))),
        },
    }
}

fn only(change: Change<'_>) -> WithBefore<'_> {
    WithBefore {
        change,
        before: Vec::new(),
    }
}
