//! The settings as flags, made from the catalogue of settings.
//!
//! So a setting cannot lack its flag. Values stay texts here; the library checks them like those of a file.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use landfall::settings::{FlagValue, SETTING_KEYS, SettingKey};

/// Every setting as a flag, for commands that load or look at the checkpoint.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoadFlags(pub(crate) SettingFlags);

/// Every setting but `--format`, which says there how rows are printed.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadFlags(pub(crate) SettingFlags);

/// The settings that were given as flags.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettingFlags {
    /// `--name`.
    pub(crate) name: Option<String>,
    /// In the order of the catalogue.
    pub(crate) values: Vec<FlagValue>,
}

/// The whole table in one flag, as in the settings file.
const OPERATIONS: SettingKey = SettingKey {
    key: "silver.operations",
    flag: "operations",
    help: "Closed set of operations, such as '{ column = \"op\", upsert = [\"I\", \"U\"], delete = [\"D\"] }'",
};

fn settings(with_format: bool) -> impl Iterator<Item = &'static SettingKey> {
    SETTING_KEYS
        .iter()
        .chain([&OPERATIONS])
        .filter(move |known| with_format || known.flag != "format")
}

fn augment(command: Command, with_format: bool) -> Command {
    let name = Arg::new("setting.name")
        .long("name")
        .value_name("NAME")
        .help("Name of the pipeline that the flags make [default: the landing folder's name]")
        .hide_short_help(true)
        .help_heading("Settings");
    settings(with_format).fold(command.arg(name), |command, known| {
        command.arg(
            Arg::new(known.key)
                .long(known.flag)
                .value_name("VALUE")
                .help(known.help)
                .action(ArgAction::Append)
                .hide_short_help(true)
                .help_heading("Settings"),
        )
    })
}

fn collect(matches: &ArgMatches, with_format: bool) -> SettingFlags {
    let name = matches.get_one::<String>("setting.name").cloned();
    let mut values = Vec::new();
    for known in settings(with_format) {
        for text in matches.get_many::<String>(known.key).into_iter().flatten() {
            values.push(FlagValue {
                key: known.key,
                flag: format!("--{}", known.flag),
                text: text.clone(),
            });
        }
    }
    SettingFlags { name, values }
}

impl Args for LoadFlags {
    fn augment_args(command: Command) -> Command {
        augment(command, true)
    }

    fn augment_args_for_update(command: Command) -> Command {
        augment(command, true)
    }
}

impl FromArgMatches for LoadFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(LoadFlags(collect(matches, true)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0 = collect(matches, true);
        Ok(())
    }
}

impl Args for ReadFlags {
    fn augment_args(command: Command) -> Command {
        augment(command, false)
    }

    fn augment_args_for_update(command: Command) -> Command {
        augment(command, false)
    }
}

impl FromArgMatches for ReadFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(ReadFlags(collect(matches, false)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0 = collect(matches, false);
        Ok(())
    }
}
