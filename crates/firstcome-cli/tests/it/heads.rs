//! Published heads that a purge removed: a kill right after its answer, and the way of the rest into another directory.

use crate::keys::serve;
use crate::support::http::Client;
use crate::support::program::{PROGRAM, command, firstcome, run};
use crate::support::server::Server;
use crate::support::wait_for;
use firstcome::core::coupon::{Claim, CouponLimit, CouponSettings};
use firstcome::core::id::{CouponName, UserId};
use firstcome::core::time::Timestamp;
use firstcome::edge::{Clock, ManualClock, SystemClock};
use firstcome::{CouponStore, ReceiptStore};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;

const ADMIN: &str = "canary-admin-6f1d2c9b7a3e5084";
const DAY_US: i64 = 86_400_000_000;
/// More than a page of heads.
const HEADS: u32 = 1_200;

/// Makes a directory in which a coupon published heads sixty days ago.
fn make_old(data: &Path) {
    let start = SystemClock::default().now();
    let clock = Arc::new(ManualClock::new(Timestamp::clamped_us(start.as_us() - 60 * DAY_US)));
    let store = firstcome::sqlite::open(data, clock as _).expect("it opens");
    let sale = CouponName::parse("sale").expect("a name");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let settings = CouponSettings::with_limit(CouponLimit::new(2 * HEADS).expect("a limit"));
        store.put_coupon(&sale, settings).await.expect("an answer").expect("it is put");
        for nth in 1..=HEADS {
            let user = UserId::parse(&format!("user-{nth}")).expect("a user");
            let claim = Claim { user, attributes: None, request: None };
            store.claim(&sale, claim).await.expect("an answer").expect("there is one left");
            store.publish_heads().await.expect("a head is published");
        }
    });
    store.close();
}

fn start(here: &Path) -> Server {
    Server::spawn(serve(here).env("FIRSTCOME_ADMIN_KEY", ADMIN).args(["--retain-heads", "31d"]))
}

#[track_caller]
fn purge(server: &Server, here: &Path, more: &[&str]) -> u64 {
    let url = format!("http://{}", server.address());
    let mut purge = command(PROGRAM, here);
    let purge = purge.args(["purge", "--json", "--url", &url]).args(more).env("FIRSTCOME_ADMIN_KEY", ADMIN);
    let printed = run(purge).well();
    let counts: Value = serde_json::from_str(&printed).unwrap_or_else(|error| panic!("{error}: {printed}"));
    counts["heads"].as_u64().unwrap_or_else(|| panic!("{printed}"))
}

#[test]
fn heads_that_a_purge_removed_stay_removed_when_the_service_is_killed_right_after_its_answer() {
    let directory = tempfile::tempdir().expect("a directory");
    let here = directory.path();
    make_old(&here.join("data"));
    let mut server = start(here);
    // The newest one stays.
    let removed = u64::from(HEADS) - 1;
    assert_eq!(purge(&server, here, &["--dry-run"]), removed);
    assert_eq!(purge(&server, here, &[]), removed);
    server.kill();
    firstcome(here, &["verify", "--data", "data"]).well();

    let server = start(here);
    assert_eq!(purge(&server, here, &[]), 0);
    let mut client = Client::with_key(server.address(), ADMIN);
    let page = client.call("GET", "/v1/coupons/sale/heads", None).text();
    assert!(page.contains("sequence 1200\n") && !page.contains("sequence 1199\n"), "{page}");
    let refused = client.call("GET", "/v1/coupons/sale/heads?after=7", None);
    assert_eq!((refused.status, refused.code().as_str()), (410, "heads_removed"));
    assert_eq!(refused.json()["removed_to"], json!(removed));
    let refused = client.call("GET", "/v1/coupons/sale/claims/user-7/receipt", None);
    assert_eq!((refused.status, refused.code().as_str()), (410, "heads_removed"));
    assert_eq!(client.call("POST", "/v1/coupons/sale/claims", Some(&json!({"user": "late"}))).status, 201);
    let receipt = wait_for("a head covers the claim", || {
        let told = client.call("GET", "/v1/coupons/sale/claims/late/receipt", None);
        (told.status == 200).then(|| told.text())
    });
    let heads = client.call("GET", "/v1/coupons/sale/heads", None).text();
    std::fs::write(here.join("receipt.txt"), receipt).expect("a file");
    std::fs::write(here.join("heads.txt"), heads).expect("a file");
    let told = firstcome(here, &["verify", "--json", "--receipt", "receipt.txt", "--heads", "heads.txt"]).well();
    assert!(told.contains("\"heads_confirmed\": 2"), "{told}");
    server.stop();
    firstcome(here, &["verify", "--data", "data"]).well();

    let exported = firstcome(here, &["export", "--data", "data"]).well();
    assert!(exported.contains("\"removed_to\":1199"), "an export says which heads went");
    std::fs::write(here.join("export.jsonl"), &exported).expect("a file");
    firstcome(here, &["import", "--data", "copy", "export.jsonl"]).well();
    firstcome(here, &["verify", "--data", "copy"]).well();
    assert_eq!(firstcome(here, &["export", "--data", "copy"]).well(), exported);
    std::fs::write(here.join("gap.jsonl"), exported.replace(",\"removed_to\":1199", "")).expect("a file");
    let refused = firstcome(here, &["import", "--data", "gap", "gap.jsonl"]).with(1);
    assert!(refused.contains("coupon sale, head 1200: a head is missing"), "{refused}");
}
