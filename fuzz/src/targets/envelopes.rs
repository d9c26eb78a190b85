//! Change data capture, every envelope over every text format.

use crate::input::Input;
use crate::laws::{assert_same_row, decoded, plain};
use crate::source::{EVOLUTIONS, Source};
use arrow::array::{Array, AsArray};
use landfall::change::OP;
use landfall::decode::Decoded;
use landfall::settings::{AbsentColumns, Envelope, Format};

const ENVELOPES: [Envelope; 9] = [
    Envelope::Debezium,
    Envelope::Dms,
    Envelope::DeltaCdf,
    Envelope::Maxwell,
    Envelope::Wal2Json,
    Envelope::SqlServer,
    Envelope::Canal,
    Envelope::GoldenGate,
    Envelope::Qlik,
];

const OPS: [&str; 7] = [
    "insert", "update", "delete", "truncate", "snapshot", "before", "control",
];

pub(super) fn envelopes(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let envelope = input.one_of(&ENVELOPES);
    let is_csv = input.flag() && !envelope.is_json_only();
    let (format, path) = match is_csv {
        false => (
            Format::Json,
            input.one_of(&["a.jsonl", "shop/orders/LOAD00000001.jsonl"]),
        ),
        true => (
            Format::Csv,
            input.one_of(&["20240331-120000001.csv", "LOAD00000001.csv"]),
        ),
    };
    let evolution = input.one_of(&EVOLUTIONS);
    let hints = input.one_of(&[
        "id BIGINT, status STRING, amount DECIMAL(10,2)",
        "id STRING, at TIMESTAMP, raw BINARY",
        "",
    ]);
    let mut source = Source::new(format, path, hints).in_modes(evolution, input.flag());
    source.settings.envelope = envelope;
    source.settings.keys = input
        .one_of(&[&["id"][..], &["id", "status"], &[]])
        .iter()
        .map(|key| key.to_string())
        .collect();
    source.settings.absent_columns = input.one_of(&[AbsentColumns::Null, AbsentColumns::Keep]);
    source.settings.unavailable_value = input.one_of(&[None, Some("gone")]).map(String::from);
    source.settings.json.multi_line = input.flag() && !is_csv;
    let source = source.with_own_columns();
    let text = input.text();
    let Ok(file) = decoded(&source, &text) else {
        return;
    };
    let ops = file
        .rows
        .column_by_name(OP)
        .expect("an envelope has it")
        .as_string::<i32>();
    for row in 0..file.rows.num_rows() {
        assert!(
            ops.is_valid(row) && OPS.contains(&ops.value(row)),
            "{:?}",
            ops.value(row)
        );
    }
    let is_nested = envelope.is_json_only() || envelope == Envelope::Debezium;
    if is_nested && !is_csv && !source.settings.json.multi_line {
        assert_lines_alone(&source, &text, &file);
    }
}

/// A record that holds its changes in objects of their own says the same wherever it stands.
fn assert_lines_alone(source: &Source, text: &[u8], file: &Decoded) {
    let (mut row, mut reject) = (0, 0);
    for line in text.split(|byte| *byte == b'\n') {
        let Ok(alone) = plain(source, &[b"\n", line].concat()) else {
            // What the first characters of a file betray is told of the file.
            return;
        };
        for other in 0..alone.rows.num_rows() {
            assert_same_row(&file.rows, row, &alone.rows, other);
            row += 1;
        }
        for other in &alone.rejects {
            let one = &file.rejects[reject];
            assert_eq!(
                (one.reason, &one.detail, &one.raw),
                (other.reason, &other.detail, &other.raw)
            );
            reject += 1;
        }
    }
    assert_eq!((row, reject), (file.rows.num_rows(), file.rejects.len()));
}
