//! Single values outside of a file: a text that a person typed, the values that a refused record shows, and those that were
//! rescued.
//!
//! They are read by the rules of the loader, so that a typed key is the key of the rows that hold it, and a rescued value
//! the one that its file would bring.

use super::columns::Column;
use super::format::{extension_of, has_json_name};
use super::packing::split_packing;
use super::reader;
use super::time::TimeFormats;
use super::token::{self, Token};
use super::value::{Cell, FieldValue, Misfit, ValueReader};
use crate::change::{FileFault, RescuedValue};
use crate::envelope::ColumnValue;
use crate::envelope::connect::ConnectType;
use crate::error::{Error, ErrorKind, Result as LoadResult};
use crate::settings::{Envelope, Format, SourceSettings};
use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, FieldRef};

/// A text as one value of a column; else what is wrong with it, as the end of a sentence that begins with the text.
///
/// Dates and times are read in the form in which the tables print them, or in the format that the source has.
pub fn value_of_text(
    text: &str,
    data_type: &DataType,
    settings: &SourceSettings,
) -> Result<ArrayRef, String> {
    let mut why = String::new();
    for mut reader in readers(settings) {
        match reader.text(&text.into(), data_type) {
            Ok(cell) => return one_row(data_type, cell).ok_or_else(|| "is too large".into()),
            // What the first form says is the most helpful.
            Err(misfit) if why.is_empty() => why = misfit.why.into_owned(),
            Err(_) => {}
        }
    }
    Err(why)
}

/// The values of `fields` in a refused record, one row each, where its text is a JSON object that shows all of them.
///
/// A record of CSV shows none: its text does not name its columns.
pub fn values_of_record(
    raw: &str,
    fields: &[FieldRef],
    settings: &SourceSettings,
) -> Option<Vec<ArrayRef>> {
    if !shows_columns(settings) {
        return None;
    }
    let json = &settings.json;
    let (date, timestamp) = (&json.date_format, &json.timestamp_format);
    let mut reader = reader(date.as_deref(), timestamp.as_deref()).ok()?;
    let mut members = Vec::new();
    token::object_text(raw, &mut members).ok()?;
    let value = |field: &FieldRef| {
        let (_, token) = members.iter().find(|(name, _)| name == field.name())?;
        if *token == Token::Null {
            return None;
        }
        let cell = reader.json(token, field.data_type()).ok()?;
        one_row(field.data_type(), cell)
    };
    fields.iter().map(value).collect()
}

/// Whether the text of a refused record can show which value is of which column.
pub fn shows_columns(settings: &SourceSettings) -> bool {
    settings.format != Format::Csv
}

/// The format of the file of this name. `Auto` looks at its first bytes too: where the name does not tell, it is JSON.
pub(crate) fn format_by_name(path: &str, settings: &SourceSettings) -> Format {
    match (
        settings.format,
        extension_of(split_packing(path).0).as_str(),
    ) {
        (Format::Auto, "csv" | "tsv") => Format::Csv,
        (Format::Auto, "parquet") => Format::Parquet,
        (Format::Auto, "avro") => Format::Avro,
        (Format::Auto, _) => Format::Json,
        (format, _) => format,
    }
}

/// Whether the file of this name may give its values types that their JSON text does not tell.
pub(crate) fn has_typed_values(path: &str, settings: &SourceSettings) -> bool {
    let name = split_packing(path).0;
    match settings.format {
        Format::Parquet | Format::Avro => true,
        Format::Json => settings.envelope == Envelope::Debezium,
        Format::Csv => false,
        Format::Auto => match extension_of(name).as_str() {
            _ if has_json_name(name) => settings.envelope == Envelope::Debezium,
            "csv" | "tsv" => false,
            _ => true,
        },
    }
}

/// A column of rescued values, each of a file of this format; a row without one is NULL, and so is one whose value does
/// not fit. Beside it stands for each row what became of its value.
pub(crate) fn rescued_column(
    data_type: &DataType,
    values: &[Option<(Format, Token<'_>)>],
    settings: &SourceSettings,
) -> LoadResult<(ArrayRef, Vec<Option<RescuedValue>>)> {
    let mut readers = RescuedReaders::of(settings)?;
    let mut column = Column::new(data_type);
    let mut became = Vec::with_capacity(values.len());
    for value in values {
        let (cell, fate) = match value {
            None => (Cell::Null, None),
            Some((format, token)) => match readers.read(*format, token, data_type) {
                Ok((cell, false)) => (cell, Some(RescuedValue::Fits)),
                Ok((cell, true)) => (cell, Some(RescuedValue::FitsInPart)),
                Err(misfit) => {
                    let why = misfit.why.into_owned();
                    (Cell::Null, Some(RescuedValue::Unfit(why)))
                }
            },
        };
        column.push(cell);
        became.push(fate);
    }
    let column = column.finish("rescued");
    let too_large = |fault: FileFault| Error::new(ErrorKind::Input, fault.detail);
    Ok((column.map_err(too_large)?, became))
}

/// Reads rescued values in the ways of the formats that they came from.
struct RescuedReaders {
    json: ValueReader,
    csv: ValueReader,
    /// Of the formats whose values have types.
    typed: ValueReader,
    is_debezium: bool,
}

impl RescuedReaders {
    fn of(settings: &SourceSettings) -> LoadResult<Self> {
        let made = |date: &Option<String>, timestamp: &Option<String>| {
            reader(date.as_deref(), timestamp.as_deref())
                .map_err(|fault| Error::settings(fault.detail))
        };
        let (json, csv) = (&settings.json, &settings.csv);
        Ok(RescuedReaders {
            json: made(&json.date_format, &json.timestamp_format)?,
            csv: made(&csv.date_format, &csv.timestamp_format)?,
            typed: ValueReader::new(TimeFormats::default()),
            is_debezium: settings.envelope == Envelope::Debezium,
        })
    }

    /// The value, and whether it has fields that the type lacks.
    fn read<'a>(
        &mut self,
        format: Format,
        token: &Token<'a>,
        data_type: &DataType,
    ) -> Result<(Cell<'a>, bool), Misfit> {
        let is_text = matches!(token, Token::Text { .. });
        let reader = match format {
            Format::Json | Format::Auto => &mut self.json,
            Format::Csv => &mut self.csv,
            Format::Parquet | Format::Avro => &mut self.typed,
        };
        reader.has_unknown_field = false;
        let cell = match format {
            // An empty field is the empty text in a STRING column alone.
            Format::Csv if token.written().is_empty() && *data_type != DataType::Utf8 => Cell::Null,
            // A text of these formats may be JSON, for a column that nests.
            Format::Csv | Format::Parquet | Format::Avro if is_text => {
                reader.text(&token.text(), data_type)?
            }
            Format::Json if self.is_debezium => {
                let value = ColumnValue::Connect(*token, ConnectType::Unknown);
                value.cell(data_type, reader)?
            }
            Format::Json | Format::Auto | Format::Csv | Format::Parquet | Format::Avro => {
                reader.json(token, data_type)?
            }
        };
        Ok((cell, reader.has_unknown_field))
    }
}

/// For ISO 8601, then for the formats of the source where it has some.
fn readers(settings: &SourceSettings) -> Vec<ValueReader> {
    let (json, csv) = (&settings.json, &settings.csv);
    let formats = [
        (None, None),
        (
            json.date_format.as_deref(),
            json.timestamp_format.as_deref(),
        ),
        (csv.date_format.as_deref(), csv.timestamp_format.as_deref()),
    ];
    let made = formats.map(|(date, timestamp)| reader(date, timestamp));
    made.into_iter().filter_map(Result::ok).collect()
}

fn one_row(data_type: &DataType, cell: Cell<'_>) -> Option<ArrayRef> {
    let mut column = Column::new(data_type);
    column.push(cell);
    column.finish("key").ok()
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;
    use crate::schema::parse_ddl;
    use arrow::array::Array;
    use arrow::util::display::array_value_to_string;

    fn fields(ddl: &str) -> Vec<FieldRef> {
        parse_ddl(ddl)
            .unwrap()
            .iter()
            .cloned()
            .map(Into::into)
            .collect()
    }

    fn typed(text: &str, ddl: &str, settings: &SourceSettings) -> Result<String, String> {
        let field = &fields(&format!("k {ddl}"))[0];
        let column = value_of_text(text, field.data_type(), settings)?;
        assert_eq!((column.len(), column.data_type()), (1, field.data_type()));
        Ok(array_value_to_string(&column, 0).unwrap())
    }

    fn shown(raw: &str, ddl: &str, format: Format) -> Option<Vec<String>> {
        let columns = values_of_record(raw, &fields(ddl), &testing::settings(format))?;
        let text = |column: &ArrayRef| array_value_to_string(column, 0).unwrap();
        Some(columns.iter().map(text).collect())
    }

    #[test]
    fn text_that_is_not_exactly_of_the_type_says_why() {
        let settings = testing::settings(Format::Json);
        for (text, ddl, why) in [
            ("abc", "BIGINT", "is not a number"),
            ("", "BIGINT", "is not a number"),
            (" 5", "BIGINT", "is not a number"),
            ("1.005", "DECIMAL(10,2)", "has more than 2 decimal places"),
            ("2024-01-01T00:00:00", "TIMESTAMP", "has no offset from UTC"),
            ("300", "TINYINT", "is out of range"),
        ] {
            assert_eq!(typed(text, ddl, &settings), Err(why.to_string()), "{text}");
        }
    }

    #[test]
    fn text_reads_as_the_loader_reads_it() {
        let settings = testing::settings(Format::Json);
        for (text, ddl, value) in [
            ("", "STRING", ""),
            ("it's \"5\"", "STRING", "it's \"5\""),
            ("7.5", "DECIMAL(10,2)", "7.50"),
            (
                "2024-01-01T01:00:00+01:00",
                "TIMESTAMP",
                "2024-01-01T00:00:00Z",
            ),
        ] {
            assert_eq!(typed(text, ddl, &settings), Ok(value.to_string()), "{text}");
        }
    }

    #[test]
    fn date_reads_as_it_is_printed_and_in_the_format_of_the_source() {
        let mut settings = testing::settings(Format::Csv);
        settings.csv.date_format = Some("%d.%m.%Y".into());
        for text in ["2024-02-01", "01.02.2024"] {
            assert_eq!(typed(text, "DATE", &settings), Ok("2024-02-01".to_string()));
        }
    }

    #[test]
    fn record_that_does_not_surely_show_the_columns_shows_none() {
        let key = "id BIGINT, shop STRING";
        for raw in [
            "{\"id\":1,\"shop\":\"a\"",
            "{\"id\":1}",
            "{\"id\":null,\"shop\":\"a\"}",
            "{\"id\":\"x\",\"shop\":\"a\"}",
            "{\"id\":1,\"id\":2,\"shop\":\"a\"}",
            "{\"ID\":1,\"shop\":\"a\"}",
            "[1]",
            "1,a",
        ] {
            assert_eq!(shown(raw, key, Format::Json), None, "{raw}");
        }
        let whole = "{\"x\":[],\"shop\":\"a\",\"id\":\"1\"}";
        assert_eq!(shown(whole, key, Format::Csv), None);
        let values = Some(vec!["1".to_string(), "a".to_string()]);
        assert_eq!(shown(whole, key, Format::Json), values);
    }

    /// What a rescued value becomes in a column of this type.
    fn moved(
        format: Format,
        json: &str,
        ddl: &str,
        settings: &SourceSettings,
    ) -> Result<(String, bool), String> {
        let field = &fields(&format!("c {ddl}"))[0];
        let token = token::one_value(json).unwrap();
        let values = [None, Some((format, token))];
        let (column, became) = rescued_column(field.data_type(), &values, settings).unwrap();
        assert_eq!((column.len(), became[0].is_none()), (2, true));
        assert!(column.is_null(0));
        let text = match column.is_valid(1) {
            true => array_value_to_string(&column, 1).unwrap(),
            false => "NULL".to_string(),
        };
        match &became[1] {
            Some(RescuedValue::Fits) => Ok((text, true)),
            Some(RescuedValue::FitsInPart) => Ok((text, false)),
            Some(RescuedValue::Unfit(why)) => Err(why.clone()),
            None => panic!("the value became nothing"),
        }
    }

    #[test]
    fn rescued_value_that_its_file_would_not_bring_stays() {
        let mut settings = testing::settings(Format::Json);
        for (format, json, ddl, why) in [
            (Format::Json, "\"\"", "BIGINT", "is not a number"),
            (
                Format::Json,
                "\"[1]\"",
                "ARRAY<INT>",
                "is neither an object nor an array",
            ),
            (
                Format::Json,
                "1.005",
                "DECIMAL(10,2)",
                "has more than 2 decimal places",
            ),
            (
                Format::Json,
                "20240131",
                "DATE",
                "is a number and not a date",
            ),
            (Format::Csv, "\"[x]\"", "ARRAY<INT>", "is not JSON"),
            (
                Format::Parquet,
                "\"2024-01-31T00:00:00\"",
                "TIMESTAMP",
                "has no offset from UTC",
            ),
        ] {
            let moved = moved(format, json, ddl, &settings);
            assert_eq!(moved, Err(why.to_string()), "{json} {ddl}");
        }
        settings.envelope = Envelope::Debezium;
        let why = "is a number, and the record has no schema that says what it counts";
        let moved = moved(Format::Json, "1706659200000", "TIMESTAMP", &settings);
        assert_eq!(moved, Err(why.to_string()));
    }

    #[test]
    fn rescued_value_is_read_as_in_a_file_of_its_format() {
        let mut settings = testing::settings(Format::Auto);
        settings.json.date_format = Some("%d.%m.%Y".into());
        settings.csv.date_format = Some("%d/%m/%Y".into());
        for (path, json, ddl, value, is_whole) in [
            ("a.json", "\"31.01.2024\"", "DATE", "2024-01-31", true),
            ("a.CSV.gz", "\"31/01/2024\"", "DATE", "2024-01-31", true),
            ("a.parquet", "\"2024-01-31\"", "DATE", "2024-01-31", true),
            ("a.tsv", "\"\"", "BIGINT", "NULL", true),
            ("a.tsv", "\"\"", "STRING", "", true),
            ("a.csv", "\"[1, null]\"", "ARRAY<INT>", "[1, ]", true),
            ("a.avro", "\"[1]\"", "ARRAY<INT>", "[1]", true),
            ("a.log", "{\"x\":1}", "STRUCT<x: INT>", "{x: 1}", true),
            (
                "a.log",
                "{\"x\":1,\"y\":2}",
                "STRUCT<x: INT>",
                "{x: 1}",
                false,
            ),
            ("a.log", "\"\\u0041\\n\"", "STRING", "A\n", true),
            ("a.log", "1.10", "STRING", "1.10", true),
        ] {
            let moved = moved(format_by_name(path, &settings), json, ddl, &settings);
            assert_eq!(
                moved,
                Ok((value.to_string(), is_whole)),
                "{path} {json} {ddl}"
            );
        }
        settings.envelope = Envelope::Debezium;
        settings.json.date_format = None;
        let days = moved(Format::Json, "19753", "DATE", &settings);
        assert_eq!(days, Ok(("2024-01-31".to_string(), true)));
    }
}
