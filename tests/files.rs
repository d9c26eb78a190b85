//! What the settings make of files: duplicates, overwrites, bad records, clean-up, failures half way.
#![allow(clippy::unwrap_used, reason = "a test stops by panicking")]

#[path = "common/program.rs"]
mod program;

use program::{HINTS, Program, code, order, stderr, stdout};
use std::fs;

fn two_orders(key: i64) -> String {
    order("I", key, "new", 100, 1) + &order("U", key, "paid", 100, 2)
}

#[test]
fn same_bytes_under_another_name_are_loaded_again_by_default() {
    let program = Program::orders();
    program.drop_and_load("a.jsonl", two_orders(1));
    let silver = program.silver();
    program.drop_and_load("a-copy.jsonl", two_orders(1));
    assert_eq!(program.bronze_places().len(), 4);
    assert_eq!(program.silver(), silver);
    program.assert_sound();
}

#[test]
fn same_bytes_under_another_name_can_be_skipped_and_are_named() {
    let program = Program::with("duplicate_content = \"skip\"", "");
    program.drop_file("a.jsonl", two_orders(1));
    program.drop_file("a-same-batch.jsonl", two_orders(1));
    program.load();
    program.drop_and_load("later.jsonl", two_orders(1));
    program.drop_and_load("other.jsonl", two_orders(2));
    assert_eq!(program.bronze_places().len(), 4);
    let files = program.files();
    let skipped: Vec<&str> = files
        .iter()
        .filter(|(_, file)| file["reason"] == "duplicate_content")
        .map(|(path, _)| path.as_str())
        .collect();
    assert_eq!(skipped.len(), 2, "{files:?}");
    for path in &skipped {
        assert_eq!(
            (&files[*path]["state"], &files[*path]["rows_loaded"]),
            (&"loaded".into(), &0.into())
        );
        let other = files[*path]["detail"].as_str().unwrap();
        let loaded = ["a.jsonl", "a-same-batch.jsonl"];
        assert!(
            loaded.iter().any(|name| other.ends_with(name)) && !other.ends_with(path),
            "{other}"
        );
    }
    program.assert_sound();
    let reset = program.call(&["reset", "orders", "--all", "--yes"]);
    assert_eq!(code(&reset), 0, "{}", stderr(&reset));
    program.load();
    assert_eq!(program.bronze_places().len(), 4);
    program.assert_sound();
}

#[test]
fn file_that_repeats_one_that_cannot_load_is_judged_by_itself_in_a_batch_of_any_size() {
    for files in [1, 1000] {
        let source = format!(
            "duplicate_content = \"skip\"\nmax_bad_records = 0\nmax_files_per_trigger = {files}\nclean_source = \"delete\""
        );
        let program = Program::with(&source, "");
        let half = two_orders(1) + "{\"order_id\": 1\n";
        for name in ["a.jsonl", "b.jsonl", "c.jsonl"] {
            program.drop_file(name, &half);
        }
        program.drop_file("d.jsonl", two_orders(2));
        program.drop_file("e.jsonl", two_orders(2));
        assert_eq!(program.run(), 3);
        for name in ["a.jsonl", "b.jsonl", "c.jsonl"] {
            assert_eq!(
                program.file(name),
                "parked too_many_bad_records",
                "{files} at once"
            );
            assert!(program.landing(name).exists(), "{name} is kept");
        }
        assert_eq!(program.bronze_places().len(), 2);
        // Without the limit one of them loads and the others repeat it.
        let settings = program.path("landfall.toml");
        let text = fs::read_to_string(&settings).unwrap();
        fs::write(&settings, text.replace("max_bad_records = 0\n", "")).unwrap();
        let reset = program.call(&["reset", "orders", "--failed", "--yes"]);
        assert_eq!(code(&reset), 0, "{}", stderr(&reset));
        assert_eq!(program.run(), 3, "a record is in quarantine");
        assert_eq!(program.bronze_places().len(), 4);
        let loads = |path: &&str| program.files()[*path]["rows_loaded"] == 2;
        let loaded = ["a.jsonl", "b.jsonl", "c.jsonl"]
            .iter()
            .filter(|path| loads(path))
            .count();
        assert_eq!(loaded, 1);
        program.assert_sound();
    }
}

#[test]
fn reset_of_the_file_that_others_repeat_keeps_its_rows() {
    let program = Program::with("duplicate_content = \"skip\"", "");
    program.drop_and_load("a.jsonl", two_orders(1));
    program.drop_and_load("b.jsonl", two_orders(1));
    let reset = program.call(&["reset", "orders", "--files", "a.jsonl", "--yes"]);
    assert_eq!(code(&reset), 0, "{}", stderr(&reset));
    program.load();
    assert_eq!(program.bronze_places().len(), 2);
    program.assert_sound();
}

#[test]
fn skipped_file_is_loaded_when_the_one_it_repeats_has_other_bytes() {
    for policy in ["park", "replace"] {
        let program = Program::with(
            &format!("duplicate_content = \"skip\"\nallow_overwrites = \"{policy}\""),
            "",
        );
        program.drop_and_load("a.jsonl", two_orders(1));
        program.drop_and_load("a-copy.jsonl", two_orders(1));
        assert_eq!(program.file("a-copy.jsonl"), "loaded duplicate_content");
        program.drop_file("a.jsonl", two_orders(2));
        if policy == "park" {
            assert_eq!(program.run(), 3);
            assert_eq!(program.file("a-copy.jsonl"), "loaded duplicate_content");
            let arguments = ["reset", "orders", "--files", "a.jsonl", "--yes"];
            let reset = program.call(&arguments);
            assert_eq!(code(&reset), 0, "{}", stderr(&reset));
            assert!(
                stdout(&reset).contains("a-copy.jsonl"),
                "{}",
                stdout(&reset)
            );
        }
        program.load();
        assert_eq!(program.file("a-copy.jsonl"), "loaded");
        assert_eq!(program.bronze_places().len(), 4);
        assert_eq!(program.silver().len(), 2);
        program.assert_sound();
    }
}

#[test]
fn overwrite_replaces_the_rows_in_the_same_run() {
    let program = Program::with("allow_overwrites = \"replace\"", "");
    program.drop_and_load("day.jsonl", two_orders(1) + &two_orders(2));
    program.drop_and_load(
        "day.jsonl",
        two_orders(1) + &order("U", 1, "shipped", 100, 3),
    );
    assert_eq!(
        program.bronze_places(),
        (1..=3)
            .map(|row| ("day.jsonl".to_string(), row))
            .collect::<Vec<_>>()
    );
    // What only the earlier bytes said is gone from silver too.
    let keys: Vec<_> = program
        .json(&["show", "orders"])
        .iter()
        .map(|row| (row["order_id"].clone(), row["status"].clone()))
        .collect();
    assert_eq!(keys, [(1.into(), "shipped".into())]);
    program.assert_sound();
}

#[test]
fn overwrite_can_be_ignored_and_is_remarked() {
    let program = Program::with("allow_overwrites = \"ignore\"", "");
    program.drop_and_load("day.jsonl", two_orders(1));
    program.drop_and_load("day.jsonl", two_orders(1) + &two_orders(2));
    assert_eq!(program.file("day.jsonl"), "loaded overwrite_ignored");
    assert_eq!(program.bronze_places().len(), 2);
    program.load();
    program.assert_sound();
}

#[test]
fn files_of_the_first_start_can_be_left_out() {
    let program = Program::with("include_existing_files = false", "");
    program.drop_file("old.jsonl", two_orders(1));
    program.load();
    assert_eq!(program.file("old.jsonl"), "loaded existed_before");
    program.drop_and_load("new.jsonl", two_orders(2));
    assert_eq!(program.bronze_places().len(), 2);
    program.assert_sound();
    // A reset takes it after all.
    let reset = program.call(&["reset", "orders", "--files", "old.jsonl", "--yes"]);
    assert_eq!(code(&reset), 0, "{}", stderr(&reset));
    program.load();
    assert_eq!(program.bronze_places().len(), 4);
    program.assert_sound();
}

#[test]
fn bad_record_can_park_its_file_and_no_other() {
    let program = Program::with("on_bad_record = \"fail_file\"", "");
    for number in 1..=20 {
        let text = two_orders(number);
        let bad = if number == 7 { "nonsense\n" } else { "" };
        program.drop_file(&format!("{number:02}.jsonl"), text + bad);
    }
    assert_eq!(program.run(), 3);
    let files = program.files();
    assert_eq!(program.file("07.jsonl"), "parked too_many_bad_records");
    let detail = files["07.jsonl"]["detail"].as_str().unwrap();
    assert!(detail.contains("line 3"), "{detail}");
    let others = || files.iter().filter(|(path, _)| *path != "07.jsonl");
    assert_eq!(others().count(), 19);
    assert!(others().all(|(_, file)| file["state"] == "loaded" && file["attempts"] == 1));
    assert_eq!(program.bronze_places().len(), 38);
    assert_eq!(program.quarantine().len(), 0);
    // It is not tried again until its bytes change.
    assert_eq!(program.run(), 3);
    assert_eq!(program.files()["07.jsonl"]["attempts"], 1);
    program.drop_and_load("07.jsonl", two_orders(7));
    assert_eq!(program.bronze_places().len(), 40);
    program.assert_sound();
}

#[test]
fn bad_record_can_stop_the_run_before_anything_of_its_batch_is_written() {
    let program = Program::with("on_bad_record = \"stop\"", "");
    program.drop_and_load("a.jsonl", two_orders(1));
    program.drop_file("b.jsonl", two_orders(2) + "nonsense\n");
    for _ in 0..2 {
        let output = program.call(&["run", "--available-now"]);
        assert_eq!(code(&output), 1);
        assert!(
            stderr(&output).contains("b.jsonl, line 3"),
            "{}",
            stderr(&output)
        );
    }
    assert_eq!(program.bronze_places().len(), 2);
    let error = program.status()["last_error"].clone();
    assert!(error.as_str().unwrap().contains("b.jsonl"), "{error}");
    program.drop_and_load("b.jsonl", two_orders(2));
    assert_eq!(program.bronze_places().len(), 4);
    assert!(program.status()["last_error"].is_null());
    program.assert_sound();
}

#[test]
fn bad_records_are_counted_and_measured_up_to_the_limit() {
    let file = |bad: usize| -> String {
        let good = (bad as i64 + 1..=10).map(|key| order("I", key, "new", 100, 1));
        "nonsense\n".repeat(bad) + &good.collect::<String>()
    };
    for (limit, within, beyond) in [
        ("max_bad_records = 2", 2, 3),
        ("max_bad_percent = 20", 2, 3),
        ("max_bad_records = 0", 0, 1),
    ] {
        let program = Program::with(limit, "");
        program.drop_file("within.jsonl", file(within));
        program.drop_file("beyond.jsonl", file(beyond));
        assert_eq!(program.run(), 3);
        assert_eq!(program.file("within.jsonl"), "loaded", "{limit}");
        assert_eq!(program.file("beyond.jsonl"), "parked too_many_bad_records");
        assert_eq!(program.bronze_places().len(), 10 - within, "{limit}");
        assert_eq!(program.quarantine().len(), within, "{limit}");
    }
}

#[test]
fn refused_records_are_named_to_the_byte_and_counts_add_up() {
    let program = Program::orders();
    let mut text = String::new();
    for key in 1..=20_000 {
        text += &order("I", key, "new", 100, 1);
    }
    let bad = [
        "{\"op\":\"I\",\"order_id\":\"x\",\"seq\":1}",
        "{\"op\":\"I\",\"order_id\":null,\"seq\":1}",
        "{\"op\":\"?\",\"order_id\":1,\"seq\":1}",
        "{\"op\":\"I\",\"order_id\":1,\"amount\":1.005,\"seq\":1}",
    ];
    let mut places = Vec::new();
    for line in bad {
        // A blank line is no record, but a line.
        text += "\n";
        places.push(text.len());
        text += &format!("{line}\r\n");
    }
    text += &order("I", 20_001, "new", 100, 1);
    program.drop_file("orders.jsonl", &text);
    assert_eq!(program.run(), 3);
    let records = program.quarantine();
    let reasons: Vec<_> = records
        .iter()
        .map(|record| record["reason"].clone())
        .collect();
    assert_eq!(
        reasons,
        ["type_mismatch", "null_key", "unknown_op", "decimal_scale"]
    );
    for (number, record) in records.iter().enumerate() {
        assert_eq!(record["raw"], bad[number]);
        assert_eq!(record["file_row"], 20_001 + number);
        assert_eq!(record["file_line"], 20_002 + 2 * number);
        assert_eq!(record["byte_offset"], places[number]);
    }
    let file = &program.files()["orders.jsonl"];
    assert_eq!(
        (&file["rows_loaded"], &file["rows_quarantined"]),
        (&20_001.into(), &4.into())
    );
    // Reset and load again: the same records once.
    let reset = program.call(&["reset", "orders", "--all", "--yes"]);
    assert_eq!(code(&reset), 0, "{}", stderr(&reset));
    assert_eq!(program.run(), 3);
    assert_eq!(program.quarantine().len(), 4);
    assert_eq!(program.status()["bronze"]["rows"], 20_001);
}

#[test]
fn exit_code_and_last_line_tell_nothing_some_and_all_refused_apart() {
    let program = Program::orders();
    let empty = program.call(&["run", "--available-now"]);
    assert_eq!(
        (code(&empty), stdout(&empty).as_str()),
        (0, "orders: nothing new\n")
    );
    for number in 1..=9 {
        program.drop_file(&format!("{number}.jsonl"), two_orders(number));
    }
    program.drop_file("bad.jsonl", "nonsense\nnonsense\n");
    let some = program.call(&["run", "--available-now"]);
    assert_eq!(code(&some), 3);
    assert!(stdout(&some).contains("18 rows"), "{}", stdout(&some));
    assert!(
        stderr(&some).contains("2 records in quarantine"),
        "{}",
        stderr(&some)
    );
    let program = Program::orders();
    program.drop_file("bad.jsonl", "nonsense\n");
    program.drop_file("cut.jsonl.gz", [0x1f, 0x8b, 8]);
    let all = program.call(&["run", "--available-now"]);
    assert_eq!(code(&all), 3);
    assert!(
        stdout(&all).contains("0 rows") || !stdout(&all).contains("rows loaded"),
        "{}",
        stdout(&all)
    );
    assert_eq!(program.file("bad.jsonl"), "loaded");
    assert_eq!(program.file("cut.jsonl.gz"), "parked truncated_stream");
}

#[test]
fn bronze_that_cannot_be_written_leaves_the_files_to_the_next_run() {
    let program = Program::new(
        &format!("format = \"json\"\nschema_hints = \"{HINTS}\""),
        "partition_by = [\"status\"]",
        "keys = [\"order_id\"]\nsequence_by = [\"seq\"]",
    );
    program.drop_and_load("a.jsonl", order("I", 1, "new", 100, 1));
    let before = (program.bronze(), program.silver());
    // A file stands where the folder of the partition must be.
    fs::write(program.path("lake/bronze/status=paid"), "in the way").unwrap();
    program.drop_file("b.jsonl", order("U", 1, "new", 100, 2) + &two_orders(2));
    for _ in 0..2 {
        let output = program.call(&["run", "--available-now"]);
        assert_eq!(code(&output), 1, "{}", stdout(&output));
        assert_eq!(program.file("b.jsonl"), "planned");
        assert!(!program.status()["last_error"].is_null());
        assert_eq!((program.bronze(), program.silver()), before);
    }
    fs::remove_file(program.path("lake/bronze/status=paid")).unwrap();
    program.load();
    assert_eq!(program.file("b.jsonl"), "loaded");
    assert_eq!(program.bronze_places().len(), 4);
    assert!(program.status()["last_error"].is_null());
    program.assert_sound();
}

#[test]
fn table_folder_that_cannot_be_made_stops_the_run() {
    let program = Program::orders();
    program.drop_file("a.jsonl", two_orders(1));
    fs::write(program.path("lake"), "in the way").unwrap();
    let output = program.call(&["run", "--available-now"]);
    assert_eq!(code(&output), 1, "{}", stdout(&output));
    assert!(stderr(&output).contains("lake"), "{}", stderr(&output));
    fs::remove_file(program.path("lake")).unwrap();
    program.load();
    assert_eq!(program.bronze_places().len(), 2);
    program.assert_sound();
}

#[test]
fn silver_that_cannot_be_written_is_applied_by_the_next_run() {
    let program = Program::with("clean_source = \"delete\"", "");
    program.drop_file("a.jsonl", two_orders(1));
    fs::create_dir(program.path("lake")).unwrap();
    fs::write(program.path("lake/silver"), "in the way").unwrap();
    let output = program.call(&["run", "--available-now"]);
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    // Loaded and applied are two things, and only what is applied is cleaned.
    assert!(program.landing("a.jsonl").exists());
    fs::remove_file(program.path("lake/silver")).unwrap();
    program.load();
    assert_eq!(program.bronze_places().len(), 2);
    assert_eq!(program.silver().len(), 1);
    assert_eq!(program.file("a.jsonl"), "cleaned");
    assert!(!program.landing("a.jsonl").exists());
    program.assert_sound();
}

#[test]
fn archive_keeps_sub_paths_and_replaces_nothing() {
    let program = Program::with(
        "clean_source = \"move\"\nclean_source_move_destination = \"archive\"",
        "",
    );
    let archived = |name: &str| fs::read_to_string(program.path("archive").join(name)).unwrap();
    program.drop_file("eu/part.jsonl", two_orders(1));
    program.drop_file("us/part.jsonl", two_orders(2));
    program.load();
    assert_eq!(archived("eu/part.jsonl"), two_orders(1));
    assert_eq!(archived("us/part.jsonl"), two_orders(2));
    assert_eq!(program.file("eu/part.jsonl"), "cleaned");
    // The same bytes come again: nothing to load, and the archive gets them under a name of their own.
    program.drop_and_load("eu/part.jsonl", two_orders(1));
    assert_eq!(program.bronze_places().len(), 4);
    assert!(!program.landing("eu/part.jsonl").exists());
    assert_eq!(archived("eu/part.jsonl.1"), two_orders(1));
    // Other bytes under the name are an overwrite like any other; they stay where they are.
    program.drop_file("eu/part.jsonl", two_orders(3));
    assert_eq!(program.run(), 3);
    assert_eq!(program.file("eu/part.jsonl"), "parked changed_after_load");
    assert!(program.landing("eu/part.jsonl").exists());
    assert_eq!(archived("eu/part.jsonl"), two_orders(1));
    assert_eq!(program.bronze_places().len(), 4);
}

#[test]
fn clean_up_that_fails_is_named_and_never_loads_the_file_again() {
    let program = Program::with(
        "clean_source = \"move\"\nclean_source_move_destination = \"archive\"",
        "",
    );
    fs::create_dir(program.path("archive")).unwrap();
    fs::write(program.path("archive/eu"), "in the way").unwrap();
    program.drop_file("eu/a.jsonl", two_orders(1));
    program.drop_file("b.jsonl", two_orders(2));
    assert_eq!(program.run(), 3);
    assert_eq!(program.file("eu/a.jsonl"), "loaded clean_failed");
    assert_eq!(program.file("b.jsonl"), "cleaned");
    assert!(!program.files()["eu/a.jsonl"]["next_try_at"].is_null());
    assert_eq!(program.run(), 3);
    assert!(program.landing("eu/a.jsonl").exists());
    assert_eq!(program.bronze_places().len(), 4);
    assert_eq!(program.file("eu/a.jsonl"), "loaded clean_failed");
    program.assert_sound();
}

#[test]
fn values_of_the_environment_are_used_and_never_shown() {
    let program = Program::orders();
    let secret = "s3cr3t-value";
    let call = |arguments: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_landfall"))
            .args(arguments)
            .current_dir(program.path(""))
            .env_remove("LANDFALL_CONFIG")
            .env("LANDFALL_TEST_SECRET", secret)
            .output()
            .unwrap();
        let said = stdout(&output) + &stderr(&output);
        assert!(!said.contains(secret), "{arguments:?}: {said}");
        code(&output)
    };
    let source = |unavailable: &str, settle: &str| {
        format!(
            "format = \"json\"\nschema_hints = \"{HINTS}\"\nunavailable_value = \"{unavailable}\"\nsettle = \"{settle}\""
        )
    };
    let silver = "keys = [\"order_id\"]\nsequence_by = [\"seq\"]";
    program.set(&source("${LANDFALL_TEST_SECRET}", "0s"), "", silver);
    program.drop_file("a.jsonl", two_orders(1));
    program.drop_file("b.jsonl", order("U", 1, secret, 100, 3));
    assert_eq!(call(&["run", "--available-now", "-v"]), 0);
    assert_eq!(call(&["status", "--json"]), 0);
    assert_eq!(call(&["show", "orders", "silver", "--limit", "9"]), 0);
    program.set(&source("x", "${LANDFALL_TEST_SECRET}"), "", silver);
    assert_eq!(call(&["run", "--available-now", "-v"]), 2);
    program.set(&source("x", "${LANDFALL_TEST_UNSET}"), "", silver);
    assert_eq!(call(&["run", "--available-now"]), 2);
}

/// What the program prints on any of these calls at its most talkative never has the secret.
fn assert_silent_about(program: &Program, secret: &str, calls: &[&[&str]], wanted: i32) {
    for arguments in calls {
        for more in [&["-vvv"][..], &["-vvv", "--log-format", "json"]] {
            let output = std::process::Command::new(env!("CARGO_BIN_EXE_landfall"))
                .args([arguments, more].concat())
                .current_dir(program.path(""))
                .env_remove("LANDFALL_CONFIG")
                .env("LANDFALL_TEST_PASSWORD", secret)
                .env("RUST_LOG", "trace")
                .env("RUST_BACKTRACE", "full")
                .output()
                .unwrap();
            let said = stdout(&output) + &stderr(&output);
            // However it is quoted.
            let shows = said.to_lowercase().contains("s3cr3t");
            assert!(!shows, "{arguments:?}: {said}");
            assert_eq!(code(&output), wanted, "{arguments:?}: {said}");
        }
    }
}

#[test]
fn secrets_that_stand_in_the_settings_are_shown_nowhere() {
    let secret = "s3cr3t-value";
    let program = Program::orders();
    program.drop_file("a.jsonl", two_orders(1));
    let sound = fs::read_to_string(program.path("landfall.toml")).unwrap();
    let stored = |lines: &str| format!("{sound}\n[storage]\n{lines}\n");
    let instead = |key: &str, value: &str| {
        let is_it = |line: &&str| line.starts_with(key);
        let line = sound.lines().find(is_it).unwrap();
        sound.replacen(line, &format!("{key} = {value}"), 1)
    };
    let settings = [
        stored(&format!("aws_secret_access_key = \"{secret}\"")),
        stored(&format!("aws_secret_access_key = \"{secret}")),
        stored(&format!("aws_secret_access_key = {secret}")),
        stored(&format!("key = \"{secret}\"\nkey = \"{secret}\"")),
        stored(&format!("key = \"\\q{secret}\"")),
        format!("storage = \"{secret}\"\n{sound}"),
        instead("settle", &format!("\"0s\"\npassword = \"{secret}\"")),
        instead(
            "checkpoint",
            &format!("\"postgres://loader:{secret}@db/orders\""),
        ),
        instead(
            "checkpoint",
            &format!("\"file://loader:{secret}@db/orders.db\""),
        ),
        instead(
            "checkpoint",
            &format!("\"file:///orders.db?password={secret}\""),
        ),
        instead(
            "path",
            &format!("\"https://store/orders?X-Amz-Signature={secret}\""),
        ),
        instead("path", &format!("\"S3://key:{secret}@orders\"")),
        instead("path", &format!("[\"s3://key:{secret}@orders\"]")),
    ];
    let calls: &[&[&str]] = &[
        &["run", "--available-now"],
        &["status", "--json"],
        &["plan", "--json"],
        &["verify", "orders"],
        &["reset", "orders", "--all", "--yes"],
        &["sql", "SELECT 1"],
    ];
    for text in settings {
        fs::write(program.path("landfall.toml"), &text).unwrap();
        assert_silent_about(&program, secret, calls, 2);
    }
    fs::write(program.path("landfall.toml"), sound).unwrap();
    for (flag, url) in [
        ("--landing", "s3://key:s3cr3t-value@orders"),
        ("--checkpoint", "postgres://loader:s3cr3t-value@db/orders"),
        ("--bronze", "https://store/bronze?sig=s3cr3t-value"),
        ("--silver", "file://loader:s3cr3t-value@host/silver"),
    ] {
        let call: &[&str] = &["run", "orders", "--available-now", flag, url];
        assert_silent_about(&program, secret, &[call], 2);
    }
    assert!(!program.path("lake").exists());
}

#[test]
fn secret_of_the_environment_is_shown_at_no_stage() {
    let secret = "S3cr3t\\va\"lue";
    let program = Program::orders();
    let sound = fs::read_to_string(program.path("landfall.toml")).unwrap();
    let set = |from: &str, to: &str| {
        let text = sound.replacen(from, &to.replace("SECRET", "${LANDFALL_TEST_PASSWORD}"), 1);
        assert_ne!(text, sound, "{from}");
        fs::write(program.path("landfall.toml"), text).unwrap();
    };
    let says_nothing = |calls: &[&[&str]], wanted| {
        assert_silent_about(&program, secret, calls, wanted);
    };
    let operations = sound.lines().find(|line| line.starts_with("operations"));
    let operations = operations.unwrap();
    let run: &[&str] = &["run", "--available-now"];
    let status: &[&[&str]] = &[&["status"], &["status", "--json"], &["files", "orders"]];
    program.drop_file("a.jsonl", two_orders(1));

    // Settings that are wrong.
    set("settle = \"0s\"", "settle = \"SECRET\"");
    says_nothing(&[run], 2);
    set("op STRING", "`SECRET` FOO, op STRING");
    says_nothing(&[run], 2);
    set("\"order_id\"", "\"SECRET\", \"seq\"");
    says_nothing(&[run], 2);
    set(operations, "apply_as_deletes = \"op = 'SECRET' AND (\"");
    says_nothing(&[run], 2);
    // Settings that show themselves as wrong when the columns are known.
    set(operations, "apply_as_deletes = \"op = 'SECRET' AND gone\"");
    says_nothing(&[run], 2);
    says_nothing(status, 0);
    // Places that cannot be used: landing folder, checkpoint, bronze, silver, archive.
    set("\"landing\"", "\"landing-SECRET\"");
    says_nothing(&[run], 2);
    set("checkpoints/orders.db", "damaged/SECRET.db");
    fs::create_dir(program.path("damaged")).unwrap();
    fs::write(program.path(&format!("damaged/{secret}.db")), "none").unwrap();
    says_nothing(&[run, &["status", "--json"]], 1);
    fs::write(program.path("in-the-way"), "").unwrap();
    set("lake/bronze", "in-the-way/SECRET");
    says_nothing(&[run, &["status", "--json"]], 1);
    set("lake/silver", "in-the-way/SECRET");
    says_nothing(&[run, &["status", "--json"]], 1);
    set(
        "settle = \"0s\"",
        "settle = \"0s\"\nclean_source = \"move\"\nclean_source_move_destination = \"in-the-way/SECRET\"",
    );
    says_nothing(&[run], 3);
    says_nothing(status, 0);
    fs::write(program.path("landfall.toml"), sound).unwrap();
    assert_eq!(program.file("a.jsonl"), "loaded clean_failed");
}

#[test]
fn plan_shows_what_a_run_would_do_and_writes_nothing() {
    let program = Program::orders();
    program.drop_and_load("a.jsonl", two_orders(1));
    let line = order("I", 2, "new", 100, 1).replace('}', ",\"coupon\":\"X1\"}");
    program.drop_file("b.jsonl", line + "nonsense\n");
    let before = (program.files(), program.bronze(), program.silver());
    let plan = program.json(&["plan"]).remove(0);
    assert_eq!(
        (&plan["rows"], &plan["rejects"], &plan["keys"]),
        (&1.into(), &1.into(), &1.into())
    );
    assert!(plan["new_columns"].to_string().contains("coupon"), "{plan}");
    assert_eq!(
        (program.files(), program.bronze(), program.silver()),
        before
    );
    assert_eq!(program.run(), 3);
}

#[test]
fn plan_knows_what_was_touched_repeated_or_there_before() {
    let program = Program::with("include_existing_files = false", "");
    program.drop_file("old.jsonl", two_orders(1));
    let rows = |program: &Program| program.json(&["plan"]).remove(0)["rows"].clone();
    assert_eq!(rows(&program), 0);

    let program = Program::with(
        "duplicate_content = \"skip\"\nmax_files_per_trigger = 1",
        "",
    );
    program.drop_and_load("a.jsonl", two_orders(1));
    program.drop_file("a-copy.jsonl", two_orders(1));
    program.drop_file("b.jsonl", two_orders(2));
    program.drop_file("b-copy.jsonl", two_orders(2));
    assert_eq!(rows(&program), 2);
    // The same bytes at another time.
    let file = fs::File::options()
        .write(true)
        .open(program.landing("a.jsonl"))
        .unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    let changed = |program: &Program| program.json(&["plan"])[0]["changed_after_load"].clone();
    assert_eq!(changed(&program), serde_json::json!([]));
    program.drop_file("a.jsonl", two_orders(3));
    assert_eq!(changed(&program), serde_json::json!(["a.jsonl"]));
}

#[test]
fn names_with_any_byte_are_loaded_reset_and_archived() {
    use std::os::unix::ffi::OsStrExt;
    let program = Program::with(
        "clean_source = \"move\"\nclean_source_move_destination = \"archive\"",
        "",
    );
    let names: [&[u8]; 4] = [
        b"\xff.jsonl",
        b"line\nbreak.jsonl",
        b"back\\slash\\x41.jsonl",
        b"%41 {a,b}.jsonl",
    ];
    let name = |bytes: &[u8]| std::ffi::OsStr::from_bytes(bytes).to_owned();
    for (number, bytes) in names.iter().enumerate() {
        let path = program.path("landing").join(name(bytes));
        fs::write(path, two_orders(number as i64)).unwrap();
    }
    let output = program.call(&["run", "--available-now"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    for bytes in names {
        assert!(program.path("archive").join(name(bytes)).exists());
    }
    let files = program.files();
    assert_eq!(
        files.keys().map(String::as_str).collect::<Vec<_>>(),
        [
            "%41 {a,b}.jsonl",
            "\\xFF.jsonl",
            "back\\\\slash\\\\x41.jsonl",
            "line\\x0Abreak.jsonl"
        ]
    );
    assert!(files.values().all(|file| file["state"] == "cleaned"));
    let paths: std::collections::BTreeSet<String> = program
        .bronze_places()
        .into_iter()
        .map(|place| place.0)
        .collect();
    assert_eq!(paths, files.into_keys().collect());
    assert_eq!(
        stdout(&program.call(&["run", "--available-now"])),
        "orders: nothing new\n"
    );
    program.assert_sound();
}
