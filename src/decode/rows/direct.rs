//! Records whose values go into the columns at once, without slots.
//!
//! Who reads such a record takes it when all of it is there, or has it forgotten; in between, columns that have one more row
//! than there are rows hold a value of it.

use super::{Place, Rows};
use crate::decode::value::{Cell, FieldValue};

/// Room is made for so many rows at once at most; who has so many can make more when they come.
const ROWS_EXPECTED_MAX: usize = 1 << 16;

impl<'a> Rows<'a> {
    /// Makes room for the rows of a text of which `read` bytes are read and `left` are not, if they are like those read.
    pub(in crate::decode) fn expect_alike(&mut self, read: usize, left: usize) {
        let rows_max = self.parts.map_or(ROWS_EXPECTED_MAX, |(rows_max, _)| {
            rows_max.min(ROWS_EXPECTED_MAX)
        });
        let times = left / read.max(1);
        // Room that lacks a little is made anew for all rows.
        let times = times + times / 16 + 1;
        let times = times.min(rows_max / self.positions.len().max(1));
        self.columns.reserve_alike(times);
        self.positions.reserve(self.positions.len() * times);
    }

    /// Rows since rows were handed on last.
    #[inline]
    pub(in crate::decode) fn count(&self) -> usize {
        self.positions.len()
    }

    /// So many records may be put into the columns before any of them is taken.
    pub(in crate::decode) fn room(&self) -> usize {
        let records = self.positions.len() + self.rejects.len();
        self.parts.map_or(usize::MAX, |(rows_max, _)| {
            rows_max.saturating_sub(records).max(1)
        })
    }

    /// Whether it is kept which columns each record carries.
    pub(in crate::decode) fn lists_columns(&self) -> bool {
        self.presence.is_some()
    }

    /// Notes that the present record has a value or NULL for a column.
    #[inline]
    pub(in crate::decode) fn note(&mut self, index: usize) {
        if let Some(presence) = &mut self.presence {
            presence.known.push(index);
        }
    }

    /// Appends a value to the column at a place, if it fits wholly; `index` is that of the column where it is in no STRUCT.
    pub(in crate::decode) fn push<V: FieldValue<'a>>(
        &mut self,
        place: usize,
        index: Option<usize>,
        value: &V,
    ) -> Option<()> {
        self.reader.has_unknown_field = false;
        let data_type = self.columns.at(place).data_type();
        let mut cell = value.cell(data_type, &mut self.reader).ok()?;
        if self.reader.has_unknown_field {
            return None;
        }
        if let Some(index) = index {
            cell = self.keeping_text(index, value, cell).ok()?;
        }
        self.columns.push(place, cell);
        Some(())
    }

    /// Takes back what the columns have of the present record.
    pub(in crate::decode) fn forget(&mut self) {
        self.columns.truncate(self.positions.len());
        self.leftovers.clear();
        self.arriving.clear();
        self.forget_arrivals();
        if let Some(presence) = &mut self.presence {
            presence.clear();
        }
    }

    /// Ends the present record, whose values are in the columns: all of it becomes a row.
    pub(in crate::decode) fn take_pushed(&mut self, place: Place) {
        let position = self.position(place);
        let rows = self.positions.len();
        if let Some(presence) = &mut self.presence {
            let list = presence.take(self.schema);
            self.columns.push(self.columns.root(presence.index), list);
        }
        if let Some((index, version)) = self.snapshot {
            self.columns
                .push(self.columns.root(index), Cell::Int(version));
        }
        if self.pushed < self.columns.count() {
            self.columns.complete(rows);
        }
        self.settle(position);
    }
}
