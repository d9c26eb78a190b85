//! Cuts a text into blocks of whole lines, documents of JSON or separated values, while it is read, so that no more of it is in
//! memory than a few.
//!
//! Each block knows what stands before it, so that blocks can be decoded side by side and still name every record by its
//! place in the file.

mod records;

use super::csv::Header;
use super::documents::{Documents, FramingFault, Resumed};
use super::format::FileFormat;
use super::parquet::Batch;
use super::rows::{Before, Place};
use super::unpack::stream::damage;
use super::{RECORD_BYTES_MAX, encoding, format_of_blocks};
use crate::change::{FileFault, ParkReason};
use crate::settings::SourceSettings;
use bytes::Bytes;
use memchr::{memchr_iter, memrchr};
use records::Separated;
use std::io::{Error, ErrorKind, Read, Result};
use std::sync::Arc;

/// A text in UTF-8 may begin with a mark of so many bytes, which are none of its first record.
const MARK_BYTES: usize = 3;

/// How the records of a file are told from one another.
#[derive(Clone, Debug)]
pub struct Framing(State);

/// Whole records of a file.
#[derive(Clone, Debug)]
pub struct Block {
    /// The records with their line ends, or what stands from one document to another; none where the content is rows.
    pub bytes: Bytes,
    /// What stands before them.
    pub before: Before,
    /// The block is the beginning of one record that is too large; it has so many bytes.
    pub too_large: Option<usize>,
    pub(super) content: Content,
}

/// What a block holds.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// A record a line.
    Lines,
    /// Documents at these places.
    Documents(Vec<Place>),
    /// Records of separated values.
    Separated(Arc<Header>),
    /// Rows of Parquet, which are in no bytes.
    Batches(Vec<Batch>),
}

/// What is known of the text before the next block.
#[derive(Clone, Debug)]
enum State {
    Lines,
    Documents(Resumed),
    Separated(Box<Separated>),
}

impl Framing {
    /// Of lines, whatever the file.
    #[cfg(test)]
    pub(crate) fn lines() -> Self {
        Framing(State::Lines)
    }

    /// That of a file that can be read in blocks, told by its name and the settings; its first bytes must be asked, too.
    pub fn of(path: &str, settings: &SourceSettings) -> Option<Self> {
        let state = match format_of_blocks(path, settings)? {
            FileFormat::Json if settings.json.multi_line => State::Documents(Resumed::default()),
            FileFormat::Json => State::Lines,
            FileFormat::Csv { delimiter } => {
                State::Separated(Box::new(Separated::new(settings.clone(), delimiter)))
            }
            FileFormat::Parquet | FileFormat::Avro => return None,
        };
        Some(Framing(state))
    }
}

/// The blocks of a file, one after the other.
#[derive(Debug)]
pub struct Blocks<R> {
    input: R,
    /// Read, and in no block yet.
    rest: Vec<u8>,
    /// Memory for the next block, of the length of one.
    spare: Option<Vec<u8>>,
    before: Before,
    is_at_end: bool,
    block_bytes: usize,
    record_bytes_max: usize,
    state: State,
}

impl<R: Read> Blocks<R> {
    /// Begins at the beginning of `input`; a block has no more than `block_bytes`, unless one record has.
    pub fn new(input: R, block_bytes: usize, framing: Framing) -> Self {
        Blocks {
            input,
            rest: Vec::new(),
            spare: None,
            before: Before::default(),
            is_at_end: false,
            block_bytes: block_bytes.max(1),
            record_bytes_max: RECORD_BYTES_MAX,
            state: framing.0,
        }
    }

    #[cfg(test)]
    pub(super) fn with_record_bytes_max(mut self, record_bytes_max: usize) -> Self {
        self.record_bytes_max = record_bytes_max;
        self
    }

    /// Takes the memory of a block that is of no more use, unless others look at it still: to read into new memory costs more.
    pub fn take_back(&mut self, bytes: Bytes) {
        let is_whole = bytes.len() >= self.block_bytes / 2 && bytes.len() <= self.block_bytes;
        if let Some(bytes) = bytes.try_into_mut().ok().filter(|_| is_whole) {
            let mut bytes = Vec::from(bytes);
            bytes.resize(self.block_bytes, 0);
            self.spare = Some(bytes);
        }
    }

    /// The next block; `None` at the end. The error of a file whose records cannot be told from one another is a fault of it.
    pub fn next_block(&mut self) -> Result<Option<Block>> {
        match std::mem::replace(&mut self.state, State::Lines) {
            State::Lines => self.next_lines(),
            State::Documents(resumed) => self.next_documents(resumed),
            State::Separated(separated) => self.next_records(separated),
        }
    }

    fn next_lines(&mut self) -> Result<Option<Block>> {
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
            if bytes.len() > self.record_bytes_max + MARK_BYTES {
                return self.too_large(bytes).map(Some);
            }
            target = bytes.len() + self.block_bytes;
        }
        let before = self.before;
        self.count(&bytes);
        Ok(Some(Block {
            bytes: bytes.into(),
            before,
            too_large: None,
            content: Content::Lines,
        }))
    }

    fn next_documents(&mut self, resumed: Resumed) -> Result<Option<Block>> {
        let mut bytes = std::mem::take(&mut self.rest);
        let mut target = self.block_bytes;
        let (before, mut start) = (self.before, 0);
        loop {
            self.fill(&mut bytes, target)?;
            if before.bytes == 0 {
                start = encoding::utf8_start(&bytes).map_err(|fault| self.lost(fault))?;
            }
            let mut documents = Documents::resume(&bytes, start, resumed.clone());
            let found = self.documents_in(&mut documents, bytes.len());
            let (places, end, resumed) = found.map_err(|fault| self.lost(named(fault, before)))?;
            if places.is_empty() && !self.is_at_end {
                target = bytes.len() + self.block_bytes;
                continue;
            }
            self.rest = bytes.split_off(end);
            self.before.bytes += end;
            self.before.lines += memchr_iter(b'\n', &bytes).count() as i64;
            self.before.records += places.len();
            self.state = State::Documents(resumed);
            return Ok((!places.is_empty()).then(|| Block {
                bytes: bytes.into(),
                before,
                too_large: None,
                content: Content::Documents(places),
            }));
        }
    }

    /// The documents that surely end before `length`, the place behind the last, and what is known there.
    fn documents_in(
        &self,
        documents: &mut Documents<'_>,
        length: usize,
    ) -> std::result::Result<(Vec<Place>, usize, Resumed), FramingFault> {
        let (lines, bytes) = (self.before.lines, self.before.bytes);
        let mut places = Vec::new();
        let (mut end, mut known) = (documents.place(), documents.suspend(lines, bytes));
        loop {
            match documents.next() {
                Ok(Some((place, _))) => {
                    // A number at the end may go on.
                    if !self.is_at_end && documents.place() >= length {
                        break;
                    }
                    places.push(place);
                }
                Ok(None) => {
                    (end, known) = (documents.place(), documents.suspend(lines, bytes));
                    break;
                }
                Err(fault) => {
                    let goes_on = fault.reason == ParkReason::TruncatedStream;
                    if !self.is_at_end && (goes_on || documents.place() >= length) {
                        break;
                    }
                    return Err(fault);
                }
            }
            (end, known) = (documents.place(), documents.suspend(lines, bytes));
        }
        Ok((places, end, known))
    }

    /// Reads until there are `target` bytes, or to the end.
    fn fill(&mut self, bytes: &mut Vec<u8>, target: usize) -> Result<()> {
        let missing = target.saturating_sub(bytes.len());
        if let Some(spare) = self
            .spare
            .take_if(|spare| spare.len() == target && missing > 0)
        {
            return self.fill_spare(bytes, spare);
        }
        bytes.reserve_exact(missing);
        let read = (&mut self.input).take(missing as u64).read_to_end(bytes)?;
        self.is_at_end |= read < missing;
        Ok(())
    }

    /// Moves `bytes` into `room` and fills it, or reads to the end.
    fn fill_spare(&mut self, bytes: &mut Vec<u8>, mut room: Vec<u8>) -> Result<()> {
        let mut filled = bytes.len();
        room[..filled].copy_from_slice(bytes);
        while filled < room.len() {
            match self.input.read(&mut room[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.is_at_end |= filled < room.len();
        room.truncate(filled);
        *bytes = room;
        Ok(())
    }

    /// The error of a file whose records cannot be told from one another from here on; a damage of its bytes tells more.
    fn lost(&mut self, fault: FileFault) -> Error {
        match std::io::copy(&mut self.input, &mut std::io::sink()) {
            Ok(_) => damage(fault),
            Err(error) => error,
        }
    }

    /// Goes to the end of a line of which `bytes` is the beginning.
    fn too_large(&mut self, mut bytes: Vec<u8>) -> Result<Block> {
        let before = self.before;
        let (mut length, mut last) = (bytes.len(), bytes.last().copied());
        let mut piece = Vec::new();
        while !self.is_at_end {
            piece.clear();
            self.fill(&mut piece, self.block_bytes)?;
            let end = memchr::memchr(b'\n', &piece);
            let line = &piece[..end.unwrap_or(piece.len())];
            length += line.len();
            last = line.last().copied().or(last);
            if let Some(end) = end {
                self.rest = piece.split_off(end + 1);
                self.before.bytes += 1;
                break;
            }
        }
        bytes.truncate(self.record_bytes_max + MARK_BYTES);
        self.before.bytes += length;
        self.before.lines += 1;
        self.before.records += 1;
        Ok(Block {
            bytes: bytes.into(),
            before,
            too_large: Some(length - usize::from(last == Some(b'\r'))),
            content: Content::Lines,
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

/// Names the place where the framing is lost; one that was named in an earlier stretch stands.
fn named(fault: FramingFault, before: Before) -> FileFault {
    let fault = match fault.is_placed {
        true => fault,
        false => fault.behind(before.lines, before.bytes),
    };
    fault.of_file(fault.at)
}

/// Whether a line is no record.
pub(super) fn is_blank(line: &[u8]) -> bool {
    line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r'))
}

#[cfg(test)]
mod tests {
    use super::super::testing::settings;
    use super::super::unpack::stream::fault_of;
    use super::*;
    use crate::settings::Format;

    fn framing(are_documents: bool) -> Framing {
        let mut settings = settings(Format::Json);
        settings.json.multi_line = are_documents;
        Framing::of("a.jsonl", &settings).unwrap()
    }

    fn blocks(text: &[u8], block_bytes: usize) -> Vec<Block> {
        let mut blocks = Blocks::new(text, block_bytes, framing(false));
        std::iter::from_fn(|| blocks.next_block().unwrap()).collect()
    }

    #[test]
    fn blocks_are_the_same_in_memory_of_earlier_ones() {
        let lines = (0..40).map(|line| format!("{{\"a\":\"{}\"}}\n", "x".repeat(line * 7 % 30)));
        let text: String = lines.collect();
        for block_bytes in 1..text.len() + 2 {
            let mut again = Blocks::new(text.as_bytes(), block_bytes, framing(false));
            let mut held = None;
            for (place, block) in blocks(text.as_bytes(), block_bytes).iter().enumerate() {
                let other = again.next_block().unwrap().unwrap();
                assert_eq!(other.bytes, block.bytes, "{block_bytes}");
                assert_eq!(other.before.bytes, block.before.bytes);
                // What somebody looks at still is left alone.
                if place % 3 == 1 {
                    held = Some((other.bytes.clone(), block.bytes.clone()));
                }
                again.take_back(other.bytes);
                assert!(held.as_ref().is_none_or(|(held, known)| held == known));
            }
            assert!(again.next_block().unwrap().is_none());
        }
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
    fn documents_are_found_in_blocks_of_any_size_as_in_the_whole_text() {
        let read = |text: &str, block_bytes: usize| {
            let mut blocks = Blocks::new(text.as_bytes(), block_bytes, framing(true));
            let mut found = Vec::new();
            loop {
                match blocks.next_block() {
                    Ok(None) => return Ok(found),
                    Err(error) => return Err(fault_of(&error).unwrap()),
                    Ok(Some(block)) => {
                        let before = block.before;
                        assert_eq!(before.records, found.len());
                        let Content::Documents(places) = block.content else {
                            panic!("these are documents");
                        };
                        for place in places {
                            let start = place.offset.unwrap();
                            let bytes = &block.bytes[start..start + place.length];
                            let line = place.line.unwrap() + before.lines;
                            found.push((line, before.bytes + start, bytes.to_vec()));
                        }
                    }
                }
            }
        };
        for text in [
            "",
            " [ ] \n",
            "{}{\"a\":1}\n12 null\n\"x\\\"y\"",
            "\u{feff}[\n{\"a\": \"]\"},\n [1, {}],\n17]\n[\n]\n{\"b\":\n2}",
            "[{\"a\":1},\n{\"a\":2}",
            "\n[{\"a\":1}\n{\"a\":2}]",
            "{\"a\":1}\nnul",
            "{\"a\":1}\n{\"a\":\"x}",
            "[{\"a\":1},]",
        ] {
            let whole = read(text, text.len() + 1);
            for block_bytes in 1..text.len() + 1 {
                assert_eq!(read(text, block_bytes), whole, "{text:?} by {block_bytes}");
            }
        }
    }

    #[test]
    fn line_that_is_too_large_is_passed_over() {
        let long = "x".repeat(RECORD_BYTES_MAX + (3 << 20));
        for end in ["\n", "\r\n", "\n{}\n", "\r\n{}\n", "\r", ""] {
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
            let behind = text.len() - "{}\n".len();
            assert!(places.is_none_or(|places| places == (behind, 2)));
        }
    }
}
