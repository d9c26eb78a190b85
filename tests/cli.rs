//! The real program: the walk-through, exit codes, bad settings, lost and damaged files, two processes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test stops by panicking"
)]

mod common;

use common::TestLoader;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

const ORDER: &str = "{\"op\":\"I\",\"order_id\":1,\"status\":\"new\",\"amount\":1.00,\"seq\":1}\n";

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

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

/// The sample of the repository, in a folder of its own.
fn sample() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::copy(
        root.join("landfall.toml"),
        folder.path().join("landfall.toml"),
    )
    .unwrap();
    let landing = folder.path().join("landing/orders");
    fs::create_dir_all(&landing).unwrap();
    for entry in fs::read_dir(root.join("landing/orders")).unwrap() {
        let entry = entry.unwrap();
        let copy = landing.join(entry.file_name());
        fs::copy(entry.path(), &copy).unwrap();
        // As after a clone: written long ago, so all settle in one look.
        let file = fs::File::options().write(true).open(copy).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(3600))
            .unwrap();
    }
    folder
}

/// Seconds differ from run to run.
fn without_seconds(text: &str) -> String {
    let mut plain = String::new();
    for line in text.lines() {
        let end = line
            .rfind(" (")
            .filter(|_| line.ends_with(" s)"))
            .unwrap_or(line.len());
        plain += &line[..end];
        plain.push('\n');
    }
    plain
}

#[test]
fn walk_through_says_what_happened_and_a_second_run_that_nothing_is_new() {
    let folder = sample();
    let first = landfall(folder.path(), &["run", "--available-now"]);
    assert_eq!(code(&first), 0, "{}", stderr(&first));
    assert_eq!(
        without_seconds(&stdout(&first)),
        "orders: batch 1: 3 files, 9 rows -> bronze 1 -> silver 1: 3 inserted, 0 updated, 0 deleted, 2 repeated\n\
         orders: done: 3 files, 9 rows loaded in 1 batch\n"
    );
    let second = landfall(folder.path(), &["run", "--available-now"]);
    assert_eq!(
        (code(&second), stdout(&second).as_str()),
        (0, "orders: nothing new\n")
    );
    let rows = landfall(
        folder.path(),
        &["show", "orders", "--include-deleted", "--format", "csv"],
    );
    assert_eq!(
        stdout(&rows),
        "order_id,status,amount,seq,deleted\n1001,shipped,25.50,5,false\n1002,placed,12.00,6,true\n1003,paid,60.00,7,false\n"
    );
    let verified = landfall(folder.path(), &["verify", "orders"]);
    assert_eq!(code(&verified), 0, "{}", stdout(&verified));
}

#[test]
fn every_order_of_the_sample_files_ends_in_the_same_silver() {
    let orders = [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ];
    for order in orders {
        let folder = sample();
        let landing = folder.path().join("landing/orders");
        let mut names: Vec<_> = fs::read_dir(&landing)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        names.sort();
        let aside = folder.path().join("aside");
        fs::create_dir(&aside).unwrap();
        for name in &names {
            fs::rename(name, aside.join(name.file_name().unwrap())).unwrap();
        }
        for place in order {
            let name = names[place].file_name().unwrap();
            fs::rename(aside.join(name), landing.join(name)).unwrap();
            assert_eq!(
                code(&landfall(folder.path(), &["run", "--available-now"])),
                0
            );
        }
        let rows = landfall(
            folder.path(),
            &["show", "orders", "--include-deleted", "--format", "csv"],
        );
        let expected =
            "1001,shipped,25.50,5,false\n1002,placed,12.00,6,true\n1003,paid,60.00,7,false\n";
        assert!(
            stdout(&rows).ends_with(expected),
            "{order:?}: {}",
            stdout(&rows)
        );
    }
}

#[test]
fn wrong_settings_end_with_2_name_the_nearest_key_and_touch_nothing() {
    let folder = sample();
    let text = fs::read_to_string(folder.path().join("landfall.toml")).unwrap();
    fs::write(
        folder.path().join("landfall.toml"),
        text.replace("sequence_by", "sequense_by"),
    )
    .unwrap();
    let output = landfall(folder.path(), &["run", "--available-now"]);
    assert_eq!(code(&output), 2);
    assert!(
        stderr(&output).contains("sequense_by") && stderr(&output).contains("sequence_by"),
        "{}",
        stderr(&output)
    );
    assert!(!folder.path().join("lake").exists() && !folder.path().join("checkpoints").exists());
}

#[test]
fn predicate_on_an_unknown_column_ends_with_2_and_loads_nothing() {
    let loader = TestLoader::orders();
    let text = fs::read_to_string(loader.path().join("landfall.toml")).unwrap();
    let rule = "operations = { column = \"op\", upsert = [\"I\", \"U\"], delete = [\"D\"] }";
    fs::write(
        loader.path().join("landfall.toml"),
        text.replace(rule, "apply_as_deletes = \"oper = 'D'\""),
    )
    .unwrap();
    loader.drop_file("a.jsonl", ORDER);
    let output = landfall(loader.path(), &["run", "--available-now"]);
    assert_eq!(code(&output), 2, "{}", stderr(&output));
    assert!(stderr(&output).contains("oper"), "{}", stderr(&output));
    assert!(!loader.path().join("lake").exists());
}

#[test]
fn parked_files_and_refused_records_end_with_3_and_say_how_to_look() {
    let loader = TestLoader::orders();
    loader.drop_file("good.jsonl", ORDER);
    loader.drop_file("bad.jsonl", "nonsense\n");
    loader.drop_file("cut.jsonl.gz", [0x1f, 0x8b, 8, 0]);
    let output = landfall(loader.path(), &["run", "--available-now"]);
    assert_eq!(code(&output), 3);
    let last = stderr(&output).lines().last().unwrap().to_string();
    assert!(
        last.contains("1 file parked (landfall files orders --state parked)"),
        "{last}"
    );
    assert!(
        last.contains("1 record in quarantine (landfall quarantine orders)"),
        "{last}"
    );
    let parked = landfall(
        loader.path(),
        &["files", "orders", "--state", "parked", "--json=lines"],
    );
    let file: serde_json::Value = serde_json::from_str(&stdout(&parked)).unwrap();
    assert_eq!(
        (&file["path"], &file["reason"]),
        (&"cut.jsonl.gz".into(), &"truncated_stream".into())
    );
    let refused = landfall(loader.path(), &["quarantine", "orders", "--json=lines"]);
    let record: serde_json::Value = serde_json::from_str(&stdout(&refused)).unwrap();
    assert_eq!(record["file_path"], "bad.jsonl");
    assert_eq!(
        (&record["file_line"], &record["byte_offset"]),
        (&1.into(), &0.into())
    );
    assert_eq!(
        (&record["reason"], &record["raw"]),
        (&"malformed".into(), &"nonsense".into())
    );
}

#[test]
fn lost_checkpoint_stops_the_run_and_can_be_made_again() {
    let folder = sample();
    assert_eq!(
        code(&landfall(folder.path(), &["run", "--available-now"])),
        0
    );
    fs::remove_dir_all(folder.path().join("checkpoints")).unwrap();
    for _ in 0..2 {
        let output = landfall(folder.path(), &["run", "--available-now"]);
        assert_eq!(code(&output), 1);
        assert!(
            stderr(&output).contains("landfall rebuild orders checkpoint"),
            "{}",
            stderr(&output)
        );
    }
    let rebuilt = landfall(folder.path(), &["rebuild", "orders", "checkpoint", "--yes"]);
    assert_eq!(code(&rebuilt), 0, "{}", stderr(&rebuilt));
    let output = landfall(folder.path(), &["run", "--available-now"]);
    assert_eq!(
        (code(&output), stdout(&output).as_str()),
        (0, "orders: nothing new\n"),
        "{}",
        stderr(&output)
    );
    let status = landfall(folder.path(), &["status", "--json=lines"]);
    let status: serde_json::Value = serde_json::from_str(&stdout(&status)).unwrap();
    assert_eq!(
        (&status["bronze"]["rows"], &status["files"]["loaded"]),
        (&9.into(), &3.into())
    );
    assert_eq!(code(&landfall(folder.path(), &["verify", "orders"])), 0);
}

#[test]
fn damaged_checkpoint_is_kept_and_named() {
    let folder = sample();
    assert_eq!(
        code(&landfall(folder.path(), &["run", "--available-now"])),
        0
    );
    let path = folder.path().join("checkpoints/orders.db");
    let mut bytes = fs::read(&path).unwrap();
    let middle = 4096..8192.min(bytes.len());
    bytes[middle].fill(0xAA);
    fs::write(&path, &bytes).unwrap();
    let output = landfall(folder.path(), &["run", "--available-now"]);
    assert_eq!(code(&output), 1, "{}", stdout(&output));
    assert!(
        stderr(&output).contains("landfall rebuild"),
        "{}",
        stderr(&output)
    );
    assert_eq!(fs::read(&path).unwrap(), bytes);
    assert_eq!(
        code(&landfall(
            folder.path(),
            &["rebuild", "orders", "checkpoint", "--yes"]
        )),
        0
    );
    assert_eq!(
        stdout(&landfall(folder.path(), &["run", "--available-now"])),
        "orders: nothing new\n"
    );
}

/// Settings of two pipelines of the sample; `keys` are those of silver.
fn two_pipelines(folder: &Path, keys: &str) {
    let one = |name: &str| {
        format!(
            "[pipeline.{name}]\ncheckpoint = \"checkpoints/{name}.db\"\n\
             [pipeline.{name}.source]\npath = \"landing/orders\"\nformat = \"json\"\nsettle = \"0s\"\n\
             [pipeline.{name}.bronze]\npath = \"lake/bronze/{name}\"\n\
             [pipeline.{name}.silver]\npath = \"lake/silver/{name}\"\nkeys = [\"{keys}\"]\nsequence_by = [\"seq\"]\n"
        )
    };
    fs::write(folder.join("landfall.toml"), one("first") + &one("orders")).unwrap();
}

#[test]
fn hints_name_the_pipeline_in_every_command() {
    let folder = sample();
    two_pipelines(folder.path(), "order_id");
    let run = landfall(folder.path(), &["run", "--available-now"]);
    assert_eq!(code(&run), 0, "{}", stderr(&run));
    let assert_named = |arguments: &[&str], hint: &str| {
        let output = landfall(folder.path(), arguments);
        let said = stderr(&output);
        assert_ne!(code(&output), 0, "{arguments:?}");
        assert!(
            said.contains(hint) && !said.contains("PIPELINE"),
            "{arguments:?}: {said}"
        );
    };
    two_pipelines(folder.path(), "status");
    let silver = "run: landfall rebuild orders silver";
    assert_named(&["run", "--available-now"], silver);
    assert_named(&["run", "orders", "--available-now"], silver);
    assert_named(&["verify", "orders"], silver);
    assert_named(&["maintain", "orders"], silver);
    assert_named(&["rebuild", "orders", "rescued", "--yes"], silver);
    two_pipelines(folder.path(), "order_id");
    let path = folder.path().join("checkpoints/orders.db");
    fs::write(path, "no database at all, but long enough to look like one").unwrap();
    let checkpoint = "landfall rebuild orders checkpoint";
    for arguments in [
        &["run", "--available-now"][..],
        &["status"],
        &["files", "orders"],
        &["plan"],
        &["verify", "orders"],
        &["explain", "orders", "--key", "order_id=1001"],
        &["reset", "orders", "--all", "--dry-run"],
        &["maintain"],
    ] {
        assert_named(arguments, checkpoint);
    }
}

#[test]
fn second_process_is_told_who_holds_the_checkpoint() {
    let loader = TestLoader::orders();
    loader.drop_file("a.jsonl", ORDER);
    let mut first = Command::new(env!("CARGO_BIN_EXE_landfall"))
        .arg("run")
        .current_dir(loader.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The first line on stdout comes after the lock was taken.
    let mut line = String::new();
    let mut reader = std::io::BufReader::new(first.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
    let second = landfall(loader.path(), &["run", "--available-now"]);
    assert_eq!(code(&second), 4, "{}", stderr(&second));
    assert!(
        stderr(&second).contains(&first.id().to_string()),
        "{}",
        stderr(&second)
    );
    // The lock dies with its owner.
    first.kill().unwrap();
    first.wait().unwrap();
    let third = landfall(loader.path(), &["run", "--available-now"]);
    assert_eq!(code(&third), 0, "{}", stderr(&third));
}

#[test]
fn signal_ends_a_watching_run_with_0() {
    let loader = TestLoader::orders();
    loader.drop_file("a.jsonl", ORDER);
    let mut child = Command::new(env!("CARGO_BIN_EXE_landfall"))
        .arg("run")
        .current_dir(loader.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut reader = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
    assert!(line.contains("batch 1"), "{line}");
    let killed = Command::new("kill")
        .arg("-TERM")
        .arg(child.id().to_string())
        .status()
        .unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn reset_lists_what_it_would_forget_and_asks() {
    let folder = sample();
    assert_eq!(
        code(&landfall(folder.path(), &["run", "--available-now"])),
        0
    );
    let dry = landfall(
        folder.path(),
        &["reset", "orders", "--files", "shop-*", "--dry-run"],
    );
    assert_eq!(code(&dry), 0);
    assert!(
        stdout(&dry).ends_with("nothing was changed\n"),
        "{}",
        stdout(&dry)
    );
    assert!(stdout(&dry).contains("shop-0001.jsonl") && !stdout(&dry).contains("app-0001.jsonl"));
    let unasked = landfall(folder.path(), &["reset", "orders", "--all"]);
    assert_eq!(code(&unasked), 2);
    assert!(stderr(&unasked).contains("--yes"), "{}", stderr(&unasked));
    assert_eq!(
        stdout(&landfall(folder.path(), &["run", "--available-now"])),
        "orders: nothing new\n"
    );
    assert_eq!(
        code(&landfall(
            folder.path(),
            &["reset", "orders", "--files", "shop-*", "--yes"]
        )),
        0
    );
    let output = landfall(folder.path(), &["run", "--available-now"]);
    assert!(
        stdout(&output).contains("2 files, 6 rows"),
        "{}",
        stdout(&output)
    );
    let status = landfall(folder.path(), &["status", "--json=lines"]);
    let status: serde_json::Value = serde_json::from_str(&stdout(&status)).unwrap();
    assert_eq!(status["bronze"]["rows"], 9);
}

#[test]
fn torn_newest_log_entry_is_set_aside_and_its_files_are_loaded_again() {
    for damage in ["", "{\"commitInfo\":{\"times"] {
        let loader = TestLoader::orders();
        for number in 1..=4 {
            loader.drop_file(
                &format!("{number}.jsonl"),
                ORDER.replace("\"order_id\":1", &format!("\"order_id\":{number}")),
            );
            assert_eq!(
                code(&landfall(loader.path(), &["run", "--available-now"])),
                0
            );
        }
        let entry = loader
            .settings
            .bronze
            .path
            .join("_delta_log/00000000000000000004.json");
        fs::write(&entry, damage).unwrap();
        let output = landfall(loader.path(), &["run", "--available-now"]);
        assert_eq!(code(&output), 0, "{}", stderr(&output));
        assert!(stderr(&output).contains("damaged"), "{}", stderr(&output));
        assert_eq!(loader.bronze_places().len(), 4);
        assert_eq!(loader.silver_rows().len(), 4);
        assert_eq!(code(&landfall(loader.path(), &["verify", "orders"])), 0);
        assert_eq!(
            stdout(&landfall(loader.path(), &["run", "--available-now"])),
            "orders: nothing new\n"
        );
    }
}

#[test]
fn maintain_says_what_it_did_and_status_shows_the_files() {
    let folder = sample();
    let one_by_one = ["run", "--available-now", "--max-files-per-trigger", "1"];
    assert_eq!(code(&landfall(folder.path(), &one_by_one)), 0);
    let status = || -> serde_json::Value {
        let output = landfall(folder.path(), &["status", "--json"]);
        let status: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        status.get(0).cloned().unwrap_or(status)
    };
    let before = status();
    assert_eq!(before["bronze"]["files"], 3, "{before}");
    assert_eq!(before["bronze"]["log_entries_since_checkpoint"], 4);
    assert_eq!(before["bronze"]["deleted_rows_ratio"], 0.0);
    assert!(before["silver"]["files"].as_u64() > Some(0), "{before}");

    let done = landfall(folder.path(), &["maintain", "--vacuum"]);
    assert_eq!(code(&done), 0, "{}", stderr(&done));
    let text = stdout(&done);
    let bronze = text
        .lines()
        .find(|line| line.starts_with("orders: bronze: "));
    let bronze = bronze.unwrap_or_else(|| panic!("{text}"));
    assert!(
        bronze.contains("3 files became 1 file (9 rows of"),
        "{text}"
    );
    assert!(
        bronze.ends_with("log checkpoint written, 0 old files of 0 bytes removed"),
        "{text}"
    );
    let after = status();
    assert_eq!(after["bronze"]["files"], 1, "{after}");
    assert_eq!(after["silver"]["log_entries_since_checkpoint"], 0);
    let again = landfall(folder.path(), &["run", "--available-now"]);
    assert_eq!(stdout(&again), "orders: nothing new\n");
    let verified = landfall(folder.path(), &["verify", "orders"]);
    assert_eq!(code(&verified), 0, "{}", stdout(&verified));
}
