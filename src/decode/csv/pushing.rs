//! Records of which every field fits its column as it is.

use super::Target;
use super::frames::{RawField, Record};
use crate::decode::RECORD_BYTES_MAX;
use crate::decode::leaf::Leaf;
use crate::decode::rows::Rows;
use crate::settings::CsvSettings;

/// Reads records of which every field fits, straight into the columns.
pub(super) struct Pushing<'a, 'd> {
    text: &'a str,
    /// For each field its column, where one takes it.
    leaves: Vec<Option<Leaf>>,
    null_word: Option<&'d [u8]>,
    /// Stands for a field in quotes without anything in them.
    has_empty_value: bool,
    /// Fields that no column takes leave no trace.
    ignores_unknown: bool,
}

impl<'a, 'd> Pushing<'a, 'd> {
    /// `None` where the records need more than that.
    pub(super) fn of(
        bytes: &'a [u8],
        dialect: &'d CsvSettings,
        targets: &[Target],
        rows: &Rows<'a>,
    ) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        if rows.has_envelope() {
            return None;
        }
        let fields = rows.schema().columns.fields();
        let leaf = |target: &Target| match target {
            Target::Known(index) => {
                let place = rows.columns.root(*index);
                Some(Leaf::new(place, Some(*index), &fields[*index], 0))
            }
            Target::Unknown(_) => None,
        };
        Some(Pushing {
            text,
            leaves: targets.iter().map(leaf).collect(),
            null_word: dialect.null_value.as_deref().map(str::as_bytes),
            has_empty_value: dialect.empty_value.is_some(),
            ignores_unknown: rows.ignores_unknown(),
        })
    }

    /// Reads a record into the columns; false leaves no trace: the record is to be read in another way.
    pub(super) fn read(
        &self,
        record: &Record<'a>,
        fields: &[RawField<'a>],
        rows: &mut Rows<'a>,
    ) -> bool {
        let is_sound = record.fault.is_none()
            && record.bytes.len() <= RECORD_BYTES_MAX
            && fields.len() == self.leaves.len();
        if is_sound && self.fields(fields, rows).is_some() {
            return true;
        }
        rows.forget();
        false
    }

    fn fields(&self, fields: &[RawField<'a>], rows: &mut Rows<'a>) -> Option<()> {
        let before = rows.count();
        rows.pushed = 0;
        for (field, leaf) in fields.iter().zip(&self.leaves) {
            let is_empty = field.bytes.is_empty();
            let is_null = !field.is_quoted && (is_empty || self.null_word == Some(field.bytes));
            let Some(leaf) = leaf else {
                if is_null || self.ignores_unknown {
                    continue;
                }
                return None;
            };
            let is_other = field.has_escapes || (is_empty && self.has_empty_value && !is_null);
            if is_other || rows.columns.at(leaf.place).len() != before {
                return None;
            }
            match is_null {
                true => leaf.put_null(rows),
                false => leaf.read_text(self.text, field.range(), rows)?,
            }
            if let Some(index) = leaf.index {
                rows.note(index);
            }
            rows.pushed += 1;
        }
        Some(())
    }
}
