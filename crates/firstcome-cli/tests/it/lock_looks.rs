//! `firstcome locks`: who holds a lock, and the forced release of one.

use crate::lock::LockStores;
use crate::places::{as_user, open_directory};
use crate::support::program::{PROGRAM, command, firstcome, run, signal, wait};
use crate::support::wait_for;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Child;

/// A place for locks, and a directory for the files of commands.
struct Locks<'a> {
    here: &'a Path,
    store: &'a str,
}

impl Locks<'_> {
    /// Starts a command under a lock, and does not wait for it.
    fn start(&self, line: &str, script: &str) -> Child {
        let mut lock = command(PROGRAM, self.here);
        lock.arg("lock").args(line.split_ascii_whitespace()).args(["--store", self.store, "--", "sh", "-c", script]);
        lock.spawn().expect("it starts")
    }

    /// Starts a command that stays, and waits until it has the lock; its fence.
    fn stay(&self, line: &str) -> (Child, u64) {
        let file = self.here.join("fence");
        let _ = fs::remove_file(&file);
        let child = self.start(line, "echo $FIRSTCOME_FENCE > fence; exec sleep 60");
        let fence = wait_for("a fence", || fs::read_to_string(&file).ok()?.trim().parse().ok());
        (child, fence)
    }

    /// Runs a command under a lock to its end.
    fn run(&self, line: &str, script: &str) -> crate::support::program::Ended {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let rest = ["--store", self.store, "--", "sh", "-c", script];
        firstcome(self.here, &[&["lock"], words.as_slice(), &rest].concat())
    }

    fn locks(&self, line: &str) -> crate::support::program::Ended {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        firstcome(self.here, &[&["locks"], words.as_slice(), &["--store", self.store]].concat())
    }

    fn look(&self, line: &str) -> Value {
        serde_json::from_str(&self.locks(line).well()).expect("JSON")
    }
}

fn end(mut child: Child) {
    signal(child.id(), "TERM");
    assert_eq!(wait(&mut child).code(), Some(143));
}

/// Runs a test on a directory and on a Redis.
fn on_each_store(test: impl Fn(&Locks<'_>)) {
    let directory = tempfile::tempdir().expect("a directory");
    fs::create_dir(directory.path().join("locks")).expect("a directory");
    test(&Locks { here: directory.path(), store: "locks" });
    let Some(redis) = LockStores::new() else { return };
    test(&Locks { here: &redis.path(""), store: redis.url() });
}

#[test]
fn status_and_list_show_the_holder_the_fence_and_who_waits() {
    on_each_store(|locks| {
        let free = |name| {
            json!({"lock": name, "held": false, "holder": null, "fence": null, "ttl_ms": null,
            "holders": 0, "waiters": 0})
        };
        assert_eq!(locks.look("status a:1"), free("a:1"));
        assert_eq!(locks.look("list"), json!({"locks": []}));
        let (first, fence) = locks.stay("a:1 --owner ann --lease 20s");
        let (other, _) = locks.stay("list --owner bob");
        let waiting = locks.start("a:1 --wait 1m", "true");
        let seen = wait_for("a waiter in line", || Some(locks.look("status a:1")).filter(|seen| seen["waiters"] == 1));
        assert_eq!((&seen["lock"], &seen["holder"], &seen["fence"]), (&json!("a:1"), &json!("ann"), &json!(fence)));
        let left_ms = seen["ttl_ms"].as_u64().expect("a number");
        assert!(0 < left_ms && left_ms <= 20_000, "{seen}");
        let all = locks.look("list");
        let names: Vec<&Value> = all["locks"].as_array().expect("a list").iter().map(|lock| &lock["lock"]).collect();
        assert_eq!(names, ["a:1", "list"], "{all}");
        end(waiting);
        end(first);
        end(other);
        assert_eq!(locks.look("status a:1"), free("a:1"));
        assert_eq!(locks.look("list"), json!({"locks": []}));
    });
}

#[test]
fn readers_run_at_once_and_a_writer_after_them() {
    on_each_store(|locks| {
        let (first, fence) = locks.stay("book --shared --owner ann --lease 20s");
        let (second, same) = locks.stay("book --shared --wait 0s --lease 20s");
        assert_eq!(fence, same, "readers of one turn have one fence");
        let seen = locks.look("status book");
        assert_eq!((&seen["holder"], &seen["holders"]), (&json!("ann"), &json!(2)), "{seen}");
        let said = locks.run("book --wait 0s", "true").with(75);
        assert!(said.contains("ann"), "{said}");
        let writer = locks.start("book --wait 1m", "echo $FIRSTCOME_FENCE > written");
        wait_for("a writer in line", || (locks.look("status book")["waiters"] == 1).then_some(()));
        // A reader that comes now goes after the writer.
        locks.run("book --shared --wait 0s", "true").with(75);
        end(first);
        end(second);
        locks.run("book --shared --wait 1m", "true").well();
        let written = fs::read_to_string(locks.here.join("written")).expect("the writer was before this reader");
        assert!(fence < written.trim().parse().expect("a fence"), "{written}");
        assert_eq!(finished(writer), 0);
    });
}

#[test]
fn no_more_commands_run_than_there_are_permits() {
    on_each_store(|locks| {
        let (first, _) = locks.stay("pool --permits 2");
        let (second, _) = locks.stay("pool --permits 2");
        locks.run("pool --permits 2 --wait 0s", "true").with(75);
        end(first);
        locks.run("pool --permits 2 --wait 1m", "true").well();
        end(second);
        for wrong in ["pool --permits 0", "pool --permits 1001", "pool --permits 2 --shared"] {
            locks.run(wrong, "true").with(2);
        }
    });
}

fn finished(mut child: Child) -> i32 {
    wait(&mut child).code().expect("it ends by itself")
}

#[test]
fn a_forced_release_ends_the_old_command_and_the_next_one_has_a_higher_fence() {
    on_each_store(|locks| {
        let said = locks.locks("release a --force").with(1);
        assert!(said.contains("no process holds it"), "{said}");
        let (mut first, fence) = locks.stay("a --owner ann --lease 2s");
        // Not without the word, and not from another holder.
        let said = locks.locks("release a").with(2);
        assert!(said.contains("--force"), "{said}");
        let said = locks.locks(&format!("release a --force --fence {}", fence + 1)).with(1);
        assert!(said.contains(&format!("ann holds it with the fence {fence}")), "{said}");
        assert_eq!(locks.look("status a")["fence"], json!(fence));
        let released = locks.look(&format!("release a --force --fence {fence}"));
        assert_eq!(released, json!({"lock": "a", "released": true, "holder": "ann", "fence": fence}));
        let (second, next) = locks.stay("a --wait 0s");
        assert!(fence < next, "{fence} {next}");
        assert_eq!(wait(&mut first).code(), Some(76), "its command is ended");
        // The old holder has given nothing back that is not its own.
        assert_eq!(locks.look("status a")["fence"], json!(next));
        end(second);
    });
}

#[test]
fn a_forced_release_hands_over_to_the_next_in_line() {
    on_each_store(|locks| {
        let (mut first, fence) = locks.stay("a --lease 10s");
        fs::remove_file(locks.here.join("fence")).expect("it is there");
        let waiting = locks.start("a --wait 1m", "echo $FIRSTCOME_FENCE > fence; exec sleep 60");
        wait_for("a waiter in line", || (locks.look("status a")["waiters"] == 1).then_some(()));
        locks.look("release a --force");
        let file = locks.here.join("fence");
        let next: u64 = wait_for("the next one", || fs::read_to_string(&file).ok()?.trim().parse().ok());
        assert!(fence < next, "{fence} {next}");
        assert_eq!(wait(&mut first).code(), Some(76));
        end(waiting);
    });
}

#[test]
fn a_hold_whose_lease_is_over_is_not_shown() {
    on_each_store(|locks| {
        let (mut killed, _) = locks.stay("a --lease 1s");
        signal(killed.id(), "KILL");
        wait(&mut killed);
        // No process takes a step that would clear the hold away.
        wait_for("the end of the lease", || (locks.look("list") == json!({"locks": []})).then_some(()));
        assert_eq!(locks.look("status a")["held"], json!(false));
        locks.locks("release a --force").with(1);
    });
}

#[test]
fn stores_that_cannot_be_looked_at_and_stores_that_are_not_there_are_told_so() {
    let directory = tempfile::tempdir().expect("a directory");
    let quorum = ["--store", "redis://a", "--store", "redis://b", "--store", "redis://c"];
    let table: [(&[&str], &str); 5] = [
        (&["--store", "misspelt"], "there is no store misspelt; check --store"),
        (&["--store", "etcd://x"], "only locks in a directory and on Redis"),
        (&["--store", "postgres://x"], "only locks in a directory and on Redis"),
        (&["--store", "redis+cluster://x"], "of a Redis cluster cannot be looked at"),
        (&quorum, "of a quorum cannot be looked at"),
    ];
    for (store, words) in table {
        for look in [&["list"][..], &["status", "a"], &["release", "a", "--force"]] {
            let said = firstcome(directory.path(), &[&["locks"], look, store].concat()).with(2);
            assert!(said.contains(words), "{look:?} {store:?}: {said}");
        }
    }
    let said = firstcome(directory.path(), &["locks", "status", "a b"]).with(2);
    assert!(said.contains("the lock"), "{said}");
    let no_server = ["locks", "list", "--store", "redis://127.0.0.1:1"];
    firstcome(directory.path(), &no_server).with(3);
    assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 0, "nothing was made");
    // A user who never took a lock has none.
    let home = open_directory();
    let listed = run(as_user(home.path(), home.path()).env("HOME", home.path()).args(["locks", "list"])).well();
    assert_eq!(serde_json::from_str::<Value>(&listed).expect("JSON"), json!({"locks": []}));
    assert_eq!(fs::read_dir(home.path()).expect("a directory").count(), 0, "nothing was made");
}
