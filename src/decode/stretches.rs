//! Cuts a Parquet file into stretches of rows while it is read from its places, so that no more of it is in memory than a few.

use super::blocks::{Block, Content};
use super::parquet::{self, Batches, Part};
use super::rows::Before;
use super::unpack::stream::damage;
use crate::file_bytes::FileBytes;
use bytes::Bytes;
use std::fs::File;
use std::io::Result;

/// The stretches of a file, one after the other.
pub struct Stretches {
    file: File,
    /// `None` before the first.
    batches: Option<Batches>,
    /// Rows before the next.
    rows: usize,
    stretch_bytes: usize,
}

impl Stretches {
    /// Of an open file, whose place is left where it is. A stretch has `stretch_bytes` in memory, or a few more.
    pub fn of(file: File, stretch_bytes: usize) -> Self {
        Stretches {
            file,
            batches: None,
            rows: 0,
            stretch_bytes,
        }
    }

    /// The next stretch; `None` at the end. A damage of the file is its fault, and nothing is to be read behind it.
    pub fn next_block(&mut self) -> Result<Option<Block>> {
        let mut batches = match self.batches.take() {
            Some(batches) => batches,
            None => self.open()?,
        };
        let (mut stretch, mut bytes) = (Vec::new(), 0);
        let before = self.rows;
        while bytes < self.stretch_bytes {
            let Some(batch) = batches.next().map_err(damage)? else {
                break;
            };
            bytes += batch.rows.get_array_memory_size();
            self.rows += batch.rows.num_rows();
            stretch.push(batch);
        }
        self.batches = Some(batches);
        Ok((!stretch.is_empty()).then(|| Block {
            bytes: Bytes::new(),
            before: Before {
                records: before,
                ..Before::default()
            },
            too_large: None,
            content: Content::Batches(stretch),
        }))
    }

    fn open(&self) -> Result<Batches> {
        if !parquet::is_whole(&self.file)? {
            return Err(damage(parquet::not_whole()));
        }
        let open = |metadata: Option<&_>| {
            let file = self.file.try_clone()?;
            match metadata {
                Some(metadata) => FileBytes::ahead(file, metadata),
                None => FileBytes::asked(file),
            }
        };
        Batches::open(&open, Part::ALL).map_err(damage)
    }
}
