//! What names of columns and values of operations usually mean.
//!
//! Names are compared without regard to case and signs. A word here is a reason to look, never a proof.

/// Names of sequences, the best first; those of one line are alike.
const SEQUENCES: [&[&str]; 6] = [
    &[
        "seq",
        "sequence",
        "seqno",
        "seqnum",
        "sequenceno",
        "sequencenumber",
        "changeseq",
        "eventseq",
    ],
    &[
        "lsn",
        "commitlsn",
        "startlsn",
        "scn",
        "commitscn",
        "logpos",
        "binlogpos",
        "position",
        "offset",
    ],
    &["version", "rowversion", "revision", "rev"],
    &[
        "tsms",
        "tsus",
        "tsns",
        "sourcetsms",
        "eventtsms",
        "committs",
        "committime",
        "committimestamp",
    ],
    &[
        "updatedat",
        "updatedon",
        "updatetime",
        "updatets",
        "lastupdated",
        "lastupdatedat",
        "modified",
        "modifiedat",
        "modifiedon",
        "lastmodified",
        "lastmodifiedat",
        "changedat",
        "systemmodstamp",
    ],
    &[
        "eventtime",
        "eventts",
        "eventtimestamp",
        "occurredat",
        "timestamp",
        "ts",
        "time",
        "datetime",
    ],
];

/// Names of columns that tell what an event is.
const OPERATIONS: [&str; 12] = [
    "op",
    "operation",
    "optype",
    "operationtype",
    "opcode",
    "cdcop",
    "cdcoperation",
    "changetype",
    "changeop",
    "changeoperation",
    "dmltype",
    "dmloperation",
];
/// Such names that mean something else as often; their values decide.
const VAGUE_OPERATIONS: [&str; 6] = ["action", "type", "event", "eventtype", "change", "kind"];

/// Names of columns that are true where a row is deleted.
const DELETE_FLAGS: [&str; 4] = ["deleted", "isdeleted", "deleteflag", "isdelete"];

/// Last parts of names of keys, by their score.
const KEY_PARTS: [(&str, u8); 17] = [
    ("id", 2),
    ("key", 2),
    ("uuid", 2),
    ("guid", 2),
    ("pk", 2),
    ("sku", 3),
    ("code", 3),
    ("symbol", 3),
    ("email", 3),
    ("isbn", 3),
    ("iban", 3),
    ("no", 4),
    ("nr", 4),
    ("num", 4),
    ("number", 4),
    ("line", 4),
    ("item", 4),
];

/// A name with this score or a smaller one is that of a key alone; larger ones are parts of keys.
pub(super) const LONE_KEY_SCORE_MAX: u8 = 3;
/// A name with this score or a smaller one is that of a key or of a part of one.
pub(super) const KEY_SCORE_MAX: u8 = 4;

/// Letters and digits, in lower case.
fn plain(name: &str) -> String {
    name.chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect()
}

/// The words of `customerId`, `customer_id` or `CUSTOMER-ID`, in lower case.
fn parts(name: &str) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    let mut goes_on = false;
    let mut was_lower = false;
    for c in name.chars() {
        let begins = c.is_uppercase() && was_lower;
        was_lower = c.is_lowercase() || c.is_numeric();
        if !c.is_alphanumeric() {
            goes_on = false;
            continue;
        }
        match parts.last_mut() {
            Some(last) if goes_on && !begins => last.extend(c.to_lowercase()),
            _ => parts.push(c.to_lowercase().collect()),
        }
        goes_on = true;
    }
    parts
}

/// How much a name is that of a sequence, the smaller the more; `None` when it is not.
pub(super) fn sequence_rank(name: &str) -> Option<usize> {
    let whole = plain(name);
    if let Some(rank) = SEQUENCES
        .iter()
        .position(|names| names.contains(&whole.as_str()))
    {
        return Some(rank);
    }
    let parts = parts(name);
    let ends = |names: &&[&str]| {
        let tail = |from: usize| parts[from..].concat();
        (1..parts.len()).any(|from| names.contains(&tail(from).as_str()))
    };
    SEQUENCES
        .iter()
        .position(ends)
        .map(|rank| rank + SEQUENCES.len())
}

/// Whether a rank is that of a name that says sequence and nothing else.
pub(super) fn is_plain_sequence(rank: usize) -> bool {
    rank < 4
}

/// How much a name is that of a key of the table, the smaller the more.
pub(super) fn key_score(name: &str, table: &str) -> u8 {
    let (whole, table) = (plain(name), singular(&plain(table)));
    if whole == "id" || whole == format!("{table}id") || whole == format!("{table}key") {
        return 0;
    }
    if [
        "key",
        "pk",
        "uuid",
        "guid",
        "rowid",
        "recordid",
        "primarykey",
    ]
    .contains(&whole.as_str())
    {
        return 1;
    }
    let last = parts(name).pop().unwrap_or_default();
    let known = KEY_PARTS.iter().find(|(part, _)| *part == last);
    known.map_or(KEY_SCORE_MAX + 1, |(_, score)| *score)
}

fn singular(word: &str) -> String {
    for (ending, stem) in [("ies", "y"), ("sses", "ss"), ("ss", "ss"), ("s", "")] {
        if let Some(front) = word.strip_suffix(ending) {
            return format!("{front}{stem}");
        }
    }
    word.to_string()
}

/// Whether a name is that of a column of operations; `Some(false)` when only its values can tell.
pub(super) fn operation_name(name: &str) -> Option<bool> {
    let name = plain(name);
    if OPERATIONS.contains(&name.as_str()) {
        Some(true)
    } else {
        VAGUE_OPERATIONS.contains(&name.as_str()).then_some(false)
    }
}

/// Whether a name is that of a flag of deleted rows.
pub(super) fn is_delete_flag(name: &str) -> bool {
    DELETE_FLAGS.contains(&plain(name).as_str())
}

/// What a value of an operation column does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Makes a row that was not there.
    Insert,
    /// Sets a row.
    Upsert,
    /// Deletes a row.
    Delete,
    /// Deletes all rows.
    Truncate,
    /// Says nothing about the row as it is now.
    Skip,
}

/// Values that are used together.
pub(super) type Family = &'static [(&'static str, Act)];

const FAMILIES: [Family; 8] = [
    &[
        ("i", Act::Insert),
        ("u", Act::Upsert),
        ("d", Act::Delete),
        ("t", Act::Truncate),
    ],
    &[
        ("c", Act::Insert),
        ("r", Act::Upsert),
        ("u", Act::Upsert),
        ("d", Act::Delete),
        ("t", Act::Truncate),
    ],
    &[
        ("insert", Act::Insert),
        ("update", Act::Upsert),
        ("delete", Act::Delete),
        ("truncate", Act::Truncate),
    ],
    &[
        ("create", Act::Insert),
        ("read", Act::Upsert),
        ("update", Act::Upsert),
        ("delete", Act::Delete),
        ("truncate", Act::Truncate),
    ],
    &[("upsert", Act::Upsert), ("delete", Act::Delete)],
    &[
        ("insert", Act::Insert),
        ("update_preimage", Act::Skip),
        ("update_postimage", Act::Upsert),
        ("delete", Act::Delete),
        ("truncate", Act::Truncate),
    ],
    &[
        ("+i", Act::Insert),
        ("-u", Act::Skip),
        ("+u", Act::Upsert),
        ("-d", Act::Delete),
    ],
    // As SQL Server numbers them: delete, insert, before and after an update.
    &[
        ("1", Act::Delete),
        ("2", Act::Insert),
        ("3", Act::Skip),
        ("4", Act::Upsert),
    ],
];

/// The first family that has all of the values, else the one that has most of them.
pub(super) fn family_of(values: &[&str]) -> Option<Family> {
    let known = |family: &Family| {
        values
            .iter()
            .filter(|value| act_of(family, value).is_some())
            .count()
    };
    // The last of equal ones would win, and the first is the more usual.
    let best = FAMILIES.into_iter().rev().max_by_key(known)?;
    (known(&best) > 0).then_some(best)
}

/// What a value does in a family.
pub(super) fn act_of(family: Family, value: &str) -> Option<Act> {
    let value = value.to_lowercase();
    family
        .iter()
        .find(|(word, _)| *word == value)
        .map(|(_, act)| *act)
}

/// A word in the case of the others.
pub(super) fn in_case_of(values: &[&str], word: &str) -> String {
    let mut letters = values
        .iter()
        .flat_map(|value| value.chars())
        .filter(|c| c.is_alphabetic());
    if letters.clone().all(char::is_uppercase) {
        word.to_uppercase()
    } else if letters.next().is_some_and(char::is_uppercase) {
        let mut letters = word.chars();
        letters
            .next()
            .into_iter()
            .flat_map(char::to_uppercase)
            .chain(letters)
            .collect()
    } else {
        word.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_only_contain_a_word_are_not_taken_for_it() {
        for name in [
            "consequence",
            "conversion",
            "paid",
            "valid",
            "notes",
            "amount",
            "",
        ] {
            assert_eq!(sequence_rank(name), None, "{name}");
            assert!(key_score(name, "orders") > KEY_SCORE_MAX, "{name}");
            assert_eq!(operation_name(name), None, "{name}");
        }
        assert_eq!(family_of(&["placed", "paid"]), None);
        assert!(!is_delete_flag("deleted_by"));
    }

    #[test]
    fn better_names_of_sequences_come_first() {
        let rank = |name| sequence_rank(name).unwrap();
        assert_eq!(rank("SEQ"), rank("sequence_number"));
        assert!(rank("seq") < rank("lsn") && rank("lsn") < rank("version"));
        assert!(rank("updated_at") < rank("ts") && rank("ts") < rank("orderSeq"));
        assert!(is_plain_sequence(rank("__source_ts_ms")) && !is_plain_sequence(rank("updatedAt")));
    }

    #[test]
    fn key_of_the_table_comes_before_other_keys() {
        assert_eq!(key_score("order_id", "orders"), 0);
        assert_eq!(key_score("CategoryID", "categories"), 0);
        assert_eq!(key_score("addressId", "address"), 0);
        assert_eq!(key_score("customerId", "orders"), 2);
        assert_eq!(key_score("line_no", "orders"), 4);
    }

    #[test]
    fn family_is_the_first_that_has_the_values() {
        let family = family_of(&["I", "U"]).unwrap();
        assert_eq!(act_of(family, "D"), Some(Act::Delete));
        assert_eq!(act_of(family, "X"), None);
        assert_eq!(family_of(&["c", "u", "x"]).unwrap().len(), 5);
        assert_eq!(family_of(&["u", "d"]), family_of(&["i"]));
    }

    #[test]
    fn missing_words_are_written_like_the_others() {
        assert_eq!(in_case_of(&["I", "U"], "d"), "D");
        assert_eq!(in_case_of(&["Insert"], "delete"), "Delete");
        assert_eq!(in_case_of(&["insert"], "delete"), "delete");
    }
}
