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

/// Commits from `from` to `to`, both counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resolved {
    pub from: u64,
    pub to: u64,
}

/// Resolves `range` and makes sure that the feed holds all of it; `None` when no commit lies between its two times.
pub(super) async fn check(table: &DeltaTable, range: ChangeRange) -> Result<Option<Resolved>> {
    let log = Log {
        table,
        latest: latest(table)?,
    };
    if let (ChangePoint::Timestamp(from), Some(ChangePoint::Timestamp(to))) = (range.from, range.to)
    {
        if from > to {
            let message = format!("the start {} is after the end {}", iso(from), iso(to));
            return Err(log.refuse(message).await);
        }
        if log.is_gap(from, to).await? {
            return Ok(None);
        }
    }
    let to = log.end(range.to).await?;
    let from = log.start(range.from).await?;
    let fault = if from > log.latest {
        Some(format!("the start is past the newest version: {from}"))
    } else if to > log.latest {
        Some(format!("the end is past the newest version: {to}"))
    } else if from > to {
        Some(format!("the start {from} is after the end {to}"))
    } else {
        log.gap_in_feed(from, to).await?
    };
    match fault {
        None => Ok(Some(Resolved { from, to })),
        Some(fault) => Err(log.refuse(fault).await),
    }
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

    /// The last commit of a range.
    async fn end(&self, to: Option<ChangePoint>) -> Result<u64> {
        match to {
            None => Ok(self.latest),
            Some(ChangePoint::Version(version)) => number(version),
            Some(ChangePoint::Timestamp(time)) => match self.last_until(time).await? {
                Some(version) => Ok(version),
                None => {
                    let message = format!("no commit is at or before {}", iso(time));
                    Err(self.refuse(message).await)
                }
            },
        }
    }

    /// The first commit of a range.
    async fn start(&self, from: ChangePoint) -> Result<u64> {
        match from {
            ChangePoint::Version(version) => number(version),
            ChangePoint::Timestamp(time) => match self.first_since(time).await? {
                Some(version) => Ok(version),
                None => {
                    let message = format!("no commit is at or after {}", iso(time));
                    Err(self.refuse(message).await)
                }
            },
        }
    }

    /// Whether it is certain that no commit lies between the times; an error when the feed was off there.
    async fn is_gap(&self, from: DateTime<Utc>, to: DateTime<Utc>) -> Result<bool> {
        let first = self.first_since(from).await?;
        let last = self.last_until(to).await?;
        let before = match (first, last) {
            (Some(first), Some(last)) if first <= last => return Ok(false),
            (_, Some(last)) => last,
            // Commits of that time may have been cleaned up, unless the first of all is still there.
            (_, None) => return Ok(self.entry(0).await?.is_some()),
        };
        match self.enabled_at(before).await? {
            true => Ok(true),
            false => {
                let message = format!("it is off at {}", iso(from));
                Err(self.refuse(message).await)
            }
        }
    }

    /// What keeps the feed from telling all of `from..=to`; `None` if nothing does.
    async fn gap_in_feed(&self, from: u64, to: u64) -> Result<Option<String>> {
        let is_off = |version| Some(format!("it is off at version {version}"));
        if self.entry(from).await?.is_some() && !self.enabled_at(from).await? {
            return Ok(is_off(from));
        }
        for version in from..=to {
            match self.entry(version).await? {
                None => return Ok(Some(format!("version {version} was cleaned up"))),
                Some(Entry {
                    enabled: Some(false),
                    ..
                }) => return Ok(is_off(version)),
                Some(_) => {}
            }
        }
        Ok(None)
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

    /// The runs of versions that the feed holds, the oldest first.
    async fn valid(&self) -> Result<Vec<(u64, u64)>> {
        let mut earliest = self.latest + 1;
        let mut switches = Vec::new();
        while earliest > 0 {
            let Some(entry) = self.entry(earliest - 1).await? else {
                break;
            };
            switches.push(entry.enabled);
            earliest -= 1;
        }
        let mut enabled = match switches.last() {
            Some(None) => self.enabled_in_snapshot(earliest).await,
            _ => false,
        };
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for (version, switch) in (earliest..).zip(switches.into_iter().rev()) {
            enabled = switch.unwrap_or(enabled);
            match runs.last_mut().filter(|(_, last)| last + 1 == version) {
                Some((_, last)) if enabled => *last = version,
                _ if enabled => runs.push((version, version)),
                _ => {}
            }
        }
        Ok(runs)
    }

    /// An error that names the versions that can be read.
    async fn refuse(&self, message: String) -> Error {
        let table = self.table.table_url().path().trim_end_matches('/');
        let error = Error::settings(format!("change data feed of {table}: {message}"));
        let runs = match self.valid().await {
            Ok(runs) => runs,
            Err(fault) => return fault,
        };
        let run = |(first, last): &(u64, u64)| match first == last {
            true => format!("version {first}"),
            false => format!("versions {first} to {last}"),
        };
        let runs: Vec<String> = runs.iter().map(run).collect();
        error.hint(match runs.is_empty() {
            true => "no version can be read: the feed is off".to_string(),
            false => format!("{} can be read", runs.join(" and ")),
        })
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
