//! Variables of the environment: refuses unknown ones, and names the one that has a wrong value.
//!
//! Without this a misspelt variable leaves its setting at the default in silence.

use super::file::{lasting, meant, one_line};
use crate::keys::SECRETS;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Error};
use std::collections::BTreeSet;
use std::ffi::OsString;

const PREFIX: &str = "FIRSTCOME_";
/// The commands that refuse unknown variables. The others may run in the environment of another program.
const REFUSERS: [&str; 3] = ["serve", "gate", "config"];
/// Known variables that are no settings.
const OTHERS: &[&str] = &[
    // `firstcome lock` sets both for its command, which may be a service.
    "FIRSTCOME_LOCK",
    "FIRSTCOME_FENCE",
    #[cfg(feature = "planted-bugs")]
    "FIRSTCOME_PLANTED",
];

/// Returns a line for each variable of this process that no command reads; none if the command, which is named by its path,
/// accepts all.
pub(super) fn unknown_here(program: &Command, path: &[String]) -> Vec<String> {
    if !path.first().is_some_and(|name| REFUSERS.contains(&name.as_str())) {
        return Vec::new();
    }
    unknown(program, std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()))
}

fn unknown(program: &Command, names: impl Iterator<Item = String>) -> Vec<String> {
    let known = known(program);
    let is_unknown = |name: &String| name.starts_with(PREFIX) && !known.contains(name) && !is_service_link(name);
    let unknown: BTreeSet<String> = names.filter(is_unknown).collect();
    unknown.iter().map(|name| says(&known, name)).collect()
}

/// Returns the variables that a command of the program reads.
fn known(program: &Command) -> BTreeSet<String> {
    let mut known: BTreeSet<String> = OTHERS.iter().map(|name| (*name).to_owned()).collect();
    for (secret, _) in SECRETS {
        known.extend([secret.to_owned(), format!("{secret}_FILE")]);
    }
    add_settings(program, &mut known);
    known
}

fn add_settings(command: &Command, known: &mut BTreeSet<String>) {
    let variables = command.get_arguments().filter_map(Arg::get_env);
    known.extend(variables.map(|name| name.to_string_lossy().into_owned()));
    for inner in command.get_subcommands() {
        add_settings(inner, known);
    }
}

/// Whether Kubernetes sets such a variable for a Service whose name begins with `firstcome`.
fn is_service_link(name: &str) -> bool {
    let is_port = |rest: &str| {
        let Some((number, protocol)) = rest.split_once('_') else { return false };
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let is_protocol = |known: &&str| {
            protocol.strip_prefix(*known).is_some_and(|field| field.is_empty() || field.starts_with('_'))
        };
        is_number && ["TCP", "UDP", "SCTP"].iter().any(is_protocol)
    };
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_PORT")
        || name.contains("_SERVICE_PORT_")
        || name.match_indices("_PORT_").any(|(at, separator)| is_port(&name[at + separator.len()..]))
}

fn says(known: &BTreeSet<String>, name: &str) -> String {
    // The prefix would make all names similar.
    let mut flags = Command::new("variables").no_binary_name(true).disable_help_flag(true);
    for known in known.iter().filter_map(|known| known.strip_prefix(PREFIX)) {
        let flag = lasting(known);
        flags = flags.arg(Arg::new(flag).long(flag));
    }
    match meant(flags, name.strip_prefix(PREFIX).unwrap_or(name)) {
        Some(meant) => format!("unknown variable {name}: did you mean {PREFIX}{meant}?"),
        None => format!("unknown variable {name}: unset it; `firstcome serve --help` lists the variables"),
    }
}

/// Returns the error in one line with the name of the variable, if a variable has the wrong value and not a flag.
///
/// The values of the settings file were checked before, so a wrong value that no flag gives is that of the variable.
pub(super) fn wrong_value(program: &Command, arguments: &[OsString], error: &Error) -> Option<String> {
    if !matches!(error.kind(), ErrorKind::ValueValidation | ErrorKind::InvalidValue) {
        return None;
    }
    let Some(ContextValue::String(shown)) = error.get(ContextKind::InvalidArg) else { return None };
    let flag = shown.split_whitespace().next()?.strip_prefix("--")?;
    let mut command = program;
    for argument in arguments.iter().skip(1) {
        let Some(inner) = command.find_subcommand(argument) else { break };
        command = inner;
    }
    let argument = command.get_arguments().find(|argument| argument.get_long() == Some(flag))?;
    let variable = argument.get_env()?;
    let is_flag = |given: &OsString| {
        given.to_string_lossy().strip_prefix("--").is_some_and(|rest| rest.split('=').next() == Some(flag))
    };
    let is_given = arguments.iter().take_while(|argument| argument.as_os_str() != "--").any(is_flag);
    let is_variable = !is_given && std::env::var_os(variable).is_some();
    is_variable.then(|| format!("{}: {}", variable.to_string_lossy(), one_line(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn told(names: &[&str]) -> Vec<String> {
        unknown(&crate::Cli::command(), names.iter().map(|name| (*name).to_owned()))
    }

    #[test]
    fn an_unknown_variable_is_told_with_the_one_that_was_meant() {
        for (name, says) in [
            ("FIRSTCOME_LISTN", "did you mean FIRSTCOME_LISTEN?"),
            ("FIRSTCOME_JOIN_PER_MINUTE", "did you mean FIRSTCOME_JOINS_PER_MINUTE?"),
            ("FIRSTCOME_ADMIN_KEY_FILES", "did you mean FIRSTCOME_ADMIN_KEY_FILE?"),
            ("FIRSTCOME_QQQ", "unset it"),
        ] {
            let told = told(&[name, "PATH", "FIRSTCOME"]);
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(told[0].starts_with(&format!("unknown variable {name}: {says}")), "{told:?}");
        }
    }

    #[test]
    fn variables_of_any_command_and_links_of_kubernetes_are_accepted() {
        for name in [
            "FIRSTCOME_CONFIG",
            "FIRSTCOME_DRILL_ADMIN_KEY",
            "FIRSTCOME_FENCE",
            "FIRSTCOME_LOCK",
            "FIRSTCOME_NODES_PORT",
            "FIRSTCOME_NODES_SERVICE_HOST",
            "FIRSTCOME_PORT",
            "FIRSTCOME_PORT_8080_TCP",
            "FIRSTCOME_PORT_8080_TCP_ADDR",
            "FIRSTCOME_PORT_53_UDP_PROTO",
            "FIRSTCOME_SECRET_FALLBACK_FILE",
            "FIRSTCOME_SERVICE_HOST",
            "FIRSTCOME_SERVICE_PORT",
            "FIRSTCOME_SERVICE_PORT_HTTP",
            "FIRSTCOME_STORE",
            "FIRSTCOME_URL",
            "FIRSTCOME_VIEW_KEYS",
            "FIRSTCOME_WAIT",
        ] {
            assert_eq!(told(&[name]), [""; 0], "{name}");
        }
        for name in ["FIRSTCOME_PORT_HTTP", "FIRSTCOME_PORT_8080", "FIRSTCOME_PORT_8080_TCPS", "FIRSTCOME_HOST"] {
            assert_eq!(told(&[name]).len(), 1, "{name}");
        }
    }
}
