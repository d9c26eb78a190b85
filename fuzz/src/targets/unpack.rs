//! Packed files: never more than the limit, never less than the whole.

use crate::input::Input;
use bytes::Bytes;
use landfall::change::{FileFault, ParkReason};
use landfall::decode::{Unpacked, fault_of, fuzzing};
use std::io::{Read, Write};

const LIMIT: u64 = 1 << 20;

const NAMES: [&str; 7] = ["a.gz", "a.zst", "a.bz2", "a.xz", "a.sz", "a.lz4", "a.zz"];

pub(super) fn unpack(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let kind = input.below(NAMES.len());
    match input.flag() {
        false => assert_limits(NAMES[kind], input.rest()),
        true => {
            let members = input.below(3) + 1;
            let (place, sign) = (
                usize::from(input.byte()) << 8 | usize::from(input.byte()),
                input.byte(),
            );
            assert_whole(kind, members, input.rest(), place, sign);
        }
    }
}

/// Unpacks in memory; where that is possible while the bytes are read, the same must come of it.
fn unpacked(name: &str, bytes: &[u8], bytes_max: u64) -> Result<Bytes, FileFault> {
    let whole = fuzzing::unpack(name, Bytes::copy_from_slice(bytes), bytes_max);
    let size = bytes.len() as u64;
    let Some(stream) = Unpacked::open(name, size, bytes).expect("bytes can be read") else {
        return whole;
    };
    let mut out = Vec::new();
    match stream.take(bytes_max + 1).read_to_end(&mut out) {
        Ok(_) if out.len() as u64 > bytes_max => {
            let fault = whole.as_ref().expect_err("it is too large");
            assert_eq!(fault.reason, ParkReason::TooLarge);
        }
        Ok(_) => assert_eq!(whole.as_ref(), Ok(&Bytes::from(out))),
        Err(error) => {
            let fault = fault_of(&error).expect("bytes can be read");
            // How far a damaged frame was read before that showed may differ.
            assert_eq!(
                whole.as_ref().expect_err("it is damaged").reason,
                fault.reason
            );
        }
    }
    whole
}

/// Any bytes: what comes out fits, a smaller limit refuses it, and without its last byte the file is no other text.
fn assert_limits(name: &str, bytes: &[u8]) {
    let Ok(out) = unpacked(name, bytes, LIMIT) else {
        return;
    };
    let length = out.len() as u64;
    assert!(length <= LIMIT);
    assert_eq!(unpacked(name, bytes, length).expect("it fits"), out);
    if length > 0 {
        let fault = unpacked(name, bytes, length - 1).expect_err("it does not fit");
        assert_eq!(fault.reason, ParkReason::TooLarge);
    }
    if let Some((_, shorter)) = bytes.split_last()
        && let Ok(part) = unpacked(name, shorter, LIMIT)
    {
        let has_no_end = bytes.starts_with(b"\xff\x06\0\0sNaPpY");
        assert!(
            part == out || (has_no_end && out.starts_with(&part)),
            "a cut file is another text"
        );
    }
}

/// What was packed comes out; with one byte altered, nothing or the same where the packing has a sum.
fn assert_whole(kind: usize, members: usize, data: &[u8], place: usize, sign: u8) {
    // The packer of Snappy makes nothing of nothing.
    if data.is_empty() {
        return;
    }
    let name = NAMES[kind];
    let part = data.len() / members;
    let mut packed = Vec::new();
    for member in 0..members {
        let end = if member + 1 == members {
            data.len()
        } else {
            (member + 1) * part
        };
        packed.extend(pack(kind, &data[member * part..end]));
    }
    assert_eq!(unpacked(name, &packed, LIMIT).expect("it is sound"), data);
    let last = packed.len() - 1;
    if name != "a.sz" {
        assert!(
            unpacked(name, &packed[..last], LIMIT).is_err(),
            "the last byte is missing"
        );
    }
    let place = place % packed.len();
    packed[place] ^= sign;
    if let Ok(out) = unpacked(name, &packed, LIMIT) {
        // In a stream of Snappy a chunk may become one that is passed over.
        let has_sum = !matches!(name, "a.zst" | "a.sz" | "a.lz4");
        assert!(
            !has_sum || out == data,
            "byte {place} is damaged, and another text comes out"
        );
    }
}

fn pack(kind: usize, data: &[u8]) -> Vec<u8> {
    let level = flate2::Compression::default();
    let packed = match kind {
        0 => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(data).and_then(|()| encoder.finish())
        }
        1 => zstd::encode_all(data, 1),
        2 => {
            let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
            encoder.write_all(data).and_then(|()| encoder.finish())
        }
        3 => {
            let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 0);
            encoder.write_all(data).and_then(|()| encoder.finish())
        }
        4 => {
            let mut encoder = snap::write::FrameEncoder::new(Vec::new());
            encoder
                .write_all(data)
                .and_then(|()| encoder.into_inner().map_err(|error| error.into_error()))
        }
        5 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder
                .write_all(data)
                .and_then(|()| encoder.finish().map_err(std::io::Error::other))
        }
        _ => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
            encoder.write_all(data).and_then(|()| encoder.finish())
        }
    };
    packed.expect("memory takes all")
}
