//! Carries the commands out: calls the library, prints what it found, says how it ended.

pub(crate) mod audit;
pub(crate) mod change;
pub(crate) mod explain;
pub(crate) mod init;
pub(crate) mod rebuild;
pub(crate) mod report;
pub(crate) mod run;

use chrono::{DateTime, SecondsFormat};
use landfall::plural::counted;
use serde_json::Value;

/// A time as the tables print it.
fn time_text(micros: i64) -> String {
    DateTime::from_timestamp_micros(micros)
        .unwrap_or_default()
        .to_rfc3339_opts(SecondsFormat::Micros, true)
}

/// A time that may be missing, for JSON.
fn time_json(micros: Option<i64>) -> Value {
    micros.map(time_text).into()
}
