//! Joining: numbers in the order of arrival, and one place for one user and for one request.

use super::{join, join_as, place};
use crate::service::{ADMIN, Answer, Ask, SERVICE, SERVICE_TOO, STRANGER};
use crate::stores::on_each;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A key as public calls must have one.
const KEY: &str = "Zm9yIG9uZSByZXF1ZX_-01";

pub(crate) async fn numbers_are_drawn_in_the_order_of_arrival() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 1, "paused": true})).await;
        for number in 1..=5_u32 {
            let ask = if number % 2 == 0 { join_as("sale", &format!("user{number}")) } else { join("sale") };
            let joined = service.send(ask).await.is(201);
            assert_eq!(joined.header("cache-control"), Some("no-store"));
            let json = joined.json();
            let ticket = json["ticket"].as_str().expect("a ticket").to_owned();
            let mut whole = json!({
                "room": "sale", "ticket": ticket, "number": number, "state": "waiting", "position": number - 1,
                "eta_ms": null, "poll_after_ms": json["poll_after_ms"], "stream": true, "as_of": "2030-01-01T00:00:00Z"
            });
            if number % 2 == 0 {
                whole["user"] = json!(format!("user{number}"));
            }
            assert_eq!(json, whole);
            assert!((2_000..=90_000).contains(&json["poll_after_ms"].as_u64().expect("a time")), "{json}");
            let shown = service.standing("sale", &ticket).await;
            assert_eq!((&shown["number"], &shown["position"]), (&json!(number), &json!(number - 1)));
            assert!(shown.get("ticket").is_none() && shown.get("pass").is_none());
        }
        // Each room counts for itself.
        service.make_room("other", json!({"max_active": 1, "paused": true})).await;
        assert_eq!(service.send(join("other")).await.is(201).json()["number"], 1);
        service.send(join("none")).await.refused(404, "unknown_room");
        service.send(join_as("none", "ann")).await.refused(404, "unknown_room");
        service.poll("none", "x").await.refused(404, "unknown_room");
        service.leave("none", "x").await.refused(404, "unknown_room");
    })
    .await;
}

pub(crate) async fn a_user_has_one_living_place() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 1, "paused": true})).await;
        let ann = service.ticket_of("sale", "ann").await;
        service.ticket("sale").await;
        let same = |key: &'static str| service.send(join_as("sale", "ann").by(key));
        for key in [SERVICE, SERVICE_TOO, ADMIN] {
            let again = same(key).await.is(200).json();
            assert_eq!((&again["ticket"], &again["number"], &again["position"]), (&json!(ann), &json!(1), &json!(0)));
        }
        assert_eq!(service.send(join_as("sale", "Ann")).await.is(201).json()["number"], 3, "another user");
        // Also while admitted, and then with the pass.
        service.make_room("sale", json!({"max_active": 1})).await;
        service.tick().await;
        let inside = same(SERVICE).await.is(200).json();
        assert_eq!((&inside["ticket"], &inside["state"]), (&json!(ann), &json!("admitted")));
        let shown = service.standing("sale", &ann).await;
        assert_eq!((&shown["pass"], inside["pass"].is_string()), (&inside["pass"], true));
        // Afterwards there is a new one.
        service.leave("sale", &ann).await.is(204);
        let new = same(SERVICE).await.is(201).json();
        assert_eq!((&new["number"], new["ticket"] == json!(ann)), (&json!(4), false));
        assert_eq!(service.state("sale", &ann).await, "left");
        assert_eq!(same(SERVICE).await.is(200).json()["number"], 4);
    })
    .await;
}

pub(crate) async fn a_repeated_join_leads_to_the_same_place_while_its_ticket_lives() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 1, "paused": true})).await;
        for (asked, key) in [(join("sale"), KEY), (join_as("sale", "ann"), "k1"), (join("sale").by(SERVICE), "k2")] {
            let again = format!("{asked:?}");
            let first = service.send(asked.once(key)).await.is(201).json();
            service.clock.pass_ms(1_000);
            let repeated = match key {
                KEY => join("sale").raw(" { \"user\" : null } "),
                "k1" => join_as("sale", "\u{61}nn"),
                _ => join("s%61le").by(SERVICE),
            };
            let second = service.send(repeated.once(key)).await.is(201).json();
            for member in ["room", "ticket", "number", "position"] {
                assert_eq!(second[member], first[member], "{again}: {member}");
            }
        }
        assert_eq!(service.room("sale").await["waiting"], 3);
        // A key belongs to its credential and its room.
        service.make_room("other", json!({"max_active": 1, "paused": true})).await;
        assert_eq!(service.send(join("other").once(KEY)).await.is(201).json()["number"], 1);
        assert_eq!(service.send(join("sale").by(SERVICE).once(KEY)).await.is(201).json()["number"], 4);
        assert_eq!(service.send(join_as("sale", "bob").by(SERVICE_TOO).once("k1")).await.is(201).json()["number"], 5);
        // With the ticket's life ends the key's.
        let first = service.send(join("sale").once(KEY)).await.is(201).text("ticket");
        service.leave("sale", &first).await.is(204);
        let second = service.send(join("sale").once(KEY)).await.is(201).json();
        assert_eq!((&second["number"], second["ticket"] == json!(first)), (&json!(6), false));
    })
    .await;
}

pub(crate) async fn a_join_key_with_another_user_is_refused() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 1, "max_waiting": 3, "paused": true})).await;
        service.send(join_as("sale", "ann").once("k1")).await.is(201);
        service.send(join("sale").by(SERVICE).once("k2")).await.is(201);
        service.send(join("sale")).await.is(201);
        // The key is judged before the room is found full.
        service.send(join_as("sale", "bob").once("k1")).await.refused(422, "idempotency_key_reused");
        service.send(join("sale").by(SERVICE).once("k1")).await.refused(422, "idempotency_key_reused");
        service.send(join_as("sale", "ann").once("k2")).await.refused(422, "idempotency_key_reused");
        service.send(join_as("sale", "ann").once("k1")).await.is(201);
        service.send(join_as("sale", "ann").once("k3")).await.is(200);
        service.send(join_as("sale", "bob").once("k3")).await.refused(409, "room_full");
        // A refusal is judged afresh.
        service.make_room("sale", json!({"max_active": 1, "max_waiting": 4, "paused": true})).await;
        service.send(join_as("sale", "bob").once("k3")).await.is(201);
    })
    .await;
}

pub(crate) async fn a_key_that_a_stranger_could_guess_is_refused_on_public_joins() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 1, "paused": true})).await;
        for key in ["k1", &KEY[..21], &"k".repeat(129), "with a blank in the midst", "no+base64url/but=base64+", ""] {
            service.send(join("sale").once(key)).await.refused(400, "invalid_idempotency_key");
        }
        let twice = join("sale").once(KEY).also("idempotency-key", KEY);
        service.send(twice).await.refused(400, "invalid_idempotency_key");
        assert_eq!(service.room("sale").await["waiting"], 0);
        service.send(join("sale").once(KEY)).await.is(201);
        service.send(join("sale").once(&"k".repeat(128))).await.is(201);
        service.send(join("sale").by(SERVICE).once("k")).await.is(201);
    })
    .await;
}

pub(crate) async fn only_a_back_end_joins_for_a_user() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 1, "paused": true})).await;
        service.send(join_as("sale", "ann").without("authorization")).await.refused(401, "unauthorized");
        service.send(join_as("sale", "ann").by(STRANGER)).await.refused(401, "unauthorized");
        service.send(join("sale").by(STRANGER)).await.refused(401, "unauthorized");
        let both = join_as("sale", "ann").also("authorization", &format!("Bearer {STRANGER}"));
        service.send(both).await.refused(401, "unauthorized");
        for user in [json!("pass:1"), json!("pass:"), json!("-"), json!("")] {
            let reserved = join("sale").by(SERVICE).json(&json!({"user": user}));
            service.send(reserved).await.refused(400, "invalid_name");
        }
        assert_eq!(service.room("sale").await["waiting"], 0);
        let ticket = service.send(join_as("sale", "ann").by(ADMIN)).await.is(201).text("ticket");
        // A visitor that has the ticket needs no key; one that is none is refused all the same.
        service.poll("sale", &ticket).await.is(200);
        for ask in [Ask::get(&place("sale", &ticket)), Ask::delete(&place("sale", &ticket))] {
            service.send(ask.by(STRANGER)).await.refused(401, "unauthorized");
        }
        assert_eq!(service.state("sale", &ticket).await, "waiting");
    })
    .await;
}

/// All answers to requests that are under way together.
async fn together(answers: impl Iterator<Item = impl Future<Output = Answer> + Send + 'static>) -> Vec<Answer> {
    let tasks: Vec<_> = answers.map(tokio::spawn).collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.expect("no request panics"));
    }
    answers
}

pub(crate) async fn a_crowd_that_comes_together_gets_each_number_once() {
    on_each(async |service| {
        service.make("launch", json!({"limit": 9, "room": "sale"})).await;
        service.make_room("sale", json!({"max_active": 1, "paused": true})).await;
        let crowd = (0..200).map(|person| match person % 4 {
            0 => service.send(join_as("sale", "ann")),
            1 => service.send(join("sale").once(KEY)),
            _ => service.send(join("sale")),
        });
        let answers = together(crowd).await;
        let made = |status: u16| answers.iter().filter(|answer| answer.status == status).count();
        assert_eq!((made(201), made(200)), (151, 49), "one of ann's is the first");
        let numbers: BTreeSet<u64> = answers.iter().filter_map(|answer| answer.json()["number"].as_u64()).collect();
        assert!(numbers.into_iter().eq(1..=102), "100, ann, and the request that came 50 times");
        let tickets: BTreeSet<String> = answers.iter().map(|answer| answer.text("ticket")).collect();
        assert_eq!(tickets.len(), 102);
        // The one who is admitted asks ten times at once and has one slot, and one pass that claims once.
        service.make_room("sale", json!({"max_active": 1})).await;
        service.tick().await;
        let first = answers.iter().find(|answer| answer.json()["number"] == 1).expect("a first one").text("ticket");
        let asked = together((0..10).map(|_| service.send(Ask::get(&place("sale", &first))))).await;
        let passes: BTreeSet<String> = asked.into_iter().map(|answer| answer.is(200).text("pass")).collect();
        let pass = passes.first().expect("a pass");
        assert_eq!((passes.len(), &service.room("sale").await["active"]), (1, &json!(1)));
        let claims = together((0..10).map(|_| service.send(super::claim_by("launch", pass)))).await;
        assert_eq!(claims.iter().filter(|answer| answer.status == 201).count(), 1);
        assert_eq!(service.issued("launch").await, 1);
    })
    .await;
}

pub(crate) async fn a_full_line_says_when_to_come_back_and_draws_no_number() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 1, "max_waiting": 2, "paused": true})).await;
        let first = service.ticket_of("sale", "ann").await;
        service.ticket("sale").await;
        for ask in [join("sale"), join_as("sale", "bob"), join("sale").once(KEY)] {
            let full = service.send(ask).await.refused(409, "room_full");
            assert!(Some(1_000) <= full.json()["retry_after_ms"].as_u64(), "{}", full.body());
        }
        // Who has a place already is not told that there is none.
        service.send(join_as("sale", "ann")).await.is(200);
        service.leave("sale", &first).await.is(204);
        assert_eq!(service.send(join("sale")).await.is(201).json()["number"], 3);
        service.send(join("sale")).await.refused(409, "room_full");
        // Slots are no places in line.
        service.make_room("sale", json!({"max_active": 1, "max_waiting": 2})).await;
        service.tick().await;
        assert_eq!(service.send(join("sale")).await.is(201).json()["number"], 4);
        assert_eq!(service.room("sale").await["eta_ms_at_tail"], Value::Null, "no slot was given back yet");
    })
    .await;
}
