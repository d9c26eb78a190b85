//! Chooses the files to look at, reads their beginnings and recognizes their formats.
//!
//! Both the number of files and what is read of each are bounded; a file that cannot be read is named and left out. A format
//! is what the loader itself makes of name and first bytes, or CSV where the records are plainly such.

use super::dialect;
use crate::change::{FileFault, ParkReason};
use crate::decode::Head;
use crate::error::Result;
use crate::landing::{Filter, ReadFault, decode_name, open_file};
use crate::schema::TableSchema;
use crate::settings::{Format, SourceSettings};
use std::path::Path;

/// So many files of a table are looked at.
pub(super) const SAMPLE_FILES_MAX: usize = 16;

/// The beginnings of some files of a landing folder.
#[derive(Debug, Default)]
pub(super) struct Sample {
    /// Files of a format that is known and with something in them, in the order of the paths.
    pub(super) files: Vec<SampleFile>,
    /// Path of each file that cannot be read, and why.
    pub(super) faults: Vec<(String, FileFault)>,
    /// How many files were chosen.
    pub(super) chosen: usize,
}

/// One file that was recognized.
#[derive(Debug)]
pub(super) struct SampleFile {
    pub(super) path: String,
    pub(super) head: Head,
    pub(super) format: Format,
    /// The loader knows the format by name or first bytes; otherwise it must be set.
    pub(super) is_plain: bool,
}

/// Reads up to `files_max` of the files, evenly from the first to the last.
pub(super) fn take(
    root: &Path,
    files: &[String],
    files_max: usize,
    defaults: &SourceSettings,
) -> Result<Sample> {
    let mut sample = Sample::default();
    for path in evenly(files, files_max) {
        sample.chosen += 1;
        let head = open_file(root, path)
            .map_err(as_fault)
            .and_then(|file| Head::read(path, file));
        let file = match head {
            Ok(head) if head.is_empty() => continue,
            Ok(head) => recognized(path, head, defaults)?,
            Err(fault) => Err(fault),
        };
        match file {
            Ok(file) => sample.files.push(file),
            Err(fault) => sample.faults.push((path.clone(), fault)),
        }
    }
    Ok(sample)
}

impl Sample {
    /// Why nothing is known of any file.
    pub(super) fn fault(&self) -> Option<FileFault> {
        if !self.files.is_empty() {
            return None;
        }
        let named = |(path, fault): &(String, FileFault)| {
            FileFault::new(fault.reason, format!("{path}: {}", fault.detail))
        };
        let empty = || FileFault::new(ParkReason::NotThisFormat, "all files are empty");
        Some(self.faults.first().map_or_else(empty, named))
    }
}

fn recognized(
    path: &str,
    head: Head,
    defaults: &SourceSettings,
) -> Result<Result<SampleFile, FileFault>> {
    let known = match head.format(defaults) {
        Ok(Format::Json) if !takes(&Filter::new(Format::Json, None, &[])?, path) => {
            json_record(&head, defaults)?.map(|()| (Format::Json, true))
        }
        Ok(format) => Ok((format, true)),
        Err(_) if dialect::is_csv(&head) => Ok((Format::Csv, false)),
        Err(fault) => Err(fault),
    };
    Ok(known.map(|(format, is_plain)| SampleFile {
        path: path.to_string(),
        head,
        format,
        is_plain,
    }))
}

/// A bracket at the beginning alone makes no JSON of a file of another name; a record does, on its line or in a document.
fn json_record(head: &Head, defaults: &SourceSettings) -> Result<Result<(), FileFault>> {
    let none = TableSchema::from_hints("")?;
    let records = |multi_line: bool| {
        head.decode(&none, &as_json(head, multi_line, defaults))
            .and_then(
                |decoded| match (decoded.positions.first(), decoded.rejects.first()) {
                    (None, Some(reject)) => {
                        let detail = format!("no record of it is a JSON line: {}", reject.detail);
                        Err(FileFault::new(ParkReason::NotThisFormat, detail))
                    }
                    _ => Ok(()),
                },
            )
    };
    Ok(match records(true) {
        Ok(()) => Ok(()),
        Err(_) => records(false),
    })
}

/// The settings with which the file may be JSON.
pub(super) fn as_json(head: &Head, multi_line: bool, settings: &SourceSettings) -> SourceSettings {
    let mut settings = settings.clone();
    settings.json.encoding = head.encoding();
    settings.json.multi_line = multi_line;
    settings
}

/// Whether the pattern takes the file.
pub(super) fn takes(filter: &Filter, path: &str) -> bool {
    let raw = decode_name(path);
    let name = Path::new(&raw).file_name().unwrap_or_default();
    filter.takes(&raw.to_string_lossy(), name)
}

fn evenly(files: &[String], files_max: usize) -> Vec<&String> {
    match files_max {
        _ if files.len() <= files_max => files.iter().collect(),
        0 | 1 => files.iter().take(files_max).collect(),
        _ => (0..files_max)
            .map(|place| &files[place * (files.len() - 1) / (files_max - 1)])
            .collect(),
    }
}

fn as_fault(fault: ReadFault) -> FileFault {
    let gone = |detail: &str| FileFault::new(ParkReason::Vanished, detail);
    match fault {
        ReadFault::Unreadable(fault) => fault,
        ReadFault::Vanished => gone("the file is gone"),
        ReadFault::Changed => gone("the file is no regular file any more"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::defaults;
    use super::*;

    #[test]
    fn file_that_is_gone_is_named_and_the_others_are_read() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.json"), "{}").unwrap();
        let files = ["a.json".to_string(), "b.json".to_string()];
        let sample = take(folder.path(), &files, 2, &defaults().unwrap()).unwrap();
        assert_eq!(
            (sample.files.len(), sample.files[0].path.as_str()),
            (1, "a.json")
        );
        assert_eq!(sample.faults[0].0, "b.json");
    }

    #[test]
    fn bracket_alone_makes_no_json_of_a_file_of_another_name() {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("a.toml", "[table]\n"),
            ("b.log", "{\"a\": 1}\n"),
            ("c", ""),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let files = ["a.toml", "b.log", "c"].map(str::to_string);
        let sample = take(folder.path(), &files, 3, &defaults().unwrap()).unwrap();
        assert_eq!(
            (sample.chosen, sample.files.len(), sample.faults.len()),
            (3, 1, 1)
        );
        assert_eq!(
            (sample.files[0].format, sample.faults[0].0.as_str()),
            (Format::Json, "a.toml")
        );
    }

    #[test]
    fn first_and_last_file_are_in_every_sample_of_two() {
        let files: Vec<String> = (0..100).map(|number| format!("{number:02}")).collect();
        let chosen =
            |files_max| -> Vec<String> { evenly(&files, files_max).into_iter().cloned().collect() };
        assert!(chosen(0).is_empty());
        assert_eq!(chosen(1), ["00"]);
        assert_eq!(chosen(2), ["00", "99"]);
        assert_eq!(chosen(4), ["00", "33", "66", "99"]);
        assert_eq!(chosen(1000).len(), 100);
    }
}
