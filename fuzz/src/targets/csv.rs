//! Separated values, in any dialect: each record against itself alone, against the crate `csv`, and against the same values
//! in JSON.

use crate::input::Input;
use crate::laws::{assert_same_row, bytes_of, decoded, plain};
use crate::source::{EVOLUTIONS, HINTS, Source};
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::DataType;
use landfall::change::ParkReason;
use landfall::decode::Decoded;
use landfall::schema::TableSchema;
use landfall::settings::{CsvSettings, Format, SchemaEvolutionMode};

const PATH: &str = "a.csv";

fn dialect(input: &mut Input<'_>) -> CsvSettings {
    CsvSettings {
        delimiter: input.one_of(b",;|\t"),
        header: !input.flag(),
        quote: input.one_of(&[Some(b'"'), Some(b'\''), None]),
        escape: input.one_of(&[None, Some(b'\\')]),
        null_value: input.one_of(&[None, Some("NULL")]).map(String::from),
        empty_value: input.one_of(&[None, Some("7")]).map(String::from),
        ignore_leading_white_space: input.flag(),
        ignore_trailing_white_space: input.flag(),
        skip_rows: input.below(3) as u64,
        line_sep: input.one_of(&[None, Some(b'\n'), Some(b'\r'), Some(b'~')]),
        multi_line: !input.flag(),
        comment: input.one_of(&[None, Some(b'#')]),
        ..CsvSettings::default()
    }
}

pub(super) fn csv(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let hints = input.one_of(&HINTS);
    let evolution = input.one_of(&EVOLUTIONS);
    let mut source = Source::new(Format::Csv, PATH, hints).in_modes(evolution, input.flag());
    let is_default = input.flag();
    if !is_default {
        source.settings.csv = dialect(&mut input);
        if source.settings.csv.quote.is_none() {
            source.settings.csv.escape = None;
        }
    }
    let text = input.text();
    let Ok(file) = decoded(&source, &text) else {
        return;
    };
    assert_alone(&source, &text, &file);
    if is_default && evolution == SchemaEvolutionMode::None {
        assert_as_the_crate_reads(&file, &text, &source.schema);
        assert_as_json(&source, &text, &file);
    }
}

/// A row is the same where it is the only one behind the header.
fn assert_alone(source: &Source, text: &[u8], file: &Decoded) {
    let offsets = file
        .positions
        .iter()
        .map(|row| (row.file_row, row.byte_offset));
    let rejects = file
        .rejects
        .iter()
        .map(|row| (row.file_row, row.byte_offset));
    let Some((1, Some(first))) = offsets.chain(rejects).min() else {
        return;
    };
    let before = &text[..first as usize];
    let end = match source.settings.csv.line_sep {
        Some(end) => vec![end],
        None => b"\r\n".to_vec(),
    };
    for row in 0..file.positions.len() {
        let alone = [before, bytes_of(file, row), &end].concat();
        let alone = match plain(source, &alone) {
            // The beginning of a file tells its encoding, and this one has another beginning.
            Err(fault) if fault.reason == ParkReason::UnsupportedEncoding => continue,
            alone => alone.expect("a record of a sound file is sound"),
        };
        assert_eq!(alone.rejects, []);
        assert_same_row(&file.rows, row, &alone.rows, 0);
    }
}

/// The fields of a row of the default dialect are those that the crate `csv` reads from the same bytes.
fn assert_as_the_crate_reads(file: &Decoded, text: &[u8], schema: &TableSchema) {
    let Some(header) = header(text) else { return };
    for row in 0..file.positions.len() {
        let record = bytes_of(file, row);
        // To the crate every carriage return ends a record, and it takes a mark off.
        if record.contains(&b'\r') || record.starts_with(b"\xef\xbb\xbf") {
            continue;
        }
        let fields = fields(record);
        assert_eq!(fields.len(), header.len());
        for (name, field) in header.iter().zip(&fields) {
            let Ok(column) = schema.columns.index_of(name) else {
                continue;
            };
            let array = file.rows.column(column);
            if *array.data_type() == DataType::Utf8 {
                let shown = if array.is_null(row) {
                    ""
                } else {
                    array.as_string::<i32>().value(row)
                };
                assert_eq!(shown, field, "column {name}");
            }
        }
    }
}

/// The names of a plain first line.
fn header(text: &[u8]) -> Option<Vec<String>> {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let line = text.split(|byte| *byte == b'\n').next()?;
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let is_plain = !line.is_empty() && !line.contains(&b'"') && !line.contains(&b'\r');
    let line = std::str::from_utf8(line).ok().filter(|_| is_plain)?;
    Some(line.split(',').map(String::from).collect())
}

fn fields(record: &[u8]) -> Vec<String> {
    let mut reader = ::csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .from_reader(record);
    let first = reader
        .records()
        .next()
        .expect("there is a record")
        .expect("it is text");
    assert!(
        reader.records().next().is_none(),
        "the bytes of a row are one record"
    );
    first.iter().map(String::from).collect()
}

/// The same values in JSON are the same rows, and refused for the same reasons. What is empty is NULL in every type but
/// STRING.
fn assert_as_json(source: &Source, text: &[u8], file: &Decoded) {
    let names: Vec<&str> = source
        .schema
        .columns
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    let hints: Vec<String> = names.iter().map(|name| format!("{name} STRING")).collect();
    let texts = Source::new(Format::Csv, PATH, &hints.join(", "))
        .in_modes(SchemaEvolutionMode::None, false);
    let texts = plain(&texts, text).expect("the framing does not depend on types");
    let mut json = Source::new(Format::Json, PATH, "");
    json.schema = source.schema.clone();
    json.settings.schema_hints = source.settings.schema_hints.clone();
    json.settings.schema_evolution_mode = SchemaEvolutionMode::None;
    json.settings.on_type_mismatch = source.settings.on_type_mismatch;
    for (row, position) in texts.positions.iter().enumerate() {
        let mut object = serde_json::Map::new();
        for (column, field) in source.schema.columns.fields().iter().enumerate() {
            let array = texts.rows.column(column).as_string::<i32>();
            let is_null = array.is_null(row)
                || (array.value(row).is_empty() && *field.data_type() != DataType::Utf8);
            let value = if is_null {
                serde_json::Value::Null
            } else {
                array.value(row).into()
            };
            object.insert(field.name().clone(), value);
        }
        let line = serde_json::Value::Object(object).to_string();
        let line = plain(&json, line.as_bytes()).expect("it is one line");
        match file
            .positions
            .iter()
            .position(|other| other.file_row == position.file_row)
        {
            Some(found) => {
                let is_nested = |data_type: &DataType| data_type.is_nested();
                // A text in a nested column is JSON in CSV and refused in JSON.
                if !source
                    .schema
                    .columns
                    .fields()
                    .iter()
                    .any(|field| is_nested(field.data_type()))
                {
                    assert_eq!(line.rejects, []);
                    assert_same_values(&file.rows, found, &line.rows);
                }
            }
            None => {
                let reject = file
                    .rejects
                    .iter()
                    .find(|reject| reject.file_row == position.file_row);
                let reject = reject.expect("a record is a row or a reject");
                assert!(
                    !line.rejects.is_empty(),
                    "JSON takes what CSV refuses: {reject:?}"
                );
            }
        }
    }
}

/// The row is the only one of the other, with as much to rescue; that stands in the order of the record.
fn assert_same_values(rows: &RecordBatch, row: usize, only: &RecordBatch) {
    let last = rows.num_columns() - 1;
    for column in 0..last {
        assert_eq!(&rows.column(column).slice(row, 1), only.column(column));
    }
    assert_eq!(rows.column(last).is_null(row), only.column(last).is_null(0));
}
