//! Tells the format of the files, and from it the settings of the source.
//!
//! What is proposed is what the loader itself makes of the names and the first bytes. Columns are left to `columns`.

use super::dialect::{self, Dialect};
use super::sample::{Sample, SampleFile, as_json, takes};
use super::write::{self, Line, Sureness, all_shown, shown};
use crate::change::FileFault;
use crate::decode::Head;
use crate::error::Result;
use crate::landing::Filter;
use crate::plural::counted;
use crate::schema::TableSchema;
use crate::settings::{Format, SourceSettings, TextEncoding};
use std::collections::{BTreeMap, BTreeSet};

/// How the files of a landing folder are read.
#[derive(Debug)]
pub(super) struct Source {
    /// As they will be when the lines are loaded.
    pub(super) settings: SourceSettings,
    pub(super) lines: Vec<Line>,
    pub(super) csv_lines: Vec<Line>,
    pub(super) json_lines: Vec<Line>,
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
        json_lines: Vec::new(),
        notes: Vec::new(),
        unnamed: None,
    };
    source.tell_format(&sample.files, files)?;
    source.tell_dialect(&sample.files);
    source.tell_encodings(&sample.files);
    source.tell_documents(&sample.files)?;
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

impl Source {
    fn tell_encodings(&mut self, known: &[SampleFile]) {
        for format in [Format::Csv, Format::Json] {
            let of_format = known.iter().filter(|file| file.format == format);
            let files: Vec<&SampleFile> = of_format.collect();
            let (encoding, why) = match encoding_of(&files) {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                Err(note) => {
                    self.notes.push(note);
                    continue;
                }
            };
            let line = Line::told("encoding", write::text(encoding.name()), why);
            match format {
                Format::Csv => {
                    self.settings.csv.encoding = encoding;
                    self.csv_lines.push(line);
                }
                Format::Json | Format::Parquet | Format::Avro | Format::Auto => {
                    self.settings.json.encoding = encoding;
                    self.json_lines.push(line);
                }
            }
        }
    }

    /// Documents and arrays are read by a setting that reads lines too.
    fn tell_documents(&mut self, known: &[SampleFile]) -> Result<()> {
        let none = TableSchema::from_hints("")?;
        let json: Vec<&SampleFile> = known
            .iter()
            .filter(|file| file.format == Format::Json)
            .collect();
        let mut documents = Vec::new();
        let mut lines = Vec::new();
        for file in &json {
            let records = |multi_line: bool| {
                let settings = as_json(&file.head, multi_line, &self.settings);
                let decoded = file.head.decode(&none, &settings);
                decoded.map_or(0, |decoded| decoded.positions.len())
            };
            let (of_documents, of_lines) = (records(true), records(false));
            if of_documents > of_lines {
                documents.push(file.path.as_str());
            } else if of_lines > of_documents {
                lines.push(file.path.as_str());
            }
        }
        if documents.len() <= lines.len() {
            if !documents.is_empty() {
                self.notes.push(format!(
                    "files of JSON documents among others that hold lines with faults are not read: {}; set json.multi_line in a pipeline of their own",
                    all_shown(&documents)
                ));
            }
            return Ok(());
        }
        let sureness = if lines.is_empty() {
            Sureness::Sure
        } else {
            Sureness::Guess
        };
        let (seen, all) = (documents.len(), counted(json.len() as u64, "JSON file"));
        let why = format!(
            "{sureness}: {seen} of {all} looked at hold documents or arrays and not one object a line; lines are read too"
        );
        self.settings.json.multi_line = true;
        self.json_lines
            .push(Line::told("multi_line", "true".to_string(), why));
        Ok(())
    }
}

/// The encoding of files of one format, where it is not UTF-8, and why it is taken for it; a note where the files differ.
fn encoding_of(files: &[&SampleFile]) -> Result<Option<(TextEncoding, String)>, String> {
    let of = |wanted: &dyn Fn(&Head) -> bool| -> Vec<&str> {
        let wanted = files.iter().filter(|file| wanted(&file.head));
        wanted.map(|file| file.path.as_str()).collect()
    };
    let is_utf8 = |head: &Head| head.encoding() == TextEncoding::Utf8;
    let wide = of(&|head| head.encoding() == TextEncoding::Utf16);
    let utf8 = of(&|head| is_utf8(head) && !head.is_ascii());
    let ascii = of(&|head| is_utf8(head) && head.is_ascii());
    let single_byte = files.len() - wide.len() - utf8.len() - ascii.len();
    let all = counted(files.len() as u64, "file");
    match (wide.len(), single_byte) {
        (0, 0) => Ok(None),
        (wide, 0) if wide == files.len() => {
            let why = format!(
                "sure: {wide} of {all} looked at are UTF-16 by their mark or their zero bytes"
            );
            Ok(Some((TextEncoding::Utf16, why)))
        }
        (0, single_byte) if utf8.is_empty() => {
            let other = files.iter().map(|file| file.head.encoding());
            let encoding = other
                .into_iter()
                .find(|encoding| *encoding != TextEncoding::Utf8);
            let why = format!(
                "guess: {single_byte} of {all} looked at are no UTF-8; another encoding of one byte a character may be meant, so look at the texts"
            );
            Ok(encoding.map(|encoding| (encoding, why)))
        }
        (_, _) => {
            let others = of(&|head| !is_utf8(head));
            Err(format!(
                "files of several encodings stand side by side, and a pipeline reads one: other than UTF-8 are {}; move them to a folder of their own",
                all_shown(&others)
            ))
        }
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
