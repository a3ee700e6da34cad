//! Stopping: what is under way is answered, nothing new begins, and no client can hold it up for longer than the limit.

use crate::in_time;
use crate::running::{Peer, Running, claim, patient, until};
use crate::service::{Ask, Service, config};
use crate::stores::{Verdict, scripted};
use firstcome::edge::Stopwatch;
use firstcome_server::{Config, Limits};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn what_is_under_way_is_answered_and_nothing_new_begins() {
    let (store, clock, script) = scripted();
    script.say(Verdict::Commit);
    let service = Service::new(store, clock, Config { limits: patient(), ..config() });
    service.make("launch", json!({"limit": 9})).await;
    script.begun();
    let mut running = Running::over(service).await;
    let mut idle = running.connect().await;
    idle.send("GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(idle.answer().await.status, 200);

    let mut busy = running.connect().await;
    // Two on one connection: the second is not under way when the service is told to stop.
    busy.send(claim("ann")).await;
    while !script.has_begun() {
        tokio::task::yield_now().await;
    }
    busy.send(claim("bob")).await;
    running.service.app.begin_drain();
    running.begin_stop();
    assert!(idle.closed().await.is_empty(), "who waits for nothing is let go");
    assert!(running.is_deaf().await, "nobody new is let in");
    assert!(!running.has_stopped(), "ann has no answer yet");

    script.say(Verdict::CommitAll);
    assert_eq!(busy.answer().await.is(201).text("user"), "ann");
    assert!(busy.closed().await.is_empty(), "bob's was never begun");
    running.stopped().await;
    running.service.claim_of("launch", "bob").await.refused(404, "unknown_claim");
    assert_eq!(running.service.issued("launch").await, 1);
}

#[tokio::test]
async fn an_idle_service_stops_at_once() {
    let mut running = Running::start(patient()).await;
    let mut peers = [running.connect().await, running.connect().await];
    peers[1].send("GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(peers[1].answer().await.status, 200);
    let watch = Stopwatch::start();
    running.begin_stop();
    running.stopped().await;
    assert!(watch.elapsed() < Duration::from_secs(5), "{:?}", watch.elapsed());
    for peer in &mut peers {
        assert!(peer.closed().await.is_empty());
    }
}

#[tokio::test]
async fn peers_that_are_stuck_hold_up_the_end_for_no_longer_than_its_limit() {
    let drain = Duration::from_secs(1);
    let mut running = Running::start(Limits { drain, ..patient() }).await;
    running.service.make("launch", json!({"limit": 9})).await;
    let mut peers = Vec::new();
    let claim = claim("ann");
    for part in ["GET /heal", &claim[..claim.len() - 3], "G"] {
        let mut peer = running.connect().await;
        peer.send(part).await;
        peers.push(peer);
    }
    let mut unread = running.connect().await;
    unread.send("GET /docs HTTP/1.1\r\nhost: a\r\n\r\n".repeat(100)).await;
    running.is_unharmed().await;
    let watch = Stopwatch::start();
    running.begin_stop();
    in_time(running.stopped()).await;
    let elapsed = watch.elapsed();
    assert!((drain / 2..drain + Duration::from_secs(3)).contains(&elapsed), "{elapsed:?}");
    assert_eq!(running.service.issued("launch").await, 0);
}

#[tokio::test]
async fn a_claim_whose_caller_hung_up_is_done_or_not_done() {
    let mut running = Running::start(patient()).await;
    running.service.make("launch", json!({"limit": 50})).await;
    for number in 0..50 {
        let mut peer = running.connect().await;
        peer.send(claim(&format!("user{number}"))).await;
    }
    running.is_unharmed().await;
    running.begin_stop();
    running.stopped().await;
    let issued = running.service.issued("launch").await;
    let page = running.service.claims("launch", "").await.json();
    assert_eq!(page["items"].as_array().map(Vec::len), Some(issued as usize));
}

#[tokio::test]
async fn connections_that_are_established_and_not_accepted_yet_are_answered() {
    // The test and its service share one thread: while the test does not wait, nothing is accepted.
    let mut running = Running::start(patient()).await;
    running.service.make("launch", json!({"limit": 50})).await;
    let mut peers = Vec::new();
    for number in 0..50 {
        let mut stream = std::net::TcpStream::connect(running.address).expect("it listens");
        std::io::Write::write_all(&mut stream, claim(&format!("user{number}")).as_bytes()).expect("it is sent");
        stream.set_nonblocking(true).expect("it is ours");
        peers.push(Peer::over(tokio::net::TcpStream::from_std(stream).expect("a connection")));
    }
    running.begin_stop();
    for peer in &mut peers {
        let answer = peer.answer().await.is(201);
        assert_eq!(answer.header("connection"), Some("close"));
        assert!(peer.closed().await.is_empty());
    }
    running.stopped().await;
    assert_eq!(running.service.issued("launch").await, 50);
}

#[tokio::test]
async fn requests_on_open_connections_are_answered_as_their_last_ones_after_the_signal() {
    let mut running = Running::start(patient()).await;
    running.service.make("launch", json!({"limit": 9})).await;
    let mut peers = [running.connect().await, running.connect().await];
    peers[1].send("GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(peers[1].answer().await.status, 200);
    running.begin_stop();
    until(async || running.service.send(Ask::get("/readyz")).await.status == 503).await;
    // One connection has never carried a request, the other one has: both requests come after the signal.
    for (peer, user) in peers.iter_mut().zip(["ann", "bob"]) {
        peer.send(claim(user)).await;
        let answer = peer.answer().await.is(201);
        assert_eq!((answer.text("user").as_str(), answer.header("connection")), (user, Some("close")));
        assert!(peer.closed().await.is_empty());
    }
    running.stopped().await;
}
