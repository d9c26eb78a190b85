//! Stops at every crash point in turn, and once more during the recovery: the tables end as without a crash.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test stops by panicking"
)]

mod common;

use common::TestLoader;
use common::oracle::Row;
use landfall::checkpoint::Selector;
use landfall::crash::{CrashPoint, CrashSwitch};

const FILES: [(&str, &str); 4] = [
    (
        "b.jsonl",
        r#"{"op":"U","order_id":1,"status":"shipped","amount":25.50,"seq":5}
{"op":"D","order_id":2,"status":null,"amount":null,"seq":6}
{"op":"Q","order_id":2,"status":null,"amount":null,"seq":7}
"#,
    ),
    (
        "a.jsonl",
        r#"{"op":"I","order_id":1,"status":"placed","amount":25.50,"seq":1}
{"op":"I","order_id":2,"status":"placed","amount":12.00,"seq":2}
not json
"#,
    ),
    (
        "c.jsonl",
        "{\"op\":\"I\",\"order_id\":3,\"status\":\"placed\",\"amount\":60.00,\"seq\":4}\n",
    ),
    (
        "d.jsonl",
        "{\"op\":\"U\",\"order_id\":3,\"status\":\"paid\",\"amount\":60.00,\"seq\":7}\n",
    ),
];

#[derive(Debug, PartialEq)]
struct Ending {
    bronze: Vec<(String, i64)>,
    silver: Vec<Row>,
    quarantine: Vec<(String, i64, String)>,
    files: Vec<(String, Option<String>)>,
}

/// Two rounds of files with a reset between them, source files moved away at the end.
fn story(loader: &TestLoader, step: &mut dyn FnMut(&TestLoader)) {
    for (name, text) in &FILES[..2] {
        loader.drop_file(name, text);
    }
    step(loader);
    for (name, text) in &FILES[2..] {
        loader.drop_file(name, text);
    }
    step(loader);
    let mut pipeline = loader.pipeline();
    let plan = pipeline.plan_reset(&Selector::All).unwrap();
    pipeline.reset(&plan).unwrap();
    drop(pipeline);
    step(loader);
}

fn ending(loader: &TestLoader) -> Ending {
    let record =
        |row: landfall::quarantine::QuarantinedRecord| (row.file_path, row.file_row, row.reason);
    Ending {
        bronze: loader.bronze_places(),
        silver: loader.silver_rows(),
        quarantine: loader
            .quarantine()
            .rows(None, None)
            .unwrap()
            .into_iter()
            .map(record)
            .collect(),
        files: FILES.iter().map(|(name, _)| loader.file(name)).collect(),
    }
}

fn uncrashed(source: &str) -> (Ending, Vec<CrashPoint>) {
    let loader = TestLoader::with(source, "");
    let mut reached = Vec::new();
    story(&loader, &mut |loader| {
        let counting = CrashSwitch::counting();
        loader.try_run(&counting).unwrap();
        reached.extend(counting.reached());
    });
    (ending(&loader), reached)
}

/// Runs the story; the `first`th crash point stops it, and the `second`th of the recovery that follows.
fn crashed(source: &str, first: usize, second: Option<usize>) -> Ending {
    let loader = TestLoader::with(source, "");
    let mut left = Some(first);
    story(&loader, &mut |loader| {
        if let Some(nth) = left {
            let switch = CrashSwitch::stop_at(nth);
            match loader.try_run(&switch) {
                Ok(_) => left = Some(nth - switch.reached().len()),
                Err(_) => {
                    left = None;
                    if let Some(second) = second {
                        let _ = loader.try_run(&CrashSwitch::stop_at(second));
                    }
                }
            }
        }
        loader.run();
    });
    ending(&loader)
}

fn sweep(source: &str) {
    let (expected, reached) = uncrashed(source);
    for (first, point) in reached.into_iter().enumerate() {
        assert_eq!(
            crashed(source, first, None),
            expected,
            "crash {first} at {point:?}"
        );
        for second in [0, 1, 2, 4] {
            assert_eq!(
                crashed(source, first, Some(second)),
                expected,
                "crash {first} at {point:?}, then {second}"
            );
        }
    }
}

#[test]
fn every_crash_point_and_a_crash_in_the_recovery_end_in_the_same_tables() {
    sweep("max_files_per_trigger = 1");
}

#[test]
fn crashes_while_source_files_are_moved_end_in_the_same_tables() {
    let (expected, reached) = uncrashed("clean_source = \"delete\"");
    assert!(
        reached.contains(&CrashPoint::AfterCleanSource),
        "{reached:?}"
    );
    for (first, point) in reached.iter().enumerate() {
        assert_eq!(
            crashed("clean_source = \"delete\"", first, None),
            expected,
            "crash {first} at {point:?}"
        );
    }
}

#[test]
fn the_sweep_reaches_every_point_of_a_load() {
    let (_, reached) = uncrashed("max_files_per_trigger = 1");
    for point in [
        CrashPoint::AfterReconcile,
        CrashPoint::AfterPlan,
        CrashPoint::AfterQuarantineCommit,
        CrashPoint::BeforeBronzeCommit,
        CrashPoint::AfterBronzeCommit,
        CrashPoint::AfterConfirmLoaded,
        CrashPoint::BeforeSilverCommit,
        CrashPoint::AfterSilverCommit,
        CrashPoint::AfterConfirmApplied,
    ] {
        assert!(reached.contains(&point), "{point:?} is not in {reached:?}");
    }
}
