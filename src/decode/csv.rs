//! Separated values after RFC 4180: a record may span lines inside of quotes, fields go to columns by the header.
//!
//! A record that is broken stays one record; a quote that is never closed costs the whole file, because nobody can
//! say where the next record begins.

use super::json::{invalid_utf8, too_large};
use super::rows::{Place, RecordFault, Rows, json_text, lossless_text, shorten};
use super::value::{Cell, FieldValue, Misfit, ValueReader};
use super::{RECORD_BYTES_MAX, infer};
use crate::change::{FileFault, ParkReason, RejectReason};
use crate::schema::parse_ddl;
use crate::settings::{CsvSettings, SourceSettings};
use arrow::datatypes::DataType;
use memchr::{memchr, memchr2};
use std::borrow::Cow;
use std::collections::HashSet;

/// A field as read; a value without quotes may be NULL.
#[derive(Clone, Debug)]
struct CsvValue<'a> {
    text: Cow<'a, str>,
    is_null: bool,
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

/// Reads all records of `bytes` from `start` on.
pub(super) fn read<'a>(
    bytes: &'a [u8],
    start: usize,
    settings: &SourceSettings,
    delimiter: u8,
    rows: &mut Rows<'a>,
) -> Result<(), FileFault> {
    let dialect = &settings.csv;
    let mut framer = Framer {
        bytes,
        at: start,
        line: 1,
        dialect,
        delimiter,
    };
    let mut fields = Vec::new();
    let targets = if dialect.header {
        match framer.next(&mut fields)? {
            None => return Ok(()),
            Some(header) => header_targets(&header, &fields, dialect, rows)?,
        }
    } else {
        hinted_targets(settings, rows)
    };
    while let Some(record) = framer.next(&mut fields)? {
        match read_record(&record, &fields, &targets, dialect, rows) {
            Ok(()) => rows.take(record.place),
            Err(fault) => {
                let raw = lossless_text(&record.bytes[..record.bytes.len().min(RECORD_BYTES_MAX)]);
                rows.refuse(record.place, fault, raw);
            }
        }
    }
    Ok(())
}

fn header_targets<'a>(
    header: &Record<'a>,
    fields: &[RawField<'a>],
    dialect: &CsvSettings,
    rows: &Rows<'a>,
) -> Result<Vec<Target>, FileFault> {
    let line = header.place.line.unwrap_or(1);
    let not_a_header = |why: &str| {
        FileFault::new(
            ParkReason::NotThisFormat,
            format!("line {line}, header: {why}"),
        )
    };
    if let Some(fault) = &header.fault {
        return Err(not_a_header(&fault.detail));
    }
    let mut seen = HashSet::new();
    let mut targets = Vec::with_capacity(fields.len());
    for field in fields {
        let name = field
            .text(dialect)
            .map_err(|_| not_a_header("it is not UTF-8"))?
            .into_owned();
        // A delimiter at the end of every line makes columns without a name; a value in one is refused with its record.
        if !name.is_empty() && !seen.insert(name.clone()) {
            return Err(not_a_header(&format!(
                "column {} stands twice",
                shorten(&name)
            )));
        }
        targets.push(match rows.index_of(&name) {
            Some(index) => Target::Known(index),
            None => Target::Unknown(name),
        });
    }
    Ok(targets)
}

/// Without a header the hints name the columns; the schema may have grown by other files since.
fn hinted_targets(settings: &SourceSettings, rows: &Rows<'_>) -> Vec<Target> {
    let hints = parse_ddl(&settings.schema_hints).unwrap_or_default();
    hints
        .into_iter()
        .map(|hint| match rows.index_of(hint.name()) {
            Some(index) => Target::Known(index),
            None => Target::Unknown(hint.name().clone()),
        })
        .collect()
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
        return Err(invalid_utf8(error.valid_up_to()));
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
        let text = field.text(dialect)?;
        let null_word = dialect.null_value.as_deref();
        let is_null = !field.is_quoted && (text.is_empty() || null_word == Some(&*text));
        let value = CsvValue { text, is_null };
        match target {
            Target::Known(index) => rows.set(*index, &value)?,
            Target::Unknown(_) if is_null => {}
            Target::Unknown(name) => rows.set_unknown(&Cow::Owned(name.clone()), &value)?,
        }
    }
    Ok(())
}

/// One record as framed.
struct Record<'a> {
    place: Place,
    /// Without its line end.
    bytes: &'a [u8],
    /// The framing of the record itself is broken, that of the file is not.
    fault: Option<RecordFault>,
}

/// One field as framed.
#[derive(Clone, Copy, Debug)]
struct RawField<'a> {
    /// Between the quotes, if there are any.
    bytes: &'a [u8],
    is_quoted: bool,
    has_escapes: bool,
}

impl<'a> RawField<'a> {
    fn text(&self, dialect: &CsvSettings) -> Result<Cow<'a, str>, RecordFault> {
        let text =
            std::str::from_utf8(self.bytes).map_err(|error| invalid_utf8(error.valid_up_to()))?;
        let Some(quote) = dialect.quote.filter(|_| self.has_escapes) else {
            return Ok(Cow::Borrowed(text));
        };
        let escape = dialect.escape.unwrap_or(quote);
        let mut bytes = Vec::with_capacity(self.bytes.len());
        let mut at = 0;
        while let Some(byte) = self.bytes.get(at) {
            let next = self.bytes.get(at + 1);
            // An escape before anything else is a byte like others.
            let is_escape =
                *byte == escape && next.is_some_and(|next| *next == quote || *next == escape);
            at += usize::from(is_escape);
            bytes.extend(self.bytes.get(at));
            at += 1;
        }
        String::from_utf8(bytes)
            .map(Cow::Owned)
            .map_err(|error| invalid_utf8(error.utf8_error().valid_up_to()))
    }
}

/// Cuts bytes into records and fields.
struct Framer<'a, 'd> {
    bytes: &'a [u8],
    at: usize,
    /// The physical line of `at`.
    line: i64,
    dialect: &'d CsvSettings,
    delimiter: u8,
}

impl<'a> Framer<'a, '_> {
    /// The next record that is neither blank nor a comment.
    fn next(&mut self, fields: &mut Vec<RawField<'a>>) -> Result<Option<Record<'a>>, FileFault> {
        while self.at < self.bytes.len() {
            let line_end = self.line_end(self.at);
            let line = trim_cr(&self.bytes[self.at..line_end]);
            let is_comment = self
                .dialect
                .comment
                .is_some_and(|comment| line.first() == Some(&comment));
            if !line.is_empty() && !is_comment {
                return self.record(fields).map(Some);
            }
            self.at = line_end + 1;
            self.line += 1;
        }
        Ok(None)
    }

    fn record(&mut self, fields: &mut Vec<RawField<'a>>) -> Result<Record<'a>, FileFault> {
        fields.clear();
        let (start, line) = (self.at, self.line);
        let mut fault = None;
        loop {
            let is_quoted = self.dialect.quote.is_some() && self.peek() == self.dialect.quote;
            if is_quoted {
                fields.push(self.quoted_field(&mut fault)?);
            } else {
                fields.push(self.plain_field());
            }
            if self.peek() != Some(self.delimiter) {
                break;
            }
            self.at += 1;
        }
        // The place is at the line feed or the end.
        let bytes = trim_cr(&self.bytes[start..self.at]);
        self.at += 1;
        self.line += 1;
        let place = Place {
            line: Some(line),
            offset: i64::try_from(start).ok(),
            length: i64::try_from(bytes.len()).unwrap_or_default(),
        };
        Ok(Record {
            place,
            bytes,
            fault,
        })
    }

    /// Reads up to a delimiter or the end of the line.
    fn plain_field(&mut self) -> RawField<'a> {
        let rest = &self.bytes[self.at..];
        let length = memchr2(self.delimiter, b'\n', rest).unwrap_or(rest.len());
        self.at += length;
        let is_last = self.peek() != Some(self.delimiter);
        let bytes = if is_last {
            trim_cr(&rest[..length])
        } else {
            &rest[..length]
        };
        RawField {
            bytes,
            is_quoted: false,
            has_escapes: false,
        }
    }

    /// Reads a field in quotes and what stands behind it up to a delimiter or the end of the line.
    fn quoted_field(&mut self, fault: &mut Option<RecordFault>) -> Result<RawField<'a>, FileFault> {
        let opened_line = self.line;
        let start = self.at + 1;
        let mut has_escapes = false;
        let Some(end) = self.closing_quote(start, &mut has_escapes) else {
            if self.dialect.multi_line {
                let detail = format!("the quote that opens in line {opened_line} is never closed");
                return Err(FileFault::new(ParkReason::UnclosedQuote, detail));
            }
            fault.get_or_insert(malformed(opened_line, "a quote is not closed on its line"));
            self.at = self.line_end(start);
            return Ok(RawField {
                bytes: &[],
                is_quoted: true,
                has_escapes: false,
            });
        };
        let inner = &self.bytes[start..end];
        self.line += i64::try_from(memchr::memchr_iter(b'\n', inner).count()).unwrap_or_default();
        self.at = end + 1;
        let behind = self.plain_field();
        if !behind.bytes.is_empty() {
            fault.get_or_insert(malformed(self.line, "there is text behind a closing quote"));
        }
        Ok(RawField {
            bytes: inner,
            is_quoted: true,
            has_escapes,
        })
    }

    /// Where the quote closes that opened before `from`.
    fn closing_quote(&self, from: usize, has_escapes: &mut bool) -> Option<usize> {
        let quote = self.dialect.quote?;
        let escape = self.dialect.escape.unwrap_or(quote);
        let limit = if self.dialect.multi_line {
            self.bytes.len()
        } else {
            self.line_end(from)
        };
        let mut at = from;
        loop {
            let found = at + memchr2(quote, escape, self.bytes.get(at..limit)?)?;
            let next = self.bytes[..limit].get(found + 1).copied();
            let is_escape =
                self.bytes[found] == escape && (next == Some(quote) || next == Some(escape));
            if is_escape {
                *has_escapes = true;
                at = found + 2;
            } else if self.bytes[found] == quote {
                return Some(found);
            } else {
                at = found + 1;
            }
        }
    }

    fn line_end(&self, from: usize) -> usize {
        let rest = self.bytes.get(from..).unwrap_or_default();
        memchr(b'\n', rest).map_or(self.bytes.len(), |length| from + length)
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }
}

fn trim_cr(bytes: &[u8]) -> &[u8] {
    bytes.strip_suffix(b"\r").unwrap_or(bytes)
}

fn malformed(line: i64, what: &str) -> RecordFault {
    RecordFault::new(RejectReason::Malformed, format!("line {line}: {what}"))
}
