//! Failed authentications are limited per address: what an address shows after too many of them is refused unread. No
//! other address waits for it.

use crate::running::{Running, patient, request};
use crate::service::{ADMIN, Answer, SERVICE, Service, config};
use firstcome_server::rate::RateLimit;
use firstcome_server::{Config, FailureLimits};
use serde_json::json;
use std::num::NonZeroU32;

const ATTACKER: &str = "127.0.0.2";
const OTHER: &str = "127.0.0.3";

/// One failure a second, and so many at once.
fn failing(burst: u32) -> Config {
    let limit =
        RateLimit { per_minute: NonZeroU32::new(60).expect("not zero"), burst: burst.try_into().expect("not zero") };
    let failures = FailureLimits { address: Some(limit), network: None, total: None };
    Config { limits: patient(), calls: None, failures, ..config() }
}

async fn ask_from(running: &Running, from: &str, request: impl AsRef<[u8]>) -> Answer {
    let mut peer = running.connect_from(from).await;
    peer.send(request).await;
    peer.answer().await
}

fn show_by(key: &str) -> String {
    format!("GET /v1/coupons/launch HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {key}\r\n\r\n")
}

fn claim_by_pass(pass: &str) -> String {
    let headers = format!("x-firstcome-pass: {pass}\r\ncontent-type: application/json\r\n");
    request("POST /v1/coupons/launch/claims", &headers, "{}")
}

/// Changes one character of the signature, within the part that is text of every pass.
fn forged(pass: &str) -> String {
    let at = pass.rfind('.').expect("a footer") - 10;
    let other = if &pass[at..=at] == "A" { "B" } else { "A" };
    format!("{}{other}{}", &pass[..at], &pass[at + 1..])
}

fn is_limited(answer: Answer, limit: &str) {
    let told = answer.refused(429, "rate_limited");
    assert_eq!((told.header("retry-after"), told.text("limit").as_str()), (Some("1"), limit));
}

#[tokio::test]
async fn keys_of_an_address_that_tried_too_many_are_refused_unread_and_other_addresses_are_served() {
    let running = Running::with(failing(4)).await;
    running.service.make("launch", json!({"limit": 9})).await;
    for tried in 0..4 {
        ask_from(&running, ATTACKER, show_by(&format!("wrong-{tried}"))).await.refused(401, "unauthorized");
    }
    for key in ["wrong-5", ADMIN] {
        is_limited(ask_from(&running, ATTACKER, show_by(key)).await, "address");
    }
    // Calls without a key have a limit of their own.
    ask_from(&running, ATTACKER, "GET /v1/coupons/launch HTTP/1.1\r\nhost: a\r\n\r\n").await.is(200);
    ask_from(&running, OTHER, show_by(SERVICE)).await.is(200);
    ask_from(&running, OTHER, show_by("wrong")).await.refused(401, "unauthorized");
    assert_eq!(running.figure("firstcome_authentication_failures_total{credential=\"key\"}").await, 5);
    assert_eq!(running.figure("firstcome_authentications_refused_total{limit=\"address\"}").await, 2);
    running.service.clock.pass_ms(1_000);
    ask_from(&running, ATTACKER, show_by(ADMIN)).await.is(200);
}

#[tokio::test]
async fn an_address_that_has_shown_a_valid_key_keeps_it_beside_a_neighbour_that_guesses() {
    let running = Running::with(failing(4)).await;
    running.service.make("launch", json!({"limit": 9})).await;
    ask_from(&running, ATTACKER, show_by(SERVICE)).await.is(200);
    for tried in 0..4 {
        ask_from(&running, ATTACKER, show_by(&format!("wrong-{tried}"))).await.refused(401, "unauthorized");
    }
    for _ in 0..5 {
        is_limited(ask_from(&running, ATTACKER, show_by("wrong")).await, "address");
        ask_from(&running, ATTACKER, show_by(SERVICE)).await.is(200);
    }
}

#[tokio::test]
async fn an_answer_that_needed_no_key_proves_none() {
    let running = Running::with(failing(2)).await;
    running.service.make_room("lobby", json!({"max_active": 9})).await;
    running.service.make("launch", json!({"limit": 9})).await;
    let pass = running.service.pass("lobby").await;
    let gate = format!(
        "GET /v1/rooms/lobby/gate HTTP/1.1\r\nhost: a\r\nauthorization: Basic eA==\r\nx-firstcome-pass: {pass}\r\n\r\n"
    );
    ask_from(&running, ATTACKER, gate).await.is(204);
    for _ in 0..2 {
        ask_from(&running, ATTACKER, show_by("wrong")).await.refused(401, "unauthorized");
    }
    is_limited(ask_from(&running, ATTACKER, show_by(SERVICE)).await, "address");
}

#[tokio::test]
async fn forged_passes_are_refused_before_their_signature_is_verified_and_known_passes_are_served() {
    let first = Service::memory_with(failing(3));
    first.make_room("sale", json!({"max_active": 9, "active_ttl_ms": 600_000})).await;
    first.make("launch", json!({"limit": 9, "room": "sale"})).await;
    let elsewhere = first.pass("sale").await;
    // Another process over the same store: it has not seen that pass.
    let service = Service::new(first.store.clone(), first.clock.clone(), failing(3));
    let here = service.pass("sale").await;
    let running = Running::over(service).await;
    for _ in 0..3 {
        let told = ask_from(&running, ATTACKER, claim_by_pass(&forged(&here))).await.refused(403, "invalid_pass");
        assert_eq!(told.text("reason"), "forged");
    }
    is_limited(ask_from(&running, ATTACKER, claim_by_pass(&forged(&here))).await, "address");
    // Only its signature says whether it is forged, so this one waits too.
    is_limited(ask_from(&running, ATTACKER, claim_by_pass(&elsewhere)).await, "address");
    ask_from(&running, ATTACKER, claim_by_pass(&here)).await.is(201);
    ask_from(&running, OTHER, claim_by_pass(&elsewhere)).await.is(201);
    assert_eq!(running.figure("firstcome_authentication_failures_total{credential=\"pass\"}").await, 3);
    let again = ask_from(&running, ATTACKER, claim_by_pass(&elsewhere)).await;
    again.refused(409, "already_issued");
}

#[tokio::test]
async fn forged_tickets_are_limited_and_tickets_of_the_room_are_served() {
    let running = Running::with(failing(3)).await;
    running.service.make_room("sale", json!({"max_active": 1, "paused": true})).await;
    let ticket = running.service.ticket("sale").await;
    let poll = |ticket: &str| format!("GET /v1/rooms/sale/tickets/{ticket} HTTP/1.1\r\nhost: a\r\n\r\n");
    for _ in 0..3 {
        ask_from(&running, ATTACKER, poll("none")).await.refused(404, "unknown_ticket");
    }
    is_limited(ask_from(&running, ATTACKER, poll("none")).await, "address");
    ask_from(&running, ATTACKER, poll(&ticket)).await.is(200);
    ask_from(&running, OTHER, poll("none")).await.refused(404, "unknown_ticket");
}

#[tokio::test]
async fn what_visitors_show_to_a_back_end_is_not_held_against_it() {
    let running = Running::with(failing(2)).await;
    running.service.make_room("sale", json!({"max_active": 9})).await;
    let poll =
        |key: &str| request("GET /v1/rooms/sale/tickets/never-given", &format!("authorization: Bearer {key}\r\n"), "");
    for _ in 0..9 {
        ask_from(&running, ATTACKER, poll(SERVICE)).await.refused(404, "unknown_ticket");
    }
    assert_eq!(running.figure("firstcome_authentication_failures_total{credential=\"ticket\"}").await, 0);
    // A key that is none makes no back end.
    for _ in 0..2 {
        ask_from(&running, OTHER, poll("wrong")).await.refused(401, "unauthorized");
    }
    is_limited(ask_from(&running, OTHER, poll("wrong")).await, "address");
}

#[tokio::test]
async fn wrong_logins_count_as_failed_authentications() {
    let running = Running::with(failing(3)).await;
    let login = |key: &str| {
        let headers = "accept: application/json\r\ncontent-type: application/x-www-form-urlencoded\r\n";
        request("POST /dashboard/login", headers, &format!("key={key}"))
    };
    for _ in 0..3 {
        ask_from(&running, ATTACKER, login("wrong")).await.refused(401, "unauthorized");
    }
    is_limited(ask_from(&running, ATTACKER, login(ADMIN)).await, "address");
    is_limited(ask_from(&running, ATTACKER, show_by(ADMIN)).await, "address");
    ask_from(&running, OTHER, login(ADMIN)).await.is(303);
}

#[tokio::test]
async fn no_name_of_an_object_makes_its_path_one_where_keys_are_read_unlimited() {
    let running = Running::with(failing(2)).await;
    running.service.make_room("gate", json!({"max_active": 9})).await;
    let look = |key: &str| request("GET /v1/rooms/gate", &format!("authorization: Bearer {key}\r\n"), "");
    for _ in 0..2 {
        ask_from(&running, ATTACKER, look("wrong")).await.refused(401, "unauthorized");
    }
    for key in ["wrong", ADMIN] {
        is_limited(ask_from(&running, ATTACKER, look(key)).await, "address");
    }
    ask_from(&running, OTHER, look(SERVICE)).await.is(200);
}

#[tokio::test]
async fn a_gate_reads_no_more_texts_of_a_guesser_than_it_may_fail_and_holds_none_against_visitors() {
    let calls = RateLimit { per_minute: NonZeroU32::new(60).expect("not zero"), burst: NonZeroU32::new(3).expect("3") };
    let running = Running::with(Config { calls: Some(calls), ..failing(2) }).await;
    running.service.make_room("sale", json!({"max_active": 9})).await;
    running.service.make("launch", json!({"limit": 9})).await;
    let gate = |key: &str| request("GET /v1/rooms/sale/gate", &format!("authorization: Bearer {key}\r\n"), "");
    let asked = async |from: &str, key: &str| ask_from(&running, from, gate(key)).await;
    for _ in 0..3 {
        asked(ATTACKER, "wrong").await.refused(401, "no_pass");
    }
    // Both texts and calls are used up: a key is not told from another text.
    for key in ["wrong", SERVICE] {
        asked(ATTACKER, key).await.refused(429, "rate_limited");
    }
    assert_eq!(running.figure("firstcome_authentication_failures_total{credential=\"key\"}").await, 0);
    ask_from(&running, ATTACKER, show_by(SERVICE)).await.is(200);
    // An address that has shown a valid key is read on, and so is a back end that asks gates alone.
    for _ in 0..9 {
        asked(ATTACKER, SERVICE).await.refused(401, "no_pass");
        asked(OTHER, SERVICE).await.refused(401, "no_pass");
    }
}

#[tokio::test]
async fn passes_that_visitors_show_are_not_held_against_the_back_end_that_asks_a_gate() {
    let running = Running::with(failing(2)).await;
    running.service.make_room("sale", json!({"max_active": 9, "active_ttl_ms": 600_000})).await;
    let pass = forged(&running.service.pass("sale").await);
    let headers = format!("authorization: Bearer {SERVICE}\r\nx-firstcome-pass: {pass}\r\n");
    for _ in 0..9 {
        let told = ask_from(&running, OTHER, request("GET /v1/rooms/sale/gate", &headers, "")).await;
        assert_eq!(told.refused(403, "invalid_pass").text("reason"), "forged");
    }
    assert_eq!(running.figure("firstcome_authentication_failures_total{credential=\"pass\"}").await, 0);
}

#[tokio::test]
async fn thousands_of_wrong_keys_of_one_address_get_a_handful_of_answers() {
    let running = Running::with(Config { limits: patient(), ..config() }).await;
    let mut peer = running.connect_from(ATTACKER).await;
    let mut answered = 0;
    for _ in 0..1_000 {
        peer.send(show_by("wrong")).await;
        answered += u32::from(peer.answer().await.status == 401);
    }
    assert_eq!(answered, 15, "a quarter of 60 a minute at once");
    ask_from(&running, OTHER, "GET /metrics HTTP/1.1\r\nhost: a\r\nauthorization: Bearer wrong\r\n\r\n").await.is(401);
    assert_eq!(running.figure("firstcome_authentication_failures_total{credential=\"key\"}").await, 16);
}
