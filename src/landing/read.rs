//! Reads one landing file whole, or says why it is not the file that was planned.
//!
//! A file counts as read only when it had the planned size and time before and after, so a batch never holds half of an
//! upload. Every part of the path is opened without following links, so nothing outside the landing folder is read.

use super::decode_name;
use super::list::micros;
use crate::batch::PlannedFile;
use crate::change::{FileFault, ParkReason};
use crate::error::{Error, Result};
use bytes::Bytes;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path};
use std::sync::Once;

/// All bytes of a file that was the planned one before and after reading.
#[derive(Clone, Debug)]
pub struct ReadFile {
    /// The content.
    pub bytes: Bytes,
    /// blake3 of the content, hex.
    pub hash: String,
}

/// Why a planned file was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadFault {
    /// Nothing is at its path.
    Vanished,
    /// Another size, time or kind than planned, or it changed while it was read.
    Changed,
    /// It cannot be opened or read now.
    Unreadable(FileFault),
}

const HASH_BLOCK: usize = 1 << 20;

/// Reads a planned file whole.
pub fn read(root: &Path, planned: &PlannedFile) -> Result<ReadFile, ReadFault> {
    let mut file = open(root, &planned.path)?;
    let before = Stamp::of(&file)?;
    if (before.size, before.modified_at) != (planned.size, planned.modified_at) {
        return Err(ReadFault::Changed);
    }
    let mut bytes = Vec::new();
    let capacity = usize::try_from(before.size).unwrap_or(usize::MAX);
    bytes.try_reserve_exact(capacity).map_err(|error| {
        unreadable(format!(
            "{} bytes do not fit into memory: {error}",
            before.size
        ))
    })?;
    // That the file grew shows in its size.
    (&mut file)
        .take(before.size)
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(error.to_string()))?;
    if bytes.len() != capacity || Stamp::of(&file)? != before {
        return Err(ReadFault::Changed);
    }
    let hash = blake3::hash(&bytes).to_hex().to_string();
    Ok(ReadFile {
        bytes: Bytes::from(bytes),
        hash,
    })
}

/// A planned file while it is read piece by piece; what it hands out counts only when [`PlannedStream::finish`] says so.
#[derive(Debug)]
pub struct PlannedStream {
    file: File,
    before: Stamp,
    hasher: blake3::Hasher,
    length: u64,
}

/// Opens a planned file to be read piece by piece.
pub fn open_planned(root: &Path, planned: &PlannedFile) -> Result<PlannedStream, ReadFault> {
    let file = open(root, &planned.path)?;
    let before = Stamp::of(&file)?;
    if (before.size, before.modified_at) != (planned.size, planned.modified_at) {
        return Err(ReadFault::Changed);
    }
    Ok(PlannedStream {
        file,
        before,
        hasher: blake3::Hasher::new(),
        length: 0,
    })
}

/// So many bytes are in the cache of a core when they are hashed.
const READ_BYTES_MAX: usize = 256 << 10;

impl Read for PlannedStream {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        // One byte more than expected shows that the file grew, without reading all that is appended.
        let room = self.before.size.saturating_add(1) - self.length;
        let room = usize::try_from(room)
            .unwrap_or(usize::MAX)
            .min(buffer.len())
            .min(READ_BYTES_MAX);
        let count = self.file.read(&mut buffer[..room])?;
        self.hasher.update(&buffer[..count]);
        self.length += count as u64;
        Ok(count)
    }
}

impl PlannedStream {
    /// The same open file, to be read by places; what is read so is handed out by the stream, too, when it comes there.
    pub fn file(&self) -> std::io::Result<File> {
        self.file.try_clone()
    }

    /// Reads what is left, and returns the content hash if the file was the planned one all the time.
    pub fn finish(mut self) -> Result<String, ReadFault> {
        let mut rest = vec![0; READ_BYTES_MAX];
        loop {
            match self.read(&mut rest) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(unreadable(error.to_string())),
            }
        }
        if self.length != self.before.size || Stamp::of(&self.file)? != self.before {
            return Err(ReadFault::Changed);
        }
        Ok(self.hasher.finalize().to_hex().to_string())
    }
}

/// Opens a landing file for reading; it must be a regular file.
pub fn open_file(root: &Path, path: &str) -> Result<File, ReadFault> {
    let file = open(root, path)?;
    Stamp::of(&file)?;
    Ok(file)
}

/// The content hash of a file; `None` when no regular file is at the path or it changes while it is read.
pub fn hash_file(root: &Path, path: &str) -> Result<Option<String>> {
    match hash_whole(root, path) {
        Ok(hash) => Ok(Some(hash)),
        Err(ReadFault::Vanished | ReadFault::Changed) => Ok(None),
        Err(ReadFault::Unreadable(fault)) => Err(Error::unavailable(format!(
            "landing file {path} cannot be read: {}",
            fault.detail
        ))),
    }
}

fn hash_whole(root: &Path, path: &str) -> Result<String, ReadFault> {
    let mut file = open(root, path)?;
    let before = Stamp::of(&file)?;
    let mut hasher = blake3::Hasher::new();
    let mut block = vec![0; HASH_BLOCK];
    let mut length: u64 = 0;
    loop {
        let count = match file.read(&mut block) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(unreadable(error.to_string())),
        };
        hasher.update(&block[..count]);
        length = length.saturating_add(count as u64);
        if length > before.size {
            return Err(ReadFault::Changed);
        }
    }
    if length != before.size || Stamp::of(&file)? != before {
        return Err(ReadFault::Changed);
    }
    Ok(hasher.finalize().to_hex().to_string())
}

/// Whether the system knows that no process has the file open for writing; `false` where it cannot tell.
///
/// A read lease is granted only then. It is given back at once; a writer that comes in between is told by SIGIO, which
/// would end a process that does not ignore it.
pub fn nobody_writes(root: &Path, path: &str) -> bool {
    static IGNORE_SIGIO: Once = Once::new();
    // SAFETY: ignoring a signal that nothing here waits for changes no other state.
    IGNORE_SIGIO.call_once(|| unsafe {
        libc::signal(libc::SIGIO, libc::SIG_IGN);
    });
    let Ok(file) = open(root, path) else {
        return false;
    };
    // SAFETY: the descriptor is open until the end of this function.
    let leased = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) } == 0;
    if leased {
        // SAFETY: as above.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
    }
    leased
}

/// What must not change while a file is read.
#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    size: u64,
    modified_at: i64,
    modified_nanoseconds: i64,
    changed: (i64, i64),
}

impl Stamp {
    fn of(file: &File) -> Result<Stamp, ReadFault> {
        let metadata: Metadata = file
            .metadata()
            .map_err(|error| unreadable(error.to_string()))?;
        if !metadata.is_file() {
            return Err(ReadFault::Changed);
        }
        Ok(Stamp {
            size: metadata.len(),
            modified_at: micros(metadata.mtime(), metadata.mtime_nsec()),
            modified_nanoseconds: metadata.mtime_nsec(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

/// Opens the file part by part below the landing folder, which may itself be reached by a link.
fn open(root: &Path, path: &str) -> Result<File, ReadFault> {
    let name = decode_name(path);
    let mut parts = Vec::new();
    for component in Path::new(&name).components() {
        match component {
            Component::Normal(part) => parts.push(part),
            _ => {
                return Err(unreadable(
                    "the path leads out of the landing folder".to_owned(),
                ));
            }
        }
    }
    let Some((file, folders)) = parts.split_last() else {
        return Err(unreadable("the path is empty".to_owned()));
    };
    // Without waiting, so that a pipe in the place of the file cannot hold the loader.
    let as_file =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    if folders.is_empty() {
        let opened = openat(CWD, root.join(file), as_file, Mode::empty());
        return opened.map(File::from).map_err(file_fault);
    }
    let as_folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut folder = openat(CWD, root, as_folder, Mode::empty()).map_err(folder_fault)?;
    for part in folders {
        folder = openat(
            folder.as_fd(),
            *part,
            as_folder | OFlags::NOFOLLOW,
            Mode::empty(),
        )
        .map_err(folder_fault)?;
    }
    let opened = openat(folder.as_fd(), *file, as_file, Mode::empty());
    opened.map(File::from).map_err(file_fault)
}

fn folder_fault(error: Errno) -> ReadFault {
    match error {
        Errno::NOENT => ReadFault::Vanished,
        Errno::NOTDIR | Errno::LOOP => {
            unreadable("a folder of its path is a link or no folder any more".to_owned())
        }
        other => unreadable(std::io::Error::from(other).to_string()),
    }
}

fn file_fault(error: Errno) -> ReadFault {
    match error {
        Errno::NOENT => ReadFault::Vanished,
        Errno::LOOP | Errno::NXIO => ReadFault::Changed,
        other => unreadable(std::io::Error::from(other).to_string()),
    }
}

fn unreadable(detail: String) -> ReadFault {
    ReadFault::Unreadable(FileFault::new(ParkReason::Unreadable, detail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::landing::{Filter, list};
    use crate::settings::Format;
    use std::os::unix::fs::symlink;

    fn planned(root: &Path, path: &str) -> PlannedFile {
        let listing = list(root, &Filter::new(Format::Auto, None, &[]).unwrap()).unwrap();
        let file = listing
            .files
            .into_iter()
            .find(|file| file.path == path)
            .unwrap();
        PlannedFile {
            path: file.path,
            size: file.size,
            modified_at: file.modified_at,
            replaces: false,
        }
    }

    #[test]
    fn file_deleted_after_it_was_listed_has_vanished() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.json"), "1").unwrap();
        let plan = planned(folder.path(), "a.json");
        std::fs::remove_file(folder.path().join("a.json")).unwrap();
        assert_eq!(read(folder.path(), &plan).unwrap_err(), ReadFault::Vanished);
        assert_eq!(hash_file(folder.path(), "a.json").unwrap(), None);
        assert_eq!(hash_file(folder.path(), "no/such/a.json").unwrap(), None);
    }

    #[test]
    fn open_writer_is_seen_until_it_closes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        let writer = std::fs::File::create(&path).unwrap();
        assert!(!nobody_writes(folder.path(), "a.json"));
        drop(writer);
        assert!(nobody_writes(folder.path(), "a.json"));
        let reader = std::fs::File::open(&path).unwrap();
        assert!(nobody_writes(folder.path(), "a.json"));
        drop(reader);
        assert!(!nobody_writes(folder.path(), "no-such.json"));
    }

    #[test]
    fn file_of_another_size_or_time_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.json"), "1").unwrap();
        let plan = planned(folder.path(), "a.json");
        let longer = PlannedFile {
            size: 2,
            ..plan.clone()
        };
        assert_eq!(
            read(folder.path(), &longer).unwrap_err(),
            ReadFault::Changed
        );
        let older = PlannedFile {
            modified_at: plan.modified_at - 1,
            ..plan
        };
        assert_eq!(read(folder.path(), &older).unwrap_err(), ReadFault::Changed);
    }

    #[test]
    fn link_or_pipe_in_the_place_of_the_file_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret");
        std::fs::write(&secret, "1").unwrap();
        let root = folder.path().join("landing");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(root.join("a.json"), "1").unwrap();
        let plan = planned(&root, "a.json");
        std::fs::remove_file(root.join("a.json")).unwrap();
        symlink(&secret, root.join("a.json")).unwrap();
        assert_eq!(read(&root, &plan).unwrap_err(), ReadFault::Changed);
        std::fs::remove_file(root.join("a.json")).unwrap();
        rustix::fs::mknodat(
            CWD,
            root.join("a.json"),
            rustix::fs::FileType::Fifo,
            Mode::RWXU,
            0,
        )
        .unwrap();
        assert_eq!(read(&root, &plan).unwrap_err(), ReadFault::Changed);
    }

    #[test]
    fn folder_replaced_by_a_link_leads_nowhere() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("landing");
        std::fs::create_dir_all(root.join("day")).unwrap();
        std::fs::write(root.join("day/a.json"), "1").unwrap();
        let plan = planned(&root, "day/a.json");
        std::fs::rename(root.join("day"), folder.path().join("outside")).unwrap();
        symlink(folder.path().join("outside"), root.join("day")).unwrap();
        assert!(matches!(
            read(&root, &plan).unwrap_err(),
            ReadFault::Unreadable(_)
        ));
        for path in ["../outside/a.json", "/etc/hostname", "", "."] {
            let plan = PlannedFile {
                path: path.into(),
                ..plan.clone()
            };
            assert!(
                matches!(read(&root, &plan).unwrap_err(), ReadFault::Unreadable(_)),
                "{path}"
            );
        }
    }

    #[test]
    fn whole_content_and_its_hash_are_returned() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("day")).unwrap();
        let content = vec![7; HASH_BLOCK + 1];
        std::fs::write(folder.path().join("day/a.json"), &content).unwrap();
        let read_file = read(folder.path(), &planned(folder.path(), "day/a.json")).unwrap();
        assert_eq!(read_file.bytes, content);
        assert_eq!(read_file.hash, blake3::hash(&content).to_hex().to_string());
        assert_eq!(
            hash_file(folder.path(), "day/a.json").unwrap(),
            Some(read_file.hash)
        );
    }
}
