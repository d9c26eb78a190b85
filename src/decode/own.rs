//! The columns that an envelope fills: what each change does, its place in the order, the row before, what else is said.
//!
//! The columns of a flat envelope are noted here while a record is read, and never become columns of the row. A row
//! before that turns out to have another key than the update right behind it becomes the delete of that key.

use super::RecordFault;
use super::columns::Column;
use super::value::{Cell, FieldValue, ValueReader};
use crate::change::{BEFORE, ENVELOPE, OP, PRESENT_COLUMNS, RejectReason, SEQUENCE};
use crate::envelope::flat::{self, FlatChange, Header};
use crate::envelope::{Change, Op};
use crate::events::find_column;
use crate::schema::TableSchema;
use crate::settings::{Envelope, SourceSettings};
use arrow::datatypes::DataType;

/// The columns of the envelope, and those of the present record.
pub(super) struct OwnColumns<'a> {
    envelope: Envelope,
    op: usize,
    sequence: usize,
    before: usize,
    about: usize,
    /// The columns of the envelope stand beside those of the row.
    is_flat: bool,
    /// Where the keys of silver stand; empty while one is not there.
    keys: Vec<usize>,
    /// The columns of the envelope in the present record, where it is flat.
    header: Vec<(String, Option<String>)>,
    /// What the present record does, as soon as it is known.
    present: Option<Present>,
    /// What each row does, and where it stands.
    rows: Vec<(Op, Option<String>)>,
    /// The last row, if it is a row before.
    waiting: Option<Waiting<'a>>,
}

struct Present {
    flat: FlatChange,
    before: Option<String>,
    about: Option<String>,
}

struct Waiting<'a> {
    pair: String,
    keys: Vec<Cell<'a>>,
}

impl<'a> OwnColumns<'a> {
    /// `None` without an envelope.
    pub(super) fn of(schema: &TableSchema, settings: &SourceSettings) -> Option<Self> {
        if settings.envelope == Envelope::None {
            return None;
        }
        let place = |name: &str| schema.columns.index_of(name).ok();
        let keys: Option<Vec<usize>> = settings
            .keys
            .iter()
            .map(|key| find_column(&schema.columns, key))
            .collect();
        Some(OwnColumns {
            envelope: settings.envelope,
            op: place(OP)?,
            sequence: place(SEQUENCE)?,
            before: place(BEFORE)?,
            about: place(ENVELOPE)?,
            is_flat: true,
            keys: keys.unwrap_or_default(),
            header: Vec::new(),
            present: None,
            rows: Vec::new(),
            waiting: None,
        })
    }

    /// Whether no value of a record goes to a column of this name.
    pub(super) fn hides(&self, name: &str) -> bool {
        is_own(name) || self.is_header(name)
    }

    fn is_header(&self, name: &str) -> bool {
        self.is_flat && flat::is_header(self.envelope, name)
    }

    /// The records hold the columns of the row apart, so that those may have any name.
    pub(super) fn expect_nested(&mut self) {
        self.is_flat = false;
    }

    /// Takes a value that belongs to the envelope; false for one of the row.
    pub(super) fn note<V: FieldValue<'a>>(
        &mut self,
        name: &str,
        value: &V,
        reader: &mut ValueReader,
    ) -> Result<bool, RecordFault> {
        if self.is_header(name) {
            let text = header_text(name, value, reader)?;
            self.header.push((name.to_string(), text));
            return Ok(true);
        }
        if is_own(name) && !value.is_null() {
            let detail = format!("column name {name:?} is one that the loader adds itself");
            return Err(RecordFault::new(RejectReason::InvalidColumnName, detail));
        }
        Ok(false)
    }

    /// Says what the present record does.
    pub(super) fn set(&mut self, change: &Change<'_>) {
        self.present = Some(Present {
            flat: FlatChange {
                op: change.op,
                sequence: change.sequence.clone(),
                pair: None,
            },
            before: change.before.as_ref().map(|before| before.to_string()),
            about: change.about.clone(),
        });
    }

    /// Finds out what the present record does, unless that is said already.
    pub(super) fn close(&mut self, path: &str, record: usize) -> Result<(), RecordFault> {
        if self.present.is_some() {
            return Ok(());
        }
        let header = Header {
            columns: &self.header,
            path,
            record,
        };
        self.present = Some(Present {
            flat: flat::change(self.envelope, &header)?,
            before: None,
            about: header.about(),
        });
        Ok(())
    }

    /// Ends the present record: it becomes a row of these cells.
    pub(super) fn take(&mut self, cells: &mut [Cell<'a>]) {
        self.header.clear();
        let present = self.present.take();
        let present = present.expect("BUG: a record is closed before it is taken");
        let text = |text: Option<String>| text.map_or(Cell::Null, |text| Cell::Text(text.into()));
        cells[self.before] = text(present.before);
        cells[self.about] = text(present.about);
        self.pair_up(&present.flat, cells);
        self.rows.push((present.flat.op, present.flat.sequence));
    }

    fn pair_up(&mut self, flat: &FlatChange, cells: &[Cell<'a>]) {
        let waiting = self.waiting.take();
        let Some(pair) = &flat.pair else { return };
        let keys: Vec<Cell<'a>> = self.keys.iter().map(|key| cells[*key].clone()).collect();
        match (flat.op, waiting) {
            (Op::Before, _) => {
                let pair = pair.clone();
                self.waiting = Some(Waiting { pair, keys });
            }
            (Op::Update, Some(before)) if before.pair == *pair && before.keys != keys => {
                if let Some(row) = self.rows.last_mut() {
                    *row = (Op::Delete, flat.sequence.clone());
                }
            }
            _ => {}
        }
    }

    /// Ends the present record: it becomes no row.
    pub(super) fn clear(&mut self) {
        self.header.clear();
        self.present = None;
        self.waiting = None;
    }

    /// Whether the next record may still tell what the last row does.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    /// Puts in what the rows do, which is certain only now; the next ones begin anew.
    pub(super) fn fill(&mut self, columns: &mut [Column]) {
        let mut ops = Column::new(&DataType::Utf8);
        let mut sequences = Column::new(&DataType::Utf8);
        for (op, sequence) in self.rows.drain(..) {
            ops.push(Cell::Text(op.as_str().into()));
            sequences.push(sequence.map_or(Cell::Null, |text| Cell::Text(text.into())));
        }
        columns[self.op] = ops;
        columns[self.sequence] = sequences;
    }
}

fn is_own(name: &str) -> bool {
    [OP, SEQUENCE, BEFORE, ENVELOPE, PRESENT_COLUMNS]
        .iter()
        .any(|own| own.eq_ignore_ascii_case(name))
}

/// A value of the envelope as text; bytes are hexadecimal digits.
fn header_text<'a, V: FieldValue<'a>>(
    name: &str,
    value: &V,
    reader: &mut ValueReader,
) -> Result<Option<String>, RecordFault> {
    if value.is_null() {
        return Ok(None);
    }
    let is_binary = V::IS_TYPED && value.inferred(reader) == DataType::Binary;
    let data_type = if is_binary {
        DataType::Binary
    } else {
        DataType::Utf8
    };
    match value.cell(&data_type, reader) {
        Ok(Cell::Text(text)) => Ok(Some(text.into_owned())),
        Ok(Cell::Bytes(bytes)) => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
            Ok(Some(format!("0x{digits}")))
        }
        Ok(_) => Ok(None),
        Err(misfit) => {
            let detail = format!("column {name}: {:?} {}", value.shown(), misfit.why);
            Err(RecordFault::new(misfit.reason, detail))
        }
    }
}
