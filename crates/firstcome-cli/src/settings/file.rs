//! The settings file: a level below variables and flags, and above defaults.
//!
//! A key has the name of a flag, and its value goes through the parser of that flag. So the structs of the arguments are
//! the one list of settings: with type, unit, default and help.

use super::variable;
use crate::keys::SECRETS;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, ArgMatches, Command};
use std::any::TypeId;
use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// The settings file of the machine. The package installs it.
pub(crate) const SYSTEM_FILE: &str = "/etc/firstcome/firstcome.toml";
/// The file that earlier versions read from the working directory.
const UNREAD_FILE: &str = "firstcome.toml";
/// The commands whose flags are keys of the file.
pub(super) const COMMANDS: [&str; 4] = ["serve", "gate", "lock", "once"];
/// The commands that read [`SYSTEM_FILE`]. It may be unreadable for users who run the others.
const OF_OPERATORS: [&str; 4] = ["serve", "gate", "doctor", "config"];

/// Returns the key of the settings file that sets this argument, if there is one.
pub(super) fn key_of<'a>(command: &str, argument: &'a Arg) -> Option<&'a str> {
    let flag = argument.get_long()?;
    match (command, flag) {
        // The place of the file, a mode that must not stay switched on, and what makes a gate this gate.
        (_, "config" | "dev") | ("gate", "upstream") => None,
        ("gate", "listen") => Some("gate-listen"),
        ("gate", "service-listen") => Some("listen"),
        _ => argument.get_env().map(|_| flag),
    }
}

/// A settings file whose values are valid, each by itself.
pub(crate) struct SettingsFile {
    path: PathBuf,
    entries: Vec<Entry>,
}

struct Entry {
    key: String,
    /// The values as a flag takes them.
    values: Vec<String>,
    line: usize,
}

impl SettingsFile {
    /// Reads a file. Fails with a line for each problem: the place, what is wrong, and what to do.
    pub(super) fn read(path: &Path, program: &Command) -> Result<Self, Vec<String>> {
        let shown = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| {
            vec![format!("cannot read the settings file {shown}: {error}; name another file with --config FILE")]
        })?;
        let line_of = |at: usize| 1 + text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count();
        let (table, faults) = DeTable::parse_recoverable(&text);
        if !faults.is_empty() {
            // Without the text of the line, which may contain a password.
            let says = |fault: &toml::de::Error| {
                let line = line_of(fault.span().map_or(0, |span| span.start));
                format!("{shown}:{line}: this is not TOML: {}; write KEY = VALUE", fault.message())
            };
            return Err(faults.iter().map(says).collect());
        }
        let keys = Keys::of(program);
        let (mut entries, mut problems) = (Vec::new(), Vec::new());
        for (key, value) in table.get_ref() {
            let line = line_of(key.span().start);
            let key = key.get_ref().as_ref();
            match keys.check(key, value.get_ref()) {
                Ok(values) => entries.push(Entry { key: key.to_owned(), values, line }),
                Err(says) => problems.push((line, format!("{shown}:{line}: {says}"))),
            }
        }
        if problems.is_empty() {
            return Ok(Self { path: path.to_owned(), entries });
        }
        problems.sort_by_key(|(line, _)| *line);
        Err(problems.into_iter().map(|(_, says)| says).collect())
    }

    /// Returns where the file sets a key, as `PATH:LINE`.
    pub(super) fn place_of(&self, key: &str) -> Option<String> {
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        Some(format!("{}:{}", self.path.display(), entry.line))
    }

    /// Makes the values of the file the defaults of a command, which is named by its path.
    pub(super) fn below(&self, program: Command, path: &[String]) -> Command {
        let name = program.get_name().to_owned();
        match path {
            [] => program.mut_args(|argument| self.below_argument(&name, argument)),
            [first, rest @ ..] => program.mut_subcommand(first, |command| self.below(command, rest)),
        }
    }

    fn below_argument(&self, command: &str, argument: Arg) -> Arg {
        let key = key_of(command, &argument);
        let Some(entry) = key.and_then(|key| self.entries.iter().find(|entry| entry.key == key)) else {
            return argument;
        };
        // A flag that is given once takes a list as one text.
        let values = match argument.get_action() {
            ArgAction::Append => entry.values.clone(),
            _ => vec![entry.values.join(" ")],
        };
        argument.default_values(values.iter().map(|value| lasting(value)))
    }
}

/// Keeps a text until the process ends, as clap wants it. A process reads one settings file.
pub(super) fn lasting(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}

/// A command whose flags are the keys of the file. Its parsers check values, and it suggests the key that was meant.
struct Keys(Command);

impl Keys {
    fn of(program: &Command) -> Self {
        let mut keys = Command::new("settings").no_binary_name(true).disable_help_flag(true);
        for name in COMMANDS {
            let arguments = program.find_subcommand(name).map(Command::get_arguments).into_iter().flatten();
            for argument in arguments {
                let Some(key) = key_of(name, argument) else { continue };
                if keys.get_arguments().all(|known| known.get_long() != Some(key)) {
                    keys = keys.arg(alone(lasting(key), argument));
                }
            }
        }
        Self(keys)
    }

    /// Returns the values of a key, as its flag takes them, or what is wrong.
    fn check(&self, key: &str, value: &DeValue<'_>) -> Result<Vec<String>, String> {
        let Some(argument) = self.0.get_arguments().find(|argument| argument.get_long() == Some(key)) else {
            return Err(self.unknown(key));
        };
        let values = texts(argument, value)
            .map_err(|wanted| format!("{key} is of the type {}; write {wanted}", value.type_str()))?;
        if argument.get_action().takes_values() {
            for text in &values {
                let given = self.0.clone().try_get_matches_from([format!("--{key}={text}")]);
                given.map_err(|error| format!("{key}: {}", says(&error)))?;
            }
        }
        Ok(values)
    }

    fn unknown(&self, key: &str) -> String {
        if let Some(secret) = secret_of(key) {
            return format!("{key}: secrets are no settings of the file: set {secret} or {secret}_FILE");
        }
        match meant(self.0.clone(), key) {
            Some(meant) => format!("unknown key {key}: did you mean {meant}?"),
            None => format!("unknown key {key}: remove it; `firstcome config print` lists the keys"),
        }
    }
}

/// Returns the flag, without its dashes, that is most similar to an unknown name.
pub(super) fn meant(flags: Command, name: &str) -> Option<String> {
    let error = flags.try_get_matches_from([format!("--{name}=x")]).err()?;
    let meant = error.get(ContextKind::SuggestedArg)?.to_string();
    Some(meant.trim_start_matches('-').to_owned())
}

/// Returns the variable of the secret that a key names.
fn secret_of(key: &str) -> Option<&'static str> {
    let variable = format!("FIRSTCOME_{}", key.to_ascii_uppercase().replace('-', "_"));
    let name = variable.strip_suffix("_FILE").unwrap_or(&variable);
    SECRETS.iter().map(|(secret, _)| *secret).find(|secret| *secret == name)
}

/// Returns the argument under another name, with its parser, and without its relations to others.
fn alone(key: &'static str, argument: &Arg) -> Arg {
    let alone = Arg::new(key).long(key).action(argument.get_action().clone());
    let alone = alone.value_parser(argument.get_value_parser().clone());
    match argument.get_value_delimiter() {
        Some(delimiter) => alone.value_delimiter(delimiter),
        None => alone,
    }
}

/// Translates a value of TOML to texts. Fails with what to write.
fn texts(argument: &Arg, value: &DeValue<'_>) -> Result<Vec<String>, &'static str> {
    let parsed = argument.get_value_parser().type_id();
    let is_number =
        [TypeId::of::<u8>(), TypeId::of::<u16>(), TypeId::of::<u32>(), TypeId::of::<u64>(), TypeId::of::<usize>()]
            .iter()
            .any(|number| parsed == *number);
    let is_share = parsed == TypeId::of::<f64>();
    match (value, argument.get_action()) {
        (DeValue::Float(number), _) if is_share => Ok(vec![number.as_str().to_owned()]),
        (DeValue::Integer(number), _) if is_share => Ok(vec![number.as_str().to_owned()]),
        (DeValue::Boolean(is_on), ArgAction::SetTrue) => Ok(vec![is_on.to_string()]),
        (_, ArgAction::SetTrue) => Err("true or false"),
        (DeValue::Integer(number), _) if is_number => {
            let number = i64::from_str_radix(&number.as_str().replace('_', ""), number.radix());
            number.map(|number| vec![number.to_string()]).map_err(|_| "a smaller number")
        }
        _ if is_number => Err("a whole number without quotes"),
        (DeValue::String(text), _) => Ok(vec![text.to_string()]),
        (DeValue::Array(texts), ArgAction::Append) => {
            let text = |value: &toml::Spanned<DeValue<'_>>| value.get_ref().as_str().map(str::to_owned);
            texts.iter().map(text).collect::<Option<_>>().ok_or("an array of texts in quotes")
        }
        (_, ArgAction::Append) => Err("an array of texts in quotes"),
        _ => Err("a text in quotes"),
    }
}

/// Returns in one line why a parser refuses a value.
fn says(error: &clap::Error) -> String {
    if let Some(source) = error.source() {
        return source.to_string();
    }
    match error.get(ContextKind::ValidValue) {
        Some(valid) => format!("write one of: {valid}"),
        None => one_line(error),
    }
}

/// Returns an error of clap in one line: with its tips, without its prefix, and without the usage that follows. An argument that may
/// be an address with a password is left out.
pub(crate) fn one_line(error: &clap::Error) -> String {
    let mut text = error.to_string();
    for kind in [ContextKind::InvalidValue, ContextKind::InvalidArg, ContextKind::InvalidSubcommand] {
        if let Some(ContextValue::String(value)) = error.get(kind)
            && value.contains(['@', '?'])
        {
            text = text.replace(value, "***");
        }
    }
    let lines: Vec<&str> = text.lines().map(str::trim).take_while(|line| !line.is_empty()).collect();
    let said = lines.join(" ").trim_start_matches("error: ").to_owned();
    let tips = text.lines().filter_map(|line| line.trim().strip_prefix("tip: "));
    tips.fold(said, |said, tip| format!("{said}; {tip}"))
}

/// The arguments of a command, with the settings file below them.
pub(crate) struct Parsed {
    pub(crate) matches: ArgMatches,
    /// `None` if the command has no settings, or there is no file.
    pub(crate) file: Option<SettingsFile>,
}

/// Why arguments and settings file cannot be used.
pub(crate) enum NotParsed {
    Arguments(clap::Error),
    /// The variables or the settings file: a line for each problem.
    Settings(Vec<String>),
}

/// Parses arguments, with the settings file of their command below variables and flags. A service refuses unknown variables.
pub(crate) fn parse(program: &Command, arguments: &[OsString]) -> Result<Parsed, NotParsed> {
    let not_parsed = |error: clap::Error| match variable::wrong_value(program, arguments, &error) {
        Some(says) => NotParsed::Settings(vec![says]),
        None => NotParsed::Arguments(error),
    };
    let matches = program.clone().try_get_matches_from(arguments).map_err(not_parsed)?;
    let (path, leaf) = leaf(&matches);
    let mut problems = variable::unknown_here(program, &path);
    let file = match place(&path, leaf).map(|place| SettingsFile::read(&place, program)).transpose() {
        Ok(file) => file,
        Err(says) => {
            problems.extend(says);
            None
        }
    };
    if !problems.is_empty() {
        return Err(NotParsed::Settings(problems));
    }
    let Some(file) = file else { return Ok(Parsed { matches, file: None }) };
    let matches = file.below(program.clone(), &path).try_get_matches_from(arguments).map_err(not_parsed)?;
    Ok(Parsed { matches, file: Some(file) })
}

/// Returns the names of the subcommands, and the arguments of the innermost one.
pub(super) fn leaf(matches: &ArgMatches) -> (Vec<String>, &ArgMatches) {
    let (mut path, mut leaf) = (Vec::new(), matches);
    while let Some((name, inner)) = leaf.subcommand() {
        path.push(name.to_owned());
        leaf = inner;
    }
    (path, leaf)
}

/// Returns the file that a command reads: the one that is named, else that of the machine.
fn place(path: &[String], leaf: &ArgMatches) -> Option<PathBuf> {
    // An error means that the command has no such flag, and so no settings.
    let named = leaf.try_get_one::<PathBuf>("config").ok()?;
    // A trial on a machine that has a service must not use the stores of that service.
    let is_trial = leaf.try_get_one::<bool>("dev").ok().flatten() == Some(&true);
    let of_machine = || {
        let is_read = !is_trial && path.first().is_some_and(|name| OF_OPERATORS.contains(&name.as_str()));
        Some(PathBuf::from(SYSTEM_FILE)).filter(|file| is_read && file.exists())
    };
    named.cloned().or_else(of_machine)
}

/// Returns a warning if earlier versions would have read a file that this one does not.
pub(crate) fn unread_file(matches: &ArgMatches) -> Option<String> {
    let (_, leaf) = leaf(matches);
    let is_named = leaf.try_get_one::<PathBuf>("config").ok()?.is_some();
    let here = Path::new(UNREAD_FILE);
    let is_there = !is_named && here.exists();
    let is_read = here.canonicalize().ok() == Path::new(SYSTEM_FILE).canonicalize().ok();
    (is_there && !is_read).then(|| {
        format!("./{UNREAD_FILE} is not read, since no command reads settings from its working directory: name it with --config {UNREAD_FILE}")
    })
}
