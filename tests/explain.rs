//! `explain` through the real program: what became of every event of one key, for all kinds of silver and of keys.
#![allow(clippy::unwrap_used, reason = "a test stops by panicking")]

#[path = "common/program.rs"]
mod program;

use program::{Program, code, order, stderr, stdout};
use serde_json::{Value, json};
use std::fs;

/// JSON lines with a schema and silver without a word about operations.
fn pipeline(hints: &str, silver: &str) -> Program {
    let source = format!("format = \"json\"\nschema_hints = \"{hints}\"");
    Program::new(&source, "", silver)
}

fn lines(records: &[Value]) -> String {
    records.iter().map(|record| format!("{record}\n")).collect()
}

/// The whole document; the fold and silver agree.
fn explained(program: &Program, keys: &[&str]) -> Value {
    let mut arguments = vec!["explain", "orders", "--json"];
    for key in keys {
        arguments.extend(["--key", key]);
    }
    let output = program.call(&arguments);
    assert_eq!(code(&output), 0, "{}{}", stdout(&output), stderr(&output));
    let document: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(
        (&document["agrees"], &document["folded"]),
        (&true.into(), &document["silver"])
    );
    document
}

/// Each event as `place arrival fate: reason`.
fn told(document: &Value) -> Vec<String> {
    let text = |event: &Value| {
        let word = |name: &str| event[name].as_str().unwrap_or("-").to_string();
        format!(
            "{}:{} {} {}: {}",
            word("file_path"),
            event["file_row"],
            word("arrival"),
            word("fate"),
            word("reason")
        )
    };
    document["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(text)
        .collect()
}

/// What a wrong command line is answered with.
fn refused(program: &Program, arguments: &[&str]) -> String {
    let output = program.call(&[&["explain"], arguments].concat());
    assert_eq!(code(&output), 2, "{}", stderr(&output));
    assert_eq!(stdout(&output), "");
    stderr(&output)
}

#[test]
fn key_that_cannot_be_read_names_the_types_and_touches_nothing() {
    let program = pipeline(
        "shop STRING, id BIGINT, price DECIMAL(10,2), seq BIGINT",
        "keys = [\"shop\", \"id\"]\nsequence_by = [\"seq\"]",
    );
    program.drop_and_load("a.jsonl", lines(&[json!({"shop": "a", "id": 1, "seq": 1})]));
    let missing = refused(&program, &["orders", "--key", "shop=a"]);
    assert!(missing.contains("no value for key column id"), "{missing}");
    let wrong = refused(&program, &["orders", "--key", "shop=a", "--key", "id=1.5"]);
    assert!(
        wrong.contains("key column id BIGINT: \"1.5\" is not a whole number"),
        "{wrong}"
    );
    assert!(
        wrong.contains("the key is shop STRING, id BIGINT"),
        "{wrong}"
    );
    let unknown = refused(&program, &["orders", "--key", "price=1"]);
    assert!(unknown.contains("no key column price"), "{unknown}");
    assert!(refused(&program, &["orders"]).contains("--key"));
    assert!(refused(&program, &["nobody", "--key", "id=1"]).contains("nobody"));
}

#[test]
fn key_without_any_event_ends_with_1_and_says_so() {
    let program = Program::orders();
    let before = program.call(&["explain", "orders", "--key", "order_id=1"]);
    assert_eq!(code(&before), 1);
    assert!(
        stderr(&before).contains("no Delta table yet"),
        "{}",
        stderr(&before)
    );
    program.drop_and_load("a.jsonl", order("I", 1, "new", 100, 1));
    let output = program.call(&["explain", "orders", "--key", "order_id=2", "--json"]);
    assert_eq!(code(&output), 1);
    assert!(stderr(&output).contains("orders has no event of order_id=2"));
    let document: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(
        (&document["events"], &document["agrees"]),
        (&json!([]), &json!(true))
    );
    let bronze_only = Program::new("format = \"json\"", "", "");
    let refusal = refused(&bronze_only, &["orders", "--key", "id=1"]);
    assert!(refusal.contains("has no silver table"), "{refusal}");
}

#[test]
fn late_repeated_and_conflicting_events_name_one_another() {
    let program = Program::orders();
    program.drop_and_load(
        "a.jsonl",
        order("I", 1, "new", 100, 1) + &order("U", 1, "paid", 100, 5) + &order("I", 2, "x", 1, 9),
    );
    program.drop_and_load(
        "b.jsonl",
        order("U", 1, "late", 100, 3)
            + &order("U", 1, "paid", 100, 5)
            + &order("U", 1, "sent", 100, 5),
    );
    let document = explained(&program, &["order_id=1"]);
    assert_eq!(
        told(&document),
        [
            "a.jsonl:1 in_order superseded: set anew by b.jsonl:1",
            "b.jsonl:1 late superseded: set anew by a.jsonl:2",
            "a.jsonl:2 in_order conflict: b.jsonl:3 wins the tie: later file or row",
            "b.jsonl:2 in_order repeated: says what a.jsonl:2 says",
            "b.jsonl:3 in_order applied: gives all values of the row; wins the tie with a.jsonl:2",
        ]
    );
    let late = &document["events"][1];
    assert_eq!(
        late["late_after"],
        json!({"file_path": "a.jsonl", "file_row": 2})
    );
    assert_eq!(
        late["other"],
        json!({"file_path": "a.jsonl", "file_row": 2})
    );
    assert_eq!(
        (&late["batch_id"], &late["kind"], &late["sequence"]),
        (&2.into(), &"upsert".into(), &json!({"seq": 3}))
    );
    assert_eq!(late["values"]["amount"], "1.00");
    assert_eq!(document["key"], json!({"order_id": 1}));
    assert_eq!(document["silver"][0]["status"], "sent");

    let events = program.json(&["explain", "orders", "--key", "ORDER_ID=1"]);
    assert_eq!(Value::from(events), document["events"]);
}

#[test]
fn table_has_one_line_for_each_event_within_120_columns() {
    let program = Program::orders();
    program.drop_and_load(
        "orders-2024-01-01.jsonl",
        order("I", 1, "new", 100, 1) + &order("D", 1, "new", 100, 5),
    );
    program.drop_and_load("orders-2024-01-02.jsonl", order("U", 1, "late", 100, 3));
    let output = program.call(&["explain", "orders", "--key", "order_id=1"]);
    let text = stdout(&output);
    let expected = "\
orders order_id=1: 3 events

sequence  kind    record                     batch  late after                 fate        why
--------  ------  -------------------------  -----  -------------------------  ----------  -------------------------------------
1         upsert  orders-2024-01-01.jsonl:1  1                                 superseded  set anew by orders-2024-01-02.jsonl:1
3         upsert  orders-2024-01-02.jsonl:1  2      orders-2024-01-01.jsonl:2  superseded  set anew by orders-2024-01-01.jsonl:2
5         delete  orders-2024-01-01.jsonl:2  1                                 applied     deletes the row and gives all values

silver holds what they give:
order_id  status  amount  seq  deleted
--------  ------  ------  ---  -------
1         new     1.00    5    true
";
    assert_eq!((code(&output), text.as_str()), (0, expected));
}

#[test]
fn refused_records_that_show_the_key_come_last() {
    let program = Program::orders();
    let skewed =
        "{\"op\":\"U\",\"order_id\":\"1\",\"status\":\"x\",\"amount\":\"much\",\"seq\":2}\n";
    let without_key = "{\"op\":\"U\",\"status\":\"x\",\"seq\":2}\n";
    program.drop_file(
        "a.jsonl",
        skewed.to_string()
            + "{\"op\":\"U\",\"order_id\":1,\n"
            + without_key
            + &order("Z", 2, "x", 1, 2)
            + &order("I", 1, "new", 100, 1)
            + &order("Z", 3, "x", 1, 2),
    );
    assert_eq!(program.run(), 3);
    let document = explained(&program, &["order_id=1"]);
    let told = told(&document);
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(
        told[0],
        "a.jsonl:5 in_order applied: gives all values of the row"
    );
    assert!(
        told[1].starts_with("a.jsonl:1 - refused: type_mismatch: "),
        "{}",
        told[1]
    );
    let record = &document["events"][1];
    assert_eq!(
        (&record["kind"], &record["sequence"], &record["values"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    // A key that only a refused record shows is known.
    let document = explained(&program, &["order_id=3"]);
    assert_eq!(
        (
            document["events"].as_array().unwrap().len(),
            &document["silver"]
        ),
        (1, &json!([]))
    );
}

#[test]
fn truncates_are_told_where_they_reach_the_key() {
    let hints = "op STRING, id BIGINT, v STRING, seq BIGINT";
    let operations = "keys = [\"id\"]\nsequence_by = [\"seq\"]\nexcept_column_list = [\"op\"]\n\
        operations = { column = \"op\", upsert = [\"U\"], delete = [\"D\"], truncate = [\"T\"], skip = [\"S\"] }";
    for deletes in ["soft", "hard"] {
        let program = pipeline(hints, &format!("{operations}\ndeletes = \"{deletes}\""));
        let event =
            |op: &str, id: i64, v: &str, seq: i64| json!({"op": op, "id": id, "v": v, "seq": seq});
        let truncate = json!({"op": "T", "seq": 5});
        program.drop_and_load(
            "a.jsonl",
            lines(&[event("U", 1, "a", 1), truncate, event("U", 2, "a", 5)]),
        );
        program.drop_and_load(
            "b.jsonl",
            lines(&[event("U", 1, "b", 3), event("S", 1, "s", 4)]),
        );
        let (late, truncate) = match deletes {
            "soft" => ("applied: gives v of the row", "deletes the row"),
            _ => ("superseded: taken away by a.jsonl:2", "takes the row away"),
        };
        assert_eq!(
            told(&explained(&program, &["id=1"])),
            [
                "a.jsonl:1 in_order superseded: set anew by b.jsonl:1".to_string(),
                format!("b.jsonl:1 late {late}"),
                "b.jsonl:2 - skipped: silver skips its operation".into(),
                format!("a.jsonl:2 in_order applied: {truncate}"),
            ]
        );
        // It has no event below the truncate.
        let other = told(&explained(&program, &["id=2"]));
        assert_eq!(
            other,
            ["a.jsonl:3 in_order applied: gives all values of the row"]
        );
        // The same where the places of truncates are not known from silver.
        fs::remove_dir_all(program.path("lake/silver")).unwrap();
        let absent = program.call(&["explain", "orders", "--key", "id=1", "--json"]);
        assert_eq!(code(&absent), i32::from(deletes == "soft"));
        let document: Value = serde_json::from_str(&stdout(&absent)).unwrap();
        assert_eq!(document["events"].as_array().unwrap().len(), 4);
    }
}

#[test]
fn snapshots_without_the_key_stand_where_they_delete_it() {
    let words = |shape: &str| match shape {
        "hard" => (
            "superseded: taken away by park-2.jsonl",
            "takes the row away",
        ),
        "soft" => ("applied: gives city of the row", "deletes the row"),
        _ => ("applied: opens version 1", "ends version 1"),
    };
    for (shape, setting) in [
        ("soft", ""),
        ("hard", "deletes = \"hard\""),
        ("history", "stored_as_scd_type = 2"),
    ] {
        let source = "format = \"json\"\nsnapshot_version = \"file_name\"\n\
            schema_hints = \"id BIGINT, city STRING\"";
        let program = Program::new(source, "", &format!("keys = [\"id\"]\n{setting}"));
        let park = |id: i64| json!({"id": id, "city": "Oaxaca"});
        program.drop_and_load("park-1.jsonl", lines(&[park(1), park(2)]));
        for version in 2..=4 {
            program.drop_and_load(&format!("park-{version}.jsonl"), lines(&[park(2)]));
        }
        let (given, missing) = words(shape);
        let document = explained(&program, &["id=1"]);
        assert_eq!(
            told(&document),
            [
                format!("park-1.jsonl:1 in_order {given}"),
                format!("park-2.jsonl:null in_order applied: {missing}"),
            ]
        );
        assert_eq!(document["events"][1]["kind"], "missing");
        let kept = told(&explained(&program, &["id=2"]));
        assert_eq!(kept.len(), 4, "{kept:?}");
        program.drop_and_load("park-5.jsonl", lines(&[park(1)]));
        let back = explained(&program, &["id=1"]);
        assert_eq!(back["events"].as_array().unwrap().len(), 3);
        assert_eq!(back["events"][2]["fate"], "applied");
    }
}

#[test]
fn late_event_splits_a_version_and_events_that_open_none_say_so() {
    let program = pipeline(
        "id BIGINT, v STRING, seq BIGINT, gone BOOLEAN",
        "keys = [\"id\"]\nsequence_by = [\"seq\"]\nstored_as_scd_type = 2\n\
         apply_as_deletes = \"gone\"\nexcept_column_list = [\"seq\", \"gone\"]",
    );
    let event = |v: &str, seq: i64| json!({"id": 1, "v": v, "seq": seq});
    let gone = json!({"id": 1, "seq": 9, "gone": true});
    program.drop_and_load("a.jsonl", lines(&[event("a", 1), event("a", 5), gone]));
    assert_eq!(
        told(&explained(&program, &["id=1"])),
        [
            "a.jsonl:1 in_order applied: opens version 1",
            "a.jsonl:2 in_order no_change: version 1 goes on with the same values",
            "a.jsonl:3 in_order applied: ends version 1",
        ]
    );
    program.drop_and_load("b.jsonl", lines(&[event("b", 3)]));
    let document = explained(&program, &["id=1"]);
    assert_eq!(
        told(&document),
        [
            "a.jsonl:1 in_order applied: opens version 1",
            "b.jsonl:1 late applied: ends version 1, opens version 2",
            "a.jsonl:2 in_order applied: ends version 2, opens version 3",
            "a.jsonl:3 in_order applied: ends version 3",
        ]
    );
    let version = |v: &str, start: i64, end: i64| json!({"id": 1, "v": v, "__START_AT": start, "__END_AT": end});
    let versions = [version("a", 1, 3), version("b", 3, 5), version("a", 5, 9)];
    assert_eq!(document["silver"], json!(versions));
}

#[test]
fn partial_updates_name_the_columns_that_each_event_gives() {
    let source = "format = \"json\"\nunavailable_value = \"<same>\"\n\
        schema_hints = \"id BIGINT, a STRING, b STRING, c STRING, seq BIGINT, sent STRING\"";
    let silver = "keys = [\"id\"]\nsequence_by = [\"seq\"]\n";
    let event = |a: Option<&str>, b: &str, c: &str, sent: Option<&str>, seq: i64| json!({"id": 1, "a": a, "b": b, "c": c, "sent": sent, "seq": seq});
    let nulls = lines(&[
        event(Some("a1"), "b1", "c1", None, 1),
        event(None, "b2", "<same>", None, 2),
        event(None, "<same>", "c3", None, 3),
    ]);
    let lists = lines(&[
        event(Some("a1"), "b1", "c1", None, 1),
        event(None, "b2", "c2", Some("b"), 2),
        event(None, "b3", "c3", Some("c, sent"), 3),
    ]);
    for (setting, events) in [
        (
            "ignore_null_updates = [\"a\"]\nexcept_column_list = [\"sent\"]",
            nulls,
        ),
        ("columns_to_update = \"sent\"", lists),
    ] {
        let program = Program::new(source, "", &format!("{silver}{setting}"));
        program.drop_and_load("a.jsonl", events);
        assert_eq!(
            told(&explained(&program, &["id=1"])),
            [
                "a.jsonl:1 in_order applied: gives a of the row",
                "a.jsonl:2 in_order applied: gives b of the row",
                "a.jsonl:3 in_order applied: gives c, seq of the row",
            ]
        );
    }
}

#[test]
fn keys_and_sequences_of_every_kind_are_found() {
    let program = pipeline(
        "name STRING, price DECIMAL(10,2), at TIMESTAMP, day DATE, n INT, ok BOOLEAN",
        "keys = [\"name\", \"price\", \"at\", \"ok\"]\nsequence_by = [\"day\", \"n\"]",
    );
    let event = |name: &str, price: &str, at: &str, n: i64| json!({"name": name, "price": price, "at": at, "ok": true, "day": "2024-01-01", "n": n});
    let quoted = "it's \"5=5\"";
    program.drop_and_load(
        "a.jsonl",
        lines(&[
            event(quoted, "7.50", "2024-01-01T00:00:00Z", 1),
            event(quoted, "7.51", "2024-01-01T00:00:00Z", 1),
            event(quoted, "7.50", "2024-01-01T00:00:00.000001Z", 1),
            event("", "7.50", "2024-01-01T00:00:00Z", 1),
            event(quoted, "7.5", "2024-01-01T01:00:00+01:00", 2),
        ]),
    );
    let name = format!("name={quoted}");
    let document = explained(
        &program,
        &["price=7.5", &name, "at=2024-01-01T00:00:00Z", "ok=TRUE"],
    );
    assert_eq!(
        told(&document),
        [
            "a.jsonl:1 in_order superseded: set anew by a.jsonl:5",
            "a.jsonl:5 in_order applied: gives all values of the row",
        ]
    );
    assert_eq!(
        document["events"][1]["sequence"],
        json!({"day": "2024-01-01", "n": 2})
    );
    let key =
        json!({"name": quoted, "price": "7.50", "at": "2024-01-01T00:00:00.000000Z", "ok": true});
    assert_eq!(document["key"], key);
    let empty = explained(
        &program,
        &["price=7.50", "name=", "at=2024-01-01T00:00:00Z", "ok=true"],
    );
    assert_eq!(told(&empty).len(), 1);
    let no_zone = refused(
        &program,
        &[
            "orders",
            "--key",
            "price=7.50",
            "--key",
            "name=",
            "--key",
            "at=2024-01-01T00:00:00",
            "--key",
            "ok=true",
        ],
    );
    assert!(no_zone.contains("has no offset from UTC"), "{no_zone}");
}

#[test]
fn silver_that_does_not_hold_what_the_events_give_ends_with_1() {
    let program = Program::orders();
    program.drop_and_load(
        "a.jsonl",
        order("I", 1, "new", 100, 1) + &order("I", 2, "new", 100, 1),
    );
    for table in ["silver", "bronze"] {
        copy(&program.path("lake").join(table), &program.path(table));
    }
    program.drop_and_load("b.jsonl", order("U", 1, "paid", 100, 2));
    let put_back = |table: &str| {
        let place = program.path("lake").join(table);
        fs::remove_dir_all(&place).unwrap();
        copy(&program.path(table), &place);
    };
    let found = || {
        let output = program.call(&["explain", "orders", "--key", "order_id=1"]);
        assert_eq!(code(&output), 1);
        (stdout(&output), stderr(&output))
    };
    // Silver as it was before the last batch.
    put_back("silver");
    let (rows, finding) = found();
    assert!(
        finding.contains("lacks versions of bronze: run landfall run first"),
        "{finding}"
    );
    let (given, held) = rows.split_once("silver holds:").unwrap();
    assert!(
        given.contains("the events give:") && given.contains("paid"),
        "{given}"
    );
    assert!(held.contains("new") && !held.contains("paid"), "{held}");
    // The other key is as it should be.
    explained(&program, &["order_id=2"]);
    // A loader that is at work may be about to apply what is missing.
    let lock = fs::File::options()
        .write(true)
        .open(program.path("checkpoints/orders.db.lock"))
        .unwrap();
    lock.lock().unwrap();
    let output = program.call(&["explain", "orders", "--key", "order_id=1", "--json"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let document: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let unsettled = document["unsettled"].as_str().unwrap();
    assert!(
        unsettled.starts_with("a loader is running: "),
        "{unsettled}"
    );
    assert!(stderr(&output).contains(unsettled), "{}", stderr(&output));
    drop(lock);
    fs::remove_dir_all(program.path("lake/silver")).unwrap();
    assert!(found().0.contains("silver holds: no row"));
    program.load();
    explained(&program, &["order_id=1"]);
    // Now bronze: silver holds what no event gives.
    put_back("bronze");
    let finding = found().1;
    assert!(
        finding.contains("silver of orders does not hold what the events of order_id=1 give"),
        "{finding}"
    );
}

#[test]
fn key_is_explained_beside_a_loader() {
    let program = Program::with(
        "allow_overwrites = \"replace\"\nmax_files_per_trigger = 1",
        "",
    );
    let drop_files = |round: i64| {
        for key in 1..=5 {
            let text = order("U", key, "paid", 100, round);
            program.drop_file(&format!("{key}.jsonl"), text.repeat(round as usize));
        }
    };
    drop_files(1);
    let watching = program.watch();
    watching.until_files("loaded", &["5.jsonl"]);
    for round in 2..=4 {
        drop_files(round);
        let output = program.call(&["explain", "orders", "--key", "order_id=3"]);
        assert_eq!(code(&output), 0, "{}{}", stdout(&output), stderr(&output));
    }
    assert_eq!(watching.end(), Some(0));
    program.load();
    assert_eq!(told(&explained(&program, &["order_id=3"])).len(), 4);
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => fs::copy(entry.path(), target).map(|_| ()).unwrap(),
        }
    }
}
