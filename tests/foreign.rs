//! Another program writes to the tables while the loader runs: Python `deltalake`, in the environment that `LANDFALL_PYTHON` names.
//!
//! Without the variable there is no such program, and the test says so and passes; `.ci/run` always sets it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test stops by panicking"
)]

mod common;

use common::TestLoader;
use common::history::History;
use common::oracle;
use landfall::crash::CrashSwitch;
use landfall::error::ErrorKind;
use serde_json::Value;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the other program has for its first commits.
const PATIENCE: Duration = Duration::from_secs(60);

fn disturb(python: OsString, stop: &Path, tables: &[&Path]) -> Child {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/readers/disturb.py");
    Command::new(python)
        .arg(script)
        .arg(stop)
        .args(tables)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Several histories, one after the other, with names and keys of their own.
fn files() -> Vec<(String, History)> {
    let history = |round: u64| {
        let mut history = History::random(round);
        for (name, events) in &mut history.files {
            *name = format!("r{round:03}-{name}");
            events
                .iter_mut()
                .for_each(|event| event.key += 1000 * round as i64);
        }
        history
    };
    (0..6)
        .map(|round| (format!("r{round:03}"), history(round)))
        .collect()
}

/// Runs until idle; a table that is written by others all the time stops a run, and the next one goes on.
fn run(loader: &TestLoader) {
    for _ in 0..20 {
        match loader.try_run(&CrashSwitch::default()) {
            Ok(_) => return,
            Err(error) if error.kind() == ErrorKind::Conflict => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the other program wins all the time");
}

fn load_beside_another_writer(mode: &str) {
    let Some(python) = std::env::var_os("LANDFALL_PYTHON") else {
        eprintln!("skipped: LANDFALL_PYTHON names no Python with deltalake");
        return;
    };
    let loader = TestLoader::with(
        "max_files_per_trigger = 2",
        &format!("write_mode = \"{mode}\"\n[pipeline.orders.maintenance]\nauto = false"),
    );
    let stop = loader.path().join("stop");
    let (bronze, silver) = (
        loader.path().join("lake/bronze"),
        loader.path().join("lake/silver"),
    );
    let mut all = History { files: Vec::new() };
    let mut other = None;
    let begun = Instant::now();
    for (_, history) in files() {
        for (name, events) in &history.files {
            loader.drop_file(name, History::text(events));
        }
        all.files.extend(history.files);
        run(&loader);
        let python = || python.clone();
        let before = loader.versions();
        if other.is_none() {
            other = Some(disturb(python(), &stop, &[&bronze, &silver]));
            // The first foreign commit shows that the other program is at work.
            while loader.versions() == before && begun.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
    std::fs::write(&stop, "").unwrap();
    let output = other.unwrap().wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    eprintln!("{mode}: {report}");
    for table in ["bronze", "silver"] {
        let count = report["done"][format!("compact {table}")].as_u64();
        assert!(count > Some(0), "{table} was never compacted: {report}");
    }
    run(&loader);

    let mut places = Vec::new();
    for (name, events) in &all.files {
        places.extend((1..=events.len() as i64).map(|row| (name.clone(), row)));
    }
    places.sort();
    assert_eq!(loader.bronze_places(), places);
    assert_eq!(loader.silver_rows(), oracle::silver(&all, false));
}

#[test]
fn foreign_compactions_and_rewrites_lose_and_double_no_row() {
    load_beside_another_writer("merge_on_read");
}

#[test]
fn foreign_writers_beside_copy_on_write_lose_and_double_no_row() {
    load_beside_another_writer("copy_on_write");
}
