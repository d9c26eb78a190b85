//! The pieces that the files of a version of bronze are read in, so that all cores have something to read to the end.

use crate::delta::{DataFile, Extent, Table};
use crate::error::Result;
use crate::parallel::in_parallel;
use std::ops::Range;

/// Rows that one core reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// By its place among the files of the version.
    pub(super) file: usize,
    pub(super) extent: Extent,
    /// Which of the live rows of the version these are, counted through all files.
    pub(super) rows: Range<usize>,
}

/// All live rows of `files`, in their order.
pub(super) fn pieces(bronze: &Table, files: &[DataFile]) -> Result<Vec<Piece>> {
    let extents = in_parallel(files.len(), |file| bronze.extents(&files[file]))?;
    let mut first = 0;
    let mut pieces = Vec::with_capacity(files.len());
    for (file, extents) in extents.into_iter().enumerate() {
        for (extent, rows) in extents {
            pieces.push(Piece {
                file,
                extent,
                rows: first..first + rows,
            });
            first += rows;
        }
    }
    Ok(pieces)
}
