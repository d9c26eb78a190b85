//! Upkeep under the table's lock: compaction, log checkpoints, vacuum.
//!
//! None of it changes a row. A compaction is one commit without change of data; a vacuum deletes only files that no version
//! within the retention can name, a log clean-up only entries that no reader within the retention needs. Whether something is
//! due is told from the state in memory; when it is done is left to the callers.

use super::append::column_names;
use super::changes::CHANGE_FOLDER;
use super::log::{self, LOG, unavailable};
use super::state::DataFile;
use super::{
    CommitOutcome, Operation, StatValue, Table, TableCommit, commit, deletion_vector, stats,
};
use crate::change::Version;
use crate::clock::Micros;
use crate::crash::{CrashPoint, CrashSwitch};
use crate::error::{Error, ErrorKind, Result};
use arrow::array::RecordBatch;
use arrow::compute::{SortColumn, concat_batches, lexsort_to_indices, take_record_batch};
use deltalake::kernel::{Action, Add, DeletionVectorDescriptor};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

const ATTEMPTS: usize = 3;
/// So many of the newest log entries are looked at for those of other programs.
const FOREIGN_COMMITS_SEEN: i64 = 20;
/// The rows that are sorted in memory at once, whatever their bytes.
const BIN_ROWS_MAX: i64 = 4_000_000;
/// In tiers, a smaller file with deleted rows is not worth a commit of its own: it is joined soon.
const HEAVY_BYTES_MIN: u64 = 1 << 20;

/// When a file is worth rewriting.
#[derive(Clone, Debug)]
pub struct CompactLimits {
    /// Files below this size are small, bytes.
    pub small_file_bytes: u64,
    /// Files aim at this size, bytes; so much is held in memory, unpacked.
    pub target_file_bytes: u64,
    /// At least this many small files of a partition make a rewrite worth it.
    pub small_files_min: usize,
    /// A file with at least this share of deleted rows (0 to 1) is rewritten.
    pub deleted_share_min: f64,
    /// At most this many bytes are read in one call; a single larger file, or the two smallest, go all the same.
    pub bytes_max: u64,
    /// A small file waits until the smaller ones together are as large: each row is written again a logarithmic number of times.
    pub in_tiers: bool,
}

/// What a compaction did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactReport {
    /// Files that left.
    pub files_removed: usize,
    /// Files that came.
    pub files_added: usize,
    /// Bytes that left.
    pub bytes_removed: u64,
    /// Bytes that came.
    pub bytes_added: u64,
    /// Live rows written again.
    pub rows: u64,
}

/// What a log clean-up deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCleanReport {
    /// Entries.
    pub entries: usize,
    /// Files of log checkpoints.
    pub checkpoints: usize,
}

/// What a vacuum deleted, or would.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VacuumReport {
    /// Relative to the table, sorted.
    pub files: Vec<String>,
    /// Their bytes.
    pub bytes: u64,
}

/// Rewrites small and vector-heavy files, rows ordered by `order_by`, in one commit that changes no data.
///
/// If the program stops inside, the table has its old files or its new ones.
pub async fn compact(
    table: &mut Table,
    order_by: &[String],
    limits: &CompactLimits,
    crash: &CrashSwitch,
) -> Result<CompactReport> {
    for _ in 0..ATTEMPTS {
        // The library lets a compaction that lost against ours commit all the same, and every row is there twice: where
        // another program writes, compaction is left to it.
        if others_wrote_lately(table) {
            return Ok(CompactReport::default());
        }
        let mut commit = TableCommit::new(Operation::Optimize);
        let mut report = CompactReport::default();
        for bin in bins(table, order_by, limits) {
            let adds = rewrite(table, &bin, order_by).await?;
            report.rows += bin
                .iter()
                .map(|file| file.live_rows().unsigned_abs())
                .sum::<u64>();
            commit
                .removes
                .extend(bin.iter().map(|file| table.remove_of(file, false)));
            commit.adds.extend(adds);
        }
        if commit.removes.is_empty() {
            return Ok(report);
        }
        finish(&mut commit, &mut report);
        crash.reach(CrashPoint::BeforeCompactionCommit)?;
        if let CommitOutcome::Committed(_) = table.commit(commit).await? {
            crash.reach(CrashPoint::AfterCompactionCommit)?;
            return Ok(report);
        }
        table.reload().await?;
    }
    Err(Error::new(
        ErrorKind::Conflict,
        format!(
            "table {}: compaction lost against other writers",
            table.root().display()
        ),
    ))
}

/// Whether [`compact`] would find something to do. Reads nothing from disk.
pub fn compaction_is_due(table: &Table, limits: &CompactLimits) -> bool {
    !bins(table, &[], limits).is_empty()
}

fn finish(commit: &mut TableCommit, report: &mut CompactReport) {
    let bytes = |sizes: &mut dyn Iterator<Item = i64>| sizes.sum::<i64>().unsigned_abs();
    report.files_removed = commit.removes.len();
    report.files_added = commit.adds.len();
    report.bytes_removed = bytes(&mut commit.removes.iter().filter_map(|remove| remove.size));
    report.bytes_added = bytes(&mut commit.adds.iter().map(|add| add.size));
    let vectors = commit
        .removes
        .iter()
        .filter(|remove| remove.deletion_vector.is_some())
        .count();
    commit.metric("numRemovedFiles", report.files_removed);
    commit.metric("numAddedFiles", report.files_added);
    commit.metric("numRemovedBytes", report.bytes_removed);
    commit.metric("numAddedBytes", report.bytes_added);
    commit.metric("numDeletionVectorsRemoved", vectors);
}

/// The files to rewrite, those of one partition that become about one file together.
fn bins<'a>(
    table: &'a Table,
    order_by: &[String],
    limits: &CompactLimits,
) -> Vec<Vec<&'a DataFile>> {
    let mut partitions: BTreeMap<BTreeMap<&str, Option<&str>>, Vec<&DataFile>> = BTreeMap::new();
    for file in table.files() {
        let values = file.add.partition_values.iter();
        let partition = values
            .map(|(name, value)| (name.as_str(), value.as_deref()))
            .collect();
        partitions.entry(partition).or_default().push(file);
    }
    let (mut bins, mut left) = (Vec::new(), limits.bytes_max);
    for (_, files) in partitions {
        let mut chosen = chosen(files, limits, &mut left);
        // Neighbours in order go together, so that pruning keeps working.
        chosen.sort_by(|a, b| by_least_value(a, b, order_by));
        let mut bin: Vec<&DataFile> = Vec::new();
        let (mut bin_bytes, mut bin_rows) = (0, 0);
        for file in chosen {
            let size = file.size.unsigned_abs();
            let full = bin_bytes + size > limits.target_file_bytes
                || bin_rows + file.live_rows() > BIN_ROWS_MAX;
            if !bin.is_empty() && full {
                bins.push(std::mem::take(&mut bin));
                (bin_bytes, bin_rows) = (0, 0);
            }
            bin_bytes += size;
            bin_rows += file.live_rows();
            bin.push(file);
        }
        bins.push(bin);
    }
    // One file without deleted rows would only be written again.
    bins.retain(|bin| bin.len() > 1 || bin.iter().any(|file| is_heavy(file, limits)));
    bins
}

/// The files of one partition that are worth rewriting now, within the bytes that are `left`.
fn chosen<'a>(
    files: Vec<&'a DataFile>,
    limits: &CompactLimits,
    left: &mut u64,
) -> Vec<&'a DataFile> {
    let size = |file: &DataFile| file.size.unsigned_abs();
    let (mut small, large): (Vec<_>, Vec<_>) = files
        .into_iter()
        .partition(|file| size(file) < limits.small_file_bytes);
    small.sort_by(|a, b| (a.size, &a.path).cmp(&(b.size, &b.path)));
    let joined = joined(&small, limits);
    let mut chosen = Vec::new();
    for (place, &file) in small.iter().enumerate().take(joined) {
        if size(file) > *left && place >= 2 {
            break;
        }
        *left = left.saturating_sub(size(file));
        chosen.push(file);
    }
    let whole = *left == limits.bytes_max;
    let heavy = small.split_off(joined).into_iter().chain(large);
    let worth = |file: &&DataFile| {
        is_heavy(file, limits) && (!limits.in_tiers || size(file) >= HEAVY_BYTES_MIN)
    };
    for (place, file) in heavy.filter(worth).enumerate() {
        let alone = whole && place == 0;
        if size(file) <= *left || alone {
            *left = left.saturating_sub(size(file));
            chosen.push(file);
        }
    }
    chosen
}

/// How many of the small files, the smallest first, are joined; 0 while they are too few.
fn joined(small: &[&DataFile], limits: &CompactLimits) -> usize {
    let mut count = small.len();
    if limits.in_tiers {
        let mut smaller: i64 = small.iter().map(|file| file.size).sum();
        while let Some(largest) = small[..count].last() {
            smaller -= largest.size;
            if largest.size <= smaller {
                break;
            }
            count -= 1;
        }
    }
    if count < limits.small_files_min.max(2) {
        0
    } else {
        count
    }
}

fn is_heavy(file: &DataFile, limits: &CompactLimits) -> bool {
    file.deleted > 0 && file.deleted as f64 >= limits.deleted_share_min * file.rows as f64
}

fn by_least_value(a: &DataFile, b: &DataFile, order_by: &[String]) -> Ordering {
    fn least<'a>(file: &'a DataFile, order_by: &[String]) -> Option<&'a StatValue> {
        file.range(order_by.first()?).map(|(least, _)| least)
    }
    match (least(a, order_by), least(b, order_by)) {
        (Some(a), Some(b)) => a.compare(b).unwrap_or(Ordering::Equal),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
    .then_with(|| a.path.cmp(&b.path))
}

/// Writes the live rows of the files in order.
async fn rewrite(table: &Table, files: &[&DataFile], order_by: &[String]) -> Result<Vec<Add>> {
    let columns = column_names(&table.schema());
    let mut batches = Vec::new();
    for file in files {
        for scanned in table.scan(file, &columns)? {
            batches.push(scanned?.rows);
        }
    }
    let expected: i64 = files.iter().map(|file| file.live_rows()).sum();
    let rows = sorted(concat_batches(&table.schema(), &batches)?, order_by)?;
    drop(batches);
    let mut adds = table.write_rows(table.schema(), &[rows]).await?;
    let count = |add: &Add| {
        add.stats
            .as_deref()
            .and_then(stats::record_count)
            .unwrap_or(0)
    };
    let written: i64 = adds.iter().map(count).sum();
    if written != expected {
        return Err(Error::bug(format!(
            "BUG: compaction wrote {written} rows of {expected}"
        )));
    }
    for add in &mut adds {
        add.data_change = false;
    }
    Ok(adds)
}

fn sorted(rows: RecordBatch, order_by: &[String]) -> Result<RecordBatch> {
    let mut columns = Vec::with_capacity(order_by.len());
    for name in order_by {
        let values = rows.column_by_name(name).ok_or_else(|| {
            Error::bug(format!(
                "compaction orders by a column that is not there: {name}"
            ))
        })?;
        columns.push(SortColumn {
            values: values.clone(),
            options: None,
        });
    }
    if columns.is_empty() {
        return Ok(rows);
    }
    let order = lexsort_to_indices(&columns, None)?;
    Ok(take_record_batch(&rows, &order)?)
}

/// Whether `every` versions came since the last log checkpoint. Reads nothing from disk.
pub fn log_checkpoint_is_due(table: &Table, every: u64) -> bool {
    table.log_entries_since_checkpoint() >= every
}

/// Writes a log checkpoint, and then deletes log entries older than `retention` that no reader needs any more: what is left
/// begins at a log checkpoint that precedes every young entry and every version from `keep_from` on.
///
/// If the program stops inside, the log reads as before.
pub async fn checkpoint_log(
    table: &mut Table,
    retention: Duration,
    now: Micros,
    keep_from: Option<Version>,
    crash: &CrashSwitch,
) -> Result<LogCleanReport> {
    table.checkpoint_log().await?;
    crash.reach(CrashPoint::AfterLogCheckpoint)?;
    clean_log(table, cutoff(retention, now), keep_from)
}

fn clean_log(table: &Table, cutoff: Micros, keep_from: Option<Version>) -> Result<LogCleanReport> {
    let mut report = LogCleanReport::default();
    if table.property("delta.enableExpiredLogCleanup") == Some("false") {
        return Ok(report);
    }
    let listing = log::list(table.root())?;
    let mut bound = table.version().0;
    if let Some(keep_from) = keep_from {
        bound = bound.min(keep_from.0);
    }
    for (version, (path, _)) in &listing.entries {
        let metadata = fs::metadata(path).map_err(|error| unavailable(path, &error))?;
        if *version >= bound || modified_at(&metadata) >= cutoff {
            bound = bound.min(*version);
            break;
        }
    }
    let older = listing.checkpoints.range(..bound).rev();
    let first = older.into_iter().find(|(_, files)| log::is_whole(files));
    let Some((&first, _)) = first else {
        return Ok(report);
    };
    let remove = |path: &Path| fs::remove_file(path).map_err(|error| unavailable(path, &error));
    for (path, _) in listing.entries.range(..first).map(|(_, entry)| entry) {
        remove(path)?;
        report.entries += 1;
    }
    for path in listing
        .checkpoints
        .range(..first)
        .flat_map(|(_, files)| files)
    {
        remove(path)?;
        report.checkpoints += 1;
    }
    Ok(report)
}

fn cutoff(retention: Duration, now: Micros) -> Micros {
    let retention = i64::try_from(retention.as_micros()).unwrap_or(i64::MAX);
    now.saturating_sub(retention)
}

/// Deletes data, change data and deletion vector files that no version within `retention` names, and leftovers of broken writes;
/// with `dry_run` only lists them. Nothing that is younger than `retention` goes, and nothing that an entry of a version from
/// `keep_from` on names.
///
/// If the program stops inside, only such files are gone.
pub async fn vacuum(
    table: &Table,
    retention: Duration,
    now: Micros,
    keep_from: Option<Version>,
    dry_run: bool,
) -> Result<VacuumReport> {
    if table.has_foreign_commit().await? {
        return Err(Error::new(
            ErrorKind::Conflict,
            format!(
                "table {} has newer versions than this vacuum knows",
                table.root().display()
            ),
        ));
    }
    let cutoff = cutoff(retention, now);
    let named = named_files(table, cutoff, keep_from)?;
    let mut report = VacuumReport::default();
    for (path, size) in old_files(table.root(), cutoff)? {
        let Some(relative) = path.strip_prefix(table.root()).ok().and_then(Path::to_str) else {
            continue;
        };
        if named.contains(relative) {
            continue;
        }
        if !dry_run {
            fs::remove_file(&path).map_err(|error| unavailable(&path, &error))?;
        }
        report.bytes += size;
        report.files.push(relative.to_owned());
    }
    report.files.sort();
    Ok(report)
}

/// Every file that this version, a version since `cutoff` or one from `keep_from` on names.
fn named_files(
    table: &Table,
    cutoff: Micros,
    keep_from: Option<Version>,
) -> Result<BTreeSet<String>> {
    let mut named = BTreeSet::new();
    for file in table.files() {
        name(&mut named, &file.path, file.add.deletion_vector.as_ref())?;
    }
    let listing = log::list(table.root())?;
    let mut reached_old = false;
    for version in (0..=table.version().0).rev() {
        let kept = keep_from.is_some_and(|keep_from| version >= keep_from.0);
        if reached_old && !kept {
            return Ok(named);
        }
        let Some((path, _)) = listing.entries.get(&version) else {
            if reached_old {
                return Ok(named);
            }
            return Err(Error::disagreement(format!(
                "table {}: log entry of version {version} is gone, within the retention of the vacuum",
                table.root().display()
            ))
            .hint("vacuum with a shorter retention than delta.logRetentionDuration"));
        };
        let metadata = fs::metadata(path).map_err(|error| unavailable(path, &error))?;
        // What older entries removed was out of the table before the cutoff.
        reached_old |= modified_at(&metadata) < cutoff;
        if reached_old && !kept {
            return Ok(named);
        }
        let bytes = fs::read(path).map_err(|error| unavailable(path, &error))?;
        let actions = commit::from_bytes(&bytes)
            .map_err(|error| Error::disagreement(format!("{}: {error}", path.display())))?;
        for action in actions {
            if !reached_old || changes_data(&action) {
                name_action(&mut named, &action)?;
            }
        }
    }
    Ok(named)
}

/// Whether who applies a version later reads the file that the action names.
fn changes_data(action: &Action) -> bool {
    match action {
        Action::Add(add) => add.data_change,
        Action::Remove(remove) => remove.data_change,
        Action::Cdc(_)
        | Action::Metadata(_)
        | Action::Protocol(_)
        | Action::Txn(_)
        | Action::CommitInfo(_)
        | Action::DomainMetadata(_) => false,
    }
}

fn name_action(named: &mut BTreeSet<String>, action: &Action) -> Result<()> {
    match action {
        Action::Add(add) => name(named, &add.path, add.deletion_vector.as_ref())?,
        Action::Remove(remove) => name(named, &remove.path, remove.deletion_vector.as_ref())?,
        Action::Cdc(change) => {
            named.insert(change.path.clone());
        }
        Action::Metadata(_)
        | Action::Protocol(_)
        | Action::Txn(_)
        | Action::CommitInfo(_)
        | Action::DomainMetadata(_) => {}
    }
    Ok(())
}

fn name(
    named: &mut BTreeSet<String>,
    path: &str,
    vector: Option<&DeletionVectorDescriptor>,
) -> Result<()> {
    named.insert(path.to_owned());
    if let Some(file) = vector.map(deletion_vector::file_of).transpose()?.flatten() {
        named.insert(file.to_string_lossy().into_owned());
    }
    Ok(())
}

/// The files of the kinds that a table's writers make, last written before `cutoff`.
fn old_files(root: &Path, cutoff: Micros) -> Result<Vec<(PathBuf, u64)>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let in_log = folder.ends_with(LOG);
        for entry in fs::read_dir(&folder).map_err(|error| unavailable(&folder, &error))? {
            let entry = entry.map_err(|error| unavailable(&folder, &error))?;
            let path = entry.path();
            let metadata = entry
                .metadata()
                .map_err(|error| unavailable(&path, &error))?;
            let text = entry.file_name().to_string_lossy().into_owned();
            let reserved = text.starts_with('.') || (text.starts_with('_') && !text.contains('='));
            if metadata.is_dir() {
                if !reserved || (folder == root && (text == CHANGE_FOLDER || text == LOG)) {
                    folders.push(path);
                }
            } else if metadata.is_file()
                && modified_at(&metadata) < cutoff
                && is_ours(&text, in_log)
            {
                found.push((path, metadata.len()));
            }
        }
    }
    Ok(found)
}

/// Data files and vectors outside of the log; leftovers `<name>#<n>` everywhere.
fn is_ours(name: &str, in_log: bool) -> bool {
    let staged = name.rsplit_once('#').is_some_and(|(_, number)| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    });
    let vector = name.starts_with("deletion_vector_") && name.ends_with(".bin");
    let data = name.ends_with(".parquet") && !name.starts_with(['.', '_']);
    staged || (!in_log && (data || vector))
}

/// An unknown time counts as young.
fn modified_at(metadata: &fs::Metadata) -> Micros {
    let since = metadata
        .modified()
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since
        .and_then(|since| i64::try_from(since.as_micros()).ok())
        .unwrap_or(i64::MAX)
}
/// Whether one of the newest log entries is not of this program.
fn others_wrote_lately(table: &Table) -> bool {
    let newest = table.version().0;
    let oldest = (newest - FOREIGN_COMMITS_SEEN + 1).max(0);
    (oldest..=newest).any(|version| {
        let path = table
            .root()
            .join(super::log::LOG)
            .join(format!("{version:020}.json"));
        // An entry that was cleaned away is old.
        fs::read_to_string(path).is_ok_and(|text| !text.contains(super::log::LINES))
    })
}
