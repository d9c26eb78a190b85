//! From what was typed to checked [`Settings`]: which file, which pipelines, which flags over it.
//!
//! A flag wins over the file, the file over the default. Nothing is written; the settings file is the only file read.

use super::file::{self, Document};
use super::reader::{Entry, Origin, Problems, Reader, Value};
use super::{PipelineSettings, Settings, check, keys, rules, unsupported, value};
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The name of the settings file that is looked for in the working folder.
const DEFAULT_CONFIG: &str = "landfall.toml";

/// One setting given as a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlagValue {
    /// The key below the pipeline, one of [`super::SETTING_KEYS`].
    pub key: &'static str,
    /// The long flag with its dashes, for messages.
    pub flag: String,
    /// As typed; lists have commas between their parts.
    pub text: String,
}

/// What was typed, not yet checked.
pub struct Request<'a> {
    /// `--config` or `$LANDFALL_CONFIG`.
    pub config: Option<PathBuf>,
    /// The working folder; flags are relative to it.
    pub folder: PathBuf,
    /// The pipelines that were named; empty selects all.
    pub pipelines: Vec<String>,
    /// `--name`, for a pipeline made of flags alone.
    pub name: Option<String>,
    /// The settings given as flags.
    pub flags: Vec<FlagValue>,
    /// Looks a variable of the environment up.
    pub environment: &'a dyn Fn(&str) -> Option<String>,
}

impl Request<'_> {
    /// Nothing typed in this folder, and an empty environment.
    pub fn in_folder(folder: &Path) -> Self {
        Request {
            config: None,
            folder: folder.to_path_buf(),
            pipelines: Vec::new(),
            name: None,
            flags: Vec::new(),
            environment: &|_| None,
        }
    }
}

impl Settings {
    /// Loads and checks the settings of the pipelines that were asked for.
    ///
    /// All errors of the file are collected into one [`Error`] of the kind `Settings`. Every pipeline of the file is
    /// checked, also those that were not asked for, since two of them may share a table.
    pub fn load(request: &Request<'_>) -> Result<Settings> {
        match find_file(request)? {
            Some(file) => from_file(request, &file),
            None if request.flags.is_empty() => Err(Error::settings(format!(
                "there is no {DEFAULT_CONFIG} in the working folder"
            ))
            .hint(
                "name a settings file with --config, or give --landing, --bronze and --checkpoint",
            )),
            None => from_flags(request),
        }
    }

    /// Checks a text as if it were the settings file in the folder of the request. Nothing is read.
    pub fn load_text(request: &Request<'_>, text: String) -> Result<Settings> {
        let path = request.folder.join(DEFAULT_CONFIG);
        from_file(request, &File { path, text })
    }

    /// The pipeline of this name.
    pub fn pipeline(&self, name: &str) -> Result<&PipelineSettings> {
        let found = self.pipelines.iter().find(|pipeline| pipeline.name == name);
        found.ok_or_else(|| {
            unknown_pipeline(name, self.pipelines.iter().map(|known| known.name.as_str()))
        })
    }
}

/// A settings file that was read.
struct File {
    path: PathBuf,
    text: String,
}

/// The settings file to use; `None` makes a pipeline of flags alone.
///
/// `--landing` without `--config` is a pipeline of its own, unless it was given over a named pipeline of the default file.
fn find_file(request: &Request<'_>) -> Result<Option<File>> {
    if let Some(config) = &request.config {
        return read(&request.folder.join(config)).map(Some);
    }
    let path = request.folder.join(DEFAULT_CONFIG);
    let is_there = path
        .try_exists()
        .map_err(|error| unreadable(&path, &error))?;
    if !is_there {
        return Ok(None);
    }
    let whole_pipeline =
        request.name.is_some() || request.flags.iter().any(|flag| flag.key == "source.path");
    if !whole_pipeline {
        return read(&path).map(Some);
    }
    if request.pipelines.is_empty() {
        return Ok(None);
    }
    let file = read(&path)?;
    let document = document(&file, request, &mut Problems::default())?;
    let named = document
        .pipelines
        .iter()
        .any(|pipeline| request.pipelines.contains(&pipeline.name));
    Ok(named.then_some(file))
}

fn read(path: &Path) -> Result<File> {
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    Ok(File {
        path: path.to_path_buf(),
        text,
    })
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    Error::settings(format!(
        "settings file {} cannot be read: {error}",
        path.display()
    ))
}

/// The file as messages name it: below the working folder without the folder.
fn shown<'a>(file: &'a File, request: &Request<'_>) -> std::borrow::Cow<'a, str> {
    file.path
        .strip_prefix(&request.folder)
        .unwrap_or(&file.path)
        .to_string_lossy()
}

fn document(file: &File, request: &Request<'_>, problems: &mut Problems) -> Result<Document> {
    file::parse(
        &shown(file, request),
        &file.text,
        request.environment,
        problems,
    )
}

fn from_file(request: &Request<'_>, file: &File) -> Result<Settings> {
    let mut problems = Problems::default();
    let document = document(file, request, &mut problems)?;
    if let Some(name) = &request.name {
        return Err(Error::settings(format!(
            "--name is only for a pipeline without a settings file: {name}"
        )));
    }
    let names: Vec<&str> = document
        .pipelines
        .iter()
        .map(|pipeline| pipeline.name.as_str())
        .collect();
    for name in &request.pipelines {
        if !names.contains(&name.as_str()) {
            return Err(unknown_pipeline(name, names));
        }
    }
    let selected = |name: &str| {
        request.pipelines.is_empty() || request.pipelines.iter().any(|asked| asked == name)
    };
    let count = names.iter().filter(|name| selected(name)).count();
    if let (Some(flag), true) = (request.flags.first(), count != 1) {
        return Err(Error::settings(format!(
            "{} applies to one pipeline, but {count} are selected",
            flag.flag
        ))
        .hint("name one pipeline"));
    }
    let file_folder = file.path.parent().unwrap_or(&request.folder).to_path_buf();
    let mut checked = Vec::new();
    for pipeline in document.pipelines {
        let mut entries = pipeline.entries;
        if selected(&pipeline.name) {
            put_flags(&request.flags, &mut entries, &mut problems);
        }
        let reader = Reader {
            pipeline: &pipeline.name,
            entries,
            line: Some(pipeline.line),
            file_folder: file_folder.clone(),
            flag_folder: request.folder.clone(),
            problems: &mut problems,
        };
        checked.extend(check_pipeline(reader));
    }
    if let Some(line) = document.storage {
        problems.add(
            Some(line),
            "storage is only for paths of object stores, which are not supported yet",
        );
    }
    rules::check_together(&checked, &mut problems);
    finish(checked, problems, Some(&shown(file, request)), selected)
}

fn from_flags(request: &Request<'_>) -> Result<Settings> {
    let mut problems = Problems::default();
    let mut entries = BTreeMap::new();
    put_flags(&request.flags, &mut entries, &mut problems);
    let name = flags_name(request, &entries)?;
    let reader = Reader {
        pipeline: &name,
        entries,
        line: None,
        file_folder: request.folder.clone(),
        flag_folder: request.folder.clone(),
        problems: &mut problems,
    };
    let checked = check_pipeline(reader).into_iter().collect();
    finish(checked, problems, None, |_| true)
}

/// `--name`, the pipeline that was asked for, or the landing folder's name.
fn flags_name(request: &Request<'_>, entries: &BTreeMap<String, Entry>) -> Result<String> {
    let landing = entries
        .get("source.path")
        .and_then(|entry| match &entry.value {
            Value::One(text) => Some(request.folder.join(text)),
            Value::Many(_) | Value::Refused => None,
        });
    let folder = landing
        .as_deref()
        .and_then(Path::file_name)
        .map(|name| name.to_string_lossy().into_owned());
    match (&request.name, request.pipelines.as_slice()) {
        (Some(name), []) => Ok(name.clone()),
        (None, [asked]) => Ok(asked.clone()),
        (Some(name), [asked]) if name == asked => Ok(name.clone()),
        (None, []) => Ok(folder.map_or_else(|| "pipeline".to_string(), |folder| as_name(&folder))),
        (_, asked) => Err(Error::settings(format!(
            "flags alone make one pipeline, but others are named: {}",
            asked.join(", ")
        ))
        .hint("give a settings file with --config, or one name")),
    }
}

/// Puts flags over the values of the file.
fn put_flags(flags: &[FlagValue], entries: &mut BTreeMap<String, Entry>, problems: &mut Problems) {
    let mut given: BTreeMap<&str, Vec<&FlagValue>> = BTreeMap::new();
    for flag in flags {
        given.entry(flag.key).or_default().push(flag);
    }
    for (key, flags) in given {
        let Some(last) = flags.last() else { continue };
        if key == "silver.operations" {
            entries.retain(|known, _| !known.starts_with("silver.operations."));
            entries.extend(file::parse_flag_table(
                key, &last.flag, &last.text, problems,
            ));
            continue;
        }
        let value = if LISTS.contains(&key) {
            Value::Many(
                flags
                    .iter()
                    .flat_map(|flag| value::comma_list(&flag.text))
                    .collect(),
            )
        } else if flags.len() > 1 {
            problems.add(None, format!("{} is given twice", last.flag));
            continue;
        } else {
            Value::One(last.text.clone())
        };
        let shown = last.text.clone();
        entries.insert(
            key.to_string(),
            Entry {
                value,
                shown,
                origin: Origin::Flag(last.flag.clone()),
            },
        );
    }
}

/// Settings whose flag has commas between the parts.
const LISTS: &[&str] = &[
    "bronze.partition_by",
    "silver.keys",
    "silver.sequence_by",
    "silver.operations.upsert",
    "silver.operations.delete",
    "silver.operations.truncate",
    "silver.operations.skip",
    "silver.except_column_list",
    "silver.column_list",
    "silver.ignore_null_updates",
    "silver.track_history_column_list",
    "silver.track_history_except_column_list",
    "silver.partition_by",
];

fn check_pipeline(mut reader: Reader<'_>) -> Option<PipelineSettings> {
    if !is_name(reader.pipeline) {
        let line = reader.line;
        let message = format!(
            "a pipeline name may hold letters, digits, `_`, `-` and `.`, not {:?}; --name gives another one to a pipeline of flags",
            reader.pipeline
        );
        reader.problems.add(line, message);
    }
    unsupported::refuse(&mut reader);
    let pipeline = check::pipeline(&mut reader);
    rules::check_lists(&mut reader);
    if let Some(pipeline) = &pipeline {
        rules::check_pipeline(&mut reader, pipeline);
    }
    pipeline
}

/// The folder's name with `_` for what a pipeline name does not hold.
pub(crate) fn as_name(folder: &str) -> String {
    let plain = |letter: char| {
        if letter.is_alphanumeric() || "_-.".contains(letter) {
            letter
        } else {
            '_'
        }
    };
    let name: String = folder.chars().map(plain).collect();
    if is_name(&name) {
        name
    } else {
        format!("_{name}")
    }
}

/// Names stand in SQL, in application ids and in file names.
fn is_name(name: &str) -> bool {
    let plain = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.');
    name.chars().all(plain)
        && name.starts_with(|first: char| first.is_alphanumeric() || first == '_')
}

fn finish(
    mut pipelines: Vec<PipelineSettings>,
    problems: Problems,
    file: Option<&str>,
    selected: impl Fn(&str) -> bool,
) -> Result<Settings> {
    if let Some(error) = problems.into_error(file) {
        return Err(error);
    }
    pipelines.retain(|pipeline| selected(&pipeline.name));
    if pipelines.is_empty() {
        let file = file.unwrap_or("the settings");
        return Err(
            Error::settings(format!("{file} has no pipeline")).hint("add a table [pipeline.NAME]")
        );
    }
    Ok(Settings { pipelines })
}

fn unknown_pipeline<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Error {
    let known: Vec<&str> = known.into_iter().collect();
    let error = Error::settings(format!("there is no pipeline {name}"));
    match keys::nearest_word(name, known.iter().copied()) {
        Some(nearest) => error.hint(format!(
            "the nearest is {nearest}; known are {}",
            known.join(", ")
        )),
        None => error.hint("add a table [pipeline.NAME] to the settings"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::settings::*;
    use std::time::Duration;

    const PIPELINE: &str = "[pipeline.a]\ncheckpoint = \"c.db\"\n\
        [pipeline.a.source]\npath = \"in\"\n\
        [pipeline.a.bronze]\npath = \"b\"\n";
    const SILVER: &str =
        "[pipeline.a.silver]\npath = \"s\"\nkeys = [\"id\"]\nsequence_by = [\"seq\"]\n";

    fn request<'a>(folder: &Path, flags: &[(&'static str, &str)]) -> Request<'a> {
        let flag = |(name, text): &(&'static str, &str)| FlagValue {
            key: SETTING_KEYS
                .iter()
                .find(|key| key.flag == *name)
                .map_or("silver.operations", |key| key.key),
            flag: format!("--{name}"),
            text: text.to_string(),
        };
        Request {
            flags: flags.iter().map(flag).collect(),
            environment: &|name| (name == "TOKEN").then(|| "hush".to_string()),
            ..Request::in_folder(folder)
        }
    }

    fn load_with(text: &str, flags: &[(&'static str, &str)]) -> Result<Settings> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("landfall.toml"), text).unwrap();
        Settings::load(&request(folder.path(), flags))
    }

    #[test]
    fn text_is_checked_like_the_file_of_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let load = |text: &str| Settings::load_text(&request(folder.path(), &[]), text.to_string());
        let error = load("[pipeline.a]\nnope = 1\n").unwrap_err();
        assert!(
            error
                .message()
                .contains("landfall.toml, line 2: pipeline.a.nope"),
            "{error}"
        );
        let settings = load(PIPELINE).unwrap();
        assert_eq!(settings.pipelines[0].source.path, folder.path().join("in"));
        assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none());
    }

    fn refusal(text: &str) -> String {
        let error = load_with(text, &[]).expect_err(text);
        assert_eq!(error.kind(), ErrorKind::Settings);
        error.message().to_string()
    }

    /// Settings with `line` added to the table `table` of the one pipeline.
    fn with(table: &str, line: &str) -> String {
        let header = format!("[pipeline.a.{table}]\n");
        let text = format!("{PIPELINE}{SILVER}");
        match text.contains(&header) {
            true => text.replace(&header, &format!("{header}{line}\n")),
            false => format!("{text}{header}{line}\n"),
        }
    }

    #[test]
    fn values_outside_their_set_name_key_value_and_what_is_allowed() {
        let cases = [
            (
                "source",
                "format = \"xml\"",
                "pipeline.a.source.format must be one of json, csv, parquet, avro, auto, not \"xml\"",
            ),
            (
                "source",
                "settle = \"soon\"",
                "source.settle must be a duration",
            ),
            (
                "source",
                "listing_interval = \"0s\"",
                "source.listing_interval must be longer than 0",
            ),
            (
                "source",
                "max_bytes_per_trigger = \"much\"",
                "must be a size",
            ),
            (
                "source",
                "max_files_per_trigger = 0",
                "must be a whole number from 1, not 0",
            ),
            (
                "source",
                "max_bad_records = -1",
                "must be a whole number or unlimited, not -1",
            ),
            (
                "source",
                "max_bad_percent = 101",
                "must be a share from 0 to 100 or unlimited, not 101",
            ),
            (
                "source",
                "path_glob_filter = \"[\"",
                "must be a glob pattern",
            ),
            (
                "source",
                "infer_column_types = 1",
                "must be true or false, not 1",
            ),
            (
                "source",
                "envelope = \"xyz\"",
                "must be one of none, debezium, ",
            ),
            (
                "source",
                "clean_source = \"move\"",
                "clean_source_move_destination is missing",
            ),
            (
                "source",
                "clean_source_move_destination = \"x\"",
                "needs clean_source = \"move\"",
            ),
            (
                "source.csv",
                "delimiter = \";;\"",
                "must be one ASCII character",
            ),
            ("source.csv", "delimiter = \"\"", "must be one character"),
            (
                "source.csv",
                "delimiter = \"'\"\nquote = \"'\"",
                "are the same character",
            ),
            ("source.csv", "date_format = \"%Q!\"", "must be a format"),
            ("source.csv", "line_sep = \",\"", "are the same character"),
            ("source.csv", "skip_rows = -1", "must be a whole number"),
            (
                "source.json",
                "encoding = \"UTF-32\"",
                "must be an encoding",
            ),
            (
                "source.csv",
                "nullValue = \"x\"",
                "the nearest is pipeline.a.source.csv.null_value",
            ),
            (
                "maintenance",
                "min_num_files = 1",
                "must be a whole number from 2, not 1",
            ),
            (
                "maintenance",
                "max_deleted_rows_ratio = 0",
                "must be a share above 0 and up to 1, not 0",
            ),
            (
                "maintenance",
                "log_checkpoint_intervall = 5",
                "the nearest is pipeline.a.maintenance.log_checkpoint_interval",
            ),
            (
                "silver",
                "write_mode = \"fast\"",
                "must be one of merge_on_read, copy_on_write",
            ),
            (
                "silver",
                "stored_as_scd_type = 3",
                "must be one of 1, 2, not 3",
            ),
        ];
        for (table, line, expected) in cases {
            let message = refusal(&with(table, line));
            assert!(message.contains(expected), "{line}: {message}");
        }
    }

    #[test]
    fn settings_that_do_not_fit_together_are_refused() {
        let cases = [
            (
                "silver",
                "apply_as_deletes = \"x\"\noperations = { column = \"op\", upsert = [\"I\"] }",
                "exclude each other",
            ),
            (
                "silver",
                "column_list = [\"a\"]\nexcept_column_list = [\"b\"]",
                "exclude each other",
            ),
            (
                "silver",
                "except_column_list = [\"ID\"]",
                "share a column: ID",
            ),
            (
                "silver",
                "operations = { upsert = [\"I\"] }",
                "operations.column is missing",
            ),
            (
                "silver",
                "operations = { column = \"op\" }",
                "must name at least one value",
            ),
            (
                "silver",
                "operations = { column = \"op\", upsert = [\"I\"], delete = [\"I\"] }",
                "in upsert and in delete: I",
            ),
            (
                "silver",
                "column_list = [\"_file_path\"]",
                "a column that the loader adds itself: _file_path",
            ),
            (
                "silver",
                "column_list = [\"deleted\"]",
                "a column that the loader adds itself: deleted",
            ),
            (
                "silver",
                "except_column_list = [\"p\"]\npartition_by = [\"p\"]",
                "share a column: p",
            ),
            (
                "maintenance",
                "min_file_size = \"65 MiB\"",
                "target_file_size must be at least twice maintenance.min_file_size",
            ),
            (
                "maintenance",
                "log_retention_duration = \"1d\"",
                "must not be shorter than maintenance.deleted_file_retention_duration",
            ),
            (
                "bronze",
                "partition_by = [\"x\", \"X\"]",
                "names a column twice: X",
            ),
        ];
        for (table, line, expected) in cases {
            let message = refusal(&with(table, line));
            assert!(message.contains(expected), "{line}: {message}");
        }
        let shared = format!("{PIPELINE}{SILVER}").replace("\"seq\"", "\"id\"");
        assert!(
            refusal(&shared)
                .contains("silver.sequence_by and pipeline.a.silver.keys share a column: id")
        );
    }

    #[test]
    fn what_an_envelope_says_itself_is_refused_beside_it() {
        let enveloped = |table: &str, line: &str| {
            with(table, line).replace(
                "[pipeline.a.source]\n",
                "[pipeline.a.source]\nenvelope = \"debezium\"\n",
            )
        };
        for (table, line, expected) in [
            (
                "silver",
                "operations = { column = \"op\", upsert = [\"I\"] }",
                "operations and source.envelope exclude each other",
            ),
            (
                "silver",
                "apply_as_deletes = \"op = 'D'\"",
                "envelope exclude each other",
            ),
            (
                "silver",
                "columns_to_update = \"list\"",
                "envelope exclude each other",
            ),
            (
                "silver",
                "column_list = [\"_op\"]",
                "that the loader adds itself: _op",
            ),
            (
                "source",
                "schema_hints = \"_Before STRING\"",
                "that the loader adds itself: _Before",
            ),
        ] {
            let message = refusal(&enveloped(table, line));
            assert!(message.contains(expected), "{line}: {message}");
        }
        let text = enveloped("silver", "deletes = \"soft\"").replace("sequence_by = [\"seq\"]", "");
        let settings = load_with(&text, &[]).unwrap();
        let silver = settings.pipelines[0].silver.as_ref().unwrap();
        assert_eq!(silver.sequence_by, ["_sequence"]);
        assert!(!silver.columns.takes("_envelope"));
    }

    #[test]
    fn settings_of_every_kind_load() {
        let quiet = [
            ("source", "envelope = \"qlik\""),
            ("source.csv", "encoding = \"latin1\""),
            ("silver", "track_history_column_list = []"),
        ];
        for (table, line) in quiet {
            load_with(&with(table, line), &[]).unwrap();
        }
    }

    #[test]
    fn url_is_refused_without_its_secret_part() {
        let text = PIPELINE.replace("\"in\"", "\"s3://user:pass@bucket/x?sig=${TOKEN}\"");
        let message = refusal(&text);
        assert_eq!(
            message,
            "landfall.toml, line 4: pipeline.a.source.path: a path of the scheme s3:// is not supported yet"
        );
        assert!(
            refusal(&format!("{PIPELINE}[storage]\nkey = \"k3y\"\n"))
                .contains("line 7: storage is only for")
        );
    }

    #[test]
    fn value_of_a_variable_is_not_shown() {
        let message = refusal(&with("source", "settle = \"${TOKEN}\""));
        assert!(message.ends_with("not \"${TOKEN}\""), "{message}");
    }

    #[test]
    fn all_problems_are_listed_in_the_order_of_the_file() {
        let message = refusal(
            "[pipeline.a.source]\nsettle = \"x\"\nfoo = 1\n[pipeline.a.silver]\npath = \"s\"\n",
        );
        let lines: Vec<&str> = message.lines().collect();
        assert_eq!(lines[0], "7 settings are wrong");
        let expected = [
            "checkpoint is missing",
            "source.path is missing",
            "bronze.path is missing",
        ];
        for part in expected
            .iter()
            .chain(&["silver.keys is missing", "silver.sequence_by is missing"])
        {
            assert!(message.contains(part), "{part}: {message}");
        }
        let settle = lines
            .iter()
            .position(|line| line.contains("line 2: "))
            .unwrap();
        let unknown = lines
            .iter()
            .position(|line| line.contains("line 3: "))
            .unwrap();
        assert!(settle < unknown);
    }

    #[test]
    fn refused_value_is_reported_once() {
        let message = refusal(&PIPELINE.replace("\"in\"", "\"${UNSET}/in\""));
        assert_eq!(
            message,
            "landfall.toml, line 4: pipeline.a.source.path: the environment variable UNSET is not set"
        );
        let both = format!(
            "{}keys = [\"x\"]\n",
            PIPELINE.replace("\"in\"", "\"s3://x\"")
        );
        assert!(refusal(&both).starts_with("2 settings are wrong"));
    }

    #[test]
    fn tables_in_each_other_are_refused() {
        let inside = format!("{PIPELINE}{SILVER}").replace("\"s\"", "\"b/x\"");
        assert!(refusal(&inside).contains("silver.path lies inside pipeline.a.bronze.path"));
        let same = format!("{PIPELINE}{SILVER}").replace("\"s\"", "\"./x/../b\"");
        assert!(refusal(&same).contains("silver.path is the same place as pipeline.a.bronze.path"));
        let landing = PIPELINE.replace("\"b\"", "\"in/b\"");
        assert!(refusal(&landing).contains("bronze.path lies inside pipeline.a.source.path"));
    }

    #[test]
    fn two_pipelines_with_one_checkpoint_or_table_are_refused() {
        let second = PIPELINE.replace("pipeline.a", "pipeline.z");
        let message = refusal(&format!("{PIPELINE}{second}"));
        assert!(
            message.contains("pipeline.z.checkpoint is the same place as pipeline.a.checkpoint"),
            "{message}"
        );
        assert!(
            message.contains("pipeline.z.bronze.path is the same place as pipeline.a.bronze.path"),
            "{message}"
        );
        let apart = second
            .replace("\"c.db\"", "\"d.db\"")
            .replace("\"b\"", "\"e\"");
        assert_eq!(
            load_with(&format!("{PIPELINE}{apart}"), &[])
                .unwrap()
                .pipelines
                .len(),
            2
        );
    }

    #[test]
    fn no_settings_at_all_is_an_error_with_a_hint() {
        let folder = tempfile::tempdir().unwrap();
        let error = Settings::load(&request(folder.path(), &[])).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.hint_text().unwrap().contains("--config"));
        let mut missing = request(folder.path(), &[]);
        missing.config = Some("no.toml".into());
        assert!(
            Settings::load(&missing)
                .unwrap_err()
                .message()
                .contains("no.toml cannot be read")
        );
    }

    #[test]
    fn unknown_pipeline_names_the_nearest() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("landfall.toml"), PIPELINE).unwrap();
        let mut asked = request(folder.path(), &[]);
        asked.pipelines = vec!["aa".to_string()];
        let error = Settings::load(&asked).unwrap_err();
        assert_eq!(error.message(), "there is no pipeline aa");
        assert_eq!(error.hint_text(), Some("the nearest is a; known are a"));
    }

    #[test]
    fn defaults_are_as_documented() {
        let settings = load_with(&format!("{PIPELINE}{SILVER}"), &[]).unwrap();
        let pipeline = settings.pipeline("a").unwrap();
        assert!(pipeline.checkpoint.is_absolute() && pipeline.checkpoint.ends_with("c.db"));
        let source = &pipeline.source;
        assert_eq!(source.format, Format::Auto);
        assert_eq!(
            (source.max_files_per_trigger, source.max_bytes_per_trigger),
            (1000, 1 << 30)
        );
        assert_eq!(source.settle, Duration::from_millis(500));
        assert_eq!(source.listing_interval, Duration::from_secs(30));
        assert_eq!(
            (source.max_bad_records, source.max_bad_percent),
            (None, None)
        );
        let silver = pipeline.silver.as_ref().unwrap();
        assert_eq!(silver.ignore_null_updates, IgnoreNullUpdates::Never);
        assert_eq!(silver.write_mode, WriteMode::MergeOnRead);
        assert!(silver.change_data_feed);
        assert!(matches!(
            &silver.events,
            EventRules::Predicates {
                deletes: None,
                truncates: None
            }
        ));
    }

    #[test]
    fn flag_wins_over_file_and_is_relative_to_the_working_folder() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("conf")).unwrap();
        std::fs::write(
            folder.path().join("conf/x.toml"),
            with("source", "settle = \"9s\""),
        )
        .unwrap();
        let mut typed = request(
            folder.path(),
            &[("settle", "1s"), ("checkpoint", "k.db"), ("keys", "x, y")],
        );
        typed.config = Some("conf/x.toml".into());
        let settings = Settings::load(&typed).unwrap();
        let pipeline = settings.pipeline("a").unwrap();
        assert_eq!(pipeline.source.settle, Duration::from_secs(1));
        assert_eq!(pipeline.checkpoint, folder.path().join("k.db"));
        assert_eq!(pipeline.bronze.path, folder.path().join("conf/b"));
        assert_eq!(pipeline.silver.as_ref().unwrap().keys, ["x", "y"]);
    }

    #[test]
    fn flag_over_two_pipelines_is_refused() {
        let second = PIPELINE
            .replace("pipeline.a", "pipeline.z")
            .replace("\"c.db\"", "\"d.db\"")
            .replace("\"b\"", "\"e\"");
        let error = load_with(&format!("{PIPELINE}{second}"), &[("settle", "1s")]).unwrap_err();
        assert_eq!(
            error.message(),
            "--settle applies to one pipeline, but 2 are selected"
        );
    }

    #[test]
    fn flags_alone_make_a_pipeline_even_beside_a_default_file() {
        let flags = [
            ("landing", "data/shop"),
            ("bronze", "b"),
            ("silver", "s"),
            ("checkpoint", "c.db"),
            ("keys", "id"),
            ("sequence-by", "seq,sub"),
            (
                "operations",
                "{ column = \"op\", upsert = [\"I\", \"U\"], delete = [\"D\"] }",
            ),
        ];
        for text in ["", PIPELINE] {
            let settings = load_with(text, &flags).unwrap();
            let pipeline = settings.pipeline("shop").unwrap();
            let silver = pipeline.silver.as_ref().unwrap();
            assert_eq!(silver.sequence_by, ["seq", "sub"]);
            assert!(
                matches!(&silver.events, EventRules::Operations { column, upsert, .. } if column == "op" && upsert.len() == 2)
            );
        }
    }

    #[test]
    fn odd_folder_name_still_makes_a_pipeline_name() {
        for (landing, expected) in [
            ("a/my files", "my_files"),
            (".tmp", "_.tmp"),
            ("in/", "in"),
            ("/", "pipeline"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let typed = request(folder.path(), &[("landing", landing)]);
            let mut entries = BTreeMap::new();
            put_flags(&typed.flags, &mut entries, &mut Problems::default());
            assert_eq!(flags_name(&typed, &entries).unwrap(), expected);
        }
    }

    #[test]
    fn missing_setting_of_flags_alone_is_named_as_a_flag() {
        let error = load_with("", &[("landing", "in"), ("silver", "s")]).unwrap_err();
        for part in [
            "--bronze is missing",
            "--checkpoint is missing",
            "--keys is missing, which silver needs",
        ] {
            assert!(error.message().contains(part), "{error}");
        }
    }

    #[test]
    fn pipeline_name_that_sql_cannot_hold_is_refused() {
        let message = refusal(&PIPELINE.replace("pipeline.a", "pipeline.\"a b\""));
        assert!(message.contains("not \"a b\""), "{message}");
    }

    #[test]
    fn sample_of_the_repository_loads() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let settings = Settings::load(&request(folder, &[])).unwrap();
        let orders = settings.pipeline("orders").unwrap();
        assert_eq!(orders.source.path, folder.join("landing/orders"));
        assert_eq!(orders.checkpoint, folder.join("checkpoints/orders.db"));
    }

    #[test]
    fn every_setting_stands_in_the_reference_with_its_flag() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let reference = std::fs::read_to_string(folder.join("docs/settings.md")).unwrap();
        for known in SETTING_KEYS {
            let key = known
                .key
                .rsplit_once('.')
                .map_or(known.key, |(table, name)| match table {
                    "silver.operations" => known.key.trim_start_matches("silver."),
                    _ => name,
                });
            let row = format!("| `{key}` | `--{}` |", known.flag);
            assert!(reference.contains(&row), "{row}");
        }
    }
}
