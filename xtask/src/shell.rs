//! Runs programs and says which one failed.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The result of a chore.
pub(crate) type Outcome = Result<(), String>;

/// Returns the project's root.
pub(crate) fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or_else(|| here.clone(), PathBuf::from)
}

/// Prepares a program to run in the project's root.
///
/// Cargo tells a program that it runs about the package of that program. Build scripts of dependencies look at the same variables, and
/// would run again after each call of `cargo` without this program in between: half of the dependencies with them.
pub(crate) fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root()).stdin(Stdio::null());
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a program with its output shown.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Outcome {
    let line = format!("{program} {}", arguments.join(" "));
    println!("\n— {line}");
    let status = command(program, arguments).status().map_err(|error| format!("cannot run {line}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("failed: {line}")) }
}

/// Runs a program like [`run`], with one more environment variable.
pub(crate) fn run_with((name, value): (&str, &Path), program: &str, arguments: &[&str]) -> Outcome {
    let line = format!("{program} {}", arguments.join(" "));
    println!("\n— {line}");
    let status = command(program, arguments).env(name, value).status();
    let status = status.map_err(|error| format!("cannot run {line}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("failed: {line}")) }
}

/// Runs a program and returns its standard output. Its standard error is shown.
pub(crate) fn output(program: &str, arguments: &[&str]) -> Result<String, String> {
    let line = format!("{program} {}", arguments.join(" "));
    println!("\n— {line}");
    let output = command(program, arguments).stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("cannot run {line}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(text) } else { Err(format!("failed: {line}\n{text}")) }
}

/// Returns whether a program exists: on the path, or where Debian installs servers, which few paths include.
pub(crate) fn has(program: &str) -> bool {
    let look = "command -v \"$0\" || PATH=/usr/sbin:/sbin command -v \"$0\" || ls /usr/lib/postgresql/*/bin/\"$0\"";
    let look = Command::new("sh").args(["-c", look, program]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    look.is_ok_and(|status| status.success())
}
