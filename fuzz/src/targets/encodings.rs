//! A text in another encoding holds the rows of the same text in UTF-8, and every row leads back to its bytes.

use crate::input::Input;
use crate::laws::{bytes_of, decoded, plain};
use crate::source::{EVOLUTIONS, HINTS, Source};
use encoding_rs::{Encoding, IBM866, KOI8_R, WINDOWS_1251, WINDOWS_1252, WINDOWS_1257};
use landfall::settings::{Format, TextEncoding};

const ENCODINGS: [TextEncoding; 10] = [
    TextEncoding::Latin1,
    TextEncoding::Utf16,
    TextEncoding::Utf16Le,
    TextEncoding::Utf16Be,
    TextEncoding::Ascii,
    TextEncoding::SingleByte(WINDOWS_1252),
    TextEncoding::SingleByte(WINDOWS_1251),
    TextEncoding::SingleByte(KOI8_R),
    TextEncoding::SingleByte(IBM866),
    TextEncoding::SingleByte(WINDOWS_1257),
];

pub(super) fn encodings(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let format = input.one_of(&[Format::Json, Format::Csv]);
    let encoding = input.one_of(&ENCODINGS);
    let (is_text, has_mark, multi_line) = (!input.flag(), input.flag(), input.flag());
    let hints = input.one_of(&HINTS);
    let path = if format == Format::Csv {
        "a.csv"
    } else {
        "a.jsonl"
    };
    let evolution = input.one_of(&EVOLUTIONS);
    let mut utf8 = Source::new(format, path, hints).in_modes(evolution, input.flag());
    utf8.settings.json.multi_line = multi_line;
    let mut other = utf8.clone();
    other.settings.json.encoding = encoding;
    other.settings.csv.encoding = encoding;
    let text = input.text();
    if !is_text {
        let _ = decoded(&other, &text).map(|file| assert_raw(&file));
        return;
    }
    let text = String::from_utf8_lossy(&text);
    let text = text.trim_start_matches('\u{feff}');
    let Some(file) = encoded(text, encoding, has_mark) else {
        return;
    };
    let (Ok(file), Ok(utf8)) = (decoded(&other, &file), plain(&utf8, text.as_bytes())) else {
        return;
    };
    assert_eq!(file.rows, utf8.rows);
    assert_eq!(file.rejects.len(), utf8.rejects.len());
    for (one, other) in file.rejects.iter().zip(&utf8.rejects) {
        assert_eq!(
            (one.file_row, one.file_line, one.reason),
            (other.file_row, other.file_line, other.reason)
        );
        assert_eq!((&one.detail, &one.raw), (&other.detail, &other.raw));
    }
    for row in 0..file.positions.len() {
        assert_eq!(file.positions[row].file_row, utf8.positions[row].file_row);
        assert_eq!(file.positions[row].file_line, utf8.positions[row].file_line);
        let expected = std::str::from_utf8(bytes_of(&utf8, row)).expect("a row is text");
        assert_eq!(
            Some(bytes_of(&file, row)),
            encoded(expected, encoding, false).as_deref()
        );
        assert_eq!(file.raw(row), expected);
    }
    assert_raw(&file);
}

/// The raw text of every row is there.
fn assert_raw(file: &landfall::decode::Decoded) {
    for row in 0..file.positions.len() {
        assert_eq!(
            file.raw(row).is_empty(),
            file.positions[row].byte_length == 0
        );
    }
}

/// `None` where the encoding lacks a character, or the text is not what it would be taken for.
fn encoded(text: &str, encoding: TextEncoding, has_mark: bool) -> Option<Vec<u8>> {
    let wide = |bytes_of: fn(u16) -> [u8; 2], mark: [u8; 2]| {
        let mark = mark.into_iter().take(if has_mark { 2 } else { 0 });
        Some(mark.chain(text.encode_utf16().flat_map(bytes_of)).collect())
    };
    let narrow = |of: &dyn Fn(char) -> Option<u8>| text.chars().map(of).collect();
    match encoding {
        TextEncoding::Utf8 => Some(text.as_bytes().to_vec()),
        TextEncoding::Utf16 | TextEncoding::Utf16Be => wide(u16::to_be_bytes, [0xFE, 0xFF]),
        TextEncoding::Utf16Le => wide(u16::to_le_bytes, [0xFF, 0xFE]),
        TextEncoding::Ascii => {
            narrow(&|character| u8::try_from(character).ok().filter(u8::is_ascii))
        }
        TextEncoding::Latin1 => narrow(&|character| u8::try_from(character).ok()),
        TextEncoding::SingleByte(encoding) => narrow(&|character| byte_of(character, encoding)),
    }
}

fn byte_of(character: char, encoding: &'static Encoding) -> Option<u8> {
    let text = character.to_string();
    let (bytes, _, has_unmappable) = encoding.encode(&text);
    let is_control = ('\u{80}'..='\u{9f}').contains(&character);
    match (bytes.as_ref(), has_unmappable || is_control) {
        ([byte], false) => Some(*byte),
        _ => None,
    }
}
