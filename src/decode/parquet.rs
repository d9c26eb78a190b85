//! Apache Parquet: the types of the file, taken into the types of the columns exactly.
//!
//! The Arrow types that a writer may have left in the file are not looked at; what the Parquet types say is the same
//! for every writer. What the values become is left to `arrow_rows`.

mod headers;
mod pages;

use super::arrow_rows::read_batch;
use super::rows::Rows;
use crate::change::{FileFault, ParkReason};
use crate::schema::timestamp_type;
use arrow::array::{Array, RecordBatch, TimestampMicrosecondArray, TimestampNanosecondArray};
use arrow::datatypes::{Field, Fields, Schema};
use bytes::Bytes;
use pages::AllGroups;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, RowGroups, RowSelection,
    RowSelector,
};
use parquet::arrow::{FieldLevels, ProjectionMask, parquet_to_arrow_field_levels};
use parquet::basic::Type as PhysicalType;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::ChunkReader;
use std::collections::HashSet;
use std::fmt::Display;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Stands at both ends of a Parquet file.
pub(super) const MAGIC: &[u8] = b"PAR1";
/// Both of them, and the length of the footer.
const BYTES_MIN: u64 = 12;

/// Rows read at once. A debug build reads fewer, so that tests read files in several batches.
const BATCH_ROWS: usize = if cfg!(debug_assertions) { 16 } else { 8_192 };

/// Some rows of a file.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) rows: RecordBatch,
    /// The columns of INT96, and which of their values are finer than microseconds.
    too_fine: Vec<(usize, Vec<bool>)>,
}

/// Opens a file; its metadata is given where it is known and all of the file is about to be read.
pub(super) type Open<'o, R> = &'o dyn Fn(Option<&ParquetMetaData>) -> std::io::Result<R>;

/// Reads the whole file; nothing is taken when any of it cannot be read.
pub(super) fn load(bytes: &Bytes) -> Result<Vec<Batch>, FileFault> {
    if (bytes.len() as u64) < BYTES_MIN || !bytes.starts_with(MAGIC) || !bytes.ends_with(MAGIC) {
        return Err(not_whole());
    }
    load_part(&|_| Ok(bytes.clone()), Part::ALL)
}

/// How much of a file is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// The first columns.
    pub(super) columns_max: usize,
    /// The first rows.
    pub(super) rows_max: usize,
}

impl Part {
    pub(super) const ALL: Part = Part {
        columns_max: usize::MAX,
        rows_max: usize::MAX,
    };
}

/// Whether an open file begins and ends as Parquet does. Its place is left where it is.
pub(super) fn is_whole(file: &File) -> std::io::Result<bool> {
    let length = file.metadata()?.len();
    if length < BYTES_MIN {
        return Ok(false);
    }
    let mut ends = [[0; MAGIC.len()]; 2];
    file.read_exact_at(&mut ends[0], 0)?;
    file.read_exact_at(&mut ends[1], length - MAGIC.len() as u64)?;
    Ok(ends.iter().all(|end| end == MAGIC))
}

/// What does not begin and end as a Parquet file does.
pub(super) fn not_whole() -> FileFault {
    let detail =
        "the file does not begin and end with PAR1; it is no Parquet file or not all of it";
    FileFault::new(ParkReason::NotThisFormat, detail)
}

/// Reads the first columns and rows of the file that `open` opens, and of its pages no more than these need.
pub(super) fn load_part<R: ChunkReader + 'static>(
    open: Open<'_, R>,
    part: Part,
) -> Result<Vec<Batch>, FileFault> {
    let mut batches = Batches::open(open, part)?;
    let mut loaded = Vec::new();
    while let Some(batch) = batches.next()? {
        loaded.push(batch);
    }
    Ok(loaded)
}

/// The rows of a file, one batch after the other.
pub(super) struct Batches {
    micros: ParquetRecordBatchReader,
    /// The columns of INT96, and their values as nanoseconds.
    nanos: Option<(Vec<usize>, ParquetRecordBatchReader)>,
}

impl Batches {
    /// Opens the file of which some is read, and looks at its footer.
    pub(super) fn open<R: ChunkReader + 'static>(
        open: Open<'_, R>,
        part: Part,
    ) -> Result<Batches, FileFault> {
        unpanicked(|| Batches::checked(open, part))
    }

    fn checked<R: ChunkReader + 'static>(
        open: Open<'_, R>,
        part: Part,
    ) -> Result<Batches, FileFault> {
        let reader = open(None).map_err(unreadable)?;
        let options = || ArrowReaderOptions::new().with_skip_arrow_metadata(true);
        headers::check_footer(&reader).map_err(not_parquet)?;
        let metadata = ArrowReaderMetadata::load(&reader, options()).map_err(not_parquet)?;
        check_names(metadata.schema())?;
        check_places(metadata.metadata(), reader.len())?;
        let mut nanos_columns = int96_columns(&metadata)?;
        // The columns that are read are the first, so their places stay as they are.
        nanos_columns.retain(|column| *column < part.columns_max);
        let micros_schema = with_micros(metadata.schema(), &nanos_columns);
        let columns = metadata.schema().fields().len().min(part.columns_max);
        let roots = |columns: &[usize]| {
            let columns = columns.iter().copied();
            ProjectionMask::roots(metadata.parquet_schema(), columns)
        };
        let read = |columns: &[usize], types: Option<&Fields>| {
            let file = open(Some(metadata.metadata())).map_err(unreadable)?;
            let groups = AllGroups::of(file, metadata.metadata());
            let levels =
                parquet_to_arrow_field_levels(metadata.parquet_schema(), roots(columns), types);
            let levels = levels.map_err(not_parquet)?;
            batches(&groups, &levels, part.rows_max)
        };
        let all: Vec<usize> = (0..columns).collect();
        let micros = read(&all, Some(micros_schema.fields()))?;
        let nanos = match nanos_columns.is_empty() {
            true => None,
            false => {
                let nanos = read(&nanos_columns, None)?;
                Some((nanos_columns, nanos))
            }
        };
        Ok(Batches { micros, nanos })
    }

    /// The next rows; none behind the last. Nothing is to be read behind a fault.
    pub(super) fn next(&mut self) -> Result<Option<Batch>, FileFault> {
        unpanicked(|| {
            let Some(rows) = self.micros.next().transpose().map_err(unreadable)? else {
                return Ok(None);
            };
            let too_fine = match &mut self.nanos {
                None => Vec::new(),
                Some((columns, nanos)) => {
                    let nanos = nanos.next().transpose().map_err(unreadable)?;
                    let nanos = nanos.filter(|nanos| nanos.num_rows() == rows.num_rows());
                    let nanos = nanos
                        .ok_or_else(|| unreadable("a column of INT96 ends before the others"))?;
                    finer_than_micros(&rows, &nanos, columns)
                }
            };
            Ok(Some(Batch { rows, too_fine }))
        })
    }
}

/// The library panics on some damaged files, where no call of it can be asked beforehand; such a file is at fault, not the
/// program.
fn unpanicked<T>(read: impl FnOnce() -> Result<T, FileFault>) -> Result<T, FileFault> {
    let read = std::panic::AssertUnwindSafe(read);
    std::panic::catch_unwind(read).unwrap_or_else(|_| {
        let detail = "the Parquet file is damaged: its pages do not read as its footer says";
        Err(FileFault::new(ParkReason::NotThisFormat, detail))
    })
}

fn batches(
    groups: &dyn RowGroups,
    levels: &FieldLevels,
    rows_max: usize,
) -> Result<ParquetRecordBatchReader, FileFault> {
    let rows = groups.num_rows();
    let first = (rows_max < rows).then(|| {
        RowSelection::from(vec![
            RowSelector::select(rows_max),
            RowSelector::skip(rows - rows_max),
        ])
    });
    let batch_rows = BATCH_ROWS.min(rows_max);
    ParquetRecordBatchReader::try_new_with_row_groups(levels, groups, batch_rows, first)
        .map_err(unreadable)
}

fn not_parquet(error: impl Display) -> FileFault {
    FileFault::new(
        ParkReason::NotThisFormat,
        format!("the Parquet footer cannot be read: {error}"),
    )
}

fn unreadable(error: impl Display) -> FileFault {
    FileFault::new(
        ParkReason::Unreadable,
        format!("the Parquet data cannot be read: {error}"),
    )
}

fn check_names(schema: &Schema) -> Result<(), FileFault> {
    let mut seen = HashSet::new();
    match schema
        .fields()
        .iter()
        .find(|field| !seen.insert(field.name()))
    {
        Some(field) => Err(FileFault::new(
            ParkReason::NotThisFormat,
            format!("column {} stands twice", field.name()),
        )),
        None => Ok(()),
    }
}

/// The library asserts that the places of a damaged footer are sound, so that is looked at before.
fn check_places(metadata: &ParquetMetaData, file_bytes: u64) -> Result<(), FileFault> {
    let end = i64::try_from(file_bytes).unwrap_or(i64::MAX);
    for column in metadata
        .row_groups()
        .iter()
        .flat_map(|group| group.columns())
    {
        let start = column
            .dictionary_page_offset()
            .unwrap_or(column.data_page_offset());
        let length = column.compressed_size();
        let is_inside =
            start >= 0 && length >= 0 && start.checked_add(length).is_some_and(|last| last <= end);
        if !is_inside || column.data_page_offset() < 0 {
            let name = column.column_path().string();
            return Err(not_parquet(format!(
                "column {name} lies outside of the file"
            )));
        }
    }
    Ok(())
}

/// The columns of INT96, an old form of instants.
fn int96_columns(metadata: &ArrowReaderMetadata) -> Result<Vec<usize>, FileFault> {
    let descriptor = metadata.parquet_schema();
    let mut roots = Vec::new();
    for (leaf, column) in descriptor.columns().iter().enumerate() {
        if column.physical_type() != PhysicalType::INT96 {
            continue;
        }
        let root = descriptor.get_column_root_idx(leaf);
        if !descriptor.get_column_root(leaf).is_primitive() {
            let detail = format!(
                "column {}: INT96 inside of a nested type is not supported",
                column.path().string()
            );
            return Err(FileFault::new(ParkReason::Unreadable, detail));
        }
        roots.push(root);
    }
    Ok(roots)
}

/// INT96 reaches further than nanoseconds in 64 bits do, so it is read as microseconds.
fn with_micros(schema: &Schema, columns: &[usize]) -> Arc<Schema> {
    let fields = schema.fields().iter().enumerate().map(|(index, field)| {
        if columns.contains(&index) {
            Arc::new(
                Field::new(field.name(), timestamp_type(), field.is_nullable())
                    .with_metadata(field.metadata().clone()),
            )
        } else {
            field.clone()
        }
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// The library cuts off what is finer than a microsecond; the same values as nanoseconds show where.
fn finer_than_micros(
    micros: &RecordBatch,
    nanos: &RecordBatch,
    columns: &[usize],
) -> Vec<(usize, Vec<bool>)> {
    let compare = |(place, column): (usize, &usize)| {
        let micros = micros
            .column(*column)
            .as_any()
            .downcast_ref::<TimestampMicrosecondArray>();
        let nanos = nanos
            .column(place)
            .as_any()
            .downcast_ref::<TimestampNanosecondArray>();
        let finer = match (micros, nanos) {
            // Nanoseconds wrap around, and so does the product; equality holds all the same.
            (Some(micros), Some(nanos)) => {
                let pairs = micros.values().iter().zip(nanos.values());
                pairs
                    .map(|(micros, nanos)| micros.wrapping_mul(1000) != *nanos)
                    .collect()
            }
            _ => vec![true; nanos.map_or(0, |array| array.len())],
        };
        (*column, finer)
    };
    columns.iter().enumerate().map(compare).collect()
}

/// Puts rows of a file where they belong.
pub(super) fn read<'a>(batches: &'a [Batch], rows: &mut Rows<'a>) {
    for batch in batches {
        read_batch(&batch.rows, &batch.too_fine, rows);
    }
}

#[cfg(test)]
mod tests {
    use super::MAGIC;
    use crate::change::{ParkReason, RejectReason::*};
    use crate::decode::Decoded;
    use crate::decode::testing::*;
    use crate::settings::{Format, SchemaEvolutionMode};
    use arrow::array::*;
    use arrow::datatypes::*;
    use parquet::arrow::ArrowWriter;
    use parquet::data_type::{Int96, Int96Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    use parquet::schema::parser::parse_message_type;
    use std::sync::Arc;

    fn case(ddl: &str) -> Case {
        Case::new(Format::Parquet, "orders.parquet", ddl)
    }

    fn file(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
        let fields: Vec<_> = columns
            .iter()
            .map(|(name, array)| Field::new(*name, array.data_type().clone(), true))
            .collect();
        let schema = Arc::new(Schema::new(fields));
        let arrays = columns.into_iter().map(|(_, array)| array).collect();
        let batch = RecordBatch::try_new(schema.clone(), arrays).unwrap();
        let mut writer = ArrowWriter::try_new(Vec::new(), schema, None).unwrap();
        writer.write(&batch).unwrap();
        writer.into_inner().unwrap()
    }

    /// Reads one column `c` of the file into a column of the type.
    fn read_as(array: ArrayRef, ddl: &str) -> Decoded {
        case(&format!("c {ddl}")).read(file(vec![("c", array)]))
    }

    fn int96_file(values: &[(u32, u64)]) -> Vec<u8> {
        let schema = Arc::new(parse_message_type("message m { required int96 c; }").unwrap());
        let mut writer = SerializedFileWriter::new(Vec::new(), schema, Default::default()).unwrap();
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let values: Vec<_> = values
            .iter()
            .map(|(day, nanos)| {
                let mut value = Int96::new();
                value.set_data(*nanos as u32, (*nanos >> 32) as u32, *day);
                value
            })
            .collect();
        column
            .typed::<Int96Type>()
            .write_batch(&values, None, None)
            .unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.into_inner().unwrap()
    }

    #[test]
    fn what_is_no_whole_parquet_file_is_refused() {
        let whole = file(vec![("c", Arc::new(Int64Array::from(vec![1, 2])))]);
        assert_eq!(case("c INT").fault(b"").0, ParkReason::NotThisFormat);
        assert_eq!(
            case("c INT").fault(b"{\"a\": 1}\n{\"a\": 2}\n").0,
            ParkReason::NotThisFormat
        );
        assert_eq!(
            case("c INT").fault([MAGIC, &[0xFF; 40], MAGIC].concat()).0,
            ParkReason::NotThisFormat
        );
        for cut in 0..whole.len() {
            let (reason, _) = case("c INT").fault(&whole[..cut]);
            assert_eq!(reason, ParkReason::NotThisFormat);
        }
        let json = Case::json("c INT");
        assert_eq!(json.fault(&whole).0, ParkReason::NotThisFormat);
        let auto = Case::new(Format::Auto, "data.json", "c INT");
        assert_eq!(column(&auto.read(&whole), "c"), ["1", "2"]);
    }

    #[test]
    fn a_footer_that_points_outside_of_the_file_is_refused() {
        let whole = file(vec![(
            "c",
            Arc::new(Int64Array::from((0..5000).collect::<Vec<_>>())),
        )]);
        let footer_length =
            u32::from_le_bytes(whole[whole.len() - 8..whole.len() - 4].try_into().unwrap());
        let footer = whole.len() - 8 - footer_length as usize;
        let (reason, detail) = case("c INT").fault([&whole[..4], &whole[footer..]].concat());
        assert_eq!(reason, ParkReason::NotThisFormat);
        assert!(
            detail.contains("column c lies outside of the file"),
            "{detail}"
        );
    }

    #[test]
    fn damaged_pages_give_no_rows() {
        let whole = file(vec![(
            "c",
            Arc::new(Int64Array::from((0..5000).collect::<Vec<_>>())),
        )]);
        let damaged = [&whole[..4], &[0; 64], &whole[68..]].concat();
        assert_eq!(case("c INT").fault(damaged).0, ParkReason::Unreadable);
    }

    #[test]
    fn lists_and_maps_over_many_pages_are_read_whole() {
        use parquet::basic::{Compression, ZstdLevel};
        let mut next = numbers(3);
        let mut lists = ListBuilder::new(Int64Builder::new());
        let mut maps = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
        let mut expected = Vec::new();
        for row in 0..3_000 {
            let values: Vec<i64> = (0..next(4)).map(|_| next(1 << 40) as i64).collect();
            for value in &values {
                lists.values().append_value(*value);
            }
            lists.append(true);
            maps.keys().append_value(format!("k{row}"));
            maps.values().append_value(next(1 << 40) as i64);
            maps.append(true).unwrap();
            expected.push(values);
        }
        let (lists, maps): (ArrayRef, ArrayRef) =
            (Arc::new(lists.finish()), Arc::new(maps.finish()));
        let batch =
            RecordBatch::try_from_iter([("c", lists.clone()), ("m", maps.clone())]).unwrap();
        let zstd = Compression::ZSTD(ZstdLevel::try_new(1).unwrap());
        for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY, zstd] {
            let properties = WriterProperties::builder()
                .set_compression(compression)
                .set_dictionary_enabled(false)
                .set_write_batch_size(16)
                .set_data_page_row_count_limit(50)
                .build();
            let mut writer =
                ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
            writer.write(&batch).unwrap();
            let bytes = writer.into_inner().unwrap();
            let decoded = case("c ARRAY<BIGINT>, m MAP<STRING, BIGINT>").read(bytes);
            let read = decoded.rows.column_by_name("c").unwrap().as_list::<i32>();
            let read: Vec<Vec<i64>> = (0..read.len())
                .map(|row| {
                    read.value(row)
                        .as_primitive::<Int64Type>()
                        .values()
                        .to_vec()
                })
                .collect();
            assert_eq!(read, expected, "{compression:?}");
            assert_eq!(decoded.rows.column_by_name("m").unwrap().len(), 3_000);
        }
    }

    /// A list of two thousand million booleans, under a field that nobody knows, and the end of the fields.
    const BUSY: [u8; 8] = [0xF9, 0xF1, 0xFF, 0xFF, 0xFF, 0xFF, 0x07, 0];

    #[test]
    fn headers_that_would_keep_the_reader_busy_are_refused() {
        let whole = file(vec![(
            "c",
            Arc::new(Int64Array::from((0..5000).collect::<Vec<_>>())),
        )]);
        let page = [&whole[..4], &BUSY, &whole[4 + BUSY.len()..]].concat();
        let (reason, detail) = case("c INT").fault(page);
        assert_eq!(reason, ParkReason::Unreadable);
        assert!(
            detail.ends_with("the header of a page is damaged"),
            "{detail}"
        );
        let (before, end) = whole.split_at(whole.len() - 8);
        let length = u32::from_le_bytes(end[..4].try_into().unwrap());
        let longer = length + BUSY.len() as u32 - 1;
        let stop = before.len() - 1;
        let footer = [&before[..stop], &BUSY, &longer.to_le_bytes(), MAGIC].concat();
        let (reason, detail) = case("c INT").fault(footer);
        assert_eq!(reason, ParkReason::NotThisFormat);
        assert!(detail.ends_with("the footer is damaged"), "{detail}");
    }

    #[test]
    fn only_rows_that_do_not_fit_are_refused() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![
            Some(1),
            None,
            Some(1 << 40),
            Some(-5),
        ]));
        let names: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c", "d"]));
        let decoded = case("n INT, s STRING").read(file(vec![("s", names), ("n", numbers)]));
        assert_eq!(rejects(&decoded), [(3, Overflow)]);
        assert_eq!(column(&decoded, "s"), ["a", "b", "d"]);
        assert_eq!(column(&decoded, "n"), ["1", "-", "-5"]);
        assert_eq!(decoded.rejects[0].raw, "{\"s\":\"c\",\"n\":1099511627776}");
        assert_eq!(
            decoded.rejects[0].detail,
            "column n: \"1099511627776\" is out of range (INT)"
        );
        let rows: Vec<_> = decoded
            .positions
            .iter()
            .map(|p| (p.file_row, p.file_line, p.byte_offset))
            .collect();
        assert_eq!(rows, [(1, None, None), (2, None, None), (4, None, None)]);
        assert_eq!(
            decoded.raw(2),
            "{\"n\":-5,\"s\":\"d\",\"_rescued_data\":null}"
        );
    }

    #[test]
    fn numbers_change_their_type_exactly_or_are_refused() {
        let u64s: ArrayRef = Arc::new(UInt64Array::from(vec![7, u64::MAX]));
        let decoded = read_as(u64s.clone(), "BIGINT");
        assert_eq!(
            (column(&decoded, "c"), rejects(&decoded)),
            (vec!["7".to_string()], vec![(2, Overflow)])
        );
        assert_eq!(
            column(&read_as(u64s, "DECIMAL(20,0)"), "c"),
            ["7", "18446744073709551615"]
        );

        let decimals: ArrayRef = Arc::new(
            Decimal128Array::from(vec![12300, 12345])
                .with_precision_and_scale(10, 3)
                .unwrap(),
        );
        let decoded = read_as(decimals.clone(), "DECIMAL(10,2)");
        assert_eq!(
            (column(&decoded, "c"), rejects(&decoded)),
            (vec!["12.30".into()], vec![(2, DecimalScale)])
        );
        assert_eq!(
            column(&read_as(decimals.clone(), "DECIMAL(38,3)"), "c"),
            ["12.300", "12.345"]
        );
        assert_eq!(
            column(&read_as(decimals, "STRING"), "c"),
            ["12.300", "12.345"]
        );

        let doubles: ArrayRef = Arc::new(Float64Array::from(vec![5.0, 5.25, f64::NAN, 0.1, 1e300]));
        let decoded = read_as(doubles.clone(), "BIGINT");
        assert_eq!(column(&decoded, "c"), ["5"]);
        assert!(
            decoded
                .rejects
                .iter()
                .all(|reject| reject.reason == TypeMismatch)
        );
        let decoded = read_as(doubles.clone(), "FLOAT");
        assert_eq!(column(&decoded, "c"), ["5.0", "5.25", "NaN"]);
        assert_eq!(rejects(&decoded), [(4, TypeMismatch), (5, Overflow)]);
        assert_eq!(
            column(&read_as(doubles, "STRING"), "c"),
            ["5.0", "5.25", "NaN", "0.1", "1e300"]
        );
        let small: ArrayRef = Arc::new(Int8Array::from(vec![-128]));
        assert_eq!(column(&read_as(small, "DOUBLE"), "c"), ["-128.0"]);
    }

    #[test]
    fn other_kinds_refuse_every_row_with_a_value() {
        let booleans: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), None]));
        for ddl in [
            "INT",
            "DATE",
            "TIMESTAMP",
            "BINARY",
            "ARRAY<INT>",
            "DECIMAL(3,1)",
        ] {
            let decoded = read_as(booleans.clone(), ddl);
            assert_eq!(
                (rejects(&decoded), column(&decoded, "c")),
                (vec![(1, TypeMismatch)], vec!["-".into()]),
                "{ddl}"
            );
        }
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![20240101]));
        for ddl in [
            "BOOLEAN",
            "DATE",
            "TIMESTAMP",
            "STRUCT<a: INT>",
            "MAP<STRING, INT>",
        ] {
            assert_eq!(
                rejects(&read_as(numbers.clone(), ddl)),
                [(1, TypeMismatch)],
                "{ddl}"
            );
        }
    }

    #[test]
    fn instants_become_microseconds_or_are_refused() {
        let nanos = TimestampNanosecondArray::from(vec![1_000, 1_001]);
        let decoded = read_as(Arc::new(nanos.clone().with_timezone("+02:00")), "TIMESTAMP");
        assert_eq!(column(&decoded, "c"), ["1970-01-01T00:00:00.000001Z"]);
        assert_eq!(rejects(&decoded), [(2, TypeMismatch)]);
        assert_eq!(
            rejects(&read_as(Arc::new(nanos), "TIMESTAMP"))[0],
            (1, AmbiguousTimestamp)
        );
        let millis: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![1, i64::MAX]));
        let decoded = read_as(millis.clone(), "TIMESTAMP_NTZ");
        assert_eq!(
            (column(&decoded, "c"), rejects(&decoded)),
            (vec!["1970-01-01T00:00:00.001".into()], vec![(2, Overflow)])
        );
        let utc: ArrayRef =
            Arc::new(TimestampMicrosecondArray::from(vec![1_500_000]).with_timezone("UTC"));
        assert_eq!(
            rejects(&read_as(utc.clone(), "TIMESTAMP_NTZ")),
            [(1, TypeMismatch)]
        );
        assert_eq!(
            column(&read_as(utc, "STRING"), "c"),
            ["1970-01-01T00:00:01.500Z"]
        );
    }

    #[test]
    fn int96_is_an_instant_beyond_the_range_of_nanoseconds_too() {
        let day = 2_440_588;
        let bytes = int96_file(&[
            (day, 1_000),
            (day, 1_001),
            (day + 2_000_000, 0),
            (day + 50_000_000, 0),
        ]);
        let decoded = case("c TIMESTAMP").read(&bytes);
        assert_eq!(
            column(&decoded, "c"),
            ["1970-01-01T00:00:00.000001Z", "7445-10-25T00:00:00Z"]
        );
        assert_eq!(rejects(&decoded), [(2, TypeMismatch), (4, Overflow)]);
        assert_eq!(
            new_columns(&case("x INT").read(&bytes)),
            [("c".into(), "TIMESTAMP".into())]
        );
    }

    #[test]
    fn texts_read_by_the_rules_of_texts() {
        let texts: ArrayRef =
            Arc::new(LargeStringArray::from(vec![Some("12.30"), Some("x"), None]));
        let decoded = read_as(texts.clone(), "DECIMAL(5,2)");
        assert_eq!(
            (column(&decoded, "c"), rejects(&decoded)),
            (vec!["12.30".into(), "-".into()], vec![(2, TypeMismatch)])
        );
        let words: DictionaryArray<Int32Type> = vec!["a", "b", "a"].into_iter().collect();
        assert_eq!(
            column(&read_as(Arc::new(words), "STRING"), "c"),
            ["a", "b", "a"]
        );
        let bytes: ArrayRef = Arc::new(BinaryArray::from(vec![&b"ok"[..], &b"\xff"[..]]));
        let decoded = read_as(bytes.clone(), "STRING");
        assert_eq!(
            (column(&decoded, "c"), rejects(&decoded)),
            (vec!["ok".into()], vec![(2, TypeMismatch)])
        );
        assert_eq!(decoded.rejects[0].raw, "{\"c\":\"/w==\"}");
        assert_eq!(column(&read_as(bytes, "BINARY"), "c"), ["6f6b", "ff"]);
    }

    #[test]
    fn nested_values_are_taken_part_by_part() {
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int16Type, _, _>(vec![
            Some(vec![Some(1), None]),
            None,
            Some(vec![Some(300)]),
        ]));
        let decoded = read_as(lists.clone(), "ARRAY<TINYINT>");
        assert_eq!(
            (column(&decoded, "c"), rejects(&decoded)),
            (vec!["[1, ]".into(), "-".into()], vec![(3, Overflow)])
        );
        assert_eq!(
            column(&read_as(lists, "STRING"), "c"),
            ["[1,null]", "-", "[300]"]
        );

        let x: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
        let y: ArrayRef = Arc::new(StringArray::from(vec![None, Some("q\"")]));
        let fields = vec![
            Field::new("x", DataType::Int32, true),
            Field::new("y", DataType::Utf8, true),
        ];
        let structs: ArrayRef = Arc::new(StructArray::new(fields.into(), vec![x, y], None));
        let decoded = read_as(structs, "STRUCT<x: BIGINT, z: INT>");
        assert_eq!(column(&decoded, "c"), ["{x: 1, z: }", "{x: 2, z: }"]);
        let rescued = "{\"c\":{\"x\":2,\"y\":\"q\\\"\"},\"_file_path\":\"orders.parquet\"}";
        assert_eq!(column(&decoded, "_rescued_data"), ["-", rescued]);

        let mut maps = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
        maps.keys().append_value("k");
        maps.values().append_value(5);
        maps.append(true).unwrap();
        let maps: ArrayRef = Arc::new(maps.finish());
        assert_eq!(
            column(&read_as(maps.clone(), "MAP<STRING, BIGINT>"), "c"),
            ["{k: 5}"]
        );
        assert_eq!(column(&read_as(maps, "STRING"), "c"), ["{\"k\":5}"]);
    }

    #[test]
    fn new_columns_take_a_wider_type_of_the_file() {
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("a", Arc::new(Int32Array::from(vec![1, 2]))),
            ("u", Arc::new(UInt32Array::from(vec![1, 2]))),
            ("big", Arc::new(UInt64Array::from(vec![1, 2]))),
            ("t", Arc::new(Time64MicrosecondArray::from(vec![1, 2]))),
            (
                "empty",
                Arc::new(StringArray::from(vec![None::<&str>, None])),
            ),
        ];
        let bytes = file(columns);
        let expected = [("u", "BIGINT"), ("big", "DECIMAL(20,0)"), ("t", "STRING")];
        let decoded = case("a INT").read(&bytes);
        assert_eq!(
            new_columns(&decoded),
            expected.map(|(name, ddl)| (name.to_string(), ddl.to_string()))
        );
        let mut grown = case("a INT");
        grown.schema = grown.schema.extended(&decoded.new_columns);
        let again = grown.read(&bytes);
        assert_eq!(column(&again, "t"), ["00:00:00.000001", "00:00:00.000002"]);
        assert!(again.new_columns.is_empty() && again.rejects.is_empty());
        let rescued = case("a INT")
            .evolution(SchemaEvolutionMode::Rescue)
            .read(&bytes);
        assert!(
            column(&rescued, "_rescued_data")[0].starts_with("{\"u\":1,\"big\":1,\"t\":\"00:00")
        );
    }

    #[test]
    fn digits_beyond_the_precision_of_the_file_are_never_cut_off() {
        let values = || {
            let values = Decimal128Array::from(vec![9999, 10_000, 123_456]);
            Arc::new(values.with_precision_and_scale(4, 2).unwrap()) as ArrayRef
        };
        let decoded = read_as(values(), "DECIMAL(4,2)");
        assert_eq!(column(&decoded, "c"), ["99.99"]);
        assert_eq!(rejects(&decoded), [(2, Overflow), (3, Overflow)]);
        assert_eq!(decoded.rejects[1].raw, "{\"c\":1234.56}");
        for ddl in ["DECIMAL(10,2)", "STRING"] {
            let decoded = read_as(values(), ddl);
            assert_eq!(
                column(&decoded, "c"),
                ["99.99", "100.00", "1234.56"],
                "{ddl}"
            );
        }
    }

    #[test]
    fn values_without_a_text_form_are_no_text() {
        let times: ArrayRef = Arc::new(Time32MillisecondArray::from(vec![1, -5]));
        let decoded = read_as(times, "STRING");
        assert_eq!(column(&decoded, "c"), ["00:00:00.001"]);
        assert_eq!(rejects(&decoded), [(2, TypeMismatch)]);
    }

    #[test]
    fn more_rows_than_one_batch_keep_their_numbers() {
        let bytes = file(vec![(
            "a",
            Arc::new(Int64Array::from((0..20_000).collect::<Vec<_>>())),
        )]);
        let decoded = case("a SMALLINT").read(bytes);
        assert_eq!(decoded.positions.last().unwrap().file_row, 20_000);
        assert_eq!(column(&decoded, "a")[19_999], "19999");
        assert_eq!(
            case("a INT")
                .read(file(vec![(
                    "a",
                    Arc::new(Int64Array::from(Vec::<i64>::new()))
                )]))
                .rows
                .num_rows(),
            0
        );
    }
}
