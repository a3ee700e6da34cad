//! Disks that are full or may not be written: a small file system in memory, in a mount namespace of its own.

use crate::killed::ToldClaim;
use crate::support::http::Client;
use crate::support::program::{PROGRAM, command, is_installed, rows, run};
use crate::support::server::Server;
use crate::support::{machine_has, wait_for};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A file system at `directory/disk` that only this child and those that enter its namespace see. It goes with the
/// child.
pub(crate) struct Disk<'a> {
    directory: &'a Path,
    holder: Child,
}

impl<'a> Disk<'a> {
    /// Mounts it. The holder waits on its standard input for nothing, and ends when that is closed.
    #[track_caller]
    pub(crate) fn mount(directory: &'a Path, size: &str) -> Self {
        std::fs::create_dir(directory.join("disk")).expect("a directory");
        let script = format!("mount -t tmpfs -o size={size},mode=700 none disk && echo ready && exec cat");
        let mut holder = command("unshare", directory)
            .args(["--mount", "--propagation", "private", "/bin/sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare starts");
        let mut line = String::new();
        let stdout = holder.stdout.take().expect("its output is piped");
        BufReader::new(stdout).read_line(&mut line).expect("its output can be read");
        assert_eq!(line, "ready\n", "it cannot be mounted");
        Self { directory, holder }
    }

    /// A command that sees the file system.
    pub(crate) fn inside(&self, program: &str) -> Command {
        let mut command = command("nsenter", self.directory);
        command.args(["--mount", "--target", &self.holder.id().to_string()]);
        // Once more into the directory: what lies below it is another file system in there.
        command.args(["/bin/sh", "-c", "cd \"$1\" && shift && exec \"$@\"", "sh"]).arg(self.directory).arg(program);
        command
    }

    pub(crate) fn serve(&self) -> Command {
        let mut serve = self.inside(PROGRAM);
        serve.args(["serve", "--dev", "--listen", "127.0.0.1:0", "--data", "disk/data"]);
        serve
    }

    pub(crate) fn verify(&self) -> Command {
        let mut verify = self.inside(PROGRAM);
        verify.args(["verify", "--json", "--data", "disk/data"]);
        verify
    }

    #[track_caller]
    pub(crate) fn remount(&self, options: &str) {
        run(self.inside("mount").args(["-o", &format!("remount,{options}"), "disk"])).well();
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Whether this process may mount in a namespace of its own.
#[track_caller]
pub(crate) fn can_mount() -> bool {
    let tools = ["unshare", "nsenter", "mount"].into_iter().all(is_installed);
    let try_it = || run(command("unshare", Path::new("/")).args(["--mount", "/bin/true"])).code == Some(0);
    machine_has("right to mount (root, util-linux)", tools && try_it())
}

/// Claims with large attributes until something else than a claim comes back.
pub(crate) fn fill(client: &mut Client, told: &mut BTreeMap<String, ToldClaim>) -> String {
    let attributes = json!({"note": "x".repeat(900)});
    for number in 0..100_000 {
        let user = format!("person-{number}");
        let body = json!({"user": user, "attributes": attributes});
        let answer = client.call("POST", "/v1/coupons/launch/claims", Some(&body));
        if answer.status != 201 {
            assert_eq!(answer.status, 503, "{}", answer.text());
            assert!(["store_unavailable", "outcome_unknown"].contains(&answer.code().as_str()), "{}", answer.text());
            return user;
        }
        told.insert(user, ToldClaim::new(&answer.json()));
    }
    panic!("the disk is never full");
}

#[test]
fn a_full_disk_stops_the_writes_while_it_is_full_and_loses_nothing() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let disk = Disk::mount(directory.path(), "2m");
    let mut server = Server::spawn(disk.serve().args(["--coupon", "launch=1000000"]));
    let mut client = server.client();
    let mut told = BTreeMap::new();
    let first_refused = fill(&mut client, &mut told);
    assert!(100 < told.len(), "only {} fitted", told.len());
    for user in ["somebody-new", first_refused.as_str()] {
        let answer = client.claim("launch", user, None).expect("it is answered");
        // Between two claims that are too large for what is left, a small one may fit.
        if answer.status == 201 {
            told.insert(user.to_owned(), ToldClaim::new(&answer.json()));
        } else {
            assert_eq!((answer.status, answer.code().as_str()), (503, "store_unavailable"), "{}", answer.text());
        }
    }
    assert_eq!(client.get("/v1/coupons/launch").json()["issued"], told.len());
    for (user, claim) in told.iter().step_by(50) {
        assert_eq!(ToldClaim::new(&client.get(&format!("/v1/coupons/launch/claims/{user}")).json()), *claim);
    }
    assert_eq!(client.claims("launch").len(), told.len());
    server.terminate();
    assert_eq!(server.wait().code(), Some(0), "{}", server.errors());

    disk.remount("size=64m");
    let server = Server::spawn(&mut disk.serve());
    let mut client = server.client();
    let stored = client.claims("launch");
    for claim in &stored {
        let user = claim["user"].as_str().expect("a name");
        assert!(told.get(user).map_or(user == first_refused, |told| *told == ToldClaim::new(claim)), "{claim}");
    }
    assert!(told.len() <= stored.len(), "{} of {} are there", stored.len(), told.len());
    assert_eq!(client.claim("launch", "somebody-new", None).expect("it is answered").status, 201);
    server.stop();
    run(&mut disk.verify()).well();
}

#[test]
fn a_full_disk_refuses_the_start_and_an_import() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let disk = Disk::mount(directory.path(), "12k");
    let said = run(&mut disk.serve()).with(3);
    assert!(said.contains("free some space"), "{said}");

    let winners: String = (0..50_000).map(|number| format!("launch,person-{number}\n")).collect();
    std::fs::write(directory.path().join("winners.csv"), format!("coupon,user\n{winners}")).expect("a file");
    disk.remount("size=512k");
    let mut import = disk.inside(PROGRAM);
    let said = run(import.args(["import", "--data", "disk/data", "--coupon", "launch=100000", "winners.csv"])).with(3);
    assert!(said.contains("free some space"), "{said}");
    disk.remount("size=64m");
    let lines = run(disk.inside(PROGRAM).args(["export", "--data", "disk/data"])).well();
    assert!(rows(&lines).is_empty(), "all or nothing: {lines}");
}

#[test]
fn a_file_system_that_may_not_be_written_is_refused() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let disk = Disk::mount(directory.path(), "16m");
    let server = Server::spawn(disk.serve().args(["--coupon", "launch=10"]));
    assert_eq!(server.client().claim("launch", "ann", None).expect("it is answered").status, 201);
    server.stop();
    wait_for("the end of all writes", || {
        let remount = run(disk.inside("mount").args(["-o", "remount,ro", "disk"]));
        (remount.code == Some(0)).then_some(())
    });
    let said = run(&mut disk.serve()).with(3);
    assert!(said.contains("make the directory and its files writable"), "{said}");
    disk.remount("rw");
    let server = Server::spawn(&mut disk.serve());
    assert_eq!(server.client().claims("launch").len(), 1);
    server.stop();
}
