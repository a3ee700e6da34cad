//! The draw of a room over HTTP: the public record, the places, and the page that checks them.

use super::join;
use crate::service::{ADMIN, Ask, Service};
use crate::stores::on_each;
use firstcome::core::room::{Draw, DrawSeed};
use firstcome::core::time::Timestamp;
use serde_json::{Value, json};

/// Visitors who joined are still present then.
const OPENS_MS: i64 = 20_000;

fn drawing(service: &Service) -> Value {
    json!({"max_active": 1, "opens_at": service.later(OPENS_MS), "order": "draw"})
}

async fn record(service: &Service) -> Value {
    service.send(Ask::get("/v1/rooms/sale/draw")).await.is(200).json()
}

/// Reads a draw as any program can.
fn drawn(record: &Value) -> Draw {
    let bytes = |field: &str| -> [u8; 32] {
        let text = record[field].as_str().expect("64 digits");
        std::array::from_fn(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).expect("digits"))
    };
    let number = |field: &str| u32::try_from(record[field].as_u64().expect("a number")).expect("a number of a ticket");
    let seed = DrawSeed::new(bytes("seed"));
    assert_eq!(seed.commitment(), bytes("commitment"), "{record}");
    Draw { seed, first: number("first"), entrants: number("entrants"), drawn_at: Timestamp::MIN }
}

pub(crate) async fn a_draw_is_committed_to_before_and_revealed_at_the_opening() {
    on_each(async |service| {
        service.put_room("sale", drawing(service)).await.is(201);
        let before = record(service).await;
        assert_eq!(
            (&before["state"], &before["entrants"], &before["seed"]),
            (&json!("committed"), &json!(0), &json!(null))
        );
        let mut tickets = Vec::new();
        for _ in 0..9 {
            tickets.push(service.ticket("sale").await);
        }
        let place = service.standing("sale", &tickets[3]).await;
        assert_eq!(
            (&place["state"], &place["position"], &place["entrants"]),
            (&json!("in_draw"), &json!(null), &json!(9))
        );
        assert_eq!(service.room("sale").await["draw"], record(service).await, "the room shows the same record");
        service.pass_ms(OPENS_MS as u64).await;
        let after = record(service).await;
        assert_eq!((&after["commitment"], &after["state"]), (&before["commitment"], &json!("drawn")));
        assert_eq!(
            (&after["first"], &after["entrants"], &after["drawn_at"]),
            (&json!(1), &json!(9), &json!(service.now()))
        );
        let (draw, late) = (drawn(&after), service.ticket("sale").await);
        for (at, ticket) in tickets.iter().enumerate() {
            let place = service.standing("sale", ticket).await;
            match draw.turns().turn(at as u32 + 1) {
                1 => assert_eq!(place["state"], "admitted"),
                turn => assert_eq!((&place["state"], &place["position"]), (&json!("waiting"), &json!(turn - 2))),
            }
        }
        assert_eq!(service.standing("sale", &late).await["position"], 8);
    })
    .await;
}

pub(crate) async fn the_order_of_a_room_changes_only_while_it_has_no_tickets() {
    on_each(async |service| {
        service.make_room("sale", json!({"max_active": 1})).await;
        service.send(Ask::get("/v1/rooms/sale/draw")).await.refused(404, "no_draw");
        service
            .put_room("sale", json!({"max_active": 1, "order": "draw"}))
            .await
            .refused(400, "invalid_field")
            .about("opens_at", "opens_at must be given with the order draw: it is the instant of the draw");
        service.put_room("sale", json!({"max_active": 1, "order": "dice"})).await.refused(400, "invalid_field");
        service.put_room("sale", drawing(service)).await.is(200);
        let shown = service.send(Ask::get("/v1/rooms/sale").by(ADMIN)).await.is(200).json();
        assert_eq!(shown["settings"]["order"], "draw");
        service.ticket("sale").await;
        service.put_room("sale", json!({"max_active": 1})).await.refused(409, "draw_fixed");
        let patch = Ask::new(axum::http::Method::PATCH, "/v1/rooms/sale").by(ADMIN);
        let patch =
            patch.raw(json!({"order": null}).to_string()).header("content-type", "application/merge-patch+json");
        service.send(patch).await.refused(409, "draw_fixed");
        service.send(Ask::post("/v1/rooms/sale/pause").by(ADMIN)).await.is(200);
        assert_eq!(record(service).await["state"], "committed");
    })
    .await;
}

pub(crate) async fn a_draw_without_entrants_keeps_its_seed() {
    on_each(async |service| {
        service.make_room("sale", drawing(service)).await;
        service.pass_ms(OPENS_MS as u64 + 1_000).await;
        assert_eq!(service.send(join("sale")).await.is(201).json()["state"], "waiting");
        let record = record(service).await;
        assert_eq!(
            (&record["state"], &record["entrants"], &record["seed"]),
            (&json!("drawn"), &json!(0), &json!(null))
        );
        let page = service.send(Ask::get("/rooms/sale/draw")).await.is(200).body();
        assert!(page.contains("No number took part"), "{page}");
    })
    .await;
}

pub(crate) async fn any_browser_checks_the_draw() {
    let service = Service::memory();
    service.make_room("sale", drawing(&service)).await;
    let page = |path: &str| service.send(Ask::get(path).header("accept", "text/html"));
    let before = page("/rooms/sale/draw").await.is(200).body();
    assert!(before.contains(record(&service).await["commitment"].as_str().expect("a text")), "{before}");
    let ticket = service.ticket("sale").await;
    let cookie = format!("firstcome_ticket_sale={ticket}~0");
    let told = async |accept: &str, path: &str| {
        service.send(Ask::get(path).header("accept", accept).header("cookie", &cookie)).await
    };
    let view = told("application/json", "/rooms/sale").await.is(200).json();
    assert_eq!((&view["phase"], &view["ahead"]), (&json!("draw"), &json!("1 person is in the draw")));
    assert!(told("text/html", "/rooms/sale").await.body().contains("href=\"/rooms/sale/draw\""));
    service.pass_ms(OPENS_MS as u64).await;
    let html = told("text/html", "/rooms/sale/draw").await.is(200);
    assert!(html.header("content-security-policy").is_some_and(|policy| policy.contains("script-src 'self'")));
    let html = html.body();
    assert!(
        html.contains(record(&service).await["seed"].as_str().expect("a text")) && html.contains("value=\"1\""),
        "{html}"
    );
    assert_eq!(
        html.matches("<script").count(),
        html.matches("<script src=\"/assets/draw.js").count(),
        "none is inline"
    );
    assert_eq!(told("application/json", "/rooms/sale/draw").await.is(200).json(), record(&service).await);
    page("/assets/draw.js").await.is(200);
    service.make_room("plain", json!({"max_active": 1})).await;
    page("/rooms/plain/draw").await.is(404);
}
