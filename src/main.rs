//! Parses the command line, runs one command and ends with its exit code.

#[allow(dead_code, reason = "the commands that load read the rest")]
mod cli;
mod message;
mod output;
mod read;

use clap::Parser;
use cli::Cli;
use cli::checked::Checked;
use landfall::error::{Error, Result};
use message::{Level, Messages};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let messages = Messages::new(&cli.global);
    match cli.check().and_then(|command| run(command, messages)) {
        Ok(code) => code,
        Err(error) => {
            messages.error(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(command: Checked, messages: Messages) -> Result<ExitCode> {
    let runtime = tokio::runtime::Runtime::new()
        .map_err(|error| Error::unavailable(format!("the runtime cannot start: {error}")))?;
    runtime.block_on(dispatch(command, messages))
}

async fn dispatch(command: Checked, messages: Messages) -> Result<ExitCode> {
    match command {
        Checked::Changes(changes) => read::changes(changes).await?,
        Checked::Show(show) => read::show(show).await?,
        Checked::Sql(sql) => read::sql(sql).await?,
        Checked::Schema(schema) => read::schema(schema).await?,
        Checked::Run(_) => return Err(not_wired("run")),
        Checked::Status(_) => return Err(not_wired("status")),
        Checked::Files(_) => return Err(not_wired("files")),
        Checked::Plan(_) => return Err(not_wired("plan")),
        Checked::Reset(reset) => {
            let question = format!(
                "forget files of {} and load them again?",
                reset.pipeline.name
            );
            if reset.dry_run || agreed(&question, reset.yes, messages)? {
                return Err(not_wired("reset"));
            }
        }
        Checked::Rebuild(rebuild) => {
            let question = format!("make it again for {}?", rebuild.pipeline.name);
            if agreed(&question, rebuild.yes, messages)? {
                return Err(not_wired("rebuild"));
            }
        }
        Checked::Verify(_) => return Err(not_wired("verify")),
        Checked::Quarantine(quarantine) if quarantine.retry => {
            return Err(not_wired("quarantine --retry"));
        }
        Checked::Quarantine(quarantine) => read::quarantine(quarantine).await?,
        Checked::Maintain(_) => return Err(not_wired("maintain")),
    }
    Ok(ExitCode::SUCCESS)
}

fn agreed(question: &str, yes: bool, messages: Messages) -> Result<bool> {
    let agreed = message::confirm(question, yes)?;
    if !agreed {
        messages.say(Level::Warning, "nothing was changed");
    }
    Ok(agreed)
}

fn not_wired(command: &str) -> Error {
    Error::bug(format!("the command {command} has no loader behind it"))
}
