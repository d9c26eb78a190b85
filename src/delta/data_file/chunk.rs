//! One column of a row group: its values as pages.
//!
//! A chunk is packed only if packing pays for its first page of some size. Its pages are in memory until it ends, when the
//! dictionary that goes before them is known.

use super::bits::{self, Width};
use super::bounds::{self, PageBounds};
use super::dictionary::{Dictionary, Entry, Numbered};
use super::filter::Filter;
use super::fronts;
use super::pages::{Chunk, EncodedPage, Packer, PageBytes, Written, saves, unwritable};
use super::values::{
    ColumnKind, alike, alike_texts, numbers, range_of_numbers, range_of_texts, texts,
};
use crate::error::Result;
use arrow::array::{Array, AsArray};
use parquet::basic::Encoding;
use parquet::schema::types::ColumnDescPtr;
use std::hash::Hash;

/// Rows of a page: small pages make reading single rows cheap.
pub(super) const PAGE_ROWS: usize = 2_048;
/// Fewer of long texts: a page is read whole.
pub(super) const PAGE_BYTES_MAX: usize = 1 << 20;
/// A page of so many bytes shows what packing is worth.
const JUDGED_BYTES_MIN: usize = 1_024;

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
    Texts {
        known: Known<str>,
        /// Every page so far had texts that begin like those before them, or none that are not numbered.
        begin_alike: bool,
    },
}

impl Content {
    /// The page of all values that are numbered, if there are some.
    fn dictionary_page(&self) -> Option<(Vec<u8>, usize)> {
        match self {
            Content::Numbers(known, width) => {
                let dictionary = known.dictionary.as_ref()?;
                Some((dictionary.page(*width), dictionary.values.len()))
            }
            Content::Texts { known, .. } => {
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
    /// The last page, before it was packed.
    plain: Vec<u8>,
}

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
            ColumnKind::Text => Content::Texts {
                known: Known::new(repeats),
                begin_alike: true,
            },
        };
        ChunkWriter {
            column,
            content,
            pages: Vec::new(),
            is_packed: None,
            filter,
            bytes: 0,
            plain: Vec::new(),
        }
    }

    /// How many bytes of the file are in memory, about; those of its filter aside.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many bytes its filter has at most.
    pub(super) fn filter_bytes_max(&self) -> usize {
        self.filter.as_ref().map_or(0, Filter::bytes_max)
    }

    /// Takes values, which are of the kind of the column.
    pub(super) fn write(&mut self, values: &dyn Array, packer: &mut Packer) -> Result<()> {
        let mut start = 0;
        while start < values.len() {
            let page = values.slice(start, page_rows(values, start));
            start += page.len();
            let mut plain = std::mem::take(&mut self.plain);
            plain.clear();
            let encoding = self.encode(page.as_ref(), &mut plain)?;
            let bytes = PageBytes::of(&plain, self.pays(&plain, packer)?, packer)?;
            self.plain = plain;
            self.bytes += bytes.len();
            self.pages.push(EncodedPage {
                encoding,
                bytes,
                rows: page.len(),
            });
        }
        Ok(())
    }

    /// Adds a page of these values to `page`.
    fn encode(&mut self, values: &dyn Array, page: &mut Vec<u8>) -> Result<Encoding> {
        if self.column.max_def_level() > 0 {
            levels(page, values);
        }
        Ok(match &mut self.content {
            Content::Numbers(known, width) => {
                let numbers = numbers(values)?;
                if let Some(filter) = &mut self.filter {
                    filter.add_numbers(&numbers, *width);
                }
                number_page(page, known, &numbers, values.null_count(), *width)
            }
            Content::Texts { known, begin_alike } => {
                if let Some(filter) = &mut self.filter {
                    filter.add_texts(&texts(values))?;
                }
                text_page(page, known, begin_alike, values)
            }
        })
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
        let mut written = Written::new(is_packed, self.pages.len(), self.bytes);
        if let Some((page, values)) = dictionary {
            written.dictionary(PageBytes::Plain(page), values, packer)?;
        }
        for page in self.pages {
            written.page(page, packer)?;
        }
        let filter = self.filter.map(Filter::finish).transpose()?.flatten();
        let (bytes, mut closed) = match &self.content {
            Content::Numbers(known, _) => written.close(self.column, &known.bounds),
            Content::Texts { known, .. } => written.close(self.column, &known.bounds),
        }
        .map_err(unwritable)?;
        closed.bloom_filter = filter;
        Ok((bytes, closed))
    }
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
    let range = match alike(numbers) {
        Some(number) => Some((number, number)),
        None => range_of_numbers(numbers),
    };
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

fn text_page(
    out: &mut Vec<u8>,
    known: &mut Known<str>,
    begin_alike: &mut bool,
    values: &dyn Array,
) -> Encoding {
    let owned = |(min, max): (&str, &str)| (bounds::known(min), bounds::known(max));
    let nulls = values.null_count();
    if known.takes_more()
        && let Some(text) = alike_texts(values)
        && let Some((numbered, different)) = known.number(std::iter::once(text))
    {
        let range = Some(owned((text, text)));
        known.bounds.push(PageBounds { range, nulls });
        return numbered_page(out, &numbered, values.len(), different);
    }
    let numbered = match (known.takes_more(), values.as_string::<i32>()) {
        (false, _) => None,
        (true, all) if nulls == 0 => known.number((0..all.len()).map(|place| all.value(place))),
        (true, some) => known.number(some.iter().flatten()),
    };
    if let Some((numbered, different)) = numbered {
        let dictionary = known.dictionary.iter();
        let all = dictionary.flat_map(|dictionary| {
            let numbers = numbered.distinct.iter();
            numbers.map(|number| &*dictionary.values[*number as usize])
        });
        let range = range_of_texts(all).map(owned);
        known.bounds.push(PageBounds { range, nulls });
        return numbered_page(out, &numbered, values.len() - nulls, different);
    }
    let texts = texts(values);
    let range = range_of_texts(texts.iter().copied()).map(owned);
    known.bounds.push(PageBounds { range, nulls });
    if texts.is_empty() {
        return Encoding::PLAIN;
    }
    *begin_alike = *begin_alike && fronts::texts(out, &texts);
    if *begin_alike {
        return Encoding::DELTA_BYTE_ARRAY;
    }
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
