//! Numbers of few digits at a place of a text, several digits at once.
//!
//! Which digits belong to the number is told without a branch for each of them, since their count changes from value to
//! value. Only the text behind a number says whether it ends there, so that is left to whoever compares that text.

use crate::decode::token::Scanner;

/// The digits that are looked at at once.
const WORD: usize = 8;
/// Whole numbers of so many digits fit into 64 bits.
const DIGITS_MAX: usize = 18;
/// Up to this a DOUBLE holds every whole number.
const DOUBLE_DIGITS: u64 = 1 << 53;
/// A FLOAT keeps so many digits of every number, and every whole number of so many.
const FLOAT_DIGITS: usize = 6;
/// The powers of ten that whole numbers of few digits may need.
const WHOLE_POWERS: [u64; DIGITS_MAX + 1] = whole_powers();
/// The powers of ten that a DOUBLE holds exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];
/// Those that a FLOAT holds exactly.
const SHORT_POWERS: [f32; 11] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10];

/// A whole number of few digits that fits into so many bits; leaves the scanner where it is for every other value.
#[inline]
pub(super) fn short_integer(scanner: &mut Scanner<'_>, bits: u32) -> Option<i64> {
    let rest = scanner.rest();
    let negative = rest.first() == Some(&b'-');
    let digits = &rest[usize::from(negative)..];
    let (value, count) = leading_digits(digits);
    let is_number = count > 0 && (count == 1 || digits[0] != b'0');
    let goes_on = matches!(digits.get(count), Some(b'0'..=b'9' | b'.' | b'e' | b'E'));
    if !is_number || goes_on {
        return None;
    }
    let value = i64::try_from(value).ok()?;
    let value = if negative { -value } else { value };
    let spare = 64 - bits;
    if (value << spare) >> spare != value {
        return None;
    }
    scanner.skip(usize::from(negative) + count);
    Some(value)
}

/// A decimal of few digits as a whole number of its last place, below `bound`; leaves the scanner where it is for every
/// other value.
#[inline]
pub(super) fn short_decimal(scanner: &mut Scanner<'_>, bound: i64, places: usize) -> Option<i64> {
    let digits = Digits::at(scanner)?;
    let missing = places.checked_sub(digits.behind)?;
    if digits.count + missing > DIGITS_MAX {
        return None;
    }
    let value = i64::try_from(digits.value * WHOLE_POWERS[missing]).ok()?;
    if value >= bound {
        return None;
    }
    scanner.skip(digits.length);
    Some(if digits.negative { -value } else { value })
}

/// A float that `nearest` gives for its digits; leaves the scanner where it is for every other value.
#[inline]
pub(super) fn short_float(
    scanner: &mut Scanner<'_>,
    nearest: impl Fn(&Digits) -> Option<f64>,
) -> Option<f64> {
    let digits = Digits::at(scanner)?;
    let value = nearest(&digits)?;
    scanner.skip(digits.length);
    Some(value)
}

/// A number of few digits without exponent.
pub(super) struct Digits {
    negative: bool,
    /// All digits as one whole number.
    value: u64,
    count: usize,
    /// Those behind the point.
    behind: usize,
    has_point: bool,
    /// Bytes of the text.
    length: usize,
}

impl Digits {
    /// The number at the place of the scanner; `None` for every value that is none, or is written in another way.
    #[inline(always)]
    fn at(scanner: &Scanner<'_>) -> Option<Digits> {
        let rest = scanner.rest();
        let negative = rest.first() == Some(&b'-');
        let digits = &rest[usize::from(negative)..];
        let (mut value, whole) = leading_digits(digits);
        let has_point = digits.get(whole) == Some(&b'.');
        let mut behind = 0;
        if has_point {
            let (part, count) = leading_digits(&digits[whole + 1..]);
            value = value
                * WHOLE_POWERS
                    .get(count)
                    .filter(|_| whole + count <= DIGITS_MAX)?
                + part;
            behind = count;
        }
        let length = whole + usize::from(has_point) + behind;
        let is_number =
            whole > 0 && (whole == 1 || digits[0] != b'0') && (!has_point || behind > 0);
        let goes_on = matches!(digits.get(length), Some(b'0'..=b'9' | b'.' | b'e' | b'E'));
        (is_number && !goes_on).then_some(Digits {
            negative,
            value,
            count: whole + behind,
            behind,
            has_point,
            length: usize::from(negative) + length,
        })
    }

    /// The nearest DOUBLE, if it surely keeps the digits.
    ///
    /// Behind a point it does if two of them that follow each other are less apart than two numbers of so many digits.
    #[inline]
    pub(super) fn double(&self) -> Option<f64> {
        let keeps = match self.has_point {
            true => self.value < DOUBLE_DIGITS / 2,
            false => self.value <= DOUBLE_DIGITS,
        };
        let power = POWERS.get(self.behind).filter(|_| keeps)?;
        // Both are exact, so the quotient is the nearest.
        let value = self.value as f64 / power;
        Some(if self.negative { -value } else { value })
    }

    /// The nearest FLOAT, if it surely keeps the digits.
    #[inline]
    pub(super) fn float(&self) -> Option<f64> {
        let power = SHORT_POWERS.get(self.behind)?;
        if self.count > FLOAT_DIGITS {
            return None;
        }
        let value = self.value as f32 / power;
        Some(f64::from(if self.negative { -value } else { value }))
    }
}

/// The digits at the beginning of a text as a whole number, and how many they are; of many only the first `DIGITS_MAX`.
#[inline]
fn leading_digits(text: &[u8]) -> (u64, usize) {
    if let Some(word) = text.first_chunk() {
        let (value, count) = digits_of_word(u64::from_le_bytes(*word));
        if count < WORD {
            return (value, count);
        }
        return digits_behind_word(value, text);
    }
    many_digits(text)
}

/// The same where the first word is all digits, with this value.
#[inline(never)]
fn digits_behind_word(first: u64, text: &[u8]) -> (u64, usize) {
    let (mut value, mut before) = (first, WORD);
    while let Some(word) = text[before..].first_chunk() {
        let (next, count) = digits_of_word(u64::from_le_bytes(*word));
        if before + count > DIGITS_MAX {
            break;
        }
        value = value * WHOLE_POWERS[count] + next;
        before += count;
        if count < WORD {
            return (value, before);
        }
    }
    many_digits(text)
}

fn many_digits(text: &[u8]) -> (u64, usize) {
    let digits = text.iter().take(DIGITS_MAX);
    let digits = digits.take_while(|byte| byte.is_ascii_digit());
    digits.fold((0, 0), |(value, count), digit| {
        (value * 10 + u64::from(digit - b'0'), count + 1)
    })
}

/// The same for the bytes of a word, of which the lowest is the first of the text.
#[inline]
fn digits_of_word(word: u64) -> (u64, usize) {
    const ONES: u64 = u64::MAX / 0xFF;
    // A digit becomes its value, and adding this to any other byte sets its high bit, if that is not set already.
    let values = word ^ (ONES * b'0' as u64);
    let above_nine = (values & (ONES * 0x7F)) + ONES * (0x7F - 9);
    let others = (above_nine | values) & (ONES * 0x80);
    let count = others.trailing_zeros() as usize / 8;
    // The digits move to the end, and zeros stand before them.
    let values = values.checked_shl(64 - 8 * count as u32).unwrap_or(0);
    // Each number takes the one behind it in: digits, pairs of them, fours.
    let pairs = (values.wrapping_mul((10 << 8) | 1) >> 8) & 0x00FF_00FF_00FF_00FF;
    let fours = (pairs.wrapping_mul((100 << 16) | 1) >> 16) & 0x0000_FFFF_0000_FFFF;
    (fours.wrapping_mul((10_000 << 32) | 1) >> 32, count)
}

const fn whole_powers() -> [u64; DIGITS_MAX + 1] {
    let mut powers = [1; DIGITS_MAX + 1];
    let mut place = 1;
    while place <= DIGITS_MAX {
        powers[place] = powers[place - 1] * 10;
        place += 1;
    }
    powers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::number;
    use crate::decode::testing::numbers;

    #[test]
    fn floats_of_few_digits_are_those_of_the_scanner() {
        let mut next = numbers(7);
        let (mut doubles, mut floats) = (0, 0);
        for round in 0..200_000 {
            let mut text = String::from(if next(2) == 0 { "-" } else { "" });
            if next(4) == 0 {
                text.push_str("0.");
            }
            let count = 1 + next(19);
            for place in 0..count {
                if place > 0 && !text.contains('.') && next(count) == 0 {
                    text.push('.');
                }
                let digit = if round % 3 == 0 {
                    [0, 9][next(2)]
                } else {
                    next(10)
                };
                text.push_str(&digit.to_string());
            }
            let double = short_float(&mut Scanner::at(&text, 0), Digits::double);
            if let Some(double) = double {
                let exact = number::float::<f64>(&text).map(f64::to_bits);
                assert_eq!(exact, Ok(double.to_bits()), "{text}");
                doubles += 1;
            }
            let float = short_float(&mut Scanner::at(&text, 0), Digits::float);
            if let Some(float) = float {
                let exact = number::float::<f32>(&text).map(f32::to_bits);
                assert_eq!(exact, Ok((float as f32).to_bits()), "{text}");
                floats += 1;
            }
        }
        assert!(doubles > 50_000 && floats > 20_000, "{doubles} {floats}");
    }

    #[test]
    fn digits_end_at_any_other_byte() {
        for count in 0..=20 {
            for end in (0..=255u8).filter(|byte| !byte.is_ascii_digit()) {
                let mut text: Vec<u8> = (0..count)
                    .map(|place| b'0' + (place * 7 + 9) % 10)
                    .collect();
                let kept = text.len().min(DIGITS_MAX);
                let digits = std::str::from_utf8(&text[..kept]).unwrap();
                let expected = (digits.parse().unwrap_or(0), kept);
                assert_eq!(leading_digits(&text), expected);
                for behind in [
                    end, b'5', end, b'0', b'9', end, b'1', b'2', b'3', b'4', b'5',
                ] {
                    text.push(behind);
                    assert_eq!(leading_digits(&text), expected, "{text:?}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_plain_number_of_few_digits_is_left_where_it_is() {
        for text in [
            "",
            "-",
            "01",
            "-00.5",
            "1.",
            ".5",
            "1e5",
            "1.5E1",
            "12345678901234567890",
        ] {
            let mut scanner = Scanner::at(text, 0);
            assert!(Digits::at(&scanner).is_none(), "{text}");
            assert_eq!(short_integer(&mut scanner, 64), None, "{text}");
            assert_eq!(short_decimal(&mut scanner, 1_000, 3), None, "{text}");
            assert_eq!(scanner.place(), 0, "{text}");
        }
        let decimal = |text: &str| short_decimal(&mut Scanner::at(text, 0), 10_000, 3);
        assert_eq!(decimal("1.2345"), None);
        assert_eq!(decimal("-1.25,"), Some(-1_250));
        assert_eq!((decimal("9.999"), decimal("10")), (Some(9_999), None));
        let integer = |text: &str| short_integer(&mut Scanner::at(text, 0), 8);
        assert_eq!((integer("-128"), integer("128")), (Some(-128), None));
    }
}
