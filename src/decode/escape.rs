//! Escapes in JSON texts to the characters they mean.

use std::borrow::Cow;

/// Resolves the escapes of a checked text.
pub(super) fn unescape(inner: &str) -> Cow<'_, str> {
    let Some(first) = inner.find('\\') else {
        return Cow::Borrowed(inner);
    };
    let mut out = String::with_capacity(inner.len());
    out.push_str(&inner[..first]);
    let mut rest = &inner[first..];
    while let Some(escaped) = rest.strip_prefix('\\') {
        let (c, behind) = resolve_escape(escaped);
        out.push(c);
        let next = behind.find('\\').unwrap_or(behind.len());
        out.push_str(&behind[..next]);
        rest = &behind[next..];
    }
    Cow::Owned(out)
}

/// The character of one escape, given the text behind its backslash, and what follows.
fn resolve_escape(escaped: &str) -> (char, &str) {
    let plain = |c| (c, escaped.get(1..).unwrap_or_default());
    match escaped.as_bytes().first() {
        Some(b'b') => plain('\u{8}'),
        Some(b'f') => plain('\u{c}'),
        Some(b'n') => plain('\n'),
        Some(b'r') => plain('\r'),
        Some(b't') => plain('\t'),
        Some(b'u') => match utf16_escape(escaped.as_bytes()) {
            Some((c, length)) => (c, escaped.get(length..).unwrap_or_default()),
            None => plain(char::REPLACEMENT_CHARACTER),
        },
        Some(other) => plain(char::from(*other)),
        None => plain('\\'),
    }
}

/// `uXXXX` or `uXXXX\uXXXX` at the start of `bytes`: the character and how many bytes it took.
pub(super) fn utf16_escape(bytes: &[u8]) -> Option<(char, usize)> {
    let unit = |bytes: Option<&[u8]>| -> Option<u32> {
        let hex = bytes.filter(|hex| hex.iter().all(u8::is_ascii_hexdigit))?;
        u32::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()
    };
    let high = unit(bytes.get(1..5))?;
    if !(0xD800..0xDC00).contains(&high) {
        return Some((char::from_u32(high)?, 5));
    }
    if bytes.get(5..7) != Some(b"\\u") {
        return None;
    }
    let low = unit(bytes.get(7..11)).filter(|low| (0xDC00..0xE000).contains(low))?;
    Some((
        char::from_u32(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))?,
        11,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_resolve_to_their_characters() {
        assert_eq!(
            unescape(r#"a\u0000b\n\\\/\"\ud83d\ude00\u00e9z"#),
            "a\0b\n\\/\"\u{1f600}\u{e9}z"
        );
        assert_eq!(unescape(r"\b\f\r\t"), "\u{8}\u{c}\r\t");
        assert!(matches!(unescape("plain"), Cow::Borrowed("plain")));
    }
}
