//! Envelopes whose records are flat: the columns of the row stand beside those of the envelope, in every format.

use super::{Op, debezium, delta_cdf, dms, qlik, sqlserver};
use crate::decode::{RecordFault, json_text};
use crate::settings::Envelope;

/// The columns of the envelope in one record, in their order; NULL is `None`.
pub(crate) struct Header<'r> {
    pub(crate) columns: &'r [(String, Option<String>)],
    /// The file of the record.
    pub(crate) path: &'r str,
    /// The number of the record in its file.
    pub(crate) record: usize,
}

/// What a flat record does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FlatChange {
    pub(crate) op: Op,
    pub(crate) sequence: Option<String>,
    /// A row before and its update, one right after the other, have the same.
    pub(crate) pair: Option<String>,
}

impl FlatChange {
    pub(super) fn new(op: Op, sequence: Option<String>) -> Self {
        FlatChange {
            op,
            sequence,
            pair: None,
        }
    }
}

/// Whether a column of this name is one of the envelope and none of the row.
pub(crate) fn is_header(envelope: Envelope, name: &str) -> bool {
    match envelope {
        Envelope::None
        | Envelope::Canal
        | Envelope::GoldenGate
        | Envelope::Maxwell
        | Envelope::Wal2Json => false,
        Envelope::Debezium => debezium::is_header(name),
        Envelope::Dms => dms::is_header(name),
        Envelope::DeltaCdf => delta_cdf::is_header(name),
        Envelope::SqlServer => sqlserver::is_header(name),
        Envelope::Qlik => qlik::is_header(name),
    }
}

/// What a record with this header does.
pub(crate) fn change(envelope: Envelope, header: &Header<'_>) -> Result<FlatChange, RecordFault> {
    match envelope {
        Envelope::Debezium => debezium::flat_change(header),
        Envelope::Dms => dms::change(header),
        Envelope::DeltaCdf => delta_cdf::change(header),
        Envelope::SqlServer => sqlserver::change(header),
        Envelope::Qlik => qlik::change(header),
        Envelope::None
        | Envelope::Canal
        | Envelope::GoldenGate
        | Envelope::Maxwell
        | Envelope::Wal2Json => Ok(FlatChange::new(Op::Insert, None)),
    }
}

impl Header<'_> {
    /// Whether there is a column of this name, whatever its case.
    pub(super) fn has(&self, name: &str) -> bool {
        let mut columns = self.columns.iter();
        columns.any(|column| column.0.eq_ignore_ascii_case(name))
    }

    /// The value of the column of this name, whatever its case.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let mut named = self
            .columns
            .iter()
            .filter(|column| column.0.eq_ignore_ascii_case(name));
        named.find_map(|column| column.1.as_deref())
    }

    /// All of it as a JSON object.
    pub(crate) fn about(&self) -> Option<String> {
        let value = |value: &Option<String>| value.as_deref().map_or("null".into(), json_text);
        let columns = self.columns.iter();
        let columns: Vec<String> = columns
            .map(|column| format!("{}:{}", json_text(&column.0), value(&column.1)))
            .collect();
        (!columns.is_empty()).then(|| format!("{{{}}}", columns.join(",")))
    }
}
