//! Computes what the new events of one version of bronze do to silver; writes nothing.

use crate::change::DELETED;
use crate::delta::Table;
use crate::error::Result;
use crate::events::EventKind;
use crate::silver::ApplyCounters;
use crate::silver::changes::{self, OldRows, RowChanges, RowPlace};
use crate::silver::index::KeyIndex;
use crate::silver::locate::{self, Hit, Located};
use crate::silver::plan::SilverPlan;
use crate::silver::pool::{self, Comparators, EventPool};
use crate::silver::refold::{self, KeySet};
use crate::silver::scd1::{self, Decision, Fates, FoldedRow, OldRow, Standing, Values};
use arrow::array::{
    Array, ArrayRef, AsArray, DynComparator, RecordBatch, UInt32Array, make_comparator,
};
use arrow::compute::SortOptions;
use arrow::datatypes::SchemaRef;
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
}

impl Merge<'_> {
    /// The fast path, with the exact one where it is needed.
    pub(super) fn decide_all(&self) -> Result<(RowChanges, ApplyCounters)> {
        let located = self.locate()?;
        let met = self.read_met(&located)?;
        let columns = pool::joined(&self.pool.columns, &met.columns)?;
        let unavailable = pool::unavailable_masks(self.plan, &columns)?;
        let values = Values {
            columns: &columns,
            ignore_null: &self.plan.ignore_null,
            unavailable: &unavailable,
        };
        let same_content = ContentEquality::new(&columns)?;
        let mut fates = Fates::default();
        let (mut inserts, mut updates, mut refolds) = (Vec::new(), Vec::new(), Vec::new());
        for group in 0..self.pool.groups.len() {
            let events = self.pool.events(group);
            self.count_repeats(events, &same_content, &mut fates);
            let Some(hit) = located.hits[group] else {
                inserts.extend(scd1::fold_all(events, &self.pool.kinds, &values));
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
                row.is_some_and(|row| {
                    self.changes_nothing(event, row, hit.deleted, &values, &same_content)
                })
            };
            match scd1::decide(
                events,
                &self.pool.kinds,
                old,
                &values,
                &standing,
                &same,
                &mut fates,
            ) {
                Decision::Keep => {}
                Decision::Write(folded) => updates.push((group, folded)),
                Decision::Refold => refolds.push(group),
            }
        }
        let names = self.names();
        let changes = RowChanges {
            inserted: changes::materialize(&inserts, &columns, &names, &self.schema)?,
            ..self.updates(updates, &columns, &met, &names)?
        };
        let changes = changes.and(self.refolded(&refolds, &met)?)?;
        let counters = counted(&changes, fates);
        Ok((changes, counters))
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
        let changes = self.refolded(&groups, &met)?;
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
        let partial =
            self.plan.unavailable_value.is_some() || self.plan.ignore_null.contains(&true);
        let is_met = |group: &usize| {
            let Some(hit) = &located.hits[*group] else {
                return false;
            };
            let newest = self.pool.events(*group).last().expect("a group has events");
            partial || hit.deleted || self.standing(*newest, located, hit) != Standing::Below
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
        names: &[String],
    ) -> Result<RowChanges> {
        let (groups, folded): (Vec<usize>, Vec<FoldedRow>) = updates.into_iter().unzip();
        let before: Vec<u32> = groups.iter().map(|group| met.place_of[group]).collect();
        Ok(RowChanges {
            updated: changes::materialize(&folded, columns, names, &self.schema)?,
            replaced_at: before
                .iter()
                .map(|&place| met.places[place as usize].clone())
                .collect(),
            replaced: changes::pick(&met.rows, before)?,
            ..RowChanges::none(&self.schema)
        })
    }

    /// Folds all events of some groups again and compares with the rows that are there.
    fn refolded(&self, groups: &[usize], met: &Met) -> Result<RowChanges> {
        if groups.is_empty() {
            return Ok(RowChanges::none(&self.schema));
        }
        let firsts: UInt32Array = groups
            .iter()
            .map(|&group| self.pool.events(group).first().copied())
            .collect();
        let key_columns = self.plan.keys.iter();
        let key_columns =
            key_columns.map(|&place| pool::gather(&self.pool.columns[place], &firsts));
        let some = KeySet::Some {
            keys: groups.iter().map(|&group| self.pool.key(group)).collect(),
            columns: key_columns.collect::<Result<_>>()?,
        };
        let (wanted, pool) = folded_part(self.bronze, self.plan, &self.schema, &some)?;
        let keys: Vec<&[u8]> = (0..pool.groups.len())
            .map(|group| pool.key(group))
            .collect();
        let refolded: HashSet<usize> = groups.iter().copied().collect();
        let with_rows: Vec<usize> = met
            .groups
            .iter()
            .copied()
            .filter(|group| refolded.contains(group))
            .collect();
        let before: Vec<u32> = with_rows.iter().map(|group| met.place_of[group]).collect();
        let old = OldRows {
            places: before
                .iter()
                .map(|&place| met.places[place as usize].clone())
                .collect(),
            by_key: (0_u32..)
                .zip(&with_rows)
                .map(|(place, &group)| (self.pool.key(group).into(), place))
                .collect(),
            rows: changes::pick(&met.rows, before)?,
        };
        changes::difference(&wanted, &keys, &old)
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
    fn changes_nothing(
        &self,
        event: u32,
        row: u32,
        deleted: bool,
        values: &Values<'_>,
        same: &ContentEquality,
    ) -> bool {
        let kind = self.pool.kinds[event as usize];
        let is_delete = kind == EventKind::Delete;
        is_delete == deleted
            && (0..values.columns.len())
                .all(|column| values.keeps(column, event, kind) || same.column(column, event, row))
    }

    fn count_repeats(&self, events: &[u32], same: &ContentEquality, fates: &mut Fates) {
        for pair in events.windows(2) {
            let (before, after) = (pair[0] as usize, pair[1] as usize);
            if self.pool.sequences.row(before) != self.pool.sequences.row(after) {
                continue;
            }
            let equal =
                self.pool.kinds[before] == self.pool.kinds[after] && same.all(pair[0], pair[1]);
            if equal {
                fates.repeated += 1
            } else {
                fates.conflicts += 1
            }
        }
    }

    fn event_count(&self) -> u32 {
        u32::try_from(self.pool.kinds.len()).expect("one apply holds fewer than 4 billion events")
    }

    fn names(&self) -> Vec<String> {
        self.plan
            .columns
            .iter()
            .map(|field| field.name().clone())
            .collect()
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

/// Compares values of two pool rows; NULL equals NULL.
struct ContentEquality {
    columns: Vec<Option<DynComparator>>,
}

impl ContentEquality {
    fn new(columns: &[ArrayRef]) -> Result<Self> {
        let comparator = |column: &ArrayRef| {
            make_comparator(column.as_ref(), column.as_ref(), SortOptions::default()).ok()
        };
        Ok(ContentEquality {
            columns: columns.iter().map(comparator).collect(),
        })
    }

    /// A type without an order counts as different, which leads to the exact path.
    fn column(&self, column: usize, left: u32, right: u32) -> bool {
        self.columns[column]
            .as_ref()
            .is_some_and(|compare| compare(left as usize, right as usize).is_eq())
    }

    fn all(&self, left: u32, right: u32) -> bool {
        (0..self.columns.len()).all(|column| self.column(column, left, right))
    }
}

/// All events of the keys, folded: rows of `schema` in the order of the groups of the pool.
pub(super) fn folded_part(
    bronze: &Table,
    plan: &SilverPlan,
    schema: &SchemaRef,
    keys: &KeySet<'_>,
) -> Result<(RecordBatch, EventPool)> {
    let comparators = Comparators::new(plan)?;
    let pool = refold::events_of(bronze, plan, &comparators, keys)?;
    let unavailable = pool::unavailable_masks(plan, &pool.columns)?;
    let values = Values {
        columns: &pool.columns,
        ignore_null: &plan.ignore_null,
        unavailable: &unavailable,
    };
    let fold = |group: usize| scd1::fold_all(pool.events(group), &pool.kinds, &values);
    let folded: Vec<FoldedRow> = (0..pool.groups.len()).filter_map(fold).collect();
    assert_eq!(
        folded.len(),
        pool.groups.len(),
        "BUG: a key with events folds to no row"
    );
    let names: Vec<String> = plan
        .columns
        .iter()
        .map(|field| field.name().clone())
        .collect();
    let rows = changes::materialize(&folded, &pool.columns, &names, schema)?;
    Ok((rows, pool))
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
