//! A store that fails or does not answer: told plainly, nothing told that is not durable, and the line goes on reading.

use super::passes::stolen;
use super::{join, join_as, release, verify};
use crate::service::{ADMIN, Ask, SERVICE, Service, at, config};
use crate::stores::{Script, Verdict, scripted};
use crate::trouble::waits;
use firstcome::core::id::{RoomName, UserId};
use firstcome::embedded::journal::Outcome;
use firstcome_server::pass::Grant;
use serde_json::{Value, json};
use std::time::Duration;

async fn service(answer: Duration) -> (Service, Script) {
    let mut config = config();
    config.limits.answer = answer;
    let (store, clock, script) = scripted();
    (Service::new(store, clock, config), script)
}

const LONG: Duration = Duration::from_secs(60);

/// Asks until the answer is as wanted.
async fn until(service: &Service, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let asking = async {
        loop {
            let answer = service.send(Ask::get(path)).await;
            if answer.status == 200 && wanted(&answer.json()) {
                return answer.json();
            }
            tokio::task::yield_now().await;
        }
    };
    crate::running::soon(asking).await
}

pub(crate) async fn a_failed_store_lets_no_visitor_in_and_goes_on_telling_the_line() {
    for outcome in [Outcome::Nothing, Outcome::Unknown] {
        let (service, script) = service(LONG).await;
        // The first room comes with the key of passes: two commits. Two people join, one is admitted, and takes it.
        for _ in 0..2 {
            script.say(Verdict::Commit);
        }
        service.make_room("sale", json!({"max_active": 1, "paused": true})).await;
        for _ in 0..2 {
            script.say(Verdict::Commit);
        }
        let [inside, waiting] = [service.ticket_of("sale", "ann").await, service.ticket("sale").await];
        for _ in 0..3 {
            script.say(Verdict::Commit);
        }
        service.make_room("sale", json!({"max_active": 1, "idle_ttl_ms": 0})).await;
        until(&service, "/v1/rooms/sale", |room| room["active"] == 1).await;
        let pass = service.poll("sale", &inside).await.is(200).text("pass");

        script.say(Verdict::Fail(outcome));
        let told = service.send(join("sale")).await;
        match outcome {
            Outcome::Nothing | Outcome::Passing => told.refused(503, "store_unavailable"),
            Outcome::Unknown => told.refused(503, "outcome_unknown"),
        };
        for ask in [
            join("sale"),
            join_as("sale", "bob"),
            join_as("sale", "ann"),
            Ask::delete(&super::place("sale", &waiting)),
            Ask::delete(&super::place("sale", &inside)),
            release("sale", &pass),
            Ask::put("/v1/rooms/sale").by(ADMIN).json(&json!({"max_active": 1})),
            Ask::put("/v1/rooms/new").by(ADMIN).json(&json!({"max_active": 1})),
            Ask::delete("/v1/rooms/sale").by(ADMIN),
            Ask::post("/v1/pass-keys").by(ADMIN),
        ] {
            let told = service.send(ask).await.refused(503, "store_unavailable");
            assert_eq!((told.header("retry-after"), &told.json()["retry_after_ms"]), (Some("5"), &json!(5_000)));
        }
        // Who waits is told so, and who is inside has the pass.
        for _ in 0..3 {
            service.clock.pass_ms(1_000);
            let shown = service.standing("sale", &waiting).await;
            assert_eq!((&shown["state"], &shown["position"]), (&json!("waiting"), &json!(0)));
            assert_eq!(service.poll("sale", &inside).await.is(200).text("pass"), pass);
            assert_eq!(service.send(verify("sale", &pass)).await.is(200).json()["valid"], true);
        }
        assert_eq!(service.room("sale").await["state"], "open");
        service.poll("sale", "x").await.refused(404, "unknown_ticket");
        service.send(join("none")).await.refused(404, "unknown_room");
    }
}

pub(crate) async fn a_join_that_is_not_durable_is_told_to_no_visitor() {
    let (service, script) = service(Duration::from_millis(200)).await;
    for _ in 0..2 {
        script.say(Verdict::Commit);
    }
    service.make_room("sale", json!({"max_active": 1, "paused": true})).await;
    let key = "k".repeat(22);
    service.send(join("sale").once(&key)).await.refused(503, "outcome_unknown");
    script.begun();
    service.send(join_as("sale", "ann")).await.refused(503, "outcome_unknown");
    service.send(Ask::put("/v1/rooms/sale").by(ADMIN).json(&json!({"max_active": 1}))).await.is(503);
    service.send(Ask::delete("/v1/rooms/sale").by(ADMIN)).await.refused(503, "outcome_unknown");
    script.say(Verdict::CommitAll);
    // The same request learns its number, which was drawn once. What only waited was given up with its caller.
    let mut answer = service.send(join("sale").once(&key)).await;
    while answer.status == 503 {
        answer = service.send(join("sale").once(&key)).await;
    }
    assert_eq!(answer.is(201).json()["number"], 1);
    let room = service.room("sale").await;
    assert_eq!((&room["waiting"], &room["state"]), (&json!(1), &json!("paused")));
    assert_eq!(service.send(join_as("sale", "ann")).await.is(201).json()["number"], 2);
}

pub(crate) async fn a_pass_is_shown_to_no_visitor_before_its_slot_is_durable() {
    for verdict in [Verdict::CommitAll, Verdict::Fail(Outcome::Unknown), Verdict::Fail(Outcome::Nothing)] {
        let (service, script) = service(LONG).await;
        // The key of passes, the room, a number, the admission.
        for _ in 0..4 {
            script.say(Verdict::Commit);
        }
        service.make_room("sale", json!({"max_active": 1, "idle_ttl_ms": 0})).await;
        let ticket = service.ticket_of("sale", "ann").await;
        until(&service, "/v1/rooms/sale", |room| room["active"] == 1).await;
        for _ in 0..4 {
            script.begun();
        }
        let grant = Grant {
            room: RoomName::parse("sale").expect("a name"),
            number: 1,
            slot: 1,
            user: Some(UserId::parse("ann").expect("a name")),
            issued_at: at(0),
            expires_at: at(1_800),
        };
        // The pass as it is going to be: a visitor that could foresee it is not let in before it is durable either.
        let foreseen = stolen(&service).mint(&grant);
        let first = waits(service.send(Ask::get(&super::place("sale", &ticket)))).await;
        script.begun();
        let second = waits(service.send(Ask::get(&super::place("sale", &ticket)))).await;
        let asked = waits(service.send(verify("sale", &foreseen))).await;
        let other = service.send(verify("sale", &stolen(&service).mint(&Grant { number: 2, ..grant }))).await;
        assert_eq!(other.is(200).json()["reason"], "over", "who is not concerned is answered at once");
        script.say(verdict);
        if let Verdict::Fail(outcome) = verdict {
            let code = if outcome == Outcome::Unknown { "outcome_unknown" } else { "store_unavailable" };
            first.await.refused(503, code);
            second.await.refused(503, "store_unavailable");
            asked.await.refused(503, "store_unavailable");
            service.poll("sale", &ticket).await.refused(503, "store_unavailable");
            service.send(verify("sale", &foreseen)).await.refused(503, "store_unavailable");
        } else {
            assert_eq!(first.await.is(200).text("pass"), foreseen);
            assert_eq!(second.await.is(200).text("pass"), foreseen);
            assert_eq!(asked.await.is(200).json()["valid"], true);
        }
    }
}

pub(crate) async fn a_visitor_that_goes_away_while_joining_has_joined_or_not_and_never_twice() {
    let (service, script) = service(LONG).await;
    for _ in 0..2 {
        script.say(Verdict::Commit);
    }
    service.make_room("sale", json!({"max_active": 1, "paused": true})).await;
    for _ in 0..2 {
        script.begun();
    }
    let begun = waits(service.send(join_as("sale", "ann"))).await;
    script.begun();
    let queued = waits(service.send(join_as("sale", "bob"))).await;
    drop((begun, queued));
    script.say(Verdict::CommitAll);
    // What was under way is done, what only waited is not.
    let ann = service.send(join_as("sale", "ann")).await.is(200);
    assert_eq!(ann.json()["number"], 1);
    let bob = service.send(join_as("sale", "bob")).await.is(201);
    assert_eq!(bob.json()["number"], 2);
    assert_eq!(service.room("sale").await["waiting"], 2);
}

pub(crate) async fn a_first_room_whose_answer_came_too_late_has_its_passes() {
    let (service, script) = service(Duration::from_millis(200)).await;
    let put = Ask::put("/v1/rooms/sale").by(ADMIN).json(&json!({"max_active": 1}));
    service.send(put).await.refused(503, "outcome_unknown");
    script.say(Verdict::CommitAll);
    until(&service, "/v1/rooms/sale", |_| true).await;
    // No visitor asks for the room a second time: it is there, and it works.
    let ticket = service.send(join("sale").by(SERVICE)).await.is(201).text("ticket");
    let pass = service.admitted("sale", &ticket).await;
    assert_eq!(service.wrong_with("sale", &pass).await, None);
    assert_eq!(service.send(Ask::get("/v1/pass-keys")).await.json()["items"][0]["kid"], "1");
}

pub(crate) async fn a_change_of_keys_whose_answer_came_too_late_is_seen() {
    let (service, script) = service(Duration::from_millis(200)).await;
    for _ in 0..2 {
        script.say(Verdict::Commit);
    }
    service.make_room("sale", json!({"max_active": 1, "paused": true})).await;
    service.send(Ask::post("/v1/pass-keys").by(ADMIN)).await.refused(503, "outcome_unknown");
    script.say(Verdict::CommitAll);
    let keys = until(&service, "/v1/pass-keys", |keys| keys["items"][0]["kid"] == "2").await;
    assert_eq!(keys["items"].as_array().map(Vec::len), Some(2));
}

pub(crate) async fn the_words_of_a_fault_stay_out_of_answers_about_rooms() {
    for outcome in [Outcome::Nothing, Outcome::Unknown] {
        let (service, script) = service(LONG).await;
        for _ in 0..3 {
            script.say(Verdict::Commit);
        }
        service.make_room("sale", json!({"max_active": 1, "paused": true})).await;
        let ticket = service.ticket("sale").await;
        script.say(Verdict::Fail(outcome));
        // `promises` looks for secrets in every answer.
        for ask in [
            join("sale"),
            join_as("sale", "ann"),
            Ask::get("/v1/rooms/sale"),
            Ask::get(&super::place("sale", &ticket)),
            Ask::delete(&super::place("sale", &ticket)),
            verify("sale", "v4.public.canary"),
            release("sale", "v4.public.canary"),
            Ask::put("/v1/rooms/sale").by(ADMIN).json(&json!({"max_active": 1})),
            Ask::delete("/v1/rooms/sale").by(ADMIN),
            Ask::get("/v1/pass-keys"),
            Ask::post("/v1/pass-keys").by(ADMIN),
            super::claim_by("none", "v4.public.canary"),
        ] {
            service.send(ask).await;
        }
    }
}
