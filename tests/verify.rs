//! What the audit finds, and that a loader at work is no finding.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops by panicking"
)]

mod common;
#[path = "common/program.rs"]
mod program;

use common::TestLoader;
use landfall::crash::{CrashPoint, CrashSwitch};
use landfall::verify::{VerifyReport, verify_pipeline};
use program::{Program, code, order, stderr, stdout};
use std::fs;

fn audit(loader: &TestLoader) -> VerifyReport {
    loader.block_on(verify_pipeline(&loader.settings)).unwrap()
}

fn findings(loader: &TestLoader) -> Vec<(String, String)> {
    let report = audit(loader);
    assert_eq!(report.is_clean(), report.files.disagreeing.is_empty());
    let files = report.files.disagreeing.into_iter();
    files.map(|file| (file.path, file.finding)).collect()
}

#[test]
fn rows_of_files_that_are_parked_or_forgotten_are_counted_and_checked() {
    let loader = TestLoader::orders();
    loader.drop_file("a.jsonl", order("I", 1, "new", 100, 1));
    loader.drop_file("b.jsonl", order("I", 2, "new", 100, 1));
    loader.run();
    loader.drop_file("a.jsonl", order("I", 1, "newer", 100, 1));
    loader.run();
    let mut pipeline = loader.pipeline();
    let selector = landfall::checkpoint::Selector::Glob("b.jsonl".into());
    let plan = pipeline.plan_reset(&selector).unwrap();
    pipeline.reset(&plan).unwrap();
    drop(pipeline);
    assert_eq!(loader.file("a.jsonl").0, "parked");
    assert_eq!(loader.file("b.jsonl").0, "pending");
    assert_eq!((audit(&loader).files.files, findings(&loader)), (2, vec![]));
    let checkpoint = rusqlite::Connection::open(&loader.settings.checkpoint).unwrap();
    checkpoint
        .execute("UPDATE files SET rows_loaded = 2", [])
        .unwrap();
    let finding = "the checkpoint says 2 rows, bronze holds 1".to_string();
    let both = ["a.jsonl", "b.jsonl"].map(|path| (path.to_string(), finding.clone()));
    assert_eq!(findings(&loader), both);
}

#[test]
fn refused_records_of_a_batch_that_was_given_up_are_gone() {
    let good = order("I", 1, "new", 100, 1);
    let with_file = || {
        let loader = TestLoader::with("max_bad_records = 1", "");
        loader.drop_file("a.jsonl", format!("{good}nonsense\n"));
        loader
    };
    let counting = CrashSwitch::counting();
    with_file().try_run(&counting).unwrap();
    let reached = counting.reached();
    let place = reached
        .iter()
        .position(|point| *point == CrashPoint::AfterQuarantineCommit);
    let loader = with_file();
    let stopped = loader.try_run(&CrashSwitch::stop_at(place.unwrap()));
    assert!(stopped.is_err());
    assert_eq!(findings(&loader), [], "the batch is not confirmed");
    loader.drop_file("a.jsonl", format!("{good}nonsense\nnonsense\n"));
    loader.run();
    assert_eq!(loader.file("a.jsonl").0, "parked");
    assert_eq!(findings(&loader), []);
    loader.drop_file("a.jsonl", good);
    loader.run();
    assert_eq!(findings(&loader), []);
}

#[test]
fn refused_records_that_the_checkpoint_does_not_know_are_found() {
    let loader = TestLoader::orders();
    loader.drop_file("a.jsonl", order("I", 1, "new", 100, 1) + "nonsense\n");
    loader.run();
    let checkpoint = rusqlite::Connection::open(&loader.settings.checkpoint).unwrap();
    checkpoint
        .execute("UPDATE files SET rows_quarantined = 0", [])
        .unwrap();
    let finding = "the checkpoint says 0 refused records, quarantine holds 1";
    assert_eq!(findings(&loader), [("a.jsonl".into(), finding.into())]);
}

#[test]
fn silver_without_bronze_is_not_sound() {
    let loader = TestLoader::orders();
    loader.drop_file("a.jsonl", order("I", 1, "new", 100, 1));
    loader.run();
    fs::remove_dir_all(&loader.settings.bronze.path).unwrap();
    let report = audit(&loader);
    assert_eq!(report.silver.unwrap().surplus, 1);
    assert_eq!(report.files.disagreeing.len(), 1);
}

#[test]
fn audit_beside_a_loader_finds_nothing() {
    let program = Program::with(
        "allow_overwrites = \"replace\"\nmax_files_per_trigger = 1",
        "",
    );
    let drop_files = |round: i64| {
        for key in 1..=20 {
            let text = order("U", key, "paid", 100, round);
            program.drop_file(&format!("{key}.jsonl"), text.repeat(round as usize));
        }
    };
    drop_files(1);
    let watching = program.watch();
    watching.until("the first file is in bronze", || {
        program.path("lake/silver").exists()
    });
    for round in 2..=6 {
        drop_files(round);
        let output = program.call(&["verify", "orders"]);
        assert_eq!(code(&output), 0, "{}{}", stdout(&output), stderr(&output));
    }
    assert_eq!(watching.end(), Some(0));
    program.load();
    program.assert_sound();
}
