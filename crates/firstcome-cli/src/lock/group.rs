//! The processes that run under the lock: one process group.
//!
//! A process that signals a group must be sure that its number still means that group. Orphans of the group become children of
//! the guardian, and after its end of the holder (both are subreapers where the system has those), so a child in the
//! group that was not waited for keeps the number, and without one nothing is signalled.

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpgrp, kill_process_group, setpgid, waitid, waitpgid,
};
use rustix::termios::{tcgetpgrp, tcsetpgrp};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;

/// Nanoseconds in a millisecond.
pub(super) const MS_NS: u64 = 1_000_000;

/// The machine's clock that no operator sets and that goes on while the machine sleeps, in ns: the same in all processes.
pub(super) fn now_ns() -> u64 {
    #[cfg(target_os = "linux")]
    let time = clock_gettime(ClockId::Boottime);
    #[cfg(not(target_os = "linux"))]
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Makes orphans among the descendants of this process its children.
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
    /// As a shell tells it.
    pub(super) const fn code(self) -> u8 {
        match self {
            Self::Exited(code) => code,
            Self::Signalled(signal) => signal.saturating_add(128),
        }
    }
}

/// What became of the group's leader.
pub(super) enum Leader {
    Stopped,
    Ended(End),
}

/// A process group whose leader is a child of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Group(pub(super) Pid);

impl Group {
    /// Signals all of it. Only while a child in it was not waited for.
    pub(super) fn signal(self, signal: Signal) {
        // It fails only if all of it has ended.
        let _ = kill_process_group(self.0, signal);
    }

    /// Waits until the leader has ended, which is left unreaped and so keeps the number, or was stopped.
    pub(super) fn watch(self) -> Leader {
        let wait = |options| waitid(WaitId::Pid(self.0), options);
        loop {
            let status = match wait(WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT) {
                Ok(Some(status)) => status,
                Ok(None) | Err(Errno::INTR) => continue,
                // Another process has waited for it: how it ended is not known.
                Err(_) => return Leader::Ended(End::Exited(u8::MAX)),
            };
            if status.stopped() {
                // Looked at is not taken: else it would be told again and again. If it has gone on since, never mind.
                let _ = wait(WaitIdOptions::STOPPED | WaitIdOptions::NOHANG);
                return Leader::Stopped;
            }
            let number = |number: Option<i32>| number.and_then(|number| u8::try_from(number).ok());
            let signalled = number(status.terminating_signal()).map(End::Signalled);
            let exited = number(status.exit_status()).map(End::Exited);
            return Leader::Ended(signalled.or(exited).unwrap_or(End::Exited(u8::MAX)));
        }
    }

    /// Whether a child of this process is in it that was not waited for: only then its number still means this group.
    pub(super) fn has_child(self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pgid(Some(self.0)), options).is_ok()
    }

    /// Takes leave of the members that have ended. Whether none is left.
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

/// The terminal that the holder gave to the command.
pub(super) struct Terminal {
    file: File,
}

impl Terminal {
    /// The terminal of this session, if there is one.
    pub(super) fn open() -> Option<Self> {
        Some(Self { file: File::options().read(true).write(true).open("/dev/tty").ok()? })
    }

    /// Makes the group the one in the foreground, if this process's is that now. Another one may not: it would be stopped.
    pub(super) fn give(&self, group: Group) -> bool {
        tcgetpgrp(&self.file).is_ok_and(|front| front == getpgrp()) && tcsetpgrp(&self.file, group.0).is_ok()
    }

    /// Gives the terminal back from the group to the one that had it before. For this, this process is in the group for a
    /// moment: from the background no process may.
    pub(super) fn take_back(&self, group: Group, before: Pid) {
        if tcgetpgrp(&self.file) == Ok(group.0) && setpgid(None, Some(group.0)).is_ok() {
            // If no process of that group is left, a process that started it takes the terminal by himself.
            let _ = tcsetpgrp(&self.file, before);
            let _ = setpgid(None, None);
        }
    }
}
