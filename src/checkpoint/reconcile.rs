//! What a listing means for the ledger: one merge of two sorted lists, no query per file, no write when nothing changed.
//!
//! Identity is the path. Neither inode nor order of names or times decides whether a file is new. A file that was loaded
//! is never forgotten, whether it is there or not.

use super::files::state_of;
use super::lock::iso;
use super::record::REMARK_EXISTED_BEFORE;
use super::{CheckpointStore, FileEvent, FileRecord, FileState, Reconciled, stored};
use crate::change::ParkReason;
use crate::clock::Micros;
use crate::error::{Error, Result};
use crate::landing::{LandingFile, Listing};
use crate::settings::AllowOverwrites;
use rusqlite::{Connection, Row, Transaction};

const SELECT_LEDGER: &str = "
    SELECT path, state, size, modified_at, reason, next_try_at IS NOT NULL FROM files ORDER BY path";

const INSERT_PENDING: &str = "
    INSERT INTO files (path, state, size, modified_at, discovered_at) VALUES (?1, 'pending', ?2, ?3, ?4)";
const INSERT_EXISTED: &str = "
    INSERT INTO files (path, state, size, modified_at, discovered_at, loaded_at, loaded_size, loaded_modified_at, reason,
        detail)
    VALUES (?1, 'loaded', ?2, ?3, ?4, ?4, ?2, ?3, ?5, 'existed before the first start')";
const UPDATE_RETRY: &str = "
    UPDATE files
    SET state = ?2, size = ?3, modified_at = ?4, attempts = 0, next_try_at = NULL, reason = NULL, detail = NULL
    WHERE path = ?1";
const UPDATE_VANISHED: &str = "
    UPDATE files SET state = ?2, next_try_at = NULL, reason = 'vanished', detail = ?3 WHERE path = ?1";
const UPDATE_SEEN: &str = "UPDATE files SET size = ?2, modified_at = ?3 WHERE path = ?1";
const UPDATE_RESTORED: &str = "
    UPDATE files
    SET state = ?2, size = ?3, modified_at = ?4, next_try_at = NULL,
        reason = CASE WHEN state = 'loaded' THEN reason END, detail = CASE WHEN state = 'loaded' THEN detail END
    WHERE path = ?1";
const UPDATE_CHANGED: &str = "
    UPDATE files
    SET state = ?2, size = ?3, modified_at = ?4, attempts = 0, next_try_at = NULL, reason = 'changed_after_load',
        detail = ?5
    WHERE path = ?1";
const UPDATE_REPLACE: &str = "
    UPDATE files
    SET state = ?2, size = ?3, modified_at = ?4, attempts = 0, next_try_at = NULL, reason = NULL, detail = NULL,
        replaces = 1
    WHERE path = ?1";

impl CheckpointStore {
    /// Compares a listing with the ledger and records what is new, changed, back or gone.
    ///
    /// - Unknown: pending; with `include_existing_files = false` and in the first reconcile of a checkpoint: loaded with
    ///   no rows, and never looked at again unless it changes.
    /// - Pending or parked with another size or time: pending, attempts start again. Parked and the same: stays.
    /// - Loaded with another size or time: left to the caller, who compares the content; not looked at under `ignore`.
    ///   So is a cleaned file whose name is back, and a file parked as `changed_after_load` that changed again.
    /// - Not there, and not below a folder that could not be listed: a file that waits is parked as `vanished` until it
    ///   is back; loaded and cleaned ones stay what they are.
    /// - Planned: untouched; reading it finds out.
    pub fn reconcile(
        &mut self,
        listing: &Listing,
        allow_overwrites: AllowOverwrites,
        include_existing_files: bool,
        now: Micros,
    ) -> Result<Reconciled> {
        let first = self.read(is_first_listing)?;
        let compared = self.read(|connection| compare(connection, listing, allow_overwrites))?;
        if !first && compared.changes.is_empty() {
            return Ok(compared.reconciled);
        }
        let existed_before = first && !include_existing_files;
        self.write(|transaction| {
            for change in &compared.changes {
                record_change(transaction, change, existed_before, now)?;
            }
            transaction.execute("UPDATE meta SET first_listing_done = 1", [])?;
            Ok(())
        })?;
        let mut reconciled = compared.reconciled;
        if existed_before {
            reconciled.new = 0;
            reconciled.waiting.clear();
        }
        Ok(reconciled)
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
            ))?;
            Ok(())
        })
    }

    /// The content is not the one that was loaded. Returns what it is now: `park` parks it as `changed_after_load` and
    /// names both sizes, `ignore` keeps it loaded, `replace` makes it pending in the place of its earlier rows.
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
                AllowOverwrites::Park => transaction.prepare_cached(UPDATE_CHANGED)?.execute((
                    &file.path,
                    state.as_str(),
                    size,
                    modified_at,
                    changed_detail(&record, file),
                ))?,
                AllowOverwrites::Ignore => transaction
                    .prepare_cached(UPDATE_RESTORED)?
                    .execute((&file.path, state.as_str(), size, modified_at))?,
                AllowOverwrites::Replace => transaction
                    .prepare_cached(UPDATE_REPLACE)?
                    .execute((&file.path, state.as_str(), size, modified_at))?,
            };
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

struct Compared<'a> {
    reconciled: Reconciled,
    changes: Vec<Change<'a>>,
}

/// One row of the ledger, as far as a listing can touch it.
struct Known<'a> {
    path: &'a str,
    state: FileState,
    size: i64,
    modified_at: Micros,
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
    let same = known.size == stored(file.size) && known.modified_at == file.modified_at;
    match known.state {
        FileState::Planned => Verdict::Nothing,
        FileState::Pending if same => Verdict::Waits,
        FileState::Pending => Verdict::Changed,
        FileState::Loaded if same => Verdict::Nothing,
        FileState::Loaded if overwrites == AllowOverwrites::Ignore => Verdict::Seen,
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
            reason: row
                .get_ref(4)?
                .as_str_or_null()
                .map_err(rusqlite::Error::from)?,
            retries: row.get(5)?,
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
            now,
            REMARK_EXISTED_BEFORE,
        ))?,
        Change::New(file) => {
            let (size, modified_at) = (stored(file.size), file.modified_at);
            transaction.prepare_cached(INSERT_PENDING)?.execute((
                &file.path,
                size,
                modified_at,
                now,
            ))?
        }
        Change::Retry(from, file) => {
            let (state, size) = (from.next(FileEvent::Retry)?, stored(file.size));
            transaction.prepare_cached(UPDATE_RETRY)?.execute((
                &file.path,
                state.as_str(),
                size,
                file.modified_at,
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
        Change::Seen(file) => transaction.prepare_cached(UPDATE_SEEN)?.execute((
            &file.path,
            stored(file.size),
            file.modified_at,
        ))?,
    };
    Ok(())
}

fn changed_detail(record: &FileRecord, file: &LandingFile) -> String {
    let loaded = match (record.loaded_size, record.loaded_modified_at) {
        (Some(size), Some(modified_at)) => {
            format!("loaded with {size} bytes of {}", iso(modified_at))
        }
        _ => "loaded with a size that is not known".to_owned(),
    };
    format!(
        "{loaded}, now {} bytes of {}",
        file.size,
        iso(file.modified_at)
    )
}
