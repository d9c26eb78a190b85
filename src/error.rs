//! Says what went wrong and what to do next.
//!
//! An [`Error`] means that the loader cannot go on. A bad row is data and goes to quarantine instead; a bad file is parked.

use std::fmt;

/// What the operator does next; the exit code follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The command line or the settings are wrong: fix them. Nothing was touched.
    Settings,
    /// A file or a record is wrong: fix the file.
    Input,
    /// Another writer was faster and did not get out of the way: run again.
    Conflict,
    /// Disk, folder, permission or database is not usable: mend it, then run again.
    Unavailable,
    /// Checkpoint and tables disagree: stop and look.
    Disagreement,
    /// Another loader holds the checkpoint.
    Held,
    /// The program broke one of its own rules: report it.
    Bug,
}

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// One failure: its kind, one line that names object and value, and what to do about it.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    hint: Option<String>,
}

impl Error {
    /// Makes an error of `kind`; `message` is lower case, without a full stop, and names the object.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error {
            kind,
            message: message.into(),
            hint: None,
        }
    }

    /// The settings or the command line are wrong.
    pub fn settings(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Settings, message)
    }

    /// Something outside the program is not usable now.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Unavailable, message)
    }

    /// Checkpoint and tables differ.
    pub fn disagreement(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Disagreement, message)
    }

    /// A rule of the program itself does not hold.
    pub fn bug(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Bug, message)
    }

    /// Adds what to do, without a full stop.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Names the pipeline in a hint that stands where the name is not known, and says `PIPELINE`.
    pub fn of_pipeline(mut self, name: &str) -> Self {
        self.hint = self.hint.map(|hint| hint.replace("PIPELINE", name));
        self
    }

    /// Puts what was being done in front of the message.
    pub fn context(mut self, doing: impl fmt::Display) -> Self {
        self.message = format!("{doing}: {}", self.message);
        self
    }

    /// What the operator does next.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The line without the hint.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to do, if something is known.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The exit code of a program that ends with this error.
    pub fn exit_code(&self) -> u8 {
        match self.kind {
            ErrorKind::Settings => 2,
            ErrorKind::Held => 4,
            ErrorKind::Input
            | ErrorKind::Conflict
            | ErrorKind::Unavailable
            | ErrorKind::Disagreement
            | ErrorKind::Bug => 1,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

impl From<arrow::error::ArrowError> for Error {
    fn from(error: arrow::error::ArrowError) -> Self {
        Error::bug(format!("arrow: {error}"))
    }
}
