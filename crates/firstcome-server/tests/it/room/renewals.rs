//! Tickets that are renewed: by a call, and by the recovery link of the page.

use super::page::{Browser, link, phase, sale, take_form};
use super::place;
use crate::service::{ADMIN, Answer, Ask, SERVICE, Service};
use serde_json::json;

const KEY: &str = "a-key-that-is-hard-to-guess-1";
const OTHER: &str = "a-key-that-is-hard-to-guess-2";

fn renew(ticket: &str, key: &str) -> Ask {
    Ask::post(&format!("{}/renew", place("sale", ticket))).once(key)
}

async fn paused() -> Service {
    let service = Service::memory();
    service.make_room("sale", json!({"max_active": 1, "paused": true})).await;
    service
}

pub(crate) async fn a_ticket_is_renewed_once_and_the_old_one_is_void() {
    let service = paused().await;
    let (first, behind) = (service.ticket_of("sale", "ann").await, service.ticket("sale").await);
    let told = service.send(renew(&first, KEY)).await.is(200);
    let second = told.text("ticket");
    assert!(told.json()["number"] == 1 && second != first, "{}", told.body());
    assert_eq!(service.standing("sale", &second).await["position"], 0);
    service.poll("sale", &first).await.refused(409, "ticket_renewed");
    service.leave("sale", &first).await.refused(409, "ticket_renewed");
    service.send(Ask::get(&format!("{}/events", place("sale", &first)))).await.refused(409, "ticket_renewed");
    service.send(renew(&first, OTHER)).await.refused(409, "ticket_renewed");
    assert_eq!(service.send(renew(&first, KEY)).await.is(200).text("ticket"), second, "a repeat");
    // A back end that asks again for the user is given the ticket that counts.
    let again = service.send(super::join_as("sale", "ann")).await.is(200);
    assert_eq!(again.text("ticket"), second);
    assert_eq!(service.standing("sale", &behind).await["position"], 1);
    service.leave("sale", &second).await.is(204);
    let gone = service.send(renew(&second, KEY)).await.is(200);
    assert_eq!((gone.text("state").as_str(), gone.text("ticket")), ("left", second));
}

pub(crate) async fn a_renewal_needs_a_key_that_is_repeated() {
    let service = paused().await;
    let ticket = service.ticket("sale").await;
    let without = Ask::post(&format!("{}/renew", place("sale", &ticket)));
    service.send(without).await.refused(400, "invalid_idempotency_key");
    service.send(renew(&ticket, "short")).await.refused(400, "invalid_idempotency_key");
    service.send(renew("AAAA", KEY)).await.refused(404, "unknown_ticket");
    let elsewhere = Ask::post(&format!("{}/renew", place("none", &ticket))).once(KEY);
    service.send(elsewhere).await.refused(404, "unknown_room");
    assert_eq!(service.state("sale", &ticket).await, "waiting", "nothing was renewed");
    // The key of a back end is another one than the same text of a visitor.
    let by_back_end = service.send(renew(&ticket, KEY).by(SERVICE)).await.is(200).text("ticket");
    service.send(renew(&ticket, KEY)).await.refused(409, "ticket_renewed");
    assert_eq!(service.send(renew(&ticket, KEY).by(SERVICE)).await.is(200).text("ticket"), by_back_end);
}

pub(crate) async fn a_link_works_once_and_moves_the_place() {
    let service = sale(json!({"max_active": 1})).await;
    let [mut phone, mut desk, mut thief] = [0; 3].map(|_| Browser::new(&service));
    phone.join().await;
    let used = link(&phone.ticket());
    // All of them open the link before any of them presses the button.
    for browser in [&mut desk, &mut thief] {
        assert_eq!(phase(&browser.send(Ask::get(&used)).await.is(503)), "offer");
    }
    assert_eq!(phase(&desk.follow(take_form(&used)).await), "almost");
    let page = thief.follow(take_form(&used)).await;
    assert_eq!(phase(&page), "moved", "the link was used");
    assert!(!page.body().contains("place.svg"), "{}", page.body());
    // The answer to the press may be lost: the browser presses again, and has the same place.
    let ticket = desk.ticket();
    assert_eq!(phase(&desk.follow(take_form(&used)).await), "almost");
    assert_eq!(desk.ticket(), ticket);
    // The page before says so, in its language, and to its script.
    assert_eq!(phase(&phone.page().await), "moved");
    let told = phone.told().await;
    assert_eq!((&told["phase"], &told["poll_after_ms"]), (&json!("moved"), &json!(null)));
    let korean = phone.send(Ask::get("/rooms/sale").header("accept-language", "ko")).await;
    assert!(korean.body().contains("순서가 다른 기기로 옮겨졌습니다"), "{}", korean.body());
    // It leaves nothing, and may join anew.
    phone.follow(Ask::post("/rooms/sale/leave")).await;
    assert_eq!(phase(&desk.page().await), "almost", "the old page cannot leave for the new one");
    phone.join().await;
    assert_eq!(phase(&phone.page().await), "waiting");
    // The new page has a link of its own, which works once too.
    assert_eq!(phase(&thief.take(&link(&desk.ticket())).await), "almost");
    assert_eq!(phase(&desk.page().await), "moved");
}

pub(crate) async fn a_look_at_a_link_spends_nothing_and_keeps_its_offer_in_each_language() {
    let service = sale(json!({"max_active": 1})).await;
    let [mut phone, mut desk] = [0; 2].map(|_| Browser::new(&service));
    phone.join().await;
    let offered = link(&phone.ticket());
    // Previews and prefetchers keep no cookies.
    for _ in 0..3 {
        let preview = service.send(Ask::get(&offered)).await.is(503);
        assert_eq!((phase(&preview).as_str(), preview.header("refresh")), ("offer", None));
    }
    assert_eq!(phase(&phone.page().await), "almost");
    let page = desk.follow(Ask::get(&format!("{offered}&lang=ar&back=%2Fcart"))).await.is(503);
    assert_eq!(phase(&page), "offer", "a language does not drop the offer");
    assert!(page.body().contains("lang=\"ar\"") && page.body().contains("خذ المكان"), "{}", page.body());
    assert!(page.body().contains("/rooms/sale/take?back=%2Fcart"), "{}", page.body());
    assert_eq!(page.body().matches(&phone.ticket()).count(), 2, "in the button's form, and in that of the languages");
    assert_eq!(phase(&desk.follow(take_form(&offered)).await), "almost");
    // The own link offers nothing to the browser that has the place.
    let own = link(&desk.ticket());
    assert_eq!(phase(&desk.follow(Ask::get(&own)).await), "almost");
    let json = Ask::get("/rooms/sale?ticket=2.AAAA").header("accept", "application/json");
    desk.send(json).await.refused(404, "unknown_ticket");
}

pub(crate) async fn a_link_is_not_spent_by_another_site_or_without_cookies() {
    let service = sale(json!({"max_active": 1})).await;
    let [mut phone, mut desk] = [0; 2].map(|_| Browser::new(&service));
    phone.join().await;
    let offered = link(&phone.ticket());
    let page = desk.send(Ask::get(&offered)).await;
    assert_eq!(phase(&page), "offer");
    let foreign = desk.follow(take_form(&offered).header("sec-fetch-site", "cross-site")).await;
    assert_eq!(phase(&foreign), "offer", "the visitor decides");
    let without: Answer = service.send(take_form(&offered)).await.is(303);
    let page = service.send(Ask::get(without.header("location").expect("a page"))).await;
    assert_eq!(phase(&page), "cookies", "a browser that keeps no cookies would lose the place");
    let no_ticket =
        Ask::post("/rooms/sale/take").raw("x=1").header("content-type", "application/x-www-form-urlencoded");
    service.send(no_ticket.header("accept", "application/json")).await.refused(400, "invalid_query");
    assert_eq!(phase(&phone.page().await), "almost", "nothing was spent");
    assert_eq!(phase(&desk.follow(take_form(&offered)).await), "almost");
}

pub(crate) async fn a_link_into_a_closed_room_offers_no_place() {
    let service = sale(json!({"max_active": 1})).await;
    let [mut phone, mut desk] = [0; 2].map(|_| Browser::new(&service));
    phone.join().await;
    let offered = link(&phone.ticket());
    assert!(desk.send(Ask::get(&offered)).await.is(503).body().contains("action=\"/rooms/sale/take\""));
    service.send(Ask::delete("/v1/rooms/sale").by(ADMIN)).await.is(204);
    for browser in [&mut desk, &mut Browser::new(&service)] {
        let page = browser.send(Ask::get(&offered)).await.is(410);
        assert_eq!(phase(&page), "over");
        assert!(!page.body().contains("/rooms/sale/take"), "no button leads to a place: {}", page.body());
    }
    // The page that was loaded before still has its button.
    assert_eq!(phase(&desk.follow(take_form(&offered)).await.is(410)), "over");
}

pub(crate) async fn a_link_to_a_coupon_that_is_gone_offers_no_place() {
    let service = paused().await;
    service.make("launch", json!({"limit": 1, "room": "sale"})).await;
    let [mut phone, mut desk] = [0; 2].map(|_| Browser::new(&service));
    phone.join().await;
    let offered = format!("{}&back=%2Fcoupons%2Flaunch", link(&phone.ticket()));
    assert_eq!(phase(&desk.send(Ask::get(&offered)).await.is(503)), "offer");
    service.send(Ask::delete("/v1/coupons/launch").by(ADMIN)).await.is(204);
    let page = desk.send(Ask::get(&offered)).await.is(410);
    assert_eq!(phase(&page), "ended");
    assert!(!page.body().contains("/rooms/sale/take"), "{}", page.body());
}
