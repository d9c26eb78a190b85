//! Writes data files, synced, not yet named by the log.

use crate::error::Result;
use arrow::array::RecordBatch;
use deltalake::kernel::Add;

/// Writes data files batch by batch.
pub struct RowWriter {}

impl RowWriter {
    /// Takes rows of exactly the writer's schema.
    pub async fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        todo!()
    }
    /// Finishes the files; they are on disk when this returns.
    pub async fn close(self) -> Result<Vec<Add>> {
        todo!()
    }
}
