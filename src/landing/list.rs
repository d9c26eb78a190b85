//! Lists the files of a landing folder in a fixed order.

use super::LandingFile;
use crate::error::Result;
use crate::settings::Format;
use std::path::{Path, PathBuf};

/// What one walk over the landing folder found.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Regular files that the filter takes, sorted by `path`.
    pub files: Vec<LandingFile>,
    /// Links and special files, with the reason why they are not taken; at most [`IGNORED_MAX`] of them.
    pub ignored: Vec<(String, &'static str)>,
    /// Folders that could not be listed, or files that could not be looked at, with the error. Nothing is known
    /// about what is below.
    pub unreadable: Vec<(String, String)>,
}

/// How many ignored entries a listing names.
pub const IGNORED_MAX: usize = 100;

/// Which files are landing files.
#[derive(Clone, Debug)]
pub struct Filter {}

impl Filter {
    /// `path_glob_filter` without `/` is matched against the file name, with `/` against the relative path; `None` is
    /// the default of `format`. `excluded` are absolute paths (tables, checkpoints, a folder that cleaned files move
    /// to); what lies at or below them is never taken, nor are the files that SQLite and the lock keep beside them.
    pub fn new(
        format: Format,
        path_glob_filter: Option<&str>,
        excluded: &[PathBuf],
    ) -> Result<Filter> {
        let _ = (format, path_glob_filter, excluded);
        todo!()
    }
}

/// Walks the landing folder. Reads names and file status, opens no file.
pub fn list(root: &Path, filter: &Filter) -> Result<Listing> {
    let _ = (root, filter);
    todo!()
}
