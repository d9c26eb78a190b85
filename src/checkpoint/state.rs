//! The states of a landing file and their legal moves. Pure.
//!
//! ```text
//!            plan             load             clean
//!  pending --------> planned --------> loaded --------> cleaned
//!     |  ^  release  |   |              |  ^               |
//!     |  +-----------+   | park         |  | restore       |
//!     |  ^               v              |  |               |
//!     |  +------------ parked <---------+--+---------------+
//!     |     retry        ^      park
//!     +------------------+
//! ```
//!
//! `retry` also leads from `loaded` and `cleaned` to `pending`: a reset, or a replacement that is allowed. The same words
//! stand in the `CHECK` of the checkpoint.

use crate::error::{Error, Result};
use std::fmt;

/// What the checkpoint knows about a landing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FileState {
    /// Seen; not settled, or waiting for its batch.
    Pending,
    /// In a batch that is not confirmed.
    Planned,
    /// Its rows are durable in bronze.
    Loaded,
    /// Not loadable as it is, or changed after it was loaded.
    Parked,
    /// Loaded, and its source file was moved or deleted.
    Cleaned,
}

/// What happens to a landing file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileEvent {
    /// A batch takes it.
    Plan,
    /// Its batch is given up, or the file changed while it was read.
    Release,
    /// Its batch is in bronze.
    Load,
    /// It cannot be loaded as it is, vanished, or changed after it was loaded.
    Park,
    /// It is to be loaded (again): a reset, new bytes, back after it vanished, a replacement.
    Retry,
    /// The bytes that were loaded are there again.
    Restore,
    /// Its source file was moved or deleted.
    Clean,
}

impl FileState {
    /// Every state.
    pub const ALL: [FileState; 5] = [
        FileState::Pending,
        FileState::Planned,
        FileState::Loaded,
        FileState::Parked,
        FileState::Cleaned,
    ];

    /// The word in the checkpoint and in `files --json`.
    pub fn as_str(self) -> &'static str {
        match self {
            FileState::Pending => "pending",
            FileState::Planned => "planned",
            FileState::Loaded => "loaded",
            FileState::Parked => "parked",
            FileState::Cleaned => "cleaned",
        }
    }

    /// The state of a word; an unknown word is an error.
    pub fn parse(word: &str) -> Result<FileState> {
        FileState::ALL
            .into_iter()
            .find(|state| state.as_str() == word)
            .ok_or_else(|| Error::disagreement(format!("unknown file state: {word}")))
    }

    /// The state after `event`; a move that is not legal is an error and changes nothing.
    pub fn next(self, event: FileEvent) -> Result<FileState> {
        use FileState::{Cleaned, Loaded, Parked, Pending, Planned};
        let next = match (event, self) {
            (FileEvent::Plan, Pending | Parked) => Some(Planned),
            (FileEvent::Release, Planned) => Some(Pending),
            (FileEvent::Load, Planned) => Some(Loaded),
            (FileEvent::Park, Pending | Planned | Loaded | Parked | Cleaned) => Some(Parked),
            (FileEvent::Retry, Pending | Loaded | Parked | Cleaned) => Some(Pending),
            (FileEvent::Restore, Loaded | Parked | Cleaned) => Some(Loaded),
            (FileEvent::Clean, Loaded | Cleaned) => Some(Cleaned),
            (FileEvent::Plan, Planned | Loaded | Cleaned)
            | (FileEvent::Release | FileEvent::Load, Pending | Loaded | Parked | Cleaned)
            | (FileEvent::Retry, Planned)
            | (FileEvent::Restore, Pending | Planned)
            | (FileEvent::Clean, Pending | Planned | Parked) => None,
        };
        next.ok_or_else(|| Error::bug(format!("a file that is {self} cannot take {event:?}")))
    }
}

impl fmt::Display for FileState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FileState::{Cleaned, Loaded, Parked, Pending, Planned};

    #[test]
    fn unknown_word_is_an_error() {
        assert!(FileState::parse("done").is_err());
        for state in FileState::ALL {
            assert_eq!(FileState::parse(state.as_str()).unwrap(), state);
        }
    }

    #[test]
    fn every_move_is_either_in_the_table_or_refused() {
        let legal = [
            (Pending, FileEvent::Plan, Planned),
            (Parked, FileEvent::Plan, Planned),
            (Planned, FileEvent::Release, Pending),
            (Planned, FileEvent::Load, Loaded),
            (Pending, FileEvent::Park, Parked),
            (Planned, FileEvent::Park, Parked),
            (Loaded, FileEvent::Park, Parked),
            (Parked, FileEvent::Park, Parked),
            (Cleaned, FileEvent::Park, Parked),
            (Pending, FileEvent::Retry, Pending),
            (Loaded, FileEvent::Retry, Pending),
            (Parked, FileEvent::Retry, Pending),
            (Cleaned, FileEvent::Retry, Pending),
            (Loaded, FileEvent::Restore, Loaded),
            (Parked, FileEvent::Restore, Loaded),
            (Cleaned, FileEvent::Restore, Loaded),
            (Loaded, FileEvent::Clean, Cleaned),
            (Cleaned, FileEvent::Clean, Cleaned),
        ];
        let events = [
            FileEvent::Plan,
            FileEvent::Release,
            FileEvent::Load,
            FileEvent::Park,
            FileEvent::Retry,
            FileEvent::Restore,
            FileEvent::Clean,
        ];
        for state in FileState::ALL {
            for event in events {
                let expected = legal
                    .iter()
                    .find(|(from, by, _)| (*from, *by) == (state, event));
                match (state.next(event), expected) {
                    (Ok(next), Some((_, _, to))) => assert_eq!(next, *to, "{state} {event:?}"),
                    (Err(_), None) => {}
                    (outcome, _) => panic!("{state} {event:?}: {outcome:?}"),
                }
            }
        }
    }

    #[test]
    fn only_a_planned_file_becomes_loaded_by_a_load() {
        for state in [Pending, Loaded, Parked, Cleaned] {
            assert!(state.next(FileEvent::Load).is_err(), "{state}");
        }
    }
}
