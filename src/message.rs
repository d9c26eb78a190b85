//! Messages to the person at the keyboard, on stderr.

use crate::cli::{ColorChoice, Global, LogFormat};
use crate::secret::without_secrets;
use chrono::{DateTime, SecondsFormat};
use landfall::clock::{Clock, SystemClock};
use landfall::error::{Error, Result};
use serde_json::json;
use std::io::{self, BufRead, IsTerminal, Write};

/// How much a message matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// Always shown.
    Error,
    /// Shown unless `--quiet`.
    Warning,
    /// Shown unless `--quiet`.
    Info,
    /// Shown with `-v`.
    Detail,
    /// Shown with `-vv`.
    Trace,
}

impl Level {
    fn as_str(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Info => "info",
            Level::Detail => "detail",
            Level::Trace => "trace",
        }
    }
}

/// Where messages go and how they look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Messages {
    format: LogFormat,
    shown: Level,
    color: bool,
}

impl Messages {
    /// As the flags say.
    pub(crate) fn new(global: &Global) -> Self {
        let shown = match (global.quiet, global.verbose) {
            (true, _) => Level::Error,
            (false, 0) => Level::Info,
            (false, 1) => Level::Detail,
            (false, _) => Level::Trace,
        };
        let color = match global.color {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => {
                io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
            }
        };
        Messages {
            format: global.log_format,
            shown,
            color,
        }
    }

    /// Whether a progress bar has a place: a terminal that shows messages as text.
    pub(crate) fn shows_progress(&self) -> bool {
        self.format == LogFormat::Text && self.shown >= Level::Info && io::stderr().is_terminal()
    }

    /// Whether messages are JSON objects.
    pub(crate) fn is_json(&self) -> bool {
        self.format == LogFormat::Json
    }

    /// Whether messages of this level are shown.
    pub(crate) fn shows(&self, level: Level) -> bool {
        level <= self.shown
    }

    /// Says one line.
    pub(crate) fn say(&self, level: Level, message: &str) {
        self.write(level, message, None);
    }

    /// Says what went wrong and what to do.
    pub(crate) fn error(&self, error: &Error) {
        self.write(Level::Error, error.message(), error.hint_text());
    }

    fn write(&self, level: Level, message: &str, hint: Option<&str>) {
        if level <= self.shown {
            let (message, hint) = (without_secrets(message), hint.map(without_secrets));
            let line = self.line(level, &message, hint.as_deref(), SystemClock.now());
            // Nobody can be told that stderr is gone.
            let _ = writeln!(io::stderr().lock(), "{line}");
        }
    }

    fn line(&self, level: Level, message: &str, hint: Option<&str>, now: i64) -> String {
        match self.format {
            LogFormat::Json => {
                let at = DateTime::from_timestamp_micros(now).unwrap_or_default();
                let at = at.to_rfc3339_opts(SecondsFormat::Micros, true);
                let mut line = json!({ "at": at, "level": level.as_str(), "message": message });
                if let Some(hint) = hint {
                    line["hint"] = hint.into();
                }
                line.to_string()
            }
            LogFormat::Text => {
                let prefix = match level {
                    Level::Error => self.painted("error: ", 31),
                    Level::Warning => self.painted("warning: ", 33),
                    Level::Info | Level::Detail | Level::Trace => String::new(),
                };
                let hint = hint.map_or(String::new(), |hint| {
                    format!("\n{}{hint}", self.painted("hint: ", 36))
                });
                format!("{prefix}{message}{hint}")
            }
        }
    }

    fn painted(&self, text: &str, color: u8) -> String {
        if self.color {
            format!("\u{1b}[{color}m{text}\u{1b}[0m")
        } else {
            text.to_string()
        }
    }
}

/// Whether the person agrees; `yes` (the flag `--yes`) answers for them.
///
/// Fails where nobody can be asked.
pub(crate) fn confirm(question: &str, yes: bool) -> Result<bool> {
    if yes {
        return Ok(true);
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(
            Error::settings("there is no terminal to ask on").hint("--yes does it without asking")
        );
    }
    let asked = write!(io::stderr(), "{question} [y/N] ").and_then(|()| io::stderr().flush());
    asked.map_err(|error| Error::unavailable(format!("stderr cannot be written: {error}")))?;
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    read.map_err(|error| Error::unavailable(format!("stdin cannot be read: {error}")))?;
    Ok(matches!(
        answer.trim().to_ascii_lowercase().as_str(),
        "y" | "yes"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(format: LogFormat) -> Messages {
        Messages {
            format,
            shown: Level::Info,
            color: false,
        }
    }

    #[test]
    fn json_message_is_one_line_with_hint_apart() {
        let line = messages(LogFormat::Json).line(Level::Error, "a\nb", Some("c"), 0);
        let expected = json!({ "at": "1970-01-01T00:00:00.000000Z", "level": "error", "message": "a\nb", "hint": "c" });
        assert_eq!(line.lines().count(), 1);
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&line).unwrap(),
            expected
        );
    }

    #[test]
    fn text_message_has_hint_on_its_own_line() {
        let line = messages(LogFormat::Text).line(Level::Error, "a", Some("b"), 0);
        assert_eq!(line, "error: a\nhint: b");
    }
}
