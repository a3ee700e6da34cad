//! Records of members that a purge removed: a kill right after its answer, and the way of the rest into another directory.

use crate::keys::serve;
use crate::support::http::Client;
use crate::support::program::{Ended, PROGRAM, command, firstcome, run};
use crate::support::server::Server;
use firstcome::core::auction::ListingSettings;
use firstcome::core::id::{ListingName, MemberName};
use firstcome::core::points::Amount;
use firstcome::core::time::Timestamp;
use firstcome::edge::{Clock, ManualClock, SystemClock};
use firstcome::{AuctionStore, MovePoints, PlaceBid, Transfer};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

const ADMIN: &str = "canary-admin-6f1d2c9b7a3e5084";
const DAY_MS: u64 = 86_400_000;
const DAY_US: i64 = 86_400_000_000;

/// Makes a directory in which points moved sixty days ago, more than a page of them, and a bid is open since then.
fn make_old(data: &Path) {
    let start = SystemClock::default().now();
    let clock = Arc::new(ManualClock::new(Timestamp::clamped_us(start.as_us() - 60 * DAY_US)));
    let store = firstcome::sqlite::open(data, Arc::clone(&clock) as _).expect("it opens");
    let member = |name: &str| MemberName::parse(name).expect("a name");
    let lamp = ListingName::parse("lamp").expect("a name");
    let amount = |points: u64| Amount::new(points).expect("an amount");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let charge = |points| MovePoints { transfer: Transfer::Charge, amount: amount(points), request: None };
        for name in ["ann", "bob"] {
            for _ in 0..1_200 {
                store.move_points(&member(name), charge(1)).await.expect("an answer").expect("it is charged");
            }
        }
        let auction = ListingSettings::auction(member("eve"), amount(5), start.plus_ms(60 * DAY_MS));
        store.put_listing(&lamp, auction).await.expect("an answer").expect("it is put");
        for (name, price) in [("ann", 10), ("bob", 20)] {
            let bid = PlaceBid { bidder: member(name), price: amount(price), request: None };
            store.place_bid(&lamp, bid).await.expect("an answer").expect("a bid");
        }
    });
    store.close();
}

fn start(here: &Path) -> Server {
    Server::spawn(serve(here).env("FIRSTCOME_ADMIN_KEY", ADMIN).args(["--retain-records", "31d"]))
}

#[track_caller]
fn purge(server: &Server, here: &Path, more: &[&str]) -> Ended {
    let url = format!("http://{}", server.address());
    let mut purge = command(PROGRAM, here);
    run(purge.args(["purge", "--json", "--url", &url]).args(more).env("FIRSTCOME_ADMIN_KEY", ADMIN))
}

fn records(printed: &str) -> u64 {
    let counts: Value = serde_json::from_str(printed).unwrap_or_else(|error| panic!("{error}: {printed}"));
    counts["records"].as_u64().unwrap_or_else(|| panic!("{printed}"))
}

/// 1 200 charges of each go, and ann's hold: its release is her last record. Bob's hold is his last one.
const REMOVED: u64 = 1_200 + 1 + 1_200;

#[test]
fn records_that_a_purge_removed_stay_removed_when_the_service_is_killed_right_after_its_answer() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    make_old(&here.join("data"));
    let mut server = start(here);
    assert_eq!(records(&purge(&server, here, &["--dry-run"]).well()), REMOVED);
    assert_eq!(records(&purge(&server, here, &[]).well()), REMOVED);
    server.kill();
    firstcome(here, &["verify", "--data", "data"]).well();

    let server = start(here);
    assert_eq!(records(&purge(&server, here, &[]).well()), 0);
    let mut client = Client::with_key(server.address(), ADMIN);
    let page = client.call("GET", "/v1/members/ann/points/records", None).json();
    assert_eq!((&page["removed_to"], &page["items"][0]["number"]), (&json!(1_201), &json!(1_202)), "{page}");
    let refused = client.call("GET", "/v1/members/ann/points/records?after=7", None);
    assert_eq!((refused.status, refused.code().as_str()), (410, "records_removed"));
    let bid = json!({"bidder": "ann", "price": 30});
    assert_eq!(client.call("POST", "/v1/listings/lamp/bids", Some(&bid)).status, 201, "the chain goes on");
    server.stop();
    firstcome(here, &["verify", "--data", "data"]).well();

    let exported = firstcome(here, &["export", "--data", "data"]).well();
    assert!(exported.contains("\"removed\":{\"to\":1201,"), "an export has the anchor");
    std::fs::write(here.join("export.jsonl"), &exported).expect("a file");
    firstcome(here, &["import", "--data", "copy", "export.jsonl"]).well();
    firstcome(here, &["verify", "--data", "copy"]).well();
    assert_eq!(firstcome(here, &["export", "--data", "copy"]).well(), exported);
    let richer =
        exported.replacen("\"removed\":{\"to\":1201,\"total\":1200", "\"removed\":{\"to\":1201,\"total\":1201", 1);
    assert_ne!(richer, exported);
    std::fs::write(here.join("richer.jsonl"), richer).expect("a file");
    let refused = firstcome(here, &["import", "--data", "richer", "richer.jsonl"]).with(1);
    assert!(refused.contains("a balance is not the sum of its records"), "{refused}");
}

#[test]
fn records_are_purged_from_a_directory_that_no_service_has_open() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    make_old(&here.join("data"));
    let of_directory = |more: &[&str]| {
        let purge = ["purge", "--json", "--data", "data"];
        firstcome(here, &[&purge, more].concat())
    };
    assert_eq!(records(&of_directory(&[]).well()), 0, "without the setting they stay for ever");
    assert!(of_directory(&["--retain-records", "30d"]).with(2).contains("31d at least"));
    assert_eq!(records(&of_directory(&["--retain-records", "90d"]).well()), 0);
    assert_eq!(records(&of_directory(&["--retain-records", "31d"]).well()), REMOVED);
    firstcome(here, &["verify", "--data", "data"]).well();
    let file = rusqlite::Connection::open(here.join("data").join(firstcome::sqlite::DATABASE_FILE)).expect("a file");
    file.execute("DELETE FROM anchor WHERE member = 1", []).expect("it is gone");
    drop(file);
    let found = firstcome(here, &["verify", "--data", "data"]);
    assert_eq!(found.code, Some(1), "a gap without an anchor is damage: {found:?}");
    assert!(found.stdout.contains("member ann, record 1202"), "{found:?}");
}
