//! What a landing file is: its name, its size and times, its content hash.
//!
//! A listing is the truth about the folder; events only say when to list again. Nothing here follows a symbolic link,
//! opens anything but regular files, or decides what a file's state is: that is the checkpoint's.

pub mod list;
pub(crate) mod pattern;
pub mod read;
pub mod settle;
pub mod watch;

pub use list::{Filter, Listing, list};
pub use read::{
    PlannedStream, ReadFault, ReadFile, hash_file, nobody_writes, open_file, open_planned, read,
};
pub use settle::{Look, Settler};
pub use watch::{Wake, Waker, Watch};

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// A regular file below the landing folder, as a listing saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LandingFile {
    /// Relative to the landing folder, `/` between parts, in the reversible form of [`encode_name`].
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Microseconds since the epoch, UTC.
    pub modified_at: i64,
    /// Change time of the inode, microseconds since the epoch.
    pub changed_at: i64,
}

/// Writes a file name, or a relative path, as text that stands on one line and leads back to the same bytes.
///
/// Valid UTF-8 stays as it is, but for the backslash (`\\`) and control characters (`\xNN` for each byte); so do bytes
/// that are not UTF-8.
pub fn encode_name(name: &OsStr) -> String {
    let mut encoded = String::with_capacity(name.len());
    for chunk in name.as_bytes().utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => encoded.push_str("\\\\"),
                control if control.is_control() => {
                    push_bytes(&mut encoded, control.encode_utf8(&mut [0; 4]).as_bytes());
                }
                plain => encoded.push(plain),
            }
        }
        push_bytes(&mut encoded, chunk.invalid());
    }
    encoded
}

/// The name behind the text of [`encode_name`]. A backslash that starts no escape stands for itself.
pub fn decode_name(text: &str) -> OsString {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let (byte, used) = match (first, tail) {
            (b'\\', [b'\\', ..]) => (b'\\', 2),
            (b'\\', [b'x', high, low, ..]) => match (hex_digit(*high), hex_digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, 4),
                _ => (b'\\', 1),
            },
            (plain, _) => (*plain, 1),
        };
        bytes.push(byte);
        rest = &rest[used..];
    }
    OsString::from_vec(bytes)
}

fn push_bytes(encoded: &mut String, bytes: &[u8]) {
    for byte in bytes {
        encoded.push_str(&format!("\\x{byte:02X}"));
    }
}

fn hex_digit(byte: u8) -> Option<u8> {
    char::from(byte)
        .to_digit(16)
        .and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_text_lead_back_to_themselves() {
        let names: [&[u8]; 8] = [
            b"\xff\xfe",
            b"a\xe2\x82",
            b"\\",
            b"\\xFF",
            b"\\\\x41",
            b"line\nbreak\ttab\x7f",
            "\u{85}\u{9b}".as_bytes(),
            "caf\u{e9}/\u{4e2d}.json".as_bytes(),
        ];
        for name in names {
            let name = OsStr::from_bytes(name);
            let text = encode_name(name);
            assert!(!text.chars().any(char::is_control), "{text:?}");
            assert_eq!(decode_name(&text), name, "{text:?}");
        }
        let every: Vec<u8> = (1..=255).collect();
        assert_eq!(
            decode_name(&encode_name(OsStr::from_bytes(&every))).as_bytes(),
            every
        );
    }

    #[test]
    fn text_stays_readable() {
        assert_eq!(
            encode_name(OsStr::new("day 1/caf\u{e9}%2F[2].json")),
            "day 1/caf\u{e9}%2F[2].json"
        );
        assert_eq!(
            encode_name(OsStr::from_bytes(b"a\xff\nb\\")),
            "a\\xFF\\x0Ab\\\\"
        );
    }

    #[test]
    fn backslash_that_starts_no_escape_stands_for_itself() {
        assert_eq!(decode_name("a\\xZZ\\q\\"), OsStr::new("a\\xZZ\\q\\"));
    }
}
