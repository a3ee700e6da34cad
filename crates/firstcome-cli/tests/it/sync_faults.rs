//! A disk that fails to sync: the kernel's answer is forged by strace. From then on nothing is promised any more.

use crate::killed::ToldClaim;
use crate::support::http::Client;
use crate::support::program::{firstcome, run};
use crate::support::server::Server;
use crate::support::trace::{can_trace, read, traced};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

const CALLS: &str = "trace=fsync,fdatasync,pwrite64,write,writev,sendto,sendmsg";
/// Each thread's first syncs go well: those that the start needs, and some of the writer's.
const FAILS: &str = "inject=fsync,fdatasync:error=EIO:when=8+";
const TRIES: usize = 100;

/// People whom the service gave a claim, and the one whose answer is unknown.
struct Story {
    told: BTreeMap<String, ToldClaim>,
    unknown: String,
}

/// Claims until an answer says that no caller knows.
fn claim_until_the_fault(client: &mut Client) -> Story {
    let mut told = BTreeMap::new();
    for number in 0..TRIES {
        let user = format!("person-{number:04}-end");
        let answer = client.claim("launch", &user, Some(&user)).expect("it is answered");
        match (answer.status, answer.code().as_str()) {
            (201, _) => told.insert(user, ToldClaim::new(&answer.json())),
            (503, "outcome_unknown") => return Story { told, unknown: user },
            _ => panic!("{user}: {} {}", answer.status, answer.text()),
        };
    }
    panic!("the fault never came");
}

/// What still holds while nothing may be written: no write, every read, every refusal that rests on what is durable.
fn judge_the_stopped_service(server: &Server, story: &Story) {
    let mut client = server.client();
    for user in ["somebody-new", story.unknown.as_str()] {
        let answer = client.claim("launch", user, None).expect("it is answered");
        assert_eq!((answer.status, answer.code().as_str()), (503, "store_unavailable"), "{user}: {}", answer.text());
    }
    let put = client.call("PUT", "/v1/coupons/launch", Some(&serde_json::json!({"limit": 7})));
    assert_eq!((put.status, put.code().as_str()), (503, "store_unavailable"), "{}", put.text());
    let ready = client.get("/readyz");
    assert_eq!((ready.status, &ready.json()["reason"]), (503, &Value::from("io")));
    assert_eq!(client.get("/healthz").status, 200);
    let view = client.get("/v1/coupons/launch").json();
    assert_eq!(view["issued"], story.told.len(), "{view}");
    for (user, claim) in &story.told {
        let answer = client.claim("launch", user, None).expect("it is answered");
        assert_eq!((answer.status, answer.code().as_str()), (409, "already_issued"), "{}", answer.text());
        assert_eq!(ToldClaim::new(&answer.json()["claim"]), *claim);
        assert_eq!(ToldClaim::new(&client.get(&format!("/v1/coupons/launch/claims/{user}")).json()), *claim);
    }
    let (user, claim) = story.told.first_key_value().expect("some were told before the fault");
    let replay = client.claim("launch", user, Some(user)).expect("it is answered");
    assert_eq!((replay.status, ToldClaim::new(&replay.json())), (201, claim.clone()), "a repeat of what is durable");
    let code = client.get(&format!("/v1/coupons/launch/claims/{user}")).json()["code"].clone();
    let redeem = client.call("POST", "/v1/coupons/launch/redemptions", Some(&serde_json::json!({"code": code})));
    assert_eq!((redeem.status, redeem.code().as_str()), (503, "store_unavailable"), "{}", redeem.text());
    let sold_out = client.claim("gone", "late", None).expect("it is answered");
    assert_eq!((sold_out.status, sold_out.code().as_str()), (409, "sold_out"), "{}", sold_out.text());
}

#[track_caller]
fn judge_after_restart(directory: &Path, story: &Story) {
    firstcome(directory, &["verify", "--json", "--data", "data"]).well();
    let server = Server::start(directory);
    let mut client = server.client();
    for (user, claim) in &story.told {
        let answer = client.get(&format!("/v1/coupons/launch/claims/{user}"));
        assert_eq!(ToldClaim::new(&answer.json()), *claim, "{user} was told");
    }
    // Whether it was done or not: the same request again gives the claim.
    let again = client.claim("launch", &story.unknown, Some(&story.unknown)).expect("it is answered");
    assert_eq!(
        (again.status, again.json()["serial"].clone()),
        (201, (story.told.len() + 1).into()),
        "{}",
        again.text()
    );
    server.stop();
    firstcome(directory, &["verify", "--json", "--data", "data"]).well();
}

fn prepare(directory: &Path) {
    let server = Server::start_with(directory, &["--coupon", "launch=1000", "--coupon", "gone=1"]);
    assert_eq!(server.client().claim("gone", "early", None).expect("it is answered").status, 201);
    server.stop();
}

#[test]
fn after_a_failed_sync_nothing_is_written_or_told() {
    if !can_trace() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    prepare(directory.path());
    let mut server = Server::spawn(&mut traced(directory.path(), "trace", &["-e", CALLS, "-e", FAILS], &[]));
    let story = claim_until_the_fault(&mut server.client());
    assert!(!story.told.is_empty(), "some were told before the fault");
    judge_the_stopped_service(&server, &story);
    server.kill();
    let calls = read(&directory.path().join("trace"), server.process());
    let injected = calls.iter().find(|call| call.is_injected()).expect("a sync was made to fail");
    let failed = injected.ended.expect("it came back");
    for call in calls.iter().filter(|call| failed < call.begun) {
        let told = call.tells_claim();
        assert!(told.is_none_or(|user| story.told.contains_key(user)), "told after the fault: {call:?}");
        assert!(!call.wrote("firstcome.db-wal", ""), "written after the fault: {call:?}");
        assert!(!call.is_sync("firstcome.db-wal"), "a failed sync is never tried again: {call:?}");
    }
    judge_after_restart(directory.path(), &story);
}

#[test]
fn a_service_that_stopped_writing_still_ends_well() {
    if !can_trace() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    prepare(directory.path());
    let mut server = Server::spawn(&mut traced(directory.path(), "trace", &["-e", CALLS, "-e", FAILS], &[]));
    let story = claim_until_the_fault(&mut server.client());
    server.terminate();
    assert_eq!(server.wait().code(), Some(0), "{}", server.errors());
    judge_after_restart(directory.path(), &story);
}

#[test]
fn a_sync_that_fails_at_the_start_is_no_start() {
    if !can_trace() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    prepare(directory.path());
    // The first is the store's, the last that of the locks.
    for first in 1..=2 {
        let fails = format!("inject=fsync,fdatasync:error=EIO:when={first}+");
        let trace = format!("trace-{first}");
        let ended = run(&mut traced(directory.path(), &trace, &["-e", CALLS, "-e", &fails], &[]));
        assert!(!ended.stdout.contains("listening"), "{}", ended.stdout);
        let said = ended.with(3);
        assert!(said.contains("check the disk"), "{said}");
    }
    Server::start(directory.path()).stop();
}
