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
use landfall::crash::CrashSwitch;
use landfall::delta::Table;
use landfall::loader::RunOptions;
use landfall::verify::verify;
use std::fmt::Write;

const BATCHES: u64 = 240;
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
