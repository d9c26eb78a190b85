//! Reads the texts of values: sizes, durations, numbers, yes and no. Pure.

use std::time::Duration;

/// Bytes of "1 GiB", "64MB" or "4096". Units with `i` are powers of 1024, the others of 1000.
pub(super) fn size(text: &str) -> Option<u64> {
    let (number, unit) = number_and_unit(text)?;
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => return None,
    };
    whole_product(number, factor)
}

/// The time of "500ms", "30s", "5m", "1h" or "7d"; a number alone has no unit and is refused, but for 0.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = number_and_unit(text)?;
    let milliseconds: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "" if number.parse() == Ok(0_u64) => 1,
        _ => return None,
    };
    whole_product(number, milliseconds).map(Duration::from_millis)
}

/// A share from 0 to 100, with or without a percent sign.
pub(super) fn percent(text: &str) -> Option<f64> {
    let number = text.trim().strip_suffix('%').unwrap_or(text).trim();
    let share: f64 = number.parse().ok()?;
    (0.0..=100.0).contains(&share).then_some(share)
}

/// A whole number; `_` may group digits.
pub(super) fn count(text: &str) -> Option<u64> {
    let digits = text.trim().replace('_', "");
    let only_digits = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if only_digits {
        digits.parse().ok()
    } else {
        None
    }
}

/// `true` or `false`.
pub(super) fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

/// One byte of a CSV dialect; `\t` may be written as such. `None` inside means "none".
pub(super) fn dialect_byte(text: &str) -> Option<Option<u8>> {
    match text.as_bytes() {
        [] => Some(None),
        b"\\t" => Some(Some(b'\t')),
        [byte] if byte.is_ascii() && !matches!(byte, b'\n' | b'\r' | 0) => Some(Some(*byte)),
        _ => None,
    }
}

/// The byte that ends a line; control characters may be written with a backslash. `None` inside means LF or CRLF.
pub(super) fn line_end(text: &str) -> Option<Option<u8>> {
    match text.as_bytes() {
        b"\\n" => Some(Some(b'\n')),
        b"\\r" => Some(Some(b'\r')),
        [byte] if byte.is_ascii() => Some(Some(*byte)),
        _ => dialect_byte(text),
    }
}

/// The parts of a list that was typed as one text.
pub(super) fn comma_list(text: &str) -> Vec<String> {
    let parts = text.split(',').map(str::trim);
    parts
        .filter(|part| !part.is_empty())
        .map(str::to_string)
        .collect()
}

fn number_and_unit(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    let end = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.' && letter != '_')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (!number.is_empty()).then_some((number.trim(), unit.trim()))
}

/// `number * factor` if it is whole and fits; `number` may have a decimal fraction.
fn whole_product(number: &str, factor: u64) -> Option<u64> {
    let digits = number.replace('_', "");
    let (whole, fraction) = digits.split_once('.').unwrap_or((&digits, ""));
    let fraction = fraction.trim_end_matches('0');
    let scale = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let scaled: u128 = format!("{whole}{fraction}").parse().ok()?;
    let product = scaled.checked_mul(u128::from(factor))?;
    if product % scale == 0 {
        u64::try_from(product / scale).ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_without_number_or_with_unknown_unit_is_refused() {
        for text in [
            "",
            "GiB",
            "1 gallon",
            "-1",
            "1.0001",
            "99999999999999999999",
            "1.5.5 GiB",
            "1e3",
        ] {
            assert_eq!(size(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_read_exactly() {
        assert_eq!(size("1 GiB"), Some(1 << 30));
        assert_eq!(size("64MB"), Some(64_000_000));
        assert_eq!(size("1.5 kib"), Some(1536));
        assert_eq!(size("4_096"), Some(4096));
    }

    #[test]
    fn duration_without_unit_is_refused() {
        for text in ["", "30", "5 weeks", "-1s", "0.0001ms", "S"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn durations_read_exactly() {
        assert_eq!(duration("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(duration("1.5 s"), Some(Duration::from_millis(1500)));
        assert_eq!(duration("7d"), Some(Duration::from_secs(7 * 86_400)));
        assert_eq!(duration("0"), Some(Duration::ZERO));
    }

    #[test]
    fn percent_outside_its_range_is_refused() {
        assert_eq!(percent("101"), None);
        assert_eq!(percent("-1"), None);
        assert_eq!(percent("NaN"), None);
        assert_eq!(percent("2.5 %"), Some(2.5));
    }

    #[test]
    fn dialect_takes_one_byte_only() {
        assert_eq!(dialect_byte(";;"), None);
        assert_eq!(dialect_byte("é"), None);
        assert_eq!(dialect_byte("\n"), None);
        assert_eq!(dialect_byte("\\t"), Some(Some(b'\t')));
        assert_eq!(dialect_byte(""), Some(None));
        assert_eq!(line_end("\r\n"), None);
        assert_eq!(line_end("\\r"), Some(Some(b'\r')));
        assert_eq!(line_end("\u{1e}"), Some(Some(0x1E)));
        assert_eq!(line_end(""), Some(None));
    }
}
