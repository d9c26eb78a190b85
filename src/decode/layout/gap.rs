//! A text that is compared again and again.

/// The bytes that are compared at once.
const WORD: usize = 16;

/// A text with its first and last bytes ready to be compared at once.
pub(super) struct Gap {
    text: Box<[u8]>,
    head: u128,
    mask: u128,
    /// The last bytes, where there are more than those of the head.
    tail: u128,
}

impl Gap {
    pub(super) fn new(text: &[u8]) -> Gap {
        let mut head = [0; WORD];
        let mut mask = [0; WORD];
        for (place, byte) in text.iter().take(WORD).enumerate() {
            head[place] = *byte;
            mask[place] = 0xFF;
        }
        Gap {
            text: text.into(),
            head: u128::from_le_bytes(head),
            mask: u128::from_le_bytes(mask),
            tail: text.last_chunk().copied().map_or(0, u128::from_le_bytes),
        }
    }

    /// Bytes of the text.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    /// Whether `rest` begins with the text.
    #[inline]
    pub(super) fn stands_at(&self, rest: &[u8]) -> bool {
        let length = self.text.len();
        let Some(word) = rest.first_chunk::<WORD>() else {
            return rest.starts_with(&self.text);
        };
        if (u128::from_le_bytes(*word) ^ self.head) & self.mask != 0 {
            return false;
        }
        if length <= WORD {
            return true;
        }
        let Some(last) = rest.get(..length).and_then(<[u8]>::last_chunk::<WORD>) else {
            return false;
        };
        u128::from_le_bytes(*last) == self.tail
            && (length <= 2 * WORD || rest.starts_with(&self.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_stands_only_where_all_of_its_bytes_do() {
        let long: Vec<u8> = (0..50).collect();
        for length in 0..long.len() {
            let gap = Gap::new(&long[..length]);
            for rest in 0..long.len() {
                assert_eq!(
                    gap.stands_at(&long[..rest]),
                    rest >= length,
                    "{length} {rest}"
                );
            }
            for wrong in 0..length {
                let mut other = long.clone();
                other[wrong] ^= 0x80;
                assert!(!gap.stands_at(&other), "{length} {wrong}");
            }
        }
    }
}
