//! The one-loader lock: a lock on the file beside the checkpoint, which the system drops when its owner ends.
//!
//! The file says who took it; only the lock itself says whether it is held. The file stays when the lock goes, so that
//! two loaders can never lock two files of one name.

use super::open::beside;
use crate::clock::Micros;
use crate::error::{Error, ErrorKind, Result};
use chrono::{DateTime, SecondsFormat, Utc};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Who holds a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Process id; `None` when the lock file does not say.
    pub pid: Option<u32>,
    /// ISO 8601, UTC; empty when the lock file does not say.
    pub since: String,
}

/// How often a held lock is tried before it counts as held, so that a passing look of [`holder`] is no refusal.
const TRIES: u32 = 5;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);
/// More than a process id and a time never stand in the file.
const CONTENT_MAX: u64 = 200;

/// Who holds the checkpoint now; `None` when nobody does.
pub fn holder(checkpoint: &Path) -> Result<Option<Holder>> {
    let path = lock_path(checkpoint);
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(&path, &error)),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => Ok(Some(read_holder(&mut file))),
        Err(TryLockError::Error(error)) => Err(unusable(&path, &error)),
    }
}

/// The lock; dropping it, or the end of the process, gives it back.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock of `checkpoint`, or says who has it.
    pub(super) fn take(checkpoint: &Path, now: Micros) -> Result<Lock> {
        Lock::take_at("checkpoint", checkpoint, &lock_path(checkpoint), now)
    }

    /// Takes the lock of a table, or says who has it: a copy of a checkpoint must not write the same table. The file is
    /// hidden beside the table's folder, whose parent exists.
    pub fn take_of_table(table: &Path, now: Micros) -> Result<Lock> {
        let mut name = std::ffi::OsString::from(".");
        name.push(table.file_name().unwrap_or_default());
        name.push(".lock");
        Lock::take_at("table", table, &table.with_file_name(name), now)
    }

    fn take_at(what: &str, object: &Path, path: &Path, now: Micros) -> Result<Lock> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(|error| unusable(path, &error))?;
        let mut tries = 1;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if tries < TRIES => {
                    tries += 1;
                    std::thread::sleep(BETWEEN_TRIES);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(held(what, object, &read_holder(&mut file)));
                }
                Err(TryLockError::Error(error)) => return Err(unusable(path, &error)),
            }
        }
        let content = format!("{} {}\n", std::process::id(), iso(now));
        file.set_len(0)
            .and_then(|()| file.write_all(content.as_bytes()))
            .map_err(|error| unusable(path, &error))?;
        Ok(Lock { _file: file })
    }
}

/// ISO 8601 with seconds, UTC.
pub(super) fn iso(at: Micros) -> String {
    match DateTime::<Utc>::from_timestamp_micros(at) {
        Some(time) => time.to_rfc3339_opts(SecondsFormat::Secs, true),
        None => format!("{at} microseconds"),
    }
}

fn lock_path(checkpoint: &Path) -> PathBuf {
    beside(checkpoint, ".lock")
}

fn read_holder(file: &mut File) -> Holder {
    let mut text = String::new();
    // A lock file that cannot be read still is held; only its owner stays unknown.
    if file.take(CONTENT_MAX).read_to_string(&mut text).is_err() {
        text.clear();
    }
    let mut words = text.split_whitespace();
    let pid = words.next().and_then(|word| word.parse().ok());
    Holder {
        pid,
        since: words.next().unwrap_or_default().to_owned(),
    }
}

fn held(what: &str, object: &Path, holder: &Holder) -> Error {
    let pid = holder
        .pid
        .map_or("unknown".to_owned(), |pid| pid.to_string());
    let since = if holder.since.is_empty() {
        "an unknown time"
    } else {
        &holder.since
    };
    Error::new(
        ErrorKind::Held,
        format!(
            "{what} {} is held by another landfall, process {pid} since {since}",
            object.display()
        ),
    )
    .hint("stop that process, or wait until it ends; the lock goes with it")
}

fn unusable(path: &Path, error: &std::io::Error) -> Error {
    Error::unavailable(format!(
        "lock file {} is not usable: {error}",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_owner_is_refused_and_told_who_and_since_when() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = folder.path().join("a.db");
        let first = Lock::take(&checkpoint, 1_700_000_000_000_000).unwrap();
        let error = Lock::take(&checkpoint, 1_800_000_000_000_000).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Held);
        assert_eq!(error.exit_code(), 4);
        let pid = std::process::id();
        assert!(
            error
                .message()
                .contains(&format!("process {pid} since 2023-11-14T22:13:20Z")),
            "{error}"
        );
        let holder_now = holder(&checkpoint).unwrap().unwrap();
        assert_eq!(
            holder_now,
            Holder {
                pid: Some(pid),
                since: "2023-11-14T22:13:20Z".into()
            }
        );
        drop(first);
        assert_eq!(holder(&checkpoint).unwrap(), None);
        Lock::take(&checkpoint, 1_800_000_000_000_000).unwrap();
    }

    #[test]
    fn lock_file_that_a_dead_owner_left_does_not_hold() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = folder.path().join("a.db");
        std::fs::write(
            lock_path(&checkpoint),
            "4242 2020-01-01T00:00:00Z and a longer text than ours",
        )
        .unwrap();
        assert_eq!(holder(&checkpoint).unwrap(), None);
        let _lock = Lock::take(&checkpoint, 0).unwrap();
        let holder = holder(&checkpoint).unwrap().unwrap();
        assert_eq!(holder.since, "1970-01-01T00:00:00Z");
    }

    #[test]
    fn lock_of_another_process_holds_until_that_process_dies() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoint = folder.path().join("a.db");
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "checkpoint::lock::tests::owner_in_another_process",
                "--ignored",
            ])
            .env(HOLD, &checkpoint)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while holder(&checkpoint)
            .unwrap()
            .is_none_or(|holder| holder.pid.is_none())
        {
            assert!(
                std::time::Instant::now() < until,
                "the other process never took the lock"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        let error = Lock::take(&checkpoint, 0).unwrap_err();
        assert!(
            error
                .message()
                .contains(&format!("process {} since 1970", child.id())),
            "{error}"
        );
        child.kill().unwrap();
        child.wait().unwrap();
        Lock::take(&checkpoint, 0).unwrap();
    }

    const HOLD: &str = "LANDFALL_TEST_HOLD";

    #[test]
    #[ignore = "the other process of the test above"]
    fn owner_in_another_process() {
        let Some(checkpoint) = std::env::var_os(HOLD) else {
            return;
        };
        let _lock = Lock::take(Path::new(&checkpoint), 0).unwrap();
        let _ = std::io::stdin().read(&mut [0]);
    }
}
