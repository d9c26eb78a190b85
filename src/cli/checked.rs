//! Commands ready to run: validated settings beside the arguments that are left.

use super::{
    Cli, Command, FileStateName, Global, JsonFlag, JsonMode, LayerName, RebuildTarget, RowFormat,
    RowsFlag, flags::SettingFlags,
};
use landfall::change::Version;
use landfall::error::{Error, Result};
use landfall::feed::{ChangePoint, ChangeRange};
use landfall::query::{Layer, ShowRequest};
use landfall::settings::{PipelineSettings, Request, Settings};
use std::path::PathBuf;

/// One command with everything it needs.
#[derive(Debug)]
pub(crate) enum Checked {
    Run(Run),
    Status(Status),
    Files(Files),
    Plan(Plan),
    Reset(Reset),
    Rebuild(Rebuild),
    Verify(Verify),
    Quarantine(Quarantine),
    Changes(Changes),
    Show(Show),
    Sql(Sql),
    Explain(Explain),
    Maintain(Maintain),
    Init(Init),
    Schema(Schema),
}

/// `run`.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) settings: Settings,
    pub(crate) available_now: bool,
    pub(crate) max_batches: Option<u64>,
}

/// `status`.
#[derive(Debug)]
pub(crate) struct Status {
    pub(crate) settings: Settings,
    pub(crate) json: Option<JsonMode>,
}

/// `files`.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) pipeline: PipelineSettings,
    pub(crate) state: Option<FileStateName>,
    pub(crate) json: Option<JsonMode>,
}

/// `plan`.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) settings: Settings,
    pub(crate) json: Option<JsonMode>,
}

/// `reset`.
#[derive(Debug)]
pub(crate) struct Reset {
    pub(crate) pipeline: PipelineSettings,
    pub(crate) which: ResetWhich,
    pub(crate) dry_run: bool,
    /// The caller asks first unless this is set, see [`crate::message::confirm`].
    pub(crate) yes: bool,
}

/// Which files `reset` forgets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ResetWhich {
    Files(String),
    Failed,
    All,
}

/// `rebuild`.
#[derive(Debug)]
pub(crate) struct Rebuild {
    pub(crate) pipeline: PipelineSettings,
    pub(crate) what: RebuildTarget,
    pub(crate) yes: bool,
}

/// `verify`.
#[derive(Debug)]
pub(crate) struct Verify {
    pub(crate) pipeline: PipelineSettings,
    pub(crate) json: Option<JsonMode>,
}

/// `quarantine`.
#[derive(Debug)]
pub(crate) struct Quarantine {
    pub(crate) pipeline: PipelineSettings,
    pub(crate) json: Option<JsonMode>,
    pub(crate) retry: bool,
}

/// `changes`.
#[derive(Debug)]
pub(crate) struct Changes {
    pub(crate) pipeline: PipelineSettings,
    pub(crate) range: ChangeRange,
    pub(crate) net: bool,
    pub(crate) format: RowFormat,
}

/// `show`.
#[derive(Debug)]
pub(crate) struct Show {
    pub(crate) pipeline: PipelineSettings,
    pub(crate) request: ShowRequest,
    pub(crate) format: RowFormat,
}

/// `sql`.
#[derive(Debug)]
pub(crate) struct Sql {
    pub(crate) settings: Settings,
    pub(crate) statement: String,
    pub(crate) format: RowFormat,
}

/// `explain`.
#[derive(Debug)]
pub(crate) struct Explain {
    pub(crate) pipeline: PipelineSettings,
    /// One `COLUMN=VALUE` for each key column.
    pub(crate) key: Vec<String>,
    pub(crate) json: Option<JsonMode>,
}

/// `maintain`.
#[derive(Debug)]
pub(crate) struct Maintain {
    pub(crate) settings: Settings,
    pub(crate) vacuum: bool,
}

/// `init`.
#[derive(Debug)]
pub(crate) struct Init {
    pub(crate) path: PathBuf,
    /// The folder in which the settings will stand.
    pub(crate) folder: PathBuf,
}

/// `schema`.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) pipeline: PipelineSettings,
    pub(crate) json: Option<JsonMode>,
}

impl Checked {
    /// The name of the pipeline, where there is one alone.
    pub(crate) fn one_pipeline(&self) -> Option<String> {
        let only = |settings: &Settings| match settings.pipelines.as_slice() {
            [one] => Some(one.name.clone()),
            _ => None,
        };
        match self {
            Checked::Run(Run { settings, .. })
            | Checked::Status(Status { settings, .. })
            | Checked::Plan(Plan { settings, .. })
            | Checked::Sql(Sql { settings, .. })
            | Checked::Maintain(Maintain { settings, .. }) => only(settings),
            Checked::Files(Files { pipeline, .. })
            | Checked::Reset(Reset { pipeline, .. })
            | Checked::Rebuild(Rebuild { pipeline, .. })
            | Checked::Verify(Verify { pipeline, .. })
            | Checked::Quarantine(Quarantine { pipeline, .. })
            | Checked::Changes(Changes { pipeline, .. })
            | Checked::Show(Show { pipeline, .. })
            | Checked::Explain(Explain { pipeline, .. })
            | Checked::Schema(Schema { pipeline, .. }) => Some(pipeline.name.clone()),
            Checked::Init(_) => None,
        }
    }
}

impl Cli {
    /// Loads the settings and checks the arguments.
    pub(crate) fn check(self) -> Result<Checked> {
        let global = self.global;
        Ok(match self.command {
            Command::Run(args) => Checked::Run(Run {
                settings: load(&global, args.pipelines, args.settings.0)?,
                available_now: args.available_now,
                max_batches: args.max_batches,
            }),
            Command::Status(args) => Checked::Status(Status {
                settings: load(&global, args.pipelines, args.settings.0)?,
                json: args.json.json,
            }),
            Command::Files(args) => Checked::Files(Files {
                pipeline: load_one(&global, args.pipeline, args.settings.0)?,
                state: args.state,
                json: args.json.json,
            }),
            Command::Plan(args) => Checked::Plan(Plan {
                settings: load(&global, args.pipelines, args.settings.0)?,
                json: args.json.json,
            }),
            Command::Reset(args) => Checked::Reset(Reset {
                which: match args.files {
                    Some(glob) => ResetWhich::Files(glob),
                    None if args.failed => ResetWhich::Failed,
                    None => ResetWhich::All,
                },
                pipeline: load_one(&global, args.pipeline, args.settings.0)?,
                dry_run: args.dry_run,
                yes: args.yes,
            }),
            Command::Rebuild(args) => Checked::Rebuild(Rebuild {
                pipeline: load_one(&global, args.pipeline, args.settings.0)?,
                what: args.what,
                yes: args.yes,
            }),
            Command::Verify(args) => Checked::Verify(Verify {
                pipeline: load_one(&global, args.pipeline, args.settings.0)?,
                json: args.json.json,
            }),
            Command::Quarantine(args) => Checked::Quarantine(Quarantine {
                pipeline: load_one(&global, args.pipeline, args.settings.0)?,
                json: args.json.json,
                retry: args.retry,
            }),
            Command::Changes(args) => Checked::Changes(check_changes(&global, args)?),
            Command::Show(args) => Checked::Show(check_show(&global, args)?),
            Command::Sql(args) => Checked::Sql(Sql {
                settings: load(&global, Vec::new(), args.settings.0)?,
                statement: args.statement,
                format: row_format(args.rows),
            }),
            Command::Explain(args) => Checked::Explain(Explain {
                pipeline: load_one(&global, args.pipeline, args.settings.0)?,
                key: args.key,
                json: args.json.json,
            }),
            Command::Init(args) => Checked::Init(Init {
                path: args.path,
                folder: working_folder()?,
            }),
            Command::Maintain(args) => Checked::Maintain(Maintain {
                settings: load(&global, args.pipelines, args.settings.0)?,
                vacuum: args.vacuum,
            }),
            Command::Schema(args) => Checked::Schema(Schema {
                pipeline: load_one(&global, args.pipeline, args.settings.0)?,
                json: args.json.json,
            }),
        })
    }
}

fn load(global: &Global, pipelines: Vec<String>, flags: SettingFlags) -> Result<Settings> {
    Settings::load(&Request {
        config: global.config.clone().or_else(config_of_environment),
        folder: working_folder()?,
        pipelines,
        name: flags.name,
        flags: flags.values,
        environment: &crate::secret::environment,
    })
}

fn working_folder() -> Result<PathBuf> {
    std::env::current_dir()
        .map_err(|error| Error::unavailable(format!("the working folder cannot be read: {error}")))
}

/// An empty variable is as good as none.
fn config_of_environment() -> Option<PathBuf> {
    let config = std::env::var_os("LANDFALL_CONFIG").filter(|path| !path.is_empty());
    config.map(PathBuf::from)
}

fn load_one(global: &Global, pipeline: String, flags: SettingFlags) -> Result<PipelineSettings> {
    let settings = load(global, vec![pipeline.clone()], flags)?;
    settings.pipeline(&pipeline).cloned()
}

fn check_changes(global: &Global, args: super::ChangesArgs) -> Result<Changes> {
    let from = change_point("--from-timestamp", args.from_version, args.from_timestamp)?
        .ok_or_else(|| Error::settings("changes needs --from-version or --from-timestamp"))?;
    let to = change_point("--to-timestamp", args.to_version, args.to_timestamp)?;
    Ok(Changes {
        range: ChangeRange { from, to },
        net: args.net,
        pipeline: load_one(global, args.pipeline, args.settings.0)?,
        format: row_format(args.rows),
    })
}

fn change_point(
    flag: &str,
    number: Option<u64>,
    time: Option<String>,
) -> Result<Option<ChangePoint>> {
    match (number, time) {
        (Some(number), _) => Ok(Some(ChangePoint::Version(version(number)?))),
        (None, Some(text)) => match ChangePoint::parse_time(&text) {
            Some(time) => Ok(Some(time)),
            None => Err(Error::settings(format!("{flag} is not a time: {text}"))
                .hint("write it as 2026-01-31T12:00:00Z")),
        },
        (None, None) => Ok(None),
    }
}

fn check_show(global: &Global, args: super::ShowArgs) -> Result<Show> {
    let pipeline = load_one(global, args.pipeline, args.settings.0)?;
    let layer = match args.layer {
        Some(LayerName::Bronze) => Layer::Bronze,
        Some(LayerName::Silver) => Layer::Silver,
        Some(LayerName::Quarantine) => Layer::Quarantine,
        None if pipeline.silver.is_some() => Layer::Silver,
        None => Layer::Bronze,
    };
    Ok(Show {
        request: ShowRequest {
            layer,
            limit: args.limit,
            include_deleted: args.include_deleted,
            version: args.version.map(version).transpose()?,
        },
        pipeline,
        format: row_format(args.rows),
    })
}

fn row_format(flag: RowsFlag) -> RowFormat {
    match (flag.format, flag.json) {
        (Some(format), _) => format,
        (
            None,
            JsonFlag {
                json: Some(JsonMode::Document),
            },
        ) => RowFormat::Json,
        (
            None,
            JsonFlag {
                json: Some(JsonMode::Lines),
            },
        ) => RowFormat::Jsonl,
        (None, JsonFlag { json: None }) => RowFormat::Table,
    }
}

fn version(number: u64) -> Result<Version> {
    i64::try_from(number)
        .map(Version)
        .map_err(|_| Error::settings(format!("no table has a version {number}")))
}
