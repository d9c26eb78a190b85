//! What is encoded here, the library decodes: all of it, page by page, and by what the file states of itself.

use super::*;
use arrow::array::{
    Array, AsArray, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float64Array,
    Int8Array, Int16Array, Int32Array, Int64Array, ListArray, StringArray, StructArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Int32Type, Schema};
use bytes::Bytes;
use parquet::arrow::arrow_reader::{
    ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection, RowSelector,
};
use parquet::basic::Compression;
use parquet::file::metadata::PageIndexPolicy;
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::statistics::Statistics;

/// Numbers that look like chance, the same each time.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = next.wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 17
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// How the values of a column follow one another.
#[derive(Clone, Copy, Debug)]
enum Spread {
    Alike,
    Few,
    Rising,
    Wide,
    /// All that the type holds.
    Extreme,
    Stretches,
}

const SPREADS: [Spread; 6] = [
    Spread::Alike,
    Spread::Few,
    Spread::Rising,
    Spread::Wide,
    Spread::Extreme,
    Spread::Stretches,
];

fn number(spread: Spread, row: usize, max: i64, chance: &mut Chance) -> i64 {
    let row = row as i64;
    match spread {
        Spread::Alike => max - 3,
        Spread::Few => [0, max, -max, 7][chance.below(4) as usize],
        Spread::Rising => (row * 13 + chance.below(9) as i64) % max,
        Spread::Wide => (chance.next() as i64) % max,
        Spread::Extreme => [max, -max - 1, 0, -1][chance.below(4) as usize],
        Spread::Stretches => (row / 700) % max,
    }
}

fn text(spread: Spread, row: usize, chance: &mut Chance) -> String {
    match spread {
        Spread::Alike => "landing/2026/a file of changes.json".into(),
        Spread::Few => ["", "new", "päid", "a status that is longer than most"]
            [chance.below(4) as usize]
            .into(),
        Spread::Rising => format!("customer {row:09}"),
        Spread::Wide => format!("{:x}", chance.next()).repeat(chance.below(6) as usize),
        Spread::Extreme => char::MAX.to_string().repeat(chance.below(40) as usize),
        Spread::Stretches => format!("é{}", row / 700),
    }
}

/// A column of each kind that is encoded here, and some of the library's between them.
fn columns(
    spread: Spread,
    nulls: u64,
    rows: usize,
    chance: &mut Chance,
) -> Vec<(String, ArrayRef)> {
    let is_null = |chance: &mut Chance| nulls > 0 && chance.below(100) < nulls;
    let mut numbers = |max: i64| -> Vec<Option<i64>> {
        let value = |row| (!is_null(chance)).then(|| number(spread, row, max, chance));
        (0..rows).map(value).collect()
    };
    let decimals = |values: Vec<Option<i64>>, digits: u8| {
        let values = values.into_iter().map(|value| value.map(i128::from));
        let decimals = Decimal128Array::from_iter(values);
        decimals.with_precision_and_scale(digits, 2).unwrap()
    };
    let short = |values: Vec<Option<i64>>| values.into_iter().map(|v| v.map(|v| v as i32));
    let tiny = numbers(i8::MAX.into())
        .into_iter()
        .map(|v| v.map(|v| v as i8));
    let small = numbers(i16::MAX.into())
        .into_iter()
        .map(|v| v.map(|v| v as i16));
    let mut columns: Vec<(&str, ArrayRef)> = vec![
        ("tiny", Arc::new(Int8Array::from_iter(tiny))),
        ("small", Arc::new(Int16Array::from_iter(small))),
        (
            "short",
            Arc::new(Int32Array::from_iter(short(numbers(i32::MAX.into())))),
        ),
        (
            "day",
            Arc::new(Date32Array::from_iter(short(numbers(i32::MAX.into())))),
        ),
        ("long", Arc::new(Int64Array::from_iter(numbers(i64::MAX)))),
        (
            "time",
            Arc::new(TimestampMicrosecondArray::from_iter(numbers(1 << 50)).with_timezone("UTC")),
        ),
        (
            "local",
            Arc::new(TimestampMicrosecondArray::from_iter(numbers(1 << 50))),
        ),
        ("price", Arc::new(decimals(numbers(999_999_999), 9))),
        (
            "sum",
            Arc::new(decimals(numbers(999_999_999_999_999_999), 18)),
        ),
        ("large", Arc::new(decimals(numbers(i64::MAX), 30))),
    ];
    let truths = numbers(9).into_iter().map(|v| v.map(|v| v > 3));
    columns.push(("truth", Arc::new(BooleanArray::from_iter(truths))));
    let floats = numbers(999).into_iter().map(|v| v.map(|v| v as f64 / 8.0));
    columns.push(("ratio", Arc::new(Float64Array::from_iter(floats))));
    let lists = numbers(99).into_iter();
    let lists = lists.map(|v| v.map(|v| vec![Some(v as i32); v as usize % 3]));
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(lists);
    columns.push(("list", Arc::new(lists)));
    let texts: Vec<Option<String>> = (0..rows)
        .map(|row| (!is_null(chance)).then(|| text(spread, row, chance)))
        .collect();
    let bytes = texts
        .iter()
        .map(|text| text.as_ref().map(|text| text.as_bytes()));
    columns.push(("bytes", Arc::new(BinaryArray::from_iter(bytes))));
    let texts: ArrayRef = Arc::new(StringArray::from(texts));
    let inner = Arc::new(Field::new("text", DataType::Utf8, true));
    columns.push((
        "part",
        Arc::new(StructArray::from(vec![(inner, Arc::clone(&texts))])),
    ));
    columns.push(("text", texts));
    let named = |(name, column): (&str, ArrayRef)| (name.to_owned(), column);
    columns.into_iter().map(named).collect()
}

fn encoded(batches: &[RecordBatch], rows_max: usize, filters: &[&str]) -> Bytes {
    let filters: Vec<String> = filters.iter().map(|name| (*name).to_owned()).collect();
    let properties = |rows: &RecordBatch| {
        let schema = rows.schema();
        let mut types = schema.fields().iter().map(|field| field.data_type());
        assert!(
            types.all(|data_type| ColumnKind::of(data_type).is_none()),
            "only columns of the library are asked for"
        );
        Ok(WriterProperties::builder().build())
    };
    let schema = batches[0].schema();
    let layout = FileLayout::of(&schema, &batches[0], rows_max, &filters, properties).unwrap();
    let mut encoder = FileEncoder::new(Arc::new(layout)).unwrap();
    let mut file = Vec::new();
    for batch in batches {
        encoder.write(batch).unwrap();
        file.extend(encoder.take_bytes());
    }
    let (rest, metadata) = encoder.finish().unwrap();
    file.extend(rest);
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(metadata.file_metadata().num_rows(), rows as i64);
    file.into()
}

fn reader(file: &Bytes) -> ParquetRecordBatchReaderBuilder<Bytes> {
    let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Required);
    ParquetRecordBatchReaderBuilder::try_new_with_options(file.clone(), options).unwrap()
}

fn read(reader: ParquetRecordBatchReaderBuilder<Bytes>) -> RecordBatch {
    let schema = Arc::clone(reader.schema());
    let rows: Vec<RecordBatch> = reader.build().unwrap().map(|rows| rows.unwrap()).collect();
    concat_batches(&schema, &rows).unwrap()
}

fn batches(columns: &[(String, ArrayRef)], sizes: &[usize]) -> Vec<RecordBatch> {
    let all = RecordBatch::try_from_iter_with_nullable(
        columns
            .iter()
            .map(|(name, column)| (name, Arc::clone(column), true)),
    )
    .unwrap();
    let mut start = 0;
    let mut cut = |size: &usize| {
        start += size;
        all.slice(start - size, *size)
    };
    sizes.iter().map(&mut cut).collect()
}

#[test]
fn all_kinds_of_values_come_back_whole_and_by_single_rows() {
    let mut chance = Chance(7);
    for spread in SPREADS {
        for nulls in [0, 30, 100] {
            for sizes in [&[1][..], &[70], &[5, 3_000, 9_000, 40], &[8_192, 8_192]] {
                let rows: usize = sizes.iter().sum();
                let columns = columns(spread, nulls, rows, &mut chance);
                let batches = batches(&columns, sizes);
                let file = encoded(&batches, rows, &[]);
                let all = concat_batches(&batches[0].schema(), &batches).unwrap();
                let told = format!("{spread:?}, {nulls} % NULL, {sizes:?}");
                assert_eq!(read(reader(&file)), all, "{told}");
                // By the index of the pages: one row each 977.
                let mut selectors = Vec::new();
                let mut picked = Vec::new();
                for start in (0..rows).step_by(977) {
                    selectors.push(RowSelector::select(1));
                    selectors.push(RowSelector::skip(976.min(rows - start - 1)));
                    picked.push(all.slice(start, 1));
                }
                let single = reader(&file).with_row_selection(RowSelection::from(selectors));
                let picked = concat_batches(&all.schema(), &picked).unwrap();
                assert_eq!(read(single), picked, "{told}");
            }
        }
    }
}

/// The least and greatest number and the NULLs that statistics state.
fn numbers_stated(statistics: &Statistics) -> (Option<(i64, i64)>, u64) {
    let range = match statistics {
        Statistics::Int32(known) => {
            let wide = |bound: Option<&i32>| bound.map(|bound| i64::from(*bound));
            wide(known.min_opt()).zip(wide(known.max_opt()))
        }
        Statistics::Int64(known) => known.min_opt().copied().zip(known.max_opt().copied()),
        other => panic!("{other:?}"),
    };
    (range, statistics.null_count_opt().unwrap())
}

#[test]
fn file_states_bounds_of_numbers_and_pages_that_hold() {
    let mut chance = Chance(11);
    for spread in SPREADS {
        for nulls in [0, 50, 100] {
            let columns = columns(spread, nulls, 5_000, &mut chance);
            let file = encoded(&batches(&columns, &[5_000]), 5_000, &[]);
            let reader = reader(&file);
            let metadata = reader.metadata();
            let leaf = metadata.file_metadata().schema_descr().columns();
            let place = leaf.iter().position(|leaf| leaf.name() == "long").unwrap();
            let longs = columns
                .iter()
                .find(|(name, _)| name == "long")
                .unwrap()
                .1
                .clone();
            let range = |from: usize, length: usize| {
                let part = longs.slice(from, length);
                let part = part.as_primitive::<arrow::datatypes::Int64Type>();
                let present = || part.iter().flatten();
                (
                    present().min().zip(present().max()),
                    part.null_count() as u64,
                )
            };
            let stated = metadata.row_group(0).column(place).statistics().unwrap();
            assert_eq!(numbers_stated(stated), range(0, 5_000));
            let Some(indexes) = metadata.column_index() else {
                panic!("no index")
            };
            let ColumnIndexMetaData::INT64(index) = &indexes[0][place] else {
                panic!("{:?}", indexes[0][place])
            };
            let offsets = &metadata.offset_index().unwrap()[0][place].page_locations;
            assert_eq!(offsets.len(), 3);
            for (page, location) in offsets.iter().enumerate() {
                let from = location.first_row_index as usize;
                let page_range = index
                    .min_value(page)
                    .copied()
                    .zip(index.max_value(page).copied());
                let nulls = index.null_count(page).unwrap() as u64;
                assert_eq!(
                    (page_range, nulls),
                    range(from, PAGE_ROWS.min(5_000 - from))
                );
            }
        }
    }
}

#[test]
fn bounds_of_texts_hold_them_all() {
    let mut chance = Chance(13);
    for spread in SPREADS {
        let columns = columns(spread, 10, 5_000, &mut chance);
        let file = encoded(&batches(&columns, &[5_000]), 5_000, &[]);
        let reader = reader(&file);
        let metadata = reader.metadata();
        let place = metadata.file_metadata().schema_descr().num_columns() - 1;
        let texts = columns.last().unwrap().1.clone();
        let texts = texts.as_string::<i32>();
        let (least, greatest) = (texts.iter().flatten().min(), texts.iter().flatten().max());
        let stated = metadata.row_group(0).column(place).statistics().unwrap();
        assert!(stated.min_bytes_opt().unwrap() <= least.unwrap().as_bytes());
        assert!(
            stated
                .max_bytes_opt()
                .is_none_or(|max| max >= greatest.unwrap().as_bytes())
        );
        assert!(stated.min_bytes_opt().unwrap().len() <= bounds::TEXT_BYTES_MAX);
        if matches!(spread, Spread::Rising) {
            assert_eq!(stated.max_bytes_opt(), greatest.map(str::as_bytes));
        }
    }
}

#[test]
fn filters_pass_what_is_there_and_refuse_most_else() {
    let numbers: Vec<i64> = (0..16_000).map(|row| row * 3).collect();
    let texts = numbers.iter().map(|number| Some(format!("key {number}")));
    let days = numbers.iter().map(|number| *number as i32);
    let columns: Vec<(String, ArrayRef)> = vec![
        ("number".into(), Arc::new(Int64Array::from(numbers.clone()))),
        ("text".into(), Arc::new(texts.collect::<StringArray>())),
        ("Day".into(), Arc::new(Date32Array::from_iter_values(days))),
    ];
    let filters = ["number", "text", "day"];
    let file = encoded(&batches(&columns, &[16_000]), 16_000, &filters);
    let reader = reader(&file);
    let filter = |place| {
        reader
            .get_row_group_column_bloom_filter(0, place)
            .unwrap()
            .unwrap()
    };
    let (of_numbers, of_texts, of_days) = (filter(0), filter(1), filter(2));
    let passed = |number: i64| {
        [
            of_numbers.check(&number),
            of_texts.check(format!("key {number}").as_str()),
            of_days.check(&(number as i32)),
        ]
    };
    assert!(numbers.iter().all(|number| passed(*number) == [true; 3]));
    let mut by_chance = [0; 3];
    for number in &numbers {
        for (count, passed) in by_chance.iter_mut().zip(passed(number + 1)) {
            *count += u32::from(passed);
        }
    }
    assert!(by_chance.iter().all(|count| *count < 480), "{by_chance:?}");
}

#[test]
fn groups_behind_one_without_a_filter_have_none() {
    let rows = ROW_GROUP_ROWS as i64;
    let dense = (0..rows).chain((0..rows).map(|row| row * 1_000));
    let sparse = (0..2 * rows).map(|row| row * 1_000);
    let columns: Vec<(String, ArrayRef)> = vec![
        ("a".into(), Arc::new(Int64Array::from_iter_values(dense))),
        ("b".into(), Arc::new(Int64Array::from_iter_values(sparse))),
    ];
    let count = 2 * ROW_GROUP_ROWS;
    let file = encoded(&batches(&columns, &[count]), count, &["a", "b"]);
    let reader = reader(&file);
    let has_filter = |group, place| {
        let filter = reader.get_row_group_column_bloom_filter(group, place);
        filter.unwrap().is_some()
    };
    let of_groups = [0, 1].map(|group| [has_filter(group, 0), has_filter(group, 1)]);
    assert_eq!(of_groups, [[false, true]; 2]);
}

#[test]
fn only_columns_that_packing_makes_smaller_are_packed() {
    let mut chance = Chance(17);
    let numbers = (0..9_000).map(|_| chance.next() as i64);
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
    let texts = (0..9_000).map(|row| Some(format!("the same beginning {row}")));
    let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
    let columns = [("number".to_owned(), numbers), ("text".to_owned(), texts)];
    let file = encoded(&batches(&columns, &[9_000]), 9_000, &[]);
    let reader = reader(&file);
    let codec = |place| reader.metadata().row_group(0).column(place).compression();
    assert_eq!(codec(0), Compression::UNCOMPRESSED);
    assert!(matches!(codec(1), Compression::ZSTD(_)));
}

#[test]
fn dictionary_that_grows_too_large_ends_and_what_it_holds_stays_readable() {
    // The first rows repeat, so a dictionary is begun; the others do not.
    let few = (0..10_000).map(|row| row % 5);
    let numbers: Vec<i64> = few
        .chain(10_000..120_000)
        .chain((0..5_000).map(|n| n % 5))
        .collect();
    let texts = numbers.iter().map(|number| Some(format!("text {number}")));
    let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
    let numbers: ArrayRef = Arc::new(Int64Array::from(numbers));
    let columns = [("number".to_owned(), numbers), ("text".to_owned(), texts)];
    let batches = batches(&columns, &[10_000, 60_000, 55_000]);
    let file = encoded(&batches, 125_000, &[]);
    let all = concat_batches(&batches[0].schema(), &batches).unwrap();
    assert_eq!(read(reader(&file)), all);
}

#[test]
fn row_groups_end_at_their_size_and_columns_without_nulls_need_no_levels() {
    let rows = ROW_GROUP_ROWS + 10;
    let schema = Arc::new(Schema::new(vec![
        Field::new("k", DataType::Int64, false),
        Field::new("t", DataType::Utf8, false),
    ]));
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows as i64));
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["x"; rows]));
    let all = RecordBatch::try_new(schema, vec![keys, texts]).unwrap();
    let file = encoded(std::slice::from_ref(&all), rows, &["k"]);
    let reader = reader(&file);
    let groups = reader.metadata().row_groups().iter();
    let sizes: Vec<i64> = groups.map(|group| group.num_rows()).collect();
    assert_eq!(sizes, [ROW_GROUP_ROWS as i64, 10]);
    assert_eq!(read(reader), all);
}

#[test]
fn long_texts_make_short_pages_and_wait_for_no_others() {
    let long =
        |row: usize| format!("{row} ").repeat(if row.is_multiple_of(9) { 60_000 } else { 9_000 });
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..300).map(long)));
    let all = RecordBatch::try_from_iter_with_nullable([("t", texts, true)]).unwrap();
    let batches: Vec<RecordBatch> = (0..30).map(|place| all.slice(place * 10, 10)).collect();
    let properties = |_: &RecordBatch| Ok(WriterProperties::builder().build());
    let layout = FileLayout::of(&all.schema(), &all, 300, &[], properties).unwrap();
    let mut encoder = FileEncoder::new(Arc::new(layout)).unwrap();
    for batch in &batches {
        encoder.write(batch).unwrap();
        assert!(encoder.waiting_bytes < WAITING_BYTES_MAX);
    }
    assert!(
        encoder.waiting.len() < batches.len() / 2,
        "most are encoded"
    );
    let (file, _) = encoder.finish().unwrap();
    let reader = reader(&Bytes::from(file));
    let index = reader.metadata().offset_index().unwrap();
    let starts = index[0][0]
        .page_locations
        .iter()
        .map(|page| page.first_row_index as usize);
    let starts: Vec<usize> = starts.chain([300]).collect();
    for page in starts.windows(2) {
        let bytes: usize = (page[0]..page[1]).map(|row| long(row).len()).sum();
        assert!(bytes <= chunk::PAGE_BYTES_MAX || page[1] - page[0] == 1);
    }
    assert_eq!(read(reader), all);
}
