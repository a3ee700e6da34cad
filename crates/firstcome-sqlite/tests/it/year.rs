//! A simulated year of sales and visitors: rows, and pages of the file in use, stay flat.
//!
//! Not counted: rows of coupons, which stay with their names, and of heads, to which receipts lead. The memory of a room over a year
//! is a test of the rules.

use crate::in_time;
use firstcome_sqlite as sqlite;
use firstcome_store::conformance::manual_clock;
use firstcome_store::core::coupon::{Claim, CouponLimit, CouponSettings};
use firstcome_store::core::id::{CouponName, RequestId, RoomName, UserId};
use firstcome_store::core::room::{Join, RoomSettings, TicketState};
use firstcome_store::{CouponStore, Embedded, PurgeRequest, PurgeStore, RedeemRequest, Retention, RoomStore};
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

/// Visitors join; some leave, some are admitted, and the others fall silent.
async fn visits(store: &Embedded, day: u32) {
    let joined = all((0..VISITORS).map(|nth| {
        let (store, user) = (store.clone(), UserId::parse(&format!("visitor-{day}-{nth}")).expect("a user"));
        async move {
            let join = Join { user: Some(user), request: request(day, nth) };
            store.join(&sale(), join).await.expect("an answer").expect("a place").1.ticket
        }
    }))
    .await;
    store.tick().await.expect("it ticks");
    let states = all(joined.clone().into_iter().map(|ticket| {
        let store = store.clone();
        async move { store.poll(&sale(), &ticket).await.expect("an answer").expect("a ticket").state }
    }))
    .await;
    let inside = states.iter().filter(|state| matches!(state, TicketState::Admitted { .. })).count();
    assert_eq!(inside, 3, "each day begins with free slots");
    all(joined.into_iter().step_by(3).map(|ticket| {
        let store = store.clone();
        async move { store.leave(&sale(), &ticket).await.expect("an answer").expect("it left") }
    }))
    .await;
}

/// A coupon is sold, some of it is redeemed, and it is deleted.
async fn sells(store: &Embedded, day: u32) {
    let name = CouponName::parse(&format!("coupon-{}", day / 5)).expect("a name");
    if day.is_multiple_of(5) {
        let settings = CouponSettings::with_limit(CouponLimit::new(5 * BUYERS).expect("a limit"));
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
    if day % 5 == 4 {
        store.delete_coupon(&name).await.expect("an answer").expect("it is deleted");
    }
}

/// Counts rows that are to stay flat, and pages in use.
fn figures(directory: &Path) -> BTreeMap<&'static str, i64> {
    let file = rusqlite::Connection::open(directory.join(sqlite::DATABASE_FILE)).expect("the file opens");
    let count = |query: &str| file.query_row(query, [], |row| row.get::<_, i64>(0)).expect("a count");
    let tables = ["claim", "redemption", "ticket", "slot", "memory", "renewal", "room", "pass_secret", "bid", "record"];
    let mut figures: BTreeMap<_, _> =
        tables.map(|table| (table, count(&format!("SELECT count(*) FROM {table}")))).into();
    let keys = "SELECT (SELECT count(request_key) FROM claim) + (SELECT count(request_key) FROM redemption)";
    figures.insert("keys", count(keys));
    let pages = |pragma: &str| file.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0)).expect("a count");
    figures.insert("pages", pages("page_count") - pages("freelist_count"));
    figures
}

#[tokio::test]
async fn a_year_of_sales_and_visitors_leaves_rows_and_pages_flat() {
    let (clock, _) = manual_clock();
    let directory = tempfile::tempdir().expect("a directory for the test");
    let store = sqlite::open(directory.path(), Arc::clone(&clock) as _).expect("it opens");
    let settings = RoomSettings { waiting_ttl_ms: HOUR_MS, ..RoomSettings::with_slots(3) };
    store.put_room(&sale(), settings).await.expect("an answer").expect("it is put");
    let retention = Retention { requests: Some(3 * DAY), claims: Some(20 * DAY), ..Retention::default() };
    let mut seen = Vec::new();
    in_time(async {
        for day in 0..DAYS {
            visits(&store, day).await;
            sells(&store, day).await;
            // Slots end, and silent visitors expire.
            for _ in 0..3 {
                clock.pass_ms(8 * HOUR_MS);
                store.tick().await.expect("it ticks");
            }
            store.purge(PurgeRequest::new(retention)).await.expect("an answer").expect("it is purged");
            seen.push(figures(directory.path()));
        }
    })
    .await;
    store.close();
    drop(store);
    let highest =
        |days: &[BTreeMap<&'static str, i64>], kind: &str| days.iter().map(|day| day[kind]).max().unwrap_or(0);
    let (warm, later) = seen.split_at(WARM);
    for kind in seen[0].keys() {
        let (warm, later) = (highest(warm, kind), highest(later, kind));
        // Each coupon keeps its row: about 73 of them in a few pages.
        let spare = if *kind == "pages" { 6 } else { 0 };
        assert!(later <= warm + spare, "{kind}: {warm} at most in the first days, then {later}");
    }
    assert!(0 < highest(warm, "ticket") && 0 < highest(warm, "keys") && 0 < highest(warm, "claim"), "{:?}", seen[WARM]);
    let checks = sqlite::verify(directory.path()).expect("the file can be read");
    assert!(checks.iter().all(|check| check.breaches == 0), "{checks:?}");
    sqlite::open(directory.path(), clock as _).expect("it opens again").close();
}
