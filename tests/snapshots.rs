//! Full dumps as a source: new, changed and missing keys become events, for both SCD types.
#![allow(clippy::unwrap_used, reason = "a test stops by panicking")]

#[path = "common/program.rs"]
mod program;

use program::{Program, code, stderr, stdout};
use serde_json::{Value, json};

fn snapshots(hints: &str, source: &str, silver: &str) -> Program {
    Program::new(
        &format!("format = \"json\"\nschema_hints = \"{hints}\"\n{source}"),
        "",
        &format!("keys = [\"id\"]\n{silver}"),
    )
}

fn lines(rows: &[Value]) -> String {
    rows.iter().map(|row| format!("{row}\n")).collect()
}

/// Live rows of silver, as values without names.
fn silver(program: &Program) -> Vec<String> {
    let output = program.call(&["show", "orders", "--format", "csv"]);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let cell = |cell: &str| match cell {
        "" => "null".to_string(),
        cell => cell.to_string(),
    };
    let bare = |line: &str| line.split(',').map(cell).collect::<Vec<_>>().join("|");
    stdout(&output).lines().skip(1).map(bare).collect()
}

const BY_NAME: &str = "snapshot_version = \"file_name\"";
const HISTORY: &str = "stored_as_scd_type = 2";

fn parks() -> [(&'static str, String); 2] {
    let park = |id: i64, city: &str| json!({"id": id, "city": city});
    let first = [park(1, "Oaxaca"), park(2, "Monterrey"), park(3, "Tijuana")];
    let second = [
        park(2, "Carmel"),
        park(3, "Los Angeles"),
        park(4, "Death Valley"),
        park(6, "Kings Canyon"),
    ];
    [
        ("parks-0.jsonl", lines(&first)),
        ("parks-1.jsonl", lines(&second)),
    ]
}

#[test]
fn keys_that_a_snapshot_lacks_are_deleted() {
    for (deletes, row) in [("soft", "|1|false"), ("hard", "|1")] {
        let deletes = format!("deletes = {deletes:?}");
        let program = snapshots("id BIGINT, city STRING", BY_NAME, &deletes);
        for (name, text) in parks() {
            program.drop_and_load(name, text);
        }
        let expected = [
            "2|Carmel",
            "3|Los Angeles",
            "4|Death Valley",
            "6|Kings Canyon",
        ];
        assert_eq!(
            silver(&program),
            expected.map(|text| format!("{text}{row}"))
        );
        program.assert_sound();
    }
}

#[test]
fn history_of_snapshots_ends_versions_that_change_or_go_and_goes_on_with_the_others() {
    let program = snapshots("id BIGINT, city STRING", BY_NAME, HISTORY);
    for (name, text) in parks() {
        program.drop_and_load(name, text);
    }
    let expected = [
        "1|Oaxaca|0|1",
        "2|Monterrey|0|1",
        "2|Carmel|1|null",
        "3|Tijuana|0|1",
        "3|Los Angeles|1|null",
        "4|Death Valley|1|null",
        "6|Kings Canyon|1|null",
    ];
    assert_eq!(silver(&program), expected);
    // The same rows again end nothing.
    let version = program.status()["silver"]["version"].clone();
    let (_, text) = parks()[1].clone();
    program.drop_and_load("parks-2.jsonl", text);
    assert_eq!(silver(&program), expected);
    program.assert_sound();
    let changes = program.changes(version.as_i64().unwrap() + 1);
    assert_eq!(changes, Vec::<Value>::new());
}

#[test]
fn all_snapshots_in_one_batch_give_the_same() {
    for silver_settings in [HISTORY, "deletes = \"soft\"", "deletes = \"hard\""] {
        let make = || snapshots("id BIGINT, city STRING", BY_NAME, silver_settings);
        let third = lines(&[
            json!({"id": 1, "city": "Oaxaca"}),
            json!({"id": 6, "city": "x"}),
        ]);
        let (one_by_one, at_once) = (make(), make());
        for (name, text) in parks() {
            one_by_one.drop_and_load(name, &text);
            at_once.drop_file(name, &text);
        }
        one_by_one.drop_and_load("parks-2.jsonl", &third);
        at_once.drop_file("parks-2.jsonl", &third);
        at_once.load();
        assert_eq!(at_once.silver(), one_by_one.silver(), "{silver_settings}");
        at_once.assert_sound();
        one_by_one.assert_sound();
    }
}

#[test]
fn untracked_column_of_snapshots_takes_the_newest_value() {
    let program = snapshots(
        "id BIGINT, tracked STRING, other STRING",
        BY_NAME,
        &format!("{HISTORY}\ntrack_history_column_list = [\"tracked\"]"),
    );
    let row =
        |id: i64, tracked: &str, other: &str| json!({"id": id, "tracked": tracked, "other": other});
    program.drop_and_load(
        "v1.jsonl",
        lines(&[row(1, "a1", "b1"), row(2, "a2", "b2"), row(4, "a4", "b4")]),
    );
    program.drop_and_load(
        "v2.jsonl",
        lines(&[
            row(2, "a2_new", "b2"),
            row(3, "a3", "b3"),
            row(4, "a4", "b4_new"),
        ]),
    );
    assert_eq!(
        silver(&program),
        [
            "1|a1|b1|1|2",
            "2|a2|b2|1|2",
            "2|a2_new|b2|2|null",
            "3|a3|b3|2|null",
            "4|a4|b4_new|1|null"
        ]
    );
    program.assert_sound();
}

#[test]
fn version_of_a_snapshot_may_be_a_time_in_a_column() {
    let program = snapshots(
        "id BIGINT, value STRING, taken_at TIMESTAMP",
        "snapshot_version = \"column\"",
        &format!("{HISTORY}\nsequence_by = [\"taken_at\"]\nexcept_column_list = [\"taken_at\"]"),
    );
    let at = |id: i64, value: &str, hour: i64| json!({"id": id, "value": value, "taken_at": format!("2024-01-01T{hour:02}:00:00Z")});
    program.drop_and_load("midnight.jsonl", lines(&[at(1, "a1", 0), at(2, "a2", 0)]));
    program.drop_and_load("noon.jsonl", lines(&[at(2, "b2", 12), at(3, "a3", 12)]));
    let (midnight, noon) = ("2024-01-01T00:00:00.000000Z", "2024-01-01T12:00:00.000000Z");
    assert_eq!(
        silver(&program),
        [
            format!("1|a1|{midnight}|{noon}"),
            format!("2|a2|{midnight}|{noon}"),
            format!("2|b2|{noon}|null"),
            format!("3|a3|{noon}|null")
        ]
    );
    program.assert_sound();
}

#[test]
fn snapshot_that_comes_late_is_parked_and_a_reset_takes_it_in_its_place() {
    let program = snapshots("id BIGINT, city STRING", BY_NAME, HISTORY);
    let [(first, first_text), (second, second_text)] = parks();
    program.drop_and_load(second, second_text);
    program.drop_file(first, first_text);
    assert_eq!(program.run(), 3);
    let files = program.call(&["files", "orders", "--state", "parked", "--json=lines"]);
    let parked = &program::lines(&files)[0];
    assert_eq!(
        (parked["path"].as_str(), parked["reason"].as_str()),
        (Some(first), Some("late_snapshot"))
    );
    let detail = parked["detail"].as_str().unwrap();
    assert_eq!(
        detail,
        "snapshot 0 comes after the newer snapshot 1 was loaded"
    );
    let before = silver(&program);
    program.drop_file("no-version.jsonl", "{\"id\":1}\n");
    program.run();
    let files = program.call(&["files", "orders", "--state", "parked", "--json=lines"]);
    assert!(stdout(&files).contains("no_snapshot_version"));
    assert_eq!(silver(&program), before);
    // All files again, the loaded snapshot in its own place.
    let reset = program.call(&["reset", "orders", "--files", second, "--yes"]);
    assert_eq!(code(&reset), 0, "{}", stderr(&reset));
    program.run();
    assert_eq!(silver(&program), before);
}

#[test]
fn settings_of_changes_do_not_go_with_snapshots() {
    for setting in [
        "apply_as_deletes = \"city = 'x'\"",
        "sequence_by = [\"id2\"]",
        "ignore_null_updates = true",
        "operations = { column = \"op\", upsert = [\"I\"] }",
    ] {
        let program = snapshots("id BIGINT, city STRING", BY_NAME, setting);
        let output = program.call(&["run", "--available-now"]);
        assert_eq!(code(&output), 2, "{setting}");
        assert!(
            stderr(&output).contains("exclude each other"),
            "{}",
            stderr(&output)
        );
    }
}
