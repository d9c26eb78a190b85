//! Least and greatest values per file, and what they rule out.
//!
//! A range may be wider than the values, never narrower: whatever is not certain is unknown, and an unknown range rules
//! nothing out. Floating point, binary and nested columns have no range, nor have decimals that a JSON number cannot hold.

use arrow::array::{Array, AsArray};
use arrow::compute::{max, max_boolean, max_string, min, min_boolean, min_string};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Int8Type, Int16Type, Int32Type, Int64Type, Schema,
    TimeUnit, TimestampMicrosecondType,
};
use chrono::{DateTime, NaiveDate, NaiveDateTime, TimeDelta};
use delta_kernel::table_properties::DataSkippingNumIndexedCols;
use parquet::data_type::ByteArray;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use parquet::file::statistics::Statistics;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// A double holds every decimal of so many digits.
pub(super) const EXACT_DIGITS: u8 = 15;

/// A value that statistics can compare.
#[derive(Clone, Debug, PartialEq)]
pub enum StatValue {
    /// Integers; dates as days, timestamps as microseconds since the epoch.
    Int(i64),
    /// Unscaled value, in the scale of the column.
    Decimal(i128),
    /// Text, by bytes.
    Text(String),
    /// Truth.
    Bool(bool),
}

impl StatValue {
    /// The order of two values of one column; `None` if they are of different kinds.
    pub fn compare(&self, other: &StatValue) -> Option<Ordering> {
        match (self, other) {
            (StatValue::Int(a), StatValue::Int(b)) => Some(a.cmp(b)),
            (StatValue::Decimal(a), StatValue::Decimal(b)) => Some(a.cmp(b)),
            (StatValue::Text(a), StatValue::Text(b)) => Some(a.as_bytes().cmp(b.as_bytes())),
            (StatValue::Bool(a), StatValue::Bool(b)) => Some(a.cmp(b)),
            (StatValue::Int(_), _)
            | (StatValue::Decimal(_), _)
            | (StatValue::Text(_), _)
            | (StatValue::Bool(_), _) => None,
        }
    }
}

/// A closed range of one column.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnRange {
    /// A top-level column.
    pub column: String,
    /// The least value.
    pub min: StatValue,
    /// The greatest value; `None` where there is no bound.
    pub max: Option<StatValue>,
}

impl ColumnRange {
    /// The range of the values that are not NULL; `None` if there are none or their type has no usable statistics.
    pub fn of(column: &str, values: &dyn Array) -> Option<ColumnRange> {
        let (min, max) = array_range(values)?;
        Some(ColumnRange {
            column: column.to_owned(),
            min,
            max: Some(max),
        })
    }

    /// Everything from the least of the values up, likewise.
    pub fn from(column: &str, values: &dyn Array) -> Option<ColumnRange> {
        let range = ColumnRange::of(column, values)?;
        Some(ColumnRange { max: None, ..range })
    }

    /// Whether a file whose values lie in `known` can hold a value of this range.
    pub fn meets(&self, known: &(StatValue, StatValue)) -> bool {
        let is_below = |max| known.0.compare(max) == Some(Ordering::Greater);
        let above = self.max.as_ref().is_some_and(is_below);
        let below = known.1.compare(&self.min) == Some(Ordering::Less);
        !above && !below
    }
}

fn array_range(values: &dyn Array) -> Option<(StatValue, StatValue)> {
    macro_rules! range_of {
        ($kind:ty, $wrap:expr) => {{
            let values = values.as_primitive::<$kind>();
            Some(($wrap(min(values)?), $wrap(max(values)?)))
        }};
    }
    match values.data_type() {
        DataType::Int8 => range_of!(Int8Type, |v| StatValue::Int(i64::from(v))),
        DataType::Int16 => range_of!(Int16Type, |v| StatValue::Int(i64::from(v))),
        DataType::Int32 => range_of!(Int32Type, |v| StatValue::Int(i64::from(v))),
        DataType::Int64 => range_of!(Int64Type, StatValue::Int),
        DataType::Date32 => range_of!(Date32Type, |v| StatValue::Int(i64::from(v))),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            range_of!(TimestampMicrosecondType, StatValue::Int)
        }
        DataType::Decimal128(_, _) => range_of!(Decimal128Type, StatValue::Decimal),
        DataType::Utf8 => {
            let values = values.as_string::<i32>();
            let text = |value: &str| StatValue::Text(value.to_owned());
            Some((text(min_string(values)?), text(max_string(values)?)))
        }
        DataType::Boolean => {
            let values = values.as_boolean();
            Some((
                StatValue::Bool(min_boolean(values)?),
                StatValue::Bool(max_boolean(values)?),
            ))
        }
        _ => None,
    }
}

/// The ranges of all top-level columns that the `stats` text of an `Add` states.
pub(super) fn parse_ranges(
    stats: &str,
    schema: &Schema,
) -> BTreeMap<String, (StatValue, StatValue)> {
    let Ok(Value::Object(stats)) = serde_json::from_str::<Value>(stats) else {
        return BTreeMap::new();
    };
    let side = |name: &str| {
        stats
            .get(name)
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default()
    };
    let (mins, maxes) = (side("minValues"), side("maxValues"));
    let mut ranges = BTreeMap::new();
    for field in schema.fields() {
        let name = field.name();
        let bounds = column_bounds(field.data_type(), mins.get(name), maxes.get(name));
        if let Some(range) = bounds {
            ranges.insert(name.clone(), range);
        }
    }
    ranges
}

fn column_bounds(
    data_type: &DataType,
    least: Option<&Value>,
    greatest: Option<&Value>,
) -> Option<(StatValue, StatValue)> {
    let least = parse_value(data_type, least?)?;
    let greatest = parse_value(data_type, greatest?)?;
    match (data_type, greatest) {
        // Writers cut timestamps to milliseconds.
        (DataType::Timestamp(_, _), StatValue::Int(micros)) => {
            Some((least, StatValue::Int(micros.checked_add(999)?)))
        }
        (_, greatest) => Some((least, greatest)),
    }
}

fn parse_value(data_type: &DataType, value: &Value) -> Option<StatValue> {
    match data_type {
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            value.as_i64().map(StatValue::Int)
        }
        DataType::Boolean => value.as_bool().map(StatValue::Bool),
        DataType::Utf8 => value.as_str().map(|text| StatValue::Text(text.to_owned())),
        DataType::Date32 => {
            let date = NaiveDate::parse_from_str(value.as_str()?, "%Y-%m-%d").ok()?;
            Some(StatValue::Int((date - NaiveDate::default()).num_days()))
        }
        DataType::Timestamp(_, _) => parse_timestamp(value.as_str()?).map(StatValue::Int),
        DataType::Decimal128(digits, scale) if *digits <= EXACT_DIGITS => {
            let scaled = (value.as_f64()? * 10f64.powi(i32::from(*scale))).round();
            (scaled.abs() < 1e15).then_some(StatValue::Decimal(scaled as i128))
        }
        _ => None,
    }
}

fn parse_timestamp(text: &str) -> Option<i64> {
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Some(time.timestamp_micros());
    }
    ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f"]
        .iter()
        .find_map(|format| NaiveDateTime::parse_from_str(text, format).ok())
        .map(|time| time.and_utc().timestamp_micros())
}

/// The `stats` text of a file that was written: rows, NULLs, least and greatest values of the first so many columns.
///
/// Bounds are written as the Delta protocol says: times in milliseconds, texts perhaps only by their beginnings.
pub(super) fn of_file(
    metadata: &ParquetMetaData,
    schema: &Schema,
    indexed: DataSkippingNumIndexedCols,
) -> String {
    let indexed = match indexed {
        DataSkippingNumIndexedCols::AllColumns => usize::MAX,
        DataSkippingNumIndexedCols::NumColumns(count) => {
            usize::try_from(count).unwrap_or(usize::MAX)
        }
    };
    let leaves = metadata.file_metadata().schema_descr();
    let (mut mins, mut maxes, mut nulls) = (Map::new(), Map::new(), Map::new());
    for (place, field) in schema.fields().iter().enumerate().take(indexed) {
        let leaf =
            (0..leaves.num_columns()).find(|leaf| leaves.get_column_root_idx(*leaf) == place);
        let Some(leaf) = leaf.filter(|_| !field.data_type().is_nested()) else {
            continue;
        };
        let groups = metadata.row_groups().iter();
        let known: Option<Vec<Known<'_>>> = groups.map(|group| Known::of(group, leaf)).collect();
        let Some(known) = known else { continue };
        let name = || field.name().clone();
        nulls.insert(
            name(),
            known.iter().map(|group| group.nulls).sum::<u64>().into(),
        );
        if let Some((min, max)) = written_range(&known, field.data_type()) {
            mins.insert(name(), min);
            maxes.insert(name(), max);
        }
    }
    let rows = metadata.file_metadata().num_rows();
    json!({"numRecords": rows, "minValues": mins, "maxValues": maxes, "nullCount": nulls})
        .to_string()
}

/// What a row group states of a column.
struct Known<'m> {
    statistics: &'m Statistics,
    nulls: u64,
    rows: i64,
}

impl Known<'_> {
    fn of(group: &RowGroupMetaData, leaf: usize) -> Option<Known<'_>> {
        let statistics = group.column(leaf).statistics()?;
        Some(Known {
            statistics,
            nulls: statistics.null_count_opt()?,
            rows: group.num_rows(),
        })
    }

    fn has_values(&self) -> bool {
        i64::try_from(self.nulls).is_ok_and(|nulls| nulls < self.rows)
    }
}

/// A least or greatest value as Parquet states it.
#[derive(Clone, Debug, PartialEq, PartialOrd)]
enum Bound {
    Int(i64),
    Float(f64),
    Text(String),
}

/// The range of a column of this type, as `stats` has it; `None` where it is not known or cannot be written.
fn written_range(groups: &[Known<'_>], data_type: &DataType) -> Option<(Value, Value)> {
    let mut range: Option<(Bound, Bound)> = None;
    for group in groups.iter().filter(|group| group.has_values()) {
        let (min, max) = bounds(group.statistics)?;
        range = Some(match range {
            Some((least, greatest)) => (
                if min < least { min } else { least },
                if max > greatest { max } else { greatest },
            ),
            None => (min, max),
        });
    }
    let (least, greatest) = range?;
    Some((written(&least, data_type)?, written(&greatest, data_type)?))
}

fn bounds(statistics: &Statistics) -> Option<(Bound, Bound)> {
    let int = |min: i64, max: i64| (Bound::Int(min), Bound::Int(max));
    let text = |bytes: &ByteArray| {
        let text = bytes.as_utf8().ok()?;
        Some(Bound::Text(text.to_owned()))
    };
    match statistics {
        Statistics::Boolean(known) => {
            let (min, max) = (*known.min_opt()?, *known.max_opt()?);
            Some(int(min.into(), max.into()))
        }
        Statistics::Int32(known) => {
            let (min, max) = (*known.min_opt()?, *known.max_opt()?);
            Some(int(min.into(), max.into()))
        }
        Statistics::Int64(known) => Some(int(*known.min_opt()?, *known.max_opt()?)),
        Statistics::Float(known) => {
            let (min, max) = (*known.min_opt()?, *known.max_opt()?);
            Some((Bound::Float(min.into()), Bound::Float(max.into())))
        }
        Statistics::Double(known) => {
            let (min, max) = (*known.min_opt()?, *known.max_opt()?);
            Some((Bound::Float(min), Bound::Float(max)))
        }
        Statistics::ByteArray(known) => Some((text(known.min_opt()?)?, text(known.max_opt()?)?)),
        Statistics::Int96(_) | Statistics::FixedLenByteArray(_) => None,
    }
}

fn written(bound: &Bound, data_type: &DataType) -> Option<Value> {
    match (bound, data_type) {
        (Bound::Int(truth), DataType::Boolean) => Some((*truth != 0).into()),
        (
            Bound::Int(number),
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64,
        ) => Some((*number).into()),
        (Bound::Int(days), DataType::Date32) => {
            let date = NaiveDate::default().checked_add_signed(TimeDelta::try_days(*days)?)?;
            Some(date.format("%Y-%m-%d").to_string().into())
        }
        (Bound::Int(micros), DataType::Timestamp(TimeUnit::Microsecond, zone)) => {
            let time = DateTime::from_timestamp_micros(*micros)?;
            let format = match (zone, time.timestamp_subsec_nanos()) {
                (Some(_), 0) => "%Y-%m-%dT%H:%M:%SZ",
                (Some(_), _) => "%Y-%m-%dT%H:%M:%S%.3fZ",
                (None, 0) => "%Y-%m-%d %H:%M:%S",
                (None, _) => "%Y-%m-%d %H:%M:%S%.3f",
            };
            Some(time.format(format).to_string().into())
        }
        (Bound::Int(number), DataType::Decimal128(digits, scale)) if *digits <= EXACT_DIGITS => {
            match scale {
                0 => Some((*number).into()),
                _ => Some((*number as f64 / 10f64.powi((*scale).into())).into()),
            }
        }
        (Bound::Float(number), DataType::Float32 | DataType::Float64) => {
            number.is_finite().then(|| (*number).into())
        }
        (Bound::Text(text), DataType::Utf8) => Some(text.as_str().into()),
        _ => None,
    }
}

/// Takes bounds out of a `stats` text that a JSON number cannot hold: decimals of many digits.
///
/// The library passes them through a double, and an integral one even through 64 bits, so a bound may lie inside
/// the values; a reader that trusts it would skip a file that holds what it looks for.
pub(super) fn drop_inexact(stats: &str, schema: &Schema) -> Option<String> {
    let inexact = |data_type: &DataType| {
        matches!(data_type, DataType::Decimal128(digits, _) if *digits > EXACT_DIGITS)
            || data_type.is_nested()
    };
    let columns: Vec<&str> = schema
        .fields()
        .iter()
        .filter(|field| inexact(field.data_type()))
        .map(|field| field.name().as_str())
        .collect();
    if columns.is_empty() {
        return None;
    }
    // Numbers stay as they are written: reading a double and writing it again may move it.
    let mut stats: BTreeMap<String, Box<RawValue>> = serde_json::from_str(stats).ok()?;
    for side in ["minValues", "maxValues"] {
        if let Some(values) = stats.get_mut(side) {
            let of_columns = serde_json::from_str(values.get());
            let mut of_columns: BTreeMap<String, Box<RawValue>> = of_columns.ok()?;
            columns.iter().for_each(|column| {
                of_columns.remove(*column);
            });
            *values = to_raw_value(&of_columns).ok()?;
        }
    }
    serde_json::to_string(&stats).ok()
}

/// The `numRecords` of a `stats` text.
pub(super) fn record_count(stats: &str) -> Option<i64> {
    let stats: Map<String, Value> = serde_json::from_str(stats).ok()?;
    stats.get("numRecords")?.as_i64().filter(|rows| *rows >= 0)
}

/// The same `stats` with bounds that are only bounds, as beside a deletion vector.
pub(super) fn with_wide_bounds(stats: Option<&str>, rows: i64) -> String {
    // Numbers stay as they are written: reading a double and writing it again may move it.
    let mut stats: BTreeMap<String, Box<RawValue>> = stats
        .and_then(|stats| serde_json::from_str(stats).ok())
        .unwrap_or_default();
    let own = [
        ("numRecords", to_raw_value(&rows)),
        ("tightBounds", to_raw_value(&false)),
    ];
    for (name, value) in own {
        stats.extend(value.ok().map(|value| (name.to_owned(), value)));
    }
    serde_json::to_string(&stats).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Decimal128Array, Int64Array, StringArray, TimestampMicrosecondArray};
    use arrow::datatypes::Field;

    fn ranges(
        data_type: DataType,
        least: Value,
        greatest: Value,
    ) -> Option<(StatValue, StatValue)> {
        let schema = Schema::new(vec![Field::new("c", data_type, true)]);
        let stats = serde_json::json!({"numRecords": 3, "minValues": {"c": least}, "maxValues": {"c": greatest}});
        parse_ranges(&stats.to_string(), &schema).remove("c")
    }

    #[test]
    fn stats_that_are_no_json_rule_nothing_out() {
        let schema = Schema::new(vec![Field::new("c", DataType::Int64, true)]);
        assert!(parse_ranges("{\"minValues\":", &schema).is_empty());
        assert!(parse_ranges("7", &schema).is_empty());
        assert_eq!(record_count("{\"numRecords\":-1}"), None);
    }

    #[test]
    fn long_decimals_have_no_range_and_are_dropped_from_stats() {
        assert_eq!(
            ranges(DataType::Decimal128(38, 0), 1.into(), i64::MAX.into()),
            None
        );
        let schema = Schema::new(vec![
            Field::new("long", DataType::Decimal128(38, 0), true),
            Field::new("short", DataType::Decimal128(10, 2), true),
        ]);
        let stats = r#"{"numRecords":1,"minValues":{"long":1,"short":1.5},"maxValues":{"long":9,"short":2.5}}"#;
        let kept = drop_inexact(stats, &schema).unwrap();
        assert!(!kept.contains("long") && kept.contains("short"), "{kept}");
    }

    #[test]
    fn bounds_of_doubles_stay_as_they_are_written() {
        let double = "-3.8763544682563147";
        let stats = format!(
            r#"{{"numRecords":9,"minValues":{{"f":{double},"long":1}},"maxValues":{{"f":1.4884318666570113}},"nullCount":{{"f":0}}}}"#
        );
        let schema = Schema::new(vec![
            Field::new("f", DataType::Float64, true),
            Field::new("long", DataType::Decimal128(38, 0), true),
        ]);
        let dropped = drop_inexact(&stats, &schema).unwrap();
        assert!(!dropped.contains("long"), "{dropped}");
        for changed in [with_wide_bounds(Some(&stats), 7), dropped] {
            assert!(changed.contains(&format!("\"f\":{double}")), "{changed}");
            assert!(changed.contains("\"f\":1.4884318666570113}"), "{changed}");
        }
        let wide: Value = serde_json::from_str(&with_wide_bounds(Some(&stats), 7)).unwrap();
        assert_eq!(
            (&wide["numRecords"], &wide["tightBounds"]),
            (&json!(7), &json!(false))
        );
        let alone: Value = serde_json::from_str(&with_wide_bounds(None, 7)).unwrap();
        assert_eq!(alone, json!({"numRecords": 7, "tightBounds": false}));
    }

    #[test]
    fn timestamp_cut_to_milliseconds_still_covers_its_value() {
        let kind = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let text = "2024-01-01T00:00:00.123Z";
        let known = ranges(kind, text.into(), text.into()).unwrap();
        let micros = 1_704_067_200_123_456;
        let values = TimestampMicrosecondArray::from(vec![micros]).with_timezone("UTC");
        assert!(ColumnRange::of("c", &values).unwrap().meets(&known));
        let later = TimestampMicrosecondArray::from(vec![micros + 1000]).with_timezone("UTC");
        assert!(!ColumnRange::of("c", &later).unwrap().meets(&known));
    }

    #[test]
    fn ranges_that_touch_meet_and_ranges_apart_do_not() {
        let known = ranges(DataType::Int64, 5.into(), 9.into()).unwrap();
        let of = |values: Vec<i64>| ColumnRange::of("c", &Int64Array::from(values)).unwrap();
        assert!(of(vec![1, 5]).meets(&known));
        assert!(of(vec![9, 20]).meets(&known));
        assert!(!of(vec![1, 4]).meets(&known));
        assert!(!of(vec![10]).meets(&known));
        let text = ColumnRange::of("c", &StringArray::from(vec!["x"])).unwrap();
        assert!(text.meets(&known), "different kinds rule nothing out");
    }

    #[test]
    fn short_decimal_range_is_exact() {
        let known = ranges(DataType::Decimal128(10, 2), 0.1.into(), 1.15.into()).unwrap();
        assert_eq!(known, (StatValue::Decimal(10), StatValue::Decimal(115)));
        let values = Decimal128Array::from(vec![116])
            .with_precision_and_scale(10, 2)
            .unwrap();
        assert!(!ColumnRange::of("c", &values).unwrap().meets(&known));
    }
}
