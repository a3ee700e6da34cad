//! The directory in which `firstcome lock` finds its locks.
//!
//! Two commands exclude each other only if they use the same store. So the default place does not depend on the working
//! directory: a job of cron and a shell find the same locks. And a directory that the caller names must exist: a misspelt
//! one would be a store of its own, and a lock in it would exclude no process.

use crate::failure::Failure;
use crate::settings::check_parent;
use anyhow::{anyhow, ensure};
use firstcome::Fault;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Where the administrator's locks are: `/var/lib` holds the state of programs of the whole machine.
const OF_ROOT: &str = "/var/lib/firstcome/locks";
/// The same below the directory of a user's state.
const OF_USER: &str = "firstcome/locks";

/// What to do about a store that was named and is not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Absent {
    Refuse,
    Create,
}

/// Who runs the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum User {
    Root,
    Other,
}

/// The directory of locks of the user who runs this program.
pub(super) fn default_directory() -> anyhow::Result<PathBuf> {
    let user = if rustix::process::geteuid().is_root() { User::Root } else { User::Other };
    // These are directories of the system, not settings of this program.
    let directory = |name| std::env::var_os(name).map(PathBuf::from);
    directory_of(user, directory("XDG_STATE_HOME"), directory("HOME"))
}

/// Locks are state in the sense of the XDG base directory specification: they outlive a process, and a copy of them on another
/// machine means nothing. The runtime directory would not do: it goes when the user logs out, and jobs of cron run on.
///
/// The specification says that a relative path is invalid and ignored.
fn directory_of(user: User, state: Option<PathBuf>, home: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    if user == User::Root {
        return Ok(PathBuf::from(OF_ROOT));
    }
    let absolute = |path: Option<PathBuf>| path.filter(|path| path.is_absolute());
    let state = absolute(state).or_else(|| absolute(home).map(|home| home.join(".local/state")));
    let says = "no place for locks: neither XDG_STATE_HOME nor HOME is an absolute path; name one with --store";
    state.map(|state| state.join(OF_USER)).ok_or_else(|| anyhow!(says))
}

/// Whether a directory that the caller named is there.
fn is_there(store: &Path) -> anyhow::Result<bool> {
    let shown = store.display();
    match std::fs::metadata(store) {
        Ok(found) if found.is_dir() => Ok(true),
        Ok(_) => Err(anyhow!("the store {shown} is not a directory; check --store")),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(anyhow!("cannot look at the store {shown}: {error}; check --store")),
    }
}

/// Checks a directory that the caller named. Makes nothing: the store makes the directory when it is opened.
pub(super) fn check(store: &Path, absent: Absent) -> anyhow::Result<()> {
    if is_there(store)? {
        return Ok(());
    }
    check_parent(store, "--store")?;
    let exclude = "a lock in a new one would exclude no process";
    let shown = store.display();
    ensure!(
        absent == Absent::Create,
        "there is no store {shown}, and {exclude}; check --store, or make the store with --create"
    );
    Ok(())
}

/// The same for a command that only looks, and makes no store.
pub(super) fn check_there(store: &Path) -> anyhow::Result<()> {
    ensure!(is_there(store)?, "there is no store {}; check --store", store.display());
    Ok(())
}

/// The failure of a store that does not open. One that could not be made is a wrong place.
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
