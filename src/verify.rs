//! Audits what the tables hold against what the checkpoint says, and silver against the fold of bronze. Writes nothing.

use crate::bronze::BronzeTable;
use crate::change::{FILE_PATH, FILE_ROW};
use crate::checkpoint::{CheckpointStore, FileRecord, FileState};
use crate::delta::Table;
use crate::error::Result;
use crate::quarantine::QuarantineTable;
use crate::silver::{SilverDifferences, SilverTable};
use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use roaring::RoaringTreemap;
use std::collections::BTreeMap;

/// How many differing rows of silver a report shows.
const EXAMPLES_MAX: usize = 10;

/// A file of which checkpoint and tables tell different numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisagreeingFile {
    /// The file.
    pub path: String,
    /// What is wrong, in one line.
    pub finding: String,
}

/// What the ledger and the tables say about files.
#[derive(Clone, Debug, Default)]
pub struct FileAudit {
    /// Files of which the checkpoint says that they are loaded.
    pub files: u64,
    /// Rows that bronze holds.
    pub bronze_rows: u64,
    /// Records that quarantine holds.
    pub quarantined: u64,
    /// Files that do not agree.
    pub disagreeing: Vec<DisagreeingFile>,
}

/// The whole audit.
#[derive(Clone, Debug, Default)]
pub struct VerifyReport {
    /// Files against tables.
    pub files: FileAudit,
    /// Silver against the fold; `None` without silver.
    pub silver: Option<SilverDifferences>,
    /// Versions of bronze that silver lacks; the comparison says nothing then.
    pub silver_behind: bool,
}

impl VerifyReport {
    /// Whether everything agrees.
    pub fn is_clean(&self) -> bool {
        self.files.disagreeing.is_empty()
            && !self.silver_behind
            && self.silver.as_ref().is_none_or(SilverDifferences::is_empty)
    }
}

/// Audits one pipeline.
pub fn verify(
    checkpoint: &CheckpointStore,
    bronze: Option<&BronzeTable>,
    quarantine: &QuarantineTable,
    silver: Option<&SilverTable>,
) -> Result<VerifyReport> {
    let files = audit_files(checkpoint, bronze, quarantine)?;
    let (Some(bronze), Some(silver)) = (bronze, silver) else {
        return Ok(VerifyReport {
            files,
            silver: None,
            silver_behind: false,
        });
    };
    let differences = silver.compare(bronze, EXAMPLES_MAX)?;
    let silver_behind = silver
        .applied_up_to()
        .is_none_or(|applied| applied < bronze.table().version())
        && !differences.is_empty();
    Ok(VerifyReport {
        files,
        silver: Some(differences),
        silver_behind,
    })
}

/// Compares the ledger with the rows of bronze and quarantine: every record of a loaded file is in one of them, once.
pub fn audit_files(
    checkpoint: &CheckpointStore,
    bronze: Option<&BronzeTable>,
    quarantine: &QuarantineTable,
) -> Result<FileAudit> {
    let mut audit = FileAudit::default();
    let mut held: BTreeMap<String, Held> = BTreeMap::new();
    if let Some(bronze) = bronze {
        audit.bronze_rows = count_into(bronze.table(), &mut held, |held| &mut held.loaded)?;
    }
    if let Some(table) = quarantine.table() {
        audit.quarantined = count_into(table, &mut held, |held| &mut held.quarantined)?;
    }
    let mut check = |file: FileRecord| {
        let held = held.remove(&file.path).unwrap_or_default();
        let is_loaded = matches!(file.state, FileState::Loaded | FileState::Cleaned);
        audit.files += u64::from(is_loaded);
        if let Some(finding) = finding(&file, &held) {
            audit.disagreeing.push(DisagreeingFile {
                path: file.path,
                finding,
            });
        }
    };
    checkpoint.files(None, &mut check)?;
    for (path, held) in held {
        let finding = format!(
            "unknown to the checkpoint, but the tables hold {} records of it",
            held.records()
        );
        audit.disagreeing.push(DisagreeingFile { path, finding });
    }
    audit
        .disagreeing
        .sort_by(|left, right| left.path.cmp(&right.path));
    Ok(audit)
}

/// The record numbers of one file that a table holds.
#[derive(Default)]
struct Held {
    loaded: Rows,
    quarantined: Rows,
}

#[derive(Default)]
struct Rows {
    numbers: RoaringTreemap,
    repeated: u64,
}

impl Held {
    fn records(&self) -> u64 {
        self.loaded.numbers.len() + self.quarantined.numbers.len()
    }
}

fn finding(file: &FileRecord, held: &Held) -> Option<String> {
    if held.loaded.repeated + held.quarantined.repeated > 0 {
        return Some(format!(
            "{} records are there twice",
            held.loaded.repeated + held.quarantined.repeated
        ));
    }
    if !held.loaded.numbers.is_disjoint(&held.quarantined.numbers) {
        return Some("a record is both loaded and in quarantine".into());
    }
    match file.state {
        // Rows of an earlier load stay until the file is loaded again.
        FileState::Pending | FileState::Planned | FileState::Parked => return None,
        FileState::Loaded | FileState::Cleaned => {}
    }
    let (rows, refused) = (held.loaded.numbers.len(), held.quarantined.numbers.len());
    if rows != file.rows_loaded {
        return Some(format!(
            "the checkpoint says {} rows, bronze holds {rows}",
            file.rows_loaded
        ));
    }
    if refused != file.rows_quarantined {
        return Some(format!(
            "the checkpoint says {} refused records, quarantine holds {refused}",
            file.rows_quarantined
        ));
    }
    let last = held
        .loaded
        .numbers
        .max()
        .max(held.quarantined.numbers.max())
        .unwrap_or(0);
    (last != rows + refused).then(|| {
        format!(
            "record numbers go up to {last}, but only {} records are there",
            rows + refused
        )
    })
}

fn count_into(
    table: &Table,
    held: &mut BTreeMap<String, Held>,
    of: impl Fn(&mut Held) -> &mut Rows,
) -> Result<u64> {
    let mut count = 0;
    for file in table.files() {
        for scanned in table.scan(file, &[FILE_PATH.into(), FILE_ROW.into()])? {
            let rows = scanned?.rows;
            let (paths, numbers) = (
                rows.column(0).as_string::<i32>(),
                rows.column(1).as_primitive::<Int64Type>(),
            );
            for (path, number) in paths.iter().zip(numbers.values()) {
                count += 1;
                let path = path.unwrap_or_default();
                if !held.contains_key(path) {
                    held.insert(path.to_string(), Held::default());
                }
                let Some(entry) = held.get_mut(path) else {
                    continue;
                };
                let rows = of(entry);
                if !rows.numbers.insert(number.unsigned_abs()) {
                    rows.repeated += 1;
                }
            }
        }
    }
    Ok(count)
}
