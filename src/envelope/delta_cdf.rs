//! The change data feed of a Delta table, as rows: `_change_type`, `_commit_version`, `_commit_timestamp`.
//!
//! The rows of one commit have no order among themselves; a key that goes and comes in one commit is there afterwards.

use super::flat::{FlatChange, Header};
use super::{Op, fault, place, unknown_op};
use crate::change::RejectReason;
use crate::decode::RecordFault;

const TYPE: &str = "_change_type";
const VERSION: &str = "_commit_version";
const TIME: &str = "_commit_timestamp";

/// Whether a column is one of the feed.
pub(super) fn is_header(name: &str) -> bool {
    [TYPE, VERSION, TIME].contains(&name)
}

/// What a row of the feed does.
pub(super) fn change(header: &Header<'_>) -> Result<FlatChange, RecordFault> {
    let (op, rank) = match header.get(TYPE) {
        Some("insert") => (Op::Insert, 1),
        Some("update_postimage") => (Op::Update, 1),
        Some("update_preimage") => (Op::Before, 0),
        Some("delete") => (Op::Delete, 0),
        Some(word) => return Err(unknown_op(TYPE, word)),
        None => {
            let detail = format!("column {TYPE} is NULL or absent; is this a change data feed?");
            return Err(fault(RejectReason::UnknownOp, detail));
        }
    };
    let version = header.get(VERSION).and_then(place::number);
    let sequence = version.map(|version| format!("{version}:{rank}"));
    Ok(FlatChange::new(op, sequence))
}
