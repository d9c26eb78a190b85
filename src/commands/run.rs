//! `run`: one loop for each pipeline, a line for each batch, a closing summary.

use super::counted;
use crate::cli::checked::Run;
use crate::message::{Level, Messages};
use indicatif::{ProgressBar, ProgressStyle};
use landfall::clock::SystemClock;
use landfall::crash::CrashSwitch;
use landfall::error::{Error, Result};
use landfall::huge_pages;
use landfall::loader::{Loader, LoaderEvent, RunOptions, RunSummary, Stop};
use landfall::protocol::{BatchReport, Pipeline};
use landfall::settings::PipelineSettings;
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// A stop that a large micro-batch holds up drops the batch after this time; the next start does it again.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// Runs the pipelines: one after the other with `--available-now`, side by side while watching.
pub(crate) async fn run(run: Run, messages: Messages) -> Result<ExitCode> {
    huge_pages::refuse();
    let stop = Stop::default();
    listen_for_signals(stop.clone(), messages)?;
    let options = RunOptions {
        available_now: run.available_now,
        batches_max: run.max_batches,
    };
    let pipelines = run.settings.pipelines;
    let several = pipelines.len() > 1;
    let results: Vec<(String, Ended)> = if run.available_now {
        let mut results = Vec::new();
        for pipeline in pipelines {
            let name = pipeline.name.clone();
            let result = one(pipeline, options, stop.clone(), messages).await;
            results.push((name.clone(), told(result, &name, several, messages)));
        }
        results
    } else {
        side_by_side(pipelines, options, &stop, messages)
    };
    Ok(end(results, stop.is_asked(), messages))
}

/// How the loop of one pipeline ended; an error was told, and its exit code is left.
type Ended = std::result::Result<RunSummary, u8>;

/// Tells an error when it happens: the other pipelines may go on for long.
fn told(result: Result<RunSummary>, name: &str, several: bool, messages: Messages) -> Ended {
    result.map_err(|error| {
        let error = error.of_pipeline(name);
        let error = if several {
            error.context(format!("pipeline {name}"))
        } else {
            error
        };
        messages.error(&error);
        error.exit_code()
    })
}

async fn one(
    pipeline: PipelineSettings,
    options: RunOptions,
    stop: Stop,
    messages: Messages,
) -> Result<RunSummary> {
    let mut teller = Teller::new(&pipeline.name, messages);
    let opened = Pipeline::open(pipeline, Arc::new(SystemClock), CrashSwitch::default()).await;
    let (pipeline, recovery) = opened?;
    let path = pipeline.settings().source.path.display().to_string();
    messages.say(
        Level::Detail,
        &format!(
            "{}: landing folder {path}, listed at start and at least every {:?}",
            teller.name,
            pipeline.settings().source.listing_interval
        ),
    );
    let mut loader =
        Loader::start(pipeline, recovery, stop, &mut |event| teller.tell(event)).await?;
    if !options.available_now {
        messages.say(Level::Info, &format!("{}: watching {path}", teller.name));
    }
    let summary = loader.run(options, &mut |event| teller.tell(event)).await?;
    teller.close(&summary);
    Ok(summary)
}

/// Each pipeline in a thread of its own, so that a large batch of one does not hold up the others.
fn side_by_side(
    pipelines: Vec<PipelineSettings>,
    options: RunOptions,
    stop: &Stop,
    messages: Messages,
) -> Vec<(String, Ended)> {
    let several = pipelines.len() > 1;
    let run_one = |pipeline: PipelineSettings| {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build();
        let runtime = runtime
            .map_err(|error| Error::unavailable(format!("the runtime cannot start: {error}")))?;
        runtime.block_on(one(pipeline, options, stop.clone(), messages))
    };
    let start = |pipeline: PipelineSettings| {
        let name = pipeline.name.clone();
        let run_one = &run_one;
        let work = {
            let name = name.clone();
            move || told(run_one(pipeline), &name, several, messages)
        };
        (name, work)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = pipelines
            .into_iter()
            .map(start)
            .map(|(name, work)| (name, scope.spawn(work)))
            .collect();
        let join = |(name, thread): (String, std::thread::ScopedJoinHandle<'_, Ended>)| {
            let panicked = |_| {
                let error = Error::bug(format!("the loop of {name} panicked"));
                told(Err(error), &name, several, messages)
            };
            let ended = thread.join().unwrap_or_else(panicked);
            (name, ended)
        };
        threads.into_iter().map(join).collect()
    })
}

/// The exit code of all pipelines together; the last line says what needs a look. A run that was asked to stop is not
/// done, so what needs a look is no part of its code.
fn end(results: Vec<(String, Ended)>, stopped: bool, messages: Messages) -> ExitCode {
    let failure = results
        .iter()
        .find_map(|(_, ended)| ended.as_ref().err().copied());
    let looks: Vec<String> = results
        .iter()
        .filter_map(|(name, ended)| needs_look(name, ended.as_ref().ok()?))
        .collect();
    for look in &looks {
        // Beside the line on stdout, so that it is also the last one on stderr.
        messages.say(Level::Warning, look);
    }
    match failure {
        Some(code) => ExitCode::from(code),
        None if looks.is_empty() || stopped => ExitCode::SUCCESS,
        None => ExitCode::from(3),
    }
}

fn needs_look(name: &str, summary: &RunSummary) -> Option<String> {
    let mut parts = Vec::new();
    if summary.files_parked > 0 {
        let files = counted(summary.files_parked, "file");
        parts.push(format!(
            "{files} parked (landfall files {name} --state parked)"
        ));
    }
    if summary.records_quarantined > 0 {
        let records = counted(summary.records_quarantined, "record");
        parts.push(format!(
            "{records} in quarantine (landfall quarantine {name})"
        ));
    }
    if summary.clean_failed > 0 {
        let files = counted(summary.clean_failed, "source file");
        parts.push(format!(
            "{files} not cleaned (landfall files {name} --state loaded)"
        ));
    }
    if summary.folders_unreadable > 0 {
        let places = counted(summary.folders_unreadable, "place");
        parts.push(format!("{places} below the landing folder cannot be read"));
    }
    (!parts.is_empty()).then(|| format!("{name}: {}", parts.join(", ")))
}

/// The first signal asks the loops to end; the second ends the process at once, as a kill would.
fn listen_for_signals(stop: Stop, messages: Messages) -> Result<()> {
    let wrong =
        |error: std::io::Error| Error::unavailable(format!("signals cannot be caught: {error}"));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(wrong)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(wrong)?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(wrong)?;
    // The loops may hold every thread of the runtime that started them, so signals have one of their own.
    let listen = async move {
        let mut next = async || {
            tokio::select! {
                _ = interrupt.recv() => (),
                _ = terminate.recv() => (),
                _ = hang_up.recv() => (),
            }
        };
        next().await;
        stop.ask();
        let patience = tokio::time::sleep(STOP_PATIENCE);
        tokio::select! {
            () = next() => std::process::exit(1),
            () = patience => {
                messages.say(
                    Level::Warning,
                    "the present batch is dropped; the next start does it again",
                );
                std::process::exit(0)
            }
        }
    };
    tokio::spawn(listen);
    Ok(())
}

/// Tells one pipeline's person what happens.
struct Teller {
    name: String,
    messages: Messages,
    bar: Option<ProgressBar>,
    rows: u64,
    spoke: bool,
}

impl Teller {
    fn new(name: &str, messages: Messages) -> Self {
        Teller {
            name: name.to_string(),
            messages,
            bar: None,
            rows: 0,
            spoke: false,
        }
    }

    fn tell(&mut self, event: LoaderEvent) {
        match event {
            LoaderEvent::Note(note) => self.say(Level::Warning, &note),
            LoaderEvent::Backlog { files, bytes } => self.backlog(files, bytes),
            LoaderEvent::Batch(report, bytes) => self.batch(&report, bytes),
            LoaderEvent::KeptUp(report) => {
                self.say(Level::Detail, &super::change::maintained_text(&report));
            }
            LoaderEvent::Cleaned(report) => {
                if report.cleaned > 0 {
                    self.say(
                        Level::Detail,
                        &format!("{} cleaned", counted(report.cleaned, "source file")),
                    );
                }
                for (path, detail) in report.failed {
                    self.say(
                        Level::Warning,
                        &format!("source file {path} cannot be cleaned: {detail}"),
                    );
                }
            }
        }
    }

    fn batch(&mut self, report: &BatchReport, bytes: u64) {
        self.rows += report.rows;
        if let Some(bar) = &self.bar {
            bar.inc(bytes);
            bar.set_message(format!("{} rows", self.rows));
        }
        let line = format!("{}: {}", self.name, batch_line(report));
        self.print(&line);
        if report.counters.rows_left_out > 0 {
            let rows = counted(report.counters.rows_left_out, "row");
            self.say(Level::Warning, &format!("{rows} of bronze are no events by the rules of silver (operation outside the set, NULL key or sequence) and stay out of it"));
        }
        for (path, fault) in &report.parked {
            let line = format!(
                "landing file {path} is parked: {}: {}",
                fault.reason.as_str(),
                fault.detail
            );
            self.say(Level::Warning, &line);
        }
        for column in &report.new_columns {
            self.say(Level::Info, &format!("bronze gained column {column}"));
        }
    }

    fn backlog(&mut self, files: u64, bytes: u64) {
        self.say(
            Level::Detail,
            &format!("{} of {bytes} bytes wait", counted(files, "file")),
        );
        if !self.messages.shows_progress() {
            return;
        }
        let style = "{spinner} {msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::new(0);
            bar.set_style(
                ProgressStyle::with_template(style)
                    .unwrap_or_else(|_| ProgressStyle::default_bar()),
            );
            bar
        });
        bar.set_length(bar.position() + bytes);
    }

    fn close(&mut self, summary: &RunSummary) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        self.print(&format!("{}: {}", self.name, summary_line(summary)));
        if let Some(look) = needs_look(&self.name, summary) {
            self.print(&look);
        }
    }

    /// The lines that a run is for go to stdout.
    fn print(&mut self, line: &str) {
        self.spoke = true;
        if !self.messages.shows(Level::Info) {
            return;
        }
        if self.messages.is_json() {
            self.messages.say(Level::Info, line);
            return;
        }
        let write = || {
            // A reader that went away is no reason to stop loading.
            let _ = writeln!(std::io::stdout().lock(), "{line}");
        };
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    fn say(&self, level: Level, message: &str) {
        let say = || {
            self.messages
                .say(level, &format!("{}: {message}", self.name))
        };
        match &self.bar {
            Some(bar) => bar.suspend(say),
            None => say(),
        }
    }
}

fn batch_line(report: &BatchReport) -> String {
    let mut line = match report.batch_id {
        Some(batch) => format!(
            "batch {batch}: {}, {}",
            counted(report.files, "file"),
            counted(report.rows, "row")
        ),
        None => "catching up".to_string(),
    };
    if report.quarantined > 0 {
        line += &format!(", {} to quarantine", counted(report.quarantined, "record"));
    }
    if !report.parked.is_empty() {
        line += &format!(", {} parked", counted(report.parked.len() as u64, "file"));
    }
    if let Some(version) = report.bronze_version {
        line += &format!(" -> bronze {version}");
    }
    if let Some(version) = report.silver_version {
        let counters = &report.counters;
        line += &format!(
            " -> silver {version}: {} inserted, {} updated, {} deleted",
            counters.rows_inserted, counters.rows_updated, counters.rows_deleted
        );
        let fates = [
            ("late", counters.rows_late),
            ("repeated", counters.rows_repeated),
            ("in conflict", counters.conflicts),
        ];
        for (fate, count) in fates.into_iter().filter(|(_, count)| *count > 0) {
            line += &format!(", {count} {fate}");
        }
    }
    line + &format!(" ({:.2} s)", report.seconds)
}

fn summary_line(summary: &RunSummary) -> String {
    let mut line = if summary.batches == 0 {
        "nothing new".to_string()
    } else {
        format!(
            "done: {}, {} loaded in {}",
            counted(summary.files, "file"),
            counted(summary.rows, "row"),
            counted(summary.batches, "batch").replace("batchs", "batches")
        )
    };
    if summary.files_pending > 0 {
        line += &format!(", {} pending", counted(summary.files_pending, "file"));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use landfall::change::{BatchId, Version};
    use landfall::silver::ApplyCounters;

    #[test]
    fn batch_line_names_only_what_happened() {
        let report = BatchReport {
            batch_id: Some(BatchId(7)),
            files: 1,
            rows: 2,
            bronze_version: Some(Version(4)),
            silver_version: Some(Version(3)),
            counters: ApplyCounters {
                rows_updated: 1,
                rows_late: 1,
                ..ApplyCounters::default()
            },
            seconds: 0.125,
            ..BatchReport::default()
        };
        let line = batch_line(&report);
        assert_eq!(
            line,
            "batch 7: 1 file, 2 rows -> bronze 4 -> silver 3: 0 inserted, 1 updated, 0 deleted, 1 late (0.12 s)"
        );
    }

    #[test]
    fn summary_without_a_batch_says_nothing_new() {
        assert_eq!(summary_line(&RunSummary::default()), "nothing new");
        let summary = RunSummary {
            batches: 2,
            files: 3,
            rows: 9,
            files_pending: 1,
            ..RunSummary::default()
        };
        assert_eq!(
            summary_line(&summary),
            "done: 3 files, 9 rows loaded in 2 batches, 1 file pending"
        );
    }
}
