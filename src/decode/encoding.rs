//! The text of a file as UTF-8, and the way back to the bytes of the file.
//!
//! A mark or plain evidence that contradicts the settings is a fault of the file. What is no character in the encoding
//! stands in the text as a byte that no UTF-8 has, so that the record that holds it is refused; nothing is replaced.

use super::text::lossless_text;
use crate::change::{FileFault, ParkReason};
use crate::settings::TextEncoding;
use bytes::Bytes;
use encoding_rs::Encoding;
use memchr::memchr;

/// What stands for that which is no character.
const NO_CHARACTER: u8 = 0xFF;

/// So many characters must alternate with zeros to be taken for wide ones.
const UNITS_SEEN: usize = 4;

/// So many bytes tell whether the text is UTF-8.
pub(super) const FRONT_BYTES: usize = UNITS_SEEN * 4;

/// UTF-16 must have a zero among so many bytes: every sign of JSON and CSV has one.
const ZERO_SEEN_WITHIN: usize = 64 << 10;

/// The marks at the beginning of texts; UTF-32 before UTF-16, which begins alike.
const MARKS: [(&[u8], &str); 5] = [
    (&[0xEF, 0xBB, 0xBF], "UTF-8"),
    (&[0xFF, 0xFE, 0, 0], "UTF-32LE"),
    (&[0, 0, 0xFE, 0xFF], "UTF-32BE"),
    (&[0xFF, 0xFE], "UTF-16LE"),
    (&[0xFE, 0xFF], "UTF-16BE"),
];

/// The text of a file.
pub(super) struct Text {
    /// As UTF-8, but for what is no character.
    pub(super) bytes: Bytes,
    /// Where it begins in `bytes`, behind a mark.
    pub(super) start: usize,
    encoding: TextEncoding,
    /// Bytes of the file before the first of `bytes`.
    before: usize,
    file: Bytes,
}

/// Reads the bytes of a file in the encoding that the settings name.
pub(super) fn read(file: &Bytes, set: TextEncoding) -> Result<Text, FileFault> {
    let (encoding, mark) = encoding_of(file, set)?;
    let (bytes, start, before) = if encoding == TextEncoding::Utf8 {
        (file.clone(), mark, 0)
    } else {
        (to_utf8(&file[mark..], encoding).into(), 0, mark)
    };
    Ok(Text {
        bytes,
        start,
        encoding,
        before,
        file: file.clone(),
    })
}

/// Where a text in UTF-8 begins, behind its mark; another encoding is a fault.
pub(super) fn utf8_start(file: &[u8]) -> Result<usize, FileFault> {
    encoding_of(file, TextEncoding::Utf8).map(|(_, mark)| mark)
}

/// The encoding with its byte order, and the length of the mark.
fn encoding_of(file: &[u8], set: TextEncoding) -> Result<(TextEncoding, usize), FileFault> {
    let found = MARKS.iter().find(|(mark, _)| file.starts_with(mark));
    let seen = found.map(|(_, name)| *name).or_else(|| unmarked(file));
    let mark = found.map_or(0, |(mark, _)| mark.len());
    let encoding = match (set, seen) {
        (TextEncoding::Utf16, Some("UTF-16LE")) => TextEncoding::Utf16Le,
        (TextEncoding::Utf16, Some("UTF-16BE")) => TextEncoding::Utf16Be,
        (TextEncoding::Utf16, None) if !file.is_empty() => {
            let what = "the text has no mark that tells its byte order";
            return Err(unsupported(what, "UTF-16LE or UTF-16BE"));
        }
        (_, None) => set,
        (_, Some(name)) if name == set.name() => set,
        (_, Some(name)) => {
            let what = format!("the text is {name}, expected {}", set.name());
            let settable = if name.starts_with("UTF-32") {
                "UTF-8"
            } else {
                name
            };
            return Err(unsupported(&what, settable));
        }
    };
    let is_wide = matches!(encoding, TextEncoding::Utf16Le | TextEncoding::Utf16Be);
    let text = &file[mark..file.len().min(ZERO_SEEN_WITHIN)];
    if is_wide && text.len() > 1 && memchr(0, text).is_none() {
        let what = format!("the text has no zero bytes, so it is not {}", set.name());
        return Err(unsupported(&what, "UTF-8 or another encoding"));
    }
    Ok((encoding, mark))
}

fn unsupported(what: &str, settable: &str) -> FileFault {
    let detail = format!("{what}; convert the file, or set encoding = {settable}");
    FileFault::new(ParkReason::UnsupportedEncoding, detail)
}

/// Zeros between the first characters betray wide encodings.
fn unmarked(bytes: &[u8]) -> Option<&'static str> {
    let all_of = |width: usize, filled: usize| {
        let mut units = bytes.chunks_exact(width).take(UNITS_SEEN);
        units.len() == UNITS_SEEN
            && units.all(|unit| {
                unit.iter()
                    .enumerate()
                    .all(|(i, byte)| (*byte != 0) == (i == filled))
            })
    };
    if all_of(4, 0) {
        Some("UTF-32LE")
    } else if all_of(4, 3) {
        Some("UTF-32BE")
    } else if all_of(2, 0) {
        Some("UTF-16LE")
    } else if all_of(2, 1) {
        Some("UTF-16BE")
    } else {
        None
    }
}

fn to_utf8(bytes: &[u8], encoding: TextEncoding) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes.len());
    each_character(bytes, encoding, |character| match character {
        Ok(ascii) => text.extend_from_slice(ascii.as_bytes()),
        Err(_) => text.push(NO_CHARACTER),
    });
    text
}

/// Hands on all characters, many at once where they are ASCII, and the bytes that are none.
fn each_character(bytes: &[u8], encoding: TextEncoding, mut take: impl FnMut(Result<&str, &[u8]>)) {
    match encoding {
        TextEncoding::Utf8 => {
            for chunk in bytes.utf8_chunks() {
                take(Ok(chunk.valid()));
                chunk.invalid().chunks(1).for_each(|byte| take(Err(byte)));
            }
        }
        TextEncoding::Utf16 | TextEncoding::Utf16Be => {
            each_wide(bytes, u16::from_be_bytes, u16::to_be_bytes, take);
        }
        TextEncoding::Utf16Le => each_wide(bytes, u16::from_le_bytes, u16::to_le_bytes, take),
        TextEncoding::Ascii | TextEncoding::Latin1 | TextEncoding::SingleByte(_) => {
            each_byte(bytes, &upper_half(encoding), take);
        }
    }
}

fn each_wide(
    bytes: &[u8],
    unit_of: fn([u8; 2]) -> u16,
    bytes_of: fn(u16) -> [u8; 2],
    mut take: impl FnMut(Result<&str, &[u8]>),
) {
    let (units, half) = bytes.as_chunks::<2>();
    for character in char::decode_utf16(units.iter().copied().map(unit_of)) {
        match character {
            Ok(character) => take(Ok(character.encode_utf8(&mut [0; 4]))),
            Err(error) => take(Err(&bytes_of(error.unpaired_surrogate()))),
        }
    }
    if !half.is_empty() {
        take(Err(half));
    }
}

fn each_byte(bytes: &[u8], upper_half: &[Option<char>], mut take: impl FnMut(Result<&str, &[u8]>)) {
    let mut rest = bytes;
    loop {
        let (plain, behind) = rest.split_at(Encoding::ascii_valid_up_to(rest));
        take(std::str::from_utf8(plain).map_err(|_| plain));
        let Some((byte, behind)) = behind.split_first() else {
            return;
        };
        let place = usize::from(*byte & 0x7F);
        match upper_half.get(place).copied().flatten() {
            Some(character) => take(Ok(character.encode_utf8(&mut [0; 4]))),
            None => take(Err(&[*byte])),
        }
        rest = behind;
    }
}

/// The characters of the bytes from 128.
fn upper_half(encoding: TextEncoding) -> Vec<Option<char>> {
    let character = |byte: u8| match encoding {
        TextEncoding::Latin1 => Some(char::from(byte)),
        TextEncoding::SingleByte(encoding) => {
            let text = encoding
                .decode_without_bom_handling_and_without_replacement(std::slice::from_ref(&byte))?
                .chars()
                .next()?;
            // Bytes without a character are control characters on the web.
            let is_filler = ('\u{80}'..='\u{9f}').contains(&text);
            (!is_filler || !encoding.name().starts_with("windows")).then_some(text)
        }
        TextEncoding::Ascii
        | TextEncoding::Utf8
        | TextEncoding::Utf16
        | TextEncoding::Utf16Le
        | TextEncoding::Utf16Be => None,
    };
    (128..=255).map(character).collect()
}

impl Text {
    /// A stretch of a text in UTF-8 that does not begin it.
    pub(super) fn of_utf8(file: &Bytes) -> Text {
        Text {
            bytes: file.clone(),
            start: 0,
            encoding: TextEncoding::Utf8,
            before: 0,
            file: file.clone(),
        }
    }

    /// The way from places of the text to those of the file.
    pub(super) fn origin(&self) -> Origin<'_> {
        Origin {
            text: &self.bytes,
            encoding: self.encoding,
            file: &self.file,
            at: (0, self.before),
        }
    }
}

/// Finds the byte of the file for a byte of the text; fast where places are asked for in their order.
pub(super) struct Origin<'a> {
    text: &'a [u8],
    pub(super) encoding: TextEncoding,
    file: &'a Bytes,
    /// A place of the text and the same one of the file.
    at: (usize, usize),
}

impl Origin<'_> {
    pub(super) fn in_file(&mut self, place: usize) -> usize {
        if self.encoding == TextEncoding::Utf8 {
            return place;
        }
        let (known, in_file) = self.at;
        let between = |from: usize, to: usize| self.text.get(from..to).unwrap_or_default();
        self.at = if place < known {
            // The changes of one record may stand at one place.
            let back = width(between(place, known), self.encoding);
            (place, in_file.saturating_sub(back))
        } else {
            (place, in_file + width(between(known, place), self.encoding))
        };
        // Half a unit at the end is one byte.
        self.at.1.min(self.file.len())
    }

    /// The bytes that places of the file point into.
    pub(super) fn file_bytes(&self) -> Bytes {
        self.file.clone()
    }

    /// A piece of the file as text; bytes that are no characters stand as `\xNN`.
    pub(super) fn lossless(&self, start: usize, end: usize) -> String {
        let bytes = self.file.get(start..end).unwrap_or_default();
        lossless(bytes, self.encoding)
    }
}

/// How many bytes of the file a piece of the text had.
fn width(text: &[u8], encoding: TextEncoding) -> usize {
    let characters = text.iter().filter(|byte| **byte & 0xC0 != 0x80).count();
    match encoding {
        TextEncoding::Utf16 | TextEncoding::Utf16Le | TextEncoding::Utf16Be => {
            let pairs = text.iter().filter(|byte| (0xF0..0xF8).contains(*byte));
            (characters + pairs.count()) * 2
        }
        TextEncoding::Utf8 => text.len(),
        TextEncoding::Ascii | TextEncoding::Latin1 | TextEncoding::SingleByte(_) => characters,
    }
}

/// Bytes of a file as text; those that are no characters stand as `\xNN`.
pub(super) fn lossless(bytes: &[u8], encoding: TextEncoding) -> String {
    if encoding == TextEncoding::Utf8 {
        return lossless_text(bytes);
    }
    let mut text = String::with_capacity(bytes.len());
    each_character(bytes, encoding, |character| match character {
        Ok(characters) => text.push_str(characters),
        Err(bytes) => bytes
            .iter()
            .for_each(|byte| text.push_str(&format!("\\x{byte:02X}"))),
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use TextEncoding::*;
    use encoding_rs::{WINDOWS_1251, WINDOWS_1252};

    fn utf16(text: &str, unit: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(unit).collect()
    }

    fn read_as(bytes: &[u8], set: TextEncoding) -> Result<(String, usize), String> {
        let text = read(&Bytes::copy_from_slice(bytes), set).map_err(|fault| {
            assert_eq!(fault.reason, ParkReason::UnsupportedEncoding);
            fault.detail
        })?;
        let rest = text.bytes[text.start..].to_vec();
        Ok((
            String::from_utf8(rest).unwrap(),
            text.origin().in_file(text.start),
        ))
    }

    #[test]
    fn marks_and_zeros_that_contradict_the_settings_are_named() {
        let little = utf16("a,b\n1,2\n", u16::to_le_bytes);
        let big = utf16("a,b\n1,2\n", u16::to_be_bytes);
        let marked = [&[0xFF, 0xFE], &little[..]].concat();
        let latin = SingleByte(WINDOWS_1252);
        for (bytes, set, name) in [
            (&little[..], Utf8, "UTF-16LE"),
            (&marked, Utf8, "UTF-16LE"),
            (&marked, Latin1, "UTF-16LE"),
            (&marked, Utf16Be, "UTF-16LE"),
            (&big, Utf16Le, "UTF-16BE"),
            (&big, latin, "UTF-16BE"),
            (b"\xEF\xBB\xBFa,b", Latin1, "the text is UTF-8"),
            (b"\xEF\xBB\xBFa,b", Utf16, "the text is UTF-8"),
            (b"\xFF\xFE\0\0a\0\0\0", Utf8, "UTF-32LE"),
            (b"\xFF\xFE\0\0a\0\0\0", Utf16, "UTF-32LE"),
            (b"a\0\0\0,\0\0\0b\0\0\0\n\0\0\0", Utf16Le, "UTF-32LE"),
            (b"a,b\n1,2\n", Utf16, "no mark"),
            (b"a,b\n1,2\n", Utf16Le, "no zero bytes"),
            (b"\xFE\xFF\x65\x87", Utf16, "no zero bytes"),
        ] {
            let detail = read_as(bytes, set).unwrap_err();
            assert!(detail.contains(name), "{set:?}: {detail}");
        }
    }

    #[test]
    fn only_text_that_is_wide_is_taken_for_wide() {
        for (bytes, start) in [
            (&b"\xEF\xBB\xBFa"[..], 3),
            (b"a\0b,c\0d", 0),
            (b"\0\0\0\0\0\0\0\0", 0),
            (b"", 0),
        ] {
            assert_eq!(read_as(bytes, Utf8).unwrap().1, start);
        }
    }

    #[test]
    fn every_encoding_gives_its_characters() {
        let text = "a,\u{e9},\u{20ac},\u{1f600}\n";
        let little = utf16(text, u16::to_le_bytes);
        let big = utf16(text, u16::to_be_bytes);
        let marked = [&[0xFE, 0xFF], &big[..]].concat();
        for (bytes, set, start) in [
            (&little[..], Utf16Le, 0),
            (&big, Utf16Be, 0),
            (&marked, Utf16, 2),
            (&marked, Utf16Be, 2),
        ] {
            assert_eq!(read_as(bytes, set), Ok((text.to_string(), start)));
        }
        for (bytes, set, text) in [
            (&b"caf\xe9 \x80"[..], Latin1, "caf\u{e9} \u{80}"),
            (
                b"caf\xe9 \x80",
                SingleByte(WINDOWS_1252),
                "caf\u{e9} \u{20ac}",
            ),
            (b"\xcf\xf0", SingleByte(WINDOWS_1251), "\u{41f}\u{440}"),
            (b"plain", Ascii, "plain"),
            (b"", Utf16, ""),
        ] {
            assert_eq!(read_as(bytes, set), Ok((text.to_string(), 0)));
        }
    }

    #[test]
    fn what_is_no_character_is_kept_and_places_lead_back_to_the_file() {
        let wide = [0x61, 0, 0, 0xD8, 0x62, 0, 0x3D, 0xD8, 0, 0xDE, 0x63];
        let latin = SingleByte(WINDOWS_1252);
        for (bytes, set, text, places, shown) in [
            (
                &wide[..],
                Utf16Le,
                &b"a\xFFb\xF0\x9F\x98\x80\xFF"[..],
                &[(0, 0), (1, 2), (2, 4), (3, 6), (7, 10), (8, 11), (2, 4)][..],
                "a\\x00\\xD8b\u{1f600}\\x63",
            ),
            (
                b"\xe9\x81\xe9x",
                latin,
                b"\xC3\xA9\xFF\xC3\xA9x",
                &[(0, 0), (2, 1), (3, 2), (5, 3), (6, 4)],
                "\u{e9}\\x81\u{e9}x",
            ),
            (
                b"a\xc3\xa9b",
                Ascii,
                b"a\xFF\xFFb",
                &[(1, 1), (2, 2), (3, 3)],
                "a\\xC3\\xA9b",
            ),
        ] {
            let file = Bytes::copy_from_slice(bytes);
            let read = read(&file, set).unwrap();
            assert_eq!(read.bytes, text, "{set:?}");
            let mut origin = read.origin();
            for (place, expected) in places {
                assert_eq!(origin.in_file(*place), *expected, "{set:?} {place}");
            }
            assert_eq!(lossless(&file, set), shown);
        }
    }
}
