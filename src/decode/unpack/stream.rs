//! Unpacks a file while it is read, so that neither its packed nor its unpacked bytes are in memory.
//!
//! What comes out, and what is wrong with a stream, is the same as for a file in memory (the module above); a fault may come behind
//! bytes that were handed out, so these count only when the end was reached.

use super::{UnpackLimit, damaged};
use crate::change::FileFault;
use crate::decode::packing::Packing;
use flate2::bufread::GzDecoder;
use std::error::Error as StdError;
use std::fmt;
use std::io::{BufRead, BufReader, Error, Read, Result};

/// Packed bytes that are read at once.
const BUFFER_BYTES: usize = 256 << 10;

/// A fault of the packed bytes on its way through a reader's error.
#[derive(Debug)]
struct Damage(FileFault);

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.detail)
    }
}

impl StdError for Damage {}

/// The fault of the file that an error of [`Unpacked`] or of blocks stands for; `None` where its bytes could not be read.
pub fn fault_of(error: &Error) -> Option<FileFault> {
    let damage = error.get_ref()?.downcast_ref::<Damage>()?;
    Some(damage.0.clone())
}

/// A fault of the file as the error of a reader.
pub(in crate::decode) fn damage(fault: FileFault) -> Error {
    Error::other(Damage(fault))
}

/// The unpacked bytes of a file, which are its own where it is not packed.
pub struct Unpacked<R: Read> {
    packing: Option<Packing>,
    /// `None` for a moment only.
    member: Option<Member<Counted<R>>>,
    /// Where the present member begins.
    member_at: usize,
    unpacked: u64,
    limit: UnpackLimit,
}

/// What is read from at the moment.
enum Member<R: BufRead> {
    Bare(R),
    /// Between two members, or before the first.
    Between(R),
    Gzip(Box<GzDecoder<R>>),
    Zstd(Box<zstd::stream::read::Decoder<'static, R>>),
    Bzip2(Box<bzip2::bufread::BzDecoder<R>>),
}

/// Counts what was taken, and remembers that the bytes themselves could not be read.
struct Counted<R> {
    inner: BufReader<R>,
    taken: usize,
    has_failed: bool,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        // Much is read straight into the buffer of the caller.
        let read = self.inner.read(buffer);
        self.has_failed |= read.is_err();
        self.taken += *read.as_ref().unwrap_or(&0);
        read
    }
}

impl<R: Read> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> Result<&[u8]> {
        let filled = self.inner.fill_buf();
        self.has_failed |= filled.is_err();
        filled
    }

    fn consume(&mut self, count: usize) {
        self.inner.consume(count);
        self.taken += count;
    }
}

impl<R: Read> Unpacked<R> {
    /// Looks at the first bytes of a file of `size` bytes; `None` where it is packed in a way that only the whole file shows.
    pub fn open(path: &str, size: u64, input: R) -> Result<Option<Self>> {
        let mut input = Counted {
            inner: BufReader::with_capacity(BUFFER_BYTES, input),
            taken: 0,
            has_failed: false,
        };
        let packing = Packing::of(path, input.fill_buf()?);
        let member = match (packing, Packing::of_name(path)) {
            (None, None) => Member::Bare(input),
            (Some(Packing::Gzip | Packing::Zstd | Packing::Bzip2), _) => Member::Between(input),
            (Some(_), _) | (None, Some(_)) => return Ok(None),
        };
        Ok(Some(Unpacked {
            packing,
            member: Some(member),
            member_at: 0,
            unpacked: 0,
            limit: UnpackLimit::of_file(size),
        }))
    }

    fn begin(&mut self, input: Counted<R>) -> Result<Member<Counted<R>>> {
        self.member_at = input.taken;
        Ok(match self.packing {
            Some(Packing::Zstd) => {
                let decoder = zstd::stream::read::Decoder::with_buffer(input)?;
                Member::Zstd(Box::new(decoder.single_frame()))
            }
            Some(Packing::Bzip2) => Member::Bzip2(Box::new(bzip2::bufread::BzDecoder::new(input))),
            _ => Member::Gzip(Box::new(GzDecoder::new(input))),
        })
    }

    fn fault(&self, error: Error) -> Error {
        let input = match &self.member {
            Some(Member::Bare(input) | Member::Between(input)) => Some(input),
            Some(Member::Gzip(decoder)) => Some(decoder.get_ref()),
            Some(Member::Zstd(decoder)) => Some(decoder.get_ref()),
            Some(Member::Bzip2(decoder)) => Some(decoder.get_ref()),
            None => None,
        };
        match (input, self.packing) {
            (Some(input), Some(packing)) if !input.has_failed => {
                let word = packing.word();
                let fault = damaged(word, self.member_at, input.taken, &error);
                damage(fault)
            }
            _ => error,
        }
    }

    /// One read of the present member; 0 where the file ends.
    fn step(&mut self, buffer: &mut [u8]) -> Result<usize> {
        loop {
            let count = match self.member.as_mut() {
                None => return Ok(0),
                Some(Member::Bare(input)) => return input.read(buffer),
                Some(Member::Between(_)) => 0,
                Some(Member::Gzip(decoder)) => decoder.read(buffer)?,
                Some(Member::Zstd(decoder)) => decoder.read(buffer)?,
                Some(Member::Bzip2(decoder)) => decoder.read(buffer)?,
            };
            if count > 0 {
                return Ok(count);
            }
            let is_first = matches!(self.member, Some(Member::Between(_)));
            let mut input = match self.member.take() {
                None => return Ok(0),
                Some(Member::Bare(input) | Member::Between(input)) => input,
                Some(Member::Gzip(decoder)) => decoder.into_inner(),
                Some(Member::Zstd(decoder)) => decoder.finish(),
                Some(Member::Bzip2(decoder)) => decoder.into_inner(),
            };
            if !is_first && input.fill_buf()?.is_empty() {
                return Ok(0);
            }
            self.member = Some(self.begin(input)?);
        }
    }
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let count = self.step(buffer).map_err(|error| self.fault(error))?;
        self.unpacked += count as u64;
        if self.unpacked > self.limit.bytes_max {
            return Err(damage(self.limit.fault()));
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::super::unpack;
    use super::*;
    use bytes::Bytes;
    use std::io::Write;

    fn packed(ending: &str, text: &[u8]) -> Vec<u8> {
        match ending {
            "gz" => {
                let mut encoder =
                    flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            "zst" => zstd::encode_all(text, 1).unwrap(),
            "bz2" => {
                let mut encoder =
                    bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            _ => text.to_vec(),
        }
    }

    fn streamed(
        path: &str,
        bytes: &[u8],
        limit: UnpackLimit,
    ) -> std::result::Result<Vec<u8>, FileFault> {
        let mut out = Vec::new();
        let unpacked = Unpacked::open(path, bytes.len() as u64, bytes);
        let mut unpacked = unpacked.unwrap().unwrap();
        unpacked.limit = limit;
        match unpacked.read_to_end(&mut out) {
            Ok(_) => Ok(out),
            Err(error) => Err(fault_of(&error).unwrap()),
        }
    }

    #[test]
    fn streams_come_out_and_fail_as_files_in_memory_do() {
        let text: Vec<u8> = (0..200_000u32).flat_map(u32::to_le_bytes).collect();
        for ending in ["gz", "zst", "bz2", "txt"] {
            let path = format!("a.jsonl.{ending}");
            let one = packed(ending, &text[..1000]);
            let two = [packed(ending, &text), packed(ending, b""), one.clone()].concat();
            let mut files = vec![one.clone(), two.clone(), packed(ending, b"")];
            if ending != "txt" {
                files.extend((5..one.len()).step_by(7).map(|end| one[..end].to_vec()));
                files.push(two[..two.len() - 3].to_vec());
                files.push([&one[..], b"garbage"].concat());
                let mut damaged = two;
                let middle = damaged.len() / 2;
                damaged[middle] ^= 0x55;
                files.push(damaged);
            }
            for file in files {
                let limit = UnpackLimit::of_file(file.len() as u64);
                let whole = unpack(&path, Bytes::from(file.clone()), limit);
                let reason = |fault: FileFault| fault.reason;
                assert_eq!(
                    streamed(&path, &file, limit).map_err(reason),
                    whole.map(|bytes| bytes.to_vec()).map_err(reason),
                    "{path}, {} bytes",
                    file.len()
                );
            }
        }
    }

    #[test]
    fn what_unpacks_to_far_more_than_its_bytes_is_refused_as_in_memory() {
        const FREE: u64 = 1 << 20;
        for ending in ["gz", "zst", "bz2", "txt"] {
            for zeros in [FREE, FREE + 1, 8 * FREE] {
                let path = format!("a.jsonl.{ending}");
                let file = packed(ending, &vec![0; zeros as usize]);
                let limit = UnpackLimit::of_ratio(file.len() as u64, FREE);
                let whole = unpack(&path, Bytes::from(file.clone()), limit);
                let is_refused = zeros > FREE && ["zst", "bz2"].contains(&ending);
                assert_eq!(whole.is_err(), is_refused, "{path} of {zeros}");
                let whole = whole.map(|bytes| bytes.to_vec());
                assert!(streamed(&path, &file, limit) == whole, "{path} of {zeros}");
            }
        }
    }

    #[test]
    fn bytes_that_cannot_be_read_are_no_fault_of_the_file() {
        struct Failing;
        impl Read for Failing {
            fn read(&mut self, _: &mut [u8]) -> Result<usize> {
                Err(Error::other("the disk is gone"))
            }
        }
        let start = packed("gz", b"{}\n");
        let input = (&start[..10]).chain(Failing);
        let unpacked = Unpacked::open("a.jsonl.gz", 10, input);
        let mut unpacked = unpacked.unwrap().unwrap();
        let error = unpacked.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(fault_of(&error), None);
    }
}
