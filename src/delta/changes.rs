//! What a commit is made of: new data files, change data files, deletion vectors, removals.
//!
//! Everything here is written when it is returned and named by nothing yet; a log entry that is written later is there only
//! when all of it is on disk. What goes together in one commit is left to the callers.

use super::write::{self, RowWriter};
use super::{DataFile, Table, commit, deletion_vector, state, stats};
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result};
use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use delta_kernel::table_properties::DataSkippingNumIndexedCols;
use deltalake::kernel::{Add, AddCDCFile, Remove};
use object_store::prefix::PrefixStore;
use object_store::{ObjectStore, ObjectStoreExt};
use roaring::RoaringTreemap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Change data files stand in this folder.
pub(super) const CHANGE_FOLDER: &str = "_change_data";
const CHANGE_TYPE: &str = "_change_type";

impl Table {
    /// Writes data files of `schema` (the table's, or a wider one that the same commit sets) that no log entry names yet; split by partition.
    ///
    /// If the program stops inside, nothing names the files and vacuum takes them.
    pub async fn write_rows(&self, schema: SchemaRef, batches: &[RecordBatch]) -> Result<Vec<Add>> {
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        let mut writer = self.row_writer(schema)?.of_rows(rows);
        for batch in batches {
            writer.write(batch).await?;
        }
        writer.close().await
    }

    /// The same, fed batch by batch.
    pub fn row_writer(&self, schema: SchemaRef) -> Result<RowWriter> {
        let schema = self.as_stored(&schema)?;
        self.writer(
            self.log_store.object_store(None),
            schema,
            &self.bloom_columns,
        )
    }

    /// Writes change data files: the table's columns (and new ones that the same commit sets), and `_change_type STRING` at the end.
    pub async fn write_change_rows(&self, batches: &[RecordBatch]) -> Result<Vec<AddCDCFile>> {
        let mut fields: Vec<_> = self.state.schema.fields().iter().cloned().collect();
        let given = batches.first().map(RecordBatch::schema);
        for field in given.iter().flat_map(|schema| schema.fields()) {
            if field.name() != CHANGE_TYPE && self.state.schema.index_of(field.name()).is_err() {
                fields.push(Arc::clone(field));
            }
        }
        self.write_change_rows_of(&Arc::new(Schema::new(fields)), batches)
            .await
    }

    /// The same for rows of `schema`, which is the whole schema that the same commit sets.
    pub async fn write_change_rows_of(
        &self,
        schema: &SchemaRef,
        batches: &[RecordBatch],
    ) -> Result<Vec<AddCDCFile>> {
        let mut fields = self.as_stored(schema)?.fields().to_vec();
        fields.push(Arc::new(Field::new(CHANGE_TYPE, DataType::Utf8, true)));
        let store = PrefixStore::new(self.log_store.object_store(None), CHANGE_FOLDER);
        let mut writer = self.writer(Arc::new(store), Arc::new(Schema::new(fields)), &[])?;
        for batch in batches {
            writer.write(batch).await?;
        }
        Ok(write::change_files(writer.close().await?, CHANGE_FOLDER))
    }

    fn writer(
        &self,
        store: Arc<dyn ObjectStore>,
        schema: SchemaRef,
        bloom_columns: &[String],
    ) -> Result<RowWriter> {
        let indexed = self
            .property("delta.dataSkippingNumIndexedCols")
            .and_then(|text| text.parse().ok());
        let indexed = match indexed {
            Some(-1) => DataSkippingNumIndexedCols::AllColumns,
            Some(count) => {
                DataSkippingNumIndexedCols::NumColumns(u64::try_from(count).unwrap_or(32))
            }
            None => DataSkippingNumIndexedCols::NumColumns(32),
        };
        RowWriter::new(
            self.root.clone(),
            store,
            schema,
            &self.state.partition_by,
            indexed,
            bloom_columns,
        )
    }

    /// The schema as it will read back: through Delta's own types.
    fn as_stored(&self, schema: &SchemaRef) -> Result<SchemaRef> {
        match *schema == self.state.schema {
            true => Ok(Arc::clone(schema)),
            false => state::arrow_schema(&self.root, &commit::delta_schema(schema)?),
        }
    }

    /// The actions that delete physical rows (path -> row numbers), one new vector file for all. A file that loses its last row gets only its `Remove`.
    ///
    /// Rows that are deleted already are left out; a file with no other is not touched.
    pub async fn delete_rows(
        &self,
        deleted: &BTreeMap<String, RoaringTreemap>,
    ) -> Result<(Vec<Remove>, Vec<Add>)> {
        let (mut removes, mut kept, mut vectors) = (Vec::new(), Vec::new(), Vec::new());
        for (path, rows) in deleted {
            let file = self
                .file(path)
                .ok_or_else(|| self.bug(format!("no such file: {path}")))?;
            let old = self.deleted_rows(file)?;
            let all = &old | rows;
            if all.len() == old.len() {
                continue;
            }
            if all.max().is_some_and(|row| row >= file.rows.unsigned_abs()) {
                return Err(self.bug(format!("row beyond the end of {path}")));
            }
            removes.push(self.remove_of(file, true));
            if all.len() < file.rows.unsigned_abs() {
                kept.push(file);
                vectors.push(all);
            }
        }
        if vectors.is_empty() {
            return Ok((removes, Vec::new()));
        }
        if !self.has_deletion_vectors() {
            return Err(self.bug("deletion vectors are off".into()));
        }
        let encoded = deletion_vector::encode(&vectors)?;
        self.put(&encoded.name, encoded.bytes).await?;
        let adds = kept
            .into_iter()
            .zip(encoded.vectors)
            .map(|(file, vector)| Add {
                stats: Some(stats::with_wide_bounds(
                    file.add.stats.as_deref(),
                    file.rows,
                )),
                deletion_vector: Some(vector),
                data_change: true,
                ..file.add.clone()
            });
        Ok((removes, adds.collect()))
    }

    /// The action that takes a whole file out of the table.
    pub fn remove_of(&self, file: &DataFile, data_change: bool) -> Remove {
        Remove {
            path: file.path.clone(),
            data_change,
            deletion_timestamp: Some(SystemClock.now() / 1000),
            extended_file_metadata: Some(true),
            partition_values: Some(file.add.partition_values.clone()),
            size: Some(file.size),
            tags: file.add.tags.clone(),
            deletion_vector: file.add.deletion_vector.clone(),
            base_row_id: None,
            default_row_commit_version: None,
        }
    }

    async fn put(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        let path = object_store::path::Path::from(name);
        let stored = self
            .log_store
            .object_store(None)
            .put(&path, bytes.into())
            .await;
        stored.map(|_| ()).map_err(|error| {
            Error::unavailable(format!("table {}: {name}: {error}", self.root.display()))
        })
    }
}
