//! Prints rows and reports on stdout.
//!
//! Values are printed exactly: decimals with all their digits, times in ISO 8601 to the microsecond. Rows are printed as
//! they come, so an answer may be larger than memory. Messages are not printed here.

mod cell;

use crate::cli::{JsonMode, RowFormat};
use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::SchemaRef;
use futures::StreamExt;
use landfall::error::{Error, Result};
use landfall::query::Rows;
use parquet::arrow::ArrowWriter;
use serde::Serialize;
use serde_json::value::RawValue;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;

/// Prints rows on stdout.
///
/// A reader that went away is no error. Parquet is refused on a terminal.
pub(crate) async fn print_rows(rows: Rows, format: RowFormat) -> Result<()> {
    let stdout = io::stdout();
    if format == RowFormat::Parquet && stdout.is_terminal() {
        return Err(Error::settings("parquet is not for a terminal").hint("send stdout to a file"));
    }
    let mut printer = Printer::new(format, rows.schema.clone(), io::BufWriter::new(stdout))?;
    let mut batches = rows.batches;
    while let Some(batch) = batches.next().await {
        if let Some(gone) = reader_gone(printer.print(&batch?))? {
            return Ok(gone);
        }
    }
    reader_gone(printer.finish()).map(|_| ())
}

/// Prints a list: one array, or one object a line.
pub(crate) fn print_json_list<T: Serialize>(items: &[T], mode: JsonMode) -> Result<()> {
    match mode {
        JsonMode::Document => print_json(&items),
        JsonMode::Lines => {
            let lines: Vec<String> = items
                .iter()
                .map(|item| serde_json::to_string(item).map_err(json_bug))
                .collect::<Result<_>>()?;
            print_lines(lines.iter().map(String::as_str))
        }
    }
}

/// Prints one document; members keep the order of the type.
pub(crate) fn print_json<T: Serialize>(document: &T) -> Result<()> {
    let text = serde_json::to_string_pretty(document).map_err(json_bug)?;
    print_lines([text.as_str()])
}

/// Prints lines of text. A reader that went away is no error.
pub(crate) fn print_lines<'a>(lines: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let mut out = io::BufWriter::new(io::stdout());
    let written = lines
        .into_iter()
        .try_for_each(|line| writeln!(out, "{line}"));
    reader_gone(written.and_then(|()| out.flush())).map(|_| ())
}

fn json_bug(error: serde_json::Error) -> Error {
    Error::bug(format!("json: {error}"))
}

/// Prints text as it is.
pub(crate) fn print_text(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    reader_gone(out.write_all(text.as_bytes()).and_then(|()| out.flush())).map(|_| ())
}

/// Prints rows of texts under names, in columns.
pub(crate) fn print_table(names: &[&str], rows: &[Vec<String>]) -> Result<()> {
    let column = |place: usize| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(
            rows.iter().map(|row| row[place].as_str()),
        ))
    };
    let batch = RecordBatch::try_from_iter(
        names
            .iter()
            .enumerate()
            .map(|(place, name)| (*name, column(place))),
    )?;
    print_batch(&batch)
}

/// Prints the rows of one batch in columns.
pub(crate) fn print_batch(batch: &RecordBatch) -> Result<()> {
    let mut out = io::BufWriter::new(io::stdout());
    let printed =
        table_rows(&mut out, &mut None, &batch.schema(), batch).and_then(|()| out.flush());
    reader_gone(printed).map(|_| ())
}

/// One value as a table shows it.
pub(crate) fn cell(column: &ArrayRef, row: usize) -> String {
    table_cell(cell::text(column, row))
}

/// One row as a JSON object; the columns keep their order.
pub(crate) fn row_json(batch: &RecordBatch, row: usize) -> Result<Box<RawValue>> {
    RawValue::from_string(object(batch, row)).map_err(json_bug)
}

/// All rows of a batch, likewise.
pub(crate) fn rows_json(batch: &RecordBatch) -> Result<Vec<Box<RawValue>>> {
    (0..batch.num_rows())
        .map(|row| row_json(batch, row))
        .collect()
}

/// `Some` when nobody reads stdout any more.
fn reader_gone(written: io::Result<()>) -> Result<Option<()>> {
    match written {
        Ok(()) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Some(())),
        Err(error) => Err(Error::unavailable(format!(
            "stdout cannot be written: {error}"
        ))),
    }
}

/// Turns batches into one format.
struct Printer<W: Write + Send> {
    schema: SchemaRef,
    form: Form<W>,
}

enum Form<W: Write + Send> {
    /// The column widths are those of the first batch.
    Table {
        out: W,
        widths: Option<Vec<usize>>,
    },
    Csv(W),
    Jsonl(W),
    /// One array; `first` until an object was written.
    Json {
        out: W,
        first: bool,
    },
    Parquet(Box<ArrowWriter<W>>),
}

impl<W: Write + Send> Printer<W> {
    fn new(format: RowFormat, schema: SchemaRef, mut out: W) -> Result<Self> {
        if matches!(format, RowFormat::Json | RowFormat::Jsonl) {
            refuse_same_names(&schema)?;
        }
        let form = match format {
            RowFormat::Table => Form::Table { out, widths: None },
            RowFormat::Csv => {
                let names: Vec<String> = schema
                    .fields()
                    .iter()
                    .map(|field| csv_field(field.name()))
                    .collect();
                writeln!(out, "{}", names.join(",")).map_err(failed)?;
                Form::Csv(out)
            }
            RowFormat::Jsonl => Form::Jsonl(out),
            RowFormat::Json => Form::Json { out, first: true },
            RowFormat::Parquet => {
                let writer = ArrowWriter::try_new(out, schema.clone(), None)
                    .map_err(|error| Error::bug(format!("parquet: {error}")))?;
                Form::Parquet(Box::new(writer))
            }
        };
        Ok(Printer { schema, form })
    }

    fn print(&mut self, batch: &RecordBatch) -> io::Result<()> {
        match &mut self.form {
            Form::Table { out, widths } => table_rows(out, widths, &self.schema, batch),
            Form::Csv(out) => csv_rows(out, batch),
            Form::Jsonl(out) => {
                (0..batch.num_rows()).try_for_each(|row| writeln!(out, "{}", object(batch, row)))
            }
            Form::Json { out, first } => {
                for row in 0..batch.num_rows() {
                    let before = if *first { "[\n" } else { ",\n" };
                    write!(out, "{before}  {}", object(batch, row))?;
                    *first = false;
                }
                Ok(())
            }
            Form::Parquet(writer) => writer.write(batch).map_err(io::Error::other),
        }
    }

    fn finish(self) -> io::Result<()> {
        match self.form {
            Form::Table { mut out, widths } => {
                if widths.is_none() {
                    let empty = RecordBatch::new_empty(self.schema.clone());
                    table_rows(&mut out, &mut None, &self.schema, &empty)?;
                }
                out.flush()
            }
            Form::Csv(mut out) | Form::Jsonl(mut out) => out.flush(),
            Form::Json { mut out, first } => {
                writeln!(out, "{}", if first { "[]" } else { "\n]" })?;
                out.flush()
            }
            Form::Parquet(writer) => writer.into_inner().map_err(io::Error::other)?.flush(),
        }
    }
}

fn failed(error: io::Error) -> Error {
    Error::unavailable(format!("stdout cannot be written: {error}"))
}

/// In a JSON object one of two values of a name would be lost.
fn refuse_same_names(schema: &SchemaRef) -> Result<()> {
    for (index, field) in schema.fields().iter().enumerate() {
        if schema.fields()[..index]
            .iter()
            .any(|other| other.name() == field.name())
        {
            return Err(
                Error::settings(format!("two columns have one name: {}", field.name()))
                    .hint("give one of them another name with AS"),
            );
        }
    }
    Ok(())
}

fn object(batch: &RecordBatch, row: usize) -> String {
    let schema = batch.schema_ref();
    let columns = schema.fields().iter().zip(batch.columns());
    cell::object(columns.map(|(field, column)| (field.name().as_str(), cell::json(column, row))))
}

fn csv_rows(out: &mut impl Write, batch: &RecordBatch) -> io::Result<()> {
    for row in 0..batch.num_rows() {
        let cells = batch
            .columns()
            .iter()
            .map(|column| match cell::text(column, row) {
                Some(text) => csv_field(&text),
                None => String::new(),
            });
        writeln!(out, "{}", cells.collect::<Vec<_>>().join(","))?;
    }
    Ok(())
}

/// The empty text is quoted, so that it is not NULL.
fn csv_field(text: &str) -> String {
    let plain = !text.is_empty() && !text.contains([',', '"', '\n', '\r']) && text.trim() == text;
    if plain {
        text.to_string()
    } else {
        format!("\"{}\"", text.replace('"', "\"\""))
    }
}

fn table_rows(
    out: &mut impl Write,
    widths: &mut Option<Vec<usize>>,
    schema: &SchemaRef,
    batch: &RecordBatch,
) -> io::Result<()> {
    let rows: Vec<Vec<String>> = (0..batch.num_rows())
        .map(|row| {
            batch
                .columns()
                .iter()
                .map(|column| table_cell(cell::text(column, row)))
                .collect()
        })
        .collect();
    if widths.is_none() {
        let names: Vec<String> = schema
            .fields()
            .iter()
            .map(|field| table_cell(Some(field.name().clone())))
            .collect();
        let found: Vec<usize> = (0..names.len())
            .map(|column| {
                let cells = rows.iter().map(|row| &row[column]).chain([&names[column]]);
                cells
                    .map(|text| text.chars().count())
                    .max()
                    .unwrap_or_default()
            })
            .collect();
        table_line(out, &names, &found)?;
        let rules: Vec<String> = found.iter().map(|width| "-".repeat(*width)).collect();
        table_line(out, &rules, &found)?;
        *widths = Some(found);
    }
    let widths = widths.as_deref().unwrap_or_default();
    rows.iter().try_for_each(|row| table_line(out, row, widths))
}

fn table_line(out: &mut impl Write, cells: &[String], widths: &[usize]) -> io::Result<()> {
    let padded: Vec<String> = cells
        .iter()
        .zip(widths)
        .map(|(cell, width)| format!("{cell:<width$}"))
        .collect();
    writeln!(out, "{}", padded.join("  ").trim_end())
}

/// Control characters are shown, so that a value cannot break the line or the terminal.
fn table_cell(text: Option<String>) -> String {
    match text {
        None => "NULL".to_string(),
        Some(text) if text.contains(char::is_control) => text
            .chars()
            .map(|letter| {
                if letter.is_control() {
                    letter.escape_default().to_string()
                } else {
                    letter.to_string()
                }
            })
            .collect(),
        Some(text) => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Decimal128Array, StringArray, TimestampMicrosecondArray};
    use serde_json::Value;
    use std::sync::Arc;

    fn batch() -> RecordBatch {
        let amounts = Decimal128Array::from(vec![Some(1_234_567_890_123_456_789), None, Some(-5)]);
        let amounts = amounts.with_precision_and_scale(20, 2).unwrap();
        let times = TimestampMicrosecondArray::from(vec![Some(1_500_000), None, Some(-1)])
            .with_timezone("UTC");
        let texts = StringArray::from(vec![Some("a,\"b\""), None, Some("")]);
        let columns: [(&str, ArrayRef); 3] = [
            ("amount", Arc::new(amounts)),
            ("at", Arc::new(times)),
            ("text", Arc::new(texts)),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn print(format: RowFormat, batches: &[RecordBatch]) -> String {
        let mut bytes = Vec::new();
        let mut printer = Printer::new(format, batch().schema(), &mut bytes).unwrap();
        batches
            .iter()
            .for_each(|batch| printer.print(batch).unwrap());
        printer.finish().unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn two_columns_of_one_name_are_refused_in_json() {
        let column: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
        let batch = RecordBatch::try_from_iter([("a", column.clone()), ("a", column)]).unwrap();
        assert!(Printer::new(RowFormat::Json, batch.schema(), Vec::new()).is_err());
        assert!(Printer::new(RowFormat::Csv, batch.schema(), Vec::new()).is_ok());
    }

    #[test]
    fn answer_without_rows_still_has_its_form() {
        assert_eq!(print(RowFormat::Json, &[]), "[]\n");
        assert_eq!(print(RowFormat::Jsonl, &[]), "");
        assert_eq!(print(RowFormat::Csv, &[]), "amount,at,text\n");
        assert_eq!(
            print(RowFormat::Table, &[]),
            "amount  at  text\n------  --  ----\n"
        );
    }

    #[test]
    fn csv_tells_null_from_the_empty_text() {
        assert_eq!(
            print(RowFormat::Csv, &[batch()]),
            "amount,at,text\n12345678901234567.89,1970-01-01T00:00:01.500000Z,\"a,\"\"b\"\"\"\n,,\n\
             -0.05,1969-12-31T23:59:59.999999Z,\"\"\n"
        );
    }

    #[test]
    fn json_has_decimals_and_times_as_texts() {
        let lines = print(RowFormat::Jsonl, &[batch()]);
        assert!(
            lines.starts_with("{\"amount\":\"12345678901234567.89\",\"at\":"),
            "{lines}"
        );
        let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
        assert_eq!(first["amount"], "12345678901234567.89");
        assert_eq!(first["at"], "1970-01-01T00:00:01.500000Z");
        let document: Value =
            serde_json::from_str(&print(RowFormat::Json, &[batch(), batch()])).unwrap();
        assert_eq!(document.as_array().unwrap().len(), 6);
        assert_eq!(document[1]["amount"], Value::Null);
    }

    #[test]
    fn table_shows_control_characters() {
        assert_eq!(
            table_cell(Some("a\n\u{1b}[31m".to_string())),
            "a\\n\\u{1b}[31m"
        );
    }
}
