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
use std::sync::atomic::{AtomicUsize, Ordering};

/// Settings of a source that makes many batches.
const ONE_BY_ONE: &str = "max_files_per_trigger = 1";
/// Settings, behind those of silver, that make upkeep due all the time.
const UPKEEP: &str =
    "[pipeline.orders.maintenance]\nmin_num_files = 2\nlog_checkpoint_interval = 3";

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

/// The points that only upkeep reaches.
const OF_UPKEEP: [CrashPoint; 3] = [
    CrashPoint::BeforeCompactionCommit,
    CrashPoint::AfterCompactionCommit,
    CrashPoint::AfterLogCheckpoint,
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

/// One of the sweeps of both write modes has its rows written ahead of the commit.
fn loader_with(source: &str, silver: &str) -> TestLoader {
    let loader = TestLoader::with(source, silver);
    match silver.contains("copy_on_write") {
        true => loader.with_little_memory(),
        false => loader,
    }
}

fn uncrashed(source: &str, silver: &str) -> (Ending, Vec<CrashPoint>) {
    let loader = loader_with(source, silver);
    let mut reached = Vec::new();
    story(&loader, &mut |loader| {
        let counting = CrashSwitch::counting();
        loader.try_run(&counting).unwrap();
        reached.extend(counting.reached());
    });
    (ending(&loader), reached)
}

/// Runs the story; the `first`th crash point stops it, and the `second`th of the recovery that follows.
fn crashed(source: &str, silver: &str, first: usize, second: Option<usize>) -> Ending {
    let loader = loader_with(source, silver);
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

/// Where a sweep stops: at the `nth` point of a run, and then at these points of the recovery.
type Stops<'a> = &'a dyn Fn(usize, CrashPoint) -> &'static [Option<usize>];

/// Stops at the points of the story that `stops` chooses; gives all points back.
fn sweep(source: &str, silver: &str, stops: Stops<'_>) -> Vec<CrashPoint> {
    let (expected, reached) = uncrashed(source, silver);
    let mut chosen = Vec::new();
    for (first, &point) in reached.iter().enumerate() {
        chosen.extend(
            stops(first, point)
                .iter()
                .map(|second| (first, point, *second)),
        );
    }
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(&(first, point, second)) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
            assert_eq!(
                crashed(source, silver, first, second),
                expected,
                "crash {first} at {point:?}, then {second:?}"
            );
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    reached
}

#[test]
fn every_crash_point_and_a_crash_in_the_recovery_end_in_the_same_tables() {
    // Neighbouring points leave much the same, so they share the depths of the second stop.
    let reached = sweep(ONE_BY_ONE, "", &|first, _| match first % 2 {
        0 => &[None, Some(0), Some(2)],
        _ => &[None, Some(1), Some(4)],
    });
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

#[test]
fn crashes_around_upkeep_end_in_the_same_tables() {
    for mode in ["merge_on_read", "copy_on_write"] {
        let silver = format!("write_mode = \"{mode}\"\n{UPKEEP}");
        let reached = sweep(ONE_BY_ONE, &silver, &|_, point| {
            if OF_UPKEEP.contains(&point) {
                &[None, Some(1)]
            } else {
                &[]
            }
        });
        for point in OF_UPKEEP {
            assert!(reached.contains(&point), "{point:?} is not in {reached:?}");
        }
    }
}

#[test]
fn crashes_while_source_files_are_moved_end_in_the_same_tables() {
    let reached = sweep("clean_source = \"delete\"", "", &|_, _| &[None]);
    assert!(
        reached.contains(&CrashPoint::AfterCleanSource),
        "{reached:?}"
    );
}

#[test]
fn rejects_of_a_file_that_goes_away_after_a_crash_go_too() {
    let loader = TestLoader::orders();
    loader.drop_file("gone.jsonl", "no record\nnor this\n");
    loader.drop_file("stays.jsonl", FILES[2].1);
    // Reconcile, plan, decode, quarantine.
    let switch = CrashSwitch::stop_at(3);
    assert!(loader.try_run(&switch).is_err());
    assert_eq!(
        switch.reached().last(),
        Some(&CrashPoint::AfterQuarantineCommit)
    );
    assert_eq!(loader.quarantine().rows(None, None).unwrap().len(), 2);
    std::fs::remove_file(loader.landing("gone.jsonl")).unwrap();
    let summary = loader.run();
    assert_eq!(loader.file("gone.jsonl").0, "parked");
    assert_eq!(loader.quarantine().rows(None, None).unwrap(), []);
    assert_eq!((summary.files_parked, summary.records_quarantined), (1, 0));
    assert_eq!(loader.bronze_places().len(), 1);
}
