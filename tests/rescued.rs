//! Columns that come later take their values from the rescued data of bronze, as if the files were loaded again.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops by panicking"
)]

mod common;
#[path = "common/program.rs"]
mod program;

use arrow::array::{
    ArrayRef, BinaryArray, Float32Array, Float64Array, Int64Array, RecordBatch, StringArray,
};
use common::TestLoader;
use landfall::crash::{CrashPoint, CrashSwitch};
use landfall::error::Result;
use landfall::protocol::Pipeline;
use parquet::arrow::ArrowWriter;
use program::{HINTS, Program, code, stderr, stdout};
use serde_json::{Value, json};
use std::sync::Arc;

const RESCUE: &str = "schema_evolution_mode = \"rescue\"\non_type_mismatch = \"rescue\"";

fn source(hints: &str, further: &str) -> String {
    format!("format = \"json\"\nschema_hints = \"{hints}\"\n{RESCUE}\n{further}")
}

fn with(more_hints: &str) -> String {
    format!("{HINTS}{more_hints}")
}

fn silver(further: &str) -> String {
    format!(
        "keys = [\"order_id\"]\nsequence_by = [\"seq\"]\nexcept_column_list = [\"op\"]\n\
         operations = {{ column = \"op\", upsert = [\"I\", \"U\"], delete = [\"D\"] }}\n{further}"
    )
}

/// A JSON line of one order, with further fields.
fn order(key: i64, seq: i64, further: &str) -> String {
    format!(
        "{{\"op\":\"U\",\"order_id\":{key},\"status\":\"s{seq}\",\"amount\":1.50,\"seq\":{seq}{further}}}\n"
    )
}

fn rebuild(program: &Program) -> String {
    let output = program.call(&["rebuild", "orders", "rescued", "--yes"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    stdout(&output)
}

/// The rows of bronze without what tells when they were loaded, in order.
fn loaded_rows(program: &Program) -> Vec<Value> {
    let mut rows = program.bronze();
    for row in &mut rows {
        let row = row.as_object_mut().unwrap();
        row.remove("_batch_id");
        row.remove("_loaded_at");
    }
    rows.sort_by_key(|row| (row["_file_path"].to_string(), row["_file_row"].as_i64()));
    rows
}

fn versions(program: &Program) -> (Value, Value) {
    let status = program.status();
    let version = |table: &str| status[table]["version"].clone();
    (version("bronze"), version("silver"))
}

/// After a back-fill: a repeat does nothing, and a reset of all files loads the same rows.
fn assert_as_loaded_again(program: &Program) {
    program.assert_sound();
    let (bronze, tables) = (loaded_rows(program), versions(program));
    let silver = program.silver();
    assert!(rebuild(program).ends_with("nothing was changed\n"));
    assert_eq!(versions(program), tables);
    let output = program.call(&["reset", "orders", "--all", "--yes"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    program.load();
    assert_eq!(loaded_rows(program), bronze);
    assert_eq!(program.silver(), silver);
    program.assert_sound();
}

/// The values of a column and the rescued data, by file and row.
fn column(program: &Program, name: &str) -> Vec<(Value, Value)> {
    let rows = loaded_rows(program).into_iter();
    rows.map(|row| (row[name].clone(), row["_rescued_data"].clone()))
        .collect()
}

#[test]
fn rescued_values_move_to_columns_that_the_hints_add() {
    let program = Program::new(&source(HINTS, ""), "", &silver(""));
    program.drop_file(
        "a.jsonl",
        order(1, 1, ",\"coupon\":\"X\\u0041\",\"points\":7") + &order(2, 2, ""),
    );
    program.load();
    program.drop_and_load("b.jsonl", order(3, 3, ",\"points\":\"8\",\"coupon\":\"B\""));
    program.drop_and_load(
        "c.jsonl",
        order(2, 4, ",\"points\":8.5,\"channel\":{\"a\": [1]}"),
    );
    program.drop_and_load("d.jsonl", order(4, 5, ""));
    let before = versions(&program);
    let untouched = loaded_rows(&program).pop();
    program.set(
        &source(&with(", coupon STRING, points BIGINT"), ""),
        "",
        &silver(""),
    );
    assert_eq!(
        rebuild(&program),
        "coupon STRING, a new column: 2 rows of 2 files gain a value\n\
         points BIGINT, a new column: 2 rows of 2 files gain a value\n\
         channel: 1 value stays rescued, the first in c.jsonl, row 1: \"{\\\"a\\\": [1]}\" is of no column; \
         add channel STRING to schema_hints to give it one\n\
         points: 1 value stays rescued, the first in c.jsonl, row 1: \"8.5\" is not a whole number\n\
         2 rows in 2 data files of bronze changed: bronze of orders is at version 5, silver is at version 5\n"
    );
    assert_eq!(before, (json!(4), json!(4)));
    let stays = "{\"points\":8.5,\"channel\":{\"a\": [1]},\"_file_path\":\"c.jsonl\"}";
    assert_eq!(
        column(&program, "points"),
        [
            (json!(7), Value::Null),
            (Value::Null, Value::Null),
            (json!(8), Value::Null),
            (Value::Null, json!(stays)),
            (Value::Null, Value::Null),
        ]
    );
    assert_eq!(column(&program, "coupon")[0].0, json!("XA"));
    let row = |key: i64| {
        let rows = program.silver();
        let rows = rows
            .iter()
            .map(|row| serde_json::from_str::<Value>(row).unwrap());
        rows.into_iter().find(|row| row["order_id"] == key).unwrap()
    };
    assert_eq!(
        (&row(1)["coupon"], &row(1)["points"]),
        (&json!("XA"), &json!(7))
    );
    assert_eq!(
        (&row(3)["coupon"], &row(3)["points"]),
        (&json!("B"), &json!(8))
    );
    assert_eq!(row(4)["coupon"], Value::Null);
    // Where nothing moved, everything is as it was.
    let mut last = loaded_rows(&program).pop().unwrap();
    for name in ["coupon", "points"] {
        last.as_object_mut().unwrap().remove(name);
    }
    assert_eq!(Some(last), untouched);
    assert_as_loaded_again(&program);
}

#[test]
fn nothing_changes_where_no_column_takes_a_value_and_the_way_on_is_told() {
    let program = Program::new(&source(HINTS, ""), "", &silver(""));
    program.drop_and_load("a.jsonl", order(1, 1, ""));
    assert_eq!(
        rebuild(&program),
        "bronze of orders has no rescued data, nothing was changed\n"
    );
    let further = [
        ",\"points\":7,\"STATUS\":\"x\",\"a b\":true",
        ",\"points\":7.5,\"is\":true",
    ];
    program.drop_and_load(
        "b.jsonl",
        order(2, 2, further[0]) + &order(3, 3, further[1]),
    );
    let before = versions(&program);
    assert_eq!(
        rebuild(&program),
        "STATUS: 1 value stays rescued, the first in b.jsonl, row 1: \"x\" is of no column, and the name differs from \
         column status in upper and lower case only\n\
         `a b`: 1 value stays rescued, the first in b.jsonl, row 1: \"true\" can have no column: column name \"a b\" \
         contains ' '\n\
         is: 1 value stays rescued, the first in b.jsonl, row 2: \"true\" is of no column; \
         add is BOOLEAN to schema_hints to give it one\n\
         points: 2 values stay rescued, the first in b.jsonl, row 1: \"7\" is of no column; \
         add points DOUBLE to schema_hints to give it one\n\
         no rescued value fits an empty column, nothing was changed\n"
    );
    assert_eq!(versions(&program), before);
    let output = program.call(&["rebuild", "orders", "rescued"]);
    assert_eq!(
        code(&output),
        0,
        "nobody needs to be asked: {}",
        stderr(&output)
    );
    program.set(&source(&with(", points DOUBLE"), ""), "", &silver(""));
    let output = program.call(&["rebuild", "orders", "rescued"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("--yes"), "{}", stderr(&output));
    assert_eq!(versions(&program), before);
    // A column keeps its type, whatever was rescued of it.
    let wider = HINTS.replace("DECIMAL(10,2)", "DECIMAL(12,4)");
    program.set(&source(&wider, ""), "", &silver(""));
    let output = program.call(&["rebuild", "orders", "rescued", "--yes"]);
    assert_eq!(code(&output), 2);
    assert!(stderr(&output).contains("schema_hints says amount DECIMAL(12,4)"));
}

#[test]
fn values_that_did_not_fit_move_when_the_settings_read_them() {
    let hints = with(", at DATE, s STRUCT<x: INT>");
    let program = Program::new(&source(&hints, ""), "partition_by = [\"at\"]", &silver(""));
    program.drop_and_load(
        "a.jsonl",
        order(1, 1, ",\"at\":\"31.01.2024\",\"s\":{\"x\":1,\"y\":2}")
            + &order(2, 2, ",\"at\":\"2024-02-30\"")
            + &order(3, 3, ",\"at\":\"2024-01-31\""),
    );
    let dates = "[pipeline.orders.source.json]\ndate_format = \"%d.%m.%Y\"";
    program.set(
        &source(&hints, dates),
        "partition_by = [\"at\"]",
        &silver(""),
    );
    let said = rebuild(&program);
    assert!(
        said.starts_with("at DATE: 1 row of 1 file gains a value\n"),
        "{said}"
    );
    assert!(
        said.contains("row 2: \"2024-02-30\" is not a date"),
        "{said}"
    );
    assert!(
        said.contains("\"{\\\"x\\\":1,\\\"y\\\":2}\" has fields that its column lacks"),
        "{said}"
    );
    assert_eq!(column(&program, "at")[0].0, json!("2024-01-31"));
    let kept = "{\"s\":{\"x\":1,\"y\":2},\"_file_path\":\"a.jsonl\"}";
    assert_eq!(column(&program, "s")[0].1, json!(kept));
    program.assert_sound();
    assert!(rebuild(&program).ends_with("nothing was changed\n"));
    // The row is in the partition of its date, the others are where they were.
    let partitions: Vec<String> = program.data_files("lake/bronze");
    assert!(
        partitions
            .iter()
            .filter(|path| path.starts_with("at=2024-01-31"))
            .count()
            > 1
    );
    assert!(
        partitions.iter().any(|path| path.starts_with("at=__HIVE")),
        "{partitions:?}"
    );
}

#[test]
fn struct_without_a_place_for_all_fields_takes_the_others_and_the_whole_value_stays() {
    let program = Program::new(&source(HINTS, ""), "", &silver(""));
    program.drop_and_load("a.jsonl", order(1, 1, ",\"s\":{\"x\":1,\"y\":2}"));
    program.drop_and_load("b.jsonl", order(2, 2, ",\"s\":{\"x\":3}"));
    program.set(&source(&with(", s STRUCT<x: INT>"), ""), "", &silver(""));
    let said = rebuild(&program);
    assert!(
        said.contains("s STRUCT<x: INT>, a new column: 2 rows of 2 files gain a value"),
        "{said}"
    );
    let kept = "{\"s\":{\"x\":1,\"y\":2},\"_file_path\":\"a.jsonl\"}";
    assert_eq!(
        column(&program, "s"),
        [
            (json!({"x": 1}), json!(kept)),
            (json!({"x": 3}), Value::Null)
        ]
    );
    assert_as_loaded_again(&program);
}

#[test]
fn history_is_as_if_the_column_had_always_been_there() {
    let versions_of_rows = silver("stored_as_scd_type = 2");
    let program = Program::new(
        &source(&with(", day STRING"), "max_files_per_trigger = 1"),
        "partition_by = [\"day\"]",
        &versions_of_rows,
    );
    let line = |key: i64, seq: i64, points: &str| {
        let points = if points.is_empty() {
            String::new()
        } else {
            format!(",\"points\":{points}")
        };
        order(key, seq, &format!(",\"day\":\"d{}\"{points}", seq % 2))
            .replace(&format!("s{seq}"), "same")
    };
    program.drop_and_load(
        "a.jsonl",
        line(1, 1, "1") + &line(1, 2, "1") + &line(1, 3, "2"),
    );
    program.drop_and_load(
        "b.jsonl",
        line(2, 4, "") + &line(1, 5, "") + &line(1, 4, "2"),
    );
    program.drop_and_load("c.jsonl", line(3, 6, ""));
    // The same values under the same status: one row for each day.
    let rows = program.silver().len();
    program.set(
        &source(
            &with(", day STRING, points BIGINT"),
            "max_files_per_trigger = 1",
        ),
        "partition_by = [\"day\"]",
        &versions_of_rows,
    );
    let said = rebuild(&program);
    assert!(
        said.contains("points BIGINT, a new column: 4 rows of 2 files gain a value"),
        "{said}"
    );
    assert_eq!(program.silver().len(), rows);
    let points = |seq: i64| {
        let rows = program.silver();
        let rows = rows
            .iter()
            .map(|row| serde_json::from_str::<Value>(row).unwrap());
        rows.into_iter()
            .find(|row| row["__START_AT"] == seq)
            .unwrap()["points"]
            .clone()
    };
    assert_eq!(
        [points(1), points(3), points(5)],
        [json!(1), json!(2), Value::Null]
    );
    assert_as_loaded_again(&program);
}

#[test]
fn bronze_alone_is_filled_and_a_loader_at_work_is_not_disturbed() {
    let program = Program::new(&source(HINTS, ""), "", "");
    program.drop_and_load("a.jsonl", order(1, 1, ",\"points\":7"));
    program.set(&source(&with(", points BIGINT"), ""), "", "");
    let mut watching = program.watch();
    watching.until("the run holds the checkpoint", || {
        program.status()["running"]["pid"].is_i64()
    });
    let output = program.call(&["rebuild", "orders", "rescued", "--yes"]);
    assert_eq!(code(&output), 4, "{}", stderr(&output));
    assert!(watching.is_running());
    assert_eq!(watching.end(), Some(0));
    let said = rebuild(&program);
    assert!(
        said.ends_with("bronze of orders is at version 2\n"),
        "{said}"
    );
    assert_eq!(column(&program, "points"), [(json!(7), Value::Null)]);
    program.assert_sound();
    assert!(rebuild(&program).ends_with("nothing was changed\n"));
}

#[test]
fn column_that_a_record_carried_counts_as_carried() {
    let keep = "absent_columns = \"keep\"";
    let program = Program::new(&source(HINTS, keep), "", &silver(""));
    program.drop_and_load(
        "a.jsonl",
        order(1, 1, ",\"points\":7") + &order(2, 1, ",\"points\":7"),
    );
    program.drop_and_load(
        "b.jsonl",
        order(1, 2, "") + &order(2, 2, ",\"points\":null"),
    );
    program.set(&source(&with(", points BIGINT"), keep), "", &silver(""));
    rebuild(&program);
    let points: Vec<Value> = program
        .silver()
        .iter()
        .map(|row| serde_json::from_str::<Value>(row).unwrap()["points"].clone())
        .collect();
    assert_eq!(points, [json!(7), Value::Null]);
    program.assert_sound();
}

#[test]
fn fields_of_csv_are_read_as_fields() {
    let csv = |hints: &str| {
        let csv = "[pipeline.orders.source.csv]\ndate_format = \"%d/%m/%Y\"";
        format!("format = \"csv\"\nschema_hints = \"{hints}\"\n{RESCUE}\n{csv}")
    };
    let program = Program::new(&csv(HINTS), "", &silver(""));
    program.drop_and_load(
        "a.csv",
        "op,order_id,status,amount,seq,at,points,list,note\n\
         I,1,new,1.50,1,31/01/2024,\"\",\"[1, 2]\",\"\"\n\
         I,2,new,much,2,,8,[x],\"a, \"\"b\"\"\"\n",
    );
    let hints = with(", at DATE, points BIGINT, list ARRAY<INT>, note STRING");
    program.set(&csv(&hints), "", &silver(""));
    let said = rebuild(&program);
    assert!(
        said.contains("points BIGINT, a new column: 1 row of 1 file gains a value"),
        "{said}"
    );
    assert!(
        said.contains(
            "amount: 1 value stays rescued, the first in a.csv, row 2: \"much\" is not a number"
        ),
        "{said}"
    );
    let rows = loaded_rows(&program);
    assert_eq!(
        ["at", "points", "list", "note", "_rescued_data"].map(|name| rows[0][name].clone()),
        [
            json!("2024-01-31"),
            Value::Null,
            json!([1, 2]),
            json!(""),
            Value::Null
        ]
    );
    let rest = "{\"amount\":\"much\",\"list\":\"[x]\",\"_file_path\":\"a.csv\"}";
    assert_eq!(
        ["at", "points", "list", "note", "_rescued_data"].map(|name| rows[1][name].clone()),
        [
            Value::Null,
            json!(8),
            Value::Null,
            json!("a, \"b\""),
            json!(rest)
        ]
    );
    assert_as_loaded_again(&program);
}

fn parquet(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let rows = RecordBatch::try_from_iter(columns).unwrap();
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, rows.schema(), None).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
    bytes
}

#[test]
fn values_of_parquet_are_read_from_their_file_while_it_is_there() {
    let parquet_source =
        |hints: &str| format!("format = \"parquet\"\nschema_hints = \"{hints}\"\n{RESCUE}");
    let hints = "op STRING, order_id BIGINT, seq BIGINT";
    let bytes = |key: i64| {
        parquet(vec![
            ("op", Arc::new(StringArray::from(vec!["I", "I"])) as _),
            (
                "order_id",
                Arc::new(Int64Array::from(vec![key, key + 1])) as _,
            ),
            ("seq", Arc::new(Int64Array::from(vec![1, 1])) as _),
            ("ratio", Arc::new(Float32Array::from(vec![0.1, 0.5])) as _),
            ("price", Arc::new(Float64Array::from(vec![2.5, 3.0])) as _),
            (
                "note",
                Arc::new(BinaryArray::from(vec![b"abc".as_slice(), b"\xff"])) as _,
            ),
        ])
    };
    let program = Program::new(&parquet_source(hints), "", &silver(""));
    program.drop_file("a.parquet", bytes(1));
    program.drop_and_load("gone.parquet", bytes(3));
    std::fs::remove_file(program.landing("gone.parquet")).unwrap();
    let hints = format!("{hints}, ratio DOUBLE, price DECIMAL(10,2), note STRING");
    program.set(&parquet_source(&hints), "", &silver(""));
    let said = rebuild(&program);
    assert!(said.contains("note: 1 value stays rescued, the first in a.parquet, row 2: \"/w==\" does not fit by the type that its file gives it"), "{said}");
    assert!(
        said.contains("price: 1 value stays rescued, the first in a.parquet, row 1"),
        "{said}"
    );
    let rows = loaded_rows(&program);
    let values = |row: usize| ["ratio", "price", "note"].map(|name| rows[row][name].clone());
    assert_eq!(
        values(0),
        [json!(f64::from(0.1_f32)), Value::Null, json!("abc")]
    );
    assert_eq!(values(1), [json!(0.5), json!("3.00"), Value::Null]);
    // Of the file that is gone there is the JSON text.
    assert_eq!(values(2), [json!(0.1), json!("2.50"), json!("YWJj")]);
    program.assert_sound();
    let output = program.call(&["reset", "orders", "--files", "a.parquet", "--yes"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    program.load();
    assert_eq!(loaded_rows(&program), rows);
}

#[test]
fn values_of_a_change_with_a_schema_are_read_by_it() {
    let debezium = |hints: &str| source(hints, "envelope = \"debezium\"");
    let change = |key: i64, lsn: i64, more: &str, fields: &str| {
        format!(
            "{{\"schema\":{{\"fields\":[{{\"field\":\"after\",\"fields\":[{fields}]}}]}},\"payload\":{{\"op\":\"c\",\
             \"after\":{{\"order_id\":{key}{more}}},\"source\":{{\"lsn\":{lsn}}}}}}}\n"
        )
    };
    let fields = "{\"field\":\"order_id\",\"type\":\"int64\"},\
        {\"field\":\"amount\",\"type\":\"bytes\",\"name\":\"org.apache.kafka.connect.data.Decimal\",\
         \"parameters\":{\"scale\":\"2\"}},\
        {\"field\":\"day\",\"type\":\"int32\",\"name\":\"io.debezium.time.Date\"}";
    let program = Program::new(&debezium("order_id BIGINT"), "", "keys = [\"order_id\"]");
    program.drop_and_load(
        "a.jsonl",
        change(1, 1, ",\"amount\":\"AJY=\",\"day\":19753", fields)
            + &change(2, 2, ",\"amount\":null,\"day\":19754", fields),
    );
    program.set(
        &debezium("order_id BIGINT, amount DECIMAL(10,2), day STRING"),
        "",
        "keys = [\"order_id\"]",
    );
    rebuild(&program);
    assert_eq!(
        column(&program, "amount"),
        [(json!("1.50"), Value::Null), (Value::Null, Value::Null)]
    );
    assert_eq!(column(&program, "day")[1].0, json!("2024-02-01"));
    assert_as_loaded_again(&program);
}

/// Rows of both tables as text, without what tells when their files were written.
fn tables(loader: &TestLoader) -> [Vec<String>; 2] {
    let rows = |path: &std::path::Path| {
        let table = loader
            .block_on(landfall::delta::Table::open(path))
            .unwrap()
            .unwrap();
        let columns: Vec<String> = table
            .schema()
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .filter(|name| name != "_file_modified_at")
            .collect();
        let mut rows = Vec::new();
        for file in table.files() {
            for scanned in table.scan(file, &columns).unwrap() {
                let batch = scanned.unwrap().rows;
                for row in 0..batch.num_rows() {
                    let cell = |(name, column): (&String, &arrow::array::ArrayRef)| {
                        format!(
                            "{name}={}",
                            arrow::util::display::array_value_to_string(column, row).unwrap()
                        )
                    };
                    rows.push(
                        columns
                            .iter()
                            .zip(batch.columns())
                            .map(cell)
                            .collect::<Vec<_>>()
                            .join(" "),
                    );
                }
            }
        }
        rows.sort();
        rows
    };
    let silver = loader.settings.silver.as_ref().unwrap();
    [rows(&loader.settings.bronze.path), rows(&silver.path)]
}

/// Files whose values were rescued, and settings that have columns for some of them now.
fn with_rescued_data(more_silver: &str) -> TestLoader {
    let mut loader = TestLoader::with(RESCUE, more_silver);
    let files = [
        (
            "a.jsonl",
            order(1, 1, ",\"points\":7") + &order(2, 2, ",\"points\":\"x\""),
        ),
        ("b.jsonl", order(1, 3, ",\"points\":8") + &order(3, 1, "")),
        ("c.jsonl", order(4, 1, "")),
    ];
    for (name, text) in files {
        loader.drop_file(name, text);
        loader.run();
    }
    loader.settings.source.schema_hints = with(", points BIGINT");
    loader
}

fn backfill(loader: &TestLoader, crash: &CrashSwitch) -> Result<u64> {
    loader.block_on(async {
        let clock = Arc::new(loader.clock.clone());
        let opened = Pipeline::open(loader.settings.clone(), clock, crash.clone()).await?;
        let mut pipeline = opened.0;
        pipeline.recover().await?;
        Ok(pipeline.backfill().await?.plan.rows)
    })
}

#[test]
fn crash_anywhere_and_a_repeat_or_a_run_end_in_the_same_tables() {
    let kinds = [
        "",
        "stored_as_scd_type = 2",
        "write_mode = \"copy_on_write\"",
    ];
    for (kind, silver) in kinds.into_iter().enumerate() {
        let whole = with_rescued_data(silver);
        let counting = CrashSwitch::counting();
        assert_eq!(backfill(&whole, &counting).unwrap(), 2);
        let expected = tables(&whole);
        let reached = counting.reached();
        for point in [
            CrashPoint::BeforeBronzeCommit,
            CrashPoint::AfterBronzeCommit,
            CrashPoint::BeforeSilverCommit,
            CrashPoint::AfterSilverCommit,
            CrashPoint::AfterConfirmApplied,
        ] {
            assert!(reached.contains(&point), "{point:?} is not in {reached:?}");
        }
        for (nth, point) in reached.iter().enumerate() {
            let loader = with_rescued_data(silver);
            assert!(backfill(&loader, &CrashSwitch::stop_at(nth)).is_err());
            // A run may come between, which brings silver up, or none.
            if (kind + nth) % 2 == 0 {
                loader.run();
            }
            backfill(&loader, &CrashSwitch::default()).unwrap();
            assert_eq!(tables(&loader), expected, "crash at {point:?}");
            let version = || loader.bronze().unwrap().table().version();
            let before = version();
            assert_eq!(backfill(&loader, &CrashSwitch::default()).unwrap(), 0);
            assert_eq!(version(), before);
        }
    }
}
