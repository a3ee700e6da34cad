//! A simulated year of sales, visitors and auctions: rows, and pages of the file in use, stay flat.
//!
//! Not flat by design are the tables of [`GROW`], which docs/retention.md names. The test counts their rows. The memory of a room over a year is a test of the rules.

use crate::in_time;
use firstcome_sqlite as sqlite;
use firstcome_store::conformance::manual_clock;
use firstcome_store::core::auction::ListingSettings;
use firstcome_store::core::coupon::{Claim, CouponLimit, CouponSettings};
use firstcome_store::core::id::{CouponName, ListingName, MemberName, RequestId, RoomName, UserId};
use firstcome_store::core::points::Amount;
use firstcome_store::core::room::{Join, RenewalKey, RoomSettings, TicketState};
use firstcome_store::edge::{Clock as _, ManualClock};
use firstcome_store::{
    AuctionStore, CouponStore, Embedded, MovePoints, PlaceBid, Purchase, PurgeRequest, PurgeStore, ReceiptStore,
    RedeemRequest, Retention, RoomStore, Transfer,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

const HOUR_MS: u64 = 3_600_000;
const DAY: Duration = Duration::from_secs(86_400);
const DAYS: u32 = 365;
/// After so many days everything that ends has ended once.
const WARM: usize = 60;
const VISITORS: u32 = 24;
const BUYERS: u32 = 16;
/// Days of one coupon, and of one listing.
const SALE_DAYS: u32 = 5;

/// Tables whose rows go: those that retention covers, and those of places that end. Of `head` only the rows count behind which a
/// newer one stands: the newest one of each room and coupon stays.
const GO: [&str; 8] = ["claim", "head", "memory", "record", "redemption", "renewal", "slot", "ticket"];
/// Tables that keep rows with each coupon, each listing, and each chain of heads.
const GROW: [&str; 4] = ["bid", "coupon", "head_removed", "listing"];
/// Tables with a row for each room and member, of which the year has no new ones, or for the whole store. A row of `renaming` stays as
/// long as an erasure of more than a page takes.
const STAY: [&str; 10] =
    ["anchor", "api_key", "appearance", "clock", "departure", "member", "pass_secret", "purge", "renaming", "room"];
/// Where idempotency keys stand that a purge takes out of rows that stay, or stay longer.
const KEYS: [(&str, &str); 5] = [
    ("keys of claims", "claim"),
    ("keys of redemptions", "redemption"),
    ("keys of bids", "bid"),
    ("keys of purchases", "listing"),
    ("keys of charges and refunds", "record"),
];
/// So many pages more than in the first days may be in use. The rows of [`GROW`] and the newest heads of 61 sales fill eight, and
/// where rows come and go, pages are not always full.
const PAGES_SPARE: i64 = 12;

/// Counts of one look, by what was counted.
type Figures = BTreeMap<&'static str, i64>;

/// Runs all at once, so that the writer commits them together.
async fn all<T: Send + 'static>(futures: impl IntoIterator<Item = impl Future<Output = T> + Send + 'static>) -> Vec<T> {
    futures.into_iter().collect::<JoinSet<T>>().join_all().await
}

fn sale() -> RoomName {
    RoomName::parse("sale").expect("a name")
}

fn request(day: u32, nth: u32) -> Option<RequestId> {
    Some(RequestId { key: u128::from(day * 1_000 + nth) << 96 | u128::from(nth), body: 1 })
}

/// Visitors join. Some leave, some renew their tickets, some are admitted, and the others fall silent.
async fn visits(store: &Embedded, day: u32) {
    let mut joined = all((0..VISITORS).map(|nth| {
        let (store, user) = (store.clone(), UserId::parse(&format!("visitor-{day}-{nth}")).expect("a user"));
        async move {
            let join = Join { user: Some(user), request: request(day, nth) };
            store.join(&sale(), join).await.expect("an answer").expect("a place").1
        }
    }))
    .await;
    // By number, so that each day the same places leave.
    joined.sort_by_key(|place| place.number);
    let tickets: Vec<_> = joined.into_iter().map(|place| place.ticket).collect();
    store.tick().await.expect("it ticks");
    let states = all(tickets.clone().into_iter().map(|ticket| {
        let store = store.clone();
        async move { store.poll(&sale(), &ticket).await.expect("an answer").expect("a ticket").state }
    }))
    .await;
    let inside = states.iter().filter(|state| matches!(state, TicketState::Admitted { .. })).count();
    assert_eq!(inside, 3, "each day begins with free slots");
    let leave = all(tickets.clone().into_iter().step_by(3).map(|ticket| {
        let store = store.clone();
        async move { store.leave(&sale(), &ticket).await.expect("an answer").expect("it left") }
    }));
    let renew = all(tickets.into_iter().skip(1).step_by(3).map(|ticket| {
        let (store, key) = (store.clone(), RenewalKey::new(day.into()));
        async move {
            store.renew(&sale(), &ticket, key).await.expect("an answer").expect("it is renewed");
        }
    }));
    tokio::join!(leave, renew);
    // The slot of a visitor who left goes to the next one before the first head.
    store.tick().await.expect("it ticks");
}

/// A coupon is sold, some of it is redeemed, and it is deleted.
async fn sells(store: &Embedded, day: u32) {
    let name = CouponName::parse(&format!("coupon-{}", day / SALE_DAYS)).expect("a name");
    if day.is_multiple_of(SALE_DAYS) {
        let settings = CouponSettings::with_limit(CouponLimit::new(SALE_DAYS * BUYERS).expect("a limit"));
        store.put_coupon(&name, settings).await.expect("an answer").expect("it is put");
    }
    let codes = all((0..BUYERS).map(|nth| {
        let (store, name) = (store.clone(), name.clone());
        async move {
            let user = UserId::parse(&format!("buyer-{day}-{nth}")).expect("a user");
            let claim = Claim { user, attributes: None, request: request(day, nth) };
            store.claim(&name, claim).await.expect("an answer").expect("a claim").into_inner().code.as_str().to_owned()
        }
    }))
    .await;
    all((0..).zip(codes).step_by(2).map(|(nth, code)| {
        let (store, name) = (store.clone(), name.clone());
        async move {
            let redeem = RedeemRequest { code, user: None, request: request(day, nth) };
            store.redeem(&name, redeem).await.expect("an answer").expect("it is redeemed");
        }
    }))
    .await;
    if day % SALE_DAYS == SALE_DAYS - 1 {
        store.delete_coupon(&name).await.expect("an answer").expect("it is deleted");
    }
}

fn member(name: &str) -> MemberName {
    MemberName::parse(name).expect("a name")
}

fn points(count: u32) -> Amount {
    Amount::new(count.into()).expect("an amount")
}

/// Charges or refunds what a sale costs.
async fn moves(store: Embedded, name: &str, transfer: Transfer, request: Option<RequestId>) {
    let movement = MovePoints { transfer, amount: points(20), request };
    store.move_points(&member(name), movement).await.expect("an answer").expect("points move");
}

/// Members charge points and bid. Days later the winner pays, and the owner takes the points out.
async fn trades(store: &Embedded, clock: &ManualClock, day: u32) {
    let name = ListingName::parse(&format!("listing-{}", day / SALE_DAYS)).expect("a name");
    if day.is_multiple_of(SALE_DAYS) {
        let charge = |(name, nth)| moves(store.clone(), name, Transfer::Charge, request(day, nth));
        all(["ann", "bob"].into_iter().zip(0..).map(charge)).await;
        let settings = ListingSettings::auction(member("own"), points(1), clock.now().plus_ms(48 * HOUR_MS));
        store.put_listing(&name, settings).await.expect("an answer").expect("it is put");
        for (bidder, price) in [("bob", 10), ("ann", 20)] {
            let bid = PlaceBid { bidder: member(bidder), price: points(price), request: request(day, price) };
            store.place_bid(&name, bid).await.expect("an answer").expect("it counts");
        }
    }
    if day % SALE_DAYS == SALE_DAYS - 1 {
        let purchase = Purchase { buyer: member("ann"), request: request(day, 0) };
        store.purchase(&name, purchase).await.expect("an answer").expect("it is sold");
        moves(store.clone(), "own", Transfer::Refund, request(day, 1)).await;
    }
}

/// Publishes heads twice, a second apart: two of the room, and one of the coupon, which has new claims.
async fn publishes(store: &Embedded, clock: &ManualClock) {
    store.publish_heads().await.expect("heads are published");
    clock.pass_ms(1_000);
    store.publish_heads().await.expect("heads are published");
}

fn tables() -> Vec<&'static str> {
    [&GO[..], &GROW, &STAY].concat()
}

fn file(directory: &Path) -> rusqlite::Connection {
    rusqlite::Connection::open(directory.join(sqlite::DATABASE_FILE)).expect("the file opens")
}

/// Counts the rows of each table, keys, and the pages in use.
fn figures(directory: &Path) -> Figures {
    let file = file(directory);
    let count = |query: &str| file.query_row(query, [], |row| row.get::<_, i64>(0)).expect("a count");
    let mut figures: Figures =
        tables().into_iter().map(|table| (table, count(&format!("SELECT count(*) FROM {table}")))).collect();
    figures.insert("head", count("SELECT count(*) - count(DISTINCT object) FROM head"));
    for (kind, table) in KEYS {
        figures.insert(kind, count(&format!("SELECT count(request_key) FROM {table}")));
    }
    let pages = |pragma: &str| file.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).expect("a count");
    figures.insert("pages", pages("page_count") - pages("freelist_count"));
    figures
}

/// Lives the year. Returns the figures at noon of the first days, when all have come, and in the evening of each day.
async fn lives(store: &Embedded, clock: &ManualClock, directory: &Path) -> [Vec<Figures>; 2] {
    let retention = Retention {
        requests: Some(3 * DAY),
        claims: Some(20 * DAY),
        records: Some(31 * DAY),
        heads: Some(7 * DAY),
        ..Retention::default()
    };
    let (mut noons, mut evenings) = (Vec::new(), Vec::new());
    for day in 0..DAYS {
        // All at once: the writer commits them together.
        tokio::join!(visits(store, day), sells(store, day), trades(store, clock, day));
        publishes(store, clock).await;
        if noons.len() < WARM {
            noons.push(figures(directory));
        }
        // Slots end, and silent visitors expire.
        for _ in 0..3 {
            clock.pass_ms(8 * HOUR_MS);
            store.tick().await.expect("it ticks");
        }
        store.publish_heads().await.expect("heads are published");
        store.purge(PurgeRequest::new(retention)).await.expect("an answer").expect("it is purged");
        evenings.push(figures(directory));
    }
    [noons, evenings]
}

/// A table that no list names is one of which this test shows nothing.
fn every_table_has_its_list(directory: &Path) {
    let file = file(directory);
    let query = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%' ORDER BY name";
    let mut statement = file.prepare(query).expect("a statement");
    let rows = statement.query_map([], |row| row.get::<_, String>(0)).expect("rows");
    let there: Vec<String> = rows.map(|row| row.expect("a name")).collect();
    let mut known = tables();
    known.sort_unstable();
    assert_eq!(there, known, "name each table in GO, GROW or STAY");
}

#[tokio::test]
async fn a_year_of_sales_and_visitors_leaves_rows_and_pages_flat() {
    let (clock, _) = manual_clock();
    let directory = tempfile::tempdir().expect("a directory for the test");
    let store = sqlite::open(directory.path(), Arc::clone(&clock) as _).expect("it opens");
    let settings = RoomSettings { waiting_ttl_ms: HOUR_MS, ..RoomSettings::with_slots(3) };
    store.put_room(&sale(), settings).await.expect("an answer").expect("it is put");
    let [noons, evenings] = in_time(lives(&store, &clock, directory.path())).await;
    store.close();
    drop(store);
    every_table_has_its_list(directory.path());
    let highest = |looks: &[Figures], kind: &str| looks.iter().map(|look| look[kind]).max().unwrap_or(0);
    let (warm, later) = evenings.split_at(WARM);
    // What stays empty is flat, and shows nothing.
    for kind in GO.into_iter().chain(GROW).chain(["anchor"]).chain(KEYS.map(|(kind, _)| kind)) {
        assert!(0 < highest(&noons, kind).max(highest(warm, kind)), "{kind}: none in the first days");
    }
    for kind in evenings[0].keys().copied().filter(|kind| !GROW.contains(kind)) {
        let (warm, later) = (highest(warm, kind), highest(later, kind));
        let spare = if kind == "pages" { PAGES_SPARE } else { 0 };
        assert!(later <= warm + spare, "{kind}: {warm} at most in the first days, then {later}");
    }
    let (last, sales) = (&evenings[evenings.len() - 1], i64::from(DAYS / SALE_DAYS));
    assert_eq!(["coupon", "listing", "bid"].map(|table| last[table]), [sales, sales, 2 * sales]);
    assert!(last["head_removed"] <= last["coupon"] + last["room"], "one for each chain: {last:?}");
    let checks = sqlite::verify(directory.path()).expect("the file can be read");
    assert!(checks.iter().all(|check| check.breaches == 0), "{checks:?}");
    sqlite::open(directory.path(), clock as _).expect("it opens again").close();
}
