//! Small files that one worker decodes together.

use super::Worker;
use crate::bronze::{FileSpan, LoadedRows};
use crate::decode::Together;
use crate::error::Result;
use crate::landing::{ReadFile, read};
use crate::load::files::{FileDone, FileEnd};
use arrow::array::RecordBatch;

impl Worker<'_> {
    /// Reads a file that is to be decoded together with others, and decodes them when they are many.
    pub(super) fn join(&mut self, place: usize) -> Result<()> {
        match read(&self.pass.source.path, self.pass.file(place)) {
            Ok(read) => {
                self.together_bytes += read.bytes.len();
                self.together.push((place, read));
            }
            Err(fault) => self.unread(place, fault)?,
        }
        match self.together_bytes >= self.pass.limits.joined_bytes {
            true => self.decode_together(),
            false => Ok(()),
        }
    }

    /// Decodes the files that were read for it: at once, or one by one where something is to be told of any of them.
    pub(super) fn decode_together(&mut self) -> Result<()> {
        self.together_bytes = 0;
        let files = std::mem::take(&mut self.together);
        if let [_, _, ..] = files.as_slice() {
            if let Some((rows, counts)) = self.rows_of(&files)? {
                return self.take_together(files, rows, &counts);
            }
            self.is_one_by_one = true;
        }
        for (place, read) in files {
            self.decode(place, read)?;
        }
        Ok(())
    }

    /// The rows of all of these files, and how many each has, if there is nothing to be told of any of them.
    fn rows_of(&self, files: &[(usize, ReadFile)]) -> Result<Option<(RecordBatch, Vec<usize>)>> {
        let Some(admission) = self.pass.admission else {
            return Ok(None);
        };
        let bytes = files.iter().map(|(_, read)| read.bytes.len()).sum();
        let mut together = Together::new(files.len(), bytes);
        if !files.iter().all(|(_, read)| together.push(&read.bytes)) {
            return Ok(None);
        }
        let Some((rows, counts)) = together.decode(self.pass.schema, self.pass.source) else {
            return Ok(None);
        };
        let all_load = admission.refusals(&rows)?.is_empty();
        Ok(all_load.then_some((rows, counts)))
    }

    /// Ends files whose rows all load.
    fn take_together(
        &mut self,
        files: Vec<(usize, ReadFile)>,
        rows: RecordBatch,
        counts: &[usize],
    ) -> Result<()> {
        let mut joined = LoadedRows {
            files: Vec::with_capacity(files.len()),
            file_rows: Vec::with_capacity(rows.num_rows()),
            rows,
        };
        for ((place, read), &count) in files.into_iter().zip(counts) {
            let file = self.pass.file(place);
            if count > 0 {
                joined.files.push(FileSpan {
                    path: file.path.clone(),
                    modified_at: file.modified_at,
                    rows: count,
                });
                joined.file_rows.extend(1..=count as i64);
            }
            let done = FileDone {
                content_hash: Some(read.hash),
                end: FileEnd::Loads,
                rows: count as u64,
                rejects: Vec::new(),
                held: Vec::new(),
            };
            self.result.done.push((place, done));
        }
        if joined.rows.num_rows() > 0 {
            self.held_bytes += joined.rows.get_array_memory_size();
            self.result.joined.push(joined);
        }
        self.write_if_much()
    }
}
