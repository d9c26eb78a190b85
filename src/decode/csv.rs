//! Separated values after RFC 4180: a record may span lines inside of quotes, fields go to columns by the header.
//!
//! A record that is broken stays one record; a quote that is never closed costs the whole file, because nobody can
//! say where the next record begins.

mod ends;
mod frames;
mod pushing;

pub(super) use ends::RecordEnds;
pub(super) use frames::unclosed;

use super::json::too_large;
use super::rows::{Place, RecordFault, Rows};
use super::text::{json_text, lossless_text, shorten};
use super::value::{Cell, FieldValue, Misfit, ValueReader};
use super::{RECORD_BYTES_MAX, infer};
use crate::change::{FileFault, ParkReason, RejectReason};
use crate::envelope::dms;
use crate::schema::parse_ddl;
use crate::settings::{CsvSettings, Envelope, SourceSettings, TextEncoding};
use arrow::datatypes::DataType;
use frames::{Framer, RawField, Record};
use pushing::Pushing;
use std::borrow::Cow;
use std::collections::HashSet;

/// From so many records it is told how many rows there will be.
const RECORDS_TELLING: usize = 64;

/// A field as read; a value without quotes may be NULL.
#[derive(Clone, Debug)]
pub(super) struct CsvValue<'a> {
    text: Cow<'a, str>,
    is_null: bool,
}

impl<'a> CsvValue<'a> {
    /// A field that is not NULL.
    pub(super) fn of(text: &'a str) -> Self {
        CsvValue {
            text: Cow::Borrowed(text),
            is_null: false,
        }
    }
}

impl<'a> FieldValue<'a> for CsvValue<'a> {
    const IS_TYPED: bool = false;

    fn is_null(&self) -> bool {
        self.is_null
    }

    fn cell(&self, data_type: &DataType, reader: &mut ValueReader) -> Result<Cell<'a>, Misfit> {
        if self.text.is_empty() && *data_type != DataType::Utf8 {
            return Ok(Cell::Null);
        }
        reader.text(&self.text, data_type)
    }

    fn written_text(&self) -> Option<Cow<'a, str>> {
        Some(self.text.clone())
    }

    fn inferred(&self, reader: &ValueReader) -> DataType {
        // The empty text is NULL in every type but STRING, so it says nothing about the type.
        if self.text.is_empty() {
            DataType::Null
        } else {
            infer::text_type(&self.text, reader)
        }
    }

    fn as_json(&self) -> String {
        json_text(&self.text)
    }

    fn shown(&self) -> String {
        self.text.to_string()
    }
}

/// Where the fields at one place of a record go.
enum Target {
    Known(usize),
    Unknown(String),
}

/// What all records of a file have in common.
#[derive(Debug)]
pub(super) struct Header {
    /// Of the columns, in the order of the fields.
    names: Vec<String>,
    delimiter: u8,
}

impl Header {
    /// Whether the first record of a file tells the columns, or how many there are.
    pub(super) fn is_of_first(settings: &SourceSettings) -> bool {
        settings.csv.header || settings.envelope == Envelope::Dms
    }

    /// Without a look at the file.
    pub(super) fn of_hints(settings: &SourceSettings, delimiter: u8) -> Self {
        Header {
            names: hinted_names(settings, 0),
            delimiter,
        }
    }

    /// By the text of the first record, which stands in this line; and whether that holds values all the same.
    pub(super) fn of_first(
        text: &[u8],
        line: i64,
        settings: &SourceSettings,
        delimiter: u8,
    ) -> Result<(Self, bool), FileFault> {
        let mut framer = Framer::new(text, 0, line, &settings.csv, delimiter);
        let mut fields = Vec::new();
        let Some(first) = framer.next(&mut fields)? else {
            return Ok((Header::of_hints(settings, delimiter), true));
        };
        let is_header = is_header(&first, &fields, settings)?;
        let names = match is_header {
            true => header_names(&first, &fields, &settings.csv, TextEncoding::Utf8)?,
            false => hinted_names(settings, fields.len()),
        };
        Ok((Header { names, delimiter }, !is_header))
    }
}

/// Reads all records of `bytes` from `start` on.
pub(super) fn read<'a>(
    bytes: &'a [u8],
    start: usize,
    settings: &SourceSettings,
    delimiter: u8,
    rows: &mut Rows<'a>,
) -> Result<(), FileFault> {
    let dialect = &settings.csv;
    let mut framer = Framer::new(bytes, start, 1, dialect, delimiter);
    framer.skip_lines();
    let mut fields = Vec::new();
    let Some(first) = framer.next(&mut fields)? else {
        return Ok(());
    };
    if is_header(&first, &fields, settings)? {
        let names = header_names(&first, &fields, dialect, rows.encoding())?;
        let next = framer.next(&mut fields)?;
        read_records(framer, next, fields, &names, rows)
    } else {
        let names = hinted_names(settings, fields.len());
        read_records(framer, Some(first), fields, &names, rows)
    }
}

/// Reads a block of records, the first of which stands in this line.
pub(super) fn read_block<'a>(
    bytes: &'a [u8],
    line: i64,
    header: &Header,
    dialect: &CsvSettings,
    rows: &mut Rows<'a>,
) -> Result<(), FileFault> {
    let mut framer = Framer::new(bytes, 0, line, dialect, header.delimiter);
    let mut fields = Vec::new();
    let first = framer.next(&mut fields)?;
    read_records(framer, first, fields, &header.names, rows)
}

/// Refuses the one record that stands in this line, has `length` bytes and is there only in part.
pub(super) fn refuse_record(line: i64, length: usize, rows: &mut Rows<'_>) {
    let place = Place {
        line: Some(line),
        offset: Some(0),
        length,
    };
    rows.refuse_text(place, too_large(length));
}

/// A first record of so many bytes, from which the columns were to be learned.
pub(super) fn header_too_large(line: i64, length: usize) -> FileFault {
    let why = format!("it has {length} bytes, of at most {RECORD_BYTES_MAX}");
    not_a_header(line, &why)
}

fn not_a_header(line: i64, why: &str) -> FileFault {
    FileFault::new(
        ParkReason::NotThisFormat,
        format!("line {line}, header: {why}"),
    )
}

/// Reads the record that was framed last, and those behind it.
fn read_records<'a>(
    mut framer: Framer<'a, '_>,
    first: Option<Record<'a>>,
    mut fields: Vec<RawField<'a>>,
    names: &[String],
    rows: &mut Rows<'a>,
) -> Result<(), FileFault> {
    let (bytes, dialect) = (framer.bytes, framer.dialect);
    let target = |name: &String| match rows.index_of(name) {
        Some(index) => Target::Known(index),
        None => Target::Unknown(name.clone()),
    };
    let targets: Vec<Target> = names.iter().map(target).collect();
    let pushing = Pushing::of(bytes, dialect, &targets, rows);
    let start = first.as_ref().and_then(|record| record.place.offset);
    let start = start.unwrap_or_default();
    let mut next = first;
    let mut count = 0;
    while let Some(record) = next {
        count += 1;
        if let Some(offset) = record.place.offset.filter(|_| count == RECORDS_TELLING) {
            rows.expect_alike(offset - start, bytes.len() - offset);
        }
        let is_pushed = match &pushing {
            Some(pushing) => pushing.read(&record, &fields, rows),
            None => false,
        };
        if is_pushed {
            rows.take_pushed(record.place);
        } else {
            match read_record(&record, &fields, &targets, dialect, rows) {
                Ok(()) => rows.take(record.place),
                Err(fault) => rows.refuse_text(record.place, fault),
            }
        }
        next = framer.next(&mut fields)?;
    }
    Ok(())
}

/// A record as framed: its line, its first byte, and its bytes.
#[cfg(test)]
pub(super) type Framed<'a> = (i64, usize, &'a [u8]);

/// All records of a text that begins in this line, the header too.
#[cfg(test)]
pub(super) fn framed<'a>(
    bytes: &'a [u8],
    start: usize,
    line: i64,
    dialect: &CsvSettings,
) -> Result<Vec<Framed<'a>>, FileFault> {
    let mut framer = Framer::new(bytes, start, line, dialect, dialect.delimiter);
    if line == 1 {
        framer.skip_lines();
    }
    let (mut fields, mut records) = (Vec::new(), Vec::new());
    while let Some(record) = framer.next(&mut fields)? {
        let place = record.place;
        records.push((place.line.unwrap(), place.offset.unwrap(), record.bytes));
    }
    Ok(records)
}

/// The fields of the first records as texts, up to the first place where the framing is lost; for a look at a file whose
/// delimiter and header are not known yet.
pub(super) fn first_records(
    bytes: &[u8],
    start: usize,
    dialect: &CsvSettings,
    records_max: usize,
) -> Vec<Vec<String>> {
    let mut framer = Framer::new(bytes, start, 1, dialect, dialect.delimiter);
    framer.skip_lines();
    let mut fields = Vec::new();
    let mut records = Vec::new();
    while records.len() < records_max
        && let Ok(Some(_)) = framer.next(&mut fields)
    {
        let text = |field: &RawField<'_>| match field.text(dialect) {
            Ok(text) => text.into_owned(),
            Err(_) => lossless_text(field.bytes),
        };
        records.push(fields.iter().map(text).collect());
    }
    records
}

/// Whether the first record names the columns. DMS need not write names, and its first record shows whether it did.
fn is_header(
    first: &Record<'_>,
    fields: &[RawField<'_>],
    settings: &SourceSettings,
) -> Result<bool, FileFault> {
    let length = first.bytes.len();
    if Header::is_of_first(settings) && length > RECORD_BYTES_MAX {
        return Err(header_too_large(first.place.line.unwrap_or(1), length));
    }
    Ok(settings.csv.header && may_be_header(fields, settings))
}

fn may_be_header(fields: &[RawField<'_>], settings: &SourceSettings) -> bool {
    let hints = hints(settings);
    if settings.envelope != Envelope::Dms || hints.is_empty() {
        return true;
    }
    let text = |field: &RawField<'_>| field.text(&settings.csv).unwrap_or_default().into_owned();
    let fields: Vec<String> = fields.iter().map(text).collect();
    dms::names_columns(&fields, &settings.keys, &hints)
}

fn hints(settings: &SourceSettings) -> Vec<String> {
    let hints = parse_ddl(&settings.schema_hints).unwrap_or_default();
    hints.iter().map(|hint| hint.name().clone()).collect()
}

fn header_names(
    header: &Record<'_>,
    fields: &[RawField<'_>],
    dialect: &CsvSettings,
    encoding: TextEncoding,
) -> Result<Vec<String>, FileFault> {
    let line = header.place.line.unwrap_or(1);
    if let Some(fault) = &header.fault {
        return Err(not_a_header(line, &fault.detail));
    }
    let mut seen = HashSet::new();
    let mut names = Vec::with_capacity(fields.len());
    for field in fields {
        let name = field
            .text(dialect)
            .map_err(|_| not_a_header(line, &format!("it is not {}", encoding.name())))?
            .into_owned();
        // A delimiter at the end of every line makes columns without a name; a value in one is refused with its record.
        if !name.is_empty() && !seen.insert(name.clone()) {
            let why = format!("column {} stands twice", shorten(&name));
            return Err(not_a_header(line, &why));
        }
        names.push(name);
    }
    Ok(names)
}

/// Without a header the hints name the columns; the schema may have grown by other files since.
fn hinted_names(settings: &SourceSettings, field_count: usize) -> Vec<String> {
    let names = hints(settings);
    if settings.envelope == Envelope::Dms {
        return dms::field_names(names, field_count);
    }
    names
}

fn read_record<'a>(
    record: &Record<'a>,
    fields: &[RawField<'a>],
    targets: &[Target],
    dialect: &CsvSettings,
    rows: &mut Rows<'a>,
) -> Result<(), RecordFault> {
    if record.bytes.len() > RECORD_BYTES_MAX {
        return Err(too_large(record.bytes.len()));
    }
    if let Err(error) = std::str::from_utf8(record.bytes) {
        return Err(rows.not_text(record.bytes, error.valid_up_to()));
    }
    if let Some(fault) = &record.fault {
        return Err(fault.clone());
    }
    if fields.len() != targets.len() {
        let detail = format!(
            "the record has {} fields, expected {}",
            fields.len(),
            targets.len()
        );
        return Err(RecordFault::new(RejectReason::ColumnCount, detail));
    }
    for (field, target) in fields.iter().zip(targets) {
        let text = field
            .text(dialect)
            .map_err(|error| rows.not_text(field.bytes, error.valid_up_to()))?;
        let null_word = dialect.null_value.as_deref();
        let is_null = !field.is_quoted && (text.is_empty() || null_word == Some(&*text));
        let text = match &dialect.empty_value {
            Some(value) if field.is_quoted && text.is_empty() => Cow::Owned(value.clone()),
            _ => text,
        };
        let value = CsvValue { text, is_null };
        match target {
            Target::Known(index) => rows.set(*index, &value)?,
            Target::Unknown(_) if is_null && !rows.has_envelope() => {}
            Target::Unknown(name) => rows.set_unknown(name, &value)?,
        }
    }
    rows.close()
}

#[cfg(test)]
mod tests {
    use crate::change::{ParkReason, RejectReason::*};
    use crate::decode::testing::*;
    use crate::settings::{Format, SchemaEvolutionMode, TextEncoding};

    fn strings(values: &[(&str, &str)]) -> Vec<(String, String)> {
        values
            .iter()
            .map(|(name, ddl)| (name.to_string(), ddl.to_string()))
            .collect()
    }

    #[test]
    fn an_unclosed_quote_costs_the_file_and_names_its_line() {
        let text = "op,note\nI,\"two\nlines\"\nI,\"never closed\nI,x\n";
        let (reason, detail) = Case::csv("op STRING, note STRING").fault(text);
        assert_eq!(reason, ParkReason::UnclosedQuote);
        assert!(detail.contains("line 4"), "{detail}");
        assert_eq!(
            Case::csv("a STRING").fault("a\n\"").0,
            ParkReason::UnclosedQuote
        );
    }

    #[test]
    fn records_with_more_or_fewer_fields_are_never_shifted() {
        let decoded = Case::csv("a INT, b INT").read("a,b\n1,2\n3\n4,5,6\n7,8\n");
        assert_eq!(rejects(&decoded), [(2, ColumnCount), (3, ColumnCount)]);
        assert_eq!(
            (
                decoded.rejects[1].file_line,
                decoded.rejects[1].raw.as_str()
            ),
            (Some(4), "4,5,6")
        );
        assert_eq!(
            decoded.rejects[1].detail,
            "the record has 3 fields, expected 2"
        );
        assert_eq!(column(&decoded, "b"), ["2", "8"]);
    }

    /// What stands in the rows of a text, and why records were refused.
    fn shown(decoded: &crate::decode::Decoded) -> Vec<String> {
        let rows = decoded.rows.num_rows();
        let names = decoded.rows.schema();
        let cells = |row: usize| {
            let cells = names.fields().iter().map(|field| {
                let mut values = column(decoded, field.name());
                format!("{}={}", field.name(), values.swap_remove(row))
            });
            let cells: Vec<String> = cells.collect();
            format!("{} {:?}", cells.join(" "), decoded.positions[row])
        };
        let rejects = decoded.rejects.iter().map(|reject| format!("{reject:?}"));
        (0..rows).map(cells).chain(rejects).collect()
    }

    #[test]
    fn records_read_the_same_whether_their_fields_go_into_the_columns_at_once_or_not() {
        const HINTS: &str = "id BIGINT, small TINYINT, amount DECIMAL(10,2), ratio DOUBLE, part FLOAT, \
                             name STRING, at TIMESTAMP, wall TIMESTAMP_NTZ, day DATE, ok BOOLEAN, \
                             tags ARRAY<STRING>, who STRUCT<a: INT>, free BIGINT, some DOUBLE";
        const FIELDS: [&str; 36] = [
            "",
            "\"\"",
            "NA",
            "\"NA\"",
            "0",
            "-0",
            "-0.0",
            "007",
            "+5",
            "5.0",
            "1e3",
            "-128",
            "128",
            "12.345",
            "99999999.99",
            "0.1",
            "1.10",
            "9007199254740993",
            "16777217",
            "99999999999999999999",
            " 7 ",
            "\" 7\"",
            "x",
            "\"a\"\"b\"",
            "\"a,b\"",
            "caf\u{e9}",
            "2024-05-01T10:00:00.25Z",
            "2024-05-01 10:00:00",
            "2024-02-30",
            "2024-02-29",
            "true",
            "FALSE",
            "\"[\"\"x\"\"]\"",
            "\"{\"\"a\"\": 1, \"\"b\"\": 2}\"",
            "NaN",
            "\"x\"y",
        ];
        let mut next = crate::decode::testing::numbers(3);
        let header = "id,small,amount,ratio,part,name,at,wall,day,ok,tags,who,free,some,more\n";
        for round in 0..300 {
            let mut case = Case::csv(HINTS).evolution(match next(3) {
                0 => SchemaEvolutionMode::None,
                1 => SchemaEvolutionMode::Rescue,
                _ => SchemaEvolutionMode::AddNewColumns,
            });
            if next(2) == 0 {
                case = case.rescuing();
            }
            // No hint names the last columns, so that only numbers in their usual form are theirs.
            case.settings.schema_hints = HINTS.split(", free").next().unwrap().to_string();
            case.settings.csv.null_value = (next(2) == 0).then(|| "NA".to_string());
            case.settings.csv.empty_value = (next(3) == 0).then(|| "E".to_string());
            case.settings.csv.ignore_leading_white_space = next(3) == 0;
            case.settings.csv.ignore_trailing_white_space = next(3) == 0;
            if next(3) == 0 {
                case.settings.absent_columns = crate::settings::AbsentColumns::Keep;
                let list = arrow::datatypes::DataType::Utf8;
                case.schema = case.schema.with_own_column("_present_columns", list);
            }
            let mut text = header.to_string();
            for _ in 0..20 {
                // Most fields are empty, so that many records are sound.
                let field = |_| match next(5) {
                    0 => FIELDS[next(FIELDS.len())],
                    _ => "",
                };
                let fields: Vec<&str> = (0..15 - usize::from(round % 7 == 0)).map(field).collect();
                text.push_str(&fields.join(","));
                text.push_str(["\n", "\r\n"][round % 2]);
            }
            let at_once = shown(&case.read(&text));
            // A text that is not UTF-8 has no fields that go into the columns at once.
            let mut bytes = text.into_bytes();
            bytes.extend(b"\xff\n");
            let mut one_by_one = shown(&case.read(&bytes));
            let last = one_by_one.pop().unwrap();
            assert!(last.contains("InvalidUtf8"), "{last}");
            assert_eq!(at_once, one_by_one);
        }
    }

    #[test]
    fn text_behind_a_closing_quote_refuses_its_record_only() {
        let decoded =
            Case::csv("a STRING, b STRING").read("a,b\n\"x\"y,1\n\"said \"ok\", then\",2\nz,3\n");
        assert_eq!(rejects(&decoded), [(1, Malformed), (2, Malformed)]);
        assert_eq!(column(&decoded, "b"), ["3"]);
    }

    #[test]
    fn a_header_that_names_a_column_twice_is_no_header() {
        let (reason, detail) = Case::csv("a INT").fault("a,b,a\n1,2,3\n");
        assert_eq!(reason, ParkReason::NotThisFormat);
        assert!(detail.contains("column a stands twice"), "{detail}");
        assert_eq!(
            Case::csv("a INT").fault(b"a,\xff\n1,2\n").0,
            ParkReason::NotThisFormat
        );
        assert_eq!(
            Case::csv("a INT").fault("a,\"b\"c\n1,2\n").0,
            ParkReason::NotThisFormat
        );
    }

    #[test]
    fn bytes_that_are_not_utf8_refuse_their_record() {
        let decoded = Case::csv("a STRING, b STRING").read(b"a,b\nx,1\ncaf\xe9,2\n");
        assert_eq!(rejects(&decoded), [(2, InvalidUtf8)]);
        assert_eq!(decoded.rejects[0].raw, "caf\\xE9,2");
    }

    #[test]
    fn other_encodings_refuse_what_they_cannot_mean_and_name_its_place() {
        let mut case = Case::csv("a STRING, b STRING");
        case.settings.csv.encoding = TextEncoding::Utf16;
        let text = "\u{feff}a,b\n\u{e9},\u{1f600}\n\u{e0},x\ny,z\n";
        let mut bytes: Vec<u8> = text.encode_utf16().flat_map(u16::to_be_bytes).collect();
        let broken = bytes.len() - 8 * 2;
        bytes[broken..broken + 2].copy_from_slice(&[0xDC, 0]);
        let decoded = case.read(&bytes);
        assert_eq!(rejects(&decoded), [(2, InvalidUtf8)]);
        let reject = &decoded.rejects[0];
        assert_eq!(reject.detail, "character 1 of the record is not UTF-16BE");
        assert_eq!(
            (reject.file_line, reject.byte_offset),
            (Some(3), Some(broken as i64))
        );
        assert_eq!(reject.raw, "\\xDC\\x00,x");
        assert_eq!(column(&decoded, "a"), ["\u{e9}", "y"]);
        assert_eq!(column(&decoded, "b"), ["\u{1f600}", "z"]);
        let second = decoded.positions[1];
        assert_eq!(
            (second.byte_offset, second.byte_length),
            (Some(bytes.len() as i64 - 8), 6)
        );
        assert_eq!(decoded.raw(0), "\u{e9},\u{1f600}");
        let header = [&[0xFE, 0xFF, 0xDC, 0], &bytes[4..]].concat();
        assert_eq!(case.fault(header).0, ParkReason::NotThisFormat);
        bytes.pop();
        assert_eq!(
            rejects(&case.read(&bytes)),
            [(2, InvalidUtf8), (3, InvalidUtf8)]
        );
    }

    #[test]
    fn one_byte_encodings_give_their_characters() {
        let mut case = Case::csv("a STRING, b INT");
        case.settings.csv.encoding = TextEncoding::Latin1;
        let decoded = case.read(b"a,b\n\"caf\xe9\n\xfc\",1\n\xa4,x\n\xa4,2\n");
        assert_eq!(column(&decoded, "a"), ["caf\u{e9}\n\u{fc}", "\u{a4}"]);
        assert_eq!(decoded.raw(0), "\"caf\u{e9}\n\u{fc}\",1");
        assert_eq!(decoded.rejects[0].raw, "\u{a4},x");
        let places = decoded.positions.iter().map(|p| p.byte_offset.unwrap());
        assert_eq!(places.collect::<Vec<_>>(), [4, 19]);
        case.settings.csv.encoding = TextEncoding::Ascii;
        let decoded = case.read("a,b\n\u{e9},1\ne,2\n");
        assert_eq!(rejects(&decoded), [(1, InvalidUtf8)]);
        assert_eq!(decoded.rejects[0].raw, "\\xC3\\xA9,1");
    }

    #[test]
    fn quotes_hold_delimiters_quotes_and_line_breaks() {
        let text = "op,note,n\nI,\"said \"\"ok\"\", then left\",1\nI,\"line one\r\nline two\",2\nI,5\" pipe,3";
        let decoded = Case::csv("op STRING, note STRING, n INT").read(text);
        assert_eq!(
            column(&decoded, "note"),
            ["said \"ok\", then left", "line one\r\nline two", "5\" pipe"]
        );
        let lines: Vec<_> = decoded
            .positions
            .iter()
            .map(|position| position.file_line.unwrap())
            .collect();
        assert_eq!(lines, [2, 3, 5]);
        assert_eq!(decoded.raw(1), "I,\"line one\r\nline two\",2");
    }

    #[test]
    fn columns_go_by_name_and_not_by_place() {
        let case = Case::csv(ORDERS);
        let decoded = case.read("op,seq,status,amount,order_id\nU,7,paid,10.00,1\n");
        assert_eq!(column(&decoded, "order_id"), ["1"]);
        assert_eq!(column(&decoded, "seq"), ["7"]);
        let decoded = case.read("order_id,seq\n1,0\n");
        assert_eq!(column(&decoded, "op"), ["-"]);
    }

    #[test]
    fn windows_line_ends_and_blank_lines_are_no_part_of_the_data() {
        let text = "\u{feff}op,order_id,status\r\n\r\nI,1,new\r\n\r\nI,3,\"on hold\"\r\n\r\n\r\n";
        let decoded = Case::csv(ORDERS).read(text);
        assert_eq!(column(&decoded, "status"), ["new", "on hold"]);
        assert_eq!(column(&decoded, "op"), ["I", "I"]);
        assert!(decoded.rejects.is_empty());
        assert_eq!(decoded.raw(0), "I,1,new");
    }

    #[test]
    fn empty_is_null_and_quoted_empty_is_the_empty_text() {
        let text = "op,order_id,status,amount,seq\nI,1,,5.00,1\nI,2,\"\",5.00,1\nI,3,new,\"\",1\nI,4,new,,1\nI,5,NULL,5.00,1\n";
        let decoded = Case::csv(ORDERS).read(text);
        assert_eq!(column(&decoded, "status"), ["-", "", "new", "new", "NULL"]);
        assert_eq!(
            column(&decoded, "amount"),
            ["5.00", "5.00", "-", "-", "5.00"]
        );
        let mut case = Case::csv("a STRING");
        case.settings.csv.null_value = Some("NULL".into());
        assert_eq!(
            column(&case.read("a\nNULL\n\"NULL\"\nnull\n"), "a"),
            ["-", "NULL", "null"]
        );
    }

    #[test]
    fn a_file_of_only_a_header_has_no_records() {
        for text in ["a,b\n", "a,b", "", "\n\n", "\u{feff}"] {
            let decoded = Case::csv("a INT").read(text);
            assert_eq!(
                (decoded.rows.num_rows(), decoded.rejects.len()),
                (0, 0),
                "{text:?}"
            );
        }
    }

    #[test]
    fn without_a_header_the_hints_name_the_columns() {
        let mut case = Case::csv("a INT, b STRING");
        case.settings.csv.header = false;
        let grown = crate::schema::NewColumn {
            name: "later".into(),
            data_type: arrow::datatypes::DataType::Utf8,
        };
        case.schema = case.schema.extended(&[grown]);
        let decoded = case.read("1,x\n2\n3,z\n");
        assert_eq!(column(&decoded, "b"), ["x", "z"]);
        assert_eq!(column(&decoded, "later"), ["-", "-"]);
        assert_eq!(rejects(&decoded), [(2, ColumnCount)]);
        assert_eq!(decoded.positions[0].file_line, Some(1));
    }

    #[test]
    fn other_signs_can_be_set() {
        let mut case = Case::csv("a STRING, b STRING");
        case.settings.csv.delimiter = b';';
        case.settings.csv.quote = Some(b'\'');
        case.settings.csv.escape = Some(b'\\');
        case.settings.csv.comment = Some(b'#');
        let decoded =
            case.read("# a comment\na;b\n'it\\'s';\"x\"\n#1;2\n'a\\\\b\\n';'\u{e9}'\n'x''y';3\n");
        assert_eq!(column(&decoded, "a"), ["it's", "a\\b\\n"]);
        assert_eq!(column(&decoded, "b"), ["\"x\"", "\u{e9}"]);
        assert_eq!(rejects(&decoded), [(3, Malformed)]);
        case.settings.csv.quote = None;
        case.settings.csv.escape = None;
        assert_eq!(column(&case.read("a;b\n'x;y'\n"), "a"), ["'x"]);
        let mut doubled = Case::csv("a STRING");
        doubled.settings.csv.escape = Some(b'"');
        assert_eq!(column(&doubled.read("a\n\"x\"\"y\"\n"), "a"), ["x\"y"]);
    }

    #[test]
    fn quotes_that_may_not_span_lines_refuse_one_record() {
        let mut case = Case::csv("a STRING, b STRING");
        case.settings.csv.multi_line = false;
        let decoded = case.read("a,b\n\"x,1\ny,\"2\"\n\"z");
        assert_eq!(rejects(&decoded), [(1, Malformed), (3, Malformed)]);
        assert_eq!(column(&decoded, "b"), ["2"]);
    }

    #[test]
    fn a_quote_behind_blanks_is_a_character_unless_blanks_are_ignored() {
        let text = "a , b\n x , \"y z\" \n\t,\"  \"\n";
        let plain = Case::csv("a STRING, b STRING").read(text);
        assert_eq!(
            rejects(&plain),
            [(1, InvalidColumnName), (2, InvalidColumnName)]
        );
        let mut case = Case::csv("a STRING, b STRING");
        case.settings.csv.ignore_leading_white_space = true;
        let leading = case.read("a,b\n x , \"y\"\n1, \"y\" \n");
        assert_eq!(column(&leading, "a"), ["x "]);
        assert_eq!(column(&leading, "b"), ["y"]);
        assert_eq!(rejects(&leading), [(2, Malformed)]);
        case.settings.csv.ignore_trailing_white_space = true;
        let both = case.read(text);
        assert_eq!(column(&both, "a"), ["x", "-"]);
        assert_eq!(column(&both, "b"), ["y z", "  "]);
        assert_eq!(both.raw(0), " x , \"y z\" ");
        case.settings.csv.ignore_leading_white_space = false;
        assert_eq!(column(&case.read("a,b\n x ,\"y\" \n"), "a"), [" x"]);
        let mut tabs = Case::csv("a STRING, b STRING");
        tabs.settings.csv.delimiter = b'\t';
        tabs.settings.csv.ignore_leading_white_space = true;
        tabs.settings.csv.ignore_trailing_white_space = true;
        assert_eq!(column(&tabs.read("a\tb\n\t x \n"), "b"), ["x"]);
    }

    #[test]
    fn lines_that_are_skipped_count_as_lines_and_not_as_records() {
        let mut case = Case::csv("a INT, b INT");
        case.settings.csv.skip_rows = 2;
        let decoded = case.read("Report, \"of\n\n\na,b\r\n1,2\nx,2\n");
        assert_eq!(column(&decoded, "b"), ["2"]);
        let reject = &decoded.rejects[0];
        assert_eq!((reject.file_row, reject.file_line), (2, Some(6)));
        for short in ["", "one line", "one\ntwo", "one\ntwo\n"] {
            assert_eq!(case.read(short).rows.num_rows(), 0, "{short:?}");
        }
        case.settings.csv.header = false;
        assert_eq!(column(&case.read("x\n\n3,4"), "a"), ["3"]);
        case.settings.csv.skip_rows = u64::MAX;
        assert_eq!(case.read("a,b\n1,2\n").rows.num_rows(), 0);
    }

    #[test]
    fn another_end_of_lines_makes_the_usual_ones_data() {
        let mut case = Case::csv("a STRING, b STRING");
        case.settings.csv.line_sep = Some(b'\r');
        let decoded = case.read("a,b\rx\ny,1\r\r\"z\r\",2\rshort");
        assert_eq!(column(&decoded, "a"), ["x\ny", "z\r"]);
        assert_eq!(rejects(&decoded), [(3, ColumnCount)]);
        assert_eq!(decoded.rejects[0].file_line, Some(6));
        case.settings.csv.line_sep = Some(b'\n');
        assert_eq!(column(&case.read("a,b\nx,1\r\n"), "b"), ["1\r"]);
        case.settings.csv.line_sep = Some(b'~');
        case.settings.csv.multi_line = false;
        let decoded = case.read("a,b~\"x~y,2~");
        assert_eq!(rejects(&decoded), [(1, Malformed)]);
        assert_eq!(column(&decoded, "a"), ["y"]);
    }

    #[test]
    fn a_quoted_empty_field_may_stand_for_a_text() {
        let mut case = Case::csv("a STRING, n INT");
        case.settings.csv.empty_value = Some("7".into());
        let decoded = case.read("a,n\n\"\",\"\"\n,\n\" \",1\n");
        assert_eq!(column(&decoded, "a"), ["7", "-", " "]);
        assert_eq!(column(&decoded, "n"), ["7", "-", "1"]);
        case.settings.csv.empty_value = Some("none".into());
        assert_eq!(rejects(&case.read("a,n\nx,\"\"\n")), [(1, TypeMismatch)]);
    }

    #[test]
    fn tab_separated_files_are_known_by_their_name() {
        let case = Case::new(Format::Csv, "a.tsv.gz", "a STRING");
        assert_eq!(case.fault("a\tb\n").0, ParkReason::NotThisFormat);
        let case = Case::new(Format::Auto, "a.tsv", "a STRING, b STRING");
        assert_eq!(column(&case.read("a\tb\nx,y\tz\n"), "a"), ["x,y"]);
    }

    #[test]
    fn new_columns_get_types_that_do_not_alter_their_text() {
        let text = "a,zip,n,when,flag,q,e,\n1,007,5,2024-03-31T00:30:00Z,true,\"\",\"\",\n2,10,6.5,2024-03-31T00:30:00+02:00,false,7,,\n";
        let decoded = Case::csv("a INT").read(text);
        let expected = [
            ("zip", "STRING"),
            ("n", "DOUBLE"),
            ("when", "TIMESTAMP"),
            ("flag", "BOOLEAN"),
            ("q", "BIGINT"),
            ("e", "STRING"),
        ];
        assert_eq!(new_columns(&decoded), strings(&expected));
        let nameless = Case::csv("a INT").read("a,\n1,\n2,x\n");
        assert_eq!(rejects(&nameless), [(2, InvalidColumnName)]);
    }

    #[test]
    fn rescued_fields_are_texts() {
        let case = Case::csv("a INT")
            .evolution(SchemaEvolutionMode::Rescue)
            .rescuing();
        let decoded = case.read("a,b\nx,\"say \"\"hi\"\"\"\n2,\n");
        assert_eq!(column(&decoded, "a"), ["-", "2"]);
        let expected = "{\"a\":\"x\",\"b\":\"say \\\"hi\\\"\",\"_file_path\":\"orders.csv\"}";
        assert_eq!(column(&decoded, "_rescued_data"), [expected, "-"]);
    }

    #[test]
    fn every_type_reads_from_text() {
        let ddl = "b BOOLEAN, t TINYINT, f FLOAT, d DATE, n TIMESTAMP_NTZ, x BINARY, l ARRAY<INT>, s STRUCT<a: INT>";
        let text = "b,t,f,d,n,x,l,s\nTRUE,-128,1.5,2024-02-29,2024-01-01 10:00:00,AQI=,\"[1,2]\",\"{\"\"a\"\": 1}\"\n,128,,,,,,\n";
        let decoded = Case::csv(ddl).read(text);
        assert_eq!(rejects(&decoded), [(2, Overflow)]);
        let shown: Vec<_> = ["b", "t", "f", "d", "n", "x", "l", "s"]
            .map(|name| column(&decoded, name)[0].clone())
            .into();
        let expected = [
            "true",
            "-128",
            "1.5",
            "2024-02-29",
            "2024-01-01T10:00:00",
            "0102",
            "[1, 2]",
            "{a: 1}",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn garbage_never_panics_and_numbers_stay_complete() {
        let pieces: [&[u8]; 12] = [
            b"\"", b"\"\"", b",", b"\n", b"\r\n", b"\r", b"x", b" ", b"\\", b"#", b"\xff", b"\0",
        ];
        let mut next = numbers(11);
        for round in 0..2000 {
            let mut case = Case::csv("a STRING, b INT");
            case.settings.csv.multi_line = round % 2 == 0;
            case.settings.csv.escape = (round % 3 == 0).then_some(b'\\');
            case.settings.csv.comment = (round % 5 == 0).then_some(b'#');
            case.settings.csv.ignore_leading_white_space = round % 7 < 3;
            case.settings.csv.ignore_trailing_white_space = round % 11 < 5;
            case.settings.csv.line_sep = (round % 13 == 0).then_some(b'\r');
            let mut text = b"a,b".to_vec();
            text.push(case.settings.csv.line_sep.unwrap_or(b'\n'));
            (0..next(30)).for_each(|_| text.extend_from_slice(pieces[next(pieces.len())]));
            match case.try_read(&text) {
                Err(fault) => assert_eq!(fault.reason, ParkReason::UnclosedQuote),
                Ok(decoded) => {
                    for (index, position) in decoded.positions.iter().enumerate() {
                        assert_eq!(decoded.raw(index).len() as i64, position.byte_length);
                    }
                }
            }
        }
    }
}
