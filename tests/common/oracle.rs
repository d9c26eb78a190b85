//! The fold, dully: what silver must be for a set of events. Shares no code with the crate.

use super::history::{Event, History};
use std::collections::BTreeMap;

/// A row of silver: (key, status, amount in hundredths, seq, deleted).
pub(crate) type Row = (i64, Option<String>, Option<i64>, i64, bool);

/// Sorts each key's events by (seq, file, row) and folds them.
pub(crate) fn silver(history: &History, ignore_null: bool) -> Vec<Row> {
    let mut events: Vec<(&Event, &str, usize)> = Vec::new();
    for (file, lines) in &history.files {
        events.extend(
            lines
                .iter()
                .enumerate()
                .map(|(row, event)| (event, file.as_str(), row)),
        );
    }
    events.sort_by_key(|(event, file, row)| (event.key, event.seq, *file, *row));
    let mut rows: BTreeMap<i64, Row> = BTreeMap::new();
    for (event, _, _) in events {
        let before = rows.get(&event.key).cloned();
        let (old_status, old_amount) = before.map_or((None, None), |row| (row.1, row.2));
        let keep = event.op == 'D' || ignore_null;
        let status = event
            .status
            .clone()
            .or(if keep { old_status } else { None });
        let amount = event.amount.or(if keep { old_amount } else { None });
        rows.insert(
            event.key,
            (event.key, status, amount, event.seq, event.op == 'D'),
        );
    }
    rows.into_values().collect()
}
