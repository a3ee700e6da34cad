//! A script that joined and never polled kept the line of a room full for an hour, and visitors were told that it is full.
//!
//! Now a room can ask for a first poll. This lets real time pass, kills the service, and shows that the kill takes no place away.

use crate::support::http::Client;
use crate::support::server::Server;
use crate::support::wait_for;
use serde_json::{Value, json};

/// Long enough for a poll by a machine that does much else.
const FIRST_POLL_MS: u64 = 5_000;

fn settings() -> Value {
    json!({"max_active": 1, "paused": true, "first_poll_ms": FIRST_POLL_MS})
}

fn join(client: &mut Client, room: &str) -> String {
    let joined = client.call("POST", &format!("/v1/rooms/{room}/tickets"), Some(&json!({}))).json();
    let (ticket, poll_after_ms) = (joined["ticket"].as_str().expect("a ticket"), joined["poll_after_ms"].as_u64());
    assert!(poll_after_ms.is_some_and(|ms| ms <= FIRST_POLL_MS / 2), "{joined}");
    ticket.to_owned()
}

fn state(client: &mut Client, room: &str, ticket: &str) -> String {
    let told = client.get(&format!("/v1/rooms/{room}/tickets/{ticket}")).json();
    told["state"].as_str().expect("a state").to_owned()
}

fn waiting(client: &mut Client, room: &str) -> Value {
    client.get(&format!("/v1/rooms/{room}")).json()["waiting"].clone()
}

#[test]
fn places_that_never_poll_end_in_real_time_and_a_kill_takes_no_place_away() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut server = Server::start(directory.path());
    let mut client = server.client();
    assert_eq!(client.put_status("/v1/rooms/sale", &settings()), 201);
    let ann = join(&mut client, "sale");
    assert_eq!(state(&mut client, "sale", &ann), "waiting");
    let flood: Vec<String> = (0..20).map(|_| join(&mut client, "sale")).collect();
    wait_for("the flood to be dropped", || (waiting(&mut client, "sale") == 1).then_some(()));
    for ticket in &flood {
        assert_eq!(state(&mut client, "sale", ticket), "expired");
    }
    assert_eq!(state(&mut client, "sale", &ann), "waiting", "one poll was enough");
    let metrics = client.get("/metrics").text();
    assert!(metrics.contains("firstcome_room_unpolled_total 20"), "{metrics}");
    let late = join(&mut client, "sale");
    server.kill();

    let server = Server::start(directory.path());
    let mut client = server.client();
    // As long as a place of this life lasts without a poll.
    assert_eq!(client.put_status("/v1/rooms/next", &settings()), 201);
    join(&mut client, "next");
    wait_for("a place without a poll to end", || (waiting(&mut client, "next") == 0).then_some(()));
    assert_eq!(waiting(&mut client, "sale"), 2, "every visitor has the time afresh, and at least 90 s");
    for ticket in [&ann, &late] {
        assert_eq!(state(&mut client, "sale", ticket), "waiting");
    }
}
