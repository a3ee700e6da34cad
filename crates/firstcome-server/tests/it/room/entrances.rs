//! Rooms as an operator makes, replaces, closes and opens them again.

use super::{join, join_as};
use crate::service::{ADMIN, Ask, Service};
use crate::stores::on_each;
use serde_json::{Value, json};

pub(crate) async fn a_room_is_created_shown_and_replaced() {
    on_each(async |service| {
        let settings = json!({"max_active": 1, "message": "Soon", "target_url": "/shop"});
        let made = service.put_room("sale", settings).await.is(201);
        assert_eq!(made.header("cache-control"), Some("no-store"));
        let whole = json!({
            "room": "sale", "waiting": 0, "active": 0, "serving": 0, "rate": 0.0, "eta_ms_at_tail": made.json()["eta_ms_at_tail"],
            "rate_reason": "empty", "state": "open", "as_of": "2030-01-01T00:00:00Z", "message": "Soon", "target_url": "/shop"
        });
        assert_eq!(made.shown(), whole);
        assert_eq!(service.room("sale").await, whole);
        // All settings are replaced: what is left out has its default.
        let replaced = service.put_room("sale", json!({"admit": {"count": 1, "every_ms": 1_000}})).await.is(200);
        assert!(replaced.json().get("message").is_none() && replaced.json().get("target_url").is_none());
        service.send(Ask::get("/v1/rooms/none")).await.refused(404, "unknown_room");
    })
    .await;
}

pub(crate) async fn a_room_counts_those_in_line_and_in_slots() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 2})).await;
        let mut tickets = Vec::new();
        for _ in 0..5 {
            tickets.push(service.ticket("sale").await);
        }
        service.tick().await;
        let counts = async || {
            let room = service.room("sale").await;
            ["waiting", "active", "serving"].map(|name| room[name].as_u64().expect("a count"))
        };
        assert_eq!(counts().await, [3, 2, 2], "offered slots count");
        service.state("sale", &tickets[0]).await;
        assert_eq!(counts().await, [3, 2, 2], "taken ones, too");
        service.leave("sale", &tickets[4]).await.is(204);
        assert_eq!(counts().await, [2, 2, 2]);
        service.leave("sale", &tickets[0]).await.is(204);
        service.tick().await;
        assert_eq!(counts().await, [1, 2, 3]);
    })
    .await;
}

pub(crate) async fn the_state_of_a_room_follows_its_settings() {
    on_each(async |service| {
        let state = async || service.room("sale").await["state"].as_str().expect("a text").to_owned();
        service.make_room("sale", json!({"max_active": 9, "paused": true})).await;
        assert_eq!(state().await, "paused");
        let ticket = service.ticket("sale").await;
        service.tick().await;
        assert_eq!(service.standing("sale", &ticket).await["eta_ms"], Value::Null, "nobody can tell");
        assert_eq!(service.state("sale", &ticket).await, "waiting");

        service.make_room("sale", json!({"max_active": 9, "opens_at": "2030-01-01T00:01:00Z"})).await;
        assert_eq!(state().await, "scheduled");
        assert_eq!(service.room("sale").await["opens_at"], "2030-01-01T00:01:00Z");
        service.pass_ms(59_999).await;
        assert_eq!(service.state("sale", &ticket).await, "waiting");
        assert!(service.standing("sale", &ticket).await["eta_ms"].as_u64() >= Some(1));
        service.pass_ms(1).await;
        assert_eq!((state().await.as_str(), service.state("sale", &ticket).await.as_str()), ("open", "admitted"));

        // Who was admitted stays so while no other visitor is.
        service.make_room("sale", json!({"max_active": 9, "paused": true})).await;
        assert_eq!(service.state("sale", &ticket).await, "admitted");
        service.close_room("sale").await.is(204);
        assert_eq!(state().await, "closed");
    })
    .await;
}

pub(crate) async fn a_closed_room_voids_its_tickets_and_opens_again_with_its_numbers() {
    on_each(async |service| {
        service.close_room("sale").await.refused(404, "unknown_room");
        service.make_room("sale", json!({"max_active": 1})).await;
        let key = "k".repeat(22);
        let inside = service.send(join_as("sale", "ann").once(&key)).await.is(201).text("ticket");
        let pass = service.admitted("sale", &inside).await;
        let waiting = service.ticket("sale").await;
        for _ in 0..2 {
            service.close_room("sale").await.is(204);
        }
        service.send(join("sale")).await.refused(410, "room_closed");
        service.send(join_as("sale", "ann")).await.refused(410, "room_closed");
        let room = service.room("sale").await;
        assert_eq!((&room["state"], &room["waiting"], &room["active"]), (&json!("closed"), &json!(0), &json!(0)));
        let void = async || {
            for ticket in [&inside, &waiting] {
                assert_eq!(service.state("sale", ticket).await, "expired");
                service.leave("sale", ticket).await.is(204);
            }
            assert_eq!(service.wrong_with("sale", &pass).await.as_deref(), Some("over"));
        };
        void().await;
        // A PUT opens it again, and what was void stays so.
        service.put_room("sale", json!({"max_active": 1})).await.is(200);
        assert_eq!(service.room("sale").await["state"], "open");
        let again = service.send(join_as("sale", "ann").once(&key)).await.is(201);
        assert_eq!(again.json()["number"], 3, "numbers go on, and the key belongs to nobody");
        service.tick().await;
        assert_eq!(service.state("sale", &again.text("ticket")).await, "admitted");
        void().await;
        assert_eq!(service.room("sale").await["active"], 1);
    })
    .await;
}

/// One setting at its least and its most, and beyond.
struct Bound {
    field: &'static str,
    min: u64,
    max: u64,
}

const BOUNDS: [Bound; 7] = [
    Bound { field: "max_active", min: 1, max: 10_000_000 },
    Bound { field: "max_waiting", min: 1, max: 100_000_000 },
    Bound { field: "waiting_ttl_ms", min: 100, max: 604_800_000 },
    Bound { field: "first_poll_ms", min: 100, max: 604_800_000 },
    Bound { field: "active_ttl_ms", min: 100, max: 86_400_000 },
    Bound { field: "claim_window_ms", min: 100, max: 86_400_000 },
    Bound { field: "idle_ttl_ms", min: 100, max: 86_400_000 },
];

pub(crate) async fn settings_of_a_room_are_taken_at_their_limits_and_refused_beyond() {
    let service = Service::memory();
    for Bound { field, min, max } in BOUNDS {
        let with = |value: Value| {
            let mut settings = json!({"admit": {"count": 1, "every_ms": 1_000}});
            settings[field] = value;
            service.put_room("edge", settings)
        };
        for value in [json!(min), json!(max), Value::Null] {
            assert!([200, 201].contains(&with(value.clone()).await.status), "{field} {value}");
        }
        // No idle time at all is never.
        let zero = if field == "idle_ttl_ms" { max + 1 } else { 0 };
        for value in [zero, min - 1, max + 1] {
            let range = format!("{field} must be {min} to {max}");
            with(json!(value)).await.refused(400, "invalid_field").about(field, &range);
        }
        for value in [json!(-1), json!(1.5), json!("1"), json!(true), json!([1]), json!({}), json!(1e30)] {
            let kind = format!("{field} must be a whole number within its limits");
            with(value).await.refused(400, "invalid_field").about(field, &kind);
        }
        with(json!(u64::MAX)).await.refused(400, "invalid_field");
    }
    service.put_room("edge", json!({"max_active": 1, "idle_ttl_ms": 0})).await.is(200);
    let rate = |count: Value, every_ms: Value| {
        service.put_room("edge", json!({"admit": {"count": count, "every_ms": every_ms}}))
    };
    for (count, every_ms) in [(1, 100), (1, 86_400_000), (1_000_000, 100), (1_000_000, 86_400_000)] {
        rate(json!(count), json!(every_ms)).await.is(200);
    }
    for count in [0, 1_000_001] {
        let range = "admit.count must be 1 to 1000000";
        rate(json!(count), json!(1_000)).await.refused(400, "invalid_field").about("admit.count", range);
    }
    for every_ms in [0, 99, 86_400_001] {
        let range = "admit.every_ms must be 100 to 86400000";
        rate(json!(1), json!(every_ms)).await.refused(400, "invalid_field").about("admit.every_ms", range);
    }
    for wrong in [json!("1"), json!(-1), json!(0.5), json!(null)] {
        rate(wrong.clone(), json!(1_000)).await.refused(400, "invalid_field");
        rate(json!(1), wrong).await.refused(400, "invalid_field");
    }
}

pub(crate) async fn texts_times_and_targets_of_a_room_are_checked() {
    let service = Service::memory();
    let with = |field: &str, value: Value| {
        let mut settings = json!({"max_active": 1});
        settings[field] = value;
        service.put_room("edge", settings)
    };
    let (long, path) = ("é".repeat(1_024), format!("/{}", "p".repeat(2_047)));
    for (field, value) in [
        ("message", json!(long)),
        ("message", json!("")),
        ("message", json!("<b>&\" 🎫")),
        ("target_url", json!(path)),
        ("target_url", json!("https://shop.example/?a=b#c")),
        ("target_url", json!("http://127.0.0.1:8080")),
        ("opens_at", json!("0001-01-01T00:00:00Z")),
        ("opens_at", json!("9999-12-31T23:59:59.999999Z")),
        ("paused", json!(false)),
    ] {
        let shown = with(field, value.clone()).await;
        assert!([200, 201].contains(&shown.status), "{field}: {}", shown.body());
        if field != "paused" {
            assert_eq!(shown.json()[field], value);
        }
    }
    let (large, control) = ("message must have at most 2048 bytes", "message must have no control characters");
    let (large_url, link) =
        ("target_url must have at most 2048 bytes", "target_url must be an http(s) address or a path");
    let time = "opens_at must be an RFC 3339 time, such as 2030-01-01T00:00:00Z";
    for (field, value, detail) in [
        ("message", json!(long + "x"), large),
        ("message", json!("two\nlines"), control),
        ("message", json!("a\u{0}b"), control),
        ("message", json!(7), "message must be a string"),
        ("target_url", json!(path + "p"), large_url),
        ("target_url", json!(""), link),
        ("target_url", json!("shop"), link),
        ("target_url", json!("//evil.example"), link),
        ("target_url", json!("/\\evil.example"), link),
        ("target_url", json!("javascript:alert(1)"), link),
        ("target_url", json!("data:text/html,x"), link),
        ("target_url", json!("https://a b"), link),
        ("target_url", json!(" https://shop.example"), link),
        ("opens_at", json!("soon"), time),
        ("opens_at", json!(7), "opens_at must be a string"),
        ("paused", json!("yes"), "paused must be a boolean"),
        ("paused", json!(1), "paused must be a boolean"),
    ] {
        with(field, value).await.refused(400, "invalid_field").about(field, detail);
    }
}

pub(crate) async fn a_room_has_a_rate_or_a_number_of_slots_and_no_unknown_field() {
    let service = Service::memory();
    let neither = "admit or max_active must be given";
    for settings in [json!({}), json!({"message": "x"}), json!({"admit": null, "max_active": null})] {
        service.put_room("new", settings).await.refused(400, "invalid_field").about("admit", neither);
    }
    for (settings, field) in [
        (json!({"max_active": 1, "draw": {}}), "draw"),
        (json!({"max_active": 1, "draw": {"beacon": true}}), "draw"),
        (json!({"max_active": 1, "Max_active": 1}), "Max_active"),
        (json!({"max_active": 1, "room": "new"}), "room"),
    ] {
        let answer = service.put_room("new", settings).await.refused(400, "invalid_field");
        assert_eq!(answer.text("field"), field);
    }
    for admit in [
        json!({"count": 1}),
        json!({"every_ms": 1_000}),
        json!({}),
        json!({"count": 1, "every_ms": 1_000, "burst": 1}),
        // serde would take a list for an object whose fields come in order.
        json!([1, 1_000]),
        json!("1/s"),
        json!(1),
    ] {
        service.put_room("new", json!({"admit": admit})).await.refused(400, "invalid_field");
    }
    let answer = service.put_room("new", json!({"admit": [1, 1_000]})).await;
    answer.about("admit", "admit must be an object with count and every_ms");
    let twice = Ask::put("/v1/rooms/new").by(ADMIN).raw("{\"max_active\":1,\"max_active\":2}");
    service.send(twice).await.refused(400, "invalid_field");
    service.send(Ask::get("/v1/rooms/new")).await.refused(404, "unknown_room");
}

pub(crate) async fn settings_change_while_people_wait() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 1, "idle_ttl_ms": 0})).await;
        let mut tickets = Vec::new();
        for _ in 0..4 {
            tickets.push(service.ticket("sale").await);
        }
        let first = service.admitted("sale", &tickets[0]).await;
        let end = service.standing("sale", &tickets[0]).await["pass_expires_at"].clone();
        // More slots let in more; fewer take none away. Slots keep their ends.
        service.make_room("sale", json!({"max_active": 3, "active_ttl_ms": 60_000, "idle_ttl_ms": 0})).await;
        service.tick().await;
        for ticket in &tickets[1..3] {
            assert_eq!(service.state("sale", ticket).await, "admitted");
        }
        assert_eq!(service.standing("sale", &tickets[0]).await["pass_expires_at"], end);
        let shorter = service.standing("sale", &tickets[1]).await;
        assert_eq!(shorter["pass_expires_at"], service.later(60_000));
        service.make_room("sale", json!({"max_active": 1, "idle_ttl_ms": 0})).await;
        service.tick().await;
        assert_eq!(service.room("sale").await["active"], 3);
        assert_eq!(service.wrong_with("sale", &first).await, None);
        for ticket in &tickets[..2] {
            service.leave("sale", ticket).await.is(204);
        }
        service.tick().await;
        assert_eq!(service.standing("sale", &tickets[3]).await["position"], 0);
        assert_eq!(service.state("sale", &tickets[3]).await, "waiting", "one slot is taken still");
        // Fewer may wait than wait now: those stay, no visitor joins.
        service.ticket("sale").await;
        service.make_room("sale", json!({"max_active": 1, "max_waiting": 1})).await;
        service.send(join("sale")).await.refused(409, "room_full");
        service.leave("sale", &tickets[2]).await.is(204);
        service.tick().await;
        assert_eq!(service.state("sale", &tickets[3]).await, "admitted");
    })
    .await;
}
