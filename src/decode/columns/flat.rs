//! The columns of a table, with the fields of each STRUCT as columns of their own.
//!
//! So a value is put where it belongs by one number, however deep its STRUCT is. Between records all columns have the same
//! number of rows; while a record is read, a column that has one more holds its value already.

use super::{Column, Values};
use crate::decode::value::Cell;
use arrow::datatypes::{DataType, FieldRef, Fields};

/// The columns of a table; each is known by its place, which is that of its field in the order of the text of the schema.
#[derive(Debug)]
pub(in crate::decode) struct Columns {
    pub(super) flat: Vec<Column>,
    /// For each column, the place of the next one that is not inside of it.
    behind: Vec<usize>,
    /// The places of the columns that are in no STRUCT.
    roots: Vec<usize>,
}

impl Columns {
    /// No rows yet.
    pub(in crate::decode) fn of(fields: &Fields) -> Columns {
        let mut columns = Columns {
            flat: Vec::new(),
            behind: Vec::new(),
            roots: Vec::with_capacity(fields.len()),
        };
        for field in fields {
            columns.roots.push(columns.flat.len());
            columns.add(Column::new(field.data_type()));
        }
        columns
    }

    fn add(&mut self, mut column: Column) {
        let place = self.flat.len();
        let inside = match &mut column.values {
            Values::Struct(inside) => std::mem::take(inside),
            _ => Vec::new(),
        };
        self.flat.push(column);
        self.behind.push(place + 1);
        inside.into_iter().for_each(|column| self.add(column));
        self.behind[place] = self.flat.len();
    }

    /// How many there are.
    pub(in crate::decode) fn count(&self) -> usize {
        self.flat.len()
    }

    /// The place of a column that is in no STRUCT.
    pub(in crate::decode) fn root(&self, index: usize) -> usize {
        self.roots[index]
    }

    /// Whether the column at a place has only STRUCTs, whose fields have columns of their own.
    pub(in crate::decode) fn is_struct(&self, place: usize) -> bool {
        matches!(self.flat[place].values, Values::Struct(_))
    }

    /// The place of the field of a STRUCT column that has exactly this name.
    pub(in crate::decode) fn field_of(&self, place: usize, name: &str) -> Option<usize> {
        let DataType::Struct(fields) = self.flat[place].data_type() else {
            return None;
        };
        let mut inside = place + 1;
        for field in fields {
            if field.name() == name {
                return Some(inside);
            }
            inside = self.behind[inside];
        }
        None
    }

    /// The column at a place; of a STRUCT that alone, without its fields.
    #[inline]
    pub(in crate::decode) fn at(&mut self, place: usize) -> &mut Column {
        &mut self.flat[place]
    }

    /// Makes room for as many rows again as there are, `times` over, as long as those are.
    pub(in crate::decode) fn reserve_alike(&mut self, times: usize) {
        for column in &mut self.flat {
            column.reserve_alike(times);
        }
    }

    /// Appends one row to a column with all that is inside of it.
    pub(in crate::decode) fn push(&mut self, place: usize, cell: Cell<'_>) {
        let behind = self.behind[place];
        if behind == place + 1 {
            return self.flat[place].push(cell);
        }
        match cell {
            Cell::Struct(cells) => {
                self.flat[place].push(Cell::Struct(Vec::new()));
                let mut next = place + 1;
                for cell in cells {
                    self.push(next, cell);
                    next = self.behind[next];
                }
            }
            _ => self.push_null(place),
        }
    }

    /// Appends NULL to a column with all that is inside of it.
    pub(in crate::decode) fn push_null(&mut self, place: usize) {
        self.flat[place..self.behind[place]]
            .iter_mut()
            .for_each(Column::push_null);
    }

    /// How many columns have more than so many rows.
    pub(in crate::decode) fn count_longer(&self, rows: usize) -> usize {
        self.flat.iter().filter(|column| column.len > rows).count()
    }

    /// Takes back all rows but the first `rows` of a column with all that is inside of it.
    pub(in crate::decode) fn truncate_at(&mut self, place: usize, rows: usize) {
        self.flat[place..self.behind[place]]
            .iter_mut()
            .for_each(|column| column.truncate(rows));
    }

    /// Ends a row behind `rows` others: NULL in every column that has no value of it.
    pub(in crate::decode) fn complete(&mut self, rows: usize) {
        for column in &mut self.flat {
            if column.len == rows {
                column.push_null();
            }
        }
    }

    /// Takes back all rows but the first `rows`.
    pub(in crate::decode) fn truncate(&mut self, rows: usize) {
        for column in &mut self.flat {
            column.truncate(rows);
        }
    }

    /// The columns that are in no STRUCT, whole.
    pub(in crate::decode) fn whole(self) -> Vec<Column> {
        let (mut flat, behind) = (self.flat.into_iter(), self.behind);
        let whole = |place: &usize| whole(&mut flat, &behind, *place);
        self.roots.iter().map(whole).collect()
    }
}

/// Takes the column at `place` from those that are left, which begin there.
fn whole(left: &mut std::vec::IntoIter<Column>, behind: &[usize], place: usize) -> Column {
    let mut column = left.next().expect("each place has its column");
    if let Values::Struct(inside) = &mut column.values {
        let mut next = place + 1;
        while next < behind[place] {
            inside.push(whole(left, behind, next));
            next = behind[next];
        }
    }
    column
}

/// The fields of a table in the order of the places of their columns, with the number of STRUCTs around each.
pub(in crate::decode) fn fields_of(fields: &Fields) -> Vec<(FieldRef, usize)> {
    fn add(fields: &Fields, depth: usize, all: &mut Vec<(FieldRef, usize)>) {
        for field in fields {
            all.push((field.clone(), depth));
            if let DataType::Struct(inside) = field.data_type() {
                add(inside, depth + 1, all);
            }
        }
    }
    let mut all = Vec::new();
    add(fields, 0, &mut all);
    all
}
