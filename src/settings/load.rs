//! From what was typed to checked [`Settings`]: which file, which pipelines, which flags over it.
//!
//! A flag wins over the file, the file over the default. Nothing is written; the settings file is the only file read.

use super::{PipelineSettings, Settings};
use crate::error::Result;
use std::path::PathBuf;

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

impl Settings {
    /// Loads and checks the settings of the pipelines that were asked for.
    ///
    /// All errors of the file are collected into one [`Error`] of the kind `Settings`. Every pipeline of the file is
    /// checked, also those that were not asked for, since two of them may share a table.
    pub fn load(request: &Request<'_>) -> Result<Settings> {
        let _ = request;
        todo!()
    }

    /// The pipeline of this name.
    pub fn pipeline(&self, name: &str) -> Result<&PipelineSettings> {
        let _ = name;
        todo!()
    }
}
