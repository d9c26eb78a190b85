//! The watching loop of the real program: files dropped, renamed, overwritten, folders made and removed while it runs.
//!
//! Every wait is for a condition. Where a listing would hide a missing event, the next listing is an hour away.
#![allow(clippy::unwrap_used, reason = "a test stops by panicking")]

#[path = "common/program.rs"]
mod program;

use program::{Program, order};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::time::{Duration, SystemTime};

const EVENTS_ONLY: &str = "listing_interval = \"1h\"";

fn two_orders(key: i64) -> String {
    order("I", key, "new", 100, 1) + &order("U", key, "paid", 100, 2)
}

#[test]
fn files_in_folder_trees_made_in_one_go_are_loaded() {
    // A folder inside a folder made a moment ago may have no events of its own: the next listing finds it.
    // The files are written in place, and one that is seen before it is written may not count.
    let program = Program::with("listing_interval = \"2s\"\nsettle = \"50ms\"", "");
    let watching = program.watch();
    program.drop_file("begin.jsonl", two_orders(0));
    watching.until_files("loaded", &["begin.jsonl"]);
    let mut names = Vec::new();
    for day in 1..=20 {
        let folder = format!("2024/{:02}/{day:02}", day % 3);
        fs::create_dir_all(program.landing(&folder)).unwrap();
        for file in ["a", "b", "c"] {
            let name = format!("{folder}/{file}.jsonl");
            fs::write(program.landing(&name), two_orders(day)).unwrap();
            names.push(name);
        }
    }
    watching.until_files(
        "loaded",
        &names.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    assert_eq!(watching.end(), Some(0));
    assert_eq!(program.bronze_places().len(), 2 * (1 + 60));
    program.assert_sound();
}

#[test]
fn renamed_and_moved_files_are_loaded_under_their_final_names_only() {
    // Far from settled by their times: what is loaded was taken because it was renamed into place.
    let program = Program::with(&format!("{EVENTS_ONLY}\nsettle = \"1h\""), "");
    fs::create_dir(program.path("sibling")).unwrap();
    let watching = program.watch();
    // A rename before the watch has begun is no event, so it comes again.
    watching.until("renames are seen", || {
        program.drop_file("begin.jsonl", two_orders(1));
        program.file("begin.jsonl") == "loaded"
    });
    let temporary = program.landing(".orders-1.jsonl.part");
    let mut file = File::create(&temporary).unwrap();
    for piece in two_orders(2).as_bytes().chunks(40) {
        file.write_all(piece).unwrap();
        file.sync_all().unwrap();
    }
    fs::rename(temporary, program.landing("orders-1.jsonl")).unwrap();
    fs::write(program.path("sibling/orders-2.jsonl"), two_orders(3)).unwrap();
    fs::rename(
        program.path("sibling/orders-2.jsonl"),
        program.landing("orders-2.jsonl"),
    )
    .unwrap();
    // A whole folder that comes in one rename.
    fs::write(program.path("sibling/orders-3.jsonl"), two_orders(4)).unwrap();
    fs::rename(program.path("sibling"), program.landing("day")).unwrap();
    watching.until_files("loaded", &["orders-1.jsonl", "orders-2.jsonl"]);
    watching.until("the folder is seen", || {
        program.files().contains_key("day/orders-3.jsonl")
    });
    let names: Vec<String> = program.files().into_keys().collect();
    assert_eq!(
        names,
        [
            "begin.jsonl",
            "day/orders-3.jsonl",
            "orders-1.jsonl",
            "orders-2.jsonl"
        ]
    );
    assert_eq!(watching.end(), Some(0));
}

#[test]
fn landing_folder_that_goes_and_comes_back_is_watched_again() {
    let program = Program::with(EVENTS_ONLY, "");
    fs::remove_dir(program.landing("")).unwrap();
    let mut watching = program.watch();
    watching.until("it says that the folder is missing", || {
        watching.said().contains("landing")
    });
    program.drop_file("a.jsonl", two_orders(1));
    watching.until_files("loaded", &["a.jsonl"]);
    fs::remove_dir_all(program.landing("")).unwrap();
    fs::create_dir(program.landing("")).unwrap();
    program.drop_file("b.jsonl", two_orders(2));
    watching.until_files("loaded", &["a.jsonl", "b.jsonl"]);
    // Another folder takes its place in one rename.
    fs::create_dir(program.path("other")).unwrap();
    fs::write(program.path("other/c.jsonl"), two_orders(3)).unwrap();
    fs::rename(program.landing(""), program.path("away")).unwrap();
    fs::rename(program.path("other"), program.landing("")).unwrap();
    watching.until_files("loaded", &["a.jsonl", "b.jsonl", "c.jsonl"]);
    program.drop_file("d.jsonl", two_orders(4));
    watching.until_files("loaded", &["d.jsonl"]);
    assert!(watching.is_running());
    assert_eq!(watching.end(), Some(0));
    assert_eq!(program.bronze_places().len(), 8);
    program.assert_sound();
}

#[test]
fn old_and_future_times_decide_nothing() {
    let program = Program::with("settle = \"200ms\"", "");
    let watching = program.watch();
    program.drop_file("b.jsonl", two_orders(1));
    watching.until_files("loaded", &["b.jsonl"]);
    let year = Duration::from_secs(365 * 24 * 3600);
    let now = SystemTime::now();
    for (name, time) in [
        ("a.jsonl", now - 7 * year),
        ("c.jsonl", now + 14 * year),
        ("d.jsonl", SystemTime::UNIX_EPOCH - year),
    ] {
        // Written in place with the time of its source, as `cp -p` does.
        fs::write(program.landing(name), two_orders(1)).unwrap();
        let file = File::options()
            .write(true)
            .open(program.landing(name))
            .unwrap();
        file.set_modified(time).unwrap();
    }
    watching.until_files("loaded", &["a.jsonl", "c.jsonl", "d.jsonl"]);
    assert_eq!(watching.end(), Some(0));
    assert_eq!(program.bronze_places().len(), 8);
    assert_eq!(
        program.call(&["run", "--available-now"]).stdout,
        b"orders: nothing new\n"
    );
}

#[test]
fn slow_writer_is_waited_for() {
    let program = Program::with("settle = \"3s\"", "");
    let watching = program.watch();
    program.drop_file("begin.jsonl", two_orders(1));
    watching.until_files("loaded", &["begin.jsonl"]);
    let text: String = (1..=10)
        .map(|seq| order("U", 2, "paid", 100 * seq, seq))
        .collect();
    let mut file = File::create(program.landing("orders.jsonl")).unwrap();
    let pieces = text.len() / 10 - 7;
    for (number, piece) in text.as_bytes().chunks(pieces).enumerate() {
        file.write_all(piece).unwrap();
        let written = (number + 1) * pieces;
        // The loader has seen the file in this size, and must not take it.
        watching.until("it sees the file grow", || {
            let files = program.files();
            let Some(file) = files.get("orders.jsonl") else {
                return false;
            };
            if written < text.len() {
                assert_eq!(file["state"], "pending");
            }
            file["size"].as_u64() == Some(written.min(text.len()) as u64)
        });
    }
    watching.until_files("loaded", &["orders.jsonl"]);
    assert_eq!(watching.end(), Some(0));
    assert_eq!(program.bronze_places().len(), 12);
    assert_eq!(program.quarantine().len(), 0);
}

#[test]
fn file_that_was_taken_too_early_is_named_and_never_passes_for_complete() {
    let program = Program::with("settle = \"100ms\"", "");
    let watching = program.watch();
    let text: String = (1..=10)
        .map(|seq| order("U", 2, "paid", 100 * seq, seq))
        .collect();
    let half = text.len() / 2 - 9;
    let mut file = File::create(program.landing("orders.jsonl")).unwrap();
    file.write_all(&text.as_bytes()[..half]).unwrap();
    watching.until_files("loaded", &["orders.jsonl"]);
    file.write_all(&text.as_bytes()[half..]).unwrap();
    watching.until_files("parked", &["orders.jsonl"]);
    let parked = program.files().remove("orders.jsonl").unwrap();
    assert_eq!(parked["reason"], "changed_after_load");
    let detail = parked["detail"].as_str().unwrap();
    for size in [half, text.len()] {
        assert!(detail.contains(&size.to_string()), "{detail}");
    }
    assert_eq!(watching.end(), Some(0));
    assert_eq!(program.run(), 3);
    let reset = program.call(&["reset", "orders", "--files", "orders.jsonl", "--yes"]);
    assert!(reset.status.success());
    program.load();
    assert_eq!(program.bronze_places().len(), 10);
    assert_eq!(program.quarantine().len(), 0);
    program.assert_sound();
}

#[test]
fn touched_or_rewritten_with_its_own_bytes_is_no_change_and_appended_is() {
    let program = Program::orders();
    let watching = program.watch();
    program.drop_file("a.jsonl", two_orders(1));
    watching.until_files("loaded", &["a.jsonl"]);
    let modified_at = || program.files()["a.jsonl"]["modified_at"].clone();
    // Touched: the ledger takes over the time and nothing else.
    let loaded_at = modified_at();
    let file = File::options()
        .write(true)
        .open(program.landing("a.jsonl"))
        .unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(5))
        .unwrap();
    watching.until("the time is taken over", || modified_at() != loaded_at);
    assert_eq!(program.file("a.jsonl"), "loaded");
    // An editor writes the same bytes beside it and renames over it.
    let touched_at = modified_at();
    program.drop_file("a.jsonl", two_orders(1));
    watching.until("the new time is taken over", || modified_at() != touched_at);
    assert_eq!(program.file("a.jsonl"), "loaded");
    assert!(!watching.said().contains("changed"), "{}", watching.said());
    // A row more.
    let mut file = OpenOptions::new()
        .append(true)
        .open(program.landing("a.jsonl"))
        .unwrap();
    file.write_all(order("U", 1, "shipped", 100, 3).as_bytes())
        .unwrap();
    watching.until_files("parked", &["a.jsonl"]);
    assert_eq!(program.file("a.jsonl"), "parked changed_after_load");
    assert_eq!(program.bronze_places().len(), 2);
    // The bytes that were loaded come back.
    program.drop_file("a.jsonl", two_orders(1));
    watching.until_files("loaded", &["a.jsonl"]);
    assert_eq!(watching.end(), Some(0));
    assert_eq!(program.bronze_places().len(), 2);
}

#[test]
fn replaced_file_takes_the_place_of_its_rows_while_watching() {
    let program = Program::with("allow_overwrites = \"replace\"", "");
    let watching = program.watch();
    program.drop_file("day.jsonl", two_orders(1));
    watching.until_files("loaded", &["day.jsonl"]);
    program.drop_file("day.jsonl", two_orders(1) + &two_orders(2));
    watching.until("the second version is in bronze", || {
        program.bronze_places().len() == 4
    });
    watching.until_files("loaded", &["day.jsonl"]);
    program.drop_file("day.jsonl", two_orders(3));
    watching.until("the third version is in bronze", || {
        program.bronze_places().len() == 2
    });
    watching.until_files("loaded", &["day.jsonl"]);
    assert_eq!(watching.end(), Some(0));
    program.assert_sound();
}

#[test]
fn file_that_goes_before_it_is_loaded_is_told_and_taken_when_it_is_back() {
    // It never settles by itself; a rename into place settles it at once.
    let program = Program::with("settle = \"1h\"", "");
    let mut watching = program.watch();
    fs::write(program.landing("1.jsonl"), two_orders(1)).unwrap();
    fs::write(program.landing("2.jsonl"), two_orders(2)).unwrap();
    watching.until_files("pending", &["1.jsonl", "2.jsonl"]);
    fs::remove_file(program.landing("2.jsonl")).unwrap();
    watching.until_files("parked", &["2.jsonl"]);
    assert_eq!(program.file("2.jsonl"), "parked vanished");
    program.drop_file("3.jsonl", two_orders(3));
    watching.until_files("loaded", &["3.jsonl"]);
    program.drop_file("2.jsonl", two_orders(2));
    watching.until_files("loaded", &["2.jsonl", "3.jsonl"]);
    assert_eq!(program.file("1.jsonl"), "pending");
    assert!(watching.is_running());
}

#[test]
fn new_column_joins_both_tables_while_watching() {
    let program = Program::orders();
    let watching = program.watch();
    program.drop_file("a.jsonl", two_orders(1));
    watching.until_files("loaded", &["a.jsonl"]);
    let line = order("I", 2, "new", 100, 1).replace('}', ",\"coupon\":\"X1\"}");
    program.drop_file("b.jsonl", line);
    program.drop_file("c.jsonl", two_orders(3));
    watching.until_files("loaded", &["b.jsonl", "c.jsonl"]);
    // A file is loaded before its batch is told, since silver comes between.
    let gained = |said: String| said.matches("bronze gained column coupon").count();
    watching.until("the column is told", || gained(watching.said()) > 0);
    assert_eq!(gained(watching.said()), 1, "{}", watching.said());
    assert_eq!(watching.end(), Some(0));
    let silver = program.json(&["show", "orders"]);
    let coupons: Vec<_> = silver.iter().map(|row| row["coupon"].as_str()).collect();
    assert_eq!(coupons, [None, Some("X1"), None]);
    let bronze = program.bronze();
    assert_eq!(bronze.len(), 5);
    assert!(
        bronze
            .iter()
            .all(|row| row.get("coupon").is_some() && row["_rescued_data"].is_null())
    );
    program.assert_sound();
}

#[test]
fn listing_alone_finds_every_file() {
    let program = Program::with("discovery = \"list\"\nlisting_interval = \"100ms\"", "");
    let watching = program.watch();
    for round in 0..2 {
        let names: Vec<String> = (0..3).map(|n| format!("{round}/{n}.jsonl")).collect();
        for name in &names {
            program.drop_file(name, two_orders(round));
        }
        watching.until_files(
            "loaded",
            &names.iter().map(String::as_str).collect::<Vec<_>>(),
        );
    }
    assert_eq!(watching.end(), Some(0));
    assert_eq!(program.bronze_places().len(), 12);
}

#[test]
fn file_that_cannot_be_loaded_is_tried_once_and_told_once() {
    let program = Program::with("listing_interval = \"50ms\"", "");
    let watching = program.watch();
    program.drop_file("bad.jsonl.gz", [0x1f, 0x8b, 8, 0]);
    watching.until_files("parked", &["bad.jsonl.gz"]);
    // Many listings later nothing has come of it, and others load.
    for number in 0..5 {
        let name = format!("{number}.jsonl");
        program.drop_file(&name, two_orders(number));
        watching.until_files("loaded", &[&name]);
    }
    let bad = program.files().remove("bad.jsonl.gz").unwrap();
    assert_eq!(
        (&bad["reason"], &bad["attempts"]),
        (&"truncated_stream".into(), &1.into())
    );
    let told = watching.said().matches("bad.jsonl.gz").count();
    assert!(told <= 1, "{}", watching.said());
    // New bytes under the name are tried again.
    program.drop_file("bad.jsonl.gz", gzip(&two_orders(9)));
    watching.until_files("loaded", &["bad.jsonl.gz"]);
    assert_eq!(watching.end(), Some(0));
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// Links of every kind, a pipe and a socket in the landing folder, with what is said of each. The kinds that only the
/// superuser can make are left to the listing, which takes regular files alone.
fn put_what_is_no_file(program: &Program) -> [(&'static str, &'static str); 8] {
    fs::create_dir(program.path("outside")).unwrap();
    fs::write(program.path("outside/secret.jsonl"), two_orders(7)).unwrap();
    fs::create_dir(program.landing("eu")).unwrap();
    let links = [
        ("../outside/secret.jsonl", "x.jsonl"),
        ("../../outside/secret.jsonl", "eu/x.jsonl"),
        ("../outside", "folder"),
        (".", "loop"),
        ("itself.jsonl", "itself.jsonl"),
        ("/dev/zero", "device.jsonl"),
    ];
    for (target, name) in links {
        std::os::unix::fs::symlink(target, program.landing(name)).unwrap();
    }
    let made = std::process::Command::new("mkfifo")
        .arg(program.landing("y.jsonl"))
        .status();
    assert!(made.unwrap().success());
    std::os::unix::net::UnixListener::bind(program.landing("s.jsonl")).unwrap();
    [
        ("x.jsonl", "symbolic link"),
        ("eu/x.jsonl", "symbolic link"),
        ("folder", "symbolic link"),
        ("loop", "symbolic link"),
        ("itself.jsonl", "symbolic link"),
        ("device.jsonl", "symbolic link"),
        ("y.jsonl", "named pipe"),
        ("s.jsonl", "socket"),
    ]
}

#[test]
fn links_pipes_and_folders_of_links_are_left_alone() {
    for source in ["", "discovery = \"list\"\nlisting_interval = \"50ms\""] {
        let program = Program::with(source, "");
        let others = put_what_is_no_file(&program);
        let watching = program.watch();
        program.drop_file("good.jsonl", two_orders(1));
        watching.until_files("loaded", &["good.jsonl"]);
        program.drop_file("eu/good.jsonl", two_orders(2));
        watching.until_files("loaded", &["eu/good.jsonl"]);
        assert_eq!(program.files().len(), 2);
        let said = watching.said();
        for (name, kind) in others {
            let line = format!(" {name} is ignored: {kind}");
            assert_eq!(said.matches(&line).count(), 1, "{line}: {said}");
        }
        assert_eq!(watching.end(), Some(0));
        assert!(!program.silver().iter().any(|row| row.contains(":7,")));
        program.assert_sound();
    }
}

#[test]
fn link_in_the_place_of_a_file_is_not_followed() {
    let program = Program::with("allow_overwrites = \"replace\"", "");
    put_what_is_no_file(&program);
    let watching = program.watch();
    program.drop_file("a.jsonl", two_orders(1));
    program.drop_file("day/b.jsonl", two_orders(2));
    watching.until_files("loaded", &["a.jsonl", "day/b.jsonl"]);
    fs::remove_file(program.landing("a.jsonl")).unwrap();
    std::os::unix::fs::symlink("../outside/secret.jsonl", program.landing("a.jsonl")).unwrap();
    fs::copy(
        program.path("outside/secret.jsonl"),
        program.path("outside/b.jsonl"),
    )
    .unwrap();
    fs::remove_dir_all(program.landing("day")).unwrap();
    std::os::unix::fs::symlink("../outside", program.landing("day")).unwrap();
    watching.until("both links are told", || {
        ["a.jsonl", "day"].iter().all(|name| {
            let line = format!(" {name} is ignored: symbolic link");
            watching.said().contains(&line)
        })
    });
    program.drop_file("c.jsonl", two_orders(3));
    watching.until_files("loaded", &["c.jsonl"]);
    assert_eq!(watching.end(), Some(0));
    let reset = program.call(&["reset", "orders", "--all", "--yes"]);
    assert!(reset.status.success());
    program.run();
    let silver = program.silver();
    assert_eq!(silver.len(), 3, "{silver:?}");
    assert!(!silver.iter().any(|row| row.contains(":7,")), "{silver:?}");
}

#[test]
fn signal_while_a_large_file_loads_leaves_all_of_it_or_nothing() {
    let program = Program::orders();
    let text: String = (0..60_000)
        .map(|key| order("I", key, "new", key, 1))
        .collect();
    program.drop_file("large.jsonl", text);
    let watching = program.watch();
    watching.until_files("planned", &["large.jsonl"]);
    assert_eq!(watching.end(), Some(0));
    let bronze = program.status()["bronze"]["rows"].as_i64().unwrap_or(0);
    assert!(bronze == 0 || bronze == 60_000, "{bronze}");
    program.load();
    let status = program.status();
    assert_eq!(
        (&status["bronze"]["rows"], &status["silver"]["rows"]),
        (&60_000.into(), &60_000.into())
    );
}

#[test]
fn pipeline_that_fails_says_so_once_and_holds_up_no_other() {
    let program = Program::orders();
    let one = fs::read_to_string(program.path("landfall.toml")).unwrap();
    let other = one
        .replace("pipeline.orders", "pipeline.other")
        .replace("orders.db", "other.db")
        .replace("path = \"lake", "path = \"other")
        .replace("settle", "on_bad_record = \"stop\"\nsettle")
        .replace("path = \"landing\"", "path = \"landing-other\"");
    fs::write(program.path("landfall.toml"), one + &other).unwrap();
    fs::create_dir(program.path("landing-other")).unwrap();
    fs::write(program.path("landing-other/bad.jsonl"), "nonsense\n").unwrap();
    let mut watching = program.watch();
    let failure = "pipeline other: landing file bad.jsonl, line 1";
    watching.until("the failure is told", || watching.said().contains(failure));
    program.drop_file("a.jsonl", two_orders(1));
    watching.until_files("loaded", &["a.jsonl"]);
    assert!(watching.is_running());
    let said = || fs::read_to_string(program.path("stderr.txt")).unwrap();
    assert_eq!(watching.end(), Some(1));
    assert_eq!(said().matches("bad.jsonl").count(), 1, "{}", said());
}
