//! `verify`: the audit, and its exit code.

use super::counted;
use crate::cli::JsonMode;
use crate::cli::checked::Verify;
use crate::message::{Level, Messages};
use crate::output;
use landfall::error::Result;
use landfall::verify::{VerifyReport, verify_pipeline as audit};
use serde_json::{Value, json};
use std::process::ExitCode;

/// Prints what the audit found; 1 where anything disagrees.
pub(crate) async fn verify(command: Verify, messages: Messages) -> Result<ExitCode> {
    let pipeline = &command.pipeline;
    let report = audit(pipeline).await?;
    match command.json {
        Some(JsonMode::Lines) => {
            output::print_json_list(&[report_json(&pipeline.name, &report)], JsonMode::Lines)?
        }
        Some(JsonMode::Document) => output::print_json(&report_json(&pipeline.name, &report))?,
        None => output::print_text(&report_text(&pipeline.name, &report))?,
    }
    if let Some(unsettled) = &report.unsettled {
        messages.say(Level::Warning, &format!("{}: {unsettled}", pipeline.name));
    }
    if report.is_clean() {
        return Ok(ExitCode::SUCCESS);
    }
    messages.say(
        Level::Error,
        &format!("{} does not agree with itself", pipeline.name),
    );
    Ok(ExitCode::FAILURE)
}

fn report_json(name: &str, report: &VerifyReport) -> Value {
    let file = |file: &landfall::verify::DisagreeingFile| json!({ "path": file.path, "finding": file.finding });
    json!({
        "pipeline": name,
        "ok": report.is_clean(),
        "files": report.files.files,
        "bronze_rows": report.files.bronze_rows,
        "quarantined": report.files.quarantined,
        "disagreeing_files": report.files.disagreeing.iter().map(file).collect::<Vec<_>>(),
        "silver_behind": report.silver_behind,
        "unsettled": report.unsettled,
        "silver": report.silver.as_ref().map(|silver| json!({
            "missing": silver.missing,
            "differing": silver.differing,
            "surplus": silver.surplus,
            "left_out": silver.left_out,
            "examples": silver.examples,
        })),
    })
}

fn report_text(name: &str, report: &VerifyReport) -> String {
    let files = &report.files;
    let mut lines = vec![format!(
        "{name}: {}, {} in bronze, {} in quarantine",
        counted(files.files, "loaded file"),
        counted(files.bronze_rows, "row"),
        counted(files.quarantined, "record")
    )];
    lines.extend(
        files
            .disagreeing
            .iter()
            .map(|file| format!("  {}: {}", file.path, file.finding)),
    );
    if let Some(silver) = &report.silver {
        let verdict = if silver.is_empty() {
            "silver is the fold of bronze".to_string()
        } else if report.silver_behind {
            "silver lacks versions of bronze: run landfall run first".to_string()
        } else {
            format!(
                "silver differs from the fold of bronze: {} missing, {} differing, {} surplus",
                silver.missing, silver.differing, silver.surplus
            )
        };
        lines.push(format!("{name}: {verdict}"));
        if silver.left_out > 0 {
            let rows = counted(silver.left_out, "row");
            lines.push(format!(
                "{name}: {rows} of bronze are no events by the rules of silver"
            ));
        }
        lines.extend(silver.examples.iter().map(|example| format!("  {example}")));
    }
    lines.join("\n") + "\n"
}
