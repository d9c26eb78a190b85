//! Computes what new events do to a silver that keeps versions (SCD type 2); writes nothing.
//!
//! Silver shows the versions of a key, not its events: an event that opened no version is nowhere to be seen. So new events
//! go on from the last version only where bronze has no event of the key that comes after them or with them; else all
//! events of the key are folded again.

use crate::change::{END_AT, START_AT};
use crate::delta::{DataFile, Table};
use crate::error::{Error, Result};
use crate::parallel::in_parallel;
use crate::silver::ApplyCounters;
use crate::silver::changes::{self, OldRows, RowChanges, RowPlace};
use crate::silver::fold::{Fold, FoldedRow};
use crate::silver::locate::{self, Hit, Located};
use crate::silver::merge::{self, Merge};
use crate::silver::newer;
use crate::silver::pool;
use crate::silver::scd1::Fates;
use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array, new_empty_array};
use arrow::compute::concat;
use arrow::row::Rows;
use std::collections::HashMap;

/// The versions that silver has of the keys of a pool.
struct Versions {
    located: Located,
    /// For each group of the pool.
    of_group: Vec<Vec<Hit>>,
}

impl Merge<'_> {
    /// The fast path, with the exact one where it is needed.
    pub(super) fn decide_history(&self) -> Result<(RowChanges, ApplyCounters)> {
        let groups: Vec<usize> = (0..self.pool.groups.len()).collect();
        let newer = newer::has_newer(
            self.bronze,
            self.plan,
            self.comparators,
            self.pool,
            &groups,
            self.fresh,
        )?;
        let versions = self.versions()?;
        let (refolds, rest): (Vec<usize>, Vec<usize>) = groups
            .into_iter()
            .partition(|&group| newer[group] || self.is_within(&versions, group));
        let mut fates = Fates::default();
        let going_on = self.going_on(&versions, &rest, &mut fates)?;
        let (refolded, more) = self.refolded_history(&versions, &refolds, true)?;
        fates.add(more);
        let changes = going_on.and(refolded)?;
        let counters = merge::counted(&changes, fates);
        Ok((changes, counters))
    }

    /// The exact path for every key of the pool.
    pub(super) fn refold_history(&self) -> Result<(RowChanges, ApplyCounters)> {
        let groups: Vec<usize> = (0..self.pool.groups.len()).collect();
        let (changes, _) = self.refolded_history(&self.versions()?, &groups, false)?;
        let counters = merge::counted(&changes, Fates::default());
        Ok((changes, counters))
    }

    /// Continues the last version of each group, or starts the first one.
    fn going_on(
        &self,
        versions: &Versions,
        groups: &[usize],
        fates: &mut Fates,
    ) -> Result<RowChanges> {
        let open =
            |&group: &usize| Some((group, *versions.last(group).filter(|last| !last.deleted)?));
        let open: Vec<(usize, Hit)> = groups.iter().filter_map(open).collect();
        let hits: Vec<Hit> = open.iter().map(|(_, hit)| *hit).collect();
        let old_rows = self.read(versions, &hits)?;
        let old_columns = self.plan.columns.iter();
        let old_columns: Vec<ArrayRef> = old_columns
            .map(|field| pool::column_or_null(&old_rows, field.name(), field.data_type()))
            .collect();
        let columns = pool::joined(&self.pool.columns, &old_columns)?;
        let spans = self.spans(&old_rows)?;
        let not_sent = self.pool.not_sent(self.plan, &columns)?;
        let fold = self.pool.fold(self.plan, &columns, &not_sent);
        let first_old = u32::try_from(self.pool.kinds.len()).expect("fewer than 4 billion events");
        let old_of: HashMap<usize, u32> = (0_u32..)
            .zip(&open)
            .map(|(row, (group, _))| (*group, row))
            .collect();
        let (mut inserted, mut updated, mut replaced) = (Vec::new(), Vec::new(), Vec::new());
        for &group in groups {
            let events = self.pool.events(group);
            merge::count_repeats(self.pool, events, &fold.same, fates);
            let Some(&row) = old_of.get(&group) else {
                fold.all(events, &mut inserted);
                continue;
            };
            let old = FoldedRow::old(first_old + row, false);
            let mut rows = Vec::new();
            fold.onto(old, events, &mut rows);
            let continued = rows.remove(0);
            if !self.is_as_before(&fold, &continued, first_old + row) {
                updated.push(continued);
                replaced.push(row);
            }
            inserted.extend(rows);
        }
        let materialize = |rows: &[FoldedRow]| {
            changes::materialize(rows, &columns, Some(&spans), self.plan, &self.schema)
        };
        let places = changes::places(&versions.located, &hits);
        Ok(RowChanges {
            inserted: materialize(&inserted)?,
            updated: materialize(&updated)?,
            replaced_at: replaced
                .iter()
                .map(|&row| places[row as usize].clone())
                .collect(),
            replaced: changes::pick(&old_rows, replaced)?,
            ..RowChanges::none(&self.schema)
        })
    }

    /// Folds all events of some groups again and compares with all their versions.
    fn refolded_history(
        &self,
        versions: &Versions,
        groups: &[usize],
        counts_fates: bool,
    ) -> Result<(RowChanges, Fates)> {
        if groups.is_empty() {
            return Ok((RowChanges::none(&self.schema), Fates::default()));
        }
        let hits: Vec<Hit> = groups
            .iter()
            .flat_map(|&group| &versions.of_group[group])
            .copied()
            .collect();
        let rows = self.read(versions, &hits)?;
        let places: Vec<RowPlace> = changes::places(&versions.located, &hits);
        let old = OldRows::new(
            rows.clone(),
            places,
            &merge::identities(self.plan, self.comparators, &rows)?,
        );
        let keys = merge::keys_of(self.plan, self.pool, groups)?;
        let folded =
            merge::folded_part(self.bronze, self.plan, &self.schema, &keys, self.truncates)?;
        let counted = if counts_fates { groups } else { &[] };
        let fates = merge::fates_of(self.pool, counted, &folded.pool)?;
        let identities = merge::identities(self.plan, self.comparators, &folded.rows)?;
        Ok((changes::difference(&folded.rows, &identities, &old)?, fates))
    }

    /// Whether an event of the group lies within a version that is there, or at its end.
    ///
    /// It can, though bronze has no other event: silver may have seen the new ones already, where it folded a key again.
    fn is_within(&self, versions: &Versions, group: usize) -> bool {
        let first = self.pool.sequences.row(self.pool.events(group)[0] as usize);
        let reaches = |hit: &Hit| {
            versions.located.sequence(hit) >= first
                || versions.end(hit).is_some_and(|end| end >= first)
        };
        versions.of_group[group].iter().any(reaches)
    }

    /// Whether a version that goes on looks as it did: an event within it that changes no stored value writes nothing.
    fn is_as_before(&self, fold: &Fold<'_>, row: &FoldedRow, old: u32) -> bool {
        let same = |column: usize| match row.source(column) {
            Some(source) => fold.same.column(column, source, old),
            None => fold.values.columns[column].is_null(old as usize),
        };
        row.end.is_none() && (0..self.plan.stored()).all(same)
    }

    fn read(&self, versions: &Versions, hits: &[Hit]) -> Result<RecordBatch> {
        if hits.is_empty() {
            return Ok(RecordBatch::new_empty(self.schema.clone()));
        }
        let schema = self.silver.schema();
        let names: Vec<String> = schema
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect();
        let rows = locate::read_rows(self.silver, &versions.located, hits, &names)?;
        changes::widened(&rows, &self.schema)
    }

    /// The sequence of each event, and the start of each old version behind them.
    pub(super) fn spans(&self, old_rows: &RecordBatch) -> Result<ArrayRef> {
        let events = self.plan.spans(&self.pool.columns)?;
        match old_rows.column_by_name(START_AT) {
            Some(starts) if !starts.is_empty() => Ok(concat(&[events.as_ref(), starts.as_ref()])?),
            _ => Ok(events),
        }
    }

    fn versions(&self) -> Result<Versions> {
        let files = locate::candidates(self.silver, self.plan, self.pool);
        let group_of = self.pool.key_index();
        let found = in_parallel(files.len(), |file| self.versions_in(files[file], &group_of))?;
        let mut versions = Versions {
            located: Located {
                files: files.iter().map(|file| file.path.clone()).collect(),
                hits: Vec::new(),
                sequences: Vec::new(),
                rows: None,
            },
            of_group: vec![Vec::new(); self.pool.groups.len()],
        };
        for (file, (hits, spans)) in (0_u32..).zip(found) {
            for (group, hit) in hits {
                let sequence = (file, hit.sequence.1);
                versions.of_group[group as usize].push(Hit {
                    file,
                    sequence,
                    ..hit
                });
            }
            versions.located.sequences.push(spans);
        }
        Ok(versions)
    }

    /// The versions of one file: starts and ends in turn. The flag of a hit says that the version has ended.
    fn versions_in(
        &self,
        file: &DataFile,
        group_of: &HashMap<&[u8], u32>,
    ) -> Result<(Vec<(u32, Hit)>, Rows)> {
        let mut columns = self.plan.names(&self.plan.keys);
        columns.extend([START_AT.to_string(), END_AT.to_string()]);
        let none = self.plan.sequence.iter();
        let none: Vec<ArrayRef> = none
            .map(|&place| new_empty_array(self.plan.columns[place].data_type()))
            .collect();
        let mut spans = self.comparators.sequence.rows(&none)?;
        let mut hits = Vec::new();
        for scanned in self.silver.scan(file, &columns)? {
            let scanned = scanned?;
            let (keys, ends) = scanned.rows.columns().split_at(self.plan.keys.len());
            let keys = self.comparators.keys.rows(keys)?;
            let found: Vec<(u32, u32)> = (0..scanned.rows.num_rows())
                .filter_map(|row| Some((*group_of.get(keys.row(row).data())?, row as u32)))
                .collect();
            if found.is_empty() {
                continue;
            }
            let places: UInt32Array = found.iter().map(|(_, row)| Some(*row)).collect();
            let [starts, ends] = [&ends[0], &ends[1]].map(|column| pool::gather(column, &places));
            let (starts, ends) = (starts?, ends?);
            if starts.null_count() > 0 {
                return Err(no_start(self.silver));
            }
            let rows_of = |span: &ArrayRef| {
                self.comparators
                    .sequence
                    .rows(&self.plan.sequence_of_span(span))
            };
            let (start_rows, end_rows) = (rows_of(&starts)?, rows_of(&ends)?);
            for (place, (group, row)) in found.into_iter().enumerate() {
                let sequence = u32::try_from(spans.num_rows()).expect("fewer than 4 billion rows");
                spans.push(start_rows.row(place));
                spans.push(end_rows.row(place));
                hits.push((
                    group,
                    Hit {
                        file: 0,
                        row: scanned.row_numbers[row as usize],
                        deleted: ends.is_valid(place),
                        sequence: (0, sequence),
                    },
                ));
            }
        }
        Ok((hits, spans))
    }
}

impl Versions {
    /// The version of the group with the greatest start.
    fn last(&self, group: usize) -> Option<&Hit> {
        let starts = |hit: &&Hit| self.located.sequence(hit);
        self.of_group[group].iter().max_by_key(starts)
    }

    /// Where a version ends, if it does.
    fn end(&self, hit: &Hit) -> Option<arrow::row::Row<'_>> {
        let (part, row) = hit.sequence;
        let end = || self.located.sequences[part as usize].row(row as usize + 1);
        hit.deleted.then(end)
    }
}

fn no_start(silver: &Table) -> Error {
    Error::disagreement(format!(
        "silver {} holds a version without a start",
        silver.root().display()
    ))
    .hint("something else wrote the table: run rebuild PIPELINE silver")
}
