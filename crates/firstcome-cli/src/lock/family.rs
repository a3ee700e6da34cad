//! The children of this process, and those that become its children when their parents end.
//!
//! A reaper of orphans ([`super::group::adopt_orphans`]) reaches every descendant, in any group or session:
//! it kills its children, and the orphans of those are its children then. A child that was not waited for keeps its
//! number, so no signal hits another process.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpgid, getppid, kill_process, wait};

/// Makes the system kill this process when its parent dies: the thread that started it. False if the parent is dead already.
///
/// It holds until a program is run as another user (set-user-id), or is given rights by its file. Processes that this one starts do not inherit it.
pub(super) fn die_with(parent: Pid) -> Result<bool, Errno> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // After the call: a parent that died before it is not noticed by the system.
    Ok(getppid() == Some(parent))
}

/// The children of this process, those that were not waited for yet too. None where `/proc` does not tell.
fn children() -> Vec<Pid> {
    let own = std::process::id();
    let child = |name: &str| {
        let number: i32 = name.parse().ok()?;
        let stat = std::fs::read_to_string(format!("/proc/{name}/stat")).ok()?;
        // The name of a program may have brackets and spaces in it.
        let (_, rest) = stat.rsplit_once(") ")?;
        let parent: u32 = rest.split_ascii_whitespace().nth(1)?.parse().ok()?;
        if parent == own { Pid::from_raw(number) } else { None }
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| child(entry.file_name().to_str()?)).collect()
}

/// Kills the children of this process; how many it may kill.
pub(super) fn kill_children() -> usize {
    children().into_iter().filter(|child| kill_process(*child, Signal::KILL).is_ok()).count()
}

/// Signals the children of this process that are in another group.
pub(super) fn signal_outside(group: Pid, signal: Signal) {
    for child in children().into_iter().filter(|child| getpgid(Some(*child)) != Ok(group)) {
        // It fails only if this process may not, as another user's.
        let _ = kill_process(child, signal);
    }
}

/// Takes leave of the children that have ended. Whether none is left.
pub(super) fn reap() -> bool {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return false,
            Err(_) => return true,
        }
    }
}

/// Kills the children of this process and takes leave of those that have ended. True if there are none but such as it may not kill; call it
/// until then.
pub(super) fn end() -> bool {
    let killed = kill_children();
    reap();
    killed == 0
}
