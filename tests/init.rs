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

fn utf16(text: &str) -> Vec<u8> {
    let units = format!("\u{feff}{text}");
    units.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

#[test]
fn documents_and_arrays_are_read_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let record = |id: i64, seq: i64| {
        format!("{{\n  \"id\": {id},\n  \"name\": \"n{seq}\",\n  \"seq\": {seq}\n}}")
    };
    put(folder.path(), "in/pretty.json", record(1, 1));
    put(
        folder.path(),
        "in/array.json",
        format!("[{},{}]", record(1, 2), record(2, 3)),
    );
    put(
        folder.path(),
        "in/lines.json",
        "{\"id\":2,\"name\":\"n4\",\"seq\":4}\n{\"id\":3,\"name\":\"n5\",\"seq\":5}\n",
    );
    // Longer than what is looked at, and without a line end.
    let many: Vec<String> = (6..30_000)
        .map(|seq| record(3, seq).replace('\n', " "))
        .collect();
    put(folder.path(), "in/z.json", format!("[{}]", many.join(",")));
    let text = proposed_and_run(folder.path(), "in");
    let line = "\n[pipeline.in.source.json]\nmulti_line = true # sure: 3 of 4 JSON files looked at hold documents";
    assert!(text.contains(line), "{text}");
    let row = |id: i64, seq: i64| serde_json::json!({ "id": id, "name": format!("n{seq}"), "seq": seq, "deleted": false });
    let mut expected = rows(&[row(1, 2), row(2, 4), row(3, 29_999)]);
    expected.sort();
    assert_eq!(silver(folder.path(), "in"), expected);
}

#[test]
fn texts_in_other_encodings_are_read_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let csv = |last: &str| format!("id;name;seq\r\n1;Zo\u{eb};1\r\n2;\u{20ac};2\r\n{last}");
    put(folder.path(), "wide/a.csv", utf16(&csv("")));
    put(
        folder.path(),
        "wide/b.csv",
        utf16(&csv("3;\u{1f600};3\r\n")),
    );
    put(
        folder.path(),
        "narrow/a.csv",
        b"code,name,seq\n1,Zo\xeb,1\n2,\x80,2\n",
    );
    put(folder.path(), "narrow/ascii.csv", "code,name,seq\n3,x,3\n");
    let document = "[\n{\"no\": 1, \"name\": \"\u{e9}\", \"seq\": 1},\n{\"no\": 2, \"name\": \"x\", \"seq\": 2}\n]";
    put(folder.path(), "json/a.json", utf16(document));
    let proposed = |pipeline: &str, lines: &[&str], names: &[&str]| {
        let text = proposed_and_run(folder.path(), pipeline);
        for line in lines {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let rows = silver(folder.path(), pipeline);
        let name = |row: &String| {
            let row: Value = serde_json::from_str(row).unwrap();
            row["name"].as_str().unwrap().to_string()
        };
        let mut found: Vec<String> = rows.iter().map(name).collect();
        found.sort();
        assert_eq!(found, names);
    };
    proposed(
        "wide",
        &[
            "\n[pipeline.wide.source.csv]\ndelimiter = \";\" # sure",
            "\nencoding = \"UTF-16\" # sure: 2 of 2 files looked at are UTF-16",
        ],
        &["Zo\u{eb}", "\u{20ac}", "\u{1f600}"],
    );
    let guess = "\nencoding = \"windows-1252\" # guess: 1 of 2 files looked at are no UTF-8";
    proposed("narrow", &[guess], &["Zo\u{eb}", "x", "\u{20ac}"]);
    let both = [
        "\n[pipeline.json.source.json]\nencoding = \"UTF-16\"",
        "\nmulti_line = true",
    ];
    proposed("json", &both, &["x", "\u{e9}"]);
}

#[test]
fn encodings_side_by_side_are_noted_and_none_is_proposed() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), "in/a.csv", b"id,name,seq\n1,Zo\xeb,1\n");
    put(folder.path(), "in/b.csv", "id,name,seq\n2,Zo\u{eb},1\n");
    put(folder.path(), "in/c.csv", utf16("id,name,seq\n3,x,1\n"));
    let output = landfall(folder.path(), &["init", "in"]);
    let said = stderr(&output);
    assert!(
        said.contains("other than UTF-8 are \"a.csv\", \"c.csv\""),
        "{said}"
    );
    assert!(said.contains("c.csv would be parked"), "{said}");
    assert!(
        said.contains("1 record would go to quarantine, the first: a.csv"),
        "{said}"
    );
    assert!(
        !stdout(&output).contains("\nencoding ="),
        "{}",
        stdout(&output)
    );
}

#[test]
fn dated_dumps_are_a_comment_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    put(
        folder.path(),
        "in/users-2026-01-30.csv",
        "user_id,name\n1,Ada\n2,Bob\n",
    );
    put(
        folder.path(),
        "in/users-2026-01-31.csv",
        "user_id,name\n1,Ada\n3,Cy\n",
    );
    let text = proposed_and_run(folder.path(), "in");
    let line = "\n# snapshot_version = \"file_name\" # guess: each name ends with a date, such as \"users-2026-01-30.csv\"";
    assert!(text.contains(line), "{text}");
    // As the comment says: each file is the whole table.
    let settings = text
        .lines()
        .map(|line| line.trim_start_matches("# "))
        .filter(|line| !line.starts_with("sequence_by") && !line.contains("operations"))
        .skip_while(|line| !line.starts_with('['))
        .collect::<Vec<_>>()
        .join("\n");
    let whole = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(folder.path().join("in")).unwrap() {
        let entry = entry.unwrap();
        let path = format!("in/{}", entry.file_name().to_string_lossy());
        put(whole.path(), &path, fs::read(entry.path()).unwrap());
    }
    fs::write(whole.path().join("landfall.toml"), &settings).unwrap();
    let run = landfall(whole.path(), &["run", "--available-now"]);
    assert_eq!(run.status.code(), Some(0), "{settings}{}", stderr(&run));
    let users: Vec<(i64, bool)> = silver(whole.path(), "in")
        .iter()
        .map(|row| serde_json::from_str::<Value>(row).unwrap())
        .map(|row| {
            (
                row["user_id"].as_i64().unwrap(),
                row["deleted"].as_bool().unwrap(),
            )
        })
        .collect();
    assert!(
        users.contains(&(2, true)) && users.contains(&(3, false)),
        "{users:?}"
    );
    // Where an order is told, a dump is none of the guesses.
    let changes = tempfile::tempdir().unwrap();
    for day in ["2026-01-30", "2026-01-31"] {
        put(
            changes.path(),
            &format!("in/{day}.csv"),
            format!("user_id,name,updated_at\n1,Ada,{day}T00:00:00Z\n"),
        );
    }
    let output = landfall(changes.path(), &["init", "in"]);
    assert!(
        !stdout(&output).contains("snapshot_version"),
        "{}",
        stdout(&output)
    );
}
