//! Finds where the records of separated values end, while their text is read piece by piece.
//!
//! A record ends here where it ends for the framer (the module beside this one), which tells what stands in it. Only quotes and
//! line ends are looked for, so a text without quotes costs one search a line.

use crate::decode::marks::length_before;
use crate::settings::CsvSettings;
use memchr::{memchr, memchr_iter};

/// What is known of a text up to a place in it.
#[derive(Clone, Debug)]
pub(in crate::decode) struct RecordEnds {
    /// `None` where no quote spans lines.
    quote: Option<u8>,
    escape: u8,
    delimiter: u8,
    line_end: u8,
    comment: Option<u8>,
    /// A carriage return before a line end is no part of the line.
    drops_return: bool,
    /// Blanks may stand before a quote that opens a field.
    ignores_blanks: bool,
    /// So many lines are still to be left out, whatever they hold.
    lines_to_skip: u64,
    state: State,
    /// The next byte to be looked at.
    at: usize,
    found: Found,
}

/// What was found since it was taken last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::decode) struct Found {
    /// Where the first record begins.
    pub(in crate::decode) start: usize,
    /// Behind the last whole record, and behind lines that are none.
    pub(in crate::decode) end: usize,
    /// Whole records.
    pub(in crate::decode) records: usize,
}

/// Where the next byte stands.
#[derive(Clone, Copy, Debug)]
enum State {
    /// At the beginning of a line that no record reaches into.
    Line,
    /// In a line that is no record.
    Passed,
    /// In a record, outside of quotes since `from`; `is_fresh` if a field begins there, perhaps behind blanks.
    Plain { from: usize, is_fresh: bool },
    /// In a record, inside of quotes.
    Quoted(Opened),
}

/// Where a quote was opened.
#[derive(Clone, Copy, Debug)]
enum Opened {
    Here(usize),
    /// In a piece before, in this line.
    InLine(i64),
}

impl RecordEnds {
    /// At the beginning of a text.
    pub(in crate::decode) fn new(dialect: &CsvSettings, delimiter: u8) -> Self {
        // A quote that is not closed on its line ends there.
        let quote = dialect.quote.filter(|_| dialect.multi_line);
        let line_end = dialect.line_sep.unwrap_or(b'\n');
        RecordEnds {
            quote,
            escape: dialect.escape.or(quote).unwrap_or(line_end),
            delimiter,
            line_end,
            comment: dialect.comment,
            drops_return: dialect.line_sep.is_none(),
            ignores_blanks: dialect.ignore_leading_white_space,
            lines_to_skip: dialect.skip_rows,
            state: State::Line,
            at: 0,
            found: Found::default(),
        }
    }

    /// Looks through `text`, which begins where the last piece that was taken or left ended, for `records_max` records at most.
    pub(in crate::decode) fn scan(&mut self, text: &[u8], is_at_end: bool, records_max: usize) {
        while self.found.records < records_max && self.step(text, is_at_end) {}
    }

    /// What was found; the text goes on behind its end.
    pub(in crate::decode) fn take(&mut self) -> Found {
        let found = std::mem::take(&mut self.found);
        self.at -= found.end;
        match &mut self.state {
            State::Plain { from: place, .. } | State::Quoted(Opened::Here(place)) => {
                *place -= found.end;
            }
            State::Line | State::Passed | State::Quoted(Opened::InLine(_)) => {}
        }
        found
    }

    /// Goes on behind a piece in which the present record does not end; returns how much of it need not be seen again.
    pub(in crate::decode) fn leave(&mut self, text: &[u8], lines_before: i64) -> usize {
        let left = std::mem::take(&mut self.at);
        self.state = match self.state {
            State::Plain { from, is_fresh } => State::Plain {
                from: 0,
                is_fresh: self.is_field_start(&text[from..left], is_fresh),
            },
            State::Quoted(opened) => {
                State::Quoted(Opened::InLine(self.line_of(opened, text, lines_before)))
            }
            state @ (State::Line | State::Passed) => state,
        };
        left
    }

    /// The line of the quote that is open, if one is.
    pub(in crate::decode) fn open_quote(&self, text: &[u8], lines_before: i64) -> Option<i64> {
        match self.state {
            State::Quoted(opened) => Some(self.line_of(opened, text, lines_before)),
            State::Line | State::Passed | State::Plain { .. } => None,
        }
    }

    /// The lines that end in a text.
    pub(in crate::decode) fn lines(&self, text: &[u8]) -> i64 {
        let lines = memchr_iter(self.line_end, text).count();
        i64::try_from(lines).expect("lines are fewer than bytes")
    }

    /// How many bytes stand at the end of a record that are none of it, by its last two bytes.
    pub(in crate::decode) fn line_end_length(&self, last_two: [Option<u8>; 2]) -> usize {
        let has_end = last_two[1] == Some(self.line_end);
        let before = if has_end { last_two[0] } else { last_two[1] };
        usize::from(has_end) + usize::from(self.drops_return && before == Some(b'\r'))
    }

    /// Looks at one more line, quote or escape; false where more of the text is needed for that.
    #[inline]
    fn step(&mut self, text: &[u8], is_at_end: bool) -> bool {
        match self.state {
            State::Line => self.begin_line(text, is_at_end),
            State::Passed => self.pass_line(text),
            State::Plain { from, is_fresh } => self.plain(text, is_at_end, from, is_fresh),
            State::Quoted(_) => self.quoted(text, is_at_end),
        }
    }

    fn begin_line(&mut self, text: &[u8], is_at_end: bool) -> bool {
        let Some(&first) = text.get(self.at) else {
            return false;
        };
        if self.lines_to_skip > 0 {
            self.lines_to_skip -= 1;
            self.state = State::Passed;
            return true;
        }
        let is_blank = match text.get(self.at + 1) {
            _ if first == self.line_end => true,
            _ if first != b'\r' || !self.drops_return => false,
            Some(second) => *second == self.line_end,
            None if is_at_end => true,
            None => return false,
        };
        if is_blank || self.comment == Some(first) {
            self.state = State::Passed;
            return true;
        }
        if self.found.records == 0 {
            self.found.start = self.at;
        }
        self.state = State::Plain {
            from: self.at,
            is_fresh: true,
        };
        true
    }

    fn pass_line(&mut self, text: &[u8]) -> bool {
        let rest = &text[self.at..];
        match memchr(self.line_end, rest) {
            Some(length) => {
                self.end_line(self.at + length + 1);
                true
            }
            None => {
                self.at = text.len();
                // A part of such a line may stand before records, but not behind them.
                if self.found.records == 0 {
                    self.found.end = self.at;
                }
                false
            }
        }
    }

    #[inline]
    fn plain(&mut self, text: &[u8], is_at_end: bool, from: usize, is_fresh: bool) -> bool {
        let quote = self.quote.unwrap_or(self.line_end);
        let place = self.at + length_before(quote, self.line_end, &text[self.at..]);
        match text.get(place) {
            Some(byte) if *byte == self.line_end => self.end_record(place + 1),
            Some(_) => {
                self.at = place + 1;
                if self.is_field_start(&text[from..place], is_fresh) {
                    self.state = State::Quoted(Opened::Here(place));
                }
            }
            None if is_at_end => self.end_record(place),
            None => {
                self.at = place;
                return false;
            }
        }
        true
    }

    fn quoted(&mut self, text: &[u8], is_at_end: bool) -> bool {
        let quote = self.quote.unwrap_or(self.line_end);
        let place = self.at + length_before(quote, self.escape, &text[self.at..]);
        self.at = place;
        let Some(&byte) = text.get(place) else {
            return false;
        };
        let next = text.get(place + 1).copied();
        if byte == self.escape && next.is_none() && !is_at_end {
            return false;
        }
        if byte == self.escape && (next == Some(quote) || next == Some(self.escape)) {
            self.at = place + 2;
            return true;
        }
        self.at = place + 1;
        if byte == quote {
            self.state = State::Plain {
                from: self.at,
                is_fresh: false,
            };
        }
        true
    }

    fn end_record(&mut self, behind: usize) {
        self.found.records += 1;
        self.end_line(behind);
    }

    fn end_line(&mut self, behind: usize) {
        self.at = behind;
        self.found.end = behind;
        self.state = State::Line;
    }

    /// Whether a field begins behind `before`, which stands outside of quotes.
    fn is_field_start(&self, before: &[u8], is_fresh: bool) -> bool {
        let is_blank = |byte: &u8| {
            self.ignores_blanks && matches!(byte, b' ' | b'\t') && *byte != self.delimiter
        };
        match before.iter().rfind(|byte| !is_blank(byte)) {
            Some(byte) => *byte == self.delimiter,
            None => is_fresh,
        }
    }

    fn line_of(&self, opened: Opened, text: &[u8], lines_before: i64) -> i64 {
        match opened {
            Opened::Here(place) => lines_before + self.lines(&text[..place]) + 1,
            Opened::InLine(line) => line,
        }
    }
}
