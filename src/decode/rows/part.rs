//! What was read, as it is handed on.

use super::{Rows, arrived};
use crate::change::{FileFault, ParkReason, RESCUED_DATA};
use crate::decode::columns::{Column, Columns};
use crate::decode::encoding::Origin;
use crate::decode::{Decoded, NewColumn, new_columns_fault};
use crate::settings::SchemaEvolutionMode;
use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema};
use bytes::Bytes;
use std::sync::Arc;

impl Rows<'_> {
    /// All that was read and not handed on before, with the new columns of all.
    pub(in crate::decode) fn finish(self) -> Result<Decoded, FileFault> {
        let mode = self.mode;
        let mut part = self.finish_stretch()?;
        if mode == SchemaEvolutionMode::FailOnNewColumns && !part.new_columns.is_empty() {
            return Err(new_columns_fault(part.arrivals()));
        }
        let new_columns = part.new_columns.into_iter();
        part.new_columns = new_columns.map(NewColumn::or_string).collect();
        Ok(part)
    }

    /// The same of a stretch of a file: what new columns mean shows only when all stretches are read.
    pub(in crate::decode) fn finish_stretch(mut self) -> Result<Decoded, FileFault> {
        match self.fault.take() {
            Some(fault) => Err(fault),
            None => self.part(),
        }
    }

    /// The rows and rejects that are there; the next ones begin anew.
    pub(super) fn part(&mut self) -> Result<Decoded, FileFault> {
        let empty = Columns::of(self.schema.columns.fields());
        let mut columns = std::mem::replace(&mut self.columns, empty).whole();
        let mut rescued = std::mem::replace(&mut self.rescued, Column::new(&DataType::Utf8));
        rescued.pad(self.positions.len());
        if let Some(own) = &mut self.own {
            own.fill(&mut columns);
        }
        let mut fields = self.schema.columns.fields().to_vec();
        fields.push(Arc::new(Field::new(RESCUED_DATA, DataType::Utf8, true)));
        let mut arrays = Vec::with_capacity(fields.len());
        for (column, field) in columns.into_iter().chain([rescued]).zip(&fields) {
            arrays.push(column.finish(field.name())?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.positions.len()));
        let rows =
            RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)
                .map_err(|error| {
                    FileFault::new(
                        ParkReason::Unreadable,
                        format!("BUG: rows cannot be built: {error}"),
                    )
                })?;
        let arrived_at = self.arrivals.iter().filter(|a| a.data_type.is_some());
        let places = arrived_at.map(|arrival| arrival.first.clone());
        let part = Decoded {
            encoding: self.encoding(),
            rows,
            positions: std::mem::take(&mut self.positions),
            rejects: std::mem::take(&mut self.rejects),
            new_columns: self.arrivals.iter().filter_map(arrived).collect(),
            new_column_places: places.collect(),
            text: self
                .origin
                .as_ref()
                .map_or_else(Bytes::new, Origin::file_bytes),
            text_start: self.before.bytes,
        };
        assert_numbered(&part, self.before.records);
        self.before.records += part.positions.len() + part.rejects.len();
        Ok(part)
    }
}

/// Every record is one row or one reject, and the numbers leave nothing out.
fn assert_numbered(part: &Decoded, before: usize) {
    assert_eq!(
        part.rows.num_rows(),
        part.positions.len(),
        "BUG: every row has its position"
    );
    let records = part.positions.len() + part.rejects.len();
    let last_row = part.positions.last().map(|position| position.file_row);
    let last_reject = part.rejects.last().map(|reject| reject.file_row);
    let Some(last) = last_row.max(last_reject) else {
        return;
    };
    assert_eq!(
        i64::try_from(before + records).ok(),
        Some(last),
        "BUG: rows and rejects are all records"
    );
}
