//! Values of the environment that must not be told.
//!
//! Whatever text may hold one, such as the words of a library about a setting, goes through [`without_secrets`] before
//! it is printed. Which variables hold a secret is told by their names.

use std::sync::RwLock;

/// A variable with one of these in its name, in any case, holds a secret.
const WORDS: &[&str] = &[
    "secret",
    "passw",
    "passphrase",
    "token",
    "credential",
    "access_key",
    "account_key",
    "api_key",
    "apikey",
    "private_key",
    "signature",
];

/// What was read so far: each value with what stands in its place, longer values first.
static SECRETS: RwLock<Vec<(String, String)>> = RwLock::new(Vec::new());

/// The value of a variable for the settings. One that is a secret is remembered.
pub(crate) fn environment(name: &str) -> Option<String> {
    let value = std::env::var(name).ok()?;
    if is_secret(name) {
        let mut secrets = SECRETS
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        remember(&mut secrets, name, &value);
    }
    Some(value)
}

/// The text with the names of variables in the place of their secret values.
pub(crate) fn without_secrets(text: &str) -> String {
    let secrets = SECRETS
        .read()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    hide(&secrets, text)
}

fn is_secret(name: &str) -> bool {
    let name = name.to_lowercase();
    WORDS.iter().any(|word| name.contains(word))
}

fn remember(secrets: &mut Vec<(String, String)>, name: &str, value: &str) {
    // Messages quote some values, names of files have their backslashes doubled, and a library may lower the case.
    let forms = [
        value.to_string(),
        value.escape_debug().to_string(),
        value.replace('\\', "\\\\"),
        value.to_lowercase(),
    ];
    for form in forms {
        if !form.is_empty() && !secrets.iter().any(|(known, _)| *known == form) {
            secrets.push((form, format!("${{{name}}}")));
        }
    }
    secrets.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
}

fn hide(secrets: &[(String, String)], text: &str) -> String {
    secrets
        .iter()
        .fold(text.to_string(), |text, (value, name)| {
            text.replace(value, name)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_is_secret() {
        for name in ["DB_PASSWORD", "AWS_SECRET_ACCESS_KEY", "github_token"] {
            assert!(is_secret(name), "{name}");
        }
        for name in ["HOME", "PWD", "KEY_COLUMN", "TABLE"] {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn every_form_of_a_value_is_hidden_the_longest_first() {
        let mut secrets = Vec::new();
        remember(&mut secrets, "A_TOKEN", "Ab\\\"c");
        remember(&mut secrets, "B_TOKEN", "Ab\\\"cd");
        remember(&mut secrets, "C_TOKEN", "");
        assert_eq!(
            hide(&secrets, r#"x Ab\"cd, ab\"c, Ab\\"c and "Ab\\\"c""#),
            "x ${B_TOKEN}, ${A_TOKEN}, ${A_TOKEN} and \"${A_TOKEN}\""
        );
    }
}
