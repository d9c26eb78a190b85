//! Numbers from their text, exactly.
//!
//! Whole numbers and decimals never pass through a float. A float is taken only when the digits of the text can be
//! read back from it.

use std::fmt::{Display, LowerExp};

/// Why a text does not give the number that a column needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// The text is no number.
    NotANumber,
    /// There are digits other than zero below the last place of the column.
    Surplus,
    /// The number is beyond the range of the column.
    OutOfRange,
    /// A float cannot hold these digits.
    Inexact,
}

/// The parts of a number: sign, digits before and behind the point, exponent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number<'a> {
    negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
    exponent: i64,
    /// Written without point and exponent.
    pub(super) is_plain: bool,
}

/// Exponents are cut off here; far beyond any type, far from overflowing.
const EXPONENT_LIMIT: i64 = 1_000_000_000;

impl<'a> Number<'a> {
    /// Splits an optional sign, digits with an optional point, and an optional exponent; blanks are not allowed.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let bytes = text.as_bytes();
        let (negative, unsigned) = split_sign(bytes);
        let (whole, rest) = split_digits(unsigned);
        let (fraction, rest) = match rest.split_first() {
            Some((b'.', behind)) => split_digits(behind),
            _ => (&rest[..0], rest),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let is_plain = whole.len() == unsigned.len();
        let exponent = match rest.split_first() {
            None => 0,
            Some((b'e' | b'E', exponent)) => read_exponent(exponent)?,
            Some(_) => return None,
        };
        Some(Number {
            negative,
            whole,
            fraction,
            exponent,
            is_plain,
        })
    }

    /// The number times `10^scale`, when that is a whole number of at most 38 digits.
    pub(super) fn scaled(&self, scale: i8) -> Result<i128, Unfit> {
        let Some(digits) = self.significant() else {
            return Ok(0);
        };
        let last_power = digits.last_power + i64::from(scale);
        if last_power < 0 {
            return Err(Unfit::Surplus);
        }
        let length = i64::try_from(digits.count).unwrap_or(i64::MAX);
        if length.saturating_add(last_power) > 38 {
            return Err(Unfit::OutOfRange);
        }
        let digits = self.digits().skip(digits.first).take(digits.count);
        let mantissa = digits.fold(0i128, |sum, digit| sum * 10 + i128::from(digit - b'0'));
        let zeros = u32::try_from(last_power).expect("between 0 and 38");
        let value = mantissa * 10i128.pow(zeros);
        Ok(if self.negative { -value } else { value })
    }

    fn digits(&self) -> impl Iterator<Item = u8> + use<'a> {
        self.whole.iter().chain(self.fraction).copied()
    }

    /// The digits without zeros at both ends; `None` for zero.
    fn significant(&self) -> Option<Significant> {
        let first = self.digits().position(|digit| digit != b'0')?;
        let total = self.whole.len() + self.fraction.len();
        let trailing = self.fraction.iter().rev().chain(self.whole.iter().rev());
        let count = total - first - trailing.take_while(|digit| **digit == b'0').count();
        let behind_last = i64::try_from(total - first - count).unwrap_or(EXPONENT_LIMIT);
        let fraction = i64::try_from(self.fraction.len()).unwrap_or(EXPONENT_LIMIT);
        Some(Significant {
            first,
            count,
            last_power: behind_last - fraction + self.exponent,
        })
    }
}

struct Significant {
    first: usize,
    count: usize,
    /// The power of ten of the last digit.
    last_power: i64,
}

fn split_sign(bytes: &[u8]) -> (bool, &[u8]) {
    match bytes.split_first() {
        Some((b'-', rest)) => (true, rest),
        Some((b'+', rest)) => (false, rest),
        _ => (false, bytes),
    }
}

fn split_digits(bytes: &[u8]) -> (&[u8], &[u8]) {
    bytes.split_at(
        bytes
            .iter()
            .position(|byte| !byte.is_ascii_digit())
            .unwrap_or(bytes.len()),
    )
}

fn read_exponent(bytes: &[u8]) -> Option<i64> {
    let (negative, unsigned) = split_sign(bytes);
    let (digits, rest) = split_digits(unsigned);
    if digits.is_empty() || !rest.is_empty() {
        return None;
    }
    let size = digits.iter().fold(0i64, |sum, digit| {
        (sum * 10 + i64::from(digit - b'0')).min(EXPONENT_LIMIT)
    });
    Some(if negative { -size } else { size })
}

/// Reads a whole number of at most `bits` bits (8 to 64, with sign).
pub(super) fn integer(text: &str, bits: u32) -> Result<i64, Unfit> {
    let value = match short_integer(text) {
        Some(value) => value,
        None => {
            let exact = Number::parse(text).ok_or(Unfit::NotANumber)?.scaled(0)?;
            i64::try_from(exact).map_err(|_| Unfit::OutOfRange)?
        }
    };
    let spare = 64 - bits;
    if (value << spare) >> spare == value {
        Ok(value)
    } else {
        Err(Unfit::OutOfRange)
    }
}

/// The common case: few digits and nothing else.
fn short_integer(text: &str) -> Option<i64> {
    let (negative, digits) = split_sign(text.as_bytes());
    if digits.is_empty() || digits.len() > 18 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let size = digits
        .iter()
        .fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    Some(if negative { -size } else { size })
}

/// Reads a decimal with `scale` digits behind the point, as a whole number of its last place.
pub(super) fn decimal(text: &str, precision: u8, scale: i8) -> Result<i128, Unfit> {
    let value = match short_decimal(text.as_bytes(), scale) {
        Some(value) => i128::from(value),
        None => Number::parse(text)
            .ok_or(Unfit::NotANumber)?
            .scaled(scale)?,
    };
    if value.unsigned_abs() < 10u128.pow(u32::from(precision)) {
        Ok(value)
    } else {
        Err(Unfit::OutOfRange)
    }
}

/// The common case: few digits, of which no more than the column keeps stand behind the point.
fn short_decimal(text: &[u8], scale: i8) -> Option<i64> {
    let (negative, digits) = split_sign(text);
    let scale = usize::try_from(scale).ok()?;
    let (mut value, mut behind_point) = (0i64, None);
    for (place, sign) in digits.iter().enumerate() {
        match sign {
            b'0'..=b'9' => value = value * 10 + i64::from(sign - b'0'),
            b'.' if behind_point.is_none() && digits.len() > 1 => {
                behind_point = Some(digits.len() - place - 1);
            }
            _ => return None,
        }
        // So that the next digit cannot overflow it.
        if place >= 17 {
            return None;
        }
    }
    let missing = scale.checked_sub(behind_point.unwrap_or(0))?;
    if digits.is_empty() || digits.len() + missing > 18 {
        return None;
    }
    let value = value * 10i64.pow(missing as u32);
    Some(if negative { -value } else { value })
}

/// What tells the two float types apart.
pub(super) trait Float: Copy + Display + LowerExp + std::str::FromStr + PartialOrd {
    /// So many significant digits always survive.
    const DIGITS_SAFE: usize;
    /// So many tell any two values apart.
    const DIGITS_MAX: usize;
    /// Powers of ten below this are normal numbers.
    const POWER_SAFE: i64;
    /// Not NaN and not infinite.
    fn finite(self) -> bool;
    /// The same number.
    fn wide(self) -> f64;
}

impl Float for f64 {
    const DIGITS_SAFE: usize = 15;
    const DIGITS_MAX: usize = 17;
    const POWER_SAFE: i64 = 290;
    fn finite(self) -> bool {
        self.is_finite()
    }
    fn wide(self) -> f64 {
        self
    }
}

impl Float for f32 {
    const DIGITS_SAFE: usize = 6;
    const DIGITS_MAX: usize = 9;
    const POWER_SAFE: i64 = 30;
    fn finite(self) -> bool {
        self.is_finite()
    }
    fn wide(self) -> f64 {
        f64::from(self)
    }
}

/// Reads the nearest float, when the digits of the text can be read back from it.
///
/// Digits written without point and exponent must be met exactly; others to 17 significant digits (9 for FLOAT).
pub(super) fn float<F: Float>(text: &str) -> Result<F, Unfit> {
    let number = Number::parse(text).ok_or(Unfit::NotANumber)?;
    let value: F = text.parse().map_err(|_| Unfit::NotANumber)?;
    if !value.finite() {
        return Err(Unfit::OutOfRange);
    }
    let Some(digits) = number.significant() else {
        return Ok(value);
    };
    let count = i64::try_from(digits.count).unwrap_or(i64::MAX);
    let first_power = digits.last_power.saturating_add(count - 1);
    if digits.count <= F::DIGITS_SAFE && first_power.abs() < F::POWER_SAFE && !number.is_plain {
        return Ok(value);
    }
    if !number.is_plain && digits.count <= F::DIGITS_MAX {
        let kept = number.digits().skip(digits.first).take(digits.count);
        let whole = kept.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
        if is_near(value.wide(), whole, digits.last_power) {
            return Ok(value);
        }
    }
    let kept: Vec<u8> = number
        .digits()
        .skip(digits.first)
        .take(digits.count)
        .collect();
    let survives = if number.is_plain {
        exact_integer(value, number.digits().skip(digits.first))
    } else {
        is_shortest(value, &kept, first_power) || reads_back(value, &kept, first_power)
    };
    if survives {
        Ok(value)
    } else {
        Err(Unfit::Inexact)
    }
}

/// Whether a float is surely nearer to `digits` times `10^last_power` than half of that power, so that it gives these
/// digits again when it is written with as many.
fn is_near(value: f64, digits: u64, last_power: i64) -> bool {
    /// Powers of ten up to this and 53 bits fit into 127 bits.
    const POWER_MAX: i64 = 22;
    let bits = value.abs().to_bits();
    let exponent = (bits >> 52) as i64 - 1_075;
    // Both sides times the powers of ten and of two that make them whole; subnormal numbers are far below.
    if !(-63..0).contains(&exponent) || !(-POWER_MAX..0).contains(&last_power) {
        return false;
    }
    let fraction = u128::from((bits & ((1 << 52) - 1)) | (1 << 52));
    let (twos, tens) = ((-exponent) as u32, (-last_power) as u32);
    let float = fraction * 10u128.pow(tens);
    let written = u128::from(digits) << twos;
    float.abs_diff(written) < 1 << (twos - 1)
}

/// Whether the full decimal expansion of a whole float is these digits.
fn exact_integer<F: Float>(value: F, written: impl Iterator<Item = u8>) -> bool {
    format!("{value:.0}")
        .bytes()
        .filter(u8::is_ascii_digit)
        .eq(written)
}

/// Whether these digits are the fewest that name `value`, as most programs write it.
fn is_shortest<F: Float>(value: F, digits: &[u8], first_power: i64) -> bool {
    split_float(&format!("{value:e}")) == Some((digits.to_vec(), first_power))
}

/// Whether `value` written with as many digits as the text, up to the most that matter, gives the text again.
fn reads_back<F: Float>(value: F, digits: &[u8], first_power: i64) -> bool {
    let shown = digits.len().min(F::DIGITS_MAX);
    let written = format!("{value:.*e}", shown - 1);
    split_float(&written) == Some(round_digits(digits, shown, first_power))
}

/// The digits and the power of the first digit of a float written with an exponent.
fn split_float(text: &str) -> Option<(Vec<u8>, i64)> {
    let (mantissa, power) = text.split_once('e')?;
    Some((
        mantissa.bytes().filter(u8::is_ascii_digit).collect(),
        power.parse().ok()?,
    ))
}

/// Rounds decimal digits to `shown` of them, half up; a carry out of the first digit raises its power.
fn round_digits(digits: &[u8], shown: usize, first_power: i64) -> (Vec<u8>, i64) {
    let mut kept = digits[..shown].to_vec();
    if digits.get(shown).is_none_or(|next| *next < b'5') {
        return (kept, first_power);
    }
    for digit in kept.iter_mut().rev() {
        if *digit < b'9' {
            *digit += 1;
            return (kept, first_power);
        }
        *digit = b'0';
    }
    kept[0] = b'1';
    (kept, first_power + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::testing::numbers;

    #[test]
    fn what_is_near_is_read_back_or_the_shortest() {
        let mut next = numbers(17);
        let (mut near, mut far) = (0, 0);
        for _ in 0..100_000 {
            let count = 1 + next(17);
            let mut kept: Vec<u8> = (0..count).map(|_| b'0' + next(10) as u8).collect();
            kept[0] = b'1' + next(9) as u8;
            kept[count - 1] = b'1' + next(9) as u8;
            let whole: u64 = std::str::from_utf8(&kept).unwrap().parse().unwrap();
            let last_power = -(next(25) as i64);
            let value: f64 = format!("{whole}e{last_power}").parse().unwrap();
            // A neighbour is near only where it gives the same digits.
            let value = [value, value.next_up(), value.next_down()][next(3)];
            if is_near(value, whole, last_power) {
                let first_power = last_power + count as i64 - 1;
                assert!(
                    reads_back(value, &kept, first_power),
                    "{value:?} {whole}e{last_power}"
                );
                near += 1;
            } else {
                far += 1;
            }
        }
        assert!(near > 30_000 && far > 1_000, "{near} {far}");
    }

    #[test]
    fn what_is_no_number_is_not_taken() {
        for text in [
            "", "-", ".", "e5", "1e", "1e+", " 1", "1 ", "0x10", "1_000", "1,5", "NaN", "inf",
            "1.2.3", "--1",
        ] {
            assert!(Number::parse(text).is_none(), "{text}");
            assert_eq!(integer(text, 64), Err(Unfit::NotANumber));
            assert_eq!(float::<f64>(text), Err(Unfit::NotANumber));
        }
    }

    #[test]
    fn integers_are_exact_or_refused() {
        assert_eq!(integer("5.25", 64), Err(Unfit::Surplus));
        assert_eq!(integer("128", 8), Err(Unfit::OutOfRange));
        assert_eq!(integer("9223372036854775808", 64), Err(Unfit::OutOfRange));
        assert_eq!(
            integer("1e400000000000000000000", 64),
            Err(Unfit::OutOfRange)
        );
        assert_eq!(integer("1e-400000000000000000000", 64), Err(Unfit::Surplus));
        assert_eq!(integer("-9223372036854775808", 64), Ok(i64::MIN));
        assert_eq!(integer("9223372036854775807", 64), Ok(i64::MAX));
        assert_eq!(integer("-128", 8), Ok(-128));
        for five in [
            "5",
            "5.0",
            "5e0",
            "0.5e1",
            "500e-2",
            "+5",
            "005",
            "5.",
            "5.000000000000000000000000000000000000000",
        ] {
            assert_eq!(integer(five, 64), Ok(5), "{five}");
        }
        assert_eq!(integer("0e99999", 64), Ok(0));
        assert_eq!(integer("9007199254740993", 64), Ok(9_007_199_254_740_993));
    }

    #[test]
    fn decimals_are_exact_or_refused() {
        assert_eq!(decimal("12.345", 10, 2), Err(Unfit::Surplus));
        assert_eq!(decimal("100000000.00", 10, 2), Err(Unfit::OutOfRange));
        assert_eq!(decimal("1e38", 38, 0), Err(Unfit::OutOfRange));
        for (text, value) in [
            ("1e2", 10000),
            ("7.10", 710),
            ("7.1", 710),
            ("7.1000", 710),
            ("99999999.99", 9_999_999_999),
            ("-0.05", -5),
            ("4.35", 435),
            ("-.5", -50),
            ("1234e-2", 1234),
            ("-0", 0),
        ] {
            assert_eq!(decimal(text, 10, 2), Ok(value), "{text}");
        }
        let nines = "9".repeat(38);
        assert_eq!(decimal(&nines, 38, 0), Ok(10i128.pow(38) - 1));
    }

    #[test]
    fn doubles_keep_their_digits_or_are_refused() {
        for text in [
            "9007199254740993",
            "12345678901234567891",
            "9007199254740993.0",
        ] {
            assert_eq!(float::<f64>(text), Err(Unfit::Inexact), "{text}");
        }
        assert_eq!(float::<f64>("1e400"), Err(Unfit::OutOfRange));
        assert_eq!(float::<f64>("1e-400"), Err(Unfit::Inexact));
        for text in [
            "5.25",
            "0.1",
            "0.30000000000000004",
            "1e23",
            "-0.0",
            "9007199254740992",
            "1000000000000000000000",
            "5e-324",
            "1.7976931348623157e308",
            "0.1000000000000000055511151231257827021181583404541015625",
            "0.99999999999999999999e0",
        ] {
            assert_eq!(float::<f64>(text), Ok(text.parse().unwrap()), "{text}");
        }
        assert!(float::<f64>("-0.0").unwrap().is_sign_negative());
    }

    #[test]
    fn floats_keep_nine_digits() {
        assert_eq!(float::<f32>("16777217"), Err(Unfit::Inexact));
        assert_eq!(float::<f32>("1.10000003"), Err(Unfit::Inexact));
        assert_eq!(float::<f32>("1e39"), Err(Unfit::OutOfRange));
        assert_eq!(float::<f32>("1.10000002"), Ok(1.1));
        assert_eq!(float::<f32>("16777216"), Ok(16_777_216.0));
        assert_eq!(float::<f32>("0.1"), Ok(0.1));
    }

    #[test]
    fn every_double_written_with_seventeen_digits_is_taken() {
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        for _ in 0..2000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let value = f64::from_bits(state);
            if value.is_finite() {
                assert_eq!(float::<f64>(&format!("{value:.16e}")), Ok(value));
                assert_eq!(float::<f64>(&format!("{value:e}")), Ok(value));
            }
        }
    }
}
