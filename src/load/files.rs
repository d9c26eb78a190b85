//! One file of a batch while its parts are decoded, and what becomes of it.
//!
//! Parts may come in any order and from any thread; what a file is in the end does not depend on that.

use super::admission::{Admission, Refusal};
use crate::batch::PlannedFile;
use crate::bronze::LoadedRows;
use crate::change::{FileFault, ParkReason, Reject};
use crate::decode::{Decoded, NewColumn, new_columns_fault};
use crate::error::{Error, ErrorKind, Result};
use crate::landing::ReadFault;
use crate::schema::merge_new_columns;
use crate::settings::{OnBadRecord, SchemaEvolutionMode, SourceSettings};
use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::filter_record_batch;
use std::collections::BTreeMap;

/// What became of a file.
#[derive(Debug)]
pub(super) enum FileEnd {
    /// It was not read as planned.
    Unread(ReadFault),
    /// None of it may load.
    Parked(FileFault),
    /// The whole run ends.
    Stops(Error),
    /// It brings columns, so all of it is decoded again with them.
    Brings(Vec<NewColumn>),
    /// Every record of it is a row or a reject.
    Loads,
}

/// A file that was decoded to its end.
#[derive(Debug)]
pub(super) struct FileDone {
    pub(super) content_hash: Option<String>,
    pub(super) end: FileEnd,
    /// Rows for bronze, in memory or written.
    pub(super) rows: u64,
    /// In the order of the file.
    pub(super) rejects: Vec<Reject>,
    /// The rows in memory, in the order of the file.
    pub(super) held: Vec<LoadedRows>,
}

/// A part of a file, told into rows and rejects.
pub(super) struct FilePart {
    /// Its first record.
    first: i64,
    records: usize,
    rows: Option<LoadedRows>,
    rejects: Vec<Reject>,
    late: Option<String>,
}

/// A column that a part of a file brings, and where its first value stands.
struct Arrival {
    column: NewColumn,
    place: String,
}

/// A file that is being decoded.
#[derive(Default)]
pub(super) struct FileState {
    records: usize,
    rows: u64,
    held: Vec<(i64, LoadedRows)>,
    /// Memory of `held`.
    pub(super) held_bytes: usize,
    /// All refused records, or the first alone where the file is parked in any case.
    rejects: Vec<Reject>,
    refused: usize,
    /// By the record from which on they were looked for.
    arrivals: BTreeMap<i64, Vec<Arrival>>,
    /// Why it cannot load, by the place of that in the file; what is wrong with all of it comes before any place.
    fault: Option<(Option<usize>, FileFault)>,
    late: Option<(i64, String)>,
    /// Parts that are being decoded.
    pub(super) in_work: usize,
    /// All of it was read: the content hash, or why it does not count.
    pub(super) read: Option<Result<String, ReadFault>>,
}

impl FilePart {
    /// Tells which rows of a decoded part load.
    pub(super) fn new(
        file: &PlannedFile,
        decoded: Decoded,
        admission: &Admission,
        late: &dyn Fn(&RecordBatch) -> Result<Option<String>>,
    ) -> Result<FilePart> {
        let first = decoded.positions.first().map(|position| position.file_row);
        let first_reject = decoded.rejects.first().map(|reject| reject.file_row);
        let records = decoded.positions.len() + decoded.rejects.len();
        let refusals = admission.refusals(&decoded.rows)?;
        let late = late(&decoded.rows)?;
        let mut admitted = vec![true; decoded.positions.len()];
        refusals
            .iter()
            .for_each(|refusal| admitted[refusal.row] = false);
        let refused = refusals.into_iter();
        let mut rejects: Vec<Reject> = refused.map(|refusal| reject(&decoded, refusal)).collect();
        let positions = decoded.positions.iter().zip(&admitted);
        let kept = positions.filter(|(_, admitted)| **admitted);
        let file_rows: Vec<i64> = kept.map(|(position, _)| position.file_row).collect();
        let rows = match rejects.is_empty() {
            true => decoded.rows,
            false => filter_record_batch(&decoded.rows, &BooleanArray::from(admitted))?,
        };
        rejects.extend(decoded.rejects);
        let path = &file.path;
        assert_eq!(
            file_rows.len() + rejects.len(),
            records,
            "BUG: a record of {path} is neither loaded nor refused"
        );
        Ok(FilePart {
            first: first.into_iter().chain(first_reject).min().unwrap_or(0),
            records,
            rows: (!file_rows.is_empty())
                .then(|| LoadedRows::of_file(path, file.modified_at, rows, file_rows)),
            rejects,
            late,
        })
    }
}

impl FileState {
    /// A file all of which was read, with its content hash, or why it does not count.
    pub(super) fn of_read(read: Result<String, ReadFault>) -> FileState {
        FileState {
            read: Some(read),
            ..FileState::default()
        }
    }

    /// Adds a part.
    pub(super) fn add(&mut self, part: FilePart, source: &SourceSettings) {
        self.records += part.records;
        self.refused += part.rejects.len();
        self.rejects.extend(part.rejects);
        if self.is_vain() || is_refused(self.refused, source) {
            self.keep_first_reject();
        }
        if let Some(late) = part.late
            && self
                .late
                .as_ref()
                .is_none_or(|(first, _)| part.first < *first)
        {
            self.late = Some((part.first, late));
        }
        let Some(rows) = part.rows else { return };
        self.rows += rows.file_rows.len() as u64;
        self.held_bytes += rows.rows.get_array_memory_size();
        self.held.push((part.first, rows));
        self.forget_if_vain();
    }

    /// Notes the columns that a part of the file brings, as looked for from record `first` on.
    pub(super) fn bring(&mut self, first: i64, part: Decoded) {
        let columns = part.new_columns.into_iter();
        let arrivals = columns.zip(part.new_column_places);
        let arrivals = arrivals.map(|(column, place)| Arrival { column, place });
        self.arrivals.insert(first, arrivals.collect());
        self.forget_if_vain();
    }

    /// Notes why the file cannot load; what is wrong first in the file is told.
    pub(super) fn fail(&mut self, at: Option<usize>, fault: FileFault) {
        if self.fault.as_ref().is_none_or(|(first, _)| at < *first) {
            self.fault = Some((at, fault));
        }
        self.forget_if_vain();
    }

    /// What is told of a file that does not load is how many records were refused, and why the first was.
    fn keep_first_reject(&mut self) {
        let first = self.rejects.drain(..).min_by_key(|reject| reject.file_row);
        self.rejects = first.into_iter().collect();
    }

    /// Whether no row of the file will load as it was decoded, so that the rest of it need not be kept.
    pub(super) fn is_vain(&self) -> bool {
        self.fault.is_some() || !self.arrivals.is_empty()
    }

    /// Whether the rest of the file need not be decoded.
    pub(super) fn is_lost(&self) -> bool {
        self.fault.is_some()
    }

    fn forget_if_vain(&mut self) {
        if self.is_vain() {
            self.take_held();
            self.keep_first_reject();
        }
    }

    /// The rows in memory, which are not held any more.
    pub(super) fn take_held(&mut self) -> Vec<LoadedRows> {
        self.held_bytes = 0;
        self.held.sort_by_key(|(first, _)| *first);
        self.held.drain(..).map(|(_, rows)| rows).collect()
    }

    /// What became of the file, all parts of which were added.
    pub(super) fn done(&mut self, path: &str, source: &SourceSettings) -> FileDone {
        let read = self.read.take();
        let read = read.unwrap_or(Err(ReadFault::Changed));
        let content_hash = read.as_ref().ok().cloned();
        self.rejects.sort_by_key(|reject| reject.file_row);
        let end = match (read, self.fault.take(), self.late.take()) {
            (Err(fault), ..) => FileEnd::Unread(fault),
            (Ok(_), Some((_, fault)), _) => FileEnd::Parked(fault),
            (Ok(_), None, _) if !self.arrivals.is_empty() => {
                self.arrived(source.schema_evolution_mode)
            }
            (Ok(_), None, Some((_, detail))) => {
                FileEnd::Parked(FileFault::new(ParkReason::LateSnapshot, detail))
            }
            (Ok(_), None, None) => match self.too_many(path, source) {
                Ok(None) => {
                    assert_eq!(
                        self.rejects.len(),
                        self.refused,
                        "BUG: all refused records of {path} are kept"
                    );
                    FileEnd::Loads
                }
                Ok(Some(fault)) => FileEnd::Parked(fault),
                Err(error) => FileEnd::Stops(error),
            },
        };
        let (rows, rejects, held) = match end {
            FileEnd::Loads => (
                self.rows,
                std::mem::take(&mut self.rejects),
                self.take_held(),
            ),
            _ => (0, Vec::new(), Vec::new()),
        };
        FileDone {
            content_hash,
            end,
            rows,
            rejects,
            held,
        }
    }

    /// What the settings make of the refused records: nothing, a parked file, or the end of the run.
    fn too_many(&self, path: &str, source: &SourceSettings) -> Result<Option<FileFault>> {
        let Some(first) = self.rejects.first() else {
            return Ok(None);
        };
        let place = first.file_line.map_or_else(
            || format!("row {}", first.file_row),
            |line| format!("line {line}"),
        );
        let example = format!("{place}: {}: {}", first.reason.as_str(), first.detail);
        match source.on_bad_record {
            OnBadRecord::Stop => {
                let message = format!("landing file {path}, {example}");
                return Err(Error::new(ErrorKind::Input, message)
                    .hint("mend the file, or set on_bad_record = \"quarantine\""));
            }
            OnBadRecord::FailFile => {
                return Ok(Some(FileFault::new(ParkReason::TooManyBadRecords, example)));
            }
            OnBadRecord::Quarantine => {}
        }
        let (count, records) = (self.refused, self.records);
        let percent = 100.0 * count as f64 / records as f64;
        let over_percent = source.max_bad_percent.is_some_and(|max| percent > max);
        if !is_refused(count, source) && !over_percent {
            return Ok(None);
        }
        let detail = format!("{count} of {records} records are refused, the first in {example}");
        Ok(Some(FileFault::new(ParkReason::TooManyBadRecords, detail)))
    }

    /// What the columns that the file brings make of it.
    fn arrived(&mut self, mode: SchemaEvolutionMode) -> FileEnd {
        let arrivals: Vec<Arrival> = std::mem::take(&mut self.arrivals)
            .into_values()
            .flatten()
            .collect();
        if mode == SchemaEvolutionMode::FailOnNewColumns {
            let names = arrivals.iter().map(|arrival| arrival.column.name.as_str());
            let places = arrivals.iter().map(|arrival| arrival.place.as_str());
            return FileEnd::Parked(new_columns_fault(names.zip(places)));
        }
        let columns: Vec<NewColumn> = arrivals.into_iter().map(|arrival| arrival.column).collect();
        let merged = merge_new_columns([columns.as_slice()]).into_iter();
        FileEnd::Brings(merged.map(NewColumn::or_string).collect())
    }
}

/// Whether so many refused records are too many, however many others there are.
fn is_refused(count: usize, source: &SourceSettings) -> bool {
    match source.on_bad_record {
        OnBadRecord::Stop | OnBadRecord::FailFile => count > 0,
        OnBadRecord::Quarantine => source.max_bad_records.is_some_and(|max| count as u64 > max),
    }
}

fn reject(decoded: &Decoded, refusal: Refusal) -> Reject {
    let position = decoded.positions[refusal.row];
    Reject {
        file_row: position.file_row,
        file_line: position.file_line,
        byte_offset: position.byte_offset,
        reason: refusal.reason,
        detail: refusal.detail,
        raw: decoded.raw(refusal.row),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::RejectReason;
    use crate::decode::testing::settings;
    use crate::settings::Format;

    /// Ten records from `first` on, all of which are refused.
    fn refused(first: i64) -> FilePart {
        let reject = |file_row| Reject {
            file_row,
            file_line: None,
            byte_offset: None,
            reason: RejectReason::Malformed,
            detail: "no object".into(),
            raw: "x".into(),
        };
        FilePart {
            first,
            records: 10,
            rows: None,
            rejects: (first..first + 10).map(reject).collect(),
            late: None,
        }
    }

    /// How many refused records are kept of thirty, and what becomes of the file.
    fn kept(source: &SourceSettings) -> (usize, FileDone) {
        let mut state = FileState::of_read(Ok("hash".into()));
        for first in [11, 1, 21] {
            state.add(refused(first), source);
        }
        (state.rejects.len(), state.done("a", source))
    }

    fn parked(done: FileDone) -> String {
        match done.end {
            FileEnd::Parked(fault) => fault.detail,
            end => panic!("{end:?}"),
        }
    }

    #[test]
    fn refused_records_are_kept_only_as_long_as_the_file_may_load() {
        let mut source = settings(Format::Json);
        source.max_bad_records = Some(30);
        let (count, done) = kept(&source);
        assert_eq!((count, done.rejects.len()), (30, 30));
        assert!(matches!(done.end, FileEnd::Loads));
        source.max_bad_records = Some(15);
        let (count, done) = kept(&source);
        let detail = "30 of 30 records are refused, the first in row 1: malformed: no object";
        assert_eq!((count, parked(done).as_str()), (1, detail));
        source.on_bad_record = OnBadRecord::FailFile;
        let (count, done) = kept(&source);
        assert_eq!(
            (count, parked(done).as_str()),
            (1, "row 1: malformed: no object")
        );
        let mut state = FileState::of_read(Ok("hash".into()));
        state.add(refused(1), &settings(Format::Json));
        state.fail(None, FileFault::new(ParkReason::TruncatedStream, "cut off"));
        assert_eq!(state.rejects.len(), 1);
    }
}
