//! Finds the columns of the sampled files with the types that the loader itself infers.
//!
//! Every type that is written reads back as itself. Which columns are keys is left to `roles`.

use super::sample::Sample;
use super::words;
use super::write::{self, Line, shown};
use crate::change::{ParkReason, Reject};
use crate::decode::{Decoded, HEAD_COLUMNS_MAX, NewColumn};
use crate::error::Result;
use crate::plural::counted;
use crate::schema::{
    TableSchema, ddl_name, ddl_type, merge_new_columns, parse_ddl, timestamp_type,
};
use crate::settings::{OnTypeMismatch, SchemaEvolutionMode, SourceSettings};
use arrow::array::Array;
use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use std::collections::HashSet;

/// The columns of a sample.
#[derive(Debug)]
pub(super) struct Columns {
    /// With their types, in the order of their first appearance.
    pub(super) fields: Vec<FieldRef>,
    pub(super) lines: Vec<Line>,
    pub(super) notes: Vec<String>,
    /// What may be done better by hand.
    pub(super) remarks: Vec<String>,
    /// Records that the loader would take.
    pub(super) records: u64,
}

/// Decodes the sample and merges what its files hold. `settings` gets the names of columns without a header.
pub(super) fn tell(
    sample: &Sample,
    settings: &mut SourceSettings,
    unnamed: Option<usize>,
) -> Result<Columns> {
    if let Some(width) = unnamed {
        settings.schema_hints = ddl(&unnamed_fields(width.min(HEAD_COLUMNS_MAX)));
    }
    let none = TableSchema::from_hints("")?;
    let (found, refused, records) = decode_all(sample, settings, &none);
    let merged = merge_new_columns(found.iter().map(Vec::as_slice));
    let fields = none.extended(&merged).columns.fields().to_vec();
    let mut columns = Columns {
        fields: Vec::new(),
        lines: Vec::new(),
        notes: refused.notes(),
        remarks: Vec::new(),
        records,
    };
    columns.note_doubles(&merged, &fields);
    columns.keep(match unnamed {
        Some(width) => named(unnamed_fields(width.min(HEAD_COLUMNS_MAX)), &fields),
        None => fields,
    });
    columns.retype(sample, settings)?;
    columns.write(sample.files.len(), unnamed.is_some());
    Ok(columns)
}

/// The columns of each file, what is refused, and the number of records that are not.
fn decode_all(
    sample: &Sample,
    settings: &SourceSettings,
    none: &TableSchema,
) -> (Vec<Vec<NewColumn>>, Refused, u64) {
    let mut found = Vec::new();
    let mut refused = Refused::default();
    let mut records = 0;
    for file in &sample.files {
        let path = &file.path;
        match file.head.decode(none, settings) {
            Ok(decoded) => {
                records += decoded.positions.len() as u64;
                refused.add(path, &decoded.rejects);
                found.push(decoded.new_columns);
            }
            // The loader takes longer records than are looked at here.
            Err(fault) if fault.reason == ParkReason::TooLarge => {
                let note = format!("{path} was not looked at: {}", fault.detail);
                refused.faults.push(note);
            }
            Err(fault) => {
                let note = format!("{path} would be parked: {}", fault.detail);
                refused.faults.push(note);
            }
        }
    }
    (found, refused, records)
}

/// What the loader would refuse.
#[derive(Default)]
struct Refused {
    faults: Vec<String>,
    count: u64,
    first: Option<String>,
}

impl Refused {
    fn add(&mut self, path: &str, rejects: &[Reject]) {
        self.count += rejects.len() as u64;
        if let (None, Some(reject)) = (&self.first, rejects.first()) {
            let (row, reason) = (reject.file_row, reject.reason.as_str());
            self.first = Some(format!("{path}, record {row}: {reason}: {}", reject.detail));
        }
    }

    fn notes(self) -> Vec<String> {
        let mut notes = self.faults;
        if let Some(first) = self.first {
            let records = counted(self.count, "record");
            notes.push(format!(
                "{records} would go to quarantine, the first: {first}"
            ));
        }
        notes
    }
}

/// Names as Spark gives them to columns without one.
fn unnamed_fields(width: usize) -> Vec<FieldRef> {
    let field = |place| Field::new(format!("_c{place}"), DataType::Utf8, true).into();
    (0..width).map(field).collect()
}

/// All columns in their order, with the types that were found.
fn named(all: Vec<FieldRef>, found: &[FieldRef]) -> Vec<FieldRef> {
    let typed = |field: FieldRef| {
        let known = found.iter().find(|known| known.name() == field.name());
        known.cloned().unwrap_or(field)
    };
    all.into_iter().map(typed).collect()
}

pub(super) fn ddl(fields: &[FieldRef]) -> String {
    let column =
        |field: &FieldRef| format!("{} {}", ddl_name(field.name()), ddl_type(field.data_type()));
    fields.iter().map(column).collect::<Vec<_>>().join(", ")
}

fn reads_back(field: &FieldRef) -> bool {
    let read = parse_ddl(&ddl(std::slice::from_ref(field)));
    read.is_ok_and(|read| read.len() == 1 && read[0].data_type() == field.data_type())
}

impl Columns {
    /// Columns that no table takes beside those that it has.
    fn note_doubles(&mut self, found: &[NewColumn], fields: &[FieldRef]) {
        let names: HashSet<&str> = fields.iter().map(|field| field.name().as_str()).collect();
        for column in found
            .iter()
            .filter(|column| !names.contains(column.name.as_str()))
        {
            self.notes.push(format!(
                "column {} differs from another in upper and lower case only; its records would go to quarantine",
                shown(&column.name)
            ));
        }
    }

    fn keep(&mut self, fields: Vec<FieldRef>) {
        let (kept, odd): (Vec<_>, Vec<_>) = fields.into_iter().partition(reads_back);
        for field in odd {
            let name = shown(field.name());
            self.notes.push(format!(
                "the type of column {name} cannot be written as a hint; the loader infers it"
            ));
        }
        self.fields = kept;
        if self.fields.len() > HEAD_COLUMNS_MAX {
            let more = counted((self.fields.len() - HEAD_COLUMNS_MAX) as u64, "column");
            self.notes.push(format!(
                "{more} more have no hint; the loader infers their types"
            ));
            self.fields.truncate(HEAD_COLUMNS_MAX);
        }
    }

    /// Texts in a column that is called like a sequence become times or numbers where every one of them reads so.
    fn retype(&mut self, sample: &Sample, settings: &SourceSettings) -> Result<()> {
        let is_open = |field: &FieldRef| {
            *field.data_type() == DataType::Utf8 && words::sequence_rank(field.name()).is_some()
        };
        let open: Vec<FieldRef> = self
            .fields
            .iter()
            .filter(|field| is_open(field))
            .cloned()
            .collect();
        if open.is_empty() {
            return Ok(());
        }
        let texts = value_counts(sample, settings, &open, &DataType::Utf8)?;
        let naive = DataType::Timestamp(TimeUnit::Microsecond, None);
        for data_type in [DataType::Int64, timestamp_type(), naive] {
            let fitting = value_counts(sample, settings, &open, &data_type)?;
            for (place, column) in open.iter().enumerate() {
                let known = self
                    .fields
                    .iter_mut()
                    .find(|field| field.name() == column.name());
                if let Some(field) = known
                    && texts[place] > 0
                    && texts[place] == fitting[place]
                    && *field.data_type() == DataType::Utf8
                {
                    *field = Field::new(field.name(), data_type.clone(), true).into();
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, files: usize, is_unnamed: bool) {
        if self.fields.is_empty() {
            let why = "no column was found; fill in the columns, or leave it out and the loader infers them";
            self.lines.push(Line::open(
                "schema_hints",
                write::text("id BIGINT, seq BIGINT"),
                why,
            ));
            return;
        }
        let seen = format!(
            "{} of {}",
            counted(self.records, "record"),
            counted(files as u64, "file")
        );
        let naming = if is_unnamed {
            " rename the columns, in their order;"
        } else {
            ""
        };
        let why = format!(
            "likely: as inferred from {seen};{naming} a later value that does not fit goes to quarantine, so widen types before the first run"
        );
        self.lines.push(Line::told(
            "schema_hints",
            write::text(&ddl(&self.fields)),
            why,
        ));
        let doubles: Vec<&String> = self
            .fields
            .iter()
            .filter(|field| field.data_type().is_floating())
            .map(|field| field.name())
            .collect();
        if !doubles.is_empty() {
            self.remarks.push(format!(
                "DOUBLE does not keep every decimal number exactly; for amounts write DECIMAL(p,s): {}",
                write::all_shown(&doubles)
            ));
        }
    }
}

/// How many values of each column read as the type.
fn value_counts(
    sample: &Sample,
    settings: &SourceSettings,
    columns: &[FieldRef],
    data_type: &DataType,
) -> Result<Vec<usize>> {
    let typed = columns
        .iter()
        .map(|field| Field::new(field.name(), data_type.clone(), true));
    let schema = TableSchema::new(typed.collect())?;
    let mut counts = vec![0; columns.len()];
    for decoded in decode_columns(sample, settings, &schema) {
        for (place, count) in counts.iter_mut().enumerate() {
            let column = decoded.rows.column(place);
            *count += column.len() - column.null_count();
        }
    }
    Ok(counts)
}

/// Decodes these columns alone. Values that do not fit are NULL; files that cannot be read give nothing.
pub(super) fn decode_columns<'a>(
    sample: &'a Sample,
    settings: &SourceSettings,
    schema: &'a TableSchema,
) -> impl Iterator<Item = Decoded> + use<'a> {
    let settings = SourceSettings {
        on_type_mismatch: OnTypeMismatch::Rescue,
        schema_evolution_mode: SchemaEvolutionMode::None,
        ..settings.clone()
    };
    let files = sample.files.iter();
    files.filter_map(move |file| file.head.decode(schema, &settings).ok())
}
