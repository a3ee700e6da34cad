//! Purges of the embedded store, in a file and in memory.

use crate::in_time;
use firstcome_sqlite as sqlite;
use firstcome_store::conformance::manual_clock;
use firstcome_store::core::coupon::{Claim, CouponLimit, CouponSettings, Effect, Rejection};
use firstcome_store::core::id::{CouponName, MemberName, RequestId, UserId};
use firstcome_store::core::points::Amount;
use firstcome_store::core::time::Timestamp;
use firstcome_store::edge::{Clock as _, ManualClock};
use firstcome_store::purge::{ClockCheck, PurgeMode};
use firstcome_store::{
    AuctionStore, CouponStore, Embedded, MovePoints, PurgeRejection, PurgeRequest, PurgeStore, Purged, RedeemRequest,
    Retention, Transfer,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const DAY_MS: u64 = 86_400_000;

fn name() -> CouponName {
    CouponName::parse("launch").expect("a name")
}

const fn request(key: u128) -> RequestId {
    RequestId { key, body: 5 }
}

async fn with_coupon(store: &Embedded) {
    let settings = CouponSettings::with_limit(CouponLimit::new(10_000).expect("a limit"));
    store.put_coupon(&name(), settings).await.expect("an answer").expect("it is put");
}

/// Claims, and returns the code; the first word says whether the claim is new.
async fn claimed(store: &Embedded, user: &str, key: u128) -> Result<(&'static str, String), Rejection> {
    let user = UserId::parse(user).expect("a user");
    let claim = Claim { user, attributes: None, request: Some(request(key)) };
    let answer = store.claim(&name(), claim).await.expect("an answer").map_err(|refused| refused.rejection)?;
    let word = if matches!(answer, Effect::New(_)) { "new" } else { "again" };
    Ok((word, answer.into_inner().code.as_str().to_owned()))
}

async fn redeemed(store: &Embedded, code: &str, key: u128) -> Result<&'static str, Rejection> {
    let redeem = RedeemRequest { code: code.to_owned(), user: None, request: Some(request(key)) };
    let answer = store.redeem(&name(), redeem).await.expect("an answer").map_err(|refused| refused.rejection)?;
    Ok(if matches!(answer, Effect::New(_)) { "new" } else { "again" })
}

async fn charged(store: &Embedded, key: u128) -> &'static str {
    let (member, amount) = (MemberName::parse("ann").expect("a name"), Amount::new(5).expect("an amount"));
    let charge = MovePoints { transfer: Transfer::Charge, amount, request: Some(request(key)) };
    let answer = store.move_points(&member, charge).await.expect("an answer").expect("it is charged");
    if matches!(answer, Effect::New(_)) { "new" } else { "again" }
}

fn after_days(days: u64) -> PurgeRequest {
    PurgeRequest::new(Retention { requests: Some(Duration::from_millis(days * DAY_MS)), ..Retention::FOREVER })
}

async fn purged(store: &Embedded, request: PurgeRequest) -> Result<u64, PurgeRejection> {
    store.purge(request).await.expect("an answer").map(|purged| {
        assert_eq!(purged, Purged { requests: purged.requests, ..Purged::default() }, "nothing else went");
        purged.requests
    })
}

/// Returns how many keys of requests the file has.
fn keys_in(directory: &Path) -> i64 {
    let file = rusqlite::Connection::open(directory.join(sqlite::DATABASE_FILE)).expect("the file opens");
    let count = |table: &str| {
        let query = format!("SELECT count(*) FROM {table} WHERE request_key IS NOT NULL OR request_body IS NOT NULL");
        file.query_row(&query, [], |row| row.get::<_, i64>(0)).expect("a count")
    };
    ["claim", "redemption", "bid", "listing", "record"].into_iter().map(count).sum()
}

fn open(directory: &Path, clock: &Arc<ManualClock>) -> Embedded {
    sqlite::open(directory, Arc::clone(clock) as _).expect("it opens")
}

/// What a purge of requests does, over any store. `reopened` gives the store again, after a restart if it has such.
async fn requests_end(clock: &ManualClock, store: Embedded, reopened: impl AsyncFn(Embedded) -> Embedded) {
    with_coupon(&store).await;
    let (word, code) = claimed(&store, "ann", 1).await.expect("a claim");
    assert_eq!((word, redeemed(&store, &code, 2).await), ("new", Ok("new")));
    clock.pass_ms(20 * DAY_MS);
    let (_, later) = claimed(&store, "bob", 3).await.expect("a claim");
    clock.pass_ms(10 * DAY_MS);
    // Thirty days old, and not a moment more.
    assert_eq!(purged(&store, after_days(30)).await, Ok(0));
    assert_eq!(claimed(&store, "ann", 1).await, Ok(("again", code.clone())));
    clock.pass_ms(1);
    let counted = PurgeRequest { mode: PurgeMode::Count, ..after_days(30) };
    assert_eq!(purged(&store, counted).await, Ok(2));
    assert_eq!(claimed(&store, "ann", 1).await, Ok(("again", code.clone())), "a dry run removes nothing");
    assert_eq!(purged(&store, after_days(30)).await, Ok(2));
    assert_eq!(purged(&store, after_days(30)).await, Ok(0));
    let end = async |store: &Embedded| {
        // The same key is a new request; the claim, its code and its redemption stay.
        let again = claimed(store, "ann", 1).await;
        assert!(matches!(again, Err(Rejection::AlreadyIssued(issued)) if issued.serial.get() == 1), "{again:?}");
        assert!(matches!(redeemed(store, &code, 2).await, Err(Rejection::AlreadyRedeemed(_))));
        assert_eq!(claimed(store, "bob", 3).await, Ok(("again", later.clone())), "a younger key stays");
    };
    end(&store).await;
    end(&reopened(store).await).await;
}

#[tokio::test]
async fn keys_of_requests_leave_the_file_and_memory_when_their_time_is_over() {
    let (clock, _) = manual_clock();
    let directory = tempfile::tempdir().expect("a directory for the test");
    let store = open(directory.path(), &clock);
    let reopened = async |store: Embedded| {
        assert_eq!(keys_in(directory.path()), 1, "the younger key alone");
        store.close();
        open(directory.path(), &clock)
    };
    in_time(requests_end(&clock, store, reopened)).await;
    let checks = sqlite::verify(directory.path()).expect("the file can be read");
    assert!(checks.iter().all(|check| check.breaches == 0), "{checks:?}");
}

#[tokio::test]
async fn keys_of_requests_leave_a_store_in_memory_too() {
    let (clock, _) = manual_clock();
    in_time(requests_end(&clock, Embedded::memory_with(Arc::clone(&clock) as _), async |store| store)).await;
}

#[tokio::test]
async fn a_key_of_a_charge_stays_for_thirty_days_whatever_is_set() {
    let (clock, _) = manual_clock();
    let directory = tempfile::tempdir().expect("a directory for the test");
    let store = open(directory.path(), &clock);
    assert_eq!(charged(&store, 1).await, "new");
    clock.pass_ms(29 * DAY_MS);
    assert_eq!(charged(&store, 2).await, "new");
    assert_eq!(purged(&store, after_days(1)).await, Ok(0));
    assert_eq!(charged(&store, 1).await, "again");
    clock.pass_ms(2 * DAY_MS);
    assert_eq!(purged(&store, after_days(1)).await, Ok(1));
    assert_eq!((keys_in(directory.path()), charged(&store, 2).await), (1, "again"));
    store.close();
}

#[tokio::test]
async fn more_keys_than_a_page_go_page_by_page() {
    let (clock, _) = manual_clock();
    let directory = tempfile::tempdir().expect("a directory for the test");
    let store = open(directory.path(), &clock);
    with_coupon(&store).await;
    for number in 0..2_500_u128 {
        // The bits that choose the part of the table are the same: all keys lie in one.
        let key = number << 104 | number;
        assert_eq!(claimed(&store, &format!("user-{number}"), key).await.expect("a claim").0, "new");
    }
    clock.pass_ms(31 * DAY_MS);
    assert_eq!(purged(&store, after_days(30)).await, Ok(2_500));
    assert_eq!(keys_in(directory.path()), 0);
    store.close();
}

/// Waits until the file has fewer keys than this.
async fn fewer_keys_than(count: i64, directory: &Path) {
    while count <= keys_in(directory) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_purge_that_is_cut_short_leaves_whole_pages_and_the_next_one_goes_on() {
    const CLAIMS: u64 = 2_000;
    let (clock, _) = manual_clock();
    let directory = tempfile::tempdir().expect("a directory for the test");
    let store = open(directory.path(), &clock);
    with_coupon(&store).await;
    for number in 0..CLAIMS {
        let key = u128::from(number) << 96 | u128::from(number);
        assert_eq!(claimed(&store, &format!("user-{number}"), key).await.expect("a claim").0, "new");
    }
    clock.pass_ms(31 * DAY_MS);
    in_time(async {
        tokio::select! {
            biased;
            _ = store.purge(after_days(30)) => panic!("the purge has ended"),
            () = fewer_keys_than(CLAIMS.cast_signed(), directory.path()) => {}
        }
    })
    .await;
    // What the purge gave the writer last is done, or skipped.
    with_coupon(&store).await;
    let left = keys_in(directory.path());
    assert!((1..CLAIMS.cast_signed()).contains(&left), "{left} keys are left");
    let mut known = 0;
    for number in 0..CLAIMS {
        let key = u128::from(number) << 96 | u128::from(number);
        known += i64::from(claimed(&store, &format!("user-{number}"), key).await.is_ok());
    }
    assert_eq!(known, left, "memory knows the keys that the file has");
    store.close();
    drop(store);
    let store = open(directory.path(), &clock);
    assert_eq!(purged(&store, after_days(30)).await, Ok(left.cast_unsigned()));
    assert_eq!(keys_in(directory.path()), 0);
    store.close();
}

#[tokio::test]
async fn a_clock_that_is_obviously_wrong_purges_nothing_unless_an_operator_says_so() {
    let (clock, _) = manual_clock();
    let directory = tempfile::tempdir().expect("a directory for the test");
    let store = open(directory.path(), &clock);
    with_coupon(&store).await;
    claimed(&store, "ann", 1).await.expect("a claim");
    assert_eq!(purged(&store, after_days(30)).await, Ok(0));
    store.close();
    drop(store);
    // The store remembers its last purge, also over a restart.
    clock.pass_ms(400 * DAY_MS);
    let store = open(directory.path(), &clock);
    assert!(matches!(purged(&store, after_days(30)).await, Err(PurgeRejection::ClockAhead(_))));
    assert_eq!(keys_in(directory.path()), 1);
    let trusted = PurgeRequest { clock: ClockCheck::Skip, ..after_days(30) };
    assert_eq!(purged(&store, trusted).await, Ok(1));
    // The next one needs no word any more.
    assert_eq!(purged(&store, after_days(30)).await, Ok(0));
    store.close();
    drop(store);
    let now = clock.now();
    let earlier = Arc::new(ManualClock::new(Timestamp::clamped_us(now.as_us() - 3_600_000_000)));
    let store = open(directory.path(), &earlier);
    assert!(matches!(purged(&store, after_days(30)).await, Err(PurgeRejection::ClockBehind(at)) if at == now));
    store.close();
}

#[tokio::test]
async fn a_wall_clock_set_forward_in_a_running_store_ends_no_key_early() {
    let (clock, _) = manual_clock();
    let store = Embedded::memory_with(Arc::clone(&clock) as _);
    with_coupon(&store).await;
    let (_, code) = claimed(&store, "ann", 1).await.expect("a claim");
    clock.step_forward_ms(100 * DAY_MS);
    assert_eq!(purged(&store, after_days(30)).await, Ok(0));
    assert_eq!(claimed(&store, "ann", 1).await, Ok(("again", code)));
}
