//! Reads and writes deletion vectors: the physical row numbers of a data file that are gone.
//!
//! A vector is believed only if size, checksum and number of rows are as the log says. Which rows go is left to the callers.

use crate::error::{Error, Result};
use delta_kernel::actions::deletion_vector_writer::{
    KernelDeletionVector, StreamingDeletionVectorWriter,
};
use deltalake::kernel::{DeletionVectorDescriptor, StorageType};
use roaring::RoaringTreemap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// The first bytes of a bitmap in the portable format.
const MAGIC: u32 = 1_681_511_377;
/// The length of a UUID in base 85.
const UUID_TEXT: usize = 20;

/// The file that holds a vector; `None` if the log itself holds it.
pub(super) fn file_of(vector: &DeletionVectorDescriptor) -> Result<Option<PathBuf>> {
    let text = &vector.path_or_inline_dv;
    match vector.storage_type {
        StorageType::Inline => Ok(None),
        StorageType::AbsolutePath => Err(damaged(
            text,
            "it is at an absolute path, which is not supported",
        )),
        StorageType::UuidRelativePath => {
            let split = text
                .len()
                .checked_sub(UUID_TEXT)
                .filter(|at| text.is_char_boundary(*at))
                .ok_or_else(|| damaged(text, "its name is too short"))?;
            let (prefix, name) = text.split_at(split);
            let bytes = z85::decode(name).map_err(|_| damaged(text, "its name is not base 85"))?;
            let id = Uuid::from_slice(&bytes).map_err(|_| damaged(text, "its name is no UUID"))?;
            Ok(Some(
                Path::new(prefix).join(format!("deletion_vector_{id}.bin")),
            ))
        }
    }
}

/// Reads the vector that the log names for a file of the table at `root`.
pub(super) fn read(root: &Path, vector: &DeletionVectorDescriptor) -> Result<RoaringTreemap> {
    let (name, bitmap) = match file_of(vector)? {
        None => (String::from("in the log"), read_inline(vector)?),
        Some(file) => (
            file.display().to_string(),
            read_stored(&root.join(&file), vector)?,
        ),
    };
    let magic = bitmap
        .first_chunk::<4>()
        .map(|bytes| u32::from_le_bytes(*bytes));
    if magic != Some(MAGIC) {
        return Err(damaged(&name, "it does not start like one"));
    }
    let rows = RoaringTreemap::deserialize_from(&bitmap[4..])
        .map_err(|error| damaged(&name, &error.to_string()))?;
    if i64::try_from(rows.len()) != Ok(vector.cardinality) {
        let found = rows.len();
        return Err(damaged(
            &name,
            &format!("it names {found} rows, the log {}", vector.cardinality),
        ));
    }
    Ok(rows)
}

fn read_inline(vector: &DeletionVectorDescriptor) -> Result<Vec<u8>> {
    z85::decode(&vector.path_or_inline_dv).map_err(|_| damaged("in the log", "it is not base 85"))
}

/// Reads exactly the part of the file that holds this vector: size, bitmap with its magic, checksum.
fn read_stored(path: &Path, vector: &DeletionVectorDescriptor) -> Result<Vec<u8>> {
    let name = path.display().to_string();
    let offset =
        u64::try_from(vector.offset.unwrap_or(1)).map_err(|_| damaged(&name, "offset below 0"))?;
    let size = usize::try_from(vector.size_in_bytes).map_err(|_| damaged(&name, "size below 0"))?;
    let mut file = File::open(path)
        .map_err(|error| Error::unavailable(format!("deletion vector {name}: {error}")))?;
    let length = file
        .metadata()
        .map(|metadata| metadata.len())
        .unwrap_or_default();
    if length < offset.saturating_add(size as u64 + 8) {
        return Err(damaged(&name, "it is too short"));
    }
    let mut part = vec![0; size + 8];
    file.seek(SeekFrom::Start(offset))
        .and_then(|_| file.read_exact(&mut part))
        .map_err(|error| damaged(&name, &error.to_string()))?;
    let (stored_size, rest) = part.split_at(4);
    let (bitmap, checksum) = rest.split_at(size);
    if stored_size != u32::try_from(size).unwrap_or(u32::MAX).to_be_bytes() {
        return Err(damaged(&name, "its size differs from the log"));
    }
    let mut crc = flate2::Crc::new();
    crc.update(bitmap);
    if checksum != crc.sum().to_be_bytes() {
        return Err(damaged(&name, "its checksum is wrong"));
    }
    Ok(bitmap.to_vec())
}

fn damaged(name: &str, why: &str) -> Error {
    Error::disagreement(format!("deletion vector {name} cannot be used: {why}"))
}

/// Vectors in one file that is still to be written.
pub(super) struct VectorFile {
    /// Its name below the table.
    pub(super) name: String,
    /// Its bytes.
    pub(super) bytes: Vec<u8>,
    /// One for each vector, in order.
    pub(super) vectors: Vec<DeletionVectorDescriptor>,
}

/// Lays out the vectors of one commit in one file.
pub(super) fn encode(rows: &[RoaringTreemap]) -> Result<VectorFile> {
    let id = Uuid::new_v4();
    let text = z85::encode(id.as_bytes());
    let mut bytes = Vec::new();
    let mut writer = StreamingDeletionVectorWriter::new(&mut bytes);
    let mut vectors = Vec::with_capacity(rows.len());
    for rows in rows {
        let mut vector = KernelDeletionVector::new();
        vector.add_deleted_row_indexes(rows.iter());
        let written = writer
            .write_deletion_vector(vector)
            .map_err(|error| Error::bug(format!("deletion vector: {error}")))?;
        vectors.push(DeletionVectorDescriptor {
            storage_type: StorageType::UuidRelativePath,
            path_or_inline_dv: text.clone(),
            offset: Some(written.offset),
            size_in_bytes: written.size_in_bytes,
            cardinality: written.cardinality,
        });
    }
    writer
        .finalize()
        .map_err(|error| Error::bug(format!("deletion vector: {error}")))?;
    Ok(VectorFile {
        name: format!("deletion_vector_{id}.bin"),
        bytes,
        vectors,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(rows: &[RoaringTreemap]) -> (tempfile::TempDir, VectorFile) {
        let folder = tempfile::tempdir().unwrap();
        let file = encode(rows).unwrap();
        std::fs::write(folder.path().join(&file.name), &file.bytes).unwrap();
        (folder, file)
    }

    #[test]
    fn flipped_bit_is_found() {
        let rows: RoaringTreemap = [1, 5, 1_000_000].into_iter().collect();
        let (folder, mut file) = stored(&[rows]);
        let middle = file.bytes.len() / 2;
        file.bytes[middle] ^= 1;
        std::fs::write(folder.path().join(&file.name), &file.bytes).unwrap();
        let error = read(folder.path(), &file.vectors[0]).unwrap_err();
        assert!(error.message().contains("checksum"), "{error}");
    }

    #[test]
    fn truncated_missing_and_miscounted_vectors_are_errors() {
        let (folder, file) = stored(&[[7].into_iter().collect()]);
        let mut miscounted = file.vectors[0].clone();
        miscounted.cardinality = 2;
        assert!(read(folder.path(), &miscounted).is_err());
        std::fs::write(folder.path().join(&file.name), &file.bytes[..9]).unwrap();
        assert!(read(folder.path(), &file.vectors[0]).is_err());
        std::fs::remove_file(folder.path().join(&file.name)).unwrap();
        assert!(read(folder.path(), &file.vectors[0]).is_err());
    }

    #[test]
    fn odd_descriptors_are_errors() {
        let descriptor = |storage_type, text: &str| DeletionVectorDescriptor {
            storage_type,
            path_or_inline_dv: text.into(),
            offset: None,
            size_in_bytes: 1,
            cardinality: 1,
        };
        let root = Path::new(".");
        for text in [
            "",
            "x",
            "ab",
            "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}",
        ] {
            assert!(
                read(root, &descriptor(StorageType::Inline, text)).is_err(),
                "{text:?}"
            );
            assert!(
                read(root, &descriptor(StorageType::UuidRelativePath, text)).is_err(),
                "{text:?}"
            );
        }
        assert!(read(root, &descriptor(StorageType::AbsolutePath, "/x")).is_err());
    }

    #[test]
    fn two_vectors_of_one_file_read_back() {
        let first: RoaringTreemap = (0..10_000).step_by(3).collect();
        let second: RoaringTreemap = [0, u64::from(u32::MAX) + 9].into_iter().collect();
        let (folder, file) = stored(&[first.clone(), second.clone()]);
        assert_eq!(read(folder.path(), &file.vectors[0]).unwrap(), first);
        assert_eq!(read(folder.path(), &file.vectors[1]).unwrap(), second);
    }
}
