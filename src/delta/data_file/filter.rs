//! The bloom filter of a chunk.

use super::ROW_GROUP_ROWS;
use super::bits::Width;
use super::values::range_of_numbers;
use crate::error::{Error, Result};
use parquet::bloom_filter::Sbbf;
use parquet::errors::ParquetError;

/// A value takes so many bytes of a filter that is as large as it must be, before it is rounded up.
const VALUE_BYTES: usize = 2;
const BLOCK_BYTES: usize = 32;

/// Where one of so many numbers of a range is there, a filter refuses few that the range does not.
const FILLED_SHARE: usize = 2;
/// A group that is full is one of several in its file; what each of them may hold, the file may.
const FILLED_SHARE_OF_SEVERAL: usize = 8;

/// Takes values; a filter that is as large as they need is made at the end.
pub(super) struct Filter {
    false_positives: f64,
    /// How many values there may be.
    values_max: usize,
    content: Content,
}

enum Content {
    Nothing,
    /// Kept until their number is known: a filter that fits is filled faster.
    Numbers(Vec<i64>, Width),
    Texts(Sbbf),
}

impl Filter {
    /// One that a value which is not in it passes with this probability, for no more than so many values.
    pub(super) fn new(false_positives: f64, values_max: usize) -> Self {
        Filter {
            false_positives,
            values_max,
            content: Content::Nothing,
        }
    }

    pub(super) fn add_numbers(&mut self, numbers: &[i64], width: Width) {
        match &mut self.content {
            Content::Numbers(all, _) => all.extend_from_slice(numbers),
            Content::Nothing | Content::Texts(_) => {
                self.content = Content::Numbers(numbers.to_vec(), width);
            }
        }
    }

    pub(super) fn add_texts(&mut self, texts: &[&str]) -> Result<()> {
        if !matches!(self.content, Content::Texts(_)) {
            self.content = Content::Texts(sized(self.values_max, self.false_positives)?);
        }
        if let Content::Texts(filter) = &mut self.content {
            texts.iter().for_each(|text| filter.insert(*text));
        }
        Ok(())
    }

    /// How many bytes it has at most, about.
    pub(super) fn bytes_max(&self) -> usize {
        match &self.content {
            Content::Nothing => 0,
            Content::Numbers(numbers, _) => numbers.len() * VALUE_BYTES,
            Content::Texts(filter) => filter.num_blocks() * BLOCK_BYTES,
        }
    }

    /// The filter; `None` where it would tell little more than the least and the greatest value do.
    pub(super) fn finish(self) -> Result<Option<Sbbf>> {
        let probability = self.false_positives;
        let mut filter = match self.content {
            Content::Nothing => sized(1, probability)?,
            Content::Numbers(numbers, _) if fill_their_range(&numbers) => return Ok(None),
            Content::Numbers(numbers, width) => {
                let mut filter = sized(numbers.len(), probability)?;
                match width {
                    Width::Bits32 => numbers.iter().for_each(|n| filter.insert(&(*n as i32))),
                    Width::Bits64 => numbers.iter().for_each(|n| filter.insert(n)),
                }
                filter
            }
            Content::Texts(filter) => filter,
        };
        filter.fold_to_target_fpp(probability);
        Ok(Some(filter))
    }
}

/// Whether so many of the numbers from the least to the greatest are there that nearly any may be.
fn fill_their_range(numbers: &[i64]) -> bool {
    let share = match numbers.len() >= ROW_GROUP_ROWS {
        true => FILLED_SHARE_OF_SEVERAL,
        false => FILLED_SHARE,
    };
    let Some((least, greatest)) = range_of_numbers(numbers) else {
        return false;
    };
    let last = greatest.abs_diff(least);
    if last >= (numbers.len() * share) as u64 {
        return false;
    }
    let mut seen = vec![0_u64; last as usize / 64 + 1];
    for number in numbers {
        let place = number.abs_diff(least);
        seen[place as usize / 64] |= 1 << (place % 64);
    }
    let different: u32 = seen.iter().map(|bits| bits.count_ones()).sum();
    different as u64 * share as u64 > last
}

fn sized(values: usize, false_positives: f64) -> Result<Sbbf> {
    Sbbf::new_with_ndv_fpp(values.max(1) as u64, false_positives).map_err(unmade)
}

fn unmade(error: ParquetError) -> Error {
    Error::bug(format!("a bloom filter cannot be made: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a filter of these is made.
    fn is_made(numbers: impl IntoIterator<Item = i64>) -> bool {
        let numbers: Vec<i64> = numbers.into_iter().collect();
        let mut filter = Filter::new(0.01, numbers.len());
        for numbers in numbers.chunks(1_000) {
            filter.add_numbers(numbers, Width::Bits64);
        }
        filter.finish().unwrap().is_some()
    }

    #[test]
    fn numbers_that_fill_their_range_need_no_filter() {
        assert!(!is_made(0..1_000));
        assert!(!is_made((-500..500).map(|number| number * 2)));
        assert!(is_made((-500..500).map(|number| number * 3)));
        assert!(!is_made([7; 1_000]));
        assert!(!is_made([i64::MIN]));
        assert!(is_made([i64::MIN, i64::MAX]));
        assert!(is_made((0..1_000).chain([i64::MAX])));
    }

    #[test]
    fn numbers_count_once_however_often_they_come() {
        assert!(is_made((0..1_000).map(|row| row % 10 * 100)));
    }

    #[test]
    fn group_that_is_full_needs_none_where_its_numbers_are_less_close() {
        let numbers = |count: i64| (0..count).map(|number| number * 8);
        assert!(is_made(numbers(ROW_GROUP_ROWS as i64 - 1)));
        assert!(!is_made(numbers(ROW_GROUP_ROWS as i64)));
    }
}
