//! One column of a row group: its values as pages.
//!
//! A chunk is packed only if packing pays for its first page of some size. Its pages are in memory until it ends, when the
//! dictionary that goes before them is known.

use super::bits::{self, Width};
use super::bounds::{self, Bounded, PageBounds};
use super::dictionary::{Dictionary, Entry, Numbered};
use super::filter::Filter;
use super::values::{ColumnKind, alike, numbers, range_of_numbers, range_of_texts, texts};
use crate::error::{Error, Result};
use arrow::array::{Array, AsArray};
use bytes::Bytes;
use parquet::basic::{Compression, Encoding, EncodingMask, PageType, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, OffsetIndexBuilder, PageEncodingStats};
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;
use std::hash::Hash;
use std::io;
use zstd::bulk::Compressor;

/// Rows of a page: small pages make reading single rows cheap.
pub(super) const PAGE_ROWS: usize = 2_048;
/// Fewer of long texts: a page is read whole.
pub(super) const PAGE_BYTES_MAX: usize = 1 << 20;
/// A page of so many bytes shows what packing is worth.
const JUDGED_BYTES_MIN: usize = 1_024;
/// Packing is to save one of so many bytes.
const SAVED_SHARE: usize = 10;
const ZSTD_LEVEL: i32 = 1;

/// Packs pages. It takes memory, so the chunks of a file share one.
pub(super) struct Packer(Compressor<'static>);

impl Packer {
    pub(super) fn new() -> Result<Self> {
        Compressor::new(ZSTD_LEVEL).map(Packer).map_err(unpackable)
    }

    fn pack(&mut self, bytes: &[u8]) -> Result<Vec<u8>> {
        self.0.compress(bytes).map_err(unpackable)
    }
}

fn unpackable(error: io::Error) -> Error {
    Error::unavailable(format!("a page of a data file cannot be packed: {error}"))
}

fn unwritable(error: ParquetError) -> Error {
    Error::bug(format!("a page of a data file cannot be written: {error}"))
}

struct EncodedPage {
    encoding: Encoding,
    bytes: PageBytes,
    rows: usize,
}

enum PageBytes {
    Plain(Vec<u8>),
    Packed { bytes: Vec<u8>, plain_length: usize },
}

impl PageBytes {
    fn packed(self, packer: &mut Packer) -> Result<PageBytes> {
        match self {
            PageBytes::Plain(plain) => Ok(PageBytes::Packed {
                bytes: packer.pack(&plain)?,
                plain_length: plain.len(),
            }),
            packed @ PageBytes::Packed { .. } => Ok(packed),
        }
    }

    fn len(&self) -> usize {
        match self {
            PageBytes::Plain(bytes) | PageBytes::Packed { bytes, .. } => bytes.len(),
        }
    }

    /// The bytes, and how many they are before packing.
    fn into_parts(self) -> (Bytes, usize) {
        match self {
            PageBytes::Plain(bytes) => {
                let length = bytes.len();
                (bytes.into(), length)
            }
            PageBytes::Packed {
                bytes,
                plain_length,
            } => (bytes.into(), plain_length),
        }
    }
}

/// What is known of the values of a chunk.
struct Known<T: Entry + Hash + Eq + ?Sized> {
    bounds: Vec<PageBounds<T::Owned>>,
    /// `None` where values do not repeat.
    dictionary: Option<Dictionary<T>>,
    /// The dictionary takes no more.
    is_full: bool,
}

impl<T: Entry + Hash + Eq + ?Sized> Known<T> {
    fn new(repeats: bool) -> Self {
        Known {
            bounds: Vec::new(),
            dictionary: repeats.then(Dictionary::new),
            is_full: false,
        }
    }

    /// Whether values are numbered.
    fn takes_more(&self) -> bool {
        self.dictionary.is_some() && !self.is_full
    }

    /// The values of the next page by their numbers, and how many numbers there are; `None` where they are not numbered.
    fn number<'v>(&mut self, values: impl Iterator<Item = &'v T>) -> Option<(Numbered, usize)>
    where
        T: 'v,
    {
        let dictionary = self.dictionary.as_mut().filter(|_| !self.is_full)?;
        match dictionary.number(values) {
            Some(numbered) => Some((numbered, dictionary.values.len())),
            None => {
                self.is_full = true;
                None
            }
        }
    }
}

enum Content {
    Numbers(Known<i64>, Width),
    Texts(Known<str>),
}

impl Content {
    /// The page of all values that are numbered, if there are some.
    fn dictionary_page(&self) -> Option<(Vec<u8>, usize)> {
        match self {
            Content::Numbers(known, width) => {
                let dictionary = known.dictionary.as_ref()?;
                Some((dictionary.page(*width), dictionary.values.len()))
            }
            Content::Texts(known) => {
                let dictionary = known.dictionary.as_ref()?;
                Some((dictionary.page(Width::Bits64), dictionary.values.len()))
            }
        }
    }
}

/// Takes the values of one column.
pub(super) struct ChunkWriter {
    column: ColumnDescPtr,
    content: Content,
    pages: Vec<EncodedPage>,
    /// `None` while no page shows whether packing pays.
    is_packed: Option<bool>,
    filter: Option<Filter>,
    bytes: usize,
}

/// A column that is complete, and its bytes.
pub(super) type Chunk = (Bytes, ColumnCloseResult);

impl ChunkWriter {
    /// For values of this kind, which repeat or not.
    pub(super) fn new(
        column: ColumnDescPtr,
        kind: ColumnKind,
        repeats: bool,
        filter: Option<Filter>,
    ) -> ChunkWriter {
        let content = match kind {
            ColumnKind::Number(width) => Content::Numbers(Known::new(repeats), width),
            ColumnKind::Text => Content::Texts(Known::new(repeats)),
        };
        ChunkWriter {
            column,
            content,
            pages: Vec::new(),
            is_packed: None,
            filter,
            bytes: 0,
        }
    }

    /// How many bytes of the file are in memory, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes values, which are of the kind of the column.
    pub(super) fn write(&mut self, values: &dyn Array, packer: &mut Packer) -> Result<()> {
        let mut start = 0;
        while start < values.len() {
            let page = values.slice(start, page_rows(values, start));
            start += page.len();
            let (encoding, plain) = self.encoded(page.as_ref())?;
            let bytes = match self.pays(&plain, packer)? {
                true => PageBytes::Plain(plain).packed(packer)?,
                false => PageBytes::Plain(plain),
            };
            self.bytes += bytes.len();
            self.pages.push(EncodedPage {
                encoding,
                bytes,
                rows: page.len(),
            });
        }
        Ok(())
    }

    fn encoded(&mut self, values: &dyn Array) -> Result<(Encoding, Vec<u8>)> {
        let mut page = Vec::new();
        if self.column.max_def_level() > 0 {
            levels(&mut page, values);
        }
        let encoding = match &mut self.content {
            Content::Numbers(known, width) => {
                let numbers = numbers(values)?;
                if let Some(filter) = &mut self.filter {
                    filter.add_numbers(&numbers, *width);
                }
                number_page(&mut page, known, &numbers, values.null_count(), *width)
            }
            Content::Texts(known) => {
                if let Some(filter) = &mut self.filter {
                    filter.add_texts(&texts(values))?;
                }
                text_page(&mut page, known, values)
            }
        };
        Ok((encoding, page))
    }

    /// Whether pages are packed, told by the first of some size and the dictionary that it needs.
    fn pays(&mut self, page: &[u8], packer: &mut Packer) -> Result<bool> {
        if self.is_packed.is_none() && page.len() >= JUDGED_BYTES_MIN {
            let dictionary = self.content.dictionary_page();
            let (dictionary, _) = dictionary.unwrap_or_default();
            self.is_packed = Some(saves(&[page, &dictionary], packer)?);
        }
        Ok(self.is_packed == Some(true))
    }

    /// Ends the chunk.
    pub(super) fn close(self, packer: &mut Packer) -> Result<Chunk> {
        let is_numbered = |page: &EncodedPage| page.encoding == Encoding::RLE_DICTIONARY;
        let dictionary = match self.pages.iter().any(is_numbered) {
            true => self.content.dictionary_page(),
            false => None,
        };
        let is_packed = match (self.is_packed, &dictionary) {
            (Some(is_packed), _) => is_packed,
            (None, Some((page, _))) if page.len() >= JUDGED_BYTES_MIN => saves(&[page], packer)?,
            (None, _) => false,
        };
        let mut written = Written::new(is_packed);
        if let Some((page, values)) = dictionary {
            written.dictionary(PageBytes::Plain(page), values, packer)?;
        }
        for page in self.pages {
            written.page(page, packer)?;
        }
        let filter = self.filter.map(Filter::finish).transpose()?;
        let (bytes, mut closed) = match &self.content {
            Content::Numbers(known, _) => written.close(self.column, &known.bounds),
            Content::Texts(known) => written.close(self.column, &known.bounds),
        }
        .map_err(unwritable)?;
        closed.bloom_filter = filter;
        Ok((bytes, closed))
    }
}

/// Whether packing makes these bytes enough fewer.
fn saves(pages: &[&[u8]], packer: &mut Packer) -> Result<bool> {
    let (mut plain, mut packed) = (0, 0);
    for page in pages {
        plain += page.len();
        packed += packer.pack(page)?.len();
    }
    Ok(packed + plain / SAVED_SHARE < plain)
}

/// How many values the page that begins at `start` has.
fn page_rows(values: &dyn Array, start: usize) -> usize {
    let mut rows = PAGE_ROWS.min(values.len() - start);
    if let Some(texts) = values.as_string_opt::<i32>() {
        let offsets = &texts.value_offsets()[start..];
        while rows > 1 && (offsets[rows] - offsets[0]) as usize > PAGE_BYTES_MAX {
            rows /= 2;
        }
    }
    rows
}

/// Adds which values are there.
fn levels(out: &mut Vec<u8>, values: &dyn Array) {
    let length_at = out.len();
    out.extend_from_slice(&[0; size_of::<u32>()]);
    match values.nulls().filter(|nulls| nulls.null_count() > 0) {
        None => bits::repeated(out, 1, values.len(), 1),
        Some(nulls) if nulls.null_count() == nulls.len() => {
            bits::repeated(out, 0, nulls.len(), 1);
        }
        Some(nulls) => bits::packed_bits(out, nulls.iter()),
    }
    let length = (out.len() - length_at - size_of::<u32>()) as u32;
    out[length_at..length_at + size_of::<u32>()].copy_from_slice(&length.to_le_bytes());
}

fn number_page(
    out: &mut Vec<u8>,
    known: &mut Known<i64>,
    numbers: &[i64],
    nulls: usize,
    width: Width,
) -> Encoding {
    let range = range_of_numbers(numbers);
    known.bounds.push(PageBounds { range, nulls });
    if let Some((numbered, values)) = known.number(numbers.iter()) {
        return numbered_page(out, &numbered, numbers.len(), values);
    }
    match range {
        Some((min, max)) if min == max => bits::deltas_of_alike(out, min, numbers.len()),
        _ => bits::deltas(out, numbers, width),
    }
    Encoding::DELTA_BINARY_PACKED
}

fn text_page(out: &mut Vec<u8>, known: &mut Known<str>, values: &dyn Array) -> Encoding {
    let owned = |(min, max): (&str, &str)| (bounds::known(min), bounds::known(max));
    let nulls = values.null_count();
    if known.takes_more()
        && let Some(text) = alike(values)
        && let Some((numbered, different)) = known.number(std::iter::once(text))
    {
        let range = Some(owned((text, text)));
        known.bounds.push(PageBounds { range, nulls });
        return numbered_page(out, &numbered, values.len(), different);
    }
    let texts = texts(values);
    if let Some((numbered, different)) = known.number(texts.iter().copied()) {
        let dictionary = known.dictionary.iter();
        let all = dictionary.flat_map(|dictionary| {
            let numbers = numbered.distinct.iter();
            numbers.map(|number| &*dictionary.values[*number as usize])
        });
        let range = range_of_texts(all).map(owned);
        known.bounds.push(PageBounds { range, nulls });
        return numbered_page(out, &numbered, texts.len(), different);
    }
    let range = range_of_texts(texts.iter().copied()).map(owned);
    known.bounds.push(PageBounds { range, nulls });
    let bytes = texts.iter().map(|text| size_of::<u32>() + text.len());
    out.reserve(bytes.sum());
    for text in &texts {
        text.write(out, Width::Bits64);
    }
    Encoding::PLAIN
}

/// Adds `count` values, so many of which there are in the dictionary; all alike where only one is named.
fn numbered_page(
    out: &mut Vec<u8>,
    numbered: &Numbered,
    count: usize,
    different: usize,
) -> Encoding {
    let width = bits::bit_width(different.saturating_sub(1) as u64);
    out.push(width as u8);
    match numbered.distinct.as_slice() {
        [only] => bits::repeated(out, *only, count, width),
        _ => bits::runs(out, &numbered.numbers, width),
    }
    Encoding::RLE_DICTIONARY
}

/// The pages of a chunk one behind the other.
struct Written {
    out: TrackedWrite<Vec<u8>>,
    is_packed: bool,
    index: OffsetIndexBuilder,
    encodings: Vec<PageEncodingStats>,
    first_page_at: Option<u64>,
    has_dictionary: bool,
    plain_bytes: usize,
    rows: usize,
}

impl Written {
    fn new(is_packed: bool) -> Self {
        Written {
            out: TrackedWrite::new(Vec::new()),
            is_packed,
            index: OffsetIndexBuilder::new(),
            encodings: Vec::new(),
            first_page_at: None,
            has_dictionary: false,
            plain_bytes: 0,
            rows: 0,
        }
    }

    fn dictionary(&mut self, page: PageBytes, values: usize, packer: &mut Packer) -> Result<()> {
        let (buf, plain_length) = self.parts(page, packer)?;
        let page = Page::DictionaryPage {
            buf,
            num_values: values as u32,
            encoding: Encoding::PLAIN,
            is_sorted: false,
        };
        self.has_dictionary = true;
        self.write(page, plain_length, Encoding::PLAIN)?;
        Ok(())
    }

    fn page(&mut self, page: EncodedPage, packer: &mut Packer) -> Result<()> {
        let (encoding, rows) = (page.encoding, page.rows);
        let (buf, plain_length) = self.parts(page.bytes, packer)?;
        let page = Page::DataPage {
            buf,
            num_values: rows as u32,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        let (at, bytes) = self.write(page, plain_length, encoding)?;
        self.first_page_at.get_or_insert(at);
        self.index.append_row_count(rows as i64);
        self.index.append_offset_and_size(at as i64, bytes as i32);
        self.rows += rows;
        Ok(())
    }

    fn parts(&self, page: PageBytes, packer: &mut Packer) -> Result<(Bytes, usize)> {
        match self.is_packed {
            true => Ok(page.packed(packer)?.into_parts()),
            false => Ok(page.into_parts()),
        }
    }

    /// Writes a page; gives where it begins, and how many bytes it has.
    fn write(
        &mut self,
        page: Page,
        plain_length: usize,
        encoding: Encoding,
    ) -> Result<(u64, usize)> {
        let page_type = page.page_type();
        let page = CompressedPage::new(page, plain_length);
        let written = SerializedPageWriter::new(&mut self.out).write_page(page);
        let written = written.map_err(unwritable)?;
        self.plain_bytes += written.uncompressed_size;
        self.count(page_type, encoding);
        Ok((written.offset, written.compressed_size))
    }

    fn count(&mut self, page_type: PageType, encoding: Encoding) {
        let is_same = |known: &&mut PageEncodingStats| {
            known.page_type == page_type && known.encoding == encoding
        };
        match self.encodings.last_mut().filter(is_same) {
            Some(known) => known.count += 1,
            None => self.encodings.push(PageEncodingStats {
                page_type,
                encoding,
                count: 1,
            }),
        }
    }

    fn close<T: Bounded>(
        self,
        column: ColumnDescPtr,
        bounds: &[PageBounds<T>],
    ) -> std::result::Result<Chunk, ParquetError> {
        let bytes = Bytes::from(self.out.into_inner()?);
        let physical = column.physical_type();
        let range = bounds::range_of(bounds);
        let nulls: usize = bounds.iter().map(|page| page.nulls).sum();
        let codec = match self.is_packed {
            true => Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?),
            false => Compression::UNCOMPRESSED,
        };
        let encodings = self.encodings.iter().map(|known| known.encoding);
        let encodings: Vec<Encoding> = encodings.chain([Encoding::RLE]).collect();
        let metadata = ColumnChunkMetaData::builder(column)
            .set_compression(codec)
            .set_encodings_mask(EncodingMask::new_from_encodings(encodings.iter()))
            .set_page_encoding_stats(self.encodings)
            .set_total_compressed_size(bytes.len() as i64)
            .set_total_uncompressed_size(self.plain_bytes as i64)
            .set_num_values(self.rows as i64)
            .set_data_page_offset(self.first_page_at.unwrap_or(0) as i64)
            .set_dictionary_page_offset(self.has_dictionary.then_some(0))
            .set_statistics(T::statistics(range.as_ref(), nulls as u64, physical))
            .build()?;
        let closed = ColumnCloseResult {
            bytes_written: bytes.len() as u64,
            rows_written: self.rows as u64,
            metadata,
            bloom_filter: None,
            column_index: bounds::column_index(bounds, physical)?,
            offset_index: Some(self.index.build()),
        };
        Ok((bytes, closed))
    }
}
