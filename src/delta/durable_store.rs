//! The local file system as an object store whose writes survive a power cut.
//!
//! The store that is wrapped never syncs. Here a log entry appears under its name only when its bytes are on disk, and with
//! them all that was written before it: bytes, folder entries and the entries of new folders above. What no log entry names
//! yet waits for that, so that all of it goes to the disk at once; large uploads do not wait. Names that are known to be
//! damaged can be hidden from readers. What is written in which order is left to the callers.

use crate::parallel::lock;
use async_trait::async_trait;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, RenameOptions,
    Result, UploadPart,
};
use std::collections::{BTreeSet, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::panic::resume_unwind;
use std::path::{Path as FilePath, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::ScopedJoinHandle;

/// The wrapper; `/` is the root of the file system.
#[derive(Clone, Debug)]
pub(super) struct DurableStore {
    inner: Arc<LocalFileSystem>,
    folders: Arc<SyncedFolders>,
    hidden: Arc<Mutex<HashSet<PathBuf>>>,
    /// Files in their places, of which no log entry is written yet and the disk may have nothing.
    unsynced: Arc<Mutex<Vec<Unsynced>>>,
}

/// A file that the disk may not have.
#[derive(Debug)]
struct Unsynced {
    path: PathBuf,
    /// As it was written: only this tells for sure that bytes did not reach the disk.
    file: File,
}

/// Where the log of a table stands.
const LOG_FOLDER: &str = "_delta_log";
/// So many files are synced at once at most.
const SYNCED_AT_ONCE_MAX: usize = 16;
/// A large file is synced when the disk may lack so many bytes of it.
const SYNCED_BYTES: u64 = 32 << 20;
/// So many files wait for a log entry at most: each is open.
const UNSYNCED_MAX: usize = 200;

impl DurableStore {
    /// A store for the table at `root`.
    pub(super) fn new(root: &FilePath) -> Self {
        DurableStore {
            inner: Arc::new(LocalFileSystem::new()),
            folders: Arc::new(SyncedFolders {
                root: root.to_path_buf(),
                known: Mutex::default(),
            }),
            hidden: Arc::default(),
            unsynced: Arc::default(),
        }
    }

    /// Hides exactly these files from reads and listings; a write shows a file again.
    pub(super) fn hide(&self, files: impl IntoIterator<Item = PathBuf>) {
        *self.lock_hidden() = files.into_iter().collect();
    }

    /// The files that are hidden now.
    pub(super) fn hidden(&self) -> Vec<PathBuf> {
        self.lock_hidden().iter().cloned().collect()
    }

    fn lock_hidden(&self) -> MutexGuard<'_, HashSet<PathBuf>> {
        lock(&self.hidden)
    }

    fn is_hidden(&self, location: &Path) -> bool {
        let hidden = self.lock_hidden();
        if hidden.is_empty() {
            return false;
        }
        self.inner
            .path_to_filesystem(location)
            .is_ok_and(|path| hidden.contains(&path))
    }

    async fn sync(&self, location: &Path) -> Result<()> {
        let path = self.inner.path_to_filesystem(location)?;
        self.lock_hidden().remove(&path);
        let folders = Arc::clone(&self.folders);
        blocking(move || {
            File::open(&path)
                .and_then(|file| file.sync_all())
                .and_then(|()| folders.sync(&path))
                .map_err(|error| store_error(&path, error))
        })
        .await
    }
}

/// Syncs a folder each time, the folders above it once.
#[derive(Debug)]
struct SyncedFolders {
    root: PathBuf,
    known: Mutex<HashSet<PathBuf>>,
}

impl SyncedFolders {
    /// Makes the entry of a file durable.
    fn sync(&self, file: &FilePath) -> io::Result<()> {
        file.parent().map_or(Ok(()), |folder| self.sync_all(folder))
    }

    /// Makes the entries of a folder durable.
    fn sync_all(&self, folder: &FilePath) -> io::Result<()> {
        sync_folder(folder)?;
        let mut known = lock(&self.known);
        let mut below = folder;
        // The entry of a folder stands in the folder above it, up to the one that holds the table.
        while below.starts_with(&self.root) && !known.contains(below) {
            let Some(above) = below.parent() else { break };
            sync_folder(above)?;
            known.insert(below.to_path_buf());
            below = above;
        }
        Ok(())
    }
}

/// Makes the entries of a folder durable.
pub(super) fn sync_folder(folder: &FilePath) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Creates a folder and all above it, durably.
pub(super) fn create_folders(folder: &FilePath) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(above) = folder.parent() {
        create_folders(above)?;
    }
    match std::fs::create_dir(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    match folder.parent() {
        Some(above) => sync_folder(above),
        None => Ok(()),
    }
}

fn store_error(path: &FilePath, error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::AlreadyExists => Error::AlreadyExists {
            path: path.display().to_string(),
            source: error.into(),
        },
        ErrorKind::NotFound => Error::NotFound {
            path: path.display().to_string(),
            source: error.into(),
        },
        _ => Error::Generic {
            store: "local disk",
            source: format!("{}: {error}", path.display()).into(),
        },
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime.spawn_blocking(work).await?,
        Err(_) => work(),
    }
}

/// A new file beside `path` whose name (`<name>#<n>`) no listing shows.
fn stage(path: &FilePath) -> io::Result<(File, PathBuf)> {
    if let Some(folder) = path.parent() {
        create_folders(folder)?;
    }
    let mut number = 1u64;
    loop {
        let mut name = path.as_os_str().to_os_string();
        name.push(format!("#{number}"));
        let staged = PathBuf::from(name);
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&staged)
        {
            Ok(file) => return Ok((file, staged)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Writes the bytes under another name, does what is to be done `before` they have theirs, and gives it in one step.
fn put(
    path: &FilePath,
    payload: &PutPayload,
    create: bool,
    before: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<File> {
    let (mut file, staged) = stage(path)?;
    let placed = payload
        .iter()
        .try_for_each(|bytes| file.write_all(bytes))
        .and_then(|()| before(&file))
        .and_then(|()| match create {
            // A hard link is the one local call that fails if the name is taken.
            true => std::fs::hard_link(&staged, path),
            false => std::fs::rename(&staged, path),
        });
    if create || placed.is_err() {
        // A leftover is invisible, and vacuum takes it.
        let _ = std::fs::remove_file(&staged);
    }
    placed.map(|()| file)
}

/// Makes an open file durable, and other files with their entries; the disk is asked for all of it at once.
fn sync_together(file: &File, others: &[Unsynced], folders: &SyncedFolders) -> io::Result<()> {
    let above: BTreeSet<&FilePath> = others
        .iter()
        .filter_map(|other| other.path.parent())
        .collect();
    std::thread::scope(|scope| {
        let folders = above.into_iter().map(|folder| {
            let sync = move || folders.sync_all(folder);
            scope.spawn(sync)
        });
        let mut waiting: Vec<_> = folders.collect();
        let mut synced = Ok(());
        for other in others {
            if waiting.len() >= SYNCED_AT_ONCE_MAX {
                waiting
                    .drain(..)
                    .for_each(|thread| settle(thread, &mut synced));
            }
            waiting.push(scope.spawn(|| other.file.sync_all()));
        }
        let own = file.sync_all();
        waiting
            .into_iter()
            .for_each(|thread| settle(thread, &mut synced));
        own.and(synced)
    })
}

/// Waits for a thread, and keeps the first error.
fn settle(thread: ScopedJoinHandle<'_, io::Result<()>>, synced: &mut io::Result<()>) {
    let result = thread.join().unwrap_or_else(|panic| resume_unwind(panic));
    if synced.is_ok() {
        *synced = result;
    }
}

impl std::fmt::Display for DurableStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DurableStore({})", self.folders.root.display())
    }
}

#[async_trait]
impl ObjectStore for DurableStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let create = match options.mode {
            PutMode::Create => true,
            PutMode::Overwrite => false,
            PutMode::Update(_) => {
                return Err(Error::NotImplemented {
                    operation: "conditional update".into(),
                    implementer: self.to_string(),
                });
            }
        };
        let path = self.inner.path_to_filesystem(location)?;
        self.lock_hidden().remove(&path);
        let folder = path.parent();
        let is_of_log = folder.is_some_and(|folder| folder.ends_with(LOG_FOLDER));
        let (folders, unsynced) = (Arc::clone(&self.folders), Arc::clone(&self.unsynced));
        blocking(move || {
            let done = match create || is_of_log {
                true => {
                    let others = std::mem::take(&mut *lock(&unsynced));
                    let placed = put(&path, &payload, create, |file| {
                        sync_together(file, &others, &folders)
                    });
                    if placed.is_err() {
                        lock(&unsynced).extend(others);
                    }
                    placed.and_then(|_| folders.sync(&path))
                }
                false => put(&path, &payload, create, |_| Ok(())).and_then(|file| {
                    let mut unsynced = lock(&unsynced);
                    if unsynced.len() >= UNSYNCED_MAX {
                        return file.sync_all().and_then(|()| folders.sync(&path));
                    }
                    let path = path.clone();
                    unsynced.push(Unsynced { path, file });
                    Ok(())
                }),
            };
            done.map_err(|error| store_error(&path, error))?;
            Ok(PutResult {
                e_tag: None,
                version: None,
            })
        })
        .await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let path = self.inner.path_to_filesystem(location)?;
        let upload = blocking(move || {
            let (file, staged) = stage(&path).map_err(|error| store_error(&path, error))?;
            Ok((Arc::new(file), staged, path))
        });
        let (file, staged, path) = upload.await?;
        Ok(Box::new(DurableUpload {
            file,
            staged: Some(staged),
            path,
            length: 0,
            unsynced: Arc::default(),
            store: self.clone(),
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if self.is_hidden(location) {
            return Err(Error::NotFound {
                path: location.to_string(),
                source: "the file is damaged".into(),
            });
        }
        self.inner.get_opts(location, options).await
    }

    async fn get_ranges(
        &self,
        location: &Path,
        ranges: &[Range<u64>],
    ) -> Result<Vec<bytes::Bytes>> {
        self.inner.get_ranges(location, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let store = self.clone();
        let shown = move |meta: &ObjectMeta| !store.is_hidden(&meta.location);
        self.inner
            .list(prefix)
            .try_filter(move |meta| futures::future::ready(shown(meta)))
            .boxed()
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let store = self.clone();
        let shown = move |meta: &ObjectMeta| !store.is_hidden(&meta.location);
        self.inner
            .list_with_offset(prefix, offset)
            .try_filter(move |meta| futures::future::ready(shown(meta)))
            .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let mut found = self.inner.list_with_delimiter(prefix).await?;
        found.objects.retain(|meta| !self.is_hidden(&meta.location));
        Ok(found)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await?;
        self.sync(to).await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.inner.rename_opts(from, to, options).await?;
        self.sync(to).await
    }
}

/// An upload in parts that is on disk when it is complete.
///
/// The disk is given what was written now and then, so that the end has little to wait for, and memory of the system is not full
/// of bytes that the disk lacks.
#[derive(Debug)]
struct DurableUpload {
    file: Arc<File>,
    /// Its name, which no listing shows, until it has its own.
    staged: Option<PathBuf>,
    path: PathBuf,
    /// Of the parts so far.
    length: u64,
    /// Bytes that the disk may lack. The system lets one write to a file at a time, and those that wait for it there keep a core
    /// busy: they wait here.
    unsynced: Arc<Mutex<u64>>,
    store: DurableStore,
}

#[async_trait]
impl MultipartUpload for DurableUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let mut at = self.length;
        self.length += data.content_length() as u64;
        let (file, path) = (Arc::clone(&self.file), self.path.clone());
        let unsynced = Arc::clone(&self.unsynced);
        Box::pin(blocking(move || {
            let mut write = || {
                let mut unsynced = lock(&unsynced);
                for bytes in &data {
                    file.write_all_at(bytes, at)?;
                    at += bytes.len() as u64;
                    *unsynced += bytes.len() as u64;
                }
                let is_much = *unsynced >= SYNCED_BYTES;
                if is_much {
                    *unsynced = 0;
                }
                io::Result::Ok(is_much)
            };
            let written = write().and_then(|is_much| match is_much {
                true => file.sync_data(),
                false => Ok(()),
            });
            written.map_err(|error| store_error(&path, error))
        }))
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let Some(staged) = self.staged.take() else {
            let error = io::Error::other("the upload is over");
            return Err(store_error(&self.path, error));
        };
        self.store.lock_hidden().remove(&self.path);
        let (file, path) = (Arc::clone(&self.file), self.path.clone());
        let folders = Arc::clone(&self.store.folders);
        blocking(move || {
            let placed = file
                .sync_all()
                .and_then(|()| std::fs::rename(&staged, &path));
            if placed.is_err() {
                let _ = std::fs::remove_file(&staged);
            }
            placed
                .and_then(|()| folders.sync(&path))
                .map_err(|error| store_error(&path, error))
        })
        .await?;
        Ok(PutResult {
            e_tag: None,
            version: None,
        })
    }

    async fn abort(&mut self) -> Result<()> {
        match self.staged.take() {
            Some(staged) => {
                std::fs::remove_file(&staged).map_err(|error| store_error(&staged, error))
            }
            None => Ok(()),
        }
    }
}

impl Drop for DurableUpload {
    fn drop(&mut self) {
        if let Some(staged) = self.staged.take() {
            // A leftover is invisible, and vacuum takes it.
            let _ = std::fs::remove_file(staged);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::ObjectStoreExt;

    fn store() -> (tempfile::TempDir, DurableStore, Path) {
        let folder = tempfile::tempdir().unwrap();
        let store = DurableStore::new(folder.path());
        let path = Path::from_absolute_path(folder.path().join("new/folder/entry")).unwrap();
        (folder, store, path)
    }

    #[tokio::test]
    async fn create_over_an_existing_name_fails_and_keeps_the_bytes() {
        let (_folder, store, path) = store();
        let create = PutOptions::from(PutMode::Create);
        store
            .put_opts(&path, "first".into(), create.clone())
            .await
            .unwrap();
        let second = store.put_opts(&path, "second".into(), create).await;
        assert!(
            matches!(second, Err(Error::AlreadyExists { .. })),
            "{second:?}"
        );
        assert_eq!(
            store.get(&path).await.unwrap().bytes().await.unwrap(),
            "first"
        );
    }

    #[tokio::test]
    async fn many_creators_of_one_name_have_one_winner() {
        let (folder, store, path) = store();
        let attempts = (0..16).map(|n| {
            let (store, path) = (store.clone(), path.clone());
            tokio::spawn(async move {
                let create = PutOptions::from(PutMode::Create);
                store
                    .put_opts(&path, format!("{n}").into(), create)
                    .await
                    .is_ok()
            })
        });
        let won = futures::future::join_all(attempts).await;
        assert_eq!(
            won.into_iter().filter(|won| *won.as_ref().unwrap()).count(),
            1
        );
        let left = std::fs::read_dir(folder.path().join("new/folder"))
            .unwrap()
            .count();
        assert_eq!(left, 1, "staged files are gone");
    }

    #[tokio::test]
    async fn hidden_file_is_neither_listed_nor_read_until_written_again() {
        let (folder, store, path) = store();
        store.put(&path, "damaged".into()).await.unwrap();
        store.hide([folder.path().join("new/folder/entry")]);
        assert!(matches!(
            store.get(&path).await,
            Err(Error::NotFound { .. })
        ));
        let prefix = Path::from_absolute_path(folder.path()).unwrap();
        assert_eq!(store.list(Some(&prefix)).count().await, 0);
        store.put(&path, "whole".into()).await.unwrap();
        assert_eq!(store.list(Some(&prefix)).count().await, 1);
    }

    #[tokio::test]
    async fn what_is_written_waits_for_the_next_log_entry_and_for_no_failed_one() {
        let (folder, store, path) = store();
        let log_entry = |name: &str| {
            let entry = folder.path().join(LOG_FOLDER).join(name);
            Path::from_absolute_path(entry).unwrap()
        };
        let waiting = || lock(&store.unsynced).len();
        store.put(&path, "rows".into()).await.unwrap();
        assert_eq!(waiting(), 1);
        let put = async |name: &str| {
            let create = PutOptions::from(PutMode::Create);
            store
                .put_opts(&log_entry(name), "entry".into(), create)
                .await
        };
        put("1.json").await.unwrap();
        assert_eq!(waiting(), 0);
        store.put(&path, "more rows".into()).await.unwrap();
        put("1.json").await.unwrap_err();
        assert_eq!(waiting(), 1, "the caller may try again");
        std::fs::remove_file(folder.path().join("new/folder/entry")).unwrap();
        put("2.json").await.unwrap();
        assert_eq!(waiting(), 0);
        store
            .put(&log_entry("_last_checkpoint"), "{}".into())
            .await
            .unwrap();
        assert_eq!(waiting(), 0, "the log waits for nothing");
        for number in 0..UNSYNCED_MAX + 5 {
            let path = path.clone().join(format!("{number}"));
            store.put(&path, "rows".into()).await.unwrap();
        }
        assert_eq!(waiting(), UNSYNCED_MAX);
        put("3.json").await.unwrap();
        assert_eq!(waiting(), 0);
    }

    #[tokio::test]
    async fn upload_in_parts_arrives_whole() {
        let (_folder, store, path) = store();
        let mut upload = store.put_multipart(&path).await.unwrap();
        upload.put_part("one ".into()).await.unwrap();
        upload.put_part("two".into()).await.unwrap();
        upload.complete().await.unwrap();
        assert_eq!(
            store.get(&path).await.unwrap().bytes().await.unwrap(),
            "one two"
        );
    }

    #[tokio::test]
    async fn upload_in_parts_has_its_name_when_it_is_complete_and_leaves_nothing_otherwise() {
        let (folder, store, path) = store();
        let names = || -> Vec<String> {
            let entries = std::fs::read_dir(folder.path().join("new/folder")).unwrap();
            let name = |entry: io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
            entries
                .map(|entry| name(entry).into_string().unwrap())
                .collect()
        };
        let mut upload = store.put_multipart(&path).await.unwrap();
        // Parts may be written in any order.
        let first = upload.put_part("first, ".into());
        let payload = PutPayload::from_iter(["sec", "ond"].map(bytes::Bytes::from));
        upload.put_part(payload).await.unwrap();
        first.await.unwrap();
        assert_eq!(names(), ["entry#1"]);
        upload.complete().await.unwrap();
        assert_eq!(names(), ["entry"]);
        let bytes = store.get(&path).await.unwrap().bytes().await.unwrap();
        assert_eq!(bytes, "first, second");
        assert!(upload.complete().await.is_err());

        let mut aborted = store.put_multipart(&path).await.unwrap();
        aborted.put_part("other".into()).await.unwrap();
        aborted.abort().await.unwrap();
        drop(store.put_multipart(&path).await.unwrap());
        assert_eq!(names(), ["entry"]);
        let bytes = store.get(&path).await.unwrap().bytes().await.unwrap();
        assert_eq!(bytes, "first, second");
    }
}
