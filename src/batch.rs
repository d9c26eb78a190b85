//! Cuts a list of files into micro-batches. Pure.
//!
//! A batch is a run of the list in its order; every file is in exactly one. What is in the list is the checkpoint's
//! decision.

pub use crate::change::BatchId;

/// A file as it was when its batch was frozen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedFile {
    /// Relative to the landing folder, see `landing::encode_name`.
    pub path: String,
    /// Bytes.
    pub size: u64,
    /// Microseconds since the epoch, UTC.
    pub modified_at: i64,
    /// The file took part in a batch before: rows of it may stand in bronze or quarantine and are to be replaced.
    pub replaces: bool,
}

/// The files of one bronze commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MicroBatch {
    /// Never used before, never used again.
    pub id: BatchId,
    /// In path order, not empty.
    pub files: Vec<PlannedFile>,
}

/// How large a micro-batch may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// The most files.
    pub files_max: usize,
    /// The most bytes; a single larger file is a batch of its own.
    pub bytes_max: u64,
}

impl BatchLimits {
    /// Whether a file of `size` bytes still fits behind `files` files of `bytes` bytes. The first file always does.
    pub fn admits(&self, files: usize, bytes: u64, size: u64) -> bool {
        files == 0 || (files < self.files_max && bytes.saturating_add(size) <= self.bytes_max)
    }
}

/// How many files from the front make up the next micro-batch; 0 only for an empty list.
pub fn cut(files: &[PlannedFile], limits: BatchLimits) -> usize {
    let mut bytes: u64 = 0;
    for (count, file) in files.iter().enumerate() {
        if !limits.admits(count, bytes, file.size) {
            return count;
        }
        bytes = bytes.saturating_add(file.size);
    }
    files.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(sizes: &[u64]) -> Vec<PlannedFile> {
        let file = |(index, size): (usize, &u64)| PlannedFile {
            path: format!("{index:04}.jsonl"),
            size: *size,
            modified_at: 0,
            replaces: false,
        };
        sizes.iter().enumerate().map(file).collect()
    }

    const LIMITS: BatchLimits = BatchLimits {
        files_max: 3,
        bytes_max: 100,
    };

    #[test]
    fn file_larger_than_the_limit_is_a_batch_of_its_own() {
        assert_eq!(cut(&files(&[1000, 1]), LIMITS), 1);
        assert_eq!(cut(&files(&[1, 1000]), LIMITS), 1);
        assert_eq!(cut(&files(&[u64::MAX, u64::MAX]), LIMITS), 1);
    }

    #[test]
    fn limit_of_zero_still_moves_on() {
        assert_eq!(
            cut(
                &files(&[5, 5]),
                BatchLimits {
                    files_max: 0,
                    bytes_max: 0
                }
            ),
            1
        );
    }

    #[test]
    fn batch_ends_at_the_first_limit_reached() {
        assert_eq!(cut(&files(&[]), LIMITS), 0);
        assert_eq!(cut(&files(&[10, 10, 10, 10]), LIMITS), 3);
        assert_eq!(cut(&files(&[60, 40, 1]), LIMITS), 2);
        assert_eq!(cut(&files(&[60, 41]), LIMITS), 1);
    }
}
