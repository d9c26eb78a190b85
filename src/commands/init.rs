//! `init`: settings proposed for a landing folder.

use super::counted;
use crate::cli::checked::Init;
use crate::message::{Level, Messages};
use crate::output;
use landfall::error::Result;
use landfall::propose::propose;

/// Prints the proposal, and says what could not be told.
pub(crate) fn init(command: &Init, messages: Messages) -> Result<()> {
    let proposal = propose(&command.path, &command.folder)?;
    for note in &proposal.notes {
        messages.say(Level::Warning, note);
    }
    output::print_text(&proposal.text)?;
    let pipelines = counted(proposal.pipelines.len() as u64, "pipeline");
    let names = proposal.pipelines.join(", ");
    messages.say(
        Level::Info,
        &format!("{pipelines} proposed: {names}; nothing was written"),
    );
    Ok(())
}
