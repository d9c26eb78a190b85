//! Moves or deletes source files, only after silver holds their rows. Never overwrites anything, and never touches bytes that
//! are not known to be the loaded ones.

use crate::checkpoint::FileRecord;
use crate::crash::{CrashPoint, CrashSwitch};
use crate::error::Result;
use crate::landing::{decode_name, hash_file};
use crate::protocol::Pipeline;
use crate::settings::{CleanSource, SourceSettings};
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a file whose clean-up failed is left alone.
const RETRY_PAUSE: Duration = Duration::from_secs(60);
/// How many names are tried beside a name that is taken in the archive.
const NAMES_MAX: u32 = 10_000;

/// What a clean-up did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CleanReport {
    /// Files moved or deleted.
    pub cleaned: u64,
    /// Files that stay, with the reason.
    pub failed: Vec<(String, String)>,
}

impl Pipeline {
    /// Cleans the source files of applied batches.
    ///
    /// If the process stops between the move and the note of it, the next call finds the file gone and notes it.
    pub fn clean_source(&mut self) -> Result<CleanReport> {
        let mut report = CleanReport::default();
        if self.settings.source.clean_source == CleanSource::Off {
            return Ok(report);
        }
        let now = self.clock.now();
        for file in self.checkpoint.to_clean(now)? {
            match clean_one(&self.settings.source, &file, &self.crash)? {
                Ok(()) => {
                    self.checkpoint.confirm_cleaned(&file.path)?;
                    report.cleaned += 1;
                }
                Err(detail) => {
                    let pause = i64::try_from(RETRY_PAUSE.as_micros()).unwrap_or(i64::MAX);
                    self.checkpoint
                        .clean_failed(&file.path, &detail, now.saturating_add(pause))?;
                    report.failed.push((file.path, detail));
                }
            }
        }
        Ok(report)
    }
}

/// The inner result is the failure of this one file.
fn clean_one(
    source: &SourceSettings,
    file: &FileRecord,
    crash: &CrashSwitch,
) -> Result<Result<(), String>> {
    let path = source.path.join(decode_name(&file.path));
    let done = match is_as_loaded(&source.path, &path, file) {
        Ok(false) => return Ok(Ok(())),
        Err(detail) => return Ok(Err(detail)),
        Ok(true) => match &source.clean_source {
            CleanSource::Off => return Ok(Ok(())),
            CleanSource::Delete => fs::remove_file(&path).and_then(|()| sync_folder_of(&path)),
            CleanSource::Move(folder) => archive(&path, &folder.join(decode_name(&file.path))),
        },
    };
    if let Err(error) = done {
        return Ok(Err(error.to_string()));
    }
    crash.reach(CrashPoint::AfterCleanSource)?;
    Ok(Ok(()))
}

/// Whether the file is there with the bytes that were loaded, which its size and time alone do not tell; `false` when it
/// is gone.
fn is_as_loaded(
    root: &Path,
    source: &Path,
    file: &FileRecord,
) -> std::result::Result<bool, String> {
    let Some(before) = status(source)? else {
        return Ok(false);
    };
    let Some(loaded) = &file.content_hash else {
        return Err("stays, since the hash of the loaded content is not known: \
                    a reset of the file loads it again"
            .into());
    };
    let is_same_status =
        before.is_file() && (before.len(), modified_at(&before)) == (file.size, file.modified_at);
    if is_same_status {
        let hash = hash_file(root, &file.path).map_err(|error| error.to_string())?;
        // Not another file that took the name while this one was read.
        let is_same_inode = status(source)?.is_some_and(|after| inode(&after) == inode(&before));
        if is_same_inode && hash.as_ref() == Some(loaded) {
            return Ok(true);
        }
    }
    Err("the file is not the one that was loaded".into())
}

fn modified_at(status: &Metadata) -> i64 {
    status.mtime() * 1_000_000 + status.mtime_nsec() / 1_000
}

/// Which file it is, and when anything of it changed.
fn inode(status: &Metadata) -> (u64, u64, i64, i64) {
    let changed_at = (status.ctime(), status.ctime_nsec());
    (status.dev(), status.ino(), changed_at.0, changed_at.1)
}

fn status(path: &Path) -> std::result::Result<Option<Metadata>, String> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// When it returns, the file is durable under its new name, and gone from the old one.
fn archive(source: &Path, target: &Path) -> io::Result<()> {
    make_folder(target.parent().unwrap_or(Path::new(".")))?;
    match move_to_free_name(source, target) {
        Err(error) if error.raw_os_error() == Some(libc::EXDEV) => archive_copy(source, target),
        done => done.and_then(|()| sync_folder_of(source)),
    }
}

/// On another file system: whole and durable under its name before the source goes.
fn archive_copy(source: &Path, target: &Path) -> io::Result<()> {
    let copy = copy_name(source, target);
    let copied = copy_synced(source, &copy).and_then(|()| move_to_free_name(&copy, target));
    if let Err(error) = copied {
        let _ = fs::remove_file(copy);
        return Err(error);
    }
    fs::remove_file(source)?;
    sync_folder_of(source)
}

/// Makes a folder and what is above it, durably.
fn make_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(above) = folder.parent() {
        make_folder(above)?;
    }
    match fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        made => made.and_then(|()| sync_folder_of(folder)),
    }
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    fs::File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Renames to the target, or to the first numbered name beside it that is free, durably.
fn move_to_free_name(source: &Path, target: &Path) -> io::Result<()> {
    for number in 0..NAMES_MAX {
        match rename_new(source, &numbered(target, number)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            done => return done.and_then(|()| sync_folder_of(target)),
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AlreadyExists,
        format!("{NAMES_MAX} files of this name are in the archive"),
    ))
}

/// A hidden name of fixed length, always the same for the same source: what a stop leaves under it is replaced by the next
/// try.
fn copy_name(source: &Path, target: &Path) -> PathBuf {
    let hash = blake3::hash(source.as_os_str().as_bytes()).to_hex();
    target.with_file_name(format!(".landfall-{}.part", &hash[..16]))
}

/// `name.jsonl`, `name.jsonl.1`, ...
fn numbered(target: &Path, number: u32) -> PathBuf {
    if number == 0 {
        return target.to_path_buf();
    }
    let mut name = target.file_name().unwrap_or(OsStr::new("")).to_os_string();
    name.push(OsString::from(format!(".{number}")));
    target.with_file_name(name)
}

/// Renames, and fails where the target exists.
fn rename_new(source: &Path, target: &Path) -> io::Result<()> {
    let (from, to) = (
        CString::new(source.as_os_str().as_bytes())?,
        CString::new(target.as_os_str().as_bytes())?,
    );
    // SAFETY: both are NUL-terminated and live until the call returns.
    let done = unsafe {
        libc::renameat2(
            libc::AT_FDCWD,
            from.as_ptr(),
            libc::AT_FDCWD,
            to.as_ptr(),
            libc::RENAME_NOREPLACE,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn copy_synced(source: &Path, target: &Path) -> io::Result<()> {
    match fs::remove_file(target) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut from = fs::File::open(source)?;
    let status = from.metadata()?;
    let mut to = fs::File::create_new(target)?;
    if io::copy(&mut from, &mut to)? != status.len() {
        return Err(io::Error::other("the file changed while it was copied"));
    }
    to.set_permissions(status.permissions())?;
    to.set_modified(status.modified()?)?;
    to.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_takes_the_next_free_name_and_a_leftover_does_not_block_it() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("a.jsonl");
        let target = folder.path().join("archive/eu/a.jsonl");
        make_folder(target.parent().unwrap()).unwrap();
        for number in 0..3 {
            let text = format!("file {number}");
            fs::write(&source, &text).unwrap();
            let modified = fs::metadata(&source).unwrap().modified().unwrap();
            // What a kill in the middle of the copy leaves, written by whomever.
            let leftover = copy_name(&source, &target);
            fs::write(&leftover, "half of a longer file").unwrap();
            let mut permissions = fs::metadata(&leftover).unwrap().permissions();
            permissions.set_readonly(true);
            fs::set_permissions(&leftover, permissions).unwrap();
            archive_copy(&source, &target).unwrap();
            assert!(!source.exists());
            let archived = numbered(&target, number);
            assert_eq!(fs::read_to_string(&archived).unwrap(), text);
            let kept = fs::metadata(&archived).unwrap();
            assert_eq!(kept.modified().unwrap(), modified);
            assert!(!kept.permissions().readonly());
        }
        assert_eq!(fs::read_dir(target.parent().unwrap()).unwrap().count(), 3);
    }

    #[test]
    fn copy_that_fails_leaves_the_source_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("a.jsonl");
        fs::write(&source, "1").unwrap();
        let target = folder.path().join("no such folder/a.jsonl");
        assert!(archive_copy(&source, &target).is_err());
        assert!(source.exists());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
