//! The version of a snapshot, told by the name of its file.

use crate::change::SNAPSHOT_VERSION;
use crate::schema::TableSchema;
use crate::settings::{SnapshotVersion, SourceSettings};

/// The column for the version of a snapshot, and the version by the name of the file, where that counts.
pub(super) fn snapshot_of(
    path: &str,
    schema: &TableSchema,
    settings: &SourceSettings,
) -> Option<(usize, i64)> {
    if settings.snapshot_version != SnapshotVersion::FileName {
        return None;
    }
    let index = schema.columns.index_of(SNAPSHOT_VERSION).ok()?;
    Some((index, snapshot_version(path)?))
}

/// The version of a snapshot by the name of its file: the last number before the first dot, or the last date or time of
/// padded parts, whose digits count as one number. Other numbers that stand side by side tell none: which one counts would
/// be a guess.
pub(in crate::decode) fn snapshot_version(path: &str) -> Option<i64> {
    /// Lengths of the parts of a date, a time, or both.
    const TIMES: [&[usize]; 6] = [
        &[4, 2, 2],
        &[4, 2, 2, 2, 2],
        &[4, 2, 2, 2, 2, 2],
        &[4, 2, 2, 6],
        &[8, 4],
        &[8, 6],
    ];
    let name = path.rsplit('/').next()?;
    let stem = name.split('.').next()?;
    let end = stem.bytes().rposition(|byte| byte.is_ascii_digit())? + 1;
    let is_part = |byte: &&u8| byte.is_ascii_digit() || b"-_:T".contains(byte);
    let length = stem.as_bytes()[..end].iter().rev().take_while(is_part);
    let run = stem[end - length.count()..end].trim_start_matches(['-', '_', ':', 'T']);
    let parts: Vec<&str> = run.split(['-', '_', ':', 'T']).collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    let times = TIMES.iter().filter(|time| lengths.ends_with(time));
    let last = match times.map(|time| time.len()).max() {
        Some(count) => &parts[parts.len() - count..],
        None if parts.len() == 1 => &parts[..],
        None => return None,
    };
    last.concat().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::snapshot_version;

    #[test]
    fn numbers_side_by_side_that_are_no_date_or_time_tell_no_version() {
        for name in [
            "users-2024-9-30.json",
            "v1-10.csv",
            "a-99999999999999999999.csv",
            "none.csv",
        ] {
            assert_eq!(snapshot_version(name), None, "{name}");
        }
    }

    #[test]
    fn last_number_date_or_time_of_the_name_is_the_version() {
        let versions = [
            ("dump_7.csv", 7),
            ("2023/part3.v12.jsonl.gz", 3),
            ("users-2024-01-31.csv", 20_240_131),
            ("users_20240131.csv", 20_240_131),
            ("users_20240131_235959.csv", 20_240_131_235_959),
            ("users_2024-01-31T23:59:59.csv", 20_240_131_235_959),
            ("t2_2024-01-31_23-59.csv", 202_401_312_359),
        ];
        for (name, version) in versions {
            assert_eq!(snapshot_version(name), Some(version), "{name}");
        }
    }
}
