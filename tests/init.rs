//! `init` of the real program: what it proposes is loaded by the program itself and makes the right silver.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test stops by panicking"
)]

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

fn landfall(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_landfall"))
        .args(arguments)
        .current_dir(folder)
        .env_remove("LANDFALL_CONFIG")
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Writes a landing file that settles in one look.
fn put(folder: &Path, path: &str, bytes: impl AsRef<[u8]>) {
    let path = folder.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3600))
        .unwrap();
}

/// Names of all files and folders, sorted.
fn everything(folder: &Path) -> Vec<String> {
    let mut folders = vec![folder.to_path_buf()];
    let mut names = Vec::new();
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            names.push(path.display().to_string());
            if path.is_dir() {
                folders.push(path);
            }
        }
    }
    names.sort();
    names
}

/// Proposes for `landing`, puts the proposal into place and runs it.
fn proposed_and_run(folder: &Path, landing: &str) -> String {
    let before = everything(folder);
    let output = landfall(folder, &["init", landing]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(everything(folder), before, "init writes nothing");
    fs::write(folder.join("landfall.toml"), &output.stdout).unwrap();
    let run = landfall(folder, &["run", "--available-now"]);
    let text = stdout(&output);
    assert_eq!(run.status.code(), Some(0), "{text}{}", stderr(&run));
    text
}

fn silver(folder: &Path, pipeline: &str) -> Vec<String> {
    let shown = landfall(
        folder,
        &[
            "show",
            pipeline,
            "silver",
            "--include-deleted",
            "--json=lines",
        ],
    );
    assert_eq!(shown.status.code(), Some(0), "{}", stderr(&shown));
    let rows = stdout(&shown);
    let row = |line: &str| serde_json::from_str::<Value>(line).unwrap().to_string();
    let mut rows: Vec<String> = rows.lines().map(row).collect();
    rows.sort();
    rows
}

fn rows(rows: &[Value]) -> Vec<String> {
    rows.iter().map(Value::to_string).collect()
}

#[test]
fn folder_that_is_missing_ends_with_2_and_one_that_is_empty_with_1() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("empty")).unwrap();
    for (arguments, code, says) in [
        (&["init"][..], 2, "PATH"),
        (&["init", "missing"], 2, "landing folder"),
        (&["init", "empty"], 1, "holds no landing file"),
    ] {
        let output = landfall(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert!(stderr(&output).contains(says), "{}", stderr(&output));
        assert_eq!(stdout(&output), "");
    }
}

#[test]
fn help_shows_an_example() {
    let folder = tempfile::tempdir().unwrap();
    let help = stdout(&landfall(folder.path(), &["init", "--help"]));
    assert!(
        help.contains("landfall init landing/orders > landfall.toml"),
        "{help}"
    );
}

#[test]
fn proposal_for_the_sample_makes_the_right_silver() {
    let folder = tempfile::tempdir().unwrap();
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("landing/orders");
    for entry in fs::read_dir(sample).unwrap() {
        let entry = entry.unwrap();
        let path = format!("landing/orders/{}", entry.file_name().to_string_lossy());
        put(folder.path(), &path, fs::read(entry.path()).unwrap());
    }
    let text = proposed_and_run(folder.path(), "landing/orders");
    for line in [
        "keys = [\"order_id\"] # sure",
        "sequence_by = [\"seq\"] # sure",
        "operations = { column = \"op\", upsert = [\"I\", \"U\"], delete = [\"D\"] } # sure",
        "except_column_list = [\"op\"]",
    ] {
        assert!(text.contains(line), "{text}");
    }
    let row = |id: i64, status: &str, amount: f64, seq: i64, deleted: bool| serde_json::json!({ "order_id": id, "status": status, "amount": amount, "seq": seq, "deleted": deleted });
    let expected = [
        row(1001, "shipped", 25.5, 5, false),
        row(1002, "placed", 12.0, 6, true),
        row(1003, "paid", 60.0, 7, false),
    ];
    let mut expected = rows(&expected);
    expected.sort();
    assert_eq!(silver(folder.path(), "orders"), expected);
    let verify = landfall(folder.path(), &["verify", "orders"]);
    assert_eq!(verify.status.code(), Some(0), "{}", stderr(&verify));
}

#[test]
fn subfolders_of_several_formats_are_pipelines_that_run() {
    let folder: TempDir = tempfile::tempdir().unwrap();
    let csv = "Op;line_no;order_id;qty;seq\nI;1;7;2;1\nI;2;7;1;2\nU;1;7;3;3\nD;2;7;;4\n";
    put(folder.path(), "in/order lines/a.txt", csv);
    let customers = "{\"customer_id\":\"c1\",\"name\":\"Ada\",\"updated_at\":\"2026-01-01T00:00:00Z\"}\n\
        {\"customer_id\":\"c1\",\"name\":\"Ada L\",\"updated_at\":\"2026-01-02T00:00:00Z\"}\n";
    let packed = zstd::encode_all(customers.as_bytes(), 1).unwrap();
    put(folder.path(), "in/customers/day/a.jsonl.zst", packed);
    let text = proposed_and_run(folder.path(), "in");
    assert!(text.contains("path_glob_filter = \"*.txt\""), "{text}");
    let line = |no: i64, qty: Option<i64>, seq: i64, deleted: bool| serde_json::json!({ "line_no": no, "order_id": 7, "qty": qty, "seq": seq, "deleted": deleted });
    let expected = rows(&[line(1, Some(3), 3, false), line(2, Some(1), 4, true)]);
    assert_eq!(silver(folder.path(), "order_lines"), expected);
    let customers = silver(folder.path(), "customers");
    assert_eq!(customers.len(), 1);
    assert!(customers[0].contains("Ada L"), "{customers:?}");
}

#[test]
fn what_could_not_be_told_is_said_and_bronze_loads_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    put(
        folder.path(),
        "in/a.json",
        "{\"note\":\"x\"}\n{\"note\":\"x\",\"n\":1}\n",
    );
    let output = landfall(folder.path(), &["init", "in"]);
    assert!(
        stderr(&output).contains("keys could not be told"),
        "{}",
        stderr(&output)
    );
    let text = proposed_and_run(folder.path(), "in");
    assert!(text.contains("# [pipeline.in.silver]"), "{text}");
    let bronze = landfall(folder.path(), &["show", "in", "bronze", "--json=lines"]);
    assert_eq!(stdout(&bronze).lines().count(), 2);
}
