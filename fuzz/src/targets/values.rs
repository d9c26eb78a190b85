//! Single values and names: a text as a value of every type, patterns of times, names of files.

use crate::input::Input;
use crate::laws::plain;
use crate::oracle::{Expected, Json, assert_value, expected};
use crate::source::Source;
use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{DataType, Date32Type, Field, Schema, TimestampMicrosecondType};
use arrow::util::display::array_value_to_string;
use landfall::decode::{text_type, value_of_text};
use landfall::landing::{decode_name, encode_name};
use landfall::schema::{check_time_format, parse_ddl};
use landfall::settings::{Format, SnapshotVersion};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

const TYPES: [&str; 14] = [
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "DECIMAL(10,2)",
    "DECIMAL(38,38)",
    "DECIMAL(38,0)",
    "DATE",
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
    "STRING",
];

/// Patterns as Spark has them, and as chrono has them.
const PATTERNS: [(&str, &str); 6] = [
    ("yyyy-MM-dd HH:mm:ss.SSSSSS", "%Y-%m-%d %H:%M:%S%.6f"),
    ("dd/MM/yyyy hh:mm:ss.SSSSSS a", "%d/%m/%Y %I:%M:%S%.6f %p"),
    (
        "EEE, d MMM yyyy HH:mm:ss[.SSSSSS]",
        "%a, %-d %b %Y %H:%M:%S%.6f",
    ),
    ("MMMM dd yyyy'T'HHmmss.SSSSSS", "%B %d %YT%H%M%S%.6f"),
    ("yyyyMMddHHmmssSSSSSS", "%Y%m%d%H%M%S%6f"),
    (
        "EEEE yyyy-M-d H:m:s.SSSSSS",
        "%A %Y-%-m-%-d %-H:%-M:%-S%.6f",
    ),
];

pub(super) fn values(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.below(4) {
        0 => assert_name(input.rest()),
        1 => assert_time(&mut input),
        2 => {
            let pattern = String::from_utf8_lossy(input.until(b'\n')).into_owned();
            assert_pattern(&pattern, &String::from_utf8_lossy(input.rest()));
        }
        _ => {
            let data_type = input.one_of(&TYPES);
            assert_typed(data_type, &String::from_utf8_lossy(input.rest()));
        }
    }
}

/// What is said of a name leads back to it.
fn assert_name(bytes: &[u8]) {
    let name = OsStr::from_bytes(bytes);
    let shown = encode_name(name);
    assert!(!shown.chars().any(char::is_control));
    assert_eq!(decode_name(&shown), name);
    let mut source = Source::new(Format::Json, &shown, "a INT");
    source.settings.snapshot_version = SnapshotVersion::FileName;
    let _ = plain(&source.with_own_columns(), b"{\"a\":1}\n");
}

/// A text is taken as what it is and shown as it is read.
fn assert_typed(ddl: &str, text: &str) {
    let data_type = parse_ddl(&format!("a {ddl}")).expect("it is a type")[0]
        .data_type()
        .clone();
    let source = Source::new(Format::Json, "a.jsonl", "");
    let _ = text_type(text);
    let json = Json::Text {
        raw: String::new(),
        text: text.to_string(),
    };
    let wanted = expected(&json, &data_type);
    let value = match value_of_text(text, &data_type, &source.settings) {
        Ok(value) => value,
        Err(why) => {
            assert!(
                wanted != Expected::Value && !why.is_empty(),
                "{text:?} is refused: {why}"
            );
            return;
        }
    };
    assert_ne!(wanted, Expected::Refused, "{text:?} is taken");
    let schema = Schema::new(vec![Field::new("a", data_type.clone(), true)]);
    let rows =
        RecordBatch::try_new(Arc::new(schema), vec![value.clone()]).expect("it is one column");
    assert_value(&rows, 0, 0, &json);
    let shown = array_value_to_string(&value, 0).expect("it is shown");
    let again = value_of_text(&shown, &data_type, &source.settings);
    // A float is shown with the digits that name it, which need not be all of it.
    if !data_type.is_floating() {
        assert_eq!(again.as_ref(), Ok(&value), "{text:?} is shown as {shown:?}");
    }
    if let (DataType::Date32, Some(date)) = (&data_type, iso_date(text)) {
        let days = value.as_primitive::<Date32Type>().value(0);
        assert_eq!(Some(date), chrono::NaiveDate::from_epoch_days(days));
    }
}

fn iso_date(text: &str) -> Option<chrono::NaiveDate> {
    let is_iso = text.len() == 10
        && text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'-');
    chrono::NaiveDate::parse_from_str(text, "%Y-%m-%d")
        .ok()
        .filter(|_| is_iso)
}

/// A time that another library wrote by a pattern is read by it.
fn assert_time(input: &mut Input<'_>) {
    let (pattern, format) = input.one_of(&PATTERNS);
    let mut bytes = [0; 8];
    bytes.fill_with(|| input.byte());
    // Of the years 1 to 9999.
    let (first, last) = (-62_135_596_800_000_000_i64, 253_402_300_799_999_999_i64);
    let micros = first + i64::from_le_bytes(bytes).rem_euclid(last - first + 1);
    let time = chrono::DateTime::from_timestamp_micros(micros)
        .expect("it is in range")
        .naive_utc();
    let mut source = Source::new(Format::Json, "a.jsonl", "");
    source.settings.json.timestamp_format = Some(pattern.to_string());
    check_time_format(pattern).expect("it is a pattern");
    let text = time.format(format).to_string();
    let data_type = DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None);
    let value = value_of_text(&text, &data_type, &source.settings);
    let value = value.unwrap_or_else(|why| panic!("{text:?} {why} by {pattern}"));
    assert_eq!(
        value.as_primitive::<TimestampMicrosecondType>().value(0),
        micros,
        "{text:?} by {pattern}"
    );
}

/// Any pattern and any text.
fn assert_pattern(pattern: &str, text: &str) {
    if check_time_format(pattern).is_err() {
        return;
    }
    let mut source = Source::new(Format::Csv, "a.csv", "a DATE, b TIMESTAMP, c TIMESTAMP_NTZ");
    source.settings.csv.date_format = Some(pattern.to_string());
    source.settings.csv.timestamp_format = Some(pattern.to_string());
    for data_type in source
        .schema
        .columns
        .fields()
        .iter()
        .map(|field| field.data_type())
    {
        let first = value_of_text(text, data_type, &source.settings);
        assert_eq!(first, value_of_text(text, data_type, &source.settings));
    }
}
