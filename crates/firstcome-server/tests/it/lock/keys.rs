//! The `Idempotency-Key` of an acquire: one wait, one hold, the same answer, for as long as it lasts.

use super::{DAY_MS, LONG_MS, acquire, acquire_bytes, key, number, on_each, release, renew, text};
use crate::running::{Running, patient};
use crate::service::{ADMIN, SERVICE_TOO, Service, config};
use crate::trouble::waits;
use firstcome::Locks;
use firstcome_server::{Config, LockLimits};
use serde_json::json;

pub(crate) async fn a_repeated_acquire_leads_to_the_same_hold() {
    on_each(async |service| {
        for wait_ms in [0, LONG_MS - 2] {
            let ann = || acquire("door", "ann", wait_ms, 60_000).once("k1");
            let first = service.send(ann()).await.is(200);
            for _ in 0..3 {
                assert_eq!(service.send(ann()).await.is(200).bytes, first.bytes);
            }
            let spelt = format!("\n{{\"lease_ms\": 60000, \"wait_ms\":{wait_ms}, \"owner\":\"\\u0061nn\"}}");
            assert_eq!(service.send(ann().raw(spelt)).await.is(200).bytes, first.bytes);
            for other in [
                acquire("door", "bob", wait_ms, 60_000),
                acquire("door", "ann", wait_ms ^ 1, 60_000),
                acquire("door", "ann", wait_ms, 60_001),
            ] {
                service.send(other.once("k1")).await.refused(422, "idempotency_key_reused");
            }
            // Without the key, or with another one, it is another wish.
            service.send(acquire("door", "ann", 0, 60_000)).await.refused(409, "contended");
            service.send(acquire("door", "ann", 0, 60_000).once("k2")).await.refused(409, "contended");
            service.give_back(&first.json()).await.is(200);
        }
    })
    .await;
}

pub(crate) async fn an_acquire_key_belongs_to_its_credential_and_its_lock() {
    let service = Service::memory();
    let first = service.send(acquire("door", "ann", 0, 60_000).once("k1")).await.is(200);
    for key in [SERVICE_TOO, ADMIN] {
        service.send(acquire("door", "ann", 0, 60_000).once("k1").by(key)).await.refused(409, "contended");
    }
    let gate = service.send(acquire("gate", "ann", 0, 60_000).once("k1")).await.is(200);
    assert_ne!(gate.json()["handle"], first.json()["handle"]);
    assert_eq!(service.send(acquire("door", "ann", 0, 60_000).once("k1")).await.is(200).bytes, first.bytes);
    for wrong in ["", "a b", &"k".repeat(129)] {
        service.send(acquire("shed", "ann", 0, 100).once(wrong)).await.refused(400, "invalid_idempotency_key");
    }
    assert_eq!(service.lock("shed").await["held"], false);
}

pub(crate) async fn a_key_is_free_again_when_its_hold_is_over() {
    on_each(async |service| {
        let ann = |lease_ms| acquire("door", "ann", 0, lease_ms).once("k1");
        let first = service.send(ann(60_000)).await.is(200).json();
        service.give_back(&first).await.is(200);
        let second = service.send(ann(60_000)).await.is(200).json();
        assert!(number(&first, "fence") < number(&second, "fence"));
        service.send(release("door", text(&first, "handle"))).await.refused(410, "lock_lost");
        // What was renewed is answered with its new end.
        service.send(renew("door", text(&second, "handle"), 3_600_000)).await.is(200);
        // And not forgotten sooner for a shorter renewal, which ends nothing sooner.
        let renewed = service.send(renew("door", text(&second, "handle"), 100)).await.is(200).json();
        service.send(acquire("gate", "ann", 0, 100)).await.is(200);
        service.until_free("gate").await;
        let again = service.send(ann(60_000)).await.is(200).json();
        assert_eq!((&again["handle"], &again["expires_at"]), (&second["handle"], &renewed["expires_at"]));
        service.give_back(&second).await.is(200);
        // Another body too: nothing is left of the first.
        let third = service.send(ann(100)).await.is(200).json();
        assert!(number(&second, "fence") < number(&third, "fence"));
        service.until_free("door").await;
        let last = service.send(acquire("door", "bob", LONG_MS, 60_000).once("k1")).await.is(200).json();
        assert_eq!(text(&last, "owner"), "bob");
        service.give_back(&last).await.is(200);
    })
    .await;
}

pub(crate) async fn a_refused_acquire_is_judged_afresh() {
    on_each(async |service| {
        let held = service.hold("door", "ann").await;
        for (wait_ms, lease_ms) in [(0, 60_000), (20, 60_000), (0, 70_000)] {
            service.send(acquire("door", "bob", wait_ms, lease_ms).once("k1")).await.refused(409, "contended");
        }
        service.give_back(&held).await.is(200);
        let held = service.send(acquire("door", "bob", 0, 60_000).once("k1")).await.is(200).json();
        service.send(acquire("door", "bob", 0, 70_000).once("k1")).await.refused(422, "idempotency_key_reused");
        service.give_back(&held).await.is(200);
    })
    .await;
}

pub(crate) async fn a_repeat_joins_the_wait() {
    on_each(async |service| {
        let held = service.hold("door", "ann").await;
        let bob = || acquire("door", "bob", LONG_MS, DAY_MS).once("k1");
        let first = waits(service.send(bob())).await;
        service.until_waiting("door", 1).await;
        let second = waits(service.send(bob())).await;
        let third = waits(service.send(bob())).await;
        service.send(acquire("door", "cid", LONG_MS, DAY_MS).once("k1")).await.refused(422, "idempotency_key_reused");
        assert_eq!(service.lock("door").await["waiters"], 1, "all of them are one");
        // It goes on without the one who began it.
        drop(first);
        service.give_back(&held).await.is(200);
        let (second, third) = (second.await.is(200), third.await.is(200));
        assert_eq!(second.bytes, third.bytes);
        assert_eq!(service.send(bob()).await.is(200).bytes, third.bytes);
        service.give_back(&third.json()).await.is(200);
    })
    .await;
}

pub(crate) async fn a_wait_ends_with_the_last_who_joined_it() {
    on_each(async |service| {
        let held = service.hold("door", "ann").await;
        let bob = || acquire("door", "bob", LONG_MS, DAY_MS).once("k1");
        let first = waits(service.send(bob())).await;
        service.until_waiting("door", 1).await;
        let second = waits(service.send(bob())).await;
        drop(second);
        drop(first);
        service.until_waiting("door", 0).await;
        // Nothing is left of the key.
        let cid = waits(service.send(acquire("door", "cid", LONG_MS, DAY_MS).once("k1"))).await;
        service.until_waiting("door", 1).await;
        service.give_back(&held).await.is(200);
        assert_eq!(cid.await.is(200).text("owner"), "cid");
    })
    .await;
}

pub(crate) async fn one_of_two_connections_is_enough_to_be_told() {
    let running = Running::with(Config { limits: patient(), ..config() }).await;
    let service = &running.service;
    for round in 0..20 {
        let held = service.hold("door", "ann").await;
        let bytes = acquire_bytes("door", "bob", LONG_MS, &key("k1"));
        let (mut one, mut two) = (running.connect().await, running.connect().await);
        one.send(&bytes).await;
        service.until_waiting("door", 1).await;
        two.send(&bytes).await;
        until_figure(&running, "firstcome_lock_waiting", 2).await;
        let (gone, mut there) = if round % 2 == 0 { (one, two) } else { (two, one) };
        drop(gone);
        service.give_back(&held).await.is(200);
        let told = there.answer().await.is(200).json();
        assert_eq!(service.lock("door").await["fence"], told["fence"]);
        // And a repeat leads there too.
        let again = running.exchange(&bytes).await.is(200).json();
        assert_eq!(again, told);
        service.give_back(&told).await.is(200);
    }
}

/// Waits until a figure has a value.
async fn until_figure(running: &Running, name: &str, wanted: u64) {
    crate::running::until(async || running.figure(name).await == wanted).await;
}

pub(crate) async fn the_store_has_the_last_word_on_a_repeat() {
    let locks = Locks::memory();
    let one = Service::with_locks(locks.clone(), config());
    let two = Service::with_locks(locks, config());
    let ann = || acquire("door", "ann", 0, DAY_MS).once("k1");
    let first = one.send(ann()).await.is(200).json();
    let again = one.send(ann()).await.is(200).json();
    assert_eq!(again["handle"], first["handle"]);
    // The other one gives it back, and the first one does not know.
    two.give_back(&first).await.is(200);
    let second = one.send(ann()).await.is(200).json();
    assert!(number(&first, "fence") < number(&second, "fence"));
    two.give_back(&second).await.is(200);
    let held = two.hold("door", "bob").await;
    one.send(ann()).await.refused(409, "contended");
    one.send(acquire("door", "ann", 0, 100).once("k1")).await.refused(409, "contended");
    two.give_back(&held).await.is(200);
}

/// The clock of these services stands still; that of their locks does not.
pub(crate) async fn a_repeat_shows_no_later_end_than_the_store() {
    on_each(async |service| {
        let ann = || acquire("door", "ann", 0, 10_000).once("k1");
        let first = service.send(ann()).await.is(200).json();
        // Longer than what is taken off a lease for clocks that differ.
        service.send(acquire("gate", "ann", 0, 400)).await.is(200);
        service.until_free("gate").await;
        let again = service.send(ann()).await.is(200).json();
        assert_eq!(again["handle"], first["handle"]);
        assert!(text(&again, "expires_at") < text(&first, "expires_at"), "{again} after {first}");
    })
    .await;
}

pub(crate) async fn no_more_keys_are_remembered_than_may_be() {
    let locks = LockLimits { holds_max: 2, ..LockLimits::default() };
    let service = Service::memory_with(Config { locks, ..config() });
    let ask = |lock: &str| acquire(lock, "ann", 0, 60_000).once("k1");
    let a = service.send(ask("a")).await.is(200);
    // What was refused, or given up, is not remembered.
    for round in 0..3 {
        service.send(acquire("a", "bob", round, 60_000).once(&format!("try{round}"))).await.refused(409, "contended");
        drop(waits(service.send(acquire("a", "bob", LONG_MS, 60_000).once(&format!("wait{round}")))).await);
    }
    service.until_waiting("a", 0).await;
    service.send(ask("b")).await.is(200);
    service.send(ask("c")).await.refused(503, "overloaded");
    assert_eq!(service.lock("c").await["held"], false);
    // What is known is answered, and what needs no memory goes on.
    assert_eq!(service.send(ask("a")).await.is(200).bytes, a.bytes);
    let c = service.hold("c", "bob").await;
    service.send(renew("c", text(&c, "handle"), DAY_MS)).await.is(200);
    service.give_back(&c).await.is(200);
    service.give_back(&a.json()).await.is(200);
    service.send(ask("c")).await.is(200);
    assert_eq!(json!(service.lock("c").await["held"]), json!(true));
}
