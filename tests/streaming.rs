//! What is loaded does not depend on how much of it is in memory.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test stops by panicking"
)]

mod common;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::util::display::array_value_to_string;
use common::{HINTS, LITTLE_MEMORY, TestLoader, all_rows};
use landfall::crash::CrashSwitch;
use landfall::load::LoadLimits;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

/// Everything that a run left, but for what tells when.
#[derive(Debug, PartialEq)]
struct Ending {
    /// State, reason and detail of each.
    files: Vec<(String, Option<String>, Option<String>)>,
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
    let file = |name: &&str| {
        let (state, reason) = loader.file(name);
        (state, reason, loader.file_detail(name))
    };
    Ending {
        files: names.iter().map(file).collect(),
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

/// Separated values in which something is wrong or new behind the first pieces.
fn csv_files() -> Vec<(&'static str, Vec<u8>)> {
    const HEADER: &str = "op,order_id,status,seq";
    let row = |number: usize| format!("U,{},s{number},{number}", number % 7);
    let rows = |numbers: std::ops::Range<usize>, line_end: &str| -> String {
        numbers.map(|number| row(number) + line_end).collect()
    };
    let quoted: String = (400..420)
        .map(|n| format!("U,{},\"a\nb{n}\",{n}\n", n % 7))
        .collect();
    let windows: String = (1000..1020)
        .map(|n| match n % 4 {
            0 => format!("U,{}, \"a \"\"{n}\"\"\r\n\r\n,b\" ,{n}\r\n\r\n", n % 7),
            1 => format!("U,{},\"{n},\r\n\",{n}\r\n", n % 7),
            _ => row(n) + "\r\n",
        })
        .collect();
    let late_columns: String = (1100..1140)
        .map(|n| match n % 9 {
            8 => format!("{},\"\",n,,\n", row(n)),
            7 => format!("{},7,,0.5,\"\"\n", row(n)),
            6 => format!("{},\"\",,1,2024-05-01\n", row(n)),
            _ if n < 1110 => format!("{},\"\",,,\n", row(n)),
            5 => format!("U,none,s,{n},1,n,1,x\n"),
            _ => format!("{},\"\",,2,\n", row(n)),
        })
        .collect();
    let late_columns = format!("{HEADER},q,note,weight,day\n{late_columns}");
    let comments: String = (1200..1220)
        .map(|n| format!("{}\n#, \"{n}\n\n", row(n)))
        .collect();
    let mut not_text = format!("{HEADER}\n{}", rows(1300..1320, "\n")).into_bytes();
    let middle = not_text.len() / 2;
    not_text[middle] = 0xFF;
    let packed = gzip(&format!("{HEADER}\n{}", rows(1400..1440, "\n")));
    let twice = gzip(&format!("{HEADER},op\n{}", rows(1500..1599, "\n")));
    let in_parts = format!("{HEADER}\n{}", rows(1600..1630, "\n"));
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 1);
    xz.write_all(in_parts.as_bytes()).unwrap();
    vec![
        ("f.csv", format!("{HEADER}\n{quoted}x\n").into()),
        (
            "f-windows.csv",
            format!("\u{feff}{HEADER}\r\n{windows}").into(),
        ),
        ("f-columns.csv", late_columns.clone().into()),
        (
            "f-comments.csv",
            format!("# \"one\n{HEADER}\n{comments}#").into(),
        ),
        ("f-not-text.csv", not_text),
        (
            "f-open.csv",
            format!("{late_columns}U,1,\"s,1\n{}", rows(1700..1720, "\n")).into(),
        ),
        (
            "f-no-header.csv",
            format!("{HEADER},op\n{}\"", rows(1800..1810, "\n")).into(),
        ),
        ("f-packed.csv.gz", packed.clone()),
        ("f-cut.csv.gz", packed[..packed.len() - 9].to_vec()),
        ("f-cut-no-header.csv.gz", twice[..90].to_vec()),
        ("f-parts.csv.xz", xz.finish().unwrap()),
        (
            "f-tabs.tsv",
            format!("{HEADER}\n{}", rows(1900..1920, "\n").trim_end())
                .replace(',', "\t")
                .into(),
        ),
        ("f-header.csv", HEADER.into()),
        ("f-empty.csv", "\r\n\n".into()),
    ]
}

/// Parquet in groups of 30 rows.
fn parquet(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let rows = RecordBatch::try_from_iter_with_nullable(
        columns
            .into_iter()
            .map(|(name, column)| (name, column, true)),
    );
    let rows = rows.unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(30))
        .set_dictionary_enabled(false)
        .build();
    let mut writer = ArrowWriter::try_new(Vec::new(), rows.schema(), Some(properties)).unwrap();
    writer.write(&rows).unwrap();
    writer.into_inner().unwrap()
}

/// Parquet in which something is wrong or new behind the first rows.
fn parquet_files() -> Vec<(&'static str, Vec<u8>)> {
    let orders = |numbers: std::ops::Range<i64>| -> Vec<(&'static str, ArrayRef)> {
        let long = |number: fn(i64) -> Option<i64>| -> ArrayRef {
            Arc::new(numbers.clone().map(number).collect::<Int64Array>())
        };
        let texts = numbers.clone().map(|number| Some(format!("s{number}")));
        let updates = numbers.clone().map(|_| Some("U"));
        vec![
            ("op", Arc::new(updates.collect::<StringArray>())),
            (
                "order_id",
                long(|number| (number % 31 != 30).then_some(number % 7)),
            ),
            ("status", Arc::new(texts.collect::<StringArray>())),
            ("seq", long(Some)),
        ]
    };
    let late = |after: i64| -> Vec<Option<f64>> {
        let weight = |number: i64| (number % after == after - 1).then_some(0.5);
        (0..100).map(weight).collect()
    };
    let mut columns = orders(2100..2200);
    columns.push(("weight", Arc::new(Float64Array::from(late(70)))));
    columns.push(("note", Arc::new(StringArray::from(vec![None::<&str>; 100]))));
    let mut misfits = orders(2200..2300);
    let sums = (0..100).map(|number| Some(if number == 77 { "x" } else { "1.5" }));
    misfits[3].1 = Arc::new(sums.collect::<StringArray>());
    let whole = parquet(orders(2300..2400));
    let mut damaged = whole.clone();
    let middle = whole.len() / 3;
    damaged[middle..middle + 200].fill(0xFF);
    vec![
        ("m-rows.parquet", parquet(orders(2000..2100))),
        ("m-columns.parquet", parquet(columns)),
        ("m-misfits.parquet", parquet(misfits)),
        ("m-cut.parquet", whole[..whole.len() - 9].to_vec()),
        ("m-damaged.parquet", damaged),
        ("m-none.parquet", parquet(orders(0..0))),
        ("m-text.parquet", b"{\"op\":\"U\"}".to_vec()),
        ("m-empty.parquet", Vec::new()),
        ("m-other-name.data", parquet(orders(2400..2420))),
    ]
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
    let array: Vec<String> = (500..520).map(|n| order(n, "")).collect();
    let mut files = vec![
        ("a-plain.jsonl", lines(0..40, &plain).into_bytes()),
        ("b-columns.jsonl", lines(40..80, &late_column).into_bytes()),
        ("c-broken.jsonl", broken.into_bytes()),
        ("d-not-text.jsonl", not_text),
        ("e-marked.jsonl", marked.into_bytes()),
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
    ];
    files.extend(csv_files());
    files.extend(parquet_files());
    files
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
fn limits() -> [LoadLimits; 4] {
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
    // Of small batches it shows late that their rows are many.
    let again = LoadLimits {
        unwritten_bytes_max: 1,
        ..pieces
    };
    [pieces, ahead, again, LITTLE_MEMORY]
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
        "csv.comment = \"#\"\ncsv.ignore_leading_white_space = true\ncsv.ignore_trailing_white_space = true",
        "csv.multi_line = false\ncsv.skip_rows = 1\ncsv.header = false",
        "infer_column_types = false\non_type_mismatch = \"rescue\"",
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
fn file_that_unpacks_to_nothing_but_zeros_is_parked_before_it_takes_memory() {
    let zeros = std::io::repeat(0).take(300 << 20);
    let bomb = zstd::encode_all(zeros, 1).unwrap();
    let names = ["a.jsonl.zst", "b.csv.zst"];
    let load = |loader: TestLoader| {
        names.iter().for_each(|name| loader.drop_file(name, &bomb));
        loader.drop_file("c.jsonl", lines(0..3, &|_| String::new()));
        loader.run();
        ending(&loader, &names)
    };
    let whole = load(settings(""));
    for (state, reason, detail) in &whole.files {
        assert_eq!(
            (state.as_str(), reason.as_deref()),
            ("parked", Some("too_large"))
        );
        let sizes = format!("has {} bytes and more than 268435456 when", bomb.len());
        assert!(detail.as_ref().unwrap().contains(&sizes), "{detail:?}");
    }
    assert_eq!(whole.bronze.len(), 3);
    let mut loader = settings("").with_little_memory();
    loader.limits.block_bytes = 1 << 20;
    assert_eq!(load(loader), whole);
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
