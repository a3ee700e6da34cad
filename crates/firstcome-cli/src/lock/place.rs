//! Finds and checks the directory in which `firstcome lock` keeps its locks.
//!
//! Two commands exclude each other only if they use the same store. So the default directory does not depend on the
//! working directory: a cron job and a shell find the same locks. And a directory that the caller names must exist: a
//! misspelt path would be a separate store, and a lock in it would exclude no other process.

use crate::failure::Failure;
use crate::settings::check_parent;
use anyhow::{anyhow, ensure};
use firstcome::Fault;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The directory for root: `/var/lib` holds machine-wide state of programs.
const OF_ROOT: &str = "/var/lib/firstcome/locks";
/// The directory for other users, below their state directory.
const OF_USER: &str = "firstcome/locks";

/// Whether to create a named store that does not exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Absent {
    Refuse,
    Create,
}

/// The kind of user that runs the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum User {
    Root,
    Other,
}

/// Returns the lock directory of the user that runs this program.
pub(super) fn default_directory() -> anyhow::Result<PathBuf> {
    let user = if rustix::process::geteuid().is_root() { User::Root } else { User::Other };
    // These variables name directories of the system; they are not settings of this program.
    let directory = |name| std::env::var_os(name).map(PathBuf::from);
    directory_of(user, directory("XDG_STATE_HOME"), directory("HOME"))
}

/// Returns the lock directory. Locks are state in the sense of the XDG base directory specification: they outlive a
/// process, and a copy on another machine is meaningless. The runtime directory is unsuitable: it is removed when the
/// user logs out, while cron jobs run on.
///
/// Ignores a relative path, as the specification demands.
fn directory_of(user: User, state: Option<PathBuf>, home: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    if user == User::Root {
        return Ok(PathBuf::from(OF_ROOT));
    }
    let absolute = |path: Option<PathBuf>| path.filter(|path| path.is_absolute());
    let state = absolute(state).or_else(|| absolute(home).map(|home| home.join(".local/state")));
    let says = "no place for locks: neither XDG_STATE_HOME nor HOME is an absolute path; name one with --store";
    state.map(|state| state.join(OF_USER)).ok_or_else(|| anyhow!(says))
}

/// Whether a directory that the caller named exists.
fn is_there(store: &Path) -> anyhow::Result<bool> {
    let shown = store.display();
    match std::fs::metadata(store) {
        Ok(found) if found.is_dir() => Ok(true),
        Ok(_) => Err(anyhow!("the store {shown} is not a directory; check --store")),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(anyhow!("cannot look at the store {shown}: {error}; check --store")),
    }
}

/// Checks a directory that the caller named. Creates nothing: opening the store creates the directory.
pub(super) fn check(store: &Path, absent: Absent) -> anyhow::Result<()> {
    if is_there(store)? {
        return Ok(());
    }
    check_parent(store, "--store")?;
    let exclude = "a lock in a new one would exclude no other process";
    let shown = store.display();
    ensure!(
        absent == Absent::Create,
        "there is no store {shown}, and {exclude}; check --store, or make the store with --create"
    );
    Ok(())
}

/// Checks that a named directory exists, for a command that only reads.
pub(super) fn check_there(store: &Path) -> anyhow::Result<()> {
    ensure!(is_there(store)?, "there is no store {}; check --store", store.display());
    Ok(())
}

/// Translates the failure to open a store. If the directory could not be created, its path is wrong.
pub(super) fn not_opened(store: &Path, fault: Fault) -> Failure {
    if store.is_dir() {
        return Failure::Store(fault);
    }
    Failure::Usage(anyhow!("{}; name another place with --store", fault.detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_place_is_that_of_the_user_no_matter_what_the_working_directory() {
        let user_of = |state: Option<&str>, home: Option<&str>| {
            directory_of(User::Other, state.map(PathBuf::from), home.map(PathBuf::from)).ok()
        };
        let table = [
            (Some("/state"), Some("/home/ann"), Some("/state/firstcome/locks")),
            (Some("state"), Some("/home/ann"), Some("/home/ann/.local/state/firstcome/locks")),
            (Some(""), Some("/home/ann"), Some("/home/ann/.local/state/firstcome/locks")),
            (None, Some("/home/ann"), Some("/home/ann/.local/state/firstcome/locks")),
            (None, Some("home"), None),
            (None, Some(""), None),
            (None, None, None),
        ];
        for (state, home, wanted) in table {
            assert_eq!(user_of(state, home), wanted.map(PathBuf::from), "{state:?} {home:?}");
        }
        let of_root = directory_of(User::Root, Some("/state".into()), Some("/root".into())).expect("a place");
        assert_eq!(of_root, Path::new("/var/lib/firstcome/locks"));
        let refused = directory_of(User::Other, None, None).expect_err("there is no place");
        assert!(refused.to_string().contains("--store"), "{refused}");
    }
}
