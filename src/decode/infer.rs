//! The type that a new column gets from one value; `schema::widen` joins those of many.

use super::number;
use super::token::Token;
use super::value::ValueReader;
use crate::schema::{DECIMAL_PRECISION_MAX, timestamp_type};
use arrow::datatypes::DataType;

/// The type of a JSON value. Texts stay STRING, whatever they look like.
pub(super) fn json_type(token: &Token<'_>) -> DataType {
    match token {
        Token::Bool(_) => DataType::Boolean,
        Token::Number(text) => number_type(text),
        Token::Null | Token::Text { .. } | Token::Nested(_) => DataType::Utf8,
    }
}

/// The type of a CSV field: only what is written as a program writes it is more than STRING, so `007` stays text.
pub(super) fn text_type(text: &str, reader: &ValueReader) -> DataType {
    if is_canonical_number(text) {
        return number_type(text);
    }
    if matches!(text, "true" | "false") {
        return DataType::Boolean;
    }
    if reader.formats.date(text).is_ok() {
        return DataType::Date32;
    }
    match reader.formats.timestamp(text) {
        Ok(stamp) if stamp.has_offset => timestamp_type(),
        _ => DataType::Utf8,
    }
}

/// Whether a text that reads as a number of this type is written as programs write such numbers, so that it can be made
/// again from the number.
pub(super) fn is_written_as_number(text: &str, data_type: &DataType) -> bool {
    if !data_type.is_floating() {
        return is_canonical_number(text);
    }
    let digits = text.split(['e', 'E']).next().unwrap_or(text);
    is_canonical_number(digits) || !text.contains(|sign: char| sign.is_ascii_digit())
}

/// No needless sign or zero in front, no exponent.
fn is_canonical_number(text: &str) -> bool {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = match unsigned.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (unsigned, None),
    };
    let all_digits =
        |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let has_needless_zero = whole.len() > 1 && whole.starts_with('0');
    all_digits(whole) && !has_needless_zero && fraction.is_none_or(all_digits) && text != "-0"
}

/// BIGINT, else the largest DECIMAL, for digits alone; DOUBLE for others that survive in it; else STRING.
fn number_type(text: &str) -> DataType {
    let is_whole = text
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'-');
    if is_whole && number::integer(text, 64).is_ok() {
        DataType::Int64
    } else if is_whole && number::decimal(text, DECIMAL_PRECISION_MAX, 0).is_ok() {
        DataType::Decimal128(DECIMAL_PRECISION_MAX, 0)
    } else if !is_whole && number::float::<f64>(text).is_ok() {
        DataType::Float64
    } else {
        DataType::Utf8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::testing::{Case, column, rejects};
    use crate::decode::time::TimeFormats;
    use crate::decode::token::one_value;
    use crate::schema::ddl_type;

    #[test]
    fn json_values_get_the_narrowest_type_that_keeps_them() {
        for (json, ddl) in [
            ("true", "BOOLEAN"),
            ("-5", "BIGINT"),
            ("9223372036854775808", "DECIMAL(38,0)"),
            ("100000000000000000000000000000000000000", "STRING"),
            ("5.25", "DOUBLE"),
            ("1e3", "DOUBLE"),
            ("9007199254740993.0", "STRING"),
            ("\"5\"", "STRING"),
            ("[1]", "STRING"),
        ] {
            assert_eq!(
                ddl_type(&json_type(&one_value(json).unwrap())),
                ddl,
                "{json}"
            );
        }
    }

    #[test]
    fn csv_texts_that_a_number_would_alter_stay_text() {
        let reader = ValueReader::new(TimeFormats::default());
        for (text, ddl) in [
            ("007", "STRING"),
            ("+5", "STRING"),
            ("-0", "STRING"),
            ("1e3", "STRING"),
            (" 5", "STRING"),
            ("5.", "STRING"),
            ("TRUE", "STRING"),
            ("", "STRING"),
            ("-", "STRING"),
            ("2024-03-31T00:30:00", "STRING"),
            ("5", "BIGINT"),
            ("0", "BIGINT"),
            ("-0.5", "DOUBLE"),
            ("9223372036854775808", "DECIMAL(38,0)"),
            ("true", "BOOLEAN"),
            ("2024-03-31", "DATE"),
            ("2024-03-31T00:30:00Z", "TIMESTAMP"),
        ] {
            assert_eq!(ddl_type(&text_type(text, &reader)), ddl, "{text:?}");
        }
    }

    #[test]
    fn texts_that_are_no_plain_numbers_stay_out_of_columns_without_a_hint() {
        use crate::change::RejectReason::TypeMismatch;
        let text = "zip,ratio\n7,1e-05\n007,1\n+7,1\n1e3,1\n8,NaN\n9,01\n5.0,-2.50\n";
        let mut case = Case::csv("zip BIGINT, ratio DOUBLE");
        assert_eq!(rejects(&case.read(text)), []);
        case.settings.schema_hints = String::new();
        let decoded = case.read(text);
        let refused = [2, 3, 4, 6].map(|row| (row, TypeMismatch));
        assert_eq!(rejects(&decoded), refused);
        assert_eq!(column(&decoded, "zip"), ["7", "8", "5"]);
        assert_eq!(
            decoded.rejects[0].detail,
            "column zip: \"007\" is a text that no number would keep; give the column a hint to take it (BIGINT)"
        );
        let json = "{\"zip\":\"007\"}\n{\"zip\":\"9\"}\n{\"zip\":1e3}\n";
        let mut case = Case::json("zip BIGINT");
        case.settings.schema_hints = String::new();
        assert_eq!(rejects(&case.read(json)), [(1, TypeMismatch)]);
    }
}
