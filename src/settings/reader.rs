//! The settings of one pipeline as they were typed, and the problems found in them.
//!
//! A wrong value becomes a [`Problem`] and the default stands in for it, so that one call finds all problems.

use super::value;
use crate::error::Error;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Where a value was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// A line of the settings file, from 1.
    Line(usize),
    /// A flag, with its dashes.
    Flag(String),
}

/// A value with its variables filled in.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    /// A text, number or boolean as text.
    One(String),
    /// Several of them.
    Many(Vec<String>),
    /// Given and refused already; says nothing more.
    Refused,
}

/// One setting.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub value: Value,
    /// As typed, before variables were filled in: the only form that messages may show.
    pub shown: String,
    pub origin: Origin,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub line: Option<usize>,
    pub message: String,
}

/// All things that are wrong, in the order of the file.
#[derive(Debug, Default)]
pub(super) struct Problems(Vec<Problem>);

impl Problems {
    pub(super) fn add(&mut self, line: Option<usize>, message: impl Into<String>) {
        self.0.push(Problem {
            line,
            message: message.into(),
        });
    }

    /// Takes the problems of a text that is no file.
    pub(super) fn add_without_lines(&mut self, others: Problems) {
        for problem in others.0 {
            self.add(None, problem.message);
        }
    }

    /// One error that lists all; `None` when nothing is wrong. `file` is the settings file as typed.
    pub(super) fn into_error(mut self, file: Option<&str>) -> Option<Error> {
        self.0
            .sort_by_key(|problem| problem.line.unwrap_or(usize::MAX));
        self.0.dedup();
        let lines: Vec<String> = self.0.iter().map(|problem| problem.text(file)).collect();
        match lines.as_slice() {
            [] => None,
            [only] => Some(Error::settings(only.clone())),
            several => {
                let count = several.len();
                Some(Error::settings(format!(
                    "{count} settings are wrong\n  {}",
                    several.join("\n  ")
                )))
            }
        }
    }
}

impl Problem {
    fn text(&self, file: Option<&str>) -> String {
        match (self.line, file) {
            (Some(line), Some(file)) => format!("{file}, line {line}: {}", self.message),
            _ => self.message.clone(),
        }
    }
}

/// Takes the values of one pipeline out of what was typed.
pub(super) struct Reader<'a> {
    /// The name of the pipeline.
    pub pipeline: &'a str,
    /// By key below the pipeline.
    pub entries: BTreeMap<String, Entry>,
    /// The line of `[pipeline.P]`, where missing settings are reported.
    pub line: Option<usize>,
    /// Relative paths of the file start here.
    pub file_folder: PathBuf,
    /// Relative paths of flags start here.
    pub flag_folder: PathBuf,
    pub problems: &'a mut Problems,
}

impl Reader<'_> {
    /// The name of a setting in messages: its flag where it was given as one.
    pub(super) fn name(&self, key: &str) -> String {
        match self.entries.get(key).map(|entry| &entry.origin) {
            Some(Origin::Flag(flag)) => flag.clone(),
            Some(Origin::Line(_)) => format!("pipeline.{}.{key}", self.pipeline),
            None => self.absent_name(key),
        }
    }

    fn absent_name(&self, key: &str) -> String {
        if self.line.is_some() {
            return format!("pipeline.{}.{key}", self.pipeline);
        }
        let known = super::SETTING_KEYS.iter().find(|known| known.key == key);
        known.map_or_else(|| key.to_string(), |known| format!("--{}", known.flag))
    }

    /// Records that the value of `key` is wrong.
    pub(super) fn refuse(&mut self, key: &str, message: impl Into<String>) {
        let line = match self.entries.get(key).map(|entry| &entry.origin) {
            Some(Origin::Line(line)) => Some(*line),
            Some(Origin::Flag(_)) => None,
            None => self.line,
        };
        self.problems.add(line, message);
    }

    /// Records that a setting without which nothing works is not there.
    pub(super) fn missing(&mut self, key: &str, why: &str) {
        let name = self.absent_name(key);
        self.refuse(key, format!("{name} is missing{why}"));
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Whether the value of `key` was refused before it was read.
    pub(super) fn is_refused(&self, key: &str) -> bool {
        self.entries
            .get(key)
            .is_some_and(|entry| entry.value == Value::Refused)
    }

    /// Whether any setting of the table `table` is given.
    pub(super) fn has_table(&self, table: &str) -> bool {
        let prefix = format!("{table}.");
        self.entries.keys().any(|key| key.starts_with(&prefix))
    }

    /// A single value as text.
    pub(super) fn text(&mut self, key: &str) -> Option<String> {
        match &self.entries.get(key)?.value {
            Value::One(text) => Some(text.clone()),
            Value::Refused => None,
            Value::Many(_) => {
                self.wrong(key, "a single value");
                None
            }
        }
    }

    /// A list; a single value is a list of one.
    pub(super) fn list(&mut self, key: &str) -> Vec<String> {
        match self.entries.get(key).map(|entry| &entry.value) {
            None | Some(Value::Refused) => Vec::new(),
            Some(Value::Many(texts)) => texts.clone(),
            Some(Value::One(text)) => vec![text.clone()],
        }
    }

    /// A value read by `read`, or `default` where there is none or a wrong one.
    pub(super) fn parsed<T>(
        &mut self,
        key: &str,
        default: T,
        allowed: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> T {
        let Some(text) = self.text(key) else {
            return default;
        };
        read(&text).unwrap_or_else(|| {
            self.wrong(key, allowed);
            default
        })
    }

    pub(super) fn boolean(&mut self, key: &str, default: bool) -> bool {
        self.parsed(key, default, "true or false", value::boolean)
    }

    pub(super) fn duration(&mut self, key: &str, default: Duration) -> Duration {
        self.parsed(
            key,
            default,
            "a duration such as 500ms, 30s, 5m, 1h or 7d",
            value::duration,
        )
    }

    /// One word of a closed set.
    pub(super) fn choice<T: Copy>(&mut self, key: &str, words: &[(&str, T)], default: T) -> T {
        let allowed: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let allowed = format!("one of {}", allowed.join(", "));
        self.parsed(key, default, &allowed, |text| {
            words
                .iter()
                .find(|(word, _)| *word == text)
                .map(|(_, meaning)| *meaning)
        })
    }

    /// A path of this machine, absolute.
    pub(super) fn path(&mut self, key: &str) -> Option<PathBuf> {
        let text = self.text(key)?;
        if text.trim().is_empty() {
            self.wrong(key, "a path");
            return None;
        }
        let path = match text.strip_prefix("file://") {
            None => PathBuf::from(text),
            Some(_) => match file_of_url(&text) {
                Some(path) => path,
                None => {
                    self.wrong(key, "a path of this machine");
                    return None;
                }
            },
        };
        let from_flag = matches!(
            self.entries.get(key).map(|entry| &entry.origin),
            Some(Origin::Flag(_))
        );
        let folder = if from_flag {
            &self.flag_folder
        } else {
            &self.file_folder
        };
        let joined = folder.join(path);
        Some(joined.components().collect())
    }

    /// Records that the value of `key` is not what it must be.
    pub(super) fn wrong(&mut self, key: &str, allowed: &str) {
        let name = self.name(key);
        let shown = self
            .entries
            .get(key)
            .map_or(String::new(), |entry| without_secret(&entry.shown));
        self.refuse(key, format!("{name} must be {allowed}, not {shown}"));
    }
}

/// The path that a `file://` URL names; none where the URL says more than a path.
fn file_of_url(text: &str) -> Option<PathBuf> {
    let url = url::Url::parse(text).ok()?;
    let is_path = url.query().is_none() && url.fragment().is_none();
    is_path.then(|| url.to_file_path().ok()).flatten()
}

/// The text as typed, but of a URL only the scheme, since the rest may hold a secret.
fn without_secret(shown: &str) -> String {
    match shown.split_once("://") {
        Some((scheme, _)) => format!("{scheme}://..."),
        None => shown.to_string(),
    }
}
