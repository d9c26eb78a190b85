//! Cuts a file of JSON lines into blocks of whole lines while it is read, so that no more of it is in memory than a few.
//!
//! Each block knows what stands before it, so that blocks can be decoded side by side and still name every record by its
//! place in the file.

use super::RECORD_BYTES_MAX;
use super::rows::Before;
use bytes::Bytes;
use memchr::{memchr_iter, memrchr};
use std::io::{Read, Result};

/// A text in UTF-8 may begin with a mark of so many bytes, which are none of its first record.
const MARK_BYTES: usize = 3;

/// Whole lines of a file.
#[derive(Clone, Debug)]
pub struct LineBlock {
    /// The lines with their ends.
    pub bytes: Bytes,
    /// What stands before them.
    pub before: Before,
    /// The block is the beginning of one line that is too large for a record; the line has so many bytes.
    pub too_large: Option<usize>,
}

/// The blocks of a file, one after the other.
#[derive(Debug)]
pub struct LineBlocks<R> {
    input: R,
    /// Read, and in no block yet.
    rest: Vec<u8>,
    before: Before,
    is_at_end: bool,
    block_bytes: usize,
}

impl<R: Read> LineBlocks<R> {
    /// Begins at the beginning of `input`; a block has no more than `block_bytes`, unless one line has.
    pub fn new(input: R, block_bytes: usize) -> Self {
        LineBlocks {
            input,
            rest: Vec::new(),
            before: Before::default(),
            is_at_end: false,
            block_bytes: block_bytes.max(1),
        }
    }

    /// What is read from, wherever it stands.
    pub fn into_inner(self) -> R {
        self.input
    }

    /// The next block; `None` at the end.
    pub fn next(&mut self) -> Result<Option<LineBlock>> {
        let mut bytes = std::mem::take(&mut self.rest);
        let mut target = self.block_bytes;
        loop {
            self.fill(&mut bytes, target)?;
            if bytes.is_empty() {
                return Ok(None);
            }
            if self.is_at_end {
                break;
            }
            if let Some(last) = memrchr(b'\n', &bytes) {
                self.rest = bytes.split_off(last + 1);
                break;
            }
            // Behind a mark of the encoding a record may still be small enough.
            if bytes.len() > RECORD_BYTES_MAX + MARK_BYTES {
                return self.too_large(bytes).map(Some);
            }
            target = bytes.len() + self.block_bytes;
        }
        let before = self.before;
        self.count(&bytes);
        Ok(Some(LineBlock {
            bytes: bytes.into(),
            before,
            too_large: None,
        }))
    }

    /// Reads until there are `target` bytes, or to the end.
    fn fill(&mut self, bytes: &mut Vec<u8>, target: usize) -> Result<()> {
        let missing = target.saturating_sub(bytes.len());
        bytes.reserve_exact(missing);
        let read = (&mut self.input).take(missing as u64).read_to_end(bytes)?;
        self.is_at_end |= read < missing;
        Ok(())
    }

    /// Goes to the end of a line of which `bytes` is the beginning.
    fn too_large(&mut self, mut bytes: Vec<u8>) -> Result<LineBlock> {
        let before = self.before;
        let mut length = bytes.len();
        let mut piece = Vec::new();
        while !self.is_at_end {
            piece.clear();
            self.fill(&mut piece, self.block_bytes)?;
            if let Some(end) = memchr::memchr(b'\n', &piece) {
                length += end;
                self.rest = piece.split_off(end + 1);
                self.before.bytes += 1;
                break;
            }
            length += piece.len();
        }
        bytes.truncate(RECORD_BYTES_MAX + MARK_BYTES);
        self.before.bytes += length;
        self.before.lines += 1;
        self.before.records += 1;
        Ok(LineBlock {
            bytes: bytes.into(),
            before,
            too_large: Some(length),
        })
    }

    /// Counts what the block holds.
    fn count(&mut self, bytes: &[u8]) {
        self.before.bytes += bytes.len();
        let mut start = 0;
        for end in memchr_iter(b'\n', bytes) {
            self.before.lines += 1;
            self.before.records += usize::from(!is_blank(&bytes[start..end]));
            start = end + 1;
        }
        // Nothing comes behind a line without an end.
        self.before.records += usize::from(!is_blank(&bytes[start..]));
    }
}

/// Whether a line is no record.
pub(super) fn is_blank(line: &[u8]) -> bool {
    line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(text: &[u8], block_bytes: usize) -> Vec<LineBlock> {
        let mut blocks = LineBlocks::new(text, block_bytes);
        std::iter::from_fn(|| blocks.next().unwrap()).collect()
    }

    #[test]
    fn blocks_are_the_file_and_know_what_stands_before_them() {
        let text =
            "\u{feff}{\"a\":1}\r\n\n \t\r\n{\"a\":\"long enough for two\"}\n{}\n\r\n{\"b\":2}";
        for block_bytes in 1..text.len() + 2 {
            let (mut joined, mut lines, mut records) = (Vec::new(), 0, 0);
            for block in blocks(text.as_bytes(), block_bytes) {
                assert_eq!(block.before.bytes, joined.len(), "{block_bytes}");
                assert_eq!((block.before.lines, block.before.records), (lines, records));
                let whole = std::str::from_utf8(&block.bytes).unwrap();
                assert!(block.too_large.is_none() && !whole.is_empty());
                lines += whole.matches('\n').count() as i64;
                records += whole.lines().filter(|line| !line.trim().is_empty()).count();
                joined.extend_from_slice(&block.bytes);
            }
            assert_eq!(joined, text.as_bytes());
        }
        assert!(blocks(b"", 4).is_empty());
    }

    #[test]
    fn line_that_is_too_large_is_passed_over() {
        let long = "x".repeat(RECORD_BYTES_MAX + (3 << 20));
        for end in ["\n", "\n{}\n", ""] {
            let text = format!("{{}}\n{long}{end}");
            let found = blocks(text.as_bytes(), 1 << 20);
            let cut = found
                .iter()
                .find(|block| block.too_large.is_some())
                .unwrap();
            assert_eq!(cut.too_large, Some(long.len()));
            assert_eq!((cut.before.bytes, cut.before.records), (3, 1));
            assert!(cut.bytes.len() >= RECORD_BYTES_MAX);
            let behind = found.iter().find(|block| block.before.records == 2);
            assert_eq!(behind.is_some(), end.contains('{'));
            let places = behind.map(|block| (block.before.bytes, block.before.lines));
            assert!(places.is_none_or(|places| places == (long.len() + 4, 2)));
        }
    }
}
