//! Avro and Parquet: what is taken does not hang on the columns, and less of an Avro file is never taken for all of it.

use crate::input::Input;
use crate::laws::{decoded, plain};
use crate::source::{EVOLUTIONS, HINTS, Source};
use landfall::decode::Decoded;
use landfall::settings::{Format, SchemaEvolutionMode};

pub(super) fn avro(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let source = source(&mut input, Format::Avro, "a.avro");
    let Ok(file) = decoded(&source, input.rest()) else {
        return;
    };
    assert_any_columns(&source, input.rest(), &file);
    let bytes = input.rest();
    let longer = [bytes, b"\0"].concat();
    assert!(
        plain(&source, &longer).is_err(),
        "a byte behind the last block is damage"
    );
    if count(&file) > 0
        && let Some((_, shorter)) = bytes.split_last()
    {
        assert!(
            plain(&source, shorter).is_err(),
            "a file without its last byte is not whole"
        );
    }
}

pub(super) fn parquet(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let source = source(&mut input, Format::Parquet, "a.parquet");
    if let Ok(file) = decoded(&source, input.rest()) {
        assert_any_columns(&source, input.rest(), &file);
    }
}

fn source(input: &mut Input<'_>, format: Format, path: &str) -> Source {
    let hints = input.one_of(&HINTS);
    let evolution = input.one_of(&EVOLUTIONS);
    Source::new(format, path, hints).in_modes(evolution, input.flag())
}

/// Without columns every record is a row.
fn assert_any_columns(source: &Source, bytes: &[u8], file: &Decoded) {
    let none = Source::new(source.settings.format, &source.path, "")
        .in_modes(SchemaEvolutionMode::None, false);
    let none = plain(&none, bytes).expect("the framing does not depend on types");
    assert_eq!(count(&none), count(file));
}

fn count(file: &Decoded) -> usize {
    file.positions.len() + file.rejects.len()
}
