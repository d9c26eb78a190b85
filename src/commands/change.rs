//! `reset`, `quarantine --retry`, `maintain`: commands that change tables or the checkpoint.

use super::counted;
use crate::cli::checked::{Maintain, Quarantine, Reset, ResetWhich};
use crate::message::{Level, Messages, confirm};
use crate::output;
use landfall::checkpoint::{FileRecord, Selector};
use landfall::clock::SystemClock;
use landfall::crash::CrashSwitch;
use landfall::error::Result;
use landfall::maintain::{MaintainReport, maintain as keep_up};
use landfall::protocol::Pipeline;
use landfall::reset::ResetPlan;
use landfall::settings::PipelineSettings;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Forgets files, so that the next run loads them again.
pub(crate) async fn reset(command: Reset, messages: Messages) -> Result<()> {
    let selector = match command.which {
        ResetWhich::Files(glob) => Selector::Glob(glob),
        ResetWhich::Failed => Selector::Failed,
        ResetWhich::All => Selector::All,
    };
    let mut pipeline = open(&command.pipeline, messages).await?;
    let plan = pipeline.plan_reset(&selector)?;
    print_plan(&plan)?;
    let name = &command.pipeline.name;
    if command.dry_run {
        return output::print_text("nothing was changed\n");
    }
    if plan.files.is_empty() {
        return output::print_text("no file matches, nothing was changed\n");
    }
    if !confirm(
        &format!(
            "forget {} of {name}?",
            counted(plan.files.len() as u64, "file")
        ),
        command.yes,
    )? {
        return output::print_text("nothing was changed\n");
    }
    pipeline.recover().await?;
    let plan = pipeline.plan_reset(&selector)?;
    pipeline.reset(&plan)?;
    let files = counted(plan.files.len() as u64, "file");
    output::print_text(&format!(
        "{files} forgotten; landfall run {name} loads them again\n"
    ))
}

/// Forgets the files that have refused records, so that the next run loads them again.
pub(crate) async fn retry(command: &Quarantine, messages: Messages) -> Result<()> {
    let refused = super::report::refused(&command.pipeline).await?;
    let paths: BTreeSet<String> = refused.into_iter().map(|record| record.file_path).collect();
    let mut pipeline = open(&command.pipeline, messages).await?;
    pipeline.recover().await?;
    let all = pipeline.plan_reset(&Selector::All)?;
    let held = |files: Vec<FileRecord>| {
        files
            .into_iter()
            .filter(|file| paths.contains(&file.path))
            .collect()
    };
    let plan = ResetPlan {
        files: held(all.files),
        gone: held(all.gone),
    };
    print_plan(&plan)?;
    pipeline.reset(&plan)?;
    let files = counted(plan.files.len() as u64, "file");
    let name = &command.pipeline.name;
    output::print_text(&format!(
        "{files} with refused records forgotten; landfall run {name} loads them again\n"
    ))
}

/// Compacts, writes log checkpoints, and with `--vacuum` removes old files.
pub(crate) async fn maintain(command: Maintain, messages: Messages) -> Result<()> {
    for pipeline in &command.settings.pipelines {
        let kept_up = keep_up_one(pipeline, command.vacuum, messages).await;
        kept_up.map_err(|error| error.of_pipeline(&pipeline.name))?;
    }
    Ok(())
}

async fn keep_up_one(settings: &PipelineSettings, vacuum: bool, messages: Messages) -> Result<()> {
    let mut pipeline = open(settings, messages).await?;
    pipeline.recover().await?;
    for report in keep_up(&mut pipeline, vacuum).await? {
        output::print_text(&maintained(&settings.name, &report))?;
    }
    Ok(())
}

/// Opens a pipeline, and says what that mended.
pub(super) async fn open(settings: &PipelineSettings, messages: Messages) -> Result<Pipeline> {
    let opened = Pipeline::open(
        settings.clone(),
        Arc::new(SystemClock),
        CrashSwitch::default(),
    )
    .await;
    let (pipeline, recovery) = opened?;
    for note in recovery.notes {
        messages.say(Level::Warning, &note);
    }
    Ok(pipeline)
}

fn print_plan(plan: &ResetPlan) -> Result<()> {
    let mut text = String::new();
    for file in &plan.files {
        text += &format!(
            "{}  {}  {}\n",
            file.path,
            file.state,
            counted(file.rows_loaded, "row")
        );
    }
    for file in &plan.gone {
        text += &format!("{}  stays: its source file is gone\n", file.path);
    }
    output::print_text(&text)
}

fn maintained(name: &str, report: &MaintainReport) -> String {
    format!("{name}: {}\n", maintained_text(report))
}

/// One line about what was done to one table.
pub(crate) fn maintained_text(report: &MaintainReport) -> String {
    let compacted = &report.compacted;
    let mut parts = Vec::new();
    if compacted.files_removed > 0 {
        parts.push(format!(
            "{} became {} ({} of {} bytes, {} after)",
            counted(compacted.files_removed as u64, "file"),
            counted(compacted.files_added as u64, "file"),
            counted(compacted.rows, "row"),
            compacted.bytes_removed,
            compacted.bytes_added
        ));
    }
    if let Some(cleaned) = &report.log_cleaned {
        let entries = match cleaned.entries {
            0 => String::new(),
            1 => ", 1 old log entry removed".to_string(),
            count => format!(", {count} old log entries removed"),
        };
        parts.push(format!("log checkpoint written{entries}"));
    }
    if let Some(vacuum) = &report.vacuumed {
        parts.push(format!(
            "{} of {} bytes removed",
            counted(vacuum.files.len() as u64, "old file"),
            vacuum.bytes
        ));
    }
    format!("{}: {}", report.table, parts.join(", "))
}
