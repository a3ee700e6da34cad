//! Backups that must not be taken or restored: refused in words, and nothing is left that a service would start with.

use crate::killed::kill_within;
use crate::support::program::{PROGRAM, command, firstcome, is_installed, run, wait};
use crate::support::server::Server;
use crate::support::{Rng, machine_has, wait_for};
use firstcome::edge::Stopwatch;
use rusqlite::Connection;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::Path;
use std::process::Stdio;

const BACKUP: [&str; 5] = ["backup", "--data", "data", "--to", "whole.tar"];

/// A directory `data` with claims of coupon `launch`, which is served no more.
fn filled(claims: usize) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::start_with(directory.path(), &["--coupon", "launch=100000"]);
    let mut client = server.client();
    for number in 0..claims {
        let claim = client.claim("launch", &format!("person-{number}"), None).expect("it is answered");
        assert_eq!(claim.status, 201, "{}", claim.text());
    }
    server.stop();
    directory
}

/// A restore of this file is refused with these words, and the directory holds nothing that a service would serve.
#[track_caller]
fn refused(here: &Path, backup: &str, code: i32, words: &str) {
    let said = firstcome(here, &["restore", "--from", backup, "--data", "new"]).with(code);
    assert!(said.contains(words), "{words:?} is not in {said:?}");
    assert_eq!(said.trim_end().lines().count(), 1, "one line: {said}");
    let left = fs::read_dir(here.join("new")).expect("a directory").map(|entry| entry.expect("an entry").file_name());
    assert!(left.into_iter().all(|name| name == "firstcome.lock"), "{backup} left something");
}

#[test]
fn a_backup_that_is_cut_off_or_has_a_flipped_bit_is_refused() {
    let directory = filled(40);
    let here = directory.path();
    firstcome(here, &BACKUP).well();
    let whole = fs::read(here.join("whole.tar")).expect("it is there");
    let lengths = [0, 1, 511, 512, 700, 5_000, whole.len() / 2, whole.len() - 2_000, whole.len() - 1_024];
    for (at, length) in lengths.into_iter().enumerate() {
        // The last one lacks only what ends a tar: it is whole.
        let (name, is_whole) = (format!("cut-{at}.tar"), at + 1 == lengths.len());
        fs::write(here.join(&name), &whole[..length]).expect("it is written");
        if is_whole {
            firstcome(here, &["restore", "--from", &name, "--data", "whole"]).well();
        } else {
            // Without its first entry it may be any file.
            let (code, words) = if length < 512 { (2, "is no backup") } else { (1, "is damaged, cut off") };
            refused(here, &name, code, words);
        }
    }
    // The name of a user: no page is broken by it, and no invariant.
    let place = |text: &[u8]| whole.windows(text.len()).position(|window| window == text).expect("it is in the file");
    let flips = [
        (place(b"person-7"), 1, "firstcome.db"),
        (place(b"taken_at") + 20, 1, "manifest.json"),
        (4, 2, "is no backup"),
    ];
    for (at, (place, code, words)) in flips.into_iter().enumerate() {
        let mut flipped = whole.clone();
        flipped[place] ^= 1;
        let file = format!("flip-{at}.tar");
        fs::write(here.join(&file), &flipped).expect("it is written");
        refused(here, &file, code, words);
    }
    fs::write(here.join("text"), "no backup\n".repeat(1_000)).expect("it is written");
    refused(here, "text", 2, "text is no backup: ");
    let key = format!("-----BEGIN RSA PRIVATE KEY-----\n{}", "MIIJKQIBAAKCAgEA7canary0\n".repeat(60));
    fs::write(here.join("key.pem"), key).expect("it is written");
    let said = firstcome(here, &["restore", "--from", "key.pem", "--data", "new"]).with(2);
    assert!(said.contains("key.pem is no backup: ") && said.contains("`firstcome backup` wrote"), "{said}");
    assert!(!said.contains("MII") && !said.contains("BEGIN") && !said.contains("canary"), "{said}");
    let said = firstcome(here, &["restore", "--from", "absent", "--data", "absent-data"]).with(2);
    assert!(said.contains("cannot read absent") && !here.join("absent-data").exists(), "{said}");
}

/// Unpacks the backup, changes what this script says, and packs it again with right digests.
fn repacked(here: &Path, name: &str, change: impl Fn(&Path)) {
    let unpacked = here.join(name);
    fs::create_dir(&unpacked).expect("a directory");
    run(command("tar", &unpacked).args(["xf", "../whole.tar"])).well();
    change(&unpacked);
    let pack = format!(
        "sha256sum manifest.json firstcome.db locks.db > SHA256SUMS
         tar cf ../{name}.tar manifest.json firstcome.db locks.db SHA256SUMS"
    );
    run(command("/bin/sh", &unpacked).args(["-e", "-c", &pack])).well();
}

#[test]
fn a_backup_of_a_later_version_and_one_that_breaks_an_invariant_are_refused() {
    if !machine_has("tar and sha256sum", ["tar", "sha256sum"].into_iter().all(is_installed)) {
        return;
    }
    let directory = filled(5);
    let here = directory.path();
    firstcome(here, &BACKUP).well();
    let change = |path: &Path, sql: &str| {
        Connection::open(path.join("firstcome.db")).and_then(|file| file.execute_batch(sql)).expect("it is changed");
    };
    repacked(here, "same", |_| ());
    firstcome(here, &["restore", "--from", "same.tar", "--data", "same-data"]).well();
    repacked(here, "schema", |path| change(path, "PRAGMA user_version = 99"));
    refused(here, "schema.tar", 3, "schema version 99");
    repacked(here, "format", |path| {
        let manifest = fs::read_to_string(path.join("manifest.json")).expect("it is there");
        fs::write(path.join("manifest.json"), manifest.replace("\"format\": 1", "\"format\": 2")).expect("written");
    });
    refused(here, "format.tar", 3, "format 2");
    repacked(here, "gap", |path| change(path, "DELETE FROM claim WHERE id = (SELECT min(id) FROM claim)"));
    refused(here, "gap.tar", 1, "gapless");

    // Of a store like these no backup is taken, and the file of before stays.
    let before = fs::read(here.join("whole.tar")).expect("it is there");
    change(&here.join("data"), "DELETE FROM claim WHERE id = (SELECT min(id) FROM claim)");
    let said = firstcome(here, &[&BACKUP[..], &["--replace"]].concat()).with(1);
    assert!(said.contains("gapless"), "{said}");
    change(&here.join("data"), "PRAGMA user_version = 99");
    assert!(firstcome(here, &["backup", "--data", "data", "--to", "x"]).with(3).contains("schema version 99"));
    assert!(fs::read(here.join("whole.tar")).expect("it is there") == before && !here.join("x").exists());
    assert!(!here.join("whole.tar.part").exists());
}

#[test]
fn a_file_that_is_there_and_a_store_that_is_there_are_not_replaced_unasked() {
    let directory = filled(3);
    let here = directory.path();
    firstcome(here, &BACKUP).well();
    let said = firstcome(here, &BACKUP).with(1);
    assert!(said.contains("add --replace"), "{said}");
    firstcome(here, &[&BACKUP[..], &["--replace"]].concat()).well();
    firstcome(here, &["backup", "--data", "absent", "--to", "x"]).with(2);
    firstcome(here, &["backup", "--data", "data", "--to", "."]).with(2);
    firstcome(here, &["backup", "--data", "data", "--to", "x", "--staging", "."]).with(2);

    let restore = |data: &str| firstcome(here, &["restore", "--from", "whole.tar", "--data", data]);
    let server = Server::start(here);
    let said = restore("data").with(1);
    assert!(said.contains("data/firstcome.db is there already"), "{said}");
    assert_eq!(server.client().claims("launch").len(), 3);
    server.stop();
    for file in ["locks.db", "keys.toml", "firstcome.db-wal"] {
        let data = format!("with-{file}");
        fs::create_dir(here.join(&data)).and_then(|()| fs::write(here.join(&data).join(file), "x")).expect("written");
        restore(&data).with(1);
        assert_eq!(fs::read_dir(here.join(&data)).expect("a directory").count(), 1, "it is as it was");
    }
    // An empty directory that another process has just locked, to make a store in it.
    fs::create_dir(here.join("locked")).expect("a directory");
    let lock = File::create(here.join("locked").join("firstcome.lock")).expect("a file");
    lock.try_lock().expect("no process has it");
    assert!(restore("locked").with(3).contains("another process has locked open"));
    drop(lock);
    restore("locked").well();
}

#[test]
fn a_backup_that_is_killed_leaves_no_half_file_and_hinders_no_later_one() {
    let directory = filled(300);
    let here = directory.path();
    let backup = || {
        let mut backup = command(PROGRAM, here);
        backup.args(BACKUP);
        backup
    };
    let watch = Stopwatch::start();
    run(&mut backup()).well();
    let longest = watch.elapsed();
    let mut rng = Rng::new(3);
    for number in 0..12 {
        fs::remove_file(here.join("whole.tar")).ok();
        kill_within(&mut backup(), longest, &mut rng);
        if here.join("whole.tar").exists() {
            let data = format!("data-{number}");
            firstcome(here, &["restore", "--from", "whole.tar", "--data", &data]).well();
            firstcome(here, &["verify", "--data", &data]).well();
        }
    }
    // While another one is under way it is refused; what a killed one left is removed.
    fs::create_dir_all(here.join("whole.tar.part")).expect("a directory");
    fs::write(here.join("whole.tar.part").join("firstcome.db"), "a part").expect("it is written");
    let lock = File::create(here.join("whole.tar.part").join("lock")).expect("a file");
    lock.try_lock().expect("no process has it");
    fs::remove_file(here.join("whole.tar")).ok();
    let said = run(&mut backup()).with(1);
    assert!(said.contains("is under way"), "{said}");
    drop(lock);
    run(&mut backup()).well();
    assert!(!here.join("whole.tar.part").exists());
    // A directory of this name that no backup has made.
    fs::create_dir(here.join("own.part")).and_then(|()| fs::write(here.join("own.part/notes"), "x")).expect("written");
    assert!(firstcome(here, &["backup", "--data", "data", "--to", "own"]).with(1).contains("is no rest of a backup"));
    assert_eq!(fs::read_dir(here.join("own.part")).expect("a directory").count(), 1);
}

#[test]
fn a_restore_that_is_killed_leaves_a_directory_that_is_refused_until_it_is_restored() {
    let directory = filled(20);
    let here = directory.path();
    firstcome(here, &BACKUP).well();
    let whole = fs::read(here.join("whole.tar")).expect("it is there");
    let mut restore = command(PROGRAM, here);
    restore.args(["restore", "--from", "-", "--data", "new"]).stdin(Stdio::piped()).stderr(Stdio::null());
    let mut child = restore.spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("its input is piped");
    stdin.write_all(&whole[..whole.len() / 2]).expect("it reads");
    wait_for("the first file", || here.join("new/restore.part/firstcome.db").exists().then_some(()));
    child.kill().expect("it is ours");
    wait(&mut child);
    let serve = ["serve", "--dev", "--listen", "127.0.0.1:0", "--data", "new"];
    assert!(firstcome(here, &serve).with(3).contains("run `firstcome restore` again"));
    assert!(firstcome(here, &["lock", "door", "--store", "new", "--", "true"]).stderr.contains("firstcome restore"));
    let found = firstcome(here, &["doctor", "--json", "--data", "new"]);
    assert!(found.code == Some(1) && found.stdout.contains("not finished"), "{found:?}");
    firstcome(here, &["restore", "--from", "whole.tar", "--data", "new"]).well();
    let server = Server::spawn(command(PROGRAM, here).args(serve));
    assert_eq!(server.client().claims("launch").len(), 20);
    server.stop();
    firstcome(here, &["verify", "--data", "new"]).well();
}

/// As an operator does it on the night of a disaster: by root, for a service that runs as another user.
#[test]
fn a_restore_by_root_belongs_to_the_owner_of_the_directory() {
    const OWNER: u32 = 65_534;
    let directory = filled(20);
    let here = directory.path();
    firstcome(here, &BACKUP).well();
    let new = here.join("new");
    fs::create_dir(&new).expect("a directory");
    if chown(&new, Some(OWNER), Some(OWNER)).is_err() {
        // Only root gives files away, so there is nothing that another user could do wrong.
        return;
    }
    firstcome(here, &["restore", "--from", "whole.tar", "--data", "new"]).well();
    let mut names = Vec::new();
    for entry in fs::read_dir(&new).expect("a directory") {
        let entry = entry.expect("an entry");
        let file = entry.metadata().expect("it is there");
        assert_eq!((file.uid(), file.gid()), (OWNER, OWNER), "{entry:?}");
        names.push(entry.file_name().into_string().expect("UTF-8"));
    }
    for name in ["firstcome.db", "firstcome.lock"] {
        assert!(names.iter().any(|there| there == name), "{name}: {names:?}");
    }
}
