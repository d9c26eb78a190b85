//! Computes what the new events of one version of bronze do to a silver of one row for each key; writes nothing.

use crate::change::DELETED;
use crate::delta::Table;
use crate::error::Result;
use crate::events::EventKind;
use crate::silver::ApplyCounters;
use crate::silver::changes::{self, OldRows, RowChanges, RowPlace};
use crate::silver::fold::{ContentEquality, Fold, FoldedRow, Shape};
use crate::silver::index::KeyIndex;
use crate::silver::locate::{self, Hit, Located};
use crate::silver::newer;
use crate::silver::plan::SilverPlan;
use crate::silver::pool::{self, Comparators, EventPool};
use crate::silver::refold::{self, KeySet};
use crate::silver::scd1::{self, Decision, Fates, OldRow, Standing};
use crate::silver::sift::Hidden;
use crate::silver::truncates::Truncates;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, UInt32Array};
use arrow::datatypes::SchemaRef;
use arrow::row::Rows;
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

/// The index is asked when there are so many rows of silver for each key of the batch; else a scan is cheaper.
const INDEX_SHARE: i64 = 4;

/// One computation over the new events of a version.
pub(super) struct Merge<'a> {
    /// The table as it stands.
    pub silver: &'a Table,
    /// The schema that silver will have.
    pub schema: SchemaRef,
    /// Where all events are, for the exact path.
    pub bronze: &'a Table,
    /// The settings, resolved.
    pub plan: &'a SilverPlan,
    /// For the types of the plan.
    pub comparators: &'a Comparators,
    /// Finds rows without a look at silver, if there is one at silver's version.
    pub index: Option<&'a KeyIndex>,
    /// The new events.
    pub pool: &'a EventPool,
    /// All truncates that are known.
    pub truncates: &'a Truncates,
    /// The files of bronze that the new events came with.
    pub fresh: &'a HashSet<&'a str>,
    /// New events that are not in the pool, and cannot show.
    pub hidden: Option<&'a Hidden>,
}

/// What new events do, but for those of some keys.
pub(super) struct Decided {
    pub(super) changes: RowChanges,
    pub(super) counters: ApplyCounters,
    /// Groups of which hidden events count; nothing is decided or counted of them.
    pub(super) open: Vec<usize>,
}

impl Merge<'_> {
    /// The fast path, with the exact one where it is needed.
    pub(super) fn decide_all(&self) -> Result<Decided> {
        let located = self.locate()?;
        let met = self.read_met(&located)?;
        let columns = pool::joined(&self.pool.columns, &met.columns)?;
        let not_sent = self.pool.not_sent(self.plan, &columns)?;
        let fold = self.pool.fold(self.plan, &columns, &not_sent);
        let newer = self.has_newer(&located)?;
        let mut fates = Fates::default();
        let (mut inserts, mut updates, mut refolds) = (Vec::new(), Vec::new(), Vec::new());
        let mut removed = Vec::new();
        let mut open = Vec::new();
        for (group, &has_newer) in newer.iter().enumerate() {
            if self.counts_hidden(group, &located) {
                open.push(group);
                continue;
            }
            let events = self.pool.events(group);
            count_repeats(self.pool, events, &fold.same, &mut fates);
            let Some(hit) = located.hits[group] else {
                match has_newer {
                    true => refolds.push(group),
                    false => fold.all(events, &mut inserts),
                }
                continue;
            };
            let row = met
                .place_of
                .get(&group)
                .map(|&place| place + self.event_count());
            let old = OldRow {
                row,
                deleted: hit.deleted,
            };
            let standing = |event: u32| self.standing(event, &located, &hit);
            let same = |event: u32| {
                row.is_some_and(|row| self.changes_nothing(event, row, hit.deleted, &fold))
            };
            match scd1::decide(&fold, events, old, &standing, &same, &mut fates) {
                Decision::Keep => {}
                Decision::Write(folded) => updates.push((group, folded)),
                Decision::Remove => removed.push(met.place_of[&group]),
                Decision::Refold => refolds.push(group),
            }
        }
        let changes = RowChanges {
            inserted: self.materialize(&inserts, &columns)?,
            removed_at: met.places_of(&removed),
            removed: changes::pick(&met.rows, removed)?,
            ..self.updates(updates, &columns, &met)?
        };
        let located = |group: &usize| located.hits[*group].is_some();
        let (refolded, fates_of_unseen) =
            self.refolded(&refolds, &met, &|group| !located(&group))?;
        fates.add(fates_of_unseen);
        let changes = changes.and(refolded)?;
        Ok(Decided {
            counters: counted(&changes, fates),
            changes,
            open,
        })
    }

    /// Whether events of the group that are not in the pool may be late or repeat the row that is there.
    fn counts_hidden(&self, group: usize, located: &Located) -> bool {
        let (Some(hidden), Some(hit)) = (self.hidden, &located.hits[group]) else {
            return false;
        };
        hidden.reaches(self.pool.key(group), located.sequence(hit).data())
    }

    /// Silver shows the last event of a key, unless it may have been a hard delete.
    fn has_newer(&self, located: &Located) -> Result<Vec<bool>> {
        if self.plan.shape != Shape::Bare {
            return Ok(vec![false; self.pool.groups.len()]);
        }
        let is_unseen = |group: &usize| located.hits[*group].is_none();
        let groups: Vec<usize> = (0..self.pool.groups.len()).filter(is_unseen).collect();
        newer::has_newer(
            self.bronze,
            self.plan,
            self.comparators,
            self.pool,
            &groups,
            self.fresh,
        )
    }

    fn materialize(&self, rows: &[FoldedRow], columns: &[ArrayRef]) -> Result<RecordBatch> {
        changes::materialize(rows, columns, None, self.plan, &self.schema)
    }

    /// The exact path for every key of the pool; rows of replaced files are in the pool beside the new ones.
    pub(super) fn refold_all(&self) -> Result<(RowChanges, ApplyCounters)> {
        let located = self.locate()?;
        let groups: Vec<usize> = (0..self.pool.groups.len()).collect();
        let met = self.read_groups(
            &located,
            groups
                .iter()
                .copied()
                .filter(|&group| located.hits[group].is_some())
                .collect(),
        )?;
        let (changes, _) = self.refolded(&groups, &met, &|_| false)?;
        let counters = counted(&changes, Fates::default());
        Ok((changes, counters))
    }

    fn locate(&self) -> Result<Located> {
        let few = self.pool.groups.len() as i64 * INDEX_SHARE <= self.silver.row_count();
        if let Some(index) = self
            .index
            .filter(|index| few && index.version() == self.silver.version())
        {
            let found = locate::locate_by_index(
                self.silver,
                self.plan,
                self.comparators,
                self.pool,
                index,
            )?;
            if let Some(located) = found {
                return Ok(located);
            }
        }
        locate::locate(self.silver, self.plan, self.comparators, self.pool)
    }

    /// Reads the rows that new events may change: all but live rows whose new events are all older.
    fn read_met(&self, located: &Located) -> Result<Met> {
        let partial = self.plan.is_partial();
        let is_met = |group: &usize| {
            let Some(hit) = &located.hits[*group] else {
                return false;
            };
            let newest = self.pool.events(*group).last().expect("a group has events");
            partial
                || hit.deleted
                || self.truncates.has_new()
                || self.standing(*newest, located, hit) != Standing::Below
        };
        self.read_groups(
            located,
            (0..self.pool.groups.len()).filter(is_met).collect(),
        )
    }

    fn read_groups(&self, located: &Located, groups: Vec<usize>) -> Result<Met> {
        let hits: Vec<Hit> = groups
            .iter()
            .filter_map(|&group| located.hits[group])
            .collect();
        let rows = if hits.is_empty() {
            RecordBatch::new_empty(self.schema.clone())
        } else {
            let names: Vec<String> = self
                .silver
                .schema()
                .fields()
                .iter()
                .map(|field| field.name().clone())
                .collect();
            changes::widened(
                &locate::read_rows(self.silver, located, &hits, &names)?,
                &self.schema,
            )?
        };
        let columns = self
            .plan
            .columns
            .iter()
            .map(|field| pool::column_or_null(&rows, field.name(), field.data_type()));
        let place_of = (0_u32..)
            .zip(&groups)
            .map(|(place, &group)| (group, place))
            .collect();
        Ok(Met {
            columns: columns.collect(),
            places: changes::places(located, &hits),
            rows,
            place_of,
            groups,
        })
    }

    fn updates(
        &self,
        updates: Vec<(usize, FoldedRow)>,
        columns: &[ArrayRef],
        met: &Met,
    ) -> Result<RowChanges> {
        let (groups, folded): (Vec<usize>, Vec<FoldedRow>) = updates.into_iter().unzip();
        let before: Vec<u32> = groups.iter().map(|group| met.place_of[group]).collect();
        Ok(RowChanges {
            updated: self.materialize(&folded, columns)?,
            replaced_at: met.places_of(&before),
            replaced: changes::pick(&met.rows, before)?,
            ..RowChanges::none(&self.schema)
        })
    }

    /// Folds all events of some groups again and compares with the rows that are there. The fates of their new events are
    /// counted where `is_counted`.
    fn refolded(
        &self,
        groups: &[usize],
        met: &Met,
        is_counted: &dyn Fn(usize) -> bool,
    ) -> Result<(RowChanges, Fates)> {
        if groups.is_empty() {
            return Ok((RowChanges::none(&self.schema), Fates::default()));
        }
        let keys = keys_of(self.plan, self.pool, groups)?;
        let folded = folded_part(self.bronze, self.plan, &self.schema, &keys, self.truncates)?;
        let counted: Vec<usize> = groups
            .iter()
            .copied()
            .filter(|&group| is_counted(group))
            .collect();
        let fates = fates_of(self.pool, &counted, &folded.pool)?;
        let refolded: HashSet<usize> = groups.iter().copied().collect();
        let with_rows = met.groups.iter().filter(|group| refolded.contains(group));
        let before: Vec<u32> = with_rows.map(|group| met.place_of[group]).collect();
        let rows = changes::pick(&met.rows, before.clone())?;
        let identities = identities(self.plan, self.comparators, &rows)?;
        let old = OldRows::new(rows, met.places_of(&before), &identities);
        let wanted = self::identities(self.plan, self.comparators, &folded.rows)?;
        Ok((changes::difference(&folded.rows, &wanted, &old)?, fates))
    }

    fn standing(&self, event: u32, located: &Located, hit: &Hit) -> Standing {
        match self
            .pool
            .sequences
            .row(event as usize)
            .cmp(&located.sequence(hit))
        {
            Ordering::Less => Standing::Below,
            Ordering::Equal => Standing::Equal,
            Ordering::Greater => Standing::Above,
        }
    }

    /// Whether an event of the row's own sequence leaves the row as it is, wherever it stands among its equals: it has the
    /// row's kind, and every value that it sets is the row's.
    fn changes_nothing(&self, event: u32, row: u32, deleted: bool, fold: &Fold<'_>) -> bool {
        let kind = self.pool.kinds[event as usize];
        let is_delete = kind == EventKind::Delete;
        let values = &fold.values;
        is_delete == deleted
            && (0..values.columns.len()).all(|column| {
                values.keeps(column, event, kind) || fold.same.column(column, event, row)
            })
    }

    fn event_count(&self) -> u32 {
        u32::try_from(self.pool.kinds.len()).expect("one apply holds fewer than 4 billion events")
    }
}

/// Rows of silver that new events meet.
struct Met {
    columns: Vec<ArrayRef>,
    rows: RecordBatch,
    places: Vec<RowPlace>,
    place_of: HashMap<usize, u32>,
    groups: Vec<usize>,
}

impl Met {
    fn places_of(&self, rows: &[u32]) -> Vec<RowPlace> {
        let place = |&row: &u32| self.places[row as usize].clone();
        rows.iter().map(place).collect()
    }
}

/// Rows that all events of some keys fold to.
pub(super) struct Folded {
    /// In the schema asked for.
    pub(super) rows: RecordBatch,
    /// The events.
    pub(super) pool: EventPool,
}

/// All events of the keys, folded: rows of `schema` in the order of the groups of the pool.
pub(super) fn folded_part(
    bronze: &Table,
    plan: &SilverPlan,
    schema: &SchemaRef,
    keys: &KeySet<'_>,
    truncates: &Truncates,
) -> Result<Folded> {
    let comparators = Comparators::new(plan)?;
    let pool = refold::events_of(bronze, plan, &comparators, keys, truncates)?;
    let not_sent = pool.not_sent(plan, &pool.columns)?;
    let fold = pool.fold(plan, &pool.columns, &not_sent);
    let mut folded = Vec::new();
    for group in 0..pool.groups.len() {
        let before = folded.len();
        fold.all(pool.events(group), &mut folded);
        assert!(
            plan.shape != Shape::Flagged || folded.len() == before + 1,
            "BUG: a key with events folds to no row"
        );
    }
    let spans = pool.spans(plan)?;
    let rows = changes::materialize(&folded, &pool.columns, spans.as_ref(), plan, schema)?;
    Ok(Folded { rows, pool })
}

/// The keys of some groups.
pub(super) fn keys_of<'a>(
    plan: &SilverPlan,
    pool: &'a EventPool,
    groups: &[usize],
) -> Result<KeySet<'a>> {
    let firsts: UInt32Array = groups
        .iter()
        .map(|&group| pool.events(group).first().copied())
        .collect();
    let columns = plan.keys.iter();
    let columns = columns.map(|&place| pool::gather(&pool.columns[place], &firsts));
    Ok(KeySet::Some {
        keys: groups.iter().map(|&group| pool.key(group)).collect(),
        columns: columns.collect::<Result<_>>()?,
    })
}

/// What tells rows of silver apart.
pub(super) fn identities(
    plan: &SilverPlan,
    comparators: &Comparators,
    rows: &RecordBatch,
) -> Result<Rows> {
    comparators.identity.rows(&plan.identity_columns(rows))
}

/// Counts pairs of new events of equal sequence.
pub(super) fn count_repeats(
    pool: &EventPool,
    events: &[u32],
    same: &ContentEquality<'_>,
    fates: &mut Fates,
) {
    for pair in events.windows(2) {
        let (before, after) = (pair[0] as usize, pair[1] as usize);
        if pool.sequences.row(before) != pool.sequences.row(after) {
            continue;
        }
        if pool.kinds[before] == pool.kinds[after] && same.all(pair[0], pair[1]) {
            fates.repeated += 1
        } else {
            fates.conflicts += 1
        }
    }
}

/// The fates of the new events of some groups, told by all events of their keys.
pub(super) fn fates_of(new: &EventPool, groups: &[usize], all: &EventPool) -> Result<Fates> {
    let mut fates = Fates::default();
    if groups.is_empty() {
        return Ok(fates);
    }
    let mut places: HashSet<(&str, i64)> = HashSet::new();
    for &group in groups {
        places.extend(new.events(group).iter().map(|&event| new.place(event)));
    }
    let same = ContentEquality::new(&all.columns);
    let group_of = all.key_index();
    for &group in groups {
        let Some(&group) = group_of.get(new.key(group)) else {
            continue;
        };
        let is_new = |event: &u32| places.contains(&all.place(*event));
        let mut has_later = false;
        let events = all.events(group as usize);
        let runs = events.chunk_by(|&left, &right| {
            all.sequences.row(left as usize) == all.sequences.row(right as usize)
        });
        for run in runs.collect::<Vec<_>>().into_iter().rev() {
            let (fresh, known): (Vec<u32>, Vec<u32>) = run.iter().copied().partition(is_new);
            if has_later {
                fates.late += fresh.len() as u64;
            } else if !known.is_empty() {
                let is_known = |event: &&u32| {
                    let equals = |other: &u32| {
                        all.kinds[**event as usize] == all.kinds[*other as usize]
                            && same.all(**event, *other)
                    };
                    known.iter().any(equals)
                };
                let repeated = fresh.iter().filter(is_known).count() as u64;
                fates.repeated += repeated;
                fates.conflicts += fresh.len() as u64 - repeated;
            }
            has_later |= !known.is_empty();
        }
    }
    Ok(fates)
}

/// Counts what `changes` do.
pub(super) fn counted(changes: &RowChanges, fates: Fates) -> ApplyCounters {
    let died = rows_that_died(changes);
    ApplyCounters {
        rows_inserted: changes.inserted.num_rows() as u64,
        rows_updated: changes.updated.num_rows() as u64 - died,
        rows_deleted: changes.removed.num_rows() as u64 + died,
        rows_late: fates.late,
        rows_repeated: fates.repeated,
        conflicts: fates.conflicts,
        rows_left_out: 0,
    }
}

/// Updates that turn a live row into a deleted one.
fn rows_that_died(changes: &RowChanges) -> u64 {
    let flag = |rows: &RecordBatch, row: usize| {
        let flags = rows
            .column_by_name(DELETED)
            .and_then(|column| column.as_boolean_opt());
        flags.is_some_and(|flags| flags.is_valid(row) && flags.value(row))
    };
    let died = |row: &usize| flag(&changes.updated, *row) && !flag(&changes.replaced, *row);
    (0..changes.updated.num_rows()).filter(died).count() as u64
}
