//! Hand-off codes: a visitor goes from the page of a room to a site on another host, whose back end redeems the code once.

use super::page::{Browser, phase};
use super::place;
use crate::service::{ADMIN, Answer, Ask, SERVICE, Service};
use serde_json::json;

const KEY: &str = "arrival-1";
const OTHER: &str = "arrival-2";

fn hand_off(room: &str, ticket: &str) -> Ask {
    Ask::post(&format!("{}/handoff", place(room, ticket)))
}

fn redeem(room: &str, code: &str, key: &str) -> Ask {
    Ask::post(&format!("/v1/rooms/{room}/handoffs")).by(SERVICE).once(key).json(&json!({"code": code}))
}

fn gate(pass: &str) -> Ask {
    Ask::get("/v1/rooms/sale/gate").header("x-firstcome-pass", pass)
}

pub(crate) async fn a_code_is_redeemed_once_and_moves_the_place() {
    let service = Service::memory();
    service.make_room("sale", json!({"max_active": 1})).await;
    let (first, behind) = (service.ticket_of("sale", "ann").await, service.ticket("sale").await);
    service.send(hand_off("sale", &behind)).await.refused(409, "not_admitted");
    service.admitted("sale", &first).await;
    let handoff = service.send(hand_off("sale", &first)).await.is(200);
    let spare = service.send(hand_off("sale", &first)).await.is(200).text("code");
    assert_eq!(handoff.text("expires_at"), "2030-01-01T00:01:00Z", "a minute");
    let code = handoff.text("code");
    assert_eq!(service.state("sale", &first).await, "admitted", "a code alone voids nothing");
    let place = service.send(redeem("sale", &code, KEY)).await.is(200);
    let second = place.text("ticket");
    assert!(place.json()["number"] == 1 && place.json()["user"] == "ann" && second != first, "{}", place.body());
    let entered = service.send(gate(&place.text("pass"))).await.is(204);
    assert_eq!(entered.header("x-firstcome-user"), Some("ann"));
    assert_eq!(service.send(redeem("sale", &code, KEY)).await.is(200).text("ticket"), second, "a lost answer");
    service.send(redeem("sale", &code, OTHER)).await.refused(409, "handoff_used");
    service.send(redeem("sale", &spare, OTHER)).await.refused(409, "handoff_used");
    service.poll("sale", &first).await.refused(409, "ticket_renewed");
    service.send(hand_off("sale", &first)).await.refused(409, "ticket_renewed");
    assert_eq!(service.state("sale", &second).await, "admitted");
}

pub(crate) async fn a_code_is_refused_to_strangers_after_a_minute_and_elsewhere() {
    let service = Service::memory();
    for room in ["sale", "other"] {
        service.make_room(room, json!({"max_active": 1})).await;
    }
    let ticket = service.ticket("sale").await;
    service.admitted("sale", &ticket).await;
    let code = service.send(hand_off("sale", &ticket)).await.is(200).text("code");
    let body = json!({"code": code});
    let path = "/v1/rooms/sale/handoffs";
    service.send(Ask::post(path).once(KEY).json(&body)).await.refused(401, "unauthorized");
    service.send(Ask::post(path).by(SERVICE).json(&body)).await.refused(400, "invalid_idempotency_key");
    service.send(Ask::post(path).by(SERVICE).once(KEY).json(&json!({}))).await.refused(400, "invalid_field");
    service.send(redeem("none", &code, KEY)).await.refused(404, "unknown_room");
    service.send(hand_off("none", &ticket)).await.refused(404, "unknown_room");
    service.send(hand_off("sale", "AAAA")).await.refused(404, "unknown_ticket");
    for (room, wrong) in [("other", code.as_str()), ("sale", &ticket), ("sale", ""), ("sale", &code[..40])] {
        service.send(redeem(room, wrong, KEY)).await.refused(403, "invalid_handoff");
    }
    service.poll("sale", &code).await.refused(404, "unknown_ticket");
    service.set_clock(60);
    service.send(redeem("sale", &code, KEY)).await.refused(403, "invalid_handoff");
    let fresh = service.send(hand_off("sale", &ticket)).await.is(200).text("code");
    service.send(redeem("sale", &fresh, KEY).by(ADMIN)).await.is(200);
}

/// Lets a browser join the room and be admitted.
async fn inside<'a>(service: &'a Service, target: &str) -> (Browser<'a>, Answer) {
    service.make_room("sale", json!({"max_active": 1, "target_url": target})).await;
    let mut ann = Browser::new(service);
    ann.join().await;
    service.tick().await;
    let page = ann.page().await.is(200);
    assert_eq!(phase(&page), "admitted");
    (ann, page)
}

pub(crate) async fn the_page_leads_to_another_host_with_a_code_that_leaves_no_trace() {
    let service = Service::memory();
    let (mut ann, page) = inside(&service, "https://site.example/in?x=1#top").await;
    assert!(page.body().contains("href=\"/rooms/sale/enter\""), "{}", page.body());
    assert_eq!(ann.told().await["go"], "/rooms/sale/enter");
    let led = ann.send(Ask::get("/rooms/sale/enter")).await.is(303);
    assert_eq!((led.header("referrer-policy"), led.header("cache-control")), (Some("no-referrer"), Some("no-store")));
    let location = led.header("location").expect("a location");
    let code = location.strip_prefix("https://site.example/in?x=1&firstcome_handoff=").expect("the site");
    let code = code.strip_suffix("#top").expect("the fragment");
    // A prefetcher opens the address too, and spends nothing.
    ann.send(Ask::get("/rooms/sale/enter")).await.is(303);
    assert_eq!(phase(&ann.page().await), "admitted");
    service.send(redeem("sale", code, KEY)).await.is(200);
    let page = ann.page().await;
    assert_eq!(phase(&page), "moved");
    assert!(page.body().contains("href=\"https://site.example/in?x=1#top\""), "the way back: {}", page.body());
    let led = ann.send(Ask::get("/rooms/sale/enter")).await.is(303);
    assert_eq!(led.header("location"), Some("/rooms/sale"));
    // A visitor in line has nothing to hand off.
    let mut bob = Browser::new(&service);
    bob.join().await;
    assert_eq!(bob.send(Ask::get("/rooms/sale/enter")).await.is(303).header("location"), Some("/rooms/sale"));
    let stranger = Browser::new(&service).send(Ask::get("/rooms/sale/enter")).await.is(303);
    assert_eq!(stranger.header("location"), Some("/rooms/sale"));
}

pub(crate) async fn the_page_makes_no_code_for_its_own_host() {
    let service = Service::memory();
    let (mut ann, page) = inside(&service, "http://shop.example:3000/in").await;
    assert!(page.body().contains("href=\"http://shop.example:3000/in\""), "{}", page.body());
    let led = ann.send(Ask::get("/rooms/sale/enter")).await.is(303);
    assert_eq!(led.header("location"), Some("http://shop.example:3000/in"));
    // A visitor who goes back to a page of this host needs none either.
    assert_eq!(
        ann.send(Ask::get("/rooms/sale?back=%2Fcart").header("accept", "application/json")).await.json()["go"],
        "/cart"
    );
}
