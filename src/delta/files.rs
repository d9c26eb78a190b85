//! Writes rows into data files of a table without partitions, one after the other.

use super::data_file::{FileEncoder, FileLayout};
use super::state::library;
use super::stats;
use crate::clock::{Clock, SystemClock};
use crate::error::Result;
use arrow::array::RecordBatch;
use bytes::Bytes;
use delta_kernel::table_properties::DataSkippingNumIndexedCols;
use deltalake::kernel::Add;
use object_store::ObjectStore;
use object_store::buffered::BufWriter;
use object_store::path::Path;
use std::collections::HashMap;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use tokio::io::AsyncWriteExt;
use uuid::Uuid;

/// Files aim at this size.
pub(super) const TARGET_BYTES: usize = 128 << 20;
/// Larger files are written while they are encoded.
const UPLOADED_BYTES: usize = 5 << 20;
const UPLOADS_AT_ONCE: usize = 10;
/// After so many rows a file may be complete.
const CHECKED_ROWS: usize = 1 << 16;

/// Takes rows of one schema.
pub(super) struct FilesWriter {
    /// Of the table.
    root: PathBuf,
    store: Arc<dyn ObjectStore>,
    layout: Arc<FileLayout>,
    indexed_columns: DataSkippingNumIndexedCols,
    name: Uuid,
    open: Option<OpenFile>,
    done: Vec<Add>,
}

struct OpenFile {
    path: Path,
    encoder: FileEncoder,
    upload: BufWriter,
    sent_bytes: usize,
}

impl FilesWriter {
    pub(super) fn new(
        root: PathBuf,
        store: Arc<dyn ObjectStore>,
        layout: FileLayout,
        indexed_columns: DataSkippingNumIndexedCols,
    ) -> Self {
        FilesWriter {
            root,
            store,
            layout: Arc::new(layout),
            indexed_columns,
            name: Uuid::new_v4(),
            open: None,
            done: Vec::new(),
        }
    }

    /// Takes rows of the schema of the files.
    pub(super) async fn write(&mut self, rows: &RecordBatch) -> Result<()> {
        for start in (0..rows.num_rows()).step_by(CHECKED_ROWS) {
            let some = rows.slice(start, CHECKED_ROWS.min(rows.num_rows() - start));
            let mut open = match self.open.take() {
                Some(open) => open,
                None => self.begin()?,
            };
            open.encoder.write(&some)?;
            let bytes = open.encoder.take_bytes();
            open.sent_bytes += bytes.len();
            send(&self.root, &mut open.upload, bytes).await?;
            match open.encoder.bytes() >= TARGET_BYTES {
                true => self.end(open).await?,
                false => self.open = Some(open),
            }
        }
        Ok(())
    }

    /// Ends the last file.
    pub(super) async fn close(mut self) -> Result<Vec<Add>> {
        if let Some(open) = self.open.take() {
            self.end(open).await?;
        }
        Ok(self.done)
    }

    fn begin(&self) -> Result<OpenFile> {
        let number = self.done.len();
        let path = Path::from(format!("part-{number:05}-{}-c000.zstd.parquet", self.name));
        let upload =
            BufWriter::with_capacity(Arc::clone(&self.store), path.clone(), UPLOADED_BYTES);
        Ok(OpenFile {
            path,
            encoder: FileEncoder::new(Arc::clone(&self.layout))?,
            upload: upload.with_max_concurrency(UPLOADS_AT_ONCE),
            sent_bytes: 0,
        })
    }

    async fn end(&mut self, open: OpenFile) -> Result<()> {
        let OpenFile {
            path,
            encoder,
            mut upload,
            sent_bytes,
        } = open;
        let (rest, metadata) = encoder.finish()?;
        let bytes = sent_bytes + rest.len();
        send(&self.root, &mut upload, rest).await?;
        let ended = upload.shutdown().await;
        ended.map_err(|source| library(&self.root, &source.into()))?;
        self.done.push(Add {
            path: path.to_string(),
            partition_values: HashMap::new(),
            size: bytes as i64,
            modification_time: SystemClock.now() / 1_000,
            data_change: true,
            stats: Some(stats::of_file(
                &metadata,
                self.layout.schema(),
                self.indexed_columns,
            )),
            tags: None,
            deletion_vector: None,
            base_row_id: None,
            default_row_commit_version: None,
            clustering_provider: None,
        });
        Ok(())
    }
}

async fn send(root: &FilePath, upload: &mut BufWriter, bytes: Vec<u8>) -> Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let Err(source) = upload.put(Bytes::from(bytes)).await else {
        return Ok(());
    };
    // Nobody knows of what is left if this fails, too.
    let _ = upload.abort().await;
    Err(library(root, &source.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int16Array, Int64Array,
        StringArray, TimestampMicrosecondArray,
    };
    use arrow::datatypes::SchemaRef;
    use deltalake::datafile::writer::{DeltaWriter, WriterConfig};
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use parquet::file::properties::WriterProperties;
    use serde_json::Value;

    fn rows(count: i64) -> RecordBatch {
        let all = || 0..count;
        let some = |row: i64| (row % 3 != 0).then_some(row - 5);
        let local = TimestampMicrosecondArray::from_iter_values(all().map(|row| row * 1_234_567));
        let decimal = Decimal128Array::from_iter(all().map(|row| some(row).map(i128::from)));
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("number", Arc::new(Int64Array::from_iter(all().map(some)))),
            (
                "small",
                Arc::new(Int16Array::from_iter_values(all().map(|row| row as i16))),
            ),
            (
                "day",
                Arc::new(Date32Array::from_iter_values(
                    all().map(|row| row as i32 - 9),
                )),
            ),
            ("time", Arc::new(local.clone().with_timezone("UTC"))),
            ("local", Arc::new(local)),
            (
                "price",
                Arc::new(decimal.with_precision_and_scale(12, 3).unwrap()),
            ),
            (
                "ratio",
                Arc::new(Float64Array::from_iter_values(
                    all().map(|row| row as f64 / 7.0),
                )),
            ),
            (
                "truth",
                Arc::new(BooleanArray::from_iter(all().map(|row| Some(row == 1)))),
            ),
            (
                "text",
                Arc::new(StringArray::from_iter_values(
                    all().map(|row| format!("é {row}")),
                )),
            ),
            ("nothing", Arc::new(Int64Array::new_null(count as usize))),
        ];
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(n, c)| (n, c, true)))
            .unwrap()
    }

    fn layout(schema: &SchemaRef, first: &RecordBatch) -> FileLayout {
        let properties = |_: &RecordBatch| Ok(WriterProperties::builder().build());
        FileLayout::of(schema, first, usize::MAX, &[], properties).unwrap()
    }

    const INDEXED: DataSkippingNumIndexedCols = DataSkippingNumIndexedCols::NumColumns(9);

    fn stats(adds: &[Add]) -> Value {
        serde_json::from_str(adds[0].stats.as_ref().unwrap()).unwrap()
    }

    #[tokio::test]
    async fn file_is_described_as_the_library_describes_it() {
        for count in [1, 2, 3_000] {
            let (rows, store) = (rows(count), Arc::new(InMemory::new()));
            let schema = rows.schema();
            let mut ours = FilesWriter::new(
                PathBuf::new(),
                store.clone(),
                layout(&schema, &rows),
                INDEXED,
            );
            ours.write(&rows).await.unwrap();
            let ours = ours.close().await.unwrap();
            let config = WriterConfig::new(schema, Vec::new(), None, None, None, INDEXED, None);
            let mut theirs = DeltaWriter::new(store.clone(), config);
            theirs.write(&rows).await.unwrap();
            let theirs = theirs.close().await.unwrap();
            let time = stats(&ours)["maxValues"]["time"].clone();
            if count == 3_000 {
                assert_eq!(time, "1970-01-01T01:01:42.466Z", "millionths are cut");
            }
            assert_eq!(stats(&ours), stats(&theirs));
            assert_eq!(ours.len(), 1);
            let path = Path::from(ours[0].path.as_str());
            let file = store.get(&path).await.unwrap().bytes().await.unwrap();
            assert_eq!(ours[0].size, file.len() as i64);
        }
    }

    #[tokio::test]
    async fn large_file_arrives_in_the_order_in_which_it_was_encoded() {
        let store = Arc::new(InMemory::new());
        // Texts that cannot be packed, so that several parts are sent.
        let texts = (0..120_000u64).map(|row| {
            let digest = blake3::hash(&row.to_le_bytes());
            Some(digest.to_hex().to_string())
        });
        let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
        let rows = RecordBatch::try_from_iter_with_nullable([("t", texts, true)]).unwrap();
        let layout = layout(&rows.schema(), &rows);
        let mut writer = FilesWriter::new(PathBuf::new(), store.clone(), layout, INDEXED);
        for _ in 0..5 {
            writer.write(&rows).await.unwrap();
        }
        let adds = writer.close().await.unwrap();
        let path = Path::from(adds[0].path.as_str());
        let file = store.get(&path).await.unwrap().bytes().await.unwrap();
        assert!(file.len() > 2 * UPLOADED_BYTES, "{}", file.len());
        let read = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
        let read: Vec<_> = read.build().unwrap().map(|rows| rows.unwrap()).collect();
        let read = arrow::compute::concat_batches(&rows.schema(), &read).unwrap();
        assert_eq!(read.slice(480_000, 120_000), rows);
        assert_eq!(read.num_rows(), 600_000);
    }
}
