//! A handle is good for one hold of one lock: no process makes one up, alters one, or uses it elsewhere.

use super::{LONG_MS, number, release, renew, text};
use crate::room::flipped;
use crate::service::{ADMIN, Ask, SERVICE_TOO, Service};
use serde_json::json;

pub(crate) async fn no_altered_handle_is_one() {
    let service = Service::memory();
    let held = service.hold("door", "ann").await;
    let handle = text(&held, "handle").to_owned();
    let cases = [handle.to_uppercase(), handle.to_lowercase(), handle.chars().rev().collect()];
    for wrong in flipped(&handle).chain(cases).chain(["A".repeat(handle.len()), "_".repeat(handle.len())]) {
        assert_ne!(wrong, handle);
        service.send(release("door", &wrong)).await.refused(410, "lock_lost");
        service.send(renew("door", &wrong, 60_000)).await.refused(410, "lock_lost");
    }
    let fence = number(&held, "fence");
    assert_eq!(service.lock("door").await["fence"], fence);
    service.give_back(&held).await.is(200);
}

pub(crate) async fn what_cannot_be_a_handle_is_a_mistake_of_its_sender() {
    let service = Service::memory();
    let held = service.hold("door", "ann").await;
    let handle = text(&held, "handle").to_owned();
    let shorter = (0..handle.len()).map(|length| handle[..length].to_owned());
    let longer = ["A", "=", " ", "\u{0}", "AAAA"].map(|end| format!("{handle}{end}"));
    let others = ["é".repeat(27), "A".repeat(60_000), format!("+{}", &handle[1..]), format!(" {}", &handle[1..])];
    for wrong in shorter.chain(longer).chain(others) {
        for ask in [release("door", &wrong), renew("door", &wrong, 60_000)] {
            let told = service.send(ask).await.refused(400, "invalid_field");
            told.about("handle", "handle must be what acquire returned, whole");
        }
    }
    assert_eq!(service.lock("door").await["held"], true);
}

pub(crate) async fn a_handle_is_good_for_its_lock_and_its_service_only() {
    let (service, other) = (Service::memory(), Service::memory());
    let context = service.hold("door", "ann").await;
    let gate = service.hold("gate", "ann").await;
    let elsewhere = other.hold("door", "ann").await;
    let gone = service.hold("shed", "ann").await;
    service.give_back(&gone).await.is(200);
    let mut answers = Vec::new();
    for (lock, held) in [("gate", &context), ("door", &gate), ("door", &elsewhere), ("shed", &gone), ("none", &context)]
    {
        answers.push(service.send(release(lock, text(held, "handle"))).await.refused(410, "lock_lost").bytes);
        answers.push(service.send(renew(lock, text(held, "handle"), LONG_MS)).await.refused(410, "lock_lost").bytes);
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]), "which one it was is told to nobody");
    for lock in ["door", "gate"] {
        assert_eq!(service.lock(lock).await["held"], true);
    }
    // A process that has the handle has the lock, by whichever key of the service.
    service.send(renew("door", text(&context, "handle"), LONG_MS).by(SERVICE_TOO)).await.is(200);
    service.send(release("door", text(&context, "handle")).by(ADMIN)).await.is(200);
    assert_eq!(other.lock("door").await["held"], true);
}

pub(crate) async fn handles_stand_nowhere_but_in_answers_to_their_holders() {
    let service = Service::memory();
    let held = service.hold("door", "ann").await;
    let handle = text(&held, "handle");
    let next = service.hold("gate", "ann").await;
    assert_ne!(handle[..22], text(&next, "handle")[32..]);
    for ask in [
        super::look("door"),
        super::acquire("door", "bob", 0, 60_000),
        renew("gate", handle, 60_000),
        Ask::get("/metrics").by(ADMIN),
        Ask::get("/"),
    ] {
        assert!(!service.send(ask).await.body().contains(handle));
    }
    // Nor does the number of a hold lead to another: all of it is signed.
    assert_eq!(handle.len(), 54);
    assert_eq!(json!(handle.len()), json!(text(&next, "handle").len()));
}
