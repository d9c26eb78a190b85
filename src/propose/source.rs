//! Tells the format of the files, and from it the settings of the source.
//!
//! What is proposed is what the loader itself makes of the names and the first bytes. Columns are left to `columns`.

use super::dialect::{self, Dialect};
use super::sample::{Sample, SampleFile, takes};
use super::write::{self, Line, Sureness, all_shown, shown};
use crate::change::FileFault;
use crate::decode::Head;
use crate::error::Result;
use crate::landing::Filter;
use crate::plural::counted;
use crate::settings::{Format, SourceSettings};
use std::collections::{BTreeMap, BTreeSet};

/// How the files of a landing folder are read.
#[derive(Debug)]
pub(super) struct Source {
    /// As they will be when the lines are loaded.
    pub(super) settings: SourceSettings,
    pub(super) lines: Vec<Line>,
    pub(super) csv_lines: Vec<Line>,
    /// What the user should know beside the lines.
    pub(super) notes: Vec<String>,
    /// Fields of a record of CSV without a header; they need names.
    pub(super) unnamed: Option<usize>,
}

/// The source of the sampled files; `files` are all that were listed.
pub(super) fn tell(sample: &Sample, files: &[String], defaults: &SourceSettings) -> Result<Source> {
    let mut source = Source {
        settings: defaults.clone(),
        lines: Vec::new(),
        csv_lines: Vec::new(),
        notes: Vec::new(),
        unnamed: None,
    };
    source.tell_format(&sample.files, files)?;
    source.tell_dialect(&sample.files);
    let faults = sample.faults.iter().take(NOTED_FAULTS_MAX);
    let as_note =
        |(path, fault): &(String, FileFault)| format!("{path} cannot be read: {}", fault.detail);
    source.notes.extend(faults.map(as_note));
    Ok(source)
}

/// So many files that cannot be read are named.
const NOTED_FAULTS_MAX: usize = 5;

impl Source {
    fn tell_format(&mut self, known: &[SampleFile], files: &[String]) -> Result<()> {
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for file in known {
            *kinds.entry(word(file.format)).or_default() += 1;
        }
        let seen = seen_text(&kinds, known);
        let format = match known {
            [first, ..] if kinds.len() == 1 => first.format,
            _ => Format::Auto,
        };
        match (format, strays(known, format)?.first()) {
            (Format::Auto, _) => self.several_formats(known, &seen),
            (_, None) => {
                self.set_format(format, format!("sure: {seen}"));
                self.note_left_out(format, files)?;
            }
            (Format::Csv, Some(stray)) => {
                self.set_format(format, format!("likely: {seen}"));
                self.set_pattern(pattern(known), stray);
            }
            (_, Some(stray)) => {
                let stray = shown(stray);
                let why = format!("sure: {seen}; not all names end so, such as {stray}");
                self.set_format(Format::Auto, why);
            }
        }
        Ok(())
    }

    fn several_formats(&mut self, known: &[SampleFile], seen: &str) {
        let why = format!("sure: files of several formats: {seen}");
        self.set_format(Format::Auto, why);
        let unread = known.iter().filter(|file| !file.is_plain);
        let unread: Vec<&str> = unread.map(|file| file.path.as_str()).collect();
        if !unread.is_empty() {
            self.notes.push(format!(
                "files that look like CSV are not taken for it beside other formats: {}; end their names with .csv, or move them to a folder of their own",
                all_shown(&unread)
            ));
        }
    }

    fn set_pattern(&mut self, pattern: String, stray: &str) {
        let stray = shown(stray);
        let why = format!("sure: without it only *.csv and *.tsv are taken, not {stray}");
        let value = write::text(&pattern);
        self.lines.push(Line::told("path_glob_filter", value, why));
        self.settings.path_glob_filter = Some(pattern);
    }

    fn set_format(&mut self, format: Format, why: String) {
        self.settings.format = format;
        self.lines
            .push(Line::told("format", write::text(word(format)), why));
    }

    /// Names that the default pattern of the format does not take.
    fn note_left_out(&mut self, format: Format, files: &[String]) -> Result<()> {
        let filter = Filter::new(format, None, &[])?;
        let left_out: Vec<&String> = files.iter().filter(|path| !takes(&filter, path)).collect();
        if let Some(first) = left_out.first() {
            self.notes.push(format!(
                "{} not taken by name, such as {}; set path_glob_filter to change that",
                counted(left_out.len() as u64, "file"),
                shown(first)
            ));
        }
        Ok(())
    }

    fn tell_dialect(&mut self, known: &[SampleFile]) {
        let csv = known.iter().filter(|file| file.format == Format::Csv);
        let heads: Vec<&Head> = csv.map(|file| &file.head).collect();
        if heads.is_empty() {
            return;
        }
        let dialect = dialect::tell(&heads);
        self.settings.csv.delimiter = dialect.delimiter;
        self.settings.csv.header = dialect.header;
        let delimiter = write::text(&char::from(dialect.delimiter).to_string());
        let header = dialect.header.to_string();
        self.csv_lines = vec![
            Line::told("delimiter", delimiter, delimiter_text(&dialect)),
            Line::told("header", header, header_text(&dialect)),
        ];
        self.unnamed = (!dialect.header).then_some(dialect.width);
    }
}

fn delimiter_text(dialect: &Dialect) -> String {
    match dialect.delimiter_sureness {
        Sureness::Guess if dialect.width == 1 => "guess: no delimiter was found".to_string(),
        Sureness::Guess => "guess: the files differ in it".to_string(),
        sureness @ (Sureness::Sure | Sureness::Likely) => {
            let fields = counted(dialect.width as u64, "field");
            format!("{sureness}: most records have {fields}")
        }
    }
}

fn header_text(dialect: &Dialect) -> &'static str {
    match (dialect.header, dialect.header_sureness) {
        (true, Sureness::Sure) => "sure: the first record is unlike the others",
        (true, Sureness::Likely | Sureness::Guess) => {
            "guess: the first record could be names; if it is data, set this to false and name the columns in schema_hints"
        }
        (false, Sureness::Sure | Sureness::Likely) => {
            "likely: the first record holds values; the names of the columns stand in schema_hints"
        }
        (false, Sureness::Guess) => "guess: some files seem to begin with names and most do not",
    }
}

/// Files whose name the default pattern of their format does not take.
fn strays(known: &[SampleFile], format: Format) -> Result<Vec<&str>> {
    let filter = Filter::new(format, None, &[])?;
    let paths = known.iter().map(|file| file.path.as_str());
    Ok(paths.filter(|path| !takes(&filter, path)).collect())
}

/// The pattern of the endings of the files; all files where one has no plain ending.
fn pattern(known: &[SampleFile]) -> String {
    let mut endings = BTreeSet::new();
    for file in known {
        let name = file.path.rsplit('/').next().unwrap_or(&file.path);
        let unpacked = file.head.name().rsplit('/').next().unwrap_or(name);
        let ending = match unpacked.rfind('.') {
            Some(dot) => &name[dot + 1..],
            None => return "*".to_string(),
        };
        if !ending
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '.')
        {
            return "*".to_string();
        }
        endings.insert(ending);
    }
    let endings: Vec<&str> = endings.into_iter().collect();
    match endings.as_slice() {
        [one] => format!("*.{one}"),
        several => format!("*.{{{}}}", several.join(",")),
    }
}

fn seen_text(kinds: &BTreeMap<&str, usize>, known: &[SampleFile]) -> String {
    let counts: Vec<String> = kinds
        .iter()
        .map(|(word, count)| format!("{count} {word}"))
        .collect();
    let files = counted(known.len() as u64, "file");
    format!(
        "{} of {files} looked at{}",
        counts.join(", "),
        packed_text(known)
    )
}

fn packed_text(known: &[SampleFile]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for packing in known.iter().filter_map(|file| file.head.packing()) {
        *counts.entry(packing).or_default() += 1;
    }
    counts
        .iter()
        .map(|(packing, count)| format!(", {count} packed with {packing}"))
        .collect()
}

fn word(format: Format) -> &'static str {
    match format {
        Format::Json => "json",
        Format::Csv => "csv",
        Format::Parquet => "parquet",
        Format::Avro => "avro",
        Format::Auto => "auto",
    }
}

#[cfg(test)]
mod tests {
    use super::super::{defaults, sample};
    use super::*;
    use std::fs;

    fn source(files: &[(&str, &[u8])]) -> Source {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            fs::write(folder.path().join(name), bytes).unwrap();
        }
        let names: Vec<String> = files.iter().map(|(name, _)| name.to_string()).collect();
        let defaults = defaults().unwrap();
        let sample = sample::take(folder.path(), &names, 16, &defaults).unwrap();
        tell(&sample, &names, &defaults).unwrap()
    }

    fn choice(files: &[(&str, &[u8])]) -> (Format, Option<String>, usize) {
        let source = source(files);
        (
            source.settings.format,
            source.settings.path_glob_filter,
            source.notes.len(),
        )
    }

    #[test]
    fn one_format_is_set_and_several_are_auto() {
        let json: &[u8] = b"{\"a\": 1}\n";
        let csv: &[u8] = b"a,b\n1,2\n";
        assert_eq!(choice(&[("a.jsonl", json)]), (Format::Json, None, 0));
        assert_eq!(
            choice(&[("a.jsonl", json), ("b.csv", csv)]),
            (Format::Auto, None, 0)
        );
        assert_eq!(
            choice(&[("part-0", json), ("part-1", json)]),
            (Format::Auto, None, 0)
        );
        assert_eq!(
            choice(&[("a.jsonl", json), ("b.txt", csv)]),
            (Format::Auto, None, 1)
        );
    }

    #[test]
    fn csv_of_other_names_gets_a_pattern() {
        let csv: &[u8] = b"a,b\n1,2\n";
        let with = |names: &[&str]| {
            let files: Vec<(&str, &[u8])> = names.iter().map(|name| (*name, csv)).collect();
            choice(&files).1.unwrap()
        };
        assert_eq!(with(&["a.txt", "b.txt"]), "*.txt");
        assert_eq!(with(&["a.dat", "b.txt"]), "*.{dat,txt}");
        assert_eq!(with(&["a.d[t", "b.txt"]), "*");
        let packed = zstd::encode_all(csv, 1).unwrap();
        let pattern = choice(&[("x.y.txt.zst", &packed)]).1;
        assert_eq!(pattern.as_deref(), Some("*.txt.zst"));
    }

    #[test]
    fn files_that_the_format_leaves_out_by_name_are_noted() {
        let files: [(&str, &[u8]); 2] = [("README.md", b"Read me."), ("a.json", b"{\"a\": 1}\n")];
        let source = source(&files);
        assert_eq!(source.settings.format, Format::Json);
        assert!(source.notes[0].contains("README.md"), "{:?}", source.notes);
    }
}
