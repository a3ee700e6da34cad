//! The settings in force, with the source of each, for `firstcome config print`.

use super::file::{Parsed, key_of, leaf};
use crate::keys::SECRETS;
use crate::store_address::shown;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command};
use std::fmt;

/// A setting in force.
pub(crate) struct Setting {
    /// The key of the settings file, or the name of the flag or variable if no key sets it.
    pub(crate) name: String,
    /// The value without secrets; `None` if it is not set and has no default.
    pub(crate) value: Option<String>,
    /// The value if no source sets it; `None` if there is none.
    pub(crate) default: Option<String>,
    pub(crate) source: Source,
    /// The variable of the environment that sets it, if there is one.
    pub(crate) variable: Option<String>,
    /// What the setting means, with its unit and default.
    pub(crate) help: String,
}

/// Where a value comes from.
pub(crate) enum Source {
    Flag(String),
    Variable(String),
    /// As `PATH:LINE`.
    File(String),
    Default,
}

/// Lists the settings of the command that was parsed.
pub(crate) fn settings(program: &Command, parsed: &Parsed) -> Vec<Setting> {
    let (path, matches) = leaf(&parsed.matches);
    let name = path.last().map_or("", String::as_str);
    let mut program = program.clone();
    program.build();
    let command = path.iter().try_fold(&program, |command, name| command.find_subcommand(name));
    let arguments = command.map(Command::get_arguments).into_iter().flatten();
    let is_setting = |argument: &&Arg| argument.get_long().is_some_and(|flag| !["help", "version"].contains(&flag));
    let mut settings: Vec<Setting> =
        arguments.filter(is_setting).map(|argument| setting(name, argument, matches, parsed)).collect();
    settings.extend(SECRETS.iter().map(secret));
    settings
}

/// The settings that are no defaults, for the log. No secret is among them.
#[derive(Default)]
pub(crate) struct ChangedSettings(Vec<(String, String)>);

impl ChangedSettings {
    /// Those of the command that was parsed.
    pub(crate) fn of(program: &Command, parsed: &Parsed) -> Self {
        let settings = settings(program, parsed).into_iter();
        let changed = settings.filter(|setting| !matches!(setting.source, Source::Default));
        Self(changed.map(|setting| (setting.name, setting.value.unwrap_or_default())).collect())
    }
}

impl fmt::Display for ChangedSettings {
    /// As `name=value name="a value"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, value)) in self.0.iter().enumerate() {
            let gap = if at == 0 { "" } else { " " };
            let is_plain = !value.is_empty() && value.chars().all(|letter| letter.is_ascii_graphic() && letter != '"');
            match is_plain {
                true => write!(f, "{gap}{name}={value}")?,
                false => write!(f, "{gap}{name}={value:?}")?,
            }
        }
        Ok(())
    }
}

fn setting(command: &str, argument: &Arg, matches: &ArgMatches, parsed: &Parsed) -> Setting {
    let (flag, id) = (argument.get_long().unwrap_or_default(), argument.get_id().as_str());
    let key = key_of(command, argument);
    let of_file = key.and_then(|key| parsed.file.as_ref()?.place_of(key));
    let source = match (matches.value_source(id), argument.get_env(), of_file) {
        (Some(ValueSource::CommandLine), ..) => Source::Flag(format!("--{flag}")),
        (Some(ValueSource::EnvVariable), Some(variable), _) => Source::Variable(variable.to_string_lossy().into()),
        (_, _, Some(place)) => Source::File(place),
        _ => Source::Default,
    };
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let given = matches
        .get_raw(id)
        .map(|values| values.map(|value| shown(flag, &value.to_string_lossy())).collect::<Vec<_>>().join(", "));
    let default = default(argument, &help);
    let value = given.or_else(|| default.clone());
    let variable = argument.get_env().map(|variable| variable.to_string_lossy().into_owned());
    Setting { name: key.unwrap_or(flag).to_owned(), value, default, source, variable, help }
}

fn default(argument: &Arg, help: &str) -> Option<String> {
    let defaults: Vec<_> = argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if !defaults.is_empty() {
        return Some(defaults.join(", "));
    }
    // A default that depends on other settings is in the help alone.
    help.split_once("[default: ").map(|(_, text)| text.trim_end_matches(']').to_owned())
}

/// A secret that has variables alone. Its value is not shown.
fn secret(&(variable, help): &(&str, &str)) -> Setting {
    let file = format!("{variable}_FILE");
    let is_set = |name: &str| crate::keys::variable(name).is_ok_and(|value| value.is_some());
    let (value, source) = if is_set(variable) {
        (Some("***".to_owned()), Source::Variable(variable.to_owned()))
    } else if is_set(&file) {
        (Some("***".to_owned()), Source::Variable(file))
    } else {
        (None, Source::Default)
    };
    let (name, help) = (variable.to_owned(), help.to_owned());
    Setting { name: name.clone(), value, default: None, source, variable: Some(name), help }
}
