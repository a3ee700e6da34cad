//! The story: 64 clients connect, send a request, read the answer, and connect again, all the time. An operator stops the
//! service. One of three stops reset connections whose requests had been sent: the listener was closed with connections in
//! its queue, and connections without a request were closed although one was on its way.
//!
//! Now a client that has a connection gets its answer. A client that gets no connection is refused, and knows that nothing
//! was done.

use crate::support::http::{Client, Lost};
use crate::support::server::Server;
use crate::support::wait_for;
use firstcome::edge::Stopwatch;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const CLIENTS: usize = 64;
const ROUNDS: u32 = 5;

/// What all clients saw.
#[derive(Default)]
struct ClientCounts {
    answers: AtomicU64,
    refused_connections: AtomicU64,
    unanswered: AtomicU64,
    stopped: AtomicBool,
}

/// Calls again and again until the service refuses connections. Every third client keeps its connection.
fn call_until_refused(address: SocketAddr, number: usize, seen: &ClientCounts) {
    let mut client = Client::new(address);
    for call in 0..1_000_000 {
        if !number.is_multiple_of(3) {
            client = Client::new(address);
        }
        match client.claim("launch", &format!("client-{number}-{call}"), None) {
            Ok(answer) => {
                assert_eq!(answer.status, 201, "{}", answer.text());
                seen.answers.fetch_add(1, Ordering::Relaxed);
            }
            Err(Lost::Unsent(_)) => {
                assert!(seen.stopped.load(Ordering::Relaxed), "no connection while it runs");
                seen.refused_connections.fetch_add(1, Ordering::Relaxed);
                return;
            }
            Err(lost) => {
                eprintln!("client {number}: {lost:?}");
                seen.unanswered.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
    }
}

#[test]
fn no_request_on_an_established_connection_goes_unanswered_when_the_service_stops() {
    for round in 0..ROUNDS {
        let directory = tempfile::tempdir().expect("a directory");
        let mut server = Server::start_with(directory.path(), &["--coupon", "launch=1000000"]);
        let seen = ClientCounts::default();
        std::thread::scope(|scope| {
            for number in 0..CLIENTS {
                let (address, seen) = (server.address(), &seen);
                scope.spawn(move || call_until_refused(address, number, seen));
            }
            wait_for("load", || (500 <= seen.answers.load(Ordering::Relaxed)).then_some(()));
            seen.stopped.store(true, Ordering::Relaxed);
            server.terminate();
        });
        assert_eq!(server.wait().code(), Some(0), "{}", server.errors());
        let count = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        assert_eq!(count(&seen.unanswered), 0, "round {round}: requests that were sent and never answered");
        assert_eq!(count(&seen.refused_connections), CLIENTS as u64, "round {round}");
    }
}

#[test]
fn during_the_grace_readyz_says_no_and_everything_is_served() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut server = Server::start_with(directory.path(), &["--coupon", "launch=10", "--stop-grace", "60s"]);
    let watch = Stopwatch::start();
    server.terminate();
    let told = wait_for("a service that is not ready", || {
        let answer = server.client().get("/readyz");
        (answer.status == 503).then_some(answer)
    });
    assert_eq!(told.json()["reason"], "draining");
    let mut kept = server.client();
    for user in ["ann", "bob", "cid"] {
        assert_eq!(Client::claim(&mut kept, "launch", user, None).expect("it is served").status, 201);
        assert_eq!(server.client().get("/healthz").status, 200, "new connections are taken");
    }
    // A second signal ends the grace.
    server.terminate();
    assert_eq!(server.wait().code(), Some(0), "{}", server.errors());
    assert!(watch.elapsed() < Duration::from_secs(50), "{:?}", watch.elapsed());
}
