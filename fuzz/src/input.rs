//! Takes an input apart: options from its first bytes, then text, or a line with a script of its repetitions.

/// What is left of an input.
pub(crate) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Input { rest: bytes }
    }

    /// The next byte; 0 behind the end.
    pub(crate) fn byte(&mut self) -> u8 {
        match self.rest.split_first() {
            Some((first, rest)) => {
                self.rest = rest;
                *first
            }
            None => 0,
        }
    }

    /// A number below `bound`. Options are printable in seeds: `0` is 0, `1` is 1.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte().wrapping_sub(b'0')) % bound
    }

    /// One of these.
    pub(crate) fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.below(2) == 1
    }

    /// Up to the first of these bytes, which is left out; all where there is none.
    pub(crate) fn until(&mut self, end: u8) -> &'a [u8] {
        let length = self.rest.iter().position(|byte| *byte == end);
        let (taken, rest) = self.rest.split_at(length.unwrap_or(self.rest.len()));
        self.rest = rest.get(1..).unwrap_or_default();
        taken
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The rest as it is; or, where the next option says so, its first line many times, each time a little altered as what
    /// follows the line says. So the records of a file are as alike as those of a feed are.
    pub(crate) fn text(&mut self) -> Vec<u8> {
        match self.flag() {
            true => {
                let line = self.until(b'\n');
                repeated(line, self)
            }
            false => self.rest.to_vec(),
        }
    }
}

const LINES_MAX: usize = 40;
const TEXT_BYTES_MAX: usize = 16 << 10;

/// What an edit may put in.
const PIECES: [&[u8]; 32] = [
    b"\"",
    b"\\",
    b",",
    b":",
    b"{",
    b"}",
    b"[",
    b"]",
    b" ",
    b"\t",
    b"\r",
    b"\r\n",
    b"0",
    b"-",
    b"1e5",
    b".5",
    b"null",
    b"true",
    b"\\u0041",
    b"\\\"",
    b"\\\\",
    b"\\ud83d\\ude00",
    b"\xc3\xa9",
    b"\xff",
    b"\0",
    b"\"a\":1,",
    b",\"z\":2",
    b"NaN",
    b"12345678901234567890",
    b"\"\"",
    b"99",
    b"x",
];

/// What a value may become.
const VALUES: [&[u8]; 16] = [
    b"1",
    b"-0",
    b"1.50",
    b"1e2",
    b"1e400",
    b"0.1",
    b"12345678901234567890",
    b"null",
    b"true",
    b"\"t\"",
    b"\"\"",
    b"\"\\u0061\"",
    b"\"2024-02-29\"",
    b"[1,2]",
    b"{\"a\":1}",
    b" \"x\" ",
];

/// Lines that are nearly `line`, by a script of edits: three bytes each, and a line end behind every run of them.
fn repeated(line: &[u8], script: &mut Input<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    let mut before = line.to_vec();
    for _ in 0..LINES_MAX {
        // An edit may last, as a change of shape in a feed does.
        let (edits, lasts) = (script.byte(), script.byte());
        let mut present = before.clone();
        for _ in 0..edits % 4 {
            edit(&mut present, line, script);
        }
        text.extend_from_slice(&present);
        text.push(b'\n');
        if lasts % 4 == 3 {
            before = present;
        }
        if script.rest.is_empty() || text.len() > TEXT_BYTES_MAX {
            break;
        }
    }
    if script.byte() % 2 == 1 {
        text.pop();
    }
    text
}

fn edit(line: &mut Vec<u8>, original: &[u8], script: &mut Input<'_>) {
    let (kind, place, what) = (script.byte(), script.byte(), script.byte());
    let at = usize::from(place) % (line.len() + 1);
    let piece = PIECES[usize::from(what) % PIECES.len()];
    let length = usize::from(what) % 8 + 1;
    let end = (at + length).min(line.len());
    match kind % 12 {
        0 => drop(line.splice(at..(at + 1).min(line.len()), [what])),
        1 => drop(line.drain(at..end)),
        2 => drop(line.splice(at..at, piece.iter().copied())),
        3 => drop(line.splice(at..end, piece.iter().copied())),
        // The digits from here become others.
        4 => {
            let digits = line[at..]
                .iter_mut()
                .skip_while(|byte| !byte.is_ascii_digit());
            for digit in digits.take_while(|byte| byte.is_ascii_digit()) {
                *digit = b'0' + digit.wrapping_add(what) % 10;
            }
        }
        5 => {
            let copy = line[at..end].to_vec();
            drop(line.splice(end..end, copy));
        }
        6 => line.truncate(at),
        // A value becomes another.
        7 | 8 => {
            let start = end_of(line, at, b":");
            let end = end_of(line, start, b",}\n");
            let value = VALUES[usize::from(what) % VALUES.len()];
            drop(line.splice(
                start..end.saturating_sub(1).max(start),
                value.iter().copied(),
            ));
        }
        // A member or field stands at another place too, or only there.
        9 | 10 => {
            let start = end_of(line, at, b",");
            let end = end_of(line, start, b",");
            let member = match kind % 12 {
                9 => line[start..end].to_vec(),
                _ => line.drain(start..end).collect(),
            };
            let place = end_of(line, usize::from(what) % (line.len() + 1), b",{");
            drop(line.splice(place..place, member));
        }
        _ => *line = original.to_vec(),
    }
}

/// The place behind the next of these bytes, or the end.
fn end_of(line: &[u8], from: usize, ends: &[u8]) -> usize {
    let found = line[from..].iter().position(|byte| ends.contains(byte));
    found.map_or(line.len(), |length| from + length + 1)
}
