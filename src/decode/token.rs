//! JSON text to tokens that borrow from it.
//!
//! One pass checks syntax, depth and repeated names of a whole value; numbers and nested values stay text, so nothing
//! is rounded on the way. What a token means for a column is left to `value`.

use super::escape::{unescape, utf16_escape};
use super::marks::plain_length;
use crate::change::RejectReason;
use memchr::memchr2;
use std::borrow::Cow;

/// Objects and arrays may nest this deep, the record itself included.
pub(super) const NESTING_MAX: usize = 64;

/// Objects with more names than this are checked for repeats by sorting.
const NAMES_COMPARED_MAX: usize = 16;

/// One JSON value as text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Token<'a> {
    Null,
    Bool(bool),
    /// As written.
    Number(&'a str),
    /// Between the quotes, escapes as written.
    Text {
        inner: &'a str,
        has_escapes: bool,
    },
    /// An object or array as written.
    Nested(&'a str),
}

impl<'a> Token<'a> {
    /// The value as text, without quotes and escapes.
    pub(crate) fn text(&self) -> Cow<'a, str> {
        match self {
            Token::Text {
                inner,
                has_escapes: true,
            } => unescape(inner),
            other => Cow::Borrowed(other.written()),
        }
    }

    /// The value as JSON text.
    pub(crate) fn as_json(&self) -> Cow<'a, str> {
        match self {
            Token::Text { inner, .. } => Cow::Owned(format!("\"{inner}\"")),
            other => Cow::Borrowed(other.written()),
        }
    }

    /// The text as written, without quotes.
    pub(crate) fn written(&self) -> &'a str {
        match self {
            Token::Null => "null",
            Token::Bool(true) => "true",
            Token::Bool(false) => "false",
            Token::Number(text) | Token::Nested(text) => text,
            Token::Text { inner, .. } => inner,
        }
    }
}

/// One name with its value.
pub(crate) type Member<'a> = (Cow<'a, str>, Token<'a>);

/// What is wrong with a text, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SyntaxFault {
    pub(crate) reason: RejectReason,
    /// Bytes before the place.
    pub(crate) at: usize,
    pub(crate) what: String,
}

/// Reads the members of a text that should hold one object into `members`.
pub(super) fn object_text<'a>(
    text: &'a str,
    members: &mut Vec<Member<'a>>,
) -> Result<(), SyntaxFault> {
    members.clear();
    let mut scanner = Scanner::new(text);
    scanner.skip_blanks();
    if scanner.peek() != Some(b'{') {
        return Err(scanner.not_an_object());
    }
    scanner.object(1, Some(members))?;
    scanner.end()
}

/// The members of an object that was checked before.
pub(crate) fn members(object: &str) -> Result<Vec<Member<'_>>, SyntaxFault> {
    let mut members = Vec::new();
    let mut scanner = Scanner::new(object);
    scanner.is_checked = true;
    scanner.object(1, Some(&mut members))?;
    Ok(members)
}

/// The elements of an array that was checked before.
pub(crate) fn elements(array: &str) -> Result<Vec<Token<'_>>, SyntaxFault> {
    let mut elements = Vec::new();
    let mut scanner = Scanner::new(array);
    scanner.is_checked = true;
    scanner.array(1, Some(&mut elements))?;
    Ok(elements)
}

/// Reads a text that is one JSON value and nothing else.
pub(crate) fn one_value(text: &str) -> Result<Token<'_>, SyntaxFault> {
    let mut scanner = Scanner::new(text);
    scanner.skip_blanks();
    let token = scanner.value(0)?;
    scanner.end()?;
    Ok(token)
}

/// Reads JSON from a place in a text on.
pub(super) struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    /// The text was read before, so that no name stands twice in an object.
    is_checked: bool,
    /// The one blank that ends a line, where it is one.
    line_feed: Option<u8>,
}

impl<'a> Scanner<'a> {
    fn new(text: &'a str) -> Self {
        Scanner::at(text, 0)
    }

    /// Begins at byte `at` of the text.
    pub(super) fn at(text: &'a str, at: usize) -> Self {
        Scanner {
            text,
            bytes: text.as_bytes(),
            at,
            is_checked: false,
            line_feed: Some(b'\n'),
        }
    }

    /// The same, but nothing goes on behind the end of a line.
    pub(super) fn of_a_line(mut self) -> Self {
        self.line_feed = None;
        self
    }

    /// Bytes of the text before the place.
    pub(super) fn place(&self) -> usize {
        self.at
    }

    /// The bytes from the place on.
    pub(super) fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// Goes on by `length` bytes.
    pub(super) fn skip(&mut self, length: usize) {
        self.at += length;
    }

    /// Reads a value inside of `depth` objects and arrays.
    pub(super) fn value(&mut self, depth: usize) -> Result<Token<'a>, SyntaxFault> {
        let start = self.at;
        match self.peek() {
            Some(b'"') => {
                let (inner, has_escapes) = self.quoted()?;
                Ok(Token::Text { inner, has_escapes })
            }
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b'{') => {
                self.object(depth + 1, None)?;
                Ok(Token::Nested(&self.text[start..self.at]))
            }
            Some(b'[') => {
                self.array(depth + 1, None)?;
                Ok(Token::Nested(&self.text[start..self.at]))
            }
            Some(_) => self.word(),
            None => Err(self.malformed("the text ends where a value is expected")),
        }
    }

    fn object(
        &mut self,
        depth: usize,
        mut out: Option<&mut Vec<Member<'a>>>,
    ) -> Result<(), SyntaxFault> {
        self.open(b'{', depth)?;
        let mut names = Vec::new();
        if self.take(b'}') {
            return Ok(());
        }
        loop {
            self.skip_blanks();
            if self.peek() != Some(b'"') {
                return Err(self.malformed("expected a name in quotes"));
            }
            let name_at = self.at;
            let (inner, has_escapes) = self.quoted()?;
            let name = if has_escapes {
                unescape(inner)
            } else {
                Cow::Borrowed(inner)
            };
            self.skip_blanks();
            if !self.take(b':') {
                return Err(self.malformed("expected a colon"));
            }
            self.skip_blanks();
            let value = self.value(depth)?;
            match &mut out {
                Some(members) => {
                    let is_repeated = !self.is_checked
                        && members.len() < NAMES_COMPARED_MAX
                        && members.iter().any(|m| m.0 == name);
                    if is_repeated {
                        return Err(duplicate(&name, name_at));
                    }
                    members.push((name, value));
                }
                None if self.is_checked => {}
                None => names.push(name),
            }
            self.skip_blanks();
            if self.take(b'}') {
                break;
            }
            if !self.take(b',') {
                return Err(self.malformed("expected a comma or a closing brace"));
            }
        }
        match out {
            _ if self.is_checked => Ok(()),
            Some(members) if members.len() > NAMES_COMPARED_MAX => {
                self.check_names(members.iter().map(|member| member.0.as_ref()).collect())
            }
            Some(_) => Ok(()),
            None => self.check_names(names.iter().map(Cow::as_ref).collect()),
        }
    }

    fn check_names(&self, names: Vec<&str>) -> Result<(), SyntaxFault> {
        // Numbers sort faster than names; names of one number are compared.
        let marks = names
            .iter()
            .enumerate()
            .map(|(place, name)| (mark(name), place));
        let mut marks: Vec<(u64, usize)> = marks.collect();
        marks.sort_unstable();
        let is_alike = |pair: &&[(u64, usize)]| pair[0].0 == pair[1].0;
        if !marks.windows(2).any(|pair| is_alike(&pair)) {
            return Ok(());
        }
        let mut names = names;
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(duplicate(pair[0], self.at)),
            None => Ok(()),
        }
    }

    fn array(
        &mut self,
        depth: usize,
        mut out: Option<&mut Vec<Token<'a>>>,
    ) -> Result<(), SyntaxFault> {
        self.open(b'[', depth)?;
        if self.take(b']') {
            return Ok(());
        }
        loop {
            self.skip_blanks();
            let value = self.value(depth)?;
            if let Some(elements) = &mut out {
                elements.push(value);
            }
            self.skip_blanks();
            if self.take(b']') {
                return Ok(());
            }
            if !self.take(b',') {
                return Err(self.malformed("expected a comma or a closing bracket"));
            }
        }
    }

    fn open(&mut self, bracket: u8, depth: usize) -> Result<(), SyntaxFault> {
        if depth > NESTING_MAX {
            let what = format!("objects and arrays nest deeper than {NESTING_MAX}");
            return Err(SyntaxFault {
                reason: RejectReason::TooDeep,
                at: self.at,
                what,
            });
        }
        if !self.take(bracket) {
            return Err(self.malformed("expected an object or an array"));
        }
        self.skip_blanks();
        Ok(())
    }

    /// Reads a text in quotes that has no escapes; the place must be at the opening one.
    #[inline]
    pub(super) fn plain(&mut self) -> Option<&'a str> {
        let start = self.at + 1;
        let end = start + plain_length(&self.bytes[start..]);
        if self.bytes.get(end) != Some(&b'"') {
            return None;
        }
        self.at = end + 1;
        Some(&self.text[start..end])
    }

    /// Reads a text in quotes; the place must be at the opening one.
    pub(super) fn quoted(&mut self) -> Result<(&'a str, bool), SyntaxFault> {
        let opened = self.at;
        let start = opened + 1;
        let mut has_escapes = false;
        self.at = start;
        loop {
            self.at += plain_length(&self.bytes[self.at..]);
            match self.peek() {
                Some(b'"') => {
                    let inner = &self.text[start..self.at];
                    self.at += 1;
                    return Ok((inner, has_escapes));
                }
                Some(b'\\') => {
                    self.at += 1;
                    has_escapes = true;
                    self.escape()?;
                }
                Some(_) if memchr2(b'"', b'\\', &self.bytes[self.at..]).is_some() => {
                    return Err(self.malformed("a control character in quotes must be escaped"));
                }
                Some(_) | None => {
                    self.at = opened;
                    return Err(self.malformed("this quote is never closed"));
                }
            }
        }
    }

    /// Checks an escape; the place is behind its backslash.
    fn escape(&mut self) -> Result<(), SyntaxFault> {
        let length = match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 1,
            Some(b'u') => match utf16_escape(&self.bytes[self.at..]) {
                Some((_, length)) => length,
                None => return Err(self.malformed("this escape is no character")),
            },
            _ => return Err(self.malformed("unknown escape")),
        };
        self.at += length;
        Ok(())
    }

    fn number(&mut self) -> Result<Token<'a>, SyntaxFault> {
        let start = self.at;
        self.take(b'-');
        let leading_zero = self.peek() == Some(b'0');
        let whole = self.digits();
        let mut well_formed = whole > 0 && !(leading_zero && whole > 1);
        if self.take(b'.') {
            well_formed &= self.digits() > 0;
        }
        if self.take(b'e') || self.take(b'E') {
            let _ = self.take(b'+') || self.take(b'-');
            well_formed &= self.digits() > 0;
        }
        if well_formed && !self.peek().is_some_and(|byte| byte.is_ascii_alphanumeric()) {
            return Ok(Token::Number(&self.text[start..self.at]));
        }
        self.at = start;
        Err(self.malformed("this is no JSON number"))
    }

    fn digits(&mut self) -> usize {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        self.at - start
    }

    fn word(&mut self) -> Result<Token<'a>, SyntaxFault> {
        let rest = &self.bytes[self.at..];
        let length = rest
            .iter()
            .position(|byte| !byte.is_ascii_alphanumeric())
            .unwrap_or(rest.len());
        let token = match &rest[..length] {
            b"null" => Token::Null,
            b"true" => Token::Bool(true),
            b"false" => Token::Bool(false),
            b"" => return Err(self.malformed("expected a value")),
            b"NaN" | b"Infinity" => {
                return Err(self.malformed("NaN and Infinity are no JSON values"));
            }
            _ => return Err(self.malformed("unknown word")),
        };
        self.at += length;
        Ok(token)
    }

    fn end(&mut self) -> Result<(), SyntaxFault> {
        self.skip_blanks();
        if self.at == self.bytes.len() {
            Ok(())
        } else {
            Err(self.malformed("text behind the end of the value"))
        }
    }

    fn not_an_object(&mut self) -> SyntaxFault {
        let at = self.at;
        let kind = match self.peek() {
            Some(b'[') => "an array",
            _ => match self.value(0) {
                Err(fault) => return fault,
                Ok(_) if self.end().is_err() => {
                    return self.malformed("text behind the end of the value");
                }
                Ok(Token::Text { .. }) => "a text",
                Ok(Token::Number(_)) => "a number",
                Ok(token) => token.written(),
            },
        };
        SyntaxFault {
            reason: RejectReason::NotAnObject,
            at,
            what: format!("this is {kind} and no object"),
        }
    }

    fn malformed(&self, what: &str) -> SyntaxFault {
        SyntaxFault {
            reason: RejectReason::Malformed,
            at: self.at,
            what: what.to_string(),
        }
    }

    /// Goes behind blanks.
    pub(super) fn skip_blanks(&mut self) {
        while let Some(byte) = self.peek()
            && (matches!(byte, b' ' | b'\t' | b'\r') || self.line_feed == Some(byte))
        {
            self.at += 1;
        }
    }

    /// The byte at the place.
    pub(super) fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Goes behind a sign, if it is there.
    pub(super) fn take(&mut self, sign: u8) -> bool {
        let found = self.peek() == Some(sign);
        self.at += usize::from(found);
        found
    }
}

fn duplicate(name: &str, at: usize) -> SyntaxFault {
    let what = format!("the name {name:?} stands twice in one object");
    SyntaxFault {
        reason: RejectReason::DuplicateKey,
        at,
        what,
    }
}

/// A number that is the same for the same name.
fn mark(name: &str) -> u64 {
    const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
    let mut sum = name.len() as u64;
    let (words, rest) = name.as_bytes().as_chunks::<8>();
    for word in words {
        sum = (sum ^ u64::from_le_bytes(*word))
            .wrapping_mul(FACTOR)
            .rotate_left(29);
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    (sum ^ u64::from_le_bytes(last)).wrapping_mul(FACTOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(line: &str) -> RejectReason {
        object_text(line, &mut Vec::new()).unwrap_err().reason
    }

    fn read(line: &str) -> Vec<(String, String)> {
        let mut members = Vec::new();
        object_text(line, &mut members).unwrap();
        members
            .iter()
            .map(|(name, value)| (name.to_string(), value.as_json().to_string()))
            .collect()
    }

    #[test]
    fn broken_lines_are_malformed_with_their_place() {
        for (line, at) in [
            (r#"{"a": NaN}"#, 6),
            (r#"{"a": -Infinity}"#, 6),
            (r#"{"a": 1"#, 7),
            (r#"{"a": 1,}"#, 8),
            (r#"{"a": 1} {"b": 2}"#, 9),
            (r#"{"a": 1}x"#, 8),
            (r#"{"a": "x"#, 6),
            (r#"{"a": 01}"#, 6),
            (r#"{"a": 1.}"#, 6),
            (r#"{"a": +1}"#, 6),
            (r#"{"a": 1e}"#, 6),
            (r#"{"a": nul}"#, 6),
            (r#"{"a": "\x"}"#, 8),
            (r#"{"a": "\ud800"}"#, 8),
            (r#"{"a": "\ud800\u0041"}"#, 8),
            (r#"{"a": "\udc00"}"#, 8),
            (r#"{"a": "\u+123"}"#, 8),
            ("{\"a\": \"x\ty\"}", 8),
            (r#"{a: 1}"#, 1),
            (r#"{"a" 1}"#, 5),
            (r#"  "op": "I","#, 6),
            ("}", 0),
            ("{", 1),
        ] {
            let fault = object_text(line, &mut Vec::new()).unwrap_err();
            assert_eq!(
                (fault.reason, fault.at),
                (RejectReason::Malformed, at),
                "{line}: {}",
                fault.what
            );
        }
    }

    #[test]
    fn lines_that_are_no_objects_say_what_they_are() {
        for line in [
            "42",
            "[]",
            "[",
            r#"[{"a": 1},"#,
            r#""text""#,
            "null",
            "true",
            " 1.5e3 ",
        ] {
            assert_eq!(reason(line), RejectReason::NotAnObject, "{line}");
        }
    }

    #[test]
    fn a_name_that_stands_twice_is_found_at_every_depth() {
        for line in [
            r#"{"a": 1, "b": 2, "a": 3}"#,
            r#"{"a": 1, "\u0061": 3}"#,
            r#"{"x": {"a": 1, "a": 1}}"#,
            r#"{"x": [{"y": {"a": null, "a": null}}]}"#,
        ] {
            assert_eq!(reason(line), RejectReason::DuplicateKey, "{line}");
        }
        let many: Vec<String> = (0..40).chain([3]).map(|i| format!("\"k{i}\": 1")).collect();
        assert_eq!(
            reason(&format!("{{{}}}", many.join(","))),
            RejectReason::DuplicateKey
        );
        let late: Vec<String> = (0..40)
            .chain([39])
            .map(|i| format!("\"k{i}\": 1"))
            .collect();
        assert_eq!(
            reason(&format!("{{{}}}", late.join(","))),
            RejectReason::DuplicateKey
        );
        assert_eq!(read(r#"{"a": {"b": 1}, "b": 2}"#).len(), 2);
    }

    #[test]
    fn nesting_is_bounded() {
        let nested =
            |depth: usize| format!("{{\"a\": {}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(read(&nested(NESTING_MAX - 1)).len(), 1);
        assert_eq!(reason(&nested(NESTING_MAX)), RejectReason::TooDeep);
        assert_eq!(
            reason(&format!("{{\"a\": {}", "[{\"a\":".repeat(1_000_000))),
            RejectReason::TooDeep
        );
    }

    #[test]
    fn values_stay_as_written() {
        let line = r#" { "a" : 1.10 , "b":"x\"y", "c": [1, {"d": null}] ,"e":null,"f":true,"g":{},"h":[] } "#;
        let expected = [
            ("a", "1.10"),
            ("b", r#""x\"y""#),
            ("c", r#"[1, {"d": null}]"#),
            ("e", "null"),
            ("f", "true"),
            ("g", "{}"),
            ("h", "[]"),
        ];
        assert_eq!(
            read(line),
            expected.map(|(name, value)| (name.to_string(), value.to_string()))
        );
        assert!(read("{}").is_empty() && read("{ }").is_empty());
    }
}
