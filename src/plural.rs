//! Numbers with their noun, for messages.

/// `1 row`, `2 rows`.
pub fn counted(number: u64, one: &str) -> String {
    format!("{number} {one}{}", if number == 1 { "" } else { "s" })
}
