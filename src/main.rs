//! Parses the command line, runs one command and ends with its exit code.

mod cli;
mod commands;
mod memory;
mod message;
mod output;
mod read;
mod secret;

use clap::Parser;
use cli::Cli;
use cli::checked::Checked;
use landfall::error::{Error, Result};
use message::{Level, Messages};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

fn main() -> ExitCode {
    memory::keep_freed();
    let cli = Cli::parse();
    let messages = Messages::new(&cli.global);
    // Libraries panic where they meet what they cannot say, such as a full disk or a damaged file; what follows from it is
    // told as an error, so the place in their source is detail.
    std::panic::set_hook(Box::new(move |panic| {
        let ours = panic
            .location()
            .is_some_and(|place| place.file().starts_with("src/"));
        let level = if ours { Level::Error } else { Level::Detail };
        messages.say(level, &format!("internal failure: {panic}"));
    }));
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
    let pipeline = command.one_pipeline();
    let work = || runtime.block_on(dispatch(command, messages));
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(bug_of(&*panic)));
    done.map_err(|error| match pipeline {
        Some(name) => error.of_pipeline(&name),
        None => error,
    })
}

/// A panic that nobody took for an error.
fn bug_of(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    Error::bug(text.unwrap_or("a panic without a message"))
}

async fn dispatch(command: Checked, messages: Messages) -> Result<ExitCode> {
    match command {
        Checked::Run(run) => return commands::run::run(run, messages).await,
        Checked::Verify(verify) => return commands::audit::verify(verify, messages).await,
        Checked::Explain(explain) => return commands::explain::explain(explain, messages).await,
        Checked::Status(status) => commands::report::status(status).await?,
        Checked::Files(files) => commands::report::files(&files)?,
        Checked::Plan(plan) => commands::report::plan(plan).await?,
        Checked::Quarantine(quarantine) if quarantine.retry => {
            commands::change::retry(&quarantine, messages).await?
        }
        Checked::Quarantine(quarantine) => read::quarantine(quarantine).await?,
        Checked::Reset(reset) => commands::change::reset(reset, messages).await?,
        Checked::Rebuild(rebuild) => commands::rebuild::rebuild(rebuild, messages).await?,
        Checked::Maintain(maintain) => commands::change::maintain(maintain, messages).await?,
        Checked::Init(init) => commands::init::init(&init, messages)?,
        Checked::Changes(changes) => read::changes(changes).await?,
        Checked::Show(show) => read::show(show).await?,
        Checked::Sql(sql) => read::sql(sql).await?,
        Checked::Schema(schema) => read::schema(schema).await?,
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_of_any_kind_is_told() {
        let told = |panic: &(dyn Any + Send)| bug_of(panic).message().to_owned();
        assert_eq!(told(&"disk full"), "disk full");
        assert_eq!(told(&String::from("disk full")), "disk full");
        assert_eq!(told(&5), "a panic without a message");
    }
}
