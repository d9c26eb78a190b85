//! Wakes the loop when a listing may have changed.

use crate::error::Result;
use std::path::Path;
use std::time::Duration;

/// Why a wait ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Nothing happened in time.
    TimedOut,
    /// A [`Waker`] ended the wait.
    Woken,
    /// Something below the folder changed: list again.
    Changed {
        /// Paths (see `encode_name`) that now exist by a rename; for [`super::Settler::announce`].
        renamed_into_place: Vec<String>,
    },
    /// Events were lost: list again.
    Overflow,
    /// The folder itself went away or was replaced. Start a new watch when a listing works again.
    Lost(String),
}

/// Ends a wait from another thread. Outlives any one watch.
#[derive(Clone, Debug, Default)]
pub struct Waker {}

impl Waker {
    /// A waker for any number of watches.
    pub fn new() -> Self {
        Waker::default()
    }

    /// Ends the present wait, or the next one if none is running.
    pub fn wake(&self) {
        todo!()
    }
}

/// Events below one folder.
#[derive(Debug)]
pub struct Watch {}

impl Watch {
    /// Starts to watch; call it before the first listing, so that nothing falls between.
    pub fn start(root: &Path, waker: &Waker) -> Result<Watch> {
        let _ = (root, waker);
        todo!()
    }

    /// A watch without events: waits only (`discovery = "list"`, or a folder that is missing).
    pub fn without_events(waker: &Waker) -> Watch {
        let _ = waker;
        todo!()
    }

    /// Waits for the first thing that happens, at most `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Wake {
        let _ = timeout;
        todo!()
    }

    /// One line when part of the tree is not watched and only listing covers it.
    pub fn degraded(&self) -> Option<String> {
        todo!()
    }
}
