//! A backup is killed by the limit of the size of a file, so always at the same place, and resumed.

use crate::support::program::{Ended, PROGRAM, command, firstcome, run};
use crate::support::server::Server;
use rusqlite::Connection;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Claims of before the killed backup.
const BEFORE: usize = 40;
/// Claims between the killed backup and the next one.
const AFTER: usize = 3;
const BACKUP: [&str; 5] = ["backup", "--data", "data", "--to", "whole.tar"];

fn claim_by(here: &Path, users: impl Iterator<Item = usize>) {
    let server = Server::start_with(here, &["--coupon", "launch=1000"]);
    let mut client = server.client();
    for user in users {
        let claim = client.claim("launch", &format!("person-{user}"), None).expect("it is answered");
        assert_eq!(claim.status, 201, "{}", claim.text());
    }
    server.stop();
}

/// Runs a backup that dies when a file of it would become longer than so many bytes.
fn killed_beyond(here: &Path, bytes: u64) {
    let line = format!("ulimit -f {} && exec {PROGRAM} {}", bytes / 512, BACKUP.join(" "));
    assert_eq!(run(command("/bin/sh", here).args(["-c", &line])).code, None, "a signal ended it");
    assert!(!here.join("whole.tar").exists());
}

/// A directory with claims, of which a backup was killed while its file was written, and with claims of afterwards.
fn killed_late() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    claim_by(here, 0..BEFORE);
    firstcome(here, &BACKUP).well();
    let whole = here.join("whole.tar");
    let bytes = whole.metadata().expect("it is there").len();
    fs::remove_file(whole).expect("it is ours");
    killed_beyond(here, bytes - 512);
    assert!(here.join("whole.tar.part/rest.json").exists());
    claim_by(here, BEFORE..BEFORE + AFTER);
    directory
}

fn resume(here: &Path) -> Ended {
    firstcome(here, &[&BACKUP[..], &["--resume"]].concat())
}

/// The backup is whole, nothing is left beside it, and a directory made from it has so many claims.
#[track_caller]
fn has(here: &Path, claims: usize) {
    assert!(!here.join("whole.tar.part").exists());
    fs::remove_dir_all(here.join("new")).ok();
    let said = firstcome(here, &["restore", "--from", "whole.tar", "--data", "new"]).with(0);
    assert!(said.contains(&format!(" {claims} claims ")), "{said}");
    firstcome(here, &["verify", "--data", "new"]).well();
}

/// Changes what the killed backup noted.
fn renoted(here: &Path, change: impl FnOnce(&mut Value)) {
    let path = here.join("whole.tar.part/rest.json");
    let mut note = serde_json::from_slice(&fs::read(&path).expect("it is there")).expect("it is JSON");
    change(&mut note);
    fs::write(path, note.to_string()).expect("it is written");
}

#[test]
fn a_killed_backup_is_resumed_as_of_its_moment_or_begun_anew() {
    let directory = killed_late();
    let here = directory.path();
    let said = resume(here).with(0);
    let moments: Vec<&str> = said.lines().filter_map(|line| line.split(" as of ").nth(1)).collect();
    assert!(moments.len() == 2 && moments[1] == format!("{} to whole.tar", moments[0]), "{said}");
    has(here, BEFORE);

    // Without the argument nothing is resumed.
    let directory = killed_late();
    let here = directory.path();
    let said = firstcome(here, &BACKUP).with(0);
    assert!(!said.contains("resuming"), "{said}");
    has(here, BEFORE + AFTER);

    // Copies that are not whole are of no use, and neither is a note that was cut off.
    fs::remove_file(here.join("whole.tar")).expect("it is ours");
    killed_beyond(here, 8 * 1024);
    assert!(!here.join("whole.tar.part/rest.json").exists());
    fs::write(here.join("whole.tar.part/rest.json"), "{\"program\":").expect("it is written");
    let said = resume(here).with(0);
    assert!(!said.contains("resuming"), "{said}");
    has(here, BEFORE + AFTER);

    // Nothing was killed, and the file is there.
    assert!(resume(here).with(1).contains("add --replace"));
    firstcome(here, &[&BACKUP[..], &["--resume", "--replace"]].concat()).well();
    has(here, BEFORE + AFTER);
    let said = firstcome(here, &["backup", "--data", "data", "--to", "-", "--resume"]).with(2);
    assert!(said.contains("a stream cannot be resumed"), "{said}");
}

#[test]
fn copies_that_were_not_checked_are_checked_by_the_backup_that_resumes() {
    let directory = killed_late();
    let here = directory.path();
    renoted(here, |note| note["manifest"] = Value::Null);
    resume(here).well();
    has(here, BEFORE);

    let directory = killed_late();
    let here = directory.path();
    renoted(here, |note| note["manifest"] = Value::Null);
    let copy = Connection::open(here.join("whole.tar.part/firstcome.db")).expect("it is a file of SQLite");
    copy.execute_batch("DELETE FROM claim WHERE id = (SELECT min(id) FROM claim)").expect("it is changed");
    drop(copy);
    assert!(resume(here).with(1).contains("gapless"));
    assert!(!here.join("whole.tar").exists() && !here.join("whole.tar.part").exists());
}

#[test]
fn copies_of_another_directory_length_or_version_are_not_resumed() {
    let directory = killed_late();
    let here = directory.path();
    let said = firstcome(here, &["backup", "--data", "other", "--to", "whole.tar", "--resume"]).with(1);
    assert!(said.contains("has the rest of a backup of ") && said.contains("/data"), "{said}");
    firstcome(here, &["backup", "--data", "misspelt", "--to", "whole.tar"]).with(2);
    firstcome(here, &["backup", "--data", "misspelt", "--to", "fresh.tar", "--resume"]).with(2);
    assert!(!here.join("fresh.tar.part").exists());
    // Those refusals left the rest where it was, and the directory itself is needed no more.
    fs::rename(here.join("data"), here.join("moved")).expect("it is ours");
    resume(here).well();
    has(here, BEFORE);

    let directory = killed_late();
    let here = directory.path();
    let copy = File::options().write(true).open(here.join("whole.tar.part/firstcome.db")).expect("it is there");
    copy.set_len(4_096).expect("it is cut");
    assert!(!resume(here).with(0).contains("resuming"));
    has(here, BEFORE + AFTER);

    // The keys of callers are copied too: a backup without them would lock their callers out.
    let directory = killed_late();
    let here = directory.path();
    renoted(here, |note| {
        note["manifest"] = Value::Null;
        note["files"]["keys.toml"] = 99.into();
    });
    assert!(!resume(here).with(0).contains("resuming"));
    has(here, BEFORE + AFTER);

    let directory = killed_late();
    let here = directory.path();
    renoted(here, |note| note["program"] = "0.0.1".into());
    assert!(!resume(here).with(0).contains("resuming"));
    has(here, BEFORE + AFTER);
}

#[test]
fn a_directory_whose_name_is_no_text_is_backed_up() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    claim_by(here, 0..BEFORE);
    let name = OsStr::from_bytes(b"d\xff");
    fs::rename(here.join("data"), here.join(name)).expect("it is ours");
    run(command(PROGRAM, here).args(["backup", "--to", "whole.tar", "--data"]).arg(name)).well();
    has(here, BEFORE);
}
