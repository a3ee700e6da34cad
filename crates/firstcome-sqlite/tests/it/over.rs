//! Purges of the claims of coupons that are over, in a file and in memory.

use crate::in_time;
use firstcome_sqlite as sqlite;
use firstcome_store::archive::Incoming;
use firstcome_store::conformance::manual_clock;
use firstcome_store::core::coupon::{Claim, CouponLimit, CouponSettings, CouponState, Effect, Rejection};
use firstcome_store::core::id::{CouponName, RequestId, UserId};
use firstcome_store::core::time::Timestamp;
use firstcome_store::edge::{Clock as _, ManualClock};
use firstcome_store::purge::PurgeMode;
use firstcome_store::{
    CouponStore, Embedded, Fault, PurgeRequest, PurgeStore, Purged, ReceiptStore, RedeemRequest, Retention,
};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const DAY_MS: u64 = 86_400_000;

fn open(directory: &Path, clock: &Arc<ManualClock>) -> Embedded {
    sqlite::open(directory, Arc::clone(clock) as _).expect("it opens")
}

fn named(name: &str) -> CouponName {
    CouponName::parse(name).expect("a name")
}

fn after_days(days: u64) -> PurgeRequest {
    let kept = Some(Duration::from_millis(days * DAY_MS));
    PurgeRequest::new(Retention { claims: kept, ..Retention::FOREVER })
}

async fn purged(store: &Embedded, request: PurgeRequest) -> (u64, u64) {
    let Purged { claims, coupons, .. } = store.purge(request).await.expect("an answer").expect("it is purged");
    (claims, coupons)
}

fn settings(limit: u32) -> CouponSettings {
    CouponSettings::with_limit(CouponLimit::new(limit).expect("a limit"))
}

async fn put(store: &Embedded, coupon: &str, settings: CouponSettings) {
    store.put_coupon(&named(coupon), settings).await.expect("an answer").expect("it is put");
}

async fn claimed(store: &Embedded, coupon: &str, user: &str) -> Result<String, Rejection> {
    let key = Some(RequestId { key: u128::from(user.as_bytes()[0]) << 96, body: 1 });
    let claim = Claim { user: UserId::parse(user).expect("a user"), attributes: None, request: key };
    let answer = store.claim(&named(coupon), claim).await.expect("an answer");
    answer.map(|effect| effect.into_inner().code.as_str().to_owned()).map_err(|refused| refused.rejection)
}

async fn redeemed(store: &Embedded, coupon: &str, code: &str) -> Result<&'static str, Rejection> {
    let redeem = RedeemRequest { code: code.to_owned(), user: None, request: None };
    let answer = store.redeem(&named(coupon), redeem).await.expect("an answer").map_err(|refused| refused.rejection)?;
    Ok(if matches!(answer, Effect::New(_)) { "new" } else { "again" })
}

fn rows(directory: &Path, query: &str) -> i64 {
    let file = rusqlite::Connection::open(directory.join(sqlite::DATABASE_FILE)).expect("the file opens");
    file.query_row(query, [], |row| row.get(0)).expect("a count")
}

fn claims_in(directory: &Path) -> i64 {
    rows(directory, "SELECT (SELECT count(*) FROM claim) + (SELECT count(*) FROM redemption)")
}

fn breaches(directory: &Path) -> Vec<String> {
    let checks = sqlite::verify(directory).expect("the file can be read");
    checks.into_iter().filter(|check| 0 < check.breaches).map(|check| format!("{check:?}")).collect()
}

fn in_days(clock: &ManualClock, days: i64) -> Option<Timestamp> {
    Some(Timestamp::clamped_us(clock.now().as_us() + days * 86_400_000_000))
}

#[tokio::test]
async fn claims_of_a_coupon_that_is_over_leave_the_file_and_memory_and_its_row_says_so() {
    let (clock, _) = manual_clock();
    let directory = tempfile::tempdir().expect("a directory for the test");
    in_time(async {
        let store = open(directory.path(), &clock);
        put(&store, "gone", settings(5)).await;
        let code = claimed(&store, "gone", "ann").await.expect("a claim");
        let other = claimed(&store, "gone", "bob").await.expect("a claim");
        assert_eq!(redeemed(&store, "gone", &code).await, Ok("new"));
        put(&store, "living", settings(5)).await;
        claimed(&store, "living", "ann").await.expect("a claim");
        store.publish_heads().await.expect("heads are published");
        store.delete_coupon(&named("gone")).await.expect("an answer").expect("it is deleted");
        clock.pass_ms(30 * DAY_MS);
        assert_eq!(purged(&store, after_days(30)).await, (0, 0), "thirty days, and not a moment more");
        clock.pass_ms(1);
        assert_eq!(Retention::default().claims, None, "for ever by default");
        assert_eq!(purged(&store, PurgeRequest::new(Retention::FOREVER)).await, (0, 0));
        let counted = PurgeRequest { mode: PurgeMode::Count, ..after_days(30) };
        assert_eq!((purged(&store, counted).await, claims_in(directory.path())), ((2, 1), 4));
        assert!(
            matches!(claimed(&store, "gone", "ann").await, Ok(again) if again == code),
            "a dry run removes nothing"
        );
        assert_eq!((purged(&store, after_days(30)).await, claims_in(directory.path())), ((2, 1), 1));
        assert_eq!(purged(&store, after_days(30)).await, (0, 0));
        store.publish_heads().await.expect("heads are published");
        let ends = async |store: &Embedded| {
            for user in ["ann", "carl"] {
                assert_eq!(claimed(store, "gone", user).await, Err(Rejection::Deleted), "{user}");
                let found = store.claim_of(&named("gone"), user).await.expect("an answer");
                assert!(matches!(found, Err(refused) if matches!(refused.rejection, Rejection::Purged(_))));
            }
            for code in [&code, &other] {
                assert_eq!(redeemed(store, "gone", code).await, Err(Rejection::Deleted));
            }
            let page = store.claims(&named("gone"), None, 10).await.expect("an answer");
            assert!(matches!(page, Err(refused) if matches!(refused.rejection, Rejection::Purged(_))));
            let view = store.coupon(&named("gone")).await.expect("an answer").expect("a coupon");
            assert_eq!((view.issued, view.state, view.settings), (2, CouponState::Deleted, settings(5)));
            assert!(view.purged_at.is_some(), "it says so");
            let again = store.put_coupon(&named("gone"), settings(9)).await.expect("an answer");
            assert!(again.is_err(), "a name is never used again");
            let receipt = store.claim_receipt(&named("gone"), "ann").await.expect("an answer");
            assert!(matches!(receipt, Err(refused) if matches!(refused.rejection, Rejection::Purged(_))));
            assert!(claimed(store, "living", "ann").await.is_ok(), "a coupon that lives keeps its claims");
        };
        ends(&store).await;
        assert_eq!(breaches(directory.path()), [""; 0]);
        store.close();
        drop(store);
        let store = open(directory.path(), &clock);
        ends(&store).await;
        assert_eq!(purged(&store, after_days(30)).await, (0, 0));
        store.close();
        assert_eq!(breaches(directory.path()), [""; 0]);
    })
    .await;
}

#[tokio::test]
async fn a_coupon_is_over_once_nothing_of_it_can_be_claimed_or_redeemed() {
    let (clock, _) = manual_clock();
    let directory = tempfile::tempdir().expect("a directory for the test");
    in_time(async {
        let store = open(directory.path(), &clock);
        let (one, two) = (in_days(&clock, 1), in_days(&clock, 2));
        put(&store, "redeemable", CouponSettings { expires_at: one, ..settings(5) }).await;
        put(&store, "claimable", CouponSettings { redeem_until: one, ..settings(5) }).await;
        put(&store, "expired", CouponSettings { expires_at: one, redeem_until: two, ..settings(5) }).await;
        put(&store, "deleted", CouponSettings { redeem_until: two, ..settings(5) }).await;
        put(&store, "empty", CouponSettings { expires_at: one, redeem_until: one, ..settings(5) }).await;
        for coupon in ["redeemable", "claimable", "expired", "deleted"] {
            claimed(&store, coupon, "ann").await.expect("a claim");
        }
        store.delete_coupon(&named("deleted")).await.expect("an answer").expect("it is deleted");
        clock.pass_ms(12 * DAY_MS);
        assert_eq!(purged(&store, after_days(10)).await, (0, 0));
        clock.pass_ms(1);
        assert_eq!(purged(&store, after_days(10)).await, (2, 2));
        assert!(matches!(claimed(&store, "expired", "ann").await, Err(Rejection::Expired(_))));
        assert_eq!(claimed(&store, "deleted", "ann").await, Err(Rejection::Deleted));
        clock.pass_ms(300 * DAY_MS);
        assert_eq!(purged(&store, after_days(10)).await, (0, 0));
        assert_eq!(rows(directory.path(), "SELECT count(*) FROM coupon WHERE purged_at IS NOT NULL"), 2);
        let longer = CouponSettings { expires_at: in_days(&clock, 9), redeem_until: in_days(&clock, 9), ..settings(5) };
        let refused = store.put_coupon(&named("expired"), longer.clone()).await.expect("an answer");
        assert!(matches!(refused, Err(refused) if refused.rejection == Rejection::Deleted), "it never opens again");
        put(&store, "empty", longer).await;
        claimed(&store, "empty", "ann").await.expect("a coupon without claims was not purged");
        store.close();
    })
    .await;
}

/// Waits until the file has fewer claims than this.
async fn fewer_claims_than(count: i64, directory: &Path) {
    while count <= claims_in(directory) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_purge_of_claims_that_is_cut_short_goes_on_and_verify_accepts_what_is_left() {
    const CLAIMS: i64 = 3_000;
    let (clock, _) = manual_clock();
    let directory = tempfile::tempdir().expect("a directory for the test");
    let store = open(directory.path(), &clock);
    put(&store, "sale", settings(5_000)).await;
    store.close();
    drop(store);
    // Rows as the store writes them, faster.
    let mut file = rusqlite::Connection::open(directory.path().join(sqlite::DATABASE_FILE)).expect("the file opens");
    let rows = file.transaction().expect("it begins");
    for serial in 1..=CLAIMS {
        let claim = "INSERT INTO claim (id, user, issued_at) VALUES (?1, ?2, ?3)";
        rows.execute(claim, (1_i64 << 32 | serial, format!("user-{serial}"), clock.now().as_us())).expect("a claim");
    }
    rows.commit().expect("it is stored");
    drop(file);
    let store = open(directory.path(), &clock);
    store.delete_coupon(&named("sale")).await.expect("an answer").expect("it is deleted");
    clock.pass_ms(2 * DAY_MS);
    in_time(async {
        tokio::select! {
            biased;
            _ = store.purge(after_days(1)) => panic!("the purge has ended"),
            () = fewer_claims_than(CLAIMS, directory.path()) => {}
        }
    })
    .await;
    // What the purge gave the writer last is done, or skipped.
    put(&store, "next", settings(5)).await;
    let left = claims_in(directory.path());
    assert!((1..CLAIMS).contains(&left), "{left} claims are left");
    assert_eq!(claimed(&store, "sale", "user-3000").await, Err(Rejection::Deleted), "none of them is known");
    store.close();
    drop(store);
    assert_eq!(breaches(directory.path()), [""; 0]);
    let store = open(directory.path(), &clock);
    assert_eq!(claimed(&store, "sale", "user-3000").await, Err(Rejection::Deleted));
    // Also by a purge that keeps claims for ever: what one has begun, the next one ends.
    assert_eq!(purged(&store, PurgeRequest::new(Retention::FOREVER)).await, (left.cast_unsigned(), 1));
    let view = store.coupon(&named("sale")).await.expect("an answer").expect("a coupon");
    assert_eq!((view.issued, claims_in(directory.path())), (3_000, 0));
    store.close();
    assert_eq!(breaches(directory.path()), [""; 0]);
}

#[tokio::test]
async fn verify_accepts_missing_claims_of_a_marked_coupon_alone() {
    let (clock, _) = manual_clock();
    let directory = tempfile::tempdir().expect("a directory for the test");
    let store = open(directory.path(), &clock);
    put(&store, "sale", settings(5)).await;
    for user in ["ann", "bob", "carl"] {
        claimed(&store, "sale", user).await.expect("a claim");
    }
    store.publish_heads().await.expect("heads are published");
    store.close();
    drop(store);
    let after = |damage: &str| {
        let file = rusqlite::Connection::open(directory.path().join(sqlite::DATABASE_FILE)).expect("the file opens");
        assert_eq!(file.execute(damage, []).expect("it can be damaged"), 1);
        drop(file);
        breaches(directory.path()).len()
    };
    assert!(0 < after("DELETE FROM claim WHERE id & 4294967295 = 1"), "the first claim is missing");
    assert_eq!(after("UPDATE coupon SET purged_at = 5, purged_issued = 3"), 0, "a purge removed it");
    assert!(0 < after("UPDATE coupon SET purged_issued = 4"), "the last one is missing");
    assert!(0 < after("UPDATE coupon SET purged_issued = 6"), "more than its limit");
    assert_eq!(after("UPDATE coupon SET purged_issued = 3"), 0);
    assert!(0 < after("UPDATE coupon SET purged_at = NULL"), "no purge removed it");
    let refused = sqlite::open(directory.path(), Arc::clone(&clock) as _);
    assert!(refused.is_err(), "a service does not start with it");
}

#[tokio::test]
async fn a_purged_coupon_is_exported_and_imported_as_one() {
    let (clock, _) = manual_clock();
    let (from, to) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    in_time(async {
        let store = open(from.path(), &clock);
        put(&store, "sale", settings(5)).await;
        let code = claimed(&store, "sale", "ann").await.expect("a claim");
        store.publish_heads().await.expect("heads are published");
        store.delete_coupon(&named("sale")).await.expect("an answer").expect("it is deleted");
        clock.pass_ms(2 * DAY_MS);
        assert_eq!(purged(&store, after_days(1)).await, (1, 1));
        let before = store.coupon(&named("sale")).await.expect("an answer").expect("a coupon");
        store.close();
        drop(store);
        let archive = sqlite::Archive::open(from.path()).expect("it can be read");
        let mut importer = sqlite::Importer::open(to.path(), clock.now()).expect("it opens");
        for (coupon, claims) in archive.coupons().expect("it can be read") {
            assert_eq!(claims, 0);
            importer.take(Incoming::Coupon(Box::new(coupon))).expect("it is taken");
        }
        let heads = archive.for_each_head::<Fault>(|head| {
            importer.take(Incoming::Head(Box::new(head))).expect("it is taken");
            Ok(())
        });
        heads.expect("it can be read");
        importer.check().expect("nothing is missing");
        importer.finish().expect("it is stored");
        let store = open(to.path(), &clock);
        assert_eq!(store.coupon(&named("sale")).await.expect("an answer").expect("a coupon"), before);
        assert_eq!(redeemed(&store, "sale", &code).await, Err(Rejection::Deleted));
        store.publish_heads().await.expect("heads are published");
        store.close();
        assert_eq!(breaches(to.path()), [""; 0]);
    })
    .await;
}
