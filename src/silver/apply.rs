//! Applies the events of one version of bronze: one commit of silver, whole or not at all.
//!
//! Events are folded in parts by ranges of keys, so that an apply of any size fits in memory. Which rows change is decided
//! by [`Merge`]; here is which keys the events reach, and that a commit which lost is computed again.

use super::changes::RowChanges;
use super::compare::parts;
use super::fold::Shape;
use super::incoming::{Cut, Incoming, KeyParts};
use super::merge::{self, Decided, Merge};
use super::plan::SilverPlan;
use super::pool::{Comparators, EventPool};
use super::refold;
use super::scd1::Fates;
use super::sift::{Hidden, Present, brings_newer};
use super::sweep::Keys;
use super::truncates::{self, Truncates};
use super::write::{Draft, WrittenPart};
use super::{ApplyCounters, COMMIT_ATTEMPTS_MAX, IndexState, SilverCommit, SilverTable};
use super::{newer, no_table};
use crate::bronze::BronzeTable;
use crate::change::Version;
use crate::crash::CrashSwitch;
use crate::delta::{AppTransaction, CommitOutcome, DataFile, Table, VersionFiles};
use crate::error::{Error, Result};
use crate::parallel::{in_parallel, in_parallel_elsewhere, lock};
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;
use tokio::runtime::Builder;

/// What one apply works with.
struct Work<'a> {
    bronze: &'a Table,
    plan: &'a SilverPlan,
    comparators: &'a Comparators,
    truncates: &'a Truncates,
    /// The files that the version added.
    fresh: HashSet<&'a str>,
    /// Their events that are not read, as they cannot show.
    hidden: Option<&'a Hidden>,
    /// The version took rows away.
    replaces: bool,
}

/// What the fold of a part told beside the rows.
#[derive(Default)]
struct FoldedPart {
    counters: ApplyCounters,
    /// The keys of its events, where they are wanted.
    keys: Vec<Box<[u8]>>,
}

impl SilverTable {
    /// Applies version `version` of bronze, which brought `files` and is the next after [`SilverTable::applied_up_to`] that changed rows.
    ///
    /// If the process stops inside, silver holds the version whole or not at all; calling again is harmless.
    pub async fn apply(
        &mut self,
        bronze: &BronzeTable,
        version: Version,
        files: &VersionFiles,
        crash: &CrashSwitch,
    ) -> Result<SilverCommit> {
        let Some(plan) = self.plan(&bronze.table().schema())? else {
            return Ok(self.nothing(version));
        };
        self.ensure_table(&plan).await?;
        let comparators = Comparators::new(&plan)?;
        self.refresh_index(&plan, None).await;
        for attempt in 0..COMMIT_ATTEMPTS_MAX {
            if self.applied_up_to() >= Some(version) {
                return Ok(self.nothing(version));
            }
            let transaction = self.transaction(version);
            let (draft, counters) = self
                .draft(bronze.table(), &plan, &comparators, transaction, files)
                .await?;
            let mode = self.settings.write_mode;
            let table = self.table.as_mut().ok_or_else(no_table)?;
            let written = draft.commit(table, &counters, mode, crash).await?;
            match written.outcome {
                CommitOutcome::Committed(silver) => {
                    self.refresh_index(&plan, written.fresh()).await;
                    return Ok(SilverCommit {
                        version: silver,
                        bronze_version: version,
                        counters,
                    });
                }
                CommitOutcome::Conflict => table.reload().await?,
            }
            tokio::time::sleep(Duration::from_millis(20 << attempt.min(6))).await;
        }
        Err(self.always_written())
    }

    /// The commit that a version of bronze makes of silver as it stands.
    async fn draft(
        &self,
        bronze: &Table,
        plan: &SilverPlan,
        comparators: &Comparators,
        transaction: AppTransaction,
        files: &VersionFiles,
    ) -> Result<(Draft, ApplyCounters)> {
        let fresh: HashSet<&str> = files.added.iter().map(|add| add.path.as_str()).collect();
        let sifted_beside = |files: &[DataFile]| self.may_sift(bronze, plan, files);
        let mut incoming = Incoming::read(bronze, plan, files, &sifted_beside)?;
        let hidden = incoming.take_hidden();
        let (schema, replaces) = (incoming.schema.clone(), incoming.replaces);
        let known = self.known_truncates(plan, comparators)?;
        let all = incoming.truncates(plan, comparators, &known)?;
        let has_new = all != known;
        let last = all
            .clone()
            .after(&known)
            .filter(|truncates| !replaces && newer::comes_last(bronze, plan, truncates, &fresh));
        let reaches_the_past = has_new && last.is_none();
        let truncates = last.unwrap_or(all);
        let silver_rows = self.table.as_ref().map_or(0, Table::row_count);
        let cut = Cut::beside(silver_rows);
        let parts = incoming.into_parts(plan, comparators, cut)?;
        let work = Work {
            bronze,
            plan,
            comparators,
            truncates: &truncates,
            fresh,
            hidden: hidden.as_ref(),
            replaces,
        };
        let draft = Draft::new(transaction, parts.file_count());
        let (mut draft, counters) = match reaches_the_past {
            true => self.apply_all_keys(&work, draft, &schema, parts).await?,
            false => self.apply_keys(&work, draft, &schema, parts).await?,
        };
        if has_new {
            draft.set_property(truncates::PROPERTY, truncates.to_text()?);
        }
        Ok((draft, counters))
    }

    /// Applies events to their own keys, and new truncates, which come last, to all.
    async fn apply_keys(
        &self,
        work: &Work<'_>,
        mut draft: Draft,
        schema: &SchemaRef,
        mut parts: KeyParts<'_>,
    ) -> Result<(Draft, ApplyCounters)> {
        let table = self.table.as_ref().ok_or_else(no_table)?;
        let sweeps = work.truncates.has_new();
        if sweeps {
            draft = draft.in_parts(parts.file_count() + table.file_count());
        }
        let (mut counters, mut seen) = (ApplyCounters::default(), Keys::new());
        if parts.file_count() == 1 {
            let all: Vec<_> = parts.next_of_file()?.into_iter().map(Mutex::new).collect();
            let folded = in_parallel(all.len(), |part| {
                let rows = std::mem::take(&mut *lock(&all[part]));
                self.fold_part(work, schema, rows, sweeps)
            })?;
            let (changes, folded): (Vec<_>, Vec<_>) = folded.into_iter().unzip();
            for part in folded {
                counters.add(&part.counters);
                seen.extend(part.keys);
            }
            draft.add(table, &changes).await?;
        } else {
            for (written, part) in self.fold_parts(work, schema, parts, &draft, sweeps)? {
                counters.add(&part.counters);
                seen.extend(part.keys);
                draft.take(written);
            }
        }
        if sweeps {
            self.sweep(work, schema, &seen, &mut draft, &mut counters)
                .await?;
        }
        Ok((draft, counters))
    }

    /// Folds the events of one part.
    fn fold_part(
        &self,
        work: &Work<'_>,
        schema: &SchemaRef,
        rows: Vec<RecordBatch>,
        wants_keys: bool,
    ) -> Result<(RowChanges, FoldedPart)> {
        let pool = EventPool::new(work.plan, work.comparators, schema, rows, work.truncates)?;
        let Decided {
            mut changes,
            mut counters,
            open,
        } = self.compute(work, &pool, work.hidden)?;
        if !open.is_empty() {
            let whole = self.fold_whole(work, schema, &pool, &open)?;
            counters.add(&whole.counters);
            changes = changes.and(whole.changes)?;
        }
        counters.rows_left_out += pool.left_out;
        let groups = if wants_keys { pool.groups.len() } else { 0 };
        let keys = (0..groups).map(|group| Box::from(pool.key(group)));
        let part = FoldedPart {
            counters,
            keys: keys.collect(),
        };
        Ok((changes, part))
    }

    /// Folds all new events of some groups of `pool`, the hidden ones among them.
    fn fold_whole(
        &self,
        work: &Work<'_>,
        schema: &SchemaRef,
        pool: &EventPool,
        groups: &[usize],
    ) -> Result<Decided> {
        let keys = merge::keys_of(work.plan, pool, groups)?;
        let fields = schema.fields().iter();
        let columns: Vec<String> = fields.map(|field| field.name().clone()).collect();
        let mut files = refold::candidates(work.bronze, work.plan, &keys);
        files.retain(|file| work.fresh.contains(file.path.as_str()));
        let rows = refold::rows_of_files(
            work.bronze,
            &files,
            work.plan,
            work.comparators,
            &keys,
            &columns,
        )?;
        let whole = EventPool::new(work.plan, work.comparators, schema, rows, work.truncates)?;
        // Rows that are no events were counted with the others.
        self.compute(work, &whole, None)
    }

    /// Folds many parts on all cores, and writes what some of them change together; in the order of the parts.
    fn fold_parts(
        &self,
        work: &Work<'_>,
        schema: &SchemaRef,
        parts: KeyParts<'_>,
        draft: &Draft,
        wants_keys: bool,
    ) -> Result<Vec<(WrittenPart, FoldedPart)>> {
        let table = self.table.as_ref().ok_or_else(no_table)?;
        let files = parts.file_count();
        let parts = Mutex::new((0, parts));
        let mut folded = in_parallel_elsewhere(files, |_| {
            let (place, some) = {
                let mut parts = lock(&parts);
                parts.0 += 1;
                (parts.0, parts.1.next_of_file()?)
            };
            let (mut changes, mut told) = (Vec::new(), FoldedPart::default());
            for rows in some {
                let (of_part, part) = self.fold_part(work, schema, rows, wants_keys)?;
                changes.push(of_part);
                told.counters.add(&part.counters);
                told.keys.extend(part.keys);
            }
            // The runtime of the loader waits for this.
            let runtime = Builder::new_current_thread().build().map_err(|error| {
                Error::unavailable(format!("rows of silver cannot be written: {error}"))
            })?;
            let written = runtime.block_on(draft.write(table, &changes))?;
            Ok((place, (written, told)))
        })?;
        folded.sort_unstable_by_key(|(place, _)| *place);
        Ok(folded.into_iter().map(|(_, part)| part).collect())
    }

    /// Brings new truncates, which come after all that silver has, to the keys without a new event.
    async fn sweep(
        &self,
        work: &Work<'_>,
        schema: &SchemaRef,
        seen: &Keys,
        draft: &mut Draft,
        counters: &mut ApplyCounters,
    ) -> Result<()> {
        let table = self.table.as_ref().ok_or_else(no_table)?;
        let none = vec![RecordBatch::new_empty(schema.clone())];
        let pool = EventPool::new(work.plan, work.comparators, schema, none, work.truncates)?;
        let merge = self.merge(work, &pool, None)?;
        for file in table.files() {
            let changes = merge.sweep(file, seen)?;
            counters.add(&merge::counted(&changes, Fates::default()));
            draft.add(table, &[changes]).await?;
        }
        Ok(())
    }

    /// Applies events among which are truncates that do not come last: they reach every key, so all keys are folded.
    async fn apply_all_keys(
        &self,
        work: &Work<'_>,
        draft: Draft,
        schema: &SchemaRef,
        mut parts_of_events: KeyParts<'_>,
    ) -> Result<(Draft, ApplyCounters)> {
        let mut counters = ApplyCounters::default();
        while let Some(rows) = parts_of_events.next()? {
            let pool = EventPool::new(work.plan, work.comparators, schema, rows, work.truncates)?;
            let decided = self.compute(work, &pool, None)?;
            counters.rows_left_out += pool.left_out;
            counters.add(&ApplyCounters {
                rows_inserted: 0,
                rows_updated: 0,
                rows_deleted: 0,
                ..decided.counters
            });
        }
        let table = self.table.as_ref().ok_or_else(no_table)?;
        let target = self.target_schema(work.plan);
        let parts = parts(work.bronze);
        let mut draft = draft.in_parts(parts.len());
        for part in parts {
            let (changes, _) =
                self.part_changes(work.bronze, work.plan, &target, &part, work.truncates)?;
            counters.add(&merge::counted(&changes, Fates::default()));
            draft.add(table, &[changes]).await?;
        }
        Ok((draft, counters))
    }

    /// Why rows of bronze, among which each sequence is a snapshot, come after a newer one that silver has; `None` if not.
    pub fn late_snapshot(&self, rows: &RecordBatch) -> Result<Option<String>> {
        let Some(plan) = self.plan(&rows.schema())?.filter(|plan| plan.snapshots) else {
            return Ok(None);
        };
        let comparators = Comparators::new(&plan)?;
        let known = self.known_truncates(&plan, &comparators)?;
        let own = Truncates::among(&plan, &comparators, &rows.schema(), [rows])?;
        own.first_before(&known, &comparators)
    }

    /// The truncates that silver was made with.
    pub(crate) fn known_truncates(
        &self,
        plan: &SilverPlan,
        comparators: &Comparators,
    ) -> Result<Truncates> {
        let table = self.table.as_ref();
        match table.and_then(|table| table.property(truncates::PROPERTY)) {
            Some(text) if plan.has_truncates() => Truncates::of_text(plan, comparators, text),
            Some(_) | None => Ok(Truncates::none(plan)),
        }
    }

    /// What the events of `pool` do, and `hidden` ones that are not in it.
    fn compute(
        &self,
        work: &Work<'_>,
        pool: &EventPool,
        hidden: Option<&Hidden>,
    ) -> Result<Decided> {
        let merge = self.merge(work, pool, hidden)?;
        let (changes, counters) = match (work.plan.shape, work.replaces) {
            (Shape::Flagged | Shape::Bare, false) => return merge.decide_all(),
            (Shape::Flagged | Shape::Bare, true) => merge.refold_all()?,
            (Shape::History, false) => merge.decide_history()?,
            (Shape::History, true) => merge.refold_history()?,
        };
        Ok(Decided {
            changes,
            counters,
            open: Vec::new(),
        })
    }

    /// What silver has, if of the events of `files`, which a version added, only those need be read that may show.
    fn may_sift(&self, bronze: &Table, plan: &SilverPlan, files: &[DataFile]) -> Option<Present> {
        let table = self.table.as_ref()?;
        // The events of some keys are read once more, from the files that bronze has now.
        if !files.iter().all(|file| bronze.file(&file.path).is_some()) {
            return None;
        }
        if table.row_count() == 0 && bronze.file_count() == files.len() {
            return Some(Present::Nothing);
        }
        // Where a delete leaves no row, an event before a hidden one may be in bronze alone.
        let shows_all = plan.shape == Shape::Flagged && !plan.has_truncates();
        (shows_all && brings_newer(table, plan, files)).then_some(Present::Rows)
    }

    fn merge<'a>(
        &'a self,
        work: &'a Work<'_>,
        pool: &'a EventPool,
        hidden: Option<&'a Hidden>,
    ) -> Result<Merge<'a>> {
        Ok(Merge {
            silver: self.table.as_ref().ok_or_else(no_table)?,
            schema: self.target_schema(work.plan),
            bronze: work.bronze,
            plan: work.plan,
            comparators: work.comparators,
            index: match &self.index {
                IndexState::Open(_, index) => Some(index),
                IndexState::Off | IndexState::Closed(_) | IndexState::Missing(_) => None,
            },
            pool,
            truncates: work.truncates,
            fresh: &work.fresh,
            hidden,
        })
    }
}
