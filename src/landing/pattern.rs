//! Glob patterns of the settings and of `reset --files`.
//!
//! `*`, `?`, `[...]`, `**` between slashes, and `{a,b}` for alternatives. Case counts; a wildcard takes neither a `/` nor a
//! leading dot.

use super::decode_name;
use crate::error::{Error, Result};
use glob::{MatchOptions, Pattern};
use std::ffi::OsStr;
use std::path::Path;

/// A pattern on a file name, or on a relative path when it has a `/`.
#[derive(Clone, Debug)]
pub(crate) struct Matcher {
    alternatives: Vec<Pattern>,
    on_path: bool,
}

const MATCHING: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// How many patterns the braces of one pattern may stand for.
const ALTERNATIVES_MAX: usize = 256;

/// Parses a pattern.
pub(crate) fn matcher(pattern: &str) -> Result<Matcher> {
    let invalid =
        |why: &str| Error::settings(format!("glob pattern is not valid: {pattern}: {why}"));
    let mut alternatives = Vec::new();
    for alternative in expand_braces(pattern).map_err(invalid)? {
        alternatives.push(Pattern::new(&alternative).map_err(|error| invalid(error.msg))?);
    }
    Ok(Matcher {
        alternatives,
        on_path: pattern.contains('/'),
    })
}

impl Matcher {
    /// Matches a path in the form of `encode_name`.
    pub(crate) fn matches(&self, path: &str) -> bool {
        let raw = decode_name(path);
        let name = Path::new(&raw).file_name().unwrap_or_default();
        self.matches_raw(&raw.to_string_lossy(), name)
    }

    /// Matches a path as it is on disk, with its last part.
    pub(super) fn matches_raw(&self, path: &str, name: &OsStr) -> bool {
        let name = name.to_string_lossy();
        let text = if self.on_path { path } else { &name };
        self.alternatives
            .iter()
            .any(|pattern| pattern.matches_with(text, MATCHING))
    }
}

/// The patterns that a pattern with braces stands for; a brace inside `[...]` is itself.
fn expand_braces(pattern: &str) -> Result<Vec<String>, &'static str> {
    let mut done = Vec::new();
    let mut open = vec![pattern.to_owned()];
    while let Some(next) = open.pop() {
        match first_group(&next)? {
            None => done.push(next),
            Some((start, end)) => {
                for choice in next[start + 1..end].split(',') {
                    open.push(format!("{}{choice}{}", &next[..start], &next[end + 1..]));
                }
            }
        }
        if done.len() + open.len() > ALTERNATIVES_MAX {
            return Err("its braces stand for too many patterns");
        }
    }
    Ok(done)
}

/// Where the first innermost group in braces opens and closes.
fn first_group(pattern: &str) -> Result<Option<(usize, usize)>, &'static str> {
    let mut start = None;
    let mut class_start = None;
    let bytes = pattern.as_bytes();
    for (at, byte) in pattern.bytes().enumerate() {
        match (class_start, byte) {
            // A `]` right behind the opening, `[` or `[!`, is a member of the class.
            (Some(first), b']') if at > first => class_start = None,
            (Some(_), _) => {}
            (None, b'[') if bytes.get(at + 1) == Some(&b'!') => class_start = Some(at + 2),
            (None, b'[') => class_start = Some(at + 1),
            (None, b'{') => start = Some(at),
            (None, b'}') => match start {
                Some(start) => return Ok(Some((start, at))),
                None => return Err("a brace is closed that was not opened"),
            },
            (None, _) => {}
        }
    }
    if start.is_some() {
        Err("a brace is not closed")
    } else {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        matcher(pattern).unwrap().matches(path)
    }

    #[test]
    fn pattern_that_cannot_be_read_is_an_error_that_names_it() {
        for pattern in ["[a", "{a", "a}", "a***b", "{a,b}}"] {
            let error = matcher(pattern).unwrap_err();
            assert!(error.message().contains(pattern), "{error}");
        }
        assert!(matcher(&"{a,b}".repeat(20)).is_err());
    }

    #[test]
    fn braces_stand_for_each_of_their_alternatives() {
        assert!(matches("*.{json,jsonl}", "a.json") && matches("*.{json,jsonl}", "a.jsonl"));
        assert!(!matches("*.{json,jsonl}", "a.csv"));
        assert!(matches("{a,b{1,2}}{,.gz}", "b2.gz") && matches("{a,b{1,2}}{,.gz}", "a"));
        assert!(matches("[{]a[}]", "{a}") && matches("a[]{]", "a]") && matches("a[!]{]", "ab"));
        assert!(
            matches("{in,out}/*.csv", "out/a.csv") && !matches("{in,out}/*.csv", "out/x/a.csv")
        );
    }

    #[test]
    fn pattern_meets_the_real_name_and_not_its_written_form() {
        assert!(matches("a?b", "a\\x0Ab"), "a newline is one character");
        assert!(!matches("a\\x0Ab", "a\\x0Ab"));
        assert!(matches("*", "bad\\xFF"));
    }
}
