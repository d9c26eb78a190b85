//! Looks at the footer and the page headers of a file before the library does.
//!
//! They are Thrift in its compact form. The library passes over a list that it does not want as often as the list says that
//! it is long, also where its values have no bytes or the file ended long ago, so a few bytes would keep it busy for hours.
//! Here every value costs something, and a field that is not of the type that Parquet gives it is refused, so that the
//! library reads the same values at the same places.

use crate::decode::unpack::UnpackLimit;
use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};
use std::io::{self, Read};
use std::sync::Arc;

/// Values may nest this deep.
const DEPTH_MAX: usize = 32;

/// So many values without bytes of their own may stand in one header.
const FREE_VALUES_MAX: usize = 1 << 16;

/// Page headers are short, but for the statistics in them.
const WINDOW_BYTES: usize = 8 << 10;

/// What Parquet says of a field.
#[derive(Clone, Copy)]
enum Kind {
    Bool,
    Byte,
    /// Of 16, 32 or 64 bits, which are written alike.
    Int,
    Double,
    Bytes,
    List(&'static Kind),
    Struct(Fields),
}

type Fields = &'static [(i16, Kind)];

const INTS: Kind = Kind::List(&Kind::Int);
const NOTHING: Kind = Kind::Struct(&[]);
const FOOTER: Fields = &[
    (1, Kind::Int),
    (2, Kind::List(&SCHEMA_ELEMENT)),
    (3, Kind::Int),
    (4, Kind::List(&ROW_GROUP)),
    (5, Kind::List(&KEY_VALUE)),
    (6, Kind::Bytes),
    (7, Kind::List(&COLUMN_ORDER)),
];
const COLUMN_ORDER: Kind = Kind::Struct(&[(1, NOTHING), (2, NOTHING)]);
const KEY_VALUE: Kind = Kind::Struct(&[(1, Kind::Bytes), (2, Kind::Bytes)]);
const SCHEMA_ELEMENT: Kind = Kind::Struct(&[
    (1, Kind::Int),
    (2, Kind::Int),
    (3, Kind::Int),
    (4, Kind::Bytes),
    (5, Kind::Int),
    (6, Kind::Int),
    (7, Kind::Int),
    (8, Kind::Int),
    (9, Kind::Int),
    (10, LOGICAL_TYPE),
]);
const LOGICAL_TYPE: Kind = Kind::Struct(&[
    (1, NOTHING),
    (2, NOTHING),
    (3, NOTHING),
    (4, NOTHING),
    (5, Kind::Struct(&[(1, Kind::Int), (2, Kind::Int)])),
    (6, NOTHING),
    (7, TIME),
    (8, TIME),
    (10, Kind::Struct(&[(1, Kind::Byte), (2, Kind::Bool)])),
    (11, NOTHING),
    (12, NOTHING),
    (13, NOTHING),
    (14, NOTHING),
    (15, NOTHING),
    (16, Kind::Struct(&[(1, Kind::Byte)])),
    (17, Kind::Struct(&[(1, Kind::Bytes)])),
    (18, Kind::Struct(&[(1, Kind::Bytes), (2, Kind::Int)])),
]);
const TIME: Kind = Kind::Struct(&[
    (1, Kind::Bool),
    (2, Kind::Struct(&[(1, NOTHING), (2, NOTHING), (3, NOTHING)])),
]);
const ROW_GROUP: Kind = Kind::Struct(&[
    (1, Kind::List(&COLUMN_CHUNK)),
    (2, Kind::Int),
    (3, Kind::Int),
    (
        4,
        Kind::List(&Kind::Struct(&[
            (1, Kind::Int),
            (2, Kind::Bool),
            (3, Kind::Bool),
        ])),
    ),
    (5, Kind::Int),
    (6, Kind::Int),
    (7, Kind::Int),
]);
const COLUMN_CHUNK: Kind = Kind::Struct(&[
    (1, Kind::Bytes),
    (2, Kind::Int),
    (3, COLUMN),
    (4, Kind::Int),
    (5, Kind::Int),
    (6, Kind::Int),
    (7, Kind::Int),
    (9, Kind::Bytes),
]);
const COLUMN: Kind = Kind::Struct(&[
    (1, Kind::Int),
    (2, INTS),
    (3, Kind::List(&Kind::Bytes)),
    (4, Kind::Int),
    (5, Kind::Int),
    (6, Kind::Int),
    (7, Kind::Int),
    (8, Kind::List(&KEY_VALUE)),
    (9, Kind::Int),
    (10, Kind::Int),
    (11, Kind::Int),
    (12, STATISTICS),
    (
        13,
        Kind::List(&Kind::Struct(&[
            (1, Kind::Int),
            (2, Kind::Int),
            (3, Kind::Int),
        ])),
    ),
    (14, Kind::Int),
    (15, Kind::Int),
    (16, Kind::Struct(&[(1, Kind::Int), (2, INTS), (3, INTS)])),
    (17, Kind::Struct(&[(1, BOUNDING_BOX), (2, INTS)])),
]);
const BOUNDING_BOX: Kind = Kind::Struct(&[
    (1, Kind::Double),
    (2, Kind::Double),
    (3, Kind::Double),
    (4, Kind::Double),
    (5, Kind::Double),
    (6, Kind::Double),
    (7, Kind::Double),
    (8, Kind::Double),
]);
const STATISTICS: Kind = Kind::Struct(&[
    (1, Kind::Bytes),
    (2, Kind::Bytes),
    (3, Kind::Int),
    (4, Kind::Int),
    (5, Kind::Bytes),
    (6, Kind::Bytes),
    (7, Kind::Bool),
    (8, Kind::Bool),
]);
const PAGE: Fields = &[
    (1, Kind::Int),
    (2, Kind::Int),
    (3, Kind::Int),
    (4, Kind::Int),
    (
        5,
        Kind::Struct(&[
            (1, Kind::Int),
            (2, Kind::Int),
            (3, Kind::Int),
            (4, Kind::Int),
            (5, STATISTICS),
        ]),
    ),
    (6, NOTHING),
    (
        7,
        Kind::Struct(&[(1, Kind::Int), (2, Kind::Int), (3, Kind::Bool)]),
    ),
    (
        8,
        Kind::Struct(&[
            (1, Kind::Int),
            (2, Kind::Int),
            (3, Kind::Int),
            (4, Kind::Int),
            (5, Kind::Int),
            (6, Kind::Int),
            (7, Kind::Bool),
            (8, STATISTICS),
        ]),
    ),
];

/// Why a header is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The bytes end.
    Cut,
    /// It is no header of Parquet, or one that is made to keep the reader busy.
    Wrong,
}

/// Checks the footer of a file that ends as Parquet does. One that cannot be in the file is left to the library.
pub(super) fn check_footer(reader: &impl ChunkReader) -> Result<()> {
    let Some(before) = reader.len().checked_sub(8) else {
        return Ok(());
    };
    let tail = reader.get_bytes(before, 8)?;
    let length = tail
        .first_chunk()
        .map_or(0, |length| u64::from(u32::from_le_bytes(*length)));
    let Some(start) = before.checked_sub(length) else {
        return Ok(());
    };
    let footer = reader.get_bytes(start, usize::try_from(length)?)?;
    check(&footer, FOOTER).map_err(|_| refused("footer"))
}

/// A file whose page headers are checked when they are about to be read.
pub(super) struct CheckedPages<R>(Arc<R>);

impl<R> CheckedPages<R> {
    pub(super) fn new(reader: R) -> Self {
        CheckedPages(Arc::new(reader))
    }
}

impl<R: Length> Length for CheckedPages<R> {
    fn len(&self) -> u64 {
        self.0.len()
    }
}

impl<R: ChunkReader> ChunkReader for CheckedPages<R> {
    type T = HeaderReader<R>;

    /// The library reads nothing but page headers in this way, but it also asks for a reader where it knows the header
    /// already, and then the data of the page stands there.
    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(HeaderReader {
            file: Arc::clone(&self.0),
            start,
            opened: None,
        })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        self.0.get_bytes(start, length)
    }
}

/// Reads from a place of a file on, where a page header must stand if anything is read.
pub(super) struct HeaderReader<R: ChunkReader> {
    file: Arc<R>,
    start: u64,
    opened: Option<R::T>,
}

impl<R: ChunkReader> Read for HeaderReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let opened = match &mut self.opened {
            Some(opened) => opened,
            none => {
                check_page(self.file.as_ref(), self.start).map_err(io::Error::other)?;
                let reader = self.file.get_read(self.start).map_err(io::Error::other)?;
                none.insert(reader)
            }
        };
        opened.read(buffer)
    }
}

/// Checks the page header at a place.
fn check_page(file: &impl ChunkReader, start: u64) -> Result<()> {
    let behind = usize::try_from(file.len().saturating_sub(start))?;
    let mut window = WINDOW_BYTES;
    loop {
        let bytes = file.get_bytes(start, window.min(behind))?;
        match sizes_in(&bytes, PAGE) {
            Err(Fault::Cut) if window < behind => window = window.saturating_mul(16),
            Ok(sizes) if sizes.are_possible() => return Ok(()),
            Ok(sizes) => {
                let Sizes { plain, packed } = sizes;
                return Err(ParquetError::General(format!(
                    "a page of {packed} bytes says that it has {plain} when unpacked"
                )));
            }
            Err(Fault::Cut | Fault::Wrong) => return Err(refused("header of a page")),
        }
    }
}

fn refused(what: &str) -> ParquetError {
    ParquetError::General(format!("the {what} is damaged"))
}

/// How many bytes a page has by its header: the library takes memory for the plain ones before it unpacks any.
#[derive(Clone, Copy, Default)]
struct Sizes {
    plain: u64,
    packed: u64,
}

impl Sizes {
    fn are_possible(self) -> bool {
        self.plain <= UnpackLimit::of_file(self.packed).bytes_max
    }

    /// Notes the number of a field at the top of a header.
    fn note(&mut self, field: i16, written: u64) {
        // The sign, which is the last bit, is for the library to look at.
        match field {
            2 => self.plain = written >> 1,
            3 => self.packed = written >> 1,
            _ => {}
        }
    }
}

fn check(bytes: &[u8], fields: Fields) -> Step {
    sizes_in(bytes, fields).map(drop)
}

/// The same, with what a header of a page tells.
fn sizes_in(bytes: &[u8], fields: Fields) -> std::result::Result<Sizes, Fault> {
    let mut walk = Walk {
        bytes,
        at: 0,
        free_values: FREE_VALUES_MAX,
        last_number: 0,
        sizes: Sizes::default(),
    };
    walk.structure(fields, DEPTH_MAX)?;
    Ok(walk.sizes)
}

/// The numbers of the types in the compact form.
mod wire {
    pub(super) const TRUE: u8 = 1;
    pub(super) const FALSE: u8 = 2;
    pub(super) const BYTE: u8 = 3;
    pub(super) const I16: u8 = 4;
    pub(super) const I32: u8 = 5;
    pub(super) const I64: u8 = 6;
    pub(super) const DOUBLE: u8 = 7;
    pub(super) const BINARY: u8 = 8;
    pub(super) const LIST: u8 = 9;
    pub(super) const SET: u8 = 10;
    pub(super) const MAP: u8 = 11;
    pub(super) const STRUCT: u8 = 12;
    pub(super) const UUID: u8 = 13;
}

impl Kind {
    fn is(self, found: u8) -> bool {
        match self {
            Kind::Bool => matches!(found, wire::TRUE | wire::FALSE),
            Kind::Byte => found == wire::BYTE,
            Kind::Int => matches!(found, wire::I16 | wire::I32 | wire::I64),
            Kind::Double => found == wire::DOUBLE,
            Kind::Bytes => found == wire::BINARY,
            Kind::List(_) => found == wire::LIST,
            Kind::Struct(_) => found == wire::STRUCT,
        }
    }
}

/// Goes over values as the library does.
struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    free_values: usize,
    last_number: u64,
    sizes: Sizes,
}

type Step = std::result::Result<(), Fault>;

impl Walk<'_> {
    fn structure(&mut self, fields: Fields, depth: usize) -> Step {
        let mut id: i16 = 0;
        loop {
            let head = self.byte()?;
            let found = head & 0x0F;
            if found == 0 {
                return Ok(());
            }
            id = match i16::from(head >> 4) {
                0 => {
                    let written = self.number()?;
                    // The sign is the last bit.
                    ((written >> 1) as i64 ^ -((written & 1) as i64)) as i16
                }
                step => id.checked_add(step).ok_or(Fault::Wrong)?,
            };
            let known = fields.iter().find(|(known, _)| *known == id);
            self.value(found, known.map(|(_, kind)| *kind), depth)?;
            if depth == DEPTH_MAX {
                self.sizes.note(id, self.last_number);
            }
        }
    }

    /// Goes behind a value of the type that was found, which must be the known one.
    fn value(&mut self, found: u8, known: Option<Kind>, depth: usize) -> Step {
        if known.is_some_and(|kind| !kind.is(found)) {
            return Err(Fault::Wrong);
        }
        let depth = depth.checked_sub(1).ok_or(Fault::Wrong)?;
        match found {
            wire::TRUE | wire::FALSE => {
                self.free_values = self.free_values.checked_sub(1).ok_or(Fault::Wrong)?;
                Ok(())
            }
            wire::BYTE => self.skip(1),
            wire::I16 | wire::I32 | wire::I64 => self.number().map(drop),
            wire::DOUBLE => self.skip(8),
            wire::BINARY => {
                let length = self.number()?;
                self.skip(usize::try_from(length).map_err(|_| Fault::Wrong)?)
            }
            wire::LIST | wire::SET => {
                let element = match known {
                    Some(Kind::List(element)) => Some(*element),
                    _ => None,
                };
                self.list(element, depth)
            }
            wire::MAP => self.map(depth),
            wire::STRUCT => {
                let fields = match known {
                    Some(Kind::Struct(fields)) => fields,
                    _ => &[],
                };
                self.structure(fields, depth)
            }
            wire::UUID => self.skip(16),
            _ => Err(Fault::Wrong),
        }
    }

    fn list(&mut self, element: Option<Kind>, depth: usize) -> Step {
        let head = self.byte()?;
        let length = match head >> 4 {
            15 => self.number()?,
            length => u64::from(length),
        };
        for _ in 0..length {
            self.value(head & 0x0F, element, depth)?;
        }
        Ok(())
    }

    fn map(&mut self, depth: usize) -> Step {
        let length = self.number()?;
        if length == 0 {
            return Ok(());
        }
        let types = self.byte()?;
        for _ in 0..length {
            self.value(types >> 4, None, depth)?;
            self.value(types & 0x0F, None, depth)?;
        }
        Ok(())
    }

    fn number(&mut self) -> std::result::Result<u64, Fault> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                self.last_number = number;
                return Ok(number);
            }
        }
        Err(Fault::Wrong)
    }

    fn byte(&mut self) -> std::result::Result<u8, Fault> {
        let byte = *self.bytes.get(self.at).ok_or(Fault::Cut)?;
        self.at += 1;
        Ok(byte)
    }

    fn skip(&mut self, length: usize) -> Step {
        let end = self.at.checked_add(length).ok_or(Fault::Wrong)?;
        if end > self.bytes.len() {
            return Err(Fault::Cut);
        }
        self.at = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list of so many booleans under a field that nobody knows, as a varint of five bytes.
    fn with_booleans(length: u32) -> Vec<u8> {
        let mut bytes = vec![0xE9, 0xF1];
        for shift in [0, 7, 14, 21, 28] {
            let more = if shift == 28 { 0 } else { 0x80 };
            bytes.push((length >> shift) as u8 & 0x7F | more);
        }
        bytes.push(0);
        bytes
    }

    #[test]
    fn a_list_longer_than_its_bytes_is_refused() {
        assert_eq!(check(&with_booleans(3), PAGE), Ok(()));
        assert_eq!(
            check(&with_booleans(i32::MAX as u32), PAGE),
            Err(Fault::Wrong)
        );
        // Field 1 is a number, and 0xF1 would be a part of it.
        let hidden = [&[0x19][..], &with_booleans(i32::MAX as u32)[1..]].concat();
        assert_eq!(check(&hidden, PAGE), Err(Fault::Wrong));
        let pairs = [0xEB, 0xFF, 0xFF, 0xFF, 0xFF, 0x07, 0x11, 0];
        assert_eq!(check(&pairs, PAGE), Err(Fault::Wrong));
    }

    #[test]
    fn deep_values_and_endless_numbers_are_refused() {
        assert_eq!(check(&[0xEC; 100], PAGE), Err(Fault::Wrong));
        assert_eq!(
            check(
                &[
                    0x15, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF
                ],
                PAGE
            ),
            Err(Fault::Wrong)
        );
    }

    #[test]
    fn every_cut_of_a_header_is_a_cut() {
        let header = [
            0x15, 0, 0x15, 80, 0x15, 80, 0x2C, 0x15, 40, 0x15, 0, 0x15, 6, 0x15, 6, 0x1C, 0x18, 1,
            7, 0, 0, 0,
        ];
        assert_eq!(check(&header, PAGE), Ok(()));
        for length in 0..header.len() {
            assert_eq!(check(&header[..length], PAGE), Err(Fault::Cut), "{length}");
        }
    }
}
