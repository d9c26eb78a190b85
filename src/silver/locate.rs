//! Finds the rows of some keys in silver by a scan of the key columns of the files that may hold them.
//!
//! Files are read in parallel; rows in deletion vectors are not seen. Each key has at most one row.

use crate::change::DELETED;
use crate::delta::{ColumnRange, DataFile, Table};
use crate::error::{Error, Result};
use crate::parallel::in_parallel;
use crate::silver::fold::Shape;
use crate::silver::index::{IndexHit, KeyIndex, Lookup};
use crate::silver::plan::SilverPlan;
use crate::silver::pool::{Comparators, EventPool};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::compute::concat_batches;
use arrow::row::Rows;
use std::collections::HashMap;

/// The row of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// Which file of [`Located::files`].
    pub file: u32,
    /// Physical row number in the file.
    pub row: u64,
    /// The flag of a soft delete.
    pub deleted: bool,
    /// Where the sequence of the row stands: which part, which row of the part.
    pub(super) sequence: (u32, u32),
}

/// Where the rows of some keys are, and the rows themselves if they came with it.
pub struct Located {
    /// Paths of the files that have hits, and others.
    pub files: Vec<String>,
    /// For each group of the pool, its row.
    pub hits: Vec<Option<Hit>>,
    pub(super) sequences: Vec<Rows>,
    /// For each hit its row in the columns of silver, in the order of the groups.
    pub(super) rows: Option<RecordBatch>,
}

impl Located {
    /// The sequence of a row.
    pub fn sequence(&self, hit: &Hit) -> arrow::row::Row<'_> {
        self.sequences[hit.sequence.0 as usize].row(hit.sequence.1 as usize)
    }
}

/// Finds the rows of all keys of `pool` in silver.
///
/// Fails with a disagreement when a key has two rows: then something else wrote the table.
pub fn locate(
    table: &Table,
    plan: &SilverPlan,
    comparators: &Comparators,
    pool: &EventPool,
) -> Result<Located> {
    let files = candidates(table, plan, pool);
    if files.is_empty() {
        return Ok(Located {
            files: Vec::new(),
            hits: vec![None; pool.groups.len()],
            sequences: Vec::new(),
            rows: None,
        });
    }
    let scan = KeyScan {
        table,
        plan,
        comparators,
        index: pool.key_index(),
        files: &files,
    };
    let mut located = Located {
        files: files.iter().map(|file| file.path.clone()).collect(),
        hits: vec![None; pool.groups.len()],
        sequences: Vec::new(),
        rows: None,
    };
    for found in in_parallel(files.len(), |file| scan.file(file))? {
        for (group, hit) in found.hits {
            let part = u32::try_from(located.sequences.len()).expect("fewer than 4 billion files");
            let hit = Hit {
                sequence: (part, hit.sequence.1),
                ..hit
            };
            if located.hits[group as usize].replace(hit).is_some() {
                return Err(two_rows(table));
            }
        }
        located.sequences.push(found.sequences);
    }
    Ok(located)
}

/// Finds the rows of all keys of `pool` by the index; `None` where only a scan can tell.
pub fn locate_by_index(
    table: &Table,
    plan: &SilverPlan,
    comparators: &Comparators,
    pool: &EventPool,
    index: &KeyIndex,
) -> Result<Option<Located>> {
    let keys: Vec<&[u8]> = (0..pool.groups.len())
        .map(|group| pool.key(group))
        .collect();
    let mut deleted = |path: &str| {
        table
            .file(path)
            .map(|file| table.deleted_rows(file))
            .transpose()
    };
    let Lookup::Rows(found) = index.lookup(&keys, &mut deleted)? else {
        return Ok(None);
    };
    let hits: Vec<&IndexHit<'_>> = found.iter().flatten().collect();
    let rows = index.rows(table, &hits)?;
    let keys_of_rows = comparators.keys.rows(&plan.key_columns(&rows))?;
    let sequences = comparators.sequence.rows(&plan.sequence_columns(&rows))?;
    let flags = rows
        .column_by_name(DELETED)
        .and_then(|column| column.as_boolean_opt());
    let mut files: Vec<String> = Vec::new();
    let mut numbers: HashMap<&str, u32> = HashMap::new();
    let mut located_hits = Vec::with_capacity(found.len());
    let mut place = 0_usize;
    for (hit, key) in found.iter().zip(&keys) {
        let Some(hit) = hit else {
            located_hits.push(None);
            continue;
        };
        if keys_of_rows.row(place).data() != *key {
            return Ok(None);
        }
        let file = *numbers.entry(hit.file).or_insert_with(|| {
            files.push(hit.file.to_string());
            files.len() as u32 - 1
        });
        let deleted = flags.is_some_and(|flags| flags.is_valid(place) && flags.value(place));
        located_hits.push(Some(Hit {
            file,
            row: hit.row,
            deleted,
            sequence: (0, place as u32),
        }));
        place += 1;
    }
    Ok(Some(Located {
        files,
        hits: located_hits,
        sequences: vec![sequences],
        rows: Some(rows),
    }))
}

/// Reads whole rows of hits in the order given; `columns` may name columns that a file lacks, which are NULL.
pub fn read_rows(
    table: &Table,
    located: &Located,
    hits: &[Hit],
    columns: &[String],
) -> Result<RecordBatch> {
    if let Some(rows) = &located.rows {
        let places: UInt32Array = hits.iter().map(|hit| Some(hit.sequence.1)).collect();
        return Ok(arrow::compute::take_record_batch(rows, &places)?);
    }
    let mut by_file: HashMap<u32, Vec<usize>> = HashMap::new();
    for (place, hit) in hits.iter().enumerate() {
        by_file.entry(hit.file).or_default().push(place);
    }
    let mut groups: Vec<(u32, Vec<usize>)> = by_file.into_iter().collect();
    groups.sort_unstable();
    groups
        .iter_mut()
        .for_each(|(_, places)| places.sort_unstable_by_key(|&place| hits[place].row));
    let parts = in_parallel(groups.len(), |group| {
        let (file, places) = &groups[group];
        let path = &located.files[*file as usize];
        let file = table
            .file(path)
            .ok_or_else(|| Error::bug(format!("file {path} left silver while it was read")))?;
        let rows: Vec<u64> = places.iter().map(|&place| hits[place].row).collect();
        table.take(file, columns, &rows)
    })?;
    let Some(first) = parts.first() else {
        return Err(Error::bug("rows of no hits were asked for"));
    };
    let all = concat_batches(&first.schema(), &parts)?;
    let mut back = vec![0_u32; hits.len()];
    for (row, &place) in groups.iter().flat_map(|(_, places)| places).enumerate() {
        back[place] = u32::try_from(row).expect("fewer than 4 billion rows");
    }
    Ok(arrow::compute::take_record_batch(
        &all,
        &UInt32Array::from(back),
    )?)
}

struct KeyScan<'a> {
    table: &'a Table,
    plan: &'a SilverPlan,
    comparators: &'a Comparators,
    index: HashMap<&'a [u8], u32>,
    files: &'a [&'a DataFile],
}

struct Found {
    hits: Vec<(u32, Hit)>,
    sequences: Rows,
}

impl KeyScan<'_> {
    fn file(&self, file: usize) -> Result<Found> {
        let plan = self.plan;
        let mut columns = plan.names(&plan.keys);
        columns.extend(plan.names(&plan.sequence));
        if plan.shape == Shape::Flagged {
            columns.push(DELETED.into());
        }
        let mut found = Found {
            hits: Vec::new(),
            sequences: self.comparators.sequence.rows(&self.no_rows())?,
        };
        for scanned in self.table.scan(self.files[file], &columns)? {
            let scanned = scanned?;
            self.batch(file, &scanned.rows, &scanned.row_numbers, &mut found)?;
        }
        Ok(found)
    }

    fn batch(
        &self,
        file: usize,
        rows: &RecordBatch,
        numbers: &[u64],
        found: &mut Found,
    ) -> Result<()> {
        let key_count = self.plan.keys.len();
        let keys = self.comparators.keys.rows(&rows.columns()[..key_count])?;
        let hit_rows: Vec<(u32, u32)> = (0..rows.num_rows())
            .filter_map(|row| Some((*self.index.get(keys.row(row).data())?, row as u32)))
            .collect();
        if hit_rows.is_empty() {
            return Ok(());
        }
        let sequence_columns = &rows.columns()[key_count..key_count + self.plan.sequence.len()];
        let sequences = self.comparators.sequence.rows(sequence_columns)?;
        let deleted = rows
            .column_by_name(DELETED)
            .and_then(|column| column.as_boolean_opt());
        for (group, row) in hit_rows {
            let place = row as usize;
            let sequence = (
                0,
                u32::try_from(found.sequences.num_rows()).expect("fewer than 4 billion rows"),
            );
            found.sequences.push(sequences.row(place));
            let deleted = deleted.is_some_and(|flags| flags.is_valid(place) && flags.value(place));
            found.hits.push((
                group,
                Hit {
                    file: file as u32,
                    row: numbers[place],
                    deleted,
                    sequence,
                },
            ));
        }
        Ok(())
    }

    fn no_rows(&self) -> Vec<ArrayRef> {
        let types = self
            .plan
            .sequence
            .iter()
            .map(|&place| self.plan.columns[place].data_type());
        types.map(arrow::array::new_empty_array).collect()
    }
}

/// The files of silver that may hold a key of `pool`.
pub(super) fn candidates<'a>(
    table: &'a Table,
    plan: &SilverPlan,
    pool: &EventPool,
) -> Vec<&'a DataFile> {
    let range =
        |&place: &usize| ColumnRange::of(plan.columns[place].name(), pool.columns[place].as_ref());
    let ranges: Vec<ColumnRange> = plan.keys.iter().filter_map(range).collect();
    table.candidates(&ranges)
}

fn two_rows(table: &Table) -> Error {
    Error::disagreement(format!(
        "silver {} holds two rows of one key",
        table.root().display()
    ))
    .hint("something else wrote the table: run rebuild PIPELINE silver")
}
