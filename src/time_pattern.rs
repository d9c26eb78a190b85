//! Dates and times by a pattern as Spark and Java write them, such as `yyyy-MM-dd'T'HH:mm:ss[.SSS]XXX`.
//!
//! A text is taken only if all of it is as the pattern says: as many digits as letters, `[...]` all there or all missing.
//! A `Z` in quotes at the end means UTC. A letter that is not known here is refused with the settings, never skipped.

/// A pattern, ready for use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TimePattern {
    /// With and without what stands in brackets; the longest first.
    alternatives: Vec<Vec<Item>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    Literal(String),
    /// From so many to so many digits.
    Number(Part, usize, usize),
    /// Two digits of a year from 2000 to 2099.
    ShortYear,
    /// English, in any case.
    MonthName(NameLength),
    WeekdayName(NameLength),
    /// Up to so many digits behind the second.
    Fraction(usize),
    HalfOfDay,
    Offset {
        has_colon: bool,
        /// Minutes may or must be there.
        minutes: Minutes,
        allows_z: bool,
    },
    /// All of it or nothing.
    Optional(Vec<Item>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Year,
    Month,
    Day,
    Hour,
    HourOfHalf,
    Minute,
    Second,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameLength {
    Short,
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Minutes {
    Optional,
    Needed,
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

const WEEKDAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];

/// Brackets nest no deeper than this.
const BRACKETS_MAX: usize = 8;

/// The brackets of a pattern may stand for so many patterns.
const ALTERNATIVES_MAX: usize = 64;

/// The parts of a time as they stand in a text; nothing says yet that there is such a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimeParts {
    /// The year.
    pub(crate) year: Option<u32>,
    /// From 1.
    pub(crate) month: Option<u32>,
    /// Of the month, from 1.
    pub(crate) day: Option<u32>,
    /// From 0, Monday.
    pub(crate) weekday: Option<u32>,
    /// Of the day.
    pub(crate) hour: Option<u32>,
    /// Of its half, 1 to 12.
    pub(crate) hour_of_half: Option<u32>,
    /// The second half of the day.
    pub(crate) is_afternoon: Option<bool>,
    /// The minute.
    pub(crate) minute: Option<u32>,
    /// The second.
    pub(crate) second: Option<u32>,
    /// Behind the second.
    pub(crate) nanosecond: Option<u32>,
    /// Seconds east of UTC.
    pub(crate) offset: Option<i32>,
}

impl TimePattern {
    /// Reads a pattern; `None` where it holds a letter or bracket that means nothing here, or no whole date.
    pub(crate) fn parse(pattern: &str) -> Option<TimePattern> {
        let letters: Vec<char> = pattern.chars().collect();
        let mut at = 0;
        let items = items(&letters, &mut at, 0)?;
        let alternatives = alternatives(&items)?;
        let is_whole = at == letters.len() && alternatives.iter().all(|items| is_a_time(items));
        is_whole.then_some(TimePattern { alternatives })
    }

    /// The parts of a text that is wholly as the pattern says.
    pub(crate) fn read(&self, text: &str) -> Option<TimeParts> {
        self.alternatives
            .iter()
            .find_map(|items| read_items(items, text))
    }
}

/// The pattern without brackets that it stands for.
fn alternatives(items: &[Item]) -> Option<Vec<Vec<Item>>> {
    let mut found: Vec<Vec<Item>> = vec![Vec::new()];
    for item in items {
        let added = match item {
            Item::Optional(inner) => [alternatives(inner)?, vec![Vec::new()]].concat(),
            item => vec![vec![item.clone()]],
        };
        let with = |before: &Vec<Item>| -> Vec<Vec<Item>> {
            let behind = |part: &Vec<Item>| [before.as_slice(), part].concat();
            added.iter().map(behind).collect()
        };
        found = found.iter().flat_map(with).collect();
        if found.len() > ALTERNATIVES_MAX {
            return None;
        }
    }
    Some(found)
}

/// Whether there is a whole date, and the half of the day exactly where it is needed.
fn is_a_time(items: &[Item]) -> bool {
    let has = |part: fn(&Item) -> bool| items.iter().any(part);
    has(|item| matches!(item, Item::Number(Part::Year, ..) | Item::ShortYear))
        && has(|item| matches!(item, Item::Number(Part::Month, ..) | Item::MonthName(_)))
        && has(|item| matches!(item, Item::Number(Part::Day, ..)))
        && has(|item| matches!(item, Item::Number(Part::HourOfHalf, ..)))
            == has(|item| matches!(item, Item::HalfOfDay))
}

/// The items up to the end or the bracket that closes those inside of `depth` brackets.
fn items(letters: &[char], at: &mut usize, depth: usize) -> Option<Vec<Item>> {
    let mut items = Vec::new();
    while let Some(letter) = letters.get(*at).copied() {
        let count = letters[*at..].iter().take_while(|l| **l == letter).count();
        match letter {
            '[' if depth < BRACKETS_MAX => {
                *at += 1;
                items.push(Item::Optional(self::items(letters, at, depth + 1)?));
                if letters.get(*at) != Some(&']') {
                    return None;
                }
                *at += 1;
            }
            ']' if depth > 0 => return Some(items),
            '[' | ']' | '{' | '}' | '#' => return None,
            '\'' => push_literal(&mut items, &quoted(letters, at)?),
            _ if letter.is_ascii_alphabetic() => {
                items.push(item(letter, count)?);
                *at += count;
            }
            _ => {
                push_literal(&mut items, letter.encode_utf8(&mut [0; 4]));
                *at += 1;
            }
        }
    }
    Some(items)
}

fn push_literal(items: &mut Vec<Item>, text: &str) {
    match items.last_mut() {
        Some(Item::Literal(literal)) => literal.push_str(text),
        _ => items.push(Item::Literal(text.to_string())),
    }
}

/// A text in quotes; two quotes are one, inside and alone.
fn quoted(letters: &[char], at: &mut usize) -> Option<String> {
    let mut text = String::new();
    *at += 1;
    loop {
        let letter = *letters.get(*at)?;
        *at += 1;
        if letter != '\'' {
            text.push(letter);
        } else if letters.get(*at) == Some(&'\'') {
            text.push('\'');
            *at += 1;
        } else {
            return Some(if text.is_empty() { "'".into() } else { text });
        }
    }
}

fn item(letter: char, count: usize) -> Option<Item> {
    let one_or_two = |part| match count {
        1 => Some(Item::Number(part, 1, 2)),
        2 => Some(Item::Number(part, 2, 2)),
        _ => None,
    };
    let offset = |has_colon, minutes, allows_z| {
        Some(Item::Offset {
            has_colon,
            minutes,
            allows_z,
        })
    };
    match (letter, count) {
        ('y' | 'u', 1) => Some(Item::Number(Part::Year, 1, 4)),
        ('y' | 'u', 2) => Some(Item::ShortYear),
        ('y' | 'u', 4) => Some(Item::Number(Part::Year, 4, 4)),
        ('M' | 'L', 3) => Some(Item::MonthName(NameLength::Short)),
        ('M' | 'L', 4) => Some(Item::MonthName(NameLength::Full)),
        ('M' | 'L', _) => one_or_two(Part::Month),
        ('d', _) => one_or_two(Part::Day),
        ('E', 1..=3) => Some(Item::WeekdayName(NameLength::Short)),
        ('E', 4) => Some(Item::WeekdayName(NameLength::Full)),
        ('H', _) => one_or_two(Part::Hour),
        ('h', _) => one_or_two(Part::HourOfHalf),
        ('m', _) => one_or_two(Part::Minute),
        ('s', _) => one_or_two(Part::Second),
        ('S', 1..=9) => Some(Item::Fraction(count)),
        ('a', 1) => Some(Item::HalfOfDay),
        ('X' | 'x', 1) => offset(false, Minutes::Optional, letter == 'X'),
        ('X' | 'x', 2) => offset(false, Minutes::Needed, letter == 'X'),
        ('X' | 'x', 3) => offset(true, Minutes::Needed, letter == 'X'),
        ('Z', 1..=3) => offset(false, Minutes::Needed, false),
        ('Z', 5) => offset(true, Minutes::Needed, true),
        _ => None,
    }
}

/// Reads a text that is all of the items and nothing else.
fn read_items(items: &[Item], text: &str) -> Option<TimeParts> {
    let mut parts = TimeParts::default();
    let mut rest = text;
    for item in items {
        rest = read_item(item, rest, &mut parts)?;
    }
    let ends_in_z = matches!(items.last(), Some(Item::Literal(text)) if text.ends_with('Z'));
    if ends_in_z && parts.offset.is_none() {
        parts.offset = Some(0);
    }
    rest.is_empty().then_some(parts)
}

fn read_item<'t>(item: &Item, text: &'t str, parts: &mut TimeParts) -> Option<&'t str> {
    match item {
        Item::Literal(literal) => text.strip_prefix(literal.as_str()),
        Item::Number(part, least, most) => {
            let (value, rest) = number(text, *least, *most)?;
            let slot = match part {
                Part::Year => &mut parts.year,
                Part::Month => &mut parts.month,
                Part::Day => &mut parts.day,
                Part::Hour => &mut parts.hour,
                Part::HourOfHalf => &mut parts.hour_of_half,
                Part::Minute => &mut parts.minute,
                Part::Second => &mut parts.second,
            };
            put(slot, value)?;
            Some(rest)
        }
        Item::ShortYear => {
            let (value, rest) = number(text, 2, 2)?;
            put(&mut parts.year, 2000 + value)?;
            Some(rest)
        }
        Item::MonthName(length) => {
            let (place, rest) = name(text, &MONTHS, *length)?;
            put(&mut parts.month, place + 1)?;
            Some(rest)
        }
        Item::WeekdayName(length) => {
            let (place, rest) = name(text, &WEEKDAYS, *length)?;
            put(&mut parts.weekday, place)?;
            Some(rest)
        }
        Item::Fraction(most) => {
            let (value, rest) = number(text, 1, *most)?;
            let digits = u32::try_from(text.len() - rest.len()).ok()?;
            put(&mut parts.nanosecond, value * 10_u32.pow(9 - digits))?;
            Some(rest)
        }
        Item::HalfOfDay => {
            let (half, rest) = text.split_at_checked(2)?;
            let is_afternoon = half.eq_ignore_ascii_case("PM");
            put(&mut parts.is_afternoon, is_afternoon)?;
            (is_afternoon || half.eq_ignore_ascii_case("AM")).then_some(rest)
        }
        Item::Offset {
            has_colon,
            minutes,
            allows_z,
        } => {
            let (value, rest) = offset(text, *has_colon, *minutes, *allows_z)?;
            put(&mut parts.offset, value)?;
            Some(rest)
        }
        Item::Optional(_) => None,
    }
}

/// A part that stands twice must say the same twice.
fn put<T: PartialEq + Copy>(slot: &mut Option<T>, value: T) -> Option<()> {
    match slot.replace(value) {
        Some(earlier) if earlier != value => None,
        _ => Some(()),
    }
}

fn number(text: &str, least: usize, most: usize) -> Option<(u32, &str)> {
    let digits = text.bytes().take(most).take_while(u8::is_ascii_digit);
    let count = digits.count();
    let (digits, rest) = text.split_at(count);
    (count >= least).then_some((digits.parse().ok()?, rest))
}

fn name<'t>(text: &'t str, names: &[&str], length: NameLength) -> Option<(u32, &'t str)> {
    names.iter().zip(0..).find_map(|(name, place)| {
        let name = match length {
            NameLength::Short => &name[..3],
            NameLength::Full => name,
        };
        let (found, rest) = text.split_at_checked(name.len())?;
        found.eq_ignore_ascii_case(name).then_some((place, rest))
    })
}

fn offset(text: &str, has_colon: bool, minutes: Minutes, allows_z: bool) -> Option<(i32, &str)> {
    if allows_z && let Some(rest) = text.strip_prefix('Z') {
        return Some((0, rest));
    }
    let (sign, rest) = match text.as_bytes().first()? {
        b'+' => (1, &text[1..]),
        b'-' => (-1, &text[1..]),
        _ => return None,
    };
    let (hours, rest) = number(rest, 2, 2)?;
    let behind_colon = match has_colon {
        true => rest.strip_prefix(':'),
        false => Some(rest),
    };
    let (minute, rest) = match (behind_colon.and_then(|rest| number(rest, 2, 2)), minutes) {
        (Some((minute, rest)), _) => (minute, rest),
        (None, Minutes::Optional) => (0, rest),
        (None, Minutes::Needed) => return None,
    };
    let seconds = i32::try_from(hours * 3600 + minute * 60).ok()?;
    (hours < 24 && minute < 60).then_some((sign * seconds, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pattern: &str, text: &str) -> Option<TimeParts> {
        TimePattern::parse(pattern).unwrap().read(text)
    }

    fn day(year: u32, month: u32, day: u32) -> TimeParts {
        TimeParts {
            year: Some(year),
            month: Some(month),
            day: Some(day),
            ..TimeParts::default()
        }
    }

    #[test]
    fn patterns_that_mean_nothing_or_no_date_are_refused() {
        for pattern in [
            "",
            "yyyy-MM",
            "HH:mm",
            "yyyy-MM-ddTHH:mm",
            "yyy-MM-dd",
            "yyyy-MM-dd'T",
            "yyyy-MM-dd[",
            "yyyy-MM-dd]",
            "yyyy-MM-dd hh:mm",
            "yyyy-MM-dd HH:mm a",
            "yyyy-MM-dd VV",
            "yyyy-MM-dd z",
            "yyyy-MM-dd SSSSSSSSSS",
            "[yyyy-MM-dd]",
            "yyyy-MM-dd#",
            "YYYY-MM-dd",
            "yyyy-DDD",
            "yyyy-MM-dd[ hh:mm]",
        ] {
            assert_eq!(TimePattern::parse(pattern), None, "{pattern}");
        }
        let deep = "yyyy-MM-dd".to_string() + &"[".repeat(5000);
        assert_eq!(TimePattern::parse(&deep), None);
        let many = "yyyy-MM-dd".to_string() + &"[x]".repeat(5000);
        assert_eq!(TimePattern::parse(&many), None);
    }

    #[test]
    fn texts_that_are_not_as_the_pattern_says_are_no_times() {
        for (pattern, text) in [
            ("yyyy-MM-dd", "24-03-01"),
            ("yyyy-MM-dd", "2024-3-1"),
            ("yyyy-MM-dd", "2024-03-01 "),
            ("yyyy-MM-dd", " 2024-03-01"),
            ("yyyy-MM-dd", "+2024-03-01"),
            ("yyyy-MM-dd", "2024-03-\u{661}1"),
            ("yyyy-MM-dd[ HH:mm]", "2024-03-01 10:"),
            ("yyyy-MM-dd XXX", "2024-03-01 +0200"),
            ("yyyy-MM-dd XXX", "2024-03-01 +02:60"),
            ("yyyy-MM-dd x", "2024-03-01 Z"),
            ("dd MMM yyyy", "01 Mrz 2024"),
            ("dd MMM yyyy", "01 March 2024"),
            ("yyyy-MM-dd d", "2024-03-01 2"),
            ("yyyy-MM-dd hh a", "2024-03-01 10 xm"),
            ("yyyy-MM-dd", ""),
        ] {
            assert_eq!(read(pattern, text), None, "{pattern}: {text}");
        }
    }

    #[test]
    fn texts_are_read_part_by_part() {
        let date = day(2024, 3, 1);
        for (pattern, text) in [
            ("yyyy-MM-dd", "2024-03-01"),
            ("d.M.yyyy", "1.3.2024"),
            ("d.M.yyyy", "01.03.2024"),
            ("yyyyMMdd", "20240301"),
            ("dd/MM/yy", "01/03/24"),
            ("d MMMM uuuu", "1 march 2024"),
            ("'day' d 'o''clock' LLL yyyy", "day 1 o'clock MAR 2024"),
            ("yyyy-MM-dd[ HH:mm]", "2024-03-01"),
        ] {
            assert_eq!(read(pattern, text), Some(date), "{pattern}: {text}");
        }
        let time = TimeParts {
            hour: Some(10),
            minute: Some(5),
            second: Some(9),
            ..date
        };
        let spark = "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]";
        assert_eq!(read(spark, "2024-03-01T10:05:09"), Some(time));
        let parts = |nanosecond, offset| TimeParts {
            nanosecond,
            offset,
            ..time
        };
        let half = parts(Some(500_000_000), Some(-19_800));
        assert_eq!(read(spark, "2024-03-01T10:05:09.5-05:30"), Some(half));
        assert_eq!(
            read(spark, "2024-03-01T10:05:09Z"),
            Some(parts(None, Some(0)))
        );
        for (letters, text, offset) in [
            ("X", "+02", 7200),
            ("X", "+0230", 9000),
            ("XX", "+0230", 9000),
            ("Z", "-0200", -7200),
            ("ZZZZZ", "Z", 0),
            ("xxx", "+00:00", 0),
        ] {
            let found = read(
                &format!("yyyy-MM-dd{letters}"),
                &format!("2024-03-01{text}"),
            );
            assert_eq!(
                found.and_then(|p| p.offset),
                Some(offset),
                "{letters}: {text}"
            );
        }
        let evening = read("EEE, yyyy-MM-dd hh:mm a", "Fri, 2024-03-01 11:30 pm").unwrap();
        assert_eq!(
            (evening.hour_of_half, evening.is_afternoon, evening.weekday),
            (Some(11), Some(true), Some(4))
        );
        let nested = "yyyy-MM-dd[ HH:mm[:ss]]X";
        assert_eq!(
            read(nested, "2024-03-01 10:05:09Z"),
            Some(parts(None, Some(0)))
        );
        assert_eq!(
            read("yyyy-MM-dd'Z'", "2024-03-01Z").unwrap().offset,
            Some(0)
        );
    }
}
