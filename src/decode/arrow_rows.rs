//! The rows of Arrow batches, for the formats whose values have types of their own.
//!
//! The columns of a batch of which every value fits are moved as they are. Where any does not, the batch is read row by row,
//! which alone says what is wrong with a row; so both give the same rows.

use super::arrow_text::row_json;
use super::arrow_value::ArrowValue;
use super::rows::{Place, RecordFault, Rows};
use super::value::FieldValue;
use arrow::array::{Array, RecordBatch};
use std::ops::Range;

/// For columns of a batch, whether reading each of their values cut off digits below the microsecond.
pub(super) type TooFine = [(usize, Vec<bool>)];

/// Makes a row or a reject of each row of a batch.
pub(super) fn read_batch<'a>(batch: &'a RecordBatch, too_fine: &TooFine, rows: &mut Rows<'a>) {
    let targets = targets(batch, rows);
    let mut start = 0;
    while start < batch.num_rows() {
        let end = batch.num_rows().min(start.saturating_add(rows.room()));
        match push_rows(batch, too_fine, &targets, start..end, rows) {
            Some(()) => (start..end).for_each(|_| take(&targets, rows)),
            None => {
                rows.forget();
                for row in start..end {
                    read_row(batch, too_fine, &targets, row, rows);
                }
            }
        }
        start = end;
    }
}

/// For each column of a batch, the column that takes its values.
pub(super) fn targets(batch: &RecordBatch, rows: &Rows<'_>) -> Vec<Option<usize>> {
    let fields = batch.schema_ref().fields().iter();
    fields.map(|field| rows.index_of(field.name())).collect()
}

/// Makes a row or a reject of one row of a batch.
pub(super) fn read_row<'a>(
    batch: &'a RecordBatch,
    too_fine: &TooFine,
    targets: &[Option<usize>],
    row: usize,
    rows: &mut Rows<'a>,
) {
    match set_row(batch, too_fine, targets, row, rows) {
        Ok(()) => rows.take(Place::default()),
        Err(fault) => rows.refuse(Place::default(), fault, row_json(batch, row)),
    }
}

/// Puts the values of a row into the slots of the present record.
fn set_row<'a>(
    batch: &'a RecordBatch,
    too_fine: &TooFine,
    targets: &[Option<usize>],
    row: usize,
    rows: &mut Rows<'a>,
) -> Result<(), RecordFault> {
    for (column, (array, target)) in batch.columns().iter().zip(targets).enumerate() {
        let value = ArrowValue {
            array: array.as_ref(),
            row,
            is_too_fine: is_too_fine(too_fine, column, row..row + 1),
        };
        match target {
            Some(index) => rows.set(*index, &value)?,
            None => {
                let name = batch.schema_ref().field(column).name();
                rows.set_unknown(name, &value)?;
            }
        }
    }
    rows.close()
}

fn is_too_fine(too_fine: &TooFine, column: usize, rows: Range<usize>) -> bool {
    let found = too_fine.iter().find(|(index, _)| *index == column);
    found.is_some_and(|(_, cut)| rows.into_iter().any(|row| cut.get(row) == Some(&true)))
}

/// Appends the values of some rows to the columns; `None` where not every one fits, and then some of them may be there.
fn push_rows<'a>(
    batch: &'a RecordBatch,
    too_fine: &TooFine,
    targets: &[Option<usize>],
    range: Range<usize>,
    rows: &mut Rows<'a>,
) -> Option<()> {
    if rows.has_envelope() {
        return None;
    }
    let before = rows.count();
    for (column, (array, target)) in batch.columns().iter().zip(targets).enumerate() {
        let moved = array.slice(range.start, range.len());
        let Some(index) = *target else {
            let is_empty = moved.logical_null_count() == moved.len() && !rows.lists_columns();
            if is_empty || rows.ignores_unknown() {
                continue;
            }
            return None;
        };
        let place = rows.columns.root(index);
        let is_repeated = rows.columns.at(place).len() != before;
        if is_repeated || is_too_fine(too_fine, column, range.clone()) {
            return None;
        }
        if rows.columns.append(place, moved.as_ref(), None).is_some() {
            continue;
        }
        rows.columns.truncate_at(place, before);
        for row in range.clone() {
            let value = ArrowValue::at(array.as_ref(), row);
            match value.is_null() {
                true => rows.columns.push_null(place),
                false => rows.push(place, Some(index), &value)?,
            }
        }
    }
    rows.pushed = rows.columns.count_longer(before);
    Some(())
}

/// Ends a row whose values are in the columns.
fn take(targets: &[Option<usize>], rows: &mut Rows<'_>) {
    targets.iter().flatten().for_each(|index| rows.note(*index));
    rows.take_pushed(Place::default());
}

#[cfg(test)]
mod tests {
    use crate::decode::Decoded;
    use crate::decode::testing::*;
    use crate::settings::{AbsentColumns, Format, SchemaEvolutionMode};
    use arrow::array::*;
    use arrow::datatypes::{DataType, Field, Fields, TimeUnit};
    use parquet::arrow::ArrowWriter;
    use std::sync::Arc;

    const HINTS: &str = "id BIGINT, part INT, small TINYINT, amount DECIMAL(5,2), ratio DOUBLE, single FLOAT, \
                         name STRING, bytes BINARY, ok BOOLEAN, day DATE, at TIMESTAMP, wall TIMESTAMP_NTZ, \
                         tags ARRAY<STRING>, deep STRUCT<n: INT, inner: STRUCT<s: STRING, more: INT>>, free BIGINT";

    /// Rows of every type; of each `nulls`-th no value is there, and one in `wrong` does not fit.
    fn batch(rows: usize, nulls: usize, wrong: usize) -> RecordBatch {
        let is_there = |place: usize| move |row: &usize| !(row + place).is_multiple_of(nulls);
        let number = |place: usize| move |row: usize| (row * 7_919 + place) as i64 % 1_000;
        let pick = |place: usize| {
            let (there, number) = (is_there(place), number(place));
            (0..rows).map(move |row| Some(row).filter(there).map(number))
        };
        let is_wrong = |row: usize| wrong > 0 && row % wrong == wrong - 1;
        let days = (0..rows).map(|row| Some(if is_wrong(row) { i32::MAX } else { row as i32 }));
        let amounts = pick(3).map(|value| value.map(i128::from));
        let texts: Vec<_> = pick(6)
            .map(|value| value.map(|value| format!("t{value}")))
            .collect();
        let mut tags = ListBuilder::new(StringBuilder::new());
        for value in pick(12) {
            tags.append_option(value.map(|value| [Some(value.to_string()), None]));
        }
        let inner = StructArray::new(
            Fields::from(vec![Field::new("s", DataType::Utf8, true)]),
            vec![Arc::new(StringArray::from(texts.clone()))],
            Some(
                (0..rows)
                    .map(|row| row % 3 != 0)
                    .collect::<Vec<bool>>()
                    .into(),
            ),
        );
        let deep = StructArray::new(
            Fields::from(vec![
                Field::new("inner", inner.data_type().clone(), true),
                Field::new("n", DataType::Int32, true),
            ]),
            vec![
                Arc::new(inner),
                Arc::new(Int32Array::from_iter(
                    pick(1).map(|value| value.map(|v| v as i32)),
                )),
            ],
            Some(
                (0..rows)
                    .map(|row| row % 4 != 0)
                    .collect::<Vec<bool>>()
                    .into(),
            ),
        );
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("id", Arc::new(Int64Array::from_iter(pick(0)))),
            (
                "part",
                Arc::new(Int32Array::from_iter(pick(1).map(|v| v.map(|v| v as i32)))),
            ),
            (
                "small",
                Arc::new(Int8Array::from_iter(pick(2).map(|v| v.map(|v| v as i8)))),
            ),
            (
                "amount",
                Arc::new(
                    Decimal128Array::from_iter(amounts)
                        .with_precision_and_scale(5, 2)
                        .unwrap(),
                ),
            ),
            (
                "ratio",
                Arc::new(Float64Array::from_iter(
                    pick(4).map(|v| v.map(|v| v as f64 / 7.0)),
                )),
            ),
            (
                "single",
                Arc::new(Float32Array::from_iter(
                    pick(5).map(|v| v.map(|v| v as f32 / 7.0)),
                )),
            ),
            ("name", Arc::new(StringArray::from(texts.clone()))),
            ("bytes", Arc::new(BinaryArray::from_iter(texts))),
            (
                "ok",
                Arc::new(BooleanArray::from_iter(
                    pick(8).map(|v| v.map(|v| v % 2 == 0)),
                )),
            ),
            ("day", Arc::new(Date32Array::from_iter(days))),
            (
                "at",
                Arc::new(TimestampMicrosecondArray::from_iter(pick(10)).with_timezone("UTC")),
            ),
            (
                "wall",
                Arc::new(TimestampMicrosecondArray::from_iter(pick(11))),
            ),
            ("tags", Arc::new(tags.finish())),
            ("deep", Arc::new(deep)),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn file(batch: &RecordBatch) -> Vec<u8> {
        let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None).unwrap();
        writer.write(batch).unwrap();
        writer.into_inner().unwrap()
    }

    fn cells(decoded: &Decoded) -> Vec<Vec<String>> {
        let schema = decoded.rows.schema();
        let names = schema.fields().iter().map(|field| field.name());
        names.map(|name| column(decoded, name)).collect()
    }

    #[test]
    fn rows_are_the_same_whether_their_columns_are_moved_or_not() {
        for (rows, nulls, wrong) in [(40, 3, 0), (3_000, 7, 0), (50, 5, 9), (30, 2, 0)] {
            let batch = batch(rows, nulls, wrong);
            let mut case = Case::new(Format::Parquet, "a.parquet", HINTS);
            if rows == 30 {
                case.settings.absent_columns = AbsentColumns::Keep;
                case.schema = case
                    .schema
                    .with_own_column("_present_columns", DataType::Utf8);
            }
            let moved = case.read(file(&batch));
            assert_eq!(moved.rejects.len(), rows.checked_div(wrong).unwrap_or(0));
            // A value that no column takes keeps all rows from being moved.
            let unknown = Arc::new(Int32Array::from(vec![1; rows])) as ArrayRef;
            let schema = batch.schema();
            let fields = schema.fields().iter().cloned();
            let fields = fields.chain([Arc::new(Field::new("unknown", DataType::Int32, true))]);
            let columns = batch.columns().iter().cloned().chain([unknown]);
            let wider = RecordBatch::try_new(
                Arc::new(arrow::datatypes::Schema::new(fields.collect::<Vec<_>>())),
                columns.collect(),
            );
            let one_by_one = case
                .evolution(SchemaEvolutionMode::AddNewColumns)
                .read(file(&wider.unwrap()));
            let (mut expected, mut found) = (cells(&one_by_one), cells(&moved));
            if rows == 30 {
                let list = expected.len() - 2;
                assert!(expected[list][0].contains("unknown") && found[list][0].contains("deep"));
                expected.remove(list);
                found.remove(list);
            }
            assert_eq!(found, expected);
            assert_eq!(moved.positions, one_by_one.positions);
        }
    }

    #[test]
    fn parts_end_where_they_would_row_by_row() {
        let case = Case::new(Format::Parquet, "a.parquet", HINTS);
        let bytes = file(&batch(2_500, 4, 0));
        let whole = case.read(&bytes);
        let parts = std::cell::RefCell::new(Vec::new());
        let take = |part: Decoded| parts.borrow_mut().push(part);
        crate::decode::decode_in_parts(
            case.path,
            bytes.into(),
            &case.schema,
            &case.settings,
            999,
            &take,
        )
        .unwrap();
        let parts = parts.into_inner();
        let lengths: Vec<usize> = parts.iter().map(|part| part.positions.len()).collect();
        assert_eq!(lengths, [999, 999, 502]);
        let mut joined = vec![Vec::new(); whole.rows.num_columns()];
        for part in &parts {
            for (all, cells) in joined.iter_mut().zip(cells(part)) {
                all.extend(cells);
            }
        }
        assert_eq!(joined, cells(&whole));
        let unit = DataType::Timestamp(TimeUnit::Microsecond, None);
        assert_eq!(
            whole.rows.column_by_name("wall").unwrap().data_type(),
            &unit
        );
    }
}
