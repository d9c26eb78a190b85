//! The tables read back by an independent reader: Python `deltalake`, in the environment that `LANDFALL_PYTHON` names.
//!
//! Without the variable there is no such reader, and the tests say so and pass; `.ci/run` always sets it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test stops by panicking"
)]

mod common;

use common::TestLoader;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

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
    let Some(python) = std::env::var_os("LANDFALL_PYTHON") else {
        eprintln!("skipped: LANDFALL_PYTHON names no Python with deltalake");
        return None;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/readers/read.py");
    let output = Command::new(python)
        .arg(script)
        .arg(what)
        .arg(table)
        .args(rest)
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
