//! The schema of an Avro file: what each value looks like on disk and what it means.
//!
//! Names are resolved and logical types checked here, so that reading values cannot meet a type that it does not know.
//! A schema that refers to itself, nests too deep or stands for too many types is a fault.

use crate::decode::token::NESTING_MAX;
use crate::schema::{DECIMAL_PRECISION_MAX, array_type, map_type, timestamp_type};
use arrow::datatypes::{DECIMAL256_MAX_PRECISION, DataType, Field, TimeUnit};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

/// So many types may a schema stand for, once its names are put in.
const TYPES_MAX: usize = 20_000;

/// One type.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    Text,
    Fixed(usize),
    Enum(Vec<String>),
    Array(Box<Node>),
    Map(Box<Node>),
    Record(Vec<(String, Node)>),
    /// The branches, and the type that holds the values of all.
    Union(Vec<Node>, DataType),
    /// `size` is that of a fixed.
    Decimal {
        size: Option<usize>,
        precision: u8,
        scale: i8,
    },
    Date,
    TimeMillis,
    TimeMicros,
    Timestamp {
        unit: TimeUnit,
        is_local: bool,
    },
    /// Sixteen bytes; one that is written as text stays text.
    Uuid,
    Duration,
}

impl Node {
    /// The Arrow type that holds the values.
    pub(super) fn data_type(&self) -> DataType {
        match self {
            // A column that is only ever NULL needs no type.
            Node::Null => DataType::Utf8,
            Node::Boolean => DataType::Boolean,
            Node::Int => DataType::Int32,
            Node::Long => DataType::Int64,
            Node::Float => DataType::Float32,
            Node::Double => DataType::Float64,
            Node::Bytes | Node::Fixed(_) => DataType::Binary,
            Node::Text | Node::Enum(_) | Node::Uuid | Node::Duration => DataType::Utf8,
            Node::Array(element) => array_type(element.data_type()),
            Node::Map(value) => map_type(DataType::Utf8, value.data_type()),
            Node::Record(fields) => DataType::Struct(
                fields
                    .iter()
                    .map(|(name, node)| Field::new(name, node.data_type(), true))
                    .collect(),
            ),
            Node::Union(_, data_type) => data_type.clone(),
            Node::Decimal {
                precision, scale, ..
            } if *precision <= DECIMAL_PRECISION_MAX => DataType::Decimal128(*precision, *scale),
            Node::Decimal { .. } => DataType::Utf8,
            Node::Date => DataType::Date32,
            Node::TimeMillis => DataType::Time32(TimeUnit::Millisecond),
            Node::TimeMicros => DataType::Time64(TimeUnit::Microsecond),
            Node::Timestamp {
                unit,
                is_local: true,
            } => DataType::Timestamp(*unit, None),
            Node::Timestamp { unit, .. } => match timestamp_type() {
                DataType::Timestamp(_, zone) => DataType::Timestamp(*unit, zone),
                other => other,
            },
        }
    }
}

/// The fields of the records of a file.
pub(super) fn fields(json: &[u8]) -> Result<Vec<(String, Node)>, String> {
    let json: Value =
        serde_json::from_slice(json).map_err(|error| format!("the schema is no JSON: {error}"))?;
    let mut parser = Parser {
        definitions: HashMap::new(),
        open: Vec::new(),
        types: 0,
    };
    match parser.node(&json, "", 0)? {
        Node::Record(fields) => Ok(fields),
        _ => Err("the schema is that of no record".into()),
    }
}

struct Parser<'j> {
    /// By full name, with the namespace around it.
    definitions: HashMap<String, (&'j Map<String, Value>, String)>,
    /// The full names of the definitions that are being read.
    open: Vec<String>,
    types: usize,
}

impl<'j> Parser<'j> {
    fn node(&mut self, json: &'j Value, space: &str, depth: usize) -> Result<Node, String> {
        self.types += 1;
        if self.types > TYPES_MAX {
            return Err(format!("the schema stands for more than {TYPES_MAX} types"));
        }
        if depth > NESTING_MAX {
            return Err(format!(
                "the types of the schema nest deeper than {NESTING_MAX}"
            ));
        }
        match json {
            Value::String(name) => self.named(name, space, depth),
            Value::Array(branches) => {
                let branches: Result<Vec<_>, _> = branches
                    .iter()
                    .map(|branch| self.node(branch, space, depth + 1))
                    .collect();
                let branches = branches?;
                let data_type = common_type(&branches);
                Ok(Node::Union(branches, data_type))
            }
            Value::Object(object) => match object.get("type") {
                Some(Value::String(kind)) => self.object(kind, object, space, depth),
                // A type may be wrapped in an object for the sake of other attributes.
                Some(inner) => self.node(inner, space, depth + 1),
                None => Err("a type of the schema does not say what it is".into()),
            },
            _ => Err(format!("the schema has no such type: {json}")),
        }
    }

    fn named(&mut self, name: &str, space: &str, depth: usize) -> Result<Node, String> {
        if let Some(node) = primitive(name) {
            return Ok(node);
        }
        let full = full_name(name, None, space);
        if self.open.contains(&full) {
            return Err(format!("type {full} of the schema holds itself"));
        }
        match self.definitions.get(&full) {
            Some((definition, around)) => {
                let (definition, around) = (*definition, around.clone());
                let kind = text_of(definition, "type").unwrap_or_default();
                self.object(kind, definition, &around, depth)
            }
            None => Err(format!("the schema does not say what type {full} is")),
        }
    }

    fn object(
        &mut self,
        kind: &str,
        object: &'j Map<String, Value>,
        space: &str,
        depth: usize,
    ) -> Result<Node, String> {
        let part = |name: &str| {
            object
                .get(name)
                .ok_or_else(|| format!("the schema has {kind} without {name}"))
        };
        match kind {
            "array" => {
                let element = self.node(part("items")?, space, depth + 1)?;
                Ok(Node::Array(Box::new(element)))
            }
            "map" => {
                let value = self.node(part("values")?, space, depth + 1)?;
                Ok(Node::Map(Box::new(value)))
            }
            "record" | "error" | "enum" | "fixed" => {
                let name = text_of(object, "name").ok_or("the schema has a type without name")?;
                let full = full_name(name, text_of(object, "namespace"), space);
                self.definitions
                    .insert(full.clone(), (object, space.to_string()));
                self.open.push(full.clone());
                let node = self.definition(kind, object, &full, depth);
                self.open.pop();
                node
            }
            _ => match primitive(kind) {
                Some(node) => Ok(with_meaning(node, object)),
                None => self.named(kind, space, depth),
            },
        }
    }

    fn definition(
        &mut self,
        kind: &str,
        object: &'j Map<String, Value>,
        full: &str,
        depth: usize,
    ) -> Result<Node, String> {
        let list = |name: &str| {
            object
                .get(name)
                .and_then(Value::as_array)
                .ok_or_else(|| format!("type {full} of the schema has no {name}"))
        };
        match kind {
            "fixed" => {
                let size = object.get("size").and_then(Value::as_u64);
                let size = size.and_then(|size| usize::try_from(size).ok());
                let size = size.ok_or_else(|| format!("type {full} of the schema has no size"))?;
                Ok(with_meaning(Node::Fixed(size), object))
            }
            "enum" => {
                let symbols = list("symbols")?.iter();
                let symbols: Option<Vec<_>> = symbols
                    .map(|symbol| symbol.as_str().map(str::to_string))
                    .collect();
                symbols.map(Node::Enum).ok_or_else(|| {
                    format!("type {full} of the schema has a symbol that is no text")
                })
            }
            _ => self.record(list("fields")?, full, depth),
        }
    }

    fn record(&mut self, list: &'j [Value], full: &str, depth: usize) -> Result<Node, String> {
        let space = full.rsplit_once('.').map_or("", |(space, _)| space);
        let mut fields = Vec::new();
        let mut seen = HashSet::new();
        for field in list {
            let named = field
                .as_object()
                .and_then(|field| Some((text_of(field, "name")?, field.get("type")?)));
            let (name, json) = named.ok_or_else(|| {
                format!("type {full} of the schema has a field without name or type")
            })?;
            if !seen.insert(name) {
                return Err(format!("column {name} stands twice in type {full}"));
            }
            fields.push((name.to_string(), self.node(json, space, depth + 1)?));
        }
        Ok(Node::Record(fields))
    }
}

fn text_of<'j>(object: &'j Map<String, Value>, name: &str) -> Option<&'j str> {
    object.get(name).and_then(Value::as_str)
}

fn full_name(name: &str, own_space: Option<&str>, space: &str) -> String {
    match own_space.unwrap_or(space) {
        _ if name.contains('.') => name.to_string(),
        "" => name.to_string(),
        space => format!("{space}.{name}"),
    }
}

fn primitive(name: &str) -> Option<Node> {
    Some(match name {
        "null" => Node::Null,
        "boolean" => Node::Boolean,
        "int" => Node::Int,
        "long" => Node::Long,
        "float" => Node::Float,
        "double" => Node::Double,
        "bytes" => Node::Bytes,
        "string" => Node::Text,
        _ => return None,
    })
}

/// The logical type of a type; one that is unknown or does not fit says nothing, as Avro wants it.
fn with_meaning(node: Node, object: &Map<String, Value>) -> Node {
    let meaning = text_of(object, "logicalType").unwrap_or_default();
    let timestamp = |unit, is_local| Node::Timestamp { unit, is_local };
    match (&node, meaning) {
        (Node::Bytes, "decimal") => decimal(None, object).unwrap_or(node),
        (Node::Fixed(size), "decimal") => decimal(Some(*size), object).unwrap_or(node),
        (Node::Int, "date") => Node::Date,
        (Node::Int, "time-millis") => Node::TimeMillis,
        (Node::Long, "time-micros") => Node::TimeMicros,
        (Node::Long, "timestamp-millis") => timestamp(TimeUnit::Millisecond, false),
        (Node::Long, "timestamp-micros") => timestamp(TimeUnit::Microsecond, false),
        (Node::Long, "timestamp-nanos") => timestamp(TimeUnit::Nanosecond, false),
        (Node::Long, "local-timestamp-millis") => timestamp(TimeUnit::Millisecond, true),
        (Node::Long, "local-timestamp-micros") => timestamp(TimeUnit::Microsecond, true),
        (Node::Long, "local-timestamp-nanos") => timestamp(TimeUnit::Nanosecond, true),
        (Node::Fixed(16), "uuid") => Node::Uuid,
        (Node::Fixed(12), "duration") => Node::Duration,
        _ => node,
    }
}

fn decimal(size: Option<usize>, object: &Map<String, Value>) -> Option<Node> {
    let number = |name: &str| object.get(name).and_then(Value::as_u64);
    let precision = u8::try_from(number("precision")?).ok()?;
    let scale = match object.get("scale") {
        Some(_) => i8::try_from(number("scale")?).ok()?,
        None => 0,
    };
    let is_sound = (1..=DECIMAL256_MAX_PRECISION).contains(&precision)
        && i16::from(scale) <= i16::from(precision);
    is_sound.then_some(Node::Decimal {
        size,
        precision,
        scale,
    })
}

/// One type for the values of all branches: their own, the wider number, or text.
fn common_type(branches: &[Node]) -> DataType {
    let mut types: Vec<DataType> = branches
        .iter()
        .filter(|branch| **branch != Node::Null)
        .map(Node::data_type)
        .collect();
    types.dedup();
    let all_of = |allowed: [DataType; 2]| types.iter().all(|found| allowed.contains(found));
    match types.as_slice() {
        [only] => only.clone(),
        [] => DataType::Utf8,
        _ if all_of([DataType::Int32, DataType::Int64]) => DataType::Int64,
        _ if all_of([DataType::Float32, DataType::Float64]) => DataType::Float64,
        _ => DataType::Utf8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(fields: &str) -> String {
        format!(r#"{{"type": "record", "name": "r", "namespace": "s", "fields": [{fields}]}}"#)
    }

    fn node(json: &str) -> Result<Node, String> {
        let field = format!(r#"{{"name": "f", "type": {json}}}"#);
        let mut fields = fields(record(&field).as_bytes())?;
        Ok(fields.remove(0).1)
    }

    #[test]
    fn schemas_that_cannot_be_read_are_named() {
        let twice = r#"{"name": "a", "type": "int"}, {"name": "a", "type": "int"}"#;
        for (schema, expected) in [
            ("{".to_string(), "is no JSON"),
            ("\"string\"".to_string(), "that of no record"),
            ("[\"null\"]".to_string(), "that of no record"),
            (record(twice), "column a stands twice"),
            (
                record(r#"{"name": "a", "type": "s.r"}"#),
                "s.r of the schema holds itself",
            ),
            (
                record(r#"{"name": "a", "type": ["null", "r"]}"#),
                "s.r of the schema holds itself",
            ),
            (
                record(r#"{"name": "a", "type": "other"}"#),
                "what type s.other is",
            ),
            (record(r#"{"name": "a"}"#), "without name or type"),
            (
                record(r#"{"name": "a", "type": {"type": "array"}}"#),
                "array without items",
            ),
            (
                record(r#"{"name": "a", "type": {"type": "fixed", "name": "x"}}"#),
                "has no size",
            ),
            (record(r#"{"name": "a", "type": 5}"#), "no such type: 5"),
        ] {
            let error = fields(schema.as_bytes()).unwrap_err();
            assert!(error.contains(expected), "{schema}: {error}");
        }
    }

    #[test]
    fn schemas_that_stand_for_too_much_are_refused() {
        let mut json = r#"{"type": "record", "name": "t0", "fields": []}"#.to_string();
        for level in 1..20 {
            json = format!(
                r#"{{"type": "record", "name": "t{level}", "fields": [{{"name": "a", "type": {json}}}, {{"name": "b", "type": "t{}"}}]}}"#,
                level - 1
            );
        }
        assert!(node(&json).unwrap_err().contains("more than"));
        let deep = "{\"type\":\"array\",\"items\":".repeat(70) + "\"int\"" + &"}".repeat(70);
        assert!(node(&deep).is_err());
    }

    #[test]
    fn logical_types_mean_something_only_where_they_fit() {
        let of = |base: &str, rest: &str| node(&format!(r#"{{"type": {base}, {rest}}}"#)).unwrap();
        let decimal = Node::Decimal {
            size: None,
            precision: 10,
            scale: 2,
        };
        for (base, rest, expected) in [
            ("\"int\"", r#""logicalType": "date""#, Node::Date),
            ("\"long\"", r#""logicalType": "date""#, Node::Long),
            ("\"string\"", r#""logicalType": "uuid""#, Node::Text),
            ("\"long\"", r#""logicalType": "no-such""#, Node::Long),
            (
                "\"bytes\"",
                r#""logicalType": "decimal", "precision": 10, "scale": 2"#,
                decimal,
            ),
            (
                "\"bytes\"",
                r#""logicalType": "decimal", "precision": 2, "scale": 3"#,
                Node::Bytes,
            ),
            (
                "\"bytes\"",
                r#""logicalType": "decimal", "precision": 77"#,
                Node::Bytes,
            ),
            (
                "\"fixed\"",
                r#""name": "u", "size": 16, "logicalType": "uuid""#,
                Node::Uuid,
            ),
            (
                "\"fixed\"",
                r#""name": "u", "size": 15, "logicalType": "uuid""#,
                Node::Fixed(15),
            ),
        ] {
            assert_eq!(of(base, rest), expected, "{base} {rest}");
        }
    }

    #[test]
    fn names_are_found_in_their_namespace_and_unions_get_one_type() {
        let two = r#"{"name": "a", "type": {"type": "enum", "name": "e", "symbols": ["X"]}},
                     {"name": "b", "type": ["null", "s.e"]}, {"name": "c", "type": {"type": "e"}}"#;
        let fields = fields(record(two).as_bytes()).unwrap();
        let symbols = Node::Enum(vec!["X".into()]);
        assert_eq!(fields[0].1, symbols);
        let union = Node::Union(vec![Node::Null, symbols.clone()], DataType::Utf8);
        assert_eq!(fields[1].1, union);
        assert_eq!(fields[2].1, symbols);
        for (json, data_type) in [
            (r#"["null", "int", "long"]"#, DataType::Int64),
            (r#"["float", "double"]"#, DataType::Float64),
            (r#"["long", "double"]"#, DataType::Utf8),
            (r#"["null"]"#, DataType::Utf8),
            ("[]", DataType::Utf8),
        ] {
            assert_eq!(node(json).unwrap().data_type(), data_type, "{json}");
        }
    }
}
