//! What a listing means for the ledger: one merge of two sorted lists, no query per file, no write when nothing changed.
//!
//! Identity is the path. Neither inode nor order of names or times decides whether a file is new. A file that was loaded
//! is never forgotten, whether it is there or not.

use super::files::{free_duplicates, state_of};
use super::lock::iso;
use super::record::{REMARK_EXISTED_BEFORE, REMARK_OVERWRITE_IGNORED};
use super::{CheckpointStore, FileEvent, FileRecord, FileState, Reconciled, stored};
use crate::change::ParkReason;
use crate::clock::Micros;
use crate::error::{Error, Result};
use crate::landing::{LandingFile, Listing};
use crate::plural::counted;
use crate::settings::AllowOverwrites;
use rusqlite::{Connection, Row, Transaction};

const SELECT_LEDGER: &str = "
    SELECT path, state, size, modified_at, changed_at, reason, next_try_at IS NOT NULL FROM files ORDER BY path";

const INSERT_PENDING: &str = "
    INSERT INTO files (path, state, size, modified_at, changed_at, discovered_at)
    VALUES (?1, 'pending', ?2, ?3, ?4, ?5)";
const INSERT_EXISTED: &str = "
    INSERT INTO files (path, state, size, modified_at, changed_at, discovered_at, loaded_at, loaded_size,
        loaded_modified_at, reason, detail)
    VALUES (?1, 'loaded', ?2, ?3, ?4, ?5, ?5, ?2, ?3, ?6, 'existed before the first start')";
const UPDATE_RETRY: &str = "
    UPDATE files
    SET state = ?2, size = ?3, modified_at = ?4, changed_at = ?5, attempts = 0, next_try_at = NULL, reason = NULL,
        detail = NULL
    WHERE path = ?1";
/// Nothing of it was ever loaded.
const UPDATE_UPLOADED: &str = "
    UPDATE files
    SET state = ?2, size = ?3, modified_at = ?4, changed_at = ?5, attempts = 0, next_try_at = NULL, reason = NULL,
        detail = NULL, loaded_at = NULL, loaded_size = NULL, loaded_modified_at = NULL
    WHERE path = ?1";
const UPDATE_VANISHED: &str = "
    UPDATE files SET state = ?2, next_try_at = NULL, reason = 'vanished', detail = ?3 WHERE path = ?1";
const UPDATE_IGNORED: &str = "
    UPDATE files
    SET state = ?2, size = ?3, modified_at = ?4, changed_at = ?5, next_try_at = NULL, reason = ?6, detail = ?7
    WHERE path = ?1";
/// Other remarks on a loaded file stay true.
const UPDATE_RESTORED: &str = "
    UPDATE files
    SET state = ?2, size = ?3, modified_at = ?4, changed_at = ?5, next_try_at = NULL,
        reason = CASE WHEN state = 'loaded' AND reason <> ?6 THEN reason END,
        detail = CASE WHEN state = 'loaded' AND reason <> ?6 THEN detail END
    WHERE path = ?1";
const UPDATE_CHANGED: &str = "
    UPDATE files
    SET state = ?2, size = ?3, modified_at = ?4, changed_at = ?5, attempts = 0, next_try_at = NULL,
        reason = 'changed_after_load', detail = ?6
    WHERE path = ?1";
const UPDATE_REPLACE: &str = "
    UPDATE files
    SET state = ?2, size = ?3, modified_at = ?4, changed_at = ?5, attempts = 0, next_try_at = NULL, reason = NULL,
        detail = NULL, replaces = 1
    WHERE path = ?1";

impl CheckpointStore {
    /// Compares a listing with the ledger and records what is new, changed, back or gone.
    ///
    /// - Unknown: pending; with `include_existing_files = false` and in the first reconcile of a checkpoint: loaded with
    ///   no rows, and never looked at again unless it changes.
    /// - Pending or parked with another size or time: pending, attempts start again. Parked and the same: stays.
    /// - Left out at the first start, and now of another size or time: pending, as a new upload under its name.
    /// - Loaded with another size or time, be it the change time of its inode only: left to the caller, who compares the
    ///   content; not looked at under `ignore`. So is a cleaned file whose name is back, and a file parked as
    ///   `changed_after_load` that changed again.
    /// - Not there, and not below a folder that could not be listed: a file that waits is parked as `vanished` until it
    ///   is back; loaded and cleaned ones stay what they are.
    /// - Planned: untouched; reading it finds out.
    ///
    /// If the program stops inside, all of it is recorded or nothing. A power cut may take back that files are new.
    pub fn reconcile(
        &mut self,
        listing: &Listing,
        allow_overwrites: AllowOverwrites,
        include_existing_files: bool,
        now: Micros,
    ) -> Result<Reconciled> {
        let compared = self.compare(listing, allow_overwrites, include_existing_files)?;
        self.record(&compared, now)?;
        Ok(compared.reconciled)
    }

    /// Compares a listing with the ledger, as [`CheckpointStore::reconcile`] does, and records nothing.
    pub fn compare<'a>(
        &self,
        listing: &'a Listing,
        allow_overwrites: AllowOverwrites,
        include_existing_files: bool,
    ) -> Result<Compared<'a>> {
        let is_first = self.read(is_first_listing)?;
        let mut compared =
            self.read(|connection| compare(connection, listing, allow_overwrites))?;
        compared.is_first = is_first;
        if is_first && !include_existing_files {
            compared.existed_before = true;
            compared.reconciled.new = 0;
            compared.reconciled.waiting.clear();
        }
        Ok(compared)
    }

    /// Records what [`CheckpointStore::compare`] found, after which nothing else was written.
    pub fn record(&mut self, compared: &Compared<'_>, now: Micros) -> Result<()> {
        let Compared {
            changes, is_first, ..
        } = compared;
        if !is_first && changes.is_empty() {
            return Ok(());
        }
        let is_found_again = |change: &Change<'_>| matches!(change, Change::New(_));
        let record = |transaction: &Transaction<'_>| {
            for change in changes {
                record_change(transaction, change, compared.existed_before, now)?;
            }
            transaction.execute("UPDATE meta SET first_listing_done = 1", [])?;
            Ok(())
        };
        match !is_first && changes.iter().all(is_found_again) {
            true => self.write_unsynced(record),
            false => self.write(record),
        }
    }

    /// The content is the one that was loaded: the file is loaded (again), and no fault. For `Reconciled::to_rehash`.
    pub fn confirm_touched(&mut self, file: &LandingFile) -> Result<()> {
        self.write(|transaction| {
            let state = state_of(transaction, &file.path)?.next(FileEvent::Restore)?;
            let (size, modified_at) = (stored(file.size), file.modified_at);
            transaction.prepare_cached(UPDATE_RESTORED)?.execute((
                &file.path,
                state.as_str(),
                size,
                modified_at,
                file.changed_at,
                REMARK_OVERWRITE_IGNORED,
            ))?;
            Ok(())
        })
    }

    /// The content is not the one that was loaded. Returns what it is now: `park` parks it as `changed_after_load` and
    /// names both sizes, `ignore` keeps it loaded, `replace` makes it pending in the place of its earlier rows, and with it
    /// the files that were skipped as its duplicates.
    pub fn confirm_changed(
        &mut self,
        file: &LandingFile,
        allow_overwrites: AllowOverwrites,
    ) -> Result<FileState> {
        let Some(record) = self.file(&file.path)? else {
            return Err(Error::bug(format!(
                "file {} is not in the checkpoint",
                file.path
            )));
        };
        let (size, modified_at) = (stored(file.size), file.modified_at);
        let event = match allow_overwrites {
            AllowOverwrites::Park => FileEvent::Park,
            AllowOverwrites::Ignore => FileEvent::Restore,
            AllowOverwrites::Replace => FileEvent::Retry,
        };
        let state = record.state.next(event)?;
        self.write(|transaction| {
            match allow_overwrites {
                AllowOverwrites::Park => {
                    let detail = changed_detail(&record, file);
                    transaction.prepare_cached(UPDATE_CHANGED)?.execute((
                        &file.path,
                        state.as_str(),
                        size,
                        modified_at,
                        file.changed_at,
                        detail,
                    ))?;
                }
                AllowOverwrites::Ignore => ignore_overwrite(transaction, state, file)?,
                AllowOverwrites::Replace => {
                    free_duplicates(transaction, &file.path)?;
                    transaction.prepare_cached(UPDATE_REPLACE)?.execute((
                        &file.path,
                        state.as_str(),
                        size,
                        modified_at,
                        file.changed_at,
                    ))?;
                }
            }
            Ok(state)
        })
    }
}

/// A change that the ledger needs.
enum Change<'a> {
    New(&'a LandingFile),
    Retry(FileState, &'a LandingFile),
    Vanish(FileState, String),
    Seen(&'a LandingFile),
}

/// What a listing says about the ledger.
pub struct Compared<'a> {
    /// For the caller.
    pub reconciled: Reconciled,
    changes: Vec<Change<'a>>,
    /// No listing was recorded before.
    is_first: bool,
    /// Files that are not known are not to be loaded.
    existed_before: bool,
}

/// One row of the ledger, as far as a listing can touch it.
struct Known<'a> {
    path: &'a str,
    state: FileState,
    size: i64,
    modified_at: Micros,
    changed_at: Option<Micros>,
    reason: Option<&'a str>,
    retries: bool,
}

/// What the listing says about one known file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Nothing,
    Waits,
    Changed,
    Returned,
    Vanished,
    Rehash,
    Seen,
}

fn compare<'a>(
    connection: &Connection,
    listing: &'a Listing,
    allow_overwrites: AllowOverwrites,
) -> Result<Compared<'a>> {
    if !listing
        .files
        .is_sorted_by(|left, right| left.path < right.path)
    {
        return Err(Error::bug("a listing is not sorted by path"));
    }
    let mut compared = Compared {
        reconciled: Reconciled::default(),
        changes: Vec::new(),
        is_first: false,
        existed_before: false,
    };
    let mut listed = listing.files.iter().peekable();
    let mut statement = connection.prepare_cached(SELECT_LEDGER)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let known = Known::read(row)?;
        while let Some(file) = listed.next_if(|file| file.path.as_str() < known.path) {
            compared.add_new(file);
        }
        let file = listed.next_if(|file| file.path == known.path);
        if file.is_none() && is_unknown(listing, known.path) {
            continue;
        }
        compared.add_known(&known, file, allow_overwrites);
    }
    listed.for_each(|file| compared.add_new(file));
    Ok(compared)
}

impl<'a> Compared<'a> {
    fn add_new(&mut self, file: &'a LandingFile) {
        self.reconciled.new += 1;
        self.reconciled.waiting.push(file.clone());
        self.changes.push(Change::New(file));
    }

    fn add_known(
        &mut self,
        known: &Known<'_>,
        file: Option<&'a LandingFile>,
        overwrites: AllowOverwrites,
    ) {
        let reconciled = &mut self.reconciled;
        let path = || known.path.to_owned();
        match (verdict(known, file, overwrites), file) {
            (Verdict::Vanished, _) => {
                reconciled.vanished.push(path());
                self.changes.push(Change::Vanish(known.state, path()));
            }
            (Verdict::Nothing, _) | (_, None) => {}
            (Verdict::Waits, Some(file)) => reconciled.waiting.push(file.clone()),
            (Verdict::Rehash, Some(file)) => reconciled.to_rehash.push(file.clone()),
            (Verdict::Seen, Some(file)) => self.changes.push(Change::Seen(file)),
            (verdict @ (Verdict::Changed | Verdict::Returned), Some(file)) => {
                let names = if verdict == Verdict::Changed {
                    &mut reconciled.changed
                } else {
                    &mut reconciled.returned
                };
                names.push(path());
                reconciled.waiting.push(file.clone());
                self.changes.push(Change::Retry(known.state, file));
            }
        }
    }
}

fn verdict(known: &Known<'_>, file: Option<&LandingFile>, overwrites: AllowOverwrites) -> Verdict {
    let is_parked_as = |reason: ParkReason| known.reason == Some(reason.as_str());
    let Some(file) = file else {
        return match known.state {
            FileState::Pending => Verdict::Vanished,
            FileState::Parked if known.retries => Verdict::Vanished,
            FileState::Parked | FileState::Planned | FileState::Loaded | FileState::Cleaned => {
                Verdict::Nothing
            }
        };
    };
    let same_bytes = known.size == stored(file.size) && known.modified_at == file.modified_at;
    // Size and time can be set back, the change time of the inode cannot.
    let same = same_bytes && known.changed_at.is_none_or(|at| at == file.changed_at);
    match known.state {
        FileState::Planned => Verdict::Nothing,
        FileState::Pending if same_bytes => Verdict::Waits,
        FileState::Pending => Verdict::Changed,
        FileState::Loaded if same => Verdict::Nothing,
        // Its content is not known, so a change of the inode alone tells nothing.
        FileState::Loaded if known.reason == Some(REMARK_EXISTED_BEFORE) => {
            if same_bytes {
                Verdict::Nothing
            } else {
                Verdict::Changed
            }
        }
        FileState::Loaded if overwrites == AllowOverwrites::Ignore => {
            if same_bytes {
                Verdict::Nothing
            } else {
                Verdict::Seen
            }
        }
        FileState::Loaded | FileState::Cleaned => Verdict::Rehash,
        FileState::Parked if is_parked_as(ParkReason::Vanished) => Verdict::Returned,
        FileState::Parked if is_parked_as(ParkReason::ChangedAfterLoad) => {
            if same && overwrites == AllowOverwrites::Park {
                Verdict::Nothing
            } else {
                Verdict::Rehash
            }
        }
        FileState::Parked if !same => Verdict::Changed,
        FileState::Parked if known.retries => Verdict::Waits,
        FileState::Parked => Verdict::Nothing,
    }
}

impl<'a> Known<'a> {
    fn read(row: &'a Row<'_>) -> Result<Known<'a>> {
        let text = |index: usize| -> Result<&'a str> {
            Ok(row
                .get_ref(index)?
                .as_str()
                .map_err(rusqlite::Error::from)?)
        };
        Ok(Known {
            path: text(0)?,
            state: FileState::parse(text(1)?)?,
            size: row.get(2)?,
            modified_at: row.get(3)?,
            changed_at: row.get(4)?,
            reason: row
                .get_ref(5)?
                .as_str_or_null()
                .map_err(rusqlite::Error::from)?,
            retries: row.get(6)?,
        })
    }
}

/// Whether the listing could not look where the file would be.
fn is_unknown(listing: &Listing, path: &str) -> bool {
    listing.unreadable.iter().any(|(unreadable, _)| {
        path.strip_prefix(unreadable.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

fn is_first_listing(connection: &Connection) -> Result<bool> {
    let done: bool =
        connection.query_row("SELECT first_listing_done FROM meta", [], |row| row.get(0))?;
    Ok(!done)
}

fn record_change(
    transaction: &Transaction<'_>,
    change: &Change<'_>,
    existed: bool,
    now: Micros,
) -> Result<()> {
    match change {
        Change::New(file) if existed => transaction.prepare_cached(INSERT_EXISTED)?.execute((
            &file.path,
            stored(file.size),
            file.modified_at,
            file.changed_at,
            now,
            REMARK_EXISTED_BEFORE,
        ))?,
        Change::New(file) => {
            let (size, modified_at) = (stored(file.size), file.modified_at);
            transaction.prepare_cached(INSERT_PENDING)?.execute((
                &file.path,
                size,
                modified_at,
                file.changed_at,
                now,
            ))?
        }
        Change::Retry(from, file) => {
            let (state, size) = (from.next(FileEvent::Retry)?, stored(file.size));
            let update = match from {
                FileState::Loaded => UPDATE_UPLOADED,
                FileState::Pending
                | FileState::Planned
                | FileState::Parked
                | FileState::Cleaned => UPDATE_RETRY,
            };
            transaction.prepare_cached(update)?.execute((
                &file.path,
                state.as_str(),
                size,
                file.modified_at,
                file.changed_at,
            ))?
        }
        Change::Vanish(from, path) => {
            let state = from.next(FileEvent::Park)?;
            let detail = format!(
                "gone from the landing folder at {} before it was loaded",
                iso(now)
            );
            transaction
                .prepare_cached(UPDATE_VANISHED)?
                .execute((path, state.as_str(), detail))?
        }
        Change::Seen(file) => {
            let state = FileState::Loaded.next(FileEvent::Restore)?;
            return ignore_overwrite(transaction, state, file);
        }
    };
    Ok(())
}

fn ignore_overwrite(
    transaction: &Transaction<'_>,
    state: FileState,
    file: &LandingFile,
) -> Result<()> {
    transaction.prepare_cached(UPDATE_IGNORED)?.execute((
        &file.path,
        state.as_str(),
        stored(file.size),
        file.modified_at,
        file.changed_at,
        REMARK_OVERWRITE_IGNORED,
        "the file was written again after it was loaded; its present bytes are not looked at",
    ))?;
    Ok(())
}

fn changed_detail(record: &FileRecord, file: &LandingFile) -> String {
    if (record.loaded_size, record.loaded_modified_at) == (Some(file.size), Some(file.modified_at))
    {
        return format!(
            "loaded with {} of {}, now other bytes of the same size and time",
            counted(file.size, "byte"),
            iso(file.modified_at)
        );
    }
    let loaded = match (record.loaded_size, record.loaded_modified_at) {
        (Some(size), Some(modified_at)) => {
            format!(
                "loaded with {} of {}",
                counted(size, "byte"),
                iso(modified_at)
            )
        }
        _ => "loaded with a size that is not known".to_owned(),
    };
    format!(
        "{loaded}, now {} of {}",
        counted(file.size, "byte"),
        iso(file.modified_at)
    )
}

#[cfg(test)]
mod tests {
    use super::super::fixture::*;
    use super::super::{CheckpointStore, FileState, OutcomeKind};
    use super::*;
    use crate::change::FileFault;
    use crate::landing::{Filter, encode_name, list};
    use crate::settings::Format;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn listing_that_is_not_sorted_is_refused_and_changes_nothing() {
        let mut bench = Bench::new();
        for files in [[("b", 1, 1), ("a", 1, 1)], [("a", 1, 1), ("a", 2, 2)]] {
            assert!(
                bench
                    .store
                    .reconcile(&listing(&files), AllowOverwrites::Park, true, NOW)
                    .is_err()
            );
        }
        assert_eq!(
            bench.store.counts().unwrap(),
            super::super::Counts::default()
        );
    }

    #[test]
    fn loaded_file_that_goes_away_and_comes_back_is_not_loaded_again() {
        let mut bench = Bench::new();
        bench.see(&[("a", 1, 1)]);
        bench.load();
        let gone = bench.see(&[]);
        assert!(gone.vanished.is_empty());
        assert_eq!(bench.state("a"), FileState::Loaded);
        let back = bench.see(&[("a", 1, 1)]);
        assert_eq!(
            (back.new, back.waiting.len(), back.to_rehash.len()),
            (0, 0, 0)
        );
        let touched = bench.see(&[("a", 1, 99)]);
        assert_eq!(touched.to_rehash, [landing_file("a", 1, 99)]);
        bench.store.confirm_touched(&touched.to_rehash[0]).unwrap();
        assert_eq!(bench.plan(NOW), None);
    }

    #[test]
    fn appended_file_is_parked_with_both_sizes_and_stays_parked() {
        let mut bench = Bench::new();
        bench.see(&[("a", 10, SECOND)]);
        bench.load();
        let seen = bench.see(&[("a", 15, 2 * SECOND)]);
        let state = bench
            .store
            .confirm_changed(&seen.to_rehash[0], AllowOverwrites::Park)
            .unwrap();
        assert_eq!(state, FileState::Parked);
        let file = bench.file("a");
        assert_eq!(file.reason.as_deref(), Some("changed_after_load"));
        let detail =
            "loaded with 10 bytes of 1970-01-01T00:00:01Z, now 15 bytes of 1970-01-01T00:00:02Z";
        assert_eq!(file.detail.as_deref(), Some(detail));
        assert_eq!(
            (file.rows_loaded, file.bronze_version),
            (2, Some(crate::change::Version(1)))
        );

        let mut bench = bench.reopen();
        let idle = bench.see(&[("a", 15, 2 * SECOND)]);
        assert!(idle.to_rehash.is_empty() && idle.waiting.is_empty());
        assert_eq!(bench.plan(NOW), None);
        let more = bench.see(&[("a", 20, 3 * SECOND)]);
        bench
            .store
            .confirm_changed(&more.to_rehash[0], AllowOverwrites::Park)
            .unwrap();
        assert!(
            bench
                .file("a")
                .detail
                .unwrap()
                .contains("loaded with 10 bytes")
        );
        assert!(bench.file("a").detail.unwrap().contains("now 20 bytes"));
    }

    #[test]
    fn original_bytes_that_come_back_make_the_file_loaded_again() {
        let mut bench = Bench::new();
        bench.see(&[("a", 10, 1)]);
        bench.load();
        let seen = bench.see(&[("a", 15, 2)]);
        bench
            .store
            .confirm_changed(&seen.to_rehash[0], AllowOverwrites::Park)
            .unwrap();
        let seen = bench.see(&[("a", 10, 3)]);
        bench.store.confirm_touched(&seen.to_rehash[0]).unwrap();
        let file = bench.file("a");
        assert_eq!(
            (file.state, file.reason, file.detail),
            (FileState::Loaded, None, None)
        );
        assert!(bench.see(&[("a", 10, 3)]).to_rehash.is_empty());
    }

    #[test]
    fn replacement_is_planned_once_in_the_place_of_the_earlier_rows() {
        let mut bench = Bench::new();
        bench.see(&[("a", 10, 1)]);
        bench.load();
        let changed = listing(&[("a", 15, 2)]);
        let seen = bench
            .store
            .reconcile(&changed, AllowOverwrites::Replace, true, NOW)
            .unwrap();
        bench
            .store
            .confirm_changed(&seen.to_rehash[0], AllowOverwrites::Replace)
            .unwrap();
        let seen = bench
            .store
            .reconcile(&changed, AllowOverwrites::Replace, true, NOW)
            .unwrap();
        assert_eq!(seen.waiting.len(), 1);
        let batch = bench.load();
        assert!(batch.files[0].replaces);
        assert_eq!(batch.files[0].size, 15);
        let seen = bench
            .store
            .reconcile(&changed, AllowOverwrites::Replace, true, NOW)
            .unwrap();
        assert!(seen.to_rehash.is_empty() && seen.waiting.is_empty());
        assert!(!bench.file("a").replaces);
    }

    #[test]
    fn ignored_overwrite_is_remembered_and_not_looked_at() {
        let mut bench = Bench::new();
        bench.see(&[("a", 10, 1)]);
        bench.load();
        let changed = listing(&[("a", 15, 2)]);
        let seen = bench
            .store
            .reconcile(&changed, AllowOverwrites::Ignore, true, NOW)
            .unwrap();
        assert!(seen.to_rehash.is_empty());
        let file = bench.file("a");
        assert_eq!(
            (file.state, file.size, file.loaded_size),
            (FileState::Loaded, 15, Some(10))
        );
    }

    #[test]
    fn overwrite_parked_before_is_looked_at_again_when_overwrites_are_allowed() {
        let mut bench = Bench::new();
        bench.see(&[("a", 10, 1)]);
        bench.load();
        let seen = bench.see(&[("a", 15, 2)]);
        bench
            .store
            .confirm_changed(&seen.to_rehash[0], AllowOverwrites::Park)
            .unwrap();
        let same = listing(&[("a", 15, 2)]);
        let seen = bench
            .store
            .reconcile(&same, AllowOverwrites::Replace, true, NOW)
            .unwrap();
        let state = bench
            .store
            .confirm_changed(&seen.to_rehash[0], AllowOverwrites::Replace)
            .unwrap();
        assert_eq!(state, FileState::Pending);
    }

    #[test]
    fn pending_file_that_is_gone_is_parked_until_it_is_back() {
        let mut bench = Bench::new();
        bench.see(&[("a", 1, 1), ("b", 1, 1), ("c", 1, 1)]);
        let seen = bench.see(&[("a", 1, 1), ("c", 1, 1)]);
        assert_eq!(seen.vanished, ["b"]);
        assert_eq!(bench.file("b").reason.as_deref(), Some("vanished"));
        assert!(
            bench.see(&[("a", 1, 1), ("c", 1, 1)]).vanished.is_empty(),
            "said once"
        );
        assert_eq!(paths(&bench.load()), ["a", "c"]);
        let seen = bench.see(&[("a", 1, 1), ("b", 1, 1), ("c", 1, 1)]);
        assert_eq!(seen.returned, ["b"]);
        assert_eq!(paths(&bench.load()), ["b"]);
    }

    #[test]
    fn file_gone_between_plan_and_read_leaves_its_batch_mates_alone() {
        let mut bench = Bench::new();
        bench.see(&[("a", 1, 1), ("b", 1, 1), ("c", 1, 1)]);
        let planned = bench.plan(NOW).unwrap();
        let mut bench = bench.reopen();
        assert_eq!(bench.store.planned().unwrap().unwrap(), planned);
        assert!(
            bench.see(&[("a", 1, 1), ("c", 1, 1)]).vanished.is_empty(),
            "a frozen batch does not change"
        );
        bench.confirm(
            &planned,
            &[
                outcome("a", loaded(1, 0)),
                unread("b", OutcomeKind::Vanished),
                outcome("c", loaded(1, 0)),
            ],
        );
        assert_eq!(bench.state("b"), FileState::Parked);
        assert_eq!(
            bench.see(&[("a", 1, 1), ("b", 1, 1), ("c", 1, 1)]).returned,
            ["b"]
        );
        assert_eq!(paths(&bench.load()), ["b"]);
    }

    #[test]
    fn files_below_a_folder_that_cannot_be_listed_are_not_gone() {
        let mut bench = Bench::new();
        bench.see(&[
            ("day", 1, 1),
            ("day-1/a", 1, 1),
            ("day/a", 1, 1),
            ("day/b/c", 1, 1),
        ]);
        let listing = Listing {
            unreadable: vec![("day".into(), "permission denied".into())],
            ..listing(&[])
        };
        let seen = bench
            .store
            .reconcile(&listing, AllowOverwrites::Park, true, NOW)
            .unwrap();
        assert_eq!(seen.vanished, ["day-1/a"]);
    }

    #[test]
    fn parked_file_is_tried_again_only_with_new_bytes() {
        let mut bench = Bench::new();
        bench.see(&[("bad", 5, 1), ("good", 5, 1)]);
        let batch = bench.plan(NOW).unwrap();
        let fault = FileFault::new(ParkReason::TruncatedStream, "ends at byte 5");
        let parked = OutcomeKind::Parked {
            fault,
            next_try_at: None,
        };
        bench.confirm(
            &batch,
            &[outcome("bad", parked), outcome("good", loaded(1, 0))],
        );
        for minute in 0..10 {
            let seen = bench.see(&[("bad", 5, 1), ("good", 5, 1)]);
            assert!(seen.waiting.is_empty());
            assert_eq!(bench.plan(NOW + minute * 60 * SECOND), None);
        }
        assert_eq!(bench.file("bad").attempts, 1);
        let seen = bench.see(&[("bad", 6, 2), ("good", 5, 1)]);
        assert_eq!(seen.changed, ["bad"]);
        assert_eq!(bench.file("bad").attempts, 0);
        let batch = bench.plan(NOW).unwrap();
        assert_eq!(paths(&batch), ["bad"]);
        assert!(batch.files[0].replaces);
    }

    #[test]
    fn order_of_names_and_times_decides_nothing() {
        let mut bench = Bench::new();
        bench.see(&[("orders-0002", 1, 2024)]);
        bench.load();
        let seen = bench.see(&[
            ("a-2019", 1, -5),
            ("orders-0001", 1, 1),
            ("orders-0002", 1, 2024),
            ("z-2040", 1, i64::MAX),
        ]);
        assert_eq!(seen.new, 3);
        assert_eq!(paths(&bench.load()), ["a-2019", "orders-0001", "z-2040"]);
    }

    #[test]
    fn new_name_on_the_inode_of_a_deleted_file_is_a_new_file() {
        let mut bench = Bench::new();
        let root = bench.folder.path().join("landing");
        let filter = Filter::new(Format::Auto, None, &[]).unwrap();
        std::fs::write(root.join("a"), "100 rows").unwrap();
        bench
            .store
            .reconcile(
                &list(&root, &filter).unwrap(),
                AllowOverwrites::Park,
                true,
                NOW,
            )
            .unwrap();
        bench.load();
        // A rename keeps inode, size and times: the strictest case of a recycled inode.
        std::fs::rename(root.join("a"), root.join("b")).unwrap();
        let seen = bench
            .store
            .reconcile(
                &list(&root, &filter).unwrap(),
                AllowOverwrites::Park,
                true,
                NOW,
            )
            .unwrap();
        assert_eq!((seen.new, seen.to_rehash.len()), (1, 0));
        assert_eq!(paths(&bench.load()), ["b"]);
    }

    #[test]
    fn awkward_names_survive_a_restart_and_are_not_new_again() {
        let mut names: Vec<String> = [
            &b"bad\xff"[..],
            b"two\nlines",
            b"-5",
            b"a'b\"%",
            "\u{e9}\u{10ffff}".as_bytes(),
        ]
        .iter()
        .map(|name| encode_name(OsStr::from_bytes(name)))
        .collect();
        names.sort();
        let files: Vec<(&str, u64, i64)> = names.iter().map(|name| (name.as_str(), 1, 1)).collect();
        let mut bench = Bench::new();
        assert_eq!(bench.see(&files).new, 5);
        bench.load();
        let mut bench = bench.reopen();
        let seen = bench.see(&files);
        assert_eq!((seen.new, seen.waiting.len()), (0, 0));
    }

    #[test]
    fn existing_files_can_be_left_out_at_the_first_start_only() {
        let mut bench = Bench::new();
        let first = listing(&[("old", 1, 1)]);
        let seen = bench
            .store
            .reconcile(&first, AllowOverwrites::Park, false, NOW)
            .unwrap();
        assert_eq!((seen.new, seen.waiting.len()), (0, 0));
        let file = bench.file("old");
        assert_eq!((file.state, file.rows_loaded), (FileState::Loaded, 0));
        assert_eq!(file.reason.as_deref(), Some("existed_before"));
        let mut bench = bench.reopen();
        let second = listing(&[("new", 1, 1), ("old", 1, 1)]);
        let seen = bench
            .store
            .reconcile(&second, AllowOverwrites::Park, false, NOW)
            .unwrap();
        assert_eq!(seen.new, 1);
        assert_eq!(paths(&bench.load()), ["new"]);
        assert!(
            bench.store.to_clean(NOW).unwrap().is_empty(),
            "what was never loaded is never cleaned"
        );
    }

    #[test]
    fn file_left_out_at_the_first_start_is_a_new_upload_when_it_changes() {
        for policy in [
            AllowOverwrites::Park,
            AllowOverwrites::Ignore,
            AllowOverwrites::Replace,
        ] {
            let mut bench = Bench::new();
            let mut see =
                |files: &Listing| bench.store.reconcile(files, policy, false, NOW).unwrap();
            see(&listing(&[("old", 1, 1), ("older", 1, 1)]));
            let mut touched = listing(&[("old", 1, 1), ("older", 1, 1)]);
            touched.files[1].changed_at = 9;
            let seen = see(&touched);
            assert!(seen.waiting.is_empty() && seen.to_rehash.is_empty());
            let seen = see(&listing(&[("old", 2, 2), ("older", 1, 1)]));
            assert_eq!((seen.changed.len(), seen.waiting.len()), (1, 1));
            let file = bench.file("old");
            assert_eq!(
                (file.state, file.reason, file.loaded_at),
                (FileState::Pending, None, None)
            );
            assert_eq!(paths(&bench.load()), ["old"]);
            assert_eq!(bench.state("older"), FileState::Loaded);
        }
    }

    #[test]
    fn change_of_the_inode_alone_is_looked_at_once() {
        let mut bench = Bench::new();
        bench.see(&[("a", 1, 1), ("b", 1, 1)]);
        bench.load();
        let mut other = listing(&[("a", 1, 1), ("b", 1, 1)]);
        for file in &mut other.files {
            file.changed_at = 7;
        }
        let see =
            |bench: &mut Bench, policy| bench.store.reconcile(&other, policy, true, NOW).unwrap();
        assert!(
            see(&mut bench, AllowOverwrites::Ignore)
                .to_rehash
                .is_empty()
        );
        let seen = see(&mut bench, AllowOverwrites::Park);
        assert_eq!(seen.to_rehash, other.files);
        bench.store.confirm_touched(&seen.to_rehash[0]).unwrap();
        bench
            .store
            .confirm_changed(&seen.to_rehash[1], AllowOverwrites::Park)
            .unwrap();
        let detail =
            "loaded with 1 byte of 1970-01-01T00:00:00Z, now other bytes of the same size and time";
        assert_eq!(bench.file("b").detail.as_deref(), Some(detail));
        let mut bench = bench.reopen();
        let before = bench.writes();
        let idle = see(&mut bench, AllowOverwrites::Park);
        assert!(idle.to_rehash.is_empty() && idle.waiting.is_empty());
        assert_eq!(bench.writes(), before);
        // What is not known is not compared.
        bench
            .store
            .connection
            .execute("UPDATE files SET changed_at = NULL", [])
            .unwrap();
        assert!(bench.see(&[("a", 1, 1), ("b", 1, 1)]).to_rehash.is_empty());
    }

    #[test]
    fn name_of_a_cleaned_file_that_is_back_is_judged_by_its_content() {
        let mut bench = Bench::new();
        bench.see(&[("a", 1, 1), ("b", 1, 1)]);
        bench.load();
        bench.store.confirm_cleaned("a").unwrap();
        bench.store.confirm_cleaned("b").unwrap();
        assert!(bench.see(&[]).vanished.is_empty());
        let seen = bench.see(&[("a", 1, 1), ("b", 9, 9)]);
        assert_eq!(seen.to_rehash.len(), 2);
        bench.store.confirm_touched(&seen.to_rehash[0]).unwrap();
        bench
            .store
            .confirm_changed(&seen.to_rehash[1], AllowOverwrites::Park)
            .unwrap();
        assert_eq!(
            (bench.state("a"), bench.state("b")),
            (FileState::Loaded, FileState::Parked)
        );
    }

    #[test]
    fn idle_reconcile_writes_nothing() {
        let mut bench = Bench::new();
        let files = [("a", 1, 1), ("b", 1, 1), ("c", 1, 1)];
        bench.see(&files);
        bench.load();
        bench.see(&files);
        let before = bench.writes();
        bench.see(&files);
        assert_eq!(bench.plan(NOW), None);
        assert_eq!(bench.writes(), before);
    }

    fn known_files(count: usize) -> (Bench, Listing) {
        let mut bench = Bench::new();
        let files = (0..count)
            .map(|index| landing_file(&format!("day/{index:08}.jsonl"), 100, index as i64))
            .collect();
        let listing = Listing {
            files,
            ..Listing::default()
        };
        let started = std::time::Instant::now();
        let seen = bench
            .store
            .reconcile(&listing, AllowOverwrites::Park, true, NOW)
            .unwrap();
        assert_eq!(seen.new, count as u64);
        println!("{count} new files: {:?}", started.elapsed());
        let started = std::time::Instant::now();
        while let Some(batch) = bench.store.plan(&|_| true, LIMITS, NOW).unwrap() {
            let outcomes: Vec<_> = batch
                .files
                .iter()
                .map(|file| outcome(&file.path, loaded(1, 0)))
                .collect();
            bench.confirm(&batch, &outcomes);
        }
        println!(
            "{count} loaded in batches of {}: {:?}",
            LIMITS.files_max,
            started.elapsed()
        );
        (bench, listing)
    }

    fn idle_poll(store: &mut CheckpointStore, listing: &Listing) {
        let started = std::time::Instant::now();
        let seen = store
            .reconcile(listing, AllowOverwrites::Park, true, NOW)
            .unwrap();
        assert!(seen.waiting.is_empty() && seen.to_rehash.is_empty());
        assert_eq!(store.plan(&|_| true, LIMITS, NOW).unwrap(), None);
        println!(
            "{} known files, idle poll: {:?}",
            listing.files.len(),
            started.elapsed()
        );
    }

    #[test]
    fn twenty_thousand_known_files_are_compared_without_a_query_each() {
        let (mut few, few_listed) = known_files(10);
        let (mut many, many_listed) = known_files(20_000);
        let before = many.writes();
        let statements = many.statements(|store| idle_poll(store, &many_listed));
        assert!(statements > 0);
        assert_eq!(
            statements,
            few.statements(|store| idle_poll(store, &few_listed))
        );
        assert_eq!(many.writes(), before);
    }

    #[test]
    #[ignore = "measures; run it with --nocapture"]
    fn two_hundred_thousand_known_files() {
        let (mut bench, listing) = known_files(200_000);
        for _ in 0..3 {
            idle_poll(&mut bench.store, &listing);
        }
    }
}
