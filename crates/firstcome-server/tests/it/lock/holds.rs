//! What is answered to those who want a lock, have it, keep it, give it back, and look at it.

use super::{DAY_MS, LONG_MS, acquire, number, on_each, release, renew, text};
use crate::service::{Ask, Service, config};
use crate::trouble::waits;
use firstcome::Locks;
use serde_json::json;

pub(crate) async fn a_free_lock_is_had_at_once_and_shown_as_held() {
    on_each(async |service| {
        let free = json!({"lock": "door", "held": false, "holder": null, "fence": null, "ttl_ms": null, "holders": 0,
            "waiters": 0});
        assert_eq!(service.lock("door").await, free);
        for wait_ms in [0, 1, LONG_MS] {
            let answer = service.send(acquire("door", "ann", wait_ms, 60_000)).await.is(200);
            assert_eq!(answer.header("cache-control"), Some("no-store"));
            let held = answer.json();
            assert_eq!((text(&held, "lock"), text(&held, "owner")), ("door", "ann"));
            // Never later than the lease, and no more than the drift of two clocks and a slow machine before it.
            let expires_at = text(&held, "expires_at");
            assert!(("2030-01-01T00:00:30Z"..="2030-01-01T00:01:00Z").contains(&expires_at), "{expires_at}");
            let shown = service.lock("door").await;
            assert_eq!((&shown["held"], &shown["holder"], &shown["waiters"]), (&json!(true), &json!("ann"), &json!(0)));
            assert_eq!(shown["fence"], held["fence"]);
            assert!((30_000..=60_000).contains(&number(&shown, "ttl_ms")), "{shown}");
            let released = service.give_back(&held).await.is(200);
            assert_eq!(released.json(), json!({"lock": "door", "fence": held["fence"]}));
            assert_eq!(service.lock("door").await, free);
        }
        // Another name is another lock, also in other letters.
        let one = service.hold("door", "ann").await;
        service.hold("Door", "bob").await;
        service.give_back(&one).await.is(200);
        assert_eq!(service.lock("Door").await["holder"], "bob");
    })
    .await;
}

pub(crate) async fn a_held_lock_is_refused_with_what_is_known_of_it() {
    on_each(async |service| {
        let held = service.hold("door", "ann").await;
        let told = service.send(acquire("door", "bob", 0, 60_000)).await.refused(409, "contended").json();
        assert_eq!((&told["holder"], &told["waiters"]), (&json!("ann"), &json!(0)));
        assert!((DAY_MS / 2..=DAY_MS).contains(&number(&told, "ttl_ms")), "{told}");
        assert!(told.get("position").is_none(), "who does not wait has no place: {told}");
        // A wait that runs out tells the same, and how far it came.
        let cid = waits(service.send(acquire("door", "cid", LONG_MS, 60_000))).await;
        let told = service.send(acquire("door", "dan", 20, 60_000)).await.refused(409, "contended").json();
        assert_eq!((&told["holder"], &told["waiters"], &told["position"]), (&json!("ann"), &json!(1), &json!(1)));
        assert!((DAY_MS / 2..=DAY_MS).contains(&number(&told, "ttl_ms")), "{told}");
        // The same holder by name is another process all the same.
        service.send(acquire("door", "ann", 0, 60_000)).await.refused(409, "contended");
        service.give_back(&held).await.is(200);
        assert_eq!(cid.await.is(200).text("owner"), "cid");
    })
    .await;
}

pub(crate) async fn a_lock_is_handed_over_by_its_release_and_fences_grow() {
    on_each(async |service| {
        let mut held = service.hold("door", "user0").await;
        let mut last = number(&held, "fence");
        for round in 1..=20 {
            let next = waits(service.send(acquire("door", &format!("user{round}"), LONG_MS, 60_000))).await;
            assert_eq!(service.lock("door").await["waiters"], 1);
            service.give_back(&held).await.is(200);
            // It is theirs before they are told.
            assert_eq!(service.lock("door").await["holder"], format!("user{round}"));
            held = next.await.is(200).json();
            assert!(last < number(&held, "fence"));
            last = number(&held, "fence");
            if round % 5 == 0 {
                service.give_back(&held).await.is(200);
                held = service.hold("door", "again").await;
                assert!(last < number(&held, "fence"));
                last = number(&held, "fence");
            }
        }
    })
    .await;
}

pub(crate) async fn a_renewal_sets_the_end_anew() {
    on_each(async |service| {
        let held = service.send(acquire("door", "ann", 0, 30_000)).await.is(200).json();
        let handle = text(&held, "handle");
        let longer = service.send(renew("door", handle, 3_600_000)).await.is(200).json();
        assert_eq!((&longer["lock"], &longer["fence"]), (&held["lock"], &held["fence"]));
        // Less a hundredth, by which two clocks may disagree.
        let expires_at = text(&longer, "expires_at");
        assert!(("2030-01-01T00:50:00Z"..="2030-01-01T00:59:24Z").contains(&expires_at), "{expires_at}");
        let ttl_ms = number(&service.lock("door").await, "ttl_ms");
        assert!((3_000_000..=3_600_000).contains(&ttl_ms), "{ttl_ms}");
        // Never to less: a copy of an earlier renewal may arrive after a later one.
        let shorter = service.send(renew("door", handle, 60_000)).await.is(200).json();
        assert!("2030-01-01T00:50:00Z" <= text(&shorter, "expires_at"), "{shorter}");
        let ttl_ms = number(&service.lock("door").await, "ttl_ms");
        assert!((3_000_000..=3_600_000).contains(&ttl_ms), "{ttl_ms}");
        service.send(renew("other", handle, 60_000)).await.refused(410, "lock_lost");
        service.send(release("door", handle)).await.is(200);
        service.send(renew("door", handle, 60_000)).await.refused(410, "lock_lost");
        assert_eq!(service.lock("door").await["held"], false);
    })
    .await;
}

pub(crate) async fn the_end_of_a_lease_hands_over_to_the_next() {
    on_each(async |service| {
        let short = service.send(acquire("door", "ann", 0, 100)).await.is(200).json();
        let long = service.send(acquire("door", "bob", LONG_MS, 4_000)).await.is(200).json();
        assert!(number(&short, "fence") < number(&long, "fence"));
        assert!(2_000 < number(&service.lock("door").await, "ttl_ms"), "the whole lease, not that of the grant");
        let handle = text(&short, "handle");
        service.send(renew("door", handle, 60_000)).await.refused(410, "lock_lost");
        service.send(release("door", handle)).await.refused(410, "lock_lost");
        assert_eq!(service.lock("door").await["holder"], "bob");
        // No process renews it but its holder.
        service.until_free("door").await;
        service.give_back(&long).await.refused(410, "lock_lost");
    })
    .await;
}

pub(crate) async fn a_lock_is_given_back_once() {
    on_each(async |service| {
        let ann = service.hold("door", "ann").await;
        service.give_back(&ann).await.is(200);
        service.give_back(&ann).await.refused(410, "lock_lost");
        // Also not when another process has it.
        let bob = service.hold("door", "bob").await;
        service.give_back(&ann).await.refused(410, "lock_lost");
        service.send(renew("door", text(&ann, "handle"), 60_000)).await.refused(410, "lock_lost");
        assert_eq!(service.lock("door").await["fence"], bob["fence"]);
        service.give_back(&bob).await.is(200);
    })
    .await;
}

pub(crate) async fn a_handle_outlives_the_process_that_made_it() {
    let locks = Locks::memory();
    let before = Service::with_locks(locks.clone(), config());
    let held = before.hold("door", "ann").await;
    drop(before);
    // The same locks and the same secret.
    let after = Service::with_locks(locks, config());
    after.send(renew("door", text(&held, "handle"), 60_000)).await.is(200);
    assert_eq!(after.lock("door").await["fence"], held["fence"]);
    after.give_back(&held).await.is(200);
}

pub(crate) async fn a_process_that_gives_up_waiting_leaves_nothing_behind() {
    on_each(async |service| {
        let mut held = service.hold("door", "ann").await;
        for key in [None, Some("k1")] {
            let waiting = waits(service.send(wish(key))).await;
            service.until_waiting("door", 1).await;
            drop(waiting);
            service.until_waiting("door", 0).await;
        }
        // At the moment of the grant: given, and no process there to be told.
        for key in [None, Some("k2")] {
            let waiting = waits(service.send(wish(key))).await;
            service.until_waiting("door", 1).await;
            service.give_back(&held).await.is(200);
            drop(waiting);
            service.until_free("door").await;
            held = service.hold("door", "ann").await;
        }
    })
    .await;
}

fn wish(key: Option<&str>) -> Ask {
    let ask = acquire("door", "bob", LONG_MS, DAY_MS);
    match key {
        Some(key) => ask.once(key),
        None => ask,
    }
}

#[tokio::test]
async fn who_waits_in_vain_leaves_the_holder_its_lock() {
    on_each(async |service| {
        let held = service.hold("door", "ann").await;
        // Longer than it takes until this service says that it lives, and is told what it holds.
        service.send(acquire("door", "bob", 1_500, DAY_MS)).await.is(409);
        service.send(renew("door", text(&held, "handle"), DAY_MS)).await.is(200);
        service.give_back(&held).await.is(200);
    })
    .await;
}
