//! Spark DDL to Arrow types and back.
//!
//! Nothing is guessed: an unknown type, a stray sign or an open bracket is an error that names text and position.

use super::{DECIMAL_PRECISION_MAX, array_type, map_type, timestamp_type};
use crate::error::{Error, Result};
use arrow::datatypes::{DataType, Field, Fields, TimeUnit};

/// Types may nest this deep.
const TYPE_DEPTH_MAX: usize = 64;

/// Parses Spark DDL ("amount DECIMAL(10,2), `odd name` STRING, s STRUCT<a: INT, b: ARRAY<STRING>>").
///
/// `NOT NULL` and `COMMENT '...'` are read and ignored: every column is nullable. Empty text has no columns.
pub fn parse_ddl(text: &str) -> Result<Vec<Field>> {
    let mut parser = Parser { text, at: 0 };
    parser.skip_blanks();
    if parser.at == text.len() {
        return Ok(Vec::new());
    }
    let fields = parser.fields(0)?;
    match parser.peek() {
        None => Ok(fields),
        Some(_) => Err(parser.error("expected a comma or the end")),
    }
}

/// A type in the words of Spark DDL.
pub fn ddl_type(data_type: &DataType) -> String {
    let word = match data_type {
        DataType::Boolean => "BOOLEAN",
        DataType::Int8 => "TINYINT",
        DataType::Int16 => "SMALLINT",
        DataType::Int32 => "INT",
        DataType::Int64 => "BIGINT",
        DataType::Float32 => "FLOAT",
        DataType::Float64 => "DOUBLE",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "STRING",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "BINARY",
        DataType::Date32 => "DATE",
        DataType::Timestamp(_, Some(_)) => "TIMESTAMP",
        DataType::Timestamp(_, None) => "TIMESTAMP_NTZ",
        DataType::Decimal128(precision, scale) => return format!("DECIMAL({precision},{scale})"),
        DataType::List(element) => return format!("ARRAY<{}>", ddl_type(element.data_type())),
        DataType::Struct(fields) => return format!("STRUCT<{}>", ddl_fields(fields)),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(pair) if pair.len() == 2 => {
                let (key, value) = (ddl_type(pair[0].data_type()), ddl_type(pair[1].data_type()));
                return format!("MAP<{key}, {value}>");
            }
            _ => return data_type.to_string(),
        },
        other => return other.to_string(),
    };
    word.to_string()
}

fn ddl_fields(fields: &Fields) -> String {
    let shown = fields.iter().map(|field| {
        format!(
            "{}: {}",
            ddl_name(field.name()),
            ddl_type(field.data_type())
        )
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// A column name as Spark DDL takes it.
pub fn ddl_name(name: &str) -> String {
    if !name.is_empty() && name.chars().all(is_word) {
        name.to_string()
    } else {
        format!("`{}`", name.replace('`', "``"))
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Parser<'a> {
    /// Reads `name type, name type` up to a closing bracket or the end.
    fn fields(&mut self, depth: usize) -> Result<Vec<Field>> {
        let mut fields = Vec::new();
        loop {
            let name = self.name()?;
            self.take(':');
            let data_type = self.data_type(depth)?;
            self.notes()?;
            fields.push(Field::new(name, data_type, true));
            if !self.take(',') {
                return Ok(fields);
            }
        }
    }

    fn name(&mut self) -> Result<String> {
        self.skip_blanks();
        if self.peek() != Some('`') {
            let word = self.word();
            return if word.is_empty() {
                Err(self
                    .error("expected a column name")
                    .hint("put a name with other signs into back-ticks"))
            } else {
                Ok(word.to_string())
            };
        }
        let opened = self.at;
        self.at += 1;
        let mut name = String::new();
        while let Some(c) = self.peek() {
            self.at += c.len_utf8();
            if c != '`' {
                name.push(c);
            } else if self.peek() == Some('`') {
                self.at += 1;
                name.push('`');
            } else {
                return Ok(name);
            }
        }
        self.at = opened;
        Err(self.error("this back-tick is never closed"))
    }

    fn data_type(&mut self, depth: usize) -> Result<DataType> {
        self.skip_blanks();
        let start = self.at;
        if depth > TYPE_DEPTH_MAX {
            return Err(self.error("types nest too deep"));
        }
        let word = self.word().to_ascii_uppercase();
        Ok(match word.as_str() {
            "BOOLEAN" => DataType::Boolean,
            "TINYINT" | "BYTE" => DataType::Int8,
            "SMALLINT" | "SHORT" => DataType::Int16,
            "INT" | "INTEGER" => DataType::Int32,
            "BIGINT" | "LONG" => DataType::Int64,
            "FLOAT" | "REAL" => DataType::Float32,
            "DOUBLE" => DataType::Float64,
            "DECIMAL" | "DEC" | "NUMERIC" => self.decimal()?,
            "STRING" => DataType::Utf8,
            "VARCHAR" | "CHAR" => self.text_length()?,
            "BINARY" => DataType::Binary,
            "DATE" => DataType::Date32,
            "TIMESTAMP" | "TIMESTAMP_LTZ" => timestamp_type(),
            "TIMESTAMP_NTZ" => DataType::Timestamp(TimeUnit::Microsecond, None),
            "ARRAY" => {
                self.expect('<')?;
                let element = self.data_type(depth + 1)?;
                self.expect('>')?;
                array_type(element)
            }
            "MAP" => {
                self.expect('<')?;
                let key = self.data_type(depth + 1)?;
                self.expect(',')?;
                let value = self.data_type(depth + 1)?;
                self.expect('>')?;
                map_type(key, value)
            }
            "STRUCT" => {
                self.expect('<')?;
                let fields = self.fields(depth + 1)?;
                self.expect('>')?;
                DataType::Struct(fields.into())
            }
            "" => return Err(self.error("expected a type")),
            _ => {
                self.at = start;
                return Err(self.error(&format!("unknown type {word}")));
            }
        })
    }

    fn decimal(&mut self) -> Result<DataType> {
        if !self.take('(') {
            return Ok(DataType::Decimal128(10, 0));
        }
        let start = self.at;
        let precision = self.number()?;
        let scale = if self.take(',') { self.number()? } else { 0 };
        self.expect(')')?;
        match (u8::try_from(precision), i8::try_from(scale)) {
            (Ok(p @ 1..=DECIMAL_PRECISION_MAX), Ok(s)) if scale <= precision => {
                Ok(DataType::Decimal128(p, s))
            }
            _ => {
                self.at = start;
                Err(self.error("a DECIMAL has 1 to 38 digits, no more of them behind the point"))
            }
        }
    }

    /// Delta keeps lengths as metadata only, so VARCHAR and CHAR are STRING.
    fn text_length(&mut self) -> Result<DataType> {
        if self.take('(') {
            self.number()?;
            self.expect(')')?;
        }
        Ok(DataType::Utf8)
    }

    fn notes(&mut self) -> Result<()> {
        loop {
            self.skip_blanks();
            let start = self.at;
            match self.word().to_ascii_uppercase().as_str() {
                "NOT" => {
                    self.skip_blanks();
                    if !self.word().eq_ignore_ascii_case("NULL") {
                        self.at = start;
                        return Err(self.error("expected NOT NULL"));
                    }
                }
                "COMMENT" => self.comment()?,
                "" => return Ok(()),
                _ => {
                    self.at = start;
                    return Err(self.error("expected a comma, NOT NULL, COMMENT or the end"));
                }
            }
        }
    }

    fn comment(&mut self) -> Result<()> {
        self.skip_blanks();
        let Some(quote @ ('\'' | '"')) = self.peek() else {
            return Err(self.error("expected a quoted comment"));
        };
        let opened = self.at;
        self.at += 1;
        let mut escaped = false;
        while let Some(c) = self.peek() {
            self.at += c.len_utf8();
            if c == quote && !escaped {
                return Ok(());
            }
            escaped = c == '\\' && !escaped;
        }
        self.at = opened;
        Err(self.error("this quote is never closed"))
    }

    fn number(&mut self) -> Result<u32> {
        self.skip_blanks();
        let start = self.at;
        self.word().parse().map_err(|_| {
            self.at = start;
            self.error("expected a whole number")
        })
    }

    fn word(&mut self) -> &'a str {
        let rest = &self.text[self.at..];
        let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn expect(&mut self, sign: char) -> Result<()> {
        if self.take(sign) {
            Ok(())
        } else {
            Err(self.error(&format!("expected {sign:?}")))
        }
    }

    fn take(&mut self, sign: char) -> bool {
        self.skip_blanks();
        let found = self.peek() == Some(sign);
        if found {
            self.at += sign.len_utf8();
        }
        found
    }

    fn skip_blanks(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn error(&self, what: &str) -> Error {
        let character = self.text[..self.at].chars().count() + 1;
        let near: String = self.text[self.at..].chars().take(20).collect();
        let place = if near.is_empty() {
            "at the end".to_string()
        } else {
            format!("before {near:?}")
        };
        Error::settings(format!(
            "columns {:?}, character {character}, {place}: {what}",
            self.text
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(ddl: &str) -> DataType {
        parse_ddl(&format!("c {ddl}")).unwrap()[0]
            .data_type()
            .clone()
    }

    #[test]
    fn errors_name_text_and_position() {
        for (ddl, part) in [
            (
                "a DECIMLA(10,2)",
                "character 3, before \"DECIMLA(10,2)\": unknown type DECIMLA",
            ),
            ("a", "character 2, at the end: expected a type"),
            ("a INT b INT", "expected a comma"),
            ("a INT,", "expected a column name"),
            ("a INT)", "expected a comma or the end"),
            ("`a INT", "never closed"),
            ("a DECIMAL(39,0)", "1 to 38 digits"),
            ("a DECIMAL(3,4)", "1 to 38 digits"),
            ("a ARRAY<INT", "expected '>'"),
            ("a INT COMMENT 'x", "never closed"),
            ("a.b INT", "expected a type"),
        ] {
            let error = parse_ddl(ddl).unwrap_err();
            assert!(error.message().contains(part), "{ddl}: {error}");
        }
        let deep = format!("a {}INT{}", "ARRAY<".repeat(5000), ">".repeat(5000));
        assert!(parse_ddl(&deep).unwrap_err().message().contains("too deep"));
    }

    #[test]
    fn every_type_prints_as_it_was_written() {
        for ddl in [
            "BOOLEAN",
            "TINYINT",
            "SMALLINT",
            "INT",
            "BIGINT",
            "FLOAT",
            "DOUBLE",
            "DECIMAL(10,2)",
            "STRING",
            "BINARY",
            "DATE",
            "TIMESTAMP",
            "TIMESTAMP_NTZ",
            "ARRAY<STRING>",
            "MAP<STRING, INT>",
            "STRUCT<a: INT, `b c`: ARRAY<STRUCT<d: DATE>>>",
        ] {
            assert_eq!(ddl_type(&one(ddl)), ddl);
        }
    }

    #[test]
    fn other_words_case_and_notes_are_taken() {
        for (ddl, expected) in [
            ("byte", "TINYINT"),
            ("Short", "SMALLINT"),
            ("integer", "INT"),
            ("long", "BIGINT"),
            ("real", "FLOAT"),
            ("numeric", "DECIMAL(10,0)"),
            ("dec( 5 )", "DECIMAL(5,0)"),
            ("varchar(20)", "STRING"),
            (
                "struct<a INT NOT NULL COMMENT 'it\\'s', b: int>",
                "STRUCT<a: INT, b: INT>",
            ),
        ] {
            assert_eq!(ddl_type(&one(ddl)), expected);
        }
        let fields =
            parse_ddl(" amount DECIMAL(10,2) NOT NULL , `odd ``name` STRING COMMENT \"x, y\" ")
                .unwrap();
        assert_eq!(fields[1].name(), "odd `name");
        assert!(fields[0].is_nullable());
        assert!(parse_ddl("  ").unwrap().is_empty());
    }
}
