//! Landing files read once more, where the JSON text of a rescued value does not tell all that its file does.
//!
//! Parquet and Avro give values their types, and so does the schema of a change of Debezium. While the file is there as it
//! was loaded, it is decoded again with the columns that there are now; a file that is gone leaves the JSON text.

use super::fill::{Values, fields_of};
use crate::batch::PlannedFile;
use crate::change::{RESCUED_DATA, RescuedValue};
use crate::checkpoint::{CheckpointStore, FileRecord, FileState};
use crate::decode::{decode, has_typed_values};
use crate::error::Result;
use crate::landing;
use crate::schema::TableSchema;
use crate::settings::{Envelope, Format, OnTypeMismatch, SchemaEvolutionMode, SourceSettings};
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::interleave;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

/// The loaded files whose values have types, as they were.
pub(super) struct Originals {
    files: BTreeMap<String, FileRecord>,
    schema: TableSchema,
    settings: SourceSettings,
}

/// Reads originals one after the other; the rows of one file stand together.
pub(super) struct OriginalReader<'a> {
    originals: &'a Originals,
    last: Option<(String, Option<Arc<Original>>)>,
}

/// One file, decoded again.
struct Original {
    rows: RecordBatch,
    /// Where each record stands in `rows`; a record that is refused is not there.
    of_record: HashMap<i64, usize>,
}

/// Where the rows of a batch stand in their files.
#[derive(Default)]
pub(super) struct Found {
    files: Vec<Arc<Original>>,
    /// The file of each row, and its place there; nothing where the file is not read.
    places: Vec<Option<(usize, Option<usize>)>>,
}

impl Originals {
    /// Those that `checkpoint` knows, decoded with all columns of `schema`.
    pub(super) fn of(
        checkpoint: &CheckpointStore,
        schema: TableSchema,
        settings: &SourceSettings,
    ) -> Result<Self> {
        let mut files = BTreeMap::new();
        let never = matches!(settings.format, Format::Json | Format::Csv)
            && settings.envelope != Envelope::Debezium;
        if !never {
            checkpoint.files(Some(FileState::Loaded), &mut |file| {
                if has_typed_values(&file.path, settings) {
                    files.insert(file.path.clone(), file);
                }
            })?;
        }
        let settings = SourceSettings {
            on_type_mismatch: OnTypeMismatch::Rescue,
            schema_evolution_mode: SchemaEvolutionMode::Rescue,
            ..settings.clone()
        };
        Ok(Originals {
            files,
            schema,
            settings,
        })
    }

    /// A reader that has read none yet.
    pub(super) fn reader(&self) -> OriginalReader<'_> {
        OriginalReader {
            originals: self,
            last: None,
        }
    }

    fn read(&self, path: &str) -> Option<Original> {
        let file = self.files.get(path)?;
        let planned = PlannedFile {
            path: path.to_string(),
            size: file.size,
            modified_at: file.modified_at,
            replaces: false,
        };
        let read = landing::read(Path::new(&self.settings.path), &planned).ok()?;
        let hash = file.content_hash.as_ref();
        if hash.is_some_and(|hash| *hash != read.hash) {
            return None;
        }
        let decoded = decode(path, read.bytes, &self.schema, &self.settings).ok()?;
        let records = decoded.positions.iter().map(|position| position.file_row);
        Some(Original {
            of_record: records
                .enumerate()
                .map(|(place, row)| (row, place))
                .collect(),
            rows: decoded.rows,
        })
    }
}

impl OriginalReader<'_> {
    /// Finds rows, each given by its file and record where it has rescued values.
    pub(super) fn find<'r>(&mut self, rows: impl Iterator<Item = Option<(&'r str, i64)>>) -> Found {
        let mut found = Found::default();
        for row in rows {
            let original = row.and_then(|(path, record)| Some((self.file(path)?, record)));
            let Some((original, record)) = original else {
                found.places.push(None);
                continue;
            };
            if !found
                .files
                .last()
                .is_some_and(|last| Arc::ptr_eq(last, &original))
            {
                found.files.push(original.clone());
            }
            let place = original.of_record.get(&record).copied();
            found.places.push(Some((found.files.len() - 1, place)));
        }
        found
    }

    fn file(&mut self, path: &str) -> Option<Arc<Original>> {
        match &self.last {
            Some((last, original)) if last == path => original.clone(),
            _ => {
                let original = self.originals.read(path).map(Arc::new);
                self.last = Some((path.to_string(), original.clone()));
                original
            }
        }
    }
}

impl Found {
    /// The values of one column and what became of each, by their files instead of by their JSON text.
    pub(super) fn correct(
        &self,
        name: &str,
        values: &Values<'_>,
        column: ArrayRef,
        became: &mut [Option<RescuedValue>],
    ) -> Result<ArrayRef> {
        if self.files.is_empty() {
            return Ok(column);
        }
        let mut sources: Vec<&dyn Array> = vec![column.as_ref()];
        for file in &self.files {
            let original = file.rows.schema_ref().index_of(name)?;
            sources.push(file.rows.column(original).as_ref());
        }
        let mut picks: Vec<(usize, usize)> = (0..values.len()).map(|row| (0, row)).collect();
        for (row, place) in self.places.iter().enumerate() {
            let (Some((file, place)), true) = (place, values[row].is_some()) else {
                continue;
            };
            let fits = place.filter(|place| sources[file + 1].is_valid(*place));
            became[row] = Some(match (fits, became[row].take()) {
                (Some(place), _) => {
                    picks[row] = (file + 1, place);
                    self.files[*file].fate(place, name)
                }
                (None, Some(RescuedValue::Unfit(why))) => RescuedValue::Unfit(why),
                (None, _) => {
                    RescuedValue::Unfit("does not fit by the type that its file gives it".into())
                }
            });
        }
        Ok(interleave(&sources, &picks)?)
    }
}

impl Original {
    /// What became of a value that its column holds.
    fn fate(&self, row: usize, name: &str) -> RescuedValue {
        let rescued = self.rows.column_by_name(RESCUED_DATA);
        let rescued = rescued.and_then(|column| column.as_string_opt::<i32>());
        let text = rescued
            .filter(|texts| texts.is_valid(row))
            .map(|texts| texts.value(row));
        let fields = text.and_then(fields_of).unwrap_or_default();
        match fields.iter().any(|(field, _)| field == name) {
            true => RescuedValue::FitsInPart,
            false => RescuedValue::Fits,
        }
    }
}
