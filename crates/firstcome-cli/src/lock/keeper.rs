//! The keeper kills the command when holder and guardian are killed at once.
//!
//! It is a child of the holder, the parent of the guardian, and a subreaper. So all processes of the command become
//! its children when the guardian dies. It then kills them, in any group or session. It does the same when the lease
//! is about to end and neither guardian nor holder has acted: both may be stopped.
//!
//! It has a process group of its own, and ignores signals that ask a process to end. Its command line begins
//! differently, so that a kill by name misses it.
//!
//! # Limits
//! - Linux only. Elsewhere the holder starts the guardian itself, and if both are killed at once, the command runs on.
//! - If all three processes are killed at once, the kernel kills only the command itself: see
//!   [`super::family::die_with`].
//! - Only the same user can kill a process that runs as another user (`sudo`).

use super::family;
use super::group::{adopt_orphans, now_ns};
use super::holder::program;
use super::messages::{self, Order};
use super::process_gate::GateArgs;
use super::signals::Signals;
use crate::failure::Failure;
use anyhow::Context;
use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, ExitCode, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// The longest sleep. A sleep pauses while the machine sleeps; the clock does not.
const LOOK: Duration = Duration::from_millis(100);
/// The pause between two checks of processes that are being killed.
const LOOK_AT_END: Duration = Duration::from_millis(2);

/// Starts the guardian with its sockets, under a keeper if the system supports one. Returns the child, and a socket.
/// When that socket closes, the keeper knows that this process has ended.
pub(super) fn start(args: &GateArgs, control: OwnedFd, gate: OwnedFd) -> anyhow::Result<(Child, Option<UnixStream>)> {
    if !cfg!(target_os = "linux") {
        return Ok((start_guardian(args, control, gate)?, None));
    }
    let (lifeline, of_keeper) = UnixStream::pair()?;
    let keeper = program("lock-keeper", args)
        .stdin(OwnedFd::from(of_keeper))
        .stdout(Stdio::null())
        .process_group(0)
        .spawn()
        .context("cannot start the keeper")?;
    messages::send_with_files(&lifeline, b"guard", [control.as_fd(), gate.as_fd()])?;
    lifeline.set_nonblocking(true)?;
    Ok((keeper, Some(lifeline)))
}

fn start_guardian(args: &GateArgs, control: OwnedFd, gate: OwnedFd) -> anyhow::Result<Child> {
    let mut guardian = program("lock-guardian", args);
    guardian.stdin(control).stdout(gate).process_group(0).spawn().context("cannot start the guardian")
}

enum Event {
    /// The guardian has ended. `well` says whether it ended normally, after the command.
    Ended { well: bool },
    /// The last deadline that the holder sent has passed, and the guardian has not ended.
    Due,
}

/// Keeps one command. Returns when its guardian has ended.
pub(crate) fn run(args: &GateArgs) -> Result<ExitCode, Failure> {
    adopt_orphans().context("cannot become the parent of orphaned processes")?;
    // Caught, not ignored, as in the guardian: the command would inherit an ignored signal.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async { Signals::listen().map(drop) }).context("cannot listen to signals")?;
    let holder = messages::socket_of_input()?;
    let Some((_, [control, gate])) = messages::receive_with_files(&holder)? else { return Ok(ExitCode::SUCCESS) };
    let guardian = start_guardian(args, control, gate)?;
    let guardian = i32::try_from(guardian.id()).ok().and_then(Pid::from_raw).context("a process id is out of range")?;
    let (sender, events) = channel();
    std::thread::spawn({
        let sender = sender.clone();
        move || hear(holder, &sender)
    });
    std::thread::spawn(move || sender.send(Event::Ended { well: ends_well(guardian) }));
    if !matches!(events.recv(), Ok(Event::Ended { well: true })) {
        while !family::end() {
            std::thread::park_timeout(LOOK_AT_END);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits until the guardian has ended, and leaves it unreaped. Returns whether it ended normally.
fn ends_well(guardian: Pid) -> bool {
    loop {
        match waitid(WaitId::Pid(guardian), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            Ok(Some(status)) => return status.exit_status() == Some(0),
            Ok(None) | Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Reads deadlines from the holder, and sends an event when the last one has passed. A holder that is gone sends no
/// more.
fn hear(holder: UnixStream, events: &Sender<Event>) {
    let mut last_ns = None;
    let mut is_there = true;
    let mut lines = BufReader::new(holder);
    let mut line = Vec::new();
    loop {
        let left_ns = last_ns.map_or(u64::MAX, |last_ns: u64| last_ns.saturating_sub(now_ns()));
        let wait = LOOK.min(Duration::from_nanos(left_ns)).max(Duration::from_millis(1));
        if is_there {
            // Reads all pending lines before it checks the deadline: this process may have been stopped meanwhile.
            let heard = lines.get_ref().set_read_timeout(Some(wait)).and_then(|()| lines.read_until(b'\n', &mut line));
            match heard {
                Ok(1..) => {
                    match std::str::from_utf8(&line).ok().and_then(|line| line.parse().ok()) {
                        Some(Order::Until { kill_ns, .. }) => last_ns = Some(kill_ns),
                        _ => is_there = false,
                    }
                    line.clear();
                    continue;
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Ok(0) | Err(_) => is_there = false,
            }
        } else {
            std::thread::park_timeout(wait);
        }
        if last_ns.is_some_and(|last_ns| last_ns <= now_ns()) {
            // Fails only if the guardian has ended and this process no longer receives events.
            let _ = events.send(Event::Due);
            return;
        }
    }
}
