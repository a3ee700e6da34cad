//! Batches whose make-up the test decides: the writer runs only when it is stepped.

use crate::in_time;
use crate::scripted::*;
use firstcome_store::CouponStore;
use firstcome_store::core::coupon::Effect;
use firstcome_store::embedded::journal::Outcome;

#[tokio::test]
async fn commands_of_callers_that_went_away_before_their_turn_are_not_done() {
    in_time(async {
        let (store, mut stepper, script) = stepped();
        script.say(Verdict::CommitAll);
        let coupon = name("left");
        let put = Asking::waits(store.put_coupon(&coupon, limited(2)));
        assert_eq!(stepper.step(10), 1);
        put.told().await.expect("the store answers").expect("it is new");
        let ann = Asking::waits(store.claim(&coupon, by("ann")));
        let bob = Asking::waits(store.claim(&coupon, by("bob")));
        let cid = Asking::waits(store.claim(&coupon, by("cid")));
        drop(ann);
        assert_eq!(stepper.step(10), 3);
        assert_eq!(words(bob.told().await), "new 1", "nobody stands before bob");
        assert_eq!(words(cid.told().await), "new 2", "and ann's place goes to somebody who still waits");
        assert_eq!(store.claim_of(&coupon, "ann").await.expect("reads go on"), Ok(None));
    })
    .await;
}

#[tokio::test]
async fn a_command_whose_caller_went_away_after_its_turn_stands() {
    in_time(async {
        let (store, mut stepper, script) = stepped();
        script.say(Verdict::CommitAll);
        let coupon = name("stands");
        let put = Asking::waits(store.put_coupon(&coupon, limited(2)));
        stepper.step(10);
        put.told().await.expect("the store answers").expect("it is new");
        let ann = Asking::waits(store.claim(&coupon, keyed("ann", 1)));
        stepper.step(10);
        drop(ann);
        assert_eq!(words(at_once(store.claim(&coupon, keyed("ann", 1)))), "again 1", "a repeat finds it");
    })
    .await;
}

#[tokio::test]
async fn commands_of_one_batch_are_judged_in_the_order_of_arrival() {
    in_time(async {
        let (store, mut stepper, script) = stepped();
        script.say(Verdict::CommitAll);
        let coupon = name("mixed");
        let put = Asking::waits(store.put_coupon(&coupon, limited(1)));
        stepper.step(10);
        put.told().await.expect("the store answers").expect("it is new");
        let ann = Asking::waits(store.claim(&coupon, by("ann")));
        let bob_early = Asking::waits(store.claim(&coupon, by("bob")));
        let raise = Asking::waits(store.put_coupon(&coupon, limited(2)));
        let bob_late = Asking::waits(store.claim(&coupon, by("bob")));
        let delete = Asking::waits(store.delete_coupon(&coupon));
        let cid = Asking::waits(store.claim(&coupon, by("cid")));
        let late_raise = Asking::waits(store.put_coupon(&coupon, limited(9)));
        assert_eq!(stepper.step(10), 7);
        assert_eq!(words(ann.told().await), "new 1");
        assert_eq!(words(bob_early.told().await), "sold_out");
        raise.told().await.expect("the store answers").expect("a raise is allowed");
        assert_eq!(words(bob_late.told().await), "new 2");
        delete.told().await.expect("the store answers").expect("it exists");
        assert_eq!(words(cid.told().await), "deleted");
        let refused = late_raise.told().await.expect("the store answers").expect_err("it is deleted");
        assert_eq!(refused.rejection.code(), "deleted");
    })
    .await;
}

#[tokio::test]
async fn two_that_make_the_same_coupon_in_one_batch_make_one() {
    in_time(async {
        let (store, mut stepper, script) = stepped();
        script.say(Verdict::CommitAll);
        let coupon = name("same");
        let first = Asking::waits(store.put_coupon(&coupon, limited(1)));
        let second = Asking::waits(store.put_coupon(&coupon, limited(2)));
        stepper.step(10);
        let told = (first.told().await, second.told().await);
        let put = (told.0.expect("the store answers"), told.1.expect("the store answers"));
        assert_eq!(put, (Ok(firstcome_store::Put::Created), Ok(firstcome_store::Put::Replaced)));
        assert_eq!((store.coupon_count(), seen(&store, &coupon).await.as_str()), (1, "open 0/2"));
    })
    .await;
}

#[tokio::test]
async fn a_refusal_of_settings_is_told_only_if_what_it_rests_on_is_durable() {
    in_time(async {
        let (store, mut stepper, script) = stepped();
        let coupon = name("below");
        script.say(Verdict::Commit);
        let put = Asking::waits(store.put_coupon(&coupon, limited(3)));
        stepper.step(10);
        put.told().await.expect("the store answers").expect("it is new");
        // One batch: two claims whose commit fails, and settings that these claims would forbid.
        script.say(Verdict::Fail(Outcome::Nothing));
        let ann = Asking::waits(store.claim(&coupon, by("ann")));
        let bob = Asking::waits(store.claim(&coupon, by("bob")));
        let lower = Asking::waits(store.put_coupon(&coupon, limited(1)));
        stepper.step(10);
        assert_eq!(words(ann.told().await), "unavailable: full");
        assert_eq!(words(bob.told().await), "unavailable: full");
        assert_eq!(failed(lower.told().await), "unavailable: full", "no claim exists that could forbid it");
    })
    .await;
}

#[tokio::test]
async fn after_a_failed_commit_nothing_more_of_the_batch_is_written() {
    in_time(async {
        let (store, mut stepper, script) = stepped();
        let (coupon, new) = (name("rest"), name("new"));
        script.say(Verdict::Commit);
        let put = Asking::waits(store.put_coupon(&coupon, limited(3)));
        stepper.step(10);
        put.told().await.expect("the store answers").expect("it is new");
        script.say(Verdict::Commit);
        let ann = Asking::waits(store.claim(&coupon, by("ann")));
        stepper.step(10);
        let ann = ann.told().await.expect("the store answers").expect("there are three").into_inner();
        assert_eq!((script.asked(), script.asked()), (JournalRequest::Commit(1), JournalRequest::Commit(1)));

        script.say(Verdict::Fail(Outcome::Unknown));
        let bob = Asking::waits(store.claim(&coupon, by("bob")));
        let redeem = Asking::waits(store.redeem(&coupon, of(&ann)));
        let raise = Asking::waits(store.put_coupon(&coupon, limited(4)));
        let make = Asking::waits(store.put_coupon(&new, limited(1)));
        let cid = Asking::waits(store.claim(&coupon, by("cid")));
        let redeem_later = Asking::waits(store.redeem(&coupon, of(&ann)));
        let delete = Asking::waits(store.delete_coupon(&coupon));
        assert_eq!(stepper.step(10), 7);
        assert_eq!(words(bob.told().await), "unknown");
        assert_eq!(failed(redeem.told().await), "unknown");
        assert_eq!(failed(raise.told().await), "unavailable: full");
        assert_eq!(failed(make.told().await), "unavailable: full");
        assert_eq!(words(cid.told().await), "unavailable: full");
        assert_eq!(failed(redeem_later.told().await), "unavailable: full");
        assert_eq!(failed(delete.told().await), "unavailable: full");
        assert_eq!(
            (script.asked(), script.asked_already()),
            (JournalRequest::Commit(2), None),
            "one commit, and no more"
        );
        assert_eq!(seen(&store, &coupon).await, "open 1/3");
        assert_eq!(store.coupon_count(), 1);
    })
    .await;
}

#[tokio::test]
async fn after_a_fault_that_passed_the_store_goes_on_as_if_its_batch_had_never_been_asked() {
    in_time(async {
        let (store, mut stepper, script) = stepped();
        let coupon = name("passing");
        let put = Asking::waits(store.put_coupon(&coupon, limited(3)));
        script.say(Verdict::Commit);
        stepper.step(10);
        put.told().await.expect("the store answers").expect("it is new");
        let ann = Asking::waits(store.claim(&coupon, by("ann")));
        script.say(Verdict::Commit);
        stepper.step(10);
        let ann = ann.told().await.expect("the store answers").expect("she is the first").into_inner();

        // Of this batch nothing is stored: two claims, one of them redeemed, and an older one redeemed.
        let bob = Asking::waits(store.claim(&coupon, keyed("bob", 7)));
        let cid = Asking::waits(store.claim(&coupon, by("cid")));
        let used = Asking::waits(store.redeem(&coupon, of(&ann)));
        let late = Asking::waits(store.put_coupon(&coupon, limited(9)));
        script.say(Verdict::Fail(Outcome::Passing));
        stepper.step(10);
        assert_eq!([words(bob.told().await), words(cid.told().await)], ["unavailable: full", "unavailable: full"]);
        assert_eq!(failed(used.told().await), "unavailable: full");
        assert_eq!(failed(late.told().await), "unavailable: full");
        assert_eq!(words(at_once(store.claim(&coupon, by("dan")))), "unavailable: full", "at the door");
        assert_eq!(words(at_once(store.claim(&coupon, by("ann")))), "already_issued", "that is stored");
        assert_eq!(seen(&store, &coupon).await, "open 1/3");
        assert_eq!(store.faults().open().len(), 1);

        // It is tried again, once in vain.
        script.say(Verdict::Fail(Outcome::Passing));
        stepper.step(10);
        assert!(store.fault().is_some());
        script.say(Verdict::Commit);
        stepper.step(10);
        assert!(store.fault().is_none() && store.faults().open().is_empty());
        assert_eq!(store.faults().raised(), 1, "it was one fault");

        script.say(Verdict::CommitAll);
        let cid = Asking::waits(store.claim(&coupon, by("cid")));
        let bob = Asking::waits(store.claim(&coupon, keyed("bob", 7)));
        let used = Asking::waits(store.redeem(&coupon, of(&ann)));
        stepper.step(10);
        assert_eq!([words(cid.told().await), words(bob.told().await)], ["new 2", "new 3"]);
        let used = used.told().await.expect("the store answers").expect("it was not used up");
        assert!(matches!(used, Effect::New(_)), "{used:?}");
        assert_eq!(seen(&store, &coupon).await, "sold_out 3/3");
    })
    .await;
}
