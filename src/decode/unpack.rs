//! Unpacks gzip and zstd to the last member, or not at all.
//!
//! A stream that ends early, is damaged or has something behind its end is a fault with the offset; a shorter file
//! never comes out.

use crate::change::{FileFault, ParkReason};
use bytes::Bytes;
use std::io::{self, Read};

/// An unpacked file may have so many bytes.
pub(super) const UNPACKED_BYTES_MAX: u64 = 8 << 30;

/// How a file is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    None,
    Gzip,
    Zstd,
}

const GZIP_MAGIC: &[u8] = &[0x1F, 0x8B];
const ZSTD_MAGIC: &[u8] = &[0x28, 0xB5, 0x2F, 0xFD];

impl Packing {
    /// How the bytes are packed, by their magic number.
    pub(super) fn of_bytes(bytes: &[u8]) -> Packing {
        // A zstd stream may begin with a frame to be skipped.
        let is_skippable = bytes
            .get(..4)
            .is_some_and(|m| m[0] & 0xF0 == 0x50 && m[1..] == [0x2A, 0x4D, 0x18]);
        if bytes.starts_with(GZIP_MAGIC) {
            Packing::Gzip
        } else if bytes.starts_with(ZSTD_MAGIC) || is_skippable {
            Packing::Zstd
        } else {
            Packing::None
        }
    }

    fn of_name(path: &str) -> Packing {
        match split_packing(path).1 {
            Some(extension)
                if extension.eq_ignore_ascii_case("zst")
                    || extension.eq_ignore_ascii_case("zstd") =>
            {
                Packing::Zstd
            }
            Some(_) => Packing::Gzip,
            None => Packing::None,
        }
    }

    /// As it is called in messages.
    pub(super) fn word(self) -> &'static str {
        match self {
            Packing::None => "unpacked",
            Packing::Gzip => "gzip",
            Packing::Zstd => "zstd",
        }
    }
}

/// A name without its packing extension, and that extension.
pub(super) fn split_packing(path: &str) -> (&str, Option<&str>) {
    match path.rsplit_once('.') {
        Some((stem, extension))
            if ["gz", "zst", "zstd"]
                .iter()
                .any(|e| extension.eq_ignore_ascii_case(e)) =>
        {
            (stem, Some(extension))
        }
        _ => (path, None),
    }
}

/// Unpacks a file by its first bytes; the name only tells what is expected.
pub(super) fn unpack(path: &str, bytes: Bytes, bytes_max: u64) -> Result<Bytes, FileFault> {
    let by_name = Packing::of_name(path);
    let packing = match Packing::of_bytes(&bytes) {
        // Nothing, or the first byte of a magic number, under a packed name is the beginning of a stream.
        Packing::None if by_name != Packing::None && bytes.len() < 2 => by_name,
        packing => packing,
    };
    match packing {
        Packing::None if by_name != Packing::None => {
            let detail = format!("the name says {}, the bytes do not", by_name.word());
            Err(FileFault::new(ParkReason::NotThisFormat, detail))
        }
        Packing::None if bytes.len() as u64 > bytes_max => Err(too_large(bytes_max)),
        Packing::None => Ok(bytes),
        Packing::Gzip => unpack_members(&bytes, packing, bytes_max, read_gzip_member),
        Packing::Zstd => unpack_members(&bytes, packing, bytes_max, read_zstd_frame),
    }
}

/// What the beginning of a file unpacks to, up to `bytes_max`. That the stream goes on or is damaged later is no fault here.
pub(super) fn unpack_front(packed: &[u8], bytes_max: u64) -> Vec<u8> {
    let mut out = Vec::new();
    // What was unpacked before an error stays in `out`.
    let _ = match Packing::of_bytes(packed) {
        Packing::None => packed.take(bytes_max).read_to_end(&mut out),
        Packing::Gzip => flate2::bufread::MultiGzDecoder::new(packed)
            .take(bytes_max)
            .read_to_end(&mut out),
        Packing::Zstd => zstd::stream::read::Decoder::with_buffer(packed)
            .and_then(|decoder| decoder.take(bytes_max).read_to_end(&mut out)),
    };
    out
}

/// Reads one member from the front of `packed` to the end of `out`; returns the result and what is left of `packed`.
type ReadMember =
    for<'a> fn(packed: &'a [u8], out: &mut Vec<u8>, limit: u64) -> (io::Result<()>, &'a [u8]);

fn unpack_members(
    packed: &[u8],
    packing: Packing,
    bytes_max: u64,
    read: ReadMember,
) -> Result<Bytes, FileFault> {
    let mut out = Vec::new();
    let mut rest = packed;
    loop {
        let room = bytes_max.saturating_sub(out.len() as u64);
        let member = packed.len() - rest.len();
        let (result, behind) = read(rest, &mut out, room + 1);
        if out.len() as u64 > bytes_max {
            return Err(too_large(bytes_max));
        }
        if let Err(error) = result {
            let offset = packed.len() - behind.len();
            return Err(damaged(packing, member, offset, &error));
        }
        if behind.is_empty() {
            return Ok(out.into());
        }
        rest = behind;
    }
}

fn read_gzip_member<'a>(
    packed: &'a [u8],
    out: &mut Vec<u8>,
    limit: u64,
) -> (io::Result<()>, &'a [u8]) {
    let mut decoder = flate2::bufread::GzDecoder::new(packed);
    let result = (&mut decoder).take(limit).read_to_end(out);
    (result.map(drop), decoder.into_inner())
}

fn read_zstd_frame<'a>(
    packed: &'a [u8],
    out: &mut Vec<u8>,
    limit: u64,
) -> (io::Result<()>, &'a [u8]) {
    match zstd::stream::read::Decoder::with_buffer(packed) {
        Err(error) => (Err(error), packed),
        Ok(decoder) => {
            let mut decoder = decoder.single_frame();
            let result = (&mut decoder).take(limit).read_to_end(out);
            (result.map(drop), decoder.finish())
        }
    }
}

fn damaged(packing: Packing, member: usize, offset: usize, error: &io::Error) -> FileFault {
    let word = packing.word();
    if error.to_string().contains("memory") {
        return FileFault::new(
            ParkReason::Unreadable,
            format!("{word} stream at byte {member}: {error}"),
        );
    }
    let detail =
        format!("{word} stream at byte {member} is cut off or damaged at byte {offset}: {error}");
    FileFault::new(ParkReason::TruncatedStream, detail)
}

fn too_large(bytes_max: u64) -> FileFault {
    FileFault::new(
        ParkReason::TooLarge,
        format!("the file has more than {bytes_max} bytes when unpacked"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn zst(text: &[u8]) -> Vec<u8> {
        zstd::encode_all(text, 1).unwrap()
    }

    fn reason(path: &str, bytes: Vec<u8>) -> ParkReason {
        unpack(path, bytes.into(), 1000).unwrap_err().reason
    }

    #[test]
    fn every_cut_of_a_stream_is_a_fault() {
        for (path, packed) in [
            ("a.jsonl.gz", gzip(b"{}\n{}\n")),
            ("a.jsonl.zst", zst(b"{}\n{}\n")),
        ] {
            for cut in 0..packed.len() {
                let fault = unpack(path, packed[..cut].to_vec().into(), 1000).unwrap_err();
                let expected = [ParkReason::TruncatedStream, ParkReason::NotThisFormat];
                assert!(
                    expected.contains(&fault.reason),
                    "{path} cut at {cut}: {fault:?}"
                );
                assert!(
                    cut < 4 || fault.reason == ParkReason::TruncatedStream,
                    "{path} cut at {cut}"
                );
            }
            let two = [packed.clone(), packed.clone()].concat();
            for cut in packed.len() + 1..two.len() {
                assert_eq!(
                    reason(path, two[..cut].to_vec()),
                    ParkReason::TruncatedStream,
                    "{path} cut at {cut}"
                );
            }
        }
    }

    #[test]
    fn damage_and_trailing_bytes_are_faults_with_their_place() {
        for (path, packed) in [("a.gz", gzip(&[7; 900])), ("a.zst", zst(&[7; 900]))] {
            let garbage = [packed.clone(), b"garbage behind the end".to_vec()].concat();
            let fault = unpack(path, garbage.into(), 1000).unwrap_err();
            assert_eq!(fault.reason, ParkReason::TruncatedStream);
            assert!(
                fault
                    .detail
                    .contains(&format!("stream at byte {}", packed.len())),
                "{}",
                fault.detail
            );
        }
        let mut damaged = gzip(b"some text");
        let crc = damaged.len() - 8;
        damaged[crc] ^= 1;
        assert_eq!(reason("a.gz", damaged), ParkReason::TruncatedStream);
    }

    #[test]
    fn a_stream_beyond_the_limit_is_not_unpacked() {
        assert_eq!(reason("a.gz", gzip(&[0; 1001])), ParkReason::TooLarge);
        assert_eq!(
            reason("a.zst", zst(&vec![0; 10_000_000])),
            ParkReason::TooLarge
        );
        assert_eq!(reason("a", vec![b' '; 1001]), ParkReason::TooLarge);
        assert_eq!(
            reason("a.gz", [gzip(&[0; 600]), gzip(&[0; 600])].concat()),
            ParkReason::TooLarge
        );
        assert_eq!(
            unpack("a.gz", gzip(&[0; 1000]).into(), 1000).unwrap().len(),
            1000
        );
    }

    #[test]
    fn a_packed_name_with_plain_bytes_is_refused() {
        assert_eq!(
            reason("a.jsonl.gz", b"{}".to_vec()),
            ParkReason::NotThisFormat
        );
        assert_eq!(
            reason("a.jsonl.gz", Vec::new()),
            ParkReason::TruncatedStream
        );
    }

    #[test]
    fn members_and_frames_are_read_to_the_last_by_name_or_by_magic() {
        for path in ["a.jsonl.gz", "a.jsonl.ZST", "a.jsonl"] {
            let packed = [gzip(b"one "), gzip(b""), gzip(b"two")].concat();
            assert_eq!(unpack(path, packed.into(), 1000).unwrap(), "one two");
            let packed = [zst(b"one "), zst(b"two")].concat();
            assert_eq!(unpack(path, packed.into(), 1000).unwrap(), "one two");
        }
        assert_eq!(
            unpack("a.jsonl", Bytes::from_static(b"plain"), 1000).unwrap(),
            "plain"
        );
    }
}
