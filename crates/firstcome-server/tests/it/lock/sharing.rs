//! Locks that several requests share.

use super::{DAY_MS, LONG_MS, acquire, number, on_each, renew, text};
use crate::service::{Ask, SERVICE, Service};
use serde_json::{Value, json};

fn share(lock: &str, owner: &str, wait_ms: u64, permits: &Value) -> Ask {
    let body = json!({"owner": owner, "wait_ms": wait_ms, "lease_ms": DAY_MS, "permits": permits});
    Ask::post(&format!("/v1/locks/{lock}/acquire")).by(SERVICE).json(&body)
}

pub(crate) async fn permits_are_counted_and_each_hold_is_renewed_and_released_by_its_handle() {
    on_each(async |service| {
        let ann = service.send(share("pool", "ann", 0, &json!(2))).await.is(200).json();
        let bob = service.send(share("pool", "bob", LONG_MS, &json!(2))).await.is(200).json();
        assert_eq!(ann["fence"], bob["fence"]);
        assert_ne!(ann["handle"], bob["handle"]);
        let seen = service.lock("pool").await;
        assert_eq!((&seen["holder"], number(&seen, "holders")), (&json!("ann"), 2), "{seen}");
        service.send(share("pool", "eve", 0, &json!(2))).await.refused(409, "contended");
        service.send(acquire("pool", "eve", 0, DAY_MS)).await.refused(409, "contended");
        service.give_back(&ann).await.is(200);
        service.give_back(&ann).await.refused(410, "lock_lost");
        service.send(renew("pool", text(&bob, "handle"), DAY_MS)).await.is(200);
        let eve = service.send(share("pool", "eve", 0, &json!(2))).await.is(200).json();
        service.give_back(&bob).await.is(200);
        service.give_back(&eve).await.is(200);
        assert_eq!(number(&service.lock("pool").await, "holders"), 0);
    })
    .await;
}

pub(crate) async fn a_repeat_of_a_shared_acquire_is_the_same_hold() {
    on_each(async |service| {
        let other = service.send(share("pool", "ann", 0, &json!(2))).await.is(200).json();
        let first = service.send(share("pool", "bob", 0, &json!(2)).once("k1")).await.is(200).json();
        let again = service.send(share("pool", "bob", 0, &json!(2)).once("k1")).await.is(200).json();
        assert_eq!((&first["handle"], &first["fence"]), (&again["handle"], &again["fence"]));
        assert_eq!((&again["owner"], number(&service.lock("pool").await, "holders")), (&json!("bob"), 2));
        service.send(share("pool", "bob", 0, &json!(3)).once("k1")).await.refused(422, "idempotency_key_reused");
        // Others that share the lock do not keep a hold that is over.
        service.give_back(&first).await.is(200);
        let new = service.send(share("pool", "bob", 0, &json!(2)).once("k1")).await.is(200).json();
        assert_ne!(new["handle"], first["handle"]);
        service.give_back(&new).await.is(200);
        service.give_back(&other).await.is(200);
    })
    .await;
}

pub(crate) async fn permits_are_taken_at_their_limits_and_refused_beyond() {
    let service = Service::memory();
    for permits in [1, 1_000] {
        let held = service.send(share("pool", "ann", 0, &json!(permits))).await.is(200).json();
        service.give_back(&held).await.is(200);
    }
    for permits in [json!(0), json!(1_001), json!(4_294_967_297_u64), json!(-1), json!(1.5), json!("2"), json!([])] {
        let told = service.send(share("pool", "ann", 0, &permits)).await.refused(400, "invalid_field").json();
        assert_eq!(told["field"], "permits", "{permits}");
    }
    assert_eq!(service.lock("pool").await["held"], false);
}
