//! Values and records as text for people: in messages, in quarantine, in rescued data.

/// Values in messages are cut to so many characters.
const SHOWN_CHARS_MAX: usize = 80;

/// Cuts a value for a message, and keeps it on one line.
pub(crate) fn shorten(text: &str) -> String {
    let one_line = |c: char| {
        if c.is_control() {
            c.escape_default().to_string()
        } else {
            c.to_string()
        }
    };
    let mut shown: String = text.chars().take(SHOWN_CHARS_MAX).map(one_line).collect();
    if text.chars().nth(SHOWN_CHARS_MAX).is_some() {
        shown.push_str("...");
    }
    shown
}

/// A text as JSON, with quotes.
pub(crate) fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Bytes as text; those that are not UTF-8 stand as `\xNN`.
pub(super) fn lossless_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_many_lined_values_are_cut_to_one_line() {
        assert_eq!(shorten("a\nb"), "a\\nb");
        let long = "\u{e9}".repeat(SHOWN_CHARS_MAX + 1);
        assert_eq!(
            shorten(&long),
            format!("{}...", "\u{e9}".repeat(SHOWN_CHARS_MAX))
        );
        assert_eq!(
            shorten(&"x".repeat(SHOWN_CHARS_MAX)),
            "x".repeat(SHOWN_CHARS_MAX)
        );
    }

    #[test]
    fn bytes_that_are_no_text_stand_in_hexadecimal() {
        assert_eq!(
            lossless_text(b"caf\xe9 \xc3\xa9\xff"),
            "caf\\xE9 \u{e9}\\xFF"
        );
    }
}
