//! Values of Avro from their bytes.
//!
//! What the bytes cannot mean is corrupt, and nothing behind it can be trusted; what they mean and no column takes (text that
//! is not UTF-8, a decimal beyond all types) refuses its record only. Memory stays in proportion to the bytes.

use super::schema::Node;
use crate::change::RejectReason;
use crate::decode::arrow_text::value_text;
use crate::decode::columns::Column;
use crate::decode::rows::RecordFault;
use crate::decode::text::lossless_text;
use crate::decode::value::Cell;
use arrow::datatypes::{DataType, Decimal256Type, DecimalType, i256};
use std::borrow::Cow;
use std::fmt::Write;

/// So many values of a file may have no bytes at all, such as the elements of an array of nulls.
pub(super) const FREE_VALUES_MAX: usize = 1 << 20;

/// Why bytes are no value.
pub(super) type Corrupt = Cow<'static, str>;

/// Reads values one after the other.
pub(super) struct Datums<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Values without bytes that may still come.
    free_values: usize,
    /// What is wrong with the present record alone.
    pub(super) fault: Option<RecordFault>,
}

impl<'a> Datums<'a> {
    pub(super) fn new(bytes: &'a [u8], free_values: usize) -> Self {
        Datums {
            bytes,
            at: 0,
            free_values,
            fault: None,
        }
    }

    pub(super) fn free_values(&self) -> usize {
        self.free_values
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// Where the next value begins.
    pub(super) fn place(&self) -> usize {
        self.at
    }

    /// Counts a value that began at `start`, if it had no bytes.
    pub(super) fn count_free(&mut self, start: usize) -> Result<(), Corrupt> {
        if self.at == start {
            let left = self.free_values.checked_sub(1);
            self.free_values = left.ok_or("there are too many values without bytes")?;
        }
        Ok(())
    }

    /// Reads a value in the form of the node's Arrow type.
    pub(super) fn value(&mut self, node: &Node) -> Result<Cell<'a>, Corrupt> {
        Ok(match node {
            Node::Null => Cell::Null,
            Node::Boolean => match self.take(1)? {
                [0] => Cell::Bool(false),
                [1] => Cell::Bool(true),
                _ => return Err("a boolean is neither 0 nor 1".into()),
            },
            Node::Int | Node::Date | Node::TimeMillis => Cell::Int(i64::from(self.int()?)),
            Node::Long | Node::TimeMicros | Node::Timestamp { .. } => Cell::Int(self.long()?),
            Node::Float => {
                let value = self.take_array().map(f32::from_le_bytes)?;
                Cell::Float(f64::from(value))
            }
            Node::Double => Cell::Float(self.take_array().map(f64::from_le_bytes)?),
            Node::Bytes => Cell::Bytes(Cow::Borrowed(self.prefixed()?)),
            Node::Fixed(size) => Cell::Bytes(Cow::Borrowed(self.take(*size)?)),
            Node::Text => Cell::Text(self.text()?),
            Node::Enum(symbols) => {
                let place = self.int()?;
                let symbol = usize::try_from(place).ok().and_then(|at| symbols.get(at));
                let symbol = symbol.ok_or_else(|| format!("an enum has no symbol {place}"))?;
                Cell::Text(Cow::Owned(symbol.clone()))
            }
            Node::Array(element) => {
                let mut cells = Vec::new();
                self.blocks(|datums| {
                    cells.push(datums.value(element)?);
                    Ok(())
                })?;
                Cell::List(cells)
            }
            Node::Map(value) => {
                let mut pairs = Vec::new();
                self.blocks(|datums| {
                    let key = Cell::Text(datums.text()?);
                    pairs.push((key, datums.value(value)?));
                    Ok(())
                })?;
                Cell::Map(pairs)
            }
            Node::Record(fields) => {
                let cells: Result<Vec<_>, _> =
                    fields.iter().map(|(_, node)| self.value(node)).collect();
                Cell::Struct(cells?)
            }
            Node::Union(branches, data_type) => self.branch(branches, data_type)?,
            Node::Decimal { size, scale, .. } => {
                let bytes = match size {
                    Some(size) => self.take(*size)?,
                    None => self.prefixed()?,
                };
                self.decimal(bytes, &node.data_type(), *scale)
            }
            Node::Uuid => {
                let bytes = self.take_array()?;
                let text = uuid::Uuid::from_bytes(bytes).hyphenated().to_string();
                Cell::Text(Cow::Owned(text))
            }
            Node::Duration => Cell::Text(Cow::Owned(self.duration()?)),
        })
    }

    /// Reads one branch; where the branches have no type in common, as text.
    fn branch(&mut self, branches: &[Node], data_type: &DataType) -> Result<Cell<'a>, Corrupt> {
        let place = self.long()?;
        let branch = usize::try_from(place).ok().and_then(|at| branches.get(at));
        let branch = branch.ok_or_else(|| format!("a union has no branch {place}"))?;
        let cell = self.value(branch)?;
        let own_type = branch.data_type();
        if *data_type != DataType::Utf8 || own_type == DataType::Utf8 || cell == Cell::Null {
            return Ok(cell);
        }
        let mut column = Column::new(&own_type);
        column.push(cell);
        let array = column.finish("union").map_err(|fault| fault.detail)?;
        match value_text(array.as_ref(), 0) {
            Ok(text) => Ok(Cell::Text(Cow::Owned(text))),
            Err(misfit) => {
                self.refuse(misfit.reason, misfit.why);
                Ok(Cell::Null)
            }
        }
    }

    /// Reads the blocks of an array or a map.
    fn blocks(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<(), Corrupt>,
    ) -> Result<(), Corrupt> {
        loop {
            let count = self.long()?;
            if count == 0 {
                return Ok(());
            }
            // A negative count tells that the size in bytes follows.
            let end = if count < 0 {
                let size = usize::try_from(self.long()?).map_err(|_| "a size is negative")?;
                Some(
                    self.at
                        .checked_add(size)
                        .ok_or("a size is beyond the block")?,
                )
            } else {
                None
            };
            for _ in 0..count.unsigned_abs() {
                let start = self.at;
                item(self)?;
                self.count_free(start)?;
            }
            if end.is_some_and(|end| end != self.at) {
                return Err("an array or map is not as long as it says".into());
            }
        }
    }

    fn text(&mut self) -> Result<Cow<'a, str>, Corrupt> {
        let bytes = self.prefixed()?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Cow::Borrowed(text)),
            Err(_) => {
                self.refuse(RejectReason::InvalidUtf8, "holds a text that is not UTF-8");
                Ok(Cow::Owned(lossless_text(bytes)))
            }
        }
    }

    fn decimal(&mut self, bytes: &[u8], data_type: &DataType, scale: i8) -> Cell<'a> {
        let Some(value) = big_endian(bytes) else {
            let why = if bytes.is_empty() {
                "holds a decimal without bytes"
            } else {
                "holds a decimal that is out of range"
            };
            self.refuse(RejectReason::Overflow, why);
            return Cell::Null;
        };
        match (data_type, value.to_i128()) {
            (DataType::Decimal128(..), Some(value)) => Cell::Decimal(value),
            (DataType::Utf8, _) => {
                // The precision would cut digits beyond it off.
                let text = Decimal256Type::format_decimal(value, u8::MAX, scale);
                Cell::Text(Cow::Owned(text))
            }
            _ => {
                self.refuse(
                    RejectReason::Overflow,
                    "holds a decimal that is out of range",
                );
                Cell::Null
            }
        }
    }

    /// Months, days and milliseconds as ISO 8601.
    fn duration(&mut self) -> Result<String, Corrupt> {
        let months = self.take_array().map(u32::from_le_bytes)?;
        let days = self.take_array().map(u32::from_le_bytes)?;
        let millis = self.take_array().map(u32::from_le_bytes)?;
        let mut text = String::from("P");
        let mut add = |value: u32, unit: &str| {
            if value > 0 {
                // Writing to a text cannot fail.
                let _ = write!(text, "{value}{unit}");
            }
        };
        add(months, "M");
        add(days, "D");
        if millis > 0 || text == "P" {
            let fraction = format!("{:03}", millis % 1000);
            let fraction = fraction.trim_end_matches('0');
            let point = if fraction.is_empty() { "" } else { "." };
            let _ = write!(text, "T{}{point}{fraction}S", millis / 1000);
        }
        Ok(text)
    }

    fn refuse(&mut self, reason: RejectReason, why: impl Into<String>) {
        self.fault.get_or_insert(RecordFault::new(reason, why));
    }

    fn int(&mut self) -> Result<i32, Corrupt> {
        let value = self.long()?;
        i32::try_from(value).map_err(|_| format!("an int is out of range: {value}").into())
    }

    fn long(&mut self) -> Result<i64, Corrupt> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let (value, length) = long(rest).ok_or("a number does not end")?;
        self.at += length;
        Ok(value)
    }

    fn prefixed(&mut self) -> Result<&'a [u8], Corrupt> {
        let length = self.long()?;
        let length = usize::try_from(length).map_err(|_| format!("a length is {length}"))?;
        self.take(length)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Corrupt> {
        let end = self.at.checked_add(length);
        let bytes = end.and_then(|end| self.bytes.get(self.at..end));
        let bytes = bytes.ok_or("a value is longer than its block")?;
        self.at += length;
        Ok(bytes)
    }

    fn take_array<const N: usize>(&mut self) -> Result<[u8; N], Corrupt> {
        let bytes = self.take(N)?.first_chunk::<N>();
        bytes
            .copied()
            .ok_or("a value is longer than its block".into())
    }
}

/// A zigzag number of seven bits a byte, and its length.
pub(super) fn long(bytes: &[u8]) -> Option<(i64, usize)> {
    let mut value: u64 = 0;
    for (place, byte) in bytes.iter().take(10).enumerate() {
        let bits = u64::from(byte & 0x7F);
        // The tenth byte has one bit left.
        if place == 9 && bits > 1 {
            return None;
        }
        value |= bits << (place * 7);
        if byte & 0x80 == 0 {
            let magnitude = i64::try_from(value >> 1).ok()?;
            return Some((magnitude ^ -i64::from(value & 1 == 1), place + 1));
        }
    }
    None
}

/// A number in two's complement of any length.
fn big_endian(bytes: &[u8]) -> Option<i256> {
    let sign = if bytes.first()? & 0x80 == 0 { 0 } else { 0xFF };
    let (surplus, kept) = bytes.split_at(bytes.len().saturating_sub(32));
    let is_extension = surplus.iter().all(|byte| *byte == sign);
    let keeps_sign = kept.first().is_some_and(|byte| (byte ^ sign) & 0x80 == 0);
    let mut whole = [sign; 32];
    whole[32 - kept.len()..].copy_from_slice(kept);
    (is_extension && keeps_sign).then(|| i256::from_be_bytes(whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::TimeUnit;

    fn read(bytes: &[u8], node: &Node) -> Result<Cell<'static>, String> {
        let mut datums = Datums::new(bytes, 10);
        let column = |cell: Cell<'_>| {
            let mut column = Column::new(&node.data_type());
            column.push(cell);
            column.finish("c").unwrap();
        };
        let cell = datums.value(node).map_err(Cow::into_owned)?;
        assert!(datums.is_at_end(), "{node:?}");
        column(cell.clone());
        match datums.fault {
            Some(fault) => Err(fault.detail),
            None => Ok(cell.into_owned()),
        }
    }

    fn decimal(precision: u8, scale: i8) -> Node {
        Node::Decimal {
            size: None,
            precision,
            scale,
        }
    }

    #[test]
    fn bytes_that_are_no_value_are_corrupt_or_refuse_their_record() {
        let list = Node::Array(Box::new(Node::Null));
        let union = Node::Union(vec![Node::Null, Node::Int], DataType::Int32);
        let huge = [&[0xFF; 9][..], &[1, 1]].concat();
        for (bytes, node, why) in [
            (&b"\x02"[..], &Node::Boolean, "neither 0 nor 1"),
            (b"", &Node::Boolean, "longer than its block"),
            (b"\x80", &Node::Long, "does not end"),
            (&[0xFF; 11], &Node::Long, "does not end"),
            (b"\xFE\xFF\xFF\xFF\x1F", &Node::Int, "out of range"),
            (b"\x01", &Node::Text, "a length is -1"),
            (b"\x06ab", &Node::Text, "longer than its block"),
            (b"\x02\xFF", &Node::Text, "not UTF-8"),
            (b"\x04", &union, "no branch 2"),
            (b"\x01", &union, "no branch -1"),
            (
                b"\x04",
                &Node::Enum(vec!["A".into(), "B".into()]),
                "no symbol 2",
            ),
            (&huge, &list, "a size is negative"),
            (b"\x16\0", &list, "too many values without bytes"),
            (b"\x01\x04\0", &list, "not as long as it says"),
            (b"\0", &decimal(10, 2), "without bytes"),
            (
                &[&[0x22, 0x7F][..], &[0; 16]].concat(),
                &decimal(38, 2),
                "out of range",
            ),
            (
                &[&[0x42, 0x7F][..], &[0; 32]].concat(),
                &decimal(76, 2),
                "out of range",
            ),
        ] {
            let error = read(bytes, node).unwrap_err();
            assert!(error.contains(why), "{node:?}: {error}");
        }
    }

    #[test]
    fn every_value_is_read_exactly() {
        let text = |text: &str| Cell::Text(Cow::Owned(text.to_string()));
        let mixed = Node::Union(
            vec![Node::Null, Node::Long, Node::Text, Node::Double],
            DataType::Utf8,
        );
        let record = Node::Record(vec![("a".into(), Node::Int), ("b".into(), Node::Null)]);
        let nanos = Node::Timestamp {
            unit: TimeUnit::Nanosecond,
            is_local: false,
        };
        let longest = [&[0xFF; 9][..], &[1]].concat();
        let large = [&[0x22, 0x01][..], &[0; 16]].concat();
        for (bytes, node, cell) in [
            (&b"\x01"[..], &Node::Boolean, Cell::Bool(true)),
            (b"\x05", &Node::Int, Cell::Int(-3)),
            (&longest, &Node::Long, Cell::Int(i64::MIN)),
            (b"\0\0\xC0\x3F", &Node::Float, Cell::Float(1.5)),
            (b"\0\0\0\0\0\0\xF8\x3F", &Node::Double, Cell::Float(1.5)),
            (b"\x04ab", &Node::Text, text("ab")),
            (
                b"\x04\0\xFF",
                &Node::Bytes,
                Cell::Bytes(vec![0, 255].into()),
            ),
            (b"ab", &Node::Fixed(2), Cell::Bytes(b"ab".to_vec().into())),
            (
                b"\x02",
                &Node::Enum(vec!["A".into(), "B".into()]),
                text("B"),
            ),
            (b"\x02\xFF", &decimal(10, 2), Cell::Decimal(-1)),
            (b"\x06\0\x80\0", &decimal(10, 2), Cell::Decimal(32768)),
            (b"\x06\xFF\xFF\x85", &decimal(40, 2), text("-1.23")),
            (
                &large,
                &decimal(50, 0),
                text("340282366920938463463374607431768211456"),
            ),
            (b"\x02", &nanos, Cell::Int(1)),
            (
                b"\x04\x02\x04\x01\x02\x06\0",
                &Node::Array(Box::new(Node::Int)),
                Cell::List(vec![Cell::Int(1), Cell::Int(2), Cell::Int(3)]),
            ),
            (
                b"\x02\x02k\x03\0",
                &Node::Map(Box::new(Node::Int)),
                Cell::Map(vec![(text("k"), Cell::Int(-2))]),
            ),
            (
                b"\x02",
                &record,
                Cell::Struct(vec![Cell::Int(1), Cell::Null]),
            ),
            (b"\0", &mixed, Cell::Null),
            (b"\x02\x0A", &mixed, text("5")),
            (b"\x04\x025", &mixed, text("5")),
            (b"\x06\0\0\0\0\0\0\xF8\x3F", &mixed, text("1.5")),
            (
                &[0; 16],
                &Node::Uuid,
                text("00000000-0000-0000-0000-000000000000"),
            ),
            (
                b"\x01\0\0\0\x02\0\0\0\xDC\x05\0\0",
                &Node::Duration,
                text("P1M2DT1.5S"),
            ),
            (&[0; 12], &Node::Duration, text("PT0S")),
        ] {
            assert_eq!(read(bytes, node), Ok(cell), "{node:?}");
        }
    }
}
