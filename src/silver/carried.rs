//! Which columns an event carries, where a column of the event lists them (`columns_to_update`).
//!
//! The list is a text, its names apart by commas or as a JSON array, or an array of texts. Without a list, an event
//! carries all columns; keys and sequence are always carried.

use crate::error::Result;
use crate::events::find_column;
use crate::silver::plan::SilverPlan;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use std::collections::HashSet;

/// For each column of the plan, where an event says that it does not carry it; `None` where no column can say so.
pub(super) fn not_carried(
    plan: &SilverPlan,
    rows: &RecordBatch,
) -> Result<Option<Vec<BooleanArray>>> {
    let Some(name) = &plan.columns_to_update else {
        return Ok(None);
    };
    let Some(place) = find_column(&rows.schema(), name) else {
        return Ok(None);
    };
    let lists = lists(rows.column(place))?;
    let mask = |(place, field): (usize, &arrow::datatypes::FieldRef)| {
        let is_always_carried = plan.keys.contains(&place) || plan.sequence.contains(&place);
        let name = field.name().to_lowercase();
        let lacks = |list: &Option<HashSet<String>>| {
            let lists_others = list.as_ref().is_some_and(|list| !list.contains(&name));
            Some(lists_others && !is_always_carried)
        };
        lists.iter().map(lacks).collect()
    };
    Ok(Some(plan.columns.iter().enumerate().map(mask).collect()))
}

/// The names in each row's list, in lower case.
fn lists(column: &ArrayRef) -> Result<Vec<Option<HashSet<String>>>> {
    if let Some(arrays) = column.as_list_opt::<i32>() {
        let names = cast(arrays.values(), &DataType::Utf8)?;
        let names = names.as_string::<i32>();
        let list = |row: usize| {
            let range =
                arrays.value_offsets()[row] as usize..arrays.value_offsets()[row + 1] as usize;
            let named = range.filter(|place| names.is_valid(*place));
            arrays.is_valid(row).then(|| {
                named
                    .map(|place| names.value(place).to_lowercase())
                    .collect()
            })
        };
        return Ok((0..arrays.len()).map(list).collect());
    }
    let texts = cast(column, &DataType::Utf8)?;
    let texts = texts.as_string::<i32>();
    let list = |row: usize| texts.is_valid(row).then(|| names_in(texts.value(row)));
    Ok((0..texts.len()).map(list).collect())
}

fn names_in(text: &str) -> HashSet<String> {
    if let Ok(names) = serde_json::from_str::<Vec<String>>(text) {
        return names.iter().map(|name| name.to_lowercase()).collect();
    }
    let names = text.split(',').map(|name| name.trim().to_lowercase());
    names.filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::StringArray;
    use std::sync::Arc;

    #[test]
    fn list_reads_with_commas_as_json_and_without_regard_to_case() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![
            Some("Status, amount,"),
            Some("[\"status\", \"a,b\"]"),
            Some(""),
            None,
        ]));
        let names = |list: &[&str]| Some(list.iter().map(|name| name.to_string()).collect());
        assert_eq!(
            lists(&texts).unwrap(),
            [
                names(&["status", "amount"]),
                names(&["status", "a,b"]),
                names(&[]),
                None
            ]
        );
    }
}
