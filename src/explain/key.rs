//! The key that was asked for: `--key COLUMN=VALUE` as typed columns.
//!
//! Every key column is named once, and each value reads exactly as its column's type; anything else is the fault of the
//! command line.

use crate::decode::value_of_text;
use crate::error::{Error, Result};
use crate::schema::ddl_type;
use crate::settings::SourceSettings;
use arrow::array::ArrayRef;
use arrow::datatypes::FieldRef;

/// The value given for each of `keys`, in their order.
pub(super) fn given_values<'a>(
    pipeline: &str,
    keys: &[String],
    given: &'a [String],
) -> Result<Vec<&'a str>> {
    let mut values: Vec<Option<&str>> = vec![None; keys.len()];
    for text in given {
        let Some((place, value)) = split(keys, text) else {
            return Err(no_such_key(pipeline, keys, text));
        };
        if values[place].replace(value).is_some() {
            let message = format!("key column {} is given twice", keys[place]);
            return Err(Error::settings(message).hint("explain shows the events of one key"));
        }
    }
    let missing: Vec<&str> = keys
        .iter()
        .zip(&values)
        .filter(|(_, value)| value.is_none())
        .map(|(name, _)| name.as_str())
        .collect();
    if !missing.is_empty() {
        let message = format!("no value for key column {}", missing.join(", "));
        return Err(Error::settings(message).hint(usage(pipeline, keys)));
    }
    Ok(values.into_iter().flatten().collect())
}

/// The values as columns of one row.
pub(super) fn typed_values(
    fields: &[FieldRef],
    values: &[&str],
    source: &SourceSettings,
) -> Result<Vec<ArrayRef>> {
    let types: Vec<String> = fields
        .iter()
        .map(|field| format!("{} {}", field.name(), ddl_type(field.data_type())))
        .collect();
    let typed = |(field, value): (&FieldRef, &&str)| {
        value_of_text(value, field.data_type(), source).map_err(|why| {
            let (name, data_type) = (field.name(), ddl_type(field.data_type()));
            Error::settings(format!("key column {name} {data_type}: {value:?} {why}"))
                .hint(format!("the key is {}", types.join(", ")))
        })
    };
    fields.iter().zip(values).map(typed).collect()
}

/// The key column that a text begins with, and the value behind `=`. A name may hold `=` itself.
fn split<'a>(keys: &[String], text: &'a str) -> Option<(usize, &'a str)> {
    let value = |name: &str, ignores_case: bool| {
        let (before, after) = text.split_at_checked(name.len())?;
        let is_it = match ignores_case {
            true => before.to_lowercase() == name.to_lowercase(),
            false => before == name,
        };
        after.strip_prefix('=').filter(|_| is_it)
    };
    let found = |ignores_case: bool| {
        let hits = keys.iter().enumerate();
        let hits = hits.filter_map(|(place, name)| Some((place, value(name, ignores_case)?)));
        // The longest name, should one begin with another and an equals sign.
        hits.min_by_key(|(_, value)| value.len())
    };
    found(false).or_else(|| found(true))
}

fn no_such_key(pipeline: &str, keys: &[String], text: &str) -> Error {
    let message = match text.split_once('=') {
        Some((name, _)) => format!("pipeline {pipeline} has no key column {name}"),
        None => format!("--key is COLUMN=VALUE, not {text:?}"),
    };
    Error::settings(message).hint(usage(pipeline, keys))
}

fn usage(pipeline: &str, keys: &[String]) -> String {
    let flags: Vec<String> = keys
        .iter()
        .map(|name| format!("--key {name}=VALUE"))
        .collect();
    format!("landfall explain {pipeline} {}", flags.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(keys: &[&str], given: &[&str]) -> Result<Vec<String>, String> {
        let texts = |list: &[&str]| list.iter().map(|text| text.to_string()).collect::<Vec<_>>();
        let given = texts(given);
        let values = given_values("orders", &texts(keys), &given);
        let values = values.map_err(|error| {
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        })?;
        Ok(values.into_iter().map(str::to_string).collect())
    }

    #[test]
    fn key_that_is_not_given_whole_is_refused_and_says_how() {
        for (given, message) in [
            (&["id=1"][..], "no value for key column shop\n"),
            (
                &["id=1", "id=2", "shop=a"],
                "key column id is given twice\n",
            ),
            (
                &["id=1", "city=a"],
                "pipeline orders has no key column city\n",
            ),
            (&["id"], "--key is COLUMN=VALUE, not \"id\"\n"),
        ] {
            let error = values(&["id", "shop"], given).unwrap_err();
            assert!(error.starts_with(message), "{error}");
            let says_how = error.contains("--key id=VALUE --key shop=VALUE");
            assert!(says_how || error.contains("one key"), "{error}");
        }
    }

    #[test]
    fn values_come_in_the_order_of_the_keys_and_may_hold_anything() {
        let given = ["shop=a=b \"c\"", "ID="];
        let expected = Ok(vec![String::new(), "a=b \"c\"".to_string()]);
        assert_eq!(values(&["id", "shop"], &given), expected);
    }

    #[test]
    fn longest_name_counts_where_one_begins_with_another() {
        let given = ["a=b=1", "a=2"];
        let expected = Ok(vec!["2".to_string(), "1".to_string()]);
        assert_eq!(values(&["a", "a=b"], &given), expected);
    }
}
