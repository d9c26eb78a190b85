//! Which columns each record carries, as the list that the table keeps.

use crate::change::PRESENT_COLUMNS;
use crate::decode::text::json_text;
use crate::decode::value::Cell;
use crate::schema::TableSchema;
use crate::settings::{AbsentColumns, Envelope, SourceSettings};
use std::borrow::Cow;

/// Which columns the records carry, where that is kept.
pub(super) struct Presence<'a> {
    /// The column for it.
    pub(super) index: usize,
    /// The columns of the present record, with a value or NULL: those of the schema, and others.
    pub(super) known: Vec<usize>,
    pub(super) unknown: Vec<String>,
    /// The list of the last record, since the records of a feed are alike.
    last: (Vec<usize>, Vec<String>),
    last_text: Cow<'a, str>,
    /// Every record lists its columns, and not only one that says that it carries some alone.
    always: bool,
    /// The present record says so.
    pub(super) is_partial: bool,
}

impl<'a> Presence<'a> {
    /// Where the schema has a column for it.
    pub(super) fn of(schema: &TableSchema, settings: &SourceSettings) -> Option<Self> {
        let index = schema.columns.index_of(PRESENT_COLUMNS).ok()?;
        let always = settings.absent_columns == AbsentColumns::Keep;
        (always || settings.envelope != Envelope::None).then(|| Presence {
            index,
            known: Vec::new(),
            unknown: Vec::new(),
            last: (Vec::new(), Vec::new()),
            last_text: Cow::Borrowed("[]"),
            always,
            is_partial: false,
        })
    }

    /// The list of the present record, which ends; NULL where it carries all.
    pub(super) fn take(&mut self, schema: &TableSchema) -> Cell<'a> {
        if !self.always && !self.is_partial {
            self.clear();
            return Cell::Null;
        }
        if (&self.known, &self.unknown) != (&self.last.0, &self.last.1) {
            let known = self.known.iter();
            let known = known.map(|&index| schema.columns.field(index).name());
            let names: Vec<String> = known
                .chain(&self.unknown)
                .map(|name| json_text(name))
                .collect();
            self.last_text = Cow::Owned(format!("[{}]", names.join(",")));
            self.last = (
                std::mem::take(&mut self.known),
                std::mem::take(&mut self.unknown),
            );
        }
        self.clear();
        Cell::Text(self.last_text.clone())
    }

    /// Forgets the present record.
    pub(super) fn clear(&mut self) {
        self.known.clear();
        self.unknown.clear();
        self.is_partial = false;
    }
}
