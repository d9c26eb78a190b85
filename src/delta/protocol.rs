//! Which table features the direct reader and writer here honour; what a new table asks of others.
//!
//! A feature that is not known here could change what a row means or what a writer must do, so such a table is refused.

use crate::error::{Error, Result};
use arrow::datatypes::{DataType, Schema, TimeUnit};
use delta_kernel::schema::{ArrayType, DataType as KernelType, MapType, StructType};
use deltalake::kernel::{Metadata, Protocol};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The table property that turns the change data feed on.
pub(super) const CHANGE_DATA_FEED: &str = "delta.enableChangeDataFeed";
/// The table property that lets rows be deleted by vector.
pub(super) const DELETION_VECTORS: &str = "delta.enableDeletionVectors";

const KNOWN: [&str; 6] = [
    "appendOnly",
    "changeDataFeed",
    "deletionVectors",
    "invariants",
    "timestampNtz",
    "v2Checkpoint",
];
/// Features that a table may list as long as it does not use them.
const KNOWN_UNUSED: [&str; 4] = [
    "checkConstraints",
    "columnMapping",
    "generatedColumns",
    "identityColumns",
];

/// Refuses a table that uses a feature not implemented here.
pub(super) fn check(
    root: &Path,
    protocol: &Protocol,
    metadata: &Metadata,
    schema: &StructType,
) -> Result<()> {
    match unknown_feature(protocol, metadata, schema) {
        None => Ok(()),
        Some(feature) => Err(Error::settings(format!(
            "table {} uses a feature that is not supported: {feature}",
            root.display()
        ))
        .hint("choose another folder, or drop the feature from the table")),
    }
}

fn unknown_feature(
    protocol: &Protocol,
    metadata: &Metadata,
    schema: &StructType,
) -> Option<String> {
    let protocol = serde_json::to_value(protocol).unwrap_or_default();
    let number = |name: &str| {
        protocol
            .get(name)
            .and_then(Value::as_i64)
            .unwrap_or(i64::MAX)
    };
    let (reader, writer) = (number("minReaderVersion"), number("minWriterVersion"));
    if reader > 3 || writer > 7 {
        return Some(format!("protocol version ({reader}, {writer})"));
    }
    let listed = features(&protocol, "readerFeatures")
        .into_iter()
        .chain(features(&protocol, "writerFeatures"));
    let unknown = listed.into_iter().find(|feature| {
        !KNOWN.contains(&feature.as_str()) && !KNOWN_UNUSED.contains(&feature.as_str())
    });
    unknown
        .or_else(|| used_property(metadata))
        .or_else(|| used_column(schema))
}

fn used_property(metadata: &Metadata) -> Option<String> {
    metadata.configuration().iter().find_map(|(name, value)| {
        let on = value.eq_ignore_ascii_case("true");
        match name.as_str() {
            "delta.columnMapping.mode" if !value.eq_ignore_ascii_case("none") => {
                Some(format!("columnMapping ({value})"))
            }
            "delta.enableRowTracking" if on => Some("rowTracking".into()),
            "delta.enableInCommitTimestamps" if on => Some("inCommitTimestamp".into()),
            _ => name
                .strip_prefix("delta.constraints.")
                .map(|name| format!("checkConstraints ({name})")),
        }
    })
}

fn used_column(schema: &StructType) -> Option<String> {
    schema.fields().find_map(|field| {
        let marked = field.metadata().keys().find_map(|key| match key.as_str() {
            "delta.invariants" => Some("invariants"),
            "delta.generationExpression" => Some("generatedColumns"),
            "CURRENT_DEFAULT" => Some("allowColumnDefaults"),
            key if key.starts_with("delta.identity.") => Some("identityColumns"),
            _ => None,
        });
        let marked = marked.map(|feature| format!("{feature} (column {})", field.name()));
        marked.or_else(|| inner(field.data_type()).and_then(used_column))
    })
}

fn inner(data_type: &KernelType) -> Option<&StructType> {
    match data_type {
        KernelType::Struct(inner) => Some(inner),
        KernelType::Array(array) => {
            let ArrayType { element_type, .. } = array.as_ref();
            inner(element_type)
        }
        KernelType::Map(map) => {
            let MapType { value_type, .. } = map.as_ref();
            inner(value_type)
        }
        _ => None,
    }
}

fn features(protocol: &Value, list: &str) -> BTreeSet<String> {
    let list = protocol.get(list).and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(|name| name.as_str().map(str::to_owned))
        .collect()
}

/// What a new table asks of its readers and writers.
pub(super) fn for_new_table(
    schema: &Schema,
    change_data_feed: bool,
    deletion_vectors: bool,
) -> Result<Protocol> {
    let mut reader = BTreeSet::new();
    if deletion_vectors {
        reader.insert("deletionVectors");
    }
    if has_timestamp_ntz(schema) {
        reader.insert("timestampNtz");
    }
    let mut writer: BTreeSet<&str> = reader
        .iter()
        .copied()
        .chain(["appendOnly", "invariants"])
        .collect();
    if change_data_feed {
        writer.insert("changeDataFeed");
    }
    build(match (reader.is_empty(), change_data_feed) {
        (true, false) => json!({"minReaderVersion": 1, "minWriterVersion": 2}),
        (true, true) => {
            json!({"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": writer})
        }
        (false, _) => json!({
            "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": reader, "writerFeatures": writer,
        }),
    })
}

/// The protocol that a new schema and new properties need; `None` if the present one does.
pub(super) fn for_change(
    present: &Protocol,
    schema: Option<&Schema>,
    properties: &BTreeMap<String, String>,
) -> Result<Option<Protocol>> {
    let protocol = serde_json::to_value(present)
        .map_err(|error| Error::bug(format!("protocol does not serialize: {error}")))?;
    let number = |name: &str| {
        protocol
            .get(name)
            .and_then(Value::as_i64)
            .unwrap_or_default()
    };
    let mut reader = features(&protocol, "readerFeatures");
    let mut writer = features(&protocol, "writerFeatures");
    // A legacy version stands for these features; a list must name them.
    let legacy = [
        (2, "appendOnly"),
        (2, "invariants"),
        (3, "checkConstraints"),
        (4, "changeDataFeed"),
        (4, "generatedColumns"),
        (5, "columnMapping"),
        (6, "identityColumns"),
    ];
    let version = number("minWriterVersion");
    let implied = legacy
        .iter()
        .filter(|(since, _)| version < 7 && version >= *since);
    writer.extend(implied.map(|(_, feature)| (*feature).to_owned()));
    let is_set = |name: &str| properties.get(name).is_some_and(|value| value == "true");
    let of_readers = [
        ("timestampNtz", schema.is_some_and(has_timestamp_ntz)),
        ("deletionVectors", is_set(DELETION_VECTORS)),
    ];
    let of_writers = [("changeDataFeed", is_set(CHANGE_DATA_FEED))];
    let is_missing = |(name, is_needed): &(&str, bool)| *is_needed && !writer.contains(*name);
    let of_readers: Vec<String> = of_readers
        .iter()
        .filter(|feature| is_missing(feature))
        .map(|(name, _)| (*name).to_owned())
        .collect();
    let of_writers: Vec<String> = of_writers
        .iter()
        .filter(|feature| is_missing(feature))
        .map(|(name, _)| (*name).to_owned())
        .collect();
    if of_readers.is_empty() && of_writers.is_empty() {
        return Ok(None);
    }
    let reader_version = number("minReaderVersion");
    writer.extend(of_readers.iter().cloned().chain(of_writers));
    if of_readers.is_empty() && reader_version < 3 {
        let new = json!({
            "minReaderVersion": reader_version, "minWriterVersion": 7, "writerFeatures": writer,
        });
        return build(new).map(Some);
    }
    if reader_version == 2 {
        reader.insert("columnMapping".into());
    }
    reader.extend(of_readers);
    let new = json!({
        "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": reader, "writerFeatures": writer,
    });
    build(new).map(Some)
}

fn build(protocol: Value) -> Result<Protocol> {
    serde_json::from_value(protocol)
        .map_err(|error| Error::bug(format!("protocol does not parse: {error}")))
}

fn has_timestamp_ntz(schema: &Schema) -> bool {
    fn within(data_type: &DataType) -> bool {
        match data_type {
            DataType::Timestamp(TimeUnit::Microsecond, None) => true,
            DataType::Struct(fields) => fields.iter().any(|field| within(field.data_type())),
            DataType::List(field) | DataType::Map(field, _) => within(field.data_type()),
            _ => false,
        }
    }
    schema
        .fields()
        .iter()
        .any(|field| within(field.data_type()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::Field;
    use delta_kernel::schema::StructField;
    use deltalake::kernel::new_metadata;

    fn metadata(property: (&str, &str)) -> (Metadata, StructType) {
        let schema = StructType::try_new([StructField::nullable("a", KernelType::LONG)]).unwrap();
        (
            new_metadata(&schema, Vec::<String>::new(), [property]).unwrap(),
            schema,
        )
    }

    #[test]
    fn tables_with_other_features_are_refused_by_name() {
        let plain = build(json!({"minReaderVersion": 1, "minWriterVersion": 2})).unwrap();
        let root = Path::new("t");
        for (property, name) in [
            (("delta.columnMapping.mode", "name"), "columnMapping"),
            (("delta.constraints.positive", "a > 0"), "positive"),
            (("delta.enableRowTracking", "true"), "rowTracking"),
        ] {
            let (metadata, schema) = metadata(property);
            let error = check(root, &plain, &metadata, &schema).unwrap_err();
            assert!(error.message().contains(name), "{error}");
        }
        let tracked = build(
            json!({"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["rowTracking"]}),
        );
        let (metadata, schema) = metadata(("delta.columnMapping.mode", "none"));
        let error = check(root, &tracked.unwrap(), &metadata, &schema).unwrap_err();
        assert!(error.message().contains("rowTracking"), "{error}");
        assert!(check(root, &plain, &metadata, &schema).is_ok());
    }

    #[test]
    fn a_timestamp_without_zone_that_comes_later_raises_the_protocol_once() {
        let ntz = DataType::Timestamp(TimeUnit::Microsecond, None);
        let schema = Schema::new(vec![Field::new("t", ntz, true)]);
        let old = build(json!({"minReaderVersion": 1, "minWriterVersion": 4})).unwrap();
        let none = BTreeMap::new();
        let new = for_change(&old, Some(&schema), &none).unwrap().unwrap();
        let listed = features(&serde_json::to_value(&new).unwrap(), "writerFeatures");
        assert!(
            listed.contains("timestampNtz") && listed.contains("changeDataFeed"),
            "{listed:?}"
        );
        assert!(for_change(&new, Some(&schema), &none).unwrap().is_none());
    }

    #[test]
    fn feature_that_is_turned_on_later_is_listed_beside_what_the_version_stood_for() {
        let on = BTreeMap::from([(CHANGE_DATA_FEED.to_owned(), "true".to_owned())]);
        let off = BTreeMap::from([(CHANGE_DATA_FEED.to_owned(), "false".to_owned())]);
        let vectors = json!({
            "minReaderVersion": 3, "minWriterVersion": 7,
            "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"],
        });
        let with_vectors = BTreeMap::from([(DELETION_VECTORS.to_owned(), "true".to_owned())]);
        for (old, on, expected) in [
            (
                json!({"minReaderVersion": 1, "minWriterVersion": 2}),
                &on,
                json!({
                    "minReaderVersion": 1, "minWriterVersion": 7,
                    "writerFeatures": ["appendOnly", "changeDataFeed", "invariants"],
                }),
            ),
            (
                json!({"minReaderVersion": 1, "minWriterVersion": 2}),
                &with_vectors,
                json!({
                    "minReaderVersion": 3, "minWriterVersion": 7,
                    "readerFeatures": ["deletionVectors"],
                    "writerFeatures": ["appendOnly", "deletionVectors", "invariants"],
                }),
            ),
            (
                vectors,
                &on,
                json!({
                    "minReaderVersion": 3, "minWriterVersion": 7,
                    "readerFeatures": ["deletionVectors"],
                    "writerFeatures": ["changeDataFeed", "deletionVectors"],
                }),
            ),
        ] {
            let old = build(old).unwrap();
            let new = for_change(&old, None, on).unwrap().unwrap();
            let found = serde_json::to_value(&new).unwrap();
            for name in ["minReaderVersion", "minWriterVersion"] {
                assert_eq!(found[name], expected[name]);
            }
            for list in ["readerFeatures", "writerFeatures"] {
                assert_eq!(features(&found, list), features(&expected, list));
            }
            assert!(for_change(&new, None, on).unwrap().is_none());
            assert!(for_change(&old, None, &off).unwrap().is_none());
        }
        let legacy = build(json!({"minReaderVersion": 1, "minWriterVersion": 4})).unwrap();
        assert!(for_change(&legacy, None, &on).unwrap().is_none());
    }
}
