//! Moves or deletes source files, only after silver holds their rows. Never overwrites anything.

use crate::checkpoint::FileRecord;
use crate::crash::{CrashPoint, CrashSwitch};
use crate::error::Result;
use crate::landing::decode_name;
use crate::protocol::Pipeline;
use crate::settings::CleanSource;
use std::ffi::{CString, OsStr, OsString};
use std::fs;
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
        let clean = self.settings.source.clean_source.clone();
        if clean == CleanSource::Off {
            return Ok(report);
        }
        let now = self.clock.now();
        for file in self.checkpoint.to_clean(now)? {
            let source = self.settings.source.path.join(decode_name(&file.path));
            match clean_one(&source, &file, &clean, &self.crash)? {
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
    source: &Path,
    file: &FileRecord,
    clean: &CleanSource,
    crash: &CrashSwitch,
) -> Result<Result<(), String>> {
    match is_as_loaded(source, file) {
        Ok(true) => {}
        Ok(false) => return Ok(Ok(())),
        Err(detail) => return Ok(Err(detail)),
    }
    let done = match clean {
        CleanSource::Off => return Ok(Ok(())),
        CleanSource::Delete => fs::remove_file(source),
        CleanSource::Move(folder) => archive(source, &folder.join(decode_name(&file.path))),
    };
    if let Err(error) = done {
        return Ok(Err(error.to_string()));
    }
    crash.reach(CrashPoint::AfterCleanSource)?;
    Ok(Ok(()))
}

/// Whether the file is there with the bytes that were loaded; `false` when it is gone.
fn is_as_loaded(source: &Path, file: &FileRecord) -> std::result::Result<bool, String> {
    let metadata = match fs::symlink_metadata(source) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error.to_string()),
    };
    let modified_at = metadata.mtime() * 1_000_000 + metadata.mtime_nsec() / 1_000;
    if !metadata.is_file() || metadata.len() != file.size || modified_at != file.modified_at {
        return Err("the file is not the one that was loaded".into());
    }
    Ok(true)
}

fn archive(source: &Path, target: &Path) -> io::Result<()> {
    let folder = target.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    match move_to_free_name(source, target) {
        Err(error) if error.raw_os_error() == Some(libc::EXDEV) => {}
        done => return done,
    }
    // On another file system: whole and synced under the name before the source goes.
    let copy = copy_name(target);
    let copied = copy_synced(source, &copy).and_then(|()| move_to_free_name(&copy, target));
    if let Err(error) = copied {
        let _ = fs::remove_file(copy);
        return Err(error);
    }
    fs::File::open(folder)?.sync_all()?;
    fs::remove_file(source)
}

/// Renames to the target, or to the first numbered name beside it that is free.
fn move_to_free_name(source: &Path, target: &Path) -> io::Result<()> {
    for number in 0..NAMES_MAX {
        match rename_new(source, &numbered(target, number)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            done => return done,
        }
    }
    Err(io::Error::new(
        io::ErrorKind::AlreadyExists,
        format!("{NAMES_MAX} files of this name are in the archive"),
    ))
}

/// `.name.jsonl.part`: what a stop leaves under it is overwritten by the next try.
fn copy_name(target: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(target.file_name().unwrap_or(OsStr::new("")));
    name.push(".part");
    target.with_file_name(name)
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
    let mut from = fs::File::open(source)?;
    let mut to = fs::File::create(target)?;
    io::copy(&mut from, &mut to)?;
    to.sync_all()
}
