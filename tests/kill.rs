//! The real process, killed at random moments while it loads hundreds of files, ends with the right tables.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test stops by panicking"
)]

mod common;

use common::TestLoader;
use common::history::{Event, History, Random};
use common::oracle;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const KILLS: usize = 22;
const FILES: usize = 400;

#[test]
fn killed_at_random_moments_it_ends_with_the_right_tables() {
    let loader = TestLoader::with("max_files_per_trigger = 3", "");
    let history = history(7);
    history
        .files
        .iter()
        .for_each(|(name, events)| loader.drop_file(name, History::text(events)));
    let mut random = Random::new(7);
    let mut kills = 0;
    while kills < KILLS {
        let mut child = start(&loader);
        // Half of the kills fall into the start and the recovery, the others into the load.
        let moment = Duration::from_millis(5 + random.below(if kills % 2 == 0 { 60 } else { 250 }));
        if still_runs_at(&mut child, moment) {
            child.kill().unwrap();
            kills += 1;
        }
        let status = child.wait().unwrap();
        assert!(
            status.code().is_none_or(|code| code == 0),
            "a run ended with {status}"
        );
        assert!(
            !status.success() || kills > 0,
            "the load was over before the first kill"
        );
        if status.success() {
            break;
        }
    }
    assert!(kills >= 20, "the load was over after {kills} kills");

    let summary = loader.run();
    assert_eq!(
        (
            summary.files_parked,
            summary.records_quarantined,
            summary.files_pending
        ),
        (0, 0, 0)
    );
    let mut places = Vec::new();
    for (name, events) in &history.files {
        places.extend((1..=events.len() as i64).map(|row| (name.clone(), row)));
    }
    places.sort();
    assert_eq!(loader.bronze_places(), places);
    assert_eq!(loader.silver_rows(), oracle::silver(&history, false));
    assert_eq!(loader.run().batches, 0);
}

fn start(loader: &TestLoader) -> Child {
    Command::new(env!("CARGO_BIN_EXE_landfall"))
        .args(["run", "--available-now", "--quiet"])
        .current_dir(loader.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits until `moment` after now; `false` if the process ended before.
fn still_runs_at(child: &mut Child, moment: Duration) -> bool {
    let until = Instant::now() + moment;
    while Instant::now() < until {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::yield_now();
    }
    child.try_wait().unwrap().is_none()
}

fn history(seed: u64) -> History {
    let mut random = Random::new(seed);
    let event = |random: &mut Random| {
        let delete = random.one_in(6);
        Event {
            op: if delete { 'D' } else { 'U' },
            key: 1 + random.below(300) as i64,
            status: (!delete).then(|| format!("s{}", random.below(9))),
            amount: (!delete).then(|| random.below(100_000) as i64),
            seq: 1 + random.below(1_000_000) as i64,
        }
    };
    let file = |number: usize, random: &mut Random| {
        let events = (0..1 + random.below(8)).map(|_| event(random)).collect();
        (format!("f{number:04}.jsonl"), events)
    };
    History {
        files: (0..FILES).map(|number| file(number, &mut random)).collect(),
    }
}
