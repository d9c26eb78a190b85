//! What the workers of a pass share: the files that none took yet, and the large ones that several decode.

use crate::change::{FileFault, ParkReason};
use crate::decode::{Block, Blocks, Stretches, Unpacked, fault_of};
use crate::landing::{PlannedStream, ReadFault};
use crate::load::files::FileState;
use crate::parallel::lock;
use bytes::Bytes;
use std::fs::File;
use std::io::{Chain, Cursor, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// The blocks of a file, and the file itself below them.
pub(super) struct Input {
    pub(super) blocks: FileBlocks,
    pub(super) file: SharedStream,
}

/// The text of a file, of which the first bytes were read already.
type TextStream = Chain<Cursor<Vec<u8>>, Unpacked<SharedStream>>;

/// What a file is cut into.
pub(super) enum FileBlocks {
    Text(Box<Blocks<TextStream>>),
    Rows(Box<Stretches>),
}

impl FileBlocks {
    /// The next block; `None` at the end. Its memory may be that of `last`, an earlier one.
    pub(super) fn next(&mut self, last: Bytes) -> std::io::Result<Option<Block>> {
        match self {
            FileBlocks::Text(blocks) => {
                blocks.take_back(last);
                blocks.next_block()
            }
            FileBlocks::Rows(stretches) => stretches.next_block(),
        }
    }
}

/// A planned file that is read through unpackers, and whose end is wanted all the same.
#[derive(Clone)]
pub(super) struct SharedStream(pub(super) Arc<Mutex<Option<PlannedStream>>>);

impl Read for SharedStream {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match lock(&self.0).as_mut() {
            Some(stream) => stream.read(buffer),
            None => Ok(0),
        }
    }
}

impl SharedStream {
    /// The same open file, to be read by places.
    pub(super) fn file(&self) -> std::io::Result<File> {
        let none = || std::io::Error::other("BUG: the file was read to its end");
        lock(&self.0).as_ref().ok_or_else(none)?.file()
    }

    pub(super) fn finish(&self) -> std::result::Result<String, ReadFault> {
        let stream = lock(&self.0).take();
        stream.map_or(Err(ReadFault::Changed), PlannedStream::finish)
    }
}

/// A large file that several workers decode.
pub(super) struct OpenFile {
    pub(super) place: usize,
    /// `None` when all of it was read.
    pub(super) blocks: Mutex<Option<Input>>,
    pub(super) state: Mutex<FileState>,
}

impl OpenFile {
    /// Ends the reading: the bytes are damaged or do not fit together, which tells more than any block, or cannot be read.
    pub(super) fn fail(&self, blocks: &mut Option<Input>, error: &std::io::Error) {
        let input = blocks.take();
        let mut state = lock(&self.state);
        state.read = match (fault_of(error), input) {
            (Some(fault), Some(input)) => {
                state.fail(None, fault);
                Some(input.file.finish())
            }
            _ => Some(Err(unreadable(error))),
        };
    }
}

/// What the workers share.
pub(super) struct Shared {
    files: Mutex<SharedFiles>,
    /// A file was opened, or turned out to be read by one worker alone.
    opened: Condvar,
    is_given_up: AtomicBool,
}

#[derive(Default)]
struct SharedFiles {
    /// What no worker took yet.
    places: std::vec::IntoIter<usize>,
    open: Vec<Arc<OpenFile>>,
    /// How many files that may be read block by block were taken and are not open yet.
    opening: usize,
}

/// A file that a worker takes; the others wait while it may still be opened for them.
pub(super) struct Taken<'s> {
    pub(super) place: usize,
    shared: &'s Shared,
    pub(super) is_opening: bool,
}

impl Taken<'_> {
    /// Lets other workers help.
    pub(super) fn open(&mut self, file: Arc<OpenFile>) {
        lock(&self.shared.files).open.push(file);
        self.close();
    }

    fn close(&mut self) {
        if std::mem::take(&mut self.is_opening) {
            lock(&self.shared.files).opening -= 1;
            self.shared.opened.notify_all();
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    pub(super) fn new(places: Vec<usize>) -> Self {
        let files = SharedFiles {
            places: places.into_iter(),
            ..SharedFiles::default()
        };
        Shared {
            files: Mutex::new(files),
            opened: Condvar::new(),
            is_given_up: AtomicBool::new(false),
        }
    }

    /// Lets all workers end: what they make is not used.
    pub(super) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed)
    }

    /// The next file that no worker took.
    pub(super) fn next(&self, is_streamed: impl Fn(usize) -> bool) -> Option<Taken<'_>> {
        let mut files = lock(&self.files);
        let place = files.places.next()?;
        let is_opening = is_streamed(place);
        files.opening += usize::from(is_opening);
        Some(Taken {
            place,
            shared: self,
            is_opening,
        })
    }

    /// A file that another worker began and that is not at its end; waits for those that are being opened.
    pub(super) fn begun(&self) -> Option<Arc<OpenFile>> {
        let mut files = lock(&self.files);
        loop {
            files.open.retain(|file| lock(&file.blocks).is_some());
            match files.open.first() {
                Some(file) => return Some(Arc::clone(file)),
                None if files.opening == 0 => return None,
                None => {
                    let woken = self.opened.wait(files);
                    files = woken.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

fn unreadable(error: &std::io::Error) -> ReadFault {
    ReadFault::Unreadable(FileFault::new(ParkReason::Unreadable, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::Framing;
    use std::time::Duration;

    fn opened(place: usize) -> Arc<OpenFile> {
        let file = SharedStream(Arc::new(Mutex::new(None)));
        let text = Unpacked::open("a.json", 0, file.clone());
        let text = text.unwrap().unwrap();
        let input = Input {
            blocks: FileBlocks::Text(Box::new(Blocks::new(
                Cursor::new(Vec::new()).chain(text),
                1,
                Framing::lines(),
            ))),
            file,
        };
        Arc::new(OpenFile {
            place,
            blocks: Mutex::new(Some(input)),
            state: Mutex::default(),
        })
    }

    /// What a worker that finds no file finds to help with, when another does `last` with the only file a while later.
    fn found_beside(last: impl FnOnce(Taken<'_>) + Send) -> Option<usize> {
        let shared = Shared::new(vec![7]);
        let taken = shared.next(|_| true).unwrap();
        assert!(shared.next(|_| true).is_none());
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(30));
                last(taken);
            });
            shared.begun().map(|file| file.place)
        })
    }

    #[test]
    fn worker_without_a_file_helps_with_one_that_is_still_being_opened() {
        let found = found_beside(|mut taken| taken.open(opened(taken.place)));
        assert_eq!(found, Some(7));
    }

    #[test]
    fn worker_without_a_file_ends_when_the_last_one_is_not_to_be_shared() {
        assert_eq!(found_beside(|taken| drop(taken)), None);
    }

    #[test]
    fn files_for_one_worker_are_not_waited_for() {
        let shared = Shared::new(vec![7]);
        let _taken = shared.next(|_| false).unwrap();
        assert!(shared.begun().is_none());
    }
}
