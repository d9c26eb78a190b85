//! Finds the column that tells what an event does, and what its values do.
//!
//! A value that nothing is known about is never taken for an upsert: it is left out, so its records go to quarantine.

use super::records::{Column, Records};
use super::words::{self, Act, Family};
use super::write::{self, Line, Sureness, all_shown, shown};
use crate::plural::counted;
use arrow::datatypes::DataType;

/// A column of operations has no more distinct values.
const VALUES_MAX: usize = 16;

/// What is known of the events.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// The column, if there is one; it stays out of silver.
    pub(super) column: Option<String>,
    /// What each record does; empty when there is no such column.
    /// `None` where it is not known.
    pub(super) acts: Vec<Option<Act>>,
    pub(super) lines: Vec<Line>,
    /// What could not be told.
    pub(super) notes: Vec<String>,
}

/// Finds the rules of the events.
pub(super) fn tell(records: &Records) -> Events {
    let by_name = |is_plain: bool| {
        let mut columns = records.columns.iter();
        columns.find(|column| {
            words::operation_name(&column.name) == Some(is_plain) && is_closed(column, is_plain)
        })
    };
    if let Some(column) = by_name(true).or_else(|| by_name(false)) {
        return of_column(column);
    }
    let flag = records
        .columns
        .iter()
        .find(|column| words::is_delete_flag(&column.name) && is_flag(column));
    if let Some(flag) = flag {
        return of_flag(flag);
    }
    let why = "no column tells deletes, so every record sets its row; fill in the column and its values if there is one";
    let value = "{ column = \"op\", upsert = [\"I\", \"U\"], delete = [\"D\"] }".to_string();
    Events {
        lines: vec![Line::open("operations", value, why)],
        ..Events::default()
    }
}

/// A vague name needs values that are all known, words or a delete among them.
fn is_closed(column: &Column, is_plain_name: bool) -> bool {
    let values = texts(column);
    if values.is_empty() || values.len() > VALUES_MAX {
        return false;
    }
    let Some(family) = words::family_of(&values) else {
        return is_plain_name;
    };
    let acts: Vec<_> = values
        .iter()
        .map(|value| words::act_of(family, value))
        .collect();
    let is_number = values
        .iter()
        .all(|value| value.bytes().all(|byte| byte.is_ascii_digit()));
    match is_plain_name {
        // Numbers are operations only under the name that SQL Server gives them.
        true => !is_number || column.name.starts_with("__$"),
        false => {
            !is_number && acts.iter().all(Option::is_some) && acts.contains(&Some(Act::Delete))
        }
    }
}

fn texts(column: &Column) -> Vec<&str> {
    let mut values: Vec<&str> = column
        .texts
        .iter()
        .take(VALUES_MAX + 1)
        .map(String::as_str)
        .collect();
    values.sort_unstable();
    values
}

fn of_column(column: &Column) -> Events {
    let values = texts(column);
    let Some(family) = words::family_of(&values) else {
        return unknown(column, &values);
    };
    let choice = Choice::new(family, &values);
    // A record without an operation is none of a closed set; it sets its row.
    let act = |record| match column.text(record) {
        Some(text) => words::act_of(family, text),
        None => Some(Act::Upsert),
    };
    let acts = (0..column.values.len()).map(act).collect();
    let mut events = Events {
        column: Some(column.name.clone()),
        acts,
        ..Events::default()
    };
    let name = shown(&column.name);
    if !choice.unknown.is_empty() {
        let unknown = all_shown(&choice.unknown);
        events.notes.push(format!("operations: what {unknown} in column {name} does could not be told; records of it would go to quarantine until it stands in a list"));
    }
    match column.nulls() {
        0 => events.lines.push(choice.closed_set(column)),
        nulls => events.lines.extend(choice.predicates(column, nulls)),
    }
    events
}

/// The name says operation and no value is known.
fn unknown(column: &Column, values: &[&str]) -> Events {
    let value = format!(
        "{{ column = {}, upsert = {}, delete = [] }}",
        write::text(&column.name),
        write::list(values)
    );
    let name = shown(&column.name);
    let why = format!(
        "the values of {name} are not known: move those that delete; until then every record sets its row"
    );
    Events {
        lines: vec![Line::open("operations", value, why)],
        notes: vec![format!(
            "operations: what the values of column {name} do could not be told: {}",
            all_shown(values)
        )],
        ..Events::default()
    }
}

/// A family with the values that were seen and those that belong to them.
struct Choice<'a> {
    upsert: Vec<String>,
    delete: Vec<String>,
    truncate: Vec<String>,
    skip: Vec<String>,
    /// In the lists but not in the sample.
    unseen: Vec<String>,
    /// In the sample but not in the lists.
    unknown: Vec<&'a str>,
}

impl<'a> Choice<'a> {
    fn new(family: Family, values: &[&'a str]) -> Self {
        let mut choice = Choice {
            upsert: Vec::new(),
            delete: Vec::new(),
            truncate: Vec::new(),
            skip: Vec::new(),
            unseen: Vec::new(),
            unknown: Vec::new(),
        };
        let (known, unknown): (Vec<&str>, Vec<&str>) = values
            .iter()
            .partition(|value| words::act_of(family, value).is_some());
        choice.unknown = unknown;
        for (word, act) in family {
            let mut seen: Vec<String> = known
                .iter()
                .filter(|value| value.to_lowercase() == *word)
                .map(|value| value.to_string())
                .collect();
            // What empties the table is listed only where it is in use.
            if seen.is_empty() && *act != Act::Truncate {
                seen.push(words::in_case_of(&known, word));
                choice.unseen.extend(seen.clone());
            }
            match act {
                Act::Insert | Act::Upsert => choice.upsert.extend(seen),
                Act::Delete => choice.delete.extend(seen),
                Act::Truncate => choice.truncate.extend(seen),
                Act::Skip => choice.skip.extend(seen),
            }
        }
        choice
    }

    fn closed_set(&self, column: &Column) -> Line {
        let further = |name: &str, values: &[String]| match values {
            [] => String::new(),
            _ => format!(", {name} = {}", write::list(values)),
        };
        let value = format!(
            "{{ column = {}, upsert = {}, delete = {}{}{} }}",
            write::text(&column.name),
            write::list(&self.upsert),
            write::list(&self.delete),
            further("truncate", &self.truncate),
            further("skip", &self.skip)
        );
        let mut why = format!("{}: the name and the values say so", self.sureness());
        if !self.unseen.is_empty() {
            why.push_str(&format!("; not in the sample: {}", all_shown(&self.unseen)));
        }
        if !self.unknown.is_empty() {
            why.push_str(&format!(
                "; in no list, fill in: {}",
                all_shown(&self.unknown)
            ));
        }
        Line::told("operations", value, why)
    }

    /// Records without an operation, such as those of a full load, are no part of a closed set.
    fn predicates(&self, column: &Column, nulls: usize) -> Vec<Line> {
        let condition = |values: &[String]| {
            let values: Vec<String> = values.iter().map(|value| literal(value)).collect();
            format!("{} IN ({})", identifier(&column.name), values.join(", "))
        };
        let why = format!(
            "{}: {} without an operation, as in a full load, set their rows like all that does not delete",
            self.sureness().max(Sureness::Likely),
            counted(nulls as u64, "record")
        );
        let deletes = write::text(&condition(&self.delete));
        let mut lines = vec![Line::told("apply_as_deletes", deletes, why)];
        if !self.truncate.is_empty() {
            let truncates = write::text(&condition(&self.truncate));
            let why = "likely: the values say so";
            lines.push(Line::told("apply_as_truncates", truncates, why));
        }
        lines
    }

    fn sureness(&self) -> Sureness {
        match (self.unknown.is_empty(), self.unseen.is_empty()) {
            (true, true) => Sureness::Sure,
            (true, false) => Sureness::Likely,
            (false, _) => Sureness::Guess,
        }
    }
}

fn is_flag(column: &Column) -> bool {
    let is_word = |text: &String| matches!(text.as_str(), "true" | "false");
    !column.texts.is_empty() && column.texts.iter().all(is_word)
}

fn of_flag(column: &Column) -> Events {
    let name = identifier(&column.name);
    let condition = match column.data_type {
        DataType::Boolean => format!("{name} = true"),
        _ => format!("{name} = 'true'"),
    };
    let act = |record| match column.text(record) {
        Some("true") => Some(Act::Delete),
        _ => Some(Act::Upsert),
    };
    let why = "likely: the name says so and the values are true and false";
    Events {
        column: Some(column.name.clone()),
        acts: (0..column.values.len()).map(act).collect(),
        lines: vec![Line::told("apply_as_deletes", write::text(&condition), why)],
        notes: Vec::new(),
    }
}

/// Predicates see the names of columns in lower case.
fn identifier(name: &str) -> String {
    format!("\"{}\"", name.to_lowercase().replace('"', "\"\""))
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::super::records::testing::records;
    use super::super::write::{Pipeline, Table, settings};
    use super::*;

    /// The lines as written.
    fn written(events: &Events) -> String {
        let table = Table {
            name: "silver",
            lines: events.lines.clone(),
            is_told: true,
        };
        let pipeline = Pipeline {
            name: "p".into(),
            remarks: vec![],
            tables: vec![table],
        };
        settings(&[], &[pipeline])
    }

    fn of(name: &str, values: &[&str]) -> Events {
        let rows: Vec<&[&str]> = values.chunks(1).collect();
        tell(&records(&format!("`{name}` STRING"), &rows))
    }

    #[test]
    fn values_that_are_not_known_are_no_upserts() {
        let events = of("op", &["I", "X", "U"]);
        let text = written(&events);
        assert!(
            text.contains("upsert = [\"I\", \"U\"], delete = [\"D\"]"),
            "{text}"
        );
        assert!(
            text.contains("guess") && text.contains("fill in: \"X\""),
            "{text}"
        );
        assert!(events.notes[0].contains("\"X\""), "{:?}", events.notes);
        let events = of("op", &["new", "old"]);
        assert!(
            written(&events).contains("# operations = "),
            "{}",
            written(&events)
        );
        assert_eq!((events.column, events.notes.len()), (None, 1));
    }

    #[test]
    fn vague_names_and_numbers_are_no_operations() {
        for (name, values) in [
            ("type", ["I", "U"]),
            ("action", ["delete", "archive"]),
            ("operation", ["1", "2"]),
            ("status", ["I", "D"]),
        ] {
            assert_eq!(of(name, &values).column, None, "{name}");
        }
        assert_eq!(
            of("action", &["insert", "delete"]).column.as_deref(),
            Some("action")
        );
    }

    #[test]
    fn too_many_values_are_no_operations() {
        let values: Vec<String> = (0..100).map(|number| format!("i{number}")).collect();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        assert_eq!(of("op", &values).column, None);
    }

    #[test]
    fn whole_family_is_sure_and_what_was_not_seen_is_said() {
        let text = written(&of("Op", &["I", "U", "D"]));
        assert!(
            text.contains("{ column = \"Op\", upsert = [\"I\", \"U\"], delete = [\"D\"] } # sure"),
            "{text}"
        );
        let text = written(&of("op", &["c", "u"]));
        assert!(
            text.contains("upsert = [\"c\", \"r\", \"u\"], delete = [\"d\"] } # likely"),
            "{text}"
        );
        assert!(text.contains("not in the sample: \"r\", \"d\""), "{text}");
        let text = written(&of("__$operation", &["1", "2", "3", "4"]));
        assert!(
            text.contains("column = \"__$$operation\"") && text.contains("skip = [\"3\"]"),
            "{text}"
        );
    }

    #[test]
    fn records_without_an_operation_make_a_predicate() {
        let text = written(&of("Op", &["-", "D"]));
        assert!(
            text.contains("apply_as_deletes = \"\\\"op\\\" IN ('D')\" # likely: 1 record"),
            "{text}"
        );
    }

    #[test]
    fn truncates_are_listed_where_the_sample_has_them() {
        let text = written(&of("op", &["I", "U", "D", "T"]));
        assert!(
            text.contains("delete = [\"D\"], truncate = [\"T\"] } # sure"),
            "{text}"
        );
        let text = written(&of("op", &["-", "delete", "truncate"]));
        assert!(
            text.contains("apply_as_truncates = \"\\\"op\\\" IN ('truncate')\""),
            "{text}"
        );
    }

    #[test]
    fn flag_of_deleted_rows_is_a_predicate() {
        let rows: [&[&str]; 2] = [&["true"], &["false"]];
        let events = tell(&records("is_deleted BOOLEAN", &rows));
        assert!(
            written(&events).contains("\\\"is_deleted\\\" = true"),
            "{}",
            written(&events)
        );
        assert_eq!(events.acts, [Some(Act::Delete), Some(Act::Upsert)]);
        assert!(written(&of("__deleted", &["true", "false"])).contains("= 'true'"));
        assert_eq!(of("deleted", &["yes", "no"]).column, None);
    }
}
