//! `status`, `files`, `plan`: reports that change nothing.

use super::{counted, time_json, time_text};
use crate::cli::checked::{Files, Plan, Status};
use crate::output;
use crate::secret::without_secrets;
use landfall::checkpoint::{CheckpointStore, FileRecord, FileState};
use landfall::clock::{Clock, SystemClock};
use landfall::error::Result;
use landfall::preview::{Preview, preview};
use landfall::quarantine::{QuarantineTable, QuarantinedRecord};
use landfall::settings::PipelineSettings;
use landfall::status::{StatusReport, TableUpkeep, status as read_status};
use serde_json::{Value, json};

/// Prints the state of the pipelines.
pub(crate) async fn status(command: Status) -> Result<()> {
    let mut reports = Vec::new();
    for pipeline in &command.settings.pipelines {
        let report = read_status(pipeline, SystemClock.now()).await;
        reports.push(report.map_err(|error| error.of_pipeline(&pipeline.name))?);
    }
    if let Some(mode) = command.json {
        return output::print_json_list(&reports.iter().map(status_json).collect::<Vec<_>>(), mode);
    }
    let lines: Vec<String> = reports.iter().map(status_text).collect();
    output::print_text(&lines.join("\n"))
}

/// Prints one line for each file ever seen.
pub(crate) fn files(command: &Files) -> Result<()> {
    let state = command
        .state
        .map(|state| FileState::parse(state.as_str()))
        .transpose()?;
    let mut records = Vec::new();
    if let Some(checkpoint) = CheckpointStore::open_read_only(&command.pipeline.checkpoint)? {
        checkpoint.files(state, &mut |file| records.push(file))?;
    }
    if let Some(mode) = command.json {
        return output::print_json_list(&records.iter().map(file_json).collect::<Vec<_>>(), mode);
    }
    let cells = |file: &FileRecord| {
        vec![
            file.path.clone(),
            file.state.to_string(),
            file.known_size()
                .map_or_else(String::new, |size| size.to_string()),
            file.rows_loaded.to_string(),
            file.rows_quarantined.to_string(),
            file.batch_id
                .map_or_else(String::new, |batch| batch.to_string()),
            file.loaded_at.map_or_else(String::new, time_text),
            reason_text(file),
        ]
    };
    let names = [
        "path",
        "state",
        "size",
        "rows",
        "quarantined",
        "batch",
        "loaded_at",
        "reason",
    ];
    output::print_table(&names, &records.iter().map(cells).collect::<Vec<_>>())
}

/// Prints what a run would load.
pub(crate) async fn plan(command: Plan) -> Result<()> {
    let mut plans = Vec::new();
    for pipeline in &command.settings.pipelines {
        let plan = preview(pipeline, SystemClock.now()).await;
        let plan = plan.map_err(|error| error.of_pipeline(&pipeline.name))?;
        plans.push((pipeline.name.clone(), plan));
    }
    if let Some(mode) = command.json {
        return output::print_json_list(&plans.iter().map(plan_json).collect::<Vec<_>>(), mode);
    }
    let lines: Vec<String> = plans
        .iter()
        .map(|(name, plan)| plan_text(name, plan))
        .collect();
    output::print_text(&lines.join("\n"))
}

/// Every refused record of a pipeline, by file and row.
pub(crate) async fn refused(pipeline: &PipelineSettings) -> Result<Vec<QuarantinedRecord>> {
    QuarantineTable::open(&pipeline.bronze.quarantine_path())
        .await?
        .rows(None, None)
}

fn reason_text(file: &FileRecord) -> String {
    match (&file.reason, &file.detail) {
        (Some(reason), Some(detail)) => format!("{reason}: {}", without_secrets(detail)),
        (Some(text), None) | (None, Some(text)) => text.clone(),
        (None, None) => String::new(),
    }
}

fn file_json(file: &FileRecord) -> Value {
    json!({
        "path": file.path,
        "state": file.state.as_str(),
        "size": file.known_size(),
        "modified_at": time_text(file.modified_at),
        "content_hash": file.content_hash,
        "rows_loaded": file.rows_loaded,
        "rows_quarantined": file.rows_quarantined,
        "batch_id": file.batch_id.map(|batch| batch.0),
        "bronze_version": file.bronze_version.map(|version| version.0),
        "discovered_at": time_text(file.discovered_at),
        "loaded_at": time_json(file.loaded_at),
        "attempts": file.attempts,
        "next_try_at": time_json(file.next_try_at),
        "reason": file.reason,
        "detail": file.detail.as_deref().map(without_secrets),
    })
}

fn status_json(report: &StatusReport) -> Value {
    let counts = &report.counts;
    json!({
        "pipeline": report.pipeline,
        "running": report.running.as_ref().map(|holder| json!({ "pid": holder.pid, "since": holder.since })),
        "files": {
            "pending": counts.pending,
            "planned": counts.planned,
            "loaded": counts.loaded,
            "parked": counts.parked,
            "cleaned": counts.cleaned,
        },
        "bytes_pending": counts.bytes_pending,
        "oldest_pending_seconds": report.oldest_pending_seconds,
        "rows": { "loaded": counts.rows_loaded, "quarantined": counts.rows_quarantined },
        "bronze": report.bronze.map(|(version, rows)| with_upkeep(
            json!({ "version": version.0, "rows": rows }),
            report.bronze_upkeep.as_ref(),
        )),
        "quarantine": report.quarantine_upkeep.map(|upkeep| with_upkeep(json!({}), Some(&upkeep))),
        "silver": report.silver.map(|silver| with_upkeep(
            json!({
                "version": silver.version.0,
                "rows": silver.rows,
                "deleted": silver.deleted,
                "applied_up_to_bronze_version": silver.applied_up_to_bronze_version.map(|version| version.0),
            }),
            Some(&silver.upkeep),
        )),
        "last_batch": report.last_batch.as_ref().map(|batch| json!({
            "batch_id": batch.batch_id.0,
            "files": batch.files,
            "rows": batch.rows,
            "seconds": batch.counters.seconds,
            "rows_inserted": batch.counters.rows_inserted,
            "rows_updated": batch.counters.rows_updated,
            "rows_deleted": batch.counters.rows_deleted,
            "rows_late": batch.counters.rows_late,
            "rows_repeated": batch.counters.rows_repeated,
            "conflicts": batch.counters.conflicts,
        })),
        "last_error": report.last_error.as_deref().map(without_secrets),
    })
}

fn with_upkeep(mut table: Value, upkeep: Option<&TableUpkeep>) -> Value {
    if let (Some(upkeep), Value::Object(fields)) = (upkeep, &mut table) {
        let ratio = (upkeep.deleted_rows_ratio * 1e4).round() / 1e4;
        fields.insert("files".into(), json!(upkeep.files));
        fields.insert("deleted_rows_ratio".into(), json!(ratio));
        let entries = upkeep.log_entries_since_checkpoint;
        fields.insert("log_entries_since_checkpoint".into(), json!(entries));
    }
    table
}

/// Whether the tables are in good order, one part for each table.
fn upkeep_text(report: &StatusReport) -> String {
    let silver = report.silver.map(|silver| silver.upkeep);
    let tables = [
        ("bronze", report.bronze_upkeep),
        ("quarantine", report.quarantine_upkeep),
        ("silver", silver),
    ];
    let part = |(name, upkeep): (&str, Option<TableUpkeep>)| {
        let upkeep = upkeep?;
        let deleted = match upkeep.deleted_rows_ratio {
            0.0 => String::new(),
            ratio => format!(", {:.1} % of their rows deleted", ratio * 100.0),
        };
        Some(format!(
            "{name} {}{deleted}, {} log entries since the last log checkpoint",
            counted(upkeep.files as u64, "file"),
            upkeep.log_entries_since_checkpoint
        ))
    };
    let parts: Vec<String> = tables.into_iter().filter_map(part).collect();
    parts.join("; ")
}

fn status_text(report: &StatusReport) -> String {
    let counts = &report.counts;
    let mut lines = vec![report.pipeline.clone()];
    let mut line = |name: &str, text: String| lines.push(format!("  {name:<11} {text}"));
    if let Some(holder) = &report.running {
        let pid = holder
            .pid
            .map_or_else(|| "unknown".into(), |pid| pid.to_string());
        line("running", format!("process {pid} since {}", holder.since));
    }
    line(
        "files",
        format!(
            "{} loaded, {} pending, {} planned, {} parked, {} cleaned",
            counts.loaded, counts.pending, counts.planned, counts.parked, counts.cleaned
        ),
    );
    if let Some(seconds) = report.oldest_pending_seconds {
        line(
            "waiting",
            format!(
                "{} bytes, the oldest since {seconds:.0} s",
                counts.bytes_pending
            ),
        );
    }
    line(
        "rows",
        format!(
            "{} loaded, {} in quarantine",
            counts.rows_loaded, counts.rows_quarantined
        ),
    );
    if let Some((version, rows)) = report.bronze {
        line("bronze", format!("version {version}, {rows} rows"));
    }
    if let Some(silver) = &report.silver {
        let applied = silver
            .applied_up_to_bronze_version
            .map_or_else(|| "none".into(), |version| version.to_string());
        line(
            "silver",
            format!(
                "version {}, {} rows of which {} deleted, applied up to bronze version {applied}",
                silver.version, silver.rows, silver.deleted
            ),
        );
    }
    let upkeep = upkeep_text(report);
    if !upkeep.is_empty() {
        line("upkeep", upkeep);
    }
    if let Some(batch) = &report.last_batch {
        let counters = &batch.counters;
        line(
            "last batch",
            format!(
                "{}: {}, {}; {} inserted, {} updated, {} deleted, {} late, {} repeated, {} conflicts ({:.2} s)",
                batch.batch_id,
                counted(batch.files, "file"),
                counted(batch.rows, "row"),
                counters.rows_inserted,
                counters.rows_updated,
                counters.rows_deleted,
                counters.rows_late,
                counters.rows_repeated,
                counters.conflicts,
                counters.seconds
            ),
        );
    }
    if let Some(error) = &report.last_error {
        line("last error", without_secrets(error));
    }
    lines.join("\n") + "\n"
}

fn plan_json((name, plan): &(String, Preview)) -> Value {
    let file = |file: &landfall::preview::PreviewFile| {
        json!({
            "path": file.path,
            "size": file.size,
            "rows": file.rows,
            "rejects": file.rejects,
            "reason": file.fault.as_ref().map(|fault| fault.reason.as_str()),
            "detail": file.fault.as_ref().map(|fault| fault.detail.as_str()),
        })
    };
    let column =
        |(name, data_type): &(String, String)| json!({ "column": name, "type": data_type });
    json!({
        "pipeline": name,
        "files": plan.files.iter().map(file).collect::<Vec<_>>(),
        "rows": plan.files.iter().map(|file| file.rows).sum::<u64>(),
        "rejects": plan.files.iter().map(|file| file.rejects).sum::<u64>(),
        "keys": plan.keys,
        "new_columns": plan.new_columns.iter().map(column).collect::<Vec<_>>(),
        "changed_after_load": plan.changed,
    })
}

fn plan_text(name: &str, plan: &Preview) -> String {
    let mut lines = Vec::new();
    for file in &plan.files {
        let rejects = if file.rejects > 0 {
            format!(", {} to quarantine", counted(file.rejects, "record"))
        } else {
            String::new()
        };
        lines.push(match &file.fault {
            Some(fault) => format!(
                "  {}: would be parked: {}: {}",
                file.path,
                fault.reason.as_str(),
                fault.detail
            ),
            None => format!("  {}: {}{rejects}", file.path, counted(file.rows, "row")),
        });
    }
    lines.extend(
        plan.new_columns
            .iter()
            .map(|(column, data_type)| format!("  new column {column} {data_type}")),
    );
    lines.extend(
        plan.changed
            .iter()
            .map(|path| format!("  {path}: changed after it was loaded")),
    );
    let rows = plan.files.iter().map(|file| file.rows).sum();
    let head = if plan.files.is_empty() {
        format!("{name}: nothing to load")
    } else {
        let files = counted(plan.files.len() as u64, "file");
        format!(
            "{name}: {files}, {} of {} would load",
            counted(rows, "row"),
            counted(plan.keys, "key")
        )
    };
    lines.insert(0, head);
    lines.join("\n") + "\n"
}
