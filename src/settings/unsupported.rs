//! The settings that are part of the design and that this version does not do, in one place.
//!
//! A setting is refused by name, never ignored. To open one, remove its line and read it in `check`.

use super::reader::{Reader, Value};

/// Which values of a setting are refused.
enum Refused {
    /// These words.
    Words(&'static [&'static str]),
}

const NOT_YET: &[(&str, Refused)] = &[("source.envelope", Refused::Words(ENVELOPES))];

const ENVELOPES: &[&str] = &["qlik"];

/// Settings that hold a path.
const PATHS: &[&str] = &[
    "checkpoint",
    "source.path",
    "source.clean_source_move_destination",
    "bronze.path",
    "silver.path",
];

/// Refuses what is not supported yet and takes it out, so that its default stands in for it.
pub(super) fn refuse(reader: &mut Reader<'_>) {
    for (key, refused) in NOT_YET {
        let Some(entry) = reader.entries.get(*key) else {
            continue;
        };
        if !refused.covers(&entry.value) {
            continue;
        }
        let name = reader.name(key);
        let shown = entry.shown.clone();
        reader.refuse(key, format!("{name} = {shown} is not supported yet"));
        reader.entries.remove(*key);
    }
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

impl Refused {
    fn covers(&self, value: &Value) -> bool {
        let texts: Vec<&str> = match value {
            Value::One(text) => vec![text],
            Value::Many(texts) => texts.iter().map(String::as_str).collect(),
            Value::Refused => return false,
        };
        match self {
            Refused::Words(words) => texts.iter().any(|text| words.contains(text)),
        }
    }
}
