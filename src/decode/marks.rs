//! How far it is to the next byte that means something, several bytes at once.
//!
//! Mostly it is near, so the first bytes are looked at without a branch for each of them.

use memchr::memchr2;

/// The bytes that are looked at first.
const NEAR: usize = 16;
/// A byte of a word in all of its places.
const ONES: u64 = u64::MAX / 0xFF;

/// How many bytes stand before the first quote, backslash or control character of JSON.
#[inline]
pub(super) fn plain_length(bytes: &[u8]) -> usize {
    near_length(bytes, special_marks).unwrap_or_else(|| far_length(bytes, special_marks))
}

/// How many bytes stand before the first of two; all of them, if neither is there.
#[inline]
pub(super) fn length_before(one: u8, other: u8, bytes: &[u8]) -> usize {
    let marks = |word| equal_marks(word, one) | equal_marks(word, other);
    near_length(bytes, marks).unwrap_or_else(|| memchr2(one, other, bytes).unwrap_or(bytes.len()))
}

/// How many bytes stand before the first quote or bracket of JSON.
#[inline]
pub(super) fn length_before_bracket(bytes: &[u8]) -> usize {
    near_length(bytes, bracket_marks).unwrap_or_else(|| far_length(bytes, bracket_marks))
}

/// How many bytes stand before the first that is marked, if it is one of the first.
#[inline]
fn near_length(bytes: &[u8], marks: impl Fn(u64) -> u64) -> Option<usize> {
    let near = u128::from_le_bytes(*bytes.first_chunk::<NEAR>()?);
    let (low, high) = (marks(near as u64), marks((near >> 64) as u64));
    let marks = (u128::from(high) << 64) | u128::from(low);
    (marks != 0).then(|| marks.trailing_zeros() as usize / 8)
}

fn far_length(bytes: &[u8], marks: impl Fn(u64) -> u64) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    for (place, word) in words.iter().enumerate() {
        let found = marks(u64::from_le_bytes(*word));
        if found != 0 {
            return place * 8 + found.trailing_zeros() as usize / 8;
        }
    }
    let before = bytes.len() - rest.len();
    // The zeros behind the last bytes may be marked, too.
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let found = marks(u64::from_le_bytes(last)).trailing_zeros() as usize / 8;
    before + found.min(rest.len())
}

/// Marks the bytes below `bound`, which is at most 128; the lowest mark is right, those above it may not be.
#[inline]
fn low_marks(word: u64, bound: u64) -> u64 {
    word.wrapping_sub(ONES * bound) & !word & (ONES << 7)
}

/// Marks the bytes that are this one, in the same way.
#[inline]
fn equal_marks(word: u64, byte: u8) -> u64 {
    low_marks(word ^ (ONES * u64::from(byte)), 1)
}

#[inline]
fn special_marks(word: u64) -> u64 {
    equal_marks(word, b'"') | equal_marks(word, b'\\') | low_marks(word, 0x20)
}

#[inline]
fn bracket_marks(word: u64) -> u64 {
    // Square brackets differ from curly ones in one bit.
    let curly = word | (ONES * 0x20);
    equal_marks(word, b'"') | equal_marks(curly, b'{') | equal_marks(curly, b'}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::testing::numbers;

    #[test]
    fn every_byte_is_found_at_every_distance_or_is_none_of_those() {
        let mut next = numbers(5);
        for byte in 0..=255u8 {
            for before in 0..40 {
                let mut bytes = vec![b'a'; before];
                bytes.push(byte);
                bytes.extend((0..next(30)).map(|_| next(256) as u8));
                let check = |found: usize, is_one: &dyn Fn(&u8) -> bool| {
                    let expected = bytes.iter().position(is_one).unwrap_or(bytes.len());
                    assert_eq!(found, expected, "{byte} behind {before}");
                };
                check(plain_length(&bytes), &|b| {
                    matches!(b, b'"' | b'\\' | 0..0x20)
                });
                check(length_before(b',', b'\n', &bytes), &|b| {
                    matches!(b, b',' | b'\n')
                });
                check(length_before(0, 0xA7, &bytes), &|b| matches!(b, 0 | 0xA7));
                check(length_before_bracket(&bytes), &|b| b"\"{}[]".contains(b));
            }
        }
    }
}
