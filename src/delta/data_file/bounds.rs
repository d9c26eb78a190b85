//! Least and greatest values of pages and chunks, as Parquet writes them.

use parquet::basic::{BoundaryOrder, Type};
use parquet::data_type::ByteArray;
use parquet::errors::Result;
use parquet::file::metadata::ColumnIndexBuilder;
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::statistics::{Statistics, ValueStatistics};

/// Longer texts are bounded by their beginnings.
pub(super) const TEXT_BYTES_MAX: usize = 64;

/// The least and the greatest of some values.
pub(super) type Range<T> = (T, T);

/// Values that have bounds.
pub(super) trait Bounded: Ord + Clone {
    /// As they are stored in a column of this type, not above the value.
    fn lower(&self, physical: Type) -> Vec<u8>;
    /// The same, not below the value; `None` if there is no such bound.
    fn upper(&self, physical: Type) -> Option<Vec<u8>>;
    /// Whether it is stored by its beginning alone.
    fn is_cut(&self) -> bool;
    /// The statistics of a chunk.
    fn statistics(range: Option<&Range<Self>>, nulls: u64, physical: Type) -> Statistics;
}

impl Bounded for i64 {
    fn lower(&self, physical: Type) -> Vec<u8> {
        match physical {
            Type::INT32 => (*self as i32).to_le_bytes().to_vec(),
            _ => self.to_le_bytes().to_vec(),
        }
    }

    fn upper(&self, physical: Type) -> Option<Vec<u8>> {
        Some(self.lower(physical))
    }

    fn is_cut(&self) -> bool {
        false
    }

    fn statistics(range: Option<&Range<Self>>, nulls: u64, physical: Type) -> Statistics {
        let (min, max) = (range.map(|range| range.0), range.map(|range| range.1));
        match physical {
            Type::INT32 => {
                let (min, max) = (min.map(|min| min as i32), max.map(|max| max as i32));
                let statistics = ValueStatistics::new(min, max, None, Some(nulls), false);
                statistics.with_backwards_compatible_min_max(true).into()
            }
            _ => {
                let statistics = ValueStatistics::new(min, max, None, Some(nulls), false);
                statistics.with_backwards_compatible_min_max(true).into()
            }
        }
    }
}

impl Bounded for Box<str> {
    fn lower(&self, _: Type) -> Vec<u8> {
        beginning(self).as_bytes().to_vec()
    }

    fn upper(&self, _: Type) -> Option<Vec<u8>> {
        match self.is_cut() {
            false => Some(self.as_bytes().to_vec()),
            true => above(beginning(self)).map(String::into_bytes),
        }
    }

    fn is_cut(&self) -> bool {
        self.len() > TEXT_BYTES_MAX
    }

    fn statistics(range: Option<&Range<Self>>, nulls: u64, physical: Type) -> Statistics {
        let min = range.map(|(min, _)| ByteArray::from(min.lower(physical)));
        let max = range.and_then(|(_, max)| max.upper(physical).map(ByteArray::from));
        let statistics = ValueStatistics::new(min, max, None, Some(nulls), false)
            .with_min_is_exact(range.is_some_and(|(min, _)| !min.is_cut()))
            .with_max_is_exact(range.is_some_and(|(_, max)| !max.is_cut()));
        statistics.into()
    }
}

/// What of a text is to be known for its bounds: enough to see that it is longer.
pub(super) fn known(text: &str) -> Box<str> {
    text[..text.floor_char_boundary(TEXT_BYTES_MAX + size_of::<char>())].into()
}

/// The beginning of a text in so many bytes, whole characters.
fn beginning(text: &str) -> &str {
    match text.len() <= TEXT_BYTES_MAX {
        true => text,
        false => &text[..text.floor_char_boundary(TEXT_BYTES_MAX)],
    }
}

/// A short text above all that begin with `beginning`; `None` if there is none.
fn above(beginning: &str) -> Option<String> {
    let mut text = beginning.to_owned();
    while let Some(last) = text.pop() {
        let next = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32);
        if let Some(next) = next {
            text.push(next);
            return Some(text);
        }
    }
    None
}

/// What the index of a column says of one page.
pub(super) struct PageBounds<T> {
    /// `None` where all values are NULL.
    pub(super) range: Option<Range<T>>,
    pub(super) nulls: usize,
}

/// The range of all pages.
pub(super) fn range_of<T: Bounded>(pages: &[PageBounds<T>]) -> Option<Range<T>> {
    let ranges = || pages.iter().filter_map(|page| page.range.as_ref());
    let min = ranges().map(|(min, _)| min).min()?.clone();
    let max = ranges().map(|(_, max)| max).max()?.clone();
    Some((min, max))
}

/// The index of a column of this type; `None` where a page has no bounds that can be written.
pub(super) fn column_index<T: Bounded>(
    pages: &[PageBounds<T>],
    physical: Type,
) -> Result<Option<ColumnIndexMetaData>> {
    let mut index = ColumnIndexBuilder::new(physical);
    index.set_boundary_order(order(pages));
    for page in pages {
        let nulls = page.nulls as i64;
        match &page.range {
            None => index.append(true, Vec::new(), Vec::new(), nulls),
            Some((min, max)) => match max.upper(physical) {
                Some(max) => index.append(false, min.lower(physical), max, nulls),
                None => return Ok(None),
            },
        }
    }
    index.build().map(Some)
}

fn order<T: Bounded>(pages: &[PageBounds<T>]) -> BoundaryOrder {
    let ranges: Vec<_> = pages
        .iter()
        .filter_map(|page| page.range.as_ref())
        .collect();
    // What is stored of texts need not be in the order of the texts.
    if ranges.iter().any(|(min, max)| min.is_cut() || max.is_cut()) {
        return BoundaryOrder::UNORDERED;
    }
    let is_sorted = |fits: fn(&T, &T) -> bool| {
        let mut pairs = ranges.windows(2);
        pairs.all(|pair| fits(&pair[0].0, &pair[1].0) && fits(&pair[0].1, &pair[1].1))
    };
    if is_sorted(|left, right| left <= right) {
        BoundaryOrder::ASCENDING
    } else if is_sorted(|left, right| left >= right) {
        BoundaryOrder::DESCENDING
    } else {
        BoundaryOrder::UNORDERED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_bounded_by_their_beginnings() {
        let text = |text: String| Box::<str>::from(text);
        let long = text("x".repeat(63) + "é and more");
        let lower = long.lower(Type::BYTE_ARRAY);
        assert_eq!(lower, "x".repeat(63).as_bytes());
        let upper = long.upper(Type::BYTE_ARRAY).unwrap();
        assert_eq!(upper, ("x".repeat(62) + "y").as_bytes());
        let high = text(char::MAX.to_string().repeat(20));
        assert_eq!(high.upper(Type::BYTE_ARRAY), None);
        let short = text("x".repeat(TEXT_BYTES_MAX));
        assert_eq!(short.upper(Type::BYTE_ARRAY).unwrap(), short.as_bytes());
    }

    #[test]
    fn what_is_known_of_a_text_bounds_it_like_the_whole() {
        for text in ["é", "y"].map(|end| ["x".repeat(63) + end, "x".repeat(62) + end + end + end])
        {
            for text in text {
                for whole in [text.clone(), text.clone() + "🦀 and more", text.repeat(9)] {
                    let (known, whole) = (known(&whole), Box::<str>::from(whole));
                    assert!(known.len() <= TEXT_BYTES_MAX + 4);
                    assert_eq!(known.len() > TEXT_BYTES_MAX, whole.len() > TEXT_BYTES_MAX);
                    assert_eq!(known.upper(Type::BYTE_ARRAY), whole.upper(Type::BYTE_ARRAY));
                    assert_eq!(known.lower(Type::BYTE_ARRAY), whole.lower(Type::BYTE_ARRAY));
                }
            }
        }
    }

    #[test]
    fn character_before_the_surrogates_has_one_above() {
        assert_eq!(above("a\u{d7ff}").unwrap(), "a\u{e000}");
    }

    #[test]
    fn pages_of_texts_that_are_cut_have_no_order() {
        let page = |text: String| PageBounds {
            range: Some((Box::<str>::from(text.as_str()), Box::from(text))),
            nulls: 0,
        };
        let (x, long) = ("x".repeat(63), "x".repeat(64) + "\u{10ffff}");
        assert_eq!(
            order(&[page(x.clone() + "y"), page(x.clone() + "z")]),
            BoundaryOrder::ASCENDING
        );
        let pages = [page(x.clone() + "y"), page(x + "éz"), page(long)];
        assert_eq!(order(&pages), BoundaryOrder::UNORDERED);
    }

    #[test]
    fn order_of_pages_is_told_without_those_of_nulls() {
        let page = |range| PageBounds { range, nulls: 0 };
        let pages = |ranges: &[Option<(i64, i64)>]| ranges.iter().copied().map(page).collect();
        let order = |ranges: &[Option<(i64, i64)>]| {
            let pages: Vec<PageBounds<i64>> = pages(ranges);
            order(&pages)
        };
        assert_eq!(
            order(&[Some((1, 2)), None, Some((2, 3))]),
            BoundaryOrder::ASCENDING
        );
        assert_eq!(
            order(&[Some((2, 3)), None, Some((1, 3))]),
            BoundaryOrder::DESCENDING
        );
        assert_eq!(
            order(&[Some((1, 5)), Some((2, 3))]),
            BoundaryOrder::UNORDERED
        );
    }
}
