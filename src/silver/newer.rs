//! Tells whether bronze holds events of a key that are not older than its new ones.
//!
//! Where silver has no row of a key, or only versions, its last event cannot be seen there: a hard delete leaves nothing,
//! and an event that changes nothing shows nowhere. Files are skipped by the statistics of keys and sequence, so a feed
//! that arrives roughly in order costs a look at few files, or at none.

use crate::delta::{ColumnRange, DataFile, Table};
use crate::error::Result;
use crate::parallel::in_parallel;
use crate::silver::plan::SilverPlan;
use crate::silver::pool::{Comparators, EventPool, gather};
use crate::silver::truncates::Truncates;
use arrow::array::{ArrayRef, UInt32Array};
use std::collections::{HashMap, HashSet};

/// Whether the new of `truncates` come after every event of bronze outside of `fresh`, as the statistics of its files tell.
pub(super) fn comes_last(
    bronze: &Table,
    plan: &SilverPlan,
    truncates: &Truncates,
    fresh: &HashSet<&str>,
) -> bool {
    if !truncates.has_new() {
        return true;
    }
    let name = plan.columns[plan.sequence[0]].name();
    let from = ColumnRange::from(name, truncates.first_new().as_ref());
    let ranges: Vec<ColumnRange> = from.into_iter().collect();
    let is_fresh = |file: &&DataFile| fresh.contains(file.path.as_str());
    // Without a range every file may reach so far.
    bronze.candidates(&ranges).iter().all(is_fresh)
}

/// For each group of `pool`, whether a file of bronze outside of `fresh` may hold an event of its key whose sequence is
/// not below the first of the group. Only `groups` are looked for.
///
/// A row that is no event by the rules counts as one; the caller then folds all events of the key, which is right too.
pub(super) fn has_newer(
    bronze: &Table,
    plan: &SilverPlan,
    comparators: &Comparators,
    pool: &EventPool,
    groups: &[usize],
    fresh: &HashSet<&str>,
) -> Result<Vec<bool>> {
    let mut newer = vec![false; pool.groups.len()];
    if groups.is_empty() {
        return Ok(newer);
    }
    let names = plan.names(&plan.keys);
    let keys = first_of(&plan.keys, pool, groups)?;
    let files = candidates(bronze, plan, pool, groups, fresh)?;
    let of_key: HashMap<&[u8], usize> = groups
        .iter()
        .map(|&group| (pool.key(group), group))
        .collect();
    let found = in_parallel(files.len(), |file| {
        match bronze.may_hold(files[file], &names, &keys)? {
            true => newer_in(bronze, files[file], plan, comparators, pool, &of_key),
            false => Ok(HashSet::new()),
        }
    })?;
    for group in found.into_iter().flatten() {
        newer[group] = true;
    }
    Ok(newer)
}

fn newer_in(
    bronze: &Table,
    file: &DataFile,
    plan: &SilverPlan,
    comparators: &Comparators,
    pool: &EventPool,
    of_key: &HashMap<&[u8], usize>,
) -> Result<HashSet<usize>> {
    let mut columns = plan.names(&plan.keys);
    columns.extend(plan.names(&plan.sequence));
    let mut found = HashSet::new();
    for scanned in bronze.scan(file, &columns)? {
        let rows = scanned?.rows;
        let (keys, sequences) = rows.columns().split_at(plan.keys.len());
        let keys = comparators.keys.rows(keys)?;
        let hits: Vec<(u32, usize)> = (0..rows.num_rows())
            .filter_map(|row| Some((row as u32, *of_key.get(keys.row(row).data())?)))
            .collect();
        if hits.is_empty() {
            continue;
        }
        let places: UInt32Array = hits.iter().map(|(row, _)| Some(*row)).collect();
        let of_hits = sequences.iter().map(|column| gather(column, &places));
        let of_hits = comparators
            .sequence
            .rows(&of_hits.collect::<Result<Vec<_>>>()?)?;
        for (hit, (_, group)) in hits.iter().enumerate() {
            let first = pool.events(*group)[0] as usize;
            if of_hits.row(hit) >= pool.sequences.row(first) {
                found.insert(*group);
            }
        }
    }
    Ok(found)
}

fn candidates<'a>(
    bronze: &'a Table,
    plan: &SilverPlan,
    pool: &EventPool,
    groups: &[usize],
    fresh: &HashSet<&str>,
) -> Result<Vec<&'a DataFile>> {
    let mut ranges = Vec::new();
    for (&place, keys) in plan.keys.iter().zip(first_of(&plan.keys, pool, groups)?) {
        ranges.extend(ColumnRange::of(plan.columns[place].name(), keys.as_ref()));
    }
    let first = plan.sequence[0];
    for sequences in first_of(&[first], pool, groups)? {
        let name = plan.columns[first].name();
        ranges.extend(ColumnRange::from(name, sequences.as_ref()));
    }
    let files = bronze.candidates(&ranges).into_iter();
    Ok(files
        .filter(|file| !fresh.contains(file.path.as_str()))
        .collect())
}

/// The columns at `places` of the first event of each group.
fn first_of(places: &[usize], pool: &EventPool, groups: &[usize]) -> Result<Vec<ArrayRef>> {
    let firsts: UInt32Array = groups
        .iter()
        .map(|&group| Some(pool.events(group)[0]))
        .collect();
    let column = |&place: &usize| gather(&pool.columns[place], &firsts);
    places.iter().map(column).collect()
}
