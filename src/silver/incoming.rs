//! The rows that one version of bronze brought, cut into parts by ranges of keys so that an apply of any size fits in
//! memory. All events of a key are in one part.

use crate::delta::{DataFile, Table, VersionFiles};
use crate::error::Result;
use crate::parallel::{cores, in_parallel, lock};
use crate::silver::order::prefix;
use crate::silver::pieces::{Piece, pieces};
use crate::silver::plan::SilverPlan;
use crate::silver::pool::Comparators;
use crate::silver::refold;
use crate::silver::sift::{Hidden, Present, Sifted, sift};
use crate::silver::truncates::Truncates;
use arrow::array::{RecordBatch, UInt32Array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::take_record_batch;
use arrow::datatypes::SchemaRef;
use arrow::row::OwnedRow;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Mutex;

/// Versions with more events are read several times, so many events each time.
const HELD_EVENTS_MAX: usize = if cfg!(debug_assertions) {
    60
} else {
    4_000_000
};
/// About so many events are written together.
const FILE_EVENTS_MAX: usize = 500_000;
/// About so many are folded at once where nothing else is to be read: they stay in the cache of a core.
const SMALL_PART_EVENTS_MAX: usize = 125_000;
/// Keys that are looked at for each part, to find where the ranges begin.
const SAMPLES_OF_PART: usize = 500;

/// How the events of an apply are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// About so many events are a part.
    part_events_max: usize,
    /// So many parts are written together.
    parts_of_file: usize,
}

impl Cut {
    /// For a silver that has rows or none: where it has, each part looks for the rows of its keys.
    pub(super) fn beside(silver_rows: i64) -> Cut {
        let part_events_max = match silver_rows {
            0 => SMALL_PART_EVENTS_MAX,
            _ => FILE_EVENTS_MAX,
        };
        Cut {
            part_events_max,
            parts_of_file: FILE_EVENTS_MAX / part_events_max,
        }
    }

    /// How many parts so many events are cut into, and how many of them are written together: as many files for each core that
    /// writes some, and as many parts for each file, so that no core waits for the last. A debug build cuts small applies too,
    /// so that tests cross the bounds.
    fn fitted(self, events: usize) -> (usize, Cut) {
        let for_each_core = |count: usize| count.next_multiple_of(cores().min(count));
        let parts = match events {
            9..100 if cfg!(debug_assertions) => return (self.parts_of_file + 2, self),
            _ => events.div_ceil(self.part_events_max).max(1),
        };
        let files = for_each_core(parts.div_ceil(self.parts_of_file));
        let parts_of_file = match files {
            1 => for_each_core(parts),
            _ => parts.div_ceil(files),
        };
        let cut = Cut {
            parts_of_file,
            ..self
        };
        (files * parts_of_file, cut)
    }

    /// So many parts are in memory at once.
    fn held_parts_max(&self) -> usize {
        match cfg!(debug_assertions) {
            true => 2,
            false => HELD_EVENTS_MAX / self.part_events_max,
        }
    }
}

/// The rows of one version of bronze.
pub(super) struct Incoming<'b> {
    bronze: &'b Table,
    /// Of all rows.
    pub(super) schema: SchemaRef,
    files: Vec<DataFile>,
    pieces: Vec<Piece>,
    /// The rows that count, one bit for each, where that was looked for.
    kept: Option<BooleanBuffer>,
    /// The others.
    hidden: Option<Hidden>,
    /// The rows, where they are few enough to be in memory at once.
    held: Option<Vec<RecordBatch>>,
    /// The version took rows away: only all events of their keys can tell.
    pub(super) replaces: bool,
}

impl<'b> Incoming<'b> {
    /// Reads the files that a version added and removed; all of their rows, or where `sifted_beside` says beside what of the
    /// files that it added, those that count.
    pub(super) fn read(
        bronze: &'b Table,
        plan: &SilverPlan,
        files: &VersionFiles,
        sifted_beside: &dyn Fn(&[DataFile]) -> Option<Present>,
    ) -> Result<Incoming<'b>> {
        let added = files.added.iter().map(|add| bronze.data_file(add.clone()));
        let removed = files
            .removed
            .iter()
            .map(|remove| bronze.removed_file(remove));
        let mut incoming = Incoming {
            bronze,
            schema: refold::event_schema(bronze),
            files: added.chain(removed).collect::<Result<_>>()?,
            pieces: Vec::new(),
            kept: None,
            hidden: None,
            held: None,
            replaces: !files.removed.is_empty(),
        };
        incoming.pieces = pieces(bronze, &incoming.files)?;
        let (files, pieces) = (&incoming.files, &incoming.pieces);
        if !incoming.replaces
            && let Some(present) = sifted_beside(files)
            && let Some(sifted) = sift(bronze, plan, &incoming.schema, files, pieces, present)?
        {
            let Sifted { kept, hidden } = sifted;
            (incoming.kept, incoming.hidden) = (Some(kept), hidden);
        }
        if incoming.events() <= HELD_EVENTS_MAX {
            let all = in_parallel(incoming.pieces.len(), |piece| {
                let mut rows = Vec::new();
                incoming.scan(piece, &incoming.columns(), &mut |batch| {
                    rows.push(batch);
                    Ok(())
                })?;
                Ok(rows)
            })?;
            incoming.held = Some(all.into_iter().flatten().collect());
        }
        Ok(incoming)
    }

    /// The events that are not read, if some are not.
    pub(super) fn take_hidden(&mut self) -> Option<Hidden> {
        self.hidden.take()
    }

    fn events(&self) -> usize {
        match &self.kept {
            Some(kept) => kept.count_set_bits(),
            None => self.pieces.last().map_or(0, |piece| piece.rows.end),
        }
    }

    fn columns(&self) -> Vec<String> {
        let fields = self.schema.fields().iter();
        fields.map(|field| field.name().clone()).collect()
    }

    fn scan(
        &self,
        piece: usize,
        columns: &[String],
        take: &mut dyn FnMut(RecordBatch) -> Result<()>,
    ) -> Result<()> {
        let Piece { file, extent, rows } = &self.pieces[piece];
        let file = &self.files[*file];
        match &self.kept {
            Some(kept) => {
                let kept = kept.slice(rows.start, rows.len());
                for rows in self.bronze.scan_kept(file, *extent, columns, kept)? {
                    take(rows?)?;
                }
            }
            None => {
                for scanned in self.bronze.scan_extent(file, *extent, columns)? {
                    take(scanned?.rows)?;
                }
            }
        }
        Ok(())
    }

    /// All truncates that silver is to know, where it knows `known`.
    pub(super) fn truncates(
        &self,
        plan: &SilverPlan,
        comparators: &Comparators,
        known: &Truncates,
    ) -> Result<Truncates> {
        if self.replaces {
            // One may have gone with the rows that left.
            return Truncates::in_bronze(self.bronze, plan, comparators);
        }
        if let Some(rows) = &self.held {
            let found = Truncates::among(plan, comparators, &self.schema, rows)?;
            return known.and(plan, comparators, &found);
        }
        let mut all = known.clone();
        if plan.has_truncates() {
            for piece in 0..self.pieces.len() {
                self.scan(piece, &self.columns(), &mut |rows| {
                    let found = Truncates::among(plan, comparators, &self.schema, [&rows])?;
                    all = all.clone().and(plan, comparators, &found)?;
                    Ok(())
                })?;
            }
        }
        Ok(all)
    }

    /// The rows in parts, in the order of their keys. At least one part, which may be empty.
    pub(super) fn into_parts(
        mut self,
        plan: &'b SilverPlan,
        comparators: &'b Comparators,
        cut: Cut,
    ) -> Result<KeyParts<'b>> {
        let (count, cut) = cut.fitted(self.events());
        let held = self.held.take();
        let bounds = match count {
            1 => Vec::new(),
            _ => self.bounds(held.as_deref(), plan, comparators, count)?,
        };
        let mut parts = KeyParts {
            incoming: self,
            plan,
            comparators,
            cut,
            bounds: bounds
                .into_iter()
                .map(|bound| (prefix(bound.row().data()), bound))
                .collect(),
            next: 0,
            ready: VecDeque::new(),
        };
        if let Some(rows) = held {
            parts.cut_held(rows)?;
        }
        Ok(parts)
    }

    /// The first keys of all parts but the first, from a sample.
    fn bounds(
        &self,
        held: Option<&[RecordBatch]>,
        plan: &SilverPlan,
        comparators: &Comparators,
        parts: usize,
    ) -> Result<Vec<OwnedRow>> {
        let step = (self.events() / (parts * SAMPLES_OF_PART)).max(1);
        let sampled = |rows: &RecordBatch, sample: &mut Vec<OwnedRow>| -> Result<()> {
            let places: UInt32Array = (0..rows.num_rows() as u32).step_by(step).collect();
            let columns = plan.key_columns(&take_record_batch(rows, &places)?);
            let keys = comparators.keys.rows(&columns)?;
            sample.extend(keys.iter().map(|key| key.owned()));
            Ok(())
        };
        let mut sample: Vec<OwnedRow> = Vec::new();
        match held {
            Some(rows) => rows
                .iter()
                .try_for_each(|rows| sampled(rows, &mut sample))?,
            None => {
                let names = plan.key_names(&self.schema);
                let samples = in_parallel(self.pieces.len(), |piece| {
                    let mut sample = Vec::new();
                    self.scan(piece, &names, &mut |rows| sampled(&rows, &mut sample))?;
                    Ok(sample)
                })?;
                sample.extend(samples.into_iter().flatten());
            }
        }
        sample.sort_unstable();
        let mut bounds: Vec<OwnedRow> = (1..parts)
            .filter_map(|part| sample.get(part * sample.len() / parts).cloned())
            .collect();
        bounds.dedup();
        Ok(bounds)
    }
}

/// The rows of a version by ranges of their keys, one range after the other.
pub(super) struct KeyParts<'b> {
    incoming: Incoming<'b>,
    plan: &'b SilverPlan,
    comparators: &'b Comparators,
    cut: Cut,
    /// The first keys of all parts but the first, with their first bytes as numbers.
    bounds: Vec<(u128, OwnedRow)>,
    /// The first part that is not in `ready` and was not given.
    next: usize,
    ready: VecDeque<Vec<RecordBatch>>,
}

impl KeyParts<'_> {
    fn count(&self) -> usize {
        self.bounds.len() + 1
    }

    /// How many files are written of all parts, about, given ones included.
    pub(super) fn file_count(&self) -> usize {
        self.count().div_ceil(self.cut.parts_of_file)
    }

    /// The next parts that are written together; none behind the last.
    pub(super) fn next_of_file(&mut self) -> Result<Vec<Vec<RecordBatch>>> {
        let mut parts = Vec::with_capacity(self.cut.parts_of_file);
        while parts.len() < self.cut.parts_of_file
            && let Some(part) = self.next()?
        {
            parts.push(part);
        }
        Ok(parts)
    }

    /// The next part; `None` behind the last.
    pub(super) fn next(&mut self) -> Result<Option<Vec<RecordBatch>>> {
        if self.ready.is_empty() && self.next < self.count() {
            self.read_some()?;
        }
        Ok(self.ready.pop_front())
    }

    /// Reads as many parts as may be in memory at once.
    fn read_some(&mut self) -> Result<()> {
        let parts = self.next..(self.next + self.cut.held_parts_max()).min(self.count());
        let incoming = &self.incoming;
        let cut = in_parallel(incoming.pieces.len(), |piece| {
            let mut cut = vec![Vec::new(); parts.len()];
            incoming.scan(piece, &incoming.columns(), &mut |rows| {
                self.cut_batch(&rows, parts.clone(), &mut cut)
            })?;
            Ok(cut)
        })?;
        let ready = joined(cut, parts.len());
        self.ready.extend(ready);
        self.next = parts.end;
        Ok(())
    }

    /// Cuts all rows, which are in memory.
    fn cut_held(&mut self, rows: Vec<RecordBatch>) -> Result<()> {
        self.next = self.count();
        if self.count() == 1 {
            self.ready.push_back(rows);
            return Ok(());
        }
        // Each batch goes when its rows are cut, so that the rows are not there twice.
        let batches: Vec<Mutex<Option<RecordBatch>>> = rows
            .into_iter()
            .map(|rows| Mutex::new(Some(rows)))
            .collect();
        let cut = in_parallel(batches.len(), |batch| {
            let mut cut = vec![Vec::new(); self.count()];
            let mut batch = lock(&batches[batch]);
            if let Some(rows) = batch.take() {
                self.cut_batch(&rows, 0..self.count(), &mut cut)?;
            }
            Ok(cut)
        })?;
        self.ready.extend(joined(cut, self.count()));
        Ok(())
    }

    /// Adds the rows of these parts to `cut`, which has one list for each.
    fn cut_batch(
        &self,
        rows: &RecordBatch,
        parts: Range<usize>,
        cut: &mut [Vec<RecordBatch>],
    ) -> Result<()> {
        let keys = self.comparators.keys.rows(&self.plan.key_columns(rows))?;
        let mut places: Vec<Vec<u32>> = vec![Vec::new(); cut.len()];
        for row in 0..rows.num_rows() {
            let key = keys.row(row);
            let start = prefix(key.data());
            let part = self.bounds.partition_point(|(bound_start, bound)| {
                // Most keys differ in their first bytes.
                match bound_start.cmp(&start) {
                    Ordering::Equal => bound.row() <= key,
                    order => order == Ordering::Less,
                }
            });
            if parts.contains(&part) {
                places[part - parts.start].push(row as u32);
            }
        }
        for (part, places) in cut.iter_mut().zip(places) {
            if !places.is_empty() {
                part.push(take_record_batch(rows, &UInt32Array::from(places))?);
            }
        }
        Ok(())
    }
}

/// The rows of each part, of all pieces one after the other.
fn joined(pieces: Vec<Vec<Vec<RecordBatch>>>, parts: usize) -> Vec<Vec<RecordBatch>> {
    let mut joined = vec![Vec::new(); parts];
    for piece in pieces {
        for (part, rows) in joined.iter_mut().zip(piece) {
            part.extend(rows);
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_core_has_as_many_files_and_each_file_as_many_parts() {
        for silver_rows in [0, 1] {
            let cut = Cut::beside(silver_rows);
            for events in (0..40).map(|step| step * 111_111) {
                let (parts, fitted) = cut.fitted(events);
                let files = parts.div_ceil(fitted.parts_of_file);
                assert_eq!(parts % fitted.parts_of_file, 0, "{events}");
                assert_eq!(files % cores().min(files), 0, "{events}");
                let events_of_part = events.div_ceil(parts);
                assert!(events_of_part <= cut.part_events_max, "{events}");
                assert!(events_of_part * fitted.parts_of_file <= FILE_EVENTS_MAX + parts);
            }
        }
    }

    #[test]
    fn few_events_are_one_part() {
        assert_eq!(Cut::beside(0).fitted(0).0, 1);
        assert_eq!(Cut::beside(1).fitted(FILE_EVENTS_MAX).0, 1);
    }
}
