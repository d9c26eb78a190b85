//! Rows of change tables of Qlik Replicate: all columns whose names begin with `header__` belong to the envelope.
//!
//! The row before an update stands right before it in the same transaction.

use super::flat::{FlatChange, Header};
use super::{Op, fault, place, unknown_op};
use crate::change::RejectReason;
use crate::decode::RecordFault;

const PREFIX: &str = "header__";
const CODE: &str = "header__change_oper";
const OPERATION: &str = "header__operation";
const SEQUENCE: &str = "header__change_seq";
const TRANSACTION: &str = "header__transaction_id";

/// Whether a column is one of the envelope.
pub(super) fn is_header(name: &str) -> bool {
    name.get(..PREFIX.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(PREFIX))
}

/// What a row does.
pub(super) fn change(header: &Header<'_>) -> Result<FlatChange, RecordFault> {
    let op = match (header.get(CODE), header.get(OPERATION)) {
        (Some(code), _) => of_code(code).ok_or_else(|| unknown_op(CODE, code))?,
        (None, Some(word)) => of_word(word).ok_or_else(|| unknown_op(OPERATION, word))?,
        (None, None) => {
            let detail = format!("columns {CODE} and {OPERATION} are NULL or absent");
            return Err(fault(RejectReason::UnknownOp, detail));
        }
    };
    if op == Op::Snapshot {
        return Ok(FlatChange::new(op, Some(String::new())));
    }
    let sequence = header.get(SEQUENCE).and_then(place::long_number);
    let transaction = header.get(TRANSACTION).unwrap_or_default();
    Ok(FlatChange {
        pair: Some(transaction.to_string()),
        ..FlatChange::new(op, sequence)
    })
}

fn of_code(code: &str) -> Option<Op> {
    match code {
        "I" => Some(Op::Insert),
        "U" => Some(Op::Update),
        "D" => Some(Op::Delete),
        "B" => Some(Op::Before),
        "L" => Some(Op::Snapshot),
        _ => None,
    }
}

fn of_word(word: &str) -> Option<Op> {
    match word {
        "INSERT" => Some(Op::Insert),
        "UPDATE" => Some(Op::Update),
        "DELETE" => Some(Op::Delete),
        "BEFOREIMAGE" => Some(Op::Before),
        _ => None,
    }
}
