//! Worked examples of both SCD types, with silver written out: whatever the order of arrival and the cut into files and batches.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test stops by panicking"
)]

mod common;

use common::TestLoader;
use common::history::Random;

/// Changes of four users, two of them delivered after newer ones.
const USERS: [&str; 8] = [
    r#"{"id":124,"name":"Raul","city":"Oaxaca","op":"INSERT","n":1}"#,
    r#"{"id":123,"name":"Isabel","city":"Monterrey","op":"INSERT","n":1}"#,
    r#"{"id":125,"name":"Mercedes","city":"Tijuana","op":"INSERT","n":2}"#,
    r#"{"id":126,"name":"Lily","city":"Cancun","op":"INSERT","n":2}"#,
    r#"{"id":123,"name":null,"city":null,"op":"DELETE","n":6}"#,
    r#"{"id":125,"name":"Mercedes","city":"Guadalajara","op":"UPDATE","n":6}"#,
    r#"{"id":125,"name":"Mercedes","city":"Mexicali","op":"UPDATE","n":5}"#,
    r#"{"id":123,"name":"Isabel","city":"Chihuahua","op":"UPDATE","n":5}"#,
];
const TRUNCATE: &str = r#"{"id":null,"name":null,"city":null,"op":"TRUNCATE","n":3}"#;

const CURRENT: [&str; 3] = [
    "124|Raul|Oaxaca|1",
    "125|Mercedes|Guadalajara|6",
    "126|Lily|Cancun|2",
];
const FLAGGED: [&str; 4] = [
    "123|Isabel|Chihuahua|6|true",
    "124|Raul|Oaxaca|1|false",
    "125|Mercedes|Guadalajara|6|false",
    "126|Lily|Cancun|2|false",
];
const VERSIONS: [&str; 7] = [
    "123|Isabel|Chihuahua|5|6",
    "123|Isabel|Monterrey|1|5",
    "124|Raul|Oaxaca|1|NULL",
    "125|Mercedes|Guadalajara|6|NULL",
    "125|Mercedes|Mexicali|5|6",
    "125|Mercedes|Tijuana|2|5",
    "126|Lily|Cancun|2|NULL",
];
const VERSIONS_OF_NAMES: [&str; 4] = [
    "123|Isabel|Chihuahua|1|6",
    "124|Raul|Oaxaca|1|NULL",
    "125|Mercedes|Guadalajara|2|NULL",
    "126|Lily|Cancun|2|NULL",
];

const HARD: &str = "deletes = \"hard\"";
const HISTORY: &str = "stored_as_scd_type = 2";

/// A pipeline over `id`, `name`, `city`, ordered by `n`.
fn users(silver: &str) -> TestLoader {
    let rules = match silver.contains("scd_type = 2") {
        true => "apply_as_deletes = \"op = 'DELETE'\"\nexcept_column_list = [\"op\", \"n\"]",
        false => {
            "apply_as_deletes = \"op = 'DELETE'\"\napply_as_truncates = \"op = 'TRUNCATE'\"\nexcept_column_list = [\"op\"]"
        }
    };
    TestLoader::from_toml(&format!(
        r#"
[pipeline.users]
checkpoint = "users.db"
[pipeline.users.source]
path = "landing"
settle = "0s"
max_files_per_trigger = 2
schema_hints = "id BIGINT, name STRING, city STRING, op STRING, n BIGINT"
[pipeline.users.bronze]
path = "bronze"
[pipeline.users.silver]
path = "silver"
keys = ["id"]
sequence_by = ["n"]
{rules}
{silver}
"#
    ))
}

/// Silver without the names of its columns.
fn silver(loader: &TestLoader) -> Vec<String> {
    let Some(table) = loader.silver() else {
        return Vec::new();
    };
    let schema = table.schema();
    let names: Vec<&str> = schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    let bare = |text: String| {
        let parts = text
            .split(' ')
            .map(|part| part.split_once('=').unwrap().1.to_string());
        parts.collect::<Vec<_>>().join("|")
    };
    let mut rows: Vec<String> = loader.silver_texts(&names).into_iter().map(bare).collect();
    rows.sort();
    rows
}

/// Loads each text as a file and a batch of its own.
fn in_order(settings: &str, lines: &[&str]) -> Vec<String> {
    let loader = users(settings);
    for (place, line) in lines.iter().enumerate() {
        loader.drop_file(&format!("{place}.jsonl"), line);
        loader.run();
    }
    silver(&loader)
}

#[test]
fn late_events_lose_in_the_current_rows() {
    assert_eq!(in_order(HARD, &USERS), CURRENT);
    assert_eq!(in_order("", &USERS), FLAGGED);
}

#[test]
fn truncate_takes_what_is_older_and_spares_what_is_newer_whenever_it_comes() {
    for place in 0..=USERS.len() {
        let mut lines = USERS.to_vec();
        lines.insert(place, TRUNCATE);
        assert_eq!(
            in_order(HARD, &lines),
            ["125|Mercedes|Guadalajara|6"],
            "truncate at {place}"
        );
        assert_eq!(
            in_order("", &lines),
            [
                "123|Isabel|Chihuahua|6|true",
                "124|Raul|Oaxaca|3|true",
                "125|Mercedes|Guadalajara|6|false",
                "126|Lily|Cancun|3|true"
            ],
            "truncate at {place}"
        );
    }
}

#[test]
fn history_has_a_row_for_each_version() {
    assert_eq!(in_order(HISTORY, &USERS), VERSIONS);
}

#[test]
fn untracked_column_takes_the_newest_value_in_the_version() {
    let settings = format!("{HISTORY}\ntrack_history_except_column_list = [\"city\"]");
    assert_eq!(in_order(&settings, &USERS), VERSIONS_OF_NAMES);
}

#[test]
fn any_arrival_in_any_files_and_batches_gives_the_same_rows() {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                (0..300)
                    .filter(|seed| seed % threads == thread)
                    .for_each(shuffled)
            });
        }
    });
}

fn shuffled(seed: u64) {
    let mut random = Random::new(seed);
    let names = format!("{HISTORY}\ntrack_history_column_list = [\"name\"]");
    let (mut settings, expected): (String, &[&str]) = match seed % 4 {
        0 => (HARD.into(), &CURRENT),
        1 => (String::new(), &FLAGGED),
        2 => (HISTORY.into(), &VERSIONS),
        _ => (names, &VERSIONS_OF_NAMES),
    };
    if random.one_in(2) {
        settings += "\nignore_null_updates = true";
    }
    let mut lines = USERS.to_vec();
    random.shuffle(&mut lines);
    let loader = users(&settings);
    let mut file = 0;
    while !lines.is_empty() {
        let count = (1 + random.below(4) as usize).min(lines.len());
        let text: Vec<&str> = lines.drain(..count).collect();
        loader.drop_file(
            &format!("{}{file}.jsonl", random.below(10)),
            text.join("\n"),
        );
        file += 1;
        if random.one_in(2) {
            loader.run();
        }
    }
    loader.run();
    assert_eq!(silver(&loader), expected, "seed {seed}: {settings}");
}

fn event(op: &str, name: &str, city: &str, n: i64) -> String {
    format!(r#"{{"id":1,"name":{name},"city":{city},"op":"{op}","n":{n}}}"#)
}

#[test]
fn late_event_splits_a_version_by_events_that_were_hidden_in_it() {
    let tracked = format!("{HISTORY}\ntrack_history_column_list = [\"name\"]");
    let lines = [
        event("U", "\"Alice\"", "\"c5\"", 5),
        event("U", "\"Alice\"", "\"c10\"", 10),
        event("U", "\"Alice\"", "\"c15\"", 15),
    ];
    let mut lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!(in_order(&tracked, &lines), ["1|Alice|c15|5|NULL"]);
    let (charlie, bob) = (
        event("U", "\"Charlie\"", "\"c20\"", 20),
        event("U", "\"Bob\"", "\"c12\"", 12),
    );
    lines.push(&charlie);
    assert_eq!(
        in_order(&tracked, &lines),
        ["1|Alice|c15|5|20", "1|Charlie|c20|20|NULL"]
    );
    lines.push(&bob);
    assert_eq!(
        in_order(&tracked, &lines),
        [
            "1|Alice|c10|5|12",
            "1|Alice|c15|15|20",
            "1|Bob|c12|12|15",
            "1|Charlie|c20|20|NULL"
        ]
    );
}

#[test]
fn delete_that_comes_before_its_insert_ends_it() {
    let lines = [
        event("DELETE", "null", "null", 10),
        event("U", "\"A\"", "null", 4),
        event("U", "\"B\"", "null", 12),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!(in_order(HISTORY, &lines[..1]), Vec::<String>::new());
    assert_eq!(in_order(HISTORY, &lines[..2]), ["1|A|NULL|4|10"]);
    assert_eq!(
        in_order(HISTORY, &lines),
        ["1|A|NULL|4|10", "1|B|NULL|12|NULL"]
    );
    assert_eq!(in_order(HARD, &lines[..2]), Vec::<String>::new());
    assert_eq!(in_order(HARD, &lines), ["1|B|NULL|12"]);
}

#[test]
fn events_of_one_sequence_are_ordered_by_their_files_and_leave_no_row_without_width() {
    let before = event("U", "\"w\"", "null", 3);
    let (upsert, delete) = (
        event("U", "\"x\"", "null", 7),
        event("DELETE", "null", "null", 7),
    );
    for late in [false, true] {
        let mut delete_wins = [("0", before.as_str()), ("1", &upsert), ("2", &delete)];
        let mut upsert_wins = [("0", before.as_str()), ("2", &upsert), ("1", &delete)];
        if late {
            delete_wins.reverse();
            upsert_wins.reverse();
        }
        let run = |settings: &str, files: [(&str, &str); 3]| {
            let loader = users(settings);
            for (name, text) in files {
                loader.drop_file(&format!("{name}.jsonl"), text);
                loader.run();
            }
            silver(&loader)
        };
        assert_eq!(run(HISTORY, delete_wins), ["1|w|NULL|3|7"]);
        assert_eq!(run(HARD, delete_wins), Vec::<String>::new());
        assert_eq!(
            run(HISTORY, upsert_wins),
            ["1|w|NULL|3|7", "1|x|NULL|7|NULL"]
        );
        assert_eq!(run(HARD, upsert_wins), ["1|x|NULL|7"]);
    }
}

#[test]
fn null_of_a_newer_event_does_not_hide_an_older_value_that_comes_later() {
    let lines = [
        event("U", "null", "\"x\"", 5),
        event("U", "\"p\"", "\"y\"", 3),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let ignore = "ignore_null_updates = true";
    assert_eq!(in_order(ignore, &lines), ["1|p|x|5|false"]);
    assert_eq!(in_order(&format!("{ignore}\n{HARD}"), &lines), ["1|p|x|5"]);
    assert_eq!(
        in_order(&format!("{ignore}\n{HISTORY}"), &lines),
        ["1|p|x|5|NULL", "1|p|y|3|5"]
    );
}

#[test]
fn older_event_between_two_newer_ones_is_ignored() {
    let lines = [5, 3, 7].map(|n| event("U", &format!("\"v{n}\""), "null", n));
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!(in_order(HARD, &lines), ["1|v7|NULL|7"]);
    assert_eq!(
        in_order(HISTORY, &lines),
        ["1|v3|NULL|3|5", "1|v5|NULL|5|7", "1|v7|NULL|7|NULL"]
    );
}

#[test]
fn third_version_leaves_the_closed_ones_alone() {
    let lines: Vec<String> = ["new", "paid", "shipped", "returned"]
        .iter()
        .zip(1..)
        .map(|(name, n)| event("U", &format!("{name:?}"), "null", n))
        .collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!(
        in_order(HISTORY, &lines),
        [
            "1|new|NULL|1|2",
            "1|paid|NULL|2|3",
            "1|returned|NULL|4|NULL",
            "1|shipped|NULL|3|4"
        ]
    );
}

#[test]
fn same_values_after_a_gap_are_a_version_of_their_own() {
    let lines = [
        event("I", "\"a\"", "null", 1),
        event("DELETE", "null", "null", 2),
        event("I", "\"a\"", "null", 3),
        event("U", "\"b\"", "null", 4),
        event("U", "\"a\"", "null", 5),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!(
        in_order(HISTORY, &lines),
        [
            "1|a|NULL|1|2",
            "1|a|NULL|3|4",
            "1|a|NULL|5|NULL",
            "1|b|NULL|4|5"
        ]
    );
}

#[test]
fn new_column_joins_a_history_and_is_null_in_the_versions_before() {
    let lines = [
        event("I", "\"a\"", "null", 1),
        event("U", "\"b\"", "null", 2),
        event("U", "\"b\"", "null", 3).replace("}", ",\"coupon\":\"C1\"}"),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!(
        in_order(HISTORY, &lines),
        [
            "1|a|NULL|1|2|NULL",
            "1|b|NULL|2|3|NULL",
            "1|b|NULL|3|NULL|C1"
        ]
    );
}

#[test]
fn truncate_below_a_row_takes_nothing_from_what_comes_after_it() {
    let lines = [
        TRUNCATE.to_string(),
        event("U", "\"a\"", "\"x\"", 6),
        event("U", "null", "\"y\"", 7),
    ];
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let settings = "ignore_null_updates = true";
    assert_eq!(in_order(settings, &lines), ["1|a|y|7|false"]);
    assert_eq!(
        in_order(&format!("{settings}\n{HARD}"), &lines),
        ["1|a|y|7"]
    );
}
