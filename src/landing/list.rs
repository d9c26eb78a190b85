//! Lists the files of a landing folder in a fixed order.
//!
//! The listing holds every regular file that the filter takes, and says what it could not look at, so that nobody takes
//! "not seen" for "not there". It follows no link and opens no file.

use super::pattern::{Matcher, matcher};
use super::{LandingFile, encode_name};
use crate::error::{Error, Result};
use crate::parallel::map_in_parallel;
use crate::settings::{Format, PACKED_ENDINGS};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{DirEntry, FileType, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
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

/// So many files are looked at by one core, one after the other.
const LOOKED_AT_MIN: usize = if cfg!(debug_assertions) { 2 } else { 256 };

/// Names of files that an uploader has not finished.
const UNFINISHED: [&str; 3] = [".tmp", ".part", ".crdownload"];
/// What SQLite and the lock keep beside a checkpoint.
const COMPANIONS: [&str; 5] = ["", "-wal", "-shm", "-journal", ".lock"];

/// Which files are landing files.
///
/// A part of a path that starts with `.` or `_`, or that ends like an unfinished upload (`.tmp`, `.part`, `.crdownload`),
/// is never taken, whatever the pattern says; that goes for folders too.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Empty takes every name.
    matchers: Vec<Matcher>,
    excluded: Vec<PathBuf>,
}

impl Filter {
    /// `path_glob_filter` without `/` is matched against the file name, with `/` against the relative path; `None` is
    /// the default of `format`. `excluded` are absolute paths (tables, checkpoints, a folder that cleaned files move
    /// to); what lies at or below them is never taken, nor are the files that SQLite and the lock keep beside them.
    pub fn new(
        format: Format,
        path_glob_filter: Option<&str>,
        excluded: &[PathBuf],
    ) -> Result<Filter> {
        let matchers = match path_glob_filter {
            Some(pattern) => vec![matcher(pattern)?],
            None => default_matchers(format)?,
        };
        let excluded = excluded.iter().map(|path| resolve(path)).collect();
        Ok(Filter { matchers, excluded })
    }

    /// Whether the patterns take a file of this name; whatever the name begins or ends with.
    pub(crate) fn takes(&self, path: &str, name: &OsStr) -> bool {
        self.matchers.is_empty()
            || self
                .matchers
                .iter()
                .any(|matcher| matcher.matches_raw(path, name))
    }
}

fn default_matchers(format: Format) -> Result<Vec<Matcher>> {
    let (endings, packed): (&[&str], &[&str]) = match format {
        Format::Json => (&["json", "jsonl", "ndjson"], &PACKED_ENDINGS),
        Format::Csv => (&["csv", "tsv"], &PACKED_ENDINGS),
        Format::Parquet => (&["parquet"], &[]),
        Format::Avro => (&["avro"], &PACKED_ENDINGS),
        Format::Auto => (&[], &[]),
    };
    let mut matchers = Vec::new();
    for ending in endings {
        matchers.push(matcher(&format!("*.{ending}"))?);
        for packing in packed {
            matchers.push(matcher(&format!("*.{ending}.{packing}"))?);
        }
    }
    Ok(matchers)
}

/// Walks the landing folder. Reads names and file status, opens no file.
///
/// Fails when the folder itself is missing or cannot be listed; what fails below it is in `unreadable`.
pub fn list(root: &Path, filter: &Filter) -> Result<Listing> {
    let canonical = std::fs::canonicalize(root).map_err(|error| unusable_root(root, &error))?;
    let mut walk = Walk {
        root: &canonical,
        filter,
        excluded: excluded_below(&canonical, &filter.excluded),
        folders: vec![OsString::new()],
        listing: Listing::default(),
    };
    while let Some(folder) = walk.folders.pop() {
        if let Err(error) = walk.list_folder(&folder) {
            if folder.is_empty() {
                return Err(unusable_root(root, &error));
            }
            walk.give_up(&folder, &error);
        }
    }
    let mut listing = walk.listing;
    listing
        .files
        .sort_unstable_by(|left, right| left.path.cmp(&right.path));
    listing.unreadable.sort();
    listing.ignored.sort();
    Ok(listing)
}

struct Walk<'a> {
    root: &'a Path,
    filter: &'a Filter,
    excluded: HashSet<OsString>,
    /// Relative paths of folders that are still to be listed.
    folders: Vec<OsString>,
    listing: Listing,
}

impl Walk<'_> {
    fn list_folder(&mut self, folder: &OsStr) -> std::io::Result<()> {
        let mut taken = Vec::new();
        for entry in std::fs::read_dir(self.root.join(folder))? {
            let entry = entry?;
            let name = entry.file_name();
            if is_never_taken(&name) {
                continue;
            }
            let path = join(folder, &name);
            if self.excluded.contains(&path) {
                continue;
            }
            match entry.file_type() {
                Err(error) => self.give_up(&path, &error),
                Ok(kind) if kind.is_dir() => self.folders.push(path),
                Ok(kind) if !kind.is_file() => self.ignore(&path, why_ignored(kind)),
                Ok(_) if self.filter.takes(&path.to_string_lossy(), &name) => {
                    taken.push((entry, path));
                }
                Ok(_) => {}
            }
        }
        for ((_, path), looked_at) in taken.iter().zip(look_at(&taken)) {
            match looked_at {
                Ok(file) => self.listing.files.extend(file),
                Err(error) => self.give_up(path, &error),
            }
        }
        Ok(())
    }

    fn ignore(&mut self, path: &OsStr, why: &'static str) {
        if self.listing.ignored.len() < IGNORED_MAX {
            self.listing.ignored.push((encode_name(path), why));
        }
    }

    /// What went away while the walk was on its way is gone; anything else is not known.
    fn give_up(&mut self, path: &OsStr, error: &std::io::Error) {
        if error.kind() != std::io::ErrorKind::NotFound {
            self.listing
                .unreadable
                .push((encode_name(path), error.to_string()));
        }
    }
}

/// Size and times of entries of a folder, in their order, asked on all cores where they are many; nothing of what is no file any
/// more.
fn look_at(entries: &[(DirEntry, OsString)]) -> Vec<std::io::Result<Option<LandingFile>>> {
    let looked_at = |(entry, path): &(DirEntry, OsString)| {
        let metadata = entry.metadata()?;
        Ok(metadata.is_file().then(|| landing_file(path, &metadata)))
    };
    map_in_parallel(entries, LOOKED_AT_MIN, looked_at)
}

fn landing_file(path: &OsStr, metadata: &Metadata) -> LandingFile {
    LandingFile {
        path: encode_name(path),
        size: metadata.len(),
        modified_at: micros(metadata.mtime(), metadata.mtime_nsec()),
        changed_at: micros(metadata.ctime(), metadata.ctime_nsec()),
    }
}

/// Seconds and nanoseconds of a file status as microseconds; what is finer is cut off.
pub(super) fn micros(seconds: i64, nanoseconds: i64) -> i64 {
    seconds
        .saturating_mul(1_000_000)
        .saturating_add(nanoseconds / 1_000)
}

fn why_ignored(kind: FileType) -> &'static str {
    if kind.is_symlink() {
        "symbolic link"
    } else if kind.is_fifo() {
        "named pipe"
    } else if kind.is_socket() {
        "socket"
    } else {
        "device"
    }
}

fn is_never_taken(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    matches!(bytes.first(), Some(b'.' | b'_'))
        || UNFINISHED
            .iter()
            .any(|ending| bytes.ends_with(ending.as_bytes()))
}

fn join(folder: &OsStr, name: &OsStr) -> OsString {
    let mut path = OsString::with_capacity(folder.len() + 1 + name.len());
    if !folder.is_empty() {
        path.push(folder);
        path.push("/");
    }
    path.push(name);
    path
}

/// The excluded paths that lie below the landing folder, relative to it.
fn excluded_below(root: &Path, excluded: &[PathBuf]) -> HashSet<OsString> {
    let mut below = HashSet::new();
    for path in excluded {
        let Ok(relative) = path.strip_prefix(root) else {
            continue;
        };
        if relative.as_os_str().is_empty() {
            continue;
        }
        for companion in COMPANIONS {
            let mut name = relative.as_os_str().to_owned();
            name.push(companion);
            below.insert(name);
        }
    }
    below
}

/// The path without links, as far as it exists.
fn resolve(path: &Path) -> PathBuf {
    for ancestor in path.ancestors() {
        if let Ok(canonical) = std::fs::canonicalize(ancestor) {
            let rest = path.strip_prefix(ancestor).unwrap_or(Path::new(""));
            return if rest.as_os_str().is_empty() {
                canonical
            } else {
                canonical.join(rest)
            };
        }
    }
    path.to_owned()
}

fn unusable_root(root: &Path, error: &std::io::Error) -> Error {
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            Error::unavailable(format!("landing folder {} is missing", root.display())).hint(
                "make the folder or mount it; a watching loader goes on by itself when it is there",
            )
        }
        std::io::ErrorKind::NotADirectory => {
            Error::unavailable(format!("landing folder {} is not a folder", root.display()))
                .hint("set `path` of the source to a folder")
        }
        _ => Error::unavailable(format!(
            "landing folder {} cannot be listed: {error}",
            root.display()
        ))
        .hint("check the permissions of the folder"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    use std::os::unix::fs::symlink;

    fn all() -> Filter {
        Filter::new(Format::Auto, None, &[]).unwrap()
    }

    fn put(root: &Path, path: impl AsRef<Path>) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "x").unwrap();
    }

    fn names(root: &Path, filter: &Filter) -> Vec<String> {
        list(root, filter)
            .unwrap()
            .files
            .into_iter()
            .map(|file| file.path)
            .collect()
    }

    #[test]
    fn missing_folder_is_an_error_and_not_an_empty_listing() {
        let folder = tempfile::tempdir().unwrap();
        let error = list(&folder.path().join("gone"), &all()).unwrap_err();
        assert_eq!(error.kind(), crate::error::ErrorKind::Unavailable);
        assert!(error.message().contains("gone is missing"), "{error}");
        put(folder.path(), "file");
        let error = list(&folder.path().join("file"), &all()).unwrap_err();
        assert!(error.message().contains("is not a folder"), "{error}");
    }

    #[test]
    fn links_and_pipes_are_named_and_never_followed_or_opened() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("landing");
        put(&root, "a.json");
        put(folder.path(), "outside/b.json");
        symlink(folder.path().join("outside"), root.join("folder")).unwrap();
        symlink(folder.path().join("outside/b.json"), root.join("b.json")).unwrap();
        symlink(&root, root.join("loop")).unwrap();
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(
            rustix::fs::CWD,
            root.join("pipe.json"),
            rustix::fs::FileType::Fifo,
            mode,
            0,
        )
        .unwrap();
        let listing = list(&root, &all()).unwrap();
        assert_eq!(listing.files.len(), 1);
        let ignored = [
            ("b.json".to_owned(), "symbolic link"),
            ("folder".to_owned(), "symbolic link"),
            ("loop".to_owned(), "symbolic link"),
            ("pipe.json".to_owned(), "named pipe"),
        ];
        assert_eq!(listing.ignored, ignored);
    }

    #[test]
    fn unfinished_and_hidden_names_are_not_taken_at_any_depth() {
        let folder = tempfile::tempdir().unwrap();
        for path in [
            ".orders-1.jsonl.part",
            "orders.jsonl.part",
            "orders.jsonl.tmp",
            "orders.crdownload",
            "_SUCCESS",
            "_delta_log/1.json",
            ".git/1.json",
            "upload.tmp/1.json",
            "day/.hidden.json",
            "day/taken.json",
        ] {
            put(folder.path(), path);
        }
        assert_eq!(names(folder.path(), &all()), ["day/taken.json"]);
        let star = Filter::new(Format::Json, Some("*"), &[]).unwrap();
        assert_eq!(names(folder.path(), &star), ["day/taken.json"]);
    }

    #[test]
    fn tables_and_checkpoint_below_the_folder_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        for path in [
            "bronze/part.parquet",
            "bronze2/a.parquet",
            "c.db",
            "c.db-wal",
            "c.db.lock",
            "done/a",
            "c.dbx",
        ] {
            put(folder.path(), path);
        }
        let excluded =
            ["bronze", "c.db", "done", "not-there-yet"].map(|name| folder.path().join(name));
        let filter = Filter::new(Format::Auto, None, &excluded).unwrap();
        assert_eq!(
            names(folder.path(), &filter),
            ["bronze2/a.parquet", "c.dbx"]
        );
    }

    #[test]
    fn pattern_counts_case_and_matches_name_or_path() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["a.jsonl", "A.JSONL", "in/a.jsonl", "in/deep/a.jsonl"] {
            put(folder.path(), path);
        }
        let with = |pattern: &str| {
            names(
                folder.path(),
                &Filter::new(Format::Auto, Some(pattern), &[]).unwrap(),
            )
        };
        assert_eq!(
            with("*.jsonl"),
            ["a.jsonl", "in/a.jsonl", "in/deep/a.jsonl"]
        );
        assert_eq!(with("in/*.jsonl"), ["in/a.jsonl"]);
        assert_eq!(with("in/**/*.jsonl"), ["in/a.jsonl", "in/deep/a.jsonl"]);
        assert!(Filter::new(Format::Auto, Some("[a"), &[]).is_err());
    }

    #[test]
    fn default_pattern_is_that_of_the_format() {
        let folder = tempfile::tempdir().unwrap();
        for path in [
            "a.json",
            "a.jsonl.gz",
            "a.ndjson.zst",
            "b.json.xz",
            "a.csv",
            "a.csv.bz2",
            "a.tsv.gz",
            "a.parquet",
            "a.txt",
        ] {
            put(folder.path(), path);
        }
        let with = |format| names(folder.path(), &Filter::new(format, None, &[]).unwrap());
        assert_eq!(
            with(Format::Json),
            ["a.json", "a.jsonl.gz", "a.ndjson.zst", "b.json.xz"]
        );
        assert_eq!(with(Format::Csv), ["a.csv", "a.csv.bz2", "a.tsv.gz"]);
        assert_eq!(with(Format::Parquet), ["a.parquet"]);
        assert_eq!(with(Format::Auto).len(), 9);
    }

    #[test]
    fn awkward_names_are_listed_in_a_form_that_leads_back() {
        let folder = tempfile::tempdir().unwrap();
        let raw: [&[u8]; 9] = [
            b"orders 01.jsonl",
            b"orders[2].jsonl",
            b"orders%2F3.jsonl",
            "orders-\u{e9}4.jsonl".as_bytes(),
            b"-5.jsonl",
            b"orders{7}.jsonl",
            b"bad\xff.jsonl",
            b"two\nlines.jsonl",
            b"back\\x41slash.jsonl",
        ];
        for name in raw {
            put(folder.path(), OsString::from_vec(name.to_vec()));
        }
        let listing = list(
            folder.path(),
            &Filter::new(Format::Json, None, &[]).unwrap(),
        )
        .unwrap();
        assert!(listing.files.iter().all(|file| !file.path.contains('\n')));
        let mut back: Vec<OsString> = listing
            .files
            .iter()
            .map(|file| crate::landing::decode_name(&file.path))
            .collect();
        let mut expected: Vec<OsString> = raw
            .iter()
            .map(|name| OsString::from_vec(name.to_vec()))
            .collect();
        back.sort();
        expected.sort();
        assert_eq!(back, expected);
    }

    #[test]
    fn listing_is_sorted_over_all_folders() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["b", "a/z", "a-b", "a.b", "a/b/c"] {
            put(folder.path(), path);
        }
        let listed = names(folder.path(), &all());
        assert!(listed.is_sorted());
        assert_eq!(listed, ["a-b", "a.b", "a/b/c", "a/z", "b"]);
    }

    #[test]
    #[ignore = "measures; run it with --nocapture"]
    fn two_hundred_thousand_files() {
        let folder = tempfile::tempdir().unwrap();
        for day in 0..200 {
            let day = folder.path().join(format!("{day:03}"));
            std::fs::create_dir(&day).unwrap();
            for index in 0..1_000 {
                std::fs::File::create(day.join(format!("{index:08}.jsonl"))).unwrap();
            }
        }
        let filter = Filter::new(Format::Json, None, &[]).unwrap();
        for _ in 0..3 {
            let started = std::time::Instant::now();
            assert_eq!(list(folder.path(), &filter).unwrap().files.len(), 200_000);
            println!("200000 files listed in {:?}", started.elapsed());
        }
    }
}
