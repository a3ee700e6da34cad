//! A ticket is a visitor whose who has it: no visitor makes one up, alters one, or uses it elsewhere.

use super::{flipped, place};
use crate::running::{Running, patient, request};
use crate::service::{STRANGER, Service, config};
use crate::stores::on_each;
use firstcome_server::Config;
use serde_json::json;

pub(crate) async fn no_altered_ticket_is_one() {
    let service = Service::memory();
    service.make_room("sale", json!({"max_active": 1, "paused": true})).await;
    let longest = "u".repeat(128);
    for ticket in [service.ticket("sale").await, service.ticket_of("sale", &longest).await] {
        let shorter = (1..ticket.len()).map(|length| ticket[..length].to_owned());
        let longer = ["A", "=", "AAAA", "%20", "%00", "."].map(|end| format!("{ticket}{end}"));
        let others = ["x".into(), "%C3%A9".into(), "A".repeat(300), "A".repeat(9_000), format!("{ticket}{ticket}")];
        for wrong in flipped(&ticket).chain(shorter).chain(longer).chain(others) {
            service.poll("sale", &wrong).await.refused(404, "unknown_ticket");
            service.leave("sale", &wrong).await.refused(404, "unknown_ticket");
        }
        assert_eq!(service.state("sale", &ticket).await, "waiting");
    }
    for wrong in ["%FF", "a%FF"] {
        service.poll("sale", wrong).await.refused(400, "invalid_name");
    }
    assert_eq!(service.room("sale").await["waiting"], 2);
}

pub(crate) async fn a_ticket_is_good_in_its_room_and_its_service_only() {
    on_each(async |service| {
        let other = Service::memory();
        for it in [service, &other] {
            for room in ["sale", "sale2"] {
                it.make_room(room, json!({"max_active": 1, "paused": true})).await;
                it.ticket(room).await;
            }
        }
        // The same number in another room, and the same room elsewhere.
        let ticket = service.ticket("sale").await;
        service.ticket("sale2").await;
        other.ticket("sale").await;
        for (elsewhere, room) in [(service, "sale2"), (&other, "sale"), (&other, "sale2")] {
            elsewhere.poll(room, &ticket).await.refused(404, "unknown_ticket");
            elsewhere.leave(room, &ticket).await.refused(404, "unknown_ticket");
        }
        assert_eq!(service.standing("sale", &ticket).await["number"], 2);
    })
    .await;
}

pub(crate) async fn who_leaves_frees_the_place_and_stays_gone() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 1})).await;
        let [first, second, third] =
            [service.ticket("sale").await, service.ticket("sale").await, service.ticket_of("sale", "ann").await];
        let pass = service.admitted("sale", &first).await;
        assert_eq!(service.standing("sale", &third).await["position"], 1);
        for _ in 0..3 {
            service.leave("sale", &second).await.is(204);
        }
        assert_eq!(service.standing("sale", &third).await["position"], 0);
        // Out of a slot: it is free at once, and its pass is void.
        for _ in 0..3 {
            service.leave("sale", &first).await.is(204);
        }
        assert_eq!(service.wrong_with("sale", &pass).await.as_deref(), Some("over"));
        service.admitted("sale", &third).await;
        for ticket in [&first, &second] {
            let gone = service.standing("sale", ticket).await;
            assert_eq!((&gone["state"], &gone["position"], &gone["eta_ms"]), (&json!("left"), &json!(0), &json!(null)));
            assert!(gone.get("pass").is_none() && gone.get("admitted_at").is_none(), "{gone}");
            assert_eq!(gone["poll_after_ms"], 0, "there is nothing to ask for");
        }
        service.leave("sale", &third).await.is(204);
        assert_eq!(service.state("sale", &third).await, "left");
        assert_eq!(service.room("sale").await["active"], 0);
    })
    .await;
}

/// Most polls are answered before the router: no visitor may see a difference.
pub(crate) async fn a_poll_is_answered_alike_with_and_without_the_router() {
    let shop = "https://shop.example";
    let allow_origins = vec![shop.parse().expect("a value")];
    let running = Running::with(Config { limits: patient(), allow_origins, ..config() }).await;
    let service = &running.service;
    service.make_room("sale", json!({"max_active": 1})).await;
    let [first, second] = [service.ticket("sale").await, service.ticket("sale").await];
    service.tick().await;
    let path = place("sale", &second);
    let spelt = path.replacen("sale", "s%61le", 1);
    let stranger = format!("authorization: Bearer {STRANGER}\r\n");
    let rows = [
        (path.clone(), String::new(), 200),
        (spelt, String::new(), 200),
        (path.clone(), format!("origin: {shop}\r\n"), 200),
        (path.clone(), stranger, 401),
        (format!("{path}A"), String::new(), 404),
        (place("none", &second), String::new(), 404),
        (place("-", &second), String::new(), 400),
        (place("sale", &first), String::new(), 200),
        (format!("{path}/more"), String::new(), 404),
    ];
    for (path, headers, status) in rows {
        let answer = running.exchange(request(&format!("GET {path}"), &headers, "")).await;
        assert_eq!(answer.status, status, "{path} {headers}");
        if status == 200 {
            assert_eq!(answer.header("cache-control"), Some("no-store"));
            assert_eq!(answer.header("content-type"), Some("application/json"));
            let allowed = answer.header("access-control-allow-origin");
            assert_eq!(allowed, headers.starts_with("origin").then_some(shop), "{path} {headers}");
            let ticket = if path.contains(&first) { &first } else { &second };
            let mut without = service.standing("sale", ticket).await;
            let mut with = answer.json();
            for it in [&mut without, &mut with] {
                it["as_of"].take();
            }
            assert_eq!(with, without, "{path}");
        }
    }
    assert!(0 < running.figure("firstcome_http_requests_total{route=\"get_ticket\",status=\"200\"}").await);
}
