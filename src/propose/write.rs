//! Writes proposed settings as TOML.
//!
//! Every value is one line that the settings file reads back as it is, whatever it holds; every comment is one line too. What
//! stands in the lines is left to the others.

use std::fmt;
use toml_writer::{ToTomlKey, ToTomlValue, TomlKeyBuilder, TomlStringBuilder};

/// Values in comments and messages are cut to so many characters.
const SHOWN_CHARS_MAX: usize = 40;
/// So many values stand in a comment.
const SHOWN_VALUES_MAX: usize = 8;

/// How much the sample says for a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sureness {
    /// Nothing in the sample speaks against it, and something would if it were wrong.
    Sure,
    /// The name and the values fit.
    Likely,
    /// Something else may be meant as well.
    Guess,
}

impl fmt::Display for Sureness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sureness::Sure => "sure",
            Sureness::Likely => "likely",
            Sureness::Guess => "guess",
        })
    }
}

/// One setting and why it is proposed.
#[derive(Clone, Debug)]
pub(super) struct Line {
    setting: String,
    why: String,
    is_told: bool,
}

impl Line {
    /// `value` is TOML.
    pub(super) fn told(key: &str, value: String, why: impl Into<String>) -> Line {
        Line {
            setting: format!("{key} = {value}"),
            why: why.into(),
            is_told: true,
        }
    }

    /// A setting that could not be told: it is written as a comment, and `why` says what to fill in.
    pub(super) fn open(key: &str, value: String, why: impl Into<String>) -> Line {
        Line {
            is_told: false,
            ..Line::told(key, value, why)
        }
    }

    fn write(&self, out: &mut String, is_told: bool) {
        if !(self.is_told && is_told) {
            out.push_str("# ");
        }
        out.push_str(&self.setting);
        if !self.why.is_empty() {
            out.push_str(" # ");
            out.push_str(&one_line(&self.why));
        }
        out.push('\n');
    }
}

/// One table below a pipeline.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// Such as `source`; empty for the pipeline itself.
    pub(super) name: &'static str,
    pub(super) lines: Vec<Line>,
    /// Otherwise all of it stands in comments.
    pub(super) is_told: bool,
}

/// One proposed pipeline.
#[derive(Clone, Debug)]
pub(super) struct Pipeline {
    pub(super) name: String,
    /// What is not about one line.
    pub(super) remarks: Vec<String>,
    pub(super) tables: Vec<Table>,
}

/// The whole file.
pub(super) fn settings(remarks: &[String], pipelines: &[Pipeline]) -> String {
    let mut out = String::new();
    write_remarks(remarks, &mut out);
    for pipeline in pipelines {
        if !out.is_empty() {
            out.push('\n');
        }
        write_remarks(&pipeline.remarks, &mut out);
        for (place, table) in pipeline.tables.iter().enumerate() {
            if place > 0 {
                out.push('\n');
            }
            write_table(&pipeline.name, table, &mut out);
        }
    }
    out
}

fn write_remarks(remarks: &[String], out: &mut String) {
    for remark in remarks {
        out.push_str(&format!("# {}\n", one_line(remark)));
    }
}

fn write_table(pipeline: &str, table: &Table, out: &mut String) {
    let key = TomlKeyBuilder::new(pipeline);
    let key = key.as_unquoted().unwrap_or_else(|| key.as_basic());
    let mark = if table.is_told { "" } else { "# " };
    let dot = if table.name.is_empty() { "" } else { "." };
    let header = format!(
        "{mark}[pipeline.{}{dot}{}]\n",
        key.to_toml_key(),
        table.name
    );
    out.push_str(&header);
    for line in &table.lines {
        line.write(out, table.is_told);
    }
}

/// A text as the settings file reads it: a dollar sign stands there for a variable.
pub(super) fn text(value: &str) -> String {
    let value = value.replace('$', "$$");
    TomlStringBuilder::new(&value).as_basic().to_toml_value()
}

/// A list of texts.
pub(super) fn list<T: AsRef<str>>(values: &[T]) -> String {
    let values: Vec<String> = values.iter().map(|value| text(value.as_ref())).collect();
    format!("[{}]", values.join(", "))
}

/// A value for a comment or a message: in quotes, on one line, cut.
pub(super) fn shown(value: &str) -> String {
    let mut shown: String = value.chars().take(SHOWN_CHARS_MAX).collect();
    if value.chars().nth(SHOWN_CHARS_MAX).is_some() {
        shown.push_str("...");
    }
    one_line(&format!("\"{shown}\""))
}

/// Some values for a comment or a message.
pub(super) fn all_shown<T: AsRef<str>>(values: &[T]) -> String {
    let first = values.iter().take(SHOWN_VALUES_MAX);
    let mut all: Vec<String> = first.map(|value| shown(value.as_ref())).collect();
    if values.len() > SHOWN_VALUES_MAX {
        all.push("...".to_string());
    }
    all.join(", ")
}

/// No line end and no control character, which a comment must not hold.
fn one_line(text: &str) -> String {
    let escaped = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_texts_come_back_as_they_were_and_stay_on_their_line() {
        for value in [
            "a\"b'c\\d",
            "line\nbreak\r\ttab",
            "\u{0}\u{7f}\u{85}",
            "'''\"\"\"",
            "# no comment",
            "caf\u{e9} \u{4e2d}",
        ] {
            let line = Line::told("path", text(value), format!("guess: {value}"));
            let pipeline = Pipeline {
                name: value.to_string(),
                remarks: vec![value.to_string()],
                tables: vec![Table {
                    name: "source",
                    lines: vec![line.clone(), Line::open("keys", list(&[value]), value)],
                    is_told: true,
                }],
            };
            let written = settings(&[value.to_string()], &[pipeline]);
            let read: toml::Table = toml::from_str(&written).unwrap();
            let source = &read["pipeline"][value]["source"];
            assert_eq!(source["path"].as_str(), Some(value), "{written}");
            assert_eq!(written.lines().count(), 6, "{written}");
            assert!(source.get("keys").is_none());
        }
    }

    #[test]
    fn dollar_sign_is_no_variable() {
        assert_eq!(text("${HOME}"), "\"$${HOME}\"");
    }

    #[test]
    fn long_values_and_long_lists_are_cut_in_comments() {
        assert_eq!(shown(&"x".repeat(41)), format!("\"{}...\"", "x".repeat(40)));
        assert!(all_shown(&["x"; 9]).ends_with("\"x\", ..."));
    }

    #[test]
    fn table_that_could_not_be_told_is_all_comment() {
        let table = Table {
            name: "silver",
            lines: vec![Line::told("path", text("lake"), "")],
            is_told: false,
        };
        let pipeline = Pipeline {
            name: "a.b".into(),
            remarks: vec![],
            tables: vec![table],
        };
        assert_eq!(
            settings(&[], &[pipeline]),
            "# [pipeline.\"a.b\".silver]\n# path = \"lake\"\n"
        );
    }
}
