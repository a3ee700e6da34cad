//! Streams of the dashboard, over real connections.

use super::{Operator, VIEW, with_view};
use crate::room::streams::Stream;
use crate::running::{Running, patient};
use crate::service::ADMIN;
use firstcome_server::Config;
use serde_json::{Value, json};

const STREAM: &str = "/dashboard/stream";

/// A service that listens, with a room.
async fn running(streams_max: usize) -> Running {
    let running = Running::with(Config { limits: patient(), streams_max, ..with_view() }).await;
    running.service.make_room("sale", json!({"max_active": 1})).await;
    running
}

impl Operator<'_> {
    async fn stream(&self, running: &Running, query: &str) -> Stream {
        Stream::open(running, &format!("{STREAM}{query}"), &format!("cookie: {}\r\n", self.cookie)).await
    }

    async fn feed(&self, query: &str) -> Value {
        self.page(&format!("/dashboard/feed{query}")).await.is(200).json()
    }
}

fn newest(samples: &Value) -> Value {
    samples["at_ms"].as_array().and_then(|instants| instants.last().cloned()).unwrap_or_default()
}

async fn refused(running: &Running, query: &str, cookie: &str, status: u16, code: &str) {
    let head = format!("GET {STREAM}{query} HTTP/1.1\r\nhost: 127.0.0.1\r\ncookie: {cookie}\r\n\r\n");
    running.exchange(head).await.refused(status, code);
}

#[tokio::test]
async fn a_stream_tells_what_a_poll_would_until_the_session_is_over() {
    let running = running(9).await;
    let service = &running.service;
    let viewer = Operator::logged_in(service, VIEW).await;
    // The first look begins a history.
    assert_eq!(viewer.feed("").await["at_ms"], json!([]));
    let mut all = viewer.stream(&running, "").await;
    let mut room = viewer.stream(&running, "?room=sale").await;
    assert_eq!(running.figure("firstcome_streams{kind=\"operator\"}").await, 2);
    let mut last = json!(0);
    for now_s in [2, 4, 6] {
        service.set_clock(now_s);
        let told = all.named("samples").await;
        assert_eq!(told["at_ms"].as_array().map(Vec::len), Some(1), "each sample once: {told}");
        assert_eq!(told, viewer.feed(&format!("?after={last}")).await);
        last = told["at_ms"][0].clone();
        // A room may have a sample of before the first one of the service.
        while newest(&room.named("samples").await) != last {}
    }
    // A page that has been open for a while asks for what it does not know.
    let known = viewer.feed("").await["at_ms"][0].clone();
    let told = viewer.stream(&running, &format!("?after={known}")).await.named("samples").await;
    assert_eq!(told["at_ms"].as_array().map(Vec::len), Some(2), "{told}");
    service.set_clock(3_600);
    assert_eq!((all.ended().await, room.ended().await), ("session".to_owned(), "session".to_owned()));
    refused(&running, "", &viewer.cookie, 401, "unauthorized").await;
}

#[tokio::test]
async fn a_logout_ends_the_streams_of_its_session_and_a_stop_ends_all() {
    let mut running = running(9).await;
    let (mut ann, mut bob) = {
        let service = &running.service;
        let (one, two) = (Operator::logged_in(service, ADMIN).await, Operator::logged_in(service, ADMIN).await);
        let (mut ann, bob) = (one.stream(&running, "").await, two.stream(&running, "").await);
        let page = one.page("/dashboard").await;
        one.submit(&page, "/dashboard/logout", &[]).await.is(303);
        assert_eq!(ann.ended().await, "session");
        assert_eq!(running.figure("firstcome_streams_ended_total{reason=\"session\"}").await, 1);
        (two.stream(&running, "").await, bob)
    };
    running.begin_stop();
    assert_eq!((ann.ended().await, bob.ended().await), ("stopping".to_owned(), "stopping".to_owned()));
    running.stopped().await;
}

#[tokio::test]
async fn a_stream_needs_a_session_and_a_room_that_exists() {
    let some = running(9).await;
    let operator = Operator::logged_in(&some.service, ADMIN).await;
    refused(&some, "", "", 401, "unauthorized").await;
    refused(&some, "", &operator.cookie.replace('.', ".1"), 401, "unauthorized").await;
    refused(&some, "?room=none", &operator.cookie, 404, "unknown_room").await;
    refused(&some, "?room=a%20b", &operator.cookie, 400, "invalid_name").await;
    let none = running(0).await;
    let operator = Operator::logged_in(&none.service, ADMIN).await;
    refused(&none, "", &operator.cookie, 503, "streams_full").await;
}
