//! The settings file and the types in it.

use landfall::schema::{TableSchema, ddl_name, ddl_type, parse_ddl};
use landfall::settings::{Request, Settings};
use std::path::Path;

/// What is printed of columns reads as the same columns.
pub(super) fn ddl(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let _ = TableSchema::from_hints(text);
    let Ok(fields) = parse_ddl(text) else { return };
    let shown = fields
        .iter()
        .map(|field| format!("{} {}", ddl_name(field.name()), ddl_type(field.data_type())));
    let shown: Vec<String> = shown.collect();
    assert_eq!(
        parse_ddl(&shown.join(", ")).expect("what is printed is read"),
        fields
    );
}

/// Stands for a password in the environment.
const SECRET: &str = "zq9secret";

/// The same text gives the same settings or the same error, and no error tells what the environment holds.
pub(super) fn settings(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if text.contains(SECRET) {
        return;
    }
    let environment = |name: &str| match name.len() % 3 {
        0 => None,
        1 => Some(SECRET.to_string()),
        _ => Some("7".to_string()),
    };
    let request = Request {
        environment: &environment,
        ..Request::in_folder(Path::new("/"))
    };
    let first = Settings::load_text(&request, text.to_string());
    let second = Settings::load_text(&request, text.to_string());
    match (first, second) {
        (Ok(first), Ok(second)) => assert_eq!(format!("{first:?}"), format!("{second:?}")),
        (Err(first), Err(second)) => {
            assert_eq!(first.to_string(), second.to_string());
            assert!(
                !first.to_string().is_empty() && !first.to_string().contains("BUG"),
                "{first}"
            );
            assert!(!format!("{first} {first:?}").contains(SECRET), "{first:?}");
        }
        (first, second) => panic!("{first:?} and then {second:?}"),
    }
}
