//! Tells keys and sequence in lines and words: why they were chosen, how sure that is, what has to be filled in.

use super::keys::{Found, Search};
use super::operations::Events;
use super::records::Records;
use super::words;
use super::write::{self, Line, Sureness, all_shown, shown};
use crate::plural::counted;

/// Keys and sequence of a table.
#[derive(Debug, Default)]
pub(super) struct Roles {
    pub(super) lines: Vec<Line>,
    /// Both were found.
    pub(super) is_told: bool,
    /// What could not be told.
    pub(super) notes: Vec<String>,
}

/// Finds keys and sequence of the records of the table of this name.
pub(super) fn tell(records: &Records, events: &Events, table: &str) -> Roles {
    let search = Search::new(records, events, table);
    let Some(found) = search.best() else {
        return without_keys(&search);
    };
    if found.sequence.is_empty() {
        return Roles {
            lines: vec![keys_line(&search, &found), open_sequence(&search)],
            is_told: false,
            notes: vec![sequence_note(&search)],
        };
    }
    let notes = match found.refuting {
        0 => Vec::new(),
        _ => vec![format!(
            "keys and sequence_by are a guess: {}",
            refuted_text(&found)
        )],
    };
    Roles {
        lines: vec![keys_line(&search, &found), sequence_line(&search, &found)],
        is_told: true,
        notes,
    }
}

fn refuted_text(found: &Found) -> String {
    let records = counted(found.refuting as u64, "record");
    format!(
        "{records} with key and sequence of another that differs; of those the last by file and row wins"
    )
}

fn keys_line(search: &Search<'_>, found: &Found) -> Line {
    let others = alternatives(search, found);
    let is_tested = search.is_tested(&found.keys);
    let sureness = match search.score_of(&found.keys) {
        _ if found.refuting > 0 => Sureness::Guess,
        0..=1 if is_tested => Sureness::Sure,
        0..=1 => Sureness::Likely,
        2 if others.is_empty() && is_tested => Sureness::Likely,
        _ => Sureness::Guess,
    };
    let mut why = format!("{sureness}: no NULLs, {}", counts_text(search, &found.keys));
    if !others.is_empty() && sureness != Sureness::Sure {
        why.push_str(&format!("; also possible: {}", all_shown(&others)));
    }
    let refuted = refuted(search, found);
    if !refuted.is_empty() {
        why.push_str(&format!(
            "; the sample speaks against {}",
            all_shown(&refuted)
        ));
    }
    Line::told("keys", write::list(&search.names(&found.keys)), why)
}

/// Other columns that are called like keys and fit as well.
fn alternatives<'a>(search: &Search<'a>, found: &Found) -> Vec<&'a str> {
    let named = search.keys_up_to(words::KEY_SCORE_MAX).into_iter();
    let others = named.filter(|key| !found.keys.contains(key));
    let fitting = others.filter(|key| search.fits(&[*key], &found.sequence));
    fitting.map(|key| search.name(key)).collect()
}

/// Columns with a better name, under which an event would not make sense.
fn refuted<'a>(search: &Search<'a>, found: &Found) -> Vec<&'a str> {
    let better = (0..search.score_of(&found.keys)).next_back();
    let named = better.map_or_else(Vec::new, |score| search.keys_up_to(score));
    let others = named.iter().filter(|key| !found.keys.contains(key));
    others.map(|key| search.name(*key)).collect()
}

fn counts_text(search: &Search<'_>, keys: &[usize]) -> String {
    let records = counted(search.record_count() as u64, "record");
    match search.count_of(keys) {
        count if count == search.record_count() => format!("each value stands once in {records}"),
        count => format!("{} in {records}", counted(count as u64, "value")),
    }
}

fn sequence_line(search: &Search<'_>, found: &Found) -> Line {
    let has_repeats = search.count_of(&found.keys) < search.record_count();
    let sureness = match found.sequence.as_slice() {
        _ if found.refuting > 0 => Sureness::Guess,
        [one] if search.is_plain_sequence(*one) && has_repeats => Sureness::Sure,
        [one] if search.is_plain_sequence(*one) || has_repeats => Sureness::Likely,
        _ => Sureness::Guess,
    };
    let mut why = match found.refuting {
        0 => format!("{sureness}: no NULLs, no two records of a key share it"),
        _ => format!("{sureness}: {}", refuted_text(found)),
    };
    let others = search
        .sequences()
        .into_iter()
        .filter(|column| !found.sequence.contains(column));
    let others: Vec<&str> = others.map(|column| search.name(column)).collect();
    if !others.is_empty() {
        why.push_str(&format!("; also possible: {}", all_shown(&others)));
    }
    Line::told(
        "sequence_by",
        write::list(&search.names(&found.sequence)),
        why,
    )
}

fn without_keys(search: &Search<'_>) -> Roles {
    let named = search.names(&search.keys_up_to(words::KEY_SCORE_MAX));
    let why_not = match named.as_slice() {
        [] => "no column without NULLs is called like a key".to_string(),
        names => format!(
            "different records share the sequence and {}",
            all_shown(names)
        ),
    };
    let is_key = |name: &&&str| words::sequence_rank(name).is_none();
    let with_nulls = search.with_nulls.iter().find(is_key);
    let example = named.first().or(with_nulls).unwrap_or(&"id");
    let why = "fill in: the columns that name a row";
    let mut notes = vec![format!(
        "keys could not be told: {why_not}{}",
        nulls_text(search)
    )];
    let sequence = match search.sequences().first() {
        Some(column) => Line::open(
            "sequence_by",
            write::list(&[search.name(*column)]),
            "guess: by its name",
        ),
        None => {
            notes.push(sequence_note(search));
            open_sequence(search)
        }
    };
    Roles {
        lines: vec![Line::open("keys", write::list(&[example]), why), sequence],
        is_told: false,
        notes,
    }
}

fn open_sequence(search: &Search<'_>) -> Line {
    let with_nulls = search
        .with_nulls
        .iter()
        .find(|name| words::sequence_rank(name).is_some());
    let why = "fill in: the columns that order the events of a key; the larger wins";
    Line::open(
        "sequence_by",
        write::list(&[with_nulls.unwrap_or(&"seq")]),
        why,
    )
}

fn sequence_note(search: &Search<'_>) -> String {
    let why_not =
        "no column without NULLs is called like a sequence and holds whole numbers or times";
    format!(
        "sequence_by could not be told: {why_not}{}",
        nulls_text(search)
    )
}

/// Columns that a NULL rules out; a record without key or sequence goes to quarantine.
fn nulls_text(search: &Search<'_>) -> String {
    match search.with_nulls.as_slice() {
        [] => String::new(),
        [one] => format!("; {} has NULLs", shown(one)),
        several => format!("; with NULLs: {}", all_shown(several)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::operations;
    use super::super::records::testing::records;
    use super::super::write::{Pipeline, Table, settings};
    use super::*;

    /// The lines as written, and the notes.
    fn told(ddl: &str, rows: &[&[&str]]) -> (String, String) {
        let records = records(ddl, rows);
        let roles = tell(&records, &operations::tell(&records), "orders");
        let table = Table {
            name: "silver",
            lines: roles.lines,
            is_told: roles.is_told,
        };
        let pipeline = Pipeline {
            name: "p".into(),
            remarks: vec![],
            tables: vec![table],
        };
        (settings(&[], &[pipeline]), roles.notes.join("\n"))
    }

    #[test]
    fn nothing_that_could_be_a_key_leaves_examples_to_fill_in() {
        let (text, notes) = told("note STRING", &[&["x"], &["-"]]);
        assert!(text.contains("# keys = [\"id\"] # fill in"), "{text}");
        assert!(
            text.contains("# sequence_by = [\"seq\"] # fill in"),
            "{text}"
        );
        assert!(
            notes.contains("keys could not") && notes.contains("sequence_by could not"),
            "{notes}"
        );
    }

    #[test]
    fn columns_that_nulls_rule_out_are_named_and_offered() {
        let rows: [&[&str]; 2] = [&["1", "-"], &["-", "2"]];
        let (text, notes) = told("order_id BIGINT, seq BIGINT", &rows);
        assert!(text.contains("# keys = [\"order_id\"]"), "{text}");
        assert!(
            notes.contains("with NULLs: \"order_id\", \"seq\""),
            "{notes}"
        );
    }

    #[test]
    fn key_that_the_sample_speaks_against_is_named() {
        let ddl = "op STRING, order_id BIGINT, line_id BIGINT, seq BIGINT";
        let rows: [&[&str]; 3] = [
            &["I", "1", "1", "1"],
            &["I", "1", "2", "2"],
            &["U", "1", "2", "3"],
        ];
        let (text, _) = told(ddl, &rows);
        assert!(text.contains("keys = [\"line_id\"] # likely"), "{text}");
        assert!(text.contains("speaks against \"order_id\""), "{text}");
    }

    #[test]
    fn sureness_falls_with_ties_and_without_repeats() {
        let ddl = "op STRING, order_id BIGINT, seq BIGINT";
        let sure: [&[&str]; 2] = [&["I", "1", "1"], &["U", "1", "2"]];
        let (text, _) = told(ddl, &sure);
        assert!(
            text.contains("[\"order_id\"] # sure") && text.contains("[\"seq\"] # sure"),
            "{text}"
        );
        let (text, _) = told(ddl, &[&["I", "1", "1"], &["I", "2", "2"]]);
        assert!(
            text.contains("[\"order_id\"] # likely") && text.contains("[\"seq\"] # likely"),
            "{text}"
        );
        let tied: [&[&str]; 4] = [
            &["I", "1", "1"],
            &["U", "1", "2"],
            &["D", "1", "2"],
            &["I", "2", "4"],
        ];
        let (text, notes) = told(ddl, &tied);
        assert!(text.contains("[\"order_id\"] # guess"), "{text}");
        assert!(
            notes.contains("1 record with key and sequence of another"),
            "{notes}"
        );
    }
}
