//! The encodings of text that settings can name.

use encoding_rs::Encoding;

/// `encoding` of CSV and JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TextEncoding {
    /// UTF-8, with or without its mark.
    #[default]
    Utf8,
    /// UTF-16 in the byte order that its mark tells.
    Utf16,
    /// UTF-16, the low byte first.
    Utf16Le,
    /// UTF-16, the high byte first.
    Utf16Be,
    /// Bytes below 128 alone.
    Ascii,
    /// ISO-8859-1: each byte is the character of its number.
    Latin1,
    /// Another encoding with one byte for a character.
    SingleByte(&'static Encoding),
}

impl TextEncoding {
    /// The usual name.
    pub fn name(self) -> &'static str {
        match self {
            TextEncoding::Utf8 => "UTF-8",
            TextEncoding::Utf16 => "UTF-16",
            TextEncoding::Utf16Le => "UTF-16LE",
            TextEncoding::Utf16Be => "UTF-16BE",
            TextEncoding::Ascii => "US-ASCII",
            TextEncoding::Latin1 => "ISO-8859-1",
            TextEncoding::SingleByte(encoding) => encoding.name(),
        }
    }

    /// The encoding of a name or a common alias, in any case, with dashes, underscores or neither.
    pub(crate) fn of_name(name: &str) -> Option<TextEncoding> {
        let plain = plain(name);
        match plain.as_str() {
            "utf8" => Some(TextEncoding::Utf8),
            "utf16" => Some(TextEncoding::Utf16),
            "utf16le" => Some(TextEncoding::Utf16Le),
            "utf16be" => Some(TextEncoding::Utf16Be),
            "usascii" | "ascii" | "ansix3.41968" | "iso646us" => Some(TextEncoding::Ascii),
            "iso88591" | "latin1" | "l1" | "cp819" | "ibm819" => Some(TextEncoding::Latin1),
            _ => single_byte(name.trim(), &plain),
        }
    }
}

/// Labels of the web stand for their nearest windows encoding; only an encoding's own name is taken here.
fn single_byte(name: &str, plain_name: &str) -> Option<TextEncoding> {
    let number = plain_name.strip_prefix("cp").unwrap_or(plain_name);
    let label = match number.parse::<u16>() {
        Ok(number) => format!("windows-{number}"),
        Err(_) => name.replace('_', "-"),
    };
    let encoding = Encoding::for_label(label.as_bytes())?;
    let is_its_name = plain(encoding.name()) == plain(&label) && !label.starts_with("x-");
    (encoding.is_single_byte() && is_its_name).then_some(TextEncoding::SingleByte(encoding))
}

fn plain(name: &str) -> String {
    let mut plain = name.trim().to_ascii_lowercase();
    plain.retain(|letter| !matches!(letter, '-' | '_' | ' '));
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_mean_something_else_or_nothing_are_refused() {
        for name in [
            "",
            "UTF-32",
            "utf-7",
            "Shift_JIS",
            "GBK",
            "ISO-8859-9",
            "iso-8859-11",
            "unicode",
            "x-user-defined",
            "windows",
            "99999",
        ] {
            assert_eq!(TextEncoding::of_name(name), None, "{name}");
        }
    }

    #[test]
    fn names_and_aliases_are_known_in_any_case() {
        for (names, name) in [
            (&["utf8", "UTF-8", " Utf_8 "][..], "UTF-8"),
            (&["UTF16", "utf-16"], "UTF-16"),
            (&["UTF-16LE", "utf16-le", "Utf_16le"], "UTF-16LE"),
            (&["utf-16be"], "UTF-16BE"),
            (&["US-ASCII", "ascii", "ANSI_X3.4-1968"], "US-ASCII"),
            (&["latin1", "ISO-8859-1", "ISO8859_1", "L1"], "ISO-8859-1"),
            (
                &["windows-1252", "CP1252", "Windows_1252", "1252"],
                "windows-1252",
            ),
            (&["cp1250"], "windows-1250"),
            (&["ISO-8859-15", "iso8859-15"], "ISO-8859-15"),
            (&["KOI8-R"], "KOI8-R"),
        ] {
            for alias in names {
                let encoding = TextEncoding::of_name(alias);
                assert_eq!(encoding.map(TextEncoding::name), Some(name), "{alias}");
            }
        }
    }
}
