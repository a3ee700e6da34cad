//! The process group that runs under the lock.
//!
//! Before a process signals a group, it must be sure that the number still names that group. Orphans of the group
//! become children of the guardian, and after its end of the holder: both are subreapers where the kernel supports it.
//! An unreaped child in the group keeps the number in use. Without such a child the guardian signals nothing.

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpgrp, kill_process_group, setpgid, waitid, waitpgid,
};
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;

/// Nanoseconds in a millisecond.
pub(super) const MS_NS: u64 = 1_000_000;

/// Returns a monotonic time in ns that goes on while the machine sleeps. It is the same in all processes.
pub(super) fn now_ns() -> u64 {
    #[cfg(target_os = "linux")]
    let time = clock_gettime(ClockId::Boottime);
    #[cfg(not(target_os = "linux"))]
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Makes this process the parent of orphaned descendants.
pub(super) fn adopt_orphans() -> Result<(), Errno> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(())
}

/// How the command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Exited(u8),
    Signalled(u8),
}

impl End {
    /// Returns the exit code as a shell reports it.
    pub(super) const fn code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::Signalled(signal) => signal.saturating_add(128),
        }
    }
}

/// A change of the group's leader.
pub(super) enum Leader {
    Stopped,
    Ended(End),
}

/// A process group whose leader is a child of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Group(pub(super) Pid);

impl Group {
    /// Signals the whole group. Call it only while a child in the group is unreaped.
    pub(super) fn signal(self, signal: Signal) {
        // Fails only if every process of the group has ended.
        let _ = kill_process_group(self.0, signal);
    }

    /// Waits until the leader was stopped or has ended. Leaves an ended leader unreaped, which keeps the number in
    /// use.
    pub(super) fn watch(self) -> Leader {
        let wait = |options| waitid(WaitId::Pid(self.0), options);
        loop {
            let status = match wait(WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT) {
                Ok(Some(status)) => status,
                Ok(None) | Err(Errno::INTR) => continue,
                // Another process has reaped it: its exit status is unknown.
                Err(_) => return Leader::Ended(End::Exited(u8::MAX)),
            };
            if status.stopped() {
                // Consumes the stop event, which would otherwise be reported again. If the leader has continued since,
                // that is harmless.
                let _ = wait(WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
                return Leader::Stopped;
            }
            let number = |number: Option<i32>| number.and_then(|number| u8::try_from(number).ok());
            let signalled = number(status.terminating_signal()).map(End::Signalled);
            let exited = number(status.exit_status()).map(End::Exited);
            return Leader::Ended(signalled.or(exited).unwrap_or(End::Exited(u8::MAX)));
        }
    }

    /// Whether the group has an unreaped child of this process: only then does its number still name this group.
    pub(super) fn has_child(self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pgid(Some(self.0)), options).is_ok()
    }

    /// Reaps the members that have ended. Returns true if none is left.
    pub(super) fn reap(self) -> bool {
        loop {
            match waitpgid(self.0, WaitOptions::NOHANG) {
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
    }
}

/// The terminal of this session, which the holder lends to the command.
pub(super) struct Terminal {
    file: File,
}

impl Terminal {
    /// Opens the terminal of this session, if there is one.
    pub(super) fn open() -> Option<Self> {
        Some(Self { file: File::options().read(true).write(true).open("/dev/tty").ok()? })
    }

    /// Puts the group in the foreground, if this process's group is there now. From the background the call would stop
    /// this process.
    pub(super) fn give(&self, group: Group) -> bool {
        tcgetpgrp(&self.file).is_ok_and(|front| front == getpgrp()) && tcsetpgrp(&self.file, group.0).is_ok()
    }

    /// Gives the terminal back to the group that had it before. To do so, this process joins the group for a moment,
    /// since a background process may not.
    pub(super) fn take_back(&self, group: Group, before: Pid) {
        if tcgetpgrp(&self.file) == Ok(group.0) && setpgid(None, Some(group.0)).is_ok() {
            // If no process of that group is left, the shell that started it takes the terminal itself.
            let _ = tcsetpgrp(&self.file, before);
            let _ = setpgid(None, None);
        }
    }
}
