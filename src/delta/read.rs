//! Reads rows of one data file, without the log.

use crate::error::Result;
use arrow::array::RecordBatch;

/// Live rows and where they stand in their file.
#[derive(Clone, Debug)]
pub struct ScannedRows {
    /// The asked columns in the asked order.
    pub rows: RecordBatch,
    /// The physical number of each row, from 0, ascending.
    pub row_numbers: Vec<u64>,
}

/// The live rows of one file, batch by batch.
pub struct FileScan {}

impl Iterator for FileScan {
    type Item = Result<ScannedRows>;

    fn next(&mut self) -> Option<Self::Item> {
        todo!()
    }
}
