//! Members, listings and bids in a file: the conformance suite, and rows that were changed by hand.

use crate::in_time;
use firstcome_sqlite::verify;
use firstcome_store::AuctionStore;
use firstcome_store::conformance::{self, AuctionSizes, manual_clock};
use firstcome_store::core::auction::ListingSettings;
use firstcome_store::core::id::{ListingName, MemberName};
use firstcome_store::core::points::Amount;
use firstcome_store::core::time::Timestamp;
use firstcome_store::edge::ManualClock;
use firstcome_store::{FaultKind, MovePoints, PlaceBid, Transfer};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

async fn proves<S: AuctionStore + 'static>(sizes: AuctionSizes, new_store: impl Fn(Arc<ManualClock>) -> S) {
    let open = || {
        let (clock, pass) = manual_clock();
        let store = new_store(clock);
        async move { (store, pass) }
    };
    in_time(conformance::auctions(sizes, open)).await;
}

fn member(name: &str) -> MemberName {
    MemberName::parse(name).expect("a name")
}

fn listing(name: &str) -> ListingName {
    ListingName::parse(name).expect("a name")
}

#[track_caller]
fn all_sound(directory: &Path) {
    for check in verify(directory).expect("the file can be read") {
        assert_eq!(check.breaches, 0, "{}: {:?}", check.invariant, check.examples);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn auctions_in_a_file_keep_every_promise_of_the_port() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let stores = AtomicU32::new(0);
    let sizes = AuctionSizes { sequences: 10, ..AuctionSizes::LARGE };
    proves(sizes, |clock| {
        let fresh = directory.path().join(stores.fetch_add(1, Ordering::Relaxed).to_string());
        firstcome_sqlite::open(&fresh, clock).expect("a fresh directory opens")
    })
    .await;
    for store in 0..stores.into_inner() {
        all_sound(&directory.path().join(store.to_string()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn auctions_in_a_file_keep_every_instant() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let stores = AtomicU32::new(0);
    let open = |clock: Arc<ManualClock>| {
        let fresh = directory.path().join(stores.fetch_add(1, Ordering::Relaxed).to_string());
        async move { firstcome_sqlite::open(&fresh, clock).expect("a fresh directory opens") }
    };
    in_time(conformance::auction_by_the_clock(open)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_file_that_is_opened_again_still_knows_its_auction() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let (clock, pass) = manual_clock();
    let open = || {
        let (same, clock, pass) = (directory.path().to_owned(), Arc::clone(&clock), Arc::clone(&pass));
        async move { (firstcome_sqlite::open(&same, clock).expect("a store that was closed opens again"), pass) }
    };
    in_time(conformance::auction_reopens(AuctionSizes::LARGE, open)).await;
    all_sound(directory.path());
}

/// A directory with three members and two listings: ann has outbid bob for the second, cid has points and nothing else.
async fn filled() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let store = firstcome_sqlite::open(directory.path(), manual_clock().0).expect("a fresh directory opens");
    let amount = |points| Amount::new(points).expect("an amount");
    for name in ["ann", "bob", "cid"] {
        let charge = MovePoints { transfer: Transfer::Charge, amount: amount(100), request: None };
        store.move_points(&member(name), charge).await.expect("it answers").expect("it is charged");
    }
    for name in ["vase", "lamp"] {
        let settings = ListingSettings::auction(member("own"), amount(1), Timestamp::MAX);
        store.put_listing(&listing(name), settings).await.expect("it answers").expect("it is new");
    }
    for (bidder, price) in [("bob", 10), ("ann", 20)] {
        let bid = PlaceBid { bidder: member(bidder), price: amount(price), request: None };
        store.place_bid(&listing("lamp"), bid).await.expect("it answers").expect("it counts");
    }
    store.close();
    directory
}

/// Each change of a copy must be named by the offline check, and refused at the start.
#[tokio::test]
async fn rows_beyond_those_that_are_counted_are_damage() {
    const RECORD: &str = "kind, amount, listing, bid, at, total, held, chain, request_key, request_body FROM record";
    const BID: &str = "member, price, at, ends_at, fence, request_key, request_body FROM bid";
    let table = [
        (format!("INSERT INTO record SELECT (4 << 36) | 1, {RECORD} WHERE id = (3 << 36) | 1"), "member who does not"),
        (format!("INSERT INTO record SELECT (1 << 36) | 3, {RECORD} WHERE id = (1 << 36) | 2"), "last record"),
        (format!("INSERT INTO record SELECT 7, {RECORD} WHERE id = (3 << 36) | 1"), "member who does not"),
        (format!("INSERT INTO record SELECT -7, {RECORD} WHERE id = (3 << 36) | 1"), "member who does not"),
        ("DELETE FROM member WHERE name = 'cid'".to_owned(), "member who does not"),
        (format!("INSERT INTO bid SELECT (3 << 32) | 1, {BID} WHERE id = (2 << 32) | 1"), "listing that does not"),
        (format!("INSERT INTO bid SELECT (1 << 32) | 1, {BID} WHERE id = (2 << 32) | 1"), "vase"),
        (format!("INSERT INTO bid SELECT (2 << 32) | 3, {BID} WHERE id = (2 << 32) | 1"), "lamp"),
        (format!("INSERT INTO bid SELECT 7, {BID} WHERE id = (2 << 32) | 1"), "listing that does not"),
        ("DELETE FROM listing WHERE name = 'lamp'".to_owned(), "listing that does not"),
    ];
    let original = filled().await;
    all_sound(original.path());
    for (change, words) in table {
        let copy = tempfile::tempdir().expect("a directory for the test");
        std::fs::copy(firstcome_sqlite::database_path(original.path()), firstcome_sqlite::database_path(copy.path()))
            .expect("a copy");
        let connection = rusqlite::Connection::open(firstcome_sqlite::database_path(copy.path())).expect("a database");
        assert_eq!(connection.execute(&change, []).expect("it can be changed"), 1, "{change}");
        drop(connection);
        let fault =
            firstcome_sqlite::open(copy.path(), manual_clock().0).err().unwrap_or_else(|| panic!("{change}: it opens"));
        assert_eq!(fault.kind, FaultKind::Damaged, "{change}: {fault:?}");
        assert!(fault.detail.contains(words), "{change}: {fault:?}");
        let broken = match verify(copy.path()) {
            Ok(checks) => checks.iter().any(|check| check.breaches != 0),
            Err(fault) => fault.kind == FaultKind::Damaged,
        };
        assert!(broken, "{change}: nothing is found offline");
    }
}
