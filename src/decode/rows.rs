//! Collects the records of one file: rows, refused records, new columns.
//!
//! A record is either in every column or in none: its cells wait in slots until all of it has been read, or go into the
//! columns at once and are taken back if it cannot be read so. Only a row that is taken can bring a new column.

mod direct;
mod part;
mod presence;
mod snapshot;

pub(super) use snapshot::snapshot_version;

use super::columns::{Column, Columns};
use super::encoding::Origin;
use super::infer::is_written_as_number;
use super::own::OwnColumns;
use super::text::{json_text, shorten};
use super::value::{Cell, FieldValue, Misfit, ValueReader};
use super::{Decoded, RECORD_BYTES_MAX, RowPosition};
use crate::change::{FILE_PATH, FileFault, Reject, RejectReason};
use crate::envelope::Change;
use crate::schema::{
    Lookup, NewColumn, TableSchema, check_column_name, ddl_type, parse_ddl, widen,
};
use crate::settings::{OnTypeMismatch, SchemaEvolutionMode, SourceSettings, TextEncoding};
use arrow::datatypes::{DataType, Field};
use presence::Presence;
use snapshot::snapshot_of;
use std::collections::HashMap;

/// Why a record is refused.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RecordFault {
    pub(crate) reason: RejectReason,
    pub(crate) detail: String,
}

impl RecordFault {
    pub(crate) fn new(reason: RejectReason, detail: impl Into<String>) -> Self {
        RecordFault {
            reason,
            detail: detail.into(),
        }
    }
}

/// Where a record stands, before it has a number.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Place {
    /// The physical line, from 1.
    pub(super) line: Option<i64>,
    /// The first byte in the text.
    pub(super) offset: Option<usize>,
    /// Bytes of the text without the line end.
    pub(super) length: usize,
}

/// A name that the schema lacks, as met in this file.
#[derive(Debug)]
struct Arrival {
    name: String,
    /// Why no table takes it.
    refusal: Option<RecordFault>,
    /// Over the values of the rows that were taken so far.
    data_type: Option<DataType>,
    /// Where the first of them stands.
    first: String,
}

/// What stands before a stretch of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Before {
    /// Bytes.
    pub bytes: usize,
    /// Physical lines.
    pub lines: i64,
    /// Records.
    pub records: usize,
}

/// Takes a stretch of the rows of a file.
pub(super) type Take<'t> = &'t dyn Fn(Decoded);

/// The rows of one file while they are read; `'a` is the life of the file's bytes.
pub(super) struct Rows<'a> {
    path: &'a str,
    before: Before,
    /// Who takes the rows each time that there are so many, where not all are kept to the end.
    parts: Option<(usize, Take<'a>)>,
    /// Why they could not be handed on.
    fault: Option<FileFault>,
    schema: &'a TableSchema,
    /// Of the text; `None` where the format is none.
    origin: Option<Origin<'a>>,
    mode: SchemaEvolutionMode,
    on_type_mismatch: OnTypeMismatch,
    infers: bool,
    /// For each column, whether its type is a number that no hint names.
    is_inferred_number: Vec<bool>,
    /// The formats of values.
    pub(super) reader: ValueReader,
    indices: HashMap<&'a str, usize>,
    /// The records that were taken; a record that is read without slots may be there in part.
    pub(super) columns: Columns,
    /// Up to the last row that has something in it.
    rescued: Column,
    /// How many columns got a value or NULL of the record that was read last without slots.
    pub(super) pushed: usize,
    positions: Vec<RowPosition>,
    rejects: Vec<Reject>,
    arrivals: Vec<Arrival>,
    arrival_indices: HashMap<String, usize>,
    /// Those that a record brought which was taken.
    arrivals_kept: usize,
    slots: Vec<Cell<'a>>,
    leftovers: Vec<(String, String)>,
    arriving: Vec<(usize, DataType)>,
    presence: Option<Presence<'a>>,
    /// The column for the snapshot's version, and the version.
    snapshot: Option<(usize, i64)>,
    own: Option<OwnColumns<'a>>,
}

impl<'a> Rows<'a> {
    /// Nothing read yet.
    pub(super) fn new(
        path: &'a str,
        schema: &'a TableSchema,
        settings: &SourceSettings,
        reader: ValueReader,
    ) -> Self {
        let fields = schema.columns.fields();
        Rows {
            path,
            before: Before::default(),
            parts: None,
            fault: None,
            schema,
            origin: None,
            mode: settings.schema_evolution_mode,
            on_type_mismatch: settings.on_type_mismatch,
            infers: settings.infer_column_types,
            is_inferred_number: inferred_numbers(schema, settings),
            reader,
            indices: fields
                .iter()
                .enumerate()
                .map(|(index, field)| (field.name().as_str(), index))
                .collect(),
            columns: Columns::of(fields),
            rescued: Column::new(&DataType::Utf8),
            pushed: 0,
            positions: Vec::new(),
            rejects: Vec::new(),
            arrivals: Vec::new(),
            arrival_indices: HashMap::new(),
            arrivals_kept: 0,
            slots: vec![Cell::Null; fields.len()],
            leftovers: Vec::new(),
            arriving: Vec::new(),
            presence: Presence::of(schema, settings),
            snapshot: snapshot_of(path, schema, settings),
            own: OwnColumns::of(schema, settings),
        }
    }

    /// The same for a text.
    pub(super) fn of_text(mut self, origin: Origin<'a>) -> Self {
        self.origin = Some(origin);
        self
    }

    /// The same for a stretch of a text behind others.
    pub(super) fn behind(mut self, before: Before) -> Self {
        self.before = before;
        self
    }

    /// The same, but hands its rows on as soon as there are `rows_max` of them.
    pub(super) fn in_parts(mut self, rows_max: usize, take: Take<'a>) -> Self {
        self.parts = Some((rows_max, take));
        self
    }

    /// How the text was encoded.
    pub(super) fn encoding(&self) -> TextEncoding {
        self.origin
            .as_ref()
            .map_or(TextEncoding::Utf8, |origin| origin.encoding)
    }

    /// The byte of the file for a byte of the text.
    pub(super) fn in_file(&mut self, place: usize) -> usize {
        match &mut self.origin {
            Some(origin) => origin.in_file(place),
            None => place,
        }
    }

    /// The column of exactly this name.
    pub(super) fn index_of(&self, name: &str) -> Option<usize> {
        let index = self.indices.get(name).copied()?;
        // A source cannot fill the loader's own column.
        let is_present = self.presence.as_ref().is_some_and(|own| own.index == index);
        let is_version = self.snapshot.is_some_and(|(own, _)| own == index);
        (!is_present && !is_version && !self.hides(name)).then_some(index)
    }

    /// The name of a column.
    pub(super) fn name_of(&self, index: usize) -> &'a str {
        self.schema.columns.field(index).name()
    }

    /// Whether an envelope takes the values of this name.
    fn hides(&self, name: &str) -> bool {
        self.own.as_ref().is_some_and(|own| own.hides(name))
    }

    /// Whether the records have an envelope.
    pub(super) fn has_envelope(&self) -> bool {
        self.own.is_some()
    }

    /// Puts a value of the present record into its column.
    pub(super) fn set<V: FieldValue<'a>>(
        &mut self,
        index: usize,
        value: &V,
    ) -> Result<(), RecordFault> {
        if let Some(presence) = &mut self.presence {
            presence.known.push(index);
        }
        if value.is_null() {
            return Ok(());
        }
        let field = self.schema.columns.field(index);
        self.reader.has_unknown_field = false;
        let cell = value.cell(field.data_type(), &mut self.reader);
        match cell.and_then(|cell| self.keeping_text(index, value, cell)) {
            Ok(cell) => {
                self.slots[index] = cell;
                if self.reader.has_unknown_field && self.mode != SchemaEvolutionMode::None {
                    self.leftovers.push((field.name().clone(), value.as_json()));
                }
                Ok(())
            }
            Err(_) if self.on_type_mismatch == OnTypeMismatch::Rescue => {
                self.leftovers.push((field.name().clone(), value.as_json()));
                Ok(())
            }
            Err(misfit) => Err(misfit_fault(field, &value.shown(), &misfit)),
        }
    }

    /// Refuses a text that a column without a hint would take as a number of which the text cannot be made again.
    fn keeping_text<V: FieldValue<'a>>(
        &self,
        index: usize,
        value: &V,
        cell: Cell<'a>,
    ) -> Result<Cell<'a>, Misfit> {
        let data_type = self.schema.columns.field(index).data_type();
        match value
            .written_text()
            .filter(|_| self.is_inferred_number[index])
        {
            Some(text) if cell != Cell::Null && !is_written_as_number(&text, data_type) => {
                Err(Misfit::mismatch(
                    "is a text that no number would keep; give the column a hint to take it",
                ))
            }
            _ => Ok(cell),
        }
    }

    /// The schema of the columns.
    pub(super) fn schema(&self) -> &'a TableSchema {
        self.schema
    }

    /// Whether values under names that the schema lacks leave no trace.
    pub(super) fn ignores_unknown(&self) -> bool {
        self.ignores_unknown_fields() && self.presence.is_none() && self.own.is_none()
    }

    /// The same for names that a STRUCT lacks.
    pub(super) fn ignores_unknown_fields(&self) -> bool {
        self.mode == SchemaEvolutionMode::None
    }

    /// Puts a value of the present record under a name that the schema lacks.
    pub(super) fn set_unknown<V: FieldValue<'a>>(
        &mut self,
        name: &str,
        value: &V,
    ) -> Result<(), RecordFault> {
        if let Some(own) = &mut self.own
            && own.note(name, value, &mut self.reader)?
        {
            return Ok(());
        }
        if let Some(presence) = &mut self.presence {
            presence.unknown.push(name.to_string());
        }
        if value.is_null() {
            return Ok(());
        }
        match self.mode {
            SchemaEvolutionMode::None => Ok(()),
            // The entry of the file's own path would stand twice.
            SchemaEvolutionMode::Rescue if name == FILE_PATH => {
                let detail =
                    format!("column name {FILE_PATH:?} is one that the loader adds itself");
                Err(RecordFault::new(RejectReason::InvalidColumnName, detail))
            }
            SchemaEvolutionMode::Rescue => {
                self.leftovers.push((name.to_string(), value.as_json()));
                Ok(())
            }
            SchemaEvolutionMode::AddNewColumns | SchemaEvolutionMode::FailOnNewColumns => {
                self.set_arriving(name, value)
            }
        }
    }

    fn set_arriving<V: FieldValue<'a>>(
        &mut self,
        name: &str,
        value: &V,
    ) -> Result<(), RecordFault> {
        let index = match self.arrival_indices.get(name) {
            Some(index) => *index,
            None => self.add_arrival(name),
        };
        if let Some(fault) = &self.arrivals[index].refusal
            && self.mode == SchemaEvolutionMode::AddNewColumns
        {
            return Err(fault.clone());
        }
        let infers = V::IS_TYPED || self.infers;
        let data_type = if infers {
            value.inferred(&self.reader)
        } else {
            DataType::Utf8
        };
        self.arriving.push((index, data_type));
        Ok(())
    }

    fn add_arrival(&mut self, name: &str) -> usize {
        let index = self.arrivals.len();
        let refusal = refusal_of(name, self.schema);
        self.arrivals.push(Arrival {
            name: name.to_string(),
            refusal,
            data_type: None,
            first: String::new(),
        });
        self.arrival_indices.insert(name.to_string(), index);
        index
    }

    /// Forgets the names that only the present record has: names are known in the order in which rows bring them.
    fn forget_arrivals(&mut self) {
        for arrival in self.arrivals.drain(self.arrivals_kept..) {
            self.arrival_indices.remove(&arrival.name);
        }
    }

    /// The records of this file hold their columns in objects of their own.
    pub(super) fn expect_nested(&mut self) {
        if let Some(own) = &mut self.own {
            own.expect_nested();
        }
    }

    /// Says what the present record does, where its envelope holds its columns apart.
    pub(super) fn set_change(&mut self, change: &Change<'_>) {
        if let Some(own) = &mut self.own {
            own.set(change);
        }
        if let Some(presence) = &mut self.presence {
            presence.is_partial = change.is_partial;
        }
    }

    /// Looks at the present record as a whole, before it is taken: whether its envelope says what it does.
    pub(super) fn close(&mut self) -> Result<(), RecordFault> {
        let record = self.record();
        match &mut self.own {
            Some(own) => own.close(self.path, record),
            None => Ok(()),
        }
    }

    /// Ends the present record: all of it becomes a row.
    pub(super) fn take(&mut self, place: Place) {
        let position = self.position(place);
        if let Some(presence) = &mut self.presence {
            self.slots[presence.index] = presence.take(self.schema);
        }
        if let Some(own) = &mut self.own {
            own.take(&mut self.slots);
        }
        if let Some((index, version)) = self.snapshot {
            self.slots[index] = Cell::Int(version);
        }
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let cell = std::mem::replace(slot, Cell::Null);
            self.columns.push(self.columns.root(index), cell);
        }
        self.settle(position);
    }

    /// Ends a row whose values are in the columns: what no column took of it is kept where it belongs.
    fn settle(&mut self, position: RowPosition) {
        if !self.leftovers.is_empty() {
            self.rescued.pad(self.positions.len());
            self.rescued.push(Cell::Text(self.rescued_json().into()));
            self.leftovers.clear();
        }
        if !self.arriving.is_empty() {
            self.settle_arrivals(&position);
        }
        self.arrivals_kept = self.arrivals.len();
        self.positions.push(position);
        self.hand_on();
    }

    fn settle_arrivals(&mut self, position: &RowPosition) {
        for (index, data_type) in self.arriving.drain(..) {
            let arrival = &mut self.arrivals[index];
            match &arrival.data_type {
                Some(known) => arrival.data_type = Some(widen(known, &data_type)),
                None => {
                    arrival.data_type = Some(data_type);
                    arrival.first = match position.file_line {
                        Some(line) => format!("line {line}"),
                        None => format!("row {}", position.file_row),
                    };
                }
            }
        }
    }

    /// Hands on what was read, if it is much and the next record tells nothing more about it.
    fn hand_on(&mut self) {
        let is_much = match &self.parts {
            Some((rows_max, _)) => self.positions.len() + self.rejects.len() >= *rows_max,
            None => false,
        };
        if !is_much || self.own.as_ref().is_some_and(OwnColumns::is_waiting) {
            return;
        }
        let part = self.part();
        match (part, &mut self.parts) {
            (Ok(part), Some((_, take))) => take(part),
            (Ok(_), None) => {}
            (Err(fault), _) => {
                self.fault.get_or_insert(fault);
            }
        }
    }

    /// Ends the present record: none of it becomes a row.
    pub(super) fn refuse(&mut self, place: Place, fault: RecordFault, raw: String) {
        let position = self.position(place);
        self.reject(position, fault, raw);
    }

    fn reject(&mut self, position: RowPosition, fault: RecordFault, raw: String) {
        self.slots.fill(Cell::Null);
        self.leftovers.clear();
        self.arriving.clear();
        self.forget_arrivals();
        if let Some(presence) = &mut self.presence {
            presence.clear();
        }
        if let Some(own) = &mut self.own {
            own.clear();
        }
        self.rejects.push(Reject {
            file_row: position.file_row,
            file_line: position.file_line,
            byte_offset: position.byte_offset,
            reason: fault.reason,
            detail: fault.detail,
            raw,
        });
        self.hand_on();
    }

    /// Ends the present record of a text: none of it becomes a row.
    pub(super) fn refuse_text(&mut self, place: Place, fault: RecordFault) {
        let position = self.position(place);
        let start = position
            .byte_offset
            .and_then(|start| usize::try_from(start).ok());
        let start = start.map(|start| start - self.before.bytes);
        let length = usize::try_from(position.byte_length).unwrap_or(0);
        let raw = match (&self.origin, start) {
            (Some(origin), Some(start)) => {
                origin.lossless(start, start + length.min(RECORD_BYTES_MAX))
            }
            _ => String::new(),
        };
        self.reject(position, fault, raw);
    }

    /// Why a record is no text; its first `valid` bytes are.
    pub(super) fn not_text(&self, record: &[u8], valid: usize) -> RecordFault {
        let encoding = self.encoding();
        let detail = match (encoding, record.get(..valid).map(std::str::from_utf8)) {
            (TextEncoding::Utf8, _) | (_, None | Some(Err(_))) => {
                format!(
                    "byte {} of the record is not {}",
                    valid + 1,
                    encoding.name()
                )
            }
            (_, Some(Ok(text))) => {
                let number = text.chars().count() + 1;
                format!(
                    "character {number} of the record is not {}",
                    encoding.name()
                )
            }
        };
        RecordFault::new(RejectReason::InvalidUtf8, detail)
    }

    /// The number of the present record.
    fn record(&self) -> usize {
        self.before.records + self.positions.len() + self.rejects.len() + 1
    }

    fn position(&mut self, place: Place) -> RowPosition {
        let number = self.record();
        let start = place.offset.map(|offset| self.in_file(offset));
        let end = place
            .offset
            .map(|offset| self.in_file(offset + place.length));
        let length = end.zip(start).map_or(0, |(end, start)| end - start);
        RowPosition {
            file_row: i64::try_from(number).expect("records are fewer than bytes"),
            file_line: place.line.map(|line| line + self.before.lines),
            byte_offset: start.and_then(|start| i64::try_from(start + self.before.bytes).ok()),
            byte_length: i64::try_from(length).unwrap_or_default(),
        }
    }

    fn rescued_json(&self) -> String {
        let mut json = String::from("{");
        for (name, value) in &self.leftovers {
            json.push_str(&json_text(name));
            json.push(':');
            json.push_str(value);
            json.push(',');
        }
        json.push_str(&format!(
            "{}:{}}}",
            json_text(FILE_PATH),
            json_text(self.path)
        ));
        json
    }
}

/// For each column, whether its type is a number that no hint names.
fn inferred_numbers(schema: &TableSchema, settings: &SourceSettings) -> Vec<bool> {
    let hints = parse_ddl(&settings.schema_hints).unwrap_or_default();
    let is_hinted = |name: &str| {
        hints
            .iter()
            .any(|hint| hint.name().eq_ignore_ascii_case(name))
    };
    let fields = schema.columns.fields().iter();
    fields
        .map(|field| field.data_type().is_numeric() && !is_hinted(field.name()))
        .collect()
}

/// A new column, if a row has a value in it.
fn arrived(arrival: &Arrival) -> Option<NewColumn> {
    Some(NewColumn {
        name: arrival.name.clone(),
        data_type: arrival.data_type.clone()?,
    })
}

/// Why no table can take a new column of this name beside those of the schema.
fn refusal_of(name: &str, schema: &TableSchema) -> Option<RecordFault> {
    if let Lookup::OtherCase(index) = schema.lookup(name) {
        let known = schema.columns.field(index).name();
        let detail = format!(
            "column {} differs from column {known} in upper and lower case only",
            shorten(name)
        );
        return Some(RecordFault::new(RejectReason::ColumnCaseConflict, detail));
    }
    let error = check_column_name(name).err()?;
    Some(RecordFault::new(
        RejectReason::InvalidColumnName,
        error.message(),
    ))
}

fn misfit_fault(field: &Field, shown: &str, misfit: &Misfit) -> RecordFault {
    let shown = shorten(shown);
    let expected = ddl_type(field.data_type());
    RecordFault::new(
        misfit.reason,
        format!(
            "column {}: \"{shown}\" {} ({expected})",
            field.name(),
            misfit.why
        ),
    )
}
