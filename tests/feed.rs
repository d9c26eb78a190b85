//! The change data feed through the real program: ranges, forms of output, net changes, feed and write mode switched later.
#![allow(clippy::unwrap_used, reason = "a test stops by panicking")]

#[path = "common/program.rs"]
mod program;

use program::{Program, code, lines, order, stderr, stdout};
use serde_json::Value;
use std::collections::BTreeSet;

/// Versions of silver: 1 has orders 1 to 3, 2 pays 1 and deletes 2, 3 ships 1 and has order 4.
fn three_batches() -> Program {
    let program = Program::orders();
    load_three(&program);
    program
}

fn load_three(program: &Program) {
    let placed: String = (1..4)
        .map(|key| order("I", key, "placed", 100, 1))
        .collect();
    program.drop_and_load("1.jsonl", placed);
    let text = order("U", 1, "paid", 100, 2) + &order("D", 2, "placed", 100, 2);
    program.drop_and_load("2.jsonl", text);
    let text = order("U", 1, "shipped", 100, 3) + &order("I", 4, "placed", 100, 3);
    program.drop_and_load("3.jsonl", text);
}

fn version(program: &Program) -> i64 {
    program.status()["silver"]["version"].as_i64().unwrap()
}

/// `key kind status @version` of each change that is printed.
fn told(program: &Program, arguments: &[&str]) -> Vec<String> {
    let output = program.call(&[&["changes", "orders", "--json=lines"], arguments].concat());
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let word = |change: &Value, name: &str| change[name].to_string().replace('"', "");
    let text = |change: &Value| {
        let names = ["order_id", "_change_type", "status", "_commit_version"];
        names.map(|name| word(change, name)).join(" ")
    };
    lines(&output).iter().map(text).collect()
}

/// What is said of a range that cannot be read.
fn refused(program: &Program, arguments: &[&str]) -> String {
    let output = program.call(&[&["changes", "orders"], arguments].concat());
    assert_eq!(code(&output), 2, "{}", stderr(&output));
    assert_eq!(stdout(&output), "");
    stderr(&output)
}

/// Plays the feed from `first` on over `rows`; every image must fit.
fn replay(program: &Program, first: i64, rows: &mut BTreeSet<String>) {
    let mut changes = program.changes(first);
    changes.sort_by_key(|change| {
        let kind = change["_change_type"].as_str().unwrap();
        let is_new = !matches!(kind, "update_preimage" | "delete");
        (change["_commit_version"].as_i64(), is_new)
    });
    for mut change in changes {
        let fields = change.as_object_mut().unwrap();
        let kind = fields.remove("_change_type").unwrap();
        fields.retain(|name, _| !name.starts_with('_'));
        let row = change.to_string();
        match kind.as_str().unwrap() {
            "insert" | "update_postimage" => assert!(rows.insert(row.clone()), "{row} is there"),
            _ => assert!(rows.remove(&row), "{row} is not there"),
        }
    }
}

#[test]
fn net_changes_tell_each_key_once_over_any_range() {
    let program = three_batches();
    assert_eq!(
        told(&program, &["--net", "--from-version", "0"]),
        [
            "1 insert shipped 3",
            "2 insert placed 2",
            "3 insert placed 1",
            "4 insert placed 3",
        ]
    );
    assert_eq!(
        told(&program, &["--net", "--from-version", "2"]),
        [
            "1 update_preimage placed 3",
            "1 update_postimage shipped 3",
            "2 update_preimage placed 2",
            "2 update_postimage placed 2",
            "4 insert placed 3",
        ]
    );
    assert_eq!(
        told(
            &program,
            &["--net", "--from-version", "2", "--to-version", "2"]
        ),
        told(&program, &["--from-version", "2", "--to-version", "2"])
    );
    let later = "2999-01-01";
    let none = ["--net", "--from-timestamp", later, "--to-timestamp", later];
    assert_eq!(told(&program, &none), [""; 0]);
}

#[test]
fn both_ends_count_by_version_and_by_time() {
    let program = three_batches();
    let all = program.changes(0);
    let times: Vec<&str> = (1..4)
        .map(|version| {
            let mut of_version = all
                .iter()
                .filter(|change| change["_commit_version"] == version);
            of_version.next().unwrap()["_commit_timestamp"]
                .as_str()
                .unwrap()
        })
        .collect();
    for (first, last) in [(1, 1), (1, 2), (2, 3), (3, 3)] {
        let (from, to) = (first.to_string(), last.to_string());
        let by_version = told(&program, &["--from-version", &from, "--to-version", &to]);
        let (from, to) = (times[first - 1], times[last - 1]);
        let by_time = told(&program, &["--from-timestamp", from, "--to-timestamp", to]);
        assert_eq!(by_version, by_time);
        let expected: usize = [3, 4, 3][first - 1..last].iter().sum();
        assert_eq!(by_version.len(), expected);
    }
    // By SQL, from the second commit on and in a time without commits.
    let count = |from: &str, to: &str| {
        let call = format!("table_changes('silver.orders', {from}, {to})");
        let rows = program.json(&["sql", &format!("SELECT count(*) AS n FROM {call}")]);
        rows[0]["n"].as_i64().unwrap()
    };
    let second = format!("'{}'", times[1]);
    assert_eq!(count(&second, "'2999-01-01'"), 7);
    assert_eq!(count("2", "3"), 7);
    assert_eq!(count("'2999-01-01'", "'2999-01-02'"), 0);
    for wrong in [
        ["--from-version", "4", "--to-version", "4"],
        ["--from-version", "0", "--to-version", "4"],
        ["--from-version", "2", "--to-version", "1"],
        ["--from-timestamp", times[1], "--to-timestamp", times[0]],
        ["--from-version", "0", "--to-timestamp", "2001-01-01"],
    ] {
        let said = refused(&program, &wrong);
        assert!(said.contains("versions 0 to 3 can be read"), "{said}");
    }
    let said = refused(&program, &["--from-timestamp", "2999-01-01"]);
    assert!(said.contains("versions 0 to 3 can be read"), "{said}");
}

#[test]
fn every_form_of_output_has_the_same_changes() {
    let program = three_batches();
    let print = |format| {
        let output = program.call(&[
            "changes",
            "orders",
            "--net",
            "--from-version",
            "2",
            "--format",
            format,
        ]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        output
    };
    let rows = lines(&print("jsonl"));
    assert_eq!(rows.len(), 5);
    let document: Vec<Value> = serde_json::from_str(&stdout(&print("json"))).unwrap();
    assert_eq!(document, rows);
    for format in ["csv", "table"] {
        let text = stdout(&print(format));
        for row in &rows {
            let kind = row["_change_type"].as_str().unwrap();
            let time = row["_commit_timestamp"].as_str().unwrap();
            let is_it = |line: &&str| line.contains(kind) && line.contains(time);
            assert!(text.lines().any(|line| is_it(&line)), "{row} in {text}");
        }
    }
    let parquet = print("parquet").stdout;
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"));
}

#[test]
fn feed_that_is_switched_on_later_tells_from_then_on() {
    for mode in ["merge_on_read", "copy_on_write"] {
        let settings = |feed: bool| format!("write_mode = \"{mode}\"\nchange_data_feed = {feed}");
        let program = Program::with("", &settings(false));
        load_three(&program);
        let said = refused(&program, &["--from-version", "0"]);
        assert!(said.contains("no version can be read"), "{said}");
        let mut rows: BTreeSet<String> = program.silver().into_iter().collect();

        program.set_silver(&settings(true));
        program.drop_file("4.jsonl", order("U", 3, "paid", 100, 4));
        let output = program.call(&["run", "--available-now"]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        let note = "the change data feed of silver is on from version 4 on";
        assert!(stderr(&output).contains(note), "{}", stderr(&output));
        // A second run has nothing to switch.
        program.load();
        assert_eq!(version(&program), 5);
        assert_eq!(
            told(&program, &["--from-version", "4"]),
            ["3 update_preimage placed 5", "3 update_postimage paid 5"]
        );
        for before in ["0", "3"] {
            let said = refused(&program, &["--from-version", before]);
            let expected = format!("it is off at version {before}");
            assert!(said.contains(&expected), "{said}");
            assert!(said.contains("versions 4 to 5 can be read"), "{said}");
        }

        program.set_silver(&settings(false));
        program.drop_and_load("5.jsonl", order("U", 3, "shipped", 100, 5));
        assert_eq!(version(&program), 7);
        let said = refused(&program, &["--from-version", "4"]);
        assert!(said.contains("it is off at version 6"), "{said}");
        assert!(said.contains("versions 4 to 5 can be read"), "{said}");
        let until_off = ["--from-version", "4", "--to-version", "5"];
        assert_eq!(told(&program, &until_off).len(), 2);

        program.set_silver(&settings(true));
        program.load();
        assert_eq!(version(&program), 8);
        rows.clear();
        rows.extend(program.silver());
        program.drop_and_load("6.jsonl", order("D", 3, "", 100, 6));
        replay(&program, 8, &mut rows);
        assert_eq!(rows.into_iter().collect::<Vec<_>>(), program.silver());
        program.assert_sound();
    }
}

#[test]
fn write_mode_may_be_changed_at_any_time() {
    let settings =
        |mode: &str, feed: bool| format!("write_mode = \"{mode}\"\nchange_data_feed = {feed}");
    let program = Program::with("", &settings("copy_on_write", false));
    let placed: String = (0..40)
        .map(|key| order("I", key, "placed", 100, 1))
        .collect();
    program.drop_and_load("1.jsonl", placed);
    let before: BTreeSet<String> = program.data_files("lake/silver").into_iter().collect();
    let mut rows: BTreeSet<String> = program.silver().into_iter().collect();

    program.set_silver(&settings("merge_on_read", true));
    program.drop_file("2.jsonl", order("U", 3, "paid", 100, 2));
    let output = program.call(&["run", "--available-now"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let note = "the change data feed of silver is on and silver may have deletion vectors from version 2 on";
    assert!(stderr(&output).contains(note), "{}", stderr(&output));
    let after: BTreeSet<String> = program.data_files("lake/silver").into_iter().collect();
    assert!(after.is_superset(&before), "no file is rewritten");

    program.set_silver(&settings("copy_on_write", true));
    program.drop_and_load("3.jsonl", order("U", 4, "paid", 100, 2));
    let after: BTreeSet<String> = program.data_files("lake/silver").into_iter().collect();
    assert_eq!(
        before.difference(&after).count(),
        1,
        "its file is rewritten"
    );
    replay(&program, 2, &mut rows);
    assert_eq!(rows.into_iter().collect::<Vec<_>>(), program.silver());
    program.assert_sound();
}

#[test]
fn feed_leads_through_a_rebuild_with_other_settings() {
    let program = Program::orders();
    let placed: String = (1..30)
        .map(|key| order("I", key, "placed", 100, 1))
        .collect();
    program.drop_and_load("1.jsonl", placed);
    let null = "{\"op\":\"U\",\"order_id\":1,\"status\":null,\"amount\":2.00,\"seq\":2}\n";
    program.drop_and_load("2.jsonl", null.to_string() + &order("D", 2, "", 100, 2));
    program.set_silver("ignore_null_updates = true");
    let output = program.call(&["rebuild", "orders", "silver", "--yes"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let mut rows = BTreeSet::new();
    replay(&program, 0, &mut rows);
    assert_eq!(rows.into_iter().collect::<Vec<_>>(), program.silver());
    assert_eq!(
        told(&program, &["--net", "--from-version", "3"]),
        ["1 update_preimage null 3", "1 update_postimage placed 3"]
    );
    program.assert_sound();
}
