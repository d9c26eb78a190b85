//! What holds for the records of any file.

use crate::source::Source;
use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::compute::concat_batches;
use bytes::Bytes;
use landfall::change::{
    FileFault, OP, PRESENT_COLUMNS, ParkReason, Reject, RejectReason, SEQUENCE,
};
use landfall::decode::{
    Blocks, Decoded, Framing, begins_as_text, decode, decode_block, decode_in_parts, fault_of,
};
use landfall::schema::{NewColumn, merge_new_columns};
use landfall::settings::{Envelope, Format, SchemaEvolutionMode};
use std::cell::RefCell;
use std::collections::HashSet;

/// Decodes, and asserts what holds for every file: every record has one number, a second time gives the same, and columns
/// that are added take what was found for them.
pub(crate) fn decoded(source: &Source, bytes: &[u8]) -> Result<Decoded, FileFault> {
    let first = plain(source, bytes);
    let second = plain(source, bytes);
    match (&first, &second) {
        (Ok(first), Ok(second)) => {
            assert_same(first, second);
            assert_numbered(first);
            assert_parts(source, bytes, first);
            assert_settles(source, bytes, first);
        }
        (Err(first), Err(second)) => assert_eq!(first, second),
        _ => panic!("the second time it is {second:?} and not {first:?}"),
    }
    assert_blocks(source, bytes, &first);
    if let Err(fault) = &first {
        assert!(
            !fault.detail.is_empty() && !fault.detail.contains("BUG"),
            "{fault:?}"
        );
    }
    first
}

/// Decodes and asserts nothing.
pub(crate) fn plain(source: &Source, bytes: &[u8]) -> Result<Decoded, FileFault> {
    let bytes = Bytes::copy_from_slice(bytes);
    decode(&source.path, bytes, &source.schema, &source.settings)
}

/// Both say the same of every record.
pub(crate) fn assert_same(one: &Decoded, other: &Decoded) {
    assert_eq!(one.rows, other.rows);
    assert_eq!(one.positions, other.positions);
    assert_eq!(one.rejects, other.rejects);
    assert_eq!(one.new_columns, other.new_columns);
}

/// What is handed on in parts is the whole.
fn assert_parts(source: &Source, bytes: &[u8], whole: &Decoded) {
    let parts = RefCell::new(Vec::new());
    let rows_max = 1 + bytes.len() % 3;
    decode_in_parts(
        &source.path,
        Bytes::copy_from_slice(bytes),
        &source.schema,
        &source.settings,
        rows_max,
        &|part| parts.borrow_mut().push(part),
    )
    .expect("the whole is sound");
    let parts = parts.into_inner();
    assert_joined(&parts, whole);
    let last = parts.last().expect("there is a last part");
    assert_eq!(last.new_columns, whole.new_columns);
}

/// Blocks of a file, decoded each for itself, are the whole; where the framing of the whole is lost, the blocks tell the
/// same fault.
fn assert_blocks(source: &Source, bytes: &[u8], whole: &Result<Decoded, FileFault>) {
    let framing = Framing::of(&source.path, &source.settings);
    let Some(framing) = framing.filter(|_| begins_as_text(bytes)) else {
        return;
    };
    let mut blocks = Blocks::new(bytes, 1 + bytes.len() % 61, framing);
    let mut parts = Vec::new();
    let fault = loop {
        match blocks.next_block() {
            Ok(Some(block)) => match whole {
                Ok(_) => parts.push(
                    decode_block(&source.path, block, &source.schema, &source.settings)
                        .expect("the whole is sound"),
                ),
                Err(_) => {}
            },
            Ok(None) => break None,
            Err(error) => break Some(fault_of(&error).expect("bytes can be read")),
        }
    };
    let whole = match (whole, fault) {
        (Ok(whole), None) => whole,
        (Ok(_), Some(fault)) => panic!("the whole is sound, and a block is not: {fault:?}"),
        (Err(whole), fault) => {
            let of_framing = matches!(
                whole.reason,
                ParkReason::TruncatedStream | ParkReason::NotThisFormat | ParkReason::UnclosedQuote
            );
            return assert!(
                !of_framing || fault.as_ref() == Some(whole),
                "{fault:?} {whole:?}"
            );
        }
    };
    if parts.is_empty() {
        return assert_eq!(whole.positions.len() + whole.rejects.len(), 0);
    }
    assert_joined(&parts, whole);
    let new_columns = merge_new_columns(parts.iter().map(|part| part.new_columns.as_slice()));
    let new_columns = new_columns.into_iter().map(NewColumn::or_string).collect();
    let by_name = |mut columns: Vec<NewColumn>| {
        columns.sort_by(|one, other| one.name.cmp(&other.name));
        columns
    };
    assert_eq!(by_name(new_columns), by_name(whole.new_columns.clone()));
}

fn assert_joined(parts: &[Decoded], whole: &Decoded) {
    let rows = concat_batches(whole.rows.schema_ref(), parts.iter().map(|part| &part.rows));
    assert_eq!(rows.expect("all have the same columns"), whole.rows);
    let positions: Vec<_> = parts.iter().flat_map(|part| &part.positions).collect();
    assert!(positions.into_iter().eq(&whole.positions));
    let rejects: Vec<_> = parts.iter().flat_map(|part| &part.rejects).collect();
    assert!(rejects.into_iter().eq(&whole.rejects));
    let raw = parts
        .iter()
        .flat_map(|part| (0..part.positions.len()).map(|row| part.raw(row)));
    assert!(raw.eq((0..whole.positions.len()).map(|row| whole.raw(row))));
}

fn assert_numbered(decoded: &Decoded) {
    let rows: Vec<i64> = decoded.positions.iter().map(|row| row.file_row).collect();
    let rejects: Vec<i64> = decoded.rejects.iter().map(|row| row.file_row).collect();
    assert!(rows.is_sorted() && rejects.is_sorted());
    let mut numbers = [rows, rejects].concat();
    numbers.sort_unstable();
    assert!(
        numbers.iter().copied().eq(1..=numbers.len() as i64),
        "{numbers:?}"
    );
    for reject in &decoded.rejects {
        assert!(
            !reject.detail.is_empty() && !reject.detail.contains("BUG"),
            "{reject:?}"
        );
    }
}

/// The caller adds the new columns and decodes again: then nothing is new, and no record is refused that was not before.
fn assert_settles(source: &Source, bytes: &[u8], first: &Decoded) {
    if source.settings.schema_evolution_mode != SchemaEvolutionMode::AddNewColumns
        || first.new_columns.is_empty()
    {
        return;
    }
    let mut names = HashSet::new();
    let mut new = first.new_columns.iter();
    if !new.all(|column| names.insert(column.name.to_lowercase())) {
        // Of two names that differ in case the second is refused the second time.
        return;
    }
    let mut grown = source.clone();
    grown.schema = source.schema.extended(&first.new_columns);
    let again = plain(&grown, bytes).expect("the same file is read");
    assert_eq!(again.new_columns, []);
    // Records of Debezium may say of what type their values are.
    let is_typed = matches!(source.settings.format, Format::Avro | Format::Parquet)
        || source.settings.envelope == Envelope::Debezium;
    if is_typed {
        return assert_settles_typed(first, &again);
    }
    // A whole number that no DOUBLE is may stand beside fractions.
    let is_joined = |reject: &&Reject| {
        reject
            .detail
            .contains("has more digits than the type keeps")
    };
    if again.rejects.iter().any(|reject| is_joined(&reject)) {
        return;
    }
    // A record that was refused for a name may now be refused for a value before it.
    let refused = |file: &Decoded| -> Vec<i64> {
        file.rejects.iter().map(|reject| reject.file_row).collect()
    };
    assert_eq!(refused(&again), refused(first), "{:?}", again.rejects);
    assert_eq!(again.positions, first.positions);
    let known = first.rows.num_columns() - 1;
    // While a key has no column, a row before an update cannot be told to have another key.
    let has_keys = source
        .settings
        .keys
        .iter()
        .all(|key| source.schema.columns.index_of(key).is_ok());
    for column in 0..known {
        let name = first.rows.schema_ref().field(column).name();
        if !has_keys && [OP, SEQUENCE].contains(&name.as_str()) {
            continue;
        }
        let (before, after) = (first.rows.column(column), again.rows.column(column));
        match name == PRESENT_COLUMNS {
            true => assert_eq!(present(after), present(before)),
            false => assert_eq!(after, before),
        }
    }
}

/// The columns that each record carries; known ones stand first in a list.
fn present(column: &ArrayRef) -> Vec<Option<Vec<String>>> {
    let list = |text: &str| -> Vec<String> {
        let mut names: Vec<String> = serde_json::from_str(text).expect("it is a list of names");
        names.sort_unstable();
        names
    };
    column
        .as_string::<i32>()
        .iter()
        .map(|text| text.map(list))
        .collect()
}

/// A new column has the type that the file has for it, so that a value may not be what a table takes of that type, such as a
/// time finer than a microsecond. Nothing else may happen to a record.
fn assert_settles_typed(first: &Decoded, again: &Decoded) {
    let number = |reject: &Reject| reject.file_row;
    let before: HashSet<i64> = first.rejects.iter().map(number).collect();
    let after: HashSet<i64> = again.rejects.iter().map(number).collect();
    assert!(before.is_subset(&after));
    for reject in again
        .rejects
        .iter()
        .filter(|reject| !before.contains(&reject.file_row))
    {
        assert!(
            matches!(
                reject.reason,
                RejectReason::TypeMismatch | RejectReason::Overflow | RejectReason::DecimalScale
            ),
            "{reject:?}"
        );
    }
    let records = |file: &Decoded| file.positions.len() + file.rejects.len();
    assert_eq!(records(first), records(again));
}

/// A row of one decoded file is that of another.
pub(crate) fn assert_same_row(rows: &RecordBatch, row: usize, others: &RecordBatch, other: usize) {
    assert_eq!(rows.slice(row, 1), others.slice(other, 1));
}

/// The bytes of the file in which a row stands.
pub(crate) fn bytes_of(decoded: &Decoded, row: usize) -> &[u8] {
    let position = &decoded.positions[row];
    let start = position.byte_offset.expect("a text has offsets") as usize;
    &decoded.text[start..start + position.byte_length as usize]
}
