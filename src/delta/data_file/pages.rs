//! Pages one behind the other, packed or not.
//!
//! All pages of a chunk are packed, or none.

use super::bounds::{self, Bounded, PageBounds};
use crate::error::{Error, Result};
use bytes::Bytes;
use parquet::basic::{Compression, Encoding, EncodingMask, PageType, ZstdLevel};
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, OffsetIndexBuilder, PageEncodingStats};
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};
use parquet::schema::types::ColumnDescPtr;
use std::io;
use zstd::bulk::Compressor;
use zstd::zstd_safe::compress_bound;

/// Packing is to save one of so many bytes.
const SAVED_SHARE: usize = 10;
const ZSTD_LEVEL: i32 = 1;

/// A page is begun by so many bytes, about.
const PAGE_HEAD_BYTES: usize = 32;

/// Packs pages. It takes memory, so the chunks of a file share one.
pub(super) struct Packer {
    compressor: Compressor<'static>,
    /// The last page that was packed, in room for one that does not shrink.
    packed: Vec<u8>,
}

impl Packer {
    pub(super) fn new() -> Result<Self> {
        let compressor = Compressor::new(ZSTD_LEVEL).map_err(unpackable)?;
        Ok(Packer {
            compressor,
            packed: Vec::new(),
        })
    }

    fn pack(&mut self, bytes: &[u8]) -> Result<&[u8]> {
        self.packed.clear();
        self.packed.reserve(compress_bound(bytes.len()));
        let packed = self.compressor.compress_to_buffer(bytes, &mut self.packed);
        packed.map_err(unpackable)?;
        Ok(&self.packed)
    }
}

fn unpackable(error: io::Error) -> Error {
    Error::unavailable(format!("a page of a data file cannot be packed: {error}"))
}

pub(super) fn unwritable(error: ParquetError) -> Error {
    Error::bug(format!("a page of a data file cannot be written: {error}"))
}

pub(super) struct EncodedPage {
    pub(super) encoding: Encoding,
    pub(super) bytes: PageBytes,
    pub(super) rows: usize,
}

pub(super) enum PageBytes {
    Plain(Vec<u8>),
    Packed { bytes: Vec<u8>, plain_length: usize },
}

impl PageBytes {
    /// A copy of them, packed or not.
    pub(super) fn of(plain: &[u8], is_packed: bool, packer: &mut Packer) -> Result<PageBytes> {
        match is_packed {
            true => Ok(PageBytes::Packed {
                bytes: packer.pack(plain)?.to_vec(),
                plain_length: plain.len(),
            }),
            false => Ok(PageBytes::Plain(plain.to_vec())),
        }
    }

    fn packed(self, packer: &mut Packer) -> Result<PageBytes> {
        match self {
            PageBytes::Plain(plain) => PageBytes::of(&plain, true, packer),
            packed @ PageBytes::Packed { .. } => Ok(packed),
        }
    }

    pub(super) fn len(&self) -> usize {
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

/// Whether packing makes these bytes enough fewer.
pub(super) fn saves(pages: &[&[u8]], packer: &mut Packer) -> Result<bool> {
    let (mut plain, mut packed) = (0, 0);
    for page in pages {
        plain += page.len();
        packed += packer.pack(page)?.len();
    }
    Ok(packed + plain / SAVED_SHARE < plain)
}

/// A column that is complete, and its bytes.
pub(super) type Chunk = (Bytes, ColumnCloseResult);

/// The pages of a chunk one behind the other.
pub(super) struct Written {
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
    /// With room for pages of `bytes` in all.
    pub(super) fn new(is_packed: bool, pages: usize, bytes: usize) -> Self {
        let room = bytes + pages * PAGE_HEAD_BYTES;
        Written {
            out: TrackedWrite::new(Vec::with_capacity(room)),
            is_packed,
            index: OffsetIndexBuilder::new(),
            encodings: Vec::new(),
            first_page_at: None,
            has_dictionary: false,
            plain_bytes: 0,
            rows: 0,
        }
    }

    pub(super) fn dictionary(
        &mut self,
        page: PageBytes,
        values: usize,
        packer: &mut Packer,
    ) -> Result<()> {
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

    pub(super) fn page(&mut self, page: EncodedPage, packer: &mut Packer) -> Result<()> {
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

    pub(super) fn close<T: Bounded>(
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
