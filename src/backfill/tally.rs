//! Counts what a back-fill does, by column and by field.

use super::BackfillPlan;
use crate::schema::{ddl_type, widen};
use arrow::datatypes::{DataType, SchemaRef};
use std::collections::{BTreeMap, BTreeSet};

/// Fields that stay are told apart up to so many.
const LEFT_FIELDS_MAX: usize = 100;

/// A column that gains values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilledColumn {
    /// Its name.
    pub name: String,
    /// Its type, in the words of the hints.
    pub data_type: String,
    /// Bronze did not have it before.
    pub is_new: bool,
    /// Rows that gain a value.
    pub rows: u64,
    /// Landing files of these rows.
    pub files: u64,
}

/// Values of one field that stay in the rescued data for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftField {
    /// The field.
    pub field: String,
    /// Why, in words that follow its value.
    pub why: String,
    /// How many values.
    pub values: u64,
    /// The first of them.
    pub example: String,
    /// Where that stands: the landing file.
    pub file_path: String,
    /// And its record, from 1.
    pub file_row: i64,
    /// The type that would hold all of them, where there is no column; in the words of the hints.
    pub fitting_type: Option<String>,
}

/// Where a row comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) file_path: &'a str,
    pub(super) file_row: i64,
}

/// The counts so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Rows that change.
    pub(super) rows: u64,
    /// Rows with rescued data.
    pub(super) rescued_rows: u64,
    gains: BTreeMap<String, Gain>,
    left: BTreeMap<(String, String), Left>,
    left_of_others: u64,
}

#[derive(Debug)]
struct Gain {
    data_type: DataType,
    rows: u64,
    files: BTreeSet<String>,
}

#[derive(Debug)]
struct Left {
    values: u64,
    example: String,
    file_path: String,
    file_row: i64,
    fitting_type: Option<DataType>,
}

impl Tally {
    /// A row gains a value.
    pub(super) fn gain(&mut self, column: &str, data_type: &DataType, place: Place<'_>) {
        if !self.gains.contains_key(column) {
            let gain = Gain {
                data_type: data_type.clone(),
                rows: 0,
                files: BTreeSet::new(),
            };
            self.gains.insert(column.to_string(), gain);
        }
        if let Some(gain) = self.gains.get_mut(column) {
            gain.rows += 1;
            if !gain.files.contains(place.file_path) {
                gain.files.insert(place.file_path.to_string());
            }
        }
    }

    /// A value stays.
    pub(super) fn leave(
        &mut self,
        field: &str,
        why: &str,
        example: &str,
        fitting_type: Option<DataType>,
        place: Place<'_>,
    ) {
        let one = Left {
            values: 1,
            example: example.to_string(),
            file_path: place.file_path.to_string(),
            file_row: place.file_row,
            fitting_type,
        };
        self.add_left((field.to_string(), why.to_string()), one);
    }

    fn add_left(&mut self, key: (String, String), other: Left) {
        let has_room = self.left.len() < LEFT_FIELDS_MAX;
        match self.left.get_mut(&key) {
            Some(left) => {
                left.values += other.values;
                let both = left.fitting_type.as_ref().zip(other.fitting_type.as_ref());
                left.fitting_type = both.map(|(known, new)| widen(known, new));
            }
            None if has_room => {
                self.left.insert(key, other);
            }
            None => self.left_of_others += other.values,
        }
    }

    /// Takes in the counts of rows that come later.
    pub(super) fn add(&mut self, other: Tally) {
        self.rows += other.rows;
        self.rescued_rows += other.rescued_rows;
        self.left_of_others += other.left_of_others;
        for (column, gain) in other.gains {
            match self.gains.get_mut(&column) {
                Some(known) => {
                    known.rows += gain.rows;
                    known.files.extend(gain.files);
                }
                None => {
                    self.gains.insert(column, gain);
                }
            }
        }
        for (key, left) in other.left {
            self.add_left(key, left);
        }
    }

    /// All of it, for a table of these columns.
    pub(super) fn into_plan(self, data_files: Vec<String>, table: &SchemaRef) -> BackfillPlan {
        let column = |(name, gain): (String, Gain)| FilledColumn {
            is_new: table.index_of(&name).is_err(),
            data_type: ddl_type(&gain.data_type),
            rows: gain.rows,
            files: gain.files.len() as u64,
            name,
        };
        let field = |((field, why), left): ((String, String), Left)| LeftField {
            field,
            why,
            values: left.values,
            example: left.example,
            file_path: left.file_path,
            file_row: left.file_row,
            fitting_type: left.fitting_type.as_ref().map(ddl_type),
        };
        BackfillPlan {
            columns: self.gains.into_iter().map(column).collect(),
            left: self.left.into_iter().map(field).collect(),
            left_of_others: self.left_of_others,
            rows: self.rows,
            data_files,
            rescued_rows: self.rescued_rows,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::Schema;
    use std::sync::Arc;

    fn place(file_path: &str, file_row: i64) -> Place<'_> {
        Place {
            file_path,
            file_row,
        }
    }

    #[test]
    fn fields_beyond_the_bound_are_counted_together() {
        let mut tally = Tally::default();
        for field in 0..LEFT_FIELDS_MAX + 5 {
            tally.leave(&format!("f{field}"), "why", "1", None, place("a", 1));
        }
        let plan = tally.into_plan(Vec::new(), &Arc::new(Schema::empty()));
        assert_eq!((plan.left.len(), plan.left_of_others), (LEFT_FIELDS_MAX, 5));
    }

    #[test]
    fn counts_of_parts_add_up_and_the_first_example_stays() {
        let mut tally = Tally::default();
        for file in ["a", "b"] {
            let mut part = Tally::default();
            part.gain("c", &DataType::Int64, place("one", 1));
            part.gain("c", &DataType::Int64, place(file, 2));
            let fitting = if file == "a" {
                DataType::Int64
            } else {
                DataType::Utf8
            };
            part.leave("x", "why", file, Some(fitting), place(file, 3));
            part.rows = 2;
            tally.add(part);
        }
        let plan = tally.into_plan(Vec::new(), &Arc::new(Schema::empty()));
        assert_eq!(plan.rows, 4);
        let column = &plan.columns[0];
        assert_eq!((column.rows, column.files, column.is_new), (4, 3, true));
        let left = &plan.left[0];
        assert_eq!(
            (left.values, left.example.as_str(), left.file_row),
            (2, "a", 3)
        );
        assert_eq!(left.fitting_type.as_deref(), Some("STRING"));
    }
}
