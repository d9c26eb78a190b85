//! Cuts separated values into records and fields.
//!
//! A record that is broken stays one record; only a quote that is never closed costs the framing of the file. Lines are those
//! on disk, so the numbers of records lead back to it.

use crate::change::{FileFault, ParkReason, RejectReason};
use crate::decode::marks::length_before;
use crate::decode::rows::{Place, RecordFault};
use crate::settings::CsvSettings;
use memchr::{memchr, memchr3};
use std::borrow::Cow;
use std::ops::Range;
use std::str::Utf8Error;

/// One record as framed.
pub(super) struct Record<'a> {
    pub(super) place: Place,
    /// Without its line end.
    pub(super) bytes: &'a [u8],
    /// The framing of the record itself is broken, that of the file is not.
    pub(super) fault: Option<RecordFault>,
}

/// One field as framed.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawField<'a> {
    /// Between the quotes, if there are any.
    pub(super) bytes: &'a [u8],
    /// The first of them in the text.
    start: usize,
    pub(super) is_quoted: bool,
    pub(super) has_escapes: bool,
}

impl<'a> RawField<'a> {
    /// The place of its bytes in the text.
    pub(super) fn range(&self) -> Range<usize> {
        self.start..self.start + self.bytes.len()
    }

    /// The text, without escapes.
    pub(super) fn text(&self, dialect: &CsvSettings) -> Result<Cow<'a, str>, Utf8Error> {
        let text = std::str::from_utf8(self.bytes)?;
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
            .map_err(|error| error.utf8_error())
    }
}

/// Cuts bytes into records and fields.
pub(super) struct Framer<'a, 'd> {
    pub(super) bytes: &'a [u8],
    at: usize,
    /// The physical line of `at`.
    line: i64,
    pub(super) dialect: &'d CsvSettings,
    delimiter: u8,
    /// Ends a line, perhaps behind a carriage return that is no part of it either.
    line_end: u8,
}

impl<'a, 'd> Framer<'a, 'd> {
    /// From `start` on, which stands in this line.
    pub(super) fn new(
        bytes: &'a [u8],
        start: usize,
        line: i64,
        dialect: &'d CsvSettings,
        delimiter: u8,
    ) -> Self {
        Framer {
            bytes,
            at: start,
            line,
            dialect,
            delimiter,
            line_end: dialect.line_sep.unwrap_or(b'\n'),
        }
    }

    /// Passes the lines that the settings leave out.
    pub(super) fn skip_lines(&mut self) {
        for _ in 0..self.dialect.skip_rows {
            if self.at >= self.bytes.len() {
                break;
            }
            self.at = self.end_of_line(self.at) + 1;
            self.line += 1;
        }
    }

    /// The next record that is neither blank nor a comment.
    pub(super) fn next(
        &mut self,
        fields: &mut Vec<RawField<'a>>,
    ) -> Result<Option<Record<'a>>, FileFault> {
        while let Some(first) = self.peek() {
            let may_be_skipped = first == self.line_end || first == b'\r';
            if !may_be_skipped && self.dialect.comment != Some(first) {
                return self.record(fields).map(Some);
            }
            let line_end = self.end_of_line(self.at);
            let line = self.without_return(&self.bytes[self.at..line_end]);
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
            if self.dialect.ignore_leading_white_space {
                self.skip_blanks_before_quote();
            }
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
        let bytes = self.without_return(&self.bytes[start..self.at]);
        self.at += 1;
        self.line += 1;
        let place = Place {
            line: Some(line),
            offset: Some(start),
            length: bytes.len(),
        };
        Ok(Record {
            place,
            bytes,
            fault,
        })
    }

    fn plain_field(&mut self) -> RawField<'a> {
        let start = self.at;
        let bytes = self.up_to_delimiter();
        let (blanks, bytes) = self.without_blanks(bytes);
        RawField {
            bytes,
            start: start + blanks,
            is_quoted: false,
            has_escapes: false,
        }
    }

    /// Reads up to a delimiter or the end of the line.
    fn up_to_delimiter(&mut self) -> &'a [u8] {
        let rest = &self.bytes[self.at..];
        let length = length_before(self.delimiter, self.line_end, rest);
        self.at += length;
        match self.peek() == Some(self.delimiter) {
            true => &rest[..length],
            false => self.without_return(&rest[..length]),
        }
    }

    /// Reads a field in quotes and what stands behind it up to a delimiter or the end of the line.
    fn quoted_field(&mut self, fault: &mut Option<RecordFault>) -> Result<RawField<'a>, FileFault> {
        let opened_line = self.line;
        let start = self.at + 1;
        let mut has_escapes = false;
        let Some(end) = self.closing_quote(start, &mut has_escapes) else {
            if self.dialect.multi_line {
                return Err(unclosed(opened_line));
            }
            fault.get_or_insert(malformed(opened_line, "a quote is not closed on its line"));
            self.at = self.end_of_line(start);
            return Ok(RawField {
                bytes: &[],
                start,
                is_quoted: true,
                has_escapes: false,
            });
        };
        let inner = &self.bytes[start..end];
        self.line +=
            i64::try_from(memchr::memchr_iter(self.line_end, inner).count()).unwrap_or_default();
        self.at = end + 1;
        let behind = self.up_to_delimiter();
        let is_blank =
            self.dialect.ignore_trailing_white_space && behind.iter().all(|b| self.is_blank(*b));
        if !behind.is_empty() && !is_blank {
            fault.get_or_insert(malformed(self.line, "there is text behind a closing quote"));
        }
        Ok(RawField {
            bytes: inner,
            start,
            is_quoted: true,
            has_escapes,
        })
    }

    /// Where the quote closes that opened before `from`; `None` at the end of the file, or of the line where a field
    /// may not span lines.
    fn closing_quote(&self, from: usize, has_escapes: &mut bool) -> Option<usize> {
        let quote = self.dialect.quote?;
        let escape = self.dialect.escape.unwrap_or(quote);
        // A second search for the quote itself finds nothing new.
        let stop = if self.dialect.multi_line {
            quote
        } else {
            self.line_end
        };
        let mut at = from;
        loop {
            let found = at + memchr3(quote, escape, stop, self.bytes.get(at..)?)?;
            let byte = self.bytes[found];
            let next = self.bytes.get(found + 1).copied();
            if byte == escape && (next == Some(quote) || next == Some(escape)) {
                *has_escapes = true;
                at = found + 2;
            } else if byte == quote {
                return Some(found);
            } else if byte == escape {
                at = found + 1;
            } else {
                return None;
            }
        }
    }

    fn end_of_line(&self, from: usize) -> usize {
        let rest = self.bytes.get(from..).unwrap_or_default();
        memchr(self.line_end, rest).map_or(self.bytes.len(), |length| from + length)
    }

    /// Lines end in LF or CRLF, unless another end is set.
    fn without_return(&self, line: &'a [u8]) -> &'a [u8] {
        match self.dialect.line_sep {
            None => line.strip_suffix(b"\r").unwrap_or(line),
            Some(_) => line,
        }
    }

    /// A field without quotes, without the blanks that the settings ignore, and how many of those stood before it.
    fn without_blanks(&self, field: &'a [u8]) -> (usize, &'a [u8]) {
        let (mut field, mut blanks) = (field, 0);
        while let [first, rest @ ..] = field
            && self.dialect.ignore_leading_white_space
            && self.is_blank(*first)
        {
            field = rest;
            blanks += 1;
        }
        while let [rest @ .., last] = field
            && self.dialect.ignore_trailing_white_space
            && self.is_blank(*last)
        {
            field = rest;
        }
        (blanks, field)
    }

    fn skip_blanks_before_quote(&mut self) {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let blanks = rest.iter().take_while(|byte| self.is_blank(**byte)).count();
        if self.dialect.quote.is_some() && rest.get(blanks).copied() == self.dialect.quote {
            self.at += blanks;
        }
    }

    fn is_blank(&self, byte: u8) -> bool {
        matches!(byte, b' ' | b'\t') && byte != self.delimiter
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }
}

/// A quote that opens in this line costs the file.
pub(in crate::decode) fn unclosed(line: i64) -> FileFault {
    let detail = format!("the quote that opens in line {line} is never closed");
    FileFault::new(ParkReason::UnclosedQuote, detail)
}

fn malformed(line: i64, what: &str) -> RecordFault {
    RecordFault::new(RejectReason::Malformed, format!("line {line}: {what}"))
}
