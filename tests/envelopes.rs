//! The envelopes of change data capture, from the file to silver: every feed in several orders of arrival.
#![allow(clippy::unwrap_used, reason = "a test stops by panicking")]

#[path = "common/program.rs"]
mod program;

use arrow::array::{
    ArrayRef, BinaryArray, Decimal128Array, Int32Array, Int64Array, RecordBatch, StringArray,
};
use parquet::arrow::ArrowWriter;
use program::{Program, code, stderr};
use serde_json::{Value, json};
use std::sync::Arc;

const HINTS: &str = "id BIGINT, status STRING, amount DECIMAL(10,2)";

/// Files of one feed: name and text.
type Files<'f> = &'f [(&'f str, String)];

/// Orders in an envelope, with further settings of the source and of silver.
struct Feed {
    source: String,
    silver: String,
}

/// What a feed leaves.
#[derive(Debug, PartialEq)]
struct Outcome {
    /// Without the sequence, in the order of the keys.
    silver: Vec<Value>,
    /// The rows as they are.
    whole: Vec<String>,
    /// File, record and reason.
    refused: Vec<(String, i64, String)>,
}

impl Feed {
    fn new(envelope: &str, source: &str, silver: &str) -> Self {
        Feed {
            source: format!("envelope = \"{envelope}\"\nschema_hints = \"{HINTS}\"\n{source}"),
            silver: format!("keys = [\"id\"]\n{silver}"),
        }
    }

    fn program(&self) -> Program {
        Program::new(&self.source, "", &self.silver)
    }

    /// Loads the files one by one in this order, and verifies.
    fn load<'f>(&self, files: impl Iterator<Item = &'f (&'f str, String)>) -> Outcome {
        let program = self.program();
        for (name, text) in files {
            program.drop_file(name, text);
            let output = program.call(&["run", "--available-now"]);
            assert!(matches!(code(&output), 0 | 3), "{}", stderr(&output));
        }
        program.assert_sound();
        outcome(&program)
    }

    /// Loads the files forward, backward and all at once; the outcome must be the same.
    fn settles(&self, files: Files<'_>) -> Outcome {
        let forward = self.load(files.iter());
        assert_eq!(self.load(files.iter().rev()), forward);
        let program = self.program();
        for (name, text) in files {
            program.drop_file(name, text);
        }
        assert!(matches!(program.run(), 0 | 3));
        program.assert_sound();
        assert_eq!(outcome(&program), forward);
        forward
    }
}

fn outcome(program: &Program) -> Outcome {
    let whole = program.silver();
    let mut silver: Vec<Value> = whole
        .iter()
        .map(|row| serde_json::from_str(row).unwrap())
        .collect();
    for row in &mut silver {
        row.as_object_mut().unwrap().remove("_sequence");
    }
    silver.sort_by_key(|row| (row["id"].as_i64(), row.to_string()));
    let refused = program.quarantine();
    let mut refused: Vec<(String, i64, String)> = refused
        .iter()
        .map(|reject| {
            let text = |name: &str| reject[name].as_str().unwrap().to_string();
            (
                text("file_path"),
                reject["file_row"].as_i64().unwrap(),
                text("reason"),
            )
        })
        .collect();
    refused.sort();
    Outcome {
        silver,
        whole,
        refused,
    }
}

fn row(id: i64, status: &str, amount: &str, deleted: bool) -> Value {
    json!({"id": id, "status": status, "amount": amount, "deleted": deleted})
}

fn lines(records: &[Value]) -> String {
    records.iter().map(|record| format!("{record}\n")).collect()
}

fn refusal(file: &str, record: i64, reason: &str) -> (String, i64, String) {
    (file.to_string(), record, reason.to_string())
}

/// The `_op` of every row of bronze, in the order of files and records.
fn ops(program: &Program) -> Vec<String> {
    let mut rows = program.bronze();
    let place = |row: &Value| {
        (
            row["_file_path"].as_str().unwrap().to_string(),
            row["_file_row"].as_i64(),
        )
    };
    rows.sort_by_key(place);
    rows.iter()
        .map(|row| row["_op"].as_str().unwrap().to_string())
        .collect()
}

/// A change of Debezium in PostgreSQL, at a place of the log, after the last commit.
fn postgres(op: &str, before: Value, after: Value, commit: u64, lsn: u64) -> Value {
    let sequence = format!("[\"{commit}\",\"{lsn}\"]");
    json!({"before": before, "after": after, "op": op, "ts_ms": 1,
        "source": {"connector": "postgresql", "lsn": lsn, "sequence": sequence, "snapshot": "false"}})
}

fn debezium_files() -> Vec<(&'static str, String)> {
    let order =
        |id: i64, status: &str, amount: &str| json!({"id": id, "status": status, "amount": amount});
    let key = |id: i64| json!({"id": id, "status": null, "amount": null});
    let none = Value::Null;
    vec![
        (
            "a.jsonl",
            lines(&[
                postgres("c", none.clone(), order(7, "new", "23.58"), 90, 100),
                postgres("c", none.clone(), order(8, "new", "10.00"), 90, 110),
                json!({"ts_ms": 1}),
                postgres("c", none.clone(), order(9, "new", "5.00"), 110, 120),
            ]),
        ),
        (
            "b.jsonl",
            lines(&[
                postgres(
                    "u",
                    key(7),
                    order(7, "paid", "__debezium_unavailable_value"),
                    120,
                    130,
                ),
                postgres("d", key(8), none.clone(), 130, 140),
                none.clone(),
                // The key of 9 becomes 10.
                postgres("d", key(9), none.clone(), 140, 150),
                none.clone(),
                postgres("c", none.clone(), order(10, "moved", "5.00"), 140, 150),
                json!({"op": "u", "after": 7, "source": {}}),
                // The place is missing.
                json!({"op": "c", "after": order(1, "lost", "1.00"), "source": {"ts_ms": 5}}),
            ]),
        ),
        (
            "snapshot.jsonl",
            lines(&[
                postgres("r", none.clone(), order(7, "old", "1.00"), 50, 50),
                postgres("r", none.clone(), order(11, "old", "2.00"), 50, 50),
                json!({"op": "r", "after": order(8, "older", "3.00"), "source": {"snapshot": "true"}}),
            ]),
        ),
    ]
}

#[test]
fn debezium_ends_the_same_whatever_arrives_first() {
    let files = debezium_files();
    let feed = Feed::new("debezium", "", "");
    let outcome = feed.settles(&files);
    assert_eq!(
        outcome.silver,
        [
            row(7, "paid", "23.58", false),
            row(8, "new", "10.00", true),
            row(9, "new", "5.00", true),
            row(10, "moved", "5.00", false),
            row(11, "old", "2.00", false),
        ]
    );
    assert_eq!(
        outcome.refused,
        [
            refusal("b.jsonl", 7, "malformed"),
            refusal("b.jsonl", 8, "null_sequence")
        ]
    );
    let program = feed.program();
    program.drop_file(files[1].0, &files[1].1);
    program.run();
    assert_eq!(
        ops(&program),
        ["update", "delete", "control", "delete", "control", "insert"]
    );
}

#[test]
fn debezium_makes_a_history_whatever_arrives_first() {
    let feed = Feed::new("debezium", "", "stored_as_scd_type = 2");
    let outcome = feed.settles(&debezium_files());
    let versions: Vec<(i64, &str, &str, bool)> = outcome
        .silver
        .iter()
        .map(|row| {
            (
                row["id"].as_i64().unwrap(),
                row["status"].as_str().unwrap(),
                row["amount"].as_str().unwrap(),
                row["__END_AT"].is_null(),
            )
        })
        .collect();
    let mut expected = [
        (7, "old", "1.00", false),
        (7, "new", "23.58", false),
        (7, "paid", "23.58", true),
        (8, "older", "3.00", false),
        (8, "new", "10.00", false),
        (9, "new", "5.00", false),
        (10, "moved", "5.00", true),
        (11, "old", "2.00", true),
    ];
    let mut versions = versions;
    versions.sort_unstable();
    expected.sort_unstable();
    assert_eq!(versions, expected);
}

#[test]
fn debezium_truncates_what_is_below_and_is_refused_in_a_history() {
    let order = |id: i64, status: &str| json!({"id": id, "status": status, "amount": "1.00"});
    let files = [
        (
            "a.jsonl",
            lines(&[postgres("c", Value::Null, order(1, "below"), 10, 20)]),
        ),
        (
            "b.jsonl",
            lines(&[postgres("t", Value::Null, Value::Null, 20, 30)]),
        ),
        (
            "c.jsonl",
            lines(&[postgres("c", Value::Null, order(2, "above"), 30, 40)]),
        ),
    ];
    let outcome = Feed::new("debezium", "", "").settles(&files);
    assert_eq!(
        outcome.silver,
        [
            row(1, "below", "1.00", true),
            row(2, "above", "1.00", false)
        ]
    );
    let outcome = Feed::new("debezium", "", "stored_as_scd_type = 2").settles(&files);
    assert_eq!(outcome.silver.len(), 2);
    assert_eq!(outcome.refused, [refusal("b.jsonl", 1, "unsupported_op")]);
}

#[test]
fn debezium_unwrapped_and_with_a_schema_is_the_same_feed() {
    let schema = json!({"type": "struct", "fields": [
        {"field": "id", "type": "int32"}, {"field": "status", "type": "string"},
        {"field": "amount", "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}]});
    let files = [
        (
            "a.jsonl",
            lines(&[
                json!({"schema": schema, "payload": {"id": 7, "status": "new", "amount": "CTY=", "__op": "c", "__lsn": 100}}),
                json!({"schema": schema, "payload": {"id": 8, "status": "new", "amount": "/w==", "__op": "c", "__lsn": 110}}),
            ]),
        ),
        (
            "b.jsonl",
            lines(&[
                json!({"id": 7, "status": null, "amount": null, "__deleted": "true", "__op": "d", "__lsn": 200}),
            ]),
        ),
    ];
    let outcome = Feed::new("debezium", "", "").settles(&files);
    assert_eq!(
        outcome.silver,
        [row(7, "new", "23.58", true), row(8, "new", "-0.01", false)]
    );
}

#[test]
fn columns_of_the_user_may_order_an_envelope() {
    let source = "";
    let feed = Feed {
        source: format!(
            "envelope = \"debezium\"\nschema_hints = \"{HINTS}, version BIGINT\"\n{source}"
        ),
        silver: "keys = [\"id\"]\nsequence_by = [\"version\"]".into(),
    };
    let event = |version: i64, status: &str| {
        json!({"op": "u", "source": {},
        "after": {"id": 1, "status": status, "amount": null, "version": version}})
    };
    let files = [
        ("a.jsonl", lines(&[event(2, "second")])),
        ("b.jsonl", lines(&[event(1, "first")])),
    ];
    let outcome = feed.settles(&files);
    assert_eq!(
        outcome.silver,
        [json!({"id": 1, "status": "second", "amount": null, "version": 2, "deleted": false})]
    );
}

#[test]
fn dms_full_loads_rank_below_changes_of_any_file() {
    let source = "format = \"csv\"\n[pipeline.orders.source.csv]\nheader = false";
    let feed = Feed {
        source: format!(
            "envelope = \"dms\"\nschema_hints = \"{HINTS}, AR_H_CHANGE_SEQ STRING\"\n{source}"
        ),
        silver: "keys = [\"id\"]".into(),
    };
    let seq = |number: u32| format!("20260101000000120000000000000{number:06}");
    let change = |op: &str, row: &str, number: u32| format!("{op},{row},{}\n", seq(number));
    let files = [
        (
            "LOAD00000001.csv",
            "7,new,23.58,\n8,old,NULL,\n9,old,1.00,\n".to_string(),
        ),
        (
            "20260101-000001000.csv",
            [
                change("U", "7,paid,23.58", 5),
                change("I", "10,new,10.00", 6),
                change("X", "10,new,10.00", 6),
                "U,7,short\n".into(),
                "U,7,no place,1.00,\n".into(),
            ]
            .concat(),
        ),
        (
            "20260101-000002000.csv",
            [
                change("U", "7,sent,20.00", 8),
                change("D", "8,old,NULL", 9),
                change("U", "10,late,9.00", 4),
            ]
            .concat(),
        ),
    ];
    let outcome = feed.settles(&files);
    assert_eq!(
        outcome.silver,
        [
            row(7, "sent", "20.00", false),
            json!({"id": 8, "status": "old", "amount": null, "deleted": true}),
            row(9, "old", "1.00", false),
            row(10, "new", "10.00", false),
        ]
    );
    assert_eq!(
        outcome.refused,
        [
            refusal("20260101-000001000.csv", 3, "unknown_op"),
            refusal("20260101-000001000.csv", 4, "column_count"),
            refusal("20260101-000001000.csv", 5, "null_sequence"),
        ]
    );
}

#[test]
fn dms_reads_files_with_names_and_orders_them_by_time() {
    let feed = Feed::new("dms", "format = \"csv\"", "");
    let files = [
        (
            "LOAD00000001.csv",
            "id,status,amount\n7,old,1.00\n".to_string(),
        ),
        (
            "20260101-000001000.csv",
            "Op,id,status,amount\nU,7,first,1.00\nU,7,second,1.00\n".to_string(),
        ),
        (
            "20260101-000000500.csv",
            "Op,id,status,amount\nU,7,earlier,1.00\nI,8,new,2.00\n".to_string(),
        ),
        // Without names, in the same folder.
        ("20260101-000003000.csv", "D,8,new,2.00\n".to_string()),
    ];
    let outcome = feed.settles(&files);
    assert_eq!(
        outcome.silver,
        [row(7, "second", "1.00", false), row(8, "new", "2.00", true)]
    );
    assert!(outcome.refused.is_empty());
}

#[test]
fn a_change_data_feed_is_folded_by_its_versions() {
    let change = |kind: &str, id: i64, status: &str, version: i64| {
        json!({"id": id, "status": status, "amount": "1.00",
        "_change_type": kind, "_commit_version": version, "_commit_timestamp": "2026-01-01T00:00:00Z"})
    };
    let files = [
        (
            "a.jsonl",
            lines(&[
                change("insert", 7, "new", 9),
                change("insert", 8, "new", 9),
                change("merge", 8, "new", 9),
                change("insert", 9, "no version", 9),
            ])
            .replace(
                "\"_commit_version\":9,\"amount\":\"1.00\",\"id\":9",
                "\"id\":9",
            ) + &lines(&[json!({"id": 9})]),
        ),
        (
            "b.jsonl",
            lines(&[
                change("update_postimage", 7, "paid", 10),
                change("update_preimage", 7, "new", 10),
                // A commit that writes the whole table again: the order of its rows says nothing.
                change("insert", 8, "again", 10),
                change("delete", 8, "new", 10),
            ]),
        ),
        (
            "c.jsonl",
            lines(&[
                change("delete", 7, "paid", 11),
                change("insert", 10, "new", 11),
            ]),
        ),
    ];
    let feed = Feed::new("delta-cdf", "", "");
    let outcome = feed.settles(&files);
    assert_eq!(
        outcome.silver,
        [
            row(7, "paid", "1.00", true),
            row(8, "again", "1.00", false),
            row(10, "new", "1.00", false),
        ]
    );
    assert_eq!(
        outcome.refused,
        [
            refusal("a.jsonl", 3, "unknown_op"),
            refusal("a.jsonl", 4, "null_sequence"),
            refusal("a.jsonl", 5, "unknown_op"),
        ]
    );
    let program = feed.program();
    program.drop_and_load(files[1].0, &files[1].1);
    assert_eq!(ops(&program), ["update", "before", "insert", "delete"]);
}

#[test]
fn maxwell_ends_the_same_whatever_arrives_first() {
    let order = |id: i64, status: &str| json!({"id": id, "status": status, "amount": 1.50});
    let change = |kind: &str, position: u32, data: Value, more: Value| {
        let mut record = json!({"database": "shop", "table": "orders", "type": kind, "ts": 1,
            "position": format!("mysql-bin.000007:{position}"), "data": data});
        let more = more.as_object().unwrap().clone();
        record.as_object_mut().unwrap().extend(more);
        record
    };
    let files = [
        (
            "a.jsonl",
            lines(&[
                json!({"type": "table-create", "database": "shop", "table": "orders", "ts": 1, "sql": "..."}),
                change("insert", 900, order(7, "new"), json!({"xoffset": 0})),
                change("insert", 900, order(8, "new"), json!({"xoffset": 1})),
                change(
                    "update",
                    900,
                    order(7, "paid"),
                    json!({"xoffset": 10, "old": {"status": "new"}}),
                ),
                // The last change of the transaction.
                change(
                    "update",
                    900,
                    order(7, "sent"),
                    json!({"commit": true, "old": {"status": "paid"}}),
                ),
                change("merge", 900, order(7, "new"), json!({})),
                change("insert", 900, json!([1]), json!({})),
                json!({"type": "insert", "data": order(7, "no place")}),
            ]),
        ),
        (
            "b.jsonl",
            lines(&[
                change(
                    "update",
                    1000,
                    order(9, "moved"),
                    json!({"xoffset": 0, "old": {"id": 8, "status": "new"}}),
                ),
                change("delete", 10000, order(7, "sent"), json!({"commit": true})),
                change("insert", 10001, order(10, "new"), json!({"commit": true})),
            ]),
        ),
        (
            "bootstrap.jsonl",
            lines(&[
                change("bootstrap-start", 99999, json!({}), json!({})),
                change("bootstrap-insert", 99999, order(10, "old"), json!({})),
                change("bootstrap-insert", 99999, order(11, "old"), json!({})),
                change("bootstrap-complete", 99999, json!({}), json!({})),
            ]),
        ),
    ];
    let feed = Feed::new("maxwell", "", "");
    let outcome = feed.settles(&files);
    assert_eq!(
        outcome.silver,
        [
            row(7, "sent", "1.50", true),
            row(8, "new", "1.50", true),
            row(9, "moved", "1.50", false),
            row(10, "new", "1.50", false),
            row(11, "old", "1.50", false),
        ]
    );
    assert_eq!(
        outcome.refused,
        [
            refusal("a.jsonl", 6, "unknown_op"),
            refusal("a.jsonl", 7, "malformed"),
            refusal("a.jsonl", 8, "null_sequence"),
        ]
    );
    let program = feed.program();
    program.drop_and_load(files[1].0, &files[1].1);
    assert_eq!(ops(&program), ["delete", "update", "delete", "insert"]);
}

/// A change of wal2json, format 2.
fn wal2json(
    action: &str,
    lsn: &str,
    columns: &[(&str, Value)],
    identity: &[(&str, Value)],
) -> Value {
    let row = |row: &[(&str, Value)]| -> Value {
        row.iter()
            .map(|(name, value)| json!({"name": name, "type": "text", "value": value}))
            .collect()
    };
    let mut record = json!({"action": action, "schema": "public", "table": "orders", "lsn": lsn});
    for (name, part) in [("columns", columns), ("identity", identity)] {
        if !part.is_empty() {
            record[name] = row(part);
        }
    }
    record
}

#[test]
fn wal2json_changes_end_the_same_whatever_arrives_first() {
    let id = |id: i64| ("id", json!(id));
    let status = |status: &str| ("status", json!(status));
    let amount = |amount: f64| ("amount", json!(amount));
    let files = [
        (
            "a.jsonl",
            lines(&[
                json!({"action": "B", "xid": 901}),
                wal2json("I", "9/100", &[id(7), status("new"), amount(23.5)], &[]),
                wal2json("I", "9/200", &[id(8), status("new"), amount(1.5)], &[]),
                json!({"action": "C", "xid": 901}),
                wal2json("X", "9/300", &[], &[]),
                json!({"action": "I", "columns": 7, "lsn": "9/300"}),
                wal2json("U", "nowhere", &[id(7), status("lost")], &[id(7)]),
            ]),
        ),
        (
            "b.jsonl",
            lines(&[
                // The amount was not read, the status is NULL now.
                wal2json(
                    "U",
                    "16/B374D848",
                    &[id(7), ("status", Value::Null)],
                    &[id(7)],
                ),
                wal2json(
                    "U",
                    "16/B374D900",
                    &[id(9), status("moved"), amount(1.5)],
                    &[id(8)],
                ),
                wal2json("D", "16/B374DA00", &[], &[id(9)]),
            ]),
        ),
        ("c.jsonl", lines(&[wal2json("T", "A/0", &[], &[])])),
        (
            "d.jsonl",
            lines(&[wal2json(
                "I",
                "B/0",
                &[id(7), status("again"), amount(2.5)],
                &[],
            )]),
        ),
    ];
    let feed = Feed::new("wal2json", "", "");
    let outcome = feed.settles(&files);
    assert_eq!(
        outcome.silver,
        [
            json!({"id": 7, "status": null, "amount": "2.50", "deleted": false}),
            row(8, "new", "1.50", true),
            row(9, "moved", "1.50", true),
        ]
    );
    assert_eq!(
        outcome.refused,
        [
            refusal("a.jsonl", 5, "unknown_op"),
            refusal("a.jsonl", 6, "malformed"),
            refusal("a.jsonl", 7, "null_sequence"),
        ]
    );
}

#[test]
fn wal2json_transactions_are_cut_into_changes_with_their_own_texts() {
    let names = json!(["id", "status", "amount"]);
    let change = |kind: &str, values: Value| json!({"kind": kind, "table": "orders", "columnnames": names, "columnvalues": values});
    let update = json!({"kind": "update", "table": "orders", "columnnames": ["id", "status"], "columnvalues": [7, "paid"],
        "oldkeys": {"keynames": ["id"], "keyvalues": [7]}});
    let delete = json!({"kind": "delete", "table": "orders", "oldkeys": {"keynames": ["id"], "keyvalues": [8]}});
    let moved = json!({"kind": "update", "table": "orders", "columnnames": names, "columnvalues": [10, "moved", 3.5],
        "oldkeys": {"keynames": ["id"], "keyvalues": [9]}});
    let files = [
        (
            "a.jsonl",
            lines(&[json!({"xid": 900, "nextlsn": "9/0", "change": [
                change("insert", json!([7, "new", 1.5])),
                change("insert", json!([8, "new"])),
                change("insert", json!([8, "new", 2.5])),
                change("insert", json!([9, "new", 3.5])),
            ]})]),
        ),
        (
            "b.jsonl",
            lines(&[
                json!({"xid": 901, "nextlsn": "10/0", "change": []}),
                json!({"xid": 902, "nextlsn": "10/1", "change": [update, delete, moved]}),
                json!({"xid": 903, "change": [change("insert", json!([1, "no place", 1.5]))]}),
            ]),
        ),
    ];
    let feed = Feed::new("wal2json", "", "");
    let outcome = feed.settles(&files);
    assert_eq!(
        outcome.silver,
        [
            row(7, "paid", "1.50", false),
            row(8, "new", "2.50", true),
            row(9, "new", "3.50", true),
            row(10, "moved", "3.50", false),
        ]
    );
    assert_eq!(
        outcome.refused,
        [
            refusal("a.jsonl", 2, "malformed"),
            refusal("b.jsonl", 6, "null_sequence")
        ]
    );
    let program = feed.program();
    program.drop_file(files[0].0, &files[0].1);
    program.drop_file(files[1].0, &files[1].1);
    program.run();
    assert_eq!(
        ops(&program),
        [
            "insert", "insert", "insert", "control", "update", "delete", "delete", "update"
        ]
    );
    for reject in program.quarantine() {
        let raw: Value = serde_json::from_str(reject["raw"].as_str().unwrap()).unwrap();
        assert_eq!(raw["kind"], "insert", "{raw}");
    }
}

#[test]
fn sql_server_rows_end_the_same_whatever_arrives_first() {
    let change = |operation: i64, commit: &str, place: &str, id: i64, status: &str| {
        json!({"__$start_lsn": format!("0x0000002A000001B0{commit}"), "__$seqval": format!("0x0000002A000001B0{place}"),
            "__$operation": operation, "__$update_mask": "0x02", "id": id, "status": status, "amount": 1.5})
    };
    let files = [
        (
            "a.jsonl",
            lines(&[
                change(2, "0003", "0001", 7, "new"),
                change(2, "0003", "0002", 8, "new"),
                change(9, "0003", "0003", 8, "new"),
                json!({"__$operation": 2, "__$start_lsn": "somewhere", "__$seqval": "0x01", "id": 1}),
                json!({"id": 1}),
            ]),
        ),
        (
            "b.jsonl",
            lines(&[
                change(3, "0010", "0005", 7, "new"),
                change(4, "0010", "0005", 7, "paid"),
                // The key of 8 becomes 9.
                change(3, "0010", "0006", 8, "new"),
                change(4, "0010", "0006", 9, "moved"),
                // The same as a delete and an insert at one place.
                change(2, "0010", "0007", 10, "again"),
                change(1, "0010", "0007", 10, "gone"),
            ]),
        ),
        (
            "c.jsonl",
            lines(&[
                change(4, "000F", "0009", 7, "late"),
                change(1, "0011", "0001", 9, "moved"),
            ]),
        ),
    ];
    let feed = Feed::new("sqlserver", "", "");
    let outcome = feed.settles(&files);
    assert_eq!(
        outcome.silver,
        [
            row(7, "paid", "1.50", false),
            row(8, "new", "1.50", true),
            row(9, "moved", "1.50", true),
            row(10, "again", "1.50", false),
        ]
    );
    assert_eq!(
        outcome.refused,
        [
            refusal("a.jsonl", 3, "unknown_op"),
            refusal("a.jsonl", 4, "null_sequence"),
            refusal("a.jsonl", 5, "unknown_op"),
        ]
    );
    let program = feed.program();
    program.drop_and_load(files[1].0, &files[1].1);
    assert_eq!(
        ops(&program),
        ["before", "update", "delete", "update", "insert", "delete"]
    );
}

#[test]
fn sql_server_rows_in_parquet_compare_their_places_as_bytes() {
    let program = Feed::new("sqlserver", "", "").program();
    // These bytes read as text, too.
    let lsn = |last: u8| [0, 0, 0, 0x2A, 0, 0, 1, 0x30, 0, last];
    let places = [lsn(9), lsn(16), lsn(10)];
    let places: Vec<&[u8]> = places.iter().map(|place| place.as_slice()).collect();
    let amounts = Decimal128Array::from(vec![100, 200, 300]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("__$start_lsn", Arc::new(BinaryArray::from(places.clone()))),
        ("__$seqval", Arc::new(BinaryArray::from(places))),
        ("__$operation", Arc::new(Int32Array::from(vec![2, 4, 4]))),
        ("id", Arc::new(Int64Array::from(vec![7, 7, 7]))),
        (
            "status",
            Arc::new(StringArray::from(vec!["new", "last", "middle"])),
        ),
        (
            "amount",
            Arc::new(amounts.with_precision_and_scale(10, 2).unwrap()),
        ),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    program.drop_and_load("a.parquet", writer.into_inner().unwrap());
    // The same place as text, and one behind it.
    let text = |place: &str, status: &str| {
        json!({"__$start_lsn": format!("0x0000002A0000013000{place}"),
        "__$seqval": format!("0x0000002A0000013000{place}"), "__$operation": 4, "id": 7, "status": status, "amount": 9})
    };
    program.drop_and_load("b.jsonl", lines(&[text("0F", "below")]));
    program.assert_sound();
    assert_eq!(outcome(&program).silver, [row(7, "last", "2.00", false)]);
    program.drop_and_load("c.jsonl", lines(&[text("11", "above")]));
    program.assert_sound();
    assert_eq!(outcome(&program).silver, [row(7, "above", "9.00", false)]);
}

#[test]
fn canal_messages_are_cut_into_rows_with_their_own_texts() {
    let order = |id: &str, status: &str, amount: &str| json!({"id": id, "status": status, "amount": amount});
    let message = |kind: &str, es: u64, data: Value, old: Value| json!({"type": kind, "es": es, "ts": 1, "id": 12, "isDdl": false, "table": "orders", "data": data, "old": old});
    let files = [
        (
            "a.jsonl",
            lines(&[
                json!({"type": "CREATE", "isDdl": true, "es": 5, "data": null, "sql": "..."}),
                message(
                    "INSERT",
                    900,
                    json!([
                        order("7", "new", "1.50"),
                        order("8", "new", "x"),
                        order("8", "new", "2.50"),
                        order("9", "new", "3.50")
                    ]),
                    Value::Null,
                ),
                message("MERGE", 900, json!([]), Value::Null),
                message("UPDATE", 900, json!([order("7", "x", "1.50")]), json!([])),
                message("UPDATE", 900, json!([7]), Value::Null),
                json!({"type": "INSERT", "data": [order("1", "no place", "1.50")]}),
            ]),
        ),
        (
            "b.jsonl",
            lines(&[
                message(
                    "UPDATE",
                    1000,
                    json!([order("7", "paid", "1.50"), order("10", "moved", "3.50")]),
                    json!([{"status": "new"}, {"id": "9", "status": "new"}]),
                ),
                // The same time, and a later record.
                message(
                    "UPDATE",
                    1000,
                    json!([order("7", "sent", "1.50")]),
                    json!([{"status": "paid"}]),
                ),
                message(
                    "DELETE",
                    1001,
                    json!([order("8", "new", "2.50")]),
                    Value::Null,
                ),
            ]),
        ),
        (
            "c.jsonl",
            lines(&[message(
                "UPDATE",
                999,
                json!([order("7", "late", "1.50")]),
                json!([{}]),
            )]),
        ),
    ];
    let feed = Feed::new("canal", "", "");
    let outcome = feed.settles(&files);
    assert_eq!(
        outcome.silver,
        [
            row(7, "sent", "1.50", false),
            row(8, "new", "2.50", true),
            row(9, "new", "3.50", true),
            row(10, "moved", "3.50", false),
        ]
    );
    assert_eq!(
        outcome.refused,
        [
            refusal("a.jsonl", 3, "type_mismatch"),
            refusal("a.jsonl", 6, "unknown_op"),
            refusal("a.jsonl", 7, "malformed"),
            refusal("a.jsonl", 8, "malformed"),
            refusal("a.jsonl", 9, "null_sequence"),
        ]
    );
    let program = feed.program();
    program.drop_file(files[0].0, &files[0].1);
    program.run();
    let raw = program.quarantine()[0]["raw"].clone();
    assert_eq!(
        serde_json::from_str::<Value>(raw.as_str().unwrap()).unwrap(),
        order("8", "new", "x")
    );
}

#[test]
fn canal_truncates_what_is_below() {
    let order = |id: &str, es: u64| {
        json!({"type": "INSERT", "es": es, "isDdl": false,
        "data": [{"id": id, "status": "new", "amount": "1.00"}]})
    };
    let truncate = json!({"type": "TRUNCATE", "es": 20, "isDdl": true, "data": null});
    let files = [
        ("a.jsonl", lines(&[order("1", 10)])),
        ("b.jsonl", lines(&[truncate])),
        ("c.jsonl", lines(&[order("2", 30)])),
    ];
    assert_eq!(
        Feed::new("canal", "", "").settles(&files).silver,
        [row(1, "new", "1.00", true), row(2, "new", "1.00", false)]
    );
}

#[test]
fn goldengate_ends_the_same_whatever_arrives_first() {
    let order = |id: i64, status: &str| json!({"id": id, "status": status, "amount": 1.5});
    let change = |code: &str, pos: u64, before: Value, after: Value| {
        let mut record = json!({"table": "SHOP.ORDERS", "op_type": code, "pos": format!("{pos:020}"), "primary_keys": ["id"]});
        for (name, image) in [("before", before), ("after", after)] {
            if !image.is_null() {
                record[name] = image;
            }
        }
        record
    };
    let none = Value::Null;
    let files = [
        (
            "a.jsonl",
            lines(&[
                change("I", 900, none.clone(), order(7, "new")),
                change("I", 901, none.clone(), order(8, "new")),
                change("X", 902, none.clone(), order(8, "new")),
                change("U", 903, order(8, "new"), none.clone()),
                json!({"op_type": "I", "pos": "", "after": order(1, "no place")}),
                json!({"after": order(1, "no operation")}),
            ]),
        ),
        (
            "b.jsonl",
            lines(&[
                // The amount is not carried; of the status it is said that it is missing.
                change(
                    "U",
                    1000,
                    json!({"id": 7}),
                    json!({"id": 7, "status": null, "status_isMissing": true, "id_isMissing": false}),
                ),
                change(
                    "U",
                    1001,
                    json!({"id": 7, "status": "new"}),
                    json!({"id": 7, "status": "paid"}),
                ),
                change("U", 1002, order(8, "new"), order(9, "moved")),
                change("D", 1003, order(9, "moved"), none.clone()),
            ]),
        ),
        (
            "c.jsonl",
            lines(&[change("T", 950, none.clone(), none.clone())]),
        ),
        (
            "d.jsonl",
            lines(&[
                // Flat rows.
                json!({"table": "SHOP.ORDERS", "op_type": "I", "op_ts": "t", "pos": "00000000000000000960", "id": 7, "status": "again", "amount": 2.5}),
                json!({"table": "SHOP.ORDERS", "op_type": "U", "op_ts": "t", "pos": "00000000000000000961", "id": 7, "amount": 3.5}),
            ]),
        ),
    ];
    let feed = Feed::new("goldengate", "", "");
    let outcome = feed.settles(&files);
    assert_eq!(
        outcome.silver,
        [
            row(7, "paid", "3.50", false),
            row(8, "new", "1.50", true),
            row(9, "moved", "1.50", true),
        ]
    );
    assert_eq!(
        outcome.refused,
        [
            refusal("a.jsonl", 3, "unknown_op"),
            refusal("a.jsonl", 4, "malformed"),
            refusal("a.jsonl", 5, "null_sequence"),
            refusal("a.jsonl", 6, "unknown_op"),
        ]
    );
    let program = feed.program();
    program.drop_and_load(files[1].0, &files[1].1);
    assert_eq!(
        ops(&program),
        ["update", "update", "delete", "update", "delete"]
    );
}

#[test]
fn qlik_rows_end_the_same_whatever_arrives_first() {
    let change = |code: &str, seq: &str, transaction: &str, id: i64, status: &str| {
        json!({"header__change_seq": seq, "header__change_oper": code, "header__transaction_id": transaction,
            "header__timestamp": "2026-01-01 00:00:01.000", "id": id, "status": status, "amount": "1.50"})
    };
    let seq = |number: u32| format!("2026010100000100{number:019}");
    let files = [
        (
            "a.jsonl",
            lines(&[
                change("I", &seq(5), "A", 7, "new"),
                change("I", &seq(6), "A", 8, "new"),
                change("X", &seq(7), "A", 8, "new"),
                change("U", "", "A", 8, "no place"),
                json!({"id": 8, "status": "no header"}),
            ]),
        ),
        (
            "b.jsonl",
            lines(&[
                change("B", &seq(10), "B", 7, "new"),
                change("U", &seq(11), "B", 7, "paid"),
                change("B", &seq(12), "B", 8, "new"),
                change("U", &seq(13), "B", 9, "moved"),
                // Another transaction: these are no pair.
                change("B", &seq(14), "B", 7, "paid"),
                change("U", &seq(15), "C", 10, "new"),
                change("D", &seq(100), "C", 9, "moved"),
            ]),
        ),
        (
            "load.jsonl",
            lines(&[
                change("L", "", "", 7, "old"),
                change("L", "", "", 11, "old"),
                json!({"header__change_seq": seq(9), "header__operation": "UPDATE", "id": 7, "status": "late", "amount": null}),
            ]),
        ),
    ];
    let feed = Feed::new("qlik", "", "");
    let outcome = feed.settles(&files);
    assert_eq!(
        outcome.silver,
        [
            row(7, "paid", "1.50", false),
            row(8, "new", "1.50", true),
            row(9, "moved", "1.50", true),
            row(10, "new", "1.50", false),
            row(11, "old", "1.50", false),
        ]
    );
    assert_eq!(
        outcome.refused,
        [
            refusal("a.jsonl", 3, "unknown_op"),
            refusal("a.jsonl", 4, "null_sequence"),
            refusal("a.jsonl", 5, "unknown_op"),
        ]
    );
    let program = feed.program();
    program.drop_and_load(files[1].0, &files[1].1);
    assert_eq!(
        ops(&program),
        [
            "before", "update", "delete", "update", "before", "update", "delete"
        ]
    );
}

#[test]
fn rows_beside_their_header_are_the_same_in_csv() {
    let feed = Feed::new("qlik", "format = \"csv\"", "");
    let files = [
        (
            "a.csv",
            "id,status,amount,header__change_seq,header__change_oper\n7,old,1.00,,L\n8,new,1.00,5,I\n".to_string(),
        ),
        (
            "b.csv",
            "header__change_oper,header__change_seq,id,status,amount\nU,10,7,paid,2.00\nU,9,7,late,3.00\nD,11,8,,\n"
                .to_string(),
        ),
    ];
    let outcome = feed.settles(&files);
    assert_eq!(
        outcome.silver,
        [row(7, "paid", "2.00", false), row(8, "new", "1.00", true)]
    );
    let columns = feed.program();
    columns.drop_and_load(files[0].0, &files[0].1);
    let row = columns.bronze().remove(0);
    assert!(row.get("header__change_seq").is_none(), "{row}");
}
