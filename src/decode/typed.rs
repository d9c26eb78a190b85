//! Single values outside of a file: a text that a person typed, and the values that a refused record shows.
//!
//! They are read by the rules of the loader, so that a typed key is the key of the rows that hold it.

use super::columns::Column;
use super::reader;
use super::token::{self, Token};
use super::value::{Cell, ValueReader};
use crate::settings::{Format, SourceSettings};
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
}
