//! Least and greatest values per file, and what they rule out.

use arrow::array::Array;

/// A value that statistics can compare.
#[derive(Clone, Debug, PartialEq)]
pub enum StatValue {
    /// Integers; dates as days, timestamps as microseconds since the epoch.
    Int(i64),
    /// Unscaled value, scale of the column.
    Decimal(i128),
    /// Text, by bytes.
    Text(String),
    /// Truth.
    Bool(bool),
}

/// A closed range of one column.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnRange {
    /// A top-level column.
    pub column: String,
    /// The least value.
    pub min: StatValue,
    /// The greatest value.
    pub max: StatValue,
}

impl ColumnRange {
    /// The range of the non-NULL values; `None` if there are none or their type has no usable statistics.
    pub fn of(column: &str, values: &dyn Array) -> Option<ColumnRange> {
        todo!()
    }
}
