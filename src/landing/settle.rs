//! Says which files no longer change. Pure.

use super::LandingFile;
use std::collections::HashSet;
use std::time::Duration;

/// Remembers earlier looks at files that wait.
#[derive(Debug)]
pub struct Settler {}

/// What one look says.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// Paths that may be planned.
    pub settled: HashSet<String>,
    /// When the next look is useful; `None` when every waiting file is settled.
    pub look_again_in: Option<Duration>,
}

impl Settler {
    /// A file must be unchanged for `settle`.
    pub fn new(settle: Duration) -> Self {
        let _ = settle;
        todo!()
    }

    /// Tells names that were renamed into place since the last look, before the listing that follows.
    pub fn announce(&mut self, renamed_into_place: impl IntoIterator<Item = String>) {
        let _ = renamed_into_place;
        todo!()
    }

    /// Looks at the files that wait for a batch (`Reconciled::waiting`), as one listing saw them. All others are forgotten.
    pub fn look(&mut self, waiting: &[LandingFile], now: i64) -> Look {
        let _ = (waiting, now);
        todo!()
    }
}
