//! Numbers as Parquet packs them: by bits, in runs, and as differences.
//!
//! Source of the rules: the encodings of the Parquet format, "RLE" and "DELTA_BINARY_PACKED".

/// Values of a block of differences, each of which has a least one.
const BLOCK: usize = 128;
/// Values of a block that share a width.
const MINIBLOCK: usize = 32;
const MINIBLOCKS: usize = BLOCK / MINIBLOCK;
/// Values are packed by so many.
const GROUP: usize = 8;

/// The integers that Parquet stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    /// INT32; numbers must fit.
    Bits32,
    /// INT64.
    Bits64,
}

impl Width {
    /// `left - right`, modulo the width.
    fn difference(self, left: i64, right: i64) -> i64 {
        match self {
            Width::Bits32 => i64::from((left as i32).wrapping_sub(right as i32)),
            Width::Bits64 => left.wrapping_sub(right),
        }
    }

    /// The bits of a difference that is not negative, modulo the width.
    fn bits(self, difference: i64) -> u64 {
        match self {
            Width::Bits32 => u64::from(difference as u32),
            Width::Bits64 => difference as u64,
        }
    }
}

/// How many bits the numbers up to `max` take.
pub(super) fn bit_width(max: u64) -> u32 {
    u64::BITS - max.leading_zeros()
}

/// Adds a number of variable length.
pub(super) fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Adds a number of variable length with its sign in the last bit.
fn zigzag(out: &mut Vec<u8>, value: i64) {
    varint(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Adds `values`, none of which has more than `width` bits, the lowest bits first, and zeros up to `bytes` bytes in all.
fn pack(out: &mut Vec<u8>, values: impl Iterator<Item = u64>, width: u32, bytes: usize) {
    let end = out.len() + bytes;
    if width > 0 {
        let (mut word, mut filled) = (0, 0);
        for value in values {
            word |= value << filled;
            filled += width;
            if filled >= u64::BITS {
                out.extend_from_slice(&word.to_le_bytes());
                filled -= u64::BITS;
                word = match filled {
                    0 => 0,
                    _ => value >> (width - filled),
                };
            }
        }
        let rest = filled.div_ceil(u8::BITS) as usize;
        out.extend_from_slice(&word.to_le_bytes()[..rest]);
    }
    out.resize(end, 0);
}

/// Adds numbers of at most `width` bits each: those that repeat as runs, the others packed.
pub(super) fn runs(out: &mut Vec<u8>, values: &[u32], width: u32) {
    let (mut start, mut place) = (0, 0);
    while place < values.len() {
        let value = values[place];
        let alike = values[place..].iter().take_while(|other| **other == value);
        let run = alike.count();
        // Only whole groups may stand before a run.
        let fill = (GROUP - (place - start) % GROUP) % GROUP;
        if run >= fill + GROUP {
            packed_run(out, &values[start..place + fill], width);
            repeated(out, value, run - fill, width);
            start = place + run;
        }
        place += run;
    }
    packed_run(out, &values[start..], width);
}

/// Adds a run of one number of at most `width` bits.
pub(super) fn repeated(out: &mut Vec<u8>, value: u32, count: usize, width: u32) {
    varint(out, (count as u64) << 1);
    out.extend_from_slice(&value.to_le_bytes()[..width.div_ceil(u8::BITS) as usize]);
}

fn packed_run(out: &mut Vec<u8>, values: &[u32], width: u32) {
    let groups = values.len().div_ceil(GROUP);
    if groups > 0 {
        varint(out, (groups as u64) << 1 | 1);
        let values = values.iter().map(|value| u64::from(*value));
        pack(out, values, width, groups * width as usize);
    }
}

/// Adds bits as numbers of one bit, packed.
pub(super) fn packed_bits(out: &mut Vec<u8>, bits: impl ExactSizeIterator<Item = bool>) {
    let groups = bits.len().div_ceil(GROUP);
    varint(out, (groups as u64) << 1 | 1);
    pack(out, bits.map(u64::from), 1, groups);
}

/// Adds numbers as differences.
pub(super) fn deltas(out: &mut Vec<u8>, values: &[i64], width: Width) {
    head(out, values.len(), values.first().copied().unwrap_or(0));
    let mut last = 0;
    let mut differences = [0; BLOCK];
    while last + 1 < values.len() {
        let next = &values[last + 1..values.len().min(last + 1 + BLOCK)];
        let differences = &mut differences[..next.len()];
        let before = &values[last..];
        for ((difference, left), right) in differences.iter_mut().zip(next).zip(before) {
            *difference = width.difference(*left, *right);
        }
        block(out, differences, width);
        last += next.len();
    }
}

/// Adds `count` times the same number as differences.
pub(super) fn deltas_of_alike(out: &mut Vec<u8>, value: i64, count: usize) {
    head(out, count, value);
    let blocks = count.saturating_sub(1).div_ceil(BLOCK);
    // Of each a least difference and its widths, all of them zero.
    out.resize(out.len() + blocks * (1 + MINIBLOCKS), 0);
}

fn head(out: &mut Vec<u8>, count: usize, first: i64) {
    varint(out, BLOCK as u64);
    varint(out, MINIBLOCKS as u64);
    varint(out, count as u64);
    zigzag(out, first);
}

fn block(out: &mut Vec<u8>, differences: &mut [i64], width: Width) {
    let least = differences.iter().copied().min().unwrap_or(0);
    zigzag(out, least);
    for difference in &mut *differences {
        *difference = width.difference(*difference, least);
    }
    let miniblocks = differences.chunks(MINIBLOCK);
    let widths_at = out.len();
    out.resize(widths_at + MINIBLOCKS, 0);
    for (place, miniblock) in miniblocks.enumerate() {
        let numbers = || miniblock.iter().map(|number| width.bits(*number));
        let bits = bit_width(numbers().fold(0, |all, number| all | number));
        out[widths_at + place] = bits as u8;
        pack(out, numbers(), bits, bits as usize * MINIBLOCK / GROUP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes packed numbers apart, bit by bit.
    fn unpacked(bytes: &[u8], width: u32, count: usize) -> Vec<u64> {
        let bit = |place: usize| u64::from(bytes[place / 8] >> (place % 8) & 1);
        let number = |place: usize| {
            (0..width as usize).fold(0, |number, at| {
                number | bit(place * width as usize + at) << at
            })
        };
        (0..count).map(number).collect()
    }

    /// Numbers of `width` bits that differ in many of them.
    fn numbers(count: usize, width: u32) -> Vec<u64> {
        let mask = u64::MAX.checked_shr(64 - width).unwrap_or(0);
        let number = |at: usize| (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask;
        (0..count).map(number).collect()
    }

    #[test]
    fn numbers_of_each_width_are_packed_without_gaps() {
        for width in 0..=64 {
            for count in [0, 1, 7, 8, 31, 32] {
                let numbers = numbers(count, width);
                let mut out = Vec::new();
                pack(&mut out, numbers.iter().copied(), width, 4 * width as usize);
                assert_eq!(out.len(), 4 * width as usize);
                assert_eq!(unpacked(&out, width, count), numbers, "{width} bits");
            }
        }
    }

    /// Takes runs apart.
    fn read_runs(mut bytes: &[u8], width: u32) -> Vec<u32> {
        let mut values = Vec::new();
        while !bytes.is_empty() {
            let (mut header, mut shift) = (0u64, 0);
            loop {
                let byte = bytes[0];
                bytes = &bytes[1..];
                header |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            let count = (header >> 1) as usize;
            let length = match header & 1 {
                1 => count * width as usize,
                _ => width.div_ceil(8) as usize,
            };
            let (run, rest) = bytes.split_at(length);
            bytes = rest;
            match header & 1 {
                1 => values.extend(unpacked(run, width, count * 8).iter().map(|v| *v as u32)),
                _ => {
                    let value = run
                        .iter()
                        .rev()
                        .fold(0, |all, byte| all << 8 | u32::from(*byte));
                    values.extend(std::iter::repeat_n(value, count));
                }
            }
        }
        values
    }

    #[test]
    fn runs_read_back_wherever_they_begin_and_end() {
        for width in [0, 1, 3, 8, 12, 32] {
            for run in [1, 3, 7, 8, 9, 15, 16, 17, 40, 300] {
                for before in 0..10 {
                    let mask = u32::MAX.checked_shr(32 - width).unwrap_or(0);
                    let mut values: Vec<u32> = (0..before).map(|at| (at * 7) & mask).collect();
                    values.extend(std::iter::repeat_n(mask, run));
                    values.extend((0..before).map(|at| (at * 3) & mask));
                    let mut out = Vec::new();
                    runs(&mut out, &values, width);
                    let read = read_runs(&out, width);
                    assert_eq!(read[..values.len()], values);
                    assert!(read.len() < values.len() + 8);
                }
            }
        }
    }

    #[test]
    fn numbers_that_are_alike_are_the_same_either_way() {
        for count in [0, 1, 2, 128, 129, 130, 2_048] {
            let value = if count == 0 { 0 } else { i64::MIN };
            let (mut alike, mut any) = (Vec::new(), Vec::new());
            deltas_of_alike(&mut alike, value, count);
            let values = vec![value; count];
            deltas(&mut any, &values, Width::Bits64);
            assert_eq!(alike, any, "{count} values");
        }
    }
}
