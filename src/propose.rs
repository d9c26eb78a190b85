//! Looks at a landing folder and proposes settings for it.
//!
//! The proposal is always one that the program itself loads: it is checked before it is handed out, and what could not be
//! told stands in it as a comment. Nothing is written, and of every file a bounded part is read. Printing is left to the
//! caller.

mod columns;
mod dialect;
mod dumps;
mod folders;
mod keys;
mod operations;
mod records;
mod roles;
mod sample;
mod source;
mod words;
mod write;

use crate::change::{DELETED, FileFault};
use crate::decode::{HEAD_BYTES_MAX, HEAD_RECORDS_MAX};
use crate::error::{Error, ErrorKind, Result};
use crate::landing::{Filter, Listing, list};
use crate::plural::counted;
use crate::settings::{Format, Request, Settings, SourceSettings};
use arrow::datatypes::FieldRef;
use folders::{Folder, tables};
use operations::Events;
use sample::{SAMPLE_FILES_MAX, Sample};
use std::collections::HashSet;
use std::path::Path;
use write::{Line, Pipeline, Table, shown};

/// Proposed settings.
#[derive(Clone, Debug)]
pub struct Proposal {
    /// The settings file.
    pub text: String,
    /// The names of its pipelines.
    pub pipelines: Vec<String>,
    /// What could not be told and what the user should know, one line each.
    pub notes: Vec<String>,
}

/// Proposes settings for the landing folder `path`, for a settings file that will stand in `folder`.
///
/// Fails with a settings error when there is no such folder or when the tables have no place beside it, and with an input
/// error when no file in it can be read.
pub fn propose(path: &Path, folder: &Path) -> Result<Proposal> {
    let listing = listing(&folder.join(path))?;
    let mut proposal = Proposal {
        text: String::new(),
        pipelines: Vec::new(),
        notes: listing_notes(&listing),
    };
    let defaults = defaults()?;
    let whole = Folder::new(path, folder, listing);
    let mut pipelines = Vec::new();
    let mut first_fault = None;
    for table in tables(whole, &defaults)? {
        table.check_place(folder)?;
        match table.pipeline(&defaults, &mut pipelines, &mut proposal.notes)? {
            Ok(()) => {}
            Err(fault) => {
                let shown = table.path.display();
                let detail = format!(
                    "no pipeline for {shown}: none of its files can be read: {}",
                    fault.detail
                );
                proposal.notes.push(detail);
                first_fault.get_or_insert(fault);
            }
        }
    }
    if let (true, Some(fault)) = (pipelines.is_empty(), first_fault) {
        return Err(nothing_readable(path, &fault));
    }
    proposal.pipelines = pipelines
        .iter()
        .map(|pipeline| pipeline.name.clone())
        .collect();
    proposal.text = write::settings(&remarks(path), &pipelines);
    check(&proposal.text, folder)?;
    Ok(proposal)
}

fn listing(root: &Path) -> Result<Listing> {
    let filter = Filter::new(Format::Auto, None, &[])?;
    let listing = list(root, &filter).map_err(|error| match root.is_dir() {
        true => error,
        false => Error::settings(error.message())
            .hint("name a folder with some files as they arrive: landfall init landing/orders"),
    })?;
    if listing.files.is_empty() {
        let message = format!("landing folder {} holds no landing file", root.display());
        let hint = "put some files as they arrive into it; names with a leading dot or underscore, or that end in .tmp, .part or .crdownload, are never taken";
        return Err(Error::new(ErrorKind::Input, message).hint(hint));
    }
    Ok(listing)
}

fn listing_notes(listing: &Listing) -> Vec<String> {
    let ignored = listing
        .ignored
        .iter()
        .map(|(path, why)| format!("{path} is not taken: {why}"));
    let unreadable = listing
        .unreadable
        .iter()
        .map(|(path, why)| format!("{path} cannot be read: {why}"));
    ignored.chain(unreadable).collect()
}

fn nothing_readable(path: &Path, fault: &FileFault) -> Error {
    let message = format!(
        "landing folder {}: no file that was looked at can be read: {}: {}",
        path.display(),
        fault.reason.as_str(),
        fault.detail
    );
    Error::new(ErrorKind::Input, message)
        .hint("JSON, CSV, Parquet and Avro are read, also packed; see docs/formats.md")
}

/// The settings of a source of which nothing is known.
fn defaults() -> Result<SourceSettings> {
    let text = "[pipeline.a]\ncheckpoint = \"c\"\n[pipeline.a.source]\npath = \"l\"\n[pipeline.a.bronze]\npath = \"b\"\n";
    let settings = Settings::load_text(&Request::in_folder(Path::new("/")), text.to_string())?;
    Ok(settings.pipeline("a")?.source.clone())
}

/// The program must load what it proposes; only the places can be at fault.
fn check(text: &str, folder: &Path) -> Result<()> {
    Settings::load_text(&Request::in_folder(folder), text.to_string())
        .map(|_| ())
        .map_err(|error| {
            let message = format!("no settings can be proposed here: {}", error.message());
            Error::settings(message).hint("name a landing folder apart from checkpoints and lake")
        })
}

fn remarks(path: &Path) -> Vec<String> {
    vec![
        format!("Proposed by: landfall init {}", path.display()),
        format!(
            "Looked at up to {SAMPLE_FILES_MAX} files of a pipeline, {HEAD_RECORDS_MAX} records or {} MiB of each. Behind each line: how sure it is, and why.",
            HEAD_BYTES_MAX >> 20
        ),
    ]
}

impl Folder {
    /// Adds the pipeline of the folder. The fault says why none of its files can be read.
    fn pipeline(
        &self,
        defaults: &SourceSettings,
        pipelines: &mut Vec<Pipeline>,
        notes: &mut Vec<String>,
    ) -> Result<Result<(), FileFault>> {
        let path = self.path_text()?;
        let sample = sample::take(&self.root, &self.files, SAMPLE_FILES_MAX, defaults)?;
        if let Some(fault) = sample.fault() {
            return Ok(Err(fault));
        }
        let mut source = source::tell(&sample, &self.files, defaults)?;
        let columns = columns::tell(&sample, &mut source.settings, source.unnamed)?;
        let name = free_name(&self.name(), pipelines);
        let records = records::read(&sample, &source.settings, &columns.fields, &name)?;
        let events = operations::tell(&records);
        let except = except_lines(&columns.fields, &events);
        let roles = roles::tell(&records, &events, &name);
        let found = [source.notes, columns.notes, roles.notes, events.notes].concat();
        notes.extend(found.iter().map(|note| format!("{name}: {note}")));
        let lines = [
            vec![Line::told(
                "path",
                write::text(&path),
                "the folder that was looked at",
            )],
            source.lines,
            columns.lines,
            match roles.is_told || events.column.is_some() {
                true => Vec::new(),
                false => dumps::line(&sample).into_iter().collect(),
            },
        ]
        .concat();
        let silver = [roles.lines, events.lines, except].concat();
        let remarks = [vec![self.seen(&sample)], found, columns.remarks].concat();
        pipelines.push(Pipeline {
            tables: tables_of(
                &name,
                lines,
                [
                    ("source.csv", source.csv_lines),
                    ("source.json", source.json_lines),
                ],
                silver,
                roles.is_told,
            ),
            remarks,
            name,
        });
        Ok(Ok(()))
    }

    fn seen(&self, sample: &Sample) -> String {
        let (seen, all) = (sample.chosen, counted(self.files.len() as u64, "file"));
        format!(
            "{}: looked at {seen} of {all}",
            shown(&self.path.to_string_lossy())
        )
    }
}

/// Columns that are no values of a row, and one that silver adds itself.
fn except_lines(fields: &[FieldRef], events: &Events) -> Vec<Line> {
    let operation = events.column.iter().map(String::as_str);
    let reserved = fields
        .iter()
        .map(|field| field.name().as_str())
        .filter(|name| {
            name.eq_ignore_ascii_case(DELETED) && events.column.as_deref() != Some(name)
        });
    let columns: Vec<&str> = operation.chain(reserved).collect();
    let why = match (columns.as_slice(), &events.column) {
        ([], _) => return Vec::new(),
        ([_], Some(_)) => "sure: it tells what an event does and is no value of the row",
        _ => "sure: silver adds a column deleted itself",
    };
    vec![Line::told("except_column_list", write::list(&columns), why)]
}

/// The name with a number behind it where its tables are those of another pipeline.
fn free_name(name: &str, pipelines: &[Pipeline]) -> String {
    let taken: HashSet<String> = pipelines
        .iter()
        .flat_map(|pipeline| {
            [
                pipeline.name.clone(),
                format!("{}_quarantine", pipeline.name),
            ]
        })
        .collect();
    let is_free = |name: &String| {
        let quarantine = format!("{name}_quarantine");
        !taken.contains(name) && pipelines.iter().all(|pipeline| pipeline.name != quarantine)
    };
    let numbered = (2..).map(|number| format!("{name}_{number}"));
    let mut names = std::iter::once(name.to_string()).chain(numbered);
    names.find(is_free).unwrap_or_else(|| name.to_string())
}

fn tables_of(
    name: &str,
    source: Vec<Line>,
    formats: [(&'static str, Vec<Line>); 2],
    roles: Vec<Line>,
    is_told: bool,
) -> Vec<Table> {
    let by_convention =
        |key: &str, path: String| Line::told(key, write::text(&path), "by convention");
    let table = |name, lines, is_told| Table {
        name,
        lines,
        is_told,
    };
    let silver = [
        vec![by_convention("path", format!("lake/silver/{name}"))],
        roles,
    ]
    .concat();
    let mut tables = vec![
        table(
            "",
            vec![by_convention(
                "checkpoint",
                format!("checkpoints/{name}.db"),
            )],
            true,
        ),
        table("source", source, true),
    ];
    for (name, lines) in formats {
        if !lines.is_empty() {
            tables.push(table(name, lines, true));
        }
    }
    tables.push(table(
        "bronze",
        vec![by_convention("path", format!("lake/bronze/{name}"))],
        true,
    ));
    tables.push(table("silver", silver, is_told));
    tables
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Proposes for `landing` with these files.
    fn try_proposed(files: &[(&str, &[u8])]) -> Result<Proposal> {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("landing")).unwrap();
        for (name, bytes) in files {
            let path = folder.path().join("landing").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        propose(Path::new("landing"), folder.path())
    }

    fn proposed(files: &[(&str, &[u8])]) -> Proposal {
        try_proposed(files).unwrap()
    }

    const ORDER: &[u8] = b"{\"op\": \"I\", \"order_id\": 1, \"seq\": 1}\n";
    const CITY: &[u8] = b"{\"city_id\": 1, \"name\": \"x\", \"version\": 1}\n";

    #[test]
    fn folder_that_is_missing_or_no_folder_is_a_wrong_argument() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        for path in ["missing", "file"] {
            let error = propose(Path::new(path), folder.path()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Settings, "{error}");
            assert!(error.message().contains(path), "{error}");
        }
    }

    #[test]
    fn folder_without_landing_files_is_an_input_error() {
        for files in [&[][..], &[(".hidden", ORDER), ("a.tmp", ORDER)]] {
            let error = try_proposed(files).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Input, "{error}");
            assert!(error.hint_text().is_some());
        }
    }

    #[test]
    fn folder_of_junk_is_an_input_error_that_names_a_file() {
        let error = try_proposed(&[("a.bin", &[0, 159, 1]), ("b", b"")]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Input);
        assert!(error.message().contains("a.bin"), "{error}");
    }

    #[test]
    fn folder_that_would_hold_its_own_tables_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.json"), ORDER).unwrap();
        let error = propose(Path::new("."), folder.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Settings);
        assert!(
            error.message().contains("holds the working folder"),
            "{error}"
        );
        fs::create_dir_all(folder.path().join("lake/bronze/bronze")).unwrap();
        fs::write(folder.path().join("lake/bronze/bronze/a.json"), ORDER).unwrap();
        let error = propose(Path::new("lake/bronze"), folder.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Settings, "{error}");
    }

    #[test]
    fn subfolders_of_other_columns_are_pipelines_of_their_own() {
        let both = proposed(&[
            ("orders/a.json", ORDER),
            ("cities/a.json", CITY),
            ("cities/b/c.json", CITY),
        ]);
        assert_eq!(both.pipelines, ["cities", "orders"]);
        assert!(
            both.text.contains("path = \"landing/cities\""),
            "{}",
            both.text
        );
        for files in [
            [("a/x.json", ORDER), ("b/x.json", ORDER)],
            [("2026/x.json", ORDER), ("2027/x.json", CITY)],
            [("day=1/x.json", ORDER), ("day=2/x.json", CITY)],
            [("a/x.json", ORDER), ("x.json", CITY)],
        ] {
            assert_eq!(proposed(&files).pipelines, ["landing"]);
        }
    }

    #[test]
    fn pipelines_never_share_a_table() {
        let names = ["a", "a_quarantine", "a b", "a#b"];
        let files: Vec<(String, &[u8])> = names
            .iter()
            .zip([ORDER, CITY, ORDER, CITY])
            .map(|(name, bytes)| (format!("{name}/x.json"), bytes))
            .collect();
        let files: Vec<(&str, &[u8])> = files
            .iter()
            .map(|(name, bytes)| (name.as_str(), *bytes))
            .collect();
        let mut names = proposed(&files).pipelines;
        names.sort();
        assert_eq!(names, ["a", "a_b", "a_b_2", "a_quarantine_2"]);
    }

    #[test]
    fn what_could_not_be_told_is_a_comment_and_a_note() {
        let proposal = proposed(&[(
            "a.json",
            b"{\"name\": \"x\"}\n{\"name\": \"x\", \"n\": 1}\n",
        )]);
        assert!(
            proposal.text.contains("# [pipeline.landing.silver]\n"),
            "{}",
            proposal.text
        );
        assert!(
            proposal.text.contains("# keys = [\"id\"] # fill in"),
            "{}",
            proposal.text
        );
        let notes = proposal.notes.join("\n");
        assert!(
            notes.contains("keys could not be told")
                && notes.contains("sequence_by could not be told"),
            "{notes}"
        );
    }

    #[test]
    fn column_that_silver_adds_itself_stays_out_of_it() {
        let proposal = proposed(&[("a.json", b"{\"id\": 1, \"seq\": 1, \"Deleted\": \"no\"}\n")]);
        let line = "except_column_list = [\"Deleted\"] # sure: silver adds";
        assert!(proposal.text.contains(line), "{}", proposal.text);
    }

    #[test]
    fn csv_without_a_header_gets_names_for_its_columns() {
        let proposal = proposed(&[("a.csv", b"1;new;2026-01-01\n2;paid;\n")]);
        for line in [
            "delimiter = \";\"",
            "header = false",
            "schema_hints = \"_c0 BIGINT, _c1 STRING, _c2 DATE\"",
        ] {
            assert!(proposal.text.contains(line), "{}", proposal.text);
        }
    }

    #[test]
    fn times_in_texts_are_a_sequence_where_all_of_them_read_so() {
        let with = |last: &str| {
            let record = |id, at: &str| format!("{{\"id\": {id}, \"updated_at\": \"{at}\"}}\n");
            let text = record(1, "2026-01-01T00:00:00Z") + &record(1, last);
            proposed(&[("a.json", text.as_bytes())]).text
        };
        let text = with("2026-01-02T00:00:00+01:00");
        assert!(text.contains("updated_at TIMESTAMP\""), "{text}");
        assert!(text.contains("\nsequence_by = [\"updated_at\"]"), "{text}");
        let text = with("yesterday");
        assert!(
            text.contains("updated_at STRING") && text.contains("# sequence_by = [\"seq\"]"),
            "{text}"
        );
    }

    #[test]
    fn records_that_would_be_refused_are_noted() {
        let proposal = proposed(&[(
            "a.json",
            b"{\"id\": 1, \"seq\": 1}\n{\"a b\": 1}\nnonsense\n",
        )]);
        let note = proposal
            .notes
            .iter()
            .find(|note| note.contains("quarantine"))
            .unwrap();
        assert!(
            note.contains("2 records") && note.contains("a.json, record 2"),
            "{note}"
        );
    }

    #[test]
    fn hostile_content_makes_a_proposal_that_loads() {
        let wide: Vec<String> = (0..50_000)
            .map(|number| format!("\"c{number}\":{number}"))
            .collect();
        let wide = format!("{{{}}}\n", wide.join(","));
        let long = format!("{{\"a\": \"{}\"}}\n", "x".repeat(2 << 20));
        let nested = format!("{{\"a\": {}1{}}}\n", "[".repeat(5000), "]".repeat(5000));
        let odd = b"{\"a\\\"b\": 1, \"$id\": 1, \"it's\": 2, \"]\\n[x]\": 3, \"seq\": 1}\n{\"$id\": 1, \"${HOME}_seq\": 2, \"seq\": 1}\n";
        let commas = ",".repeat(200_000);
        let many = format!("{commas}\n{commas}\n");
        for (name, bytes) in [
            ("a.json", wide.as_bytes()),
            ("a.json", long.as_bytes()),
            ("a.json", nested.as_bytes()),
            ("a.json", odd),
            ("a.json", b"\xff\xfe\x00nonsense\n\0\0\0"),
            ("a.csv", many.as_bytes()),
            ("a.csv", b"\"\n\"\"\",b'\\\n1,2\n"),
            ("a.csv", b"\x01\x02,\x03\n"),
            ("a\n\"b'#.csv", b"id,seq\n1,2\n"),
        ] {
            match try_proposed(&[(name, bytes)]) {
                Ok(proposal) => assert!(proposal.text.lines().count() < 40, "{}", proposal.text),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Input, "{error}"),
            }
        }
    }

    #[test]
    fn odd_names_of_folders_stand_in_the_settings_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["it's \"new\"", "${HOME}", " ", "line\nbreak", "caf\u{e9}"] {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("a.json"), ORDER).unwrap();
            let proposal = propose(Path::new(name), folder.path()).unwrap();
            let request = Request::in_folder(folder.path());
            let settings = Settings::load_text(&request, proposal.text.clone()).unwrap();
            assert_eq!(settings.pipelines[0].source.path, folder.path().join(name));
            assert!(settings.pipelines[0].silver.is_some(), "{}", proposal.text);
        }
    }
}
