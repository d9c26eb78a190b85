//! Which folders are tables of their own, and how the settings name them.
//!
//! A folder of subfolders is several tables only where their columns differ; else subfolders are parts of one.

use super::{columns, sample, source};
use crate::error::{Error, Result};
use crate::landing::{Listing, decode_name};
use crate::settings::{SourceSettings, as_name};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// A folder with more subfolders is one table.
const TABLES_MAX: usize = 50;
/// Subfolders are of one table where so many of a hundred columns are in both.
const ALIKE_MIN: usize = 50;

/// Landing files that may be one table.
#[derive(Debug)]
pub(super) struct Folder {
    /// For the settings.
    pub(super) path: PathBuf,
    /// Where it is.
    pub(super) root: PathBuf,
    /// Below `root`, in the form of a listing.
    pub(super) files: Vec<String>,
}

impl Folder {
    /// The files of a listing below `path`, for settings that will stand in `folder`.
    pub(super) fn new(path: &Path, folder: &Path, listing: Listing) -> Self {
        Folder {
            path: relative(path, folder),
            root: folder.join(path),
            files: listing.files.into_iter().map(|file| file.path).collect(),
        }
    }

    /// The folder's name, or that of the place that it leads to.
    pub(super) fn name(&self) -> String {
        let named = |path: &Path| {
            path.file_name()
                .map(|name| name.to_string_lossy().into_owned())
        };
        let real = || self.root.canonicalize().ok().as_deref().and_then(named);
        let name = named(&self.path).or_else(real);
        name.map_or_else(|| "pipeline".to_string(), |name| as_name(&name))
    }

    /// The path as a text of the settings. Fails when it is none, which a settings file cannot name.
    pub(super) fn path_text(&self) -> Result<String> {
        match self.path.to_str() {
            // A path of blanks alone would be none.
            Some(path) if path.trim().is_empty() => Ok(format!("./{path}")),
            Some(path) => Ok(path.to_string()),
            None => {
                let path = self.path.display();
                let message = format!(
                    "a settings file cannot name this folder, its name is not UTF-8: {path}"
                );
                Err(Error::settings(message).hint("rename the folder, or reach it by a link"))
            }
        }
    }

    /// Fails where the landing folder holds the folder of the settings, since the tables would lie in it.
    pub(super) fn check_place(&self, folder: &Path) -> Result<()> {
        let (Ok(landing), Ok(real)) = (self.root.canonicalize(), folder.canonicalize()) else {
            return Ok(());
        };
        if !real.starts_with(&landing) {
            return Ok(());
        }
        let (landing, folder) = (landing.display(), folder.display());
        let message = format!(
            "landing folder {landing} holds the working folder {folder}, in which the tables would lie"
        );
        Err(Error::settings(message).hint("call it from the folder in which landfall.toml, checkpoints and lake will stand, beside the landing folder"))
    }
}

/// The subfolders where they look like tables of their own, else the whole folder.
pub(super) fn tables(whole: Folder, defaults: &SourceSettings) -> Result<Vec<Folder>> {
    let Some(folders) = subfolders(&whole) else {
        return Ok(vec![whole]);
    };
    let mut names: Vec<BTreeSet<String>> = Vec::new();
    for folder in &folders {
        let sample = sample::take(&folder.root, &folder.files, 1, defaults)?;
        if sample.fault().is_none() {
            let mut source = source::tell(&sample, &folder.files, defaults)?;
            let columns = columns::tell(&sample, &mut source.settings, source.unnamed)?;
            names.push(
                columns
                    .fields
                    .iter()
                    .map(|field| field.name().to_lowercase())
                    .collect(),
            );
        }
    }
    let differ = names.windows(2).any(|pair| !are_alike(&pair[0], &pair[1]));
    Ok(if differ { folders } else { vec![whole] })
}

/// The folders right below, where every file lies in one and there are several; `None` where they are parts of one table.
fn subfolders(whole: &Folder) -> Option<Vec<Folder>> {
    let mut files: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for path in &whole.files {
        let (folder, rest) = path.split_once('/')?;
        files.entry(folder).or_default().push(rest.to_string());
    }
    let is_partition = |name: &str| name.contains('=') || !name.contains(char::is_alphabetic);
    if !(2..=TABLES_MAX).contains(&files.len()) || files.keys().copied().all(is_partition) {
        return None;
    }
    let folder = |(name, files): (&str, Vec<String>)| {
        // A name that is no text cannot stand in the settings.
        let name = decode_name(name).into_string().ok()?;
        Some(Folder {
            path: whole
                .path
                .join(&name)
                .components()
                .filter(|part| *part != Component::CurDir)
                .collect(),
            root: whole.root.join(&name),
            files,
        })
    };
    files.into_iter().map(folder).collect()
}

fn are_alike(left: &BTreeSet<String>, right: &BTreeSet<String>) -> bool {
    let both = left.intersection(right).count();
    both * 100 >= left.union(right).count() * ALIKE_MIN
}

/// The path as it stands in the settings: relative to `folder` where it lies below.
fn relative(path: &Path, folder: &Path) -> PathBuf {
    let inside = path.strip_prefix(folder).unwrap_or(path);
    let plain: PathBuf = inside
        .components()
        .filter(|part| *part != Component::CurDir)
        .collect();
    if plain.as_os_str().is_empty() {
        PathBuf::from(".")
    } else {
        plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_to_the_folder_of_the_settings() {
        let shown = |path: &str| {
            relative(Path::new(path), Path::new("/data"))
                .display()
                .to_string()
        };
        assert_eq!(shown("/data/landing"), "landing");
        assert_eq!(shown("./landing/"), "landing");
        assert_eq!(shown("/other/landing"), "/other/landing");
        assert_eq!(shown("../landing"), "../landing");
        assert_eq!(shown("."), ".");
    }
}
