//! Journals that fail: fails closed, tells nothing that may be lost, and goes on with what is durable.

use crate::in_time;
use crate::scripted::*;
use firstcome_store::core::coupon::Serial;
use firstcome_store::core::id::CouponName;
use firstcome_store::edge::ManualClock;
use firstcome_store::embedded::Backing;
use firstcome_store::embedded::journal::{CouponId, Outcome, Rows};
use firstcome_store::{Claimed, CouponStore, Embedded, Fault, FaultKind, StoreError};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One coupon for four: ann and bob hold durable claims; the commit of cid's and dan's gets the verdict, and eve waits
/// behind it. Gives the answers of cid, dan and eve.
async fn fail_third_commit(store: &Embedded, script: &Script, verdict: Verdict) -> (Claimed, [String; 3]) {
    let coupon = name("four");
    script.commit(store.put_coupon(&coupon, limited(4))).await;
    let ann = script.commit(store.claim(&coupon, by("ann"))).await.into_inner();
    let bob = Asking::waits(store.claim(&coupon, by("bob")));
    assert_eq!(script.asked(), JournalRequest::Commit(1));
    let cid = Asking::waits(store.claim(&coupon, by("cid")));
    let dan = Asking::waits(store.claim(&coupon, by("dan")));
    script.say(Verdict::Commit);
    assert_eq!(words(bob.told().await), "new 2");
    assert_eq!(script.asked(), JournalRequest::Commit(2));
    let eve = Asking::waits(store.claim(&coupon, by("eve")));
    script.say(verdict);
    (ann, [words(cid.told().await), words(dan.told().await), words(eve.told().await)])
}

/// Nothing is written any more, reads and refusals that rest on durable claims go on, and nothing else is told.
async fn assert_closed(store: &Embedded, script: &Script, ann: &Claimed, error: &str) {
    let coupon = name("four");
    assert_eq!(words(at_once(store.claim(&coupon, by("fay")))), error, "not sold_out: two of the four may be lost");
    assert_eq!(words(at_once(store.claim(&coupon, by("cid")))), error, "not already_issued: it may be lost");
    assert_eq!(failed(at_once(store.redeem(&coupon, of(ann)))), error);
    assert_eq!(failed(at_once(store.put_coupon(&coupon, limited(9)))), error);
    assert_eq!(failed(at_once(store.put_coupon(&name("new"), limited(9)))), error);
    assert_eq!(failed(at_once(store.delete_coupon(&coupon))), error);
    assert_eq!(words(at_once(store.claim(&coupon, by("ann")))), "already_issued");
    assert_eq!(words(at_once(store.claim(&name("none"), by("ann")))), "unknown_coupon");
    assert_eq!(seen(store, &coupon).await, "open 2/4");
    assert_eq!(claim_of(store, &coupon, "ann").await, Some(1));
    assert_eq!(claim_of(store, &coupon, "cid").await, None);
    assert_eq!(script.asked_already(), None, "the journal is not called again");
    store.close();
    assert_eq!(script.asked_already(), None, "not even to put things in order");
}

async fn claim_of(store: &Embedded, coupon: &CouponName, user: &str) -> Option<u32> {
    let record = store.claim_of(coupon, user).await.expect("reads go on").expect("it exists");
    record.map(|record| record.claimed.issued.serial.get())
}

#[tokio::test]
async fn after_a_commit_that_wrote_nothing_the_batch_and_all_later_writes_are_unavailable() {
    in_time(async {
        let (store, script) = threaded();
        let (ann, told) = fail_third_commit(&store, &script, Verdict::Fail(Outcome::Nothing)).await;
        assert_eq!(told, ["unavailable: full", "unavailable: full", "unavailable: full"]);
        assert_eq!(store.fault().map(|fault| fault.kind), Some(FaultKind::Full));
        assert_closed(&store, &script, &ann, "unavailable: full").await;
    })
    .await;
}

#[tokio::test]
async fn after_a_commit_of_unknown_outcome_its_batch_is_told_so_once_and_later_writes_are_unavailable() {
    in_time(async {
        let (store, script) = threaded();
        let (ann, told) = fail_third_commit(&store, &script, Verdict::Fail(Outcome::Unknown)).await;
        assert_eq!(told, ["unknown", "unknown", "unavailable: full"], "eve's claim was never tried");
        assert_eq!(store.fault().map(|fault| fault.kind), Some(FaultKind::Full));
        assert_closed(&store, &script, &ann, "unavailable: full").await;
    })
    .await;
}

#[tokio::test]
async fn a_writer_that_panics_leaves_its_batch_unknown_and_stops_the_store() {
    in_time(async {
        let (store, script) = threaded();
        let (ann, told) = fail_third_commit(&store, &script, Verdict::Panic).await;
        assert_eq!(told[..2], ["unknown", "unknown"]);
        assert!(["unknown", "unavailable: stopped"].contains(&told[2].as_str()), "eve waited: {}", told[2]);
        assert_eq!(store.fault().map(|fault| fault.kind), Some(FaultKind::Stopped));
        assert_closed(&store, &script, &ann, "unavailable: stopped").await;
    })
    .await;
}

#[tokio::test]
async fn settings_whose_commit_fails_are_not_in_force() {
    in_time(async {
        for (outcome, wanted) in [(Outcome::Nothing, "unavailable: full"), (Outcome::Unknown, "unknown")] {
            let (store, script) = threaded();
            let coupon = name("kept");
            script.commit(store.put_coupon(&coupon, limited(1))).await;
            script.commit(store.claim(&coupon, by("ann"))).await;
            script.say(Verdict::Fail(outcome));
            assert_eq!(failed(store.put_coupon(&coupon, limited(2)).await), wanted);
            assert_eq!(seen(&store, &coupon).await, "sold_out 1/1");
            assert_eq!(words(at_once(store.claim(&coupon, by("bob")))), "sold_out", "as durable as before");
        }
    })
    .await;
}

#[tokio::test]
async fn a_redemption_whose_commit_fails_is_not_seen() {
    in_time(async {
        let (store, script) = threaded();
        let coupon = name("redeem");
        script.commit(store.put_coupon(&coupon, limited(2))).await;
        let ann = script.commit(store.claim(&coupon, by("ann"))).await.into_inner();
        script.say(Verdict::Fail(Outcome::Nothing));
        assert_eq!(failed(store.redeem(&coupon, of(&ann)).await), "unavailable: full");
        let record = store.claim_of(&coupon, "ann").await.expect("reads go on").expect("it exists");
        assert_eq!(record.and_then(|record| record.redeemed), None, "nothing was written");
    })
    .await;
}

/// Keeps nothing, and cannot be read.
struct Unreadable;

impl Rows for Unreadable {
    fn attributes(
        &self,
        _: CouponId,
        _: Serial,
        _: Serial,
    ) -> Result<BTreeMap<Serial, firstcome_store::core::coupon::Attributes>, StoreError> {
        let fault = Fault { kind: FaultKind::Io, detail: "the test said so".to_owned() };
        Err(StoreError::Faulted(Arc::new(fault)))
    }
}

#[tokio::test]
async fn rows_that_cannot_be_read_fail_the_read_and_nothing_else() {
    in_time(async {
        let backing = Backing { rows: Arc::new(Unreadable), ..Backing::memory() };
        let clock = Arc::new(ManualClock::new(at(10)));
        let store = Embedded::start(backing, clock).expect("threads can be started");
        let coupon = name("unreadable");
        store.put_coupon(&coupon, limited(2)).await.expect("writes go on").expect("it is new");
        assert_eq!(words(store.claim(&coupon, by("ann")).await), "new 1");
        assert_eq!(failed(store.claims(&coupon, None, 10).await), "unavailable: io");
        assert_eq!(failed(store.claim_of(&coupon, "ann").await), "unavailable: io");
        assert_eq!(words(store.claim(&coupon, by("bob")).await), "new 2");
        assert_eq!(words(store.claim(&coupon, by("cid")).await), "sold_out");
        assert!(store.fault().is_none(), "the writer is well");
    })
    .await;
}

#[tokio::test]
async fn a_store_that_is_closed_finishes_what_waits_and_takes_no_more() {
    in_time(async {
        let (store, script) = threaded();
        let coupon = name("closing");
        script.commit(store.put_coupon(&coupon, limited(9))).await;
        let first = Asking::waits(store.claim(&coupon, by("ann")));
        assert_eq!(script.asked(), JournalRequest::Commit(1));
        let second = Asking::waits(store.claim(&coupon, by("bob")));
        script.say(Verdict::CommitAll);
        let closing = store.clone();
        tokio::task::spawn_blocking(move || closing.close()).await.expect("closing ends");
        assert_eq!(words(first.told().await), "new 1");
        assert_eq!(words(second.told().await), "new 2");
        assert_eq!((script.asked(), script.asked()), (JournalRequest::Commit(1), JournalRequest::Close));
        assert_eq!(words(at_once(store.claim(&coupon, by("cid")))), "unavailable: stopped");
        assert_eq!(words(at_once(store.claim(&coupon, by("ann")))), "already_issued");
        assert_eq!(seen(&store, &coupon).await, "open 2/9");
        store.close();
        assert_eq!(script.asked_already(), None, "closed once");
    })
    .await;
}
