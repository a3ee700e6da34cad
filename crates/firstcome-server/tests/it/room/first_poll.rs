//! Tickets that never poll: a script that only joins does not keep a line full.

use super::streams::Stream;
use super::{join, join_as, place};
use crate::running::Running;
use crate::service::{ADMIN, Ask, Service, config};
use crate::stores::{clock, on_each, open};
use serde_json::{Value, json};
use std::sync::Arc;

const TWO_MINUTES_MS: u64 = 120_000;

fn asking() -> Value {
    json!({"max_active": 1, "paused": true, "max_waiting": 4, "first_poll_ms": TWO_MINUTES_MS})
}

pub(crate) async fn tickets_that_never_poll_free_the_line_within_minutes() {
    on_each(async |service| {
        service.make_room("sale", asking()).await;
        let polls = service.ticket("sale").await;
        let ann = service.send(join_as("sale", "ann")).await.is(201);
        let told = service.send(join("sale").once("a-key-that-is-hard-to-guess-1")).await.is(201).text("ticket");
        let flood = service.ticket("sale").await;
        service.send(join("sale")).await.refused(409, "room_full");
        assert_eq!(ann.json()["state"], "waiting");
        // The next tick plans when the line is looked at.
        service.pass_ms(0).await;
        service.pass_ms(TWO_MINUTES_MS - 1).await;
        assert_eq!(service.state("sale", &polls).await, "waiting");
        // The same request again is a contact, too.
        assert_eq!(service.send(join("sale").once("a-key-that-is-hard-to-guess-1")).await.text("ticket"), told);
        assert_eq!(service.room("sale").await["waiting"], 4, "one millisecond before the end");
        service.pass_ms(1).await;
        assert_eq!(service.room("sale").await["waiting"], 2, "a tick ends them, though no visitor asks");
        assert_eq!(service.state("sale", &flood).await, "expired");
        assert_eq!(service.state("sale", &ann.text("ticket")).await, "expired");
        assert_eq!(service.send(join_as("sale", "ann")).await.is(201).json()["position"], 2, "she may join again");
        let metrics = service.metrics().await;
        assert!(metrics.contains("firstcome_room_unpolled_total 2"), "{metrics}");
        // One poll was enough.
        service.pass_ms(30 * TWO_MINUTES_MS - TWO_MINUTES_MS).await;
        for ticket in [&polls, &told] {
            assert_eq!(service.state("sale", ticket).await, "waiting");
        }
    })
    .await;
}

pub(crate) async fn a_stream_counts_as_a_poll() {
    let running = Running::with(config()).await;
    let service = &running.service;
    service.make_room("sale", asking()).await;
    let [streams, silent] = [service.ticket("sale").await, service.ticket("sale").await];
    service.clock.pass_ms(TWO_MINUTES_MS - 1);
    let mut stream = Stream::open(&running, &format!("{}/events", place("sale", &streams)), "").await;
    stream.named("place").await;
    service.pass_ms(TWO_MINUTES_MS).await;
    assert_eq!(service.state("sale", &streams).await, "waiting");
    assert_eq!(service.state("sale", &silent).await, "expired");
}

pub(crate) async fn a_restart_gives_the_time_for_the_first_poll_afresh() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let clock = clock();
    let start = || Service::new(open(directory.path(), &clock), Arc::clone(&clock), config());
    let before = start();
    before.make_room("sale", asking()).await;
    let [polled, silent] = [before.ticket("sale").await, before.ticket("sale").await];
    clock.pass_ms(TWO_MINUTES_MS - 1);
    assert_eq!(before.state("sale", &polled).await, "waiting");
    // The file is copied as it is: what a process leaves that is killed now.
    let killed = tempfile::tempdir().expect("a temporary directory");
    for file in std::fs::read_dir(directory.path()).expect("it is there") {
        let file = file.expect("it is there");
        std::fs::copy(file.path(), killed.path().join(file.file_name())).expect("it is copied");
    }
    clock.pass_ms(TWO_MINUTES_MS);
    let after = Service::new(open(killed.path(), &clock), Arc::clone(&clock), config());
    let shown = after.send(Ask::get("/v1/rooms/sale").by(ADMIN)).await.is(200).json();
    assert_eq!(shown["settings"]["first_poll_ms"], TWO_MINUTES_MS);
    after.pass_ms(TWO_MINUTES_MS - 1).await;
    assert_eq!(after.room("sale").await["waiting"], 2);
    assert_eq!(after.state("sale", &polled).await, "waiting");
    after.pass_ms(1).await;
    assert_eq!(after.state("sale", &silent).await, "expired");
    assert_eq!(after.state("sale", &polled).await, "waiting");
}

pub(crate) async fn the_time_for_the_first_poll_is_switched_by_a_patch() {
    on_each(async |service| {
        let patch = async |value: Value| {
            let patch = Ask::new(axum::http::Method::PATCH, "/v1/rooms/sale").by(ADMIN);
            service.send(patch.json(&json!({"first_poll_ms": value}))).await
        };
        let shown = async || {
            let room = service.send(Ask::get("/v1/rooms/sale").by(ADMIN)).await.is(200).json();
            room["settings"]["first_poll_ms"].clone()
        };
        service.make_room("sale", json!({"max_active": 1, "paused": true})).await;
        assert_eq!(shown().await, Value::Null, "off, unless an operator asks for it");
        let flood = service.ticket("sale").await;
        service.pass_ms(5 * TWO_MINUTES_MS).await;
        assert_eq!(service.room("sale").await["waiting"], 1);
        // In the middle of a flood: it counts for tickets that are in line already, from now on.
        patch(json!(TWO_MINUTES_MS)).await.is(200);
        assert_eq!(shown().await, TWO_MINUTES_MS);
        service.pass_ms(TWO_MINUTES_MS - 1).await;
        assert_eq!(service.room("sale").await["waiting"], 1);
        service.pass_ms(TWO_MINUTES_MS).await;
        assert_eq!(service.room("sale").await["waiting"], 0);
        assert_eq!(service.state("sale", &flood).await, "expired");
        patch(Value::Null).await.is(200);
        assert_eq!(shown().await, Value::Null);
        service.ticket("sale").await;
        service.pass_ms(5 * TWO_MINUTES_MS).await;
        assert_eq!(service.room("sale").await["waiting"], 1);
        let range = "first_poll_ms must be 100 to 604800000";
        patch(json!(99)).await.refused(400, "invalid_field").about("first_poll_ms", range);
    })
    .await;
}
