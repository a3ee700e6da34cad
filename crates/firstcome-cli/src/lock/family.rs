//! The children of this process, and the orphans that become its children.
//!
//! A subreaper ([`super::group::adopt_orphans`]) reaches every descendant, in any group or session. It kills its
//! children, and their orphans then become its children. A child that was not reaped keeps its process id, so no
//! signal hits another process.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpgid, getppid, kill_process, wait};

/// Makes the kernel kill this process when its parent dies: the thread that started it. False if the parent is dead
/// already.
///
/// The setting lasts until this process runs a program as another user (set-user-id) or with file capabilities.
/// Processes that this one starts do not inherit it.
pub(super) fn die_with(parent: Pid) -> Result<bool, Errno> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // Checked after the call: the kernel does not report a parent that died before it.
    Ok(getppid() == Some(parent))
}

/// Returns the children of this process, including zombies. Empty if `/proc` is not readable.
fn children() -> Vec<Pid> {
    let own = std::process::id();
    let child = |name: &str| {
        let number: i32 = name.parse().ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{name}/stat")).ok()?;
        // The name of a program may contain brackets and spaces.
        let (_, rest) = stat.rsplit_once(") ")?;
        let parent: u32 = rest.split_ascii_whitespace().nth(1)?.parse().ok()?;
        if parent == own { Pid::from_raw(number) } else { None }
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| child(entry.file_name().to_str()?)).collect()
}

/// Kills the children of this process. Returns how many it was allowed to kill.
pub(super) fn kill_children() -> usize {
    children().into_iter().filter(|child| kill_process(*child, Signal::KILL).is_ok()).count()
}

/// Signals the children of this process that are in another group.
pub(super) fn signal_outside(group: Pid, signal: Signal) {
    for child in children().into_iter().filter(|child| getpgid(Some(*child)) != Ok(group)) {
        // Fails only if this process may not signal a child of another user.
        let _ = kill_process(child, signal);
    }
}

/// Reaps the children that have ended. Returns true if none is left.
pub(super) fn reap() -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return false,
            Err(_) => return true,
        }
    }
}

/// Kills the children of this process, and reaps those that have ended. Returns true if none is left that it may kill;
/// call it until then.
pub(super) fn end() -> bool {
    let killed = kill_children();
    reap();
    killed == 0
}
