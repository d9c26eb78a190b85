//! Rows of change tables of SQL Server: all columns whose names begin with `__$` belong to the envelope.
//!
//! The rows of a transaction share the place of its commit; inside of it another place counts. The row before an update
//! and the row after it share both and stand one behind the other.

use super::flat::{FlatChange, Header};
use super::{Op, fault, place, unknown_op};
use crate::change::RejectReason;
use crate::decode::RecordFault;
use base64::Engine;

const PREFIX: &str = "__$";
const OPERATION: &str = "__$operation";
const COMMIT: &str = "__$start_lsn";
const CHANGE: &str = "__$seqval";

/// The bytes of a place.
const LSN_BYTES: usize = 10;

/// Whether a column is one of the envelope.
pub(super) fn is_header(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// What a row of a change table does.
pub(super) fn change(header: &Header<'_>) -> Result<FlatChange, RecordFault> {
    // An update that is told as delete and insert has both at one place, the delete first.
    let (op, rank) = match header.get(OPERATION) {
        Some("1") => (Op::Delete, 1),
        Some("2") => (Op::Insert, 2),
        Some("3") => (Op::Before, 4),
        Some("4") => (Op::Update, 4),
        Some("5") => (Op::Update, 5),
        Some(code) => return Err(unknown_op(OPERATION, code)),
        None => {
            let detail = format!("column {OPERATION} is NULL or absent; it says 1 to 5");
            return Err(fault(RejectReason::UnknownOp, detail));
        }
    };
    let lsn = |name: &str| header.get(name).and_then(lsn_place);
    let sequence = match (lsn(COMMIT), lsn(CHANGE), header.has(CHANGE)) {
        (Some(commit), Some(change), _) => Some(format!("{commit}:{change}:{rank}")),
        // Net changes are one a key and transaction.
        (Some(commit), None, false) => Some(format!("{commit}:{}:{rank}", place::hex_zero())),
        _ => None,
    };
    Ok(FlatChange {
        pair: sequence.clone(),
        ..FlatChange::new(op, sequence)
    })
}

/// A place as hexadecimal digits, or as its bytes in base64.
fn lsn_place(text: &str) -> Option<String> {
    place::hex(text).or_else(|| {
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(text)
            .ok()?;
        let digits: String = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
        (bytes.len() == LSN_BYTES).then(|| place::hex(&digits))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_one_however_it_is_written() {
        let place = place::hex("0000002A000001B00003");
        for text in [
            "0x0000002A000001B00003",
            "0x0000002a000001b00003",
            "0000002A:000001B0:0003",
            "AAAAKgAAAbAAAw==",
        ] {
            assert_eq!(lsn_place(text), place, "{text}");
        }
        for text in ["", "AAAw", "somewhere", "0x"] {
            assert_eq!(lsn_place(text), None, "{text:?}");
        }
    }
}
