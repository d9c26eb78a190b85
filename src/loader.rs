//! The loop: list, plan, load, apply, clean, keep up, wait.
//!
//! A listing is the truth about the landing folder; events only say when to list again. The loop prints nothing: it tells an
//! observer what happened.

use crate::batch::BatchLimits;
use crate::checkpoint::FileState;
use crate::clean::CleanReport;
use crate::crash::CrashPoint;
use crate::error::{Error, ErrorKind, Result};
use crate::landing::{
    Filter, LandingFile, Listing, Look, Settler, Wake, Waker, Watch, hash_file, list, nobody_writes,
};
use crate::maintain::{Load, MaintainReport};
use crate::parallel::{beside, lock};
use crate::protocol::{BatchReport, Pipeline, Recovery};
use crate::settings::{CleanSource, Discovery, PipelineSettings};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a run that ends by itself waits for files that keep changing.
const UNSETTLED_WAIT_MAX: Duration = Duration::from_secs(60);
/// How often a landing folder that is missing is looked for.
const MISSING_PAUSE: Duration = Duration::from_secs(1);
/// A watch that could not start is tried again after this time, then after twice as long, and so on.
const WATCH_AGAIN_PAUSE: Duration = Duration::from_secs(1);
/// From so many rows of silver on, a run that ends makes the key index that the next one will use.
const INDEX_ROWS_MIN_AT_END: i64 = 2_000_000;
/// From so many rows of silver on, a watching run makes the key index when it is idle.
const INDEX_ROWS_MIN_IDLE: i64 = 50_000;
/// The last event of a burst is followed by one more look after this time.
const ECHO_PAUSE: Duration = Duration::from_millis(200);
/// How long a watching loop rests after it lost against other writers.
const CONFLICT_PAUSE: Duration = Duration::from_secs(1);
/// The shortest pause between two looks at files that settle.
const LOOK_PAUSE_MIN: Duration = Duration::from_millis(1);

/// It takes longer to record so many new files than to begin another thread.
const BESIDE_RECORDING_MIN: usize = if cfg!(debug_assertions) { 2 } else { 500 };

/// A run that ends by itself does at most so many pieces of upkeep before it ends.
const UPKEEP_PIECES_MAX: usize = 16;

/// Asks running loops to end after the present micro-batch. Clones ask the same loops.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    /// One for each loop: a wake meant for one is never taken by another.
    wakers: Arc<Mutex<Vec<Waker>>>,
}

impl Stop {
    /// Asks, and ends the waits of all loops.
    pub fn ask(&self) {
        self.asked.store(true, Ordering::SeqCst);
        let wakers = lock(&self.wakers);
        wakers.iter().for_each(Waker::wake);
    }

    fn new_waker(&self) -> Waker {
        let waker = Waker::new();
        let mut wakers = lock(&self.wakers);
        wakers.push(waker.clone());
        waker
    }

    /// Whether it was asked.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }
}

/// How a run ends by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunOptions {
    /// Ends when everything that is there is loaded; otherwise watches for ever.
    pub available_now: bool,
    /// Ends after so many micro-batches.
    pub batches_max: Option<u64>,
}

/// What the loop tells.
#[derive(Clone, Debug)]
pub enum LoaderEvent {
    /// One line that the operator should see.
    Note(String),
    /// So much waits to be loaded.
    Backlog {
        /// Files.
        files: u64,
        /// Bytes.
        bytes: u64,
    },
    /// A micro-batch is done, files of so many bytes.
    Batch(Box<BatchReport>, u64),
    /// Source files were cleaned.
    Cleaned(CleanReport),
    /// A table was kept up.
    KeptUp(MaintainReport),
}

/// What a run did, all micro-batches together.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunSummary {
    /// Micro-batches.
    pub batches: u64,
    /// Files that loaded.
    pub files: u64,
    /// Rows that bronze gained.
    pub rows: u64,
    /// Records that went to quarantine.
    pub quarantined: u64,
    /// Files that are parked, all of them.
    pub files_parked: u64,
    /// Records in quarantine, all of them.
    pub records_quarantined: u64,
    /// Files that still wait.
    pub files_pending: u64,
    /// Source files whose clean-up failed, all of them.
    pub clean_failed: u64,
    /// Folders or files below the landing folder that the last listing could not look at.
    pub folders_unreadable: u64,
}

/// One pipeline's loop.
pub struct Loader {
    pipeline: Pipeline,
    filter: Filter,
    settler: Settler,
    /// `None` while there is none, though there may be events to be had.
    watch: Option<Watch>,
    watch_again_in: Duration,
    waker: Waker,
    stop: Stop,
    summary: RunSummary,
    told: Vec<String>,
    /// The landing folder is missing, and that was told.
    missing: bool,
    /// There were events since the last wait that timed out.
    echo: bool,
}

impl Loader {
    /// Makes the loop of an opened pipeline and does first what the last run left unfinished.
    pub async fn start(
        mut pipeline: Pipeline,
        recovery: Recovery,
        stop: Stop,
        tell: &mut dyn FnMut(LoaderEvent),
    ) -> Result<Loader> {
        recovery
            .notes
            .into_iter()
            .for_each(|note| tell(LoaderEvent::Note(note)));
        let filter = filter_of(pipeline.settings())?;
        let settler = Settler::new(pipeline.settings().source.settle);
        if let Some(note) = pipeline.follow_settings().await? {
            tell(LoaderEvent::Note(note));
        }
        let unfinished = pipeline.recover().await?;
        let mut loader = Loader {
            pipeline,
            filter,
            settler,
            watch: None,
            watch_again_in: WATCH_AGAIN_PAUSE,
            waker: stop.new_waker(),
            stop,
            summary: RunSummary::default(),
            told: Vec::new(),
            missing: false,
            echo: false,
        };
        if let Some(report) = unfinished {
            tell(LoaderEvent::Note(
                "finished what the last run left open".into(),
            ));
            loader.count(&report);
            tell(LoaderEvent::Batch(Box::new(report), 0));
        }
        Ok(loader)
    }

    /// Runs until it is done or asked to stop. An error leaves everything as a kill would: the next start recovers.
    pub async fn run(
        &mut self,
        options: RunOptions,
        tell: &mut dyn FnMut(LoaderEvent),
    ) -> Result<RunSummary> {
        let done = self.turn_until_done(options, tell).await;
        let message = done.as_ref().err().map(|error| error.message().to_string());
        self.pipeline
            .checkpoint
            .set_last_error(message.as_deref())?;
        done?;
        let counts = self.pipeline.checkpoint.counts()?;
        self.summary.files_parked = counts.parked;
        self.summary.records_quarantined = counts.rows_quarantined;
        self.summary.files_pending = counts.pending + counts.planned;
        self.summary.clean_failed = self.pipeline.checkpoint.clean_failed_count()?;
        Ok(self.summary)
    }

    /// The pipeline, to look at.
    pub fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    async fn turn_until_done(
        &mut self,
        options: RunOptions,
        tell: &mut dyn FnMut(LoaderEvent),
    ) -> Result<()> {
        let mut progressed_at = Instant::now();
        loop {
            let Some(mut look) = self.look(options, tell)? else {
                if self.wait(MISSING_PAUSE, tell) {
                    continue;
                } else {
                    return Ok(());
                }
            };
            let before = self.summary.batches;
            match self.load_settled(&mut look, options, tell).await {
                // Nothing is lost: the batch stays frozen, and is finished when the other writer rests.
                Err(error) if error.kind() == ErrorKind::Conflict && !options.available_now => {
                    tell(LoaderEvent::Note(error.to_string()));
                    if !self.wait(CONFLICT_PAUSE, tell) {
                        return Ok(());
                    }
                    self.finish_frozen(tell).await;
                    continue;
                }
                done => done?,
            }
            self.clean(tell)?;
            if self.stop.is_asked() || self.is_enough(options) {
                return Ok(());
            }
            let progressed = self.summary.batches > before && !self.is_through(&look, options)?;
            if progressed {
                progressed_at = Instant::now();
            } else if self.keep_up_idle(options, tell).await? {
                // Files may have come meanwhile.
                continue;
            }
            let pause = match (look.look_again_in, options.available_now) {
                (_, true) if progressed => continue,
                (None, true) => return self.build_index(INDEX_ROWS_MIN_AT_END),
                (Some(_), true) if progressed_at.elapsed() > UNSETTLED_WAIT_MAX => {
                    tell(LoaderEvent::Note(
                        "files that keep changing are left for the next run".into(),
                    ));
                    return Ok(());
                }
                (Some(pause), _) => pause.max(LOOK_PAUSE_MIN),
                (None, false) => {
                    self.build_index(INDEX_ROWS_MIN_IDLE)?;
                    self.pipeline.settings().source.listing_interval
                }
            };
            let pause = self.shorten(pause, options);
            if !self.wait(pause, tell) {
                return Ok(());
            }
        }
    }

    /// Whether all that was there for a run that ends by itself is loaded. What comes while it loads is left to the next.
    fn is_through(&self, look: &Look, options: RunOptions) -> Result<bool> {
        let is_settled = options.available_now && look.look_again_in.is_none();
        Ok(is_settled && !self.pipeline.checkpoint.has_pending()?)
    }

    /// Finishes a batch that lost against other writers; it stays frozen if it loses again.
    async fn finish_frozen(&mut self, tell: &mut dyn FnMut(LoaderEvent)) {
        match self.pipeline.recover().await {
            Ok(Some(report)) => {
                self.count(&report);
                tell(LoaderEvent::Batch(Box::new(report), 0));
            }
            Ok(None) => {}
            Err(error) => tell(LoaderEvent::Note(error.to_string())),
        }
    }

    /// The key index is made when nothing waits. It is a cache: that it cannot be made is no reason to stop.
    fn build_index(&mut self, rows_min: i64) -> Result<()> {
        match self.pipeline.build_index(rows_min) {
            Err(error) if error.kind() == ErrorKind::Unavailable => Ok(()),
            made => made.map(|_| ()),
        }
    }

    /// Upkeep while nothing waits: one piece before the next look while watching, all that is due before a run ends.
    /// Says whether another look comes first.
    async fn keep_up_idle(
        &mut self,
        options: RunOptions,
        tell: &mut dyn FnMut(LoaderEvent),
    ) -> Result<bool> {
        if !options.available_now {
            return self.keep_up(Load::Idle, tell).await;
        }
        for _ in 0..UPKEEP_PIECES_MAX {
            if self.stop.is_asked() || !self.keep_up(Load::Idle, tell).await? {
                break;
            }
        }
        Ok(false)
    }

    /// One piece of upkeep, if one is due. Losing against other writers costs nothing but the work: it is due again later.
    async fn keep_up(&mut self, load: Load, tell: &mut dyn FnMut(LoaderEvent)) -> Result<bool> {
        match self.pipeline.keep_up(load).await {
            Ok(None) => Ok(false),
            Ok(Some(report)) => {
                tell(LoaderEvent::KeptUp(report));
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::Conflict => {
                self.tell_once(format!("upkeep is put off: {error}"), tell);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Lists, and brings the ledger up to date. `None` while a watched landing folder is missing.
    fn look(
        &mut self,
        options: RunOptions,
        tell: &mut dyn FnMut(LoaderEvent),
    ) -> Result<Option<Look>> {
        let source = self.pipeline.settings().source.clone();
        // Before the listing, so that nothing falls between the two.
        if self.watch.is_none() && !options.available_now && source.path.is_dir() {
            self.start_watch(tell);
        }
        let listing = match list(&source.path, &self.filter) {
            Err(error) if error.kind() == ErrorKind::Unavailable && !options.available_now => {
                self.watch = None;
                if !std::mem::replace(&mut self.missing, true) {
                    tell(LoaderEvent::Note(error.to_string()));
                    let checkpoint = &mut self.pipeline.checkpoint;
                    checkpoint.set_last_error(Some(error.message()))?;
                }
                return Ok(None);
            }
            listing => listing?,
        };
        if std::mem::replace(&mut self.missing, false) {
            tell(LoaderEvent::Note("the landing folder is back".into()));
            self.pipeline.checkpoint.set_last_error(None)?;
        }
        self.summary.folders_unreadable = listing.unreadable.len() as u64;
        self.tell_about(&listing, tell);
        let now = self.pipeline.clock.now();
        let is_whole = |path: &str| nobody_writes(&source.path, path);
        let checkpoint = &mut self.pipeline.checkpoint;
        let compared = checkpoint.compare(
            &listing,
            source.allow_overwrites,
            source.include_existing_files,
        )?;
        let waiting = &compared.reconciled.waiting;
        // Unless more files may turn out to wait, it is asked who writes to them while they are recorded.
        let is_long = waiting.len() >= BESIDE_RECORDING_MIN;
        let mut look = None;
        if is_long && compared.reconciled.to_rehash.is_empty() {
            let settler = &mut self.settler;
            let (recorded, seen) = beside(
                true,
                || checkpoint.record(&compared, now),
                || settler.look(waiting, now, &is_whole),
            );
            recorded?;
            look = Some(seen);
        } else {
            checkpoint.record(&compared, now)?;
        }
        let mut found = compared.reconciled;
        for file in &found.to_rehash {
            if self.check_changed(file, tell)? == FileState::Pending {
                found.waiting.push(file.clone());
            }
        }
        for path in &found.vanished {
            tell(LoaderEvent::Note(format!(
                "landing file {path} went away before it was loaded"
            )));
        }
        self.pipeline.crash.reach(CrashPoint::AfterReconcile)?;
        let look = match look {
            Some(look) => look,
            None => self.settler.look(&found.waiting, now, &is_whole),
        };
        if !found.waiting.is_empty() {
            let bytes = found.waiting.iter().map(|file| file.size).sum();
            tell(LoaderEvent::Backlog {
                files: found.waiting.len() as u64,
                bytes,
            });
        }
        Ok(Some(look))
    }

    /// A loaded file has another size or time: the content decides whether it was only touched. Returns what it is now.
    fn check_changed(
        &mut self,
        file: &LandingFile,
        tell: &mut dyn FnMut(LoaderEvent),
    ) -> Result<FileState> {
        let source = &self.pipeline.settings.source;
        let Some(record) = self.pipeline.checkpoint.file(&file.path)? else {
            return Err(Error::bug(format!(
                "file {} is not in the checkpoint",
                file.path
            )));
        };
        let hash = match hash_file(&source.path, &file.path) {
            Ok(Some(hash)) => hash,
            Ok(None) => return Ok(record.state),
            Err(error) => {
                tell(LoaderEvent::Note(error.to_string()));
                return Ok(record.state);
            }
        };
        if record.content_hash.as_deref() == Some(hash.as_str()) {
            self.pipeline.checkpoint.confirm_touched(file)?;
            return Ok(FileState::Loaded);
        }
        let policy = source.allow_overwrites;
        let state = self.pipeline.checkpoint.confirm_changed(file, policy)?;
        if record.state != state {
            tell(LoaderEvent::Note(changed_note(
                self.pipeline.settings(),
                &file.path,
                state,
            )));
        }
        Ok(state)
    }

    async fn load_settled(
        &mut self,
        look: &mut Look,
        options: RunOptions,
        tell: &mut dyn FnMut(LoaderEvent),
    ) -> Result<()> {
        let source = &self.pipeline.settings().source;
        let limits = BatchLimits {
            files_max: source.max_files_per_trigger,
            bytes_max: source.max_bytes_per_trigger,
        };
        while !self.stop.is_asked() && !self.is_enough(options) {
            let now = self.pipeline.clock.now();
            let settled = |path: &str| look.settled.contains(path);
            let checkpoint = &self.pipeline.checkpoint;
            let Some(next) = checkpoint.next_batch(&settled, limits, now)? else {
                break;
            };
            // A file that changes while it is read waits again, and only another look knows its new size.
            for file in &next.batch.files {
                look.settled.remove(&file.path);
            }
            let bytes = next.batch.files.iter().map(|file| file.size).sum();
            let report = self.pipeline.load_batch(next).await?;
            self.count(&report);
            tell(LoaderEvent::Batch(Box::new(report), bytes));
            self.keep_up(Load::Busy, tell).await?;
        }
        Ok(())
    }

    fn clean(&mut self, tell: &mut dyn FnMut(LoaderEvent)) -> Result<()> {
        let report = self.pipeline.clean_source()?;
        if report != CleanReport::default() {
            tell(LoaderEvent::Cleaned(report));
        }
        Ok(())
    }

    fn count(&mut self, report: &BatchReport) {
        self.summary.batches += u64::from(report.batch_id.is_some());
        self.summary.files += report.files;
        self.summary.rows += report.rows;
        self.summary.quarantined += report.quarantined;
    }

    fn is_enough(&self, options: RunOptions) -> bool {
        options
            .batches_max
            .is_some_and(|max| self.summary.batches >= max)
    }

    /// Waits for an event, at most `pause`; `false` when asked to stop.
    fn wait(&mut self, pause: Duration, tell: &mut dyn FnMut(LoaderEvent)) -> bool {
        let wake = match &mut self.watch {
            Some(watch) => watch.wait(pause),
            None => Watch::without_events(&self.waker).wait(pause),
        };
        match wake {
            Wake::TimedOut => self.echo = false,
            Wake::Woken => {}
            Wake::Changed { renamed_into_place } => {
                self.echo = true;
                self.settler.announce(renamed_into_place);
            }
            Wake::Overflow => {
                self.echo = true;
                tell(LoaderEvent::Note(
                    "events of the landing folder overflowed: a full listing finds what they told"
                        .into(),
                ));
            }
            Wake::Lost(message) => {
                self.watch = None;
                self.tell_once(message, tell);
            }
        }
        !self.stop.is_asked()
    }

    /// The pause before the next look, where there is reason not to take the whole of it.
    fn shorten(&mut self, pause: Duration, options: RunOptions) -> Duration {
        let mut pause = pause.min(self.pipeline.settings().source.listing_interval);
        // A folder made just now is watched a moment later; what came into it between has no event of its own.
        if self.echo {
            pause = pause.min(ECHO_PAUSE);
        }
        // The landing folder may have been missing for just the moment in which the watch was to start.
        if self.watch.is_none() && !options.available_now {
            pause = pause.min(self.watch_again_in);
            self.watch_again_in = self.watch_again_in.saturating_mul(2);
        }
        pause
    }

    /// Starts to watch, without events where they are not wanted; leaves no watch where they cannot be had now.
    fn start_watch(&mut self, tell: &mut dyn FnMut(LoaderEvent)) {
        let source = &self.pipeline.settings().source;
        if source.discovery == Discovery::List {
            self.watch = Some(Watch::without_events(&self.waker));
            return;
        }
        match Watch::start(&source.path, &self.waker) {
            Ok(watch) => {
                let degraded = watch.degraded();
                self.watch = Some(watch);
                self.watch_again_in = WATCH_AGAIN_PAUSE;
                if let Some(message) = degraded {
                    self.tell_once(message, tell);
                }
            }
            // Listing alone is enough to be right, so a watch that cannot start is no reason to stop.
            Err(error) => {
                self.tell_once(
                    format!(
                        "{error}; the folder is listed every {:?} all the same",
                        source_interval(self)
                    ),
                    tell,
                );
            }
        }
    }

    fn tell_about(&mut self, listing: &Listing, tell: &mut dyn FnMut(LoaderEvent)) {
        for (path, reason) in &listing.ignored {
            self.tell_once(format!("{path} is ignored: {reason}"), tell);
        }
        for (path, error) in &listing.unreadable {
            self.tell_once(format!("{path} cannot be read: {error}"), tell);
        }
    }

    /// Tells a line once in the life of the loop, however often its cause is seen.
    fn tell_once(&mut self, line: String, tell: &mut dyn FnMut(LoaderEvent)) {
        if !self.told.contains(&line) {
            tell(LoaderEvent::Note(line.clone()));
            self.told.push(line);
        }
    }
}

/// Which files of the landing folder are taken; what the loader itself writes below it is not.
pub fn filter_of(settings: &PipelineSettings) -> Result<Filter> {
    let mut excluded = vec![
        settings.checkpoint.clone(),
        settings.bronze.path.clone(),
        settings.bronze.quarantine_path(),
    ];
    excluded.extend(settings.silver.as_ref().map(|silver| silver.path.clone()));
    if let CleanSource::Move(folder) = &settings.source.clean_source {
        excluded.push(folder.clone());
    }
    let glob = settings.source.path_glob_filter.as_deref();
    Filter::new(settings.source.format, glob, &excluded).map_err(|error| {
        Error::settings(error.message()).context(format!("pipeline {}", settings.name))
    })
}

/// What a change of a loaded file means, and what to do where it is parked.
fn changed_note(settings: &PipelineSettings, path: &str, state: FileState) -> String {
    let note = format!("landing file {path} changed after it was loaded: {state}");
    match state {
        FileState::Parked => format!(
            "{note}; landfall reset {} --files '{path}' loads its present bytes",
            settings.name
        ),
        FileState::Pending | FileState::Planned | FileState::Loaded | FileState::Cleaned => note,
    }
}

fn source_interval(loader: &Loader) -> Duration {
    loader.pipeline.settings().source.listing_interval
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::crash::CrashSwitch;
    use crate::settings::{Request, Settings};
    use std::path::Path;

    /// A loop over the landing folder `in`, with these keys of its source.
    async fn loader_in(folder: &Path, source: &str) -> Loader {
        let text = format!(
            "[pipeline.p]\ncheckpoint = \"c.db\"\nsource = {{ path = \"in\", {source} }}\nbronze.path = \"b\"\n"
        );
        std::fs::write(folder.join("landfall.toml"), text).unwrap();
        std::fs::create_dir(folder.join("in")).unwrap();
        let settings = Settings::load(&Request::in_folder(folder));
        let settings = settings.unwrap().pipelines.remove(0);
        let opened = Pipeline::open(settings, Arc::new(SystemClock), CrashSwitch::default()).await;
        let (pipeline, recovery) = opened.unwrap();
        let started = Loader::start(pipeline, recovery, Stop::default(), &mut |_| {}).await;
        started.unwrap()
    }

    #[tokio::test]
    async fn watch_that_could_not_start_is_tried_again_soon() {
        let folder = tempfile::tempdir().unwrap();
        let mut loader = loader_in(folder.path(), "listing_interval = \"1h\"").await;
        let hour = Duration::from_secs(3600);
        let options = RunOptions::default();
        // The folder is missing while the watch starts, and back for the listing.
        std::fs::remove_dir(folder.path().join("in")).unwrap();
        loader.start_watch(&mut |_| {});
        std::fs::create_dir(folder.path().join("in")).unwrap();
        let pauses = [(); 3].map(|()| loader.shorten(hour, options).as_secs());
        assert_eq!(pauses, [1, 2, 4]);
        assert!(loader.look(options, &mut |_| {}).unwrap().is_some());
        assert_eq!(loader.shorten(hour, options), hour);
        std::fs::write(folder.path().join("in/a.jsonl"), "{}").unwrap();
        assert!(matches!(
            loader.watch.as_mut().unwrap().wait(hour),
            Wake::Changed { .. }
        ));
    }

    #[tokio::test]
    async fn file_that_grows_after_the_listing_is_listed_again_and_loaded_whole() {
        let folder = tempfile::tempdir().unwrap();
        let mut loader = loader_in(folder.path(), "settle = \"0s\"").await;
        let growing = folder.path().join("in/a.jsonl");
        std::fs::write(&growing, "").unwrap();
        let options = RunOptions {
            available_now: true,
            // Trying it again without a listing would use these up.
            batches_max: Some(10),
        };
        let mut grown = false;
        let mut grow = |event: LoaderEvent| {
            // Told after the listing and before the plan.
            if matches!(event, LoaderEvent::Backlog { .. }) && !std::mem::replace(&mut grown, true)
            {
                std::fs::write(&growing, "{\"id\":1}\n{\"id\":2}\n").unwrap();
            }
        };
        let summary = loader.run(options, &mut grow).await.unwrap();
        assert!(grown);
        assert_eq!((summary.rows, summary.files_pending), (2, 0));
        assert_eq!(summary.batches, 2);
    }
}
