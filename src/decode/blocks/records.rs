//! Cuts separated values into blocks of whole records, however many lines a record has.

use super::{Block, Blocks, Content, State};
use crate::decode::csv::{Header, RecordEnds, header_too_large, unclosed};
use crate::decode::encoding;
use crate::decode::rows::Before;
use crate::decode::unpack::stream::damage;
use crate::settings::SourceSettings;
use bytes::Bytes;
use std::io::{Read, Result};
use std::sync::Arc;

/// What is known of the text up to the next block.
#[derive(Clone, Debug)]
pub(super) struct Separated {
    settings: SourceSettings,
    delimiter: u8,
    ends: RecordEnds,
    /// `None` before the first block.
    header: Option<Arc<Header>>,
}

/// Some records of a text.
struct Stretch {
    bytes: Bytes,
    before: Before,
    /// It is the beginning of one record of so many bytes.
    too_large: Option<usize>,
}

impl Separated {
    pub(super) fn new(settings: SourceSettings, delimiter: u8) -> Self {
        Separated {
            ends: RecordEnds::new(&settings.csv, delimiter),
            settings,
            delimiter,
            header: None,
        }
    }
}

impl<R: Read> Blocks<R> {
    pub(super) fn next_records(&mut self, mut separated: Box<Separated>) -> Result<Option<Block>> {
        let header = match &separated.header {
            Some(header) => Arc::clone(header),
            None => Arc::new(self.header(&mut separated)?),
        };
        let stretch = self.stretch(&mut separated.ends, usize::MAX)?;
        separated.header = Some(Arc::clone(&header));
        self.state = State::Separated(separated);
        Ok(stretch.map(|stretch| Block {
            bytes: stretch.bytes,
            before: stretch.before,
            too_large: stretch.too_large,
            content: Content::Separated(header),
        }))
    }

    /// Finds the columns, and passes the header if there is one.
    fn header(&mut self, separated: &mut Separated) -> Result<Header> {
        self.pass_mark()?;
        let Separated {
            settings,
            delimiter,
            ends,
            ..
        } = separated;
        let first = match Header::is_of_first(settings) {
            true => self.stretch(ends, 1)?,
            false => None,
        };
        let Some(first) = first else {
            return Ok(Header::of_hints(settings, *delimiter));
        };
        let line = first.before.lines + 1;
        if let Some(length) = first.too_large {
            return Err(self.lost(header_too_large(line, length)));
        }
        match Header::of_first(&first.bytes, line, settings, *delimiter) {
            Ok((header, is_record)) => {
                self.before.records = 0;
                if is_record {
                    // Nothing is read of it yet.
                    self.before = first.before;
                    self.rest = [&first.bytes[..], &self.rest].concat();
                }
                Ok(header)
            }
            Err(fault) => Err(self.lost(fault)),
        }
    }

    fn pass_mark(&mut self) -> Result<()> {
        let mut bytes = std::mem::take(&mut self.rest);
        self.fill(&mut bytes, self.block_bytes.max(encoding::FRONT_BYTES))?;
        let start = encoding::utf8_start(&bytes).map_err(|fault| self.lost(fault))?;
        self.rest = bytes.split_off(start);
        self.before.bytes += start;
        Ok(())
    }

    /// The next records, `records_max` at most, without the lines before them that are none; `None` at the end.
    fn stretch(&mut self, ends: &mut RecordEnds, records_max: usize) -> Result<Option<Stretch>> {
        let mut bytes = std::mem::take(&mut self.rest);
        let mut target = self.block_bytes;
        loop {
            self.fill(&mut bytes, target)?;
            ends.scan(&bytes, self.is_at_end, records_max);
            let found = ends.take();
            if found.records > 0 {
                self.rest = bytes.split_off(found.end);
                self.pass(&bytes[..found.start], ends);
                let before = self.before;
                self.pass(&bytes[found.start..], ends);
                self.before.records += found.records;
                return Ok(Some(Stretch {
                    bytes: Bytes::from(bytes).slice(found.start..),
                    before,
                    too_large: None,
                }));
            }
            self.pass(&bytes[..found.end], ends);
            bytes.drain(..found.end);
            if self.is_at_end {
                return self.end(ends, &bytes).map(|()| None);
            }
            // The last byte may be a part of a line end.
            if bytes.len() > self.record_bytes_max + 1 {
                return self.large_record(ends, bytes).map(Some);
            }
            target = bytes.len() + self.block_bytes;
        }
    }

    /// Goes to the end of a record of which `piece` is the beginning.
    fn large_record(&mut self, ends: &mut RecordEnds, mut piece: Vec<u8>) -> Result<Stretch> {
        let before = self.before;
        let mut kept = Vec::new();
        let mut last_two = [None, None];
        let end = loop {
            let left = ends.leave(&piece, self.before.lines);
            let passed = &piece[..left];
            self.pass(passed, ends);
            let room = self.record_bytes_max - kept.len();
            kept.extend_from_slice(&passed[..left.min(room)]);
            last_two = last_of(last_two, passed);
            piece.drain(..left);
            let target = piece.len() + self.block_bytes;
            self.fill(&mut piece, target)?;
            ends.scan(&piece, self.is_at_end, 1);
            let found = ends.take();
            if found.records > 0 {
                break found.end;
            }
            if self.is_at_end {
                self.end(ends, &piece)?;
            }
        };
        self.rest = piece.split_off(end);
        self.pass(&piece, ends);
        self.before.records += 1;
        let last_two = last_of(last_two, &piece);
        let length = self.before.bytes - before.bytes - ends.line_end_length(last_two);
        Ok(Stretch {
            bytes: kept.into(),
            before,
            too_large: Some(length),
        })
    }

    /// Nothing comes behind `bytes`, in which no record ends.
    fn end(&self, ends: &RecordEnds, bytes: &[u8]) -> Result<()> {
        match ends.open_quote(bytes, self.before.lines) {
            Some(line) => Err(damage(unclosed(line))),
            None => Ok(()),
        }
    }

    /// Counts bytes of which nothing is needed any more.
    fn pass(&mut self, bytes: &[u8], ends: &RecordEnds) {
        self.before.bytes += bytes.len();
        self.before.lines += ends.lines(bytes);
    }
}

/// The last two bytes of a text that ends in `bytes` and had these before.
fn last_of(before: [Option<u8>; 2], bytes: &[u8]) -> [Option<u8>; 2] {
    match bytes {
        [] => before,
        [one] => [before[1], Some(*one)],
        [.., one, two] => [Some(*one), Some(*two)],
    }
}

#[cfg(test)]
mod tests {
    use super::super::Framing;
    use super::*;
    use crate::change::FileFault;
    use crate::decode::csv::framed;
    use crate::decode::testing::{Case, numbers};
    use crate::decode::unpack::stream::fault_of;
    use crate::decode::{Decoded, RECORD_BYTES_MAX, decode_block, new_columns_fault};
    use crate::schema::{NewColumn, merge_new_columns};
    use crate::settings::{AbsentColumns, CsvSettings, Envelope, Format, SchemaEvolutionMode};
    use arrow::compute::concat_batches;
    use arrow::datatypes::DataType;

    /// The line of a record, its first byte, how many it has, and the first of them.
    type Seen = (i64, usize, usize, Vec<u8>);

    fn blocks<'a>(text: &'a [u8], block_bytes: usize, case: &Case) -> Blocks<&'a [u8]> {
        let framing = Framing::of(case.path, &case.settings).unwrap();
        Blocks::new(text, block_bytes, framing)
    }

    /// The records in the blocks of a file without a header; of large ones the first `bytes_max` bytes.
    fn seen(
        blocks: Blocks<&[u8]>,
        dialect: &CsvSettings,
        bytes_max: usize,
    ) -> std::result::Result<Vec<Seen>, FileFault> {
        let mut blocks = blocks.with_record_bytes_max(bytes_max);
        let mut found = Vec::new();
        loop {
            let block = match blocks.next_block() {
                Ok(Some(block)) => block,
                Ok(None) => return Ok(found),
                Err(error) => return Err(fault_of(&error).unwrap()),
            };
            let before = block.before;
            assert_eq!(before.records, found.len());
            let line = before.lines + 1;
            if let Some(length) = block.too_large {
                assert!(length > bytes_max && block.bytes.len() == bytes_max);
                found.push((line, before.bytes, length, block.bytes.to_vec()));
                continue;
            }
            // Lines that are left out were passed, so that this one is the first only where there are none.
            let records = framed(&block.bytes, 0, line, dialect).unwrap();
            assert!(!records.is_empty());
            found.extend(records.into_iter().map(|(line, start, bytes)| {
                let shown = bytes[..bytes.len().min(bytes_max)].to_vec();
                (line, before.bytes + start, bytes.len(), shown)
            }));
        }
    }

    fn whole(
        text: &[u8],
        dialect: &CsvSettings,
        bytes_max: usize,
    ) -> std::result::Result<Vec<Seen>, FileFault> {
        let start = encoding::utf8_start(text).unwrap();
        let records = framed(text, start, 1, dialect)?.into_iter();
        let seen = records.map(|(line, start, bytes)| {
            let shown = bytes[..bytes.len().min(bytes_max)].to_vec();
            (line, start, bytes.len(), shown)
        });
        Ok(seen.collect())
    }

    #[test]
    fn records_are_found_in_blocks_of_any_size_as_in_the_whole_text() {
        const PIECES: [&str; 18] = [
            "\"",
            "\"",
            "\"\"",
            ",",
            ",\"",
            "\",",
            "\n",
            "\r\n",
            "\r",
            "x",
            "some text",
            " ",
            "\t",
            "\\",
            "#",
            "#\"\n",
            "\u{e9}",
            "\"\n",
        ];
        let mut next = numbers(7);
        for round in 0..4000 {
            let mut case = Case::csv("a STRING");
            let dialect = &mut case.settings.csv;
            dialect.header = false;
            dialect.multi_line = next(8) > 0;
            dialect.quote = (next(8) > 0).then_some(b'"');
            dialect.escape = [None, None, Some(b'\\'), Some(b'"')][next(4)];
            dialect.comment = (next(3) == 0).then_some(b'#');
            dialect.ignore_leading_white_space = next(3) == 0;
            dialect.line_sep = [None, None, None, Some(b'\r'), Some(b'x')][next(5)];
            dialect.skip_rows = [0, 0, 1, 3][next(4)];
            dialect.delimiter = [b',', b',', b'\t'][next(3)];
            let mut text = String::from(["", "\u{feff}"][round % 2]);
            (0..next(16)).for_each(|_| text.push_str(PIECES[next(PIECES.len())]));
            let dialect = &case.settings.csv;
            for bytes_max in [RECORD_BYTES_MAX, 3] {
                let expected = whole(text.as_bytes(), dialect, bytes_max);
                for block_bytes in 1..text.len() + 2 {
                    let blocks = blocks(text.as_bytes(), block_bytes, &case);
                    assert_eq!(
                        seen(blocks, dialect, bytes_max),
                        expected,
                        "{text:?} by {block_bytes} with {dialect:?}"
                    );
                }
            }
        }
    }

    /// All that the blocks of a file hold, as one; its faults as they are told of the whole file.
    fn joined(
        case: &Case,
        text: &[u8],
        block_bytes: usize,
    ) -> std::result::Result<Vec<Decoded>, FileFault> {
        let mut blocks = blocks(text, block_bytes, case);
        let mut parts = Vec::new();
        loop {
            match blocks.next_block() {
                Ok(Some(block)) => parts.push(
                    decode_block(case.path, block, &case.schema, &case.settings)
                        .expect("what is wrong with a file is found by its blocks"),
                ),
                Ok(None) => break,
                Err(error) => return Err(fault_of(&error).unwrap()),
            }
        }
        let fails = case.settings.schema_evolution_mode == SchemaEvolutionMode::FailOnNewColumns;
        if fails && parts.iter().any(|part| !part.new_columns.is_empty()) {
            return Err(new_columns_fault(parts.iter().flat_map(Decoded::arrivals)));
        }
        Ok(parts)
    }

    fn assert_whole(case: &Case, text: &[u8], block_bytes: usize) {
        let whole = case.try_read(text);
        let about = format!(
            "{:?} by {block_bytes}",
            String::from_utf8_lossy(&text[..text.len().min(300)])
        );
        let (whole, parts) = match (whole, joined(case, text, block_bytes)) {
            (Ok(whole), Ok(parts)) => (whole, parts),
            (whole, parts) => {
                assert_eq!(whole.err(), parts.err(), "{about}");
                return;
            }
        };
        let rows = concat_batches(&whole.rows.schema(), parts.iter().map(|part| &part.rows));
        assert_eq!(rows.unwrap(), whole.rows, "{about}");
        let positions = parts.iter().flat_map(|part| &part.positions);
        assert!(positions.eq(&whole.positions), "{about}");
        let rejects: Vec<_> = parts.iter().flat_map(|part| &part.rejects).collect();
        assert!(rejects.into_iter().eq(&whole.rejects), "{about}");
        let raw = parts
            .iter()
            .flat_map(|part| (0..part.positions.len()).map(|row| part.raw(row)));
        assert!(raw.eq((0..whole.positions.len()).map(|row| whole.raw(row))));
        let columns = merge_new_columns(parts.iter().map(|part| part.new_columns.as_slice()));
        let columns: Vec<_> = columns.into_iter().map(NewColumn::or_string).collect();
        assert_eq!(columns, whole.new_columns, "{about}");
    }

    const TEXTS: [&str; 22] = [
        "",
        "\n\r\n",
        "\u{feff}a,b,more",
        "a,b\n",
        "\u{feff}a,b\r\n1,x\r\n\r\n2,\"y\r\nz\"\r\n\"3\",w",
        "# \"one\na,b\n#\"\n1,x\n# two\n\n2,\"#\n#\"\n#three",
        "a,b\n1,x\n2\n3,y,z\n\n4,\"w\"v\nq,u\n5,caf\u{e9}\n",
        "a,b\n1,\"x\n2,y\n",
        "a,b,a\n1,\"x\n",
        "a,\"b\n1,x\n",
        "a,\"b\"c\n1,x\n",
        "a,\"b\nc\"\n1,x\n2,\"\"\"\n\"\"\",\n\"\n",
        "a,b,q\n1,x,\n2,y,\"\"\n3,z,\"\"\n4,w,7\n",
        "a,b,q\n1,x,\"\"\n",
        "a,b,p,q\nx,y,1,\n1,y,,2\n2,y,3,x\nz,y,,5\n",
        "a,b,p,q\n1,y,,\n2,y,,\n3,y,,1\n4,y,2.5,1.5\n5,y,,t\n",
        "a,b,p,q\n1,y,,1\n2,y,2,\n3,\"never closed,1\n",
        "b,a,_file_path,A\nx,1,y,\nx,2,,3\n",
        "a,b\n 1 , \"x\ny\" \n2,\t\"z,\"\n",
        "a,b\n1,it\\\"s\n2,\"it\\\"s\n\"\n3,\"\\\\\"\n4,\"\\n\"\n",
        "a,b\r1,x\r\n,y\r3,z\r",
        "one\n\"two\na,b\n1,x\n",
    ];

    #[test]
    fn blocks_of_any_size_are_decoded_as_the_whole_file() {
        for (index, text) in TEXTS.into_iter().enumerate() {
            for mode in [
                SchemaEvolutionMode::AddNewColumns,
                SchemaEvolutionMode::Rescue,
                SchemaEvolutionMode::FailOnNewColumns,
                SchemaEvolutionMode::None,
            ] {
                for dialect in 0..5 {
                    let mut case = Case::csv("a BIGINT, b STRING").evolution(mode);
                    let csv = &mut case.settings.csv;
                    match dialect {
                        0 => {}
                        1 => csv.comment = Some(b'#'),
                        2 => {
                            csv.ignore_leading_white_space = true;
                            csv.ignore_trailing_white_space = true;
                            csv.escape = Some(b'\\');
                        }
                        3 => {
                            csv.multi_line = false;
                            csv.skip_rows = 2;
                        }
                        _ => {
                            csv.header = false;
                            csv.line_sep = (index % 2 == 0).then_some(b'\r');
                        }
                    }
                    if mode == SchemaEvolutionMode::Rescue {
                        case = case.rescuing();
                        case.settings.absent_columns = AbsentColumns::Keep;
                        let own = crate::change::PRESENT_COLUMNS;
                        case.schema = case.schema.with_own_column(own, DataType::Utf8);
                    }
                    for block_bytes in 1..text.len() + 2 {
                        assert_whole(&case, text.as_bytes(), block_bytes);
                    }
                }
            }
        }
    }

    #[test]
    fn blocks_of_other_bytes_and_names_are_decoded_as_the_whole_file() {
        let wide: Vec<u8> = "a,b\n1,x\n"
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        let broken = b"a,b\n1,\xff\n2,\"\xfe\n\"\n";
        let case = Case::csv("a BIGINT, b STRING");
        let tabs = Case::new(Format::Auto, "a.tsv.gz", "a BIGINT, b STRING");
        for block_bytes in 1..30 {
            assert_whole(&case, &wide, block_bytes);
            assert_whole(&case, &broken[..], block_bytes);
            assert_whole(&case, b"a,\xff\n1,x\n", block_bytes);
            let text = b"a\tb\n1\tx,\n";
            let blocks = joined(&tabs, text, block_bytes).unwrap();
            assert_eq!(blocks[0].positions.len(), 1);
        }
    }

    #[test]
    fn changes_of_dms_are_decoded_in_blocks_as_in_the_whole_file() {
        let mut case = Case::csv("Op STRING, id INT, name STRING").of(Envelope::Dms, &["id"]);
        case.path = "public/t/20240101-000000000.csv";
        let with_names = "Op,id,name\nI,1,a\nU,1,\"b\nc\"\nX,1,d\nD,1,\n";
        let without_op = "id,name\n1,a\n2,\"b\n\"\n";
        let without_names = "\n\nI,1,a\nU,2,\"b\nc\"\nD,1,\nI,\n";
        for has_header in [true, false] {
            case.settings.csv.header = has_header;
            for text in [with_names, without_op, without_names] {
                for block_bytes in 1..text.len() + 2 {
                    assert_whole(&case, text.as_bytes(), block_bytes);
                }
            }
        }
        case.settings.envelope = Envelope::SqlServer;
        assert!(Framing::of(case.path, &case.settings).is_none());
    }

    #[test]
    fn records_beyond_the_limit_are_refused_with_their_place_or_cost_the_file_as_in_whole_files() {
        let case = Case::csv("a BIGINT, b STRING");
        let line = format!("said \"\"ok\"\"{}\r\n", "x".repeat(300));
        let long = line.repeat(RECORD_BYTES_MAX / line.len() + 7_000);
        for text in [
            format!("a,b\n1,x\r\n2,\"{long}\"\r\n3,y\n"),
            format!("a,b\n1,x\n2,\"{long}\"\r"),
            format!("a,b\n1,x\n2,\"{long}\n3,y\n"),
            format!("# no comment\n\"{long}\",b\r\n3,y\n"),
            format!("a,\"{long}"),
        ] {
            assert_whole(&case, text.as_bytes(), (1 << 20) + 7);
        }
        let exact = "x".repeat(RECORD_BYTES_MAX - 2);
        assert_whole(&case, format!("a,b\n1,{exact}\r\n").as_bytes(), 4 << 20);
    }
}
