//! The settings that silver was made with, kept in the table: other ones would make other rows of the same events.

use super::SilverTable;
use crate::change::PRESENT_COLUMNS;
use crate::error::{Error, Result};
use crate::settings::{ColumnSelection, Deletes, EventRules, IgnoreNullUpdates, ScdType};
use std::collections::{BTreeMap, BTreeSet};

/// The table property that keeps the settings silver was made with.
pub(super) const SETTINGS_PROPERTY: &str = "landfall.silver";

impl SilverTable {
    /// What of the settings decides which rows silver has, in the words of the settings file.
    fn settings_by_name(&self) -> BTreeMap<&'static str, String> {
        let settings = &self.settings;
        let mut words = BTreeMap::from([
            ("keys", list_text(&settings.keys)),
            ("sequence_by", list_text(&settings.sequence_by)),
        ]);
        match &settings.columns {
            ColumnSelection::AllExcept(list) => words.insert("except_column_list", list_text(list)),
            ColumnSelection::Only(list) => words.insert("column_list", list_text(list)),
        };
        match &settings.events {
            EventRules::Predicates { deletes, truncates } => {
                if let Some(truncates) = truncates {
                    words.insert("apply_as_truncates", format!("{truncates:?}"));
                }
                let deletes = deletes.as_deref().unwrap_or_default();
                words.insert("apply_as_deletes", format!("{deletes:?}"))
            }
            EventRules::Operations {
                column,
                upsert,
                delete,
                truncate,
                skip,
            } => {
                let lists = [
                    ("upsert", upsert),
                    ("delete", delete),
                    ("truncate", truncate),
                    ("skip", skip),
                ];
                let is_named =
                    |(name, list): &(&str, &Vec<String>)| *name != "truncate" || !list.is_empty();
                let lists: Vec<String> = lists
                    .into_iter()
                    .filter(is_named)
                    .map(|(name, list)| format!("{name} = {}", list_text(list)))
                    .collect();
                words.insert(
                    "operations",
                    format!("{{ column = {column:?}, {} }}", lists.join(", ")),
                )
            }
        };
        if settings.snapshots {
            words.insert("snapshot_version", "\"column\" or \"file_name\"".into());
        }
        // A setting that came later stands only where it is given, so that a silver made before it still fits.
        match settings.columns_to_update.as_deref() {
            Some(PRESENT_COLUMNS) => words.insert("absent_columns", "\"keep\"".into()),
            Some(column) => words.insert("columns_to_update", format!("{column:?}")),
            None => None,
        };
        if let ScdType::Two { tracked } = &settings.scd_type {
            words.insert("stored_as_scd_type", "2".into());
            match tracked {
                ColumnSelection::AllExcept(list) => {
                    words.insert("track_history_except_column_list", list_text(list))
                }
                ColumnSelection::Only(list) => {
                    words.insert("track_history_column_list", list_text(list))
                }
            };
        }
        words.insert(
            "ignore_null_updates",
            match &settings.ignore_null_updates {
                IgnoreNullUpdates::Never => "false".into(),
                IgnoreNullUpdates::All => "true".into(),
                IgnoreNullUpdates::Columns(list) => list_text(list),
            },
        );
        if matches!(settings.scd_type, ScdType::One) {
            let word = match settings.deletes {
                Deletes::Soft => "\"soft\"",
                Deletes::Hard => "\"hard\"",
            };
            words.insert("deletes", word.into());
        }
        words.insert(
            "unavailable_value",
            format!(
                "{:?}",
                self.unavailable_value.as_deref().unwrap_or_default()
            ),
        );
        words
    }

    pub(super) fn settings_text(&self) -> String {
        let text = serde_json::to_string(&self.settings_by_name());
        text.expect("a map of texts is always JSON")
    }

    pub(super) fn check_settings(&self) -> Result<()> {
        let Some(table) = &self.table else {
            return Ok(());
        };
        let Some(text) = table.property(SETTINGS_PROPERTY) else {
            let message = format!(
                "{} is a Delta table that this loader did not make",
                table.root().display()
            );
            return Err(Error::disagreement(message).hint("name another silver path"));
        };
        let made_with: BTreeMap<String, String> = serde_json::from_str(text).map_err(|error| {
            Error::disagreement(format!(
                "property {SETTINGS_PROPERTY} of silver does not read: {error}"
            ))
        })?;
        let present = self.settings_by_name();
        let present: BTreeMap<&str, &str> = present
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let before: BTreeMap<&str, &str> = made_with
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let names: BTreeSet<&str> = before.keys().chain(present.keys()).copied().collect();
        let value = |of: &BTreeMap<&str, &str>, name: &str| {
            of.get(name)
                .map_or("nothing".to_string(), |value| value.to_string())
        };
        let differing = names
            .into_iter()
            .filter(|name| before.get(name) != present.get(name));
        let told: Vec<String> = differing
            .map(|name| {
                let (was, is) = (value(&before, name), value(&present, name));
                format!("{name} = {was}, the settings say {is}")
            })
            .collect();
        if told.is_empty() {
            return Ok(());
        }
        Err(
            Error::settings(format!("silver was made with {}", told.join("; with ")))
                .hint("put the setting back, or run: landfall rebuild PIPELINE silver"),
        )
    }
}

fn list_text(list: &[String]) -> String {
    format!("{list:?}")
}
