//! Durable before told: what an answer rests on is committed before anybody hears it, refusals included.

use crate::in_time;
use crate::scripted::*;
use firstcome_store::CouponStore;
use firstcome_store::core::coupon::{CouponSettings, Effect};

#[tokio::test]
async fn a_claim_is_told_only_after_its_commit_returned() {
    in_time(async {
        let (store, script) = threaded();
        let coupon = name("gate");
        let mut put = Asking::waits(store.put_coupon(&coupon, limited(5)));
        assert_eq!(script.asked(), JournalRequest::Commit(1));
        put.still_waits();
        assert_eq!(words(at_once(store.claim(&coupon, by("ann")))), "unknown_coupon", "it is not there yet");
        script.say(Verdict::Commit);
        put.told().await.expect("the store answers").expect("nothing is refused");

        let mut ann = Asking::waits(store.claim(&coupon, by("ann")));
        assert_eq!(script.asked(), JournalRequest::Commit(1));
        ann.still_waits();
        assert_eq!(seen(&store, &coupon).await, "open 0/5", "nobody sees what is not durable");
        assert_eq!(store.claim_of(&coupon, "ann").await.expect("reads go on"), Ok(None));
        ann.still_waits();
        script.say(Verdict::Commit);
        assert_eq!(words(ann.told().await), "new 1");
        assert_eq!(seen(&store, &coupon).await, "open 1/5");
    })
    .await;
}

#[tokio::test]
async fn refusals_that_rest_on_durable_claims_need_no_writer_and_others_wait_for_it() {
    in_time(async {
        let (store, script) = threaded();
        let (coupon, other) = (name("two"), name("other"));
        script.commit(store.put_coupon(&coupon, limited(2))).await;
        script.commit(store.put_coupon(&other, limited(9))).await;
        let ann = script.commit(store.claim(&coupon, keyed("ann", 1))).await.into_inner();

        // The last one is decided and not durable: if its commit fails, another caller may get it.
        let bob = Asking::waits(store.claim(&coupon, keyed("bob", 2)));
        assert_eq!(script.asked(), JournalRequest::Commit(1));
        let mut cid = Asking::waits(store.claim(&coupon, by("cid")));
        let mut bob_repeats = Asking::waits(store.claim(&coupon, keyed("bob", 2)));
        let mut bob_again = Asking::waits(store.claim(&coupon, by("bob")));
        let mut dan_reuses = Asking::waits(store.claim(&coupon, keyed("dan", 2)));
        assert_eq!(words(at_once(store.claim(&coupon, keyed("ann", 1)))), "again 1");
        let refused = at_once(store.claim(&coupon, by("ann"))).expect("the store answers").expect_err("ann holds one");
        assert_eq!((refused.rejection.code(), refused.claim), ("already_issued", Some(ann)));
        assert_eq!(seen(&store, &coupon).await, "open 1/2", "one is left, as far as anybody may know");
        cid.still_waits();
        bob_repeats.still_waits();
        bob_again.still_waits();
        dan_reuses.still_waits();
        script.say(Verdict::Commit);
        assert_eq!(words(bob.told().await), "new 2");
        assert_eq!(words(cid.told().await), "sold_out");
        assert_eq!(words(bob_repeats.told().await), "again 2");
        assert_eq!(words(bob_again.told().await), "already_issued");
        assert_eq!(words(dan_reuses.told().await), "again 2", "the digest says that it is the same request");
        assert_eq!(script.asked_already(), None, "refusals and repeats are not written");

        // Now all of it is durable: the writer may be as busy as it likes.
        let busy = Asking::waits(store.claim(&other, by("eve")));
        assert_eq!(script.asked(), JournalRequest::Commit(1));
        assert_eq!(words(at_once(store.claim(&coupon, by("cid")))), "sold_out");
        assert_eq!(words(at_once(store.claim(&coupon, by("bob")))), "already_issued");
        assert_eq!(words(at_once(store.claim(&coupon, keyed("bob", 2)))), "again 2");
        script.say(Verdict::Commit);
        assert_eq!(words(busy.told().await), "new 1");
    })
    .await;
}

#[tokio::test]
async fn refusals_by_the_clock_need_no_writer() {
    in_time(async {
        let (store, script) = threaded();
        let (coupon, other) = (name("window"), name("other"));
        let window = CouponSettings { opens_at: Some(at(100)), expires_at: Some(at(200)), ..limited(2) };
        script.commit(store.put_coupon(&coupon, window)).await;
        script.commit(store.put_coupon(&other, limited(9))).await;
        let busy = Asking::waits(store.claim(&other, by("eve")));
        assert_eq!(script.asked(), JournalRequest::Commit(1));
        assert_eq!(words(at_once(store.claim(&coupon, by("ann")))), "not_open");
        script.clock.set(at(200));
        assert_eq!(words(at_once(store.claim(&coupon, by("ann")))), "expired");
        script.say(Verdict::Commit);
        assert_eq!(words(busy.told().await), "new 1");
    })
    .await;
}

#[tokio::test]
async fn a_redemption_is_seen_only_after_its_commit_returned() {
    in_time(async {
        let (store, script) = threaded();
        let coupon = name("redeem");
        script.commit(store.put_coupon(&coupon, limited(2))).await;
        let ann = script.commit(store.claim(&coupon, by("ann"))).await.into_inner();
        let first = Asking::waits(store.redeem(&coupon, of(&ann)));
        assert_eq!(script.asked(), JournalRequest::Commit(1));
        let second = Asking::waits(store.redeem(&coupon, of(&ann)));
        let record = store.claim_of(&coupon, "ann").await.expect("reads go on").expect("it exists");
        assert_eq!(record.and_then(|record| record.redeemed), None, "seen before it was durable");
        script.say(Verdict::Commit);
        assert!(matches!(first.told().await, Ok(Ok(Effect::New(_)))));
        let refused = second.told().await.expect("the store answers").expect_err("it is used up");
        assert_eq!(refused.rejection.code(), "already_redeemed");
        let record = store.claim_of(&coupon, "ann").await.expect("reads go on").expect("it exists");
        assert!(record.is_some_and(|record| record.redeemed.is_some()), "and seen after it");
    })
    .await;
}

#[tokio::test]
async fn settings_and_deletions_are_in_force_only_after_their_commit_returned() {
    in_time(async {
        let (store, script) = threaded();
        let coupon = name("settings");
        script.commit(store.put_coupon(&coupon, limited(1))).await;
        script.commit(store.claim(&coupon, by("ann"))).await;

        let raise = Asking::waits(store.put_coupon(&coupon, limited(2)));
        assert_eq!(script.asked(), JournalRequest::Commit(1));
        assert_eq!(seen(&store, &coupon).await, "sold_out 1/1");
        assert_eq!(words(at_once(store.claim(&coupon, by("bob")))), "sold_out", "the old limit holds until then");
        script.say(Verdict::Commit);
        raise.told().await.expect("the store answers").expect("a raise is allowed");
        assert_eq!(seen(&store, &coupon).await, "open 1/2");

        let delete = Asking::waits(store.delete_coupon(&coupon));
        assert_eq!(script.asked(), JournalRequest::Commit(1));
        assert_eq!(seen(&store, &coupon).await, "open 1/2");
        let cid = Asking::waits(store.claim(&coupon, by("cid")));
        script.say(Verdict::Commit);
        delete.told().await.expect("the store answers").expect("it exists");
        assert_eq!(words(cid.told().await), "deleted");
        assert_eq!(seen(&store, &coupon).await, "deleted 1/2");
        store.delete_coupon(&coupon).await.expect("the store answers").expect("a second time has no effect");
        assert_eq!(script.asked_already(), None, "and is not written");
    })
    .await;
}
