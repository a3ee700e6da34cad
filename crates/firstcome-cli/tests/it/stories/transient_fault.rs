//! One transient fault must not end all embedded writes until a restart.
//!
//! Another process holds `BEGIN IMMEDIATE` on the store's file for 7 s while people claim: every claim was 503 for ever after,
//! and the log was empty. A disk that was full and has room again: the same. Wanted: while it lasts claims are refused with a
//! Retry-After, `/readyz` says why, and once it is over claims are taken again without a restart, with the serials that come
//! next; the log has one line with the detail.

use crate::disk::{Disk, can_mount, fill};
use crate::killed::ToldClaim;
use crate::support::http::Client;
use crate::support::program::{firstcome, run};
use crate::support::server::Server;
use crate::support::wait_for;
use firstcome::edge::Stopwatch;
use rusqlite::Connection;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long the other process holds the file.
const HELD: Duration = Duration::from_secs(7);

/// The lines of the log that tell of a fault of the store.
fn faults(server: &Server) -> Vec<String> {
    let log = server.errors();
    log.lines().filter(|line| line.contains("ERROR") && line.contains("store")).map(str::to_owned).collect()
}

/// Claims until one is answered 201, and says which serial that was.
#[track_caller]
fn claim_at_last(client: &mut Client, user: &str) -> u64 {
    wait_for("a claim that is taken again", || {
        let answer = client.claim("launch", user, None).expect("it is answered");
        (answer.status == 201).then(|| answer.json()["serial"].as_u64().expect("a serial"))
    })
}

#[test]
fn claims_go_on_after_another_process_has_held_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::start_with(directory.path(), &["--coupon", "launch=1000", "--coupon", "gone=1"]);
    let mut client = server.client();
    assert_eq!(client.claim("launch", "ann", None).expect("it is answered").status, 201);
    assert_eq!(client.claim("gone", "ann", None).expect("it is answered").status, 201);
    let other = Connection::open(directory.path().join("data/firstcome.db")).expect("the file is there");
    other.execute_batch("BEGIN IMMEDIATE").expect("no other process writes now");
    let watch = Stopwatch::start();
    let mut refused = 0;
    while watch.elapsed() < HELD {
        let answer = client.claim("launch", &format!("early-{refused}"), None).expect("it is answered");
        assert_eq!((answer.status, answer.code().as_str()), (503, "store_unavailable"), "{}", answer.text());
        assert_eq!(answer.json()["retry_after_ms"], 2_000, "{}", answer.text());
        refused += 1;
        // What rests on stored claims is still told, and no reader sees what was taken back.
        assert_eq!(client.claim("gone", "bob", None).expect("it is answered").code(), "sold_out");
        assert_eq!(client.claim("launch", "ann", None).expect("it is answered").code(), "already_issued");
        assert_eq!(client.get("/v1/coupons/launch").json()["issued"], 1);
        let ready = client.get("/readyz");
        assert_eq!(ready.status, 503, "{}", ready.text());
        assert_eq!((&ready.json()["reason"], &ready.json()["faults"][0]["code"]), (&json!("busy"), &json!("busy")));
        std::thread::park_timeout(Duration::from_millis(50));
    }
    other.execute_batch("ROLLBACK").expect("it ends");
    assert!(2 < refused, "{refused} were refused");

    assert_eq!(claim_at_last(&mut client, "bob"), 2);
    assert_eq!(client.get("/readyz").status, 200);
    // A user who was refused has nothing, and gets the next place as all others do.
    for (number, user) in ["early-0", "early-1", "carl"].into_iter().enumerate() {
        let answer = client.claim("launch", user, None).expect("it is answered");
        assert_eq!((answer.status, &answer.json()["serial"]), (201, &json!(3 + number)), "{}", answer.text());
    }
    server.wait_for_log("the fault is over");
    let told = faults(&server);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("write failed") && told[0].contains("database is locked"), "{told:?}");
    server.stop();
    firstcome(directory.path(), &["verify", "--data", "data"]).well();
}

#[test]
fn claims_go_on_after_a_full_disk_has_room_again() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let disk = Disk::mount(directory.path(), "2m");
    let server = Server::spawn(disk.serve().args(["--coupon", "launch=1000000"]));
    let mut client = server.client();
    // What fills the disk and is taken away again.
    run(disk.inside("dd").args(["if=/dev/zero", "of=disk/ballast", "bs=1k", "count=800", "status=none"])).well();
    let mut told = BTreeMap::new();
    let refused = fill(&mut client, &mut told);
    let ready = client.get("/readyz");
    assert_eq!((ready.status, &ready.json()["reason"]), (503, &json!("full")), "{}", ready.text());
    assert_eq!(client.get("/v1/coupons/launch").json()["issued"], told.len());

    run(disk.inside("rm").arg("disk/ballast")).well();
    // Small claims may be taken while a large one does not fit: the next serial is told by what is there.
    let serial = claim_at_last(&mut client, &refused);
    assert_eq!(serial, told.len() as u64 + 1);
    wait_for("the service to be ready", || (client.get("/readyz").status == 200).then_some(()));
    let stored = client.claims("launch");
    let serials: Vec<u64> = stored.iter().map(|claim| claim["serial"].as_u64().expect("a serial")).collect();
    assert_eq!(serials, (1..=serial).collect::<Vec<_>>());
    for claim in &stored {
        let user = claim["user"].as_str().expect("a name");
        assert!(user == refused || told.get(user) == Some(&ToldClaim::new(claim)), "{claim}");
    }
    let said = faults(&server);
    assert!(said.iter().any(|line| line.contains("disk is full")), "{said:?}");
    server.stop();
    run(&mut disk.verify()).well();
}
