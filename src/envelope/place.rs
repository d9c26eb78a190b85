//! Places in the order of a source, as texts that sort by their bytes as the source orders its changes.
//!
//! Every part has a fixed width, so that two places of one source are compared part by part. What does not read as a
//! place gives none; it is never taken for another.

/// Digits of a decimal part: every unsigned number of 64 bits.
pub(super) const DECIMAL_WIDTH: usize = 20;
/// Digits of a number within a transaction.
const ORDINAL_WIDTH: usize = 10;
/// Digits of a hexadecimal part, which holds the log places of all databases.
const HEX_WIDTH: usize = 40;

/// Digits of the places that are long decimal numbers.
const LONG_WIDTH: usize = 40;

/// A whole number.
pub(super) fn number(text: &str) -> Option<String> {
    padded(text, DECIMAL_WIDTH)
}

/// A whole number of more digits than a machine number has.
pub(super) fn long_number(text: &str) -> Option<String> {
    padded(text, LONG_WIDTH)
}

/// A number within a transaction.
pub(super) fn ordinal(text: &str) -> Option<String> {
    padded(text, ORDINAL_WIDTH)
}

/// The number of a binlog file such as `mysql-bin.000007`, and the offset in it.
pub(super) fn binlog(file: &str, offset: &str) -> Option<String> {
    let (_, number) = file.rsplit_once('.')?;
    Some(format!("{}:{}", ordinal(number)?, self::number(offset)?))
}

/// Hexadecimal digits, perhaps in groups with colons or dots, perhaps behind `0x`.
pub(super) fn hex(text: &str) -> Option<String> {
    let text = text.trim();
    let digits = text
        .strip_prefix("0x")
        .or_else(|| text.strip_prefix("0X"))
        .unwrap_or(text);
    let digits: String = digits
        .chars()
        .filter(|sign| !matches!(sign, ':' | '.'))
        .collect();
    let is_hex = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let digits = digits.trim_start_matches('0').to_ascii_uppercase();
    (is_hex && digits.len() <= HEX_WIDTH).then(|| format!("{digits:0>HEX_WIDTH$}"))
}

/// The place before all of [`hex`].
pub(super) fn hex_zero() -> String {
    "0".repeat(HEX_WIDTH)
}

fn padded(text: &str, width: usize) -> Option<String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let digits = text.trim_start_matches('0');
    (is_number && digits.len() <= width).then(|| format!("{digits:0>width$}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_place_gives_none() {
        for text in ["", " 1", "-1", "1.0", "1e3", "0x10", &"9".repeat(21)] {
            assert_eq!(number(text), None, "{text:?}");
        }
        for text in ["", "0x", "xyz", "12 34", &"f".repeat(41)] {
            assert_eq!(hex(text), None, "{text:?}");
        }
        assert_eq!(binlog("mysql-bin", "4"), None);
        assert_eq!(binlog("mysql-bin.", "4"), None);
        assert_eq!(binlog("mysql-bin.000001", ""), None);
    }

    #[test]
    fn places_sort_as_numbers() {
        assert!(number("9") < number("10"));
        assert!(hex("0x0F") < hex("10"));
        assert!(binlog("mysql-bin.999999", "9") < binlog("mysql-bin.1000000", "4"));
        assert_eq!(hex("0000002a:000001B0:0003"), hex("0x0000002A000001B00003"));
        assert_eq!(number("007"), number("7"));
    }
}
