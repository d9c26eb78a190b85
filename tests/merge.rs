//! The same batches through the library's MERGE and through silver give the same table and the same change feed.
//!
//! The histories keep to what a guarded MERGE can say: each sequence belongs to one event, and a delete sends every value.
//! (Kept values below a delete, partial updates and equal sequences are what the exact path is for; `tests/oracle.rs` holds
//! them.) A batch of late and repeated events alone makes a commit of a transaction in silver and none in MERGE.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test stops by panicking"
)]

mod common;

use arrow::array::{ArrayRef, BooleanArray, Decimal128Array, Int64Array, RecordBatch, StringArray};
use arrow::util::display::array_value_to_string;
use common::history::{Event, History, Random};
use common::{TestLoader, all_rows};
use deltalake::datafusion::prelude::{SessionContext, col};
use futures::StreamExt;
use landfall::change::Version;
use landfall::delta::{Table, TableSpec};
use landfall::feed::{ChangePoint, ChangeRange, changes};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use url::Url;

const COLUMNS: [&str; 5] = ["order_id", "status", "amount", "seq", "deleted"];

/// Events in the order of their arrival: late ones, and some that come again.
fn batches(random: &mut Random) -> Vec<Vec<Event>> {
    let count = 40 + random.below(40);
    let keys = 3 + random.below(12);
    let event = |random: &mut Random, seq: i64| {
        let op = ['I', 'U', 'U', 'D'][random.below(4) as usize];
        let sent = |random: &mut Random| op == 'D' || !random.one_in(6);
        Event {
            op,
            key: random.below(keys) as i64,
            status: sent(random).then(|| format!("s{}", random.below(4))),
            amount: sent(random).then(|| random.below(1000) as i64),
            seq,
        }
    };
    let mut events: Vec<Event> = (0..count).map(|seq| event(random, seq as i64)).collect();
    for _ in 0..10 {
        let again = events[random.below(count) as usize].clone();
        events.push(again);
    }
    for place in 0..events.len() {
        let near = (place + random.below(20) as usize).min(events.len() - 1);
        events.swap(place, near);
    }
    let mut batches = Vec::new();
    while !events.is_empty() {
        let size = (1 + random.below(9) as usize).min(events.len());
        batches.push(events.drain(..size).collect());
    }
    batches
}

/// The newest event of each key, as the row that it makes.
fn net_rows(events: &[Event], table: &Table) -> RecordBatch {
    let mut newest: BTreeMap<i64, &Event> = BTreeMap::new();
    for event in events {
        let known = newest.entry(event.key).or_insert(event);
        if event.seq >= known.seq {
            *known = event;
        }
    }
    let newest: Vec<&Event> = newest.into_values().collect();
    let numbers = |of: fn(&Event) -> i64| -> ArrayRef {
        Arc::new(
            newest
                .iter()
                .map(|event| Some(of(event)))
                .collect::<Int64Array>(),
        )
    };
    let status: StringArray = newest.iter().map(|event| event.status.clone()).collect();
    let amount: Decimal128Array = newest
        .iter()
        .map(|event| event.amount.map(i128::from))
        .collect();
    let deleted: BooleanArray = newest.iter().map(|event| Some(event.op == 'D')).collect();
    let columns: Vec<ArrayRef> = vec![
        numbers(|event| event.key),
        Arc::new(status),
        Arc::new(amount.with_precision_and_scale(10, 2).unwrap()),
        numbers(|event| event.seq),
        Arc::new(deleted),
    ];
    RecordBatch::try_new(table.schema(), columns).unwrap()
}

/// MERGE as one writes it by hand: the guard is the sequence.
async fn merge(path: &Path, rows: RecordBatch) {
    let url = Url::from_directory_path(path).unwrap();
    let table = deltalake::open_table(url).await.unwrap();
    let source = SessionContext::new().read_batch(rows).unwrap();
    let all = |name: &'static str| (name, col(format!("source.{name}")));
    let merged = table
        .merge(source, col("target.order_id").eq(col("source.order_id")))
        .with_source_alias("source")
        .with_target_alias("target")
        .when_matched_update(|update| {
            let update = update.predicate(col("source.seq").gt(col("target.seq")));
            COLUMNS
                .map(all)
                .into_iter()
                .fold(update, |update, (name, value)| update.update(name, value))
        })
        .unwrap()
        .when_not_matched_insert(|insert| {
            COLUMNS
                .map(all)
                .into_iter()
                .fold(insert, |insert, (name, value)| insert.set(name, value))
        })
        .unwrap();
    let _ = merged.await.unwrap();
}

fn texts(batches: &[RecordBatch], columns: &[&str]) -> Vec<String> {
    let line = |batch: &RecordBatch, row: usize| {
        let cell = |name: &&str| {
            let column = batch.column_by_name(name).unwrap();
            match column.is_null(row) {
                true => "NULL".to_string(),
                false => array_value_to_string(column, row).unwrap(),
            }
        };
        columns.iter().map(cell).collect::<Vec<_>>().join(" ")
    };
    let mut lines: Vec<String> = batches
        .iter()
        .flat_map(|batch| (0..batch.num_rows()).map(|row| line(batch, row)))
        .collect();
    lines.sort();
    lines
}

/// The rows, and what changed since `before`.
async fn read(path: &Path, before: i64) -> (Vec<String>, Vec<String>, i64) {
    let table = Table::open(path).await.unwrap().unwrap();
    let rows = texts(&all_rows(&table, &COLUMNS), &COLUMNS);
    let version = table.version().0;
    if version == before {
        return (rows, Vec::new(), version);
    }
    let range = ChangeRange {
        from: ChangePoint::Version(Version(before + 1)),
        to: None,
    };
    let mut stream = changes(path, range, &[]).await.unwrap().batches;
    let mut changed = Vec::new();
    while let Some(batch) = stream.next().await {
        changed.push(batch.unwrap());
    }
    let mut columns = vec!["_change_type"];
    columns.extend(COLUMNS);
    (rows, texts(&changed, &columns), version)
}

fn check(seed: u64, mode: &str) {
    let mut random = Random::new(seed);
    let loader = TestLoader::with(
        "",
        &format!(
            "write_mode = \"{mode}\"\n[pipeline.orders.maintenance]\nmin_num_files = 3\nlog_checkpoint_interval = 4"
        ),
    );
    let silver = loader.settings.silver.clone().unwrap().path;
    let merged = loader.path().join("merged");
    let (mut ours, mut theirs) = (0, 0);
    for (number, events) in batches(&mut random).iter().enumerate() {
        loader.drop_file(&format!("{number:03}.jsonl"), History::text(events));
        loader.run();
        loader.block_on(async {
            let table = Table::open(&silver).await.unwrap().unwrap();
            if number == 0 {
                let spec = TableSpec {
                    schema: table.schema(),
                    partition_by: Vec::new(),
                    change_data_feed: true,
                    deletion_vectors: false,
                    name: None,
                    description: None,
                    properties: BTreeMap::new(),
                };
                Table::create(&merged, &spec).await.unwrap();
            }
            merge(&merged, net_rows(events, &table)).await;
            let (our_rows, our_changes, our_version) = read(&silver, ours).await;
            let (rows, changes, version) = read(&merged, theirs).await;
            assert_eq!(
                our_rows, rows,
                "seed {seed}, {mode}, batch {number}: {events:?}"
            );
            assert_eq!(
                our_changes, changes,
                "seed {seed}, {mode}, batch {number}: {events:?}"
            );
            (ours, theirs) = (our_version, version);
        });
    }
    assert!(ours > theirs, "compactions make versions of their own");
}

#[test]
fn library_merge_gives_the_same_rows_and_the_same_changes() {
    for seed in 0..2 {
        check(seed, "merge_on_read");
        check(seed, "copy_on_write");
    }
}
