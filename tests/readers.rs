//! The tables read back by independent readers: `deltalake`, Polars and DuckDB, in the Python that `LANDFALL_PYTHON` names.
//!
//! Without the variable there are no such readers, and the tests say so and pass; `.ci/run` always sets it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test stops by panicking"
)]

mod common;

use common::TestLoader;
use common::rules::Rules;
use landfall::clock::{Clock, SystemClock};
use landfall::delta::Table;
use landfall::maintain::maintain;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const BATCH_1: &str = r#"{"op":"I","order_id":1001,"status":"placed","amount":25.50,"seq":1}
{"op":"I","order_id":1002,"status":"placed","amount":12.00,"seq":2}
{"op":"U","order_id":1001,"status":"paid","amount":25.50,"seq":3}
{"op":"I","order_id":1003,"status":"placed","amount":60.00,"seq":4}
"#;
const BATCH_2: &str = r#"{"op":"U","order_id":1001,"status":"shipped","amount":25.50,"seq":5}
{"op":"D","order_id":1002,"status":null,"amount":null,"seq":6}
{"op":"U","order_id":1003,"status":"paid","amount":60.00,"seq":7}
"#;
const LATE: &str = r#"{"op":"U","order_id":1001,"status":"paid","amount":25.50,"seq":3}
{"op":"I","order_id":1002,"status":"placed","amount":12.00,"seq":2}
"#;

/// What the reader prints; `None` where there is no reader.
fn read(what: &str, table: &Path, rest: &[&str]) -> Option<Value> {
    let rest = rest.iter().map(Path::new);
    call(what, &[table].into_iter().chain(rest).collect::<Vec<_>>())
}

fn call(what: &str, arguments: &[&Path]) -> Option<Value> {
    let Some(python) = std::env::var_os("LANDFALL_PYTHON") else {
        eprintln!("skipped: LANDFALL_PYTHON names no Python with deltalake");
        return None;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/readers/read.py");
    let output = Command::new(python)
        .arg(script)
        .arg(what)
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

fn sorted(rows: Value, keys: &[&str]) -> Vec<Value> {
    let Value::Array(mut rows) = rows else {
        panic!("no list of rows: {rows}")
    };
    rows.sort_by_key(|row| {
        keys.iter()
            .map(|key| row[*key].to_string())
            .collect::<Vec<_>>()
    });
    rows
}

#[test]
fn walk_through_is_read_alike_and_its_feed_tells_only_what_changed() {
    let loader = TestLoader::orders();
    let silver = loader.settings.silver.clone().unwrap().path;
    loader.drop_file("1.jsonl", BATCH_1);
    loader.run();
    let first = loader.silver().unwrap().version().0;
    loader.drop_file("2.jsonl", BATCH_2);
    loader.run();
    loader.drop_file("2-again.jsonl", BATCH_2);
    loader.run();
    loader.drop_file("late.jsonl", LATE);
    loader.run();

    let Some(rows) = read("rows", &silver, &[]) else {
        return;
    };
    assert_eq!(
        sorted(rows, &["order_id"]),
        [
            json!({"order_id": 1001, "status": "shipped", "amount": "25.50", "seq": 5, "deleted": false}),
            json!({"order_id": 1002, "status": "placed", "amount": "12.00", "seq": 6, "deleted": true}),
            json!({"order_id": 1003, "status": "paid", "amount": "60.00", "seq": 7, "deleted": false}),
        ]
    );
    let after_first = (first + 1).to_string();
    let changes = sorted(
        read("changes", &silver, &[&after_first]).unwrap(),
        &["_change_type", "order_id"],
    );
    let kinds: Vec<&str> = changes
        .iter()
        .map(|row| row["_change_type"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [["update_postimage"; 3], ["update_preimage"; 3]].concat()
    );
    let seqs: Vec<i64> = changes
        .iter()
        .map(|row| row["seq"].as_i64().unwrap())
        .collect();
    assert_eq!(seqs, [5, 6, 7, 3, 2, 4]);

    let bronze = read("rows", &loader.settings.bronze.path, &[]).unwrap();
    assert_eq!(bronze.as_array().unwrap().len(), 12);
    assert_eq!(
        read("transactions", &loader.settings.bronze.path, &[]).unwrap(),
        json!(4)
    );
    assert_eq!(read("transactions", &silver, &[]).unwrap(), json!(4));
}

#[test]
fn copy_on_write_gives_the_same_rows_and_the_same_feed() {
    let feeds = ["merge_on_read", "copy_on_write"].map(|mode| {
        let loader = TestLoader::with("", &format!("write_mode = \"{mode}\""));
        let silver = loader.settings.silver.clone().unwrap().path;
        for (name, text) in [
            ("1.jsonl", BATCH_1),
            ("2.jsonl", BATCH_2),
            ("late.jsonl", LATE),
        ] {
            loader.drop_file(name, text);
            loader.run();
        }
        let keys = ["_commit_version", "_change_type", "order_id"];
        let mut feed = read("changes", &silver, &["0"])
            .map(|feed| sorted(feed, &keys))
            .unwrap_or_default();
        for row in &mut feed {
            row.as_object_mut().unwrap().remove("_commit_timestamp");
        }
        let rows = read("rows", &silver, &[])
            .map(|rows| sorted(rows, &["order_id"]))
            .unwrap_or_default();
        (rows, feed)
    });
    assert_eq!(feeds[0], feeds[1]);
}

/// A pipeline with columns of every kind.
fn many_types(mode: &str, partitions: &str) -> TestLoader {
    TestLoader::from_toml(&format!(
        r#"
[pipeline.orders]
checkpoint = "checkpoints/orders.db"
[pipeline.orders.source]
path = "landing"
format = "json"
settle = "0s"
schema_hints = """op STRING, order_id BIGINT, status STRING, amount DECIMAL(10,2), seq BIGINT, at TIMESTAMP,
    at_local TIMESTAMP_NTZ, day DATE, ratio DOUBLE, small INT, flag BOOLEAN, tags ARRAY<STRING>,
    buyer STRUCT<name: STRING, age: INT>"""
[pipeline.orders.bronze]
path = "lake/bronze"
{partitions}
[pipeline.orders.silver]
path = "lake/silver"
keys = ["order_id"]
sequence_by = ["seq"]
operations = {{ column = "op", upsert = ["I", "U"], delete = ["D"] }}
except_column_list = ["op"]
write_mode = "{mode}"
{partitions}
"#
    ))
}

/// One event of each key; of some keys all values but key and sequence are NULL.
fn events(op: &str, keys: impl Iterator<Item = i64>, status: &str, seq: i64) -> String {
    let event = |key: i64| {
        let mut event = json!({"op": op, "order_id": key, "seq": seq});
        if key % 5 != 0 {
            event["status"] = format!("{status}{}", key % 2).into();
            event["amount"] = "1234.50".into();
            event["at"] = "2026-01-31T23:00:00.123456-02:00".into();
            event["at_local"] = "1969-12-31T23:59:59".into();
            event["day"] = format!("2026-02-{:02}", key % 3 + 1).into();
            event["ratio"] = (key as f64 / 8.0).into();
            event["small"] = (-key).into();
            event["flag"] = (key % 2 == 0).into();
            event["tags"] = json!(["a", null, status]);
            event["buyer"] = json!({"name": null, "age": key});
        }
        event.to_string() + "\n"
    };
    keys.map(event).collect()
}

/// A copy of a table, and what must be in it.
struct Kept {
    path: PathBuf,
    rows: usize,
    /// The rows of silver.
    silver: Option<Vec<String>>,
}

/// The settings of a pipeline, and the copies of its tables.
struct Shelf {
    mode: &'static str,
    partitions: &'static str,
    /// Stands in every status.
    sign: &'static str,
    folder: PathBuf,
    kept: Vec<Kept>,
}

impl Shelf {
    fn keep(&mut self, loader: &TestLoader) {
        let state = self.folder.join(self.kept.len().to_string());
        let amount = |cents: i64| format!("{}.{:02}", cents / 100, cents % 100);
        let rows = loader.silver_rows().into_iter().map(|row| {
            json!({
                "order_id": row.0, "status": row.1, "amount": row.2.map(amount), "seq": row.3,
                "deleted": row.4,
            })
            .to_string()
        });
        let mut rows: Vec<String> = rows.collect();
        rows.sort();
        let path = state.join("silver");
        copy(&loader.path().join("lake/silver"), &path);
        self.kept.push(Kept {
            path,
            rows: rows.len(),
            silver: Some(rows),
        });
        // Bronze does not depend on how silver is written.
        if self.mode == "merge_on_read" {
            let path = state.join("bronze");
            copy(&loader.path().join("lake/bronze"), &path);
            self.kept.push(Kept {
                path,
                rows: loader.bronze_places().len(),
                silver: None,
            });
        }
    }

    /// Polars takes no deletion vector of a file whose path is escaped in a URL.
    fn is_read_by(&self, reader: &str, kept: &Kept) -> bool {
        let has_vectors = kept.silver.is_some() && self.mode == "merge_on_read";
        let is_escaped = !self.partitions.is_empty() && self.sign == ODD;
        reader != "polars" || !has_vectors || !is_escaped
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Inserts, updates, deletes, a log checkpoint, a compaction, a vacuum with clean-up of the log, and changes after it.
fn keep_every_state(shelf: &mut Shelf) {
    let loader = &many_types(shelf.mode, shelf.partitions);
    let sign = shelf.sign;
    let events = |op, keys, status: &str, seq| events(op, keys, &format!("{status}{sign}"), seq);
    let load = |name: &str, text: String| {
        loader.drop_file(name, text);
        loader.run();
    };
    load("1.jsonl", events("I", 0..40, "placed", 1));
    load(
        "2.jsonl",
        events("U", 0..4, "paid", 2) + &events("I", 40..50, "placed", 2),
    );
    shelf.keep(loader);
    load(
        "3.jsonl",
        events("D", 4..9, "", 3) + &events("U", 20..23, "paid", 3),
    );
    shelf.keep(loader);
    for path in ["lake/silver", "lake/bronze"] {
        let table = loader.block_on(Table::open(&loader.path().join(path)));
        let mut table = table.unwrap().unwrap();
        loader.block_on(table.checkpoint_log()).unwrap();
    }
    shelf.keep(loader);
    load("4.jsonl", events("U", 6..12, "shipped", 4));
    let upkeep = |remove_old| {
        let mut pipeline = loader.pipeline();
        loader
            .block_on(maintain(&mut pipeline, remove_old))
            .unwrap()
    };
    let compacted = upkeep(false);
    assert!(
        compacted
            .iter()
            .all(|report| report.compacted.files_removed > 1)
    );
    shelf.keep(loader);
    load(
        "5.jsonl",
        events("U", 9..11, "returned", 5) + &events("D", 11..12, "", 5),
    );
    shelf.keep(loader);
    // The clock of the log is the time of its files.
    let ahead = SystemClock.now() + 40 * 86_400_000_000 - loader.clock.now();
    loader
        .clock
        .advance(Duration::from_micros(ahead.unsigned_abs()));
    let vacuumed = upkeep(true);
    let removed = |report: &landfall::maintain::MaintainReport| {
        report
            .vacuumed
            .as_ref()
            .is_some_and(|vacuum| !vacuum.files.is_empty())
    };
    assert!(vacuumed.iter().all(removed), "{vacuumed:?}");
    shelf.keep(loader);
    load(
        "6.jsonl",
        events("D", 30..33, "", 6) + &events("I", 60..63, "placed", 6),
    );
    shelf.keep(loader);
}

/// Signs of a status: one that needs no escape in a URL, and some that do.
const PLAIN: &str = "-";
const ODD: &str = " /\u{e9}%";

#[test]
fn every_reader_sees_the_same_rows_after_every_kind_of_commit() {
    let folder = tempfile::tempdir().unwrap();
    let by_status = "partition_by = [\"status\"]";
    let mut shelves = Vec::new();
    for (mode, partitions, sign) in [
        ("merge_on_read", "", ODD),
        ("copy_on_write", "", ODD),
        ("merge_on_read", by_status, PLAIN),
        ("merge_on_read", by_status, ODD),
        ("copy_on_write", by_status, ODD),
    ] {
        let folder = folder.path().join(shelves.len().to_string());
        shelves.push(Shelf {
            mode,
            partitions,
            sign,
            folder,
            kept: Vec::new(),
        });
    }
    std::thread::scope(|scope| {
        for shelf in &mut shelves {
            scope.spawn(|| keep_every_state(shelf));
        }
    });
    let tables = shelves.iter().flat_map(|shelf| &shelf.kept);
    let paths: Vec<&Path> = tables.map(|kept| kept.path.as_path()).collect();
    let Some(answer) = call("every", &paths) else {
        return;
    };
    let answer: BTreeMap<PathBuf, BTreeMap<String, Value>> =
        serde_json::from_value(answer).unwrap();
    for shelf in &shelves {
        for kept in &shelf.kept {
            check(shelf, kept, &answer[&kept.path]);
        }
    }
}

fn check(shelf: &Shelf, kept: &Kept, answer: &BTreeMap<String, Value>) {
    let of_reader = |reader: &str| {
        let keys = ["order_id", "_file_path", "_file_row"];
        sorted(answer[reader].clone(), &keys)
    };
    let first = of_reader("deltalake");
    for reader in ["deltalake", "polars", "duckdb"] {
        if !shelf.is_read_by(reader, kept) {
            continue;
        }
        let rows = of_reader(reader);
        let place = format!("{reader} of {}", kept.path.display());
        assert_eq!(rows, first, "{place}");
        assert_eq!(rows.len(), kept.rows, "{place}");
        let Some(expected) = &kept.silver else {
            continue;
        };
        let row = |row: &Value| {
            let names = ["order_id", "status", "amount", "seq", "deleted"];
            let fields = names.map(|name| (name.to_string(), row[name].clone()));
            Value::Object(fields.into_iter().collect()).to_string()
        };
        let mut rows: Vec<String> = rows.iter().map(row).collect();
        rows.sort();
        assert_eq!(rows, *expected, "{place}");
    }
}

#[test]
fn history_with_struct_bounds_and_hard_deletes_are_read_alike() {
    let rules = Rules {
        tracked: Some(vec!["status", "amount"]),
        two_sequences: true,
        ..Rules::default()
    };
    let history = TestLoader::under(&rules, "", "");
    let hard = TestLoader::with("", "deletes = \"hard\"");
    for (loader, last) in [(&history, ",\"n\":0}"), (&hard, "}")] {
        for (name, text) in [
            ("2.jsonl", BATCH_2),
            ("1.jsonl", BATCH_1),
            ("late.jsonl", LATE),
        ] {
            loader.drop_file(name, text.replace('}', last));
            loader.run();
        }
    }
    let path = |loader: &TestLoader| loader.settings.silver.clone().unwrap().path;
    let Some(rows) = read("rows", &path(&hard), &[]) else {
        return;
    };
    assert_eq!(
        sorted(rows, &["order_id"]),
        [
            json!({"order_id": 1001, "status": "shipped", "amount": "25.50", "seq": 5}),
            json!({"order_id": 1003, "status": "paid", "amount": "60.00", "seq": 7}),
        ]
    );
    let rows = read("rows", &path(&history), &[]).unwrap();
    let spans: Vec<String> = sorted(rows, &["order_id", "seq"])
        .iter()
        .map(|row| {
            let end = &row["__END_AT"];
            let end = if end.is_null() {
                "-".into()
            } else {
                end["seq"].to_string()
            };
            format!("{} {} {end}", row["order_id"], row["__START_AT"]["seq"])
        })
        .collect();
    assert_eq!(
        spans,
        [
            "1001 1 3", "1001 3 5", "1001 5 -", "1002 2 6", "1003 4 7", "1003 7 -"
        ]
    );
}

/// Settings of the source for each part that `source.py` writes.
const SOURCES: [(&str, &str); 4] = [
    ("documents", "json.multi_line = true"),
    ("utf16", "csv.encoding = \"UTF-16\""),
    ("windows1252", "csv.encoding = \"cp1252\""),
    ("avro", ""),
];

#[test]
fn random_records_of_every_format_load_as_other_readers_see_them() {
    let Some(python) = std::env::var_os("LANDFALL_PYTHON") else {
        eprintln!("skipped: LANDFALL_PYTHON names no Python with deltalake");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/readers/source.py");
    for seed in 0..3 {
        println!("seed {seed}");
        let root = folder.path().join(seed.to_string());
        let written = Command::new(&python)
            .args([script.as_os_str(), root.as_os_str()])
            .arg(seed.to_string())
            .output()
            .unwrap();
        let complaint = String::from_utf8_lossy(&written.stderr);
        assert!(written.status.success(), "{complaint}");
        let mut expected: BTreeMap<String, Value> =
            serde_json::from_slice(&written.stdout).unwrap();
        for (part, source) in SOURCES {
            let Some(loaded) = load_part(&root.join(part), source) else {
                return;
            };
            let expected = sorted_by_id(expected.remove(part).unwrap());
            assert_eq!(loaded.len(), expected.len(), "{part}");
            for (loaded, expected) in loaded.iter().zip(&expected) {
                assert_eq!(loaded, expected, "{part}");
            }
        }
        assert!(expected.is_empty());
    }
}

/// The rows of bronze, without the columns that the loader adds.
fn load_part(files: &Path, source: &str) -> Option<Vec<Value>> {
    let loader = TestLoader::from_toml(&format!(
        r#"
[pipeline.orders]
checkpoint = "checkpoints/orders.db"
[pipeline.orders.source]
path = "landing"
settle = "0s"
schema_hints = "id BIGINT, text STRING, amount DECIMAL(12,2), ratio DOUBLE, day DATE, at TIMESTAMP"
{source}
[pipeline.orders.bronze]
path = "lake/bronze"
"#
    ));
    for file in fs::read_dir(files).unwrap() {
        let file = file.unwrap();
        loader.drop_file(
            file.file_name().to_str().unwrap(),
            fs::read(file.path()).unwrap(),
        );
    }
    loader.run();
    let mut rows = read("rows", &loader.settings.bronze.path, &[])?;
    for row in rows.as_array_mut().unwrap() {
        let row = row.as_object_mut().unwrap();
        row.retain(|name, _| !name.starts_with('_'));
    }
    Some(sorted_by_id(rows))
}

fn sorted_by_id(rows: Value) -> Vec<Value> {
    let Value::Array(mut rows) = rows else {
        panic!("no list of rows: {rows}")
    };
    rows.sort_by_key(|row| row["id"].as_i64());
    rows
}
