//! Runs programs to their end.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_firstcome-bench");
/// Where the tools of the system lie: nothing else of the environment reaches a child.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Longer than anything here takes on a slow machine; a test that waits so long has found a fault.
const PATIENCE: Duration = Duration::from_secs(30);

/// Looks again and again, at most [`PATIENCE`] long, until there is something to see.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let watch = firstcome::edge::Stopwatch::start();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(watch.elapsed() < PATIENCE, "timed out waiting for {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// A command whose environment and working directory say nothing about firstcome.
pub(crate) fn command(program: &str, directory: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", PATH).current_dir(directory).stdin(Stdio::null());
    command
}

/// What came of a program that ended.
pub(crate) struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
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
    run_for(command, PATIENCE)
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
            // The shell's own `kill` needs no package, and the standard library has none. A process that has ended is as good.
            let line = format!("kill -KILL {process}");
            let _ = Command::new("/bin/sh").args(["-c", &line]).stderr(Stdio::null()).status();
            panic!("{command:?} does not end");
        }
    }
}

/// Runs the benchmarks in a directory.
#[track_caller]
pub(crate) fn bench(directory: &Path, arguments: &[&str]) -> Ended {
    run(command(PROGRAM, directory).args(arguments))
}

/// Whether a tool of the system is installed.
pub(crate) fn is_installed(tool: &str) -> bool {
    PATH.split(':').any(|directory| Path::new(directory).join(tool).exists())
}
