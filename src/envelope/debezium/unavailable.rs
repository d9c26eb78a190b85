//! What Debezium writes for a value that the log of the database did not hold.

use crate::decode::{Token, elements, members, one_value};
use base64::Engine;

/// The word of Debezium, unless its settings give another.
const DEFAULT: &str = "__debezium_unavailable_value";
/// The UUID that Debezium makes of its word.
const DEFAULT_UUID: &str = "b68a35a7-17ad-35b3-af2a-ae46edb4545a";

/// A word in the forms that the types of columns ask for.
struct Forms {
    word: String,
    base64: String,
    /// As an array of numbers, one for each byte.
    bytes: Vec<String>,
}

/// The words that mean "not sent".
pub(super) struct Placeholders {
    forms: Vec<Forms>,
}

impl Placeholders {
    /// The word of Debezium, and another of the settings.
    pub(super) fn new(other: Option<&str>) -> Self {
        let words = [Some(DEFAULT), other];
        Placeholders {
            forms: words.into_iter().flatten().map(Forms::of).collect(),
        }
    }

    /// Whether this value is one of them, also as the only one in an array.
    pub(super) fn contains(&self, value: Token<'_>) -> bool {
        match value {
            Token::Text { .. } => {
                let text = value.text();
                self.is_word(&text) || self.is_map_in_text(&text)
            }
            Token::Nested(json) if json.starts_with('{') => self.is_map(json),
            Token::Nested(json) => self.is_array(json),
            Token::Null | Token::Bool(_) | Token::Number(_) => false,
        }
    }

    fn is_word(&self, text: &str) -> bool {
        let mut forms = self.forms.iter();
        forms.any(|form| form.word == text || form.base64 == text)
    }

    fn is_array(&self, json: &str) -> bool {
        let items = elements(json).unwrap_or_default();
        match items.as_slice() {
            [item @ Token::Text { .. }] => {
                let text = item.text();
                self.is_word(&text) || text == DEFAULT_UUID
            }
            items => self.forms.iter().any(|form| {
                let are_bytes = |(item, byte): (&Token<'_>, &String)| *item == Token::Number(byte);
                items.len() == form.bytes.len() && items.iter().zip(&form.bytes).all(are_bytes)
            }),
        }
    }

    /// A map of the word to itself.
    fn is_map(&self, json: &str) -> bool {
        let pairs = members(json).unwrap_or_default();
        match pairs.as_slice() {
            [(name, value)] => {
                let mut forms = self.forms.iter();
                forms.any(|form| form.word == *name && form.word == value.text())
            }
            _ => false,
        }
    }

    fn is_map_in_text(&self, text: &str) -> bool {
        let may_be = text.starts_with('{') && text.contains(DEFAULT);
        may_be && matches!(one_value(text), Ok(Token::Nested(json)) if self.is_map(json))
    }
}

impl Forms {
    fn of(word: &str) -> Self {
        Forms {
            word: word.to_string(),
            base64: base64::engine::general_purpose::STANDARD.encode(word),
            // Debezium counts bytes from -128.
            bytes: word.bytes().map(|byte| (byte as i8).to_string()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_unavailable(json: &str, other: Option<&str>) -> bool {
        Placeholders::new(other).contains(one_value(json).unwrap())
    }

    #[test]
    fn values_beside_the_word_are_values() {
        for json in [
            "\"__debezium_unavailable_value \"",
            "[\"__debezium_unavailable_value\",\"x\"]",
            "[]",
            "[95,95]",
            "{\"__debezium_unavailable_value\":1}",
            "{}",
            "null",
            "7",
            "\"{__debezium_unavailable_value\"",
        ] {
            assert!(!is_unavailable(json, None), "{json}");
        }
        assert!(!is_unavailable("\"\"", Some("<same>")));
    }

    #[test]
    fn the_word_is_known_in_the_form_of_every_type() {
        let bytes: Vec<String> = DEFAULT.bytes().map(|byte| byte.to_string()).collect();
        for json in [
            "\"__debezium_unavailable_value\"".to_string(),
            "\"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==\"".to_string(),
            "[\"__debezium_unavailable_value\"]".to_string(),
            "[\"X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==\"]".to_string(),
            format!("[\"{DEFAULT_UUID}\"]"),
            format!("[{}]", bytes.join(", ")),
            format!("{{\"{DEFAULT}\":\"{DEFAULT}\"}}"),
            format!("\"{{\\\"{DEFAULT}\\\":\\\"{DEFAULT}\\\"}}\""),
        ] {
            assert!(is_unavailable(&json, None), "{json}");
        }
        assert!(is_unavailable("[\"<same>\"]", Some("<same>")));
    }
}
