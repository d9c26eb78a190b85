//! Texts of which each leaves out what it begins with like the one before.
//!
//! Source of the rules: the encodings of the Parquet format, "DELTA_BYTE_ARRAY".

use super::bits::{self, Width};

/// It pays where one of so many bytes is left out, those that tell the lengths of texts among them.
const SAVED_SHARE: usize = 4;

/// Adds a page of texts, if it pays; otherwise nothing.
pub(super) fn texts(out: &mut Vec<u8>, texts: &[&str]) -> bool {
    let mut fronts: Vec<i64> = Vec::with_capacity(texts.len());
    let mut rests: Vec<i64> = Vec::with_capacity(texts.len());
    let (mut left_out, mut kept) = (0, 0);
    let mut before = "";
    for text in texts {
        let front = front(before, text);
        left_out += front;
        kept += text.len() - front;
        fronts.push(front as i64);
        rests.push((text.len() - front) as i64);
        before = text;
    }
    let plain = left_out + kept + texts.len() * size_of::<u32>();
    if left_out * SAVED_SHARE < plain {
        return false;
    }
    bits::deltas(out, &fronts, Width::Bits32);
    bits::deltas(out, &rests, Width::Bits32);
    out.reserve(kept);
    for (text, front) in texts.iter().zip(fronts) {
        out.extend_from_slice(&text.as_bytes()[front as usize..]);
    }
    true
}

/// How many bytes both begin with, whole characters.
fn front(left: &str, right: &str) -> usize {
    let (left_bytes, right_bytes) = (left.as_bytes(), right.as_bytes());
    let mut alike = 0;
    let (of_left, of_right) = (left_bytes.as_chunks::<8>(), right_bytes.as_chunks::<8>());
    for (of_left, of_right) in of_left.0.iter().zip(of_right.0) {
        let differing = u64::from_le_bytes(*of_left) ^ u64::from_le_bytes(*of_right);
        if differing != 0 {
            alike += (differing.trailing_zeros() / u8::BITS) as usize;
            return right.floor_char_boundary(alike);
        }
        alike += of_left.len();
    }
    let rest = left_bytes[alike..].iter().zip(&right_bytes[alike..]);
    alike += rest.take_while(|(left, right)| left == right).count();
    right.floor_char_boundary(alike)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_begin_alike_up_to_the_first_character_that_differs() {
        let long = "a text that is longer than a few words";
        for length in 0..long.len() {
            let (begin, rest) = long.split_at(length);
            assert_eq!(front(long, begin), length);
            assert_eq!(front(begin, long), length);
            assert_eq!(front(long, &format!("{begin}#{rest}")), length);
        }
        assert_eq!(front(long, long), long.len());
        // Characters that share their first bytes.
        assert_eq!(front("1234567\u{e9}", "1234567\u{ea}"), 7);
        assert_eq!(front("12345\u{e9}", "12345\u{ea}"), 5);
        assert_eq!(front("\u{1f600}x", "\u{1f601}x"), 0);
        assert_eq!(front("\u{e9}", "\u{e9}x"), 2);
    }

    #[test]
    fn page_is_made_where_it_is_smaller() {
        let made = |texts: &[&str]| {
            let mut out = vec![7];
            let is_made = super::texts(&mut out, texts);
            assert_eq!(is_made, out.len() > 1);
            is_made
        };
        assert!(made(&["customer 1", "customer 2", "customer 33"]));
        assert!(!made(&["red", "green", "blue"]));
        assert!(!made(&["", "", ""]));
        assert!(!made(&["one text is like no other"]));
    }
}
