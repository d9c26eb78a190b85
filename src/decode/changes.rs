//! JSON records of an envelope that hold their columns in objects of their own: each change becomes a row or a reject.
//!
//! A change is a record of its own, with its own number and, where several stand in one record, its own text.

use super::rows::{Place, RecordFault, Rows};
use super::token::{self, Member, SyntaxFault};
use crate::envelope::{Change, Part, RecordReader};
use crate::settings::SourceSettings;

/// Reads the records of one file.
pub(super) struct ChangeReader<'a> {
    records: RecordReader<'a>,
    members: Vec<Member<'a>>,
}

impl<'a> ChangeReader<'a> {
    /// `None` where a record is a row, whatever its envelope.
    pub(super) fn of(settings: &SourceSettings) -> Option<Self> {
        let unavailable = settings.unavailable_value.as_deref();
        settings.envelope.has_nested_json().then(|| ChangeReader {
            records: RecordReader::new(settings.envelope, &settings.keys, unavailable),
            members: Vec::new(),
        })
    }

    /// Reads the record at `place`, all of it; a fault means that it is no JSON object.
    pub(super) fn read(
        &mut self,
        record: &'a str,
        place: Place,
        rows: &mut Rows<'a>,
    ) -> Result<(), SyntaxFault> {
        let parts = match record.trim_ascii() {
            "null" => vec![self.records.tombstone(record)],
            _ => {
                token::object_text(record, &mut self.members)?;
                self.records.changes(record, &self.members)
            }
        };
        assert!(!parts.is_empty(), "BUG: a record is at least one change");
        for part in parts {
            take(part, record, place, rows);
        }
        Ok(())
    }
}

fn take<'a>(part: Part<'a>, record: &'a str, place: Place, rows: &mut Rows<'a>) {
    let place = place_of(part.text, record, place);
    match part.change.and_then(|change| put(&change, rows)) {
        Ok(()) => rows.take(place),
        Err(fault) => rows.refuse_text(place, fault),
    }
}

fn put<'a>(change: &Change<'a>, rows: &mut Rows<'a>) -> Result<(), RecordFault> {
    for (name, value) in &change.columns {
        match rows.index_of(name) {
            Some(index) => rows.set(index, value)?,
            None => rows.set_unknown(name, value)?,
        }
    }
    rows.set_change(change);
    Ok(())
}

/// Where a slice of a record stands.
fn place_of(part: &str, record: &str, place: Place) -> Place {
    let behind = (part.as_ptr() as usize).saturating_sub(record.as_ptr() as usize);
    Place {
        line: place.line,
        offset: place.offset.map(|offset| offset + behind),
        length: part.len(),
    }
}

#[cfg(test)]
mod tests {
    use crate::change::RejectReason::*;
    use crate::decode::testing::*;
    use crate::settings::Envelope;

    const HINTS: &str = "id BIGINT, status STRING, amount DECIMAL(10,2)";

    fn debezium(hints: &str) -> Case {
        Case::json(hints).of(Envelope::Debezium, &["id"])
    }

    fn event(op: &str, before: &str, after: &str, lsn: u64) -> String {
        format!(
            "{{\"before\":{before},\"after\":{after},\"source\":{{\"lsn\":{lsn}}},\"op\":\"{op}\",\"ts_ms\":1}}\n"
        )
    }

    /// A record with a schema of one column of this type.
    fn typed(field: &str, value: &str) -> String {
        format!(
            "{{\"schema\":{{\"fields\":[{{\"field\":\"after\",\"fields\":[{{\"field\":\"v\",{field}}}]}}]}},\
             \"payload\":{{\"after\":{{\"v\":{value}}},\"source\":{{\"lsn\":1}},\"op\":\"c\"}}}}\n"
        )
    }

    #[test]
    fn a_record_that_is_no_change_is_refused_and_the_others_are_not() {
        let text = [
            "{\"id\":1}\n".to_string(),
            event("x", "null", "{\"id\":1}", 1),
            event("c", "null", "null", 2),
            event("u", "null", "[1]", 3),
            "{\"schema\":null,\"payload\":7}\n".to_string(),
            "{\"op\":\"c\",\"after\":{\"id\":1}\n".to_string(),
            "[null]\n".to_string(),
            event("c", "null", "{\"id\":\"x\"}", 4),
            event("c", "null", "{\"id\":1,\"_op\":\"c\"}", 5),
            event("c", "null", "{\"id\":1}", 6),
        ];
        let decoded = debezium(HINTS).read(text.concat());
        let expected = [
            Malformed,
            UnknownOp,
            Malformed,
            Malformed,
            Malformed,
            Malformed,
            NotAnObject,
            TypeMismatch,
            InvalidColumnName,
        ];
        let numbered: Vec<_> = (1..).zip(expected).collect();
        assert_eq!(rejects(&decoded), numbered);
        assert_eq!(decoded.rejects[1].raw, text[1].trim_end());
        assert_eq!(column(&decoded, "_op"), ["insert"]);
        assert_eq!(decoded.positions[0].file_row, 10);
    }

    #[test]
    fn an_update_of_a_document_without_the_whole_of_it_is_refused() {
        let text = "{\"op\":\"u\",\"after\":null,\"updateDescription\":{\"updatedFields\":\"{}\"},\"source\":{\"ord\":1,\"ts_ms\":5}}\n\
                    {\"op\":\"u\",\"after\":\"{\\\"id\\\":{\\\"$numberLong\\\":\\\"7\\\"}}\",\"source\":{\"ord\":1,\"ts_ms\":5}}\n";
        let decoded = debezium(HINTS).read(text);
        assert_eq!(rejects(&decoded), [(1, UnsupportedOp)]);
        assert_eq!(column(&decoded, "id"), ["7"]);
    }

    #[test]
    fn records_that_change_no_row_are_control() {
        let text = [
            "null",
            " null ",
            "{\"schema\":null,\"payload\":null}",
            "{\"key\":{\"id\":1},\"value\":null}",
            "{\"ts_ms\":5}",
            "{\"status\":\"BEGIN\",\"id\":\"7:1\",\"ts_ms\":5}",
            "{\"source\":{},\"databaseName\":\"shop\",\"ddl\":\"ALTER TABLE x\"}",
            "{\"op\":\"m\",\"source\":{\"lsn\":4},\"message\":{}}",
        ];
        let decoded = debezium(HINTS).read(text.join("\n"));
        assert!(decoded.rejects.is_empty());
        assert_eq!(column(&decoded, "_op"), ["control"; 8]);
        assert_eq!(column(&decoded, "id"), ["-"; 8]);
        assert_eq!(column(&decoded, "_sequence"), ["-"; 8]);
        assert_eq!(column(&decoded, "_envelope")[4], "{\"ts_ms\":5}");
    }

    #[test]
    fn rows_before_and_after_go_where_they_belong() {
        let text = [
            event(
                "r",
                "null",
                "{\"id\":1,\"status\":\"new\",\"amount\":\"1.50\"}",
                1,
            ),
            event(
                "u",
                "{\"id\":1,\"status\":null}",
                "{\"id\":1,\"status\":\"paid\",\"amount\":\"__debezium_unavailable_value\"}",
                2,
            ),
            event("d", "{\"id\":1,\"status\":null}", "null", 3),
            event("t", "null", "null", 4),
        ];
        let decoded = debezium(HINTS).read(text.concat());
        assert!(decoded.rejects.is_empty(), "{:?}", decoded.rejects);
        assert_eq!(
            column(&decoded, "_op"),
            ["snapshot", "update", "delete", "truncate"]
        );
        assert_eq!(column(&decoded, "id"), ["1", "1", "1", "-"]);
        assert_eq!(column(&decoded, "amount"), ["1.50", "-", "-", "-"]);
        assert_eq!(
            column(&decoded, "_present_columns"),
            ["-", "[\"id\",\"status\"]", "-", "-"]
        );
        assert_eq!(column(&decoded, "_before")[1], "{\"id\":1,\"status\":null}");
        assert_eq!(
            column(&decoded, "_envelope")[1],
            "{\"source\":{\"lsn\":2},\"op\":\"u\",\"ts_ms\":1}"
        );
        assert!(decoded.new_columns.is_empty());
    }

    #[test]
    fn a_column_of_the_row_may_begin_with_two_underscores() {
        let text = event("c", "null", "{\"id\":1,\"__op\":\"x\"}", 1);
        let decoded = debezium("id BIGINT, __op STRING").read(text);
        assert_eq!(column(&decoded, "__op"), ["x"]);
        assert_eq!(column(&decoded, "_op"), ["insert"]);
    }

    #[test]
    fn an_update_of_the_key_is_two_records_with_one_text() {
        let text = [
            event(
                "u",
                "{\"id\":1,\"status\":\"a\"}",
                "{\"id\":2,\"status\":\"b\"}",
                7,
            ),
            event(
                "u",
                "{\"id\":1,\"status\":\"a\"}",
                "{\"id\":1,\"status\":\"b\"}",
                8,
            ),
        ];
        let decoded = debezium(HINTS).read(text.concat());
        assert_eq!(column(&decoded, "_op"), ["delete", "update", "update"]);
        assert_eq!(column(&decoded, "id"), ["1", "2", "1"]);
        let sequences = column(&decoded, "_sequence");
        assert!(sequences[0] == sequences[1] && sequences[1] < sequences[2]);
        let rows: Vec<i64> = decoded
            .positions
            .iter()
            .map(|place| place.file_row)
            .collect();
        assert_eq!(rows, [1, 2, 3]);
        assert_eq!(
            (decoded.raw(0), decoded.raw(1)),
            (text[0].trim_end().into(), text[0].trim_end().into())
        );
    }

    #[test]
    fn unwrapped_records_say_what_they_do_in_columns_of_two_underscores() {
        let text = "{\"id\":7,\"status\":\"x\",\"__deleted\":\"false\",\"__op\":\"u\",\"__lsn\":5}\n\
                    {\"id\":7,\"status\":null,\"__deleted\":\"true\",\"__source_lsn\":6}\n\
                    {\"id\":7,\"__deleted\":\"perhaps\",\"__lsn\":7}\n\
                    {\"id\":7,\"__op\":\"c\",\"__source_ts_ms\":7}\n";
        let decoded = debezium(HINTS).read(text);
        assert_eq!(rejects(&decoded), [(3, UnknownOp)]);
        assert_eq!(column(&decoded, "_op"), ["update", "delete", "insert"]);
        let sequences = column(&decoded, "_sequence");
        assert!(
            sequences[0] < sequences[1] && sequences[2] == "-",
            "{sequences:?}"
        );
        assert_eq!(
            column(&decoded, "_envelope")[1],
            "{\"__deleted\":\"true\",\"__source_lsn\":6}"
        );
        let csv = "id,status,__op,__lsn\n7,x,u,5\n8,,,6\n9,y,q,7\n";
        let decoded = Case::csv(HINTS).of(Envelope::Debezium, &["id"]).read(csv);
        assert_eq!(rejects(&decoded), [(3, UnknownOp)]);
        assert_eq!(column(&decoded, "_op"), ["update", "update"]);
        assert_eq!(column(&decoded, "_sequence")[0], sequences[0]);
    }

    #[test]
    fn numbers_without_a_schema_are_taken_only_where_they_mean_one_thing() {
        let row = |row: &str| event("c", "null", row, 1);
        let text = [
            row("{\"t\":1767225600123}"),
            row("{\"d\":20454}"),
            row("{\"d\":1767225600123}"),
            row("{\"a\":\"CTY=\"}"),
        ];
        let decoded = debezium("t TIMESTAMP, d DATE, a DECIMAL(10,2)").read(text.concat());
        assert_eq!(
            rejects(&decoded),
            [(1, AmbiguousTimestamp), (3, Overflow), (4, TypeMismatch)]
        );
        assert_eq!(column(&decoded, "d"), ["2026-01-01"]);
    }

    #[test]
    fn garbage_in_any_envelope_never_panics_and_every_record_is_counted() {
        let words = [
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            "null",
            "1",
            "true",
            "\"id\"",
            "\"x\"",
            "{}",
            "[]",
            "[{}]",
            "{\"id\":1}",
            "[{\"id\":2}]",
            "\"I\"",
            "\"u\"",
            "\"update\"",
            "\"UPDATE\"",
        ];
        let names = [
            "op",
            "before",
            "after",
            "source",
            "schema",
            "payload",
            "__op",
            "type",
            "data",
            "old",
            "position",
            "es",
            "change",
            "nextlsn",
            "action",
            "columns",
            "identity",
            "lsn",
            "op_type",
            "pos",
            "Op",
            "__$operation",
            "_change_type",
            "header__change_oper",
            "key",
            "value",
            "id",
        ];
        let mut next = numbers(11);
        for envelope in [
            Envelope::Debezium,
            Envelope::Dms,
            Envelope::DeltaCdf,
            Envelope::Maxwell,
            Envelope::Wal2Json,
            Envelope::SqlServer,
            Envelope::Canal,
            Envelope::GoldenGate,
            Envelope::Qlik,
        ] {
            let case = Case::json(HINTS).of(envelope, &["id"]);
            for _ in 0..200 {
                let mut text = String::new();
                for _ in 0..10 {
                    let members: Vec<String> = (0..next(5))
                        .map(|_| {
                            format!(
                                "\"{}\":{}",
                                names[next(names.len())],
                                words[next(words.len())]
                            )
                        })
                        .collect();
                    text.push_str(&format!("{{{}}}\n", members.join(",")));
                }
                let decoded = case.read(&text);
                let records = decoded.rows.num_rows() + decoded.rejects.len();
                assert!(records >= 10, "{envelope:?}: {text}");
            }
        }
    }

    #[test]
    fn a_column_that_stands_twice_in_arrays_refuses_its_change() {
        let text = "{\"nextlsn\":\"0/1\",\"change\":[{\"kind\":\"insert\",\"columnnames\":[\"id\",\"id\"],\"columnvalues\":[1,2]}]}\n\
                    {\"action\":\"I\",\"lsn\":\"0/2\",\"columns\":[{\"name\":\"id\",\"value\":1},{\"name\":\"id\",\"value\":2}]}\n";
        let decoded = Case::json(HINTS).of(Envelope::Wal2Json, &["id"]).read(text);
        assert_eq!(rejects(&decoded), [(1, DuplicateKey), (2, DuplicateKey)]);
    }

    #[test]
    fn a_message_with_anything_else_than_rows_is_refused_once() {
        let text = "{\"nextlsn\":\"0/1\",\"change\":[1,{\"kind\":\"insert\"},2,[]]}\n";
        let decoded = Case::json(HINTS).of(Envelope::Wal2Json, &["id"]).read(text);
        assert_eq!(rejects(&decoded), [(1, Malformed)]);
        let text = "{\"type\":\"INSERT\",\"data\":[1,{\"id\":\"1\"},2]}\n";
        let decoded = Case::json(HINTS).of(Envelope::Canal, &["id"]).read(text);
        assert_eq!(rejects(&decoded), [(1, Malformed)]);
    }

    #[test]
    fn a_message_that_says_much_and_has_many_rows_is_refused() {
        let rows = vec!["{}"; 100_000].join(",");
        let text = format!(
            "{{\"type\":\"INSERT\",\"es\":1,\"sql\":\"{}\",\"data\":[{rows}]}}",
            "x".repeat(1000)
        );
        let decoded = Case::json(HINTS).of(Envelope::Canal, &["id"]).read(&text);
        assert_eq!(rejects(&decoded), [(1, TooLarge)]);
    }

    #[test]
    fn values_are_what_their_schema_says() {
        const DECIMAL: &str = "\"type\":\"bytes\",\"name\":\"org.apache.kafka.connect.data.Decimal\",\"parameters\":{\"scale\":\"2\"}";
        let time = |name: &str| format!("\"type\":\"int64\",\"name\":\"io.debezium.time.{name}\"");
        for (field, value, ddl, expected) in [
            (DECIMAL.to_string(), "\"CTY=\"", "DECIMAL(10,2)", "23.58"),
            (DECIMAL.to_string(), "\"/w==\"", "DECIMAL(10,2)", "-0.01"),
            (DECIMAL.to_string(), "\"AA==\"", "STRING", "0.00"),
            (
                DECIMAL.to_string(),
                "\"////////////////////\"",
                "STRING",
                "-0.01",
            ),
            (
                "\"type\":\"struct\",\"name\":\"io.debezium.data.VariableScaleDecimal\"".into(),
                "{\"scale\":1,\"value\":\"CTY=\"}",
                "DECIMAL(10,2)",
                "235.80",
            ),
            (time("Date"), "20454", "DATE", "2026-01-01"),
            (time("Date"), "-1", "STRING", "1969-12-31"),
            (
                time("Timestamp"),
                "1767225600123",
                "TIMESTAMP",
                "2026-01-01T00:00:00.123Z",
            ),
            (
                time("MicroTimestamp"),
                "1767225600123456",
                "TIMESTAMP_NTZ",
                "2026-01-01T00:00:00.123456",
            ),
            (
                time("NanoTimestamp"),
                "1767225600123456000",
                "TIMESTAMP",
                "2026-01-01T00:00:00.123456Z",
            ),
            (time("MicroTimestamp"), "1", "BIGINT", "1"),
            (time("MicroTime"), "3723000001", "STRING", "01:02:03.000001"),
            (
                time("ZonedTimestamp"),
                "\"2026-01-01T00:00:00Z\"",
                "TIMESTAMP",
                "2026-01-01T00:00:00Z",
            ),
            ("\"type\":\"bytes\"".into(), "\"AQI=\"", "BINARY", "0102"),
        ] {
            let decoded = debezium(&format!("v {ddl}")).read(typed(&field, value));
            assert!(
                decoded.rejects.is_empty(),
                "{field} {value}: {:?}",
                decoded.rejects
            );
            assert_eq!(column(&decoded, "v"), [expected], "{field} {value} {ddl}");
        }
        for (field, value, ddl, reason) in [
            (
                DECIMAL.to_string(),
                "\"CTY=\"",
                "DECIMAL(10,1)",
                DecimalScale,
            ),
            (
                DECIMAL.to_string(),
                "\"fwAAAAAAAAAAAAAAAAAAAAA=\"",
                "STRING",
                Overflow,
            ),
            (DECIMAL.to_string(), "\"?\"", "DECIMAL(10,2)", TypeMismatch),
            (DECIMAL.to_string(), "\"\"", "DECIMAL(10,2)", TypeMismatch),
            (time("NanoTimestamp"), "1", "TIMESTAMP", TypeMismatch),
            (
                time("Timestamp"),
                "9223372036854775807",
                "TIMESTAMP",
                Overflow,
            ),
            (time("MicroTime"), "-1", "STRING", Overflow),
            (time("Date"), "1.5", "DATE", TypeMismatch),
        ] {
            let decoded = debezium(&format!("v {ddl}")).read(typed(&field, value));
            assert_eq!(rejects(&decoded), [(1, reason)], "{field} {value} {ddl}");
        }
        let inferred = [
            typed(DECIMAL, "\"CTY=\""),
            typed(&time("Date"), "1"),
            typed(&time("Timestamp"), "1"),
        ];
        let types = inferred.map(|text| new_columns(&debezium("id INT").read(text))[0].1.clone());
        assert_eq!(types, ["DECIMAL(38,2)", "DATE", "TIMESTAMP_NTZ"]);
    }
}
