//! The bloom filter of a chunk.

use super::bits::Width;
use crate::error::{Error, Result};
use parquet::bloom_filter::Sbbf;
use parquet::errors::ParquetError;

/// A value takes so many bytes of a filter that is as large as it must be, before it is rounded up.
const VALUE_BYTES: usize = 2;
const BLOCK_BYTES: usize = 32;

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

    /// The filter.
    pub(super) fn finish(self) -> Result<Sbbf> {
        let probability = self.false_positives;
        let mut filter = match self.content {
            Content::Nothing => sized(1, probability)?,
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
        Ok(filter)
    }
}

fn sized(values: usize, false_positives: f64) -> Result<Sbbf> {
    Sbbf::new_with_ndv_fpp(values.max(1) as u64, false_positives).map_err(unmade)
}

fn unmade(error: ParquetError) -> Error {
    Error::bug(format!("a bloom filter cannot be made: {error}"))
}
