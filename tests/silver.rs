//! Silver through the real program: what the settings of the fold do, what a merge rewrites and what the feed tells.
#![allow(clippy::unwrap_used, reason = "a test stops by panicking")]

#[path = "common/program.rs"]
mod program;

use program::{HINTS, Program, code, order, orders_silver, row, stderr};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// JSON lines with a schema, bronze without partitions.
fn json_pipeline(hints: &str, source: &str, silver: &str) -> Program {
    Program::new(
        &format!("format = \"json\"\nschema_hints = \"{hints}\"\n{source}"),
        "",
        silver,
    )
}

fn lines(records: &[Value]) -> String {
    records.iter().map(|record| format!("{record}\n")).collect()
}

/// Loads each text as a file of its own, in this order and in the reverse; silver must be the same.
fn in_both_orders(make: impl Fn() -> Program, texts: &[String]) -> Vec<Value> {
    let load = |order: &[usize]| {
        let program = make();
        for place in order {
            program.drop_and_load(&format!("{place}.jsonl"), &texts[*place]);
        }
        program.assert_sound();
        program.silver()
    };
    let forward: Vec<usize> = (0..texts.len()).collect();
    let backward: Vec<usize> = forward.iter().rev().copied().collect();
    let silver = load(&forward);
    assert_eq!(load(&backward), silver);
    silver
        .iter()
        .map(|row| serde_json::from_str(row).unwrap())
        .collect()
}

#[test]
fn null_keeps_the_value_in_the_listed_columns_only() {
    let make = || Program::with("", "ignore_null_updates = [\"status\"]");
    let texts = [
        lines(&[json!({"op": "I", "order_id": 1, "status": "new", "amount": 1, "seq": 1})]),
        lines(&[json!({"op": "U", "order_id": 1, "status": null, "amount": null, "seq": 2})]),
    ];
    let silver = in_both_orders(make, &texts);
    assert_eq!(
        silver,
        [json!({"order_id": 1, "status": "new", "amount": null, "seq": 2, "deleted": false})]
    );
}

#[test]
fn text_for_a_value_not_sent_keeps_the_value_and_stays_in_bronze() {
    let make = || Program::with("unavailable_value = \"<same>\"", "");
    let texts = [
        order("I", 1, "new", 100, 1),
        order("U", 1, "<same>", 200, 2),
        order("U", 1, "<same>", 300, 3),
        order("U", 2, "<same>", 100, 1),
    ];
    let silver = in_both_orders(make, &texts);
    assert_eq!(
        silver,
        [
            json!({"order_id": 2, "status": null, "amount": "1.00", "seq": 1, "deleted": false}),
            json!({"order_id": 1, "status": "new", "amount": "3.00", "seq": 3, "deleted": false})
        ]
    );
    let program = make();
    program.drop_and_load("a.jsonl", texts.concat());
    let kept = program
        .bronze()
        .iter()
        .filter(|row| row["status"] == "<same>")
        .count();
    assert_eq!(kept, 3);
}

#[test]
fn several_keys_and_sequence_columns_count_left_to_right() {
    let make = || {
        json_pipeline(
            "shop STRING, id BIGINT, value STRING, day DATE, n INT",
            "",
            "keys = [\"shop\", \"id\"]\nsequence_by = [\"day\", \"n\"]\napply_as_deletes = \"value = 'gone'\"",
        )
    };
    let event = |shop: &str, id: i64, value: &str, day: &str, n: i64| {
        lines(&[json!({"shop": shop, "id": id, "value": value, "day": day, "n": n})])
    };
    let texts = [
        event("a", 1, "older day, larger number", "2024-01-01", 9),
        event("a", 1, "newer day", "2024-01-02", 1),
        event("a", 1, "newer day, smaller number", "2024-01-02", 0),
        event("b", 1, "another shop", "2023-01-01", 1),
        event("a", 2, "another id", "2023-01-01", 1),
        event("a", 2, "gone", "2023-01-01", 2),
    ];
    let silver = in_both_orders(make, &texts);
    let values: BTreeMap<String, (Value, Value)> = silver
        .iter()
        .map(|row| {
            (
                format!("{} {}", row["shop"].as_str().unwrap(), row["id"]),
                (row["value"].clone(), row["deleted"].clone()),
            )
        })
        .collect();
    assert_eq!(
        values,
        BTreeMap::from([
            ("a 1".into(), ("newer day".into(), false.into())),
            ("a 2".into(), ("gone".into(), true.into())),
            ("b 1".into(), ("another shop".into(), false.into())),
        ])
    );
}

#[test]
fn chosen_columns_and_no_others_reach_silver() {
    let program = Program::new(
        &format!("format = \"json\"\nschema_hints = \"{HINTS}\""),
        "",
        "keys = [\"order_id\"]\nsequence_by = [\"seq\"]\ncolumn_list = [\"status\"]",
    );
    let line = order("I", 1, "new", 100, 1).replace('}', ",\"coupon\":\"X\"}");
    program.drop_and_load("a.jsonl", line);
    assert_eq!(
        program.silver(),
        [json!({"order_id": 1, "status": "new", "seq": 1, "deleted": false}).to_string()]
    );
    assert_eq!(program.bronze()[0]["coupon"], "X");
    program.assert_sound();
}

#[test]
fn skipped_operations_stay_in_bronze_and_others_are_refused() {
    let program = Program::new(
        &format!("format = \"json\"\nschema_hints = \"{HINTS}\""),
        "",
        "keys = [\"order_id\"]\nsequence_by = [\"seq\"]\n\
         operations = { column = \"op\", upsert = [\"I\", \"U\"], delete = [\"D\"], skip = [\"B\", \"H\"] }",
    );
    // A heartbeat has no key; skipped, it needs none.
    let heartbeat = "{\"op\":\"H\",\"seq\":7}\n";
    program.drop_file(
        "a.jsonl",
        order("I", 1, "new", 100, 1)
            + &order("B", 1, "before", 100, 2)
            + heartbeat
            + &order("X", 1, "new", 100, 3),
    );
    assert_eq!(program.run(), 3);
    assert_eq!(program.bronze_places().len(), 3);
    let silver = program.json(&["show", "orders"]);
    assert_eq!(
        (silver.len(), &silver[0]["status"]),
        (1, &Value::from("new"))
    );
    let refused = program.quarantine();
    assert_eq!(
        (
            refused.len(),
            &refused[0]["reason"],
            &refused[0]["file_row"]
        ),
        (1, &"unknown_op".into(), &4.into())
    );
}

#[test]
fn row_moves_between_partitions_and_is_there_once() {
    for mode in ["merge_on_read", "copy_on_write"] {
        let program = Program::with(
            "",
            &format!("partition_by = [\"status\"]\nwrite_mode = \"{mode}\""),
        );
        program.drop_and_load("0.jsonl", order("I", 2, "new", 100, 1));
        for (seq, (op, status)) in [("I", "new"), ("U", "paid"), ("U", "new"), ("D", "new")]
            .into_iter()
            .enumerate()
        {
            let seq = seq as i64 + 1;
            program.drop_and_load(&format!("{seq}.jsonl"), order(op, 1, status, 100, seq));
            assert_eq!(
                program.silver(),
                [
                    row(2, "new", "1.00", 1, false),
                    row(1, status, "1.00", seq, op == "D"),
                ]
                .into_iter()
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect::<Vec<_>>(),
                "{mode}"
            );
            let of_key: Vec<_> = program
                .data_files("lake/silver")
                .into_iter()
                .filter(|path| path.contains(&format!("status={status}/")))
                .collect();
            assert!(!of_key.is_empty(), "{mode}");
        }
        // A late event for a partition that the row left long ago.
        program.drop_and_load("late.jsonl", order("U", 1, "paid", 900, 2));
        assert_eq!(program.silver().len(), 2);
        program.assert_sound();
    }
}

#[test]
fn partition_values_with_any_sign_are_read_back_and_merged() {
    let values = [
        "a b", "a/b", "/lead", "50%", "%2F", "\u{fc}", "x=y", "$", "a:b", "q?#", "..", "a\\b", "'",
    ];
    let program = Program::new(
        &format!("format = \"json\"\nschema_hints = \"{HINTS}\""),
        "partition_by = [\"status\"]",
        "keys = [\"order_id\"]\nsequence_by = [\"seq\"]\npartition_by = [\"status\"]",
    );
    let event = |key: usize, status: Option<&str>, seq: i64| json!({"op": "U", "order_id": key, "status": status, "amount": seq, "seq": seq});
    for seq in 1..=2 {
        let mut records: Vec<Value> = values
            .iter()
            .enumerate()
            .map(|(key, value)| event(key, Some(value), seq))
            .collect();
        records.push(event(100, None, seq));
        program.drop_and_load(&format!("{seq}.jsonl"), lines(&records));
    }
    let statuses = |rows: Vec<Value>| -> BTreeMap<i64, Value> {
        rows.iter()
            .map(|row| (row["order_id"].as_i64().unwrap(), row["status"].clone()))
            .collect()
    };
    let mut expected: BTreeMap<i64, Value> = values
        .iter()
        .enumerate()
        .map(|(key, value)| (key as i64, Value::from(*value)))
        .collect();
    expected.insert(100, Value::Null);
    let silver = program.json(&["show", "orders", "--limit", "100"]);
    assert_eq!(silver.len(), expected.len());
    assert!(silver.iter().all(|row| row["seq"] == 2));
    assert_eq!(statuses(silver), expected);
    assert_eq!(program.bronze().len(), 2 * expected.len());
    assert_eq!(statuses(program.bronze()), expected);
    let upkeep = program.call(&["maintain", "orders"]);
    assert_eq!(code(&upkeep), 0, "{}", stderr(&upkeep));
    assert_eq!(
        statuses(program.json(&["show", "orders", "--limit", "100"])),
        expected
    );
    program.assert_sound();
}

#[test]
fn value_that_no_partition_can_have_is_refused_and_stops_nothing() {
    let silver = |partitions: &str| {
        format!(
            "keys = [\"order_id\"]\nsequence_by = [\"seq\"]\n\
             operations = {{ column = \"op\", upsert = [\"I\"], skip = [\"S\"] }}\n{partitions}"
        )
    };
    let partitions = "partition_by = [\"status\"]";
    for (bronze, silver, refused) in [
        (partitions, silver(""), 3),
        ("", silver(partitions), 2),
        (partitions, String::new(), 3),
    ] {
        let program = Program::new(
            &format!("format = \"json\"\nschema_hints = \"{HINTS}\""),
            bronze,
            &silver,
        );
        let text = order("I", 1, "", 100, 1)
            + &order("I", 2, &"x".repeat(300), 100, 1)
            // This one stays out of silver.
            + &order("S", 3, "", 100, 1)
            + &order("I", 4, &"x".repeat(200), 100, 1);
        program.drop_file("a.jsonl", text);
        assert_eq!(program.run(), 3);
        let quarantine = program.quarantine();
        assert_eq!(quarantine.len(), refused);
        assert!(
            quarantine
                .iter()
                .all(|record| record["reason"] == "invalid_partition_value")
        );
        assert_eq!(program.bronze_places().len(), 4 - refused);
    }
}

#[test]
fn merge_into_a_long_silver_leaves_other_rows_and_files_alone() {
    let source = "max_files_per_trigger = 1";
    let program = Program::with(source, "");
    // Each batch has keys of its own, so each makes a file with a range of its own; the first is longer than what the
    // engine reads at once.
    for (number, keys) in [0..12_000, 12_000..18_000, 18_000..24_000]
        .into_iter()
        .enumerate()
    {
        let text: String = keys
            .map(|key| order("I", key, &format!("s{}", key % 7), key, 1))
            .collect();
        program.drop_file(&format!("{number}.jsonl"), text);
    }
    program.load();
    let before: BTreeSet<String> = program.silver().into_iter().collect();
    let files: BTreeSet<String> = program.data_files("lake/silver").into_iter().collect();
    assert_eq!((before.len(), files.len()), (24_000, 3));

    let changed: Vec<i64> = (12_100..12_400).collect();
    let mut text: String = changed
        .iter()
        .map(|key| order("U", *key, "changed", 1, 2))
        .collect();
    text += &(50_000..50_100)
        .map(|key| order("I", key, "more", 1, 1))
        .collect::<String>();
    program.drop_and_load("changes.jsonl", text);
    let after: BTreeSet<String> = program.silver().into_iter().collect();
    assert_eq!(after.len(), 24_100);
    let gone: BTreeSet<i64> = before.difference(&after).map(|row| key_of(row)).collect();
    assert_eq!(gone, changed.iter().copied().collect());
    let status = program.status();
    assert_eq!(
        (
            &status["last_batch"]["rows_updated"],
            &status["last_batch"]["rows_inserted"]
        ),
        (&300.into(), &100.into())
    );
    // Nothing was rewritten: the file of the changed keys lost them to a deletion vector, and one file came.
    let present: BTreeSet<String> = program.data_files("lake/silver").into_iter().collect();
    assert!(files.is_subset(&present), "{files:?} {present:?}");
    assert_eq!(present.len(), 4);
    // Upkeep moves rows to other files and changes none.
    let upkeep = program.call(&["maintain", "orders", "--vacuum"]);
    assert_eq!(code(&upkeep), 0, "{}", stderr(&upkeep));
    assert_eq!(program.silver().into_iter().collect::<BTreeSet<_>>(), after);
    program.assert_sound();
}

#[test]
fn copy_on_write_rewrites_the_files_of_changed_keys_and_no_other() {
    let program = Program::with(
        "max_files_per_trigger = 1",
        "write_mode = \"copy_on_write\"",
    );
    for number in 0..3 {
        let keys = number * 100..(number + 1) * 100;
        let text: String = keys.map(|key| order("I", key, "new", 100, 1)).collect();
        program.drop_file(&format!("{number}.jsonl"), text);
    }
    program.load();
    let files: BTreeSet<String> = program.data_files("lake/silver").into_iter().collect();
    assert_eq!(files.len(), 3);
    program.drop_and_load("change.jsonl", order("U", 150, "paid", 100, 2));
    let present: BTreeSet<String> = program.data_files("lake/silver").into_iter().collect();
    assert_eq!(files.intersection(&present).count(), 2);
    assert_eq!(program.silver().len(), 300);
    program.assert_sound();
}

fn key_of(row: &str) -> i64 {
    let row: Value = serde_json::from_str(row).unwrap();
    row["order_id"].as_i64().unwrap()
}

#[test]
fn replay_and_older_events_write_no_change_rows_and_no_files() {
    let program = Program::orders();
    let text = order("I", 1, "new", 100, 5) + &order("I", 2, "new", 100, 5);
    program.drop_and_load("a.jsonl", &text);
    let version = |program: &Program| program.status()["silver"]["version"].as_i64().unwrap();
    let before = (
        version(&program),
        program.silver(),
        program.data_files("lake/silver"),
    );
    let unchanged = || {
        assert_eq!(program.changes(before.0 + 1).len(), 0);
        assert_eq!(program.silver(), before.1);
        assert_eq!(program.data_files("lake/silver"), before.2);
    };
    // The same events again: under another name, and by a reset.
    program.drop_and_load("b.jsonl", &text);
    unchanged();
    let reset = program.call(&["reset", "orders", "--all", "--yes"]);
    assert_eq!(code(&reset), 0, "{}", stderr(&reset));
    program.load();
    unchanged();
    // Only older events, only refused records, nothing at all.
    program.drop_and_load("c.jsonl", order("U", 1, "late", 100, 4));
    unchanged();
    program.drop_file("d.jsonl", "nonsense\n");
    program.drop_file("e.jsonl", "");
    assert_eq!(program.run(), 3);
    unchanged();
    assert_eq!(program.file("e.jsonl"), "loaded");
}

#[test]
fn key_that_is_deleted_twice_in_a_batch_is_told_once() {
    let program = Program::orders();
    program.drop_and_load("a.jsonl", order("I", 1, "new", 100, 1));
    let version = program.status()["silver"]["version"].as_i64().unwrap();
    program.drop_and_load(
        "b.jsonl",
        order("D", 1, "new", 100, 5) + &order("D", 1, "new", 100, 6),
    );
    let changes: Vec<(Value, Value)> = program
        .changes(version + 1)
        .into_iter()
        .map(|row| (row["_change_type"].clone(), row["seq"].clone()))
        .collect();
    assert_eq!(changes.len(), 2, "{changes:?}");
    assert!(changes.contains(&("update_preimage".into(), 1.into())));
    assert!(changes.contains(&("update_postimage".into(), 6.into())));
    assert_eq!(program.silver(), [row(1, "new", "1.00", 6, true)]);
    program.assert_sound();
}

#[test]
fn feed_of_every_version_leads_from_nothing_to_silver() {
    let program = Program::orders();
    for number in 0..6 {
        let text: String = (0..5)
            .map(|key| {
                let op = if (key + number) % 4 == 3 { "D" } else { "U" };
                order(
                    op,
                    key,
                    &format!("s{}", (key * number) % 3),
                    100,
                    (7 * number + key) % 5,
                )
            })
            .collect();
        program.drop_and_load(&format!("{number}.jsonl"), text);
    }
    let mut rows: BTreeSet<String> = BTreeSet::new();
    let mut changes = program.changes(0);
    changes.sort_by_key(|change| {
        let is_new =
            change["_change_type"] != "update_preimage" && change["_change_type"] != "delete";
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
    assert_eq!(rows.into_iter().collect::<Vec<_>>(), program.silver());
    program.assert_sound();
}

#[test]
fn events_that_narrower_rules_do_not_take_are_counted_and_named() {
    let rules = |upsert: &str| {
        format!(
            "keys = [\"order_id\"]\nsequence_by = [\"seq\"]\nexcept_column_list = [\"op\"]\noperations = {{ column = \"op\", upsert = [{upsert}], delete = [\"D\"] }}"
        )
    };
    let program = json_pipeline(HINTS, "settle = \"0s\"", &rules("\"I\", \"U\""));
    let texts = order("I", 1, "new", 100, 1) + &order("U", 2, "paid", 200, 2);
    program.drop_and_load("a.jsonl", texts);
    assert_eq!(program.silver().len(), 2);
    let source = format!("format = \"json\"\nschema_hints = \"{HINTS}\"\nsettle = \"0s\"");
    program.set(&source, "", &rules("\"U\""));
    let refused = program.call(&["run", "--available-now"]);
    assert_eq!(code(&refused), 2);
    assert!(
        stderr(&refused).contains("operations"),
        "{}",
        stderr(&refused)
    );
    let rebuilt = program.call(&["rebuild", "orders", "silver", "--yes"]);
    let said = program::stdout(&rebuilt);
    assert!(said.contains("1 row no events by the rules"), "{said}");
    assert_eq!(program.silver(), [row(2, "paid", "2.00", 2, false)]);
    let verified = program.json(&["verify", "orders"]);
    assert_eq!(verified[0]["silver"]["left_out"], 1);
}

#[test]
fn absent_column_keeps_its_value_and_an_explicit_null_does_not() {
    let make = || Program::with("absent_columns = \"keep\"", "");
    let record = |text: &str| format!("{{\"order_id\":1,{text}}}\n");
    let texts = [
        record(r#""op":"I","status":"new","amount":1,"seq":1"#),
        record(r#""op":"U","amount":2,"seq":2"#),
        record(r#""op":"U","status":null,"seq":3,"coupon":"C1""#),
        record(r#""op":"U","amount":4,"seq":4"#),
        record(r#""op":"D","seq":5"#),
    ];
    let silver = in_both_orders(make, &texts);
    let row = json!({"order_id": 1, "status": null, "amount": "4.00", "seq": 5, "deleted": true, "coupon": "C1"});
    assert_eq!(silver, [row]);
    let program = make();
    program.drop_and_load("a.jsonl", texts.concat());
    let present = program.bronze().remove(1)["_present_columns"].clone();
    assert_eq!(present, r#"["order_id","op","amount","seq"]"#);
}

#[test]
fn absent_columns_of_a_csv_are_those_its_header_lacks() {
    let program = Program::new(
        &format!("format = \"csv\"\nabsent_columns = \"keep\"\nschema_hints = \"{HINTS}\""),
        "",
        "keys = [\"order_id\"]\nsequence_by = [\"seq\"]\napply_as_deletes = \"op = 'D'\"\nexcept_column_list = [\"op\"]",
    );
    program.drop_and_load("1.csv", "order_id,status,amount,seq,op\n1,new,1.00,1,I\n");
    program.drop_and_load("2.csv", "order_id,amount,seq,op\n1,,2,U\n");
    let silver = program.silver();
    let row: Value = serde_json::from_str(&silver[0]).unwrap();
    assert_eq!(
        (&row["status"], &row["amount"]),
        (&json!("new"), &Value::Null)
    );
    program.assert_sound();
}

#[test]
fn history_with_two_sequence_columns_is_shown_told_and_netted_by_version() {
    let program = json_pipeline(
        "id BIGINT, value STRING, day DATE, n INT, op STRING",
        "",
        "keys = [\"id\"]\nsequence_by = [\"day\", \"n\"]\napply_as_deletes = \"op = 'D'\"\n\
         except_column_list = [\"op\", \"day\", \"n\"]\nstored_as_scd_type = 2",
    );
    let event = |value: &str, n: i64, op: &str| {
        lines(&[json!({"id": 1, "value": value, "day": "2024-01-01", "n": n, "op": op})])
    };
    program.drop_and_load("1.jsonl", event("a", 1, "I"));
    program.drop_and_load("3.jsonl", event("c", 3, "U"));
    let first = program.status()["silver"]["version"].as_i64().unwrap();
    program.drop_and_load("2.jsonl", event("b", 2, "U"));
    program.drop_and_load("4.jsonl", event("c", 4, "D"));
    let at = |n: i64| json!({"day": "2024-01-01", "n": n});
    let row = |value: &str, start: i64, end: i64| json!({"id": 1, "value": value, "__START_AT": at(start), "__END_AT": at(end)});
    let silver: Vec<Value> = program
        .silver()
        .iter()
        .map(|row| serde_json::from_str(row).unwrap())
        .collect();
    assert_eq!(silver, [row("a", 1, 2), row("b", 2, 3), row("c", 3, 4)]);
    let net = program.call(&[
        "changes",
        "orders",
        "--net",
        "--json=lines",
        "--from-version",
        &(first + 1).to_string(),
    ]);
    assert_eq!(code(&net), 0, "{}", stderr(&net));
    let told: Vec<(String, Value)> = program::lines(&net)
        .iter()
        .map(|change| {
            (
                change["_change_type"].as_str().unwrap().into(),
                change["value"].clone(),
            )
        })
        .collect();
    let expected = [
        ("update_preimage", "a"),
        ("update_postimage", "a"),
        ("insert", "b"),
        ("update_preimage", "c"),
        ("update_postimage", "c"),
    ];
    assert_eq!(
        told,
        expected.map(|(kind, value)| (kind.to_string(), json!(value)))
    );
    program.assert_sound();
}

#[test]
fn counters_tell_late_repeated_and_conflicting_events_of_keys_that_silver_does_not_show() {
    for settings in ["deletes = \"hard\"", "stored_as_scd_type = 2"] {
        let program = Program::with("", settings);
        let counters = |name: &str, text: String| {
            program.drop_and_load(name, text);
            counters(&program)
        };
        counters(
            "1.jsonl",
            order("I", 1, "new", 100, 1) + &order("D", 1, "new", 100, 5),
        );
        assert_eq!(
            counters("2.jsonl", order("D", 1, "new", 100, 5))[3..],
            [0, 1, 0],
            "{settings}"
        );
        assert_eq!(
            counters("3.jsonl", order("U", 1, "x", 100, 5))[3..],
            [0, 0, 1],
            "{settings}"
        );
        assert_eq!(
            counters("4.jsonl", order("U", 1, "y", 100, 3))[3..],
            [1, 0, 0],
            "{settings}"
        );
        program.assert_sound();
    }
}

/// The counters of the last batch.
fn counters(program: &Program) -> [i64; 6] {
    let last = program.status()["last_batch"].clone();
    [
        "rows_inserted",
        "rows_updated",
        "rows_deleted",
        "rows_late",
        "rows_repeated",
        "conflicts",
    ]
    .map(|name| last[name].as_i64().unwrap())
}

#[test]
fn events_that_are_not_read_whole_are_counted_all_the_same() {
    let mut seed = 5_u64;
    let mut next = |below: i64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as i64 % below
    };
    let mut late = 0;
    for settings in ["", "", "", "deletes = \"hard\""] {
        // Whole numbers are sorted before their events are read, texts are not.
        let [sifted, whole] = ["BIGINT", "STRING"].map(|key| {
            let hints = HINTS.replace("order_id BIGINT", &format!("order_id {key}"));
            assert!(hints.contains(&format!("order_id {key}")));
            json_pipeline(&hints, "", &orders_silver(settings))
        });
        for batch in 0..4 {
            let newest = 10 * (batch + 1);
            let mut text = order("U", next(6), "new", 100, newest);
            for _ in 0..20 {
                let op = ["I", "U", "U", "D"][next(4) as usize];
                let status = ["new", "paid"][next(2) as usize];
                // Some stand among those of earlier batches.
                let sequence = (newest - next(14)).max(0);
                text += &order(op, next(6), status, 100, sequence);
            }
            for program in [&sifted, &whole] {
                program.drop_and_load(&format!("{batch}.jsonl"), &text);
            }
            assert_eq!(counters(&sifted), counters(&whole), "{settings} {text}");
            late += counters(&sifted)[3];
            let without_quotes = |rows: Vec<String>| -> BTreeSet<String> {
                rows.iter().map(|row| row.replace('"', "")).collect()
            };
            assert_eq!(
                without_quotes(sifted.silver()),
                without_quotes(whole.silver()),
                "{settings} {text}"
            );
        }
        sifted.assert_sound();
    }
    assert!(late > 20, "{late}");
}

#[test]
fn keys_of_every_kind_of_type_are_found_again() {
    let types = [
        ("STRING", json!("a'b\"é"), json!("z")),
        (
            "DECIMAL(38,10)",
            json!("1234567890123456789012345678.0123456789"),
            json!("-1.5"),
        ),
        (
            "TIMESTAMP",
            json!("2024-01-01T00:00:00.123456Z"),
            json!("1969-12-31T23:59:59.999999Z"),
        ),
        (
            "TIMESTAMP_NTZ",
            json!("2024-01-01T00:00:00.123456"),
            json!("1969-12-31T23:59:59.999999"),
        ),
        ("DATE", json!("2024-02-29"), json!("0001-01-01")),
        ("BINARY", json!("AAECAw=="), json!("/w==")),
        ("BOOLEAN", json!(true), json!(false)),
        ("TINYINT", json!(-128), json!(127)),
        ("DOUBLE", json!(0.1), json!(-2.5)),
    ];
    for (data_type, first, second) in types {
        for settings in [
            "deletes = \"hard\"",
            "stored_as_scd_type = 2",
            "key_index = \"on\"",
        ] {
            let program = json_pipeline(
                &format!("k {data_type}, v INT, seq BIGINT, op STRING"),
                "",
                &format!(
                    "keys = [\"k\"]\nsequence_by = [\"seq\"]\napply_as_deletes = \"op = 'D'\"\nexcept_column_list = [\"op\", \"seq\"]\n{settings}"
                ),
            );
            let event = |key: &Value, v: i64, seq: i64, op: &str| {
                lines(&[json!({"k": key, "v": v, "seq": seq, "op": op})])
            };
            program.drop_and_load(
                "1.jsonl",
                event(&first, 1, 1, "I") + &event(&second, 1, 1, "I"),
            );
            program.drop_and_load("2.jsonl", event(&first, 2, 5, "D"));
            program.drop_and_load("3.jsonl", event(&first, 3, 3, "U"));
            program.drop_and_load("4.jsonl", event(&second, 4, 4, "U"));
            program.assert_sound();
            let rows = if settings.contains('2') {
                4
            } else if settings.contains("hard") {
                1
            } else {
                2
            };
            assert_eq!(
                program
                    .call(&["show", "orders", "--json=lines", "--include-deleted"])
                    .stdout
                    .split(|byte| *byte == b'\n')
                    .count()
                    - 1,
                rows,
                "{data_type} {settings}"
            );
        }
    }
}

#[test]
fn change_of_scd_type_or_delete_rule_is_refused_by_name_until_silver_is_rebuilt() {
    let program = Program::orders();
    // Enough rows that those which change leave vectors, not files without them.
    let others: String = (10..50).map(|key| order("I", key, "new", 100, 1)).collect();
    program.drop_and_load(
        "1.jsonl",
        order("I", 1, "new", 100, 1) + &order("I", 2, "new", 100, 1) + &others,
    );
    program.drop_and_load(
        "2.jsonl",
        order("U", 1, "paid", 100, 2) + &order("D", 2, "new", 100, 2),
    );
    let soft = program.silver();
    for (settings, named, rows) in [
        ("stored_as_scd_type = 2", "stored_as_scd_type", 3),
        ("deletes = \"hard\"", "stored_as_scd_type", 1),
        ("", "deletes", 2),
    ] {
        program.set_silver(settings);
        let refused = program.call(&["run", "--available-now"]);
        assert_eq!(code(&refused), 2, "{}", stderr(&refused));
        assert!(stderr(&refused).contains(named), "{}", stderr(&refused));
        assert!(stderr(&refused).contains("rebuild"), "{}", stderr(&refused));
        let rebuilt = program.call(&["rebuild", "orders", "silver", "--yes"]);
        assert_eq!(code(&rebuilt), 0, "{}", stderr(&rebuilt));
        program.assert_sound();
        assert_eq!(program.silver().len(), rows + 40, "{settings}");
        program.drop_and_load(
            &format!("again-{rows}.jsonl"),
            order("U", 1, "paid", 100, 2),
        );
        program.assert_sound();
    }
    assert_eq!(program.silver(), soft);
}

#[test]
fn list_of_columns_that_is_cut_is_refused_and_drops_no_value() {
    let program = json_pipeline(
        "id BIGINT, a INT, b INT, seq BIGINT, cols STRING",
        "",
        "keys = [\"id\"]\nsequence_by = [\"seq\"]\ncolumns_to_update = \"cols\"",
    );
    let event = |a: i64, b: i64, seq: i64, cols: &str| {
        lines(&[json!({"id": 1, "a": a, "b": b, "seq": seq, "cols": cols})])
    };
    program.drop_file(
        "1.jsonl",
        event(1, 1, 1, "a, b") + &event(2, 2, 2, "[\"a\""),
    );
    assert_eq!(program.run(), 3);
    program.drop_file("2.jsonl", event(3, 3, 3, "[\"b\"]"));
    program.run();
    let refused = &program.quarantine()[0];
    assert_eq!(
        (&refused["reason"], &refused["file_row"]),
        (&json!("type_mismatch"), &json!(2))
    );
    let row: Value = serde_json::from_str(&program.silver()[0]).unwrap();
    assert_eq!(
        (&row["a"], &row["b"], &row["seq"]),
        (&json!(1), &json!(3), &json!(3))
    );
    program.assert_sound();
}

#[test]
fn text_partition_is_shown_as_it_is() {
    let program = json_pipeline(
        "id BIGINT, region STRING, seq BIGINT",
        "",
        "keys = [\"id\"]\nsequence_by = [\"seq\"]\npartition_by = [\"region\"]",
    );
    program.drop_and_load(
        "1.jsonl",
        lines(&[json!({"id": 1, "region": "north", "seq": 1})]),
    );
    let shown = program.call(&["show", "orders", "--format", "csv"]);
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(text.contains("north") && !text.contains('"'), "{text}");
}

#[test]
fn bronze_folder_without_a_table_locks_nobody_out() {
    let program = Program::orders();
    std::fs::create_dir_all(program.path("lake/bronze/_delta_log")).unwrap();
    program.drop_and_load("1.jsonl", order("I", 1, "new", 100, 1));
    program.drop_and_load("2.jsonl", order("U", 1, "paid", 100, 2));
    program.assert_sound();
}
