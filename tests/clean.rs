//! Cleaning source files where it does not work at once: tried again after a pause, over two file systems.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops by panicking"
)]

mod common;

use common::TestLoader;
use landfall::checkpoint::Selector;
use landfall::rebuild::rebuild_checkpoint;
use landfall::settings::CleanSource;
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
    // Not yet due, and still to be seen.
    assert_eq!(loader.run().clean_failed, 1);
    assert_eq!(loader.file("eu/a.jsonl"), failed);
    loader.clock.advance(Duration::from_secs(61));
    let summary = loader.run();
    assert_eq!((summary.batches, summary.clean_failed), (0, 0));
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

/// Writes other bytes and sets the time back.
fn overwrite_unseen(path: &Path, text: &str) {
    let before = fs::metadata(path).unwrap();
    assert_eq!(before.len(), text.len() as u64);
    fs::write(path, text).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(before.modified().unwrap()).unwrap();
}

#[test]
fn other_bytes_of_the_same_size_and_time_are_not_deleted() {
    let mut loader = TestLoader::orders();
    loader.drop_file("a.jsonl", ORDER);
    loader.drop_file("b.jsonl", ORDER);
    loader.run();
    let other = ORDER.replace("new", "odd");
    overwrite_unseen(&loader.landing("a.jsonl"), &other);
    loader.settings.source.clean_source = CleanSource::Delete;
    let report = loader.pipeline().clean_source().unwrap();
    assert_eq!((report.cleaned, report.failed.len()), (1, 1));
    assert!(report.failed[0].1.contains("not the one that was loaded"));
    // The change time of the inode tells, and the content decides.
    loader.run();
    let changed = ("parked".to_string(), Some("changed_after_load".to_string()));
    assert_eq!(loader.file("a.jsonl"), changed);
    assert_eq!(
        fs::read_to_string(loader.landing("a.jsonl")).unwrap(),
        other
    );
}

#[test]
fn file_whose_loaded_content_is_not_known_is_not_deleted() {
    let mut loader = TestLoader::orders();
    loader.drop_file("a.jsonl", ORDER);
    loader.run();
    loader
        .block_on(rebuild_checkpoint(&loader.settings, &loader.clock))
        .unwrap();
    loader.settings.source.clean_source = CleanSource::Delete;
    assert_eq!(loader.run().clean_failed, 1);
    assert!(loader.landing("a.jsonl").exists());
    let mut pipeline = loader.pipeline();
    let plan = pipeline.plan_reset(&Selector::All).unwrap();
    assert!(plan.files[0].detail.as_ref().unwrap().contains("not known"));
    pipeline.reset(&plan).unwrap();
    drop(pipeline);
    loader.run();
    assert!(!loader.landing("a.jsonl").exists());
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
