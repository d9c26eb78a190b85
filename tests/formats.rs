//! CSV, Parquet and JSON from the file to silver, packed and plain, and what becomes of what fits no column.
#![allow(clippy::unwrap_used, reason = "a test stops by panicking")]

#[path = "common/program.rs"]
mod program;

use arrow::array::{
    ArrayRef, Decimal128Array, Float64Array, Int32Array, Int64Array, NullArray, RecordBatch,
    StringArray, StructArray, TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field};
use parquet::arrow::ArrowWriter;
use program::{HINTS, Program, code, order, row, stderr};
use serde_json::{Value, json};
use std::io::Write;
use std::sync::Arc;

const SILVER: &str = "keys = [\"order_id\"]\nsequence_by = [\"seq\"]\n\
    operations = { column = \"op\", upsert = [\"I\", \"U\"], delete = [\"D\"] }\nexcept_column_list = [\"op\"]";

fn pipeline(source: &str) -> Program {
    Program::new(&format!("schema_hints = \"{HINTS}\"\n{source}"), "", SILVER)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn csv_order(op: &str, key: i64, status: &str, amount: &str, seq: i64) -> String {
    format!("{op},{key},{status},{amount},{seq}\n")
}

fn parquet_file(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
}

fn parquet_order(op: &str, key: i64, status: &str, amount: i128, seq: i64) -> Vec<u8> {
    let amounts = Decimal128Array::from(vec![amount]);
    parquet_file(vec![
        ("op", Arc::new(StringArray::from(vec![op]))),
        ("order_id", Arc::new(Int64Array::from(vec![key]))),
        ("status", Arc::new(StringArray::from(vec![status]))),
        (
            "amount",
            Arc::new(amounts.with_precision_and_scale(10, 2).unwrap()),
        ),
        ("seq", Arc::new(Int64Array::from(vec![seq]))),
    ])
}

#[test]
fn one_folder_holds_every_format_plain_and_packed() {
    let program = pipeline("format = \"auto\"");
    const HEADER: &str = "op,order_id,status,amount,seq\n";
    let csv = |key| HEADER.to_string() + &csv_order("I", key, "csv", "1.50", 1);
    let json = |key| order("I", key, "json", 250, 1);
    program.drop_file("01.csv", csv(1));
    program.drop_file("02.csv.gz", gzip(csv(2).as_bytes()));
    program.drop_file(
        "03.csv.zst",
        zstd::encode_all(csv(3).as_bytes(), 1).unwrap(),
    );
    program.drop_file("04.tsv", csv(4).replace(',', "\t"));
    program.drop_file("05.jsonl", json(5));
    program.drop_file("06.ndjson.gz", gzip(json(6).as_bytes()));
    program.drop_file(
        "07.json.zst",
        zstd::encode_all(json(7).as_bytes(), 1).unwrap(),
    );
    program.drop_file("08.parquet", parquet_order("I", 8, "parquet", 350, 1));
    program.drop_file("09", json(9));
    // Two gzip members are one file.
    let members = [gzip(json(10).as_bytes()), gzip(json(11).as_bytes())];
    program.drop_file("10.jsonl.gz", members.concat());
    program.load();
    let mut expected: Vec<String> = (1..=11)
        .map(|key| match key {
            1..=4 => row(key, "csv", "1.50", 1, false),
            8 => row(key, "parquet", "3.50", 1, false),
            _ => row(key, "json", "2.50", 1, false),
        })
        .collect();
    expected.sort();
    assert_eq!(program.silver(), expected);
    // The later change decides, whatever it is written in.
    program.drop_file("a.parquet", parquet_order("U", 1, "changed", 999, 3));
    program.drop_file("b.csv", HEADER.to_string() + &csv_order("D", 1, "", "", 4));
    program.drop_file("c.jsonl", order("U", 8, "changed", 1, 2));
    program.load();
    let silver = program.silver();
    assert!(
        silver.contains(&row(1, "changed", "9.99", 4, true)),
        "{silver:?}"
    );
    assert!(
        silver.contains(&row(8, "changed", "0.01", 2, false)),
        "{silver:?}"
    );
    program.assert_sound();
}

#[test]
fn settings_of_csv_reach_the_values() {
    let program = Program::new(
        "format = \"csv\"\nschema_hints = \"id BIGINT, text STRING, at TIMESTAMP, day DATE, seq BIGINT\"\n\
         [pipeline.orders.source.csv]\ndelimiter = \";\"\nheader = false\nquote = \"'\"\nescape = \"\\\\\"\n\
         null_value = \"NA\"\ncomment = \"#\"\ndate_format = \"%d.%m.%Y\"\ntimestamp_format = \"%d.%m.%Y %H:%M %z\"",
        "",
        "keys = [\"id\"]\nsequence_by = [\"seq\"]",
    );
    program.drop_and_load(
        "a.csv",
        "# a comment\n\
         1;'it\\'s; \n two lines';31.01.2024 10:00 +0200;31.01.2024;1\r\n\
         2;NA;NA;NA;1\n\
         3;'NA';;;1\n\
         4;'';;;1\n",
    );
    let texts: Vec<Value> = program
        .json(&["show", "orders"])
        .into_iter()
        .map(|row| json!([row["text"], row["at"], row["day"]]))
        .collect();
    assert_eq!(
        texts,
        [
            json!([
                "it's; \n two lines",
                "2024-01-31T08:00:00.000000Z",
                "2024-01-31"
            ]),
            json!([null, null, null]),
            json!(["NA", null, null]),
            json!(["", null, null]),
        ]
    );
    program.assert_sound();
}

#[test]
fn csv_of_a_report_is_read_by_its_settings() {
    let program = Program::new(
        "format = \"csv\"\nschema_hints = \"id BIGINT, text STRING, seq BIGINT\"\n\
         [pipeline.orders.source.csv]\nskip_rows = 2\nempty_value = \"(empty)\"\nline_sep = \"\\\\r\"\n\
         ignore_leading_white_space = true\nignore_trailing_white_space = true",
        "",
        "keys = [\"id\"]\nsequence_by = [\"seq\"]",
    );
    program.drop_and_load(
        "a.csv",
        "Orders, \"all\r\rid , text , seq\r 1 , \"a \n b\" , 1\r2,\"\",1\r3 ,   , 1\r",
    );
    let texts: Vec<Value> = program
        .json(&["show", "orders"])
        .into_iter()
        .map(|row| row["text"].clone())
        .collect();
    assert_eq!(Value::from(texts), json!(["a \n b", "(empty)", null]));
    program.assert_sound();
}

#[test]
fn patterns_of_spark_read_dates_and_times() {
    let hints = "id BIGINT, at TIMESTAMP, wall TIMESTAMP_NTZ, day DATE";
    let program = Program::new(
        &format!(
            "format = \"auto\"\nschema_hints = \"{hints}\"\n\
             [pipeline.orders.source.csv]\ndate_format = \"dd.MM.yyyy\"\n\
             timestamp_format = \"dd.MM.yyyy HH:mm[:ss.SSSSSS][ XXX]\"\n\
             [pipeline.orders.source.json]\ndate_format = \"yyyyMMdd\""
        ),
        "",
        "keys = [\"id\"]\nsequence_by = [\"day\"]",
    );
    program.drop_file(
        "a.csv",
        "id,at,wall,day\n1,31.01.2024 10:00 +02:00,31.01.2024 10:00:00.25,29.02.2024\n2,31.1.2024 10:00 Z,,1.2.2024\n",
    );
    program.drop_file(
        "b.json",
        "{\"id\": 3, \"day\": 20240229}\n{\"id\": 4, \"day\": \"2024-02-29\"}\n",
    );
    assert_eq!(program.run(), 3);
    let rows: Vec<Value> = program
        .json(&["show", "orders"])
        .into_iter()
        .map(|row| json!([row["id"], row["at"], row["wall"], row["day"]]))
        .collect();
    let at = "2024-01-31T08:00:00.000000Z";
    assert_eq!(
        rows,
        [
            json!([1, at, "2024-01-31T10:00:00.250000", "2024-02-29"]),
            json!([3, null, null, "2024-02-29"])
        ]
    );
    let refused = program.quarantine();
    assert!(refused.iter().all(|row| row["reason"] == "type_mismatch"));
    assert_eq!(refused.len(), 2);
}

#[test]
fn refused_csv_records_are_named_to_the_physical_line() {
    let program = pipeline("format = \"csv\"");
    let header = "op,order_id,status,amount,seq\n";
    let long = "I,1,\"two\nlines\",1,1\n";
    let bad = "I,2,short,1";
    program.drop_file("a.csv", format!("{header}{long}{bad}\nI,3,good,1,1\n"));
    assert_eq!(program.run(), 3);
    let refused = program.quarantine();
    assert_eq!(refused.len(), 1);
    let place = ["file_row", "file_line", "byte_offset"].map(|name| refused[0][name].clone());
    assert_eq!(place, [2, 4, header.len() + long.len()].map(Value::from));
    assert_eq!(
        (&refused[0]["reason"], &refused[0]["raw"]),
        (&"column_count".into(), &bad.into())
    );
    assert_eq!(program.bronze_places().len(), 2);
}

#[test]
fn types_of_parquet_are_taken_exactly_or_refused_by_the_row() {
    let program = pipeline("format = \"parquet\"");
    let file = parquet_file(vec![
        ("op", Arc::new(StringArray::from(vec!["I"; 3]))),
        // A text that reads as the column's type is taken from every format.
        ("order_id", Arc::new(StringArray::from(vec!["1", "x", "3"]))),
        ("seq", Arc::new(Int64Array::from(vec![1, 1, 1]))),
        (
            "at",
            Arc::new(TimestampMicrosecondArray::from(vec![0, 0, 1]).with_timezone("+02:00")),
        ),
    ]);
    program.drop_file("a.parquet", file);
    assert_eq!(program.run(), 3);
    let silver = program.json(&["show", "orders"]);
    let at: Vec<_> = silver
        .iter()
        .map(|row| (row["order_id"].clone(), row["at"].clone()))
        .collect();
    assert_eq!(
        at,
        [
            (1.into(), "1970-01-01T00:00:00.000000Z".into()),
            (3.into(), "1970-01-01T00:00:00.000001Z".into())
        ]
    );
    let refused = program.quarantine();
    assert_eq!(refused.len(), 1);
    assert_eq!(
        (
            &refused[0]["file_row"],
            &refused[0]["file_line"],
            &refused[0]["reason"]
        ),
        (&2.into(), &Value::Null, &"type_mismatch".into())
    );
    let raw: Value = serde_json::from_str(refused[0]["raw"].as_str().unwrap()).unwrap();
    assert_eq!((&raw["order_id"], &raw["seq"]), (&"x".into(), &1.into()));
}

#[test]
fn column_of_nothing_but_nulls_in_parquet_has_no_type_yet() {
    let program = pipeline("format = \"parquet\"");
    let file = |key: i64, coupon: ArrayRef, weight: ArrayRef| {
        parquet_file(vec![
            ("op", Arc::new(StringArray::from(vec!["I"]))),
            ("order_id", Arc::new(Int64Array::from(vec![key]))),
            ("seq", Arc::new(Int64Array::from(vec![1]))),
            ("coupon", coupon),
            ("weight", weight),
        ])
    };
    let nothing = || Arc::new(NullArray::new(1));
    program.drop_and_load("1.parquet", file(1, nothing(), nothing()));
    let whole = Arc::new(Int32Array::from(vec![None]));
    program.drop_and_load("2.parquet", file(2, nothing(), whole));
    let text = Arc::new(StringArray::from(vec!["SPRING"]));
    let fraction = Arc::new(Float64Array::from(vec![5.25]));
    program.drop_and_load("3.parquet", file(3, text, fraction));
    program.drop_and_load("4.parquet", file(4, nothing(), nothing()));
    let silver = program.json(&["show", "orders"]);
    let brought: Vec<Value> = silver
        .iter()
        .map(|row| json!([row["coupon"], row["weight"]]))
        .collect();
    let none = json!([null, null]);
    let some = json!(["SPRING", 5.25]);
    assert_eq!(brought, [none.clone(), none.clone(), some, none]);
    program.assert_sound();
}

#[test]
fn structs_that_no_table_takes_are_kept_as_json() {
    let program = pipeline("format = \"parquet\"");
    let of = |names: &[&str]| -> ArrayRef {
        let columns = names.iter().map(|name| {
            let field = Arc::new(Field::new(*name, DataType::Int64, true));
            (field, Arc::new(Int64Array::from(vec![1])) as ArrayRef)
        });
        Arc::new(StructArray::from(columns.collect::<Vec<_>>()))
    };
    for (number, names) in [&["a", "b"][..], &["a b"], &["a", "A"]].iter().enumerate() {
        let file = parquet_file(vec![
            ("op", Arc::new(StringArray::from(vec!["I"]))),
            ("order_id", Arc::new(Int64Array::from(vec![number as i64]))),
            ("seq", Arc::new(Int64Array::from(vec![1]))),
            (["fine", "blank", "alike"][number], of(names)),
        ]);
        program.drop_and_load(&format!("{number}.parquet"), file);
    }
    let silver = program.json(&["show", "orders"]);
    assert_eq!(silver[0]["fine"], json!({"a": 1, "b": 1}));
    assert_eq!(silver[1]["blank"], "{\"a b\":1}");
    assert_eq!(silver[2]["alike"], "{\"a\":1,\"A\":1}");
    program.assert_sound();
}

#[test]
fn broken_files_of_every_format_are_parked_and_others_load() {
    let program = pipeline("format = \"auto\"");
    let good = parquet_order("I", 1, "new", 100, 1);
    program.drop_file("cut.parquet", &good[..good.len() - 20]);
    program.drop_file("not.parquet", "no parquet at all");
    program.drop_file(
        "unclosed.csv",
        "op,order_id,status,amount,seq\nI,2,\"new,1,1\nI,3,new,1,1\n",
    );
    program.drop_file("twice.csv", "op,order_id,order_id,seq\nI,1,1,1\n");
    let packed = gzip(order("I", 4, "new", 100, 1).as_bytes());
    program.drop_file("cut.jsonl.gz", &packed[..packed.len() - 5]);
    program.drop_file("plain.jsonl.gz", order("I", 5, "new", 100, 1));
    program.drop_file("wide.csv", [0xFF, 0xFE, b'a', 0]);
    program.drop_file("unknown.log", "a,b\n1,2\n");
    program.drop_file("good.parquet", &good);
    assert_eq!(program.run(), 3);
    for (path, state) in [
        ("cut.parquet", "parked not_this_format"),
        ("not.parquet", "parked not_this_format"),
        ("unclosed.csv", "parked unclosed_quote"),
        ("twice.csv", "parked not_this_format"),
        ("cut.jsonl.gz", "parked truncated_stream"),
        ("plain.jsonl.gz", "parked not_this_format"),
        ("wide.csv", "parked unsupported_encoding"),
        ("unknown.log", "parked not_this_format"),
        ("good.parquet", "loaded"),
    ] {
        assert_eq!(program.file(path), state, "{path}");
    }
    assert_eq!(program.bronze_places(), [("good.parquet".to_string(), 1)]);
    assert_eq!(program.quarantine().len(), 0);
}

/// A known record, then one with a column that is new.
fn with_coupon(mode: &str) -> Program {
    let program = pipeline(&format!(
        "format = \"json\"\nschema_evolution_mode = \"{mode}\""
    ));
    program.drop_and_load("a.jsonl", order("I", 1, "new", 100, 1));
    let line = order("I", 2, "new", 100, 1).replace('}', ",\"coupon\":\"X\"}");
    program.drop_file("b.jsonl", line);
    program.drop_file("c.jsonl", order("I", 3, "new", 100, 1));
    program
}

fn rescued(program: &Program, path: &str) -> Value {
    let rows = program.bronze();
    let row = rows.iter().find(|row| row["_file_path"] == path).unwrap();
    match row["_rescued_data"].as_str() {
        Some(text) => serde_json::from_str(text).unwrap(),
        None => Value::Null,
    }
}

#[test]
fn new_column_is_added() {
    let program = with_coupon("add_new_columns");
    program.load();
    let silver = program.json(&["show", "orders"]);
    let coupons: Vec<_> = silver.iter().map(|row| row["coupon"].clone()).collect();
    assert_eq!(coupons, [Value::Null, "X".into(), Value::Null]);
    assert_eq!(rescued(&program, "b.jsonl"), Value::Null);
    program.assert_sound();
}

#[test]
fn new_column_is_rescued() {
    let program = with_coupon("rescue");
    program.load();
    assert!(
        program
            .bronze()
            .iter()
            .all(|row| row.get("coupon").is_none())
    );
    assert_eq!(
        rescued(&program, "b.jsonl"),
        json!({"coupon": "X", "_file_path": "b.jsonl"})
    );
    assert_eq!(rescued(&program, "c.jsonl"), Value::Null);
    assert_eq!(program.silver().len(), 3);
    program.assert_sound();
}

#[test]
fn new_column_parks_its_file_until_the_hints_know_it() {
    let program = with_coupon("fail_on_new_columns");
    assert_eq!(program.run(), 3);
    assert_eq!(program.file("b.jsonl"), "parked new_columns");
    let detail = program.files()["b.jsonl"]["detail"].clone();
    assert!(
        detail
            .as_str()
            .unwrap()
            .contains("coupon (first in line 1)"),
        "{detail}"
    );
    assert_eq!(program.silver().len(), 2);
    program.set(
        &format!(
            "format = \"json\"\nschema_evolution_mode = \"fail_on_new_columns\"\nschema_hints = \"{HINTS}, coupon STRING\""
        ),
        "",
        SILVER,
    );
    let reset = program.call(&["reset", "orders", "--failed", "--yes"]);
    assert_eq!(code(&reset), 0, "{}", stderr(&reset));
    program.load();
    let silver = program.json(&["show", "orders"]);
    assert_eq!(silver.len(), 3);
    assert_eq!(silver[1]["coupon"], "X");
    program.assert_sound();
}

#[test]
fn new_column_is_left_out() {
    let program = with_coupon("none");
    program.load();
    assert!(
        program
            .bronze()
            .iter()
            .all(|row| row.get("coupon").is_none())
    );
    assert_eq!(rescued(&program, "b.jsonl"), Value::Null);
    assert_eq!(program.silver().len(), 3);
    program.assert_sound();
}

#[test]
fn value_that_does_not_fit_is_rescued_beside_its_row() {
    let program = Program::new(
        "format = \"json\"\nschema_hints = \"id BIGINT, status STRING, n INT\"\n\
         schema_evolution_mode = \"rescue\"\non_type_mismatch = \"rescue\"",
        "",
        "",
    );
    program.drop_and_load(
        "f.json",
        "{\"id\":\"x7\",\"status\":\"new\",\"extra\":1}\n{\"id\":7,\"status\":\"new\"}\n\
         {\"id\":8,\"n\":3000000000,\"deep\":{\"a\":[1.50,null]}}\n",
    );
    let rows: Vec<Value> = program
        .bronze()
        .into_iter()
        .map(|row| json!([row["id"], row["status"], row["n"], row["_rescued_data"]]))
        .collect();
    assert_eq!(
        rows,
        [
            json!([
                null,
                "new",
                null,
                "{\"id\":\"x7\",\"extra\":1,\"_file_path\":\"f.json\"}"
            ]),
            json!([7, "new", null, null]),
            // Values stand as they were written.
            json!([
                8,
                null,
                null,
                "{\"n\":3000000000,\"deep\":{\"a\":[1.50,null]},\"_file_path\":\"f.json\"}"
            ]),
        ]
    );
}

#[test]
fn rescued_key_is_still_no_key() {
    let program = pipeline("format = \"json\"\non_type_mismatch = \"rescue\"");
    program.drop_file("a.jsonl", "{\"op\":\"I\",\"order_id\":\"x7\",\"seq\":1}\n");
    assert_eq!(program.run(), 3);
    assert_eq!(program.quarantine()[0]["reason"], "null_key");
    assert_eq!(program.status()["rows"]["loaded"], 0);
}

#[test]
fn schema_names_the_version_and_the_file_that_brought_a_column() {
    let program = pipeline("format = \"json\"");
    program.drop_and_load("a.jsonl", "{\"op\":\"I\",\"order_id\":1,\"seq\":1}\n");
    let second = "{\"op\":\"I\",\"order_id\":2,\"seq\":2,\"note\":\"x\"}\n";
    program.drop_and_load("b.jsonl", second);
    program.drop_and_load("c.jsonl", second.replace("x", "y"));
    let columns = program.json(&["schema", "orders"]);
    let since = |table: &str, name: &str| {
        let is_it =
            |column: &&serde_json::Value| column["table"] == table && column["column"] == name;
        let column = columns.iter().find(is_it).unwrap();
        (
            column["since_version"].clone(),
            column["since_file"].clone(),
        )
    };
    for table in ["bronze", "silver"] {
        assert_eq!(
            since(table, "order_id"),
            (serde_json::json!(0), serde_json::json!("a.jsonl"))
        );
        assert_eq!(
            since(table, "note"),
            (serde_json::json!(2), serde_json::json!("b.jsonl")),
            "{table}"
        );
    }
    assert_eq!(since("bronze", "_file_row").1, serde_json::Value::Null);
    assert_eq!(since("silver", "deleted").1, serde_json::Value::Null);
    let document = program.call(&["schema", "orders", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&document.stdout).unwrap();
    assert_eq!(document.as_array().unwrap(), &columns);
}

#[test]
fn types_of_new_columns_are_found_over_the_files_of_a_batch_and_then_stay() {
    let program = Program::new("format = \"auto\"", "", "");
    program.drop_file("1.jsonl", "{\"a\":1,\"b\":1,\"c\":\"007\",\"d\":true}\n");
    program.drop_file("2.jsonl", "{\"a\":2,\"b\":1.5,\"c\":7,\"d\":1}\n");
    program.drop_file(
        "3.csv",
        "e,f,g,h\n007,2024-01-31,1.5,2024-01-31T10:00:00Z\n",
    );
    program.load();
    let types: Vec<(String, String)> = program
        .json(&["schema", "orders"])
        .iter()
        .filter(|column| column["table"] == "bronze")
        .map(|column| {
            let text = |name: &str| column[name].as_str().unwrap().to_string();
            (text("column"), text("type"))
        })
        .filter(|(name, _)| !name.starts_with('_'))
        .collect();
    let types: Vec<(&str, &str)> = types
        .iter()
        .map(|(n, t)| (n.as_str(), t.as_str()))
        .collect();
    assert_eq!(
        types,
        [
            ("a", "long"),
            ("b", "double"),
            ("c", "string"),
            ("d", "string"),
            ("e", "string"),
            ("f", "date"),
            ("g", "double"),
            ("h", "timestamp"),
        ]
    );
    // Once in the table, a column keeps its type.
    program.drop_file("4.jsonl", "{\"a\":2.5}\n{\"a\":\"3\"}\n");
    assert_eq!(program.run(), 3);
    let refused = program.quarantine();
    assert_eq!((refused.len(), &refused[0]["file_row"]), (1, &1.into()));
}

#[test]
fn json_documents_over_many_lines_load_like_lines() {
    let program = pipeline("format = \"json\"\n[pipeline.orders.source.json]\nmulti_line = true");
    let record = |key, seq| {
        order("I", key, "new", 100, seq)
            .trim_end()
            .replace(", ", ",\n  ")
    };
    program.drop_file(
        "array.json",
        format!("[\n{},\n7,\n{}\n]\n", record(1, 1), record(2, 1)),
    );
    program.drop_file("one.json.gz", gzip(record(3, 1).as_bytes()));
    program.drop_file("joined.json", record(4, 1) + &record(1, 2));
    program.drop_file(
        "open.json",
        format!("[{},\n{}\n", record(5, 1), record(6, 1)),
    );
    assert_eq!(program.run(), 3);
    let expected = [(1, 2), (2, 1), (3, 1), (4, 1)];
    assert_eq!(
        program.silver(),
        expected.map(|(key, seq)| row(key, "new", "1.00", seq, false))
    );
    assert_eq!(program.file("open.json"), "parked truncated_stream");
    let refused = program.quarantine();
    assert_eq!(refused.len(), 1);
    let line = 3 + record(1, 1).matches('\n').count();
    let shown = ["reason", "raw", "file_row", "file_line"].map(|name| refused[0][name].clone());
    assert_eq!(
        Value::from(shown.to_vec()),
        json!(["not_an_object", "7", 2, line])
    );
}

#[test]
fn text_in_other_encodings_loads_with_places_in_the_file() {
    let utf16 = |text: &str| -> Vec<u8> {
        let marked = "\u{feff}".to_string() + text;
        marked.encode_utf16().flat_map(u16::to_le_bytes).collect()
    };
    let program = pipeline(
        "format = \"auto\"\n[pipeline.orders.source.csv]\nencoding = \"Latin1\"\n\
         [pipeline.orders.source.json]\nencoding = \"utf-16\"",
    );
    let lines = order("I", 1, "b\u{e9}", 100, 1) + "\u{1f600}\n" + &order("I", 2, "new", 100, 1);
    program.drop_file("a.jsonl.gz", gzip(&utf16(&lines)));
    program.drop_file(
        "b.csv",
        b"op,order_id,status,amount,seq\nI,3,b\xe9,1.00,1\n",
    );
    program.drop_file("plain.jsonl", order("I", 4, "new", 100, 1));
    program.drop_file(
        "marked.csv",
        "\u{feff}op,order_id,status,amount,seq\nI,5,b,1.00,1\n",
    );
    assert_eq!(program.run(), 3);
    let expected = [(1, "b\u{e9}"), (2, "new"), (3, "b\u{e9}")];
    assert_eq!(
        program.silver(),
        expected.map(|(key, status)| row(key, status, "1.00", 1, false))
    );
    for path in ["plain.jsonl", "marked.csv"] {
        assert_eq!(program.file(path), "parked unsupported_encoding");
    }
    let refused = program.quarantine();
    let shown = ["raw", "file_line", "byte_offset"].map(|name| refused[0][name].clone());
    let offset = 2 + 2 * order("I", 1, "e", 100, 1).len() + 2;
    assert_eq!(Value::from(shown.to_vec()), json!(["\u{1f600}", 2, offset]));
}

#[test]
fn every_packing_loads_and_a_cut_of_it_parks() {
    let program = pipeline("format = \"json\"");
    let text = |key| order("I", key, "new", 100, 1);
    let bzip2 = |key| {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        encoder.write_all(text(key).as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let xz = |key| {
        let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
        encoder.write_all(text(key).as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let lz4 = |key| {
        let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
        encoder.write_all(text(key).as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let snappy = |key| {
        let mut encoder = snap::write::FrameEncoder::new(Vec::new());
        encoder.write_all(text(key).as_bytes()).unwrap();
        encoder.into_inner().unwrap()
    };
    let zlib = |key| {
        let level = flate2::Compression::fast();
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
        encoder.write_all(text(key).as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let packed = [
        ("bz2", bzip2(1), bzip2(2)),
        ("xz", xz(3), xz(4)),
        ("lz4", lz4(5), lz4(6)),
        ("sz", snappy(7), snappy(8)),
        ("zz", zlib(9), zlib(10)),
    ];
    for (ending, one, two) in &packed {
        program.drop_file(&format!("two.jsonl.{ending}"), [&one[..], two].concat());
        program.drop_file(&format!("cut.jsonl.{ending}"), &one[..one.len() - 3]);
        program.drop_file(&format!("plain.jsonl.{ending}"), text(99));
    }
    // Known by its bytes, whatever the name.
    program.drop_file("named.json", xz(11));
    assert_eq!(program.run(), 3);
    let mut expected: Vec<_> = (1..=11)
        .map(|key| row(key, "new", "1.00", 1, false))
        .collect();
    expected.sort();
    assert_eq!(program.silver(), expected);
    for (ending, ..) in &packed {
        let state = |name: &str| program.file(&format!("{name}.jsonl.{ending}"));
        assert_eq!(state("cut"), "parked truncated_stream", "{ending}");
        assert_eq!(state("plain"), "parked not_this_format", "{ending}");
    }
}

/// Files that fastavro wrote, see `tests/data/avro/make.py`.
const AVRO_FILES: [(&str, &[u8]); 6] = [
    ("null", include_bytes!("data/avro/null.avro")),
    ("deflate", include_bytes!("data/avro/deflate.avro")),
    ("snappy", include_bytes!("data/avro/snappy.avro")),
    ("zstandard", include_bytes!("data/avro/zstandard.avro")),
    ("bzip2", include_bytes!("data/avro/bzip2.avro")),
    ("xz", include_bytes!("data/avro/xz.avro")),
];

#[test]
fn avro_of_another_writer_loads_exactly_in_every_codec() {
    for (codec, bytes) in AVRO_FILES {
        let program = Program::new(
            "format = \"avro\"",
            "",
            "keys = [\"id\"]\nsequence_by = [\"double\"]",
        );
        program.drop_file("a.avro", bytes);
        program.drop_file("cut.avro", &bytes[..bytes.len() - 1]);
        assert_eq!(program.run(), 3);
        assert_eq!(program.file("cut.avro"), "parked truncated_stream");
        let refused = program.quarantine();
        assert_eq!(refused.len(), 1, "{codec}: {refused:?}");
        assert_eq!(
            [&refused[0]["reason"], &refused[0]["file_row"]],
            [&json!("type_mismatch"), &json!(2)]
        );
        let rows = program.json(&["show", "orders"]);
        let expected = json!({
            "id": 1, "small": -5, "flag": true, "single": 0.1, "double": 0.1, "text": "caf\u{e9} \u{20ac}",
            "raw": "00ff", "code": "616263", "kind": "OLD", "amount": "-12.34", "total": "9".repeat(38),
            "day": "2024-02-29", "clock_ms": "23:59:59.999", "clock_us": "00:00:00.000001",
            "at_ms": "2024-03-31T01:30:00.000000Z", "at_us": "1969-12-31T23:59:59.999999Z",
            "at_ns": "2024-03-31T01:30:00.123456Z", "local_ms": "2024-03-31T02:30:00.000000", "local_us": null,
            "key": "12345678-1234-5678-1234-567812345678", "span": "P14M3DT0.25S",
            "tags": ["a", null, ""], "counts": {"x": 1, "y": -1},
            "place": {"city": "Oslo", "kind": "NEW"}, "either": "7", "deleted": false
        });
        assert_eq!(rows[0], expected, "{codec}");
        let third = [
            "id", "small", "local_us", "tags", "counts", "place", "either", "amount",
        ];
        assert_eq!(
            Value::from(third.map(|name| rows[1][name].clone()).to_vec()),
            json!([
                i64::MAX,
                null,
                "0001-01-01T00:00:00.000000",
                [],
                {},
                null,
                "seven",
                "0.00"
            ])
        );
        program.assert_sound();
    }
}
