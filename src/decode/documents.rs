//! Cuts JSON documents that follow each other into records: each is an object, or an array of them.
//!
//! A record reaches from its opening bracket to the closing one, however many lines that takes; nothing is built of it here,
//! so an array of any length costs no memory. Where brackets do not fit, or text stands between the records that is no
//! JSON, nobody can say where the next record begins, and the whole file is at fault. What a record holds is left to
//! `json`.

use super::marks::{length_before, length_before_bracket};
use super::rows::Place;
use super::token;
use crate::change::{FileFault, ParkReason};
use memchr::memchr_iter;

/// Brackets inside of one record are followed this deep; far deeper than a record may be.
const BRACKETS_MAX: usize = 1 << 20;

/// Where and why the framing is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FramingFault {
    pub(super) reason: ParkReason,
    /// The physical line, from 1.
    pub(super) line: i64,
    /// Bytes before the place.
    pub(super) at: usize,
    pub(super) what: String,
    /// Line and bytes count from the beginning of the file.
    pub(super) is_placed: bool,
}

impl FramingFault {
    /// The fault of a file, whose byte `at` is that of the text.
    pub(super) fn of_file(&self, at: usize) -> FileFault {
        let detail = format!("line {}, byte {at}: {}", self.line, self.what);
        FileFault::new(self.reason, detail)
    }

    /// The same in a text with so many lines and bytes before this one.
    pub(super) fn behind(self, lines: i64, bytes: usize) -> FramingFault {
        FramingFault {
            line: self.line + lines,
            at: self.at + bytes,
            is_placed: true,
            ..self
        }
    }
}

/// What stands before the present place of an open array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Bracket,
    Comma,
    Record,
}

/// Where an array was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Opened {
    Here(usize),
    /// In a stretch of the text before; what is told where it is never closed.
    Before(Box<FramingFault>),
}

/// What a stretch of a text must know of those before it.
#[derive(Clone, Debug, Default)]
pub(super) struct Resumed {
    array: Option<(Box<FramingFault>, Before)>,
}

/// The records of a text, one after the other.
pub(super) struct Documents<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The physical line of `counted`.
    line: i64,
    counted: usize,
    /// The array that the records are in.
    array: Option<(Opened, Before)>,
    /// The closing brackets that the present record still needs.
    closing: Vec<u8>,
}

impl<'a> Documents<'a> {
    pub(super) fn new(bytes: &'a [u8], start: usize) -> Self {
        Documents {
            bytes,
            at: start,
            line: 1,
            counted: start,
            array: None,
            closing: Vec::new(),
        }
    }

    /// Goes on behind a stretch of the same text.
    pub(super) fn resume(bytes: &'a [u8], start: usize, resumed: Resumed) -> Self {
        Documents {
            array: resumed
                .array
                .map(|(fault, before)| (Opened::Before(fault), before)),
            ..Documents::new(bytes, start)
        }
    }

    /// What a stretch that begins at the present place must know, with `lines` and `bytes` of the text before this one.
    pub(super) fn suspend(&mut self, lines: i64, bytes: usize) -> Resumed {
        let array = self.array.clone().map(|(opened, before)| {
            let fault = match opened {
                Opened::Before(fault) => fault,
                Opened::Here(at) => {
                    let fault = self.never_closed(at, "array");
                    Box::new(fault.behind(lines, bytes))
                }
            };
            (fault, before)
        });
        Resumed { array }
    }

    /// Bytes before the present place.
    pub(super) fn place(&self) -> usize {
        self.at
    }

    /// The next record with its bytes; not all of them are objects.
    pub(super) fn next(&mut self) -> Result<Option<(Place, &'a [u8])>, FramingFault> {
        match self.begin()? {
            true => self.record().map(Some),
            false => Ok(None),
        }
    }

    /// Goes to the beginning of the next record; false at the end. The record must be taken before the next one.
    pub(super) fn begin(&mut self) -> Result<bool, FramingFault> {
        loop {
            self.skip_blanks();
            let state = self.array.as_ref().map(|(_, before)| *before);
            match (state, self.peek()) {
                (None, None) => return Ok(false),
                (None, Some(b'[')) => {
                    self.array = Some((Opened::Here(self.at), Before::Bracket));
                }
                (None, Some(_)) => return Ok(true),
                (Some(_), None) => return Err(self.array_never_closed()),
                (Some(Before::Bracket | Before::Record), Some(b']')) => self.array = None,
                (Some(Before::Record), Some(b',')) => self.set(Before::Comma),
                (Some(Before::Record), Some(_)) => {
                    let what = "expected a comma or a closing bracket behind a record";
                    return Err(self.not_json(self.at, what));
                }
                (Some(Before::Bracket | Before::Comma), Some(_)) => {
                    self.set(Before::Record);
                    return Ok(true);
                }
            }
            self.at += 1;
        }
    }

    fn set(&mut self, before: Before) {
        if let Some((_, known)) = &mut self.array {
            *known = before;
        }
    }

    fn array_never_closed(&mut self) -> FramingFault {
        match self.array.clone() {
            Some((Opened::Before(fault), _)) => *fault,
            Some((Opened::Here(at), _)) => self.never_closed(at, "array"),
            None => self.never_closed(self.at, "array"),
        }
    }

    /// Takes the record that begins at the present place.
    pub(super) fn record(&mut self) -> Result<(Place, &'a [u8]), FramingFault> {
        let start = self.at;
        match self.peek() {
            Some(b'{' | b'[') => self.bracketed()?,
            Some(b'"') => self.quoted(start, "text")?,
            _ => self.word()?,
        }
        let end = self.at;
        self.at = start;
        Ok((self.known_record(end), &self.bytes[start..end]))
    }

    /// Takes the record that begins at the present place, whose end is known.
    pub(super) fn known_record(&mut self, end: usize) -> Place {
        let start = self.at;
        self.at = end;
        Place {
            line: Some(self.line_of(start)),
            offset: Some(start),
            length: end - start,
        }
    }

    /// Goes behind the bracket that closes the one at the place.
    fn bracketed(&mut self) -> Result<(), FramingFault> {
        let opened = self.at;
        let kind = match self.peek() {
            Some(b'{') => "object",
            _ => "array",
        };
        self.closing.clear();
        loop {
            self.at += length_before_bracket(self.rest());
            let at = self.at;
            match self.peek() {
                None => return Err(self.never_closed(opened, kind)),
                Some(b'"') => {
                    self.quoted(opened, kind)?;
                    continue;
                }
                Some(b'{') => self.closing.push(b'}'),
                Some(b'[') => self.closing.push(b']'),
                Some(found @ (b'}' | b']')) => match self.closing.pop() {
                    Some(expected) if expected == found => {}
                    _ => return Err(self.not_json(at, "a bracket closes that was not opened")),
                },
                Some(_) => {}
            }
            if self.closing.len() > BRACKETS_MAX {
                let what = format!("brackets nest deeper than {BRACKETS_MAX}");
                return Err(self.not_json(at, &what));
            }
            self.at += 1;
            if self.closing.is_empty() {
                return Ok(());
            }
        }
    }

    /// Goes behind the quote that closes the one at the place.
    fn quoted(&mut self, opened: usize, kind: &str) -> Result<(), FramingFault> {
        self.at += 1;
        loop {
            self.at += length_before(b'"', b'\\', self.rest());
            if self.at >= self.bytes.len() {
                return Err(self.never_closed(opened, kind));
            }
            let is_end = self.peek() == Some(b'"');
            // A backslash takes the character behind it along.
            self.at += if is_end { 1 } else { 2 };
            if is_end {
                return Ok(());
            }
        }
    }

    /// Goes behind a number or a word, which must be JSON.
    fn word(&mut self) -> Result<(), FramingFault> {
        let start = self.at;
        let is_end = |byte: &u8| b" \t\r\n,:\"[]{}".contains(byte);
        let rest = self.rest();
        let length = rest.iter().position(is_end).unwrap_or(rest.len());
        self.at += length;
        let text = std::str::from_utf8(&rest[..length]).ok();
        match text.map(token::one_value) {
            Some(Ok(_)) => Ok(()),
            _ => Err(self.not_json(start, "expected an object")),
        }
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// The physical line of a place, which must not lie before one asked for earlier, unless it is a fault's.
    fn line_of(&mut self, at: usize) -> i64 {
        let feeds = |range: &[u8]| i64::try_from(memchr_iter(b'\n', range).count()).unwrap_or(0);
        if at < self.counted {
            return self.line - feeds(&self.bytes[at..self.counted]);
        }
        self.line += feeds(&self.bytes[self.counted..at]);
        self.counted = at;
        self.line
    }

    fn never_closed(&mut self, opened: usize, kind: &str) -> FramingFault {
        FramingFault {
            reason: ParkReason::TruncatedStream,
            line: self.line_of(opened),
            at: opened,
            what: format!("the {kind} that begins here is never closed"),
            is_placed: false,
        }
    }

    fn not_json(&mut self, at: usize, what: &str) -> FramingFault {
        FramingFault {
            reason: ParkReason::NotThisFormat,
            line: self.line_of(at),
            at,
            what: what.to_string(),
            is_placed: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::testing::numbers;

    fn records(text: &str) -> Result<Vec<(i64, &str)>, FramingFault> {
        let mut documents = Documents::new(text.as_bytes(), 0);
        let mut records = Vec::new();
        while let Some((place, bytes)) = documents.next()? {
            let start = place.offset.unwrap();
            assert_eq!(&text.as_bytes()[start..start + place.length], bytes);
            records.push((place.line.unwrap(), std::str::from_utf8(bytes).unwrap()));
        }
        Ok(records)
    }

    #[test]
    fn framing_that_is_lost_is_named_with_its_place() {
        let truncated = ParkReason::TruncatedStream;
        let foreign = ParkReason::NotThisFormat;
        for (text, reason, line, at) in [
            ("[{\"a\": 1},\n {\"a\": 2}\n", truncated, 1, 0),
            ("[\n{\"a\": 1},\n{\"a\": 2", truncated, 3, 12),
            ("{\"a\": 1}\n{\"a\": \"x}", truncated, 2, 9),
            ("{\"a\": \"x\\", truncated, 1, 0),
            ("\"x", truncated, 1, 0),
            ("[", truncated, 1, 0),
            ("{\"a\": 1}\nhello {\"a\": 2}", foreign, 2, 9),
            ("[{\"a\": 1}\n{\"a\": 2}]", foreign, 2, 10),
            ("[{\"a\": 1},\n]", foreign, 2, 11),
            ("[,{\"a\": 1}]", foreign, 1, 1),
            ("[{\"a\": 1}, NaN]", foreign, 1, 11),
            ("{\"a\": [1}\n", foreign, 1, 8),
            ("{\"a\": 1},\n{\"a\": 2}", foreign, 1, 8),
            ("[{\"a\": 1}]]", foreign, 1, 10),
            ("{\"a\": 1}}", foreign, 1, 8),
            ("a,b\n1,2\n", foreign, 1, 0),
            ("01", foreign, 1, 0),
        ] {
            let fault = records(text).unwrap_err();
            assert_eq!(
                (fault.reason, fault.line, fault.at),
                (reason, line, at),
                "{text}: {}",
                fault.what
            );
        }
        let deep = "[".repeat(BRACKETS_MAX + 3);
        assert_eq!(records(&deep).unwrap_err().reason, foreign);
    }

    #[test]
    fn documents_follow_each_other_with_and_without_line_ends() {
        let text = "{\n \"a\": 1\n}{\"b\": {}}\n\n[{\"c\": \"]}\\\"\\\\\"},\n  5 ,null,[1], \"x\"] [] [\n]\n7";
        let expected = [
            (1, "{\n \"a\": 1\n}"),
            (3, "{\"b\": {}}"),
            (5, "{\"c\": \"]}\\\"\\\\\"}"),
            (6, "5"),
            (6, "null"),
            (6, "[1]"),
            (6, "\"x\""),
            (8, "7"),
        ];
        assert_eq!(records(text).unwrap(), expected);
        for nothing in ["", " \n\t", "[]", "[ ][]"] {
            assert_eq!(records(nothing).unwrap(), [], "{nothing}");
        }
    }

    #[test]
    fn garbage_never_panics_and_records_stay_in_their_order() {
        let pieces = [
            "{", "}", "[", "]", ",", ":", "\"", "\\", "1", "null", "x", "\n", " ", "\u{e9}",
        ];
        let mut next = numbers(7);
        for _ in 0..5000 {
            let text: String = (0..next(24)).map(|_| pieces[next(pieces.len())]).collect();
            match records(&text) {
                Ok(records) => assert!(records.is_sorted_by_key(|(line, _)| *line)),
                Err(fault) => {
                    let line = text.as_bytes()[..fault.at].iter().filter(|b| **b == b'\n');
                    assert_eq!(fault.line, line.count() as i64 + 1, "{text:?}");
                }
            }
        }
    }
}
