//! Decodes files of a batch on all cores, in parts that are written ahead of the commit where they are many.
//!
//! A worker takes file after file; one that finds none left helps with the blocks of a large file that another began. Nothing
//! that is found depends on which worker did what.

mod joined;
mod shared;

use super::LoadLimits;
use super::admission::Admission;
use super::files::{FileDone, FileEnd, FilePart, FileState};
use crate::batch::{MicroBatch, PlannedFile};
use crate::bronze::{AheadWriter, LoadedRows, RowsAhead, STRETCH_ROWS};
use crate::decode::{
    Block, Blocks, Decoded, Framing, NewColumn, Stretches, Unpacked, begins_as_text, decode_block,
    decode_in_parts, is_for_together, is_of_blocks, is_of_stretches, is_plain_text_name,
};
use crate::error::{Error, Result};
use crate::landing::{ReadFault, ReadFile, open_planned, read};
use crate::parallel::{cores, lock};
use crate::schema::TableSchema;
use crate::settings::{SnapshotVersion, SourceSettings};
use arrow::array::RecordBatch;
use bytes::Bytes;
use deltalake::kernel::Add;
use shared::{FileBlocks, Input, OpenFile, Shared, SharedStream, Taken};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{Cursor, Read};
use std::sync::{Arc, Mutex};

/// What a file is shows itself in so many bytes.
const FRONT_BYTES: u64 = 64;

/// A packed file of which so many times its bytes are too much for memory is unpacked while it is decoded.
const UNPACKED_FACTOR_MAX: u64 = 128;

/// What a pass over files needs to know.
pub(super) struct Pass<'p> {
    pub(super) batch: &'p MicroBatch,
    pub(super) source: &'p SourceSettings,
    pub(super) schema: &'p TableSchema,
    /// `None` where only new columns are looked for.
    pub(super) admission: Option<&'p Admission>,
    pub(super) late_snapshot: &'p (dyn Fn(&RecordBatch) -> Result<Option<String>> + Sync),
    pub(super) limits: &'p LoadLimits,
    /// `None` where all rows stay in memory.
    pub(super) ahead: Option<&'p RowsAhead<'p>>,
}

/// What a pass found.
#[derive(Default)]
pub(super) struct PassResult {
    /// By the place of the file in the batch.
    done: HashMap<usize, FileDone>,
    /// Rows of small files that load, in memory.
    pub(super) joined: Vec<LoadedRows>,
    /// Data files with rows of files that load.
    pub(super) written: Vec<Add>,
    /// More rows came than may be in memory, and none could be written: nothing else of this counts.
    pub(super) is_too_much: bool,
}

impl PassResult {
    /// The columns that each file brings, in the order of the files.
    pub(super) fn new_columns(&self) -> Vec<&[NewColumn]> {
        let places = self.bringing_columns().into_iter();
        let columns = places.filter_map(|place| match &self.done.get(&place)?.end {
            FileEnd::Brings(columns) => Some(columns.as_slice()),
            _ => None,
        });
        columns.collect()
    }

    /// The files that bring columns, in their order.
    pub(super) fn bringing_columns(&self) -> Vec<usize> {
        let brings = |place: &usize| {
            let done = self.done.get(place);
            done.is_some_and(|done| matches!(done.end, FileEnd::Brings(_)))
        };
        self.places().into_iter().filter(brings).collect()
    }

    /// All files, in their order.
    pub(super) fn places(&self) -> Vec<usize> {
        let mut places: Vec<usize> = self.done.keys().copied().collect();
        places.sort_unstable();
        places
    }

    /// Puts what was found later in the place of what was found before.
    pub(super) fn replace(&mut self, again: PassResult) {
        self.done.extend(again.done);
        self.joined.extend(again.joined);
        self.written.extend(again.written);
        self.is_too_much |= again.is_too_much;
    }

    /// Whether a file was decoded and loads.
    pub(super) fn loads(&self, place: usize) -> bool {
        let done = self.done.get(&place);
        done.is_some_and(|done| matches!(done.end, FileEnd::Loads))
    }

    /// What became of a file.
    pub(super) fn take(&mut self, place: usize) -> Result<FileDone> {
        let done = self.done.remove(&place);
        done.ok_or_else(|| Error::bug(format!("file {place} of the batch was not decoded")))
    }
}

/// What one worker did.
#[derive(Default)]
struct WorkerResult {
    done: Vec<(usize, FileDone)>,
    /// Rows of small files that load, in memory; of each file with its place in the batch, or of many.
    small: Vec<(usize, LoadedRows)>,
    joined: Vec<LoadedRows>,
    /// Rows of files that load.
    written: Vec<Add>,
    /// Rows of one file each, written before it was known whether it loads.
    written_of: Vec<(usize, Vec<Add>)>,
}

impl Pass<'_> {
    /// Decodes the files at these places of the batch.
    pub(super) fn run(&self, places: Vec<usize>) -> Result<PassResult> {
        let is_small = self.is_small(&places);
        let streams = places.iter().any(|place| self.is_streamed(*place));
        let threads = if streams { usize::MAX } else { places.len() };
        let threads = threads.min(cores());
        let shared = Shared::new(places);
        if is_small {
            let here = Pass {
                ahead: None,
                ..*self
            };
            let result = Worker::new(&here, &shared).run();
            return self.collect(&shared, vec![result]);
        }
        let results = std::thread::scope(|scope| {
            let work = || Worker::new(self, &shared).run();
            let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let join = |handle: std::thread::ScopedJoinHandle<'_, _>| match handle.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            handles.into_iter().map(join).collect::<Vec<_>>()
        });
        self.collect(&shared, results)
    }

    /// Whether the rows of these files are so few that they stay in memory.
    fn is_small(&self, places: &[usize]) -> bool {
        let is_small = |place: &usize| {
            let file = self.file(*place);
            file.size <= self.limits.small_file_bytes_max && is_plain_text_name(&file.path)
        };
        places.len() <= 1 && places.iter().all(is_small)
    }

    fn collect(&self, shared: &Shared, workers: Vec<Result<WorkerResult>>) -> Result<PassResult> {
        let mut all = PassResult {
            is_too_much: shared.is_given_up(),
            ..PassResult::default()
        };
        if all.is_too_much {
            return Ok(all);
        }
        let (mut written_of, mut small) = (Vec::new(), Vec::new());
        for worker in workers {
            let worker = worker?;
            all.done.extend(worker.done);
            all.joined.extend(worker.joined);
            small.extend(worker.small);
            all.written.extend(worker.written);
            written_of.extend(worker.written_of);
        }
        small.sort_by_key(|(place, _)| *place);
        all.joined.extend(small.into_iter().map(|(_, rows)| rows));
        for (place, adds) in written_of {
            match all.loads(place) {
                true => all.written.extend(adds),
                false => self.ahead.iter().for_each(|ahead| ahead.discard(&adds)),
            }
        }
        Ok(all)
    }

    fn file(&self, place: usize) -> &PlannedFile {
        &self.batch.files[place]
    }

    fn is_streamed(&self, place: usize) -> bool {
        let file = self.file(place);
        let bytes = match is_plain_text_name(&file.path) {
            true => file.size,
            false => file.size.saturating_mul(UNPACKED_FACTOR_MAX),
        };
        bytes >= self.limits.streamed_bytes_min && is_of_blocks(&file.path, self.source)
    }

    /// Whether a file can be decoded together with others, told by what is known before it is read.
    fn is_joined(&self, place: usize) -> bool {
        let file = self.file(place);
        file.size <= self.limits.joined_file_bytes_max
            && self.admission.is_some()
            && self.source.snapshot_version == SnapshotVersion::None
            && !self.schema.columns.fields().is_empty()
            && is_for_together(&file.path, self.source)
    }

    fn late(&self, file: &PlannedFile, rows: &RecordBatch) -> Result<Option<String>> {
        // One that takes its own place again is not late.
        match self.source.snapshot_version {
            SnapshotVersion::None => Ok(None),
            _ if file.replaces => Ok(None),
            SnapshotVersion::Column | SnapshotVersion::FileName => (self.late_snapshot)(rows),
        }
    }
}

struct Worker<'w> {
    pass: &'w Pass<'w>,
    shared: &'w Shared,
    /// For rows of files that load.
    writer: Option<AheadWriter>,
    /// For rows of one file each.
    writers_of: HashMap<usize, AheadWriter>,
    /// Files that were read, to be decoded together.
    together: Vec<(usize, ReadFile)>,
    /// Bytes of these.
    together_bytes: usize,
    /// Files turn out to need a look at each of them.
    is_one_by_one: bool,
    /// Files of many rows, in memory, that load.
    waiting: Vec<(usize, FileDone)>,
    /// How many rows of small files are not joined.
    small_rows: usize,
    /// Memory of the rows of the files that load.
    held_bytes: usize,
    result: WorkerResult,
}

impl<'w> Worker<'w> {
    fn new(pass: &'w Pass<'w>, shared: &'w Shared) -> Self {
        Worker {
            pass,
            shared,
            writer: None,
            writers_of: HashMap::new(),
            together: Vec::new(),
            together_bytes: 0,
            is_one_by_one: false,
            waiting: Vec::new(),
            small_rows: 0,
            held_bytes: 0,
            result: WorkerResult::default(),
        }
    }

    fn run(mut self) -> Result<WorkerResult> {
        loop {
            if let Some(taken) = self.shared.next(|place| self.pass.is_streamed(place)) {
                self.file(taken)?;
                continue;
            }
            self.decode_together()?;
            match self.shared.begun() {
                Some(open) => self.blocks(&open)?,
                None => break,
            }
        }
        if self.writer.is_some() {
            self.write_held()?;
        }
        self.result.done.append(&mut self.waiting);
        if let Some(writer) = self.writer {
            self.result.written = writer.close()?;
        }
        Ok(self.result)
    }

    fn file(&mut self, mut taken: Taken<'_>) -> Result<()> {
        let place = taken.place;
        if !self.is_one_by_one && self.pass.is_joined(place) {
            return self.join(place);
        }
        if taken.is_opening && self.stream(&mut taken)? {
            return Ok(());
        }
        drop(taken);
        self.whole(place)
    }

    /// Reads a file block by block; `false` where it turns out to be something else.
    fn stream(&mut self, taken: &mut Taken<'_>) -> Result<bool> {
        let place = taken.place;
        let file = self.pass.file(place);
        let stream = match open_planned(&self.pass.source.path, file) {
            Ok(stream) => SharedStream(Arc::new(Mutex::new(Some(stream)))),
            Err(fault) => return self.unread(place, fault).map(|()| true),
        };
        // What cannot be read shows itself where all of it is read, too.
        let Some(blocks) = self.blocks_of(file, &stream).ok().flatten() else {
            return Ok(false);
        };
        let open = Arc::new(OpenFile {
            place,
            blocks: Mutex::new(Some(Input {
                blocks,
                file: stream,
            })),
            state: Mutex::default(),
        });
        taken.open(Arc::clone(&open));
        self.blocks(&open)?;
        Ok(true)
    }

    /// What an open file is cut into; `None` where it turns out to be something else.
    fn blocks_of(
        &self,
        file: &PlannedFile,
        stream: &SharedStream,
    ) -> std::io::Result<Option<FileBlocks>> {
        let Pass { source, limits, .. } = self.pass;
        if is_of_stretches(&file.path, source) {
            let stretches = Stretches::of(stream.file()?, limits.block_bytes);
            return Ok(Some(FileBlocks::Rows(Box::new(stretches))));
        }
        let Some(framing) = Framing::of(&file.path, source) else {
            return Ok(None);
        };
        let Some(mut unpacked) = Unpacked::open(&file.path, file.size, stream.clone())? else {
            return Ok(None);
        };
        let mut front = Vec::new();
        (&mut unpacked).take(FRONT_BYTES).read_to_end(&mut front)?;
        if !begins_as_text(&front) {
            return Ok(None);
        }
        let input = Cursor::new(front).chain(unpacked);
        let blocks = Blocks::new(input, limits.block_bytes, framing);
        Ok(Some(FileBlocks::Text(Box::new(blocks))))
    }

    /// Decodes blocks of a file until none is left.
    fn blocks(&mut self, open: &OpenFile) -> Result<()> {
        let mut read = Bytes::new();
        loop {
            let next = {
                let mut blocks = lock(&open.blocks);
                let Some(input) = blocks.as_mut() else { break };
                match input.blocks.next(std::mem::take(&mut read)) {
                    Ok(Some(block)) => {
                        lock(&open.state).in_work += 1;
                        block
                    }
                    Ok(None) => {
                        let read = input.file.finish();
                        *blocks = None;
                        lock(&open.state).read = Some(read);
                        break;
                    }
                    Err(error) => {
                        open.fail(&mut blocks, &error);
                        break;
                    }
                }
            };
            read = next.bytes.clone();
            self.block(open, next)?;
        }
        self.close_writer_of(open.place, &open.state)?;
        self.finish_if_done(open)
    }

    fn block(&mut self, open: &OpenFile, block: Block) -> Result<()> {
        let pass = self.pass;
        let file = pass.file(open.place);
        let (at, first) = (block.before.bytes, block.before.records);
        if !lock(&open.state).is_lost() {
            match decode_block(&file.path, block, pass.schema, pass.source) {
                Ok(decoded) => self.part(open.place, &open.state, first, decoded)?,
                Err(fault) => lock(&open.state).fail(Some(at), fault),
            }
        }
        lock(&open.state).in_work -= 1;
        Ok(())
    }

    fn finish_if_done(&mut self, open: &OpenFile) -> Result<()> {
        let mut state = lock(&open.state);
        match state.in_work == 0 && state.read.is_some() {
            true => self.finish(open.place, &mut state),
            false => Ok(()),
        }
    }

    /// Reads a file into memory and decodes it.
    fn whole(&mut self, place: usize) -> Result<()> {
        match read(&self.pass.source.path, self.pass.file(place)) {
            Ok(read) => self.decode(place, read),
            Err(fault) => self.unread(place, fault),
        }
    }

    /// Ends a file that was not read as planned.
    fn unread(&mut self, place: usize, fault: ReadFault) -> Result<()> {
        self.finish(place, &mut FileState::of_read(Err(fault)))
    }

    /// Decodes a file that is in memory, in parts.
    fn decode(&mut self, place: usize, read: ReadFile) -> Result<()> {
        let pass = self.pass;
        let file = pass.file(place);
        let state = Mutex::new(FileState::of_read(Ok(read.hash)));
        let worker = RefCell::new((&mut *self, Ok(())));
        let take = |decoded: Decoded| {
            let (worker, result) = &mut *worker.borrow_mut();
            if result.is_ok() {
                *result = worker.part(place, &state, 0, decoded);
            }
        };
        let decoded = decode_in_parts(
            &file.path,
            read.bytes,
            pass.schema,
            pass.source,
            pass.limits.part_records,
            &take,
        );
        let (_, result) = worker.into_inner();
        result?;
        self.close_writer_of(place, &state)?;
        if let Err(fault) = decoded {
            lock(&state).fail(None, fault);
        }
        self.finish(place, &mut lock(&state))
    }

    /// Takes a decoded part, whose new columns were looked for from record `first` on.
    fn part(
        &mut self,
        place: usize,
        state: &Mutex<FileState>,
        first: usize,
        decoded: Decoded,
    ) -> Result<()> {
        let pass = self.pass;
        let first = i64::try_from(first).unwrap_or(i64::MAX);
        if !decoded.new_columns.is_empty() {
            lock(state).bring(first, decoded);
            return Ok(());
        }
        let Some(admission) = pass.admission else {
            return Ok(());
        };
        let file = pass.file(place);
        let part = FilePart::new(file, decoded, admission, &|rows| pass.late(file, rows))?;
        let held = {
            let mut state = lock(state);
            state.add(part, pass.source);
            // Who writes the file already takes what there is before it has left the cache.
            let limits = pass.limits;
            let bytes_max = match self.writers_of.contains_key(&place) {
                true => limits.waiting_bytes_max.min(limits.held_bytes_max),
                false => limits.held_bytes_max,
            };
            match pass.ahead.is_some() && state.held_bytes > bytes_max {
                true => state.take_held(),
                false => {
                    self.check_unwritten(state.held_bytes)?;
                    Vec::new()
                }
            }
        };
        let Some(ahead) = pass.ahead else {
            return Ok(());
        };
        for rows in held {
            let writer = match self.writers_of.get_mut(&place) {
                Some(writer) => writer,
                None => {
                    let writer = ahead.writer(pass.schema)?;
                    self.writers_of.entry(place).or_insert(writer)
                }
            };
            writer.write(&rows)?;
        }
        Ok(())
    }

    /// Finishes the data files of this worker for one file, if it has some; open ones cost memory. They take what is held of the
    /// file, which else would be one more.
    fn close_writer_of(&mut self, place: usize, state: &Mutex<FileState>) -> Result<()> {
        let Some(mut writer) = self.writers_of.remove(&place) else {
            return Ok(());
        };
        let held = lock(state).take_held();
        held.iter().try_for_each(|rows| writer.write(rows))?;
        self.result.written_of.push((place, writer.close()?));
        Ok(())
    }

    /// Ends a file, all of which was decoded.
    fn finish(&mut self, place: usize, state: &mut FileState) -> Result<()> {
        self.held_bytes += state.held_bytes;
        let path = &self.pass.file(place).path;
        let mut done = state.done(path, self.pass.source);
        let rows: usize = done.held.iter().map(|held| held.file_rows.len()).sum();
        if rows < STRETCH_ROWS {
            // A file that was decoded in parts stands in the rows of its batch once all the same.
            let held = LoadedRows::joined(std::mem::take(&mut done.held))?;
            self.result.small.extend(held.map(|held| (place, held)));
            self.result.done.push((place, done));
            self.small_rows += rows;
        } else {
            self.waiting.push((place, done));
        }
        if self.small_rows >= STRETCH_ROWS {
            self.join_small()?;
        }
        self.write_if_much()
    }

    /// Writes the rows in memory of the files that load, if they are many.
    fn write_if_much(&mut self) -> Result<()> {
        match self.pass.ahead.is_some() && self.held_bytes > self.pass.limits.waiting_bytes_max {
            true => self.write_held(),
            false => self.check_unwritten(self.held_bytes),
        }
    }

    /// Gives the pass up where rows of so many bytes are not to be held and cannot be written.
    fn check_unwritten(&self, held_bytes: usize) -> Result<()> {
        let is_too_much = held_bytes > self.pass.limits.unwritten_bytes_max;
        if self.pass.ahead.is_some() || !is_too_much && !self.shared.is_given_up() {
            return Ok(());
        }
        self.shared.give_up();
        Err(Error::bug("rows that cannot be written are not held"))
    }

    /// Joins the rows of small files, which take much room each by itself.
    fn join_small(&mut self) -> Result<()> {
        let small = std::mem::take(&mut self.result.small).into_iter();
        let (apart, rows) = sizes(small.map(|(_, rows)| rows));
        let joined = LoadedRows::joined(rows)?;
        let (bytes, joined) = sizes(joined);
        self.result.joined.extend(joined);
        self.held_bytes = (self.held_bytes + bytes).saturating_sub(apart);
        self.small_rows = 0;
        Ok(())
    }

    /// Writes the rows in memory of the files that load.
    fn write_held(&mut self) -> Result<()> {
        self.join_small()?;
        for rows in std::mem::take(&mut self.result.joined) {
            self.write(&rows)?;
        }
        for (place, mut done) in std::mem::take(&mut self.waiting) {
            for rows in std::mem::take(&mut done.held) {
                self.write(&rows)?;
            }
            self.result.done.push((place, done));
        }
        self.held_bytes = 0;
        Ok(())
    }

    fn write(&mut self, rows: &LoadedRows) -> Result<()> {
        let writer = match (&mut self.writer, self.pass.ahead) {
            (Some(writer), _) => writer,
            (none, Some(ahead)) => none.insert(ahead.writer(self.pass.schema)?),
            (None, None) => return Err(Error::bug("rows cannot be written ahead")),
        };
        writer.write(rows)
    }
}

/// Rows, and how much memory they take.
fn sizes(rows: impl IntoIterator<Item = LoadedRows>) -> (usize, Vec<LoadedRows>) {
    let rows: Vec<LoadedRows> = rows.into_iter().collect();
    let bytes = rows.iter().map(|rows| rows.rows.get_array_memory_size());
    (bytes.sum(), rows)
}
