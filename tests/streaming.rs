//! What is loaded does not depend on how much of it is in memory.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops by panicking"
)]

mod common;

use arrow::util::display::array_value_to_string;
use common::{HINTS, LITTLE_MEMORY, TestLoader, all_rows};
use landfall::crash::CrashSwitch;
use landfall::load::LoadLimits;
use std::io::Write;
use std::path::Path;

/// Everything that a run left, but for what tells when.
#[derive(Debug, PartialEq)]
struct Ending {
    files: Vec<(String, Option<String>)>,
    bronze: Vec<String>,
    quarantine: Vec<String>,
    silver: Vec<String>,
}

fn ending(loader: &TestLoader, names: &[&str]) -> Ending {
    let bronze = loader.bronze().map(|bronze| {
        let schema = bronze.table().schema();
        let names = schema.fields().iter().map(|field| field.name().as_str());
        let times = ["_loaded_at", "_file_modified_at", "_batch_id"];
        let mut columns: Vec<&str> = names.filter(|name| !times.contains(name)).collect();
        // Columns that come behind those of the hints stand behind the loader's where the table was there before them.
        columns.sort_unstable();
        let mut texts = Vec::new();
        for batch in all_rows(bronze.table(), &columns) {
            let cell = |row: usize, place: usize| {
                let text = array_value_to_string(batch.column(place), row).unwrap();
                format!("{}={text}", columns[place])
            };
            texts.extend((0..batch.num_rows()).map(|row| {
                let cells = (0..columns.len()).map(|place| cell(row, place));
                cells.collect::<Vec<_>>().join(" ")
            }));
        }
        texts.sort();
        texts
    });
    let refused = loader.quarantine().rows(None, None).unwrap();
    let mut quarantine: Vec<String> = refused
        .into_iter()
        .map(|record| {
            format!(
                "{} {} {:?} {:?} {} {} {}",
                record.file_path,
                record.file_row,
                record.file_line,
                record.byte_offset,
                record.reason,
                record.detail,
                record.raw
            )
        })
        .collect();
    quarantine.sort();
    let silver = loader
        .silver()
        .map(|_| loader.silver_texts(&["order_id", "status", "seq"]));
    Ending {
        files: names.iter().map(|name| loader.file(name)).collect(),
        bronze: bronze.unwrap_or_default(),
        quarantine,
        silver: silver.unwrap_or_default(),
    }
}

fn order(number: usize, more: &str) -> String {
    format!(
        "{{\"op\":\"U\",\"order_id\":{},\"status\":\"s{number}\",\"seq\":{number}{more}}}",
        number % 7
    )
}

fn lines(numbers: std::ops::Range<usize>, more: &dyn Fn(usize) -> String) -> String {
    numbers
        .map(|number| order(number, &more(number)) + "\n")
        .collect()
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// Files in which something is wrong or new behind the first pieces.
fn files() -> Vec<(&'static str, Vec<u8>)> {
    let plain = |_: usize| String::new();
    let late_column = |number: usize| match number % 9 {
        8 => ",\"note\":\"n\"".to_string(),
        7 => ",\"weight\":0.5".to_string(),
        _ => ",\"weight\":2".to_string(),
    };
    let mut broken = lines(100..120, &plain);
    broken.insert_str(
        broken.len() / 2,
        "\r\n  \nnonsense\n{\"order_id\":null}\n[]\n",
    );
    let mut not_text = lines(200..220, &plain).into_bytes();
    let middle = not_text.len() / 2;
    not_text[middle] = 0xFF;
    let marked = format!("\u{feff}{}", lines(300..310, &plain));
    let csv: String = (400..420)
        .map(|n| format!("U,{},\"a\nb{n}\",{n}\n", n % 7))
        .collect();
    let array: Vec<String> = (500..520).map(|n| order(n, "")).collect();
    vec![
        ("a-plain.jsonl", lines(0..40, &plain).into_bytes()),
        ("b-columns.jsonl", lines(40..80, &late_column).into_bytes()),
        ("c-broken.jsonl", broken.into_bytes()),
        ("d-not-text.jsonl", not_text),
        ("e-marked.jsonl", marked.into_bytes()),
        (
            "f.csv",
            format!("op,order_id,status,seq\n{csv}x\n").into_bytes(),
        ),
        ("g-packed.jsonl.gz", gzip(&lines(600..640, &plain))),
        ("h-gzip-in-disguise.jsonl", gzip(&lines(700..720, &plain))),
        (
            "i-cut.jsonl.gz",
            gzip(&lines(800..899, &plain))[..90].to_vec(),
        ),
        ("j-empty.jsonl", Vec::new()),
        ("k-array.jsonl", array.join(",\n").into_bytes()),
        (
            "k-bracketed.json",
            format!(
                " [\n{},\n 7 , {{\"order_id\":\n1}}\n]\n[]\n",
                array.join(",\n")
            )
            .into(),
        ),
        ("k-open.json", format!("[{}", array.join(",")).into()),
        ("k-no-comma.json", format!("[{}]", array.join("\n")).into()),
        (
            "l-no-line-end.jsonl",
            lines(900..910, &plain).trim_end().into(),
        ),
    ]
}

/// A pipeline with further settings of its source, and hints unless it is to infer all columns.
fn settings(source: &str) -> TestLoader {
    let (hints, source) = match source {
        "no hints" => ("", ""),
        _ => (HINTS, source),
    };
    let rules = "sequence_by = [\"seq\"]\n\
        operations = { column = \"op\", upsert = [\"I\", \"U\"], delete = [\"D\"] }";
    TestLoader::of_orders("auto", hints, source, rules)
}

fn orphans(loader: &TestLoader) -> usize {
    fn data_files(folder: &Path) -> usize {
        let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
        entries
            .map(|entry| match entry.path() {
                path if path.ends_with("_delta_log") => 0,
                path if path.is_dir() => data_files(&path),
                path => usize::from(path.extension().is_some_and(|end| end == "parquet")),
            })
            .sum()
    }
    let bronze = loader.bronze().unwrap();
    data_files(bronze.table().root()) - bronze.table().files().count()
}

/// Files in pieces all of which stay in memory; the same where rows may be written ahead; and little memory.
fn limits() -> [LoadLimits; 3] {
    let pieces = LoadLimits {
        streamed_bytes_min: 1,
        block_bytes: 300,
        part_records: 7,
        ..LoadLimits::default()
    };
    let ahead = LoadLimits {
        small_batch_bytes_max: 0,
        ..pieces
    };
    [pieces, ahead, LITTLE_MEMORY]
}

#[test]
fn what_is_loaded_does_not_depend_on_how_much_is_in_memory() {
    let files = files();
    let names: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
    for source in [
        "",
        "schema_evolution_mode = \"none\"",
        "schema_evolution_mode = \"rescue\"",
        "schema_evolution_mode = \"fail_on_new_columns\"",
        "max_bad_records = 2",
        "on_bad_record = \"fail_file\"",
        "duplicate_content = \"skip\"",
        "absent_columns = \"keep\"",
        "no hints",
        "json.multi_line = true",
        "json.multi_line = true\nschema_evolution_mode = \"rescue\"",
    ] {
        let load = |loader: TestLoader| {
            for (name, bytes) in &files {
                loader.drop_file(name, bytes);
            }
            loader.run();
            (ending(&loader, &names), orphans(&loader))
        };
        let (whole, _) = load(settings(source));
        assert!(whole.bronze.len() > 100, "{source}");
        for limits in limits() {
            let mut loader = settings(source);
            loader.limits = limits;
            let (pieces, orphans) = load(loader);
            assert_eq!(pieces, whole, "{source} {limits:?}");
            assert_eq!(orphans, 0, "{source} {limits:?}");
        }
    }
}

#[test]
fn rows_written_ahead_of_a_crash_are_loaded_once() {
    let files = files();
    let names: Vec<&str> = files.iter().map(|(name, _)| *name).collect();
    let drop_all = |loader: &TestLoader| {
        files
            .iter()
            .for_each(|(name, bytes)| loader.drop_file(name, bytes));
    };
    let whole = settings("");
    drop_all(&whole);
    whole.run();
    let expected = ending(&whole, &names);
    for nth in 1..=6 {
        let loader = settings("").with_little_memory();
        drop_all(&loader);
        let _ = loader.try_run(&CrashSwitch::stop_at(nth));
        loader.run();
        assert_eq!(ending(&loader, &names), expected, "stop {nth}");
    }
}
