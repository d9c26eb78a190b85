//! Types from hints, evolution, names.
//!
//! A [`TableSchema`] only grows, at its end; its names are unique even when case is ignored, so that no reader can
//! confuse two columns. What a value must look like to fit a type is the business of `decode`.

mod ddl;

pub use ddl::{ddl_name, ddl_type, parse_ddl};

use crate::change::{
    BATCH_ID, BEFORE, ENVELOPE, FILE_MODIFIED_AT, FILE_PATH, FILE_ROW, LOADED_AT, OP,
    PRESENT_COLUMNS, RESCUED_DATA, SEQUENCE, SNAPSHOT_VERSION,
};
use crate::error::{Error, Result};
use crate::time_pattern::TimePattern;
use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The longest column name, in bytes.
pub const COLUMN_NAME_BYTES_MAX: usize = 255;

/// The most digits of a DECIMAL.
pub const DECIMAL_PRECISION_MAX: u8 = 38;

/// Names that the loader or Delta's change data feed adds; no source column may have them.
const RESERVED_NAMES: [&str; 11] = [
    SNAPSHOT_VERSION,
    RESCUED_DATA,
    PRESENT_COLUMNS,
    FILE_PATH,
    FILE_ROW,
    FILE_MODIFIED_AT,
    BATCH_ID,
    LOADED_AT,
    "_change_type",
    "_commit_version",
    "_commit_timestamp",
];

/// The source columns of a table (without the columns that the loader adds), in order. All are nullable.
#[derive(Clone, Debug, PartialEq)]
pub struct TableSchema {
    /// The columns.
    pub columns: SchemaRef,
}

/// A column that the schema lacks.
#[derive(Clone, Debug, PartialEq)]
pub struct NewColumn {
    /// As delivered.
    pub name: String,
    /// Inferred over all its values in the file (STRING without inference).
    pub data_type: DataType,
}

/// What a schema knows about a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The column at this index has exactly this name.
    Exact(usize),
    /// The column at this index has this name but for upper and lower case.
    OtherCase(usize),
    /// No column has it.
    Absent,
}

impl TableSchema {
    /// The schema of these columns, each made nullable and its type the form that Delta tables have here (STRING is
    /// `Utf8`, instants are microseconds in UTC). Fails on a name that no table takes, and on two names beside each
    /// other that differ at most in case.
    pub fn new(columns: Vec<Field>) -> Result<Self> {
        for column in &columns {
            check_column_name(column.name())?;
            check_nested_names(column.name(), column.data_type())?;
        }
        check_distinct("", columns.iter().map(|column| column.name().as_str()))?;
        let normal = |column: Field| {
            let data_type = delta_type(column.data_type());
            column.with_data_type(data_type).with_nullable(true)
        };
        Ok(TableSchema {
            columns: Arc::new(Schema::new(
                columns.into_iter().map(normal).collect::<Vec<_>>(),
            )),
        })
    }

    /// The schema of a table before its first file: the columns of `schema_hints`.
    pub fn from_hints(ddl: &str) -> Result<Self> {
        TableSchema::new(parse_ddl(ddl)?).map_err(|error| error.context("schema_hints"))
    }

    /// Finds a column by its exact name, and says when another differs in case only.
    pub fn lookup(&self, name: &str) -> Lookup {
        let fields = self.columns.fields();
        if let Some(index) = fields.iter().position(|field| field.name() == name) {
            return Lookup::Exact(index);
        }
        match fields
            .iter()
            .position(|field| same_but_for_case(field.name(), name))
        {
            Some(index) => Lookup::OtherCase(index),
            None => Lookup::Absent,
        }
    }

    /// This schema with the columns that a change in an envelope fills.
    pub fn with_envelope_columns(&self) -> TableSchema {
        let names = [OP, SEQUENCE, BEFORE, ENVELOPE, PRESENT_COLUMNS];
        names.into_iter().fold(self.clone(), |schema, name| {
            schema.with_own_column(name, DataType::Utf8)
        })
    }

    /// This schema with a column that the loader fills.
    pub fn with_own_column(&self, name: &str, data_type: DataType) -> TableSchema {
        let mut fields = self.columns.fields().to_vec();
        if self.columns.field_with_name(name).is_err() {
            fields.push(Arc::new(Field::new(name, data_type, true)));
        }
        TableSchema {
            columns: Arc::new(Schema::new(fields)),
        }
    }

    /// This schema with `new` at its end. A name that is there already, in any case, or that no table takes is left
    /// out: the records that carry it are refused when they are decoded against the result.
    pub fn extended(&self, new: &[NewColumn]) -> TableSchema {
        let mut fields = self.columns.fields().to_vec();
        let mut names: HashSet<String> = fields
            .iter()
            .map(|field| field.name().to_lowercase())
            .collect();
        for column in new {
            if check_column_name(&column.name).is_ok() && names.insert(column.name.to_lowercase()) {
                fields.push(Arc::new(Field::new(
                    &column.name,
                    column.data_type.clone(),
                    true,
                )));
            }
        }
        TableSchema {
            columns: Arc::new(Schema::new(fields)),
        }
    }
}

fn check_distinct<'a>(parent: &str, names: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let mut seen = HashSet::new();
    match names
        .into_iter()
        .find(|name| !seen.insert(name.to_lowercase()))
    {
        None => Ok(()),
        Some(name) => Err(
            Error::settings(format!("column {parent}{name} is declared twice"))
                .hint("names that differ in case only are the same name"),
        ),
    }
}

/// The fields of a STRUCT may have any name, but each only once.
fn check_nested_names(path: &str, data_type: &DataType) -> Result<()> {
    match data_type {
        DataType::Struct(fields) => {
            check_distinct(
                &format!("{path}."),
                fields.iter().map(|field| field.name().as_str()),
            )?;
            fields.iter().try_for_each(|field| {
                check_nested_names(&format!("{path}.{}", field.name()), field.data_type())
            })
        }
        DataType::List(inner) | DataType::Map(inner, _) => {
            check_nested_names(path, inner.data_type())
        }
        _ => Ok(()),
    }
}

impl NewColumn {
    /// The same; STRING where no value told a type.
    pub fn or_string(mut self) -> Self {
        if self.data_type == DataType::Null {
            self.data_type = DataType::Utf8;
        }
        self
    }
}

/// The new columns of several files as one list, in the order of their first appearance, with types widened.
pub fn merge_new_columns<'a>(files: impl IntoIterator<Item = &'a [NewColumn]>) -> Vec<NewColumn> {
    let mut merged: Vec<NewColumn> = Vec::new();
    let mut places: HashMap<&str, usize> = HashMap::new();
    for column in files.into_iter().flatten() {
        match places.get(column.name.as_str()) {
            Some(place) => {
                let known = &mut merged[*place].data_type;
                *known = widen(known, &column.data_type);
            }
            None => {
                places.insert(&column.name, merged.len());
                merged.push(column.clone());
            }
        }
    }
    merged
}

fn same_but_for_case(left: &str, right: &str) -> bool {
    left.to_lowercase() == right.to_lowercase()
}

/// Whether a table takes a column of this name; the error says what is wrong with it.
///
/// Dots, dashes, leading digits, words of SQL and letters of any script are fine.
pub fn check_column_name(name: &str) -> Result<()> {
    let refuse = |why: &str| {
        let shown: String = name.chars().take(40).collect();
        Err(Error::settings(format!("column name {shown:?} {why}")))
    };
    if name.is_empty() {
        return refuse("is empty");
    }
    if name.len() > COLUMN_NAME_BYTES_MAX {
        return refuse("is longer than 255 bytes");
    }
    if let Some(bad) = name
        .chars()
        .find(|c| " ,;{}()=\"'`\\".contains(*c) || c.is_control())
    {
        return refuse(&format!("contains {bad:?}"));
    }
    if RESERVED_NAMES
        .iter()
        .any(|reserved| same_but_for_case(reserved, name))
    {
        return refuse("is one that the loader or the change data feed adds itself");
    }
    Ok(())
}

/// Whether `format` is a chrono format, or a pattern of Spark, that dates or times can be read with.
pub fn check_time_format(format: &str) -> Result<()> {
    let is_known = match format.contains('%') {
        true => chrono::format::StrftimeItems::new(format)
            .parse_to_owned()
            .is_ok(),
        false => TimePattern::parse(format).is_some(),
    };
    if is_known {
        return Ok(());
    }
    let error = Error::settings(format!("not a format of dates or times: {format:?}"));
    Err(error.hint(
        "write it as for strftime, such as %Y-%m-%d %H:%M:%S%.f %z, or as in Spark, such as yyyy-MM-dd HH:mm:ss[.SSSSSS]XXX",
    ))
}

/// The type of TIMESTAMP columns: an instant, in microseconds.
pub fn timestamp_type() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

/// The type of ARRAY columns.
pub fn array_type(element: DataType) -> DataType {
    DataType::List(Arc::new(Field::new("element", element, true)))
}

/// The type of MAP columns.
pub fn map_type(key: DataType, value: DataType) -> DataType {
    let fields = Fields::from(vec![
        Field::new("key", key, false),
        Field::new("value", value, true),
    ]);
    DataType::Map(
        Arc::new(Field::new("key_value", DataType::Struct(fields), false)),
        false,
    )
}

/// The type of a Delta table that holds every value of an Arrow type of a file. Types that Delta lacks become STRING.
pub fn delta_type(file_type: &DataType) -> DataType {
    match file_type {
        DataType::Boolean
        | DataType::Int8
        | DataType::Int16
        | DataType::Int32
        | DataType::Int64
        | DataType::Float32
        | DataType::Float64 => file_type.clone(),
        DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        DataType::UInt32 => DataType::Int64,
        DataType::UInt64 => DataType::Decimal128(20, 0),
        DataType::Float16 => DataType::Float32,
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => delta_decimal(*precision, *scale),
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => DataType::Binary,
        DataType::Date32 | DataType::Date64 => DataType::Date32,
        DataType::Timestamp(_, Some(_)) => timestamp_type(),
        DataType::Timestamp(_, None) => DataType::Timestamp(TimeUnit::Microsecond, None),
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::FixedSizeList(element, _) => array_type(delta_type(element.data_type())),
        DataType::Struct(fields) if are_delta_names(fields) => DataType::Struct(
            fields
                .iter()
                .map(|field| Field::new(field.name(), delta_type(field.data_type()), true))
                .collect(),
        ),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(pair) if pair.len() == 2 => map_type(
                delta_type(pair[0].data_type()),
                delta_type(pair[1].data_type()),
            ),
            _ => DataType::Utf8,
        },
        DataType::Dictionary(_, value) => delta_type(value),
        _ => DataType::Utf8,
    }
}

/// Whether Delta takes the names of these fields inside of a STRUCT: it compares without case and forbids some signs.
fn are_delta_names(fields: &Fields) -> bool {
    let mut seen = HashSet::new();
    let is_forbidden = |c: char| " ,;{}()=".contains(c) || c.is_control();
    !fields.is_empty()
        && fields.iter().all(|field| {
            let name = field.name();
            !name.is_empty() && !name.contains(is_forbidden) && seen.insert(name.to_lowercase())
        })
}

/// Delta has neither negative scales nor scales beyond the precision.
fn delta_decimal(precision: u8, scale: i8) -> DataType {
    let digits_after = i16::from(scale.max(0));
    let digits_before = (i16::from(precision) - i16::from(scale)).max(0);
    decimal_of(digits_before, digits_after)
}

/// The DECIMAL with so many digits on each side of the point; STRING where there is none.
fn decimal_of(digits_before: i16, digits_after: i16) -> DataType {
    let precision = (digits_before + digits_after).max(1);
    match (u8::try_from(precision), i8::try_from(digits_after)) {
        (Ok(precision), Ok(scale)) if precision <= DECIMAL_PRECISION_MAX => {
            DataType::Decimal128(precision, scale)
        }
        _ => DataType::Utf8,
    }
}

/// The narrowest type that holds the values of both; the order of merging does not matter.
///
/// Whole numbers widen among themselves, into a DECIMAL with room for them, and into DOUBLE; decimals widen to the
/// digits of both; FLOAT widens to DOUBLE. Everything else that differs is STRING.
pub fn widen(left: &DataType, right: &DataType) -> DataType {
    // NULL says nothing about the type.
    if left == right || *right == DataType::Null {
        return left.clone();
    }
    if *left == DataType::Null {
        return right.clone();
    }
    if let (Some(left_digits), Some(right_digits)) = (integer_digits(left), integer_digits(right)) {
        return if left_digits > right_digits {
            left.clone()
        } else {
            right.clone()
        };
    }
    if let (Some((left_before, left_after)), Some((right_before, right_after))) =
        (decimal_digits(left), decimal_digits(right))
    {
        return decimal_of(left_before.max(right_before), left_after.max(right_after));
    }
    let fits_double = |t: &DataType| t.is_floating() || integer_digits(t).is_some();
    if fits_double(left) && fits_double(right) {
        DataType::Float64
    } else {
        DataType::Utf8
    }
}

fn integer_digits(data_type: &DataType) -> Option<i16> {
    match data_type {
        DataType::Int8 => Some(3),
        DataType::Int16 => Some(5),
        DataType::Int32 => Some(10),
        DataType::Int64 => Some(19),
        _ => None,
    }
}

fn decimal_digits(data_type: &DataType) -> Option<(i16, i16)> {
    match data_type {
        DataType::Decimal128(precision, scale) => {
            Some((i16::from(*precision) - i16::from(*scale), i16::from(*scale)))
        }
        _ => integer_digits(data_type).map(|digits| (digits, 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, data_type: DataType) -> NewColumn {
        NewColumn {
            name: name.into(),
            data_type,
        }
    }

    #[test]
    fn names_that_look_like_sql_are_refused_and_odd_but_harmless_ones_taken() {
        let long = "x".repeat(256);
        for bad in [
            "",
            "a b",
            "status\" = 'x' OR \"1",
            "x; DROP TABLE silver",
            "a\\b",
            "a\u{1}",
            "_File_Path",
            &long,
        ] {
            assert!(check_column_name(bad).is_err(), "{bad}");
        }
        for good in [
            "a.b",
            "1inch",
            "select",
            "Gr\u{f6}\u{df}e",
            "order-date",
            "_id",
            "__START_AT",
        ] {
            assert!(check_column_name(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn hints_that_differ_in_case_only_are_refused() {
        let error = TableSchema::from_hints("a INT, A STRING").unwrap_err();
        assert!(
            error.message().contains("column A is declared twice"),
            "{error}"
        );
        assert!(TableSchema::from_hints("_batch_id BIGINT").is_err());
        let nested = TableSchema::from_hints("s ARRAY<STRUCT<x: INT, X: INT>>").unwrap_err();
        assert!(
            nested.message().contains("column s.X is declared twice"),
            "{nested}"
        );
    }

    #[test]
    fn lookup_tells_exact_other_case_and_absent_apart() {
        let schema = TableSchema::from_hints("orderId BIGINT NOT NULL, Status STRING").unwrap();
        assert_eq!(schema.lookup("Status"), Lookup::Exact(1));
        assert_eq!(schema.lookup("ORDERID"), Lookup::OtherCase(0));
        assert_eq!(schema.lookup("seq"), Lookup::Absent);
        assert!(schema.columns.field(0).is_nullable());
    }

    #[test]
    fn columns_of_a_table_take_one_form_of_each_type() {
        let views = Field::new("a", DataType::Utf8View, false);
        let list = DataType::List(Arc::new(Field::new("item", DataType::LargeUtf8, false)));
        let schema = TableSchema::new(vec![views, Field::new("b", list, true)]).unwrap();
        assert_eq!(
            schema.columns.field(0),
            &Field::new("a", DataType::Utf8, true)
        );
        assert_eq!(
            schema.columns.field(1).data_type(),
            &array_type(DataType::Utf8)
        );
        let every = "a DECIMAL(5,5), b MAP<STRING, STRUCT<x: TIMESTAMP_NTZ>>, c TIMESTAMP, d BINARY, e DATE";
        let parsed = parse_ddl(every).unwrap();
        assert_eq!(
            TableSchema::new(parsed.clone())
                .unwrap()
                .columns
                .fields()
                .to_vec(),
            Schema::new(parsed).fields().to_vec()
        );
    }

    #[test]
    fn extending_leaves_out_what_is_there_or_not_allowed() {
        let schema = TableSchema::from_hints("a INT").unwrap();
        let new = [
            column("A", DataType::Utf8),
            column("b", DataType::Int64),
            column("B", DataType::Utf8),
            column("c d", DataType::Utf8),
        ];
        let extended = schema.extended(&new);
        assert_eq!(extended.columns.fields().len(), 2);
        assert_eq!(extended.lookup("b"), Lookup::Exact(1));
    }

    #[test]
    fn new_columns_of_files_merge_in_order_and_widen() {
        let first = [column("b", DataType::Int64), column("a", DataType::Utf8)];
        let second = [
            column("c", DataType::Boolean),
            column("b", DataType::Float64),
        ];
        let merged = merge_new_columns([&first[..], &second[..]]);
        assert_eq!(
            merged,
            [
                column("b", DataType::Float64),
                column("a", DataType::Utf8),
                column("c", DataType::Boolean)
            ]
        );
    }

    #[test]
    fn widening_holds_both_or_ends_in_string() {
        let big = DataType::Decimal128(38, 0);
        for (left, right, expected) in [
            (DataType::Int64, DataType::Float64, DataType::Float64),
            (DataType::Int64, big.clone(), big.clone()),
            (big.clone(), DataType::Float64, DataType::Utf8),
            (DataType::Boolean, DataType::Int64, DataType::Utf8),
            (DataType::Date32, timestamp_type(), DataType::Utf8),
            (DataType::Int16, DataType::Int32, DataType::Int32),
            (
                DataType::Decimal128(10, 2),
                DataType::Int32,
                DataType::Decimal128(12, 2),
            ),
            (big.clone(), DataType::Decimal128(2, 2), DataType::Utf8),
        ] {
            assert_eq!(widen(&left, &right), expected, "{left} {right}");
            assert_eq!(widen(&right, &left), expected, "{right} {left}");
        }
    }

    #[test]
    fn widening_gives_the_same_in_every_order() {
        let types = [
            DataType::Int8,
            DataType::Int32,
            DataType::Int64,
            DataType::Float32,
            DataType::Float64,
            DataType::Decimal128(10, 2),
            DataType::Decimal128(38, 0),
            DataType::Boolean,
            DataType::Utf8,
        ];
        for a in &types {
            for b in &types {
                for c in &types {
                    assert_eq!(
                        widen(&widen(a, b), c),
                        widen(a, &widen(b, c)),
                        "{a} {b} {c}"
                    );
                }
            }
        }
    }

    #[test]
    fn unsigned_and_foreign_types_map_to_wider_delta_types() {
        assert_eq!(delta_type(&DataType::UInt32), DataType::Int64);
        assert_eq!(delta_type(&DataType::UInt64), DataType::Decimal128(20, 0));
        assert_eq!(
            delta_type(&DataType::Decimal128(5, -2)),
            DataType::Decimal128(7, 0)
        );
        assert_eq!(delta_type(&DataType::Decimal256(60, 2)), DataType::Utf8);
        assert_eq!(
            delta_type(&DataType::Time64(TimeUnit::Microsecond)),
            DataType::Utf8
        );
        assert_eq!(
            delta_type(&DataType::Timestamp(
                TimeUnit::Nanosecond,
                Some("+02:00".into())
            )),
            timestamp_type()
        );
    }

    #[test]
    fn structs_with_names_that_delta_lacks_become_text() {
        let of = |names: &[&str]| {
            let field = |name: &&str| Field::new(*name, DataType::Int64, true);
            DataType::Struct(names.iter().map(field).collect())
        };
        for bad in [&["a b"][..], &["a", "A"], &[""], &["a\n"], &[]] {
            assert_eq!(delta_type(&of(bad)), DataType::Utf8, "{bad:?}");
            let list = DataType::List(Arc::new(Field::new("element", of(bad), true)));
            assert_eq!(delta_type(&list), array_type(DataType::Utf8), "{bad:?}");
        }
        assert_eq!(delta_type(&of(&["a.b", "a"])), of(&["a.b", "a"]));
    }

    #[test]
    fn a_broken_time_format_is_named() {
        assert!(
            check_time_format("%Y-%m-%d %Q")
                .unwrap_err()
                .message()
                .contains("%Q")
        );
        assert!(check_time_format("%d.%m.%Y").is_ok());
        assert!(check_time_format("dd/MM/yyyy").is_ok());
        assert!(check_time_format("dd/mm/yyyy").is_err());
    }
}
