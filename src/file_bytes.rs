//! The bytes of a Parquet file as the library asks for them.
//!
//! It asks for pages one by one, and for the head of each apart. Where all pages are read, those that come next in the column
//! are read with them. The place of the open file is left where it is.

use crate::parallel::lock;
use bytes::{Buf, Bytes};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{ChunkReader, Length};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

/// So many bytes of a column are read at once. A debug build reads fewer, so that tests cross their ends.
const AHEAD_BYTES: u64 = if cfg!(debug_assertions) {
    100
} else {
    256 << 10
};
/// The head of a page has fewer, unless it tells long values.
const HEAD_BYTES: u64 = 64;

/// An open file.
pub(crate) struct FileBytes {
    file: Arc<File>,
    length: u64,
    /// The bytes of each column chunk, ascending, with the place of the column.
    chunks: Vec<(Range<u64>, usize)>,
    /// What was read last of each column.
    windows: Vec<Mutex<Window>>,
}

/// Bytes that begin at a place of the file.
#[derive(Default)]
struct Window {
    at: u64,
    bytes: Bytes,
}

impl Window {
    /// The bytes from `start` on that are here.
    fn behind(&self, start: u64) -> Bytes {
        let skipped = start.checked_sub(self.at);
        match skipped.and_then(|skipped| usize::try_from(skipped).ok()) {
            Some(skipped) if skipped <= self.bytes.len() => self.bytes.slice(skipped..),
            _ => Bytes::new(),
        }
    }
}

impl FileBytes {
    /// Reads what is asked for.
    pub(crate) fn asked(file: File) -> io::Result<FileBytes> {
        let length = file.metadata()?.len();
        Ok(FileBytes {
            file: Arc::new(file),
            length,
            chunks: Vec::new(),
            windows: Vec::new(),
        })
    }

    /// Reads columns ahead of that, in a file with this metadata, whose places must have been checked if it is not our own.
    pub(crate) fn ahead(file: File, metadata: &ParquetMetaData) -> io::Result<FileBytes> {
        let groups = metadata.row_groups().iter();
        let chunks = groups.flat_map(|group| {
            let columns = group.columns().iter().enumerate();
            columns.map(|(column, chunk)| {
                let (start, length) = chunk.byte_range();
                (start..start.saturating_add(length), column)
            })
        });
        let mut chunks: Vec<(Range<u64>, usize)> = chunks.collect();
        chunks.sort_unstable_by_key(|(bytes, _)| bytes.start);
        let columns = chunks.iter().map(|(_, column)| column + 1).max();
        let mut bytes = FileBytes::asked(file)?;
        bytes.chunks = chunks;
        bytes
            .windows
            .resize_with(columns.unwrap_or(0), Mutex::default);
        Ok(bytes)
    }

    /// The bytes from `start` on: so many, unless the file ends before, or more of them.
    fn behind(&self, start: u64, length: u64) -> io::Result<Bytes> {
        let length = length.min(self.length.saturating_sub(start));
        let begun = self
            .chunks
            .partition_point(|(chunk, _)| chunk.start <= start);
        let chunk = begun.checked_sub(1).map(|last| &self.chunks[last]);
        let Some((chunk, column)) = chunk.filter(|(chunk, _)| chunk.contains(&start)) else {
            return self.read(start, length);
        };
        let mut window = lock(&self.windows[*column]);
        let known = window.behind(start);
        if known.len() as u64 >= length {
            return Ok(known);
        }
        let ahead = AHEAD_BYTES.min(chunk.end.min(self.length).saturating_sub(start));
        let bytes = self.read(start, ahead.max(length))?;
        *window = Window {
            at: start,
            bytes: bytes.clone(),
        };
        Ok(bytes)
    }

    fn read(&self, start: u64, length: u64) -> io::Result<Bytes> {
        let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
        let mut filled = 0;
        while filled < bytes.len() {
            match self
                .file
                .read_at(&mut bytes[filled..], start + filled as u64)
            {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(filled);
        Ok(bytes.into())
    }
}

impl Length for FileBytes {
    fn len(&self) -> u64 {
        self.length
    }
}

impl ChunkReader for FileBytes {
    type T = BytesBehind;

    fn get_read(&self, start: u64) -> Result<BytesBehind> {
        Ok(BytesBehind {
            at: start,
            known: self.behind(start, HEAD_BYTES)?,
            file: Arc::clone(&self.file),
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        let mut bytes = self.behind(start, length as u64)?;
        if bytes.len() < length {
            return Err(ParquetError::EOF(format!(
                "{length} bytes at byte {start} reach beyond the end of the file, which has {}",
                self.length
            )));
        }
        bytes.truncate(length);
        Ok(bytes)
    }
}

/// The bytes of a file from a place on, some of which are known.
pub(crate) struct BytesBehind {
    at: u64,
    known: Bytes,
    file: Arc<File>,
}

impl Read for BytesBehind {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = match self.known.is_empty() {
            false => {
                let length = out.len().min(self.known.len());
                self.known.copy_to_slice(&mut out[..length]);
                length
            }
            true => self.file.read_at(out, self.at)?,
        };
        self.at += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use parquet::arrow::ArrowWriter;
    use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder};
    use parquet::file::properties::WriterProperties;

    /// A file of some row groups with pages of all sizes, and what it holds.
    fn file() -> (File, Vec<u8>, RecordBatch) {
        let texts = (0..400).map(|row| "long text ".repeat(row % 40));
        let columns: [(&str, ArrayRef); 2] = [
            ("n", Arc::new(Int64Array::from_iter_values(0..400))),
            ("t", Arc::new(StringArray::from_iter_values(texts))),
        ];
        let rows = RecordBatch::try_from_iter(columns).unwrap();
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(150))
            .set_data_page_row_count_limit(7)
            .set_write_batch_size(7)
            .set_write_page_header_statistics(true)
            .set_dictionary_enabled(false)
            .build();
        let mut bytes = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut bytes, rows.schema(), Some(properties)).unwrap();
        writer.write(&rows).unwrap();
        writer.close().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, &bytes).unwrap();
        (file, bytes, rows)
    }

    #[test]
    fn rows_are_those_of_the_file_whether_read_ahead_or_not() {
        let (file, _, rows) = file();
        let metadata = ArrowReaderMetadata::load(&file, Default::default()).unwrap();
        let open = || file.try_clone().unwrap();
        for bytes in [
            FileBytes::asked(open()).unwrap(),
            FileBytes::ahead(open(), metadata.metadata()).unwrap(),
        ] {
            let builder =
                ParquetRecordBatchReaderBuilder::new_with_metadata(bytes, metadata.clone());
            let read: Vec<RecordBatch> = builder.build().unwrap().map(Result::unwrap).collect();
            let read = arrow::compute::concat_batches(&rows.schema(), &read).unwrap();
            assert_eq!(read, rows);
        }
    }

    #[test]
    fn bytes_are_those_at_their_place_whatever_was_read_before() {
        let (file, all, _) = file();
        let metadata = ArrowReaderMetadata::load(&file, Default::default()).unwrap();
        let bytes = FileBytes::ahead(file, metadata.metadata()).unwrap();
        let mut seed = 3_usize;
        for _ in 0..3_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (start, length) = ((seed >> 33) % (all.len() + 9), (seed >> 20) % 400);
            let expected = all.get(start..start + length);
            let got = bytes.get_bytes(start as u64, length).ok();
            assert_eq!(got.as_deref(), expected, "{length} at {start}");
            let mut read = Vec::new();
            let behind = bytes.get_read(start as u64).unwrap();
            behind.take(length as u64).read_to_end(&mut read).unwrap();
            let end = all.len().min(start + length);
            assert_eq!(read, all.get(start..end).unwrap_or_default());
        }
    }
}
