//! Upkeep in the loop: files, deleted rows and the log stay bounded over many batches, and no row changes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test stops by panicking"
)]

mod common;

use common::TestLoader;
use common::history::Random;
use landfall::clock::{Clock, SystemClock};
use landfall::crash::CrashSwitch;
use landfall::delta::Table;
use landfall::loader::{Loader, LoaderEvent, RunOptions, Stop};
use landfall::maintain::{MaintainReport, maintain};
use landfall::protocol::Pipeline;
use landfall::verify::verify;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

const BATCHES: u64 = 160;
const KEYS: u64 = 200;
/// Small files wait for so many, twice as many under load, besides one joined file for each doubling.
const MIN_NUM_FILES: usize = 8;
const DOUBLINGS: usize = 8;
const INTERVAL: u64 = 10;

fn many_small_batches(mode: &str) -> TestLoader {
    let loader = TestLoader::with(
        "max_files_per_trigger = 1",
        &format!(
            "write_mode = \"{mode}\"\n[pipeline.orders.maintenance]\nmin_num_files = {MIN_NUM_FILES}\n\
             log_checkpoint_interval = {INTERVAL}"
        ),
    );
    let mut random = Random::new(7);
    for batch in 0..BATCHES {
        let mut text = String::new();
        for row in 0..4 {
            let op = ["I", "U", "U", "D"][random.below(4) as usize];
            let (key, seq) = (random.below(KEYS), batch * 4 + row);
            writeln!(
                text,
                r#"{{"op":"{op}","order_id":{key},"status":"s{batch}","amount":1.5,"seq":{seq}}}"#
            )
            .unwrap();
        }
        if batch % 3 == 0 {
            text += "no record\n";
        }
        loader.drop_file(&format!("{batch:04}.jsonl"), text);
    }
    loader
}

fn is_bounded(name: &str, table: &Table, load: usize) {
    let files = table.file_count();
    assert!(
        files <= load * MIN_NUM_FILES + DOUBLINGS,
        "{name} has {files} files"
    );
    let entries = table.log_entries_since_checkpoint();
    assert!(
        entries <= load as u64 * INTERVAL,
        "{name}: {entries} log entries"
    );
    let deleted = table.deleted_rows_ratio();
    assert!(deleted <= 0.25, "{name}: {deleted} of the rows are deleted");
}

fn check_tables(loader: &TestLoader, load: usize) {
    is_bounded("silver", &loader.silver().unwrap(), load);
    is_bounded("bronze", loader.bronze().unwrap().table(), load);
    is_bounded("quarantine", loader.quarantine().table().unwrap(), load);
}

fn check_rows(loader: &TestLoader) {
    let settings = &loader.settings;
    let checkpoint = landfall::checkpoint::CheckpointStore::open_read_only(&settings.checkpoint)
        .unwrap()
        .unwrap();
    let silver = settings.silver.clone().unwrap();
    let opened = landfall::silver::SilverTable::open(&silver, None, "orders");
    let silver = loader.block_on(opened).unwrap();
    let bronze = loader.bronze();
    let report = verify(
        &checkpoint,
        bronze.as_ref(),
        &loader.quarantine(),
        Some(&silver),
    )
    .unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.files.bronze_rows, BATCHES * 4);
}

#[test]
fn hundreds_of_small_batches_leave_few_files_and_a_short_log() {
    for mode in ["merge_on_read", "copy_on_write"] {
        let loader = many_small_batches(mode);
        let most = RunOptions {
            available_now: true,
            batches_max: Some(BATCHES / 2),
        };
        loader.try_run_with(&CrashSwitch::default(), most).unwrap();
        check_tables(&loader, 2);
        loader.run();
        check_tables(&loader, 1);
        check_rows(&loader);
    }
}

#[test]
fn upkeep_that_is_switched_off_touches_nothing() {
    let loader = TestLoader::with(
        "max_files_per_trigger = 1",
        "[pipeline.orders.maintenance]\nauto = false\nmin_num_files = 2\nlog_checkpoint_interval = 1",
    );
    for file in 0..4 {
        loader.drop_file(
            &format!("{file}.jsonl"),
            format!(
                "{{\"op\":\"I\",\"order_id\":{file},\"status\":null,\"amount\":1,\"seq\":1}}\n"
            ),
        );
    }
    loader.run();
    assert_eq!(loader.silver().unwrap().file_count(), 4);
    assert_eq!(loader.silver().unwrap().log_entries_since_checkpoint(), 5);
}

#[test]
fn watching_loop_keeps_up_when_nothing_waits() {
    let loader = TestLoader::with(
        "max_files_per_trigger = 1\ndiscovery = \"list\"",
        "[pipeline.orders.maintenance]\nmin_num_files = 3",
    );
    for file in 0..3 {
        loader.drop_file(
            &format!("{file}.jsonl"),
            format!(
                "{{\"op\":\"I\",\"order_id\":{file},\"status\":null,\"amount\":1,\"seq\":1}}\n"
            ),
        );
    }
    let stop = Stop::default();
    let mut kept_up = Vec::new();
    let mut tell = |event: LoaderEvent| {
        if let LoaderEvent::KeptUp(report) = event {
            kept_up.push((report.table, report.compacted.files_removed));
            if report.table == "bronze" {
                stop.ask();
            }
        }
    };
    loader.block_on(async {
        let settings = loader.settings.clone();
        let clock = Arc::new(loader.clock.clone());
        let opened = Pipeline::open(settings, clock, CrashSwitch::default()).await;
        let (pipeline, recovery) = opened.unwrap();
        let started = Loader::start(pipeline, recovery, stop.clone(), &mut |_| {}).await;
        let mut running = started.unwrap();
        running.run(RunOptions::default(), &mut tell).await.unwrap();
    });
    assert_eq!(kept_up, [("silver", 3), ("bronze", 3)]);
}

/// Log clean-up and vacuum, long after: everything reads, and what comes later is applied.
#[test]
fn old_log_and_old_files_go_and_loading_goes_on() {
    let loader = TestLoader::with(
        "max_files_per_trigger = 1",
        "[pipeline.orders.maintenance]\nmin_num_files = 4\nlog_checkpoint_interval = 5",
    );
    let drop_files = |from: i64, to: i64| {
        for file in from..to {
            let key = file % 7;
            loader.drop_file(
                &format!("{file:03}.jsonl"),
                format!("{{\"op\":\"U\",\"order_id\":{key},\"status\":\"s\",\"amount\":1,\"seq\":{file}}}\n"),
            );
        }
    };
    let entries = |table: &str| {
        let log = loader.path().join("lake").join(table).join("_delta_log");
        let names = std::fs::read_dir(log)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        names
            .filter(|path| path.extension().is_some_and(|end| end == "json"))
            .count()
    };
    drop_files(0, 30);
    loader.run();
    assert!(entries("bronze") > 30 && entries("silver") > 30);
    // The clock of the log is the time of its files, so the loader's is set well past it.
    let far = SystemClock.now() + 40 * 86_400_000_000;
    let ahead = u64::try_from(far - loader.clock.now()).unwrap();
    loader.clock.advance(Duration::from_micros(ahead));
    drop_files(30, 60);
    loader.run();
    assert!(entries("bronze") < 30 && entries("silver") < 30);
    let mut pipeline = loader.pipeline();
    let reports = loader.block_on(maintain(&mut pipeline, true)).unwrap();
    let vacuumed = |report: &MaintainReport| report.vacuumed.clone().unwrap().files.len();
    assert!(
        reports.iter().all(|report| vacuumed(report) > 10),
        "{reports:?}"
    );
    drop(pipeline);
    drop_files(60, 70);
    loader.run();
    let rows: Vec<(i64, i64)> = loader
        .silver_rows()
        .iter()
        .map(|row| (row.0, row.3))
        .collect();
    assert_eq!(
        rows,
        [
            (0, 63),
            (1, 64),
            (2, 65),
            (3, 66),
            (4, 67),
            (5, 68),
            (6, 69)
        ]
    );
    assert_eq!(loader.bronze_places().len(), 70);
}
