//! The frame of an Avro file: its header, then blocks of records with a mark behind each.
//!
//! Every block is whole, its mark is that of the file, and nothing follows the last.

use super::datum::long;
use crate::change::{FileFault, ParkReason};
use crate::decode::unpack::{
    UnpackLimit, inflate, read_bzip2_stream, read_xz_stream, read_zstd_frame,
};
use std::io::{Error, ErrorKind, Result};

/// The first bytes of an Avro file.
pub(in crate::decode) const MAGIC: &[u8] = b"Obj\x01";

const MARK_BYTES: usize = 16;

/// How the blocks are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Codec {
    Null,
    Deflate,
    Snappy,
    Zstandard,
    Bzip2,
    Xz,
}

/// The blocks of a file, one after the other.
pub(super) struct Blocks<'a> {
    bytes: &'a [u8],
    at: usize,
    codec: Codec,
    mark: &'a [u8],
    limit: UnpackLimit,
    /// Unpacked bytes that may still come.
    room: u64,
}

/// One block, unpacked.
pub(super) struct Block {
    /// Its first byte in the file.
    pub(super) start: usize,
    pub(super) records: u64,
    pub(super) data: Vec<u8>,
}

/// Reads the header: the JSON of the schema, and the blocks behind it.
pub(super) fn open(bytes: &[u8]) -> std::result::Result<(&[u8], Blocks<'_>), FileFault> {
    if !bytes.starts_with(MAGIC) {
        return Err(match MAGIC.starts_with(bytes) {
            true => cut(0),
            false => not_avro("the file does not begin with Obj and 1; it is no Avro file"),
        });
    }
    let limit = UnpackLimit::of_file(bytes.len() as u64);
    let mut blocks = Blocks {
        bytes,
        at: MAGIC.len(),
        codec: Codec::Null,
        mark: &[],
        limit,
        room: limit.bytes_max,
    };
    let mut schema = None;
    loop {
        let count = blocks.number()?;
        if count == 0 {
            break;
        }
        if count < 0 {
            blocks.number()?;
        }
        for _ in 0..count.unsigned_abs() {
            let (key, value) = (blocks.prefixed()?, blocks.prefixed()?);
            match key {
                b"avro.schema" => schema = Some(value),
                b"avro.codec" => blocks.codec = codec(value)?,
                _ => {}
            }
        }
    }
    blocks.mark = blocks.take(MARK_BYTES)?;
    let schema = schema.ok_or_else(|| not_avro("the header of the Avro file has no schema"))?;
    Ok((schema, blocks))
}

fn codec(name: &[u8]) -> std::result::Result<Codec, FileFault> {
    Ok(match name {
        b"null" | b"" => Codec::Null,
        b"deflate" => Codec::Deflate,
        b"snappy" => Codec::Snappy,
        b"zstandard" => Codec::Zstandard,
        b"bzip2" => Codec::Bzip2,
        b"xz" => Codec::Xz,
        _ => {
            let name = String::from_utf8_lossy(name);
            let detail = format!(
                "the codec of the Avro file is {name:?}, which is none of null, deflate, snappy, zstandard, bzip2, xz"
            );
            return Err(FileFault::new(ParkReason::Unreadable, detail));
        }
    })
}

impl Blocks<'_> {
    /// The next block; `None` at the end of the file.
    pub(super) fn next(&mut self) -> std::result::Result<Option<Block>, FileFault> {
        let start = self.at;
        if start == self.bytes.len() {
            return Ok(None);
        }
        let damaged = |why: &str| {
            let detail = format!("the block at byte {start} of the Avro file is damaged: {why}");
            FileFault::new(ParkReason::TruncatedStream, detail)
        };
        let records =
            u64::try_from(self.number()?).map_err(|_| damaged("its count is negative"))?;
        let packed = self.prefixed()?;
        let mark = self.take(MARK_BYTES)?;
        if mark != self.mark {
            return Err(damaged("the mark behind it is not that of the file"));
        }
        let data = unpack(self.codec, packed, self.room + 1);
        let data = data.map_err(|error| damaged(&error.to_string()))?;
        let room = self.room.checked_sub(data.len() as u64);
        self.room = room.ok_or_else(|| self.limit.fault())?;
        Ok(Some(Block {
            start,
            records,
            data,
        }))
    }
}

/// Where the last whole block ends of those that the first `records_max` records are in; 0 where not even one is whole.
pub(in crate::decode) fn end_of_blocks(
    bytes: &[u8],
    records_max: usize,
) -> std::result::Result<usize, FileFault> {
    let (_, mut blocks) = open(bytes)?;
    let (mut records, mut end) = (0, 0);
    while records < records_max && blocks.at < bytes.len() {
        let (Ok(count), Ok(_), Ok(_)) =
            (blocks.number(), blocks.prefixed(), blocks.take(MARK_BYTES))
        else {
            break;
        };
        records = records.saturating_add(usize::try_from(count).unwrap_or(0));
        end = blocks.at;
    }
    Ok(end)
}

impl<'a> Blocks<'a> {
    fn number(&mut self) -> std::result::Result<i64, FileFault> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let (number, length) = long(rest).ok_or_else(|| cut(self.at))?;
        self.at += length;
        Ok(number)
    }

    fn prefixed(&mut self) -> std::result::Result<&'a [u8], FileFault> {
        let length = self.number()?;
        let length = usize::try_from(length).map_err(|_| cut(self.at))?;
        self.take(length)
    }

    fn take(&mut self, length: usize) -> std::result::Result<&'a [u8], FileFault> {
        let end = self.at.checked_add(length);
        let bytes = end.and_then(|end| self.bytes.get(self.at..end));
        let bytes = bytes.ok_or_else(|| cut(self.at))?;
        self.at += length;
        Ok(bytes)
    }
}

/// Unpacks a block, but no more than `limit` bytes of it.
fn unpack(codec: Codec, packed: &[u8], limit: u64) -> Result<Vec<u8>> {
    let mut data = Vec::new();
    let (result, behind) = match codec {
        Codec::Null => return Ok(packed.to_vec()),
        Codec::Snappy => return unpack_snappy(packed, limit),
        Codec::Deflate => inflate(packed, &mut data, limit, false),
        Codec::Zstandard => read_zstd_frame(packed, &mut data, limit),
        Codec::Bzip2 => read_bzip2_stream(packed, &mut data, limit),
        Codec::Xz => read_xz_stream(packed, &mut data, limit),
    };
    result?;
    // Some writers leave a part of zlib's sum behind their bare stream.
    let tolerated = if codec == Codec::Deflate { 4 } else { 0 };
    if behind.len() > tolerated && (data.len() as u64) < limit {
        return Err(invalid("there are bytes behind its end"));
    }
    Ok(data)
}

/// One bare block of Snappy, and a sum of the text behind it.
fn unpack_snappy(packed: &[u8], limit: u64) -> Result<Vec<u8>> {
    let (packed, sum) = packed
        .split_last_chunk::<4>()
        .ok_or_else(|| invalid("it is too short"))?;
    if snap::raw::decompress_len(packed)? as u64 > limit {
        return Err(invalid("it is larger than a file may be"));
    }
    let data = snap::raw::Decoder::new().decompress_vec(packed)?;
    let mut found = flate2::Crc::new();
    found.update(&data);
    match found.sum() == u32::from_be_bytes(*sum) {
        true => Ok(data),
        false => Err(invalid("its sum is another")),
    }
}

fn invalid(why: &'static str) -> Error {
    Error::new(ErrorKind::InvalidData, why)
}

fn not_avro(detail: &str) -> FileFault {
    FileFault::new(ParkReason::NotThisFormat, detail)
}

fn cut(at: usize) -> FileFault {
    let detail = format!("the Avro file is cut off or damaged at byte {at}");
    FileFault::new(ParkReason::TruncatedStream, detail)
}
