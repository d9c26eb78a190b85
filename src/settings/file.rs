//! Reads a settings file: TOML with the line of every value, `${VAR}` filled in, unknown keys refused.
//!
//! What a value means is left to `check`. Messages about a value show it as typed, before variables were filled in.

use super::keys;
use super::reader::{Entry, Origin, Problems, Value};
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A settings file, keys known and variables filled in.
#[derive(Debug, Default)]
pub(super) struct Document {
    /// In the order of the file.
    pub pipelines: Vec<PipelineText>,
    /// The line of `[storage]`.
    pub storage: Option<usize>,
}

/// One `[pipeline.P]`.
#[derive(Debug)]
pub(super) struct PipelineText {
    pub name: String,
    pub line: usize,
    /// By key below the pipeline.
    pub entries: BTreeMap<String, Entry>,
}

/// Looks a variable of the environment up.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Parses the text of the settings file `file` (its name as typed, for messages).
///
/// A text that is not TOML is an error at once; everything else goes to `problems`.
pub(super) fn parse(
    file: &str,
    text: &str,
    environment: Environment<'_>,
    problems: &mut Problems,
) -> Result<Document> {
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| line_of(text, span.start));
        Error::settings(format!(
            "{file}, line {line}: {}",
            one_line(error.message())
        ))
    })?;
    let mut walk = Walk {
        text,
        environment,
        problems,
    };
    Ok(walk.document(table.get_ref()))
}

/// One value in the form of a settings file, such as `{ column = "op", upsert = ["I"] }` after `--operations`.
pub(super) fn parse_flag_table(
    key: &str,
    flag: &str,
    text: &str,
    problems: &mut Problems,
) -> BTreeMap<String, Entry> {
    let mut entries = BTreeMap::new();
    let parsed = DeValue::parse(text);
    let table = parsed
        .as_ref()
        .ok()
        .and_then(|value| value.get_ref().as_table());
    let Some(table) = table else {
        problems.add(
            None,
            format!(
                "{flag} must be a table such as {{ column = \"op\", upsert = [\"I\"] }}, not {text}"
            ),
        );
        return entries;
    };
    let untouched = |_: &str| None;
    let mut found = Problems::default();
    let mut walk = Walk {
        text,
        environment: &untouched,
        problems: &mut found,
    };
    walk.settings(flag, key, table, &mut entries);
    problems.add_without_lines(found);
    for entry in entries.values_mut() {
        entry.origin = Origin::Flag(flag.to_string());
    }
    entries
}

/// Tables that switch something on; empty ones must not pass for absent.
const MEANS_SOMETHING: &[&str] = &["silver", "silver.operations"];

struct Walk<'a> {
    text: &'a str,
    environment: Environment<'a>,
    problems: &'a mut Problems,
}

impl Walk<'_> {
    fn document(&mut self, root: &DeTable<'_>) -> Document {
        let mut document = Document::default();
        for (name, value) in root {
            let line = line_of(self.text, name.span().start);
            match name.get_ref().as_ref() {
                "pipeline" => match value.get_ref().as_table() {
                    Some(table) => document.pipelines = self.pipelines(table),
                    None => self
                        .problems
                        .add(Some(line), "pipeline must be a table of pipelines"),
                },
                "storage" => document.storage = Some(line),
                other => self.unknown_top(line, other),
            }
        }
        document
    }

    fn unknown_top(&mut self, line: usize, name: &str) {
        let nearest = keys::nearest_word(name, ["pipeline", "storage"]).unwrap_or("pipeline");
        self.problems.add(
            Some(line),
            format!("{name} is no known key; the nearest is {nearest}"),
        );
    }

    fn pipelines(&mut self, table: &DeTable<'_>) -> Vec<PipelineText> {
        let mut pipelines = Vec::new();
        for (name, value) in table {
            let line = line_of(self.text, name.span().start);
            let name = name.get_ref().to_string();
            let Some(settings) = value.get_ref().as_table() else {
                let message = format!(
                    "pipeline.{name} must be a table; a pipeline has a name, as in [pipeline.orders]"
                );
                self.problems.add(Some(line), message);
                continue;
            };
            let mut entries = BTreeMap::new();
            self.settings(&format!("pipeline.{name}"), "", settings, &mut entries);
            pipelines.push(PipelineText {
                name,
                line,
                entries,
            });
        }
        pipelines.sort_by_key(|pipeline| pipeline.line);
        pipelines
    }

    /// Flattens the settings of `table` into `entries`. `shown` is the path of the pipeline in messages.
    fn settings(
        &mut self,
        shown: &str,
        prefix: &str,
        table: &DeTable<'_>,
        entries: &mut BTreeMap<String, Entry>,
    ) {
        for (name, value) in table {
            let line = line_of(self.text, name.span().start);
            let key = match prefix {
                "" => name.get_ref().to_string(),
                prefix => format!("{prefix}.{}", name.get_ref()),
            };
            let full = full_name(shown, &key);
            match value.get_ref().as_table() {
                Some(inner) if inner.is_empty() && MEANS_SOMETHING.contains(&key.as_str()) => {
                    self.problems.add(Some(line), format!("{full} is empty"));
                }
                Some(inner) if keys::is_table(&key) => self.settings(shown, &key, inner, entries),
                None if keys::is_setting(&key) => {
                    entries.insert(key, self.entry(&full, line, value));
                }
                None if keys::is_table(&key) => {
                    self.problems
                        .add(Some(line), format!("{full} must be a table"));
                }
                Some(_) if keys::is_setting(&key) => {
                    self.problems
                        .add(Some(line), format!("{full} must be a value, not a table"));
                }
                _ => {
                    let nearest = full_name(shown, &keys::nearest(&key));
                    let message = format!("{full} is no known key; the nearest is {nearest}");
                    self.problems.add(Some(line), message);
                }
            }
        }
    }

    /// The value; [`Value::Refused`] when it is none, which is among the problems then.
    fn entry(&mut self, name: &str, line: usize, value: &Spanned<DeValue<'_>>) -> Entry {
        let filled = match value.get_ref().as_array() {
            None => self.scalar(name, line, value).map(Value::One),
            Some(array) => {
                let parts = array.iter().map(|part| self.scalar(name, line, part));
                parts.collect::<Option<Vec<String>>>().map(Value::Many)
            }
        };
        let shown = self.text.get(value.span()).unwrap_or_default();
        Entry {
            value: filled.unwrap_or(Value::Refused),
            shown: one_line(shown),
            origin: Origin::Line(line),
        }
    }

    fn scalar(&mut self, name: &str, line: usize, value: &Spanned<DeValue<'_>>) -> Option<String> {
        match value.get_ref() {
            DeValue::String(text) => match fill_in(text, self.environment) {
                Ok(text) => Some(text),
                Err(message) => {
                    self.problems.add(Some(line), format!("{name}: {message}"));
                    None
                }
            },
            DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_string()),
            DeValue::Float(number) => Some(number.as_str().to_string()),
            DeValue::Boolean(yes) => Some(yes.to_string()),
            other => {
                let found = other.type_str();
                self.problems.add(
                    Some(line),
                    format!("{name} must be a text, a number or a boolean, not {found}"),
                );
                None
            }
        }
    }
}

/// A key as it was typed: below its pipeline in a file, below its flag else.
fn full_name(shown: &str, key: &str) -> String {
    match shown.starts_with("--") {
        true => format!(
            "{shown}{}",
            key.strip_prefix("silver.operations").unwrap_or(key)
        ),
        false => format!("{shown}.{key}"),
    }
}

/// Fills `${VAR}` in; `$$` is one dollar sign, any other `$` stands for itself.
fn fill_in(text: &str, environment: Environment<'_>) -> std::result::Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some(after) = rest.strip_prefix('{') {
            let (name, after) = after
                .split_once('}')
                .ok_or("`${` has no `}`; write `$$` for a dollar sign")?;
            let value = environment(name)
                .ok_or_else(|| format!("the environment variable {name} is not set"))?;
            out.push_str(&value);
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    Ok(out)
}

fn line_of(text: &str, offset: usize) -> usize {
    let before = text.as_bytes().iter().take(offset);
    before.filter(|byte| **byte == b'\n').count() + 1
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_text(text: &str) -> (Document, String) {
        let mut problems = Problems::default();
        let environment = |name: &str| (name == "SET").then(|| "s3cret".to_string());
        let document = parse("f.toml", text, &environment, &mut problems).unwrap();
        let error = problems.into_error(Some("f.toml"));
        (
            document,
            error.map_or(String::new(), |error| error.message().to_string()),
        )
    }

    #[test]
    fn text_that_is_no_toml_names_the_line() {
        let mut problems = Problems::default();
        let error = parse(
            "f.toml",
            "[pipeline.a]\nx = = 1\n",
            &|_| None,
            &mut problems,
        )
        .unwrap_err();
        assert!(error.message().starts_with("f.toml, line 2: "), "{error}");
    }

    #[test]
    fn unknown_key_names_path_line_and_nearest() {
        let (_, errors) = parse_text("[pipeline.a.source]\n\nsetle = \"1s\"\n");
        assert_eq!(
            errors,
            "f.toml, line 3: pipeline.a.source.setle is no known key; the nearest is pipeline.a.source.settle"
        );
    }

    #[test]
    fn unknown_tables_and_top_keys_are_refused() {
        let (_, errors) = parse_text("[pipelines.a]\n[pipeline.a.sorce]\npath = \"x\"\n");
        assert!(
            errors.contains("line 1: pipelines is no known key; the nearest is pipeline"),
            "{errors}"
        );
        assert!(
            errors.contains(
                "line 2: pipeline.a.sorce is no known key; the nearest is pipeline.a.source"
            ),
            "{errors}"
        );
    }

    #[test]
    fn empty_silver_does_not_pass_for_bronze_only() {
        let (_, errors) = parse_text("[pipeline.a.silver]\n");
        assert_eq!(errors, "f.toml, line 1: pipeline.a.silver is empty");
    }

    #[test]
    fn table_in_a_flag_names_the_flag_and_no_line() {
        let mut problems = Problems::default();
        let text = "{ colum = \"op\", upsert = [\"I\"] }";
        let entries = parse_flag_table("silver.operations", "--operations", text, &mut problems);
        assert_eq!(entries.len(), 1);
        let error = problems.into_error(Some("f.toml")).unwrap();
        assert_eq!(
            error.message(),
            "--operations.colum is no known key; the nearest is --operations.column"
        );
    }

    #[test]
    fn unset_variable_is_named() {
        let (_, errors) = parse_text("[pipeline.a]\ncheckpoint = \"${UNSET}/c.db\"\n");
        assert_eq!(
            errors,
            "f.toml, line 2: pipeline.a.checkpoint: the environment variable UNSET is not set"
        );
    }

    #[test]
    fn variables_are_filled_in_and_not_shown() {
        let (document, errors) = parse_text("[pipeline.a]\ncheckpoint = \"${SET}/$$x/$y\"\n");
        assert_eq!(errors, "");
        let entry = &document.pipelines[0].entries["checkpoint"];
        assert_eq!(entry.value, Value::One("s3cret/$x/$y".to_string()));
        assert!(!entry.shown.contains("s3cret"));
    }

    #[test]
    fn operations_stand_inline_or_as_a_table() {
        let inline =
            parse_text("[pipeline.a.silver]\noperations = { column = \"op\", upsert = [\"I\"] }\n")
                .0;
        let table =
            parse_text("[pipeline.a.silver.operations]\ncolumn = \"op\"\nupsert = [\"I\"]\n").0;
        for document in [inline, table] {
            let entries = &document.pipelines[0].entries;
            assert_eq!(
                entries["silver.operations.column"].value,
                Value::One("op".to_string())
            );
            assert_eq!(
                entries["silver.operations.upsert"].value,
                Value::Many(vec!["I".to_string()])
            );
        }
    }
}
