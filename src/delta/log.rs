//! The files of a `_delta_log` folder: is there a table, is its newest entry whole, which checkpoints can be used.
//!
//! The readers of the library take an empty entry for an empty commit and give up on a lost checkpoint. Here
//! the log is looked at first: damage is named, never read as "nothing there". What the entries mean is left to
//! `state`.

use super::durable_store::sync_folder;
use crate::change::Version;
use crate::error::{Error, Result};
use parquet::file::metadata::ParquetMetaDataReader;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The folder of the log.
pub(super) const LOG: &str = "_delta_log";
const HINT: &str = "_last_checkpoint";
/// The key in `commitInfo` under which our commits say how many lines they have.
pub(super) const LINES: &str = "landfallLines";

/// What the folder of the log holds.
#[derive(Debug, Default)]
pub(super) struct LogListing {
    /// Entries by version, with their size.
    pub(super) entries: BTreeMap<i64, (PathBuf, u64)>,
    /// Checkpoint files by version.
    pub(super) checkpoints: BTreeMap<i64, Vec<PathBuf>>,
    /// The hint at the newest checkpoint.
    pub(super) hint: Option<PathBuf>,
}

/// A log of more entries than this is read from its checkpoint.
const SHORT_LOG_ENTRIES: usize = 300;

impl LogListing {
    /// Whether every entry from version 0 on is there, and they are few.
    pub(super) fn reaches_back_to_the_start(&self) -> bool {
        let last = self.entries.keys().next_back();
        let count = self.entries.len();
        count <= SHORT_LOG_ENTRIES && last.is_some_and(|last| i64::try_from(count) == Ok(last + 1))
    }
}

/// What can be trusted of a listing.
#[derive(Debug, Default)]
pub(super) struct UsableLog {
    /// Damaged or misleading files that a reader must not see.
    pub(super) hide: Vec<PathBuf>,
    /// The version of the newest whole checkpoint.
    pub(super) checkpoint: Option<i64>,
}

/// What was done about a damaged newest log entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TailRepair {
    /// The version whose entry was damaged; the table is at the one before now.
    pub removed: Version,
    /// Where the damaged entry is kept.
    pub kept_as: PathBuf,
    /// What was wrong with it.
    pub damage: String,
}

/// Takes a damaged newest log entry (empty or torn by a power cut, never confirmed) out of the log; `None` if it is whole.
///
/// The caller holds the lock on the table. The entry is kept beside under a hidden name. Damage anywhere else is an error.
/// A table whose only entry is damaged is left without a table: creating it again is safe.
pub fn repair_tail(root: &Path) -> Result<Option<TailRepair>> {
    let listing = list(root)?;
    let Some((version, path, damage)) = damaged_tail(&listing)? else {
        return Ok(None);
    };
    if let Some((newer, _)) = listing.checkpoints.range(version..).next_back() {
        return Err(Error::disagreement(format!(
            "table {}: log entry of version {version} is damaged ({damage}) although the log checkpoint of version {newer} confirms it",
            root.display()
        ))
        .hint("give the entry back from a backup"));
    }
    let folder = root.join(LOG);
    let kept_as = unused_name(&folder, &format!(".landfall-damaged-{version:020}.json"));
    std::fs::rename(&path, &kept_as)
        .and_then(|()| sync_folder(&folder))
        .map_err(|error| unavailable(&path, &error))?;
    let removed = Version(version);
    Ok(Some(TailRepair {
        removed,
        kept_as,
        damage,
    }))
}

/// Puts damaged checkpoint files aside, so that new ones can take their names.
pub(super) fn set_aside(files: &[PathBuf]) -> Result<()> {
    for path in files.iter().filter(|path| path.exists()) {
        let Some((folder, name)) = path.parent().zip(path.file_name()) else {
            continue;
        };
        let kept = unused_name(
            folder,
            &format!(".landfall-damaged-{}", name.to_string_lossy()),
        );
        std::fs::rename(path, kept)
            .and_then(|()| sync_folder(folder))
            .map_err(|error| unavailable(path, &error))?;
    }
    Ok(())
}

fn unused_name(folder: &Path, name: &str) -> PathBuf {
    let first = folder.join(name);
    let others = (2..).map(|n: u64| folder.join(format!("{name}.{n}")));
    std::iter::once(first)
        .chain(others)
        .find(|path| !path.exists())
        .unwrap_or_default()
}

/// Lists the log of `root`; empty if the folder is certainly absent or empty.
pub(super) fn list(root: &Path) -> Result<LogListing> {
    let folder = root.join(LOG);
    let mut listing = LogListing::default();
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(listing),
        Err(error) => return Err(unavailable(&folder, &error)),
    };
    for entry in entries {
        let entry = entry.map_err(|error| unavailable(&folder, &error))?;
        let (path, name) = (entry.path(), entry.file_name());
        let Some(name) = name.to_str() else { continue };
        if name == HINT {
            listing.hint = Some(path);
        } else if let Some(version) = checkpoint_version(name) {
            listing.checkpoints.entry(version).or_default().push(path);
        } else if let Some(version) = entry_version(name) {
            let size = entry
                .metadata()
                .map_err(|error| unavailable(&path, &error))?
                .len();
            listing.entries.insert(version, (path, size));
        }
    }
    Ok(listing)
}

fn version_of(digits: &str) -> Option<i64> {
    let all_digits = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| digits.parse().ok()).flatten()
}

fn entry_version(name: &str) -> Option<i64> {
    version_of(name.strip_suffix(".json")?)
}

fn checkpoint_version(name: &str) -> Option<i64> {
    let (digits, rest) = name.split_once('.')?;
    let whole =
        rest.starts_with("checkpoint.") && (rest.ends_with("parquet") || rest.ends_with("json"));
    whole.then(|| version_of(digits)).flatten()
}

/// Fails if the folder holds data files although it has no log: a table may have been there.
pub(super) fn certainly_no_table(root: &Path) -> Result<()> {
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(unavailable(&folder, &error)),
        };
        for entry in entries {
            let entry = entry.map_err(|error| unavailable(&folder, &error))?;
            let kind = entry
                .file_type()
                .map_err(|error| unavailable(&entry.path(), &error))?;
            let path = entry.path();
            if kind.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|end| end == "parquet" || end == "bin")
            {
                return Err(Error::disagreement(format!(
                    "table {} has data files but no log: {}",
                    root.display(),
                    path.display()
                ))
                .hint("give back its _delta_log, or choose an empty folder"));
            }
        }
    }
    Ok(())
}

fn damaged_tail(listing: &LogListing) -> Result<Option<(i64, PathBuf, String)>> {
    let Some((version, (path, _))) = listing.entries.last_key_value() else {
        return Ok(None);
    };
    let bytes = std::fs::read(path).map_err(|error| unavailable(path, &error))?;
    Ok(damage_of(&bytes).map(|damage| (*version, path.clone(), damage)))
}

/// What is wrong with the bytes of an entry; `None` if they are whole.
fn damage_of(bytes: &[u8]) -> Option<String> {
    if bytes.is_empty() {
        return Some("it is empty".into());
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Some("it is not UTF-8".into());
    };
    let (mut count, mut promised) = (0, None);
    for (index, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let Ok(Value::Object(action)) = serde_json::from_str::<Value>(line) else {
            return Some(format!("line {} is torn", index + 1));
        };
        count += 1;
        let info = action.get("commitInfo").and_then(|info| info.get(LINES));
        promised = promised.or(info.and_then(Value::as_u64));
    }
    match promised {
        _ if count == 0 => Some("it has no action".into()),
        Some(promised) if promised != count => Some(format!("it has {count} of {promised} lines")),
        Some(_) | None => None,
    }
}

/// Checks that the newest entry is whole and that an unbroken run of entries leads to it from a usable checkpoint or version 0.
///
/// The names to hide are a hint that leads astray and checkpoints that cannot be read.
pub(super) fn inspect(root: &Path, listing: &LogListing) -> Result<UsableLog> {
    if let Some((version, _, damage)) = damaged_tail(listing)? {
        return Err(Error::disagreement(format!(
            "table {}: the newest log entry (version {version}) is damaged: {damage}",
            root.display()
        ))
        .hint("a power cut does this to an entry that was never confirmed; the next run takes it out and loads again"));
    }
    let mut usable = UsableLog::default();
    let mut start = None;
    for (version, files) in listing.checkpoints.iter().rev() {
        if is_whole(files) {
            start = Some(*version);
            break;
        }
        usable.hide.extend(files.iter().cloned());
    }
    if let Some(hint) = listing
        .hint
        .as_ref()
        .filter(|hint| hinted_version(hint) != start || !usable.hide.is_empty())
    {
        usable.hide.push(hint.clone());
    }
    check_run(root, listing, start, &usable)?;
    usable.checkpoint = start;
    Ok(usable)
}

/// Every entry behind `start` must be there and not empty.
fn check_run(
    root: &Path,
    listing: &LogListing,
    start: Option<i64>,
    usable: &UsableLog,
) -> Result<()> {
    let first = start.map_or(0, |version| version + 1);
    let newest = listing
        .entries
        .keys()
        .next_back()
        .copied()
        .or(start)
        .unwrap_or(0);
    let lost: BTreeSet<i64> = (first..=newest)
        .filter(|version| {
            listing
                .entries
                .get(version)
                .is_none_or(|(_, size)| *size == 0)
        })
        .take(1)
        .collect();
    let Some(lost) = lost.first() else {
        return Ok(());
    };
    let because = match usable
        .hide
        .iter()
        .find(|path| path.extension().is_some_and(|end| end == "parquet"))
    {
        Some(damaged) => format!(", and the checkpoint {} is damaged", damaged.display()),
        None => String::new(),
    };
    Err(Error::disagreement(format!(
        "table {}: log entry of version {lost} is missing or empty{because}",
        root.display()
    ))
    .hint("give the file back from a backup; nothing was changed"))
}

fn hinted_version(hint: &Path) -> Option<i64> {
    let text = std::fs::read(hint).ok()?;
    let hint: Value = serde_json::from_slice(&text).ok()?;
    hint.get("version")?.as_i64()
}

/// Whether all files of a checkpoint are there and end as they should.
pub(super) fn is_whole(files: &[PathBuf]) -> bool {
    files.iter().all(|path| {
        if path.extension().is_some_and(|end| end == "json") {
            return std::fs::read(path).is_ok_and(|bytes| damage_of(&bytes).is_none());
        }
        File::open(path)
            .is_ok_and(|file| ParquetMetaDataReader::new().parse_and_finish(&file).is_ok())
    }) && parts_are_complete(files)
}

/// A checkpoint in parts (`<version>.checkpoint.<part>.<parts>.parquet`) needs every part.
fn parts_are_complete(files: &[PathBuf]) -> bool {
    let parts = files.iter().find_map(|path| {
        let name = path.file_name()?.to_str()?;
        let fields: Vec<&str> = name.split('.').collect();
        let [_, "checkpoint", _, parts, "parquet"] = fields[..] else {
            return None;
        };
        parts.parse::<usize>().ok()
    });
    parts.is_none_or(|parts| files.len() >= parts)
}

pub(super) fn unavailable(path: &Path, error: &std::io::Error) -> Error {
    Error::unavailable(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_with(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(LOG)).unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(LOG).join(name), text).unwrap();
        }
        folder
    }

    const ZERO: &str = "00000000000000000000.json";
    const ONE: &str = "00000000000000000001.json";
    const TWO: &str = "00000000000000000002.json";

    #[test]
    fn empty_torn_and_short_tails_are_damage() {
        assert!(damage_of(b"").is_some());
        assert!(damage_of(b"\n").is_some());
        assert!(damage_of(b"{\"commitInfo\":{}}\n{\"add\":{\"pa").is_some());
        assert!(damage_of(&[0; 64]).is_some());
        assert!(damage_of(b"{\"commitInfo\":{\"landfallLines\":2}}").is_some());
        assert_eq!(
            damage_of(b"{\"commitInfo\":{\"landfallLines\":2}}\n{\"txn\":{}}"),
            None
        );
    }

    #[test]
    fn damaged_tail_is_named_and_repair_keeps_a_copy() {
        let folder = log_with(&[(ZERO, "{\"protocol\":{}}"), (ONE, "")]);
        let listing = list(folder.path()).unwrap();
        let error = inspect(folder.path(), &listing).unwrap_err();
        assert!(error.message().contains("version 1"), "{error}");
        let repair = repair_tail(folder.path()).unwrap().unwrap();
        assert_eq!(repair.removed, Version(1));
        assert!(repair.kept_as.exists());
        assert_eq!(repair_tail(folder.path()).unwrap(), None);
        assert!(inspect(folder.path(), &list(folder.path()).unwrap()).is_ok());
    }

    #[test]
    fn damaged_entry_that_a_checkpoint_confirms_is_not_taken_out() {
        let checkpoint = "00000000000000000001.checkpoint.parquet";
        let folder = log_with(&[(ZERO, "{}"), (ONE, ""), (checkpoint, "PAR1")]);
        assert!(repair_tail(folder.path()).is_err());
        assert!(folder.path().join(LOG).join(ONE).exists());
    }

    #[test]
    fn hole_or_empty_entry_in_the_middle_stops() {
        let hole = log_with(&[(ZERO, "{}"), (TWO, "{}")]);
        assert!(inspect(hole.path(), &list(hole.path()).unwrap()).is_err());
        let empty = log_with(&[(ZERO, "{}"), (ONE, ""), (TWO, "{}")]);
        let error = inspect(empty.path(), &list(empty.path()).unwrap()).unwrap_err();
        assert!(error.message().contains("version 1"), "{error}");
        assert_eq!(
            repair_tail(empty.path()).unwrap(),
            None,
            "the middle is not repaired"
        );
    }

    #[test]
    fn damaged_checkpoint_is_hidden_if_the_entries_suffice() {
        let checkpoint = "00000000000000000001.checkpoint.parquet";
        let files = [
            (ZERO, "{}"),
            (ONE, "{}"),
            (checkpoint, "PAR1"),
            (HINT, "{\"version\":1}"),
        ];
        let folder = log_with(&files);
        let usable = inspect(folder.path(), &list(folder.path()).unwrap()).unwrap();
        assert_eq!(usable.hide.len(), 2, "{usable:?}");
        std::fs::remove_file(folder.path().join(LOG).join(ZERO)).unwrap();
        let error = inspect(folder.path(), &list(folder.path()).unwrap()).unwrap_err();
        assert!(error.message().contains("checkpoint"), "{error}");
    }

    #[test]
    fn data_files_without_a_log_are_doubtful() {
        let folder = tempfile::tempdir().unwrap();
        assert!(certainly_no_table(folder.path()).is_ok());
        assert!(certainly_no_table(&folder.path().join("absent")).is_ok());
        std::fs::create_dir(folder.path().join("p=1")).unwrap();
        std::fs::write(folder.path().join("p=1/part-0.parquet"), "x").unwrap();
        assert!(certainly_no_table(folder.path()).is_err());
    }
}
