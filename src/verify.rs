//! Audits what the tables hold against what the checkpoint says, and silver against the fold of bronze. Writes nothing.
//!
//! A loader may run meanwhile: the ledger is read first, at one moment, and the tables after it, without what later batches
//! brought. What then still disagrees is looked at again, and counts only if it stays.

use crate::bronze::BronzeTable;
use crate::change::{BATCH_ID, BatchId, FILE_PATH, FILE_ROW, Version};
use crate::checkpoint::{CheckpointStore, FileRecord, FileState, Holder, Ledger, holder};
use crate::delta::Table;
use crate::error::{Error, Result};
use crate::plural::counted;
use crate::quarantine::QuarantineTable;
use crate::settings::PipelineSettings;
use crate::silver::{SilverDifferences, SilverTable};
use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use roaring::RoaringTreemap;
use std::collections::BTreeMap;
use std::time::Duration;

/// How many differing rows of silver a report shows.
const EXAMPLES_MAX: usize = 10;
/// How often tables that change meanwhile are looked at.
const LOOKS_MAX: u32 = 5;
/// The pause before the second look; it doubles.
const LOOK_PAUSE: Duration = Duration::from_millis(100);

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
    /// Files that are loaded, or whose records the tables hold from an earlier load.
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
    /// Silver against the fold; `None` without silver, and where `unsettled` says why.
    pub silver: Option<SilverDifferences>,
    /// Versions of bronze that silver lacks; the comparison says nothing then.
    pub silver_behind: bool,
    /// Why silver could not be compared.
    pub unsettled: Option<String>,
}

impl VerifyReport {
    /// Whether everything agrees that could be compared.
    pub fn is_clean(&self) -> bool {
        self.files.disagreeing.is_empty()
            && !self.silver_behind
            && self.silver.as_ref().is_none_or(SilverDifferences::is_empty)
    }
}

/// Audits one pipeline, also while a loader runs.
///
/// Fails where there is no checkpoint, or where silver was made with other settings.
pub async fn verify_pipeline(settings: &PipelineSettings) -> Result<VerifyReport> {
    let mut pause = LOOK_PAUSE;
    let mut looks = 1;
    let mut look = look_once(settings).await?;
    while look.moved && !look.report.is_clean() && looks < LOOKS_MAX {
        tokio::time::sleep(pause).await;
        pause *= 2;
        looks += 1;
        let before = look.report.files.disagreeing;
        look = look_once(settings).await?;
        if look.moved {
            // A disagreement stays where it is; what a loader does passes on.
            let stays = |file: &DisagreeingFile| before.contains(file);
            look.report.files.disagreeing.retain(stays);
        }
    }
    let Look {
        mut report,
        moved,
        running,
    } = look;
    if moved
        && report
            .silver
            .as_ref()
            .is_some_and(|silver| !silver.is_empty())
    {
        report.silver = None;
        report.silver_behind = false;
        report.unsettled = Some(unsettled(running));
    }
    Ok(report)
}

/// Audits what is open, while no loader runs.
pub fn verify(
    checkpoint: &CheckpointStore,
    bronze: Option<&BronzeTable>,
    quarantine: &QuarantineTable,
    silver: Option<&SilverTable>,
) -> Result<VerifyReport> {
    audit_all(&checkpoint.ledger()?, bronze, quarantine, silver)
}

fn audit_all(
    ledger: &Ledger,
    bronze: Option<&BronzeTable>,
    quarantine: &QuarantineTable,
    silver: Option<&SilverTable>,
) -> Result<VerifyReport> {
    let mut report = VerifyReport {
        files: audit(ledger, bronze, quarantine)?,
        ..VerifyReport::default()
    };
    if let Some(silver) = silver {
        let differences = compare(bronze, silver)?;
        let newest = bronze.map(|bronze| bronze.table().version());
        report.silver_behind = silver.applied_up_to() < newest && !differences.is_empty();
        report.silver = Some(differences);
    }
    Ok(report)
}

/// One audit, and whether what it looked at changed meanwhile.
struct Look {
    report: VerifyReport,
    moved: bool,
    running: Option<Holder>,
}

async fn look_once(settings: &PipelineSettings) -> Result<Look> {
    let checkpoint = CheckpointStore::open_read_only(&settings.checkpoint)?
        .ok_or_else(|| no_checkpoint(settings))?;
    let ledger = checkpoint.ledger()?;
    let mut bronze = BronzeTable::open(&settings.bronze.path).await?;
    let quarantine = QuarantineTable::open(&settings.bronze.quarantine_path()).await?;
    let mut silver = match &settings.silver {
        Some(silver) => {
            let word = settings.source.unavailable_value.clone();
            Some(SilverTable::open(silver, word, checkpoint.pipeline_id()).await?)
        }
        None => None,
    };
    let report = audit_all(&ledger, bronze.as_ref(), &quarantine, silver.as_ref())?;
    if report.is_clean() {
        return Ok(Look {
            report,
            moved: false,
            running: None,
        });
    }
    let running = holder(&settings.checkpoint)?;
    let next_batch = CheckpointStore::open_read_only(&settings.checkpoint)?
        .map(|checkpoint| checkpoint.next_batch_id())
        .transpose()?;
    let moved = next_batch != Some(ledger.next_batch_id)
        || has_moved(bronze.as_mut().map(|bronze| bronze.table_mut())).await?
        || has_moved(silver.as_mut().and_then(|silver| silver.table_mut())).await?
        // It may be about to apply what silver lacks.
        || report.silver_behind && running.is_some();
    Ok(Look {
        report,
        moved,
        running,
    })
}

async fn has_moved(table: Option<&mut Table>) -> Result<bool> {
    let Some(table) = table else { return Ok(false) };
    let before: Version = table.version();
    table.reload().await?;
    Ok(table.version() != before)
}

fn compare(bronze: Option<&BronzeTable>, silver: &SilverTable) -> Result<SilverDifferences> {
    match (bronze, silver.table()) {
        (Some(bronze), _) => silver.compare(bronze, EXAMPLES_MAX),
        // No event explains any row.
        (None, Some(table)) => Ok(SilverDifferences {
            surplus: table.row_count().unsigned_abs(),
            ..SilverDifferences::default()
        }),
        (None, None) => Ok(SilverDifferences::default()),
    }
}

fn unsettled(running: Option<Holder>) -> String {
    let who = match running {
        Some(Holder { pid: Some(pid), .. }) => format!("a loader is running, process {pid}"),
        Some(Holder { pid: None, .. }) => "a loader is running".to_owned(),
        None => "the tables are being written".to_owned(),
    };
    format!(
        "{who}: silver changed whenever it was compared; verify again when nothing waits to be loaded"
    )
}

fn no_checkpoint(settings: &PipelineSettings) -> Error {
    Error::disagreement(format!(
        "there is no checkpoint at {}",
        settings.checkpoint.display()
    ))
    .hint(format!(
        "landfall run {0} loads files, landfall rebuild {0} checkpoint makes a lost one again",
        settings.name
    ))
}

/// Compares the ledger with the rows of bronze and quarantine, while no loader runs: every record that a file is said to
/// have is in one of them, once.
pub fn audit_files(
    checkpoint: &CheckpointStore,
    bronze: Option<&BronzeTable>,
    quarantine: &QuarantineTable,
) -> Result<FileAudit> {
    audit(&checkpoint.ledger()?, bronze, quarantine)
}

fn audit(
    ledger: &Ledger,
    bronze: Option<&BronzeTable>,
    quarantine: &QuarantineTable,
) -> Result<FileAudit> {
    let mut audit = FileAudit::default();
    let mut held: BTreeMap<String, Held> = BTreeMap::new();
    let before = ledger.next_batch_id;
    if let Some(bronze) = bronze {
        audit.bronze_rows = count_into(bronze.table(), before, &mut held, |held| &mut held.loaded)?;
    }
    if let Some(table) = quarantine.table() {
        audit.quarantined = count_into(table, before, &mut held, |held| &mut held.quarantined)?;
    }
    for file in &ledger.files {
        let held = held.remove(&file.path).unwrap_or_default();
        let is_loaded = matches!(file.state, FileState::Loaded | FileState::Cleaned);
        audit.files += u64::from(is_loaded || file.holds_records());
        if let Some(finding) = finding(file, &held) {
            audit.disagreeing.push(DisagreeingFile {
                path: file.path.clone(),
                finding,
            });
        }
    }
    for (path, held) in held {
        if held.records() > 0 {
            let finding = format!(
                "unknown to the checkpoint, but the tables hold {} of it",
                counted(held.records(), "record")
            );
            audit.disagreeing.push(DisagreeingFile { path, finding });
        }
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
    /// A later batch than the ledger knows brought records.
    is_newer: bool,
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
    // What a batch that is not confirmed, or a later one, does to a file is not known.
    if file.state == FileState::Planned || held.is_newer {
        return None;
    }
    match held.loaded.repeated + held.quarantined.repeated {
        0 => {}
        1 => return Some("1 record is there twice".into()),
        repeated => return Some(format!("{repeated} records are there twice")),
    }
    if !held.loaded.numbers.is_disjoint(&held.quarantined.numbers) {
        return Some("a record is both loaded and in quarantine".into());
    }
    // Whatever its state: rows of an earlier load stay until the file is loaded again.
    let (rows, refused) = (held.loaded.numbers.len(), held.quarantined.numbers.len());
    if rows != file.rows_loaded {
        return Some(format!(
            "the checkpoint says {}, bronze holds {rows}",
            counted(file.rows_loaded, "row")
        ));
    }
    if refused != file.rows_quarantined {
        return Some(format!(
            "the checkpoint says {}, quarantine holds {refused}",
            counted(file.rows_quarantined, "refused record")
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
            "record numbers go up to {last}, but bronze and quarantine hold {} only",
            counted(rows + refused, "record")
        )
    })
}

/// Counts the records of batches before `before`.
fn count_into(
    table: &Table,
    before: BatchId,
    held: &mut BTreeMap<String, Held>,
    of: impl Fn(&mut Held) -> &mut Rows,
) -> Result<u64> {
    let mut count = 0;
    let columns = [FILE_PATH, FILE_ROW, BATCH_ID].map(str::to_owned);
    for file in table.files() {
        for scanned in table.scan(file, &columns)? {
            let rows = scanned?.rows;
            let paths = rows.column(0).as_string::<i32>();
            let numbers = rows.column(1).as_primitive::<Int64Type>().values();
            let batches = rows.column(2).as_primitive::<Int64Type>().values();
            for ((path, number), batch) in paths.iter().zip(numbers).zip(batches) {
                let path = path.unwrap_or_default();
                if !held.contains_key(path) {
                    held.insert(path.to_string(), Held::default());
                }
                let Some(entry) = held.get_mut(path) else {
                    continue;
                };
                if *batch >= before.0 {
                    entry.is_newer = true;
                    continue;
                }
                count += 1;
                let rows = of(entry);
                if !rows.numbers.insert(number.unsigned_abs()) {
                    rows.repeated += 1;
                }
            }
        }
    }
    Ok(count)
}
