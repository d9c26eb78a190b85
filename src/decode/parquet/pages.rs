//! The pages of a file, looked at before the library decodes them.
//!
//! The library takes memory for as many values as a page tells of, before it sees that they are not there. A page of texts as
//! differences begins by telling how many lengths it has, which are no more than its values; and a dictionary cannot have more
//! values than its bytes are enough for.
//!
//! Source of the rules: the encodings of the Parquet format, "PLAIN", "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY" and
//! "DELTA_BYTE_ARRAY".

use super::headers::CheckedPages;
use parquet::arrow::arrow_reader::RowGroups;
use parquet::basic::{Encoding, Type};
use parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::ChunkReader;
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::schema::types::ColumnDescriptor;
use std::ops::Range;
use std::sync::Arc;

/// All row groups of a file.
pub(super) struct AllGroups<R> {
    file: Arc<CheckedPages<R>>,
    metadata: Arc<ParquetMetaData>,
}

impl<R> AllGroups<R> {
    pub(super) fn of(file: R, metadata: &Arc<ParquetMetaData>) -> Self {
        AllGroups {
            file: Arc::new(CheckedPages::new(file)),
            metadata: Arc::clone(metadata),
        }
    }
}

impl<R: ChunkReader + 'static> RowGroups for AllGroups<R> {
    fn num_rows(&self) -> usize {
        let groups = self.row_groups();
        let rows = groups.map(|group| usize::try_from(group.num_rows()).unwrap_or(0));
        rows.fold(0, usize::saturating_add)
    }

    fn column_chunks(&self, column: usize) -> Result<Box<dyn PageIterator>> {
        Ok(Box::new(Chunks {
            file: Arc::clone(&self.file),
            metadata: Arc::clone(&self.metadata),
            column,
            groups: 0..self.metadata.num_row_groups(),
        }))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(self.metadata.row_groups().iter())
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }
}

/// The chunks of a column, each with its pages.
struct Chunks<R> {
    file: Arc<CheckedPages<R>>,
    metadata: Arc<ParquetMetaData>,
    column: usize,
    /// Those that are left.
    groups: Range<usize>,
}

impl<R: ChunkReader + 'static> Iterator for Chunks<R> {
    type Item = Result<Box<dyn PageReader>>;

    fn next(&mut self) -> Option<Self::Item> {
        let group = self.metadata.row_group(self.groups.next()?);
        let column = group.column(self.column);
        let rows = usize::try_from(group.num_rows()).unwrap_or(0);
        let pages = SerializedPageReader::new(Arc::clone(&self.file), column, rows, None);
        let descriptor = column.column_descr();
        Some(pages.map(|pages| {
            let pages: Box<dyn PageReader> = Box::new(LookedAt {
                pages,
                repeats: descriptor.max_rep_level() > 0,
                is_optional: descriptor.max_def_level() > 0,
                value_bytes: value_bytes(descriptor),
            });
            pages
        }))
    }
}

impl<R: ChunkReader + 'static> PageIterator for Chunks<R> {}

/// The pages of a chunk.
struct LookedAt<P> {
    pages: P,
    /// Which levels stand before the values.
    repeats: bool,
    is_optional: bool,
    /// A value of a dictionary has at least so many bytes.
    value_bytes: u64,
}

impl<P> LookedAt<P> {
    fn look(&self, page: &Page) -> Result<()> {
        if let Page::DictionaryPage {
            buf, num_values, ..
        } = page
        {
            let bytes = u64::from(*num_values) * self.value_bytes;
            return match bytes <= buf.len() as u64 {
                true => Ok(()),
                false => Err(ParquetError::General(format!(
                    "a dictionary of {} bytes tells of {num_values} values",
                    buf.len()
                ))),
            };
        }
        let lengths = match page.encoding() {
            Encoding::DELTA_LENGTH_BYTE_ARRAY => 1,
            Encoding::DELTA_BYTE_ARRAY => 2,
            _ => return Ok(()),
        };
        let mut values = self.values(page).unwrap_or_default();
        for _ in 0..lengths {
            // What is too short to tell is left to the library, which refuses it.
            let Some(count) = skip_differences(&mut values) else {
                break;
            };
            if count > u64::from(page.num_values()) {
                return Err(ParquetError::General(format!(
                    "a page of {} values tells of {count}",
                    page.num_values()
                )));
            }
        }
        Ok(())
    }

    /// The bytes of the values of a page.
    fn values<'p>(&self, page: &'p Page) -> Option<&'p [u8]> {
        match page {
            Page::DataPage {
                buf,
                def_level_encoding,
                rep_level_encoding,
                ..
            } => {
                let mut rest: &[u8] = buf;
                let levels = [
                    (self.repeats, rep_level_encoding),
                    (self.is_optional, def_level_encoding),
                ];
                for (_, encoding) in levels.into_iter().filter(|(stand_there, _)| *stand_there) {
                    if *encoding != Encoding::RLE {
                        return None;
                    }
                    let (length, behind) = rest.split_first_chunk()?;
                    rest = behind.get(u32::from_le_bytes(*length) as usize..)?;
                }
                Some(rest)
            }
            Page::DataPageV2 {
                buf,
                def_levels_byte_len,
                rep_levels_byte_len,
                ..
            } => buf.get(*def_levels_byte_len as usize + *rep_levels_byte_len as usize..),
            Page::DictionaryPage { .. } => None,
        }
    }
}

impl<P: PageReader> PageReader for LookedAt<P> {
    fn get_next_page(&mut self) -> Result<Option<Page>> {
        let page = self.pages.get_next_page()?;
        if let Some(page) = &page {
            self.look(page)?;
        }
        Ok(page)
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>> {
        self.pages.peek_next_page()
    }

    fn skip_next_page(&mut self) -> Result<()> {
        self.pages.skip_next_page()
    }

    fn at_record_boundary(&mut self) -> Result<bool> {
        self.pages.at_record_boundary()
    }
}

impl<P: PageReader> Iterator for LookedAt<P> {
    type Item = Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

fn value_bytes(column: &ColumnDescriptor) -> u64 {
    match column.physical_type() {
        // Its values are bits, and have no dictionary.
        Type::BOOLEAN => 0,
        Type::INT32 | Type::FLOAT => 4,
        Type::INT64 | Type::DOUBLE => 8,
        Type::INT96 => 12,
        // The length of each stands before it.
        Type::BYTE_ARRAY => 4,
        Type::FIXED_LEN_BYTE_ARRAY => u64::try_from(column.type_length()).unwrap_or(0),
    }
}

/// Goes behind numbers that are packed as differences, and gives how many they tell that they are; to the end where the bytes
/// are fewer. `None` where not even that is told, or their blocks are empty.
fn skip_differences(bytes: &mut &[u8]) -> Option<u64> {
    let block = varint(bytes)?;
    let miniblocks = varint(bytes)?;
    let count = varint(bytes)?;
    varint(bytes)?;
    let of_miniblock = block.checked_div(miniblocks)?;
    let mut left = count.saturating_sub(1);
    while left > 0 {
        let is_cut = varint(bytes).is_none()
            || usize::try_from(miniblocks).map_or(true, |length| bytes.len() < length);
        if is_cut {
            *bytes = &[];
            return Some(count);
        }
        let (widths, behind) = bytes.split_at(miniblocks as usize);
        *bytes = behind;
        for width in widths {
            if left == 0 {
                break;
            }
            let length = of_miniblock.saturating_mul(u64::from(*width)) / 8;
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            *bytes = bytes.get(length..).unwrap_or_default();
            left = left.saturating_sub(of_miniblock.max(1));
        }
    }
    Some(count)
}

/// Takes a number of variable length.
fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for place in 0..10 {
        let (byte, behind) = bytes.split_first()?;
        *bytes = behind;
        number |= u64::from(byte & 0x7F) << (7 * place).min(63);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::ParkReason;
    use crate::decode::testing::*;
    use crate::settings::Format;
    use arrow::array::{ArrayRef, Int64Array, ListArray, RecordBatch, StringArray};
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::{DataType, Field};
    use parquet::arrow::ArrowWriter;
    use parquet::basic::Compression;
    use parquet::file::properties::{WriterProperties, WriterVersion};

    const ENCODINGS: [Encoding; 2] = [
        Encoding::DELTA_LENGTH_BYTE_ARRAY,
        Encoding::DELTA_BYTE_ARRAY,
    ];

    /// Texts of many lengths, and lists of them.
    fn columns(rows: usize) -> Vec<(&'static str, ArrayRef)> {
        let text = |row: usize| (row % 7 != 3).then(|| "text ".repeat(row * row % 23));
        let texts = StringArray::from_iter((0..rows).map(text));
        let all = StringArray::from_iter_values((0..rows * 2).map(|row| format!("{row}")));
        let field = Arc::new(Field::new("item", DataType::Utf8, true));
        let offsets = OffsetBuffer::from_lengths((0..rows).map(|row| [0, 1, 3, 4][row % 4]));
        let length = *offsets.last().unwrap() as usize;
        let list = ListArray::new(field, offsets, Arc::new(all.slice(0, length)), None);
        vec![("t", Arc::new(texts)), ("l", Arc::new(list))]
    }

    fn file(rows: usize, encoding: Encoding, version: WriterVersion) -> Vec<u8> {
        let rows = RecordBatch::try_from_iter(columns(rows)).unwrap();
        let properties = WriterProperties::builder()
            .set_writer_version(version)
            .set_dictionary_enabled(false)
            .set_encoding(encoding)
            .set_compression(Compression::UNCOMPRESSED)
            .set_data_page_row_count_limit(300)
            .set_write_batch_size(100)
            .build();
        let mut writer = ArrowWriter::try_new(Vec::new(), rows.schema(), Some(properties)).unwrap();
        writer.write(&rows).unwrap();
        writer.into_inner().unwrap()
    }

    fn case() -> Case {
        Case::new(Format::Parquet, "a.parquet", "t STRING, l ARRAY<STRING>")
    }

    #[test]
    fn sound_pages_of_lengths_are_read() {
        for rows in [1, 2, 33, 129, 1_000] {
            for encoding in ENCODINGS {
                for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
                    let decoded = case().read(file(rows, encoding, version));
                    let read = RecordBatch::try_from_iter(
                        decoded.rows.columns()[..2]
                            .iter()
                            .zip(["t", "l"])
                            .map(|(column, name)| (name, Arc::clone(column))),
                    );
                    for (name, column) in columns(rows) {
                        let read = read.as_ref().unwrap().column_by_name(name).unwrap();
                        assert_eq!(
                            format!("{read:?}"),
                            format!("{column:?}"),
                            "{rows} {encoding}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn page_that_tells_of_more_texts_than_it_has_values_is_refused() {
        for encoding in ENCODINGS {
            let sound = file(40, encoding, WriterVersion::PARQUET_1_0);
            // Of every place where 34 texts, or 80 in lists, are told of, some more in as many bytes.
            for (told, more) in [([128, 1, 4, 34], 127), ([128, 1, 4, 80], 127)] {
                let places: Vec<usize> = (0..sound.len() - 4)
                    .filter(|place| sound[*place..*place + 4] == told)
                    .collect();
                let lengths = ENCODINGS
                    .iter()
                    .position(|known| *known == encoding)
                    .unwrap()
                    + 1;
                assert_eq!(places.len(), lengths, "{encoding} {told:?}");
                for place in places {
                    let mut damaged = sound.clone();
                    damaged[place + 3] = more;
                    let (reason, detail) = case().fault(&damaged);
                    assert_eq!(reason, ParkReason::Unreadable);
                    assert!(detail.contains("tells of 127"), "{detail}");
                }
            }
        }
    }

    #[test]
    fn page_that_tells_of_more_texts_than_any_memory_holds_is_refused() {
        for encoding in ENCODINGS {
            let mut damaged = file(40, encoding, WriterVersion::PARQUET_1_0);
            let told = [128, 1, 4, 34];
            let place = damaged.windows(4).position(|bytes| bytes == told).unwrap();
            damaged[place + 3..place + 11].copy_from_slice(&[0xFF; 8]);
            damaged[place + 11] = 2;
            let (reason, detail) = case().fault(&damaged);
            assert_eq!(reason, ParkReason::Unreadable);
            assert!(
                detail.contains("a page of 40 values tells of 2161727821137838"),
                "{detail}"
            );
        }
    }

    #[test]
    fn dictionary_that_tells_of_more_values_than_its_bytes_hold_is_refused() {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values((0..90).map(|n| n % 3)));
        let words = (0..90).map(|n| ["a", "bc"][n % 2]);
        let words: ArrayRef = Arc::new(StringArray::from_iter_values(words));
        // The sizes of the dictionary page, plain and packed, and how many values it has; the last as 63.
        for (column, ddl, sizes) in [
            (numbers, "c BIGINT", [48, 21, 48]),
            (words, "c STRING", [22, 21, 22]),
        ] {
            let rows = RecordBatch::try_from_iter([("c", column)]).unwrap();
            let mut writer = ArrowWriter::try_new(Vec::new(), rows.schema(), None).unwrap();
            writer.write(&rows).unwrap();
            let mut damaged = writer.into_inner().unwrap();
            let case = Case::new(Format::Parquet, "a.parquet", ddl);
            assert_eq!(case.read(&damaged).positions.len(), 90);
            let head = [21, 4, 21, sizes[0], sizes[1], sizes[2], 76, 21];
            let place = damaged.windows(8).position(|bytes| bytes == head).unwrap();
            damaged[place + 8] = 126;
            let (reason, detail) = case.fault(&damaged);
            assert_eq!(reason, ParkReason::Unreadable);
            assert!(detail.contains("tells of 63 values"), "{detail}");
        }
    }

    #[test]
    fn differences_are_skipped_to_their_end() {
        let mut bytes: &[u8] = &[
            128, 1, 4, 35, 0, 2, 3, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
        ];
        // Two miniblocks of 32 numbers, the first with 3 bits each.
        assert_eq!(skip_differences(&mut bytes), Some(35));
        assert!(bytes.is_empty());
        let one: &[u8] = &[128, 1, 4, 1, 6, 9];
        let mut bytes = one;
        assert_eq!(skip_differences(&mut bytes), Some(1));
        assert_eq!(bytes, [9]);
        for end in 0..4 {
            assert_eq!(skip_differences(&mut &one[..end]), None);
        }
        let huge: &[u8] = &[
            128, 1, 4, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(skip_differences(&mut { huge }), Some((1 << 49) - 1));
        assert_eq!(skip_differences(&mut &[128, 1, 0, 5, 0, 0][..]), None);
    }
}
