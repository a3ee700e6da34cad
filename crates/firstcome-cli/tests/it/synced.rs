//! Told means synced: seen from the kernel's side, with strace.

use crate::support::server::Server;
use crate::support::trace::{Call, can_trace, read, traced};
use serde_json::json;
use std::path::Path;

const LOG: &str = "firstcome.db-wal";
const FILE: &str = "firstcome.db";
const CALLS: &str = "trace=fsync,fdatasync,pwrite64,write,writev,sendto,sendmsg";
const ALONE: usize = 20;
const THREADS: usize = 4;
const EACH: usize = 15;

/// The log of locks.
const LOCKS_LOG: &str = "locks.db-wal";

/// The syncs of a log that lie between the write of this text and this answer.
fn syncs_before<'a>(
    calls: &'a [Call],
    log: &'static str,
    text: &str,
    told: &'a Call,
) -> impl Iterator<Item = &'a Call> + use<'a> {
    let wrote = calls.iter().find(|call| call.wrote(log, text)).unwrap_or_else(|| panic!("{text} was never written"));
    let written = wrote.ended.expect("the write ended");
    calls.iter().filter(move |call| {
        call.synced(log) && written < call.begun && call.ended.is_some_and(|ended| ended < told.begun)
    })
}

/// Every answer that gives a caller a claim, with its user.
fn told(calls: &[Call]) -> Vec<(&str, &Call)> {
    calls.iter().filter_map(|call| Some((call.tells_claim()?, call))).collect()
}

#[track_caller]
fn claim(client: &mut crate::support::http::Client, user: &str) {
    let answer = client.claim("launch", user, None).expect("it is answered");
    assert_eq!(answer.status, 201, "{}", answer.text());
}

#[test]
fn no_claim_is_told_before_its_row_is_synced() {
    if !can_trace() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = traced(directory.path(), "trace", &["-e", CALLS], &["--coupon", "launch=1000"]);
    let mut server = Server::spawn(&mut command);
    let mut client = server.client();
    for number in 0..ALONE {
        claim(&mut client, &format!("alone-{number:04}-end"));
    }
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let mut client = server.client();
            scope.spawn(move || (0..EACH).for_each(|at| claim(&mut client, &format!("crowd-{thread}-{at:04}-end"))));
        }
    });
    server.terminate();
    assert_eq!(server.wait().code(), Some(0), "{}", server.errors());
    let calls = read(&directory.path().join("trace"), server.process());
    let told = told(&calls);
    assert_eq!(told.len(), ALONE + THREADS * EACH, "every answer was seen");
    for (user, told) in &told {
        let syncs = syncs_before(&calls, LOG, user, told).count();
        assert!(0 < syncs, "{user} was told before the sync: {told:?}");
        // A caller that comes alone pays one sync, not two.
        assert!(syncs == 1 || user.starts_with("crowd"), "{user} waited for {syncs} syncs");
    }
}

#[track_caller]
fn lock(client: &mut crate::support::http::Client, name: &str) {
    let body = json!({"owner": "ann", "wait_ms": 0, "lease_ms": 60_000});
    let answer = client.call("POST", &format!("/v1/locks/{name}/acquire"), Some(&body));
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[test]
fn no_lock_is_told_before_its_row_is_synced() {
    if !can_trace() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let mut server = Server::spawn(&mut traced(directory.path(), "trace", &["-e", CALLS], &[]));
    let mut client = server.client();
    for number in 0..ALONE {
        lock(&mut client, &format!("alone-{number:04}-end"));
    }
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let mut client = server.client();
            scope.spawn(move || (0..EACH).for_each(|at| lock(&mut client, &format!("crowd-{thread}-{at:04}-end"))));
        }
    });
    server.terminate();
    assert_eq!(server.wait().code(), Some(0), "{}", server.errors());
    let calls = read(&directory.path().join("trace"), server.process());
    let told: Vec<(&str, &Call)> = calls.iter().filter_map(|call| Some((call.tells_lock()?, call))).collect();
    assert_eq!(told.len(), ALONE + THREADS * EACH, "every answer was seen");
    for (name, told) in &told {
        let syncs = syncs_before(&calls, LOCKS_LOG, name, told).count();
        assert!(0 < syncs, "{name} was told before the sync: {told:?}");
        // A caller that comes alone pays one sync, not two.
        assert!(syncs == 1 || name.starts_with("crowd"), "{name} waited for {syncs} syncs");
    }
}

#[test]
fn what_a_killed_process_left_is_synced_again_before_anybody_is_served() {
    if !can_trace() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let mut server = Server::start_with(directory.path(), &["--coupon", "launch=1000"]);
    claim(&mut server.client(), "left-behind");
    server.kill();
    let mut server = Server::spawn(&mut traced(directory.path(), "trace", &["-e", CALLS], &[]));
    let answer = server.client().claim("launch", "left-behind", None).expect("it is answered");
    assert_eq!((answer.status, answer.json()["claim"]["serial"].clone()), (409, json!(1)));
    server.kill();
    let calls = read(&directory.path().join("trace"), server.process());
    let position = |what: &str, found: Option<usize>| found.unwrap_or_else(|| panic!("no {what} in the trace"));
    let rewritten = calls.iter().find(|call| call.wrote(FILE, "left-behind")).and_then(|call| call.ended);
    let rewritten = position("write of the row to the file", rewritten);
    let synced = calls.iter().find(|call| call.synced(FILE) && rewritten < call.begun).and_then(|call| call.ended);
    let announced = calls.iter().position(|call| call.arguments.contains("listening on"));
    let announced = calls[position("announcement", announced)].begun;
    assert!(position("sync of the file", synced) < announced, "served before it was synced");
}

#[test]
fn names_of_new_files_are_synced_before_anybody_is_served() {
    if !can_trace() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let mut server = Server::spawn(&mut traced(directory.path(), "trace", &["-e", CALLS], &[]));
    server.kill();
    let calls = read(&directory.path().join("trace"), server.process());
    let announced = calls.iter().find(|call| call.arguments.contains("listening on")).expect("it is announced").begun;
    let synced = |path: &Path| {
        let is_path = |call: &Call| {
            let shown = call.arguments.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
            shown.is_some_and(|(shown, _)| Path::new(shown) == path)
        };
        let found = calls.iter().rfind(|call| call.name == "fsync" && call.result == "0" && is_path(call));
        found.and_then(|call| call.ended).unwrap_or_else(|| panic!("{} is not synced", path.display()))
    };
    let directory = directory.path().canonicalize().expect("a directory");
    for path in [directory.join("data"), directory] {
        assert!(synced(&path) < announced, "{}", path.display());
    }
}
