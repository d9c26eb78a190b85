//! The key index: where the row of a key stands in silver, and what is in it, without a look at silver.
//!
//! A cache in a folder beside the checkpoint, made of what silver's log and files say; it can be lost, stale or deleted at any
//! time. It is a chain of runs, each for the rows that a span of versions brought; the newest entry of a key counts. It is of
//! use only at the very version of the table: [`KeyIndex::catch_up`] reads the files that newer versions added. Each hit is
//! checked against the table (its file is there, its row not deleted) and against the key itself, so a collision of hashes
//! leads to the scan, never to a wrong row.

mod run;

use crate::change::Version;
use crate::delta::{DataFile, Table};
use crate::error::{Error, Result};
use crate::silver::plan::SilverPlan;
use crate::silver::pool::Comparators;
use arrow::array::RecordBatch;
use arrow::row::{RowConverter, SortField};
use deltalake::kernel::Action;
use roaring::RoaringTreemap;
use run::{Run, RunWriter, Stamp};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// More runs than this are merged, the newest ones of like size.
const RUNS_MAX: usize = 8;
/// Newer versions that added more than this share of the table's rows are not caught up with one by one: a new index is made.
const CATCH_UP_SHARE_MAX: f64 = 0.5;

/// An open index.
#[derive(Debug)]
pub struct KeyIndex {
    folder: PathBuf,
    stamp: Stamp,
    images: RowConverter,
    /// The oldest first.
    runs: Vec<Run>,
    version: Version,
}

/// The row of a key.
pub struct IndexHit<'a> {
    /// The data file.
    pub file: &'a str,
    /// The physical row number.
    pub row: u64,
    image: &'a [u8],
}

/// What a lookup says.
pub enum Lookup<'a> {
    /// For each key its row, if it has one.
    Rows(Vec<Option<IndexHit<'a>>>),
    /// The index cannot tell; only a scan can.
    Unsure,
}

impl KeyIndex {
    /// Opens the index in `folder` as far as it fits the table; `None` where there is none that does.
    pub fn open(folder: &Path, table: &Table, plan: &SilverPlan) -> Result<Option<KeyIndex>> {
        let Some(images) = image_converter(table)? else {
            return Ok(None);
        };
        let Some((spans, last)) = chain(folder)? else {
            return Ok(None);
        };
        let mut runs = Vec::new();
        for path in &spans {
            match Run::open(path)? {
                Some(run) => runs.push(run),
                None => return Ok(None),
            }
        }
        let Some(first) = runs.first() else {
            return Ok(None);
        };
        let stamp = Stamp {
            seed: first.stamp().seed,
            table: table_stamp(table, plan),
        };
        let fits = last <= table.version().0 && runs.iter().all(|run| run.stamp() == stamp);
        let index = KeyIndex {
            folder: folder.to_path_buf(),
            stamp,
            images,
            runs,
            version: Version(last),
        };
        Ok(fits.then_some(index))
    }

    /// Makes the index of a table, in place of whatever is in `folder`. `None` where rows have a type without an image.
    pub fn build(
        folder: &Path,
        table: &Table,
        plan: &SilverPlan,
        comparators: &Comparators,
    ) -> Result<Option<KeyIndex>> {
        remove(folder)?;
        let Some(images) = image_converter(table)? else {
            return Ok(None);
        };
        fs::create_dir_all(folder).map_err(|error| unusable(folder, &error))?;
        let version = table.version();
        let stamp = Stamp {
            seed: new_seed(),
            table: table_stamp(table, plan),
        };
        let mut index = KeyIndex {
            folder: folder.to_path_buf(),
            stamp,
            images,
            runs: Vec::new(),
            version,
        };
        let mut writer = RunWriter::create(&run_path(folder, 0, version.0))?;
        for file in table.files() {
            index.add_file(&mut writer, table, plan, comparators, file)?;
        }
        index.runs.push(writer.finish(stamp)?);
        Ok(Some(index))
    }

    /// The version of the table that the index knows.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Whether newer versions outgrew the first run, so that a new index would be smaller.
    pub fn is_overgrown(&self) -> bool {
        let newer: usize = self.runs.iter().skip(1).map(Run::len).sum();
        self.runs.first().is_none_or(|first| newer > first.len())
    }

    /// Reads what the versions after the index's own added. `fresh` are rows just written: a data file and all its rows in
    /// their order, which need not be read again. `false` where a new index would be cheaper.
    pub async fn catch_up(
        &mut self,
        table: &Table,
        plan: &SilverPlan,
        comparators: &Comparators,
        fresh: Option<(&str, &RecordBatch)>,
    ) -> Result<bool> {
        if table_stamp(table, plan) != self.stamp.table {
            return Ok(false);
        }
        let mut added: Vec<&DataFile> = Vec::new();
        for version in self.version.0 + 1..=table.version().0 {
            for action in table.commit_actions(Version(version)).await? {
                let Action::Add(add) = action else { continue };
                let is_known =
                    added.iter().any(|file| file.path == add.path) || self.knows(&add.path);
                added.extend(table.file(&add.path).filter(|_| !is_known));
            }
        }
        let rows: i64 = added.iter().map(|file| file.live_rows()).sum();
        if rows as f64 > CATCH_UP_SHARE_MAX * table.row_count() as f64 {
            return Ok(false);
        }
        let (from, to) = (self.version.0 + 1, table.version().0);
        if !added.is_empty() {
            let mut writer = RunWriter::create(&run_path(&self.folder, from, to))?;
            for file in added {
                match fresh.filter(|(path, _)| *path == file.path) {
                    Some((path, rows)) => {
                        let numbers: Vec<u64> = (0..rows.num_rows() as u64).collect();
                        let file = writer.file(path);
                        self.add_rows(&mut writer, plan, comparators, file, rows, &numbers)?;
                    }
                    None => self.add_file(&mut writer, table, plan, comparators, file)?,
                }
            }
            self.runs.push(writer.finish(self.stamp)?);
        } else if to >= from {
            self.extend_last(to)?;
        }
        self.version = Version(to);
        self.merge_runs()?;
        Ok(true)
    }

    /// Looks keys up; `deleted` gives the deleted rows of a file of the table, `None` if the table has no such file.
    pub fn lookup<'a>(
        &'a self,
        keys: &[&[u8]],
        deleted: &mut dyn FnMut(&str) -> Result<Option<RoaringTreemap>>,
    ) -> Result<Lookup<'a>> {
        let mut vectors: HashMap<&'a str, Option<RoaringTreemap>> = HashMap::new();
        let mut rows = Vec::with_capacity(keys.len());
        for key in keys {
            let hash = self.hash(key);
            let found = self.runs.iter().rev().find_map(|run| {
                let mut entries = run.find(hash);
                let entry = entries.next()?;
                Some((run, entry, entries.next().is_some()))
            });
            let Some((run, entry, collides)) = found else {
                rows.push(None);
                continue;
            };
            let (Some(file), Some(image), false) = (run.file(&entry), run.image(&entry), collides)
            else {
                return Ok(Lookup::Unsure);
            };
            if !vectors.contains_key(file) {
                vectors.insert(file, deleted(file)?);
            }
            let row = u64::from(entry.row);
            let is_live = vectors[file]
                .as_ref()
                .is_some_and(|deleted| !deleted.contains(row));
            rows.push(is_live.then_some(IndexHit { file, row, image }));
        }
        Ok(Lookup::Rows(rows))
    }

    /// The rows of hits, in the columns of the table.
    pub fn rows(&self, table: &Table, hits: &[&IndexHit<'_>]) -> Result<RecordBatch> {
        let parser = self.images.parser();
        let columns = self
            .images
            .convert_rows(hits.iter().map(|hit| parser.parse(hit.image)))?;
        let options = arrow::array::RecordBatchOptions::new().with_row_count(Some(hits.len()));
        Ok(RecordBatch::try_new_with_options(
            table.schema(),
            columns,
            &options,
        )?)
    }

    fn knows(&self, path: &str) -> bool {
        // A file that gets a deletion vector is added again under its own name; its rows are known.
        self.runs.iter().any(|run| run.has_file(path))
    }

    fn add_file(
        &self,
        writer: &mut RunWriter,
        table: &Table,
        plan: &SilverPlan,
        comparators: &Comparators,
        file: &DataFile,
    ) -> Result<()> {
        let names: Vec<String> = table
            .schema()
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect();
        let number = writer.file(&file.path);
        for scanned in table.scan(file, &names)? {
            let scanned = scanned?;
            self.add_rows(
                writer,
                plan,
                comparators,
                number,
                &scanned.rows,
                &scanned.row_numbers,
            )?;
        }
        Ok(())
    }

    fn add_rows(
        &self,
        writer: &mut RunWriter,
        plan: &SilverPlan,
        comparators: &Comparators,
        file: u32,
        rows: &RecordBatch,
        numbers: &[u64],
    ) -> Result<()> {
        let keys = comparators.keys.rows(&plan.key_columns(rows))?;
        let images = self.images.convert_columns(rows.columns())?;
        for (place, number) in numbers.iter().enumerate() {
            let row = u32::try_from(*number)
                .map_err(|_| Error::bug("a data file has over 4 billion rows"))?;
            writer.add(
                self.hash(keys.row(place).data()),
                file,
                row,
                images.row(place).data(),
            )?;
        }
        Ok(())
    }

    /// The last run covers later versions too, which added nothing.
    fn extend_last(&mut self, to: i64) -> Result<()> {
        let Some(last) = self.runs.pop() else {
            return Ok(());
        };
        let from = span(last.path()).map_or(0, |(from, _)| from);
        let target = run_path(&self.folder, from, to);
        fs::rename(last.path(), &target).map_err(|error| unusable(&target, &error))?;
        self.runs.extend(Run::open(&target)?);
        Ok(())
    }

    /// Keeps the number of runs small: the newest runs become one until each run is about twice as large as all newer ones.
    fn merge_runs(&mut self) -> Result<()> {
        if self.runs.len() <= RUNS_MAX {
            return Ok(());
        }
        let mut first = self.runs.len() - 1;
        let mut newer = self.runs[first].len();
        while first > 1 && self.runs[first - 1].len() <= 2 * newer {
            first -= 1;
            newer += self.runs[first].len();
        }
        if first + 1 >= self.runs.len() {
            return Ok(());
        }
        let merged: Vec<Run> = self.runs.drain(first..).collect();
        let from = merged
            .first()
            .and_then(|run| span(run.path()))
            .map_or(0, |(from, _)| from);
        let target = run_path(&self.folder, from, self.version.0);
        let mut writer = RunWriter::create(&target)?;
        let mut seen = std::collections::HashSet::new();
        for run in merged.iter().rev() {
            // The names of all files stay, so that their rows stay known.
            run.files().iter().for_each(|file| {
                writer.file(file);
            });
            let mut in_run = Vec::new();
            for entry in run.iter().filter(|entry| !seen.contains(&entry.hash)) {
                let (Some(file), Some(image)) = (run.file(&entry), run.image(&entry)) else {
                    continue;
                };
                let file = writer.file(file);
                writer.add(entry.hash, file, entry.row, image)?;
                in_run.push(entry.hash);
            }
            seen.extend(in_run);
        }
        self.runs.push(writer.finish(self.stamp)?);
        for run in merged.iter().filter(|run| run.path() != target) {
            fs::remove_file(run.path()).map_err(|error| unusable(run.path(), &error))?;
        }
        Ok(())
    }

    fn hash(&self, key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, self.stamp.seed)
    }
}

/// Removes an index; there need not be one.
pub fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(unusable(folder, &error)),
        _ => Ok(()),
    }
}

/// The paths of runs that follow one another, and the last version; files beside the chain are removed.
fn chain(folder: &Path) -> Result<Option<(Vec<PathBuf>, i64)>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        entries => entries.map_err(|error| unusable(folder, &error))?,
    };
    let mut spans = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| unusable(folder, &error))?.path();
        spans.extend(span(&path).map(|(from, to)| (from, -to, path)));
    }
    // Of two runs that start at one version the longer one replaced the other.
    spans.sort();
    let (mut paths, mut next) = (Vec::new(), 0);
    for (from, to, path) in spans {
        if from == next {
            paths.push(path);
            next = 1 - to;
        } else {
            fs::remove_file(&path).map_err(|error| unusable(&path, &error))?;
        }
    }
    Ok((next > 0).then_some((paths, next - 1)))
}

/// The versions of a run, both ends included, as its name says.
fn span(path: &Path) -> Option<(i64, i64)> {
    let name = path.file_name()?.to_str()?.strip_suffix(".keys")?;
    let (from, to) = name.split_once('-')?;
    Some((from.parse().ok()?, to.parse().ok()?))
}

fn run_path(folder: &Path, from: i64, to: i64) -> PathBuf {
    folder.join(format!("{from:020}-{to:020}.keys"))
}

/// Turns whole rows into bytes and back; `None` where a column has a type that this cannot do.
fn image_converter(table: &Table) -> Result<Option<RowConverter>> {
    let schema = table.schema();
    let fields: Vec<SortField> = schema
        .fields()
        .iter()
        .map(|field| SortField::new(field.data_type().clone()))
        .collect();
    if !RowConverter::supports_fields(&fields) {
        return Ok(None);
    }
    Ok(Some(RowConverter::new(fields)?))
}

fn table_stamp(table: &Table, plan: &SilverPlan) -> u64 {
    let mut text = table.id().to_string();
    for field in table.schema().fields() {
        text += &format!("|{}:{}", field.name(), field.data_type());
    }
    plan.names(&plan.keys)
        .iter()
        .for_each(|name| text += &format!("|key {name}"));
    xxh3_64(text.as_bytes())
}

fn new_seed() -> u64 {
    uuid::Uuid::new_v4().as_u64_pair().0
}

fn unusable(path: &Path, error: &std::io::Error) -> Error {
    Error::unavailable(format!("key index {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delta::{Operation, TableCommit, TableSpec};
    use crate::settings::{FlagValue, Request, Settings};
    use arrow::array::{ArrayRef, AsArray, BooleanArray, Int64Array, StringArray};
    use arrow::datatypes::Int64Type;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn rows(keys: &[i64], status: &str) -> RecordBatch {
        let columns: [(&str, ArrayRef, bool); 4] = [
            ("id", Arc::new(Int64Array::from(keys.to_vec())), true),
            (
                "status",
                Arc::new(StringArray::from(vec![status; keys.len()])),
                true,
            ),
            ("seq", Arc::new(Int64Array::from(keys.to_vec())), true),
            (
                "deleted",
                Arc::new(BooleanArray::from(vec![false; keys.len()])),
                true,
            ),
        ];
        RecordBatch::try_from_iter_with_nullable(columns).unwrap()
    }

    async fn silver(folder: &Path, keys: &[i64]) -> Table {
        let rows = rows(keys, "old");
        let spec = TableSpec {
            schema: rows.schema(),
            partition_by: Vec::new(),
            change_data_feed: true,
            deletion_vectors: true,
            name: None,
            description: None,
            properties: BTreeMap::new(),
        };
        let mut table = Table::create(&folder.join("silver"), &spec).await.unwrap();
        add(&mut table, &rows).await;
        table
    }

    async fn add(table: &mut Table, rows: &RecordBatch) -> String {
        let mut commit = TableCommit::new(Operation::Merge);
        commit.adds = table
            .write_rows(rows.schema(), std::slice::from_ref(rows))
            .await
            .unwrap();
        let path = commit.adds[0].path.clone();
        let _ = table.commit(commit).await.unwrap();
        path
    }

    fn plan(table: &Table, folder: &Path) -> (SilverPlan, Comparators) {
        let flag = |key: &'static str, text: String| FlagValue {
            key,
            flag: key.into(),
            text,
        };
        let at = |name: &str| folder.join(name).display().to_string();
        let request = Request {
            name: Some("p".into()),
            flags: vec![
                flag("source.path", at("landing")),
                flag("checkpoint", at("c.db")),
                flag("bronze.path", at("bronze")),
                flag("silver.path", at("silver")),
                flag("silver.keys", "id".into()),
                flag("silver.sequence_by", "seq".into()),
            ],
            ..Request::in_folder(folder)
        };
        let settings = Settings::load(&request)
            .unwrap()
            .pipelines
            .remove(0)
            .silver
            .unwrap();
        let plan = SilverPlan::resolve(&settings, None, &table.schema())
            .unwrap()
            .unwrap();
        let comparators = Comparators::new(&plan).unwrap();
        (plan, comparators)
    }

    /// For each key, whether it is there and what its status is.
    fn look_up(
        index: &KeyIndex,
        table: &Table,
        plan: &SilverPlan,
        comparators: &Comparators,
        keys: &[i64],
    ) -> Vec<Option<String>> {
        let comparable = comparators
            .keys
            .rows(&plan.key_columns(&rows(keys, "")))
            .unwrap();
        let keys: Vec<&[u8]> = (0..keys.len())
            .map(|row| comparable.row(row).data())
            .collect();
        let mut deleted = |path: &str| {
            table
                .file(path)
                .map(|file| table.deleted_rows(file))
                .transpose()
        };
        let Lookup::Rows(found) = index.lookup(&keys, &mut deleted).unwrap() else {
            panic!("unsure")
        };
        let status = |hit: &IndexHit<'_>| {
            let row = index.rows(table, &[hit]).unwrap();
            let stored = table
                .take(table.file(hit.file).unwrap(), &["id".into()], &[hit.row])
                .unwrap();
            assert_eq!(
                stored.column(0).as_primitive::<Int64Type>().value(0),
                row.column(0).as_primitive::<Int64Type>().value(0)
            );
            row.column(1).as_string::<i32>().value(0).to_string()
        };
        found.iter().map(|hit| hit.as_ref().map(status)).collect()
    }

    fn some(status: &str) -> Option<String> {
        Some(status.to_string())
    }

    #[tokio::test]
    async fn index_that_is_missing_cut_or_of_another_table_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let table = silver(folder.path(), &[1, 2]).await;
        let (plan, comparators) = plan(&table, folder.path());
        let keys = folder.path().join("keys");
        assert!(KeyIndex::open(&keys, &table, &plan).unwrap().is_none());
        KeyIndex::build(&keys, &table, &plan, &comparators)
            .unwrap()
            .unwrap();
        assert!(KeyIndex::open(&keys, &table, &plan).unwrap().is_some());
        let elsewhere = tempfile::tempdir().unwrap();
        let other = silver(elsewhere.path(), &[1, 2]).await;
        assert!(KeyIndex::open(&keys, &other, &plan).unwrap().is_none());
        let run = fs::read_dir(&keys).unwrap().next().unwrap().unwrap().path();
        let bytes = fs::read(&run).unwrap();
        fs::write(&run, &bytes[..bytes.len() / 2]).unwrap();
        assert!(KeyIndex::open(&keys, &table, &plan).unwrap().is_none());
    }

    #[tokio::test]
    async fn deleted_row_is_absent_and_the_newest_row_of_a_key_counts() {
        let folder = tempfile::tempdir().unwrap();
        let mut table = silver(folder.path(), &[1, 2, 3, 4, 5, 6]).await;
        let (plan, comparators) = plan(&table, folder.path());
        let mut index = KeyIndex::build(&folder.path().join("keys"), &table, &plan, &comparators)
            .unwrap()
            .unwrap();
        let first = table.files().next().unwrap().path.clone();
        let gone = BTreeMap::from([(first, RoaringTreemap::from_iter([1, 2]))]);
        let (removes, mut adds) = table.delete_rows(&gone).await.unwrap();
        let fresh = rows(&[2, 9], "new");
        adds.extend(
            table
                .write_rows(fresh.schema(), std::slice::from_ref(&fresh))
                .await
                .unwrap(),
        );
        let mut commit = TableCommit::new(Operation::Merge);
        (commit.removes, commit.adds) = (removes, adds);
        let _ = table.commit(commit).await.unwrap();
        assert!(
            index
                .catch_up(&table, &plan, &comparators, None)
                .await
                .unwrap()
        );
        let found = look_up(&index, &table, &plan, &comparators, &[1, 2, 3, 9, 7]);
        assert_eq!(found, [some("old"), some("new"), None, some("new"), None]);
    }

    #[tokio::test]
    async fn many_versions_merge_into_few_runs_and_open_as_they_were() {
        let folder = tempfile::tempdir().unwrap();
        let all: Vec<i64> = (0..200).collect();
        let mut table = silver(folder.path(), &all).await;
        let (plan, comparators) = plan(&table, folder.path());
        let keys = folder.path().join("keys");
        let mut index = KeyIndex::build(&keys, &table, &plan, &comparators)
            .unwrap()
            .unwrap();
        for version in 0..40_i64 {
            let fresh = rows(&[1_000 + version], "new");
            let path = add(&mut table, &fresh).await;
            assert!(
                index
                    .catch_up(&table, &plan, &comparators, Some((&path, &fresh)))
                    .await
                    .unwrap()
            );
        }
        assert!(
            index.runs.len() <= RUNS_MAX + 1,
            "{} runs",
            index.runs.len()
        );
        drop(index);
        let index = KeyIndex::open(&keys, &table, &plan).unwrap().unwrap();
        assert_eq!(index.version(), table.version());
        let wanted: Vec<i64> = (0..200).chain(1_000..1_040).collect();
        let found = look_up(&index, &table, &plan, &comparators, &wanted);
        assert!(found.iter().all(Option::is_some));
        assert_eq!(
            look_up(&index, &table, &plan, &comparators, &[5_000]),
            [None]
        );
    }

    #[tokio::test]
    async fn version_that_brought_most_rows_is_not_caught_up_with() {
        let folder = tempfile::tempdir().unwrap();
        let mut table = silver(folder.path(), &[1]).await;
        let (plan, comparators) = plan(&table, folder.path());
        let mut index = KeyIndex::build(&folder.path().join("keys"), &table, &plan, &comparators)
            .unwrap()
            .unwrap();
        add(&mut table, &rows(&[2, 3, 4], "new")).await;
        assert!(
            !index
                .catch_up(&table, &plan, &comparators, None)
                .await
                .unwrap()
        );
    }
}
