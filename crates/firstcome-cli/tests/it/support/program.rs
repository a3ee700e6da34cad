//! Runs the program to its end.

use super::wait_for;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_firstcome");
/// Where the tools of the system lie: nothing else of the environment reaches a child.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A command whose environment and working directory say nothing about firstcome.
pub(crate) fn command(program: &str, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", PATH).current_dir(directory).stdin(Stdio::null());
    command
}

/// What came of a program that ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Ended {
    /// The output, if all went well.
    #[track_caller]
    pub(crate) fn well(self) -> String {
        assert_eq!(self.code, Some(0), "{}{}", self.stdout, self.stderr);
        self.stdout
    }

    /// What it said, after it ended with this code.
    #[track_caller]
    pub(crate) fn with(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}{}", self.stdout, self.stderr);
        self.stderr
    }
}

/// Runs a command that ends by itself. One that hangs is killed and fails the test.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Ended {
    run_for(command, super::PATIENCE)
}

/// [`run`] with another patience.
#[track_caller]
pub(crate) fn run_for(command: &mut Command, patience: Duration) -> Ended {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let process = child.id();
    let (ended, waits) = std::sync::mpsc::channel();
    std::thread::spawn(move || ended.send(child.wait_with_output()));
    match waits.recv_timeout(patience) {
        Ok(output) => output.expect("its output can be read").into(),
        Err(_) => {
            signal(process, "KILL");
            panic!("{command:?} does not end");
        }
    }
}

/// The lines of exported data, without the first and the last, secrets of the service, and heads, whose number rests on the time.
pub(crate) fn rows(exported: &str) -> Vec<String> {
    let frame = ["export", "secret", "head", "end"].map(|kind| format!("{{\"kind\":\"{kind}\""));
    exported.lines().filter(|line| !frame.iter().any(|kind| line.starts_with(kind))).map(str::to_owned).collect()
}

/// Runs firstcome in a directory.
#[track_caller]
pub(crate) fn firstcome(directory: &Path, arguments: &[&str]) -> Ended {
    run(command(PROGRAM, directory).args(arguments))
}

/// Sends a signal to one process. The shell's own `kill` needs no package, and the standard library has none.
pub(crate) fn signal(process: u32, name: &str) {
    let line = format!("kill -{name} {process}");
    // A process that has ended already is as good.
    let _ = Command::new("/bin/sh").args(["-c", &line]).stderr(Stdio::null()).status();
}

/// Waits until a child has ended.
#[track_caller]
pub(crate) fn wait(child: &mut Child) -> ExitStatus {
    wait_for("the end of a child", || child.try_wait().expect("the child is ours"))
}

/// Whether a tool of the system is installed.
pub(crate) fn is_installed(tool: &str) -> bool {
    PATH.split(':').any(|directory| Path::new(directory).join(tool).exists())
}
