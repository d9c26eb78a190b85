//! Avro object files: the types of the file, taken into the types of the columns exactly.
//!
//! The values become Arrow arrays of the file's own types, and from there on they are read as those of Parquet are. Either
//! every block of a file is sound or nothing of it is taken; a record that no column can hold is refused alone.

mod blocks;
mod datum;
mod schema;

pub(super) use blocks::{MAGIC, end_of_blocks};

use super::arrow_rows::{read_batch, read_row, targets};
use super::arrow_text::row_json;
use super::columns::Column;
use super::rows::{Place, RecordFault, Rows};
use super::value::Cell;
use crate::change::{FileFault, ParkReason};
use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema, SchemaRef};
use blocks::Block;
use datum::{Corrupt, Datums, FREE_VALUES_MAX};
use schema::Node;
use std::sync::Arc;

/// Rows of one batch.
const BATCH_ROWS: usize = 8192;

/// The records of a file in memory.
#[derive(Default)]
pub(super) struct Loaded {
    batches: Vec<RecordBatch>,
    /// By the number of the record from 0, in its order: why no column can hold it.
    refused: Vec<(usize, RecordFault)>,
}

/// Reads the whole file; nothing is taken when any of it cannot be read.
pub(super) fn load(bytes: &[u8]) -> Result<Loaded, FileFault> {
    let (schema, mut blocks) = blocks::open(bytes)?;
    let fields = schema::fields(schema)
        .map_err(|why| FileFault::new(ParkReason::NotThisFormat, format!("Avro: {why}")))?;
    let mut loader = Loader::new(&fields);
    while let Some(block) = blocks.next()? {
        loader.read(&block).map_err(|why| {
            let record = loader.records + 1;
            let start = block.start;
            let detail =
                format!("the block at byte {start} of the Avro file, record {record}: {why}");
            FileFault::new(ParkReason::Unreadable, detail)
        })?;
        if loader.waiting >= BATCH_ROWS {
            loader.finish_batch()?;
        }
    }
    loader.finish_batch()?;
    Ok(loader.loaded)
}

struct Loader<'s> {
    fields: &'s [(String, Node)],
    schema: SchemaRef,
    columns: Vec<Column>,
    /// Rows in `columns`.
    waiting: usize,
    records: usize,
    free_values: usize,
    loaded: Loaded,
}

impl<'s> Loader<'s> {
    fn new(fields: &'s [(String, Node)]) -> Self {
        let schema: Vec<_> = fields
            .iter()
            .map(|(name, node)| Field::new(name, node.data_type(), true))
            .collect();
        let mut loader = Loader {
            fields,
            schema: Arc::new(Schema::new(schema)),
            columns: Vec::new(),
            waiting: 0,
            records: 0,
            free_values: FREE_VALUES_MAX,
            loaded: Loaded::default(),
        };
        loader.columns = loader.empty_columns();
        loader
    }

    fn empty_columns(&self) -> Vec<Column> {
        let fields = self.schema.fields().iter();
        fields.map(|field| Column::new(field.data_type())).collect()
    }

    fn read(&mut self, block: &Block) -> Result<(), Corrupt> {
        let mut datums = Datums::new(&block.data, self.free_values);
        for _ in 0..block.records {
            let start = datums.place();
            self.read_record(&mut datums)?;
            datums.count_free(start)?;
            self.records += 1;
            self.waiting += 1;
        }
        self.free_values = datums.free_values();
        match datums.is_at_end() {
            true => Ok(()),
            false => Err("the block is longer than its records".into()),
        }
    }

    fn read_record(&mut self, datums: &mut Datums<'_>) -> Result<(), Corrupt> {
        let mut refusal = None;
        for ((name, node), column) in self.fields.iter().zip(&mut self.columns) {
            let cell: Cell<'_> = datums
                .value(node)
                .map_err(|why| format!("column {name}: {why}"))?;
            column.push(cell);
            if let Some(fault) = datums.fault.take() {
                let detail = format!("column {name} {}", fault.detail);
                refusal.get_or_insert(RecordFault::new(fault.reason, detail));
            }
        }
        if let Some(fault) = refusal {
            self.loaded.refused.push((self.records, fault));
        }
        Ok(())
    }

    fn finish_batch(&mut self) -> Result<(), FileFault> {
        if self.waiting == 0 {
            return Ok(());
        }
        let empty = self.empty_columns();
        let full = std::mem::replace(&mut self.columns, empty);
        let arrays: Result<Vec<ArrayRef>, _> = full
            .into_iter()
            .zip(self.fields)
            .map(|(column, (name, _))| column.finish(name))
            .collect();
        let options = RecordBatchOptions::new().with_row_count(Some(self.waiting));
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), arrays?, &options);
        self.loaded.batches.push(batch.map_err(|error| {
            let detail = format!("BUG: the rows of Avro cannot be built: {error}");
            FileFault::new(ParkReason::Unreadable, detail)
        })?);
        self.waiting = 0;
        Ok(())
    }
}

/// Puts the records of a loaded file where they belong.
pub(super) fn read<'a>(loaded: &'a Loaded, rows: &mut Rows<'a>) {
    let mut refused = loaded.refused.iter().peekable();
    let mut number = 0;
    for batch in &loaded.batches {
        let behind = number + batch.num_rows();
        if refused.peek().is_none_or(|(record, _)| *record >= behind) {
            read_batch(batch, &[], rows);
            number = behind;
            continue;
        }
        let targets = targets(batch, rows);
        for row in 0..batch.num_rows() {
            match refused.next_if(|(record, _)| *record == number) {
                Some((_, fault)) => {
                    rows.refuse(Place::default(), fault.clone(), row_json(batch, row));
                }
                None => read_row(batch, &[], &targets, row, rows),
            }
            number += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::RejectReason::*;
    use crate::decode::testing::*;
    use crate::settings::{Format, SchemaEvolutionMode};
    use std::io::Write;

    const MARK: [u8; 16] = *b"0123456789abcdef";

    fn case(ddl: &str) -> Case {
        Case::new(Format::Avro, "orders.avro", ddl)
    }

    fn number(value: i64) -> Vec<u8> {
        let mut rest = ((value << 1) ^ (value >> 63)) as u64;
        let mut bytes = Vec::new();
        while rest > 0x7F {
            bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
        bytes
    }

    fn prefixed(bytes: &[u8]) -> Vec<u8> {
        [number(bytes.len() as i64), bytes.to_vec()].concat()
    }

    fn block(records: i64, packed: &[u8]) -> Vec<u8> {
        [number(records), prefixed(packed), MARK.to_vec()].concat()
    }

    fn header(fields: &str, codec: &str) -> Vec<u8> {
        let schema = format!(r#"{{"type": "record", "name": "r", "fields": [{fields}]}}"#);
        let pairs = [("avro.schema", schema.as_str()), ("avro.codec", codec)];
        let mut bytes = [MAGIC, &number(2)].concat();
        for (key, value) in pairs {
            bytes.extend(prefixed(key.as_bytes()));
            bytes.extend(prefixed(value.as_bytes()));
        }
        bytes.extend(number(0));
        bytes.extend(MARK);
        bytes
    }

    /// A file of one block and one field `c`.
    fn file(json: &str, values: &[&[u8]]) -> Vec<u8> {
        let field = format!(r#"{{"name": "c", "type": {json}}}"#);
        let data = values.concat();
        [header(&field, "null"), block(values.len() as i64, &data)].concat()
    }

    /// Reads one column of the file into a column of the type.
    fn read_as(json: &str, values: &[&[u8]], ddl: &str) -> crate::decode::Decoded {
        case(&format!("c {ddl}")).read(file(json, values))
    }

    #[test]
    fn every_cut_of_a_file_parks_it_unless_it_ends_behind_a_block() {
        let longs = |values: &[i64]| values.iter().flat_map(|v| number(*v)).collect::<Vec<_>>();
        let field = r#"{"name": "c", "type": "long"}"#;
        let head = header(field, "null");
        let first = [&head[..], &block(2, &longs(&[1, 200]))].concat();
        let whole = [&first[..], &block(1, &longs(&[3]))].concat();
        assert_eq!(
            column(&case("c BIGINT").read(&whole), "c"),
            ["1", "200", "3"]
        );
        for cut in 0..whole.len() {
            if cut == head.len() || cut == first.len() {
                continue;
            }
            let (reason, detail) = case("c BIGINT").fault(&whole[..cut]);
            assert_eq!(
                reason,
                ParkReason::TruncatedStream,
                "cut at {cut}: {detail}"
            );
        }
        assert_eq!(case("c BIGINT").read(&head).rows.num_rows(), 0);
    }

    #[test]
    fn what_is_no_avro_file_or_has_no_sound_schema_is_refused() {
        for (bytes, reason) in [
            (b"{\"a\": 1}\n".to_vec(), ParkReason::NotThisFormat),
            (
                header(r#"{"name": "c", "type": "no"}"#, "null"),
                ParkReason::NotThisFormat,
            ),
            (
                header(r#"{"name": "c", "type": "int"}"#, "lzma"),
                ParkReason::Unreadable,
            ),
            (
                [MAGIC, &number(0), &MARK].concat(),
                ParkReason::NotThisFormat,
            ),
            (
                [MAGIC, &number(i64::MIN)].concat(),
                ParkReason::TruncatedStream,
            ),
        ] {
            assert_eq!(case("c INT").fault(&bytes).0, reason);
        }
        let avro = file("\"int\"", &[b"\x02"]);
        assert_eq!(
            Case::json("c INT").fault(&avro).0,
            ParkReason::NotThisFormat
        );
        let auto = Case::new(Format::Auto, "data", "c INT");
        assert_eq!(column(&auto.read(&avro), "c"), ["1"]);
        let packed = zstd::encode_all(&avro[..], 1).unwrap();
        assert_eq!(column(&auto.read(&packed), "c"), ["1"]);
        let named = Case::new(Format::Auto, "a.avro", "c INT");
        assert_eq!(named.fault("{}").0, ParkReason::NotThisFormat);
    }

    #[test]
    fn blocks_that_are_not_what_they_say_park_the_file() {
        let field = r#"{"name": "c", "type": "int"}"#;
        let mut foreign = block(1, b"\x02");
        *foreign.last_mut().unwrap() = 0;
        for (codec, block, reason, why) in [
            (
                "null",
                foreign,
                ParkReason::TruncatedStream,
                "not that of the file",
            ),
            (
                "null",
                block(-1, b"\x02"),
                ParkReason::TruncatedStream,
                "count is negative",
            ),
            (
                "null",
                block(1, b"\x02\x02"),
                ParkReason::Unreadable,
                "longer than its records",
            ),
            (
                "null",
                block(2, b"\x02"),
                ParkReason::Unreadable,
                "record 2: column c: a number",
            ),
            (
                "deflate",
                block(1, b"\xFF\xFF"),
                ParkReason::TruncatedStream,
                "is damaged",
            ),
            (
                "snappy",
                block(1, b"\0\0\0\0\0"),
                ParkReason::Unreadable,
                "record 1",
            ),
            (
                "snappy",
                block(1, b"\x01\0\x02\0\0\0\0"),
                ParkReason::TruncatedStream,
                "sum",
            ),
            (
                "snappy",
                block(1, b"\0"),
                ParkReason::TruncatedStream,
                "too short",
            ),
            (
                "zstandard",
                block(1, b"\x02"),
                ParkReason::TruncatedStream,
                "is damaged",
            ),
        ] {
            let (found, detail) = case("c INT").fault([header(field, codec), block].concat());
            assert_eq!(found, reason, "{detail}");
            assert!(detail.contains(why), "{detail}");
        }
        let empty = header("", "null");
        let many = [&empty[..], &block(i64::MAX, b"")].concat();
        assert!(
            case("c INT")
                .fault(many)
                .1
                .contains("too many values without bytes")
        );
    }

    #[test]
    fn a_block_that_grows_beyond_the_limit_is_refused_before_it_is_unpacked() {
        let field = r#"{"name": "c", "type": "bytes"}"#;
        // Four bytes that promise four gigabytes.
        let bomb = block(1, b"\xFF\xFF\xFF\xFF\x0F\0\0\0\0");
        let (reason, _) = case("c BINARY").fault([header(field, "snappy"), bomb].concat());
        assert_eq!(reason, ParkReason::TruncatedStream);
    }

    #[test]
    fn records_that_no_column_holds_are_refused_alone() {
        let decoded = read_as("\"string\"", &[b"\x02a", b"\x04a\xFF", b"\x02c"], "STRING");
        assert_eq!(rejects(&decoded), [(2, InvalidUtf8)]);
        assert_eq!(column(&decoded, "c"), ["a", "c"]);
        assert_eq!(
            decoded.rejects[0].detail,
            "column c holds a text that is not UTF-8"
        );
        assert_eq!(decoded.rejects[0].raw, "{\"c\":\"a\\\\xFF\"}");
        assert_eq!(decoded.rejects[0].file_line, None);
        let decimal = r#"{"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}"#;
        let values: [&[u8]; 3] = [b"\x04\x27\x0F", b"\x04\x27\x10", b"\x02\xFF"];
        let decoded = read_as(decimal, &values, "DECIMAL(4,2)");
        assert_eq!(column(&decoded, "c"), ["99.99", "-0.01"]);
        assert_eq!(rejects(&decoded), [(2, Overflow)]);
        let decoded = read_as(decimal, &values, "DECIMAL(3,1)");
        assert_eq!(
            rejects(&decoded),
            [(1, DecimalScale), (2, Overflow), (3, DecimalScale)]
        );
        assert_eq!(
            rejects(&read_as("\"int\"", &[b"\x80\x02"], "TINYINT")),
            [(1, Overflow)]
        );
    }

    #[test]
    fn instants_are_micros_and_what_is_finer_is_refused() {
        let time = |kind: &str| format!(r#"{{"type": "long", "logicalType": "{kind}"}}"#);
        let micros = number(1_500_000);
        let nanos = number(1_500_000_001);
        for (kind, value, ddl, shown) in [
            (
                "timestamp-millis",
                &micros,
                "TIMESTAMP",
                "1970-01-01T00:25:00Z",
            ),
            (
                "timestamp-micros",
                &micros,
                "TIMESTAMP",
                "1970-01-01T00:00:01.500Z",
            ),
            (
                "timestamp-nanos",
                &micros,
                "TIMESTAMP",
                "1970-01-01T00:00:00.001500Z",
            ),
            (
                "local-timestamp-micros",
                &micros,
                "TIMESTAMP_NTZ",
                "1970-01-01T00:00:01.500",
            ),
            (
                "timestamp-nanos",
                &nanos,
                "STRING",
                "1970-01-01T00:00:01.500000001Z",
            ),
            ("time-micros", &micros, "STRING", "00:00:01.500"),
        ] {
            let decoded = read_as(&time(kind), &[value], ddl);
            assert_eq!(
                column(&decoded, "c"),
                [shown],
                "{kind} {:?}",
                decoded.rejects
            );
        }
        for (kind, ddl, reason) in [
            ("timestamp-nanos", "TIMESTAMP", TypeMismatch),
            ("local-timestamp-micros", "TIMESTAMP", AmbiguousTimestamp),
            ("timestamp-micros", "TIMESTAMP_NTZ", TypeMismatch),
        ] {
            let decoded = read_as(&time(kind), &[&nanos], ddl);
            assert_eq!(rejects(&decoded), [(1, reason)], "{kind}");
        }
    }

    #[test]
    fn new_columns_get_the_types_of_the_file_and_its_values() {
        let fields = r#"
            {"name": "n", "type": ["null", "int"]}, {"name": "e", "type": {"type": "enum", "name": "e", "symbols": ["A", "B"]}},
            {"name": "u", "type": {"type": "fixed", "name": "u", "size": 16, "logicalType": "uuid"}},
            {"name": "l", "type": {"type": "array", "items": ["null", "long"]}},
            {"name": "m", "type": {"type": "map", "values": "string"}},
            {"name": "s", "type": {"type": "record", "name": "s", "fields": [{"name": "x", "type": "double"}]}},
            {"name": "d", "type": {"type": "fixed", "name": "d", "size": 2, "logicalType": "decimal", "precision": 4, "scale": 1}},
            {"name": "v", "type": ["long", "string", "s"]}, {"name": "z", "type": "null"},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}}"#;
        let half = [&[0; 6][..], &[0xE0, 0x3F]].concat();
        let record = [
            b"\x02\x02\x02",
            &[7; 16][..],
            b"\x04\x02\x02\0\0",
            b"\x02\x02k\x02v\0",
            &half,
            b"\xFF\xF6",
            b"\x04",
            &half,
            b"\x02",
        ]
        .concat();
        let bytes = [header(fields, "null"), block(1, &record)].concat();
        let found = case("a INT").read(&bytes);
        let expected = [
            ("n", "INT", "1"),
            ("e", "STRING", "B"),
            ("u", "STRING", "07070707-0707-0707-0707-070707070707"),
            ("l", "ARRAY<BIGINT>", "[1, ]"),
            ("m", "MAP<STRING, STRING>", "{k: v}"),
            ("s", "STRUCT<x: DOUBLE>", "{x: 0.5}"),
            ("d", "DECIMAL(4,1)", "-1.0"),
            ("v", "STRING", "{\"x\":0.5}"),
            ("day", "DATE", "1970-01-02"),
        ];
        let types: Vec<_> = expected
            .iter()
            .map(|(name, ddl, _)| (name.to_string(), ddl.to_string()))
            .collect();
        assert_eq!(new_columns(&found), types);
        let mut grown = case("a INT");
        grown.schema = grown.schema.extended(&found.new_columns);
        let decoded = grown.read(&bytes);
        for (name, _, shown) in expected {
            assert_eq!(column(&decoded, name), [shown], "{name}");
        }
        let rescued = case("a INT")
            .evolution(SchemaEvolutionMode::Rescue)
            .read(&bytes);
        assert!(column(&rescued, "_rescued_data")[0].contains("\"d\":-1.0"));
        let hinted = case("v STRUCT<x: DOUBLE>, n STRING, day STRING").read(&bytes);
        assert_eq!(column(&hinted, "v"), ["{x: 0.5}"]);
        assert_eq!(column(&hinted, "day"), ["1970-01-02"]);
    }

    #[test]
    fn a_map_with_a_key_twice_is_refused() {
        let map = r#"{"type": "map", "values": "int"}"#;
        let decoded = read_as(map, &[b"\x04\x02k\x02\x02k\x04\0"], "MAP<STRING, INT>");
        assert_eq!(rejects(&decoded), [(1, TypeMismatch)]);
    }

    #[test]
    fn more_rows_than_one_batch_keep_their_numbers_in_every_codec() {
        let field = r#"{"name": "c", "type": "int"}"#;
        let data: Vec<u8> = (0..9000).flat_map(number).collect();
        let deflated = {
            let level = flate2::Compression::default();
            let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), level);
            encoder.write_all(&data).unwrap();
            encoder.finish().unwrap()
        };
        let bzip2 = {
            let level = bzip2::Compression::default();
            let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), level);
            encoder.write_all(&data).unwrap();
            encoder.finish().unwrap()
        };
        let xz = {
            let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
            encoder.write_all(&data).unwrap();
            encoder.finish().unwrap()
        };
        let snappy = {
            let mut sum = flate2::Crc::new();
            sum.update(&data);
            let packed = snap::raw::Encoder::new().compress_vec(&data).unwrap();
            [&packed[..], &sum.sum().to_be_bytes()].concat()
        };
        let zstandard = zstd::encode_all(&data[..], 1).unwrap();
        for (codec, packed) in [
            ("null", &data),
            ("deflate", &deflated),
            ("bzip2", &bzip2),
            ("xz", &xz),
            ("snappy", &snappy),
            ("zstandard", &zstandard),
        ] {
            let blocks = [
                header(field, codec),
                block(9000, packed),
                block(9000, packed),
            ];
            let decoded = case("c SMALLINT").read(blocks.concat());
            assert_eq!(
                decoded.positions.last().unwrap().file_row,
                18_000,
                "{codec}"
            );
            assert_eq!(column(&decoded, "c")[17_999], "8999", "{codec}");
            let longer = [packed, &b"xxxxx"[..]].concat();
            let blocks = [header(field, codec), block(9000, &longer)].concat();
            assert!(case("c SMALLINT").try_read(blocks).is_err(), "{codec}");
        }
    }

    #[test]
    fn damaged_files_never_panic_and_give_all_records_or_none() {
        let fields = r#"{"name": "a", "type": ["null", "string"]}, {"name": "b", "type": {"type": "array", "items": "int"}},
            {"name": "c", "type": {"type": "map", "values": ["double", "boolean"]}}"#;
        let record = b"\x02\x04xy\x04\x02\x04\0\x02\x02k\x02\x01\0";
        let whole = [
            header(fields, "null"),
            block(2, &[&record[..], record].concat()),
        ]
        .concat();
        assert_eq!(case("a STRING").read(&whole).rows.num_rows(), 2);
        for place in 0..whole.len() {
            for change in [1, 2, 0x10, 0x80, 0xFF] {
                let mut damaged = whole.clone();
                damaged[place] ^= change;
                if let Ok(decoded) = case("a STRING").try_read(&damaged) {
                    let records = decoded.positions.len() + decoded.rejects.len();
                    assert!(records <= 2, "byte {place}");
                }
            }
        }
    }
}
