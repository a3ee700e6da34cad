//! Work before a join: what counts, what does not, and one place for one challenge.

use super::page::{Browser, phase};
use super::{flipped, join, join_as};
use crate::service::{ADMIN, Answer, Ask, SERVICE, Service, config};
use crate::stores::clock;
use firstcome::work::{WorkBits, is_solved, solve};
use firstcome::{Embedded, HandleKey, Locks};
use firstcome_server::rate::RateLimit;
use firstcome_server::{App, Config, JoinLimits};
use serde_json::json;
use std::num::NonZeroU32;
use std::sync::Arc;

const HERE: &str = "203.0.113.7";
/// How long a challenge of few bits counts: the shortest wait, and five minutes.
const LIFE_MS: u64 = 305_000;
const WAIT_MS: u64 = 5_000;

fn bits() -> WorkBits {
    WorkBits::new(8).expect("within the limits")
}

fn demanding() -> Config {
    Config { join_work: Some(bits()), ..config() }
}

async fn open(service: &Service) {
    for room in ["sale", "other"] {
        service.make_room(room, json!({"max_active": 1, "paused": true})).await;
    }
}

async fn service() -> Service {
    let service = Service::memory_with(demanding());
    open(&service).await;
    service
}

/// The challenge that a join without work is told.
async fn challenge(service: &Service, room: &str) -> String {
    service.send(join(room)).await.refused(403, "work_required").text("challenge")
}

async fn solution(service: &Service, room: &str) -> String {
    solve(&challenge(service, room).await, bits())
}

/// A join that shows this work.
fn shown(room: &str, work: &str) -> Ask {
    join(room).header("x-firstcome-work", work)
}

/// Is told that the work does not count, and why.
#[track_caller]
fn refused(answer: Answer, reason: &str) -> Answer {
    let answer = answer.refused(403, "work_required");
    assert_eq!(answer.text("reason"), reason);
    answer
}

pub(crate) async fn a_join_without_work_is_told_a_challenge_and_its_solution_draws_a_number() {
    let limit = Some(RateLimit { per_minute: NonZeroU32::MIN, burst: NonZeroU32::MIN });
    let service = Service::memory_with(Config { joins: JoinLimits::of_address(limit), ..demanding() });
    open(&service).await;
    // What is told here costs no join of the address.
    for _ in 0..3 {
        let told = refused(service.send(join("sale").from(HERE)).await, "absent").json();
        assert_eq!((&told["bits"], &told["wait_ms"]), (&json!(8), &json!(5_000)), "{told}");
    }
    assert_eq!(service.room("sale").await["waiting"], 0);
    let work = solution(&service, "sale").await;
    assert_eq!(service.send(shown("sale", &work).from(HERE)).await.is(201).json()["number"], 1);
    let work = solution(&service, "sale").await;
    service.send(shown("sale", &work).from(HERE)).await.refused(429, "rate_limited");
    // A back end does no work, and joins for users.
    for key in [SERVICE, ADMIN] {
        service.send(join("sale").by(key)).await.is(201);
    }
    service.send(join_as("sale", "ann")).await.is(201);
    service.send(join_as("sale", "bob").without("authorization")).await.refused(401, "unauthorized");
    let refusals = "firstcome_refusals_total{code=\"work_required\"} 5";
    assert!(service.metrics().await.contains(refusals));
}

pub(crate) async fn one_challenge_is_one_place_however_often_it_is_shown() {
    let service = service().await;
    let challenge = challenge(&service, "sale").await;
    let nonces = (0_u64..).map(|nonce| format!("{challenge}.{nonce}"));
    let solutions: Vec<String> = nonces.filter(|text| is_solved(text, bits())).take(3).collect();
    let first = service.send(shown("sale", &solutions[0])).await.is(201);
    assert_eq!(first.header("idempotency-replayed"), None);
    let place = (first.text("ticket"), first.json()["number"].clone());
    for work in solutions.iter().chain(&solutions) {
        let again = service.send(shown("sale", work).from(HERE)).await.is(201);
        assert_eq!((again.text("ticket"), again.json()["number"].clone()), place);
        assert_eq!(again.header("idempotency-replayed"), Some("true"));
    }
    // Not under an idempotency key either, and not by the page.
    let keyed = shown("sale", &solutions[0]).once("Zm9yIG9uZSByZXF1ZX_-01");
    service.send(keyed).await.refused(422, "idempotency_key_reused");
    let mut eve = Browser::new(&service);
    eve.send(Ask::post(&format!("/rooms/sale/join?work={}", solutions[1]))).await.is(303);
    assert_eq!(eve.ticket(), place.0);
    assert_eq!(service.room("sale").await["waiting"], 1);
    // Joins that come together are one as well.
    let work = solution(&service, "sale").await;
    let crowd: Vec<_> = (0..20).map(|_| tokio::spawn(service.send(shown("sale", &work)))).collect();
    for one in crowd {
        assert_eq!(one.await.expect("it is answered").is(201).json()["number"], 2);
    }
    // A place that has ended frees its challenge, until the challenge expires.
    service.leave("sale", &place.0).await.is(204);
    let next = service.send(shown("sale", &solutions[0])).await.is(201);
    assert_eq!(next.json()["number"], 3);
    service.leave("sale", &next.text("ticket")).await.is(204);
    service.clock.pass_ms(LIFE_MS);
    refused(service.send(shown("sale", &solutions[0])).await, "expired");
    assert_eq!(service.room("sale").await["waiting"], 1);
}

pub(crate) async fn work_that_was_not_done_for_this_room_draws_no_number() {
    let (service, stranger) = (service().await, self::service().await);
    let work = solution(&service, "sale").await;
    let (challenge, nonce) = work.split_once('.').expect("a nonce");
    for forged in flipped(challenge) {
        refused(service.send(shown("sale", &solve(&forged, bits()))).await, "invalid");
    }
    for wrong in [
        solution(&service, "other").await,
        solution(&stranger, "sale").await,
        String::new(),
        format!("{work}x"),
        format!("{work} {work}"),
        format!("{work}.{nonce}"),
        format!("{challenge}A.{nonce}"),
        format!("{challenge}."),
        format!("{work}{}", "0".repeat(14)),
    ] {
        refused(service.send(shown("sale", &wrong)).await, "invalid");
        let paged = Ask::post(&format!("/rooms/sale/join?work={}", wrong.replace(' ', "%20")));
        refused(service.send(paged.header("accept", "application/json")).await, "invalid");
    }
    let bytes = join("sale").header("x-firstcome-work", b"\xff");
    refused(service.send(bytes).await, "invalid");
    let unsolved = (0_u64..).map(|nonce| format!("{challenge}.{nonce}")).find(|text| !is_solved(text, bits()));
    refused(service.send(shown("sale", &unsolved.expect("most are")).from(HERE)).await, "unsolved");
    service.clock.pass_ms(LIFE_MS - 1);
    service.send(shown("other", &work)).await.refused(403, "work_required");
    assert_eq!(service.room("sale").await["waiting"], 0);
    service.send(shown("sale", &work)).await.is(201);
    service.clock.pass_ms(1);
    refused(service.send(shown("sale", &work)).await, "expired");
    refused(service.send(shown("sale", challenge)).await, "expired");
    assert_eq!(service.room("sale").await["waiting"], 1);
}

pub(crate) async fn work_counts_at_each_node_with_the_same_key() {
    let clock = clock();
    let store = Embedded::memory_with(Arc::clone(&clock) as _);
    let node = |key| {
        let app = App::with_locks(store.clone(), demanding(), Locks::memory(), HandleKey::new([key; 32]));
        Service::of(app, store.clone(), Arc::clone(&clock))
    };
    let (one, two, stranger) = (node(1), node(1), node(2));
    open(&one).await;
    let work = solution(&one, "sale").await;
    refused(stranger.send(shown("sale", &work)).await, "invalid");
    let ticket = two.send(shown("sale", &work)).await.is(201).text("ticket");
    assert_eq!(one.send(shown("sale", &work)).await.is(201).text("ticket"), ticket, "one place at all nodes");
}

pub(crate) async fn who_waits_needs_no_work_and_few_of_a_network_may() {
    let service = service().await;
    let challenge = challenge(&service, "sale").await;
    let early = refused(service.send(shown("sale", &challenge)).await, "early");
    assert_eq!((early.text("challenge"), &early.json()["wait_ms"]), (challenge.clone(), &json!(5_000)));
    service.clock.pass_ms(WAIT_MS - 1);
    let early = refused(service.send(shown("sale", &challenge)).await, "early");
    assert_eq!((early.text("challenge"), &early.json()["wait_ms"]), (challenge.clone(), &json!(1)));
    service.clock.pass_ms(1);
    let ticket = service.send(shown("sale", &challenge)).await.is(201).text("ticket");
    assert_eq!(service.send(shown("sale", &challenge)).await.is(201).text("ticket"), ticket);
    assert_eq!(service.room("sale").await["waiting"], 1);
    // Of one network a tenth of what an address may: 12 a minute, and three at once.
    let mut waited = Vec::new();
    for _ in 0..4 {
        waited.push(self::challenge(&service, "sale").await);
    }
    service.clock.pass_ms(WAIT_MS);
    let from = |last: u8| format!("203.0.113.{last}");
    for (last, challenge) in (1..).zip(&waited[..3]) {
        service.send(shown("sale", challenge).from(&from(last))).await.is(201);
    }
    let told = service.send(shown("sale", &waited[3]).from(&from(9))).await.refused(429, "too_many_joins");
    assert_eq!((told.text("limit").as_str(), told.text("network").as_str()), ("wait", "203.0.113.0/24"));
    assert_eq!(told.header("retry-after"), Some("5"));
    let work = solve(&waited[3], bits());
    service.send(shown("sale", &work).from(&from(9))).await.is(201);
    let other = self::challenge(&service, "sale").await;
    service.clock.pass_ms(WAIT_MS);
    service.send(shown("sale", &other).from("198.51.100.1")).await.is(201);
}

/// The challenge in the address of the button of a page.
fn of_button(page: &Answer) -> String {
    let body = page.body();
    let (_, rest) = body.split_once("/rooms/sale/join?work=").unwrap_or_else(|| panic!("no work: {body}"));
    rest.split(['"', '&']).next().unwrap_or_default().to_owned()
}

pub(crate) async fn a_browser_without_scripts_waits_and_joins_by_the_button() {
    let service = service().await;
    let mut ann = Browser::new(&service);
    let page = ann.send(Ask::get("/rooms/sale?back=%2Fcart")).await.is(503);
    assert!(page.body().contains("Without JavaScript, wait 5 s and press the button."), "{}", page.body());
    let challenge = of_button(&page);
    let button = |challenge: &str| Ask::post(&format!("/rooms/sale/join?work={challenge}&back=%2Fcart"));
    service.clock.pass_ms(3_000);
    let led = ann.send(button(&challenge)).await.is(303);
    let page = format!("/rooms/sale?asked=1&work={challenge}&back=%2Fcart");
    assert_eq!(led.header("location"), Some(page.as_str()), "the wait goes on");
    let page = ann.send(Ask::get(&page)).await.is(503);
    assert_eq!((phase(&page).as_str(), of_button(&page)), ("join", challenge.clone()));
    assert!(page.body().contains("wait 2 s"), "{}", page.body());
    assert_eq!(service.room("sale").await["waiting"], 0);
    service.clock.pass_ms(2_000);
    assert_eq!(phase(&ann.follow(button(&challenge)).await.is(503)), "paused");
    assert_eq!(service.room("sale").await["waiting"], 1);
    // A button that says nothing, or too late, leads to a new challenge.
    let mut bob = Browser::new(&service);
    let page = bob.follow(Ask::post("/rooms/sale/join")).await.is(503);
    let late = of_button(&page);
    assert_ne!(late, challenge);
    service.clock.pass_ms(LIFE_MS);
    let page = bob.follow(button(&late)).await.is(503);
    assert!(phase(&page) == "join" && of_button(&page) != late);
    // A program is told so in JSON, and a solution counts at the button too.
    let asked = Ask::post("/rooms/sale/join").header("accept", "application/json");
    let work = solve(&refused(bob.send(asked).await, "absent").text("challenge"), bits());
    assert_eq!(phase(&bob.follow(button(&work)).await.is(503)), "paused");
    assert_eq!(service.room("sale").await["waiting"], 2);
}

pub(crate) async fn a_page_with_work_loads_one_more_script() {
    let service = service().await;
    let page = service.send(Ask::get("/rooms/sale")).await.is(503);
    let html = page.body();
    let (first, last) = (html.find("<script src=\"/assets/room.work.js"), html.find("<script src=\"/assets/room.js"));
    assert!(first.is_some() && first < last, "the work before what needs it: {html}");
    assert_eq!(html.matches("<script").count(), 2, "no inline script");
    let mut bytes = page.bytes.len();
    for path in ["/assets/room.css", "/assets/room.js", "/assets/room.work.js"] {
        let loaded = service.send(Ask::get(path)).await.is(200);
        for foreign in ["@import", "url(", "http:", "https:", "innerHTML", "eval("] {
            assert!(!loaded.body().contains(foreign), "{foreign} in {path}");
        }
        bytes += loaded.bytes.len();
    }
    // A proxy that compresses needs a third of that: below the 14 KB of the first packets of a connection.
    assert!(bytes <= 24_000, "{bytes} bytes");
    let calm = Service::memory();
    open(&calm).await;
    let html = calm.send(Ask::get("/rooms/sale")).await.is(503).body();
    assert!(!html.contains("work"), "{html}");
}
