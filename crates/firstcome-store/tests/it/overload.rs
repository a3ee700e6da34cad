//! A writer that is held up: the queue is bounded, who does not fit is told at once, who waits is answered.

use crate::in_time;
use crate::scripted::*;
use firstcome_store::{CouponStore, StoreError};
use std::sync::atomic::Ordering;

#[tokio::test]
async fn a_full_queue_refuses_at_once_and_answers_all_that_waited() {
    in_time(async {
        let (store, script) = threaded();
        let coupon = name("flood");
        script.commit(store.put_coupon(&coupon, limited(100_000))).await;
        let first = Asking::waits(store.claim(&coupon, by("first")));
        assert_eq!(script.asked(), JournalRequest::Commit(1));
        let measured = store.stats().queue_limit.load(Ordering::Relaxed);
        assert!((2_048..=65_536).contains(&measured), "{measured}");
        // As if it had been measured. The writer measures again only once it is let go.
        let limit = 3_000;
        store.stats().queue_limit.store(limit, Ordering::Relaxed);
        let users: Vec<String> = (0..limit).map(|number| format!("user{number}")).collect();
        let mut waiting: Vec<_> = users.iter().map(|user| Asking::waits(store.claim(&coupon, by(user)))).collect();

        for user in ["late", "later"] {
            let answer = at_once(store.claim(&coupon, by(user)));
            let Err(StoreError::Busy { retry_after, .. }) = answer else { panic!("{}", words(answer)) };
            assert!(!retry_after.is_zero(), "says when to come back");
        }
        assert_eq!(failed(at_once(store.put_coupon(&coupon, limited(1)))), "overloaded");
        assert_eq!(failed(at_once(store.delete_coupon(&coupon))), "overloaded");
        assert_eq!(store.stats().overloaded.load(Ordering::Relaxed), 4);
        assert_eq!(seen(&store, &coupon).await, "open 0/100000", "reads go on");
        for asking in &mut waiting {
            asking.still_waits();
        }

        script.say(Verdict::CommitAll);
        assert_eq!(words(first.told().await), "new 1");
        for (number, asking) in (2..).zip(waiting) {
            assert_eq!(words(asking.told().await), format!("new {number}"), "in the order of arrival");
        }
        assert_eq!(words(store.claim(&coupon, by("late")).await), format!("new {}", limit + 2));
    })
    .await;
}

#[tokio::test]
async fn who_came_while_the_writer_was_busy_shares_one_commit() {
    in_time(async {
        let (store, script) = threaded();
        let coupon = name("batch");
        script.commit(store.put_coupon(&coupon, limited(1_000))).await;
        let first = Asking::waits(store.claim(&coupon, by("first")));
        assert_eq!(script.asked(), JournalRequest::Commit(1));
        let users: Vec<String> = (0..500).map(|number| format!("user{number}")).collect();
        let waiting: Vec<_> = users.iter().map(|user| Asking::waits(store.claim(&coupon, by(user)))).collect();
        script.say(Verdict::CommitAll);
        assert_eq!(script.asked(), JournalRequest::Commit(500), "one transaction, and so one sync, for all of them");
        assert_eq!(words(first.told().await), "new 1");
        for asking in waiting {
            asking.told().await.expect("the store answers").expect("there are enough");
        }
        assert_eq!(store.stats().commit_us.count(), 3);
        assert_eq!(store.stats().batch_changes.sum(), 502);
    })
    .await;
}
