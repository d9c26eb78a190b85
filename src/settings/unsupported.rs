//! The settings that are part of the design and that this version does not do, in one place.
//!
//! A setting is refused by name, never ignored.

use super::reader::{Reader, Value};

/// Settings that hold a path.
const PATHS: &[&str] = &[
    "checkpoint",
    "source.path",
    "source.clean_source_move_destination",
    "bronze.path",
    "silver.path",
];

/// Refuses what is not supported yet and takes its value out.
pub(super) fn refuse(reader: &mut Reader<'_>) {
    for key in PATHS {
        refuse_url(reader, key);
    }
}

/// Only the scheme of a URL is shown, since the rest may hold a secret.
fn refuse_url(reader: &mut Reader<'_>, key: &str) {
    let Some(Value::One(text)) = reader.entries.get(key).map(|entry| &entry.value) else {
        return;
    };
    let Some((scheme, _)) = text.split_once("://") else {
        return;
    };
    if scheme == "file" {
        return;
    }
    let scheme = scheme.to_string();
    let name = reader.name(key);
    reader.refuse(
        key,
        format!("{name}: a path of the scheme {scheme}:// is not supported yet"),
    );
    if let Some(entry) = reader.entries.get_mut(key) {
        entry.value = Value::Refused;
    }
}
