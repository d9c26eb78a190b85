//! Unpacks a file to its last member, or not at all.
//!
//! A stream that ends early, is damaged or has something behind its end is a fault with the offset; a shorter file
//! never comes out.

mod limit;
pub(super) mod stream;

pub(super) use limit::UnpackLimit;

use super::packing::Packing;
use crate::change::{FileFault, ParkReason};
use bytes::Bytes;
use flate2::{Decompress, FlushDecompress, Status};
use std::io::{self, ErrorKind, Read};

/// Memory for one xz stream; its strongest usual setting needs 65 MiB.
const XZ_MEMORY_MAX: u64 = 256 << 20;

/// The step by which the room for unpacked bytes grows where the library does not grow it.
const ROOM_BYTES: usize = 64 << 10;

/// Unpacks a file by its first bytes; the name only tells what is expected.
pub(super) fn unpack(path: &str, bytes: Bytes, limit: UnpackLimit) -> Result<Bytes, FileFault> {
    match (Packing::of(path, &bytes), Packing::of_name(path)) {
        (Some(packing), _) => unpack_members(&bytes, packing, limit),
        (None, Some(expected)) => {
            let detail = format!("the name says {}, the bytes do not", expected.word());
            Err(FileFault::new(ParkReason::NotThisFormat, detail))
        }
        (None, None) if bytes.len() as u64 > limit.bytes_max => Err(limit.fault()),
        (None, None) => Ok(bytes),
    }
}

/// What the beginning of a packed file unpacks to, up to `bytes_max`. That the stream goes on or is damaged later is no
/// fault here.
pub(super) fn unpack_front(packed: &[u8], packing: Packing, bytes_max: u64) -> Vec<u8> {
    let mut out = Vec::new();
    if packing == Packing::Lz4 {
        // What was unpacked before an error stays in `out`.
        let decoder = lz4_flex::frame::FrameDecoder::new(packed);
        let _ = decoder.take(bytes_max).read_to_end(&mut out);
        return out;
    }
    let mut rest = packed;
    while !rest.is_empty() && (out.len() as u64) < bytes_max {
        let room = bytes_max - out.len() as u64;
        match read_member(packing)(rest, &mut out, room) {
            (Ok(()), behind) if behind.len() < rest.len() => rest = behind,
            _ => break,
        }
    }
    out.truncate(usize::try_from(bytes_max).unwrap_or(usize::MAX));
    out
}

fn read_member(packing: Packing) -> ReadMember {
    match packing {
        Packing::Gzip => read_gzip_member,
        Packing::Zstd => read_zstd_frame,
        Packing::Bzip2 => read_bzip2_stream,
        Packing::Xz => read_xz_stream,
        Packing::Snappy => read_snappy_stream,
        Packing::Lz4 => read_lz4_frame,
        Packing::Zlib => read_zlib_stream,
    }
}

/// Reads one member from the front of `packed` to the end of `out`; returns the result and what is left of `packed`.
type ReadMember =
    for<'a> fn(packed: &'a [u8], out: &mut Vec<u8>, limit: u64) -> (io::Result<()>, &'a [u8]);

fn unpack_members(packed: &[u8], packing: Packing, limit: UnpackLimit) -> Result<Bytes, FileFault> {
    let bytes_max = limit.bytes_max;
    let read = read_member(packing);
    let mut out = Vec::new();
    let mut rest = packed;
    loop {
        let room = bytes_max.saturating_sub(out.len() as u64);
        let member = packed.len() - rest.len();
        let (result, behind) = read(rest, &mut out, room + 1);
        if out.len() as u64 > bytes_max {
            return Err(limit.fault());
        }
        if let Err(error) = result {
            let offset = packed.len() - behind.len();
            return Err(damaged(packing.word(), member, offset, &error));
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

pub(super) fn read_zstd_frame<'a>(
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

pub(super) fn read_bzip2_stream<'a>(
    packed: &'a [u8],
    out: &mut Vec<u8>,
    limit: u64,
) -> (io::Result<()>, &'a [u8]) {
    let mut decoder = bzip2::bufread::BzDecoder::new(packed);
    let result = (&mut decoder).take(limit).read_to_end(out);
    (result.map(drop), decoder.into_inner())
}

pub(super) fn read_xz_stream<'a>(
    packed: &'a [u8],
    out: &mut Vec<u8>,
    limit: u64,
) -> (io::Result<()>, &'a [u8]) {
    let stream = match liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY_MAX, 0) {
        Err(error) => return (Err(error.into()), packed),
        Ok(stream) => stream,
    };
    let mut decoder = liblzma::bufread::XzDecoder::new_stream(packed, stream);
    let result = (&mut decoder).take(limit).read_to_end(out);
    let mut rest = decoder.into_inner();
    // Zeros in groups of four may follow a stream.
    while result.is_ok()
        && let Some(behind) = rest.strip_prefix(&[0; 4])
    {
        rest = behind;
    }
    (result.map(drop), rest)
}

/// A stream that is cut between two of its chunks cannot be told from a whole one: it has no end mark.
fn read_snappy_stream<'a>(
    packed: &'a [u8],
    out: &mut Vec<u8>,
    limit: u64,
) -> (io::Result<()>, &'a [u8]) {
    let mut decoder = snap::read::FrameDecoder::new(packed);
    let result = (&mut decoder).take(limit).read_to_end(out);
    // Bytes behind the last chunk are the header of one, so the whole file is read here.
    match result {
        Ok(_) if packed.is_empty() => (Err(ErrorKind::UnexpectedEof.into()), packed),
        result => (result.map(drop), decoder.into_inner()),
    }
}

/// The library takes a frame without its end for a whole one, so the end is looked for before.
fn read_lz4_frame<'a>(
    packed: &'a [u8],
    out: &mut Vec<u8>,
    limit: u64,
) -> (io::Result<()>, &'a [u8]) {
    let Some(length) = lz4_frame_length(packed) else {
        return (Err(ErrorKind::UnexpectedEof.into()), &[]);
    };
    let (frame, behind) = packed.split_at(length);
    let mut decoder = lz4_flex::frame::FrameDecoder::new(frame);
    let result = (&mut decoder).take(limit).read_to_end(out);
    match result {
        Ok(_) => (Ok(()), behind),
        Err(error) => {
            let read = frame.len() - decoder.into_inner().len();
            (Err(error), &packed[read..])
        }
    }
}

/// Bytes of the first frame; `None` where they are not all there. What is wrong in it is left to the library.
fn lz4_frame_length(packed: &[u8]) -> Option<usize> {
    const BLOCK_CHECKSUM: u8 = 1 << 4;
    const CONTENT_SIZE: u8 = 1 << 3;
    const CONTENT_CHECKSUM: u8 = 1 << 2;
    const DICTIONARY: u8 = 1;
    const NOT_PACKED: u32 = 1 << 31;
    let flags = *packed.get(4)?;
    let has = |flag: u8, bytes: usize| if flags & flag == 0 { 0 } else { bytes };
    let mut at = 7 + has(CONTENT_SIZE, 8) + has(DICTIONARY, 4);
    loop {
        let size = packed.get(at..)?.first_chunk::<4>()?;
        let size = u32::from_le_bytes(*size);
        at += 4;
        if size == 0 {
            let end = at + has(CONTENT_CHECKSUM, 4);
            return (end <= packed.len()).then_some(end);
        }
        at += usize::try_from(size & !NOT_PACKED).ok()? + has(BLOCK_CHECKSUM, 4);
    }
}

fn read_zlib_stream<'a>(
    packed: &'a [u8],
    out: &mut Vec<u8>,
    limit: u64,
) -> (io::Result<()>, &'a [u8]) {
    inflate(packed, out, limit, true)
}

/// Inflates one stream, with the header of zlib or bare. The readers of the library take one without its end for a
/// whole one.
pub(super) fn inflate<'a>(
    packed: &'a [u8],
    out: &mut Vec<u8>,
    limit: u64,
    has_header: bool,
) -> (io::Result<()>, &'a [u8]) {
    let mut decoder = Decompress::new(has_header);
    let mut rest = packed;
    while decoder.total_out() < limit {
        out.reserve(ROOM_BYTES);
        let before = (decoder.total_in(), decoder.total_out());
        let status = decoder.decompress_vec(rest, out, FlushDecompress::None);
        let read = usize::try_from(decoder.total_in() - before.0).unwrap_or(usize::MAX);
        rest = rest.get(read..).unwrap_or_default();
        match status {
            Err(error) => return (Err(error.into()), rest),
            Ok(Status::StreamEnd) => return (Ok(()), rest),
            Ok(Status::Ok | Status::BufError) => {}
        }
        if before == (decoder.total_in(), decoder.total_out()) {
            return (Err(ErrorKind::UnexpectedEof.into()), rest);
        }
    }
    (Ok(()), rest)
}

fn damaged(word: &str, member: usize, offset: usize, error: &io::Error) -> FileFault {
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

#[cfg(test)]
mod tests {
    use super::unpack as unpack_within;
    use super::*;
    use crate::decode::testing::numbers;
    use std::io::Write;

    fn unpack(path: &str, bytes: Bytes, bytes_max: u64) -> Result<Bytes, FileFault> {
        unpack_within(path, bytes, UnpackLimit::of_bytes(bytes_max))
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn zst(text: &[u8]) -> Vec<u8> {
        zstd::encode_all(text, 1).unwrap()
    }

    fn written<W: Write>(mut encoder: W, text: &[u8], finish: fn(W) -> Vec<u8>) -> Vec<u8> {
        encoder.write_all(text).unwrap();
        finish(encoder)
    }

    /// Each packing with an ending of its name.
    fn packed(text: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
        let level = flate2::Compression::default();
        let zlib = flate2::write::ZlibEncoder::new(Vec::new(), level);
        let bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::best());
        let xz = liblzma::write::XzEncoder::new(Vec::new(), 6);
        let snappy = snap::write::FrameEncoder::new(Vec::new());
        vec![
            ("a.jsonl.gz", gzip(text)),
            ("a.jsonl.zst", zst(text)),
            ("a.jsonl.bz2", written(bzip2, text, |e| e.finish().unwrap())),
            ("a.jsonl.xz", written(xz, text, |e| e.finish().unwrap())),
            (
                "a.jsonl.sz",
                written(snappy, text, |e| e.into_inner().unwrap()),
            ),
            ("a.jsonl.lz4", lz4(text, lz4_flex::frame::FrameInfo::new())),
            ("a.jsonl.zz", written(zlib, text, |e| e.finish().unwrap())),
        ]
    }

    fn lz4(text: &[u8], info: lz4_flex::frame::FrameInfo) -> Vec<u8> {
        let encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
        written(encoder, text, |e| e.finish().unwrap())
    }

    fn reason(path: &str, bytes: Vec<u8>) -> ParkReason {
        unpack(path, bytes.into(), 1000).unwrap_err().reason
    }

    #[test]
    fn every_cut_of_a_stream_is_a_fault() {
        for (path, packed) in packed(b"{}\n{}\n") {
            // Framed Snappy has no end mark: a cut behind its mark leaves a whole stream.
            let is_whole = |cut: usize| path.ends_with("sz") && cut == 10;
            for cut in (0..packed.len()).filter(|cut| !is_whole(*cut)) {
                let found = reason(path, packed[..cut].to_vec());
                assert_eq!(found, ParkReason::TruncatedStream, "{path} cut at {cut}");
            }
            let two = [packed.clone(), packed.clone()].concat();
            for cut in packed.len() + 1..two.len() {
                if !is_whole(cut - packed.len()) {
                    let found = reason(path, two[..cut].to_vec());
                    assert_eq!(found, ParkReason::TruncatedStream, "{path} cut at {cut}");
                }
            }
        }
    }

    #[test]
    fn damage_and_trailing_bytes_are_faults_with_their_place() {
        for (path, packed) in packed(&[7; 900]) {
            let garbage = [packed.clone(), b"garbage behind the end".to_vec()].concat();
            let fault = unpack(path, garbage.into(), 1000).unwrap_err();
            assert_eq!(fault.reason, ParkReason::TruncatedStream, "{path}");
            // Chunks of Snappy are all members of one stream.
            let member = if path.ends_with("sz") {
                0
            } else {
                packed.len()
            };
            let place = format!("stream at byte {member} is");
            assert!(fault.detail.contains(&place), "{path}: {}", fault.detail);
        }
    }

    #[test]
    fn no_damaged_byte_gives_another_text() {
        let text: Vec<u8> = (0..150u32).flat_map(|i| (i * 7919).to_le_bytes()).collect();
        // These two have a sum of the text only where the writer wants one.
        let mut zst = zstd::Encoder::new(Vec::new(), 1).unwrap();
        zst.include_checksum(true).unwrap();
        let summed = [
            ("a.zst", written(zst, &text, |e| e.finish().unwrap())),
            (
                "a.lz4",
                lz4(
                    &text,
                    lz4_flex::frame::FrameInfo::new().content_checksum(true),
                ),
            ),
        ];
        let has_sum = |path: &str| !path.ends_with("zst") && !path.ends_with("lz4");
        let others = packed(&text).into_iter().filter(|(path, _)| has_sum(path));
        for (path, packed) in others.chain(summed) {
            for place in 0..packed.len() {
                let mut damaged = packed.clone();
                damaged[place] ^= 0x10;
                if let Ok(read) = unpack(path, damaged.into(), 10_000) {
                    assert!(read == text, "{path} at {place}");
                }
            }
        }
    }

    #[test]
    fn damage_anywhere_never_panics_and_never_passes_the_limit() {
        let mut next = numbers(5);
        let text: Vec<u8> = (0..3000u32).map(|i| (i * i / 7) as u8).collect();
        for (path, packed) in packed(&text) {
            for _ in 0..150 {
                let mut damaged = packed.clone();
                for _ in 0..=next(4) {
                    let place = next(damaged.len());
                    damaged[place] = next(256) as u8;
                }
                damaged.truncate(1 + next(damaged.len() * 2).min(damaged.len() - 1));
                if let Ok(read) = unpack(path, damaged.into(), 4000) {
                    assert!(read.len() <= 4000, "{path}");
                }
            }
        }
    }

    #[test]
    fn a_stream_beyond_the_limit_is_not_unpacked() {
        for (path, packed) in packed(&vec![0; 10_000_000]) {
            assert_eq!(reason(path, packed), ParkReason::TooLarge, "{path}");
        }
        for (path, packed) in packed(&[0; 1000]) {
            let two = [packed.clone(), packed.clone()].concat();
            assert_eq!(reason(path, two), ParkReason::TooLarge, "{path}");
            assert_eq!(unpack(path, packed.into(), 1000).unwrap().len(), 1000);
        }
        assert_eq!(reason("a", vec![b' '; 1001]), ParkReason::TooLarge);
    }

    #[test]
    fn a_file_that_unpacks_to_thousands_of_times_its_bytes_is_refused_unless_it_stays_small() {
        const FREE: u64 = 1 << 20;
        for (zeros, refused) in [(FREE, ""), (8 * FREE, "a.jsonl.zst a.jsonl.bz2 a.jsonl.xz")] {
            for (path, packed) in packed(&vec![0; zeros as usize]) {
                let size = packed.len() as u64;
                let limit = UnpackLimit::of_ratio(size, FREE);
                match unpack_within(path, packed.into(), limit) {
                    Ok(bytes) => {
                        assert!(
                            bytes.len() as u64 == zeros && !refused.contains(path),
                            "{path}"
                        );
                    }
                    Err(fault) => {
                        assert_eq!(fault.reason, ParkReason::TooLarge);
                        let sizes = format!("has {size} bytes and more than {}", limit.bytes_max);
                        assert!(fault.detail.contains(&sizes), "{path}: {}", fault.detail);
                        assert!(refused.contains(path), "{path}");
                    }
                }
            }
        }
        let plain = vec![b' '; 3 * FREE as usize];
        let limit = UnpackLimit::of_ratio(plain.len() as u64, FREE);
        assert!(unpack_within("a.jsonl", plain.into(), limit).is_ok());
    }

    #[test]
    fn limits_are_those_that_the_documents_name() {
        let limit = |packed| UnpackLimit::of_file(packed).bytes_max;
        assert_eq!(limit(1), 256 << 20);
        assert_eq!(limit(100_000), 400_000_000);
        assert_eq!(limit(100 << 20), 8 << 30);
        assert_eq!(limit(u64::MAX), 8 << 30);
        let fault = UnpackLimit::of_file(100 << 20).fault();
        assert_eq!(
            fault.detail,
            "the file has more than 8589934592 bytes when unpacked"
        );
        let fault = UnpackLimit::of_file(9000).fault();
        assert_eq!(
            fault.detail,
            "the file has 9000 bytes and more than 268435456 when unpacked; beyond 268435456 it may have 4000 times its \
             own; if that is what it holds, drop it unpacked"
        );
    }

    #[test]
    fn a_packed_name_with_plain_bytes_is_refused() {
        for (path, _) in packed(b"") {
            assert_eq!(reason(path, b"{}".to_vec()), ParkReason::NotThisFormat);
            assert_eq!(reason(path, Vec::new()), ParkReason::TruncatedStream);
        }
    }

    #[test]
    fn members_and_frames_are_read_to_the_last_by_name_or_by_magic() {
        let all = packed(b"one ");
        for (index, (path, one)) in all.iter().enumerate() {
            let rest = [
                packed(b"")[index].1.clone(),
                packed(b"two")[index].1.clone(),
            ];
            let members = [one.clone(), rest.concat()].concat();
            let mut names = vec![path.to_string(), path.to_uppercase()];
            if !path.ends_with("zz") {
                names.extend(["a.jsonl".to_string(), "a.gz".to_string()]);
            }
            for name in names {
                let read = unpack(&name, members.clone().into(), 1000).unwrap();
                assert_eq!(read, "one two", "{name}");
            }
        }
        let plain = unpack("a.jsonl", Bytes::from_static(b"plain"), 1000).unwrap();
        assert_eq!(plain, "plain");
    }

    #[test]
    fn streams_may_be_padded_or_written_in_other_ways() {
        let xz = packed(b"one")[3].1.clone();
        let padded = [&xz[..], &[0; 8], &xz, &[0; 4]].concat();
        assert_eq!(unpack("a.xz", padded.into(), 1000).unwrap(), "oneone");
        let odd = [&xz[..], &[0; 3]].concat();
        assert_eq!(reason("a.xz", odd), ParkReason::TruncatedStream);
        let text = vec![b'x'; 200_000];
        let info = lz4_flex::frame::FrameInfo::new()
            .block_checksums(true)
            .content_checksum(true)
            .content_size(Some(text.len() as u64))
            .block_mode(lz4_flex::frame::BlockMode::Linked);
        let frame = lz4(&text, info);
        assert_eq!(
            reason("a", frame[..frame.len() - 1].to_vec()),
            ParkReason::TruncatedStream
        );
        assert_eq!(unpack("a", frame.into(), 1 << 20).unwrap(), text);
    }
}
