//! The gate waits for the holder, and then becomes the command.
//!
//! It leads the command's group before the first instruction of the command runs, so that guardian, holder and
//! terminal can be prepared. Without a message of the holder it never becomes the command. When the guardian dies, the
//! kernel kills the gate, or the command that it has become.

use super::{family, messages};
use crate::failure::Failure;
use crate::output::say;
use anyhow::{Context, anyhow};
use rustix::process::Pid;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

/// The exit codes of a shell when a command does not exist, or cannot be run.
const NOT_FOUND: u8 = 127;
const NOT_RUNNABLE: u8 = 126;

#[derive(clap::Args)]
pub(crate) struct GateArgs {
    /// The process that started this one, and with which it dies
    #[arg(long)]
    pub(super) parent: Option<i32>,
    /// Whether the guardian waits for what the command leaves behind
    #[arg(long)]
    pub(super) wait_children: bool,
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(super) command: Vec<OsString>,
}

/// Waits for the holder's message, and becomes the command.
pub(crate) fn run(args: &GateArgs) -> Result<ExitCode, Failure> {
    let guardian = args.parent.and_then(Pid::from_raw).context("no parent was named")?;
    if !family::die_with(guardian).context("cannot be made to end with the guardian")? {
        return Err(anyhow!("the guardian is gone: the command was not started").into());
    }
    let socket = messages::socket_of_input()?;
    let Some((words, [input, output])) = messages::receive_with_files(&socket)? else { return Ok(ExitCode::SUCCESS) };
    let words = String::from_utf8(words).context("not a name and a fence")?;
    let (name, fence) = words.rsplit_once(' ').ok_or_else(|| anyhow!("not a name and a fence"))?;
    let [program, arguments @ ..] = args.command.as_slice() else { return Err(anyhow!("no command").into()) };
    let mut command = Command::new(program);
    // An inherited fence belongs to another lock.
    command.args(arguments).env("FIRSTCOME_LOCK", name).env_remove("FIRSTCOME_FENCE");
    if !fence.is_empty() {
        command.env("FIRSTCOME_FENCE", fence);
    }
    let error = command.stdin(Stdio::from(input)).stdout(Stdio::from(output)).exec();
    say(&format!("cannot run {}: {error}", program.display()));
    Ok(ExitCode::from(if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_RUNNABLE }))
}
