//! Types from hints, evolution, names.

use crate::error::Result;
use arrow::datatypes::{Field, SchemaRef};

/// The source columns of a table (without the columns that the loader adds), in order. All are nullable.
#[derive(Clone, Debug, PartialEq)]
pub struct TableSchema {
    /// The columns.
    pub columns: SchemaRef,
}

/// Parses Spark DDL ("amount DECIMAL(10,2), `odd name` STRING, s STRUCT<a: INT, b: ARRAY<STRING>>").
pub fn parse_ddl(text: &str) -> Result<Vec<Field>> {
    let _ = text;
    todo!()
}
