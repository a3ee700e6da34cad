//! Where the program keeps locks and data, and what it says of a place that is not there.

use crate::disk::can_mount;
use crate::support::program::{PROGRAM, command, firstcome, run, signal, wait};
use crate::support::server::Server;
use crate::support::wait_for;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The id of the user `no caller` of most systems. None of the files here is another user's of that id.
const NOBODY: u32 = 65_534;

/// The program in a directory of its own, as a user who is not root, without a variable that names a home.
pub(crate) fn as_user(home: &Path, directory: &Path) -> Command {
    let mut program = command(PROGRAM, directory);
    if fs::metadata(home).expect("it is there").uid() == 0 {
        std::os::unix::fs::chown(home, Some(NOBODY), Some(NOBODY)).expect("root may");
    }
    let user = fs::metadata(home).expect("it is there").uid();
    program.uid(user).gid(user);
    program
}

/// A directory that every user may enter.
pub(crate) fn open_directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    directory
}

#[test]
fn without_a_store_commands_of_one_user_exclude_each_other_from_any_working_directory() {
    let home = open_directory();
    let places = [open_directory(), open_directory()];
    let started = home.path().join("started");
    let script = format!("echo > {}; exec sleep 60", started.display());
    let mut first = as_user(home.path(), places[0].path());
    let first = first.env("HOME", home.path()).args(["lock", "nightly", "--owner", "first", "--", "sh", "-c", &script]);
    let mut first = first.spawn().expect("it starts");
    wait_for("the first command", || started.exists().then_some(()));
    let mut second = as_user(home.path(), places[1].path());
    second.env("HOME", home.path()).args(["lock", "nightly", "--wait", "0s", "--", "true"]);
    let said = run(&mut second).with(75);
    assert!(said.contains("held by first"), "{said}");
    signal(first.id(), "TERM");
    assert_eq!(wait(&mut first).code(), Some(143));
    // The directory of state was made on the way, and belongs to the user alone.
    let made = home.path().join(".local/state/firstcome/locks");
    assert!(made.join("locks.db").exists());
    assert_eq!(fs::metadata(&made).expect("it is there").mode() & 0o777, 0o700);
    for place in places {
        assert_eq!(fs::read_dir(place.path()).expect("a directory").count(), 0, "nothing in the working directory");
    }
}

#[test]
fn xdg_state_home_counts_if_it_is_absolute_and_without_any_home_the_store_must_be_named() {
    let home = open_directory();
    let state = home.path().join("state");
    let lock = |variables: &[(&str, &Path)]| {
        let mut lock = as_user(home.path(), home.path());
        lock.envs(variables.iter().copied()).args(["lock", "a", "--", "true"]);
        run(&mut lock)
    };
    lock(&[("XDG_STATE_HOME", &state), ("HOME", home.path())]).well();
    assert!(state.join("firstcome/locks/locks.db").exists());
    assert!(!home.path().join(".local").exists());
    lock(&[("XDG_STATE_HOME", Path::new("state-of-here")), ("HOME", home.path())]).well();
    assert!(home.path().join(".local/state/firstcome/locks/locks.db").exists());
    assert!(!home.path().join("state-of-here").exists());
    let said = lock(&[]).with(2);
    assert!(said.contains("neither XDG_STATE_HOME nor HOME") && said.contains("--store"), "{said}");
    // As daemons have it.
    let said = lock(&[("HOME", Path::new("/nonexistent"))]).with(2);
    assert!(said.contains("/nonexistent/.local/state/firstcome/locks") && said.contains("--store"), "{said}");
}

/// In a mount namespace, so that the machine's own `/var/lib` stays as it is.
#[test]
fn the_locks_of_root_are_in_var_lib_no_matter_what_its_home() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let script = format!("mount -t tmpfs none /var/lib && {PROGRAM} lock a -- true && ls /var/lib/firstcome/locks");
    let mut root = command("unshare", directory.path());
    root.args(["--mount", "--propagation", "private", "/bin/sh", "-c", &script]).env("HOME", directory.path());
    let listed = run(&mut root).well();
    assert!(listed.contains("locks.db"), "{listed}");
    assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 0);
}

#[test]
fn a_store_of_locks_that_is_not_there_is_made_only_where_the_caller_says_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let lock = |more: &[&str]| firstcome(here, &[&["lock", "a"], more, &["--", "touch", "ran"]].concat());
    let said = lock(&["--store", "misspelt"]).with(2);
    assert!(said.contains("no store misspelt") && said.contains("--create"), "{said}");
    for more in [&["--store", "no/parent"][..], &["--store", "no/parent", "--create"]] {
        let said = lock(more).with(2);
        assert!(said.contains("cannot make no/parent") && said.contains("no directory no;"), "{more:?}: {said}");
    }
    let mut by_environment = command(PROGRAM, here);
    by_environment.env("FIRSTCOME_STORE", "misspelt").args(["lock", "a", "--", "touch", "ran"]);
    run(&mut by_environment).with(2);
    fs::write(here.join("firstcome.toml"), "store = \"misspelt\"\n").expect("a file");
    lock(&["--config", "firstcome.toml"]).with(2);
    fs::remove_file(here.join("firstcome.toml")).expect("it is there");
    fs::write(here.join("file"), "").expect("a file");
    let said = lock(&["--store", "file", "--create"]).with(2);
    assert!(said.contains("file is not a directory"), "{said}");
    fs::remove_file(here.join("file")).expect("it is there");
    assert_eq!(fs::read_dir(here).expect("a directory").count(), 0, "nothing was made, and nothing ran");
    lock(&["--store", "locks", "--create"]).well();
    assert!(here.join("ran").exists() && here.join("locks/locks.db").exists());
    // From now on it is there, and --create changes nothing.
    lock(&["--store", "locks"]).well();
    lock(&["--store", "locks", "--create"]).well();
    // A directory that an operator made beforehand serves as well.
    fs::create_dir(here.join("made")).expect("a directory");
    lock(&["--store", "made"]).well();
}

#[test]
fn serve_refuses_data_without_a_parent_and_says_when_a_store_is_new() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    let said = firstcome(here, &["serve", "--dev", "--data", "no/data"]).with(2);
    assert!(said.contains("cannot make no/data") && said.contains("check --data"), "{said}");
    fs::write(here.join("firstcome.toml"), "data = \"no/data\"\n").expect("a file");
    firstcome(here, &["serve", "--dev", "--config", "firstcome.toml"]).with(2);
    fs::remove_file(here.join("firstcome.toml")).expect("it is there");
    assert_eq!(fs::read_dir(here).expect("a directory").count(), 0);
    for (arguments, place) in [(&["--data", "data"][..], "data"), (&[], "firstcome-data")] {
        for is_new in [true, false] {
            let mut serve = command(PROGRAM, here);
            serve.args(["serve", "--dev", "--listen", "127.0.0.1:0"]).args(arguments);
            let server = Server::spawn(&mut serve);
            server.terminate();
            // The service logs the new store before this line, or not at all.
            server.wait_for_log("stopping");
            let says = server.errors().contains(&format!("made a new empty store at {place}"));
            assert_eq!(says, is_new, "{place}: {}", server.errors());
            server.stop();
        }
    }
}

#[test]
fn verify_of_a_place_without_a_store_says_so_and_blames_no_disk() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::create_dir(directory.path().join("empty")).expect("a directory");
    for (place, why) in [("absent", "there is no such directory"), ("empty", "it has no firstcome.db and no locks.db")]
    {
        let said = firstcome(directory.path(), &["verify", "--data", place]).with(2);
        assert!(said.contains(&format!("no store at {place}: {why}; check --data")), "{said}");
        assert!(!said.contains("disk"), "{said}");
    }
    assert!(!directory.path().join("absent").exists());
}
