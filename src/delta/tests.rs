//! Scenarios of a whole table on a temp folder; what is read back also goes through the library's own provider.

use super::*;
use crate::clock::{Clock, SystemClock};
use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array,
    Float64Array, Int32Array, Int64Array, ListArray, MapArray, StringArray, StructArray,
    TimestampMicrosecondArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::{concat_batches, filter_record_batch};
use arrow::datatypes::{DataType, Int64Type, Schema, TimeUnit};
use deltalake::datafusion::prelude::SessionContext;
use std::fs;

fn spec(schema: &SchemaRef, partition_by: &[&str]) -> TableSpec {
    TableSpec {
        schema: Arc::clone(schema),
        partition_by: partition_by.iter().map(|name| (*name).to_owned()).collect(),
        change_data_feed: true,
        deletion_vectors: true,
        name: Some("t".into()),
        description: None,
        properties: BTreeMap::new(),
    }
}

fn keys_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, true),
        Field::new("v", DataType::Utf8, true),
    ]))
}

fn keys(from: i64, to: i64) -> RecordBatch {
    let keys: Vec<i64> = (from..to).collect();
    let texts: Vec<String> = keys.iter().map(|key| format!("v{key}")).collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(keys)),
        Arc::new(StringArray::from(texts)),
    ];
    RecordBatch::try_new(keys_schema(), columns).unwrap()
}

async fn append(table: &mut Table, batch: &RecordBatch) -> CommitOutcome {
    let adds = table
        .write_rows(batch.schema(), std::slice::from_ref(batch))
        .await
        .unwrap();
    let mut commit = TableCommit::new(Operation::Write);
    commit.adds = adds;
    table.commit(commit).await.unwrap()
}

/// Count and sum of a column, as the library's provider sees them.
async fn count_and_sum(root: &Path, column: &str) -> (i64, i64) {
    let url = Url::from_directory_path(std::path::absolute(root).unwrap()).unwrap();
    let table = DeltaTableBuilder::from_url(url)
        .unwrap()
        .load()
        .await
        .unwrap();
    let context = SessionContext::new();
    context
        .register_table("t", table.table_provider().await.unwrap())
        .unwrap();
    let sql = format!("SELECT count(*), coalesce(sum(\"{column}\"), 0) FROM t");
    let rows = context.sql(&sql).await.unwrap().collect().await.unwrap();
    let value = |column: usize| rows[0].column(column).as_primitive::<Int64Type>().value(0);
    (value(0), value(1))
}

fn read_all(table: &Table, columns: &[&str]) -> RecordBatch {
    let columns: Vec<String> = columns.iter().map(|name| (*name).to_owned()).collect();
    let mut batches = Vec::new();
    for file in table.files() {
        for scanned in table.scan(file, &columns).unwrap() {
            let scanned = scanned.unwrap();
            assert_eq!(scanned.rows.num_rows(), scanned.row_numbers.len());
            batches.push(scanned.rows);
        }
    }
    let fields: Vec<Field> = columns
        .iter()
        .map(|name| table.schema().field_with_name(name).unwrap().clone())
        .collect();
    concat_batches(&Arc::new(Schema::new(fields)), &batches).unwrap()
}

fn log_entry(root: &Path, version: i64) -> PathBuf {
    root.join(log::LOG).join(format!("{version:020}.json"))
}

async fn table_with_commits(root: &Path, commits: i64) -> Table {
    let mut table = Table::create(root, &spec(&keys_schema(), &[]))
        .await
        .unwrap();
    for commit in 0..commits {
        let outcome = append(&mut table, &keys(commit * 10, commit * 10 + 10)).await;
        assert_eq!(outcome, CommitOutcome::Committed(Version(commit + 1)));
    }
    table
}

#[tokio::test]
async fn create_over_an_existing_table_is_refused_and_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    let table = table_with_commits(folder.path(), 1).await;
    let error = Table::create(folder.path(), &spec(&keys_schema(), &[]))
        .await
        .unwrap_err();
    assert!(error.message().contains("a table already"), "{error}");
    let reopened = Table::open(folder.path()).await.unwrap().unwrap();
    assert_eq!((reopened.row_count(), reopened.id()), (10, table.id()));
}

#[tokio::test]
async fn absent_folder_is_no_table_and_lost_log_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    assert!(
        Table::open(&folder.path().join("absent"))
            .await
            .unwrap()
            .is_none()
    );
    table_with_commits(folder.path(), 1).await;
    fs::remove_dir_all(folder.path().join(log::LOG)).unwrap();
    assert!(Table::open(folder.path()).await.is_err());
    assert!(
        Table::create(folder.path(), &spec(&keys_schema(), &[]))
            .await
            .is_err()
    );
}

#[cfg(unix)]
#[tokio::test]
async fn unreadable_log_is_an_error_not_an_absent_table() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    table_with_commits(folder.path(), 1).await;
    let log = folder.path().join(log::LOG);
    fs::set_permissions(&log, fs::Permissions::from_mode(0o000)).unwrap();
    let as_root = fs::read_dir(&log).is_ok();
    let opened = Table::open(folder.path()).await;
    fs::set_permissions(&log, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(as_root || opened.is_err());
}

#[tokio::test]
async fn foreign_commit_is_a_conflict_and_reload_sees_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut ours = table_with_commits(folder.path(), 1).await;
    let mut foreign = Table::open(folder.path()).await.unwrap().unwrap();
    assert!(!ours.has_foreign_commit().await.unwrap());
    assert_eq!(
        append(&mut foreign, &keys(100, 110)).await,
        CommitOutcome::Committed(Version(2))
    );
    assert!(ours.has_foreign_commit().await.unwrap());
    assert_eq!(
        append(&mut ours, &keys(200, 210)).await,
        CommitOutcome::Conflict
    );
    assert_eq!(ours.version(), Version(1));
    ours.reload().await.unwrap();
    assert_eq!(
        append(&mut ours, &keys(200, 210)).await,
        CommitOutcome::Committed(Version(3))
    );
    assert_eq!(count_and_sum(folder.path(), "k").await.0, 30);
}

#[tokio::test]
async fn unclear_outcome_is_an_error_and_the_table_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = table_with_commits(folder.path(), 1).await;
    let (log, aside) = (folder.path().join(log::LOG), folder.path().join("aside"));
    fs::rename(&log, &aside).unwrap();
    fs::write(&log, "in the way").unwrap();
    let error = table
        .commit(TableCommit::new(Operation::Write))
        .await
        .unwrap_err();
    assert_eq!(
        error.kind(),
        crate::error::ErrorKind::Unavailable,
        "{error}"
    );
    fs::remove_file(&log).unwrap();
    fs::rename(&aside, &log).unwrap();
    assert_eq!(
        append(&mut table, &keys(10, 20)).await,
        CommitOutcome::Committed(Version(2))
    );
}

#[tokio::test]
async fn schema_that_drops_or_changes_a_column_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = table_with_commits(folder.path(), 1).await;
    let (key, text) = (
        Field::new("k", DataType::Int64, true),
        Field::new("v", DataType::Utf8, true),
    );
    for fields in [
        vec![key.clone()],
        vec![text.clone(), key.clone()],
        vec![Field::new("k", DataType::Utf8, true), text.clone()],
        vec![key, text, Field::new("new", DataType::Utf8, false)],
    ] {
        let mut commit = TableCommit::new(Operation::Write);
        commit.schema = Some(Arc::new(Schema::new(fields)));
        assert!(table.commit(commit).await.is_err());
    }
    assert!(!table.has_foreign_commit().await.unwrap());
}

#[cfg(unix)]
#[tokio::test]
async fn table_behind_a_link_is_the_same_table() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link");
    fs::create_dir(folder.path().join("real")).unwrap();
    std::os::unix::fs::symlink(folder.path().join("real"), &link).unwrap();
    let mut table = table_with_commits(&link.join("t"), 1).await;
    let mut direct = Table::open(&folder.path().join("real/../real/t"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!((table.root(), table.id()), (direct.root(), direct.id()));
    let _ = append(&mut direct, &keys(10, 20)).await;
    assert!(table.has_foreign_commit().await.unwrap());
    table.reload().await.unwrap();
    assert_eq!(count_and_sum(&link.join("t"), "k").await.0, 20);
}

#[test]
fn table_can_be_shared_and_its_work_moved_between_threads() {
    fn shared<T: Send + Sync>() {}
    fn moved<T: Send>(_: impl FnOnce(&'static mut Table) -> T) {}
    shared::<Table>();
    shared::<DataFile>();
    moved(|table| table.commit(TableCommit::new(Operation::Write)));
    moved(|table| table.reload());
    moved(|table| table.write_rows(table.schema(), &[]));
    moved(|table| table.write_change_rows(&[]));
    moved(|table| table.checkpoint_log());
    moved(|table| async move {
        let (limits, crash) = (limits(), crate::crash::CrashSwitch::default());
        compact(table, &[], &limits, &crash).await
    });
    moved(|table| async move {
        let txn = AppTransaction {
            app_id: String::new(),
            version: 0,
        };
        let (batch, replaced, schema) = (
            crate::change::BatchId(0),
            Default::default(),
            table.schema(),
        );
        let append = Append {
            batch,
            txn: &txn,
            schema,
            rows: &[],
            written: Vec::new(),
            replaced: &replaced,
            before_commit: None,
        };
        append_once(table, &append, &crate::crash::CrashSwitch::default()).await
    });
    moved(|table| table.files().next().map(|file| table.scan(file, &[])));
}

#[tokio::test]
async fn commit_that_cannot_be_applied_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = table_with_commits(folder.path(), 1).await;
    let file = table.files().next().unwrap().clone();
    let mut twice = TableCommit::new(Operation::Merge);
    twice.adds = vec![file.add.clone()];
    assert!(table.commit(twice).await.is_err());
    let mut unknown = TableCommit::new(Operation::Merge);
    unknown.removes = vec![Remove {
        path: "other.parquet".into(),
        ..table.remove_of(&file, true)
    }];
    assert!(table.commit(unknown).await.is_err());
    assert!(!table.has_foreign_commit().await.unwrap());
}

#[tokio::test]
async fn damaged_newest_entry_is_named_repaired_and_loaded_again_once() {
    for cut in [0, 40] {
        let folder = tempfile::tempdir().unwrap();
        let table = table_with_commits(folder.path(), 5).await;
        let newest = log_entry(folder.path(), 5);
        let bytes = fs::read(&newest).unwrap();
        fs::write(&newest, &bytes[..cut]).unwrap();
        drop(table);
        let error = Table::open(folder.path()).await.unwrap_err();
        assert!(error.message().contains("version 5"), "{error}");
        let repair = repair_tail(folder.path()).unwrap().unwrap();
        assert_eq!(repair.removed, Version(5));
        let mut table = Table::open(folder.path()).await.unwrap().unwrap();
        assert_eq!((table.version(), table.row_count()), (Version(4), 40));
        assert_eq!(
            append(&mut table, &keys(40, 50)).await,
            CommitOutcome::Committed(Version(5))
        );
        assert_eq!(count_and_sum(folder.path(), "k").await, (50, (0..50).sum()));
    }
}

#[tokio::test]
async fn entry_cut_between_two_lines_is_damage_too() {
    let folder = tempfile::tempdir().unwrap();
    table_with_commits(folder.path(), 2).await;
    let newest = log_entry(folder.path(), 2);
    let text = fs::read_to_string(&newest).unwrap();
    let first = text.lines().next().unwrap();
    fs::write(&newest, format!("{first}\n")).unwrap();
    assert!(Table::open(folder.path()).await.is_err());
}

#[tokio::test]
async fn lost_and_damaged_checkpoints_fall_back_to_the_entries() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = table_with_commits(folder.path(), 3).await;
    table.checkpoint_log().await.unwrap();
    let log = folder.path().join(log::LOG);
    let checkpoint = log.join("00000000000000000003.checkpoint.parquet");
    let bytes = fs::read(&checkpoint).unwrap();
    fs::write(&checkpoint, &bytes[..bytes.len() / 2]).unwrap();
    let mut opened = Table::open(folder.path()).await.unwrap().unwrap();
    assert_eq!(opened.row_count(), 30);
    // A new checkpoint takes the place of the damaged one.
    opened.checkpoint_log().await.unwrap();
    assert_eq!(count_and_sum(folder.path(), "k").await.0, 30);
    fs::remove_file(&checkpoint).unwrap();
    assert!(log.join("_last_checkpoint").exists());
    assert_eq!(
        Table::open(folder.path())
            .await
            .unwrap()
            .unwrap()
            .row_count(),
        30
    );
}

#[tokio::test]
async fn table_with_a_cleaned_log_is_there_and_keeps_its_transactions() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = table_with_commits(folder.path(), 3).await;
    let mut commit = TableCommit::new(Operation::Write);
    commit.transaction = Some(AppTransaction {
        app_id: "app".into(),
        version: 7,
    });
    assert_eq!(
        table.commit(commit).await.unwrap(),
        CommitOutcome::Committed(Version(4))
    );
    table.checkpoint_log().await.unwrap();
    for version in 0..4 {
        fs::remove_file(log_entry(folder.path(), version)).unwrap();
    }
    assert!(
        Table::create(folder.path(), &spec(&keys_schema(), &[]))
            .await
            .is_err()
    );
    let mut table = Table::open(folder.path()).await.unwrap().unwrap();
    assert_eq!((table.version(), table.row_count()), (Version(4), 30));
    assert_eq!(table.transaction("app"), Some(7));
    assert_eq!(
        append(&mut table, &keys(30, 40)).await,
        CommitOutcome::Committed(Version(5))
    );
    assert!(table.commit_actions(Version(2)).await.is_err());
    let txn = AppTransaction {
        app_id: "app".into(),
        version: 7,
    };
    assert_eq!(
        table.version_of_transaction(&txn).await.unwrap(),
        Some(Version(4))
    );
    assert_eq!(count_and_sum(folder.path(), "k").await, (40, (0..40).sum()));
}

fn nested_schema() -> SchemaRef {
    let element = Arc::new(Field::new("element", DataType::Int32, true));
    let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let inner = vec![
        Arc::new(Field::new("a", DataType::Int64, true)),
        Arc::new(Field::new("b", DataType::Utf8, true)),
    ];
    Arc::new(Schema::new(vec![
        Field::new("i", DataType::Int32, true),
        Field::new("d", DataType::Decimal128(38, 10), true),
        Field::new("t", utc, true),
        Field::new("n", DataType::Timestamp(TimeUnit::Microsecond, None), true),
        Field::new("day", DataType::Date32, true),
        Field::new("f", DataType::Float64, true),
        Field::new("ok", DataType::Boolean, true),
        Field::new("bin", DataType::Binary, true),
        Field::new("list", DataType::List(element), true),
        Field::new("s", DataType::Struct(inner.into()), true),
        Field::new_map(
            "m",
            "key_value",
            Field::new("key", DataType::Utf8, false),
            Field::new("value", DataType::Int64, true),
            false,
            true,
        ),
    ]))
}

fn nested_rows(schema: &SchemaRef) -> RecordBatch {
    let list: Vec<Option<Vec<Option<i32>>>> = vec![Some(vec![Some(1), None]), None, Some(vec![])];
    let list = ListArray::from_iter_primitive::<arrow::datatypes::Int32Type, _, _>(list);
    let DataType::List(element) = schema.field(8).data_type() else {
        unreachable!()
    };
    let list = ListArray::new(
        Arc::clone(element),
        list.offsets().clone(),
        Arc::clone(list.values()),
        list.nulls().cloned(),
    );
    let DataType::Struct(inner) = schema.field(9).data_type() else {
        unreachable!()
    };
    let inner_columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![Some(1), None, Some(3)])),
        Arc::new(StringArray::from(vec![Some("\u{fc}"), Some(""), None])),
    ];
    let decimal = Decimal128Array::from(vec![
        Some(99_999_999_999_999_999_999_999_999_999_999_999_999),
        None,
        Some(-1),
    ]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from(vec![Some(i32::MIN), None, Some(i32::MAX)])),
        Arc::new(decimal.with_precision_and_scale(38, 10).unwrap()),
        Arc::new(
            TimestampMicrosecondArray::from(vec![Some(-1), None, Some(1_704_067_200_123_457)])
                .with_timezone("UTC"),
        ),
        Arc::new(TimestampMicrosecondArray::from(vec![
            Some(1),
            None,
            Some(-62_135_596_800_000_000),
        ])),
        Arc::new(Date32Array::from(vec![
            Some(-719_162),
            None,
            Some(2_932_896),
        ])),
        Arc::new(Float64Array::from(vec![
            Some(f64::INFINITY),
            None,
            Some(-0.0),
        ])),
        Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])),
        Arc::new(BinaryArray::from(vec![
            Some(&b"\0\xff"[..]),
            None,
            Some(b""),
        ])),
        Arc::new(list),
        Arc::new(StructArray::new(inner.clone(), inner_columns, None)),
        Arc::new(map_rows(schema.field(10).data_type())),
    ];
    RecordBatch::try_new(Arc::clone(schema), columns).unwrap()
}

/// `{x: 1, y: NULL}`, NULL, `{}`.
fn map_rows(kind: &DataType) -> MapArray {
    let DataType::Map(entries, _) = kind else {
        unreachable!()
    };
    let DataType::Struct(fields) = entries.data_type() else {
        unreachable!()
    };
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from(vec!["x", "y"])),
        Arc::new(Int64Array::from(vec![Some(1), None])),
    ];
    let entries_rows = StructArray::new(fields.clone(), columns, None);
    let offsets = OffsetBuffer::new(vec![0, 2, 2, 2].into());
    let nulls = NullBuffer::from(vec![true, false, true]);
    MapArray::new(
        Arc::clone(entries),
        offsets,
        entries_rows,
        Some(nulls),
        false,
    )
}

#[tokio::test]
async fn all_types_come_back_as_written_after_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("odd name \u{fc} 50% #1");
    let schema = nested_schema();
    let rows = nested_rows(&schema);
    let mut table = Table::create(&root, &spec(&schema, &[])).await.unwrap();
    assert_eq!(
        append(&mut table, &rows).await,
        CommitOutcome::Committed(Version(1))
    );
    let names: Vec<&str> = schema
        .fields()
        .iter()
        .map(|field| field.name().as_str())
        .collect();
    assert_eq!(read_all(&table, &names), rows);
    table.checkpoint_log().await.unwrap();
    let table = Table::open(&root).await.unwrap().unwrap();
    assert_eq!(table.schema(), schema);
    assert_eq!(read_all(&table, &names), rows);
    assert_eq!(count_and_sum(&root, "i").await, (3, -1));
    let file = table.files().next().unwrap();
    assert!(
        file.range("d").is_none(),
        "no inexact bound of a long decimal"
    );
    assert!(file.range("i").is_some());
}

/// Words that repeat, texts that do not, and words in a struct; some of each are NULL.
fn words(rows: usize) -> RecordBatch {
    let word = |row: usize| (!row.is_multiple_of(7)).then(|| ["new", "", "päid"][row % 3]);
    let words: ArrayRef = Arc::new((0..rows).map(word).collect::<StringArray>());
    let texts = (0..rows).map(|row| (!row.is_multiple_of(11)).then(|| format!("text {row}")));
    let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
    let field = Arc::new(Field::new("word", DataType::Utf8, true));
    let parts: ArrayRef = Arc::new(StructArray::from(vec![(field, Arc::clone(&words))]));
    let columns = [("word", words), ("text", texts), ("part", parts)];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, column)| (name, column, true)))
        .unwrap()
}

#[tokio::test]
async fn kept_rows_are_those_of_a_scan_however_texts_are_stored() {
    let folder = tempfile::tempdir().unwrap();
    let all = words(20_000);
    let mut table = Table::create(folder.path(), &spec(&all.schema(), &[]))
        .await
        .unwrap();
    let _ = append(&mut table, &all).await;
    let path = table.files().next().unwrap().path.clone();
    let gone: RoaringTreemap = (0..20_000).filter(|row| row % 5 == 0).collect();
    delete(&mut table, &path, gone).await;
    let file = table.file(&path).unwrap();
    let columns = ["text", "part", "word"].map(str::to_owned);
    let joined = |rows: Vec<RecordBatch>| concat_batches(&rows[0].schema(), &rows).unwrap();
    let live = table.scan(file, &columns).unwrap();
    let live = joined(live.map(|scanned| scanned.unwrap().rows).collect());
    for keeps in [|row| row % 3 == 1, |_| true, |row| row == 15_999, |_| false] {
        let kept: Vec<bool> = (0..live.num_rows()).map(keeps).collect();
        let bits = BooleanBuffer::from(kept.as_slice());
        let expected = filter_record_batch(&live, &BooleanArray::from(kept)).unwrap();
        let scanned = |extent, bits| {
            let scanned = table.scan_kept(file, extent, &columns, bits).unwrap();
            scanned.map(|rows| rows.unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(joined(scanned(Extent::Whole, bits.clone())), expected);
        let (mut first, mut in_parts) = (0, Vec::new());
        for (extent, rows) in table.extents(file).unwrap() {
            in_parts.extend(scanned(extent, bits.slice(first, rows)));
            first += rows;
        }
        assert_eq!(joined(in_parts), expected);
    }
    let short = BooleanBuffer::new_set(100);
    assert!(
        table
            .scan_kept(file, Extent::Whole, &columns, short)
            .unwrap()
            .any(|rows| rows.is_err())
    );
}

#[tokio::test]
async fn parts_of_a_file_have_the_rows_of_the_whole_with_their_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = Table::create(folder.path(), &spec(&keys_schema(), &[]))
        .await
        .unwrap();
    let _ = append(&mut table, &keys(0, 40_000)).await;
    let path = table.files().next().unwrap().path.clone();
    let columns = ["k".to_owned()];
    let scanned = |table: &Table, extent| -> Vec<(u64, i64)> {
        let file = table.file(&path).unwrap();
        let scan = table.scan_extent(file, extent, &columns).unwrap();
        let of_batch = |scanned: Result<ScannedRows>| {
            let ScannedRows { rows, row_numbers } = scanned.unwrap();
            let keys = rows.column(0).as_primitive::<Int64Type>().values().to_vec();
            row_numbers.into_iter().zip(keys).collect::<Vec<_>>()
        };
        scan.flat_map(of_batch).collect()
    };
    let check = |table: &Table, counts: [usize; 3]| {
        let extents = table.extents(table.file(&path).unwrap()).unwrap();
        let rows: Vec<usize> = extents.iter().map(|(_, rows)| *rows).collect();
        assert_eq!(rows, counts);
        let in_parts = extents.iter().map(|(extent, _)| scanned(table, *extent));
        let in_parts = in_parts.inspect(|rows| assert!(rows.is_sorted()));
        assert_eq!(
            in_parts.flatten().collect::<Vec<_>>(),
            scanned(table, Extent::Whole)
        );
    };
    check(&table, [16_384, 16_384, 7_232]);
    // Whole pages, the ends of a group, and one by one.
    let gone =
        |row: &u64| (4_096..9_000).contains(row) || row % 16_384 < 2 || row.is_multiple_of(9);
    let gone: RoaringTreemap = (0..40_000).filter(gone).collect();
    let left = |from, to| (to - from) as usize - gone.range_cardinality(from..to) as usize;
    let counts = [left(0, 16_384), left(16_384, 32_768), left(32_768, 40_000)];
    delete(&mut table, &path, gone).await;
    check(&table, counts);
}

#[tokio::test]
async fn deleted_rows_stay_deleted_and_row_numbers_are_physical() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = Table::create(folder.path(), &spec(&keys_schema(), &[]))
        .await
        .unwrap();
    let _ = append(&mut table, &keys(0, 20_000)).await;
    let path = table.files().next().unwrap().path.clone();
    let first: RoaringTreemap = (0..20_000).filter(|row| row % 3 == 0).collect();
    for rows in [first.clone(), [1, 19_999].into_iter().collect()] {
        let deleted = BTreeMap::from([(path.clone(), rows)]);
        let (removes, adds) = table.delete_rows(&deleted).await.unwrap();
        let mut commit = TableCommit::new(Operation::Merge);
        (commit.removes, commit.adds) = (removes, adds);
        let outcome = table.commit(commit).await.unwrap();
        assert!(matches!(outcome, CommitOutcome::Committed(_)));
        // Deleting the same rows again changes nothing.
        let (removes, adds) = table.delete_rows(&deleted).await.unwrap();
        assert!(removes.is_empty() && adds.is_empty());
    }
    let left: Vec<i64> = (0..20_000)
        .filter(|key| key % 3 != 0 && *key != 1 && *key != 19_999)
        .collect();
    let expected = (left.len() as i64, left.iter().sum());
    for table in [&table, &Table::open(folder.path()).await.unwrap().unwrap()] {
        assert_eq!(table.row_count(), expected.0);
        let file = table.file(&path).unwrap();
        for scanned in table.scan(file, &["k".to_owned()]).unwrap() {
            let scanned = scanned.unwrap();
            let keys = scanned.rows.column(0).as_primitive::<Int64Type>();
            assert!(
                keys.values()
                    .iter()
                    .zip(&scanned.row_numbers)
                    .all(|(key, row)| *key as u64 == *row)
            );
        }
        let taken = table
            .take(
                file,
                &["v".to_owned(), "k".to_owned()],
                &[0, 2, 8_191, 8_192, 19_999],
            )
            .unwrap();
        assert_eq!(
            taken.column(1).as_primitive::<Int64Type>().values(),
            &[0, 2, 8_191, 8_192, 19_999]
        );
        assert_eq!(taken.column(0).as_string::<i32>().value(3), "v8192");
        assert!(table.take(file, &["k".to_owned()], &[5, 4]).is_err());
        assert!(table.take(file, &["k".to_owned()], &[20_000]).is_err());
    }
    assert_eq!(count_and_sum(folder.path(), "k").await, expected);
}

#[tokio::test]
async fn file_that_loses_its_last_row_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = table_with_commits(folder.path(), 2).await;
    let path = table.files().next().unwrap().path.clone();
    let beyond = BTreeMap::from([(path.clone(), [10].into_iter().collect())]);
    assert!(table.delete_rows(&beyond).await.is_err());
    let all = BTreeMap::from([(path, (0..10).collect())]);
    let (removes, adds) = table.delete_rows(&all).await.unwrap();
    assert_eq!((removes.len(), adds.len()), (1, 0));
    let mut commit = TableCommit::new(Operation::Delete);
    commit.removes = removes;
    assert!(matches!(
        table.commit(commit).await.unwrap(),
        CommitOutcome::Committed(_)
    ));
    assert_eq!((table.file_count(), table.row_count()), (1, 10));
    assert_eq!(count_and_sum(folder.path(), "k").await.0, 10);
}

#[tokio::test]
async fn new_column_is_null_in_old_files_and_raises_the_protocol_if_it_must() {
    let folder = tempfile::tempdir().unwrap();
    let mut plain = spec(&keys_schema(), &[]);
    (plain.change_data_feed, plain.deletion_vectors) = (false, false);
    let mut table = Table::create(folder.path(), &plain).await.unwrap();
    let _ = append(&mut table, &keys(0, 3)).await;
    let ntz = DataType::Timestamp(TimeUnit::Microsecond, None);
    let mut fields: Vec<_> = keys_schema().fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new("n", ntz, true)));
    let wider = Arc::new(Schema::new(fields));
    let mut columns = keys(3, 5).columns().to_vec();
    columns.push(Arc::new(TimestampMicrosecondArray::from(vec![1, 2])));
    let rows = RecordBatch::try_new(Arc::clone(&wider), columns).unwrap();
    let mut commit = TableCommit::new(Operation::Write);
    commit.adds = table.write_rows(Arc::clone(&wider), &[rows]).await.unwrap();
    commit.schema = Some(Arc::clone(&wider));
    assert_eq!(
        table.commit(commit).await.unwrap(),
        CommitOutcome::Committed(Version(2))
    );
    for table in [&table, &Table::open(folder.path()).await.unwrap().unwrap()] {
        assert_eq!(table.schema(), wider);
        let rows = read_all(table, &["n", "k"]);
        assert_eq!((rows.num_rows(), rows.column(0).null_count()), (5, 3));
    }
    assert_eq!(count_and_sum(folder.path(), "k").await, (5, 10));
}

#[tokio::test]
async fn odd_partition_values_come_back_and_an_empty_text_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let values = [
        Some("a b"),
        Some("a/b"),
        Some("/lead"),
        Some("50%"),
        Some("\u{fc}"),
        Some("x=y"),
        Some("$"),
        Some("a%20b"),
        Some("#1?:*|\\\"'"),
        Some("null"),
        Some("."),
        Some(".."),
        None,
    ];
    let rows = |values: &[Option<&str>]| {
        let ids: Vec<i64> = (0..values.len() as i64).collect();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(ids)),
            Arc::new(StringArray::from(values.to_vec())),
        ];
        RecordBatch::try_new(keys_schema(), columns).unwrap()
    };
    let mut table = Table::create(folder.path(), &spec(&keys_schema(), &["v"]))
        .await
        .unwrap();
    assert!(
        table
            .write_rows(keys_schema(), &[rows(&[Some("")])])
            .await
            .is_err()
    );
    let _ = append(&mut table, &rows(&values)).await;
    table.checkpoint_log().await.unwrap();
    for table in [&table, &Table::open(folder.path()).await.unwrap().unwrap()] {
        assert_eq!(table.file_count(), values.len());
        let read = read_all(table, &["k", "v"]);
        for row in 0..read.num_rows() {
            let id = read.column(0).as_primitive::<Int64Type>().value(row);
            let texts = read.column(1).as_string::<i32>();
            let text = texts.is_valid(row).then(|| texts.value(row));
            assert_eq!(text, values[id as usize]);
        }
    }
    let total = (values.len() as i64, (0..values.len() as i64).sum());
    assert_eq!(count_and_sum(folder.path(), "k").await, total);
}

#[tokio::test]
async fn change_rows_are_read_by_the_library() {
    use deltalake::delta_datafusion::DeltaCdfTableProvider;
    let folder = tempfile::tempdir().unwrap();
    let mut table = table_with_commits(folder.path(), 1).await;
    let mut fields: Vec<_> = keys_schema().fields().iter().cloned().collect();
    fields.push(Arc::new(Field::new("_change_type", DataType::Utf8, true)));
    let mut columns = keys(3, 4).columns().to_vec();
    columns.push(Arc::new(StringArray::from(vec!["delete"])));
    let change = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
    let path = table.files().next().unwrap().path.clone();
    let deleted = BTreeMap::from([(path, [3].into_iter().collect())]);
    let (removes, adds) = table.delete_rows(&deleted).await.unwrap();
    let mut commit = TableCommit::new(Operation::Merge);
    (commit.removes, commit.adds) = (removes, adds);
    commit.changes = table.write_change_rows(&[change]).await.unwrap();
    assert!(matches!(
        table.commit(commit).await.unwrap(),
        CommitOutcome::Committed(_)
    ));
    let url = Url::from_directory_path(folder.path()).unwrap();
    let library = DeltaTableBuilder::from_url(url)
        .unwrap()
        .load()
        .await
        .unwrap();
    let provider =
        DeltaCdfTableProvider::try_new(library.scan_cdf().with_starting_version(2)).unwrap();
    let context = SessionContext::new();
    context.register_table("c", Arc::new(provider)).unwrap();
    let sql = "SELECT k FROM c WHERE _change_type = 'delete'";
    let rows = context.sql(sql).await.unwrap().collect().await.unwrap();
    let keys: Vec<i64> = rows
        .iter()
        .flat_map(|rows| rows.column(0).as_primitive::<Int64Type>().values().to_vec())
        .collect();
    assert_eq!(keys, [3]);
}

#[tokio::test]
async fn candidates_leave_out_only_files_that_cannot_hold_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let table = table_with_commits(folder.path(), 5).await;
    let range = ColumnRange::of("k", &Int64Array::from(vec![12, 31])).unwrap();
    assert_eq!(table.candidates(&[range]).len(), 3);
    let texts = ColumnRange::of("v", &StringArray::from(vec!["zzz"])).unwrap();
    assert!(table.candidates(&[texts]).is_empty());
    assert_eq!(table.candidates(&[]).len(), 5);
}

#[tokio::test]
async fn rows_of_another_type_leave_the_table_untouched() {
    let folder = tempfile::tempdir().unwrap();
    let table = table_with_commits(folder.path(), 1).await;
    let wrong = RecordBatch::try_from_iter([
        ("k", Arc::new(StringArray::from(vec!["1"])) as ArrayRef),
        ("v", Arc::new(StringArray::from(vec!["1"])) as ArrayRef),
    ])
    .unwrap();
    assert!(table.write_rows(table.schema(), &[wrong]).await.is_err());
    assert_eq!(
        Table::open(folder.path()).await.unwrap().unwrap().version(),
        Version(1)
    );
}

fn limits() -> CompactLimits {
    CompactLimits {
        small_file_bytes: 1 << 20,
        target_file_bytes: 1 << 24,
        small_files_min: 3,
        deleted_share_min: 0.25,
        bytes_max: 1 << 30,
        in_tiers: false,
    }
}

async fn delete(table: &mut Table, path: &str, rows: impl IntoIterator<Item = u64>) {
    let deleted = BTreeMap::from([(path.to_owned(), rows.into_iter().collect())]);
    let (removes, adds) = table.delete_rows(&deleted).await.unwrap();
    let mut commit = TableCommit::new(Operation::Merge);
    (commit.removes, commit.adds) = (removes, adds);
    assert!(matches!(
        table.commit(commit).await.unwrap(),
        CommitOutcome::Committed(_)
    ));
}

fn keys_of(table: &Table) -> Vec<i64> {
    read_all(table, &["k"])
        .column(0)
        .as_primitive::<Int64Type>()
        .values()
        .to_vec()
}

#[tokio::test]
async fn crash_before_a_compaction_commit_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = table_with_commits(folder.path(), 3).await;
    let order = ["k".to_owned()];
    let crash = crate::crash::CrashSwitch::stop_at(0);
    assert!(
        compact(&mut table, &order, &limits(), &crash)
            .await
            .is_err()
    );
    assert_eq!(
        Table::open(folder.path()).await.unwrap().unwrap().version(),
        Version(3)
    );
}

#[tokio::test]
async fn compaction_keeps_the_rows_orders_them_and_drops_vectors() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = table_with_commits(folder.path(), 4).await;
    let twelve = ColumnRange::of("k", &Int64Array::from(vec![12])).unwrap();
    let path = table.candidates(&[twelve])[0].path.clone();
    delete(&mut table, &path, [0, 9]).await;
    let mut before = keys_of(&table);
    before.sort_unstable();
    let mut foreign = Table::open(folder.path()).await.unwrap().unwrap();
    let _ = append(&mut foreign, &keys(100, 101)).await;
    // The first attempt is a conflict, the second sees the foreign row.
    let crash = crate::crash::CrashSwitch::counting();
    let report = compact(&mut table, &["k".to_owned()], &limits(), &crash)
        .await
        .unwrap();
    before.push(100);
    assert_eq!(
        (report.files_removed, report.files_added, report.rows),
        (5, 1, 39)
    );
    assert_eq!(crash.reached().len(), 3);
    assert_eq!(keys_of(&table), before);
    assert_eq!(table.files().map(|file| file.deleted).sum::<i64>(), 0);
    let reopened = Table::open(folder.path()).await.unwrap().unwrap();
    assert_eq!(keys_of(&reopened), before);
    assert_eq!(
        count_and_sum(folder.path(), "k").await,
        (39, before.iter().sum())
    );
    // Nothing is left to do, so nothing is committed.
    let again = compact(&mut table, &["k".to_owned()], &limits(), &crash)
        .await
        .unwrap();
    assert_eq!(
        (again, table.version()),
        (CompactReport::default(), reopened.version())
    );
}

#[tokio::test]
async fn one_vector_heavy_file_is_rewritten_and_a_light_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = table_with_commits(folder.path(), 2).await;
    let paths: Vec<String> = table.files().map(|file| file.path.clone()).collect();
    delete(&mut table, &paths[0], [0, 1, 2]).await;
    delete(&mut table, &paths[1], [0]).await;
    let crash = crate::crash::CrashSwitch::default();
    let report = compact(&mut table, &[], &limits(), &crash).await.unwrap();
    assert_eq!((report.files_removed, report.rows), (1, 7));
    assert!(table.file(&paths[0]).is_none() && table.file(&paths[1]).is_some());
    assert_eq!(count_and_sum(folder.path(), "k").await.0, 16);
}

const DAY: i64 = 86_400_000_000;
const WEEK: std::time::Duration = std::time::Duration::from_secs(7 * 86_400);

#[tokio::test]
async fn vacuum_refuses_a_retention_that_the_log_no_longer_covers() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = table_with_commits(folder.path(), 3).await;
    table.checkpoint_log().await.unwrap();
    fs::remove_file(log_entry(folder.path(), 0)).unwrap();
    assert!(
        vacuum(&table, WEEK, SystemClock.now(), None, true)
            .await
            .is_err()
    );
}

#[tokio::test]
async fn vacuum_takes_only_old_files_that_nothing_names() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = table_with_commits(folder.path(), 3).await;
    let path = table.files().next().unwrap().path.clone();
    delete(&mut table, &path, [0]).await;
    delete(&mut table, &path, [1]).await;
    let orphan = table
        .write_rows(table.schema(), &[keys(0, 5)])
        .await
        .unwrap()
        .remove(0)
        .path;
    fs::write(
        folder.path().join("_delta_log/00000000000000000009.json#1"),
        "{",
    )
    .unwrap();
    fs::write(folder.path().join("notes.txt"), "mine").unwrap();
    let crash = crate::crash::CrashSwitch::default();
    let _ = compact(&mut table, &[], &limits(), &crash).await.unwrap();
    let now = SystemClock.now();
    // Everything removed here was removed within the retention; the orphan is young.
    let young = vacuum(&table, WEEK, now, None, false).await.unwrap();
    assert_eq!(young, VacuumReport::default());
    let listed = vacuum(&table, WEEK, now + 8 * DAY, None, true)
        .await
        .unwrap();
    // Three data files, two vector files, one orphan, one leftover of a broken write.
    assert_eq!(listed.files.len(), 7, "{listed:?}");
    assert!(listed.files.contains(&orphan) && listed.files.contains(&path));
    assert!(folder.path().join(&orphan).exists());
    let done = vacuum(&table, WEEK, now + 8 * DAY, None, false)
        .await
        .unwrap();
    assert_eq!(done, listed);
    assert!(!folder.path().join(&orphan).exists() && folder.path().join("notes.txt").exists());
    let again = vacuum(&table, WEEK, now + 8 * DAY, None, false)
        .await
        .unwrap();
    assert_eq!(again, VacuumReport::default());
    assert_eq!(count_and_sum(folder.path(), "k").await.0, 28);
}

#[tokio::test]
async fn vacuum_keeps_the_vector_of_a_live_file_and_odd_partitions() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = Table::create(folder.path(), &spec(&keys_schema(), &["v"]))
        .await
        .unwrap();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![1, 2, 3, 4])),
        Arc::new(StringArray::from(vec!["a b", "a b", "50%", "_x=y/\u{fc}"])),
    ];
    let _ = append(
        &mut table,
        &RecordBatch::try_new(keys_schema(), columns).unwrap(),
    )
    .await;
    let path = table
        .files()
        .find(|file| file.rows == 2)
        .unwrap()
        .path
        .clone();
    delete(&mut table, &path, [1]).await;
    let done = vacuum(&table, WEEK, SystemClock.now() + 8 * DAY, None, false)
        .await
        .unwrap();
    assert_eq!(done, VacuumReport::default());
    assert_eq!(count_and_sum(folder.path(), "k").await, (3, 8));
}

#[tokio::test]
async fn log_checkpoint_is_written_when_due() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = table_with_commits(folder.path(), 3).await;
    let crash = crate::crash::CrashSwitch::default();
    let now = SystemClock.now();
    assert!(!log_checkpoint_is_due(&table, 5));
    let _ = append(&mut table, &keys(50, 51)).await;
    assert!(log_checkpoint_is_due(&table, 5));
    let cleaned = checkpoint_log(&mut table, WEEK, now, None, &crash)
        .await
        .unwrap();
    assert_eq!(cleaned, LogCleanReport::default(), "every entry is young");
    assert!(!log_checkpoint_is_due(&table, 1));
    let reopened = Table::open(folder.path()).await.unwrap().unwrap();
    assert_eq!(reopened.log_entries_since_checkpoint(), 0);
}

#[tokio::test]
async fn log_clean_up_keeps_what_young_entries_and_unapplied_versions_need() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = table_with_commits(folder.path(), 3).await;
    let crash = crate::crash::CrashSwitch::default();
    let later = SystemClock.now() + 8 * DAY;
    let entries = || {
        log::list(folder.path())
            .unwrap()
            .entries
            .into_keys()
            .collect::<Vec<_>>()
    };
    let now = SystemClock.now();
    let _ = checkpoint_log(&mut table, WEEK, now, None, &crash)
        .await
        .unwrap();
    let _ = append(&mut table, &keys(50, 51)).await;
    // Version 2 is not applied yet: no checkpoint precedes it, so all stays.
    let kept = checkpoint_log(&mut table, WEEK, later, Some(Version(2)), &crash)
        .await
        .unwrap();
    assert_eq!(
        (kept, entries()),
        (LogCleanReport::default(), vec![0, 1, 2, 3, 4])
    );
    let cleaned = checkpoint_log(&mut table, WEEK, later, Some(Version(5)), &crash)
        .await
        .unwrap();
    assert_eq!((cleaned.entries, entries()), (3, vec![3, 4]));
    assert_eq!(count_and_sum(folder.path(), "k").await.0, 31);
    // What is left is all that a vacuum of the same retention needs.
    assert!(vacuum(&table, WEEK, later, None, false).await.is_ok());
}

#[tokio::test]
async fn vacuum_keeps_the_files_of_versions_that_are_not_applied() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = table_with_commits(folder.path(), 4).await;
    let crash = crate::crash::CrashSwitch::default();
    let brought = files_of_version(&table, Version(4))
        .await
        .unwrap()
        .added
        .remove(0)
        .path;
    let _ = compact(&mut table, &[], &limits(), &crash).await.unwrap();
    let later = SystemClock.now() + 8 * DAY;
    let done = vacuum(&table, WEEK, later, Some(Version(4)), false)
        .await
        .unwrap();
    assert_eq!(done.files.len(), 3);
    assert!(folder.path().join(&brought).exists());
    let done = vacuum(&table, WEEK, later, Some(Version(5)), false)
        .await
        .unwrap();
    assert_eq!(done.files, [brought]);
}

#[tokio::test]
async fn tiers_leave_a_large_file_alone_until_the_small_ones_match_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = table_with_commits(folder.path(), 1).await;
    let _ = append(&mut table, &keys(1_000, 100_000)).await;
    let limits = CompactLimits {
        in_tiers: true,
        ..limits()
    };
    let crash = crate::crash::CrashSwitch::default();
    assert!(!compaction_is_due(&table, &limits));
    for key in 0..2 {
        let _ = append(&mut table, &keys(200_000 + key, 200_001 + key)).await;
    }
    assert!(compaction_is_due(&table, &limits));
    let report = compact(&mut table, &[], &limits, &crash).await.unwrap();
    assert_eq!((report.files_removed, report.rows), (3, 12));
    assert_eq!(table.file_count(), 2);
    assert!(!compaction_is_due(&table, &limits));
}

#[tokio::test]
async fn compaction_within_few_bytes_goes_on_by_pairs() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = table_with_commits(folder.path(), 6).await;
    let limits = CompactLimits {
        bytes_max: 1,
        in_tiers: true,
        ..limits()
    };
    let crash = crate::crash::CrashSwitch::default();
    while compaction_is_due(&table, &limits) {
        let report = compact(&mut table, &[], &limits, &crash).await.unwrap();
        assert_eq!((report.files_removed, report.files_added), (2, 1));
    }
    assert_eq!(table.file_count(), 2);
    assert_eq!(count_and_sum(folder.path(), "k").await.0, 60);
}

#[tokio::test]
async fn typed_partition_values_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let schema = Arc::new(Schema::new(vec![
        Field::new("day", DataType::Date32, true),
        Field::new("at", utc, true),
        Field::new("d", DataType::Decimal128(20, 4), true),
        Field::new("ok", DataType::Boolean, true),
        Field::new("i", DataType::Int32, true),
        Field::new("n", DataType::Timestamp(TimeUnit::Microsecond, None), true),
        Field::new("k", DataType::Int64, true),
    ]));
    let decimal = Decimal128Array::from(vec![Some(-12), Some(1_234_567), None]);
    let at = vec![Some(-1), Some(1_704_067_200_123_456), None];
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Date32Array::from(vec![Some(-1), Some(19_000), None])),
        Arc::new(TimestampMicrosecondArray::from(at.clone()).with_timezone("UTC")),
        Arc::new(decimal.with_precision_and_scale(20, 4).unwrap()),
        Arc::new(BooleanArray::from(vec![Some(true), Some(false), None])),
        Arc::new(Int32Array::from(vec![Some(-5), Some(5), None])),
        Arc::new(TimestampMicrosecondArray::from(at)),
        Arc::new(Int64Array::from(vec![0, 1, 2])),
    ];
    let rows = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
    let spec = spec(&schema, &["day", "at", "d", "ok", "i", "n"]);
    let mut table = Table::create(folder.path(), &spec).await.unwrap();
    let _ = append(&mut table, &rows).await;
    for table in [&table, &Table::open(folder.path()).await.unwrap().unwrap()] {
        let names: Vec<&str> = schema
            .fields()
            .iter()
            .map(|field| field.name().as_str())
            .collect();
        let read = read_all(table, &names);
        let order = arrow::compute::sort_to_indices(read.column(6), None, None).unwrap();
        let read = arrow::compute::take_record_batch(&read, &order).unwrap();
        assert_eq!(read, rows);
    }
    assert_eq!(count_and_sum(folder.path(), "i").await, (3, 0));
}

#[tokio::test]
async fn the_library_compacts_and_appends_and_we_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = table_with_commits(folder.path(), 3).await;
    let path = table.files().next().unwrap().path.clone();
    delete(&mut table, &path, [0, 1]).await;
    let left: i64 = keys_of(&table).iter().sum();
    let url = Url::from_directory_path(folder.path()).unwrap();
    let library = DeltaTableBuilder::from_url(url)
        .unwrap()
        .load()
        .await
        .unwrap();
    let (library, _) = library.optimize().await.unwrap();
    library.write([keys(100, 103)]).await.unwrap();
    assert_eq!(
        append(&mut table, &keys(200, 201)).await,
        CommitOutcome::Conflict
    );
    table.reload().await.unwrap();
    assert_eq!(table.file_count(), 2);
    assert_eq!(
        append(&mut table, &keys(200, 201)).await,
        CommitOutcome::Committed(Version(7))
    );
    let path = table
        .files()
        .find(|file| file.rows == 28)
        .unwrap()
        .path
        .clone();
    delete(&mut table, &path, [5]).await;
    assert_eq!(table.row_count(), 31);
    assert_eq!(keys_of(&table).len(), 31);
    let (count, sum) = count_and_sum(folder.path(), "k").await;
    assert_eq!(count, 31);
    assert_eq!(sum, keys_of(&table).iter().sum::<i64>());
    assert!(sum > left);
}

#[tokio::test]
async fn commit_tells_its_metrics_and_parameters() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = Table::create(folder.path(), &spec(&keys_schema(), &[]))
        .await
        .unwrap();
    let mut commit = TableCommit::new(Operation::Merge);
    commit.metric("numTargetRowsInserted", 7);
    commit.parameters.insert("batchId".into(), "3".into());
    assert!(matches!(
        table.commit(commit).await.unwrap(),
        CommitOutcome::Committed(_)
    ));
    let entry = fs::read_to_string(log_entry(folder.path(), 1)).unwrap();
    let info: serde_json::Value = serde_json::from_str(entry.lines().next().unwrap()).unwrap();
    let info = &info["commitInfo"];
    assert_eq!(info["operation"], "MERGE");
    assert_eq!(info["operationMetrics"]["numTargetRowsInserted"], "7");
    assert_eq!(info["operationParameters"]["batchId"], "3");
    assert_eq!(info["readVersion"], 0);
    assert_eq!(info["isBlindAppend"], false);
}

#[tokio::test]
async fn names_that_delta_does_not_take_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let schema = |names: &[&str]| {
        let fields: Vec<Field> = names
            .iter()
            .map(|name| Field::new(*name, DataType::Int64, true))
            .collect();
        Arc::new(Schema::new(fields))
    };
    for names in [
        &["a b"][..],
        &["x=y"],
        &["a", "A"],
        &[""],
        &["a,b"],
        &["a\n"],
    ] {
        let created = Table::create(folder.path(), &spec(&schema(names), &[])).await;
        assert!(created.is_err(), "{names:?}");
    }
    let names = [
        "a.b", "\u{fc}", "select", "a-b", "a/b", "a\"b", "`", "%41", "0",
    ];
    let columns: Vec<ArrayRef> = (0..names.len())
        .map(|n| Arc::new(Int64Array::from(vec![n as i64])) as ArrayRef)
        .collect();
    let rows = RecordBatch::try_new(schema(&names), columns).unwrap();
    let mut table = Table::create(folder.path(), &spec(&schema(&names), &[]))
        .await
        .unwrap();
    let _ = append(&mut table, &rows).await;
    table.checkpoint_log().await.unwrap();
    let table = Table::open(folder.path()).await.unwrap().unwrap();
    assert_eq!(read_all(&table, &names), rows);
}

#[tokio::test]
async fn dates_and_times_beyond_the_statistics_are_refused_without_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
    let schema = Arc::new(Schema::new(vec![
        Field::new("day", DataType::Date32, true),
        Field::new("at", utc, true),
    ]));
    let table = Table::create(folder.path(), &spec(&schema, &[]))
        .await
        .unwrap();
    for (day, at) in [(i32::MAX, 0), (i32::MIN, 0), (0, i64::MAX), (0, i64::MIN)] {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Date32Array::from(vec![day, 0])),
            Arc::new(TimestampMicrosecondArray::from(vec![0, at]).with_timezone("UTC")),
        ];
        let rows = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
        let error = table
            .write_rows(Arc::clone(&schema), &[rows])
            .await
            .unwrap_err();
        assert_eq!(error.kind(), crate::error::ErrorKind::Input, "{error}");
    }
}

#[tokio::test]
async fn long_and_odd_texts_are_never_ruled_out() {
    let folder = tempfile::tempdir().unwrap();
    let texts = [
        "\u{10ffff}".repeat(100),
        "\u{e9}".repeat(100),
        format!("x{}", "\u{e9}".repeat(100)),
        "\0".repeat(100),
        "a".repeat(10_000),
        format!("{}\u{10ffff}", "a".repeat(62)),
        "\u{7f}".repeat(80),
        String::new(),
    ];
    let mut table = Table::create(folder.path(), &spec(&keys_schema(), &[]))
        .await
        .unwrap();
    for (key, text) in texts.iter().enumerate() {
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![key as i64])),
            Arc::new(StringArray::from(vec![text.as_str()])),
        ];
        let _ = append(
            &mut table,
            &RecordBatch::try_new(keys_schema(), columns).unwrap(),
        )
        .await;
    }
    table.checkpoint_log().await.unwrap();
    for table in [&table, &Table::open(folder.path()).await.unwrap().unwrap()] {
        for (key, text) in texts.iter().enumerate() {
            let range = ColumnRange::of("v", &StringArray::from(vec![text.as_str()])).unwrap();
            let candidates = table.candidates(&[range]);
            let key = ColumnRange::of("k", &Int64Array::from(vec![key as i64])).unwrap();
            let holder = table.candidates(&[key])[0];
            assert!(
                candidates.iter().any(|file| file.path == holder.path),
                "{text:.80?}"
            );
        }
    }
}

#[tokio::test]
async fn rows_that_a_version_added_can_be_read_after_they_moved_to_other_files() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = table_with_commits(folder.path(), 3).await;
    let crash = crate::crash::CrashSwitch::default();
    let _ = compact(&mut table, &[], &limits(), &crash).await.unwrap();
    let added = files_of_version(&table, Version(2)).await.unwrap().added;
    assert!(table.file(&added[0].path).is_none());
    let file = table.data_file(added[0].clone()).unwrap();
    let scanned = table
        .scan(&file, &["k".to_owned()])
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    let keys = scanned.rows.column(0).as_primitive::<Int64Type>();
    assert_eq!(keys.values().to_vec(), (10..20).collect::<Vec<i64>>());
    let compaction = files_of_version(&table, table.version()).await.unwrap();
    assert!(compaction.added.is_empty() && compaction.removed.is_empty());
}

#[tokio::test]
async fn rows_that_left_with_a_version_can_still_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut table = table_with_commits(folder.path(), 2).await;
    let path = table.files().next().unwrap().path.clone();
    delete(&mut table, &path, [0, 1]).await;
    let file = table.file(&path).unwrap();
    let before = read_file(&table, file);
    let mut commit = TableCommit::new(Operation::Delete);
    commit.removes = vec![table.remove_of(file, true)];
    assert!(matches!(
        table.commit(commit).await.unwrap(),
        CommitOutcome::Committed(_)
    ));
    let removed = files_of_version(&table, table.version())
        .await
        .unwrap()
        .removed;
    let left = table.removed_file(&removed[0]).unwrap();
    assert_eq!((left.rows, left.deleted), (10, 2));
    assert_eq!(read_file(&table, &left), before);
    fs::remove_file(folder.path().join(&path)).unwrap();
    assert!(table.removed_file(&removed[0]).is_err());
}

fn read_file(table: &Table, file: &DataFile) -> Vec<i64> {
    let scan = table.scan(file, &["k".to_owned()]).unwrap();
    let batches: Vec<RecordBatch> = scan.map(|scanned| scanned.unwrap().rows).collect();
    let keys = |batch: &RecordBatch| {
        batch
            .column(0)
            .as_primitive::<Int64Type>()
            .values()
            .to_vec()
    };
    batches.iter().flat_map(keys).collect()
}

#[tokio::test]
async fn file_of_several_row_groups_and_upload_parts_keeps_its_row_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let rows = 1_100_000_i64;
    let mut table = Table::create(folder.path(), &spec(&keys_schema(), &[]))
        .await
        .unwrap();
    // Texts that do not compress, so that the file is sent in parts.
    let scrambled = |key: i64| (key as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(0..rows)),
        Arc::new(StringArray::from_iter_values(
            (0..rows).map(|key| format!("{:x}", scrambled(key))),
        )),
    ];
    let _ = append(
        &mut table,
        &RecordBatch::try_new(keys_schema(), columns).unwrap(),
    )
    .await;
    assert_eq!(table.file_count(), 1);
    let file = table.files().next().unwrap();
    assert!(file.size > 6 << 20, "{}", file.size);
    let path = file.path.clone();
    let gone = [0, 1_048_575, 1_048_576, 1_099_999];
    delete(&mut table, &path, gone).await;
    let file = table.file(&path).unwrap();
    let mut live = 0;
    for scanned in table.scan(file, &["k".to_owned()]).unwrap() {
        let scanned = scanned.unwrap();
        let keys = scanned.rows.column(0).as_primitive::<Int64Type>();
        let matches = |(key, row): (&i64, &u64)| *key as u64 == *row && !gone.contains(row);
        assert!(keys.values().iter().zip(&scanned.row_numbers).all(matches));
        live += keys.len();
    }
    assert_eq!(live, 1_099_996);
    let rows = [3, 1_048_575, 1_048_576, 1_099_999];
    let taken = table
        .take(file, &["k".to_owned(), "v".to_owned()], &rows)
        .unwrap();
    assert_eq!(
        taken.column(0).as_primitive::<Int64Type>().values(),
        &rows.map(|row| row as i64)
    );
    assert_eq!(
        taken.column(1).as_string::<i32>().value(3),
        format!("{:x}", scrambled(1_099_999))
    );
}

/// Prints the median of an append and its commit for each thousand of five thousand; takes half a minute.
#[tokio::test]
#[ignore = "a measurement, see docs/testing.md"]
async fn commit_latency_over_five_thousand_commits() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("t");
    let mut table = Table::create(&root, &spec(&keys_schema(), &[]))
        .await
        .unwrap();
    for thousand in 0..5_i64 {
        let mut micros = Vec::new();
        for number in 0..1_000 {
            let key = thousand * 1_000 + number;
            let started = std::time::Instant::now();
            assert!(matches!(
                append(&mut table, &keys(key, key + 1)).await,
                CommitOutcome::Committed(_)
            ));
            micros.push(started.elapsed().as_micros());
        }
        micros.sort_unstable();
        println!(
            "commits from {}: p50 {} us, p99 {} us",
            thousand * 1_000,
            micros[500],
            micros[990]
        );
    }
    assert_eq!(table.row_count(), 5_000);
}
