//! What one apply to silver is made of, over a table of half a million rows: key scan, index, old rows, files, commit.
//!
//! `cargo bench --bench apply` prints times; `docs/performance.md` says what they mean.
#![allow(
    clippy::unwrap_used,
    reason = "a benchmark stops at the first thing that is wrong"
)]

use arrow::array::{ArrayRef, BooleanArray, Decimal128Array, Int64Array, RecordBatch, StringArray};
use divan::Bencher;
use landfall::delta::{AppTransaction, Operation, Table, TableCommit, TableSpec};
use landfall::settings::{FlagValue, Request, Settings, SilverSettings};
use landfall::silver::index::{KeyIndex, Lookup};
use landfall::silver::plan::SilverPlan;
use landfall::silver::pool::Comparators;
use roaring::RoaringTreemap;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use tokio::runtime::Runtime;

const ROWS: i64 = 500_000;
const FILES: i64 = 8;
const CHANGES: i64 = 10_000;

fn main() {
    divan::main();
}

struct Silver {
    folder: tempfile::TempDir,
    runtime: Runtime,
    table: Table,
    plan: SilverPlan,
    comparators: Comparators,
    index: KeyIndex,
}

fn rows(keys: impl Iterator<Item = i64>) -> RecordBatch {
    let keys: Vec<i64> = keys.collect();
    let amounts =
        Decimal128Array::from_iter_values(keys.iter().map(|key| i128::from(key % 10_000)));
    let columns: [(&str, ArrayRef, bool); 5] = [
        ("order_id", Arc::new(Int64Array::from(keys.clone())), true),
        (
            "status",
            Arc::new(StringArray::from_iter_values(
                keys.iter()
                    .map(|key| ["new", "paid", "sent"][(key % 3) as usize]),
            )),
            true,
        ),
        (
            "amount",
            Arc::new(amounts.with_precision_and_scale(10, 2).unwrap()),
            true,
        ),
        ("seq", Arc::new(Int64Array::from(keys.clone())), true),
        (
            "deleted",
            Arc::new(BooleanArray::from(vec![false; keys.len()])),
            true,
        ),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn settings(folder: &Path) -> SilverSettings {
    let flag = |key: &'static str, text: String| FlagValue {
        key,
        flag: format!("--{key}"),
        text,
    };
    let at = |name: &str| folder.join(name).display().to_string();
    let request = Request {
        name: Some("bench".into()),
        flags: vec![
            flag("source.path", at("landing")),
            flag("checkpoint", at("c.db")),
            flag("bronze.path", at("bronze")),
            flag("silver.path", at("silver")),
            flag("silver.keys", "order_id".into()),
            flag("silver.sequence_by", "seq".into()),
        ],
        ..Request::in_folder(folder)
    };
    Settings::load(&request)
        .unwrap()
        .pipelines
        .remove(0)
        .silver
        .unwrap()
}

fn silver() -> &'static Silver {
    static SILVER: OnceLock<Silver> = OnceLock::new();
    SILVER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let runtime = Runtime::new().unwrap();
        let (table, index, plan, comparators) = runtime.block_on(async {
            let batch = rows(0..1);
            let spec = TableSpec {
                schema: batch.schema(),
                partition_by: Vec::new(),
                change_data_feed: true,
                deletion_vectors: true,
                name: None,
                description: None,
                properties: BTreeMap::new(),
            };
            let mut table = Table::create(&folder.path().join("silver"), &spec)
                .await
                .unwrap();
            let mut commit = TableCommit::new(Operation::Merge);
            for file in 0..FILES {
                let keys = rows((0..ROWS).filter(|key| key % FILES == file));
                commit
                    .adds
                    .extend(table.write_rows(keys.schema(), &[keys]).await.unwrap());
            }
            let _ = table.commit(commit).await.unwrap();
            let plan = SilverPlan::resolve(&settings(folder.path()), None, &table.schema())
                .unwrap()
                .unwrap();
            let comparators = Comparators::new(&plan).unwrap();
            let index = KeyIndex::build(&folder.path().join("keys"), &table, &plan, &comparators)
                .unwrap()
                .unwrap();
            (table, index, plan, comparators)
        });
        Silver {
            folder,
            runtime,
            table,
            plan,
            comparators,
            index,
        }
    })
}

/// Keys spread over the whole table.
fn changed_keys() -> impl Iterator<Item = i64> {
    (0..CHANGES).map(|number| number * 7_919 % ROWS)
}

#[divan::bench]
fn scan_keys_of_all_files(bencher: Bencher) {
    let silver = silver();
    let columns: Vec<String> = ["order_id", "seq", "deleted"].map(String::from).to_vec();
    bencher
        .counter(divan::counter::ItemsCount::new(ROWS as usize))
        .bench(|| {
            let scan = |file| {
                silver
                    .table
                    .scan(file, &columns)
                    .unwrap()
                    .map(|rows| rows.unwrap().rows.num_rows())
            };
            silver.table.files().flat_map(scan).sum::<usize>()
        });
}

#[divan::bench]
fn find_ten_thousand_keys_in_the_index(bencher: Bencher) {
    let silver = silver();
    let keys = silver
        .comparators
        .keys
        .rows(&silver.plan.key_columns(&rows(changed_keys())))
        .unwrap();
    let keys: Vec<&[u8]> = (0..keys.num_rows())
        .map(|row| keys.row(row).data())
        .collect();
    bencher
        .counter(divan::counter::ItemsCount::new(keys.len()))
        .bench(|| {
            let mut none_deleted = |_: &str| Ok(Some(RoaringTreemap::new()));
            let Lookup::Rows(found) = silver.index.lookup(&keys, &mut none_deleted).unwrap() else {
                unreachable!("no two keys have one hash")
            };
            let hits: Vec<_> = found.iter().flatten().collect();
            silver.index.rows(&silver.table, &hits).unwrap().num_rows()
        });
}

#[divan::bench]
fn read_ten_thousand_old_rows_from_files(bencher: Bencher) {
    let silver = silver();
    let columns: Vec<String> = silver
        .table
        .schema()
        .fields()
        .iter()
        .map(|field| field.name().clone())
        .collect();
    let step = (ROWS / CHANGES) as usize;
    bencher
        .counter(divan::counter::ItemsCount::new(CHANGES as usize))
        .bench(|| {
            let take = |file: &landfall::delta::DataFile| {
                let places: Vec<u64> = (0..file.rows as u64).step_by(step).collect();
                silver
                    .table
                    .take(file, &columns, &places)
                    .unwrap()
                    .num_rows()
            };
            silver.table.files().map(take).sum::<usize>()
        });
}

#[divan::bench]
fn write_ten_thousand_new_rows_durably(bencher: Bencher) {
    let silver = silver();
    let changed = rows(changed_keys());
    bencher
        .counter(divan::counter::ItemsCount::new(CHANGES as usize))
        .bench(|| {
            silver
                .runtime
                .block_on(
                    silver
                        .table
                        .write_rows(changed.schema(), std::slice::from_ref(&changed)),
                )
                .unwrap()
                .len()
        });
}

#[divan::bench]
fn make_the_index_anew(bencher: Bencher) {
    let silver = silver();
    let folder = silver.folder.path().join("again");
    bencher
        .counter(divan::counter::ItemsCount::new(ROWS as usize))
        .bench(|| {
            KeyIndex::build(&folder, &silver.table, &silver.plan, &silver.comparators)
                .unwrap()
                .is_some()
        });
}

#[divan::bench]
fn commit_a_transaction_durably(bencher: Bencher) {
    let folder = tempfile::tempdir().unwrap();
    let runtime = Runtime::new().unwrap();
    let spec = TableSpec {
        schema: rows(0..1).schema(),
        partition_by: Vec::new(),
        change_data_feed: true,
        deletion_vectors: true,
        name: None,
        description: None,
        properties: BTreeMap::new(),
    };
    let mut table = runtime
        .block_on(Table::create(&folder.path().join("silver"), &spec))
        .unwrap();
    let mut version = 0;
    bencher.bench_local(|| {
        version += 1;
        let mut commit = TableCommit::new(Operation::Merge);
        commit.transaction = Some(AppTransaction {
            app_id: "bench".into(),
            version,
        });
        runtime.block_on(table.commit(commit)).unwrap()
    });
}
