//! What is typed: commands and flags.
//!
//! Parsing only says what was typed. [`Cli::check`] turns it into a [`checked::Checked`] command that holds validated
//! settings and arguments; nothing in the world is touched before that succeeded.

pub(crate) mod checked;
mod flags;

pub(crate) use flags::{LoadFlags, ReadFlags};

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Load files of changes exactly once into a bronze Delta table and fold them into a silver one
#[derive(Debug, Parser)]
#[command(name = "landfall", version, arg_required_else_help = true, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "Exit codes:
  0  done, everything loaded and applied
  1  stopped by an error (disk, permissions, conflict, disagreement)
  2  the command line or the settings are wrong; nothing was touched
  3  done, but files are parked or records are in quarantine
  4  another landfall holds this checkpoint";

const INIT_EXAMPLE: &str = "Example:
  landfall init landing/orders > landfall.toml
  landfall run --available-now

Call it in the folder in which landfall.toml will stand. Behind each line stands why it
was chosen and how sure that is; what could not be told is a comment to fill in.";

/// Flags of every command.
#[derive(Args, Debug)]
pub(crate) struct Global {
    /// Read the settings from this file [default: $LANDFALL_CONFIG, or landfall.toml in the working folder]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Write messages as text or as one JSON object a line
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    pub(crate) log_format: LogFormat,
    /// Say more; twice for everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Say nothing but errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Color messages
    #[arg(
        long, global = true, value_enum, default_value_t = ColorChoice::Auto, value_name = "WHEN",
        num_args = 0..=1, require_equals = true, default_missing_value = "always"
    )]
    pub(crate) color: ColorChoice,
}

/// How messages look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// When messages have colors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    Auto,
    Always,
    Never,
}

/// How `--json` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum JsonMode {
    /// One JSON document
    Document,
    /// One object a line
    Lines,
}

/// How rows are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RowFormat {
    Table,
    Csv,
    Jsonl,
    Json,
    Parquet,
}

/// `--json` and `--json=lines`.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct JsonFlag {
    /// Print one JSON document, or one object a line with --json=lines
    #[arg(long, value_enum, value_name = "MODE", num_args = 0..=1, require_equals = true, default_missing_value = "document")]
    pub(crate) json: Option<JsonMode>,
}

/// The form of rows on stdout.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct RowsFlag {
    /// Print rows in this format
    #[arg(long, value_enum, value_name = "FORMAT", conflicts_with = "json")]
    pub(crate) format: Option<RowFormat>,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(RunArgs),
    Status(StatusArgs),
    Files(FilesArgs),
    Plan(PlanArgs),
    Reset(ResetArgs),
    Rebuild(RebuildArgs),
    Verify(VerifyArgs),
    Quarantine(QuarantineArgs),
    Changes(ChangesArgs),
    Show(ShowArgs),
    Sql(SqlArgs),
    Explain(ExplainArgs),
    Maintain(MaintainArgs),
    Init(InitArgs),
    Schema(SchemaArgs),
}

/// Load new files and apply their changes; without --available-now watch for ever
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// Run these pipelines [default: all]
    #[arg(value_name = "PIPELINE")]
    pub(crate) pipelines: Vec<String>,
    /// Load what is there now, then stop
    #[arg(long)]
    pub(crate) available_now: bool,
    /// Stop after this many micro-batches
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_batches: Option<u64>,
    #[command(flatten)]
    pub(crate) settings: LoadFlags,
}

/// Report what is loaded, pending, parked and in quarantine
#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// Report these pipelines [default: all]
    #[arg(value_name = "PIPELINE")]
    pub(crate) pipelines: Vec<String>,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
    #[command(flatten)]
    pub(crate) settings: LoadFlags,
}

/// List every file ever seen
#[derive(Args, Debug)]
pub(crate) struct FilesArgs {
    /// Name of the pipeline
    pub(crate) pipeline: String,
    /// List files in this state only
    #[arg(long, value_enum, value_name = "STATE")]
    pub(crate) state: Option<FileStateName>,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
    #[command(flatten)]
    pub(crate) settings: LoadFlags,
}

/// The states of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FileStateName {
    Pending,
    Planned,
    Loaded,
    Parked,
    Cleaned,
}

impl FileStateName {
    /// The word in the checkpoint.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            FileStateName::Pending => "pending",
            FileStateName::Planned => "planned",
            FileStateName::Loaded => "loaded",
            FileStateName::Parked => "parked",
            FileStateName::Cleaned => "cleaned",
        }
    }
}

/// Show what a run would do and write nothing
#[derive(Args, Debug)]
pub(crate) struct PlanArgs {
    /// Plan these pipelines [default: all]
    #[arg(value_name = "PIPELINE")]
    pub(crate) pipelines: Vec<String>,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
    #[command(flatten)]
    pub(crate) settings: LoadFlags,
}

/// Forget files and load them again
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("which").required(true).args(["files", "failed", "all"]))]
pub(crate) struct ResetArgs {
    /// Name of the pipeline
    pub(crate) pipeline: String,
    /// Reset the files whose path matches
    #[arg(long, value_name = "GLOB")]
    pub(crate) files: Option<String>,
    /// Try the parked files again
    #[arg(long)]
    pub(crate) failed: bool,
    /// Reset all files
    #[arg(long)]
    pub(crate) all: bool,
    /// Print what would be forgotten and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) settings: LoadFlags,
}

/// Make silver or the checkpoint again from bronze, or fill columns of bronze from its rescued data
#[derive(Args, Debug)]
pub(crate) struct RebuildArgs {
    /// Name of the pipeline
    pub(crate) pipeline: String,
    /// What to make again; rescued moves values of `_rescued_data` to the columns that can hold them now
    pub(crate) what: RebuildTarget,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) settings: LoadFlags,
}

/// What `rebuild` makes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RebuildTarget {
    Silver,
    Checkpoint,
    Rescued,
}

/// Audit: files are bronze rows, silver is the fold of bronze
#[derive(Args, Debug)]
pub(crate) struct VerifyArgs {
    /// Name of the pipeline
    pub(crate) pipeline: String,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
    #[command(flatten)]
    pub(crate) settings: LoadFlags,
}

/// List refused records
#[derive(Args, Debug)]
pub(crate) struct QuarantineArgs {
    /// Name of the pipeline
    pub(crate) pipeline: String,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
    /// Load the files of the refused records again
    #[arg(long)]
    pub(crate) retry: bool,
    #[command(flatten)]
    pub(crate) settings: LoadFlags,
}

/// Print the change data feed of silver
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("from").required(true).args(["from_version", "from_timestamp"]))]
pub(crate) struct ChangesArgs {
    /// Name of the pipeline
    pub(crate) pipeline: String,
    /// Start with this version
    #[arg(long, value_name = "N")]
    pub(crate) from_version: Option<u64>,
    /// End with this version [default: the newest]
    #[arg(long, value_name = "M", conflicts_with = "to_timestamp")]
    pub(crate) to_version: Option<u64>,
    /// Start with the first commit at or after this time (ISO 8601, UTC without offset)
    #[arg(long, value_name = "T")]
    pub(crate) from_timestamp: Option<String>,
    /// End with the last commit at or before this time
    #[arg(long, value_name = "U")]
    pub(crate) to_timestamp: Option<String>,
    /// Print what the whole range changed, by key: one insert, one delete or one update each
    #[arg(long)]
    pub(crate) net: bool,
    #[command(flatten)]
    pub(crate) rows: RowsFlag,
    #[command(flatten)]
    pub(crate) settings: ReadFlags,
}

/// Print the rows of a table
#[derive(Args, Debug)]
pub(crate) struct ShowArgs {
    /// Name of the pipeline
    pub(crate) pipeline: String,
    /// Table to print [default: silver, or bronze without silver]
    pub(crate) layer: Option<LayerName>,
    /// Print at most this many rows
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Print rows of silver with deleted = true too
    #[arg(long)]
    pub(crate) include_deleted: bool,
    /// Print the table as it was at this version
    #[arg(long, value_name = "N")]
    pub(crate) version: Option<u64>,
    #[command(flatten)]
    pub(crate) rows: RowsFlag,
    #[command(flatten)]
    pub(crate) settings: ReadFlags,
}

/// The tables of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LayerName {
    Bronze,
    Silver,
    Quarantine,
}

/// Query the tables: bronze.P, silver.P, quarantine.P and table_changes('silver.P', from [, to])
#[derive(Args, Debug)]
pub(crate) struct SqlArgs {
    /// Statement that reads, such as "SELECT count(*) FROM silver.orders"
    #[arg(value_name = "SELECT")]
    pub(crate) statement: String,
    #[command(flatten)]
    pub(crate) rows: RowsFlag,
    #[command(flatten)]
    pub(crate) settings: ReadFlags,
}

/// Show every event of one key and whether it was applied
#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    /// Name of the pipeline
    pub(crate) pipeline: String,
    /// Value of a key column
    #[arg(long, value_name = "COLUMN=VALUE", required = true)]
    pub(crate) key: Vec<String>,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
    #[command(flatten)]
    pub(crate) settings: LoadFlags,
}

/// Compact tables, write log checkpoints and clean logs
#[derive(Args, Debug)]
pub(crate) struct MaintainArgs {
    /// Maintain these pipelines [default: all]
    #[arg(value_name = "PIPELINE")]
    pub(crate) pipelines: Vec<String>,
    /// Remove old files that no version within the retention needs
    #[arg(long)]
    pub(crate) vacuum: bool,
    #[command(flatten)]
    pub(crate) settings: LoadFlags,
}

/// Look at a landing folder and propose a landfall.toml on stdout; nothing is written
#[derive(Args, Debug)]
#[command(after_help = INIT_EXAMPLE)]
pub(crate) struct InitArgs {
    /// Landing folder with some files as they arrive
    pub(crate) path: PathBuf,
}

/// Print the columns of bronze and silver and since when each is there
#[derive(Args, Debug)]
pub(crate) struct SchemaArgs {
    /// Name of the pipeline
    pub(crate) pipeline: String,
    #[command(flatten)]
    pub(crate) json: JsonFlag,
    #[command(flatten)]
    pub(crate) settings: LoadFlags,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("landfall").chain(line.split(' ')))
    }

    #[test]
    fn definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn reset_needs_exactly_one_choice() {
        assert_eq!(
            parse("reset p").unwrap_err().kind(),
            ErrorKind::MissingRequiredArgument
        );
        assert_eq!(
            parse("reset p --all --failed").unwrap_err().kind(),
            ErrorKind::ArgumentConflict
        );
        assert!(parse("reset p --files *.jsonl --dry-run").is_ok());
    }

    #[test]
    fn changes_needs_a_start() {
        assert_eq!(
            parse("changes p").unwrap_err().kind(),
            ErrorKind::MissingRequiredArgument
        );
        assert!(parse("changes p --from-version 1 --to-timestamp 2026-01-01 --format csv").is_ok());
        assert!(parse("changes p --from-version -1").is_err());
    }

    #[test]
    fn unknown_words_are_refused() {
        for line in [
            "load",
            "run --nope",
            "files p --state lost",
            "show p gold",
            "run --max-batches 0",
            "rebuild p bronze",
        ] {
            assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn json_takes_its_mode_only_with_an_equals_sign() {
        let Command::Status(status) = parse("status --json orders").unwrap().command else {
            unreachable!()
        };
        assert_eq!(
            (status.json.json, status.pipelines),
            (Some(JsonMode::Document), vec!["orders".to_string()])
        );
        let Command::Files(files) = parse("files orders --json=lines").unwrap().command else {
            unreachable!()
        };
        assert_eq!(files.json.json, Some(JsonMode::Lines));
    }

    #[test]
    fn settings_are_flags_of_their_own_name() {
        let Command::Run(run) = parse("run --landing in --keys a,b --keys c --csv-null-value NA")
            .unwrap()
            .command
        else {
            unreachable!()
        };
        let given: Vec<(&str, &str)> = run
            .settings
            .0
            .values
            .iter()
            .map(|value| (value.key, value.text.as_str()))
            .collect();
        assert_eq!(
            given,
            [
                ("source.path", "in"),
                ("source.csv.null_value", "NA"),
                ("silver.keys", "a,b"),
                ("silver.keys", "c")
            ]
        );
    }
}
