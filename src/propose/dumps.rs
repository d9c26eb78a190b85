//! Tells whether the files may be whole tables, each of the date in its name.
//!
//! Records alone cannot tell a dump from changes, so this is never more than a comment.

use super::sample::Sample;
use super::write::{self, Line, shown};
use std::collections::BTreeSet;

/// The setting that makes a snapshot of each file, where every name ends with a date of its own and there are several.
///
/// It says nothing where a column tells an operation or an order: ask only where none does.
pub(super) fn line(sample: &Sample) -> Option<Line> {
    let dates = sample.files.iter().map(|file| date_of(&file.path));
    let dates: BTreeSet<String> = dates.collect::<Option<_>>()?;
    let first = sample.files.first().filter(|_| dates.len() > 1)?;
    if dates.len() < sample.files.len() {
        return None;
    }
    let why = format!(
        "guess: each name ends with a date, such as {}, and no column tells an operation or an order; if each file is the whole table of its date, set this, and no sequence_by",
        shown(&first.path)
    );
    Some(Line::open(
        "snapshot_version",
        write::text("file_name"),
        why,
    ))
}

/// The digits of the date (`2024-01-31`, `2024_01_31`, `20240131`) behind which no other number stands in the name, before
/// its first dot.
fn date_of(path: &str) -> Option<String> {
    let name = path.rsplit('/').next()?;
    let stem = name.split('.').next()?;
    let stem = stem.trim_end_matches(|c: char| !c.is_ascii_digit());
    let is_part = |c: &char| c.is_ascii_digit() || matches!(c, '-' | '_');
    let run: Vec<char> = stem.chars().rev().take_while(is_part).collect();
    let run: String = run.into_iter().rev().collect();
    let run = run.trim_start_matches(['-', '_']);
    let parts: Vec<usize> = run.split(['-', '_']).map(str::len).collect();
    if parts != [8] && parts != [4, 2, 2] {
        return None;
    }
    let digits: String = run.chars().filter(char::is_ascii_digit).collect();
    let number = |range: std::ops::Range<usize>| digits[range].parse::<u32>().ok();
    let (year, month, day) = (number(0..4)?, number(4..6)?, number(6..8)?);
    let is_date =
        (1900..2200).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    is_date.then_some(digits)
}

#[cfg(test)]
mod tests {
    use super::date_of;

    #[test]
    fn number_that_is_no_date_or_stands_before_another_tells_none() {
        for name in [
            "users.csv",
            "users-7.csv",
            "users-20241301.csv",
            "users-2024-01-31-part2.csv",
            "users_20240131_235959.csv",
            "x2024013.csv",
        ] {
            assert_eq!(date_of(name), None, "{name}");
        }
    }

    #[test]
    fn date_at_the_end_of_the_name_is_found() {
        for name in [
            "users-2024-01-31.csv",
            "a/20240131.json",
            "u_2024_01_31_full.csv.gz",
        ] {
            assert_eq!(date_of(name).as_deref(), Some("20240131"), "{name}");
        }
    }
}
