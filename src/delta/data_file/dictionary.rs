//! Numbers the different values of a chunk.

use super::bits::Width;
use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// So many values at most, and so many bytes of them: more do not repeat often enough.
const VALUES_MAX: usize = 1 << 16;
const BYTES_MAX: usize = 1 << 20;
/// Values that were met lately are found without a look into the map; a power of two.
const RECENT: usize = 1 << 8;
/// Texts of so many bytes are told apart by their marks alone.
const MARKED_BYTES: usize = 16;

/// A value that a dictionary can hold.
pub(super) trait Entry {
    /// What is kept of it.
    type Owned: Hash + Eq + Borrow<Self>;
    fn to_entry(&self) -> Self::Owned;
    /// Adds it as a page holds it; numbers in so many bits.
    fn write(&self, out: &mut Vec<u8>, width: Width);
    /// Differs for most values that differ.
    fn mark(&self) -> Mark;
    /// Whether it differs for all values that have the mark of this one.
    fn is_marked(&self) -> bool;
}

/// The beginning and the end of a value, and its bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark {
    first: u64,
    last: u64,
    bytes: usize,
}

impl Mark {
    /// Of no value.
    const NONE: Mark = Mark {
        first: 0,
        last: 0,
        bytes: usize::MAX,
    };

    fn place(self) -> usize {
        let mixed = self.first ^ self.last.rotate_left(29) ^ (self.bytes as u64) << 56;
        (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - RECENT.ilog2())) as usize
    }
}

impl Entry for i64 {
    type Owned = i64;

    fn to_entry(&self) -> i64 {
        *self
    }

    fn write(&self, out: &mut Vec<u8>, width: Width) {
        match width {
            Width::Bits32 => out.extend_from_slice(&(*self as i32).to_le_bytes()),
            Width::Bits64 => out.extend_from_slice(&self.to_le_bytes()),
        }
    }

    fn mark(&self) -> Mark {
        Mark {
            first: *self as u64,
            last: 0,
            bytes: size_of::<i64>(),
        }
    }

    fn is_marked(&self) -> bool {
        true
    }
}

impl Entry for str {
    type Owned = Box<str>;

    fn to_entry(&self) -> Box<str> {
        self.into()
    }

    fn write(&self, out: &mut Vec<u8>, _: Width) {
        out.extend_from_slice(&(self.len() as u32).to_le_bytes());
        out.extend_from_slice(self.as_bytes());
    }

    fn mark(&self) -> Mark {
        let bytes = self.as_bytes();
        let ends = match (bytes.first_chunk::<8>(), bytes.last_chunk::<8>()) {
            (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
            _ => match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
                (Some(first), Some(last)) => (
                    u32::from_le_bytes(*first).into(),
                    u32::from_le_bytes(*last).into(),
                ),
                _ => {
                    let all = |all, byte: &u8| all << 8 | u64::from(*byte);
                    (bytes.iter().fold(0, all), 0)
                }
            },
        };
        Mark {
            first: ends.0,
            last: ends.1,
            bytes: bytes.len(),
        }
    }

    fn is_marked(&self) -> bool {
        self.len() <= MARKED_BYTES
    }
}

/// The values of a chunk, each with its number.
pub(super) struct Dictionary<T: Entry + ?Sized> {
    numbers: HashMap<T::Owned, u32>,
    /// In the order of their numbers.
    pub(super) values: Vec<T::Owned>,
    bytes: usize,
    /// The numbers of values by the places of their marks.
    recent: Box<[(Mark, u32)]>,
    /// The last page that has the value, by its number.
    seen_in: Vec<u32>,
    page: u32,
}

/// The values of a page by their numbers.
pub(super) struct Numbered {
    pub(super) numbers: Vec<u32>,
    /// Each that occurs, once.
    pub(super) distinct: Vec<u32>,
}

impl<T: Entry + Hash + Eq + ?Sized> Dictionary<T> {
    pub(super) fn new() -> Self {
        Dictionary {
            numbers: HashMap::new(),
            values: Vec::new(),
            bytes: 0,
            recent: vec![(Mark::NONE, 0); RECENT].into_boxed_slice(),
            seen_in: Vec::new(),
            page: 0,
        }
    }

    /// The numbers of the values of the next page; `None` when there are too many values.
    pub(super) fn number<'v>(&mut self, values: impl Iterator<Item = &'v T>) -> Option<Numbered>
    where
        T: 'v,
    {
        self.page += 1;
        let mut numbers: Vec<u32> = Vec::with_capacity(values.size_hint().0);
        let mut distinct = Vec::new();
        for value in values {
            let number = self.number_of(value)?;
            let seen = &mut self.seen_in[number as usize];
            if *seen != self.page {
                *seen = self.page;
                distinct.push(number);
            }
            numbers.push(number);
        }
        Some(Numbered { numbers, distinct })
    }

    fn number_of(&mut self, value: &T) -> Option<u32> {
        let mark = value.mark();
        let (known, number) = self.recent[mark.place()];
        if known == mark
            && (value.is_marked() || Borrow::<T>::borrow(&self.values[number as usize]) == value)
        {
            return Some(number);
        }
        let number = match self.numbers.get(value) {
            Some(number) => *number,
            None => self.add(value)?,
        };
        self.recent[mark.place()] = (mark, number);
        Some(number)
    }

    fn add(&mut self, value: &T) -> Option<u32> {
        self.bytes += size_of_val(value) + size_of::<u32>();
        if self.values.len() >= VALUES_MAX || self.bytes > BYTES_MAX {
            return None;
        }
        let number = self.values.len() as u32;
        self.values.push(value.to_entry());
        self.seen_in.push(0);
        self.numbers.insert(value.to_entry(), number);
        Some(number)
    }

    /// The values as a dictionary page has them.
    pub(super) fn page(&self, width: Width) -> Vec<u8> {
        let mut page = Vec::with_capacity(self.bytes);
        for value in &self.values {
            Borrow::<T>::borrow(value).write(&mut page, width);
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_has_one_number_however_many_share_a_mark() {
        // All of them have one length, and one beginning and end.
        let text = |middle: usize| format!("beginning {middle:04} and the end");
        let texts: Vec<String> = (0..3_000).map(|at| text(at * 7 % 1_000)).collect();
        let mut dictionary = Dictionary::<str>::new();
        let numbered = dictionary.number(texts.iter().map(String::as_str)).unwrap();
        assert_eq!(dictionary.values.len(), 1_000);
        assert_eq!(numbered.distinct.len(), 1_000);
        for (text, number) in texts.iter().zip(&numbered.numbers) {
            assert_eq!(&*dictionary.values[*number as usize], text);
        }
        let again = dictionary.number(["", &texts[5], ""].into_iter()).unwrap();
        assert_eq!(again.numbers, [1_000, numbered.numbers[5], 1_000]);
        assert_eq!(again.distinct.len(), 2);
    }

    #[test]
    fn short_texts_are_told_apart_by_length_beginning_and_end() {
        // All texts of up to 17 bytes that differ from another in one byte, or by one byte.
        let mut texts = vec![String::new()];
        for length in 1..=MARKED_BYTES + 1 {
            texts.push("a".repeat(length));
            for place in 0..length {
                let mut text = "a".repeat(length);
                text.replace_range(place..=place, "b");
                texts.push(text);
            }
        }
        let mut dictionary = Dictionary::<str>::new();
        let count = texts.len() as u32;
        for _ in 0..3 {
            let numbered = dictionary.number(texts.iter().map(String::as_str)).unwrap();
            assert_eq!(numbered.numbers, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn values_that_hardly_repeat_are_given_up() {
        let numbers: Vec<i64> = (0..=VALUES_MAX as i64).collect();
        assert!(Dictionary::<i64>::new().number(numbers.iter()).is_none());
        let mut dictionary = Dictionary::<i64>::new();
        assert!(dictionary.number(numbers[1..].iter()).is_some());
        let long = "x".repeat(BYTES_MAX);
        assert!(
            Dictionary::<str>::new()
                .number([long.as_str()].into_iter())
                .is_none()
        );
    }
}
