//! Files loaded again, silver and checkpoint made again: the tables agree before, between and after.
#![allow(clippy::unwrap_used, reason = "a test stops by panicking")]

#[path = "common/program.rs"]
mod program;

use program::{Program, code, order, row, stderr, stdout};
use serde_json::Value;
use std::fs;

fn two_orders(key: i64) -> String {
    order("I", key, "new", 100, 1) + &order("U", key, "paid", 100, 2)
}

fn command(program: &Program, arguments: &[&str]) -> String {
    let output = program.call(arguments);
    assert_eq!(code(&output), 0, "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

/// Rows of bronze at each of its versions.
fn row_counts(program: &Program) -> Vec<usize> {
    let newest = program.status()["bronze"]["version"].as_i64().unwrap();
    (0..=newest)
        .map(|version| {
            let version = version.to_string();
            let arguments = [
                "show",
                "orders",
                "bronze",
                "--version",
                &version,
                "--limit",
                "1000",
            ];
            program.json(&arguments).len()
        })
        .collect()
}

#[test]
fn rows_are_replaced_in_one_version_and_batch_ids_only_rise() {
    let program = Program::orders();
    program.drop_and_load("a/1.jsonl", two_orders(1));
    program.drop_and_load("a/2.jsonl", two_orders(2));
    program.drop_and_load("b/1.jsonl", two_orders(3));
    let silver = program.silver();
    let versions = row_counts(&program).len();
    let batch = |path: &str| program.files()[path]["batch_id"].as_i64().unwrap();
    let last = batch("b/1.jsonl");
    command(&program, &["reset", "orders", "--files", "a/*", "--yes"]);
    // Until the next run bronze keeps the rows.
    assert_eq!(program.bronze_places().len(), 6);
    program.load();
    let counts = row_counts(&program);
    assert!(counts.len() > versions);
    assert!(
        counts[versions..].iter().all(|count| *count == 6),
        "{counts:?}"
    );
    assert!(batch("a/1.jsonl") > last && batch("a/2.jsonl") > last);
    assert_eq!(batch("b/1.jsonl"), last);
    assert_eq!(program.silver(), silver);
    program.assert_sound();
    // Forgetting everything twice before a run is forgetting it once.
    for _ in 0..2 {
        command(&program, &["reset", "orders", "--all", "--yes"]);
    }
    program.load();
    assert_eq!(program.bronze_places().len(), 6);
    assert_eq!(program.silver(), silver);
    program.assert_sound();
}

#[test]
fn changed_file_is_taken_with_its_present_bytes_and_the_feed_tells() {
    let program = Program::orders();
    program.drop_and_load("a.jsonl", two_orders(1) + &two_orders(2));
    program.drop_and_load("b.jsonl", order("U", 1, "shipped", 100, 9));
    let version = program.status()["silver"]["version"].as_i64().unwrap();
    // Key 2 is gone from the file, key 1 has other older events, key 3 is new.
    program.drop_file("a.jsonl", order("I", 1, "new", 500, 1) + &two_orders(3));
    assert_eq!(program.run(), 3);
    assert_eq!(program.file("a.jsonl"), "parked changed_after_load");
    assert_eq!(program.bronze_places().len(), 5);
    program.assert_sound();
    command(
        &program,
        &["reset", "orders", "--files", "a.jsonl", "--yes"],
    );
    program.load();
    assert_eq!(program.bronze_places().len(), 4);
    assert_eq!(
        program.silver(),
        [
            row(1, "shipped", "1.00", 9, false),
            row(3, "paid", "1.00", 2, false)
        ]
    );
    let mut changes: Vec<(String, i64)> = program
        .changes(version + 1)
        .iter()
        .map(|change| {
            let kind = change["_change_type"].as_str().unwrap().to_string();
            (kind, change["order_id"].as_i64().unwrap())
        })
        .collect();
    changes.sort();
    assert_eq!(changes, [("delete".to_string(), 2), ("insert".into(), 3)]);
    program.assert_sound();
}

#[test]
fn file_whose_source_is_gone_keeps_its_rows() {
    let program = Program::orders();
    program.drop_and_load("a.jsonl", two_orders(1));
    program.drop_and_load("b.jsonl", two_orders(2));
    fs::remove_file(program.landing("a.jsonl")).unwrap();
    let said = command(&program, &["reset", "orders", "--all", "--yes"]);
    assert!(said.contains("a.jsonl  stays"), "{said}");
    // This one goes after it was forgotten.
    fs::remove_file(program.landing("b.jsonl")).unwrap();
    assert_eq!(program.run(), 3);
    assert_eq!(program.file("a.jsonl"), "loaded");
    assert_eq!(program.file("b.jsonl"), "parked vanished");
    assert_eq!(program.bronze_places().len(), 4);
    program.assert_sound();
    program.drop_and_load("b.jsonl", two_orders(2));
    assert_eq!(program.file("b.jsonl"), "loaded");
    assert_eq!(program.bronze_places().len(), 4);
    program.assert_sound();
}

#[test]
fn parked_files_are_tried_again_on_request() {
    let program = Program::with("max_bad_records = 0", "");
    program.drop_file("bad.jsonl", two_orders(1) + "nonsense\n");
    program.drop_file("good.jsonl", two_orders(2));
    assert_eq!(program.run(), 3);
    assert_eq!(program.file("bad.jsonl"), "parked too_many_bad_records");
    // Still bad: parked again, by a new attempt.
    command(&program, &["reset", "orders", "--failed", "--yes"]);
    assert_eq!(program.run(), 3);
    assert_eq!(program.file("bad.jsonl"), "parked too_many_bad_records");
    assert_eq!(program.files()["good.jsonl"]["batch_id"], 1);
    let text = fs::read_to_string(program.path("landfall.toml")).unwrap();
    fs::write(
        program.path("landfall.toml"),
        text.replace("max_bad_records = 0", "max_bad_records = 1"),
    )
    .unwrap();
    command(&program, &["reset", "orders", "--failed", "--yes"]);
    assert_eq!(program.run(), 3);
    assert_eq!(program.file("bad.jsonl"), "loaded");
    assert_eq!(program.bronze_places().len(), 4);
    assert_eq!(program.quarantine().len(), 1);
}

#[test]
fn refused_records_are_loaded_once_the_settings_take_them() {
    let program = Program::orders();
    program.drop_file("a.jsonl", two_orders(1) + &order("R", 2, "read", 100, 1));
    program.drop_file("b.jsonl", two_orders(3));
    assert_eq!(program.run(), 3);
    assert_eq!(program.quarantine()[0]["reason"], "unknown_op");
    let text = fs::read_to_string(program.path("landfall.toml")).unwrap();
    fs::write(
        program.path("landfall.toml"),
        text.replace("[\"I\", \"U\"]", "[\"I\", \"U\", \"R\"]"),
    )
    .unwrap();
    // Silver was folded by another rule, so it is folded again first.
    assert_eq!(program.run(), 2);
    command(&program, &["rebuild", "orders", "silver", "--yes"]);
    let said = command(&program, &["quarantine", "orders", "--retry"]);
    assert!(
        said.contains("a.jsonl") && !said.contains("b.jsonl"),
        "{said}"
    );
    program.load();
    assert_eq!(program.quarantine(), Vec::<Value>::new());
    assert_eq!(program.bronze_places().len(), 5);
    assert_eq!(program.silver().len(), 3);
    program.assert_sound();
}

#[test]
fn silver_that_is_lost_is_made_again() {
    let program = Program::orders();
    program.drop_and_load("a.jsonl", two_orders(1) + &order("D", 2, "gone", 100, 3));
    program.drop_and_load("b.jsonl", two_orders(2));
    let silver = program.silver();
    fs::remove_dir_all(program.path("lake/silver")).unwrap();
    command(&program, &["rebuild", "orders", "silver", "--yes"]);
    assert_eq!(program.silver(), silver);
    program.assert_sound();
    program.drop_and_load("c.jsonl", two_orders(3));
    assert_eq!(program.silver().len(), 3);
    program.assert_sound();
    // A rebuild of what is right changes nothing.
    let version = program.status()["silver"]["version"].as_i64().unwrap();
    command(&program, &["rebuild", "orders", "silver", "--yes"]);
    assert_eq!(program.changes(version + 1), Vec::<Value>::new());
}

#[test]
fn checkpoint_that_is_lost_is_made_again_with_all_that_the_tables_know() {
    let program = Program::with("clean_source = \"delete\"", "");
    program.drop_file("cleaned.jsonl", two_orders(1));
    program.drop_file("half.jsonl", two_orders(2) + "nonsense\n");
    program.drop_file("refused.jsonl", "nonsense\n");
    assert_eq!(program.run(), 3);
    let (bronze, silver) = (program.bronze(), program.silver());
    let counts = |path: &str| {
        let file = program.files().remove(path).unwrap();
        (
            file["rows_loaded"].clone(),
            file["rows_quarantined"].clone(),
        )
    };
    let before = ["cleaned.jsonl", "half.jsonl", "refused.jsonl"].map(counts);
    let loaded_at = program.files()["cleaned.jsonl"]["loaded_at"].clone();
    fs::remove_dir_all(program.path("checkpoints")).unwrap();
    program.drop_file("later.jsonl", two_orders(3));
    assert_eq!(program.run(), 1);
    command(&program, &["rebuild", "orders", "checkpoint", "--yes"]);
    assert_eq!(
        ["cleaned.jsonl", "half.jsonl", "refused.jsonl"].map(counts),
        before
    );
    assert_eq!((program.bronze(), program.silver()), (bronze, silver));
    // The size of what is gone is not known, but when it was loaded is.
    let cleaned = &program.files()["cleaned.jsonl"];
    assert_eq!(
        (&cleaned["size"], &cleaned["loaded_at"]),
        (&Value::Null, &loaded_at)
    );
    assert_eq!(program.run(), 3);
    assert_eq!(program.bronze_places().len(), 6);
    assert_eq!(program.quarantine().len(), 2);
    program.assert_sound();
}
