//! What a file keeps of an erased person.

use crate::in_time;
use firstcome_sqlite::{self as sqlite, DATABASE_FILE};
use firstcome_store::conformance::{self, manual_clock};
use firstcome_store::core::coupon::{Attributes, Claim, CouponLimit, CouponSettings};
use firstcome_store::core::id::{CouponName, MemberName, RoomName, UserId};
use firstcome_store::core::points::Amount;
use firstcome_store::core::room::{Join, RoomSettings};
use firstcome_store::edge::ManualClock;
use firstcome_store::{AuctionStore, CouponStore, Embedded, EraseStore, MovePoints, RoomStore, Transfer};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn erasures_from_a_file_keep_every_promise_of_the_port() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let stores = AtomicU32::new(0);
    let open = |clock: Arc<ManualClock>| {
        let fresh = directory.path().join(stores.fetch_add(1, Ordering::Relaxed).to_string());
        async move { sqlite::open(&fresh, clock).expect("a fresh directory opens") }
    };
    in_time(conformance::erasures(open)).await;
    in_time(conformance::member_erasures(open)).await;
    in_time(conformance::member_erasures_by_the_clock(open)).await;
    for store in 0..stores.load(Ordering::Relaxed) {
        assert_sound(&directory.path().join(store.to_string()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_file_that_is_opened_again_holds_nothing_of_an_erased_person() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let open = |clock: Arc<ManualClock>| {
        let same = directory.path().to_owned();
        async move { sqlite::open(&same, clock).expect("a store that was closed opens again") }
    };
    in_time(conformance::erasures_reopen(open)).await;
    assert_sound(directory.path());
}

#[track_caller]
fn assert_sound(directory: &Path) {
    for check in sqlite::verify(directory).expect("the file can be read") {
        assert_eq!(check.breaches, 0, "{}: {:?}", check.invariant, check.examples);
    }
}

/// A name that no other bytes of the file can be.
const NAME: &str = "canary-of-an-erased-person";
const PHONE: &str = "canary-of-an-attribute";

/// How often the files of the store hold a text.
fn copies(directory: &Path, text: &str) -> usize {
    let files = [DATABASE_FILE.to_owned(), format!("{DATABASE_FILE}-wal")];
    let bytes = files.map(|file| std::fs::read(directory.join(file)).unwrap_or_default());
    bytes.iter().map(|bytes| bytes.windows(text.len()).filter(|window| *window == text.as_bytes()).count()).sum()
}

async fn fill(store: &Embedded, name: &str) {
    let (coupon, room) = (CouponName::parse("launch").expect("a name"), RoomName::parse("sale").expect("a name"));
    let (user, member) = (UserId::parse(name).expect("a name"), MemberName::parse(name).expect("a name"));
    let attributes = Attributes::new(&format!("{{\"phone\":\"{PHONE}\"}}"));
    let claim = Claim { user: user.clone(), attributes: attributes.filter(|_| name == NAME), request: None };
    store.claim(&coupon, claim).await.expect("it answers").expect("there is one left");
    let join = Join { user: Some(user), request: None };
    let (_, place) = store.join(&room, join).await.expect("it answers").expect("it takes tickets");
    store.leave(&room, &place.ticket).await.expect("it answers").expect("the ticket is known");
    let amount = Amount::new(5).expect("an amount");
    let charge = MovePoints { transfer: Transfer::Charge, amount, request: None };
    store.move_points(&member, charge).await.expect("it answers").expect("no rule refuses it");
}

/// Also the space that SQLite has freed, and the log with earlier versions of pages, hold no copy.
#[tokio::test]
async fn no_byte_of_an_erased_name_stays_in_the_files() {
    let directory = tempfile::tempdir().expect("a directory for the test");
    let (clock, _) = manual_clock();
    let store = sqlite::open(directory.path(), clock).expect("a fresh directory opens");
    let settings = CouponSettings::with_limit(CouponLimit::new(1_000).expect("a limit"));
    store.put_coupon(&CouponName::parse("launch").expect("a name"), settings).await.expect("it answers").expect("done");
    let room = RoomName::parse("sale").expect("a name");
    store.put_room(&room, RoomSettings::with_slots(1)).await.expect("it answers").expect("done");
    for number in 0..150 {
        fill(&store, &format!("user-{number}")).await;
    }
    fill(&store, NAME).await;
    for number in 150..300 {
        fill(&store, &format!("user-{number}")).await;
    }
    assert!(0 < copies(directory.path(), NAME) && 0 < copies(directory.path(), PHONE), "the test can see them");
    let erased = store.erase(&UserId::parse(NAME).expect("a name")).await.expect("it answers").expect("nothing is due");
    assert_eq!((erased.claims, erased.tickets, erased.members, erased.records), (1, 1, 1, 1));
    assert_eq!([NAME, PHONE].map(|text| copies(directory.path(), text)), [0, 0]);
    assert!(0 < copies(directory.path(), "user-299"), "others stay");
    drop(store);
    assert_sound(directory.path());
}
