//! Streams of events, over real connections.

use super::{join, place};
use crate::promises;
use crate::running::{Peer, Running, patient, soon, until};
use crate::service::{ADMIN, Answer, Ask, Service, config};
use axum::http::Method;
use firstcome_server::Config;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// One open stream.
pub(crate) struct Stream {
    peer: Peer,
    head: String,
    read: String,
}

impl Stream {
    /// Opens a stream that must not be refused.
    pub(crate) async fn open(running: &Running, path: &str, headers: &str) -> Self {
        let mut peer = running.connect().await;
        peer.send(get(path, headers)).await;
        let mut read = String::new();
        while !read.contains("\r\n\r\n") {
            assert!(more(&mut peer, &mut read).await, "the connection ended: {read}");
        }
        let (head, rest) = read.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        Self { head: head.to_owned(), read: rest.to_owned(), peer }
    }

    async fn of(running: &Running, ticket: &str) -> Self {
        Self::open(running, &format!("{}/events", place("sale", ticket)), "").await
    }

    /// The next event, or `None` at the end.
    async fn event(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((name, data)) =
                self.read.split_once("event: ").and_then(|(_, rest)| rest.split_once("\ndata: "))
                && let Some((data, rest)) = data.split_once("\n\n")
            {
                let event = (name.to_owned(), serde_json::from_str(data).expect("data is JSON"));
                self.read = rest.to_owned();
                return Some(event);
            }
            if !more(&mut self.peer, &mut self.read).await {
                return None;
            }
        }
    }

    /// The next event of this name; others before it are of no interest.
    pub(crate) async fn named(&mut self, wanted: &str) -> Value {
        loop {
            let (name, data) = self.event().await.expect("the stream goes on");
            if name == wanted {
                return data;
            }
        }
    }

    /// The reason of the last event, after which the connection ends.
    pub(crate) async fn ended(&mut self) -> String {
        let end = self.named("end").await;
        assert_eq!(self.event().await, None, "nothing comes after the end");
        end["reason"].as_str().expect("a reason").to_owned()
    }
}

fn get(path: &str, headers: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n{headers}\r\n")
}

async fn more(peer: &mut Peer, read: &mut String) -> bool {
    let mut buffer = [0; 4_096];
    let count = soon(peer.stream.read(&mut buffer)).await.unwrap_or(0);
    read.push_str(std::str::from_utf8(&buffer[..count]).expect("events are UTF-8"));
    count != 0
}

/// A service that listens, with a room whose only slot is taken by the first number. Returns the ticket that has it.
async fn sale(config: Config) -> (Running, String) {
    let running = Running::with(config).await;
    let service = &running.service;
    service.make_room("sale", json!({"max_active": 1, "message": "Soon"})).await;
    let first = service.ticket("sale").await;
    service.admitted("sale", &first).await;
    (running, first)
}

fn default_config() -> Config {
    Config { limits: patient(), ..config() }
}

fn admin() -> String {
    format!("authorization: Bearer {ADMIN}\r\n")
}

async fn refused(running: &Running, path: &str, headers: &str) -> Answer {
    let answer = running.exchange(get(path, headers)).await;
    promises::hold(&Method::GET, path, &answer);
    answer
}

pub(crate) async fn a_stream_tells_a_place_near_the_front_until_the_turn() {
    let (running, first) = sale(default_config()).await;
    let service = &running.service;
    let (second, third) = (service.ticket("sale").await, service.ticket("sale").await);
    let mut stream = Stream::of(&running, &third).await;
    for header in ["content-type: text/event-stream", "cache-control: no-store", "x-accel-buffering: no"] {
        assert!(stream.head.contains(header), "{header} in {}", stream.head);
    }
    let told = stream.named("place").await;
    // What a poll says, and the room.
    assert_eq!(told["ticket"], service.standing("sale", &third).await);
    assert_eq!((&told["ticket"]["position"], &told["ticket"]["stream"]), (&json!(1), &json!(true)));
    assert_eq!((&told["room"]["message"], &told["room"]["state"]), (&json!("Soon"), &json!("open")));
    service.leave("sale", &second).await.is(204);
    assert_eq!(stream.named("place").await["ticket"]["position"], 0);
    service.put_room("sale", json!({"max_active": 1, "paused": true, "message": "A break"})).await.is(200);
    let told = stream.named("place").await;
    assert_eq!((&told["room"]["message"], &told["room"]["state"]), (&json!("A break"), &json!("paused")));
    service.put_room("sale", json!({"max_active": 1})).await.is(200);
    service.leave("sale", &first).await.is(204);
    service.tick().await;
    let end = stream.named("end").await;
    assert_eq!((&end["reason"], &end["poll_after_ms"]), (&json!("turn"), &json!(0)));
    assert_eq!(end["claim_until"], service.later(60_000));
    assert_eq!(stream.event().await, None);
    // The stream has taken nothing: the poll takes the slot, and brings the pass.
    assert_eq!(running.figure("firstcome_room_taken_total").await, 1);
    service.poll("sale", &third).await.is(200).text("pass");
    running.is_unharmed().await;
}

pub(crate) async fn a_stream_ends_when_the_place_moves() {
    let (running, _) = sale(default_config()).await;
    let ticket = running.service.ticket("sale").await;
    let mut stream = Stream::of(&running, &ticket).await;
    stream.named("place").await;
    let renew = Ask::post(&format!("{}/renew", place("sale", &ticket))).once("a-key-that-is-hard-to-guess-1");
    running.service.send(renew).await.is(200);
    assert_eq!(stream.ended().await, "poll", "a poll tells that the place moved");
}

pub(crate) async fn a_stream_is_for_a_ticket_in_line_near_the_front() {
    let (running, first) = sale(default_config()).await;
    let service = &running.service;
    let path = |ticket: &str| format!("{}/events", place("sale", ticket));
    // One in 100 s: the seventh waits for longer than a minute.
    service.make_room("slow", json!({"admit": {"count": 1, "every_ms": 100_000}})).await;
    service.send(join("slow")).await.is(201);
    let far = service.send(join("slow")).await.is(201);
    assert_eq!(far.json().get("stream"), None);
    let slow = format!("{}/events", place("slow", &far.text("ticket")));
    let answer = refused(&running, &slow, "").await.refused(409, "not_near");
    assert_eq!(answer.json()["poll_after_ms"], service.standing("slow", &far.text("ticket")).await["poll_after_ms"]);
    // Inside, and gone.
    refused(&running, &path(&first), "").await.refused(409, "not_near");
    let left = service.ticket("sale").await;
    service.leave("sale", &left).await.is(204);
    refused(&running, &path(&left), "").await.refused(409, "not_near");
    refused(&running, &path("2.none"), "").await.refused(404, "unknown_ticket");
    refused(&running, "/v1/rooms/none/tickets/x/events", "").await.refused(404, "unknown_room");
    refused(&running, "/v1/rooms/a%20b/tickets/x/events", "").await.refused(400, "invalid_name");
    let stranger = format!("authorization: Bearer {}\r\n", crate::service::STRANGER);
    refused(&running, &path(&left), &stranger).await.refused(401, "unauthorized");
}

pub(crate) async fn streams_are_counted_and_those_that_are_too_many_poll() {
    let (running, _) = sale(Config { streams_max: 2, ..default_config() }).await;
    let service = &running.service;
    let tickets = [service.ticket("sale").await, service.ticket("sale").await, service.ticket("sale").await];
    let mut open = Vec::new();
    for ticket in &tickets[..2] {
        open.push(Stream::of(&running, ticket).await);
    }
    let path = format!("{}/events", place("sale", &tickets[2]));
    let told = refused(&running, &path, "").await.refused(503, "streams_full");
    assert_eq!(told.json()["retry_after_ms"], 10_000);
    assert_eq!(running.figure("firstcome_streams{kind=\"ticket\"}").await, 2);
    assert_eq!(running.figure("firstcome_streams_refused_total").await, 1);
    // One that is closed makes room.
    drop(open.pop());
    until(async || running.figure("firstcome_streams{kind=\"ticket\"}").await == 1).await;
    let mut stream = Stream::of(&running, &tickets[2]).await;
    stream.named("place").await;
    service.leave("sale", &tickets[2]).await.is(204);
    assert_eq!(stream.ended().await, "poll");
}

pub(crate) async fn one_ticket_has_few_streams() {
    let (running, _) = sale(default_config()).await;
    let ticket = running.service.ticket("sale").await;
    let mut open = Vec::new();
    for _ in 0..4 {
        open.push(Stream::of(&running, &ticket).await);
    }
    let path = format!("{}/events", place("sale", &ticket));
    refused(&running, &path, "").await.refused(503, "streams_full");
    assert_eq!(running.figure("firstcome_streams{kind=\"ticket\"}").await, 4);
}

pub(crate) async fn one_task_feeds_all_streams_of_a_room_and_wakes_none_without_news() {
    let (running, _) = sale(default_config()).await;
    let service = &running.service;
    let mut open = Vec::new();
    for _ in 0..50 {
        let ticket = service.ticket("sale").await;
        open.push(Stream::of(&running, &ticket).await);
    }
    let ticks = async || running.figure("firstcome_stream_ticks_total").await;
    let events = async || running.figure("firstcome_stream_events_total").await;
    let told = events().await;
    let from = ticks().await;
    let watch = firstcome::edge::Stopwatch::start();
    until(async || from + 4 <= ticks().await).await;
    // Fifty timers would have ticked two hundred times.
    let halves = watch.elapsed().as_millis() as u64 / 500;
    assert!(ticks().await - from <= halves + 2, "{} ticks in {halves} half seconds", ticks().await - from);
    // Each stream has had the event that it began with. A room that has never released a slot has no estimate that moves.
    assert_eq!((told, events().await), (50, 50));
    // The task ends with the last stream.
    drop(open);
    until(async || running.figure("firstcome_streams{kind=\"ticket\"}").await == 0).await;
    let mut halves = tokio::time::interval(std::time::Duration::from_millis(1_100));
    let mut before = 0;
    until(async || {
        halves.tick().await;
        std::mem::replace(&mut before, ticks().await) == before
    })
    .await;
}

pub(crate) async fn an_open_stream_keeps_its_visitor_present_and_a_closed_one_does_not() {
    let running = Running::with(default_config()).await;
    let service = &running.service;
    service.make_room("sale", json!({"admit": {"count": 1, "every_ms": 10_000}})).await;
    let (closed, open) = (service.ticket("sale").await, service.ticket("sale").await);
    let mut stream = Stream::of(&running, &open).await;
    drop(Stream::of(&running, &closed).await);
    until(async || running.figure("firstcome_streams{kind=\"ticket\"}").await == 1).await;
    // By the clock of the store both are silent for longer than three polls, and the room has an admission to give.
    service.clock.pass_ms(120_000);
    // The open stream makes contact when a poll would be due.
    assert_eq!(stream.ended().await, "turn");
    // The other one was ahead, and was passed over.
    let seen = service.standing("sale", &closed).await;
    assert_eq!((&seen["state"], &seen["number"]), (&json!("waiting"), &json!(1)));
}

pub(crate) async fn a_stop_ends_streams_at_once() {
    let (mut running, _) = sale(default_config()).await;
    let ticket = running.service.ticket("sale").await;
    let mut stream = Stream::of(&running, &ticket).await;
    let mut figures = Stream::open(&running, "/v1/events", &admin()).await;
    running.begin_stop();
    assert_eq!(stream.ended().await, "stopping");
    assert_eq!(figures.ended().await, "stopping");
    // The drain would last for ten minutes.
    running.stopped().await;
}

pub(crate) async fn operators_hear_the_figures_of_rooms_every_second() {
    let (running, _) = sale(default_config()).await;
    let service = &running.service;
    service.make_room("b", json!({"max_active": 1})).await;
    let mut all = Stream::open(&running, "/v1/events", &admin()).await;
    let mut one = Stream::open(&running, "/v1/rooms/b/events", &admin()).await;
    let told = all.named("figures").await;
    let names: Vec<&str> =
        told["rooms"].as_array().expect("a list").iter().filter_map(|room| room["room"].as_str()).collect();
    assert_eq!(names, ["b", "sale"]);
    service.ticket("b").await;
    let waiting = async |stream: &mut Stream| loop {
        let told = stream.named("figures").await;
        let room = told["rooms"].as_array().expect("a list")[0].clone();
        if room["waiting"] == 1 || room["active"] == 1 {
            return (room["room"].clone(), told["rooms"].as_array().map(Vec::len));
        }
    };
    assert_eq!(waiting(&mut all).await, (json!("b"), Some(2)));
    assert_eq!(waiting(&mut one).await, (json!("b"), Some(1)));
    assert_eq!(running.figure("firstcome_streams{kind=\"operator\"}").await, 2);
    refused(&running, "/v1/events", "").await.refused(401, "unauthorized");
    refused(&running, "/v1/rooms/b/events", "").await.refused(401, "unauthorized");
    refused(&running, "/v1/rooms/none/events", &admin()).await.refused(404, "unknown_room");
    refused(&running, "/v1/rooms/a%20b/events", &admin()).await.refused(400, "invalid_name");
}

pub(crate) async fn a_page_hears_of_its_place_in_its_language() {
    let (running, _) = sale(default_config()).await;
    let service = &running.service;
    let ticket = service.ticket("sale").await;
    let cookie = format!("cookie: firstcome_ticket_sale={ticket}~4\r\naccept-language: de\r\n");
    let mut stream = Stream::open(&running, "/rooms/sale/events", &cookie).await;
    let asked = Ask::get("/rooms/sale").header("accept", "application/json").header("accept-language", "de");
    let asked = asked.header("cookie", format!("firstcome_ticket_sale={ticket}~4"));
    let view = service.send(asked).await.is(200).json();
    assert_eq!((&view["phase"], &view["stream"]), (&json!("almost"), &json!(true)));
    assert_eq!(stream.named("place").await, view);
    refused(&running, "/rooms/sale/events", "accept: application/json\r\n").await.refused(404, "not_found");
}

/// A client that reads nothing. Its stream ends, and the room goes on without it.
pub(crate) async fn a_client_that_takes_nothing_is_cut_off() {
    let service = Service::memory();
    service.make_room("sale", json!({"max_active": 1})).await;
    let ticket = service.ticket("sale").await;
    service.admitted("sale", &ticket).await;
    let ticket = service.ticket("sale").await;
    // The pipe holds less than an event.
    let (mut client, server) = tokio::io::duplex(64);
    let (app, router) = (service.app.clone(), firstcome_server::api::router(service.app.clone()));
    let served = tokio::spawn(firstcome_server::serve_stream(server, [127, 0, 0, 1].into(), app, router));
    client.write_all(get(&format!("{}/events", place("sale", &ticket)), "").as_bytes()).await.expect("it listens");
    let ends = async || service.metrics().await.contains("firstcome_streams{kind=\"ticket\"} 0");
    until(async || !ends().await).await;
    until(ends).await;
    // The write time-out of ten seconds ended the connection, though the client has not closed it.
    soon(served).await.expect("the connection ends");
    drop(client);
}
