//! Wakes the loop when a listing may have changed.
//!
//! Events are hints: they are drained, thrown together and only say "list again". Lost, late or missing events cost time,
//! never a file. The one fact taken from them is that a name appeared by a rename.

use super::encode_name;
use crate::error::{Error, Result};
use notify::event::{AccessKind, AccessMode, CreateKind, EventKind, ModifyKind, RenameMode};
use notify::{Config, Event, RecommendedWatcher, RecursiveMode, Watcher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

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

/// A file makes several events while it is written and closed: one listing is enough for them.
const GATHER: Duration = Duration::from_millis(1);
/// A file renamed into place is whole: only others that come with it are waited for.
const GATHER_RENAMED: Duration = Duration::from_micros(250);
/// A new folder is watched a moment after its event, so what lands in it meanwhile is unseen: it is listed once more.
const NEW_FOLDER_AGAIN: Duration = Duration::from_millis(200);
/// How often a wait looks whether the folder at the path is still the one that is watched: a mount over it makes no event.
const ROOT_CHECK_PAUSE: Duration = Duration::from_secs(5);
/// More renames than this between two waits are not remembered; those files settle by looking.
const RENAMES_MAX: usize = 100_000;

/// Ends a wait from another thread. Outlives any one watch.
#[derive(Clone, Debug, Default)]
pub struct Waker(Arc<Signal>);

impl Waker {
    /// A waker for any number of watches.
    pub fn new() -> Self {
        Waker::default()
    }

    /// Ends the present wait, or the next one if none is running.
    pub fn wake(&self) {
        self.0.tell(|news| news.woken = true);
    }
}

#[derive(Debug, Default)]
struct Signal {
    news: Mutex<News>,
    changed: Condvar,
}

/// What happened since the last wait ended.
#[derive(Debug, Default)]
struct News {
    /// Which watch the events come from; those of an earlier one do not count.
    watch: u64,
    woken: bool,
    overflow: bool,
    lost: Option<String>,
    /// When the changes are to be told.
    changed_at: Option<Instant>,
    renamed: Vec<String>,
    /// When a folder that is new is to be listed once more.
    again_at: Option<Instant>,
    degraded: Option<String>,
}

impl Signal {
    fn lock(&self) -> MutexGuard<'_, News> {
        // A panic elsewhere leaves the flags valid, whatever they say.
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, what: impl FnOnce(&mut News)) {
        what(&mut self.lock());
        self.changed.notify_all();
    }

    /// Forgets the events of earlier watches and returns the number of the next one.
    fn next_watch(&self) -> u64 {
        let mut news = self.lock();
        let woken = news.woken;
        *news = News {
            watch: news.watch + 1,
            woken,
            ..News::default()
        };
        news.watch
    }
}

impl News {
    fn take(&mut self, now: Instant) -> Option<Wake> {
        if std::mem::take(&mut self.woken) {
            return Some(Wake::Woken);
        }
        if let Some(message) = self.lost.take() {
            return Some(Wake::Lost(message));
        }
        if std::mem::take(&mut self.overflow) {
            self.changed_at = None;
            self.renamed.clear();
            return Some(Wake::Overflow);
        }
        for due in [&mut self.changed_at, &mut self.again_at] {
            if due.is_some_and(|at| at <= now) {
                *due = None;
                let renamed_into_place = std::mem::take(&mut self.renamed);
                return Some(Wake::Changed { renamed_into_place });
            }
        }
        None
    }

    /// Notes a change, to be told together with those that follow within `gather`.
    fn note_change(&mut self, gather: Duration) {
        let due = Instant::now() + gather;
        let at = self.changed_at.get_or_insert(due);
        *at = due.min(*at);
    }

    /// How long nothing can be told, if nothing more happens.
    fn quiet_for(&self, now: Instant) -> Option<Duration> {
        let next = [self.changed_at, self.again_at]
            .into_iter()
            .flatten()
            .min()?;
        Some(next.saturating_duration_since(now))
    }
}

/// Events below one folder.
#[derive(Debug)]
pub struct Watch {
    signal: Arc<Signal>,
    root: Option<Root>,
    /// Keeps the events coming; `None` without events.
    _watcher: Option<RecommendedWatcher>,
}

/// The folder that is watched; another one may come to stand at its path (a mount, a folder made anew).
#[derive(Debug)]
struct Root {
    path: PathBuf,
    identity: Identity,
}

/// What tells one folder from another at the same path. The number of a folder that is gone is given to the next one, so
/// the time it was made counts too, where the file system keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    created: Option<SystemTime>,
}

impl Watch {
    /// Starts to watch; call it before the first listing, so that nothing falls between.
    ///
    /// A tree that the system lets be watched only in part is no error, see [`Watch::degraded`].
    pub fn start(root: &Path, waker: &Waker) -> Result<Watch> {
        let identity = identity(root).map_err(|error| not_watched(root, &error.to_string()))?;
        let signal = Arc::clone(&waker.0);
        let number = signal.next_watch();
        let handler = Handler {
            signal: Arc::clone(&signal),
            number,
            root: root.to_owned(),
        };
        let config = Config::default().with_follow_symlinks(false);
        let mut watcher = RecommendedWatcher::new(move |event| handler.handle(event), config)
            .map_err(|error| not_watched(root, &error.to_string()))?;
        if let Err(error) = watcher.watch(root, RecursiveMode::Recursive) {
            match error.kind {
                notify::ErrorKind::MaxFilesWatch => {
                    signal.tell(|news| news.degraded = Some(limit_reached(root)));
                }
                _ => return Err(not_watched(root, &error.to_string())),
            }
        }
        let root = Root {
            path: root.to_owned(),
            identity,
        };
        Ok(Watch {
            signal,
            root: Some(root),
            _watcher: Some(watcher),
        })
    }

    /// A watch without events: waits only (`discovery = "list"`, or a folder that is missing).
    pub fn without_events(waker: &Waker) -> Watch {
        waker.0.next_watch();
        Watch {
            signal: Arc::clone(&waker.0),
            root: None,
            _watcher: None,
        }
    }

    /// Waits for the first thing that happens, at most `timeout`. What happened since the last wait counts.
    pub fn wait(&mut self, timeout: Duration) -> Wake {
        let until = Instant::now().checked_add(timeout);
        let left = || {
            until.map_or(timeout, |until| {
                until.saturating_duration_since(Instant::now())
            })
        };
        loop {
            let wake = self.wait_for_news(left().min(ROOT_CHECK_PAUSE));
            if let Some(wake) = wake.or_else(|| self.replaced_root()) {
                return wake;
            }
            if left().is_zero() {
                return Wake::TimedOut;
            }
        }
    }

    fn wait_for_news(&self, timeout: Duration) -> Option<Wake> {
        let until = Instant::now() + timeout;
        let mut news = self.signal.lock();
        loop {
            let now = Instant::now();
            if let Some(wake) = news.take(now) {
                return Some(wake);
            }
            let left = until.saturating_duration_since(now);
            if left.is_zero() {
                return None;
            }
            let pause = news.quiet_for(now).map_or(left, |quiet| left.min(quiet));
            news = match self.signal.changed.wait_timeout(news, pause) {
                Ok((news, _)) => news,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    /// One line when part of the tree is not watched and only listing covers it.
    pub fn degraded(&self) -> Option<String> {
        self.signal.lock().degraded.clone()
    }

    /// A mount over the folder makes no event.
    fn replaced_root(&self) -> Option<Wake> {
        let root = self.root.as_ref()?;
        match identity(&root.path) {
            Ok(present) if present == root.identity => None,
            Ok(_) => Some(Wake::Lost(format!(
                "landing folder {} was replaced by another",
                root.path.display()
            ))),
            Err(error) => Some(Wake::Lost(format!(
                "landing folder {} is gone: {error}",
                root.path.display()
            ))),
        }
    }
}

/// Turns the events of one watch into news; runs on the watcher's thread.
struct Handler {
    signal: Arc<Signal>,
    number: u64,
    root: PathBuf,
}

impl Handler {
    fn handle(&self, event: notify::Result<Event>) {
        self.signal.tell(|news| {
            if news.watch != self.number {
                return;
            }
            match event {
                Ok(event) => self.note(&event, news),
                Err(error) if matches!(error.kind, notify::ErrorKind::MaxFilesWatch) => {
                    news.degraded = Some(limit_reached(&self.root));
                    news.note_change(GATHER);
                }
                // Whatever was not delivered is found by a listing.
                Err(_) => news.overflow = true,
            }
        });
    }

    fn note(&self, event: &Event, news: &mut News) {
        if event.need_rescan() {
            news.overflow = true;
            return;
        }
        let is_root = event.paths.first().is_some_and(|path| *path == self.root);
        match event.kind {
            EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(RenameMode::From))
                if is_root =>
            {
                news.lost = Some(format!("landing folder {} is gone", self.root.display()));
            }
            EventKind::Modify(ModifyKind::Name(RenameMode::To)) => {
                news.note_change(GATHER_RENAMED);
                self.note_new(event, news);
            }
            EventKind::Create(CreateKind::Folder) => {
                news.note_change(GATHER);
                news.again_at = Some(Instant::now() + NEW_FOLDER_AGAIN);
            }
            // Our own reading and listing must not wake us.
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => news.note_change(GATHER),
            EventKind::Access(_) => {}
            EventKind::Any
            | EventKind::Create(_)
            | EventKind::Modify(_)
            | EventKind::Remove(_)
            | EventKind::Other => news.note_change(GATHER),
        }
    }

    fn note_new(&self, event: &Event, news: &mut News) {
        for path in &event.paths {
            if path.is_dir() {
                news.again_at = Some(Instant::now() + NEW_FOLDER_AGAIN);
            } else if let Ok(relative) = path.strip_prefix(&self.root)
                && news.renamed.len() < RENAMES_MAX
            {
                news.renamed.push(encode_name(relative.as_os_str()));
            }
        }
    }
}

fn identity(path: &Path) -> std::io::Result<Identity> {
    std::fs::metadata(path).map(|metadata| Identity {
        device: metadata.dev(),
        inode: metadata.ino(),
        created: metadata.created().ok(),
    })
}

fn limit_reached(root: &Path) -> String {
    format!(
        "landing folder {} is watched only in part, the limit fs.inotify.max_user_watches is reached; \
         the folders that are not watched are covered by listing",
        root.display()
    )
}

fn not_watched(root: &Path, error: &str) -> Error {
    Error::unavailable(format!(
        "landing folder {} cannot be watched: {error}",
        root.display()
    ))
    .hint("set discovery = \"list\" to do without events")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::landing::{Filter, list};
    use crate::settings::Format;

    const LONG: Duration = Duration::from_secs(20);

    /// Waits and lists until `done`, as the loop does; events alone must get it there.
    fn list_on_wakes(watch: &mut Watch, root: &Path, done: impl Fn(usize) -> bool) -> usize {
        let filter = Filter::new(Format::Auto, None, &[]).unwrap();
        let until = Instant::now() + LONG;
        loop {
            let count = list(root, &filter).unwrap().files.len();
            if done(count) {
                return count;
            }
            let wake = watch.wait(until.saturating_duration_since(Instant::now()));
            assert_ne!(wake, Wake::TimedOut, "{count} files listed so far");
        }
    }

    /// The handler of the present watch, or of one so many watches ago.
    fn handler_of(waker: &Waker, root: &Path, ago: u64) -> Handler {
        Handler {
            signal: Arc::clone(&waker.0),
            number: waker.0.lock().watch - ago,
            root: root.to_owned(),
        }
    }

    fn renamed_until(watch: &mut Watch, name: &str) -> Vec<String> {
        let mut all = Vec::new();
        while !all.iter().any(|path| path == name) {
            match watch.wait(LONG) {
                Wake::Changed { renamed_into_place } => all.extend(renamed_into_place),
                other => panic!("{other:?}"),
            }
        }
        all
    }

    #[test]
    fn folder_that_is_missing_cannot_be_watched() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Watch::start(&folder.path().join("gone"), &Waker::new()).is_err());
    }

    #[test]
    fn folder_removed_or_replaced_is_reported_as_lost_and_can_be_watched_again() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("landing");
        std::fs::create_dir(&root).unwrap();
        let waker = Waker::new();
        let mut watch = Watch::start(&root, &waker).unwrap();
        std::fs::remove_dir(&root).unwrap();
        std::fs::create_dir(&root).unwrap();
        let until = Instant::now() + LONG;
        while !matches!(watch.wait(Duration::from_millis(50)), Wake::Lost(_)) {
            assert!(Instant::now() < until);
        }
        let mut watch = Watch::start(&root, &waker).unwrap();
        std::fs::write(root.join("f1"), "1").unwrap();
        assert_eq!(list_on_wakes(&mut watch, &root, |count| count == 1), 1);
    }

    #[test]
    fn another_folder_at_the_path_is_noticed_without_an_event() {
        let folder = tempfile::tempdir().unwrap();
        let mut watch = Watch::start(folder.path(), &Waker::new()).unwrap();
        watch.root.as_mut().unwrap().identity.inode += 1;
        assert!(matches!(watch.wait(Duration::ZERO), Wake::Lost(_)));
        // However long the wait.
        assert!(matches!(watch.wait(Duration::MAX), Wake::Lost(_)));
    }

    #[test]
    fn tree_made_in_one_go_is_listed_whole() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_owned();
        let mut watch = Watch::start(&root, &Waker::new()).unwrap();
        for day in 1..=50 {
            let deepest = root.join(format!("2024/{day:02}/01"));
            std::fs::create_dir_all(&deepest).unwrap();
            for name in ["a", "b", "c"] {
                std::fs::write(deepest.join(name), "1").unwrap();
            }
            list_on_wakes(&mut watch, &root, |count| count == 3 * day);
        }
    }

    #[test]
    fn burst_is_thrown_together_and_listed_whole() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_owned();
        let mut watch = Watch::start(&root, &Waker::new()).unwrap();
        for index in 0..2_000 {
            std::fs::write(root.join(format!("{index}")), "1").unwrap();
        }
        list_on_wakes(&mut watch, &root, |count| count == 2_000);
    }

    #[test]
    fn full_event_queue_is_reported_and_the_listing_finds_every_file() {
        let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        let limit: usize = limit.trim().parse().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let waker = Waker::new();
        let mut watch = Watch::start(folder.path(), &waker).unwrap();
        // The watcher's thread stands still, like a process that is stopped; each file makes three events at least.
        let still = waker.0.lock();
        let count = limit.min(50_000) / 3 + 1_000;
        for index in 0..count {
            std::fs::File::create(folder.path().join(format!("{index}"))).unwrap();
        }
        drop(still);
        let mut wakes = Vec::new();
        while limit <= 50_000 && !wakes.contains(&Wake::Overflow) {
            wakes.push(watch.wait(LONG));
            assert_ne!(wakes.last(), Some(&Wake::TimedOut));
        }
        list_on_wakes(&mut watch, folder.path(), |listed| listed == count);
    }

    #[test]
    fn lost_events_are_reported_as_overflow() {
        let folder = tempfile::tempdir().unwrap();
        let waker = Waker::new();
        let mut watch = Watch::start(folder.path(), &waker).unwrap();
        let handler = handler_of(&waker, folder.path(), 0);
        handler.handle(Ok(
            Event::new(EventKind::Other).set_flag(notify::event::Flag::Rescan)
        ));
        assert_eq!(watch.wait(LONG), Wake::Overflow);
        assert_eq!(watch.wait(Duration::from_millis(1)), Wake::TimedOut);
    }

    #[test]
    fn reached_watch_limit_names_the_setting_and_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let waker = Waker::new();
        let mut watch = Watch::start(folder.path(), &waker).unwrap();
        let handler = handler_of(&waker, folder.path(), 0);
        handler.handle(Err(notify::Error::new(notify::ErrorKind::MaxFilesWatch)));
        assert!(
            watch
                .degraded()
                .unwrap()
                .contains("fs.inotify.max_user_watches")
        );
        assert!(matches!(watch.wait(LONG), Wake::Changed { .. }));
    }

    #[test]
    fn rename_into_place_names_the_final_name_and_never_the_temporary_one() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("landing");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(folder.path().join("orders-2.jsonl"), "1").unwrap();
        let mut watch = Watch::start(&root, &Waker::new()).unwrap();
        std::fs::write(root.join(".orders-1.jsonl.part"), "1").unwrap();
        std::fs::rename(
            root.join(".orders-1.jsonl.part"),
            root.join("orders-1.jsonl"),
        )
        .unwrap();
        std::fs::rename(
            folder.path().join("orders-2.jsonl"),
            root.join("orders-2.jsonl"),
        )
        .unwrap();
        std::fs::write(root.join("orders-3.jsonl"), "1").unwrap();
        assert_eq!(
            renamed_until(&mut watch, "orders-2.jsonl"),
            ["orders-1.jsonl", "orders-2.jsonl"]
        );
    }

    #[test]
    fn listing_and_reading_do_not_wake_ourselves() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("day")).unwrap();
        std::fs::write(folder.path().join("day/a"), "1").unwrap();
        let mut watch = Watch::start(folder.path(), &Waker::new()).unwrap();
        let filter = Filter::new(Format::Auto, None, &[]).unwrap();
        list(folder.path(), &filter).unwrap();
        crate::landing::hash_file(folder.path(), "day/a")
            .unwrap()
            .unwrap();
        assert_eq!(watch.wait(Duration::from_millis(300)), Wake::TimedOut);
    }

    #[test]
    fn events_of_one_moment_are_told_once() {
        let folder = tempfile::tempdir().unwrap();
        let waker = Waker::new();
        let mut watch = Watch::start(folder.path(), &waker).unwrap();
        let handler = handler_of(&waker, folder.path(), 0);
        let earlier = handler_of(&waker, folder.path(), 1);
        earlier.handle(Ok(Event::new(EventKind::Any)));
        assert_eq!(
            watch.wait(3 * GATHER),
            Wake::TimedOut,
            "events of an earlier watch do not count"
        );
        for _ in 0..1_000 {
            handler.handle(Ok(Event::new(EventKind::Any)));
        }
        assert!(matches!(watch.wait(LONG), Wake::Changed { .. }));
        assert_eq!(watch.wait(3 * GATHER), Wake::TimedOut);
    }

    #[test]
    fn waker_ends_the_running_wait_or_the_next_one() {
        let waker = Waker::new();
        let mut watch = Watch::without_events(&waker);
        waker.wake();
        assert_eq!(watch.wait(LONG), Wake::Woken);
        let other = waker.clone();
        let thread = std::thread::spawn(move || other.wake());
        assert_eq!(watch.wait(LONG), Wake::Woken);
        thread.join().unwrap();
        assert_eq!(watch.wait(Duration::from_millis(1)), Wake::TimedOut);
    }
}
