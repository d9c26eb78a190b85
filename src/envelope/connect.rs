//! The types that the schema of a Kafka Connect record gives to its fields.

use super::{find, find_object, find_text};
use crate::decode::{Member, Token, elements, members};
use std::collections::HashMap;

/// What a number or text of a record stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectType {
    /// The record has no schema, so a number may be a time in any unit.
    Unknown,
    /// What it is written as.
    Plain,
    /// Bytes in base64.
    Bytes,
    /// A whole number in base64, of this scale and, where it is known, precision.
    Decimal { precision: Option<u8>, scale: i8 },
    /// The same as an object with its scale.
    VariableDecimal,
    /// Days since the epoch.
    Date,
    /// A time of the day in this unit.
    Time(Unit),
    /// A time since the epoch by the clock on the wall, in this unit.
    Timestamp(Unit),
    /// A text with an offset from UTC.
    ZonedTimestamp,
}

/// What a number of a time counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    Millis,
    Micros,
    Nanos,
}

/// The types of the columns, by name.
pub(super) type ColumnTypes = HashMap<String, ConnectType>;

/// The types of the fields of a row: those of `after`, of `before`, or of the record itself where it is unwrapped.
pub(super) fn column_types(schema: &str) -> ColumnTypes {
    let Ok(schema) = members(schema) else {
        return ColumnTypes::new();
    };
    let fields = fields_of(&schema);
    let row = ["after", "before"]
        .iter()
        .find_map(|image| fields.iter().find(|field| is_field(field, image)));
    let fields = match row {
        Some(row) => fields_of(row),
        None => fields,
    };
    let typed = fields
        .iter()
        .filter_map(|field| Some((find_text(field, "field")?, connect_type(field))));
    typed.collect()
}

fn is_field(field: &[Member<'_>], name: &str) -> bool {
    find_text(field, "field").as_deref() == Some(name)
}

fn fields_of<'a>(schema: &[Member<'a>]) -> Vec<Vec<Member<'a>>> {
    let Some(Token::Nested(fields)) = find(schema, "fields") else {
        return Vec::new();
    };
    let field = |token| match token {
        Token::Nested(json) => members(json).ok(),
        _ => None,
    };
    let fields = elements(fields).unwrap_or_default();
    fields.into_iter().filter_map(field).collect()
}

fn connect_type(field: &[Member<'_>]) -> ConnectType {
    let name = find_text(field, "name").unwrap_or_default();
    match name.as_str() {
        "org.apache.kafka.connect.data.Decimal" => decimal(field),
        "io.debezium.data.VariableScaleDecimal" => ConnectType::VariableDecimal,
        "io.debezium.time.Date" | "org.apache.kafka.connect.data.Date" => ConnectType::Date,
        "io.debezium.time.Time" | "org.apache.kafka.connect.data.Time" => {
            ConnectType::Time(Unit::Millis)
        }
        "io.debezium.time.MicroTime" => ConnectType::Time(Unit::Micros),
        "io.debezium.time.NanoTime" => ConnectType::Time(Unit::Nanos),
        "io.debezium.time.Timestamp" | "org.apache.kafka.connect.data.Timestamp" => {
            ConnectType::Timestamp(Unit::Millis)
        }
        "io.debezium.time.MicroTimestamp" => ConnectType::Timestamp(Unit::Micros),
        "io.debezium.time.NanoTimestamp" => ConnectType::Timestamp(Unit::Nanos),
        "io.debezium.time.ZonedTimestamp" => ConnectType::ZonedTimestamp,
        _ if find_text(field, "type").as_deref() == Some("bytes") => ConnectType::Bytes,
        _ => ConnectType::Plain,
    }
}

/// Without its scale, the digits of a decimal say nothing; its base64 then fits text alone.
fn decimal(field: &[Member<'_>]) -> ConnectType {
    let parameters = find_object(field, "parameters").unwrap_or_default();
    let parameter = |name| find_text(&parameters, name);
    let scale = parameter("scale").and_then(|text| text.parse().ok());
    let precision = parameter("connect.decimal.precision").and_then(|text| text.parse().ok());
    scale.map_or(ConnectType::Bytes, |scale| ConnectType::Decimal {
        precision,
        scale,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_schemas_type_nothing() {
        for schema in ["{}", "{\"fields\":{}}", "{\"fields\":[1,null,{}]}", "[]"] {
            assert!(column_types(schema).is_empty(), "{schema}");
        }
        let no_scale = r#"{"fields":[{"field":"a","type":"bytes","name":"org.apache.kafka.connect.data.Decimal"}]}"#;
        assert_eq!(column_types(no_scale)["a"], ConnectType::Bytes);
    }

    #[test]
    fn types_stand_in_the_row_or_in_the_record_itself() {
        let row = r#"{"fields":[{"field":"day","type":"int32","name":"io.debezium.time.Date"},{"field":"n","type":"int32"}]}"#;
        let wrapped = format!(
            r#"{{"fields":[{{"field":"before","type":"struct"}},{{"field":"after",{}]}}"#,
            &row[1..]
        );
        for schema in [row, &wrapped] {
            let types = column_types(schema);
            assert_eq!(types["day"], ConnectType::Date, "{schema}");
            assert_eq!(types["n"], ConnectType::Plain, "{schema}");
        }
    }
}
