//! Opens the database file: journal mode, layout, damage.
//!
//! A damaged file is never replaced or mended here: it would mean that everything is loaded again.

use crate::error::{Error, Result};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Says in the file that it is ours.
const APPLICATION_ID: i64 = 0x6c66_6c31;
/// The layouts, oldest first; the nth leads from version n to n + 1.
const MIGRATIONS: [&str; 3] = [
    include_str!("schema.sql"),
    include_str!("schema-2.sql"),
    include_str!("schema-3.sql"),
];
/// Let a report read an older layout: the nth makes version n + 1 look like n + 2, for one connection only.
const VIEWS: [&str; 2] = [
    "CREATE TEMP VIEW files AS SELECT *, CAST(NULL AS INTEGER) AS changed_at FROM main.files",
    // Only an index differs.
    "",
];
/// The journal goes into the database each time that it has so many pages, of 4 KiB each.
const JOURNAL_PAGES: i64 = 4_000;
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// An open database and what is to be said about it.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) connection: Connection,
    /// One line when the journal is not WAL.
    pub(super) journal_note: Option<String>,
}

/// Opens or creates the database and brings it to the present layout.
///
/// If the program stops inside, the layout is the old one or the new one.
pub(super) fn open_database(path: &Path, pipeline: &str) -> Result<Opened> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let explain = |error: Error| explain(path, pipeline, error);
    let mut connection = connect(path, flags).map_err(explain)?;
    check(&connection).map_err(explain)?;
    let version = layout_version(path, &connection).map_err(explain)?;
    let journal_note = set_journal(path, &connection).map_err(explain)?;
    migrate(&mut connection, version).map_err(explain)?;
    sync_folder(path)?;
    Ok(Opened {
        connection,
        journal_note,
    })
}

/// Opens for reading; `None` when there is no file, or an empty one.
pub(super) fn open_for_reading(path: &Path) -> Result<Option<Connection>> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.len() == 0 => return Ok(None),
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(path, &error)),
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let explain = |error: Error| explain(path, "PIPELINE", error);
    let connection = connect(path, flags).map_err(explain)?;
    let version = layout_version(path, &connection).map_err(explain)?;
    if version == 0 {
        return Ok(None);
    }
    for view in &VIEWS[version - 1..] {
        connection
            .execute_batch(view)
            .map_err(|error| explain(error.into()))?;
    }
    Ok(Some(connection))
}

/// Moves the database and its companions aside and returns the new name; `None` when there is none.
///
/// If the program stops inside, the next call moves what is left.
pub(super) fn move_aside(path: &Path, stamp: &str) -> Result<Option<PathBuf>> {
    let mut kept = None;
    for companion in ["-wal", "-shm", "-journal", ""] {
        let from = beside(path, companion);
        let to = beside(&beside(path, &format!(".kept-{stamp}")), companion);
        match std::fs::rename(&from, &to) {
            Ok(()) => kept = Some(to),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(unusable(&from, &error)),
        }
    }
    Ok(kept)
}

/// The path with `suffix` behind its name.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// Makes the folder of the checkpoint.
pub(super) fn make_folder(path: &Path) -> Result<()> {
    let folder = folder_of(path);
    std::fs::create_dir_all(folder).map_err(|error| {
        Error::unavailable(format!(
            "checkpoint folder {} cannot be made: {error}",
            folder.display()
        ))
    })
}

/// Puts the object in front of a database error; damage also says what to do.
pub(super) fn explain(path: &Path, pipeline: &str, error: Error) -> Error {
    let damaged = error.message().starts_with(DAMAGED);
    let unwritable = error.message().starts_with(UNWRITABLE);
    let error = error.context(format!("checkpoint {}", path.display()));
    if unwritable && let Some(hint) = read_only_hint(path) {
        return error.hint(hint);
    }
    if !damaged {
        return error;
    }
    error.hint(format!(
        "the file was kept as it is; run `landfall rebuild {pipeline} checkpoint` to make a new one from bronze"
    ))
}

const DAMAGED: &str = "is damaged";
const UNWRITABLE: &str = "cannot be opened for writing";
/// What SQLite makes beside a database, with the rights that the database has then.
const COMPANIONS: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Names the files that nobody may write: those beside a database stay so when only the database is made writable again.
fn read_only_hint(path: &Path) -> Option<String> {
    let read_only = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().readonly())
    };
    let files: Vec<String> = std::iter::once("")
        .chain(COMPANIONS)
        .map(|suffix| beside(path, suffix))
        .filter(read_only)
        .map(|path| path.display().to_string())
        .collect();
    (!files.is_empty()).then(|| {
        format!(
            "make these files writable and delete none of them: chmod u+w {}",
            files.join(" ")
        )
    })
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Error::unavailable(format!("{DAMAGED}: {error}"))
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Error::unavailable(format!("is locked by another program: {error}"))
                    .hint("close the program that has the database open, then run again")
            }
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                Error::unavailable(format!("{UNWRITABLE}: {error}"))
                    .hint("check the permissions of the file and of its folder")
            }
            Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure) => {
                Error::unavailable(format!("cannot be written: {error}"))
                    .hint("check the space and the health of the disk, then run again")
            }
            Some(ErrorCode::ConstraintViolation) => {
                Error::bug(format!("a state that must not be was refused: {error}"))
            }
            _ => match &error {
                rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::IntegralValueOutOfRange(..)
                | rusqlite::Error::InvalidColumnType(..)
                | rusqlite::Error::Utf8Error(..) => {
                    Error::unavailable(format!("{DAMAGED}: {error}"))
                }
                _ => Error::unavailable(format!("database error: {error}")),
            },
        }
    }
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection> {
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "wal_autocheckpoint", JOURNAL_PAGES)?;
    // What one statement needs meanwhile, at most an entry for each file of a batch.
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(connection)
}

fn check(connection: &Connection) -> Result<()> {
    let finding: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    match finding.as_str() {
        "ok" => Ok(()),
        _ => Err(Error::unavailable(format!(
            "{DAMAGED}: {}",
            finding.replace('\n', " ")
        ))),
    }
}

/// The layout of the file; 0 for an empty one.
fn layout_version(path: &Path, connection: &Connection) -> Result<usize> {
    let application: i64 =
        connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let objects: i64 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if application != APPLICATION_ID && (version, objects) != (0, 0) {
        return Err(Error::settings("is a database of another program")
            .hint(format!("choose another file than {}", path.display())));
    }
    let known = MIGRATIONS.len();
    match usize::try_from(version) {
        Ok(version) if version <= known => Ok(version),
        _ => Err(Error::unavailable(format!(
            "has layout version {version}, but this landfall knows versions up to {known}"
        ))
        .hint("run the newer landfall that wrote it")),
    }
}

/// Chooses and reads back the journal: WAL, or a rollback journal where WAL's shared memory does not work.
fn set_journal(path: &Path, connection: &Connection) -> Result<Option<String>> {
    let network = network_file_system(path)?;
    let wanted = if network.is_some() { "delete" } else { "wal" };
    let set_mode = format!("PRAGMA journal_mode = {wanted}");
    let mode: String = connection.query_row(&set_mode, [], |row| row.get(0))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    match (mode.as_str(), network) {
        ("wal", None) => Ok(None),
        ("delete", Some(kind)) => Ok(Some(format!(
            "checkpoint {} is on a network file system ({kind}): a rollback journal is used instead of WAL",
            path.display()
        ))),
        ("delete" | "truncate" | "persist", None) => Ok(Some(format!(
            "checkpoint {}: WAL is not available here, a rollback journal is used",
            path.display()
        ))),
        (other, _) => Err(Error::unavailable(format!(
            "has no safe journal: asked for {wanted}, got {other}"
        ))),
    }
}

fn migrate(connection: &mut Connection, version: usize) -> Result<()> {
    if version == MIGRATIONS.len() {
        return Ok(());
    }
    let transaction =
        connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    for migration in &MIGRATIONS[version..] {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(
        None,
        "user_version",
        i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX),
    )?;
    transaction.commit()?;
    Ok(())
}

/// The name of the network file system that holds `path`; `None` on a local one.
fn network_file_system(path: &Path) -> Result<Option<&'static str>> {
    let status =
        rustix::fs::statfs(folder_of(path)).map_err(|error| unusable(path, &error.into()))?;
    // The magic numbers are 32 bits; their type differs by platform.
    Ok(network_name(status.f_type as u32))
}

fn network_name(magic: u32) -> Option<&'static str> {
    match magic {
        0x6969 => Some("NFS"),
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => Some("SMB"),
        0x0102_1997 => Some("9p"),
        0x6573_5546 => Some("FUSE"),
        0x00c3_6400 => Some("Ceph"),
        0x5346_414f => Some("AFS"),
        0x786f_4256 => Some("vboxsf"),
        0x0bd0_0bd0 => Some("Lustre"),
        0x4750_4653 => Some("GPFS"),
        _ => None,
    }
}

/// Makes the name of a new file durable.
fn sync_folder(path: &Path) -> Result<()> {
    let folder = folder_of(path);
    std::fs::File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| unusable(folder, &error))
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

fn unusable(path: &Path, error: &std::io::Error) -> Error {
    Error::unavailable(format!(
        "checkpoint {} is not usable: {error}",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_by_their_magic_number() {
        assert_eq!(network_name(0x6969), Some("NFS"));
        assert_eq!(network_name(0xff53_4d42), Some("SMB"));
        assert_eq!(network_name(0xef53), None, "ext4");
        assert_eq!(network_name(0x0102_1994), None, "tmpfs");
    }

    #[test]
    fn newer_layout_is_refused_and_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        open_database(&path, "p")
            .unwrap()
            .connection
            .pragma_update(None, "user_version", 7)
            .unwrap();
        let error = open_database(&path, "p").unwrap_err();
        assert!(error.message().contains("has layout version 7"), "{error}");
        assert!(open_for_reading(&path).is_err());
    }

    #[test]
    fn database_of_another_program_is_refused_untouched() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        Connection::open(&path)
            .unwrap()
            .execute_batch("CREATE TABLE t (a)")
            .unwrap();
        let before = std::fs::read(&path).unwrap();
        let error = open_database(&path, "p").unwrap_err();
        assert!(error.message().contains("another program"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }

    #[test]
    fn older_layout_is_brought_up_by_a_loader_and_read_as_it_is_by_a_report() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let old = Connection::open(&path).unwrap();
        old.execute_batch(MIGRATIONS[0]).unwrap();
        old.execute_batch(
            "INSERT INTO files (path, state, size, modified_at, discovered_at) VALUES ('a', 'pending', 1, 1, 1)",
        )
        .unwrap();
        old.pragma_update(None, "application_id", APPLICATION_ID)
            .unwrap();
        old.pragma_update(None, "user_version", 1).unwrap();
        drop(old);
        let before = std::fs::read(&path).unwrap();
        let known = |connection: &Connection| -> (String, Option<i64>) {
            let sql = "SELECT path, changed_at FROM files";
            connection
                .query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
                .unwrap()
        };
        let report = open_for_reading(&path).unwrap().unwrap();
        assert_eq!(known(&report), ("a".to_owned(), None));
        drop(report);
        assert_eq!(std::fs::read(&path).unwrap(), before);
        for _ in 0..2 {
            let opened = open_database(&path, "p").unwrap();
            assert_eq!(known(&opened.connection), ("a".to_owned(), None));
            let version = layout_version(&path, &opened.connection).unwrap();
            assert_eq!(version, MIGRATIONS.len());
        }
    }

    #[test]
    fn companions_that_stayed_read_only_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let unwritable = || {
            let error = Error::unavailable(format!("{UNWRITABLE}: attempt to write"));
            let error = error.hint("check the permissions");
            explain(&path, "p", error).hint_text().unwrap().to_owned()
        };
        for name in ["a.db", "a.db-wal", "a.db-shm"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(unwritable(), "check the permissions");
        for name in ["a.db-wal", "a.db-shm"] {
            let mut permissions = std::fs::metadata(folder.path().join(name))
                .unwrap()
                .permissions();
            permissions.set_readonly(true);
            std::fs::set_permissions(folder.path().join(name), permissions).unwrap();
        }
        let hint = unwritable();
        assert!(
            hint.ends_with(&format!("chmod u+w {0}-wal {0}-shm", path.display())),
            "{hint}"
        );
    }

    #[test]
    fn journal_is_wal_and_every_commit_is_synced() {
        let folder = tempfile::tempdir().unwrap();
        let opened = open_database(&folder.path().join("a.db"), "p").unwrap();
        assert_eq!(opened.journal_note, None);
        let synchronous: i64 = opened
            .connection
            .pragma_query_value(None, "synchronous", |row| row.get(0))
            .unwrap();
        assert_eq!(synchronous, 2);
    }
}
