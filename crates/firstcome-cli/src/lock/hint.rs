//! Suggests the missing `--` between the name of a lock and the command.

use clap::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::ffi::OsString;

/// Adds the missing `--` to the usage error of `firstcome lock NAME COMMAND`, and of `once`. Other errors stay as they are.
pub(crate) fn explain(mut error: Error, arguments: &[OsString]) -> Error {
    if let Some(tip) = tip(&error, arguments) {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

fn tip(error: &Error, arguments: &[OsString]) -> Option<String> {
    let arguments: Vec<&str> = arguments.iter().skip(1).map(|argument| argument.to_str()).collect::<Option<_>>()?;
    let command_name = arguments.first().copied().filter(|name| ["lock", "once"].contains(name))?;
    let Some(ContextValue::String(stray)) = error.get(ContextKind::InvalidArg) else { return None };
    if arguments.contains(&"--") || error.kind() != ErrorKind::UnknownArgument || stray.starts_with('-') {
        return None;
    }
    // The first match is the lock's name, which may equal the command's.
    let mut at = arguments.iter().enumerate().filter(|(_, argument)| *argument == stray).map(|(at, _)| at);
    let first = at.next()?;
    let (before, command) = arguments.split_at(at.next().unwrap_or(first));
    // An address with a password is not repeated.
    let is_plain =
        |argument: &&str| argument.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./:=,+".contains(&byte));
    let line = match arguments.iter().all(is_plain) {
        true => format!("firstcome {} -- {}", before.join(" "), command.join(" ")),
        false => format!("firstcome {command_name} NAME -- COMMAND"),
    };
    Some(format!("put -- before the command: {line}"))
}
