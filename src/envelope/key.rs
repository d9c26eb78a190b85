//! An update that alters the key is two changes: the row of the old key goes, the row of the new key comes, both at the
//! place of the update.

use super::{Change, ColumnValue, Op, Part};
use crate::decode::{Member, RecordFault, Token, members};
use std::borrow::Cow;
use std::collections::HashMap;

/// A change with the row before it, as far as the record tells it.
pub(super) struct WithBefore<'a> {
    pub(super) change: Change<'a>,
    /// Values that are NULL say nothing.
    pub(super) before: Vec<(Cow<'a, str>, ColumnValue<'a>)>,
}

/// The change as it is, or as two.
pub(super) fn split<'a>(
    text: &'a str,
    change: Result<WithBefore<'a>, RecordFault>,
    keys: &[String],
) -> Vec<Part<'a>> {
    let part = |change| Part { text, change };
    let WithBefore { change, before } = match change {
        Ok(change) => change,
        Err(fault) => return vec![part(Err(fault))],
    };
    let is_altered = change.op == Op::Update
        && keys
            .iter()
            .any(|key| is_altered(find(&before, key), find(&change.columns, key)));
    if !is_altered {
        return vec![part(Ok(change))];
    }
    let mut gone = before;
    for key in keys {
        if find(&gone, key).is_none()
            && let Some(kept) = find_column(&change.columns, key)
        {
            gone.retain(|column| !is_named(&column.0, key));
            gone.push(kept.clone());
        }
    }
    let delete = Change {
        op: Op::Delete,
        columns: gone,
        is_partial: false,
        ..change.clone()
    };
    vec![part(Ok(delete)), part(Ok(change))]
}

/// The row after an update, with what the update altered put back.
pub(super) fn put_back<'a>(row: &[Member<'a>], altered: &[Member<'a>]) -> Vec<Member<'a>> {
    let altered: HashMap<&str, Token<'a>> = altered
        .iter()
        .map(|(name, value)| (name.as_ref(), *value))
        .collect();
    let value = |(name, value): &Member<'a>| {
        let old = altered.get(name.as_ref());
        (name.clone(), *old.unwrap_or(value))
    };
    row.iter().map(value).collect()
}

/// The members as plain JSON values.
pub(super) fn plain<'a>(members: Vec<Member<'a>>) -> Vec<(Cow<'a, str>, ColumnValue<'a>)> {
    let plain = |(name, value)| (name, ColumnValue::Json(value));
    members.into_iter().map(plain).collect()
}

fn is_altered(before: Option<Token<'_>>, after: Option<Token<'_>>) -> bool {
    match (before, after) {
        (Some(before), Some(after)) => !is_same(before, after),
        _ => false,
    }
}

/// Texts are one where they read the same, whatever their escapes; a text is never a number.
fn is_same(left: Token<'_>, right: Token<'_>) -> bool {
    match (left, right) {
        (Token::Text { .. }, Token::Text { .. }) => left.text() == right.text(),
        (Token::Nested(left), Token::Nested(right)) => match (members(left), members(right)) {
            (Ok(left), Ok(right)) => left == right,
            (left_fault, right_fault) => {
                left_fault.is_err() && right_fault.is_err() && left == right
            }
        },
        _ => left == right,
    }
}

fn find<'a>(columns: &[(Cow<'a, str>, ColumnValue<'a>)], name: &str) -> Option<Token<'a>> {
    match find_column(columns, name)?.1 {
        ColumnValue::Json(token) | ColumnValue::Connect(token, _) => {
            Some(token).filter(|token| *token != Token::Null)
        }
        ColumnValue::Made(_) => None,
    }
}

fn find_column<'c, 'a>(
    columns: &'c [(Cow<'a, str>, ColumnValue<'a>)],
    name: &str,
) -> Option<&'c (Cow<'a, str>, ColumnValue<'a>)> {
    let exact = columns.iter().find(|column| column.0 == name);
    exact.or_else(|| columns.iter().find(|column| is_named(&column.0, name)))
}

/// As silver finds its keys.
fn is_named(name: &str, key: &str) -> bool {
    name.to_lowercase() == key.to_lowercase()
}
