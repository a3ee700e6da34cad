//! What was told outlives the process: numbers, tickets, slots, passes, keys.

use super::{join, join_as};
use crate::service::{Ask, SERVICE, Service, config};
use crate::stores::{clock, open};
use firstcome::edge::ManualClock;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

fn start(directory: &Path, clock: &Arc<ManualClock>) -> Service {
    Service::new(open(directory, clock), Arc::clone(clock), config())
}

/// Closes the file first: a visitor that ticks may hold the store a little longer.
fn stop(service: Service) {
    service.store.close();
    drop(service);
}

pub(crate) async fn tickets_slots_and_passes_survive_a_restart() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let clock = clock();
    let before = start(directory.path(), &clock);
    before.make("launch", json!({"limit": 9, "room": "sale"})).await;
    let settings = json!({"max_active": 1, "active_ttl_ms": 60_000, "message": "Hello"});
    before.make_room("sale", settings.clone()).await;
    let inside = before.ticket_of("sale", "ann").await;
    let pass = before.admitted("sale", &inside).await;
    let left = before.ticket("sale").await;
    let waiting = before.send(join("sale").by(SERVICE).once("k1")).await.is(201);
    let last = before.ticket("sale").await;
    before.leave("sale", &left).await.is(204);
    before.make_room("shut", settings).await;
    let shut = before.ticket("shut").await;
    before.close_room("shut").await.is(204);
    let keys = before.send(Ask::get("/v1/pass-keys")).await.json();
    let shown = before.standing("sale", &inside).await;
    clock.pass_ms(20_000);
    stop(before);

    let after = start(directory.path(), &clock);
    assert_eq!(after.send(Ask::get("/v1/pass-keys")).await.json(), keys);
    let again = after.standing("sale", &inside).await;
    for member in ["number", "state", "admitted_at", "pass", "pass_expires_at"] {
        assert_eq!(again[member], shown[member], "{member}");
    }
    assert_eq!(again["pass"], json!(pass));
    assert_eq!(after.wrong_with("sale", &pass).await, None);
    after.send(super::claim_by("launch", &pass)).await.is(201);
    assert_eq!(after.state("sale", &left).await, "left");
    let waiting_ticket = waiting.text("ticket");
    assert_eq!(after.standing("sale", &waiting_ticket).await["position"], 0);
    assert_eq!(after.standing("sale", &last).await["position"], 1);
    // Users and keys find their places, and numbers go on.
    assert_eq!(after.send(join_as("sale", "ann")).await.is(200).text("ticket"), inside);
    assert_eq!(after.send(join("sale").by(SERVICE).once("k1")).await.is(201).text("ticket"), waiting_ticket);
    after.send(join_as("sale", "bob").once("k1")).await.refused(422, "idempotency_key_reused");
    assert_eq!(after.send(join("sale")).await.is(201).json()["number"], 5);
    assert_eq!(after.room("sale").await["message"], "Hello");
    // A closed room is closed, and what was void stays void.
    after.send(join("shut")).await.refused(410, "room_closed");
    assert_eq!(after.state("shut", &shut).await, "expired");
    // Slots end when they would have ended, and the line goes on.
    after.pass_ms(39_999).await;
    assert_eq!(after.wrong_with("sale", &pass).await, None);
    after.pass_ms(1).await;
    assert_eq!(after.wrong_with("sale", &pass).await.as_deref(), Some("expired"));
    after.admitted("sale", &waiting_ticket).await;
}

pub(crate) async fn rotated_keys_and_what_they_signed_survive_a_restart() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let clock = clock();
    let before = start(directory.path(), &clock);
    before.make_room("sale", json!({"max_active": 9})).await;
    let first = before.pass("sale").await;
    before.send(Ask::post("/v1/pass-keys").by(crate::service::ADMIN)).await.is(201);
    let second = before.pass("sale").await;
    let keys = before.send(Ask::get("/v1/pass-keys")).await.json();
    before.send(super::release("sale", &first)).await.is(204);
    stop(before);

    let after = start(directory.path(), &clock);
    assert_eq!(after.send(Ask::get("/v1/pass-keys")).await.json(), keys);
    assert_eq!(after.wrong_with("sale", &first).await.as_deref(), Some("over"), "what was given back stays so");
    assert_eq!(after.wrong_with("sale", &second).await, None);
    after.close_room("sale").await.is(204);
    stop(after);
    let last = start(directory.path(), &clock);
    assert_eq!(last.wrong_with("sale", &second).await.as_deref(), Some("over"));
    last.make_room("sale", json!({"max_active": 9})).await;
    assert_eq!(last.send(join("sale")).await.is(201).json()["number"], 3);
}

pub(crate) async fn an_admission_that_was_not_taken_is_there_after_a_restart() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let clock = clock();
    let before = start(directory.path(), &clock);
    before.make_room("sale", json!({"max_active": 1, "claim_window_ms": 10_000})).await;
    let [first, second] = [before.ticket("sale").await, before.ticket("sale").await];
    before.tick().await;
    stop(before);

    let after = start(directory.path(), &clock);
    assert_eq!(after.room("sale").await["active"], 1);
    after.pass_ms(9_999).await;
    assert_eq!(after.state("sale", &first).await, "admitted");
    assert_eq!(after.state("sale", &second).await, "waiting");
    after.leave("sale", &first).await.is(204);
    after.tick().await;
    stop(after);
    clock.pass_ms(10_000);
    let last = start(directory.path(), &clock);
    let back = last.standing("sale", &second).await;
    assert_eq!((&back["state"], &back["position"]), (&json!("waiting"), &json!(0)), "its window has passed");
}
