//! Cleaning source files where it does not work at once: tried again after a pause, over two file systems.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops by panicking"
)]

mod common;

use common::TestLoader;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

const ORDER: &str = "{\"op\":\"I\",\"order_id\":1,\"status\":\"new\",\"amount\":1.00,\"seq\":1}\n";

fn moving_to(folder: &str) -> TestLoader {
    TestLoader::with(
        &format!("clean_source = \"move\"\nclean_source_move_destination = \"{folder}\""),
        "",
    )
}

#[test]
fn clean_up_that_failed_is_tried_again_after_a_pause() {
    let loader = moving_to("archive");
    let archive = loader.path().join("archive");
    fs::create_dir(&archive).unwrap();
    fs::write(archive.join("eu"), "in the way").unwrap();
    loader.drop_file("eu/a.jsonl", ORDER);
    assert_eq!(loader.run().clean_failed, 1);
    let failed = ("loaded".to_string(), Some("clean_failed".to_string()));
    assert_eq!(loader.file("eu/a.jsonl"), failed);
    fs::remove_file(archive.join("eu")).unwrap();
    // Not yet due.
    assert_eq!(loader.run().clean_failed, 0);
    assert_eq!(loader.file("eu/a.jsonl"), failed);
    loader.clock.advance(Duration::from_secs(61));
    assert_eq!(loader.run().batches, 0);
    assert_eq!(loader.file("eu/a.jsonl"), ("cleaned".to_string(), None));
    assert_eq!(
        fs::read_to_string(archive.join("eu/a.jsonl")).unwrap(),
        ORDER
    );
    assert_eq!(loader.bronze_places().len(), 1);
}

#[test]
fn file_that_changed_since_it_was_loaded_is_not_deleted() {
    let loader = TestLoader::with(
        "clean_source = \"delete\"\nallow_overwrites = \"ignore\"",
        "",
    );
    loader.drop_file("a.jsonl", ORDER);
    loader.run();
    assert!(!loader.landing("a.jsonl").exists());
    // It is back with other bytes, which are loaded nowhere.
    loader.drop_file("a.jsonl", ORDER.replace("new", "newer"));
    loader.run();
    loader.clock.advance(Duration::from_secs(61));
    loader.run();
    assert!(loader.landing("a.jsonl").exists());
    assert_eq!(loader.bronze_places().len(), 1);
}

#[test]
fn archive_on_another_file_system_gets_whole_files_and_replaces_none() {
    let here = tempfile::tempdir().unwrap();
    let Ok(there) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    if device(here.path()) == device(there.path()) {
        return;
    }
    let loader = moving_to(&there.path().display().to_string());
    fs::create_dir(there.path().join("eu")).unwrap();
    fs::write(there.path().join("eu/a.jsonl"), "older").unwrap();
    loader.drop_file("eu/a.jsonl", ORDER);
    let summary = loader.run();
    assert_eq!(summary.clean_failed, 0);
    assert_eq!(loader.file("eu/a.jsonl").0, "cleaned");
    assert!(!loader.landing("eu/a.jsonl").exists());
    let archived = |name: &str| fs::read_to_string(there.path().join(name)).unwrap();
    assert_eq!(archived("eu/a.jsonl"), "older");
    assert_eq!(archived("eu/a.jsonl.1"), ORDER);
}
