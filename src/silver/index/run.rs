//! One file of the key index: entries sorted by the hash of their key, and the row images they point to. Never changed
//! after it is in place.
//!
//! ```text
//! header | images (streamed) | entries by hash | buckets: first entry of each range of hashes | names of data files
//! ```
//!
//! A file is written under another name, synced and renamed, so what stands under its name is whole.

use crate::error::{Error, Result};
use memmap2::Mmap;
use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"lfkeys01";
const HEADER_BYTES: usize = 96;
const ENTRY_BYTES: usize = 24;
/// Entries of one bucket, about: they lie side by side, in a few cache lines.
const BUCKET_ENTRIES: u64 = 16;

/// Where the row of a key stands, and its image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// Of the comparable key.
    pub(super) hash: u64,
    /// Which of the run's data files.
    pub(super) file: u32,
    /// The physical row number.
    pub(super) row: u32,
    /// Where its image starts.
    image: u64,
}

/// What a run must agree with to be of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Hash of the table's id, its columns and the key columns.
    pub(super) table: u64,
    /// Seeds the hashes of keys.
    pub(super) seed: u64,
}

/// An opened file.
#[derive(Debug)]
pub(super) struct Run {
    path: PathBuf,
    map: Mmap,
    stamp: Stamp,
    entries: usize,
    count: usize,
    buckets: usize,
    bucket_bits: u32,
    files: Vec<String>,
}

impl Run {
    /// Opens a run; reads its header and its names only. `None` where it is not one of ours.
    pub(super) fn open(path: &Path) -> Result<Option<Run>> {
        let wrong = |error: std::io::Error| unusable(path, &error.to_string());
        let file = File::open(path).map_err(wrong)?;
        // SAFETY: the file is never changed in place, and only the holder of the checkpoint's lock removes it.
        let map = unsafe { Mmap::map(&file) }.map_err(wrong)?;
        if map.len() < HEADER_BYTES || &map[..8] != MAGIC {
            return Ok(None);
        }
        let number = |place: usize| u64_at(&map, 8 + 8 * place);
        let size = |place: usize| usize::try_from(number(place)).unwrap_or(usize::MAX);
        let (entries, count, buckets, names) = (size(2), size(3), size(4), size(5));
        let bucket_bits = u32::try_from(number(6)).unwrap_or(64);
        let whole = count
            .checked_mul(ENTRY_BYTES)
            .and_then(|bytes| entries.checked_add(bytes))
            == Some(buckets)
            && bucket_bits < 32
            && buckets.checked_add(((1 << bucket_bits) + 1) * 4) == Some(names)
            && size(7) == map.len();
        let Some(files) = whole.then(|| names_at(&map, names)).flatten() else {
            return Ok(None);
        };
        let stamp = Stamp {
            table: number(0),
            seed: number(1),
        };
        Ok(Some(Run {
            path: path.to_path_buf(),
            stamp,
            entries,
            count,
            buckets,
            bucket_bits,
            files,
            map,
        }))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Entries, several of one key counted each.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// The data files that it holds rows of, or held.
    pub(super) fn files(&self) -> &[String] {
        &self.files
    }

    /// Whether rows of this data file are in it.
    pub(super) fn has_file(&self, name: &str) -> bool {
        self.files.iter().any(|file| file == name)
    }

    /// The data file of an entry.
    pub(super) fn file(&self, entry: &Entry) -> Option<&str> {
        self.files.get(entry.file as usize).map(String::as_str)
    }

    /// The entries of one hash: one, but for a collision.
    pub(super) fn find(&self, hash: u64) -> impl Iterator<Item = Entry> + '_ {
        let bucket = bucket_of(hash, self.bucket_bits);
        let (from, to) = (self.bucket(bucket), self.bucket(bucket + 1));
        (from..to.min(self.count))
            .map(|place| self.entry(place))
            .filter(move |entry| entry.hash == hash)
    }

    /// The image of an entry's row; `None` where the file does not hold it.
    pub(super) fn image(&self, entry: &Entry) -> Option<&[u8]> {
        let start = usize::try_from(entry.image).ok()?;
        let length = self.map.get(start..start.checked_add(4)?)?;
        let length = u32::from_le_bytes(length.try_into().ok()?) as usize;
        self.map
            .get(start + 4..start.checked_add(4)?.checked_add(length)?)
    }

    /// All entries in the order of their hashes.
    pub(super) fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        (0..self.count).map(|place| self.entry(place))
    }

    fn entry(&self, place: usize) -> Entry {
        let start = self.entries + place * ENTRY_BYTES;
        let places = u64_at(&self.map, start + 8);
        Entry {
            hash: u64_at(&self.map, start),
            file: (places >> 32) as u32,
            row: places as u32,
            image: u64_at(&self.map, start + 16),
        }
    }

    fn bucket(&self, bucket: usize) -> usize {
        let start = self.buckets + bucket * 4;
        self.map
            .get(start..start + 4)
            .and_then(|bytes| bytes.try_into().ok())
            .map_or(0, u32::from_le_bytes) as usize
    }
}

/// Writes one run.
pub(super) struct RunWriter {
    target: PathBuf,
    temporary: PathBuf,
    out: BufWriter<File>,
    written: u64,
    entries: Vec<Entry>,
    files: Vec<String>,
}

impl RunWriter {
    /// Starts a run that will stand at `target`.
    pub(super) fn create(target: &Path) -> Result<RunWriter> {
        let temporary = target.with_extension("tmp");
        let wrong = |error: std::io::Error| unusable(&temporary, &error.to_string());
        let file = File::create(&temporary).map_err(wrong)?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        out.write_all(&[0; HEADER_BYTES]).map_err(wrong)?;
        Ok(RunWriter {
            target: target.to_path_buf(),
            out,
            written: HEADER_BYTES as u64,
            entries: Vec::new(),
            files: Vec::new(),
            temporary,
        })
    }

    /// The number of a data file in this run.
    pub(super) fn file(&mut self, name: &str) -> u32 {
        let known = self.files.iter().rposition(|known| known == name);
        let place = known.unwrap_or_else(|| {
            self.files.push(name.to_string());
            self.files.len() - 1
        });
        u32::try_from(place).unwrap_or(u32::MAX)
    }

    /// Adds one row.
    pub(super) fn add(&mut self, hash: u64, file: u32, row: u32, image: &[u8]) -> Result<()> {
        let length = u32::try_from(image.len())
            .map_err(|_| unusable(&self.temporary, "a row is over 4 GiB"))?;
        let entry = Entry {
            hash,
            file,
            row,
            image: self.written,
        };
        let written = self
            .out
            .write_all(&length.to_le_bytes())
            .and_then(|()| self.out.write_all(image));
        written.map_err(|error| unusable(&self.temporary, &error.to_string()))?;
        self.written += 4 + u64::from(length);
        self.entries.push(entry);
        Ok(())
    }

    /// Sorts, writes, syncs and renames.
    pub(super) fn finish(mut self, stamp: Stamp) -> Result<Run> {
        self.entries.sort_unstable_by_key(|entry| entry.hash);
        let bits = bucket_bits(self.entries.len() as u64);
        let entries = self.written;
        let buckets = entries + (self.entries.len() * ENTRY_BYTES) as u64;
        let names = buckets + ((1_u64 << bits) + 1) * 4;
        let written = self.write_tables(bits).and_then(|names_bytes| {
            let end = names + names_bytes;
            let numbers = [
                stamp.table,
                stamp.seed,
                entries,
                self.entries.len() as u64,
                buckets,
                names,
                u64::from(bits),
                end,
            ];
            let file = self.out.get_mut();
            file.seek(SeekFrom::Start(0))?;
            file.write_all(MAGIC)?;
            numbers
                .iter()
                .try_for_each(|number| file.write_all(&number.to_le_bytes()))?;
            file.sync_all()?;
            std::fs::rename(&self.temporary, &self.target)?;
            match self.target.parent() {
                Some(folder) => File::open(folder)?.sync_all(),
                None => Ok(()),
            }
        });
        written.map_err(|error| unusable(&self.temporary, &error.to_string()))?;
        Run::open(&self.target)?.ok_or_else(|| unusable(&self.target, "it does not read back"))
    }

    /// Entries, buckets and names; returns the bytes of the names.
    fn write_tables(&mut self, bits: u32) -> std::io::Result<u64> {
        for entry in &self.entries {
            self.out.write_all(&entry.hash.to_le_bytes())?;
            self.out
                .write_all(&(u64::from(entry.file) << 32 | u64::from(entry.row)).to_le_bytes())?;
            self.out.write_all(&entry.image.to_le_bytes())?;
        }
        let mut next = 0;
        for bucket in 0..=1_usize << bits {
            while next < self.entries.len() && bucket_of(self.entries[next].hash, bits) < bucket {
                next += 1;
            }
            self.out.write_all(&(next as u32).to_le_bytes())?;
        }
        let names = serde_json::to_vec(&self.files).map_err(std::io::Error::other)?;
        self.out.write_all(&names)?;
        self.out.flush()?;
        Ok(names.len() as u64)
    }
}

impl Drop for RunWriter {
    fn drop(&mut self) {
        // After `finish` it stands under its own name and there is nothing to remove.
        let _ = std::fs::remove_file(&self.temporary);
    }
}

fn bucket_bits(count: u64) -> u32 {
    (count / BUCKET_ENTRIES)
        .checked_ilog2()
        .unwrap_or(0)
        .min(28)
}

fn bucket_of(hash: u64, bits: u32) -> usize {
    if bits == 0 {
        0
    } else {
        (hash >> (64 - bits)) as usize
    }
}

fn u64_at(bytes: &[u8], start: usize) -> u64 {
    bytes
        .get(start..start + 8)
        .and_then(|bytes| bytes.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}

fn names_at(bytes: &[u8], start: usize) -> Option<Vec<String>> {
    serde_json::from_slice(bytes.get(start..)?).ok()
}

fn unusable(path: &Path, why: &str) -> Error {
    Error::unavailable(format!("key index {}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { table: 1, seed: 2 };

    fn written(path: &Path, rows: &[(u64, u32, &[u8])]) -> Run {
        let mut writer = RunWriter::create(path).unwrap();
        for (hash, row, image) in rows {
            let file = writer.file("part-1.parquet");
            writer.add(*hash, file, *row, image).unwrap();
        }
        writer.finish(STAMP).unwrap()
    }

    #[test]
    fn cut_or_foreign_file_is_no_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.keys");
        written(&path, &[(7, 0, b"x")]);
        let bytes = std::fs::read(&path).unwrap();
        for length in [9, HEADER_BYTES, bytes.len() - 1] {
            std::fs::write(&path, &bytes[..length]).unwrap();
            assert!(Run::open(&path).unwrap().is_none(), "{length} bytes");
        }
        std::fs::write(&path, vec![1; 4096]).unwrap();
        assert!(Run::open(&path).unwrap().is_none());
    }

    #[test]
    fn absent_hash_is_not_found_in_runs_of_any_size() {
        let folder = tempfile::tempdir().unwrap();
        for count in [0_u64, 1, 15, 16, 100, 5_000] {
            let spread = |number: u64| number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let rows: Vec<(u64, u32, &[u8])> = (0..count)
                .map(|number| (spread(number), number as u32, b"img".as_slice()))
                .collect();
            let run = written(&folder.path().join(format!("{count}.keys")), &rows);
            for number in 0..count {
                let found: Vec<Entry> = run.find(spread(number)).collect();
                assert_eq!(found.len(), 1);
                assert_eq!(
                    (found[0].row, run.file(&found[0])),
                    (number as u32, Some("part-1.parquet"))
                );
                assert_eq!(run.image(&found[0]), Some(b"img".as_slice()));
            }
            assert_eq!(run.find(spread(count)).count(), 0);
            assert_eq!(
                (run.find(0).count(), run.find(u64::MAX).count()),
                (usize::from(count > 0), 0)
            );
        }
    }

    #[test]
    fn equal_hashes_are_all_found() {
        let folder = tempfile::tempdir().unwrap();
        let run = written(
            &folder.path().join("a.keys"),
            &[(5, 1, b"a"), (5, 2, b"b"), (6, 3, b"c")],
        );
        assert_eq!(run.find(5).count(), 2);
    }
}
