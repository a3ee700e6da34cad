//! Reads what `strace -f -y` wrote: which call began and ended when, as one order over all threads.
//!
//! The order is that of the stops: a call is written down before it runs and again before its thread goes on. So if a
//! sync stands as ended above the line where a send begins, it was over when the send began.

use super::program::{PATH, PROGRAM, command, is_installed};
use super::{machine_has, wait_for};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One system call.
#[derive(Debug)]
pub(crate) struct Call {
    /// Its name.
    pub(crate) name: String,
    /// Its arguments, as far as they are shown.
    pub(crate) arguments: String,
    /// The line where it begins.
    pub(crate) begun: usize,
    /// The line where it ends; none if the process was killed in it.
    pub(crate) ended: Option<usize>,
    /// What it gave back.
    pub(crate) result: String,
}

impl Call {
    /// Whether it is a sync of this file that went well.
    pub(crate) fn synced(&self, file: &str) -> bool {
        self.is_sync(file) && self.result.trim() == "0"
    }

    /// Whether it is a sync of this file, successful or not.
    pub(crate) fn is_sync(&self, file: &str) -> bool {
        matches!(self.name.as_str(), "fsync" | "fdatasync") && self.is_on(file)
    }

    /// Whether it writes this text to this file.
    pub(crate) fn wrote(&self, file: &str, text: &str) -> bool {
        self.name.starts_with("pwrite") && self.is_on(file) && self.arguments.contains(text)
    }

    /// Whether strace made it fail.
    pub(crate) fn is_injected(&self) -> bool {
        self.result.contains("(INJECTED)")
    }

    /// The user whom this call tells that the coupon is theirs, if it does.
    pub(crate) fn tells_claim(&self) -> Option<&str> {
        let sends = matches!(self.name.as_str(), "write" | "writev" | "sendto" | "sendmsg");
        if !sends || !self.arguments.contains("HTTP/1.1 201") {
            return None;
        }
        let (_, rest) = self.arguments.split_once(r#"\"user\":\""#)?;
        rest.split('\\').next()
    }

    /// The lock that this call tells its caller to have, if it does.
    pub(crate) fn tells_lock(&self) -> Option<&str> {
        let sends = matches!(self.name.as_str(), "write" | "writev" | "sendto" | "sendmsg");
        if !sends || !self.arguments.contains("HTTP/1.1 200") || !self.arguments.contains(r#"\"handle\":\""#) {
            return None;
        }
        let (_, rest) = self.arguments.split_once(r#"\"lock\":\""#)?;
        rest.split('\\').next()
    }

    fn is_on(&self, file: &str) -> bool {
        let descriptor = self.arguments.split('>').next().unwrap_or_default();
        descriptor.ends_with(&format!("/{file}"))
    }
}

/// Whether this machine can trace.
#[track_caller]
pub(crate) fn can_trace() -> bool {
    machine_has("strace", is_installed("strace"))
}

/// The service under strace. The tracer is the grandchild, so the child that is started is the service itself.
pub(crate) fn traced(directory: &Path, trace: &str, options: &[&str], arguments: &[&str]) -> Command {
    let mut command = command("strace", directory);
    command.env("PATH", PATH).args(["-D", "-f", "-y", "-s", "16384", "-o", trace]).args(options);
    command.args([PROGRAM, "serve", "--listen", "127.0.0.1:0", "--data", "data", "--dev"]).args(arguments);
    command
}

/// The calls of a process that has ended, in the order in which they began.
#[track_caller]
pub(crate) fn read(path: &PathBuf, process: u32) -> Vec<Call> {
    let ends = format!("{process} ");
    let text = wait_for("the end of the trace", || {
        let bytes = std::fs::read(path).ok()?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        text.lines().any(|line| line.starts_with(&ends) && line.contains(" +++ ")).then_some(text)
    });
    parse(&text)
}

fn parse(text: &str) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    let mut open: HashMap<&str, usize> = HashMap::new();
    for (at, line) in text.lines().enumerate() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        if let Some((_, rest)) = rest.strip_prefix("<... ").and_then(|rest| rest.split_once(" resumed>")) {
            if let Some(call) = open.remove(thread).and_then(|index| calls.get_mut(index)) {
                let (arguments, result) = split_result(rest);
                call.arguments.push_str(arguments);
                call.result = result.to_owned();
                call.ended = Some(at);
            }
            continue;
        }
        let Some((name, rest)) = rest.split_once('(') else { continue };
        let unfinished = rest.strip_suffix(" <unfinished ...>");
        let (arguments, result) = unfinished.map_or_else(|| split_result(rest), |arguments| (arguments, ""));
        if unfinished.is_some() {
            open.insert(thread, calls.len());
        }
        calls.push(Call {
            name: name.to_owned(),
            arguments: arguments.to_owned(),
            begun: at,
            ended: unfinished.is_none().then_some(at),
            result: result.to_owned(),
        });
    }
    calls
}

fn split_result(text: &str) -> (&str, &str) {
    text.rsplit_once(" = ").unwrap_or((text, ""))
}

#[test]
fn a_call_that_another_one_interrupts_is_put_together_again() {
    let text = "7 fsync(3</d/firstcome.db-wal> <unfinished ...>\n\
        8 sendto(9<socket:[1]>, \"HTTP/1.1 201 Created\\r\\n{\\\"user\\\":\\\"ann\\\"}\", 30, 0, NULL, 0) = 30\n\
        7 <... fsync resumed>) = -1 EIO (Input/output error) (INJECTED)\n\
        7 +++ exited with 0 +++\n";
    let calls = parse(text);
    assert_eq!(calls.len(), 2, "{calls:?}");
    let (sync, send) = (&calls[0], &calls[1]);
    assert!(sync.is_sync("firstcome.db-wal") && sync.is_injected() && !sync.synced("firstcome.db-wal"));
    assert_eq!((sync.begun, sync.ended, send.begun), (0, Some(2), 1));
    assert_eq!(send.tells_claim(), Some("ann"));
}
