//! Dates and times from their text, exactly; the time zone of the process never matters.
//!
//! ISO 8601 by default; where one is set, a chrono format, or a pattern of Spark if it has no percent sign.

use crate::change::FileFault;
use crate::change::ParkReason;
use crate::time_pattern::{TimeParts, TimePattern};
use chrono::format::{Item, Parsed, StrftimeItems};
use chrono::{Datelike, NaiveDate, NaiveDateTime, Timelike};

const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;
/// Days from 0000-03-01 to 1970-01-01.
const DAYS_TO_EPOCH: i64 = 719_468;
/// 0001-01-01T00:00:00Z, the first instant that every reader of the tables knows.
const MICROS_MIN: i64 = -62_135_596_800 * MICROS_PER_SECOND;
/// 9999-12-31T23:59:59.999999Z, the last one.
const MICROS_MAX: i64 = 253_402_300_800 * MICROS_PER_SECOND - 1;

/// Why a text is no time that a column takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeFault {
    /// It does not read as a time, or there is no such day or hour.
    NotATime,
    /// It has more than six digits behind the second, and not only zeros.
    Surplus,
    /// It is outside of the years 1 to 9999.
    OutOfRange,
}

/// A time as read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Microseconds since the epoch; in UTC when `has_offset`, else by the clock on the wall.
    pub(super) micros: i64,
    /// The text says where on earth.
    pub(super) has_offset: bool,
}

/// A format of the settings.
#[derive(Debug)]
enum Format {
    Strftime(Vec<Item<'static>>),
    Pattern(TimePattern),
}

/// The formats of the settings, ready for use.
#[derive(Debug, Default)]
pub(super) struct TimeFormats {
    date: Option<Format>,
    timestamp: Option<Format>,
    /// The chrono format of timestamps says UTC in a letter.
    timestamp_is_utc: bool,
}

impl TimeFormats {
    /// Prepares the formats; `None` is ISO 8601.
    pub(super) fn new(date: Option<&str>, timestamp: Option<&str>) -> Result<Self, FileFault> {
        let timestamp_format = timestamp.map(Format::new).transpose()?;
        let timestamp_is_utc = timestamp.is_some_and(|f| f.ends_with('Z') && !f.ends_with("%Z"));
        Ok(TimeFormats {
            date: date.map(Format::new).transpose()?,
            timestamp: timestamp_format,
            timestamp_is_utc,
        })
    }

    /// Whether a format is set for timestamps, so that bare numbers may be times.
    pub(super) fn has_timestamp_format(&self) -> bool {
        self.timestamp.is_some()
    }

    /// Whether a format is set for dates, so that bare numbers may be dates.
    pub(super) fn has_date_format(&self) -> bool {
        self.date.is_some()
    }

    /// Days since the epoch.
    pub(super) fn date(&self, text: &str) -> Result<i32, TimeFault> {
        let day = match &self.date {
            None => {
                let days = iso_days(text.as_bytes())?;
                return i32::try_from(days).map_err(|_| TimeFault::OutOfRange);
            }
            Some(Format::Strftime(items)) => {
                let mut parsed = Parsed::new();
                chrono::format::parse(&mut parsed, text, items.iter())
                    .map_err(|_| TimeFault::NotATime)?;
                parsed.to_naive_date().map_err(|_| TimeFault::NotATime)?
            }
            Some(Format::Pattern(pattern)) => {
                day_of(&pattern.read(text).ok_or(TimeFault::NotATime)?)?
            }
        };
        let start = in_range(micros_of(day.and_time(chrono::NaiveTime::MIN)))?;
        let days = start.div_euclid(MICROS_PER_DAY);
        i32::try_from(days).map_err(|_| TimeFault::OutOfRange)
    }

    /// Reads an instant or a time on the wall, whichever the text is.
    pub(super) fn timestamp(&self, text: &str) -> Result<Stamp, TimeFault> {
        match &self.timestamp {
            None => iso_timestamp(text.as_bytes()),
            Some(Format::Strftime(items)) => self.formatted_timestamp(text, items),
            Some(Format::Pattern(pattern)) => {
                let parts = pattern.read(text).ok_or(TimeFault::NotATime)?;
                stamp_of(wall_of(&parts)?, parts.offset, parts.offset.is_some())
            }
        }
    }

    /// The instant that a text begins with, and its length, if it is written in the usual form and no other form is set.
    #[inline]
    pub(super) fn usual_instant(&self, text: &[u8]) -> Option<(i64, usize)> {
        match self.timestamp {
            None => usual_instant(text),
            Some(_) => None,
        }
    }

    fn formatted_timestamp(&self, text: &str, items: &[Item<'static>]) -> Result<Stamp, TimeFault> {
        let mut parsed = Parsed::new();
        chrono::format::parse(&mut parsed, text, items.iter()).map_err(|_| TimeFault::NotATime)?;
        let offset = parsed.offset();
        // Seconds since the epoch are an instant by themselves.
        let has_offset = offset.is_some() || parsed.timestamp().is_some() || self.timestamp_is_utc;
        let wall = parsed
            .to_naive_datetime_with_offset(offset.unwrap_or(0))
            .map_err(|_| TimeFault::NotATime)?;
        stamp_of(wall, offset, has_offset)
    }
}

impl Format {
    fn new(format: &str) -> Result<Format, FileFault> {
        let found = match format.contains('%') {
            true => StrftimeItems::new(format)
                .parse_to_owned()
                .ok()
                .map(Format::Strftime),
            false => TimePattern::parse(format).map(Format::Pattern),
        };
        found.ok_or_else(|| {
            let detail = format!("not a format of dates or times: {format:?}");
            FileFault::new(ParkReason::Unreadable, detail)
        })
    }
}

fn stamp_of(
    wall: NaiveDateTime,
    offset: Option<i32>,
    has_offset: bool,
) -> Result<Stamp, TimeFault> {
    // A leap second has no place among the microseconds.
    if wall.nanosecond() >= 1_000_000_000 {
        return Err(TimeFault::NotATime);
    }
    if !wall.nanosecond().is_multiple_of(1000) {
        return Err(TimeFault::Surplus);
    }
    let micros = micros_of(wall) - i64::from(offset.unwrap_or(0)) * MICROS_PER_SECOND;
    Ok(Stamp {
        micros: in_range(micros)?,
        has_offset,
    })
}

/// The day that the parts name, if there is one.
fn day_of(parts: &TimeParts) -> Result<NaiveDate, TimeFault> {
    let (Some(year), Some(month), Some(day)) = (parts.year, parts.month, parts.day) else {
        return Err(TimeFault::NotATime);
    };
    let year = i32::try_from(year).map_err(|_| TimeFault::NotATime)?;
    NaiveDate::from_ymd_opt(year, month, day)
        .filter(|day| {
            let weekday = day.weekday().num_days_from_monday();
            year > 0 && parts.weekday.is_none_or(|named| named == weekday)
        })
        .ok_or(TimeFault::NotATime)
}

/// The time on the wall; parts of the day that the pattern lacks are zero.
fn wall_of(parts: &TimeParts) -> Result<NaiveDateTime, TimeFault> {
    let hour = match (parts.hour_of_half, parts.is_afternoon) {
        (Some(hour @ 1..=12), Some(is_afternoon)) => hour % 12 + if is_afternoon { 12 } else { 0 },
        (Some(_), _) => return Err(TimeFault::NotATime),
        (None, _) => parts.hour.unwrap_or(0),
    };
    let (minute, second) = (parts.minute.unwrap_or(0), parts.second.unwrap_or(0));
    let nanosecond = parts.nanosecond.unwrap_or(0);
    day_of(parts)?
        .and_hms_nano_opt(hour, minute, second, nanosecond)
        .ok_or(TimeFault::NotATime)
}

fn micros_of(wall: NaiveDateTime) -> i64 {
    wall.and_utc().timestamp_micros()
}

/// Refuses what is outside of the years 1 to 9999.
pub(super) fn in_range(micros: i64) -> Result<i64, TimeFault> {
    if (MICROS_MIN..=MICROS_MAX).contains(&micros) {
        Ok(micros)
    } else {
        Err(TimeFault::OutOfRange)
    }
}

/// Days since the epoch of `YYYY-MM-DD`.
fn iso_days(bytes: &[u8]) -> Result<i64, TimeFault> {
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = bytes else {
        return Err(TimeFault::NotATime);
    };
    let year = two_digits(*y1, *y2)? * 100 + two_digits(*y3, *y4)?;
    let (month, day) = (two_digits(*m1, *m2)?, two_digits(*d1, *d2)?);
    days_of(year, month, day).ok_or(TimeFault::NotATime)
}

/// Days since the epoch, if there is such a day.
fn days_of(year: u32, month: u32, day: u32) -> Option<i64> {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let length = match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u32::from(is_leap),
        _ => 31,
    };
    if year == 0 || !(1..=12).contains(&month) || !(1..=length).contains(&day) {
        return None;
    }
    // Years that begin in March have their leap day at the end.
    let (year, month) = match month {
        1 | 2 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    let leap_days = year / 4 - year / 100 + year / 400;
    let days = 365 * year + leap_days + (153 * month + 2) / 5 + day - 1;
    Some(i64::from(days) - DAYS_TO_EPOCH)
}

/// The instant that a text begins with, and its length, in the form that most programs write: `YYYY-MM-DDTHH:MM:SSZ`, perhaps
/// with six digits behind a point.
///
/// `None` for any other text, of which nothing is said here.
#[inline]
fn usual_instant(text: &[u8]) -> Option<(i64, usize)> {
    let (wall, behind) = text.split_first_chunk::<19>()?;
    let word = |at: usize| wall.get(at..).and_then(<[u8]>::first_chunk);
    let date = pairs(word(0)?, b"0000-00-")?;
    let hour = pairs(word(8)?, b"00T00:00")?;
    let second = pairs(word(11)?, b"00:00:00")?;
    let (micros, length) = match behind {
        [b'Z', ..] => (0, 20),
        _ => {
            let fraction = pairs(behind.first_chunk()?, b".000000Z")?;
            ((fraction[1] * 100 + fraction[3]) * 100 + fraction[5], 27)
        }
    };
    let (year, month, day) = (date[0] * 100 + date[2], date[5], hour[0]);
    let (hour, minute, second) = (hour[3], second[3], second[6]);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let seconds = i64::from(hour * 3600 + minute * 60 + second);
    let midnight = days_of(year, month, day)? * MICROS_PER_DAY;
    let micros = midnight + seconds * MICROS_PER_SECOND + i64::from(micros);
    Some((micros, length))
}

/// For each place of a text that is laid out like `form`, which has zeros for digits, the number of two digits that begins
/// there; places without two digits mean nothing. `None` for any other text.
#[inline]
fn pairs(text: &[u8; 8], form: &[u8; 8]) -> Option<[u32; 8]> {
    const ONES: u64 = u64::MAX / 0xFF;
    // A digit becomes its value, and what is the same in both becomes zero.
    let values = u64::from_le_bytes(*text) ^ u64::from_le_bytes(*form);
    let is_digit = u64::from_le_bytes(form.map(|byte| if byte == b'0' { 0xFF } else { 0 }));
    let above_nine = (values | values.wrapping_add(ONES * (0x7F - 9))) & (ONES << 7);
    if above_nine != 0 || values & !is_digit != 0 {
        return None;
    }
    let pairs = values * 10 + (values >> 8);
    Some(pairs.to_le_bytes().map(u32::from))
}

fn two_digits(tens: u8, ones: u8) -> Result<u32, TimeFault> {
    if tens.is_ascii_digit() && ones.is_ascii_digit() {
        Ok(u32::from(tens - b'0') * 10 + u32::from(ones - b'0'))
    } else {
        Err(TimeFault::NotATime)
    }
}

/// `YYYY-MM-DD`, `T` or a blank, `HH:MM[:SS[.fraction]]`, and perhaps an offset. A day alone is its midnight.
fn iso_timestamp(bytes: &[u8]) -> Result<Stamp, TimeFault> {
    if let Some((micros, length)) = usual_instant(bytes)
        && length == bytes.len()
    {
        return Ok(Stamp {
            micros,
            has_offset: true,
        });
    }
    any_iso_timestamp(bytes)
}

fn any_iso_timestamp(bytes: &[u8]) -> Result<Stamp, TimeFault> {
    let (day, rest) = bytes.split_at_checked(10).ok_or(TimeFault::NotATime)?;
    let midnight = iso_days(day)? * MICROS_PER_DAY;
    let Some((separator, rest)) = rest.split_first() else {
        return Ok(Stamp {
            micros: midnight,
            has_offset: false,
        });
    };
    let [h1, h2, b':', m1, m2, rest @ ..] = rest else {
        return Err(TimeFault::NotATime);
    };
    if !matches!(separator, b'T' | b't' | b' ') {
        return Err(TimeFault::NotATime);
    }
    let (second, fraction, rest) = match rest {
        [b':', s1, s2, rest @ ..] => {
            let (fraction, rest) = fraction_micros(rest)?;
            (two_digits(*s1, *s2)?, fraction, rest)
        }
        _ => (0, 0, rest),
    };
    let (hour, minute) = (two_digits(*h1, *h2)?, two_digits(*m1, *m2)?);
    if hour > 23 || minute > 59 || second > 59 {
        return Err(TimeFault::NotATime);
    }
    let offset = iso_offset(rest)?;
    let seconds = i64::from(hour * 3600 + minute * 60 + second) - offset.unwrap_or(0);
    let micros = midnight + seconds * MICROS_PER_SECOND + fraction;
    Ok(Stamp {
        micros: in_range(micros)?,
        has_offset: offset.is_some(),
    })
}

/// Up to six digits behind a point, and any number of zeros after them.
fn fraction_micros(bytes: &[u8]) -> Result<(i64, &[u8]), TimeFault> {
    let [b'.', rest @ ..] = bytes else {
        return Ok((0, bytes));
    };
    let length = rest
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(rest.len());
    let (digits, rest) = rest.split_at(length);
    if digits.is_empty() {
        return Err(TimeFault::NotATime);
    }
    if digits.iter().skip(6).any(|digit| *digit != b'0') {
        return Err(TimeFault::Surplus);
    }
    let micros = (0..6).fold(0, |sum, place| {
        sum * 10 + i64::from(digits.get(place).map_or(0, |digit| digit - b'0'))
    });
    Ok((micros, rest))
}

/// Seconds east of UTC from `Z`, `+02:00`, `+0200` or `+02`; `None` when nothing is left.
fn iso_offset(bytes: &[u8]) -> Result<Option<i64>, TimeFault> {
    let (sign, hours, minutes) = match bytes {
        [] => return Ok(None),
        [b'Z' | b'z'] => return Ok(Some(0)),
        [sign, h1, h2, b':', m1, m2] | [sign, h1, h2, m1, m2] => {
            (sign, two_digits(*h1, *h2)?, two_digits(*m1, *m2)?)
        }
        [sign, h1, h2] => (sign, two_digits(*h1, *h2)?, 0),
        _ => return Err(TimeFault::NotATime),
    };
    let seconds = i64::from(hours * 3600 + minutes * 60);
    match sign {
        b'+' if hours < 24 && minutes < 60 => Ok(Some(seconds)),
        b'-' if hours < 24 && minutes < 60 => Ok(Some(-seconds)),
        _ => Err(TimeFault::NotATime),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iso(text: &str) -> Result<Stamp, TimeFault> {
        TimeFormats::default().timestamp(text)
    }

    fn micros(text: &str) -> i64 {
        chrono::DateTime::parse_from_rfc3339(text)
            .unwrap()
            .timestamp_micros()
    }

    #[test]
    fn instants_in_the_usual_form_are_those_of_any_form() {
        let mut read = 0;
        for text in [
            "2024-02-29T23:59:59Z",
            "1999-12-31T00:00:00.000000Z",
            "0001-01-01T10:20:30.123456Z",
            "9999-10-10T19:09:59.999999Z",
        ] {
            for (place, byte) in
                (0..text.len()).flat_map(|place| (0..=255).map(move |b| (place, b)))
            {
                let mut other = text.as_bytes().to_vec();
                other[place] = byte;
                let usual = usual_instant(&other);
                if let Some((micros, length)) = usual
                    && length == other.len()
                {
                    let has_offset = true;
                    assert_eq!(any_iso_timestamp(&other), Ok(Stamp { micros, has_offset }));
                    read += 1;
                }
                other.extend_from_slice(b"\" and more");
                assert_eq!(usual_instant(&other), usual);
            }
            assert_eq!(
                usual_instant(text.as_bytes()).map(|usual| usual.1),
                Some(text.len())
            );
            assert_eq!(usual_instant(&text.as_bytes()[..text.len() - 1]), None);
        }
        assert!(read > 400, "{read}");
    }

    #[test]
    fn days_and_hours_that_do_not_exist_are_refused() {
        for text in [
            "2023-02-29T00:00:00Z",
            "2024-13-01T00:00:00Z",
            "2024-01-01T24:00:00Z",
            "2024-01-01T23:59:60Z",
            "2024-01-01T00:00:00+25:00",
            "2024-01-01T00:00:00+02:60",
            "2024-01-01T00:00:00.Z",
            "2024-01-01T00:00:00 Z",
            " 2024-01-01T00:00:00Z",
            "2024-1-1T00:00:00Z",
            "20240101T000000Z",
            "0000-01-01T00:00:00Z",
            "2024-01-01T00:00:00[Europe/Paris]",
            "1711843800",
            "",
        ] {
            assert_eq!(iso(text), Err(TimeFault::NotATime), "{text}");
        }
        assert_eq!(iso("2024-01-01T00:00:00.0000001Z"), Err(TimeFault::Surplus));
        assert_eq!(iso("0001-01-01T00:00:00+01:00"), Err(TimeFault::OutOfRange));
        for text in ["2023-02-29", "2024-01-01 ", "2024/01/01", "01.02.2024", ""] {
            assert_eq!(
                TimeFormats::default().date(text),
                Err(TimeFault::NotATime),
                "{text}"
            );
        }
    }

    #[test]
    fn every_way_of_writing_an_offset_gives_the_same_instant() {
        for text in [
            "2024-03-31T02:30:00+02:00",
            "2024-03-31T00:30:00Z",
            "2024-03-31 02:30:00+02",
            "2024-03-31 02:30+0200",
            "2024-03-30T19:00:00.000000000-05:30",
        ] {
            let stamp = Stamp {
                micros: micros("2024-03-31T00:30:00Z"),
                has_offset: true,
            };
            assert_eq!(iso(text), Ok(stamp), "{text}");
        }
        assert_eq!(
            iso("2024-03-31T00:30:00.123456Z").unwrap().micros,
            micros("2024-03-31T00:30:00.123456Z")
        );
        assert_eq!(iso("1969-12-31T23:59:59.9Z").unwrap().micros, -100_000);
    }

    #[test]
    fn a_time_without_offset_says_so() {
        assert!(!iso("2024-03-31T02:30:00").unwrap().has_offset);
        assert!(!iso("2024-03-31").unwrap().has_offset);
    }

    #[test]
    fn set_formats_are_used_instead_of_iso() {
        let formats = TimeFormats::new(Some("%d.%m.%Y"), Some("%d/%b/%Y:%H:%M:%S%.f %z")).unwrap();
        assert_eq!(
            formats.date("31.03.2024"),
            TimeFormats::default().date("2024-03-31")
        );
        assert_eq!(formats.date("2024-03-31"), Err(TimeFault::NotATime));
        let stamp = formats.timestamp("31/Mar/2024:02:30:00.5 +0200").unwrap();
        assert_eq!(
            stamp,
            Stamp {
                micros: micros("2024-03-31T00:30:00.5Z"),
                has_offset: true
            }
        );
        assert_eq!(
            formats.timestamp("31/Mar/2024:02:30:00.0000001 +0200"),
            Err(TimeFault::Surplus)
        );
        let utc = TimeFormats::new(None, Some("%Y%m%dT%H%M%SZ")).unwrap();
        assert_eq!(
            utc.timestamp("20240331T003000Z").unwrap().micros,
            micros("2024-03-31T00:30:00Z")
        );
        let epoch = TimeFormats::new(None, Some("%s")).unwrap();
        assert_eq!(
            epoch.timestamp("12").unwrap(),
            Stamp {
                micros: 12_000_000,
                has_offset: true
            }
        );
        let wall = TimeFormats::new(None, Some("%Y-%m-%d %H:%M:%S")).unwrap();
        assert!(!wall.timestamp("2024-03-31 02:30:00").unwrap().has_offset);
        assert_eq!(
            wall.timestamp("2024-03-31 02:30:60"),
            Err(TimeFault::NotATime)
        );
        assert!(TimeFormats::new(None, Some("%Q")).is_err());
    }

    #[test]
    fn patterns_of_spark_are_read_to_the_digit() {
        let formats = TimeFormats::new(
            Some("dd.MM.yyyy"),
            Some("EEE dd.MM.yyyy hh:mm:ss[.SSSSSSSSS] a[ XXX]"),
        )
        .unwrap();
        assert_eq!(
            formats.date("29.02.2024"),
            TimeFormats::default().date("2024-02-29")
        );
        let instant = Stamp {
            micros: micros("2024-02-29T10:30:00.25Z"),
            has_offset: true,
        };
        let text = "Thu 29.02.2024 12:30:00.25 PM +02:00";
        assert_eq!(formats.timestamp(text), Ok(instant));
        let wall = formats.timestamp("Thu 29.02.2024 12:30:00 AM").unwrap();
        assert_eq!(wall.micros, micros("2024-02-29T00:30:00Z"));
        assert!(!wall.has_offset);
        for text in [
            "29.02.2023",
            "00.01.2024",
            "01.13.2024",
            "01.01.0000",
            "1.2.2024",
        ] {
            assert_eq!(formats.date(text), Err(TimeFault::NotATime), "{text}");
        }
        for (text, fault) in [
            ("Fri 29.02.2024 12:30:00 AM", TimeFault::NotATime),
            ("Thu 29.02.2024 13:30:00 AM", TimeFault::NotATime),
            ("Thu 29.02.2024 00:30:00 AM", TimeFault::NotATime),
            ("Thu 29.02.2024 12:60:00 AM", TimeFault::NotATime),
            ("Thu 29.02.2024 12:30:60 AM", TimeFault::NotATime),
            ("Thu 29.02.2024 12:30:00.0000001 AM", TimeFault::Surplus),
        ] {
            assert_eq!(formats.timestamp(text), Err(fault), "{text}");
        }
        let utc = TimeFormats::new(None, Some("yyyyMMdd'T'HHmmss'Z'")).unwrap();
        assert!(utc.timestamp("20240229T003000Z").unwrap().has_offset);
        let day = TimeFormats::new(None, Some("yyyy/MM/dd")).unwrap();
        assert_eq!(
            day.timestamp("2024/02/29").unwrap().micros,
            micros("2024-02-29T00:00:00Z")
        );
        assert!(TimeFormats::new(Some("yyyy-MM"), None).is_err());
    }
}
