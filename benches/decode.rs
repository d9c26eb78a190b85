//! How fast one core turns the bytes of landing files into rows, by format.
//!
//! `cargo bench --bench decode` prints times and bytes of the file for each second; `docs/performance.md` says what they mean.
#![allow(
    clippy::unwrap_used,
    reason = "a benchmark stops at the first thing that is wrong"
)]

use arrow::array::RecordBatch;
use bytes::Bytes;
use divan::Bencher;
use divan::counter::BytesCount;
use landfall::decode::{Blocks, Framing, decode};
use landfall::schema::TableSchema;
use landfall::settings::{Request, Settings, SourceSettings};
use parquet::arrow::ArrowWriter;

const RECORDS: usize = 50_000;
const HINTS: &str = "order_id BIGINT, status STRING, amount DECIMAL(10,2), customer STRING, updated_at TIMESTAMP, seq BIGINT, op STRING";

fn main() {
    divan::main();
}

fn source(more: &str) -> SourceSettings {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(
        "[pipeline.p]\ncheckpoint = \"c.db\"\nbronze.path = \"b\"\n[pipeline.p.source]\npath = \"in\"\nschema_hints = \"{HINTS}\"\n{more}\n"
    );
    std::fs::write(folder.path().join("landfall.toml"), text).unwrap();
    let settings = Settings::load(&Request::in_folder(folder.path())).unwrap();
    settings.pipelines[0].source.clone()
}

/// The values of a change of an order.
fn order(number: usize) -> [String; 7] {
    let status = ["new", "paid", "packed", "sent"][number % 4];
    let (hour, minute, second) = (number / 3600 % 24, number / 60 % 60, number % 60);
    [
        (number * 7_919 % 1_000_000).to_string(),
        status.to_string(),
        format!("{}.{:02}", number % 1_000, number % 100),
        format!("customer-{:05}", number * 31 % 100_000),
        format!(
            "2026-03-01T{hour:02}:{minute:02}:{second:02}.{:06}Z",
            number % 1_000_000
        ),
        number.to_string(),
        ["I", "U", "U", "D"][number % 4].to_string(),
    ]
}

fn json_record(number: usize) -> String {
    let [id, status, amount, customer, at, seq, op] = order(number);
    format!(
        "{{\"order_id\": {id}, \"status\": \"{status}\", \"amount\": {amount}, \"customer\": \"{customer}\", \"updated_at\": \"{at}\", \"seq\": {seq}, \"op\": \"{op}\"}}"
    )
}

fn json_lines() -> String {
    (0..RECORDS)
        .map(|number| json_record(number) + "\n")
        .collect()
}

/// The orders with a hundred values in objects in them.
fn nested_lines() -> String {
    let record = |number: usize| {
        let whole =
            (0..30).map(|place| format!("\"i{place:02}\":{}", number * (place + 1) % 100_003));
        let floats = (0..30).map(|place| {
            let value = (number * (2 * place + 3) % 1_000_003) as f64 / 64.0;
            format!("\"f{place:02}\":{value}")
        });
        let texts =
            (0..30).map(|place| format!("\"s{place:02}\":\"v{place:02}-{}\"", number % 9_973));
        let ship = format!(
            "\"ship\":{{\"lat\":{},\"zone\":\"zone-{}\"}}",
            number % 90,
            number % 97
        );
        let fields: Vec<String> = whole.chain(floats).chain(texts).chain([ship]).collect();
        let order = json_record(number);
        let order = order.strip_suffix('}').unwrap();
        format!("{order}, \"payload\": {{{}}}}}\n", fields.join(","))
    };
    (0..RECORDS / 10).map(record).collect()
}

fn nested_hints() -> String {
    let fields = |letter: char, kind: &str| {
        let field = |place: usize| format!("{letter}{place:02}: {kind}");
        (0..30).map(field).collect::<Vec<_>>().join(", ")
    };
    format!(
        "{HINTS}, payload STRUCT<{}, {}, {}, ship: STRUCT<lat: BIGINT, zone: STRING>>",
        fields('i', "BIGINT"),
        fields('f', "DOUBLE"),
        fields('s', "STRING")
    )
}

fn csv() -> String {
    let header = "order_id,status,amount,customer,updated_at,seq,op\n".to_string();
    let record = |number| order(number).join(",") + "\n";
    header + &(0..RECORDS).map(record).collect::<String>()
}

fn parquet() -> Vec<u8> {
    let rows: RecordBatch = read("a.jsonl", json_lines().into(), &source(""));
    let mut writer = ArrowWriter::try_new(Vec::new(), rows.schema(), None).unwrap();
    writer.write(&rows).unwrap();
    writer.into_inner().unwrap()
}

fn read(path: &str, bytes: Bytes, source: &SourceSettings) -> RecordBatch {
    let schema = TableSchema::from_hints(HINTS).unwrap();
    let decoded = decode(path, bytes, &schema, source).unwrap();
    assert_eq!(decoded.rows.num_rows(), RECORDS);
    decoded.rows
}

fn bench(bencher: Bencher<'_, '_>, path: &str, bytes: impl Into<Bytes>, more: &str) {
    let (bytes, source) = (bytes.into(), source(more));
    bencher
        .counter(BytesCount::new(bytes.len()))
        .bench_local(|| read(path, bytes.clone(), &source));
}

/// Only the cutting into blocks, which one core does for all of them.
fn bench_blocks(bencher: Bencher<'_, '_>, path: &str, text: &str) {
    let source = source("");
    bencher
        .counter(BytesCount::new(text.len()))
        .bench_local(|| {
            let framing = Framing::of(path, &source).unwrap();
            let mut blocks = Blocks::new(text.as_bytes(), 4 << 20, framing);
            while let Some(block) = blocks.next_block().unwrap() {
                divan::black_box(block);
            }
        });
}

#[divan::bench]
fn blocks_of_json_lines(bencher: Bencher<'_, '_>) {
    bench_blocks(bencher, "a.jsonl", &json_lines());
}

#[divan::bench]
fn blocks_of_csv(bencher: Bencher<'_, '_>) {
    bench_blocks(bencher, "a.csv", &csv());
}

#[divan::bench]
fn blocks_of_csv_all_quoted(bencher: Bencher<'_, '_>) {
    let quoted = csv().replace(',', "\",\"").replace('\n', "\"\n\"");
    bench_blocks(bencher, "a.csv", format!("\"{quoted}\"").as_str());
}

#[divan::bench]
fn json_lines_all_alike(bencher: Bencher<'_, '_>) {
    bench(bencher, "a.jsonl", json_lines(), "");
}

/// Blanks that change from record to record, so that hardly one is laid out like those before it.
#[divan::bench]
fn json_lines_none_alike(bencher: Bencher<'_, '_>) {
    let record = |number: usize| {
        let blanks = " ".repeat(number % 97);
        json_record(number).replace("\"seq\"", &format!("{blanks}\"seq\"")) + "\n"
    };
    let text: String = (0..RECORDS).map(record).collect();
    bench(bencher, "a.jsonl", text, "");
}

/// A name in each record that no column takes.
#[divan::bench]
fn json_lines_rescued(bencher: Bencher<'_, '_>) {
    let record =
        |number: usize| json_record(number).replace("\"seq\"", "\"note\": 1, \"seq\"") + "\n";
    let text: String = (0..RECORDS).map(record).collect();
    bench(
        bencher,
        "a.jsonl",
        text,
        "schema_evolution_mode = \"rescue\"",
    );
}

#[divan::bench]
fn json_array(bencher: Bencher<'_, '_>) {
    let records: Vec<String> = (0..RECORDS).map(json_record).collect();
    let text = format!("[{}]", records.join(",\n"));
    bench(bencher, "a.json", text, "json.multi_line = true");
}

#[divan::bench]
fn json_lines_nested(bencher: Bencher<'_, '_>) {
    let (bytes, source) = (Bytes::from(nested_lines()), source(""));
    let schema = TableSchema::from_hints(&nested_hints()).unwrap();
    bencher
        .counter(BytesCount::new(bytes.len()))
        .bench_local(|| {
            let decoded = decode("a.jsonl", bytes.clone(), &schema, &source).unwrap();
            assert_eq!(decoded.rows.num_rows(), RECORDS / 10);
            decoded.rows
        });
}

#[divan::bench]
fn csv_plain(bencher: Bencher<'_, '_>) {
    bench(bencher, "a.csv", csv(), "");
}

#[divan::bench]
fn csv_utf16(bencher: Bencher<'_, '_>) {
    let units = csv().encode_utf16().collect::<Vec<_>>();
    let bytes: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
    bench(bencher, "a.csv", bytes, "csv.encoding = \"UTF-16LE\"");
}

#[divan::bench]
fn parquet_own_types(bencher: Bencher<'_, '_>) {
    bench(bencher, "a.parquet", parquet(), "");
}
