//! Waiting over a connection: in the order of arrival, for as long as the connection, and no longer than the service.

use super::{LONG_MS, acquire, acquire_bytes, key, number, remote, text};
use crate::in_time;
use crate::running::{Running, patient, request};
use crate::service::{Ask, SERVICE, Service, config};
use crate::trouble::waits;
use firstcome::Locks;
use firstcome_server::{Config, Limits, LockLimits};
use serde_json::{Value, json};
use std::time::Duration;

/// Over locks in memory, and over locks that go the way of a store that is somewhere else.
async fn running() -> [Running; 2] {
    let config = || Config { limits: patient(), ..config() };
    let running = |locks: Locks| Running::over(Service::with_locks(locks, config()));
    [running(Locks::memory()).await, running(remote()).await]
}

pub(crate) async fn fifty_connections_are_served_in_the_order_of_arrival() {
    for running in running().await {
        let service = &running.service;
        let mut held = service.hold("door", "first").await;
        let mut peers = Vec::new();
        for number in 0..50 {
            peers.push(running.waiter("door", &format!("user{number}"), number).await);
        }
        for (at, peer) in peers.iter_mut().enumerate() {
            let before = number(&held, "fence");
            service.give_back(&held).await.is(200);
            let shown = service.lock("door").await;
            assert_eq!((&shown["holder"], &shown["waiters"]), (&json!(format!("user{at}")), &json!(49 - at)));
            held = peer.answer().await.is(200).json();
            assert_eq!(text(&held, "owner"), format!("user{at}"));
            assert!(before < number(&held, "fence"));
        }
        service.give_back(&held).await.is(200);
        // A connection goes on after its wait.
        for peer in &mut peers {
            peer.send("GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await;
            assert_eq!(peer.answer().await.status, 200);
        }
    }
}

pub(crate) async fn who_hangs_up_gives_the_place_up_at_once() {
    for running in running().await {
        let service = &running.service;
        let held = service.hold("door", "ann").await;
        let first = running.waiter("door", "bob", 0).await;
        let mut second = running.waiter("door", "cid", 1).await;
        let third = running.waiter("door", "dan", 2).await;
        drop(third);
        service.until_waiting("door", 2).await;
        drop(first);
        service.until_waiting("door", 1).await;
        service.give_back(&held).await.is(200);
        assert_eq!(second.answer().await.is(200).text("owner"), "cid");
        assert_eq!(service.lock("door").await["waiters"], 0);
    }
}

/// hyper does not see the end of a connection behind a request that came early.
pub(crate) async fn who_hangs_up_behind_a_further_request_gives_the_place_up_too() {
    let [running, _] = running().await;
    let held = running.service.hold("door", "ann").await;
    let mut early = running.connect().await;
    let further = request("GET /healthz", "", "");
    early.send(acquire_bytes("door", "bob", LONG_MS, "") + &further).await;
    running.service.until_waiting("door", 1).await;
    early.send(further.repeat(3)).await;
    drop(early);
    running.service.until_waiting("door", 0).await;
    // Who stays is answered, both times.
    let mut early = running.connect().await;
    early.send(acquire_bytes("door", "cid", LONG_MS, "") + &further).await;
    running.service.until_waiting("door", 1).await;
    running.service.give_back(&held).await.is(200);
    assert_eq!(early.answer().await.is(200).text("owner"), "cid");
    assert_eq!(early.answer().await.is(200).body(), "ok\n");
}

pub(crate) async fn who_hangs_up_at_the_moment_of_the_grant_has_nothing() {
    for running in running().await {
        let service = &running.service;
        for round in 0..40 {
            let held = service.hold("door", "ann").await;
            let header = if round % 4 < 2 { String::new() } else { key(&format!("k{round}")) };
            let mut peer = running.connect().await;
            peer.send(acquire_bytes("door", "bob", LONG_MS, &header)).await;
            service.until_waiting("door", 1).await;
            // In both orders; the service learns of both only after both.
            if round % 2 == 0 {
                drop(peer);
                service.give_back(&held).await.is(200);
            } else {
                service.give_back(&held).await.is(200);
                drop(peer);
            }
            service.until_free("door").await;
        }
    }
}

pub(crate) async fn a_wait_is_not_cut_by_the_deadline_of_answers() {
    let answer = Duration::from_millis(50);
    let limits = Limits { answer, ..patient() };
    for locks in [Locks::memory(), remote()] {
        let service = Service::with_locks(locks, Config { limits, ..config() });
        service.hold("door", "ann").await;
        let told = service.send(acquire("door", "bob", 500, 60_000)).await.refused(409, "contended").json();
        assert_eq!(told["position"], 0);
    }
}

pub(crate) async fn no_more_wait_than_may() {
    let locks = LockLimits { waits_max: 2, ..LockLimits::default() };
    let service = Service::memory_with(Config { locks, ..config() });
    let held = service.hold("door", "ann").await;
    let bob = waits(service.send(acquire("door", "bob", LONG_MS, 60_000))).await;
    let cid = waits(service.send(acquire("door", "cid", LONG_MS, 60_000).once("k1"))).await;
    service.until_waiting("door", 2).await;
    for ask in [
        acquire("door", "dan", LONG_MS, 60_000),
        acquire("door", "dan", 1, 60_000),
        acquire("door", "dan", 1, 60_000).once("k2"),
        // Also who would wait along with a process.
        acquire("door", "cid", LONG_MS, 60_000).once("k1"),
    ] {
        let told = service.send(ask).await.refused(503, "overloaded");
        assert_eq!((told.header("retry-after"), &told.json()["retry_after_ms"]), (Some("1"), &json!(1_000)));
    }
    // Who need not wait is not concerned.
    service.send(acquire("door", "dan", 0, 60_000)).await.refused(409, "contended");
    let free = service.send(acquire("gate", "dan", LONG_MS, 60_000)).await.is(200).json();
    service.give_back(&free).await.is(200);
    assert_eq!(service.lock("door").await["waiters"], 2);
    // A place that becomes free is given again.
    drop(bob);
    service.until_waiting("door", 1).await;
    let eve = waits(service.send(acquire("door", "eve", LONG_MS, 60_000))).await;
    service.give_back(&held).await.is(200);
    service.give_back(&cid.await.is(200).json()).await.is(200);
    assert_eq!(eve.await.is(200).text("owner"), "eve");
}

pub(crate) async fn a_waiter_is_sent_away_when_the_service_stops() {
    let service = Service::memory();
    let held = service.hold("door", "ann").await;
    let mut waiting = Vec::new();
    for ask in [acquire("door", "bob", LONG_MS, 60_000), acquire("door", "cid", LONG_MS, 60_000).once("k1")] {
        waiting.push(waits(service.send(ask)).await);
    }
    service.until_waiting("door", 2).await;
    service.app.begin_drain();
    for waiting in waiting {
        let told = waiting.await.refused(503, "overloaded");
        assert_eq!((told.header("retry-after"), &told.json()["retry_after_ms"]), (Some("1"), &json!(1_000)));
    }
    service.until_waiting("door", 0).await;
    // What needs no wait goes on to the end.
    service.send(acquire("door", "dan", LONG_MS, 60_000)).await.refused(503, "overloaded");
    service.send(acquire("door", "dan", 0, 60_000)).await.refused(409, "contended");
    service.send(super::renew("door", text(&held, "handle"), 60_000)).await.is(200);
    service.give_back(&held).await.is(200);
    for (wait_ms, lock) in [(0, "a"), (LONG_MS, "b")] {
        service.send(acquire(lock, "dan", wait_ms, 60_000)).await.is(200);
    }
}

#[tokio::test]
async fn a_service_that_stops_is_held_up_by_no_process_that_waits() {
    for mut running in running().await {
        let held = running.service.hold("door", "ann").await;
        let mut peers = Vec::new();
        for number in 0..5 {
            peers.push(running.waiter("door", "bob", number).await);
        }
        running.begin_stop();
        for peer in &mut peers {
            let told = peer.answer().await.refused(503, "overloaded");
            assert_eq!(told.header("retry-after"), Some("1"));
            assert!(peer.closed().await.is_empty());
        }
        // The drain may take ten minutes here, and the waits an hour.
        in_time(running.stopped()).await;
        let shown = running.service.lock("door").await;
        assert_eq!((&shown["waiters"], &shown["fence"]), (&json!(0), &held["fence"]));
    }
}

#[tokio::test]
async fn only_posts_of_acquires_are_watched_over() {
    let [running, _] = running().await;
    // The same last word elsewhere: nothing to carry, nothing to lose.
    for path in ["/acquire", "/v1/rooms/acquire", "/v1/locks/a/b/acquire"] {
        let answer = running.exchange(request(&format!("POST {path}"), "", "")).await;
        assert!([404, 405].contains(&answer.status), "{path} {}", answer.status);
    }
    let headers = format!("authorization: Bearer {SERVICE}\r\n");
    let answer = running.exchange(request("GET /v1/locks/acquire", &headers, "")).await.is(200);
    assert_eq!(answer.json()["lock"], "acquire");
    let _: Value = running.service.send(Ask::get("/readyz")).await.is(200).json();
}
