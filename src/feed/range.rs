//! Which commits a range of the change feed means, and whether the feed holds them.
//!
//! The library leaves two faults to us: a start before the feed was enabled reads whole files as changes, and an end
//! past the newest commit is cut off in silence.

use super::{ChangePoint, ChangeRange};
use crate::change::Version;
use crate::error::{Error, Result};
use crate::query;
use chrono::{DateTime, Utc};
use deltalake::DeltaTable;
use serde_json::Value;

const ENABLED: &str = "delta.enableChangeDataFeed";

/// Commits from `from` to `to`, both counted; none when `from` is larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resolved {
    pub from: u64,
    pub to: u64,
}

/// Resolves `range` and makes sure that the feed holds all of it.
pub(super) async fn check(table: &DeltaTable, range: ChangeRange) -> Result<Resolved> {
    let log = Log {
        table,
        latest: latest(table)?,
    };
    let to = match range.to {
        None => log.latest,
        Some(ChangePoint::Version(version)) => number(version)?,
        Some(ChangePoint::Timestamp(time)) => match log.last_until(time).await? {
            Some(version) => version,
            None => {
                return Err(log
                    .refuse(format!("no commit is at or before {}", iso(time)))
                    .await);
            }
        },
    };
    let from = match range.from {
        ChangePoint::Version(version) => number(version)?,
        ChangePoint::Timestamp(time) => match log.first_since(time).await? {
            Some(version) => version,
            None => {
                return Err(log
                    .refuse(format!("no commit is at or after {}", iso(time)))
                    .await);
            }
        },
    };
    if from > log.latest {
        return Err(log
            .refuse(format!("the start is past the newest version: {from}"))
            .await);
    }
    if to > log.latest {
        return Err(log
            .refuse(format!("the end is past the newest version: {to}"))
            .await);
    }
    if from > to {
        if is_gap(range) {
            return Ok(Resolved { from, to });
        }
        return Err(log
            .refuse(format!("the start {from} is after the end {to}"))
            .await);
    }
    match log.held(from, to).await? {
        true => Ok(Resolved { from, to }),
        false => Err(log
            .refuse(format!(
                "the change data feed does not hold versions {from} to {to}"
            ))
            .await),
    }
}

/// Two times in order, with no commit between them.
fn is_gap(range: ChangeRange) -> bool {
    matches!((range.from, range.to), (ChangePoint::Timestamp(from), Some(ChangePoint::Timestamp(to))) if from <= to)
}

fn number(version: Version) -> Result<u64> {
    u64::try_from(version.0)
        .map_err(|_| Error::settings(format!("a version is not negative: {version}")))
}

fn latest(table: &DeltaTable) -> Result<u64> {
    table
        .version()
        .ok_or_else(|| Error::bug("an opened table has no version"))
}

fn iso(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true)
}

/// What one commit says about the feed.
struct Entry {
    /// Milliseconds since the epoch; `None` when the commit does not say.
    timestamp: Option<i64>,
    /// Whether the feed is on from here; `None` when the commit does not change it.
    enabled: Option<bool>,
}

struct Log<'a> {
    table: &'a DeltaTable,
    latest: u64,
}

impl Log<'_> {
    /// The commit of this version; `None` when it was cleaned up.
    async fn entry(&self, version: u64) -> Result<Option<Entry>> {
        let bytes = self
            .table
            .log_store()
            .read_commit_entry(version)
            .await
            .map_err(query::table_error)?;
        let Some(bytes) = bytes else { return Ok(None) };
        let mut entry = Entry {
            timestamp: None,
            enabled: None,
        };
        for line in bytes
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            // Adds and removes are most of a commit and say nothing here.
            if memchr::memmem::find(line, b"\"commitInfo\"").is_none()
                && memchr::memmem::find(line, b"\"metaData\"").is_none()
            {
                continue;
            }
            let action: Value = serde_json::from_slice(line).map_err(|error| {
                Error::unavailable(format!("version {version} of the log is damaged: {error}"))
            })?;
            if let Some(info) = action.get("commitInfo") {
                let time = info
                    .get("inCommitTimestamp")
                    .or_else(|| info.get("timestamp"));
                entry.timestamp = time.and_then(Value::as_i64);
            }
            if let Some(metadata) = action.get("metaData") {
                entry.enabled = Some(is_enabled(
                    metadata
                        .pointer("/configuration")
                        .and_then(|map| map.get(ENABLED)),
                ));
            }
        }
        Ok(Some(entry))
    }

    /// Whether the feed was on, and its commits are still there, for all of `from..=to`.
    async fn held(&self, from: u64, to: u64) -> Result<bool> {
        let mut known = None;
        for version in from..=to {
            match self.entry(version).await? {
                None
                | Some(Entry {
                    enabled: Some(false),
                    ..
                }) => return Ok(false),
                Some(Entry {
                    enabled: Some(true),
                    ..
                }) if version == from => known = Some(true),
                Some(_) => {}
            }
        }
        match known {
            Some(enabled) => Ok(enabled),
            None => self.enabled_at(from).await,
        }
    }

    /// Whether the feed was on at `version`, by the nearest commit that says so.
    async fn enabled_at(&self, version: u64) -> Result<bool> {
        if self.latest - version < version && self.is_as_now(version).await? {
            return Ok(is_on(self.table));
        }
        for earlier in (0..=version).rev() {
            match self.entry(earlier).await? {
                Some(Entry {
                    enabled: Some(enabled),
                    ..
                }) => return Ok(enabled),
                Some(Entry { enabled: None, .. }) => {}
                // The commits before are in a log checkpoint; a table at this version knows.
                None => return Ok(self.enabled_in_snapshot(earlier + 1).await),
            }
        }
        Ok(false)
    }

    /// Whether no commit after `version` touches the settings of the table.
    async fn is_as_now(&self, version: u64) -> Result<bool> {
        for later in version + 1..=self.latest {
            if !matches!(self.entry(later).await?, Some(Entry { enabled: None, .. })) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A version that cannot be built any more cannot be read as changes either.
    async fn enabled_in_snapshot(&self, version: u64) -> bool {
        let mut table = self.table.clone();
        table.load_version(version).await.is_ok() && is_on(&table)
    }

    /// The last version at or before `time`.
    async fn last_until(&self, time: DateTime<Utc>) -> Result<Option<u64>> {
        for version in (0..=self.latest).rev() {
            match self.entry(version).await? {
                None => return Ok(None),
                Some(entry) if is_until(&entry, time) => return Ok(Some(version)),
                Some(_) => {}
            }
        }
        Ok(None)
    }

    /// The first version at or after `time`; `None` when all are older.
    async fn first_since(&self, time: DateTime<Utc>) -> Result<Option<u64>> {
        let mut first = None;
        for version in (0..=self.latest).rev() {
            match self.entry(version).await? {
                // What was cleaned up may belong to the range: let the check name what is left.
                None => return Ok(Some(version)),
                Some(entry)
                    if entry
                        .timestamp
                        .is_some_and(|at| at * 1000 < time.timestamp_micros()) =>
                {
                    return Ok(first);
                }
                Some(_) => first = Some(version),
            }
        }
        Ok(first)
    }

    /// The newest run of versions that the feed holds.
    async fn valid(&self) -> Result<Option<u64>> {
        let mut first = None;
        let mut pending = None;
        for version in (0..=self.latest).rev() {
            match self.entry(version).await? {
                Some(Entry { enabled: None, .. }) => pending = Some(version),
                Some(Entry {
                    enabled: Some(true),
                    ..
                }) => {
                    first = Some(version);
                    pending = None;
                }
                Some(Entry {
                    enabled: Some(false),
                    ..
                }) => return Ok(first),
                None => {
                    let earliest = pending.or(first);
                    return Ok(match earliest {
                        Some(earliest) if self.enabled_in_snapshot(earliest).await => {
                            Some(earliest)
                        }
                        _ => first,
                    });
                }
            }
        }
        Ok(first)
    }

    /// An error that names the versions that can be read.
    async fn refuse(&self, message: String) -> Error {
        let table = self.table.table_url().path().trim_end_matches('/');
        let error = Error::settings(format!("change data feed of {table}: {message}"));
        match self.valid().await {
            Ok(Some(first)) => {
                error.hint(format!("versions {first} to {} can be read", self.latest))
            }
            Ok(None) => error.hint(format!(
                "the change data feed is off at the newest version, {}",
                self.latest
            )),
            Err(fault) => fault,
        }
    }
}

/// Whether the feed is on at the version of this handle.
fn is_on(table: &DeltaTable) -> bool {
    table.snapshot().is_ok_and(|state| {
        let properties = state.metadata().configuration();
        properties
            .get(ENABLED)
            .is_some_and(|text| text.eq_ignore_ascii_case("true"))
    })
}

fn is_enabled(property: Option<&Value>) -> bool {
    property
        .and_then(Value::as_str)
        .is_some_and(|text| text.eq_ignore_ascii_case("true"))
}

fn is_until(entry: &Entry, time: DateTime<Utc>) -> bool {
    entry
        .timestamp
        .is_some_and(|at| at * 1000 <= time.timestamp_micros())
}
