//! `rebuild`: silver or the checkpoint again from what is there, or columns filled from rescued data.

use super::change::open;
use super::counted;
use crate::cli::RebuildTarget;
use crate::cli::checked::Rebuild;
use crate::message::{Level, Messages, confirm};
use crate::output;
use landfall::backfill::{BackfillPlan, BackfillReport, FilledColumn, LeftField};
use landfall::clock::SystemClock;
use landfall::crash::CrashSwitch;
use landfall::error::Result;
use landfall::rebuild::{rebuild_checkpoint, rebuild_silver};
use landfall::schema::ddl_name;

/// Makes silver or the checkpoint again, or fills columns from rescued data.
pub(crate) async fn rebuild(command: Rebuild, messages: Messages) -> Result<()> {
    match command.what {
        RebuildTarget::Silver => silver(&command, messages).await,
        RebuildTarget::Checkpoint => checkpoint(&command, messages).await,
        RebuildTarget::Rescued => rescued(&command, messages).await,
    }
}

fn agrees(command: &Rebuild, question: &str, messages: Messages) -> Result<bool> {
    let agrees = confirm(question, command.yes)?;
    if !agrees {
        messages.say(Level::Warning, "nothing was changed");
    }
    Ok(agrees)
}

async fn silver(command: &Rebuild, messages: Messages) -> Result<()> {
    let name = &command.pipeline.name;
    let question = format!("fold all of bronze into silver of {name} again?");
    if !agrees(command, &question, messages)? {
        return Ok(());
    }
    let commit = rebuild_silver(&command.pipeline, &SystemClock, &CrashSwitch::default()).await?;
    let counters = commit.counters;
    let left_out = match counters.rows_left_out {
        0 => String::new(),
        rows => format!(
            ", {} no events by the rules of silver",
            counted(rows, "row")
        ),
    };
    output::print_text(&format!(
        "silver of {name} is the fold of bronze version {}: {} inserted, {} updated, {} deleted{left_out}\n",
        commit.bronze_version, counters.rows_inserted, counters.rows_updated, counters.rows_deleted,
    ))
}

async fn checkpoint(command: &Rebuild, messages: Messages) -> Result<()> {
    let name = &command.pipeline.name;
    let question = format!("make the checkpoint of {name} again from its tables?");
    if !agrees(command, &question, messages)? {
        return Ok(());
    }
    let rebuilt = rebuild_checkpoint(&command.pipeline, &SystemClock).await?;
    let kept = rebuilt.kept_as.map_or_else(String::new, |path| {
        format!("; the old one is kept as {}", path.display())
    });
    let files = counted(rebuilt.files, "file");
    output::print_text(&format!("checkpoint of {name} knows {files}{kept}\n"))
}

/// Says what moves and what stays, then asks, then moves it.
async fn rescued(command: &Rebuild, messages: Messages) -> Result<()> {
    let name = &command.pipeline.name;
    let mut pipeline = open(&command.pipeline, messages).await?;
    let plan = pipeline.plan_backfill()?;
    output::print_text(&plan_text(&plan))?;
    let is_nothing = plan.data_files.is_empty();
    let question =
        format!("move these values of bronze of {name} from _rescued_data to their columns?");
    if !is_nothing && !agrees(command, &question, messages)? {
        return Ok(());
    }
    pipeline.recover().await?;
    let report = pipeline.backfill().await?;
    output::print_text(&report_text(name, &report))
}

fn plan_text(plan: &BackfillPlan) -> String {
    let gained = plan.columns.iter().map(column_text);
    let left = plan.left.iter().map(left_text);
    let mut text: String = gained.chain(left).collect();
    if plan.left_of_others > 0 {
        let values = counted(plan.left_of_others, "value");
        text += &format!("{values} of other fields stay rescued\n");
    }
    text
}

fn column_text(column: &FilledColumn) -> String {
    let (rows, files) = (counted(column.rows, "row"), counted(column.files, "file"));
    format!(
        "{} {}{}: {rows} of {files} gain{} a value\n",
        ddl_name(&column.name),
        column.data_type,
        if column.is_new { ", a new column" } else { "" },
        if column.rows == 1 { "s" } else { "" },
    )
}

fn left_text(left: &LeftField) -> String {
    let name = ddl_name(&left.field);
    let hint = match &left.fitting_type {
        Some(data_type) => format!("; add {name} {data_type} to schema_hints to give it one"),
        None => String::new(),
    };
    format!(
        "{name}: {} stay{} rescued, the first in {}, row {}: {:?} {}{hint}\n",
        counted(left.values, "value"),
        if left.values == 1 { "s" } else { "" },
        left.file_path,
        left.file_row,
        left.example,
        left.why,
    )
}

fn report_text(name: &str, report: &BackfillReport) -> String {
    let Some(bronze) = report.bronze_version else {
        return match report.plan.rescued_rows {
            0 => format!("bronze of {name} has no rescued data, nothing was changed\n"),
            _ => "no rescued value fits an empty column, nothing was changed\n".to_string(),
        };
    };
    let silver = match report.silver.silver_version {
        Some(silver) => format!(", silver is at version {silver}"),
        None => String::new(),
    };
    format!(
        "{} in {} of bronze changed: bronze of {name} is at version {bronze}{silver}\n",
        counted(report.plan.rows, "row"),
        counted(report.plan.data_files.len() as u64, "data file"),
    )
}
