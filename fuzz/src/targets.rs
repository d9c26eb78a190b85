//! The targets by their names.

mod binary;
mod csv;
mod encodings;
mod envelopes;
mod init;
mod json;
mod settings;
mod unpack;
mod values;

/// Panics where a law does not hold for some bytes.
pub(crate) type Target = fn(&[u8]);

const TARGETS: [(&str, Target); 12] = [
    ("avro", binary::avro),
    ("csv", csv::csv),
    ("ddl", settings::ddl),
    ("encodings", encodings::encodings),
    ("envelopes", envelopes::envelopes),
    ("init", init::init),
    ("json_documents", json::documents),
    ("json_lines", json::lines),
    ("parquet", binary::parquet),
    ("settings", settings::settings),
    ("unpack", unpack::unpack),
    ("values", values::values),
];

pub(crate) fn named(name: &str) -> Option<Target> {
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    found.map(|(_, target)| *target)
}

pub(crate) fn names() -> Vec<&'static str> {
    TARGETS.iter().map(|(name, _)| *name).collect()
}
