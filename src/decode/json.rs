//! JSON: one object a line, ended by LF or CRLF, blank lines being no records; or, with `multi_line`, documents.
//!
//! The rules for a record are the same for both.

use super::blocks::is_blank;
use super::changes::ChangeReader;
use super::documents::{Documents, FramingFault};
use super::layout::Layouts;
use super::rows::{Place, RecordFault, Rows};
use super::token::{self, Member, SyntaxFault, Token};
use super::value::{Cell, FieldValue, Misfit, ValueReader};
use super::{RECORD_BYTES_MAX, infer};
use crate::change::{FileFault, RejectReason};
use crate::settings::SourceSettings;
use arrow::datatypes::DataType;
use std::borrow::Cow;

impl<'a> FieldValue<'a> for Token<'a> {
    const IS_TYPED: bool = false;

    fn is_null(&self) -> bool {
        *self == Token::Null
    }

    fn cell(&self, data_type: &DataType, reader: &mut ValueReader) -> Result<Cell<'a>, Misfit> {
        reader.json(self, data_type)
    }

    fn written_text(&self) -> Option<Cow<'a, str>> {
        matches!(self, Token::Text { .. }).then(|| self.text())
    }

    fn inferred(&self, _reader: &ValueReader) -> DataType {
        infer::json_type(self)
    }

    fn as_json(&self) -> String {
        Token::as_json(self).into_owned()
    }

    fn shown(&self) -> String {
        self.written().to_string()
    }
}

/// From so many records it is told how many rows there will be.
const RECORDS_TELLING: usize = 64;

/// Reads all lines of `bytes` from `start` on.
pub(super) fn read_lines<'a>(
    bytes: &'a [u8],
    start: usize,
    settings: &SourceSettings,
    rows: &mut Rows<'a>,
) {
    let mut reader = RecordReader::new("line", settings, rows).learning(rows, true);
    let text = std::str::from_utf8(bytes).ok();
    let mut at = start;
    let mut line_number = 0;
    while at < bytes.len() {
        line_number += 1;
        if line_number == RECORDS_TELLING as i64 {
            rows.expect_alike(at - start, bytes.len() - at);
        }
        if let Some(end) = text.and_then(|text| reader.read_alike(text, at, rows, is_line_end)) {
            rows.take_pushed(Place {
                line: Some(line_number),
                offset: Some(at),
                length: end - at,
            });
            at = end + if bytes.get(end) == Some(&b'\r') { 2 } else { 1 };
            continue;
        }
        let end = memchr::memchr(b'\n', &bytes[at..]).map_or(bytes.len(), |length| at + length);
        let line = bytes[at..end]
            .strip_suffix(b"\r")
            .unwrap_or(&bytes[at..end]);
        if !is_blank(line) {
            let place = Place {
                line: Some(line_number),
                offset: Some(at),
                length: line.len(),
            };
            reader.read(place, line, rows);
        }
        at = end + 1;
    }
}

/// Refuses the one line from `start` on, which has `length` bytes and is there only in part.
pub(super) fn refuse_line(start: usize, length: usize, rows: &mut Rows<'_>) {
    let place = Place {
        line: Some(1),
        offset: Some(start),
        length: length - start,
    };
    rows.refuse_text(place, too_large(length - start));
}

/// Reads all documents of `bytes` from `start` on; a fault means that their framing is lost.
pub(super) fn read_documents<'a>(
    bytes: &'a [u8],
    start: usize,
    settings: &SourceSettings,
    rows: &mut Rows<'a>,
) -> Result<(), FileFault> {
    let mut reader = RecordReader::new("record", settings, rows).learning(rows, false);
    let text = std::str::from_utf8(bytes).ok();
    let mut documents = Documents::new(bytes, start);
    let mut count = 0;
    loop {
        let read = next_document(&mut documents, &mut reader, text, rows);
        match read {
            Ok(true) => count += 1,
            Ok(false) => return Ok(()),
            Err(fault) => {
                let at = rows.in_file(fault.at);
                return Err(fault.of_file(at));
            }
        }
        if count == RECORDS_TELLING {
            let at = documents.place();
            rows.expect_alike(at - start, bytes.len() - at);
        }
    }
}

/// Whether a line ends before these bytes.
fn is_line_end(rest: &[u8]) -> bool {
    matches!(rest, [] | [b'\n', ..] | [b'\r', b'\n', ..])
}

/// Makes a row or a reject of the next document, or element of one; false at the end.
fn next_document<'a>(
    documents: &mut Documents<'a>,
    reader: &mut RecordReader<'a>,
    text: Option<&'a str>,
    rows: &mut Rows<'a>,
) -> Result<bool, FramingFault> {
    if !documents.begin()? {
        return Ok(false);
    }
    let start = documents.place();
    match text.and_then(|text| reader.read_alike(text, start, rows, |_| true)) {
        // What is laid out like a record has brackets that fit.
        Some(end) => rows.take_pushed(documents.known_record(end)),
        None => {
            let (place, record) = documents.record()?;
            reader.read(place, record, rows);
        }
    }
    Ok(true)
}

/// Reads the records at these places of `bytes`, which are documents or their parts.
pub(super) fn read_places<'a>(
    bytes: &'a [u8],
    places: &[Place],
    settings: &SourceSettings,
    rows: &mut Rows<'a>,
) {
    let mut reader = RecordReader::new("record", settings, rows).learning(rows, false);
    let text = std::str::from_utf8(bytes).ok();
    for (count, place) in places.iter().enumerate() {
        let start = place.offset.unwrap_or(0);
        if count == RECORDS_TELLING {
            rows.expect_alike(start, bytes.len() - start);
        }
        let end = start + place.length;
        let ends = |rest: &[u8]| bytes.len() - rest.len() == end;
        if text
            .and_then(|text| reader.read_alike(text, start, rows, ends))
            .is_some()
        {
            rows.take_pushed(*place);
        } else {
            reader.read(*place, &bytes[start..start + place.length], rows);
        }
    }
}

/// Reads single records; remembers how they were laid out, since the records of a feed are alike.
struct RecordReader<'a> {
    /// What a record is called.
    unit: &'static str,
    /// Where the records hold changes in objects of their own.
    changes: Option<ChangeReader<'a>>,
    /// How records were laid out, where that is learned.
    layouts: Option<Layouts>,
    /// The column at each place of the last record that was not read by its layout.
    columns: Vec<usize>,
    members: Vec<Member<'a>>,
}

impl<'a> RecordReader<'a> {
    fn new(unit: &'static str, settings: &SourceSettings, rows: &mut Rows<'a>) -> Self {
        let changes = ChangeReader::of(settings);
        if changes.is_some() {
            rows.expect_nested();
        }
        RecordReader {
            unit,
            layouts: None,
            columns: Vec::new(),
            changes,
            members: Vec::new(),
        }
    }

    /// Learns how records are laid out, where a record is a row and nothing else.
    fn learning(mut self, rows: &Rows<'a>, are_lines: bool) -> Self {
        self.layouts = (!rows.has_envelope()).then(|| Layouts::new(rows, are_lines));
        self
    }

    /// Reads the record at `at` into the columns if it is laid out like earlier ones and what is behind it `ends` a record;
    /// the byte behind it.
    #[inline]
    fn read_alike(
        &mut self,
        text: &'a str,
        at: usize,
        rows: &mut Rows<'a>,
        ends: impl Fn(&[u8]) -> bool,
    ) -> Option<usize> {
        let layouts = self.layouts.as_mut()?;
        let end = layouts.read(text, at, rows)?;
        if ends(&text.as_bytes()[end..]) {
            return Some(end);
        }
        rows.forget();
        None
    }

    /// Makes a row or a reject of the record.
    fn read(&mut self, place: Place, record: &'a [u8], rows: &mut Rows<'a>) {
        if let Some(changes) = &mut self.changes {
            return match text_of(record, rows).and_then(|text| {
                changes
                    .read(text, place, rows)
                    .map_err(|fault| syntax_fault(self.unit, text, &fault))
            }) {
                Ok(()) => {}
                Err(fault) => rows.refuse_text(place, fault),
            };
        }
        match self.set(record, rows) {
            Ok(()) => rows.take(place),
            Err(fault) => rows.refuse_text(place, fault),
        }
    }

    /// Puts the values of a record into the slots of the present one.
    fn set(&mut self, record: &'a [u8], rows: &mut Rows<'a>) -> Result<(), RecordFault> {
        let record = text_of(record, rows)?;
        token::object_text(record, &mut self.members)
            .map_err(|fault| syntax_fault(self.unit, record, &fault))?;
        for (place, (name, value)) in self.members.iter().enumerate() {
            let expected = self.columns.get(place).copied();
            let expected = expected.filter(|index| rows.name_of(*index) == name);
            match expected.or_else(|| rows.index_of(name)) {
                Some(index) => {
                    if place < self.columns.len() {
                        self.columns[place] = index;
                    } else if place == self.columns.len() {
                        self.columns.push(index);
                    }
                    rows.set(index, value)?;
                }
                None => rows.set_unknown(name, value)?,
            }
        }
        rows.close()?;
        Ok(())
    }
}

/// The text of a record that is not too large.
fn text_of<'a>(record: &'a [u8], rows: &mut Rows<'a>) -> Result<&'a str, RecordFault> {
    if record.len() > RECORD_BYTES_MAX {
        return Err(too_large(record.len()));
    }
    std::str::from_utf8(record).map_err(|error| rows.not_text(record, error.valid_up_to()))
}

fn syntax_fault(unit: &str, record: &str, fault: &SyntaxFault) -> RecordFault {
    let before = &record.as_bytes()[..fault.at];
    let place = match memchr::memchr_iter(b'\n', before).count() {
        0 => format!("byte {} of the {unit}", fault.at + 1),
        feeds => format!(
            "byte {} of the {unit}, its line {}",
            fault.at + 1,
            feeds + 1
        ),
    };
    // An object that its line does not end may go on in the next one.
    let goes_on = fault.at >= record.trim_ascii_end().len() && record.contains('{');
    let hint = match fault.reason {
        RejectReason::NotAnObject | RejectReason::Malformed
            if unit == "line" && (goes_on || fault.reason == RejectReason::NotAnObject) =>
        {
            "; is the file JSON lines, one object per line? Other documents need json.multi_line = true"
        }
        _ => "",
    };
    RecordFault::new(fault.reason, format!("{place}: {}{hint}", fault.what))
}

/// The record is beyond the limit.
pub(super) fn too_large(length: usize) -> RecordFault {
    let detail =
        format!("the record has {length} bytes; only its first {RECORD_BYTES_MAX} are kept here");
    RecordFault::new(RejectReason::TooLarge, detail)
}

#[cfg(test)]
mod tests {
    use crate::change::{ParkReason, RejectReason::*};
    use crate::decode::testing::*;
    use crate::decode::{RECORD_BYTES_MAX, decode};
    use crate::settings::{SchemaEvolutionMode, TextEncoding};
    use std::io::Write;

    fn order(id: u32, rest: &str) -> String {
        format!("{{\"op\": \"I\", \"order_id\": {id}, \"status\": \"new\", \"seq\": 1, {rest}}}\n")
    }

    #[test]
    fn bare_nan_refuses_its_line_and_no_other() {
        let lines = ["\"amount\": 1.00", "\"amount\": NaN", "\"amount\": 3.00"];
        let text: String = lines
            .iter()
            .zip(1..)
            .map(|(rest, id)| order(id, rest))
            .collect();
        let decoded = Case::json(ORDERS).read(&text);
        assert_eq!(column(&decoded, "order_id"), ["1", "3"]);
        let reject = &decoded.rejects[0];
        assert_eq!(
            (reject.file_row, reject.file_line, reject.reason),
            (2, Some(2), Malformed)
        );
        assert_eq!(reject.byte_offset, Some(order(1, lines[0]).len() as i64));
        assert_eq!(reject.raw, order(2, lines[1]).trim_end());
        let byte = reject.raw.find("NaN").unwrap() + 1;
        assert!(
            reject
                .detail
                .starts_with(&format!("byte {byte} of the line:")),
            "{}",
            reject.detail
        );
    }

    #[test]
    fn bytes_that_are_not_utf8_refuse_their_line_and_are_shown() {
        let decoded =
            Case::json("a STRING").read(b"{\"a\": \"x\"}\n{\"a\": \"caf\xe9\"}\n{\"a\": \"z\"}");
        assert_eq!(rejects(&decoded), [(2, InvalidUtf8)]);
        assert_eq!(decoded.rejects[0].raw, "{\"a\": \"caf\\xE9\"}");
        assert_eq!(column(&decoded, "a"), ["x", "z"]);
    }

    #[test]
    fn lines_that_are_no_objects_are_refused_with_a_hint() {
        let case = Case::json(ORDERS);
        let pretty = case.read("{\n  \"op\": \"I\",\n  \"order_id\": 1\n}\n");
        assert_eq!(rejects(&pretty).len(), 4);
        let array = case.read("[{\"op\": \"I\"}, {\"op\": \"U\"}]\n42\n[]\n");
        assert_eq!(
            rejects(&array),
            [(1, NotAnObject), (2, NotAnObject), (3, NotAnObject)]
        );
        assert!(array.rejects[0].detail.contains("JSON lines"));
    }

    fn documents(ddl: &str) -> Case {
        let mut case = Case::json(ddl);
        case.settings.json.multi_line = true;
        case
    }

    #[test]
    fn documents_whose_framing_is_lost_give_no_rows() {
        let case = documents("a INT");
        let (reason, detail) = case.fault("[\n{\"a\": 1},\n{\"a\": 2}\n");
        assert_eq!(reason, ParkReason::TruncatedStream);
        assert_eq!(
            detail,
            "line 1, byte 0: the array that begins here is never closed"
        );
        let (reason, detail) = case.fault("{\"a\": 1}\nhello\n{\"a\": 2}\n");
        assert_eq!(reason, ParkReason::NotThisFormat);
        assert_eq!(detail, "line 2, byte 9: expected an object");
    }

    #[test]
    fn records_of_documents_keep_the_rules_and_name_their_places() {
        let deep = format!("{{\"a\": {}{}}}", "[".repeat(70), "]".repeat(70));
        let large = format!("{{\"s\": \"{}\"}}", "x".repeat(RECORD_BYTES_MAX));
        let text = [
            "\u{feff}[{\"a\": 1},\n 42, [{\"a\": 1}],\n {\n  \"a\": 2,\n  \"a\": 3\n }, {\"a\":\n NaN},",
            &deep,
            ", ",
            &large,
            "]\n{\n\"a\":\n4\n}",
        ]
        .concat();
        let decoded = documents("a STRING, s STRING").read(&text);
        let expected = [
            (2, NotAnObject),
            (3, NotAnObject),
            (4, DuplicateKey),
            (5, Malformed),
            (6, TooDeep),
            (7, TooLarge),
        ];
        assert_eq!(rejects(&decoded), expected);
        assert_eq!(column(&decoded, "a"), ["1", "4"]);
        let [element, array, twice, nan, ..] = &decoded.rejects[..] else {
            panic!("six records are refused");
        };
        assert_eq!(
            element.detail,
            "byte 1 of the record: this is a number and no object"
        );
        assert_eq!(
            (array.file_line, array.raw.as_str()),
            (Some(2), "[{\"a\": 1}]")
        );
        assert_eq!(twice.file_line, Some(3));
        assert_eq!(twice.raw, "{\n  \"a\": 2,\n  \"a\": 3\n }");
        assert!(
            twice
                .detail
                .starts_with("byte 15 of the record, its line 3: "),
            "{}",
            twice.detail
        );
        let start = text.find("{\"a\":\n NaN").unwrap();
        assert_eq!(
            (nan.file_line, nan.byte_offset),
            (Some(6), Some(start as i64))
        );
        assert_eq!(decoded.raw(1), "{\n\"a\":\n4\n}");
        let last = decoded.positions[1];
        assert_eq!((last.file_row, last.file_line), (8, Some(8)));
    }

    #[test]
    fn bytes_that_are_not_utf8_refuse_their_record_in_a_document_and_park_it_between() {
        let case = documents("a STRING");
        let decoded = case.read(b"[{\"a\": \"caf\xe9\"}, {\"a\": \"x\"}]");
        assert_eq!(rejects(&decoded), [(1, InvalidUtf8)]);
        assert_eq!(column(&decoded, "a"), ["x"]);
        assert_eq!(
            case.fault(b"[{\"a\": \"x\"}\xe9]").0,
            ParkReason::NotThisFormat
        );
    }

    #[test]
    fn one_document_or_an_array_or_many_hold_the_same_records_as_lines() {
        let lines = "{\"a\": 1, \"b\": \"x\"}\n{\"a\": 2, \"b\": null}\n";
        let array = "[\n  {\n    \"a\": 1,\n    \"b\": \"x\"\n  },\n  {\"a\": 2}\n]\n";
        let joined = "{\"b\": \"x\", \"a\": 1}{\"a\": 2}";
        let case = documents("a INT, b STRING");
        for text in [lines, array, joined] {
            let decoded = case.read(text);
            assert_eq!(column(&decoded, "a"), ["1", "2"], "{text}");
            assert_eq!(column(&decoded, "b"), ["x", "-"], "{text}");
        }
        for nothing in ["", "[]", "\n [ ]\n"] {
            assert_eq!(case.read(nothing).rows.num_rows(), 0);
        }
    }

    #[test]
    fn a_name_that_stands_twice_refuses_the_record() {
        let decoded = Case::json(ORDERS).read(order(1, "\"amount\": 1, \"amount\": 2"));
        assert_eq!(rejects(&decoded), [(1, DuplicateKey)]);
    }

    #[test]
    fn values_that_do_not_fit_are_named() {
        let text = [
            order(1, "\"amount\": 12.345"),
            order(2, "\"amount\": 100000000.00"),
            order(3, "\"amount\": \"abc\""),
        ]
        .concat();
        let decoded = Case::json(ORDERS).read(text);
        assert_eq!(
            rejects(&decoded),
            [(1, DecimalScale), (2, Overflow), (3, TypeMismatch)]
        );
        let expected = "column amount: \"12.345\" has more than 2 decimal places (DECIMAL(10,2))";
        assert_eq!(decoded.rejects[0].detail, expected);
    }

    #[test]
    fn a_refused_record_leaves_nothing_in_the_columns() {
        let text = "{\"a\": 1, \"b\": 1, \"new\": 1}\n{\"a\": 2, \"b\": \"x\", \"new\": \"y\", \"other\": 1}\n{\"b\": 3}\n";
        let decoded = Case::json("a INT, b INT").rescuing().read(text);
        assert_eq!(column(&decoded, "a"), ["1", "2", "-"]);
        let decoded = Case::json("a INT, b INT").read(text);
        assert_eq!(column(&decoded, "a"), ["1", "-"]);
        assert_eq!(column(&decoded, "b"), ["1", "3"]);
        assert_eq!(column(&decoded, "_rescued_data"), ["-", "-"]);
        assert_eq!(new_columns(&decoded), [("new".into(), "BIGINT".into())]);
    }

    #[test]
    fn decimals_that_fit_are_exact() {
        let values = [
            "1e2",
            "\"7.10\"",
            "7.1",
            "99999999.99",
            "-0.05",
            "4.35",
            "5.100",
            "null",
        ];
        let text: String = values
            .iter()
            .map(|value| order(1, &format!("\"amount\": {value}")))
            .collect();
        let decoded = Case::json(ORDERS).read(text);
        let expected = [
            "100.00",
            "7.10",
            "7.10",
            "99999999.99",
            "-0.05",
            "4.35",
            "5.10",
            "-",
        ];
        assert_eq!(column(&decoded, "amount"), expected);
    }

    #[test]
    fn text_is_kept_byte_for_byte() {
        let values = [
            r#""007""#,
            r#""1e3""#,
            r#""true""#,
            r#""null""#,
            r#""""#,
            r#""  padded ""#,
            r#""a\u0000b""#,
        ];
        let text: String = values
            .iter()
            .map(|value| format!("{{\"s\": {value}}}\n"))
            .collect();
        let decoded = Case::json("s STRING").read(text);
        assert_eq!(
            column(&decoded, "s"),
            ["007", "1e3", "true", "null", "", "  padded ", "a\0b"]
        );
    }

    #[test]
    fn instants_are_utc_and_times_without_offset_are_refused() {
        let text = r#"{"t": "2024-03-31T02:30:00+02:00"}
{"t": "2024-03-31T02:30:00"}
{"t": "2024-03-31T00:30:00-05:30"}"#;
        let decoded = Case::json("t TIMESTAMP").read(text);
        assert_eq!(rejects(&decoded), [(2, AmbiguousTimestamp)]);
        assert_eq!(
            column(&decoded, "t"),
            ["2024-03-31T00:30:00Z", "2024-03-31T06:00:00Z"]
        );
    }

    #[test]
    fn quoted_digits_are_numbers_in_number_columns() {
        let decoded = Case::json("seq BIGINT")
            .read("{\"seq\": \"9\"}\n{\"seq\": \"10\"}\n{\"seq\": \" 11\"}\n");
        assert_eq!(column(&decoded, "seq"), ["9", "10"]);
        assert_eq!(rejects(&decoded), [(3, TypeMismatch)]);
    }

    #[test]
    fn positions_count_records_and_point_to_their_text() {
        let text = "\u{feff}{\"a\": 1}\r\n\r\n  \n{\"a\": x}\n\t{\"a\": 3} ";
        let decoded = Case::json("a INT").read(text);
        assert_eq!(column(&decoded, "a"), ["1", "3"]);
        assert_eq!(rejects(&decoded), [(2, Malformed)]);
        assert_eq!(decoded.rejects[0].file_line, Some(4));
        let position = decoded.positions[1];
        assert_eq!((position.file_row, position.file_line), (3, Some(5)));
        assert_eq!(
            (decoded.raw(0), decoded.raw(1)),
            ("{\"a\": 1}".into(), "\t{\"a\": 3} ".into())
        );
        assert_eq!(decoded.positions[0].byte_offset, Some(3));
        assert_eq!(decoded.raw(2), "");
    }

    #[test]
    fn an_empty_file_has_no_records() {
        for text in ["", "\n\n", "\u{feff}"] {
            let decoded = Case::json(ORDERS).read(text);
            assert_eq!((decoded.rows.num_rows(), decoded.rejects.len()), (0, 0));
            assert_eq!(decoded.rows.num_columns(), 6);
        }
    }

    #[test]
    fn a_record_beyond_the_limit_is_refused_and_cut() {
        let text = format!(
            "{{\"a\": \"{}\"}}\n{{\"a\": \"y\"}}\n",
            "x".repeat(RECORD_BYTES_MAX)
        );
        let decoded = Case::json("a STRING").read(text);
        assert_eq!(rejects(&decoded), [(1, TooLarge)]);
        assert_eq!(decoded.rejects[0].raw.len(), RECORD_BYTES_MAX);
        assert_eq!(column(&decoded, "a"), ["y"]);
    }

    #[test]
    fn deep_nesting_refuses_the_record() {
        let deep = format!(
            "{{\"a\": {}{}}}\n{{\"a\": 1}}",
            "[".repeat(5000),
            "]".repeat(5000)
        );
        let decoded = Case::json("a STRING").read(deep);
        assert_eq!(rejects(&decoded), [(1, TooDeep)]);
        assert_eq!(column(&decoded, "a"), ["1"]);
    }

    #[test]
    fn wide_encodings_are_named() {
        let utf16: Vec<u8> = "{\"a\": 1}"
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        let marked = [&[0xFF, 0xFE], &utf16[..]].concat();
        for bytes in [&utf16, &marked] {
            let (reason, detail) = Case::json("a INT").fault(bytes);
            assert_eq!(reason, ParkReason::UnsupportedEncoding);
            assert!(detail.contains("UTF-16LE"), "{detail}");
        }
        let utf32: Vec<u8> = "{\"a\": 1}"
            .chars()
            .flat_map(|c| (c as u32).to_be_bytes())
            .collect();
        assert!(Case::json("a INT").fault(utf32).1.contains("UTF-32BE"));
        let mut case = Case::json("a INT");
        case.settings.json.encoding = TextEncoding::Utf16;
        for bytes in [&utf16, &marked] {
            assert_eq!(column(&case.read(bytes), "a"), ["1"]);
        }
        case.settings.json.multi_line = true;
        let open: Vec<u8> = "\u{feff}{\"a\": 1}\n\u{e9}"
            .encode_utf16()
            .flat_map(u16::to_be_bytes)
            .collect();
        assert_eq!(case.fault(open).1, "line 2, byte 20: expected an object");
    }

    #[test]
    fn a_cut_gzip_gives_no_rows() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        (1..50).for_each(|id| {
            encoder
                .write_all(order(id, "\"amount\": 1").as_bytes())
                .unwrap()
        });
        let packed = encoder.finish().unwrap();
        let mut case = Case::json(ORDERS);
        case.path = "cut.jsonl.gz";
        assert_eq!(
            case.fault(&packed[..packed.len() * 6 / 10]).0,
            ParkReason::TruncatedStream
        );
        let decoded = case.read(&packed);
        assert_eq!(decoded.rows.num_rows(), 49);
        assert!(decoded.raw(48).contains("\"order_id\": 49"));
    }

    #[test]
    fn hostile_names_refuse_their_record_and_odd_ones_become_columns() {
        let hostile = order(
            3,
            "\"status\\\" = 'x' OR \\\"1\": \"boom\", \"x; DROP TABLE silver\": \"boom\"",
        );
        let text = order(
            1,
            "\"a.b\": \"x\", \"1inch\": \"y\", \"select\": \"z\", \"order-date\": 1",
        ) + &hostile;
        let decoded = Case::json(ORDERS).read(text);
        assert_eq!(rejects(&decoded), [(2, InvalidColumnName)]);
        let names: Vec<_> = new_columns(&decoded)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["a.b", "1inch", "select", "order-date"]);
    }

    #[test]
    fn a_name_in_another_case_refuses_its_record_unless_it_is_null() {
        let decoded = Case::json("orderId BIGINT")
            .read("{\"orderid\": 1}\n{\"orderid\": null, \"orderId\": 2}\n");
        assert_eq!(rejects(&decoded), [(1, ColumnCaseConflict)]);
        assert!(new_columns(&decoded).is_empty());
    }

    #[test]
    fn new_columns_get_the_type_that_holds_all_their_values() {
        let text = r#"{"coupon": null, "weight": 5, "flag": true, "big": 1, "mix": 1}
{"weight": 5.25, "big": 9223372036854775808, "mix": true, "o": {"x": 1}}"#;
        let decoded = Case::json("a INT").read(text);
        let expected = [
            ("weight", "DOUBLE"),
            ("flag", "BOOLEAN"),
            ("big", "DECIMAL(38,0)"),
            ("mix", "STRING"),
            ("o", "STRING"),
        ];
        assert_eq!(
            new_columns(&decoded),
            expected.map(|(name, ddl)| (name.to_string(), ddl.to_string()))
        );
        let schema = crate::schema::TableSchema::from_hints("a INT")
            .unwrap()
            .extended(&decoded.new_columns);
        let again = decode(
            "f",
            decoded.text,
            &schema,
            &settings(crate::settings::Format::Json),
        )
        .unwrap();
        assert!(again.new_columns.is_empty() && again.rejects.is_empty());
        assert_eq!(column(&again, "mix"), ["1", "true"]);
        assert_eq!(column(&again, "o"), ["-", "{\"x\": 1}"]);
        let mut case = Case::json("a INT");
        case.settings.infer_column_types = false;
        assert!(
            new_columns(&case.read(text))
                .iter()
                .all(|(_, ddl)| ddl == "STRING")
        );
    }

    #[test]
    fn whole_numbers_first_then_a_fraction_is_a_mismatch() {
        let decoded = Case::json("weight BIGINT").read("{\"weight\": 5.25}");
        assert_eq!(rejects(&decoded), [(1, TypeMismatch)]);
        assert!(
            decoded.rejects[0].detail.contains("weight")
                && decoded.rejects[0].detail.contains("BIGINT")
        );
    }

    #[test]
    fn rescue_keeps_what_fits_no_column() {
        let text = "{\"a\": 1, \"b c\": \"x\\ny\", \"n\": null}\n{\"a\": 2}\n{\"a\": \"z\"}\n";
        let case = Case::json("a INT")
            .evolution(SchemaEvolutionMode::Rescue)
            .rescuing();
        let decoded = case.read(text);
        assert_eq!(column(&decoded, "a"), ["1", "2", "-"]);
        let expected = [
            "{\"b c\":\"x\\ny\",\"_file_path\":\"orders.jsonl\"}",
            "-",
            "{\"a\":\"z\",\"_file_path\":\"orders.jsonl\"}",
        ];
        assert_eq!(column(&decoded, "_rescued_data"), expected);
        assert!(decoded.new_columns.is_empty());
        let malformed = case.read("{\"a\": 1");
        assert_eq!(rejects(&malformed), [(1, Malformed)]);
    }

    #[test]
    fn fields_that_a_struct_lacks_are_rescued_with_the_whole_value() {
        let text = "{\"s\": {\"x\": 1, \"y\": 2}}\n{\"s\": {\"x\": 1}}\n";
        let decoded = Case::json("s STRUCT<x: INT>").read(text);
        assert_eq!(column(&decoded, "s"), ["{x: 1}", "{x: 1}"]);
        let rescued = "{\"s\":{\"x\": 1, \"y\": 2},\"_file_path\":\"orders.jsonl\"}";
        assert_eq!(column(&decoded, "_rescued_data"), [rescued, "-"]);
    }

    #[test]
    fn new_columns_stand_in_the_order_of_the_rows_that_bring_them() {
        let text = "{\"a\":\"x\",\"late\":1}\n{\"early\":2}\n{\"late\":3}\n";
        let decoded = Case::json("a INT").read(text);
        assert_eq!(rejects(&decoded), [(1, TypeMismatch)]);
        let names = new_columns(&decoded).into_iter().map(|(name, _)| name);
        assert_eq!(names.collect::<Vec<_>>(), ["early", "late"]);
        assert_eq!(decoded.new_column_places, ["line 2", "line 3"]);
    }

    #[test]
    fn new_columns_may_be_ignored_or_fail_the_file() {
        let text = "{\"a\": 1, \"n\": null}\n{\"a\": 2, \"n\": 1}\n";
        let none = Case::json("a INT")
            .evolution(SchemaEvolutionMode::None)
            .read(text);
        assert_eq!(column(&none, "_rescued_data"), ["-", "-"]);
        let fail = Case::json("a INT").evolution(SchemaEvolutionMode::FailOnNewColumns);
        assert_eq!(
            fail.fault(text),
            (
                ParkReason::NewColumns,
                "new columns: n (first in line 2)".into()
            )
        );
        assert_eq!(fail.read("{\"a\": 1, \"n\": null}\n").rows.num_rows(), 1);
    }

    #[test]
    fn set_formats_are_used_for_dates_and_times() {
        let mut case = Case::json("d DATE, t TIMESTAMP");
        case.settings.json.date_format = Some("%d.%m.%Y".into());
        case.settings.json.timestamp_format = Some("%s".into());
        let decoded = case.read("{\"d\": \"31.03.2024\", \"t\": 1711843800}");
        assert_eq!(column(&decoded, "d"), ["2024-03-31"]);
        assert_eq!(column(&decoded, "t"), ["2024-03-31T00:10:00Z"]);
    }

    #[test]
    fn garbage_never_panics_and_every_record_is_counted() {
        let pieces: [&[u8]; 24] = [
            b"{",
            b"}",
            b"[",
            b"]",
            b"\"",
            b"\\",
            b"\\u",
            b"d800",
            b",",
            b":",
            b"\"a\"",
            b"\"b\":",
            b"1",
            b"-",
            b"e9",
            b".",
            b"null",
            b"true",
            b"NaN",
            b"\xff",
            b"\xc3\xa9",
            b"\0",
            b" ",
            b"\r",
        ];
        let mut next = numbers(7);
        let case = Case::json("a DECIMAL(5,2), b STRUCT<x: INT>").rescuing();
        for _ in 0..500 {
            let mut text = Vec::new();
            for _ in 0..next(20) {
                text.extend_from_slice(b"{\"a\":");
                (0..next(8)).for_each(|_| text.extend_from_slice(pieces[next(pieces.len())]));
                text.extend_from_slice(b"}\n");
            }
            let lines = text
                .split(|byte| *byte == b'\n')
                .filter(|line| !line.is_empty())
                .count();
            let decoded = case.read(&text);
            assert_eq!(decoded.rows.num_rows() + decoded.rejects.len(), lines);
        }
    }
}
